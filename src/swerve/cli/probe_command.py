"""`swerve probe`: on a run's own rollouts, or on responses from elsewhere with any models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from swerve.cli.console import print_result
from swerve.cli.options import Fields, Json, StageOverrides
from swerve.errors import ConfigError, nearest

if TYPE_CHECKING:
    from swerve.config import Config
    from swerve.probe.request import SampleFiles
    from swerve.probe.response_request import ProbeRequest

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
Select = Annotated[
    str | None,
    typer.Option(
        "--select",
        metavar="NAME",
        help="Choose the reference's rollouts from two files of samples: reference_wrong_final_right, "
        "reference_right_final_right, reference_wrong_final_wrong, reference_right_final_wrong or all.",
    ),
]
ReferenceSamples = Annotated[
    Path | None,
    typer.Option("--reference-samples", metavar="FILE", help="Samples of the reference (swerve sample), or responses."),
]
FinalSamples = Annotated[
    Path | None,
    typer.Option("--final-samples", metavar="FILE", help="Samples of the last checkpoint on the same problems."),
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        metavar="KEY=VALUES",
        help="With --select, only these problems or lengths: level=3,4, subject=Algebra, kind=..., length=100..500.",
    ),
]
Task = Annotated[
    str | None,
    typer.Option(
        "--task",
        metavar="KIND",
        help="Grade responses and causal tests by this task's grader: math, gsm8k, ... (swerve data list). KEY=VALUE "
        "may then be keys of the task, such as grading.extraction=hash.  [default: the graders that problems name]",
    ),
]
Ends = Annotated[
    str | None,
    typer.Option(
        "--ends",
        metavar="none|eos",
        help="eos: add the token that ends a turn, or a sequence, to responses.  [default: none]",
    ),
]


def probe(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN|RECIPE]",
            help="Run directory, or its name under runs/; or the name or file of a recipe of a probe.",
            show_default=False,
        ),
    ] = None,
    overrides: StageOverrides = None,
    use_responses: UseResponses = None,
    select: Select = None,
    reference_samples: ReferenceSamples = None,
    final_samples: FinalSamples = None,
    where: Where = None,
    reference: Reference = None,
    checkpoints: Checkpoints = None,
    baseline: Annotated[
        str | None, typer.Option("--baseline", metavar="MODEL", help="A model from before the reference.")
    ] = None,
    problems: Annotated[
        Path | None,
        typer.Option("--problems", metavar="FILE", help="Problems by id, for responses without a prompt of their own."),
    ] = None,
    task: Task = None,
    fields: Fields = None,
    template: Template = None,
    ends: Ends = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Where to write.  [default: probe-FILE, in RUN if given]"),
    ] = None,
    steps: Annotated[
        str | None,
        typer.Option(
            "--steps",
            metavar="STEP[,STEP]...",
            help="With RECIPE, only these: prepare, sample, divergence, analysis, figures, report.  [default: all]",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Find the tokens that training changed, and test whether they matter.

    With RUN alone it reads the run's own rollouts; with --use-responses, responses from elsewhere and any models; with
    --select, rollouts chosen from samples of two models. A recipe says all of it, and what is done is not done again.
    """
    changes = list(overrides or ())
    if run is not None and "=" in run and not Path(run).exists():
        changes, run = [run, *changes], None
    models = {"reference": reference, "checkpoints": tuple(checkpoints or ()), "baseline": baseline}
    files = {"problems": problems, "fields": tuple(fields or ()), "template": template, "ends": ends, "out": out}
    if run is not None and is_probe_recipe(run):
        given = {**models, **files, "use_responses": use_responses, "select": select, "where": where, "task": task}
        given |= {"reference_samples": reference_samples, "final_samples": final_samples}
        _check_said_by_file(run, given)
        from swerve.cli.probe_recipe import run_probe_recipe

        run_probe_recipe(run, changes, steps=steps, as_json=as_json)
        return
    if steps is not None:
        raise ConfigError("--steps needs a recipe; a probe of a run or of options is one step, continued where it was")
    samples = _samples(select, reference_samples, final_samples, where or ())
    if samples is not None and use_responses is not None:
        raise ConfigError("--use-responses reads every response of a file, --select chooses from samples; give one")
    if use_responses is None and samples is None:
        _probe_run(run, changes, {**models, **files, "task": task}, as_json=as_json)
        return
    if task is not None:
        if run is not None:
            raise ConfigError(f"--task: the responses are graded by the task of {run}; leave out --task or RUN")
        changes = _with_task(task, changes)

    from swerve.cli.runs import is_main_process, main_progress
    from swerve.cli.summary import probe_lines

    progress = main_progress()
    request = _request(run, changes, models, {"responses": use_responses, "samples": samples, **files})
    from swerve.probe.from_responses import probe_responses

    summary = probe_responses(request, progress=progress)
    if is_main_process():
        progress.note(f"tables: {request.out.probe_path}")
        print_result(summary, "\n".join(probe_lines(summary)), as_json=as_json)


