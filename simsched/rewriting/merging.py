"""Convolutions, and their merges: several of one tensor become one with kernels padded to the largest, as in IOS."""

import json
from collections.abc import Hashable, Sequence
from math import prod
from typing import Any, Final, NamedTuple

from simsched.base.errors import GraphError
from simsched.model.graph import DTYPE_NBYTES, Operator, OpGraph
from simsched.model.rewriting import Rewriting, RewrittenPart, Step
from simsched.rewriting.draft import DraftRow, GraphDraft, Source
from simsched.rewriting.splitting import new_name, parts_of, sole_input
from simsched.rewriting.works import WEIGHTS, Shape, concat, made_from, pad, recipe_of, tensor_nbytes

MERGED: Final = "merged"
"""The rule by which `merge` rewrites graphs."""
_GEOMETRY: Final = ("kernel", "stride", "padding")
_KNOWN: Final = (*_GEOMETRY, "groups", "out_channels", "activation", "bias", WEIGHTS)


class Conv(NamedTuple):
    """A convolution: one value per axis of the image; `rest` are the unknown attributes, as JSON."""

    kernel: Shape
    stride: Shape
    padding: Shape
    groups: int
    activation: str | None
    rest: str
    input_shape: Shape
    output_shape: Shape
    dtype: str

    @property
    def in_channels(self) -> int:
        """Channels of the input, of all groups."""
        return self.input_shape[1]

    @property
    def out_channels(self) -> int:
        """Channels of the output."""
        return self.output_shape[1]

    @property
    def n_weights(self) -> int:
        """Elements of the weight, without the bias."""
        return self.out_channels * self.in_channels // self.groups * prod(self.kernel)


