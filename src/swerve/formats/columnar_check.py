"""Foreign Parquet and Arrow files, tried in a process of their own before they are read.

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
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from swerve.errors import ArtifactError, unreadable
from swerve.limits import cause_of_end, given_limit, held_limit, lower_limit

_ROWS_AT_ONCE, _BYTES_AT_ONCE, _BUFFER_BYTES = 4096, 2**26, 2**20
_BATCH_BYTES = 2**28
"""Most bytes of rows that are decoded together, and of a single row."""
_MAGIC, _END = b"ARROW1", b"\xff\xff\xff\xff\0\0\0\0"
"""How an Arrow file begins, and how a stream ends."""
_HELD_BYTES = 2**30 + 2**28
"""Most memory that the process takes: for one batch of values and what reading it takes beside them."""


def check_columnar(path: Path, *, limit: int, per_value: int = 0, at_once: int = _BYTES_AT_ONCE) -> int:
    """Return how many rows of a Parquet or Arrow file are to be read together; at least one, and its values are few.

    Args:
        path: the file.
        limit: of the bytes of all values.
        per_value: bytes that each value takes beside its own, such as those of a Python object.
        at_once: bytes that the rows read together should have, about.

    Raises:
        ArtifactError: its values or those of a row are more, or the file is damaged.
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
    if answer["rows"] == 0:
        what = "a batch of rows" if path.suffix == ".arrow" else "a row"
        raise ArtifactError(
            f"{path} has {what} of more than {_BATCH_BYTES / 2**20:.0f} MiB, or one that takes more than "
            f"{_HELD_BYTES / 2**30:.3g} GiB to read; give it in parts"
        )
    size: int = answer["size"]
    if size > limit:
        raise ArtifactError(
            f"{path} holds more than {limit / 2**30:.3g} GiB, the most that is read at once; give it in parts"
        )
    rows: int = min(answer["rows"], at_once * answer["num_rows"] // max(1, size))
    return max(1, rows)


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
    """Send the size of a file and how many of its rows fit at once, or why it cannot be read."""
    faulthandler.disable()
    lower_limit(resource.RLIMIT_CORE, 0)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = pages * resource.getpagesize() + _HELD_BYTES
    lower_limit(resource.RLIMIT_AS, most)
    is_own = held_limit(resource.RLIMIT_AS, most) == most  # and not a lower one of the shell's
    answer: dict[str, int | str] = {}
    rows = _ROWS_AT_ONCE
    while not answer:
        try:
            answer = _measured(path, rows, limit, per_value)
        except (MemoryError, pa.ArrowMemoryError) as error:
            # A dictionary has a long text once and its rows many times: fewer of them are tried.
            rows //= 16
            if not rows:
                answer = {"size": 0, "rows": 0} if is_own else {"refused": unreadable(path, error)}
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
            answer = {"refused": unreadable(path, error)}
    sender.send_bytes(json.dumps(answer).encode())


def _measured(path: Path, most_rows: int, limit: int, per_value: int) -> dict[str, int | str]:
    """Return the bytes of all values, or more than the limit as soon as that is known, and the rows read at once.

    Raises:
        MemoryError: some rows that are read at once are too large.
    """
    if path.suffix == ".arrow":
        return _arrow_measured(path, most_rows, limit, per_value)
    with pq.ParquetFile(path, page_checksum_verification=True, pre_buffer=False, buffer_size=_BUFFER_BYTES) as file:
        described = file.metadata
        groups = [described.row_group(index) for index in range(described.num_row_groups)]
        size: int = per_value * sum(
            group.column(index).num_values for group in groups for index in range(group.num_columns)
        )
        described_bytes = sum(group.total_byte_size for group in groups)
        rows = max(1, min(most_rows, _BYTES_AT_ONCE * described.num_rows // max(1, described_bytes)))
        if size <= limit:
            for batch in file.iter_batches(batch_size=rows, use_threads=False):
                if batch.nbytes > _BATCH_BYTES:
                    raise MemoryError
                batch.validate(full=True)
                size += batch.nbytes
                if size > limit:
                    break
    return {"size": size, "rows": rows, "num_rows": described.num_rows}


def _arrow_measured(path: Path, most_rows: int, limit: int, per_value: int) -> dict[str, int | str]:
    """Return the same of an Arrow file, whose batches hold as many rows as their writer chose."""
    size = num_rows = 0
    for batch in arrow_batches(path, most_rows):
        if batch.nbytes > _BATCH_BYTES:
            raise MemoryError
        batch.validate(full=True)
        num_rows += batch.num_rows
        size += batch.nbytes + per_value * sum(map(_num_values, batch.columns))
        if size > limit:
            break
    return {"size": size, "rows": most_rows, "num_rows": num_rows}


def _num_values(column: pa.Array) -> int:
    """Return how many values a column has, those within lists and structs too."""
    num = len(column)
    kinds = pa.types
    while any(is_list(column.type) for is_list in (kinds.is_list, kinds.is_large_list, kinds.is_fixed_size_list)):
        column = column.flatten()
        num += len(column)
    return num + sum(map(_num_values, column.flatten())) if pa.types.is_struct(column.type) else num


def arrow_batches(path: Path, most_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an Arrow file or stream, at most so many at once.

    Raises:
        pa.ArrowException, OSError: it is damaged, or was cut off.
    """
    with pa.OSFile(str(path)) as source:
        if source.read(len(_MAGIC)) == _MAGIC:
            source.seek(0)
            with pa.ipc.open_file(source) as file:
                for number in range(file.num_record_batches):
                    yield from _sliced(file.get_batch(number), most_rows)
            return
        # A stream that was cut between two batches reads as a shorter one.
        source.seek(max(0, source.size() - len(_END)))
        if source.read() != _END:
            raise pa.ArrowInvalid("the file was cut off, or is no Arrow file")
        source.seek(0)
        with pa.ipc.open_stream(source) as stream:
            for batch in stream:
                yield from _sliced(batch, most_rows)


def _sliced(batch: pa.RecordBatch, most_rows: int) -> Iterator[pa.RecordBatch]:
    yield from (batch.slice(start, most_rows) for start in range(0, batch.num_rows, most_rows))
