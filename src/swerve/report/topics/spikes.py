"""Spikes: do divergences and other scores find the steps that are known to be wrong?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

from swerve.artifacts.probe_claims import DivergenceClaim
from swerve.artifacts.probe_findings import DIVERGENCE_NAMES, Divergence
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.report.evidence import Figure, Sentence, digits_of
from swerve.report.format import claim_words
from swerve.report.names import METHODS, REGIONS, SELECTORS, divergence_name, named, selector_word
from swerve.report.read import ReportInputs
from swerve.report.rows import AUC, COUNT, PER_1000, SHARE, Dots, Rows
from swerve.report.summary_evidence import held_evidence, null_evidence, response_evidence, score_evidence
from swerve.report.token_evidence import area_evidence, spike_evidence, top_evidence
from swerve.report.topics.topic import (
    KNOWN_STEPS,
    FigureSpec,
    Topic,
    along_training,
    by_checkpoint,
    crossed,
    rows_of,
    with_rows,
)
from swerve.report.topics.where import claim_rows
from swerve.text import count, counted, number, number_interval, percent, percent_interval

_TWICE = "Null pair"
"""One model run twice, where every spike is false."""


def _sentences(inputs: ReportInputs, summary: ProbeSummary) -> Iterator[str]:
    """Yield where the highest divergence falls, which scores find wrong steps, and what a method finds by chance."""
    name, first, wrong = divergence_name(summary), summary.claim("top", "first_wrong"), summary.claim("top", "wrong")
    if summary.knows_no_wrong_step:
        yield Sentence(
            "No step of the rollouts is known to be wrong, so whether spikes find wrong steps was not measured.",
            response_evidence(inputs),
        )
    elif first is not None and wrong is not None:
        numbers = _shares(first, "it") + _shares(wrong, "any wrong")
        yield Sentence(
            f"The token of a rollout where {summary.final} differs most from {summary.reference} ({name}) is the first "
            f"wrong one in {claim_words(first)}; it is any wrong one in {claim_words(wrong)}.",
            top_evidence(inputs, first, *numbers),
        )
    elif summary.claim("top", "first_wrong_sentence") is None:
        yield Sentence("Where the highest divergence of a rollout falls was not measured.", held_evidence(inputs))
    area = summary.claim("auc", "first_wrong")
    if area is not None:
        yield Sentence(
            f"As a score, {name} ranks first wrong tokens above those that are not wrong with an AUC of "
            f"{claim_words(area)}.",
            area_evidence(inputs, area, *_areas(area)),
        )

    yield from _of_sentences(inputs, summary)

    # Of several scores the best has no interval of its own.
    selectors = () if summary.recovery is None else summary.recovery.selectors
    areas = [(score.auc, selector_word(score.selector)) for score in selectors if score.auc is not None]
    num = sum(auc.low > 0.5 for auc, _ in areas)
    if num:
        ranked = sorted((auc.mean, word) for auc, word in areas)
        (low, least), (high, most) = ranked[0], ranked[-1]
        yield Sentence(
            f"Each by an interval of its own, {count(num)} of {count(len(areas))} scores rank the known wrong steps "
            f"above chance; AUCs are {number(low)} ({least}) to {number(high)} ({most}).",
            score_evidence(
                summary,
                Figure(name="scores", statistic="rows"),
                Figure(name="above chance", statistic="rises", columns=("chance", "from")),
                Figure(name="least", statistic="least", columns=("area",), write=number),
                Figure(name="most", statistic="most", columns=("area",), write=number),
            ),
        )
    elif areas:
        yield Sentence("No score ranks the known wrong steps above chance.", score_evidence(summary))

    # The method of the headline, with what it finds where there is nothing to find.
    rule = summary.rule
    if rule is not None and rule.precision is not None and rule.recall is not None:
        hits = digits_of(percent_interval, rule.precision)
        found = [
            Figure(name="spikes", statistic="sum", columns=("spikes",)),
            Figure(
                name="of these on a wrong step", statistic="ratio of sums", columns=("on wrong", "spikes"), write=hits
            ),
            Figure(
                name="of wrong steps with one",
                statistic="ratio of sums",
                columns=("on wrong", "wrong tokens"),
                write=digits_of(percent_interval, rule.recall),
            ),
        ]
        yield Sentence(
            f"Of the {count(rule.num_spikes)} {named(METHODS, rule.method)} spikes {percent_interval(rule.precision)} "
            f"are on a wrong step (by chance {percent(rule.chance_precision)}), and {percent_interval(rule.recall)} of "
            f"the wrong steps have one (by chance {percent(rule.chance_recall)}).",
            spike_evidence(inputs, *found),
        )
    yield from _null_sentences(inputs, summary)


def _shares(claim: DivergenceClaim, place: str) -> list[Figure]:
    """Return how often the highest divergence is on a place, and what chance and the reference's entropy give."""
    found = Figure(name=f"on {place}", statistic="mean", columns=(f"divergence on {place}",))
    numbers = [replace(found, write=digits_of(percent_interval, claim.estimate))]
    for name in ("chance", "entropy"):
        if any(null.null == name for null in claim.nulls):
            columns = (f"{name} on {place}",)
            numbers.append(Figure(name=f"{name} on {place}", statistic="mean", columns=columns, write=percent))
    return numbers


