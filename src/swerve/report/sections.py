"""The page's sections in the order of the argument, and what a run records about itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from swerve.report.inputs import ReportInputs
from swerve.report.layout import Table, Topic, panel, topic
from swerve.report.sections_causal import causal_topic
from swerve.report.sections_checkpoints import checkpoint_topic
from swerve.report.sections_selection import selection_topic
from swerve.report.sections_spikes import spike_topic
from swerve.report.sections_training import training_topic
from swerve.report.sections_where import where_topic
from swerve.report.values import count

__all__ = ["provenance", "topics"]


def topics(inputs: ReportInputs) -> tuple[Topic, ...]:
    """Return the sections after the rollouts, in order; without a probe they say what was not measured."""
    # Without a probe the sections that every probe fills say that they are empty.
    summary = inputs.summary or {}
    found = (
        selection_topic(summary) if not inputs.is_imported else _import_topic(summary),
        spike_topic(summary),
        where_topic(summary),
        causal_topic(summary),
        training_topic(summary),
        checkpoint_topic(inputs),
    )
    return tuple(one for one in found if one is not None)


def _import_topic(summary: Mapping[str, Any]) -> Topic | None:
    """Return the section on responses from elsewhere: where they are from, and their populations."""
    responses = summary.get("responses") or {}
    rows = [(str(key).replace("_", " "), _shown(value)) for key, value in responses.items() if value not in ({}, None)]
    facts = Table(id="responses", caption="Where the responses are from", header=("", "Recorded"), rows=tuple(rows))
    selected = selection_topic({**summary, "selection": "imported"})
    shown = () if selected is None else selected.panels
    return topic(
        "selection",
        "What was read",
        [panel("Responses from elsewhere", facts, note="Nothing was selected: every response was read."), *shown],
        short="Responses",
    )


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {entry}" for name, entry in value.items())
    return count(value) if isinstance(value, int) else str(value)


def provenance(inputs: ReportInputs) -> tuple[tuple[str, str], ...]:
    """Return what the run records about itself, as names and values."""
    names: Sequence[tuple[str, str]] = (
        ("swerve", "swerve_version"),
        ("config hash", "config_hash"),
        ("seed", "seed"),
        ("torch", "torch_version"),
        ("transformers", "transformers_version"),
        ("created", "created"),
        ("status", "status"),
    )
    known = dict(inputs.provenance)
    pairs = [(name, str(known.pop(key))) for name, key in names if known.get(key) is not None]
    for key in ("schema_version", "name"):
        known.pop(key, None)
    pairs += [
        (key.replace("_", " "), str(value)) for key, value in known.items() if isinstance(value, str | int | float)
    ]
    if inputs.metrics:
        pairs.append(("training steps recorded", count(len(inputs.metrics))))
    if inputs.summary is not None:
        labels = ", ".join(str(label) for label in inputs.summary.get("checkpoints") or [])
        pairs += [("reference", str(inputs.summary.get("reference"))), ("compared", labels)]
    return tuple(pairs)
