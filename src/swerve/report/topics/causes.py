"""Causes: does the token at a spike cause the correction, and how few tokens of the other model are enough?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from swerve.artifacts.probe_causes import (
    CrossSamplingDirection,
    CrossSamplingPoint,
    CrossSamplingSelector,
    Prediction,
    SwapDifference,
    Swaps,
    SwapSelection,
)
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.estimates import Estimate
from swerve.report.draw.curves import Chart, Curve, Level
from swerve.report.draw.figures import GREY, Drawing, dose_drawing, estimate_rows
from swerve.report.draw.panels import (
    POINT_ENDS,
    Absent,
    ChartPart,
    DotPlot,
    Panel,
    Section,
    Table,
    dot_row,
    panel,
    section,
)
from swerve.report.format import (
    NOT_MEASURED,
    SAME,
    compared,
    count,
    listed,
    number,
    number_interval,
    p_value,
    percent,
    percent_interval,
    points,
    points_interval,
    signed_interval,
)
from swerve.report.names import SELECTIONS, SELECTORS, continuing_model, direction_title, named, selector_word
from swerve.report.read import ReportInputs
from swerve.report.topics.spikes import auc_plot
from swerve.report.topics.topic import Tile, Topic, of_probe

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _sentences(summary: ProbeSummary) -> Iterator[str]:
    yield _effect(summary)
    yield _alternative(summary)
    yield from (_prediction(one) for one in summary.prediction)
    yield _pivots(summary)


def _effect_at(summary: ProbeSummary) -> tuple[Estimate | None, ...]:
    """Return the effects of the checkpoint's token at spikes, at matched and at random positions."""
    swaps = summary.causal
    found = (None if swaps is None else swaps.selection(name) for name in SELECTIONS)
    return tuple(None if one is None else one.effect for one in found)


def _effect(summary: ProbeSummary) -> str:
    spike, matched, random = _effect_at(summary)
    if spike is None:
        return "Whether the token at the spike causes the correction was not measured."
    sentence = (
        f"Putting the token of {summary.final} in place of that of {summary.reference} at the top spike, and letting "
        f"{summary.reference} continue, changes its success by {points_interval(spike)} percentage points"
    )
    controls = [(name, one) for name, one in (("matched", matched), ("random", random)) if one is not None]
    shown = [f"at {name} positions by {points_interval(one)}" for name, one in controls]
    if random is None:
        shown.append("random positions were not measured")
    overlaps = any(spike.overlaps(one) for _, one in controls)
    verdict = "; the intervals overlap, so no effect of the spike is shown" if overlaps else ""
    return f"{sentence}; {', '.join(shown)}{verdict}."


def _alternative(summary: ProbeSummary) -> str:
    spike = None if summary.causal is None else summary.causal.selection("spike")
    if spike is None or spike.alternative_effect is None or spike.checkpoint_minus_alternative is None:
        return ""
    more = spike.checkpoint_minus_alternative
    verdict = compared(more, 0.0, above="more", below="less")
    said = "so the two are not distinguishable"
    if verdict != SAME:
        said = f"so the token of {summary.final} does {verdict} than another"
    return (
        f"A control token at the same place, neither model's choice, changes it by "
        f"{points_interval(spike.alternative_effect)}: the token of {summary.final} is ahead by "
        f"{points_interval(more)} points, {said}."
    )


_POSITIONS = {"all": "all positions", "different_tokens": "positions where the tokens differ"}
_TESTED = {"all": "Over all positions tested", "different_tokens": "Among those where the two models' tokens differ"}


def _prediction(entry: Prediction) -> str:
    found = [(selector_word(one.selector), one.auc) for one in entry.selectors if one.auc is not None]
    if not found:
        return ""
    where = _TESTED[entry.positions]
    if entry.policy == "checkpoint":
        where = f"Where the checkpoint continues: {where[:1].lower()}{where[1:]}"
    size = f"an effect of {percent(entry.delta)} or more"
    above = sorted(((name, auc) for name, auc in found if auc.low > 0.5), key=lambda one: -one[1].mean)
    below = [name for name, auc in found if auc.high < 0.5]
    against = f"; {listed(below)} {'ranks' if len(below) == 1 else 'rank'} them below chance" if below else ""
    if not above:
        return f"{where}, no score ranks those with {size} above chance{against}."
    best, most = above[0]
    tied = [name for name, auc in above[1:] if auc.overlaps(most)]
    also = f", {SAME} {listed(tied)}" if tied else ""
    lower = len(above) - 1 - len(tied)
    more = f"; {count(lower)} more {'is' if lower == 1 else 'are'} above chance" if lower else ""
    return f"{where}, {best} best ranks those with {size}: AUC {number_interval(most)}{also}{more}{against}."


