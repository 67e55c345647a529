"""The tensors of a program: what operators read and write, poisoned where it is to be proved that they do."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any, Final

from hwbackend.executor.feeds import Feed, feeds_of, n_copied, sequential_feeds
from hwbackend.executor.lanes import devices_of
from hwbackend.measuring.synth import SYNTH
from hwbackend.torch.operators import Place, output_shape
from hwbackend.torch.pieces import Shape, fit_to_shape
from hwbackend.torch.weights import GraphWeights
from simsched.base.errors import BackendError
from simsched.model import Operator, Program

TOLERANCE: Final = 1e-3
"""Largest relative error of an output that still counts as equal; in half precision twenty times that."""


class Values:
    """What a program computes with, on the devices that it runs on.

    Parameters
    ----------
    torch
        PyTorch.
    program
        Its copies get the memory that they land in now.
    places
        Devices of PyTorch, by number of the device.
    weights
        Weights and inputs of the operators of its graph.

    Raises
    ------
    BackendError
        If an operator cannot be computed, or may run before what it reads is there.
    """

    def __init__(self, torch: Any, program: Program, places: Sequence[Place], weights: GraphWeights) -> None:
        graph = program.graph
        self._torch, self._program, self._places = torch, program, places
        self._operators = list(graph.operators)
        self._device = devices_of(program)
        self._feeds = feeds_of(program)
        self._shapes = [output_shape(op, float(graph.output_nbytes[i])) for i, op in enumerate(self._operators)]
        self._slots = [_slots(op, row) for op, row in zip(self._operators, self._feeds, strict=True)]
        self._inputs: list[list[Any]] = []
        self._calls = []
        for i, device in enumerate(self._device):
            self._calls.append(weights.call(i, device))
            given = [weights.input(i, k, device) if slot < 0 else None for k, slot in enumerate(self._slots[i])]
            self._inputs.append(given)
        whole = dict.fromkeys(
            feed.copy
            for op, feeds in zip(self._operators, self._feeds, strict=True)
            for feed in feeds
            if feed.part is not None or (op.kind != SYNTH and op.input_shapes)
        )
        self._landed = [self._landing(row, whole) for row in range(len(program.copies.op))]
        self._written: list[Any] = []
        self._poisoned = False

    def reset(self, *, poisoned: bool = False) -> None:
        """Forget what was computed; `poisoned`: fill all that will be written with NaN, and write into that."""
        self._poisoned = poisoned
        self._written = [None] * len(self._operators)
        if poisoned:
            for landed in self._landed:
                landed.fill_(float("nan"))
            self._written = [self._buffer(i, self._device[i]) for i in range(len(self._operators))]

    def poison(self) -> None:
        """Fill what was written with NaN where it is, but for what is only a look at inputs of the network."""
        given = {value.untyped_storage().data_ptr() for row in self._inputs for value in row if value is not None}
        for written in self._written:
            if written is not None and written.untyped_storage().data_ptr() not in given:
                written.fill_(float("nan"))

    def compute(self, i: int) -> None:
        """Run operator number `i`, on the device and stream that are current."""
        result = self._calls[i](self._read(i, self._feeds[i], self._bring))
        if self._poisoned:
            self._checked_shape(i, result)
            self._written[i].copy_(result)
        else:
            self._written[i] = result

    def move(self, row: int) -> None:
        """Run copy number `row`."""
        landed = self._landed[row]
        source = self._written[int(self._program.copies.op[row])]
        landed.copy_(source.reshape(-1)[: landed.numel()].reshape(landed.shape), non_blocking=True)

    def sequential(self) -> list[Any]:
        """Return what every operator computes if all run one after the other, in the graph's order."""
        graph = self._program.graph
        found: list[Any] = [None] * len(graph)
        feeds = sequential_feeds(graph)
        for i in graph.order_index.tolist():
            bring = partial(_moved_to, found, self._places[self._device[i]].device)
            found[i] = self._calls[i](self._read(i, feeds[i], bring))
            self._checked_shape(i, found[i])
        return found

    def largest_error(self, expected: Sequence[Any]) -> float:
        """Return the largest relative error of all operators' outputs against those expected.

        Raises
        ------
        BackendError
            If a value is not a number, or the error is larger than `TOLERANCE`.
        """
        worst = 0.0
        for i in self._program.graph.order_index.tolist():
            op, wanted, got = self._operators[i], expected[i].double(), self._written[i].double()
            if not bool(wanted.isfinite().all()):
                raise BackendError(f"operator {op.name!r} computes values that are not finite, on inputs that are")
            if not bool(got.isfinite().all()):
                raise BackendError(
                    f"operator {op.name!r} wrote NaN under the schedule: it ran before what it reads was there"
                )
            error = float((got - wanted).abs().max()) / max(float(wanted.abs().max()), 1e-30)
            if error > TOLERANCE * (20.0 if op.dtype in ("fp16", "bf16") else 1.0):
                raise BackendError(
                    f"operator {op.name!r} computes other values under the schedule than in sequential execution: "
                    f"relative error {error:.3g}"
                )
            worst = max(worst, error)
        return worst

    def written(self) -> dict[str, Any]:
        """Return the outputs of every operator, by its name."""
        return dict(zip(self._program.graph.names, self._written, strict=True))

    def _read(self, i: int, feeds: Sequence[Feed], value_of: Callable[[Feed], Any]) -> list[Any]:
        op, found = self._operators[i], []
        for k, slot in enumerate(self._slots[i]):
            if slot < 0:
                found.append(self._inputs[i][k])
                continue
            feed = feeds[slot]
            value = value_of(feed)
            if feed.part is not None:
                axis, begin, end = feed.part
                value = value.narrow(axis, begin, end - begin)
            shape = (feed.n,) if op.kind == SYNTH or not op.input_shapes else op.input_shapes[k]
            found.append(fit_to_shape(value, shape))
        return found

    def _bring(self, feed: Feed) -> Any:
        return self._written[feed.producer] if feed.copy < 0 else self._landed[feed.copy]

    def _landing(self, row: int, whole: Mapping[int, None]) -> Any:
        """Return the memory that a copy lands in: of the whole output, unless readers look only at how much it is."""
        op = int(self._program.copies.op[row])
        shape: Shape = self._shapes[op]
        if row not in whole:
            shape = (min(prod(shape), n_copied(self._program, row)),)
        return self._buffer(op, int(self._program.copies.device[row]), shape)

    def _buffer(self, i: int, device: int, shape: Shape | None = None) -> Any:
        """Return memory for the output of an operator, filled with NaN."""
        place = self._places[device]
        dtype = place.dtype(self._operators[i].dtype)
        return self._torch.full(shape or self._shapes[i], float("nan"), dtype=dtype, device=place.device)

    def _checked_shape(self, i: int, result: Any) -> None:
        if tuple(result.shape) != self._shapes[i]:
            op = self._operators[i]
            raise BackendError(
                f"operator {op.name!r} of kind {op.kind!r} computes shape {tuple(result.shape)}, but its output_shape "
                f"is {self._shapes[i]}"
            )


def _moved_to(values: Sequence[Any], device: Any, feed: Feed) -> Any:
    return values[feed.producer].to(device)


def _slots(op: Operator, feeds: Sequence[Feed]) -> list[int]:
    """Return for each input of an operator the edge that brings it, -1 for one that is given to the network.

    With fewer edges than inputs an edge brings the first input, behind those of the edges before it, of as many
    elements as it has.
    """
    n_edges, shapes = len(feeds), op.input_shapes
    if op.kind == SYNTH or not shapes or n_edges == len(shapes):
        return list(range(n_edges))
    if n_edges > len(shapes):
        raise BackendError(f"operator {op.name!r} has {len(shapes)} input_shapes, but {n_edges} edges lead to it")
    slots, edge = [], 0
    for k, shape in enumerate(shapes):
        spare = len(shapes) - k - (n_edges - edge)
        if edge < n_edges and (spare == 0 or feeds[edge].n == prod(shape)):
            slots.append(edge)
            edge += 1
        else:
            slots.append(-1)
    return slots
