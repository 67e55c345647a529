"""The programs in ``examples/`` print what is recorded beside them.

After a change that is meant, record again, look at the difference, and commit it:

    PYTHONPATH=. python tests/docs/test_examples.py record
"""

import io
import runpy
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def output(path):
    """What a program prints."""
    out = io.StringIO()
    with redirect_stdout(out):
        runpy.run_path(str(path), run_name="__main__")
    return out.getvalue()


@pytest.mark.usefixtures("machine_code")
@pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_an_example_prints_what_is_recorded(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert output(path) == path.with_suffix(".txt").read_text(encoding="utf-8")
    assert not list(tmp_path.iterdir())


def test_examples_are_small_and_all_recorded():
    assert 6 <= len(EXAMPLES) <= 12
    for path in EXAMPLES:
        assert len(path.read_text(encoding="utf-8").splitlines()) < 110
    assert {path.stem for path in (ROOT / "examples").glob("*.txt")} == {path.stem for path in EXAMPLES}


if __name__ == "__main__":
    if sys.argv[1:] != ["record"]:
        sys.exit("usage: python tests/docs/test_examples.py record")
    for path in EXAMPLES:
        path.with_suffix(".txt").write_text(output(path), encoding="utf-8")
