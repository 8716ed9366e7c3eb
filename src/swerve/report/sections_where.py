"""The page on where the divergence lies: categories, regions, style, rank shifts, entropy and forking tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from swerve.report.layout import Absent, Bar, BarPlot, Panel, Table, Topic, measured_columns, panel, topic
from swerve.report.names import REGIONS, divergence_name
from swerve.report.sections_selection import entry_at
from swerve.report.values import (
    count,
    interval,
    number_interval,
    percent,
    percent_interval,
    points_interval,
    signed_interval,
)

__all__ = ["bars", "where_topic"]

Summary = Mapping[str, Any]


def where_topic(summary: Summary) -> Topic | None:
    """Return the section on where the checkpoints differ."""
    return topic(
        "where",
        "Where does training change the text?",
        [
            _category_panel(summary),
            panel("Early or late, style or reasoning?", _region_table(summary), _style_table(summary)),
            panel(
                "Would the other model have written the token?",
                _rank_table(summary),
                note="Ranks of the tokens that stand there: 1 unshifted, 2 or 3 marginal, beyond 3 shifted.",
            ),
            _entropy_panel(summary),
        ],
        short="Where",
    )


def _category_panel(summary: Summary) -> Panel | None:
    plot = BarPlot(rows=bars(summary), key=("share of divergence", "share of tokens"))
    return panel(
        "Which tokens carry the divergence?",
        plot if plot.measured else Absent(what="Token categories", command="swerve probe RUN"),
        _category_table(summary),
    )


def _final_categories(summary: Summary) -> list[Summary]:
    rows = [entry for entry in summary.get("categories") or [] if entry.get("checkpoint") == summary.get("final")]
    return sorted(rows, key=lambda entry: -(entry.get("share_divergence") or 0.0))


def bars(summary: Summary | None) -> tuple[Bar, ...]:
    """Return each category's share of divergence and of tokens at the final checkpoint."""
    rows = [] if summary is None else _final_categories(summary)
    return tuple(
        Bar(
            name=str(entry.get("category")).replace("_", " "),
            first=round(100 * entry["share_divergence"], 2),
            second=round(100 * entry["share_tokens"], 2),
            label=f"{percent(entry['share_divergence'])} of divergence, {percent(entry['share_tokens'])} of tokens",
        )
        for entry in rows
        if entry.get("share_tokens") is not None and entry.get("share_divergence") is not None
    )


def _category_table(summary: Summary) -> Table:
    rows = [
        (
            str(entry.get("category")).replace("_", " "),
            count(entry.get("num_tokens")),
            percent(entry.get("share_tokens")),
            percent(entry.get("share_divergence")),
            count(entry.get("num_spikes")),
            percent(entry.get("spike_rate")),
            percent(entry.get("base_rate")),
        )
        for entry in _final_categories(summary)
    ]
    return Table(
        id="categories",
        caption=f"Token categories at {summary.get('final')}",
        note=f"Share of divergence and spikes by {divergence_name(summary)}; the base rate is that of all tokens.",
        header=("Category", "Tokens", "Share of tokens", "Share of divergence", "Spikes", "Spike rate", "Base rate"),
        rows=tuple(rows),
    )


def _region_table(summary: Summary) -> Table:
    key, final = summary.get("divergence", "js"), summary.get("final")
    rows = []
    for entry in summary.get("regions") or []:
        if entry.get("checkpoint") == final:
            rows.append(
                (
                    REGIONS.get(str(entry.get("region")), str(entry.get("region"))),
                    percent(entry.get("share_tokens")),
                    percent_interval(interval((entry.get("share_divergence") or {}).get(key))),
                    number_interval(interval((entry.get("mean") or {}).get(key))),
                    percent((entry.get("spike_rate") or {}).get(key)),
                    percent((entry.get("base_rate") or {}).get(key)),
                )
            )
    return Table(
        id="regions",
        caption=f"Thirds of the rollouts at {final}",
        note=f"By {divergence_name(summary)}; means in nats a token.",
        header=("Third", "Tokens", "Divergence", "Mean", "Spike rate", "Base rate"),
        rows=tuple(rows),
    )


