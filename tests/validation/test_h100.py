"""The tables that hold the simulator against an H100: what they read, how they count, and small parts of each."""

import gzip
import json
import math

import pytest
from campaigns import measure_campaign

import simsched as ss
from hwbackend.contact.store import Store
from validation.h100 import __main__ as command
from validation.h100 import campaign, networks, orders, sharing, solo, vidur
from validation.h100.figures import Case, Figure, Section, constant_score, held, mean_error, score, wrong_signs
from validation.hardware.analyse import calibrations, summarise
from validation.hardware.truth import MEASURED, facts, read
from validation.hardware.truth import networks as measured_networks


def test_the_summary_is_that_of_the_measurements():
    """Headline figures, rounded. A mixture of experts takes 1434, 262 and 122 us: 5.5 and 2.1 times as fast."""
    kept = read(MEASURED, "summary.json")["measured"]
    assert kept == facts()
    row = kept["networks"]["moe/fp16/1"]
    assert (row["eager_us"], row["captured_us"], row["best_us"], row["best_streams"]) == (1434.3, 262.0, 122.4, 8)
    assert row["capture_gain"] == pytest.approx(1434.3 / 262.0, abs=0.005)
    assert row["streams_gain_over_captured"] == pytest.approx(262.0 / 122.4, abs=0.005)
    assert len(kept["networks"]) == 38


def test_the_measurements_are_small():
    """A clone of the project carries them, and so does its source package."""
    sizes = [path.stat().st_size for path in MEASURED.rglob("*") if path.is_file()]
    assert sum(sizes) < 3_500_000


def test_the_measured_schedule_has_as_many_streams_on_the_imported_graph():
    """Each network was spread over n streams, as PyTorch counted; graphs of the exports have as many.

    But for `vit_b_16`: its attention was traced otherwise than it is exported, so that up to 32 streams become 25.
    """
    rows = read(MEASURED, "truth.json.gz")["networks"]
    with networks.unpacked() as folder:
        for key, network in measured_networks().items():
            if network.dtype == "fp16":
                paths = dict(networks.sources(network, folder))
                assert {"default", "kept"} <= paths.keys(), key
                graph = networks.Graph(paths["default"], None, network.dtype).read()
                for limit in networks.LIMITS:
                    n_streams = 25 if (network.name, limit) == ("vit_b_16", 32) else rows[key][f"n_{limit}"]
                    assert networks.takeover(graph, limit).n_streams == n_streams, (key, limit)


def test_a_network_is_predicted_as_the_command_line_predicts_it():
    """Two towers: their captured time is that of `sequential`, and the gain of two streams is that of any two."""
    network = measured_networks()["two_tower/fp16/1"]
    with networks.unpacked() as folder:
        source = dict(networks.sources(network, folder))["default"]
        prediction = networks.predict(network, "default", source)
        graph = networks.Graph(f"{source},dtype=fp16", None, None).read()
    cluster = ss.Cluster.preset("h100")
    table = ss.compare(graph, cluster, ["sequential", "nimble"])
    nimble = next(row for row in table.rows if row.scheduler == "nimble")
    assert prediction.nimble[0] * nimble.makespan_us == pytest.approx(prediction.captured[0])
    assert prediction.gains[2] == pytest.approx(prediction.gains[32])
    low, high = prediction.captured[1:]
    assert low is not None
    assert high is not None
    assert low <= prediction.captured[0] <= high


def test_a_chain_of_ten_calls_alone_takes_its_measured_time():
    """Ten calls of t us: ten kernels of t - 0.3 us, ten nodes, and the constant that a replay has around them."""
    cluster = sharing.device().replace_devices(graph_node=sharing.NODE)
    call = sharing.library_calls()["gelu 2^20"]
    alone = sharing.makespan([sharing.calls_in_a_row(call, 5.0, "a")], cluster)
    assert alone == pytest.approx(10 * 5.0 + sharing.EDGES, abs=2 * sharing.NODE)


