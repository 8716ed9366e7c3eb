"""`swerve probe`: on a run's own rollouts, or on responses from elsewhere with any models."""

from __future__ import annotations

import shlex
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from swerve.cli.completion import completed
from swerve.cli.options import ROW_ENDINGS, PartsFrom, Result, ShardOption, given_settings, given_shard, with_settings
from swerve.cli.plan import Planning, asked_plan, planned
from swerve.errors import ConfigError

if TYPE_CHECKING:
    from swerve.artifacts.run import RunDirectory
    from swerve.artifacts.shards import Shard
    from swerve.config.recipe import Config
    from swerve.recipes.layers import Override

_OPTIONS = {
    "responses": "--use-responses FILE",
    "select": "--select NAME",
    "samples.reference": "--reference-samples FILE",
    "samples.final": "--final-samples FILE",
    "where": "--where KEY=VALUES",
    "reference": "--reference MODEL",
    "checkpoints": "--checkpoint [NAME=]MODEL",
    "baseline": "--baseline MODEL",
    "tokenizer": "--tokenizer MODEL",
    "check": "--check N",
    "problems": "--problems FILE",
    "fields": "--field NAME=FIELD",
    "template": "--template",
    "ends": "--ends",
    "out": "--out DIR",
}
"""Key of a recipe -> the option that says it."""
_SELECTING = ("select", "samples.reference", "samples.final", "where")


@with_settings("swerve.probe.recipe:ProbeRecipe", _OPTIONS)
def probe(
    context: typer.Context,
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN|RECIPE]",
            help="A run's directory, or its name under runs/; or a recipe of a probe: its name or file.",
            show_default=False,
            **completed("runs", "recipes"),
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Changes under eval., probe., report., rollout. or runtime."),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            "--task",
            metavar="KIND",
            help="Grade responses and causal tests by this task's grader (swerve data list). KEY=VALUE may then be "
            "keys of the task, such as grading.extraction=hash.  [default: the graders that problems name]",
            **completed("tasks"),
        ),
    ] = None,
    steps: Annotated[
        str | None,
        typer.Option(
            "--steps",
            metavar="STEP[,STEP]...",
            help="With RECIPE, only these: prepare, sample, divergence, analysis, report.  [default: all]",
        ),
    ] = None,
    share: ShardOption = None,
    parts_from: PartsFrom = None,
) -> Result | None:
    r"""Find the tokens that training changed, and whether they matter.

    RUN alone probes its own rollouts. --use-responses probes responses from elsewhere with any models, --select
    rollouts chosen from samples of two models. RECIPE is a file that describes a whole probe, which runs step by step;
    steps that are done are skipped.

    The causal tests need the whole measurement: with --shard all shards are run, then all once more.

    Examples:
      swerve probe runs/mine
      swerve probe --use-responses answers.jsonl --reference A --checkpoint B
      swerve probe --select all --reference-samples a.parquet \
        --final-samples b.parquet --reference A --checkpoint B
    """
    shard = given_shard(context, share, parts_from)

    # A change may stand where RUN does; options that are given are keys of a recipe.
    changes = list(overrides or ())
    if run is not None and "=" in run and not Path(run).exists():
        changes, run = [run, *changes], None
    given = given_settings(context)
    names = [override.text for override in given.values()] + (["--task"] if task else [])

    # A recipe describes the whole probe.
    planning = asked_plan(context)
    if run is not None and is_probe_recipe(run):
        if names:
            raise ConfigError(f"{names[0]}: {run} says it; change it there, or with KEY=VALUE (out=DIR, seed=1)")
        if planning is not None:
            return _planned_recipe(run, changes, planning)
        from swerve.cli.probe_recipe import run_probe_recipe

        return run_probe_recipe(run, changes, steps=steps, shard=shard)
    if steps is not None:
        raise ConfigError("--steps needs a recipe; a probe of a run or of options is one step, continued where it was")

    # Files are probed, or the run's own rollouts.
    if given.keys() & {"responses", *_SELECTING}:
        return _probe_files(run, changes, task, given, shard, planning)
    if names:
        raise ConfigError(
            f"{names[0]} needs --use-responses FILE or --select; a run's own rollouts are probed with the settings "
            "probe.reference, probe.checkpoints and probe.baseline"
        )
    return _probe_run(_checked_run(run), changes, shard, planning)


