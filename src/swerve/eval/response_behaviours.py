"""Behaviours of the responses of a run or of any file: records, metrics with intervals over problems, and notes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import ROLLOUTS_SCHEMA, read_table
from swerve.behaviours.label_summary import Embedder, summarise
from swerve.behaviours.response_rows import BehaviourRecord, Lexicon, Row
from swerve.behaviours.signs import SIGNS
from swerve.config import TaskConfig
from swerve.errors import ArtifactError, ConfigError, nearest
from swerve.formats.imported_responses import ResponseRecord, read_responses, recorded_verdict
from swerve.grading.text import given_beginning
from swerve.problems.prompt import FORMATS
from swerve.statistics.intervals import mean_interval, ratio_interval
from swerve.statistics.jackknife import UNBOUNDED
from swerve.statistics.pass_at_k import SampledProblem, sampling_curve
from swerve.types import Problem

_BY = ("label", "step", "set")
"""What the responses of a file are compared by, unless the user says: the first of these that it has."""


def behaviour_summary(
    records: Sequence[BehaviourRecord],
    rows: Sequence[Row],
    *,
    source: str,
    by: str | None,
    lexicon: Lexicon | None = None,
    embed: Embedder | None = None,
) -> dict[str, Any]:
    """Return the metrics of each label with their intervals, pass@k, and notes on what could not be measured.

    Args:
        records: the responses.
        rows: `behaviour_rows` of the same records.
        source: where the responses are from, and
        by: what they are compared by: both are only recorded.
        lexicon: the phrases to count; by default those that ship.
        embed: texts to vectors, for the similarity of embeddings.
    """
    labels = summarise(records, rows=rows, lexicon=lexicon, embed=embed, mean=_mean, ratio=_ratio)
    for label in labels:
        label["sampling"] = _sampling([record for record in records if record.label == label["label"]])
    return {"source": source, "by": by, "num_responses": len(records), "notes": _notes(records), "labels": labels}


def _mean(
    values: Sequence[float], *, clusters: Sequence[str], bounds: tuple[float, float] | None = None
) -> Mapping[str, float] | None:
    found = mean_interval(values, clusters=clusters, bounds=bounds or UNBOUNDED)
    return None if found is None else asdict(found)


def _ratio(
    numerators: Sequence[float], denominators: Sequence[float], *, clusters: Sequence[str]
) -> Mapping[str, float] | None:
    found = ratio_interval(numerators, denominators, clusters=clusters, bounds=(0.0, math.inf))
    return None if found is None else asdict(found)


def file_records(path: Path, *, by: str | None, fields: Mapping[str, str]) -> tuple[list[BehaviourRecord], str | None]:
    """Return the responses of a file in the order in which labels are shown, and the field they are compared by.

    Args:
        path: see `read_responses`.
        by: field to compare by; by default the first of label, step and set that the file has.
        fields: names of the file's fields where they differ from those known.

    Raises:
        ArtifactError: the file is damaged, or a response has no text.
        ConfigError: the file has no field `by`.
    """
    responses = read_responses(path, fields=fields)
    wordless = next((one for one in responses if one.response is None), None)
    if wordless is not None:
        raise ArtifactError(f"{wordless.place} has token ids but no text; behaviours are measured on texts")
    known = sorted({name for one in responses for name, value in _comparable(one).items() if value is not None})
    if by is not None and by not in known:
        raise ConfigError(f"--by '{by}' is not a field of {path}{nearest(by, known)}; it has {', '.join(known)}")
    chosen = by or next((name for name in _BY if name in known), None)
    values = [None if chosen is None else _comparable(one).get(chosen) for one in responses]
    records = [_record(one, _label(value, chosen)) for one, value in zip(responses, values, strict=True)]
    numbers = [value for value in values if isinstance(value, int | float)]
    if len(numbers) == len(records):
        records = [records[index] for index in sorted(range(len(records)), key=lambda index: numbers[index])]
    return records, chosen


def _comparable(response: ResponseRecord) -> dict[str, Any]:
    """Return the single values of a response by which it can be compared with others."""
    named = {
        "label": response.label,
        "step": response.step,
        "set": response.set,
        "kind": response.problem.kind,
        "difficulty": response.problem.difficulty,
        "family": response.problem.family,
        "correct": response.correct,
        "finish_reason": response.finish_reason,
        "problem_id": response.problem.id,
    }
    others = {name: value for name, value in response.extra.items() if isinstance(value, str | int | float)}
    return {**others, **named}


def _label(value: Any, by: str | None) -> str:
    if by is None:
        return "all"
    return f"no {by}" if value is None else f"{by} {value}" if isinstance(value, int | float) else str(value)


def _record(response: ResponseRecord, label: str) -> BehaviourRecord:
    problem = response.problem
    group = response.extra.get("group")
    return BehaviourRecord(
        problem_id=problem.id,
        response=response.response or "",
        row=response.place,
        label=label,
        group=None if group is None else f"{response.step}/{group}",
        question=problem.question,
        prefix=given_beginning(problem.as_problem(), response.response or ""),
        correct=response.verdict,
        extracted=response.extracted,
        finish_reason=response.finish_reason,
        num_tokens=None if response.completion_ids is None else len(response.completion_ids),
    )


def run_records(run: RunDirectory, task: TaskConfig) -> list[BehaviourRecord]:
    """Return the rollouts of a run by step, with the beginning of the answer that its prompts gave.

    Raises:
        ArtifactError: the run has no rollouts, or a table is damaged.
    """
    paths = sorted((run.path / "rollouts").glob("step_*.parquet"))
    if not paths:
        raise ArtifactError(f"{run.path} has no rollouts; train an rl or distill stage with keep_rollouts: true")
    begun = run.read_provenance().get("answer_begun")
    asked = Problem(id="", family=task.kind, question="", answer="", prefix=_prompt_prefix(task), begun=begun)
    return [record for path in paths for record in _rollout_records(path, asked)]


def _prompt_prefix(task: TaskConfig) -> str:
    """Return the beginning of the answer that a task's prompts give to the model."""
    prompt = getattr(task, "prompt", None)
    if prompt is None:
        return ""
    return FORMATS[prompt.format].prefix if prompt.prefix is None else prompt.prefix


