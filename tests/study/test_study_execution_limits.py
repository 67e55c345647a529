"""Time limits are heard in loops, sleeps and machine code, and only where they were set."""

import signal
import sys
import threading
import time
from functools import partial

import pytest
from execution_cases import HANGS, LATE, allocate, hang, loop, run

from simsched.base.errors import StudyError
from simsched.experiments.study.execution import TimeLimitReached, call_within, pool_of

SOON = 0.05


def stubborn():
    while True:
        try:
            loop()
        except Exception:
            continue


def stopped(function, seconds=SOON):
    try:
        call_within(seconds, function)
    except TimeLimitReached:
        return True
    return False


@pytest.mark.parametrize("block", [loop, stubborn, HANGS["sleep"]])
def test_a_call_that_takes_too_long(block):
    assert stopped(block)


def test_no_limit_and_a_late_one():
    for seconds in (None, LATE):
        assert call_within(seconds, int, "7") == 7


def test_a_limit_is_heard_in_its_call_or_never():
    """Calls about as long as their limit, many times: behind them nothing is raised any more."""

    def spin(end):
        while time.perf_counter() < end:
            pass

    for k in range(150):
        stopped(partial(spin, time.perf_counter() + 1e-3), 1e-3 + (k % 30 - 15) * 1e-5)
        for _ in range(20):  # where a late one would be raised
            pass


def test_another_thread_has_no_limit():
    thread = threading.Thread(target=call_within, args=(SOON, time.sleep, 2 * SOON))
    thread.start()
    thread.join()
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_a_limit_that_is_over_at_once():
    for _ in range(100):
        assert stopped(loop, 1e-6)
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_signal_and_timer_of_before_are_restored():
    came = []
    usual = signal.signal(signal.SIGALRM, lambda *_: came.append("outer"))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        call_within(LATE, time.sleep, 0.05)  # the outer one has to wait
        assert came == []
        time.sleep(0.1)
        assert came == ["outer"]
    finally:
        signal.signal(signal.SIGALRM, usual)


def test_limits_within_limits():
    def both():
        assert stopped(loop)
        loop()

    assert stopped(both, 0.2)
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_a_limit_that_was_lost_comes_again(monkeypatch):
    """Python ignores what a destructor raises, and says so."""
    ignored = []
    monkeypatch.setattr(sys, "unraisablehook", lambda hint: ignored.append(hint.exc_type))

    class Slow:
        def __del__(self):
            loop()

    def lose():
        Slow()
        loop()

    assert stopped(lose)
    assert ignored == [TimeLimitReached]


@pytest.mark.parametrize("executor", ["processes", "dask"])
def test_memory_has_a_limit(executor):
    with pool_of(executor, 1, memory=2 * 10**9) as pool:
        assert run([1], allocate, pool)[0] == [{"item": 1}]
        with pytest.raises(MemoryError):
            run([2], allocate, pool)
    with pool_of(executor, 1, memory=10**7) as pool, pytest.raises((MemoryError, StudyError)):
        run([1], allocate, pool)  # in a process that has more already


@pytest.mark.parametrize("executor", ["processes", "dask"])
def test_whatever_hangs_is_ended(executor):
    """Machine code that holds the interpreter's lock hears no exception."""
    expected = {"ok": "ok", "loop": "stopped", "sleep": "stopped", "regular expression": "stopped", "sum": "ended"}
    with pool_of(executor, 2) as pool:
        kept, _ = run(list(expected), hang, pool)
    assert {row["item"]: row["status"] for row in kept} == expected
