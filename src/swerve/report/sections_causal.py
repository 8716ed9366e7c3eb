"""The page on causes: swaps at single positions, what predicts their effect, cross-sampling and pivots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from swerve.report.charts import dose_charts
from swerve.report.layout import Absent, ChartPart, DotPlot, DotRow, Panel, Part, Table, Topic, dot_row, panel, topic
from swerve.report.names import SELECTIONS, SELECTORS, direction_title
from swerve.report.sections_spikes import AUC_ENDS, auc_rows
from swerve.report.values import (
    Interval,
    count,
    interval,
    number_interval,
    p_value,
    percent,
    percent_interval,
    points_interval,
    signed_interval,
)

__all__ = ["causal_policies", "causal_topic", "effects"]

Summary = Mapping[str, Any]


def causal_topic(summary: Summary) -> Topic | None:
    """Return the section on causes."""
    return topic(
        "causes",
        "Does the token cause the correction?",
        [
            *_effect_panels(summary),
            *_prediction_panels(summary),
            _dose_panel(summary),
            _pivot_panel(summary),
        ],
        short="Causes",
    )


def causal_policies(summary: Summary | None) -> list[tuple[str, list[Summary], list[Summary]]]:
    """Return, for each policy that continues, its name, its selections and the differences between them.

    A summary that does not tell policies apart is of the reference's continuations.
    """
    causal = (summary or {}).get("causal") or {}
    policies = causal.get("policies") or []
    if not policies and causal.get("selections"):
        policies = [{"policy": "reference", "selections": causal["selections"], "differences": []}]
    return [
        (str(one.get("policy")), list(one.get("selections") or []), list(one.get("differences") or []))
        for one in policies
    ]


def effects(selections: list[Summary], summary: Summary) -> Iterator[tuple[str, Interval]]:
    """Yield the measured effects on success: at each selection of the checkpoint's token, then of another one."""
    tokens = (("effect", f"token of {summary.get('final')}"), ("alternative_effect", "another token"))
    for entry in selections:
        for key, what in tokens:
            effect = interval(entry.get(key))
            if effect is not None:
                yield f"{_selection(entry)}, {what}", effect


def _selection(entry: Summary) -> str:
    name = str(entry.get("selection"))
    return SELECTIONS.get(name, name)


def _effect_panels(summary: Summary) -> Iterator[Panel | None]:
    policies = causal_policies(summary)
    # Responses from elsewhere need not have a grader, so no command is promised to measure it.
    if not policies and summary.get("selection") != "imported":
        missing = Absent(what="Causal effect", command="swerve probe RUN")
        yield panel("Does the token at the spike cause the correction?", missing)
    for policy, selections, differences in policies:
        model = summary.get("final" if policy == "checkpoint" else "reference")
        id = "causal" if policy == "reference" else f"causal-{policy}"
        yield panel(
            f"Forced tokens, continued by {model}",
            DotPlot(rows=_effect_rows(selections, summary), ends=("\N{MINUS SIGN}100", "0", "+100"), around_zero=True),
            _effect_table(summary, selections, id=id, model=model),
            _difference_table(differences, id=f"{id}-differences"),
            note=f"Change in the success of {model} when a token stands in place of the rollout's own, in percentage "
            "points. The line is no effect.",
            wide=True,
        )


def _effect_rows(selections: list[Summary], summary: Summary) -> tuple[DotRow, ...]:
    return tuple(
        dot_row(name, points_interval(effect), effect, 0.0, low=-1.0) for name, effect in effects(selections, summary)
    )


def _effect_table(summary: Summary, selections: list[Summary], *, id: str, model: Any) -> Table:
    causal = summary.get("causal") or {}
    rows = tuple(
        (
            _selection(entry),
            percent((entry.get("reference") or {}).get("success")),
            percent((entry.get("checkpoint") or {}).get("success")),
            percent((entry.get("alternative") or {}).get("success")),
            points_interval(interval(entry.get("effect"))),
            points_interval(interval(entry.get("alternative_effect"))),
            points_interval(interval(entry.get("checkpoint_minus_alternative"))),
            percent(entry.get("share_same_token")),
            points_interval(interval((entry.get("different_tokens") or {}).get("effect"))),
            p_value((entry.get("test") or {}).get("p_adjusted")),
        )
        for entry in selections
    )
    final = summary.get("final")
    header = (
        "Position", "Success with own token", f"Token of {final}", "Another token", f"Effect, {final}",
        "Effect, another", "Difference of these", "Same token", f"Effect, {final}, where tokens differ",
        "Adjusted p",
    )  # fmt: skip
    return Table(
        id=id,
        caption="Success and effects (points)",
        note=f"{count(causal.get('num_rollouts'))} rollouts, {count(causal.get('num_continuations'))} continuations by "
        f"{model} after each forced token. Same token: {final} chooses the rollout's own. Tests are paired Wilcoxon "
        "tests over problems.",
        header=header,
        rows=rows,
    )


def _difference_table(differences: list[Summary], *, id: str) -> Table:
    rows = tuple(
        (
            f"spike minus {entry.get('control')}",
            count(entry.get("num_pairs")),
            points_interval(interval(entry.get("difference"))),
            p_value((entry.get("test") or {}).get("p_adjusted")),
        )
        for entry in differences
    )
    return Table(
        id=id,
        caption="Spikes against their controls (points)",
        header=("Effect", "Pairs", "Difference", "Adjusted p"),
        rows=rows,
    )


