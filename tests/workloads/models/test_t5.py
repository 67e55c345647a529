"""T5: relative positions that all layers share."""

from workloads import load


def test_positions_of_t5_are_shared_by_all_layers():
    readers = [e.dst for e in load("t5_small_encoder").edges if e.src == "embeddings.positions.expand"]
    assert readers == [f"layer{i}.attention.scores" for i in range(6)]
