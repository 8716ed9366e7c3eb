"""`swerve eval`: the checkpoints of a run, or any models, on held-out problems."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from swerve.cli import sample
from swerve.cli.console import print_text
from swerve.cli.options import TABLE_FORMATS, Json, check_format
from swerve.errors import ConfigError, nearest

_NUM_SAMPLES = 4


def evaluate(
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
            help="A folder, RUN:LABEL, owner/name#revision; the first is the baseline.",
        ),
    ] = None,
    task: sample.TaskOption = None,
    data: sample.Data = None,
    split: sample.SplitOption = "heldout",
    limit: sample.Limit = None,
    temperatures: Annotated[
        list[str] | None,
        typer.Option("--temperature", metavar="[NAME=]T[,T]", help="0: greedy.  [default: 0,1]"),
    ] = None,
    num_samples: Annotated[
        int | None,
        typer.Option("--num-samples", metavar="N", min=1, help="Samples per problem above 0.  [default: 4]"),
    ] = None,
    max_new_tokens: sample.MaxNewTokens = None,
    seed: sample.Seed = 0,
    batch: sample.Batch = 64,
    system: sample.System = None,
    template_args: sample.TemplateArgs = None,
    today: sample.Today = None,
    form: Annotated[
        str | None, typer.Option("--format", metavar="|".join(TABLE_FORMATS), help="What is printed.  [default: table]")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Samples, and the table in every format.  [default: eval-TASK]"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure models on the same problems: the checkpoints of a run, or any models (--model), without a run.

    Accuracy by kind of problem, pass@k and differences from the first model, with intervals. Interrupted, the same
    command continues.
    """
    from swerve.cli.runs import is_main_process, main_progress

    check_format(form)
    given = list(arguments or ())
    if not models:
        # The checkpoints of a run, to which the options of models do not apply.
        from swerve.cli.pipeline import run_eval

        options = {"--task": task, "--data": data, "--out": out}
        named = next((name for name, value in options.items() if value is not None), None)
        if named or not given:
            what = f"{named} needs --model MODEL" if named else "nothing is given to evaluate"
            remedy = "give a run (swerve eval RUN), or models (swerve eval --model MODEL --task TASK)"
            raise ConfigError(f"{what}; {remedy}")
        run_eval(given[0], given[1:], form=form, as_json=as_json)
        return

    # Any models, on the problems of a task.
    others, changes = sample.split_arguments(given, task)
    if others:
        raise ConfigError(f"{others[0]!r} is no key of the task; models are given with --model, a run without it")
    labelled = sample.resolve_models(models, task)
    settings = sample.sample_settings(
        task,
        data,
        changes,
        split=split,
        limit=limit,
        num_samples=num_samples or _NUM_SAMPLES,
        max_new_tokens=max_new_tokens,
        seed=seed,
        batch=batch,
        system=system,
        template_args=template_args or (),
        date=today,
    )
    chosen = model_temperatures(temperatures or (), list(labelled))
    from swerve.eval.evaluate_models import evaluate_models

    folder, progress = out or Path(f"eval-{Path(task or data or '').stem}"), main_progress()
    comparison = evaluate_models(labelled, settings, temperatures=chosen, out=folder, progress=progress)
    if comparison is not None and is_main_process():
        progress.note(f"samples and tables: {folder}")
        print_text(sample.comparison_text(comparison, "json" if as_json else form or "table"))


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
