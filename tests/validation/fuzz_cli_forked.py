"""Cases of the fuzz campaign that run commands in forks: `test_fuzz_cli` has them run in a process of their own."""

import json
import os
import sys
import time
from pathlib import Path

import pytest

from validation import fuzz_cli
from validation.fuzz_arguments import Command, Parameter
from validation.fuzz_cli import Change, Outcome, faults, forked
from validation.fuzz_scratch import Scratch


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "root"
    (folder / "here").mkdir(parents=True)
    (folder / "tmp").mkdir()
    return folder


@pytest.fixture
def scratch(root, monkeypatch):
    """A folder with two files."""

    class Small(Scratch):
        def __init__(self):
            self.root, self.folder = root, root / "here"
            self._kept, self.found = root.with_name("kept"), []
            (self.folder / "a.json").write_text("{}")
            (self.folder / "b.json").write_text("[1]")
            self.keep()

    return Small()


def plant(monkeypatch, action):
    """Let every command do this."""
    monkeypatch.setattr("simsched.cli.run.run", action)


def stops(words):
    time.sleep(60)


def kills(words):
    os.kill(os.getpid(), 9)


def prints_a_traceback(words):
    raise KeyError("a")


def ends(words):
    sys.exit(3)


def takes_memory(words):
    try:
        bytearray(8 << 40)
    except MemoryError:
        print("error: out of memory", file=sys.stderr)
        return 2
    return 0


def says_two_things(words):
    print("error: one\nerror: two", file=sys.stderr)
    return 2


def is_surprised(words):
    print("error: unexpected KeyError: 'a' (x.py, line 3)", file=sys.stderr)
    return 70


def warns(words):
    print("warning: mind", file=sys.stderr)
    return 0


def complains(words):
    print("mind", file=sys.stderr)
    return 0


def prints_nan(words):
    print('{"a": NaN}')
    return 0


def writes(name, text="{}"):
    def write(words):
        Path(name).write_text(text)
        return 0

    return write


def removes(words):
    Path("a.json").unlink()
    return 0


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (kills, ["exit status -9"]),
        (prints_a_traceback, ["exit status 98"]),
        (ends, ["exit status 98"]),
        (takes_memory, []),
        (says_two_things, ["status 2 without one error line"]),
        (is_surprised, ["unexpected KeyError"]),
        (warns, []),
        (complains, ["status 0, and stderr says something"]),
        (prints_nan, ["--json that is no JSON"]),
        (writes("t.json"), []),
        (writes("t.json", "{"), ["left a file that is not whole"]),
        (writes("t.json", "digraph {"), []),
        (writes("u.json"), ["touched a file that is not named (.json)"]),
        (writes("../t.json"), ["touched a file that is not named (.json)"]),
        (writes("../tmp/x"), ["touched a file that is not named (temporary)"]),
        (writes("a.json"), ["changed a file that it reads"]),
        (removes, ["removed a file"]),
    ],
)
def test_what_is_planted_is_seen(action, expected, scratch, monkeypatch):
    """A command that reads a.json and was told to write t.json."""
    plant(monkeypatch, lambda words: (action(words), 0)[0])
    words = ["compare", "a.json", "-o", "t.json", "--json"]
    command = Command(("compare",), (Parameter(("-o",), "output", False, False),))
    outcome = forked(words, scratch.root)
    change = scratch.changes()
    found = faults(words, command, outcome, change, scratch)
    if outcome.out == "" and outcome.status == 0:
        found.remove("--json that is no JSON")
    assert found == expected
    scratch.restore(change)
    assert scratch.changes() == Change((), (), ())
    assert (scratch.folder / "a.json").read_text() == "{}"


def test_what_does_not_end_is_stopped(scratch, monkeypatch):
    plant(monkeypatch, stops)
    monkeypatch.setattr(fuzz_cli, "SECONDS", 0.3)
    outcome = forked(["list", "gpus"], scratch.root)
    assert outcome.status is None
    assert faults(["list", "gpus"], None, outcome, Change((), (), ()), scratch) == ["over the limit of time"]


def test_an_output_that_is_named_may_be_changed(scratch):
    (scratch.folder / "a.json").write_text('{"new": 1}')
    command = Command(("show",), (Parameter(("--svg",), "picture", False, False),))
    done = Outcome(0, "", "", 0.1)
    for words in (["show", "b.json", "--svg", "a.json"], ["show", "b.json", "--svg=a.json"]):
        assert faults(words, command, done, scratch.changes(), scratch) == []
    assert faults(["show", "a.json"], command, done, scratch.changes(), scratch) == ["changed a file that it reads"]


def test_a_planted_defect_of_a_command_is_logged(scratch, monkeypatch):
    """Lists that fail: found by running commands that begin so."""

    def broken(*_):
        raise KeyError("gpu")

    monkeypatch.setattr("simsched.cli.printing.print_table", broken)
    monkeypatch.setattr(fuzz_cli, "Scratch", lambda root, measured: scratch)
    tally = fuzz_cli.run(scratch.root, 3, count=3, only="list")
    assert tally.failures["unexpected KeyError"] >= 1
    assert any("list" in example["command"] for example in tally.examples)
    assert json.loads(json.dumps(tally.to_dict()))["commands"] == 3


def test_a_slice_of_the_campaign(tmp_path):
    (tmp_path / "root").mkdir()
    tally = fuzz_cli.run(tmp_path / "root", 21, count=8, measured=False)
    assert not tally.failures, tally.examples
    assert tally.commands == 8
    assert {*tally.status} <= {"0", "2"}
