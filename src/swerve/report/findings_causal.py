"""Sentences on causes and on what training did, each made from computed figures with their uncertainty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from swerve.report.findings_where import listed, p_words
from swerve.report.names import direction_title, divergence_name, selector_word
from swerve.report.sections_selection import entry_at
from swerve.report.sections_training import onset_bars
from swerve.report.values import (
    Interval,
    count,
    interval,
    number,
    number_interval,
    percent,
    percent_interval,
    points_interval,
    signed_interval,
)

__all__ = ["causal_sentences", "dose_sentences", "selections", "training_sentences"]

Summary = Mapping[str, Any]


def selections(summary: Summary) -> dict[str, Summary]:
    """Return the causal test's selections by name."""
    causal = summary.get("causal") or {}
    return {str(entry.get("selection")): entry for entry in causal.get("selections") or []}


def causal_sentences(summary: Summary) -> list[str]:
    """Return the sentences on what single tokens cause."""
    return [
        _effect(summary),
        _alternative(summary),
        *(_prediction(entry) for entry in summary.get("prediction") or []),
        _pivots(summary),
    ]


def dose_sentences(summary: Summary) -> list[str]:
    """Return the sentences on how many of the other model's tokens are enough."""
    return [_dose(entry, summary) for entry in (summary.get("cross_sampling") or {}).get("directions") or []]


def _effect(summary: Summary) -> str:
    found = selections(summary)
    spike = interval(found.get("spike", {}).get("effect"))
    if spike is None:
        return "Whether the token at the spike causes the correction was not measured."
    sentence = (
        f"Putting the token of {summary.get('final')} in place of that of {summary.get('reference')} at the top spike, "
        f"and letting {summary.get('reference')} continue, changes its success by {points_interval(spike)} "
        "percentage points"
    )
    controls = {name: interval(found.get(name, {}).get("effect")) for name in ("matched", "random")}
    shown = [
        f"at {name} positions by {points_interval(effect)}" for name, effect in controls.items() if effect is not None
    ]
    if controls["random"] is None:
        shown.append("random positions were not measured")
    overlapping = [name for name, effect in controls.items() if effect is not None and spike.overlaps(effect)]
    verdict = "; the intervals overlap, so no effect of the spike is shown" if overlapping else ""
    return f"{sentence}; {', '.join(shown)}{verdict}."


def _alternative(summary: Summary) -> str:
    spike = selections(summary).get("spike", {})
    other, difference = interval(spike.get("alternative_effect")), interval(spike.get("checkpoint_minus_alternative"))
    if other is None or difference is None:
        return ""
    verdict = "so the two are not told apart"
    if difference.low > 0:
        verdict = f"so the token of {summary.get('final')} does more than another"
    elif difference.high < 0:
        verdict = f"so the token of {summary.get('final')} does less than another"
    return (
        f"Another token at the same place, of neither model, changes it by {points_interval(other)}: the token of "
        f"{summary.get('final')} is ahead by {points_interval(difference)} points, {verdict}."
    )


_POSITIONS = {"all": "Over all positions tested", "different_tokens": "Among those where the two models' tokens differ"}


def _prediction(entry: Summary) -> str:
    found = [
        (selector_word(one.get("selector")), auc)
        for one in entry.get("selectors") or []
        if (auc := interval(one.get("auc"))) is not None
    ]
    if not found:
        return ""
    where = _POSITIONS.get(str(entry.get("positions")), str(entry.get("positions")))
    if entry.get("policy") == "checkpoint":
        where = f"Where the checkpoint continues: {where[:1].lower()}{where[1:]}"
    size = f"an effect of {percent(entry.get('delta'))} or more"
    above = sorted(((name, auc) for name, auc in found if auc.low > 0.5), key=lambda one: -one[1].mean)
    below = [name for name, auc in found if auc.high < 0.5]
    against = f"; {listed(below)} {'ranks' if len(below) == 1 else 'rank'} them below chance" if below else ""
    if not above:
        return f"{where}, no score ranks those with {size} above chance{against}."
    best, most = above[0]
    tied = [name for name, auc in above[1:] if auc.overlaps(most)]
    also = f", not told apart from {listed(tied)}" if tied else ""
    lower = len(above) - 1 - len(tied)
    more = f"; {count(lower)} more {'is' if lower == 1 else 'are'} above chance" if lower else ""
    return f"{where}, {best} best ranks those with {size}: AUC {number_interval(most)}{also}{more}{against}."


def _dose(entry: Summary, summary: Summary) -> str:
    title = direction_title(entry.get("direction"), summary)
    gap, base, other = (interval(entry.get(key)) for key in ("gap", "base", "other"))
    if gap is None or base is None or other is None:
        return ""
    if gap.low <= 0 <= gap.high:
        return (
            f"{title}: the two models alone are not told apart ({points_interval(gap)}), so nothing can be recovered."
        )
    best = _least_dose(entry)
    if best is None:
        return ""
    name, point, accuracy = best
    recovered = percent_interval(interval(point.get("recovered")))
    return (
        f"{title}: with {name} choosing {percent(point.get('share_swapped'))} of the tokens, accuracy goes from "
        f"{percent_interval(base)} to {percent_interval(accuracy)}, which is {recovered} of the gap to "
        f"{percent_interval(other)}{_against_random(entry, name)}."
    )


