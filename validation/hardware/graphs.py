"""Graphs of the measurement campaign: networks and parts of them, random DAGs, single kernels, pairs of kernels."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

import workloads
from simsched.model.graph import Edge, Operator, OpGraph
from workloads.models.network import Network

HIOS_SIZES: Final = (8, 16, 32, 64, 128, 256, 512, 1024)
"""Heights and widths in pixels of the images of HIOS's Fig. 1."""
OPARA_SIZES: Final = (28, 56, 112, 224)

Build = Callable[[Network], object]


def part(graph: OpGraph, names: Iterable[str], name: str = "graph") -> OpGraph:
    """Return some operators of a graph as a graph of their own."""
    inside = set(names)
    edges = [edge for edge in graph.edges if edge.src in inside and edge.dst in inside]
    return OpGraph([op for op in graph.operators if op.name in inside], edges, name)


def workload(name: str, batch: int) -> OpGraph:
    """Return a workload of the campaign: a spec, or ``spec/block`` for one block of it.

    A tensor that a block reads from others becomes an input of the network.
    """
    spec, _, label = name.partition("/")
    graph = workloads.from_spec(spec, batch=batch)
    names = (op.name for op in graph.operators if op.block == label)
    return part(graph, names, f"{graph.name}.{label}") if label else graph


NETWORKS: Final = ("squeezenet", "inception_v3", "googlenet", "randwire/stage2", "nasnet_a_large/cell2")
RANDOM: Final = tuple(f"random:layered,n_ops=30,n_layers=6,n_edges=60,time=20:200,seed={seed}" for seed in (1, 2, 3))


def subjects() -> dict[str, tuple[str, int]]:
    """Return the graphs to profile, most important first: name, workload and batch."""
    one, many = ({f"{name}@{batch}": (name, batch) for name in NETWORKS} for batch in (1, 16))
    return one | {name: (name, 1) for name in RANDOM} | many


def _separable(net: Network) -> None:
    x = net.input(1, 24, 30, 30)
    with net.unit("unit", "sequential"):
        net.separable("unit", net.activation("unit.relu", x), 36, 5, stride=2)


def _joined(net: Network) -> None:
    x, y = net.input(2, 9, 17, 17), net.input(2, 9, 17, 17)
    with net.unit("unit", "identity"):
        net.concat("unit.join", [net.add("unit.sum", [x, y]), net.input(2, 4, 17, 17)])


def _conv(shape: tuple[int, ...], out: int, window: int | tuple[int, int], **options: Any) -> Build:
    return lambda net: net.conv("op", net.input(*shape), out, window, **options)


def _pool(kind: str, height: int, width: int, **options: Any) -> Build:
    return lambda net: net.pool("op", net.input(2, 19, height, width), kind, 3, **options)


def _sum(n: int, *shape: int) -> Build:
    return lambda net: net.add("op", [net.input(*shape) for _ in range(n)], activation="relu")


