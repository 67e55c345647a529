"""What the pictures of a graph or schedule say, whichever format they are written in."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from simsched.base.errors import GraphError
from simsched.base.units import format_bytes, format_time
from simsched.model.graph import Operator, OpGraph
from simsched.model.graph.columns import Ints
from simsched.model.schedule import Schedule
from simsched.show.drawing.layout import check_size, unique_pairs
from simsched.show.drawing.style import OTHER, paint, printable
from simsched.show.figure import PALETTE

_SEPARATORS = "./:_-"
_MOST_SHOWN: Final = 12  # entries of a legend


class Box(NamedTuple):
    """What is said about an operator."""

    name: str
    short: str
    """The name without the label of its block."""
    detail: str
    """Kind, and output shape or time, or where it runs."""
    fill: str
    badge: str
    """Number of its stage, or nothing."""
    tooltip: str


class Line(NamedTuple):
    """What is said about an edge; parallel edges are one line."""

    src: int
    dst: int
    crosses: bool
    """Between two devices."""
    tooltip: str


class Picture(NamedTuple):
    """What is said about a graph or schedule."""

    title: str
    subtitle: str
    boxes: list[Box]
    lines: list[Line]
    legend: list[tuple[str, str]]
    """Fill and meaning."""
    blocks: dict[str, list[int]]
    """Operators by the label of their block."""
    stage: Ints | None
    """Of each operator, shape (n_ops,), if stages follow each other; then they are drawn as bands."""
    staged: bool
    """Whether operators have stages, as bands or not."""


def describe(shown: OpGraph | Schedule) -> Picture:
    """Return what is to be said about a graph or schedule.

    Raises
    ------
    GraphError
        If it has more operators than pictures are drawn of, or is neither of them.
    """
    if not isinstance(shown, OpGraph | Schedule):
        raise GraphError(f"pictures are drawn of graphs and schedules, not of {type(shown).__name__}")
    graph = shown.graph if isinstance(shown, Schedule) else shown
    check_size(graph)
    plan = _Plan(shown) if isinstance(shown, Schedule) else None
    operators = list(graph.operators)
    fills, legend = _kinds(operators) if plan is None else plan.colours()
    boxes = [
        Box(
            name=printable(op.name),
            short=printable(_without_block(op)),
            detail=_detail(op, plan, i),
            fill=fills[i],
            badge=str(plan.stage[i]) if plan is not None and plan.staged else "",
            tooltip=_tooltip(op, plan, i),
        )
        for i, op in enumerate(operators)
    ]
    blocks: dict[str, list[int]] = {}
    for i, op in enumerate(operators):
        if op.block is not None:
            blocks.setdefault(op.block, []).append(i)
    title = printable(graph.name) if plan is None else f"{printable(graph.name)} by {printable(plan.scheduler)}"
    subtitle = _counted(len(graph), "operator") + ", " + _counted(len(graph.src), "edge")
    if plan is not None:
        subtitle += f", {plan.summary}"
    staged = plan is not None and plan.staged
    stage = plan.bands(graph) if plan is not None and staged else None
    return Picture(title, subtitle, boxes, _lines(graph, boxes, plan), legend, blocks, stage, staged)


class _Plan:
    """A schedule by operator instead of by launch."""

    def __init__(self, schedule: Schedule) -> None:
        n = len(schedule)
        self.device, self.stream = np.empty(n, np.int64), np.empty(n, np.int64)
        self.stage, self.group = np.empty(n, np.int64), np.empty(n, np.int64)
        for key in ("device", "stream", "stage", "group"):
            getattr(self, key)[schedule.op] = getattr(schedule, key)
        self.devices = [printable(name) for name in schedule.devices]
        self.used = np.flatnonzero(np.bincount(self.device)).tolist()
        self.scheduler = schedule.scheduler
        self.staged = schedule.execution == "stages"
        self.summary = f"{_counted(schedule.n_streams, 'stream')} on {_counted(len(self.used), 'device')}"
        if self.staged:
            stages = np.unique(np.stack([self.device, self.stage]), axis=1).shape[1]
            self.summary += f", {_counted(stages, 'stage')}"
        if schedule.estimate is not None:
            self.summary += f", estimate {format_time(schedule.estimate)}"

    def place(self, i: int) -> str:
        """Return where operator i runs."""
        stream = f"stream {self.stream[i]}"
        return stream if len(self.used) == 1 else f"{self.devices[self.device[i]]} {stream}"

    def colours(self) -> tuple[list[str], list[tuple[str, str]]]:
        """Return the fill of each operator, and the legend: streams of one device differ in hue, devices too."""
        keys = np.stack([self.device, self.stream], axis=1)
        _, first, lane = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        lane = lane.reshape(-1)
        rank = {device: i for i, device in enumerate(self.used)}
        several = len(self.used) > 1
        begins: dict[int, int] = {}
        fills = []
        for number, i in enumerate(first.tolist()):
            device = int(self.device[i])
            turn = number - begins.setdefault(device, number)
            fills.append(paint(rank[device], turn) if several else paint(turn, turn // len(PALETTE)))
        counts = np.bincount(lane).tolist()
        named = [(fills[k], f"{self.place(i)} ({counts[k]})") for k, i in enumerate(first.tolist())]
        if len(named) > _MOST_SHOWN:
            named = [*named[:_MOST_SHOWN], ("#ffffff", f"and {len(named) - _MOST_SHOWN} more")]
        return [fills[k] for k in lane.tolist()], named

    def bands(self, graph: OpGraph) -> Ints | None:
        """Return stages numbered from 0 without gaps, or None if an edge leads to an earlier one."""
        if (self.stage[graph.src] > self.stage[graph.dst]).any():
            return None
        return np.unique(self.stage, return_inverse=True)[1].astype(np.int64)


def _kinds(operators: Sequence[Operator]) -> tuple[list[str], list[tuple[str, str]]]:
    """Return fills by kind, and the legend: colours go to the kinds that the graph has most of, as in charts."""
    counts: dict[str, int] = {}
    for op in operators:
        counts[op.kind] = counts.get(op.kind, 0) + 1
    ranked = sorted(counts, key=lambda kind: -counts[kind])
    colours = {kind: paint(i) if i < len(PALETTE) else OTHER for i, kind in enumerate(ranked)}
    legend = [(colours[kind], f"{printable(kind)} ({counts[kind]})") for kind in ranked[: len(PALETTE)]]
    if len(ranked) > len(PALETTE):
        legend.append((OTHER, f"other ({sum(counts[kind] for kind in ranked[len(PALETTE) :])})"))
    return [colours[op.kind] for op in operators], legend


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _without_block(op: Operator) -> str:
    if op.block is not None and op.name.startswith(op.block):
        rest = op.name[len(op.block) :].lstrip(_SEPARATORS)
        if rest and (op.name[len(op.block)] in _SEPARATORS or op.block[-1] in _SEPARATORS):
            return rest
    return op.name


def _shape(shape: tuple[int, ...]) -> str:
    return "\u00d7".join(map(str, shape)) or "scalar"


def _detail(op: Operator, plan: _Plan | None, i: int) -> str:
    parts = [printable(op.kind)]
    if plan is not None:
        parts.append(plan.place(i))
    elif op.output_shape is not None:
        parts.append(_shape(op.output_shape))
    elif op.time is not None:
        parts.append(format_time(op.time))
    return " \u00b7 ".join(parts)


def _tooltip(op: Operator, plan: _Plan | None, i: int) -> str:
    lines = [printable(op.name), f"kind: {printable(op.kind)}"]
    if op.block is not None:
        lines.append(f"block: {printable(op.block)}")
    if plan is not None:
        lines.append(f"runs on: {plan.devices[plan.device[i]]}, stream {plan.stream[i]}")
        if plan.staged:
            lines.append(f"stage: {plan.stage[i]}, group {plan.group[i]}")
    if op.input_shapes:
        lines.append(f"inputs: {', '.join(_shape(shape) for shape in op.input_shapes[:8])}")
    if op.output_shape is not None:
        lines.append(f"output: {_shape(op.output_shape)} {op.dtype}")
    if op.time is not None:
        lines.append(f"time: {format_time(op.time)}")
    if op.flops:
        lines.append(f"work: {op.flops / 1e6:,.4g} MFLOP")
    if op.weight_nbytes:
        lines.append(f"weights: {format_bytes(op.weight_nbytes)}")
    return "\n".join(lines)


def _lines(graph: OpGraph, boxes: list[Box], plan: _Plan | None) -> list[Line]:
    pairs = unique_pairs(graph).tolist()
    total = {(u, v): [0, 0.0] for u, v in pairs}
    for u, v, nbytes in zip(graph.src.tolist(), graph.dst.tolist(), graph.edge_nbytes.tolist(), strict=True):
        total[u, v][0] += 1
        total[u, v][1] += nbytes
    found = []
    for u, v in pairs:
        count, nbytes = total[u, v]
        crosses = plan is not None and bool(plan.device[u] != plan.device[v])
        text = f"{boxes[u].name} \u2192 {boxes[v].name}\n{format_bytes(nbytes)}"
        if count > 1:
            text += f" in {count:.0f} tensors"
        if crosses and plan is not None:
            text += f"\nfrom {plan.devices[plan.device[u]]} to {plan.devices[plan.device[v]]}"
        found.append(Line(u, v, crosses, text))
    return found
