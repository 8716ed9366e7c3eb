"""Training, evaluation and the probe with mixtures, curricula, failing graders and families without step checker."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from swerve.artifacts.files import read_json
from swerve.artifacts.metrics import read_metrics
from swerve.artifacts.response_columns import EVALUATION_SCHEMA, ROLLOUTS_SCHEMA
from swerve.artifacts.responses import Response
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import read_table
from swerve.errors import ConfigError, InterruptedRunError, SwerveError
from swerve.eval.heldout import evaluate_run
from swerve.grading.grader import GraderEntry
from swerve.probe.from_run import plan_run
from swerve.probe.rollouts.population import probe_sequences
from swerve.problems.family import SolvedFamily
from swerve.progress import SilentProgress
from swerve.recipes import load_config
from swerve.train import rollouts
from swerve.train.loop import train_run
from swerve.types import Problem, Reward
from tests.builders import Notes
from tests.json_lines import write_json_lines

MIXED = """
name: mixed
seed: 2
task:
  kind: mixture
  parts:
    - {task: {kind: addition, digits: 2, num_train: 60, num_heldout: 12}, weight: 3}
    - {task: {kind: arithmetic_sequence, max_number: 9, num_train: 60, num_heldout: 12}}
model: {kind: tiny, hidden_size: 32, num_layers: 1, intermediate_size: 48}
max_new_tokens: 36
stages:
  - kind: sft
    steps: 30
    batch_size: 16
    curriculum: shuffled
    optimizer: {lr: 4e-3, beta2: 0.95}
  - kind: rl
    steps: 6
    prompts_per_step: 8
    samples_per_prompt: 4
    zero_variance: refill
    max_refills: 1
    curriculum: {kind: success_rate, exploration: 0.05}
    optimizer: {lr: 1e-3}
    checkpoints: [2]
    save_every: 1
  - kind: rl
    name: terms
    steps: 4
    prompts_per_step: 4
    samples_per_prompt: 2
    zero_variance: keep
    curriculum: {kind: difficulty, start_share: 0.25, ramp_steps: 3}
    where:
      kinds: ["arithmetic_sequence: 1 term", "arithmetic_sequence: 2 terms", "arithmetic_sequence: 3 terms",
        "arithmetic_sequence: 4 terms", "arithmetic_sequence: 5 terms", "arithmetic_sequence: 6 terms",
        "arithmetic_sequence: 7 terms", "arithmetic_sequence: 8 terms"]
    optimizer: {lr: 1e-4}
