"""A search is stopped by time or by Ctrl-C, and says so."""

import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from simsched.schedulers.protocol import Deadline


def test_a_time_limit(caplog):
    """Some thousandths of a second are over after finitely many questions; the log says it once."""
    with Deadline("search", 0.005) as deadline:
        while not deadline.over():
            assert deadline.reason is None
        assert deadline.over()
    assert deadline.reason == "time limit"
    assert caplog.messages == ["search: stopped (time limit); this is the best schedule so far"]


def test_interrupted_once(caplog):
    """The first Ctrl-C is taken, the second is not."""
    usual = signal.getsignal(signal.SIGINT)
    with Deadline("ios") as deadline:
        signal.raise_signal(signal.SIGINT)
        assert deadline.over()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is usual
    assert deadline.reason == "interrupted"
    assert "ios: stopped (interrupted)" in caplog.text


def test_a_search_within_a_search():
    """Ctrl-C stops both, and after that it interrupts as usual."""
    usual = signal.getsignal(signal.SIGINT)
    with Deadline("search") as outer:
        with Deadline("ios") as inner:
            assert not inner.over()
            signal.raise_signal(signal.SIGINT)
            assert inner.over()
            assert outer.over()
            assert signal.getsignal(signal.SIGINT) is usual
        assert signal.getsignal(signal.SIGINT) is usual
    assert (inner.reason, outer.reason) == ("interrupted", "interrupted")
    with Deadline("search") as outer:
        with Deadline("ios"):
            assert not outer.over()
        signal.raise_signal(signal.SIGINT)
        assert outer.over()


def test_a_process_that_ignores_it():
    """The handler of before is put back behind every test."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Deadline("search") as deadline:
        signal.raise_signal(signal.SIGINT)
        assert not deadline.over()
    assert deadline.reason is None
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_in_another_thread():
    def search():
        with Deadline("search", 60.0) as deadline:
            return deadline.over()

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(search).result() is False
