"""What the training of a recipe is said to take: each figure beside the arithmetic by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import AutoConfig

from swerve.artifacts.run import RunDirectory
from swerve.errors import CheckpointError, ConfigError, ProblemsError
from swerve.plan.budget import Budget, PlannedRun
from swerve.plan.empty_model import empty_model, num_weights, used_weights
from swerve.plan.rates import Rates, known_rates
from swerve.plan.training import training_budget
from swerve.recipes import load_config
from swerve.train import disk
from tests.builders import trained_run

LAYERS, WIDTH, INNER, HEADS, KV_HEADS, HEAD, IDS = 4, 64, 160, 4, 2, 16, 1000
SHAPES = {
    "model_type": "qwen3",
    "num_hidden_layers": LAYERS,
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD,
    "vocab_size": IDS,
    "tie_word_embeddings": True,
}
ATTENTION = WIDTH * HEAD * (2 * HEADS + 2 * KV_HEADS) + 2 * HEAD
WEIGHTS = IDS * WIDTH + LAYERS * (ATTENTION + 3 * WIDTH * INNER + 2 * WIDTH) + WIDTH
RECIPE = ["max_new_tokens=32", "stages.rl.prompts_per_step=4", "stages.rl.samples_per_prompt=8", "stages.rl.steps=10"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(SHAPES))
    return tmp_path


def planned(folder: Path, *changes: str, memory_gb: float | None = 80) -> Budget:
    own = ["stages.rl.checkpoints=[]", "stages.rl.checkpoint_every=5", "stages.rl.save_every=null", *changes]
    return training_budget(load_config("gsm8k", [f"model.path={folder}", *RECIPE, *own]), memory_gb=memory_gb)


def test_memory_is_by_placement_of_the_sampler(folder: Path) -> None:
    embedded, served = planned(folder), planned(folder, "rollout.engine.kind=server")
    memory = embedded.memory
    assert memory is not None
    assert (memory.weights, memory.gradients, memory.optimizer) == (4 * WEIGHTS, 4 * WEIGHTS, 8 * WEIGHTS)
    # Keys and values of 32 completions of 32 tokens behind prompts of 32, beside their logits.
    cache = LAYERS * 2 * KV_HEADS * HEAD * 4
    assert memory.sampling == 32 * 64 * cache + 32 * IDS * (4 + 24)
    assert embedded.server is None
    assert served.memory is not None
    assert served.memory.sampling == 0
    assert served.server is not None
    assert (served.server.weights, served.server.completion) == (4 * WEIGHTS, 64 * cache)
    rows = {row[0]: row[1:] for row in served.rows()}
    assert rows["server, elsewhere"] == ("0 GB", "it holds its own")
    assert rows["server, same device"][1].endswith("--gpu-memory-utilization 1.00 at most")


def test_disk_is_counted_by_kind(folder: Path) -> None:
    sampled = 10 * 4 * 8 * 32
    assert planned(folder).disk == {
        "weights of 2 checkpoints": 2 * 4 * WEIGHTS,
        "optimizer states": 2 * 8 * WEIGHTS,
        "one more while it is written": 0,
        "rollouts": sampled * disk.BYTES_PER_TOKEN,
        "evaluations": 0,
    }
    fewer = planned(folder, "retention.save_optimizer=false", "stages.rl.keep_rollouts=false").disk
    assert list(fewer.values()) == [2 * 4 * WEIGHTS, 8 * WEIGHTS, 12 * WEIGHTS, 0, 0]


def test_tokens_are_counted_by_purpose_and_work(folder: Path) -> None:
    found = planned(folder, "eval.every=3", "eval.num_problems=50", "eval.samples_per_problem=2", "probe.every=5")
    sampled, evaluated, probed = 10 * 4 * 8 * 32, 4 * 50 * 3 * 32, 16 * 32
    assert found.tokens == {"training": sampled, "evaluation": evaluated, "probe": probed}
    read = sampled + 10 * 4 * 32  # a prompt is read once for its group
    kl = load_config("gsm8k").stages[0].kl.coef
    assert kl
    assert found.work == {
        "optimizer": 10 * 2 * WEIGHTS,
        "writing": 2 * 12 * WEIGHTS,
        "sampling": sampled + evaluated + probed,
        "update": read,
        "reading": 2 * read + 3 * probed + (10 * 4 + 4 * 50 * 3) * 32,  # prompts, and greedy answers with theirs
    }  # a reference, and two minibatches


def test_hours_are_known_where_every_rate_is(folder: Path) -> None:
    found = planned(folder)
    assert found.hours["sampling"] is None
    assert found.total_hours is None
    rates = Rates(of={"sampling": 10.0, "update": 20.0, "reading": 40.0}, source="")
    whole = Budget(command="train", work={"sampling": 36_000, "update": 72_000}, rates=rates, processes=2)
    assert whole.hours == {"sampling": 0.5, "update": 0.5}
    assert whole.total_hours == 1.0


def test_a_rate_of_the_table_is_scaled_by_the_number_of_weights() -> None:
    config = load_config("gsm8k", ["runtime.precision=bfloat16", "runtime.activation_checkpointing=full"])
    half = known_rates("NVIDIA H200", config.runtime, 2 * 1_543_714_304)
    assert half.of == {"update": 15_038 / 2}
    assert known_rates("an abacus", config.runtime, 1).of == {}


def test_a_disk_that_is_too_small_is_refused_before_training(folder: Path, monkeypatch, small_recipe, tmp_path) -> None:
    monkeypatch.setattr(disk, "free_disk", lambda place: 1000)
    with pytest.raises(ProblemsError, match=r"disk: .* needs about .* \(weights of 2 checkpoints .*\), and 1e-06 GB"):
        planned(folder, memory_gb=None).check()
    planned(folder).check()  # the disk of another machine is not known
    with pytest.raises(ProblemsError, match="disk: .*retention.keep"):
        trained_run(load_config(small_recipe), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_what_a_run_leaves_is_what_was_said(small_recipe: Path, tmp_path: Path) -> None:
    config = load_config(small_recipe)
    run: RunDirectory = trained_run(config, tmp_path / "run")
    said = training_budget(config).disk
    found = sum(path.stat().st_size for path in (run.path / "checkpoints").rglob("*.safetensors"))
    kinds = [size for kind, size in said.items() if kind.startswith(("weights", "optimizer"))]
    assert found == pytest.approx(sum(kinds), rel=0.05)


def test_a_record_says_sums_and_what_waits() -> None:
    run = PlannedRun(name="distill/seed-0", after=("rl/seed-0",), processes=2, hours=None)
    budget = Budget(command="study", runs=(run,), disk={"rollouts": 5, "evaluations": 7})
    assert budget.record()["disk"]["total"] == 12
    assert ("distill/seed-0", "unknown h", "after rl/seed-0, 2 processes") in list(budget.rows())


def test_rates_are_measured_with_a_model_of_the_same_shapes(folder: Path, tmp_path: Path) -> None:
    config = load_config("gsm8k", [f"model.path={folder}", *RECIPE])
    found = training_budget(config, out=tmp_path / "run", measures=True)
    assert set(found.rates.of) == {"sampling", "reading", "update", "optimizer", "writing"}
    assert min(found.rates.of.values()) > 0
    total = sum(number / found.rates.of[kind] for kind, number in found.work.items()) / 3600
    assert found.total_hours == pytest.approx(total)
    assert {path.name for path in tmp_path.iterdir()} == {"config.json"}


def test_a_completion_that_does_not_fit_the_positions_is_refused_with_the_number_that_does(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({**SHAPES, "max_position_embeddings": 40}))
    said = r"max_new_tokens is 64, together more than the model's 40 positions; set max_new_tokens=39 or less, or take"
    with pytest.raises(ConfigError, match=said):
        planned(folder, "max_new_tokens=64")
    assert planned(folder, "max_new_tokens=39").memory is not None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"head_dim": 16, "num_attention_heads": 3},
            "num_attention_heads=3 has to be a multiple",
        ),
        ({"num_hidden_layers": 10**6}, "num_hidden_layers=1000000, and at most 1000 are read"),
    ],
)
def test_shapes_that_no_model_has_are_one_line(folder: Path, changes, said) -> None:
    (folder / "config.json").write_text(json.dumps({**SHAPES, **changes}))
    with pytest.raises(CheckpointError, match=said):
        planned(folder)


def test_absurd_vocabularies_positions_and_completions_are_answered_at_once(folder: Path) -> None:
    large = {"vocab_size": 10**9, "max_position_embeddings": 10**9}
    (folder / "config.json").write_text(json.dumps({**SHAPES, **large}))
    memory = planned(folder).memory
    assert memory is not None
    assert memory.weights == 4 * (WEIGHTS + (10**9 - IDS) * WIDTH)
    with pytest.raises(ConfigError, match="max_new_tokens=900000000 is more than any model writes; at most 2097152"):
        planned(folder, "max_new_tokens=900000000")


def test_a_mixture_of_experts_takes_the_time_of_the_weights_that_a_token_uses() -> None:
    """Qwen3-30B-A3B: 30.5 billion weights, 3.3 billion of them for a token, as published."""
    shapes = {
        "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_hidden_layers": 48,
        "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128,
        "num_experts_per_tok": 8, "vocab_size": 151_936, "tie_word_embeddings": False,
    }  # fmt: skip
    model = empty_model(AutoConfig.for_model("qwen3_moe", **shapes), "bfloat16")
    experts = 48 * 128 * 3 * 2048 * 768
    assert num_weights(model) == pytest.approx(30.53e9, rel=1e-3)
    assert used_weights(model) == num_weights(model) - experts + experts // 16
    assert used_weights(model) == pytest.approx(3.35e9, rel=1e-2)
    dense = AutoConfig.for_model("qwen3", **{key: value for key, value in SHAPES.items() if key != "model_type"})
    assert used_weights(empty_model(dense, "float32")) == WEIGHTS


def test_hours_of_a_mixture_rest_on_the_weights_that_a_token_uses(folder: Path) -> None:
    experts = {"num_experts": 16, "num_experts_per_tok": 2, "moe_intermediate_size": INNER, "norm_topk_prob": True}
    speed = []
    for chosen in (2, 16):
        shapes = {**SHAPES, "model_type": "qwen3_moe", **experts, "num_experts_per_tok": chosen}
        (folder / "config.json").write_text(json.dumps(shapes))
        found = planned(folder, "runtime.precision=bfloat16", "runtime.activation_checkpointing=full")
        speed.append(found.rates.of["update"])
    every = LAYERS * 16 * 3 * WIDTH * INNER
    whole = IDS * WIDTH + LAYERS * (ATTENTION + 2 * WIDTH + 16 * WIDTH) + WIDTH
    assert speed[0] / speed[1] == pytest.approx((whole + every) / (whole + every / 8))


def test_the_plan_names_the_key_that_lowers_the_disk(folder: Path) -> None:
    key = "retention.save_optimizer=false"
    assert not any(key in note for note in planned(folder).notes)  # which is small
    (folder / "config.json").write_text(json.dumps({**SHAPES, "vocab_size": 10**8}))
    assert any(key in note for note in planned(folder).notes)
    assert not any(key in note for note in planned(folder, key).notes)


@pytest.mark.parametrize("name", ["k_and_k", "k_and_k_curriculum", "k_and_k_direct", "kl_study", "spo_gsm8k"])
def test_a_paper_profile_keeps_what_resuming_needs_alone(folder: Path, name: str) -> None:
    config = load_config(name, ["profile=paper", f"model.path={folder}"])
    assert not config.retention.save_optimizer