def _rollout_records(path: Path, asked: Problem) -> list[BehaviourRecord]:
    names = ("group", "problem_id", "completion_ids", "text", "reward", "parts", "status", "extracted", "finish_reason")
    table = read_table(path, pa.schema([ROLLOUTS_SCHEMA.field(name) for name in names]))
    lengths = pc.list_value_length(table["completion_ids"]).to_pylist()
    step = int(path.stem.removeprefix("step_"))
    return [
        BehaviourRecord(
            problem_id=row["problem_id"],
            response=row["text"],
            row=f"{path.name}, row {number}",
            label=f"step {step}",
            group=str(row["group"]),
            prefix=given_beginning(asked, row["text"]),
            correct=recorded_verdict(None, row["reward"], parts=row["parts"], status=row["status"]),
            extracted=row["extracted"],
            finish_reason=row["finish_reason"],
            num_tokens=num_tokens,
        )
        for number, (row, num_tokens) in enumerate(
            zip(table.drop_columns(["completion_ids"]).to_pylist(), lengths, strict=True), start=1
        )
    ]


def _sampling(records: Sequence[BehaviourRecord]) -> list[dict[str, Any]]:
    """Return pass@k, pass^k and maj@k over the problems whose samples all have a verdict."""
    problems: dict[str, list[BehaviourRecord]] = {}
    for record in records:
        problems.setdefault(record.problem_id, []).append(record)
    sampled: list[SampledProblem] = [
        {
            "answers": [None if one.extracted is None else " ".join(one.extracted.split()) for one in group],
            "right": [bool(one.correct) for one in group],
        }
        for group in problems.values()
        if all(one.correct is not None for one in group)
    ]
    return [asdict(entry) for entry in sampling_curve(sampled)]


def _notes(records: Sequence[BehaviourRecord]) -> list[str]:
    """Say what could not be measured, and how few problems intervals rest on."""
    notes = []
    num_problems = len({record.problem_id for record in records})
    if num_problems < 10:
        notes.append(f"intervals are over problems, and {num_problems} are too few to say much")
    asked = sum(record.question is not None for record in records)
    if asked < len(records):
        notes.append(
            f"{len(records) - asked} of {len(records)} responses have no question beside them: thinking about "
            f"something else and signs that need the question ({', '.join(_NEED_QUESTION)}) are not measured there"
        )
    judged = sum(record.correct is not None for record in records)
    if judged < len(records):
        notes.append(
            f"{len(records) - judged} of {len(records)} responses have no verdict; accuracy is over the others"
        )
    return notes


_NEED_QUESTION = ("thinking_repeats_question", "answer_repeats_question", "lists_all_options")
assert set(_NEED_QUESTION) <= set(SIGNS)
