"""What `simulate` says about a run: all of it, or what is known without the spans."""

from collections.abc import Mapping
from typing import Any, Final

from simsched.base.units import format_bytes, format_time
from simsched.model.trace import Trace

LARGE: Final = 1_000_000
"""Instructions from which on spans, which take gigabytes then, are made only if somebody asks for them."""

Pairs = list[tuple[str, str]]


def full(trace: Trace) -> dict[str, Any]:
    """Return all that is said of a run as JSON values; makes the spans."""
    return {
        "graph": trace.graph.name,
        "cluster": trace.cluster.name,
        "makespan_us": trace.makespan,
        "blame_us": trace.critical_path().blame,
        "peak_memory_bytes": trace.peak_memory(),
        "sm_utilization": trace.sm_utilization(),
        "sm_efficiency": trace.sm_efficiency(),
        "achieved_occupancy": trace.achieved_occupancy(),
        "spans": len(trace),
        "warnings": trace.memory_warnings(),
    }


def full_text(trace: Trace) -> Pairs:
    """Return what `full` does as text."""
    path = trace.critical_path()
    shares = ", ".join(f"{name} {100 * share:.1f} %" for name, share in path.shares.items() if share > 0)
    peak = ", ".join(f"{name} {format_bytes(nbytes)}" for name, nbytes in trace.peak_memory().items())
    return [
        *_head(trace),
        ("critical path", f"{len(path.operators)} operators: {shares}"),
        ("SM utilization", f"{100 * trace.sm_utilization():.1f} %"),
        ("SM efficiency", f"{100 * trace.sm_efficiency():.1f} %"),
        ("occupancy", f"{100 * trace.achieved_occupancy():.1f} %"),
        ("peak memory", peak),
        ("spans", str(len(trace))),
        *(("warning", line) for line in trace.memory_warnings()),
    ]


def brief(trace: Trace, seconds: Mapping[str, float | None]) -> dict[str, Any]:
    """Return what is known without the spans as JSON values.

    Parameters
    ----------
    trace
        Its spans need not be made.
    seconds
        Wall time of each step in s; None for a step that was not needed.
    """
    return {
        "graph": trace.graph.name,
        "cluster": trace.cluster.name,
        "makespan_us": trace.makespan,
        "instructions": len(trace.program),
        **{f"{step}_s": wall for step, wall in seconds.items()},
    }


def brief_text(trace: Trace, seconds: Mapping[str, float | None], spans_made: bool) -> Pairs:
    """Return what `brief` does as text."""
    walls = ", ".join(f"{step} {wall:.3f} s" for step, wall in seconds.items() if wall is not None)
    left_out = [] if spans_made else [("spans", "not made; --full makes them, and says where the time goes")]
    return [*_head(trace), ("instructions", str(len(trace.program))), ("wall time", walls), *left_out]


def _head(trace: Trace) -> Pairs:
    return [
        ("graph", f"{trace.graph.name}: {len(trace.graph)} operators, {len(trace.graph.src)} edges"),
        ("cluster", trace.cluster.name),
        ("makespan", format_time(trace.makespan)),
    ]
