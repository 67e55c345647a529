"""`pool_of`: pools that run batches: this process, processes of this machine, the workers of a Dask scheduler.

`Workers` are processes that may be killed at any moment. A process has its own pipe, at whose other end a thread waits,
so that its death is seen at once, is known to be its own, and delays no other process. Pools of packages share a pipe
and a lock between their processes: one that is killed inside a message, or that ends with code 0, leaves the others
waiting for ever. With Dask, each batch runs in such a process beside the worker that has it.

A process limits its own time (`call_within`) as long as its item allows. The thread at the other end of its pipe has a
second clock, which runs a little longer, and ends a process that has stopped or forgotten its own limit.
"""

import errno
import logging
import multiprocessing
import os
import pickle
import resource
import signal
import socket
import struct
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext, suppress
from functools import cache
from math import inf
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from threading import Event, Lock, Thread, get_ident
from time import monotonic, sleep
from typing import Any, Final, cast

from simsched.base.errors import MissingDependencyError, StudyError
from simsched.base.limits import require_count
from simsched.experiments.study.execution.batch import (
    AIM,
    Function,
    Here,
    Outcome,
    Pool,
    WorkerDiedError,
    outcome_in,
    pack,
)
from simsched.experiments.study.execution.endings import adopt_orphans, end_tree, end_with_parent, send
from simsched.experiments.study.execution.limits import REPORT_LATER, REPORT_LIMIT, allow_exit, longest

_logger = logging.getLogger(__name__)

_READY: Final = b""
_FAILED_STARTS: Final = 10  # in succession: processes may be killed at random
_SHORT: Final = 0.2  # s
_FILES: Final = 12  # that are open while a process starts: ends of pipes, and a socket
_START: Final = 60.0  # s in which a process must be ready
_PATIENCE: Final = 5.0  # s until a process that was killed must have ended
_IDLE: Final = 60.0  # s after which an idle process ends
_MARGIN: Final = 5.0  # s beyond the time that a process needs to end itself at its time limit
_MOST_MAKING: Final = 600.0  # s that a batch may take to make machine code, which its time limit does not count
_SILENT: Final = 10  # s in which the next bytes of a message that has begun must come, or be taken
_TIMEVAL: Final = "ll"  # seconds and their millionths, as sockets take them
_REPORT: Final = 1 << 16  # bytes
_ANSWER: Final = 30  # s for a scheduler to answer and for its first worker to be there
_FETCH: Final = 10.0  # s until a result whose worker may have died is given up
_CLOSE: Final = 10  # s
_GONE: Final = 90.0  # s without workers after which none are expected any more
_COUNT_AGAIN: Final = 5.0  # s after which the workers of a scheduler are counted again
_MOST_AT_A_TIME: Final = 10_000  # batches at a time


def pool_of(
    executor: str = "processes",
    workers: int | None = None,
    *,
    preload: Sequence[str] = (),
    memory: int | None = None,
    time_limit: float | None = None,
) -> AbstractContextManager[Pool]:
    """Make a pool, and close it at the end of the block, with all running items.

    Parameters
    ----------
    executor
        ``"serial"``: this process. ``"processes"``: processes of this machine. ``"dask"``: the same, managed by a Dask
        scheduler in this process. ``"tcp://host:port"`` (or another address): the workers of a Dask scheduler.
    workers
        How many; by default as many as this process may use cores. A Dask scheduler has as many as it has.
    preload
        Modules that are imported once for all processes, beside the function's own.
    memory
        Bytes that each process may have, None if as many as there are; ``"serial"`` starts none.
    time_limit
        Seconds of `call_within` that each item sets itself. A process that does not react to its limit is ended some
        seconds later, from outside; None: no limit.

    Raises
    ------
    StudyError
        If no executor has this name, `workers` is no whole number of at least 1, or a scheduler does not answer.
    MissingDependencyError
        If Dask is not installed.

    Notes
    -----
    Processes are started when batches need them. They ignore Ctrl-C and do not outlive this process, even if it is
    killed; nor do their own children outlive them. Each thread of a worker of Dask has one, too. A time limit ends the
    process of a row that cannot be interrupted, but not this one.
    """
    if workers is not None:
        require_count(StudyError, workers=workers)
    # not all cores of a machine may be this process's
    n_workers = workers or (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    if executor == "serial":
        return nullcontext(Here())
    if executor == "processes":
        return closing(Processes(n_workers, Workers(preload, memory, time_limit)))
    if executor == "dask" or "://" in executor:
        return dask_pool(executor, n_workers, tuple(preload), memory, time_limit)
    raise StudyError(
        f'executor {executor!r} is not known: "serial", "processes", "dask", or the address of a Dask scheduler '
        "(tcp://host:port)"
    )


# a process that is forked from this one starts a new fork server
os.register_at_fork(after_in_child=forkserver._forkserver.__init__)  # type: ignore[misc]


def require_files() -> None:
    """Raise the OSError of a process that may open too few files to start another.

    A process that fails on the way leaves the fork server with half a message, which makes it print a long error.
    """
    opened: list[int] = []
    try:
        while len(opened) < _FILES:
            opened.append(os.open(os.devnull, os.O_RDONLY))
    finally:
        for number in opened:
            os.close(number)


def start_forkserver() -> None:
    """Start the process that is copied, unless it runs; neither it nor its copies are to hear Ctrl-C."""
    resource_tracker.ensure_running()  # or it would be started next, and unblock the signal
    usual = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, usual)