def _style_table(summary: Summary) -> Table:
    rows = tuple(
        (
            str(entry.get("checkpoint")),
            count(entry.get("num_style_tokens")),
            percent_interval(interval(entry.get("share_tokens"))),
            percent_interval(interval(entry.get("share_divergence"))),
            points_interval(interval(entry.get("excess"))),
        )
        for entry in summary.get("style") or []
    )
    return Table(
        id="style",
        caption="Style against reasoning, by checkpoint",
        note="Style is mark-up, punctuation, white space and discourse words. The excess is the share of the "
        "divergence minus that of the tokens, in points.",
        header=("Checkpoint", "Style tokens", "Share of tokens", "Share of divergence", "Excess"),
        rows=rows,
        folded=True,
    )


def _rank_table(summary: Summary) -> Table:
    rows = []
    for entry in summary.get("rank_shift") or []:
        models = {"rank": entry.get("checkpoint"), "rank_ref": summary.get("reference")}
        for key, model in models.items():
            classes = entry.get(key) or {}
            text = "its own text" if entry.get("source") == model else f"text of {entry.get('source')}"
            rows.append(
                (
                    f"{model} on {text}",
                    count(entry.get("num_tokens")),
                    *(
                        percent_interval(interval((classes.get(name) or {}).get("share")))
                        for name in ("unshifted", "marginal", "shifted")
                    ),
                )
            )
    return Table(
        id="ranks",
        caption="Rank shifts",
        header=("Rank under", "Tokens", "Unshifted", "Marginal", "Shifted"),
        rows=tuple(rows),
    )


def _entropy_panel(summary: Summary) -> Panel | None:
    return panel(
        "Did the model become more certain, and where does it fork?",
        _entropy_table(summary),
        _forking_table(summary),
        _entropy_places(summary),
        note="Forking tokens are the fifth of the tokens at which the reference is least certain.",
    )


def _entropy_table(summary: Summary) -> Table:
    entropy = summary.get("entropy") or {}
    rows = tuple(
        (
            str(entry.get("checkpoint")),
            number_interval(interval(entry.get("entropy"))),
            signed_interval(interval(entry.get("change"))),
            percent_interval(interval(entry.get("share_argmax_changed"))),
        )
        for entry in entropy.get("means") or []
    )
    return Table(
        id="entropy",
        caption="Entropy on the rollouts read, by checkpoint",
        note="Nats a token; the change is against the reference on the same tokens.",
        header=("Checkpoint", "Entropy", "Change", "Top token changed"),
        rows=rows,
    )


def _forking_table(summary: Summary) -> Table:
    key, rows = summary.get("divergence", "js"), []
    for entry in (summary.get("entropy") or {}).get("forking") or []:
        spikes, wrong = (entry.get("spikes") or {}).get(key) or {}, entry.get("wrong_steps") or {}
        rows.append(
            (
                str(entry.get("checkpoint")),
                percent(entry.get("share_tokens")),
                percent_interval(interval((entry.get("share_divergence") or {}).get(key))),
                percent_interval(interval(spikes.get("share"))),
                percent_interval(interval(wrong.get("share"))),
            )
        )
    return measured_columns(
        Table(
            id="forking",
            caption="What falls on forking tokens, by checkpoint",
            header=("Checkpoint", "Of tokens", "Of divergence", "Of spikes", "Of wrong steps"),
            rows=tuple(rows),
            folded=True,
        )
    )


def _entropy_places(summary: Summary) -> Table:
    entry = entry_at((summary.get("entropy") or {}).get("means"), summary.get("final")) or {}
    places = [("third", "region", entry.get("regions")), ("category", "category", entry.get("categories"))]
    rows = tuple(
        (
            f"{what} {REGIONS.get(str(one.get(key)), str(one.get(key))).replace('_', ' ')}",
            number_interval(interval(one.get("entropy"))),
            signed_interval(interval(one.get("change"))),
        )
        for what, key, found in places
        for one in found or []
    )
    return Table(
        id="entropy-places",
        caption=f"Entropy at {summary.get('final')}, by third and category",
        header=("Where", "Entropy", "Change"),
        rows=rows,
        folded=True,
    )
