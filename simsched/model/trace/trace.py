"""`Trace`: what ran when, simulated or measured, and what follows from it."""

import os
from typing import Any

from simsched.base.shown import VIEWS, as_html, frame_of
from simsched.model.trace import blame, memory, metrics
from simsched.model.trace.timeline import Span, Timeline


class Trace(Timeline):
    """Spans of one run of a program, by columns.

    Parameters
    ----------
    program, cluster
        What ran, and on what.
    rows
        Spans as (kind, item, op, device, stream, start, end, ready, solo, cause): codes of `KINDS`;
        row of the launches or copies, or the instruction, -1 for the wait of a stream; operator
        index or -1; device index; stream or -1 for the host; times in us; time it would have taken
        alone; and the row that had to end before it could be ready, or -1 (see `critical_path`).
    loads
        One `Load` per device.

    Notes
    -----
    Spans are sorted by start, end, kind, device, stream and item; times within 1e-9 relative are
    equal. Waits and host spans of no length are left out. Columns are arrays of shape (n_spans,)
    under the names above. Those of a simulated trace, and its loads, are made when something other
    than the makespan is asked for: that simulates once more.
    """

    def sm_utilization(self, device: str | None = None) -> float:
        """Return the mean over the makespan of the issue slots in use, in [0, 1]; None: over all devices."""
        return metrics.mean_share(self, "sm", device, 1.0)

    def sm_efficiency(self, device: str | None = None) -> float:
        """Return the mean share of SMs with at least one resident block over the makespan, in [0, 1]."""
        return metrics.mean_share(self, "active_sms", device, None)

    active_warps, achieved_occupancy = metrics.active_warps, metrics.achieved_occupancy
    peak_memory, memory_warnings = memory.peak_memory, memory.memory_warnings
    critical_path = blame.critical_path
    _repr_html_ = as_html

    def to_pandas(self) -> Any:
        """Return the spans as a pandas DataFrame, a row each; without pandas MissingDependencyError is raised."""
        return frame_of(self.spans, Span)

    def to_perfetto(self, path: str | os.PathLike[str] | None = None) -> dict[str, Any]:
        """Return the trace as Chrome JSON for ui.perfetto.dev, and write it if a path is given."""
        document: dict[str, Any] = VIEWS["perfetto"](self, path)
        return document

    def gantt(self, path: str | os.PathLike[str] | None = None, *, measured: "Trace | None" = None) -> Any:
        """Draw the trace, above a measured one, and return matplotlib axes; with a path, write it (PNG, SVG, PDF)."""
        return VIEWS["gantt"](self, path, measured=measured)