def _areas(claim: DivergenceClaim) -> list[Figure]:
    """Return the area under the ROC curve of the divergence, and of the reference's entropy in its place."""
    found = Figure(name="AUC", statistic="mean", columns=("above the others by divergence",))
    numbers = [replace(found, write=digits_of(number_interval, claim.estimate))]
    if any(null.null == "entropy" for null in claim.nulls):
        columns = ("above the others by entropy",)
        numbers.append(Figure(name="of the entropy", statistic="mean", columns=columns, write=number))
    return numbers


def _of_sentences(inputs: ReportInputs, summary: ProbeSummary) -> Iterator[str]:
    """Yield whether the highest divergence is in the wrong sentence, of rollouts whose label names one and no token."""
    top, area = (summary.claim(figure, "first_wrong_sentence") for figure in ("top", "auc"))
    recovery, name = summary.sentence_recovery, divergence_name(summary)
    if recovery is None or top is None:
        return
    yield Sentence(
        f"Of {counted(recovery.num_rollouts, 'rollout')} it is known which sentence (or step) is the first "
        f"wrong one, and not which token: {counted(recovery.num_sentences, 'sentence')} in all. The token where "
        f"{summary.final} differs most from {summary.reference} ({name}) is in it in {claim_words(top)}.",
        top_evidence(inputs, top, Figure(name="rollouts", statistic="rows"), *_shares(top, "it")),
    )
    if area is not None:
        yield Sentence(
            f"By the highest {name} in each, first wrong sentences rank above the others with an AUC of "
            f"{claim_words(area)}.",
            area_evidence(inputs, area, *_areas(area)),
        )


def _null_sentences(inputs: ReportInputs, summary: ProbeSummary) -> Iterator[str]:
    """Yield what the headline method finds between two runs of one model, where every spike is false, and here."""
    null = summary.false_discoveries(summary.divergence, summary.spike_method)
    if null is None or (rate := null.per_1000_tokens) is None:
        return
    of = Figure(name="of 1,000 tokens", statistic="per 1,000", columns=("spikes", "tokens"))
    numbers = (
        replace(of, write=digits_of(number_interval, rate)),
        Figure(name="tokens", statistic="sum", columns=("tokens",)),
    )
    yield Sentence(
        f"By the {named(METHODS, summary.spike_method)} rule {number_interval(rate)} of 1,000 tokens are spikes "
        f"between two runs of one model ({count(null.num_tokens)} tokens), where every spike is false.",
        null_evidence(summary, *numbers),
    )
    density = None if summary.rule is None else summary.spikes_per_1000(summary.rule)
    if density is not None:
        word = "more" if density > rate.high else "fewer"
        told = f"{word} than that" if not rate.low <= density <= rate.high else "as many as that, as far as can be seen"
        yield Sentence(
            f"{summary.final} has {number(density)} spikes in 1,000 tokens: {told}.",
            spike_evidence(inputs, replace(of, write=number)),
        )


