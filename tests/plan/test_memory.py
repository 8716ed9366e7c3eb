"""The memory that a recipe is said to need."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, Qwen3MoeConfig

from swerve.config.recipe import Config
from swerve.errors import CheckpointError, ConfigError
from swerve.models.folder_checks import layer_configs
from swerve.plan.budget import Budget
from swerve.plan.memory import StageMemory, keys_to_lower
from swerve.plan.training import predicted_memory
from swerve.recipes import load_config
from swerve.rollout.cache import cache_bytes_per_token

QWEN_1_5B = {
    "model_type": "qwen2",
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "num_hidden_layers": 28,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "vocab_size": 151_936,
    "tie_word_embeddings": True,
}
WEIGHTS = 1_543_714_304
"""Of Qwen2.5-1.5B, as published with it: 1.54 billion."""


def check_memory(memory: StageMemory, available: int, config: Config) -> None:
    lower = keys_to_lower(memory, available, config)
    Budget(command="train", memory=memory, available=available, lower=lower).check()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("qwen")
    (path / "config.json").write_text(json.dumps(QWEN_1_5B))
    return path


@pytest.mark.slow
def test_a_model_of_1_5_billion_needs_what_was_measured_of_its_layers(folder: Path) -> None:
    """16,384 tokens in float32 keep 105 GB: 6.4 MB a token, measured with saved-tensor hooks on padded rows.

    The norms' two further copies of their inputs are in that, 11.5 GB, which are no longer kept.
    """
    config = load_config("gsm8k", [f"model.path={folder}", "stages.rl.tokens_per_batch=16384"])
    found = predicted_memory(config)
    assert found.weights == found.gradients == 4 * WEIGHTS
    assert found.optimizer == 8 * WEIGHTS
    assert found.frozen == 4 * WEIGHTS
    assert found.update == pytest.approx(105e9 - 57 * 2 * 16_384 * 1536 * 4, rel=0.05)
    # Keys and values of 28 layers x 2 heads x 128 in float32: 57 kB a token, 512 rows of 1,024 tokens.
    assert found.sampling == pytest.approx(512 * 1024 * 28 * 2 * 2 * 128 * 4, rel=0.02)
    parts = (found.weights, found.optimizer, found.frozen, found.libraries, found.gradients, found.update)
    assert found.peak == sum(parts)
    with pytest.raises(ConfigError, match=r"stage 'rl' needs about 1\d\d of 80 GB \(weights 6.2, .*tokens_per_batch"):
        check_memory(found, 80 * 10**9, config)
    check_memory(found, 160 * 10**9, config)


@pytest.mark.slow
def test_bfloat16_and_checkpointing_take_less(folder: Path) -> None:
    changes = ["runtime.precision=bfloat16", "runtime.activation_checkpointing=full"]
    config = load_config("gsm8k", [f"model.path={folder}", "stages.rl.tokens_per_batch=16384", *changes])
    found = predicted_memory(config)
    assert (found.weights, found.frozen) == (6 * WEIGHTS, 2 * WEIGHTS)
    layer_inputs = 28 * 16_384 * 1536 * 2
    assert layer_inputs < found.update < 4.5e9
    on_a_small_device = predicted_memory(config, available=40 * 10**9)
    assert on_a_small_device.sampling == (40 * 10**9 - found.held) // 2 < found.sampling
    limited = load_config(
        "gsm8k", [f"model.path={folder}", "rollout.engine={kind: torch, cache_gb: 2}", "stages.rl.tokens_per_batch=512"]
    )
    assert 2e9 < predicted_memory(limited).sampling < 2.5e9
    served = predicted_memory(load_config(config, "rollout.engine={kind: server}"))
    assert (served.sampling, served.held, served.update) == (0, found.held, found.update)
    many = replace(found, update=0, sampling=10**12)
    with pytest.raises(ConfigError, match="lower rollout.engine.cache_gb or runtime.max_rows"):
        check_memory(many, 60 * 10**9, config)


@pytest.mark.parametrize(
    ("parts", "changes", "advice"),
    [
        (
            {"weights": 90},
            [],
            "lower the size of the model, of which .*, train an adapter .*=fsdp",
        ),
        ({"weights": 90}, ["model.lora={}"], "lower the size of the model, or divide the weights over processes: set "),
        (
            {"weights": 90, "gathered": 1},
            ["runtime.sharding.kind=fsdp"],
            "lower the .*: start more processes",
        ),
        ({"weights": 20, "optimizer": 60, "gradients": 30}, ["model.lora={rank: 4096}"], "lower model.lora.rank=4096"),
        ({"weights": 50, "update": 40, "sampling": 30}, [], "lower stages.rl.tokens_per_batch, or set runtime.activ"),
        ({"weights": 50, "update": 30, "sampling": 40}, [], "lower rollout.engine.cache_gb or runtime.max_rows"),
    ],
)
def test_what_is_to_be_lowered_is_what_takes_the_memory(small_recipe, parts, changes, advice) -> None:
    none = dict.fromkeys(("weights", "gradients", "optimizer", "frozen", "update", "sampling"), 0)
    memory = StageMemory(stage="rl", **none | {name: size * 10**9 for name, size in parts.items()})
    with pytest.raises(ConfigError, match=f"^stage 'rl' needs about [0-9]+ of 80 GB .*; {advice}"):
        check_memory(memory, 80 * 10**9, load_config(small_recipe, changes))


def test_a_model_that_cannot_be_trained_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "t5"}))
    with pytest.raises(CheckpointError, match=r"\(model_type t5\) is an encoder and a decoder, and only causal models"):
        predicted_memory(load_config("gsm8k", [f"model.path={tmp_path}"]))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "hidden_act": "silly"}))
    with pytest.raises(
        CheckpointError, match=r"cannot build the model of model.path: its config.json is wrong: KeyError: 'silly'"
    ):
        predicted_memory(load_config("gsm8k", [f"model.path={tmp_path}"]))


def test_a_model_that_does_not_read_packed_rows_is_counted_in_padded_ones(tmp_path: Path) -> None:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "alibi": True, "vocab_size": 100}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "falcon", **sizes}))
    changes = [f"model.path={tmp_path}", "max_new_tokens=8", "stages.rl.tokens_per_batch=64"]
    padded = predicted_memory(load_config("gsm8k", [*changes, "runtime.rows=padded"]))
    assert predicted_memory(load_config("gsm8k", changes)) == padded


def test_branches_on_the_content_of_tensors_are_not_taken(tmp_path: Path) -> None:
    """Models with `dynamic` angles compare the text's length, a tensor without content here."""
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    found = []
    for kind in ("default", "dynamic"):
        rope = {"rope_type": kind, "rope_theta": 1e4, "factor": 4.0}
        model = {"model_type": "llama", "vocab_size": 100, "rope_parameters": rope, **sizes}
        (tmp_path / "config.json").write_text(json.dumps(model))
        changes = [f"model.path={tmp_path}", "max_new_tokens=8", "stages.rl.tokens_per_batch=64"]
        found.append(predicted_memory(load_config("gsm8k", changes)))
    assert found[0].update == pytest.approx(found[1].update, rel=0.02)
    assert replace(found[0], update=0) == replace(found[1], update=0)