def test_kernels_of_a_call_share_its_time():
    """Shares add up to 1, so that ten calls of 20 us with three kernels each are 30 operators of 10 x (20 - 0.9) us."""
    for call in sharing.library_calls().values():
        assert math.isclose(sum(kernel["share"] for kernel in call["kernels"]), 1.0)
    ops = sharing.calls_in_a_row(sharing.library_calls()["lin32 128x1024x1024"], 20.0, "a")
    assert len(ops) == 30
    assert sum(op.time for op in ops) == pytest.approx(10 * (20.0 - 3 * sharing.NODE))


def test_networks_on_one_stream_are_their_kernels_in_a_row():
    """Without any cost of a node: the makespan is the sum of the kernels, and the launch of the graph."""
    cluster = sharing.device().replace_devices(graph_node=0.0, gap=0.0)
    one_stream, several = sharing.network_cases(cluster)
    rows = [row for row in read(MEASURED, "networks_on_streams.json.gz") if not row["key"].startswith("rnn")]
    for case, row in zip(one_stream, rows, strict=True):
        assert case.predicted == pytest.approx(sum(kernel[0] for kernel in row["kernels"]) + sharing.EDGES, rel=1e-6)
    assert len(several) == 4 * len(rows)
    moe = next(overlap for overlap in several if overlap.case.name == "moe/fp16/1 x8")
    assert moe.gain.measured == pytest.approx(265.6 / 122.448)
    assert 1.0 < moe.gain.predicted <= sum(kernel[0] for kernel in rows[0]["kernels"])


def test_orders_count_falls_and_slower_devices():
    """Times 5, 4, 4.05 fall once; of h100 3, a100 2, v100 4 the first is not faster than the second."""
    times = {
        (name, dtype, batch): {"h100": 1.0, "a100": 2.0, "v100": 3.0} | ({"k80": 4.0} if dtype == "fp32" else {})
        for name in orders.NETWORKS
        for dtype in orders.DTYPES
        for batch in orders.BATCHES
    }
    assert [orders.batch_section(times).figures[0].value, orders.device_section(times).figures[0].value] == [0, 0]
    assert "of 192," in orders.batch_section(times).figures[0].name
    times["resnet50", "fp16", 1] = {"h100": 3.0, "a100": 2.0, "v100": 4.0}
    assert orders.batch_section(times).figures[0].value == 2
    assert orders.device_section(times).rows == [
        ("resnet50", "fp16", 1, "0.00", "0.00", "0.00", "-", "h100 +50% over a100")
    ]
    assert orders.falls([5.0, 4.0, 4.05]) == 1


def test_times_of_a_workload_are_those_of_each_device_that_has_the_format():
    assert list(orders.captured_times("tiny_resnet", "fp16", 1)) == ["h100", "a100", "v100"]
    assert list(orders.captured_times("tiny_resnet", "fp32", 1)) == ["h100", "a100", "v100", "k80"]


def test_errors_ranges_and_signs_by_hand():
    """ln 2 too long and ln 2 too short; one of two ranges holds; its width is ln 4, the other misses by ln 1.5."""
    cases = [Case("a", 2.0, 1.0, 1.0, 4.0), Case("b", 1.0, 2.0, 0.5, 4 / 3)]
    assert mean_error(cases) == pytest.approx(math.log(2))
    assert held(cases) == 50.0
    assert score(cases) == pytest.approx((math.log(4) + math.log(8 / 3) + 20 * math.log(1.5)) / 2)
    assert constant_score(cases) == pytest.approx(math.log(4))
    assert held(cases, 0.5) == 100.0
    assert wrong_signs([Case("gain seen as none", 1.0, 1.5), Case("noise", 1.001, 0.999)])[0].name.startswith("gain")


