"""`Processes`: a pool of processes that may be killed at any moment.

A process has a pipe of its own and shares no lock with others, so that its death is seen at once, is known to be its
own, and holds up nobody. It gets a batch when it has none. Pools of packages share a pipe and a lock between their
processes: one that is killed inside a message, or that ends with code 0, leaves the others waiting for ever.
"""

import ctypes
import multiprocessing
import os
import pickle
import signal
import sys
from collections.abc import Collection, Sequence
from concurrent.futures import Future
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from threading import Thread
from time import monotonic, sleep
from typing import Any, Final

from simsched.base.errors import StudyError
from simsched.base.signals import interrupt_later
from simsched.experiments.study.execution.batch import Function, WorkerDiedError, name_of, packed, sendable
from simsched.experiments.study.execution.limits import allow_exit

_READY: Final = b""
_FAILED_STARTS: Final = 3  # in succession
_KILLED_STARTS: Final = 30  # in succession, by signals: somebody may be killing at random
_SHORT: Final = 0.2  # s
_PATIENCE: Final = 5.0  # s until a process that was killed must have ended
_END_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG


def start_method() -> str:
    """Return how processes are started: by copying one that has imported what they need, where that is possible."""
    return "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"


def start_forkserver() -> None:
    """Start the process that is copied, unless it runs; neither it nor its copies are to hear Ctrl-C."""
    if start_method() != "forkserver":
        return
    from multiprocessing import forkserver, resource_tracker

    resource_tracker.ensure_running()  # or it would be started next, and unblock the signal
    usual = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, usual)


def end_with_parent(*, itself: bool = True) -> None:
    """Have the system kill this process when the thread that made it ends; and so the processes that it forks."""
    if sys.platform == "linux":
        prctl = ctypes.CDLL(None).prctl
        if itself:
            prctl(_END_WITH_PARENT, signal.SIGKILL)
        os.register_at_fork(after_in_child=lambda: prctl(_END_WITH_PARENT, signal.SIGKILL))


def kill_group(pid: int) -> None:
    """Kill a process, if it is there, and those of its group: what schedulers started."""
    with suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(pid, signal.SIGKILL)


def serve(pipe: Connection, function: Function) -> None:
    """Run batches until the other end of the pipe is closed, which is when that process dies, too."""
    if hasattr(os, "setsid"):
        os.setsid()  # a group of its own, and no terminal whose Ctrl-C it would hear
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    allow_exit()
    Thread(target=_watch, daemon=True).start()
    try:
        pipe.send_bytes(_READY)
        while True:
            pipe.send_bytes(packed(function, pipe.recv()))
    finally:  # nobody listens any more, or an item raised KeyboardInterrupt; threads of items are not waited for
        kill_group(os.getpid())
        os._exit(3)  # not that of a time limit


def _watch() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    while parent.is_alive():
        parent.join(_PATIENCE)
    kill_group(os.getpid())
    os._exit(0)


class _Worker:
    """A process with its batch."""

    def __init__(self, context: Any, function: Function) -> None:
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, function), name="study worker", daemon=True)
        self.flight: Future[Any] | None = None
        self.items: list[Any] = []
        self.ready = False
        self.begun = monotonic()
        try:
            self.process.start()
        except BaseException:
            self.pipe.close()
            raise
        finally:
            theirs.close()  # so that the death of the process closes the pipe

    def send(self) -> None:
        self.begun = monotonic()
        with suppress(OSError):  # it is dead, as will be heard next
            self.pipe.send(self.items)

    def end(self) -> int | None:
        """End the process and all that it started; return its exit code."""
        self.pipe.close()
        self.process.join(_SHORT)
        if self.process.exitcode is None:
            self.process.kill()
        kill_group(self.process.pid)
        self.process.join(_PATIENCE)
        code: int | None = self.process.exitcode
        return code


