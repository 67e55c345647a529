"""Time limits are heard in loops, sleeps and machine code, and only where they were set."""

import signal
import subprocess
import sys
import threading
import time
from functools import partial

import pytest
from execution_cases import HANGS, LATE, hang, loop, run

from simsched.experiments.study.execution import TimeLimitReached, call_within, pool_of

SOON = 0.05


def stubborn():
    while True:
        try:
            loop()
        except Exception:
            continue


def here(function):
    return function()


def in_thread(function):
    """What the function returned in another thread."""
    answers = []
    thread = threading.Thread(target=lambda: answers.append(function()))
    thread.start()
    thread.join()
    return answers[0]


def stopped(function, seconds=SOON):
    try:
        call_within(seconds, function)
    except TimeLimitReached:
        return True
    return False


@pytest.mark.parametrize(
    ("where", "block"),
    [(here, loop), (here, stubborn), (here, HANGS["sleep"]), (in_thread, loop), (in_thread, stubborn)],
)
def test_a_call_that_takes_too_long(where, block):
    assert where(partial(stopped, block))


def test_no_limit_and_a_late_one():
    for seconds in (None, LATE):
        assert call_within(seconds, int, "7") == 7


@pytest.mark.parametrize(("where", "seconds"), [(here, 1e-3), (in_thread, 6e-3)])
def test_a_limit_is_heard_in_its_call_or_never(where, seconds):
    """Calls about as long as their limit, many times: behind them nothing is raised any more."""

    def spin(end):
        while time.perf_counter() < end:
            pass

    def often():
        for k in range(150):
            stopped(partial(spin, time.perf_counter() + seconds), seconds + (k % 30 - 15) * 1e-5)
            for _ in range(20):  # where a late one would be raised
                pass
        return "nothing was"

    assert where(often) == "nothing was"


def test_a_limit_of_a_thread_leaves_nothing_behind():
    """CPython 3.11 hung at the next call that a tracer saw, as nobody ever heard an exception that was withdrawn."""
    lines = """
import sys, threading
from simsched.experiments.study.execution import call_within
thread = threading.Thread(target=call_within, args=(60.0, int))
thread.start()
thread.join()
sys.settrace(lambda *_: None)
(lambda: None)()
print("here")
"""
    done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, timeout=60)
    assert done.stdout == "here\n"


def test_a_limit_that_is_over_at_once():
    for _ in range(100):
        assert stopped(loop, 1e-6)
        assert in_thread(partial(stopped, loop, 1e-6))
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert not [thread for thread in threading.enumerate() if thread.name == "time limit"]


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
def test_whatever_hangs_is_ended(executor):
    """Machine code that holds the interpreter's lock hears no exception; a thread of Dask sleeps on."""
    expected = {"ok": "ok", "loop": "stopped", "sum": "ended"}
    if executor == "processes":
        expected |= {"sleep": "stopped", "regular expression": "stopped"}
    else:
        expected |= {"regular expression": "ended"}  # it listens to signals every now and then
    with pool_of(executor, 2) as pool:
        kept, _ = run(list(expected), hang, pool, time_limit=0.2)
    assert {row["item"]: row["status"] for row in kept} == expected
