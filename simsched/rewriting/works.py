"""Costs of operators that are made from others, and the origin of their weights.

Works
    They are the works of the replaced operator with the most FLOP (then the most outputs), sized for the new outputs:
    columns follow the channels, rows the rest, and the inner dimension of a product follows from the FLOP. A new copy
    has one elementwise work, none if the replaced operators have none.
Kernels
    Where kernels were measured or given, they are the kernels of the replaced operator with the most thread blocks
    (then the most outputs per block), with the same threads, registers and shared memory; as many blocks as the outputs
    need at that operator's outputs per block. A new copy has a thread per 4 bytes, in blocks of 256 threads of 32
    registers.
Time
    None if a replaced operator has none, and so to be estimated. Otherwise the sum of the replaced operators' times,
    scaled by the new operator's roofline estimate over the sum of theirs, all on an A100, because a rule knows no
    device. Where neither FLOP nor bytes are known it is the sum of the times, and None for a new copy.
Utilization
    The sum for operators that ran beside each other, at most 1; the largest for operators that ran after each other.

Weights
    An operator's weights are its parameters: for a convolution or a product with a matrix a weight (output channels
    first) and a bias, for a normalisation its scale and shift. All changes of weights are made once, before the network
    runs, and cost nothing. An operator describes its weights in ``attributes["weights"]``, as JSON values:

    ``{"of": name}``
        The weights of the operator of the graph that had this name at first; with ``"part": i``, of part i of a unit.
        An operator without the attribute has its own. Two operators that share their weights name the same one.
    ``{"concat": [...], "axis": 0 | 1}``
        Stacked along the output channels, biases too; or along the input channels, biases added up.
    ``{"pad": recipe, "kernel": [...]}``
        Zeros around the kernel up to this size, (K - k) // 2 of them before it.
    ``{"sum": [...]}``
        Weights and biases added up.
    ``{"normalized": recipe, "by": recipe}``
        Each output channel scaled and shifted as a batch normalisation does.
    ``{"ungrouped": recipe, "groups": [from, to]}``
        For fewer groups: each output channel has zeros for the inputs that it did not read.
    ``{"bias": recipe, "times": n}``
        With n times the bias.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any, Final

from simsched.base.numeric import sum_in_order
from simsched.model import DTYPE_NBYTES, Cluster, Device, Kernel, Operator, Work, roofline
from simsched.rewriting.draft import sliced_shape

WEIGHTS: Final = "weights"

Recipe = Mapping[str, Any]


def recipe_of(op: Operator) -> Recipe:
    """Return the recipe of an operator's weights."""
    recipe: Recipe = op.attributes.get(WEIGHTS, {"of": op.name})
    return recipe


def concat(recipes: Sequence[Recipe], axis: int) -> Recipe:
    """Return the recipe for weights stacked along the output (0) or input (1) channels."""
    flat: list[Recipe] = []
    for recipe in recipes:
        same = "concat" in recipe and recipe["axis"] == axis
        if same:
            flat += recipe["concat"]
        else:
            flat += [recipe]
    return {"concat": flat, "axis": axis}


def stack(ops: Sequence[Operator], axis: int) -> Recipe:
    """Return `concat` of the weights of some operators."""
    return concat([recipe_of(op) for op in ops], axis)


def pad(recipe: Recipe, kernel: Sequence[int], to: Sequence[int]) -> Recipe:
    """Return the recipe for weights with a larger kernel."""
    if tuple(kernel) == tuple(to):
        return recipe
    if "concat" in recipe:
        return {**recipe, "concat": [pad(inner, kernel, to) for inner in recipe["concat"]]}
    return {"pad": recipe, "kernel": list(to)}


Shape = tuple[int, ...]

_THREADS: Final = 256
_REGISTERS: Final = 32
_WORD: Final = 4  # bytes that a thread of a copy handles


def shape_of(op: Operator) -> Shape:
    """Return the shape of an operator's output, which has to be known."""
    assert op.output_shape is not None
    return op.output_shape


def joined_shape(shapes: Sequence[Shape], axis: int) -> Shape:
    """Return the shape of tensors concatenated along an axis."""
    return (*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1 :])


