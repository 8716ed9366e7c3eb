"""Causes: does the token at a spike cause the correction, and does a score predict the effect of a token?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from swerve.artifacts.probe_causes import Prediction, SwapDifference, SwapPositions, Swaps, SwapSelection
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.estimates import Estimate, WilcoxonResult
from swerve.report.draw.figures import GREY, Drawing, estimate_rows, numbers, set_title
from swerve.report.draw.panels import (
    CORRELATION_ENDS,
    POINT_ENDS,
    Absent,
    DotPlot,
    DotRow,
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
    p_value,
    percent,
    points,
    points_interval,
    signed_interval,
)
from swerve.report.names import SELECTIONS, SELECTORS, continuing_model, named, selector_word
from swerve.report.read import ReportInputs
from swerve.report.topics.dose import dose_panel, pivot_panel, pivot_sentence
from swerve.report.topics.topic import FigureSpec, Tile, Topic, of_probe

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def _sentences(summary: ProbeSummary) -> Iterator[str]:
    yield _headline(summary)
    yield _effect(summary)
    yield from (_prediction(entry, rate=1 - summary.confidence) for entry in summary.prediction)
    yield pivot_sentence(summary)


def _at_spike(summary: ProbeSummary | None) -> SwapSelection | None:
    return None if summary is None or summary.causal is None else summary.causal.selection("spike")


def _headline(summary: ProbeSummary) -> str:
    """Say what the checkpoint's token does that another at the same place does not."""
    spike, final = _at_spike(summary), summary.final
    if spike is None or spike.headline is None:
        return f"Whether the token of {final} at the spike does more than another token there was not measured."
    verdict = compared(spike.headline, 0.0, above="more", below="less")
    said = "so the two are not distinguishable"
    if verdict != SAME:
        said = f"so the token of {final} does {verdict} than another"
    return (
        f"At the {count(spike.num_different)} top spikes where {final} chooses another token than the rollout's, its "
        f"token is ahead of a third one at the same place, neither model's choice, by "
        f"{points_interval(spike.headline)} percentage points of success when {summary.reference} continues, {said}."
    )


def _effect(summary: ProbeSummary) -> str:
    """Say what replacing the rollout's own token does, beside the control positions and the third token."""
    spike = _at_spike(summary)
    if summary.causal is None or spike is None or spike.effect is None:
        return ""
    sentence = (
        f"Put in place of the rollout's own at the top spike, the token of {summary.final} changes the success of "
        f"{summary.reference} by {points_interval(spike.effect)} points"
    )
    if spike.alternative_effect is not None:
        sentence += f", the third token by {points_interval(spike.alternative_effect)}"
    return f"{sentence}; {'; '.join(_control(name, summary.causal) for name in _CONTROLS)}."


_CONTROLS: tuple[SwapPositions, ...] = ("matched", "random")


def _control(name: SwapPositions, swaps: Swaps) -> str:
    """Say what the same swap does at control positions, and by how much less, paired over problems."""
    control = swaps.selection(name)
    if control is None:
        return f"{name} positions were not measured"
    if control.effect is None:
        return f"at {name} positions it was not measured, as both models choose the same token"
    same = control.num_positions - control.num_different
    trivial = f" (the same token at {count(same)} of {count(control.num_positions)})" if same else ""
    said = f"at {name} positions by {points_interval(control.effect)}{trivial}"
    pairs = [entry for policy in swaps.by_policy[:1] for entry in policy.differences if entry.control == name]
    if not pairs or (difference := pairs[0].difference) is None:
        return said
    shown = "" if difference.excludes(0) else ", so the spike is not distinguishable from them"
    return f"{said}, which is {points_interval(difference)} below the spike{shown}"


_LEAST_POSITIONS = 15
"""With fewer, a rank correlation that is not shown says nothing."""


