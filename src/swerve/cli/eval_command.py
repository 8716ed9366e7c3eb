"""`swerve eval`: the checkpoints of a run, or any models, on held-out problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

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
    with_settings,
)
from swerve.errors import ArtifactError, ConfigError, nearest

_NUM_SAMPLES = 4


@with_settings(
    "swerve.config.sampling:SampleSettings", sample.SAMPLING | {"num_samples": f"--num-samples N {_NUM_SAMPLES}"}
)
def evaluate(
    context: typer.Context,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN] [KEY=VALUE]...",
            help="A run, with changes under eval. or runtime.; with --model keys of the task, such as 'people=[2, 3]'.",
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
        typer.Option("--out", metavar="DIR", help="Samples, and the table in every format.  [default: eval-TASK]"),
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
    from swerve.cli.runs import main_progress

    check_choice("--format", form, TABLE_FORMATS)
    shard = given_shard(context, share, parts_from)
    if shard.is_divided and not models:
        raise ConfigError("only models are sampled in shards: give --model; a run's checkpoint is one, too: RUN:LABEL")
    given = list(arguments or ())
    embed = load_embedder(embedding_model) if embedding_model is not None and not shard.is_share else None

    # The checkpoints of a run, to which the options of models do not apply.
    if not models and not rows:
        _check_run_given(given, {"--task": task, "--data": data, "--out": out})
        from swerve.cli.pipeline import run_eval

        compared = form or ("table" if baseline or embed else None)
        return run_eval(given[0], given[1:], form=compared, baseline=baseline, embed=embed)

    # Any models, and how they are sampled on the problems of a task.
    from swerve.config.sampling import SampleSettings

    others, changes = sample.split_arguments(given, task)
    if others:
        raise ConfigError(
            f"{others[0]!r} is no key of the task; models are given with --model, files of responses with --rows, a "
            "run without either"
        )
    files = _row_files(rows or ())
    given_keys = {"num_samples": _NUM_SAMPLES, **given_settings(context)}
    settings = sample.sample_settings(SampleSettings, task, data, changes, given_keys)
    labelled = sample.resolve_models(models, task, settings) if models else {}
    chosen = model_temperatures(temperatures or (), list(labelled))

    # They are sampled, read beside the files, and compared; None: a shard has done its share.
    from swerve.eval.evaluate_models import evaluate_models
    from swerve.formats.typed_fields import parse_fields

    folder, progress = out or Path(f"eval-{Path(task or data or '').stem}"), main_progress()
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


def _check_run_given(arguments: Sequence[str], options: Mapping[str, object]) -> None:
    """Check that a run is given, and no option that is of models alone.

    Raises:
        ConfigError: there is no run, or an option has a value.
    """
    named = next((name for name, value in options.items() if value is not None), None)
    if named or not arguments:
        what = f"{named} needs --model MODEL" if named else "nothing is given to evaluate"
        raise ConfigError(f"{what}; give a run (swerve eval RUN), or models (swerve eval --model MODEL --task TASK)")


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
