"""Atomic, durable files: written under a temporary name, flushed to the disk, renamed.

A reader sees the old content or the new, never a part; after a power cut a file that was reported as written is there.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from swerve.errors import ArtifactError, DiskFullError

MANIFEST_NAME = "MANIFEST.json"
TEMPORARY_PREFIX = ".tmp-"


def fsync(path: Path) -> None:
    """Wait until a file's or directory's content is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _temporary_name(path: Path) -> Path:
    return path.with_name(f"{TEMPORARY_PREFIX}{os.getpid()}-{path.name}")


def remove(path: Path) -> None:
    """Delete a file or a directory with its content; nothing happens where neither is."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    temporary = _temporary_name(path)
    if path.exists() and not (path.is_file() or path.is_dir()):  # a device would be replaced by a file of its name
        raise ArtifactError(f"cannot write {path}: it is not an ordinary file; give another name")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove(temporary)
        yield temporary
    except OSError as error:
        remove(temporary)
        if DiskFullError.matches(error):
            raise DiskFullError(path) from error
        raise ArtifactError(
            f"cannot write {path}: {error.strerror or error}; make {path.parent} writable or choose another directory"
        ) from error
    except BaseException:
        remove(temporary)
        raise


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary name beside `path`; on a clean exit flush it and rename it to `path`.

    Raises:
        DiskFullError: the file system has no room; the temporary file is removed.
        ArtifactError: any other refusal of the operating system.
    """
    with _replacing(path) as temporary:
        yield temporary
        fsync(temporary)
        os.replace(temporary, path)
        fsync(path.parent)


@contextmanager
def atomic_directory(path: Path, **provenance: Any) -> Iterator[Path]:
    """Yield a temporary directory; on a clean exit add its manifest, flush every file and rename it to `path`.

    `provenance` (JSON values) is stored in the manifest beside the files' digests. An existing directory at `path` is
    deleted just before the rename: a kill between the two leaves neither, never a mixture.

    Raises:
        DiskFullError: the file system has no room; nothing is left behind.
        ArtifactError: any other refusal of the operating system.
    """
    with _replacing(path) as temporary:
        temporary.mkdir()
        yield temporary
        digests = {
            str(file.relative_to(temporary)): sha256_file(file)
            for file in sorted(temporary.rglob("*"))
            if file.is_file()
        }
        manifest = temporary / MANIFEST_NAME
        manifest.write_text(dump_json({**provenance, "files": digests}), encoding="utf-8")
        for file in [*temporary.rglob("*"), temporary]:
            fsync(file)
        if path.exists():
            shutil.rmtree(path)
        os.rename(temporary, path)
        fsync(path.parent)


def create_directory(path: Path, texts: Mapping[str, str]) -> None:
    """Make a directory with these text files, all at once; `path` must not exist or be an empty directory."""
    with _replacing(path) as temporary:
        temporary.mkdir()
        for name, text in texts.items():
            (temporary / name).write_text(text, encoding="utf-8")
        for file in [*temporary.iterdir(), temporary]:
            fsync(file)
        os.rename(temporary, path)
        fsync(path.parent)


def sha256_file(path: Path) -> str:
    """Return the hexadecimal SHA-256 digest of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def verify_manifest(directory: Path) -> dict[str, Any]:
    """Return the manifest of `directory` after comparing every file with its digest.

    Raises:
        ArtifactError: the manifest is missing or unreadable, or a file it lists is missing or changed; the message
            names the file.
    """
    path = directory / MANIFEST_NAME
    if not path.is_file():
        raise ArtifactError(f"{directory} has no {MANIFEST_NAME}: it is not a complete checkpoint")
    manifest: dict[str, Any] = read_json(path)
    digests = manifest.get("files") if isinstance(manifest, dict) else None
    if not isinstance(digests, dict) or not digests:
        raise ArtifactError(f"{path} lists no files: it is damaged")
    for name, digest in digests.items():
        file = directory / name
        if not file.is_file():
            raise ArtifactError(f"{file} is listed in its manifest but missing")
        if sha256_file(file) != digest:
            raise ArtifactError(f"{file} is damaged: its SHA-256 differs from the manifest's")
    return manifest


def dump_json(value: Any) -> str:
    """Return `value` as indented strict JSON, records as objects. NaN and infinity are refused (ValueError)."""
    return json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False, default=record_fields) + "\n"


def record_fields(record: Any) -> dict[str, Any]:
    """Return a record's fields by name, for `json.dumps(..., default=record_fields)`.

    Raises:
        TypeError: it is no dataclass and no model of pydantic.
    """
    if is_dataclass(record) and not isinstance(record, type):
        return {field.name: getattr(record, field.name) for field in fields(record)}
    if hasattr(record, "model_dump"):
        return dict(record.model_dump(mode="json"))
    raise TypeError(f"{type(record).__name__} has no JSON form")


def write_json(path: Path, value: Mapping[str, Any] | list[Any]) -> None:
    """Write `value` as indented JSON, atomically. NaN and infinity are refused (ValueError)."""
    write_text(path, dump_json(value))


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8, atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def read_json(path: Path) -> Any:
    """Return the parsed content of a JSON file.

    Raises:
        ArtifactError: the file is missing or is not strict JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except FileNotFoundError:
        raise ArtifactError(f"{path} does not exist") from None
    except (ValueError, OSError) as error:
        raise ArtifactError(f"{path} is not readable JSON: {error}") from error
