"""Parquet tables with a schema, a schema version in the file's metadata and page checksums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from swerve.artifacts.files import atomic_path
from swerve.artifacts.parquet_size import check_parquet_size, table_limit
from swerve.errors import ArtifactError, DiskFullError

TABLE_VERSION = "1"
PROVENANCE = "swerve_provenance"
"""Key of a file's metadata: JSON that says where the rows are from."""
_LABEL = pa.dictionary(pa.int32(), pa.string())
_ADDED = {b"added": b"yes"}
"""Of columns that tables of the same version did not have at first: where one is missing it is read as null."""


def _columns(kind: pa.DataType, *names: str) -> list[tuple[str, pa.DataType]]:
    """Return neighbouring columns of one type."""
    return [(name, kind) for name in names]


ROLLOUTS_SCHEMA = pa.schema(
    [
        ("group", pa.int32()),  # index of the prompt within the step
        ("problem_id", pa.string()),
        *_columns(pa.list_(pa.int32()), "prompt_ids", "completion_ids"),
        ("logprobs", pa.list_(pa.float32())),
        ("text", pa.string()),
        ("reward", pa.float64()),  # null: a failure, see status
        ("parts", pa.string()),  # JSON object
        ("status", pa.string()),
        ("answered", pa.bool_()),
        pa.field("extracted", pa.string(), metadata=_ADDED),  # the answer the grader read
        pa.field("detail", pa.string(), metadata=_ADDED),  # why there is no reward
        ("finish_reason", pa.string()),
        ("version", pa.int64()),
        ("advantages", pa.list_(pa.float32())),  # per token, as the update used them; null: it used none
        ("kl", pa.list_(pa.float32())),  # the KL term at each token, nats; null: the objective has none
        # The share of the updates that cut off the token's gradient; null: no clipping.
        ("clipped", pa.list_(pa.float32())),
    ]
)

PAIRS_SCHEMA = pa.schema(
    [
        ("problem_id", pa.string()),
        *_columns(pa.list_(pa.int32()), "prompt_ids", "chosen_ids", "rejected_ids"),
        ("ref_chosen_logprob", pa.float32()),  # summed over the completion, under the policy the stage began with
        ("ref_rejected_logprob", pa.float32()),
    ]
)

EVALUATION_SCHEMA = pa.schema(
    [
        *_columns(pa.string(), "problem_id", "kind", "question", "gold"),
        ("prompt_ids", pa.list_(pa.int32())),
        ("completion_ids", pa.list_(pa.int32())),  # greedy
        *_columns(pa.string(), "text", "extracted", "status"),
        *_columns(pa.bool_(), "answered", "correct"),
        ("trace_right", pa.bool_()),  # null: the family has no step checker
        ("num_tokens", pa.int32()),
        ("entropy", pa.float32()),  # mean over the greedy completion's positions, nats
        ("sampled_reward", pa.float32()),  # mean over the samples at the evaluation temperature
        ("num_samples", pa.int32()),
        pa.field("difficulty", pa.float64(), metadata=_ADDED),  # of the problem; null: it has none
    ]
)

SEQUENCES_SCHEMA = pa.schema(
    [
        ("sequence_id", pa.int32()),
        *_columns(pa.string(), "problem_id", "kind"),
        ("population", _LABEL),  # e.g. "reference_wrong_final_right"
        ("source", _LABEL),  # label of the checkpoint that wrote it; "imported" for text from elsewhere
        *_columns(pa.string(), "question", "gold"),
        *_columns(pa.list_(pa.int32()), "prompt_ids", "completion_ids"),
        ("text", pa.string()),
        ("token_starts", pa.list_(pa.int32())),  # character offsets into `text`, per token; empty span: no text
        ("token_ends", pa.list_(pa.int32())),
        ("extracted", pa.string()),
        ("correct", pa.bool_()),
        ("first_wrong", pa.int32()),  # position of the first wrong token; null: none known
        ("wrong_positions", pa.list_(pa.int32())),
        ("wrong_expected", pa.list_(pa.string())),  # what a right step has there, per wrong position
    ]
)

TOKENS_SCHEMA = pa.schema(
    [
        *_columns(pa.int32(), "sequence_id", "position", "token_id"),
        ("checkpoint", _LABEL),
        ("reference", _LABEL),  # the other model of the pair
        ("kl_forward", pa.float32()),  # KL(checkpoint || reference), nats
        ("kl_reverse", pa.float32()),  # KL(reference || checkpoint), nats
        ("js", pa.float32()),  # nats, at most ln 2
        *_columns(pa.float32(), "entropy", "entropy_ref", "logprob", "logprob_ref"),
        ("rank", pa.int32()),  # 1: most likely
        *_columns(pa.int32(), "rank_ref", "argmax", "argmax_ref"),
        ("category", _LABEL),
    ]
)

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
        pa.field("first_even_successes", pa.int32(), metadata=_ADDED),  # of these, among continuations 0, 2, 4, ...
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
        ("change_step", pa.int32()),  # most likely change point; null: no change beyond noise
        ("change_low", pa.int32()),  # ends of its interval
        ("change_high", pa.int32()),
        ("change_size", pa.float32()),  # nats
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

SAMPLES_SCHEMA = pa.schema(
    [
        ("problem_id", pa.string()),
        ("sample", pa.int32()),
        ("completion_ids", pa.list_(pa.int32())),
        *_columns(pa.string(), "text", "extracted", "status"),
        *_columns(pa.bool_(), "answered", "correct"),
    ]
)

RESPONSES_SCHEMA = pa.schema(
    [
        *_columns(pa.string(), "problem_id", "family", "kind", "question"),
        ("prompt", pa.string()),  # the text as the model read it; null: the question or the messages say it
        ("messages", pa.string()),  # JSON list of {role, content}
        *_columns(pa.string(), "gold", "response"),
        ("label", pa.string()),  # checkpoint that wrote it
        ("step", pa.int64()),
        ("sample", pa.int64()),  # from 0 within problem, label and step
        ("recorded_reward", pa.float64()),
        ("recorded_correct", pa.bool_()),
        *_columns(pa.string(), "extracted", "finish_reason", "set"),
        *_columns(pa.list_(pa.int32()), "prompt_ids", "completion_ids"),
        ("token_starts", pa.list_(pa.int32())),  # character offsets into `response`, per token
        ("token_ends", pa.list_(pa.int32())),
        ("boundary", pa.string()),  # joint | split; null: the ids were given, or there are none
        ("problem_details", pa.string()),  # JSON object: alternatives, prefix, grader, grading, difficulty, metadata
        ("place", pa.string()),  # file and line
        ("extra", pa.string()),  # JSON object: the record's other fields
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
        ArtifactError: the file is missing, damaged, of another schema version, or lacks a column; its values are more
            than 2 GiB and more than a hundred times the file.
    """
    if not path.is_file():
        raise ArtifactError(f"{path} does not exist; run the stage that writes it first")
    try:
        check_parquet_size(path, limit=table_limit(path))
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
    for field in schema:
        if field.name not in table.schema.names and b"added" in (field.metadata or {}):
            table = table.append_column(field, pa.nulls(table.num_rows, field.type))
    missing = [name for name in schema.names if name not in table.schema.names]
    if missing:
        raise ArtifactError(f"{path} lacks the columns {missing}; make it again with this version of swerve")
    return table.select(schema.names)