def _hit_rows(inputs: ReportInputs, summary: ProbeSummary) -> Rows:
    """Return how often the top spike of every checkpoint is on a wrong token."""
    return by_checkpoint(
        inputs,
        [hits for hits in summary.spikes if hits.divergence == summary.divergence],
        {
            "Top spike": (SHARE, "top_on_first_wrong"),
            "Chance": (SHARE, "chance_first_wrong"),
            "On any wrong token": (SHARE, "top_on_wrong"),
            "Chance of any": (SHARE, "chance_wrong"),
        },
        drawn=("Top spike", "Chance"),
        greys=("Chance",),
        id="spikes",
        title="Top spike on the first wrong token, by checkpoint",
        note=f"Share of rollouts, by {divergence_name(summary)}; by chance the position is any of the same rollout.",
    )


def _sentence_hit_rows(inputs: ReportInputs, summary: ProbeSummary) -> Rows:
    """Return how often the top spike of every checkpoint is in the sentence that is labelled as the first wrong one."""
    return by_checkpoint(
        inputs,
        [hits for hits in summary.spikes if hits.divergence == summary.divergence],
        {"Top spike": (SHARE, "top_in_wrong_sentence"), "Chance": (SHARE, "chance_wrong_sentence")},
        drawn=("Top spike", "Chance"),
        greys=("Chance",),
        id="sentence_spikes",
        title="Top spike in the first wrong sentence, by checkpoint",
        note=f"Share of rollouts, by {divergence_name(summary)}; by chance the sentence is any of the same rollout.",
    )


def _score_rows(summary: ProbeSummary) -> Rows:
    recovery = summary.recovery
    note = ""
    # By chance the average precision is the share of wrong tokens.
    if recovery is not None:
        note = (
            f"Over the {count(recovery.num_tokens)} tokens of {count(recovery.num_rollouts)} rollouts with "
            f"{count(recovery.num_wrong)} known wrong tokens, at {summary.final}. By chance the average precision is "
            f"{number(recovery.base_rate)}."
        )
    return rows_of(
        () if recovery is None else recovery.selectors,
        {
            "AUC": (AUC, "auc"),
            "AUC, first wrong tokens": (AUC, "auc_first"),
            "Average precision": (SHARE, "average_precision"),
        },
        name=lambda score: named(SELECTORS, score.selector),
        id="recovery",
        title="Which score ranks wrong tokens above the others?",
        first="Score",
        note=note,
        plots=(Dots(column="AUC", at=0.5, greys=(SELECTORS["random"],)),),
    )


def _sentence_rows(summary: ProbeSummary) -> Rows:
    recovery = summary.sentence_recovery
    note = ""
    if recovery is not None:
        note = (
            f"Over the {count(recovery.num_sentences)} sentences (or steps) of {count(recovery.num_rollouts)} rollouts "
            f"with a label of the first wrong one, at {summary.final}; a sentence has the highest score of its tokens. "
            f"By chance the average precision is {number(recovery.base_rate)}."
        )
    return rows_of(
        () if recovery is None else recovery.selectors,
        {"AUC": (AUC, "auc"), "Average precision": (SHARE, "average_precision")},
        name=lambda score: named(SELECTORS, score.selector),
        id="sentence_recovery",
        title="Which score ranks the first wrong sentence above the others?",
        first="Score",
        note=note,
        plots=(Dots(column="AUC", at=0.5, greys=(SELECTORS["random"],)),),
    )