def wake_forkserver() -> None:
    """Continue the fork server, which one of its copies may have stopped."""
    pid = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
    if pid is not None:
        send(pid, signal.SIGCONT)


@contextmanager
def awake() -> Iterator[None]:
    """Keep the process that is copied awake within the block, which waits for it."""
    over = Event()

    def wake() -> None:
        wake_forkserver()
        while not over.wait(_SHORT):
            wake_forkserver()

    Thread(target=wake, daemon=True).start()
    try:
        yield
    finally:
        over.set()


def serve(pipe: Connection, report: Connection, memory: int | None) -> None:
    """Run batches until none come any more, or the other end of the pipe is closed, as when that process dies."""
    os.setsid()  # its own group, with all that schedulers start, and no terminal that would send it Ctrl-C
    end_with_parent()  # the process that is copied, which ends with the last one that holds this end of its pipe
    os.close(forkserver._forkserver._forkserver_alive_fd)  # type: ignore[attr-defined]
    os.register_at_fork(after_in_child=end_with_parent)
    adopt_orphans()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.set_blocking(report.fileno(), False)
    allow_exit(report.fileno())
    Thread(target=_watch, daemon=True).start()  # before the limit: one that fails to begin hangs us
    if memory is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    try:
        pipe.send_bytes(_READY)
        while pipe.poll(_IDLE):
            pipe.send_bytes(outcome_in(pipe.recv_bytes()))
    finally:  # the other end is closed, or an item raised KeyboardInterrupt; threads of items are not waited for
        end_tree(os.getpid())


def _watch() -> None:
    cast(Any, multiprocessing.parent_process()).join()
    end_tree(os.getpid())


class _Worker:
    """A process with its pipe, and with a second pipe on which it reports its time limit: see `allow_exit`."""

    def __init__(self, context: Any, memory: int | None) -> None:
        self._pipe, theirs = context.Pipe()
        self._report, report = context.Pipe(duplex=False)
        self._reported = b""
        self._late = False
        _require_bytes_soon(self._pipe)
        self.process = context.Process(target=serve, args=(theirs, report, memory), daemon=True)
        try:
            self.process.start()
        finally:  # so that the death of the process closes the pipes
            theirs.close()
            report.close()

    def hear(self, asked: bytes | None = None, limit: float | None = None) -> bytes | None:
        """Return the process's next message, the answer if it was asked, else one that comes soon; None if it has died.

        It counts as dead after silence for `limit` s, without the time to compile native code.
        """
        begun = monotonic()
        if asked is None:
            end = begun + _START
        elif limit is None:
            end = inf
        else:
            end = begun + limit
        with suppress(EOFError, OSError):
            if asked is not None:
                self._pipe.send_bytes(asked)
            while not wait([self._pipe, self.process.sentinel], None if end == inf else max(0.0, end - monotonic())):
                if limit is None or not self._makes_code() or end > begun + _MOST_MAKING:
                    self._late = asked is not None
                    return None
                end += limit
            if self._pipe.poll():
                return cast(bytes, self._pipe.recv_bytes())
        return None

    def end(self) -> None:
        """End the process and all that it started."""
        self._pipe.close()
        wake_forkserver()  # or its end would go unnoticed
        self.process.join(0.0 if self._late else _SHORT)
        if self.process.is_alive():
            end_tree(self.process.pid)
        with suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.join(_PATIENCE)

    def timed_out(self) -> bool:
        """Return whether a time limit ended it, its own or the one from outside."""
        self._read_report()
        return self._late or REPORT_LIMIT in self._reported

    def _makes_code(self) -> bool:
        """Return whether it has reported since the last look that it made machine code."""
        before = self._reported.count(REPORT_LATER)
        self._read_report()
        return self._reported.count(REPORT_LATER) > before

    def _read_report(self) -> None:
        if self._report.poll():
            self._reported += os.read(self._report.fileno(), _REPORT)


