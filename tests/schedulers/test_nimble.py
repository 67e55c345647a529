"""Nimble: chains, streams and waits by hand, against brute force, and against the counts of real networks."""

from functools import partial

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small import by_stream
from strategies import clusters, graphs, shapes

import workloads
from simsched.base.errors import SchedulerError
from simsched.model import RECORD, WAIT, Cluster, OpGraph
from simsched.schedulers import schedule
from simsched.schedulers.nimble import nimble

ONE = Cluster.preset("a100")
STREAMS = ("chains", "reuse", "dilworth")


def waits(plan, cluster=ONE):
    return int(np.count_nonzero(plan.lower(cluster).action == WAIT))


# As the released code ----------------------------------------------------------------------------


def augmenting(rows):
    """Kuhn: which row each column is matched to, rows and columns in turn."""
    owner = {}

    def augment(row, seen):
        for column in rows[row]:
            if column not in seen:
                seen.add(column)
                if column not in owner or augment(owner[column], seen):
                    owner[column] = row
                    return True
        return False

    for row in range(len(rows)):
        augment(row, set())
    return owner


def released_streams(graph):
    """Chains by a matching of the reduced graph, numbered by their ends; streams by a matching of chains."""
    n = len(graph)
    leads = reachable(n, numbered(graph))
    producer = augmenting(
        [[j for j in range(n) if leads[i, j] and not (leads[i] & leads[:, j]).any()] for i in range(n)]
    )
    chains = []
    for i in range(n):
        if i not in producer.values():
            chains.append([i])
            while chains[-1][0] in producer:
                chains[-1].insert(0, producer[chains[-1][0]])
    before = augmenting([[b for b, to in enumerate(chains) if leads[a[-1], to[0]]] for a in chains])
    stream = {}
    for c, chain in enumerate(chains):
        stream[c] = stream[before[c]] if c in before else c
        stream |= {("op", i): stream[c] for i in chain}
    return [sorted(graph.order[i] for i in range(n) if stream["op", i] == s) for s in set(stream.values())]


layered = st.builds(partial(workloads.random_layered, n_ops=40, n_layers=8), rng=st.integers(0, 1000))


@settings(deadline=None, max_examples=80)
@given(graph=shapes(max_ops=12) | layered)
def test_the_released_matching(graph):
    """Among many chains it matters that they are matched in the order of their ends."""
    plan = schedule(graph, ONE, nimble, mode="impl")
    assert sorted(sorted(row.split()) for row in by_stream(plan)) == sorted(released_streams(graph))


# Against brute force -----------------------------------------------------------------------------


def reachable(n, pairs):
    """Whether i leads to j, shape (n, n)."""
    dag = nx.DiGraph(pairs)
    dag.add_nodes_from(range(n))
    return nx.to_numpy_array(nx.transitive_closure_dag(dag), range(n), bool)


def assignments(n):
    """Every way to part n operators into streams, each the stream of each operator."""

    def grow(streams, used):
        if len(streams) == n:
            yield streams
            return
        for s in range(used + 1):
            yield from grow([*streams, s], max(used, s + 1))

    yield from grow([], 0)


def numbered(graph):
    """Edges without repetition, operators numbered in topological order."""
    at = {name: i for i, name in enumerate(graph.order)}
    return sorted({(at[edge.src], at[edge.dst]) for edge in graph.edges})


def concurrent(graph):
    """Every assignment by which two operators without a path between them are on two streams."""
    n, leads = len(graph), reachable(len(graph), numbered(graph))
    apart = [(i, j) for i in range(n) for j in range(i) if not leads[i, j] and not leads[j, i]]
    return [streams for streams in assignments(n) if all(streams[i] != streams[j] for i, j in apart)]


@settings(deadline=None, max_examples=40)
@given(graph=shapes(max_ops=7))
def test_no_assignment_has_fewer_waits_or_streams(graph):
    """Up to 7 operators, where a plan has at least a wait for every edge between streams that no path implies."""
    n, edges = len(graph), numbered(graph)
    leads = reachable(n, edges)
    reduced = [(i, j) for i, j in edges if not (leads[i] & leads[:, j]).any()]
    possible = concurrent(graph)
    paper, reused, least = (schedule(graph, ONE, nimble, streams=s) for s in STREAMS)
    for plan in (paper, reused, least):
        at = {row.op: row.stream for row in plan.placements}
        assert [at[name] for name in graph.order] in possible
    assert paper.search["meg_edges"] == len(reduced)
    assert waits(paper) == min(sum(s[i] != s[j] for i, j in reduced) for s in possible)
    assert least.n_streams == graph.width == min(len(set(s)) for s in possible)


@settings(deadline=None, max_examples=40)
@given(graph=graphs(max_ops=9), cluster=clusters(max_gpus=2), streams=st.sampled_from(STREAMS))
def test_the_released_plan_waits_for_every_edge(graph, cluster, streams):
    """A record for every operator that another stream reads; on the first device, whatever others there are."""
    plan = schedule(graph, cluster, nimble, mode="impl", streams=streams)
    at = {row.op: row.stream for row in plan.placements}
    crossing = [(edge.src, edge.dst) for edge in graph.edges if at[edge.src] != at[edge.dst]]
    actions = plan.lower(cluster).action
    assert plan.search["syncs"] == len(crossing)
    assert plan.search["waits"] == np.count_nonzero(actions == WAIT) == len(set(crossing))
    assert np.count_nonzero(actions == RECORD) == len({src for src, _ in crossing})
    assert plan.devices_used == ("gpu0",)


# Bad input ---------------------------------------------------------------------------------------


def test_a_second_matching_of_many_chains():
    """8,000 operators in 571 layers make 1,514 chains, nearly every two of them comparable: 31 streams are left."""
    graph = workloads.load("random:layered", n_ops=8000, n_layers=571, seed=0)
    assert schedule(graph, ONE, nimble).n_streams == 1514
    assert schedule(graph, ONE, nimble, streams="reuse").n_streams == 31


@pytest.mark.parametrize(("n", "n_edges"), [(100_001, 1), (50_000, 1_200_000)])
def test_a_graph_that_is_too_large(n, n_edges):
    """Refused in words before anything of its size is made."""
    src, dst = np.arange(n_edges) % (n - 1), n - 1
    graph = OpGraph.from_columns([f"o{i}" for i in range(n)], src, np.full(n_edges, dst), time=1.0)
    with pytest.raises(SchedulerError, match=r"nimble: .* operators with .* edges are too many to reduce"):
        schedule(graph, ONE, nimble)
