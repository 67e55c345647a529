"""`OpGraph`: what is refused, what cannot be changed, and what its shape says."""

import pickle
import re
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
import small
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import graphs, shapes

from simsched.base.errors import GraphError
from simsched.model.graph import DTYPE_NBYTES, Edge, Kernel, Operator, OpGraph

NAN, INF = float("nan"), float("inf")


def made(edges, names=None):
    """A graph from "ab cd" (edges a -> b and c -> d) of 1 us each; names in alphabetical order unless given."""
    names = names or sorted(set(edges.replace(" ", "")))
    return small.made(" ".join(f"{name}=1" for name in names), edges)


# Construction ------------------------------------------------------------------------------------


ENDS = {"src": [0], "dst": [1]}
REFUSED = [
    ({"flops": [1.0, -1.0]}, "operator 'b': flops must be finite and not negative, not -1.0"),
    ({"time": INF}, "operator 'a': time must be finite and not negative, not inf"),
    ({"weight_nbytes": [0.0, NAN]}, "operator 'b': weight_nbytes must be finite and not negative, not nan"),
    ({"utilization": 0.0}, "operator 'a': utilization must be in (0, 1], not 0.0"),
    ({"flops": "many"}, "column 'flops' must hold numbers, not 'many'"),
    ({"flops": 10**400}, "column 'flops' must hold numbers"),
    ({"time": [1.0, 2.0, 3.0]}, "column 'time' must have 2 rows, not (3,)"),
    ({"tiem": 1.0}, "unknown column 'tiem'; known are: flops"),
    ({"edge_nbytes": NAN}, "edge a -> b: nbytes must be finite and not negative, not nan"),
    ({"edge_transfer": [INF]}, "edge a -> b: transfer must be finite and not negative, not inf"),
    ({"edge_nbytes": [1.0, 2.0]}, "column 'edge_nbytes' must have 1 rows"),
    ({"src": [-1]}, "edge 0 (-1 -> 1) names no operator: there are 2"),
    ({"dst": [2]}, "edge 0 (0 -> 2) names no operator: there are 2"),
    ({"dst": [1, 1]}, "src and dst must have the same length"),
    ({"src": [0.9]}, "src and dst must hold indices of operators, which are whole numbers"),
    ({"names": [], "src": [], "dst": [], "name": "net"}, "graph 'net' is empty: it needs at least one operator"),
    ({"names": list("abab"), "src": [], "dst": []}, "operator 'a' stands twice; names must be unique"),
    ({"names": ["", "b"]}, "an operator's name must be a text that is not empty, not ''"),
    ({"names": [1, 2]}, "an operator's name must be a text that is not empty, not 1"),
    ({"kind": ""}, "a kind must be a text that is not empty"),
    ({"kind": ([0, 1], ["conv"])}, "operator 'b': code 1 is none of the 1 kinds"),
    ({"kind": ([-1, 0], ["conv"])}, "operator 'a': code -1 is none of the 1 kinds"),
    ({"kind": ([0], ["conv"])}, "the codes of kinds must be 2 whole numbers, one for each operator"),
    ({"kind": ([0.0, 0.0], ["conv"])}, "the codes of kinds must be 2 whole numbers"),
    ({"kernels": ([0, 1], [(Kernel(1),)])}, "operator 'b': code 1 is none of the 1 kernels"),
    ({"attributes": ([0], [{"x": 1}])}, "the codes of attributes must be 2 whole numbers"),
]


@pytest.mark.parametrize(("columns", "message"), REFUSED, ids=[message[:40] for _, message in REFUSED])
def test_columns_that_cannot_be(columns, message):
    """As `Operator` and `Edge` refuse such values; cutting 0.9 to operator 0 would join the wrong ones."""
    with pytest.raises(GraphError, match=re.escape(message)):
        OpGraph.from_columns(**{"names": ["a", "b"]} | ENDS | columns)


@pytest.mark.parametrize(
    ("names", "edges", "message"),
    [
        ("", [], "is empty"),
        ("abab", [], "operator 'a' stands twice; names must be unique"),
        ("a", [Edge("x", "a")], "edge x -> a names no operator: 'x'"),
    ],
)
def test_rows_that_cannot_be(names, edges, message):
    with pytest.raises(GraphError, match=message):
        OpGraph(map(Operator, names), edges)


