"""Training: the loop over stages, one update, and the stages themselves."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

from swerve.artifacts.checkpoint import CheckpointRef
from swerve.artifacts.files import verify_manifest
from swerve.artifacts.run import RUNS, RunDirectory, check_name
from swerve.artifacts.torchrun import is_main_process
from swerve.callable_package import make_callable
from swerve.config.models import PretrainedModel
from swerve.config.recipe import Config
from swerve.errors import ArtifactError, ConfigError
from swerve.models.runtime import set_thread_environment
from swerve.problems import load_family
from swerve.problems.data_specs import parse_spec
from swerve.problems.held_out import held_out_of
from swerve.problems.learned import read_learned
from swerve.problems.reading import ReadFamily
from swerve.progress import Progress, shown_progress
from swerve.recipes.data_sizes import data_sizes
from swerve.recipes.epochs import with_steps
from swerve.recipes.files import shipped_recipes
from swerve.recipes.layers import Change, overrides_of, split_profile
from swerve.recipes.loader import RecipeSource, check_copied, check_recorded_config, load_config
from swerve.rewards.checks import problems_digest
from swerve.run import Run
from swerve.seeds import derive_seed
from swerve.train.early_stopping import kept_steps

__all__ = ["train"]


def train(
    recipe: RecipeSource | None = None,
    *overrides: Change,
    out: str | Path | RunDirectory | None = None,
    resume: bool | Literal["or_start"] = False,
    verify: bool = False,
    progress: Progress | bool | None = None,
    **changes: Any,
) -> Run:
    """Train every stage of a recipe; return the run.

    The run directory has checkpoints in the Hugging Face layout, metrics and rollouts. Under torchrun the processes
    share each step's work. An interrupted run continues with `resume=True` and ends with the same weights, bit for bit
    on a CPU.

    Args:
        recipe: the name of a shipped recipe, the path of a YAML file, a mapping or a configuration, one of which is
            needed; with `resume` also the run.
        overrides: such as `"seed=1"` or `{"stages.rl.steps": 40}`; see `load_config`.
        out: where the run goes; None: `runs/NAME`.
        resume: continue the run that is there; `"or_start"`: continue it if it was begun, else start it.
        verify: resumed, read the checkpoints before the last one, too, and name damaged ones.
        progress: told what is done; None: shown in a terminal or a notebook; True and False: shown or not.
        changes: changes of the recipe as keywords, such as `seed=1`.

    Raises:
        ConfigError: the recipe is wrong or does not fit this machine, or there is a run at `out` already.
        ArtifactError: another process holds the run, or what resuming reads was changed.
        CollapseError: training collapsed, and the stage is to stop where it does; the state was saved.
        InterruptedRunError: a signal asked for a stop; the state was saved.
        SwerveError: a loss or gradient that is not finite; a stage that cannot begin.
    """
    # What can be said without torch is said at once.
    if recipe is None:
        run = resume if isinstance(resume, str | Path) and resume != "or_start" else "runs/NAME"
        raise ConfigError(
            "train what? swerve.train('demo_addition', ...) takes a recipe (swerve.recipes() lists them), and "
            f"swerve.train({str(run)!r}, resume=True) continues a run"
        )
    parsed = overrides_of(overrides, changes)
    known = known_run(recipe) if resume else None
    config = load_config(recipe if known is None else known, *overrides, **changes)
    directory = run_directory(config, known if out is None and known is not None else out)
    if known is not None:
        check_copied(config, known, parsed)
    if resume == "or_start":
        resume = (directory.path / "run.json").is_file()
    if resume:
        if not directory.path.exists():
            raise ConfigError(f"run directory {directory.path} does not exist; start it without --resume")
        config = with_steps(config, data_sizes(config))
        check_recorded_config(config, directory)
    elif is_main_process():
        directory.check_new()
    set_thread_environment(config.runtime)
    _check_files(config)
    shown, profile = shown_progress(progress), split_profile(parsed)[0]
    shown.note(f"run directory: {directory.path}")
    if resume and not verify and (last := _end_of_training(config, directory)) is not None:
        shown.note(f"trained to its end, {last.label} (step {last.step}): there is nothing to do")
        return Run(directory)
    from swerve.train.loop import train_run

    name = None if profile is None else profile.value
    train_run(config, directory, resume=resume, progress=shown, verify=verify, profile=name)
    return Run(directory)


def _check_files(config: Config) -> None:
    """Look for the model and read the files of a recipe: what is wrong with them is told before torch is imported."""
    if isinstance(config.model, PretrainedModel):
        from swerve.models.hub import check_model, pretrained_path

        check_model(pretrained_path(config.model))
    seed, family = derive_seed(config.seed, "problems"), load_family(config.task)
    specs = [spec for stage in config.stages for spec in stage.data_specs.get("data", ())]
    if any(parse_spec(spec).is_on_hub for spec in (*config.task.train_sources, *specs)):
        return
    if isinstance(family, ReadFamily):
        family.problems("train", seed=seed)
    if specs:
        held_out = held_out_of(family, seed=seed, keep=config.keep_heldout)
        for spec in specs:
            read_learned(spec, held_out, lambda _line: None)


def _end_of_training(config: Config, run: RunDirectory) -> CheckpointRef | None:
    """Return the last checkpoint of a run that is trained to its end and as it was then; None: resuming has work to do.

    What resuming reads is read here, too: the last checkpoint, the logs, the problems. It says itself what is wrong
    with them, and makes what is missing; code and data of the user's own, trackers and evaluations are left to it.
    """
    if not (run.path / "run.json").is_file() or os.environ.get("WORLD_SIZE", "1") != "1" or run.is_held():
        return None
    provenance, specs = run.read_provenance(), config.task.train_sources
    is_watched = bool(config.runtime.trackers) or config.eval.every is not None
    if provenance.get("status") != "trained" or provenance.get("custom") or is_watched:
        return None
    if any(parse_spec(spec).is_on_hub for spec in specs):
        return None

    # All checkpoints that are kept are there, and the last one is whole.
    intact, damages = run.intact_checkpoints()
    last = intact[-1] if intact else None
    if damages or last is None or last.step != sum(stage.steps for stage in config.stages):
        return None
    if kept_steps(config, run, last) - {checkpoint.step for checkpoint in intact}:
        return None
    try:
        verify_manifest(last.path)
    except ArtifactError:
        return None
    problems = load_family(config.task).problems("train", seed=derive_seed(config.seed, "problems"))
    return last if problems_digest(problems) == provenance.get("problems_sha256") else None


def run_directory(config: Config, out: str | Path | RunDirectory | None) -> RunDirectory:
    """Return where a run goes: `out` if given, else the run's name under `runs/`.

    Raises:
        ConfigError: the name is not allowed, or `out` looks like an option.
    """
    if isinstance(out, RunDirectory):
        return out
    if out is None:
        return RunDirectory(RUNS / check_name(config.name))
    if Path(out).name.startswith("-"):
        raise ConfigError(f"--out {str(out)!r} is not allowed: the directory's name starts with '-'")
    return RunDirectory(Path(out))


def known_run(recipe: RecipeSource) -> RunDirectory | None:
    """Return the run that is to be continued where a recipe's name or path is that of one.

    Raises:
        ConfigError: it is neither a run nor a recipe.
    """
    if isinstance(recipe, RunDirectory):
        return recipe
    if not isinstance(recipe, str | Path):
        return None
    for path in (Path(recipe), RUNS / recipe):
        if (path / "run.json").is_file():
            return RunDirectory(path)
    if recipe not in shipped_recipes() and not Path(recipe).is_file():
        raise ConfigError(
            f"--resume: '{recipe}' is neither a run nor a recipe; `swerve runs` lists the runs under {RUNS}/, and a "
            "new run starts without --resume"
        )
    return None


make_callable(__name__, __name__)
