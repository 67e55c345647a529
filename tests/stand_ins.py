"""What stands for a device: a backend that simulates; and for what was fitted to one: every time by one factor."""

from zlib import crc32

import numpy as np

import simsched as ss
from hwbackend.measuring import profiling
from hwbackend.measuring.environment import environment
from hwbackend.measuring.microbenchmarks import schedules
from hwbackend.measuring.synth import realised
from simsched.calibration import Calibration
from simsched.model import default_cost
from simsched.model.backend import prepare
from simsched.model.profile import MeasuredOperator, Profile, Replay
from simsched.model.trace import measured_trace, spans_of


class SimulatedBackend:
    """It "measures" an A100 whose host issues at half the usual speed, and whose operators take longer than one thinks.

    By 1.1 to 1.6 times, but less in a loop, on warm data. Latencies vary by 1 %, always in the same way.
    `before` is called with each program that it is going to run; those that it ran are in `ran`.
    """

    name = "simulated"

    def __init__(self, gpus=1, before=lambda program: None):
        self.cluster = ss.Cluster.preset("a100", gpus)
        device = self.cluster.devices[0]
        self._truth = self.cluster.replace_devices(
            launch=2 * device.launch, hop=3 * device.hop, graph_node=2 * device.graph_node
        )
        self._before = before
        self.ran = []

    def realise(self, graph):
        return realised(graph, self.cluster)

    def microbenchmarks(self):
        chosen = [plan for plan in schedules(self.cluster) if plan.scheduler.startswith("overhead/")][1::4]
        runs = tuple(self.replay(plan, repeats=4, warmup=0) for plan in chosen)
        return Profile((MeasuredOperator("launch", (1.0,)),), runs=runs, cluster=self.cluster)

    def profile(self, graph, *, in_situ=8, rng=0):
        return profiling.profile(self, graph, in_situ, rng)

    def cost(self, op, device):
        if op.time is None:  # of a microbenchmark
            return default_cost(op, device)
        name, looped, _ = op.name.partition("#")
        return (1.1 + 0.5 * (crc32(name.encode()) % 997) / 997) * op.time / (1.25 if looped else 1.0)

    def replay(self, schedule, *, repeats=20, warmup=3):
        program = prepare(self, schedule, repeats, warmup)
        self._before(program)
        self.ran.append(program)
        trace = ss.simulate(program, self._truth, self.cost)
        launches, copies = spans_of(trace)
        seed = crc32(program.action.tobytes() + program.stream.tobytes() + program.argument.tobytes())
        factors = 1 + 0.01 * np.random.default_rng(seed).standard_normal(repeats)
        where = environment(self.name, "Simulated A100") | {"date": "2026-01-01T00:00:00Z"}
        measured = measured_trace(program, self.cluster, launches, copies)
        name = getattr(schedule, "scheduler", "program")
        return Replay(tuple(trace.makespan * factors), measured, where, 0.0, name)


def make(gpus=1):
    """What the command line calls, as ``--backend stand_ins:make``."""
    return SimulatedBackend(gpus)


def measured(graph, cluster, factor):
    """Return a calibration by which the operators of a graph take so many times as long as they are said to."""
    times = {op.name: factor * default_cost(op, cluster.devices[0]) for op in graph.operators}
    return Calibration(cluster, cluster, graph, times, {op.kind: factor for op in graph.operators}, (), ())
