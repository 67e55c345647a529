"""What each launch of a program asks of its device, as columns that an engine reads."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from simsched.cluster import Cluster, Device, footprint, occupancy
from simsched.costmodel import CostModel, times_by_device
from simsched.errors import ClusterError, SimulationError
from simsched.graph import Kernel, OpGraph
from simsched.graph.columns import Floats, Ints
from simsched.program import LAUNCH, Program
from simsched.simulator.contention import solo_units

Jitter = float | Mapping[str, float]
LEAST_SM_SHARE: Final = 0.1
"""Part of the issue slots that even a kernel bound by DRAM takes, of what its warps could."""

LARGEST_VARIATION: Final = 1e3
"""Most that the standard deviation of an operator's time may be, over its mean."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What launches ask for, one row per launch of a `Program`.

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
    either loads nothing.
    """
    graph = program.graph
    launches = program.action == LAUNCH
    device = np.full(len(program.launch_op), -1, np.int64)
    device[program.argument[launches]] = program.device[launches]
    times = np.stack(times_by_device(graph, cluster, cost))  # (n_devices, n_ops)
    solo = times[device, program.launch_op] * _factors(graph, jitter, rng)[program.launch_op]
    n = len(solo)
    zeros = np.zeros(n, np.int64)
    columns: dict[str, npt.NDArray[Any]] = {
        key: zeros.copy() for key in ("blocks", "residency", "warps", "registers", "shared_memory")
    }
    utilization = np.nan_to_num(graph.utilization[program.launch_op])
    columns |= {"sm_share": utilization, "dram_share": np.zeros(n), "alpha": (utilization > 0).astype(np.float64)}
    columns |= {"beta": np.zeros(n), "kind": graph.intensity[program.launch_op].astype(np.int64)}
    gridded = np.diff(graph.kernel_ptr)[program.launch_op] > 0
    rows = np.flatnonzero(gridded)
    solo[rows] *= graph.kernel_share[graph.kernel_ptr[program.launch_op[rows]] + program.launch_kernel[rows]]
    known: dict[tuple[int, ...], tuple[int, int, int, int]] = {}
    for row in rows.tolist():
        _describe_kernel(columns, row, program, cluster, int(device[row]), float(solo[row]), known, refuse_unfit)
    unit = np.where(gridded & (columns["residency"] == 0), np.inf, solo)
    for row in rows[columns["residency"][rows] > 0].tolist():
        unit[row] /= solo_units(
            int(columns["blocks"][row]), int(columns["residency"][row]), float(columns["sm_share"][row]),
            float(columns["dram_share"][row]), float(columns["alpha"][row]), float(columns["beta"][row]),
        )  # fmt: skip
    return Demand(device=device, solo=solo, unit=unit, **columns)


def _describe_kernel(
    columns: dict[str, npt.NDArray[Any]],
    row: int,
    program: Program,
    cluster: Cluster,
    place: int,
    solo: float,
    known: dict[tuple[int, ...], tuple[int, int, int, int]],
    refuse_unfit: bool,
) -> None:
    """Fill one row of the columns; `known` remembers what blocks of a shape take on a device."""
    graph, op, device = program.graph, int(program.launch_op[row]), cluster.devices[place]
    k = int(graph.kernel_ptr[op] + program.launch_kernel[row])
    shape = (int(graph.kernel_threads[k]), int(graph.kernel_registers[k]), int(graph.kernel_shared_memory[k]))
    key = (place, *shape)
    if key not in known:
        kernel = Kernel(1, *shape)
        need = footprint(device, kernel)
        try:
            fits = occupancy(device, kernel).blocks
        except ClusterError as error:
            if refuse_unfit:
                raise ClusterError(f"operator {graph.names[op]!r}: {error}") from None
            fits = 0
        known[key] = (need.warps, need.registers, need.shared_memory, fits * device.sms)
    warps, registers, shared_memory, residency = known[key]
    if not residency:
        return
    blocks, share = int(graph.kernel_blocks[k]), float(graph.kernel_share[k])
    compute, memory = _bottleneck(graph, op, device)
    kind = int(graph.intensity[op]) if graph.intensity[op] >= 0 else int(memory > compute)
    traffic = share * float(graph.nbytes[op]) / device.bandwidth  # us at the full bandwidth
    busy = compute if kind else 1.0
    columns["blocks"][row], columns["residency"][row] = blocks, residency
    columns["warps"][row], columns["registers"][row], columns["shared_memory"][row] = warps, registers, shared_memory
    columns["sm_share"][row] = (
        min(1.0, warps / device.saturating_warps) / device.sms * (max(LEAST_SM_SHARE, busy) if kind else 1.0)
    )
    columns["dram_share"][row] = min(1.0, traffic / solo) / min(blocks, residency) if solo > 0 else 0.0
    columns["alpha"][row], columns["beta"][row] = (compute, 1.0) if kind else (1.0, memory)
    columns["kind"][row] = kind


def _bottleneck(graph: OpGraph, op: int, device: Device) -> tuple[float, float]:
    """Return the roofline times of SMs and DRAM, relative to the larger of them."""
    compute = float(graph.flops[op]) / device.peak_rate(graph.label("dtype", op) or "fp32")
    memory = float(graph.nbytes[op]) / device.bandwidth
    longer = max(compute, memory)
    return (compute / longer, memory / longer) if longer > 0 else (1.0, 0.0)


def _factors(graph: OpGraph, jitter: Jitter | None, rng: np.random.Generator | int | None) -> Floats:
    """Return a log-normal factor of mean 1 for each operator's time."""
    if jitter is None:
        return np.ones(len(graph))
    if rng is None:
        raise SimulationError("jitter is random: pass `rng`, a numpy Generator or a seed")
    if isinstance(jitter, Mapping):
        unknown = [name for name in jitter if name not in graph.index]
        if unknown:
            raise SimulationError(f"jitter names no operator: {unknown[0]!r}")
        variation = np.array([jitter.get(name, 0.0) for name in graph.names], np.float64)
    else:
        variation = np.full(len(graph), jitter, np.float64)
    bad = ~((variation >= 0) & (variation <= LARGEST_VARIATION))
    if bad.any():
        name = graph.names[int(np.argmax(bad))]
        raise SimulationError(f"jitter of {name!r} must be finite and not negative, and at most {LARGEST_VARIATION:g}")
    sigma = np.sqrt(np.log1p(variation**2))
    return np.exp(sigma * np.random.default_rng(rng).standard_normal(len(graph)) - sigma**2 / 2)
