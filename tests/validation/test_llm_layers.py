"""Steps of language models beside tables of layers, and published overlaps: small tables by hand, and the list."""

import csv
import gzip

import pytest

from simsched.base.errors import FileError
from validation import llm, overlaps

ROW = {
    "n_head": "32",
    "n_kv_head": "32",
    "n_embd": "4096",
    "n_expanded_embd": "11008",
    "vocab_size": "32000",
    "use_gated_mlp": "True",
    "num_tensor_parallel_workers": "1",
}
COLUMNS = {name for names in llm.MEASURED.values() for name in names}


@pytest.fixture
def table(tmp_path):
    """A table of one device and model: each operator of a layer takes 0.1 ms."""
    rows = [
        ROW | {"num_tokens": str(n)} | {f"time_stats.{name}.median": "0.1" for name in COLUMNS} for n in (40, 50, 2000)
    ]
    path = tmp_path / f"a100-Other-7b{llm.SUFFIX}"
    with gzip.open(path, "wt") as file:
        writer = csv.DictWriter(file, fieldnames=[*rows[0]])
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_a_measured_layer_is_the_sum_of_a_row_and_the_bytes_of_attention(table):
    """Nine columns of 100 us; 50 sequences of 2,048 keys and values of 4,096 numbers, at 2,039 GB/s."""
    steps = {(phase, row["num_tokens"]): whole for phase, row, _, whole in llm.steps(table)}
    assert len(steps) == 6
    cache = 50 * 2048 * 2 * 4096 * 2
    vectors = 2 * 50 * 4096 * 2
    assert steps["decode", "50"].measured == pytest.approx(900 + (cache + vectors) / 2039e3)


def test_operators_of_a_layer_have_their_columns(table):
    """The sum of the residual is part of the second norm."""
    _, _, cases, _ = next(llm.steps(table))
    assert {name: round(case.measured) for name, case in cases.items()} == dict.fromkeys(llm.MEASURED, 100) | {
        "post_norm": 200
    }
    assert all(case.predicted > 0 for case in cases.values())


def test_the_nearest_numbers_of_tokens_count(table, capsys):
    """Of 40, 50 and 2,000 tokens: 50 for 48, and 2,000 for 2,016; the model is held out."""
    assert llm.main(["--data", str(table.parent)]) == 0
    text = capsys.readouterr().out
    assert text.count("| held out |") == 2
    assert "looked at" not in text.partition("| device |")[2]


def test_a_folder_without_tables_is_refused(tmp_path, capsys):
    with pytest.raises(FileError, match=r"no file ends in \.mlp\.csv\.gz"):
        llm.llm_section(tmp_path)
    assert llm.main(["--data", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_each_published_overlap_is_asked_or_left_out_for_a_reason():
    """82 of them, as the page says; those that are asked have a device, and say what is assumed."""
    cases = overlaps.cases()
    asked = [case for case in cases if "graph" in case]
    assert (len(cases), len(asked)) == (82, 13)
    assert len({case["id"] for case in cases}) == 82
    assert all(("graph" in case) != ("left_out" in case) for case in cases)
    assert all({"gpu", "gpus", "overlap", "assumed", "why"} <= case.keys() for case in asked)


def test_gains_over_a_published_step():
    """A step of 1,000 us of which 200 are saved is a quarter faster, however long the simulated one is."""
    assert overlaps._over_step({"step_us": 1000.0}, 600.0, 400.0) == pytest.approx(25.0)
    assert overlaps._over_step({}, 600.0, 400.0) is None


def test_chunks_are_products_and_collectives_by_turns():
    """32 rows in 8 chunks of 4: as many FLOP, and each chunk's sums."""
    whole = overlaps._product(32, 1)
    chunked = overlaps._product(32, 8)
    assert chunked.flops.sum() == whole.flops.sum() == 2 * 32 * 7168 * 16384
    assert [op.collective.bytes for op in chunked.operators[1::2]] == [4 * 16384 * 2] * 8


def test_a_case_is_answered():
    """Shared experts of a step on eight GPUs; the published step is longer, so that the gain over it is smaller."""
    case = next(case for case in overlaps.cases() if case["id"] == "sgl-project/sglang#5121a")
    answer = overlaps.answer(case)
    assert answer.low < answer.gain < answer.high
    assert 0 < answer.of_step < answer.gain
