"""Pieces of machine code: made once, kept on disk, found again without the compiler, made anew when sources change."""

import os
import resource
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

import simsched
from simsched.base.errors import SimschedError
from simsched.base.jit import Column, Row, Rows, Table, f8, i8, length, machine_code, native, piece, pieces
from simsched.base.jit.functions import digest_of

ROOT = Path(simsched.__file__).parent.parent
TINY = """
from simsched.base.jit import Table, i8, native, piece
from tiny_numbers import FACTOR
class Pair(Table):
    given: i8
    found: i8
@native
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


@native
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
    """Load and call the tiny piece in a process of its own; returns what it printed."""
    (tmp_path / "tiny.py").write_text(TINY)
    (tmp_path / "tiny_numbers.py").write_text("FACTOR = 2\n")

    def run(code=USE, **environment):
        variables = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
        variables |= {"SIMSCHED_CACHE_DIR": str(tmp_path / "kept"), "SIMSCHED_JIT": ""} | environment
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env=variables,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert done.stderr == ""
        return done.stdout.strip()

    return run


@pytest.fixture
def load(monkeypatch, tmp_path):
    """Use the piece as a new process does; returns what code was made for that."""
    made, usual = [], machine_code.to_object

    def to_object(assembly, how, **options):
        made.append(how)
        return usual(assembly, how, **options)

    def load():
        made.clear()
        fresh, total = pieces.NativePiece(add.function, "test"), Total(n=3)
        total["values"][:] = 2.0
        for _ in range(2):
            fresh(total)
            assert total.total == 6.0
            for thread in threading.enumerate():
                if thread.name == "optimise the test":
                    thread.join()
        return made

    monkeypatch.setattr(machine_code, "to_object", to_object)
    monkeypatch.setattr(pieces, "folders", lambda: [tmp_path])
    with pieces.running(""):
        yield load


def names(folder):
    return sorted(path.suffixes[-2] for path in folder.rglob("*.o"))


def test_made_once_and_found_again_without_the_compiler_until_a_source_or_a_number_it_names_changes(use, tmp_path):
    assert [use(), use()] == ["42 made", "42 kept"]
    (tmp_path / "tiny.py").write_text(TINY.replace("FACTOR * number", "FACTOR * number + 1"))
    assert use() == "43 made"
    (tmp_path / "tiny.py").write_text(TINY)
    (tmp_path / "tiny_numbers.py").write_text("FACTOR = 3\n")
    assert use() == "63 made"


def test_rows_that_a_file_does_not_name_count_by_the_tables_that_have_them():
    """The same two numbers lie the other way round in memory; the source, which names the table alone, stays."""

    class Before(Row):
        a: f8
        b: i8

    class After(Row):
        b: i8
        a: f8

    digests = set()
    for row in (Before, After):
        table = type("Whole", (Table,), {"__annotations__": {"rows": Rows[row]}})
        digests.add(digest_of({"x": SimpleNamespace(source="", names={"__name__": "x", "Whole": table})}))
        nest = type("Nest", (Table,), {"__annotations__": {"whole": table, "n": i8}})
        digests.add(digest_of({"x": SimpleNamespace(source="", names={"__name__": "x", "Nest": nest})}))
    assert len(digests) == 4


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "rubbish"])
def test_a_damaged_file_is_made_anew_without_a_word(load, tmp_path, damage, capfd):
    assert load() == ["O0"]
    assert load() == []
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 16
    file.write_bytes({"cut": whole[:-7], "flip": bytes(flipped), "empty": b"", "rubbish": b"x" * 5000}[damage])
    assert load() == ["O0"]
    assert file.read_bytes() == whole
    assert capfd.readouterr().err == ""


def test_folders_that_cannot_be_written_to(load, monkeypatch, tmp_path):
    """A file stands where the folder should be: the next one is taken, and without one code is made each time."""
    (tmp_path / "file").write_text("")
    for folders, made in (((), ["O0"]), ((tmp_path / "yes",), [])):
        monkeypatch.setattr(pieces, "folders", lambda folders=folders: [tmp_path / "file" / "no", *folders])
        assert load() == ["O0"]
        assert load() == made
    assert [path.parent.name for path in tmp_path.rglob("*.o")] == ["yes"]


def test_a_full_disk(load, tmp_path):
    """Files may have 100 bytes: the code runs, and nothing half written is left."""
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, usual[1]))
    try:
        assert load() == ["O0"]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert list(tmp_path.iterdir()) == []
    assert load() == ["O0"]


def test_several_write_at_once(tmp_path):
    """Whoever reads meanwhile finds all of it."""
    path, data = tmp_path / "new" / "code", os.urandom(100_000)
    pieces.write_code(path, data)
    threads = [threading.Thread(target=pieces.write_code, args=(path, data)) for _ in range(20)]
    for thread in threads:
        thread.start()
        assert pieces.read_code(path) == data
    for thread in threads:
        thread.join(timeout=60)
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("what", ["llvmlite.__version__", "sys.version"])
def test_other_versions_have_code_of_their_own(load, monkeypatch, tmp_path, what):
    assert load() == ["O0"]
    monkeypatch.setattr(what, "other")
    assert load() == ["O0"]
    assert names(tmp_path) == [".O0", ".O0"]


def test_uncompiled_it_needs_no_llvm(use):
    code = USE.replace("print(", "print('llvmlite' in sys.modules, ")
    assert use(code, SIMSCHED_JIT="0") == "False 42 kept"


def test_a_switch_that_is_none():
    with pieces.running("fast"), pytest.raises(SimschedError, match=r"^SIMSCHED_JIT is 0, O0 or O3, not 'fast'$"):
        add(Total(n=1))


def test_what_runs_long_is_optimised_meanwhile(load, monkeypatch, tmp_path):
    """With no patience the first call starts a thread, whose code is the next one's, and is kept."""
    monkeypatch.setattr(pieces, "_PATIENCE", -1.0)
    assert load() == ["O0", "O3"]
    assert names(tmp_path) == [".O0", ".O3"]
    assert load() == []


