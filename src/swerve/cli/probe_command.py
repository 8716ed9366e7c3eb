"""`swerve probe`: on a run's own rollouts, or on responses from elsewhere with any models."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from swerve.cli.console import print_result
from swerve.cli.options import Fields, Json, StageOverrides
from swerve.errors import ConfigError

if TYPE_CHECKING:
    from swerve.artifacts.run import RunDirectory
    from swerve.config import Config

_OPTIONS = {
    "responses": "--use-responses",
    "select": "--select",
    "samples.reference": "--reference-samples",
    "samples.final": "--final-samples",
    "where": "--where",
    "reference": "--reference",
    "checkpoints": "--checkpoint",
    "baseline": "--baseline",
    "problems": "--problems",
    "task": "--task",
    "fields": "--field",
    "template": "--template",
    "ends": "--ends",
    "out": "--out",
}
"""Key of a recipe -> the option that says it, in the order of the command's arguments."""
_SELECTING = ("select", "samples.reference", "samples.final", "where")

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
    # A change may stand where RUN does; options that are given are keys of a recipe.
    changes = list(overrides or ())
    if run is not None and "=" in run and not Path(run).exists():
        changes, run = [run, *changes], None
    models = (reference, checkpoints, baseline)
    values = (use_responses, select, reference_samples, final_samples, where, *models, problems, task, fields)
    given: dict[str, Any] = {
        key: value for key, value in zip(_OPTIONS, (*values, template, ends, out), strict=True) if value
    }
    first_option = next((_OPTIONS[key] for key in given), None)

    # A recipe says it all; else files, or the run's own rollouts.
    if run is not None and is_probe_recipe(run):
        if first_option is not None:
            raise ConfigError(f"{first_option}: {run} says it; change it there, or with KEY=VALUE (out=DIR, seed=1)")
        from swerve.cli.probe_recipe import run_probe_recipe

        run_probe_recipe(run, changes, steps=steps, as_json=as_json)
        return
    if steps is not None:
        raise ConfigError("--steps needs a recipe; a probe of a run or of options is one step, continued where it was")
    if given.keys() & {"responses", *_SELECTING}:
        _probe_files(run, changes, given, as_json=as_json)
        return
    if first_option is not None:
        raise ConfigError(
            f"{first_option} needs --use-responses FILE or --select; a run's own rollouts are probed with the settings "
            "probe.reference, probe.checkpoints and probe.baseline"
        )
    if run is None:
        raise ConfigError(
            "give RUN, whose rollouts are probed, or --use-responses FILE (or --select) with --reference MODEL and "
            "--checkpoint MODEL; see: swerve probe --help"
        )
    from swerve.cli.pipeline import run_probe

    run_probe(run, changes, as_json=as_json)


def is_probe_recipe(source: str) -> bool:
    """Whether an argument is a recipe of a probe, and not a run."""
    from swerve.recipes.files import shipped_recipes

    return Path(source).suffix in (".yaml", ".yml") or source in shipped_recipes("probe")


