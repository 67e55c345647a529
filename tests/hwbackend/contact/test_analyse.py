"""The page of a contact or a kept campaign; and a machine without typer, rich and simpy."""

import json
import subprocess
import sys

import pytest
from contacts import ROOT, measured, ran

from hwbackend.contact.analyse import Analysis, analyse
from hwbackend.contact.clocks import reasons_of
from simsched.base.errors import FileError

SECTIONS = ("doctor", "host", "dispatch", "saturation", "sharing", "networks", "dags")
KEPT = ROOT / "validation" / "hardware" / "measurements" / "h100-2026-11-28"


@pytest.fixture(scope="module")
def contact(tmp_path_factory):
    """A contact without the sections on copies and single operators."""
    folder = tmp_path_factory.mktemp("contact")
    measured(folder, SECTIONS, seed=2)
    return folder


def test_what_was_held_out_is_predicted(contact):
    """The fake simulates, so that a fit to it predicts to a per cent what the preset misses by a tenth."""
    page = analyse(contact)
    for name in ("sharing", "networks", "dags", "networks/tiny_inception", "dags/dag1"):
        row = page.rows[name]
        assert row["held_out"] >= 5
        assert row["mean_error"] < 0.02
    assert page.rows["networks"]["uncalibrated_error"] > 0.1
    assert page.rows["networks"]["regret"] < 0.02
    assert page.rows["networks"]["kendall_tau"] > 0.9
    assert page.rows["copies"]["items"] == 0
    text = "\n".join(page.lines())
    assert "| networks/tiny_inception " in text
    assert "| leftover dispatch " in text
    assert page.worse() == []


def test_a_kept_page_bounds_the_next_one(contact, tmp_path):
    """A quarter above what was kept: errors below half a per cent are luck, so a kept one of 0 is held to that."""
    kept = tmp_path / "kept.json"
    assert ran("analyse", contact, f"--output={kept}")[0] == 0
    rows = json.loads(kept.read_text())["rows"]
    beside = tmp_path / "beside"
    beside.mkdir()
    (beside / "contact.json").write_text(kept.read_text())
    assert ran("analyse", contact, f"--beside={beside}")[0] == 0
    rows["networks"]["mean_error"] = 0.0
    row = {"networks": {"mean_error": 0.03, "p90_error": 0.03, "regret": 0.0}}
    worse = Analysis("x", rows=row, beside={"networks": {"mean_error": 0.02, "regret": 0.0}}).worse()
    assert worse == ["networks: mean_error is 3.0 %, bound 2.5 %"]


def test_a_page_says_what_is_missing(tmp_path):
    """The doctor alone: nothing can be fitted, and the page has his findings all the same."""
    measured(tmp_path, ["doctor"], seed=2, fault="exception")
    page = analyse(tmp_path)
    assert page.rows["doctor"] == {"items": 11, "wanted": 12}
    assert [row.verdict for row in page.doctor if row.matter == "items"] == ["fail"]
    assert any(line.startswith("no microbenchmark was measured") for line in page.notes)
    assert any("an illegal memory access was encountered: doctor/overlap" in line for line in page.notes)
    with pytest.raises(FileError, match="holds no measurements"):
        analyse(tmp_path / "nothing")


def test_the_kept_campaign_of_an_h100_is_predicted_as_well_as_before():
    """A small part of it, beside its own summary; `.ci/run` has the graphs of up to 33 operators."""
    page = analyse(KEPT, operators=16)
    assert page.title.startswith("cupy: NVIDIA H100 80GB HBM3, 2026-11-28")
    assert page.worse() == []
    (name,) = page.rows
    assert page.rows[name]["held_out"] > 10
    assert page.beside[name]["mean_error"] == pytest.approx(page.rows[name]["mean_error"], rel=0.25)
    assert "inception_v3" in page.notes[0]


def test_both_commands_print_and_write_the_same_page(contact, capsys, tmp_path):
    from simsched.cli.run import run

    assert run(["contact", "analyse", str(contact), "-o", str(tmp_path / "a.json")]) == 0
    status, printed, errors = ran("analyse", contact, "-o", tmp_path / "b.json")
    assert (status, errors) == (0, "")
    assert capsys.readouterr().out == printed
    assert (tmp_path / "a.json").read_text() == (tmp_path / "b.json").read_text()


WITHOUT = """
import runpy, sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("typer", "rich", "simpy", "click", "matplotlib", "scipy", "networkx", "torch"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
sys.argv = ["contact", *sys.argv[1:]]
runpy.run_module("hwbackend.contact", run_name="__main__")
"""


def test_a_contact_is_analysed_without_packages_of_the_command_line(contact, tmp_path):
    """Without typer, rich, simpy, scipy, networkx, matplotlib and torch."""
    script = tmp_path / "without.py"
    script.write_text(WITHOUT)
    words = [sys.executable, str(script), "analyse", str(contact)]
    done = subprocess.run(words, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "| dags/dag1 " in done.stdout


def test_reasons_for_low_clocks_have_names():
    """Bits 2 and 5 of the mask: the power cap of the software, and its thermal limit; idle (bit 0) is no reason."""
    assert reasons_of(0b100101) == ("sw_power_cap", "sw_thermal_slowdown")
    assert reasons_of(1) == ()