LATE = """
import threading
from simsched.base.jit import machine_code, pieces
made = machine_code.to_object
def late(assembly, how, **options):
    if how == "O3":
        threading.main_thread().join()
    return made(assembly, how, **options)
machine_code.to_object, pieces._PATIENCE = late, -1.0
"""


def test_a_program_that_ends_does_not_wait_for_better_code(use, tmp_path):
    """The thread looks between two steps whether the program goes on; here it begins when that has ended."""
    assert use(LATE + USE) == "42 made"
    assert names(tmp_path) == [".O0"]


def test_a_line_says_so_where_it_takes_long(load, monkeypatch, capsys):
    monkeypatch.setattr(pieces, "_SILENCE", 0.0)
    assert load() == ["O0"]
    lines = capsys.readouterr().err.splitlines()  # for looking on disk, and for making it
    assert set(lines) == {"simsched: compiling the test, once for this machine ..."}


def test_folders(monkeypatch, tmp_path):
    """Beside the package, or else the user's."""
    monkeypatch.delenv("SIMSCHED_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert pieces.folders() == [Path(pieces.__file__).parent / "__pycache__", tmp_path / "simsched"]
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert pieces.folders()[1] == tmp_path / ".cache" / "simsched"


def test_the_clock_stands_still_while_code_is_made(monkeypatch, tmp_path):
    """Code that takes 0.2 s to make takes no running time."""
    monkeypatch.setattr(pieces, "folders", lambda: [tmp_path])
    made = machine_code.to_object

    def slowly(*arguments, **options):
        threading.Event().wait(0.2)
        during.append(pieces.running_time())
        return made(*arguments, **options)

    during = []
    monkeypatch.setattr(machine_code, "to_object", slowly)
    before = pieces.running_time()
    pieces.NativePiece(add.function, "test")(Total(n=0))
    after = pieces.running_time()
    assert before <= during[0] <= after < before + 0.15
