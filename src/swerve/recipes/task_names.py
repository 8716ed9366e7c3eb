"""Tasks by their names: what kinds there are, and the configuration that a name and some keys say."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from swerve.errors import ConfigError, nearest
from swerve.problems.mixture import MixtureTask, TaskConfig
from swerve.problems.registry import TASKS
from swerve.recipes.files import shipped_recipes
from swerve.recipes.loader import load_config


def task_kinds() -> dict[str, Any]:
    """Return the configuration of each kind of task."""
    return {**{kind: task.config for kind, task in TASKS.items()}, "mixture": MixtureTask}


def described_tasks() -> list[dict[str, str]]:
    """Return each kind of task with its description and the source of its problems, by name."""
    return [
        {"task": name, "description": (inspect.getdoc(kind) or "").splitlines()[0], "source": _source(kind)}
        for name, kind in sorted(task_kinds().items())
    ]


def _source(kind: Any) -> str:
    """Return the default source of a kind's problems."""
    if "parts" in kind.model_fields:
        return "task.parts=[...]"
    field = kind.model_fields.get("train")
    if field is None or (not field.is_required() and not field.default):
        return "generated"
    return "task.train=FILE" if field.is_required() else str(field.default[0])


def load_task(name: str, overrides: Sequence[str]) -> tuple[TaskConfig, int]:
    """Return the task of a kind's name or of a recipe, and the seed."""
    kinds = task_kinds()
    if name in kinds:
        # Any recipe will do: only its task and seed are used.
        changes = [one if one.startswith(("task.", "seed=")) else f"task.{one}" for one in overrides]
        config = load_config("demo_addition", [f"task={name}", *changes])
    elif name in shipped_recipes() or Path(name).suffix in (".yaml", ".yml"):
        config = load_config(name, overrides)
    elif Path(name).is_file():
        raise ConfigError(f"'{name}' is a file and no task; the task that has its problems is: table train={name}")
    else:
        raise ConfigError(
            f"'{name}' is neither a kind of task nor a recipe{nearest(name, kinds)} (kinds: {', '.join(sorted(kinds))})"
        )
    return config.task, config.seed
