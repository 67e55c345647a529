"""Steps of language models: FLOP and bytes by hand, published sizes, division among GPUs, and what is refused."""

import json

import pytest

from simsched.base.errors import FileError, FormatError, GraphError, UnknownNameError
from workloads import from_spec
from workloads.llm import PUBLISHED, llm
from workloads.llm.attention import Sequences

SMALL = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 1000,
    "torch_dtype": "float16",
}
SPARSE = SMALL | {
    "model_type": "qwen3_moe",
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "decoder_sparse_step": 1,
}
LATENT = SMALL | {
    "model_type": "deepseek_v3",
    "q_lora_rank": 24,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
}


@pytest.fixture
def step(tmp_path):
    """A function that makes the graph of a config and of parameters."""

    def make(config, **parameters):
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config))
        return llm(str(path), **parameters)

    return make


def moved(graph, name):
    """Bytes that an operator reads, of its parameters, and that it writes."""
    (work,) = graph[name].works
    return work.reads, work.weights, work.writes


def test_products_of_a_dense_layer(step):
    """3 tokens of 64 features in fp16; 4 heads of 16 and 2 of keys and of values: 64 + 2 * 32 = 128 columns."""
    graph = step(SMALL, batch=3, context=10)
    assert graph["layer1.qkv"].flops == 2 * 3 * 64 * 128
    assert moved(graph, "layer1.qkv") == (3 * 64 * 2, 64 * 128 * 2, 3 * 128 * 2)
    assert graph["layer1.o_proj"].flops == 2 * 3 * 64 * 64
    assert graph["layer1.up_gate"].flops == 2 * 3 * 64 * 256
    assert moved(graph, "layer1.down") == (3 * 128 * 2, 128 * 64 * 2, 3 * 64 * 2)
    assert moved(graph, "lm_head") == (3 * 64 * 2, 64 * 1000 * 2, 3 * 1000 * 2)


def test_decoding_reads_the_cache_once_for_each_head_of_keys(step):
    """3 sequences of 10 keys: 3 * 4 * 10 scores of 4 * 16 + 5 FLOP; 2 heads of 16 keys and values of 2 bytes."""
    graph = step(SMALL, batch=3, context=10)
    (work,) = graph["layer0.attention"].works
    assert work.flops == 3 * 4 * 10 * (4 * 16 + 5)
    assert work.reads == 3 * 64 * 2 + 3 * 10 * 2 * 2 * 16 * 2
    assert (work.rule, work.batch, work.rows, work.columns, work.inner) == ("divided", 3 * 2, 2, 10, 16)
    eight_bits = step(SMALL, batch=3, context=10, cache="fp8")
    assert moved(eight_bits, "layer0.attention")[0] == 3 * 64 * 2 + 3 * 10 * 2 * 2 * 16


def test_a_prompt_sees_what_is_before_it(step):
    """20 tokens see 1 to 20 keys: 210 pairs in each of 4 heads of 2 prompts; the last 5 of them 16 to 20: 90."""
    graph = step(SMALL, phase="prefill", batch=2, context=20)
    assert graph["layer0.attention"].flops == 2 * 4 * 210 * (4 * 16 + 5)
    assert graph["layer0.qkv"].flops == 2 * 40 * 64 * 128
    assert graph["lm_head"].flops == 2 * 2 * 64 * 1000
    last = step(SMALL, phase="prefill", batch=2, context=20, tokens=5)
    assert last["layer0.attention"].flops == 2 * 4 * 90 * (4 * 16 + 5)


@pytest.mark.parametrize("tokens", [1, 3, 7])
@pytest.mark.parametrize("most", [None, 1, 4, 100])
def test_pairs_are_those_that_a_loop_counts(tokens, most):
    context = 9
    counted = sum(min(known, most or known) for known in range(context - tokens + 1, context + 1))
    assert Sequences(1, tokens, context).pairs(most) == counted


def test_a_window_bounds_the_keys(step):
    """Of 10 keys a layer with a window of 4 reads 4, every other layer of GPT-OSS all."""
    config = SPARSE | {"model_type": "gpt_oss", "sliding_window": 4}
    graph = step(config, context=10)
    keys = [graph[f"layer{i}.attention"].works[0].columns for i in range(2)]
    assert keys == [4, 10]


