"""`swerve bench estimators`: compare estimators of KL with the exact KL on a file of rollouts."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from swerve.cli.completion import completed
from swerve.cli.console import main_progress
from swerve.cli.options import Result, given_settings, out_option, with_settings
from swerve.cli.text import table
from swerve.text import number_interval
from swerve.version import __version__

_SCHEMA_VERSION = 1
_SETTINGS = {
    "max_tokens": "--max-tokens N",
    "temperature": "--temperature T",
    "device": "--device NAME",
    "dtype": "--dtype",
}


@with_settings("swerve.audit.rollout_audit:AuditSettings", _SETTINGS)
def bench_estimators(
    context: typer.Context,
    rollouts: Annotated[
        Path, typer.Option("--rollouts", metavar="FILE", help="Rollouts table of a run (.parquet), or JSONL.")
    ],
    checkpoint: Annotated[
        str,
        typer.Option("--checkpoint", metavar="CKPT", help="The policy: a folder or RUN:LABEL.", **completed("models")),
    ],
    reference: Annotated[
        str, typer.Option("--reference", metavar="CKPT", help="The reference: a folder or RUN:LABEL.")
    ],
    out: Annotated[Path | None, out_option("Where to write.  [default: RUN/estimators]", folder=True)] = None,
) -> Result:
    """Compare estimators of KL with the exact KL.

    Value, bias, variance and gradient, on the tokens of a file of rollouts.

    Examples:
      swerve bench estimators --rollouts rollouts.parquet --checkpoint mine:rl-80 --reference mine:sft-500
    """
    from swerve.artifacts.files import sha256_file, write_json
    from swerve.audit.rollout_audit import AuditSettings, audit_models, read_sequences
    from swerve.models.folder_metadata import check_metadata, check_one_tokenizer
    from swerve.models.named_models import resolve_checkpoint
    from swerve.recipes.loader import load_settings

    settings = load_settings(AuditSettings, list(given_settings(context).values()))
    progress = main_progress()
    policy, other = resolve_checkpoint(checkpoint), resolve_checkpoint(reference)
    for folder in (policy.path, other.path):
        check_metadata(folder)
    check_one_tokenizer((policy.path, other.path))
    sequences = read_sequences(rollouts, max_tokens=settings.max_tokens)

    # What the figures depend on stands beside them.
    audit = {
        "schema_version": _SCHEMA_VERSION,
        "versions": {"swerve": __version__, **{name: importlib.metadata.version(name) for name in _PACKAGES}},
        "rollouts": {"path": str(rollouts), "sha256": sha256_file(rollouts)},
        "temperature": settings.temperature,
        "dtype": settings.dtype,
        **audit_models((policy.name, policy.path), (other.name, other.path), sequences, settings, progress),
    }
    from swerve.report.estimators import write_estimator_figure

    # Written into the run of the policy, where it is of one.
    directory = out or (policy.run.path / "estimators" if policy.run else Path("estimators"))
    write_json(directory / "estimators.json", audit)
    paths = [directory / "estimators.json", *write_estimator_figure(audit, directory)]
    text = "\n".join([*estimator_lines(audit), *(f"Wrote {path}" for path in paths)])
    return Result({**audit, "files": [str(path) for path in paths]}, text)


_PACKAGES = ("torch", "transformers")
_PLACEMENTS = {"loss": "loss", "loss_ratio": "loss x ratio", "reward": "reward"}


def estimator_lines(audit: Mapping[str, Any]) -> list[str]:
    """Return the tables of an audit as text."""
    exact = audit["exact"]
    return [
        f"{audit['num_tokens']} tokens of {audit['num_sequences']} sequences, temperature {audit['temperature']:g}; "
        "nats per token, exact:",
        f"  KL(policy || reference) {_figure(exact['reverse_kl'])}, "
        f"KL(reference || policy) {_figure(exact['forward_kl'])}, JS {_figure(exact['js'])}",
        "",
        table([_VALUE_HEADING, *map(_value_cells, audit["values"])]),
        "",
        table([_GRADIENT_HEADING, *map(_gradient_cells, audit["gradients"])]),
        *(f"Note: {note}" for note in audit["notes"]),
    ]


_VALUE_HEADING = ("VALUE", "MEAN", "SD", "BELOW 0", "ON THE FILE'S TOKENS", "VERDICT")
_GRADIENT_HEADING = ("GRADIENT", "PLACED IN", "COSINE", "ERROR", "NOISE", "VERDICT")


def _figure(value: float | None, form: str = ".3g") -> str:
    return "-" if value is None else format(value, form)


def _value_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    realised = "-" if row["realised"] is None else number_interval(row["realised"])
    share = _figure(row["share_negative"], ".1%")
    return row["estimator"], _figure(row["mean"]), _figure(row["sd"]), share, realised, row["verdict"]


def _gradient_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    target = row["targets"]["reverse_kl"]
    cosine, error = _figure(target["pooled_cosine"], ".3f"), _figure(target["pooled_relative_error"], ".3f")
    noise, placement = _figure(row["variance_to_signal"]), _PLACEMENTS[row["placement"]]
    return row["estimator"], placement, cosine, error, noise, row["verdict"].partition(";")[0]
