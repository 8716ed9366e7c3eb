"""Logs of Inspect that are archives (`.eval`): zip files of JSON, packed by deflate or Zstandard."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Iterator
from copy import copy
from pathlib import Path

from swerve.errors import ArtifactError, system_fault

_ZSTANDARD = 93
"""Number of the compression method, which Python's `zipfile` reads from 3.14 on."""
_HEADERS = ("header.json", "_journal/start.json")
"""Members that say whose log it is; the second stands alone in a log that was cut off."""


def read_archive(path: Path, *, most: Callable[[int], int], most_of_all: int) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of a log's header and of each sample; one is held at a time.

    Args:
        path: the file.
        most: bytes that a member may have, given how many it is packed in.
        most_of_all: bytes that all of them together may have, a megabyte of which can hold a thousand.

    Raises:
        ArtifactError: the file is damaged or too large, or no log.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = {member.filename: member for member in archive.infolist()}
            headers = [name for name in _HEADERS if name in members][:1]
            samples = [name for name in members if name.startswith("samples/")]
            if not headers:
                raise ArtifactError(f"{path} is no log of Inspect: it has no {_HEADERS[0]}")
            if sum(members[name].file_size for name in (*headers, *samples)) > most_of_all:
                raise ArtifactError(
                    f"{path} holds more than {most_of_all / 2**30:.3g} GiB, the most that is read of a file of its "
                    "size; give it in parts"
                )
            for name in (*headers, *samples):
                yield name, str(_content(path, archive, members[name], most(members[name].compress_size)), "utf-8")
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError) as error:
        if fault := system_fault(error):
            raise ArtifactError(f"{path} cannot be read: {fault}") from None
        raise ArtifactError(f"{path} is damaged, or no log of Inspect: {error}") from None


def _content(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo, most: int) -> bytes:
    if member.file_size > most:
        raise ArtifactError(
            f"{path}: {member.filename} is {member.file_size / 2**20:,.0f} MiB packed in {member.compress_size:,} "
            f"bytes, of which at most {most / 2**20:,.0f} MiB are read"
        )
    if member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with archive.open(member) as stream:
            return stream.read(member.file_size)
    if member.compress_type != _ZSTANDARD:
        raise ArtifactError(f"{path}: {member.filename} is packed otherwise than by deflate or Zstandard")
    import pyarrow as pa

    # Python reads its packed bytes as of a member that is not compressed.
    packed = copy(member)
    packed.compress_type, packed.file_size = zipfile.ZIP_STORED, member.compress_size
    del packed.CRC  # of the content
    codec, size = pa.Codec("zstd"), member.file_size
    content: bytes = codec.decompress(archive.read(packed), decompressed_size=size, asbytes=True)
    if zlib.crc32(content) != member.CRC:
        raise ArtifactError(f"{path} is damaged: {member.filename} has another checksum")
    return content
