"""The recipes that ship with swerve, and the files of recipes anywhere."""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Literal, get_args

from swerve.errors import ConfigError, nearest
from swerve.recipes.yaml_lines import MAX_BYTES

RecipeUse = Literal["train", "probe", "study"]
"""The command that runs a recipe."""
RECIPE_USES: tuple[RecipeUse, ...] = get_args(RecipeUse)
_FOLDERS = {"train": "", "probe": "probes", "study": "studies"}


def _folder(use: RecipeUse) -> Traversable:
    return resources.files("swerve.recipes") / _FOLDERS[use]


def shipped_recipes(use: RecipeUse = "train") -> tuple[str, ...]:
    """Return the names of the recipes that come with swerve for one of its commands.

    >>> "demo_addition" in shipped_recipes()
    True
    """
    folder = _folder(use)
    files = folder.iterdir() if folder.is_dir() else ()
    return tuple(sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml")))


def recipe_text(name: str, use: RecipeUse = "train") -> str:
    """Return the YAML text of a shipped recipe, comments included.

    Raises:
        ConfigError: no recipe of that name ships; the message lists those that do.
    """
    names = shipped_recipes(use)
    if name not in names:
        others = [other for other in RECIPE_USES if other != use and name in shipped_recipes(other)]
        hint = f"; `swerve {others[0]} {name}` runs it" if others else nearest(name, names)
        if "=" in name and not name.endswith((".yaml", ".yml")):
            meant = f"demo_{name.removeprefix('task=')}"
            first = meant if meant in names else names[0]
            raise ConfigError(f"{name!r} is a change of a recipe, whose name comes first: {first} {name}")
        raise ConfigError(
            f"unknown recipe {name!r}{hint} (shipped: {', '.join(names)}; or give the path of a YAML file)"
        )
    return (_folder(use) / f"{name}.yaml").read_text(encoding="utf-8")


def _read_file(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"recipe file {str(path)!r} does not exist") from None
    except IsADirectoryError:
        raise ConfigError(
            f"recipe file {str(path)!r} is a folder; give a YAML file, such as the config.yaml of a run"
        ) from None
    except OSError as error:
        raise ConfigError(f"recipe file {str(path)!r} cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # a NUL character in the name
        raise ConfigError(f"recipe file {str(path)!r} cannot be read: {error}") from None
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{path}: larger than {MAX_BYTES} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: not UTF-8 text") from None


def read_recipe_text(source: str | Path, use: RecipeUse) -> tuple[str, str]:
    """Return what messages call a recipe, given by a shipped one's name or its path, and its text.

    Raises:
        ConfigError: there is no such recipe, or its file cannot be read.
    """
    if isinstance(source, str) and source in shipped_recipes(use):
        return f"{source}.yaml", recipe_text(source, use)
    path = Path(source)
    named_like_recipe = isinstance(source, str) and path.suffix not in (".yaml", ".yml") and "/" not in source
    if named_like_recipe and not path.is_file():
        return str(source), recipe_text(str(source), use)
    return str(path), _read_file(path)
