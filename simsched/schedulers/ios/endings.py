"""The search: stages of a block by dynamic programming over its endings, which machine code goes through."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from typing import Final

import numpy as np
import numpy.typing as npt

from simsched.schedulers.instance import reduce_edges, require_finite
from simsched.schedulers.ios import native
from simsched.schedulers.ios.problem import Problem, TooLargeError
from simsched.schedulers.stage_costs import Groups

_STEPS: Final = 2**21  # cells between two looks at the clock
_FIRST_ROOM: Final = 1024
_EXACT_BELOW: Final = 2.0**62
_MOST_NBYTES: Final = 2**30  # bytes of one column; so cells can be counted in 32 bits


@dataclass(frozen=True, slots=True)
class Solution:
    """A fastest sequence of stages of a part, and statistics of its search.

    Parameters
    ----------
    stages
        Groups of operators by name; and whether they are merged.
    states, transitions, merged_transitions
        States and transitions of the dynamic program, and transitions that merge operators.
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


class BlockPart:
    """Operators that are optimised together, and the compiled search over their stages.

    Parameters
    ----------
    problem
        The problem that the stages belong to.
    ops
        The operators, in topological order; below each is numbered by its place.
    r, s
        Most operators of a group and most groups of a stage.
    single_root
        Whether only one operator of a group may read from none in the stage.
    max_transitions, max_stages
        Most endings to look at, and most stages to ask the cost of.

    Raises
    ------
    TooLargeError
        If there are more states than the budget or the memory allows.
    StoppedError
        If the deadline is over.
    """

    def __init__(
        self,
        problem: Problem,
        ops: Sequence[int],
        r: int | None,
        s: int | None,
        single_root: bool,
        max_transitions: int,
        max_stages: int,
    ) -> None:
        self._problem = problem
        self._max_transitions = max_transitions
        self._max_stages = max_stages
        problem.check_time()
        n = len(ops)
        self._names = [problem.graph.names[i] for i in ops]
        place = {i: k for k, i in enumerate(ops)}
        (ptr, edges) = problem.graph.outgoing
        dst = problem.graph.dst
        within = ((place[i], place[j]) for i in ops for j in dst[edges[ptr[i] : ptr[i + 1]]].tolist() if j in place)
        self._readers = reduce_edges(n, within)[0]  # without edges that follow from others
        if least_transitions(self._readers) > max_transitions:
            raise TooLargeError("max_transitions")  # known before any latency of merged operators is asked for
        self._classes = np.unique(problem.classes[ops], return_inverse=True)[1]  # below n
        self._merges = problem.merges(ops)
        merge_cost = [problem.ask(self._names_of((merge,)), merged=True) for merge in self._merges]
        most = n if r is None else min(n, r)
        room = _FIRST_ROOM + 2 * n
        reader_ptr, readers = _join_rows(self._readers)
        producers = np.repeat(np.arange(n), np.diff(reader_ptr))
        by_reader = np.lexsort((-producers, readers))
        merge_ptr, merged = _join_rows([merge[::-1] for merge in self._merges])
        fewer = (max(0, min(len(reading) - 1, most - 2)) for reading in self._readers)
        self._run = run = native.PartTable(
            n_ops=n,
            n_words=(n + 63) // 64,
            n_states=1,
            single_root=single_root,
            most_ops=most,
            most_groups=n if s is None else min(n, s),
            n_merges=len(self._merges),
            states_room=room,
            cells_room=room,
            nodes_room=1 << (room - 1).bit_length(),
            written_room=room,
            time=problem.times[ops],
            classes=self._classes.astype(np.int32),
            fewer=np.array([0, *accumulate(fewer)], np.int32),
            reader_ptr=reader_ptr,
            readers=readers,
            source_ptr=np.searchsorted(readers[by_reader], np.arange(n + 1)).astype(np.int32),
            sources=producers[by_reader].astype(np.int32),
            merge_ptr=merge_ptr,
            merged=merged,
            merge_cost=np.array(merge_cost, np.float64),
        )
        run["masks"][: run.n_words].view(np.uint8)[: (n + 7) // 8] = np.packbits(np.ones(n, bool), bitorder="little")
        run["groups"]["parent"] = native.NOT_TAKEN
        sinks = [i for i in reversed(range(n)) if not self._readers[i]]
        run["states"]["end"][0] = run.n_cells = len(sinks)
        run["cells"]["operator"][: len(sinks)] = sinks
        while run.state < run.n_states:
            self._make_room("states", "cells")
            native.build_states(run)
            problem.check_time()
            if run.n_cells > max_transitions:  # each is an ending of one operator
                raise TooLargeError("max_transitions")
        run["values"] = np.zeros(run.n_states, native.StateValue.dtype)
        run["values"]["count"][-1] = run["values"]["count_modulo"][-1] = 1

    def _names_of(self, stage: Sequence[Sequence[int]]) -> Groups:
        return tuple(tuple(self._names[k] for k in group) for group in stage)

    def _make_room(self, *growing: str) -> None:
        """Double the columns that are nearly full."""
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
                native.fill_slots(run)

    def _search(self, mode: int) -> None:
        """Go through all endings."""
        run = self._run
        left = self._max_transitions
        run.mode = mode
        run.state = run.n_states - 2
        run.depth = -1
        run.n_endings = 0
        while run.state >= 0:
            if left == 0:
                raise TooLargeError("max_transitions")
            self._make_room("nodes", "written")
            run.left = steps = min(left, _STEPS)
            native.search_endings(run)
            self._problem.check_time()
            left -= steps - run.left
            if run.n_asked > self._max_stages:
                raise TooLargeError("max_stages")

    def solution(self, reason: str | None) -> Solution:
        """Return a fastest sequence of stages, with the reason why its block was cut.

        Raises
        ------
        TooLargeError
            If there are more endings, or looks of stages to ask for, than the budget allows.
        StoppedError
            If the deadline is over.
        """
        run = self._run
        formula = self._problem.formula
        if formula is None:
            run.n_nodes = native.FIRST_NODE
            self._search(native.COLLECT)
            costs = np.array([inf, *map(self._problem.ask, self._questions())])
            nodes = run["nodes"][: run.n_nodes]
            nodes["cost"] = costs[nodes["asked"]]
            self._search(native.LOOK_UP)
        else:
            run["factor"] = 1.0 + formula.slowdown * (np.arange(run.n_ops + 1) - 1.0)
            run["factor"][0] = formula.constant
            self._search(native.FORMULA)
        whole = run.values[0]
        masks = run["masks"].reshape(-1, run.n_words)
        require_finite("ios", whole.cost)
        stages: list[tuple[Groups, bool]] = []
        state = 0
        while state < run.n_states - 1:
            value = run.values[state]
            ending = np.unpackbits((masks[state] & ~masks[value.next]).view(np.uint8), bitorder="little")
            operators = np.flatnonzero(ending).tolist()
            groups = [self._merges[value.merge]] if value.merge >= 0 else self._groups(operators)
            stages.append((self._names_of(groups), value.merge >= 0))
            state = value.next
        transitions = run.n_endings + run.n_merged_endings
        # an upper bound of the rounding error: additions one after the other, stage after stage
        exact = whole.count * (run.n_ops + 1) * (transitions + 1) * 2.0**-52 < _EXACT_BELOW
        if whole.count < inf:
            schedules = int(whole.count)
        else:
            schedules = None
        if exact and schedules is not None:  # the closest number that is the same modulo 2^64
            schedules += (whole.count_modulo - schedules + 2**63) % 2**64 - 2**63
        return Solution(
            tuple(reversed(stages)),
            run.n_states - 1,
            transitions,
            run.n_merged_endings,
            schedules,
            exact,
            run.n_stages,
            reason,
        )

    def _questions(self) -> Iterator[Groups]:
        """Yield the stages to ask the cost of."""
        stage: list[list[int]] = [[]]
        for drafted in self._run["written"][: self._run.n_written].tolist():
            if drafted == native.END_OF_STAGE:
                yield self._names_of(stage[:-1])
                stage = [[]]
                continue
            stage[-1].append(drafted >> 1)
            if not drafted & 1:
                stage.append([])

    def _groups(self, ops: Sequence[int]) -> list[list[int]]:
        """Return the groups of a stage: rising operators that edges connect, by their classes, then first operators."""
        group_of: dict[int, list[int]] = {}
        for x in reversed(ops):
            group = group_of[x] = [x]
            for u in self._readers[x]:
                if u in group_of and group_of[u] is not group:
                    group += group_of[u]
                    group_of |= dict.fromkeys(group_of[u], group)
        groups = [sorted(group_of[x]) for x in ops if min(group_of[x]) == x]
        return sorted(groups, key=lambda group: [self._classes[x] for x in group])


def least_transitions(readers: Sequence[Sequence[int]]) -> int:
    """Return how many endings of one operator there are at least.

    The first operators of w chains do not read from each other: there is a state for each set of them, and each subset
    ends its state.
    """
    steps = [0] * len(readers)
    for x, reading in enumerate(readers):
        for u in reading:
            steps[u] = max(steps[u], steps[x] + 1)
    width = max(Counter(steps).values())
    return int(width * 2 ** (width - 1))


def _join_rows(rows: Sequence[Sequence[int]]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return where each row begins, and the numbers of all."""
    ptr = np.array([0, *accumulate(map(len, rows))], np.int32)
    return ptr, np.array([i for row in rows for i in row], np.int32)
