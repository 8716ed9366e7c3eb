"""What the shell completes, after `swerve --install-completion`: recipes, runs, RUN:LABEL, tasks and keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer


def completed(*kinds: str) -> dict[str, Any]:
    """Return the keyword of an argument or option that completes words of these kinds."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        words = (word for kind in kinds for word in _WORDS[kind](ctx, incomplete))
        return [word for word in words if word.startswith(incomplete)]

    return {"autocompletion": complete}


def _recipes(ctx: typer.Context, incomplete: str) -> Iterator[str]:
    from swerve.recipes.files import shipped_recipes

    command = ctx.info_name
    yield from shipped_recipes(command if command in ("probe", "study") else "train")  # type: ignore[arg-type]
    yield from map(str, Path().glob("*.yaml"))


def _runs(ctx: typer.Context, incomplete: str) -> Iterator[str]:
    for root in (Path(), Path("runs")):
        yield from (place.parent.name for place in root.glob("*/run.json"))


def _models(ctx: typer.Context, incomplete: str) -> Iterator[str]:
    from swerve.artifacts.run import RunDirectory

    name = incomplete.rpartition("=")[0]
    for place in (*Path().glob("*/run.json"), *Path("runs").glob("*/run.json")):
        for checkpoint in RunDirectory(place.parent).checkpoints:
            yield f"{name}{'=' if name else ''}{place.parent.name}:{checkpoint.label}"


def _tasks(ctx: typer.Context, incomplete: str) -> Iterator[str]:
    from swerve.problems.registry import TASKS

    yield from sorted(TASKS)


def _keys(ctx: typer.Context, incomplete: str) -> Iterator[str]:
    """Yield the keys of the recipe or the run that stands before, down to the section that is being written."""
    from swerve.recipes.loader import load_config

    name = ctx.params.get("recipe") or ctx.params.get("run") or "demo_addition"
    run = next((place for place in (Path(name), Path("runs") / name) if (place / "run.json").is_file()), None)
    data: Any = load_config(run / "config.yaml" if run else name).model_dump(mode="json")
    *outer, _ = incomplete.split(".")
    for part in outer:
        data = data.get(part, {}) if isinstance(data, dict) else {}
        data = {item.get("name") or item["kind"]: item for item in data} if isinstance(data, list) else data
    prefix = "".join(f"{part}." for part in outer)
    for key, value in data.items() if isinstance(data, dict) else ():
        is_section = isinstance(value, dict) or (isinstance(value, list) and value and isinstance(value[0], dict))
        yield f"{prefix}{key}{'.' if is_section else '='}"


_WORDS = {"recipes": _recipes, "runs": _runs, "models": _models, "tasks": _tasks, "keys": _keys}
