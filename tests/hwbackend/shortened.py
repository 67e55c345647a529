"""Small graphs, schedules and programs by hand, and programs that lack something."""

import numpy as np

from simsched.model import Schedule
from simsched.model.graph import Edge, Kernel, Operator, OpGraph
from simsched.model.program import Copies, Program
from workloads.models.nasnet import _normal_cell
from workloads.models.network import Network


def synths(names, edges, nbytes=1024.0, shared_memory=0):
    """Return a graph of synthetic operators of 10 us with a kernel each."""
    kernels = (Kernel(4, shared_memory=shared_memory),)
    operators = [Operator(name, "synth", kernels=kernels, flops=1e6, nbytes=1e5, time=10.0) for name in names]
    return OpGraph(operators, [Edge(*edge, nbytes) for edge in edges], "synths")


def operator(kind, shapes, output, name="op", **attributes):
    return Operator(name, kind, input_shapes=shapes, output_shape=output, attributes=attributes, kernels=(Kernel(1),))


def nasnet_cell():
    """Units of many parts: sequences that begin with an activation, sums of branches, "identity"; a 1 x 7 window."""
    net = Network("cell", granularity="unit")
    x = net.conv("x", net.input(2, 3, 7, 7), 6, (1, 7), padding=(0, 3))
    before = net.conv("before", net.input(2, 3, 7, 7), 8, 1)
    _normal_cell(net, "cell", x, before, 4, True, is_first=False)
    return net.graph()


def in_order(graph, device=0, **columns):
    """Return a schedule in the order of a graph's operators; columns are those of `Schedule.from_columns`."""
    names = [f"gpu{i}" for i in range(np.max(device) + 1)]
    return Schedule.from_columns(graph, range(len(graph)), names, device=device, **columns)


def program_of(graph, *threads, execution="events", copies=(), events=1):
    """Return a program of rows (action, device, stream, argument) by host thread, on two devices.

    Copies are pairs of an operator and a device, of 64 bytes each.
    """
    rows = [row for thread in threads for row in thread]
    ops, devices = ([row[k] for row in copies] for k in (0, 1))
    sizes = np.full(len(copies), 64.0)
    return Program(
        graph,
        ("gpu0", "gpu1"),
        execution,
        np.cumsum([0, *map(len, threads)]),
        *np.array(rows).T,
        Copies(ops, devices, sizes, np.nan * sizes),
        events,
    )


def without(program, rows):
    """Return a program less some instructions: the number of one, or a mask of those that go."""
    keep = np.ones(len(program), bool)
    keep[rows] = False
    ptr = np.concatenate([[0], np.cumsum(keep)])[program.thread_ptr]
    columns = (getattr(program, name)[keep] for name in ("action", "device", "stream", "argument"))
    return Program(
        program.graph,
        program.devices,
        program.execution,
        ptr,
        *columns,
        program.copies,
        program.n_events,
        program.priority,
    )
