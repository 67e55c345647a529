"""Commands that schedule, simulate, ask about changed worlds, reasons and robustness, and report results."""

import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import simsched as ss
from simsched.base.errors import FileError, FormatError, SchedulerError, SimulationError, WhatIfError
from simsched.base.io import naming, read_json
from simsched.base.limits import MOST
from simsched.base.numeric import sum_in_order
from simsched.cli import options as opt
from simsched.cli import printing as out
from simsched.cli.comparison import compare as run_comparison
from simsched.cli.options import Text, Texts, argument, drawn, file_option, option, read_name

LARGE: Final = 1_000_000
"""Instructions beyond which spans, which take gigabytes then, are made for pictures alone."""
Parameter = Annotated[str, argument("PARAMETER", "Such as link.bandwidth, gpus or overhead.launch; see whatif --set.")]
Plot = Annotated[Text, drawn("Draw it: .png, .svg or .pdf.")]


def compare(
    graph: opt.Graph,
    target: opt.Target,
    draws: opt.Compare,
    result: opt.ResultOptions,
    drawn: opt.Pictures,
    box: opt.Box = None,
) -> None:
    """Schedule GRAPH in several ways, simulate each, and print a table.

    The trace and the chart are of the schedule with the least makespan.

    The table begins with one operator after the other as PyTorch launches it, as a lean host does, and as a CUDA graph,
    the baseline of speedups.

    With --samples, jitter is in p50, p99 and the box plot alone.

    --json prints the table; --output writes schedules and cluster too, for
    `simsched report`.

    A scheduler that refuses GRAPH has a row with the reason; it is an error if
    all do, or if one cannot be imported or fails.
    """
    if box is not None and draws.samples is None:
        raise SimulationError("--box draws samples: say how many with --samples")
    comparison = run_comparison(draws, graph, target.read(graph))
    best = comparison.best()
    assert best is not None, "some scheduler found a schedule"
    pictures = drawn.files(best.scheduler, comparison.traces[best.scheduler])
    traced = graph.traced
    files = [*pictures, ("box plot", box, comparison.plot), ("comparison", result.output, comparison.save)]
    waits = traced and {"step": traced.step, "waits": traced.n_waits, "guessed_waits": traced.guessed_waits}
    data = {"trace": waits} if waits else {}
    shown = [comparison.table, *graph.traced_lines()]
    ran = graph.traced_facts(comparison.traces[best.scheduler].makespan)
    out.tell(lambda: comparison.summary() | data, shown, files, as_json=result.as_json, ran=ran)


def schedule(
    graph: opt.ScheduledGraph,
    target: opt.Target,
    output: Annotated[Text, file_option("Write the schedule to a JSON file.", "--output", "-o")] = None,
    program: Annotated[Text, file_option("Write the lowered program too.")] = None,
) -> None:
    """Schedule GRAPH and print the placements, or write them to a file that `simsched simulate` reads."""
    cluster = target.read(graph)
    plan = graph.schedule(graph.read(), cluster)
    files = [("program", program, lambda path: plan.lower(cluster).save(path)), (repr(plan), output, plan.save)]
    out.tell(plan.to_dict, [], files, as_json=output is None)


def simulate(
    plan: opt.PlanArguments,
    target: opt.Target,
    drawn: opt.Pictures,
    jitter: opt.Jitter = None,
    seed: opt.Seed = 0,
    as_json: opt.Json = False,
) -> None:
    """Simulate one schedule of GRAPH, or a schedule or program read from a file, and show its time by cause.

    From a million instructions on, spans take gigabytes: then only the makespan is printed, unless a picture needs the
    spans.
    """
    from simsched.show.facts import Fact, head_facts, run_facts

    cluster = target.read(plan)
    subject = plan.read_subject(programs=True)
    if isinstance(subject, ss.OpGraph):
        subject = plan.schedule(subject, cluster)
    subject = plan.run_as(subject)
    trace = ss.simulate(subject, cluster, jitter=jitter, rng=seed)
    n = len(trace.program)
    brief = n > LARGE and drawn == opt.Pictures()
    facts = [*head_facts(trace), Fact("instructions", n, str(n))] if brief else run_facts(trace)
    out.tell_facts(facts, drawn.files("trace", trace), as_json=as_json, ran=plan.traced_facts())


