"""`llm`: one step of a language model on one of the GPUs that run it."""

from dataclasses import replace
from typing import Final

from simsched.base.errors import GraphError
from simsched.model.graph import Collective, OpGraph
from workloads.checks import one_of, whole
from workloads.costs import INDEX_NBYTES, ROW_FLOPS
from workloads.llm.architecture import Architecture, read_architecture
from workloads.llm.attention import Sequences, attention
from workloads.llm.feed_forward import Ranks, dense, mixture
from workloads.llm.step import STORED_NBYTES, NumberFormats, StepGraph, StepTensor

PHASES: Final = ("decode", "prefill")
_PRODUCTS: Final = ("fp32", "fp16", "bf16", "fp8")
_STORED: Final = ("fp16", "bf16", "fp8", "fp4")
_CACHES: Final = ("fp16", "bf16", "fp8")
_MOST_TOKENS: Final = 2**24
_MOST_RANKS: Final = 4096
_MOST_PARTS: Final = 64
_QKV: Final = ("joined", "separate")


def llm(
    config: str = "llama-3.1-8b",
    *,
    phase: str = "decode",
    batch: int = 1,
    context: int = 2048,
    tokens: int | None = None,
    tp: int = 1,
    ep: int = 1,
    layers: int | None = None,
    dtype: str | None = None,
    weights: str | None = None,
    cache: str | None = None,
    microbatches: int = 1,
    qkv: str = "joined",
) -> OpGraph:
    """Return one step of a language model, as an inference engine runs it on one of its GPUs.

    Parameters
    ----------
    config
        A model that is known by name (``workloads.llm.PUBLISHED``), or the path of a ``config.json``
        of Hugging Face.
    phase
        "decode": each sequence gets one new token; "prefill": each sequence is new.
    batch
        Sequences, of all GPUs together; groups with sequences of their own have equal parts, rounded up.
    context
        Tokens of each sequence that are known after the step.
    tokens
        New tokens of each sequence; by default 1 in decode and `context` in prefill. More in decode are drafts that
        are verified, fewer in prefill the last chunk of a prompt.
    tp, ep
        GPUs that share the heads and features of a token, and parts of the experts. More parts than `tp` make
        ``ep / tp`` groups with sequences of their own, and tokens go to the experts by all-to-all. Of fewer parts each
        expert is divided among ``tp / ep`` GPUs.
    layers
        Leave out those after so many; None for all.
    dtype
        Number format in which products compute: fp32, fp16, bf16 or fp8 (activations between them are in bf16 then);
        by default the config's.
    weights
        Number format in which weights of products are stored: fp16, bf16, fp8 or fp4; by default `dtype`, or as the
        config is quantised.
    cache
        Number format of keys and values: fp16, bf16 or fp8; by default the same as of activations.
    microbatches
        Make as many steps, each of a part of the batch, that do not depend on each other.
    qkv
        "joined": queries, keys and values are one product, and their rotation is one kernel; "separate": each is a
        product of its own (grouped attention).

    Returns
    -------
    OpGraph
        The operators of one GPU. All GPUs have the same; a collective operator stands for all of them.

    Raises
    ------
    UnknownNameError, FileError, FormatError
        If there is no such model.
    GraphError
        If a value is out of range, or heads or experts cannot be divided so.

    Notes
    -----
    Operators follow vLLM and TensorRT-LLM: the sum of residuals is part of the norm after it, SiLU and the
    product with the gate are one kernel, rotation writes the cache, and the quantisation of activations is part of
    the kernel before. Tokens reach as many experts as expected if each draws evenly, and experts that are reached have
    as many tokens each; real routers are less even. Where a sequence has up to 16 new tokens, latent attention asks
    compressed keys themselves. Left out are scales of quantised weights, the host, and the cache of keys and values in
    `weight_nbytes`.

    Examples
    --------
    >>> llm("llama-2-7b", batch=32)
    OpGraph('llama-2-7b decode', 292 operators, 355 edges)
    """
    model = read_architecture(config)
    one_of(config, "phase", phase, PHASES)
    whole(config, "batch", batch, most=_MOST_TOKENS)
    whole(config, "context", context, most=_MOST_TOKENS)
    if tokens is not None:
        new = whole(config, "tokens", tokens, most=context)
    elif phase == "decode":
        new = 1
    else:
        new = context
    ranks = _ranks(config, model, tp, ep)
    if layers is not None:
        whole(config, "layers", layers, most=model.layers)
    formats = _formats(config, model, dtype, weights, cache)
    number = -(-batch // ranks.dp)
    whole(config, "microbatches", microbatches, most=_MOST_PARTS)
    if number < microbatches:
        raise GraphError(f"{config}: microbatches ({microbatches}) must be at most the {number} sequences of a GPU")
    step = StepGraph(f"{model.name} {phase}", formats, is_fused=one_of(config, "qkv", qkv, _QKV) == "joined")
    for i in range(microbatches):
        part = (number + i) // microbatches
        if microbatches > 1:
            prefix = f"micro{i}."
        else:
            prefix = ""
        _add_step(step, model, Sequences(part, new, context), ranks, layers or model.layers, prefix)
    return step.graph()


def _add_step(
    step: StepGraph, model: Architecture, sequences: Sequences, ranks: Ranks, layers: int, prefix: str
) -> None:
    """Add the operators of a step."""
    rows = sequences.rows
    step.block = prefix.removesuffix(".")
    words = -(-model.vocabulary // ranks.tp)
    table = words * model.hidden * STORED_NBYTES[step.formats.plain]
    look_up = step.costs.gather(rows, model.hidden, indices=float(rows * INDEX_NBYTES))
    x = step.add("embedding", "embedding", look_up, [], kept=table)
    x = _all_reduced(step, "embedding.all_reduce", x, ranks.tp)
    residual: StepTensor | None = None
    for i in range(layers):
        step.block = f"{prefix}layer{i}"
        normed = _norm(step, "input_norm", x, residual, rows, model.hidden)
        residual = normed
        x = attention(step, sequences, model, normed, shares=ranks.tp, slides=model.slides[i])
        x = _all_reduced(step, "attention.all_reduce", x, ranks.tp)
        normed = _norm(step, "post_norm", x, residual, rows, model.hidden)
        residual = normed
        if model.is_sparse[i] and model.experts is not None:
            x = mixture(step, normed, rows, model.hidden, model.experts, ranks)
        else:
            x = dense(step, normed, rows, model.hidden, -(-model.ffn // ranks.tp))
        x = _all_reduced(step, "ffn.all_reduce", x, ranks.tp)
    step.block = prefix.removesuffix(".")
    x = _norm(step, "final_norm", x, residual, rows, model.hidden)
    last = x._replace(nbytes=float(sequences.number * model.hidden * step.width))
    scores = step.linear("lm_head", [last], sequences.number, model.hidden, words, plain=True)
    if ranks.tp > 1:
        scores = step.collective(
            "lm_head.all_gather", Collective("all_gather", scores.nbytes * ranks.tp, ranks.tp), [scores]
        )
    every = float(sequences.number * words * ranks.tp)
    work = replace(
        step.costs.rows("softmax", sequences.number, words * ranks.tp, flops=every * (ROW_FLOPS["softmax"] + 1)),
        reads=every * step.width,
        writes=float(sequences.number * INDEX_NBYTES),
    )
    step.add("sampling", "sampling", work, [scores])


def _norm(step: StepGraph, name: str, x: StepTensor, residual: StepTensor | None, rows: int, hidden: int) -> StepTensor:
    """Add a norm, which adds a branch to the residual first."""
    if residual is None:
        xs = [x]
    else:
        xs = [x, residual]
    return step.norm(name, xs, rows, hidden, adds=residual is not None)


def _all_reduced(step: StepGraph, name: str, x: StepTensor, ranks: int) -> StepTensor:
    """Return the sum of a tensor over GPUs; the tensor itself of one GPU."""
    if ranks == 1:
        return x
    return step.collective(name, Collective("all_reduce", x.nbytes, ranks), [x])


def _ranks(config: str, model: Architecture, tp: int, ep: int) -> Ranks:
    """Return how the model is divided, or refuse it."""
    whole(config, "tp", tp, most=_MOST_RANKS)
    whole(config, "ep", ep, most=_MOST_RANKS)
    if model.heads % tp:
        raise GraphError(f"{config}: tp ({tp}) must divide its {model.heads} heads")
    if model.latent is None and model.kv_heads % tp and tp % model.kv_heads:
        raise GraphError(
            f"{config}: tp ({tp}) must divide its {model.kv_heads} heads of keys, or be a multiple of them"
        )
    if ep > 1 and model.experts is None:
        raise GraphError(f"{config}: ep ({ep}) is for models with experts; this one has none")
    if model.experts is not None and model.experts.number % ep:
        raise GraphError(f"{config}: ep ({ep}) must divide its {model.experts.number} experts")
    if max(tp, ep) % min(tp, ep):
        raise GraphError(f"{config}: one of tp ({tp}) and ep ({ep}) must be a multiple of the other")
    return Ranks(tp, ep)


def _formats(
    config: str, model: Architecture, dtype: str | None, weights: str | None, cache: str | None
) -> NumberFormats:
    if dtype is None:
        products = model.dtype
        stored = model.weights
        of_experts = model.expert_weights
    else:
        products = stored = of_experts = one_of(config, "dtype", dtype, _PRODUCTS)
    if weights is not None:
        stored = of_experts = one_of(config, "weights", weights, _STORED)
    formats = NumberFormats(products, stored, of_experts, "")
    return replace(formats, cache=formats.plain if cache is None else one_of(config, "cache", cache, _CACHES))