def is_probe_recipe(source: str) -> bool:
    """Whether an argument is a recipe of a probe, and not a run."""
    from swerve.recipes.files import shipped_recipes

    return Path(source).suffix in (".yaml", ".yml") or source in shipped_recipes("probe")


def _check_said_by_file(file: str, options: Mapping[str, Any]) -> None:
    """Raise ConfigError if an option is given that the file has to say."""
    for name, value in options.items():
        if value:
            option = {"checkpoints": "--checkpoint", "fields": "--field"}.get(name, f"--{name.replace('_', '-')}")
            raise ConfigError(f"{option}: {file} says it; change it there, or with KEY=VALUE (out=DIR, seed=1)")


def _samples(
    select: str | None, reference: Path | None, final: Path | None, where: Sequence[str]
) -> SampleFiles | None:
    """Return the files of `--select`; None where nothing is to be selected."""
    from swerve.probe.request import SELECTIONS, SampleFiles

    if reference is None and final is None and select is None and not where:
        return None
    if reference is None or final is None:
        missing = [
            name for name, value in (("--reference-samples", reference), ("--final-samples", final)) if not value
        ]
        raise ConfigError(f"--select needs {' and '.join(f'{name} FILE' for name in missing)}")
    name = next((one for one in SELECTIONS if one == (select or "reference_wrong_final_right")), None)
    if name is None:
        raise ConfigError(
            f"--select '{select}' is not known{nearest(str(select), SELECTIONS)} ({', '.join(SELECTIONS)})"
        )
    return SampleFiles(reference=reference, final=final, selection=name, where=tuple(where))


def _probe_run(run: str | None, overrides: list[str], options: Mapping[str, Any], *, as_json: bool) -> None:
    from swerve.cli.pipeline import run_probe

    names = {"checkpoints": "--checkpoint", "fields": "--field"}
    for name, value in options.items():
        if value:
            raise ConfigError(
                f"{names.get(name, f'--{name}')} needs --use-responses FILE or --select; a run's own rollouts "
                "are probed with the settings probe.reference, probe.checkpoints and probe.baseline"
            )
    if run is None:
        raise ConfigError(
            "give RUN, whose rollouts are probed, or --use-responses FILE (or --select) with --reference MODEL and "
            "--checkpoint MODEL; see: swerve probe --help"
        )
    run_probe(run, overrides, as_json=as_json)


def _with_task(task: str, overrides: list[str]) -> list[str]:
    """Return the overrides with the task, and under it those that are no keys of a probe's settings."""
    from swerve.probe.request import ProbeSettings

    def is_setting(override: str) -> bool:
        return override.partition("=")[0].split(".")[0].strip() in ProbeSettings.model_fields

    return [f"task={task}", *(one if is_setting(one) else f"task.{one}" for one in overrides)]


def _request(
    run_name: str | None, overrides: list[str], models: Mapping[str, Any], files: Mapping[str, Any]
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
    from swerve.probe.response_request import request_probe

    return request_probe(config, chosen, run=run, **files)


def _check_models_named(models: Mapping[str, Any]) -> None:
    """Raise ConfigError unless reference and checkpoints are named, as they must be where there is no run."""
    given = {"--reference": models["reference"], "--checkpoint": models["checkpoints"]}
    missing = [f"{name} MODEL" for name, value in given.items() if not value]
    if missing:
        raise ConfigError(
            f"without RUN {' and '.join(missing)} must be given; MODEL is a folder, RUN:LABEL or a name on the hub"
        )