def test_a_long_cycle_is_cut_in_the_middle():
    """100 operators in a ring: 101 names with the first again, 12 shown, 89 left out."""
    with pytest.raises(GraphError, match=r"\.\.\. 89 more \.\.\.") as caught:
        OpGraph.from_columns([f"o{i}" for i in range(100)], np.arange(100), (np.arange(100) + 1) % 100)
    assert len(str(caught.value)) < 200


@settings(deadline=None, max_examples=60)
@given(n=st.integers(1, 6), data=st.data())
def test_a_graph_is_refused_if_and_only_if_networkx_finds_a_cycle(n, data):
    pairs = data.draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=10))
    operators, edges = [Operator(f"o{i}") for i in range(n)], [Edge(f"o{a}", f"o{b}") for a, b in pairs]
    if nx.is_directed_acyclic_graph(nx.DiGraph(pairs)):
        graph = OpGraph(operators, edges)
        place = {name: i for i, name in enumerate(graph.order)}
        assert all(place[edge.src] < place[edge.dst] for edge in edges)
    else:
        with pytest.raises(GraphError, match="cycle: ") as caught:
            OpGraph(operators, edges)
        shown = str(caught.value).split("cycle: ")[1].split(" -> ")
        assert shown[0] == shown[-1]
        assert all((int(u[1:]), int(v[1:])) in pairs for u, v in pairwise(shown))


# Columns -----------------------------------------------------------------------------------------


def test_nan_in_a_column_is_none_only_where_none_is_allowed():
    graph = OpGraph.from_columns(["a", "b"], [0], [1], time=[1.0, NAN], utilization=[NAN, 0.5], edge_transfer=[NAN])
    assert [(op.time, op.utilization) for op in graph.operators] == [(1.0, None), (None, 0.5)]
    assert graph.edges[0].transfer is None


def test_columns_make_the_same_graph_as_rows():
    rows = OpGraph([Operator("a", time=1.0, flops=5.0), Operator("b", time=2.0, flops=5.0)], [Edge("a", "b", 8.0, 3.0)])
    columns = {"time": [1.0, 2.0], "flops": 5.0, "edge_nbytes": 8.0, "edge_transfer": 3.0}
    assert OpGraph.from_columns(["a", "b"], [0], [1], **columns) == rows


def test_a_code_for_each_operator():
    """Codes 1, 0, 1 of the texts conv, pool: operators b and c are of the kinds conv and pool."""
    graph = OpGraph.from_columns(["a", "b", "c"], [0], [1], kind=([1, 0, 1], ["conv", "pool"]))
    assert [op.kind for op in graph.operators] == ["pool", "conv", "pool"]
    assert graph == OpGraph(map(Operator, "abc", ("pool", "conv", "pool")), [Edge("a", "b")])
    assert OpGraph.from_dict(graph.to_dict()) == graph == pickle.loads(pickle.dumps(graph))


# Immutability ------------------------------------------------------------------------------------


def test_the_callers_arrays_stay_his():
    """The graph keeps copies: his arrays stay writable, and what he writes changes no graph."""
    src, dst, time, flops = np.array([0, 0]), np.array([1, 2]), np.array([1.0, 2.0, 3.0]), np.ones(3)
    graph = OpGraph.from_columns(["a", "b", "c"], src, dst, time=time, flops=flops)
    src[1], time[0], flops[:] = 1, 9.0, 9.0
    assert graph.src.tolist() == [0, 0]
    assert (graph.time.tolist(), graph.flops.tolist()) == ([1.0, 2.0, 3.0], [1.0, 1.0, 1.0])


def test_rows_are_a_sequence():
    """As names are, see there."""
    rows = made("ab bc").operators
    assert [op.name for op in rows[::-2]] == ["c", "a"]
    assert rows == list(rows)
    assert rows != list(rows)[:2]
    assert rows.index(Operator("b", time=1.0)) == 1


def test_lookup():
    assert made("ab")["b"].name == "b"
    with pytest.raises(GraphError, match="graph 'graph' has no operator 'x'"):
        made("ab")["x"]


@settings(deadline=None, max_examples=50)
@given(graph=graphs())
def test_rows_are_what_was_given(graph):
    """A graph made of the rows of a graph is that graph."""
    assert OpGraph(list(graph.operators), list(graph.edges), graph.name) == graph


# Shape -------------------------------------------------------------------------------------------


def test_order_prefers_what_was_given_first():
    """Given as d, c, b, a with b -> d: c is ready first, then b, which releases d, given before a."""
    assert made("bd", names="dcba").order == ("c", "b", "d", "a")


