"""Fits of a device's parameters to microbenchmarks, stage by stage."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from simsched.base.numeric import group_by_key
from simsched.calibration import fitting
from simsched.calibration.evidence import ALONE, MeasuredRun, Residual, Values
from simsched.model import Cluster, Floats, Ints, Operator, OpGraph
from simsched.model.trace import Spans
from simsched.simulator.demand import demand_on

_CLOCK: Final = 0.3  # us: least uncertainty of a measured time
_DEVIATIONS: Final = {"overhead/": (0.01, 0.01), "pair/": (0.03, 0.1), "transfer/": (0.03, 0.03)}
"""Relative standard deviations of the first number that a run says, and of the others, beside that."""

_STAGES: Final[Mapping[str, Sequence[str]]] = {
    "overhead/": [
        *(name for name in fitting.OVERHEADS if name != "copy"),
        "crowd_latency",
        "interference.compute.compute",
    ],
    "solo/": fitting.SOLO,
    "pair/": fitting.SHARING,
    "transfer/": ("copy", *fitting.LINKS, "copy_rate"),
}
"""How the names of the runs of each stage begin, and the parameters that it fits."""

Rows = tuple[fitting.ParameterRow, ...]


def fit_microbenchmarks(runs: Sequence[MeasuredRun], cluster: Cluster) -> tuple[Rows, tuple[Residual, ...]]:
    """Return the parameters of a cluster after microbenchmarks, and the microbenchmarks' residuals.

    Notes
    -----
    Each stage begins with the results of the ones before it, and measures the same parameters or others. A kernel takes
    its time measured in that very run, where it ran alone if some of its kind did.
    """
    rows = fitting.prior_rows(cluster)
    for kind, names in _STAGES.items():
        stage_runs = [run for run in runs if run.name.startswith(kind)]
        numbers = SoloRuns(stage_runs) if kind == "solo/" else SimulatedRuns(stage_runs, kind)
        if len(numbers.groups):
            identified = fitting.identified_values(rows)
            beliefs = fitting.beliefs_of(cluster, rows)
            base = fitting.with_values(cluster, identified)

            def residuals(values: Values, said: SoloRuns | SimulatedRuns = numbers, base: Cluster = base) -> Floats:
                return said.residuals(fitting.with_values(base, values))

            before = {name: beliefs[name] for name in names if name in beliefs}
            rows = fitting.fit(residuals, numbers.groups, before, identified).update_rows(rows)
    fitted = fitting.with_values(cluster, fitting.identified_values(rows))
    return rows, tuple(Residual(run.name, run.spans.makespan, run.makespan(fitted, times_alone(run))) for run in runs)


class SimulatedRuns:
    """Numbers that a stage reads from its runs' times, measured and simulated ones alike.

    Parameters
    ----------
    runs
        Runs; those without such numbers are ignored.
    kind
        How their names begin.

    Attributes
    ----------
    groups
        The number of the run that each residual is of.
    """

    def __init__(self, runs: Sequence[MeasuredRun], kind: str) -> None:
        self._kind = kind
        self._runs: list[tuple[MeasuredRun, Ints, Floats, Floats, Floats]] = []
        for run in runs:
            rows = np.flatnonzero(_side_by_side(run)[run.program.launches.op])
            if len(rows) or kind != "pair/":
                measured = self._read(run.spans, rows)
                (first, rest) = _DEVIATIONS[kind]
                deviation = np.array([first, *[rest] * (len(measured) - 1)])
                spread = np.hypot(_CLOCK, np.hypot(deviation, run.noise) * measured)
                self._runs.append((run, rows, times_alone(run), measured, spread))
        self.groups: Ints = np.repeat(np.arange(len(self._runs)), [len(measured) for *_, measured, _ in self._runs])

    def _read(self, spans: Spans, rows: Ints) -> Floats:
        """Return the numbers of times; of kernels side by side the numbers of some launches."""
        if self._kind == "overhead/":
            return np.array([spans.makespan, spans.launches[:, 0].min()])
        if self._kind == "transfer/":
            several = len(spans.copies) > 1  # which of them share engines and which take turns is the device's affair
            return np.concatenate([[spans.makespan], [] if several else np.diff(spans.copies)[:, 0]])
        ends = spans.launches[rows, 1] - spans.launches[rows, 0].min()
        return np.concatenate([[ends.max()], ends])

    def residuals(self, cluster: Cluster) -> Floats:
        """Return simulated less measured, over the standard deviation."""
        return np.concatenate(
            [
                (self._read(run.simulate_on(cluster, times), rows) - measured) / spread
                for run, rows, times, measured, spread in self._runs
            ]
        )


def _side_by_side(run: MeasuredRun) -> npt.NDArray[np.bool_]:
    """Return the operators of a run that were not measured alone; none if times alone are missing for one of them."""
    names = run.graph.names
    operators = run.graph.operators
    alone = {signature(op) for op in operators if op.name.startswith(ALONE)}
    beside = np.array([not name.startswith(ALONE) for name in names])
    if all(signature(op) in alone for op in operators):
        return beside
    return np.zeros(len(names), np.bool_)


def times_alone(run: MeasuredRun) -> Floats:
    """Return the time alone of each operator of a run in us, as measured in it."""
    durations = run.durations()
    operators = run.graph.operators
    if not _side_by_side(run).any():
        return durations
    pairs = zip(operators, durations.tolist(), strict=True)
    samples = group_by_key((signature(op), us) for op, us in pairs if op.name.startswith(ALONE))
    return np.array([float(np.median(samples[signature(op)])) for op in operators])


_SWEEP: Final = 0.04
"""Relative standard deviation of a kernel's time about that of its family."""

