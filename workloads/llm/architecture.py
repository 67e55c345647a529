"""`Architecture`: the sizes of a language model, and how they are read from a ``config.json`` of Hugging Face."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from simsched.base.errors import FormatError, GraphError, UnknownNameError, brief_text
from simsched.base.io import read_json
from workloads.checks import one_of, whole
from workloads.llm.published import PUBLISHED

_GROUPED: Final = (
    *("llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "gpt_oss", "llama4", "llama4_text"),
    *("phi3", "olmo2", "olmo3", "glm4_moe"),
)
_LATENT: Final = ("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm_moe_dsa")
MODEL_TYPES: Final = (*_GROUPED, *_LATENT)
"""Values of ``model_type`` that are read."""
_DTYPES: Final = {"float16": "fp16", "bfloat16": "bf16", "float32": "bf16"}
_LARGEST: Final = 2**24
"""Most features, heads, experts or words."""
_MOST_LAYERS: Final = 10_000
_EXPERTS: Final = ("n_routed_experts", "num_local_experts", "num_experts")
_PARAMETERS_OF: Final = {"fp8": "fp8", "mxfp4": "fp4", "nvfp4": "fp4"}


@dataclass(frozen=True, slots=True)
class Latent:
    """Sizes of multi-head latent attention.

    Parameters
    ----------
    query_rank
        Features of the compressed query; None if queries are not compressed.
    rank
        Features of the compressed keys and values, which the cache holds.
    plain, rotated, value
        Features of a head: of queries and keys without and with positions, and of values.
    """

    query_rank: int | None
    rank: int
    plain: int
    rotated: int
    value: int


@dataclass(frozen=True, slots=True)
class Indexer:
    """Sizes of the indexer that chooses which keys a query attends to."""

    heads: int
    features: int
    kept: int


@dataclass(frozen=True, slots=True)
class Experts:
    """Sizes of a mixture of experts.

    Parameters
    ----------
    number, chosen
        Number of routed experts of a layer, and number chosen per token.
    ffn, shared_ffn
        Inner features of a routed expert, and of all shared ones together; 0 if there are none.
    """

    number: int
    chosen: int
    ffn: int
    shared_ffn: int


@dataclass(frozen=True, slots=True)
class Architecture:
    """The sizes of a language model.

    Parameters
    ----------
    name
        Of the model.
    hidden, layers, vocabulary
        Features of a token between layers, layers, and words.
    heads, kv_heads, head
        Heads of queries, of keys and values, and features of a head.
    ffn
        Inner features of a dense feed-forward network.
    has_bias
        Whether the products before the attention have biases.
    normed
        Whether queries and keys are normalised: ``"no"``, by ``"head"``, or all heads of a token (``"token"``).
    window
        Keys that a layer of sliding attention sees.
    slides
        Whether each layer has sliding attention, one value per layer.
    latent, indexer, experts
        Where the model has such.
    is_sparse
        Whether each layer has experts, one value per layer.
    dtype
        Number format in which products compute: "fp16", "bf16" or "fp8".
    weights, expert_weights
        Number format in which weights of products, and of routed experts among them, are stored.
    """

    name: str
    hidden: int
    layers: int
    vocabulary: int
    heads: int
    kv_heads: int
    head: int
    ffn: int
    has_bias: bool
    normed: str
    window: int
    slides: tuple[bool, ...]
    latent: Latent | None
    indexer: Indexer | None
    experts: Experts | None
    is_sparse: tuple[bool, ...]
    dtype: str
    weights: str
    expert_weights: str


class _Config:
    """The keys of a ``config.json``, checked as they are read."""

    def __init__(self, source: str, data: Mapping[str, Any]) -> None:
        self.source = source
        self.data = data

    def get(self, key: str) -> Any:
        """Return the value of a key; None if it is missing or null."""
        return self.data.get(key)

    def count(self, key: str, default: int | None = None, *, least: int = 1, most: int = _LARGEST) -> int:
        """Return a whole number; a key that is missing or null has the default, or is refused."""
        value = self.get(key)
        if value is None:
            if default is None:
                raise FormatError(f"{self.source}: {key} is missing; give the config.json of a language model")
            return default
        return whole(self.source, key, value, least=least, most=most)

    def flag(self, key: str, default: bool = False) -> bool:
        """Return true or false."""
        value = self.get(key)
        if value is not None and not isinstance(value, bool):
            raise FormatError(f"{self.source}: {key} must be true or false, not {brief_text(value)}")
        return default if value is None else value

    def per_layer(self, key: str, layers: int) -> list[Any] | None:
        """Return a list with a value for each layer; None if the key is missing."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) < layers:
            raise FormatError(f"{self.source}: {key} must list a value for each of the {layers} layers")
        return value[:layers]


def read_architecture(config: str) -> Architecture:
    """Return the sizes of a model.

    Parameters
    ----------
    config
        A key of `PUBLISHED`, or the path of a ``config.json``.

    Raises
    ------
    UnknownNameError
        If it is neither.
    FileError, FormatError, GraphError
        If the file cannot be read, its ``model_type`` is not known, or a size is missing or out of range.
    """
    if not isinstance(config, str):
        raise GraphError(f"config must be the name of a language model or a path, not {brief_text(config)}")
    if config.lower().endswith(".json"):
        return architecture(config, read_json(config))
    if config not in PUBLISHED:
        raise UnknownNameError("language model", config[:60], list(PUBLISHED), "; or give the path of a config.json")
    return architecture(config, PUBLISHED[config].sizes)


