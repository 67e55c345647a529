"""The tutorials' commands and the programs in ``examples/`` print what the pages show, and the files beside them.

A page of ``docs/tutorial`` is a session in one empty folder, from its first line to its last:

- a fenced block ``console``: what follows ``$ `` is a command, the lines up to the next one what it prints. Commands
  of `simsched` and ``python FILE`` run in this process, all else, and what stands behind a pipe, in a shell. A command
  that fails shows its ``error:`` line.
- a block whose first line is a comment with the name of a file, ``# study.toml``, is written to that file.
- blocks ``sh`` are for the reader alone; ``>>>`` is run by pytest's doctests.

Output is compared field by field, a field ending at two spaces, so that columns may be wider. Of a column named
``search s`` or ``wall s``, a wall time, nothing is compared. In a block ``console near`` numbers come from a fit, whose
last digits vary with the versions of numpy and scipy: they may differ by 10 %, or by 5 in the last digit.

After a change that is meant, write what is printed now, look at the difference, and commit it:

    PYTHONPATH=.:tests python tests/docs/test_shown_outputs.py record
"""

import io
import re
import runpy
import shlex
import subprocess
import sys
import tempfile
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from simsched.cli.run import run

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs" / "tutorial").glob("[0-9]*.md"))
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
WALL = ("search s", "wall s")
BLOCK = re.compile(r"^```(\w+)( near)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n", re.MULTILINE)
FILE = re.compile(r"# (\S+\.\w+)\n")
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]\d+)?")
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)


def output(words):
    """What a command of `simsched` or ``python FILE`` prints."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        if words[0] == "simsched":
            run(words[1:])
        else:
            runpy.run_path(words[1], run_name="__main__")
    return out.getvalue() + "".join(line for line in err.getvalue().splitlines(True) if line.startswith("error:"))


def printed(command):
    """What a command of a page prints, without blanks at the ends of lines."""
    first, *rest = re.sub(r"\\\n\s*", "", command).split(" | ")
    words = shlex.split(first)
    ours = words[0] in ("simsched", "python")
    text = output(words) if ours else ""
    if rest or not ours:
        shell = ["bash", "-c", " | ".join(rest if ours else [first, *rest])]
        text = subprocess.run(shell, input=text, capture_output=True, text=True, check=True).stdout
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def shown_anew(page):
    """The text of a page, run in the current folder, with what its commands print now."""

    def block(match):
        kind, near, body = match.groups()
        if kind == "console":
            body = "".join(f"$ {command}\n{printed(command)}" for command in COMMAND.findall(body))
        elif named := FILE.match(body):
            Path(named[1]).write_text(body, encoding="utf-8")
        return f"```{kind}{near or ''}\n{body}```"

    return BLOCK.sub(block, page.read_text(encoding="utf-8"))


def fields(text):
    """Rows of fields; wall times are left out."""
    rows, header = [], []
    for line in text.splitlines():
        row = re.split(r" {2,}", line.strip())
        if any(name in row for name in WALL):
            header = row
        elif line.startswith("$ "):
            header = []
        elif header and len(row) == len(header):
            row = [field for name, field in zip(header, row, strict=True) if name not in WALL]
        rows.append(row)
    return rows


def near(one, other):
    """Whether two numbers as printed are near enough to be of the same fit."""
    digits = min(len(text.partition("e")[0].partition(".")[2]) for text in (one, other))
    a, b = float(one), float(other)
    return abs(a - b) <= max(0.1 * max(abs(a), abs(b)), 5 * 10.0**-digits)


def same(shown, said, is_near):
    """Whether two outputs agree."""
    if not is_near:
        return fields(shown) == fields(said)
    one, other = (" ".join(" ".join(row) for row in fields(text)) for text in (shown, said))
    numbers = zip(NUMBER.findall(one), NUMBER.findall(other), strict=False)
    return NUMBER.sub("#", one) == NUMBER.sub("#", other) and all(near(a, b) for a, b in numbers)


@pytest.mark.usefixtures("machine_code")
@each_page
def test_a_tutorial_prints_what_it_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    text = page.read_text(encoding="utf-8")
    assert text.count("\n$ ") >= 4
    for (_, is_near, shown), (*_, said) in zip(BLOCK.findall(text), BLOCK.findall(shown_anew(page)), strict=True):
        assert same(shown, said, is_near), said


@each_page
def test_pictures_of_a_tutorial_are_there_and_small(page):
    for name in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
        assert 1_000 < (page.parent / name).stat().st_size < 150_000


def test_what_counts_as_the_same():
    """Wall times and widths may differ, figures may not, those of fits by a tenth."""
    table = "name   makespan  search s\nlios      12.0     0.010"
    assert same(table, "name  makespan  search s\nlios  12.0  0.234", False)
    assert not same(table, "name  makespan  search s\nlios  12.1  0.010", False)
    assert same("error 2.0 % of 31.5 us", "error 2.4 % of 33.0 us", True)
    assert not same("error 2.0 % of 31.5 us", "error 2.0 % of 37.0 us", True)
    assert not same("error 2.0 %", "error 2.0 us", True)


@pytest.mark.usefixtures("machine_code")
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_what_is_recorded(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert output(["python", str(path)]) == path.with_suffix(".txt").read_text(encoding="utf-8")
    assert not list(tmp_path.iterdir())
    assert len(path.read_text(encoding="utf-8").splitlines()) < 110


if __name__ == "__main__":
    if sys.argv[1:] != ["record"]:
        sys.exit("usage: python tests/docs/test_shown_outputs.py record")
    for page in PAGES:
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            text = shown_anew(page)
        page.write_text(text, encoding="utf-8")
    for path in EXAMPLES:
        path.with_suffix(".txt").write_text(output(["python", str(path)]), encoding="utf-8")
