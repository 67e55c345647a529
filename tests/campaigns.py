"""A small measurement campaign on the surrogate, kept as the one of an H100 was."""

from dataclasses import replace

import hwbackend
import workloads
from simsched.calibration.training import random_schedule
from simsched.model import EXECUTIONS, Schedule
from simsched.model.profile import MeasuredOperator, Profile
from simsched.schedulers import schedule
from validation.hardware.graphs import convolutions

SUBJECT = "dag"
GRAPH = "random:layered,n_ops=10,n_layers=3,n_edges=16,time=20:100,seed=1"
SCHEDULERS = ("sequential", "greedy", "heft", "opara")
STREAMS = 4


def measure_campaign(store):
    """Put a profile with two training schedules, ten held-out schedules, and a pair of convolutions into a store."""
    backend = hwbackend.get("synthetic")
    environment = {"device": "none", "date": "2026-11-21", "commit": "0"}
    store.header.update(plan="tiny", environment={backend.name: environment}, unmeasured={})
    store.save_header()
    profile = backend.profile(workloads.from_spec(GRAPH), in_situ=2, rng=1)
    store.put(f"profiles/{backend.name}/{SUBJECT}", {"profile": profile.to_dict()})
    timed = profile.apply(profile.graph)
    plans = [schedule(timed, backend.cluster, name).like(scheduler=name) for name in SCHEDULERS]
    plans += [plan.like(execution="graph", scheduler=f"{plan.scheduler}/graph") for plan in plans[:3]]
    for number, execution in enumerate(EXECUTIONS):
        name = f"random-{execution}"
        drawn = random_schedule(timed, backend.cluster, rng=number, streams=STREAMS, execution=execution, name=name)
        plans.append(drawn)
    for plan in plans:
        run = replace(backend.replay(plan.over(profile.graph), repeats=6, warmup=2), name=plan.scheduler)
        held_out = replace(profile, runs=(run,))
        store.put(f"held-out/{backend.name}/{SUBJECT}/{plan.scheduler}", {"profile": held_out.to_dict()})
    store.put(f"hios-fig1/{backend.name}/8", {"profile": pair_of(backend, convolutions(8)).to_dict()})


def pair_of(backend, graph):
    """Two operators one after the other and side by side, launched one by one and as a graph."""
    graph = backend.realise(graph)
    device = (backend.cluster.devices[0].name,)
    runs = []
    for execution in ("events", "graph"):
        for streams, name in ((1, "sequential"), (2, "parallel")):
            lanes = [i % streams for i in range(len(graph))]
            plan = Schedule.from_columns(graph, graph.order_index, device, stream=lanes, execution=execution)
            runs.append(replace(backend.replay(plan), name=f"{execution}/{name}"))
    operators = tuple(MeasuredOperator(name, (1.0,)) for name in graph.names)
    return Profile(operators, runs=tuple(runs), graph=graph, cluster=backend.cluster)
