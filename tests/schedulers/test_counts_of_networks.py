"""Counts of networks: streams and waits of Nimble and Opara, and what IOS has to choose from in those it measured."""

from functools import cache
from itertools import product
from math import prod
from pathlib import Path

import numpy as np
import pytest
from small import traced

import simsched as ss
import workloads
from simsched.model import WAIT
from simsched.model.graph import OpGraph
from simsched.schedulers import schedule
from simsched.schedulers.ios import ios
from simsched.schedulers.stage_costs import StageFormula

ONE = ss.Cluster.preset("a100")
STREAMS = [  # a network, its operators, chains, streams and waits
    ("googlenet", 199, 28, 4, 54),
    ("inception_v3", 316, 36, 6, 70),  # 36 are more than PyTorch has
    ("resnet50", 177, 5, 2, 8),
    ("squeezenet1_1", 68, 9, 2, 16),
    ("densenet121", 433, 1, 1, 0),
]


@pytest.mark.parametrize(("name", "operators", "chains", "streams", "waits"), STREAMS)
def test_streams_and_waits(name, operators, chains, streams, waits):
    """As the released code of both counts torchvision's networks, traced by single operators."""
    graph = traced(workloads.load(name, granularity="operator"))
    assert (len(graph), graph.width) == (operators, streams)
    for options, n in (({"mode": "paper"}, chains), ({"mode": "impl"}, streams), ({"streams": "dilworth"}, streams)):
        plan = schedule(graph, ONE, "nimble", **options)
        assert (plan.search["chains"], plan.n_streams, plan.search["syncs"], waited(plan)) == (chains, n, waits, waits)
    for mode, allocation, most in product(("paper", "impl"), ("journal", "conference"), (None, 32)):
        plan = schedule(graph, ONE, "opara", mode=mode, allocation=allocation, max_streams=most)
        assert (plan.search["logical_streams"], plan.n_streams) == (chains, min(chains, most or chains))
        assert waited(plan) == plan.search["waits"]
        assert most or waited(plan) == waits


def waited(plan):
    return np.count_nonzero(plan.lower(ONE).action == WAIT)


# wirings that others released, as data; they are not part of this project
RELEASED = Path(__file__).resolve().parents[3] / "shared" / "data" / "randwire_graphs.json"
COUNTED = ("states", "transitions", "feasible_schedules")


def counts(graph, **options):
    """States, transitions and schedules of a graph, nothing merged."""
    search = schedule(graph, ONE, ios, strategy="parallel", stage_latency=StageFormula(), **options).search
    assert search["feasible_schedules_exact"]
    assert search["cut_blocks"] == []
    return tuple(search[key] for key in COUNTED)


def unit(graph, number):
    """A block as a graph of its own."""
    names = set(graph.blocks[number])
    edges = [edge for edge in graph.edges if edge.src in names and edge.dst in names]
    return OpGraph([op for op in graph.operators if op.name in names], edges)


@cache
def network(name):
    if name == "randwire" and not RELEASED.exists():
        pytest.skip("needs the released wirings of RandWire")
    return workloads.load(name, **({"graphs": str(RELEASED)} if name == "randwire" else {}))


# a block of a network: its operators and states; transitions and schedules with single-root groups, and without.
# The paper's Table 1 has the first of these two in four digits: 3.8e6, 7.2e12, 1.3e2 and 9.2e22 schedules.
UNITS = [
    ("inception_v3", 5, 12, 144, (3648, 4598400), (3780, 5243136)),
    ("inception_v3", 10, 11, 180, (4871, 3757392), (5040, 4410136)),
    ("nasnet_a_large", 1, 18, 1287, (110763, 1840214952418), (158976, 2215500129408)),
    ("nasnet_a_large", 2, 21, 1387, (133814, 83185952801052), (208575, 106919792906496)),
    ("nasnet_a_large", 3, 18, 2200, (307841, 7150961274600), (335331, 8839301008800)),
    ("nasnet_a_large", 4, 16, 2071, (258676, 414453129056), (260731, 485141785488)),
    ("nasnet_a_large", 9, 19, 1312, (118081, 5893624317524), (171142, 7090682506752)),
    ("squeezenet", 1, 6, 12, (51, 131), (60, 152)),
    ("randwire", 1, 17, 235, (5807, 5992517240), (13398, 7873469440)),
    ("randwire", 2, 33, 4276, (762079, 247292883164145817759652), (2980514, 323445629346909384245248)),
    ("randwire", 3, 33, 5420, (1170663, 91973106270886052032664), (3560808, 118464662394143512150016)),
    ("randwire", 4, 33, 4799, (921106, 2633980945669053985037738), (4121123, 3329959426115561452512768)),
]


@pytest.mark.parametrize(("name", "number", "n", "states", "single_root", "exact"), UNITS)
def test_units(name, number, n, states, single_root, exact):
    block = unit(network(name), number)
    assert len(block) == n
    common = {"r": None, "s": None, "blocks": "none"}
    assert counts(block, endings="single_root", **common) == (states, *single_root)
    assert counts(block, mode="impl", **common) == (states, *single_root)
    assert counts(block, endings="exact", **common) == (states, *exact)
    assert counts(block, **common) == (states, *exact)


# states; transitions by (r, s) with single-root groups, and without
UNPRUNED, USUAL, SINGLE = (None, None), (3, 8), (1, 8)
NETWORKS = {
    "inception_v3": (1206, {UNPRUNED: (27742, 28829), USUAL: (25022, 25100), SINGLE: (9504, 9504)}),
    "randwire": (14734, {UNPRUNED: (2859662, 10675850), USUAL: (1781101, 1982525), SINGLE: (367890, 367890)}),
    "nasnet_a_large": (42966, {UNPRUNED: (5284405, 5626796), USUAL: (4494507, 4516891), SINGLE: (1652910, 1652910)}),
    "squeezenet": (78, {UNPRUNED: (284, 328), USUAL: (260, 280), SINGLE: (150, 150)}),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name):
    """Groups of one operator have one root whatever is asked for."""
    states, transitions = NETWORKS[name]
    for (r, s), expected in transitions.items():
        for endings, wanted in zip(("single_root", "exact"), expected, strict=True):
            assert counts(network(name), r=r, s=s, endings=endings)[:2] == (states, wanted)


def test_schedules_of_a_network_are_the_product_over_its_blocks():
    """Integers of any size: all 63 digits of Inception-v3."""
    graph = network("inception_v3")
    product = prod(counts(unit(graph, k), r=None, s=None, blocks="none")[2] for k in range(len(graph.blocks)))
    assert counts(graph, r=None, s=None)[2] == product
    assert len(str(product)) == 63


def test_our_own_wirings():
    """Drawn from our seeds: other counts than those of the wirings that IOS measured."""
    states, transitions, schedules = counts(workloads.load("randwire"))
    assert (states, transitions) == (17001, 3062515)
    assert schedules == 118411089325540276381829341883125616429194560710105451651464870555081858343231336


def test_counts_with_merging():
    """Two convolutions of a fire module can be merged in each state that both of them end."""
    search = schedule(workloads.load("squeezenet"), ONE, ios, stage_latency=StageFormula()).search
    assert (search["transitions"], search["merged_transitions"]) == (296, 16)
