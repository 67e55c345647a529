"""DeepFM (Guo et al., 2017), inference: click-through rates from many categorical fields."""

from typing import Annotated

from simsched.base.codec import Range
from simsched.model.graph import OpGraph
from workloads.declared import workload
from workloads.models.builder import LARGEST_SIZE
from workloads.models.network import Network, Tensor

Few = Annotated[int, Range(1, 100_000)]
Size = Annotated[int, Range(1, LARGEST_SIZE)]


@workload(Network)
def deepfm(
    net: Network,
    *,
    batch: Size = 1,
    fields: Few = 39,
    rows: Size = 25_000,
    factors: Size = 10,
    hidden: Size = 400,
    layers: Few = 3,
) -> OpGraph:
    """Return the graph of DeepFM.

    Parameters
    ----------
    batch
        Samples at a time, at least 1.
    dtype, granularity
        See `workloads.models.network.Network`.
    fields
        Features of a sample, each with its own table; 39 as in the Criteo data.
    rows
        Rows of each table.
    factors
        Length of an embedding (the latent dimension k).
    hidden, layers
        Neurons in, and number of, the hidden layers of the deep part.

    Raises
    ------
    GraphError
        If a parameter is out of range.

    Notes
    -----
    The network of [1]_ with the sizes of its sec. 3.1 (k = 10, three hidden layers of 400): every field is looked
    up twice, for its weight and for its embedding. The factorisation machine takes half the difference of the
    square of the sum and the sum of the squares of the embeddings; the deep part reads all of them joined; a
    sigmoid ends the sum of both and of the weights. A wide graph of small operators: 2 * `fields` independent
    look-ups. A unit is one kernel of a library that fuses elementwise operators: the factorisation machine is one
    of several kernels.

    References
    ----------
    .. [1] Guo, Tang, Ye, Li, He, "DeepFM: A factorization-machine based neural network for CTR prediction",
       IJCAI 2017, doi:10.24963/ijcai.2017/239.

    Examples
    --------
    >>> deepfm()
    OpGraph('deepfm', 88 operators, 127 edges)
    """
    index = net.input(batch)
    net.block = "embeddings"
    weights = [net.embedding(f"weight{i}", index, rows, 1) for i in range(fields)]
    vectors = [net.embedding(f"vector{i}", index, rows, factors) for i in range(fields)]
    net.block = "wide"
    linear = net.reduce("linear", net.concat("weights", weights), (batch, 1))
    pairs = _pairs(net, net.concat("vectors.stack", vectors), batch, fields, factors)
    net.block = "deep"
    x = net.concat("vectors.join", vectors)
    for i in range(layers):
        x = net.linear(f"deep{i}", x, hidden, activation="relu")
    x = net.linear("deep.output", x, 1)
    net.block = "head"
    net.add("score", [linear, pairs, x], activation="sigmoid")
    return net.graph()


def _pairs(net: Network, stacked: Tensor, batch: int, fields: int, factors: int) -> Tensor:
    """Add the sum of the products of all pairs of embeddings, (batch, 1)."""
    with net.unit("pairs", "sequential"):
        stacked = net.view("pairs.view", stacked, (batch, fields, factors))
        total = net.reduce("pairs.sum", stacked, (batch, factors))
        square_of_sum = net.elementwise("pairs.square_of_sum", "square", [total])
        squares = net.elementwise("pairs.squares", "square", [stacked])
        sum_of_squares = net.reduce("pairs.sum_of_squares", squares, (batch, factors))
        difference = net.elementwise("pairs.difference", "sub", [square_of_sum, sum_of_squares])
        return net.reduce("pairs.half", difference, (batch, 1))
