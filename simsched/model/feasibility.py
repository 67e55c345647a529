"""Whether a schedule can run: the proof behind `Schedule.check`."""

from typing import NoReturn

import numpy as np
import numpy.typing as npt

from simsched.base.errors import ScheduleError, UnknownNameError
from simsched.model.cluster import Cluster
from simsched.model.graph.columns import Indices
from simsched.model.graph.ordering import describe_cycle, topological_order
from simsched.model.plan import Plan

Bools = npt.NDArray[np.bool_]


def launch_position(schedule: Plan) -> Indices:
    """Return the place of each operator in the launch order, shape (n_ops,)."""
    return _by_operator(schedule, np.arange(len(schedule), dtype=np.int32))


def _by_operator(schedule: Plan, column: Indices) -> Indices:
    """Return a column in launch order by operator instead."""
    found = np.empty(len(schedule), np.int32)
    found[schedule.op] = column
    return found


def barrier_before(device: Indices, stage: Indices, stream: Indices) -> Bools:
    """Return, by place in the launch order, whether the host issues a stage barrier first, shape (n_ops,).

    A barrier stands between two stages of a device, except where each of the two has one group
    and both use the same stream: the stream orders them.
    """
    rows = np.argsort(device, kind="stable")  # launch order within each device
    device, stage, stream = device[rows], stage[rows], stream[rows]
    starts = np.flatnonzero(np.concatenate([[True], (device[1:] != device[:-1]) | (stage[1:] != stage[:-1])]))
    lowest, highest = np.minimum.reduceat(stream, starts), np.maximum.reduceat(stream, starts)
    single = lowest == highest  # groups of a stage have streams of their own
    follows = device[starts][1:] == device[starts][:-1]
    ordered = single[1:] & single[:-1] & (lowest[1:] == lowest[:-1])
    barrier = np.zeros(len(rows), np.bool_)
    barrier[rows[starts[1:][follows & ~ordered]]] = True
    return barrier


def check(schedule: Plan, cluster: Cluster | None, *, one_thread: bool = False) -> None:
    """See `Schedule.check`; `one_thread`: whether one host thread launches everything."""
    for name in schedule.devices_used:
        if cluster is not None and name not in cluster.index:
            at = int(np.argmax(schedule.device == schedule.devices.index(name)))
            _refuse(schedule, schedule.op[at], str(UnknownNameError("device", name, list(cluster.index))))
    if schedule.execution == "stages":
        _check_stages(schedule)
    graph, position = schedule.graph, launch_position(schedule)
    backwards = position[graph.src] > position[graph.dst]
    if not backwards.any():
        return
    device = _by_operator(schedule, schedule.device)
    late = backwards & ((device[graph.src] == device[graph.dst]) | one_thread | (schedule.execution == "graph"))
    if late.any():
        edge = graph.edge(int(np.argmax(late)))
        _refuse(schedule, graph.index[edge.dst], f"it is launched before {edge.src!r}, which it reads from")
    _check_waits(schedule, device)


def _refuse(schedule: Plan, op: int, reason: str) -> NoReturn:
    raise ScheduleError(f"schedule of {schedule.graph.name!r}: operator {schedule.graph.names[op]!r}: {reason}")


def _check_stages(schedule: Plan) -> None:
    rows = np.argsort(schedule.device, kind="stable")  # launch order within each device
    device, stage = schedule.device[rows], schedule.stage[rows]
    same_device = device[1:] == device[:-1]
    falls = same_device & (stage[1:] < stage[:-1])
    if falls.any():
        at = int(np.argmax(falls))
        _refuse(
            schedule, schedule.op[rows[at + 1]], f"it is of stage {stage[at + 1]} but launched after stage {stage[at]}"
        )
    begins = np.concatenate([[False], ~same_device | (stage[1:] != stage[:-1])])
    number = np.cumsum(begins, dtype=np.int32)  # of the stage, over all devices
    group, stream = schedule.group[rows], schedule.stream[rows]
    if (group != stream).any():
        for kept, other, reason in (
            (group, stream, "its group uses more than one stream"),
            (stream, group, "its stream serves more than one group of the stage"),
        ):
            order = np.lexsort((other, kept, number))
            same = np.logical_and.reduce([column[order][1:] == column[order][:-1] for column in (number, kept)])
            differs = same & (other[order][1:] != other[order][:-1])
            if differs.any():
                _refuse(schedule, schedule.op[rows[order[int(np.argmax(differs)) + 1]]], reason)
    u, v = schedule.graph.src, schedule.graph.dst
    stage_of = np.empty(len(schedule), np.int32)
    stage_of[schedule.op[rows]] = number
    group_of = _by_operator(schedule, schedule.group)
    beside = (stage_of[u] == stage_of[v]) & (group_of[u] != group_of[v])
    if beside.any():
        e = int(np.argmax(beside))
        _refuse(
            schedule, v[e], f"it reads from {schedule.graph.names[u[e]]!r}, which is in another group of the same stage"
        )


def _check_waits(schedule: Plan, device: Indices) -> None:
    """Look for a cycle through launches (by host thread), ends (by stream), edges and barriers.

    Vertex i is the launch of operator i and n + i its end. The host of a device issues in order;
    a wait for another device is issued after the record that it waits for.
    """
    graph, n = schedule.graph, len(schedule)
    pairs: list[tuple[Indices, Indices]] = [(np.arange(n), np.arange(n) + n), (graph.src + n, graph.dst + n)]
    across = device[graph.src] != device[graph.dst]
    pairs.append((graph.src[across], graph.dst[across]))
    for keys, offset in (((schedule.device,), 0), ((schedule.stream, schedule.device), n)):
        order = np.lexsort((np.arange(n), *keys))
        same = np.logical_and.reduce([key[order][1:] == key[order][:-1] for key in keys])
        ops = schedule.op[order] + offset
        pairs.append((ops[:-1][same], ops[1:][same]))
    if schedule.execution == "stages":
        pairs.append(_barrier_pairs(schedule, n))
    src, dst = (np.concatenate(column) for column in zip(*pairs, strict=True))
    _, cycle = topological_order(int(max(src.max(), dst.max())) + 1, src, dst)
    if cycle:
        texts = [_event_text(schedule, vertex, n, device) for vertex in cycle]
        raise ScheduleError(f"schedule of {graph.name!r} can never finish: {describe_cycle([*texts, texts[0]])}")


def _barrier_pairs(schedule: Plan, n: int) -> tuple[Indices, Indices]:
    """Return the pairs that barriers order; barrier k is vertex 2n + k."""
    rows = np.argsort(schedule.device, kind="stable")
    opens = barrier_before(schedule.device, schedule.stage, schedule.stream)[rows]
    device, ops = schedule.device[rows], schedule.op[rows]
    so_far = np.cumsum(opens)  # barriers up to and including this place: the number of the next one
    ahead = np.append(device[opens], -1)[so_far] == device  # an operator ends before the next barrier of its device
    src = np.concatenate([ops[ahead] + n, so_far[opens] - 1 + 2 * n])
    dst = np.concatenate([so_far[ahead] + 2 * n, ops[opens]])
    return src, dst


def _event_text(schedule: Plan, vertex: int, n: int, device: Indices) -> str:
    if vertex >= 2 * n:
        return "stage barrier"
    name = schedule.graph.names[vertex % n]
    return f"{'end' if vertex >= n else 'launch'} of {name!r} on {schedule.devices[device[vertex % n]]}"
