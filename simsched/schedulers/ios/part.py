"""The dynamic program over one part of a graph: memory and calls of the compiled search."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import inf
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from simsched.errors import SchedulerError
from simsched.machine_code import load
from simsched.schedulers.deadline import Deadline
from simsched.schedulers.ios import layout as at
from simsched.schedulers.stage_costs import StageFormula

_HERE: Final = Path(__file__).parent
_SOURCES: Final = (
    *(_HERE / f"{name}.py" for name in ("endings", "lattice", "layout", "prefixes")),
    _HERE.parent.parent / "machine_columns.py",
)
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
    """Memory of the compiled search over one part.

    Parameters
    ----------
    part, limits
        What to search.
    deadline
        Asked from time to time.

    Raises
    ------
    TooLargeError
        If there are more states than the budget or the memory allows.
    StoppedError
        If the deadline is over.
    """

    def __init__(self, part: Part, limits: Limits, deadline: Deadline) -> None:
        self._part, self._limits, self._deadline = part, limits, deadline
        self._run = load("simsched.schedulers.ios.endings:search_states", _SOURCES, "search of IOS")
        self._table = np.zeros(at.SIZE, np.int64)
        self._columns: dict[int, npt.NDArray[Any]] = {}
        n = len(part)
        most = n if limits.r is None else min(n, limits.r)
        self._set(at.N_OPS, n)
        self._set(at.N_WORDS, (n + 63) // 64)
        self._set(at.MOST_OPS, most)
        self._set(at.MOST_GROUPS, n if limits.s is None else min(n, limits.s))
        self._set(at.SINGLE_ROOT, int(limits.single_root))
        self._put_rows(at.READER_PTR, at.READERS, part.readers)
        self._put_rows(at.SOURCE_PTR, at.SOURCES, _turned(part.readers))
        fewer = (max(0, min(len(readers) - 1, most - 2)) for readers in part.readers)
        self._put(at.FEWER, np.array([0, *accumulate(fewer)], np.int32))
        self._put(at.CLASS, np.array(part.classes, np.int32))
        self._put(at.READER_MASK, _masks(part.readers, n))
        self._put(at.TIME, np.array(part.times, np.float64))
        for key in (at.JOINED, at.GROUP_SIZE, at.GROUP_ROOTS, at.N_SOURCES_IN, at.GROUP_AT):
            self._put(key, np.zeros(n + 1, np.int32))
        self._put(at.PARENT, np.full(n, -1, np.int32))
        self._put(at.GROUP_TIME, np.zeros(n))
        self._put(at.WITHIN_PTR, np.zeros(n + 1, np.int32))
        self._put(at.WITHIN, np.zeros(len(self._columns[at.READERS]) + 1, np.int32))
        self._put(at.FRAMES, np.zeros(at.FRAME * (n + 1), np.int64))
        self._put(at.FACTOR, np.ones(n + 1))
        self._put(at.STAGE_COST, np.zeros(1))
        self._put_merges(())
        self._build()

    def _set(self, key: int, value: int) -> None:
        self._table[key] = value

    def _get(self, key: int) -> int:
        return int(self._table[key])

    def _put(self, key: int, column: npt.NDArray[Any]) -> None:
        """Point at a column, which is kept."""
        self._columns[key] = column
        self._table[key] = column.__array_interface__["data"][0]

    def _put_rows(self, ptr: int, values: int, rows: Sequence[Sequence[int]]) -> None:
        self._put(ptr, np.array([0, *accumulate(len(row) for row in rows)], np.int32))
        self._put(values, np.array([*(i for row in rows for i in row), 0], np.int32))

    def _put_merges(self, costs: Sequence[float]) -> None:
        merges = [tuple(reversed(merge)) for merge in self._part.merges[: len(costs)]]
        self._put_rows(at.MERGE_PTR, at.MERGED, merges)
        self._put(at.MERGE_COST, np.array([*costs, 0.0]))
        self._set(at.N_MERGES, len(costs))

    def _make_room(self, wanted: int) -> None:
        """Double the columns of what is counted under a key."""
        room, columns = _GROWING[wanted]
        for key in columns:
            old = self._columns[key]
            if 2 * old.nbytes > _MOST_NBYTES:
                raise TooLargeError("memory")
            new = np.empty(2 * len(old), old.dtype)
            new[: len(old)] = old
            self._put(key, new)
        self._set(room, 2 * self._get(room))

    def _call(self, phase: int) -> int:
        self._set(at.PHASE, phase)
        self._run(self._table.__array_interface__["data"][0])
        if self._deadline.over():
            raise StoppedError
        return self._get(at.STATUS)

    def _build(self) -> None:
        """Find all states."""
        n, words = len(self._part), self._get(at.N_WORDS)
        sinks = [i for i in reversed(range(n)) if not self._part.readers[i]]
        room = _FIRST_ROOM + 2 * n
        self._set(at.STATE_ROOM, room)
        self._set(at.CELL_ROOM, room)
        self._put(at.MASKS, np.zeros(room * words, np.int64))
        self._put(at.STATES, np.zeros(room * at.STATE_ROW, np.int32))
        self._put(at.CELLS, np.zeros(room * at.CELL, np.int32))
        self._columns[at.MASKS][:words] = _masks([range(n)], n)
        self._columns[at.STATES][: at.STATE_ROW] = 0, len(sinks), 0, 0
        self._columns[at.CELLS][: at.CELL * len(sinks) : at.CELL] = sinks
        self._set(at.N_STATES, 1)
        self._set(at.N_CELLS, len(sinks))
        budget = self._limits.max_transitions
        while self._call(at.BUILD) == at.FULL:
            if self._get(at.N_CELLS) > budget:
                raise TooLargeError("max_transitions")
            self._make_room(self._get(at.WANTED))
        if self._get(at.N_CELLS) > budget:  # each is an ending of one operator
            raise TooLargeError("max_transitions")
        values = np.zeros((self._get(at.N_STATES), at.VALUE))
        values[-1, at.COUNT] = 1.0
        values[-1].view(np.int64)[at.COUNT_MODULO] = 1
        self._put(at.VALUES, values.reshape(-1))

    def _search(self, mode: int) -> None:
        """Go through all endings."""
        self._set(at.MODE, mode)
        self._set(at.STATE, self._get(at.N_STATES) - 2)
        self._set(at.DEPTH, -1)
        self._set(at.N_ENDINGS, 0)
        self._set(at.N_MERGED_ENDINGS, 0)
        left, status = self._limits.max_transitions, at.PAUSED
        while status != at.DONE:
            if left == 0:
                raise TooLargeError("max_transitions")
            steps = min(left, _STEPS)
            self._set(at.LEFT, steps)
            status = self._call(at.SEARCH)
            left -= steps - self._get(at.LEFT)
            if self._get(at.N_ASKED) > self._limits.max_stages:
                raise TooLargeError("max_stages")
            if status == at.FULL:
                for count in _COLLECTED:
                    if self._get(count) + 2 * len(self._part) >= self._get(_GROWING[count][0]):
                        self._make_room(count)
                self._make_hashes()

    def by_formula(self, formula: StageFormula, merge_costs: Sequence[float]) -> Solution:
        """Return a fastest sequence of stages by a formula."""
        n = len(self._part)
        factor = 1.0 + formula.slowdown * (np.arange(n + 1) - 1.0)
        factor[0] = formula.constant
        self._put(at.FACTOR, factor)
        self._put_merges(merge_costs)
        self._search(at.FORMULA)
        return self._solution(0)

    def by_cost(self, ask: Callable[[list[Stage]], list[float]], merge_costs: Sequence[float]) -> Solution:
        """Return a fastest sequence of stages by a function that is asked for each look of a stage once."""
        room = _FIRST_ROOM + 2 * len(self._part)
        for count in _COLLECTED:
            key, columns = _GROWING[count]
            self._set(key, room)
            for column in columns:
                entries = at.NODE if column in (at.NODES, at.SIGNS) else 1
                self._put(column, np.full(room * entries, -1, np.int64 if column == at.ASKED_PTR else np.int32))
        self._columns[at.ASKED_PTR][0] = 0
        self._set(at.N_NODES, 1)
        self._set(at.N_SIGNS, 1)
        self._make_hashes()
        self._search(at.COLLECT)
        costs = np.array([*ask(list(self._asked())), inf])
        nodes = self._columns[at.NODES].reshape(-1, at.NODE)[: self._get(at.N_NODES)]
        self._put(at.STAGE_COST, costs[nodes[:, at.ASKED]])  # the last stands for -1
        self._put_merges(merge_costs)
        self._search(at.LOOK_UP)
        return self._solution(self._get(at.N_STAGES))

    def _make_hashes(self) -> None:
        """Make hash tables at most half full, and fill them."""
        for room, slots, hashes in (
            (at.NODE_ROOM, at.NODE_SLOTS, at.NODE_HASH),
            (at.SIGN_ROOM, at.SIGN_SLOTS, at.SIGN_HASH),
        ):
            self._set(slots, 1 << (2 * self._get(room) - 1).bit_length())
            self._put(hashes, np.zeros(2 * self._get(slots), np.int64))
        self._call(at.REHASH)

    def _asked(self) -> Iterator[Stage]:
        """Yield the stages to ask the cost of."""
        written = self._columns[at.WRITTEN].tolist()
        bounds = self._columns[at.ASKED_PTR][: self._get(at.N_ASKED) + 1].tolist()
        for start, end in pairwise(bounds):
            groups: list[tuple[int, ...]] = []
            group: list[int] = []
            for x in written[start:end]:
                group.append(x if x >= 0 else -1 - x)
                if x < 0:
                    groups.append(tuple(group))
                    group = []
            yield tuple(groups)

    def _solution(self, distinct: int) -> Solution:
        """Read the stages and the counts."""
        part, n_states = self._part, self._get(at.N_STATES)
        values = self._columns[at.VALUES].reshape(-1, at.VALUE)
        if values[0, at.COST] == inf:
            raise SchedulerError("ios: the latencies of stages add up to more than a float holds; give shorter times")
        masks = self._columns[at.MASKS].reshape(-1, self._get(at.N_WORDS))
        following = values.view(np.int64)[:, at.NEXT]
        stages: list[tuple[Stage, bool]] = []
        state = 0
        while state < n_states - 1:
            after = int(following[state])
            if after < 0:
                merge = part.merges[-1 - after]
                stages.append(((merge,), True))
                state = self._without(state, merge)
            else:
                taken = masks[state] & ~masks[after]
                ops = [i for i in range(len(part)) if int(taken[i >> 6]) >> (i & 63) & 1]
                stages.append((groups_of(ops, part), False))
                state = after
        count, modulo = float(values[0, at.COUNT]), int(values.view(np.int64)[0, at.COUNT_MODULO])
        transitions = self._get(at.N_ENDINGS) + self._get(at.N_MERGED_ENDINGS)
        # an upper bound of the rounding error: additions one after the other, stage after stage
        error = count * (len(part) + 1) * (transitions + 1) * 2.0**-52
        schedules = None if count == inf else _congruent(count, modulo) if error < _EXACT_BELOW else int(count)
        return Solution(
            tuple(reversed(stages)), n_states - 1, transitions, self._get(at.N_MERGED_ENDINGS),
            schedules, error < _EXACT_BELOW, distinct,
        )  # fmt: skip

    def _without(self, state: int, ops: Sequence[int]) -> int:
        """Return the state that is left without operators that nothing in it reads."""
        states = self._columns[at.STATES].reshape(-1, at.STATE_ROW)
        cells = self._columns[at.CELLS].reshape(-1, at.CELL)
        for x in ops:
            start, length = states[state, [at.START, at.LENGTH]].tolist()
            (row,) = [row for row in cells[start : start + length].tolist() if row[at.OPERATOR] == x]
            state = row[at.REST]
        return state


_GROWING: Final = {
    at.N_STATES: (at.STATE_ROOM, (at.MASKS, at.STATES)),
    at.N_CELLS: (at.CELL_ROOM, (at.CELLS,)),
    at.N_NODES: (at.NODE_ROOM, (at.NODES,)),
    at.N_SIGNS: (at.SIGN_ROOM, (at.SIGNS,)),
    at.N_ASKED: (at.ASKED_ROOM, (at.ASKED_PTR,)),
    at.N_WRITTEN: (at.WRITTEN_ROOM, (at.WRITTEN,)),
}
"""What is counted: the room there is, and the columns that need more if it is too little."""
_COLLECTED: Final = (at.N_NODES, at.N_SIGNS, at.N_ASKED, at.N_WRITTEN)


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


def _masks(rows: Sequence[Iterable[int]], n: int) -> npt.NDArray[np.int64]:
    """Return a bit mask of each row of numbers below `n`, in words of 64 bits."""
    words = (n + 63) // 64
    data = b"".join(sum(1 << i for i in row).to_bytes(8 * words, "little") for row in rows)
    return np.frombuffer(data, np.int64).copy()
