"""Operators that an exporter wrote as several, made one again: attention, norms of layers and groups, GELU, SiLU.

ONNX got an operator for these late (layer normalisation with set 17, GELU with 20, attention with 23, SiLU with 24).
Before, an exporter writes the formula. PyTorch, from which the formula comes, launches one kernel for each, and so do
ONNX Runtime and TensorRT: costs of the formula piece by piece would include kernels that are never launched.

A formula is only recognised where no other operator reads the results of its steps, except of the last one. Products
and a softmax that a model calls by themselves run one by one in PyTorch. The formula of
`torch.nn.functional.scaled_dot_product_attention` differs: its exporters scale keys as well as queries.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from types import MappingProxyType
from typing import Final

from workloads.formats.onnx.tensors import Shape, Step, Tensor

_VIEWS: Final = ("Dropout", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
_SCALES: Final = ("Div", "Mul")
_ON_SCORES: Final = ("Add", "Cast", "Div", "Mul")
"""Steps between the product of queries and keys and the softmax: scale, mask, another number format."""
_ON_WEIGHTS: Final = ("Cast", "Dropout", "Identity")
"""Steps between the softmax and the product with values."""
_OF_GELU: Final = ("Add", "Div", "Erf", "Mul", "Pow", "Tanh")
_OF_NORM: Final = ("Add", "Cast", "Div", "Mul", "Pow", "ReduceMean", "Sqrt", "Sub")
_MOST_STEPS: Final = 12
"""Steps of a formula: the longest, a layer normalisation with changes of the number format, has 11."""


@dataclass(frozen=True)
class _Formula:
    """Steps that are one operator.

    Parameters
    ----------
    members
        Their places.
    whole
        The operator that replaces the steps, at the place of the last one.
    """

    members: frozenset[int]
    whole: Step

    @property
    def last(self) -> int:
        """The place of the step whose output other steps read."""
        return max(self.members)


class _Steps:
    """The steps of a graph, with the places of the steps that read each tensor."""

    def __init__(self, steps: Sequence[Step], results: Sequence[Tensor]) -> None:
        self.steps = steps
        self._readers: dict[int, list[int]] = {}
        for place, step in enumerate(steps):
            for tensor in step.given:
                self._readers.setdefault(id(tensor), []).append(place)
        for tensor in results:
            self._readers.setdefault(id(tensor), []).append(len(steps))

    def readers(self, tensor: Tensor) -> list[int]:
        """Return the places of the steps that read a tensor, once per read; a result counts as read after all steps."""
        return self._readers.get(id(tensor), [])

    def only_output(self, place: int) -> Tensor | None:
        """Return the only output of a step, None if it has several."""
        outputs = self.steps[place].written
        if len(outputs) == 1:
            return outputs[0]
        return None

    def follower(self, place: int) -> int | None:
        """Return the place of the only step that reads a step's outputs, None if there is no such step."""
        output = self.only_output(place)
        if output is None:
            readers = []
        else:
            readers = self.readers(output)
        if len(set(readers)) == 1 and readers[0] < len(self.steps):
            return readers[0]
        return None

    def is_closed(self, members: frozenset[int]) -> bool:
        """Return whether no step outside reads the outputs of the members, except of the last one."""
        last = max(members)
        outputs = [(place, self.only_output(place)) for place in members]
        return all(
            output is not None and (place == last or members.issuperset(self.readers(output)))
            for place, output in outputs
        )


def join_formulas(steps: Sequence[Step], results: Sequence[Tensor]) -> list[Step]:
    """Return the steps with each known formula replaced by one step; the producers of tensors are renumbered.

    Parameters
    ----------
    steps
        In the order of the model; `Tensor.producer` is a place among them.
    results
        Tensors that the model returns.

    Notes
    -----
    A formula keeps the name of its last step. O(V + E).
    """
    graph = _Steps(steps, results)
    formulas: dict[int, _Formula] = {}  # by the places of its members
    for place, step in enumerate(steps):
        find = _FORMULAS.get(step.op_type)
        if find is None or step.domain or place in formulas:
            formula = None
        else:
            formula = find(graph, place)
        if formula is not None and formulas.keys().isdisjoint(formula.members):
            formulas.update(dict.fromkeys(formula.members, formula))
    if not formulas:
        return list(steps)
    places: dict[int, int] = {}
    joined: list[Step] = []
    for place, step in enumerate(steps):
        own = formulas.get(place)
        if own is None or place == own.last:
            places[place] = len(joined)
            joined.append(step if own is None else own.whole)
    tensors = {id(x): x for step in joined for x in (*step.given, *step.written)} | {id(x): x for x in results}
    for tensor in tensors.values():
        if tensor.producer is not None:
            tensor.producer = places[tensor.producer]
    return joined


