"""Commands that schedule and simulate."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Annotated, Final

import simsched as ss
from simsched.base.errors import SimulationError
from simsched.base.units import format_bytes, format_time
from simsched.cli.inputs import check_outputs
from simsched.cli.options import (
    Box,
    CompareOptions,
    Gantt,
    GraphOptions,
    Jitter,
    Json,
    Perfetto,
    PlanOptions,
    ScheduledOptions,
    Seed,
    TargetOptions,
    Text,
    file,
    option,
)
from simsched.cli.printing import (
    Fact,
    ResultOptions,
    print_facts,
    print_json,
    print_table,
    print_traced,
    print_written,
    write_pictures,
)

LARGE: Final = 1_000_000
"""Instructions from which on spans, which take gigabytes then, are made only if somebody asks for them."""


def compare(
    graph: GraphOptions,
    target: TargetOptions,
    draws: CompareOptions,
    result: ResultOptions,
    perfetto: Perfetto = None,
    gantt: Gantt = None,
    box: Box = None,
) -> None:
    """Schedule GRAPH in several ways, simulate each, and print a table.

    The trace and the chart are of the schedule with the least makespan.

    With --samples, jitter is in p50, p99 and the box plot alone.

    --json prints the table; --output writes schedules and cluster too, for
    `simsched report`.

    A scheduler that refuses GRAPH has a row with the reason; it is an error if
    all do, or if one cannot be imported or fails.
    """
    if box is not None and draws.samples is None:
        raise SimulationError("--box draws samples: say how many with --samples")
    check_outputs(graph.graph, result.output, perfetto, drawings=(gantt, box))
    found = draws.compare(graph, target.read(graph))
    best = found.best()
    assert best is not None, "some scheduler found a schedule"
    write_pictures(found.traces[best.scheduler], perfetto, gantt)
    if box is not None:
        found.box_plot(box)
    if result.output is not None:
        found.save(result.output)
    if result.as_json:
        traced = graph.traced
        waits = traced and {"step": traced.step, "waits": traced.n_waits, "guessed_waits": traced.guessed_waits}
        print_json(found.summary() | ({"trace": waits} if waits else {}))
        return
    print_table(found.table())
    print_traced(graph)
    print_written(best.scheduler, perfetto, gantt)
    print_written("box plot", box)
    print_written("comparison", result.output)


def schedule(
    graph: ScheduledOptions,
    target: TargetOptions,
    output: Annotated[Text, file("Write the schedule to a JSON file.", "--output", "-o")] = None,
    program: Annotated[Text, file("Write the lowered program too.")] = None,
) -> None:
    """Schedule GRAPH and print the placements, or write them to a file that `simsched simulate` reads."""
    check_outputs(graph.graph, output, program)
    cluster = target.read(graph)
    plan = graph.schedule(graph.read(), cluster)
    lowered = None if program is None else plan.lower(cluster)
    if output is not None:
        plan.save(output)
    if program is not None and lowered is not None:
        lowered.save(program)
    if output is None:
        print_json(plan.to_dict())
    else:
        print(f"{plan!r} written to {output}")


def simulate(
    plan: PlanOptions,
    target: TargetOptions,
    threads: Annotated[str, option("Issuing host threads: device or one.")] = "device",
    transfers: Annotated[str, option("async or blocking.")] = "async",
    events: Annotated[Text, option("Event plan: minimal or literal; by default the schedule's own.")] = None,
    jitter: Jitter = None,
    seed: Seed = 0,
    as_json: Json = False,
    perfetto: Perfetto = None,
    gantt: Gantt = None,
    full: Annotated[
        bool | None,
        option(
            "Say where the time goes, or only what is known without the spans of a run. By default brief from a "
            "million instructions on, where spans take gigabytes, unless a picture needs them.",
            "--full/--brief",
        ),
    ] = None,
) -> None:
    """Simulate one schedule of GRAPH, or a schedule or program read from a file, and say where its time goes."""
    check_outputs(plan.graph, perfetto, drawings=(gantt,))
    cluster, found = target.read(), plan.found()
    seconds: dict[str, float | None] = dict.fromkeys(("scheduling", "lowering", "simulating"))
    if isinstance(found, ss.OpGraph):
        with _timed(seconds, "scheduling"):
            found = plan.schedule(found, cluster)
    if not isinstance(found, ss.Program):
        with _timed(seconds, "lowering"):
            found = found.lower(cluster, threads=threads, transfers=transfers, events=events)
    with _timed(seconds, "simulating"):
        trace = ss.simulate(found, cluster, jitter=jitter, rng=seed)
    drawn = perfetto is not None or gantt is not None
    write_pictures(trace, perfetto, gantt)
    if full is None:
        full = drawn or len(found) <= LARGE
    print_facts(_full(trace) if full else _brief(trace, seconds, drawn), as_json)
    if not as_json:
        print_written("trace", perfetto, gantt)


@contextmanager
def _timed(seconds: dict[str, float | None], step: str) -> Iterator[None]:
    """Write down the wall time of a step in s."""
    start = perf_counter()
    yield
    seconds[step] = perf_counter() - start


def _head(trace: "ss.Trace") -> list[Fact]:

    name = trace.graph.name
    return [
        Fact("graph", name, f"{name}: {len(trace.graph)} operators, {len(trace.graph.src)} edges"),
        Fact("cluster", trace.cluster.name, trace.cluster.name),
        Fact("makespan_us", trace.makespan, format_time(trace.makespan)),
    ]


def _full(trace: "ss.Trace") -> list[Fact]:
    """Return all that is said of a run; makes the spans."""
    path, peaks, warnings = trace.critical_path(), trace.peak_memory(), trace.memory_warnings()
    shares = ", ".join(f"{name} {100 * share:.1f} %" for name, share in path.shares.items() if share > 0)
    busy, efficiency, occupancy = trace.sm_utilization(), trace.sm_efficiency(), trace.achieved_occupancy()
    peak = ", ".join(f"{name} {format_bytes(nbytes)}" for name, nbytes in peaks.items())
    return [
        *_head(trace),
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


def _brief(trace: "ss.Trace", seconds: dict[str, float | None], spans_made: bool) -> list[Fact]:
    """Return what is known without the spans, which need not be made."""
    walls = ", ".join(f"{step} {wall:.3f} s" for step, wall in seconds.items() if wall is not None)
    missing = Fact(None, None, "not made; --full makes them, and says where the time goes", "spans")
    return [
        *_head(trace),
        Fact("instructions", len(trace.program), str(len(trace.program))),
        *(Fact(f"{step}_s", wall) for step, wall in seconds.items()),
        Fact(None, None, walls, "wall time"),
        *([] if spans_made else [missing]),
    ]
