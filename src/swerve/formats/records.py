"""Read the records of JSON, JSONL, CSV, Parquet and Arrow files of other programs, each with its place in the file.

What is read is plain Python and can be written again as strict JSON: a number that is not finite is read as null
(programs write NaN for a number they do not have), half of a surrogate pair as U+FFFD, binary values as null.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import math
import os
import re
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from swerve.artifacts.files import regular_file
from swerve.errors import ArtifactError, not_there, unreadable
from swerve.formats.inspect_archive import read_archive
from swerve.formats.plain_values import is_plain, plain, widened_floats
from swerve.formats.table_files import FORMATS, files_of, format_ending
from swerve.formats.typed_fields import at_place

if TYPE_CHECKING:
    import pyarrow as pa

MAX_BYTES = 2**31
"""Most bytes of content that are held at once: a whole JSON file, after decompression."""
MAX_LINE = 2**28
"""Longest line of JSONL and longest row of CSV, bytes."""
MAX_DEPTH = 64
"""Deepest nesting of lists and objects in a record."""

_PACKED = (".gz", ".zst")
_LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_BYTES_AT_ONCE, _BUFFER_BYTES = 2**24, 2**20
"""Of a Parquet file: values of some rows, and compressed pages of a column. Also how often memory is looked at."""
_EXPANSION = 16
"""How many times its size a file's records may take in memory, where that is more than `MAX_BYTES`."""
_RECORD_BYTES = 2**30
"""Memory that the text of a record and its values may take."""
_VALUE_BYTES, _RECORD_OVERHEAD = 64, 512
"""Memory of a value of JSON beside its text, about, and of a record."""
UNPACKED = 100
"""How many times its size a compressed file, or a record of it, may hold, where that is more than other limits."""
_SMALL_RECORD = 2**26
"""Bytes that a record of a compressed file may have, however small the file is."""
_PYTHON_BYTES = 32
"""Bytes of a value of Python beside those of the value itself, about."""


@dataclass(frozen=True, slots=True)
class FileRecord:
    """One record of a file."""

    place: str
    """File and line, row or entry, for messages."""
    values: Mapping[str, Any]
    """Plain Python values by field. The cells of a CSV file are text, an empty one is None."""
    is_cells: bool = False
    """Whether they are cells of a CSV file."""


_Read = tuple[str, Any, int]
"""A record's place, its values, and the characters or bytes that it was read from."""


def read_records(path: Path) -> list[FileRecord]:
    """Return the records of a file; see `iter_records`."""
    return list(iter_records(path))


def iter_records(path: Path) -> Iterator[FileRecord]:
    """Yield the records of a file, or of the files of a folder by name, in their order; endings say the format.

    Of JSONL and CSV one line is held at a time, of an archive one sample, of Parquet and Arrow some rows; a JSON file
    is held whole. A few megabytes can hold any number of values, so a record's may take 1 GiB of memory. Where the
    records that the caller keeps take more than 2 GiB and many times the files' size, they are refused.

    A JSON file holds a list of records, or one object `{id: record}` or `{id: [record, ...]}` whose keys become the
    field `id`; or a log of Inspect, whose samples are the records, as those of `.eval` are. A bare list of messages is
    read as a record with the field `messages`.

    Raises:
        ArtifactError: a file is missing, damaged, too large or of another format, there is no record, or one is not an
            object with named fields; the message names file and line.
    """
    readers = {
        ".json": _read_json,
        ".eval": _read_eval,
        ".jsonl": _read_lines,
        ".csv": _read_csv,
        ".parquet": _read_parquet,
        ".arrow": _read_arrow,
    }
    files = files_of(path)
    read = readers.get(format_ending(files[0]) or "")
    if read is None:
        raise ArtifactError(
            f"{path}: unknown file ending; give a file that ends in {FORMATS}, or a folder of such files"
        )
    # What the records take is looked at after some megabytes of them.
    started, unseen, number = _memory(), 0, 0
    for number, (place, values, size) in enumerate(itertools.chain.from_iterable(map(read, files)), start=1):
        unseen += size + _RECORD_OVERHEAD
        if unseen > _BYTES_AT_ONCE:
            _check_memory(path, files, started, number)
            unseen = 0
        values = {"messages": values} if _is_chat(values) else values
        if not isinstance(values, dict):
            raise ArtifactError(f"{place} is not an object with named fields")
        if len(files) > 1 and "id_is_place" in values:
            raise ArtifactError(
                f"{place}: a text whose problem its place alone says is read of one file; give {files[0]}"
            )
        yield FileRecord(place, values, is_cells=read is _read_csv)
    if not number:
        raise ArtifactError(f"{path} has no records")


