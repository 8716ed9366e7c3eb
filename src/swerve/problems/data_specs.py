"""Data specs, and the files, folders and data sets of the hub that they name.

Data sets of the hub and folders written by `save_to_disk` are read by the package `datasets` (extra `hub`).
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

from pydantic import Field

from swerve.errors import ArtifactError, ConfigError, MissingExtraError, keep_secret, nearest, not_there, redacted
from swerve.formats.records import FileRecord, iter_records
from swerve.formats.table_files import ENDING, FORMATS
from swerve.settings import Words

Specs = Words
"""One data spec or several: `[split@]source[:config][#revision]`."""
Sources = Annotated[Specs, Field(min_length=1)]
"""At least one data spec."""

_MESSAGE_CHARS = 300
_SPLIT = re.compile(r"[\w.-]+")
_HUB_NAME = re.compile(r"\w[\w.-]*/[\w.-]+")
_SHARD = re.compile(r"(?P<split>.+?)-(?P<number>\d+)(?:-of-(?P<count>\d+))?(?:-[0-9a-f]{16})?")
"""`train-00000-of-00002`, also with the fingerprint that older exports add."""


@dataclass(frozen=True, slots=True)
class DataSpec:
    """Where problems are: `[split@]source[:config][#revision]`."""

    source: str
    """A file, a folder, or the name `owner/name` of a data set on the hub."""
    split: str | None = None
    config: str | None = None
    """Which of several data sets under one name; in a folder: the subfolder."""
    revision: str | None = None
    """Commit, tag or branch on the hub."""

    @property
    def path(self) -> Path:
        """The source as a path, `~` replaced by the home directory."""
        return Path(os.path.expanduser(self.source))

    @property
    def is_on_hub(self) -> bool:
        """Whether it is the name of a data set on the hub."""
        is_name = _HUB_NAME.fullmatch(self.source) and not ENDING.search(self.source)
        return bool(is_name) and not os.path.exists(self.path)

    def __str__(self) -> str:
        parts = (f"{self.split}@" if self.split else "", self.source, f":{self.config}" if self.config else "")
        return "".join(parts) + (f"#{self.revision}" if self.revision else "")


def parse_spec(text: str) -> DataSpec:
    """Return what a data spec says. Where the marks `@`, `:`, `#` are part of a path that exists, the path wins.

    Raises:
        ConfigError: the source, or what should stand beside a mark, is empty.

    >>> parse_spec("train@openai/gsm8k:main#v1")
    DataSpec(source='openai/gsm8k', split='train', config='main', revision='v1')
    """
    # The ways to read it, from the whole text as a path to the one in which every mark counts.
    splits: list[tuple[str | None, str]] = [(None, text)]
    split, mark, rest = text.partition("@")
    if mark and (not split or _SPLIT.fullmatch(split)):
        splits.append((split, rest))
    readings = [
        DataSpec(source, split, config, revision)
        for split, after in splits
        for before, revision in ((after, None), _cut(after, "#"))
        for source, config in ((before, None), _cut(before, ":"))
    ]
    existing = (spec for spec in readings if spec.source and os.path.exists(spec.path))
    spec = next(existing, readings[-1])
    if not spec.source.strip() or "" in (spec.split, spec.config, spec.revision):
        raise ConfigError(f"data spec {text!r} is incomplete; write [split@]source[:config][#revision]")
    return spec


def _cut(text: str, mark: str) -> tuple[str, str | None]:
    before, is_there, after = text.rpartition(mark)
    return (before, after) if is_there else (text, None)


def read_source(spec: str, *, default_split: str | None = None) -> Iterable[FileRecord]:
    """Yield the records of a file, of a folder's split or of a data set's split on the hub, in their order.

    A folder holds the split `train` as `train.jsonl` (or another ending), as `train-00000-of-00002.parquet` and so on,
    as files of a subfolder `train`, each also under `data/`, or as a data set saved by `save_to_disk`.

    Args:
        spec: `[split@]source[:config][#revision]`.
        default_split: The split where the spec names none; None: the source must have only one.

    Raises:
        ConfigError: there is no such source or split, or the hub cannot be reached.
        ArtifactError: a file cannot be read.
        MissingExtraError: the package `datasets` is needed and missing.
    """
    source = parse_spec(spec)

    # What exists here comes before a name on the hub.
    if os.path.isdir(source.path):
        return _read_folder(source, source.split or default_split)
    if os.path.exists(source.path):
        _refuse_parts(source, "is one file", "split", "config", "revision")
        return iter_records(source.path)
    if source.is_on_hub:
        return read_hub_dataset(
            source.source, split=source.split or default_split, config=source.config, revision=source.revision
        )
    raise _missing(source)


def check_source(spec: str) -> None:
    """Check that a file or folder is there; the hub is not asked for a data set on it.

    Raises:
        ConfigError: there is no such source.
    """
    source = parse_spec(spec)
    if not (source.is_on_hub or os.path.exists(source.path)):
        raise _missing(source)


def _missing(spec: DataSpec) -> ConfigError:
    fix = f"give a file that ends in {FORMATS}, a folder, or the name owner/name of a data set on the hub"
    return ConfigError(f"data source {spec.source!r} {not_there(spec.source, fix)}")


def _refuse_parts(spec: DataSpec, reason: str, *parts: str, path: Path | None = None) -> None:
    for part in parts:
        value = getattr(spec, part)
        if value is not None:
            raise ConfigError(
                f"data spec '{spec}' names the {part} {value!r}, but {path or spec.path} {reason}; leave it out"
            )


def _read_folder(spec: DataSpec, split: str | None) -> Iterable[FileRecord]:
    _refuse_parts(spec, "is a folder, which has no revisions", "revision")

    # A config is a subfolder.
    root = spec.path
    if spec.config is not None:
        folders = [folder.name for folder in root.iterdir() if folder.is_dir()]
        if spec.config not in folders:
            raise ConfigError(
                f"folder {root} has no subfolder {spec.config!r} for the config of '{spec}'"
                f"{nearest(spec.config, folders)}"
            )
        root = root / spec.config

    # Data sets that `save_to_disk` wrote say so by these files.
    if (root / "state.json").is_file():
        _refuse_parts(spec, "is one saved data set", "split", path=root)
        return read_saved_dataset(root, split=None)
    if (root / "dataset_dict.json").is_file():
        return read_saved_dataset(root, split=split)

    # All other folders hold files, by name or subfolder one split each.
    splits = _splits(root)
    names = sorted(splits)
    if split is None and len(names) == 1:
        split = names[0]
    if split is None:
        raise ConfigError(f"folder {root} has {len(names)} splits ({', '.join(names)}); write SPLIT@{spec.source}")
    if split in splits:
        return itertools.chain.from_iterable(map(iter_records, _in_order(splits[split])))
    configs = sorted(folder.name for folder in root.iterdir() if folder.is_dir() and split in _splits(folder))
    if configs:
        raise ConfigError(
            f"folder {root} has the split {split!r} in {', '.join(configs)}; write {split}@{spec.source}:{configs[0]}"
        )
    what = f"it has {', '.join(names)}" if names else f"no file in it ends in {FORMATS}"
    raise ConfigError(f"folder {root} has no split {split!r}; {what}{nearest(split, names)}")


def _splits(root: Path) -> dict[str, list[Path]]:
    """Return the data files of each split of a folder; files before subfolders before those under `data/`."""
    splits: dict[str, list[Path]] = {}
    for folder in (root, root / "data"):
        here: dict[str, list[Path]] = {}
        for path in _data_files(folder):
            here.setdefault(_split_and_shard(path)[0], []).append(path)
        subfolders = sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
        for subfolder in subfolders:
            files = _data_files(subfolder)
            if files and subfolder.name != "data":
                here.setdefault(subfolder.name, files)
        splits = {**here, **splits}
    return splits


def _data_files(folder: Path) -> list[Path]:
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    return [path for path in paths if path.is_file() and ENDING.search(path.name) and path.name[0] != "."]


def _split_and_shard(path: Path) -> tuple[str, re.Match[str] | None]:
    """Return the split that a file's name says, and the number of its part, where it is one of several."""
    stem = ENDING.sub("", path.name)
    shard = _SHARD.fullmatch(stem)
    return shard["split"] if shard else stem, shard


