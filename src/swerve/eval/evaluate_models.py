"""Evaluate any models on the same problems, greedily and by sampling; and the checkpoints of a run in the same form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from swerve.artifacts.comparison import Comparison
from swerve.artifacts.evaluation import Evaluation, read_evaluations
from swerve.artifacts.files import write_text
from swerve.artifacts.response_columns import EVALUATION_SCHEMA
from swerve.artifacts.responses import Response, iter_response_table
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.samples import StoredSamples
from swerve.artifacts.shards import WHOLE, Shard
from swerve.behaviours.diversity import Embedder
from swerve.behaviours.measures import OF_PROSE
from swerve.config.sampling import SampleJob, SampleSettings
from swerve.errors import ConfigError
from swerve.eval.comparison import check_baseline, compare
from swerve.eval.foreign_rows import read_rows
from swerve.eval.sampling import chosen_problems, sample_jobs
from swerve.formats.comparison_table import FORMATS
from swerve.problems import load_family
from swerve.progress import Progress, SilentProgress


def evaluate_models(
    models: Mapping[str, Path | str],
    settings: SampleSettings,
    *,
    temperatures: Mapping[str, Sequence[float]] | None = None,
    rows: Mapping[str, Path] | None = None,
    fields: Mapping[str, str] | None = None,
    baseline: str | None = None,
    embed: Embedder | None = None,
    out: str | Path,
    shard: Shard = WHOLE,
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
        rows: files of responses made elsewhere, by name, or of published accuracies; see `read_rows`.
        fields: names of their fields where they differ from those known.
        baseline: label of the model or row that the others are compared with; by default the first.
        embed: texts -> vectors (`load_embedder`), for the similarity of embeddings.
        out: the folder.
        shard: whose share is sampled, and nothing compared; see `sample`.
        progress: told what is done; None: nobody.

    Returns:
        The comparison; None of a shard, and under torchrun in all processes but the first.

    Raises:
        ConfigError: two rows have one name, or none is called like the baseline.
        SwerveError: see `sample` and `read_rows`.
    """
    # What was made elsewhere is read first: what is wrong with it is said before anything is sampled.
    shown, out = progress or SilentProgress(), Path(out)
    problems = chosen_problems(settings, shown)
    foreign = [read_rows(name, path, problems, shown, fields=fields) for name, path in (rows or {}).items()]
    comparable = [*models, *(label for each in foreign for label in each.labels)]
    names = [*comparable, *(row.name for each in foreign for row in each.published)]
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise ConfigError(f"two rows are called '{twice}'; give them names, as in --rows late=FILE")
    if not comparable:
        raise ConfigError("published accuracies stand beside models or responses; give one with --model or --rows")
    check_baseline(baseline, comparable)

    # One file for each model and temperature.
    default = (0.0,) if settings.num_samples == 1 else (0.0, 1.0)
    jobs = []
    for label, model in models.items():
        for temperature in (temperatures or {}).get(label, default):
            num, name = (1, "greedy") if temperature == 0 else (settings.num_samples, f"t{temperature:g}")
            own = settings.model_copy(update={"temperatures": (temperature,), "num_samples": num})
            jobs.append(SampleJob(label, model, own, out / "samples" / f"{label}-{name}.parquet"))
    if jobs and not sample_jobs(jobs, progress, problems=problems, shard=shard):
        return None
    if not all(job.path.exists() for job in jobs):
        return None
    comparison = compare(
        [
            *(StoredSamples(job.path).samples for job in jobs),
            *(responses for each in foreign for responses in each.graded(shown)),
        ],
        baseline=baseline,
        published=[row for each in foreign for row in each.published],
        leave_out=() if load_family(settings.task).is_prose else OF_PROSE,
        embed=embed,
    )
    for name, form in FORMATS.items():
        write_text(out / f"comparison.{'tex' if name == 'latex' else name}", form(comparison))
    return comparison


def compare_checkpoints(run: RunDirectory, *, baseline: str | None = None, embed: Embedder | None = None) -> Comparison:
    """Return the evaluated checkpoints of a run, each compared with the first.

    Args:
        run: with evaluations.
        baseline: label of another checkpoint to compare with.
        embed: texts -> vectors (`load_embedder`), for the similarity of embeddings.

    Raises:
        ArtifactError: none is evaluated, or a table is damaged.
        ConfigError: no checkpoint is called like the baseline.
    """
    evaluations = read_evaluations(run)

    def responses_of(evaluation: Evaluation) -> list[Response]:
        table = run.path / "eval" / f"{evaluation.file_name}.parquet"
        return [replace(each, label=evaluation.checkpoint) for each in iter_response_table(table, EVALUATION_SCHEMA)]

    checkpoints = map(responses_of, evaluations)  # one is held
    is_prose = any(evaluation.greedy.reflections for evaluation in evaluations)
    return compare(checkpoints, baseline=baseline, leave_out=() if is_prose else OF_PROSE, embed=embed)
