from __future__ import annotations

import random
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from swerve.artifacts.checkpoint import CheckpointRef
from swerve.artifacts.response_columns import EVALUATION_SCHEMA, ROLLOUTS_SCHEMA
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import write_table
from swerve.config.models import PretrainedModel, TinyModel
from swerve.config.probe import CrossSamplingConfig, ProbeConfig
from swerve.config.recipe import Config, EvalConfig
from swerve.config.stage_base import OptimizerConfig
from swerve.config.stages import RlStage
from swerve.config.supervised_stages import SftStage
from swerve.errors import ArtifactError, CheckpointError, ConfigError
from swerve.models.model_folder import weights_fingerprint
from swerve.models.saving import save_checkpoint
from swerve.models.tiny import build_tiny_model, build_word_tokenizer
from swerve.probe.from_run import plan_run
from swerve.probe.plan import ProbePlan
from swerve.problems import load_family
from swerve.problems.addition import AdditionTask
from swerve.seeds import derive_seed
from tests.builders import write_evaluation

TASK = AdditionTask(digits=2, num_train=12, num_heldout=12)
FAMILY = load_family(TASK)
TOKENIZER = build_word_tokenizer(FAMILY.words)
OPTIMIZER = OptimizerConfig(lr=1e-3)
CONFIG = Config(
    task=TASK,
    model=TinyModel(hidden_size=16, intermediate_size=24),
    max_new_tokens=36,
    stages=(
        SftStage(steps=3, optimizer=OPTIMIZER),
        SftStage(name="dpo", steps=2, optimizer=OPTIMIZER),
        RlStage(steps=3, optimizer=OPTIMIZER),
    ),
    eval=EvalConfig(num_problems=4, samples_per_problem=2),
)
CHECKPOINTS = (
    # step, stage, stage step, scheduled, final of its stage
    (2, "sft", 2, True, False),
    (3, "sft", 3, True, True),
    (5, "dpo", 2, True, True),
    (6, "rl", 1, True, False),
    (7, "rl", 2, False, False),
    (8, "rl", 3, True, True),
)


def evaluation_row(problem: Any, *, correct: bool) -> dict[str, Any]:
    text = FAMILY.trace(problem, random.Random(0))
    return {
        **dict.fromkeys(EVALUATION_SCHEMA.names),
        "problem_id": problem.id,
        "kind": problem.kind,
        "question": problem.question,
        "gold": problem.answer,
        "temperature": 0.0,
        "prompt_ids": TOKENIZER(problem.question)["input_ids"],
        "completion_ids": [*TOKENIZER(text, add_special_tokens=False)["input_ids"], TOKENIZER.eos_token_id],
        "text": text,
        "correct": correct,
    }


