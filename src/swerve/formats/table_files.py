"""Files and folders that hold a table: their endings, the files of a folder in their order, a digest of all.

A folder is a table in parts (`part-00000.jsonl`, ...), or what `save_to_disk` of Hugging Face `datasets` writes.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from swerve.artifacts.files import parse_json, regular_file, sha256_file
from swerve.errors import ArtifactError

FORMATS = ".json, .jsonl, .csv (each also with .gz or .zst), .parquet, .arrow or .eval"
"""The endings that are read."""
ENDING = re.compile(r"(?P<format>\.(?:json|jsonl|csv))(?:\.gz|\.zst)?$|(?P<binary>\.(?:parquet|arrow|eval))$")
_STATE = "state.json"
"""Of a data set that `save_to_disk` wrote: which files it has, in which order."""
_ABOUT = ("README.md", "LICENSE")
"""Files that may lie beside those of a table, as in a data set of the hub."""
_NO_TABLE = ("config.json", "run.json", "MANIFEST.json", "adapter_config.json")
"""Files that say that a folder is a model, a run or a checkpoint."""


def format_ending(path: Path) -> str | None:
    """Return the ending of a file's name that says its format, without that of its compression; None: no such one.

    >>> format_ending(Path("a.jsonl.zst")), format_ending(Path("a.parquet")), format_ending(Path("a.parquet.gz"))
    ('.jsonl', '.parquet', None)
    """
    found = ENDING.search(path.name)
    return found and (found["format"] or found["binary"])


def is_table(path: Path) -> bool:
    """Return whether a path is called as a file of a table is, or is a folder that holds such files, and no model."""
    if format_ending(path) or not path.is_dir():
        return format_ending(path) is not None
    names = [one.name for one in path.iterdir()]
    return not set(_NO_TABLE) & set(names) and any(format_ending(Path(name)) for name in names)


def files_of(path: Path) -> list[Path]:
    """Return the files of a table in their order: the path itself, or the files of a folder by name, 2 before 10.

    Raises:
        ArtifactError: a folder holds no such file, or other files too, or files of several formats.
    """
    if not path.is_dir():
        return [path]
    if (path / "dataset_dict.json").exists():
        splits = ", ".join(sorted(one.name for one in path.iterdir() if one.is_dir()))
        raise ArtifactError(f"{path} holds a data set of several splits ({splits}); give the folder of one of them")
    if (path / _STATE).exists():
        return _saved(path)

    # Names that begin with a dot or `_` are those of systems, such as `_SUCCESS`.
    files = sorted((one for one in path.iterdir() if one.name[0] not in "._" and one.name not in _ABOUT), key=_counted)
    others = [one for one in files if format_ending(one) is None]
    if others or not files:
        what = f"{others[0].name}, which is no part of a table" if others else "no file"
        inner = next((one for one in others if one.is_dir() and is_table(one)), None)
        fix = f"give a file that ends in {FORMATS}, or a folder of such files alone"
        raise ArtifactError(f"{path} is a folder and has {what}; {fix if inner is None else f'did you mean {inner}?'}")
    if len({format_ending(one) for one in files}) > 1:
        other = next(one for one in files if format_ending(one) != format_ending(files[0]))
        raise ArtifactError(
            f"{path} has files of several formats, {files[0].name} and {other.name}; give one of them, or a folder of "
            "one format"
        )
    return files


def _counted(path: Path) -> list[str | int]:
    """Return what names are sorted by: texts and the numbers between them."""
    return [int(part) if place % 2 else part for place, part in enumerate(re.split(r"(\d+)", path.name))]


def _saved(path: Path) -> list[Path]:
    """Return the files of a data set that `save_to_disk` wrote, in its order."""
    try:
        state = parse_json(regular_file(path / _STATE).read_text(encoding="utf-8"))
        names = [one["filename"] for one in state["_data_files"]]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        raise ArtifactError(f"{path / _STATE} does not say which files the data set has; save it again") from None
    if not names or not all(
        isinstance(name, str) and Path(name).name == name and name.endswith(".arrow") for name in names
    ):
        raise ArtifactError(f"{path / _STATE} must name one .arrow file or more of its folder, got {names!r:.60}")
    if lost := [name for name in names if not (path / name).exists()]:
        raise ArtifactError(f"{path} lacks {lost[0]}, which its {_STATE} names; give the whole folder")
    return [path / name for name in names]


def digest_of_table(path: Path) -> str:
    """Return the SHA-256 digest of a file, or of the names and the digests of a folder's files."""
    if not path.is_dir():
        return sha256_file(path)
    said = "".join(f"{sha256_file(file)}  {file.name}\n" for file in files_of(path))
    return hashlib.sha256(said.encode("utf-8", "surrogateescape")).hexdigest()


def named_digest(path: Path) -> dict[str, str]:
    """Return the name and the digest of a file or folder, by which a table says what it was made from."""
    return {"name": path.name or path.resolve().name, "sha256": digest_of_table(path)}