_FEWEST: Final = 3  # sizes that make a family
_TURNS: Final = 20


def signature(op: Operator) -> tuple[float, float, tuple[object, ...]]:
    """Return a key that is equal for two kernels of the same work."""
    return op.flops, op.nbytes, (op.kind, op.intensity, op.dtype, *op.kernels)


class SoloRuns:
    """Numbers from runs of one kernel alone: its time, and the growth of its rate with the number of its blocks.

    Parameters
    ----------
    runs
        Runs; those whose graph has more than one operator, or whose operator has not one kernel, are ignored.

    Attributes
    ----------
    families
        Kernels with equal blocks in different numbers: rows of the graph of all kernels.
    groups
        The number of the kernel that each residual is of.

    Notes
    -----
    A kernel of N blocks, whose blocks take c each on an idle device, takes its latency and the longer of U(N) c and of
    the time in which DRAM moves its bytes; U(N) is its time alone in units of c (`Launch.units`), and depends on
    `saturating_warps` and `block_spread`. c is the value that fits best the kernels of a family that DRAM does not
    limit.
    """

    def __init__(self, runs: Sequence[MeasuredRun]) -> None:
        alone = [run for run in runs if len(run.graph) == 1 and len(run.graph.operator(0).kernels) == 1]
        kernels = []
        times = []
        for same in group_by_key((signature(run.graph.operator(0)), run) for run in alone).values():
            us = [float(run.durations()[0]) for run in same]
            if min(us) > 0:
                kernels.append(same[0].graph.operator(0))
                times.append(float(np.median(us)))
        families = group_by_key((_family(op), i) for i, op in enumerate(kernels)).values()
        self.families: list[Ints] = [np.array(rows) for rows in families if len(rows) >= _FEWEST]
        if self.families:
            self.groups: Ints = np.concatenate(self.families)
        else:
            self.groups = np.zeros(0, np.int64)
        self._measured = np.array(times)
        if kernels:
            self._graph = OpGraph(
                [
                    Operator(
                        f"k{i}",
                        flops=op.flops,
                        nbytes=op.nbytes,
                        kernels=op.kernels,
                        intensity=op.intensity,
                        dtype=op.dtype,
                    )
                    for i, op in enumerate(kernels)
                ]
            )

    def residuals(self, cluster: Cluster) -> Floats:
        """Return the logarithm of simulated over measured time of each kernel of a family, over its deviation."""
        demand = demand_on(self._graph, cluster, 0, self._measured)
        units = demand["units"]
        latencies = np.minimum(cluster.devices[0].kernel_latency, demand["solo"])
        moved = self._graph.nbytes / cluster.devices[0].bandwidth
        residuals = []
        for rows in self.families:
            measured = self._measured[rows]
            latency = latencies[rows]
            block = float(((measured - latency) / units[rows]).min())
            for _ in range(_TURNS):
                busy = block * units[rows]
                off = np.log((latency + np.maximum(busy, moved[rows])) / measured)
                counts = moved[rows] < busy
                if not counts.any():
                    break
                change = float(np.median(off[counts]))
                block *= float(np.exp(-change))
                if abs(change) < 1e-4:
                    break
            residuals.append(off / _SWEEP)
        return np.concatenate(residuals)


def _family(op: Operator) -> tuple[object, ...]:
    kernel = op.kernels[0]
    work = (float(f"{amount / kernel.blocks:.6g}") for amount in (op.flops, op.nbytes))
    return (op.kind, op.dtype, op.intensity, *work, kernel.threads, kernel.registers)
