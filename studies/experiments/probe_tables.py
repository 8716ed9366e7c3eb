"""The tables of a probe's page, from its summary."""

from __future__ import annotations

from studies.markdown import number, percent, points, size, table
from swerve.artifacts.probe_findings import DIVERGENCE_NAMES, DIVERGENCES
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.estimates import Estimate

_DROPPED = {"correlates", "biographies", "rank_shift", "tables", "training_signal", "regions", "style"}


def kept(summary: ProbeSummary) -> dict[str, object]:
    """Return what is kept of a summary: all but what no table shows."""
    return summary.model_dump(mode="json", exclude=_DROPPED)


def probe_tables(name: str, summary: ProbeSummary) -> dict[str, str]:
    """Return the tables by the names of their places."""
    return {
        f"{name}: divergences": _divergences(summary),
        f"{name}: populations": _populations(summary),
        f"{name}: spikes": _spikes(summary),
        f"{name}: densities": _densities(summary),
        f"{name}: categories": _categories(summary),
        f"{name}: direction": _direction(summary),
        f"{name}: selectors": _selectors(summary),
        f"{name}: swaps": _swaps(summary),
    }


def probe_numbers(name: str, summary: ProbeSummary) -> dict[str, str]:
    """Return the numbers that sentences quote."""
    final, selected = summary.final, summary.selected
    hits = summary.spike_hits(final, "js")
    entropy = None if summary.entropy is None else summary.at_final(summary.entropy.means)
    swaps = {one.selection: one for one in summary.causal.selections} if summary.causal else {}
    found = {
        "problems": str(summary.num_problems),
        "rollouts": str(summary.num_rollouts),
        "both right": str(selected.both_right) if selected else "-",
        "only reference right": str(selected.only_reference_right) if selected else "-",
        "only final right": str(selected.only_final_right) if selected else "-",
        "both wrong": str(selected.both_wrong) if selected else "-",
        "reference accuracy": percent(_values(selected.reference_accuracy if selected else None)),
        "final accuracy": percent(_values(selected.final_accuracy if selected else None)),
        "accuracy difference": points(_values(selected.accuracy_difference if selected else None)),
        "final js": size(_values(summary.final_divergence)),
        "baseline js": size(_values(summary.baseline_pairs[0].js if summary.baseline_pairs else None)),
        "top on wrong": percent(_values(hits.top_on_wrong if hits else None)),
        "top on first wrong": percent(_values(hits.top_on_first_wrong if hits else None)),
        "chance first wrong": percent(hits.chance_first_wrong if hits else None),
        "entropy change": size(_values(entropy.change if entropy else None)),
    }
    for place, one in swaps.items():
        found[f"swap at {place}"] = points(_values(one.different_tokens.checkpoint_minus_alternative))
        found[f"effect at {place}"] = points(_values(one.effect))
    for policy in summary.causal.policies if summary.causal else ():
        for compared in policy.differences:
            found[f"spike over {compared.control}"] = points(_values(compared.difference))
    for one in summary.direction or ():
        if (one.checkpoint, one.divergence) == (final, "js"):
            found["good"] = percent(_values(one.share_good))
    return {f"{name}: {key}": text for key, text in found.items()}


def _values(one: Estimate | None) -> dict[str, float] | None:
    return None if one is None else {"mean": one.mean, "low": one.low, "high": one.high}


def _divergences(summary: ProbeSummary) -> str:
    pairs = (*summary.divergences, *(one for one in summary.pairs if one not in summary.divergences))
    rows = [
        [
            f"{one.checkpoint} against {one.reference}",
            *(size(_values(one.of(divergence))) for divergence in DIVERGENCES),
            number(_values(one.entropy)),
            number(_values(one.entropy_ref)),
        ]
        for one in pairs
    ]
    names = [DIVERGENCE_NAMES[divergence] for divergence in DIVERGENCES]
    return table(["pair", *names, "entropy of the first", "of the second"], rows)


def _populations(summary: ProbeSummary) -> str:
    rows = [
        [
            one.population.replace("_", " "),
            one.source,
            str(one.num_rollouts),
            size(_values(last.js)),
            size(_values(last.kl_forward)),
        ]
        for one in summary.populations
        for last in one.divergences
        if last.checkpoint == summary.final
    ]
    return table(["rollouts", "written by", "number", "JS", "forward KL"], rows)


def _spikes(summary: ProbeSummary) -> str:
    rows = [
        [
            one.checkpoint,
            DIVERGENCE_NAMES[one.divergence],
            percent(_values(one.top_on_wrong)),
            percent(one.chance_wrong),
            percent(_values(one.top_on_first_wrong)),
            percent(one.chance_first_wrong),
        ]
        for one in summary.spikes
    ]
    return table(
        ["checkpoint", "divergence", "on a wrong token", "chance", "on the first wrong token", "chance "], rows
    )


def _densities(summary: ProbeSummary) -> str:
    rows = []
    for one in summary.spike_densities:
        if one.divergence == summary.divergence and one.method == "absolute":
            rows.append([one.checkpoint, one.region, str(one.num_tokens), number(_values(one.per_1000_tokens), 1)])
    null = summary.false_discoveries(summary.divergence, "absolute")
    if rows and null is not None:
        rows.append(["reference against itself", "all", str(null.num_tokens), number(_values(null.per_1000_tokens), 1)])
    return table(["checkpoint", "third", "tokens", "spikes per 1,000 tokens"], rows)


def _categories(summary: ProbeSummary) -> str:
    rows = [
        [
            one.category,
            str(one.num_tokens),
            percent(one.share_tokens),
            percent(_values(one.share_divergence_interval)),
            percent(_values(one.spike_rate_interval)),
        ]
        for one in summary.categories
        if one.checkpoint == summary.final
    ]
    return table(["category", "tokens", "share of tokens", "share of divergence", "of its tokens, spikes"], rows)


def _direction(summary: ProbeSummary) -> str:
    rows = [
        [
            one.checkpoint,
            one.source,
            f"{one.num_right} / {one.num_wrong}",
            percent(_values(one.share_good)),
            number(_values(one.auc)),
        ]
        for one in summary.direction or ()
        if one.divergence == summary.divergence
    ]
    return table(
        ["checkpoint", "rollouts of", "right / wrong", "share that is good", "AUC of right against wrong"], rows
    )


def _selectors(summary: ProbeSummary) -> str:
    found = () if summary.recovery is None else summary.recovery.selectors
    rows = [
        [one.selector.replace("_", " "), number(_values(one.auc)), number(_values(one.auc_first))]
        for one in found
        if one.checkpoint == summary.final
    ]
    return table(["score", "AUC, any wrong token", "AUC, the first wrong token"], rows)


def _swaps(summary: ProbeSummary) -> str:
    rows = [
        [
            one.selection.replace("_", " "),
            str(one.num_rollouts),
            percent(one.reference.success),
            percent(one.checkpoint.success),
            points(_values(one.effect)),
            points(_values(one.different_tokens.checkpoint_minus_alternative)),
            str(one.num_different),
        ]
        for one in (summary.causal.selections if summary.causal else ())
    ]
    head = ["position", "rollouts", "right as it is", "with the token of the last model", "less as it is"]
    return table([*head, "less another token, where its own is not the answer's", "of these"], rows)
