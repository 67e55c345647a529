"""What rows say, and what becomes of schedulers that do not come to an end."""

import json
import pickle
from dataclasses import replace
from secrets import token_hex

import pytest
import study_cases
from study_cases import fork, study

import simsched as ss
import workloads
from simsched.experiments.study.evaluate import Evaluate, graph_digest, row_key, target_digest
from simsched.experiments.study.study import GRAPH, JITTER, SCHEDULER, rows_of, seed_of


def evaluated(whole, load=fork, time_limit=None, known=None, version="1.0"):
    """The rows of a study, made in this process, which keeps nothing from one call to the next."""
    make = Evaluate(load, whole.folder, version, time_limit, token_hex())
    return [row for spec in rows_of(whole, known) for row in make(spec)]


def test_a_row_by_hand():
    """10 us, then three of 20 us that load nothing: 70 one by one, 30 in three streams, which no schedule beats."""
    one, three = evaluated(study(seed=5))
    digest = graph_digest(fork("fork", seed=seed_of(5, 0, GRAPH)))
    cluster = target_digest(ss.Cluster.preset("a100").without_overheads())
    same = {
        "status": "ok",
        "reason": None,
        "unit": one["unit"],
        "graph": digest,
        "bound_us": 30.0,
        "ops": 4,
        "edges": 3,
        "devices": 1,
        "stages": None,
    }
    assert one.items() >= (same | {"index": 0, "makespan_us": 70.0, "speedup": 1.0, "over_bound": 70 / 30}).items()
    assert (
        three.items()
        >= {
            **same,
            "index": 1,
            "makespan_us": 30.0,
            "speedup": 70 / 30,
            "over_bound": 1.0,
            "estimate_us": 30.0,
            "estimate_speedup": 70 / 30,
            "streams": 3,
            "key": row_key(rows_of(study(seed=5))[1], "1.0", digest, cluster),
        }.items()
    )
    assert {name for name in three if name.startswith("wall.")} == {"wall.row_s", "wall.search_s", "wall.simulate_s"}
    assert json.loads(json.dumps(three)) == three
    assert evaluated(study("greedy"))[0]["stages"] == 2  # a, then b, c and d


def test_a_graph_is_made_once_for_all_its_rows():
    """From a seed of its instance, or the one that the file gives."""
    study_cases.made.clear()
    rows = evaluated(study(cluster={"gpu": ["a100", "a40"], "overheads": False}, seeds=2))
    assert study_cases.made == [("fork", 3, seed_of(0, k, GRAPH)) for k in (0, 1)]
    assert len(rows) == len({row["key"] for row in rows}) == 8
    study_cases.made.clear()
    evaluated(study(workload={"kind": "fork", "seed": [5, 6]}))
    assert study_cases.made == [("fork", 3, 5), ("fork", 3, 6)]


def test_schedulers_that_draw_get_a_seed_and_whole_numbers_of_a_search_are_columns():
    first, second = evaluated(study("study_cases:draws", seeds=2))
    assert first["search.rng"] == seed_of(0, 0, SCHEDULER)
    assert second["search.rng"] == seed_of(0, 1, SCHEDULER)
    assert "search.share" not in first
    (own,) = evaluated(study({"scheduler": "study_cases:draws", "rng": 9, "scale": 2.0}))
    assert (own["search.rng"], own["option.rng"], own["estimate_us"]) == (9, 9, 18.0)


def test_samples():
    """With samples the makespan has no jitter; the samples are those of `simulate_many` with the instance's seed."""
    (row,) = evaluated(study("lios", simulation={"jitter": 0.1, "samples": 50}))
    graph, cluster = fork("fork", seed=0), ss.Cluster.preset("a100").without_overheads()
    drawn = ss.simulate_many(ss.schedule(graph, cluster, "lios"), cluster, 50, jitter=0.1, rng=seed_of(0, 0, JITTER))
    assert row["makespan_us"] == 30.0
    for name in ("p50", "p95", "p99", "mean", "std"):
        assert row[f"{name}_us"] == getattr(drawn, name)


def test_jitter_without_samples_is_in_the_makespan():
    first, again = (
        [row["makespan_us"] for row in evaluated(study(simulation={"jitter": 0.1}, seeds=n))] for n in (1, 2)
    )
    assert first[1] != 30.0
    assert again[:2] == first
    assert again[3] != again[1]


@pytest.mark.parametrize("setting", [{"engine": "reference"}, {"threads": "one"}, {"events": "literal"}])
def test_other_simulations(setting):
    rows = evaluated(study(simulation={**setting, "bound": False}))
    assert [row["makespan_us"] for row in rows] == [70.0, 30.0]
    assert rows[1]["bound_us"] is rows[1]["over_bound"] is None


def test_what_does_not_come_to_an_end():
    names = ["fails", "ends", "panics", "runs_out", "sleeps"]
    whole = study(*(f"study_cases:{name}" for name in names), {"scheduler": "lios", "streams": 0}, "lios")
    rows = evaluated(whole, time_limit=0.2)
    assert [row["status"] for row in rows] == ["failed", "failed", "failed", "failed", "timeout", "refused", "ok"]
    assert [row["reason"] for row in rows] == [
        "ZeroDivisionError: cannot divide <object object at 0x...>",
        "SystemExit: 3",
        "Panic: all is lost",
        "MemoryError",
        "took longer than the time limit of 0.2 s",
        "lios: streams must be a whole number of at least 1, not 0",
        None,
    ]
    assert all("makespan_us" not in row and row["ops"] == 4 and row["wall.row_s"] > 0 for row in rows[:6])


