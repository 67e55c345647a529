"""Published speedups and latencies: each number as its paper prints it, and a row predicted as by the command line."""

import json

import pytest

import simsched as ss
import workloads
from validation import published
from validation.published import Row, rows


def test_speedups_are_those_of_the_papers():
    """IOS: 6.51 over 4.03 ms; Opara by bars, 3.829 over 2.273; images per s are latencies of the batch."""
    by_place = {(row.where, row.network, row.gpu, row.batch): row for row in rows()}
    assert len(by_place) == len(rows())
    assert by_place["Fig. 6", "inception_v3", "v100", 1].speedups["ios"] == pytest.approx(6.51 / 4.03)
    assert by_place["Fig. 5(a)", "googlenet", "rtx2080super", 1].speedups == pytest.approx(
        {"nimble": 2.951 / 2.273, "opara": 3.829 / 2.273}
    )
    fig_8 = by_place["Fig. 8", "inception_v3", "rtx2080super", 32]
    assert fig_8.latencies["opara"] == pytest.approx(32 / 1040.9 * 1e6)
    assert fig_8.speedups["nimble"] == pytest.approx(1030.6 / 923.1)
    assert by_place["Table 7", "randwire", "rtx3080", 1].speedups == {}
    assert sum(len(row.speedups) for row in rows()) == 55
    assert sum(len(row.latencies) for row in rows()) == 67


def test_numbers_are_those_of_the_claims():
    """Where `validation.papers` has the same ratio, it is the same number."""
    from validation.papers.claims import claims_of

    claims = {claim.key: claim.published for claim in claims_of(["ios", "opara"])}
    by_place = {(row.paper, row.where, row.network, row.batch): row.speedups for row in rows()}
    fig_6 = claims["ios-fig6-inception_v3"]
    names = {"greedy": "greedy", "ios-merge": "merge", "ios-parallel": "parallel", "ios": "both"}
    assert by_place["IOS", "Fig. 6", "inception_v3", 1] == pytest.approx(
        {ours: fig_6[key] for ours, key in names.items()}
    )
    for batch in (2, 4, 16, 32):
        ours = by_place["Opara", "Fig. 9", "inception_v3", batch]["opara"]
        assert ours == pytest.approx(claims["opara-fig9-graph"][f"batch {batch}"])
    for name, network in {"GoogLeNet": "googlenet", "BERT": "bert_base", "T5": "t5_small_encoder"}.items():
        assert by_place["Opara", "Fig. 5(a)", network, 1]["opara"] == pytest.approx(claims["opara-fig5a-graph"][name])


def test_rows_name_workloads_presets_and_schedulers():
    for row in rows():
        assert row.network in workloads.names()
        assert ss.Cluster.preset(row.gpu)
        assert {name.partition("-")[0] for name in row.schedulers} <= {*ss.SCHEDULERS, "captured"}


def test_a_row_is_predicted_as_the_command_compares(tmp_path, monkeypatch, capsys):
    """One stream and greedy of a small network: the speedup is that of `compare`, and both ends of a range hold it."""
    row = Row("P", "Fig. 1", "v100", "tiny_inception", ms={"sequential": 0.2, "greedy": 0.1})
    latencies, (speedup,) = published.predicted(row)
    table = ss.compare(workloads.load("tiny_inception"), ss.Cluster.preset("v100"), ["sequential", "greedy"])
    assert [case.predicted for case in latencies] == [line.makespan_us for line in table.rows]
    assert (speedup.measured, speedup.name) == (2.0, "P, Fig. 1: tiny_inception x1 on v100, greedy")
    assert speedup.low <= speedup.predicted <= speedup.high
    monkeypatch.setattr(published, "rows", lambda: [row])
    assert published.main(["--workers", "1", "--json", str(tmp_path / "p.json")]) == 0
    assert "## Published speedups (1)" in capsys.readouterr().out
    figures = json.loads((tmp_path / "p.json").read_text())["Published speedups (1)"]["figures"]
    assert figures["published speedups: bias"]["value"] == pytest.approx(speedup.error)
