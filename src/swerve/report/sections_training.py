"""The page on what training did: direction, correlates, biographies, the training signal, and attributions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from swerve.report.layout import Bar, BarPlot, Panel, Table, Topic, panel, topic
from swerve.report.names import CORRELATES, divergence_name
from swerve.report.values import (
    count,
    interval,
    number,
    number_interval,
    p_value,
    percent,
    percent_interval,
    signed_interval,
)

__all__ = ["onset_bars", "training_topic"]

Summary = Mapping[str, Any]


def training_topic(summary: Summary) -> Topic | None:
    """Return the section on what training did to the tokens."""
    return topic(
        "training",
        "What did training do to the tokens?",
        [
            _direction_panel(summary),
            _biography_panel(summary),
            _correlate_panel(summary),
            _attribution_panel(summary),
            _signal_panel(summary),
        ],
        short="Training",
    )


def _direction_panel(summary: Summary) -> Panel | None:
    rows, steps = [], []
    for entry in summary.get("direction") or []:
        name = f"{entry.get('checkpoint')} on text of {entry.get('source')}"
        rows.append(
            (
                name,
                percent_interval(interval(entry.get("share_good"))),
                percent_interval(interval(entry.get("share_good_tokens"))),
                signed_interval(interval(entry.get("mean_move_right"))),
                signed_interval(interval(entry.get("mean_move_wrong"))),
                number_interval(interval(entry.get("auc"))),
            )
        )
        wrong = entry.get("wrong_steps")
        if wrong:
            steps.append(
                (
                    name,
                    count(wrong.get("num_tokens")),
                    signed_interval(interval(wrong.get("mean_move"))),
                    signed_interval(interval(wrong.get("mean_move_others"))),
                    percent_interval(interval(wrong.get("share_expected_ref"))),
                    percent_interval(interval(wrong.get("share_expected"))),
                )
            )
    return panel(
        "Does the divergence go towards right answers?",
        Table(
            id="direction",
            caption="Good and bad divergence",
            note="Good is a rise of log-probability in a right rollout and a fall in a wrong one. Moves are nats a "
            "token; the AUC is of a rollout's summed move for a right answer.",
            header=("Checkpoint", "Good, of divergence", "Good, of tokens", "Move, right", "Move, wrong", "AUC"),
            rows=tuple(rows),
        ),
        Table(
            id="wrong-steps",
            caption="Moves on known wrong steps",
            note="Top token right: how often the most likely token is the one a right step has there.",
            header=(
                "Checkpoint",
                "Wrong tokens",
                "Move",
                "Move of the others",
                f"Top token right, {summary.get('reference')}",
                "Top token right, checkpoint",
            ),
            rows=tuple(steps),
            folded=True,
        ),
        wide=True,
    )


def onset_bars(summary: Summary | None) -> tuple[Bar, ...]:
    """Return, by step of onset, the share of wrong steps that left the reference there, and that of other tokens."""
    biographies = (summary or {}).get("biographies") or {}
    groups = [(biographies.get("tokens") or {}).get(name) or {} for name in ("wrong_steps", "others")]
    if not all(one.get("num_tokens") for one in groups) or not any(one.get("num_moved") for one in groups):
        return ()
    labels = [str(label) for label in biographies.get("checkpoints") or []]
    counts = [[entry["num_tokens"] for entry in one.get("onset_steps") or []] for one in groups]
    moved = [max(1, one.get("num_moved") or 0) for one in groups]
    rows = []
    for label, wrong, other in zip(labels, *counts, strict=False):
        shares = wrong / moved[0], other / moved[1]
        text = f"{percent(shares[0])} of wrong steps, {percent(shares[1])} of other tokens"
        rows.append(Bar(name=label, first=round(100 * shares[0], 2), second=round(100 * shares[1], 2), label=text))
    return tuple(rows)


_GROUPS = {"wrong_steps": "wrong steps", "others": "other tokens beside them", "all": "all tokens"}


def _biography_panel(summary: Summary) -> Panel | None:
    biographies = summary.get("biographies") or {}
    tokens = biographies.get("tokens") or {}
    rows = []
    for key, name in _GROUPS.items():
        one = tokens.get(key)
        if one and one.get("num_tokens"):
            changes = one.get("change_points") or {}
            rows.append(
                (
                    name,
                    count(one.get("num_tokens")),
                    percent_interval(interval(one.get("share_moved"))),
                    percent_interval(interval(one.get("share_reversed"))),
                    number(one.get("median_linearity")),
                    percent_interval(interval(changes.get("share"))),
                )
            )
    return panel(
        "When does a token leave the reference?",
        BarPlot(rows=onset_bars(summary), key=("wrong steps", "other tokens")),
        Table(
            id="biographies",
            caption="Biographies of tokens",
            note="Turned back, linearity and jumps are of the tokens that moved. A jump is a change point that a line "
            "does not explain as well.",
            header=("Tokens", "Number", "Moved for good", "Turned back", "Linearity", "Jumps"),
            rows=tuple(rows),
        ),
        note=f"Of the tokens that moved, the share whose log-probability left that of the reference by more than "
        f"{number(biographies.get('threshold'), 2)} nats for good at each checkpoint.",
        wide=True,
    )


def _correlate_panel(summary: Summary) -> Panel | None:
    entries = summary.get("correlates") or []
    final = [entry for entry in entries if entry.get("checkpoint") == summary.get("final")]
    others = [entry for entry in entries if entry.get("checkpoint") != summary.get("final")]
    return panel(
        "What goes with the divergence of a rollout?",
        _correlate_table(final, id="correlates", caption=f"Correlates at {summary.get('final')}", folded=False),
        _correlate_table(others, id="correlates-all", caption="Correlates at other checkpoints", folded=True),
        note=f"Rank correlations of {divergence_name(summary)}; p-values are adjusted over all tests of the table and "
        "the one below (Benjamini and Hochberg). None of them says what causes what.",
        wide=True,
    )


def _correlate_table(entries: list[Summary], *, id: str, caption: str, folded: bool) -> Table:
    rows = tuple(
        (
            f"{entry.get('level')}: {CORRELATES.get(str(entry.get('correlate')), str(entry.get('correlate')))}",
            *((str(entry.get("checkpoint")),) if folded else ()),
            str(entry.get("source")),
            count(entry.get("num")),
            signed_interval(interval(entry.get("estimate"))),
            p_value(entry.get("p_adjusted")),
        )
        for entry in entries
    )
    header = ("Correlate", *(("Checkpoint",) if folded else ()), "Text of", "Number", "Correlation", "Adjusted p")
    return Table(id=id, caption=caption, header=header, rows=rows, folded=folded)


def _attribution_panel(summary: Summary) -> Panel | None:
    rows = []
    for entry in summary.get("attribution") or []:
        for key, name in _PLACES.items():
            one = entry.get(key) or {}
            score = interval(one.get("score"))
            show = number_interval if key == "distance" else percent_interval
            uniform = number(one.get("uniform")) if key == "distance" else percent(one.get("uniform"))
            rows.append((f"{entry.get('model')}: {name}", count(one.get("num_spots")), show(score), uniform))
    methods = {str(entry.get("method")) for entry in summary.get("attribution") or []}
    return panel(
        "Which earlier tokens decide a spike?",
        Table(
            id="attribution",
            caption=f"Attribution by {', '.join(sorted(methods)).replace('_', ' ')}",
            note="Share of the score on each kind of earlier token, beside the share if all earlier tokens counted "
            "alike.",
            header=("Model and tokens", "Spikes", "Score", "If all alike"),
            rows=tuple(rows),
        ),
    )


_PLACES = {
    "prompt": "prompt",
    "recent": "last 5 tokens",
    "wrong": "earlier wrong steps",
    "distance": "mean distance (tokens)",
}


def _signal_panel(summary: Summary) -> Panel | None:
    rows = []
    for entry in summary.get("training_signal") or []:
        groups, direction = entry.get("divergence") or {}, entry.get("direction") or {}
        rows.append(
            (
                f"{entry.get('checkpoint')} against {entry.get('reference')}",
                *(
                    number_interval(interval((groups.get(key) or {}).get("mean")))
                    for key in ("signal", "no_signal", "not_seen")
                ),
                number_interval(interval(entry.get("spill_over"))),
                signed_interval(interval(entry.get("advantage_correlation"))),
                percent_interval(interval(direction.get("agreement"))),
                percent(direction.get("chance")),
                signed_interval(interval(direction.get("above_chance"))),
            )
        )
    header = (
        "Pair", "With a signal", "Without", "Not yet seen", "Spill-over", "Correlation with |advantage|",
        "Moved as pushed", "Chance", "Above chance",
    )  # fmt: skip
    return panel(
        "Does a token move where, and the way, it was pushed?",
        Table(
            id="signal",
            caption=f"Mean {divergence_name(summary)} by training signal",
            note="Nats a token, on rollouts of training. A token has a signal if an update learnt from it with an "
            "advantage other than 0; spill-over is the divergence without a signal over that with one.",
            header=header,
            rows=tuple(rows),
        ),
        wide=True,
    )