def tensor_nbytes(shape: Sequence[int], dtype: str) -> float:
    """Return the bytes of a tensor."""
    return float(prod(shape) * DTYPE_NBYTES[dtype])


def made_from(
    ops: Sequence[Operator], name: str, *, output_shape: Shape, like: Operator | None = None, **fields: Any
) -> Operator:
    """Return the operator that does the work of `ops` beside each other, or after each other in kernels `like` one's.

    It has the kind of the first; FLOP and bytes are the sums unless `fields` set them, bytes never less than 0.
    """
    loads = [op.utilization for op in ops if op.utilization is not None]
    kernels = _kernels((like,) if like else ops, output_shape)
    sums = {field: sum(getattr(op, field) for op in ops) for field in ("flops", "nbytes", "weight_nbytes")}
    values = {"kind": ops[0].kind, **sums, **fields}
    if sums["nbytes"]:
        values["nbytes"] = max(0.0, values["nbytes"])
    else:
        values["nbytes"] = 0.0
    works = () if kernels else _works((like,) if like else ops, output_shape, values)
    operator = Operator(
        name,
        kernels=kernels,
        works=works,
        utilization=None if kernels or works or not loads else max(loads) if like else min(1.0, sum_in_order(loads)),
        intensity=next((limit for limit in ("compute", "memory") if any(op.intensity == limit for op in ops)), None),
        dtype=ops[0].dtype,
        output_shape=output_shape,
        block=ops[0].block,
        host=max(op.host for op in ops),
        **values,
    )
    return _with_time(operator, ops, sum)


