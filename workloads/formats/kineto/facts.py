"""Facts about a traced step that come before any alternative: measured time, replay error, limiting resources."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from simsched.model.trace.timeline import union_length
from workloads.formats.kineto.rates import count_of
from workloads.formats.kineto.replay import replay_traced
from workloads.formats.kineto.traced import TracedProgram

DOUBTED: Final = 0.05
"""Replay error, as a part of the measured time, above which conclusions from the replay are not to be believed."""
_SAID: Final = 0.001
"""Part of the step below which a bound is not named."""


@dataclass(frozen=True)
class TraceFacts:
    """Facts about a traced step.

    Parameters
    ----------
    deployment
        Operators, streams, devices, and launches of captured graphs.
    measured_us, simulated_us
        The step as measured, and as replayed.
    exposed_us
        How long collectives ran with no other kernel beside them on their device, over all devices.
    host_share
        The part of the replayed step that would go if the host took no time.
    bound_by
        Parts of the replay's critical path by their cause, the largest first.
    lines
        Gaps and faults of the trace, a line each.
    fastest_us
        The makespan of the fastest alternative that is shown with the facts; None if none is.
    """

    deployment: str
    measured_us: float
    simulated_us: float
    exposed_us: float
    host_share: float
    bound_by: tuple[tuple[str, float], ...]
    lines: tuple[str, ...]
    fastest_us: float | None = None

    @property
    def error(self) -> float:
        """The relative difference of the replay to the measured time."""
        return self.simulated_us / self.measured_us - 1

    @property
    def doubt(self) -> str | None:
        """A warning about the conclusions, if the replay does not fit."""
        if abs(self.error) <= DOUBTED:
            return None
        return f"the replay is {100 * abs(self.error):.0f} % off: do not believe what follows from it"

    def rows(self) -> list[tuple[str, str]]:
        """Return the facts by name."""
        rows = [
            ("ran", self.deployment),
            ("measured", f"{self.measured_us:.1f} us"),
            ("replay", f"{self.simulated_us:.1f} us, {100 * self.error:+.2f} %"),
            ("exposed collectives", f"{self.exposed_us:.1f} us"),
            ("host bound", f"{100 * self.host_share:.1f} % of the step would go if the host took no time"),
            ("bound by", ", ".join(f"{name} {100 * part:.1f} %" for name, part in self.bound_by) or "-"),
        ]
        if self.fastest_us is not None:
            rows.append(
                (
                    "fastest below",
                    f"{self.fastest_us:.1f} us, {self.measured_us / self.fastest_us:.2f} times as fast as what ran",
                )
            )
        if self.doubt is not None:
            rows.append(("doubt", self.doubt))
        return rows + [(name, text) for name, _, text in (line.partition(": ") for line in self.lines)]

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as JSON values."""
        return {
            "deployment": self.deployment,
            "measured_us": self.measured_us,
            "simulated_us": self.simulated_us,
            "error": self.error,
            "exposed_us": self.exposed_us,
            "host_share": self.host_share,
            "bound_by": dict(self.bound_by),
            "doubt": self.doubt,
            "lines": list(self.lines),
            "fastest_us": self.fastest_us,
        }


def facts_of(program: TracedProgram, fastest_us: float | None = None) -> TraceFacts:
    """Return the facts about a traced step, beside the makespan of an alternative in us; it takes two replays."""
    replay = replay_traced(program)
    quick = replay_traced(program, host="none")
    shares = replay.simulated.critical_path().shares
    bound_by = sorted(((name, part) for name, part in shares.items() if part > _SAID), key=lambda row: -row[1])
    return TraceFacts(
        deployment=_deployment(program),
        measured_us=replay.measured_us,
        simulated_us=replay.simulated_us,
        exposed_us=exposed_time(program),
        host_share=max(0.0, 1 - quick.simulated_us / replay.simulated_us),
        bound_by=tuple(bound_by),
        lines=tuple(program.lines()),
        fastest_us=fastest_us,
    )


def _deployment(program: TracedProgram) -> str:
    of = program.of_trace
    places = {(op.attributes["device"], op.attributes["stream"]) for op in program.graph.operators[: of.n_own]}
    parts = [
        f"{of.n_own} operators on {count_of(len(places), 'stream')}",
        f"{count_of(len({device for device, _ in places}), 'device')} ({program.cluster.devices[0].model})",
    ]
    if of.n_graphs:
        parts.append(f"captured graphs launched {count_of(of.n_graphs, 'time')}")
    return ", ".join(parts)


def exposed_time(program: TracedProgram) -> float:
    """Return for how many us collectives ran as measured, with no other kernel beside them on their device."""
    operators = program.graph.operators
    n = program.of_trace.n_own
    kinds = np.array([op.kind for op in operators[:n]])
    devices = np.array([op.attributes["device"] for op in operators[:n]])
    times = np.maximum(0.0, program.times[:n])
    total = 0.0
    for device in np.unique(devices).tolist():
        kernels = times[(devices == device) & ((kinds == "collective") | (kinds == "kernel"))]
        others = times[(devices == device) & (kinds == "kernel")]
        if (kinds[devices == device] == "collective").any():
            total += union_length(*kernels.T) - (union_length(*others.T) if len(others) else 0.0)
    return total