KERNELS: Final[Mapping[str, Build]] = {
    "conv 1x1": _conv((1, 64, 28, 28), 96, 1),
    "conv 3x3": _conv((2, 48, 35, 35), 64, 3, padding=1),
    "conv 5x5, stride 2": _conv((1, 17, 41, 37), 33, 5, padding=2, stride=2),
    "conv 1x7": _conv((1, 32, 17, 17), 40, (1, 7), padding=(0, 3), activation=None),
    "conv 7x7, 3 channels": _conv((1, 3, 112, 112), 64, 7, padding=3, stride=2),
    "conv in groups": _conv((1, 32, 14, 14), 64, 3, padding=1, groups=8),
    "conv depthwise": _conv((1, 40, 23, 23), 40, 5, padding=2, groups=40, activation=None),
    "conv of one pixel": _conv((1, 256, 1, 1), 512, 1),
    "separable": _separable,
    "pool max": _pool("max", 35, 33, stride=2),
    "pool max, rounded up": _pool("max", 34, 34, stride=2, ceil_mode=True),
    "pool average, padded": _pool("avg", 17, 19, stride=1, padding=1),
    "pool global": lambda net: net.global_pool("op", net.input(2, 130, 8, 8)),
    "linear": lambda net: net.linear("op", net.input(3, 768), 1000),
    "linear and gelu": lambda net: net.linear("op", net.input(2, 50, 96), 384, activation="gelu"),
    "matmul": lambda net: net.matmul("op", net.input(12, 65, 64), net.input(12, 64, 70)),
    "matmul of one row": lambda net: net.matmul("op", net.input(1, 1, 300), net.input(1, 300, 500)),
    "add 2": _sum(2, 2, 64, 28, 28),
    "add 5": _sum(5, 1, 7, 13, 13),
    "add and concat": _joined,
    "concat": lambda net: net.concat("op", [net.input(2, c, 15, 15) for c in (3, 64, 17)]),
    "multiply": lambda net: net.elementwise("op", "mul", [net.input(1000, 3), net.input(1000, 3)]),
    "relu": lambda net: net.activation("op", net.input(1, 64, 56, 56)),
    "gelu": lambda net: net.activation("op", net.input(3, 333), "gelu"),
    "sigmoid": lambda net: net.activation("op", net.input(70000), "sigmoid"),
    "batch norm": lambda net: net.batch_norm("op", net.input(2, 24, 27, 27)),
    "softmax": lambda net: net.softmax("op", net.input(12, 77, 77)),
    "softmax of long rows": lambda net: net.softmax("op", net.input(2, 5000)),
    "layer norm": lambda net: net.layer_norm("op", net.input(2, 77, 768)),
    "rms norm": lambda net: net.layer_norm("op", net.input(5, 100), kind="rms_norm"),
    "reduce": lambda net: net.reduce("op", net.input(8, 9, 10), (8, 9, 1)),
    "embedding": lambda net: net.embedding("op", net.input(2, 60), 500, 96),
    "copy": lambda net: net.copy("op", net.input(4, 50), (4, 50)),
}
"""One operator each, in shapes that divide nothing evenly as well as in usual ones."""

WHOLE: Final = (
    "tiny_inception",
    "tiny_resnet",
    "tiny_transformer",
    "tiny_inception,granularity=operator",
    "tiny_transformer,granularity=operator",
    "random:layered,n_ops=12,n_layers=4,n_edges=20,seed=5",
    "random:inception-like,n_blocks=2,seed=1",
)
"""Small graphs whose values are compared under each kind of execution."""


def kernel_graph(name: str) -> OpGraph:
    """Return two independent operators of one of `KERNELS`, so that they can run at the same time."""
    operators, edges = list[Operator](), list[Edge]()
    for copy in ("a", "b"):
        net = Network(name)
        KERNELS[name](net)
        graph = net.graph()
        operators += [replace(op, name=f"{op.name}.{copy}") for op in graph.operators]
        edges += [replace(edge, src=f"{edge.src}.{copy}", dst=f"{edge.dst}.{copy}") for edge in graph.edges]
    return OpGraph(operators, edges, name)


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


def unequal(other: str, size: int) -> OpGraph:
    """Return a ReLU and, independent of it, a 3x3 convolution (`other` "conv") or another ReLU: Opara's Fig. 3.

    Both read images of 64 channels; the convolution is bound by arithmetic, the ReLU by memory.

    References
    ----------
    .. [1] Opara: exploiting operator parallelism for expediting DNN inference on GPUs, arXiv:2312.10351.
    """
    net = Network(f"relu-{other}-{size}")
    net.activation("relu", net.input(1, 64, size, size))
    x = net.input(1, 64, size, size)
    if other == "conv":
        net.conv("conv", x, 64, 3, padding=1, activation=None)
    else:
        net.activation("relu2", x)
    return net.graph()
