"""The launches of the operators of a graph, the tensors that they read, and the numbers that they start from."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from zlib import crc32

import numpy as np
import numpy.typing as npt

from hwbackend.cuda.kernels.launches import CudaLaunch, NumberArgument, Resources, launches_of, output_size
from hwbackend.cuda.kernels.sources import variant_of
from hwbackend.cuda.kernels.stand_ins import with_stand_ins
from hwbackend.measuring.synth import SYNTH, realised
from simsched.model import Cluster, Kernel, Operator, OpGraph

Values = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Launched:
    """The launches of one operator.

    Parameters
    ----------
    launches
        In order.
    sources
        The operator that writes each tensor that it reads.
    size
        Elements of its output.
    """

    launches: tuple[CudaLaunch, ...]
    sources: tuple[int, ...]
    size: int


def with_kernels(graph: OpGraph, cluster: Cluster, resources: Mapping[str, Resources]) -> OpGraph:
    """Return the graph as it is launched: every operator is synthetic, with the registers of a compiled kernel.

    Parameters
    ----------
    resources
        Resources of the compiled kernels, by name.

    Raises
    ------
    BackendError
        If a block of a kernel does not fit on the device.
    """
    graph = realised(with_stand_ins(graph, cluster.devices[0]), cluster)
    operators = tuple(graph.operators)
    compiled = [_as_compiled(op, resources) for op in operators]
    if all(new is old for new, old in zip(compiled, operators, strict=True)):
        return graph
    return OpGraph(compiled, graph.edges, graph.name)


def are_stand_ins(graph: OpGraph) -> bool:
    """Return whether operators of a realised graph stand in for kernels that are not run."""
    return any("hold" in op.attributes for op in graph.operators)


def _as_compiled(op: Operator, resources: Mapping[str, Resources]) -> Operator:
    """Return an operator whose kernels have the registers of the compiled ones, and at least their shared memory."""

    def with_resources(kernel: Kernel) -> Kernel:
        needed = resources[variant_of(kernel, resources)]
        shared_memory = max(kernel.shared_memory, needed.shared_memory)
        return replace(kernel, registers=needed.registers, shared_memory=shared_memory)

    if op.kind != SYNTH:
        return op
    kernels = tuple(map(with_resources, op.kernels))
    return op if kernels == op.kernels else replace(op, kernels=kernels)


def launches_of_graph(graph: OpGraph, resources: Mapping[str, Resources]) -> tuple[Launched, ...]:
    """Return the launches of each operator of a realised graph.

    Raises
    ------
    BackendError
        If an operator cannot be launched; the message names it.
    """
    operators = tuple(graph.operators)
    ptr, edges = graph.incoming
    result = []
    for i, op in enumerate(operators):
        sources: list[int] = graph.src[edges[ptr[i] : ptr[i + 1]]].tolist()
        reads = [output_size(operators[source]) for source in sources]
        result.append(Launched(launches_of(op, reads, resources), tuple(sources), output_size(op)))
    return tuple(result)


class Numbers:
    """Parameters of operators, drawn once: the same for a name and a seed.

    Parameters
    ----------
    graph
        The operators.
    seed
        Seed of all that is drawn.
    """

    def __init__(self, graph: OpGraph, seed: int) -> None:
        self._graph, self._seed = graph, seed

    def parameter(self, op: int, parameter: NumberArgument) -> Values:
        """Return the value of a parameter, shape (1,)."""
        key = crc32(f"{self._graph.names[op]} {parameter.name}".encode())
        value = np.random.default_rng([self._seed, key]).standard_normal(1, np.float32)
        return np.float32(parameter.mean) + np.float32(parameter.spread) * value
