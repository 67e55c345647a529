"""Small schedules from texts, and what a program promises about order, told from its instructions alone."""

import networkx as nx
import numpy as np
from small import edges

from simsched.model import Operator, OpGraph, Placement, Schedule
from simsched.model.program import BARRIER, COPY, LAUNCH, RECORD, SYNC, WAIT


def made(pairs, names=None, **fields):
    """A graph from "ab cd=8" (edges a -> b and c -> d, this of 8 bytes), every operator 10 us."""
    rows = edges(pairs, **fields)
    names = sorted({name for edge in rows for name in (edge.src, edge.dst)}) if names is None else names
    return OpGraph([Operator(name, time=10.0) for name in names], rows)


def plan(graph, text, execution="events"):
    """A schedule in launch order from "a 0 1, b 0 0": operator, device, stream, then stage and group."""
    rows = [row.split() for row in text.split(",")]
    return Schedule(graph, [Placement(op, f"gpu{device}", *map(int, rest)) for op, device, *rest in rows], execution)


def happens_before(program, without=None):
    """A digraph of instructions: ("issue", i) by the host, ("run", i) by the stream; an edge says what comes first.

    Hosts issue in order, streams run in the order of issue, a wait runs after its record has run
    (and is issued after that has been issued), a barrier is issued after all kernels that its device
    was given have run, a sync after its event's record has run. `without` leaves one instruction out.
    """
    order = nx.DiGraph()
    record = {int(program.argument[i]): i for i in np.flatnonzero(program.action == RECORD).tolist()}
    for t in range(len(program.thread_ptr) - 1):
        last_issue, last_run, kernels = None, {}, {}
        for i in range(int(program.thread_ptr[t]), int(program.thread_ptr[t + 1])):
            if i == without:
                continue
            action, device, stream = int(program.action[i]), int(program.device[i]), int(program.stream[i])
            order.add_node(("issue", i))
            if last_issue is not None:
                order.add_edge(("issue", last_issue), ("issue", i))
            last_issue = i
            if action == BARRIER:
                order.add_edges_from((("run", k), ("issue", i)) for k in kernels.get(device, []))
                continue
            if action == SYNC:
                order.add_edge(("run", record[int(program.argument[i])]), ("issue", i))
                continue
            order.add_edge(("issue", i), ("run", i))
            if (device, stream) in last_run:
                order.add_edge(("run", last_run[device, stream]), ("run", i))
            last_run[device, stream] = i
            if action == LAUNCH:
                kernels.setdefault(device, []).append(i)
            if action == WAIT:
                order.add_edge(("run", record[int(program.argument[i])]), ("run", i))
                order.add_edge(("issue", record[int(program.argument[i])]), ("issue", i))
    assert nx.is_directed_acyclic_graph(order)
    return order


def broken(program, without=None):
    """The edges of the graph that the program does not keep."""
    order = happens_before(program, without)
    after = {}
    for node in reversed(list(nx.topological_sort(order))):
        after[node] = set().union(*({other} | after[other] for other in order.successors(node)))
    launches = {}
    for i in np.flatnonzero(program.action == LAUNCH).tolist():
        launches.setdefault(program.graph.names[program.launches.op[program.argument[i]]], []).append(("run", i))
    where = {name: int(program.device[rows[0][1]]) for name, rows in launches.items()}
    found = []
    for edge in program.graph.edges:
        end, start = launches[edge.src][-1], launches[edge.dst][0]
        if where[edge.src] == where[edge.dst]:
            kept = start in after[end]
        else:
            kept = any(
                ("run", i) in after[end] and start in after["run", i]
                for i in np.flatnonzero(program.action == COPY).tolist()
                if carries(program, int(program.argument[i]), edge, where[edge.dst])
            )
        if not kept:
            found.append(edge)
    return found


def carries(program, copy, edge, device):
    copies = program.copies
    exact = None if np.isnan(copies.transfer[copy]) else copies.transfer[copy]
    return (
        program.graph.names[copies.op[copy]] == edge.src
        and copies.device[copy] == device
        and copies.nbytes[copy] == edge.nbytes
        and exact == edge.transfer
    )