def test_ctrl_c_is_no_row():
    with pytest.raises(KeyboardInterrupt):
        evaluated(study("study_cases:interrupts"))


def test_a_graph_that_cannot_be_made():
    """Its rows are addressed by what the study says, and known by that."""
    whole = study(workload={"kind": "none"})
    rows = evaluated(whole)
    assert [(row["status"], row["reason"]) for row in rows] == [("refused", "there is no such graph; take another")] * 2
    assert rows[0]["key"] == row_key(rows_of(whole)[0], "1.0", None, None) != rows[1]["key"]
    assert evaluated(whole, known={row["index"]: row["key"] for row in rows}) == []


def test_rows_of_what_took_its_process_with_it():
    make = pickle.loads(pickle.dumps(Evaluate(fork, ".", "1.0", 5.0, "x")))
    spec = rows_of(study())[1]
    (crashed,), (hung,) = make.rows_of_lost_unit(spec, False), make.rows_of_lost_unit(spec, True)
    assert (crashed["status"], hung["status"]) == ("failed", "timeout")
    assert crashed["key"] == hung["key"] == row_key(spec, "1.0", None, None)
    assert (crashed["scheduler"], crashed["workload.kind"]) == ("lios", "fork")


def test_every_part_of_the_content_is_in_the_key():
    """And nothing else, such as labels."""
    usual = {"simulation": {"jitter": 0.1}}
    others = [
        study("lios", seed=1, **usual),
        study("lios", seeds=[1], **usual),
        study("heft", **usual),
        study({"scheduler": "lios", "streams": 3}, **usual),
        study("lios", simulation={"jitter": 0.2}),
        study("lios", simulation={"jitter": 0.1, "samples": 5}),
        study("lios", workload={"kind": "fork", "width": 2}),
        study("lios", cluster={"gpu": "a40"}),
        study("lios", simulation={"jitter": 0.1, "threads": "one"}),
    ]
    keys = [evaluated(whole)[0]["key"] for i, whole in enumerate([study("lios", **usual), *others])]
    assert len(set(keys)) == len(keys)
    assert evaluated(study("lios", **usual), version="1.1")[0]["key"] not in keys
    assert evaluated(study({"scheduler": "lios", "label": "ours"}, **usual))[0]["key"] == keys[0]


def test_digests_of_graphs():
    """Of equal content, however it was made, but for the name; every part counts."""
    names, kinds = ["a", "b"], ([1, 0], ["relu", "conv"])
    by_columns = ss.OpGraph.from_columns(names, [0], [1], name="x", kind=kinds, time=[1.0, 2.0], edge_nbytes=8.0)
    by_rows = ss.OpGraph(
        [ss.Operator("a", kind="conv", time=1.0), ss.Operator("b", kind="relu", time=2.0)], [ss.Edge("a", "b", 8.0)]
    )
    assert graph_digest(by_columns) == graph_digest(by_rows)
    changes = [
        {"name": "c"},
        {"kind": "pool"},
        {"time": 1.5},
        {"flops": 1.0},
        {"weight_nbytes": 1.0},
        {"intensity": "memory"},
        {"kernels": (ss.Kernel(3),)},
        {"dtype": "fp16"},
        {"block": "stem"},
        {"attributes": {"stride": 2}},
        {"output_shape": (1, 2)},
        {"input_shapes": ((1, 2),)},
    ]
    a, b = by_rows.operators
    others = [ss.OpGraph([made := replace(a, **change), b], [ss.Edge(made.name, "b", 8.0)]) for change in changes]
    others += [ss.OpGraph([a, b], [edge]) for edge in (ss.Edge("a", "b", 9.0), ss.Edge("a", "b", 8.0, 1.0))]
    assert len({graph_digest(graph) for graph in (by_rows, *others)}) == 1 + len(others)


def test_files_are_relative_to_the_study(tmp_path):
    """A cluster and a graph beside the study; what they hold is in the key, where they are is not."""
    keys = []
    for place, launch in (("one", 0.0), ("two", 0.0), ("three", 1.0)):
        folder = tmp_path / place
        folder.mkdir()
        fork("net", seed=0).save(str(folder / "net.json"))
        ss.Cluster.preset("a100").without_overheads().replace_devices(launch=launch).save(folder / "cluster.json")
        whole = study("lios", workload={"kind": "net.json"}, cluster={"file": "cluster.json"}, folder=str(folder))
        (row,) = evaluated(whole, workloads.load_kind)
        assert row["makespan_us"] >= 30.0
        assert row["workload.kind"] == "net.json"
        keys.append(row["key"])
    assert keys[0] == keys[1] != keys[2]


def test_what_is_replaced_in_clusters():
    cluster = {"gpu": "a100", "overheads": False, "device": {"launch": [0.0, 7.0]}, "links": {"latency": 0.0}}
    free, slow = evaluated(study("sequential", cluster=cluster))
    assert free["makespan_us"] == 70.0 < slow["makespan_us"]
    assert slow["cluster.device.launch"] == 7.0
