"""The dynamic program over one part of a graph: memory and calls of the compiled search."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import inf
from typing import Final

import numpy as np
import numpy.typing as npt

from simsched.schedulers.deadline import Deadline
from simsched.schedulers.ios import endings
from simsched.schedulers.listing import require_finite
from simsched.schedulers.stage_costs import StageFormula

_STEPS: Final = 2**21  # cells between two looks at the clock
_FIRST_ROOM: Final = 1024
_EXACT_BELOW: Final = 2.0**62
_MOST_NBYTES: Final = 2**30  # of one column; so cells can be counted in 32 bits

Stage = tuple[tuple[int, ...], ...]


class TooLargeError(Exception):
    """A part has more endings, or more stages to ask for, than the budget it names, or needs too much "memory"."""


class StoppedError(Exception):
    """The time is over, or the user has interrupted."""


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
class Part:
    """Operators of a part, numbered topologically from 0.

    Parameters
    ----------
    readers
        The operators that read from each, rising, without those that follow from others.
    classes
        A number below `len(part)` for each; operators of equal ones are the same to the stage latency.
    times
        Of each alone in us.
    merges
        Sets of operators that can be merged.
    """

    readers: tuple[tuple[int, ...], ...]
    classes: tuple[int, ...]
    times: tuple[float, ...]
    merges: tuple[tuple[int, ...], ...] = ()

    def __len__(self) -> int:
        return len(self.readers)


@dataclass(frozen=True, slots=True)
class Solution:
    """A fastest sequence of stages of a part, and what the search for it saw.

    Parameters
    ----------
    stages
        Groups of operators, each rising; and whether they are merged.
    states, transitions, merged_transitions
        What the dynamic program went through; transitions with those that merge.
    schedules
        How many sequences of stages there are; exact, or close if `schedules_exact` is false, None beyond 1e308.
    distinct_stages
        Stages that end any state; 0 with a formula.
    """

    stages: tuple[tuple[Stage, bool], ...]
    states: int
    transitions: int
    merged_transitions: int
    schedules: int | None
    schedules_exact: bool
    distinct_stages: int


class PartSearch:
    """The compiled search over one part.

    Parameters
    ----------
    part, merge_costs
        What to search, and the latency in us of each set of operators merged.
    limits
        What limits it.
    deadline
        Asked from time to time.

    Raises
    ------
    TooLargeError
        If there are more states than the budget or the memory allows.
    StoppedError
        If the deadline is over.
    """

    def __init__(self, part: Part, merge_costs: Sequence[float], limits: Limits, deadline: Deadline) -> None:
        self._part, self._limits, self._deadline = part, limits, deadline
        n = len(part)
        most = n if limits.r is None else min(n, limits.r)
        room = _FIRST_ROOM + 2 * n
        reader_ptr, readers = _joined(part.readers)
        source_ptr, sources = _joined(_turned(part.readers))
        merge_ptr, merged = _joined([merge[::-1] for merge in part.merges])
        fewer = (max(0, min(len(reading) - 1, most - 2)) for reading in part.readers)
        self._run = run = endings.PartTable(
            n_ops=n, n_words=(n + 63) // 64, n_states=1, single_root=limits.single_root, most_ops=most,
            most_groups=n if limits.s is None else min(n, limits.s), n_merges=len(merge_costs), margin=n + 1,
            states_room=room, cells_room=room, nodes_room=1 << (room - 1).bit_length(), written_room=room,
            time=np.array(part.times), classes=np.array(part.classes, np.int32),
            fewer=np.array([0, *accumulate(fewer)], np.int32), reader_ptr=reader_ptr, readers=readers,
            within=np.zeros_like(readers), source_ptr=source_ptr, sources=sources,
            merge_ptr=merge_ptr, merged=merged, merge_cost=np.array(merge_costs),
        )  # fmt: skip
        run["masks"][: run.n_words].view(np.uint8)[: (n + 7) // 8] = np.packbits(np.ones(n, bool), bitorder="little")
        sinks = [i for i in reversed(range(n)) if not part.readers[i]]
        run["states"]["end"][0] = run.n_cells = len(sinks)
        run["cells"]["operator"][: len(sinks)] = sinks
        while run.state < run.n_states:
            self._make_room("states", "cells")
            endings.build_states(run)
            if deadline.over():
                raise StoppedError
            if run.n_cells > limits.max_transitions:  # each is an ending of one operator
                raise TooLargeError("max_transitions")
        run["values"] = np.zeros(run.n_states, endings.Value.dtype)
        run["values"]["count"][-1] = run["values"]["count_modulo"][-1] = 1

    def _make_room(self, *growing: str) -> None:
        """Double the columns of what is nearly full."""
        run = self._run
        for what in growing:
            room = getattr(run, f"{what}_room")
            if getattr(run, f"n_{what}") + run.margin <= room:
                continue
            for name in ("masks", "states") if what == "states" else (what,):
                old = run[name]
                if 2 * old.nbytes > _MOST_NBYTES:
                    raise TooLargeError("memory")
                new = np.empty(2 * old.nbytes, np.uint8)  # rows are copied as bytes, not field after field
                new[: old.nbytes] = old.view(np.uint8)
                run[name] = new.view(old.dtype)
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
            if self._deadline.over():
                raise StoppedError
            left -= steps - run.left
            if run.n_asked > self._limits.max_stages:
                raise TooLargeError("max_stages")

    def by_formula(self, formula: StageFormula) -> Solution:
        """Return a fastest sequence of stages by a formula."""
        factor = 1.0 + formula.slowdown * (np.arange(len(self._part) + 1) - 1.0)
        factor[0] = formula.constant
        self._run["factor"] = factor
        self._search(endings.FORMULA)
        return self._solution()

    def by_cost(self, ask: Callable[[list[Stage]], list[float]]) -> Solution:
        """Return a fastest sequence of stages by a function that is asked for each look of a stage once."""
        self._run.n_nodes = endings.FIRST_NODE
        self._search(endings.COLLECT)
        costs = np.array([inf, *ask(list(self._asked()))])
        nodes = self._run["nodes"][: self._run.n_nodes]
        nodes["cost"] = costs[nodes["asked"]]
        self._search(endings.LOOK_UP)
        return self._solution()

    def _asked(self) -> Iterator[Stage]:
        """Yield the stages to ask the cost of."""
        groups: list[tuple[int, ...]] = []
        group: list[int] = []
        for drafted in self._run["written"][: self._run.n_written].tolist():
            if drafted == endings.END_OF_STAGE:
                yield tuple(groups)
                groups = []
                continue
            group.append(drafted >> 1)
            if not drafted & 1:
                groups.append(tuple(group))
                group = []

    def _solution(self) -> Solution:
        """Read the stages and the counts."""
        run, part, whole = self._run, self._part, self._run.values[0]
        require_finite("ios", whole.cost)
        stages: list[tuple[Stage, bool]] = []
        state = 0
        while state < run.n_states - 1:
            value = run.values[state]
            if value.merge >= 0:
                stages.append(((part.merges[value.merge],), True))
            else:
                taken = np.flatnonzero(self._held(state) > self._held(value.next)).tolist()
                stages.append((groups_of(taken, part), False))
            state = value.next
        transitions = run.n_endings + run.n_merged_endings
        # an upper bound of the rounding error: additions one after the other, stage after stage
        error = whole.count * (len(part) + 1) * (transitions + 1) * 2.0**-52
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


def groups_of(ops: Sequence[int], part: Part) -> Stage:
    """Return the groups of a stage: rising operators that edges connect, groups by classes, then first operators."""
    group_of: dict[int, list[int]] = {}
    for x in sorted(ops, reverse=True):
        group = group_of[x] = [x]
        for u in part.readers[x]:
            if u in group_of and group_of[u] is not group:
                group += group_of[u]
                for member in group_of[u]:
                    group_of[member] = group
    groups = [tuple(sorted(group_of[x])) for x in sorted(ops) if min(group_of[x]) == x]
    return tuple(sorted(groups, key=lambda group: [part.classes[x] for x in group]))


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
