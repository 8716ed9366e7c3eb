"""`swerve bench estimators`: compare estimators of KL with the exact KL on a file of rollouts."""

from __future__ import annotations

import importlib.metadata
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from swerve.cli.console import console_progress, print_result, table_lines
from swerve.cli.options import Json
from swerve.errors import ArtifactError, ConfigError, MismatchError
from swerve.version import __version__

if TYPE_CHECKING:
    from swerve.models.model_folder import LoadedModel
    from swerve.models.named_models import NamedFolder
    from swerve.probe.engine.forward import ForcedStates
    from swerve.progress import Progress

bench_app = typer.Typer(help="Audits of methods, by measurement.", no_args_is_help=True)

TokenSequence = tuple[list[int], list[int]]
_COLUMNS = ("prompt_ids", "completion_ids")
_DTYPES = ("float32", "float64", "bfloat16")
_TOKENS_PER_BATCH = 16384
_SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """How the audit runs the two models.

    Raises:
        ConfigError: a value is not allowed.
    """

    max_tokens: int | None = None
    temperature: float = 1.0
    device: str = "auto"
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if self.max_tokens is not None and self.max_tokens < 1:
            raise ConfigError(f"--max-tokens must be at least 1, got {self.max_tokens}")
        if not 0 < self.temperature < float("inf"):
            raise ConfigError(f"--temperature must be above 0, got {self.temperature}")
        if self.dtype not in _DTYPES:
            raise ConfigError(f"--dtype {self.dtype} is not allowed; use one of {', '.join(_DTYPES)}")


def read_sequences(path: Path, *, max_tokens: int | None = None) -> list[TokenSequence]:
    """Return (prompt ids, completion ids) of a rollouts table or a JSONL file, without empty completions.

    With `max_tokens` the sequences end after that many completion tokens; the last may be cut.

    Raises:
        ArtifactError: the file is missing, damaged, lacks a column, or has no completion token.
    """
    if path.suffix == ".parquet":
        from swerve.artifacts.responses import response_schema
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
        lines = path.read_text(encoding="utf-8").split("\n")  # a JSON string may hold the other line separators
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
    folder: NamedFolder, sequences: Sequence[TokenSequence], settings: AuditSettings, progress: Progress
) -> tuple[ForcedStates, dict[str, Any]]:
    from swerve.models.model_folder import load_model
    from swerve.probe.engine.forward import forced_states

    loaded = load_model(folder.path, device=_resolve_device(settings.device), dtype=settings.dtype)
    _check_ids(folder, loaded, sequences)
    with progress.task(f"run {folder.name}", len(sequences)) as task:
        states = forced_states(
            loaded, sequences, label=folder.name, tokens_per_batch=_TOKENS_PER_BATCH, on_batch=task.advance
        )
    return states, {"name": folder.name, "path": str(folder.path), "weights_sha256": _fingerprint(folder, loaded)}


def _check_ids(folder: NamedFolder, loaded: LoadedModel, sequences: Sequence[TokenSequence]) -> None:
    embeddings: Any = loaded.model.get_input_embeddings()
    size = int(embeddings.weight.shape[0])
    largest = max(max(max(prompt), max(completion)) for prompt, completion in sequences)
    if largest >= size:
        raise MismatchError(
            f"the rollouts have the token id {largest}, but {folder.name} has {size} tokens only; "
            "audit them with the models they were sampled from"
        )


def _fingerprint(folder: NamedFolder, loaded: LoadedModel) -> str:
    from swerve.artifacts.files import MANIFEST_NAME, read_json
    from swerve.models.model_folder import weights_fingerprint

    manifest = folder.path / MANIFEST_NAME
    recorded = read_json(manifest).get("weights_sha256") if manifest.is_file() else None
    return str(recorded) if recorded else weights_fingerprint(loaded.model)


def _audit(
    checkpoint: NamedFolder,
    reference: NamedFolder,
    sequences: Sequence[TokenSequence],
    settings: AuditSettings,
    progress: Progress,
) -> dict[str, Any]:
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


