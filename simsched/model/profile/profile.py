"""`Profile`: measured times of operators, which serves as a cost model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import fsum
from typing import Any

from simsched.base.codec import Checked, Count, Document, Name, brief
from simsched.base.errors import CostError
from simsched.base.numeric import twice
from simsched.model.cluster import Cluster, Device
from simsched.model.graph import Kernel, Operator, OpGraph
from simsched.model.profile.device import MeasuredDevice
from simsched.model.profile.measured import MeasuredKernel, MeasuredOperator
from simsched.model.profile.replay import NumberedRun, Replay

# a kernel too short for its time to be seen still has a share, because a share is never 0
_SMALLEST_SHARE = 1e-12


@dataclass(frozen=True, slots=True)
class Provenance(Checked):
    """Where measured times came from.

    Parameters
    ----------
    source
        The file or the backend.
    profiler
        The tool and its version.
    cuda_runtime, cuda_driver
        Versions, as the profiler prints them.
    date
        Of the measurement, ISO 8601, UTC.
    iterations
        How many were measured and kept.
    discarded
        How many came before them and were left out.
    """

    SUBJECT, ERROR = "provenance", CostError
    source: Name | None = brief(None)
    profiler: Name | None = brief(None)
    cuda_runtime: Name | None = brief(None)
    cuda_driver: Name | None = brief(None)
    date: Name | None = brief(None)
    iterations: Count = 1
    discarded: Count = 0


@dataclass(frozen=True, kw_only=True)
class _File:
    """Measured times of operators, and of schedules that ran whole.

    Parameters
    ----------
    provenance
        Where the times came from.
    device
        What it ran on.
    operators
        What was measured; a name stands once.
    graph
        What was profiled, as the backend ran it.
    cluster
        What it ran on as the backend describes it.
    graphs, clusters
        Those of the runs, each once; runs name them by their place.
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
        What was measured; a name stands once.
    device
        What it ran on, or None if that is not known (or was the CPU).
    provenance
        Where the times came from.
    runs
        Schedules that were run whole, to identify parameters of the device and times of operators in place.
    graph
        What was profiled, as the backend ran it: with the kernels that it launched.
    cluster
        What it ran on as the backend describes it before anything is fitted, or None if there was no backend.

    Raises
    ------
    CostError
        If there is no operator, or a name stands twice.

    Examples
    --------
    >>> profile = Profile((MeasuredOperator("conv", (11.0, 10.0, 30.0)),))
    >>> profile(Operator("conv", flops=1e9), device=None)
    11.0
    >>> profile.apply(OpGraph([Operator("conv")]))["conv"].time
    11.0
    """

    SUBJECT, ERROR, FORMAT, FILE = "profile", CostError, "simsched.profile", _File
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
        """Return what was measured of an operator."""
        if name not in self.index:
            raise CostError(
                f"operator {name!r} was not measured: the profile{self._origin} has {self._some()}; profile the graph "
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
        """Return the graph with measured times and kernels in place of what it had.

        Parameters
        ----------
        graph
            Its operators are looked up by name; what else was measured does not matter.
        partial
            Whether operators that were not measured stay as they are; otherwise they are an error.

        Raises
        ------
        CostError
            If an operator was not measured and `partial` is false.

        Notes
        -----
        `time` is the median of the operator's samples. Kernels replace those of the graph where the launch of
        each is known; a kernel's share is its part of the sum of the medians of its operator's kernels.
        """
        operators = [op if partial and op.name not in self else self._measured(op) for op in graph.operators]
        return OpGraph(operators, graph.edges, graph.name)

    def _measured(self, op: Operator) -> Operator:
        found = self[op.name]
        return replace(op, time=found.median, kernels=_with_shares(found.kernels) or op.kernels)

    def joined(self, other: "Profile") -> "Profile":
        """Return what both hold: the operators and runs of this one, then those of the other.

        The graph is that of the first that has one; so are device, cluster and provenance.

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
        return replace(
            self,
            operators=(*self.operators, *other.operators),
            device=self.device or other.device,
            runs=(*self.runs, *other.runs),
            graph=self.graph or other.graph,
            cluster=self.cluster or other.cluster,
        )

    @property
    def _origin(self) -> str:
        return f" from {self.provenance.source}" if self.provenance.source else ""

    def _some(self) -> str:
        names = [op.name for op in self.operators[:3]]
        return ", ".join(map(repr, names)) + (f" and {len(self) - 3} more" if len(self) > 3 else "")

    def to_file(self) -> _File:
        """Return it as its file has it: graphs and clusters, which most runs share, stand there once each."""
        graphs = {id(run.program.graph): run.program.graph for run in self.runs}
        clusters = {id(run.cluster): run.cluster for run in self.runs}
        place = {key: i for parts in (graphs, clusters) for i, key in enumerate(parts)}
        runs = tuple(NumberedRun.of(run, place[id(run.program.graph)], place[id(run.cluster)]) for run in self.runs)
        return _File(
            provenance=self.provenance, device=self.device, operators=self.operators, graph=self.graph,
            cluster=self.cluster, graphs=tuple(graphs.values()), clusters=tuple(clusters.values()), runs=runs,
        )  # fmt: skip

    @classmethod
    def from_file(
        cls,
        graphs: Sequence[OpGraph] = (),
        clusters: Sequence[Cluster] = (),
        runs: Sequence[NumberedRun] = (),
        **own: Any,
    ) -> "Profile":
        """Make one of what its file has."""
        return cls(**own, runs=tuple(run.made(i, graphs, clusters) for i, run in enumerate(runs)))


def _with_shares(kernels: tuple[MeasuredKernel, ...]) -> tuple[Kernel, ...]:
    """Return the launches with their shares of the time, or nothing if one is not known."""
    medians = [kernel.median for kernel in kernels]
    longest = max(medians, default=0.0) or 1.0
    parts = [max(median / longest, _SMALLEST_SHARE) for median in medians]  # of the longest: no sum overflows
    total = fsum(parts)
    found = []
    for kernel, part in zip(kernels, parts, strict=True):
        if kernel.launch is None:
            return ()
        found.append(replace(kernel.launch, share=part / total))
    return tuple(found)