_POSITIONS = {"all": "all positions", "different_tokens": "positions where the tokens differ"}


def _prediction_panels(summary: Summary) -> Iterator[Panel | None]:
    entries = summary.get("prediction") or []
    several = len({entry.get("policy") for entry in entries}) > 1
    for number, entry in enumerate(entries):
        where = _POSITIONS.get(str(entry.get("positions")), str(entry.get("positions")))
        model = summary.get("final" if entry.get("policy") == "checkpoint" else "reference")
        by = f", continued by {model}" if several else ""
        yield panel(
            f"Does the score predict the effect? {where[:1].upper()}{where[1:]}{by}",
            DotPlot(rows=auc_rows(entry.get("selectors")), ends=AUC_ENDS),
            _prediction_table(entry, id=f"prediction-{number}"),
            note=f"AUC of each score for an effect of {percent(entry.get('delta'))} or more: "
            f"{count(entry.get('num_effects'))} of {count(entry.get('num_positions'))} positions have one. The tick is "
            "chance.",
        )


def _prediction_table(entry: Summary, *, id: str) -> Table:
    rows = tuple(
        (
            SELECTORS.get(str(one.get("selector")), str(one.get("selector"))),
            number_interval(interval(one.get("auc"))),
            signed_interval(interval(one.get("spearman"))),
            p_value(one.get("p_adjusted")),
        )
        for one in entry.get("selectors") or []
    )
    header = ("Score", "AUC", "Rank correlation with the size of the effect", "Adjusted p")
    return Table(id=id, caption="Scores against effects", header=header, rows=rows, folded=True)


def _dose_panel(summary: Summary) -> Panel | None:
    sampling = summary.get("cross_sampling") or {}
    directions = sampling.get("directions") or []
    parts: list[Part] = [ChartPart(chart=chart) for chart in dose_charts(summary)]
    parts += [_dose_table(entry, summary, id=f"dose-{number}") for number, entry in enumerate(directions)]
    return panel(
        "How few tokens of the other model are enough?",
        *parts,
        note=f"One model writes and takes the other's token wherever the score fires, on "
        f"{count(sampling.get('num_problems'))} problems that were not selected. The lines across are the two models "
        "alone; bars are intervals.",
        wide=True,
    )


def _dose_table(entry: Summary, summary: Summary, *, id: str) -> Table:
    selectors = entry.get("selectors") or []
    budgets = sorted({point["budget"] for one in selectors for point in one.get("points") or []})
    rows = []
    for one in selectors:
        by_budget = {point["budget"]: point for point in one.get("points") or []}
        rows.append(
            (
                SELECTORS.get(str(one.get("selector")), str(one.get("selector"))),
                number_interval(interval(one.get("auc"))),
                "\N{EN DASH}"
                if one.get("selector") == "random"
                else signed_interval(interval(one.get("auc_over_random"))),
                *(percent_interval(interval((by_budget.get(budget) or {}).get("recovered"))) for budget in budgets),
            )
        )
    gap, share = interval(entry.get("gap")), entry.get("largest_common_share")
    return Table(
        id=id,
        caption=f"{direction_title(entry.get('direction'), summary)}: share of the gap recovered",
        note=f"The gap between the two models is {points_interval(gap)} points. AUC is the mean share recovered up to "
        f"{percent(share)} of the tokens.",
        header=("Score", "AUC", "AUC over random", *(f"At {100 * budget:g}%" for budget in budgets)),
        rows=tuple(rows),
    )


def _pivot_panel(summary: Summary) -> Panel | None:
    pivots = summary.get("pivots") or {}
    found = f"{count(pivots.get('num_pivots'))} in {count(pivots.get('num_rollouts_with_pivot'))} of "
    confirmed = f"{count(pivots.get('num_confirmed'))}, of which by chance at most "
    facts = (
        ("tokens that change the success by the gap", f"{found}{count(pivots.get('num_rollouts'))} rollouts"),
        ("rises, falls", f"{count(pivots.get('num_rises'))}, {count(pivots.get('num_falls'))}"),
        ("confirmed on fresh continuations", confirmed + _expected(pivots.get("max_false_confirmed"))),
        ("size where found (points)", points_interval(interval(pivots.get("size_search")))),
        ("size on fresh continuations (points)", points_interval(interval(pivots.get("size_estimate")))),
        *(
            (f"on {what} (by chance {percent(hit.get('chance'))})", percent_interval(interval(hit.get("share"))))
            for key, what in (
                ("on_spike", "a spike"),
                ("on_wrong", "a wrong step"),
                ("on_first_wrong", "the first wrong step"),
            )
            if (hit := pivots.get(key)) is not None
        ),
    )
    table = Table(id="pivots", caption="Pivotal tokens", header=("", "Measured"), rows=facts if pivots else ())
    return panel(
        "Which single tokens decide the outcome?",
        table,
        note=f"Bisection along the rollouts for a change of {percent(pivots.get('gap'))} or more, with "
        f"{count(pivots.get('num_continuations'))} continuations of each of {count(pivots.get('num_prefixes'))} "
        f"prefixes; two equal rates differ by so much with probability "
        f"{percent(pivots.get('false_positive_rate'))}.",
    )


def _expected(value: Any) -> str:
    """Return an expected count with one decimal.

    >>> _expected(0.1668)
    '0.2'
    """
    return "not measured" if value is None else f"{value:.1f}"
