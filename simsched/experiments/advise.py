"""`advise`: a way to deploy a model: one stream or several, launched one by one or captured, on one GPU or on more."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from simsched.base.codec import Amount, Checked, Count, aside
from simsched.base.errors import WhatIfError
from simsched.base.units import format_bytes, format_gain
from simsched.experiments.baselines import CAPTURED, EAGER, ONE, baselines, with_execution
from simsched.experiments.comparison import Comparison, compare
from simsched.experiments.ranges import Ranged, ranges
from simsched.experiments.result import Doubt, Finding, table_of, unit_of
from simsched.experiments.unknown import bounded_by_bytes, share_of_unknown
from simsched.experiments.whatif.throughput import requests_per_s
from simsched.model import CostModel, OpGraph, Schedule
from simsched.model.cluster import resize
from simsched.model.costmodel import Target, bare, bind, with_cluster
from simsched.model.exchange import of_one_rank
from simsched.model.trace import Trace
from simsched.schedulers import Scheduler
from simsched.simulator import simulate

IN_FLIGHT: Final = (1, 2, 4, 8)
"""Requests under way at a time, for which throughputs are told."""
WORTH: Final = 1.05
"""How many times as fast something has to be to be worth deploying: less is within what runs and models vary."""
DOUBTFUL: Final = 0.1
"""Part of the time that may be of operators of unknown kinds: beyond it no way is recommended."""
_AS_GOOD: Final = 1.01
_MOST_COMPILED: Final = 8  # streams that hwbackend's backend of torch.compile takes
_ABLATIONS: Final = ("lios-rand", "lios-rand1", "lios-rand2", "round-robin")  # ablations
_STREAMS = "streams"
_BOTH = "streams captured"


@dataclass(frozen=True, slots=True)
class Deployment(Checked):
    """One way to run a model.

    Parameters
    ----------
    name
        Such as ``"streams captured"``.
    scheduler
        Name of the scheduler that made the schedule.
    execution
        Its execution: ``"eager"``, ``"events"``, ``"stages"`` or ``"graph"``; None if there is no schedule.
    latency_us
        Simulated makespan of one request in us; None if there is no schedule.
    latency_low_us, latency_high_us
        Bounds of the 90 % range of `latency_us`; None if there is no range.
    speedup, speedup_low, speedup_high
        Speedup of one request over one stream as a CUDA graph, and the bounds of its 90 % range.
    place
        One more than the number of deployments that are faster with 90 %.
    requests_per_s
        Requests per second with 1, 2, 4 and 8 requests in flight.
    peak_memory_bytes
        Peak memory of the GPU that needs most.
    host_share
        Part of the critical path, in [0, 1], on which the host launches and synchronises.
    reason
        Reason why there is no schedule; None if there is one.
    """

    SUBJECT = "deployment {0.name!r}"
    ERROR = WhatIfError
    name: str
    scheduler: str = ""
    execution: str | None = None
    latency_us: Amount | None = None
    latency_low_us: Amount | None = None
    latency_high_us: Amount | None = None
    speedup: Amount | None = None
    speedup_low: Amount | None = None
    speedup_high: Amount | None = None
    place: Count | None = None
    requests_per_s: tuple[Amount, ...] = ()
    peak_memory_bytes: Amount | None = None
    host_share: Amount | None = None
    reason: str | None = None


@dataclass(frozen=True, repr=False, eq=False)
class Advice(Finding):
    """Ways to deploy a model; prints as a table with two sentences above.

    Parameters
    ----------
    graph, cluster
        Names of the graph and the cluster.
    rows
        The ways to run it.
    best
        Name of the one that is recommended for the least latency.
    verdict
        Two sentences: the way that pays, its gain, and when it does not pay.
    assumed
        Assumptions behind the answer, by name: number formats, shapes, device, calibration.
    commands
        Commands to type next, each with its purpose.
    doubt
        Sources of the ranges, and the assumptions that they depend on.
    plans
        The schedule of each way, by name; none once read from a file.
    comparison
        All schedulers on the cluster; None once read from a file.
    """

    VIEW = "advice"
    FORMAT = "simsched.advice"
    rows: tuple[Deployment, ...]
    best: str
    verdict: tuple[str, ...]
    assumed: Mapping[str, str]
    commands: Mapping[str, str]
    doubt: Doubt | None = None
    plans: Mapping[str, Schedule] | None = aside()
    comparison: Comparison | None = aside()

    @property
    def plan(self) -> Schedule:
        """Schedule of the recommended way, unless it was read from a file."""
        if self.plans is None:
            raise WhatIfError("advice that was read from a file has no schedules: ask for it anew")
        return self.plans[self.best]

    def table(self) -> Any:
        """Return the ways as a table of texts, with the sentences below."""
        unit, name = unit_of(row.latency_us for row in self.rows)
        headings = (
            "deployment",
            "scheduler",
            "execution",
            f"latency {name}",
            "speedup",
            "#",
            f"req/s at {IN_FLIGHT[0]}",
            *(f"at {n}" for n in IN_FLIGHT[1:]),
            "memory",
            "host",
        )
        title = f"{self.graph} on {self.cluster}: {self.assumed['number format']}, {self.assumed['calibration']}"
        best = next((i for i, row in enumerate(self.rows) if row.name == self.best), -1)
        notes = (*self.verdict, *self.notes())
        return table_of(title, headings, [_cells(row, unit) for row in self.rows], note=notes, best=best)

    def notes(self) -> tuple[str, ...]:
        """Return the reasons for missing ways, and the assumptions behind the answer."""
        doubt = () if self.doubt is None else (f"{str(self.doubt)[0].upper()}{str(self.doubt)[1:]}.",)
        return (*(f"{row.name}: {row.reason}" for row in self.rows if row.reason), *doubt)


def _commands(best: Deployment, plan: Schedule, source: str, options: str, backend: str) -> Iterator[tuple[str, str]]:
    """Return commands to type next with their purposes; `torch.compile` captures the streams that it runs on."""
    if best.name == ONE:
        yield "run it in PyTorch", "torch.compile(model)"
    elif best.name == CAPTURED:
        yield "run it in PyTorch", 'torch.compile(model, mode="reduce-overhead")'
    else:
        n_streams = min(plan.n_streams, _MOST_COMPILED)
        chosen = f'{{"scheduler": "{best.scheduler}", "streams": {n_streams}}}'
        yield "run it in PyTorch", f'torch.compile(model, backend="simsched", options={chosen})'
    yield "keep the schedule", " ".join(filter(None, ("simsched advise", source, options, "--plan plan.json")))
    if backend == "torch":
        path = source.split(",")[0]
        if path.lower().endswith(".pt2"):
            model = f"torch.export.load({path!r})"
        else:
            model = "model"
        yield "run exactly it", f'hwbackend.torch_apply.apply({model}, inputs, simsched.Schedule.load("plan.json"))'
    yield "measure it", f"simsched replay plan.json --backend {backend}"
    yield "measure the GPU", f"simsched profile {source} --backend {backend} -o profile.json"
    yield "calibrate", "simsched calibrate profile.json -o calibration.json"
    yield "advise again", f"simsched advise {source} --cluster calibration.json"


def _short(number: float) -> str:
    return f"{number:.2g}" if number < 100 else f"{number:,.0f}"


def _cells(row: Deployment, unit: float) -> Sequence[str]:
    if row.reason is not None:
        return (row.name,)
    low = row.latency_low_us
    high = row.latency_high_us
    latency = "" if low is None or high is None else f" ({_short(low / unit)}-{_short(high / unit)})"
    gain = format_gain(row.speedup or 1.0, row.speedup_low, row.speedup_high)
    return (
        row.name,
        row.scheduler,
        row.execution or "-",
        f"{(row.latency_us or 0.0) / unit:.3g}{latency}",
        gain,
        str(row.place or "-"),
        *(f"{rate:,.0f}" for rate in row.requests_per_s),
        format_bytes(row.peak_memory_bytes or 0.0),
        f"{100 * (row.host_share or 0.0):.0f} %",
    )


def advise(
    graph: OpGraph,
    cluster: Target,
    schedulers: str | Sequence[str | Scheduler] = "fast",
    cost: CostModel | None = None,
    *,
    comparison: Comparison | None = None,
    source: str = "MODEL",
    options: str = "",
    backend: str = "cupy",
) -> Advice:
    """Recommend a way to run a model: one stream, several streams, a captured graph, several GPUs.

    Parameters
    ----------
    graph, cluster, schedulers, cost
        As in `compare`.
    comparison
        The schedulers' `Comparison` on this graph, if it exists already.
    source, options
        The graph's name on the command line, and the options that name the cluster, for the commands to type next.
    backend
        The backend that these commands measure with: ``"torch"`` for a model that PyTorch will run.

    Returns
    -------
    Advice
        One stream as PyTorch launches it operator by operator, as a lean host launches it, and as a CUDA graph, which
        is the baseline of speedups; the best streams, launched and captured; and on several GPUs of one kind a request
        split over all of them, and a copy of the model on each.

    Raises
    ------
    SimschedError
        As `compare` does, and if no operators can run one after the other.

    Notes
    -----
    The row of eager execution has no range, see `simsched.experiments.baselines`. Among the schedules within 1 % of the
    least makespan, the one with the fewest streams is taken; ablations of schedulers are left out. Only schedules of
    unchanged operators can be deployed: a schedule that rewrites operators (merges convolutions, say) is named where it
    is faster, and never recommended. Operators of unknown kinds have only their bytes; where they take more than a
    tenth of the time, there is no advice, and `best` is the captured stream. "One GPU" is the first. Replicas have the
    best schedule of one GPU: with k requests in flight on n GPUs each has k / n, in whole requests. Ranges are computed
    as in `compare`, in worlds common to all rows, and throughputs as in `simsched.throughput`. A graph with symmetric
    collectives is the graph that each of several GPUs runs: it is neither split further nor copied.

    >>> import simsched as ss
    >>> ops = [ss.Operator(name, time=100.0, utilization=0.3) for name in "abc"]
    >>> found = advise(ss.OpGraph(ops, name="three"), ss.Cluster.preset("a100"))
    >>> found.best, found.plan.n_streams
    ('streams captured', 3)
    """
    graph, whole = bind(graph, cluster)
    n = len(of_one_rank(graph, whole))
    if comparison is None:
        comparison = compare(graph, cluster, schedulers, cost)
    first = with_cluster(cluster, resize(whole, 1))
    alone = comparison if n == 1 else compare(graph, first, schedulers, cost, ranges=False)
    one = baselines(graph, cluster, cost)
    runs = {name: (with_execution(one.plan, trace.program.execution), trace) for name, trace in one.traces.items()}
    plans = [plan for name, plan in alone.plans.items() if name not in _ABLATIONS]
    deployable = [plan for plan in plans if not plan.rewriting]
    for name, execution in ((_STREAMS, None), (_BOTH, "graph")):
        if deployable:
            runs[name] = _best(deployable, whole, cluster, cost, execution)
    lone = min(runs, key=lambda name: runs[name][1].makespan)
    rewritten = [plan for plan in plans if plan.rewriting]
    beyond = _best(rewritten, whole, cluster, cost, "graph") if rewritten else None
    split = f"split over {n} GPUs"
    copies = f"replicas on {n} GPUs"
    wide = [
        plan
        for name, plan in comparison.plans.items()
        if len(plan.devices_used) > 1 and name not in _ABLATIONS and not plan.rewriting
    ]
    if wide:
        runs[split] = min((_best(wide, whole, cluster, cost, how) for how in (None, "graph")), key=_makespan)
    programs = {name: trace.program for name, (_, trace) in runs.items() if name != EAGER}
    ranged, doubt = ranges(programs, cluster, cost, reference=programs[CAPTURED])
    base = runs[CAPTURED][1].makespan
    rows = [_row(name, *run, base, cluster, cost, ranged.get(name)) for name, run in runs.items()]
    if not deployable:
        rows.append(Deployment(_STREAMS, reason="each schedule rewrites operators, and nothing here deploys that"))
    if n > 1 and not wide:
        rows.append(Deployment(split, reason="no scheduler uses more than one GPU"))
    if n > 1 and len(whole.kinds) == 1:
        single = rows[list(runs).index(lone)]
        rates = dict(zip(IN_FLIGHT, single.requests_per_s, strict=True))
        rows.append(replace(single, name=copies, requests_per_s=tuple(_on_copies(rates, n, k) for k in IN_FLIGHT)))
        runs[copies] = runs[lone]
    surely_split = wide and _is_surely_faster(runs[split][1], runs[lone][1], cluster, cost)
    best, verdict = _verdict(
        rows,
        n,
        "" if doubt is None else doubt.basis,
        surely_split=bool(surely_split),
        n_streams={name: plan.n_streams for name, (plan, _) in runs.items()},
    )
    doubtful = bounded_by_bytes(graph, whole.devices[0])
    if doubtful is not None and share_of_unknown(graph, whole.devices[0]) > DOUBTFUL:
        best = CAPTURED
        verdict = (f"No advice: {doubtful}.",)
        beyond = None
    elif doubtful is not None:
        verdict = (*verdict, f"{doubtful}.")
    if beyond is not None and beyond[1].makespan * _AS_GOOD < runs[best][1].makespan:
        verdict = (*verdict, _out_of_reach(*beyond, base))
    plan = runs[best][0]
    commands = dict(_commands(next(row for row in rows if row.name == best), plan, source, options, backend))
    return Advice(
        graph.name,
        whole.name,
        tuple(rows),
        best,
        verdict,
        dict(_assumptions(graph, cluster)),
        commands,
        doubt,
        {name: plan for name, (plan, _) in runs.items()},
        comparison,
    )


def _is_surely_faster(one: Trace, other: Trace, cluster: Target, cost: CostModel | None) -> bool:
    """Return whether the whole range of a run's speedup over another run is above 1."""
    ranged, _ = ranges({"one": one.program}, cluster, cost, reference=other.program)
    return "one" in ranged and (ranged["one"].speedup_low or 0.0) > 1.0