def test_figures_meet_their_targets():
    """Rounded to the third digit, as they are printed."""
    assert Figure("a", 0.1504, most=0.15).met
    assert not Figure("a", 0.151, most=0.15).met
    assert Figure("a", -0.08, -0.08, 0.08).target == "abs <= 0.08"
    assert (Figure("a", 90.0, 88, 96).target, Figure("a", 1.0, least=0.82).target) == ("88 to 96", ">= 0.82")
    assert (Figure("a", None, most=1.0).met, Figure("a", 1.0).met) == (None, None)
    lines = list(Section("T", [Figure("a", 0.2, most=0.1)], ("x",), [("y",)], ("note",)).lines())
    assert lines == [
        "## T",
        "",
        "| measure | value | target |  |",
        "|---|---|---|---|",
        "| a | 0.200 | <= 0.1 | missed |",
        "",
        "| x |",
        "|---|",
        "| y |",
        "",
        "note",
    ]


def test_the_command_prints_tables_and_writes_figures(tmp_path, capsys):
    """The peak of three kernels of two blocks an SM and seven more, on each device."""
    file = tmp_path / "h100.json"
    assert command.main(["--only", "peaks", "--json", str(file)]) == 0
    assert "## Peak rates" in capsys.readouterr().out
    document = json.loads(file.read_text())["Peak rates"]
    assert [row["device"] for row in document["cases"]] == ["h100", "a100", "v100", "k80"]
    assert max(float(row["rate over the peak"]) for row in document["cases"]) == pytest.approx(
        next(iter(document["figures"].values()))["value"], abs=5e-4
    )
    with pytest.raises(SystemExit):
        command.main(["--only", "nothing"])
    assert "there is no section 'nothing'" in capsys.readouterr().err


def test_operators_alone_are_judged_by_groups_with_targets():
    """Every family that was measured has a group; nine of ten operators are in one with a target."""
    rows = read(MEASURED, "truth.json.gz")["solo"]
    groups = [solo.group(name.split("/")[0], name.split("/")[1].partition("-")[0]) for name in rows]
    assert set(solo.TARGETS) - {"all"} <= {*groups}
    assert sum(group in solo.TARGETS for group in groups) > 0.9 * len(groups)
    section = solo.solo_section()
    assert section.notes or {figure.name for figure in section.figures} >= {"alone, never fitted, all: bias, warm"}


def test_products_of_language_models_are_read_from_a_table(tmp_path):
    """One token of a model of width 64 on an A100: four products; measured 0.01 ms each, 0.02 the last."""
    names = ("attn_pre_proj", "attn_post_proj", "mlp_up_proj", "mlp_down_proj")
    row = {f"time_stats.{name}.median": "0.01" for name in names[:3]} | {"time_stats.mlp_down_proj.median": "0.02"}
    row |= {"n_embd": "64", "n_expanded_embd": "128", "n_head": "4", "n_kv_head": "4", "use_gated_mlp": "False"}
    row |= {"num_tokens": "1", "num_tensor_parallel_workers": "1"}
    path = tmp_path / "a100-tiny.mlp.csv.gz"
    path.write_bytes(gzip.compress("\n".join(map(",".join, (row, row.values()))).encode()))
    cases = vidur.cases(path)
    assert [case.name for case in cases] == [
        "tiny 0 attn_pre_proj 64x192 1",
        "tiny 0 attn_post_proj 64x64 1",
        "tiny 0 mlp_up_proj 64x128 1",
        "tiny 0 mlp_down_proj 128x64 1",
    ]
    assert [case.measured for case in cases] == pytest.approx([10.0, 10.0, 10.0, 20.0])
    assert vidur.cluster("a100").devices[0].bandwidth == 2039e3
    assert [figure.value is None for figure in vidur.vidur_section(tmp_path).figures] == [False, False, True, True]


def test_the_campaign_is_analysed_graph_by_graph(tmp_path, monkeypatch):
    """As `validation.hardware.analyse` does it: the surrogate stands for a GPU, with one small graph."""
    store = Store(tmp_path)
    measure_campaign(store)
    accuracy = campaign.analyse(tmp_path, "synthetic")
    assert accuracy == summarise(store, calibrations(store))["accuracy"]["synthetic"]
    monkeypatch.setattr(campaign, "analyse", lambda workers: accuracy)
    section = campaign.campaign_section()
    assert [row[0] for row in section.rows] == list(accuracy["graphs"])
    assert section.figures[0].value == pytest.approx(100 * accuracy["mean_error"])
