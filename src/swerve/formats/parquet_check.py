"""Foreign Parquet files, tried in a process of their own before they are read.

A few kilobytes can describe billions of values, and pyarrow ends the process that it reads some damaged footers in. So
another process, whose memory is limited, decodes the whole file first, a few rows at a time.
"""

from __future__ import annotations

import faulthandler
import json
import multiprocessing
import resource
import warnings
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from swerve.errors import ArtifactError

ROWS_AT_ONCE = 4096
_BYTES_AT_ONCE, _BUFFER_BYTES = 2**26, 2**20
_HELD_BYTES = 2**31 + 2**29
"""Most memory that the process takes: for one batch of values and what reading it takes beside them."""


def check_parquet(path: Path, *, limit: int, per_value: int = 0) -> int:
    """Return the bytes of all values of a Parquet file, which are not more than a limit.

    Args:
        path: the file.
        limit: in bytes.
        per_value: bytes that each value takes beside its own, such as those of a Python object.

    Raises:
        ArtifactError: they are more, or the file is damaged.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads: the copy uses none of theirs
        child = context.Process(target=_answer, args=(path, limit, per_value, sender))
        child.start()
    sender.close()
    try:
        answer = json.loads(receiver.recv_bytes())
    except EOFError:
        answer = {"damaged": "the library that reads it fails"}
    child.join()
    if "damaged" in answer:
        raise ArtifactError(f"{path} is damaged: {answer['damaged']}")
    size: int = answer["size"]
    if size > limit:
        raise ArtifactError(
            f"{path} holds more than {limit / 2**30:.3g} GiB, the most that is read at once; give it in parts"
        )
    return size


def _answer(path: Path, limit: int, per_value: int, sender: Connection) -> None:
    """Send the size of a file, or what is wrong with it; in the process that may fail."""
    faulthandler.disable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = pages * resource.getpagesize() + _HELD_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))
    try:
        answer: dict[str, int | str] = {"size": _size(path, limit, per_value)}
    except (MemoryError, pa.ArrowMemoryError):
        answer = {"size": limit + 1}
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        answer = {"damaged": str(error).splitlines()[0]}
    sender.send_bytes(json.dumps(answer).encode())


def _size(path: Path, limit: int, per_value: int) -> int:
    """Return the bytes of all values, or more than the limit as soon as that is known."""
    with pq.ParquetFile(path, page_checksum_verification=True, pre_buffer=False, buffer_size=_BUFFER_BYTES) as file:
        described = file.metadata
        groups = [described.row_group(index) for index in range(described.num_row_groups)]
        size: int = per_value * sum(
            group.column(index).num_values for group in groups for index in range(group.num_columns)
        )
        if size > limit:
            return size
        described_bytes = sum(group.total_byte_size for group in groups)
        rows = min(ROWS_AT_ONCE, _BYTES_AT_ONCE * described.num_rows // max(1, described_bytes))
        for batch in file.iter_batches(batch_size=max(1, rows), use_threads=False):
            batch.validate(full=True)
            size += batch.nbytes
            if size > limit:
                break
    return size
