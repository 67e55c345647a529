"""`Processes`: a pool of processes that may be killed at any moment.

A process has a pipe of its own and shares no lock with others, so that its death is seen at once, is known to be its
own, and holds up nobody.
"""

import multiprocessing
import os
import pickle
import signal
from collections import deque
from collections.abc import Collection, Sequence
from concurrent.futures import Future
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from queue import SimpleQueue
from threading import Thread
from time import monotonic, sleep
from typing import Any, Final

from simsched.base.errors import StudyError
from simsched.base.signals import interrupt_later
from simsched.experiments.study.execution.batch import Function, Shipped, WorkerDiedError
from simsched.experiments.study.execution.limits import allow_exit

_READY: Final = b""
_GAVE_UP: Final = 3  # exit code; not that of a time limit
_FAILED_STARTS: Final = 3  # in succession; one or two of them may have been killed from outside
_SHORT: Final = 0.2  # s
_PATIENCE: Final = 5.0  # s until a process that hung up or was told to end is killed


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


def serve(pipe: Connection, shipped: Shipped) -> None:
    """Run batches until the other end of the pipe is closed, which is when that process dies, too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the main process, which ends this one
    allow_exit()
    batches: SimpleQueue[bytes] = SimpleQueue()
    Thread(target=_receive, args=(pipe, batches), daemon=True).start()
    try:
        pipe.send_bytes(_READY)
        while True:
            pipe.send_bytes(shipped.pickled(batches.get()))
    finally:  # nobody listens any more, or an item raised KeyboardInterrupt
        os._exit(_GAVE_UP)  # threads that items started are not waited for


def _receive(pipe: Connection, batches: "SimpleQueue[bytes]") -> None:
    # always on the receiver: a sender that had to wait for room could not read what this process wants to send
    try:
        while True:
            batches.put(pipe.recv_bytes())
    except (EOFError, OSError):
        os._exit(0)


class _Worker:
    """A process with its batches, the one it is at first."""

    def __init__(self, process: BaseProcess, pipe: Connection) -> None:
        self.process, self.pipe = process, pipe
        self.batches: deque[tuple[Future[Any], bytes]] = deque()
        self.ready = False
        self.begun = monotonic()  # the first of its batches

    def end(self) -> int | None:
        """End the process and return its exit code."""
        self.pipe.close()
        self.process.join(_PATIENCE)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join(_PATIENCE)
        return self.process.exitcode


class Processes:
    """A pool of processes, started when they are needed, and anew when they died.

    Parameters
    ----------
    workers
        Most processes at a time.
    preload
        Modules that are imported before processes are made, where they are made by copying one ("forkserver"), beside
        that of the function.
    """

    depth = 2

    def __init__(self, workers: int, preload: Sequence[str]) -> None:
        self._context = multiprocessing.get_context(start_method())
        self._preload = preload
        self.workers = workers
        self._crew: list[_Worker] = []
        self._shipped: Shipped | None = None
        self._failed_starts = 0

    def start(self, function: Function) -> None:
        """Make ready for a function; processes that have it are used again."""
        if self._shipped is None or self._shipped.function is not function:
            self.stop()
            self._shipped = Shipped(function)
            _ = self._shipped.content  # refused before a process is started
            if start_method() == "forkserver":  # heard only before the first process of all
                self._context.set_forkserver_preload([serve.__module__, self._shipped.module, *self._preload])

    def submit(self, items: Sequence[Any]) -> Future[Any]:
        """Begin a batch."""
        assert self._shipped is not None
        flight: Future[Any] = Future()
        self._place(flight, self._shipped.pack(items))
        return flight

    def wait(self, flights: Collection[Future[Any]], timeout: float | None = None) -> list[Future[Any]]:
        """Return those that are done, in the order given; wait for the first one, at most `timeout` seconds."""
        while True:
            done = [flight for flight in flights if flight.done()]
            if done or not flights:
                return done
            pipes = {worker.pipe: worker for worker in self._crew}
            ends = {worker.process.sentinel: worker for worker in self._crew}
            heard = wait([*pipes, *ends], timeout)
            for pipe in [pipe for pipe in pipes if pipe in heard]:
                with interrupt_later():  # half a message cannot be read on
                    self._hear(pipes[pipe])
            for worker in [ends[end] for end in ends if end in heard]:
                if worker in self._crew and not worker.pipe.poll():  # else there is something to be read first
                    self._bury(worker)
            if timeout is not None and not heard:
                return []

    def translate(self, error: BaseException) -> BaseException:
        """Return what an error of a flight means."""
        return error

    def stop(self) -> None:
        """End all processes, whatever they are at."""
        crew, self._crew = self._crew, []
        for worker in crew:
            worker.process.terminate()
            for flight, _ in worker.batches:
                flight.cancel()
        for worker in crew:
            worker.end()

    def _place(self, flight: Future[Any], data: bytes) -> None:
        worker = min(self._crew, key=lambda worker: len(worker.batches), default=None)
        if worker is None or (worker.batches and len(self._crew) < self.workers):
            worker = self._new()
        if not worker.batches:
            worker.begun = monotonic()
        worker.batches.append((flight, data))
        with suppress(OSError):  # it is dead, as will be heard next
            worker.pipe.send_bytes(data)

    def _new(self) -> _Worker:
        worker = None
        while worker is None:
            worker = self._started()
        self._crew.append(worker)
        return worker

    def _started(self) -> _Worker | None:
        """Start a process; return None if the one that is copied died meanwhile."""
        start_forkserver()
        ours, theirs = self._context.Pipe()
        process = self._context.Process(  # type: ignore[attr-defined]
            target=serve, args=(theirs, self._shipped), name="study worker", daemon=True
        )
        try:
            process.start()
        except (EOFError, ConnectionError):
            ours.close()
            self._note_failed_start(None)
            sleep(_SHORT)  # it closes its end some time before the system takes it for dead
            return None
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()  # so that the death of the process closes the pipe
        return _Worker(process, ours)

    def _note_failed_start(self, code: int | None) -> None:
        """Give up after a few in succession."""
        self._failed_starts += 1
        if self._failed_starts == _FAILED_STARTS:
            raise StudyError(
                f"worker processes end as they start (exit code {code}): a script that runs studies needs "
                "`if __name__ == '__main__':` around what it does; or pass executor=\"serial\""
            )

    def _hear(self, worker: _Worker) -> None:
        try:
            data = worker.pipe.recv_bytes()
        except (EOFError, OSError):
            self._bury(worker)
            return
        now = monotonic()
        if data == _READY:
            worker.ready, self._failed_starts = True, 0
        else:
            flight, _ = worker.batches.popleft()
            flight.set_result(pickle.loads(data))
        worker.begun = now

    def _bury(self, worker: _Worker) -> None:
        """Tell of the batch whose worker died, and give the rest to others."""
        self._crew.remove(worker)
        code, seconds = worker.end(), monotonic() - worker.begun
        if worker.ready and worker.batches:
            worker.batches.popleft()[0].set_exception(WorkerDiedError(code, seconds))
        elif not worker.ready:
            self._note_failed_start(code)
        for flight, data in worker.batches:
            self._place(flight, data)