def test_sums_norms_and_gates_are_fused(step):
    """A norm after the first reads and writes two tensors of 3 x 64; the gate reads 3 x 256 and writes half."""
    graph = step(SMALL, batch=3, context=10)
    tensor = 3 * 64 * 2
    assert moved(graph, "layer0.input_norm") == (tensor, 128, tensor)
    assert moved(graph, "layer0.post_norm") == (2 * tensor, 128, 2 * tensor)
    assert moved(graph, "layer0.act") == (3 * 256 * 2, 0, 3 * 128 * 2)
    assert graph["layer0.post_norm"].flops == 3 * 64 * 5
    kinds = "embedding rms_norm linear rope attention silu_mul sampling"
    assert {op.kind for op in graph.operators} == {*kinds.split()}


@pytest.mark.parametrize(
    ("changes", "rows"),
    [
        ({}, None),
        ({"model_type": "qwen3"}, (3 * 4, 16)),
        ({"model_type": "olmo2"}, (3, 64)),
        ({"use_qk_norm": True}, (3 * 4, 16)),
    ],
)
def test_queries_are_normalised_as_the_architecture_says(step, changes, rows):
    """4 heads of 16 features of 3 tokens: head by head, or all of a token."""
    graph = step(SMALL | changes, batch=3, context=10)
    assert ("layer0.q_norm" in graph.index) == (rows is not None)
    if rows is not None:
        (work,) = graph["layer0.q_norm"].works
        assert (work.rows, work.columns) == rows


def test_rotation_writes_the_cache(step):
    """It reads 4 + 2 heads and the values of 2; it writes queries in fp16, and keys and values in fp8."""
    graph = step(SMALL, batch=3, context=10, cache="fp8")
    assert moved(graph, "layer0.rope") == (3 * 8 * 16 * 2, 0, 3 * 4 * 16 * 2 + 3 * 4 * 16)


def test_tokens_reach_experts(step):
    """Of 8 experts 2 are drawn by each of 3 tokens: 8 (1 - (3/4)^3) = 4.625 are reached, 6 pairs computed."""
    graph = step(SPARSE, batch=3, context=10)
    (work,) = graph["layer0.experts.up_gate"].works
    assert work.flops == 2 * 6 * 64 * 2 * 32
    assert work.weights == pytest.approx(4.625 * 64 * 64 * 2)
    assert (work.batch, work.rows, work.columns, work.inner) == (5, 2, 64, 64)
    assert graph["layer0.experts.up_gate"].weight_nbytes == 8 * 64 * 64 * 2
    assert graph["layer0.experts.down"].flops == 2 * 6 * 32 * 64
    assert graph["layer0.router"].flops == 2 * 3 * 64 * 8


def test_latent_attention_asks_compressed_keys(step):
    """A key of 32 + 8 numbers is read once for all 4 heads; each head turns 16 features into 32 and back."""
    graph = step(LATENT, batch=3, context=10)
    (work,) = graph["layer0.attention"].works
    assert work.flops == 3 * 4 * 10 * (2 * (40 + 32) + 5)
    assert work.reads == 3 * 4 * 40 * 2 + 3 * 10 * 40 * 2
    assert graph["layer0.absorb_k"].flops == 2 * 4 * 3 * 16 * 32
    assert graph["layer0.qkv_a"].flops == 2 * 3 * 64 * (24 + 40)
    assert "layer0.router" not in graph.index
    assert {"layer1.router", "layer1.shared.down"} <= {*graph.names}


def test_a_prompt_makes_heads_of_compressed_keys(step):
    """20 keys become 4 heads of 16 + 16 features; scores have 24 features and values 16."""
    graph = step(LATENT, phase="prefill", context=20)
    assert graph["layer0.kv_b"].flops == 2 * 20 * 32 * 4 * 32
    assert graph["layer0.attention"].flops == 4 * 210 * (2 * (24 + 16) + 5)


