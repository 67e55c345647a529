"""Schedules of overlaps: branches on streams of their own, and two halves of a batch by turns."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from simsched.experiments.overlap.candidates import Branch
from simsched.model import INTENSITIES, OpGraph, Schedule


def exchanging(graph: OpGraph) -> list[bool]:
    """Return of each operator whether it moves data between GPUs, and waits for the others."""
    codes, collectives = graph.labels("collective")
    link = INTENSITIES.index("link")
    return [
        collectives[code] is not None or kind == link
        for code, kind in zip(codes.tolist(), graph.intensity.tolist(), strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Side:
    """A branch on a stream of its own.

    Parameters
    ----------
    branch
        Operators that run there.
    is_early
        Whether its operators are launched as soon as all before them are, ahead of the operators beside them.
    """

    branch: Branch
    is_early: bool


def beside(graph: OpGraph, device: str, sides: Sequence[Side], execution: str) -> Schedule:
    """Return a schedule with each branch on a stream of its own, and all else on the first one.

    An operator of several branches is on the stream of the first.
    """
    order = [int(i) for i in graph.order_index]
    place = {op: k for k, op in enumerate(order)}
    stream = [0] * len(order)
    key: list[tuple[float, int, int]] = [(float(k), 0, 0) for k in range(len(order))]
    before: dict[int, int] = {}
    for src, dst in zip(graph.src.tolist(), graph.dst.tolist(), strict=True):
        before[dst] = max(before.get(dst, -1), place[src])
    for number, side in enumerate(sides, 1):
        for operators in side.branch.places:
            free = [op for op in operators if stream[place[op]] == 0]
            after = before.get(operators[0], -1)
            for i, op in enumerate(free):
                stream[place[op]] = number
                if side.is_early:
                    key[place[op]] = (after, number, i + 1)
    launched = sorted(range(len(order)), key=key.__getitem__)
    return Schedule.from_columns(
        graph,
        np.array([order[k] for k in launched], np.int64),
        [device],
        stream=np.array([stream[k] for k in launched], np.int64),
        execution=execution,
        scheduler="overlap",
    )


def by_turns(graph: OpGraph, device: str, execution: str, *, apart: bool) -> Schedule:
    """Return a schedule of parts of a batch that do not depend on each other, by turns up to the next collective.

    Parameters
    ----------
    graph
        With ``micro0``, ``micro1``, ... at the beginning of the labels of the blocks of each part.
    apart
        Whether each part has a stream of its own; else all compute on one stream, and collectives are on another.
    """
    codes, labels = graph.labels("block")
    prefixes = [(label or "").partition(".")[0] for label in labels]
    waits = exchanging(graph)
    parts: dict[str, list[list[int]]] = {}
    for op in graph.order_index.tolist():
        turns = parts.setdefault(prefixes[codes[op]], [[]])
        turns[-1].append(op)
        if waits[op]:
            turns.append([])
    launched: list[int] = []
    stream: list[int] = []
    for turn in zip_longest(*parts.values(), fillvalue=()):
        for number, members in enumerate(turn):
            launched += members
            stream += [number if apart else int(waits[op]) for op in members]
    return Schedule.from_columns(
        graph,
        np.array(launched, np.int64),
        [device],
        stream=np.array(stream, np.int64),
        execution=execution,
        scheduler="overlap",
    )
