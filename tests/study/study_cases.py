"""Graphs and schedulers of which every number is known, importable by other processes."""

import os
import sys
import threading
import time

import simsched as ss
from simsched.base.errors import GraphError
from simsched.schedulers import schedule

made = []  # kinds and seeds of the graphs made in this process


def fork(kind, *, seed, width=3, time=20.0):
    """An operator of 10 us, then `width` of `time` us each that read from it for nothing."""
    made.append((kind, width, seed))
    if kind == "none":
        raise GraphError("there is no such graph; take another")
    names = [f"b{i}" for i in range(width)]
    operators = [ss.Operator("a", time=10.0), *(ss.Operator(name, time=time) for name in names)]
    return ss.OpGraph(operators, [ss.Edge("a", name, transfer=0.0) for name in names], f"{kind}{seed % 7}")


def fails(graph, cluster, cost):
    raise ZeroDivisionError(f"cannot\ndivide {object()!r}")


def ends(graph, cluster, cost):
    sys.exit(3)


def interrupts(graph, cluster, cost):
    raise KeyboardInterrupt


class Panic(BaseException):
    """As libraries in other languages raise it."""


def panics(graph, cluster, cost):
    raise Panic("all is lost")


def runs_out(graph, cluster, cost):
    raise MemoryError


def sleeps(graph, cluster, cost):
    time.sleep(60)


def draws(graph, cluster, cost, *, rng, scale=1.0):
    plan = schedule(graph, cluster, "lios")
    return ss.Schedule(graph, plan.placements, estimate=scale * rng % 1000, search={"rng": rng, "share": 0.5})


# `test_chaos` runs those below, too, and ends whatever process there is meanwhile.


def hangs(graph, cluster, cost):
    return sum(range(10**15))


def forks(graph, cluster, cost):
    os.fork()
    return schedule(graph, cluster, "lios")


def forks_and_stays(graph, cluster, cost):
    if os.fork() == 0:
        time.sleep(600)
    return schedule(graph, cluster, "lios")


def exits(graph, cluster, cost):
    os._exit(0)


def allocates(graph, cluster, cost):
    return bytearray(10**17)


def grows(graph, cluster, cost):
    kept = []
    while True:
        kept.append(bytearray(2**24))


def closes(graph, cluster, cost):
    os.closerange(3, 256)
    return schedule(graph, cluster, "lios")


def threads(graph, cluster, cost):
    threading.Thread(target=time.sleep, args=(600,)).start()
    return schedule(graph, cluster, "lios")


def clock_set_back(graph, cluster, cost):
    time.time = lambda: 0.0
    return schedule(graph, cluster, "lios")


def study(*schedulers, **fields):
    """A study of forks on one free A100."""
    usual = {"workload": {"kind": "fork"}, "cluster": {"gpu": "a100", "overheads": False}}
    return ss.Study("forks", schedulers or ("sequential", "lios"), **{**usual, **fields})
