"""The cpu backend: cores of this machine in the part of SMs, and numpy calls in the part of thread blocks."""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import TIMEOUT_MAX
from time import monotonic, sleep
from typing import Final

import numpy as np

from hwbackend.cpu_device import Machine
from hwbackend.cpu_noise import Probe, clean_runs, rejected
from hwbackend.cpu_run import Run
from hwbackend.cpu_threads import SUPPORTED, cores, one_blas_thread, realtime_permitted
from hwbackend.cpu_values import OutputValues
from hwbackend.cpu_work import SHORTEST_BLOCK, Buffers, Rates, measured_rates, realised_on, work_of
from hwbackend.preparing import environment
from hwbackend.profiling import microbenchmarks, profile
from hwbackend.synth import SYNTH
from simsched.base.errors import BackendError
from simsched.base.numeric import is_count, is_number
from simsched.base.units import GB_PER_S, GIB, KIB, MIB, US
from simsched.model.backend import prepared
from simsched.model.cluster import WARP, Cluster, Device, Link
from simsched.model.graph import Kernel, Operator, OpGraph
from simsched.model.profile import Profile, Replay
from simsched.model.program import COPY, LAUNCH, Program
from simsched.model.schedule import Schedule
from simsched.model.trace import measured_trace

_MOST_SMS: Final = 8
_MANY: Final = 1 << 16  # streams have queues of their own, kernels need not be resident
_PROBE_BLOCKS: Final = 16  # for each worker
_PROBE_HOLDS: Final = 30.0  # s
_MORE_PROBES, _MOMENT = 2, 0.3  # s between them
_REST: Final = 0.1  # of the time of a run
_LINK: Final = Link(8 * GB_PER_S, 30 * US)


