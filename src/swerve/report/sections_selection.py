"""The page on what was read: how the rollouts were selected, and how far the checkpoints diverge on each population."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from swerve.report.charts import consecutive_pairs
from swerve.report.layout import Panel, Table, Topic, panel, topic
from swerve.report.names import headline_population, population_title
from swerve.report.values import (
    DIVERGENCE_NAMES,
    NOT_MEASURED,
    count,
    interval,
    number,
    number_interval,
    p_value,
    percent_interval,
    points_interval,
)

__all__ = ["divergence_table", "entry_at", "floor_note", "pair_panel", "selection_topic"]

Summary = Mapping[str, Any]


def entry_at(entries: Any, checkpoint: Any) -> Summary | None:
    """Return the first entry of a checkpoint, if there is one."""
    return next((one for one in entries or [] if one.get("checkpoint") == checkpoint), None)


def selection_topic(summary: Summary) -> Topic | None:
    """Return the section on the selection of rollouts."""
    return topic(
        "selection",
        "What was read, and how it was selected",
        [_selection_panel(summary), _population_panel(summary)],
        short="Selection",
    )


def _selection_panel(summary: Summary) -> Panel | None:
    test = summary.get("mcnemar")
    reference, final = summary.get("reference"), summary.get("final")
    rows: list[tuple[str, str]] = []
    if test is not None:
        rows = [
            ("problems answered by both", count(test.get("num"))),
            (f"right only with {reference}", count(test.get("num_first_only"))),
            (f"right only with {final}", count(test.get("num_second_only"))),
            ("difference of accuracy (points)", points_interval(interval(test.get("difference")))),
            ("p-value (McNemar, exact)", p_value(test.get("p_value"))),
        ]
    again = interval(summary.get("reselected"))
    if again is not None:
        rows.append(("of those selected, another draw would select", percent_interval(again)))
    facts = Table(
        id="selection", caption="Both checkpoints on the same problems", header=("", "Measured"), rows=tuple(rows)
    )
    return panel("Is the selection sound?", facts, note=_selection_note(summary))


def _selection_note(summary: Summary) -> str:
    reference, final = summary.get("reference"), summary.get("final")
    if summary.get("selection") == "split":
        return (
            f"Problems that {reference} got wrong and {final} right on one half of the sampled completions; what is "
            "read is of the other half."
        )
    return (
        f"Problems that {reference} got wrong and {final} right on one greedy completion each, which is also what is "
        "read. The test is over all problems, not only those."
    )


def _population_panel(summary: Summary) -> Panel | None:
    return panel(
        "Does the divergence depend on whose text is read?",
        _population_table(summary),
        note=f"Means over the tokens of a population at {summary.get('final')}, nats. {floor_note(summary)}".strip(),
        wide=True,
    )


def floor_note(summary: Summary) -> str:
    """Return a sentence on what two runs of one model differ by; empty where that was not measured."""
    floor = summary.get("noise_floor")
    if not isinstance(floor, Mapping):
        return ""
    means = ", ".join(f"{name} {number((floor.get(key) or {}).get('mean'))}" for key, name in DIVERGENCE_NAMES.items())
    return f"Noise floor (the reference against itself, batched otherwise): {means}."


def _population_table(summary: Summary) -> Table:
    headline = headline_population(summary)
    rows = []
    for entry in summary.get("populations") or []:
        means = entry_at(entry.get("divergences"), summary.get("final")) or {}
        name = population_title(entry.get("population"), summary)
        rows.append(
            (
                f"{name} (headline)" if entry.get("population") == headline else name,
                str(entry.get("source") or NOT_MEASURED),
                count(entry.get("num_rollouts")),
                count(entry.get("num_correct")),
                *(number_interval(interval(means.get(key))) for key in DIVERGENCE_NAMES),
            )
        )
    header = ("Population", "Written by", "Rollouts", "Right", *DIVERGENCE_NAMES.values())
    return Table(id="populations", caption="Populations", header=header, rows=tuple(rows))


def pair_panel(summary: Summary) -> Panel | None:
    """Return the panel on pairs that are not a checkpoint against the reference."""
    return panel("How far did each part of training go?", _pair_table(summary), wide=True)


def _pair_table(summary: Summary) -> Table:
    consecutive = consecutive_pairs(summary)
    baseline = [entry for entry in summary.get("pairs") or [] if entry not in consecutive]
    rows = [
        (f"{entry.get('checkpoint')} against {entry.get('reference')}", *_means(entry))
        for entry in [*baseline, *consecutive]
    ]
    return Table(
        id="pairs",
        caption="Other pairs of checkpoints",
        note="The reference against its baseline, from before the stage, and each checkpoint against the one before. "
        f"Means over the tokens of the headline population, in nats. {floor_note(summary)}".strip(),
        header=("Pair", *DIVERGENCE_NAMES.values(), "Entropy", "Entropy of the second"),
        rows=tuple(rows),
    )


def _means(entry: Summary) -> tuple[str, ...]:
    keys = (*DIVERGENCE_NAMES, "entropy", "entropy_ref")
    return tuple(number_interval(interval(entry.get(key))) for key in keys)


def divergence_table(summary: Summary) -> Table:
    """Return each checkpoint's mean divergences from the reference."""
    rows = [(str(entry.get("checkpoint")), *_means(entry)) for entry in summary.get("divergences") or []]
    note = f"Means over the tokens of the headline population, in nats. {floor_note(summary)}".strip()
    return Table(
        id="divergences",
        caption="Divergence by checkpoint",
        note=note,
        header=("Checkpoint", *DIVERGENCE_NAMES.values(), "Entropy", "Entropy of the reference"),
        rows=tuple(rows),
    )
