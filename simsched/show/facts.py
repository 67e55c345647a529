"""Facts about graphs, clusters, runs and measurements: on lines, in JSON, on pages and in notebooks."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from simsched.base.units import GB_PER_S, format_bytes, format_time
from simsched.experiments.unknown import bounded_by_bytes, operators_without_load
from simsched.model import Cluster, Device, OpGraph, operator_times
from simsched.model.cluster.device import OVERHEADS
from simsched.model.graph.opgraph import longest_to
from simsched.model.profile import Replay
from simsched.model.trace import Trace

# characters of a cell; devices whose memory is listed
_LONGEST = 200
_LISTED = 8


class Fact(NamedTuple):
    """A fact: in JSON if it has a key, on a line if it has a text."""

    key: str | None
    value: Any
    text: str | None = None
    label: str | None = None
    """By default the key without its unit."""


def texts(facts: Iterable[Fact]) -> list[tuple[str, str]]:
    """Return labels and texts of facts that have a text."""
    return [
        (fact.label or str(fact.key).removesuffix("_us").replace("_", " "), fact.text)
        for fact in facts
        if fact.text is not None
    ]


def short(rows: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return labels and texts, as much of them as a cell has room for."""
    return tuple((label, text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ...") for label, text in rows)


def graph_facts(graph: OpGraph, device: Device | None = None, widest: int | None = 100_000) -> list[Fact]:
    """Return facts about a graph, and about its times on a device.

    The width, which takes a while, is computed up to `widest` operators; None: never.
    """
    if len(graph) <= (widest or 0):
        width = graph.width
    else:
        width = None
    wide = Fact("width", width, "not computed for so many operators" if width is None else str(width))
    sizes = [len(block) for block in graph.blocks]
    idle = operators_without_load(graph)
    listed = f"{', '.join(map(str, sizes[:20]))}{', ...' if len(sizes) > 20 else ''}"
    flops, traffic, weights = (float(column.sum()) for column in (graph.flops, graph.nbytes, graph.weight_nbytes))
    timed = []
    if device is not None:
        times = operator_times(graph, device)
        work = float(times.sum())
        path = float(max(longest_to(graph, times)))
        bound = work / path if path else 1.0
        serial = f"one operator after the other on {device.model}"
        timed = [
            Fact("work_us", work, f"{format_time(work)} {serial}, without overheads", "work us"),
            Fact("critical_path_us", path, format_time(path), "critical path us"),
            Fact("parallelism_bound", bound, f"{bound:.2f}x: work over critical path"),
        ]
    return [
        Fact("name", graph.name, graph.name),
        Fact("operators", len(graph), str(len(graph))),
        Fact("edges", len(graph.src), str(len(graph.src))),
        *([] if widest is None else [wide]),
        Fact("depth", graph.depth, str(graph.depth)),
        Fact("blocks", sizes, f"{len(sizes)}: {listed}"),
        Fact("flops", flops, f"{flops / 1e9:.3f} G"),
        Fact("dram_traffic_bytes", traffic, format_bytes(traffic)),
        Fact("weights_bytes", weights, format_bytes(weights)),
        *timed,
        *_guesses(graph, device),
        Fact("operators_without_load", idle, f"{idle} (no kernels, no utilization)"),
    ]


def _guesses(graph: OpGraph, device: Device | None) -> list[Fact]:
    """Return a fact about operators of which only the bytes are known, none if there are none."""
    if device is None:
        guess = None
    else:
        guess = bounded_by_bytes(graph, device)
    if guess is None:
        return []
    return [Fact("unknown", guess, guess, "unknown kinds")]


def head_facts(trace: Trace) -> list[Fact]:
    """Return facts about a run that do not need its spans."""
    name = trace.graph.name
    return [
        Fact("graph", name, f"{name}: {len(trace.graph)} operators, {len(trace.graph.src)} edges"),
        Fact("cluster", trace.cluster.name, trace.cluster.name),
        Fact("makespan_us", trace.makespan, format_time(trace.makespan)),
    ]


def run_facts(trace: Trace) -> list[Fact]:
    """Return all facts about a run; computes the spans."""
    path = trace.critical_path()
    peaks = trace.peak_memory()
    warnings = trace.memory_warnings()
    shares = ", ".join(f"{name} {100 * share:.1f} %" for name, share in path.shares.items() if share > 0)
    busy = trace.sm_utilization()
    efficiency = trace.sm_efficiency()
    occupancy = trace.achieved_occupancy()
    peak = ", ".join(f"{name} {format_bytes(nbytes)}" for name, nbytes in peaks.items())
    if len(peaks) > _LISTED:
        most = max(peaks, key=lambda name: peaks[name])
        peak = f"{format_bytes(peaks[most])} on {most}, at most as much on the other {len(peaks) - 1} devices"
    return [
        *head_facts(trace),
        *_guesses(trace.graph, trace.cluster.devices[0]),
        Fact("blame_us", path.blame, f"{len(path.operators)} operators: {shares}", "critical path"),
        Fact("peak_memory_bytes", peaks),
        Fact("sm_utilization", busy, f"{100 * busy:.1f} %", "SM utilization"),
        Fact("sm_efficiency", efficiency, f"{100 * efficiency:.1f} %", "SM efficiency"),
        Fact("achieved_occupancy", occupancy, f"{100 * occupancy:.1f} %", "occupancy"),
        Fact(None, None, peak, "peak memory"),
        Fact("spans", len(trace), str(len(trace))),
        Fact("warnings", warnings),
        *(Fact(None, None, line, "warning") for line in warnings),
    ]


def replay_facts(run: Replay, predicted: float | None = None) -> list[Fact]:
    """Return facts about measured runs; `predicted` is a makespan in us."""
    summary = run.summary
    program = run.program
    error = run.max_relative_error
    where = run.environment
    if error is None:
        compared = "outputs were not compared"
    else:
        compared = f"{error:.2g} of outputs"
    facts = [
        Fact("graph", program.graph.name, f"{program.graph.name}: {len(program.graph)} operators"),
        *(Fact(key, where.get(key), where.get(key, "-")) for key in ("backend", "device")),
        Fact("execution", program.execution, program.execution),
        Fact("repeats", summary.n, str(summary.n)),
        Fact("measured_us", summary.median, f"{format_time(summary.median)}, median"),
        Fact("measured_p10_us", summary.p10, format_time(summary.p10)),
        Fact("measured_p90_us", summary.p90, format_time(summary.p90)),
        Fact("max_relative_error", error, compared),
    ]
    if predicted is not None:
        if summary.median:
            off = (predicted - summary.median) / summary.median
        else:
            off = None
        if off is None:
            difference = ""
        else:
            difference = f", {100 * off:+.1f} % of measured"
        facts.append(Fact("predicted_us", predicted, format_time(predicted) + difference))
        facts.append(Fact("error", None, "-") if off is None else Fact("error", abs(off), f"{100 * abs(off):.1f} %"))
    return facts


def cluster_pairs(cluster: Cluster) -> list[tuple[str, str]]:
    """Return labels and texts: devices, models with their costs of issuing, and links."""
    names = ", ".join(device.name for device in cluster.devices)
    rows = [("cluster", cluster.name), ("devices", f"{len(cluster)}: {names}")]
    for device in cluster.kinds:
        rows += [
            ("model", f"{device.model}: {device.sms} SMs, {device.bandwidth / GB_PER_S:,.0f} GB/s"),
            ("costs", ", ".join(f"{name} {getattr(device, name):.3g} us" for name in OVERHEADS)),
            ("contention", "on" if device.contention else "off"),
        ]
    links = dict.fromkeys((link.bandwidth, link.latency) for _, _, link in cluster.links)
    rows += [("link", f"{bandwidth / GB_PER_S:,.3g} GB/s, {latency:g} us") for bandwidth, latency in links]
    return rows
