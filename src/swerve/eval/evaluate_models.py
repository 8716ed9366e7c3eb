"""Evaluate any models on the same problems, greedily and by sampling; and the checkpoints of a run in the same form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from swerve.artifacts.comparison import Comparison
from swerve.artifacts.evaluation import read_evaluations
from swerve.artifacts.files import write_text
from swerve.artifacts.responses import EVALUATION_SCHEMA, read_responses
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.samples import read_samples
from swerve.behaviours.measures import OF_PROSE
from swerve.config.sampling import SampleSettings
from swerve.eval.comparison import compare
from swerve.eval.sampling import SampleJob, run_jobs
from swerve.formats.comparison_table import FORMATS
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
    # One file for each model and temperature.
    jobs = []
    for label, model in models.items():
        for temperature in (temperatures or {}).get(label, default):
            num, name = (1, "greedy") if temperature == 0 else (settings.num_samples, f"t{temperature:g}")
            own = settings.model_copy(update={"temperatures": (temperature,), "num_samples": num})
            jobs.append(SampleJob(label, model, own, out / "samples" / f"{label}-{name}.parquet"))
    if not run_jobs(jobs, progress):
        return None
    comparison = compare([read_samples(job.path).samples for job in jobs])
    for name, form in FORMATS.items():
        write_text(out / f"comparison.{_ENDINGS[name]}", form(comparison))
    return comparison


def compare_checkpoints(run: RunDirectory) -> Comparison:
    """Return the evaluated checkpoints of a run, each compared with the first.

    Raises:
        ArtifactError: none is evaluated, or a table is damaged.
    """
    checkpoints, evaluations = [], read_evaluations(run)
    for evaluation in evaluations:
        responses = read_responses(run.path / "eval" / f"{evaluation.file_name}.parquet", EVALUATION_SCHEMA)
        checkpoints.append([replace(response, label=evaluation.checkpoint) for response in responses])
    is_prose = any(evaluation.greedy.reflections for evaluation in evaluations)
    return compare(checkpoints, leave_out=() if is_prose else OF_PROSE)
