"""What all families of random graphs promise: order, distinct edges, ranges, equal seeds, refusals of one line."""

import inspect
import tracemalloc
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small import pairs

import workloads.random_dags as random_dags
from simsched.base.errors import GraphError

FAMILIES = {name.removeprefix("random_"): getattr(random_dags, name) for name in random_dags.__all__}

n_ops, at_least_2 = st.integers(10, 60), st.integers(2, 60)
few = st.integers(1, 5)
share = st.floats(0, 1)
ends = st.sampled_from(["open", "joined"])


def shape(**drawn):
    """The parameters of size and shape of a small graph."""
    return st.fixed_dictionaries(drawn)


SHAPES = {
    "cholesky": shape(tiles=few, tile=few),
    "erdos_renyi": shape(n_ops=n_ops, n_edges=st.integers(0, 28), ends=ends)
    | shape(n_ops=n_ops, edge_probability=share, ends=ends)
    | shape(n_ops=n_ops),
    "fft": shape(points=st.sampled_from([2, 4, 8, 16]), form=st.sampled_from(["recursive", "butterfly"])),
    "fork_join": shape(n_ops=st.integers(3, 60), max_width=st.integers(1, 70)),
    "in_tree": shape(n_ops=at_least_2, max_children=few),
    "inception_like": shape(n_blocks=few, max_branches=st.integers(2, 4), max_length=few, channels=st.integers(4, 9)),
    "layered": shape(n_ops=n_ops, n_layers=st.integers(3, 10)),
    "lu": shape(tiles=few, tile=few),
    "out_tree": shape(n_ops=at_least_2, max_children=few),
    "series_parallel": shape(n_ops=at_least_2, parallel=share),
    "transformer_like": shape(n_layers=few, heads=few, sequence=few, head_width=few),
    "watts_strogatz": shape(n_ops=n_ops, neighbours=st.sampled_from([2, 4]), rewiring=share, ends=ends),
    "wavefront": shape(rows=few, columns=few, neighbours=st.sampled_from([2, 3])),
}
HAVE_WORK = ("cholesky", "inception_like", "lu", "transformer_like")
ONE_SOURCE = (
    "cholesky",
    "fork_join",
    "inception_like",
    "layered",
    "lu",
    "out_tree",
    "series_parallel",
    "transformer_like",
    "wavefront",
)
ONE_SINK = (*(name for name in ONE_SOURCE if name != "out_tree"), "in_tree")

each_family = pytest.mark.parametrize("family", FAMILIES)
seeds = st.integers(0, 2**32)


def made(family, shape, **weights):
    return FAMILIES[family](**({"rng": 0} | shape | weights))


@each_family
@settings(max_examples=25)
@given(data=st.data(), seed=seeds)
def test_structure(family, data, seed):
    """Numbered topologically, edges distinct and rising, as many operators as asked for, one source; equal seeds."""
    shape = data.draw(SHAPES[family])
    graph = made(family, shape, rng=seed)
    assert graph.name == f"{family.replace('_', '-')}-{len(graph)}"
    assert len(graph) == shape.get("n_ops", len(graph))
    assert graph.names[-1] == f"op{len(graph) - 1}"
    assert (graph.src < graph.dst).all()
    assert pairs(graph) == sorted(set(pairs(graph)))
    assert (family not in ONE_SOURCE and shape.get("ends") != "joined") or graph.inputs == ("op0",)
    assert (family not in ONE_SINK and shape.get("ends") != "joined") or graph.outputs == (f"op{len(graph) - 1}",)
    assert made(family, shape, rng=np.random.default_rng(seed)) == graph != made(family, shape, rng=seed + 1)


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
    assert pairs(other) == pairs(graph)
    assert other.time == pytest.approx(10 * graph.time)
    assert np.isnan(other.utilization).all()
    assert (other.edge_transfer == 3.0).all()


@pytest.mark.parametrize("family", HAVE_WORK)
def test_bytes_decide_where_there_is_no_ratio(family):
    """Nothing exact by default, but every edge has bytes; who has the most FLOP takes the most time."""
    graph = FAMILIES[family](rng=0, time=(1.0, 1.0))
    assert (np.isnan(graph.edge_transfer) & (graph.edge_nbytes > 0)).all()
    assert (graph.flops.argmax(), graph.time.max()) == (graph.time.argmax(), 1.0)
    ratio = graph.flops[graph.flops > 0] / graph.time[graph.flops > 0]
    assert np.median(ratio) == pytest.approx(graph.flops.max()), "time is in proportion to FLOP but for what moves data"


# Refusals ----------------------------------------------------------------------------------------

JUNK = [
    -1,
    0,
    1.5,
    float("nan"),
    float("inf"),
    1e400,
    10**12,
    10**30,
    "",
    "many",
    None,
    True,
    (),
    (1.0,),
    (2.0, 1.0),
    (float("nan"), 1.0),
    ("a", "b"),
    [],
    {},
    b"x",
    object(),
]


TOO_MANY = {  # in range one by one, but together 10^8 operators or 2 * 10^8 edges and more
    "cholesky": {"tiles": 737},
    "erdos_renyi": {"n_ops": 10**8, "edge_probability": 0.5},
    "fft": {"points": 2**26},
    "inception_like": {"n_blocks": 10**8, "max_branches": 10**8, "max_length": 10**8},
    "lu": {"tiles": 586},
    "transformer_like": {"n_layers": 10**8, "heads": 10**8},
    "watts_strogatz": {"n_ops": 10**8, "neighbours": 10**7},
    "wavefront": {"rows": 10**8, "columns": 10**8},
}


@each_family
def test_junk_is_refused_or_makes_a_graph(family):
    """Whatever one parameter is: a graph of a few operators, or one line that names family and parameter."""
    refusals = []
    parameters = inspect.signature(FAMILIES[family]).parameters
    absurd = TOO_MANY.get(family, {"n_ops": 10**8 + 1})
    for values in [{name: value} for name, value in product(parameters, JUNK)] + [absurd]:
        tracemalloc.start()
        try:
            assert len(made(family, values)) < 2000
        except GraphError as error:
            refusals.append((values, str(error)))
        assert tracemalloc.get_traced_memory()[1] < 2_000_000, values
        tracemalloc.stop()
    assert len(refusals) > 5 * len(parameters)
    assert refusals[-1][0] is absurd
    assert [text for _, text in refusals if not text.startswith(f"random_{family}: ")] == []
    assert [text for values, text in refusals if not any(name in text for name in values)] == []
