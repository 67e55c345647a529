"""Attention of a layer: grouped heads, or latent heads with or without an indexer."""

from dataclasses import dataclass, replace

from simsched.model.graph import Work
from workloads.costs import ROW_FLOPS
from workloads.llm.architecture import Architecture, Indexer, Latent
from workloads.llm.step import STORED_NBYTES, StepGraph, StepTensor

_FEW_TOKENS = 16
"""New tokens of a sequence up to which engines divide its keys among blocks, and ask compressed keys themselves."""


@dataclass(frozen=True, slots=True)
class Sequences:
    """The sequences of a GPU in one step.

    Parameters
    ----------
    number
        Sequences.
    tokens
        New tokens of each.
    context
        Tokens of each that are known afterwards, the new ones among them.
    """

    number: int
    tokens: int
    context: int

    @property
    def rows(self) -> int:
        """New tokens of all sequences."""
        return self.number * self.tokens

    def keys(self, most: int | None) -> int:
        """Return the keys of a sequence that any new token sees, each token at most so many."""
        if most is None:
            return self.context
        return min(self.context, most + self.tokens - 1)

    def pairs(self, most: int | None) -> int:
        """Return the pairs of a new token and a key that it sees in a sequence: itself, and those before it.

        >>> Sequences(1, 4, 4).pairs(None), Sequences(1, 1, 100).pairs(None), Sequences(1, 4, 4).pairs(2)
        (10, 100, 7)
        """
        first = self.context - self.tokens + 1
        if most is None or self.context <= most:
            return self.tokens * (first + self.context) // 2
        growing = max(0, most - first)  # tokens that see fewer than the most
        return growing * (first + most - 1) // 2 + (self.tokens - growing) * most


def attention(
    step: StepGraph, sequences: Sequences, model: Architecture, x: StepTensor, *, shares: int, slides: bool
) -> StepTensor:
    """Add the attention of a layer up to the product that joins the heads; return its output before any all-reduce.

    Parameters
    ----------
    x
        The normalised input, (rows, hidden).
    shares
        GPUs over which heads are divided.
    slides
        Whether tokens see a window only.
    """
    if model.latent is not None:
        return _latent(step, sequences, model, model.latent, x, shares=shares)
    return _add_attention(step, sequences, model, x, shares=shares, window=model.window if slides else None)