@pytest.mark.parametrize(
    ("edges", "width"),
    [
        ("ab bc", 1),  # a chain
        ("ab ac ad", 3),  # b, c, d
        ("ab ac bd cd", 2),  # b, c
        ("ac bc cd ce", 2),  # a, b or d, e
        ("ae be ce de ef", 4),  # a, b, c, d
        ("ab cd", 2),  # two chains
        ("ab bd ac cd be", 2),  # any two of b or e with c, or d with e; b, c, and c, e
        ("ac ad bd be", 3),  # zigzag: c, d, e
    ],
)
def test_width_by_hand(edges, width):
    assert made(edges).width == width


@settings(deadline=None, max_examples=60)
@given(graph=shapes())
def test_width_is_the_largest_antichain(graph):
    """Of all that networkx lists."""
    assert graph.width == max(map(len, nx.antichains(nx.DiGraph(graph.to_networkx()))))


@settings(deadline=None, max_examples=60)
@given(graph=shapes())
def test_depth_inputs_outputs_against_networkx(graph):
    dag = graph.to_networkx()
    assert graph.depth == nx.dag_longest_path_length(nx.DiGraph(dag), default_weight=1, weight="none") + 1
    assert list(graph.inputs) == [n for n in graph.names if dag.in_degree(n) == 0]
    assert list(graph.outputs) == [n for n in graph.names if dag.out_degree(n) == 0]
    assert all(set(graph.successors(name)) == set(dag.successors(name)) for name in graph.names)
    assert all(set(graph.predecessors(name)) == set(dag.predecessors(name)) for name in graph.names)


def test_neighbours_in_the_order_of_edges_each_once():
    """c reads b, then a, then b again; nothing reads c."""
    graph = small.made("a=1 b=1 c=1", "bc ac bc")
    assert graph.predecessors("c") == ("b", "a")
    assert graph.successors("b") == ("c",)
    assert graph.successors("c") == ()


def test_a_graph_is_read_like_a_mapping_of_names():
    """As a NetworkX graph: it yields names, knows which it has, and gives the operator of one."""
    graph = made("bc ab")
    assert [graph[name].name for name in graph] == ["a", "b", "c"]
    assert ("c" in graph, "d" in graph, 0 in graph) == (True, False, False)
    with pytest.raises(GraphError, match="has no operator 'd'"):
        graph.predecessors("d")


def test_longest_path_by_hand():
    """a 1 -> b 5 -> d 1 is 7, a 1 -> c 2 -> d 1 is 4."""
    graph = small.made("a=1 b=5 c=2 d=1", "ab ac bd cd")
    assert graph.longest_path() == (7.0, ("a", "b", "d"))
    assert graph.longest_path([1.0, 1.0, 2.0, 0.0]) == (3.0, ("a", "c"))


def test_longest_path_ties():
    """All of a -> b -> d, a -> c -> d are 3 long: of b and c the first given; the last operator is d."""
    assert made("ab ac bd cd").longest_path() == (3.0, ("a", "b", "d"))
    assert made("ab ac bd cd", names="dcba").longest_path() == (3.0, ("a", "c", "d"))


def test_longest_path_needs_every_weight():
    graph = OpGraph([Operator("a", time=1.0), Operator("b")])
    with pytest.raises(GraphError, match="operator 'b' has no time; pass `weights`"):
        graph.longest_path()
    with pytest.raises(GraphError, match="operator 'a': weight must be finite and not negative, not nan"):
        graph.longest_path([NAN, 1.0])


@settings(deadline=None, max_examples=60)
@given(graph=shapes(), data=st.data())
def test_longest_path_is_the_longest_of_all_paths(graph, data):
    weights = {name: float(data.draw(st.integers(0, 5))) for name in graph.names}
    length, path = graph.longest_path(list(weights.values()))
    readers = {name: {e.dst for e in graph.edges if e.src == name} for name in graph.names}

    def longest_from(name):
        return weights[name] + max((longest_from(other) for other in readers[name]), default=0.0)

    assert length == max(map(longest_from, graph.names)) == sum(weights[name] for name in path)
    assert all(v in readers[u] for u, v in pairwise(path))


# Blocks ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edges", "blocks"),
    [
        ("ab bc", "a b c"),  # every operator of a chain is a block
        ("ab ac bd cd", "a bcd"),  # fork and join: the fork operator ends a block, the join the next
        ("ab ac bd cd de df eg fg", "a bcd efg"),  # two of them in a row
        ("ac bc cd", "abc d"),  # two inputs
        ("ab bc bd", "a b cd"),  # two outputs
        ("ab bd ac cd ad", "a bcd"),  # a shortcut over the middle
        ("ab cd", "abcd"),  # not connected: nothing is passed by all paths
        ("ab bc ac cd", "a bc d"),  # b can be passed by
    ],
)
def test_blocks_by_hand(edges, blocks):
    assert made(edges).blocks == tuple(map(tuple, blocks.split()))


