"""`FakeDevice`: a device of a contact that simulates, with a truth that is drawn, a clock of its own, and faults."""

import time
from collections.abc import Sequence
from math import exp
from typing import Any, Final
from zlib import crc32

import numpy as np

from hwbackend.contact.clocks import DeviceState
from hwbackend.contact.device import FAKE, Halves, Session, StampedBlock, Timing
from hwbackend.contact.fake.blocks import place_blocks
from hwbackend.contact.fake.faults import combine_faults
from hwbackend.contact.fake.truth import draw_truth
from hwbackend.measuring import profiling
from hwbackend.measuring.environment import environment
from hwbackend.measuring.synth import SYNTH, realised
from simsched.base.errors import BackendError
from simsched.model import (
    LAUNCH,
    RECORD,
    WAIT,
    WARP,
    Cluster,
    Device,
    Floats,
    Kernel,
    Operator,
    OpGraph,
    Program,
    Schedule,
    occupancy,
    roofline,
)
from simsched.model.backend import prepare
from simsched.model.profile import Profile, Replay
from simsched.model.trace import Spans, measured_trace, spans_of
from simsched.simulator import simulate
from simsched.simulator.demand import demand_on

_SYNCHRONISED: Final = 8e-6  # s of a host's wait after each repeat
_COLD: Final = 0.1  # s without work after which the clock is low again
_HOT: Final = 1.0  # s of work after which a device throttles that has this fault
_SAME_CLOCK: Final = 0.002  # part by which the clock may change before a schedule is simulated again
_STAMPED: Final = 40  # repeats whose stamps are read
_LOOPED: Final = 1.25  # times as fast as in place are operators on warm data
_FMA: Final = 30.0  # us of one warp of one chain
_LARGE: Final = 1e12  # FLOP of a large matrix product
_SHAPES: Final = ((64, 32, 0), (128, 64, 0), (256, 32, 0), (256, 64, 16384), (384, 168, 98304), (1024, 32, 0))
_CHAIN: Final = 400.0  # us of kernels bound by one unit
_HIDDEN: Final = 0.9  # part of them that is hidden beside kernels bound by another unit
_LINKED: Final = 100  # kernels of a chain of programmatic launches
_LINK: Final = 6.0  # us of one of them
_HALF: Final = 160.0  # us of a block of a kernel on a part of the SMs
_FOREVER: Final = 3600.0  # s that a call which hangs takes, if nobody ends its process
_SETTLED: Final = 8  # turns in which the time of a kernel is found
_HOST: Final = {LAUNCH: "launch", RECORD: "record", WAIT: "wait"}


