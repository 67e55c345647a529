"""Time limits are heard in loops, sleeps and machine code, and only where they were set."""

import signal
import sys
import threading
import time

import pytest
from execution_cases import LATE, hang, loop

from simsched.experiments.study.execution import TimeLimitReached, pool_of, run_batches, time_limited

SOON = 0.05


def stubborn():
    while True:
        try:
            loop()
        except Exception:
            continue


def spin(end):
    """A loop in a frame of its own: Python 3.12 and 3.13 do not guard the last jump of one that ends a block."""
    while time.perf_counter() < end:
        pass


def in_thread(function):
    """What the function returned in another thread."""
    answers = []
    thread = threading.Thread(target=lambda: answers.append(function()))
    thread.start()
    thread.join()
    return answers[0]


def stopped(block):
    try:
        with time_limited(SOON):
            block()
    except TimeLimitReached:
        return True
    return False


@pytest.mark.parametrize("block", [loop, stubborn, lambda: time.sleep(LATE)])
def test_a_block_that_takes_too_long(block):
    assert stopped(block)


@pytest.mark.parametrize("block", [loop, stubborn])
def test_a_block_that_takes_too_long_in_another_thread(block):
    assert in_thread(lambda: stopped(block))


def test_no_limit_and_a_late_one():
    for seconds in (None, LATE):
        with time_limited(seconds):
            done = 1 + 1
        assert done == 2


@pytest.mark.parametrize(("where", "seconds"), [(lambda function: function(), 1e-3), (in_thread, 6e-3)])
def test_a_limit_is_heard_in_its_block_or_never(where, seconds):
    """Blocks about as long as their limit, many times: behind the block nothing is raised any more."""

    def often():
        heard = unheard = 0
        for k in range(150):
            end = time.perf_counter() + seconds
            try:
                with time_limited(seconds + (k % 30 - 15) * 1e-5):
                    spin(end)
                unheard += 1
            except TimeLimitReached:
                heard += 1
            for _ in range(20):  # where a late one would be raised
                pass
        return heard + unheard

    assert where(often) == 150


def test_a_limit_that_is_over_at_once():
    """It rings while the block is being entered, where it must not be heard: nobody would stop the timer."""
    for _ in range(100):
        with pytest.raises(TimeLimitReached), time_limited(1e-6):
            loop()
        assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_signal_and_timer_of_before_are_restored():
    came = []
    usual = signal.signal(signal.SIGALRM, lambda *_: came.append("outer"))
    try:
        signal.setitimer(signal.ITIMER_REAL, LATE)
        assert stopped(loop)
        left, again = signal.setitimer(signal.ITIMER_REAL, 0.01)
        assert LATE - 300 < left < LATE
        assert again == 0
        with time_limited(LATE):
            time.sleep(0.05)  # the outer one has to wait
        deadline = time.monotonic() + 60
        while not came and time.monotonic() < deadline:
            time.sleep(0.001)
        assert came == ["outer"]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, usual)


def test_limits_within_limits():
    def both():
        assert stopped(loop)
        loop()

    with pytest.raises(TimeLimitReached, match=r"0\.2 s"), time_limited(0.2):
        both()
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


def test_whatever_hangs_is_ended():
    """Machine code that holds the interpreter's lock hears no signal and no exception."""
    kept = []
    items = ["a", "loop", "sum", "b", "sleep", "regular expression", "c"]
    with pool_of("processes", 2) as pool:
        run_batches(
            items, hang, pool, keep=kept.extend, group=lambda item: item, time_limit=0.2,
            died=lambda item, timed_out: [{"item": item, "status": "ended" if timed_out else "died"}],
        )  # fmt: skip
    assert sorted((row["item"], row["status"]) for row in kept) == [
        ("a", "ok"),
        ("b", "ok"),
        ("c", "ok"),
        ("loop", "stopped"),
        ("regular expression", "stopped"),  # it listens to signals every now and then
        ("sleep", "stopped"),
        ("sum", "ended"),
    ]
