"""Parquet tables with a schema, a schema version in the file's metadata and page checksums."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from swerve.artifacts.files import atomic_path, regular_file
from swerve.artifacts.parts import TABLE, Parts
from swerve.artifacts.streams import chunks
from swerve.errors import ArtifactError, DiskFullError, MissingExtraError, unreadable

if TYPE_CHECKING:
    from pandas import DataFrame

TABLE_VERSION = "1"
PROVENANCE = "swerve_provenance"
"""Key of a file's metadata: JSON that says where the rows are from."""
Columns = Mapping[str, tuple[pa.DataType, str]]
"""The columns of a table in their order, each with its type and what it is; the reference of the docs shows them."""

_ROWS_AT_ONCE, _BUFFER_BYTES = 256, 2**20
"""Of a table that is not held: rows, and compressed pages of a column."""
_LABEL = pa.dictionary(pa.int32(), pa.string())
_INT, _FLOAT, _BOOL, _TEXT = pa.int32(), pa.float32(), pa.bool_(), pa.string()
_IDS, _FLOATS, _TEXTS = pa.list_(_INT), pa.list_(_FLOAT), pa.list_(_TEXT)


def schema_of(columns: Columns) -> pa.Schema:
    """Return the schema of a table's columns."""
    return pa.schema([(name, kind) for name, (kind, _) in columns.items()])


PAIR_COLUMNS: Columns = {
    "problem_id": (_TEXT, "name of the problem"),
    "prompt_ids": (_IDS, "token ids of the prompt"),
    "chosen_ids": (_IDS, "token ids of the right completion"),
    "rejected_ids": (_IDS, "token ids of the wrong completion"),
    "ref_chosen_logprob": (_FLOAT, "sum over the right completion under the policy that the stage began with, nats"),
    "ref_rejected_logprob": (_FLOAT, "the same sum over the wrong completion"),
}
PAIRS_SCHEMA = schema_of(PAIR_COLUMNS)

TOKEN_COLUMNS: Columns = {
    "sequence_id": (_INT, "rollout"),
    "position": (_INT, "from 0 at the first completion token; only of tokens that the model sampled"),
    "token_id": (_INT, "the realised token"),
    "checkpoint": (_LABEL, "label of P"),
    "reference": (_LABEL, "label of Q"),
    "kl_forward": (_FLOAT, "KL(P || Q), nats"),
    "kl_reverse": (_FLOAT, "KL(Q || P), nats"),
    "js": (_FLOAT, "Jensen-Shannon divergence, nats"),
    "entropy": (_FLOAT, "of P, nats"),
    "entropy_ref": (_FLOAT, "of Q, nats"),
    "logprob": (_FLOAT, "log P of the realised token, nats"),
    "logprob_ref": (_FLOAT, "log Q of it"),
    "rank": (_INT, "of the realised token under P; 1: most likely"),
    "rank_ref": (_INT, "under Q"),
    "argmax": (_INT, "id of the token P finds most likely"),
    "argmax_ref": (_INT, "of the one Q finds most likely"),
    "category": (_LABEL, "category of the token"),
}
"""Of `tokens.parquet`. Those from `kl_forward` to `argmax_ref` are the fields of `DivergenceStats`."""
TOKENS_SCHEMA = schema_of(TOKEN_COLUMNS)

BOUND_COLUMNS: Columns = {
    "sequence_id": (_INT, "response, from 0 in the order of the file"),
    "position": (_INT, "from 0 at the first completion token"),
    "token_id": (_INT, "the realised token"),
    "checkpoint": (_LABEL, "label of P"),
    "reference": (_LABEL, "label of Q"),
    "logprob": (_FLOAT, "log P of the realised token, nats; no bound"),
    "logprob_ref": (_FLOAT, "log Q of it; no bound"),
    "rank": (_INT, "of the realised token under P, as the server counts; no bound"),
    "rank_ref": (_INT, "under Q"),
    "kl_forward_lower": (_FLOAT, "KL(P || Q) is at least this, nats"),
    "kl_reverse_lower": (_FLOAT, "KL(Q || P) is at least this"),
    "js_lower": (_FLOAT, "the Jensen-Shannon divergence is at least this"),
    "entropy_lower": (_FLOAT, "the entropy of P is at least this"),
    "entropy_upper": (_FLOAT, "and at most this"),
    "entropy_ref_lower": (_FLOAT, "that of Q"),
    "entropy_ref_upper": (_FLOAT, "that of Q"),
}
"""Of `bounds.parquet`: the probe of models in servers."""
BOUNDS_SCHEMA = schema_of(BOUND_COLUMNS)

