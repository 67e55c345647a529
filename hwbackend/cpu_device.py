"""A device made of threads: workers in the part of SMs, with the dispatcher of blocks between them.

One lock guards all state; a thread that has nothing to do sleeps on a lock of its own.
"""

import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from heapq import heappop, heappush
from threading import Lock, Thread
from time import perf_counter_ns, thread_time_ns
from types import TracebackType
from typing import Final

from hwbackend.cpu_run import Piece, Run, Sample, Values, Work
from hwbackend.cpu_streams import capture
from hwbackend.cpu_threads import ISSUER_PRIORITY, WORKER_PRIORITY, settle
from simsched.base.errors import BackendError
from simsched.model.program import Program

_SWITCH_INTERVAL: Final = 5e-5  # s after which a thread that wants to run Python gets to
_JOIN: Final = 5.0  # s


class Machine:
    """Threads that run one program, again and again.

    Parameters
    ----------
    program, work
        What is run, and what that means.
    cores
        Worker k is pinned to core ``k % len(cores)``; none are pinned if there are none.
    sms
        Workers of each device.
    realtime
        Whether threads ask for real-time priority.

    Notes
    -----
    A free worker takes the next block of the kernel that is first by (priority, arrival, launch order), which stays
    first until all its blocks have been taken. Kernels that become ready by the same end arrive together. The thread
    that ends a kernel finds what is ready and wakes as many workers as there are blocks. A device's copies are made by
    one thread, in order. A program in which everything left waits is found at once: nothing is active.
    """

    def __init__(self, program: Program, work: Work, cores: Sequence[int], sms: int, realtime: bool) -> None:
        import resource  # which not every system has

        self._usage = partial(resource.getrusage, resource.RUSAGE_THREAD)
        self.program, self.work = program, work
        self.capture = capture(program) if program.execution == "graph" else None
        self.is_realtime = True
        self._cores, self._realtime = tuple(cores), realtime
        self._lock, self._done = Lock(), _taken_lock()
        self._run: Run | None = None
        self._stopping = False
        self._priority = [program.priority.tolist()[op] for op in range(len(program.graph))]
        n_devices = len(program.devices)
        self._idle: list[list[Lock]] = [[] for _ in range(n_devices)]
        self._waking = [0] * n_devices  # workers that were woken and have not looked yet
        self._workers = [(k // sms, _taken_lock()) for k in range(n_devices * sms)]
        self._copiers = [_taken_lock() for _ in range(n_devices if len(program.copies.op) else 0)]
        self._hosts = [_taken_lock() for _ in range(len(program.thread_ptr) - 1)]
        self._threads = [
            *(Thread(target=self._work, args=(k, device, gate)) for k, (device, gate) in enumerate(self._workers)),
            *(Thread(target=self._move, args=(device, gate)) for device, gate in enumerate(self._copiers)),
            *(Thread(target=self._host, args=(t, gate)) for t, gate in enumerate(self._hosts)),
        ]

    def __enter__(self) -> "Machine":
        self._interval = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_INTERVAL)
        try:
            for thread in self._threads:
                thread.daemon = True
                thread.start()
        except RuntimeError as error:  # the system has no more
            self.__exit__(type(error), error, None)
            raise BackendError(f"the {len(self._threads)} threads of the device cannot be started: {error}") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._lock:
            self._stopping = True
        for gate in [*(gate for _, gate in self._workers), *self._copiers, *self._hosts]:
            with suppress(RuntimeError):  # it was open
                gate.release()
        try:
            for thread in self._threads:
                if thread.ident is not None:
                    thread.join(_JOIN)
        finally:
            sys.setswitchinterval(self._interval)

    def run(self, values: Values, limit: float) -> Run:
        """Run the program once.

        Parameters
        ----------
        values
            What its operators compute.
        limit
            Most seconds that it may take.

        Raises
        ------
        BackendError
            If it comes to no end.
        """
        run = self._run = Run(self.program, self.work, self.capture, values)
        for gate in self._hosts:
            gate.release()
        ended = self._done.acquire(timeout=limit)
        if run.failure is not None:
            raise run.failure
        if run.streams is not None and ended and (run.held or run.streams.heads):
            raise run.streams.deadlock()
        if not ended:
            raise BackendError(
                f"the run of {self.program.graph.name!r} was stopped after {limit:g} s{self._where(run)}"
            )
        return run

    def _where(self, run: Run) -> str:
        names, devices = self.program.graph.names, self.program.devices
        with self._lock:
            busy = [p for p in run.pieces if p is not None and p.taken and p.left]
        texts = [f"{names[p.op]!r} of stream {self.program.stream[p.i]} of {devices[p.device]}" for p in busy[:3]]
        return f" in {', '.join(texts)}" if texts else ""

    # What holds the lock -------------------------------------------------------------------------

    def _take(self, device: int, gate: Lock) -> tuple[Run, Piece, int] | None:
        """Return the next block of a device, or put the worker among those that sleep; so all are once it stops."""
        run = self._run
        if run is None or self._stopping or not run.ready[device]:
            self._idle[device].append(gate)
            return None
        heap = run.ready[device]
        piece = heap[0][-1]
        number = piece.taken
        piece.taken += 1
        run.waiting[device] -= 1
        if piece.taken == len(piece.blocks):
            heappop(heap)
        return run, piece, number

    def _submit(self, run: Run, ready: Sequence[int], worker_of: int = -1) -> None:
        """Queue launches and copies that are ready, and wake who runs them; `worker_of` says whose worker asks."""
        run.active += len(ready)
        for i in ready:
            piece = run.pieces[i]
            assert piece is not None
            if piece.is_copy:
                heappush(run.copies[piece.device], (run.arrivals, i, piece))
                with suppress(RuntimeError):  # it is awake
                    self._copiers[piece.device].release()
            else:
                heappush(run.ready[piece.device], (self._priority[piece.op], run.arrivals, i, piece))
                run.waiting[piece.device] += len(piece.blocks)
        run.arrivals += 1
        for device, idle in enumerate(self._idle):
            more = run.waiting[device] - self._waking[device] - (device == worker_of)
            while more > 0 and idle:
                self._waking[device] += 1
                idle.pop().release()
                more -= 1

    def _end(self, run: Run, piece: Piece, worker_of: int = -1) -> None:
        """Take note that a launch or copy is over."""
        self._submit(run, run.over(piece.i), worker_of)
        self._let_go(run)
        self._leave(run)

    def _let_go(self, run: Run) -> None:
        """Wake the hosts that have nothing to wait for any more."""
        for i, gate in list(run.held):
            if run.streams is not None and not run.streams.holds(i):
                run.held.remove((i, gate))
                run.active += 1
                gate.release()

    def _leave(self, run: Run) -> None:
        """Count down what is active; nothing left is the end of the run."""
        run.active -= 1
        if not run.active:
            self._finish(run)

    def _finish(self, run: Run) -> None:
        if not run.is_over:
            run.is_over = True
            self._done.release()

    # Threads -------------------------------------------------------------------------------------

    def _settle(self, core: int | None, priority: int) -> None:
        if not settle(core, priority if self._realtime else None):
            self.is_realtime = False

    def _work(self, k: int, device: int, gate: Lock) -> None:
        self._settle(self._cores[k % len(self._cores)] if self._cores else None, WORKER_PRIORITY)
        woken = False
        while True:
            with self._lock:
                self._waking[device] -= woken
                block = self._take(device, gate)
            woken = block is None
            if block is None:
                gate.acquire()
                if self._stopping:
                    return
                continue
            run, piece, number = block
            try:
                self._run_block(run, piece, number)
            except BaseException as error:
                self._fail(run, error)

    def _run_block(self, run: Run, piece: Piece, number: int) -> None:
        before, cpu = self._usage(), thread_time_ns()
        start = perf_counter_ns()
        if number == 0 and piece.first:
            run.values.read(piece.op, piece.device)
        for call in piece.blocks[number]:
            call()
        end = perf_counter_ns()
        cpu, after = thread_time_ns() - cpu, self._usage()
        sample = Sample(
            (end - start) / 1e3, cpu / 1e3, after.ru_nivcsw - before.ru_nivcsw, after.ru_nvcsw - before.ru_nvcsw
        )
        with self._lock:
            run.samples.append(sample)
            piece.start, piece.end = min(piece.start, start), max(piece.end, end)
            piece.left -= 1
            if not piece.left:
                if piece.last:
                    run.values.write(piece.op, piece.device)
                self._end(run, piece, piece.device)

    def _move(self, device: int, gate: Lock) -> None:
        """Make the copies of a device."""
        self._settle(None, ISSUER_PRIORITY)
        while True:
            gate.acquire()
            if self._stopping:
                return
            run = self._run
            while run is not None:
                with self._lock:
                    if self._stopping or not run.copies[device]:
                        break
                    piece = heappop(run.copies[device])[-1]
                    piece.taken = 1
                try:
                    piece.start = perf_counter_ns()
                    for call in piece.blocks[0]:
                        call()
                    run.values.copied(piece.row, device)
                    piece.end = perf_counter_ns()
                    with self._lock:
                        piece.left = 0
                        self._end(run, piece)
                except BaseException as error:
                    self._fail(run, error)

    def _host(self, t: int, gate: Lock) -> None:
        self._settle(None, ISSUER_PRIORITY)
        while True:
            gate.acquire()
            if self._stopping:
                return
            run = self._run
            assert run is not None
            try:
                run.began[t] = perf_counter_ns()
                if not self._issue_all(run, t, gate):
                    return
            except BaseException as error:
                self._fail(run, error)

    def _issue_all(self, run: Run, t: int, gate: Lock) -> bool:
        """Issue the instructions of a host thread; return false if it was stopped."""
        streams, ptr = run.streams, self.program.thread_ptr.tolist()
        if streams is None:
            assert self.capture is not None
            with self._lock:
                self._submit(run, self.capture.roots)
                self._leave(run)
            return True
        for i in range(ptr[t], ptr[t + 1]):
            with self._lock:
                streams.host_at[t] = i
                held = streams.holds(i)
                if held:
                    run.held.append((i, gate))
                    self._leave(run)
            if held:
                gate.acquire()
                if self._stopping:
                    return False
            with self._lock:
                self._submit(run, streams.issue(i))
                self._let_go(run)
        with self._lock:
            streams.host_at[t] = ptr[t + 1]
            self._leave(run)
        return True

    def _fail(self, run: Run, error: BaseException) -> None:
        with self._lock:
            run.failure = run.failure or error
            self._finish(run)


def _taken_lock() -> Lock:
    lock = Lock()
    lock.acquire()
    return lock
