"""A backend that is the simulator itself, with parameters that the calibration does not see, and noise."""

from math import ceil

import numpy as np
from stand_ins import SimulatedBackend

import simsched as ss
from hwbackend.measuring import profiling
from simsched.model.backend import prepare
from simsched.model.cluster import occupancy
from simsched.model.profile import Replay
from simsched.model.trace import measured_trace, spans_of
from simsched.simulator.demand import solo_units

PRIOR = ss.Cluster.preset("a100").replace_devices(saturating_warps=24.0)
HIDDEN = {
    "launch": 5.5,
    "record": 0.7,
    "wait": 1.9,
    "gap": 1.3,
    "hop": 2.8,
    "barrier": 14.0,
    "barrier_many": 21.0,
    "graph_launch": 8.5,
    "graph_node": 1.4,
    "graph_issue": 0.7,
    "graph_join": 1.8,
    "crowd_latency": 0.6,
    "copy": 6.0,
    "bandwidth": 1.25e6,
    "saturating_warps": 29.0,
    "interleave": 0.2,
    "interference": ((0.12, 0.03), (0.03, 0.06)),
}


class HiddenDevice(SimulatedBackend):
    """Replays are simulations on `truth`; `factor` is what the time of an operator really is, over what it says."""

    name = "hidden"

    def __init__(self, cluster=PRIOR, truth=None, noise=0.01, factor=None):
        self.cluster, self.truth = cluster, truth or PRIOR.replace_devices(**HIDDEN)
        self.jitter, self.factor, self.rng = noise or None, factor or {}, np.random.default_rng(7)

    def microbenchmarks(self):
        return profiling.microbenchmarks(self)

    def cost(self, op, device):
        """Return the true time: what its operator says by its factor, or what a kernel of known work takes."""
        if op.time is not None:
            return op.time * self.factor.get(op.name, 1.0)
        (kernel,), device = op.kernels, self.truth.devices[0]
        held = occupancy(device, kernel).blocks * device.sms
        most = max(device.saturating_warps, self.cluster.devices[0].saturating_warps)  # none achieves more
        filling = device.sms * most / (kernel.threads / 32)
        flops, nbytes = op.flops / kernel.blocks, op.nbytes / kernel.blocks
        alone = filling * max(flops / device.peak["fp32"], nbytes / self.cluster.devices[0].bandwidth)
        compute, memory = flops / device.peak["fp32"], nbytes / device.bandwidth
        load = ceil(kernel.threads / 32) / device.saturating_warps
        if op.intensity != "compute":
            load = min(load * max(0.1, compute / max(compute, memory)), 1 / -(-min(kernel.blocks, held) // device.sms))
        shape = (kernel.blocks, held, device.sms, load, device.block_spread)
        units = float(solo_units(*(np.array([value]) for value in shape))[0])
        return max(alone * units, kernel.blocks * memory)

    def replay(self, schedule, *, repeats=20, warmup=3):
        program = prepare(self, schedule)
        traces = [ss.simulate(program, self.truth, self.cost, jitter=self.jitter, rng=self.rng) for _ in range(repeats)]
        latency = [trace.makespan for trace in traces]
        launches, copies = spans_of(traces[int(np.argsort(latency)[len(latency) // 2])])
        trace = measured_trace(program, self.cluster, launches, copies)
        name = program.graph.name if isinstance(schedule, type(program)) else schedule.scheduler
        return Replay(tuple(latency), trace, {"backend": self.name, "device": "hidden a100"}, name=name)
