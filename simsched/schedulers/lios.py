"""LIOS: list scheduling of the slowest ready operator onto the stream where it ends first, and its random variants."""

from typing import Annotated, Any

import numpy as np

from simsched.base.codec import Among, Size
from simsched.model import Cluster, CostModel, OpGraph, Schedule
from simsched.schedulers.list_scheduling import Draft
from simsched.schedulers.protocol import Rng

Key = Annotated[str, Among(("time", "upward"))]


def lios(
    graph: OpGraph, cluster: Cluster, cost: CostModel, *, streams: Size = 8, rank: Key = "time", overheads: bool = False
) -> Schedule:
    """Place the ready operator of highest rank on the stream where it finishes first.

    Parameters
    ----------
    graph, cluster
        The graph to run, and the cluster; its first device is used.
    cost
        Time of an operator alone on a device, in us.
    streams
        Streams of the device.
    rank
        ``"time"``: an operator's time, as in the paper. ``"upward"``: the longest path from it to an output, itself
        included, so that operators with long chains of readers come first (ours).
    overheads
        Whether launches and events enter the finish times (ours; the paper leaves them out and loses to one stream on
        SqueezeNet). One host thread issues the operators in the order of placement: for each a `wait` per producer on
        another stream, a `record` for each of those producers that no operator has waited for yet, then a `launch` per
        kernel. An operator starts when its first kernel has been issued, a `gap` after the operator before it on its
        stream, and a `hop` after those that it waits for; it ends no earlier than its last kernel has been issued.

    Returns
    -------
    Schedule
        A schedule with `execution="events"`, launched in the order of placement; `estimate` is the makespan without
        contention, and, unless `overheads` is set, without launch and synchronisation.

    Raises
    ------
    SchedulerError
        If `streams` is not a whole number of at least 1, another option has a value that is not listed above, or the
        times add up to infinity.

    Notes
    -----
    LIOS [1]_, Algorithm 1; an operator starts after the one before it on its stream (no insertion). On equal ranks the
    operator that was released first comes first (operators released together: in graph order); on equal finish times
    the lowest stream. Line 11 of the printed algorithm exchanges start and finish times; Definition 6 is followed. A
    heap makes it O(V (log V + streams) + E), in native code, instead of the paper's O(streams V^2).

    References
    ----------
    .. [1] Ping, Jiang, Liu, Zhao, Zhou, Chen, "Latency-based inter-operator scheduling for CNN inference
       acceleration on GPU", IEEE Transactions on Services Computing, 2024, doi:10.1109/TSC.2023.3345952.

    Examples
    --------
    >>> graph = OpGraph.from_columns(["a", "b", "c"], [], [], time=[2.0, 3.0, 2.0])
    >>> plan = lios(graph, Cluster.preset("a100"), lambda op, device: op.time, streams=2)
    >>> plan.estimate, [(row.op, row.stream) for row in plan.placements]
    (4.0, [('b', 0), ('a', 1), ('c', 1)])
    """
    return _lios("lios", graph, cluster, cost, streams, overheads, rank=rank)


def lios_rand1(
    graph: OpGraph, cluster: Cluster, cost: CostModel, *, streams: Size = 8, overheads: bool = False, rng: Rng = 0
) -> Schedule:
    """Place any ready operator, on the stream where it finishes first: `lios` without its ranks.

    Parameters
    ----------
    graph, cluster, cost, streams, overheads
        As in `lios`.
    rng
        Generator, or the seed of one; 0 unless given, so that the name alone always gives the same schedule.

    Returns
    -------
    Schedule
        As of `lios`.

    Raises
    ------
    SchedulerError
        As by `lios`, and if `rng` is neither a generator nor a seed.

    Notes
    -----
    For the ablation of LIOS (see `lios`): rand1 chooses the operator at random, rand2 the stream, rand both. These
    meanings of the names are our reading, as the text of the ablation was not at hand. All ready operators are equally
    likely.
    """
    return _lios("lios-rand1", graph, cluster, cost, streams, overheads, rng=rng, random=("draw_op",))


def lios_rand2(
    graph: OpGraph,
    cluster: Cluster,
    cost: CostModel,
    *,
    streams: Size = 8,
    rank: Key = "time",
    overheads: bool = False,
    rng: Rng = 0,
) -> Schedule:
    """Place the ready operator of highest rank on any stream: `lios` without its finish times.

    Parameters, errors and notes are as in `lios` and `lios_rand1`; all streams are equally likely, or with more streams
    than operators as many streams as operators.
    """
    return _lios("lios-rand2", graph, cluster, cost, streams, overheads, rank=rank, rng=rng, random=("draw_stream",))


def lios_rand(
    graph: OpGraph, cluster: Cluster, cost: CostModel, *, streams: Size = 8, overheads: bool = False, rng: Rng = 0
) -> Schedule:
    """Place any ready operator on any stream.

    Parameters, errors and notes are as in `lios_rand1`; all ready operators and all streams are equally likely, as in
    `lios_rand2`.
    """
    return _lios("lios-rand", graph, cluster, cost, streams, overheads, rng=rng, random=("draw_op", "draw_stream"))


def _lios(
    scheduler: str,
    graph: OpGraph,
    cluster: Cluster,
    cost: CostModel,
    streams: int,
    overheads: bool,
    *,
    rank: str = "time",
    rng: Rng = 0,
    random: tuple[str, ...] = (),
) -> Schedule:
    """Place all operators; `random` names the choice that `Draft.place` makes at random."""
    if len(cluster) == 1:
        first = cluster
    else:
        first = Cluster(cluster.devices[:1])
    draft = Draft(scheduler, graph, first, cost, streams)
    drawn: dict[str, Any] = dict(zip(random, np.random.default_rng(rng).random((len(random), len(graph))), strict=True))
    if rank == "time":
        rank_of = draft.mean_time
    else:
        rank_of = draft.upward_rank()
    return draft.schedule(draft.place(rank_of, in_turn=True, overheads=overheads, **drawn))
