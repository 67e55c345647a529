"""What all families of random graphs promise: order, distinct edges, ranges, equal seeds, refusals of one line."""

import inspect
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import workloads.random_dags as random_dags
from simsched.base.errors import GraphError, SimschedError

FAMILIES = {name.removeprefix("random_"): getattr(random_dags, name) for name in random_dags.__all__}

# Small graphs of every family: the parameters of its size and shape.
n_ops = st.integers(10, 60)
share = st.floats(0, 1)
ends = st.sampled_from(["open", "joined"])
few = st.integers(1, 5)
SHAPES = {
    "cholesky": st.fixed_dictionaries({"tiles": few, "tile": few}),
    "erdos_renyi": st.one_of(
        st.fixed_dictionaries({"n_ops": n_ops, "n_edges": st.integers(0, 28), "ends": ends}),
        st.fixed_dictionaries({"n_ops": n_ops, "edge_probability": share, "ends": ends}),
        st.fixed_dictionaries({"n_ops": n_ops}),
    ),
    "fft": st.fixed_dictionaries(
        {"points": st.sampled_from([2, 4, 8, 16]), "form": st.sampled_from(["recursive", "butterfly"])}
    ),
    "fork_join": st.fixed_dictionaries({"n_ops": st.integers(3, 60), "max_width": st.integers(1, 70)}),
    "in_tree": st.fixed_dictionaries({"n_ops": st.integers(2, 60), "max_children": few}),
    "inception_like": st.fixed_dictionaries(
        {"n_blocks": few, "max_branches": st.integers(2, 4), "max_length": few, "channels": st.integers(4, 9)}
    ),
    "layered": st.fixed_dictionaries({"n_ops": n_ops, "n_layers": st.integers(3, 10)}),
    "lu": st.fixed_dictionaries({"tiles": few, "tile": few}),
    "out_tree": st.fixed_dictionaries({"n_ops": st.integers(2, 60), "max_children": few}),
    "series_parallel": st.fixed_dictionaries({"n_ops": st.integers(2, 60), "parallel": share}),
    "transformer_like": st.fixed_dictionaries({"n_layers": few, "heads": few, "sequence": few, "head_width": few}),
    "watts_strogatz": st.fixed_dictionaries(
        {"n_ops": n_ops, "neighbours": st.sampled_from([2, 4]), "rewiring": share, "ends": ends}
    ),
    "wavefront": st.fixed_dictionaries({"rows": few, "columns": few, "neighbours": st.sampled_from([2, 3])}),
}
HAVE_WORK = ("cholesky", "inception_like", "lu", "transformer_like")
ONE_SOURCE = ("cholesky", "fork_join", "inception_like", "layered", "lu", "out_tree", "series_parallel",
              "transformer_like", "wavefront")  # fmt: skip
ONE_SINK = (*(name for name in ONE_SOURCE if name != "out_tree"), "in_tree")

each_family = pytest.mark.parametrize("family", FAMILIES)
seeds = st.integers(0, 2**32)


def made(family, shape, **weights):
    return FAMILIES[family](**({"rng": 0} | shape | weights))


def columns(graph):
    named = {key: getattr(graph, key) for key in ("src", "dst", "time", "utilization", "edge_transfer", "edge_nbytes")}
    return named | {"flops": graph.flops, "kind": graph.labels("kind")[0]}


@each_family
@settings(max_examples=25)
@given(data=st.data(), seed=seeds)
def test_structure(family, data, seed):
    """Numbered topologically, edges distinct and in rising order, as many operators as asked for, and one source."""
    shape = data.draw(SHAPES[family])
    graph = made(family, shape, rng=seed)
    assert graph.name == f"{family.replace('_', '-')}-{len(graph)}"
    assert len(graph) == shape.get("n_ops", len(graph))
    assert graph.names[-1] == f"op{len(graph) - 1}"
    assert (graph.src < graph.dst).all()
    assert (np.diff(graph.src.astype(np.int64) * len(graph) + graph.dst) > 0).all()
    assert (family not in ONE_SOURCE and shape.get("ends") != "joined") or graph.inputs == ("op0",)
    assert (family not in ONE_SINK and shape.get("ends") != "joined") or graph.outputs == (f"op{len(graph) - 1}",)


@each_family
@settings(max_examples=10)
@given(data=st.data(), seed=seeds)
def test_equal_seeds_equal_graphs(family, data, seed):
    shape = data.draw(SHAPES[family])
    graph = made(family, shape, rng=seed)
    again = made(family, shape, rng=np.random.default_rng(seed))
    for key, column in columns(again).items():
        np.testing.assert_array_equal(column, columns(graph)[key])
    assert again == graph != made(family, shape, rng=seed + 1)


@each_family
@settings(max_examples=15)
@given(
    data=st.data(),
    low=st.floats(0, 100),
    high=st.floats(100, 1000),
    utilization=st.tuples(st.floats(0.01, 0.5), st.floats(0.5, 1)),
    comm_ratio=st.floats(0, 10),
    min_transfer=st.floats(0, 1000),
)
def test_weights(family, data, low, high, utilization, comm_ratio, min_transfer):
    """Times of (1, 1) us are the operators' work; any others lie within the range of times times that."""
    shape = data.draw(SHAPES[family])
    graph = made(
        family, shape, time=(low, high), utilization=utilization, comm_ratio=comm_ratio, min_transfer=min_transfer
    )
    work = made(family, shape, time=(1.0, 1.0)).time
    assert (work == 1).all() or family in HAVE_WORK
    assert ((low * work * (1 - 1e-12) <= graph.time) & (graph.time <= high * work * (1 + 1e-12))).all()
    assert ((utilization[0] <= graph.utilization) & (graph.utilization <= utilization[1])).all()
    assert (graph.edge_transfer == np.maximum(min_transfer, comm_ratio * graph.time[graph.src])).all()


