"""Models as a user names them: a folder, a checkpoint of a run, a name on the Hugging Face hub. Free of torch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from swerve.artifacts.run import RunDirectory
from swerve.cli.runs import RUNS, find_run
from swerve.errors import CheckpointError, ConfigError
from swerve.probe.request import NamedModel, name_checkpoint

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(#[\w./-]+)?")
_LABEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedFolder:
    """A checkpoint's folder with the name a user gave it, and its run if it was named by one."""

    name: str
    path: Path
    run: RunDirectory | None = None


def resolve_checkpoint(name: str) -> NamedFolder:
    """Return the folder of a checkpoint, named by its path or as `RUN:SELECTOR`.

    Raises:
        CheckpointError: there is no such folder or selector.
        ArtifactError: there is no such run.
    """
    path = Path(name)
    if (path / "config.json").is_file():
        return NamedFolder(name=name, path=path)
    run_name, colon, selector = name.rpartition(":")
    if colon and run_name and not path.exists():
        run = find_run(run_name)
        checkpoint = run.select_checkpoint(selector)
        return NamedFolder(name=checkpoint.label, path=checkpoint.path, run=run)
    run_path = next((one for one in (path, RUNS / path) if (one / "run.json").is_file()), None)
    if run_path is not None:
        known = ", ".join(entry.label for entry in RunDirectory(run_path).checkpoints()) or "none"
        raise CheckpointError(f"{name} is a run; name one of its checkpoints as {name}:SELECTOR (it has {known})")
    what = "has no config.json" if path.exists() else "does not exist"
    raise CheckpointError(f"checkpoint {name} {what}; give a folder in the Hugging Face layout or RUN:SELECTOR")


def split_name(text: str) -> tuple[str | None, str]:
    """Return the label and the model of `[NAME=]MODEL`; a path that exists has no label in it.

    Raises:
        ConfigError: the label is empty or has characters that labels do not have, or there is no model.

    >>> split_name("late=owner/name")
    ('late', 'owner/name')
    """
    label, equals, model = text.partition("=")
    if not equals or Path(text).exists():
        return None, text
    if not _LABEL.fullmatch(label):
        raise ConfigError(f"model {text!r}: the name before '=' may have letters, digits, '.', '_' and '-'")
    if not model:
        raise ConfigError(f"model {text!r}: there is no model after '='")
    return label, model


def resolve_model(text: str, *, run: RunDirectory | None = None) -> NamedModel:
    """Return the model that `[NAME=]MODEL` names: a selector of `run`, a folder, `RUN:SELECTOR` or a hub name.

    Raises:
        ConfigError: NAME is not allowed.
        CheckpointError: there is no such model.
        ArtifactError: there is no such run.
    """
    label, name = split_name(text)
    path = Path(name)
    if run is not None and not path.exists() and not {":", "/"} & set(name):
        return name_checkpoint(run.select_checkpoint(name), label)
    if _HUB_NAME.fullmatch(name) and not path.exists() and not Path(path.parts[0]).exists():
        return NamedModel(label=label or name.partition("#")[0].rpartition("/")[2], path=name)
    try:
        folder = resolve_checkpoint(name)
    except CheckpointError as error:
        if ":" in name or any((one / "run.json").is_file() for one in (path, RUNS / path)):
            raise  # a run was meant
        raise CheckpointError(f"{error}, or a name on the hub (owner/name#revision)") from None
    fallback = folder.name if folder.run is not None else folder.path.resolve().name
    return NamedModel(label=label or fallback, path=folder.path)
