"""Schedules at random, to calibrate on and to predict."""

from typing import Any, Final

import numpy as np

from simsched.model import Cluster, OpGraph, Schedule, operator_times
from simsched.model.graph.opgraph import longest_from
from simsched.schedulers.instance import place_of

_MOST_STREAMS: Final = 32
_EAGER_STREAMS: Final = 4  # at least, of a schedule that keeps the device full
_RANK_SPREAD: Final = 0.3  # of the error factor of such a schedule's priorities


def random_schedule(
    graph: OpGraph,
    cluster: Cluster,
    *,
    rng: np.random.Generator | int,
    streams: int | None = None,
    execution: str | None = None,
    eager: bool = False,
    name: str = "random",
) -> Schedule:
    """Return a schedule at random: a random topological order, streams and devices drawn for each operator.

    Parameters
    ----------
    streams
        Streams of each device; None draws 1 to 32, small numbers as often as large ones (evenly in their logarithm).
    execution
        None draws ``"events"``, twice as often, or ``"graph"``. ``"stages"``: up to `streams` operators that
        follow each other in the order and do not depend on each other are a stage, on the first device.

    eager
        Launch urgent operators first, as list schedulers do: by the longest path to an end, each multiplied by a random
        error, on 4 to 32 streams. Such schedules keep a device full, unlike most other random ones.

    Notes
    -----
    Unless eager each ready operator is equally likely to come next. O(V^2 + E).
    """
    rng = np.random.default_rng(rng)
    if execution is None:
        execution = ("events", "events", "graph")[rng.integers(3)]
    least = _EAGER_STREAMS if eager else 1
    if streams is None:
        n_streams = round(least * (_MOST_STREAMS / least) ** rng.random())
    else:
        n_streams = streams
    if eager:
        mistaken = np.exp(_RANK_SPREAD * rng.standard_normal(len(graph)))
        rank = longest_from(graph, operator_times(graph, cluster.devices[0]) * mistaken)
        order = np.lexsort((place_of(graph.order_index), -rank)).tolist()
    else:
        order = _random_order(graph, rng)
    devices = tuple(device.name for device in cluster.devices)
    if execution == "stages":
        stage, stream = _stages(graph, order, n_streams)
        columns: dict[str, Any] = {"stream": stream, "stage": stage, "group": stream}
    else:
        columns = {"device": rng.integers(len(cluster), size=len(order))}
        columns["stream"] = rng.integers(n_streams, size=len(order))
    return Schedule.from_columns(graph, order, devices, **columns, execution=execution, scheduler=name)


def training_schedule(graph: OpGraph, cluster: Cluster, i: int, *, rng: np.random.Generator | int) -> Schedule:
    """Return number `i` of schedules at random of all kinds by turns: every second eager, every fourth in stages."""
    if i % 4 == 2:
        return random_schedule(graph, cluster, rng=rng, execution="stages", streams=2 + i // 4 % 4)
    return random_schedule(graph, cluster, rng=rng, eager=i % 2 == 1)


def _random_order(graph: OpGraph, rng: np.random.Generator) -> list[int]:
    ptr, out = graph.outgoing
    left = np.bincount(graph.dst, minlength=len(graph))
    ready = np.flatnonzero(left == 0).tolist()
    order: list[int] = []
    while ready:
        op = ready.pop(int(rng.integers(len(ready))))
        order.append(op)
        for dst in graph.dst[out[ptr[op] : ptr[op + 1]]].tolist():
            left[dst] -= 1
            if left[dst] == 0:
                ready.append(dst)
    return order


def _stages(graph: OpGraph, order: list[int], most: int) -> tuple[list[int], list[int]]:
    """Return stage and group of each operator of an order, each group one operator."""
    stages: dict[int, int] = {}
    groups = []
    stage = 0
    members = 0
    ptr, into = graph.incoming
    for op in order:
        depends = any(stages[src] == stage for src in graph.src[into[ptr[op] : ptr[op + 1]]].tolist())
        if members == most or depends:
            stage = stage + 1
            members = 0
        stages[op] = stage
        groups.append(members)
        members += 1
    return [*stages.values()], groups
