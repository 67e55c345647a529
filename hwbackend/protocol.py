"""What a hardware backend is: anything that replays a program and returns a trace.

The simulator and every backend execute the same `Program` and return the same `Trace`; a backend
is any object that fits `Backend`, it need not inherit from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from simsched.program import Program
from simsched.trace import Trace


@dataclass(frozen=True, slots=True)
class Replay:
    """Measured runs of one program.

    Parameters
    ----------
    latency
        us of each repeat, in the order in which they ran.
    trace
        Measured spans of one of them.
    environment
        What it ran on and with: device, driver, library versions, clocks, date, commit.
    """

    latency: tuple[float, ...]
    trace: Trace
    environment: Mapping[str, str]


class Backend(Protocol):
    """Something that can run programs on real (or surrogate) devices."""

    name: str

    def replay(self, program: Program, *, repeats: int, warmup: int) -> Replay:
        """Run a program `warmup` times unmeasured, then `repeats` times measured."""
        ...
