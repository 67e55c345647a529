"""The table of all-reduces: which rows are for what, and that numbers of links are found again."""

import csv
import gzip

import pytest

import simsched as ss
from simsched.base.units import MS
from simsched.model.exchange import exchange
from validation import collectives
from validation.collectives import DEVICES, Row, fit, is_of, rows_of, table

SIZES = (2048, 3000, 4096, 100_000, 1_000_000, 10_000_000, 60_000_000)


def write(folder, factor=1.0, **changes):
    """Tables as they would be if the quicker of ring and tree took so many times as long, over other links."""
    for device in DEVICES:
        rows = []
        for ranks in (2, 4, 8):
            topology = ss.Cluster.preset(device, ranks).replace_links(**changes).topology
            for size in SIZES:
                asked = (ss.Collective("all_reduce", size, ranks, algorithm=name) for name in ("ring", "tree"))
                us = factor * min(exchange(each, topology, range(ranks)).time for each in asked)
                median = {"time_stats.all_reduce.median": us / MS}
                rows.append({"num_workers": ranks, "devices_per_node": ranks, "size": size, **median})
        path = folder / f"net-{device}_dgx-all_reduce.csv.gz"
        with gzip.open(path, "wt", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    return folder


@pytest.mark.parametrize(
    ("ranks", "in_node", "nbytes", "part"),
    [
        (2, 2, 2048.0, "fitted"),  # 2 to 4 KiB: 2^11
        (8, 8, 4096.0, "held out: sizes"),
        (4, 4, 2048.0, "held out: 4 ranks"),
        (16, 8, 2048.0, "several nodes"),
    ],
)
def test_what_a_row_is_for(ranks, in_node, nbytes, part):
    row = Row(ranks, in_node, nbytes, 1.0)
    assert row.part == part
    assert is_of(row, "held out") == part.startswith("held out")


def test_errors_of_tables_that_the_model_made_a_tenth_slower(tmp_path):
    """ln(1 / 1.1) = -0.095 everywhere."""
    found = table(write(tmp_path, 1.1))
    assert {(error, bias) for _, _, _, error, bias in found} == {("0.095", "-0.095")}
    assert [n for device, part, n, *_ in found if (device, part) == ("A100", "held out: 4 ranks")] == [str(len(SIZES))]


def test_numbers_of_links_are_found_again(tmp_path, monkeypatch):
    monkeypatch.setattr(collectives, "_STARTS", 2)
    truth = {"start": 30.0, "step": 1.0, "efficiency": 0.75}
    folder = write(tmp_path, **truth)
    assert len(rows_of(folder / "net-a100_dgx-all_reduce.csv.gz")) == 3 * len(SIZES)
    start, step, efficiency = fit("a100", folder)
    assert (start, step, efficiency) == pytest.approx(tuple(truth.values()), rel=0.05)
