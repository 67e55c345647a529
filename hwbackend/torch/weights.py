"""The calls and inputs of a graph's operators, made once for each device that runs them."""

from collections.abc import Callable, Sequence
from typing import Any

from hwbackend.torch.operators import Place, call_of
from hwbackend.torch.pieces import Parameters, draw_values, drawn_parameters
from simsched.model import OpGraph


class GraphWeights:
    """The weights of the operators of a graph, and the inputs that the network gets: they do not depend on a schedule.

    Parameters
    ----------
    graph
        The operators.
    places
        Devices of PyTorch, by number of the device.
    parameters
        Makes the weights.

    Attributes
    ----------
    counts
        The device operations that each operator launches, by its mark; None before they were counted.
    """

    def __init__(self, graph: OpGraph, places: Sequence[Place], parameters: Parameters = drawn_parameters) -> None:
        self.graph = graph
        self.counts: dict[str, int] | None = None
        self._operators = tuple(graph.operators)
        self._places = places
        self._parameters = parameters
        self._calls: dict[tuple[int, int], Callable[..., Any]] = {}
        self._inputs: dict[tuple[int, int, int], Any] = {}

    def call(self, op: int, device: int) -> Callable[..., Any]:
        """Return what computes an operator on a device, with its weights there.

        Raises
        ------
        BackendError
            If it cannot be computed.
        """
        key = op, device
        if key not in self._calls:
            nbytes = float(self.graph.output_nbytes[op])
            self._calls[key] = call_of(self._operators[op], nbytes, self._places[device], self._parameters)
        return self._calls[key]

    def input(self, op: int, k: int, device: int) -> Any:
        """Return the tensor that the network gets as input `k` of an operator, on a device."""
        key = op, k, device
        if key not in self._inputs:
            operator = self._operators[op]
            shape = operator.input_shapes[k]
            self._inputs[key] = self._places[device].tensor(draw_values(f"input {shape} {k}", shape), operator.dtype)
        return self._inputs[key]
