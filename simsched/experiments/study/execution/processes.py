"""`Processes`: a pool of processes that may be killed at any moment.

A process has a pipe of its own, at whose other end a thread waits, so that its death is seen at once, is known to be
its own, and holds up nobody. Pools of packages share a pipe and a lock between their processes: one that is killed
inside a message, or that ends with code 0, leaves the others waiting for ever.
"""

import ctypes
import multiprocessing
import os
import pickle
import signal
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from multiprocessing.connection import Connection, wait
from threading import Lock, Thread
from time import monotonic, sleep
from typing import Any, Final, cast

from simsched.base.errors import StudyError
from simsched.experiments.study.execution.batch import Function, Outcome, WorkerDiedError, outcome_in, packed
from simsched.experiments.study.execution.limits import allow_exit

_READY: Final = b""
_FAILED_STARTS: Final = 10  # in succession: somebody may be killing at random
_SHORT: Final = 0.2  # s
_PATIENCE: Final = 5.0  # s until a process that was killed must have ended
_BY_LIMIT: Final = 1  # exit code
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


end_with_parent: Final[Callable[[], object]] = (  # made before anything forks
    partial(ctypes.CDLL(None).prctl, _END_WITH_PARENT, signal.SIGKILL) if sys.platform == "linux" else object
)
"""Has the system kill this process when the thread that made it ends."""


@cache
def end_forks_with_parent() -> None:
    """Have the processes that this one forks end with the thread that forked them."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=end_with_parent)


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
    end_forks_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    allow_exit()
    Thread(target=_watch, daemon=True).start()
    try:
        pipe.send_bytes(_READY)
        while True:
            pipe.send_bytes(outcome_in(pipe.recv_bytes()))
    finally:  # nobody listens any more, or an item raised KeyboardInterrupt; threads of items are not waited for
        kill_group(os.getpid())
        os._exit(_BY_LIMIT + 1)


def _watch() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    kill_group(os.getpid())
    os._exit(0)


class _Worker:
    """A process with its pipe."""

    def __init__(self, context: Any) -> None:
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs,), name="study worker", daemon=True)
        try:
            self.process.start()
        except BaseException:
            self.pipe.close()
            raise
        finally:
            theirs.close()  # so that the death of the process closes the pipe

    def hear(self, asked: bytes | None = None) -> bytes | None:
        """Return what it says next, to what it is asked if anything; None if it has died."""
        with suppress(EOFError, OSError):
            if asked is not None:
                self.pipe.send_bytes(asked)
            wait([self.pipe, self.process.sentinel])
            if self.pipe.poll():
                return cast(bytes, self.pipe.recv_bytes())
        return None

    def end(self) -> int | None:
        """End the process and all that it started; return its exit code."""
        self.pipe.close()
        self.process.join(_SHORT)
        self.process.kill()  # unless it has ended
        kill_group(self.process.pid)
        self.process.join(_PATIENCE)
        return cast(int | None, self.process.exitcode)


class Processes:
    """A pool of processes, started when they are needed, and anew when they died.

    Parameters
    ----------
    workers
        Most processes at a time.
    preload
        Modules that are imported before processes are made, where they are made by copying one ("forkserver").
    """

    name = "the pool of processes"

    def __init__(self, workers: int, preload: Sequence[str]) -> None:
        self._context = multiprocessing.get_context(start_method())
        if start_method() == "forkserver":  # heard only before the first process of all
            self._context.set_forkserver_preload([__name__, *preload])
        self.workers = workers + 1  # the next batch is there when one is done
        self._threads = ThreadPoolExecutor(workers)
        self._lock = Lock()  # of processes that start and end: each start looks which others have ended
        self._crew: list[_Worker] = []
        self._idle: list[_Worker] = []
        self._closed = False

    def submit(self, function: Function, items: Sequence[Any]) -> Future[Outcome]:
        """Begin some items; see `Pool`."""
        return self._threads.submit(self._run, packed(function, items))

    def close(self) -> None:
        """End all processes, whatever they are at."""
        with self._lock:
            self._closed = True
            for worker in self._crew:
                worker.process.kill()
        self._threads.shutdown(cancel_futures=True)
        for worker in list(self._crew):
            self._end(worker)

    def _run(self, data: bytes) -> Outcome:
        """Return what comes of a batch, in a thread."""
        worker = self._idle.pop() if self._idle else self._new()
        begun = monotonic()
        said = worker.hear(data)
        if said is None:
            by_limit = self._end(worker) == _BY_LIMIT
            raise WorkerDiedError(monotonic() - begun if by_limit else 0.0)
        self._idle.append(worker)
        return cast(Outcome, pickle.loads(said))

    def _new(self) -> _Worker:
        """Return a process that is ready; give up after a few in succession that are not, and say why."""
        code: int | None = -signal.SIGKILL
        for _ in range(_FAILED_STARTS):
            try:
                with self._lock:
                    if self._closed:
                        raise CancelledError
                    start_forkserver()
                    worker = _Worker(self._context)
                    self._crew.append(worker)
            except (EOFError, ConnectionError):  # the process that is copied died
                sleep(_SHORT)  # it closes its end some time before the system takes it for dead
                continue
            if worker.hear() == _READY:
                return worker
            code = self._end(worker)
        raise StudyError(
            f"worker processes end as they start (exit code {code}), {_FAILED_STARTS} in succession: too little "
            "memory, somebody kills them, or, if they say so above, a script without `if __name__ == '__main__':`; "
            'what was done is kept: run again, or pass executor="serial"'
        )

    def _end(self, worker: _Worker) -> int | None:
        with self._lock:
            self._crew.remove(worker)
            return worker.end()
