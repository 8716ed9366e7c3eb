from __future__ import annotations

import json
import math
import shutil

import pytest
import torch
import yaml
from transformers import AutoTokenizer, Qwen3MoeConfig, Qwen3MoeForCausalLM

from swerve.artifacts.files import verify_manifest
from swerve.artifacts.metrics import read_metrics
from swerve.artifacts.response_columns import ROLLOUTS_SCHEMA
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import PAIRS_SCHEMA, read_table
from swerve.config.stage_base import OptimizerConfig
from swerve.errors import ArtifactError, ConfigError, SwerveError
from swerve.models.model_folder import load_model
from swerve.progress import SilentProgress
from swerve.recipes import load_config
from swerve.rewards import grade
from swerve.train.learner import Learner
from swerve.train.loop import train_run
from swerve.train.replicated_model import ReplicatedModel
from swerve.world import World
from tests.builders import trained_run


def test_a_run_has_its_artifacts(small_run):
    assert [checkpoint.label for checkpoint in small_run.checkpoints] == [
        "sft-100", "sft-220", "dpo-2", "rl-2", "rl-4",
    ]  # fmt: skip
    assert [record["step"] for record in read_metrics(small_run.metrics_path)] == list(range(1, 227))
    assert small_run.read_provenance()["status"] == "trained"
    for checkpoint in small_run.checkpoints:
        verify_manifest(checkpoint.path)
    assert not list(small_run.path.rglob(".swerve-tmp-*"))


def test_training_learns(small_run):
    records = read_metrics(small_run.metrics_path)
    assert records[0]["loss"] > 2.5
    assert records[219]["loss"] < 0.35


def test_rollouts_hold_what_was_sampled_and_its_reward(small_run, small_config):
    rows = [
        row
        for step in range(223, 227)
        for row in read_table(small_run.rollouts_path(step), ROLLOUTS_SCHEMA).to_pylist()
    ]
    records = read_metrics(small_run.metrics_path)
    assert len(rows) == 4 * 6 * 4
    assert {row["version"] for row in rows} == {222, 223, 224, 225}
    loaded = load_model(small_run.checkpoint_path(226), device="cpu", dtype="float32")
    from swerve.problems import load_family
    from swerve.seeds import derive_seed

    family = load_family(small_config.task)
    problems = {each.id: each for each in family.problems("train", seed=derive_seed(small_config.seed, "problems"))}
    for row in rows:
        assert row["text"] == loaded.tokenizer.decode(row["completion_ids"], skip_special_tokens=True)
        reward = grade(problems[row["problem_id"]], row["text"])
        assert (row["reward"], row["status"]) == (reward.value, reward.status)
        assert len(row["logprobs"]) == len(row["completion_ids"])
        assert all(value <= 0 for value in row["logprobs"])
    last = [row for row in rows if row["version"] == 225]
    assert records[-1]["reward"] == pytest.approx(sum(row["reward"] or 0 for row in last) / 24)
    assert records[-1]["num_failures"] == sum(row["reward"] is None for row in last)
    assert any(record["num_used_rollouts"] > 0 for record in records[-4:])


def test_sampler_and_trainer_agree_on_logprobs(small_run):
    gaps = [record["logprob_gap"] for record in read_metrics(small_run.metrics_path) if record.get("logprob_gap")]
    assert gaps
    assert max(gaps) < 1e-5


def test_pairs_are_one_right_and_one_wrong_completion_with_exact_reference(small_run):
    rows = read_table(small_run.pairs_path("dpo"), PAIRS_SCHEMA).to_pylist()
    reference = load_model(small_run.select_checkpoint("sft").path, device="cpu", dtype="float32")
    assert rows
    for row in rows:
        for side in ("chosen", "rejected"):
            ids = torch.tensor([row["prompt_ids"] + row[f"{side}_ids"]])
            with torch.inference_mode():
                logprobs = torch.log_softmax(reference.model(ids).logits[0].double(), dim=-1)
            start = len(row["prompt_ids"])
            total = sum(logprobs[place - 1, ids[0, place]].item() for place in range(start, ids.shape[1]))
            assert row[f"ref_{side}_logprob"] == pytest.approx(total, abs=1e-4)
    assert read_metrics(small_run.metrics_path)[220]["loss"] == pytest.approx(math.log(2), abs=1e-6)


@pytest.mark.parametrize(("tokens_per_batch", "rows"), [(1, "packed"), (400, "padded")])
def test_micro_batches_and_padding_do_not_change_the_update(small_config, tmp_path, tokens_per_batch, rows):
    config = small_config.model_copy(
        update={
            "stages": tuple(
                stage.model_copy(update={"steps": 3, "checkpoints": ()}) for stage in small_config.stages[:1]
            )
        }
    )
    split = config.model_copy(
        update={
            "stages": tuple(s.model_copy(update={"tokens_per_batch": tokens_per_batch}) for s in config.stages),
            "runtime": config.runtime.model_copy(update={"rows": rows}),
        }
    )
    whole = [record["loss"] for record in read_metrics(trained_run(config, tmp_path / "whole").metrics_path)]
    parts = [record["loss"] for record in read_metrics(trained_run(split, tmp_path / "parts").metrics_path)]
    assert parts == pytest.approx(whole, rel=1e-5)