def test_the_indexer_scores_all_keys_and_keeps_the_best(step):
    """Of 100 keys 8 are kept: attention reads those; the indexer reads 100 keys of 6 bytes and 4 of their scale."""
    config = LATENT | {"index_n_heads": 2, "index_head_dim": 6, "index_topk": 8}
    graph = step(config, context=100)
    assert graph["layer0.attention"].works[0].columns == 8
    scores = graph["layer0.index.scores"].works[0]
    assert scores.flops == 100 * 2 * (2 * 6 + 2)
    assert scores.reads == 3 * 6 + 100 * (6 + 4)


@pytest.mark.parametrize(
    ("dtype", "weights", "computed", "nbytes"),
    [(None, None, "fp16", 2.0), ("bf16", "fp8", "bf16", 1.0), ("fp8", None, "fp8", 1.0), ("fp8", "fp4", "fp8", 0.5)],
)
def test_number_formats(step, dtype, weights, computed, nbytes):
    """Products compute in one format and store weights in another; norms, router and words stay in 16 bits."""
    graph = step(SPARSE, dtype=dtype, weights=weights)
    for name, size in (("layer0.qkv", 64 * 128), ("layer0.experts.down", 2 * 32 * 64)):
        assert (graph[name].dtype, graph[name].works[0].weights) == (computed, size * nbytes)
    plain = computed if computed != "fp8" else "bf16"
    assert {graph[name].dtype for name in ("layer0.router", "lm_head", "layer0.input_norm")} == {plain}
    assert graph["lm_head"].works[0].weights == 64 * 1000 * 2


def test_a_quantised_config_is_read_as_it_says(step):
    """FP8 computes and stores all products so; MXFP4 stores the experts alone so."""
    eight = step(SPARSE | {"quantization_config": {"quant_method": "fp8"}})
    assert (eight["layer0.qkv"].dtype, eight["layer0.qkv"].works[0].weights) == ("fp8", 64 * 128)
    four = step(SPARSE | {"quantization_config": {"quant_method": "mxfp4"}})
    assert four["layer0.qkv"].works[0].weights == 64 * 128 * 2
    assert four["layer0.experts.down"].works[0].weights == 2 * 32 * 64 * 0.5


PARAMETERS = {  # billions, as published with the models
    "llama-2-7b": 6.74,
    "llama-2-70b": 68.98,
    "llama-3.1-8b": 8.03,
    "llama-3.1-70b": 70.55,
    "llama-3.1-405b": 405.85,
    "mistral-7b": 7.25,
    "mixtral-8x7b": 46.7,
    "mixtral-8x22b": 140.6,
    "qwen2.5-7b": 7.62,
    "qwen2.5-72b": 72.7,
    "qwen3-8b": 8.19,
    "qwen3-32b": 32.8,
    "qwen3-30b-a3b": 30.5,
    "qwen3-235b-a22b": 235.1,
    "deepseek-v2-lite": 15.7,
    "deepseek-v2": 235.7,
    "deepseek-v3": 671.0,
    "gpt-oss-20b": 20.9,
    "gpt-oss-120b": 116.8,
}


@pytest.mark.parametrize(("name", "billions"), PARAMETERS.items())
def test_published_models_have_as_many_parameters(name, billions):
    graph = llm(name, dtype="fp16")
    assert graph["lm_head"].dtype == "fp16"
    assert sum(op.weight_nbytes for op in graph.operators) / 2e9 == pytest.approx(billions, rel=0.005)


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_every_published_model_has_both_steps(name, phase):
    graph = llm(name, phase=phase, context=64, layers=4)
    assert sum(op.kind == "attention" and "index" not in op.name for op in graph.operators) == 4
    assert PUBLISHED[name].source.startswith("https://huggingface.co/")


def exchanged(graph, name):
    """Operation, bytes and ranks of a collective."""
    collective = graph[name].collective
    return collective.operation, collective.bytes, collective.ranks