def _pivots(summary: ProbeSummary) -> str:
    pivots = summary.pivots
    if pivots is None:
        return ""
    spike, on = pivots.on_spike, ""
    if spike is not None and spike.share is not None:
        on = f"; {percent_interval(spike.share)} of them are spikes (by chance {percent(spike.chance)})"
    return (
        f"Along {count(pivots.num_rollouts)} rollouts {count(pivots.num_pivots)} single tokens change the success by "
        f"{percent(pivots.gap)} or more, {count(pivots.num_confirmed)} of them also on fresh continuations (at most "
        f"{number(pivots.max_false_confirmed, 2)} expected by chance){on}."
    )


def _directions(summary: ProbeSummary) -> tuple[CrossSamplingDirection, ...]:
    return () if summary.cross_sampling is None else summary.cross_sampling.directions


def _doses(summary: ProbeSummary) -> Iterator[str]:
    """Yield what few tokens of the other model recover."""
    for entry in _directions(summary):
        title, best = direction_title(entry.direction, summary), _least_dose(entry)
        if entry.gap is None or entry.base is None or entry.other is None:
            continue
        if not entry.gap.excludes(0):
            yield (
                f"{title}: the two models alone are not distinguishable ({points_interval(entry.gap)}), so nothing can "
                "be recovered."
            )
        elif best is not None:
            selector, point = best
            yield (
                f"{title}: with {selector_word(selector.selector)} choosing {percent(point.share_swapped)} of the "
                f"tokens, accuracy goes from {percent_interval(entry.base)} to {percent_interval(point.accuracy)}, "
                f"which is {percent_interval(point.recovered)} of the gap to {percent_interval(entry.other)}"
                f"{_against_random(selector)}."
            )


def _least_dose(entry: CrossSamplingDirection) -> tuple[CrossSamplingSelector, CrossSamplingPoint] | None:
    """Return the selector and point that recover most of the gap at the least budget, random ones left out."""
    found = [
        (point.budget, -point.recovered.mean, selector, point)
        for selector in entry.selectors
        if selector.selector != "random"
        for point in selector.points
        if point.recovered is not None and point.accuracy is not None
    ]
    return min(found, key=lambda one: one[:2])[2:] if found else None


def _against_random(selector: CrossSamplingSelector) -> str:
    more = selector.auc_over_random
    if more is None:
        return ""
    return f"; over all budgets it is {compared(more, 0.0)} random choice, {signed_interval(more)} of the gap"


def _tile(inputs: ReportInputs) -> Tile:
    caption = "Effect of the token at the spike"
    spike, _, random = (None, None, None) if inputs.summary is None else _effect_at(inputs.summary)
    if spike is None:
        detail = "responses from elsewhere" if inputs.is_imported else "run swerve probe"
        return Tile(caption=caption, value=NOT_MEASURED, detail=detail)
    control = NOT_MEASURED if random is None else f"{points(random.mean)} points"
    return Tile(caption=caption, value=f"{points(spike.mean)} points", detail=f"at random positions {control}")


def _section(inputs: ReportInputs) -> Section | None:
    title, summary = "Does the token cause the correction?", inputs.summary
    panels: list[Panel | None] = []
    # Responses from elsewhere need not have a grader, so no command is promised to measure it.
    if not inputs.is_imported and (summary is None or summary.causal is None):
        missing = Absent(what="Causal effect", command="swerve probe RUN")
        panels.append(panel("Does the token at the spike cause the correction?", missing))
    if summary is not None:
        if summary.causal is not None:
            panels += _effect_panels(summary, summary.causal)
        panels += [*_prediction_panels(summary), _dose_panel(summary), _pivot_panel(summary)]
    return section("causes", title, panels, short="Causes")


def _effects(selections: Sequence[SwapSelection], summary: ProbeSummary) -> Iterator[tuple[str, Estimate]]:
    """Yield the measured effects on success: at each position of the checkpoint's token, then of another one."""
    for one in selections:
        name = SELECTIONS[one.selection]
        if one.effect is not None:
            yield f"{name}, token of {summary.final}", one.effect
        if one.alternative_effect is not None:
            yield f"{name}, another token", one.alternative_effect


def _effect_panels(summary: ProbeSummary, swaps: Swaps) -> Iterator[Panel | None]:
    for policy in swaps.by_policy:
        model = continuing_model(policy.policy, summary)
        id = "causal" if policy.policy == "reference" else f"causal-{policy.policy}"
        rows = (
            dot_row(name, points_interval(effect), effect, 0.0, low=-1.0)
            for name, effect in _effects(policy.selections, summary)
        )
        yield panel(
            f"Forced tokens, continued by {model}",
            DotPlot(rows=tuple(rows), ends=POINT_ENDS, around_zero=True),
            _effect_table(summary, swaps, policy.selections, id=id, model=model),
            _difference_table(policy.differences, id=f"{id}-differences"),
            note=f"Change in the success of {model} when a token stands in place of the rollout's own, in percentage "
            "points. The line is no effect.",
            wide=True,
        )


