"""What a notebook shows of each kind of object."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from simsched.base.units import format_bytes, format_time
from simsched.model.cluster import Cluster
from simsched.model.graph import OpGraph
from simsched.model.schedule import Schedule
from simsched.model.trace import Trace
from simsched.model.trace.timeline import HOST
from simsched.show.drawing import to_svg
from simsched.show.notebook.chart import chart
from simsched.show.notebook.parts import facts, grid, of_table
from simsched.show.report.describe import cluster_facts
from simsched.simulator import Makespans

_DRAWN: Final = 60  # operators, and four times as many edges, of which a drawing is read at a glance
_BARS: Final = 1_500  # of a chart: some 300 kB
_EXPLAINED: Final = (
    100_000  # instructions whose spans, and what their time went to, are found in some tenths of a second
)
_WIDE: Final = 2_000  # operators up to which the width is found at once
_LISTED: Final = 24  # streams, kinds
_SEEN: Final = 5e-4  # of the makespan: less is 0.0 %
_NAMED: Final = 6  # operators of a stream


def html(shown: Any) -> str:
    """Return a graph, a cluster, a schedule, a trace, sampled makespans, or what has a `table`, as HTML.

    Everything that was given, names above all, is escaped. Pictures of graphs have paper of their own; all else takes
    the colours of the page, dark or light.
    """
    if isinstance(shown, OpGraph):
        return _within(_graph(shown))
    if isinstance(shown, Cluster):
        return _within([facts(f"Cluster {shown.name}", cluster_facts(shown)[1:])])
    if isinstance(shown, Makespans):
        return _within([facts(f"{len(shown)} makespans", _spread(shown))])
    if isinstance(shown, Schedule):
        return _within(_schedule(shown))
    if isinstance(shown, Trace):
        return _within(_trace(shown))
    return _within([of_table(shown.table())])


def _within(parts: Iterable[str]) -> str:
    return f'<div style="max-width:100%;overflow-x:auto">{"".join(parts)}</div>'


def _spread(drawn: Makespans) -> Iterable[tuple[str, str]]:
    return ((name, format_time(getattr(drawn, name))) for name in ("p50", "p95", "p99", "mean", "std"))


def _graph(graph: OpGraph) -> Iterable[str]:
    codes, kinds = graph.labels("kind")
    counts = Counter(dict(enumerate(np.bincount(codes, minlength=len(kinds)).tolist()))).most_common()
    listed = ", ".join(f"{n} {kinds[code]}" for code, n in counts[:_LISTED] if n)
    pairs = [
        ("operators", f"{len(graph)}: {listed}{', ...' if len(counts) > _LISTED else ''}"),
        ("edges", str(len(graph.src))),
        ("depth", str(graph.depth)),
    ]
    if len(graph) <= _WIDE:
        pairs.append(("width", str(graph.width)))
    known = int((~np.isnan(graph.time)).sum())
    if known:
        of = "" if known == len(graph) else f" of the {known} operators with a time"
        pairs.append(("work", f"{format_time(float(np.nansum(graph.time)))}{of}"))
    pairs += [
        ("FLOP", f"{graph.flops.sum() / 1e9:.3f} G"),
        ("DRAM traffic", format_bytes(float(graph.nbytes.sum()))),
        ("weights", format_bytes(float(graph.weight_nbytes.sum()))),
    ]
    yield facts(f"OpGraph {graph.name}", pairs)
    yield _drawing(graph, graph)


def _drawing(shown: OpGraph | Schedule, graph: OpGraph) -> str:
    if len(graph) > _DRAWN or len(graph.src) > 4 * _DRAWN:
        return ""
    return f'<div tabindex="0" style="max-height:640px;overflow:auto">{to_svg(shown)}</div>'


def _schedule(plan: Schedule) -> Iterable[str]:
    graph = plan.graph
    pairs = [
        ("scheduler", plan.scheduler),
        ("graph", f"{graph.name}: {len(graph)} operators, {len(graph.src)} edges"),
        ("execution", plan.execution),
        ("devices", ", ".join(plan.devices_used[:_LISTED]) + (", ..." if len(plan.devices_used) > _LISTED else "")),
        ("streams", str(plan.n_streams)),
    ]
    if plan.estimate is not None:
        pairs.append(("estimate", format_time(plan.estimate)))
    yield facts("Schedule", pairs)
    yield _placements(plan)
    yield _drawing(plan, graph)


def _placements(plan: Schedule) -> str:
    """Return a row per stream: how many operators it has, and the first of them."""
    order = np.lexsort([plan.stream, plan.device])  # stable: launch order within a stream
    stream, device = plan.stream[order], plan.device[order]
    starts = np.flatnonzero(np.r_[True, (np.diff(stream) != 0) | (np.diff(device) != 0)])
    ends = [*starts[1:].tolist(), len(order)]
    rows = []
    for start, end in list(zip(starts.tolist(), ends, strict=True))[:_LISTED]:
        names = [plan.graph.names[i] for i in plan.op[order[start : min(end, start + _NAMED)]]]
        more = ", ..." if end - start > _NAMED else ""
        rows.append((plan.devices[device[start]], str(stream[start]), str(end - start), ", ".join(names) + more))
    left_out = len(starts) - len(rows)
    if left_out:
        rows.append(("...", f"{left_out} more", str(len(plan) - ends[len(rows) - 1]), ""))
    return grid(("device", "stream", "operators", "in launch order"), rows, numbers=(1, 2))


def _trace(trace: Trace) -> Iterable[str]:
    pairs = [
        ("graph", f"{trace.graph.name}: {len(trace.graph)} operators, {len(trace.graph.src)} edges"),
        ("cluster", trace.cluster.name),
        ("makespan", format_time(trace.makespan)),
    ]
    title = f"Trace of {trace.graph.name}"
    if len(trace.program) > _EXPLAINED:  # its spans may not be made yet, and take a simulation
        yield facts(title, [*pairs, ("instructions", str(len(trace.program)))])
        return
    path, peaks = trace.critical_path(), list(trace.peak_memory().items())[:_LISTED]
    pairs += [
        ("critical path", f"{len(path.operators)} operators"),
        *(
            (name, f"{format_time(us)}, {100 * path.shares[name]:.1f} %")
            for name, us in path.blame.items()
            if path.shares[name] >= _SEEN
        ),
        ("SM utilization", f"{100 * trace.sm_utilization():.1f} %"),
        ("peak memory", ", ".join(f"{name} {format_bytes(size)}" for name, size in peaks)),
        ("spans", str(len(trace))),
        *(("warning", line) for line in trace.memory_warnings()[:_LISTED]),
    ]
    yield facts(title, pairs)
    if trace.makespan and (trace.kind != HOST).sum() <= _BARS:
        yield chart(trace)
