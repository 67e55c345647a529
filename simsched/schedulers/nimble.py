"""Nimble: chains of a least path cover on streams of their own, so that all that can run at once may."""

from collections.abc import Sequence
from typing import Annotated, Final

import numpy as np

from simsched.base.codec import Among
from simsched.base.errors import SchedulerError
from simsched.model import Cluster, CostModel, Ints, OpGraph, Schedule
from simsched.schedulers.instance import captured_schedule, place_of, reduce_edges
from simsched.schedulers.protocol import Mode

_NONE: Final = -1
_MOST_OPERATORS: Final = 100_000  # whose closure takes 600 MB
_MOST_WORK: Final = 5 * 10**10  # bits looked at, in some ten seconds
_STEP: Final = 1_000  # weight of a step of a path, in bits of its row
_BITS_AT_A_TIME: Final = 2**22


def nimble(
    graph: OpGraph,
    cluster: Cluster,
    cost: CostModel,
    *,
    mode: Mode = "paper",
    streams: Annotated[str, Among(("chains", "reuse", "dilworth"))] | None = None,
) -> Schedule:
    """Give operators that can run at once streams of their own, with the fewest waits between streams.

    Parameters
    ----------
    graph, cluster
        The graph to run, and the cluster; its first device is used.
    cost
        Time of an operator alone on a device in us: for the estimate, the assignment knows no times.
    mode
        ``"paper"``: a stream per chain, waits for the edges of the minimum equivalent graph that lead to another
        stream. ``"impl"``: chains share streams, and every edge that leads to another stream is waited for.
    streams
        ``"chains"``: one for each chain; ``"reuse"``: a chain continues in the stream of one that is over before it, by
        a second matching; ``"dilworth"``: the fewest streams that keep all possible concurrency, the width of the
        graph. None: ``"chains"`` in mode ``"paper"``, ``"reuse"`` in ``"impl"``.

    Returns
    -------
    Schedule
        A schedule with `execution="graph"`, launched in topological order, and `events="minimal"` or, in mode
        ``"impl"``, ``"literal"``; `estimate` is the list evaluation without contention. Streams are numbered by their
        first operator. `search` holds ``"chains"``, ``"matching"`` (edges matched) and ``"meg_edges"`` of the minimum
        equivalent graph, ``"streams"``, ``"waits"`` (distinct pairs of operators on two streams) and ``"syncs"`` as the
        mode counts them (in ``"impl"`` each of parallel edges).

    Raises
    ------
    SchedulerError
        If an option is none of these, or if the graph is too large.

    Notes
    -----
    Nimble [1]_, section 4.2. The e edges of the transitive reduction are matched (Hopcroft and Karp): m matched edges
    make n - m chains, and the schedule has e - m waits, the least of all schedules that let any two operators without a
    path between them run at once (theorem of its appendix). The paper prints chains as streams. Its released code has a
    second matching, of pairs of chains where one ends before the other begins, which keeps the number of waits and
    mostly, not always, reaches the width. Where it does not, ``"dilworth"`` matches the transitive closure, and may
    need more waits.

    Any maximum matching has as many chains and waits; which operators share one, and after a second matching how many
    streams there are, can depend on it. With ``mode="impl"`` both matchings follow the released code, augmenting paths
    from operator after operator (Kuhn) and from chain after chain by their ends; its numbers come from a depth-first
    search that starts from an unordered set, here they are topological. It also waits twice for parallel edges, which
    makes no difference in a captured graph: `lower` gives one wait. Nor does it matter that the released code records
    an event after every operator: `lower` records only events that are waited for.

    Reduction O(V E / 64) on bit masks with n^2 / 16 bytes; matching O(e sqrt(V)), a second one of c chains O(c^3 / 64),
    of V operators for ``"dilworth"``, and mostly far less. Graphs that would take more than about ten seconds are
    refused.

    A fork into two branches:

    >>> from simsched import Cluster, Edge, Operator, OpGraph, default_cost
    >>> fork = OpGraph([Operator(name, time=1.0) for name in "abc"], [Edge("a", "b"), Edge("a", "c")])
    >>> plan = nimble(fork, Cluster.preset("a100"), default_cost)
    >>> plan.n_streams, plan.search["syncs"], plan.estimate
    (2, 1, 2.0)

    References
    ----------
    .. [1] Kwon, Yu, Jeong, Chun, "Nimble: lightweight and parallel GPU task scheduling for deep learning",
       NeurIPS 2020, arXiv:2012.02732.
    """
    released = mode == "impl"
    streams = streams or ("reuse" if released else "chains")
    stream, chains, left = assign_streams(graph, streams, released=released)
    of_op = np.array(stream)
    if released:
        src = graph.src
        dst = graph.dst
    else:
        (src, dst) = left
    return captured_schedule(
        graph,
        cluster,
        cost,
        graph.order_index.tolist(),
        stream,
        scheduler="nimble",
        events="literal" if released else "minimal",
        search={
            "chains": chains,
            "matching": len(graph) - chains,
            "meg_edges": len(left[0]),
            "syncs": int((of_op[src] != of_op[dst]).sum()),
        },
    )


