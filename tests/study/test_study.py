"""The rows of a study: their order, seeds, and how shards share them."""

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from study_cases import study

from simsched.experiments.study.study import GRAPH, JITTER, SCHEDULER, SIMULATION_DEFAULTS, rows_of, seed_of, units


def test_order_of_rows():
    """Workload point > instance > cluster > simulation > scheduler; of a table the last field varies fastest."""
    whole = study(
        "lios",
        {"scheduler": "hios-lp", "w": [2, 3]},
        workload=[{"kind": "fork", "width": [1, 2], "time": [5.0, 6.0]}, {"kind": "other"}],
        cluster={"gpu": "a100", "gpus": [1, 2], "device": {"launch": [0.0, 1.0]}},
        simulation={"threads": ["device", "one"]},
        seeds=2,
    )
    rows = rows_of(whole)
    assert [
        (
            tuple(row.workload.values()),
            row.instance,
            row.cluster["gpus"],
            row.cluster["device.launch"],
            row.simulation["threads"],
            row.choice.label,
        )
        for row in rows
    ] == [
        *product(
            [("fork", 1, 5.0), ("fork", 1, 6.0), ("fork", 2, 5.0), ("fork", 2, 6.0), ("other",)],
            (0, 1),
            (1, 2),
            (0.0, 1.0),
            ("device", "one"),
            ("lios", "hios-lp w=2", "hios-lp w=3"),
        )
    ]
    assert [row.index for row in rows] == list(range(len(whole)))
    assert len({row.unit for row in rows}) == 10
    assert [row.known for row in rows_of(study(), {1: "k"})] == [None, "k"]


def test_columns_of_a_row():
    workload, cluster = {"kind": "fork", "time": [[50, 150]]}, {"gpu": "a40", "device": {"launch": 0.0}}
    (row,) = rows_of(study({"scheduler": "ios", "r": "none"}, workload=workload, cluster=cluster))
    assert row.workload["time"] == (50, 150)
    said = {
        "workload.kind": "fork",
        "workload.time": "50,150",
        "seed": 0,
        "cluster.gpu": "a40",
        "cluster.gpus": 1,
        "cluster.device.launch": 0.0,
        "scheduler": "ios r=none",
        "option.r": None,
    }
    assert row.columns() == said | {f"simulation.{name}": value for name, value in SIMULATION_DEFAULTS.items()}


@given(root=st.integers(0, 2**53), n=st.integers(1, 6))
def test_seeds_are_those_of_spawned_sequences(root, n):
    """Instance k is child k of the root, whatever n is; graph, scheduler and jitter are its children."""
    for k, child in enumerate(np.random.SeedSequence(root).spawn(n)):
        drawn = [int(c.generate_state(1, np.uint64)[0]) >> 11 for c in child.spawn(3)]
        assert drawn == [seed_of(root, k, purpose) for purpose in (GRAPH, SCHEDULER, JITTER)]
        assert max(drawn) < 2**53
        assert len(set(drawn)) == 3


def test_units_stay_what_they_are_when_a_study_grows():
    few, many = study(seeds=2), study(seeds=5, workload={"kind": "fork", "width": 3})
    assert units(few) == units(study(seeds=5))[:2]
    assert not {unit for unit, _, _ in units(few)} & {unit for unit, _, _ in units(many)}
    assert units(study(seed=1))[0][0] != units(study(seed=2))[0][0]


@given(seeds=st.integers(1, 4), n=st.integers(1, 7))
def test_shards_share_the_rows(seeds, n):
    """Each row is in one shard; with a unit or more for each, those of a unit stay together."""
    whole = study(seeds=seeds, workload={"kind": "fork", "width": [1, 2]}, cluster={"gpu": "a100", "gpus": [1, 2]})
    shards = [rows_of(whole, shard=(i, n)) for i in range(1, n + 1)]
    assert sorted((row for shard in shards for row in shard), key=lambda row: row.index) == rows_of(whole)
    of_unit = [{row.unit for row in shard} for shard in shards]
    if 2 * seeds >= n:
        assert sum(map(len, of_unit)) == 2 * seeds
    else:
        assert max(map(len, shards)) - min(map(len, shards)) <= 1
