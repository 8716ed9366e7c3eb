"""Every paper profile is predicted by `swerve config check` from a folder that holds the model's config.json alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Swerve

QWEN3_4B = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 2560, "intermediate_size": 9728,
    "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8, "head_dim": 128,
    "vocab_size": 151_936, "max_position_embeddings": 262_144, "tie_word_embeddings": True, "rms_norm_eps": 1e-6,
    "rope_theta": 5_000_000,
}  # fmt: skip
QWEN25_7B_1M = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18_944,
    "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4, "vocab_size": 152_064,
    "max_position_embeddings": 1_010_000, "tie_word_embeddings": False, "rms_norm_eps": 1e-5,
    "rope_theta": 10_000_000.0,
}  # fmt: skip
QWEN25_1_5B = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 1536, "intermediate_size": 8960,
    "num_attention_heads": 12, "num_hidden_layers": 28, "num_key_value_heads": 2, "vocab_size": 151_936,
    "max_position_embeddings": 32_768, "tie_word_embeddings": True, "rms_norm_eps": 1e-6, "rope_theta": 1_000_000.0,
}  # fmt: skip
R1_DISTILL_1_5B = {
    **QWEN25_1_5B,
    "max_position_embeddings": 131_072,
    "rope_theta": 10_000,
    "tie_word_embeddings": False,
}
TULU_8B = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14_336,
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 128_264,
    "max_position_embeddings": 131_072, "tie_word_embeddings": False, "rms_norm_eps": 1e-5, "rope_theta": 500_000.0,
}  # fmt: skip


OLMO3_7B = {
    "architectures": ["Olmo3ForCausalLM"], "model_type": "olmo3", "hidden_size": 4096, "intermediate_size": 11_008,
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "vocab_size": 100_278,
    "max_position_embeddings": 65_536, "tie_word_embeddings": False, "sliding_window": 4096,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "architecture", "billions", "steps", "completions", "tokens"),
    [
        # 150 passes over 7,473 problems, 512 a step, one completion each.
        ("spo_gsm8k", QWEN3_4B, 4.02, 2190, 1_121_280, 1_121_280 * 8192),
        ("spo_pretraining", QWEN3_4B, 4.02, 2000, 0, 0),
        # 100 x 128 x 8, 280 x 128 x 16, 40 x 128 x 16.
        ("k_and_k", QWEN25_7B_1M, 7.62, 420, 757_760, 757_760 * 2048),
        ("k_and_k_curriculum", QWEN25_7B_1M, 7.62, 565, 36_160, 36_160 * 4096),
        ("k_and_k_direct", QWEN25_1_5B, 1.54, 360, 368_640, 368_640 * 2048),
        ("k_and_k_distill", QWEN25_1_5B, 1.54, 56, 4500, 4500 * 2048),
        ("k_and_k_cold_start", QWEN25_1_5B, 1.54, 360, 368_640, 368_640 * 2048),
        ("kl_study", R1_DISTILL_1_5B, 1.78, 200, 51_200, 51_200 * 8192),
    ],
)  # fmt: skip
def test_a_paper_profile_is_predicted_from_a_configuration_alone(
    name: str, architecture: dict[str, Any], billions: float, steps: int, completions: int, tokens: int,
    tmp_path: Path, swerve: Swerve,
) -> None:  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(architecture))
    status, out, err = swerve(
        "config", "check", name, "profile=paper", f"model.path={tmp_path}", "--memory", "640", "--json"
    )
    assert status == 0, err
    found = json.loads(out)
    (stage,) = found["stages"]
    assert (stage["steps"], stage["completions"], stage["tokens"]) == (steps, completions, tokens)
    # Two moments of 4 bytes for each weight.
    assert found["memory"]["optimizer"] == pytest.approx(8e9 * billions, rel=0.01)
    assert found["memory"]["peak"] > 16e9 * billions


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "architecture", "labels", "billions"),
    [
        (["rl_probe", "profile=paper"], TULU_8B, ("sft", "dpo", "step-400", "step-1200", "step-2440"), 8.03),
        (["olmo3_rl_zero"], OLMO3_7B, ("base", "step-100", "step-500", "step-1000", "step-2000"), 7.30),
    ],
)
def test_a_probe_of_large_models_is_predicted_from_a_configuration_alone(
    recipe: list[str],
    architecture: dict[str, Any],
    labels: tuple[str, ...],
    billions: float,
    tmp_path: Path,
    swerve: Swerve,
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(architecture))
    models = [f"models.{label}={tmp_path}" for label in labels]
    status, out, err = swerve("config", "check", *recipe, *models, "--memory", "80", "--json")
    assert status == 0, err
    memory = json.loads(out)["memory"]
    assert memory["weights"] == pytest.approx(billions * 2e9, rel=0.01)
    assert 2e9 * billions < memory["peak"] < 60e9
    status, _, err = swerve("config", "check", *recipe, *models, "--memory", "10")
    assert status == 2
    assert f"model '{labels[0]}' needs about" in err
    assert swerve("config", "check", *recipe)[1].endswith("memory, hours: no model of it is on this machine\n")
