"""Section: operators alone, by kind and shape: cold, after L2 was flushed, and warm, ten in a captured graph."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from hwbackend.contact.measure import in_turns
from hwbackend.contact.sections.item import Bench, ContactItem, Json
from simsched.model import Operator, OpGraph, Placement, Schedule
from workloads.models.network import Network

Build = Callable[[Network], object]

_ROW: Final = 10  # operators of the graph that measures them warm
_FLUSHES: Final = 3  # operators that are measured cold, each after the cache was flushed
_FLUSHED: Final = 3  # times the bytes of L2 that a flush moves
_READ_AND_WRITTEN: Final = 8  # bytes of an element of fp32
_SECONDS: Final = 0.4


def _linear(rows: int, inputs: int, outputs: int) -> Build:
    return lambda net: net.linear("op", net.input(rows, inputs), outputs, activation=None)


def _conv(batch: int, inputs: int, size: int, outputs: int, window: int, **options: Any) -> Build:
    return lambda net: net.conv("op", net.input(batch, inputs, size, size), outputs, window, activation=None, **options)


def _elementwise(count: int) -> Build:
    return lambda net: net.activation("op", net.input(count))


def _rows(kind: str, rows: int, length: int) -> Build:
    if kind == "softmax":
        return lambda net: net.softmax("op", net.input(rows, length))
    return lambda net: net.layer_norm("op", net.input(rows, length))


def _attention(heads: int, rows: int, columns: int) -> Build:
    return lambda net: net.matmul("op", net.input(heads, rows, columns), net.input(heads, columns, rows))


SHAPES: Final[Mapping[str, Mapping[str, Build]]] = {
    "linear": {
        f"{rows}x{inputs}x{outputs}": _linear(rows, inputs, outputs)
        for inputs, outputs in ((512, 2048), (1024, 1024), (4096, 4096), (768, 3072), (2048, 512), (4096, 11008))
        for rows in (1, 16, 128, 512, 2048)
    },
    "conv": {
        f"{batch}x{inputs}x{size}-{outputs}k{window}": _conv(batch, inputs, size, outputs, window, padding=window // 2)
        for inputs, size, outputs, window in (
            (64, 56, 64, 3),
            (64, 56, 256, 1),
            (192, 35, 64, 1),
            (128, 28, 128, 3),
            (48, 35, 64, 5),
            (256, 14, 256, 3),
            (512, 7, 512, 3),
            (1024, 14, 256, 1),
        )
        for batch in (1, 16)
    },
    "depthwise": {
        f"{channels}x{size}k{window}": _conv(1, channels, size, channels, window, padding=window // 2, groups=channels)
        for channels, size, window in ((32, 112, 3), (144, 56, 3), (336, 21, 5), (672, 14, 5))
    },
    "elementwise": {f"2^{power}": _elementwise(2**power) for power in (12, 16, 18, 20, 22, 24, 26)},
    "softmax": {f"{rows}x{n}": _rows("softmax", rows, n) for rows, n in ((1, 5000), (128, 1000), (4096, 4096))},
    "norm": {f"{rows}x{n}": _rows("norm", rows, n) for rows, n in ((1, 5120), (64, 768), (4096, 1024))},
    "attention": {f"{h}x{n}x{d}": _attention(h, n, d) for h, n, d in ((12, 77, 64), (16, 512, 64), (32, 1024, 128))},
}
"""Operators by kind and shape."""


def solo_items(most: int) -> list[ContactItem]:
    """Return an item for each operator, at most so many of a kind; kinds take turns, as time may end the section."""
    columns = [[(kind, shape) for shape in list(shapes)[:most]] for kind, shapes in SHAPES.items()]
    longest = max(map(len, columns))
    rows = [column[i] for i in range(longest) for column in columns if i < len(column)]
    return [
        ContactItem(f"solo/{kind}/{shape}", 1.5 * _SECONDS, partial(_measure, kind=kind, shape=shape))
        for kind, shape in rows
    ]


def solo_operator(kind: str, shape: str) -> OpGraph:
    """Return the graph of one operator."""
    net = Network(f"{kind}/{shape}")
    SHAPES[kind][shape](net)
    return net.graph()


def _measure(bench: Bench, kind: str, shape: str) -> Json:
    op = solo_operator(kind, shape).operator(0)

    def row(count: int) -> Schedule:
        return _in_a_row(bench, [replace(op, name=f"op#{i}") for i in range(count)], f"warm/{count}")

    flush = Network("flush")
    flush.activation("op", flush.input(int(_FLUSHED * bench.device.cluster.devices[0].l2 / _READ_AND_WRITTEN)))
    flushing = flush.graph().operator(0)
    mixed = [
        replace(one, name=f"{name}{i}") for i in range(_FLUSHES) for name, one in (("flush", flushing), ("op", op))
    ]
    plans = [row(1), row(_ROW), _in_a_row(bench, mixed, "cold")]
    return in_turns(bench.device, plans, _SECONDS) | {"kind": kind, "shape": shape}


def _in_a_row(bench: Bench, operators: list[Operator], name: str) -> Schedule:
    """Return the captured schedule of operators one after the other on a stream; none reads from another."""
    graph = bench.device.backend.realise(OpGraph(operators, [], name))
    device = bench.device.cluster.devices[0].name
    return Schedule(graph, [Placement(one, device) for one in graph.names], "graph", scheduler=name)
