"""The page on spikes: do divergences and other scores find the steps that are known to be wrong?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from swerve.report.layout import Absent, DotPlot, DotRow, Panel, Table, Topic, dot_row, panel, topic
from swerve.report.names import METHODS, SELECTORS, divergence_name
from swerve.report.values import (
    DIVERGENCE_NAMES,
    count,
    interval,
    number,
    number_interval,
    percent,
    percent_interval,
)

__all__ = ["knows_no_wrong_step", "null_rate", "spike_entry", "spike_rows", "spike_table", "spike_topic"]

Summary = Mapping[str, Any]
SHARE_ENDS = ("0%", "50%", "100%")
AUC_ENDS = ("0", "0.5", "1")


def spike_entry(summary: Summary, checkpoint: Any, divergence: Any) -> Summary | None:
    """Return the summary's spike figures of one checkpoint and divergence, if they were measured."""
    for entry in summary.get("spikes") or []:
        if entry.get("checkpoint") == checkpoint and entry.get("divergence") == divergence:
            found: Summary = entry
            return found
    return None


def knows_no_wrong_step(summary: Summary) -> bool:
    """Whether a probe has no step that is known to be wrong, as where the task does not check steps.

    >>> knows_no_wrong_step({"spikes": [{"num_rollouts": 0}]}), knows_no_wrong_step({})
    (True, False)
    """
    entries = summary.get("spikes") or []
    return bool(entries) and all(entry.get("num_rollouts") == 0 for entry in entries)


def null_rate(summary: Summary, divergence: Any, method: Any) -> Summary | None:
    """Return what a method finds where there is nothing: spikes in the null pair."""
    found = (summary.get("null") or {}).get("false_discoveries") or {}
    rate: Summary | None = (found.get(divergence) or {}).get(method)
    return rate


def spike_topic(summary: Summary) -> Topic | None:
    """Return the section on spikes and known wrong steps."""
    if knows_no_wrong_step(summary):
        return topic(
            "steps",
            "What do the rules for spikes find in noise?",
            [_noise_panel(summary)],
            short="Spikes",
            lead="No step of these rollouts is known to be wrong: where a program checks answers only, whether spikes "
            "find wrong steps cannot be said. The causal tests do not need to know.",
        )
    return topic(
        "steps",
        "Do spikes find the wrong steps?",
        [_top_panel(summary), _selector_panel(summary), _recovery_panel(summary)],
        short="Wrong steps",
    )


def _top_panel(summary: Summary) -> Panel | None:
    plot = DotPlot(rows=spike_rows(summary), ends=SHARE_ENDS)
    return panel(
        "Does the top spike find the first wrong step?",
        plot if plot.measured else Absent(what="Spikes against chance", command="swerve probe RUN"),
        note=f"Share of rollouts, by {divergence_name(summary)}, with its interval. The tick is chance."
        if plot.measured
        else "",
    )


def spike_rows(summary: Summary | None) -> tuple[DotRow, ...]:
    """Return, for each checkpoint, how often the top spike is on the first wrong step (0 to 100 percent)."""
    if summary is None:
        return ()
    rows = []
    for checkpoint in summary.get("checkpoints") or []:
        entry = spike_entry(summary, checkpoint, summary.get("divergence"))
        share = interval(entry.get("top_on_first_wrong")) if entry else None
        if entry is not None and share is not None:
            rows.append(dot_row(str(checkpoint), percent_interval(share), share, entry.get("chance_first_wrong")))
    return tuple(rows)


def auc_rows(selectors: Any) -> tuple[DotRow, ...]:
    """Return a line for each selector with the area under its ROC curve; chance is one half."""
    rows = []
    for entry in selectors or []:
        auc = interval(entry.get("auc"))
        if auc is not None:
            name = str(entry.get("selector"))
            rows.append(dot_row(SELECTORS.get(name, name), number_interval(auc), auc, 0.5))
    return tuple(rows)


def _selector_panel(summary: Summary) -> Panel | None:
    recovery = summary.get("recovery") or {}
    rows = tuple(
        (
            SELECTORS.get(str(entry.get("selector")), str(entry.get("selector"))),
            number_interval(interval(entry.get("auc"))),
            number_interval(interval(entry.get("average_precision"))),
        )
        for entry in recovery.get("selectors") or []
    )
    return panel(
        "Which score ranks wrong steps above the other tokens?",
        DotPlot(rows=auc_rows(recovery.get("selectors")), ends=AUC_ENDS),
        Table(
            id="selectors",
            caption="Scores against known wrong steps",
            note=f"Average precision by chance: {number(recovery.get('base_rate'))}.",
            header=("Score", "AUC", "Average precision"),
            rows=rows,
            folded=True,
        ),
        note=(
            f"Area under the ROC curve over the {count(recovery.get('num_tokens'))} tokens of "
            f"{count(recovery.get('num_rollouts'))} rollouts with {count(recovery.get('num_wrong'))} known wrong "
            f"tokens, at {summary.get('final')}. The tick is chance."
        ),
    )