def _probe_files(run_name: str | None, changes: list[str], given: dict[str, Any], *, as_json: bool) -> None:
    """Probe responses or samples: the options are keys of a recipe, which a run completes."""
    missing = [_OPTIONS[key] for key in ("samples.reference", "samples.final") if key not in given]
    if missing and given.keys() & {*_SELECTING}:
        raise ConfigError(f"--select needs {' and '.join(f'{option} FILE' for option in missing)}")
    task = given.pop("task", None)
    if task is not None and run_name is not None:
        raise ConfigError(f"--task: the responses are graded by the task of {run_name}; leave out --task or RUN")

    from swerve.artifacts.run import find_run, is_main_process
    from swerve.cli.runs import main_progress
    from swerve.cli.summary import probe_lines
    from swerve.formats.typed_fields import parse_fields
    from swerve.models.runtime import set_thread_environment
    from swerve.probe.recipe import ProbeRecipe, ProbeSettings
    from swerve.recipes.layers import Override
    from swerve.recipes.loader import load_run_config, load_settings

    # Settings are those of the run, with overrides, or what the overrides alone say.
    if task is not None:
        own = {
            override
            for override in changes
            if override.partition("=")[0].split(".")[0].strip() in ProbeSettings.model_fields
        }
        changes = [f"task={task}", *(change if change in own else f"task.{change}" for change in changes)]
    run = None if run_name is None else find_run(run_name)
    if run is None:
        trained, data = None, dict[str, Any]()
        set_thread_environment(load_settings(ProbeSettings, changes).runtime)
    else:
        config = load_run_config(run, changes)
        trained, changes = (config, run), []
        data = config.model_dump(mode="json", include=set(ProbeSettings.model_fields))
        set_thread_environment(config.runtime)

    # All else is said by options.
    data |= _models(trained, given)
    file = Path(given.get("responses") or given["samples.reference"])
    name = f"probe-{file.name.partition('.')[0] or 'responses'}"
    data["out"] = name if run is None else str(run.path / name)
    if "fields" in given:
        given["fields"] = parse_fields(given["fields"])
    said = [
        Override(text=_OPTIONS[key], keys=tuple(key.split(".")), value=str(value) if isinstance(value, Path) else value)
        for key, value in given.items()
    ]
    recipe = load_settings(ProbeRecipe, [*said, *changes], data=data)

    from swerve.probe.from_files import plan_files
    from swerve.probe.steps import probe_in_steps

    progress, plan = main_progress(), plan_files(recipe, trained)
    summary = probe_in_steps(plan, progress=progress)
    if is_main_process():
        progress.note(f"tables: {plan.path}")
        print_result(summary, "\n".join(probe_lines(summary)), as_json=as_json)


def _models(trained: tuple[Config, RunDirectory] | None, given: dict[str, Any]) -> dict[str, Any]:
    """Take the names of models out of the options; return the keys of a recipe that say them.

    A run has models for those that no option names: the reference, and the stage that `probe.checkpoints` says.

    Raises:
        ConfigError: without a run one is not named, or two have the same name.
        CheckpointError: there is no such model.
    """
    from swerve.models.named_models import NamedModel, resolve_model

    reference, baseline = given.pop("reference", None), given.pop("baseline", None)
    named, own = given.pop("checkpoints", []), list[NamedModel]()
    run = first = None
    if trained is None:
        missing = [
            f"{option} MODEL" for option, value in (("--reference", reference), ("--checkpoint", named)) if not value
        ]
        if missing:
            raise ConfigError(
                f"without RUN {' and '.join(missing)} must be given; MODEL is a folder, RUN:LABEL or a name on the hub"
            )
    else:
        from swerve.probe.from_run import run_checkpoints, run_reference

        # The run's own are known by their folders: one of the same name elsewhere is another model.
        config, run = trained
        baseline = baseline or config.probe.baseline
        if not reference:
            first = NamedModel.of(run_reference(config, run))
        if not named:
            own = [NamedModel.of(checkpoint) for checkpoint in run_checkpoints(config, run)]

    # Checkpoints of the run come by step, others in the order given.
    first = first or resolve_model(reference, run=run)
    checkpoints = [resolve_model(text, run=run) for text in named]
    checkpoints += [model for model in own if model.path != first.path]
    if all(model.step is not None for model in checkpoints):
        checkpoints.sort(key=lambda model: model.step or 0)
    before = [resolve_model(baseline, run=run)] if baseline else []
    models = [*before, first, *checkpoints]
    labels = [model.label for model in models]
    repeated = next((label for label in labels if labels.count(label) > 1), None)
    if repeated is not None:
        raise ConfigError(
            f"two models are called '{repeated}'; give them different names, as in --checkpoint late=MODEL (also for "
            "--reference and --baseline)"
        )

    # Biographies count training steps where all models are of one run and their steps increase.
    steps = [model.step for model in models if model.step is not None]
    increase = len(steps) == len(models) and all(early < late for early, late in pairwise(steps))
    return {
        "models": {model.label: str(model.path) for model in models},
        "reference": first.label,
        "baseline": before[0].label if before else None,
        "checkpoints": [model.label for model in checkpoints],
        "steps": dict(zip(labels, steps, strict=True)) if increase else {},
    }