class CpuBackend:
    """Runs schedules on cores of this machine: streams, events and the dispatcher are ours, contention is real.

    An SM is a thread pinned to a core that runs one block at a time, and a block is one call of numpy, which multiplies
    matrices (on one thread) or copies memory that is cold. So two kernels of one block run side by side on two SMs, and
    kernels that fill the device make each other wait, as on a GPU.

    Parameters
    ----------
    sms
        Workers of each device; None takes the cores that the process may use, at most 8, shared among the devices.
    gate
        Refuse to measure on a busy machine: blocks during which another thread had the core are told by the clocks of
        the system, runs with such blocks are repeated. False keeps all runs, whatever happens.
    realtime
        Real-time priority for workers and hosts: None where permitted, True insists, False does without.
    virtual_devices
        Logical devices, "gpu0" and on; copies between them copy memory. With more than one, no run is rejected: the
        threads that copy have no core of their own. For function rather than for measurements.
    seed
        Of the values that operators compute.
    timeout
        Most seconds that one run may take.

    Raises
    ------
    BackendError
        If an option cannot be, or the system cannot pin threads.

    Notes
    -----
    A block shorter than some 100 us would measure how threads take turns at Python, so operators of the user that are
    shorter are run as blocks of 200 us; `realise` says as what. Latency is the time from the first instruction that a
    host issues to the last end.
    """

    name = "cpu"

    def __init__(
        self,
        sms: int | None = None,
        *,
        gate: bool = True,
        realtime: bool | None = None,
        virtual_devices: int = 1,
        seed: int = 0,
        timeout: float = 60.0,
    ) -> None:
        if not SUPPORTED:
            raise BackendError("the cpu backend needs to pin threads to cores, which only Linux lets it")
        self._cores = cores()
        for what, number in (("sms", sms), ("virtual_devices", virtual_devices)):
            if not is_count(number, 1) and not (what == "sms" and number is None):
                raise BackendError(f"{what} must be a whole number of at least 1, not {number!r}")
        for what, value in (("gate", gate), ("realtime", realtime)):
            if not isinstance(value, bool) and not (what == "realtime" and value is None):
                raise BackendError(f"{what} must be true or false, not {value!r}")
        if not is_count(seed) or not is_number(timeout) or not timeout > 0:
            raise BackendError(f"seed must be a whole number and timeout positive, not {seed!r} and {timeout!r}")
        self._sms = max(1, min(_MOST_SMS, len(self._cores)) // virtual_devices) if sms is None else sms
        workers = self._sms * virtual_devices
        if gate and workers > len(self._cores):
            raise BackendError(
                f"{workers} SMs are more than the {len(self._cores)} cores that this process may use; take fewer, or "
                "pass gate=False to run them all the same"
            )
        self._gate, self._seed, self._timeout = gate, seed, min(float(timeout), TIMEOUT_MAX)
        self._realtime = realtime is not False and realtime_permitted()
        if realtime and not self._realtime:
            raise BackendError("real-time priority is not permitted here; run as root, or leave out `realtime`")
        self._rates = measured_rates()
        self._buffers = Buffers()
        self._probe: tuple[float, Probe] | None = None
        self.cluster = _cluster(virtual_devices, self._sms, self._rates)

    def realise(self, graph: OpGraph) -> OpGraph:
        """Return the graph as this backend runs it; see `hwbackend.cpu_work.realised_on`."""
        return realised_on(graph, self.cluster, self._rates)

    def microbenchmarks(self) -> Profile:
        """See `simsched.model.backend.Backend`."""
        return microbenchmarks(self)

    def profile(self, graph: OpGraph, *, in_situ: int = 8, rng: np.random.Generator | int = 0) -> Profile:
        """See `simsched.model.backend.Backend`."""
        return profile(self, graph, in_situ, rng)

    def replay(self, schedule: Schedule | Program, *, repeats: int = 20, warmup: int = 3) -> Replay:
        """See `simsched.model.backend.Backend`.

        Start and end of each span are the medians of those of all repeats kept, so what ended before another began in
        each of them does so in the trace.
        """
        program = prepared(self, schedule, repeats, warmup)
        found: dict[str, str] = {}
        if self._gate:
            found["probe"] = str(self._quiet())
        values = OutputValues(program, rng=self._seed)
        errors = []
        with self._machine(program, found) as machine:

            def once() -> Run:
                values.poison()
                run = machine.run(values, self._timeout)
                errors.append(values.error())
                if machine.is_realtime:  # the system holds up real-time threads that take all of a second
                    sleep(_REST * run.latency / 1e6)
                return run

            for _ in range(warmup):
                once()
            if self._gate and len(self.cluster) == 1:
                runs, rate = clean_runs(once, repeats)
                found["gate"] = f"on, {rate:.0%} of runs rejected"
            else:
                runs = [once() for _ in range(repeats)]
                rate = rejected([sample for run in runs for sample in run.samples])
                found["gate"] = f"off, {rate:.0%} of blocks were preempted"
            found["scheduling"] = "SCHED_FIFO" if machine.is_realtime else "normal"
        launches, copies = (
            np.median([run.spans(action) for run in runs], axis=0).reshape(-1, 2) for action in (LAUNCH, COPY)
        )
        latency = tuple(run.latency for run in runs)
        return Replay(
            latency,
            measured_trace(program, self.cluster, launches, copies),
            environment(self.name, _processor(), clocks=_clocks(), cores=str(len(self._cores)), **found),
            max(errors),
            schedule.scheduler if isinstance(schedule, Schedule) else "replay",
        )

    @contextmanager
    def _machine(self, program: Program, found: dict[str, str] | None = None) -> Iterator[Machine]:
        """Yield the threads that run a program, with nothing else of this process in their way."""
        work = work_of(program, self._buffers, self._sms, self._rates)
        collects = gc.isenabled()
        gc.disable()
        try:
            with one_blas_thread() as blas, Machine(program, work, self._cores, self._sms, self._realtime) as machine:
                if found is not None:
                    found["blas"] = blas
                yield machine
        finally:
            if collects:
                gc.enable()

    def _quiet(self) -> Probe:
        """Return what a probe saw, at most 30 s ago; raise `BackendError` if the machine is busy.

        Three probes may see something before it counts: a moment is no load.
        """
        if self._probe is None or monotonic() - self._probe[0] > _PROBE_HOLDS:
            found = self._probed()
            for _ in range(_MORE_PROBES):
                if found.is_quiet:
                    break
                sleep(_MOMENT)
                found = self._probed()
            self._probe = monotonic(), found
        self._probe[1].require_quiet()
        return self._probe[1]

    def _probed(self) -> Probe:
        blocks = _PROBE_BLOCKS * self._sms
        time = _PROBE_BLOCKS * SHORTEST_BLOCK
        op = Operator(
            "probe", SYNTH, flops=time * self._sms * self._rates.flops, time=time, kernels=(Kernel(blocks, WARP),)
        )
        program = Schedule.from_columns(OpGraph([op], [], "probe"), [0], ("gpu0",)).lower(self.cluster)
        with self._machine(program) as machine:
            values = OutputValues(program, rng=self._seed)
            machine.run(values, self._timeout)  # wakes the cores
            return Probe.of(machine.run(values, self._timeout).samples, len(self._cores))


def availability() -> tuple[bool, str]:
    """Return whether threads can be pinned here, and what was found."""
    if not SUPPORTED:
        return False, "needs Linux, where threads can be pinned to cores"
    real = "permitted" if realtime_permitted() else "not permitted"
    load = os.getloadavg()[0]
    return True, f"{len(cores())} cores, real-time priority {real}, load {load:.1f}"


def _cluster(devices: int, sms: int, rates: Rates) -> Cluster:
    """Return the devices as known before calibration; costs are priors."""
    made = tuple(
        Device(
            name=f"gpu{i}", model="cpu", sms=sms, threads_per_sm=WARP, blocks_per_sm=1, registers_per_sm=1 << 16,
            shared_memory_per_sm=64 * KIB, shared_memory_per_block=64 * KIB, shared_memory_reserved=0,
            shared_memory_granularity=256, clock=2000.0, peak={"fp32": rates.flops * sms}, bandwidth=rates.nbytes * sms,
            memory=1 * GIB, l2=1 * MIB * sms, copy_engines=1, resident_kernels=_MANY, connections=_MANY,
            launch=30.0, record=5.0, wait=5.0, copy=10.0, barrier=80.0, gap=20.0, hop=30.0, graph_launch=25.0,
            graph_node=20.0, interference=((0.0, 0.0), (0.0, 0.0)), interleave=0.0, saturating_warps=1.0,
        )
        for i in range(devices)
    )  # fmt: skip
    links = tuple((a.name, b.name, _LINK) for i, a in enumerate(made) for b in made[i + 1 :])
    return Cluster(made, links, name="cpu" if devices == 1 else f"{devices} x cpu")


def _cpuinfo(key: str) -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    lines = (line.partition(":") for line in text.splitlines())
    return next((value.strip() for found, _, value in lines if found.strip() == key), "unknown")


def _processor() -> str:
    return _cpuinfo("model name")


def _clocks() -> str:
    return f"{_cpuinfo('cpu MHz')} MHz"
