"""Batches on this process, on processes and on Executors: the same rows, each once, and errors in one line."""

import os
import subprocess
import sys
from collections import Counter, deque
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pytest
from execution_cases import die, locked_rows, ordered, scaled, secret, squares, too_few, wrong_at_11
from execution_cases import run as run_on
from hypothesis import given
from hypothesis import strategies as st

from simsched.base.errors import MissingDependencyError, StudyError
from simsched.experiments.study.execution import pool_of, run_batches
from simsched.experiments.study.execution.sizes import AIM, Sizes

ROOT = Path(__file__).resolve().parents[2]


def run(items, function, executor, workers=None, **options):
    with pool_of(executor, workers) as pool:
        return run_on(items, function, pool, **options)


EXPECTED = [row for rows in squares(range(100)) for row in rows]


@pytest.mark.parametrize(
    ("executor", "workers"), [("serial", None), ("processes", 1), ("processes", 2), ("processes", 4)]
)
def test_rows_are_the_same_on_any_pool(executor, workers):
    kept, told = run(range(100), squares, executor, workers)
    assert ordered(kept) == EXPECTED
    assert told[-1][:2] == (100, 100)
    assert [done for done, _, _ in told] == sorted(done for done, _, _ in told)
    assert sum(rows for _, _, rows in told) == len(EXPECTED) == 120  # 40 odd numbers twice, 40 even ones


def test_a_serial_run_goes_in_order():
    assert run(range(100), squares, "serial")[0] == EXPECTED


@pytest.mark.parametrize(
    "kind", [ThreadPoolExecutor, partial(ProcessPoolExecutor, mp_context=get_context("forkserver"))]
)
def test_an_executor_is_used_as_it_is(kind):
    with kind(2) as executor:
        assert ordered(run(range(100), squares, executor, 2)[0]) == EXPECTED
        assert executor.submit(int, "7").result() == 7  # not closed


def test_nothing_to_do():
    assert run([], squares, "processes") == ([], [])


def test_a_pool_runs_one_function_after_another():
    with pool_of("processes", 1) as pool:
        for factor in (2, 3):
            kept = []
            run_batches(
                range(5), partial(scaled, factor=factor), pool, keep=kept.extend, group=lambda item: 0, died=None
            )
            assert [row["scaled"] for row in ordered(kept)] == [0, factor, 2 * factor, 3 * factor, 4 * factor]


@pytest.mark.parametrize("executor", ["serial", "processes"])
def test_an_error_of_the_function_ends_the_run_and_keeps_what_is_done(executor):
    kept = []
    with pytest.raises(ArithmeticError, match="eleven") as caught:
        run(range(1000), wrong_at_11, executor, 1, keep=kept.extend)
    items = {row["item"] for row in kept}
    assert ordered(kept) == [row for rows in squares(sorted(items)) for row in rows]  # whole items, and each once
    assert 1 in items  # nothing is known of the first ones: they are a batch of two
    assert 11 not in items
    if executor == "processes":
        assert "in wrong_at_11" in "".join(caught.value.__notes__)


def test_a_failing_keep_ends_the_run():
    def full(rows):
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        run(range(100), squares, "processes", 1, keep=full)


@pytest.mark.parametrize(
    ("function", "items", "text"),
    [
        (lambda items: [], [1], r"^test_study_execution.<lambda> cannot be sent to another process: .*\"serial\"$"),
        (squares, [lambda: 0], r"^an item of execution_cases.squares cannot be sent"),
        (locked_rows, [1], r"locked_rows returned rows that cannot be sent"),
        (secret, [1], r"secret: Secret: a"),
        (too_few, [1], r"too_few returned rows of 0 items for 1"),
    ],
)
def test_what_cannot_be_sent(function, items, text):
    with pytest.raises(StudyError, match=text) as caught:
        run(items, function, "processes", 1, group=lambda item: 0)
    assert "\n" not in str(caught.value)


