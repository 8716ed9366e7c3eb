"""Foreign Parquet files, tried in a process of their own before they are read.

A few kilobytes can describe billions of values, and pyarrow ends the process that it reads some damaged footers in. So
another process, whose memory is limited, decodes the whole file first, a few rows at a time.
"""

from __future__ import annotations

import faulthandler
import json
import multiprocessing
import resource
import signal
import warnings
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from swerve.errors import ArtifactError, unreadable
from swerve.limits import cause_of_end, given_limit, held_limit, lower_limit

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
        child.join()
    except EOFError:
        answer = {"refused": _refused(path, child)}
    if "refused" in answer:
        raise ArtifactError(answer["refused"])
    size: int = answer["size"]
    if size > limit:
        raise ArtifactError(
            f"{path} holds more than {limit / 2**30:.3g} GiB, the most that is read at once; give it in parts"
        )
    return size


def _refused(path: Path, child: ForkProcess) -> str:
    """Return what ended the process: the library, of which a damaged file is the cause, or somebody else."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    child.join()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_seconds = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    end = cause_of_end(child.exitcode, cpu_seconds)
    is_crash = child.exitcode in (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGFPE)
    if is_crash or (child.exitcode == -signal.SIGABRT and given_limit(resource.RLIMIT_AS) is None):
        return f"{path} is damaged: the library that reads it fails ({end.detail})"
    return f"{path} cannot be read: {end.detail}"


def _answer(path: Path, limit: int, per_value: int, sender: Connection) -> None:
    """Send the size of a file, or why it cannot be read; in the process that may fail."""
    faulthandler.disable()
    lower_limit(resource.RLIMIT_CORE, 0)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = pages * resource.getpagesize() + _HELD_BYTES
    lower_limit(resource.RLIMIT_AS, most)
    try:
        answer: dict[str, int | str] = {"size": _size(path, limit, per_value)}
    except (OSError, MemoryError, pa.ArrowException, UnicodeDecodeError) as error:
        is_own = isinstance(error, MemoryError) and held_limit(resource.RLIMIT_AS, most) == most
        answer = {"size": limit + 1} if is_own else {"refused": unreadable(path, error)}
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
