"""Find runs by name, start or continue one, and load its configuration."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from swerve.artifacts.run import RunDirectory
from swerve.config import Config
from swerve.errors import ArtifactError, ConfigError
from swerve.recipes.loader import differing_keys, load_config

RUNS = Path("runs")
_STAGE_SECTIONS = ("eval", "probe", "report", "runtime")


def check_name(name: str) -> str:
    """Return a run's name if it is safe as a directory's name.

    Raises:
        ConfigError: it is empty, starts with a dot or has characters other than letters, digits, `.`, `_` and `-`.
    """
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}", name):
        raise ConfigError(
            f"run name {name!r} is not allowed: use 1 to 100 letters, digits, '.', '_' and '-', not starting with '.'; "
            "set it with name=NAME, or choose a directory with --out"
        )
    return name


def is_main_process() -> bool:
    """Whether this is the only process or, under torchrun, the first: the one that checks, writes and reports."""
    return os.environ.get("RANK", "0") == "0"


def set_thread_environment(config: Config) -> None:
    """Choose OpenMP's threads before torch is imported, unless the user did.

    Waiting threads sleep: with a model so small that each kernel takes microseconds, spinning ones cost more than they
    save.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if config.runtime.threads is not None:
        os.environ.setdefault("OMP_NUM_THREADS", str(config.runtime.threads))


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
    directory = RunDirectory(out or RUNS / check_name(config.name))
    if is_main_process():
        directory.refuse_existing()
    return directory


def continue_run(config: Config, out: Path | None) -> RunDirectory:
    """Return the run directory of an earlier run of the same configuration.

    Raises:
        ConfigError: there is no such run, or its configuration differs; the message names the keys.
        ArtifactError: the directory is not a run directory.
    """
    directory = RunDirectory(out or RUNS / check_name(config.name))
    if not directory.path.exists():
        raise ConfigError(f"run directory {directory.path} does not exist; start it without --resume")
    directory.read_provenance()
    keys = differing_keys(load_config(directory.config_path), config)
    if keys:
        shown = ", ".join(f"'{key}'" for key in keys[:5]) + (f" and {len(keys) - 5} more" if len(keys) > 5 else "")
        raise ConfigError(
            f"cannot resume {directory.path}: its configuration differs in {shown}; "
            "give the same recipe and overrides, or start another run with --out"
        )
    return directory