def test_labels_group_operators_wherever_they_are():
    """a and c carry x, b carries y: by label, in topological order, x first since a is."""
    assert small.made("a=1 b=1 c=1", "ab bc", x="ac", y="b").blocks == (("a", "c"), ("b",))


@settings(deadline=None, max_examples=60)
@given(graph=graphs())
def test_blocks_hold_every_operator_once(graph):
    names = [name for block in graph.blocks for name in block]
    place = {name: i for i, name in enumerate(graph.order)}
    assert sorted(names) == sorted(graph.names)
    for block in graph.blocks:
        assert list(block) == sorted(block, key=place.get)
        assert block
    for label in {op.block for op in graph.operators} - {None}:
        assert tuple(name for name in graph.order if graph[name].block == label) in graph.blocks


@settings(deadline=None, max_examples=60)
@given(graph=shapes())
def test_a_block_ends_where_all_paths_meet(graph):
    """Every path from input to output passes the last operator of each block but the last; no other
    operator of the graph, but for the last of all, is passed by all paths."""

    def paths(name):
        readers = sorted({e.dst for e in graph.edges if e.src == name})
        return [[name, *rest] for other in readers for rest in paths(other)] or [[name]]

    every = [path for name in graph.inputs for path in paths(name)]
    met = {name for name in graph.names if all(name in path for path in every)}
    ends = [block[-1] for block in graph.blocks]
    assert set(ends[:-1]) == met - {ends[-1]}


# Sizes -------------------------------------------------------------------------------------------


def test_output_nbytes_from_shape_else_from_the_largest_edge():
    """a: 10 fp16 elements, 20 bytes, whatever its edges say; b: the larger of 8 and 16; c: no reader, no shape."""
    operators = [Operator("a", output_shape=(10,), dtype="fp16"), Operator("b"), Operator("c")]
    assert small.made(operators, "ab=400 bc=8 bc=16").output_nbytes.tolist() == [20.0, 16.0, 0.0]


def test_a_chain_and_a_fork_of_a_thousand():
    """The fork: one operator, a thousand that read from it, one that reads from all."""
    n, names = 1000, [f"o{i}" for i in range(1002)]
    chain = OpGraph.from_columns(names[:n], np.arange(n - 1), np.arange(1, n), time=2.0)
    assert (chain.depth, chain.width, len(chain.blocks), chain.longest_path()[0]) == (n, 1, n, 2.0 * n)
    middle = np.arange(1, n + 1)
    fork = OpGraph.from_columns(names, np.r_[np.zeros(n, int), middle], np.r_[middle, np.full(n, n + 1)])
    assert (fork.depth, fork.width, [len(b) for b in fork.blocks]) == (3, n, [1, n + 1])


def test_shares_add_up_to_one():
    """0.5 + 0.25 = 0.75; three times 1/3 is 1 but for rounding, which is allowed."""
    with pytest.raises(GraphError, match=r"operator 'x': the shares of its kernels must add up to 1, not 0.75"):
        Operator("x", kernels=(Kernel(1, share=0.5), Kernel(1, share=0.25)))
    assert len(Operator("x", kernels=(Kernel(1, share=1 / 3),) * 3).kernels) == 3


@pytest.mark.parametrize(("dtype", "width"), sorted(DTYPE_NBYTES.items()))
def test_output_nbytes_by_dtype(dtype, width):
    """A tensor of 2 x 3 x 4 has 24 elements."""
    assert Operator("x", output_shape=(2, 3, 4), dtype=dtype).output_nbytes == 24 * width


def test_output_nbytes_without_a_shape_or_a_dimension():
    """Nobody knows; a scalar in fp32: 4 bytes."""
    assert Operator("x").output_nbytes is None
    assert Operator("x", output_shape=()).output_nbytes == 4.0


@pytest.mark.parametrize("arguments", [("net", [Operator("a")], []), ([Operator("a")], [("a", "a")]), (["a"],)])
def test_operators_edges_and_then_a_name(arguments):
    """What stands in the wrong place is named in one line."""
    with pytest.raises(GraphError, match=r"OpGraph takes operators, edges and then a name: .* is no (Operator|Edge)"):
        OpGraph(*arguments)