def test_two_gpus_share_heads_and_features(step):
    """2 heads and 1 of keys and values each: 64 columns; 64 features; 500 words, of which 1,000 scores are gathered."""
    graph = step(SMALL, batch=3, context=10, tp=2)
    assert graph["layer0.qkv"].flops == 2 * 3 * 64 * 64
    assert graph["layer0.up_gate"].flops == 2 * 3 * 64 * 128
    assert graph["layer0.down"].flops == 2 * 3 * 64 * 64
    assert graph["layer0.attention"].flops == 3 * 2 * 10 * (4 * 16 + 5)
    for name in ("embedding.all_reduce", "layer1.attention.all_reduce", "layer1.ffn.all_reduce"):
        assert exchanged(graph, name) == ("all_reduce", 3 * 64 * 2, 2)
    assert graph["lm_head"].flops == 2 * 3 * 64 * 500
    assert exchanged(graph, "lm_head.all_gather") == ("all_gather", 3 * 1000 * 2, 2)


def test_more_gpus_than_heads_of_keys_have_copies_of_them(step):
    """4 GPUs and 2 heads of keys: 1 of 4 heads, and one of keys and of values, 48 columns."""
    assert step(SMALL, batch=3, context=10, tp=4)["layer0.qkv"].flops == 2 * 3 * 64 * 48


def test_experts_are_held_by_the_gpus_that_share_tokens(step):
    """2 GPUs with all 3 tokens hold 4 whole experts each: half of the 6 pairs, and their sum by all-reduce."""
    graph = step(SPARSE, batch=3, context=10, tp=2, ep=2)
    assert graph["layer0.experts.down"].flops == 2 * 3 * 32 * 64
    assert graph["layer0.experts.down"].weight_nbytes == 4 * 32 * 64 * 2
    assert graph["layer0.experts.down"].works[0].weights == pytest.approx(4.625 / 2 * 32 * 64 * 2)
    assert "layer0.dispatch" not in graph.index
    assert exchanged(graph, "layer0.ffn.all_reduce") == ("all_reduce", 3 * 64 * 2, 2)


def test_experts_are_divided_among_the_gpus_that_share_them(step):
    """4 GPUs and 2 parts of the experts: each expert of 32 features is on 2 GPUs."""
    graph = step(SPARSE, batch=3, context=10, tp=4, ep=2)
    assert graph["layer0.experts.down"].flops == 2 * 3 * 16 * 64
    assert graph["layer0.experts.down"].weight_nbytes == 4 * 16 * 64 * 2


def test_tokens_go_to_experts_by_all_to_all(step):
    """4 GPUs with 2 of 8 sequences each, of 2 experts each: 16 pairs, 4 here, of 8 (1 - (3/4)^8) / 4 experts."""
    graph = step(SPARSE, batch=8, context=10, ep=4)
    assert graph["layer0.qkv"].flops == 2 * 2 * 64 * 128
    assert exchanged(graph, "layer0.dispatch") == ("all_to_all", 2 * 2 * 64 * 2, 4)
    assert exchanged(graph, "layer0.combine") == ("all_to_all", 2 * 2 * 64 * 2, 4)
    assert graph["layer0.experts.down"].flops == 2 * 4 * 32 * 64
    assert graph["layer0.experts.down"].works[0].weights == pytest.approx(8 * (1 - 0.75**8) / 4 * 32 * 64 * 2)
    assert not any(name.endswith("all_reduce") for name in graph.names)


def test_dispatched_tokens_have_the_format_of_products(step):
    """fp8 on the way to the experts, bf16 on the way back."""
    graph = step(SPARSE, batch=8, context=10, ep=4, dtype="fp8")
    assert [graph[f"layer0.{name}"].collective.bytes for name in ("dispatch", "combine")] == [256.0, 512.0]


def test_shared_experts_run_beside_routed_ones(step):
    """No path joins them but by the norm before and the sum after; tensor parallelism divides them."""
    graph = step(LATENT, batch=3, context=10, tp=2)
    assert graph["layer1.shared.up_gate"].flops == 2 * 3 * 64 * 32
    sources = {edge.src for edge in graph.edges if edge.dst == "layer1.shared.up_gate"}
    assert sources == {"layer1.post_norm"}
    assert {edge.dst for edge in graph.edges if edge.src == "layer1.shared.down"} == {"layer1.experts.add_shared"}


def test_layers_may_be_left_out(step):
    names = step(SMALL, layers=1).names
    assert ("layer0.down" in names, "layer1.down" in names, names[-1]) == (True, False, "sampling")


