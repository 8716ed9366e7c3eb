"""`swerve runs`, `recipes` and `config`: list runs, show recipes and configurations."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from swerve.cli.completion import completed
from swerve.cli.console import print_json, print_result, print_text
from swerve.cli.options import Json, Overrides, PlainCommand, Recipe, check_choice
from swerve.cli.text import table, wrapped
from swerve.errors import ConfigError, MissingExtraError, SwerveError
from swerve.estimates import hundredths
from swerve.progress import format_duration, one_line

if TYPE_CHECKING:
    from swerve.config import Config
    from swerve.probe.recipe import ProbeRecipe
    from swerve.recipes.files import RecipeUse

recipes_app = typer.Typer(help="Recipes that ship with swerve.", invoke_without_command=True, rich_markup_mode=None)
config_app = typer.Typer(
    help="Look at a configuration without running it.", no_args_is_help=True, rich_markup_mode=None
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
        profiles = f"; profile={'|'.join(entry['profiles'])}" if entry["profiles"] else ""
        print_text(f"{entry['name']}  (swerve {entry['command']}{profiles})")
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


@recipes_app.command(name="show", cls=PlainCommand)
def show_recipe(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    command: Annotated[
        str | None,
        typer.Option(
            "--command", metavar="train|probe|study", help="Which command's recipe, if several have one of that name."
        ),
    ] = None,
) -> None:
    """Print a recipe as it is written, comments included."""
    from swerve.recipes.files import RECIPE_USES, recipe_text, shipped_recipes

    check_choice("--command", command, RECIPE_USES)
    uses = [use for use in RECIPE_USES if command in (None, use)]
    print_text(recipe_text(name, next((use for use in uses if name in shipped_recipes(use)), uses[0])))


@config_app.command(name="show", cls=PlainCommand)
def show_config(recipe: Recipe, overrides: Overrides = None, as_json: Json = False) -> None:
    """Print the resolved configuration, defaults included."""
    from swerve.recipes.loader import dump_yaml, load_config

    config = _shipped_probe(recipe, overrides or ()) or load_config(recipe, overrides or ())
    print_result(config.model_dump(mode="json"), dump_yaml(config), as_json=as_json)


def _shipped_probe(recipe: str, overrides: Sequence[str]) -> ProbeRecipe | None:
    """Return the shipped recipe of a probe that is named; None where a name means something else."""
    from swerve.probe.recipe import ProbeRecipe
    from swerve.recipes.files import shipped_recipes
    from swerve.recipes.loader import load_document

    return load_document(ProbeRecipe, recipe, overrides) if recipe in shipped_recipes("probe") else None


@config_app.command(name="check", cls=PlainCommand)
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
            help="Of another machine's device; packages and models beside the recipe's own are not looked for then.  "
            "[default: this machine's]",
        ),
    ] = None,
    processes: Annotated[
        int, typer.Option("--processes", metavar="N", min=1, max=4096, help="That torchrun will start, a device each.")
    ] = 1,
    as_json: Json = False,
) -> None:
    """Say whether a recipe can be trained, what its presets leave out, how long it is and how much memory it needs."""
    from swerve.artifacts.run import check_name
    from swerve.config import preset_notes
    from swerve.recipes.epochs import stage_sizes, with_steps
    from swerve.recipes.loader import config_hash, has_custom, load_config

    if probe := _shipped_probe(recipe, overrides or ()):
        needed, line = _probe_memory(probe, memory)
        summary = {"valid": True, "out": probe.out, "memory": needed}
        print_result(summary, f"{recipe}: valid, a recipe of swerve probe\n{line}", as_json=as_json)
        return

    # Everything that training checks before its first step; code of the user's own is loaded.
    config = with_steps(load_config(recipe, overrides or ()), asks_hub=False)
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
    notes = preset_notes(config.stages)
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
    print_result(summary, "\n".join(lines), as_json=as_json)


def _size_line(size: Mapping[str, Any]) -> str:
    """Say how long a stage is."""
    if size["steps"] is None:
        return f"stage {size['stage']}: its steps are counted when training begins"
    sampled = f", at most {size['completions']:,} completions of {size['tokens']:,} tokens" if size["tokens"] else ""
    return f"stage {size['stage']}: {size['steps']:,} steps{sampled}"


def _probe_memory(recipe: ProbeRecipe, available_gb: float | None) -> tuple[dict[str, Any] | None, str]:
    """Return what a probe needs, for JSON and as a line; None where none of its models is a folder here."""
    from swerve.train.memory import gigabytes, predicted_probe_memory

    if not any(Path(model).is_dir() for model in recipe.models.values()):
        return (
            None,
            "memory: give a folder to one of the models, such as models.NAME=FOLDER, to see what the probe needs",
        )
    available = _available(recipe.runtime.device, available_gb)
    needed = predicted_probe_memory(recipe, available=available)
    line = f"about {gigabytes(needed.peak)} of {gigabytes(available)} GB ({needed.shown()})"
    if needed.peak > available:
        raise ConfigError(f"the probe needs {line}; lower probe.tokens_per_batch, or take a larger device")
    return {**asdict(needed), "peak": needed.peak, "available": available}, f"memory: {line}"


def _memory(config: Config, available_gb: float | None, processes: int) -> tuple[dict[str, Any] | None, str]:
    """Return what training needs, for JSON and as a line; None where the recipe leaves its model open."""
    from swerve.models.starting_model import has_open_model
    from swerve.train.memory import check_memory, gigabytes, predicted_memory

    if has_open_model(config):
        return None, "memory: give model.path=FOLDER, or the name of a model on the hub, to see what training needs"
    available = _available(config.runtime.device, available_gb)
    needed = predicted_memory(config, available=available, processes=processes)
    check_memory(needed, available, config)
    each = "" if processes == 1 else f" in each of {processes} processes"
    line = f"memory: about {gigabytes(needed.peak)} of {gigabytes(available)} GB{each}, in stage {needed.stage}"
    return {**asdict(needed), "peak": needed.peak, "available": available}, f"{line} ({needed.shown()})"


def _available(device: str, gigabytes: float | None) -> int:
    """Return the bytes of a device: as many as are given, else those of this machine's."""
    from swerve.models.model_folder import resolve_device
    from swerve.train.memory import device_memory

    return device_memory(resolve_device(device)) if gigabytes is None else int(gigabytes * 1e9)


