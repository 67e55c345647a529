"""What a stranger waits for: first and second calls of the command line, and the making of machine code."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import simsched
from simsched.base.jit.native import to_object
from simsched.base.jit.shipping import all_pieces

ROOT = Path(simsched.__file__).parent.parent
COMMANDS = {
    "simulate": (["simulate", "inception_v3", "--gpu", "a100"], "makespan        3.680 ms"),
    "compare": (["compare", "inception_v3", "--gpu", "a100"], "lios               3.680"),
}


def call(folder, arguments):
    """Run a command with machine code in a folder; return what it prints."""
    environment = os.environ | {"SIMSCHED_CACHE_DIR": str(folder), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "simsched", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_first_call(benchmark, tmp_path_factory, name):
    arguments, line = COMMANDS[name]

    def empty():
        return (tmp_path_factory.mktemp("empty"), arguments), {}

    assert line in benchmark.pedantic(call, setup=empty, rounds=3, iterations=1)


@pytest.mark.parametrize("name", COMMANDS)
def test_second_call(benchmark, tmp_path, name):
    arguments, line = COMMANDS[name]
    call(tmp_path, arguments)
    assert line in benchmark.pedantic(call, (tmp_path, arguments), rounds=5, iterations=1)


@pytest.mark.parametrize("how", ["O0", "O3"])
def test_all_pieces(benchmark, how):
    """One after the other, in one thread."""
    pieces = list(all_pieces(ROOT))

    def make():
        return [len(to_object(each.assembly(), how)) for each in pieces]

    sizes = benchmark.pedantic(make, rounds=1, iterations=1)
    assert len(sizes) > 15
    assert all(sizes)
