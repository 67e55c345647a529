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


@pytest.mark.parametrize("command", ["simulate", "compare"])
def test_calls(best, note, tmp_path, command):
    """Three first ones, each with an empty folder of machine code; then what it made is there."""

    def call(folder):
        environment = os.environ | {"SIMSCHED_CACHE_DIR": str(folder), "PYTHONPATH": str(ROOT)}
        asked = [sys.executable, "-m", "simsched", command, "inception_v3", "--gpu", "a100"]
        done = subprocess.run(asked, env=environment, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        assert "inception_v3" in done.stdout

    first = min(best(lambda n=n: call(tmp_path / str(n)), 1)[0] for n in range(3))
    note(command=command, s_first=round(first, 2), s_later=round(best(lambda: call(tmp_path / "0"), 5)[0], 2))


@pytest.mark.parametrize("how", ["O0", "O3"])
def test_all_pieces(best, note, how):
    """One after the other, in one thread."""
    pieces = list(all_pieces(ROOT))
    seconds, sizes = best(lambda: [len(to_object(each.assembly(), how)) for each in pieces], 1)
    assert len(sizes) > 15
    note(how=how, s=round(seconds, 1), nbytes=sum(sizes))