def _prediction(entry: Prediction, *, rate: float) -> str:
    """Say which scores go with the size of the effect, by p-values adjusted for their number."""
    measured = [selector for selector in entry.selectors if selector.spearman is not None]
    if not measured or entry.num_positions < _LEAST_POSITIONS:
        return ""
    ranks = [
        (selector_word(selector.selector), selector.spearman)
        for selector in measured
        if selector.spearman is not None and selector.p_adjusted is not None and selector.p_adjusted <= rate
    ]

    # Scores whose interval is above or below zero; the best of several has no interval of its own.
    where = f"At the {count(entry.num_positions)} swapped positions where the two models' tokens differ"
    if entry.policy == "checkpoint":
        where += ", continued by the checkpoint"
    above = [(name, rho.mean) for name, rho in ranks if rho.low > 0]
    below = [name for name, rho in ranks if rho.high < 0]
    against = f"; {listed(below)} {'goes' if len(below) == 1 else 'go'} with smaller effects" if below else ""
    if not above:
        return f"{where}, none of {count(len(measured))} scores is shown to go with the size of the effect{against}."
    goes, least = "goes" if len(above) == 1 else "go", min(mean for _, mean in above)
    upto = f" to {number(max(mean for _, mean in above))}" if len(above) > 1 else ""
    return (
        f"{where}, {listed([name for name, _ in above])} {goes} with the size of the effect (of {count(len(measured))} "
        f"scores, p adjusted for their number; rank correlation {number(least)}{upto}){against}."
    )


def _tile(inputs: ReportInputs) -> Tile:
    caption, spike = "Token at the spike against another there", _at_spike(inputs.summary)
    if spike is None:
        detail = "responses from elsewhere" if inputs.is_imported else "run swerve probe"
        return Tile(caption=caption, value=NOT_MEASURED, detail=detail)
    own = f"against the rollout's own {points_interval(spike.effect)}"
    if spike.headline is None:
        return Tile(caption=caption, value=NOT_MEASURED, detail=own)
    ends = f"{points(spike.headline.low)} to {points(spike.headline.high)}, {count(spike.num_different)} positions"
    return Tile(caption=caption, value=f"{points(spike.headline.mean)} points", detail=f"{ends}; {own}")


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
        panels += [*_prediction_panels(summary), dose_panel(summary), pivot_panel(summary)]
    return section("causes", title, panels, short="Causes")


def _effects(selections: Sequence[SwapSelection], summary: ProbeSummary) -> Iterator[tuple[str, Estimate]]:
    """Yield the measured effects on success, first of the checkpoint's token against another at the same place."""
    for selection in selections:
        name = SELECTIONS[selection.selection]
        if selection.headline is not None:
            yield f"{name}, token of {summary.final} against another", selection.headline
        if selection.effect is not None:
            yield f"{name}, token of {summary.final}", selection.effect
        if selection.alternative_effect is not None:
            yield f"{name}, another token", selection.alternative_effect


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
            note=f"Change in the success of {model} when a token stands in place of the rollout's own, or of another "
            "at the same place, in percentage points. The line is no effect.",
            wide=True,
        )


_P_VALUES = "p of the mean (sign flips)", "Adjusted p of the ranks (Wilcoxon)"
_TESTS = (
    "Sign flips test whether the mean is 0; their p is not adjusted. Wilcoxon's signed ranks test whether differences "
    "lean to one side; their p is adjusted for the number of tests. Both are over problems, and can contradict each "
    "other where few problems have most of the effect."
)


def _p_values(test: WilcoxonResult | None) -> tuple[str, str]:
    return (NOT_MEASURED, NOT_MEASURED) if test is None else (p_value(test.sign_flip_p), p_value(test.p_adjusted))


def _effect_table(
    summary: ProbeSummary, swaps: Swaps, selections: Sequence[SwapSelection], *, id: str, model: str
) -> Table:
    rows = tuple(
        (
            SELECTIONS[selection.selection],
            percent(selection.reference.success),
            percent(selection.checkpoint.success),
            percent(selection.alternative.success),
            points_interval(selection.effect),
            points_interval(selection.alternative_effect),
            points_interval(selection.checkpoint_minus_alternative),
            f"{count(selection.num_positions - selection.num_different)} of {count(selection.num_positions)}",
            points_interval(selection.different_tokens.effect),
            points_interval(selection.headline),
            *_p_values(selection.test),
        )
        for selection in selections
    )
    final = summary.final
    header = (
        "Position", "Success with own token", f"Token of {final}", "Another token", f"Effect, {final}",
        "Effect, another", "Difference of these", "Same token", f"Effect, {final}, where tokens differ",
        "Difference, where tokens differ", *_P_VALUES,
    )  # fmt: skip
    return Table(
        id=id,
        caption="Success and effects (points)",
        note=f"{count(swaps.num_rollouts)} rollouts, {count(swaps.num_continuations)} continuations by {model} after "
        f"each forced token. Same token: {final} chooses the rollout's own. Tests are of the effect of {final}'s "
        f"token. {_TESTS}",
        header=header,
        rows=rows,
    )


