"""Parquet tables with a schema, a schema version in the file's metadata and page checksums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from swerve.artifacts.files import atomic_path
from swerve.errors import ArtifactError, DiskFullError, MissingExtraError

if TYPE_CHECKING:
    from pandas import DataFrame

TABLE_VERSION = "1"
PROVENANCE = "swerve_provenance"
"""Key of a file's metadata: JSON that says where the rows are from."""
_LABEL = pa.dictionary(pa.int32(), pa.string())


def _columns(kind: pa.DataType, *names: str) -> list[tuple[str, pa.DataType]]:
    """Return neighbouring columns of one type."""
    return [(name, kind) for name in names]


PAIRS_SCHEMA = pa.schema(
    [
        ("problem_id", pa.string()),
        *_columns(pa.list_(pa.int32()), "prompt_ids", "chosen_ids", "rejected_ids"),
        ("ref_chosen_logprob", pa.float32()),  # summed over the completion, under the policy the stage began with
        ("ref_rejected_logprob", pa.float32()),
    ]
)

TOKEN_COLUMNS: Mapping[str, tuple[pa.DataType, str]] = {
    "sequence_id": (pa.int32(), "rollout"),
    "position": (pa.int32(), "from 0 at the first completion token"),
    "token_id": (pa.int32(), "the realised token"),
    "checkpoint": (_LABEL, "label of P"),
    "reference": (_LABEL, "label of Q"),
    "kl_forward": (pa.float32(), "KL(P || Q), nats"),
    "kl_reverse": (pa.float32(), "KL(Q || P), nats"),
    "js": (pa.float32(), "Jensen-Shannon divergence, nats"),
    "entropy": (pa.float32(), "of P, nats"),
    "entropy_ref": (pa.float32(), "of Q, nats"),
    "logprob": (pa.float32(), "log P of the realised token, nats"),
    "logprob_ref": (pa.float32(), "log Q of it"),
    "rank": (pa.int32(), "of the realised token under P; 1: most likely"),
    "rank_ref": (pa.int32(), "under Q"),
    "argmax": (pa.int32(), "id of the token P finds most likely"),
    "argmax_ref": (pa.int32(), "of the one Q finds most likely"),
    "category": (_LABEL, "category of the token"),
}
"""Columns of `tokens.parquet` with their meaning, which the docs are written from. Those from `kl_forward` to
`argmax_ref` are the fields of `DivergenceStats`."""

TOKENS_SCHEMA = pa.schema([(name, kind) for name, (kind, _) in TOKEN_COLUMNS.items()])

TOPK_SCHEMA = pa.schema(
    [
        *_columns(pa.int32(), "sequence_id", "position"),
        ("checkpoint", _LABEL),  # the reference has rows of its own, under its own label
        ("token_ids", pa.list_(pa.int32())),
        ("tokens", pa.list_(pa.string())),
        ("probs", pa.list_(pa.float32())),
    ]
)

SPIKES_SCHEMA = pa.schema(
    [
        *_columns(pa.int32(), "sequence_id", "position"),
        ("checkpoint", _LABEL),
        ("method", _LABEL),  # zscore | percentile | adaptive | absolute | calibrated
        ("divergence", _LABEL),  # kl_forward | kl_reverse | js
        *_columns(pa.float32(), "value", "threshold"),
        ("height", pa.int32()),  # 1: the highest spike of its sequence
        *_columns(pa.bool_(), "is_wrong", "is_first_wrong"),
    ]
)

INTERVENTIONS_SCHEMA = pa.schema(
    [
        *_columns(pa.int32(), "sequence_id", "position"),
        ("spike_sequence_id", pa.int32()),  # the rollout whose spike this is, or is a control for
        ("selection", _LABEL),  # "spike" | "matched" | "random"
        ("arm", _LABEL),  # "reference" | "checkpoint": whose token was forced; "alternative": a token of neither
        ("policy", _LABEL),  # "reference" | "checkpoint": who continued
        ("token_id", pa.int32()),
        ("token", pa.string()),
        *_columns(pa.int32(), "num_continuations", "num_successes"),
        ("num_failures", pa.int32()),  # continuations the grader could not judge (counted as wrong)
        ("first_continuations", pa.int32()),  # of these, those drawn before anything was seen
        ("first_successes", pa.int32()),
        ("first_even_successes", pa.int32()),  # of these, among continuations 0, 2, 4, ...
    ]
)