eval: {num_problems: 16, samples_per_problem: 2}
runtime: {device: cpu, threads: 1, max_rows: 64}
"""


@pytest.fixture(scope="module")
def mixed_config(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("mixed") / "mixed.yaml"
    path.write_text(MIXED)
    return load_config(path)


@pytest.fixture(scope="module")
def mixed_run(mixed_config: Any, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    run = RunDirectory(tmp_path_factory.mktemp("mixed") / "run")
    train_run(mixed_config, run, resume=False, progress=SilentProgress())
    evaluate_run(mixed_config, run, progress=SilentProgress())
    return run


def _figures(run: RunDirectory) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in record.items() if name != "seconds"}
        for record in read_metrics(run.metrics_path)
    ]


def _weights(run: RunDirectory) -> dict[str, str]:
    return {one.label: one.weights_sha256 for one in run.checkpoints if one.scheduled}


def _drawn(run: RunDirectory, step: int) -> list[str]:
    rows = read_table(run.rollouts_path(step), ROLLOUTS_SCHEMA).to_pylist()
    return [problem for _, problem in sorted({(row["group"], row["problem_id"]) for row in rows})]


def test_every_step_draws_the_parts_in_proportion(mixed_run):
    for step in range(31, 37):
        assert sum(name.startswith("addition") for name in _drawn(mixed_run, step)[:8]) == 6


def test_the_record_of_what_was_solved_is_that_of_the_rollouts(mixed_run):
    records = read_metrics(mixed_run.problems_path)
    assert [record["step"] for record in records] == list(range(31, 41))
    for record in records:
        rows = read_table(mixed_run.rollouts_path(record["step"]), ROLLOUTS_SCHEMA).to_pylist()
        for (name, solved, tried), group in zip(
            record["problems"], sorted({row["group"] for row in rows}), strict=True
        ):
            own = [row for row in rows if row["group"] == group]
            assert (name, solved, tried) == (
                own[0]["problem_id"],
                sum(row["reward"] == 1.0 for row in own),
                len(own),
            )


def test_a_phase_draws_within_its_bounds_and_its_pool_grows(mixed_run):
    records = [record for record in read_metrics(mixed_run.metrics_path) if record["stage"] == "terms"]
    # The kinds are those of the sequences: 15 of each number of terms.
    assert all(name.startswith("arithmetic") for step in range(37, 41) for name in _drawn(mixed_run, step))
    assert [round(record["pool_share"], 6) for record in records] == [0.25, 0.5, 0.75, 1.0]
    assert records[0]["mean_difficulty"] <= 2.5 < records[-1]["mean_difficulty"]


def test_evaluation_reports_by_part_and_checks_each_problem_by_its_own_family(mixed_run):
    last = mixed_run.checkpoints[-1]
    summary = read_json(mixed_run.evaluation_path(last))
    # 12 of the 16 problems by the weights.
    assert {name: part["num_problems"] for name, part in summary["greedy"]["by_part"].items()} == {
        "addition": 12,
        "arithmetic_sequence": 4,
    }
    assert all(kind.startswith(("addition: ", "arithmetic_sequence: ")) for kind in summary["greedy"]["by_kind"])
    assert [sum(summary[half]["statuses"].values()) for half in ("greedy", "sampled")] == [16, 32]


@pytest.mark.parametrize(
    "stop", [pytest.param(33, marks=pytest.mark.slow), 35, pytest.param(38, marks=pytest.mark.slow)]
)
def test_a_resumed_run_draws_the_same_and_ends_with_the_same_weights(
    mixed_config: Any, mixed_run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: int
) -> None:
    run = RunDirectory(tmp_path / "run")

    def interrupt(_found: Any, context: Any, index: int, *_more: Any) -> None:
        # After the record of the step was written and before its checkpoint: as a kill there would leave the files.
        if context.first_step + index + 1 == stop:
            raise InterruptedRunError("killed", signal_number=9)
        write(_found, context, index, *_more)

    write = rollouts.write_rollouts
    from swerve.train.stages import rl

    with monkeypatch.context() as patch:
        patch.setattr(rl, "write_rollouts", interrupt)
        with pytest.raises(InterruptedRunError):
            train_run(mixed_config, run, resume=False, progress=SilentProgress())
    assert [record["step"] for record in read_metrics(run.problems_path)][-1] == stop
    train_run(mixed_config, run, resume=True, progress=SilentProgress())
    assert _weights(run) == _weights(mixed_run)
    assert _figures(run) == _figures(mixed_run)
    assert run.problems_path.read_text() == mixed_run.problems_path.read_text()


def _stopped(run: RunDirectory, num_recorded: int, number: int, *arguments: Any) -> int:
    """Train in a process, send it a signal once that many steps are in problems.jsonl, and return its status."""
    command = [sys.executable, "-m", "swerve", "train", *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment) as process:
        deadline = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < deadline:
            if run.problems_path.exists() and run.problems_path.read_bytes().count(b"\n") >= num_recorded:
                process.send_signal(number)
                return process.wait(timeout=60)
            time.sleep(0.002)
        process.kill()
    raise AssertionError(f"{num_recorded} steps were not recorded")


@pytest.mark.slow
def test_a_killed_and_an_interrupted_process_end_with_the_same_weights_and_records(
    mixed_config: Any, mixed_run: RunDirectory, tmp_path: Path
) -> None:
    recipe = tmp_path / "mixed.yaml"
    recipe.write_text(MIXED)
    run = RunDirectory(tmp_path / "run")
    assert _stopped(run, 3, signal.SIGKILL, recipe, "--out", run.path) == -signal.SIGKILL
    assert _stopped(run, 6, signal.SIGINT, run.path, "--resume") == 128 + signal.SIGINT
    train_run(mixed_config, run, resume=True, progress=SilentProgress())
    assert _weights(run) == _weights(mixed_run)
    assert _figures(run) == _figures(mixed_run)
    assert run.problems_path.read_text() == mixed_run.problems_path.read_text()


@pytest.mark.slow
@pytest.mark.dist
def test_two_processes_draw_and_record_what_one_does(on_two_processes: Any, mixed_config: Any, tmp_path: Path) -> None:
    recipe = tmp_path / "mixed.yaml"
    recipe.write_text(MIXED)
    # The weights of two processes differ in rounding, so that rollouts may in the end: one step is compared.
    overrides = ["stages.0.steps=1", "stages.1.steps=1", "stages.terms.steps=1"]
    alone, together = RunDirectory(tmp_path / "one"), RunDirectory(tmp_path / "two")
    train_run(load_config(recipe, overrides), alone, resume=False, progress=SilentProgress())
    on_two_processes("-m", "swerve", "train", recipe, *overrides, "--out", together.path)
    assert together.problems_path.read_text() == alone.problems_path.read_text()
    names = ("num_completions", "num_unparsed", "num_errors", "mean_difficulty", "pool_share")
    for one, two in zip(read_metrics(alone.metrics_path), read_metrics(together.metrics_path), strict=True):
        assert {name: one.get(name) for name in names} == {name: two.get(name) for name in names}
    for step in (2, 3):
        assert _drawn(together, step) == _drawn(alone, step)


def _failing(share: float, status: str) -> Callable[[Problem, str], Reward]:
    draws = random.Random(0)

    def grade(problem: Problem, text: str) -> Reward:
        if draws.random() < share:
            return Reward(value=None, status=status, detail="2 s of CPU time")
        return Reward(value=float(len(text) % 2), status="graded", extracted="x")

    return grade


def _grade_with(monkeypatch: pytest.MonkeyPatch, grader: Callable[[Problem, str], Reward]) -> None:
    def load(self: Any) -> Callable[[Problem, str], Reward]:
        return grader

    monkeypatch.setattr(GraderEntry, "load", load)


FAILING = [
    "stages.0.steps=2", "stages.1.steps=4", "stages.terms.steps=1", "stages.1.prompts_per_step=16",
    "stages.1.zero_variance=keep", "stages.1.save_every=null", "stages.1.max_refills=1",
]  # fmt: skip


def test_training_stops_where_graders_fail_and_goes_on_when_they_are_repaired(tmp_path, monkeypatch):
    recipe = tmp_path / "mixed.yaml"
    recipe.write_text(MIXED)
    config, run = load_config(recipe, FAILING), RunDirectory(tmp_path / "run")
    with monkeypatch.context() as patch:
        _grade_with(patch, _failing(0.8, "timeout"))
        with pytest.raises(SwerveError, match=r"stage 'rl' stopped at its step 1: \d+% .* 2 s of CPU time \(\d+\)"):
            train_run(config, run, resume=False, progress=SilentProgress())
    record = read_metrics(run.metrics_path)[-1]
    rows = read_table(run.rollouts_path(3), ROLLOUTS_SCHEMA).to_pylist()
    assert record["num_timeouts"] == sum(row["status"] == "timeout" for row in rows)
    assert record["error_details"] == {"2 s of CPU time": record["num_timeouts"]}
    assert {(row["detail"], row["extracted"]) for row in rows} == {("2 s of CPU time", None), (None, "x")}
    # A limit is not the reward 0 in disguise.
    assert {row["reward"] for row in rows if row["status"] == "timeout"} == {None}
    assert run.checkpoints[-1].label == "rl-1"
    train_run(config, run, resume=True, progress=SilentProgress())
    assert run.read_provenance()["status"] == "trained"
    assert [one["step"] for one in read_metrics(run.metrics_path)] == list(range(1, 8))


def test_texts_without_an_answer_do_not_stop_training(tmp_path, monkeypatch):
    recipe = tmp_path / "mixed.yaml"
    recipe.write_text(MIXED)
    run = RunDirectory(tmp_path / "run")
    _grade_with(monkeypatch, _failing(1.0, "unparsed"))
    train_run(load_config(recipe, FAILING), run, resume=False, progress=SilentProgress())
    records = [one for one in read_metrics(run.metrics_path) if one["stage"] == "rl"]
    assert [one["num_unparsed"] for one in records] == [one["num_completions"] for one in records] == [64] * 4


class _Prose(SolvedFamily):
    """Sums asked in a sentence; the family has neither a vocabulary nor a step checker."""

    name = "addition"

    def notes(self) -> list[str]:
        return ["three of the sums are known to be wrong"]

    def problems(self, split: str, *, seed: int) -> list[Problem]:
        numbers = range(12) if split == "train" else range(12, 18)
        return [
            Problem(
                id=f"sum-{number}",
                family="addition",
                question=f"Once there were {number} cats and 1 dog.",
                answer=str(number + 1),
                solution=f"They were {number + 1}. answer {number + 1}",
                messages=(("user", f"Once there were {number} cats. How many? Answer in <answer> </answer>"),),
            )
            for number in numbers
        ]


PROSE = """
name: prose
task: {{kind: addition, num_train: 12, num_heldout: 6}}
model: {model}
max_new_tokens: 8
stages:
  - {{kind: sft, steps: 2, batch_size: 4, optimizer: {{lr: 1e-4}}}}
  - {{kind: rl, steps: 2, prompts_per_step: 4, samples_per_prompt: 2, zero_variance: keep, optimizer: {{lr: 1e-5}}}}
