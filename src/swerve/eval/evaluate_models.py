"""Evaluate any models on the same problems, greedily and by sampling; and the checkpoints of a run in the same form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from swerve.artifacts.comparison import Comparison
from swerve.artifacts.evaluation import Evaluation, read_evaluations
from swerve.artifacts.files import write_text
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.samples import read_samples
from swerve.artifacts.tables import EVALUATION_SCHEMA, SAMPLES_SCHEMA, read_table
from swerve.config.sampling import SampleSettings
from swerve.eval.comparison import FORMATS, Outcomes, ProblemOutcome, compare, outcomes_of
from swerve.eval.sampling import SampleJob, run_jobs
from swerve.progress import Progress

_ENDINGS = {"md": "md", "csv": "csv", "latex": "tex", "json": "json"}
"""Form of the comparison -> ending of its file."""


def evaluate_models(
    models: Mapping[str, Path | str],
    settings: SampleSettings,
    *,
    temperatures: Mapping[str, Sequence[float]] | None = None,
    out: Path,
    progress: Progress | None = None,
) -> Comparison | None:
    """Sample every model on the same problems and compare each with the first.

    The samples are kept in `out/samples`, from which an interrupted evaluation continues, and the comparison is written
    to `out` in every form (`FORMATS`).

    Args:
        models: by label; see `sample`.
        settings: problems, sampling and runtime; `num_samples` is taken at each temperature above 0.
        temperatures: of each model by label; 0: greedy, one sample. A model that is not named has 0 and 1, or 0 alone
            where `num_samples` is 1.
        out: the folder.
        progress: told what is done; None: nobody.

    Returns:
        The comparison; under torchrun None in all processes but the first.

    Raises:
        SwerveError: see `sample`.
    """
    default = (0.0,) if settings.num_samples == 1 else (0.0, 1.0)
    jobs = [
        _job(label, model, settings, temperature, out)
        for label, model in models.items()
        for temperature in (temperatures or {}).get(label, default)
    ]
    if not run_jobs(jobs, progress):
        return None
    comparison = compare([one for job in jobs for one in outcomes_of(read_samples(job.path))])
    for name, form in FORMATS.items():
        write_text(out / f"comparison.{_ENDINGS[name]}", form(comparison))
    return comparison


def _job(label: str, model: Path | str, settings: SampleSettings, temperature: float, out: Path) -> SampleJob:
    count = 1 if temperature == 0 else settings.num_samples
    name = "greedy" if temperature == 0 else f"t{temperature:g}"
    changed = settings.model_copy(update={"temperatures": (temperature,), "num_samples": count})
    return SampleJob(label, model, changed, out / "samples" / f"{label}-{name}.parquet")


def compare_checkpoints(run: RunDirectory) -> Comparison:
    """Return the evaluated checkpoints of a run, each compared with the first.

    Raises:
        ArtifactError: none is evaluated, or a table is damaged.
    """
    return compare([one for evaluation in read_evaluations(run) for one in _checkpoint(run, evaluation)])


def _checkpoint(run: RunDirectory, evaluation: Evaluation) -> list[Outcomes]:
    """Return the greedy outcomes of a checkpoint's evaluation, and the sampled ones."""
    folder, name = run.path / "eval", f"step_{evaluation.step:06d}.parquet"
    greedy = read_table(folder / name, EVALUATION_SCHEMA).to_pylist()
    sampled = read_table(folder / "samples" / name, SAMPLES_SCHEMA).to_pylist()
    kinds = {row["problem_id"]: row["kind"] for row in greedy}
    temperature = (evaluation.settings or {}).get("eval", {}).get("temperature", 1.0)
    return [
        _recorded(evaluation.checkpoint, 0.0, kinds, greedy, round(evaluation.truncated * len(greedy))),
        _recorded(evaluation.checkpoint, temperature, kinds, sampled, None),
    ]


def _recorded(
    label: str, temperature: float, kinds: Mapping[str, str], rows: Sequence[Mapping[str, Any]], truncated: int | None
) -> Outcomes:
    grouped: dict[str, list[Mapping[str, Any]]] = {name: [] for name in kinds}
    for row in rows:
        grouped[row["problem_id"]].append(row)
    return Outcomes(
        model=label,
        temperature=temperature,
        problems={
            name: ProblemOutcome(
                kind=kinds[name],
                right=tuple(row["correct"] for row in group),
                answers=tuple(row["extracted"] for row in group),
            )
            for name, group in grouped.items()
        },
        statuses=Counter(row["status"] for row in rows),
        num_unanswered=sum(not row["answered"] for row in rows),
        num_truncated=truncated,
        num_tokens=sum(len(row["completion_ids"]) for row in rows),
    )
