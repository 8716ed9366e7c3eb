"""`swerve runs`, `recipes` and `config`: list runs, show recipes and configurations."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from swerve.cli.console import one_line, print_json, print_result, print_table, print_text
from swerve.cli.options import Json, Overrides, Recipe
from swerve.errors import SwerveError

recipes_app = typer.Typer(help="Recipes that ship with swerve.", invoke_without_command=True)
config_app = typer.Typer(help="Look at a configuration without running it.", no_args_is_help=True)


@recipes_app.callback()
def list_recipes(context: typer.Context, as_json: Json = False) -> None:
    """List the recipes that ship with swerve, or show one."""
    if context.invoked_subcommand is not None:
        return
    from swerve.recipes.loader import recipe_text, shipped_recipes

    recipes = {name: recipe_text(name).splitlines()[0].lstrip("# ") for name in shipped_recipes()}
    if as_json:
        print_json([{"name": name, "description": text} for name, text in recipes.items()])
    else:
        print_table(("RECIPE", "WHAT IT IS"), list(recipes.items()))


@recipes_app.command(name="show")
def show_recipe(name: Annotated[str, typer.Argument(metavar="NAME")]) -> None:
    """Print a recipe as it is written, comments included."""
    from swerve.recipes.loader import recipe_text

    print_text(recipe_text(name))


@config_app.command(name="show")
def show_config(recipe: Recipe, overrides: Overrides = None, as_json: Json = False) -> None:
    """Print the resolved configuration, defaults included."""
    from swerve.cli.runs import read_recipe
    from swerve.recipes.loader import dump_yaml

    config = read_recipe(recipe, overrides or ())
    print_result(config.model_dump(mode="json"), dump_yaml(config), as_json=as_json)


@config_app.command(name="check")
def check_config(recipe: Recipe, overrides: Overrides = None, as_json: Json = False) -> None:
    """Say whether a recipe is valid, and what its presets leave out."""
    from swerve.cli.runs import read_recipe
    from swerve.config import preset_notes
    from swerve.recipes.loader import config_hash, has_custom

    config = read_recipe(recipe, overrides or ())
    if has_custom(config):
        from swerve.train.stages.custom_parts import custom_digests

        custom_digests(config)
    digest = config_hash(config)
    notes = preset_notes(config.stages)
    found = {"valid": True, "name": config.name, "config_hash": digest, "notes": notes}
    print_result(found, "\n".join([f"{recipe}: valid, configuration {digest}", *notes]), as_json=as_json)


@config_app.command(name="schema")
def show_schema() -> None:
    """Print the JSON schema of recipes."""
    from swerve.recipes.loader import config_schema

    print_json(config_schema())


def describe_run(path: Path) -> dict[str, Any]:
    """Return a run's name, status, stages and last step; what cannot be read is None, with the reason in `error`.

    A run that says `training` and that no process holds was `killed`.
    """
    from swerve.artifacts.metrics import read_metrics
    from swerve.artifacts.run import RunDirectory
    from swerve.recipes.loader import load_config

    run = RunDirectory(path)
    entry: dict[str, Any] = {"name": path.name, "status": None, "stages": None, "last_step": None}
    try:
        status = run.read_provenance().get("status")
        entry["status"] = "killed" if status == "training" and not run.is_held() else status
        entry["stages"] = [stage.label for stage in load_config(run.config_path).stages]
        steps = [record.get("step") for record in read_metrics(run.metrics_path)[-1:]]
        return {**entry, "last_step": steps[0] if steps else None}
    except SwerveError as error:
        return {**entry, "error": str(error)}


def _row(entry: Mapping[str, Any]) -> tuple[str, str, str, str]:
    stages = ", ".join(entry["stages"]) if entry["stages"] is not None else "unreadable"
    step = "-" if entry["last_step"] is None else str(entry["last_step"])
    return entry["name"], entry["status"] or "unreadable", stages, step


def list_runs(
    directory: Annotated[Path, typer.Option("--dir", metavar="DIR", help="Where to look.")] = Path("runs"),
    as_json: Json = False,
) -> None:
    """List runs: name, status, stages and last step."""
    paths = sorted(path.parent for path in directory.glob("*/run.json"))
    entries = [describe_run(path) for path in paths]
    if as_json:
        print_json(entries)
        return
    if entries:
        print_table(("RUN", "STATUS", "STAGES", "LAST STEP"), [_row(entry) for entry in entries])
    else:
        print_text(f"No runs in {directory}/.")
    for entry in entries:
        if "error" in entry:
            sys.stderr.write(f"swerve: warning: {one_line(entry['error'])}\n")
