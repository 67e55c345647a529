"""Schedulers that do what none should."""

import os
import threading
import time

from simsched.schedulers import schedule

# `validation.chaos` runs them, and ends whatever process there is meanwhile.


def forks(graph, cluster, cost):
    os.fork()
    return schedule(graph, cluster, "lios")


def forks_and_stays(graph, cluster, cost):
    if os.fork() == 0:
        time.sleep(600)
    return schedule(graph, cluster, "lios")


def hangs(graph, cluster, cost):
    return sum(range(10**15))


def exits(graph, cluster, cost):
    os._exit(0)


def allocates(graph, cluster, cost):
    return bytearray(10**17)


def fails(graph, cluster, cost):
    raise ZeroDivisionError("no")


def closes(graph, cluster, cost):
    os.closerange(3, 256)
    return schedule(graph, cluster, "lios")


def threads(graph, cluster, cost):
    threading.Thread(target=time.sleep, args=(600,)).start()
    return schedule(graph, cluster, "lios")


def clock_set_back(graph, cluster, cost):
    time.time = lambda: 0.0
    return schedule(graph, cluster, "lios")