@bench_app.command(name="estimators")
def bench_estimators(
    rollouts: Annotated[
        Path, typer.Option("--rollouts", metavar="FILE", help="Rollouts table of a run (.parquet), or JSONL.")
    ],
    checkpoint: Annotated[str, typer.Option("--checkpoint", metavar="CKPT", help="The policy: a folder or RUN:LABEL.")],
    reference: Annotated[str, typer.Option("--reference", metavar="CKPT", help="The reference, likewise.")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Where to write.  [default: RUN/estimators]")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", metavar="N", help="Completion tokens to use.  [default: all]")
    ] = None,
    temperature: Annotated[float, typer.Option("--temperature", metavar="T", help="Divides the logits of both.")] = 1.0,
    device: Annotated[str, typer.Option("--device", metavar="NAME", help="auto, cpu or cuda.")] = "auto",
    dtype: Annotated[
        str, typer.Option("--dtype", metavar="NAME", help="Of the weights: float32, float64, bfloat16.")
    ] = "float32",
    as_json: Json = False,
) -> None:
    """Compare estimators of KL with the exact one: value, bias, variance and gradient."""
    from swerve.artifacts.files import sha256_file, write_json
    from swerve.models.named_models import resolve_checkpoint

    settings = AuditSettings(max_tokens=max_tokens, temperature=temperature, device=device, dtype=dtype)
    progress = console_progress(sys.stderr)
    policy, other = resolve_checkpoint(checkpoint), resolve_checkpoint(reference)
    sequences = read_sequences(rollouts, max_tokens=settings.max_tokens)

    # What the figures depend on stands beside them.
    audit = {
        "schema_version": _SCHEMA_VERSION,
        "versions": {"swerve": __version__, **{name: importlib.metadata.version(name) for name in _PACKAGES}},
        "rollouts": {"path": str(rollouts), "sha256": sha256_file(rollouts)},
        "temperature": settings.temperature,
        "dtype": settings.dtype,
        **_audit(policy, other, sequences, settings, progress),
    }
    from swerve.report.estimators import write_estimator_figure

    # Written into the run of the policy, where it is of one.
    directory = out or (policy.run.path / "estimators" if policy.run else Path("estimators"))
    write_json(directory / "estimators.json", audit)
    paths = [directory / "estimators.json", *write_estimator_figure(audit, directory)]
    text = "\n".join([*audit_lines(audit), *(f"Wrote {path}" for path in paths)])
    print_result({**audit, "files": [str(path) for path in paths]}, text, as_json=as_json)


_PACKAGES = ("torch", "transformers")
_PLACEMENTS = {"loss": "loss", "loss_ratio": "loss x ratio", "reward": "reward"}


def audit_lines(audit: Mapping[str, Any]) -> list[str]:
    """Return the tables of an audit as text."""
    exact = audit["exact"]
    return [
        f"{audit['num_tokens']} tokens of {audit['num_sequences']} sequences, temperature {audit['temperature']:g}; "
        "nats per token, exact:",
        f"  KL(policy || reference) {_figure(exact['reverse_kl'])}, "
        f"KL(reference || policy) {_figure(exact['forward_kl'])}, JS {_figure(exact['js'])}",
        "",
        *table_lines([_VALUE_HEADING, *map(_value_cells, audit["values"])]),
        "",
        *table_lines([_GRADIENT_HEADING, *map(_gradient_cells, audit["gradients"])]),
        *(f"Note: {note}" for note in audit["notes"]),
    ]


_VALUE_HEADING = ("VALUE", "MEAN", "SD", "BELOW 0", "ON THE FILE'S TOKENS", "VERDICT")
_GRADIENT_HEADING = ("GRADIENT", "PLACED IN", "COSINE", "ERROR", "NOISE", "VERDICT")


def _figure(value: float | None, form: str = ".3g") -> str:
    return "-" if value is None else format(value, form)


def _value_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    realised = row["realised"]
    interval = "-" if realised is None else f"{realised.mean:.3g} [{realised.low:.3g}, {realised.high:.3g}]"
    share = _figure(row["share_negative"], ".1%")
    return row["estimator"], _figure(row["mean"]), _figure(row["sd"]), share, interval, row["verdict"]


def _gradient_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    target = row["targets"]["reverse_kl"]
    cosine, error = _figure(target["pooled_cosine"], ".3f"), _figure(target["pooled_relative_error"], ".3f")
    noise, placement = _figure(row["variance_to_signal"]), _PLACEMENTS[row["placement"]]
    return row["estimator"], placement, cosine, error, noise, row["verdict"].partition(";")[0]
