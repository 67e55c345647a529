"""The inter-GPU half of HIOS-LP: longest paths onto devices."""

import numpy as np

from simsched.cluster import Cluster
from simsched.costmodel import CostModel, times_by_device, transfer_times
from simsched.graph import OpGraph
from simsched.schedulers.listing import Neighbours, by_falling_rank, upward_rank, weighted_readers, weighted_sources
from simsched.schedules import Schedule

_NONE = -1


def inter_lp(graph: OpGraph, cluster: Cluster, cost: CostModel) -> Schedule:
    """Map the longest path of what is left onto the device that gives the least latency, until all is mapped.

    Parameters
    ----------
    graph, cluster
        What to run, and on what.
    cost
        Time of an operator alone on a device, in us.

    Returns
    -------
    Schedule
        One operator per stage, `execution="stages"`; `estimate` is the makespan of the list schedule
        below, without launch, synchronisation and contention.

    Notes
    -----
    HIOS [1]_, Algorithm 1 (HIOS-LP) without Algorithm 2. A path is valid if only its first operator reads
    from mapped ones and only its last is read by them; its length counts operators, the edges between
    them, and the longest edge to the mapped part at either end. The longest is found by a dynamic
    program with two states (first operator or not), O(V + E), where the paper says O(V^2 E). Each
    device is tried: mapped operators in falling priority (longest path to an output, transfers
    included), each behind the one before it on its device. O(paths x devices x (V + E)) in all.

    Ties: priorities by topological position; equal paths by the first operator in graph order, and so
    on along the path; equal latencies to the lowest device, the first path to device 0. On unequal
    devices priorities use the mean time over devices. The released code peels edges rather than
    operators, does not enforce validity, and evaluates with the clock of a device instead of finish
    times; the algorithm as printed is followed.

    References
    ----------
    .. [1] "HIOS: Hierarchical Inter-Operator Scheduler for Real-Time Inference of DAG-Structured Deep
       Learning Models on Multiple GPUs", IEEE CLUSTER 2023.
    """
    columns = times_by_device(graph, cluster, cost)
    times = [column.tolist() for column in columns]
    mean = np.mean(columns, axis=0)
    transfer = transfer_times(graph, cluster)
    order = by_falling_rank(graph, upward_rank(graph, mean, transfer))
    producers, consumers = weighted_sources(graph, transfer), weighted_readers(graph, transfer)
    topological = graph.order_index.tolist()
    device = [_NONE] * len(graph)
    left = len(graph)
    latency = 0.0
    while left:
        path = _longest_valid_path(topological, mean.tolist(), producers, consumers, device)
        best = (float("inf"), 0)
        for candidate in range(len(cluster) if left < len(graph) else 1):
            for i in path:
                device[i] = candidate
            best = min(best, (_latency(order, times, producers, device, len(cluster)), candidate))
        latency = best[0]
        for i in path:
            device[i] = best[1]
        left -= len(path)
    return Schedule.from_columns(
        graph,
        order,
        [d.name for d in cluster.devices],
        device=[device[i] for i in order],
        stage=_stages(order, device, len(cluster)),
        execution="stages",
        estimate=latency,
        scheduler="inter-lp",
    )


def _longest_valid_path(
    topological: list[int], weight: list[float], producers: Neighbours, consumers: Neighbours, device: list[int]
) -> list[int]:
    """Return the operators of the longest valid path among those not mapped yet."""
    n = len(device)
    onward = [0.0] * n  # length from the operator to the end of its best path, itself included
    following = [_NONE] * n
    best, first = -1.0, _NONE
    for i in reversed(topological):
        if device[i] != _NONE:
            continue
        tail = head = 0.0
        last_only = first_only = False
        for j, us in consumers[i]:
            if device[j] != _NONE:
                last_only = True
                tail = max(tail, us)
        onward[i], following[i] = weight[i] + tail, _NONE
        if not last_only:
            for j, us in consumers[i]:
                if onward[j] > 0 and weight[i] + us + onward[j] > onward[i]:
                    onward[i], following[i] = weight[i] + us + onward[j], j
        for j, us in producers[i]:
            if device[j] != _NONE:
                first_only = True
                head = max(head, us)
        whole = head + onward[i]
        if whole > best or (whole == best and i < first):
            best, first = whole, i
        if first_only:
            onward[i] = 0.0  # nothing may lead to it
    path = []
    while first != _NONE:
        path.append(first)
        first = following[first]
    return path


def _latency(
    order: list[int], times: list[list[float]], producers: Neighbours, device: list[int], n_devices: int
) -> float:
    """Return the makespan of the mapped operators, listed in order, each behind the last on its device."""
    free = [0.0] * n_devices
    finish = [0.0] * len(device)
    for i in order:
        d = device[i]
        if d == _NONE:
            continue
        start = free[d]
        for j, us in producers[i]:
            if device[j] != _NONE:
                there = finish[j] + (us if device[j] != d else 0.0)
                if there > start:
                    start = there
        finish[i] = free[d] = start + times[d][i]
    return max(free)


def _stages(order: list[int], device: list[int], n_devices: int) -> list[int]:
    """Return the place of each operator on its device, in launch order."""
    count = [0] * n_devices
    stages = []
    for i in order:
        stages.append(count[device[i]])
        count[device[i]] += 1
    return stages
