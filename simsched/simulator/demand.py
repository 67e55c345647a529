"""Demand of the launches of a program on their devices, as rows for the engines; operators' times where they run."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from simsched.base.errors import ClusterError, SimulationError
from simsched.base.limits import LARGEST_VARIATION
from simsched.base.units import TIE
from simsched.model import INTENSITIES, LAUNCH, Cluster, CostModel, Device, Floats, Kernel, OpGraph, Program, Schedule
from simsched.model.cluster import footprint, occupancy
from simsched.model.costmodel import placed_times
from simsched.model.graph.columns import Indices, Ints
from simsched.model.graph.rearranged import with_times
from simsched.model.launches import Launches, kernels_on
from simsched.simulator.contention import Solo, find_units
from simsched.simulator.state import LaunchDemand

Column = npt.NDArray[Any]
Flags = npt.NDArray[np.bool_]
Small = npt.NDArray[np.int32]
Jitter = float | Mapping[str, float]
_LINK: Final = INTENSITIES.index("link")
_TURNS: Final = 8
"""Largest standard deviation of an operator's time, as a multiple of its mean."""


def demand(program: Program, cluster: Cluster, cost: CostModel | None = None) -> Column:
    """Return the demand of each launch of a program on its device, as rows of `LaunchDemand`.

    A kernel's blocks load the SMs by their warps (``saturating_warps`` keep an SM busy), or by the part of the peak
    rate that they achieve if that is more, and DRAM by the operator's bytes over its time. Blocks that mostly wait for
    their own chain of instructions load the SMs by the rate that they achieve alone. The bottleneck of the roofline
    gives the class, unless the operator's `intensity` does, and the sensitivities: 1 to the bottleneck, and to the
    other resource its part of the roofline time. The blocks of a collective, and of an operator
    whose `intensity` is ``"link"``, load nothing and are slowed by nothing. An operator without kernels loads the SMs
    by its `utilization` and is sensitive to nothing else; one without either loads nothing.
    """
    if program.open:
        program = program.on(cluster)
    graph = program.graph
    device = launch_devices(program)
    times = placed_times(graph, cluster, program.launches.op, device, cost)
    return demand_of(graph, program.launches, cluster, device, times, priority=program.priority)


def launch_devices(program: Program) -> Ints:
    """Return the position of the device of each launch, shape (n_launches,); -1 where none is in the program."""
    launches = program.action == LAUNCH
    device = np.full(len(program.launches), -1, np.int64)
    device[program.argument[launches]] = program.device[launches]
    return device


def demand_of(
    graph: OpGraph,
    launches: Launches,
    cluster: Cluster,
    device: Ints,
    times: Floats,
    *,
    priority: Indices | None = None,
    refuse_unfit: bool = True,
) -> Column:
    """Return the demand of the launches of a graph on their devices, see `demand`.

    Parameters
    ----------
    launches
        Kernels of the operators, on the devices that they run on.
    device
        Position in the cluster, per launch.
    times
        Time alone in us of the operator of each launch.
    priority
        Of each operator; None for 0.
    refuse_unfit
        Whether a kernel of which no block fits on an SM is an error; else it has residency 0.
    """
    op = launches.op
    asked = np.zeros(len(op), LaunchDemand.dtype)
    asked["follows"][1:] = op[1:] == op[:-1]
    if priority is None:
        asked["priority"] = 0
    else:
        asked["priority"] = priority[op]
    utilization = np.nan_to_num(graph.utilization)[op]
    asked["meeting"] = -1
    if graph.meetings:
        meeting, rank = _ranks(graph)
        asked["meeting"] = meeting[op]
        asked["rank"] = rank[op]
    exchanges = asked["meeting"] >= 0
    on_links = (graph.intensity[op] == _LINK) | exchanges
    utilization = np.where(on_links, 0.0, utilization)
    asked["sm_share"] = utilization
    asked["alpha"] = utilization > 0
    asked["kind"] = np.where(on_links, -1, graph.intensity[op])  # of neither class that interferes
    asked["solo"] = times
    asked["solo"] *= launches.share
    asked["unit"] = asked["solo"]
    rows = np.flatnonzero(launches.has_shape)
    if not len(rows):
        return asked
    shapes = _blocks(graph, launches, cluster, rows, device[rows], refuse_unfit)
    fits = shapes["residency"] > 0
    asked["unit"][rows[~fits]] = np.inf
    rows = rows[fits]
    found = asked[rows]
    at = cluster.kind[device[rows]]
    found["blocks"] = launches.blocks[rows]
    for name, column in shapes.items():
        found[name] = column[fits]
    # a collective begins once all its blocks have their places
    found["blocks"] = np.where(exchanges[rows], np.minimum(found["blocks"], found["residency"]), found["blocks"])
    _add_loads(found, graph, launches, cluster, rows, at, on_links[rows])
    asked[rows] = found
    return asked