def test_pairs_and_a_teacher_are_learned_alike_in_packed_and_padded_rows(small_run, small_recipe, tmp_path):
    stage = {"steps": 2, "samples_per_prompt": 4, "optimizer": {"lr": 1e-3}}
    pairs = {**stage, "kind": "dpo", "batch_size": 4, "max_prompts": 64}
    teacher = {**stage, "kind": "distill", "prompts_per_step": 4, "teacher": str(small_run.checkpoint_path(224))}
    document = {
        **yaml.safe_load(small_recipe.read_text()),
        "model": {"kind": "pretrained", "path": str(small_run.checkpoint_path(220))},
        "stages": [pairs, teacher],
        "probe": {},
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(document))
    found = []
    for rows, tokens in (("packed", 4096), ("padded", 100)):
        changes = [f"runtime.rows={rows}", *(f"stages.{kind}.tokens_per_batch={tokens}" for kind in ("dpo", "distill"))]
        run = trained_run(load_config(tmp_path / "recipe.yaml", changes), tmp_path / rows)
        found.append([(one["loss"], one["grad_norm"]) for one in read_metrics(run.metrics_path)])
    # Updates of AdamW make the rounding of one larger in the next.
    assert found[0] == [pytest.approx(one, rel=2e-4) for one in found[1]]
    assert found[0][0][0] == pytest.approx(math.log(2), abs=1e-5)  # the pairs were given in their order


def test_seed_decides_the_weights(small_recipe, tmp_path):
    base = ["stages.sft.steps=2", "stages.sft.checkpoints=[]", "stages.rl.steps=1", "stages.rl.checkpoints=[]"]

    def sft_weights(seed, name):
        config = load_config(small_recipe, [*base, f"seed={seed}"])
        config = config.model_copy(update={"stages": config.stages[:1]})
        return trained_run(config, tmp_path / name).checkpoints[-1].weights_sha256

    first = sft_weights(1, "a")
    assert first == sft_weights(1, "b")
    assert first != sft_weights(2, "c")


@pytest.fixture
def own_run(small_run, tmp_path):
    """A copy of the small run that a test may lock and train."""
    return RunDirectory(shutil.copytree(small_run.path, tmp_path / "own"))


def test_an_existing_run_is_refused_and_left_alone(own_run, small_config):
    before = (own_run.path / "run.json").read_text()
    with pytest.raises(ConfigError, match="exists; continue it with --resume"):
        train_run(small_config, own_run, resume=False, progress=SilentProgress())
    assert (own_run.path / "run.json").read_text() == before


def test_a_run_in_use_is_refused(small_config, own_run):
    with own_run.lock(), pytest.raises(ArtifactError, match="is in use by process"):
        train_run(small_config, own_run, resume=True, progress=SilentProgress())


def test_resuming_a_finished_run_changes_nothing(small_config, own_run):
    before = {path: path.read_bytes() for path in own_run.path.rglob("*.safetensors")}
    train_run(small_config, own_run, resume=True, progress=SilentProgress())
    assert {path: path.read_bytes() for path in own_run.path.rglob("*.safetensors")} == before
    assert len(read_metrics(own_run.metrics_path)) == 226


def test_no_pairs_says_what_to_do(small_recipe, tmp_path):
    config = load_config(small_recipe, ["stages.sft.steps=1", "stages.sft.checkpoints=[]", "stages.dpo.max_prompts=4"])
    with pytest.raises(
        SwerveError, match="none of 4 prompts had both a right and a wrong completion .* train the stage"
    ):
        trained_run(config, tmp_path / "run")
    assert RunDirectory(tmp_path / "run").read_provenance()["status"] == "failed"


def test_a_loss_that_is_not_finite_leaves_the_weights_alone(tiny):
    import copy

    from swerve.batch import token_batches

    model = copy.deepcopy(tiny[0])
    before = {name: value.clone() for name, value in model.state_dict().items()}
    learner = Learner(ReplicatedModel(model, World()), tiny[1], OptimizerConfig(lr=1.0))
    with pytest.raises(SwerveError, match="is not finite; the weights were not changed"):
        learner.update(
            token_batches([([1, 4], [5, 6])], pad_id=0),
            lambda batch, logits: (logits.sum() * float("nan"), {}),
            learning_rate=1.0,
        )
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_parts_are_json(small_run):
    rows = read_table(small_run.rollouts_path(223), ROLLOUTS_SCHEMA).to_pylist()
    assert all(set(json.loads(row["parts"] or "{}")) <= {"answer"} for row in rows)


def test_an_auxiliary_loss_that_config_json_asks_for_is_noted(save_addition_model, tmp_path):
    folder, notes = save_addition_model(tmp_path / "model", seed=1), []
    tokenizer = AutoTokenizer.from_pretrained(folder)
    sizes = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
    }
    experts = {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 8, "output_router_logits": True}
    config = Qwen3MoeConfig(vocab_size=len(tokenizer), router_aux_loss_coef=0.01, **sizes, **experts)
    Qwen3MoeForCausalLM(config).save_pretrained(folder)

    class Notes(SilentProgress):
        def note(self, message):
            notes.append(message)

    document = {
        "name": "experts",
        "task": {"kind": "addition", "digits": 2, "num_train": 40, "num_heldout": 4},
        "model": {"kind": "pretrained", "path": str(folder)},
        "max_new_tokens": 36,
        "stages": [{"kind": "sft", "steps": 1, "batch_size": 2, "optimizer": {"lr": 1e-3}}],
        "runtime": {"device": "cpu", "rows": "padded"},
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(document))
    train_run(load_config(tmp_path / "recipe.yaml"), RunDirectory(tmp_path / "run"), resume=False, progress=Notes())
    assert any(one.startswith("config.json asks for 0.01 times the auxiliary loss") for one in notes)
