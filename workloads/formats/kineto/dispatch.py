"""Order in which a device gave places to the blocks of traced kernels, by their measured starts.

Of two kernels on different streams the later one gets its places when the earlier one has placed all its blocks. A
kernel that got them sooner was on a stream of priority, or the earlier one's blocks take unequal times.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from simsched.base.errors import ClusterError
from simsched.model import Device, Ints, Kernel, occupancy
from simsched.model.graph.rearranged import with_blocks
from simsched.model.program import LAUNCH, Program
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
    device, stream = _places(program)
    place_of: list[Place] = list(zip(device.tolist(), stream.tolist(), strict=True))
    places: dict[int, int] = {}
    encounters = list(_encounters(program, device, stream, places))
    first = _streams_of_priority(program, encounters, place_of)
    blocks: Ints = np.array(program.graph.kernel_blocks)
    for earlier, later, is_soon in encounters:
        if is_soon and place_of[later] not in first:
            row = program.graph.kernel_ptr[earlier]
            blocks[row] = min(int(blocks[row]), max(1, int(_LEFT * places[earlier])))
    priority = np.array([-1 if place in first else 0 for place in place_of], np.int64)
    dispatched = _with_priority(program, priority).over(with_blocks(program.graph, blocks))
    program.__dict__["as_dispatched"] = dispatched
    return dispatched


def _with_priority(program: Program, priority: Ints) -> Program:
    """Return the program with other stream priorities of its operators."""
    return Program(
        program.graph,
        program.devices,
        program.execution,
        program.thread_ptr,
        program.action,
        program.device,
        program.stream,
        program.argument,
        program.copies,
        program.n_events,
        priority,
        program.lead,
        program.own,
    ).check()


def _places(program: TracedProgram) -> tuple[Ints, Ints]:
    """Return device and stream of each operator."""
    launches = np.flatnonzero(program.action == LAUNCH)
    device = np.zeros(len(program.graph), np.int64)
    stream = np.zeros(len(program.graph), np.int64)
    device[program.argument[launches]] = program.device[launches]
    stream[program.argument[launches]] = program.stream[launches]
    return device, stream


def _encounters(program: TracedProgram, device: Ints, stream: Ints, places: dict[int, int]) -> Iterator[_Encounter]:
    """Yield the kernels that met, and note how many blocks of each earlier one the device holds."""
    graph = program.graph
    ready = program.of_trace.ready
    codes, kinds = graph.labels("kind")
    is_kernel = np.array([kind == "kernel" for kind in kinds], bool)[codes]
    has_shape = np.flatnonzero(np.diff(graph.kernel_ptr)[: len(ready)] > 0)
    for number, gpu in enumerate(program.cluster.devices):
        rows = has_shape[device[has_shape] == number]
        if len(np.unique(stream[rows])) < 2:
            continue
        rows = rows[np.argsort(program.times[rows, 0], kind="stable")]
        running: list[tuple[int, float, float]] = []  # operator, end, end of placing
        for i in rows.tolist():
            start, end = program.times[i].tolist()
            running = [row for row in running if row[1] > start]
            for earlier, _, placed in running:
                if stream[earlier] != stream[i] and ready[earlier] < ready[i] < placed:
                    yield _Encounter(earlier, i, start < placed)
            if is_kernel[i] and end - start >= _LONG:
                kernel = graph.operator(i).kernels[0]
                held = _most_blocks(gpu, kernel)
                waves = -(-kernel.blocks // max(1, held))
                if held and waves >= _WAVES:
                    places[i] = held
                    running.append((i, end, start + _SOON * (1 - 2 / waves) * (end - start)))


def _most_blocks(gpu: Device, kernel: Kernel) -> int:
    """Return how many blocks of a kernel a device holds at a time; 0 if none fits."""
    try:
        return occupancy(gpu, kernel).blocks * gpu.sms
    except ClusterError:
        return 0


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
        if is_soon and program.graph.operator(later).kind == "collective":
            with_collectives[place] = None
    return {
        place: None
        for place, kernels in sooner.items()
        if len(kernels) > waited[place] and (len(kernels) > 1 or place in with_collectives)
    }
