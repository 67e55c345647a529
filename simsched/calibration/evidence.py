"""`MeasuredRun`: the parts of a replay that calibration keeps, and their simulation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, Final, NamedTuple

import numpy as np

from simsched.base.codec import Among, Checked, Count, Gaps, aside, brief
from simsched.base.errors import CalibrationError, ProgramError
from simsched.base.jit.tables import Array
from simsched.base.memo import Memo
from simsched.base.numeric import frozen
from simsched.model import EXECUTIONS, LAUNCH, Cluster, Floats, Ints, OpGraph, Program
from simsched.model.launches import given_launches
from simsched.model.profile import Replay
from simsched.model.profile.measured import Times
from simsched.model.program import Copies
from simsched.model.trace import Spans, spans_in, spans_of
from simsched.simulator.demand import demand_of, launch_devices
from simsched.simulator.layout import Layout

MICROBENCHMARKS: Final = ("overhead/", "solo/", "pair/", "transfer/")
"""How the names of runs begin that identify parameters; all others are runs of a graph in place."""


ALONE: Final = "alone"
"""How the names of operators begin that run alone in a run ``pair/...``, for the times of those that do not."""

_PLACES: Final = 6  # digits after the point of a time in us
# Of a measured run: the launches that were computed last, with the times and the numbers of devices they are for; and
# the layout of its program.
_last_launches = Memo[tuple[Floats, tuple[Any, ...], Array]]()
_last_layout = Memo[Layout]()
_OF_PROGRAM: Final = (
    "execution",
    "n_events",
    "thread_ptr",
    "action",
    "device",
    "stream",
    "argument",
    "priority",
    "lead",
    "own",
)


FITTED = "fit"
HELD_OUT = "held-out"


class Residual(NamedTuple):
    """Measured makespan of a run, and its prediction by the calibrated simulator.

    Parameters
    ----------
    name
        Name of the run.
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


