"""Bodies of the commands that only look: recipes, configurations and runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from swerve.artifacts.metrics import read_metrics
from swerve.artifacts.run import RunDirectory
from swerve.cli.console import one_line
from swerve.cli.output import print_json, print_text
from swerve.errors import SwerveError
from swerve.recipes import config_hash, config_schema, dump_yaml, load_config, recipe_text, shipped_recipes

__all__ = [
    "check_config",
    "describe_run",
    "list_recipes",
    "list_runs",
    "print_table",
    "show_config",
    "show_recipe",
    "show_schema",
]


def list_recipes(*, as_json: bool) -> None:
    """Print the shipped recipes with the first line of each, which says what it is."""
    recipes = {name: recipe_text(name).splitlines()[0].lstrip("# ") for name in shipped_recipes()}
    if as_json:
        print_json([{"name": name, "description": text} for name, text in recipes.items()])
    else:
        print_table(("RECIPE", "WHAT IT IS"), list(recipes.items()))


def show_recipe(name: str) -> None:
    """Print a shipped recipe as it is written."""
    print_text(recipe_text(name))


def show_config(recipe: str, overrides: Sequence[str], *, as_json: bool) -> None:
    """Print the resolved configuration, defaults included."""
    config = load_config(recipe, overrides)
    if as_json:
        print_json(config.model_dump(mode="json"))
    else:
        print_text(dump_yaml(config))


def check_config(recipe: str, overrides: Sequence[str], *, as_json: bool) -> None:
    """Print that a recipe is valid, and its hash."""
    config = load_config(recipe, overrides)
    if as_json:
        print_json({"valid": True, "name": config.name, "config_hash": config_hash(config)})
    else:
        print_text(f"{recipe}: valid, configuration {config_hash(config)}")


def show_schema() -> None:
    """Print the JSON schema of recipes."""
    print_json(config_schema())


def describe_run(path: Path) -> dict[str, Any]:
    """Return a run's name, status, stages and last step; what cannot be read is None, with the reason in `error`."""
    run = RunDirectory(path)
    entry: dict[str, Any] = {"name": path.name, "status": None, "stages": None, "last_step": None}
    try:
        entry["status"] = run.read_provenance().get("status")
        entry["stages"] = [stage.label for stage in load_config(run.config_path).stages]
        steps = [record.get("step") for record in read_metrics(run.metrics_path)[-1:]]
        return {**entry, "last_step": steps[0] if steps else None}
    except SwerveError as error:
        return {**entry, "error": str(error)}


def _row(entry: Mapping[str, Any]) -> tuple[str, str, str, str]:
    stages = ", ".join(entry["stages"]) if entry["stages"] is not None else "unreadable"
    step = "-" if entry["last_step"] is None else str(entry["last_step"])
    return entry["name"], entry["status"] or "unreadable", stages, step


def list_runs(directory: Path, *, as_json: bool) -> None:
    """Print the runs in a directory; without `as_json`, as a table, with what is wrong with damaged ones on stderr."""
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


def print_table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under a heading, each column as wide as its longest cell."""
    table = [heading, *([one_line(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(heading))]
    for row in table:
        print_text("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
