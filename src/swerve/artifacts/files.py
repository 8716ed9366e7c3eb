"""Atomic, durable files: written under a temporary name, flushed to the disk, renamed.

A reader sees the old content or the new, never a part; after a power cut a file that was reported as written is there.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from glob import escape
from pathlib import Path
from typing import Any

from swerve.errors import ArtifactError, DiskFullError, SwerveError, WriteError, system_fault

MANIFEST_NAME = "MANIFEST.json"
TEMPORARY_PREFIX = ".swerve-tmp-"
"""Of the names of what is half written, and of nothing else: what begins so may be deleted."""
SEAL = "fields_sha256"
"""Key of a JSON object's digest of its own other fields."""


def fsync(path: Path) -> None:
    """Wait until a file's or directory's content is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        os.close(descriptor)


def missing_folders(folder: Path) -> list[Path]:
    """Return a directory and those it is in as far as they are missing, the innermost first."""
    return [one for one in (folder, *folder.parents) if not one.exists()]


def _make_folder(folder: Path) -> None:
    """Make a directory and those it is in, where they are missing; their names are on the disk then."""
    missing = missing_folders(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for one in missing:
        fsync(one.parent)


def remove_empty(folders: Iterable[Path]) -> None:
    """Remove directories, the innermost first, in which there is nothing but the file of a lock."""
    for folder in folders:
        with suppress(OSError):
            if [one.name for one in folder.iterdir()] == [".lock"]:
                (folder / ".lock").unlink()
            folder.rmdir()


def remove(path: Path) -> None:
    """Delete a file, a link or a directory with its content; nothing happens if it does not exist.

    What a link leads to stays. Of a directory the manifest goes first: what is half deleted does not look complete.
    """
    if path.is_dir() and not path.is_symlink():
        (path / MANIFEST_NAME).unlink(missing_ok=True)
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _writer(process: int) -> str:
    """Return what names a process among those of all machines that share a file system, and all times."""
    host = hashlib.sha256(os.uname().nodename.encode()).hexdigest()[:8]
    return f"{host}-{process}-{_start_time(process)}"


def _start_time(process: int) -> str:
    """Return when a process began, in clock ticks since the machine did; empty where the system does not tell."""
    try:
        return (
            Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
        )
    except OSError:
        return ""


def _remove_orphans(path: Path) -> None:
    """Delete what processes of this machine that are no more left of earlier attempts to write `path`."""
    for orphan in path.parent.glob(f"{TEMPORARY_PREFIX}*-{escape(path.name)}"):
        writer = orphan.name.removeprefix(TEMPORARY_PREFIX).removesuffix(f"-{path.name}")
        named = re.fullmatch(r"[0-9a-f]{8}-(\d{1,9})-\d*", writer)
        if named and writer.startswith(_writer(0)[:9]) and not _is_running(int(named[1]), writer):
            remove(orphan)


def _is_running(process: int, writer: str) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return True
    return not _start_time(process) or _writer(process) == writer  # a number is given again to another process


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    temporary = path.with_name(f"{TEMPORARY_PREFIX}{_writer(os.getpid())}-{path.name}")
    if path.exists() and not (path.is_file() or path.is_dir()):  # a device would be replaced by a file of its name
        raise ArtifactError(f"cannot write {path}: it is not an ordinary file; give another name")
    missing = missing_folders(path.parent)
    try:
        _make_folder(path.parent)
        remove(temporary)
        _remove_orphans(path)
        yield temporary
    except BaseException as error:
        remove(temporary)
        remove_empty(missing)
        refusal = _refusal(error, path)
        if refusal is None:
            raise
        if DiskFullError.matches(refusal):
            raise DiskFullError(path, refusal) from error
        raise WriteError(
            f"cannot write {path}: "
            + (
                system_fault(refusal)
                or f"{refusal.strerror or refusal}; make {path.parent} writable or choose another directory"
            )
        ) from error


def _refusal(error: BaseException, path: Path) -> OSError | None:
    """Return the system's refusal to write `path` that an exception is, or tells in words as safetensors does.

    None for what names only other files, such as one that is read meanwhile, and for what is explained already.
    """
    if isinstance(error, OSError):
        places = [Path(str(name)) for name in (error.filename, error.filename2) if name is not None]
        return error if error.errno and (not places or any(_is_of(place, path) for place in places)) else None
    told = None if isinstance(error, SwerveError) else re.search(r"\(os error (\d+)\)", str(error))
    return OSError(int(told[1]), os.strerror(int(told[1]))) if told else None


def _is_of(place: Path, path: Path) -> bool:
    """Whether a place is touched by writing `path`: it, what it is in or holds, and what is half written."""
    is_temporary = any(part.startswith(TEMPORARY_PREFIX) for part in place.parts)
    return is_temporary or path.is_relative_to(place) or place.is_relative_to(path)


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary file beside `path`, still empty; on a clean exit flush it and rename it to `path`.

    It has the permissions that the umask gives a new file, whatever the writer made of them.

    Raises:
        DiskFullError: the file system has no room; the temporary file is removed.
        WriteError: any other refusal of the operating system; one that names another file is raised as it is.
    """
    with _replacing(path) as temporary:
        temporary.touch()
        mode = temporary.stat().st_mode
        yield temporary
        _set_mode(temporary, mode)
        fsync(temporary)
        os.replace(temporary, path)
        fsync(path.parent)


