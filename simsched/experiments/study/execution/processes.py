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
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from threading import Thread
from time import monotonic, sleep
from typing import Any, Final

from simsched.base.errors import StudyError
from simsched.base.signals import interrupt_later
from simsched.experiments.study.execution.batch import Batch, Outcome, WorkerDiedError, outcome_in, packed
from simsched.experiments.study.execution.limits import allow_exit

_READY: Final = b""
_FAILED_STARTS: Final = 10  # in succession: somebody may be killing at random
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


def serve(pipe: Connection) -> None:
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
            pipe.send_bytes(outcome_in(pipe.recv_bytes()))
    finally:  # nobody listens any more, or an item raised KeyboardInterrupt; threads of items are not waited for
        kill_group(os.getpid())
        os._exit(3)  # not that of a time limit


def _watch() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    kill_group(os.getpid())
    os._exit(0)


class _Worker:
    """A process with its batch."""

    batch: Batch
    data: bytes

    def __init__(self, context: Any) -> None:
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs,), name="study worker", daemon=True)
        self.ready = False
        try:
            self.process.start()
        except BaseException:
            self.pipe.close()
            raise
        finally:
            theirs.close()  # so that the death of the process closes the pipe

    def begin(self, batch: Batch, data: bytes) -> None:
        self.batch, self.data, self.idle, batch.begun = batch, data, False, monotonic()
        with suppress(OSError):  # it is dead, as will be heard next
            self.pipe.send_bytes(data)

    def hear(self) -> bytes | None:
        """Return what it says; None if it says no more."""
        try:
            return self.pipe.recv_bytes() if self.pipe.poll() else None
        except (EOFError, OSError):
            return None

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
        if start_method() == "forkserver":  # heard only before the first process of all
            self._context.set_forkserver_preload([__name__, *preload])
        self.workers = workers
        self._crew: list[_Worker] = []
        self._done: list[tuple[Batch, Outcome]] = []
        self._failed_starts = 0

    def submit(self, batch: Batch) -> None:
        """Begin a batch."""
        data = packed(batch.function, batch.items)
        worker = next((worker for worker in self._crew if worker.idle), None) or self._new()
        worker.begin(batch, data)

    def wait(self, timeout: float) -> list[tuple[Batch, Outcome]]:
        """Return the batches that are done, each once; wait for the first one, at most `timeout` seconds."""
        by = {end: worker for worker in self._crew for end in (worker.pipe, worker.process.sentinel)}
        heard = wait([*by], 0.0 if self._done else timeout)
        with interrupt_later():  # half a message cannot be read on
            for worker in dict.fromkeys(by[end] for end in by if end in heard):
                said = worker.hear()
                if said is None:
                    self._bury(worker)
                elif said == _READY:
                    worker.ready, self._failed_starts = True, 0
                    worker.batch.begun = monotonic()  # its start does not count
                else:
                    self._done.append((worker.batch, pickle.loads(said)))
                    worker.idle = True
        found, self._done = self._done, []
        return found

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
            try:
                worker = _Worker(self._context)
            except (EOFError, ConnectionError):  # the process that is copied died
                self._note_failed_start(-signal.SIGKILL)
                sleep(_SHORT)  # it closes its end some time before the system takes it for dead
            else:
                self._crew.append(worker)
                return worker

    def _bury(self, worker: _Worker) -> None:
        """Tell of the batch whose worker died; one that had not begun goes to another."""
        self._crew.remove(worker)
        code = worker.end()
        if not worker.ready:
            self._note_failed_start(code)
            self._new().begin(worker.batch, worker.data)
        elif not worker.idle:
            self._done.append((worker.batch, WorkerDiedError(code)))

    def _note_failed_start(self, code: int | None) -> None:
        """Give up after a few in succession, and say why."""
        self._failed_starts += 1
        if self._failed_starts >= _FAILED_STARTS:
            raise StudyError(
                f"worker processes end as they start (exit code {code}), {self._failed_starts} in succession: too "
                "little memory, somebody kills them, or, if they say so above, a script without `if __name__ == "
                "'__main__':` around what it does; what was done is kept: run again, or pass executor=\"serial\""
            )