def _in_order(paths: Sequence[Path]) -> Sequence[Path]:
    """Return a split's files in the order of their shard numbers.

    Raises:
        ConfigError: they are copies of the split in several formats.
        ArtifactError: a shard is missing.
    """
    named = [_split_and_shard(path) for path in paths]
    shards = {int(shard["number"]): path for (_, shard), path in zip(named, paths, strict=True) if shard}
    is_split = len({split for split, _ in named}) == 1
    stems = {ENDING.sub("", path.name) for path in paths}
    if len(stems) < len(paths) or (is_split and len(paths) > 1 and len(shards) < len(paths)):
        names = ", ".join(path.name for path in paths)
        raise ConfigError(
            f"{paths[0].parent} holds one split several times ({names}); give the path of the one to read"
        )
    if not is_split or not shards:  # a subfolder of files with names of their own, or one file
        return paths
    count = max(int(shard["count"] or 0) for _, shard in named if shard)
    missing = sorted(set(range(count)) - set(shards))
    if missing:
        raise ArtifactError(
            f"{paths[0].parent} has {len(paths)} of {count} parts of {named[0][0]!r}; part {missing[0]} is missing"
        )
    return [shards[number] for number in sorted(shards)]


def read_hub_dataset(name: str, *, split: str | None, config: str | None, revision: str | None) -> list[FileRecord]:
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
        with _one_try(name):
            dataset = datasets.load_dataset(name, config, split=split, revision=revision)
    except ValueError as error:  # an unknown split or config; its message lists the known ones
        raise ConfigError(f"data set '{name}' cannot be read as asked: {_one_line(error)}") from None
    except (OSError, datasets.exceptions.DatasetsError) as error:
        raise ConfigError(
            f"'{name}' is neither a local path nor a data set that can be reached on the hub ({_one_line(error)}); "
            "without a network, fetch it where there is one (hf download --repo-type dataset --local-dir FOLDER "
            f"{name}) and write the folder in place of the name"
        ) from None
    return _rows(dataset, split, name if config is None else f"{name}:{config}")


