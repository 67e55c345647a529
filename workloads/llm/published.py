"""Public sizes of language models, by the keys of a ``config.json`` of Hugging Face, with their sources."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple


class Published(NamedTuple):
    """Sizes that a model was published with, and the repository whose ``config.json`` says them."""

    repository: str
    sizes: Mapping[str, Any]

    @property
    def source(self) -> str:
        """Address of the file."""
        return f"https://huggingface.co/{self.repository}/blob/main/config.json"


def _sizes(
    model_type: str, hidden: int, layers: int, heads: int, kv_heads: int, ffn: int, vocabulary: int, **more: Any
) -> dict[str, Any]:
    """Return a document with the sizes that all models have, and more."""
    return {
        "model_type": model_type,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": ffn,
        "vocab_size": vocabulary,
        **more,
    }


def _latent(query_rank: int | None) -> dict[str, Any]:
    """Return the sizes of DeepSeek's attention."""
    return {
        "q_lora_rank": query_rank,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
    }


def _expert_sizes(number: int, chosen: int, ffn: int, shared: int, first_dense: int) -> dict[str, Any]:
    """Return the sizes of DeepSeek's experts."""
    return {
        "n_routed_experts": number,
        "num_experts_per_tok": chosen,
        "moe_intermediate_size": ffn,
        "n_shared_experts": shared,
        "first_k_dense_replace": first_dense,
    }


def _deepseek_v3(**more: Any) -> dict[str, Any]:
    return _sizes(
        "deepseek_v3",
        7168,
        61,
        128,
        128,
        18432,
        129280,
        quantization_config={"quant_method": "fp8"},
        **_latent(1536),
        **_expert_sizes(256, 8, 2048, 1, 3),
        **more,
    )


_FP16: Final = {"torch_dtype": "float16"}
_MXFP4: Final = {"quantization_config": {"quant_method": "mxfp4"}}

PUBLISHED: Final[Mapping[str, Published]] = MappingProxyType(
    {
        "llama-2-7b": Published("meta-llama/Llama-2-7b-hf", _sizes("llama", 4096, 32, 32, 32, 11008, 32000, **_FP16)),
        "llama-2-70b": Published("meta-llama/Llama-2-70b-hf", _sizes("llama", 8192, 80, 64, 8, 28672, 32000, **_FP16)),
        "llama-3.1-8b": Published("meta-llama/Llama-3.1-8B", _sizes("llama", 4096, 32, 32, 8, 14336, 128256)),
        "llama-3.1-70b": Published("meta-llama/Llama-3.1-70B", _sizes("llama", 8192, 80, 64, 8, 28672, 128256)),
        "llama-3.1-405b": Published("meta-llama/Llama-3.1-405B", _sizes("llama", 16384, 126, 128, 8, 53248, 128256)),
        "llama-4-scout": Published(
            "meta-llama/Llama-4-Scout-17B-16E-Instruct",
            _sizes(
                "llama4_text",
                5120,
                48,
                40,
                8,
                8192,
                202048,
                head_dim=128,
                num_local_experts=16,
                num_experts_per_tok=1,
                intermediate_size_mlp=16384,
                interleave_moe_layer_step=1,
            ),
        ),
        "mistral-7b": Published("mistralai/Mistral-7B-v0.3", _sizes("mistral", 4096, 32, 32, 8, 14336, 32768)),
        "mixtral-8x7b": Published(
            "mistralai/Mixtral-8x7B-v0.1",
            _sizes("mixtral", 4096, 32, 32, 8, 14336, 32000, num_local_experts=8, num_experts_per_tok=2),
        ),
        "mixtral-8x22b": Published(
            "mistralai/Mixtral-8x22B-v0.1",
            _sizes("mixtral", 6144, 56, 48, 8, 16384, 32000, num_local_experts=8, num_experts_per_tok=2),
        ),
        "qwen2.5-7b": Published("Qwen/Qwen2.5-7B", _sizes("qwen2", 3584, 28, 28, 4, 18944, 152064)),
        "qwen2.5-72b": Published("Qwen/Qwen2.5-72B", _sizes("qwen2", 8192, 80, 64, 8, 29568, 152064)),
        "qwen3-8b": Published("Qwen/Qwen3-8B", _sizes("qwen3", 4096, 36, 32, 8, 12288, 151936, head_dim=128)),
        "qwen3-32b": Published("Qwen/Qwen3-32B", _sizes("qwen3", 5120, 64, 64, 8, 25600, 151936, head_dim=128)),
        "qwen3-30b-a3b": Published(
            "Qwen/Qwen3-30B-A3B",
            _sizes(
                "qwen3_moe",
                2048,
                48,
                32,
                4,
                6144,
                151936,
                head_dim=128,
                num_experts=128,
                num_experts_per_tok=8,
                moe_intermediate_size=768,
            ),
        ),
        "qwen3-235b-a22b": Published(
            "Qwen/Qwen3-235B-A22B",
            _sizes(
                "qwen3_moe",
                4096,
                94,
                64,
                4,
                12288,
                151936,
                head_dim=128,
                num_experts=128,
                num_experts_per_tok=8,
                moe_intermediate_size=1536,
            ),
        ),
        "deepseek-v2-lite": Published(
            "deepseek-ai/DeepSeek-V2-Lite",
            _sizes("deepseek_v2", 2048, 27, 16, 16, 10944, 102400, **_latent(None), **_expert_sizes(64, 6, 1408, 2, 1)),
        ),
        "deepseek-v2": Published(
            "deepseek-ai/DeepSeek-V2",
            _sizes(
                "deepseek_v2", 5120, 60, 128, 128, 12288, 102400, **_latent(1536), **_expert_sizes(160, 6, 1536, 2, 1)
            ),
        ),
        "deepseek-v3": Published("deepseek-ai/DeepSeek-V3", _deepseek_v3()),
        "deepseek-v3.2": Published(
            "deepseek-ai/DeepSeek-V3.2-Exp", _deepseek_v3(index_n_heads=64, index_head_dim=128, index_topk=2048)
        ),
        "gpt-oss-20b": Published(
            "openai/gpt-oss-20b",
            _sizes(
                "gpt_oss",
                2880,
                24,
                64,
                8,
                2880,
                201088,
                head_dim=64,
                num_local_experts=32,
                num_experts_per_tok=4,
                sliding_window=128,
                attention_bias=True,
                **_MXFP4,
            ),
        ),
        "gpt-oss-120b": Published(
            "openai/gpt-oss-120b",
            _sizes(
                "gpt_oss",
                2880,
                36,
                64,
                8,
                2880,
                201088,
                head_dim=64,
                num_local_experts=128,
                num_experts_per_tok=4,
                sliding_window=128,
                attention_bias=True,
                **_MXFP4,
            ),
        ),
    }
)
"""Name -> the sizes that a model was published with."""
