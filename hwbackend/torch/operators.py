"""Operators of a graph as calls of PyTorch: what each computes of its inputs, with weights drawn at random.

An operator is one call, or one for each of its parts; how many kernels that launches is the business of PyTorch. Kinds,
attributes, units of several parts and what `simsched.rewriting` makes of them are those of `workloads.models`. A
``synth`` operator multiplies matrices and copies memory for its FLOP and bytes; its output is 0.25, to which in the
first 256 elements, number i, half of the mean of elements ``i % size`` of all that it reads is added.

Values are drawn by the names of operators and by the shapes of inputs, so two runs of a graph have the same.
"""

from collections.abc import Sequence
from math import ceil, inf, prod
from typing import Any, Final

import numpy as np

from hwbackend.measuring.synth import OUTPUT_NBYTES, SYNTH
from hwbackend.torch.devices import tf32_allowed
from hwbackend.torch.kinds import KINDS, activation
from hwbackend.torch.pieces import Call, Parameters, Piece, Shape, drawn_parameters, fit_to_shape, pieces
from simsched.base.errors import BackendError
from simsched.model.graph import DTYPE_NBYTES, Operator

VIEWS: Final = ("view", "flatten", "reshape", "transpose", "dropout", "slice", "identity", "expand")
"""Kinds that need no kernel: without one they are another look at what they read."""

_MOVES: Final = (*VIEWS, "copy")
_DTYPES: Final = {"fp64": "float64", "fp16": "float16", "bf16": "bfloat16"}  # the rest is computed in float32
_LARGEST_COPY: Final = 1 << 26  # elements
_SIZES: Final = ((1e7, 64), (1e9, 256), (inf, 1024))  # FLOP up to which synthetic matrices have so many columns


class Place:
    """A device of PyTorch with the memory that its synthetic operators share."""

    def __init__(self, torch: Any, device: Any) -> None:
        self.torch = torch
        self.device = device
        self._shared: dict[str, Any] = {}

    def dtype(self, name: str) -> Any:
        """Return PyTorch's number format for one of `DTYPE_NBYTES`; what it cannot compute in is float32."""
        return getattr(self.torch, _DTYPES.get(name, "float32"))

    def tensor(self, values: Any, dtype: str) -> Any:
        """Return an array as a tensor on the device."""
        return self.torch.as_tensor(np.asarray(values), dtype=self.dtype(dtype)).to(self.device)

    def shared(self, name: str, n: int) -> Any:
        """Return `n` floats, the same memory for all that ask by this name; what is written there is never read."""
        if name not in self._shared or self._shared[name].numel() < n:
            self._shared[name] = self.torch.full((n,), 2.0**-10, device=self.device)
        return self._shared[name][:n]


def uses_tf32(op: Operator) -> bool:
    """Say whether tensor cores may compute an operator in TF32: its number format, or one of its works, says so."""
    return op.dtype == "tf32" or (op.dtype == "fp32" and any(work.tf32 for work in op.works))