def _whole(graph: _Steps, last: int, op_type: str, inputs: Sequence[Tensor | None], **attributes: object) -> Step:
    """Return a step of another type in the place of a formula's last one."""
    step = graph.steps[last]
    return Step(
        step.where, step.name, "", op_type, step.version, tuple(inputs), attributes, (), step.formats, step.outputs
    )


def _variable(step: Step) -> Tensor | None:
    """Return the only input of a step that is not constant, None if there are several, or none."""
    read = {id(x): x for x in step.read}
    if len(read) == 1:
        return next(iter(read.values()))
    return None


def _is_scaled(step: Step) -> bool:
    """Say whether a step multiplies a tensor by one constant number, or divides it by one."""
    numbers = [x for x in step.given if x.constant]
    return (
        not step.domain
        and step.op_type in _SCALES
        and len(step.read) == 1
        and all(x.shape is not None and prod(x.shape) == 1 for x in numbers)
    )


# Attention


def _attention(graph: _Steps, softmax: int) -> _Formula | None:
    """Return the attention that a softmax is part of: a product, scale and mask, the softmax, and a second product."""
    scores = graph.steps[softmax].input(0)
    if scores is None or scores.shape is None or not _is_along_last(graph.steps[softmax], scores.shape):
        return None
    members = [softmax]
    mask: Tensor | None = None
    place = scores.producer
    while place is not None and graph.steps[place].op_type in _ON_SCORES:
        step = graph.steps[place]
        main = _scores(graph, step, scores.shape)
        if main is None:
            return None
        if step.op_type == "Add":
            if mask is not None:
                return None
            mask = next((x for x in step.given if x is not main), None)
        elif step.op_type in _SCALES and not _is_scaled(step):
            return None
        members.append(place)
        place = main.producer
    if place is None:
        first = None
    else:
        first = _product(graph, place)
    second = graph.follower(softmax)
    while second is not None and graph.steps[second].op_type in _ON_WEIGHTS:
        members.append(second)
        second = graph.follower(second)
    if second is None:
        last = None
    else:
        last = _product(graph, second)
    if first is None or last is None or place is None or second is None:
        return None
    queries, keys = first
    weights, values = last
    if weights.producer not in members or len(members) + 2 > _MOST_STEPS:
        return None
    members += [place, second]
    q_source, q_scaling = _before_scaling(graph, queries)
    k_source, k_scaling = _before_scaling(graph, keys)
    if not k_scaling:
        return None
    everything = frozenset((*members, *q_scaling, *k_scaling))
    if not graph.is_closed(everything):
        return None
    *_, width, n_keys = keys.shape or ()
    inputs = (
        _by_heads(q_source, queries.shape or ()),
        _by_heads(k_source, (*(keys.shape or ())[:-2], n_keys, width)),
        _by_heads(values, values.shape or ()),
        mask,
    )
    return _Formula(everything, _whole(graph, second, "Attention", inputs))


def _scores(graph: _Steps, step: Step, shape: Shape) -> Tensor | None:
    """Return the input that carries the scores: of two of their shape, that which a product wrote."""
    alike = [x for x in step.read if x.shape == shape]
    products = [x for x in alike if x.producer is not None and graph.steps[x.producer].op_type == "MatMul"]
    return next(iter(products or alike), None)


def _is_along_last(step: Step, shape: Shape) -> bool:
    default = -1 if step.version >= 13 else 1
    return bool(shape) and step.axis(default, len(shape)) == len(shape) - 1


def _product(graph: _Steps, place: int) -> tuple[Tensor, Tensor] | None:
    """Return the factors of a product of two batches of matrices that the network computes, None of anything else."""
    step = graph.steps[place]
    if step.domain or step.op_type != "MatMul" or len(step.read) != 2:
        return None
    a, b = step.read
    if a.shape is None or b.shape is None or len(a.shape) != len(b.shape) or len(a.shape) < 3:
        return None
    return a, b


