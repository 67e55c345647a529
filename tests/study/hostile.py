"""Schedulers that stop, end or tamper with the process that runs them; each row of one has to end."""

import ctypes
import faulthandler
import gc
import multiprocessing
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from multiprocessing.connection import Connection

from simsched.schedulers import schedule

LATE = 613.25  # s, which no other program waits


def usual(graph, cluster):
    return schedule(graph, cluster, "lios")


def disarm():
    """Stop the clocks that a time limit has in this process."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    faulthandler.cancel_dump_traceback_later()


def disarms_and_sleeps(graph, cluster, cost):
    disarm()
    time.sleep(LATE)


def disarms_and_loops(graph, cluster, cost):
    disarm()
    while True:
        pass


def disarms_and_computes(graph, cluster, cost):
    """In C, with the interpreter's lock."""
    disarm()
    return sum(range(10**15))


def disarms_and_matches(graph, cluster, cost):
    disarm()
    return re.match(r"(a+)+$", "a" * 60 + "b")


def disarms_and_reads(graph, cluster, cost):
    """A pipe that nobody writes to."""
    disarm()
    return os.read(os.pipe()[0], 1)


def disarms_and_joins(graph, cluster, cost):
    disarm()
    lock = threading.Lock()
    with lock:
        lock.acquire()


def disarms_and_sleeps_in_c(graph, cluster, cost):
    """Without letting go of the interpreter's lock."""
    disarm()
    ctypes.PyDLL(None).sleep(int(LATE))


def ignores_signals(graph, cluster, cost):
    for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    disarm()
    time.sleep(LATE)


def blocks_signals(graph, cluster, cost):
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    faulthandler.cancel_dump_traceback_later()
    time.sleep(LATE)


def blocks_signals_alone(graph, cluster, cost):
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    time.sleep(LATE)


def takes_the_alarm(graph, cluster, cost):
    """A handler of its own instead of the limit's."""
    signal.signal(signal.SIGALRM, lambda *_: None)
    faulthandler.cancel_dump_traceback_later()
    deadline = time.monotonic() + LATE
    while time.monotonic() < deadline:
        time.sleep(1.0)


def catches_everything(graph, cluster, cost):
    faulthandler.cancel_dump_traceback_later()
    while True:
        try:
            time.sleep(LATE)
        except BaseException:
            continue


def stops(graph, cluster, cost):
    os.kill(os.getpid(), signal.SIGSTOP)


def stops_its_group(graph, cluster, cost):
    os.killpg(0, signal.SIGSTOP)


def stops_its_parent(graph, cluster, cost):
    """The process that workers are copied from, and then itself."""
    os.kill(os.getppid(), signal.SIGSTOP)
    os.kill(os.getpid(), signal.SIGSTOP)


def stops_its_parent_and_returns(graph, cluster, cost):
    os.kill(os.getppid(), signal.SIGSTOP)
    return usual(graph, cluster)


def kills_its_parent(graph, cluster, cost):
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(LATE)


def stops_later(graph, cluster, cost):
    """When its row is done."""
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGSTOP)).start()
    return usual(graph, cluster)


def traces_itself(graph, cluster, cost):
    """Stopped for a debugger that never comes."""
    ctypes.CDLL(None).ptrace(0, 0, 0, 0)
    os.kill(os.getpid(), signal.SIGTRAP)


def lowers_its_priority(graph, cluster, cost):
    os.nice(19)
    disarm()
    while True:
        pass


def half_a_message(graph, cluster, cost):
    """A header to whoever listens, and never what it announces."""
    disarm()
    for pipe in [each for each in gc.get_objects() if type(each) is Connection and not each.closed and each.writable]:
        os.write(pipe.fileno(), (1000).to_bytes(4, "big") + b"x")
    time.sleep(LATE)


def closes_all(graph, cluster, cost):
    os.closerange(0, 4096)
    disarm()
    time.sleep(LATE)


def closes_all_and_returns(graph, cluster, cost):
    os.closerange(0, 4096)
    return usual(graph, cluster)