TOPK_COLUMNS: Columns = {
    "sequence_id": (_INT, "rollout"),
    "position": (_INT, "from 0"),
    "checkpoint": (_LABEL, "label of the model; the reference has rows of its own"),
    "token_ids": (_IDS, "the most likely tokens, the most likely first"),
    "tokens": (_TEXTS, "their texts"),
    "probs": (_FLOATS, "their probabilities"),
}
TOPK_SCHEMA = schema_of(TOPK_COLUMNS)

SPIKE_COLUMNS: Columns = {
    "sequence_id": (_INT, "rollout"),
    "position": (_INT, "from 0"),
    "checkpoint": (_LABEL, "label of the checkpoint"),
    "method": (_LABEL, "`zscore`, `percentile`, `adaptive`, `absolute` or `calibrated`"),
    "divergence": (_LABEL, "`kl_forward`, `kl_reverse` or `js`"),
    "value": (_FLOAT, "the divergence there, nats"),
    "threshold": (_FLOAT, "the one applied at this position, nats"),
    "height": (_INT, "1: the highest spike of its sequence"),
    "is_wrong": (_BOOL, "whether the position is a wrong token"),
    "is_first_wrong": (_BOOL, "whether it is the first"),
}
SPIKES_SCHEMA = schema_of(SPIKE_COLUMNS)

INTERVENTION_COLUMNS: Columns = {
    "sequence_id": (_INT, "rollout"),
    "position": (_INT, "where the token was forced"),
    "spike_sequence_id": (_INT, "the rollout whose spike this is, or is a control for"),
    "selection": (_LABEL, "`spike`, `matched` or `random`"),
    "arm": (_LABEL, "whose token was forced: `reference`, `checkpoint`, or `alternative` for a token of neither"),
    "policy": (_LABEL, "who continued: `reference` or `checkpoint`"),
    "token_id": (_INT, "the forced token"),
    "token": (_TEXT, "its text"),
    "num_continuations": (_INT, "continuations sampled"),
    "num_successes": (_INT, "of these right"),
    "num_failures": (_INT, "of these not gradable (counted as wrong)"),
    "first_continuations": (_INT, "of these, drawn at the first look, before anything was seen"),
    "first_successes": (_INT, "of those right"),
    "first_even_successes": (_INT, "of those right, among continuations 0, 2, 4, ...: one of two independent halves"),
}
INTERVENTIONS_SCHEMA = schema_of(INTERVENTION_COLUMNS)

CROSS_SAMPLE_COLUMNS: Columns = {
    "problem_id": (_TEXT, "name of the problem"),
    "sample": (_INT, "number of the completion, from 0"),
    "direction": (_LABEL, "`checkpoint_into_reference` or `reference_into_checkpoint`"),
    "selector": (_LABEL, "the score that decided; both ends are under `random`"),
    "share": (_FLOAT, "budget: the share of tokens at which the selector was set to fire; 0 and 1: one model alone"),
    "threshold": (_FLOAT, "of the selector's score; null at the ends and for `random`"),
    "completion_ids": (_IDS, "token ids"),
    "swapped": (_IDS, "positions whose token is the other model's"),
    "num_changed": (_INT, "of these, where the two models proposed different tokens"),
    "correct": (_BOOL, "whether the answer is right"),
    "status": (_TEXT, "the grader's status"),
}
CROSS_SAMPLES_SCHEMA = schema_of(CROSS_SAMPLE_COLUMNS)