def _before_scaling(graph: _Steps, tensor: Tensor) -> tuple[Tensor, list[int]]:
    """Return the tensor that was scaled to make another one, and the steps that did so, with views between them."""
    scaling: list[int] = []
    passed: list[int] = []
    source = tensor
    current = tensor
    while current.producer is not None:
        place = current.producer
        step = graph.steps[place]
        before = _variable(step)
        is_scale = _is_scaled(step)
        if before is None or step.domain or not (is_scale or step.op_type in _VIEWS):
            break
        if set(graph.readers(current)) != {passed[-1]} if passed else len(set(graph.readers(current))) != 1:
            break
        passed.append(place)
        if is_scale:
            scaling = list(passed)
            source = before
        current = before
    return source, scaling


def _by_heads(tensor: Tensor, shape: Shape) -> Tensor:
    """Return a tensor with axes of sequences, heads, tokens and features, whatever axes its product had."""
    *batch, tokens, features = shape
    sequences = batch[0] if len(batch) > 1 else 1
    return replace(tensor, shape=(sequences, prod(batch) // sequences, tokens, features), strides=None)


# Formulas of elements and rows


def _between(
    graph: _Steps, start: Tensor, last: int, types: Sequence[str]
) -> tuple[frozenset[int], tuple[Tensor, ...]] | None:
    """Return the steps that compute a step's output from one tensor, and the constants that they read.

    None if another tensor is read on the way, or a step of another type is among them.
    """
    members: set[int] = set()
    constants: dict[int, Tensor] = {}
    waiting = [last]
    while waiting:
        place = waiting.pop()
        if place in members:
            continue
        step = graph.steps[place]
        if step.domain or step.op_type not in types or len(members) == _MOST_STEPS:
            return None
        members.add(place)
        for tensor in step.given:
            if tensor.constant:
                constants[id(tensor)] = tensor
            elif tensor is not start:
                if tensor.producer is None:
                    return None
                waiting.append(tensor.producer)
    return frozenset(members), tuple(constants.values())


def _before(graph: _Steps, place: int, types: Sequence[str]) -> Iterator[Tensor]:
    """Yield the tensors that a step may have been made from, the nearest first."""
    waiting = list(graph.steps[place].read)
    for _ in range(_MOST_STEPS):
        if not waiting:
            return
        tensor = waiting.pop(0)
        yield tensor
        if tensor.producer is not None and graph.steps[tensor.producer].op_type in types:
            waiting += graph.steps[tensor.producer].read


def _after(graph: _Steps, place: int, types: Sequence[str]) -> Iterator[int]:
    """Yield the steps of some types each of which alone reads the output of the previous one."""
    following = graph.follower(place)
    for _ in range(_MOST_STEPS):
        if following is None or graph.steps[following].domain or graph.steps[following].op_type not in types:
            return
        yield following
        following = graph.follower(following)


def _is_gate(step: Step) -> bool:
    """Say whether a step multiplies two different tensors of the network."""
    return step.op_type == "Mul" and len({id(x) for x in step.read}) == 2


def _gelu(graph: _Steps, place: int) -> _Formula | None:
    """Return the GELU that an error function, or a hyperbolic tangent, is part of: x (1 + erf(x / sqrt 2)) / 2."""
    for start in _before(graph, place, _OF_GELU):
        for last in _after(graph, place, _OF_GELU):
            region = _between(graph, start, last, _OF_GELU)
            if region is None or place not in region[0]:
                continue
            members = region[0]
            if not any(_is_gate(graph.steps[i]) for i in members if i > place):  # a cube before a tangent is no gate
                continue
            following = graph.follower(last)
            if (
                following is not None
                and _is_scaled(graph.steps[following])
                and len(region[1]) < _constants_of(graph, place)
            ):
                members |= {following}
            if not graph.is_closed(members):
                continue
            return _Formula(members, _whole(graph, max(members), "Gelu", (start,)))
    return None


def _constants_of(graph: _Steps, place: int) -> int:
    """Return how many constants the formula of a GELU has: sqrt 2, 1 and 1/2, or two more with a tangent."""
    if graph.steps[place].op_type == "Erf":
        return 3
    return 5


def _silu(graph: _Steps, place: int) -> _Formula | None:
    """Return x sigmoid(x), if a sigmoid is part of that."""
    start = _variable(graph.steps[place])
    last = graph.follower(place)
    if start is None or last is None:
        return None
    step = graph.steps[last]
    members = frozenset((place, last))
    if step.domain or not _is_gate(step) or all(x is not start for x in step.read) or not graph.is_closed(members):
        return None
    return _Formula(members, _whole(graph, last, "Swish", (start,)))


def _layer_norm(graph: _Steps, place: int) -> _Formula | None:
    """Return the layer normalisation that a root is part of: (x - mean) / root(variance + eps), scaled and shifted."""
    for start in _before(graph, place, _OF_NORM):
        widest: _Formula | None = None
        for last in _after(graph, place, _OF_NORM):
            region = _between(graph, start, last, _OF_NORM)
            if region is None or not graph.is_closed(region[0]) or _is_used_again(graph, start, region[0]):
                continue
            types = [graph.steps[i].op_type for i in region[0]]
            means = [graph.steps[i] for i in region[0] if graph.steps[i].op_type == "ReduceMean"]
            if len(means) != 2 or "Sub" not in types or "Div" not in types or not all(map(_is_mean_of_last, means)):
                continue
            parameters = [x for x in region[1] if x.shape is not None and prod(x.shape) > 1]
            if len(parameters) <= 2 and start.shape == graph.steps[last].shape_out():
                widest = _Formula(region[0], _whole(graph, last, "LayerNormalization", (start, *parameters), axis=-1))
        if widest is not None:
            return widest
    return None


def _group_norm(graph: _Steps, place: int) -> _Formula | None:
    """Return the normalisation of groups of channels that one of instances is part of, with its scale and shift."""
    instance = graph.steps[place]
    before = instance.input(0)
    after = graph.follower(place)
    if before is None or before.producer is None or after is None:
        return None
    grouping = graph.steps[before.producer]
    start = _variable(grouping)
    if start is None or start.shape is None or before.shape is None:
        return None
    shape = start.shape
    if len(shape) < 3 or len(before.shape) < 3:
        return None
    if grouping.op_type != "Reshape" or graph.steps[after].op_type != "Reshape" or before.shape[0] != shape[0]:
        return None
    members = [before.producer, place, after]
    parameters: list[Tensor] = []
    last = graph.follower(after)
    for op_type in ("Mul", "Add"):
        if last is None:
            break
        step = graph.steps[last]
        if step.domain or step.op_type != op_type or len(step.read) != 1:
            break
        parameters += [x for x in step.given if x.constant]
        members.append(last)
        last = graph.follower(last)
    everything = frozenset(members)
    is_scaled = len(parameters) == 2 and all(x.shape is not None and prod(x.shape) == shape[1] for x in parameters)
    if not is_scaled or graph.steps[max(members)].shape_out() != shape or not graph.is_closed(everything):
        return None
    whole = _whole(graph, max(members), "GroupNormalization", (start, *parameters), num_groups=before.shape[1])
    return _Formula(everything, whole)


def _is_used_again(graph: _Steps, start: Tensor, members: frozenset[int]) -> bool:
    """Say whether steps other than those that a normalisation begins with read its input, as a residual would."""
    readers = members.intersection(graph.readers(start))
    return any(graph.steps[place].op_type not in ("Cast", "ReduceMean", "Sub") for place in readers)


def _is_mean_of_last(step: Step) -> bool:
    """Say whether a step averages over the last axis and keeps it."""
    shape = step.shape_in(0)
    axes = step.attributes.get("axes")
    if axes is None:
        axes_in = step.input(1)
        if axes_in is None:
            numbers = None
        else:
            numbers = axes_in.numbers()
        if numbers is None:
            axes = ()
        else:
            axes = tuple(map(int, numbers.flatten()))
    keeps = step.attributes.get("keepdims", 1)
    return bool(keeps) and tuple(axis % len(shape) for axis in axes) == (len(shape) - 1,)


_FORMULAS: Final[Mapping[str, Callable[[_Steps, int], _Formula | None]]] = MappingProxyType(
    {"Softmax": _attention, "Erf": _gelu, "Tanh": _gelu, "Sigmoid": _silu, "Sqrt": _layer_norm}
    | {"InstanceNormalization": _group_norm}
)
"""Functions that look for a formula, by the type of the step that identifies it."""