def copy_of(
    ops: Sequence[Operator], name: str, *, kind: str, output_shape: Shape, n_reads: int = 1, **fields: Any
) -> Operator:
    """Return an operator with a thread per output that `ops` make necessary, a copy if `fields` give no FLOP.

    It reads `n_reads` times as many bytes as it writes.
    """
    width = DTYPE_NBYTES[ops[0].dtype]
    n_threads = -(-prod(output_shape) * width // max(_WORD, width))
    has_kernels = any(op.kernels for op in ops)
    written = tensor_nbytes(output_shape, ops[0].dtype)
    if fields.get("flops"):
        rule = "map"
    else:
        rule = "copy"
    copying = Work(
        "elementwise",
        rule,
        flops=fields.get("flops", 0.0),
        reads=n_reads * written,
        writes=written,
        rows=prod(output_shape),
    )
    has_works = not has_kernels and any(op.works for op in ops)
    operator = Operator(
        name,
        kind=kind,
        nbytes=(1 + n_reads) * written,
        kernels=(Kernel(-(-n_threads // _THREADS), _THREADS, _REGISTERS),) if has_kernels else (),
        works=(copying,) if has_works else (),
        intensity="memory" if any(op.intensity for op in ops) else None,
        dtype=ops[0].dtype,
        output_shape=output_shape,
        block=ops[0].block,
        **fields,
    )
    return _with_time(operator, ops, lambda _: None)


def slice_of(op: Operator, name: str, axis: int, begin: int, end: int, view: bool) -> Operator:
    """Return the operator that makes a slice of the output of `op`; a `view` costs nothing."""
    whole = shape_of(op)
    cut = {"axis": axis, "begin": begin, "end": end}
    shape = sliced_shape(whole, (axis, begin, end))
    operator = copy_of((op,), name, kind="slice", attributes=cut, input_shapes=(whole,), output_shape=shape)
    if view:
        return replace(operator, nbytes=0.0, time=0.0, kernels=(), works=())
    return operator


def made_from_sum(ops: Sequence[Operator], total: Operator, attributes: Mapping[str, Any], **sizes: Any) -> Operator:
    """Return the operator that does the work of `ops` and their sum, `total`, whose name and activation it has."""
    if "activation" in total.attributes:
        attributes = {**attributes, "activation": total.attributes["activation"]}
    largest = max(ops, key=lambda op: (sum(kernel.blocks for kernel in op.kernels), op.flops))
    return made_from((*ops, total), total.name, attributes=attributes, like=largest, **sizes)


def _kernels(ops: Sequence[Operator], output_shape: Shape) -> tuple[Kernel, ...]:
    """Return the kernels of the largest of some operators, with the grid that so many outputs need."""
    n = prod(output_shape)
    sizes = [
        (sum(kernel.blocks for kernel in op.kernels), prod(op.output_shape or output_shape), -i)
        for i, op in enumerate(ops)
        if op.kernels
    ]
    if not sizes:
        return ()
    _, outputs, i = max(sizes)
    return tuple(replace(kernel, blocks=-(-kernel.blocks * n // outputs)) for kernel in ops[-i].kernels)


def _works(ops: Sequence[Operator], output_shape: Shape, given: Mapping[str, Any]) -> tuple[Work, ...]:
    """Return the works of the largest of some operators, sized for other outputs.

    Parameters
    ----------
    given
        FLOP, bytes, bytes of parameters and attributes of the new operator.
    """
    sizes = [(op.flops, prod(op.output_shape or output_shape), -i) for i, op in enumerate(ops) if op.works]
    if not sizes:
        return ()
    op = ops[-max(sizes)[2]]
    total = sum(work.flops for work in op.works)
    nbytes = sum(work.reads + work.writes for work in op.works)
    parameters = sum(work.weights for work in op.works)
    weights = min(given["weight_nbytes"], given["nbytes"])
    return tuple(
        _resize(
            work,
            op.output_shape or output_shape,
            output_shape,
            given.get("attributes", {}),
            flops=given["flops"] * (work.flops / total if total else 1 / len(op.works)),
            moved=(given["nbytes"] - weights) * ((work.reads + work.writes) / nbytes if nbytes else 1 / len(op.works)),
            weights=weights * (work.weights / parameters if parameters else 1 / len(op.works)),
        )
        for work in op.works
    )


def _resize(
    work: Work,
    before: Shape,
    after: Shape,
    attributes: Mapping[str, Any],
    *,
    flops: float,
    moved: float,
    weights: float,
) -> Work:
    """Return a work with the outputs of another shape, other FLOP, and other bytes of activations and parameters."""
    product = work.family in ("product", "convolution")
    if work.family == "convolution":
        axis = 1
    else:
        axis = -1
    if product and before and after:
        wider = after[axis] / before[axis]
    else:
        wider = 1.0
    longer = prod(after) / prod(before) / wider
    written = work.writes * wider * longer
    sizes: dict[str, Any] = {"rows": _scale(work.rows, longer)}
    if product:
        if work.family == "convolution":
            groups = attributes.get("groups", work.batch)
        else:
            groups = work.batch
        sizes["batch"] = groups
        sizes["columns"] = _scale(work.columns, wider * work.batch / groups)
        sizes["inner"] = max(1, round(flops / (2 * groups * sizes["rows"] * sizes["columns"])))
    if work.family == "convolution":
        window = attributes.get("kernel")
        if window:
            sizes["window"] = prod(window)
        else:
            sizes["window"] = work.window
        if work.rule == "plain" and sizes["window"] > 1:
            sizes["rule"] = "strided"
        else:
            sizes["rule"] = work.rule
    writes = min(written, moved)
    return replace(work, flops=flops, reads=moved - writes, weights=weights, writes=writes, **sizes)


def _scale(size: int, factor: float) -> int:
    return max(1, round(size * factor))


def _with_time(
    made: Operator, ops: Sequence[Operator], otherwise: Callable[[Sequence[float]], float | None]
) -> Operator:
    """Return an operator with a time from the replaced operators' rooflines, or without these from `otherwise`."""
    times = [op.time for op in ops if op.time is not None]
    if len(times) < len(ops):
        return made
    if not any(op.flops or op.nbytes for op in ops):
        return replace(made, time=otherwise(times))
    device = _reference()
    return replace(
        made, time=sum_in_order(times) * roofline(made, device) / sum_in_order(roofline(op, device) for op in ops)
    )


@lru_cache(maxsize=1)
def _reference() -> Device:
    return Cluster.preset("a100").devices[0]
