"""What is compiled, as Python, as unoptimised and as optimised machine code: the same to the last bit."""

from dataclasses import replace
from itertools import product
from random import Random

import numpy as np
import pytest
from drawn import program

import simsched as ss
import workloads
from simsched.base.errors import DeadlockError, ScheduleError
from simsched.base.jit.pieces import running
from simsched.model.costmodel import default_cost
from simsched.model.lowering import OPTIONS, Lowering
from simsched.model.lowering.native import VectorClock
from simsched.schedulers.search import Candidate
from simsched.schedulers.search.walk import Walk
from simsched.schedulers.stage_costs import StageFormula

THREE = ss.Cluster.preset("a40", 3)
UNEQUAL = replace(THREE, devices=(*THREE.devices[:2], replace(THREE.devices[2], copy_rate=2e3)))


def agreed(what, *arguments):
    """What a function returns in each of the three ways."""
    found = []
    for how in ("0", "O0", "O3"):
        with running(how):
            found.append(what(*arguments))
    assert found[1] == found[0]
    assert found[2] == found[0]
    return found[0]


def planned(graph, cluster, scheduler, options):
    plan = ss.schedule(graph, cluster, scheduler, **options)
    return plan.placements, plan.estimate, {**plan.search, "time_s": 0.0}


# --- list schedulers, HIOS, IOS, search

GRAPH = workloads.random_layered(n_ops=24, n_layers=4, comm_ratio=0.8, rng=5)
MIXED = ss.OpGraph.from_columns(
    [f"o{i}" for i in range(len(GRAPH))],
    GRAPH.src,
    GRAPH.dst,
    time=GRAPH.time,
    edge_nbytes=np.arange(len(GRAPH.src)) % 3 * 1e5,
    edge_transfer=np.where(np.arange(len(GRAPH.src)) % 5, np.nan, 2.0),
)
LISTS = [
    ("lios", {}),
    ("lios", {"overheads": True, "streams": 3}),
    ("lios-rand", {}),
    ("heft", {}),
    ("heft", {"insertion": False}),
    ("heft", {"streams": 1}),
    ("peft", {}),
]


@pytest.mark.parametrize(("name", "options"), LISTS)
@pytest.mark.parametrize("n", [1, 3])
def test_lists(name, options, n):
    agreed(planned, MIXED, ss.Cluster.preset("a40", n), name, options)


@pytest.mark.parametrize("scheduler", ["hios-lp", "hios-mr"])
def test_hios(scheduler):
    merged = []
    for seed, cluster, mode in product((0, 1), (THREE, UNEQUAL), ("paper", "impl")):
        graph = workloads.random_layered(n_ops=30, n_layers=6, n_edges=60, comm_ratio=0.4, rng=seed)
        edges = [replace(edge, transfer=None, nbytes=1e6) if k % 2 else edge for k, edge in enumerate(graph.edges)]
        options = {"mode": mode, "w": 3, "stage_latency": "hios-sim"}
        *_, search = agreed(planned, ss.OpGraph(graph.operators, edges), cluster, scheduler, options)
        merged.append(search["stages_merged"])
    assert max(merged) > 2


def long():
    """A chain of 66, which takes two words of a mask, and an operator beside it."""
    rows = [ss.Operator(f"o{k}", time=1.0 + k % 7) for k in range(67)]
    return ss.OpGraph(rows, [ss.Edge(f"o{k}", f"o{k + 1}") for k in range(65)])


def latency(groups, merged=False):
    return 0.1 + sum(map(len, groups)) ** 0.5 - merged


@pytest.mark.parametrize("stage_latency", [StageFormula(), latency], ids=["formula", "costs"])
@pytest.mark.parametrize(
    "options", [{"r": 2, "s": 2}, {"endings": "single_root", "r": 3}], ids=["exact", "single_root"]
)
def test_ios(stage_latency, options, monkeypatch):
    """Memory grows and the clock is looked at time and again; at random, with operators to merge, with more than 63."""
    monkeypatch.setattr("simsched.schedulers.ios.endings._FIRST_ROOM", 16)
    monkeypatch.setattr("simsched.schedulers.ios.endings._STEPS", 997)
    merged = 0
    for graph in (workloads.random_layered(n_ops=12, n_layers=4, rng=0), workloads.load("squeezenet"), long()):
        how = {"blocks": "none", "stage_latency": stage_latency, **options}
        *_, search = agreed(planned, graph, ss.Cluster.preset("a100"), "ios", how)
        assert search["cut_blocks"] == []
        merged += search["merged_transitions"]
    assert merged > 0


def walked(captured):
    """What some walks make of a candidate at a temperature at which most changes are taken, and some are not."""
    graph = workloads.random_layered(n_ops=20, n_layers=4, comm_ratio=0.8, rng=5)
    candidate = Candidate(ss.schedule(graph, THREE, "sequential"), THREE, 3)
    walk, rng = Walk(candidate.rows[:4], 3, graph, THREE, default_cost, captured=captured), np.random.default_rng(7)
    found = []
    for _ in range(6):
        makespan = walk.change(candidate.order[:9].copy(), 50.0, rng)
        walk.adapt(1.0)
        found.append((makespan, candidate.rows.tolist(), walk._moves.tolist()))
    return found


@pytest.mark.parametrize("captured", [False, True])
def test_walks_of_the_search(captured):
    agreed(walked, captured)


# --- lowering


def programs(execution, options):
    """What becomes of candidates: on few streams, on streams of large numbers, without room for clocks, on none."""
    many = Lowering(MIXED, ss.Cluster.preset("a100", 3), execution, **options)
    many._table["clocks"], many._table.room = np.empty(2, VectorClock.dtype), 2
    rng, n, found = np.random.default_rng(1), len(MIXED), []
    for streams in (2, 9, 100_000):
        columns = rng.integers(0, 3, n), rng.integers(0, streams, n), np.sort(rng.integers(0, 5, n))
        program = many.program(np.arange(n), *columns)
        found += [[list(thread) for thread in program.threads], program.copies.op.tolist()]
    with pytest.raises(ScheduleError) as refused:
        many.program(np.arange(n), 0, -1)
    return [*found, str(refused.value)]


@pytest.mark.parametrize("execution", ["events", "stages"])
@pytest.mark.parametrize("choice", list(product(*OPTIONS.values())))
def test_lowering(execution, choice):
    agreed(programs, execution, dict(zip(OPTIONS, choice, strict=True)))


# --- the simulator


def outcome(gpus, document, jitter):
    """Everything that a run says; a program of its own, for a plan is kept with it."""
    program = ss.Program.from_dict(document)
    try:
        trace = ss.simulate(program, gpus, jitter=jitter, rng=0)
    except DeadlockError as error:
        return str(error)
    many = ss.simulate_many(program, gpus, 3, jitter=jitter, rng=0).values.tolist() if jitter else []
    return len(trace), trace, many  # the spans are made when something asks for them, here by their number


@pytest.mark.parametrize("seed", range(14))
def test_runs(seed):
    """As it was drawn, and without one of its records, if it has any."""
    gpus, drawn, jitter = program(Random(seed), 30, 50)
    document = drawn.to_dict()
    agreed(outcome, gpus, document, jitter)
    for thread in document["threads"]:
        thread[:] = [row for row in thread if row["do"] != "record"]
    agreed(outcome, gpus, document, None)


def test_stages():
    gpus, drawn, _ = program(Random(0), 9, 9)
    stage, names = ss.StageLatency(drawn.graph, gpus), drawn.graph.names
    for groups in ([names[:1]], [[op] for op in names], [names[:4], names[4:8]]):
        assert agreed(stage, groups) > 0