def _out_of_reach(plan: Schedule, trace: Trace, base: float) -> str:
    """Return a sentence on a schedule that is faster than the recommended one and cannot be deployed."""
    return (
        f"{plan.scheduler}, captured, is simulated {base / trace.makespan:.2f} times as fast as one stream captured, "
        f"but it rewrites operators ({len(plan.rewriting)}), and nothing here deploys that."
    )


def _makespan(each: tuple[Schedule, Trace]) -> float:
    return each[1].makespan


def _best(
    plans: Sequence[Schedule], whole: Any, cluster: Target, cost: CostModel | None, execution: str | None
) -> tuple[Schedule, Trace]:
    """Return the simplest of the schedules that are as good as the best, and its latency.

    `execution` None: launched by the host; a plan that is a captured graph then has events.
    """
    ways = []
    for plan in plans:
        how = execution or ("events" if plan.execution == "graph" else plan.execution)
        run = with_execution(plan, how)
        ways.append((run, simulate(run.lower(whole), cluster, cost)))
    least = min(map(_makespan, ways))
    near = [way for way in ways if way[1].makespan <= _AS_GOOD * least]
    return min(near, key=lambda each: (each[0].n_streams, each[1].program.n_syncs, each[1].makespan))


def _row(
    name: str, plan: Schedule, trace: Trace, base: float, cluster: Target, cost: CostModel | None, found: Ranged | None
) -> Deployment:
    shares = trace.critical_path().shares
    low, high, slow, fast, place = found or (None, None, None, None, None)
    execution = "eager" if name == EAGER else trace.program.execution
    speedup = base / trace.makespan if trace.makespan else 1.0
    return Deployment(
        name,
        plan.scheduler,
        execution,
        trace.makespan,
        low,
        high,
        speedup,
        slow,
        fast,
        place,
        tuple(requests_per_s(trace.program, cluster, k, cost) for k in IN_FLIGHT),
        max(trace.peak_memory().values()),
        shares["launch"] + shares["sync"],
    )


