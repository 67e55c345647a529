"""What calibrations keep of runs: columns, without the graph that the runs share."""

from dataclasses import dataclass
from typing import Annotated, Any, Final

from simsched.base.codec import Among, Checked, Count, Gaps, brief
from simsched.base.errors import CalibrationError
from simsched.calibration.evidence import MeasuredRun
from simsched.model import EXECUTIONS, Cluster, Floats, Ints, OpGraph, Program
from simsched.model.profile.measured import Times
from simsched.model.program import Copies

_OF_PROGRAM: Final = (
    "execution", "n_events", "thread_ptr", "action", "device", "stream", "argument", "priority", "lead", "own",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class CopyColumns(Checked):
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

    SUBJECT, ERROR = "copies of a run", CalibrationError
    op: Ints
    device: Ints
    nbytes: Floats
    transfer: Annotated[Floats, Gaps()]
    times: Floats


@dataclass(frozen=True, kw_only=True)
class RunColumns(Checked):
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

    SUBJECT, ERROR = "run {0.name!r}", CalibrationError
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

    @classmethod
    def of(cls, run: MeasuredRun) -> "RunColumns":
        """Return a run."""
        return cls(
            name=run.name, latency=run.latency, launches=run.launches.ravel(),
            copies=CopyColumns(**run.program.copies._asdict(), times=run.copies.ravel()),
            **{name: getattr(run.program, name) for name in _OF_PROGRAM},
        )  # fmt: skip

    def made(self, graph: OpGraph, cluster: Cluster) -> MeasuredRun:
        """Return the run of a graph on a cluster."""
        told: dict[str, Any] = {name: getattr(self, name) for name in _OF_PROGRAM}
        copies = Copies(*(getattr(self.copies, name) for name in Copies._fields))
        try:
            program = Program(graph, [device.name for device in cluster.devices], copies=copies, **told).check()
        except ValueError as error:
            raise CalibrationError(f"run {self.name!r}: {error}") from None
        for name, times, count in (("launches", self.launches, len(program.launch_op)),
                                   ("copies", self.copies.times, len(program.copies.op))):  # fmt: skip
            if times.shape != (2 * count,):
                raise CalibrationError(f"run {self.name!r}: {name} must hold start and end of {count} spans in us")
        launches, copied = self.launches.reshape(-1, 2), self.copies.times.reshape(-1, 2)
        return MeasuredRun(self.name, program, self.latency, launches, copied)