def conv_of(op: Operator) -> Conv | None:
    """Return the convolution that attributes describe; None without one, or if shapes and attributes do not agree."""
    if op.kind != "conv" or len(op.input_shapes) != 1 or op.output_shape is None:
        return None
    attributes = op.attributes
    axes = len(op.output_shape) - 2
    sizes = [attributes.get(key) for key in _GEOMETRY]
    if axes < 1 or len(op.input_shapes[0]) != axes + 2 or not all(_are_counts(size, axes) for size in sizes):
        return None
    kernel, stride, padding = (tuple(size) for size in sizes if size is not None)
    groups = attributes.get("groups", 1)
    activation = attributes.get("activation")
    rest = {key: value for key, value in attributes.items() if key not in _KNOWN}
    text = json.dumps(rest, sort_keys=True)
    conv = Conv(kernel, stride, padding, groups, activation, text, op.input_shapes[0], op.output_shape, op.dtype)
    if type(groups) is not int or groups < 1 or conv.in_channels % groups or conv.out_channels % groups:
        return None
    if activation is not None and not isinstance(activation, str):
        return None
    if min(*stride, *kernel) < 1 or attributes.get("out_channels", conv.out_channels) != conv.out_channels:
        return None
    dilation = rest.get("dilation", [1] * axes)
    if not _are_counts(dilation, axes):
        return None
    windows = zip(conv.input_shape[2:], kernel, stride, padding, dilation, strict=True)
    output_size = tuple((size + 2 * p - (d * (k - 1) + 1)) // s + 1 for size, k, s, p, d in windows)
    if output_size == op.output_shape[2:]:
        return conv
    return None


def _are_counts(values: Any, n: int) -> bool:
    return isinstance(values, list) and len(values) == n and all(type(value) is int and value >= 0 for value in values)


def are_alike(convs: Sequence[Conv]) -> bool:
    """Return whether convolutions of one tensor are one convolution with the largest kernel.

    Kernel k_i ends up (K - k_i) // 2 inside the edge of the merged one, K; it reads the same pixels as before only if
    the merged padding less that is its own padding. The largest then has the merged padding: the output size stays.
    """
    if len({_but_for_window(conv) for conv in convs}) > 1 or convs[0].groups != 1:
        return False
    if len({(conv.kernel, conv.padding) for conv in convs}) == 1:
        return True
    whole = padded_to_largest(convs)
    return "dilation" not in whole.rest and all(
        margin - (big - small) // 2 == own
        for conv in convs
        for big, small, margin, own in zip(whole.kernel, conv.kernel, whole.padding, conv.padding, strict=True)
    )


def _but_for_window(conv: Conv) -> Conv:
    """Return the properties that convolutions of one tensor must share to be one."""
    return conv._replace(kernel=(), padding=(), output_shape=conv.output_shape[2:])


def padded_to_largest(convs: Sequence[Conv]) -> Conv:
    """Return the first of some convolutions with the largest kernel and padding of all, along each axis."""
    kernel = tuple(max(sizes) for sizes in zip(*(conv.kernel for conv in convs), strict=True))
    padding = tuple(max(sizes) for sizes in zip(*(conv.padding for conv in convs), strict=True))
    return convs[0]._replace(kernel=kernel, padding=padding)


def merged_convs(ops: tuple[Operator, ...], name: str) -> Operator:
    """Return the convolution that several of one tensor become, output channels in their order.

    FLOP and weights are the padded kernels'; the input is read once.
    """
    convs = [conv for conv in map(conv_of, ops) if conv is not None]
    first = convs[0]
    whole = padded_to_largest(convs)
    width = DTYPE_NBYTES[first.dtype]
    area = prod(whole.kernel)
    flops = weight_nbytes = nbytes = 0.0
    for op, conv in zip(ops, convs, strict=True):
        own = prod(conv.kernel)
        flops += op.flops * area / own
        if op.weight_nbytes:
            zeros = float(conv.n_weights // own * (area - own) * width)
        else:
            zeros = 0.0
        weight_nbytes += op.weight_nbytes + zeros
        nbytes += op.nbytes + zeros
    nbytes -= (len(ops) - 1) * tensor_nbytes(first.input_shape, first.dtype)
    channels = sum(conv.out_channels for conv in convs)
    weights = concat([pad(recipe_of(op), conv.kernel, whole.kernel) for op, conv in zip(ops, convs, strict=True)], 0)
    return made_from(
        ops,
        name,
        flops=flops,
        nbytes=nbytes,
        weight_nbytes=weight_nbytes,
        attributes=conv_attributes(
            ops, kernel=whole.kernel, padding=whole.padding, out_channels=channels, weights=weights
        ),
        input_shapes=(first.input_shape,),
        output_shape=(first.output_shape[0], channels, *first.output_shape[2:]),
    )


def conv_attributes(ops: Sequence[Operator], **changed: Any) -> dict[str, Any]:
    """Return the attributes of the first of some operators with others changed; a bias if one of them has one."""
    attributes = {**ops[0].attributes, **changed}
    if any("bias" in op.attributes for op in ops):
        attributes["bias"] = any(op.attributes.get("bias", False) for op in ops)
    return attributes


def merge_key(draft: GraphDraft, name: str) -> Hashable | None:
    """Return a key that operators must share to be merged, or None if this one cannot be merged.

    Operators of one key can be merged unless their kernels, padded to the largest, would not align.
    """
    row = draft.rows.get(name)
    if row is None:
        raise GraphError(f"graph {draft.name!r} has no operator {name!r}")
    conv = conv_of(row.operator)
    source = sole_input(draft, row)
    if conv is None or source is None or conv.groups != 1:
        return None
    return (source, _but_for_window(conv))


def merging_lacks(draft: GraphDraft, name: str) -> str | None:
    """Return the missing field that decides whether a convolution can be merged, None if none is missing."""
    row = draft.rows[name]
    op = row.operator
    if op.kind != "conv" or len(row.reads) != 1:
        return None
    missing = [field for field in ("input_shapes", "output_shape") if not getattr(op, field)]
    missing += [key for key in _GEOMETRY if key not in op.attributes]
    producer = draft.operator(row.reads[0].producer)
    if missing or producer.output_shape is not None:
        if missing:
            return f"{missing[0]} of {name!r}"
        return None
    return f"output_shape of {producer.name!r}"


def can_merge(draft: GraphDraft, names: Sequence[str]) -> bool:
    """Return whether operators can be merged into one.

    They can if all are convolutions without groups that read the same tensor, with the same stride, output size,
    activation and number format, and if kernels that are padded with zeros to the largest read the same pixels as
    before: ``max(padding) - (max(kernel) - kernel) // 2 == padding`` along each axis.

    Parameters
    ----------
    draft
        The graph.
    names
        At least one of its operators, without repeats.

    Notes
    -----
    The released code of IOS checks no alignment, nor groups and inputs of the first operator. An operator without
    an edge reads an input of the network, which of them is not known: it is merged with none.

    Examples
    --------
    >>> from simsched.model.graph import Edge
    >>> x = Operator("x", output_shape=(1, 3, 8, 8))
    >>> sizes = {"stride": [1, 1], "groups": 1}
    >>> point = {"kernel": [1, 1], "padding": [0, 0], **sizes}
    >>> convs = [
    ...     Operator(name, "conv", attributes=given, input_shapes=[(1, 3, 8, 8)], output_shape=(1, 4, 8, 8))
    ...     for name, given in (("a", point), ("b", {**point, "kernel": [3, 3], "padding": [1, 1]}))
    ... ]
    >>> draft = GraphDraft.from_graph(OpGraph([x, *convs], [Edge("x", "a"), Edge("x", "b")]))
    >>> can_merge(draft, ("a", "b")), can_merge(draft, ("x", "b"))
    (True, False)
    """
    keys = {merge_key(draft, name) for name in names}
    if len(keys) > 1 or None in keys or len(set(names)) < len(names):
        return False
    return are_alike([conv for conv in (conv_of(draft.rows[name].operator) for name in names) if conv is not None])


def merged_operators(draft: GraphDraft, names: Sequence[str]) -> tuple[Operator, ...]:
    """Return the operators that replace some: the merged one, then the slices that are separate operators.

    See `merge`; parameters are as in `can_merge`.

    Raises
    ------
    GraphError
        If they cannot be merged.
    """
    whole, parts, _ = _merge(draft, names)
    return (whole.operator, *(row.operator for row in parts))


def merge(graph: OpGraph, sets: Sequence[Sequence[str]]) -> tuple[OpGraph, list[tuple[str, ...]]]:
    """Return the graph with each set of operators merged into one.

    Parameters
    ----------
    graph
        The graph.
    sets
        Names of operators that can be merged (see `can_merge`); no operator may be in two sets.

    Returns
    -------
    graph
        The rewritten graph. A merged operator has its parts' names with a plus sign between them, and has its output
        channels in the order given. Where they are contiguous in memory, as for a single image, a reader of a part
        reads it there: this is noted in ``attributes["slices"]``, by the number of its edge, as ``[axis, begin, end]``.
        Else there is an operator of kind "slice" and the old name that copies the part.
    names
        For each set the names of its new operators: the merged one, then the slices. If an output of the network is
        part of a merged operator, it is a slice in any case, one without kernels that takes no time if it is free.

    Raises
    ------
    GraphError
        If operators of a set cannot be merged.

    Notes
    -----
    FLOP and weights are the padded kernels'; for the grid, and for the origin of the weights, see
    `simsched.rewriting.works`.
    """
    draft = GraphDraft.from_graph(graph)
    new_names: list[tuple[str, ...]] = []
    for names in sets:
        draft, new = merge_draft(draft, names)
        new_names.append(new)
    return draft.to_graph(), new_names


def merge_draft(draft: GraphDraft, names: Sequence[str]) -> tuple[GraphDraft, tuple[str, ...]]:
    """Return the draft with operators merged into one, and the names of the new operators; see `merge`."""
    whole, parts, redirect = _merge(draft, names)
    after = draft.replace(names, [whole, *parts], redirect)
    assert after is not None, "operators of one input do not depend on each other"
    return after, (whole.operator.name, *(row.operator.name for row in parts))


def merging_of(sets: Sequence[Sequence[str]]) -> tuple[Rewriting, ...]:
    """Return the record of a `merge` in a schedule."""
    steps = tuple(Step(MERGED, tuple(names)) for names in sets)
    if steps:
        return (Rewriting((RewrittenPart(steps=steps),)),)
    return ()


def _merge(draft: GraphDraft, names: Sequence[str]) -> tuple[DraftRow, list[DraftRow], dict[str, Source]]:
    if not can_merge(draft, names):
        raise GraphError(f"cannot merge {', '.join(names)}: not convolutions of one tensor whose kernels align")
    rows = [draft.rows[name] for name in names]
    op = merged_convs(tuple(row.operator for row in rows), new_name(draft, "+".join(names)))
    whole = DraftRow(op, rows[0].reads)
    return whole, *parts_of(draft, whole, names, axis=1)
