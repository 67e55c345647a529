"""`TracedProgram`: the program of a trace, with what was measured."""

from functools import cached_property

import numpy as np

from simsched.model import Cluster, Floats, Program
from simsched.model.trace import Trace, measured_trace


class TracedProgram(Program):
    """The program of a trace, with what was measured.

    Attributes
    ----------
    cluster
        The devices that ran it: what the trace says of them, `launch`, `launch_latency` and `gap` as measured there,
        and contention off, since the times of operators were measured in place.
    times
        Measured start and end of each operator in us from the beginning of the step, shape (n_ops, 2).
    step
        Its number; None if the trace has none, or all of it is read.
    n_waits, guessed_waits
        Waits of streams for others, and how many of them are resolved by the rule instead of by event ids.
    n_lost
        Operators whose call is not in the trace.
    """

    cluster: Cluster
    times: Floats
    step: int | None
    n_waits: int
    guessed_waits: int
    n_lost: int

    @cached_property
    def measured(self) -> Trace:
        """What ran when, in us from the beginning of the step."""
        return measured_trace(self, self.cluster, np.maximum(0.0, self.times))

    @property
    def measured_makespan(self) -> float:
        """When the last operator ended, in us from the beginning of the step."""
        return float(self.times[:, 1].max())
