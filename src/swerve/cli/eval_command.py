"""`swerve eval`: the checkpoints of a run, or any models, on held-out problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from swerve.cli import sample
from swerve.cli.options import (
    TABLE_FORMATS,
    Baseline,
    EmbeddingModel,
    Fields,
    PartsFrom,
    Result,
    ShardOption,
    check_choice,
    given_settings,
    given_shard,
    out_option,
    with_settings,
)
from swerve.cli.plan import Planning, asked_plan, planned
from swerve.door.keywords import SAMPLING
from swerve.door.kinds import kind_of
from swerve.errors import ArtifactError, ConfigError, UnknownKeyError, nearest

if TYPE_CHECKING:
    from swerve.config.sampling import SampleSettings
    from swerve.recipes.layers import Override

_NUM_SAMPLES = 4


@with_settings("swerve.config.sampling:SampleSettings", SAMPLING | {"num_samples": f"--num-samples N {_NUM_SAMPLES}"})
def evaluate(
    context: typer.Context,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN] [KEY=VALUE]...",
            help="A run, with changes under eval. or runtime.; or models, as with --model, and keys of the "
            "task, such as 'people=[2, 3]'.",
        ),
    ] = None,
    models: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="[NAME=]MODEL",
            help="A folder, RUN:LABEL or owner/name#revision; with rollout.engine.kind=openai the server's name.",
        ),
    ] = None,
    rows: Annotated[
        list[str] | None,
        typer.Option(
            "--rows",
            metavar="[NAME=]FILE",
            help="Responses made elsewhere to the same problems, or published accuracies (columns name, kind, "
            "accuracy); k_and_k: those of the studies of knights and knaves.",
        ),
    ] = None,
    baseline: Baseline = None,
    task: sample.TaskOption = None,
    data: sample.Data = None,
    temperatures: Annotated[
        list[str] | None,
        typer.Option(
            "--temperature",
            metavar="[NAME=]T[,T]",
            help="Temperatures of one model or of all; 0 is greedy.  [default: 0,1]",
        ),
    ] = None,
    embedding_model: EmbeddingModel = None,
    fields: Fields = None,
    form: Annotated[
        str | None, typer.Option("--format", metavar="|".join(TABLE_FORMATS), help="What is printed.  [default: table]")
    ] = None,
    out: Annotated[
        Path | None,
        out_option("Samples, and the table in every format.  [default: eval-TASK]", folder=True),
    ] = None,
    share: ShardOption = None,
    parts_from: PartsFrom = None,
) -> Result | None:
    """Measure a run's checkpoints, or any models, on the same problems.

    Accuracy by kind of problem, pass@k, length, entropy, diversity and more, with intervals and paired differences from
    the baseline. --model takes models without a run, --rows responses and accuracies from elsewhere. After an
    interruption the same command continues.

    Examples:
      swerve eval runs/mine
      swerve eval --model base=models/base --model rl=mine:rl-80 --task gsm8k
    """
    from swerve.behaviours.diversity import load_embedder
    from swerve.cli.hints import is_run

    check_choice("--format", form, TABLE_FORMATS)
    shard = given_shard(context, share, parts_from)
    if shard.is_divided and not models:
        raise ConfigError("only models are sampled in shards: give --model; a run's checkpoint is one, too: RUN:LABEL")
    given = list(arguments or ())
    words, _ = sample.split_arguments(given, task)
    is_of_models = bool(task or data) or any(kind_of(word) == "model" for word in words)
    if models or (is_of_models and not rows and not any(map(is_run, words))):
        # Models need no --model, and a file beside them has their problems.
        beside, data = sample.with_problems_beside(words, data)
        given = [word for word in given if word != data]
        if not models:
            models = [word for word in beside if "=" not in word or kind_of(word.partition("=")[2]) == "model"]
            given = [word for word in given if word not in models]
    embed = load_embedder(embedding_model) if embedding_model is not None and not shard.is_share else None

    # The checkpoints of a run, to which the options of models do not apply.
    if not models and not rows:
        options = {"--task": task, "--data": data, "--out": out, "--field": fields}
        options["--temperature (of a run eval.temperature=T)"] = temperatures
        _check_run_given(given, options)
        changes: list[str | Override] = [*given[1:], *_of_run(given_settings(context))]
        return _evaluate_run(given[0], changes, asked_plan(context), form=form, baseline=baseline, embed=embed)

    # Any models, and how they are sampled on the problems of a task.
    from swerve.config.sampling import SampleSettings

    of_task, files, planning = _keys_of_task(given, task), _row_files(rows or ()), asked_plan(context)
    given_keys = {"num_samples": _NUM_SAMPLES, **given_settings(context)}
    settings = sample.sample_settings(SampleSettings, task, data, of_task, given_keys)
    labelled = sample.resolve_models(models, task, settings, is_planned=planning is not None) if models else {}
    chosen, folder = model_temperatures(temperatures or (), list(labelled)), out or _folder(task, data)
    if planning is not None:
        return _planned_models(labelled, settings, chosen, folder, planning)

    # They are sampled, read beside the files, and compared; None: a shard has done its share.
    from swerve.cli.console import main_progress
    from swerve.eval.evaluate_models import evaluate_models
    from swerve.formats.typed_fields import parse_fields

    progress = main_progress()
    comparison = evaluate_models(
        labelled,
        settings,
        temperatures=chosen,
        rows=files,
        fields=parse_fields(fields or ()),
        baseline=baseline,
        embed=embed,
        out=folder,
        shard=shard,
        progress=progress,
    )
    if comparison is None:
        return None
    progress.note(f"samples and tables: {folder}")
    return Result(comparison, sample.comparison_text(comparison, form or "table"))


def _evaluate_run(
    name: str, changes: Sequence[str | Override], planning: Planning | None, *, form: str | None, **compared: Any
) -> Result:
    """Evaluate the checkpoints of a run, or say what that takes; `compared`: see `run_eval`."""
    from swerve.cli.pipeline import run_eval

    if planning is None:
        is_table = any(value is not None for value in compared.values())
        return run_eval(name, changes, form=form or ("table" if is_table else None), **compared)
    from swerve.artifacts.run import find_run
    from swerve.plan.sampling import run_evaluation_budget
    from swerve.recipes.loader import load_run_config

    run = find_run(name)
    return planned(run_evaluation_budget(load_run_config(run, changes), run, **planning._asdict()))


def _keys_of_task(given: Sequence[str], task: str | None) -> list[str]:
    """Return the arguments that are keys of the task.

    Raises:
        UnknownKeyError: one is something else.
    """
    others, of_task = sample.split_arguments(given, task)
    if others:
        said = (
            f"{others[0]!r} is no key of the task; models are given with --model, files of responses with --rows, a "
            "run without either"
        )
        raise UnknownKeyError(said, word=others[0], bare=said)
    return of_task


def _planned_models(
    models: Mapping[str, Path | str],
    settings: SampleSettings,
    temperatures: Mapping[str, tuple[float, ...]],
    folder: Path,
    planning: Planning,
) -> Result:
    """Say what the evaluation of models takes."""
    from swerve.plan.sampling import counted_problems, samples_budget

    default = (0.0,) if settings.num_samples == 1 else (0.0, 1.0)
    nums = [1 if not t else settings.num_samples for name in models for t in temperatures.get(name, default)]
    problems, number = counted_problems(settings)
    return planned(
        samples_budget(
            "eval", models, settings, problems,
            num_problems=number, num_samples=nums, place=folder, **planning._asdict(),
        )
    )  # fmt: skip


def _folder(task: str | None, data: str | None) -> Path:
    """Return where an evaluation goes by default."""
    return Path(f"eval-{Path(data or task or '').stem}")


def _check_run_given(arguments: Sequence[str], options: Mapping[str, object]) -> None:
    """Check that a run is given, and no option that is of models alone.

    Raises:
        ConfigError: there is no run, or an option has a value.
    """
    named = next((name for name, value in options.items() if value is not None), None)
    if named or not arguments:
        what = f"{named} needs --model MODEL" if named else "nothing is given to evaluate"
        raise ConfigError(f"{what}; give a run (swerve eval RUN), or models (swerve eval --model MODEL --task TASK)")


def _of_run(options: Mapping[str, Override]) -> list[Override]:
    """Return options of settings as changes of a run's.

    Raises:
        ConfigError: a run has no such setting, as it is its recipe's.
    """
    from swerve.door.evaluate import OF_RUNS

    changes = []
    for key, option in options.items():
        name = OF_RUNS.get(key, key)
        if name == key and not key.startswith("runtime."):
            raise ConfigError(f"{option.text} needs --model MODEL; a run is evaluated as its recipe says")
        changes.append(replace(option, keys=tuple(name.split("."))))
    return changes


def _row_files(options: Sequence[str]) -> dict[str, Path]:
    """Return the files of `[NAME=]FILE` options by name; without one it is the file's, or that of a shipped table.

    Raises:
        ConfigError: two have one name.
        ArtifactError: there is no such file.
    """
    from swerve.eval.foreign_rows import SHIPPED

    files: dict[str, Path] = {}
    for option in options:
        # A file is taken for what it is called, else for what stands after the name, else for a published table.
        name, _, place = option.partition("=")
        if not place or Path(option).exists():
            name, place = "", option
        path, shipped = Path(place), SHIPPED / f"{option}.csv"
        path = shipped if not path.exists() and shipped.is_file() else path
        if not path.exists():
            raise ArtifactError(
                f"--rows {option}: {path} does not exist; give a file of responses or accuracies, or a published table "
                f"({', '.join(sorted(table.stem for table in SHIPPED.iterdir()))})"
            )
        label = name or path.name.partition(".")[0]
        if label in files:
            raise ConfigError(f"two rows are called '{label}'; give them names, as in --rows late={path}")
        files[label] = path
    return files


def model_temperatures(options: Sequence[str], labels: Sequence[str]) -> dict[str, tuple[float, ...]]:
    """Return the temperatures of each model from `[NAME=]T[,T]` options; one without a name is for all others.

    Raises:
        ConfigError: there is no such model, or a temperature is not a number of at least 0.

    >>> model_temperatures(["base=0", "0,1"], ["base", "rl"])
    {'base': (0.0,), 'rl': (0.0, 1.0)}
    """
    # Those that are given with a model's name come before those of all.
    common: tuple[float, ...] = ()
    own: dict[str, tuple[float, ...]] = {}
    for option in options:
        label, equals, text = option.rpartition("=")
        if equals and label not in labels:
            raise ConfigError(
                f"--temperature {option!r}: no model is called '{label}'{nearest(label, labels)}; there are "
                f"{', '.join(labels)}"
            )
        if equals:
            own[label] = own.get(label, ()) + sample.parse_temperatures(text)
        else:
            common += sample.parse_temperatures(text)
    chosen = {label: own.get(label, common) for label in labels}
    return {label: tuple(dict.fromkeys(temperatures)) for label, temperatures in chosen.items() if temperatures}
