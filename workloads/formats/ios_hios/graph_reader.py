"""Operators of IOS's graph JSON, and of HIOS's, which extends it, as operators of an `OpGraph`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final, NamedTuple

from simsched.base.codec import Among, Range, Record
from simsched.base.errors import FormatError, GraphError, brief_text
from simsched.base.numeric import is_count
from workloads.checks import whole
from workloads.models.network import Network, Tensor

_ACTIVATIONS: Final = ("relu", "sigmoid", "tanh")
_NO_ACTIVATION: Final = "identity"
_POOLS: Final = ("max", "avg", "global_max", "global_avg")
LARGEST: Final = 2**31 - 1
"""Of any size in a file: products of a few of them are still floats."""

_Size = Annotated[int, Range(1, LARGEST)]
_Margin = Annotated[int, Range(0, LARGEST)]
_Shape = tuple[_Size, _Size, _Size]
Stages = list[list[list[str]]]
Terms = Sequence[Sequence[Tensor]]
"""Inputs of a node: tensors to be added within a term, and terms to be concatenated."""


class Block(NamedTuple):
    """A block of a file: its operators, exit last, and its `stages`, unchecked."""

    where: str
    names: tuple[str, ...]
    stages: Any

    def require_once(self, ops: Iterable[str]) -> None:
        """Refuse stages in which not each operator of the block runs once."""
        left = dict.fromkeys(self.names)
        for op in ops:
            if op not in left:
                if op in self.names:
                    why = "twice"
                else:
                    why = "and it is no operator of the block"
                raise FormatError(f"{self.where}: field 'stages' names {op!r} {why}")
            del left[op]
        if left:
            raise FormatError(f"{self.where}: field 'stages' leaves out operator {next(iter(left))!r}")


class GraphReader:
    """Reads the graph of one file.

    Parameters
    ----------
    data
        The decoded file.
    source
        How errors name it.
    batch, dtype
        Batch size and number format, which the file lacks; see `workloads.formats.ios_hios.ios.read_ios`.
    ranked
        Whether it is a file of HIOS, whose operators have a rank and whose values have seven entries.

    Attributes
    ----------
    graph
        The graph, operators in file order.
    blocks
        The blocks, in file order.
    ranks
        Rank of each operator, if `ranked`.
    """

    def __init__(self, data: Any, source: str, batch: int, dtype: str, *, ranked: bool = False) -> None:
        top = Record(data, source)
        self.ranks: dict[str, int] = {}
        self._source = source
        self._batch = whole(source, "batch", batch, most=LARGEST)
        self._ranked = ranked
        self._net = Network(top.take("name", str), dtype)
        self._tensors: dict[str, Tensor] = {}
        enter = self._placeholder(top.take("input", dict))
        blocks: list[Block] = []
        for i, row in enumerate(top.records("blocks")):
            name = row.take("enter_name", str)
            if name != enter:
                raise FormatError(
                    f"{row.where}: field 'enter_name' is {name!r}, but the block before ends in {enter!r}"
                )
            self._net.block = f"block{i}"
            nodes = [*row.take("inner_nodes", list), row.take("exit_node", dict)]
            names = tuple(self._operator(node, f"{row.where}: operator {j}") for j, node in enumerate(nodes))
            blocks.append(Block(row.where, names, row.take("stages", list, None)))
            enter = names[-1]
        if not blocks:
            raise FormatError(f"{source}: field 'blocks' is empty; a graph needs at least one operator")
        self.blocks = tuple(blocks)
        self.graph = self._net.graph()

    def _placeholder(self, data: dict[str, Any]) -> str:
        row = Record(data, f"{self._source}: input")
        name: str = row.take("name", str)
        shape = row.take("output_shape", _Shape)
        try:
            self._tensors[name] = self._net.input(self._batch, *shape)
        except GraphError as error:
            raise GraphError(f"{row.where}: {error}") from error
        return name

    def _operator(self, data: Any, where: str) -> str:
        name: str = Record(data, where).take("name", str)
        row = Record(data, f"{self._source}: operator {name!r}")
        if not name or name in self._tensors:
            raise FormatError(f"{where}: field 'name' is {name!r}, which is {'taken' if name else 'empty'}")
        kind = row.take("type", str)
        hint = row.take("hint_name", str, name)
        if self._ranked:
            self.ranks[name] = row.take("rank", int)
        try:
            with self._net.unit(name, kind, {"hint_name": hint} if hint != name else {}):
                if kind == "sequential":
                    tensor = self._compound(row)
                else:
                    tensor = self._node(row, self._tensors)
        except GraphError as error:
            raise GraphError(f"{row.where}: {error}") from error
        self._tensors[name] = tensor
        return name

    def _compound(self, row: Record) -> Tensor:
        """Add the parts of a `sequential`, of which only the first reads values from outside."""
        parts: dict[str, Tensor] = {}
        nodes = row.records("nodes")
        if not nodes:
            raise FormatError(f"{row.where}: field 'nodes' is empty")
        for node in nodes:
            name = node.take("name", str)
            if name in parts:
                raise FormatError(f"{node.where}: field 'name' is {name!r}, which is taken")
            tensor = self._node(node, parts or self._tensors)
            parts[name] = tensor
        _check_shape(row, tensor)
        return tensor

    def _node(self, row: Record, scope: Mapping[str, Tensor]) -> Tensor:
        """Add the operator of one node of the file, which reads tensors of `scope`."""
        kind = row.take("type", str)
        if kind not in _MAKERS or (kind == "mpi_sr" and not self._ranked):
            kinds = ", ".join(key for key in ("sequential", *_MAKERS) if key != "mpi_sr")
            if kind == "sequential":
                what = "cannot stand inside a 'sequential'"
            else:
                what = f"is not known; known are: {kinds}"
            raise FormatError(f"{row.where}: field 'type' is {kind!r}, which {what}")
        terms = self._terms(row, scope)
        tensor = _MAKERS[kind](self._net, row, terms)
        _check_shape(row, tensor)
        return tensor

    def _terms(self, row: Record, scope: Mapping[str, Tensor]) -> Terms:
        """Return the inputs of a node: the sum of the values of each term, in the order of the terms."""
        terms = row.take("inputs", list)
        if not terms or not all(isinstance(term, list) and term for term in terms):
            raise FormatError(f"{row.where}: field 'inputs' must be a list of lists of values, none empty")
        tensors = [[self._value(value, row, scope) for value in term] for term in terms]
        for term in tensors:
            for x in term:
                if x.shape != term[0].shape:
                    other = term[0]
                else:
                    other = tensors[0][0]
                if x.shape != term[0].shape or x.shape[2:] != other.shape[2:]:
                    raise FormatError(
                        f"{row.where}: field 'inputs' puts {_size(x)} together with {_size(other)}: their shapes differ"
                    )
        return tensors

    def _value(self, data: Any, row: Record, scope: Mapping[str, Tensor]) -> Tensor:
        if self._ranked:
            form = "[name, begin, end, height, width, rank, tag]"
        else:
            form = "[name, begin, end]"
        if not isinstance(data, list) or len(data) != (7 if self._ranked else 3) or not isinstance(data[0], str):
            if self._ranked:
                other = ""
            else:
                other = "; values of seven are HIOS's"
            raise FormatError(f"{row.where}: field 'inputs' must hold values {form}{other}, not {brief_text(data)}")
        name, begin, end = data[:3]
        if name not in scope:
            if scope is self._tensors:
                place = "no operator before it"
            else:
                place = "no earlier part of the operator"
            raise FormatError(f"{row.where}: field 'inputs' names {name!r}, which is {place}")
        whole_tensor = scope[name]
        channels, *image = whole_tensor.shape[1:]
        if not (is_count(begin) and is_count(end) and begin < end <= channels):
            raise FormatError(
                f"{row.where}: field 'inputs' reads channels {brief_text(begin)} to {brief_text(end)} of {name!r}, "
                f"which has {channels}"
            )
        if scope is not self._tensors and end - begin != channels:
            raise FormatError(f"{row.where}: field 'inputs' reads a slice of {name!r}; a part must be read whole")
        if self._ranked and data[3:5] != image:
            raise FormatError(
                f"{row.where}: field 'inputs' gives {name!r} the size {brief_text(data[3:5])}; it is {image}"
            )
        return replace(whole_tensor, shape=(self._batch, end - begin, *image))


def _size(x: Tensor) -> str:
    if x.producer is None:
        name = "the input"
    else:
        name = repr(x.producer)
    return f"{name} ({' x '.join(map(str, x.shape[1:]))})"


def _check_shape(row: Record, found: Tensor) -> None:
    """Refuse a recorded shape that the operator does not make; a file may leave it out."""
    if row.take("output_shape", list, None) is None:
        return
    stated = row.take("output_shape", _Shape)
    if stated != found.shape[1:]:
        raise FormatError(
            f"{row.where}: field 'output_shape' is {list(stated)}, but its inputs and attributes make "
            f"{list(found.shape[1:])}"
        )


def _combine(net: Network, terms: Terms, kind: str = "add") -> Tensor:
    """Add the sums (or products) and the concatenation in front of an operator, if there are any."""
    several = {i: net.elementwise("inputs", kind, xs, flops=len(xs) - 1) for i, xs in enumerate(terms) if len(xs) > 1}
    inputs = [several.get(i, xs[0]) for i, xs in enumerate(terms)]
    if len(inputs) == 1:
        return inputs[0]
    return net.concat("inputs", inputs)


def _identity(net: Network, row: Record, terms: Terms) -> Tensor:
    x = _combine(net, terms)
    if sum(map(len, terms)) == 1:
        return net.copy("copy", x, x.shape, kind=row.take("type", str))
    return x


def _element(net: Network, row: Record, terms: Terms) -> Tensor:
    kind = row.take("op_type", Annotated[str, Among(("add", "mul"))])
    if any(len(term) < 2 for term in terms):
        raise FormatError(f"{row.where}: field 'inputs' must hold at least two values in each term of an element")
    return _combine(net, terms, kind)


def _window(row: Record) -> dict[str, Any]:
    """Return kernel, stride and padding, each as (height, width)."""
    hints = {"kernel": tuple[_Size, _Size], "stride": tuple[_Size, _Size], "padding": tuple[_Margin, _Margin]}
    return {key: row.take(key, hint) for key, hint in hints.items()}


def _conv(net: Network, row: Record, terms: Terms) -> Tensor:
    act = row.take("act", Annotated[str, Among((*_ACTIVATIONS, _NO_ACTIVATION))])
    if act == _NO_ACTIVATION:
        activation = None
    else:
        activation = act
    window = _window(row)
    channels = row.take("out_channels", _Size)
    groups = row.take("groups", _Size)
    return net.conv("conv", _combine(net, terms), channels, groups=groups, activation=activation, **window)


def _pool(net: Network, row: Record, terms: Terms) -> Tensor:
    pool = row.take("pool_type", Annotated[str, Among(_POOLS)])
    x = _combine(net, terms)
    if pool.startswith("global_"):
        return net.global_pool("pool", x, pool.removeprefix("global_"))
    return net.pool("pool", x, pool, **_window(row))


def _activation(net: Network, row: Record, terms: Terms) -> Tensor:
    if row.take("type", str) == "relu":
        kind = "relu"
    else:
        kind = row.take("act_type", Annotated[str, Among(_ACTIVATIONS)])
    return net.activation(kind, _combine(net, terms), kind)


_MAKERS: Final[Mapping[str, Callable[[Network, Record, Terms], Tensor]]] = {
    "conv": _conv,
    "pool": _pool,
    "relu": _activation,
    "activation": _activation,
    "element": _element,
    "identity": _identity,
    "mpi_sr": _identity,
}


def stage_lists(value: Any, where: str) -> Stages:
    """Return a list of stages, each a list of groups, each a list of operator names; HIOS has names as numbers too."""

    def as_list(value: Any, what: str) -> list[Any]:
        if not isinstance(value, list) or not value:
            raise FormatError(
                f"{where}: field 'stages': a {what} must be a list that is not empty, not {brief_text(value)}"
            )
        return value

    def as_name(value: Any) -> str:
        if not isinstance(value, str) and not is_count(value):
            raise FormatError(f"{where}: field 'stages': a group must hold operator names, not {brief_text(value)}")
        return str(value)

    if not isinstance(value, list):
        raise FormatError(f"{where}: field 'stages' must be a list, not {brief_text(value)}")
    return [
        [[as_name(name) for name in as_list(group, "group")] for group in as_list(stage, "stage")] for stage in value
    ]
