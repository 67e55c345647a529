"""`Workers`: processes that may be killed at any moment, and `Processes`: a pool of them.

A process has a pipe of its own, at whose other end a thread waits, so that its death is seen at once, is known to be
its own, and holds up nobody. Pools of packages share a pipe and a lock between their processes: one that is killed
inside a message, or that ends with code 0, leaves the others waiting for ever.
"""

import ctypes
import multiprocessing
import os
import pickle
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from threading import Lock, Thread, get_ident
from time import sleep
from typing import Any, Final, cast

from simsched.base.errors import StudyError
from simsched.experiments.study.execution.batch import Function, Outcome, WorkerDiedError, outcome_in, packed
from simsched.experiments.study.execution.limits import allow_exit

_READY: Final = b""
_FAILED_STARTS: Final = 10  # in succession: somebody may be killing at random
_SHORT: Final = 0.2  # s
_PATIENCE: Final = 5.0  # s until a process that was killed must have ended
_IDLE: Final = 60.0  # s after which a process ends that nobody asks for anything
_END_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG

end_with_parent: Final[Callable[[], object]] = (  # made before anything forks
    partial(ctypes.CDLL(None).prctl, _END_WITH_PARENT, signal.SIGKILL) if sys.platform == "linux" else object
)
"""Has the system kill this process when the thread that made it ends."""


def start_forkserver() -> None:
    """Start the process that is copied, unless it runs; neither it nor its copies are to hear Ctrl-C."""
    resource_tracker.ensure_running()  # or it would be started next, and unblock the signal
    usual = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, usual)


def serve(pipe: Connection, report: Connection, memory: int | None) -> None:
    """Run batches until none come any more, or the other end of the pipe is closed, as when that process dies."""
    os.setsid()  # a group of its own with what schedulers start, and no terminal whose Ctrl-C it would hear
    end_with_parent()  # the process that is copied, which ends with the last one that holds this end of its pipe
    os.close(forkserver._forkserver._forkserver_alive_fd)  # type: ignore[attr-defined]
    os.register_at_fork(after_in_child=end_with_parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if memory is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    os.set_blocking(report.fileno(), False)
    allow_exit(report.fileno())
    Thread(target=_watch, daemon=True).start()
    try:
        pipe.send_bytes(_READY)
        while pipe.poll(_IDLE):
            pipe.send_bytes(outcome_in(pipe.recv_bytes()))
    finally:  # nobody listens any more, or an item raised KeyboardInterrupt; threads of items are not waited for
        os.killpg(0, signal.SIGKILL)


def _watch() -> None:
    cast(Any, multiprocessing.parent_process()).join()
    os.killpg(0, signal.SIGKILL)


class _Worker:
    """A process with its pipe, and with another on which a time limit reports that it ends the process."""

    def __init__(self, context: Any, memory: int | None) -> None:
        self._pipe, theirs = context.Pipe()
        self._report, report = context.Pipe(duplex=False)
        self.process = context.Process(target=serve, args=(theirs, report, memory), daemon=True)
        try:
            self.process.start()
        finally:  # so that the death of the process closes the pipes
            theirs.close()
            report.close()

    def hear(self, asked: bytes | None = None) -> bytes | None:
        """Return what it says next, to what it is asked if anything; None if it has died."""
        with suppress(EOFError, OSError):
            if asked is not None:
                self._pipe.send_bytes(asked)
            wait([self._pipe, self.process.sentinel])
            if self._pipe.poll():
                return cast(bytes, self._pipe.recv_bytes())
        return None

    def end(self) -> None:
        """End the process and all that it started."""
        self._pipe.close()
        self.process.join(_SHORT)
        self.process.kill()  # unless it has ended
        with suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.join(_PATIENCE)

    def timed_out(self) -> bool:
        """Return whether a time limit ended it."""
        return self._report.poll() and os.read(self._report.fileno(), 1) != b""


class Workers:
    """A process for each thread that runs batches, started when it is needed, and anew when it died.

    Parameters
    ----------
    preload
        Modules that are imported once for all processes.
    memory
        Bytes that each may allocate, None if as many as there are.
    """

    def __init__(self, preload: Sequence[str], memory: int | None = None) -> None:
        self._memory = memory
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([__name__, *preload])  # heard only before the first process of all
        self._lock = Lock()  # of processes that start and end: each start looks which others have ended
        self._of: dict[int, _Worker] = {}  # by thread
        self._closed = False

    def run(self, data: bytes) -> Outcome:
        """Return what comes of a batch in the process of this thread."""
        worker = self._of.get(get_ident())
        if worker is None or not worker.process.is_alive():
            worker = self._new()
        said = worker.hear(data)
        if said is None:
            self._end(worker)
            raise WorkerDiedError(worker.timed_out())
        return cast(Outcome, pickle.loads(said))

    def close(self) -> None:
        """End all processes, whatever they are at."""
        with self._lock:
            self._closed = True
            for worker in self._of.values():
                worker.process.kill()
            for worker in self._of.values():
                worker.end()

    def _new(self) -> _Worker:
        """Return a process that is ready; give up after a few in succession that are not, and say why."""
        code: int | None = -signal.SIGKILL
        for _ in range(_FAILED_STARTS):
            try:
                with self._lock:
                    if self._closed:
                        raise CancelledError
                    start_forkserver()
                    worker = self._of[get_ident()] = _Worker(self._context, self._memory)
            except (EOFError, ConnectionError):  # the process that is copied died
                sleep(_SHORT)  # it closes its end some time before the system takes it for dead
                continue
            if worker.hear() == _READY:
                return worker
            self._end(worker)
            code = worker.process.exitcode
        raise StudyError(
            f"worker processes end as they start (exit code {code}), {_FAILED_STARTS} in succession: too little "
            "memory, somebody kills them, or, if they say so above, a script without `if __name__ == '__main__':`; "
            'what was done is kept: run again, or pass executor="serial"'
        )

    def _end(self, worker: _Worker) -> None:
        with self._lock:
            worker.end()


class Processes:
    """A pool of processes of this machine.

    Parameters
    ----------
    workers
        Most processes at a time.
    preload
        See `Workers`.
    """

    def __init__(self, workers: int, preload: Sequence[str]) -> None:
        self.workers = workers + 1  # the next batch is there when one is done
        self._threads, self._processes = ThreadPoolExecutor(workers), Workers(preload)

    def submit(self, function: Function, items: Sequence[Any]) -> Future[Outcome]:
        """Begin some items; see `Pool`."""
        return self._threads.submit(self._processes.run, packed(function, items))

    def close(self) -> None:
        """End all processes, whatever they are at."""
        self._processes.close()
        self._threads.shutdown(cancel_futures=True)
