"""The dynamic program over one part of a graph: memory and calls of the compiled search."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import inf
from typing import Final

import numpy as np
import numpy.typing as npt

from simsched.model import OpGraph
from simsched.schedulers.ios import endings
from simsched.schedulers.ios.problem import Problem, StoppedError
from simsched.schedulers.listing import reduced, require_finite
from simsched.schedulers.stage_costs import Groups

_STEPS: Final = 2**21  # cells between two looks at the clock
_FIRST_ROOM: Final = 1024
_EXACT_BELOW: Final = 2.0**62
_MOST_NBYTES: Final = 2**30  # of one column; so cells can be counted in 32 bits

Stage = tuple[tuple[int, ...], ...]


class TooLargeError(Exception):
    """A part has more endings, or more stages to ask for, than the budget it names, or needs too much "memory"."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What limits the stages, and the search for them.

    Parameters
    ----------
    r, s
        Most operators of a group and most groups of a stage.
    single_root
        Whether only one operator of a group may read from none in the stage.
    max_transitions
        Most endings to look at.
    max_stages
        Most stages to ask the cost of.
    """

    r: int | None
    s: int | None
    single_root: bool
    max_transitions: int
    max_stages: int

    def share(self, n: int) -> "Limits":
        """Return limits with an n-th of the budget."""
        return replace(self, max_transitions=max(1, self.max_transitions // n), max_stages=max(1, self.max_stages // n))


@dataclass(frozen=True, slots=True)
class Solution:
    """A fastest sequence of stages of a part, and what the search for it saw.

    Parameters
    ----------
    stages
        Groups of operators by name; and whether they are merged.
    states, transitions, merged_transitions
        What the dynamic program went through; transitions with those that merge.
    schedules
        How many sequences of stages there are; exact, or close if `schedules_exact` is false, None beyond 1e308, or if
        it was stopped.
    distinct_stages
        Stages that end any state; 0 with a formula.
    reason
        Why the block that it is of was cut, the option; None if it is a whole block.
    """

    stages: tuple[tuple[Groups, bool], ...]
    states: int = 0
    transitions: int = 0
    merged_transitions: int = 0
    schedules: int | None = None
    schedules_exact: bool = False
    distinct_stages: int = 0
    reason: str | None = None

    def __len__(self) -> int:
        return sum(len(group) for groups, _ in self.stages for group in groups)


class Part:
    """Operators that are optimised together, and the compiled search over their stages.

    Parameters
    ----------
    problem
        What they are of.
    ops
        The operators, in topological order; below each is numbered by its place.
    limits
        What limits the search.

    Raises
    ------
    TooLargeError
        If there are more states than the budget or the memory allows.
    StoppedError
        If the deadline is over.
    """

    def __init__(self, problem: Problem, ops: Sequence[int], limits: Limits) -> None:
        self._problem, self._limits = problem, limits
        self._check_time()
        n, self._names = len(ops), [problem.graph.names[i] for i in ops]
        self._readers = readers_within(problem.graph, ops)
        if least_transitions(self._readers) > limits.max_transitions:
            raise TooLargeError("max_transitions")  # known before anything is asked about operators to merge
        self._classes = np.unique(problem.classes[ops], return_inverse=True)[1]  # below n
        self._merges = problem.merging.sets(ops)
        merge_cost = [problem.ask(self._named((merge,)), merged=True) for merge in self._merges]
        most = n if limits.r is None else min(n, limits.r)
        room = _FIRST_ROOM + 2 * n
        reader_ptr, readers = _joined(self._readers)
        source_ptr, sources = _joined(_turned(self._readers))
        merge_ptr, merged = _joined([merge[::-1] for merge in self._merges])
        fewer = (max(0, min(len(reading) - 1, most - 2)) for reading in self._readers)
        self._run = run = endings.PartTable(
            n_ops=n, n_words=(n + 63) // 64, n_states=1, single_root=limits.single_root, most_ops=most,
            most_groups=n if limits.s is None else min(n, limits.s), n_merges=len(self._merges),
            states_room=room, cells_room=room, nodes_room=1 << (room - 1).bit_length(), written_room=room,
            time=problem.times[ops], classes=self._classes.astype(np.int32),
            fewer=np.array([0, *accumulate(fewer)], np.int32), reader_ptr=reader_ptr, readers=readers,
            source_ptr=source_ptr, sources=sources, merge_ptr=merge_ptr, merged=merged,
            merge_cost=np.array(merge_cost, np.float64),
        )  # fmt: skip
        run["masks"][: run.n_words].view(np.uint8)[: (n + 7) // 8] = np.packbits(np.ones(n, bool), bitorder="little")
        run["groups"]["parent"] = endings.NOT_TAKEN
        sinks = [i for i in reversed(range(n)) if not self._readers[i]]
        run["states"]["end"][0] = run.n_cells = len(sinks)
        run["cells"]["operator"][: len(sinks)] = sinks
        while run.state < run.n_states:
            self._make_room("states", "cells")
            endings.build_states(run)
            self._check_time()
            if run.n_cells > limits.max_transitions:  # each is an ending of one operator
                raise TooLargeError("max_transitions")
        run["values"] = np.zeros(run.n_states, endings.Value.dtype)
        run["values"]["count"][-1] = run["values"]["count_modulo"][-1] = 1

    def _check_time(self) -> None:
        if self._problem.deadline.over():
            raise StoppedError

    def _named(self, stage: Stage) -> Groups:
        return tuple(tuple(self._names[k] for k in group) for group in stage)

    def _make_room(self, *growing: str) -> None:
        """Double the columns of what is nearly full."""
        run = self._run
        for what in growing:
            room = getattr(run, f"{what}_room")
            if getattr(run, f"n_{what}") + run.n_ops < room:
                continue
            for name in ("masks", "states") if what == "states" else (what,):
                old = run[name]
                if 2 * old.nbytes > _MOST_NBYTES:
                    raise TooLargeError("memory")
                more = np.empty(old.nbytes, np.uint8)  # rows are copied as bytes, not field after field
                run[name] = np.concatenate([old.view(np.uint8), more]).view(old.dtype)
            setattr(run, f"{what}_room", 2 * room)
            if what == "nodes":
                run["slots"] = np.zeros(2 * run.nodes_room, np.int32)
                endings.fill_slots(run)

    def _search(self, mode: int) -> None:
        """Go through all endings."""
        run, left = self._run, self._limits.max_transitions
        run.mode, run.state, run.depth, run.n_endings = mode, run.n_states - 2, -1, 0
        while run.state >= 0:
            if left == 0:
                raise TooLargeError("max_transitions")
            self._make_room("nodes", "written")
            run.left = steps = min(left, _STEPS)
            endings.search_endings(run)
            self._check_time()
            left -= steps - run.left
            if run.n_asked > self._limits.max_stages:
                raise TooLargeError("max_stages")

    def solution(self) -> Solution:
        """Return a fastest sequence of stages.

        Raises
        ------
        TooLargeError
            If there are more endings, or looks of stages to ask for, than the budget allows.
        StoppedError
            If the deadline is over.
        """
        run, formula = self._run, self._problem.formula
        if formula is None:
            run.n_nodes = endings.FIRST_NODE
            self._search(endings.COLLECT)
            costs = np.array([inf, *map(self._problem.ask, self._asked())])
            nodes = run["nodes"][: run.n_nodes]
            nodes["cost"] = costs[nodes["asked"]]
            self._search(endings.LOOK_UP)
        else:
            run["factor"] = 1.0 + formula.slowdown * (np.arange(run.n_ops + 1) - 1.0)
            run["factor"][0] = formula.constant
            self._search(endings.FORMULA)
        return self._found()

    def _asked(self) -> Iterator[Groups]:
        """Yield the stages to ask the cost of."""
        groups: list[tuple[int, ...]] = []
        group: list[int] = []
        for drafted in self._run["written"][: self._run.n_written].tolist():
            if drafted == endings.END_OF_STAGE:
                yield self._named(tuple(groups))
                groups = []
                continue
            group.append(drafted >> 1)
            if not drafted & 1:
                groups.append(tuple(group))
                group = []

    def _found(self) -> Solution:
        """Read the stages and the counts."""
        run, whole = self._run, self._run.values[0]
        require_finite("ios", whole.cost)
        stages: list[tuple[Groups, bool]] = []
        state = 0
        while state < run.n_states - 1:
            value = run.values[state]
            if value.merge >= 0:
                stage: Stage = (self._merges[value.merge],)
            else:
                stage = self._groups(np.flatnonzero(self._held(state) > self._held(value.next)).tolist())
            stages.append((self._named(stage), value.merge >= 0))
            state = value.next
        transitions = run.n_endings + run.n_merged_endings
        # an upper bound of the rounding error: additions one after the other, stage after stage
        error = whole.count * (run.n_ops + 1) * (transitions + 1) * 2.0**-52
        exact = error < _EXACT_BELOW
        schedules = None
        if whole.count < inf:
            schedules = _congruent(whole.count, whole.count_modulo) if exact else int(whole.count)
        return Solution(
            tuple(reversed(stages)), run.n_states - 1, transitions, run.n_merged_endings, schedules, exact, run.n_stages
        )

    def _held(self, state: int) -> npt.NDArray[np.uint8]:
        """Return 1 for each operator that a state holds, 0 for others."""
        words = self._run.n_words
        mask = self._run["masks"][state * words : (state + 1) * words]
        return np.unpackbits(mask.view(np.uint8), bitorder="little")

    def _groups(self, ops: Sequence[int]) -> Stage:
        """Return the groups of a stage: rising operators that edges connect, by their classes, then first operators."""
        group_of: dict[int, list[int]] = {}
        for x in reversed(ops):
            group = group_of[x] = [x]
            for u in self._readers[x]:
                if u in group_of and group_of[u] is not group:
                    group += group_of[u]
                    group_of |= dict.fromkeys(group_of[u], group)
        groups = [tuple(sorted(group_of[x])) for x in ops if min(group_of[x]) == x]
        return tuple(sorted(groups, key=lambda group: [self._classes[x] for x in group]))


def readers_within(graph: OpGraph, ops: Sequence[int]) -> list[list[int]]:
    """Return who reads from each operator of a piece, rising, without edges that follow from others.

    Operators are numbered by their places in `ops`, which is in topological order.
    """
    place = {i: k for k, i in enumerate(ops)}
    ptr, edges = graph.outgoing
    reading = ((i, graph.dst[edges[ptr[i] : ptr[i + 1]]].tolist()) for i in ops)
    within = ((place[i], place[j]) for i, readers in reading for j in readers if j in place)
    return reduced(len(ops), within)[0]


def least_transitions(readers: Sequence[Sequence[int]]) -> int:
    """Return how many endings of one operator there are at least.

    Of w operators as many steps from the start none reads from another: there is a state for each set of them, and
    each of a set ends its state.
    """
    steps = [0] * len(readers)
    for x, reading in enumerate(readers):
        for u in reading:
            steps[u] = max(steps[u], steps[x] + 1)
    width = max(Counter(steps).values())
    return int(width * 2 ** (width - 1))


def _congruent(near: float, modulo: int) -> int:
    """Return the number closest to another of all that equal `modulo` modulo 2^64."""
    whole = int(near)
    return whole + (modulo - whole + 2**63) % 2**64 - 2**63


def _turned(readers: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return what each operator reads from, falling."""
    sources: list[list[int]] = [[] for _ in readers]
    for x in reversed(range(len(readers))):
        for u in readers[x]:
            sources[u].append(x)
    return sources


def _joined(rows: Sequence[Sequence[int]]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return where each row begins, and the numbers of all."""
    ptr = np.array([0, *accumulate(map(len, rows))], np.int32)
    return ptr, np.array([i for row in rows for i in row], np.int32)