def _effect_table(
    summary: ProbeSummary, swaps: Swaps, selections: Sequence[SwapSelection], *, id: str, model: str
) -> Table:
    rows = tuple(
        (
            SELECTIONS[one.selection],
            percent(one.reference.success),
            percent(one.checkpoint.success),
            percent(one.alternative.success),
            points_interval(one.effect),
            points_interval(one.alternative_effect),
            points_interval(one.checkpoint_minus_alternative),
            percent(one.share_same_token),
            points_interval(one.different_tokens.effect),
            p_value(None if one.test is None else one.test.p_adjusted),
        )
        for one in selections
    )
    final = summary.final
    header = (
        "Position", "Success with own token", f"Token of {final}", "Another token", f"Effect, {final}",
        "Effect, another", "Difference of these", "Same token", f"Effect, {final}, where tokens differ",
        "Adjusted p",
    )  # fmt: skip
    return Table(
        id=id,
        caption="Success and effects (points)",
        note=f"{count(swaps.num_rollouts)} rollouts, {count(swaps.num_continuations)} continuations by {model} after "
        f"each forced token. Same token: {final} chooses the rollout's own. Tests are paired Wilcoxon tests over "
        "problems.",
        header=header,
        rows=rows,
    )


def _difference_table(differences: Sequence[SwapDifference], *, id: str) -> Table:
    rows = tuple(
        (
            f"spike minus {one.control}",
            count(one.num_pairs),
            points_interval(one.difference),
            p_value(None if one.test is None else one.test.p_adjusted),
        )
        for one in differences
    )
    header = ("Effect", "Pairs", "Difference", "Adjusted p")
    return Table(id=id, caption="Spikes against their controls (points)", header=header, rows=rows)


def _prediction_panels(summary: ProbeSummary) -> Iterator[Panel | None]:
    several = len({one.policy for one in summary.prediction}) > 1
    for index, one in enumerate(summary.prediction):
        where = _POSITIONS[one.positions]
        by = f", continued by {continuing_model(one.policy, summary)}" if several else ""
        yield panel(
            f"Does the score predict the effect? {where[:1].upper()}{where[1:]}{by}",
            auc_plot(one.selectors),
            _prediction_table(one, id=f"prediction-{index}"),
            note=f"AUC of each score for an effect of {percent(one.delta)} or more: {count(one.num_effects)} of "
            f"{count(one.num_positions)} positions have one. The tick is chance.",
        )


def _prediction_table(entry: Prediction, *, id: str) -> Table:
    rows = tuple(
        (
            named(SELECTORS, one.selector),
            number_interval(one.auc),
            signed_interval(one.spearman),
            p_value(one.p_adjusted),
        )
        for one in entry.selectors
    )
    header = ("Score", "AUC", "Rank correlation with the size of the effect", "Adjusted p")
    return Table(id=id, caption="Scores against effects", header=header, rows=rows, folded=True)


def _dose_panel(summary: ProbeSummary) -> Panel | None:
    sampling = summary.cross_sampling
    if sampling is None:
        return None
    charts = [ChartPart(chart=chart) for chart in _dose_charts(summary)]
    tables = [_dose_table(one, summary, id=f"dose-{index}") for index, one in enumerate(sampling.directions)]
    return panel(
        "How few tokens of the other model are enough?",
        *charts,
        *tables,
        note=f"One model writes and takes the other's token wherever the score fires, on "
        f"{count(sampling.num_problems)} problems that were not selected. The lines across are the two models "
        "alone; bars are intervals.",
        wide=True,
    )


def _dose_table(entry: CrossSamplingDirection, summary: ProbeSummary, *, id: str) -> Table:
    budgets = sorted({point.budget for one in entry.selectors for point in one.points})
    rows = []
    for one in entry.selectors:
        recovered = {point.budget: point.recovered for point in one.points}
        over = "\N{EN DASH}" if one.selector == "random" else signed_interval(one.auc_over_random)
        cells = (percent_interval(recovered.get(budget)) for budget in budgets)
        rows.append((named(SELECTORS, one.selector), number_interval(one.auc), over, *cells))
    return Table(
        id=id,
        caption=f"{direction_title(entry.direction, summary)}: fraction of the gap recovered",
        note=f"The gap between the two models is {points_interval(entry.gap)} points. AUC is the mean fraction "
        f"recovered up to {percent(entry.largest_common_share)} of the tokens.",
        header=("Score", "AUC", "AUC over random", *(f"At {100 * budget:g}%" for budget in budgets)),
        rows=tuple(rows),
    )


