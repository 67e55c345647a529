"""Machine code: kept on disk, found again without numba, made anew when its sources change."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import simsched
from simsched import machine_code

ROOT = Path(simsched.__file__).parent.parent
ENTRY = "tiny_entry:double"
TINY = """
from simsched.machine_columns import longs

def double(table: int) -> None:
    t = longs(table)
    t[1] = 2 * t[0]
"""
USE = """
import sys
import numpy as np
from pathlib import Path
from simsched.machine_code import load
table = np.array([21, 0], np.int64)
load("tiny_entry:double", [Path("tiny_entry.py")], "test")(table.ctypes.data)
print(table[1], "numba" in sys.modules)
"""


@pytest.fixture
def use(tmp_path):
    """Load and call the tiny entry in a process of its own; returns what it printed, and stderr."""
    (tmp_path / "tiny_entry.py").write_text(TINY)

    def run(**environment):
        variables = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"} | environment
        variables = {key: value for key, value in variables.items() if value is not None}
        done = subprocess.run(
            [sys.executable, "-c", USE], cwd=tmp_path, env=variables, capture_output=True, text=True, check=True
        )
        return done.stdout.strip(), done.stderr

    return run


def test_made_once_and_loaded_without_numba(use, tmp_path):
    kept = {"SIMSCHED_CACHE_DIR": str(tmp_path / "kept")}
    out, err = use(**kept)
    assert out == "42 True"
    assert err.startswith("simsched: compiling the test, once for this machine")
    assert err.count("\n") == 1
    assert use(**kept) == ("42 False", "")
    assert len(list((tmp_path / "kept").iterdir())) == 1


def test_a_change_of_a_source_makes_new_code(use, tmp_path):
    kept = {"SIMSCHED_CACHE_DIR": str(tmp_path / "kept")}
    use(**kept)
    (tmp_path / "tiny_entry.py").write_text(TINY.replace("2 * t[0]", "3 * t[0]"))
    assert use(**kept)[0] == "63 True"
    (tmp_path / "tiny_entry.py").write_text(TINY)
    assert use(**kept)[0] == "42 False"


@pytest.mark.parametrize("content", [b"", b"rubbish", b"x" * 5000])
def test_a_broken_file_is_made_anew(use, tmp_path, content):
    kept = {"SIMSCHED_CACHE_DIR": str(tmp_path / "kept")}
    use(**kept)
    (file,) = (tmp_path / "kept").iterdir()
    whole = file.read_bytes()
    file.write_bytes(content or whole[:-7])
    assert use(**kept)[0] == "42 True"
    assert use(**kept)[0] == "42 False"


def test_where_nothing_can_be_written(use, tmp_path):
    """A file stands where the folder should be: compiled each time, with the line that says so, and no error."""
    (tmp_path / "file").write_text("")
    for _ in range(2):
        out, err = use(SIMSCHED_CACHE_DIR=str(tmp_path / "file"))
        assert out == "42 True"
        assert err.count("\n") == 1


def test_the_users_folder_where_the_install_cannot_be_written_to(monkeypatch, tmp_path):
    monkeypatch.delenv("SIMSCHED_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folders = machine_code._folders()
    assert folders == [Path(machine_code.__file__).parent / "__pycache__", tmp_path / "simsched"]
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert machine_code._folders()[1] == tmp_path / ".cache" / "simsched"
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(machine_code, "_folders", lambda: [tmp_path / "file" / "no", tmp_path / "yes"])
    monkeypatch.setattr(machine_code, "_compile", lambda entry: ("name", b"code"))
    assert machine_code._code("a:b", [], "test") == ("name", b"code")
    assert [path.parent.name for path in tmp_path.rglob("*.o")] == ["yes"]
    monkeypatch.setattr(machine_code, "_compile", lambda entry: pytest.fail("it is there"))
    assert machine_code._code("a:b", [], "test") == ("name", b"code")


def test_importing_simsched_imports_no_compiler():
    code = "import sys, simsched; simsched.simulate, simsched.OpGraph; print({'numba', 'llvmlite'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert out.strip() == "set()"
