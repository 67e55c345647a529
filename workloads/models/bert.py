"""BERT (Devlin et al., 2019), inference: base, large, and the eight layers of AutoGraph."""

from typing import Annotated

from simsched.base.codec import Range
from simsched.model.graph import OpGraph
from workloads.declared import workload
from workloads.models.network import Network, Tensor
from workloads.models.transformer import attention, feed_forward, residual

_VOCABULARY = 30522
_POSITIONS = 512
_TYPES = 2


@workload(Network)
def bert_base(net: Network, *, batch: int = 1, sequence_length: int = 128) -> OpGraph:
    """Return the graph of BERT-base: 12 layers of 768 features, 12 heads, with embeddings and pooler.

    Parameters
    ----------
    batch
        Sequences at a time, at least 1.
    sequence_length
        Tokens of each, from 1 to 512, the positions that BERT knows.
    dtype, granularity
        See `workloads.models.network.Network`.

    Raises
    ------
    GraphError
        If a parameter is out of range.

    Notes
    -----
    The encoder of [1]_. A unit is one kernel or one call of a tuned library: a product with its
    bias, scaling and activation; a sum with the next normalisation; a softmax with its mask; the three
    embeddings. Eleven units a layer, of which query, key and value are independent; each layer is a block.
    Single operators follow a straightforward implementation: views, transpositions, dropouts, scaling,
    mask, sums and normalisations on their own.

    109.48 M parameters; at 128 tokens 11.17 G multiply-adds in the products of the layers.

    References
    ----------
    .. [1] Devlin, Chang, Lee, Toutanova, "BERT: Pre-training of deep bidirectional transformers for language
       understanding", NAACL 2019, doi:10.18653/v1/N19-1423.

    Examples
    --------
    >>> bert_base()
    OpGraph('bert_base', 134 operators, 181 edges)
    """
    return _bert(net, batch, sequence_length, layers=12, features=768, heads=12)


@workload(Network)
def bert_large(net: Network, *, batch: int = 1, sequence_length: int = 128) -> OpGraph:
    """Return the graph of BERT-large: 24 layers of 1024 features, 16 heads; see `bert_base`.

    Examples
    --------
    >>> round(sum(op.weight_nbytes for op in bert_large().operators) / 4e6)  # million parameters
    335
    """
    return _bert(net, batch, sequence_length, layers=24, features=1024, heads=16)


@workload(Network, granularity="operator")
def autograph_bert(
    net: Network, *, batch: int = 16, sequence_length: int = 64, layers: Annotated[int, Range(1, 10_000)] = 8
) -> OpGraph:
    """Return BERT as AutoGraph measured it: 8 layers of attention over 1024 features, 16 heads, on [16 x 64, 1024].

    AutoGraph [1]_ prints the shape of its input and the number of layers, no more. The input is read here as 16
    sequences of 64 tokens, already embedded, and a layer as attention alone, as in the benchmark of TASO that it
    compares with: 35.4 G multiply-adds, 5.3 ms at the peak rate of the RTX 2080 Ti on which 6.2 to 11.0 ms were
    measured. With feed-forward networks there would be three times as many.

    References
    ----------
    .. [1] "AutoGraph: Optimizing DNN computation graph for parallel GPU kernel execution", AAAI 2023,
       doi:10.1609/aaai.v37i9.26343, Tables 1 and 2.

    Examples
    --------
    >>> len(autograph_bert(granularity="unit").blocks)
    8
    """
    x = net.sequences(batch, sequence_length, 1024)
    for i in range(layers):
        net.block = f"layer{i}"
        x = attention(net, net.block, x, 16, 64)
    return net.graph()


def encoder_layer(net: Network, name: str, x: Tensor, *, heads: int) -> Tensor:
    """Add a layer as in BERT: attention and a feed-forward network four times as wide, each normalised at its end."""
    features = x.shape[-1]
    net.block = name
    y = attention(net, f"{name}.attention", x, heads, features // heads)
    x = _normalised_sum(net, f"{name}.attention", x, y)
    y = feed_forward(net, f"{name}.feed_forward", x, 4 * features, activation="gelu")
    return _normalised_sum(net, f"{name}.feed_forward", x, y)


def _bert(net: Network, batch: int, sequence_length: int, *, layers: int, features: int, heads: int) -> OpGraph:
    tokens = net.sequences(batch, sequence_length, most=_POSITIONS)
    net.block = "embeddings"
    with net.unit("embeddings", "embedding"):
        x = net.add(
            "embeddings.sum",
            [
                net.embedding(f"embeddings.{name}", tokens, rows, features)
                for name, rows in (("word", _VOCABULARY), ("position", _POSITIONS), ("type", _TYPES))
            ],
        )
        x = net.layer_norm("embeddings.norm", x)
    x = net.view("embeddings.dropout", x, x.shape, kind="dropout")
    for i in range(layers):
        x = encoder_layer(net, f"layer{i}", x, heads=heads)
    net.block = "pooler"
    first = net.slice("pooler.first", x, (x.shape[0], features))
    net.linear("pooler", first, features, activation="tanh")
    return net.graph()


def _normalised_sum(net: Network, name: str, x: Tensor, y: Tensor) -> Tensor:
    with net.unit(f"{name}.norm", "layer_norm"):
        return net.layer_norm(f"{name}.norm", residual(net, name, x, y))