def output_shape(op: Operator, nbytes: float) -> Shape:
    """Return the shape of an operator's output; `nbytes` are those that others read, where it says nothing itself."""
    return op.output_shape or (max(1, OUTPUT_NBYTES // 4, ceil(nbytes / DTYPE_NBYTES[op.dtype])),)


def call_of(op: Operator, nbytes: float, place: Place, parameters: Parameters = drawn_parameters) -> Call:
    """Return what computes an operator; its weights are made now, on the device.

    Parameters
    ----------
    op
        The operator; a kind ``"synth"`` takes any number of inputs.
    nbytes
        Bytes of its output that others read, for the size of an output whose shape is not known.
    place
        Where it runs.
    parameters
        Makes the weights of each piece.

    Raises
    ------
    BackendError
        If there is no call for its kind, or an attribute is missing.
    """
    if op.kind == SYNTH:
        return _synthetic(op, output_shape(op, nbytes), place)
    call = _computed(op, place, parameters)
    return _in_tf32(place.torch, call) if place.device.type == "cuda" and uses_tf32(op) else call


def _in_tf32(torch: Any, call: Call) -> Call:
    """Return a call during which products and convolutions may use TF32."""

    def run(xs: Sequence[Any]) -> Any:
        with tf32_allowed(torch):
            return call(xs)

    return run


def _computed(op: Operator, place: Place, parameters: Parameters) -> Call:
    """Return the call of an operator's parts, in order."""
    made = [(piece, _piece_call(op, piece, place, parameters)) for piece in pieces(op)]
    if len(made) == 1:
        return made[0][1]

    def run(xs: Sequence[Any]) -> Any:
        values: list[Any] = []
        for piece, call in made:
            read = [xs[~r] if r < 0 else values[r] for r in piece.reads]
            values.append(call([fit_to_shape(x, shape) for x, shape in zip(read, piece.shapes, strict=True)]))
        return values[-1]

    return run


def _piece_call(op: Operator, piece: Piece, place: Place, parameters: Parameters) -> Call:
    weight, bias = None, None
    try:
        if piece.has_weights:
            weight, bias = parameters(piece)
            weight = place.tensor(weight, op.dtype)
            bias = None if bias is None else place.tensor(bias, op.dtype)
        if piece.kind in _MOVES:
            return _move_call(piece, bool(op.kernels or op.works) or piece.part is not None)
        make = KINDS.get(piece.kind)
        if make is None:
            raise BackendError(
                f"operator {op.name!r}: the torch backend has no call for kind {piece.kind!r}; without kernels it runs "
                "as a synthetic operator of its time"
            )
        call = make(place.torch, piece, weight, bias)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise BackendError(
            f"operator {op.name!r} of kind {piece.kind!r} cannot be computed by torch: {type(error).__name__}: {error}"
        ) from error
    if not piece.given.get("activation"):
        return call
    finish = activation(place.torch, piece.given["activation"])
    return lambda xs: finish(call(xs))


def _move_call(piece: Piece, copies: bool) -> Call:
    """Return what moves elements, or only looks at them in another way."""
    axis, begin, end = (piece.given.get(key) for key in ("axis", "begin", "end"))
    shape = piece.output

    def look(xs: Sequence[Any]) -> Any:
        x = xs[0]
        if piece.kind == "slice" and begin is not None:
            x = x.narrow(axis, begin, end - begin)
        return fit_to_shape(x, shape)

    return (lambda xs: look(xs).clone()) if copies else look


def _synthetic(op: Operator, shape: Shape, place: Place) -> Call:
    """Return products of matrices and copies of as many FLOP and bytes as an operator has."""
    torch, dtype, n_out = place.torch, place.dtype(op.dtype), prod(shape)
    n = next(n for most, n in _SIZES if op.flops < most)
    rows = round(op.flops / (2 * n * n))
    most_rows = 16 * n
    products = [most_rows] * (rows // most_rows) + [rows % most_rows] * (rows % most_rows > 0)
    left = place.shared("left", products[0] * n if products else 0).reshape(-1, n)
    right = place.shared("right", n * n).reshape(n, n)
    n_mixed = min(n_out, OUTPUT_NBYTES // 4)
    moved = max(0.0, op.nbytes - 4.0 * (sum(2 * r * n + n * n for r in products) + n_out))
    n_moved = int(moved) // 8  # each element is read and written
    copies = [_LARGEST_COPY] * (n_moved // _LARGEST_COPY) + [n_moved % _LARGEST_COPY] * (n_moved % _LARGEST_COPY > 0)
    source, sink = (place.shared(name, max(copies, default=1)) for name in ("source", "sink"))

    def run(xs: Sequence[Any]) -> Any:
        for r in products:
            torch.mm(left[:r], right)
        for size in copies:
            sink[:size].copy_(source[:size])
        out = torch.full((n_out,), 0.25, dtype=dtype, device=place.device)
        for x in xs:
            out[:n_mixed].add_(fit_to_shape(x, (n_mixed,)), alpha=0.5 / len(xs))
        return out.reshape(shape)

    return run