def _ranks(graph: OpGraph) -> tuple[Small, Small]:
    """Return the collective of each operator, -1 if it is none, and its place among the ranks, shape (n_ops,) each."""
    meeting = np.full(len(graph), -1, np.int32)
    rank = np.zeros(len(graph), np.int32)
    for number, (_, members) in enumerate(graph.meetings):
        meeting[list(members)] = number
        rank[list(members)] = np.arange(len(members))
    return meeting, rank


def demand_on(graph: OpGraph, cluster: Cluster, d: int, times: Floats, **options: Any) -> Column:
    """Return the demand of launches if all operators run on device `d`, in these times alone in us, see `demand_of`."""
    launches = kernels_on(graph, cluster.devices[d])
    device = np.broadcast_to(np.int64(d), len(launches))
    return demand_of(graph, launches, cluster, device, times[launches.op], **options)


def solo_units(blocks: Column, residency: Column, sms: Column, sm_share: Column, spread: Column) -> Floats:
    """Return the time of each kernel alone, in times of one of its blocks on an idle device.

    Parameters
    ----------
    blocks, residency
        Blocks of its grid, and the number of them that the device holds at once.
    sms, spread
        Properties of its device.
    sm_share
        Load of a block on its SM.
    """
    solo = Solo(
        n=len(blocks), blocks=blocks, residency=residency, sms=sms.astype(np.int64), sm_share=sm_share, spread=spread
    )
    find_units(solo)
    units: Floats = solo["units"]
    return units


def _blocks(
    graph: OpGraph, launches: Launches, cluster: Cluster, rows: Indices, device: Ints, refuse_unfit: bool
) -> dict[str, Ints]:
    """Return the room that a block takes and the number of blocks that the device holds: columns of `rows`' shape."""
    shapes = (launches.threads[rows], launches.registers[rows], launches.shared_memory[rows])
    columns = (cluster.kind[device], *shapes)
    numbers: dict[tuple[int, ...], int] = {}
    keys = zip(*(column.tolist() for column in columns), strict=True)
    number = [numbers.setdefault(key, len(numbers)) for key in keys]
    found: list[tuple[int, int, int, int]] = []
    for kind, *shape in numbers:
        try:
            found.append(_block(cluster.kinds[kind], *shape))
        except ClusterError as error:
            if refuse_unfit:
                raise ClusterError(
                    f"operator {graph.names[launches.op[rows[number.index(len(found))]]]!r}: {error}"
                ) from None
            found.append((0, 0, 0, 0))
    blocks = np.array(found, np.int64)[number].T
    return dict(zip(("warps", "registers", "shared_memory", "residency"), blocks, strict=True))


@lru_cache(maxsize=4096)
def _block(device: Device, threads: int, registers: int, shared_memory: int) -> tuple[int, int, int, int]:
    """Return warps, registers and shared memory of a block, and how many of them the device holds."""
    kernel = Kernel(1, threads, registers, shared_memory)
    need = footprint(device, kernel)
    fits = occupancy(device, kernel).blocks
    return need.warps, need.registers, need.shared_memory, fits * device.sms