def check(
    name: Annotated[str, argument("NAME", "Scheduler or backend: its name, or package.module:function.")],
    kind: Annotated[str, option("scheduler or backend.", "--as")] = "scheduler",
    backend_option: opt.BackendOption = None,
    as_json: opt.Json = False,
) -> None:
    """Check the promises of your own scheduler or backend that simsched relies on, and print the ones that it keeps.

    In Python that is `simsched.testing.check_scheduler` and `check_backend`.
    """
    from simsched.testing import check_backend, check_scheduler

    if kind not in ("scheduler", "backend"):
        raise SimulationError(f"--as {kind!r}: give scheduler or backend")
    if kind == "backend":
        contract = check_backend(opt.BackendOptions(name, backend_option).make())
    else:
        contract = check_scheduler(read_name(name))
    out.tell(contract.to_dict, [contract.table], [], as_json=as_json)
    try:
        contract.require()
    except SchedulerError as error:
        raise opt.IncompleteError(str(error)) from None


@dataclass(frozen=True)
class QuestionOptions(opt.PlanArguments):
    """The subject of a question, and the changes."""

    changes: Annotated[
        Texts,
        option(
            "PARAMETER*=FACTOR or PARAMETER=VALUE: link.bandwidth*=2, gpus=4, device=h100, overhead.launch=5us, "
            "operators.conv.speed*=1.3, rebuild.batch=16, fuse=A,B, remove=A, ...; repeatable.",
            "--set",
            metavar="CHANGE",
        ),
    ] = None
    reschedule: Annotated[bool, option("Make the plan anew after the changes.", "--reschedule")] = False

    def ask(self, target: opt.Target) -> "ss.WhatIf":
        """Return the question."""
        from simsched.experiments.whatif import parse_change
        from workloads import load_kind

        subject = self.read_subject(anew=self.reschedule)
        if self.execution != "own":
            if self.reschedule:
                raise SchedulerError("--execution does not go with --reschedule, which asks the scheduler anew")
            subject = self.plan(target.read(self))
        scheduler = None if self.scheduler is None and self.traced is None else self.choose_scheduler()[1]
        load = partial(load_kind, self.spec) if isinstance(subject, ss.OpGraph) and not self.shape else None
        options = opt.read_options(self.option)
        question = ss.what_if(
            subject, target.read(self), self.reschedule, scheduler=scheduler, options=options, load=load
        )
        for text in self.changes or []:
            change = parse_change(text)
            question = question.set(change.parameter, change.given)
        return question


def _values(parameter: str, text: str) -> list[Any]:
    """Return the values of a list: factors as in ``0.5,1,2``, values as in ``=5us,=10us`` or ``300GB/s,600GB/s``."""
    from simsched.experiments.whatif import parse_change
    from simsched.experiments.whatif.changes import full_name, is_taken_as_is

    parameter = full_name(parameter)
    values = []
    for part in (word.strip() for word in text.split(",")):
        if not part:
            raise WhatIfError(f"values {text!r} of {parameter}: one is empty; give a list such as 0.5,1,2")
        is_factor = not is_taken_as_is(parameter) and part[0] != "=" and not part[-1].isalpha()
        values.append(parse_change(f"{parameter}{'*=' if is_factor else '='}{part.removeprefix('=')}").given)
    return values


def whatif(plan: QuestionOptions, target: opt.Target, result: opt.ResultOptions) -> None:
    """Answer a question about a changed world: makespan and time by cause, before and after.

    With --reschedule the gain of a new schedule is shown, too.
    """
    answer = plan.ask(target).answer()
    shares = [("before", _shares(answer.blame_before)), ("after", _shares(answer.blame))]
    result.tell(
        answer,
        answer.table,
        shares,
        name="answer",
        data=lambda: {k: v for k, v in answer.to_dict().items() if k not in ("before", "kept", "after")},
        ran=plan.traced_facts(),
    )  # schedules and clusters are for files


def advise(
    graph: opt.Graph,
    target: opt.Target,
    result: opt.ResultOptions,
    schedulers: opt.Schedulers = "fast",
    keep: Annotated[Text, file_option("Write the recommended schedule to a JSON file.", "--plan")] = None,
) -> None:
    """Recommend a deployment: one stream or several, captured or not, one GPU or all; and list next commands."""
    graph.require_one_rank()
    cluster = target.read(graph)
    dag = graph.read()
    names = opt.read_schedulers(schedulers, dag)
    advice = ss.advise(dag, cluster, names, source=graph.spec, options=target.text(), backend=graph.backend)
    facts = [*advice.assumed.items(), ("", ""), *advice.commands.items()]
    files = [("schedule", keep, lambda path: advice.plan.save(path))]
    fastest = min(row.latency_us for row in advice.rows if row.latency_us is not None)
    ran = graph.traced_facts(fastest)
    result.tell(advice, advice.table, "", facts, files=files, name="advice", ran=ran)


