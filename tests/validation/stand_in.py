"""A backend for tests of the campaign: the simulator, on a cluster that is not quite the one it describes."""

import os
import signal

import numpy as np

import simsched as ss
import workloads
from hwbackend import profiling
from hwbackend.preparing import environment
from hwbackend.synth import realised
from simsched.model.backend import prepared
from simsched.model.profile import Replay
from simsched.model.trace import KERNEL, measured_trace
from validation.hardware.sections import Plan

TINY = Plan(
    {"dag": ("random:layered,n_ops=10,n_layers=3,n_edges=16,time=20:100,seed=1", 1)}, kernels=("add 2",), whole=(),
    hios_sizes=(8,), opara_sizes=(), microbenchmarks=False, in_situ=2,
    schedulers=("sequential", "greedy", "heft", "opara"), repeats=6,
)  # fmt: skip


class StandIn:
    """Quick, and exact to a noise of one per cent; `before` is called with the program of each replay."""

    name = "stand-in"

    def __init__(self, before=lambda program: None):
        self.cluster = ss.Cluster.preset("a100")
        self.truth = self.cluster.replace_devices(launch=3.0, gap=1.4, hop=2.6, bandwidth=1.8e6)
        self.before = before
        self.replays = []

    def realise(self, graph):
        return realised(graph, self.cluster)

    def microbenchmarks(self):
        """A few: what counts here is that they are there."""
        return self.profile(workloads.load("tiny_resnet"), in_situ=0)

    def profile(self, graph, *, in_situ=8, rng=0):
        return profiling.profile(self, graph, in_situ, rng)

    def replay(self, schedule, *, repeats=20, warmup=3):
        program = prepared(self, schedule, repeats, warmup)
        self.before(program)
        self.replays.append(program.graph.name)
        trace = ss.simulate(program, self.truth)
        rng = np.random.default_rng(len(self.replays))
        spans = np.zeros((len(program.launch_op), 2))
        rows = trace.kind == KERNEL
        spans[trace.item[rows]] = np.stack([trace.start[rows], trace.end[rows]], axis=1)
        latency = trace.makespan * rng.normal(1.0, 0.01, repeats)
        where = environment(self.name, "stand-in")
        return Replay(tuple(latency), measured_trace(program, self.cluster, spans), where, 0.0)


def make():
    """What the command line calls, as ``--backend stand_in:make``."""
    return StandIn()


def make_deadly():
    """One whose process ends when it runs convolutions of 64 pixels."""

    def before(program):
        if program.graph.name == "convolutions-64":
            os.kill(os.getpid(), signal.SIGKILL)

    return StandIn(before)
