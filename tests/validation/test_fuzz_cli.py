"""The fuzz campaign of the command line: it draws every command, sees what is planted, and finds nothing in a slice."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest
import typer

from validation import fuzz_arguments
from validation.fuzz_arguments import commands, draw

HERE = Path(__file__).resolve().parent


def test_every_command_and_option_is_drawn():
    known = commands()
    seen = Counter()
    for i in range(4000):
        words, command = draw(known, [], Random(i))
        if command is not None:
            seen[command.path] += 1
            seen.update((command.path, word.partition("=")[0]) for word in words if word.startswith("-"))
    for command in known:
        assert seen[command.path] > 50
        for one in command.parameters:
            assert any(seen[command.path, name] for name in one.names) or not one.names, (command.path, one)


def test_every_option_has_values():
    for command in commands():
        for one in command.parameters:
            assert one.kind == "flag" or one.kind in fuzz_arguments._VALUES, (command.path, one)
    kinds = {name: one.kind for command in commands() for one in command.parameters for name in one.names}
    assert kinds["--json"] == "flag"
    assert kinds["--gpus"] == "whole"
    assert kinds["--jitter"] == "number"
    assert kinds["--perfetto"] == "output"


def test_the_same_seed_draws_the_same_commands():
    known = commands()
    first, again, other = ([draw(known, [], Random(f"{seed} {i}")) for i in range(30)] for seed in (1, 1, 2))
    assert first == again != other


def test_a_new_command_would_be_drawn(monkeypatch):
    app = typer.Typer()

    @app.command()
    def other() -> None:
        """Nothing."""

    @app.command()
    def ask(
        graph: str = typer.Argument(metavar="GRAPH"),
        sets: list[str] = typer.Option(..., "--set", metavar="CHANGE"),  # noqa: B008
        depth: int = typer.Option(1, "--depth", min=1),
    ) -> None:
        """Ask."""

    monkeypatch.setattr("simsched.cli.app.application", lambda: app)
    (_, found) = commands()
    assert found.path == ("ask",)
    assert [(one.names, one.kind, one.many) for one in found.parameters] == [
        ((), "graph", False),
        (("--set",), "change", True),
        (("--depth",), "whole", False),
    ]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="commands are run in forks")
def test_what_is_run_in_forks():
    """In a process of its own: this one may have threads by now, and a fork could wait for them for ever."""
    words = ["-p", "no:cacheprovider", "-p", "no:xdist", "-q", str(HERE / "fuzz_cli_forked.py")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=HERE.parent.parent, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(".") >= 20
