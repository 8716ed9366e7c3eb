"""Sentences on what was read and where the checkpoints differ, each made from computed figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from swerve.report.charts import consecutive_pairs
from swerve.report.names import METHODS, REGIONS, divergence_name, headline_population, population_title, selector_word
from swerve.report.sections_selection import entry_at
from swerve.report.sections_spikes import knows_no_wrong_step, null_rate, spike_entry
from swerve.report.values import (
    Interval,
    count,
    interval,
    number,
    number_interval,
    p_value,
    percent,
    percent_interval,
    points_interval,
    quoted,
    signed_interval,
)

__all__ = ["divergence_sentences", "listed", "p_words", "reading_sentences", "step_sentences", "where_sentences"]

Summary = Mapping[str, Any]


def listed(names: list[str]) -> str:
    """Return names as a sentence lists them.

    >>> listed(["a", "b", "c"]), listed(["a"])
    ('a, b and c', 'a')
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def reading_sentences(summary: Summary) -> list[str]:
    """Return the sentences on the rollouts: how they were selected, and what whose text makes of the divergence."""
    return [_population(summary), _mcnemar(summary), _reselected(summary), _populations(summary)]


def _population(summary: Summary) -> str:
    if summary.get("selection") == "imported":
        return _imported(summary)
    wrong, changed = summary.get("num_reference_wrong"), summary.get("num_reference_wrong_final_right")
    return (
        f"Of the {count(wrong)} problems that {summary.get('reference')} gets wrong, {summary.get('final')} gets "
        f"{count(changed)} right; {count(summary.get('num_rollouts'))} of these wrong rollouts of "
        f"{summary.get('reference')} were read token by token."
    )


def _imported(summary: Summary) -> str:
    responses = summary.get("responses") or {}
    parts = [
        f"{count(entry.get('num_rollouts'))} {population_title(entry.get('population'), summary)}"
        for entry in summary.get("populations") or []
    ]
    kinds = f" ({'; '.join(parts)})" if parts else ""
    file = str(responses.get("path") or "a file")
    return (
        f"{count(responses.get('num_responses'))} responses to {count(summary.get('num_problems'))} problems were read "
        f"from {file}{kinds}; the figures are of the {count(summary.get('num_rollouts'))} in the population "
        f"{quoted(population_title(headline_population(summary), summary))}."
    )


def _mcnemar(summary: Summary) -> str:
    test = summary.get("mcnemar") or {}
    difference = interval(test.get("difference"))
    if difference is None:
        return ""
    shown = "" if difference.low > 0 or difference.high < 0 else ": the interval holds 0, so no difference is shown"
    return (
        f"On the same {count(test.get('num'))} problems {summary.get('final')} alone is right on "
        f"{count(test.get('num_second_only'))} and {summary.get('reference')} alone on "
        f"{count(test.get('num_first_only'))}, a difference of {points_interval(difference)} points "
        f"({p_words(test.get('p_value'))}){shown}."
    )


def p_words(value: Any) -> str:
    """Return a p-value as a sentence has it.

    >>> p_words(1e-9), p_words(0.04)
    ('p < 0.001', 'p = 0.040')
    """
    text = p_value(value)
    return f"p < {text[1:]}" if text.startswith("<") else f"p = {text}"


def _reselected(summary: Summary) -> str:
    again = interval(summary.get("reselected"))
    if again is None:
        return ""
    return f"Another draw of completions would select {percent_interval(again)} of these problems again."


def _populations(summary: Summary) -> str:
    """Compare the headline population's divergence with those of the others."""
    key, final = summary.get("divergence", "js"), summary.get("final")
    means: dict[str, Interval] = {}
    for entry in summary.get("populations") or []:
        mean = interval((entry_at(entry.get("divergences"), final) or {}).get(key))
        if mean is not None:
            means[str(entry.get("population"))] = mean
    own = means.pop(headline_population(summary), None)
    if own is None or not means:
        return ""
    others = [
        f"{_compared(mean, own)} on {quoted(population_title(name, summary))}, at {number_interval(mean)}"
        for name, mean in means.items()
    ]
    return (
        f"Mean {divergence_name(summary)} of {final} is {number_interval(own)} nats on these rollouts; it is "
        f"{listed(others)}."
    )


def _compared(value: Interval, other: Interval) -> str:
    if value.overlaps(other):
        return "not told apart"
    return "lower" if value.mean < other.mean else "higher"


def divergence_sentences(summary: Summary) -> list[str]:
    """Return the sentences on how far the checkpoints went."""
    return [_baseline(summary), _largest_pair(summary), _entropy(summary)]


