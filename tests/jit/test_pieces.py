"""Pieces of machine code: made once, kept on disk, found again without the compiler, made anew when sources change."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import simsched
from simsched.base.errors import SimschedError
from simsched.base.jit import Column, Table, f8, i8, length, native, piece, pieces, running_time, store

ROOT = Path(simsched.__file__).parent.parent
TINY = """
from simsched.base.jit import Table, i8, piece
from tiny_numbers import FACTOR

class Pair(Table):
    given: i8
    found: i8

def times(number: int) -> int:
    return FACTOR * number

@piece("test")
def double(s: Pair) -> None:
    s.found = times(s.given)
"""
USE = """
import sys
from tiny import Pair, double
pair = Pair(given=21)
double(pair)
print(pair.found, "made" if "simsched.base.jit.compiler" in sys.modules else "kept")
"""


class Total(Table):
    """Numbers and their sum."""

    n: i8
    total: f8
    values: Column[f8] = length("n")


def _plus(a: float, b: float) -> float:
    return a + b


@piece("test of pieces")
def add(s: Total) -> None:
    """Add the numbers up."""
    s.total = 0.0
    for i in range(s.n):
        s.total = _plus(s.total, s.values[i])


@pytest.fixture
def use(tmp_path):
    """Load and call the tiny piece in a process of its own; returns what it printed, and stderr."""
    (tmp_path / "tiny.py").write_text(TINY)
    (tmp_path / "tiny_numbers.py").write_text("FACTOR = 2\n")

    def run(code=USE, **environment):
        variables = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
        variables |= {"SIMSCHED_CACHE_DIR": str(tmp_path / "kept")} | environment
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env=variables,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return done.stdout.strip(), done.stderr

    return run


def test_made_once_and_found_again_without_the_compiler(use, tmp_path):
    assert use() == ("42 made", "")
    assert use() == ("42 kept", "")
    assert len(list((tmp_path / "kept").iterdir())) == 1


def test_a_change_of_the_source_or_of_a_number_it_names_makes_new_code(use, tmp_path):
    use()
    (tmp_path / "tiny.py").write_text(TINY.replace("FACTOR * number", "FACTOR * number + 1"))
    assert use()[0] == "43 made"
    (tmp_path / "tiny.py").write_text(TINY)
    assert use()[0] == "42 kept"
    (tmp_path / "tiny_numbers.py").write_text("FACTOR = 3\n")
    assert use()[0] == "63 made"


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "rubbish"])
def test_a_damaged_file_is_made_anew_without_a_word(use, tmp_path, damage):
    use()
    (file,) = (tmp_path / "kept").iterdir()
    whole = file.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 16
    file.write_bytes({"cut": whole[:-7], "flip": bytes(flipped), "empty": b"", "rubbish": b"x" * 5000}[damage])
    assert use() == ("42 made", "")
    assert file.read_bytes() == whole


def test_a_folder_that_is_none(use, tmp_path):
    """A file stands where the folder should be: made in every process, without an error."""
    (tmp_path / "file").write_text("")
    for _ in range(2):
        assert use(SIMSCHED_CACHE_DIR=str(tmp_path / "file")) == ("42 made", "")


def test_a_full_disk(use, tmp_path):
    """Files may have 100 bytes: the code runs, and nothing half written is left."""
    full = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n" + USE
    assert use(full) == ("42 made", "")
    assert list((tmp_path / "kept").iterdir()) == []
    assert use() == ("42 made", "")


def test_two_processes_at_once(use, tmp_path):
    found = []
    threads = [threading.Thread(target=lambda: found.append(use())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert {(out.split()[0], err) for out, err in found} == {("42", "")}
    assert use() == ("42 kept", "")
    assert len(list((tmp_path / "kept").iterdir())) == 1


@pytest.mark.parametrize("what", ["llvmlite.__version__", "sys.version"])
def test_other_versions_have_code_of_their_own(use, tmp_path, what):
    use()
    other = f"import sys, llvmlite\n{what} = 'other'\n" + USE
    assert use(other) == ("42 made", "")
    assert len(list((tmp_path / "kept").iterdir())) == 2


def test_uncompiled_it_needs_no_llvm(use):
    code = USE.replace("print(", "print('llvmlite' in sys.modules, ")
    assert use(code, SIMSCHED_JIT="0")[0] == "False 42 kept"


def test_a_switch_that_is_none():
    with pieces.running("fast"), pytest.raises(SimschedError, match=r"^SIMSCHED_JIT is 0, O0 or O3, not 'fast'$"):
        add(Total(n=1))


def test_what_runs_long_is_optimised_meanwhile(use, tmp_path):
    """With no patience the first call starts a thread; its code is the next one's, and is kept."""
    code = """
import threading
from simsched.base.jit import pieces
from tiny import Pair, double
pieces._PATIENCE = -1.0
pair = Pair(given=21)
double(pair)
for thread in threading.enumerate():
    if thread.name == "optimise the test":
        thread.join()
pair.found = 0
double(pair)
print(pair.found, double._run != double._timed)
"""
    assert use(code) == ("42 True", "")
    assert sorted(path.suffixes[-2] for path in (tmp_path / "kept").iterdir()) == [".O0", ".O3"]
    assert use(code.replace("-1.0", "1e9")) == ("42 True", "")  # found at once


def test_a_program_that_ends_does_not_wait_for_better_code(use, tmp_path):
    """The thread looks between two steps whether the program goes on; here it begins when that has ended."""
    code = (
        """
import threading
from simsched.base.jit import native, pieces
made = native.to_object
def late(assembly, how, **options):
    if how == "O3":
        threading.main_thread().join()
    return made(assembly, how, **options)
native.to_object, pieces._PATIENCE = late, -1.0
"""
        + USE
    )
    assert use(code) == ("42 made", "")
    assert [path.suffixes[-2] for path in (tmp_path / "kept").iterdir()] == [".O0"]


def test_a_line_says_so_where_it_takes_long(use):
    out, err = use("from simsched.base.jit import pieces\npieces._SILENCE = 0.0\n" + USE)
    assert (out, err) == ("42 made", "simsched: compiling the test, once for this machine ...\n")


def test_folders(monkeypatch, tmp_path):
    """Beside the package, or else the user's."""
    monkeypatch.delenv("SIMSCHED_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert store.folders() == [Path(store.__file__).parent / "__pycache__", tmp_path / "simsched"]
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert store.folders()[1] == tmp_path / ".cache" / "simsched"


def test_the_next_folder_where_the_first_cannot_be_written_to(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(store, "folders", lambda: [tmp_path / "file" / "no", tmp_path / "yes"])
    fresh = pieces.Piece(add.function, "test")
    total = Total(n=3, total=0.0)
    total["values"][:] = 2.0
    fresh(total)
    assert total.total == 6.0
    assert [path.parent.name for path in tmp_path.rglob("*.o")] == ["yes"]


def test_the_clock_stands_still_while_code_is_made(monkeypatch, tmp_path):
    """Code that takes 0.2 s to make takes no running time."""
    monkeypatch.setattr(store, "folders", lambda: [tmp_path])
    made = native.to_object

    def slowly(*arguments, **options):
        threading.Event().wait(0.2)
        during.append(running_time())
        return made(*arguments, **options)

    during = []
    monkeypatch.setattr(native, "to_object", slowly)
    before = running_time()
    pieces.Piece(add.function, "test")(Total(n=0))
    after = running_time()
    assert before <= during[0] <= after < before + 0.15


def test_importing_simsched_imports_no_compiler():
    code = "import sys, simsched; simsched.simulate, simsched.OpGraph; print('llvmlite' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert out.strip() == "False"