def _require_bytes_soon(pipe: Connection) -> None:
    """Let reads and writes that have begun fail when nothing moves for long: the other end was stopped within one."""
    with socket.socket(fileno=os.dup(pipe.fileno())) as end:
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            end.setsockopt(socket.SOL_SOCKET, option, struct.pack(_TIMEVAL, _SILENT, 0))


class Workers:
    """A process for each thread that runs batches, started when it is needed, and again after it died.

    Parameters
    ----------
    preload
        Modules that are imported once for all processes.
    memory
        Bytes that each may have, None if as many as there are.
    time_limit
        Seconds that each item allows itself, None for no limit.
    """

    def __init__(self, preload: Sequence[str], memory: int | None, time_limit: float | None) -> None:
        self._memory = memory
        # Seconds for a batch.
        if time_limit is None:
            self._limit = None
        else:
            self._limit = AIM + longest(time_limit) + _MARGIN
        multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]  # or it may start none
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([__name__, *preload])  # only works before the first process of all
        self._lock = Lock()  # for processes that start and end: each new one looks which others have ended
        self._of: dict[int, _Worker] = {}  # worker by thread
        self._closed = False

    def run(self, data: bytes) -> Outcome:
        """Return the outcomes of a batch from the process of this thread."""
        worker = self._of.get(get_ident())
        if worker is None or not worker.process.is_alive():
            worker = self._new()
        message = worker.hear(data, self._limit)
        if message is not None:
            try:
                return cast(Outcome, pickle.loads(message))
            except Exception:  # a message that `serve` does not send: an item wrote it
                _logger.debug("a process sent %d bytes that cannot be read", len(message), exc_info=True)
        self._end(worker)
        raise WorkerDiedError(worker.timed_out())

    def close(self) -> None:
        """End all processes, whatever they are at."""
        with self._lock:
            self._closed = True
            wake_forkserver()
            for worker in self._of.values():
                if worker.process.is_alive():
                    end_tree(worker.process.pid)
            for worker in self._of.values():
                worker.end()

    def _new(self) -> _Worker:
        """Return a process that is ready; after a few failures in succession, raise an error with the reason."""
        why = f"exit code {-signal.SIGKILL}"
        for _ in range(_FAILED_STARTS):
            try:
                with self._lock:
                    if self._closed:
                        raise CancelledError
                    with awake():
                        require_files()
                        start_forkserver()
                        worker = self._of[get_ident()] = _Worker(self._context, self._memory)
            except (EOFError, OSError) as error:  # the fork server died, or there is no room for another process
                if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
                    raise StudyError(
                        f"no worker process can be started: {error.strerror}; raise the limit (ulimit -n 1024), or "
                        'pass executor="serial"'
                    ) from None
                why = str(error) or why
                sleep(_SHORT)  # it closes its end some time before the system takes it for dead
                continue
            if worker.hear() == _READY:
                return worker
            self._end(worker)
            why = f"exit code {worker.process.exitcode}"
        raise StudyError(
            f"worker processes end as they start ({why}), {_FAILED_STARTS} in succession: too little "
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
    processes
        They.
    """

    def __init__(self, workers: int, processes: Workers) -> None:
        self.workers = workers + 1  # the next batch is there when one is done
        self._threads = ThreadPoolExecutor(workers)
        self._processes = processes

    def submit(self, function: Function, items: Sequence[Any]) -> Future[Outcome]:
        """Begin some items; see `Pool`."""
        return self._threads.submit(self._processes.run, pack(function, items))

    def close(self) -> None:
        """End all processes, whatever they are at."""
        self._processes.close()
        self._threads.shutdown(cancel_futures=True)


@contextmanager
def dask_pool(address: str, workers: int, *how: Any) -> Iterator[Pool]:
    """Make a pool of a Dask scheduler's workers.

    Parameters
    ----------
    address
        Address of the scheduler; ``"dask"`` for one in this process, closed at the end.
    workers
        How many that one has.
    how
        Options of `Workers`.
    """
    try:
        from distributed import Client
    except ImportError:
        raise MissingDependencyError("Dask is not installed: pip install 'simsched[cluster]'") from None
    with ExitStack() as stack:
        logger = logging.getLogger("distributed")  # we handle workers that die, and report the rest
        stack.callback(logger.setLevel, logger.level)
        logger.setLevel(logging.CRITICAL)
        if address != "dask":
            where: dict[str, Any] = {"address": address}
        else:
            where = {
                "n_workers": workers,
                "threads_per_worker": 1,
                "processes": False,
                "memory_limit": None,
                "dashboard_address": "127.0.0.1:0",
                "silence_logs": logging.CRITICAL,
            }
        try:
            client = Client(**where, timeout=_ANSWER, set_as_default=False)
        except (OSError, ValueError) as error:  # a timeout is an OSError
            raise StudyError(f"no Dask scheduler answers at {address}: {' '.join(str(error).split())}") from None
        stack.callback(_close, client)
        if address == "dask":
            stack.callback(_processes.cache_clear)
            stack.callback(_processes(*how).close)
        pool = _Dask(client, f"the Dask scheduler at {address}", how)
        stack.callback(pool.close)
        yield pool


def _close(client: Any) -> None:
    """Close a client, and its scheduler if it has one; without waiting for a slow one."""
    with suppress(Exception):
        client.close(timeout=_CLOSE)


@cache
def _processes(preload: tuple[str, ...], memory: int | None, time_limit: float | None) -> Workers:
    """Return the processes of this Dask worker, which do not end with their items."""
    return Workers(preload, memory, time_limit)


def run(data: bytes, preload: tuple[str, ...], memory: int | None, time_limit: float | None) -> Outcome:
    """Run a batch beside a worker of Dask, in an equal share of the memory that it may use, or in less."""
    from distributed import get_worker

    worker = get_worker()
    share = (worker.memory_manager.memory_limit or 0) // worker.state.nthreads
    return _processes(preload, min(filter(None, (memory, share)), default=None), time_limit).run(data)


class _Dask:
    """The workers of a Dask scheduler; a thread waits for each batch."""

    def __init__(self, client: Any, name: str, how: tuple[Any, ...]) -> None:
        self._client = client
        self._name = name
        self._how = how
        self._threads = ThreadPoolExecutor(_MOST_AT_A_TIME)
        self._closed = False
        self._n_threads = 1
        self._count_at = 0.0
        self._seen = monotonic()
        with suppress(OSError):  # a timeout
            client.wait_for_workers(1, timeout=_ANSWER)

    @property
    def workers(self) -> int:
        """Number of the workers' threads; it changes as workers come and go."""
        now = monotonic()
        if now >= self._count_at:
            try:
                threads = self._client.sync(self._client.scheduler.ncores, callback_timeout=_ANSWER)
            except Exception as error:
                raise self._pool_lost(error) from None
            self._n_threads = max(1, sum(threads.values()))
            self._count_at = now + _COUNT_AGAIN
            if threads:
                self._seen = now
            elif now - self._seen > _GONE:
                raise StudyError(f"{self._name} has no workers (dask worker ADDRESS starts one); what was done is kept")
        return self._n_threads

    def submit(self, function: Function, items: Sequence[Any]) -> Future[Outcome]:
        return self._threads.submit(self._run, pack(function, items))

    def _run(self, data: bytes) -> Outcome:
        """Return the outcomes of a batch."""
        from distributed import KilledWorker
        from distributed import TimeoutError as Late

        try:
            future = self._client.submit(run, data, *self._how, pure=False)
            done = False
            while not done:
                done = self._closed or future.status != "pending"
                with suppress(Late):
                    return cast(Outcome, future.result(timeout=_FETCH))
            future.cancel()  # its worker died before it handed this over
            raise WorkerDiedError(False)
        except (WorkerDiedError, StudyError):
            raise
        except KilledWorker:
            raise WorkerDiedError(False) from None
        except Exception as error:
            raise self._pool_lost(error) from None

    def _pool_lost(self, error: Exception) -> StudyError:
        why = " ".join(str(error).split()) or type(error).__name__
        return StudyError(f"{self._name} is lost: {why}; what was done is kept: run again")

    def close(self) -> None:
        """Close the pool without waiting; running items end with the client."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
