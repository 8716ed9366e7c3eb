"""Sample and grade completions of any models on any task, without a run; interrupted, it continues to the same bytes.

Free of torch, which is loaded once models and problems are there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from swerve.artifacts.run import RunDirectory
from swerve.artifacts.shards import WHOLE, Shard
from swerve.config.engines import OpenAIEngineConfig
from swerve.config.sampling import SampleJob, SampleSettings
from swerve.errors import ConfigError, SwerveError
from swerve.models.folder_texts import check_asked
from swerve.models.hub import local_folder
from swerve.models.runtime import apply_runtime
from swerve.problems import load_family
from swerve.problems.reading import DataTask
from swerve.problems.table import TableTask
from swerve.progress import Progress, SilentProgress, tell
from swerve.recipes.loader import load_config
from swerve.rewards.checks import check_graders
from swerve.seeds import derive_seed
from swerve.types import Problem

_USUAL = "math"
"""Grader of rows that name none."""


def sample(
    models: Mapping[str, Path | str],
    settings: SampleSettings,
    *,
    out: str | Path,
    shard: Shard = WHOLE,
    progress: Progress | None = None,
) -> dict[str, Path]:
    """Sample and grade completions of each model on the same problems; return each model's file by label.

    Every model is checked before the first is loaded: its configuration, tokenizer, prompts and positions, and what is
    at its place already. A file that holds these samples is left alone; an interrupted one is continued.

    Args:
        models: by label; each is a folder in the Hugging Face layout, `owner/name` with an optional `#revision`, or
            with an engine of the kind `openai` the server's name for it.
        settings: problems, sampling and runtime.
        out: the file (`.parquet`) of one model; else the folder of the files `LABEL.parquet`.
        shard: whose share is done, and left as parts beside the places of the files; by default these are written.
        progress: told what is done; None: nobody.

    Raises:
        ConfigError: there is no problem, a prompt is too long for a model, or what is at `out` has other settings.
        CheckpointError: there is no such model, or it is damaged.
        ArtifactError: the problems cannot be read, or another process works at `out`.
        EngineError: a server does not answer, or wrongly; what came is kept and continued from.
        DiskFullError: no room; what was sampled is kept and continued from.
    """
    paths = sample_paths(Path(out), list(models))
    jobs = [SampleJob(label, model, settings, paths[label]) for label, model in models.items()]
    sample_jobs(jobs, progress, shard=shard)
    return paths


def sample_jobs(
    jobs: Sequence[SampleJob],
    progress: Progress | None = None,
    *,
    problems: Sequence[Problem] | None = None,
    shard: Shard = WHOLE,
) -> bool:
    """Write the files of jobs, all on the first job's problems and runtime; see `sample`.

    Args:
        jobs: what is written.
        progress: told what is done; None: nobody.
        problems: those that the settings choose, where they are known already.
        shard: see `sample`.

    Returns:
        Whether this is the only process, or the first of several.
    """
    # A model that is not there is told before problems are fetched.
    shown, first = progress or SilentProgress(), jobs[0].settings
    apply_runtime(first.runtime)
    if not isinstance(first.rollout.engine, OpenAIEngineConfig):
        for path in dict.fromkeys(job.model for job in jobs):
            local_folder(path)
    problems = chosen_problems(first, shown) if problems is None else problems
    if not isinstance(first.rollout.engine, OpenAIEngineConfig):
        check_asked({job.label: local_folder(job.model) for job in jobs}, problems, first.max_new_tokens)
    if note := _trained_on_another(jobs, problems):
        tell(shown, note)
    from swerve.eval.sample_files import write_files

    return write_files(jobs, problems, shown, shard=shard)


def _trained_on_another(jobs: Sequence[SampleJob], problems: Sequence[Problem]) -> str | None:
    """Return what to say where rows of no task are asked of a model whose run has one that makes its own problems."""
    task = jobs[0].settings.task
    if not isinstance(task, TableTask) or task.grader is not None or {one.grader for one in problems} != {_USUAL}:
        return None
    for job in jobs:
        run = RunDirectory(Path(job.model).resolve().parent.parent)
        if not run.config_path.is_file():
            continue
        with suppress(SwerveError):  # a run that cannot be read says nothing
            trained = load_config(run).task
            if not isinstance(trained, DataTask):
                kind = trained.kind
                return (
                    f"{job.label} was trained on {kind}; these problems are asked as those of no task and graded by "
                    f"{_USUAL}, unless the task {kind} is named beside them"
                )
    return None


def chosen_problems(settings: SampleSettings, progress: Progress) -> list[Problem]:
    """Return the problems that settings name, with the system message they name; what was left out is noted.

    Raises:
        ConfigError: no problem is left, two have one id, the task cannot be read, or a grader is unknown or refuses
            its policies.
    """
    family = load_family(settings.task)
    problems = family.problems(settings.split, seed=derive_seed(settings.problem_seed, "problems"))
    if not problems:
        raise ConfigError(f"task '{settings.task.kind}' has no {settings.split} problems; choose others")
    if settings.limit is not None and settings.limit > len(problems):
        raise ConfigError(f"there are {len(problems)} {settings.split} problems, fewer than --limit {settings.limit}")
    problems = problems[: settings.limit]
    seen: set[str] = set()
    for problem in problems:
        if problem.id in seen:
            raise ConfigError(f"two problems have the id {problem.id!r}; a sample is known by it: choose others")
        seen.add(problem.id)
    check_graders(problems)
    other = "train: " if settings.split == "heldout" else "heldout: "
    for note in family.notes():
        if not note.startswith(other):  # of problems that are not sampled
            tell(progress, note)
    if settings.system is None:
        return problems
    # The settings' system message comes before the others; an empty one stands for none.
    system = (("system", settings.system),) if settings.system else ()
    changed = []
    for problem in problems:
        messages = problem.messages or (("user", problem.question),)
        others = tuple(message for message in messages if message[0] != "system")
        changed.append(replace(problem, messages=(*system, *others)))
    return changed


def sample_paths(out: Path, labels: Sequence[str]) -> dict[str, Path]:
    """Return the file of each model's samples.

    Raises:
        ConfigError: `out` is one file for several models, or a file where a folder is needed.
    """
    if out.suffix == ".parquet" and not out.is_dir():
        if len(labels) > 1:
            raise ConfigError(
                f"--out {out} is one file for {len(labels)} models; give a folder, in which each model has its own file"
            )
        return {labels[0]: out}
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out} is neither a folder nor a name that ends in .parquet")
    return {label: out / f"{label}.parquet" for label in labels}
