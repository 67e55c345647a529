"""RandWire (Xie et al., 2019), inference: networks whose stages are wired at random."""

from dataclasses import dataclass
from typing import Annotated, Final

import numpy as np

from simsched.base.codec import Range, read
from simsched.base.errors import FormatError, GraphError
from simsched.base.io import read_json
from simsched.model.graph import OpGraph
from workloads.checks import whole
from workloads.declared import workload
from workloads.models.network import Network, Tensor
from workloads.random_dags import random_watts_strogatz

SMALLEST_IMAGE: Final = 32  # five times halved
_STAGE_SIZES: Final = (16, 32, 32, 32)
# With these 6, 4, 5 and 6 operators begin the stages, and 1, 5, 2 and 4 end them.
_USUAL_SEEDS: Final = (340, 22, 100, 26)


@dataclass(frozen=True, slots=True)
class Wiring:
    """Which of a stage's operators, so many `nodes`, read from which: pairs (src, dst), src < dst, in rising order."""

    DERIVED = ("name",)  # that released wirings have

    nodes: Annotated[int, Range(1, 100_000)]
    edges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class _Wirings:
    """The contents of a file of wirings: one wiring for each stage."""

    DERIVED = ("source",)

    stages: tuple[Wiring, Wiring, Wiring, Wiring]


@workload(Network)
def randwire(
    net: Network,
    *,
    batch: int = 1,
    image_size: int = 224,
    channels: Annotated[int, Range(2, 2**20)] = 154,
    seed: int | None = None,
    graphs: str | None = None,
) -> OpGraph:
    """Return the graph of RandWire-WS in the regular regime, the large one by default.

    Parameters
    ----------
    batch
        Images at a time, at least 1.
    image_size
        Height and width of the images in pixels, at least 32; five strides of 2 leave one pixel of 32.
    dtype, granularity
        See `workloads.models.network.Network`.
    channels
        Channels of the first stage (C of the paper), an even number; each stage has twice as many as the previous one.
    seed
        Of the wiring; None for the usual one, see Notes.
    graphs
        Path of a JSON file with the wiring of the four stages, instead of drawing it:
        ``{"stages": [{"nodes": 16, "edges": [[0, 6], ...]}, ...]}``, edges from the lower to the higher number.

    Raises
    ------
    GraphError
        If a parameter is out of range.
    FileError, FormatError
        If the file cannot be read, or does not hold the wiring of four stages.

    Notes
    -----
    The network of [1]_, Table 2: a convolution of C / 2 channels, four stages of C, 2C, 4C and 8C, a 1x1
    convolution of 1280 and a global pool. The stages are Watts-Strogatz graphs WS(n, 4, 0.75) of 16, 32, 32 and
    32 (`random_watts_strogatz`). An operator of a stage adds up its inputs, applies ReLU and a separable 3x3
    convolution; operators without inputs in the stage read its input with stride 2, and outputs without readers are
    added up at the end. The weights with which the sums of [1]_ are taken are left out, as IOS [2]_ does.

    Units are the same as in IOS, which counts such an operator as one, of kind "sequential". Wirings differ in the
    number of operators that begin and end a stage, and so in edges and multiply-adds. The usual wiring is
    drawn stage by stage from seeds that give as many as the wirings that IOS measured: 120 operators (112
    sequential, 4 sums, 2 convolutions, ReLU, pool), 260 edges, and at 224 pixels 7.822 G multiply-adds per image.

    References
    ----------
    .. [1] Xie, Kirillov, Girshick, He, "Exploring randomly wired neural networks for image recognition",
       ICCV 2019, arXiv:1904.01569.
    .. [2] Ding, Zhu, Jia, Pekhimenko, Han, "IOS: Inter-operator scheduler for CNN acceleration",
       MLSys 2021, arXiv:2011.01302.

    Examples
    --------
    >>> randwire()
    OpGraph('randwire', 120 operators, 260 edges)
    """
    if channels % 2:
        raise GraphError(f"randwire: channels must be even, not {channels}")
    if graphs is None:
        wirings = draw_wirings(seed)
    else:
        wirings = read_wirings(graphs)
    net.block = "stem"
    x = net.conv(
        "stem.conv",
        net.images(batch, 3, image_size, least=SMALLEST_IMAGE),
        channels // 2,
        3,
        stride=2,
        padding=1,
        activation=None,
        norm=True,
    )
    for i, wiring in enumerate(wirings):
        net.block = f"stage{i + 1}"
        x = _stage(net, net.block, x, wiring, channels << i)
    net.block = "head"
    x = net.activation("head.relu", x)
    x = net.conv("head.conv", x, 1280, 1, activation=None, norm=True)
    return net.with_classifier(x, dropout=True)


def draw_wirings(seed: int | None = None) -> list[Wiring]:
    """Return Watts-Strogatz wirings for the four stages of `randwire`."""
    if seed is None:
        rng = None
    else:
        rng = np.random.default_rng(whole("randwire", "seed", seed, least=0))
    wirings = []
    for n_ops, own_seed in zip(_STAGE_SIZES, _USUAL_SEEDS, strict=True):
        drawn = random_watts_strogatz(n_ops, neighbours=4, rewiring=0.75, rng=own_seed if rng is None else rng)
        wirings.append(Wiring(n_ops, tuple(zip(drawn.src.tolist(), drawn.dst.tolist(), strict=True))))
    return wirings


def read_wirings(path: str) -> list[Wiring]:
    """Return the wirings that a JSON file holds; see `randwire`."""
    stages = read(_Wirings, read_json(path), path).stages
    for i, stage in enumerate(stages):
        nodes = stage.nodes
        edges = stage.edges
        wrong = next((edge for edge in edges if not 0 <= edge[0] < edge[1] < nodes), None)
        if wrong is not None:
            what = f"edge {list(wrong)} must lead from a lower to a higher number below {nodes}"
            raise FormatError(f"{path}: stages[{i}]: {what}")
        if len(set(edges)) != len(edges):
            raise FormatError(f"{path}: stages[{i}]: an edge stands twice")
    return [Wiring(stage.nodes, tuple(sorted(stage.edges))) for stage in stages]


def _stage(net: Network, name: str, x: Tensor, wiring: Wiring, channels: int) -> Tensor:
    reads: list[list[int]] = [[] for _ in range(wiring.nodes)]
    for src, dst in wiring.edges:
        reads[dst].append(src)
    outputs: list[Tensor] = []
    for i, sources in enumerate(reads):
        if sources:
            xs = [outputs[src] for src in sources]
            stride = 1
        else:
            xs = [x]
            stride = 2
        outputs.append(_separable(net, f"{name}.op{i}", xs, channels, stride=stride))
    is_read = {src for src, _ in wiring.edges}
    return net.add(f"{name}.sum", [y for i, y in enumerate(outputs) if i not in is_read])


def _separable(net: Network, name: str, xs: list[Tensor], channels: int, *, stride: int) -> Tensor:
    with net.unit(name, "sequential"):
        if len(xs) == 1:
            x = xs[0]
        else:
            x = net.add(f"{name}.sum", xs)
        x = net.activation(f"{name}.relu", x)
        return net.separable(name, x, channels, 3, stride=stride)
