"""A backend for tests: it "measures" by simulating on a cluster that nobody else knows, with seeded noise."""

from dataclasses import replace
from zlib import crc32

import numpy as np

from hwbackend import profiling
from hwbackend.microbenchmarks import schedules
from hwbackend.preparing import environment
from hwbackend.synth import realised
from simsched import Cluster
from simsched.base.errors import BackendError
from simsched.model.backend import prepared
from simsched.model.costmodel import default_cost
from simsched.model.profile import MeasuredOperator, Profile, Replay
from simsched.model.trace import COPY, KERNEL, measured_trace
from simsched.simulator import simulate


def times_of(trace, kind):
    """Start and end of each launch or copy, in their order in the program."""
    rows = np.flatnonzero(trace.kind == kind)
    rows = rows[np.argsort(trace.item[rows])]
    return np.column_stack([trace.start[rows], trace.end[rows]])


class HiddenBackend:
    """An A100 whose host issues at half the usual speed, and whose operators take longer than one thinks.

    By 1.1 to 1.6 times, but less in a loop, on warm data. Latencies vary by 1 %. It counts what it runs, and is killed
    after `stop_after` replays.
    """

    name = "hidden"

    def __init__(self, gpus=1, stop_after=None, noise=0.01, refuses=()):
        self.cluster = Cluster.preset("a100", int(gpus))
        device = self.cluster.devices[0]
        self._hidden = self.cluster.replace_devices(
            launch=2 * device.launch, hop=3 * device.hop, graph_node=2 * device.graph_node
        )
        self._noise = noise
        self._refuses = refuses
        self.stop_after = stop_after
        self.ran = []

    def realise(self, graph):
        return realised(graph, self.cluster)

    def microbenchmarks(self):
        chosen = [plan for plan in schedules(self.cluster) if plan.scheduler.startswith("overhead/")][1::4]
        runs = tuple(replace(self.replay(plan, repeats=4, warmup=0), name=plan.scheduler) for plan in chosen)
        return Profile((MeasuredOperator("launch", (1.0,)),), runs=runs, cluster=self.cluster)

    def profile(self, graph, *, in_situ=8, rng=0):
        return profiling.profile(self, graph, in_situ, rng)

    def cost(self, op, device):
        if op.time is None:  # of a microbenchmark
            return default_cost(op, device)
        name, looped, _ = op.name.partition("#")
        return (1.1 + 0.5 * (crc32(name.encode()) % 997) / 997) * op.time / (1.25 if looped else 1.0)

    def replay(self, schedule, *, repeats=20, warmup=3):
        if self.stop_after is not None and len(self.ran) >= self.stop_after:
            raise KeyboardInterrupt
        program = prepared(self, schedule, repeats, warmup)
        if repeats < 4 and program.execution in self._refuses:  # microbenchmarks and profiles have more
            raise BackendError(f"{program.execution} is not for me")
        trace = simulate(program, self._hidden, self.cost)
        seed = crc32(program.action.tobytes() + program.stream.tobytes() + program.argument.tobytes())
        factors = 1 + self._noise * np.random.default_rng(seed).standard_normal(repeats)
        self.ran.append(program)
        return Replay(
            tuple(trace.makespan * factors),
            measured_trace(
                program, self.cluster, times_of(trace, KERNEL), times_of(trace, COPY)
            ),
            environment("hidden", "Hidden A100") | {"date": "2026-01-01T00:00:00Z"},
            max_relative_error=0.0,
            name=getattr(schedule, "scheduler", "program"),
        )  # fmt: skip