class Processes:
    """A pool of processes, started when they are needed, and anew when they died.

    Parameters
    ----------
    workers
        Most processes at a time.
    preload
        Modules that are imported before processes are made, where they are made by copying one ("forkserver").
    """

    def __init__(self, workers: int, preload: Sequence[str]) -> None:
        self._context = multiprocessing.get_context(start_method())
        self._preload = preload
        self.workers = workers
        self._crew: list[_Worker] = []
        self._function: Function | None = None
        self._failed_starts = 0

    def start(self, function: Function) -> None:
        """Make ready for a function; processes that have it are used again."""
        if self._function is not function:
            self.stop()
            sendable(function, name_of(function))  # refused before a process is started
            self._function = function
            if start_method() == "forkserver":  # heard only before the first process of all
                self._context.set_forkserver_preload([__name__, *self._preload])

    def submit(self, items: Sequence[Any]) -> Future[Any]:
        """Begin a batch."""
        sendable(items, f"an item of {name_of(self._function)}")
        worker = next((worker for worker in self._crew if worker.flight is None), None) or self._new()
        worker.flight, worker.items = Future(), list(items)
        if worker.ready:
            worker.send()
        return worker.flight

    def wait(self, flights: Collection[Future[Any]], timeout: float) -> list[Future[Any]]:
        """Return those that are done, in the order given; wait for the first one, at most `timeout` seconds."""
        pipes = {worker.pipe: worker for worker in self._crew}
        ends = {worker.process.sentinel: worker for worker in self._crew}
        heard = wait([*pipes, *ends], timeout)
        with interrupt_later():  # half a message cannot be read on
            for worker in [pipes[pipe] for pipe in pipes if pipe in heard]:
                self._hear(worker)
            for worker in [ends[end] for end in ends if end in heard]:
                if worker in self._crew and not worker.pipe.poll():  # else there is something to be read first
                    self._bury(worker)
        return [flight for flight in flights if flight.done()]

    def translate(self, error: BaseException) -> BaseException:
        """Return what an error of a flight means."""
        return error

    def stop(self) -> None:
        """End all processes, whatever they are at."""
        crew, self._crew = self._crew, []
        for worker in crew:
            worker.process.kill()
        for worker in crew:
            worker.end()

    def _new(self) -> _Worker:
        while True:
            start_forkserver()
            assert self._function is not None
            try:
                worker = _Worker(self._context, self._function)
            except (EOFError, ConnectionError):  # the process that is copied died
                self._note_failed_start(-signal.SIGKILL)
                sleep(_SHORT)  # it closes its end some time before the system takes it for dead
            else:
                self._crew.append(worker)
                return worker

    def _note_failed_start(self, code: int | None) -> None:
        """Give up after a few in succession, and say why."""
        self._failed_starts += 1
        killed = code is None or code < 0 or code == 255  # 255: the process that is copied was killed
        if self._failed_starts < (_KILLED_STARTS if killed else _FAILED_STARTS):
            return
        if killed:
            raise StudyError(
                f"worker processes are killed as they start (exit code {code}), {self._failed_starts} in succession: "
                "too little memory, or somebody ends them; what was done is kept: run again"
            )
        raise StudyError(
            f"worker processes end as they start (exit code {code}; what they say stands above): a script that runs "
            "studies needs `if __name__ == '__main__':` around what it does; or pass executor=\"serial\""
        )

    def _hear(self, worker: _Worker) -> None:
        try:
            data = worker.pipe.recv_bytes()
        except (EOFError, OSError):
            self._bury(worker)
            return
        if data == _READY:
            worker.ready, self._failed_starts = True, 0
            if worker.flight is not None:
                worker.send()
        elif worker.flight is not None:
            flight, worker.flight = worker.flight, None
            flight.set_result(pickle.loads(data))

    def _bury(self, worker: _Worker) -> None:
        """Tell of the batch whose worker died; one that had not begun goes to another."""
        self._crew.remove(worker)
        seconds = monotonic() - worker.begun
        code = worker.end()
        if worker.ready:
            if worker.flight is not None:
                worker.flight.set_exception(WorkerDiedError(code, seconds))
            return
        self._note_failed_start(code)
        if worker.flight is not None:
            heir = self._new()
            heir.flight, heir.items = worker.flight, worker.items