@contextmanager
def _one_try(name: str) -> Iterator[None]:
    """Read the cache alone inside the block where the hub cannot be reached, which is tried once and silently."""
    import datasets.config
    from huggingface_hub import HfApi, constants, get_token
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    keep_secret(get_token())
    was_offline = constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE
    try:
        HfApi().dataset_info(name, timeout=constants.HF_HUB_ETAG_TIMEOUT)
    except (HfHubHTTPError, HFValidationError):
        pass  # it answers, and what it refuses is told below
    except Exception:  # what the hub's HTTP library raises differs between its versions
        constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE = was_offline


def read_saved_dataset(folder: Path, *, split: str | None) -> list[FileRecord]:
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
        dataset = datasets.load_from_disk(str(folder))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtifactError(f"{folder} cannot be read as a saved data set: {_one_line(error)}") from None
    return _rows(dataset, split, str(folder))


def _datasets(purpose: str) -> ModuleType:
    try:
        import datasets
    except ImportError:
        raise MissingExtraError("datasets", "hub", purpose) from None
    module: ModuleType = datasets
    return module


def _rows(dataset: Any, split: str | None, name: str) -> list[FileRecord]:
    if isinstance(dataset, Mapping):  # all splits by name
        if split is None and len(dataset) == 1:
            split = next(iter(dataset))
        if split not in dataset:
            names = ", ".join(sorted(dataset))
            asked = f"no split {split!r}" if split else f"{len(dataset)} splits"
            raise ConfigError(
                f"data set '{name}' has {asked} ({names}); write SPLIT@{name}{nearest(split or '', list(dataset))}"
            )
        dataset = dataset[split]
    place = f"{split}@{name}" if split else name
    return [FileRecord(f"{place}, row {number}", dict(row)) for number, row in enumerate(dataset, start=1)]


def _one_line(error: BaseException) -> str:
    return " ".join(redacted(str(error)).split())[:_MESSAGE_CHARS] or type(error).__name__
