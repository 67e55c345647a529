"""Exit statuses: those of the table in the reference, and every command ends with them."""

import re
from pathlib import Path

import pytest

import simsched as ss
import workloads
from simsched.base.errors import SimschedError
from simsched.cli import options
from simsched.cli.contact import contact
from simsched.cli.run import _HOME, STATUSES, run
from simsched.cli.study import study

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
LINES = (
    "compare G",
    "schedule G",
    "simulate G",
    "check lios",
    "advise G",
    "whatif G",
    "sweep G gpus 1,2",
    "sensitivity G",
    "explain G",
    "breakeven G gpus lios heft",
    "robust G",
    "throughput G",
    "report G -o r.html",
    "profile G --backend synthetic",
    "calibrate p.json",
    "replay p.json --backend synthetic",
    "validate squeezenet --backend synthetic",
    "replay-trace t.json",
    "pairs t.json",
    "show G",
    "convert a.json b.dot",
    "list gpus",
    "study run s.toml -o f",
    "study resume f",
    "study status f",
    "study table f",
    "study plot f",
    "study merge f -o g",
    "study rank f",
    "duel lios heft",
    "overlap G",
    "contact run f",
    "contact analyse f",
)
"""A line of each command that can be read."""
ENDS = {
    1: (options.IncompleteError("of 3 rows 1 failed"), "error: of 3 rows 1 failed\n"),
    2: (SimschedError("no such thing"), "error: no such thing\n"),
    70: (KeyError("flops"), "error: unexpected KeyError: 'flops' ("),
    130: (KeyboardInterrupt(), "error: interrupted; no file was left half-written\n"),
}
"""What ends a command, and its line."""


def test_the_reference_has_the_table():
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.M)
    assert {int(status): said for status, said in rows} == STATUSES
    assert ENDS.keys() == STATUSES.keys() - {0}


def test_every_command_has_a_line():
    groups = {"study": study, "contact": contact}
    names = [name for names in _HOME.values() for name in names if name not in groups]
    for group, commands in groups.items():
        names += [f"{group} {command.callback.__name__}" for command in commands.registered_commands]
    assert sorted(re.match(r"((?:study|contact) )?[a-z-]+", line)[0] for line in LINES) == sorted(names)


@pytest.mark.parametrize("line", [line for line in LINES if not line.startswith("contact")])  # which keeps no one file
def test_every_command_ends_with_them(line, monkeypatch, capsys):
    for status, (error, said) in ENDS.items():

        def raises(_, error=error):
            raise error

        monkeypatch.setattr(options, "_require_apart", raises)  # the first that a command does
        ended, (out, err) = run(line.split()), capsys.readouterr()
        assert (ended, out, err.count("\n"), err[: len(said)]) == (status, "", 1, said)
    assert run([*line.split(), "--nonsense"]) == 2
    assert run([*line.split()[: 1 + line.startswith("study")], "--help"]) == 0


STUDY = """
name = "small"
schedulers = ["lios", SCHEDULER]
workload = {kind = "layered", n_ops = [12, 16], n_layers = 4}
cluster = {gpu = "a40"}
execution = {time_limit = 0.5}
"""
SCHEDULERS = """
import time
import simsched as ss
import workloads
def refuses(graph, cluster, cost): raise ss.SimschedError("too odd")
def sleeps(graph, cluster, cost): time.sleep(100)
def fails(graph, cluster, cost):
    if len(graph) > 12:
        raise ValueError("too many operators")
    return ss.schedule(graph, cluster, "heft", cost)
"""
ROWS = {
    "refuses": None,
    "fails": "error: of 4 rows 1 failed; the first is row 3 (my_rows:fails): ValueError: too many operators\n",
    "sleeps": "error: of 4 rows 2 timed out; the first is row 1 (my_rows:sleeps): took longer than the time limit of "
    "0.5 s\n",
}


@pytest.mark.parametrize("name", ROWS)
def test_a_study_with_rows_that_failed(name, capsys):
    """Its table is printed, whether rows are new or not; those that are refused are results."""
    Path("my_rows.py").write_text(SCHEDULERS)
    Path("s.toml").write_text(STUDY.replace("SCHEDULER", f'"my_rows:{name}"'))
    for line in ("study run s.toml -o f --serial", "study resume f --serial"):
        ended, (out, err) = run(line.split()), capsys.readouterr()
        assert out.startswith("small: 4 of 4 rows")
        assert ended == (0 if ROWS[name] is None else 1)
        assert err.endswith(ROWS[name] or "rows/s\n") or ROWS[name] is None
    assert run(["study", "status", "f"]) == run(["study", "table", "f"]) == 0


def test_a_check_that_failed(capsys):
    Path("my_rows.py").write_text(SCHEDULERS)
    assert run(["check", "my_rows:fails"]) == 1
    out, err = capsys.readouterr()
    assert "NO" in out
    assert err.startswith("error: my_rows:fails breaks ")
    assert run(["check", "sequential"]) == 0


@pytest.mark.parametrize("name", ["__name__", "__doc__", "__wrapped__", "__signature__", "__dict__"])
def test_a_scheduler_that_cannot_be_asked(name, refused):
    """An object whose attribute raises is misuse, not a defect; so is one whose name is no text."""
    Path("odd.py").write_text(
        "class Odd:\n"
        "    def __call__(self, graph, cluster, cost): pass\n"
        f"    {name} = property(lambda self: 1 / 0)\n"
        "odd = Odd()\n"
    )
    for line in ("schedule squeezenet --scheduler odd:odd", "compare squeezenet --schedulers odd:odd", "check odd:odd"):
        assert "'odd:odd' cannot be asked what it is (ZeroDivisionError: division by zero)" in refused(line)


@pytest.mark.parametrize(
    "line",
    [
        "study run s.toml --output=",
        "study plot f --output=",
        "study merge f --output=",
        "validate squeezenet --backend synthetic --resume=",
    ],
)
def test_no_folder_without_a_name(line, refused):
    """It would be the current one."""
    Path("s.toml").write_text(STUDY.replace("SCHEDULER", '"heft"'))
    ss.run_study(ss.Study.from_file("s.toml"), "f", load=workloads.load_kind, executor="serial")
    assert "cannot make a folder without a name" in refused(line)