eval: {{num_problems: 6, samples_per_problem: 2}}
runtime: {{device: cpu, threads: 1}}
"""


@pytest.fixture
def prose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    from swerve.eval import heldout
    from swerve.train import loop

    for module in (loop, heldout):
        monkeypatch.setattr(module, "load_family", lambda _task: _Prose())

    def configured(model: str) -> Any:
        recipe = tmp_path / "prose.yaml"
        recipe.write_text(PROSE.format(model=model))
        return load_config(recipe)

    return configured


def test_a_tiny_model_needs_a_vocabulary_and_the_message_says_what_to_do(prose, tmp_path):
    run = RunDirectory(tmp_path / "run")
    with pytest.raises(ConfigError, match=r"texts without a fixed vocabulary.*model.kind=pretrained model.path=FOLDER"):
        train_run(prose("tiny"), run, resume=False, progress=SilentProgress())
    assert not run.path.exists()


def test_prose_is_learnt_and_evaluated_without_steps(prose, tmp_path, tiny):
    _, tokenizer = tiny
    folder = tmp_path / "model"
    words = dict.fromkeys(
        " ".join(one.question + " " + (one.solution or "") for one in _Prose().problems("train", seed=0)).split()
    )
    from swerve.config.models import TinyModel
    from swerve.models.tiny import build_tiny_model, build_word_tokenizer

    more = [str(number) for number in range(20)] + ["How", "many?", "Answer", "in", "<answer>", "</answer>", "cats."]
    tokenizer = build_word_tokenizer(list(dict.fromkeys([*words, *more, *(f"{number}." for number in range(20))])))
    build_tiny_model(TinyModel(hidden_size=32, intermediate_size=48), tokenizer, seed=0).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    config, run, progress = prose(f"{{kind: pretrained, path: {folder}}}"), RunDirectory(tmp_path / "run"), Notes()
    train_run(config, run, resume=False, progress=progress)
    assert progress.notes[0] == "three of the sums are known to be wrong"
    last = read_metrics(run.metrics_path)[-1]
    assert last["format_rate"] is not None
    assert last["repeated_4gram_share"] is not None
    (summary,) = [one for one in evaluate_run(config, run, progress=progress) if one.checkpoint == "rl-2"]
    assert summary.greedy.trace_right is None
    assert summary.greedy.in_format is not None
    rows = read_table(run.path / "eval" / "step_000004.parquet", EVALUATION_SCHEMA).to_pylist()
    assert {row["trace_right"] for row in rows} == {None}


def test_the_probe_reads_problems_as_their_family_gives_them(tiny):
    _, tokenizer = tiny
    family = _Prose()
    (problem,) = family.problems("heldout", seed=0)[:1]
    ids = tokenizer("1 + 2", add_special_tokens=False)["input_ids"]
    asked = replace(problem, solution=None)
    row = Response(problem=asked, prompt_ids=(1, 2), completion_ids=tuple(ids), text="1 + 2", correct=False)
    gone = replace(row, problem=replace(asked, id="gone"))
    known, unknown = probe_sequences([row, gone], family=family, tokenizer=tokenizer, problems={problem.id: problem})
    assert known.problem is problem
    assert (unknown.problem.id, unknown.problem.question) == ("gone", problem.question)
    assert known.wrong == {}
    assert known.first_wrong is None


@pytest.fixture
def misspelt(tmp_path: Path) -> Any:
    """A recipe whose problems name a policy that their grader does not have."""
    problems = [{"question": f"{one} + 1 =", "answer": str(one + 1)} for one in range(40)]
    write_json_lines(tmp_path / "problems.jsonl", problems)
    recipe = tmp_path / "table.yaml"
    recipe.write_text(
        f"""
