"""Batches on this process and on processes: the same rows, each once, and errors in one line."""

import errno
import os
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path

import pytest
from execution_cases import forks, locked_rows, run, secret, squares, where, wrong_at_11

from simsched.base.errors import MissingDependencyError, StudyError
from simsched.experiments.study.execution import batch, pool_of, pools

ROOT = Path(__file__).resolve().parents[2]
EXPECTED = [row for item in range(100) for row in squares(item)]


@pytest.mark.parametrize(
    ("executor", "workers"),
    [("serial", None), ("processes", 1), ("processes", 4)],
)
def test_rows_are_the_same_on_any_pool(executor, workers):
    """40 odd numbers twice and 40 even ones; a pool may be used again."""
    with pool_of(executor, workers) as pool:
        for _ in range(2):
            kept, told = run(range(100), squares, pool)
            assert kept == EXPECTED
            assert told == sorted(set(told))
            assert told[-1] == 100
        assert run([], squares, pool) == ([], [])


@pytest.mark.parametrize("executor", ["serial", "processes"])
def test_an_error_of_the_function_ends_the_run_and_keeps_what_is_done(executor):
    kept = []
    with pool_of(executor, 1) as pool, pytest.raises(ArithmeticError, match="eleven") as caught:
        run(range(1000), wrong_at_11, pool, keep=kept.extend)
    items = sorted({row["item"] for row in kept})
    assert kept == [row for item in items for row in squares(item)]  # whole items, and each once
    assert {1, 2, 3, 4, 6} <= {*items}  # the batches are of 1, 2, 4 and 8, or fewer on a busy machine
    assert 11 not in items
    if executor == "processes":
        assert "in wrong_at_11" in "".join(caught.value.__notes__)


def test_a_failing_keep_ends_the_run():
    def full(rows):
        raise OSError("no space left")

    with pool_of("processes", 1) as pool, pytest.raises(OSError, match="no space left"):
        run(range(100), squares, pool, keep=full)


@pytest.mark.parametrize(
    ("function", "items", "text"),
    [
        (lambda item: [], [1], r"^test_batch.<lambda> and what .* cannot be sent to another .*\"serial\"$"),
        (squares, [lambda: 0], r"^execution_cases.squares and what it is called with cannot be sent"),
        (locked_rows, [1], r"locked_rows: TypeError: cannot pickle"),
        (secret, [1], r"secret: Secret: a"),
    ],
)
def test_what_cannot_be_sent(function, items, text):
    with pool_of("processes", 1) as pool, pytest.raises(StudyError, match=text) as caught:
        run(items, function, pool)
    assert "\n" not in str(caught.value)


def test_pools_that_cannot_be_made(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    for given, error, text in [
        (("threads",), StudyError, "'threads' is not known: \"serial\""),
        (("processes", 0), StudyError, "workers must be a whole number of at least 1, not 0"),
        (("dask",), MissingDependencyError, r"pip install 'simsched\[cluster\]'"),
    ]:
        with pytest.raises(error, match=text), pool_of(*given):
            pass


def test_a_process_that_an_item_forks_ends_where_it_would_come_back():
    """Here it would go on with the tests."""
    with pool_of("serial") as pool:
        kept, _ = run(range(3), forks, pool)
    assert [row["item"] for row in kept] == [0, 1, 2]


def test_why_no_process_can_be_started_is_told(monkeypatch):
    def no_room(*_):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(pools, "_Worker", no_room)
    with pool_of("processes", 1) as pool, pytest.raises(StudyError, match=r"Too many open files; raise the limit"):
        run(range(3), where, pool)


@pytest.mark.parametrize("files", [9, 11, 12, 13, 14])
def test_few_open_files_are_told_on_one_line(tmp_path, files):
    """Neither a process that starts nor the one that is copied adds a traceback."""
    script = tmp_path / "few.py"
    script.write_text(
        "import resource, sys\n"
        "from simsched.experiments.study.execution import Batches, pool_of\n"
        "if __name__ == '__main__':\n"
        f"    resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, {files}))\n"
        "    try:\n"
        "        with pool_of('processes', 1) as pool:\n"
        "            Batches([1], print, pool, print, print).run()\n"
        "    except Exception as error:\n"
        "        sys.exit(str(error))\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("no worker process can be started: Too many open files; ")


def test_a_script_without_a_guard_is_told_so(tmp_path):
    """Each process begins by importing the script, which would start processes of its own."""
    script = tmp_path / "unguarded.py"
    script.write_text(
        "from simsched.experiments.study.execution import Batches, pool_of\n"
        "with pool_of('processes', 1) as pool:\n"
        "    Batches([1], print, pool, print, print).run()\n"
    )
    done = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 1
    assert "StudyError: worker processes end as they start" in done.stderr
    assert "if __name__ == '__main__':" in done.stderr


class Clocked:
    """A pool of two workers that have time for so many items of a batch."""

    workers = 2

    def __init__(self, time_for):
        self.time_for, self.sizes = time_for, []

    def submit(self, function, items):
        self.sizes.append(len(items))
        future = Future()
        future.set_result([[{"item": item}] for item in items[: self.time_for]])
        return future


def test_sizes_of_batches():
    """They double for each worker, up to twice what there is time for, until half of a worker's share of what is left
    is less. What there was no time for is done next."""
    pool = Clocked(5)
    kept, told = run(range(200), where, pool)
    assert [row["item"] for row in kept] == list(range(200))
    assert told[-1] == 200
    assert pool.sizes[:10] == [1, 1, 2, 2, 4, 4, 8, 8, 10, 10]
    assert pool.sizes[-4:] == [1, 1, 1, 1]
    slow = Clocked(1)
    run(range(20), where, slow)
    assert max(slow.sizes) == 2
    assert len(slow.sizes) == 20


def test_a_batch_ends_a_quarter_of_a_second_after_its_begin(monkeypatch):
    monkeypatch.setattr(batch, "monotonic", iter([100.0, 100.2, 100.3]).__next__)
    assert batch.outcome_of(squares, [1, 2, 3]) == [squares(1), squares(2)]


class Dying(Clocked):
    """A pool whose workers die, of a time limit or not."""

    def submit(self, function, items):
        self.sizes.append(len(items))
        future = Future()
        future.set_exception(batch.WorkerDiedError(self.time_for))
        return future


@pytest.mark.parametrize(("timed_out", "status", "tries"), [(False, "died", 2), (True, "ended", 1)])
def test_an_item_that_ends_its_worker_alone(timed_out, status, tries):
    """It is run twice, since somebody else may have ended the first one, unless it is known what did."""
    pool = Dying(timed_out)
    assert run([7], where, pool)[0] == [{"item": 7, "pid": None, "status": status}]
    assert len(pool.sizes) == tries