def evaluate(run: RunDirectory, checkpoint: CheckpointRef, right: str, **settings: Any) -> None:
    """Write an evaluation; `right` has R and W, one a problem, whose two samples are as its greedy completion."""
    problems = FAMILY.problems("heldout", seed=derive_seed(CONFIG.seed, "problems"))
    rows = [
        evaluation_row(problem, correct=mark == "R")
        for problem, mark in zip(problems[: len(right)], right, strict=True)
    ]
    samples = [{**row, "temperature": 1.0, "sample": number} for row in rows for number in (0, 1)]
    path = run.evaluation_path(checkpoint)
    write_table(path.with_suffix(".parquet"), [*rows, *samples], EVALUATION_SCHEMA)
    write_evaluation(run, checkpoint, settings=settings)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Three stages, of which dpo's end has problems 0 and 2 right, and rl's all but the last."""
    directory = RunDirectory(tmp_path_factory.mktemp("plan") / "run")
    directory.create(config_yaml="", provenance={})
    model = build_tiny_model(CONFIG.model, TOKENIZER, seed=0).eval()  # type: ignore[arg-type]
    for step, stage, stage_step, scheduled, final in CHECKPOINTS:
        checkpoint = CheckpointRef(
            path=directory.checkpoint_path(step),
            step=step,
            stage=stage,
            stage_step=stage_step,
            scheduled=scheduled,
            final=final,
            weights_sha256=weights_fingerprint(model),
        )
        save_checkpoint(checkpoint, model=model, tokenizer=TOKENIZER, trainer_state={}, provenance={"run_files": {}})
    for label, right in (("dpo-2", "RWRW"), ("rl-3", "RRRW"), ("sft-3", "WWWW")):
        evaluate(directory, directory.select_checkpoint(label), right)
    return directory


def planned(run: RunDirectory, **probe: Any) -> ProbePlan:
    return plan_run(CONFIG.model_copy(update={"probe": ProbeConfig(**probe)}), run)


def test_a_baseline_that_nobody_asked_for_may_be_gone(run: RunDirectory, tmp_path: Path) -> None:
    gone = PretrainedModel(path=str(tmp_path / "gone"))
    changes = {"model": gone, "probe": ProbeConfig(reference="sft")}
    plan = plan_run(CONFIG.model_copy(update=changes), run)
    assert plan.baseline is None
    assert plan.notes[0].startswith("the model before training is left out: cannot find a model")
    asked = {"model": gone, "probe": ProbeConfig(reference="sft", baseline="base")}
    with pytest.raises(CheckpointError, match="cannot find a model"):
        plan_run(CONFIG.model_copy(update=asked), run)


def test_reference_checkpoints_and_baseline_by_default(run: RunDirectory) -> None:
    plan = planned(run)
    assert (plan.reference.label, plan.final) == ("dpo-2", "rl-3")
    assert [one.label for one in plan.checkpoints] == ["rl-1", "rl-3"]  # rl-2 only served resuming
    assert plan.baseline is not None
    assert plan.baseline.label == "sft-3"  # the stage before the reference's, and its end
    assert plan.steps == {"sft-2": 2, "sft-3": 3, "dpo-2": 5, "rl-1": 6, "rl-2": 7, "rl-3": 8}
    compared = plan.compared
    assert (compared.num_problems, compared.num_reference_wrong, compared.num_reference_wrong_final_right) == (4, 2, 1)
    assert (compared.mcnemar.num_first_only, compared.mcnemar.num_second_only) == (0, 1)
    # One problem proves little: of 1 of 1 the lower end is 1/40.
    assert asdict(compared.reselected) == pytest.approx({"mean": 1.0, "low": 0.025, "high": 1})
    assert [(one.population, one.label) for one in plan.sequences] == [
        ("reference_wrong_final_right", "dpo-2"),
        ("reference_wrong_final_wrong", "dpo-2"),
        *[("reference_right", "dpo-2")] * 2,
        *[("checkpoint_right", "rl-3")] * 3,
        ("checkpoint_wrong", "rl-3"),
    ]
    assert [one.sequence_id for one in plan.sequences] == list(range(8))
    assert plan.prompts == []


def test_models_by_name(run: RunDirectory) -> None:
    plan = planned(run, checkpoints="dpo", reference="sft-3", final="rl", baseline="sft-2")
    assert (plan.reference.label, plan.final) == ("sft-3", "rl-3")
    assert [one.label for one in plan.checkpoints] == ["dpo-2", "rl-3"]  # the final one is always compared, by step
    assert plan.baseline is not None
    assert plan.baseline.label == "sft-2"
    reversed_order = planned(run, checkpoints="rl", reference="dpo", final="sft-3")
    assert [one.label for one in reversed_order.checkpoints] == ["sft-3", "rl-1", "rl-3"]
    assert planned(run, pairs=()).baseline is None
    assert planned(run, reference="sft-3").baseline is None  # nothing came before it
    with pytest.raises(ConfigError, match=r"probe.reference and probe.final are both rl-3"):
        planned(run, reference="rl")
    with pytest.raises(CheckpointError, match="rl-2 only serves resuming"):
        planned(run, final="rl-2")


def test_cross_sampling_answers_the_evaluated_problems(run: RunDirectory) -> None:
    plan = planned(run, cross_sampling=CrossSamplingConfig(max_problems=1))
    problems = FAMILY.problems("heldout", seed=derive_seed(CONFIG.seed, "problems"))[:4]
    assert [one.problem for one in plan.prompts] == [replace(problem, begun="") for problem in problems]


def test_evaluations_of_different_settings_are_refused(run: RunDirectory) -> None:
    final = run.select_checkpoint("rl-3")
    evaluate(run, final, "RRRW", max_new_tokens=9)
    with pytest.raises(ArtifactError, match="were made with different settings; run swerve eval"):
        planned(run)
    evaluate(run, final, "RRRW")
    assert planned(run).final == "rl-3"


def test_training_rollouts_follow_the_evaluated_ones(run: RunDirectory) -> None:
    problem = FAMILY.problems("train", seed=derive_seed(CONFIG.seed, "problems"))[0]
    row = evaluation_row(problem, correct=True)
    recorded = {
        **dict.fromkeys(ROLLOUTS_SCHEMA.names),
        **{name: row[name] for name in ("problem_id", "prompt_ids", "completion_ids", "text")},
        "advantages": [0.5] * len(row["completion_ids"]),
    }
    write_table(run.rollouts_path(7), [recorded], ROLLOUTS_SCHEMA)
    run.metrics_path.write_text("")
    plan = planned(run, populations=("training",))
    assert [(one.sequence_id, one.population) for one in plan.sequences] == [
        (0, "reference_wrong_final_right"),
        (1, "training"),
    ]
    assert {(one["sequence_id"], one["step"]) for one in plan.signals} == {(1, 7)}
    assert len(plan.signals) == len(row["completion_ids"])
