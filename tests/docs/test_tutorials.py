"""The tutorials' commands are run, and print what the pages show.

A page of ``docs/tutorial`` is a session in one empty folder, from its first line to its last:

- a fenced block ``console``: what follows ``$ `` is a command, the lines up to the next one what it prints. Commands
  of `simsched` and ``python FILE`` run in this process, all else, and what stands behind a pipe, in a shell. A command
  that fails shows its ``error:`` line.
- a block whose first line is a comment with the name of a file, ``# study.toml``, is written to that file.
- blocks ``sh`` are for the reader alone; ``>>>`` is run by pytest's doctests.

Output is compared field by field, a field ending at two spaces, so that columns may be wider. Of a column named
``search s`` or ``wall s``, a wall time, nothing is compared. In a block ``console near`` numbers come from a fit, whose
last digits vary with the versions of numpy and scipy: they may differ by 10 %, or by 5 in the last digit.

After a change that is meant, write what is printed now into the pages, look at the difference, and commit it:

    PYTHONPATH=.:tests python tests/docs/test_tutorials.py record [PAGE...]
"""

import io
import os
import re
import runpy
import shlex
import subprocess
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from simsched.cli.run import run

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs" / "tutorial").glob("[0-9]*.md"))
WALL = ("search s", "wall s")
BLOCK = re.compile(r"^```(\w+)( near)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\S+\.\w+)\n")
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]\d+)?")


def commands(text):
    """Each command of a ``console`` block with the lines below it."""
    found = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif found and found[-1][0].endswith("\\"):
            found[-1] = (found[-1][0][:-1] + line.strip(), [])
        else:
            found[-1][1].append(line)
    return found


def printed(command):
    """What a command prints, without blanks at the ends of lines."""
    first, *rest = command.split(" | ")
    words = shlex.split(first)
    if words[0] in ("simsched", "python"):
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            if words[0] == "simsched":
                run(words[1:])
            else:
                runpy.run_path(words[1], run_name="__main__")
        text = out.getvalue() + "".join(line for line in err.getvalue().splitlines(True) if line.startswith("error:"))
    else:
        text, rest = "", [first, *rest]
    if rest:
        shell = ["bash", "-c", " | ".join(rest)]
        text = subprocess.run(shell, input=text, capture_output=True, text=True, check=True).stdout
    return [line.rstrip() for line in text.splitlines()]


def fields(lines):
    """Rows of fields; wall times are left out."""
    rows, header = [], []
    for line in lines:
        row = re.split(r" {2,}", line.strip())
        if any(name in row for name in WALL):
            header = row
        elif header and len(row) == len(header):
            row = [field for name, field in zip(header, row, strict=True) if name not in WALL]
        rows.append(row)
    return rows


def near(one, other):
    """Whether two numbers as printed are near enough to be of the same fit."""
    digits = min(len(text.partition("e")[0].partition(".")[2]) for text in (one, other))
    scale = 10.0**-digits
    a, b = float(one), float(other)
    return abs(a - b) <= max(0.1 * max(abs(a), abs(b)), 5 * scale)


def same(shown, said, is_near):
    """Whether two outputs agree."""
    if not is_near:
        return fields(shown) == fields(said)
    one, other = (" ".join(" ".join(row) for row in fields(lines)) for lines in (shown, said))
    numbers = zip(NUMBER.findall(one), NUMBER.findall(other), strict=False)
    return NUMBER.sub("#", one) == NUMBER.sub("#", other) and all(near(a, b) for a, b in numbers)


def session(text):
    """Run a page in the current folder; yield each command, its output as shown and as printed, and if near counts."""
    for kind, is_near, body in BLOCK.findall(text):
        if kind == "console":
            for command, shown in commands(body):
                yield command, shown, printed(command), bool(is_near)
        elif named := FILE.match(body):
            Path(named[1]).write_text(body, encoding="utf-8")


@pytest.mark.usefixtures("machine_code")
@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_a_tutorial_prints_what_it_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    ran = 0
    for command, shown, said, is_near in session(page.read_text(encoding="utf-8")):
        assert same(shown, said, is_near), f"$ {command}\n" + "\n".join(said)
        ran += 1
    assert ran >= 4


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_pictures_of_a_tutorial_are_there_and_small(page):
    for name in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
        assert 1_000 < (page.parent / name).stat().st_size < 150_000


def test_what_counts_as_the_same():
    """Wall times and widths may differ, figures may not, those of fits by a tenth."""
    table = ["name   makespan  search s", "lios      12.0     0.010"]
    assert same(table, ["name  makespan  search s", "lios  12.0  0.234"], False)
    assert not same(table, ["name  makespan  search s", "lios  12.1  0.010"], False)
    assert same(["error 2.0 % of 31.5 us"], ["error 2.4 % of 33.0 us"], True)
    assert not same(["error 2.0 % of 31.5 us"], ["error 2.0 % of 37.0 us"], True)
    assert not same(["error 2.0 %"], ["error 2.0 us"], True)


def record(page):
    """Write what the commands of a page print into it."""
    text = page.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        outputs = [said for _, _, said, _ in session(text)]
        os.chdir(ROOT)

    def rewritten(block):
        if block[1] != "console":
            return block[0]
        lines, goes_on = [], False
        for line in block[3].splitlines():
            if line.startswith("$ ") or goes_on:
                lines.append(line)
                goes_on = line.endswith("\\")
                if not goes_on:
                    lines += outputs.pop(0)
        return f"```console{block[2] or ''}\n" + "\n".join(lines) + "\n```"

    page.write_text(BLOCK.sub(rewritten, text), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] != ["record"]:
        sys.exit("usage: python tests/docs/test_tutorials.py record [PAGE...]")
    for page in [Path(name).resolve() for name in sys.argv[2:]] or PAGES:
        record(page)
