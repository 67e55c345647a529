"""Opara: streams and launch order by hand, against the procedure written down again, and the counts of networks."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import clusters, graphs

from simsched.base.errors import ClusterError, SchedulerError
from simsched.model.cluster import Cluster
from simsched.model.graph import Edge, Kernel, Operator, OpGraph
from simsched.model.program import RECORD, WAIT
from simsched.schedulers import schedule
from simsched.schedulers.opara import opara
from workloads.models.densenet import densenet121
from workloads.models.googlenet import googlenet
from workloads.models.inception_v3 import inception_v3
from workloads.models.resnet import resnet50
from workloads.models.squeezenet import squeezenet1_1

ONE = Cluster.preset("a100")
PAPERS_EXAMPLE = "1-2 1-3 1-4 2-5 3-6 5-7 6-8 4-8 7-9 7-10 8-11 8-12 9-13 10-13 11-13 12-13"


def made(edges, n):
    """Operators 1 to n of 10 us, edges as in "1-2 1-3", arguments in their order."""
    pairs = [pair.split("-") for pair in edges.split()]
    return OpGraph(
        [Operator(str(i), time=10.0, utilization=0.5) for i in range(1, n + 1)], [Edge(a, b) for a, b in pairs]
    )


def by_stream(plan):
    """Operators of each stream, in launch order."""
    found = {}
    for row in plan.placements:
        found.setdefault(row.stream, []).append(row.op)
    return [" ".join(found[s]) for s in sorted(found)]


def launched(plan):
    return " ".join(row.op for row in plan.placements)


def kernel(**fields):
    return (Kernel(**({"blocks": 100, "threads": 128, "registers": 16} | fields)),)


# Streams -----------------------------------------------------------------------------------------


def test_the_thirteen_operators_of_the_paper():
    """Exactly its five streams. 8 lists 6 before 4, and 13 lists 9 first.

    1; 2 goes on from 1, so 3 and 4 open streams; 5 from 2, 6 from 3, 7 from 5; 8 from 6; 9 from 7, so 10 opens one;
    11 from 8, so 12 opens one; 13 from 9. Waits: for 3 and 4 of 1, 8 of 4, 10 of 7, 12 of 8, and 13 of 10, 11, 12.
    """
    plan = schedule(made(PAPERS_EXAMPLE, 13), ONE, opara, order="graph")
    assert by_stream(plan) == ["1 2 5 7 9 13", "3 6 8 11", "4", "10", "12"]
    assert (plan.execution, plan.events) == ("graph", "literal")
    assert plan.search["waits"] == np.count_nonzero(plan.lower(ONE).action == WAIT) == 8
    assert plan.estimate == 60.0
    assert by_stream(schedule(made(PAPERS_EXAMPLE, 13), ONE, opara, mode="impl", order="graph")) == by_stream(plan)
    by_need = by_stream(schedule(made(PAPERS_EXAMPLE, 13), ONE, opara))
    assert sorted(len(row.split()) for row in by_need) == [1, 1, 1, 4, 6]


def test_the_order_of_arguments_counts():
    """With 4 before 6, 8 goes on from 4."""
    graph = made(PAPERS_EXAMPLE.replace("6-8 4-8", "4-8 6-8"), 13)
    plan = schedule(graph, ONE, opara, order="graph")
    assert by_stream(plan) == ["1 2 5 7 9 13", "3 6", "4 8 11", "10", "12"]


def test_conference_and_journal_rules():
    """1 -> 2, 1 -> 3, 4 -> 2, 4 -> 3: 2 goes on from 1; 3 from 4 by the journal's rule, as nobody has yet.

    By the conference's rule it cannot, as 2 comes first among the consumers of both.
    """
    graph = made("1-2 4-2 1-3 4-3", 4)
    journal, conference = (schedule(graph, ONE, opara, order="graph", allocation=a) for a in ("journal", "conference"))
    assert by_stream(journal) == ["1 2", "4 3"]
    assert by_stream(conference) == ["1 2", "4", "3"]
    assert (journal.search["waits"], conference.search["waits"]) == (2, 3)


def test_streams_follow_the_launch_order_only_in_released_code():
    """1 -> 2 and 1 -> 3, where 3 needs less and so is launched first: it goes on from 1 in the released code."""
    rows = [Operator(str(i), time=10.0, kernels=kernel(shared_memory=s)) for i, s in ((1, 0), (2, 4096), (3, 1024))]
    graph = OpGraph(rows, [Edge("1", "2"), Edge("1", "3")])
    paper = schedule(graph, ONE, opara, metric="shared_memory")
    released = schedule(graph, ONE, opara, mode="impl", metric="shared_memory")
    assert launched(paper) == launched(released) == "1 3 2"
    assert by_stream(paper) == ["1 2", "3"]
    assert by_stream(released) == ["1 3", "2"]


def test_a_pool_of_streams():
    """A fork into 3 on a pool of 2: 4 opens the third logical stream, which is stream 0 again, behind 2."""
    plan = schedule(made("1-2 1-3 1-4", 4), ONE, opara, order="graph", max_streams=2)
    assert by_stream(plan) == ["1 2 4", "3"]
    assert dict(plan.search) == {"logical_streams": 3, "streams": 2, "waits": 1}
    assert plan.estimate == 30.0


@pytest.mark.parametrize("mode", ["paper", "impl"])
def test_inception_v3_needs_more_streams_than_pytorch_has(mode):
    graph = inception_v3(granularity="operator")
    plan = schedule(graph, ONE, opara, mode=mode, max_streams=32)
    assert (plan.search["logical_streams"], plan.search["streams"], plan.n_streams) == (36, 32, 32)


@pytest.mark.parametrize("mode", ["paper", "impl"])
@pytest.mark.parametrize("allocation", ["journal", "conference"])
@pytest.mark.parametrize(
    ("network", "operators", "streams", "waits"),
    [
        (googlenet, 199, 28, 54),
        (inception_v3, 316, 36, 70),
        (resnet50, 177, 5, 8),
        (squeezenet1_1, 68, 9, 16),
        (densenet121, 433, 1, 0),
    ],
)
def test_counts_of_networks(network, operators, streams, waits, allocation, mode):
    """As the released code counts torchvision's networks, traced by single operators."""
    graph = network(granularity="operator")
    inner = [Edge("placeholder", name) for name in graph.inputs], [Edge(graph.names[-1], "output")]
    rows = [Operator("placeholder", time=0.0), *graph.operators, Operator("output", time=0.0)]
    traced = OpGraph(rows, [*inner[0], *graph.edges, *inner[1]])
    plan = schedule(traced, ONE, opara, allocation=allocation, mode=mode)
    assert (len(traced), plan.n_streams, plan.search["waits"]) == (operators, streams, waits)
    assert np.count_nonzero(plan.lower(ONE).action == WAIT) == waits


