"""RNNTC-SRU: text classification by a deep recurrent network of Simple Recurrent Units (Lei et al., 2018)."""

from typing import Annotated, Final

from simsched.base.codec import Range
from simsched.model.graph import OpGraph
from workloads.declared import workload
from workloads.models.network import Network, Tensor

_MOST_CELLS: Final = 100_000
Size = Annotated[int, Range(1, 2**20)]


@workload(Network)
def rnntc_sru(
    net: Network,
    *,
    batch: int = 1,
    sequence_length: int = 10,
    layers: Annotated[int, Range(1, _MOST_CELLS)] = 10,
    features: Size = 1024,
    classes: Size = 2,
) -> OpGraph:
    """Return the graph of a classifier of texts with SRU layers.

    Parameters
    ----------
    batch
        Texts at a time, at least 1.
    sequence_length
        Tokens of each, already embedded.
    dtype, granularity
        See `workloads.models.network.Network`.
    layers, features, classes
        SRU layers, length of a token's vector, and classes to tell apart.

    Raises
    ------
    GraphError
        If a parameter is out of range; `layers` times `sequence_length` is at most 100,000.

    Notes
    -----
    A layer of [1]_ maps all tokens at once to a candidate, a forget and a reset gate, by three products that do not
    depend on each other; then a cell per token mixes the last state with the candidate by the forget gate, and the
    state with the token by the reset gate. Cells of a layer form a chain; as a whole, layers of three products and
    a chain of small elementwise operators. The last token's output is classified.

    Of a cell, state and output are a unit each. Single operators are its sums, products and activations, and the
    views that cut out a token. Default sizes are those that AutoGraph [2]_ prints, [1 x 10, 1024].

    References
    ----------
    .. [1] Lei, Zhang, Wang, Dai, Artzi, "Simple recurrent units for highly parallelizable recurrence", EMNLP 2018,
       doi:10.18653/v1/D18-1477.
    .. [2] "AutoGraph: Optimizing DNN computation graph for parallel GPU kernel execution", AAAI 2023,
       doi:10.1609/aaai.v37i9.26343, Table 1.

    Examples
    --------
    >>> graph = rnntc_sru()
    >>> graph, len(graph.blocks)
    (OpGraph('rnntc_sru', 241 operators, 898 edges), 11)
    """
    x = net.sequences(batch, sequence_length, features, most=_MOST_CELLS // layers)
    for i in range(layers):
        x = _layer(net, f"layer{i}", x)
    net.block = "head"
    net.linear("head.linear", _token(net, "head.last", x), classes)
    return net.graph()


def _layer(net: Network, name: str, x: Tensor) -> Tensor:
    net.block = name
    _, length, features = x.shape
    candidate = net.linear(f"{name}.candidate", x, features, bias=False)
    forget = net.linear(f"{name}.forget", x, features, activation="sigmoid")
    reset = net.linear(f"{name}.reset", x, features, activation="sigmoid")
    state: Tensor | None = None
    outputs = []
    for t in range(length):
        step = f"{name}.step{t}"
        state = _state(net, step, candidate, forget, state)
        outputs.append(_output(net, step, x, reset, state))
    return net.concat(f"{name}.join", outputs, axis=1)


def _state(net: Network, step: str, candidate: Tensor, forget: Tensor, before: Tensor | None) -> Tensor:
    """Add forget * before + (1 - forget) * candidate; the first state has none before it."""
    with net.unit(f"{step}.state", "sequential"):
        gate = _token(net, f"{step}.forget", forget)
        fresh = net.elementwise(f"{step}.one_minus_forget", "sub", [gate])
        fresh = net.elementwise(f"{step}.fresh", "mul", [fresh, _token(net, f"{step}.candidate", candidate)])
        if before is None:
            return fresh
        return net.add(f"{step}.state", [net.elementwise(f"{step}.kept", "mul", [gate, before]), fresh])


def _output(net: Network, step: str, x: Tensor, reset: Tensor, state: Tensor) -> Tensor:
    """Add reset * tanh(state) + (1 - reset) * token."""
    with net.unit(f"{step}.output", "sequential"):
        gate = _token(net, f"{step}.reset", reset)
        deep = net.elementwise(f"{step}.deep", "mul", [gate, net.activation(f"{step}.tanh", state, "tanh")])
        around = net.elementwise(f"{step}.one_minus_reset", "sub", [gate])
        around = net.elementwise(f"{step}.around", "mul", [around, _token(net, f"{step}.token", x)])
        return net.add(f"{step}.output", [deep, around])


def _token(net: Network, name: str, x: Tensor) -> Tensor:
    return net.slice(name, x, (x.shape[0], 1, x.shape[2]))
