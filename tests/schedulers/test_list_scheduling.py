"""LIOS, HEFT and its kin: the tables their papers print, and their definitions in plain Python."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from listing_oracle import Oracle, listed
from small import made
from strategies import clusters, graphs

import workloads
from simsched.model import Cluster, OpGraph, default_cost
from simsched.model.cluster.device import OVERHEADS
from simsched.schedulers import list_scheduling, schedule
from simsched.schedulers.etf import etf
from simsched.schedulers.heft import heft
from simsched.schedulers.instance import Instance
from simsched.schedulers.lios import lios, lios_rand, lios_rand1, lios_rand2
from simsched.schedulers.peft import optimistic_costs, peft
from simsched.simulator import simulate

ONE = Cluster.preset("a100")
RANDOM = {"lios-rand1": lios_rand1, "lios-rand2": lios_rand2, "lios-rand": lios_rand}
each_random = pytest.mark.parametrize("scheduler", RANDOM.values(), ids=RANDOM)


def charged(**costs):
    """One device on which issuing and ordering work costs nothing but what is given, without contention."""
    return ONE.without_overheads().replace_devices(contention=False, **costs)


# Table III ---------------------------------------------------------------------------------------

TIMES = "v1=3 v2=5 v3=5 v4=5 v5=8 v6=15 v7=10 v8=7 v9=13 v10=2"
FORCED = "v1-v2 v1-v3 v1-v4 v1-v5 v5-v8 v3-v6 v4-v7 v7-v9 v9-v10"
# (operator, stream, start, finish) step by step; the finish of step 6 is printed as 13, a misprint: 8 + 15 = 23
TABLE_III = [
    ("v1", 1, 0, 3),
    ("v5", 1, 3, 11),
    ("v8", 1, 11, 18),
    ("v2", 2, 3, 8),
    ("v3", 3, 3, 8),
    ("v6", 2, 8, 23),
    ("v4", 3, 8, 13),
    ("v7", 3, 13, 23),
    ("v9", 1, 23, 36),
    ("v10", 1, 36, 38),
]


@pytest.mark.parametrize(("v2", "v6", "v8"), [*product(("v6", "v7", "v9", "v10"), ("v9", "v10"), ("v9", "v10"))])
def test_table_iii_whatever_edges_it_leaves_open(v2, v6, v8):
    """Nine edges follow from the table; where v2, v6 and v8 lead does not: all sixteen choices give every step."""
    graph = made(TIMES, f"{FORCED} v2-{v2} v6-{v6} v8-{v8}")
    plan = schedule(graph, ONE, lios, streams=3)
    times = listed(plan, ONE)
    assert [(row.op, row.stream + 1, *times[row.op][2:]) for row in plan.placements] == TABLE_III
    assert plan.estimate == 38
    assert graph.time.sum() == 73


# By hand -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("streams", [1, 4])
def test_estimates_with_overheads_come_true(streams):
    """Without contention, waits and records: what is simulated. Some operators launch several kernels."""
    graph = workloads.load("inception_v3")
    cluster = charged(launch=4.0, gap=0.9, hop=2.0)
    plan = schedule(graph, cluster, lios, streams=streams, overheads=True)
    assert simulate(plan, cluster).makespan == pytest.approx(plan.estimate, rel=1e-9)
    ignored = schedule(graph, cluster, lios, streams=streams)
    assert simulate(plan, cluster).makespan <= simulate(ignored, cluster).makespan


# The definition ----------------------------------------------------------------------------------


def plain(graph, cluster, streams, rank, overheads):
    """Algorithm 1 in plain Python, ready operators in a list: {operator: (stream, start, finish)}, step by step."""
    oracle, device = Oracle(graph, cluster, streams), cluster.devices[0]
    value = oracle.upward() if rank == "upward" else oracle.mean
    clock, placed, waited_for, wait_list = 0.0, {}, set(), oracle.ready({})
    while wait_list:
        i = max(wait_list, key=value.__getitem__)  # the first of equal ones
        wait_list.remove(i)
        choices = []
        for stream in range(streams):
            *_, start, end = oracle.row(i, 0, stream, placed)
            others, issued = {s for s, j, _ in oracle.edges if j == i and placed[s][1] != stream}, 0.0
            if overheads:
                issued = clock + device.wait * len(others) + device.record * len(others - waited_for)
                behind = [row[3] + device.gap for row in placed.values() if row[1] == stream]
                read = [placed[s][3] + device.hop * (s in others) for s, j, _ in oracle.edges if j == i]
                start = max([issued + device.launch, *behind, *read])
                shares = [kernel.share for kernel in graph.operators[i].kernels] or [1.0]
                end, free = start, issued
                for share in shares:  # a kernel starts once it is launched and the one before it is over
                    free += device.launch
                    end = max(end, free) + share * oracle.mean[i]
                issued += device.launch * len(shares)
            choices.append((end, stream, start, issued, others))
        end, stream, start, clock, others = min(choices)
        waited_for |= others
        placed[i] = (0, stream, start, end)
        wait_list += [j for j in oracle.ready(placed) if j not in wait_list]
    return {name: row[1:] for name, row in oracle.named(placed).items()}


@settings(max_examples=60)
@given(
    graph=graphs(max_ops=9, timed=True),
    cluster=clusters(),
    streams=st.integers(1, 4),
    rank=st.sampled_from(["time", "upward"]),
    overheads=st.booleans(),
)
def test_it_is_its_definition(graph, cluster, streams, rank, overheads):
    """With times and overheads in quarters of a microsecond: sums are exact in any order, and ties are ties."""
    device = cluster.devices[0]
    cluster = cluster.replace_devices(**{name: round(4 * getattr(device, name)) / 4 for name in OVERHEADS})
    plan = schedule(graph, cluster, lios, streams=streams, rank=rank, overheads=overheads)
    rows = plain(graph, Cluster(cluster.devices[:1]), streams, rank, overheads)
    assert [(row.op, row.stream) for row in plan.placements] == [(name, row[0]) for name, row in rows.items()]
    assert plan.estimate == pytest.approx(max(end for *_, end in rows.values()), rel=1e-12)
    if not overheads:
        found = listed(plan, cluster)
        assert all(found[name][1:] == pytest.approx(row, rel=1e-12) for name, row in rows.items())


# Random variants ---------------------------------------------------------------------------------


@each_random
def test_another_seed_is_another_schedule(scheduler):
    graph = workloads.load("inception_v3")
    plans = [schedule(graph, ONE, scheduler, rng=seed) for seed in (0, 1, 2)]
    assert plans[0] == schedule(graph, ONE, scheduler)
    assert len({tuple(plan.op) + tuple(plan.stream) for plan in plans}) == 3
    rng = np.random.default_rng(0)
    assert schedule(graph, ONE, scheduler, rng=rng) == plans[0]
    assert schedule(graph, ONE, scheduler, rng=rng) != plans[0]


def test_rand1_takes_any_ready_operator_and_the_stream_where_it_ends_first():
    """Ready operators are equally likely: of a, b, c each comes first 400 times in 1,200, give or take 80 (5 sigma)."""
    graph = made("a=1 b=5 c=3 d=1", "b-d")
    first = [schedule(graph, ONE, lios_rand1, rng=seed).placements[0].op for seed in range(1200)]
    assert [abs(first.count(name) - 400) < 80 for name in "abcd"] == [True, True, True, False]
    plan = schedule(graph, ONE, lios_rand1, streams=2, rng=4)
    found, free = listed(plan, ONE), [0.0, 0.0]
    for row in plan.placements:
        there = found["b"][3] if row.op == "d" else 0.0
        assert row.stream == min((0, 1), key=lambda s: max(free[s], there))
        free[row.stream] = found[row.op][3]


def test_rand2_takes_any_stream_and_the_operators_in_the_order_of_lios():
    """Of three streams each is taken by 400 of 1,200 operators, give or take 80."""
    graph = made(" ".join(f"o{i}={1200 - i}" for i in range(1200)), "")
    plan = schedule(graph, ONE, lios_rand2, streams=3)
    assert plan.op.tolist() == list(range(1200))
    assert all(abs(count - 400) < 80 for count in np.bincount(plan.stream))
    assert list(schedule(graph, ONE, lios_rand2, streams=3, rank="upward").op) == list(plan.op)


def test_rand_takes_any_of_both():
    """Two operators on two streams: each of the eight (order, streams) 100 times in 800, give or take 50."""
    plans = [schedule(made("a=1 b=2", ""), ONE, lios_rand, streams=2, rng=seed) for seed in range(800)]
    seen = [tuple((row.op, row.stream) for row in plan.placements) for plan in plans]
    assert len(set(seen)) == 8
    assert all(abs(seen.count(one) - 100) < 50 for one in set(seen))


ALL = {"heft": heft, "peft": peft, "etf": etf}
each = pytest.mark.parametrize("scheduler", ALL.values(), ids=ALL)
THREE = Cluster.preset("a100", 3)


def placed(plan, cluster, cost=default_cost):
    """{operator: (device number, start, finish)} by list evaluation."""
    rows = listed(plan, cluster, cost)
    return {name: (cluster.index[device], start, end) for name, (device, _, start, end) in rows.items()}


# What the papers print ---------------------------------------------------------------------------


def of_table(table, edges):
    """A graph of operators 1 to n whose times on the three devices stand in a table, and what asks it."""
    graph = made(" ".join(f"{i + 1}=1" for i in range(len(table))), edges)
    return graph, lambda op, device: float(table[int(op.name) - 1][THREE.index[device.name]])


TOPCUOGLU = of_table(
    [
        (14, 16, 9),
        (13, 19, 18),
        (11, 13, 19),
        (13, 8, 17),
        (12, 13, 10),
        (13, 16, 9),
        (7, 15, 11),
        (5, 11, 14),
        (18, 12, 20),
        (21, 7, 16),
    ],
    "1-2:18 1-3:12 1-4:9 1-5:11 1-6:14 2-8:19 2-9:16 3-7:23 4-8:27 4-9:23 5-9:13 6-8:15 7-10:17 8-10:11 9-10:13",
)
ARABNEJAD = of_table(
    [
        (22, 21, 36),
        (22, 18, 18),
        (32, 27, 43),
        (7, 10, 4),
        (29, 27, 35),
        (26, 17, 24),
        (14, 25, 30),
        (29, 23, 36),
        (15, 21, 8),
        (13, 16, 33),
    ],
    "1-2:17 1-3:31 1-4:29 1-5:13 1-6:7 2-8:3 2-9:30 3-7:16 4-8:11 4-9:7 5-9:57 6-8:5 7-10:9 8-10:42 9-10:7",
)


def test_heft_as_its_paper_prints_it():
    """Topcuoglu et al., figures 2 and 3, tables 1 and 2: the ranks, and the schedule of length 80."""
    graph, cost = TOPCUOGLU
    rank = Instance(graph, THREE, cost).upward_rank()
    assert rank == pytest.approx([108, 77, 80, 80, 69, 190 / 3, 128 / 3, 107 / 3, 133 / 3, 44 / 3])
    plan = schedule(graph, THREE, heft, cost, streams=1)
    assert plan.estimate == 80.0
    assert placed(plan, THREE, cost) == {
        "1": (2, 0, 9),
        "3": (2, 9, 28),
        "4": (1, 18, 26),
        "2": (0, 27, 40),
        "5": (2, 28, 38),
        "6": (1, 26, 42),
        "9": (1, 56, 68),
        "7": (2, 38, 49),
        "8": (0, 57, 62),
        "10": (1, 73, 80),
    }


def test_peft_and_heft_as_the_paper_of_peft_prints_them():
    """Arabnejad and Barbosa, figures 3 and 4: HEFT needs 133, PEFT 122. Of the outputs inwards: the row of 10 is zero,
    that of 7 is min(13, 16 + 9, 33 + 9) on P1, min(13 + 9, 16) on P2, min(13 + 9, 16 + 9, 33) on P3."""
    graph, cost = ARABNEJAD
    table = optimistic_costs(Instance(graph, THREE, cost))
    assert table[9].tolist() == [0, 0, 0]
    assert table[6].tolist() == [13, 16, 22]
    assert table[0].tolist() == [64, 68, 86]
    assert schedule(graph, THREE, heft, cost, streams=1).estimate == 133.0
    plan = schedule(graph, THREE, peft, cost, streams=1)
    assert plan.estimate == 122.0
    assert plan.devices_used == ("gpu0", "gpu1", "gpu2")


# By hand -----------------------------------------------------------------------------------------


@each
def test_streams_unless_told_otherwise(scheduler):
    """Twenty independent operators of 1 us: on 8 streams of one device 3 us, on two of each of two devices 5."""
    graph = made(" ".join(f"o{i}=1" for i in range(20)), "")
    assert schedule(graph, Cluster.preset("a100"), scheduler).estimate == 3.0
    assert schedule(graph, Cluster.preset("a100", 2), scheduler).estimate == 5.0
    assert schedule(graph, Cluster.preset("a100", 2), scheduler, streams=10).estimate == 1.0


# Promises ----------------------------------------------------------------------------------------


def assert_as_defined(scheduler, graph, cluster, streams, cost=default_cost, **options):
    plan = schedule(graph, cluster, scheduler, cost, streams=streams, **options)
    oracle = Oracle(graph, cluster, streams, cost)
    if scheduler is etf:
        expected = oracle.place_earliest()
    elif scheduler is heft:
        expected = oracle.place(oracle.upward(), **options)
    else:
        table = oracle.optimistic()
        expected = oracle.place([float(np.mean(row)) for row in table], ahead=table, **options)
    found = listed(plan, cluster, cost)
    assert found.keys() == expected.keys()
    for name, row in expected.items():
        assert (found[name][:2], found[name][2:]) == (row[:2], pytest.approx(row[2:], rel=1e-12)), name
    assert plan.estimate == pytest.approx(max(row[3] for row in expected.values()), rel=1e-12)


@each
@settings(max_examples=40)
@given(graph=graphs(), cluster=clusters(), streams=st.integers(1, 3), insertion=st.booleans())
def test_they_are_their_definitions(scheduler, graph, cluster, streams, insertion):
    assert_as_defined(scheduler, graph, cluster, streams, **({} if scheduler is etf else {"insertion": insertion}))


@each
@pytest.mark.parametrize("seed", [1, 2])
def test_they_are_their_definitions_on_larger_graphs(scheduler, seed):
    """A hundred operators on unequal devices, where idle intervals are many, and transfers on the wire or exact."""
    graph = workloads.random_layered(n_ops=100, n_layers=9 + 6 * seed, comm_ratio=0.3 + seed, rng=seed)
    if seed % 2:
        rng = np.random.default_rng(seed)
        nbytes = rng.integers(0, 1000, len(graph.src)) * 1e6
        graph = OpGraph.from_columns(graph.names, graph.src, graph.dst, time=graph.time, edge_nbytes=nbytes)
    cluster, speed = Cluster.preset("a40", 3), {"gpu0": 1.0, "gpu1": 1.5, "gpu2": 0.75}

    def cost(op, device):
        return op.time * speed[device.name]

    assert_as_defined(scheduler, graph, cluster, 2, cost)


def test_they_go_on_where_machine_code_returned(monkeypatch):
    """It returns every so many operators, so that Ctrl-C is heard: after each here."""
    graph = workloads.random_layered(n_ops=60, n_layers=8, rng=1)
    at_once = schedule(graph, THREE, heft)
    monkeypatch.setattr(list_scheduling, "_AT_A_TIME", 1)
    assert schedule(graph, THREE, heft) == at_once