PREFIX_VALUE_COLUMNS: Columns = {
    "sequence_id": (_INT, "rollout"),
    "position": (_INT, "length of the prefix: the completion before this position"),
    "policy": (_LABEL, "who continued: `reference` or `checkpoint`"),
    "sample_set": (_LABEL, "`search`: decided the bisection; `estimate`: fresh continuations"),
    "num_continuations": (_INT, "continuations sampled"),
    "num_successes": (_INT, "of these right"),
    "num_failures": (_INT, "of these not gradable (counted as wrong)"),
}
PREFIX_VALUES_SCHEMA = schema_of(PREFIX_VALUE_COLUMNS)

BIOGRAPHY_COLUMNS: Columns = {
    "sequence_id": (_INT, "rollout"),
    "position": (_INT, "from 0"),
    "onset_step": (_INT, "step of the first checkpoint past the threshold for good; null: never"),
    "num_reversals": (_INT, "how often the log-probability turned"),
    "linearity": (_FLOAT, "R^2 of the log-probability against the step; null: constant"),
    "slope": (_FLOAT, "nats per step"),
    "jump_step": (_INT, "step of the first checkpoint after the jump; null: a line explains as much, or it is noise"),
    "jump_size": (_FLOAT, "mean after less mean before, nats"),
}
BIOGRAPHIES_SCHEMA = schema_of(BIOGRAPHY_COLUMNS)

SIGNAL_COLUMNS: Columns = {
    "sequence_id": (_INT, "rollout"),
    "position": (_INT, "from 0"),
    "step": (_INT, "global step whose update saw the token"),
    "advantage": (_FLOAT, "that weighed on it; null: none"),
    "clipped": (_FLOAT, "share of the step's updates that cut off the token's gradient; null: no clipping"),
    "kl": (_FLOAT, "the KL term's value, nats; null: no such term"),
    "used": (_BOOL, "false: its group was left out of the update"),
}
SIGNALS_SCHEMA = schema_of(SIGNAL_COLUMNS)

ATTRIBUTION_COLUMNS: Columns = {
    "sequence_id": (_INT, "rollout"),
    "position": (_INT, "of the spike"),
    "method": (_LABEL, "`gradient` or `attention`"),
    "model": (_LABEL, "label of the model that was asked"),
    "prompt_scores": (_FLOATS, "per prompt token; all scores of a row sum to 1"),
    "completion_scores": (_FLOATS, "per completion token before the spike"),
}
ATTRIBUTIONS_SCHEMA = schema_of(ATTRIBUTION_COLUMNS)


LATER_COLUMNS = frozenset(("sentence_starts", "wrong_sentence"))
"""Columns that tables written before them lack: they are read as null."""


