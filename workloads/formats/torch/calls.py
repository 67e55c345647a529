"""PyTorch's names of operations, and their meaning here.

An operation goes by many names: the module ``nn.MaxPool2d``, the functions ``F.max_pool2d`` and ``relu_``, the
overload ``aten.max_pool2d_with_indices.default``, a method of a tensor. Without case and underscores they fall
together, so each has one `Call.key`, such as ``"maxpool2d"``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final, NamedTuple

from workloads.costs import by_word

Shape = tuple[int, ...]


class Operand(NamedTuple):
    """A tensor that a call reads or writes; `dtype` None covers whole numbers and others that are not floats."""

    shape: Shape
    width: int  # bytes per element
    dtype: str | None
    strides: Shape  # elements from one to the next along each axis; 0 where an expanded tensor repeats them
    is_weight: bool
    place: tuple[int, int] | None = None  # number of its storage, and the offset in it; None if not known

    @property
    def n(self) -> int:
        """How many elements it has."""
        return prod(self.shape)

    @property
    def n_stored(self) -> int:
        """How many of them are in memory."""
        return prod(size for size, step in zip(self.shape, self.strides, strict=True) if step)

    @property
    def nbytes(self) -> float:
        """Its bytes in memory."""
        return float(self.n_stored * self.width)

    @property
    def contiguous(self) -> bool:
        """Whether its elements lie one after the other."""
        return self._is_dense(range(len(self.shape)))

    @property
    def channels_last(self) -> bool:
        """Whether the elements of axis 1 are innermost, one after the other, and would not be otherwise."""
        rank = len(self.shape)
        return rank > 3 and not self.contiguous and self._is_dense((0, *range(2, rank), 1))

    def _is_dense(self, axes: Sequence[int]) -> bool:
        expected = 1
        for axis in reversed(axes):
            if self.shape[axis] != 1 and self.strides[axis] != expected:
                return False
            expected *= self.shape[axis]
        return True


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an operation: the tensors it reads, in the order of its arguments, and writes."""

    key: str
    operands: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    in_place: bool = False  # whether it writes to its first operand

    @property
    def inputs(self) -> tuple[Operand, ...]:
        """The operands that are not weights."""
        return tuple(x for x in self.operands if not x.is_weight)

    @property
    def weights(self) -> tuple[Operand, ...]:
        """The operands that are weights."""
        return tuple(x for x in self.operands if x.is_weight)

    @property
    def output(self) -> Operand:
        """The first tensor it writes."""
        return self.outputs[0]


def key_of(name: str) -> str:
    """Return a name without case, underscores and the parts that only name the output.

    >>> key_of("MaxPool2d"), key_of("max_pool2d_with_indices"), key_of("relu_"), key_of("__iadd__")
    ('maxpool2d', 'maxpool2d', 'relu', 'add')
    """
    plain = name.lower().replace("_", "") or name
    return _SAME.get(plain, plain)


_SAME: Final = by_word(
    {
        "add": "iadd radd",
        "sub": "isub",
        "mul": "imul rmul",
        "div": "itruediv truediv",
        "matmul": "imatmul",
        "maxpool1d": "maxpool1dwithindices",
        "maxpool2d": "maxpool2dwithindices",
        "maxpool3d": "maxpool3dwithindices",
        "batchnorm": """batchnorm1d batchnorm2d batchnorm3d syncbatchnorm cudnnbatchnorm nativebatchnorm
                        nativebatchnormlegitnotraining""",
        "layernorm": "nativelayernorm",
        "groupnorm": "nativegroupnorm",
        "rmsnorm": "fusedrmsnorm",
        "instancenorm": "instancenorm1d instancenorm2d instancenorm3d",
        "cat": "concat concatenate",
        "relu6": "hardtanh",
        "silu": "swish",
        "rnn": "rnntanh rnnrelu",
        "softmax": "softmax2d",
        "view": "unsafeview reshapealias",
        "to": "tocopy",
        "interpolate": "upsample",
        "embeddingbag": "embeddingbagforwardonly",
        "gather": "takealongdim",
        "indexput": "indexputimpl unsafeindexput",
    }
)


