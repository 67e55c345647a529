"""Convolutions that read the same tensor, merged into one with kernels padded to the largest: IOS's merge stages."""

from collections.abc import Hashable, Sequence

from simsched.base.errors import GraphError
from simsched.model.graph import Operator, OpGraph
from simsched.rewriting.convs import Conv, conv_of, merged_convs, why_not_alike
from simsched.rewriting.draft import Draft
from simsched.rewriting.rows import Row
from simsched.rewriting.splitting import new_name, parts_of, sole_input

_CHANNELS = 1


def merge_key(graph: OpGraph | Draft, name: str) -> Hashable | None:
    """Return what operators must have in common to be merged, or None if this one can be merged with none.

    Operators of one key can be merged unless their kernels, padded to the largest, would not align.
    """
    draft = _draft(graph)
    row = _row(draft, name)
    conv = row.about(conv_of)
    source = None if conv is None or conv.groups != 1 else sole_input(draft, row)
    if conv is None or source is None:
        return None
    return (source, conv.stride, conv.output_shape[2:], conv.activation, conv.dtype, conv.rest)


def why_not_mergeable(graph: OpGraph | Draft, names: Sequence[str]) -> str | None:
    """Return in a few words why operators cannot be merged into one, or None if they can.

    They can if all are convolutions without groups that read the same tensor, with the same stride, output size,
    activation and number format, and if kernels that are padded with zeros to the largest read the same pixels as
    before: ``max(padding) - (max(kernel) - kernel) // 2 == padding`` along each axis. One operator alone can.

    Parameters
    ----------
    graph
        The graph, or its `Draft`: for many calls make that once.
    names
        At least one operator of it, each once.

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
    >>> graph = OpGraph([x, *convs], [Edge("x", "a"), Edge("x", "b")])
    >>> why_not_mergeable(graph, ("a", "b")), why_not_mergeable(graph, ("x", "b"))
    (None, "'x' is no convolution whose shapes are known")
    """
    draft = _draft(graph)
    if len(names) == 1 and _row(draft, names[0]):
        return None
    convs: list[Conv] = []
    first = None
    for name in names:
        row = _row(draft, name)
        conv = row.about(conv_of)
        if conv is None:
            return f"{name!r} is no convolution whose shapes are known"
        source = sole_input(draft, row)
        if source is None:
            return f"{name!r} does not read one tensor as another operator writes it"
        if first is None:
            first = source
        elif source != first:
            return "they do not read the same tensor"
        convs.append(conv)
    if len(dict.fromkeys(names)) < len(names):
        return "an operator stands twice"
    return why_not_alike(tuple(convs))


def merged_operators(graph: OpGraph | Draft, names: Sequence[str]) -> tuple[Operator, ...]:
    """Return the operators that stand for some: the merged one, then the slices that are operators of their own.

    See `merge`; parameters are those of `why_not_mergeable`.

    Raises
    ------
    GraphError
        If they cannot be merged.
    """
    draft = _draft(graph)
    if len(names) == 1:
        return (_row(draft, names[0]).operator,)
    whole, parts = _merged(draft, names)
    return (whole.operator, *(row.operator for row in parts))


def merge(graph: OpGraph, sets: Sequence[Sequence[str]]) -> tuple[OpGraph, list[tuple[str, ...]]]:
    """Return the graph with each set of operators merged into one.

    Parameters
    ----------
    graph
        The graph.
    sets
        Names of operators that can be merged (see `why_not_mergeable`); no operator may be in two sets.

    Returns
    -------
    graph
        The rewritten graph. A merged operator is called as its parts with a plus sign between them, and has its
        output channels in the order given. Where they lie in memory in one piece, as for a single image, who
        reads a part reads it there: it says so in ``attributes["slices"]``, by the number of its edge, as
        ``[axis, begin, end]``. Else there is an operator of kind "slice" and the old name that copies the part.
    names
        For each set the names of its new operators: the merged one, then the slices. The output of a network
        that is part of a merged one is a slice in any case, one without kernels that takes no time if it is free.

    Raises
    ------
    GraphError
        If operators of a set cannot be merged.

    Notes
    -----
    FLOP and weights are those of the padded kernels; of the grid see `simsched.rewriting.works`. How the weights
    come about is in ``attributes["weights"]`` (`simsched.rewriting.recipes`).
    """
    draft = Draft.from_graph(graph)
    found: list[tuple[str, ...]] = []
    for names in sets:
        if len(names) == 1:
            found.append((_row(draft, names[0]).operator.name,))
            continue
        whole, parts = _merged(draft, names)
        _, redirect = parts_of(draft, whole, names, _CHANNELS)
        after = draft.replace(names, [whole, *parts], redirect)
        assert after is not None, "operators of one input do not depend on each other"
        draft = after
        found.append((whole.operator.name, *(row.operator.name for row in parts)))
    return draft.to_graph(), found


def _merged(draft: Draft, names: Sequence[str]) -> tuple[Row, list[Row]]:
    reason = why_not_mergeable(draft, names)
    if reason is not None:
        raise GraphError(f"cannot merge {', '.join(names)}: {reason}")
    rows = [draft.rows[name] for name in names]
    op = merged_convs(tuple(row.operator for row in rows), new_name(draft, "+".join(names)))
    whole = Row(op, rows[0].reads)
    return whole, parts_of(draft, whole, names, _CHANNELS)[0]


def _draft(graph: OpGraph | Draft) -> Draft:
    return graph if isinstance(graph, Draft) else Draft.from_graph(graph)


def _row(draft: Draft, name: str) -> Row:
    try:
        return draft.rows[name]
    except KeyError:
        raise GraphError(f"graph {draft.name!r} has no operator {name!r}") from None
