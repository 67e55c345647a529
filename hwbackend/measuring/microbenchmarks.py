"""Small schedules, each made to identify parameters of a device."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from hwbackend.measuring.synth import OUTPUT_NBYTES, SYNTH
from simsched.calibration import ALONE
from simsched.model import WARP, Cluster, Device, Edge, Kernel, Operator, OpGraph, Placement, Schedule, occupancy

_THREADS: Final = 256
_REGISTERS: Final = 32
_FEW_SMS: Final = 8  # a device with fewer is a CPU that stands in for one: its blocks cannot be short
_TINY = 1.0
_BRIEF = 3.0
_SHORT = 25.0
_BLOCK = 60.0
"""Us of a block alone: far shorter than a launch, longer than the way to the next node, than a launch, to be slowed."""
_SHORTEST_ON_CPU: Final = 300.0
_ELSEWHERE: Final = 0.05  # part of the other resource that a kernel bound by one takes
_KINDS: Final = {"compute": (1.0, _ELSEWHERE), "memory": (_ELSEWHERE, 1.0), "mixed": (0.7, 0.7)}
"""Parts of a block's share of FLOP rate and bandwidth that it uses, by kind of kernel."""

_TURNS: Final = 2  # of kernels side by side
_STAGES: Final = 6  # of several streams each
_TURNS_OF_FORKS: Final = 8
_ALONE_FIRST: Final = 3  # kernels of a chain before such chains beside each other
_BESIDE: Final = 12  # kernels of each of these
_BYTES_TO_COPY: Final = (4e3, 1e6, 16e6)


def schedules(cluster: Cluster) -> list[Schedule]:
    """Return the microbenchmarks of a cluster.

    Parameters
    ----------
    cluster
        All but those of transfers run on its first device, which says how large kernels are.

    Returns
    -------
    list of Schedule
        Named by their `scheduler`: ``"overhead/..."`` is about the costs of issuing, ordering and starting,
        ``"solo/..."`` has one kernel, ``"pair/..."`` two or four, one after the other and then side by side,
        ``"transfer/..."`` copies.

    Notes
    -----
    All operators are synthetic. Kernels bound by FLOP, by DRAM and by both have from half a block per SM to twice
    what the device holds, at several occupancies (by dynamic shared memory). Fewer than 80 schedules, some
    milliseconds a repeat all together on a GPU.
    """
    device = cluster.devices[0]
    found = [*_overheads(device), *_solos(device), *_pairs(device), *_transfers(cluster)]
    return list({plan.scheduler: plan for plan in found}.values())  # on a small device some sizes are one


def synthetic_kernel(
    name: str, device: Device, blocks: int, time: float, kind: str = "compute", shared_memory: int = 0
) -> Operator:
    """Return a synthetic operator whose blocks take some us each on an idle device."""
    threads = min(_THREADS, device.threads_per_sm)
    if device.sms < _FEW_SMS:
        time = max(time, _SHORTEST_ON_CPU)
    filling = device.sms * max(1.0, device.saturating_warps / (threads / WARP))  # blocks that fill the device
    compute, memory = _KINDS[kind]
    return Operator(
        name,
        kind=SYNTH,
        flops=blocks * time * device.peak_rate("fp32") / filling * compute,
        nbytes=blocks * time * device.bandwidth / filling * memory,
        kernels=(Kernel(blocks, threads, _REGISTERS, shared_memory),),
        intensity="memory" if kind == "memory" else "compute",
    )


def synthetic_schedule(
    name: str,
    device: Device,
    operators: Sequence[Operator],
    edges: Sequence[tuple[int, int]] = (),
    streams: Sequence[int] = (),
    stages: Sequence[int] = (),
    execution: str = "events",
) -> Schedule:
    """Return a schedule of synthetic operators on a device.

    Parameters
    ----------
    name
        Of the graph, and of the schedule as its `scheduler`.
    edges
        Places of the operators that write and read.
    streams, stages
        Of each operator; all 0 if there are none.
    """
    links = [Edge(operators[a].name, operators[b].name, float(OUTPUT_NBYTES)) for a, b in edges]
    placements = []
    for i, op in enumerate(operators):
        stream = streams[i] if streams else 0
        placements.append(Placement(op.name, device.name, stream, stages[i] if stages else 0, stream if stages else 0))
    return Schedule(OpGraph(operators, links, name), placements, execution, scheduler=name)


# Overheads -------------------------------------------------------------------------------------


