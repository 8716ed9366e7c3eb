"""What the report reads: parts that belong together, and different right answers among the samples of a problem."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from swerve.artifacts.evaluation import largest_k
from swerve.artifacts.metrics import append_metrics, read_step_metrics
from swerve.artifacts.run import RunDirectory
from swerve.errors import ArtifactError
from swerve.report.read import read_inputs, right_answers


def samples(*rows: tuple[str, str | None, bool]) -> pa.Table:
    problems, answers, correct = zip(*rows, strict=True)
    return pa.table({"problem_id": problems, "extracted": pa.array(answers, pa.string()), "correct": correct})


def test_right_answers_are_counted_once_and_problems_without_any_stay() -> None:
    table = samples(("p", "a", True), ("p", "a", True), ("p", "b", True), ("p", "c", False), ("q", None, False))
    assert right_answers(table) == {"p": {"a", "b"}, "q": set()}


def test_a_right_sample_without_a_recorded_answer_is_no_answer() -> None:
    assert right_answers(samples(("p", None, True), ("p", "a", True))) == {"p": {"a"}}
    assert right_answers(samples(("p", None, True), ("q", None, False))) == {}


def test_the_largest_number_of_samples_of_any_checkpoint(inputs_of: Any) -> None:
    entries = [{"by_num_samples": [{"k": k} for k in ks]} for ks in ((1,), (1, 8), ())]
    evaluations = inputs_of(entries).evaluations
    assert largest_k(evaluations) == 8
    assert largest_k(evaluations[2:]) == 0


def test_parts_of_other_settings_or_weights_are_refused(inputs_of: Any, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    run.create(config_yaml="", provenance={})
    found = inputs_of(summary={"weights_sha256": {"rl-80": "b"}})
    first, last = found.evaluations
    for one in (first, last.model_copy(update={"settings": {"seed": 1}})):
        one.write(run.path / "eval" / f"{one.file_name}.json")
    with pytest.raises(ArtifactError, match=r"were made with different settings; run swerve eval"):
        read_inputs(run)
    last.model_copy(update={"weights_sha256": "a"}).write(run.path / "eval" / f"{last.file_name}.json")
    found.summary.write(run.probe_path / "summary.json")
    with pytest.raises(ArtifactError, match=r"is of other weights of rl-80; run swerve probe"):
        read_inputs(run)


def test_a_line_of_metrics_with_another_kind_of_value_is_named(tmp_path: Path) -> None:
    append_metrics(tmp_path / "metrics.jsonl", {"step": 1, "stage": "rl", "stage_step": 1})
    append_metrics(tmp_path / "metrics.jsonl", {"step": 2, "stage": "rl", "stage_step": 2, "reward": "high"})
    with pytest.raises(ArtifactError, match=r"metrics\.jsonl:2: reward: .*; the file is damaged"):
        list(read_step_metrics(tmp_path / "metrics.jsonl"))
