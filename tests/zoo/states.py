"""Architectures of linear attention, convolutions or states, also beside attention."""

from __future__ import annotations

from tests.zoo.animal import (
    CALM,
    DELTA,
    DENSE,
    EXPERTS,
    GROUPED,
    GROUPED_EXPERTS,
    HEADS,
    LATENT,
    LINEAR,
    LOCAL_EXPERTS,
    MAMBA,
    MASKLESS,
    NO_CACHE,
    SHARED_EXPERT,
    STATE,
    UNCLAMPED,
    WINDOW,
    Animal,
)

STATE_ANIMALS = {
    "qwen3_next": Animal(
        type="qwen3_next",
        about="linear attention, experts",
        keys={**HEADS, **DELTA, **SHARED_EXPERT, **LINEAR},
        is_whole=True,
        packs=False,
    ),
    "qwen3_5_text": Animal(
        type="qwen3_5_text", about="linear attention", keys={**HEADS, **DELTA, **LINEAR, **CALM}, packs=False
    ),
    "qwen3_5_moe_text": Animal(
        type="qwen3_5_moe_text",
        about="linear attention, experts",
        keys={**HEADS, **DELTA, **SHARED_EXPERT, **LINEAR, **CALM},
        packs=False,
    ),
    "qwen4_exp_text": Animal(
        type="qwen4_exp_text",
        about="linear and sparse attention, experts",
        keys={
            **{**HEADS, **DELTA, **SHARED_EXPERT, "layer_types": ["linear_attention", "indexed_attention"]},
            **{"hc_lowrank": 8, "ple_embed_dim": 8, "ngram_vocab_size_base": 64, "split_ngram_parts": 4},
            **{"make_ngram_vocab_size_divisible_by": 8, "indexer_n_heads": 2, "indexer_kv_heads": 1},
            **{"indexer_head_dim": 8, "indexer_budget": WINDOW, "indexer_compress_ratio": 2},
        },
        packs=False,
    ),
    "olmo_hybrid": Animal(type="olmo_hybrid", about="linear attention", keys={**HEADS, **DELTA, **LINEAR}, packs=False),
    "kimi_linear": Animal(
        type="kimi_linear",
        about="linear and latent attention, experts",
        keys={**LATENT, **GROUPED_EXPERTS, **LINEAR, "linear_head_dim": 8, "linear_num_heads": 4},
        packs=False,
    ),
    "bailing_hybrid": Animal(
        type="bailing_hybrid",
        about="linear and latent attention, experts",
        keys={**LATENT, **GROUPED_EXPERTS, **LINEAR, "linear_head_dim": 8, "linear_num_heads": 4},
        packs=False,
    ),
    "minimax": Animal(
        type="minimax",
        about="linear attention, experts",
        keys={**HEADS, **LINEAR, **LOCAL_EXPERTS, "block_size": 8},
        refused="MiniMax uses cache of its own",
    ),
    "lfm2": Animal(
        type="lfm2",
        about="convolutions",
        keys={**GROUPED, "layer_types": ["conv", "full_attention"]},
        is_whole=True,
        packs=False,
    ),
    "lfm2_moe": Animal(
        type="lfm2_moe",
        about="convolutions, experts",
        keys={**GROUPED, "layer_types": ["conv", "full_attention"], "num_dense_layers": 1, **EXPERTS},
        packs=False,
    ),
    "lfm3": Animal(
        type="lfm3", about="convolutions", keys={**GROUPED, "layer_types": ["conv", "full_attention"]}, packs=False
    ),
    "falcon_h1": Animal(
        type="falcon_h1",
        about="states beside attention",
        keys={**HEADS, "mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 8},
        is_whole=True,
        packs=False,
    ),
    "bamba": Animal(
        type="bamba", about="states, attention", keys={**GROUPED, "attn_layer_indices": [1], **MAMBA}, packs=False
    ),
    "jamba": Animal(
        type="jamba",
        about="states, attention, experts",
        keys={
            **{**GROUPED, "num_experts": 2, "num_experts_per_tok": 1, "mamba_d_state": 8, "use_mamba_kernels": False},
            **{"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1},
        },
        packs=False,
    ),
    "nemotron_h": Animal(
        type="nemotron_h",
        about="states, attention",
        keys={
            **{**HEADS, "layers_block_type": ["mamba", "attention"], "mamba_num_heads": 8, "mamba_head_dim": 8},
            **{"ssm_state_size": 8, "n_groups": 1, **UNCLAMPED},
        },
        packs=False,
    ),
    "granitemoehybrid": Animal(
        type="granitemoehybrid",
        about="states, attention, experts",
        keys={
            **{**GROUPED, **MAMBA, "layer_types": ["mamba", "attention"], "num_local_experts": 2},
            **{"num_experts_per_tok": 1, "shared_intermediate_size": 32},
        },
        packs=False,
    ),
    "zamba": Animal(
        type="zamba",
        about="states, attention",
        keys={
            **{
                **DENSE,
                "num_hidden_layers": 3,
                "mamba_d_state": 8,
                "n_mamba_heads": 2,
                "num_key_value_heads": 4,
                **CALM,
            },
            **{"attention_hidden_size": 64, "attention_head_dim": 16, "use_mamba_kernels": False},
            "layers_block_type": ["linear_attention", "hybrid", "hybrid"],
        },
        packs=False,
    ),
    "zamba2": Animal(
        type="zamba2",
        about="states, attention",
        keys={
            **{**GROUPED, "mamba_d_state": 8, "mamba_ngroups": 1, "n_mamba_heads": 8, **UNCLAMPED},
            "layers_block_type": ["mamba", "hybrid"],
        },
        packs=False,
    ),
    "recurrent_gemma": Animal(
        type="recurrent_gemma",
        about="states, windows",
        keys={
            **{**HEADS, "lru_width": 32, "block_types": ["recurrent", "attention"]},
            "attention_window_size": WINDOW,
        },
        refused=MASKLESS,
    ),
    "mamba": Animal(type="mamba", about="states", keys=STATE, refused=NO_CACHE),
    "mamba2": Animal(
        type="mamba2", about="states", keys={**STATE, "num_heads": 8, "head_dim": 8, "n_groups": 2}, refused=NO_CACHE
    ),
    "falcon_mamba": Animal(type="falcon_mamba", about="states", keys=STATE, refused=NO_CACHE),
    "rwkv": Animal(
        type="rwkv",
        about="states",
        keys={"hidden_size": 32, "num_hidden_layers": 2, "context_length": 64},
        refused=NO_CACHE,
    ),
    "xlstm": Animal(
        type="xlstm",
        about="states",
        keys={"hidden_size": 64, "num_hidden_layers": 2, "num_heads": 2, "qk_dim_factor": 1.0},
        refused=NO_CACHE,
    ),
}
