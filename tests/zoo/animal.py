"""How a model of the zoo is described, and the keys that many of their configurations share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

SPECIAL = ["<|endoftext|>", "<s>", "</s>", "<|end|>", "<|user|>", "<|assistant|>"]
TEMPLATE = "<s>{% for m in messages %}<|user|>{{ m.content }}<|end|>{% endfor %}<|assistant|>"
DATED = "<s>{{ strftime_now('%d') }}{% if enable_thinking %}think{% endif %}" + TEMPLATE


@dataclass(frozen=True, kw_only=True)
class Animal:
    """How a small model of an architecture is made, and what is expected of it."""

    type: str
    """The `model_type` of its configuration."""
    about: str = ""
    """What it has that others have not."""
    keys: dict[str, Any]
    """Of its configuration."""
    refused: str = ""
    """Words of the line that refuses it before anything is sampled; none: it goes through every stage."""
    is_whole: bool = False
    """Whether the slow tests take it through whole stages, evaluation and the probe of a run."""
    is_new: bool = False
    """Whether weights that begin as 0 or 1 are so, as before any training."""
    attention: str = "eager"
    """The attention of transformers that is right for it."""
    dtype_of_oracle: torch.dtype = torch.float64
    """What transformers can compute it in; the code of a few runs in float32 alone."""
    packs: bool = True
    template: str = TEMPLATE
    saved: dict[str, Any] = field(default_factory=dict)
    dtype: torch.dtype = torch.float32
    stops: int | list[int] = 2
    beyond: tuple[str, ...] = ()
    """Tokens of the tokenizer that the model has no embedding for."""
    model: dict[str, Any] = field(default_factory=dict)
    """Further keys of the recipe's model."""


WINDOW = 6
"""Tokens of a window or a chunk: fewer than any text has."""
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64}
DENSE = {**SIZES, "intermediate_size": 48}
GROUPED = {**DENSE, "num_key_value_heads": 2}
HEADS = {**GROUPED, "head_dim": 8}
GPT = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
SLIDES = {"sliding_window": WINDOW}
WINDOWS = {**SLIDES, "layer_types": ["sliding_attention", "full_attention"]}
QWEN_WINDOWS = {"use_sliding_window": True, "max_window_layers": 0, **SLIDES}
LINEAR = {"layer_types": ["linear_attention", "full_attention"]}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
LOCAL_EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
ROUTED_EXPERTS = {
    **{"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_group": 1, "topk_group": 1},
    **{"n_shared_experts": 1, "first_k_dense_replace": 1},
}
GROUPED_EXPERTS = {
    **{"num_experts": 4, "num_experts_per_token": 2, "moe_intermediate_size": 16, "num_expert_group": 1},
    **{"topk_group": 1, "num_shared_experts": 1, "mlp_layer_types": ["dense", "sparse"]},
}
LATENT = {
    **{**GROUPED, "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 16},
    **{"qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 8},
}
INDEXED = {
    **{"layer_types": ["indexed_attention", "indexed_attention"], "mlp_layer_types": ["dense", "sparse"]},
    **{"index_topk": WINDOW, "index_head_dim": 8, "index_n_heads": 32},
}
SOFT = {"initializer_range": 0.05, "query_pre_attn_scalar": 8}  # embeddings are multiplied by the root of their width
CALM = {"initializer_range": 0.1}  # float32 would be off by more, as errors grow from layer to layer
MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8}
UNCLAMPED = {"time_step_min": 1e-9}  # which transformers looks at in whole texts only, not token by token
DELTA = {f"linear_{name}": size for name, size in [("num_value_heads", 4), ("num_key_heads", 2)]}
DELTA |= {"linear_key_head_dim": 8, "linear_value_head_dim": 8}
SHARED_EXPERT = {"shared_expert_intermediate_size": 16, **EXPERTS}
STATE = {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 8}
ATTENTION_DROPOUT = {"attention_dropout": 0.2}
MASKLESS = "it does not know padding from tokens"
HEAD = "turns hidden states into logits in a way that is not known here"
NO_CACHE = "it keeps what it has read in a form of its own"
