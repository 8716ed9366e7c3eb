"""Where: which tokens carry the divergence, early or late, style or reasoning, certain or forking?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import get_args

from swerve.artifacts.probe_claims import NULL_NAMES, DivergenceClaim, NullFigure
from swerve.artifacts.probe_findings import CheckpointEntropy, RankClass, Region
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.estimates import Estimate
from swerve.report.format import claim_words, count, listed, number, percent_interval
from swerve.report.names import REGIONS, divergence_name
from swerve.report.read import ReportInputs
from swerve.report.rows import (
    AUC,
    COUNT,
    NATS,
    NATS_CHANGE,
    POINTS,
    SHARE,
    SIGNED,
    TEXT,
    Cell,
    Dots,
    Rows,
)
from swerve.report.topics.topic import Column, FigureSpec, Topic, along_training, by_checkpoint, of_probe, rows_of

_CLASSES: tuple[RankClass, ...] = get_args(RankClass)
_NULLS = {key: f"{name[:1].upper()}{name[1:]}" for key, name in NULL_NAMES.items()}
_LEAST_SHARE = 0.02
"""Of the divergence: categories with less are not drawn."""
_MAX_CURVES = 4
"""More cannot be told apart."""


def _sentences(summary: ProbeSummary) -> Iterator[str]:
    """Yield what the noise is, and what the divergence of thirds, categories and ranks is set against it."""
    noise = summary.noise_models
    if noise is not None and noise.scales:
        norms, means = ((number(min(values)), number(max(values))) for values in (noise.scales, noise.means))
        yield (
            f"Matched noise is {count(len(noise.scales))} models that are as far from {summary.reference} as "
            f"{summary.final} in random directions (mean {divergence_name(summary)} {' to '.join(means)}), for which "
            f"they need {' to '.join(norms)} times the norm of what training changed."
        )
    elif noise is not None:
        yield f"Noise of the same size was not measured: {noise.not_measured}."
    claims = (summary.claim("share", of) for of in ("third", "style", "uncertain", "good"))
    yield from (f"{claim.name}: {claim_words(claim)}." for claim in claims if claim is not None)

    # Of many categories those that no null explains.
    categories = [claim for claim in summary.claims if claim.of == "category"]
    beyond = [
        f"{claim.part.replace('_', ' ')} {percent_interval(claim.estimate)} "
        f"({'more' if claim.nulls[0].side > 0 else 'less'})"
        for claim in categories
        if claim.stands
    ]
    if categories:
        against = listed([NULL_NAMES[null.null] for null in categories[0].nulls])
        yield (
            f"Of {count(len(categories))} categories of tokens, these have more or less of the divergence than by "
            f"{against}: {listed(beyond or ['none'])}."
        )
    for shift in [shift for shift in summary.rank_shift if shift.shift is not None and shift.writer == "checkpoint"][
        :1
    ]:
        ranks = shift.rank if shift.shift == "rank" else shift.rank_ref
        first, second, lower = (percent_interval(ranks[name].share) for name in _CLASSES)
        yield (
            f"In its own text, {shift.checkpoint} writes the first choice of {summary.reference} at {first} of the "
            f"tokens, its second or third at {second} and a lower one at {lower}."
        )


def claim_rows(claim: DivergenceClaim, summary: ProbeSummary) -> Rows:
    """Return a figure about where the divergence falls and what chance, entropy and noise give, a row each."""
    unit, ahead, of = {
        "top": (SHARE, POINTS, "Share of rollouts"),
        "share": (SHARE, POINTS, "Share of the divergence"),
        "auc": (AUC, SIGNED, "AUC"),
    }[claim.figure]
    nulls = ((_NULLS[null.null], _null_cell(null), null.difference) for null in claim.nulls)
    return Rows(
        id=f"{claim.figure}_{claim.of}",
        title=claim.name,
        first="Model or null",
        columns={of: unit, f"{summary.final} ahead by": ahead},
        rows=((summary.final, claim.estimate, None), *nulls),
        note=_nulls_note(summary),
        plots=(Dots(column=of, at=0.5 if claim.figure == "auc" else None, greys=tuple(_NULLS.values())),),
    )


def _null_cell(null: NullFigure) -> Cell:
    """Return what a figure is under a null; of noise with its least and most."""
    if null.low is None or null.high is None:
        return null.value
    return Estimate(mean=null.value, low=null.low, high=null.high)


def _nulls_note(summary: ProbeSummary) -> str:
    return (
        f"By {divergence_name(summary)}; chance: of the tokens; the reference's entropy in the place of the "
        f"divergence; noise: models as far from {summary.reference} in random directions, their mean, least and most."
    )


def _place_rows(summary: ProbeSummary) -> Rows:
    """Return every share of the divergence beside its nulls."""
    claims = [claim for claim in summary.claims if claim.figure == "share"]
    rows: list[tuple[Cell, ...]] = []
    for claim in claims:
        nulls = {null.null: _null_cell(null) for null in claim.nulls}
        place = claim.name.removeprefix("Divergence on ").removeprefix("the ").removeprefix("category ")
        verdict = "not more or less than all"
        if claim.stands:
            verdict = "more than all" if claim.nulls[0].side > 0 else "less than all"
        rows.append((f"{place[0].upper()}{place[1:]}", claim.estimate, *map(nulls.get, _NULLS), verdict))
    has_noise = any(null.null == "noise" for claim in claims for null in claim.nulls)
    return Rows(
        id="places",
        title="Where the divergence falls, and where it would without training",
        first="Tokens",
        columns={summary.final: SHARE, **dict.fromkeys(_NULLS.values(), SHARE), "Paired over problems": TEXT},
        rows=tuple(rows),
        note=f"{_nulls_note(summary)} A share says something of training where it is more than all of them, or less.",
        plots=(Dots(column=summary.final, null=_NULLS["noise" if has_noise else "chance"]),),
    )


def _category_rows(inputs: ReportInputs, summary: ProbeSummary) -> Rows:
    """Return the mean forward KL of every category of tokens along training, the largest share at the end first."""
    final = [category for category in summary.categories if category.checkpoint == summary.final]
    final.sort(key=lambda category: -(category.share_divergence or 0.0))
    names = dict.fromkeys(category.category for category in (*final, *summary.categories))
    means = {(category.checkpoint, category.category): category.forward_kl for category in summary.categories}
    labels = list(dict.fromkeys(category.checkpoint for category in summary.categories))
    columns = {name: name.replace("_", " ").capitalize() for name in names}
    num = sum((category.share_divergence or 0.0) > _LEAST_SHARE for category in final)
    drawn = tuple(columns.values())[: min(max(num, 2), _MAX_CURVES)]
    return Rows(
        id="category_kl_breakdown",
        title="Mean forward KL by category of the token",
        first="Checkpoint",
        columns=dict.fromkeys(columns.values(), NATS),
        rows=tuple((label, *(means.get((label, name)) for name in columns)) for label in labels),
        plots=(along_training(inputs, labels, drawn),),
    )


def _certainty_rows(summary: ProbeSummary) -> Rows:
    """Return the entropy of each category of tokens at the final checkpoint."""
    final, change = None, f"Change from {summary.reference}"
    if summary.entropy is not None:
        final = summary.at_final(summary.entropy.means)
    return rows_of(
        () if final is None else final.categories,
        {"Entropy": (NATS, "entropy"), change: (NATS_CHANGE, "change")},
        name=lambda entry: entry.category.replace("_", " ").capitalize(),
        id="certainty",
        title=f"Entropy of {summary.final} by category of the token",
        first="Category",
        plots=(Dots(column=change, at=0),),
    )


def _style_rows(inputs: ReportInputs, summary: ProbeSummary) -> Rows:
    return by_checkpoint(
        inputs,
        summary.style,
        {
            "Of the divergence": (SHARE, "share_divergence"),
            "Of the tokens": (SHARE, "share_tokens"),
            "More": (POINTS, "excess"),
        },
        drawn=(),
        id="style",
        title="What falls on style, by checkpoint",
        note="Style is mark-up, punctuation, white space and discourse words.",
    )


def _forking_rows(inputs: ReportInputs, summary: ProbeSummary) -> Rows:
    key = summary.divergence
    return by_checkpoint(
        inputs,
        () if summary.entropy is None else summary.entropy.forking,
        {
            "Of the divergence": (SHARE, lambda forking: forking.share_divergence.get(key)),
            "Of the tokens": (SHARE, "share_tokens"),
            "Of the spikes": (SHARE, lambda forking: forking.spikes[key].share if key in forking.spikes else None),
            "Of the wrong steps": (SHARE, "wrong_steps.share"),
        },
        drawn=(),
        id="forking",
        title="What falls on uncertain tokens, by checkpoint",
        note=f"The fifth of the tokens at which {summary.reference} is least certain.",
    )


def _rank_rows(summary: ProbeSummary) -> Rows:
    rows: list[tuple[Cell, ...]] = []
    for shift in summary.rank_shift:
        for model, ranks in ((shift.checkpoint, shift.rank), (summary.reference, shift.rank_ref)):
            text = "its own text" if shift.source == model else f"text of {shift.source}"
            shares = (ranks[name].share if name in ranks else None for name in _CLASSES)
            rows.append((f"{model} on {text}", *shares, shift.num_tokens))
    return Rows(
        id="ranks",
        title="Would the other model have written the token?",
        first="Rank under",
        columns={"First choice": SHARE, "Second or third": SHARE, "Lower": SHARE, "Tokens": COUNT},
        rows=tuple(rows),
    )


def _entropy_rows(inputs: ReportInputs, summary: ProbeSummary) -> Rows:
    """Return how much entropy each checkpoint lost against the reference, on the same tokens, in all and by third."""
    lost: dict[str, Column] = {"All tokens": (NATS_CHANGE, _lost)}
    lost |= {
        f"{name.capitalize()} third": (NATS_CHANGE, partial(_lost, region=region)) for region, name in REGIONS.items()
    }
    return by_checkpoint(
        inputs,
        () if summary.entropy is None else summary.entropy.means,
        {**lost, "Entropy": (NATS, "entropy"), "Top token changed": (SHARE, "share_argmax_changed")},
        drawn=tuple(lost),
        id="entropy_reduction",
        title=f"Entropy lost against {summary.reference}, on the same tokens",
    )


def _lost(entry: CheckpointEntropy, *, region: Region | None = None) -> Estimate | None:
    """Return the reference's entropy minus the checkpoint's."""
    parts = [part for part in entry.regions if part.region == region] if region else [entry]
    changes = [part.change for part in parts if part.change is not None]
    return Estimate(mean=-changes[0].mean, low=-changes[0].high, high=-changes[0].low) if changes else None


def _rows(inputs: ReportInputs) -> Iterator[Rows]:
    summary = inputs.summary
    if summary is None:
        return
    yield _place_rows(summary)
    yield _category_rows(inputs, summary)
    yield _certainty_rows(summary)
    yield _style_rows(inputs, summary)
    yield _forking_rows(inputs, summary)
    yield _rank_rows(summary)
    yield _entropy_rows(inputs, summary)


TOPIC = Topic(
    title="Where does training change the text?",
    note="tokens, thirds, style, ranks and entropy, beside what noise gives",
    sentences={"Where": of_probe(_sentences)},
    rows=_rows,
    figures={
        "category_kl_breakdown": FigureSpec(
            shows="Mean forward KL by category of the token, at every checkpoint.",
        ),
        "entropy_reduction": FigureSpec(
            shows="Entropy that every checkpoint lost against the reference, in all and by third of the rollout.",
        ),
    },
)