def _recovery_panel(summary: Summary) -> Panel | None:
    recovery = summary.get("recovery") or {}
    divergence = summary.get("divergence", "js")
    entries = recovery.get("spikes") or []
    name = divergence_name(summary)
    return panel(
        "Which rule for a spike finds them, and what does it find in noise?",
        _recovery_table(summary, entries, divergence, id="recovery", caption=f"Rules on {name}", folded=False),
        *(
            _recovery_table(summary, entries, key, id=f"recovery-{key}", caption=f"Rules on {title}", folded=True)
            for key, title in DIVERGENCE_NAMES.items()
            if key != divergence
        ),
        _null_table(summary),
        note=(
            "Precision is the share of spikes on a wrong step, recall that of wrong steps with a spike; chance puts "
            "each rollout's spikes anywhere in it. The null pair is one model run twice: every spike there is false."
        ),
        wide=True,
    )


def _noise_panel(summary: Summary) -> Panel | None:
    return panel(
        "",
        _null_table(summary),
        note="The null pair is one model run twice: every spike there is false.",
        wide=True,
    )


def _recovery_table(summary: Summary, entries: Any, divergence: Any, *, id: str, caption: str, folded: bool) -> Table:
    num_tokens = (summary.get("recovery") or {}).get("num_tokens") or 0
    rows = []
    for entry in entries:
        if entry.get("divergence") == divergence:
            method = str(entry.get("method"))
            null = null_rate(summary, divergence, method) or {}
            density = 1000 * entry["num_spikes"] / num_tokens if num_tokens else None
            rows.append(
                (
                    METHODS.get(method, method),
                    count(entry.get("num_spikes")),
                    percent_interval(interval(entry.get("precision"))),
                    percent(entry.get("chance_precision")),
                    percent_interval(interval(entry.get("recall"))),
                    percent(entry.get("chance_recall")),
                    number_interval(interval(entry.get("f1"))),
                    number(density),
                    number_interval(interval(null.get("per_1000_tokens"))),
                )
            )
    header = (
        "Rule", "Spikes", "Precision", "Chance", "Recall", "Chance", "F1", "Per 1,000 tokens", "In the null pair",
    )  # fmt: skip
    return Table(id=id, caption=caption, header=header, rows=tuple(rows), folded=folded)


def _null_table(summary: Summary) -> Table | None:
    """Return the null pair's spikes on their own, where no wrong step is known to set beside them."""
    null = summary.get("null") or {}
    found = null.get("false_discoveries") or {}
    if (summary.get("recovery") or {}).get("spikes") or not found:
        return None
    methods = dict.fromkeys(method for one in found.values() for method in one)
    rows = tuple(
        (
            METHODS.get(method, method),
            *(
                number_interval(interval((null_rate(summary, key, method) or {}).get("per_1000_tokens")))
                for key in DIVERGENCE_NAMES
            ),
        )
        for method in methods
    )
    return Table(
        id="null",
        caption="Spikes per 1,000 tokens in the null pair",
        note=f"{count(null.get('num_tokens'))} tokens.",
        header=("Rule", *DIVERGENCE_NAMES.values()),
        rows=rows,
    )


def spike_table(summary: Summary) -> Table:
    """Return the top spikes of every checkpoint and divergence against chance, or only their number."""
    if knows_no_wrong_step(summary):
        return _spike_numbers(summary)
    rows = [
        (
            str(entry.get("checkpoint")),
            DIVERGENCE_NAMES.get(str(entry.get("divergence")), str(entry.get("divergence"))),
            count(entry.get("num_rollouts")),
            count(entry.get("num_spikes")),
            percent_interval(interval(entry.get("top_on_first_wrong"))),
            percent(entry.get("chance_first_wrong")),
            percent_interval(interval(entry.get("top_on_wrong"))),
            percent(entry.get("chance_wrong")),
        )
        for entry in summary.get("spikes") or []
    ]
    header = (
        "Checkpoint", "Divergence", "Rollouts", "Spikes", "Top spike on first wrong step", "Chance",
        "On any wrong step", "Chance",
    )  # fmt: skip
    return Table(
        id="spikes",
        caption="Top spike against chance",
        note="Chance is the share expected if the position were drawn uniformly from the same rollout.",
        header=header,
        rows=tuple(rows),
        folded=True,
    )


def _spike_numbers(summary: Summary) -> Table:
    labels = dict.fromkeys(str(entry.get("checkpoint")) for entry in summary.get("spikes") or [])
    rows = tuple(
        (
            label,
            *(count((spike_entry(summary, label, key) or {}).get("num_spikes")) for key in DIVERGENCE_NAMES),
        )
        for label in labels
    )
    return Table(
        id="spike-numbers",
        caption="Spikes by checkpoint",
        note="Number in the rollouts of the headline population.",
        header=("Checkpoint", *DIVERGENCE_NAMES.values()),
        rows=rows,
        folded=True,
    )
