"""`Replay`: measured runs of one program."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from simsched.base.errors import FormatError
from simsched.base.io import Record, document, dump_json, naming, read_json, write_file
from simsched.base.numeric import is_number
from simsched.model.cluster import Cluster
from simsched.model.profile.measured import Summary, checked_times, quantile, require_text
from simsched.model.program import Program
from simsched.model.trace import COPY, KERNEL, Trace, measured_trace

FORMAT, VERSION = "simsched.replay", 1
_PICOSECONDS: Final = 6  # digits after the point that a time in us is written with


@dataclass(frozen=True)
class Replay:
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

    latency: tuple[float, ...]
    trace: Trace
    environment: Mapping[str, str] = field(default_factory=dict)
    max_relative_error: float | None = None
    name: str = "replay"

    def __post_init__(self) -> None:
        require_text(self.name, "a replay's name")
        object.__setattr__(self, "latency", checked_times(self.latency, f"replay {self.name!r}"))
        object.__setattr__(self, "environment", MappingProxyType(dict(self.environment)))

    def __reduce__(self) -> tuple[Any, ...]:
        return Replay, (self.latency, self.trace, dict(self.environment), self.max_relative_error, self.name)

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

    def to_dict(self) -> dict[str, Any]:
        """Return the replay as a JSON document, format ``simsched.replay`` version 1."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "cluster": self.cluster.to_dict(),
            **run_to_dict(self),
            "program": self.program.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Any, source: str = "replay") -> "Replay":
        """Make a replay from a decoded ``simsched.replay`` document; `source` names it in errors."""
        top = document(data, FORMAT, VERSION, source)
        cluster = Cluster.from_dict(top.take("cluster", dict), f"{source}: cluster")
        program = Program.from_dict(top.take("program", dict), f"{source}: program")
        return read_run(top, program, cluster)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the replay to a JSON file, whole or not at all."""
        write_file(path, dump_json(self.to_dict(), indent=None))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Replay":
        """Read a replay from a JSON file."""
        return cls.from_dict(read_json(path), str(path))


def run_to_dict(replay: Replay) -> dict[str, Any]:
    """Return what a replay holds besides its program and cluster."""
    return {
        "name": replay.name,
        "latency": list(replay.latency),
        "launches": _times(replay.trace, KERNEL, len(replay.program.launch_op)),
        "copies": _times(replay.trace, COPY, len(replay.program.copies.op)),
        "max_relative_error": replay.max_relative_error,
        "environment": dict(replay.environment),
    }


def read_run(row: Record, program: Program, cluster: Cluster) -> Replay:
    """Make a replay from what `run_to_dict` returned."""
    environment = row.take("environment", dict, {})
    if not all(isinstance(text, str) for text in environment.values()):
        raise FormatError(f"{row.where}: field 'environment' must hold texts")
    error = row.take("max_relative_error", float, None)
    if error is not None and not (isfinite(error) and error >= 0):
        raise FormatError(f"{row.where}: field 'max_relative_error' must be finite and not negative, not {error!r}")
    launches, copies = (_read_times(row, key) for key in ("launches", "copies"))
    with naming(row.where):
        trace = measured_trace(program, cluster, launches, copies)
    return row.build(
        Replay,
        latency=tuple(row.take("latency", list)),
        trace=trace,
        environment=environment,
        max_relative_error=error,
        name=row.take("name", str, "replay"),
    )


def _times(trace: Trace, kind: int, count: int) -> list[list[float]]:
    """Return start and end of each launch or copy in us, to a picosecond."""
    found = np.zeros((count, 2))
    rows = np.flatnonzero(trace.kind == kind)
    found[trace.item[rows], 0] = trace.start[rows]
    found[trace.item[rows], 1] = trace.end[rows]
    times: list[list[float]] = found.round(_PICOSECONDS).tolist()
    return times


def _read_times(row: Record, key: str) -> list[list[float]]:
    times: list[list[float]] = row.take(key, list, [])
    for pair in times:
        if not (isinstance(pair, list) and len(pair) == 2 and all(map(is_number, pair))):
            raise FormatError(f"{row.where}: field {key!r} must hold pairs of start and end in us, not {pair!r:.40}")
    return times