def step_sentences(summary: Summary) -> list[str]:
    """Return the sentences on spikes and known wrong steps."""
    return [_spikes(summary), _selectors(summary), _rule(summary), _null(summary)]


def where_sentences(summary: Summary) -> list[str]:
    """Return the sentences on which tokens carry the divergence."""
    return [_regions(summary), _style(summary), _forking(summary), _ranks(summary)]


def _baseline(summary: Summary) -> str:
    key, pairs = summary.get("divergence", "js"), consecutive_pairs(summary)
    entry = next((one for one in summary.get("pairs") or [] if one not in pairs), None)
    before = interval((entry or {}).get(key))
    after = interval((entry_at(summary.get("divergences"), summary.get("final")) or {}).get(key))
    if entry is None or before is None or after is None:
        return ""
    verdict = {
        "not told apart": "the intervals overlap, so the stage is not shown to have changed more",
        "lower": "less than the stage changed",
        "higher": "more than the stage changed",
    }[_compared(before, after)]
    return (
        f"Before the stage, {entry.get('checkpoint')} differed from {entry.get('reference')} by a mean "
        f"{divergence_name(summary)} of {number_interval(before)} nats, {verdict}: {summary.get('final')} differs from "
        f"{summary.get('reference')} by {number_interval(after)}."
    )


def _largest_pair(summary: Summary) -> str:
    key = summary.get("divergence", "js")
    found = [(one, mean) for one in consecutive_pairs(summary) if (mean := interval(one.get(key))) is not None]
    if len(found) < 2:
        return ""
    (entry, most), (second, next_most) = sorted(found, key=lambda one: -one[1].mean)[:2]
    tie = ""
    if most.overlaps(next_most):
        tie = f", though its interval overlaps that of {second.get('reference')} to {second.get('checkpoint')}"
    return (
        f"Between neighbouring checkpoints most changed from {entry.get('reference')} to {entry.get('checkpoint')}, "
        f"by {number_interval(most)}{tie}."
    )


def _spikes(summary: Summary) -> str:
    final = summary.get("final")
    entry = spike_entry(summary, final, summary.get("divergence"))
    first = interval(entry.get("top_on_first_wrong")) if entry else None
    if knows_no_wrong_step(summary):
        return "No step of the rollouts is known to be wrong, so whether spikes find wrong steps was not measured."
    if entry is None or first is None:
        return "Where the highest divergence of a rollout falls was not measured."
    return (
        f"The token where {final} differs most from {summary.get('reference')} ({divergence_name(summary)}) is the "
        f"first wrong step in {percent_interval(first)} of the rollouts and some wrong step in "
        f"{percent_interval(interval(entry.get('top_on_wrong')))}; a token drawn at random would be so in "
        f"{percent(entry.get('chance_first_wrong'))} and {percent(entry.get('chance_wrong'))}."
    )


def _selectors(summary: Summary) -> str:
    entries = (summary.get("recovery") or {}).get("selectors") or []
    found = [(str(one.get("selector")), auc) for one in entries if (auc := interval(one.get("auc"))) is not None]
    if not found:
        return ""
    above = [(name, auc) for name, auc in found if auc.low > 0.5]
    if not above:
        return "No score ranks the known wrong steps above chance."
    best, most = max(above, key=lambda one: one[1].mean)
    tied = [name for name, auc in above if name != best and auc.overlaps(most)]
    also = f", not told apart from {listed([selector_word(name) for name in tied])}" if tied else ""
    return (
        f"Of {count(len(found))} scores, {count(len(above))} rank the known wrong steps above chance; the highest AUC "
        f"is that of {selector_word(best)}, {number_interval(most)}{also}."
    )


def _rule(summary: Summary) -> str:
    key, method = summary.get("divergence", "js"), summary.get("spike_method")
    for entry in (summary.get("recovery") or {}).get("spikes") or []:
        precision, recall = interval(entry.get("precision")), interval(entry.get("recall"))
        if (entry.get("divergence"), entry.get("method")) == (key, method) and precision and recall:
            return (
                f"Of the {count(entry.get('num_spikes'))} {METHODS.get(str(method), str(method))} spikes "
                f"{percent_interval(precision)} are on a wrong step (by chance "
                f"{percent(entry.get('chance_precision'))}), and {percent_interval(recall)} of the wrong steps have "
                f"one (by chance {percent(entry.get('chance_recall'))})."
            )
    return ""


