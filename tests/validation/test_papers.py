"""Claims of the papers: the rules they are judged by, and that what is printed is what was kept."""

from dataclasses import replace
from pathlib import Path

import pytest

from simsched.base.errors import FormatError
from simsched.base.io import parse_json, read_text
from validation.papers.__main__ import main, section
from validation.papers.claims import EXACT, ORDER, Between, Claim, Run, SameOrder, Within
from validation.papers.record import PAPERS, Outcome, claims_of, dump, measure, put_between, read, table, verdicts

ROOT = Path(__file__).resolve().parent.parent.parent
LOG = ROOT / "validation" / "papers.json"


def claim(**changed):
    """One that two printed numbers differ as ours do."""
    plain = Claim(
        "x-1", "X", "Fig. 1", "a | b", {"a": 2.0, "b": 4.0}, "printed", Within(0.1), lambda run: {"a": 2.1, "b": 4.0}
    )
    return replace(plain, **changed)


def test_within():
    """2.2 is 10 % above 2, 2.21 is more; 0 within any fraction is 0 alone."""
    assert Within(0.1)({"": 2.0}, {"": 2.2})
    assert not Within(0.1)({"": 2.0}, {"": 2.21})
    assert not Within(0.1)({"a": 2.0, "b": 4.0}, {"a": 2.0, "b": 3.0})
    assert Within(0.5)({"": 0.0}, {"": 0.0})
    assert not Within(0.5)({"": 0.0}, {"": 0.1})
    assert EXACT({"": 28.0}, {"": 28.0})
    assert not EXACT({"": 28.0}, {"": 29.0})
    assert Within(0.1)({"": -2.0}, {"": -2.1})


def test_order():
    """1 < 2 < 2.02: the last two are within 2 % of each other, and may change places; the first may not."""
    published = {"a": 1.0, "b": 2.0, "c": 2.02}
    assert ORDER(published, {"a": 10.0, "b": 30.0, "c": 20.0})
    assert ORDER(published, {"a": 10.0, "b": 10.0, "c": 20.0})
    assert not ORDER(published, {"a": 25.0, "b": 30.0, "c": 20.0})
    assert not SameOrder(ties=0.0)(published, {"a": 10.0, "b": 30.0, "c": 20.0})


def test_between():
    assert Between(1.0, 2.0)({"": 9.0}, {"": 2.0})
    assert not Between(1.0, 2.0)({"": 9.0}, {"": 2.1})
    assert not Between(1.0, 2.0)({"a": 9.0, "b": 9.0}, {"a": 1.5, "b": 0.9})


def test_verdicts():
    found = measure(claim(), Run())
    assert found.ours == {"a": 2.1, "b": 4.0}
    assert claim().verdict(found.ours) == "reproduced"
    far = {"a": 3.0, "b": 4.0}
    assert claim().verdict(far) == "differs: not explained yet"
    assert claim(because="theirs waits").verdict(far) == "differs: theirs waits"
    missing = claim(measure=None, missing="source not available: no axis")
    assert measure(missing, Run()) == Outcome(None)
    assert missing.verdict(None) == "source not available: no axis"


def test_a_claim_is_measured_or_says_why_not():
    with pytest.raises(AssertionError, match="x-1"):
        claim(measure=None)
    with pytest.raises(AssertionError, match="x-1"):
        claim(missing="not reproducible here")


@pytest.mark.parametrize("ours", [{"a": 1.0}, {"a": 1.0, "b": float("nan")}, {"a": 1.0, "b": float("inf")}])
def test_every_published_name_needs_a_number(ours):
    with pytest.raises(FormatError, match="claim 'x-1' has no value of its own for 'b'"):
        measure(claim(measure=lambda run: ours), Run())


def test_outcomes_are_kept_and_read_back(tmp_path):
    path = tmp_path / "papers.json"
    outcomes = {"x-1": Outcome({"a": 2.1, "b": 4.0}, 0.5), "x-2": Outcome(None)}
    claims = [claim(), claim(key="x-2", measure=None, missing="not reproducible here"), claim(key="x-3")]
    path.write_text(dump(outcomes, claims))
    assert read(str(path)) == outcomes
    kept = parse_json(path.read_text())["claims"]
    assert [row["verdict"] for row in kept.values()] == ["reproduced", "not reproducible here"]


def test_table():
    text = table([claim()], {"x-1": Outcome({"a": 2.1, "b": 4.0}, 0.5)})
    assert text.splitlines()[-1] == (
        "| Fig. 1 | a \\| b | a 2, b 4 (printed) | a 2.1, b 4 | within 10 % | reproduced |"
    )
    assert table([claim()], {}).endswith("| not run | within 10 % | not run |")


def test_part_of_a_text_is_replaced():
    text = "head\n<!-- claims -->\nold \\1\n<!-- end of claims -->\ntail"
    assert put_between(text, "claims", "new \\1") == "head\n<!-- claims -->\nnew \\1\n<!-- end of claims -->\ntail"
    with pytest.raises(FormatError, match="<!-- other -->"):
        put_between(text, "other", "new")


def test_claims_are_told_apart():
    claims = claims_of(PAPERS)
    assert len({each.key for each in claims}) == len(claims) > 80
    with pytest.raises(FormatError, match="two claims have the key"):
        claims_of(["lios", "lios"])


def test_every_claim_was_run_and_differences_are_explained():
    outcomes = read(str(LOG))
    claims = claims_of(PAPERS)
    assert list(outcomes) == [each.key for each in claims]
    for each in claims:
        assert "not explained" not in each.verdict(outcomes[each.key].ours), each.key
        assert (outcomes[each.key].ours is None) == (each.measure is None), each.key


def test_the_page_has_what_was_kept():
    """Running any claim writes all of them: `python -m validation.papers --claim lios-table3`."""
    page = read_text(ROOT / "docs" / "background" / "claims.md")
    assert put_between(page, "claims", section(claims_of(PAPERS), read(str(LOG)))) == page


def test_the_readme_counts_what_was_kept():
    """A row per paper, and one of all: claims, reproduced, differ, not to be had."""
    text, claims, outcomes = read_text(ROOT / "validation" / "README.md"), claims_of(PAPERS), read(str(LOG))
    for paper in ("all", *dict.fromkeys(each.paper for each in claims)):
        found = verdicts([each for each in claims if paper in ("all", each.paper)], outcomes)
        reproduced, differ, total = found["reproduced"], found["differs"], sum(found.values())
        assert f"| {paper} | {total} | {reproduced} | {differ} | {total - reproduced - differ} |\n" in text


def test_command(tmp_path, capsys):
    """The first claim that costs nothing, alone, kept in a log and a page of its own."""
    log, page = tmp_path / "papers.json", tmp_path / "claims.md"
    page.write_text("<!-- claims -->\n<!-- end of claims -->\n")
    assert main(["--only", "lios", "--claim", "lios-table3", "--log", str(log), "--page", str(page)]) == 0
    printed = capsys.readouterr().out
    assert "1 reproduced" in printed
    assert list(read(str(log))) == ["lios-table3"]
    assert "| Table III |" in page.read_text()
    with pytest.raises(SystemExit):
        main(["--claim", "nothing"])
    assert "no claim has the key 'nothing'" in capsys.readouterr().err
