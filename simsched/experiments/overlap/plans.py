"""Schedules of overlaps: branches on streams of their own, and two halves of a batch by turns."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simsched.experiments.overlap.candidates import Branch
from simsched.model import OpGraph, Schedule

COLLECTIVE = "link"
"""Intensity of operators that wait for other GPUs."""


@dataclass(frozen=True, slots=True)
class Side:
    """A branch on a stream of its own.

    Parameters
    ----------
    branch
        What runs there.
    is_early
        Whether its operators are launched as soon as all before them are, ahead of what runs beside them.
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
    """Return a schedule of two halves that do not depend on each other, by turns from one collective to the next.

    Parameters
    ----------
    graph
        With the blocks of each half named ``half0...`` and ``half1...``.
    apart
        Whether each half has a stream of its own; else both compute on one stream, and collectives are on another.
    """
    order = [int(i) for i in graph.order_index]
    operators = graph.operators
    turns: list[list[list[int]]] = [[[]], [[]]]
    for op in order:
        half = turns[(operators[op].block or "").startswith("half1")]
        half[-1].append(op)
        if operators[op].intensity == COLLECTIVE:
            half.append([])
    first, second = turns
    longest = max(len(first), len(second))
    launched: list[int] = []
    stream: list[int] = []
    for k in range(longest):
        for number, half in enumerate((first, second)):
            for op in half[k] if k < len(half) else ():
                launched.append(op)
                is_collective = operators[op].intensity == COLLECTIVE
                stream.append(number if apart else int(is_collective))
    return Schedule.from_columns(
        graph,
        np.array(launched, np.int64),
        [device],
        stream=np.array(stream, np.int64),
        execution=execution,
        scheduler="overlap",
    )
