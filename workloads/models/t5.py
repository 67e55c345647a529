"""The encoder of T5 (Raffel et al., 2020), inference."""

from simsched.model.graph import OpGraph
from workloads.declared import workload
from workloads.models.network import Network
from workloads.models.transformer import attention, feed_forward, residual

_VOCABULARY = 32128
_DISTANCES = 32
_HEAD_SIZE = 64


@workload(Network)
def t5_small_encoder(net: Network, *, batch: int = 1, sequence_length: int = 128) -> OpGraph:
    """Return the graph of the encoder of T5-small: 6 layers of 512 features, 8 heads.

    Parameters
    ----------
    batch
        Sequences at a time, at least 1.
    sequence_length
        Tokens of each, at least 1.
    dtype, granularity
        See `workloads.models.network.Network`.

    Raises
    ------
    GraphError
        If a parameter is out of range.

    Notes
    -----
    The encoder of [1]_: normalisation by root mean square before attention and feed-forward network, no
    biases, scores not scaled. One table of relative positions is looked up once and added to the scores of every
    layer, so its operator has an edge to each. 35.33 M parameters.

    References
    ----------
    .. [1] Raffel et al., "Exploring the limits of transfer learning with a unified text-to-text transformer",
       JMLR 21(140), 2020, arXiv:1910.10683.

    Examples
    --------
    >>> t5_small_encoder().name
    't5_small_encoder'
    """
    return _encoder(net, batch, sequence_length, layers=6, features=512, heads=8, inner=2048)


@workload(Network)
def t5_base_encoder(net: Network, *, batch: int = 1, sequence_length: int = 128) -> OpGraph:
    """Return the graph of the encoder of T5-base: 12 layers of 768 features, 12 heads; see `t5_small_encoder`.

    Examples
    --------
    >>> round(sum(op.weight_nbytes for op in t5_base_encoder().operators) / 4e6, 1)  # million parameters
    109.6
    """
    return _encoder(net, batch, sequence_length, layers=12, features=768, heads=12, inner=3072)


def _encoder(
    net: Network, batch: int, sequence_length: int, *, layers: int, features: int, heads: int, inner: int
) -> OpGraph:
    tokens = net.sequences(batch, sequence_length)
    n, length = tokens.shape
    net.block = "embeddings"
    x = net.embedding("embeddings.word", tokens, _VOCABULARY, features)
    distances = net.input(length, length)
    table = net.embedding("embeddings.positions", distances, _DISTANCES, heads)
    positions = net.copy("embeddings.positions.expand", table, (n, heads, length, length), kind="expand")
    x = net.view("embeddings.dropout", x, x.shape, kind="dropout")
    for i in range(layers):
        name = net.block = f"layer{i}"
        y = net.layer_norm(f"{name}.attention.norm", x, kind="rms_norm")
        y = attention(net, f"{name}.attention", y, heads, _HEAD_SIZE, bias=False, scaled=False, positions=positions)
        x = residual(net, f"{name}.attention", x, y)
        y = net.layer_norm(f"{name}.feed_forward.norm", x, kind="rms_norm")
        y = feed_forward(net, f"{name}.feed_forward", y, inner, activation="relu", bias=False)
        x = residual(net, f"{name}.feed_forward", x, y)
    net.block = "head"
    x = net.layer_norm("head.norm", x, kind="rms_norm")
    net.view("head.dropout", x, x.shape, kind="dropout")
    return net.graph()
