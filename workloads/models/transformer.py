"""Parts of transformer encoders: attention over several heads, and a feed-forward network."""

from workloads.models.network import Network, Tensor


def attention(
    net: Network,
    name: str,
    x: Tensor,
    heads: int,
    head_size: int,
    *,
    bias: bool = True,
    scaled: bool = True,
    positions: Tensor | None = None,
) -> Tensor:
    """Add self-attention: query, key and value, softmax of their products, and the output projection.

    `x` is (N, length, features); `positions`, of the shape of the scores (N, heads, length, length), are added
    to them, or else a mask is. With units, scaling is part of the product and masking of the softmax; as single
    operators they are on their own, and so are the views that split and join heads.
    """
    n, length, features = x.shape
    query, key, value = (
        net.linear(f"{name}.{role}", x, heads * head_size, bias=bias) for role in ("query", "key", "value")
    )
    with net.unit(f"{name}.scores", "matmul"):
        columns = _split(net, f"{name}.key", key, heads, transposed=True)
        scores = net.matmul(f"{name}.scores", _split(net, f"{name}.query", query, heads), columns)
        if scaled and not net.by_units:
            scores = net.elementwise(f"{name}.scale", "mul", [scores])
        if positions is not None:
            scores = net.add(f"{name}.positions", [scores, positions])
        elif not net.by_units:
            scores = net.elementwise(f"{name}.mask", "add", [scores])
    weights = net.softmax(f"{name}.softmax", scores)
    weights = net.view(f"{name}.softmax.dropout", weights, weights.shape, kind="dropout")
    context = net.matmul(f"{name}.context", weights, _split(net, f"{name}.value", value, heads))
    context = net.view(f"{name}.context.transpose", context, (n, length, heads, head_size), kind="transpose")
    if not net.by_units:
        context = net.copy(f"{name}.context.contiguous", context, context.shape, permutes=True)
    context = net.view(f"{name}.context.view", context, (n, length, heads * head_size))
    return net.linear(f"{name}.output", context, features, bias=bias)


def feed_forward(net: Network, name: str, x: Tensor, size: int, *, activation: str, bias: bool = True) -> Tensor:
    """Add two linear operators with an activation between them."""
    inner = net.linear(f"{name}.inner", x, size, activation=activation, bias=bias)
    return net.linear(f"{name}.outer", inner, x.shape[-1], bias=bias)


def residual(net: Network, name: str, x: Tensor, y: Tensor) -> Tensor:
    """Add the sum of a branch's output `y`, after its dropout, and the branch's input."""
    return net.add(f"{name}.add", [net.view(f"{name}.dropout", y, y.shape, kind="dropout"), x])


def _split(net: Network, name: str, x: Tensor, heads: int, *, transposed: bool = False) -> Tensor:
    """Return (N, length, features) as (N, heads, length, head size), or with the last two exchanged."""
    n, length, features = x.shape
    size = features // heads
    x = net.view(f"{name}.view", x, (n, length, heads, size))
    if transposed:
        shape = (n, heads, size, length)
    else:
        shape = (n, heads, length, size)
    return net.view(f"{name}.transpose", x, shape, kind="transpose")
