"""Where: which tokens carry the divergence, early or late, style or reasoning, certain or forking?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import get_args

from swerve.artifacts.probe_claims import NULL_NAMES, TOKEN_NULLS, DivergenceClaim, NullFigure
from swerve.artifacts.probe_findings import DIVERGENCE_NAMES, CheckpointEntropy, RankClass, Region
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.estimates import Estimate
from swerve.report.evidence import Figure, Sentence, digits_of, with_interval
from swerve.report.format import claim_words
from swerve.report.names import REGIONS, divergence_name
from swerve.report.pair_evidence import RANKS, rank_evidence
from swerve.report.read import ReportInputs
from swerve.report.rows import (
    AUC,
    COUNT,
    NATS,
    NATS_CHANGE,
    PER_1000,
    POINTS,
    SHARE,
    SIGNED,
    TEXT,
    Cell,
    Dots,
    Rows,
    divergence_unit,
)
from swerve.report.summary_evidence import held_evidence, noise_evidence
from swerve.report.token_evidence import category_evidence, share_evidence
from swerve.report.topics.topic import (
    Column,
    FigureSpec,
    Topic,
    along_training,
    by_checkpoint,
    crossed,
    rows_of,
    with_rows,
)
from swerve.text import count, counted, listed, number, percent, percent_interval, sentence_case

_CLASSES: tuple[RankClass, ...] = get_args(RankClass)
_NULLS = {key: sentence_case(name) for key, name in NULL_NAMES.items()}
_LEAST_SHARE = 0.02
"""Of the divergence: categories with less are not drawn."""
_MAX_CURVES = 4
"""More cannot be distinguished."""


def _sentences(inputs: ReportInputs, summary: ProbeSummary) -> Iterator[str]:
    """Yield what the noise is, and what the divergence of thirds, categories and ranks is set against it."""
    noise = summary.noise_models
    if noise is not None and noise.scales:
        norms, means = ((number(min(values)), number(max(values))) for values in (noise.scales, noise.means))
        ends = {"mean": f"mean {summary.divergence}", "norm": "times the norm of what training changed"}
        both = [
            Figure(name=f"{end} {name}", statistic=end, columns=(column,), write=number)
            for name, column in ends.items()
            for end in ("least", "most")
        ]
        yield Sentence(
            f"Matched noise is {count(len(noise.scales))} models that are as far from {summary.reference} as "
            f"{summary.final} in random directions (mean {divergence_name(summary)} {' to '.join(means)}), for which "
            f"they need {' to '.join(norms)} times the norm of what training changed.",
            noise_evidence(summary, Figure(name="models", statistic="rows"), *both),
        )
    elif noise is not None:
        yield Sentence(f"Noise of the same size was not measured: {noise.not_measured}.", held_evidence(inputs))
    claims = (summary.claim("share", of) for of in ("third", "style", "uncertain", "good"))
    for claim in filter(None, claims):
        columns = (f"sum of {summary.divergence} there", f"sum of {summary.divergence}")
        share = Figure(name="of the divergence", statistic="ratio of sums", columns=columns)
        numbers = with_interval(share, percent_interval, claim.estimate, summary.confidence)
        sums = {"chance": ("tokens there", "tokens"), "entropy": ("sum of entropy there", "sum of entropy")}
        numbers += [
            Figure(name=f"of the {name}", statistic="ratio of sums", columns=of, write=percent)
            for name, of in sums.items()
            if any(null.null == name for null in claim.nulls)
        ]
        words = claim_words(claim, unit=" of the divergence")
        yield Sentence(
            f"Of {counted(summary.num_rollouts, 'rollout')}, {_holder(claim)} {words}.",
            share_evidence(inputs, claim, *numbers),
        )

    # Of many categories those that no null explains.
    categories = [claim for claim in summary.claims if claim.of == "category"]
    beyond = [
        f"{claim.part.replace('_', ' ')} {percent_interval(claim.estimate)} "
        f"({'more' if claim.nulls[0].side == 1 else 'less'})"
        for claim in categories
        if claim.stands
    ]
    if categories:
        against = listed([NULL_NAMES[null.null] for null in categories[0].nulls])
        told = [claim for claim in categories if not claim.unknown]
        of = f"Of {count(len(told))} categories of tokens"
        said = f"{of} none has more or less of the divergence than by {against}."
        if beyond:
            said = f"{of}, these have more or less of the divergence than by {against}: {listed(beyond)}."
        if num := len(categories) - len(told):
            said = said if told else ""
            said += f" Of {count(num)} categories it is not determined, because a difference has no interval."
        shares = [
            Figure(
                name=claim.part,
                statistic="ratio of sums",
                columns=(f"on {claim.part}", f"sum of {summary.divergence}"),
                write=digits_of(percent_interval, claim.estimate),
            )
            for claim in categories
            if claim.stands
        ]
        yield Sentence(said.lstrip(), category_evidence(inputs, *shares))
    shifts = [shift for shift in summary.rank_shift if shift.shift is not None and shift.writer == "checkpoint"]
    for shift in shifts[:1]:
        ranks = shift.rank if shift.shift == "rank" else shift.rank_ref
        first, second, lower = (percent_interval(ranks[name].share) for name in _CLASSES)
        numbers = []
        for name in _CLASSES:
            if (known := ranks[name].share) is not None:
                of_class = Figure(name=RANKS[name], statistic="ratio of sums", columns=(RANKS[name], "tokens"))
                numbers.append(replace(of_class, write=digits_of(percent_interval, known)))
        yield Sentence(
            f"In its own text, {shift.checkpoint} writes the first choice of {summary.reference} at {first} of the "
            f"tokens, its second or third at {second} and a lower one at {lower}.",
            rank_evidence(inputs, shift.source, shift.shift or "rank_ref", *numbers),
        )


def _holder(claim: DivergenceClaim) -> str:
    """Return which tokens have a share, and the verb.

    >>> share = Estimate(mean=0.5, low=0.4, high=0.6)
    >>> _holder(DivergenceClaim(figure="share", of="third", part="late", estimate=share, nulls=()))
    'the last third has'
    """
    place = claim.name.removeprefix("Divergence on ")
    place = f"{place} of the tokens" if claim.of == "uncertain" else place
    return f"{place} {'has' if place.startswith('the ') else 'have'}"


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
        note=_nulls_note(summary, "sentences" if claim.of == "first_wrong_sentence" else "tokens"),
        plots=(Dots(column=of, at=0.5 if claim.figure == "auc" else None, greys=tuple(_NULLS.values())),),
    )


def _null_cell(null: NullFigure) -> Cell:
    """Return what a figure is under a null; of noise with its least and most."""
    if null.low is None or null.high is None:
        return null.value
    return Estimate(mean=null.value, low=null.low, high=null.high)


def _nulls_note(summary: ProbeSummary, pieces: str = "tokens") -> str:
    return (
        f"By {divergence_name(summary)}; chance: of the {pieces}; the reference's entropy in the place of the "
        f"divergence; noise: models as far from {summary.reference} in random directions, their mean, least and most."
    )


def _place_rows(summary: ProbeSummary) -> Rows:
    """Return every share of the divergence beside its nulls."""
    claims = [claim for claim in summary.claims if claim.figure == "share"]
    rows: list[tuple[Cell, ...]] = []
    for claim in claims:
        nulls = {null.null: _null_cell(null) for null in claim.nulls}
        place = claim.name.removeprefix("Divergence on ").removeprefix("the ").removeprefix("category ")
        verdict = "more than all" if claim.nulls and claim.nulls[0].side == 1 else "less than all"
        if not claim.stands:
            verdict = "not determined" if claim.unknown else "not more or less than all"
        cells = *map(nulls.get, TOKEN_NULLS), verdict
        rows.append((sentence_case(place), claim.estimate, *cells))
    has_noise = any(claim.null("noise") for claim in claims)
    return Rows(
        id="places",
        title="Where the divergence falls, and where it would without training",
        first="Tokens",
        columns={
            summary.final: SHARE,
            **dict.fromkeys([_NULLS[name] for name in TOKEN_NULLS], SHARE),
            "Paired over problems": TEXT,
        },
        rows=tuple(rows),
        note=f"{_nulls_note(summary)} A share says something of training where it is more than all of them, or less.",
        plots=(Dots(column=summary.final, null=_NULLS["noise" if has_noise else "chance"]),),
    )


def _category_rows(inputs: ReportInputs, summary: ProbeSummary) -> Rows:
    """Return the mean forward KL of every category of tokens along training, the largest share at the end first."""
    shares = {
        category.category: category.share_divergence or 0.0
        for category in summary.categories
        if category.checkpoint == summary.final
    }
    known = dict.fromkeys(category.category for category in summary.categories)
    names = sorted(known, key=lambda name: -shares.get(name, 0.0))
    columns = [name.replace("_", " ").capitalize() for name in names]
    num = sum(share > _LEAST_SHARE for share in shares.values())
    rows = crossed(((each.checkpoint, each.category, each.forward_kl) for each in summary.categories), names)
    labels = [str(row[0]) for row in rows]
    return Rows(
        id="category_kl_breakdown",
        title="Mean forward KL by category of the token",
        first="Checkpoint",
        columns=dict.fromkeys(columns, NATS),
        rows=rows,
        plots=(along_training(inputs, labels, columns[: min(max(num, 2), _MAX_CURVES)]),),
    )


def _turn_rows(summary: ProbeSummary) -> Rows:
    """Return the divergences and spikes of each turn at the final checkpoint."""
    key, name = summary.divergence, divergence_name(summary)
    rate = f"Spikes by {name}"
    return rows_of(
        [turn for turn in summary.turns if turn.checkpoint == summary.final],
        {
            "Rollouts": (COUNT, "num_rollouts"),
            "Tokens": (COUNT, "num_tokens"),
            **{title: (divergence_unit(each), f"mean.{each}") for each, title in DIVERGENCE_NAMES.items()},
            rate: (PER_1000, f"spikes.{key}.per_1000_tokens"),
        },
        name=lambda turn: f"Turn {turn.turn}",
        id="turns",
        title=f"Mean divergence of {summary.final} by turn",
        first="Turn",
        note="Of tokens that the model sampled; what stands between its turns is read and not counted. Later turns are "
        "those of the rollouts that have them.",
        plots=(Dots(column=name),),
    )


def _rank_rows(summary: ProbeSummary) -> Rows:
    shifts = [
        (model, ranks, shift)
        for shift in summary.rank_shift
        for model, ranks in ((shift.checkpoint, shift.rank), (summary.reference, shift.rank_ref))
    ]
    return Rows(
        id="ranks",
        title="Would the other model have written the token?",
        first="Rank under",
        columns={"First choice": SHARE, "Second or third": SHARE, "Lower": SHARE, "Tokens": COUNT},
        rows=tuple(
            (
                f"{model} on {'its own text' if shift.source == model else f'text of {shift.source}'}",
                *(ranks[name].share if name in ranks else None for name in _CLASSES),
                shift.num_tokens,
            )
            for model, ranks, shift in shifts
        ),
    )


def _change_in(entry: CheckpointEntropy, *, region: Region) -> Estimate | None:
    return next((part.change for part in entry.regions if part.region == region), None)


def _rows(inputs: ReportInputs) -> Iterator[Rows]:
    summary = inputs.summary
    if summary is None:
        return
    key, reference, entropy = summary.divergence, summary.reference, summary.entropy
    means = () if entropy is None else entropy.means
    yield _place_rows(summary)
    yield _category_rows(inputs, summary)
    yield _turn_rows(summary)
    final = summary.at_final(means)
    yield rows_of(
        () if final is None else final.categories,
        {"Entropy": (NATS, "entropy"), f"Change from {reference}": (NATS_CHANGE, "change")},
        name=lambda entry: entry.category.replace("_", " ").capitalize(),
        id="certainty",
        title=f"Entropy of {summary.final} by category of the token",
        first="Category",
        plots=(Dots(column=f"Change from {reference}", at=0),),
    )

    # Style and uncertain tokens: what they have of the divergence, and of the tokens.
    shares: dict[str, Column] = {
        "Of the divergence": (SHARE, "share_divergence"),
        "Of the tokens": (SHARE, "share_tokens"),
    }
    yield by_checkpoint(
        inputs,
        summary.style,
        {**shares, "More": (POINTS, "excess")},
        drawn=(),
        id="style",
        title="What falls on style, by checkpoint",
        note="Style is mark-up, punctuation, white space and discourse words.",
    )
    forking: dict[str, Column] = {
        "Of the divergence": (SHARE, lambda tokens: tokens.share_divergence.get(key)),
        "Of the spikes": (SHARE, lambda tokens: tokens.spikes[key].share if key in tokens.spikes else None),
        "Of the wrong steps": (SHARE, "wrong_steps.share"),
    }
    yield by_checkpoint(
        inputs,
        () if entropy is None else entropy.forking,
        {**shares, **forking},
        drawn=(),
        id="forking",
        title="What falls on uncertain tokens, by checkpoint",
        note=f"The fifth of the tokens at which {reference} is least certain.",
    )
    yield _rank_rows(summary)

    # How certain each checkpoint became, on the same tokens.
    changes: dict[str, Column] = {"All tokens": (NATS_CHANGE, "change")}
    for region, name in REGIONS.items():
        changes[f"{name.capitalize()} third"] = NATS_CHANGE, partial(_change_in, region=region)
    yield by_checkpoint(
        inputs,
        means,
        {**changes, "Entropy": (NATS, "entropy"), "Top token changed": (SHARE, "share_argmax_changed")},
        drawn=tuple(changes),
        id="entropy_reduction",
        title=f"Change of entropy against {reference}, on the same tokens",
    )


TOPIC = Topic(
    title="Where does training change the text?",
    note="tokens, thirds, style, ranks and entropy, beside what noise gives",
    sentences={"Where": with_rows(_sentences)},
    rows=_rows,
    figures={
        "category_kl_breakdown": FigureSpec(
            shows="Mean forward KL by category of the token, at every checkpoint.",
        ),
        "entropy_reduction": FigureSpec(
            shows="Change of every checkpoint's entropy against the reference, in all and by third of the rollout.",
        ),
    },
)