def assign_streams(graph: OpGraph, streams: str, *, released: bool = False) -> tuple[list[int], int, tuple[Ints, Ints]]:
    """Return the stream of each operator, in graph order; see `nimble`.

    Also how many chains there are, and of the edges of the minimum equivalent graph the producers and the consumers.
    """
    n = len(graph)
    order = graph.order_index
    if n > _MOST_OPERATORS or n * len(graph.src) > _MOST_WORK:
        raise SchedulerError(
            f"nimble: {n:,} operators with {len(graph.src):,} edges are too many to reduce, which takes their product; "
            f"give another scheduler, such as opara"
        )
    position = place_of(order)
    left, closed = reduce_edges(n, zip(position[graph.src].tolist(), position[graph.dst].tolist(), strict=True))
    if released:
        following = _matching_of_order([sum(1 << v for v in row) for row in left], in_turn=True)
    else:
        following = _matching(left)
    stream, ends = _chains(following)
    chains = len(ends)
    if streams != "chains":
        begins = dict(zip(reversed(stream), range(n - 1, -1, -1), strict=True))
        turns = sorted(range(chains), key=(lambda c: ends[c]) if released else None)  # as the released code counts them
        comparable = _comparable(closed, [ends[c] for c in turns], [begins[c] for c in turns])
        later, over = _chains(_matching_of_order(comparable, in_turn=released))
        of_chain = dict(zip(turns, later, strict=True))
        stream = [of_chain[c] for c in stream]
        if streams == "dilworth" and len(over) > 1:
            fewest, last = _chains(_matching_of_order(_comparable(closed, range(n), range(n))))
            if len(last) < len(over):  # else the chains, which need no more waits than they must
                stream = fewest
    number = {s: k for k, s in enumerate(dict.fromkeys(stream))}  # by their first operators
    src = np.repeat(order, [len(row) for row in left])
    dst = order[np.array([v for row in left for v in row], np.int64)]
    return [number[stream[p]] for p in position.tolist()], chains, (src, dst)


def _matching(rows: list[list[int]]) -> list[int]:
    """Return the column that each row, a list of columns, is matched to, or -1, in a maximum matching.

    Hopcroft and Karp: shortest augmenting paths, from each free row in turn to the first free column, else by way of
    the last column that is as near. No row is tried twice in a round.
    """
    n = len(rows)
    following = [_NONE] * n
    owner = [_NONE] * n
    before = [_NONE] * n
    far = n + 1
    while True:
        begins = [row for row in range(n) if following[row] == _NONE]
        level = [0 if column == _NONE else far for column in following]
        level.append(far)  # of the owner of a free column, which is _NONE
        queue = [*begins]
        for row in queue:  # which grows
            if level[row] < level[_NONE]:
                for column in rows[row]:
                    if level[owner[column]] == far:
                        level[owner[column]] = level[row] + 1
                        queue.append(owner[column])
        if level[_NONE] == far:
            return following
        for begin in begins:
            stack = [begin]
            while stack:
                row = stack.pop()
                below = level[row] + 1
                level[row] = far
                for column in rows[row]:
                    if level[owner[column]] == below:
                        if owner[column] == _NONE:
                            while column != _NONE:  # each takes the column that the next one gives up
                                owner[column] = row
                                following[row], column = column, following[row]
                                row = before[row]
                            stack.clear()
                            break
                        before[owner[column]] = row
                        stack.append(owner[column])


def _comparable(closed: list[int], lasts: Sequence[int], firsts: Sequence[int]) -> list[int]:
    """Return for each of `firsts`, as bits, the `lasts` that it leads to, but for the one of its own number."""
    n = len(closed)
    size = len(lasts)
    nbytes = -(-n // 8)
    columns = np.array(firsts) + (8 * nbytes - n)
    masks: list[int] = []
    step = max(1, _BITS_AT_A_TIME // n)
    for start in range(0, size, step):
        rows = b"".join(closed[v].to_bytes(nbytes, "big") for v in lasts[start : start + step])
        bits = np.unpackbits(np.frombuffer(rows, np.uint8).reshape(-1, nbytes), axis=1)[:, columns]
        row = np.arange(len(bits))
        bits[row, start + row] = 0
        masks += [int.from_bytes(row.tobytes(), "little") for row in np.packbits(bits, axis=1, bitorder="little")]
    return masks


def _matching_of_order(rows: list[int], *, in_turn: bool = False) -> list[int]:
    """Return the column that each row is matched to, or -1, in a maximum matching of a relation given as bits.

    Augmenting paths (Kuhn), on masks of the columns that no path has seen: O(n^3 / 64). A row tries free columns first,
    which is much quicker, or with `in_turn` its columns as they come, as the released code of Nimble does.
    """
    following = [_NONE] * len(rows)
    owner = [_NONE] * len(rows)
    free = (1 << len(rows)) - 1
    steps = 0
    for begin in range(len(rows)):
        unseen = (1 << len(rows)) - 1
        path = [begin]
        columns = [_NONE]
        while path:
            steps += 1
            if steps * (len(rows) + _STEP) > _MOST_WORK:
                raise SchedulerError(f"nimble: {len(rows):,} chains are too many to match; give streams='chains'")
            open_to = rows[path[-1]] & unseen
            if not open_to:
                path.pop()
                columns.pop()
                continue
            if not in_turn:
                open_to = open_to & free or open_to
            lowest = open_to & -open_to
            unseen ^= lowest
            columns.append(lowest.bit_length() - 1)
            if lowest & free:
                free ^= lowest
                for row, column in zip(path, columns[1:], strict=True):
                    following[row] = column
                    owner[column] = row
                break
            path.append(owner[columns[-1]])
    return following


def _chains(following: list[int]) -> tuple[list[int], list[int]]:
    """Return the chain of each vertex, numbered by their first, and the last vertex of each chain.

    Vertices are numbered topologically.
    """
    chain = [_NONE] * len(following)
    ends: list[int] = []
    for v, after in enumerate(following):
        if chain[v] == _NONE:
            chain[v] = len(ends)
            ends.append(v)
        ends[chain[v]] = v
        if after != _NONE:
            chain[after] = chain[v]
    return chain, ends