def test_arguments_are_checked():
    with pytest.raises(StudyError, match="'threads' is not known: \"serial\""), pool_of("threads"):
        pass
    with pytest.raises(StudyError, match="workers: 0 is no whole number"), pool_of("processes", 0):
        pass


def test_without_dask(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'simsched\[cluster\]'"), pool_of("dask"):
        pass


def test_an_executor_that_breaks_ends_the_run():
    """Somebody else's Executor cannot be made anew."""
    with ProcessPoolExecutor(1, mp_context=get_context("forkserver")) as executor:
        for _ in range(2):  # it is broken the second time from the start
            with pytest.raises(StudyError, match=r"^ProcessPoolExecutor takes no more work: .* run again with another"):
                run([1], die, executor, 1)


def test_a_script_without_a_guard_is_told_so(tmp_path):
    """Each process begins by importing the script, which would start processes of its own."""
    script = tmp_path / "unguarded.py"
    script.write_text(
        "from simsched.experiments.study.execution import pool_of, run_batches\n"
        "with pool_of('processes', 1) as pool:\n"
        "    run_batches([1], print, pool, keep=print, group=int, died=print)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=ROOT, timeout=120,
                          env={**os.environ, "PYTHONPATH": str(ROOT)})  # fmt: skip
    assert done.returncode == 1
    assert "StudyError: worker processes end as they start" in done.stderr
    assert "if __name__ == '__main__':" in done.stderr


@given(groups=st.lists(st.integers(0, 4), max_size=60), workers=st.integers(1, 8), data=st.data())
def test_batches_are_consecutive_and_hold_every_item_once(groups, workers, data):
    sizes, waiting = Sizes(groups), deque(range(len(groups)))
    taken = []
    while waiting:
        batch = sizes.take(waiting, workers)
        assert batch
        assert len(batch) == 1 or sum(sizes.seconds(position) for position in batch) <= AIM
        taken += batch
        sizes.learn(batch, data.draw(st.floats(0, 100)))
        left = sum(sizes.seconds(position) for position in waiting)
        assert sizes._left == pytest.approx(left, abs=1e-6)
    assert taken == list(range(len(groups)))


def test_sizes_of_batches():
    """Unknown items count as 50 ms, so the first batch of at most 100 ms is of two. They took 1/32 s together: now each
    counts as 1/64 s, and 16 of them make 1/4 s; of the last 12 a quarter each for two workers makes batches of 3."""
    sizes, waiting = Sizes([0] * 1000), deque(range(1000))
    assert sizes.take(waiting, 2) == [0, 1]
    sizes.learn([0, 1], 1 / 32)
    assert sizes.seconds(999) == pytest.approx(1 / 64)
    assert len(sizes.take(waiting, 2)) in (15, 16)
    few, waiting = Sizes([0] * 14), deque(range(14))
    few.take(waiting, 2)
    few.learn([0, 1], 1 / 32)
    assert len(few.take(waiting, 2)) in (2, 3)  # as rounding has it
    while waiting:
        assert len(few.take(waiting, 2)) <= 2


def test_time_of_a_batch_is_shared_out():
    """A batch of an a and a b took 1.01 s: 505 ms each, until one a alone takes 10 ms, and the rest of the next
    1.01 s is b's 1 s; the second time that counts half: (0.505 + 1) / 2."""
    sizes = Sizes(["a", "b"])
    sizes.learn([0, 1], 1.01)
    assert (sizes.seconds(0), sizes.seconds(1)) == pytest.approx((0.505, 0.505))
    sizes.learn([0], 0.01)
    assert sizes.seconds(0) == pytest.approx(0.01)
    sizes.learn([0, 1], 1.01)
    assert (sizes.seconds(0), sizes.seconds(1)) == pytest.approx((0.01, 0.7525))


def test_groups_do_not_matter():
    """However wrong they are."""
    alike = run(range(60), squares, "processes", 2, group=lambda item: 0)[0]
    apart = run(range(60), squares, "processes", 2, group=lambda item: item)[0]
    assert Counter(map(str, alike)) == Counter(map(str, apart))
