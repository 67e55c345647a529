"""Single operators to schedule units: the work of importers at granularity "unit".

`fuse` takes a graph of single operators, as an importer makes it, and returns the graph of units that a runtime
launches. It follows `workloads.models.network.Network` at granularity "unit". An importer provides:

*   The kinds of `Network` ("conv", "linear", "matmul", "add", "batch_norm", "relu", ...), `output_shape` where
    known, and an operand that is a weight counted in `weight_nbytes` and read over no edge.
*   An operator that launches nothing (a reshape, a dropout in inference, a part of a tuple) has no works, kernels, FLOP
    and bytes, and ``time=0.0``.
*   One edge per tensor read. An edge of 0 bytes says that only a size was read.
*   An operator of kind "output" reads the results of the network, and one of kind "placeholder" writes its inputs
    (see `IO_KINDS`). Without them a tensor that is both returned and read by one operator inside looks as if it were
    only read inside. `without_io` removes them afterwards.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from typing import Final, NamedTuple

from simsched.base.errors import GraphError
from simsched.model.graph import DTYPE_NBYTES, Edge, Operator, OpGraph, Work
from workloads.costs import ACTIVATION_FLOPS, nbytes_of, of_one_model

IO_KINDS: Final = ("placeholder", "output")
"""Kinds of the vertices of a network's inputs and results; `fuse` leaves them alone."""

SIZE: Final = "size"
"""Kind of operators that compute sizes, on the host: `fuse` without ends, and `without_io`, leave them out."""

_PRODUCTS: Final = ("conv", "conv_transpose", "linear", "matmul")
_HEADS: Final = (*_PRODUCTS, "add", "mul")  # the last two take an activation and nothing else
_CHANNEL_AXIS: Final = {"conv": 1, "conv_transpose": 1}


def fuse(graph: OpGraph, *, io: bool = True) -> OpGraph:
    """Return the graph with views left out and chains of operators that one kernel can do made one operator.

    Views (no work, no kernel, no FLOP, no bytes, time 0, read from at most one operator) go first: a reader of a view
    reads the source of the view, the same number of bytes. Then a convolution or matrix product takes in sums with a
    bias and batch normalisations that follow, and at last an activation, and a sum or product of elements an
    activation, as long as each intermediate tensor is read exactly once.

    A unit has the name, place, kind, FLOP, works, kernels, intensity and attributes of its first operator, plus
    ``attributes["activation"]``; the shape and format of its last; as bytes the inputs and weights of the first and
    the output of the last. Sums and normalisations become one bias per channel, if there was none yet; no kernel of
    its own adds it. Times, where all have one, add up. Without `io`, the vertices of `IO_KINDS` go last, as
    `without_io` takes them out.

    Raises
    ------
    GraphError
        If nothing is left.

    Notes
    -----
    A sum counts as a bias if it reads one tensor and no more weights than one per channel. A normalisation is
    folded only into an operator with weights. Convolutions have their channels on axis 1, other products on the last.
    O(V + E), operators and edges in the order given.

    Examples
    --------
    >>> from workloads.models.network import Network
    >>> net = Network("net", granularity="operator")
    >>> wide = net.conv("wide", net.input(1, 3, 8, 8), 16, 3, norm=True)
    >>> flat = net.view("flat", wide, (1, 576))
    >>> fuse(net.graph()).names, net.graph().names
    (('wide',), ('wide', 'wide.norm', 'wide.relu', 'flat'))
    """
    rows = _folded_chains(_without_views(_rows(graph)), _can_take_in, _without_bias_kernel)
    return of_one_model((rows if io else _without_io(rows)).graph())


def with_biases(graph: OpGraph) -> OpGraph:
    """Return the graph with each sum of a linear layer and its bias made one operator, and without `IO_KINDS`.

    Exporters write a linear layer over sequences as a product and a sum; a library's product adds the bias itself.

    Raises
    ------
    GraphError
        If nothing is left.
    """
    return _without_io(_folded_chains(_rows(graph), _is_bias_of_linear, _with_bias)).graph()


def without_io(graph: OpGraph) -> OpGraph:
    """Return the graph without the vertices of `IO_KINDS`, vertices of kind `SIZE`, and their edges.

    Raises
    ------
    GraphError
        If nothing is left.
    """
    return _without_io(_rows(graph)).graph()


class _ChangingGraph(NamedTuple):
    """A graph that is being changed: operators by name as given, edges, and a topological order of all names."""

    name: str
    operators: dict[str, Operator]
    edges: list[Edge]
    order: tuple[str, ...]

    def with_writers(self, name_of: Mapping[str, str | None], changed: Mapping[str, Operator]) -> "_ChangingGraph":
        """Return the rows of the operators that keep their name, with the edges that these read by.

        `name_of` names the present writer of a tensor that an operator wrote; None, or no entry, means none.
        """
        operators = {name: changed.get(name, op) for name, op in self.operators.items() if name_of.get(name) == name}
        edges = []
        for edge in self.edges:
            src = name_of.get(edge.src)
            if src is not None and name_of.get(edge.dst) == edge.dst:
                edges.append(edge if src == edge.src else Edge(src, edge.dst, edge.nbytes, edge.transfer))
        return self._replace(operators=operators, edges=edges)

    def graph(self) -> OpGraph:
        if not self.operators:
            raise GraphError(
                f"graph {self.name!r}: it has nothing but inputs, outputs and views; there is nothing to run"
            )
        return OpGraph(self.operators.values(), self.edges, self.name)


def _rows(graph: OpGraph) -> _ChangingGraph:
    return _ChangingGraph(graph.name, {op.name: op for op in graph.operators}, list(graph.edges), graph.order)