def _on_copies(rates: Mapping[int, float], n: int, k: int) -> float:
    """Return the requests per s of n copies with k requests in flight, spread evenly; between rates that are known.

    >>> _on_copies({1: 100.0, 2: 150.0, 4: 200.0, 8: 200.0}, 2, 4), _on_copies({1: 100.0, 2: 150.0}, 4, 2)
    (300.0, 200.0)
    """
    share, more = divmod(k, n)
    few, many = np.interp([share, share + 1], [0, *rates], [0.0, *rates.values()]).tolist()
    return (n - more) * float(few) + more * float(many)


def _verdict(
    rows: Sequence[Deployment], n: int, basis: str, *, surely_split: bool, n_streams: Mapping[str, int]
) -> tuple[str, tuple[str, ...]]:
    """Return the recommended way, and two sentences with the reason."""
    by_name = {row.name: row for row in rows if row.reason is None}
    captured = by_name[CAPTURED]
    alone = [by_name[name] for name in (CAPTURED, ONE, _STREAMS, _BOTH) if name in by_name]
    best = min(alone, key=lambda row: row.latency_us or 0.0)
    low = best.speedup_low
    high = best.speedup_high
    gain = format_gain(best.speedup or 1.0, low, high, " times", f", {basis}")
    gain += " as fast as one stream captured as a CUDA graph"
    if (best.speedup or 1.0) < WORTH:
        first = f"One stream captured as a CUDA graph is enough: nothing on one GPU is {WORTH - 1:.0%} faster"
        first += "" if best is captured else f" ({best.name} is {gain})"
        best = captured
    else:
        may, both = ("", "") if (low or 0.0) > 1.0 else ("may ", ": measure both")
        if best.name == ONE:
            first = f"Launching {may}beat{'' if may else 's'} capture: one stream, launched, is {gain}{both}"
        else:
            who = f"{best.scheduler}{', captured,' if best.name == _BOTH else ''} on {n_streams[best.name]} streams"
            if n_streams[best.name] > _MOST_COMPILED:
                who += f" (torch.compile takes {_MOST_COMPILED} at most, and gains less)"
            first = f"Streams {may}pay: {who} is {gain}{both}"
        loaded = best.requests_per_s[-1] / captured.requests_per_s[-1]
        first += f"; with {IN_FLIGHT[-1]} requests in flight it serves {loaded:.2f} times as many"
    if n > 1:
        return best.name, (f"{first}.", f"{_on_several(by_name, best, n, surely_split)}.")
    most = max(rows, key=lambda row: row.requests_per_s[-1])
    ratio = most.requests_per_s[-1] / captured.requests_per_s[-1]
    second = f"Under load no way serves {WORTH - 1:.0%} more requests than one stream captured"
    if ratio >= WORTH:
        second = f"Under load, with {IN_FLIGHT[-1]} in flight, {most.name} serves most: {ratio:.2f} times as much"
    return best.name, (f"{first}.", f"{second}.")