def replaces_files(graph, cluster, cost):
    """All that is open is nothing now."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3, 64):
        if number != nothing:
            os.dup2(nothing, number)
    disarm()
    time.sleep(LATE)


def forks_and_hangs(graph, cluster, cost):
    """Children hold the pipes, too."""
    for _ in range(3):
        if os.fork() == 0:
            disarm()
            time.sleep(LATE)
    disarm()
    time.sleep(LATE)


def forks_and_exits(graph, cluster, cost):
    if os.fork() == 0:
        time.sleep(LATE)
    os._exit(0)


def forks_away(graph, cluster, cost):
    """A grandchild in a session of its own."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(LATE)
        os._exit(0)
    disarm()
    time.sleep(LATE)


def leaves_a_program(graph, cluster, cost):
    """In a session of its own; the row is fine."""
    subprocess.Popen(["sleep", str(LATE)], start_new_session=True)
    return usual(graph, cluster)


def leaves_a_program_and_hangs(graph, cluster, cost):
    subprocess.Popen(["sh", "-c", f"sleep {LATE} & sleep {LATE}"], start_new_session=True)
    disarm()
    time.sleep(LATE)


def waits_for_a_program(graph, cluster, cost):
    disarm()
    subprocess.run(["sleep", str(LATE)], check=True)


def replaces_itself(graph, cluster, cost):
    os.execvp("sleep", ["sleep", str(LATE)])


def threads_at_exit(graph, cluster, cost):
    """Python waits for it at the end."""
    threading.Thread(target=time.sleep, args=(LATE,)).start()
    sys.exit(0)


def exits(graph, cluster, cost):
    os._exit(0)


def aborts(graph, cluster, cost):
    os.abort()


def crashes(graph, cluster, cost):
    ctypes.string_at(0)


def raises_interrupt(graph, cluster, cost):
    raise KeyboardInterrupt


def raises_exit(graph, cluster, cost):
    raise SystemExit(0)


class Unspeakable(Exception):
    """Its text cannot be had."""

    def __str__(self):
        raise RuntimeError("no")


class Endless(Exception):
    """Its text takes for ever."""

    def __str__(self):
        time.sleep(LATE)
        return ""


def raises_the_unspeakable(graph, cluster, cost):
    raise Unspeakable


def raises_the_endless(graph, cluster, cost):
    raise Endless


class Slow:
    """Takes for ever to go."""

    def __del__(self):
        disarm()
        time.sleep(LATE)


def leaves_garbage(graph, cluster, cost):
    garbage = Slow()
    garbage.itself = garbage
    return usual(graph, cluster)


def grows(graph, cluster, cost):
    kept = []
    while True:
        kept.append(bytearray(2**24))


def recurses(graph, cluster, cost):
    return recurses(graph, cluster, cost)


def recurses_deep(graph, cluster, cost):
    sys.setrecursionlimit(10**9)
    return recurses(graph, cluster, cost)


def limits_its_time(graph, cluster, cost):
    resource.setrlimit(resource.RLIMIT_CPU, (1, 1))
    disarm()
    while True:
        pass


def starts_a_pool(graph, cluster, cost):
    with multiprocessing.get_context("fork").Pool(2) as pool:
        disarm()
        pool.map(time.sleep, [LATE] * 2)


def clock_set_back(graph, cluster, cost):
    time.time = time.monotonic = time.perf_counter = lambda: 0.0
    disarm()
    time.sleep(LATE)


def prints_much(graph, cluster, cost):
    """Nobody reads it."""
    writing = os.pipe()[1]
    disarm()
    while True:
        os.write(writing, b"x" * 65536)


def unlocks_nothing(graph, cluster, cost):
    """Threads that wait for each other."""
    first, second = threading.Lock(), threading.Lock()

    def take(one, other):
        with one:
            time.sleep(0.1)
            with other:
                pass

    workers = [threading.Thread(target=take, args=pair) for pair in ((first, second), (second, first))]
    for each in workers:
        each.start()
    disarm()
    for each in workers:
        each.join()


def answers(graph, cluster, cost):
    """None of them: this one is as it should be."""
    return usual(graph, cluster)
