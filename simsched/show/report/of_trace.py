"""Sections of a trace, and of measured runs."""

from simsched.base.units import format_time
from simsched.model.profile import Replay
from simsched.model.trace import Trace
from simsched.show.report.describe import parameters, run_facts
from simsched.show.report.figures import boxes, stacks, time_axis
from simsched.show.report.sections import Block, Gantt, Pairs, Section, Text


def trace_sections(trace: Trace) -> tuple[Section, ...]:
    """Return what a trace says of one run."""
    name = f"{trace.graph.name} on {trace.cluster.name}"
    path = trace.critical_path()
    blame = stacks("Where the time of the critical path goes", {"critical path": path.blame})
    blocks = (run_facts(trace), Gantt(f"What runs when: {name}", trace), blame, parameters(trace.graph, trace.cluster))
    return (Section(name, blocks),)


def replay_sections(replay: Replay, simulated: Trace | None = None) -> tuple[Section, ...]:
    """Return what was measured, beside a prediction if there is one."""
    found, trace = replay.summary, replay.trace
    name = f"{replay.name}: {trace.graph.name} measured"
    rows = [
        ("measured", f"{format_time(found.median)}, median of {found.n}"),
        ("10th to 90th percentile", f"{format_time(found.p10)} to {format_time(found.p90)}"),
        *replay.environment.items(),
    ]
    lead: list[Text] = []
    if simulated is not None and found.median:
        off = simulated.makespan / found.median - 1
        rows.insert(1, ("simulated", f"{format_time(simulated.makespan)}, {100 * off:+.1f} %"))
        text = f"Simulated {format_time(simulated.makespan)}, measured {format_time(found.median)}: {100 * off:+.1f} %."
        lead = [Text(text, "lead")]
    scale, label = time_axis("latency", replay.latency)
    blocks: tuple[Block, ...] = (
        *lead,
        Pairs("What was measured", tuple(rows)),
        Gantt("What ran when", trace) if simulated is None else Gantt("Simulated over measured", simulated, trace),
        boxes("Latencies of the repeats", {replay.name: [us / scale for us in replay.latency]}, label),
        parameters(trace.graph, trace.cluster),
    )
    return (Section(name, blocks),)
