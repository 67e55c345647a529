"""How a file holds a calibration: its runs by columns, without the graph that they share."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np

from simsched.base.codec import brief
from simsched.base.errors import CalibrationError
from simsched.base.kinds import Among, Amount, Count, Gaps
from simsched.calibration.evidence import MeasuredRun, Residual
from simsched.calibration.parameters import ParameterRow
from simsched.model import EXECUTIONS, Cluster, Floats, Ints, OpGraph, Program
from simsched.model.profile.measured import Times
from simsched.model.program import Copies

_COLUMNS = ("thread_ptr", "action", "device", "stream", "argument", "priority")


@dataclass(frozen=True, kw_only=True)
class CopiesFile:
    """The copies of a program, by columns.

    Parameters
    ----------
    op, device
        Operators whose outputs are copied, and where to, by their places.
    nbytes, transfer
        Sizes in bytes, and exact times in us or null.
    times
        Start and end in us of each: two numbers for each.
    """

    op: Ints
    device: Ints
    nbytes: Floats
    transfer: Annotated[Floats, Gaps()]
    times: Floats


@dataclass(frozen=True, kw_only=True)
class RunFile:
    """Measured runs of one program, by columns.

    Parameters
    ----------
    name
        That of the replay.
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
        Of each instruction: 0 launch, 1 record, 2 wait, 3 copy, 4 barrier, 5 sync.
    device, stream, argument
        Of each instruction, by their places; -1 where there is none.
    priority
        Of the stream of each operator.
    lead, own
        Host time in us before each instruction, and of its own or null.
    copies
        The copies.
    """

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
    copies: CopiesFile

    @classmethod
    def of(cls, run: MeasuredRun) -> "RunFile":
        """Return a run."""
        program, copies = run.program, run.program.copies
        return cls(
            name=run.name, latency=run.latency, launches=run.launches.ravel(), execution=program.execution,
            n_events=program.n_events, lead=program.lead, own=program.own,
            copies=CopiesFile(
                op=copies.op.astype(np.int64), device=copies.device.astype(np.int64), nbytes=copies.nbytes,
                transfer=copies.transfer, times=run.copies.ravel(),
            ),
            **{name: np.asarray(getattr(program, name)) for name in _COLUMNS},
        )  # fmt: skip

    def made(self, graph: OpGraph, cluster: Cluster) -> MeasuredRun:
        """Return the run of a graph on a cluster."""
        copies = self.copies
        op, device = copies.op.astype(np.int32), copies.device.astype(np.int32)
        columns: dict[str, Any] = {name: getattr(self, name) for name in _COLUMNS}
        try:
            program = Program(
                graph, [device.name for device in cluster.devices], self.execution, **columns, n_events=self.n_events,
                copies=Copies(op, device, copies.nbytes, copies.transfer), lead=self.lead, own=self.own,
            ).check()  # fmt: skip
        except ValueError as error:
            raise CalibrationError(f"run {self.name!r}: {error}") from None
        for name, times, count in (("launches", self.launches, len(program.launch_op)),
                                   ("copies", copies.times, len(program.copies.op))):  # fmt: skip
            if times.shape != (2 * count,):
                raise CalibrationError(f"run {self.name!r}: {name} must hold start and end of {count} spans in us")
        return MeasuredRun(self.name, program, self.latency, self.launches.reshape(-1, 2), copies.times.reshape(-1, 2))


@dataclass(frozen=True, kw_only=True)
class CalibrationFile:
    """A cluster whose parameters and operator times were fitted to measurements.

    Parameters
    ----------
    provenance
        Device, backend, dates, versions, number of runs.
    cluster, prior
        With fitted parameters, and before.
    graph
        The graph that was measured, as the backend ran it.
    times
        us of each measured operator alone, in place, by name.
    scales
        By kind of operator the median of measured over roofline time.
    parameters, microbenchmarked
        What became of each parameter, and by microbenchmarks alone.
    residuals
        Every run, measured and predicted.
    runs, held_out
        The runs in place, and which of them no fit has seen.
    """

    provenance: Mapping[str, str] = field(default_factory=dict)
    cluster: Cluster
    prior: Cluster
    graph: OpGraph | None = None
    times: Mapping[str, Amount]
    scales: Mapping[str, Amount]
    parameters: tuple[ParameterRow, ...]
    microbenchmarked: tuple[ParameterRow, ...] = ()
    residuals: tuple[Residual, ...] = ()
    runs: tuple[RunFile, ...] = ()
    held_out: tuple[bool, ...] = ()
