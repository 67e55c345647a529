"""`MeasuredRun`: what calibration keeps of a replay, and what the simulator says of the same program."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from simsched.base.codec import Among
from simsched.base.errors import CalibrationError, ProgramError
from simsched.base.jit.tables import Array
from simsched.base.numeric import frozen
from simsched.model import LAUNCH, Cluster, Floats, OpGraph, Program
from simsched.model.profile import Replay
from simsched.model.trace import COPY, KERNEL, Trace
from simsched.simulator.compiled.prepared import Plan
from simsched.simulator.workload import demand_of, launch_devices

MICROBENCHMARKS: Final = ("overhead/", "solo/", "pair/", "transfer/")
"""How the names of runs begin that identify parameters; all others are runs of a graph in place."""


ALONE: Final = "alone"
"""How the names of operators begin that run alone in a run ``pair/...``, for the times of those that do not."""


_PLACES: Final = 6  # digits after the point of a time in us
_KEPT: Final = "_asked"  # where a run keeps what its launches last asked for


class Times(NamedTuple):
    """When the launches and copies of a run began and ended, us: arrays of shape (n, 2)."""

    makespan: float
    launches: Floats
    copies: Floats


FITTED, HELD_OUT = "fit", "held-out"


class Residual(NamedTuple):
    """A run as it was measured and as the calibrated simulator predicts it.

    Parameters
    ----------
    name
        Of the run.
    measured, predicted
        Median latency, and simulated makespan, in us.
    role
        ``"fit"``, or ``"held-out"`` for a run that no fit has seen.
    """

    name: str
    measured: float
    predicted: float
    role: Annotated[str, Among((FITTED, HELD_OUT))] = FITTED

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted / self.measured - 1.0


@dataclass(frozen=True, eq=False)
class MeasuredRun:
    """Measured runs of one program, as far as a fit needs them.

    Parameters
    ----------
    name
        That of the replay.
    program
        What ran, over the graph as it was realised.
    latency
        Us of each repeat.
    launches, copies
        Start and end in us of each launch and copy, by row of the program's, shape (n, 2).

    Raises
    ------
    CalibrationError
        If a time is negative or not finite, or half of the repeats took none.

    Notes
    -----
    Times are rounded to a picosecond, as files hold them: a fit to a file is the same to the last digit.
    """

    name: str
    program: Program
    latency: tuple[float, ...]
    launches: Floats
    copies: Floats

    def __post_init__(self) -> None:
        latency, launches, copies = (np.round(np.asarray(x, np.float64), _PLACES)
                                     for x in (self.latency, self.launches, self.copies))  # fmt: skip
        times = np.concatenate([latency, launches.ravel(), copies.ravel()])
        if not np.isfinite(times).all() or times.min() < 0:
            raise CalibrationError(f"run {self.name!r} holds a time that is negative or not finite; measure it again")
        if np.median(latency) <= 0:
            raise CalibrationError(f"run {self.name!r} is said to have taken no time; measure it again")
        for name, value in (("latency", tuple(latency.tolist())), ("launches", launches), ("copies", copies)):
            object.__setattr__(self, name, frozen(value) if isinstance(value, np.ndarray) else value)

    @classmethod
    def of(cls, replay: Replay) -> "MeasuredRun":
        """Return what is kept of a replay."""
        times = times_of(replay.trace)
        return cls(replay.name, replay.program, replay.latency, times.launches, times.copies)

    @property
    def graph(self) -> OpGraph:
        """The graph that ran."""
        return self.program.graph

    def over(self, graph: OpGraph) -> "MeasuredRun":
        """Return the run over another description of the graph that ran."""
        if graph is self.graph:
            return self
        try:
            return replace(self, program=self.program.over(graph))
        except ProgramError as error:
            raise CalibrationError(f"run {self.name!r}: {error}") from None

    @property
    def in_place(self) -> bool:
        """Whether it ran a graph as it is used, not one made to identify parameters."""
        return not self.name.startswith(MICROBENCHMARKS)

    @cached_property
    def measured(self) -> float:
        """Median latency in us."""
        return float(np.median(self.latency))

    @cached_property
    def noise(self) -> float:
        """Relative standard error of the median latency, from the spread of the middle half; 0 of a single repeat."""
        low, high = np.quantile(self.latency, (0.25, 0.75))
        return float((high - low) / 1.35 / self.measured * 1.25 / np.sqrt(len(self.latency)))

    @property
    def is_concurrent(self) -> bool:
        """Whether it uses more than one stream."""
        places = self.program.device * np.int64(2**31) + self.program.stream
        return len(np.unique(places[self.program.action == LAUNCH])) > 1

    def durations(self, gap: float = 0.0) -> Floats:
        """Return the measured us of each operator: its kernels and what lies between them, of which a `gap` counts.

        Anything longer was spent waiting, for the host or for room on the device.
        """
        op = self.program.launch_op
        rows = np.flatnonzero(op[1:] == op[:-1])  # of kernels that another one of their operator follows
        between = np.clip(self.launches[rows + 1, 0] - self.launches[rows, 1], 0.0, gap)
        return self.by_operator(self.launches) + added(op[rows], between, len(self.graph))

    def by_operator(self, launches: Floats) -> Floats:
        """Return the us that the kernels of each operator took, shape (n_ops,), by start and end of each launch."""
        return added(self.program.launch_op, launches[:, 1] - launches[:, 0], len(self.graph))

    @cached_property
    def overlap(self) -> Floats:
        """Part of each operator's time in which another kernel ran on its device too, at most 1, shape (n_ops,)."""
        device = launch_devices(self.program)
        start, end = self.launches.T
        together = np.minimum(end[:, None], end) - np.maximum(start[:, None], start)
        together[device[:, None] != device] = 0.0
        np.fill_diagonal(together, 0.0)
        shared = added(self.program.launch_op, np.clip(together, 0.0, None).sum(axis=1), len(self.graph))
        return frozen(np.minimum(1.0, shared / np.maximum(self.by_operator(self.launches), 1e-12)))

    def simulated(self, cluster: Cluster, times: Floats) -> Times:
        """Return what the simulator says of the program with operators of these times in us."""
        plan = Plan(self.program, cluster)  # as `simulate` does, but for a run less: spans are wanted at once
        columns, _ = plan.trace_columns(self._launches(cluster, times))
        return _times(self.program, columns)

    def makespan(self, cluster: Cluster, times: Floats) -> float:
        """Return the simulated makespan in us with operators of these times."""
        return float(Plan(self.program, cluster).take().makespans(self._launches(cluster, times))[0])

    def _launches(self, cluster: Cluster, times: Floats) -> Array:
        """Return what launches ask for; the last answer is kept, because most parameters do not change it."""
        asked = tuple(
            (d.model, d.sms, d.saturating_warps, d.bandwidth, d.least_sm_share, d.block_spread, d.kernel_latency)
            for d in cluster.devices
        )
        kept = self.__dict__.get(_KEPT)
        if kept is None or kept[0] is not times or kept[1] != asked:
            program, devices = self.program, launch_devices(self.program)
            found = demand_of(self.graph, cluster, devices, times[program.launch_op], priority=program.priority)
            kept = self.__dict__[_KEPT] = (times, asked, found)
        rows: Array = kept[2]
        return rows


