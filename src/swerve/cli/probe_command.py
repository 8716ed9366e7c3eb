"""`swerve probe`: on a run's own rollouts, or on responses from elsewhere with any models."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from swerve.cli.console import print_result
from swerve.cli.options import Fields, Json, StageOverrides
from swerve.errors import ConfigError

if TYPE_CHECKING:
    from swerve.config import Config
    from swerve.probe.from_responses import ProbeRequest

UseResponses = Annotated[
    Path | None,
    typer.Option(
        "--use-responses",
        metavar="FILE",
        help="Probe these responses: JSON {problem_id: {response, ...}}, JSONL(.gz) or Parquet.",
    ),
]
Reference = Annotated[
    str | None,
    typer.Option(
        "--reference",
        metavar="MODEL",
        help="What checkpoints are compared with: a folder, RUN:LABEL, owner/name#revision, or a label of RUN.",
    ),
]
Checkpoints = Annotated[
    list[str] | None,
    typer.Option("--checkpoint", metavar="[NAME=]MODEL", help="A model to compare; repeatable, in order of training."),
]
Template = Annotated[
    str | None,
    typer.Option(
        "--template",
        metavar="auto|raw",
        help="auto: the tokenizer's chat template around problems, if it has one.  [default: auto]",
    ),
]
Ends = Annotated[
    str | None,
    typer.Option(
        "--ends", metavar="none|eos", help="eos: add the end-of-sequence token to responses.  [default: none]"
    ),
]


def probe(
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Run directory, or its name under runs/.", show_default=False)
    ] = None,
    overrides: StageOverrides = None,
    use_responses: UseResponses = None,
    reference: Reference = None,
    checkpoints: Checkpoints = None,
    baseline: Annotated[
        str | None, typer.Option("--baseline", metavar="MODEL", help="A model from before the reference.")
    ] = None,
    problems: Annotated[
        Path | None,
        typer.Option("--problems", metavar="FILE", help="Problems by id, for responses without a prompt of their own."),
    ] = None,
    fields: Fields = None,
    template: Template = None,
    ends: Ends = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Where to write.  [default: probe-FILE, in RUN if given]"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Find the tokens that training changed, and test whether they matter.

    With RUN alone it reads the run's own rollouts; with --use-responses, responses from elsewhere and any models.
    """
    changes = list(overrides or ())
    if run is not None and "=" in run and not Path(run).exists():
        changes, run = [run, *changes], None
    models = {"reference": reference, "checkpoints": tuple(checkpoints or ()), "baseline": baseline}
    files = {"problems": problems, "fields": tuple(fields or ()), "template": template, "ends": ends, "out": out}
    if use_responses is None:
        _probe_run(run, changes, {**models, **files}, as_json=as_json)
        return

    from swerve.cli.runs import is_main_process, main_progress
    from swerve.cli.summary import probe_lines

    progress = main_progress()
    request = _request(run, changes, use_responses, models, files)
    from swerve.probe.from_responses import probe_responses

    summary = probe_responses(request, progress=progress)
    if is_main_process():
        progress.note(f"tables: {request.out.probe_path}")
        print_result(summary, "\n".join(probe_lines(summary)), as_json=as_json)


def _probe_run(run: str | None, overrides: list[str], options: Mapping[str, Any], *, as_json: bool) -> None:
    from swerve.cli.pipeline import run_probe

    names = {"checkpoints": "--checkpoint", "fields": "--field"}
    for name, value in options.items():
        if value:
            raise ConfigError(
                f"{names.get(name, f'--{name}')} needs --use-responses FILE; a run's own rollouts are probed with the "
                "settings probe.reference, probe.checkpoints and probe.baseline"
            )
    if run is None:
        raise ConfigError(
            "give RUN, whose rollouts are probed, or --use-responses FILE with --reference MODEL and --checkpoint "
            "MODEL; see: swerve probe --help"
        )
    run_probe(run, overrides, as_json=as_json)


def _request(
    run_name: str | None, overrides: list[str], responses: Path, models: Mapping[str, Any], files: Mapping[str, Any]
) -> ProbeRequest:
    from swerve.cli.runs import find_run, load_run_config, resolve_model, set_thread_environment
    from swerve.probe.request import ProbeSettings, choose_models
    from swerve.recipes.loader import load_settings

    run = None if run_name is None else find_run(run_name)
    config = load_settings(ProbeSettings, overrides) if run is None else load_run_config(run, overrides)
    set_thread_environment(cast("Config", config))  # which looks at `runtime` alone
    if run is None:
        _check_models_named(models)
    chosen = choose_models(run, config.probe, **models, resolve=partial(resolve_model, run=run))
    from swerve.probe.from_responses import request_probe

    return request_probe(config, chosen, run=run, responses=responses, **files)


def _check_models_named(models: Mapping[str, Any]) -> None:
    """Raise ConfigError unless reference and checkpoints are named, as they must be where there is no run."""
    given = {"--reference": models["reference"], "--checkpoint": models["checkpoints"]}
    missing = [f"{name} MODEL" for name, value in given.items() if not value]
    if missing:
        raise ConfigError(
            f"--use-responses without RUN needs {' and '.join(missing)}; MODEL is a folder, RUN:LABEL or a name on the "
            "hub"
        )