def test_parts_of_a_batch_do_not_depend_on_each_other(step):
    """5 sequences as 2 and 3: no edge between them, and all their FLOP together."""
    graph = step(SMALL, batch=5, context=10, microbatches=2)
    assert all(edge.src.split(".")[0] == edge.dst.split(".")[0] for edge in graph.edges)
    flops = [graph[f"micro{i}.layer0.qkv"].flops for i in range(2)]
    assert flops == [2 * n * 64 * 128 for n in (2, 3)]


def test_separate_products(step):
    graph = step(SMALL, batch=3, context=10, qkv="separate")
    assert [graph[f"layer0.{name}_proj"].flops for name in "qkv"] == [2 * 3 * 64 * n for n in (64, 32, 32)]
    joined = step(SMALL, batch=3, context=10)
    assert graph.flops.sum() == joined.flops.sum()


def test_specs(tmp_path):
    """A path may have commas; a config of several modes has the sizes of the text within."""
    path = tmp_path / "a, b.json"
    path.write_text(json.dumps({"model_type": "llama", "text_config": SMALL}))
    graph = from_spec(f"llm:{path},batch=3,layers=1")
    assert graph["layer0.qkv"].flops == 2 * 3 * 64 * 128
    assert from_spec("llm:llama-2-7b,layers=1") == llm("llama-2-7b", layers=1)
    assert from_spec("llm,layers=1") == llm(layers=1)


REFUSED = {
    "llm:nope": (UnknownNameError, "unknown language model 'nope'; closest of .* known: .*; or give the path of a"),
    "llm:missing.json": (FileError, r"cannot read missing\.json"),
    "llm:llama-2-7b,bach=2": (GraphError, "has no parameter 'bach'; known are: config, phase, batch"),
    "llm:llama-2-7b,phase=train": (GraphError, "phase must be 'decode' or 'prefill', not 'train'"),
    "llm:llama-2-7b,tp=3": (GraphError, r"tp \(3\) must divide its 32 heads"),
    "llm:llama-3.1-8b,context=4,tokens=5": (GraphError, "tokens must be at most 4, not 5"),
    "llm:llama-2-7b,ep=2": (GraphError, r"ep \(2\) is for models with experts; this one has none"),
    "llm:qwen3-30b-a3b,ep=3": (GraphError, r"ep \(3\) must divide its 128 experts"),
    "llm:deepseek-v2,tp=8,ep=20": (GraphError, r"one of tp \(8\) and ep \(20\) must be a multiple of the other"),
    "llm:llama-2-7b,layers=33": (GraphError, "layers must be at most 32, not 33"),
    "llm:llama-2-7b,weights=int3": (GraphError, "weights must be 'fp16' or 'bf16' or 'fp8' or 'fp4', not 'int3'"),
    "llm:llama-2-7b,microbatches=2": (GraphError, r"microbatches \(2\) must be at most the 1 sequences of a GPU"),
}


@pytest.mark.parametrize("spec", REFUSED)
def test_refused_specs(spec):
    error, message = REFUSED[spec]
    with pytest.raises(error, match=message):
        from_spec(spec)


BROKEN = {
    "model_type 'bert' is not known; known are: llama": {"model_type": "bert"},
    "hidden_size is missing": {"hidden_size": None},
    "hidden_size must be a whole number, not 'wide'": {"hidden_size": "wide"},
    "num_hidden_layers must be at least 1, not 0": {"num_hidden_layers": 0},
    r"num_key_value_heads \(3\) must divide num_attention_heads \(4\)": {"num_key_value_heads": 3},
    "quant_method must be 'fp8' or 'mxfp4' or 'nvfp4', not 'awq'": {"quantization_config": {"quant_method": "awq"}},
    "attention_bias must be true or false, not 1": {"attention_bias": 1},
    "layer_types must list a value for each of the 2 layers": {"sliding_window": 4, "layer_types": ["full_attention"]},
}


@pytest.mark.parametrize("message", BROKEN)
def test_a_broken_config_is_refused(step, message):
    with pytest.raises((FormatError, GraphError), match=f"config.json: {message}") as caught:
        step(SMALL | BROKEN[message])
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) <= 500