def added(rows: npt.NDArray[Any], values: Floats, count: int) -> Floats:
    """Return the sum of the values of each row, shape (count,)."""
    sums = np.zeros(count)
    np.add.at(sums, rows, values)
    return sums


def times_of(trace: Trace) -> Times:
    """Return when the launches and copies of a trace ran, by row of the program's."""
    return _times(trace.program, {name: getattr(trace, name) for name in ("kind", "item", "start", "end")})


def _times(program: Program, columns: Mapping[str, npt.NDArray[Any]]) -> Times:
    kind, item = columns["kind"], columns["item"]
    found = []
    for wanted, count in ((KERNEL, len(program.launch_op)), (COPY, len(program.copies.op))):
        rows = np.flatnonzero(kind == wanted)
        spans = np.zeros((count, 2))
        spans[item[rows], 0], spans[item[rows], 1] = columns["start"][rows], columns["end"][rows]
        found.append(spans)
    launches, copies = found
    return Times(float(max(launches[:, 1].max(initial=0.0), copies[:, 1].max(initial=0.0))), launches, copies)


def weighted_median(values: Floats, weights: Floats) -> float:
    """Return the value at which half of the weight lies below; between two that meet there their mean.

    >>> weighted_median(np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 5.0]))
    2.0
    """
    order = np.argsort(values, kind="stable")
    share = np.cumsum(weights[order]) / weights.sum()
    at = int(np.searchsorted(share, 0.5 - 1e-12))
    if at + 1 < len(order) and abs(share[at] - 0.5) < 1e-9:
        return float((values[order[at]] + values[order[at + 1]]) / 2)
    return float(values[order[at]])


def with_shares(graph: OpGraph, runs: Sequence[MeasuredRun]) -> OpGraph:
    """Return a graph whose kernels have the shares of their operators' times that they took in runs of it."""
    if not (np.diff(graph.kernel_ptr) > 1).any():
        return graph
    ptr = graph.launch_ptr
    operators = []
    for i, op in enumerate(graph.operators):
        if len(op.kernels) > 1:
            spent = np.array([np.diff(run.launches[ptr[i] : ptr[i + 1]], axis=1)[:, 0] for run in runs])
            share = np.maximum(np.median(spent / np.maximum(spent.sum(axis=1, keepdims=True), 1e-12), axis=0), 1e-6)
            share /= share.sum()
            op = replace(op, kernels=tuple(replace(k, share=float(s)) for k, s in zip(op.kernels, share, strict=True)))
        operators.append(op)
    return OpGraph(operators, graph.edges, graph.name)


Values = Mapping[str, float]
