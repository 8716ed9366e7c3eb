"""The audit of two models on a file of rollouts. Torch is imported when it runs, so that a wrong file is said first."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from swerve.artifacts.files import regular_file
from swerve.errors import ArtifactError, ConfigError, MismatchError
from swerve.progress import Progress
from swerve.settings import Model, PositiveInt

if TYPE_CHECKING:
    from swerve.probe.engine.forward import ForcedStates

TokenSequence = tuple[list[int], list[int]]
_COLUMNS = ("prompt_ids", "completion_ids")
_TOKENS_PER_BATCH = 16384


class AuditSettings(Model):
    """How the audit runs the two models."""

    max_tokens: PositiveInt | None = None
    """Completion tokens to use; all by default."""
    temperature: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """Divides the logits of both models."""
    device: str = "auto"
    """`auto`, `cpu` or `cuda`."""
    dtype: Literal["float32", "float64", "bfloat16"] = "float32"
    """Type of the weights."""


def read_sequences(path: Path, *, max_tokens: int | None = None) -> list[TokenSequence]:
    """Return (prompt ids, completion ids) of a rollouts table or a JSONL file, without empty completions.

    With `max_tokens` the sequences end after that many completion tokens; the last may be cut.

    Raises:
        ArtifactError: the file is missing, damaged, lacks a column, or has no completion token.
    """
    if path.suffix == ".parquet":
        from swerve.artifacts.response_columns import response_schema
        from swerve.artifacts.tables import read_table

        schema = response_schema(*_COLUMNS)
        columns = [read_table(path, schema).column(name).to_pylist() for name in _COLUMNS]
        rows = list(zip(*columns, strict=True))
    else:
        rows = list(_read_lines(path))

    # One sequence a line, each checked before the first is measured.
    sequences: list[TokenSequence] = []
    left = sys.maxsize if max_tokens is None else max_tokens
    for number, (prompt, completion) in enumerate(rows, start=1):
        if not prompt:
            raise ArtifactError(f"{path}: row {number} has an empty prompt; the first token needs a prefix")
        if completion and left:
            sequences.append((list(prompt), list(completion[:left])))
            left -= len(sequences[-1][1])
    if not sequences:
        raise ArtifactError(f"{path} has no completion tokens: there is nothing to audit")
    return sequences


def _read_lines(path: Path) -> Iterator[TokenSequence]:
    try:
        text = regular_file(path).read_text(encoding="utf-8")
        lines = text.split("\n")  # a JSON string may hold the other line separators
    except FileNotFoundError:
        raise ArtifactError(f"{path} does not exist; give a rollouts table of a run or a JSONL file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ArtifactError(f"{path} cannot be read as JSONL: {error}") from None
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield _parse_line(line, f"{path}, line {number}")


def _parse_line(line: str, place: str) -> TokenSequence:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        raise ArtifactError(f"{place} is not JSON; a rollouts table ends in .parquet") from None
    missing = [name for name in _COLUMNS if not isinstance(record, dict) or name not in record]
    if missing:
        raise ArtifactError(f"{place} lacks {' and '.join(missing)}; each line needs {' and '.join(_COLUMNS)}")
    for name in _COLUMNS:
        ids = record[name]
        if not isinstance(ids, list) or not all(type(id) is int and id >= 0 for id in ids):
            raise ArtifactError(f"{place}: {name} must be a list of token ids")
    return record["prompt_ids"], record["completion_ids"]


def _resolve_device(name: str) -> str:
    import torch

    from swerve.models.model_folder import resolve_device

    try:
        return str(torch.device(resolve_device(name)))
    except (ConfigError, RuntimeError):
        raise ConfigError(
            f"--device {name} is not available here; use auto, cpu or, where there is one, cuda"
        ) from None


def _force(
    model: tuple[str, Path], sequences: Sequence[TokenSequence], settings: AuditSettings, progress: Progress
) -> tuple[ForcedStates, dict[str, Any]]:
    from swerve.artifacts.files import MANIFEST_NAME, read_json
    from swerve.models.model_folder import load_model, weights_fingerprint
    from swerve.probe.engine.forward import forced_states

    name, folder = model
    loaded = load_model(folder, device=_resolve_device(settings.device), dtype=settings.dtype)
    embeddings: Any = loaded.model.get_input_embeddings()
    size = int(embeddings.weight.shape[0])
    largest = max(max(max(prompt), max(completion)) for prompt, completion in sequences)
    if largest >= size:
        raise MismatchError(
            f"the rollouts have the token id {largest}, but {name} has {size} tokens only; "
            "audit them with the models they were sampled from"
        )
    with progress.task(f"run {name}", len(sequences)) as task:
        states = forced_states(loaded, sequences, label=name, tokens_per_batch=_TOKENS_PER_BATCH, on_batch=task.advance)

    # The fingerprint of the weights stands in the manifest of what swerve wrote.
    manifest = folder / MANIFEST_NAME
    recorded = read_json(manifest).get("weights_sha256") if manifest.is_file() else None
    fingerprint = str(recorded or weights_fingerprint(loaded.model))
    return states, {"name": name, "path": str(folder), "weights_sha256": fingerprint}


def audit_models(
    checkpoint: tuple[str, Path],
    reference: tuple[str, Path],
    sequences: Sequence[TokenSequence],
    settings: AuditSettings,
    progress: Progress,
) -> dict[str, Any]:
    """Return the tables of the audit of two models, given by label and folder, on the same sequences.

    Raises:
        MismatchError: the sequences are not of the vocabulary of both.
    """
    import torch

    from swerve.audit.kl_estimators import audit
    from swerve.audit.verdicts import summarise_audit

    states, policy_record = _force(checkpoint, sequences, settings, progress)
    ref_states, reference_record = _force(reference, sequences, settings, progress)
    ids = torch.tensor([token for _, completion in sequences for token in completion])
    sequence_ids = [number for number, (_, completion) in enumerate(sequences) for _ in completion]
    with progress.task("audit", len(ids)) as task:
        measured = audit(states, ref_states, ids, temperature=settings.temperature, on_chunk=task.advance)
    try:
        tables = summarise_audit(measured, sequence_ids)
    except ValueError as error:
        raise MismatchError(str(error)) from None
    return {"checkpoint": policy_record, "reference": reference_record, **tables}
