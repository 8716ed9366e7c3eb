"""Recorded rollouts as a population: which are read, what becomes of them, and what is refused."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Any

import pytest

from swerve.artifacts.metrics import append_metrics
from swerve.artifacts.response_columns import ROLLOUTS_SCHEMA, response_schema
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import SIGNALS_SCHEMA, read_table, write_table
from swerve.errors import ArtifactError
from swerve.models.tiny import build_word_tokenizer
from swerve.probe.rollouts.recorded import stage_start, training_rollouts
from swerve.problems import load_family
from swerve.seeds import derive_seed
from tests.json_lines import write_json_lines

FIRST = 222  # global steps before the small recipe's rl stage


@pytest.fixture(scope="module")
def family(small_config):
    return load_family(small_config.task)


@pytest.fixture(scope="module")
def tokenizer(family):
    return build_word_tokenizer(family.words)


@pytest.fixture(scope="module")
def problems(small_config, family):
    return family.problems("train", seed=derive_seed(small_config.seed, "problems"))


@pytest.fixture
def row(tokenizer, problems):
    """Make a row of the rollouts table that answers a problem with its whole right solution, which nobody graded."""

    def make(number: int, *, reward: float | None = None, **changes: Any) -> dict[str, Any]:
        problem = problems[number]
        ids = [*tokenizer(problem.solution, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        advantages = [0.25 - 0.01 * place for place in range(len(ids))]
        values = {
            "group": number,
            "problem_id": problem.id,
            "prompt_ids": tokenizer(problem.question)["input_ids"],
            "completion_ids": ids,
            "logprobs": [-0.5] * len(ids),
            "text": problem.solution,
            "reward": reward,
            "advantages": advantages,
            "kl": None,
            "clipped": [0.5] * len(ids),
        }
        return {**values, **changes}

    return make


@pytest.fixture
def read(small_config, family, tokenizer, tmp_path):
    run = RunDirectory(tmp_path)

    def do(tables: dict[int, list[dict[str, Any]]], *, max_rollouts: int = 100, stage: str = "rl", **more: Any) -> Any:
        for step, rows in tables.items():
            run.rollouts_path(step).parent.mkdir(exist_ok=True)
            known = {**dict.fromkeys(ROLLOUTS_SCHEMA.names), "version": step - 1}
            write_table(
                run.rollouts_path(step), [{**known, **one, "version": step - 1} for one in rows], ROLLOUTS_SCHEMA
            )
        return training_rollouts(
            small_config, run, stage=stage, family=family, tokenizer=tokenizer, max_rollouts=max_rollouts, **more
        )

    return do


def test_a_rollout_becomes_a_sequence_with_the_signal_of_each_token(read, row, problems, tmp_path):
    found = read(
        {
            FIRST + 1: [row(3, reward=1.0, extracted=problems[3].answer)],
            FIRST + 3: [row(5, reward=0.0, advantages=None, clipped=None)],
        },
        first_id=40,
    )
    first, second = found.sequences
    assert (first.sequence_id, second.sequence_id) == (40, 41)
    # They know that the tokenizer, without a template, began nothing of the answers.
    assert [first.problem, second.problem] == [replace(problems[number], begun="") for number in (3, 5)]
    assert {(one.population, one.label) for one in found.sequences} == {("training", "training")}
    assert (first.correct, second.correct) == (True, False)
    assert first.extracted == problems[3].answer
    assert first.text[slice(*first.spans[0])] == problems[3].solution.split()[0]
    assert first.wrong == {}
    length = len(first.completion_ids)
    assert len(found.signals) == length + len(second.completion_ids)
    assert found.signals[2] == {
        "sequence_id": 40,
        "position": 2,
        "step": FIRST + 1,
        "advantage": pytest.approx(0.23),
        "clipped": 0.5,
        "kl": None,
        "used": True,
    }
    left_out = {"advantage": None, "clipped": None, "kl": None, "used": False}
    assert found.signals[length] == {"sequence_id": 41, "position": 0, "step": FIRST + 3, **left_out}
    write_table(tmp_path / "signals.parquet", list(found.signals), SIGNALS_SCHEMA)


def test_wrong_steps_are_marked(read, row, problems, tokenizer):
    words = problems[3].solution.split()
    words[-1] = "1" if words[-1] == "0" else "0"
    ids = [*tokenizer(" ".join(words), add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    changes = {"text": " ".join(words), "completion_ids": ids}
    found = read({FIRST + 1: [row(3, reward=0.0, advantages=[0.0] * len(ids), **changes)]})
    assert found.sequences[0].wrong == {len(words) - 1: problems[3].solution.split()[-1]}


def test_a_verdict_is_what_was_recorded_and_unknown_where_nothing_was(read, row):
    rows = [row(3, reward=None, correct=False), row(4, reward=None)]
    assert [one.correct for one in read({FIRST + 1: rows}).sequences] == [False, None]


def test_the_sample_is_spread_over_the_steps_and_is_the_same_again(read, row):
    tables = {FIRST + step: [row(10 * step + place) for place in range(6)] for step in (1, 2, 3, 4)}

    def chosen(count: int) -> list[tuple[int, str]]:
        found = read(tables, max_rollouts=count)
        steps = {signal["sequence_id"]: signal["step"] for signal in found.signals}
        return [(steps[one.sequence_id], one.problem.id) for one in found.sequences]

    sample = chosen(9)
    assert [step for step, _ in sample] == [223, 223, 224, 224, 225, 225, 226, 226, 226]
    assert len({problem for _, problem in sample}) == 9
    assert chosen(9) == sample
    assert {step for step, _ in chosen(2)} == {224, 226}
    assert len(chosen(1000)) == 24
    assert set(sample) <= set(chosen(16))


def test_tables_of_other_stages_are_left_out(read, row, tmp_path):
    records = [
        {"step": FIRST + 1, "stage": "rl", "stage_step": 1},
        {"step": 200, "stage": "sft", "stage_step": 200},
    ]
    write_json_lines(tmp_path / "metrics.jsonl", records)
    found = read({step: [row(step % 10)] for step in (FIRST, FIRST + 1, FIRST + 4, FIRST + 5)})
    assert [signal["step"] for signal in found.signals if signal["position"] == 0] == [FIRST + 1, FIRST + 4]


def test_a_stage_begins_after_the_steps_of_those_before_it(small_config):
    assert [stage_start(small_config, name) for name in ("sft", "dpo", "rl")] == [0, 220, FIRST]
    with pytest.raises(ArtifactError, match="the recipe has no stage 'ppo'; it has sft, dpo, rl"):
        stage_start(small_config, "ppo")


def test_the_rollouts_of_another_step_are_named(read, row, tmp_path):
    read({FIRST + 1: [row(3)], FIRST + 2: [row(5)]})
    run = RunDirectory(tmp_path)
    shutil.copy(run.rollouts_path(FIRST + 1), run.rollouts_path(FIRST + 2))
    message = rf"step_{FIRST + 2:06d}\.parquet was sampled by the weights of step {FIRST}, .*: it is of another step"
    with pytest.raises(ArtifactError, match=message):
        read({})


def test_rollouts_without_a_signal_say_what_they_lack(read, row, tmp_path):
    read({FIRST + 1: [row(3)]})
    path = RunDirectory(tmp_path).rollouts_path(FIRST + 1)
    names = [name for name in ROLLOUTS_SCHEMA.names if name not in ("advantages", "kl", "clipped")]
    write_table(path, read_table(path, response_schema(*names)), response_schema(*names))
    with pytest.raises(ArtifactError, match=r"lacks the columns \['advantages', 'kl', 'clipped'\]; make it again"):
        read({})


@pytest.mark.parametrize("stage", ["sft", "dpo", "rl"])
def test_a_stage_without_rollouts_is_refused(read, stage):
    with pytest.raises(ArtifactError, match=f"no rollouts of stage '{stage}' .* keep_rollouts: true"):
        read({}, stage=stage)


def test_rollouts_of_other_problems_are_refused(read, row):
    with pytest.raises(ArtifactError, match="has the problem 'addition-7', which the recipe's task does not"):
        read({FIRST + 1: [row(3, problem_id="addition-7")]})


def test_a_step_without_its_rollouts_is_named(read, row, tmp_path):
    for step in (1, 2, 3):
        append_metrics(tmp_path / "metrics.jsonl", {"step": FIRST + step, "stage": "rl", "stage_step": step})
    assert read({FIRST + 1: [row(3)], FIRST + 3: [row(5)]}).notes == (
        f"rollouts/step_{FIRST + 2:06d}.parquet is missing: the population 'training' lacks its step",
    )


def test_what_a_run_recorded_is_read(small_run, small_config, family):
    from swerve.models.model_folder import load_tokenizer

    tokenizer = load_tokenizer(small_run.checkpoint_path(220))
    found = training_rollouts(
        small_config, small_run, stage="rl", family=family, tokenizer=tokenizer, max_rollouts=1000
    )
    assert len(found.sequences) == 4 * 6 * 4
    assert len(found.signals) == sum(len(one.completion_ids) for one in found.sequences)
    by_sequence: dict[int, list[Any]] = {}
    for signal in found.signals:
        by_sequence.setdefault(signal["sequence_id"], []).append(signal)
    right = [by_sequence[one.sequence_id][0]["advantage"] for one in found.sequences if one.correct]
    wrong = [by_sequence[one.sequence_id][0]["advantage"] for one in found.sequences if not one.correct]
    assert any(value is None for value in [*right, *wrong])
    assert all(value > 0 for value in right if value is not None)
    assert all(value < 0 for value in wrong if value is not None)
