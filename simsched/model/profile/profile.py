"""`Profile`: measured times of operators, which serves as a cost model, and `Replay`: measured runs of one program."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import fsum
from typing import Any, Final, NamedTuple

from simsched.base.codec import Amount, Checked, Count, Document, Name, brief
from simsched.base.errors import CostError, FormatError
from simsched.base.io import naming
from simsched.base.numeric import twice
from simsched.model.cluster import Cluster, Device
from simsched.model.graph import Kernel, Operator, OpGraph
from simsched.model.profile.measured import MeasuredDevice, MeasuredKernel, MeasuredOperator, Times, quantile
from simsched.model.program import Issued, Program
from simsched.model.trace import Trace, measured_trace, spans_of

_PICOSECONDS: Final = 6  # digits after the point that a time in us is written with
_SMALLEST_SHARE: Final = 1e-12  # of a kernel too short for its time to be seen, because a share is never 0


class Summary(NamedTuple):
    """Samples in a nutshell: how many, and their 10th, 50th and 90th percentile in us."""

    n: int
    median: float
    p10: float
    p90: float


@dataclass(frozen=True, kw_only=True)
class _RunFields(Checked):
    """Measured runs of a program.

    Parameters
    ----------
    name
        Name of the run.
    latency
        us of each repeat, in the order in which they ran.
    launches, copies
        Start and end in us of each, time 0 being when the host began.
    max_relative_error
        Largest difference of an output from sequential execution, over its largest value.
    environment
        Backend, device, driver, versions, date, commit.
    """

    SUBJECT = "run {0.name!r}"
    ERROR = CostError
    name: Name = "replay"
    latency: Times
    launches: tuple[tuple[Amount, Amount], ...] = ()
    copies: tuple[tuple[Amount, Amount], ...] = ()
    max_relative_error: Amount | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _ReplayFile(_RunFields):
    """Measured runs of one program.

    Parameters
    ----------
    cluster
        Its cluster, as the backend describes it.
    program
        The program that ran.
    """

    cluster: Cluster
    program: Program


@dataclass(frozen=True)
class Replay(Checked, Document):
    """Measured runs of one program.

    Parameters
    ----------
    latency
        us of each repeat, in the order in which they ran.
    trace
        Measured spans; the program that ran and the cluster it ran on are the trace's.
    environment
        Backend, device, driver, library versions, clocks, date, commit.
    max_relative_error
        Largest difference of an output from sequential execution, over the largest value of that output; None if
        outputs were not compared.
    name
        Name of the run: the scheduler, or for runs made to identify parameters a path such as
        ``"pair/compute-memory"``.

    Raises
    ------
    CostError
        If a latency is no finite time, or there is none.
    """

    SUBJECT = "replay {0.name!r}"
    ERROR = CostError
    FORMAT = "simsched.replay"
    INDENT = None
    FILE = _ReplayFile
    latency: Times
    trace: Trace
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    max_relative_error: Amount | None = None
    name: Name = "replay"

    def __repr__(self) -> str:
        return f"Replay({self.name!r}, {len(self.latency)} repeats, median {self.median:.6g} us)"

    @property
    def program(self) -> Program:
        """The program that ran."""
        return self.trace.program

    @property
    def cluster(self) -> Cluster:
        """Its cluster, as the backend describes it."""
        return self.trace.cluster

    @property
    def median(self) -> float:
        """Median of the latencies in us."""
        return quantile(self.latency, 0.5)

    @property
    def summary(self) -> Summary:
        """Number, median, 10th and 90th percentile of the latencies in us."""
        return Summary(len(self.latency), self.median, quantile(self.latency, 0.1), quantile(self.latency, 0.9))

    def to_file(self) -> _ReplayFile:
        """Return it as its file has it."""
        return _ReplayFile(cluster=self.cluster, program=self.program, **_measurements(self))

    @classmethod
    def from_file(
        cls, program: Program, cluster: Cluster, launches: Any = (), copies: Any = (), **own: Any
    ) -> "Replay":
        """Make a replay from the data of its file."""
        return cls(trace=measured_trace(program, cluster, launches, copies), **own)


@dataclass(frozen=True, kw_only=True)
class NumberedRun(_RunFields):
    """Measured runs of a program among others.

    Parameters
    ----------
    graph, cluster
        Places in the lists of graphs and clusters.
    program
        The program, without its graph.
    """

    graph: Count
    cluster: Count
    program: Issued

    @classmethod
    def of(cls, replay: Replay, graph: int, cluster: int) -> "NumberedRun":
        """Return a replay, given the places of its graph and cluster."""
        return cls(graph=graph, cluster=cluster, program=Issued.of(replay.program), **_measurements(replay))

    def to_replay(self, place: int, graphs: Sequence[OpGraph], clusters: Sequence[Cluster]) -> Replay:
        """Return the replay; runs of one graph share it."""
        for number, parts, what in ((self.graph, graphs, "graph"), (self.cluster, clusters, "cluster")):
            if number >= len(parts):
                raise FormatError(f"runs[{place}]: there is no {what} {number}; the file has {len(parts)}")
        cluster = clusters[self.cluster]
        with naming(f"runs[{place}]"):
            program = self.program.to_program(graphs[self.graph])
            trace = measured_trace(program, cluster, self.launches, self.copies)
        return Replay(self.latency, trace, self.environment, self.max_relative_error, self.name)


def _measurements(replay: Replay) -> dict[str, Any]:
    """Return the fields of a replay without its program and cluster; times to a picosecond."""
    launches, copies = (times.round(_PICOSECONDS).tolist() for times in spans_of(replay.trace))
    return {
        "name": replay.name,
        "latency": replay.latency,
        "max_relative_error": replay.max_relative_error,
        "environment": replay.environment,
        "launches": launches,
        "copies": copies,
    }


@dataclass(frozen=True, slots=True)
class Provenance(Checked):
    """Source of measured times.

    Parameters
    ----------
    source
        The file or the backend.
    profiler
        The tool and its version.
    cuda_runtime, cuda_driver
        Versions, as the profiler prints them.
    date
        Date of the measurement, ISO 8601, UTC.
    iterations
        How many were measured and kept.
    discarded
        How many came before them and were left out.
    """

    SUBJECT = "provenance"
    ERROR = CostError
    source: Name | None = brief(None)
    profiler: Name | None = brief(None)
    cuda_runtime: Name | None = brief(None)
    cuda_driver: Name | None = brief(None)
    date: Name | None = brief(None)
    iterations: Count = 1
    discarded: Count = 0


@dataclass(frozen=True, kw_only=True)
class _ProfileFile:
    """Measured times of operators, and of schedules that ran whole.

    Parameters
    ----------
    provenance
        Where the times came from.
    device
        Device of the measurement.
    operators
        Measured operators; a name appears once.
    graph
        The profiled graph, as the backend ran it.
    cluster
        Its cluster as the backend describes it.
    graphs, clusters
        Graphs and clusters of the runs, each once; runs refer to them by index.
    runs
        Schedules that ran whole.
    """

    provenance: Provenance = Provenance()
    device: MeasuredDevice | None = brief(None)
    operators: tuple[MeasuredOperator, ...]
    graph: OpGraph | None = brief(None)
    cluster: Cluster | None = brief(None)
    graphs: tuple[OpGraph, ...] = brief(())
    clusters: tuple[Cluster, ...] = brief(())
    runs: tuple[NumberedRun, ...] = brief(())


@dataclass(frozen=True)
class Profile(Checked, Document):
    """Measured times of operators, their kernels and copies, and where they came from.

    A cost model: ``profile(op, device)`` is the median time of the operator of that name, whatever
    the device that is asked about; times of another device are the business of a calibration.

    Parameters
    ----------
    operators
        Measured operators; a name appears once.
    device
        Device of the measurement, or None if it is not known (or was the CPU).
    provenance
        Where the times came from.
    runs
        Schedules that were run whole, to identify parameters of the device and times of operators in place.
    graph
        The profiled graph, as the backend ran it: with the kernels that it launched.
    cluster
        Its cluster as the backend describes it before anything is fitted, or None if there was no backend.

    Raises
    ------
    CostError
        If there is no operator, or a name appears twice.

    Examples
    --------
    >>> profile = Profile((MeasuredOperator("conv", (11.0, 10.0, 30.0)),))
    >>> profile(Operator("conv", flops=1e9), device=None)
    11.0
    >>> profile.apply(OpGraph([Operator("conv")]))["conv"].time
    11.0
    """

    SUBJECT = "profile"
    ERROR = CostError
    FORMAT = "simsched.profile"
    FILE = _ProfileFile
    operators: tuple[MeasuredOperator, ...]
    device: MeasuredDevice | None = None
    provenance: Provenance = Provenance()
    runs: tuple[Replay, ...] = ()
    graph: OpGraph | None = None
    cluster: Cluster | None = None

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        if not self.operators:
            raise CostError("a profile needs at least one operator")
        name = twice(op.name for op in self.operators)
        if name is not None:
            raise CostError(f"operator {name!r} stands twice in the profile")

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Position of each operator by its name."""
        return {op.name: i for i, op in enumerate(self.operators)}

    def __repr__(self) -> str:
        return f"Profile({len(self)} operators{self._origin})"

    def __len__(self) -> int:
        return len(self.operators)

    def __contains__(self, name: object) -> bool:
        return name in self.index

    def __getitem__(self, name: str) -> MeasuredOperator:
        """Return the measurements of an operator."""
        if name not in self.index:
            some = ", ".join(repr(op.name) for op in self.operators[:3])
            if len(self) > 3:
                some += f" and {len(self) - 3} more"
            raise CostError(
                f"operator {name!r} was not measured: the profile{self._origin} has {some}; profile the graph "
                f"under its own names"
            )
        return self.operators[self.index[name]]

    def __call__(self, op: Operator, device: Device | None) -> float:  # noqa: ARG002 - as cost models are called
        """Return the median time of the operator of that name in us, on whatever device.

        Raises
        ------
        CostError
            If the operator was not measured.
        """
        return self[op.name].median

    def apply(self, graph: OpGraph, *, partial: bool = False) -> OpGraph:
        """Return the graph with measured times and kernels instead of its own.

        Parameters
        ----------
        graph
            Graph whose operators are looked up by name; other measured operators are ignored.
        partial
            Whether operators that were not measured stay unchanged; otherwise they are an error.

        Raises
        ------
        CostError
            If an operator was not measured and `partial` is false.

        Notes
        -----
        `time` is the median of the operator's samples. Kernels replace the graph's where the launch of each is known; a
        kernel's share is its part of the sum of the medians of its operator's kernels.
        """
        operators = []
        for op in graph.operators:
            if not partial or op.name in self:
                measured = self[op.name]
                op = replace(op, time=measured.median, kernels=_with_shares(measured.kernels) or op.kernels)
            operators.append(op)
        return OpGraph(operators, graph.edges, graph.name)

    def joined(self, other: "Profile") -> "Profile":
        """Return the union of two profiles: the operators and runs of this one, then the other's.

        The graph is the first one that exists; so are device, cluster and provenance.

        Raises
        ------
        CostError
            If an operator was measured in both, or they were measured on different devices.
        """
        if self.device is not None and other.device is not None and self.device.name != other.device.name:
            raise CostError(
                f"profiles of two devices cannot be joined: {self.device.name!r}{self._origin} and "
                f"{other.device.name!r}{other._origin}"
            )
        first = {name: getattr(self, name) or getattr(other, name) for name in ("device", "graph", "cluster")}
        both = {name: getattr(self, name) + getattr(other, name) for name in ("operators", "runs")}
        return replace(self, **first, **both)

    @property
    def _origin(self) -> str:
        if self.provenance.source:
            return f" from {self.provenance.source}"
        return ""

    def to_file(self) -> _ProfileFile:
        """Return the data of its file: graphs and clusters, which most runs share, are written once each."""
        graphs = {id(run.program.graph): run.program.graph for run in self.runs}
        clusters = {id(run.cluster): run.cluster for run in self.runs}
        place = {key: i for parts in (graphs, clusters) for i, key in enumerate(parts)}
        runs = tuple(NumberedRun.of(run, place[id(run.program.graph)], place[id(run.cluster)]) for run in self.runs)
        return _ProfileFile(
            provenance=self.provenance,
            device=self.device,
            operators=self.operators,
            graph=self.graph,
            cluster=self.cluster,
            graphs=tuple(graphs.values()),
            clusters=tuple(clusters.values()),
            runs=runs,
        )

    @classmethod
    def from_file(
        cls,
        graphs: Sequence[OpGraph] = (),
        clusters: Sequence[Cluster] = (),
        runs: Sequence[NumberedRun] = (),
        **own: Any,
    ) -> "Profile":
        """Make a profile from the data of its file."""
        return cls(**own, runs=tuple(run.to_replay(i, graphs, clusters) for i, run in enumerate(runs)))


def _with_shares(kernels: tuple[MeasuredKernel, ...]) -> tuple[Kernel, ...]:
    """Return the launches with their shares of the time, or nothing if one is not known."""
    medians = [kernel.median for kernel in kernels]
    launches = [kernel.launch for kernel in kernels if kernel.launch]
    longest = max(medians, default=0.0) or 1.0
    parts = [max(median / longest, _SMALLEST_SHARE) for median in medians]  # of the longest: no sum overflows
    total = fsum(parts)
    if len(launches) < len(kernels):
        return ()
    return tuple(replace(launch, share=part / total) for launch, part in zip(launches, parts, strict=True))