def _set_mode(file: Path, mode: int) -> None:
    """Give a file these permissions: safetensors makes files that only their owner can read."""
    if file.stat().st_mode != mode:
        file.chmod(stat.S_IMODE(mode))


@contextmanager
def atomic_directory(path: Path, manifest: Mapping[str, Any] = {}, **provenance: Any) -> Iterator[Path]:
    """Yield a temporary directory; on a clean exit add its manifest, flush every file and rename it to `path`.

    `provenance` (JSON values) is stored in the manifest beside the files' digests and sizes and, last, a digest of the
    manifest's own fields. An existing directory at `path` is deleted just before the rename: a kill between the two
    leaves neither, never a mixture.

    Args:
        path: the directory.
        manifest: further entries, read on exit; digests of files that were made while writing are its `files`.
        provenance: further entries.

    Raises:
        DiskFullError: the file system has no room; nothing is left behind.
        WriteError: any other refusal of the operating system.
    """
    with _replacing(path) as temporary:
        temporary.mkdir()
        yield temporary
        # The manifest is written last: a directory without one is not complete.
        known: Mapping[str, str] = manifest.get("files", {})
        files = {str(one.relative_to(temporary)): one for one in sorted(temporary.rglob("*")) if one.is_file()}
        digests = {name: known.get(name) or sha256_file(file) for name, file in files.items()}
        sizes = {name: file.stat().st_size for name, file in files.items()}
        entries = {**provenance, **manifest, "files": digests, "sizes": sizes}
        (temporary / MANIFEST_NAME).write_text(dump_json(sealed(entries)), encoding="utf-8")
        # All is on the disk before the name is there.
        _flush(temporary)
        remove(path)
        os.rename(temporary, path)
        fsync(path.parent)


def _flush(directory: Path) -> None:
    """Wait until everything in a directory is on the disk, with the permissions that the umask gives."""
    mode = directory.stat().st_mode & 0o666
    for file in [*directory.rglob("*"), directory]:
        if file.is_file():
            _set_mode(file, mode)
        fsync(file)


@contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """Yield a temporary directory; on a clean exit flush every file and rename it to `path`, without a manifest.

    `path` must not exist or be an empty directory.

    Raises:
        DiskFullError: the file system has no room; nothing is left behind.
        WriteError: any other refusal of the operating system.
    """
    with _replacing(path) as temporary:
        temporary.mkdir()
        yield temporary
        _flush(temporary)
        os.rename(temporary, path)
        fsync(path.parent)


@contextmanager
def passing_directory(path: Path) -> Iterator[Path]:
    """Yield a temporary directory that is gone after the block; what a kill leaves goes with the next of its `path`.

    Raises:
        DiskFullError, WriteError: see `new_directory`.
    """
    with _replacing(path) as temporary:
        temporary.mkdir()
        yield temporary
        remove(temporary)


def check_space(path: Path, num_bytes: int) -> None:
    """Check that the file system of `path`, which need not exist, has room for so many bytes.

    Raises:
        ArtifactError: it has not.
    """
    place = next(one for one in (path, *path.absolute().parents) if one.exists())
    free = shutil.disk_usage(place).free
    if free < num_bytes:
        raise ArtifactError(
            f"{path} needs about {num_bytes / 1e9:.1f} GB, and {place} has {free / 1e9:.1f} GB free; make room or "
            "choose another place"
        )