def streams_by_rule(graph, order, allocation):
    """The stream of each operator by name, as printed: unique producers in argument order, users in graph order."""
    inputs = {name: list(dict.fromkeys(e.src for e in graph.edges if e.dst == name)) for name in graph.names}
    users = {name: [v for v in graph.names if name in inputs[v]] for name in graph.names}
    stream, taken = {}, dict.fromkeys(graph.names, False)
    for v in order:
        for p in inputs[v]:
            if users[p][0] == v if allocation == "conference" else not taken[p]:
                stream[v], taken[p] = stream[p], True
                break
        else:
            stream[v] = len(set(stream.values()))
    return stream


@settings(deadline=None, max_examples=50)
@given(
    graph=graphs(max_ops=9),
    cluster=clusters(max_gpus=2),
    allocation=st.sampled_from(["journal", "conference"]),
    mode=st.sampled_from(["paper", "impl"]),
)
def test_streams_and_waits_are_those_of_the_procedure(graph, cluster, allocation, mode):
    """A wait for each pair of a consumer and a producer on two streams, a record for each such producer."""
    assume(workable(graph))
    plan = schedule(graph, cluster, opara, allocation=allocation, mode=mode)
    at = {row.op: row.stream for row in plan.placements}
    order = graph.order if mode == "paper" else [row.op for row in plan.placements]
    assert at == streams_by_rule(graph, order, allocation)
    crossing = {(edge.src, edge.dst) for edge in graph.edges if at[edge.src] != at[edge.dst]}
    actions = plan.lower(cluster).action
    assert plan.search["waits"] == np.count_nonzero(actions == WAIT) == len(crossing)
    assert np.count_nonzero(actions == RECORD) == len({src for src, _ in crossing})
    assert plan.search["logical_streams"] == plan.search["streams"] == plan.n_streams
    assert plan.devices_used == ("gpu0",)


@settings(deadline=None, max_examples=40)
@given(graph=graphs(max_ops=12, shuffled=False))
def test_the_journals_rule_opens_no_more_streams(graph):
    """The first consumer of an operator finds its stream free, so whoever goes on by one rule does by the other."""
    journal, conference = (schedule(graph, ONE, opara, order="graph", allocation=a) for a in ("journal", "conference"))
    assert graph.width <= journal.n_streams <= conference.n_streams


def workable(graph):
    """Whether an operator has what the default metric reads."""
    return any(op.kernels or op.utilization for op in graph.operators)


# Edges and bad input -----------------------------------------------------------------------------


def test_views_need_no_kernels():
    """One operator without time, and operators given backwards with parallel edges."""
    assert launched(schedule(OpGraph([Operator("view", time=0.0)]), ONE, opara)) == "view"
    rows = [Operator("b", time=1.0, kernels=kernel()), Operator("view", time=0.0), Operator("a", time=1.0)]
    plan = schedule(OpGraph(rows, [Edge("a", "view"), Edge("a", "view"), Edge("view", "b")]), ONE, opara)
    assert by_stream(plan) == ["a view b"]


@pytest.mark.parametrize(
    ("options", "metric", "field"),
    [
        ({}, "utilization", "utilization"),
        ({"mode": "impl", "metric": "threads"}, "threads", "kernels"),
        ({"metric": "utilization"}, "utilization", "utilization"),
    ],
)
def test_missing_kernels(options, metric, field):
    graph = OpGraph([Operator("a", time=1.0), Operator("b", time=1.0)], [Edge("a", "b")])
    with pytest.raises(SchedulerError) as caught:
        schedule(graph, ONE, opara, **options)
    assert str(caught.value) == (
        f"opara: no operator of graph 'graph' has what metric={metric!r} reads, Operator({field}=...); give that, "
        f"another metric, or order='graph'"
    )
    assert launched(schedule(graph, ONE, opara, order="graph")) == "a b"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"classes": "measured"},
            "opara: operator '1' has no intensity, which classes='measured' reads; give "
            "Operator(intensity='compute' or 'memory'), or classes='roofline'",
        ),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(SchedulerError) as caught:
        schedule(made("1-2", 2), ONE, opara, **options)
    assert str(caught.value) == message


def test_a_kernel_that_fits_nowhere_has_no_occupancy():
    rows = [Operator("a", time=1.0, kernels=kernel(shared_memory=10**6))]
    with pytest.raises(ClusterError, match="does not fit on an SM"):
        schedule(OpGraph(rows), ONE, opara, metric="occupancy")
