"""`swerve runs`, `recipes` and `config`: list runs, show recipes and configurations."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from swerve.cli.completion import completed
from swerve.cli.console import print_json, print_message, print_text
from swerve.cli.options import Json, Overrides, Recipe, Result, check_choice
from swerve.cli.text import table, wrapped
from swerve.errors import ConfigError, MissingExtraError, SwerveError
from swerve.progress import one_line

if TYPE_CHECKING:
    from swerve.config.recipe import Config
    from swerve.probe.recipe import ProbeRecipe
    from swerve.recipes.files import RecipeUse

recipes_app = typer.Typer(
    help="List the recipes that ship with swerve, or show one.", invoke_without_command=True, rich_markup_mode=None
)


@recipes_app.callback()
def list_recipes(
    context: typer.Context,
    task: Annotated[
        str | None,
        typer.Option("--task", metavar="TASK", help="Only recipes of this task, such as gsm8k.", **completed("tasks")),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the recipes that ship with swerve, or show one."""
    if context.invoked_subcommand is not None:
        return
    from swerve.recipes.files import RECIPE_USES, shipped_recipes

    entries = [_describe_recipe(name, use) for use in RECIPE_USES for name in shipped_recipes(use)]
    if task is not None:
        check_choice("--task", task, sorted({entry["task"] for entry in entries if entry["task"]}))
        entries = [entry for entry in entries if entry["task"] == task]
    if as_json:
        print_json(entries)
        return
    for entry in entries:
        profiles = f"; profiles {', '.join(entry['profiles'])}" if entry["profiles"] else ""
        print_text(wrapped(f"{entry['name']}  (swerve {entry['command']}{profiles})"))
        print_text(wrapped(entry["description"], indent="    "))


def _describe_recipe(name: str, use: RecipeUse) -> dict[str, Any]:
    """Return a shipped recipe's name, its command, task and profiles, and the first sentence of its comment."""
    from swerve.recipes.files import recipe_text
    from swerve.recipes.layers import read_layers

    comment = itertools.takewhile(lambda line: line.startswith("# "), recipe_text(name, use).splitlines())
    sentence = re.match(r".*?[.?](?= |$)", " ".join(line[2:] for line in comment))
    layers = read_layers(name, use)
    base = layers.data.get("recipe")  # of a study
    task = (read_layers(base, "train") if base else layers).data.get("task")
    return {
        "name": name,
        "command": use,
        "task": task["kind"] if isinstance(task, dict) else task,
        "profiles": list(layers.profile_names),
        "description": sentence.group() if sentence else "",
    }


def show_recipe(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A shipped recipe.", **completed("recipes"))],
    command: Annotated[
        str | None,
        typer.Option(
            "--command", metavar="train|probe|study", help="Which command's recipe, if several have one of that name."
        ),
    ] = None,
) -> None:
    """Print a recipe as it is written, comments included.

    Examples:
      swerve recipes show gsm8k > mine.yaml
    """
    from swerve.recipes.files import RECIPE_USES, recipe_text, shipped_recipes

    check_choice("--command", command, RECIPE_USES)
    uses = [use for use in RECIPE_USES if command in (None, use)]
    print_text(recipe_text(name, next((use for use in uses if name in shipped_recipes(use)), uses[0])))


def show_config(recipe: Recipe, overrides: Overrides = None) -> Result:
    """Print the resolved configuration, defaults included.

    Examples:
      swerve config show demo_addition seed=1
    """
    from swerve.recipes.loader import dump_yaml, load_config

    config = _shipped_probe(recipe, overrides or ()) or load_config(recipe, overrides or ())
    return Result(config, dump_yaml(config))


def _shipped_probe(recipe: str, overrides: Sequence[str]) -> ProbeRecipe | None:
    """Return the shipped recipe of a probe that is named; None where a name means something else."""
    from swerve.probe.recipe import ProbeRecipe
    from swerve.recipes.files import shipped_recipes
    from swerve.recipes.loader import load_document

    return load_document(ProbeRecipe, recipe, overrides) if recipe in shipped_recipes("probe") else None


