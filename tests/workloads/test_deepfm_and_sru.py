"""DeepFM and RNNTC-SRU, sizes worked by hand."""

from collections import Counter

import pytest

from simsched.base.errors import GraphError
from workloads.models.deepfm import deepfm
from workloads.models.sru import rnntc_sru


def test_deepfm_operators():
    """39 + 39 look-ups; two joins and a sum for the weights and pairs; pairs; a join, 3 + 1 linear; the score."""
    graph = deepfm()
    assert Counter(op.kind for op in graph.operators) == {
        "embedding": 78, "concat": 3, "reduce_sum": 1, "sequential": 1, "linear": 4, "add": 1,
    }  # fmt: skip
    assert len(graph.inputs) == graph.width == 78
    assert graph.outputs == ("score",)


def test_deepfm_weights():
    """39 tables of 25,000 rows of 10 + 1; 390 * 400 + 400, twice 400 * 400 + 400, 400 + 1."""
    expected = 39 * 25_000 * 11 + 390 * 400 + 400 + 2 * (400 * 400 + 400) + 401
    assert deepfm().weight_nbytes.sum() / 4 == expected


def test_a_look_up_moves_the_rows_it_reads():
    """A row of 10 fp32 read and written, 2 * 40 bytes, and an index of 8 bytes; the table is kept, not moved."""
    op = deepfm()["vector0"]
    assert op.nbytes == 88
    assert op.weight_nbytes == 4 * 250_000
    assert deepfm(batch=100)["vector0"].nbytes == 8800


def test_pairs_of_embeddings_by_kernels():
    """Sum, square, squares, sum, difference, half sum: six kernels."""
    pairs = deepfm()["pairs"]
    assert [part["kind"] for part in pairs.attributes["parts"]] == [
        "reduce_sum", "square", "square", "reduce_sum", "sub", "reduce_sum",
    ]  # fmt: skip
    assert pairs.output_shape == (1, 1)
    assert len(pairs.kernels) == 6


def test_sru_operators():
    """A layer: 3 products, 10 states, 10 outputs, a join: 24, ten times; and the classifier."""
    graph = rnntc_sru()
    assert len(graph) == 241
    assert Counter(op.kind for op in graph.operators) == {"linear": 31, "sequential": 200, "concat": 10}


def test_sru_weights():
    """A layer: three matrices of 1024 x 1024, two of them with a bias; the classifier 1024 * 2 + 2."""
    assert rnntc_sru().weight_nbytes.sum() / 4 == 10 * (3 * 1024**2 + 2 * 1024) + 2050


def test_states_form_a_chain_and_outputs_do_not():
    """The forget gate is read twice by a cell that has a state before it: for the candidate's share and the state's."""
    graph = rnntc_sru(layers=1, sequence_length=3)
    reads = {name: [e.src for e in graph.edges if e.dst == name] for name in graph.names}
    assert reads["layer0.step0.state"] == ["layer0.forget", "layer0.candidate"]
    assert reads["layer0.step1.state"] == ["layer0.forget", "layer0.candidate", "layer0.forget", "layer0.step0.state"]
    assert reads["layer0.step2.output"] == ["layer0.step2.state", "layer0.reset", "layer0.reset"]
    assert graph.depth == 7  # gates, three states, output, join, classifier


def test_a_token_is_a_slice():
    """A state reads one token's gate: 1024 fp32."""
    graph = rnntc_sru()
    sizes = {e.nbytes for e in graph.edges if e.dst == "layer0.step1.state"}
    assert sizes == {4096}


def test_bad_parameters():
    with pytest.raises(GraphError, match="fields must be at least 1"):
        deepfm(fields=0)
    with pytest.raises(GraphError, match="sequence_length must be at most 10000, not 10001"):
        rnntc_sru(sequence_length=10_001)
