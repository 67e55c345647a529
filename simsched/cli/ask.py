"""Commands that ask: what if, over a range, how sensitive, why, from where on, how robust, how many per second."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import simsched as ss
from simsched.base.errors import FormatError, WhatIfError
from simsched.cli import options as opt
from simsched.cli.options import Text, Texts, argument, drawn, option, written

Parameter = Annotated[str, argument("PARAMETER", "Such as link.bandwidth, gpus or overhead.launch; see whatif --set.")]
Plot = Annotated[Text, drawn("Draw it: .png, .svg or .pdf.")]


@dataclass(frozen=True)
class Question(opt.Plan):
    """What is asked about, and what is to be different."""

    changes: Annotated[Texts, option(
        "PARAMETER*=FACTOR or PARAMETER=VALUE: link.bandwidth*=2, gpus=4, device=h100, overhead.launch=5us, "
        "operators.conv.speed*=1.3, rebuild.batch=16, fuse=A,B, remove=A, ...; repeatable.", "--set", metavar="CHANGE",
    )] = None  # fmt: skip
    reschedule: Annotated[bool, option("Make the plan anew after the changes.", "--reschedule")] = False

    def ask(self, target: opt.Target) -> "ss.WhatIf":
        """Return the question."""
        from simsched.experiments.whatif import parse_change
        from workloads import load_kind

        found = self.found(anew=self.reschedule)
        scheduler = None if self.scheduler is None else opt.read_scheduler(self.scheduler)
        load = partial(load_kind, self.spec) if isinstance(found, ss.OpGraph) and not self.shape else None
        options = opt.read_options(self.option)
        asked = ss.what_if(found, target.read(), self.reschedule, scheduler=scheduler, options=options, load=load)
        for text in self.changes or []:
            change = parse_change(text)
            asked = asked.set(change.parameter, change.given)
        return asked


def _values(parameter: str, text: str) -> list[Any]:
    """Return the values of a list: factors as in ``0.5,1,2``, values as in ``=5us,=10us`` or ``300GB/s,600GB/s``."""
    from simsched.experiments.whatif import parse_change
    from simsched.experiments.whatif.changes import is_taken_as_is

    values = []
    for part in (each.strip() for each in text.split(",")):
        if not part:
            raise WhatIfError(f"values {text!r} of {parameter}: one is empty; give a list such as 0.5,1,2")
        is_factor = not is_taken_as_is(parameter) and part[0] != "=" and not part[-1].isalpha()
        values.append(parse_change(f"{parameter}{'*=' if is_factor else '='}{part.removeprefix('=')}").given)
    return values


def whatif(plan: Question, target: opt.Target, result: opt.Result) -> None:
    """Say what would be if something were different: makespan and where the time goes, before and after.

    With --reschedule it is also said how much comes from making the plan anew.
    """
    answer = plan.ask(target).answer()
    shares = [("before", _shares(answer.blame_before)), ("after", _shares(answer.blame))]
    result.tell(
        answer, answer.table, shares, name="answer",
        data=lambda: {k: v for k, v in answer.to_dict().items() if k not in ("before", "kept", "after")},
    )  # fmt: skip  # schedules and clusters are for files


def advise(
    graph: opt.Graph, target: opt.Target, result: opt.Result, schedulers: opt.Schedulers = "fast",
    keep: Annotated[Text, written("Write the recommended schedule to a JSON file.", "--plan")] = None,
) -> None:  # fmt: skip
    """Say what to deploy: one stream or several, captured or not, on one GPU or on all; and what to type next."""
    cluster, dag = target.read(graph), graph.read()
    names = opt.read_schedulers(schedulers, dag)
    found = ss.advise(dag, cluster, names, source=graph.spec, options=target.text())
    facts = [*found.assumed.items(), ("", ""), *found.commands.items()]
    files = [("schedule", keep, lambda path: found.plan.save(path))]
    result.tell(found, found.table, "", facts, files=files, name="advice")


def _shares(blame: Mapping[str, float]) -> str:
    """Return what the time of a critical path goes to in per cent."""
    total = sum(blame.values())
    return ", ".join(f"{name} {100 * us / total:.1f} %" for name, us in blame.items() if us > 0) or "-"


def sweep(
    plan: Question, parameter: Parameter,
    values: Annotated[str, argument("VALUES", "Factors 0.5,1,2, or values =5us,=10us or 300GB/s,600GB/s; gpus 1,2,4.")],
    target: opt.Target, result: opt.Result,
    parameter2: Annotated[str | None, argument("PARAMETER2", "A second one.")] = None,
    values2: Annotated[str | None, argument("VALUES2", "Its values.")] = None, plot: Plot = None,
) -> None:  # fmt: skip
    """Say how the makespan changes with a parameter, or with two."""
    axes: list[Any] = [parameter, _values(parameter, values)]
    if parameter2 is not None:
        if values2 is None:
            raise WhatIfError(f"PARAMETER2 {parameter2!r} has no values: give them after it")
        axes += [parameter2, _values(parameter2, values2)]
    found = plan.ask(target).sweep(*axes)
    result.tell(found, files=[("picture", plot, found.plot)])


def sensitivity(
    plan: Question, target: opt.Target, result: opt.Result,
    per_operator: Annotated[bool, option("Also to the time of each operator.", "--per-operator")] = False,
    tornado: Annotated[Text, drawn("Draw a tornado chart: .png, .svg or .pdf.")] = None,
) -> None:  # fmt: skip
    """Say how much the makespan changes with each parameter, per cent for per cent, and rank them."""
    found = ss.sensitivity(plan.ask(target), per_operator=per_operator)
    result.tell(found, files=[("picture", tornado, found.plot)])


def explain(plan: opt.Plan, target: opt.Target, result: opt.Result) -> None:
    """Say in words what bounds a schedule, and which three changes would help most."""
    cluster = target.read()
    found = ss.explain(plan.plan(cluster), cluster)
    result.tell(found, str(found))


def breakeven(
    graph: opt.Graph, parameter: Parameter,
    first: Annotated[str, argument("A", "Scheduler, or a file with a schedule.")],
    second: Annotated[str, argument("B", "As A. Schedulers make their plan anew for each value.")],
    target: opt.Target, result: opt.Result, plot: Plot = None,
) -> None:  # fmt: skip
    """Say at which values of a parameter the better one of two schedules of GRAPH changes."""
    cluster, dag = target.read(), graph.read()
    sides = _side(first), _side(second)
    found = ss.breakeven(parameter, *sides, cluster, graph=dag)
    result.tell(found, files=[("picture", plot, found.plot)])


def _side(text: str) -> "ss.Schedule | str | ss.Scheduler":
    """Return the schedule that a file holds, or a scheduler."""
    from workloads.registry import split_path

    if split_path(text)[0] is None:
        return opt.read_scheduler(text)
    found = opt.read_plan(text)
    if not isinstance(found, ss.Schedule):
        raise FormatError(f"{text}: give a schedule, as `simsched schedule -o` writes one, or the name of a scheduler")
    return found


def throughput(
    plan: opt.Plan, target: opt.Target, result: opt.Result,
    in_flight: Annotated[int, option("Requests under way at a time.", min=1, max=4096)] = 1,
) -> None:  # fmt: skip
    """Say how many requests a schedule serves per second when one follows the other."""
    cluster = target.read()
    result.tell(ss.throughput(plan.plan(cluster), cluster, in_flight))


def robust(
    graph: opt.Graph, target: opt.Target, result: opt.Result, schedulers: opt.Schedulers = "fast",
    jitter: Annotated[float, opt.JITTER] = opt.USUAL_JITTER, seed: opt.Seed = 0,
    samples: Annotated[int, option("Runs of each schedule.", min=1, max=opt.MOST_SAMPLES)] = 1000, box: opt.Box = None,
) -> None:  # fmt: skip
    """Say which schedule of GRAPH is best when operator times vary: medians and tails."""
    cluster = target.read()
    compared = opt.Compare(schedulers).compare(graph, cluster, traced=False)
    found = ss.robust(compared.plans, cluster, jitter=jitter, samples=samples, rng=seed)
    refused = [f"{row.scheduler}: no schedule: {row.reason}" for row in compared.rows if row.reason is not None]
    result.tell(found, found.table, *refused, files=[("picture", box, found.plot)])
