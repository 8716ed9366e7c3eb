"""Find runs and models by name, start or continue a run, and load its configuration. Free of torch."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from swerve.artifacts.run import CheckpointRef, RunDirectory
from swerve.cli.console import console_progress
from swerve.config import Config, RuntimeConfig
from swerve.errors import ArtifactError, CheckpointError, ConfigError, nearest
from swerve.progress import Progress, SilentProgress
from swerve.recipes.loader import check_recorded_config, load_config

RUNS = Path("runs")
_STAGE_SECTIONS = ("eval", "probe", "report", "rollout", "runtime")


def check_name(name: str) -> str:
    """Return a run's name if it is safe as a directory's name.

    Raises:
        ConfigError: it is empty, has characters other than letters, digits, `.`, `_` and `-`, or starts like a hidden
            file or an option of other programs.
    """
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", name):
        raise ConfigError(
            f"run name {name!r} is not allowed: use 1 to 100 letters, digits, '.', '_' and '-', starting with a "
            "letter, a digit or '_'; set it with name=NAME, or choose a directory with --out"
        )
    return name


def run_path(config: Config, out: Path | None) -> Path:
    """Return where a run goes: `out` if given, else the run's name under `runs/`.

    Raises:
        ConfigError: the name is not allowed, or `out` looks like an option.
    """
    if out is None:
        return RUNS / check_name(config.name)
    if out.name.startswith("-"):
        raise ConfigError(f"--out {str(out)!r} is not allowed: the directory's name starts with '-'")
    return out


def is_main_process() -> bool:
    """Whether this is the only process or, under torchrun, the first: the one that checks, writes and reports."""
    return os.environ.get("RANK", "0") == "0"


def main_progress() -> Progress:
    """Return the progress on stderr; under torchrun that of the first process, the others show nothing."""
    return console_progress(sys.stderr) if is_main_process() else SilentProgress()


def set_thread_environment(runtime: RuntimeConfig) -> None:
    """Choose OpenMP's threads before torch is imported, unless the user did.

    Waiting threads sleep: with a model so small that each kernel takes microseconds, spinning ones cost more than they
    save.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if runtime.threads is not None:
        os.environ.setdefault("OMP_NUM_THREADS", str(runtime.threads))


def free_run_path(path: Path) -> Path:
    """Return `path`, or the first of `path-2`, `path-3`, ... that does not exist."""
    number, candidate = 1, path
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.name}-{number}")
    return candidate


def find_run(run: str) -> RunDirectory:
    """Return the run directory a user named, by its path or by its name under `runs/`.

    Raises:
        ArtifactError: there is no such run.
    """
    path = Path(run)
    if not path.exists() and (RUNS / path / "run.json").is_file():
        path = RUNS / path
    directory = RunDirectory(path)
    if not path.exists():
        raise ArtifactError(f"run directory {path} does not exist; `swerve runs` lists those under {RUNS}/")
    directory.read_provenance()
    return directory


def find_study(name: str) -> Path | None:
    """Return the directory of a study, named by its path or by its name under `runs/studies/`; None: not a study.

    Raises:
        ArtifactError: the study was not compared yet.
    """
    marks = ("run.json", "study.json", "study.yaml")
    places = (Path(name), RUNS / name, RUNS / "studies" / name)
    folder = next((place for place in places if any((place / mark).is_file() for mark in marks)), None)
    if folder is None or (folder / "run.json").is_file():
        return None
    if not (folder / "study.json").is_file():
        raise ArtifactError(
            f"the study {folder} was not compared yet; do it with: swerve study {shlex.quote(str(folder))} --gather"
        )
    return folder


def load_run_config(directory: RunDirectory, overrides: Sequence[str]) -> Config:
    """Return the configuration of a run, with overrides of what comes after training.

    Raises:
        ConfigError: an override would change how the run was trained.
    """
    for override in overrides:
        section = override.partition("=")[0].split(".")[0].strip()
        if section not in _STAGE_SECTIONS:
            allowed = ", ".join(f"{name}." for name in _STAGE_SECTIONS)
            raise ConfigError(
                f"override {override!r}: the run is trained already; only keys under {allowed} can be changed"
            )
    return load_config(directory.config_path, overrides)