def _difference_table(differences: Sequence[SwapDifference], *, id: str) -> Table:
    rows = tuple(
        (
            f"spike minus {difference.control}",
            count(difference.num_pairs),
            points_interval(difference.difference),
            *_p_values(difference.test),
        )
        for difference in differences
    )
    header = ("Effect", "Pairs", "Difference", *_P_VALUES)
    caption = "Spikes against their controls (points)"
    return Table(id=id, caption=caption, note=_TESTS, header=header, rows=rows)


def _prediction_panels(summary: ProbeSummary) -> Iterator[Panel | None]:
    several = len({entry.policy for entry in summary.prediction}) > 1
    for index, entry in enumerate(summary.prediction):
        by = f" {continuing_model(entry.policy, summary)} continues" if several else ""
        yield panel(
            f"Does the score predict the effect?{by}",
            DotPlot(rows=tuple(_prediction_rows(entry)), ends=CORRELATION_ENDS, around_zero=True),
            _prediction_table(entry, id=f"prediction-{index}"),
            note="Rank correlation of each score with the size of the effect at "
            f"{count(entry.num_positions)} positions where the two models' tokens differ (it is 0 elsewhere), "
            "measured as the product of the effects in two independent halves of the continuations: noise alone gives "
            f"0, the line. The mean of these products is {signed_interval(entry.mean_square_effect)}.",
        )


def _prediction_rows(entry: Prediction) -> Iterator[DotRow]:
    for selector in entry.selectors:
        if selector.spearman is not None:
            yield dot_row(
                named(SELECTORS, selector.selector),
                signed_interval(selector.spearman),
                selector.spearman,
                0.0,
                low=-1.0,
            )


def _prediction_table(entry: Prediction, *, id: str) -> Table:
    rows = tuple(
        (
            named(SELECTORS, selector.selector),
            signed_interval(selector.spearman),
            p_value(None if selector.spearman is None else selector.spearman.p_value),
            p_value(selector.p_adjusted),
        )
        for selector in entry.selectors
    )
    header = ("Score", "Rank correlation with the size of the effect", "p", "Adjusted p")
    return Table(id=id, caption="Scores against effects", header=header, rows=rows, folded=True)


def _drawings(summary: ProbeSummary) -> Iterator[Drawing]:
    if effects := _all_effects(summary):
        yield Drawing(
            name="causal",
            draw=partial(_draw_effects, effects=effects),
            rows=tuple({"effect": name, **numbers(effect)} for name, effect in effects),
            size=(6.0, 1.2 + 0.38 * len(effects)),
        )


def _all_effects(summary: ProbeSummary) -> list[tuple[str, Estimate]]:
    policies = () if summary.causal is None else summary.causal.by_policy
    effects = []
    for policy in policies:
        by = f" ({continuing_model(policy.policy, summary)} continues)" if len(policies) > 1 else ""
        effects += [(f"{name}{by}", effect) for name, effect in _effects(policy.selections, summary)]
    return effects


def _draw_effects(axes: Axes, *, effects: list[tuple[str, Estimate]]) -> None:
    estimate_rows(axes, effects)
    axes.axvline(0, color=GREY, linewidth=1)
    axes.set_xlabel("change in success")
    set_title(axes, "Effect of a forced token on success")


TOPIC = Topic(
    sentences={"Cause": of_probe(_sentences)},
    tile=_tile,
    section=_section,
    figures={
        "causal": FigureSpec(
            shows="Effect on success of tokens forced at spikes and at controls.",
            draw=of_probe(_drawings),
            needs="swerve probe RUN, of answers with a grader",
        )
    },
)