@config_app.command(name="schema", cls=PlainCommand)
def show_schema(
    probe: Annotated[bool, typer.Option("--probe", help="Of the recipes of swerve probe instead.")] = False,
) -> None:
    """Print the JSON schema of recipes."""
    from swerve.probe.recipe import ProbeRecipe
    from swerve.recipes.loader import config_schema

    print_json(config_schema(ProbeRecipe) if probe else config_schema())


_COLUMNS = ("RUN", "BEGAN (UTC)", "TRAINED FOR", "STATUS", "STAGES", "STEPS", "BEST ACCURACY", "BEST REWARD")


def _row(entry: Mapping[str, Any]) -> tuple[str, ...]:
    stages = ", ".join(entry["stages"]) if entry["stages"] is not None else "unreadable"
    steps = "-" if entry["last_step"] is None else f"{entry['last_step']}/{entry['num_steps'] or '?'}"
    accuracy, reward = entry["accuracy"], entry["reward"]
    return (
        one_line(entry["name"]),
        entry["date"] or "-",
        "-" if not entry["seconds"] else format_duration(entry["seconds"]),
        entry["status"] or "unreadable",
        stages,
        steps,
        "-" if accuracy is None else f"{hundredths(accuracy['value'])}% ({accuracy['at']})",
        "-" if reward is None else f"{reward['value']:.3f} ({reward['at']})",
    )


def list_runs(
    directory: Annotated[Path, typer.Option("--dir", metavar="DIR", help="Where to look.")] = Path("runs"),
    as_json: Json = False,
) -> None:
    """List runs, the newest last: date, status, stages, steps, best held-out accuracy and best mean reward."""
    from swerve.run import describe_run

    entries = [describe_run(path.parent) for path in sorted(directory.glob("*/run.json"))]
    entries.sort(key=lambda entry: entry["date"] or "")
    if as_json:
        print_json(entries)
        return
    if entries:
        print_text(table([_COLUMNS, *map(_row, entries)]))
    else:
        print_text(f"No runs in {directory}/.")
    for entry in entries:
        if "error" in entry:
            sys.stderr.write(f"swerve: warning: {one_line(entry['error'])}\n")