def _null(summary: Summary) -> str:
    """Say what each rule finds in the null pair, where there is nothing to find."""
    key = summary.get("divergence", "js")
    some, none = [], []
    for method, name in METHODS.items():
        entry = null_rate(summary, key, method) or {}
        rate = interval(entry.get("per_1000_tokens"))
        if rate is not None and entry.get("num_spikes"):
            some.append(f"{name} {number_interval(rate)}")
        elif rate is not None:
            none.append(f"{name} none (at most {number(rate.high)})")
    if not some and not none:
        return ""
    return (
        "Between two runs of one model, where every spike is false, the rules find per 1,000 tokens: "
        f"{listed([*some, *none])}{_density(summary)}."
    )


def _density(summary: Summary) -> str:
    """Say how many spikes the rule of the headline finds per 1,000 tokens at the final checkpoint."""
    key, method = summary.get("divergence", "js"), summary.get("spike_method")
    recovery = summary.get("recovery") or {}
    for entry in recovery.get("spikes") or []:
        if (entry.get("divergence"), entry.get("method")) == (key, method) and recovery.get("num_tokens"):
            density = number(1000 * entry["num_spikes"] / recovery["num_tokens"])
            return f"; at {summary.get('final')} {METHODS.get(str(method), str(method))} finds {density}"
    return ""


def _regions(summary: Summary) -> str:
    key, final = summary.get("divergence", "js"), summary.get("final")
    found = []
    for entry in summary.get("regions") or []:
        share = interval((entry.get("share_divergence") or {}).get(key))
        if entry.get("checkpoint") == final and share is not None:
            found.append(
                (REGIONS.get(str(entry.get("region")), str(entry.get("region"))), share, entry.get("share_tokens"))
            )
    if not found:
        return ""
    name, share, tokens = max(found, key=lambda one: one[1].mean)
    rest = [one for one in found if one[0] != name and one[1].overlaps(share)]
    tie = f" (not told apart from the {listed([one[0] for one in rest])})" if rest else ""
    return (
        f"The {name} third of the rollouts, {percent(tokens)} of the tokens, carries {percent_interval(share)} of the "
        f"divergence{tie}."
    )


def _style(summary: Summary) -> str:
    entry = entry_at(summary.get("style"), summary.get("final")) or {}
    excess, share = interval(entry.get("excess")), interval(entry.get("share_divergence"))
    if excess is None or share is None:
        return ""
    verdict = "about as much as their share of the tokens"
    if excess.high < 0:
        verdict = "less than their share of the tokens"
    elif excess.low > 0:
        verdict = "more than their share of the tokens"
    return (
        f"Tokens of style carry {percent_interval(share)} of it, {verdict} "
        f"({percent((entry.get('share_tokens') or {}).get('mean'))})."
    )


def _ranks(summary: Summary) -> str:
    for entry in summary.get("rank_shift") or []:
        key = entry.get("shift")
        if key is None or entry.get("writer") != "checkpoint":
            continue
        shares = [
            percent_interval(interval(((entry.get(key) or {}).get(name) or {}).get("share")))
            for name in ("unshifted", "marginal", "shifted")
        ]
        return (
            f"In its own text, {entry.get('checkpoint')} writes the first choice of {summary.get('reference')} at "
            f"{shares[0]} of the tokens, its second or third at {shares[1]} and a lower one at {shares[2]}."
        )
    return ""


def _entropy(summary: Summary) -> str:
    entry = entry_at((summary.get("entropy") or {}).get("means"), summary.get("final")) or {}
    change, mean = interval(entry.get("change")), interval(entry.get("entropy"))
    if change is None or mean is None:
        return ""
    where = f"Mean entropy on the rollouts read is {number_interval(mean)} nats at {summary.get('final')}"
    if change.low <= 0 <= change.high:
        return f"{where}, not told apart from that of {summary.get('reference')}."
    return f"{where}, {signed_interval(change)} against {summary.get('reference')}."


def _forking(summary: Summary) -> str:
    entry = entry_at((summary.get("entropy") or {}).get("forking"), summary.get("final")) or {}
    share = interval((entry.get("share_divergence") or {}).get(summary.get("divergence", "js")))
    tokens = entry.get("share_tokens")
    if share is None or tokens is None:
        return ""
    verdict = "not told apart from their share"
    if share.low > tokens or share.high < tokens:
        verdict = "more than their share" if share.mean > tokens else "less than their share"
    return (
        f"The forking tokens, the {percent(tokens)} at which the reference is least certain, carry "
        f"{percent_interval(share)} of the divergence, {verdict}."
    )