def _on_several(rows: Mapping[str, Deployment], best: Deployment, n: int, surely_split: bool) -> str:
    """Return whether several GPUs pay."""
    split = rows.get(f"split over {n} GPUs")
    copies = rows.get(f"replicas on {n} GPUs")
    sentences = [f"no scheduler splits a request over {n} GPUs"]
    if split is not None:
        ratio = (best.latency_us or 0.0) / (split.latency_us or 1.0)
        pays = "does not pay" if ratio < WORTH else "pays" if surely_split else "may pay, measure both"
        sentences = [f"splitting a request over {n} GPUs {pays}: {ratio:.2f} times as fast as {best.name}"]
    if copies is not None:
        ratio = copies.requests_per_s[-1] / best.requests_per_s[-1]
        sentences.append(
            f"a copy of the model on each serves {ratio:.2f} times the requests with {IN_FLIGHT[-1]} in flight"
        )
    text = "; ".join(sentences)
    return text[0].upper() + text[1:]


def _number_formats(graph: OpGraph) -> list[str]:
    """Return the number formats of the operators.

    An operator of a trace has a time and no work: its fp32 is the default of `Operator`, not how it computed.
    """
    codes, texts = graph.labels("dtype")
    works, known_works = graph.labels("works")
    timed = ~np.isnan(graph.time) & (graph.flops == 0.0)
    formats = set()
    for code, work, is_timed in zip(codes.tolist(), works.tolist(), timed.tolist(), strict=True):
        unstated = is_timed and texts[code] == "fp32" and not known_works[work]
        formats.add("not stated (times are given)" if unstated else texts[code])
    return sorted(formats)


def _assumptions(graph: OpGraph, cluster: Target) -> Iterator[tuple[str, str]]:
    yield "number format", " and ".join(_number_formats(graph))
    shapes = next(((op.name, op.output_shape) for op in graph.operators if op.output_shape), None)
    yield "shapes", "not known" if shapes is None else f"as read: {shapes[0]} makes {' x '.join(map(str, shapes[1]))}"
    ranks = [meeting.collective.ranks for meeting in graph.meetings if meeting.is_symmetric]
    if ranks:
        yield "ranks", f"{max(ranks)} that run this graph, each on a GPU of its own; one is simulated"
    device = bare(cluster).devices[0]
    yield "device", f"{device.model}, {device.sms} SMs"
    date = getattr(cluster, "provenance", {}).get("date", "")[:10] if cluster is not bare(cluster) else None
    yield "calibration", "uncalibrated: priors and data sheets" if date is None else f"calibrated {date}".strip()