class FakeDevice:
    """A device whose every time is simulated.

    Parameters
    ----------
    gpu
        Preset that the device claims to be.
    seed
        Of the truth and of all noise.
    fault
        A name in `FAULTS`, several joined by ``+``, or nothing.
    truth
        Fields of `FakeTruth` or `Device` that are given and not drawn.

    Notes
    -----
    Its backend measures networks on the same clock. Operators of networks take 1.1 to 1.6 times as long as they are
    said to, each by a factor of its own.
    """

    name = FAKE
    virtual = True

    def __init__(self, *, gpu: str = "h100", seed: int = 0, fault: str = "", **truth: Any) -> None:
        self.fault = combine_faults(fault)
        self._prior = Cluster.preset(gpu)
        self.truth = draw_truth(self._prior, seed, **{**self.fault.truth, **truth})
        self._rng = np.random.default_rng([seed, 41])
        self._now = 0.0
        self._loaded = 0.0  # s without a pause
        self._rested = _COLD
        self._was_profiled = False
        self._costs: dict[object, tuple[float, float]] = {}
        self.backend = FakeBackend(self)

    @property
    def cluster(self) -> Cluster:
        """The preset."""
        return self._prior

    def facts(self) -> dict[str, Any]:
        """Return the limits of the truth, which are those of the preset."""
        device = self.truth.device
        limits = ("sms", "threads_per_sm", "blocks_per_sm", "registers_per_sm", "shared_memory_per_sm", "capability")
        return {"model": device.model, "driver": "fake", **{name: getattr(device, name) for name in limits}}

    # --- the clock

    def seconds(self) -> float:
        """Return the simulated s of the device."""
        return self._now

    def idle(self, seconds: float) -> None:
        """Let time pass."""
        self._now += seconds
        self._rested += seconds
        if self._rested >= _COLD:
            self._loaded = 0.0

    def _work(self, seconds: float) -> None:
        self._now += seconds
        self._loaded += seconds
        self._rested = 0.0

    def _clock(self) -> float:
        """Return the part of the full clock at which the device runs now."""
        truth = self.truth
        missing = (1.0 - truth.ramp_start) * exp(-self._loaded / truth.ramp_time)
        clock = (1.0 - missing) * (1.0 - truth.drift * self._now / 100.0)
        return clock * (self.fault.throttled[0] if self.fault.throttled and self._loaded > _HOT else 1.0)

    def state(self) -> DeviceState:
        """Return the condition of the device."""
        reason = self.fault.throttled
        throttled = (reason[1],) if reason and self._loaded > _HOT else ()
        return DeviceState(self.truth.clock * self._clock(), 2619.0, throttled, 45.0, 300.0)

    # --- what it measures

    def run(self, plan: Schedule, repeats: int, *, warm: float = 0.0) -> Timing:
        """Simulate a schedule at the clock of each repeat."""
        program = prepare(self.backend, plan, repeats)
        self._fail(program.graph.name)
        self._work(warm)
        latency = np.empty(repeats)
        stamps = list[Floats]()
        spans = Spans(np.zeros((0, 2)), np.zeros((0, 2)))
        simulated_at = 0.0
        makespan = 0.0
        factors = np.exp(self.truth.noise * self._rng.standard_normal(repeats))
        for i in range(repeats):
            clock = self._clock()
            if abs(clock - simulated_at) > _SAME_CLOCK * clock:
                spans, makespan = self._simulate(program, clock)
                simulated_at = clock
            latency[i] = makespan * factors[i]
            if i < _STAMPED:
                stamps.append(self._stamp(spans.launches * factors[i]))
            self._work(latency[i] * 1e-6 + _SYNCHRONISED)
        scale = np.median(latency) / latency[: len(stamps)]  # as if every repeat had taken the median
        launches = np.mean([times * part for times, part in zip(stamps, scale, strict=True)], axis=0).reshape(-1, 2)
        trace = measured_trace(program, self._prior, launches, spans.copies)
        where = environment(FAKE, f"fake {self._prior.devices[0].model}")
        issue = tuple((self._issue(program) * factors).tolist())
        return Timing(Replay(tuple(latency.tolist()), trace, where, 0.0, plan.scheduler), issue)

    def _simulate(self, program: Program, clock: float) -> tuple[Spans, float]:
        trace = simulate(program, self._cluster_at(clock), self.cost)
        return spans_of(trace), trace.makespan

    def _cluster_at(self, clock: float) -> Cluster:
        found = self.truth.at(clock)
        return found.replace_devices(launch=found.devices[0].launch * self._launch_factor)

    @property
    def _launch_factor(self) -> float:
        """Factor of the host's launch costs."""
        if self._was_profiled:
            return self.fault.after_profiler
        return 1.0

    def _stamp(self, times: Floats) -> Floats:
        """Return times as the timer shows them, whose steps begin at an arbitrary one."""
        tick = self.truth.tick
        phase = self._rng.uniform(0.0, self.truth.tick)
        return np.maximum(0.0, np.floor((times + phase) / tick) * tick - phase + tick / 2)

    def _issue(self, program: Program) -> float:
        """Return the us in which a host issues a program."""
        device = self.truth.device
        if program.execution == "graph":
            return device.graph_launch
        costs = {code: getattr(device, name) for code, name in _HOST.items()}
        costs[LAUNCH] *= self._launch_factor
        return float(sum(costs.get(action, 0.0) for action in program.action.tolist()))

    def cost(self, op: Operator, device: Device) -> float:
        """Return the true us of an operator alone on a device of the truth.

        A kernel without a time of its own takes what its blocks take together (see `demand_on`), or its bytes.
        """
        clock = device.peak["fp32"] / self.truth.device.peak["fp32"]
        if op.time is not None or op.kind != SYNTH:
            name, looped, _ = op.name.partition("#")
            own = (1.1 + 0.5 * (crc32(name.encode()) % 997) / 997) / (_LOOPED if looped else 1.0)
            return own * (roofline(op, self.truth.device) if op.time is None else op.time) / clock
        does = op.flops, op.nbytes, op.dtype, op.intensity, op.kernels
        if does not in self._costs:
            self._costs[does] = self._parts(op)
        computing, moving = self._costs[does]
        return max(device.kernel_latency + max(computing / clock, moving), 0.1)

    def _parts(self, op: Operator) -> tuple[float, float]:
        """Return the us that a kernel computes and moves bytes at the full clock, whichever is longer."""
        device = self.truth.device
        kernel = op.kernels[0]
        share = min(1.0, -(-kernel.threads // WARP) / device.saturating_warps)
        block = op.flops / kernel.blocks / (device.peak_rate(op.dtype) / device.sms * share)
        moving = op.nbytes / device.bandwidth
        computing = block
        for _ in range(_SETTLED):  # what a kernel loads of an SM depends on its time, and its time on that
            alone = np.array([max(computing, moving, 0.1)])
            computing = block * float(demand_on(OpGraph([op]), self.truth.cluster, 0, alone)["units"][0])
        return computing, moving

    def blocks(self, plan: Schedule) -> list[StampedBlock]:
        """Place the blocks of operators that are launched together."""
        self._fail(plan.graph.name)
        device = self.truth.device
        kernels = [op.kernels[0] for op in plan.graph.operators]
        times = [
            self.cost(op, device) / self._clock() / max(1.0, kernel.blocks / (device.sms * self._blocks_held(kernel)))
            for op, kernel in zip(plan.graph.operators, kernels, strict=True)
        ]
        held = min(map(self._blocks_held, kernels))
        if device.resident_kernels > 1:
            together = 1.0
        else:
            together = 0.0
        placed = place_blocks(
            [kernel.blocks for kernel in kernels], times, held, device.sms, device.interleave * together, self._rng
        )
        self._work(sum(times) * 1e-6 + _SYNCHRONISED)
        edges = self._stamp(np.array([(block.start, block.end) for block in placed]))
        return [
            block._replace(start=start, end=end) for block, (start, end) in zip(placed, edges.tolist(), strict=True)
        ]

    def tick(self) -> float:
        """Return the step of the timer."""
        self._work(1e-3)
        return self.truth.tick

    def fma(self, warps: int, chains: int) -> float:
        """Return the us of a block: one warp's until the warps keep the SM busy, in proportion to them beyond."""
        one = _FMA / chains
        busy = max(1.0, warps * chains / self.truth.chain_warps)
        time_alone = one * busy / self._clock() * exp(self.truth.noise * self._rng.standard_normal() / 5)
        self._work(time_alone * 50e-6)
        return time_alone

    def occupancies(self) -> list[tuple[Kernel, int]]:
        """Return kernels, and what the calculation says, as a driver would."""
        kernels = [Kernel(1, *shape) for shape in _SHAPES]
        return [(kernel, self._blocks_held(kernel)) for kernel in kernels]

    def _blocks_held(self, kernel: Kernel) -> int:
        return occupancy(self.truth.device, kernel).blocks

    def copy(self, nbytes: float, ways: Sequence[str]) -> float:
        """Return the us of copies over as many engines as the device has; each way moves at one rate."""
        truth = self.truth
        engines = min(truth.device.copy_engines, len(set(ways)))
        each = truth.copy_latency + nbytes / truth.copy_rate
        turns = -(-len(ways) // engines)
        took = turns * each * exp(truth.noise * self._rng.standard_normal() / 5)
        self._work(took * 1e-6)
        return took

    def matmul(self, dtype: str) -> float:
        """Return the FLOP per us of a large product at the clock of now."""
        device = self.truth.device
        if dtype not in device.peak:
            raise BackendError(f"the fake device has no rate of {dtype}")
        rate = device.peak[dtype] * self.truth.matmul * self._clock()
        self._work(_LARGE / rate * 1e-6)
        return rate * exp(self.truth.noise * self._rng.standard_normal() / 5)

    def beside(self, first: str, second: str) -> tuple[float, float, float]:
        """Return the us of chains that take turns where they need the same unit, and hide most of each other else."""
        alone = _CHAIN / self._clock()
        if first == second or self.truth.device.resident_kernels == 1:
            hidden = 0.0
        else:
            hidden = _HIDDEN
        self._work(4 * alone * 20e-6)
        return alone, alone, alone * (2.0 - hidden)

    def chain(self, *, programmatic: bool) -> float:
        """Return the us from start to start of kernels in a chain, as the timer stamps them."""
        device = self.truth.device
        pause = device.gap - (self.truth.programmatic if programmatic else 0.0)
        each = (_LINK + pause) / self._clock() * exp(self.truth.noise * self._rng.standard_normal() / 5)
        first, last = self._stamp(np.array([0.0, each * (_LINKED - 1)])).tolist()
        self._work(each * _LINKED * 1e-6 + _SYNCHRONISED)
        return float(last - first) / (_LINKED - 1)

    def halves(self) -> Halves:
        """Return the times of two kernels of a block an SM: on a part of the SMs a part of the blocks has to wait."""
        sms = self.truth.device.sms
        parts = (self.truth.green_sms, sms - self.truth.green_sms)
        shared = _HALF / self._clock()
        apart = shared * sms / min(parts)
        self._work(9 * (shared + apart) * 1e-6)
        return Halves(shared, apart, parts)

    def profile_once(self, plan: Schedule) -> Session:
        """Return the kernels of a schedule as the profiler would report them."""
        self._was_profiled = True
        self._work(0.2)
        if self.fault.empty_session:
            return Session(0, 0)
        count = len(prepare(self.backend, plan).launches)
        return Session(count, 0 if self.fault.no_nodes else count)

    def _fail(self, name: str) -> None:
        """Hang or fail where the fault says so."""
        if self.fault.hangs and name.startswith(self.fault.hangs):
            time.sleep(_FOREVER)
        if self.fault.raises and name.startswith(self.fault.raises):
            raise BackendError(f"{name}: an illegal memory access was encountered")


class FakeBackend:
    """The backend of a fake device; see `Backend`."""

    name = FAKE

    def __init__(self, device: FakeDevice) -> None:
        self._device = device

    @property
    def cluster(self) -> Cluster:
        """The preset."""
        return self._device.cluster

    def realise(self, graph: OpGraph) -> OpGraph:
        """Return the graph with a synthetic kernel for each operator without kernels."""
        return realised(graph, self.cluster)

    def microbenchmarks(self) -> Profile:
        """Measure small schedules made to identify parameters."""
        return profiling.microbenchmarks(self)

    def profile(self, graph: OpGraph, *, in_situ: int = 8, rng: np.random.Generator | int = 0) -> Profile:
        """Measure the operators of a graph."""
        return profiling.profile(self, graph, in_situ, rng)

    def replay(self, schedule: Schedule | Program, *, repeats: int = 20, warmup: int = 3) -> Replay:
        """Simulate a schedule; programs are refused."""
        if isinstance(schedule, Program):
            raise BackendError("the fake device runs schedules; give the schedule of the program")
        if warmup:
            self._device.run(schedule, warmup)
        return self._device.run(schedule, repeats).replay