def _dose_charts(summary: ProbeSummary) -> tuple[Chart, ...]:
    """Return accuracy against the fraction of tokens taken for each direction of cross-sampling.

    The lines across are the two ends: the base, from which every curve starts, and the other model.
    """
    return tuple(_dose_chart(one, summary) for one in _directions(summary))


def _dose_chart(entry: CrossSamplingDirection, summary: ProbeSummary) -> Chart:
    names = summary.reference, summary.final
    base, other = names if entry.direction == "checkpoint_into_reference" else names[::-1]
    curves = [(named(SELECTORS, one.selector), _dose_points(one, entry.base)) for one in entry.selectors]
    steps = sorted({x for _, places in curves for x in places})
    ends = ((base, entry.base), (other, entry.other))
    return Chart(
        id=f"dose-{re.sub(r'[^a-z0-9]+', '-', entry.direction.lower()).strip('-')}",
        title=direction_title(entry.direction, summary),
        unit="share",
        labels=tuple(f"{100 * x:.1f}%" for x in steps),
        steps=tuple(steps),
        x_title="fraction of tokens taken",
        x_unit="share",
        curves=tuple(Curve(name=name, points=tuple(places.get(x) for x in steps)) for name, places in curves),
        stages=(),
        levels=tuple(Level(name=f"{name} alone", value=value) for name, value in ends if value is not None),
    )


def _dose_points(selector: CrossSamplingSelector, base: Estimate | None) -> dict[float, Estimate]:
    found = {} if base is None else {0.0: base}
    return found | {one.share_swapped: one.accuracy for one in selector.points if one.accuracy is not None}


def _pivot_panel(summary: ProbeSummary) -> Panel | None:
    pivots = summary.pivots
    if pivots is None:
        return None
    hits = (
        ("a spike", pivots.on_spike),
        ("a wrong step", pivots.on_wrong),
        ("the first wrong step", pivots.on_first_wrong),
    )
    found = f"{count(pivots.num_pivots)} in {count(pivots.num_rollouts_with_pivot)} of {count(pivots.num_rollouts)}"
    confirmed = f"{count(pivots.num_confirmed)}, of which by chance at most {pivots.max_false_confirmed:.1f}"
    rows = (
        ("tokens that change the success by the gap", f"{found} rollouts"),
        ("rises, falls", f"{count(pivots.num_rises)}, {count(pivots.num_falls)}"),
        ("confirmed on fresh continuations", confirmed),
        ("size where found (points)", points_interval(pivots.size_search)),
        ("size on fresh continuations (points)", points_interval(pivots.size_estimate)),
        *(
            (f"on {what} (by chance {percent(hit.chance)})", percent_interval(hit.share))
            for what, hit in hits
            if hit is not None
        ),
    )
    return panel(
        "Which single tokens decide the outcome?",
        Table(id="pivots", caption="Pivotal tokens", header=("", "Measured"), rows=rows),
        note=f"Bisection along the rollouts for a change of {percent(pivots.gap)} or more, with "
        f"{count(pivots.num_continuations)} continuations of each of {count(pivots.num_prefixes)} prefixes; two equal "
        f"rates differ by so much with probability {percent(pivots.false_positive_rate)}.",
    )


def _drawings(summary: ProbeSummary) -> Iterator[Drawing]:
    if effects := _all_effects(summary):
        yield Drawing(name="causal", draw=partial(_draw_effects, effects=effects), size=(7.0, 1.3 + 0.3 * len(effects)))
    if charts := [chart for chart in _dose_charts(summary) if chart.measured]:
        yield dose_drawing("dose_response", charts)


def _all_effects(summary: ProbeSummary) -> list[tuple[str, Estimate]]:
    policies = () if summary.causal is None else summary.causal.by_policy
    found = []
    for policy in policies:
        by = f" ({continuing_model(policy.policy, summary)} continues)" if len(policies) > 1 else ""
        found += [(f"{name}{by}", effect) for name, effect in _effects(policy.selections, summary)]
    return found


def _draw_effects(figure: Figure, effects: list[tuple[str, Estimate]]) -> None:
    axes = estimate_rows(figure, effects)
    axes.axvline(0, color=GREY, linewidth=1)
    axes.set_xlabel("change in success")
    axes.set_title("Effect of a forced token on success")


TOPIC = Topic(
    sentences={"Cause": of_probe(_sentences), "Dose": of_probe(_doses)},
    tile=_tile,
    section=_section,
    drawings=of_probe(_drawings),
)
