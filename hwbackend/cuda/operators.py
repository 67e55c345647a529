"""What the operators of a graph launch, what they read, and the numbers that they start from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Final
from zlib import crc32

import numpy as np
import numpy.typing as npt

from hwbackend.kernels.arguments import Shape
from hwbackend.kernels.launches import (
    CudaLaunch,
    Parameter,
    Resources,
    edges_of_inputs,
    kernels_of,
    launches_of,
    output_size,
)
from hwbackend.measuring.synth import SYNTH, realised
from simsched.base.errors import BackendError
from simsched.model import Cluster, Operator, OpGraph

Values = npt.NDArray[np.float32]
_INPUT: Final = "input"


@dataclass(frozen=True, slots=True)
class Launched:
    """What one operator launches.

    Parameters
    ----------
    launches
        In order.
    sources
        The operator that writes each tensor that it reads; None for an input of the network.
    reads
        Shapes of these tensors.
    size
        Elements of its output.
    """

    launches: tuple[CudaLaunch, ...]
    sources: tuple[int | None, ...]
    reads: tuple[Shape, ...]
    size: int


def with_kernels(graph: OpGraph, cluster: Cluster, resources: Mapping[str, Resources]) -> OpGraph:
    """Return the graph as it is launched; `resources` are those of the compiled kernels.

    Raises
    ------
    BackendError
        If there is no kernel for an operator.
    """
    sms, operators = cluster.devices[0].sms, tuple(graph.operators)
    number = {name: i for i, name in enumerate(graph.names)}

    def found(op: Operator) -> Operator:
        launches = _launched(graph, operators, number[op.name], sms).launches
        made = replace(
            op,
            kernels=kernels_of(launches, resources),
            flops=sum(launch.flops for launch in launches),
            nbytes=sum(launch.nbytes for launch in launches),
            dtype="fp32",
        )
        return op if made == op else made

    graph = realised(graph, cluster, found)
    operators = tuple(graph.operators)
    compiled = [_as_compiled(op, resources[SYNTH]) if op.kind == SYNTH else op for op in operators]
    if all(new is old for new, old in zip(compiled, operators, strict=True)):
        return graph
    return OpGraph(compiled, graph.edges, graph.name)


def _as_compiled(op: Operator, resources: Resources) -> Operator:
    """Return a synthetic operator whose kernels have the registers of the compiled one, and at least its own memory."""
    kernels = tuple(
        replace(
            kernel,
            registers=resources.registers,
            shared_memory=max(kernel.shared_memory, resources.shared_memory),
        )
        for kernel in op.kernels
    )
    return op if kernels == op.kernels else replace(op, kernels=kernels)


def launched(graph: OpGraph, sms: int) -> tuple[Launched, ...]:
    """Return what each operator of a realised graph launches."""
    operators = tuple(graph.operators)
    found = tuple(_launched(graph, operators, i, sms) for i in range(len(operators)))
    for name, one, kernels in zip(graph.names, found, np.diff(graph.kernel_ptr).tolist(), strict=True):
        if len(one.launches) != kernels:
            raise BackendError(
                f"operator {name!r} launches {len(one.launches)} kernels on this device, but the graph says {kernels}"
            )
    return found


def _launched(graph: OpGraph, operators: Sequence[Operator], i: int, sms: int) -> Launched:
    op = operators[i]
    ptr, edges = graph.incoming
    producers: list[int] = graph.src[edges[ptr[i] : ptr[i + 1]]].tolist()
    brought = [operators[p].output_shape or (output_size(operators[p]),) for p in producers]
    given = edges_of_inputs(op, brought)
    sources = tuple(None if e is None else producers[e] for e in given)
    reads = tuple(op.input_shapes[k] if e is None else brought[e] for k, e in enumerate(given))
    return Launched(launches_of(op, sms, reads), sources, reads, output_size(op))


class Numbers:
    """Parameters of operators and inputs of the network, drawn once: the same for a name and a seed.

    Parameters
    ----------
    graph, launched
        The operators.
    seed
        Of all that is drawn.
    """

    def __init__(self, graph: OpGraph, launched: tuple[Launched, ...], seed: int) -> None:
        self._graph, self._launched, self._seed = graph, launched, seed
        self._drawn: dict[tuple[int, Parameter | int], Values] = {}

    def parameter(self, op: int, parameter: Parameter) -> Values:
        """Return the values of a parameter, flat."""
        key = op, parameter
        if key not in self._drawn:
            text = f"{parameter.name} {parameter.part}"
            self._drawn[key] = self._normal(op, text, prod(parameter.shape), parameter.mean, parameter.spread)
        return self._drawn[key]

    def input(self, op: int, index: int) -> Values:
        """Return the values of an input of the network, flat."""
        key = op, index
        if key not in self._drawn:
            size = prod(self._launched[op].reads[index])
            self._drawn[key] = self._normal(op, f"{_INPUT} {index}", size, 0.0, 1.0)
        return self._drawn[key]

    def _normal(self, op: int, text: str, size: int, mean: float, spread: float) -> Values:
        if not spread:
            return np.full(size, mean, np.float32)
        key = crc32(f"{self._graph.names[op]} {text}".encode())
        values = np.random.default_rng([self._seed, key]).standard_normal(size, np.float32)
        values *= np.float32(spread)
        values += np.float32(mean)
        return values