def _add_attention(
    step: StepGraph, sequences: Sequences, model: Architecture, x: StepTensor, *, shares: int, window: int | None
) -> StepTensor:
    rows = sequences.rows
    size = model.head
    heads = model.heads // shares
    kv_heads = max(1, model.kv_heads // shares)
    query = float(rows * heads * size * step.width)
    position = _positions(step, model, x, rows, heads, kv_heads)
    keys = sequences.keys(window)
    work = step.costs.attention(sequences.number * heads, sequences.tokens, keys, size)
    read = sequences.number * kv_heads * keys * 2 * size * STORED_NBYTES[step.formats.cache]
    pairs = sequences.number * heads * sequences.pairs(window)
    work = replace(
        _divide_by_heads(work, sequences, kv_heads, heads // kv_heads),
        reads=query + read,
        writes=query,
        flops=float(pairs * (4 * size + ROW_FLOPS["softmax"])),
    )
    context = step.add("attention", "attention", work, [x._replace(nbytes=query) for x in position])
    return step.linear("o_proj", [context], rows, heads * size, model.hidden)


def _positions(
    step: StepGraph, model: Architecture, x: StepTensor, rows: int, heads: int, kv_heads: int
) -> list[StepTensor]:
    """Add all that makes queries, and keys and values in the cache, of the input of a layer."""
    size = model.head
    query = float(rows * heads * size * step.width)
    key = float(rows * kv_heads * size * step.width)
    cached = rows * kv_heads * size * STORED_NBYTES[step.formats.cache]
    if step.is_fused:
        qkv = step.linear("qkv", [x], rows, model.hidden, (heads + 2 * kv_heads) * size, bias=model.has_bias)
        parts = [qkv._replace(nbytes=nbytes) for nbytes in (query, key, key)]
    else:
        sizes = {"q_proj": heads * size, "k_proj": kv_heads * size, "v_proj": kv_heads * size}
        parts = [step.linear(name, [x], rows, model.hidden, n, bias=model.has_bias) for name, n in sizes.items()]
    if model.normed == "head":
        parts[0] = step.norm("q_norm", [parts[0]], rows * heads, size)
        parts[1] = step.norm("k_norm", [parts[1]], rows * kv_heads, size)
    elif model.normed == "token":
        parts[0] = step.norm("q_norm", [parts[0]], rows, heads * size)
        parts[1] = step.norm("k_norm", [parts[1]], rows, kv_heads * size)
    turned = {"q_rope": rows * heads * size, "k_rope": rows * kv_heads * size}
    if step.is_fused:
        n = sum(turned.values())
        written = query + 2.0 * cached
        return [step.moving("rope", "rope", parts, n, reads=query + 2 * key, writes=written, flops=6.0 * n)]
    n = turned["q_rope"]
    q_turned = step.moving("q_rope", "rope", parts[:1], n, reads=query, writes=query, flops=6.0 * n)
    n = turned["k_rope"]
    k_turned = step.moving("k_rope", "rope", parts[1:2], n, reads=key, writes=cached, flops=6.0 * n)
    v_stored = step.moving("v_cache", "copy", parts[2:], n, reads=key, writes=cached)
    return [q_turned, k_turned, v_stored]


def _divide_by_heads(work: Work, sequences: Sequences, kv_heads: int, group: int) -> Work:
    """Return the work of few tokens by heads of keys, each asked by a group of heads; work of more tokens as it is."""
    if sequences.tokens > _FEW_TOKENS:
        return work
    return replace(work, rule="divided", batch=sequences.number * kv_heads, rows=group * sequences.tokens)


def _latent(
    step: StepGraph, sequences: Sequences, model: Architecture, latent: Latent, x: StepTensor, *, shares: int
) -> StepTensor:
    """Add latent attention: few tokens ask the compressed keys themselves, many have them expanded into heads first."""
    rows = sequences.rows
    heads = model.heads // shares
    size = latent.plain + latent.rotated
    stored = latent.rank + latent.rotated
    width = step.width
    if latent.query_rank is None:
        query = step.linear("q_proj", [x], rows, model.hidden, heads * size)
        compressed = step.linear("kv_a", [x], rows, model.hidden, stored)
        query_input = x
    else:
        both = step.linear("qkv_a", [x], rows, model.hidden, latent.query_rank + stored)
        compressed = both._replace(nbytes=float(rows * stored * width))
        part = both._replace(nbytes=float(rows * latent.query_rank * width))
        query_input = step.norm("q_a_norm", [part], rows, latent.query_rank)
        query = step.linear("q_b", [query_input], rows, latent.query_rank, heads * size)
    cached = step.norm("kv_a_norm", [compressed], rows, latent.rank)
    turned = rows * (heads + 1) * latent.rotated
    written = float(turned * width) + rows * stored * STORED_NBYTES[step.formats.cache]
    position = step.moving(
        "rope",
        "rope",
        [query, cached],
        turned,
        reads=float((turned + rows * latent.rank) * width),
        writes=written,
        flops=6.0 * turned,
    )
    after = [position._replace(nbytes=float(rows * heads * latent.rotated * width))]
    most = None
    if model.indexer is not None:
        most = model.indexer.kept
        after.append(_index(step, sequences, model, model.indexer, x, query_input))
    if sequences.tokens > _FEW_TOKENS:
        context = _of_heads(step, sequences, latent, heads, after, query, cached, most)
    else:
        context = _add_latent_attention(step, sequences, latent, heads, after, query, most)
    return step.linear("o_proj", [context], rows, heads * latent.value, model.hidden)


def _add_latent_attention(
    step: StepGraph,
    sequences: Sequences,
    latent: Latent,
    heads: int,
    after: list[StepTensor],
    query: StepTensor,
    most: int | None,
) -> StepTensor:
    """Add attention of few tokens to the compressed keys of the cache, which all heads share."""
    rows = sequences.rows
    stored = latent.rank + latent.rotated
    absorbed = step.stacked_products("absorb_k", [query], heads, rows, latent.plain, latent.rank)
    keys = sequences.keys(most)
    work = step.costs.attention(sequences.number * heads, sequences.tokens, keys, stored, latent.rank)
    pairs = sequences.number * heads * sequences.pairs(most)
    work = replace(
        _divide_by_heads(work, sequences, 1, heads),
        reads=rows * heads * stored * step.width + sequences.number * keys * stored * STORED_NBYTES[step.formats.cache],
        writes=float(rows * heads * latent.rank * step.width),
        flops=float(pairs * (2 * (stored + latent.rank) + ROW_FLOPS["softmax"])),
    )
    context = step.add("attention", "attention", work, [absorbed, *after])
    return step.stacked_products("absorb_v", [context], heads, rows, latent.rank, latent.value)


def _of_heads(
    step: StepGraph,
    sequences: Sequences,
    latent: Latent,
    heads: int,
    after: list[StepTensor],
    query: StepTensor,
    cached: StepTensor,
    most: int | None,
) -> StepTensor:
    """Add attention of many tokens: compressed keys and values are first expanded to heads."""
    size = latent.plain + latent.rotated
    n_keys = sequences.number * sequences.context
    expanded = step.linear("kv_b", [cached], n_keys, latent.rank, heads * (latent.plain + latent.value))
    keys = sequences.keys(most)
    work = step.costs.attention(sequences.number * heads, sequences.tokens, keys, size, latent.value)
    pairs = sequences.number * heads * sequences.pairs(most)
    work = replace(
        work,
        reads=query.nbytes + expanded.nbytes + n_keys * latent.rotated * step.width,
        writes=float(sequences.rows * heads * latent.value * step.width),
        flops=float(pairs * (2 * (size + latent.value) + ROW_FLOPS["softmax"])),
    )
    return step.add("attention", "attention", work, [query, expanded, *after])


def _index(
    step: StepGraph, sequences: Sequences, model: Architecture, indexer: Indexer, x: StepTensor, query_input: StepTensor
) -> StepTensor:
    """Add the indexer: each GPU scores all keys in fp8 with all heads, and keeps the best."""
    rows = sequences.rows
    assert model.latent is not None
    rank = model.latent.query_rank or model.hidden
    key = step.linear("index.k", [x], rows, model.hidden, indexer.features + indexer.heads)
    key = step.norm("index.k_norm", [key], rows, indexer.features, kind="layer_norm")
    query = step.linear("index.q", [query_input], rows, rank, indexer.heads * indexer.features)
    elements = rows * (indexer.heads + 1) * indexer.features
    position = step.moving(
        "index.rope",
        "rope",
        [query, key],
        elements,
        reads=float(elements * step.width),
        writes=float(elements),
        flops=6.0 * elements,
    )
    pairs = sequences.number * sequences.pairs(None)
    work = replace(
        step.costs.attention(sequences.number, sequences.tokens, sequences.context, indexer.features, 1),
        rule="divided",
        batch=sequences.number,
        rows=indexer.heads * sequences.tokens,
        flops=float(pairs * indexer.heads * (2 * indexer.features + 2)),
        reads=float(elements + sequences.number * sequences.context * (indexer.features + 4)),
        writes=4.0 * pairs,
    )
    scores = step.add("index.scores", "attention", work, [position])
    best = replace(
        step.costs.rows("softmax", rows, sequences.context, flops=float(pairs)),
        reads=scores.nbytes,
        writes=4.0 * rows * min(indexer.kept, sequences.context),
    )
    return step.add("index.top_k", "top_k", best, [scores])