def _shares(blame: Mapping[str, float]) -> str:
    """Return a critical path's time by cause in per cent."""
    total = sum_in_order(blame.values())
    return ", ".join(f"{name} {100 * us / total:.1f} %" for name, us in blame.items() if us > 0) or "-"


def sweep(
    plan: QuestionOptions,
    parameter: Parameter,
    values: Annotated[str, argument("VALUES", "Factors 0.5,1,2, or values =5us,=10us or 300GB/s,600GB/s; gpus 1,2,4.")],
    target: opt.Target,
    result: opt.ResultOptions,
    parameter2: Annotated[str | None, argument("PARAMETER2", "A second one.")] = None,
    values2: Annotated[str | None, argument("VALUES2", "Its values.")] = None,
    plot: Plot = None,
) -> None:
    """Show how the makespan changes with a parameter, or with two."""
    axes: list[Any] = [parameter, _values(parameter, values)]
    if parameter2 is not None:
        if values2 is None:
            raise WhatIfError(f"PARAMETER2 {parameter2!r} has no values: give them after it")
        axes += [parameter2, _values(parameter2, values2)]
    makespans = plan.ask(target).sweep(*axes)
    result.tell(makespans, files=[("picture", plot, makespans.plot)], ran=plan.traced_facts())


def sensitivity(
    plan: QuestionOptions,
    target: opt.Target,
    result: opt.ResultOptions,
    per_operator: Annotated[bool, option("Also to the time of each operator.", "--per-operator")] = False,
    tornado: Annotated[Text, drawn("Draw a tornado chart: .png, .svg or .pdf.")] = None,
) -> None:
    """Show how much the makespan changes with each parameter, per cent for per cent, and rank them."""
    elasticities = ss.sensitivity(plan.ask(target), per_operator=per_operator)
    result.tell(elasticities, files=[("picture", tornado, elasticities.plot)], ran=plan.traced_facts())


def explain(plan: opt.PlanArguments, target: opt.Target, result: opt.ResultOptions) -> None:
    """Explain in words the bottleneck of a schedule, and the three changes that would help most."""
    cluster = target.read(plan)
    explanation = ss.explain(plan.plan(cluster), cluster)
    result.tell(explanation, str(explanation), ran=plan.traced_facts())


def breakeven(
    graph: opt.Graph,
    parameter: Parameter,
    first: Annotated[str, argument("A", "Scheduler, or a file with a schedule.")],
    second: Annotated[str, argument("B", "As A. Schedulers make their plan anew for each value.")],
    target: opt.Target,
    result: opt.ResultOptions,
    plot: Plot = None,
) -> None:
    """Show at which values of a parameter the better one of two schedules of GRAPH changes."""
    graph.require_one_rank()
    cluster = target.read(graph)
    dag = graph.read()
    sides = _side(first), _side(second)
    crossings = ss.breakeven(parameter, *sides, cluster, graph=dag)
    result.tell(crossings, files=[("picture", plot, crossings.plot)], ran=graph.traced_facts())


def _side(text: str) -> "ss.Schedule | str | ss.Scheduler":
    """Return the schedule that a file holds, or a scheduler."""
    from workloads.registry import split_path

    if split_path(text)[0] is None:
        return opt.read_scheduler(text)
    subject = opt.read_plan(text)
    if not isinstance(subject, ss.Schedule):
        raise FormatError(f"{text}: give a schedule, as `simsched schedule -o` writes one, or the name of a scheduler")
    return subject


def throughput(
    plan: opt.PlanArguments,
    target: opt.Target,
    result: opt.ResultOptions,
    in_flight: Annotated[int, option("Requests under way at a time.", min=1, max=MOST["in_flight"])] = 1,
) -> None:
    """Show how many requests a schedule serves per second when one follows the other."""
    cluster = target.read(plan)
    result.tell(ss.throughput(plan.plan(cluster), cluster, in_flight), ran=plan.traced_facts())