def _add_loads(
    found: Column, graph: OpGraph, launches: Launches, cluster: Cluster, rows: Ints, at: Ints, on_links: Flags
) -> None:
    """Add loads to the rows of kernels that fit, and their times alone.

    The blocks of those `on_links` load nothing and are slowed by nothing.
    """
    op = launches.op[rows]
    fields = ("kernel_latency", "bandwidth", "saturating_warps", "least_sm_share", "block_spread", "sms", "clock")
    latency, bandwidth, saturating, least, spread, sms, clock = (
        np.array([getattr(kind, key) for kind in cluster.kinds], np.float64)[at] for key in fields
    )
    busy = found["solo"] - np.minimum(latency, found["solo"])  # us for which its blocks run
    codes, texts = graph.labels("dtype")
    peak = np.array([[kind.peak_rate(text or "fp32") for text in texts] for kind in cluster.kinds])[at, codes[op]]
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        # roofline times of SMs and DRAM, and relative to the larger of them
        calculating = np.where(on_links, 0.0, launches.flops[rows] / peak)
        moving = np.where(on_links, 0.0, launches.nbytes[rows] / bandwidth)
        longer = np.maximum(calculating, moving)
        kind = np.where(found["kind"] >= 0, found["kind"], moving > calculating)
        compute = np.where(longer > 0, calculating / longer, kind == 0)  # of unknown work that is bound by DRAM: none
        memory = np.where(longer > 0, moving / longer, 0.0)
        blocks, residency = (np.ascontiguousarray(found[name]) for name in ("blocks", "residency"))
        most = np.minimum(blocks, residency).astype(np.float64)
        chained = np.ceil(blocks / residency) * launches.chain[rows] / clock
        waits = chained > longer / launches.efficiency[rows]  # for its own instructions: it leaves issue slots free
        part = np.where(kind == 1, np.maximum(least, compute), np.where(waits, least, 1.0))
        part = np.where(on_links, 0.0, part)
        limit = np.where(kind == 1, 1.0 / np.ceil(most / sms), np.inf)  # alone, DRAM's never fill the issue slots
        sm_share = np.minimum(limit, found["warps"] / saturating * part)
        units = solo_units(blocks, residency, sms, sm_share, spread)
        for _ in range(
            _TURNS
        ):  # blocks load SMs by the rate they achieve, too; a load that slows them raises that rate
            achieved = np.minimum(np.minimum(limit, 1.0), calculating * units * sms / blocks / busy)
            more = (achieved > sm_share * (1 + TIE)) & (busy > 0)
            if not more.any():
                break
            sm_share[more] = achieved[more]
            units[more] = solo_units(*(column[more] for column in (blocks, residency, sms, sm_share, spread)))
        traffic = moving * units / blocks
        most_share = 1.0 / np.where(sm_share * most <= sms, most, sms / sm_share)  # as `set_up` has it
        found["dram_share"] = np.where(busy > 0, np.minimum(most_share, traffic / busy), 0.0)
    found["unit"] = busy / units
    found["sm_share"] = sm_share
    found["units"] = units
    found["traffic"] = traffic
    found["kind"] = np.where(on_links, -1, kind)
    found["alpha"] = np.where(on_links, 0.0, np.where(kind == 1, compute, 1.0))
    found["beta"] = np.where(on_links, 0.0, np.where(kind == 1, 1.0, memory))


def factors(graph: OpGraph, jitter: Jitter, rng: np.random.Generator | int | None, n: int) -> Floats:
    """Return log-normal factors of mean 1 for each operator's time in `n` samples, shape (n, n_ops).

    Row j is the only one of the j-th of as many calls for one sample with the same Generator.

    Parameters
    ----------
    jitter, rng
        See `simulate`.
    """
    if rng is None:
        raise SimulationError("jitter is random: pass `rng`, a numpy Generator or a seed")
    if isinstance(jitter, Mapping):
        unknown = [name for name in jitter if name not in graph.index]
        if unknown:
            raise SimulationError(f"jitter names no operator: {unknown[0]!r}")
        variation = np.zeros(len(graph))
        for name, value in jitter.items():
            variation[graph.index[name]] = value
    else:
        variation = np.full(1, jitter, np.float64)
    bad = ~((variation >= 0) & (variation <= LARGEST_VARIATION))
    if bad.any():
        name = graph.names[int(np.argmax(bad))]
        raise SimulationError(f"jitter of {name!r} must be finite and not negative, and at most {LARGEST_VARIATION:g}")
    sigma = np.sqrt(np.log1p(variation**2))
    drawn = np.random.default_rng(rng).standard_normal((n, len(graph)))
    drawn *= sigma
    drawn -= sigma**2 / 2
    return np.exp(drawn, out=drawn)


def placed_operator_times(runs: Schedule | Program, cluster: Cluster, cost: CostModel | None) -> Floats:
    """Return the time of each operator alone in us on the device that it is placed on, shape (n_ops,), in graph order.

    A program is one of the devices of the cluster, in their order.
    """
    if isinstance(runs, Program):
        op = np.arange(len(runs.graph))
        device = launch_devices(runs)[runs.launches.ptr[:-1]]
    else:
        op = runs.op
        device = np.array([cluster.index.get(name, -1) for name in runs.devices])[runs.device]
    times = np.empty(len(runs.graph))
    times[op] = placed_times(runs.graph, cluster, op, device, cost)
    return times


def bake(plan: Schedule, cluster: Cluster, cost: CostModel | None) -> Schedule:
    """Return a schedule whose operators have as `time` the time of a cost model on their devices.

    It takes as long without the cost model as with it.

    >>> from simsched.model.graph import Operator, OpGraph
    >>> from simsched.model.placement import Placement
    >>> plan = Schedule(OpGraph([Operator("a")]), [Placement("a")])
    >>> bake(plan, Cluster.preset("a100"), lambda op, device: 7.0).graph["a"].time
    7.0
    """
    times = placed_operator_times(plan, cluster, cost)
    if (times == plan.graph.time).all():
        return plan
    return plan.over(with_times(plan.graph, times))
