"""What campaigns share: their logs, and one line where they cannot run."""

import pytest
from hypothesis import settings

from simsched.base.io import read_json
from validation import fuzz, jit, mutants, realtraces
from validation.evidence import FOLDER
from validation.hardware import analyse

HOURS = [(fuzz, "--seconds 3600 --seed 1"), (jit, "--programs 20000 --seed 1"), (mutants, "--count 100000 --seed 1")]


@pytest.mark.evidence
@pytest.mark.parametrize(("tool", "words"), HOURS)
def test_campaign(tool, words):
    """``pytest -m evidence tests/validation`` writes their logs anew."""
    log = FOLDER / f"{tool.__name__.rpartition('.')[2]}.json"
    assert tool.main([*words.split(), "--log", str(log)]) == 0


def test_a_short_campaign_keeps_a_log(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(fuzz, "_SETTINGS", settings(fuzz._SETTINGS, max_examples=20))
    monkeypatch.setattr(fuzz, "run_apart", lambda name, *given: fuzz.run(fuzz.READERS[name], *given))
    found = {}
    for tool, words in ((fuzz, "--seconds 0 --only wirings --seed 4"), (mutants, "--count 60 --seed 2")):
        log = tmp_path / "log.json"
        assert tool.main([*words.split(), "--log", str(log)]) == 0
        found |= read_json(log)
        assert found["seed"] == int(words[-1])
    out = capfd.readouterr().out
    assert "0 failures" in out
    assert "60 mutants of 2 schedules" in out
    assert found["readers"]["wirings"]["examples"] > 10
    assert found["readers"]["wirings"]["failures"] == {}
    assert found["accepted"] + found["refused"] == found["mutants"] == 60


@pytest.mark.parametrize(
    ("tool", "words", "message"),
    [
        (analyse, "empty", "holds no measurements"),
        (analyse, "none", "there is no folder"),
        (realtraces, "none", "none: no such folder"),
    ],
)
def test_what_cannot_be_used_is_one_line(tool, words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    assert tool.main(words.split()) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("error: ")
    assert message in err
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["empty"]