def _checked_run(run: str | None) -> str:
    """Return the run that was given.

    Raises:
        ConfigError: no run is given, or a model or responses in its place; the message says how they are probed.
    """
    if run is None:
        raise ConfigError(
            "give RUN, whose rollouts are probed, or --use-responses FILE (or --select) with --reference MODEL and "
            "--checkpoint MODEL; see: swerve probe --help"
        )
    if (Path(run) / "config.json").is_file():
        raise ConfigError(
            f"{run} is a model, and models are probed on responses: --use-responses FILE --reference {run} "
            "--checkpoint MODEL"
        )
    if _has_rows(Path(run)):
        raise ConfigError(
            f"{run} is no run; if it has responses, probe them with --use-responses {run} --reference MODEL "
            "--checkpoint MODEL"
        )
    return run


def _has_rows(path: Path) -> bool:
    """Whether a path is no run and a file of rows, or a folder that has some."""
    files = path.iterdir() if path.is_dir() and not (path / "run.json").exists() else [path]
    return any(file.suffix in ROW_ENDINGS and file.is_file() for file in files)


def _planned_recipe(source: str, changes: list[str], planning: Planning) -> Result:
    """Say what a recipe's probe takes: of responses that are there, each; of those that it samples, how many."""
    from swerve.models.named_models import resolve_model
    from swerve.plan.probing import probe_budget
    from swerve.probe.from_files import plan_files
    from swerve.probe.recipe import ProbeRecipe
    from swerve.recipes.loader import load_document

    recipe = load_document(ProbeRecipe, source, changes)
    files = [Path(file) for file in recipe.sample_files or [recipe.responses or ""]]
    plan = None
    if all(file.is_file() for file in files):
        paths = {name: str(resolve_model(f"{name}={recipe.models[name]}").path) for name in recipe.used}
        plan = plan_files(recipe.model_copy(update={"models": paths}))
    return planned(probe_budget(recipe if plan is None else plan.recipe, plan, **planning._asdict()))


def _probe_run(name: str, changes: list[str], shard: Shard, planning: Planning | None) -> Result:
    """Probe the rollouts of a run."""
    from swerve.artifacts.run import find_run
    from swerve.cli.console import main_progress
    from swerve.cli.summary import probe_text

    run = find_run(name)
    config = _run_config(run, changes)
    if planning is not None:
        from swerve.plan.probing import probe_budget
        from swerve.probe.from_run import plan_run

        plan = plan_run(config, run)
        return planned(probe_budget(plan.recipe, plan, **planning._asdict()))
    from swerve.probe.from_run import probe_run

    summary = probe_run(config, run, shard=shard, progress=main_progress())
    return Result(summary, lambda: probe_text(run, place=f"All findings: swerve report {shlex.quote(name)}"))


def _run_config(run: RunDirectory, changes: list[str]) -> Config:
    """Return the configuration of a run with changes; the process gets the threads that it says."""
    from swerve.models.runtime import set_thread_environment
    from swerve.recipes.layers import overrides_of
    from swerve.recipes.loader import check_copied, load_run_config

    config = load_run_config(run, changes)
    check_copied(config, run, overrides_of(changes, {}))
    set_thread_environment(config.runtime)
    return config


def is_probe_recipe(source: str) -> bool:
    """Whether an argument is a recipe of a probe, and not a run."""
    from swerve.recipes.files import shipped_recipes

    return Path(source).suffix in (".yaml", ".yml") or source in shipped_recipes("probe")