def new_run(config: Config, out: Path | None) -> RunDirectory:
    """Return the run directory of a new run, which training will make.

    Checked here already, because training has to import torch before it can check.

    Raises:
        ConfigError: the directory exists and is not empty, or the run's name is not allowed.
    """
    directory = RunDirectory(run_path(config, out))
    if is_main_process():
        directory.check_new()
    return directory


def continue_run(config: Config, out: Path | None) -> RunDirectory:
    """Return the run directory of an earlier run of the same configuration.

    Raises:
        ConfigError: there is no such run, or its configuration differs; the message names the keys.
        ArtifactError: the directory is not a run directory.
    """
    directory = RunDirectory(run_path(config, out))
    if not directory.path.exists():
        raise ConfigError(f"run directory {directory.path} does not exist; start it without --resume")
    check_recorded_config(config, directory)
    return directory


_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(#[\w./-]+)?")
_INITIAL = ("0", "base")
"""How the model that a run began with is called."""
_LABEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True, slots=True, kw_only=True)
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
        known = ", ".join(entry.label for entry in RunDirectory(run_path).checkpoints()) or "none"
        raise CheckpointError(f"{name} is a run; name one of its checkpoints as {name}:SELECTOR (it has {known})")
    layout = "a folder in the Hugging Face layout or RUN:SELECTOR"
    if path.exists():
        raise CheckpointError(f"checkpoint {name} has no config.json or adapter_config.json; give {layout}")
    hint = nearest(name, map(str, path.parent.glob("*")))
    raise CheckpointError(f"checkpoint {name} does not exist{hint}{' Give' if hint else '; give'} {layout}")


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


def check_label(label: str, model: str) -> str:
    """Return a model's label if it can be the name of a file.

    Raises:
        ConfigError: it has characters that labels do not have.
    """
    if not _LABEL.fullmatch(label):
        raise ConfigError(f"model {model!r} has no name that a file can have; give it one: NAME={model}")
    return label


def _initial_model(name: str, run: RunDirectory | None) -> Path | str | None:
    """Return the model before training that `RUN:base` or `RUN:0` names; None where a name means something else."""
    run_name, colon, selector = name.rpartition(":")
    if selector not in _INITIAL or Path(name).exists() or (colon and not run_name):
        return None
    origin = find_run(run_name) if colon else run
    if origin is None or selector in {checkpoint.stage for checkpoint in origin.checkpoints()}:
        return None
    from swerve.train.starting_model import initial_model

    return initial_model(load_run_config(origin, ()), origin)


def resolve_model(text: str, *, run: RunDirectory | None = None) -> NamedModel:
    """Return the model that `[NAME=]MODEL` names: a selector of `run`, a folder, `RUN:SELECTOR` or a hub name.

    The selector `base` or `0` is the model that the run began with, unless a stage has that name.

    Raises:
        ConfigError: NAME is not allowed.
        CheckpointError: there is no such model.
        ArtifactError: there is no such run.
    """
    label, name = split_name(text)
    path = Path(name)
    initial = _initial_model(name, run)
    if initial is not None:
        return NamedModel(label=label or _INITIAL[1], path=initial, step=0 if run is not None else None)
    if run is not None and not path.exists() and not {":", "/"} & set(name):
        checkpoint = run.select_checkpoint(name)
        return replace(NamedModel.of(checkpoint), label=label or checkpoint.label)
    if _HUB_NAME.fullmatch(name) and not path.exists() and not Path(path.parts[0]).exists():
        return NamedModel(label=label or name.partition("#")[0].rpartition("/")[2], path=name)
    try:
        folder = resolve_checkpoint(name)
    except CheckpointError as error:
        if ":" in name or any((place / "run.json").is_file() for place in (path, RUNS / path)):
            raise  # a run was meant
        raise CheckpointError(f"{error}, or a name on the hub (owner/name#revision)") from None
    fallback = folder.name if folder.run is not None else folder.path.resolve().name
    return NamedModel(label=label or fallback, path=folder.path)