def _least_dose(entry: Summary) -> tuple[str, Summary, Interval] | None:
    """Return the selector and point that recover most of the gap at the least budget, random ones left out."""
    points = [
        (point["budget"], -recovered.mean, selector_word(one.get("selector")), point, accuracy)
        for one in entry.get("selectors") or []
        if one.get("selector") != "random"
        for point in one.get("points") or []
        if (recovered := interval(point.get("recovered"))) is not None
        and (accuracy := interval(point.get("accuracy"))) is not None
    ]
    if not points:
        return None
    _, _, name, point, accuracy = min(points, key=lambda one: one[:2])
    return name, point, accuracy


def _against_random(entry: Summary, name: str) -> str:
    for one in entry.get("selectors") or []:
        more = interval(one.get("auc_over_random"))
        if selector_word(one.get("selector")) == name and more is not None:
            verdict = "above" if more.low > 0 else "below" if more.high < 0 else "not told apart from"
            return f"; over all budgets it is {verdict} random choice, {signed_interval(more)} of the gap"
    return ""


def _pivots(summary: Summary) -> str:
    pivots = summary.get("pivots") or {}
    if not pivots:
        return ""
    spike = pivots.get("on_spike") or {}
    share = interval(spike.get("share"))
    on = ""
    if share is not None:
        on = f"; {percent_interval(share)} of them are spikes (by chance {percent(spike.get('chance'))})"
    return (
        f"Along {count(pivots.get('num_rollouts'))} rollouts {count(pivots.get('num_pivots'))} single tokens change "
        f"the success by {percent(pivots.get('gap'))} or more, {count(pivots.get('num_confirmed'))} of them also on "
        f"fresh continuations (at most {number(pivots.get('max_false_confirmed'), 2)} expected by chance){on}."
    )


def training_sentences(summary: Summary) -> list[str]:
    """Return the sentences on what training did to the tokens."""
    return [
        _direction(summary),
        _correlates(summary),
        _onset(summary),
        _signal(summary),
        *(_attribution(entry) for entry in summary.get("attribution") or []),
    ]


def _direction(summary: Summary) -> str:
    entry = entry_at(summary.get("direction"), summary.get("final")) or {}
    good, tokens = interval(entry.get("share_good")), interval(entry.get("share_good_tokens"))
    if good is None or tokens is None:
        return ""
    verdict = "more than their share" if good.mean > tokens.mean else "less than their share"
    if good.overlaps(tokens):
        verdict = "not told apart from their share"
    return (
        f"At {summary.get('final')}, {percent_interval(good)} of the divergence is on tokens that moved the good way, "
        f"{verdict} of the tokens ({percent(tokens.mean)})."
    )


def _correlates(summary: Summary) -> str:
    tested = [entry for entry in summary.get("correlates") or [] if entry.get("p_adjusted") is not None]
    for entry in tested:
        if (entry.get("checkpoint"), entry.get("correlate")) == (summary.get("final"), "correct"):
            estimate = interval(entry.get("estimate"))
            sign = "goes with wrong answers" if estimate and estimate.high < 0 else ""
            sign = "goes with right answers" if estimate and estimate.low > 0 else sign
            sign = sign or "is not shown to go with the answer"
            return (
                f"A rollout's {divergence_name(summary)} {sign}: rank correlation {signed_interval(estimate)}, "
                f"adjusted {p_words(entry.get('p_adjusted'))}."
            )
    return ""


def _onset(summary: Summary) -> str:
    tokens = (summary.get("biographies") or {}).get("tokens") or {}
    wrong, others = tokens.get("wrong_steps") or {}, tokens.get("others") or {}
    share, other = interval(wrong.get("share_moved")), interval(others.get("share_moved"))
    if share is None or other is None:
        return ""
    verdict = "not told apart from" if share.overlaps(other) else "against"
    return (
        f"{percent_interval(share)} of the wrong steps left the reference for good, {verdict} "
        f"{percent_interval(other)} of the tokens beside them{_most_onsets(summary)}."
    )


def _most_onsets(summary: Summary) -> str:
    rows = onset_bars(summary)
    if not rows:
        return ""
    wrong, other = max(rows, key=lambda bar: bar.first), max(rows, key=lambda bar: bar.second)
    return (
        f"; of these wrong steps the largest share did so at {wrong.name} ({wrong.first:.1f}%), of the others at "
        f"{other.name} ({other.second:.1f}%)"
    )


def _signal(summary: Summary) -> str:
    entry = entry_at(summary.get("training_signal"), summary.get("final")) or {}
    direction = entry.get("direction") or {}
    agreement, above = interval(direction.get("agreement")), interval(direction.get("above_chance"))
    if agreement is None or above is None:
        return ""
    verdict = "above" if above.low > 0 else "below" if above.high < 0 else "not told apart from"
    return (
        f"Of the tokens of training that moved, {percent_interval(agreement)} moved the way their advantage pushed, "
        f"{verdict} chance ({percent(direction.get('chance'))})."
    )


def _attribution(entry: Summary) -> str:
    recent = entry.get("recent") or {}
    score, uniform = interval(recent.get("score")), recent.get("uniform")
    if score is None or uniform is None:
        return ""
    verdict = "more than" if score.low > uniform else "less than" if score.high < uniform else "not told apart from"
    return (
        f"At {count(entry.get('num_spots'))} spikes the last 5 tokens have {percent_interval(score)} of the "
        f"attribution of {entry.get('model')}, {verdict} if all counted alike ({percent(uniform)})."
    )