def _is_chat(value: Any) -> bool:
    """Whether a record is a list of messages without an object around it."""
    return isinstance(value, list) and value != [] and all(isinstance(each, dict) and "role" in each for each in value)


def _memory() -> int:
    """Return the bytes that this process holds in memory; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _check_memory(path: Path, files: Sequence[Path], started: int, number: int) -> None:
    """Raise ArtifactError if this process holds far more than it did when it began to read some files."""
    most = max(MAX_BYTES, _EXPANSION * sum(file.stat().st_size for file in files))
    if _memory() - started > most:
        raise ArtifactError(
            f"{path}: its first {number:,} records take more than {most / 2**30:.3g} GiB of memory; give it in parts"
        )


def _read_json(path: Path) -> Iterator[_Read]:
    _check_exists(path)
    most = min(MAX_BYTES, unpacked(path.stat().st_size)) if path.suffix in _PACKED else MAX_BYTES
    text = "".join(text for _, text in _lines(path, most=most))
    value = _parse(text, str(path), most=max(MAX_BYTES, _EXPANSION * path.stat().st_size))
    del text
    yield from ((place, record, 0) for place, record in _records_of(path, value))


def _records_of(path: Path, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the records of a JSON file, each with its place."""
    if isinstance(value, list):
        records = [value] if _is_chat(value) else value
        yield from ((f"{path}, record {number}", record) for number, record in enumerate(records, start=1))
        return
    if isinstance(value, dict) and isinstance(value.get("eval"), dict) and "status" in value:
        evaluation, samples = value["eval"], value.get("samples") or ()
        yield from ((f"{path}, sample {number}", _sample(each, evaluation)) for number, each in enumerate(samples, 1))
        return
    if isinstance(value, dict) and (within := _within(value)):
        yield from ((f"{path}, {place}", record) for place, record in within)
        return
    # An object has a record, or a list of records, under each id.
    entries = value.values() if isinstance(value, dict) else [None]
    records = [record for entry in entries for record in (entry if isinstance(entry, list) else [entry])]
    if not isinstance(value, dict) or not all(isinstance(record, dict) for record in records):
        said = f", but one with {', '.join(list(value)[:12])}" if isinstance(value, dict) else ""
        raise ArtifactError(f"{path} is neither a list of records nor an object {{id: {{field: value, ...}}}}{said}")
    for key, entry in value.items():
        if isinstance(entry, dict):
            yield f"{path}, entry {key!r}", {**entry, "id": key}
        else:
            for number, record in enumerate(entry, start=1):
                yield f"{path}, entry {key!r}, record {number}", {**record, "id": key}


_ROWS = ("results", "per_q", "per_question", "per_problem", "responses", "rollouts", "samples", "records", "examples",
         "predictions", "outputs", "generations", "details", "items", "data", "rows")  # fmt: skip
"""Names under which programs write the records of a file beside what holds for all of them."""
_OF_ALL = ("model", "model_name", "model_alias", "label", "checkpoint", "step", "temperature")
"""What holds for all records where it stands beside them; counts and accuracies are of the file alone."""