@each_family
@settings(max_examples=10)
@given(data=st.data(), seed=seeds)
def test_one_thing_varies_at_a_time(family, data, seed):
    """Other ranges leave the edges as they are; times of 100 to 200 us become 1000 to 2000."""
    shape = data.draw(SHAPES[family])
    graph = made(family, shape, rng=seed, time=(100.0, 200.0))
    other = made(family, shape, rng=seed, time=(1000.0, 2000.0), utilization=None, comm_ratio=0.0, min_transfer=3.0)
    np.testing.assert_array_equal(other.src, graph.src)
    np.testing.assert_array_equal(other.dst, graph.dst)
    assert other.time == pytest.approx(10 * graph.time)
    assert np.isnan(other.utilization).all()
    assert (other.edge_transfer == 3.0).all()


@pytest.mark.parametrize("family", HAVE_WORK)
def test_bytes_decide_where_there_is_no_ratio(family):
    """Nothing exact by default, but every edge has bytes; who has the most FLOP takes the most time."""
    graph = FAMILIES[family](rng=0, time=(1.0, 1.0))
    assert np.isnan(graph.edge_transfer).all()
    assert (graph.edge_nbytes > 0).all()
    assert graph.flops.argmax() == graph.time.argmax()
    assert graph.time.max() == 1.0
    ratio = graph.flops[graph.flops > 0] / graph.time[graph.flops > 0]
    assert np.median(ratio) == pytest.approx(graph.flops.max()), "time is in proportion to FLOP but for what moves data"


# Refusals ----------------------------------------------------------------------------------------

JUNK = [-1, 0, 1.5, float("nan"), float("inf"), 1e400, 10**12, 10**30, "", "many", None, True, (), (1.0,), (2.0, 1.0),
        (float("nan"), 1.0), ("a", "b"), [], {}, b"x", object()]  # fmt: skip


@each_family
def test_junk_is_refused_or_makes_a_graph(family):
    """Whatever one parameter is: a graph of a few operators, or one line that names family and parameter."""
    function = FAMILIES[family]
    refusals = []
    for name in inspect.signature(function).parameters:
        for value in JUNK:
            tracemalloc.start()
            try:
                assert len(function(**({"rng": 0} | {name: value}))) < 2000
            except SimschedError as error:
                refusals.append((name, error))
            assert tracemalloc.get_traced_memory()[1] < 2_000_000, (name, value)
            tracemalloc.stop()
    assert len(refusals) > 5 * len(inspect.signature(function).parameters)
    for name, error in refusals:
        text = str(error)
        assert isinstance(error, GraphError)
        assert text.startswith(f"random_{family}: "), text
        assert name in text, text


@each_family
def test_absurd_sizes_allocate_nothing(family):
    """Parameters that are each in range, but make 10^8 operators or 2 * 10^8 edges and more between them."""
    together = {
        "cholesky": {"tiles": 737},
        "erdos_renyi": {"n_ops": 10**8, "edge_probability": 0.5},
        "fft": {"points": 2**26},
        "inception_like": {"n_blocks": 10**8, "max_branches": 10**8, "max_length": 10**8},
        "lu": {"tiles": 586},
        "transformer_like": {"n_layers": 10**8, "heads": 10**8},
        "watts_strogatz": {"n_ops": 10**8, "neighbours": 10**7},
        "wavefront": {"rows": 10**8, "columns": 10**8},
    }.get(family, {"n_ops": 10**8 + 1})
    tracemalloc.start()
    with pytest.raises(GraphError, match=rf"random_{family}: .*(at most 100000000 and|to 100,000,000, not)"):
        made(family, together)
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("family", "parameters", "message"),
    [
        ("erdos_renyi", {"n_edges": 3, "edge_probability": 0.5}, "give n_edges or edge_probability, not both"),
        ("erdos_renyi", {"n_ops": 10, "n_edges": 46}, "n_edges must be at most 45, the pairs that there are, not 46"),
        ("watts_strogatz", {"neighbours": 3}, "neighbours must be even, half of them on either side, not 3"),
        ("watts_strogatz", {"n_ops": 10, "neighbours": 6}, "neighbours must be at most 5, half the ring, not 6"),
        ("watts_strogatz", {"rewiring": -0.1}, r"rewiring must be in \[0, 1\], not -0.1"),
        ("fft", {"points": 12}, "points must be a power of 2, not 12"),
        ("wavefront", {"neighbours": 4}, "neighbours must be a whole number from 2 to 3, not 4"),
        ("cholesky", {"tiles": 9, "comm_ratio": 1e308}, "edge op0 -> op1: transfer must be finite"),
    ],
)
def test_refusals(family, parameters, message):
    with pytest.raises(GraphError, match=message):
        made(family, parameters)