def _without_io(rows: _ChangingGraph) -> _ChangingGraph:
    return rows.with_writers(
        {name: name for name, op in rows.operators.items() if op.kind not in (*IO_KINDS, SIZE)}, {}
    )


def _without_views(rows: _ChangingGraph) -> _ChangingGraph:
    """Drop the operators that launch nothing; where one reads several operators it stays, as a join of them."""
    reads: dict[str, list[Edge]] = {name: [] for name in rows.operators}
    for edge in rows.edges:
        reads[edge.dst].append(edge)
    source: dict[str, str | None] = {}  # the operator to read instead; None for an input of the network
    for name in rows.order:
        source[name] = name
        if _launches_nothing(rows.operators[name]):
            carrying = [edge for edge in reads[name] if edge.nbytes > 0] or reads[name]
            roots = dict.fromkeys(source[edge.src] for edge in carrying)
            if len(roots) < 2:
                source[name] = next(iter(roots), None)
    return rows.with_writers(source, {})


def _launches_nothing(op: Operator) -> bool:
    return (
        not (op.works or op.kernels) and op.time == 0.0 and not op.flops and not op.nbytes and op.kind not in IO_KINDS
    )


def _folded_chains(
    rows: _ChangingGraph,
    can_take_in: Callable[[Operator, Operator], bool],
    finished: Callable[[Operator], Operator],
) -> _ChangingGraph:
    """Make one operator of each chain.

    Parameters
    ----------
    can_take_in
        Whether an operator takes in the one that alone reads it.
    finished
        Returns an operator once its chain is complete.
    """
    readers: dict[str, list[str]] = {name: [] for name in rows.operators}
    n_reads = dict.fromkeys(rows.operators, 0)
    for edge in rows.edges:
        readers[edge.src].append(edge.dst)
        n_reads[edge.dst] += 1
    unit_of: dict[str, str | None] = {}
    units: dict[str, Operator] = {}
    for name in rows.order:
        if name in unit_of or name not in rows.operators:
            continue
        unit = rows.operators[name]
        last = name
        while unit.kind in _HEADS and len(readers[last]) == 1 and n_reads[readers[last][0]] == 1:
            follower = rows.operators[readers[last][0]]
            if not can_take_in(unit, follower):
                break
            unit = _fold(unit, follower)
            last = follower.name
            unit_of[last] = name
        unit_of[name] = name
        units[name] = finished(unit)
    return rows.with_writers(unit_of, units)


def _can_take_in(unit: Operator, op: Operator) -> bool:
    if "activation" in unit.attributes or len(op.input_shapes) > 1:
        return False
    if op.kind in ACTIVATION_FLOPS:
        return not unit.output_shape or not op.output_shape or prod(unit.output_shape) == prod(op.output_shape)
    if unit.kind not in _PRODUCTS or not unit.output_shape or unit.output_shape != op.output_shape:
        return False
    if op.kind == "add":
        return 0 < op.weight_nbytes <= _bias_nbytes(unit)
    return op.kind == "batch_norm" and unit.weight_nbytes > 0 and _bias_nbytes(unit) > 0


def _is_bias_of_linear(unit: Operator, op: Operator) -> bool:
    return unit.kind == "linear" and op.kind == "add" and not _has_bias(unit) and _can_take_in(unit, op)


def _with_bias(op: Operator) -> Operator:
    if op.kind != "linear" or not _has_bias(op):
        return op
    return replace(op, works=tuple(replace(work, bias=True) for work in op.works))


def _fold(unit: Operator, op: Operator) -> Operator:
    """Return a unit with one operator more in it."""
    attributes = dict(unit.attributes)
    weights = 0.0
    if op.kind in ACTIVATION_FLOPS:
        attributes["activation"] = op.kind
        weights = op.weight_nbytes
    elif not _has_bias(unit):
        weights = _bias_nbytes(unit)
        if "bias" in attributes:
            attributes["bias"] = True
    grown = (op.output_nbytes or 0.0) - (unit.output_nbytes or 0.0)  # of another format, perhaps
    works = _resize(unit.works, weights, grown)
    return replace(
        unit,
        nbytes=nbytes_of(works) if works else max(0.0, unit.nbytes + weights + grown),
        works=works,
        weight_nbytes=unit.weight_nbytes + weights,
        time=None if unit.time is None or op.time is None else unit.time + op.time,
        attributes=attributes,
        output_shape=op.output_shape or unit.output_shape,
    )


def _resize(works: tuple[Work, ...], weights: float, grown: float) -> tuple[Work, ...]:
    """Return works with more parameters in the first, and an output of another size."""
    if not works:
        return ()
    first = replace(works[0], weights=works[0].weights + weights)
    *rest, last = (first, *works[1:])
    return (*rest, replace(last, writes=max(0.0, last.writes + grown)))


def _without_bias_kernel(op: Operator) -> Operator:
    if not any(work.bias for work in op.works):
        return op
    return replace(op, works=tuple(replace(work, bias=False) for work in op.works))


def _bias_nbytes(unit: Operator) -> float:
    """Return the bytes of one value per channel, 0 if there is no such axis."""
    shape = unit.output_shape or ()
    axis = _CHANNEL_AXIS.get(unit.kind, -1)
    if -len(shape) <= axis < len(shape):
        return float(shape[axis] * DTYPE_NBYTES[unit.dtype])
    return 0.0


def _has_bias(unit: Operator) -> bool:
    """Say whether there are more weights than the products need: FLOP are 2 per weight and pixel or row."""
    if "bias" in unit.attributes or not unit.output_shape:
        return bool(unit.attributes.get("bias"))
    width = DTYPE_NBYTES[unit.dtype]
    n_rows = prod(unit.output_shape) * width / _bias_nbytes(unit)
    return unit.weight_nbytes > unit.flops / 2 / n_rows * width
