"""`swerve.evaluate`: the checkpoints of a run, or any models, measured on the same problems."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack, cast

from swerve.artifacts.comparison import Comparison
from swerve.artifacts.output_names import check_output
from swerve.artifacts.run import RUNS, RunDirectory, find_run
from swerve.config.recipe import EvalConfig
from swerve.config.sampling import SampleSettings
from swerve.door.given import is_place, models_of, temporary_folder, working_folder
from swerve.door.keywords import SampleKeywords, temperatures_of
from swerve.door.kinds import kind_of
from swerve.door.sample import asked_settings
from swerve.door.spoken import spoken
from swerve.errors import ConfigError, nearest
from swerve.progress import Progress, shown_progress
from swerve.settings import STAGE_SECTIONS

NUM_SAMPLES = 4
"""Of each problem at each temperature above 0."""


class EvaluateKeywords(SampleKeywords, total=False):
    """Keywords of `swerve.evaluate`: those of `swerve.sample`, and sections of a run's settings."""

    eval: Mapping[str, Any]
    probe: Mapping[str, Any]
    report: Mapping[str, Any]


OF_RUNS = {
    "num_samples": "eval.samples_per_problem",
    "limit": "eval.num_problems",
    **{name: f"eval.{name}" for name in EvalConfig.model_fields},
    "batch": "runtime.max_rows",
    "device": "runtime.device",
    "dtype": "runtime.dtype",
}
"""Keywords of a run -> what its recipe calls them."""


@spoken
def evaluate(
    models: Any,
    problems: Any = None,
    *overrides: Any,
    task: Any = None,
    data: Any = None,
    fields: Mapping[str, str] | None = None,
    rows: Mapping[str, str | Path] | None = None,
    baseline: str | None = None,
    out: str | Path | None = None,
    progress: Progress | bool | None = None,
    **keywords: Unpack[EvaluateKeywords],
) -> Comparison:
    """Measure a run's checkpoints, or any models, on the same problems, greedily and by sampling.

    `evaluate(run)` evaluates every checkpoint of a run on its held-out problems, as `swerve eval RUN` does, and keeps
    the evaluations in the run: `run.evaluations` has them. Those under other settings are moved to
    `eval/earlier-DIGEST`. `evaluate(models, problems)` samples any models on any
    problems, as `swerve eval --model` does.

    Args:
        models: a run, by path, name or as `Run`; or one model, a list of them, or label -> model, as of
            `swerve.sample`.
        problems: as of `swerve.sample`; of a run by default its own held-out problems. Two models may be given one
            after the other, with problems third.
        overrides: of a run alone, such as `"eval.num_problems=100"`.
        task: what the problems are of, or whose are taken; see `swerve.sample`.
        data: another name of `problems`, as in the terminal.
        fields: the problems' fields, where they are called otherwise than `question` and `answer`.
        rows: files of responses to the same problems made elsewhere, or of published accuracies, by name.
        baseline: label of what the others are compared with; by default the first.
        out: the folder of samples and tables of models; interrupted, the same call continues. None: nothing is kept.
        progress: told what is done; None: shown in a terminal or a notebook; True and False: shown or not.
        keywords: those of `swerve.sample`; `num_samples` (4) are taken at each `temperature` above 0 (by default greedy
            and 1). Of a run changes of its settings, such as `num_samples=8` or `eval={"num_problems": 100}`.

    Returns:
        Every measure with its interval, and the differences from the baseline. (Under torchrun other processes than the
        first get None, whatever the annotation says.)

    Raises:
        ConfigError: there is no problem, or a keyword is wrong.
        CheckpointError: there is no such model, or it is damaged.
        ArtifactError: there is no such run, or something cannot be read.

    Example:
        comparison = swerve.evaluate({"base": "owner/base", "tuned": "owner/tuned"}, "problems.jsonl")
        comparison.to_pandas()[["model", "decoding", "accuracy", "accuracy_low", "accuracy_high"]]
    """
    asked = data if problems is None else problems
    if len(overrides) == 1 and kind_of(asked) == "model" and kind_of(overrides[0]) != "model":
        models, asked, overrides = [models, asked], overrides[0], ()  # before and after, as `swerve.probe` has them
    run = run_of(models)
    is_change = isinstance(asked, str) and asked.partition("=")[0].partition(".")[0] in STAGE_SECTIONS
    if is_change or (isinstance(asked, Mapping) and set(asked) <= {*STAGE_SECTIONS}):
        overrides, asked = (asked, *overrides), None
    if asked is None and task is None and (run is not None or overrides or not _is_model(models)):
        return _evaluate_run(models, overrides, keywords, baseline=baseline, progress=shown_progress(progress))
    if overrides and (not isinstance(overrides[0], str) or kind_of(asked) == "model"):
        raise ConfigError("several models are one mapping: swerve.evaluate({'base': ..., 'tuned': ...}, problems)")
    if overrides:
        raise ConfigError(f"{overrides[0]!r:.60} is of a run; models have keywords, such as num_samples=8")
    if run is not None:
        models = {checkpoint.label: checkpoint for checkpoint in run.checkpoints}
    if out is not None:
        check_output(Path(out), folder=True)
    from swerve.eval.evaluate_models import evaluate_models

    temperature = keywords.pop("temperature", None)
    with temporary_folder() as kept, working_folder() as folder:
        place = Path(kept if out is None else out)
        defaults = {"num_samples": NUM_SAMPLES}
        settings = asked_settings(asked, task, keywords, place, fields=fields, defaults=defaults)
        named = models_of(models, folder, is_served=settings.rollout.engine.kind == "openai")
        chosen = _temperatures(temperature, settings if isinstance(asked, SampleSettings) else None)
        comparison = evaluate_models(
            named,
            settings,
            temperatures=dict.fromkeys(named, chosen) if chosen else None,
            rows={name: Path(path) for name, path in (rows or {}).items()},
            baseline=baseline,
            out=place,
            progress=shown_progress(progress),
        )
        return cast("Comparison", comparison)


