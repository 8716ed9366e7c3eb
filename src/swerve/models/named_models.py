"""Models as users name them: a folder, `RUN:LABEL`, a label of the run at hand, or a hub name. Free of torch."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from swerve.artifacts.checkpoint import CheckpointRef
from swerve.artifacts.run import RUNS, RunDirectory, find_run
from swerve.errors import CheckpointError, ConfigError, not_there

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(#[\w./-]+)?")
SERVED = ("http://", "https://")
"""What the model of a server begins with: `URL#MODEL`."""
_INITIAL = ("0", "base")
"""How the model that a run began with is called."""
_LABEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class NamedModel:
    """A model with its label in tables."""

    label: str
    path: Path | str
    """Folder in the Hugging Face layout, or `owner/name` with an optional `#revision`."""
    step: int | None = None
    """Global step, where it is a checkpoint of the run at hand."""

    @classmethod
    def of(cls, checkpoint: CheckpointRef) -> NamedModel:
        """Return a checkpoint of the run at hand."""
        return cls(label=checkpoint.label, path=checkpoint.path, step=checkpoint.step)

    if not TYPE_CHECKING:  # a type checker knows the attributes

        def __getattr__(self, name: str) -> Any:
            """Say how it is loaded, whose attribute may have been meant."""
            load = f"from_pretrained({str(self.path)!r})"
            raise AttributeError(f"a NamedModel has no {name!r}; transformers loads it: AutoModelForCausalLM.{load}")

    def __fspath__(self) -> str:
        """Return its folder or its name on the hub, so that `from_pretrained` takes it."""
        return str(self.path)

    def __str__(self) -> str:
        """Return the same; libraries make a text of what they are given."""
        return str(self.path)

    def __repr__(self) -> str:
        """Return its label and where it is."""
        return f"NamedModel({self.label!r}: {str(self.path)!r})"


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
    if any((path / file).is_file() for file in ("config.json", "adapter_config.json")):
        return NamedFolder(name=name, path=path)
    run_name, colon, selector = name.rpartition(":")
    if colon and run_name and not path.exists():
        run = find_run(run_name)
        checkpoint = run.select_checkpoint(selector)
        return NamedFolder(name=checkpoint.label, path=checkpoint.path, run=run)

    # What is named is no checkpoint: say what would be one.
    run_path = next((place for place in (path, RUNS / path) if (place / "run.json").is_file()), None)
    if run_path is not None:
        known = ", ".join(entry.label for entry in RunDirectory(run_path).checkpoints) or "none"
        raise CheckpointError(f"{name} is a run; name one of its checkpoints as {name}:SELECTOR (it has {known})")
    layout, meant = "a folder in the Hugging Face layout or RUN:SELECTOR", _meant_by_slash(path, is_sure=True)
    if path.exists():
        fix = meant or f"; give {layout}"
        raise CheckpointError(f"checkpoint {name} has no config.json or adapter_config.json{fix}")
    if meant:
        raise CheckpointError(f"checkpoint {name} does not exist{meant}")
    raise CheckpointError(f"checkpoint {name} {not_there(name, f'give {layout}')}")


def is_pair(given: Any) -> TypeGuard[tuple[Any, Any]]:
    """Whether something is a model in memory with its tokenizer: `(model, tokenizer)`."""
    return isinstance(given, tuple | list) and len(given) == 2 and hasattr(given[1], "convert_ids_to_tokens")


def key_label(key: Any) -> str:
    """Return the label that a key of a mapping label -> model is.

    Raises:
        ConfigError: it is neither a text nor a number, such as a model.
    """
    if not isinstance(key, str | int | float):
        raise ConfigError(f"{type(key).__name__} is no name of a model; give models by name, as in {{'base': model}}")
    return str(key)


def no_model(given: Any) -> ConfigError:
    """Return what to say of something that is no model; it is named by its type alone, for it may be long."""
    if isinstance(given, str | os.PathLike):
        return ConfigError(f"{os.fspath(given)!r} is a name or a folder, which has its tokenizer; give it without one")
    return ConfigError(
        f"{type(given).__name__} is no model; give a folder, RUN:LABEL, owner/name on the hub, run.model('rl'), or a "
        "model of transformers in memory, alone or as (model, tokenizer)"
    )


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


def served_name(text: str) -> NamedModel:
    """Return the model of a server that `[NAME=]MODEL` names.

    Raises:
        ConfigError: NAME is not allowed.

    >>> served_name("Qwen/Qwen3-8B").label
    'Qwen3-8B'
    """
    label, name = split_name(text)
    return NamedModel(label=label or name.rpartition("/")[2], path=name)


def check_label(label: str, model: str) -> str:
    """Return a model's label if it can be the name of a file.

    Raises:
        ConfigError: it has characters that labels do not have.
    """
    if not _LABEL.fullmatch(label):
        raise ConfigError(f"model {model!r} has no name that a file can have; give it one: NAME={model}")
    return label


def _meant_by_slash(path: Path, *, is_sure: bool = False) -> str:
    """Return what to say of a path in the folder of a run that is no checkpoint: the form with the run's name.

    Args:
        path: what was given.
        is_sure: whether nothing else than the run's folder can be meant; else its last part must be a selector.
    """
    place = next((one for one in path.parents if (one / "run.json").is_file()), None)
    place = place or next((one for one in path.parents if (RUNS / one / "run.json").is_file()), None)
    if place is None:
        return ""
    run = RunDirectory(place if (place / "run.json").is_file() else RUNS / place)
    labels = [one.label for one in run.checkpoints]
    if path.name in {*_INITIAL, *labels, *(word for one in run.checkpoints for word in (one.name, one.stage))}:
        return f"; did you mean '{place}:{path.name}'?"
    there = f"; a checkpoint of this run is named as {place}:SELECTOR (it has {', '.join(labels) or 'none'})"
    return there if is_sure else ""


def _initial_model(name: str, run: RunDirectory | None) -> Path | str | None:
    """Return the model before training that `RUN:base` or `RUN:0` names; None where a name means something else."""
    run_name, colon, selector = name.rpartition(":")
    if selector not in _INITIAL or Path(name).exists() or (colon and not run_name):
        return None
    origin = find_run(run_name) if colon else run
    if origin is None or selector in {checkpoint.stage for checkpoint in origin.checkpoints}:
        return None
    from swerve.models.starting_model import initial_model
    from swerve.recipes.loader import load_run_config

    return initial_model(load_run_config(origin, ()), origin)


def resolve_model(text: str, *, run: RunDirectory | None = None) -> NamedModel:
    """Return the model that `[NAME=]MODEL` names: a selector of `run`, a folder, `RUN:SELECTOR` or a hub name.

    Or the model of a server, as `URL#MODEL`. The selector `base` or `0` is the model that the run began with, unless a
    stage has that name.

    Raises:
        ConfigError: NAME is not allowed.
        CheckpointError: there is no such model.
        ArtifactError: there is no such run.
    """
    label, name = split_name(text)
    if name.startswith(SERVED):
        url, _, model = name.partition("#")
        if not model:
            raise ConfigError(f"model {text!r}: name the server's model after the URL, as in {url}#MODEL")
        return NamedModel(label=label or model.rpartition("/")[2], path=name)
    path = Path(name)
    initial = _initial_model(name, run)
    if initial is not None:
        return NamedModel(label=label or _INITIAL[1], path=initial, step=0 if run is not None else None)
    if run is not None and not path.exists() and not {":", "/"} & set(name):
        checkpoint = run.select_checkpoint(name)
        return replace(NamedModel.of(checkpoint), label=label or checkpoint.label)
    if _HUB_NAME.fullmatch(name) and not path.exists() and not Path(path.parts[0]).exists():
        if meant := _meant_by_slash(path):
            raise CheckpointError(f"{name} is neither a folder nor in the form RUN:SELECTOR{meant}")
        return NamedModel(label=label or name.partition("#")[0].rpartition("/")[2], path=name)
    try:
        folder = resolve_checkpoint(name)
    except CheckpointError as error:
        is_run = any((place / "run.json").is_file() for place in (path, RUNS / path))
        if ":" in name or is_run or _meant_by_slash(path, is_sure=True):
            raise  # a run was meant
        raise CheckpointError(f"{error}, or a name on the hub (owner/name#revision)") from None
    fallback = folder.name if folder.run is not None else folder.path.resolve().name
    return NamedModel(label=label or fallback, path=folder.path)
