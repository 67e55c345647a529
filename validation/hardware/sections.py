"""Sections of the campaign: measurements, item by item, most important first."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final
from zlib import crc32

import numpy as np

from hwbackend import Backend
from hwbackend.contact.store import Store
from simsched.base.errors import SimschedError
from simsched.calibration.training import random_schedule
from simsched.model import EXECUTIONS, Cluster, OpGraph, Schedule
from simsched.model.profile import MeasuredOperator, Profile, Replay
from simsched.model.trace import KERNEL
from simsched.schedulers import FAST_UP_TO, SCHEDULERS, schedule, takes
from validation.hardware import graphs

Json = dict[str, Any]
Measure = Callable[[], Json]
RANDOM_HELD_OUT: Final = ("random-stages", "random-events", "random-graph")
_OTHERWISE: Final = {
    "greedy/events": ("greedy", "events"),
    "greedy/graph": ("greedy", "graph"),
    "sequential/graph": ("sequential", "graph"),
}
# Options with which schedulers leave the graph as it was profiled: of merged operators nothing was measured.
_AS_IT_IS: Final[Mapping[str, Json]] = {"ios": {"strategy": "parallel"}, "autograph": {"rules": ()}}
_SEARCH: Final = 4.0  # s that a scheduler may take
_STREAMS: Final = 4  # of a schedule at random
_LONGEST: Final = 0.4e6  # us that the repeats of one schedule may take in all
_LEAST_REPEATS: Final = 6
_CHECKS: Final = 3  # repeats where only values count


class NotYetError(SimschedError):
    """The basis of an item was not measured."""


@dataclass(frozen=True)
class Plan:
    """The contents of a campaign.

    Parameters
    ----------
    subjects
        Graphs that are profiled and scheduled: workload and batch by name; see `graphs.workload`.
    kernels, whole
        Single operators and small graphs whose values are checked.
    hios_sizes, opara_sizes
        Sizes of the images of the pairs of operators, in pixels.
    microbenchmarks
        Whether the device's sections run.
    in_situ
        Training schedules of each graph, besides those on one stream.
    schedulers
        Whose schedules are held out.
    repeats
        Most repeats of each held-out schedule; of a long one fewer.
    """

    subjects: Mapping[str, tuple[str, int]]
    kernels: Sequence[str] = tuple(graphs.KERNELS)
    whole: Sequence[str] = graphs.WHOLE
    hios_sizes: Sequence[int] = graphs.HIOS_SIZES
    opara_sizes: Sequence[int] = graphs.OPARA_SIZES
    microbenchmarks: bool = True
    in_situ: int = 8
    schedulers: Sequence[str] = tuple(SCHEDULERS)
    repeats: int = 20


_SMALL: Final = ("tiny_inception", "random:layered,n_ops=14,n_layers=4,n_edges=24,time=20:100,seed=1")
PLANS: Final[Mapping[str, Plan]] = {
    "full": Plan(graphs.subjects()),
    "small": Plan(
        {name: (name, 1) for name in _SMALL},
        kernels=("conv 3x3", "add 2"),
        whole=graphs.WHOLE[:1],
        hios_sizes=(8, 64),
        opara_sizes=(28,),
        in_situ=3,
        schedulers=("sequential", "greedy", "heft", "hios-lp", "opara"),
        repeats=8,
    ),
}
"""By name; "small" is a trial of everything."""


@dataclass(frozen=True)
class Section:
    """Items of a kind, most important first: the measuring function of each, by key; and their part of the time."""

    name: str
    share: float
    items: Mapping[str, Measure]


class Bench:
    """A backend, and its earlier measurements."""

    def __init__(self, backend: Backend, store: Store, plan: Plan) -> None:
        self.backend, self.plan = backend, plan
        self._store = store
        self._profiles: dict[str, tuple[Profile, OpGraph]] = {}

    def profile(self, subject: str) -> tuple[Profile, OpGraph]:
        """Return the profile of a graph, and the graph with the times that were measured.

        Raises
        ------
        NotYetError
            If it has none.
        """
        key = f"profiles/{self.backend.name}/{subject}"
        if key not in self._store:
            raise NotYetError(f"{subject} has no profile")
        if subject not in self._profiles:
            profile = Profile.from_dict(self._store[key]["profile"], key)
            assert profile.graph is not None, "every profile of a graph has it"
            self._profiles = {subject: (profile, profile.apply(profile.graph))}  # the next one is of another graph
        return self._profiles[subject]


def sections_of(benches: Sequence[Bench]) -> list[Section]:
    """Return all sections; the first backend goes before the others."""
    first, *others = benches
    found = [*_of_graphs(first), _figures(first)]
    for other in others:
        found += [_figures(other), *_of_graphs(other)]
    return found


def pulse(backend: Backend) -> Replay:
    """Run next to nothing, to see that the device answers."""
    graph = backend.realise(graphs.kernel_graph("relu"))
    return backend.replay(_on_streams(graph, backend.cluster, 2, "events"), repeats=1, warmup=0)


def _of_graphs(bench: Bench) -> Iterator[Section]:
    plan, check = bench.plan, partial(_check, bench.backend)

    def section(what: str, share: float, items: Mapping[str, Measure]) -> Section:
        name = f"{what}/{bench.backend.name}"
        return Section(name, share, {f"{name}/{key}" if key else name: measure for key, measure in items.items()})

    kernels = {kernel: partial(check, partial(graphs.kernel_graph, kernel), "events") for kernel in plan.kernels}
    whole = {
        f"{spec}/{execution}": partial(check, partial(graphs.workload, spec, 1), execution)
        for spec in plan.whole
        for execution in EXECUTIONS
    }
    yield section("kernels", 1.5, kernels | whole)
    if plan.microbenchmarks:
        yield section("microbenchmarks", 2.0, {"": lambda: {"profile": bench.backend.microbenchmarks().to_dict()}})
    yield section("profiles", 4.0, {subject: partial(_profile, bench, subject) for subject in plan.subjects})
    made = [*plan.schedulers, *(way for way, (by, _) in _OTHERWISE.items() if by in plan.schedulers), *RANDOM_HELD_OUT]
    held_out = {
        f"{subject}/{way}": partial(_held_out, bench, subject, way)
        for slow in (False, True)
        for subject in plan.subjects
        for way in made
        if FAST_UP_TO.get(way, 1) and (way in FAST_UP_TO) == slow
    }
    yield section("held-out", 6.0, held_out)


def _figures(bench: Bench) -> Section:
    name, plan = bench.backend.name, bench.plan
    pairs = {f"hios-fig1/{name}/{size}": partial(graphs.convolutions, size) for size in plan.hios_sizes}
    for size in plan.opara_sizes:
        for other in ("conv", "relu"):
            pairs[f"opara-fig3/{name}/{other}/{size}"] = partial(graphs.unequal, other, size)
    return Section(f"figures/{name}", 1.0, {key: partial(_pair, bench.backend, make) for key, make in pairs.items()})


def _check(backend: Backend, make: Callable[[], OpGraph], execution: str) -> Json:
    graph = backend.realise(make())
    plan = random_schedule(graph, backend.cluster, rng=_seed(graph.name, execution), streams=2, execution=execution)
    run = backend.replay(plan, repeats=_CHECKS, warmup=1)
    check: Json = {"operators": len(graph), "max_relative_error": run.max_relative_error, "median_us": run.median}
    return {"check": check}


def _profile(bench: Bench, subject: str) -> Json:
    graph = graphs.workload(*bench.plan.subjects[subject])
    measured = bench.backend.profile(graph, in_situ=bench.plan.in_situ, rng=_seed(subject, "training"))
    return {"profile": measured.to_dict()}


def _held_out(bench: Bench, subject: str, made: str) -> Json:
    profile, measured = bench.profile(subject)
    assert profile.graph is not None, "every profile of a graph has it"
    plan = _plan(measured, bench.backend.cluster, made, _seed(subject, made)).over(profile.graph)
    alone = sum(op.median for op in profile.operators)
    repeats = max(min(_LEAST_REPEATS, bench.plan.repeats), min(bench.plan.repeats, round(_LONGEST / max(alone, 1.0))))
    run = replace(bench.backend.replay(plan, repeats=repeats, warmup=2), name=made)
    return {"profile": replace(profile, runs=(run,)).to_dict()}


def _plan(graph: OpGraph, cluster: Cluster, made: str, seed: int) -> Schedule:
    """Return the schedule of a name: of a scheduler, of one under another execution, or at random."""
    if made in RANDOM_HELD_OUT:
        execution = made.removeprefix("random-")
        return random_schedule(graph, cluster, rng=seed, streams=_STREAMS, execution=execution, name=made)
    if made in _OTHERWISE:
        by, execution = _OTHERWISE[made]
        return schedule(graph, cluster, by).like(execution=execution, scheduler=made)
    if len(graph) > FAST_UP_TO.get(made, len(graph)):
        raise NotYetError(f"{made} takes too long on {len(graph)} operators")
    options = _AS_IT_IS.get(made, {}) | ({"time_limit": _SEARCH} if takes(made, "time_limit") else {})
    return schedule(graph, cluster, made, **options)


def _on_streams(graph: OpGraph, cluster: Cluster, streams: int, execution: str) -> Schedule:
    """Return operators in their order, dealt out to streams of the first device."""
    order, devices = graph.order_index, (cluster.devices[0].name,)
    return Schedule.from_columns(graph, order, devices, stream=np.arange(len(order)) % streams, execution=execution)


def _pair(backend: Backend, make: Callable[[], OpGraph]) -> Json:
    """Measure two operators one behind the other and side by side, launched one by one and as a captured graph."""
    graph = backend.realise(make())
    runs = [
        replace(backend.replay(_on_streams(graph, backend.cluster, streams, execution)), name=f"{execution}/{what}")
        for execution in ("events", "graph")
        for streams, what in ((1, "sequential"), (2, "parallel"))
    ]
    trace = runs[0].trace
    rows = trace.kind == KERNEL
    times = np.bincount(trace.op[rows], trace.end[rows] - trace.start[rows], len(graph)).tolist()
    operators = tuple(MeasuredOperator(name, (us,)) for name, us in zip(graph.names, times, strict=True))
    return {"profile": Profile(operators, runs=tuple(runs), graph=graph, cluster=backend.cluster).to_dict()}


def _seed(*of: str) -> int:
    return crc32("/".join(of).encode())
