"""Ctrl-C at a time at which it has to wait."""

import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module

import pytest

from simsched.base.signals import interrupt_later, one_interrupt


def test_an_interrupt_waits_for_the_end_of_the_block():
    done = []

    def interrupted():
        with interrupt_later():
            os.kill(os.getpid(), signal.SIGINT)
            done.append("the rest of the block")

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert done == ["the rest of the block"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_without_one_and_in_other_threads():
    def run():
        with interrupt_later():
            return signal.getsignal(signal.SIGINT)

    assert run() is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(run).result() is signal.default_int_handler


def test_two_presses_are_one():
    with one_interrupt():
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_waits_for_the_end_of_an_import(tmp_path, monkeypatch):
    (tmp_path / "pressed.py").write_text("import os\nos.kill(os.getpid(), 2)\nwhole = True\n")
    monkeypatch.syspath_prepend(tmp_path)

    def press():
        import_module("pressed")
        for _ in range(500):  # one sleep of 5 s would not be cut short by what another thread sends
            time.sleep(0.01)

    with one_interrupt(), pytest.raises(KeyboardInterrupt):
        press()
    assert sys.modules["pressed"].whole
