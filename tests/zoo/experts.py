"""Architectures of attention and experts."""

from __future__ import annotations

import torch

from tests.zoo.animal import (
    ATTENTION_DROPOUT,
    EXPERTS,
    GROUPED,
    HEADS,
    INDEXED,
    LATENT,
    LOCAL_EXPERTS,
    MASKLESS,
    QWEN_WINDOWS,
    ROUTED_EXPERTS,
    SHARED_EXPERT,
    SLIDES,
    WINDOW,
    WINDOWS,
    Animal,
)

EXPERT_ANIMALS = {
    "mixtral": Animal(type="mixtral", about="experts, windows", keys={**GROUPED, **LOCAL_EXPERTS, **SLIDES}),
    "phimoe": Animal(type="phimoe", about="experts, windows", keys={**GROUPED, **LOCAL_EXPERTS, **SLIDES}, packs=False),
    "qwen2_moe": Animal(type="qwen2_moe", about="experts, windows", keys={**GROUPED, **SHARED_EXPERT, **QWEN_WINDOWS}),
    "qwen3_moe": Animal(type="qwen3_moe", about="experts", keys={**HEADS, **EXPERTS}, is_whole=True),
    "qwen3_moe-window": Animal(
        type="qwen3_moe", about="experts, windows", keys={**HEADS, **EXPERTS, **QWEN_WINDOWS, **ATTENTION_DROPOUT}
    ),
    "olmoe": Animal(type="olmoe", about="experts", keys={**GROUPED, "num_experts": 4, "num_experts_per_tok": 2}),
    "flex_olmo": Animal(
        type="flex_olmo", about="experts", keys={**GROUPED, "num_experts": 4, "num_experts_per_tok": 2}
    ),
    "gpt_oss": Animal(
        type="gpt_oss",
        about="experts, sinks, windows",
        keys={**HEADS, **WINDOWS, **LOCAL_EXPERTS},
        is_whole=True,
        packs=False,
    ),
    "granitemoe": Animal(type="granitemoe", about="experts", keys={**GROUPED, **LOCAL_EXPERTS}),
    "granitemoe_swa": Animal(
        type="granitemoe_swa", about="experts, windows", keys={**GROUPED, **LOCAL_EXPERTS, **SLIDES}, packs=False
    ),
    "granitemoeshared": Animal(
        type="granitemoeshared",
        about="experts",
        keys={**GROUPED, **LOCAL_EXPERTS, "shared_intermediate_size": 16},
    ),
    "deepseek_v2": Animal(type="deepseek_v2", about="experts, latent attention", keys={**LATENT, **ROUTED_EXPERTS}),
    "deepseek_v3": Animal(type="deepseek_v3", about="experts, latent attention", keys={**LATENT, **ROUTED_EXPERTS}),
    "deepseek_v32": Animal(
        type="deepseek_v32",
        about="experts, sparse attention",
        keys={**LATENT, **ROUTED_EXPERTS, **INDEXED},
        packs=False,
    ),
    "deepseek_v4": Animal(
        type="deepseek_v4",
        about="experts, sparse attention, windows",
        keys={
            **{**HEADS, **ROUTED_EXPERTS, **SLIDES, "num_key_value_heads": 1, "q_lora_rank": 16, "o_lora_rank": 8},
            **{"o_groups": 2, "qk_rope_head_dim": 4, "partial_rotary_factor": 0.5, "hc_mult": 2},
            "layer_types": ["heavily_compressed_attention", "compressed_sparse_attention"],
            "compress_rates": {"compressed_sparse_attention": 2, "heavily_compressed_attention": 4},
            **{"mlp_layer_types": ["moe", "moe"], "index_topk": 4, "index_head_dim": 8, "index_n_heads": 32},
        },
        refused=MASKLESS,
    ),
    "axk1": Animal(type="axk1", about="experts, latent attention", keys={**LATENT, **ROUTED_EXPERTS}),
    "axk2": Animal(
        type="axk2",
        about="experts, sparse attention",
        keys={**LATENT, **ROUTED_EXPERTS, **INDEXED, "gated_norm_rank": 8},
        packs=False,
    ),
    "hy_v4": Animal(
        type="hy_v4",
        about="experts, sparse attention",
        keys={**LATENT, **ROUTED_EXPERTS, **INDEXED, "indexer_types": ["full", "shared"], "hc_mult": 2},
        packs=False,
    ),
    "dots3_note_text": Animal(
        type="dots3_note_text",
        about="experts, sparse attention, windows",
        keys={
            **{**LATENT, **ROUTED_EXPERTS, **INDEXED, **SLIDES, "shared_experts_intermediate_size": 16},
            **{"layer_types": ["indexed_attention", "sliding_attention"], "per_layer_config": {}, "head_dim": 12},
        },
        packs=False,
    ),
    "minimax_m3_vl_text": Animal(
        type="minimax_m3_vl_text",
        about="experts, sparse attention",
        keys={
            **{**HEADS, **LOCAL_EXPERTS, "dense_intermediate_size": 48, "shared_intermediate_size": 16},
            **{"rotary_dim": 4, "mlp_layer_types": ["dense", "sparse"], "index_n_heads": 2, "index_head_dim": 8},
            **{"index_block_size": 4, "index_topk_blocks": 2, "layer_types": ["full_attention", "full_attention"]},
        },
    ),
    "kolibri1": Animal(
        type="kolibri1",
        about="experts, windows",
        keys={
            **{**HEADS, **WINDOWS, **LOCAL_EXPERTS, "moe_intermediate_size": 16},
            "shared_expert_intermediate_size": 16,
        },
    ),
    "flint": Animal(
        type="flint",
        about="experts, windows",
        keys={**HEADS, **SHARED_EXPERT, **WINDOWS, "mlp_only_layers": [0]},
        packs=False,
    ),
    "zaya": Animal(
        type="zaya",
        about="experts, convolutions",
        keys={
            **HEADS,
            **EXPERTS,
            "num_experts_per_tok": 1,
            "router_hidden_size": 16,
            "layer_types": ["hybrid", "hybrid"],
        },
        packs=False,
    ),
    "inkling_text": Animal(
        type="inkling_text",
        about="experts, convolutions, windows",
        keys={
            **{
                **HEADS,
                **ROUTED_EXPERTS,
                "swa_num_attention_heads": 4,
                "swa_num_key_value_heads": 2,
                "swa_head_dim": 8,
            },
            **{"sliding_window_size": WINDOW, "d_rel": 4, "rel_extent": 64, "mlp_layer_types": ["dense", "sparse"]},
            "layer_types": ["hybrid_sliding", "hybrid"],
        },
        packs=False,
    ),
    "inkling2_text": Animal(
        type="inkling2_text",
        about="experts, convolutions, windows",
        keys={
            **{
                **HEADS,
                **ROUTED_EXPERTS,
                "swa_num_attention_heads": 4,
                "swa_num_key_value_heads": 2,
                "swa_head_dim": 8,
            },
            **{"sliding_window_size": WINDOW, "d_rel": 4, "rel_extent": 64, "unpadded_vocab_size": 262},
            "layer_types": ["hybrid_sliding", "hybrid"],
        },
        dtype_of_oracle=torch.float32,
        packs=False,
    ),
    "glm4_moe": Animal(type="glm4_moe", about="experts", keys={**HEADS, **ROUTED_EXPERTS}),
    "glm4_moe_lite": Animal(type="glm4_moe_lite", about="experts, latent attention", keys={**LATENT, **ROUTED_EXPERTS}),
    "glm_moe_dsa": Animal(
        type="glm_moe_dsa", about="experts, sparse attention", keys={**LATENT, **ROUTED_EXPERTS, **INDEXED}, packs=False
    ),
    "dots1": Animal(
        type="dots1", about="experts, windows", keys={**HEADS, **ROUTED_EXPERTS, **SLIDES, "max_window_layers": 0}
    ),
    "solar_open": Animal(type="solar_open", about="experts", keys={**HEADS, **ROUTED_EXPERTS}),
    "ernie4_5_moe": Animal(
        type="ernie4_5_moe",
        about="experts",
        keys={
            **{**HEADS, "moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 16},
            **{"moe_num_shared_experts": 1, "moe_layer_start_index": 1},
        },
    ),
    "hunyuan_v1_moe": Animal(type="hunyuan_v1_moe", about="experts", keys={**HEADS, "num_experts": 4, "moe_topk": 2}),
    "llama4_text": Animal(
        type="llama4_text",
        about="experts, chunks",
        keys={**HEADS, **LOCAL_EXPERTS, "intermediate_size_mlp": 48, "attention_chunk_size": WINDOW},
        packs=False,
    ),
    "minimax_m2": Animal(type="minimax_m2", about="experts", keys={**HEADS, **LOCAL_EXPERTS}),
    "minimax_m2-window": Animal(type="minimax_m2", about="experts, windows", keys={**HEADS, **LOCAL_EXPERTS, **SLIDES}),
    "mimo_v2_flash": Animal(
        type="mimo_v2_flash", about="experts, windows", keys={**HEADS, **ROUTED_EXPERTS, **WINDOWS}, packs=False
    ),
    "afmoe": Animal(type="afmoe", about="experts, windows", keys={**HEADS, **EXPERTS, **SLIDES}),
    "exaone_moe": Animal(type="exaone_moe", about="experts, windows", keys={**HEADS, **EXPERTS, **WINDOWS}),
    "laguna": Animal(type="laguna", about="experts, windows", keys={**HEADS, **EXPERTS, **SLIDES}),
    "mellum": Animal(type="mellum", about="experts, windows", keys={**HEADS, **EXPERTS, **SLIDES}),
    "hy_v3": Animal(type="hy_v3", about="experts", keys={**HEADS, **EXPERTS}),
    "longcat_flash": Animal(
        type="longcat_flash",
        about="experts, latent attention",
        keys={
            **{**LATENT, "head_dim": 4, "n_routed_experts": 4, "zero_expert_num": 2, "moe_topk": 2, "num_layers": 2},
            **{"ffn_hidden_size": 32, "expert_ffn_hidden_size": 16},
        },
    ),
    "cohere2_moe": Animal(type="cohere2_moe", about="experts, windows", keys={**HEADS, **EXPERTS, **WINDOWS}),
    "dbrx": Animal(
        type="dbrx",
        about="experts",
        keys={
            **{"d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 64},
            "attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 10000.0},
            "ffn_config": {"ffn_hidden_size": 16, "moe_num_experts": 4, "moe_top_k": 2, "hidden_size": 32},
        },
    ),
    "aria_text": Animal(type="aria_text", about="experts", keys={**HEADS, "moe_num_experts": 4, "moe_topk": 2}),
    "jetmoe": Animal(
        type="jetmoe",
        about="experts in attention",
        keys={
            **{"hidden_size": 32, "num_hidden_layers": 2, "num_key_value_heads": 2, "kv_channels": 8},
            **{
                "intermediate_size": 48,
                "num_local_experts": 4,
                "num_experts_per_tok": 2,
                "max_position_embeddings": 64,
            },
        },
    ),
}