def _overheads(device: Device) -> Iterator[Schedule]:
    def tiny(count: int, time: float = _TINY) -> list[Operator]:
        return [synthetic_kernel(f"k{i}", device, 1, time) for i in range(count)]

    long = 8 if device.sms < _FEW_SMS else 40
    for count in (1, 8, long):  # as fast as the host issues
        yield synthetic_schedule(f"overhead/launch-{count}", device, tiny(count))
    for count in (4, long // 2):  # as fast as the device goes from one to the next
        yield synthetic_schedule(f"overhead/gap-{count}", device, tiny(count, _SHORT))
    for count in (4, long // 2):
        turns = [i % 2 for i in range(count)]
        yield synthetic_schedule(
            f"overhead/alternate-{count}", device, tiny(count), list(pairwise(range(count))), turns
        )
        yield synthetic_schedule(
            f"overhead/hop-{count}", device, tiny(count, _SHORT), list(pairwise(range(count))), turns
        )
    for width in (8, 24):  # one record and many waits, then many records and as many waits
        leaves = range(1, width + 1)
        yield synthetic_schedule(
            f"overhead/fan-out-{width}", device, tiny(width + 1), [(0, i) for i in leaves], range(width + 1)
        )
        yield synthetic_schedule(
            f"overhead/fan-in-{width}", device, tiny(width + 1), [(i - 1, width) for i in leaves], [*leaves, 0]
        )
    for count in (4, 12):  # of another stream in each stage: between stages of one there is no barrier
        stages = range(count)
        yield synthetic_schedule(
            f"overhead/barrier-{count}", device, tiny(count), [], [i % 2 for i in stages], stages, "stages"
        )
    for width in (2, 4):  # all streams are busy when the host comes to the barrier
        rows = range(_STAGES * width)
        first, *others = tiny(1 + len(rows), _SHORT)
        yield synthetic_schedule(
            f"overhead/barriers-of-{width}",
            device,
            [replace(first, name=f"{ALONE}0"), *others],
            [],
            [0, *(i % width for i in rows)],
            [0, *(1 + i // width for i in rows)],
            "stages",
        )
    for count in (1, 8, long):
        yield synthetic_schedule(
            f"overhead/graph-chain-{count}", device, tiny(count), list(pairwise(range(count))), execution="graph"
        )
    yield _forks("overhead/graph-fork-16", device, 16, 1)
    yield _forks("overhead/graph-join-2", device, 2, _TURNS_OF_FORKS)
    for width, time in ((2, _BRIEF), (2, _SHORT), (6, _BRIEF)):
        yield _beside(f"overhead/graph-beside-{width}-{time:.0f}", device, width, time)


def _forks(name: str, device: Device, width: int, count: int) -> Schedule:
    """Return a captured graph in which a kernel forks to some, which join in a kernel, which forks again."""
    operators = [synthetic_kernel(f"{ALONE}0", device, 1, _TINY)]
    edges: list[tuple[int, int]] = []
    streams = [0]
    for turn in range(1, count + 1):
        root = len(operators) - 1
        join = root + width + 1
        operators += [synthetic_kernel(f"leaf{turn}.{i}", device, 1, _TINY) for i in range(width)]
        operators.append(synthetic_kernel(f"{ALONE}{turn}", device, 1, _TINY))
        edges += [(root, leaf) for leaf in range(root + 1, join)] + [(leaf, join) for leaf in range(root + 1, join)]
        streams += [*range(1, width + 1), 0]
    return synthetic_schedule(name, device, operators, edges, streams, execution="graph")


def _beside(name: str, device: Device, width: int, time: float) -> Schedule:
    """Return a captured graph of kernels one after the other, then of such chains beside each other."""
    operators = [synthetic_kernel(f"{ALONE}{i}", device, 1, time) for i in range(_ALONE_FIRST)]
    edges = list(pairwise(range(_ALONE_FIRST)))
    streams = [0] * _ALONE_FIRST
    for turn in range(_BESIDE):
        for stream in range(width):
            if turn:
                before = len(operators) - width
            else:
                before = _ALONE_FIRST - 1
            edges.append((before, len(operators)))
            operators.append(synthetic_kernel(f"beside{turn}.{stream}", device, 1, time))
            streams.append(stream)
    return synthetic_schedule(name, device, operators, edges, streams, execution="graph")


# Kernels alone and in pairs --------------------------------------------------------------------


def _count_resident_blocks(device: Device, shared_memory: int = 0) -> int:
    """Return how many blocks of a kernel the device holds."""
    kernel = Kernel(1, min(_THREADS, device.threads_per_sm), _REGISTERS, shared_memory)
    return occupancy(device, kernel).blocks * device.sms


def _shared_memory_for(device: Device, blocks: int) -> int:
    """Return bytes of shared memory with which an SM holds so many blocks and no more."""
    room = device.shared_memory_per_sm / blocks - device.shared_memory_reserved
    unit = device.shared_memory_granularity
    return int(min(room // unit * unit, device.shared_memory_per_block // unit * unit))


def _solos(device: Device) -> Iterator[Schedule]:
    sms = device.sms
    most = _count_resident_blocks(device)
    sizes = {
        "compute": (sms // 2, sms, 2 * sms, 3 * sms, 4 * sms, 6 * sms, most, 2 * most, 4 * most),
        "memory": (sms // 4, sms // 2, sms, 2 * sms, 4 * sms, most, 2 * most),
        "mixed": (sms // 2, sms, 2 * sms, 4 * sms, most, 2 * most),
    }
    for kind, blocks in sizes.items():
        for count in _distinct(blocks, 4 * most):
            yield synthetic_schedule(
                f"solo/{kind}-{count}", device, [synthetic_kernel("k", device, count, _BLOCK, kind)]
            )
    for per_sm in (4, 2):
        if device.shared_memory_per_sm and per_sm * sms < most:
            shared = _shared_memory_for(device, per_sm)
            for count in (per_sm * sms, 2 * per_sm * sms):
                one = synthetic_kernel("k", device, count, _BLOCK, "compute", shared)
                yield synthetic_schedule(f"solo/compute-{count}-by-{per_sm}", device, [one])


def _pairs(device: Device) -> Iterator[Schedule]:
    sms = device.sms
    most = _count_resident_blocks(device)
    sizes = _distinct((sms, 2 * sms, most, 2 * most), 4 * most)
    both = [(size, size) for size in sizes]
    uneven = [(2 * most, sms), (sms, 2 * most)]
    for kinds in (("compute", "compute"), ("memory", "memory"), ("compute", "memory"), ("mixed", "mixed")):
        alike = kinds[0] == kinds[1]
        for first, second in both + (uneven[:1] if alike else uneven):
            name = f"pair/{kinds[0]}-{first}-{kinds[1]}-{second}"
            yield _side_by_side(name, device, [(kinds[0], first), (kinds[1], second)])
    for kind in ("compute", "memory"):
        yield _side_by_side(f"pair/four-{kind}-{most}", device, [(kind, most)] * 4)


def _side_by_side(name: str, device: Device, kernels: Sequence[tuple[str, int]]) -> Schedule:
    """Return kernels one after the other, twice, then all at once, twice.

    So their times alone are known as they are after and before those very kernels: what a kernel finds in the caches
    is another matter after itself.
    """
    kinds = list(dict.fromkeys(kernels))
    alone = (kinds * 4)[: max(3, 2 * len(kinds))]
    operators = [synthetic_kernel(f"{ALONE}{i}", device, size, _BLOCK, kind) for i, (kind, size) in enumerate(alone)]
    edges = list(pairwise(range(len(alone))))
    streams = [0] * len(alone)
    before = [len(alone) - 1]
    for turn in range(_TURNS):
        now = range(len(operators), len(operators) + len(kernels))
        for stream, (kind, size) in enumerate(kernels):
            operators.append(synthetic_kernel(f"together{turn}.{stream}", device, size, _BLOCK, kind))
            streams.append(stream)
        edges += [(a, b) for a in before for b in now]
        before = list(now)
    return synthetic_schedule(name, device, operators, edges, streams)


def _distinct(sizes: Sequence[int], most: int) -> list[int]:
    return sorted({size for size in sizes if 1 <= size <= most})


# Transfers -------------------------------------------------------------------------------------


def _transfers(cluster: Cluster) -> Iterator[Schedule]:
    if len(cluster) < 2:
        return
    for nbytes in _BYTES_TO_COPY:
        yield _copies(cluster, f"transfer/one-way-{nbytes:.0f}", nbytes, [(0, 1)])
    for count in (2, 4):
        yield _copies(cluster, f"transfer/{count}-at-once", _BYTES_TO_COPY[-1], [(0, 1)] * count)
    yield _copies(cluster, "transfer/both-ways", _BYTES_TO_COPY[-1], [(0, 1), (1, 0)])
    yield _copies(cluster, "transfer/issue-16", _BYTES_TO_COPY[0], [(0, 1)] * 16)


def _copies(cluster: Cluster, name: str, nbytes: float, ways: Sequence[tuple[int, int]]) -> Schedule:
    """Return pairs of tiny operators, the second of each reading from the first on another device."""
    operators = []
    placements = []
    for side in range(2):
        for i, way in enumerate(ways):
            device = cluster.devices[way[side]]
            operators.append(synthetic_kernel(f"{('from', 'to')[side]}{i}", device, 1, _TINY))
            placements.append(Placement(operators[-1].name, device.name, i))
    edges = [Edge(f"from{i}", f"to{i}", nbytes) for i in range(len(ways))]
    return Schedule(OpGraph(operators, edges, name), placements, scheduler=name)
