"""A folder in the layout of the Hugging Face hub: Parquet shards and a card that says what is in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from swerve.errors import ArtifactError
from swerve.version import __version__

__all__ = ["ROWS_A_SHARD", "dataset_card", "plain_schema", "write_shards"]

ROWS_A_SHARD = 500_000
_DTYPES = {"double": "float64", "float": "float32", "halffloat": "float16", "large_string": "large_string"}


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns without dictionaries and without metadata; values stay the same."""
    return pa.schema([pa.field(field.name, _without_dictionary(field.type)) for field in schema])


def _without_dictionary(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def write_shards(
    folder: Path, batches: Iterable[pa.RecordBatch], schema: pa.Schema, *, split: str, num_rows: int
) -> None:
    """Write `num_rows` rows as files `SPLIT-00000-of-0000N.parquet` of at most `ROWS_A_SHARD` rows each."""
    folder.mkdir(parents=True)
    count = max(1, -(-num_rows // ROWS_A_SHARD))
    pieces = _pieces(batches)
    for index in range(count):
        path = folder / f"{split}-{index:05d}-of-{count:05d}.parquet"
        with pq.ParquetWriter(path, schema, compression="zstd", write_page_checksum=True) as writer:
            for piece, ends_shard in pieces:
                writer.write_batch(piece)
                if ends_shard:
                    break


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, bool]]:
    """Yield the rows in pieces that do not reach across a shard's end, each with whether it is the shard's last."""
    room = ROWS_A_SHARD
    for batch in batches:
        start = 0
        while start < batch.num_rows:
            piece = batch.slice(start, room)
            start, room = start + piece.num_rows, room - piece.num_rows
            yield piece, room == 0
            room = room or ROWS_A_SHARD


def dataset_card(name: str, schema: pa.Schema, *, split: str, num_rows: int) -> str:
    """Return the README.md of the folder: features and files as YAML, and a sentence for people.

    Raises:
        ArtifactError: a column is of a type that data sets do not have.
    """
    features = [{"name": field.name, **_feature(field.type, field.name)} for field in schema]
    head = {
        "configs": [{"config_name": "default", "data_files": [{"split": split, "path": f"data/{split}-*"}]}],
        "dataset_info": {"features": features},
    }
    columns = "\n".join(f"- `{field.name}`: {field.type}" for field in schema)
    return (
        f"---\n{yaml.safe_dump(head, sort_keys=False, allow_unicode=True)}---\n\n# {name}\n\n"
        f"{num_rows} rows, exported by swerve {__version__} from `{name}`.\n\n{columns}\n"
    )


def _feature(kind: pa.DataType, name: str) -> dict[str, Any]:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = _feature(kind.value_type, name)
        return {"list": inner.get("dtype", inner)}
    if pa.types.is_struct(kind):
        return {"struct": [{"name": field.name, **_feature(field.type, name)} for field in kind]}
    simple = pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_floating(kind)
    if simple or pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return {"dtype": _DTYPES.get(str(kind), str(kind))}
    raise ArtifactError(
        f"the column '{name}' is of type {kind}, which a data set folder does not have; export to JSONL"
    )