def robust(
    graph: opt.Graph,
    target: opt.Target,
    result: opt.ResultOptions,
    schedulers: opt.Schedulers = "fast",
    jitter: Annotated[float, opt.JITTER] = opt.USUAL_JITTER,
    seed: opt.Seed = 0,
    samples: Annotated[int, option("Runs of each schedule.", min=1, max=MOST["samples"])] = 1000,
    box: opt.Box = None,
) -> None:
    """Show which schedule of GRAPH is best when operator times vary: medians and tails."""
    cluster = target.read(graph)
    compared = run_comparison(opt.Compare(schedulers), graph, cluster, traced=False)
    tails = ss.robust(compared.plans, cluster, jitter=jitter, samples=samples, rng=seed)
    refused = [f"{row.scheduler}: no schedule: {row.reason}" for row in compared.rows if row.reason is not None]
    result.tell(tails, tails.table, *refused, files=[("picture", box, tails.plot)], ran=graph.traced_facts())


def report(
    sources: Annotated[
        list[str],
        argument(
            "SOURCE...",
            "Folder of a study or validation, JSON file of ours (comparison, what-if, sweep, schedule, "
            "replay, ...), or a GRAPH, whose schedulers are compared.",
        ),
    ],
    output: Annotated[str, file_option("HTML file to write.", "--output", "-o")],
    target: opt.Target,
    draws: opt.Compare,
    title: Annotated[Text, option("Title of the page.")] = None,
    shape: opt.Shape = None,
    dtype: opt.Dtype = None,
    trust: opt.Trust = False,
) -> None:
    """Write results as one HTML file that needs no network: tables that sort, charts that zoom.

    A GRAPH, a schedule and a program are simulated on the cluster of --gpu, --gpus, --link or --cluster. With --cluster
    a replay is shown beside its prediction.
    """
    from simsched.show.report.page import library
    from simsched.show.report.sections import replay_sections, sections_of

    graphs = [opt.Graph(source, shape, dtype, trust) for source in sources]
    cluster = target.read(graphs[0])
    sections: list[Any] = []
    advised: list[ss.Advice] = []
    for graph in graphs:
        result = _read(graph.graph)
        if result is None:
            library()  # a missing package is reported before the schedulers run
            compared = run_comparison(draws, graph, cluster)
            dag = graph.read()
            names = opt.read_schedulers(draws.schedulers, dag)
            options = target.text()
            comparison = compared if draws.execution == "own" else None  # advice is on each in its own execution
            result = ss.advise(
                dag,
                cluster,
                names,
                comparison=comparison,
                source=graph.spec,
                options=options,
                backend=graph.backend,
            )
            advised.append(result)
        if isinstance(result, ss.Schedule | ss.Program):
            result = ss.simulate(result, cluster)
        predicted = isinstance(result, ss.Replay) and target.cluster is not None
        with naming(graph.graph):
            sections += (
                replay_sections(result, ss.simulate(result.program, cluster)) if predicted else sections_of(result)
            )
    text = ss.write_report(sections, output, title=title, command=shlex.join(["simsched", *sys.argv[1:]]))
    out.say(f"report written to {output}, {len(text.encode()) / 1e6:.1f} MB")
    for advice in advised:
        out.print_pairs([(f"{advice.graph} on {advice.cluster}", advice.best), *advice.commands.items()])
        out.say(*advice.verdict)
    for graph in graphs:
        ran = graph.traced_facts()
        if ran is not None:
            out.print_pairs(ran.rows())
        out.say(*graph.traced_lines())


def _read(source: str) -> Any:
    """Return the result in a folder or a JSON file of ours; None for a graph, or anything unknown."""
    from simsched.experiments.accuracy import NAME, Accuracy
    from simsched.experiments.documents import DOCUMENTS
    from simsched.experiments.study.store import STUDY
    from workloads.formats import format_of
    from workloads.registry import split_path

    if Path(source, STUDY).exists():
        return ss.Results.open(source)
    if Path(source, NAME).exists():
        return Accuracy.load(source)
    if Path(source).is_dir():
        raise FileError(
            f"{source}: neither a study, as `simsched study run` writes one, nor a finished validation, as "
            "`simsched validate --resume FOLDER` does"
        )
    path, settings = split_path(source)
    data = read_json(path) if path is not None and not settings and format_of(path) == "simsched" else None
    kind = data.get("format") if isinstance(data, dict) else None
    if not isinstance(kind, str) or kind not in DOCUMENTS or kind == "simsched.graph":
        return None
    return DOCUMENTS[kind].from_dict(data, source)
