"""Order in which a device gave places to the blocks of traced kernels, by their measured starts.

Of two kernels on different streams the later one gets its places when the earlier one has placed all its blocks. A
kernel that got them sooner was on a stream of priority, or the earlier one's blocks take unequal times.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from simsched.base.errors import ClusterError
from simsched.model import Ints, occupancy
from simsched.model.graph.rearranged import with_blocks
from simsched.model.program import Program
from workloads.formats.kineto.traced import TracedProgram

_SOON: Final = 0.9
"""Part of the time until equal blocks of the earlier kernel have their places, below which a start is sooner."""
_LONG: Final = 20.0
"""Us that the earlier kernel takes at least: in less time starts do not tell."""
_WAVES: Final = 3
"""Fewest waves of the earlier kernel: the last two of them say nothing."""
_LEFT: Final = 0.5
"""Part of its places that a kernel of unequal blocks counts as keeping: how much is unknown."""

Place = tuple[int, int]


class _Encounter(NamedTuple):
    """A later kernel that became ready while an earlier one of another stream had blocks to place."""

    earlier: int
    later: int
    is_soon: bool


def as_dispatched(program: TracedProgram) -> Program:
    """Return a traced program with the priorities of its streams and the places of kernels of unequal blocks.

    Notes
    -----
    A stream has priority if its kernels started sooner than equal blocks allow beside more kernels than they waited
    for; where one alone tells, only if it is a collective. Any other kernel beside which one started sooner has unequal
    blocks, as a concatenation of tensors of unequal sizes has: it keeps half of its places. Without contention on a
    device neither matters.
    """
    memo: Program | None = program.__dict__.get("as_dispatched")
    if memo is not None:
        return memo
    places: dict[int, int] = {}
    encounters = list(_encounters(program, places))
    operators = program.graph.operators
    place_of = [(op.attributes["device"], op.attributes["stream"]) for op in operators]
    first = _streams_of_priority(program, encounters, place_of)
    blocks: Ints = np.array(program.graph.kernel_blocks)
    for earlier, later, is_soon in encounters:
        if is_soon and place_of[later] not in first:
            row = program.graph.kernel_ptr[earlier]
            blocks[row] = min(int(blocks[row]), max(1, int(_LEFT * places[earlier])))
    priority = np.array([-1 if place in first else 0 for place in place_of], np.int64)
    dispatched = program.with_priority(priority).over(with_blocks(program.graph, blocks))
    program.__dict__["as_dispatched"] = dispatched
    return dispatched


def _encounters(program: TracedProgram, places: dict[int, int]) -> Iterator[_Encounter]:
    """Yield the kernels that met, and note how many blocks of each earlier one the device holds."""
    operators = program.graph.operators
    times = program.times
    ready = program.of_trace.ready
    rows = [i for i in range(len(ready)) if operators[i].kernels]
    running: dict[int, list[tuple[int, float, float]]] = defaultdict(list)  # device -> operator, end, end of placing
    for i in sorted(rows, key=lambda i: float(times[i, 0])):
        op = operators[i]
        start, end = times[i].tolist()
        device = op.attributes["device"]
        running[device] = [row for row in running[device] if row[1] > start]
        for earlier, _, placed in running[device]:
            is_apart = operators[earlier].attributes["stream"] != op.attributes["stream"]
            if is_apart and ready[earlier] < ready[i] < placed:
                yield _Encounter(earlier, i, start < placed)
        if op.kind == "kernel" and end - start >= _LONG:
            kernel = op.kernels[0]
            try:
                held = occupancy(program.cluster.devices[device], kernel).blocks * program.cluster.devices[device].sms
            except ClusterError:
                continue
            waves = -(-kernel.blocks // max(1, held))
            if held and waves >= _WAVES:
                places[i] = held
                running[device].append((i, end, start + _SOON * (1 - 2 / waves) * (end - start)))


def _streams_of_priority(
    program: TracedProgram, encounters: list[_Encounter], place_of: list[Place]
) -> dict[Place, None]:
    """Return the devices and streams whose kernels did not wait for earlier ones."""
    sooner: dict[Place, set[int]] = defaultdict(set)
    waited: Counter[Place] = Counter()
    with_collectives: dict[Place, None] = {}
    told: set[tuple[int, Place]] = set()
    for earlier, later, is_soon in encounters:
        place = place_of[later]
        if is_soon:
            sooner[place].add(earlier)
        elif (earlier, place) not in told:
            told.add((earlier, place))
            waited[place] += 1
        if is_soon and program.graph.operators[later].kind == "collective":
            with_collectives[place] = None
    return {
        place: None
        for place, kernels in sooner.items()
        if len(kernels) > waited[place] and (len(kernels) > 1 or place in with_collectives)
    }