@dataclass(frozen=True, kw_only=True)
class CopyColumns(Checked):
    """The copies of a program, by columns.

    Parameters
    ----------
    op, device
        Operators whose outputs are copied, and the devices that receive them, by index.
    nbytes, transfer
        Sizes in bytes, and exact times in us or null.
    times
        Start and end in us of each: two numbers for each.
    """

    SUBJECT = "copies of a run"
    ERROR = CalibrationError
    op: Ints
    device: Ints
    nbytes: Floats
    transfer: Annotated[Floats, Gaps()]
    times: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasuredRun(Checked):
    """Measured runs of one program, by columns.

    Parameters
    ----------
    name
        Name of the replay.
    latency
        us of each repeat.
    launches
        Start and end in us of each launch: two numbers for each.
    execution
        stages, events, or graph.
    n_events
        How many events the program has.
    thread_ptr
        Where the instructions of each host thread begin, and where the last end.
    action
        Action of each instruction: 0 launch, 1 record, 2 wait, 3 copy, 4 barrier, 5 sync.
    device, stream, argument
        Device, stream and argument of each instruction, by index; -1 where it has none.
    priority
        Priority of each operator's stream.
    lead, own
        Host time in us before each instruction, and the instruction's own host time or null.
    copies
        The copies.
    program
        The program, over the graph as it was realised; files do not hold it, see `with_program`.

    Raises
    ------
    CalibrationError
        If a time is negative or not finite, or half of the repeats took none.

    Notes
    -----
    Times are rounded to a picosecond, as files hold them: a fit to a file is the same to the last digit.
    """

    SUBJECT = "run {0.name!r}"
    ERROR = CalibrationError
    name: str
    latency: Times
    launches: Floats
    execution: Annotated[str, Among(EXECUTIONS)]
    n_events: Count
    thread_ptr: Ints
    action: Ints
    device: Ints
    stream: Ints
    argument: Ints
    priority: Ints
    lead: Floats | None = brief(None)
    own: Annotated[Floats, Gaps()] | None = brief(None)
    copies: CopyColumns
    program: Program = aside()

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        latency, launches, copies = (np.round(us, _PLACES) for us in (self.latency, self.launches, self.copies.times))
        times = np.concatenate([latency, launches, copies])
        if not np.isfinite(times).all() or times.min() < 0:
            raise self.refusal("it holds a time that is negative or not finite; measure it again")
        if np.median(latency) <= 0:
            raise self.refusal("it is said to have taken no time; measure it again")
        rounded = replace(self.copies, times=copies)
        for name, value in (("latency", tuple(latency.tolist())), ("launches", frozen(launches)), ("copies", rounded)):
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, replay: Replay) -> "MeasuredRun":
        """Return the run of a replay."""
        program = replay.program
        spans = spans_of(replay.trace)
        copies = CopyColumns(**program.copies._asdict(), times=spans.copies.ravel())
        return cls(
            name=replay.name,
            latency=replay.latency,
            launches=spans.launches.ravel(),
            copies=copies,
            program=program,
            **{name: getattr(program, name) for name in _OF_PROGRAM},
        )

    def with_program(self, graph: OpGraph, cluster: Cluster) -> "MeasuredRun":
        """Return the run with its program; without one, with the program of a graph on a cluster."""
        if self.program is not None:
            return self
        fields_of_program: dict[str, Any] = {name: getattr(self, name) for name in _OF_PROGRAM}
        copies = Copies(*(getattr(self.copies, name) for name in Copies._fields))
        try:
            program = Program(
                graph, [device.name for device in cluster.devices], copies=copies, **fields_of_program
            ).check()
        except ValueError as error:
            raise self.refusal(str(error)) from None
        for name, times, count in (
            ("launches", self.launches, len(program.launches)),
            ("copies", self.copies.times, len(program.copies.op)),
        ):
            if times.shape != (2 * count,):
                raise self.refusal(f"{name} must hold start and end of {count} spans in us")
        return replace(self, program=program)

    @cached_property
    def spans(self) -> Spans:
        """Its launches and copies as they were measured."""
        return Spans(self.launches.reshape(-1, 2), self.copies.times.reshape(-1, 2))

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
            raise self.refusal(str(error)) from None

    @property
    def in_place(self) -> bool:
        """Whether it ran a graph of real use, not one made to identify parameters."""
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
        """Return the measured us of each operator: its kernels and the times between them, each at most a `gap`.

        A longer time was spent waiting, for the host or for room on the device.
        """
        op = self.program.launches.op
        launches = self.spans.launches
        rows = np.flatnonzero(op[1:] == op[:-1])  # kernels that another one of their operator follows
        between = np.clip(launches[rows + 1, 0] - launches[rows, 1], 0.0, gap)
        return self.by_operator(self.spans) + np.bincount(op[rows], between, len(self.graph))

    def by_operator(self, spans: Spans) -> Floats:
        """Return the us that the kernels of each operator took, shape (n_ops,)."""
        took = spans.launches[:, 1] - spans.launches[:, 0]
        return np.asarray(np.bincount(self.program.launches.op, took, len(self.graph)), np.float64)

    @cached_property
    def overlap(self) -> Floats:
        """Part of each operator's time in which another kernel ran on its device too, at most 1, shape (n_ops,)."""
        device = launch_devices(self.program)
        start, end = self.spans.launches.T
        together = np.minimum(end[:, None], end) - np.maximum(start[:, None], start)
        together[device[:, None] != device] = 0.0
        np.fill_diagonal(together, 0.0)
        shared = np.bincount(self.program.launches.op, np.clip(together, 0.0, None).sum(axis=1), len(self.graph))
        return frozen(np.minimum(1.0, shared / np.maximum(self.by_operator(self.spans), 1e-12)))

    def simulate_on(self, cluster: Cluster, times: Floats) -> Spans:
        """Return the simulation of the program with operators of these times in us."""
        layout = self._layout(cluster)  # as `simulate` does, but for a run less: spans are wanted at once
        return spans_in(self.program, layout.span_columns(self._launches(cluster, times)))

    def makespan(self, cluster: Cluster, times: Floats) -> float:
        """Return the simulated makespan in us with operators of these times."""
        return float(self._layout(cluster).makespans(self._launches(cluster, times))[0])

    def _layout(self, cluster: Cluster) -> Layout:
        """Return the program's layout on a cluster; the last one is kept, because fits change numbers only."""
        layout = _last_layout.get(self)
        if layout is None or not layout.fits(cluster):
            return _last_layout.put(self, Layout(self.program, cluster))
        layout.move(cluster)
        return layout

    def _launches(self, cluster: Cluster, times: Floats) -> Array:
        """Return the launches' parameters; the last ones are kept, because most fits do not change them."""
        key = tuple(
            (d.model, d.sms, d.saturating_warps, d.bandwidth, d.least_sm_share, d.block_spread, d.kernel_latency)
            for d in cluster.devices
        )
        entry = _last_launches.get(self)
        if entry is None or entry[0] is not times or entry[1] != key:
            program = self.program
            devices = launch_devices(self.program)
            demand = demand_of(
                self.graph, program.launches, cluster, devices, times[program.launches.op], priority=program.priority
            )
            entry = _last_launches.put(self, (times, key, demand))
        return entry[2]


def with_shares(graph: OpGraph, runs: Sequence[MeasuredRun]) -> OpGraph:
    """Return a graph whose kernels have their measured shares of their operators' times."""
    if not (np.diff(graph.kernel_ptr) > 1).any():
        return graph
    ptr = given_launches(graph).ptr
    operators = []
    for i, op in enumerate(graph.operators):
        if len(op.kernels) > 1:
            spent = np.array([np.diff(run.spans.launches[ptr[i] : ptr[i + 1]], axis=1)[:, 0] for run in runs])
            share = np.maximum(np.median(spent / np.maximum(spent.sum(axis=1, keepdims=True), 1e-12), axis=0), 1e-6)
            share /= share.sum()
            op = replace(op, kernels=tuple(replace(k, share=float(s)) for k, s in zip(op.kernels, share, strict=True)))
        operators.append(op)
    return OpGraph(operators, graph.edges, graph.name)


Values = Mapping[str, float]
