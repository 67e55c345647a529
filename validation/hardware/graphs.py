"""Graphs of measurements that papers print: parts of networks, and pairs of convolutions."""

from collections.abc import Iterable

from simsched.model.graph import OpGraph
from workloads.models.network import Network


def part(graph: OpGraph, names: Iterable[str], name: str = "graph") -> OpGraph:
    """Return some operators of a graph as a graph of their own."""
    inside = set(names)
    edges = [edge for edge in graph.edges if edge.src in inside and edge.dst in inside]
    return OpGraph([op for op in graph.operators if op.name in inside], edges, name)


def convolutions(size: int) -> OpGraph:
    """Return two equal 5x5 convolutions of 48 channels that depend on nothing: HIOS's Fig. 1.

    Notes
    -----
    The paper says neither stride nor output channels; here they are 1 and 48, images padded by 2.

    References
    ----------
    .. [1] "HIOS: Hierarchical Inter-Operator Scheduler for Real-Time Inference of DAG-Structured Deep
       Learning Models on Multiple GPUs", IEEE CLUSTER 2023.
    """
    net = Network(f"convolutions-{size}")
    for name in ("first", "second"):
        net.conv(name, net.input(1, 48, size, size), 48, 5, padding=2, activation=None)
    return net.graph()