name: table
task: {{kind: table, train: "{tmp_path}/problems.jsonl", grader: math, grading: {{pint: 1}}}}
model: {{kind: pretrained, path: MODEL}}
stages:
  - {{kind: rl, name: first, steps: 1, optimizer: {{lr: 1e-6}}}}
  - {{kind: rl, name: second, steps: 1, optimizer: {{lr: 1e-6}}}}
"""
    )
    return load_config(recipe)


def test_a_policy_that_no_grader_has_is_refused_before_anything_is_done(misspelt, tmp_path):
    run = RunDirectory(tmp_path / "run")
    with pytest.raises(ConfigError, match="the grader math has no policy 'pint'"):
        train_run(misspelt, run, resume=False, progress=SilentProgress())
    assert not run.path.exists()


def test_evaluation_and_probe_refuse_it_too(misspelt, mixed_run, monkeypatch):
    monkeypatch.setattr(RunDirectory, "lock", None)  # nothing is begun
    with pytest.raises(ConfigError, match="the grader math has no policy 'pint'"):
        evaluate_run(misspelt, mixed_run, progress=SilentProgress())
    named = {"reference": "sft", "final": "terms", "checkpoints": "terms"}
    probed = misspelt.model_copy(update={"probe": misspelt.probe.model_copy(update=named)})
    with pytest.raises(ConfigError, match="the grader math has no policy 'pint'"):
        plan_run(probed, mixed_run)
