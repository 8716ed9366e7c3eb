"""The estimators of KL on rollouts of the demo: what is kept of two audits, and what the page shows of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from studies.study import Record
from swerve.cli.bench import audit_lines
from swerve.estimates import Estimate

PAIRS = {"audit far": ("step_000528", "rl-20", "sft"), "audit near": ("step_000510", "rl-2", "dpo")}
"""Rollouts, policy and reference of the demo with seed 0."""


def kept(name: str, found: Mapping[str, Any]) -> Record:
    """Return what is kept of an audit."""
    values = [{**row, "realised": row["realised"] and Estimate(**row["realised"])} for row in found["values"]]
    last, kl = found["deciles"][-1], found["exact"]["reverse_kl"]
    return {
        "kind": "audit",
        "name": name,
        "seed": 0,
        "printed": audit_lines({**found, "values": values}),
        **{key: found[key] for key in ("num_tokens", "exact", "values", "gradients")},
        "last_decile_share": last["num_tokens"] * last["kl_mean"] / (found["num_tokens"] * kl),
    }


def tables(records: Sequence[Record]) -> dict[str, str]:
    """Return what the first audit prints."""
    printed = [record["printed"] for record in records if record["name"] == "audit far"]
    return {"audit output": "\n".join(["```text", *printed[0], "```"])} if printed else {}


def numbers(records: Sequence[Record]) -> dict[str, str]:
    """Return the numbers that sentences quote: `audit far: k2 bias`, `audit near: k3 in the loss, error`."""
    found = {}
    for record in records:
        kl = record["exact"]["reverse_kl"]
        shown = {"tokens": f"{record['num_tokens']:,}", "KL": f"{kl:.3g}"}
        shown["last decile"] = f"{100 * record['last_decile_share']:.1f}%"
        for row in record["values"]:
            name, mean = row["estimator"], row["realised"]
            shown[f"{name} bias"] = f"{100 * row['relative_bias']:.1f}%"
            shown[f"{name} to KL"] = _plain(row["mean"] / kl)
            shown[f"{name} SD to KL"] = f"{row['sd'] / kl:.0f}"
            shown[f"{name} below 0"] = f"{row['share_negative']:.2f}"
            shown[f"{name} realised"] = f"{mean['mean']:.3g} ({mean['low']:.3g} to {mean['high']:.3g})"
        for row in record["gradients"]:
            target, name = row["targets"]["reverse_kl"], f"{row['estimator']} in the {row['placement']}"
            shown[f"{name}, error"] = _plain(target["pooled_relative_error"])
            shown[f"{name}, cosine"] = _plain(target["pooled_cosine"])
            shown[f"{name}, norm"] = f"{100 * target['pooled_norm_ratio']:.1f}%"
            shown[f"{name}, noise"] = _plain(row["variance_to_signal"])
        found |= {f"{record['name']}: {key}": text for key, text in shown.items()}
    return found


def _plain(value: float | None) -> str:
    return "-" if value is None else f"{value:#.2g}" if abs(value) < 10 else f"{value:.0f}"
