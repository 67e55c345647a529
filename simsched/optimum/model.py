"""The contention-free model as a constraint program."""

from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np

from simsched.optimum.instance import Whole
from simsched.optimum.listing import Listed


class Model:
    """The constraint program of an instance in whole numbers.

    Parameters
    ----------
    whole
        The instance.
    hint
        A schedule of it; better ones are looked for.
    cp_model
        The module of OR-tools.

    Notes
    -----
    A start for each operator, a truth value for each operator and device, and one for each operator and
    stream of a device. Operators on one stream do not overlap; together they do not exceed all streams.
    A consumer starts when its producer is over and, if their devices differ, the move later. Where a
    move takes the same between any two devices, one truth value says whether they differ.

    Starts lie between the heads and the tails of the bounds, and the work on each device fits
    between the least of both. Of devices (and of streams of a device) that may be exchanged, an operator
    may use the next one only if one before it, in topological order, uses the one before.
    """

    def __init__(self, whole: Whole, hint: Listed, cp_model: Any) -> None:
        self._whole, self._instance = whole, whole.instance
        self._cp, self._model = cp_model, cp_model.CpModel()
        instance = self._instance
        n, n_devices = len(instance.graph), instance.n_devices
        original, hint = hint[1:], self._relabelled(hint)
        ends = instance.finish(hint.order, hint.device, hint.stream)
        most = int(max(ends))
        assert most <= max(instance.finish(*original)), "devices of a class may be exchanged"
        model = self._model
        self.makespan = model.new_int_var(min(whole.bound, most), most, "")
        model.add_hint(self.makespan, most)
        head, tail = (reach.min(axis=0) for reach in instance.reach)
        times = instance.times
        shortest = times.min(axis=0)
        self.start: list[Any] = []
        self.on: list[list[Any]] = [[None] * n_devices for _ in range(n)]  # None: cannot be
        self.span: list[Any] = []
        for i in range(n):
            last = max(int(head[i]), most - int(tail[i]) - int(shortest[i]))
            start = model.new_int_var(int(head[i]), last, "")
            self.start.append(start)
            span = 0
            for d in range(n_devices):
                if times[d, i] < inf:
                    self.on[i][d] = model.new_bool_var("")
                    model.add_hint(self.on[i][d], hint.device[i] == d)
                    span += int(times[d, i]) * self.on[i][d]
            able = [x for x in self.on[i] if x is not None]
            model.add_exactly_one(able)
            same = len({float(times[d, i]) for d in range(n_devices) if self.on[i][d] is not None}) == 1
            self.span.append(int(shortest[i]) if same else span)
            model.add_hint(start, int(ends[i]) - int(times[hint.device[i], i]))
            model.add(start + self.span[i] + int(tail[i]) <= self.makespan)
        self.runs = self._add_streams(hint)
        self._add_moves(hint)
        self._add_work(head, tail, shortest)
        self._break_symmetry(hint)
        model.minimize(self.makespan)

    @property
    def program(self) -> Any:
        """The constraint program."""
        return self._model

    def _add_streams(self, hint: Listed) -> list[dict[tuple[int, int], Any]]:
        """Keep operators of a stream apart; return for each operator the truth value of each place."""
        model, instance = self._model, self._instance
        runs: list[dict[tuple[int, int], Any]] = [{} for _ in self.start]
        for d in range(instance.n_devices):
            able = [i for i in range(len(self.start)) if self.on[i][d] is not None]
            for s in range(instance.streams):
                intervals = []
                for i in able:
                    literal = self.on[i][d]
                    if instance.streams > 1:
                        literal = model.new_bool_var("")
                        model.add_hint(literal, (hint.device[i], hint.stream[i]) == (d, s))
                    runs[i][d, s] = literal
                    length = int(instance.times[d, i])
                    intervals.append(model.new_optional_fixed_size_interval_var(self.start[i], length, literal, ""))
                model.add_no_overlap(intervals)
            if instance.streams > 1:
                for i in able:
                    model.add(sum(runs[i][d, s] for s in range(instance.streams)) == self.on[i][d])
        return runs

    def _add_moves(self, hint: Listed) -> None:
        model, instance = self._model, self._instance
        n_devices = instance.n_devices
        other = ~np.eye(n_devices, dtype=np.bool_)
        for row, (u, v) in enumerate(instance.pairs.T.tolist()):
            moves = instance.moves[row]
            ready = self.start[u] + self.span[u]
            model.add(self.start[v] >= ready)
            if n_devices > 1 and moves[other].min() == moves[other].max() < inf:
                apart = model.new_bool_var("")
                model.add_hint(apart, hint.device[u] != hint.device[v])
                for x, y in zip(self.on[u], self.on[v], strict=True):
                    for one, another in ((x, y), (y, x)):
                        if one is not None:
                            model.add_bool_or([~one, apart] if another is None else [~one, another, apart])
                model.add(self.start[v] >= ready + int(moves[other][0])).only_enforce_if(apart)
                continue
            for a, x in enumerate(self.on[u]):
                for b, y in enumerate(self.on[v]):
                    if a == b or x is None or y is None or moves[a, b] == 0:
                        continue
                    if moves[a, b] == inf:
                        model.add_bool_or([~x, ~y])
                    else:
                        model.add(self.start[v] >= ready + int(moves[a, b])).only_enforce_if([x, y])

    def _add_work(self, head: Any, tail: Any, shortest: Any) -> None:
        """Bound each device's work, and all operators that run at a time."""
        model, instance = self._model, self._instance
        n = len(self.start)
        for d in range(instance.n_devices):
            able = [i for i in range(n) if self.on[i][d] is not None]
            if able:
                work = sum(int(instance.times[d, i]) * self.on[i][d] for i in able)
                between = self.makespan - int(min(head[able]) + min(tail[able]))
                model.add(work <= instance.streams * between)
        places = instance.n_devices * instance.streams
        if 1 < places < n:
            spans = [
                model.new_fixed_size_interval_var(x, int(t), "") for x, t in zip(self.start, shortest, strict=True)
            ]
            model.add_cumulative(spans, [1] * n, places)

    # Symmetry ------------------------------------------------------------------------------------

    def _classes(self) -> list[list[int]]:
        """Return the devices in classes of those that may be exchanged with each other."""
        classes: list[list[int]] = []
        for d in range(self._instance.n_devices):
            home = next((found for found in classes if self._alike(found[0], d)), None)
            if home is None:
                classes.append([d])
            else:
                home.append(d)
        return classes

    def _alike(self, a: int, b: int) -> bool:
        times, moves = self._instance.times, self._instance.moves
        swapped = np.arange(len(times))
        swapped[[a, b]] = b, a
        return bool((times[a] == times[b]).all() and (moves[:, swapped][:, :, swapped] == moves).all())

    def _relabelled(self, hint: Listed) -> Listed:
        """Return the same schedule with devices and streams numbered as `_break_symmetry` asks."""
        new_device: dict[int, int] = {}
        new_stream: dict[tuple[int, int], int] = {}
        left = {d: turns for found in self._classes() for turns in [iter(found)] for d in found}
        streams = [0] * self._instance.n_devices
        for i in self._instance.graph.order_index.tolist():
            place = hint.device[i], hint.stream[i]
            if place[0] not in new_device:
                new_device[place[0]] = next(left[place[0]])
            if place not in new_stream:
                new_stream[place] = streams[place[0]]
                streams[place[0]] += 1
        return hint._replace(
            device=[new_device[d] for d in hint.device],
            stream=[new_stream[place] for place in zip(hint.device, hint.stream, strict=True)],
        )

    def _break_symmetry(self, hint: Listed) -> None:
        instance = self._instance
        order = instance.graph.order_index.tolist()
        for devices in self._classes():
            self._in_turn([[(self.on[i][d], hint.device[i] == d) for d in devices] for i in order])
        for d in range(instance.n_devices if instance.streams > 1 else 0):
            places = [(d, s) for s in range(instance.streams)]
            self._in_turn(
                [[(self.runs[i].get(p), (hint.device[i], hint.stream[i]) == p) for p in places] for i in order]
            )

    def _in_turn(self, rows: Sequence[Sequence[tuple[Any, bool]]]) -> None:
        """Let a row use column k only if a row above uses column k - 1; each entry has what the hint says beside it."""
        model = self._model
        for k in range(1, len(rows[0])):
            before, hinted = None, False  # whether a row above uses column k - 1
            for row in rows:
                own, last = row[k][0], row[k - 1][0]
                if own is not None:
                    if before is None:
                        model.add(own == 0)
                    else:
                        model.add_implication(own, before)
                if last is not None:
                    used, hinted = model.new_bool_var(""), hinted or row[k - 1][1]
                    model.add_hint(used, hinted)
                    model.add_bool_or([~used, last] if before is None else [~used, last, before])
                    before = used
