"""DeepFM: bytes of a look-up."""

from workloads import load


def test_a_look_up_of_deepfm_moves_the_rows_it_reads():
    """A row of 10 fp32 read and written, 2 * 40 bytes, and an index of 8 bytes; the table is kept, not moved."""
    op = load("deepfm", batch=100)["vector0"]
    assert (op.nbytes, op.weight_nbytes) == (8800, 4 * 250_000)
    parts = "reduce_sum square square reduce_sum sub reduce_sum"
    assert " ".join(part["kind"] for part in load("deepfm")["pairs"].attributes["parts"]) == parts