def check_config(
    recipe: Recipe,
    overrides: Overrides = None,
    memory: Annotated[
        float | None,
        typer.Option(
            "--memory",
            metavar="GB",
            min=0.001,
            max=1e6,
            help="Memory of another machine's device; the packages of this machine are then not checked.  [default: "
            "this machine's]",
        ),
    ] = None,
    processes: Annotated[
        int,
        typer.Option(
            "--processes", metavar="N", min=1, max=4096, help="Processes that torchrun will start, one device each."
        ),
    ] = 1,
) -> Result:
    """Check a recipe, and predict its length and its memory.

    It also says what presets leave out.

    Examples:
      swerve config check gsm8k model.path=Qwen/Qwen2.5-0.5B --memory 24
      swerve config check mine.yaml profile=one_gpu
    """
    from swerve.artifacts.run import check_name
    from swerve.recipes.data_sizes import data_sizes
    from swerve.recipes.epochs import stage_sizes, with_steps
    from swerve.recipes.loader import config_hash, has_custom, load_config

    if probe := _shipped_probe(recipe, overrides or ()):
        needed, line = _memory(probe, memory, 1)
        summary = {"valid": True, "out": probe.out, "memory": needed}
        return Result(summary, f"{recipe}: valid, a recipe of swerve probe\n{line}")

    # Everything that training checks before its first step; code of the user's own is loaded.
    config = load_config(recipe, overrides or ())
    config = with_steps(config, data_sizes(config, asks_hub=False))
    if has_custom(config):
        from swerve.train.custom_parts import load_custom_parts

        load_custom_parts(config)
    check_name(config.name)
    from swerve.train.checks import check_recipe

    try:
        check_recipe(config, is_here=memory is None)
    except MissingExtraError as error:
        raise SwerveError(f"{error}; for another machine give the memory of its device, as in --memory 80") from None

    # What a person should know of it: its digest, what presets leave out, its length and the memory it takes.
    digest = config_hash(config)
    notes = [note for stage in config.stages for note in stage.notes]
    sizes = stage_sizes(config)
    needed, line = _memory(config, memory, processes)
    summary = {
        "valid": True,
        "name": config.name,
        "config_hash": digest,
        "notes": notes,
        "stages": sizes,
        "memory": needed,
    }
    lines = [f"{recipe}: valid, configuration {digest}", *notes, *map(_size_line, sizes), line]
    return Result(summary, "\n".join(lines))


def _size_line(size: Mapping[str, Any]) -> str:
    """Say how long a stage is."""
    if size["steps"] is None:
        return f"stage {size['stage']}: its steps are counted when training begins"
    sampled = f", at most {size['completions']:,} completions, {size['tokens']:,} tokens" if size["tokens"] else ""
    return f"stage {size['stage']}: {size['steps']:,} steps{sampled}"


def _memory(config: Config | ProbeRecipe, given_gb: float | None, processes: int) -> tuple[Any, str]:
    """Return what a training or a probe needs, for JSON and as a line; None where no model is named.

    Raises:
        ConfigError: it is more than the device has.
    """
    from swerve.config.recipe import Config
    from swerve.models.hub import is_left_open
    from swerve.models.model_folder import resolve_device
    from swerve.train.memory import check_memory, device_memory, gigabytes, predicted_memory, predicted_probe_memory

    if isinstance(config, Config):
        names_none, example = is_left_open(config.model), "model.path=FOLDER"
    else:
        names_none, example = not any(Path(model).is_dir() for model in config.models.values()), "models.NAME=FOLDER"
    if names_none:
        return None, f"memory: name a model, such as {example}, to see what is needed"

    # Bytes of the device that is named, or of this machine's.
    device = config.runtime.device
    available = device_memory(resolve_device(device)) if given_gb is None else int(given_gb * 1e9)
    if isinstance(config, Config):
        needed = predicted_memory(config, available=available, processes=processes)
        check_memory(needed, available, config)
    else:
        needed = predicted_probe_memory(config, available=available)
    each = "" if processes == 1 else f" in each of {processes} processes"
    line = (
        f"about {gigabytes(needed.peak)} of {gigabytes(available)} GB{each}, in stage {needed.stage} ({needed.shown()})"
    )
    if needed.peak > available:
        raise ConfigError(f"the probe needs {line}; lower probe.tokens_per_batch, or take a larger device")
    return {**asdict(needed), "peak": needed.peak, "available": available}, f"memory: {line}"


def show_schema(
    probe: Annotated[bool, typer.Option("--probe", help="The schema of recipes of swerve probe.")] = False,
) -> None:
    """Print the JSON schema of recipes.

    Examples:
      swerve config schema > recipe.schema.json
    """
    from swerve.probe.recipe import ProbeRecipe
    from swerve.recipes.loader import config_schema

    print_json(config_schema(ProbeRecipe) if probe else config_schema())


_COLUMNS = ("RUN", "BEGAN", "TRAINED FOR", "STATUS", "STAGES", "STEPS", "BEST ACCURACY", "BEST REWARD")


def list_runs(
    directory: Annotated[Path, typer.Option("--dir", metavar="DIR", help="Where to look.")] = Path("runs"),
) -> Result:
    """List runs, the newest last.

    Each with its date, status, stages, steps, best held-out accuracy and best mean reward.

    Examples:
      swerve runs
      swerve runs --dir runs/studies/mine/runs/none
    """
    from swerve.run import describe_run, entry_texts

    entries = [describe_run(path.parent) for path in sorted(directory.glob("*/run.json"))]
    entries.sort(key=lambda entry: entry["date"] or "")
    for entry in entries:
        if "error" in entry:
            print_message(f"swerve: warning: {one_line(entry['error'])}")
    texts = [_COLUMNS, *(tuple(entry_texts(entry)[name.lower()] for name in _COLUMNS) for entry in entries)]
    return Result(entries, table(texts) if entries else f"No runs in {directory}/.")