_KINDS = {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket", stat.S_IFDIR: "a folder"}


def regular_file(path: Path) -> Path:
    """Return a path that leads to an ordinary file, or to nothing, of which whoever opens it will say so.

    Folders that somebody sent may hold anything: whoever opens a named pipe waits, and a device may never end.

    Raises:
        ArtifactError: it leads to something else.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return path
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "a device")
        raise ArtifactError(f"{path} is {kind}, and only ordinary files are read; give one, or take it away")
    return path


def sha256_file(path: Path) -> str:
    """Return the hexadecimal SHA-256 digest of a file's bytes."""
    with regular_file(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_manifest(directory: Path) -> dict[str, Any]:
    """Return the manifest of `directory`, which agrees with the digest of its own fields.

    Raises:
        ArtifactError: it is missing or damaged.
    """
    path = directory / MANIFEST_NAME
    if not path.is_file():
        raise ArtifactError(f"{directory} has no {MANIFEST_NAME}: it is not a complete checkpoint")
    manifest = read_sealed(path)
    digests = manifest.get("files")
    if not isinstance(digests, dict) or not digests:
        raise ArtifactError(f"{path} lists no files: it is damaged")
    return manifest


def verify_manifest(directory: Path) -> dict[str, Any]:
    """Return the manifest of `directory` after comparing every file with its digest.

    Raises:
        ArtifactError: the manifest is missing or damaged, or a file it lists is missing or changed; the message names
            the file.
    """
    manifest = read_manifest(directory)
    for name, digest in manifest["files"].items():
        verify_file(directory / name, digest)
    return manifest


def check_files(directory: Path) -> dict[str, Any]:
    """Return the manifest of `directory` after comparing every file's size; no content is read.

    Raises:
        ArtifactError: the manifest is missing or damaged, or a file it lists is missing or of another size; the message
            names the file.
    """
    manifest = read_manifest(directory)
    sizes = manifest.get("sizes")
    if not isinstance(sizes, dict) or sizes.keys() != manifest["files"].keys():
        raise ArtifactError(f"{directory / MANIFEST_NAME} does not list the sizes of its files: it is damaged")
    for name, size in sizes.items():
        path = directory / name
        if not path.is_file():
            raise ArtifactError(f"{path} is listed in its manifest but missing")
        if path.stat().st_size != size:
            raise ArtifactError(f"{path} is damaged: it has {path.stat().st_size} bytes, its manifest says {size}")
    return manifest


def verify_file(path: Path, digest: str, *, listed_in: str = "its manifest") -> None:
    """Compare a file with the SHA-256 that was recorded of it.

    Raises:
        ArtifactError: it is missing or another; the message names it.
    """
    if not regular_file(path).is_file():
        raise ArtifactError(f"{path} is listed in {listed_in} but missing")
    if sha256_file(path) != digest:
        raise ArtifactError(f"{path} is damaged: its SHA-256 differs from the one in {listed_in}")


def sealed(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON object with a digest of its fields, so that a changed one is noticed.

    >>> sealed({"step": 76})["fields_sha256"][:12]
    '4f593ead860e'
    """
    plain = json.loads(dump_json({name: value for name, value in record.items() if name != SEAL}))
    canonical = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return {**plain, SEAL: hashlib.sha256(canonical.encode()).hexdigest()}


def read_sealed(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file without its digest, after comparing the two.

    Raises:
        ArtifactError: the file is missing, no JSON object, or not what was written.
    """
    record = read_json(path)
    if not isinstance(record, dict):
        raise ArtifactError(f"{path} is not a JSON object: the file is damaged")
    fields = {name: value for name, value in record.items() if name != SEAL}
    if SEAL not in record:
        raise ArtifactError(f"{path} has no digest of its fields, '{SEAL}': it was changed, or is not of swerve")
    if sealed(fields)[SEAL] != record[SEAL]:
        raise ArtifactError(f"{path} was changed after it was written: its fields differ from their digest in it")
    return fields


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


def write_sealed(path: Path, record: Mapping[str, Any]) -> None:
    """Write a JSON object with a digest of its fields, atomically."""
    write_json(path, sealed(record))


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8, atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{number[:40]} is too large a number")
    return value


def parse_json(text: str | bytes) -> Any:
    """Return what strict JSON says: NaN, infinities and numbers beyond a float's range are none.

    Raises:
        ValueError: it is not JSON; a `JSONDecodeError` where the form is wrong.
        RecursionError: it is nested too deep.
    """
    return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)


def read_json(path: Path) -> Any:
    """Return the parsed content of a JSON file.

    Raises:
        ArtifactError: the file is missing or is not strict JSON.
    """
    try:
        return parse_json(regular_file(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ArtifactError(f"{path} does not exist") from None
    except (ValueError, OSError, RecursionError) as error:
        raise ArtifactError(f"{path} is not readable JSON: {error}") from error