def _within(value: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the records of an object with a header, or its texts to one problem after another, by place."""
    if name := _rows_within(value):
        known = {key: one for key in _OF_ALL if isinstance(one := value.get(key), str | int | float)}
        return [(f"{name} {number}", {**known, **row}) for number, row in enumerate(value[name], start=1)]
    name = _texts_within(value)
    texts = value[name] if name else ()
    return [
        (f"{name} {number + 1}", {"response": text, "id": str(number), "id_is_place": True})
        for number, text in enumerate(texts)
    ]


def _rows_within(value: Mapping[str, Any]) -> str | None:
    """Return the name under which an object has records, rather than being `{id: record}`; None: it is no header."""
    names = [name for name in _ROWS if isinstance(value.get(name), list) and value[name]]
    names = [name for name in names if all(isinstance(row, dict) for row in value[name])]
    return names[0] if len(names) == 1 else None


def _texts_within(value: Mapping[str, Any]) -> str | None:
    """Return the name under which an object has the responses to one problem after another, as texts alone."""
    names = [
        name for name in ("responses", "completions", "outputs", "generations") if isinstance(value.get(name), list)
    ]
    if len(names) != 1 or not all(isinstance(text, str) for text in value[names[0]]):
        return None
    asks = any(name in value for name in ("question", "problem", "prompt", "messages", "instruction", "id"))
    return None if asks else names[0]


def _read_eval(path: Path) -> Iterator[_Read]:
    _check_exists(path)
    most_of_all = max(MAX_BYTES, UNPACKED * path.stat().st_size)
    members = read_archive(path, most=lambda packed: min(MAX_LINE, unpacked(packed)), most_of_all=most_of_all)
    name, text = next(members)
    evaluation = at_place(_parse(text, f"{path}, {name}"), "eval")
    for number, (name, text) in enumerate(members, start=1):
        yield f"{path}, sample {number}", _sample(_parse(text, f"{path}, {name}"), evaluation), len(text)


def _sample(sample: Any, evaluation: Any) -> Any:
    """Return a sample of a log of Inspect with what the log says of its evaluation."""
    return {**sample, "eval": evaluation} if isinstance(sample, dict) else sample


def _read_lines(path: Path) -> Iterator[_Read]:
    for number, line in _lines(path):
        if line.strip():
            place = f"{path}, line {number}"
            yield place, _parse(line, place), len(line)


def _read_csv(path: Path) -> Iterator[_Read]:
    before = csv.field_size_limit(MAX_LINE)  # also where a quote is never closed
    # Lines as CSV counts them may also end in a carriage return alone.
    lines = (piece for _, line in _lines(path) for piece in io.StringIO(line, newline=""))
    reader = csv.reader(lines, strict=True)
    names: list[str] = []
    last = 0
    try:
        for cells in reader:
            # A quoted cell may run over several lines; the first line with cells has the names.
            first, last = last + 1, reader.line_num
            if not cells:
                continue
            if not names:
                names = _header(cells, f"{path}, line {first}")
                continue
            if len(cells) != len(names):
                raise ArtifactError(
                    f"{path}, line {first} has {len(cells)} cells, the header has {len(names)}; put cells with a "
                    "comma or a line break in double quotes"
                )
            values = {name: cell or None for name, cell in zip(names, cells, strict=True) if name}
            yield f"{path}, line {first}", values, sum(map(len, cells))
    except csv.Error as error:
        raise ArtifactError(f"{path}, line {last + 1} is not CSV: {error}") from None
    finally:
        csv.field_size_limit(before)


def _header(cells: list[str], place: str) -> list[str]:
    names = [cell.strip() for cell in cells]
    if len(names) == 1 and (separator := next((one for one in ";\t|" if one in names[0]), None)):
        raise ArtifactError(
            f"{place}: the header has no comma but {separator!r}; write the file with commas between cells"
        )
    repeated = sorted({name for name in names if names.count(name) > 1})
    if "" in names[1:] or repeated or names == [""]:  # pandas writes the numbers of rows under no name
        what = f"names {repeated[0]!r} twice" if repeated else "has an empty name"
        raise ArtifactError(f"{place}: the header {what}; every column needs its own name")
    return names


def _read_parquet(path: Path) -> Iterator[_Read]:
    import pyarrow.parquet as pq

    rows = _rows_at_once(path)
    options: Any = {"page_checksum_verification": True, "pre_buffer": False, "buffer_size": _BUFFER_BYTES}
    with _read_errors(path), pq.ParquetFile(path, **options) as file:
        yield from _rows_of(path, file.iter_batches(batch_size=rows))


def _read_arrow(path: Path) -> Iterator[_Read]:
    from swerve.formats.columnar_check import arrow_batches

    rows = _rows_at_once(path)
    with _read_errors(path):
        yield from _rows_of(path, arrow_batches(path, rows))


def _rows_at_once(path: Path) -> int:
    """Return how many rows of a file in columns are read together, once a process of its own has read it."""
    from swerve.formats.columnar_check import check_columnar

    _check_exists(path)
    limit = max(MAX_BYTES, UNPACKED * path.stat().st_size)
    return check_columnar(path, limit=limit, per_value=_PYTHON_BYTES, at_once=_BYTES_AT_ONCE)


@contextmanager
def _read_errors(path: Path) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise ArtifactError(unreadable(path, error)) from None


def _rows_of(path: Path, batches: Iterable[pa.RecordBatch]) -> Iterator[_Read]:
    number = 0
    for batch in batches:
        columns = [
            column.to_pylist()
            if is_plain(column.type)
            else [plain(value) for value in widened_floats(column).to_pylist()]
            for column in batch.columns
        ]
        row_bytes = batch.nbytes // max(1, batch.num_rows)
        for row in zip(*columns, strict=True):
            number += 1
            yield f"{path}, row {number}", dict(zip(batch.schema.names, row, strict=True)), row_bytes


def _lines(path: Path, *, most: int | None = None) -> Iterator[tuple[int, str]]:
    """Yield each line with its number and its end; only one is held.

    Args:
        path: the file.
        most: bytes of the file, which may be one line; None: of a line `MAX_LINE`, of a compressed file and its lines
            many times its size, and of any other whatever there is.
    """
    _check_exists(path)
    is_packed = path.suffix in _PACKED
    longest = most or (min(MAX_LINE, unpacked(path.stat().st_size)) if is_packed else MAX_LINE)
    allowed = most or (max(MAX_BYTES, UNPACKED * path.stat().st_size) if is_packed else sys.maxsize)
    size = 0
    try:
        with _opened(path) as stream:
            for number in itertools.count(1):
                line = stream.readline(min(longest, allowed - size) + 1)  # a small file may hold very much
                if not line:
                    return
                size += len(line)
                if size > allowed:
                    raise ArtifactError(
                        f"{path} holds more than {allowed / 2**30:.3g} GiB, the most that is read at once; give it "
                        f"in parts{'' if most is None else ', or as JSONL, which is read line by line'}"
                    )
                if len(line) > longest:
                    raise ArtifactError(
                        f"{path}, line {number} is longer than {longest / 2**20:.3g} MiB; a line holds one record"
                    )
                try:
                    yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    start = size - len(line) + error.start
                    raise ArtifactError(
                        f"{path}, line {number} is not UTF-8 (byte {start}); convert the file to UTF-8"
                    ) from None
    except (OSError, EOFError, zlib.error) as error:
        raise ArtifactError(f"{path} cannot be read: {error}") from None


def _opened(path: Path) -> BinaryIO:
    """Return the content of a file, decompressed as its ending says."""
    if path.suffix == ".gz":
        return gzip.open(path)  # type: ignore[return-value]
    if path.suffix != ".zst":
        return path.open("rb")
    import pyarrow as pa

    return io.BufferedReader(pa.CompressedInputStream(pa.OSFile(str(path)), "zstd"))


def unpacked(packed: int) -> int:
    """Return the most bytes that so many compressed ones may hold as one record: real text packs 50 times at best."""
    return max(_SMALL_RECORD, UNPACKED * packed)


def _check_exists(path: Path) -> None:
    if not regular_file(path).exists():
        raise ArtifactError(f"{path} {not_there(str(path), f'give a file that ends in {FORMATS}')}")


def _parse(text: str, place: str, *, most: int = _RECORD_BYTES) -> Any:
    # Its characters twice, as text and as values, and what each value takes beside them: `[],` is two of 3 bytes.
    if 2 * sys.getsizeof(text) + _VALUE_BYTES * sum(map(text.count, ",:[{")) > most:
        raise ArtifactError(f"{place} takes more than {most / 2**30:.3g} GiB of memory as values; give it in parts")
    try:
        # NaN, Infinity and -Infinity, which JSON does not have, are null.
        value = json.loads(text, object_pairs_hook=_unique_names, parse_constant=lambda _: None, parse_float=_finite)
    except json.JSONDecodeError as error:
        raise ArtifactError(f"{place} is not JSON: {error.msg} (character {error.pos + 1})") from None
    except RecursionError:
        raise ArtifactError(f"{place} is nested deeper than {MAX_DEPTH} levels") from None
    except ValueError as error:
        raise ArtifactError(f"{place} is not JSON that can be read: {error}") from None
    if _is_deep(value, MAX_DEPTH):
        raise ArtifactError(f"{place} is nested deeper than {MAX_DEPTH} levels")
    return without_surrogates(value) if _ESCAPED_SURROGATE.search(text) else value


def _finite(digits: str) -> float | None:
    number = float(digits)
    return number if math.isfinite(number) else None


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object, whose names differ: of two records with one name the first would be lost."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {repeated!r} occurs twice in one object; give a list of records instead")
    return found


def _is_deep(value: Any, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_is_deep(one, levels - 1) for one in inner if isinstance(one, dict | list))


def without_surrogates(value: Any) -> Any:
    """Return a JSON value with U+FFFD in place of halves of surrogate pairs, which UTF-8 cannot hold."""
    if isinstance(value, str):
        return _LONE_SURROGATE.sub("�", value)
    if isinstance(value, list):
        return [without_surrogates(one) for one in value]
    if isinstance(value, dict):
        return {without_surrogates(key): without_surrogates(one) for key, one in value.items()}
    return value
