"""What each launch of a program asks of its device, as columns that an engine reads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from simsched.cluster import SENSITIVITIES, Cluster, Device, footprint, occupancy
from simsched.costmodel import CostModel, placed_times
from simsched.errors import ClusterError, SimulationError
from simsched.graph import Kernel, OpGraph
from simsched.graph.columns import Floats, Ints, compact
from simsched.program import LAUNCH, Program

Column = npt.NDArray[Any]
Jitter = float | Mapping[str, float]
LARGEST_VARIATION: Final = 1e3
"""Most that the standard deviation of an operator's time may be, over its mean."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What launches ask for, one row per launch of a `Program`; columns may be read-only and share memory.

    Parameters
    ----------
    device
        Where it runs.
    solo
        Time alone in us.
    blocks
        Blocks of the grid; 0 without a grid.
    residency
        Blocks the device holds at once.
    warps, registers, shared_memory
        What one block takes.
    sm_share, dram_share
        What one resident block (or, without a grid, the operator) loads of the device.
    alpha, beta
        Sensitivities to the SM load and the DRAM load.
    kind
        Interference class: 0 compute, 1 memory, -1 none.
    unit
        Time in us of one block on an idle device.
    traffic
        Time in us in which DRAM alone would move its bytes; 0 without a grid. Where times vary,
        ``dram_share`` is ``min(1, traffic / solo) / min(blocks, residency)``.
    """

    device: Ints
    solo: Floats
    blocks: Ints
    residency: Ints
    warps: Ints
    registers: Ints
    shared_memory: Ints
    sm_share: Floats
    dram_share: Floats
    alpha: Floats
    beta: Floats
    kind: Ints
    unit: Floats
    traffic: Floats


class Ask(NamedTuple):
    """One row of a `Demand` as plain numbers; `block` is (warps, 1, registers, shared memory), zeros without a grid."""

    solo: float
    blocks: int
    residency: int
    block: tuple[int, int, int, int]
    sm_share: float
    dram_share: float
    alpha: float
    beta: float
    kind: int
    unit: float


def asks(demand: Demand) -> list[Ask]:
    """Return the rows of a `Demand`."""
    block = zip(
        demand.warps.tolist(),
        np.sign(demand.blocks).tolist(),
        demand.registers.tolist(),
        demand.shared_memory.tolist(),
        strict=True,
    )
    columns = (demand.solo, demand.blocks, demand.residency)
    shares = (demand.sm_share, demand.dram_share, demand.alpha, demand.beta, demand.kind, demand.unit)
    return [Ask(*row) for row in zip(*(c.tolist() for c in columns), block, *(c.tolist() for c in shares), strict=True)]


def demand(
    program: Program,
    cluster: Cluster,
    cost: CostModel | None,
    jitter: Jitter | None = None,
    rng: np.random.Generator | int | None = None,
    *,
    refuse_unfit: bool = True,
) -> Demand:
    """Return what each launch asks of its device.

    A kernel of which no block fits on an SM is an error; with `refuse_unfit` false it has residency 0.

    A kernel's blocks load the SMs by their warps (``saturating_warps`` keep an SM busy) and DRAM
    by the operator's bytes over its time. Which of the two a roofline says is the bottleneck
    gives the class, unless the operator's `intensity` does, and the sensitivities: 1 to the
    bottleneck, and to the other resource its part of the roofline time. An operator without
    kernels loads the SMs by its `utilization` and is sensitive to nothing else; one without
    either loads nothing. `Device.sm_sensitivity` and `dram_sensitivity` scale the sensitivities.
    """
    launches = program.action == LAUNCH
    device = np.full(len(program.launch_op), -1, np.int64)
    device[program.argument[launches]] = program.device[launches]
    times = placed_times(program.graph, cluster, program.launch_op, device, cost)
    drawn = None if jitter is None else factors(program.graph, jitter, rng)
    return demand_of(program.graph, cluster, device, times, drawn, refuse_unfit=refuse_unfit)


def demand_of(
    graph: OpGraph,
    cluster: Cluster,
    device: Ints,
    times: Floats,
    drawn: Floats | None = None,
    *,
    refuse_unfit: bool = True,
) -> Demand:
    """Return what the launches of a graph ask of the devices that they run on (see `demand`).

    Parameters
    ----------
    device
        Position in the cluster, per launch.
    times
        Time alone in us of the operator of each launch.
    drawn
        Factor of the time of each operator, or None.
    """
    nothing, none = np.broadcast_to(0.0, times.shape), np.broadcast_to(np.int64(0), times.shape)
    columns: dict[str, Column] = dict.fromkeys(_COUNTS, none) | dict.fromkeys(_LOADS, nothing)
    utilization, intensity = np.nan_to_num(graph.utilization), compact(graph.intensity.astype(np.int64))
    columns |= {"sm_share": utilization, "alpha": compact((utilization > 0).astype(np.float64)), "kind": intensity}
    if not len(graph.kernel_blocks):  # one launch for each operator
        solo = times if drawn is None else times * drawn
        columns["alpha"] = _scaled(columns["alpha"], cluster, device)
        return Demand(device=device, solo=solo, unit=solo, **columns)
    kernels = np.diff(graph.kernel_ptr)
    op = np.repeat(np.arange(len(graph)), np.maximum(1, kernels))
    columns |= {key: columns[key][op] for key in ("sm_share", "alpha", "kind")}
    columns["alpha"] = _scaled(columns["alpha"], cluster, device)
    rows = np.flatnonzero(kernels[op])
    share = graph.kernel_share  # a row per kernel, in the order of the launches that have one
    solo = times.copy()
    solo[rows] *= share
    if drawn is not None:
        solo *= drawn[op]
    shapes = _blocks(graph, cluster, op[rows], device[rows], refuse_unfit)
    unit = solo.copy()
    fits = shapes["residency"] > 0
    unit[rows[~fits]] = np.inf
    rows = rows[fits]
    described: dict[str, Column] = {key: column[fits] for key, column in shapes.items()}
    described["blocks"] = graph.kernel_blocks[fits]
    described |= _loads(graph, cluster, op[rows], device[rows], described, share[fits], solo[rows])
    for key, column in described.items():
        columns[key] = columns[key].copy()
        columns[key][rows] = column
    unit[rows] /= solo_units_of(*(described[key] for key in _SOLO_UNITS))
    return Demand(device=device, solo=solo, unit=unit, **columns)


_COUNTS: Final = ("blocks", "residency", "warps", "registers", "shared_memory")
_LOADS: Final = ("dram_share", "beta", "traffic")
_SOLO_UNITS: Final = ("blocks", "residency", "sm_share", "dram_share", "alpha", "beta")


def _scaled(alpha: Floats, cluster: Cluster, device: Ints) -> Floats:
    """Return sensitivities to the SM load, those of a kernel that it binds being 1, on the devices that it runs on."""
    sensitivity = np.array([kind.sm_sensitivity for kind in cluster.kinds])
    if (sensitivity == 1.0).all():
        return alpha
    scaled: Floats = alpha * sensitivity[cluster.kind[device]]
    return scaled


def _blocks(graph: OpGraph, cluster: Cluster, op: Ints, device: Ints, refuse_unfit: bool) -> dict[str, Ints]:
    """Return what a block of each kernel takes and how many the device holds, columns of shape (n_kernels,)."""
    shape = (graph.kernel_threads, graph.kernel_registers, graph.kernel_shared_memory)
    first, number = _distinct((cluster.kind[device], *shape))
    found: list[tuple[int, int, int, int]] = []
    errors: dict[int, ClusterError] = {}
    for row in first.tolist():
        try:
            found.append(_block(cluster.devices[device[row]], *(int(column[row]) for column in shape)))
        except ClusterError as error:
            errors[row] = error
            found.append((0, 0, 0, 0))
    if errors and refuse_unfit:
        row = min(errors)
        raise ClusterError(f"operator {graph.names[op[row]]!r}: {errors[row]}")
    columns = np.array(found, np.int64).reshape(-1, 4)[number].T
    return dict(zip(("warps", "registers", "shared_memory", "residency"), columns, strict=True))


@lru_cache(maxsize=4096)
def _block(device: Device, threads: int, registers: int, shared_memory: int) -> tuple[int, int, int, int]:
    """Return warps, registers and shared memory of a block, and how many of them the device holds."""
    kernel = Kernel(1, threads, registers, shared_memory)
    need, fits = footprint(device, kernel), occupancy(device, kernel).blocks
    return need.warps, need.registers, need.shared_memory, fits * device.sms


def _distinct(columns: Sequence[Column]) -> tuple[Ints, Ints]:
    """Return where each distinct row of some columns stands first, and the number of each row among those."""
    key, span = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        low = int(column.min())
        wide = int(column.max()) - low + 1
        if wide == 1:
            continue
        if span * wide >= _LARGEST_KEY:  # number what there is from 0 up
            key, column = (np.unique(c, return_inverse=True)[1] for c in (key, column))
            span, low, wide = int(key.max()) + 1, 0, int(column.max()) + 1
        key = key * wide + (column - low)
        span *= wide
    if span == 1:
        return np.zeros(1, np.int64), key
    _, first, number = np.unique(key, return_index=True, return_inverse=True)
    return first, number


_LARGEST_KEY: Final = 2**62


def _loads(
    graph: OpGraph,
    cluster: Cluster,
    op: Ints,
    device: Ints,
    block: Mapping[str, Ints],
    share: Floats,
    solo: Floats,
) -> dict[str, Column]:
    """Return what kernels that fit load, and their sensitivities, columns of shape (n_kernels,)."""
    at = cluster.kind[device]
    bandwidth, saturating, sms, sm_sensitivity, dram_sensitivity, least = (
        np.array([getattr(kind, key) for kind in cluster.kinds], np.float64)[at]
        for key in ("bandwidth", "saturating_warps", "sms", *SENSITIVITIES, "least_sm_share")
    )
    codes, texts = graph.labels("dtype")
    peak = np.array([[kind.peak_rate(text or "fp32") for text in texts] for kind in cluster.kinds])[at, codes[op]]
    nbytes = graph.nbytes[op]
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        # roofline times of SMs and DRAM, relative to the larger of them
        compute, memory = graph.flops[op] / peak, nbytes / bandwidth
        longer = np.maximum(compute, memory)
        compute, memory = np.where(longer > 0, compute / longer, 1.0), np.where(longer > 0, memory / longer, 0.0)
        intensity = graph.intensity[op].astype(np.int64)
        kind = np.where(intensity >= 0, intensity, memory > compute)
        traffic = share * nbytes / bandwidth
        busy = np.where(kind == 1, np.maximum(least, compute), 1.0)
        moved = np.where(solo > 0, np.minimum(1.0, traffic / solo), 0.0)
    return {
        "sm_share": np.minimum(1.0, block["warps"] / saturating) / sms * busy,
        "dram_share": moved / np.minimum(block["blocks"], block["residency"]),
        "alpha": np.where(kind == 1, compute, 1.0) * sm_sensitivity,
        "beta": np.where(kind == 1, 1.0, memory) * dram_sensitivity,
        "kind": kind,
        "traffic": traffic,
    }


def solo_units_of(
    blocks: Column, residency: Column, sm_share: Column, dram_share: Column, alpha: Column, beta: Column
) -> Floats:
    """Return `solo_units` of many kernels with grids, from columns."""

    def slowdown(resident: Column) -> Floats:
        sm, dram = 1.0 - alpha + alpha * (resident * sm_share), 1.0 - beta + beta * (resident * dram_share)
        slower: Floats = np.maximum(1.0, np.maximum(sm, dram))
        return slower

    waves = np.ceil(blocks / residency)
    last = blocks - (waves - 1) * residency
    units: Floats = (waves - 1) * slowdown(residency) + slowdown(last)
    return units


def factors(
    graph: OpGraph, jitter: Jitter | None, rng: np.random.Generator | int | None, n: int | None = None
) -> Floats:
    """Return a log-normal factor of mean 1 for each operator's time.

    Parameters
    ----------
    jitter, rng
        See `simulate`; without jitter all factors are 1.
    n
        None for one factor each, shape (n_ops,); a number for shape (n, n_ops), of which row j is
        what the j-th of as many calls with the same Generator would return.
    """
    shape = (len(graph),) if n is None else (n, len(graph))
    if jitter is None:
        return np.broadcast_to(1.0, shape)
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
    drawn = np.random.default_rng(rng).standard_normal(shape)
    drawn *= sigma
    drawn -= sigma**2 / 2
    return np.exp(drawn, out=drawn)
