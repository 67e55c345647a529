"""`Replay`: measured runs of one program."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from simsched.base.codec import Amount, Checked, Count, Document, Name
from simsched.base.errors import CostError, FormatError
from simsched.base.io import naming
from simsched.model.cluster import Cluster
from simsched.model.graph import OpGraph
from simsched.model.profile.measured import Times, quantile
from simsched.model.program import Issued, Program
from simsched.model.trace import COPY, KERNEL, Trace, measured_trace

_PICOSECONDS: Final = 6  # digits after the point that a time in us is written with


@dataclass(frozen=True, slots=True)
class Summary:
    """Samples in a nutshell: how many, and their 10th, 50th and 90th percentile in us."""

    n: int
    median: float
    p10: float
    p90: float


@dataclass(frozen=True, kw_only=True)
class _Run(Checked):
    """Measured runs of a program.

    Parameters
    ----------
    name
        What was run.
    latency
        us of each repeat, in the order in which they ran.
    launches, copies
        Start and end in us of each, time 0 being when the host began.
    max_relative_error
        Largest difference of an output from that of sequential execution, over its largest value.
    environment
        What it ran on and with: backend, device, driver, versions, date, commit.
    """

    SUBJECT, ERROR = "run {0.name!r}", CostError
    name: Name = "replay"
    latency: Times
    launches: tuple[tuple[Amount, Amount], ...] = ()
    copies: tuple[tuple[Amount, Amount], ...] = ()
    max_relative_error: Amount | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _File(_Run):
    """Measured runs of one program.

    Parameters
    ----------
    cluster
        What it ran on, as the backend describes it.
    program
        What ran.
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
        What it ran on and with: backend, device, driver, library versions, clocks, date, commit.
    max_relative_error
        Largest difference of an output from that of sequential execution, over the largest value of that output;
        None if outputs were not compared.
    name
        What was run: the scheduler, or for runs made to identify parameters a path such as ``"pair/compute-memory"``.

    Raises
    ------
    CostError
        If a latency is no finite time, or there is none.
    """

    SUBJECT, ERROR, FORMAT, INDENT = "replay {0.name!r}", CostError, "simsched.replay", None
    FILE = _File
    latency: Times
    trace: Trace
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    max_relative_error: Amount | None = None
    name: Name = "replay"

    def __repr__(self) -> str:
        return f"Replay({self.name!r}, {len(self.latency)} repeats, median {self.median:.6g} us)"

    @property
    def program(self) -> Program:
        """What ran."""
        return self.trace.program

    @property
    def cluster(self) -> Cluster:
        """What it ran on, as the backend describes it."""
        return self.trace.cluster

    @property
    def median(self) -> float:
        """Median of the latencies in us."""
        return quantile(self.latency, 0.5)

    @property
    def summary(self) -> Summary:
        """Number, median, 10th and 90th percentile of the latencies in us."""
        return Summary(len(self.latency), self.median, quantile(self.latency, 0.1), quantile(self.latency, 0.9))

    def to_file(self) -> _File:
        """Return it as its file has it."""
        return _File(cluster=self.cluster, program=self.program, **_measured(self))

    @classmethod
    def from_file(
        cls, program: Program, cluster: Cluster, launches: Any = (), copies: Any = (), **own: Any
    ) -> "Replay":
        """Make one of what its file has."""
        return cls(trace=measured_trace(program, cluster, launches, copies), **own)


@dataclass(frozen=True, kw_only=True)
class NumberedRun(_Run):
    """Measured runs of a program among others.

    Parameters
    ----------
    graph, cluster
        Places in the lists of graphs and clusters.
    program
        What ran, without its graph.
    """

    graph: Count
    cluster: Count
    program: Issued

    @classmethod
    def of(cls, replay: Replay, graph: int, cluster: int) -> "NumberedRun":
        """Return a replay, given the places of its graph and cluster."""
        return cls(graph=graph, cluster=cluster, program=Issued.of(replay.program), **_measured(replay))

    def made(self, place: int, graphs: Sequence[OpGraph], clusters: Sequence[Cluster]) -> Replay:
        """Return the replay; runs of one graph share it."""
        for number, parts, what in ((self.graph, graphs, "graph"), (self.cluster, clusters, "cluster")):
            if number >= len(parts):
                raise FormatError(f"runs[{place}]: there is no {what} {number}; the file has {len(parts)}")
        cluster = clusters[self.cluster]
        with naming(f"runs[{place}]"):
            program = self.program.made(graphs[self.graph])
            trace = measured_trace(program, cluster, self.launches, self.copies)
        return Replay(self.latency, trace, self.environment, self.max_relative_error, self.name)


def _measured(replay: Replay) -> dict[str, Any]:
    """Return what a replay holds besides its program and cluster; times to a picosecond."""
    return {
        "name": replay.name, "latency": replay.latency, "max_relative_error": replay.max_relative_error,
        "environment": replay.environment,
        "launches": _times(replay.trace, KERNEL, len(replay.program.launch_op)),
        "copies": _times(replay.trace, COPY, len(replay.program.copies.op)),
    }  # fmt: skip


def _times(trace: Trace, kind: int, count: int) -> list[list[float]]:
    """Return start and end of each launch or copy in us."""
    found = np.zeros((count, 2))
    rows = np.flatnonzero(trace.kind == kind)
    found[trace.item[rows], 0] = trace.start[rows]
    found[trace.item[rows], 1] = trace.end[rows]
    times: list[list[float]] = found.round(_PICOSECONDS).tolist()
    return times
