"""Everything the report reads from a run directory, in one frozen record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from swerve.artifacts.files import read_json
from swerve.artifacts.metrics import read_metrics
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import (
    EVALUATION_SCHEMA,
    INTERVENTIONS_SCHEMA,
    SAMPLES_SCHEMA,
    SEQUENCES_SCHEMA,
    SPIKES_SCHEMA,
    TOKENS_SCHEMA,
    TOPK_SCHEMA,
    read_table,
)
from swerve.errors import ArtifactError
from swerve.report.sampling import right_answers
from swerve.statistics import Estimate, bootstrap_mean

__all__ = ["FinalCompletion", "ProbeTables", "ReportInputs", "read_inputs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeTables:
    """The probe's tables; those that are optional may be missing."""

    sequences: pa.Table
    tokens: pa.Table
    topk: pa.Table | None
    spikes: pa.Table | None
    interventions: pa.Table | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalCompletion:
    """What the final checkpoint writes greedily for a problem."""

    text: str
    extracted: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportInputs:
    """A run as the report sees it; None and empty mean that a stage has not run."""

    run_name: str
    provenance: Mapping[str, Any]
    config_text: str | None
    confidence: float | None
    """Level of the intervals of evaluations and probe; None where they differ or do not say."""
    metrics: tuple[Mapping[str, Any], ...]
    evaluations: tuple[Mapping[str, Any], ...]
    """One a checkpoint, by global step."""
    summary: Mapping[str, Any] | None
    tables: ProbeTables | None
    final_completions: Mapping[str, FinalCompletion]
    """By problem id."""
    distinct_right: Mapping[str, Estimate]
    """By checkpoint: how many different right answers the samples of a problem have; empty where never two."""

    def evaluation(self, label: Any) -> Mapping[str, Any] | None:
        """Return the evaluation of the checkpoint called `label`, if there is one."""
        return next((entry for entry in self.evaluations if entry.get("checkpoint") == label), None)

    def step(self, label: str) -> int | None:
        """Return the global step of a checkpoint, as its evaluation has it."""
        entry = self.evaluation(label)
        return None if entry is None else int(entry["step"])

    @property
    def is_imported(self) -> bool:
        """Whether the probe is of responses from elsewhere, without a selection or an evaluation."""
        return self.summary is not None and self.summary.get("selection") == "imported"

    @property
    def reference(self) -> Mapping[str, Any] | None:
        """The reference's evaluation; without a probe the first one."""
        if self.summary is not None:
            return self.evaluation(self.summary.get("reference"))
        return self.evaluations[0] if self.evaluations else None

    @property
    def final(self) -> Mapping[str, Any] | None:
        """The final checkpoint's evaluation; without a probe the last one."""
        if self.summary is not None:
            return self.evaluation(self.summary.get("final"))
        return self.evaluations[-1] if self.evaluations else None


def read_inputs(run: RunDirectory) -> ReportInputs:
    """Read what a run has: evaluations, probe tables, metrics and provenance.

    Raises:
        ArtifactError: there is no evaluation, no probe and no metrics, or a file is damaged.
    """
    provenance = run.read_provenance()
    evaluations = _read_evaluations(run.path / "eval")
    summary_path = run.probe_path / "summary.json"
    summary = _read_object(summary_path) if summary_path.is_file() else None
    _refuse_mixture(run, evaluations, summary)
    metrics = tuple(read_metrics(run.metrics_path))
    if not evaluations and summary is None and not metrics:
        raise ArtifactError(
            f"{run.path} has nothing to report: no metrics, no evaluation and no probe; "
            f"run swerve train, swerve eval {run.path} and swerve probe {run.path} first"
        )
    config_text = run.config_path.read_text(encoding="utf-8") if run.config_path.is_file() else None
    return ReportInputs(
        run_name=run.path.resolve().name,
        provenance=provenance,
        config_text=config_text,
        confidence=_confidence(evaluations, summary),
        metrics=metrics,
        evaluations=evaluations,
        summary=summary,
        tables=_read_tables(run.probe_path),
        final_completions=_final_completions(run, evaluations, summary),
        distinct_right=_distinct_right(run, evaluations),
    )