def _probe_files(
    run_name: str | None,
    changes: list[str],
    task: str | None,
    given: dict[str, Override],
    shard: Shard,
    planning: Planning | None,
) -> Result:
    """Probe responses or samples: the options are keys of a recipe, which a run completes."""
    selects = given.keys() & {*_SELECTING}
    missing = [_OPTIONS[key] for key in ("samples.reference", "samples.final") if selects and key not in given]
    if missing:
        raise ConfigError(f"--select needs {' and '.join(missing)}")
    if task is not None and run_name is not None:
        raise ConfigError(f"--task: the responses are graded by the task of {run_name}; leave out --task or RUN")

    from swerve.artifacts.run import RunDirectory, find_run
    from swerve.cli.console import main_progress
    from swerve.cli.summary import probe_text
    from swerve.formats.typed_fields import parse_fields
    from swerve.models.runtime import set_thread_environment
    from swerve.probe.recipe import ProbeRecipe, ProbeSettings
    from swerve.probe.rollouts.checks import check_recipe_files
    from swerve.recipes.loader import load_settings

    # Settings are those of the run, with overrides, or what the overrides alone say.
    if task is not None:
        sections = ProbeSettings.model_fields
        is_own = {change: change.partition("=")[0].split(".")[0].strip() in sections for change in changes}
        changes = [f"task={task}", *(change if own else f"task.{change}" for change, own in is_own.items())]
    run = None if run_name is None else find_run(run_name)
    if run is None:
        trained, data = None, dict[str, Any]()
        set_thread_environment(load_settings(ProbeSettings, changes).runtime)
    else:
        config = _run_config(run, changes)
        trained, changes = (config, run), []
        data = config.model_dump(mode="json", include=set(ProbeSettings.model_fields))

    # All else is said by options.
    data |= _models(trained, given)
    file = Path(given["responses" if "responses" in given else "samples.reference"].value)
    name = f"probe-{file.name.partition('.')[0] or 'responses'}"
    data["out"] = name if run is None else str(run.path / name)
    if "fields" in given:
        parse_fields([f"{name}={field}" for name, field in given["fields"].value.items()])
    recipe = load_settings(ProbeRecipe, [*given.values(), *changes], data=data)

    check_recipe_files(recipe, has_run=run is not None)
    from swerve.probe.from_files import plan_files
    from swerve.probe.steps import probe_in_steps

    progress = main_progress()
    if recipe.is_served and trained is None:
        if shard.is_divided:
            raise ConfigError("--shard is for models on this machine; servers answer several requests at a time")
        from swerve.probe.served import probe_served

        bounds = probe_served(recipe, progress=progress)
        return Result(bounds, lambda: _bounds_text(bounds))
    plan = replace(plan_files(recipe, trained), shard=shard)
    if planning is not None:
        from swerve.plan.probing import probe_budget

        return planned(probe_budget(recipe, plan, **planning._asdict()))
    summary = probe_in_steps(plan, progress=progress)
    if not plan.shard.is_share:
        progress.note(f"tables: {plan.path}")
    place = f"All findings: swerve report {shlex.quote(recipe.out)}"
    return Result(summary, lambda: probe_text(RunDirectory(Path(recipe.out)), summary, place=place))


def _bounds_text(bounds: dict[str, Any]) -> str:
    """Return the means over tokens as lines."""
    lines = [f"{bounds['responses']} responses, {bounds['tokens']} tokens; bounds and log-probabilities, mean nats:"]
    for name, means in bounds["means"].items():
        lines.append(f"{name}: " + ", ".join(f"{key} {value:.4g}" for key, value in means.items()))
    return "\n".join([*lines, f"table: {bounds['path']}"])


def _models(trained: tuple[Config, RunDirectory] | None, given: dict[str, Override]) -> dict[str, Any]:
    """Take the names of models out of the options; return the keys of a recipe that say them.

    A run has models for those that no option names: the reference, and the stage that `probe.checkpoints` says.

    Raises:
        ConfigError: without a run one is not named, or two have the same name.
        CheckpointError: there is no such model.
    """
    from swerve.models.folder_metadata import check_metadata, check_one_tokenizer
    from swerve.models.named_models import NamedModel, resolve_model

    taken: dict[str, Any] = {
        key: given.pop(key).value for key in ("reference", "baseline", "checkpoints") if key in given
    }
    reference, baseline, named = (taken.get(key) for key in ("reference", "baseline", "checkpoints"))
    run, first, own = None, None, list[NamedModel]()
    if trained is None:
        options = (("--reference", reference), ("--checkpoint", named))
        missing = [f"{option} MODEL" for option, value in options if not value]
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
    first = first or resolve_model(str(reference), run=run)
    checkpoints = [resolve_model(text, run=run) for text in named or ()]
    checkpoints += [model for model in own if model.path != first.path]
    if all(model.step is not None for model in checkpoints):
        checkpoints.sort(key=lambda model: model.step or 0)
    before = [resolve_model(baseline, run=run)] if baseline else []
    models = [*before, first, *checkpoints]
    for model in models:
        check_metadata(model.path)
    check_one_tokenizer(model.path for model in models)
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
