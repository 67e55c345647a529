"""What workers run in the tests of execution: a module that is imported quickly."""

import ctypes
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np

from simsched.experiments.study.execution import Batches, TimeLimitReached, call_within

LATE = 600.0


def loop():
    while True:
        pass


HANGS = {
    "ok": lambda: None,
    "loop": loop,
    "sleep": lambda: time.sleep(LATE),
    "sum": lambda: sum(range(10**15)),
    "regular expression": lambda: re.match(r"(a+)+$", "a" * 60 + "b"),
}


def hang(item):
    try:
        call_within(0.2, HANGS[item])
    except TimeLimitReached:
        return [{"item": item, "status": "stopped"}]
    return [{"item": item, "status": "ok"}]


def squares(i):
    """No row of a multiple of 5, two of each odd number."""
    return [{"item": i, "square": i * i}] * (0 if i % 5 == 0 else 1 + i % 2)


def wrong_at_11(item):
    if item == 11:
        raise ArithmeticError("eleven\nis wrong")
    return squares(item)


class Secret(Exception):
    """Pickled it is, but never read again."""

    def __init__(self, first, second):
        super().__init__(first)


def secret(item):
    raise Secret("a", "b")


def locked_rows(item):
    return [{"lock": sys.stdout}]


def allocate(item):
    """So many GB, none of which is touched."""
    np.empty(item * 10**9, np.uint8)
    return [{"item": item}]


def where(item, seconds=0.0):
    """Which process did it."""
    time.sleep(seconds)
    return [{"item": item, "pid": os.getpid()}]


def stuck(item):
    """Items from 20 on hang in machine code."""
    return where(item) if item < 20 else sum(range(10**15))


def killed_once(item, marks):
    """Item 13 is killed in the middle, the first time it runs."""
    mark = Path(marks) / f"{item}"
    if item == 13 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return where(item)


def fatal(item):
    """Item 13 ends whatever process it runs in."""
    if item == 13:
        ctypes.string_at(0)
    return where(item)


def gives_up(item):
    """Item 13 does, having started a thread that goes on for long."""
    if item == 13:
        threading.Thread(target=time.sleep, args=(LATE,)).start()
        raise KeyboardInterrupt
    return where(item)


def forks(item):
    """The process that is forked comes back, too."""
    os.fork()
    return where(item)


def died(item, timed_out):
    return [{"item": item, "pid": None, "status": "ended" if timed_out else "died"}]


def run(items, function, pool, *, keep=None):
    """Rows by item, and how many items were done at each call of `keep`."""
    kept, told = [], []

    def both(rows, done):
        kept.extend(rows)
        told.append(done)
        if keep is not None:
            keep(rows)

    Batches(items, function, pool, both, died).run()
    return sorted(kept, key=lambda row: row["item"]), told
