"""What workers run in the tests of execution: a module that is imported quickly."""

import ctypes
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path

from simsched.experiments.study.execution import TimeLimitReached, run_batches, time_limited

LATE = 600.0


def loop():
    while True:
        pass


def hang(items):
    rows = []
    for item in items:
        status = "ok"
        try:
            with time_limited(0.2):
                if item == "loop":
                    loop()
                elif item == "sleep":
                    time.sleep(LATE)
                elif item == "sum":
                    sum(range(10**15))
                elif item == "regular expression":
                    re.match(r"(a+)+$", "a" * 60 + "b")
        except TimeLimitReached:
            status = "stopped"
        rows.append([{"item": item, "status": status}])
    return rows


def squares(items):
    """No row of a multiple of 5, two of each odd number."""
    return [[{"item": i, "square": i * i}] * (0 if i % 5 == 0 else 1 + i % 2) for i in items]


def scaled(items, factor):
    return [[{"item": i, "scaled": factor * i}] for i in items]


def wrong_at_11(items):
    if 11 in items:
        raise ArithmeticError("eleven\nis wrong")
    return squares(items)


def too_few(items):
    return squares(items)[1:]


class Secret(Exception):
    """Pickled it is, but never read again."""

    def __init__(self, first, second):
        super().__init__(first)


def secret(items):
    raise Secret("a", "b")


def locked_rows(items):
    return [[{"lock": sys.stdout}] for _ in items]


def die(items):
    os._exit(3)


def where(items, seconds=0.0):
    """Which process did it."""
    rows = []
    for item in items:
        time.sleep(seconds)
        rows.append([{"item": item, "pid": os.getpid()}])
    return rows


def killed_once(items, marks):
    """Item 13 is killed in the middle, the first time it runs."""
    for item in items:
        mark = Path(marks) / f"{item}"
        if item == 13 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    return where(items)


def fatal(items):
    """Item 13 ends whatever process it runs in."""
    if 13 in items:
        ctypes.string_at(0)
    return where(items)


def gives_up(items):
    """Item 13 does, having started a thread that goes on for long."""
    if 13 in items:
        threading.Thread(target=time.sleep, args=(LATE,)).start()
        raise KeyboardInterrupt
    return where(items)


def run(items, function, pool, **options):
    """Rows in the order kept, and what `progress` was told."""
    kept, told = [], []
    options = {"group": lambda item: item % 3, "died": None, "keep": kept.extend, **options}
    run_batches(
        items, function, pool, progress=lambda done, total, rows: told.append((done, total, len(rows))), **options
    )
    return kept, told


def ordered(rows):
    return sorted(rows, key=lambda row: row["item"])