def _temperatures(given: Any, settings: SampleSettings | None) -> tuple[float, ...]:
    """Return the temperatures that are asked for; empty: the usual ones."""
    if given is None:
        return settings.temperatures if settings is not None and settings.temperatures != (1.0,) else ()
    return tuple(temperatures_of(given))


def run_of(given: Any) -> RunDirectory | None:
    """Return the run that something is, or names."""
    if isinstance(given, RunDirectory):
        return given
    places = (Path(given), RUNS / given) if is_place(given) else ()
    return next((RunDirectory(place) for place in places if os.path.isfile(place / "run.json")), None)


def _is_model(given: Any) -> bool:
    """Whether something is a model, or several, and no name of a run that is not there."""
    if not is_place(given):
        return True
    is_folder = any(os.path.isfile(Path(given) / name) for name in ("config.json", "adapter_config.json"))
    if is_folder:
        raise ConfigError(f"{given} is a model; say on what it is evaluated: problems=, or task= (swerve.tasks())")
    return False


def _evaluate_run(
    run: Any, overrides: Any, changes: Mapping[str, Any], *, baseline: str | None, progress: Progress
) -> Comparison:
    from swerve.artifacts.torchrun import is_main_process
    from swerve.eval import evaluate as evaluate_checkpoints
    from swerve.eval.evaluate_models import compare_checkpoints

    directory = find_run(run)
    known = (*OF_RUNS, *STAGE_SECTIONS)
    unknown = next((name for name in changes if name.partition(".")[0] not in known), None)
    if unknown is not None:
        raise ConfigError(
            f"there is no keyword {unknown!r} of a run{nearest(unknown, known)}; there are {', '.join(known)}, such as "
            "limit=4 or eval={'num_problems': 4}"
        )
    keys = {OF_RUNS.get(name, name): value for name, value in changes.items()}
    evaluate_checkpoints(directory, *overrides, keys, progress=progress)
    return compare_checkpoints(directory, baseline=baseline) if is_main_process() else cast("Comparison", None)
