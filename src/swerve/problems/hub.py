"""Data sets read by the package `datasets` (extra `hub`): those of the hub, and folders written by `save_to_disk`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from swerve.errors import ArtifactError, ConfigError, MissingExtraError, nearest
from swerve.formats.records import Record

__all__ = ["read_hub_dataset", "read_saved_dataset"]

_MESSAGE_CHARS = 300


def read_hub_dataset(name: str, *, split: str | None, config: str | None, revision: str | None) -> list[Record]:
    """Return the rows of a split of a data set on the hub, or of its copy in the cache of `datasets`.

    Args:
        name: `owner/name`.
        split: None: the data set must have only one.
        config: Which of its configurations, where it has several.
        revision: Commit, tag or branch; None: the newest.

    Raises:
        ConfigError: there is no such data set, config or split, or the hub cannot be reached.
        MissingExtraError: the package `datasets` is missing.
    """
    datasets = _datasets(f"reading '{name}' from the hub")
    try:
        found = datasets.load_dataset(name, config, split=split, revision=revision)
    except ValueError as error:  # an unknown split or config; its message lists the known ones
        raise ConfigError(f"data set '{name}' cannot be read as asked: {_one_line(error)}") from None
    except (OSError, datasets.exceptions.DatasetsError) as error:
        raise ConfigError(
            f"'{name}' is neither a local path nor a data set that can be reached on the hub ({_one_line(error)}); "
            "without a network, fetch it where there is one (hf download --repo-type dataset --local-dir FOLDER "
            f"{name}) and write the folder in place of the name"
        ) from None
    return _rows(found, split, name if config is None else f"{name}:{config}")


def read_saved_dataset(folder: Path, *, split: str | None) -> list[Record]:
    """Return the rows of a folder that was written by `save_to_disk`.

    Args:
        folder: It holds one data set, or one for each split.
        split: Which of several; None: there must be only one.

    Raises:
        ConfigError: there is no such split.
        ArtifactError: the folder is damaged.
        MissingExtraError: the package `datasets` is missing.
    """
    datasets = _datasets(f"reading {folder}, written by save_to_disk,")
    try:
        found = datasets.load_from_disk(str(folder))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtifactError(f"{folder} cannot be read as a saved data set: {_one_line(error)}") from None
    return _rows(found, split, str(folder))


def _datasets(purpose: str) -> ModuleType:
    try:
        import datasets
    except ImportError:
        raise MissingExtraError("datasets", "hub", purpose) from None
    module: ModuleType = datasets
    return module


def _rows(found: Any, split: str | None, name: str) -> list[Record]:
    if isinstance(found, Mapping):  # all splits by name
        if split is None and len(found) == 1:
            split = next(iter(found))
        if split not in found:
            names = ", ".join(sorted(found))
            asked = f"no split {split!r}" if split else f"{len(found)} splits"
            raise ConfigError(
                f"data set '{name}' has {asked} ({names}); write SPLIT@{name}{nearest(split or '', list(found))}"
            )
        found = found[split]
    place = f"{split}@{name}" if split else name
    return [Record(f"{place}, row {number}", dict(row)) for number, row in enumerate(found, start=1)]


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:_MESSAGE_CHARS] or type(error).__name__