def density_rows(summary: ProbeSummary, divergence: Divergence | None = None) -> Rows:
    """Return how many spikes each method finds, at the final checkpoint and in the null pair, and how many are right.

    Args:
        summary: of the probe.
        divergence: whose spikes; the headline divergence by default.
    """
    divergence = divergence or summary.divergence
    is_main, final = divergence == summary.divergence, summary.final
    nulls = {} if summary.null is None else summary.null.false_discoveries.get(divergence, {})
    recovered = () if summary.recovery is None else summary.recovery.spikes
    known = {each.method: each for each in recovered if each.divergence == divergence}
    # A method may have been run on the null pair, on known wrong steps, or on both.
    methods = [
        SimpleNamespace(name=name, null=nulls.get(method), spikes=known.get(method)) for method, name in METHODS.items()
    ]
    return rows_of(
        methods,
        {
            _TWICE: (PER_1000, "null.per_1000_tokens"),
            final: (PER_1000, lambda each: None if each.spikes is None else summary.spikes_per_1000(each.spikes)),
            "Spikes": (COUNT, "spikes.num_spikes"),
            "Precision": (SHARE, "spikes.precision"),
            "Precision by chance": (SHARE, "spikes.chance_precision"),
            "Recall": (SHARE, "spikes.recall"),
            "Recall by chance": (SHARE, "spikes.chance_recall"),
        },
        name="name",
        id="null_spikes" if is_main else f"null_spikes_{divergence}",
        title=f"Spikes per 1,000 tokens by method ({DIVERGENCE_NAMES[divergence]})",
        first="Method",
        note="The null pair is one model run twice, where every spike is false. Precision: share of spikes on a wrong "
        "token; recall: share of wrong tokens with a spike; by chance: a rollout's spikes lie anywhere in it.",
        plots=(Dots(column=final if known else _TWICE, null=_TWICE if known else ""),) if is_main else (),
    )


def _third_rows(inputs: ReportInputs, summary: ProbeSummary) -> Rows:
    """Return the spikes of each third and checkpoint, by a rule whose threshold is in nats, and of the null pair."""
    densities = [density for density in summary.spike_densities if density.per_1000_tokens is not None]

    # Thresholds in nats are comparable between checkpoints, those relative to a rollout are not.
    methods = {density.method for density in densities}
    method = next((name for name in (summary.spike_method, "absolute", "calibrated") if name in methods), "")
    shown = [density for density in densities if density.method == method]
    rows = crossed(((each.checkpoint, each.region, each.per_1000_tokens) for each in shown), REGIONS)
    null = summary.false_discoveries(summary.divergence, method)
    thirds = (f"{name.capitalize()} third" for name in REGIONS.values())
    return Rows(
        id="spike_density_comparison",
        title=f"{divergence_name(summary)} spikes per 1,000 tokens ({named(METHODS, method)}), by third of the rollout",
        first="Checkpoint",
        columns=dict.fromkeys((*thirds, _TWICE), PER_1000),
        rows=tuple((*row, None if null is None else null.per_1000_tokens) for row in rows),
        plots=(along_training(inputs, [str(row[0]) for row in rows], greys=(_TWICE,)),),
    )


def _rows(inputs: ReportInputs) -> Iterator[Rows]:
    summary = inputs.summary
    if summary is None:
        return
    for figure, of in product(("top", "auc"), ("first_wrong", "first_wrong_sentence")):
        claim = summary.claim(figure, of)
        if claim is not None:
            yield claim_rows(claim, summary)
    yield _hit_rows(inputs, summary)
    yield _score_rows(summary)
    yield _sentence_hit_rows(inputs, summary)
    yield _sentence_rows(summary)
    for divergence in sorted(DIVERGENCE_NAMES, key=lambda divergence: divergence != summary.divergence):
        yield density_rows(summary, divergence)
    yield _third_rows(inputs, summary)


TOPIC = Topic(
    title="Do spikes find the wrong steps?",
    note="the highest divergence, scores and methods, beside what noise gives",
    sentences={"Wrong steps": with_rows(_sentences)},
    rows=_rows,
    figures={
        "spike_density_comparison": FigureSpec(
            shows="Spikes per 1,000 tokens by checkpoint and third of the rollout, with the rate of the null pair.",
        ),
        "spikes": FigureSpec(
            shows="How often the top spike is on the first wrong step, against chance.", needs=KNOWN_STEPS
        ),
        "recovery": FigureSpec(shows="How well each score ranks the tokens of wrong steps.", needs=KNOWN_STEPS),
        "null_spikes": FigureSpec(
            shows="Spikes of every method at the final checkpoint and between two runs of one model."
        ),
    },
)
