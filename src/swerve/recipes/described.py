"""What is known of the recipes that ship, without reading them as settings."""

from __future__ import annotations

import itertools
import re
from typing import Any

from swerve.errors import ConfigError, nearest
from swerve.recipes.files import RECIPE_USES, RecipeUse, recipe_text, shipped_recipes
from swerve.recipes.layers import read_layers


def described_recipes(task: str | None = None) -> list[dict[str, Any]]:
    """Return the recipes that ship, each with `name`, `command`, `task`, `profiles` and `description`.

    Args:
        task: only those of a task.

    Raises:
        ConfigError: no recipe is of this task.
    """
    entries = [_described(name, use) for use in RECIPE_USES for name in shipped_recipes(use)]
    known = sorted({entry["task"] for entry in entries if entry["task"]})
    if task is not None and task not in known:
        raise ConfigError(f"--task {task!r} is not one of {', '.join(known)}{nearest(task, known)}")
    return [entry for entry in entries if task in (None, entry["task"])]


def _described(name: str, use: RecipeUse) -> dict[str, Any]:
    """Return a shipped recipe's name, its command, task and profiles, and the first sentence of its comment."""
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
