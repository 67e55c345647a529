"""Arithmetic and bytes of operators: the rules that all networks and importers share.

FLOP
    2 per multiply-add, bias and fused activation 0. A pool counts its whole window for each output, padding
    included; an elementwise operator so many per output element as the caller says; moving data counts 0.

Bytes
    Inputs, weights and output, each moved once. Of a table in which rows are looked up, only these rows.

Works
    A rule returns a `Work`: the sizes of the computation, with its FLOP and the bytes of its parameters; `with_bytes`
    adds the bytes of tensors. An operator that only changes how a tensor is seen has no work.

Kernels
    None: a graph describes computations. The kernels depend on the device; `simsched.model.libraries` chooses
    them, and `simsched.model.launches.kernels_on` returns the kernels of a graph on a device.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from simsched.base.errors import GraphError, brief_text
from simsched.model.graph import DTYPE_NBYTES, OpGraph, Work
from simsched.model.graph.rearranged import with_works
from workloads.equations import pairwise_order

ACTIVATION_FLOPS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "relu": 1,
        "relu6": 2,
        "leaky_relu": 2,
        "prelu": 2,
        "hard_sigmoid": 4,
        "sigmoid": 4,
        "tanh": 4,
        "silu": 5,
        "hard_swish": 5,
        "elu": 5,
        "selu": 6,
        "softplus": 6,
        "mish": 10,
        "gelu": 8,
    }
)
"""FLOP per element of each activation."""

_ELEMENT_FLOPS: Final = {
    0: "constantofshape eyelike onehot range where maskedfill tril triu",
    2: """clip clamp clampmin clampmax dequantizelinear quantizelinear shrink hardshrink softshrink softsign
          thresholdedrelu threshold addcmul addcdiv lerp""",
    4: """acos acosh asin asinh atan atan2 atanh cos cosh dynamicquantizelinear erf erfc exp exp2 expm1 log log10 log1p
          log2 logsigmoid pow rsqrt sigmoidcrossentropy sin sinh sqrt tan tanhshrink""",
    6: "celu rotaryembedding",
    10: "lrn",
}

TRANSCENDENTAL: Final = frozenset(("sigmoid", "tanh", "silu", "elu", "selu", "softplus", "mish", "gelu"))
"""Activations with exponentials or the like."""

ROW_FLOPS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "hardmax": 2,
        "softmax": 5,
        "log_softmax": 6,
        "lp_normalization": 4,
        "rms_norm": 4,
        "layer_norm": 8,
        "group_norm": 8,
        "instance_norm": 8,
        "mean_variance_normalization": 8,
    }
)
"""FLOP per element of operators that compute row by row."""

COMPUTES: Final = ("conv", "conv_transpose", "linear", "matmul", "attention", "lstm", "gru", "rnn")
"""Kinds of operators whose time is arithmetic; all others take the time of moving data."""

GATES: Final[Mapping[str, int]] = MappingProxyType({"lstm": 4, "gru": 3, "rnn": 1})
"""Gates of each kind of recurrent layer."""

INDEX_NBYTES: Final = 8


_ROW_RULES: Final = {
    "softmax": "softmax",
    "log_softmax": "softmax",
    "hardmax": "softmax",
    "rms_norm": "rms_norm",
    "order": "order",
}

T = TypeVar("T")


def by_word(rows: Mapping[T, str]) -> dict[str, T]:
    """Return a table by word of one that lists words.

    >>> by_word({1: "add sub", 2: "clip"})
    {'add': 1, 'sub': 1, 'clip': 2}
    """
    return {word: key for key, words in rows.items() for word in words.split()}


ELEMENT_FLOPS: Final[Mapping[str, int]] = MappingProxyType(by_word(_ELEMENT_FLOPS))
"""FLOP per element of the output of an operator that is not an activation, by its name in small letters; else 1."""


class Cost(NamedTuple):
    """The costs of an operator that an importer reads.

    Parameters
    ----------
    kind
        The operator's kind.
    works
        Its works, in order; none if it launches nothing.
    attributes
        The operator's attributes.
    is_counted
        Whether the works count all bytes, including the bytes of tensors.
    weight_nbytes
        Bytes of the parameters that it keeps; None for all its weights.
    reads
        Tensors that it reads; None for all that are no weights.
    """

    kind: str
    works: tuple[Work, ...] = ()
    attributes: Mapping[str, Any] = MappingProxyType({})
    is_counted: bool = False
    weight_nbytes: float | None = None
    reads: tuple[Any, ...] | None = None

    @property
    def flops(self) -> float:
        """FLOP of all its works."""
        return sum(work.flops for work in self.works)


def with_bytes(works: Sequence[Work], reads: float, weights: float, writes: float) -> tuple[Work, ...]:
    """Return the works of an operator with the bytes of its tensors.

    Parameters
    ----------
    works
        In order; bytes that they have already are of tensors between them.
    reads, writes
        Bytes that the operator reads and writes: the first work reads, the last one writes.
    weights
        Bytes of all its parameters, divided as the works' own say; where these say nothing the first has all.

    Examples
    --------
    >>> works = [Work("elementwise", writes=8.0), Work("product", reads=8.0, weights=4.0)]
    >>> with_bytes(works, 16.0, 2.0, 32.0)[1].weights
    2.0
    """
    if not works:
        return ()
    total = sum(work.weights for work in works)
    if total:
        share = [work.weights / total for work in works]
    else:
        share = [1.0, *[0.0] * (len(works) - 1)]
    last = len(works) - 1
    return tuple(
        _copy_with_bytes(work, work.reads + reads * (i == 0), weights * part, work.writes + writes * (i == last))
        for i, (work, part) in enumerate(zip(works, share, strict=True))
    )


@lru_cache(maxsize=10_000)  # the layers of a network repeat
def _copy_with_bytes(work: Work, reads: float, weights: float, writes: float) -> Work:
    """Return a work with other bytes, the same object for the same values."""
    return replace(work, reads=float(reads), weights=float(weights), writes=float(writes))


def nbytes_of(works: Sequence[Work]) -> float:
    """Return all bytes that works move."""
    return float(sum(work.reads + work.weights + work.writes for work in works))


def intensity(computes: bool) -> str:
    """Return "compute" or "memory" of an operator of a kind that computes, or moves data."""
    return "compute" if computes else "memory"


def in_fp32(graph: OpGraph, dtype: object) -> OpGraph:
    """Return a graph that computes in fp32 itself, without tf32, if that number format was asked for by name.

    A model that is fp32 because nothing else was said runs as PyTorch runs it: convolutions in tf32 where the device
    has it.
    """
    if dtype == "fp32":
        return with_works(graph, lambda work: replace(work, tf32=False))
    return graph


def of_one_model(graph: OpGraph) -> OpGraph:
    """Return a graph whose works count the bytes of all parameters that it reads; of tables it reads some rows only."""
    codes, kinds = graph.labels("works")
    read = [sum(work.weights for work in works) for works in kinds]
    parameters = float(sum(read[code] for code in codes.tolist()))
    return with_works(graph, lambda work: replace(work, parameters=parameters))


class Costs:
    """The rules for one number format.

    Parameters
    ----------
    dtype
        One of `DTYPE_NBYTES`.

    Raises
    ------
    GraphError
        If the number format is not known.

    Examples
    --------
    A 3 x 3 convolution of 64 channels to 96 on 35 x 35 pixels: 9 * 64 multiply-adds for each output.

    >>> work = Costs().conv((1, 96, 35, 35), (1, 64, 35, 35), (3, 3))
    >>> work.rows, work.columns, work.inner, work.flops == 2 * 35 * 35 * 96 * 9 * 64
    (1225, 96, 576, True)
    """

    def __init__(self, dtype: str = "fp32") -> None:
        if not isinstance(dtype, str) or dtype not in DTYPE_NBYTES:
            raise GraphError(f"unknown dtype {brief_text(dtype)}; known are: {', '.join(DTYPE_NBYTES)}")
        self.dtype = dtype
        self.width = DTYPE_NBYTES[dtype]

    def of(self, dtype: str) -> "Costs":
        """Return the rules for another number format."""
        if dtype == self.dtype:
            return self
        return Costs(dtype)

    def conv(
        self,
        output: Sequence[int],
        image: Sequence[int],
        window: Sequence[int],
        *,
        groups: int = 1,
        bias: bool = True,
        adds_bias: bool = False,
        layout: str = "strided",
    ) -> Work:
        """Return a convolution's work.

        Parameters
        ----------
        output, image
            Shapes of its output and its input, (N, C, spatial...).
        bias
            Whether there is one value per channel among the parameters.
        adds_bias
            Whether a further kernel adds it.
        layout
            Rule of the work: "plain" or "strided", see `conv_layout`, or "channels_last", which images of one pixel
            always are.
        """
        n, channels, *pixels = output
        if prod(image[2:]) == prod(pixels) == 1:
            layout = "channels_last"
        inner = image[1] // groups * prod(window)
        return Work(
            "convolution",
            layout,
            flops=2.0 * prod(output) * inner,
            weights=float(channels * (inner + bias) * self.width),
            batch=groups,
            rows=n * prod(pixels),
            columns=channels // groups,
            inner=inner,
            window=prod(window),
            elements=prod(image),
            images=n,
            bias=adds_bias,
            tf32=self.dtype == "fp32",
        )

    def conv_transpose(
        self,
        output: Sequence[int],
        image: Sequence[int],
        weights: Sequence[int],
        *,
        groups: int = 1,
        bias: bool = True,
        adds_bias: bool = False,
        layout: str = "strided",
    ) -> Work:
        """Return a transposed convolution's work: each pixel of the image goes through all weights of its channel.

        Shapes are (N, C, spatial...); weights are (C, channels of the output in a group, spatial...). An output uses as
        many taps of the window as there are pixels of the image for it: with a stride of 2 along two axes a quarter,
        rounded up.
        """
        n, channels, *pixels = output
        taps = -(-prod(weights[2:]) * prod(image[2:]) // max(1, prod(pixels)))
        return Work(
            "convolution",
            layout,
            flops=2.0 * prod(image) * prod(weights[1:]),
            weights=float((prod(weights) + bias * channels) * self.width),
            batch=groups,
            rows=n * prod(pixels),
            columns=channels // groups,
            inner=image[1] // groups * taps,
            window=taps,
            elements=prod(image),
            images=n,
            bias=adds_bias,
            tf32=self.dtype == "fp32",
        )

    def linear(
        self, rows: int, in_features: int, out_features: int, *, bias: bool = True, adds_bias: bool = False
    ) -> Work:
        """Return the work of a product with a matrix of weights; `bias` and `adds_bias` as in `conv`."""
        return Work(
            "product",
            flops=2.0 * rows * in_features * out_features,
            weights=float((in_features + bias) * out_features * self.width),
            rows=rows,
            columns=out_features,
            inner=in_features,
            bias=adds_bias,
        )

    def matmul(self, batch: int, m: int, k: int, n: int) -> Work:
        """Return the work of `batch` products of (m, k) with (k, n), no operand being weights."""
        return Work("product", flops=2.0 * batch * m * k * n, batch=batch, rows=m, columns=n, inner=k)

    def contraction(
        self, first: Sequence[str], second: Sequence[str], output: Sequence[str], sizes: Mapping[str, int]
    ) -> Work:
        """Return the work of a sum of products of two tensors, which is a stack of products of matrices.

        An index that both tensors and the output have numbers the stack; one that only the tensors have is summed.

        Parameters
        ----------
        first, second, output
            Indices of the axes of each.
        sizes
            Size of each index.

        Examples
        --------
        >>> work = Costs().contraction("bij", "bjk", "bik", {"b": 2, "i": 3, "j": 4, "k": 5})
        >>> work.batch, work.rows, work.inner, work.columns
        (2, 3, 4, 5)
        """
        stack = rows = inner = columns = 1
        for index, n in sizes.items():
            if index in first and index in second:
                if index in output:
                    stack = stack * n
                    inner = inner
                else:
                    stack = stack
                    inner = inner * n
            elif index in first:
                rows *= n
            else:
                columns *= n
        return self.matmul(stack, rows, inner, columns)

    def einsum(
        self, operands: Sequence[Sequence[str]], output: Sequence[str], sizes: Mapping[str, int]
    ) -> tuple[Work, ...]:
        """Return the works of a sum of products of tensors: products of two at a time, in the best order.

        Parameters
        ----------
        operands, output
            Indices of the axes of each tensor, and of the output.
        sizes
            Size of each index.

        Returns
        -------
        tuple of Work
            One for each pair; the tensor between two works has its bytes. A single tensor gives a reduction, or a copy
            where nothing is summed.

        Notes
        -----
        The order with the fewest FLOP for up to 8 tensors, and a greedy one for more; equal ones as
        ``numpy.einsum_path`` chooses.

        Examples
        --------
        Two products of 64 x 64 by 64 x 64 rather than 64^4 products:

        >>> sizes = dict.fromkeys("ijkl", 64)
        >>> sum(work.flops for work in Costs().einsum(["ij", "jk", "kl"], "il", sizes)) == 2 * 2 * 64**3
        True
        """
        left = [tuple(operand) for operand in operands]
        if len(left) == 1:
            written, read = (prod(sizes[index] for index in dict.fromkeys(x)) for x in (output, left[0]))
            if written == read:
                return (self.regroup(tuple(sizes[index] for index in output), in_rows=left[0][-1:] == (*output,)[-1:]),)
            return (self.reduction(written, -(-read // max(1, written)), flops=float(read)),)
        works: list[Work] = []
        for pair in pairwise_order(left, tuple(output), sizes):
            second, first = (left.pop(i) for i in sorted(pair, reverse=True))
            needed = {*output, *(index for operand in left for index in operand)}
            joined = tuple(dict.fromkeys((*first, *second)))
            if left:
                product = tuple(index for index in joined if index in needed)
                passed = float(prod(sizes[index] for index in product) * self.width)
            else:
                product = tuple(output)
                passed = 0.0
            inner = {index: sizes[index] for index in joined}
            works.append(replace(self.contraction(first, second, product, inner), writes=passed))
            left.append(product)
        waiting = [work.writes for work in works[:-1]]
        works[-1] = replace(works[-1], reads=sum(waiting))
        return tuple(works)

    def pool(self, output: Sequence[int], window: Sequence[int]) -> Work:
        """Return the work of a pool."""
        return replace(self.elementwise(output, flops=prod(window), rule="pool"), window=prod(window))

    def global_pool(self, output: Sequence[int], window: Sequence[int]) -> Work:
        """Return the work of a pool whose window covers the whole image: a reduction."""
        return self.reduction(prod(output), prod(window), flops=float(prod(output) * prod(window)))

    def elementwise(self, output: Sequence[int], *, flops: float = 0.0, rule: str = "map", n_weights: int = 0) -> Work:
        """Return the work of one thread or less per output element, with so many `flops` each; a copy has none."""
        return Work(
            "elementwise",
            rule,
            flops=float(prod(output) * flops),
            weights=float(n_weights * self.width),
            rows=max(1, prod(output)),
        )

    def activation(self, kind: str, output: Sequence[int]) -> Work:
        """Return the work of one of `ACTIVATION_FLOPS`."""
        if kind in TRANSCENDENTAL:
            rule = "activation"
        else:
            rule = "map"
        return self.elementwise(output, flops=ACTIVATION_FLOPS[kind], rule=rule)

    def copy(self, output: Sequence[int], *, rule: str = "copy") -> Work:
        """Return the work of a copy that reads as many bytes as it writes, with these bytes."""
        moved = float(prod(output) * self.width)
        return replace(self.elementwise(output, rule=rule), reads=moved, writes=moved)

    def regroup(self, output: Sequence[int], *, in_rows: bool) -> Work:
        """Return the work of a copy to another order of axes; `in_rows` if elements of the last axis stay together."""
        return self.elementwise(output, rule="channels" if in_rows else "permute")

    def batch_norm(self, output: Sequence[int]) -> Work:
        """Return the work of a batch normalisation in inference of (N, C, ...): 2 FLOP and 4 parameters a channel."""
        if len(output) > 1:
            n, channels, *pixels = output
        else:
            n, channels, *pixels = (1, *output)
        return Work(
            "batch_norm",
            flops=2.0 * prod(output),
            weights=float(4 * channels * self.width),
            batch=n,
            rows=prod(pixels),
            columns=channels,
        )

    def rows(self, kind: str, n_rows: int, length: int, *, flops: float | None = None, n_weights: int = 0) -> Work:
        """Return the work of something computed along rows, one of `ROW_FLOPS`, or with so many `flops` in all."""
        if flops is None:
            total = float(n_rows * length * ROW_FLOPS[kind])
        else:
            total = flops
        rule = _ROW_RULES.get(kind, "layer_norm")
        return Work(
            "rows", rule, flops=total, weights=float(n_weights * self.width), rows=n_rows, columns=max(1, length)
        )

    def reduction(self, n_outputs: int, length: int, *, flops: float, rule: str = "sum") -> Work:
        """Return the work of outputs of which each combines `length` elements, with so many `flops` in all."""
        return Work("reduction", rule, flops=flops, rows=max(1, n_outputs), columns=max(1, length))

    def gather(self, n_rows: int, length: int, *, indices: float, window: int = 1) -> Work:
        """Return the work of a look-up of rows of a table, with all its bytes.

        Parameters
        ----------
        n_rows, length
            Rows that are read, and elements of each.
        indices
            Bytes that say which.
        window
            Rows that are added up for each output.
        """
        read = float(n_rows * length * self.width)
        outputs = max(1, n_rows // window)
        return Work(
            "gather",
            flops=float((n_rows - outputs) * length) if window > 1 else 0.0,
            reads=read + indices,
            writes=float(outputs * length * self.width),
            rows=max(1, n_rows),
            columns=max(1, length),
            window=window,
        )

    def moved_rows(self, n_rows: int, length: int) -> Work:
        """Return the work of moving rows of a tensor to or from where indices say, one by one if they are no rows."""
        if length > 1:
            return Work("gather", rows=max(1, n_rows), columns=length)
        return self.elementwise((n_rows,), rule="permute")

    def attention(self, heads: int, queries: int, keys: int, size: int, value_size: int | None = None) -> Work:
        """Return the work of softmax(q k) v in one kernel that writes no scores, with 5 FLOP for each score.

        Parameters
        ----------
        heads
            Heads of all sequences.
        queries, keys
            Tokens of a sequence that ask, and that are asked.
        size, value_size
            Features of a head of queries and keys, and of values; by default the same.
        """
        scores = float(heads * queries * keys)
        if value_size is None:
            value_size = size
        return Work(
            "attention",
            flops=scores * (2.0 * (size + value_size) + ROW_FLOPS["softmax"]),
            batch=heads,
            rows=queries,
            columns=keys,
            inner=max(size, value_size),
        )

    def recurrence(
        self, kind: str, steps: int, batch: int, features: int, hidden: int, *, directions: int = 1, bias: int = 0
    ) -> Work:
        """Return the work of a recurrent layer, one of `GATES`, both directions beside each other.

        Parameters
        ----------
        steps, batch
            Steps one after the other, and sequences.
        features, hidden
            Numbers of an input, and of a state.
        bias
            Values per unit and gate among the parameters.
        """
        gates = GATES[kind]
        per_step = gates * hidden * (features + hidden)
        return Work(
            "recurrence",
            kind,
            flops=2.0 * steps * batch * directions * per_step,
            weights=float(directions * (per_step + bias * gates * hidden) * self.width),
            batch=batch,
            rows=steps,
            columns=directions * hidden,
            inner=features,
            window=gates,
        )


def conv_layout(stride: Any, padding: Any, dilation: Any = 1) -> str:
    """Return the rule of a convolution: "plain" if its stride is 1, without padding and dilation.

    Each is a number, a text or a sequence of numbers.
    """
    plain = _all(stride, 1) and _all(dilation, 1) and (padding == "valid" or _all(padding, 0))
    return "plain" if plain else "strided"


def _all(value: Any, number: int) -> bool:
    return all(number_there == number for number_there in (value if isinstance(value, list | tuple) else (value,)))
