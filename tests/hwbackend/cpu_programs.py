"""Small programs by hand, and devices of threads whose blocks are functions of the test."""

import numpy as np

from hwbackend.cpu_device import Machine
from hwbackend.cpu_run import Work
from simsched.model.graph import Kernel, Operator, OpGraph
from simsched.model.launches import Copies
from simsched.model.program import ACTIONS, Program

NO_COPIES = Copies([], [], [], [])


def program(operators, threads, *, execution="events", n_events=0, priority=0, devices=("gpu0",), edges=()):
    """Return a program of instructions ("launch", stream, argument[, device]) for each host thread.

    `operators` maps names to blocks, in the order of the launches.
    """
    graph = OpGraph([Operator(name, kernels=(Kernel(n, 32),)) for name, n in operators.items()], edges, "small")
    rows = [row if len(row) == 4 else (*row, 0) for thread in threads for row in thread]
    ptr = np.cumsum([0, *map(len, threads)])
    return Program(
        graph, devices, execution, ptr, [ACTIONS.index(row[0]) for row in rows], [row[3] for row in rows],
        [row[1] for row in rows], [row[2] for row in rows], NO_COPIES, n_events, priority,
    ).check()  # fmt: skip


class NoValues:
    def read(self, op, device): ...
    def write(self, op, device): ...
    def copied(self, copy, device): ...


def machine(prog, sms, block=lambda name, number: None):
    """Return a machine on which block `number` of an operator calls ``block(name, number)``."""

    def call(name, number):
        return [lambda: block(name, number)]

    launches = [[call(op.name, number) for number in range(op.kernels[0].blocks)] for op in prog.graph.operators]
    return Machine(prog, Work(launches, []), (), sms, realtime=False)