def settings_of(key: str, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a function or method by name; arguments by place have the names of their places.

    >>> settings_of("linear", ["x"], {"bias": "b", "weight": "w"})
    {'input': 'x', 'weight': 'w', 'bias': 'b'}
    """
    places = _PARAMETERS.get(key, "").split()
    names = [*places, *(f"argument {i}" for i in range(len(places), len(arguments)))]
    settings = dict(zip(names, arguments, strict=False)) | dict(keywords)
    return {name: settings[name] for name in (*places, *settings) if name in settings}


_PARAMETERS: Final = by_word(
    {
        "input weight bias stride padding dilation groups": "conv1d conv2d conv3d",
        "input weight bias stride padding output_padding groups dilation": (
            "convtranspose1d convtranspose2d convtranspose3d"
        ),
        "input kernel_size stride padding dilation ceil_mode": "maxpool1d maxpool2d maxpool3d",
        "input kernel_size stride padding ceil_mode": "avgpool1d avgpool2d avgpool3d",
        "tensors dim": "cat stack",
        "input dim": "softmax logsoftmax",
        "input num_groups": "groupnorm",
        "input normalized_shape": "layernorm rmsnorm",
        "equation": "einsum",
        "input weight bias": "linear",
        "input weight": "embedding embeddingbag",
        "input dim index source": "indexcopy indexadd indexreduce",
        "input dim index src": "scatter scatteradd scatterreduce",
        "input dim index": "indexselect gather",
        "input indices values accumulate": "indexput",
        "input running_mean running_var weight bias": "batchnorm",
        "query key value": "scaleddotproductattention",
        "input other": "matmul",
        "input mat2": "bmm mm",
        "input mat1 mat2": "addmm",
        "input batch1 batch2": "baddbmm",
    }
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


VIEWS: Final = _words(
    """
    view viewas reshape reshapeas flatten unflatten ravel squeeze unsqueeze transpose permute t swapaxes swapdims
    movedim moveaxis numpyt adjoint mt expand expandas broadcastto chunk split splitwithsizes
    tensorsplit unsafechunk unsafesplit unsafesplitwithsizes unbind select slice narrow getitem detach alias
    liftfresh liftfreshcopy identity dropout dropout1d dropout2d dropout3d alphadropout featurealphadropout
    nativedropout stochasticdepth droppath contiguous diagonal asstrided real imag viewasreal viewascomplex
    requiresgrad getattr
    """
)
"""Operations that launch nothing unless they have to copy; dropouts do nothing in inference."""

COPIED_IF_SCATTERED: Final = ("reshape", "reshapeas", "flatten", "ravel", "contiguous")
"""Views that copy a tensor whose elements are not contiguous, as after a transposition."""

SIZES_ONLY: Final = ("viewas", "reshapeas", "expandas", "typeas")
"""Operations that want only the shape or format of their second tensor."""

MOVES: Final = _words(
    """
    clone copy to type typeas float half bfloat16 double int long bool repeat tile repeatinterleave flip rot90 roll
    pad constantpadnd constantpad1d constantpad2d constantpad3d zeropad1d zeropad2d zeropad3d reflectionpad1d
    reflectionpad2d reflectionpad3d replicationpad1d replicationpad2d replicationpad3d maskedscatter slicescatter
    selectscatter pixelshuffle pixelunshuffle channelshuffle interpolate upsamplenearest1d upsamplenearest2d
    upsamplenearest3d upsamplebilinear2d upsamplebicubic2d im2col unfold col2im fold topk kthvalue sort argsort msort
    onehot
    """
)
"""Operations that move elements and compute nothing."""

READ_WHOLE: Final = ("topk", "kthvalue", "col2im", "fold")
"""Moves that read all elements, though they write fewer."""

CHOICES: Final = _words("where maskedfill tril triu")
"""Operations of no FLOP that read all their tensors."""

PICKS: Final = _words("index indexselect gather take")
"""Operations that read elements or rows of a tensor that another one numbers."""

PUTS: Final = _words("indexput indexcopy indexadd indexfill indexreduce scatter scatteradd scatterreduce")
"""Operations that write elements or rows of a tensor that another one numbers."""

PRODUCTS: Final = _words("matmul mm bmm mv dot addmm baddbmm addbmm intmm scaledmm")
"""Products of matrices, whose last two tensors are multiplied."""

FILLS: Final = _words(
    """
    zero fill normal uniform
    zeros ones full empty arange linspace eye zeroslike oneslike fulllike emptylike newzeros newones newfull
    newempty scalartensor rand randn randlike randnlike bernoulli
    """
)
"""Operations that make a tensor of nothing."""

ELEMENTWISE: Final = _words(
    """
    add sub rsub mul div floordivide floordiv remainder fmod pow maximum minimum max min clamp clampmin clampmax clip
    neg abs sign exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal square sin cos tan asin acos atan atan2
    sinh cosh erf erfc floor ceil round trunc frac eq ne lt le gt ge isnan isinf isfinite logicaland logicalor
    logicalnot logicalxor bitwiseand bitwiseor bitwisenot invert and or lerp addcmul addcdiv nantonum logsigmoid
    softsign tanhshrink hardshrink softshrink threshold celu sigmoidcrossentropy
    """
)
"""Operations on elements, with the FLOP of `workloads.costs.ELEMENT_FLOPS`."""

TRANSCENDENTAL: Final = _words(
    """
    pow exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan atan2 sinh cosh erf erfc logsigmoid
    tanhshrink celu sigmoidcrossentropy
    """
)
"""The elementwise operations that take more than an addition does."""

REDUCTIONS: Final = _words(
    """
    mean sum nansum amax amin aminmax max min argmax argmin norm linalgvectornorm vectornorm var std varmean stdmean
    prod any all cumsum cumprod logsumexp median countnonzero normalize cosinesimilarity
    """
)
"""Operations of one FLOP per element of input."""