def _read_object(path: Path) -> Mapping[str, Any]:
    value = read_json(path)
    if not isinstance(value, dict):
        raise ArtifactError(f"{path} is not a JSON object; make it again")
    return value


def _read_evaluations(directory: Path) -> tuple[Mapping[str, Any], ...]:
    found = []
    for path in sorted(directory.glob("step_*.json")):
        entry = _read_object(path)
        if not isinstance(entry.get("checkpoint"), str) or not isinstance(entry.get("step"), int):
            raise ArtifactError(f"{path} does not name its checkpoint and step; make it again with swerve eval")
        found.append({**entry, "name": path.stem})
    return tuple(sorted(found, key=lambda entry: entry["step"]))


def _refuse_mixture(
    run: RunDirectory, evaluations: Sequence[Mapping[str, Any]], summary: Mapping[str, Any] | None
) -> None:
    """Do nothing if all parts belong to the same weights and settings."""
    if any(entry.get("settings") != evaluations[0].get("settings") for entry in evaluations):
        raise ArtifactError(
            f"the evaluations of {run.path} were made with different settings; run swerve eval {run.path}"
        )
    probed = {} if summary is None else summary.get("weights_sha256", {})
    for entry in evaluations:
        label = entry["checkpoint"]
        if label in probed and probed[label] != entry.get("weights_sha256"):
            raise ArtifactError(
                f"the probe of {run.path} is of other weights of {label}; run swerve probe {run.path} again"
            )


def _read_tables(directory: Path) -> ProbeTables | None:
    if not (directory / "sequences.parquet").is_file() or not (directory / "tokens.parquet").is_file():
        return None

    def optional(name: str, schema: pa.Schema) -> pa.Table | None:
        path = directory / name
        return read_table(path, schema) if path.is_file() else None

    return ProbeTables(
        sequences=read_table(directory / "sequences.parquet", SEQUENCES_SCHEMA),
        tokens=read_table(directory / "tokens.parquet", TOKENS_SCHEMA),
        topk=optional("topk.parquet", TOPK_SCHEMA),
        spikes=optional("spikes.parquet", SPIKES_SCHEMA),
        interventions=optional("interventions.parquet", INTERVENTIONS_SCHEMA),
    )


def _final_completions(
    run: RunDirectory, evaluations: tuple[Mapping[str, Any], ...], summary: Mapping[str, Any] | None
) -> dict[str, FinalCompletion]:
    label = None if summary is None else summary.get("final")
    name = next((entry["name"] for entry in evaluations if entry["checkpoint"] == label), None)
    path = run.path / "eval" / f"{name}.parquet"
    if name is None or not path.is_file():
        return {}
    rows = read_table(path, EVALUATION_SCHEMA).select(["problem_id", "text", "extracted"]).to_pylist()
    return {row["problem_id"]: FinalCompletion(text=row["text"] or "", extracted=row["extracted"]) for row in rows}


def _distinct_right(run: RunDirectory, evaluations: Sequence[Mapping[str, Any]]) -> dict[str, Estimate]:
    """Return the mean number of different right answers by checkpoint, where some problem has two or more."""
    found: dict[str, Estimate] = {}
    largest = 0
    for entry in evaluations:
        path = run.path / "eval" / "samples" / f"{entry['name']}.parquet"
        confidence = _level(entry)
        if not path.is_file() or confidence is None:
            continue
        answers = right_answers(read_table(path, SAMPLES_SCHEMA))
        largest = max(largest, *map(len, answers.values()), 0)
        estimate = bootstrap_mean([float(len(one)) for one in answers.values()], confidence=confidence)
        if estimate is not None:
            found[str(entry["checkpoint"])] = estimate
    return found if largest > 1 else {}


def _level(evaluation: Mapping[str, Any]) -> float | None:
    level: float | None = evaluation.get("settings", {}).get("eval", {}).get("confidence")
    return level


def _confidence(evaluations: Sequence[Mapping[str, Any]], summary: Mapping[str, Any] | None) -> float | None:
    """The level of the intervals where every part of the run was made with the same; else the page names no level."""
    levels = {_level(evaluation) for evaluation in evaluations}
    if summary is not None:
        levels.add(summary.get("confidence"))
    return levels.pop() if len(levels) == 1 else None