def write_table(
    path: Path,
    rows: Sequence[Mapping[str, Any]] | pa.Table,
    schema: pa.Schema,
    *,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write rows (or a table) under `schema`, atomically, compressed with zstd and with a checksum on every page.

    Args:
        path: the file.
        rows: one mapping a row, or a table.
        schema: the columns.
        metadata: further entries of the file's metadata.

    Raises:
        ValueError: a row lacks a field or has one the schema does not.
        DiskFullError: no room.
    """
    # A table has the columns, perhaps others too; rows have these and no others.
    if isinstance(rows, pa.Table):
        table = rows
    else:
        for row in rows:
            if row.keys() != set(schema.names):
                raise ValueError(
                    f"fields {sorted(set(schema.names) ^ row.keys())} differ from the schema of {path.name}"
                )
        table = pa.Table.from_pylist(list(rows), schema=schema)
    write_tables(path, [table], schema, metadata=metadata)


def write_tables(
    path: Path, tables: Iterable[pa.Table], schema: pa.Schema, *, metadata: Mapping[str, str] | None = None
) -> None:
    """Write tables as one; some megabytes of them, a row group of the file, are held at a time. See `write_table`."""
    said = {"swerve_table": path.stem, "swerve_table_version": TABLE_VERSION, **(metadata or {})}
    # Numbers that hardly repeat are split by bytes, all else but lists has a dictionary.
    floats = [field.name for field in schema if pa.types.is_floating(field.type)]
    plain = [field.name for field in schema if field.name not in floats and not pa.types.is_list(field.type)]
    with (
        atomic_path(path) as temporary,
        pq.ParquetWriter(
            temporary,
            schema.with_metadata(said),
            compression="zstd",
            use_dictionary=plain,
            use_byte_stream_split=floats or False,
            write_page_checksum=True,
        ) as writer,
    ):
        for group in chunks(tables, lambda table: table.nbytes // 8):
            table = pa.concat_tables(group) if len(group) > 1 else group[0]
            writer.write_table(table.select(schema.names).cast(schema).replace_schema_metadata(said))


@contextmanager
def spilled_tables(path: Path, tables: Iterable[pa.Table]) -> Iterator[Callable[[], Iterator[pa.Table]]]:
    """Put tables on the disk beside `path`, and yield what reads them again in their order; then they are deleted.

    Raises:
        DiskFullError: no room.
        ConfigError: somebody else's folder is in their place.
    """
    parts = Parts(path.with_name(f"{path.name}.partial"), "tables", form=TABLE)
    parts.begin()
    try:
        num = 0
        for num, table in enumerate(tables, start=1):
            parts.put("table", num, table)
        yield lambda: (parts.get("table", number + 1) for number in range(num))
    finally:
        parts.finish()


def read_table(path: Path, schema: pa.Schema) -> pa.Table:
    """Return the table at `path`, its page checksums verified.

    Raises:
        ArtifactError: the file is missing, damaged, of another schema version, or lacks a column or has one of another
            type.
    """
    with _opened(path) as file:
        table = file.read()
        table.validate(full=True)  # texts that are not UTF-8, lists that end before they begin
    return _typed(path, table, schema)


def iter_tables(path: Path, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows of the table at `path`, some hundred at a time; no more are held. See `read_table`."""
    with _opened(path) as file:
        _typed(path, file.schema_arrow.empty_table(), schema)
        for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=schema.names):
            table = pa.Table.from_batches([batch]).replace_schema_metadata(file.schema_arrow.metadata)
            table.validate(full=True)
            yield _typed(path, table, schema)


@contextmanager
def _opened(path: Path) -> Iterator[pq.ParquetFile]:
    """Open a table, its page checksums verified; what it raises is an ArtifactError."""
    if not regular_file(path).is_file():
        raise ArtifactError(f"{path} does not exist; run the stage that writes it first")
    try:
        with pq.ParquetFile(path, page_checksum_verification=True, pre_buffer=False, buffer_size=_BUFFER_BYTES) as file:
            yield file
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and DiskFullError.matches(error):
            raise DiskFullError(path, error) from error
        raise ArtifactError(unreadable(path, error)) from None


def _typed(path: Path, table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the columns of a schema as it says."""
    version = (table.schema.metadata or {}).get(b"swerve_table_version", b"none").decode()
    if version != TABLE_VERSION:
        raise ArtifactError(f"{path} has table version {version}, this swerve reads {TABLE_VERSION}; make it again")
    for name in LATER_COLUMNS & set(schema.names) - set(table.schema.names):
        table = table.append_column(schema.field(name), pa.nulls(len(table), schema.field(name).type))
    missing = [name for name in schema.names if name not in table.schema.names]
    if missing:
        raise ArtifactError(f"{path} lacks the columns {missing}; make it again with this version of swerve")
    try:
        return table.select(schema.names).cast(schema)
    except (ValueError, pa.ArrowException) as error:
        raise ArtifactError(f"{path} has a column of another type: {str(error).splitlines()[0]}") from None


def import_pandas() -> Any:
    """Return the module pandas, which is an extra.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        import pandas
    except ModuleNotFoundError:
        raise MissingExtraError("pandas", "hub", "a data frame") from None
    return pandas


def data_frame(table: pa.Table) -> DataFrame:
    """Return a table as a data frame, labels as text.

    Raises:
        MissingExtraError: pandas is not installed.
    """
    import_pandas()
    plain = [field.with_type(pa.string()) if pa.types.is_dictionary(field.type) else field for field in table.schema]
    return table.cast(pa.schema(plain)).to_pandas()