def test_heads_of_several_sizes_are_counted_layer_by_layer() -> None:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    kinds = {"layer_types": ["sliding_attention", "full_attention"], "head_dim": 8, "global_head_dim": 16}
    config = AutoConfig.for_model("gemma4_text", **sizes, **kinds)
    assert [layer.head_dim for layer in layer_configs(config)] == [8, 16]
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    assert cache_bytes_per_token(model) == 2 * 2 * (8 + 16) * 4


def test_states_of_linear_attention_count_once_for_each_completion(tmp_path: Path) -> None:
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    kinds = {"num_key_value_heads": 2, "layer_types": ["conv", "full_attention"], "conv_L_cache": 3}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "lfm2", "vocab_size": 100, **sizes, **kinds}))
    changes = [f"model.path={tmp_path}", "max_new_tokens=8", "stages.rl.tokens_per_batch=64"]
    rows = 512
    cache = (
        rows * (2 * 8 * 2 * 2 * 8 + 32 * 3) * 4
    )  # 16 tokens of keys and values of two heads of 8, and 3 columns of 32
    logits = rows * 100 * (4 + 24)
    assert predicted_memory(load_config("gsm8k", changes)).sampling == cache + logits


@pytest.mark.slow
def test_padded_rows_and_the_tiny_model_of_a_recipe_are_counted(small_recipe: Path) -> None:
    packed, padded = (
        predicted_memory(load_config(small_recipe, [f"runtime.rows={rows}", "stages.rl.steps=2"]))
        for rows in ("packed", "padded")
    )
    assert 0 < packed.update < padded.update
    assert asdict(packed) | {"update": 0} == asdict(padded) | {"update": 0}


@pytest.mark.slow
def test_experts_are_counted_in_both_precisions(small_recipe: Path, tmp_path: Path) -> None:
    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 16,
    }
    experts = Qwen3MoeConfig(
        vocab_size=64, intermediate_size=64, moe_intermediate_size=32, num_experts=4, num_experts_per_tok=2, **sizes
    )
    experts.save_pretrained(tmp_path)
    changes = [f"model={{kind: pretrained, path: {tmp_path}}}", "stages.rl.steps=2"]
    wide, narrow = (
        predicted_memory(load_config(small_recipe, [*changes, f"runtime.precision={precision}"]))
        for precision in ("float32", "bfloat16")
    )
    assert wide.gradients == narrow.gradients
    assert narrow.update < wide.update < 2 * narrow.update