CROSS_SAMPLES_SCHEMA = pa.schema(
    [
        ("problem_id", pa.string()),
        ("sample", pa.int32()),
        ("direction", _LABEL),  # "checkpoint_into_reference" | "reference_into_checkpoint"
        ("selector", _LABEL),
        ("share", pa.float32()),  # budget: the share of tokens at which the selector was set to fire; 0 and 1: the ends
        ("threshold", pa.float32()),  # of the selector's score; null at the ends and for "random"
        ("completion_ids", pa.list_(pa.int32())),
        ("swapped", pa.list_(pa.int32())),  # positions whose token is the other model's
        ("num_changed", pa.int32()),  # of these, where the two models proposed different tokens
        ("correct", pa.bool_()),
        ("status", pa.string()),
    ]
)

PREFIX_VALUES_SCHEMA = pa.schema(
    [
        ("sequence_id", pa.int32()),
        ("position", pa.int32()),  # the prefix is the completion before this position; its length in tokens
        ("sample_set", _LABEL),  # "search": decided the bisection; "estimate": fresh continuations
        *_columns(pa.int32(), "num_continuations", "num_successes", "num_failures"),
    ]
)

BIOGRAPHIES_SCHEMA = pa.schema(
    [
        *_columns(pa.int32(), "sequence_id", "position"),
        ("onset_step", pa.int32()),  # global step of the first checkpoint past the threshold for good; null: never
        ("num_reversals", pa.int32()),
        ("linearity", pa.float32()),  # R^2 of log-prob against step; null: constant
        ("slope", pa.float32()),  # nats a step
        ("jump_step", pa.int32()),  # first step of the second of two levels; null: a line explains as much
        ("jump_size", pa.float32()),  # nats
    ]
)

SIGNALS_SCHEMA = pa.schema(
    [
        *_columns(pa.int32(), "sequence_id", "position"),
        ("step", pa.int32()),  # global step whose update saw the token
        ("advantage", pa.float32()),
        ("clipped", pa.float32()),  # share of the step's updates in which the token's gradient was cut off
        ("kl", pa.float32()),  # the KL term's value at the token, nats; null without one
        ("used", pa.bool_()),  # False: its group was left out of the update
    ]
)

ATTRIBUTIONS_SCHEMA = pa.schema(
    [
        ("sequence_id", pa.int32()),
        ("position", pa.int32()),  # of the spike
        ("method", _LABEL),  # gradient | attention
        ("model", _LABEL),  # checkpoint whose scores these are
        ("prompt_scores", pa.list_(pa.float32())),  # per prompt token; all scores of a spike sum to 1
        ("completion_scores", pa.list_(pa.float32())),  # per completion token before the spike
    ]
)


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
        table = rows.select(schema.names).cast(schema)
    else:
        for row in rows:
            if row.keys() != set(schema.names):
                raise ValueError(
                    f"fields {sorted(set(schema.names) ^ row.keys())} differ from the schema of {path.name}"
                )
        table = pa.Table.from_pylist(list(rows), schema=schema)
    table = table.replace_schema_metadata(
        {"swerve_table": path.stem, "swerve_table_version": TABLE_VERSION, **(metadata or {})}
    )
    # Numbers that hardly repeat are split by bytes, all else but lists has a dictionary.
    floats = [field.name for field in schema if pa.types.is_floating(field.type)]
    with atomic_path(path) as temporary:
        pq.write_table(
            table,
            temporary,
            compression="zstd",
            use_dictionary=[
                field.name for field in schema if field.name not in floats and not pa.types.is_list(field.type)
            ],
            use_byte_stream_split=floats or False,
            write_page_checksum=True,
        )


def read_table(path: Path, schema: pa.Schema) -> pa.Table:
    """Return the table at `path`, its page checksums verified.

    Raises:
        ArtifactError: the file is missing, damaged, of another schema version, or lacks a column or has one of another
            type.
    """
    if not path.is_file():
        raise ArtifactError(f"{path} does not exist; run the stage that writes it first")
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            table = file.read()
        table.validate(full=True)  # texts that are not UTF-8, lists that end before they begin
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and DiskFullError.matches(error):
            raise DiskFullError(path) from error
        raise ArtifactError(f"{path} is damaged: {str(error).splitlines()[0]}") from None
    version = (table.schema.metadata or {}).get(b"swerve_table_version", b"none").decode()
    if version != TABLE_VERSION:
        raise ArtifactError(f"{path} has table version {version}, this swerve reads {TABLE_VERSION}; make it again")
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
