"""The shipped recipes of studies: every profile is valid, and the real data goes through the path of the tiny ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from swerve.artifacts.metrics import read_metrics
from swerve.artifacts.run import RunDirectory
from swerve.config.recipe import Config
from swerve.errors import SwerveError
from swerve.eval.heldout import evaluate_run
from swerve.plan.training import predicted_memory
from swerve.probe.recipe import ProbeRecipe
from swerve.progress import SilentProgress
from swerve.recipes import load_config, recipe_text, shipped_recipes
from swerve.recipes.files import RecipeUse
from swerve.recipes.layers import read_layers
from swerve.recipes.loader import load_document
from swerve.train.loop import train_run
from tests.cases import each


def profiles(use: RecipeUse) -> list[tuple[str, str]]:
    """Every shipped recipe with every profile, and as it is."""
    return [
        (name, profile) for name in shipped_recipes(use) for profile in ("null", *read_layers(name, use).profile_names)
    ]


@each(("name", "profile"), profiles("train"))
def test_every_profile_of_a_recipe_is_valid(name: str, profile: str) -> None:
    if profile == "null":
        assert load_config(name).stages
        return
    config, plain = load_config(name, [f"profile={profile}"]), load_config(name)
    assert config != plain
    assert config.name == plain.name
    if profile == "tiny":
        assert config.runtime.threads == 1


@pytest.mark.parametrize(("name", "profile"), profiles("probe"))
def test_every_profile_of_a_probe_is_valid(name: str, profile: str) -> None:
    assert load_document(ProbeRecipe, name, [f"profile={profile}"]).out.startswith("runs/")


def varied(study: dict[str, Any], overrides: dict[str, Any]) -> list[str]:
    changes = {**study.get("set", {}), **overrides}
    return [f"{key}={json.dumps(value)}" for key, value in changes.items() if key != "recipe"]


@pytest.mark.parametrize("name", shipped_recipes("study"))
def test_every_variant_of_a_study_is_a_valid_recipe_of_its_own(name: str) -> None:
    study = yaml.safe_load(recipe_text(name, "study"))
    for changes in ({}, *study.get("profiles", {}).values()):
        one = {**study, **changes}
        configs = [
            load_config(overrides.get("recipe", one["recipe"]), varied(one, overrides))
            for overrides in one["variants"].values()
        ]
        assert len({config.model_dump_json() for config in configs}) == len(configs)
        assert len(configs) >= 2 or one["seeds"] >= 2


def test_the_parts_of_one_study_differ_in_what_they_say_and_in_nothing_else() -> None:
    study = yaml.safe_load(recipe_text("kl_study", "study"))
    kls = {
        name: load_config("kl_study", varied(study, overrides)).stages[0].kl  # type: ignore[union-attr]
        for name, overrides in study["variants"].items()
    }
    assert {name: (kl.kind, getattr(kl, "estimator", None)) for name, kl in kls.items()} == {
        "none": ("none", None),
        "reverse": ("reward", "k1"),
        "forward_style": ("loss", "k3"),
        "exact_reverse": ("loss", "exact_reverse"),
        "exact_forward": ("loss", "exact_forward"),
    }


LLAMA_1B = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192,
    "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8, "vocab_size": 128_256,
    "max_position_embeddings": 131_072, "tie_word_embeddings": True,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["gsm8k", "math", "kl_study", "spo_gsm8k", "spo_pretraining", "k_and_k", "k_and_k_curriculum", "k_and_k_direct",
     "k_and_k_distill", "k_and_k_cold_start"],
)  # fmt: skip
def test_one_device_fits_a_model_of_a_billion_parameters(name: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_1B))
    one_gpu = predicted_memory(load_config(name, ["profile=one_gpu", f"model.path={tmp_path}"]))
    assert 10e9 < one_gpu.peak < 80e9


@pytest.mark.parametrize(
    ("name", "data", "train_file", "heldout_file"),
    [
        ("kl_study", "deepscaler", "deepscaler_sample_2000.jsonl.gz", "test_math.jsonl.gz"),
        pytest.param("spo_gsm8k", "gsm8k", "train.jsonl.gz", "test.jsonl.gz", marks=pytest.mark.slow),
    ],
)
def test_real_problems_go_through_the_path_of_the_tiny_run(
    name: str, data: str, train_file: str, heldout_file: str, shared_data: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = shared_data(data)
    files = [f"task.train={folder / train_file}", f"task.heldout={folder / heldout_file}"]
    config: Config = load_config(name, ["profile=smoke", *files])
    run = RunDirectory(tmp_path / "run")
    train_run(config, run, resume=False, progress=SilentProgress(), profile="smoke")
    assert run.read_provenance()["profile"] == "smoke"
    assert [one["stage_step"] for one in read_metrics(run.metrics_path)] == [1, 2]
    found = evaluate_run(config, run, progress=SilentProgress())
    assert {(one.greedy.num_problems, one.greedy.accuracy.mean) for one in found} == {(20, 0.0)}
    assert all(one.sampled.similarity is not None for one in found)


def test_a_recipe_of_another_command_is_named() -> None:
    with pytest.raises(SwerveError, match=r"unknown recipe 'rl_probe'; `swerve probe rl_probe` runs it"):
        load_config("rl_probe")