def architecture(source: str, document: Any) -> Architecture:
    """Return the sizes that a document of Hugging Face's form says; `source` names it in errors."""
    if not isinstance(document, dict):
        raise FormatError(f"{source}: a config.json is an object, not {brief_text(document)}")
    if "hidden_size" not in document and isinstance(document.get("text_config"), dict):
        document = {"model_type": document.get("model_type"), **document["text_config"]}
    config = _Config(source, document)
    model_type = config.get("model_type")
    if model_type not in MODEL_TYPES:
        types = ", ".join(MODEL_TYPES)
        raise FormatError(f"{source}: model_type {brief_text(model_type)} is not known; known are: {types}")
    layers = config.count("num_hidden_layers", most=_MOST_LAYERS)
    hidden = config.count("hidden_size")
    heads = config.count("num_attention_heads")
    kv_heads = config.count("num_key_value_heads", heads)
    if model_type in _LATENT:
        latent = _latent(config)
    else:
        latent = None
    if latent is None and heads % kv_heads:
        raise GraphError(f"{source}: num_key_value_heads ({kv_heads}) must divide num_attention_heads ({heads})")
    head = config.count("head_dim", max(1, hidden // heads))
    experts = _experts(config)
    window = config.count("sliding_window", 0)
    weights = _weights(config)
    stated = _DTYPES.get(str(config.get("torch_dtype") or config.get("dtype") or "bfloat16"), "bf16")
    if weights == "fp8":
        dtype = "fp8"
    else:
        dtype = stated
    has_bias = config.flag("attention_bias", model_type in ("qwen2", "qwen2_moe"))
    only_experts = weights == "fp4" and experts is not None
    return Architecture(
        name=source.rpartition("/")[2].removesuffix(".json"),
        hidden=hidden,
        layers=layers,
        vocabulary=config.count("vocab_size"),
        heads=heads,
        kv_heads=kv_heads,
        head=head,
        ffn=_dense_ffn(config, model_type),
        has_bias=has_bias,
        normed=_query_norm(config, model_type),
        window=window,
        slides=_slides(config, layers, window),
        latent=latent,
        indexer=_indexer(config),
        experts=experts,
        is_sparse=_sparse(config, layers, experts),
        dtype=dtype,
        weights=dtype if only_experts else weights or dtype,
        expert_weights=weights or dtype,
    )


def _query_norm(config: _Config, model_type: str) -> str:
    """Return how queries and keys are normalised."""
    if model_type in ("olmo2", "olmo3"):
        return "token"
    usual = model_type in ("qwen3", "qwen3_moe", "llama4", "llama4_text")
    if config.flag("use_qk_norm", usual):
        return "head"
    return "no"


def _dense_ffn(config: _Config, model_type: str) -> int:
    """Return the inner features of a dense layer, for which Llama 4 has another key."""
    if model_type.startswith("llama4"):
        return config.count("intermediate_size_mlp", config.count("intermediate_size"))
    return config.count("intermediate_size")


def _latent(config: _Config) -> Latent:
    has_rank = config.get("q_lora_rank") is not None
    return Latent(
        config.count("q_lora_rank") if has_rank else None,
        config.count("kv_lora_rank"),
        config.count("qk_nope_head_dim"),
        config.count("qk_rope_head_dim"),
        config.count("v_head_dim"),
    )


def _indexer(config: _Config) -> Indexer | None:
    if config.get("index_topk") is None:
        return None
    return Indexer(config.count("index_n_heads"), config.count("index_head_dim"), config.count("index_topk"))


def _experts(config: _Config) -> Experts | None:
    key = next((key for key in _EXPERTS if config.get(key) is not None), None)
    if key is None:
        return None
    number = config.count(key)
    chosen = config.count("num_experts_per_tok", most=number)
    ffn = config.count("moe_intermediate_size", config.count("intermediate_size"))
    shared = config.count("shared_expert_intermediate_size", 0, least=0)
    shared = shared or config.count("n_shared_experts", 0, least=0) * ffn
    if str(config.get("model_type")).startswith("llama4"):
        shared = ffn  # one shared expert, as large as a routed one
    return Experts(number, chosen, ffn, shared)


def _sparse(config: _Config, layers: int, experts: Experts | None) -> tuple[bool, ...]:
    """Return whether each layer has experts."""
    if experts is None:
        return (False,) * layers
    first = config.count("first_k_dense_replace", 0, least=0)
    every = config.count("moe_layer_freq", 1)
    step = config.count("decoder_sparse_step", config.count("interleave_moe_layer_step", 1))
    dense = config.get("mlp_only_layers") or []
    if not isinstance(dense, list):
        raise FormatError(f"{config.source}: mlp_only_layers must be a list, not {brief_text(dense)}")
    return tuple(i >= first and i % every == 0 and (i + 1) % step == 0 and i not in dense for i in range(layers))


def _slides(config: _Config, layers: int, window: int) -> tuple[bool, ...]:
    """Return whether each layer has sliding attention."""
    if not window or not config.flag("use_sliding_window", True):
        return (False,) * layers
    kinds = config.per_layer("layer_types", layers)
    if kinds is not None:
        return tuple(kind == "sliding_attention" for kind in kinds)
    if config.get("model_type") == "gpt_oss":
        return tuple(i % 2 == 0 for i in range(layers))
    return (True,) * layers


def _weights(config: _Config) -> str | None:
    """Return the number format of quantised weights; None if they are stored as activations are."""
    quantised = config.get("quantization_config")
    if quantised is None:
        return None
    if isinstance(quantised, dict):
        method = quantised.get("quant_method")
    else:
        method = quantised
    return _PARAMETERS_OF[one_of(config.source, "quant_method", method, tuple(_PARAMETERS_OF))]
