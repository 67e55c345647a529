"""Commands that schedule and simulate."""

from typing import Annotated, Final

import simsched as ss
from simsched.base.errors import SimulationError
from simsched.cli import options as opt
from simsched.cli import printing as out
from simsched.cli.options import Text, argument, option, read_name, written

LARGE: Final = 1_000_000
"""Instructions beyond which spans, which take gigabytes then, are made for pictures alone."""


def compare(
    graph: opt.Graph, target: opt.Target, draws: opt.Compare, result: opt.Result, drawn: opt.Pictures,
    box: opt.Box = None,
) -> None:  # fmt: skip
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
    found = draws.compare(graph, target.read(graph))
    best = found.best()
    assert best is not None, "some scheduler found a schedule"
    pictures, traced = drawn.files(best.scheduler, found.traces[best.scheduler]), graph.traced
    files = [*pictures, ("box plot", box, found.plot), ("comparison", result.output, found.save)]
    waits = traced and {"step": traced.step, "waits": traced.n_waits, "guessed_waits": traced.guessed_waits}
    data = {"trace": waits} if waits else {}
    out.tell(lambda: found.summary() | data, [found.table, *graph.traced_lines()], files, as_json=result.as_json)


def schedule(
    graph: opt.Scheduled,
    target: opt.Target,
    output: Annotated[Text, written("Write the schedule to a JSON file.", "--output", "-o")] = None,
    program: Annotated[Text, written("Write the lowered program too.")] = None,
) -> None:
    """Schedule GRAPH and print the placements, or write them to a file that `simsched simulate` reads."""
    cluster = target.read(graph)
    plan = graph.schedule(graph.read(), cluster)
    files = [("program", program, lambda path: plan.lower(cluster).save(path)), (repr(plan), output, plan.save)]
    out.tell(plan.to_dict, [], files, as_json=output is None)


def simulate(
    plan: opt.Plan, target: opt.Target, drawn: opt.Pictures, jitter: opt.Jitter = None, seed: opt.Seed = 0,
    as_json: opt.Json = False,
) -> None:  # fmt: skip
    """Simulate one schedule of GRAPH, or a schedule or program read from a file, and say where its time goes.

    From a million instructions on, spans take gigabytes: then only the makespan
    is said, unless a picture needs the spans.
    """
    from simsched.show.facts import Fact, head_facts, run_facts

    cluster, found = target.read(), plan.found(programs=True)
    if isinstance(found, ss.OpGraph):
        found = plan.schedule(found, cluster)
    trace = ss.simulate(found, cluster, jitter=jitter, rng=seed)
    n = len(trace.program)
    brief = n > LARGE and drawn == opt.Pictures()
    facts = [*head_facts(trace), Fact("instructions", n, str(n))] if brief else run_facts(trace)
    out.tell_facts(facts, drawn.files("trace", trace), as_json=as_json)


def check(
    name: Annotated[str, argument("NAME", "Scheduler or backend: its name, or package.module:function.")],
    kind: Annotated[str, option("scheduler or backend.", "--as")] = "scheduler",
    backend_option: opt.BackendOption = None,
    as_json: opt.Json = False,
) -> None:
    """Try what simsched relies on in a scheduler or a backend of your own, and print what is kept.

    In Python that is `simsched.testing.check_scheduler` and `check_backend`.
    """
    from simsched.testing import check_backend, check_scheduler

    if kind not in ("scheduler", "backend"):
        raise SimulationError(f"--as {kind!r}: give scheduler or backend")
    if kind == "backend":
        found = check_backend(opt.Backend(name, backend_option).make())
    else:
        found = check_scheduler(read_name(name))
    out.tell(found.to_dict, [found.table], [], as_json=as_json)
    found.require()
