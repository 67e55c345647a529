"""What the pictures of a graph or schedule say, whichever format they are written in."""

from collections import Counter
from typing import Final, NamedTuple

import numpy as np

from simsched.base.errors import GraphError
from simsched.base.numeric import grouped
from simsched.base.units import format_bytes, format_time
from simsched.model import Indices, Ints, Operator, OpGraph, Schedule
from simsched.show.looks import PALETTE, kind_colours, paint, tinted
from simsched.show.svg import printable

LARGEST: Final = 10_000
"""Operators up to which a graph is drawn."""
_LISTED: Final = 12  # streams in the legend


class Box(NamedTuple):
    """What is said about an operator."""

    name: str
    detail: str
    """Kind, and output shape or time, or where it runs."""
    fill: str
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
    groups: dict[str, list[int]]
    """Operators by stage where stages follow each other, else by device, or by block of the model."""
    stage: Ints | None
    """Of each operator, shape (n_ops,), if stages follow each other; then they are drawn as bands."""


def describe(shown: OpGraph | Schedule) -> Picture:
    """Return what is to be said about a graph or schedule.

    Raises
    ------
    GraphError
        If it has more operators than pictures are drawn of.
    """
    graph = shown.graph if isinstance(shown, Schedule) else shown
    if len(graph) > LARGEST:
        raise GraphError(f"graph {graph.name!r} has {len(graph)} operators: pictures are drawn of up to {LARGEST:,}")
    counts = f"{_counted(len(graph), 'operator')}, {_counted(len(graph.src), 'edge')}"
    if isinstance(shown, Schedule):
        return _of_schedule(shown, counts)
    colour, kinds = kind_colours(graph)
    boxes = [_box(op, _size(op), paint(code)) for op, code in zip(graph.operators, colour.tolist(), strict=True)]
    number = np.bincount(colour)
    legend = [(paint(code), f"{printable(kind)} ({number[code]})") for code, kind in enumerate(kinds)]
    groups = grouped((op.block, i) for i, op in enumerate(graph.operators) if op.block is not None)
    return Picture(printable(graph.name), counts, boxes, _lines(graph, boxes), legend, groups, None)


def _of_schedule(plan: Schedule, counts: str) -> Picture:
    graph, several = plan.graph, len(plan.devices_used) > 1
    by_operator = np.argsort(plan.op)
    device, stream, stage = plan.device[by_operator], plan.stream[by_operator], plan.stage[by_operator]
    lane = list(zip(device.tolist(), stream.tolist(), strict=True))
    fills: dict[tuple[int, int], str] = {}
    tints: Counter[int] = Counter()
    for d, s in sorted(set(lane)):  # a hue for each device, or for each stream of the only one
        fills[d, s] = tinted(d, tints[d]) if several else tinted(tints[d], tints[d] // len(PALETTE))
        tints[d] += 1
    names = [printable(name) for name in plan.devices]
    where = {(d, s): f"{names[d]} stream {s}" if several else f"stream {s}" for d, s in fills}
    staged = plan.execution == "stages"
    banded = staged and bool((stage[graph.src] <= stage[graph.dst]).all())
    stages = [f"stage {k}" for k in stage.tolist()]
    boxes = []
    for op, at, numbered in zip(graph.operators, lane, stages, strict=True):
        detail = where[at] if banded or not staged else f"{where[at]} \u00b7 {numbered}"
        tooltip = f"runs on: {names[at[0]]} stream {at[1]}{f', {numbered}' if staged else ''}"
        boxes.append(_box(op, detail, fills[at], tooltip))
    number = Counter(lane)
    legend = [(fills[at], f"{where[at]} ({number[at]})") for at in list(fills)[:_LISTED]]
    if len(fills) > _LISTED:
        legend.append(("none", f"and {len(fills) - _LISTED} more"))
    lines = _lines(graph, boxes, device)
    if any(line.crosses for line in lines):
        legend.append(("none", "dashed: between devices"))
    subtitle = f"{counts}, {_counted(len(fills), 'stream')} on {_counted(len(plan.devices_used), 'device')}"
    if staged:
        subtitle += f", {_counted(len(set(zip(device.tolist(), stages, strict=True))), 'stage')}"
    if plan.estimate is not None:
        subtitle += f", estimate {format_time(plan.estimate)}"
    title = f"{printable(graph.name)} by {printable(plan.scheduler)}"
    groups = grouped((label, i) for i, label in enumerate(stages if banded else [names[d] for d, _ in lane]))
    return Picture(title, subtitle, boxes, lines, legend, groups, stage if banded else None)


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _size(op: Operator) -> str:
    if op.output_shape is not None:
        return "\u00d7".join(map(str, op.output_shape)) or "scalar"
    return "" if op.time is None else format_time(op.time)


def _box(op: Operator, detail: str, fill: str, *where: str) -> Box:
    name, kind = printable(op.name), printable(op.kind)
    said = {
        "block": op.block and printable(op.block),
        "output": op.output_shape is not None and f"{_size(op)} {op.dtype}",
        "time": op.time is not None and format_time(op.time),
        "work": op.flops and f"{op.flops / 1e6:,.4g} MFLOP",
        "weights": op.weight_nbytes and format_bytes(op.weight_nbytes),
    }
    lines = [name, f"kind: {kind}", *where, *(f"{key}: {text}" for key, text in said.items() if text)]
    return Box(name, f"{kind} \u00b7 {detail}" if detail else kind, fill, "\n".join(lines))


def _lines(graph: OpGraph, boxes: list[Box], device: Indices | None = None) -> list[Line]:
    ends = zip(graph.src.tolist(), graph.dst.tolist(), strict=True)
    sizes = grouped(zip(ends, graph.edge_nbytes.tolist(), strict=True))
    found = []
    for (u, v), tensors in sizes.items():
        crosses = device is not None and bool(device[u] != device[v])
        text = f"{boxes[u].name} \u2192 {boxes[v].name}\n{format_bytes(sum(tensors))}"
        if len(tensors) > 1:
            text += f" in {len(tensors)} tensors"
        found.append(Line(u, v, crosses, text))
    return found
