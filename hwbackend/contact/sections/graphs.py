"""Sections: networks of real kernels, and random graphs of synthetic ones; training schedules, then held-out ones."""

from collections.abc import Mapping
from functools import partial
from statistics import median
from typing import Final
from zlib import crc32

import numpy as np

import workloads
from hwbackend.contact.measure import in_turns
from hwbackend.contact.sections.item import Bench, ContactItem, Json
from simsched.base.errors import SimschedError
from simsched.calibration.training import random_schedule, training_schedule
from simsched.model import OpGraph, Schedule
from simsched.model.graph.rearranged import with_times
from simsched.model.profile import Profile
from simsched.model.trace import spans_of
from simsched.schedulers import FAST_UP_TO, SCHEDULERS, schedule, takes

TRAINING = "training"
HELD_OUT = "held-out"
_ORDERS: Final = 3  # sequential orders at random, which say how long operators take
_SEARCH: Final = 2.0  # s that a scheduler may take
_AS_IT_IS: Final[Mapping[str, Json]] = {"ios": {"strategy": "parallel"}, "autograph": {"rules": ()}}
"""Options with which schedulers leave the graph as it was profiled: nothing was measured of merged operators."""
_OTHERWISE: Final = {"greedy/graph": ("greedy", "graph"), "sequential/graph": ("sequential", "graph")}
_AT_RANDOM: Final = ("events", "graph")
_STREAMS: Final = 4
_SECONDS: Final = 3.0  # of a turn


class NotYetError(SimschedError):
    """A measurement that an item builds on is missing."""


def graph_items(section: str, subjects: Mapping[str, tuple[str, int]], turns: int) -> list[ContactItem]:
    """Return the items of graphs: for each one turns of its training schedules, then turns of those held out."""
    return [
        ContactItem(
            f"{section}/{subject}/{part}-{turn}", 1.5 * _SECONDS, partial(measure, section=section, subject=subject)
        )
        for subject in subjects
        for part, measure in ((TRAINING, _train), (HELD_OUT, _hold_out))
        for turn in range(turns)
    ]


def _graph(bench: Bench, section: str, subject: str) -> OpGraph:
    """Return a graph as the backend runs it."""
    key = f"graph/{section}/{subject}"
    if key not in bench.memory:
        if section == "networks":
            subjects = bench.size.networks
        else:
            subjects = bench.size.graphs
        spec, batch = subjects[subject]
        bench.memory[key] = bench.device.backend.realise(workloads.from_spec(spec, batch=batch))
    graph: OpGraph = bench.memory[key]
    return graph


def _train(bench: Bench, section: str, subject: str) -> Json:
    graph = _graph(bench, section, subject)
    cluster = bench.device.cluster
    rng = np.random.default_rng(_seed(subject, TRAINING))
    plans = [
        random_schedule(graph, cluster, rng=rng, streams=1, execution="events", name=f"in-situ/sequential-{i}")
        for i in range(_ORDERS)
    ]
    for i in range(bench.size.in_situ):
        drawn = training_schedule(graph, cluster, i, rng=rng)
        plans.append(drawn.like(execution=drawn.execution, scheduler=f"in-situ/streams-{i}"))
    return in_turns(bench.device, plans, _SECONDS)


def _hold_out(bench: Bench, section: str, subject: str) -> Json:
    key = f"plans/{section}/{subject}"
    if key not in bench.memory:
        bench.memory[key] = _held_out_plans(bench, section, subject)
    plans, refused = bench.memory[key]
    found = in_turns(bench.device, plans, _SECONDS)
    return found | ({"failed": refused | found.get("failed", {})} if refused else {})


def _held_out_plans(bench: Bench, section: str, subject: str) -> tuple[list[Schedule], dict[str, str]]:
    """Return the schedules of every scheduler with the times just measured, and why a scheduler has none."""
    graph = _graph(bench, section, subject)
    times = measured_times(bench, section, subject)
    timed = with_times(graph, np.array([times[name] for name in graph.names]))
    plans: list[Schedule] = []
    refused: dict[str, str] = {}
    known = [name for name in SCHEDULERS if FAST_UP_TO.get(name, 1)]
    chosen = [name for name in known if not bench.size.schedulers or name in bench.size.schedulers]
    for name in (*chosen, *_OTHERWISE):
        by, execution = _OTHERWISE.get(name, (name, None))
        if len(graph) > FAST_UP_TO.get(by, len(graph)):
            refused[name] = f"it takes too long on {len(graph)} operators"
            continue
        options = _AS_IT_IS.get(by, {}) | ({"time_limit": _SEARCH} if takes(by, "time_limit") else {})
        try:
            plan = schedule(timed, bench.device.cluster, by, **options).over(graph)
        except SimschedError as error:
            refused[name] = str(error)
            continue
        plans.append(plan.like(execution=execution or plan.execution, scheduler=name))
    for execution in _AT_RANDOM:
        plans.append(
            random_schedule(
                graph,
                bench.device.cluster,
                rng=_seed(subject, execution),
                streams=_STREAMS,
                execution=execution,
                name=f"random-{execution}",
            )
        )
    return plans, refused


def measured_times(bench: Bench, section: str, subject: str) -> dict[str, float]:
    """Return the us of each operator of a graph in place, by name: the median over its sequential schedules.

    Raises
    ------
    NotYetError
        If no training schedule was measured.
    """
    samples: dict[str, list[float]] = {}
    prefix = f"{section}/{subject}/{TRAINING}-"
    for key, line in bench.record.items.items():
        if key.startswith(prefix):
            for name, us in sequential_times(Profile.from_dict(line["profile"], key)):
                samples.setdefault(name, []).append(us)
    if not samples:
        raise NotYetError(f"{subject} has no training schedules: they failed, or there was no time for them")
    return {name: median(values) for name, values in samples.items()}


def sequential_times(profile: Profile) -> list[tuple[str, float]]:
    """Return the name and the us of each operator of the sequential runs of a profile."""
    found = []
    for run in profile.runs:
        if not run.name.startswith("in-situ/sequential"):
            continue
        launches = spans_of(run.trace).launches
        ptr = run.program.launches.ptr.tolist()
        for i, name in enumerate(run.program.graph.names):
            rows = launches[ptr[i] : ptr[i + 1]]
            found.append((name, float(rows[:, 1].max() - rows[:, 0].min()) if len(rows) else 0.0))
    return found


def _seed(*names: str) -> int:
    return crc32("/".join(names).encode())
