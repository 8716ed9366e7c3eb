"""What the page of a run says first: a sentence, and verdicts with interval, n and null."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from swerve.artifacts.evaluation import Evaluation
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.artifacts.record import num_intervals
from swerve.estimates import false_by_chance
from swerve.progress import format_duration
from swerve.report.format import (
    SAME,
    compared,
    count,
    joined_digits,
    number,
    number_interval,
    percent,
    percent_interval,
    points,
    points_interval,
    signed_interval,
)
from swerve.report.names import METHODS, divergence_name, named, population_title, selector_word
from swerve.report.page import Verdict
from swerve.report.read import ReportInputs
from swerve.report.rows import NATS, SHARE, Rows
from swerve.report.topics.causes import spike_effect_rows
from swerve.report.topics.dose import dose_rows, least_dose
from swerve.report.topics.outcome import accuracies
from swerve.report.topics.spikes import density_rows
from swerve.report.topics.topic import along_training
from swerve.report.topics.where import claim_rows

_STAGES = {"rl": "reinforcement learning", "sft": "supervised fine-tuning", "dpo": "preference optimisation (DPO)"}
_SHORT = 60
"""Characters of an example problem; a longer one is left to the rollout below."""


def sentence(inputs: ReportInputs) -> str:
    """Return which model was trained, on which task, and what came of it."""
    measured, final, summary = accuracies(inputs), inputs.final, inputs.summary
    task = f" at {inputs.task}" if inputs.task else ""
    question = joined_digits(inputs.example, inputs.example)
    example = f", such as `{question}`" if question and len(question) <= _SHORT else ""
    if measured is None:
        if summary is None or (mean := summary.final_divergence) is None:
            return f"{count(len(inputs.metrics))} steps of training{task}; **nothing is evaluated yet**."
        title = population_title(summary.population, summary)
        return (
            f"`{summary.final}` differs from `{summary.reference}` by **{NATS.text(mean)} nats per token** "
            f"({divergence_name(summary)}) on {count(summary.num_rollouts)} responses ({title}) to "
            f"{count(summary.num_rollout_problems or summary.num_problems)} problems{task}{example}."
        )

    # Before and after, with the interval of the later; whether that is a change is what the paired difference says.
    first, last = percent(measured.first.mean), percent_interval(measured.last)
    shown = "" if measured.difference is None or measured.difference.excludes(0) else "; no change is shown"
    if final is None or not final.stage_step or (summary is not None and summary.selected is not None):
        before, after = measured.labels
        return f"`{after}` is right in **{last}** of {measured.problems}{task}{example}, `{before}` in {first}{shown}."
    model = f" a {inputs.model}" if inputs.model else " a model"
    return (
        f"{count(final.stage_step)} steps of {_STAGES.get(final.stage, final.stage)} took{model} "
        f"**from {first} to {last} right** on {measured.problems}{task}{example}{shown}."
    )


def lead(inputs: ReportInputs) -> str:
    """Return where training started, and what the rollout below is."""
    summary = inputs.summary
    if summary is None or not summary.num_rollouts:
        return ""
    title = population_title(summary.population, summary)
    return (
        f"Below is one rollout of “{title}”. The shade of a token is how far `{summary.final}` moved its prediction "
        f"from that of `{summary.reference}`, given the same text before it."
    )


def verdicts(inputs: ReportInputs) -> Iterator[Verdict]:
    """Yield what the run shows, each verdict with interval, n and null; what was not measured is left out."""
    for write in (_accuracy, _place, _cause, _dose, _manner, _doubt):
        verdict = write(inputs)
        if verdict is not None:
            yield verdict


def _accuracy(inputs: ReportInputs) -> Verdict | None:
    """Say whether it became better at the task."""
    measured, summary = accuracies(inputs), inputs.summary
    if measured is None:
        return None
    first, last, word = percent(measured.first.mean), percent(measured.last.mean), "Not compared"
    text = f"{percent_interval(measured.last)} after, on {measured.problems}; the difference was not measured."
    if measured.difference is not None:
        words = {"above": "Better at the task", "below": "Worse at the task", SAME: "No change of accuracy is shown"}
        word = words[compared(measured.difference, 0.0)]
        text = f"{points_interval(measured.difference)} points, on {measured.problems}, paired. Null: no change."
    title = f"{word}: {first} to {last} right."
    test = None if summary is None else summary.mcnemar
    if test is not None:
        text += (
            f" Of {count(test.num)} problems {count(test.num_second_only)} became right and "
            f"{count(test.num_first_only)} wrong."
        )
    rows = Rows(
        id="verdict-accuracy",
        title="Accuracy",
        columns={"greedy": SHARE, "sampled": SHARE},
        rows=tuple((each.checkpoint, each.greedy.accuracy, each.sampled.accuracy) for each in inputs.of_last_stage),
        plots=(along_training(inputs, [each.checkpoint for each in inputs.of_last_stage]),),
    )
    return Verdict(title=title, text=text, rows=rows.kept)


def _place(inputs: ReportInputs) -> Verdict | None:
    """Say where the divergence falls, against all nulls."""
    summary = inputs.summary
    claim = None if summary is None else summary.claim("top", "first_wrong") or summary.claim("share", "uncertain")
    if summary is None or claim is None:
        return None
    what, where = f"{divergence_name(summary)} of `{summary.final}`", "is highest on the first wrong token"
    of = f"of {count(summary.num_rollouts)} rollouts"
    if claim.figure == "share":
        where, of = "falls on the fifth of the tokens where the reference is least certain", "of the divergence"
    verdict = "that stands against every null" if claim.stands else "that alone says little of training"
    return Verdict(
        title=f"{what} {where} in {percent(claim.estimate.mean)} {of}: {verdict}.",
        text=f"{percent_interval(claim.estimate)}; {claim.verdict} (paired over problems). Noise is the reference with "
        f"random changes of its weights that move it as far{_size(summary)}.",
        rows=claim_rows(claim, summary).kept,
    )


def _size(summary: ProbeSummary) -> str:
    mean = summary.final_divergence
    return "" if mean is None else f" (a mean of {number(mean.mean)} nats per token)"


def _cause(inputs: ReportInputs) -> Verdict | None:
    """Say whether the token at the spike decides the answer, and whether another would, too."""
    summary = inputs.summary
    spike = None if summary is None or summary.causal is None else summary.causal.selection("spike")
    if summary is None or summary.causal is None or spike is None or spike.effect is None:
        return None
    final, reference = f"`{summary.final}`", f"`{summary.reference}`"
    other = spike.alternative_effect
    by = points(spike.effect.mean)
    title = f"Forced at the spike, the token of {final} changes the success of {reference} by {by} points"
    if not spike.effect.excludes(0):
        title = f"Forcing the token of {final} at the spike is not shown to change the success of {reference}"
    elif other is not None:
        title += f"; a token of neither model, by {points(other.mean)}"
    text = (
        f"From {percent(spike.reference.success)} to {percent(spike.checkpoint.success)} right, "
        f"{points_interval(spike.effect)} points, {count(spike.num_rollouts)} rollouts of "
        f"{count(summary.causal.num_continuations)} continuations. "
    )
    if spike.headline is None:
        text += "Whether another token there does as much was not measured."
    else:
        word = {"above": "does more than", "below": "does less than", SAME: f"is {SAME}"}
        text += (
            f"It {word[compared(spike.headline, 0.0)]} the token of neither model: "
            f"{points_interval(spike.headline)} points between them, where the two models' tokens differ. "
            "Null: no difference."
        )
    return Verdict(title=f"{title}.", text=text, rows=spike_effect_rows(summary).kept)


def _dose(inputs: ReportInputs) -> Verdict | None:
    """Say how few tokens carry the change."""
    summary = inputs.summary
    directions = () if summary is None or summary.cross_sampling is None else summary.cross_sampling.directions
    entry = directions[0] if directions else None
    dose = None if summary is None or entry is None else least_dose(entry, summary.divergence)
    if summary is None or summary.cross_sampling is None or entry is None or dose is None:
        return None
    if entry.base is None or entry.other is None or entry.gap is None or not entry.gap.excludes(0):
        return None
    selector, point = dose
    if point.recovered is None:
        return None
    into = entry.direction == "checkpoint_into_reference"
    writer, giver = (summary.reference, summary.final) if into else (summary.final, summary.reference)
    random = next((one.points for one in entry.selectors if one.selector == "random"), ())
    same = next((one.accuracy for one in random if one.budget == point.budget), None)
    null = "" if same is None else f" Null: as many tokens at random, {percent_interval(same)}."
    share, recovered = percent(point.share_swapped), percent(point.recovered.mean)
    problems = f"{count(summary.cross_sampling.num_problems)} problems that were not selected"
    return Verdict(
        title=f"{share} of the tokens recover {recovered} of the difference.",
        text=f"`{writer}` writes and takes the token of `{giver}` where {selector_word(selector.selector)} is highest: "
        f"from {percent(entry.base.mean)} to {percent_interval(point.accuracy)} right on {problems}; `{giver}` alone "
        f"{percent(entry.other.mean)}.{null}",
        rows=dose_rows(entry, summary).kept,
    )


def _manner(inputs: ReportInputs) -> Verdict | None:
    """Say what else changed in its answers: certainty and length."""
    entropy, length, first, last = inputs.entropy_change, inputs.length_change, inputs.reference, inputs.final
    if entropy is None or length is None or first is None or last is None:
        return None
    before, after = first.greedy.entropy, last.greedy.entropy
    if before is None or after is None:
        return None
    sure = {"above": "Less sure", "below": "Surer", SAME: "As sure as before"}[compared(entropy, 0.0)]
    long = {"above": "longer", "below": "shorter", SAME: "not shown to be longer or shorter"}[compared(length, 0.0)]
    if length.mean == 0:
        long = "answers as long as before"
    rows = Rows(
        id="verdict-entropy",
        title="Entropy of a token of its own answers",
        columns={"Entropy": NATS},
        rows=tuple((each.checkpoint, each.greedy.entropy) for each in inputs.of_last_stage),
        plots=(along_training(inputs, [each.checkpoint for each in inputs.of_last_stage]),),
    )
    return Verdict(
        title=f"{sure}, {long}.",
        text=f"Entropy {signed_interval(entropy)} nats per token ({number(before.mean)} to {number(after.mean)}), "
        f"length {signed_interval(length)} tokens, on {count(last.greedy.num_problems)} problems, paired. "
        f"{percent(_unanswered(last))} of its answers could not be read, {percent(_unanswered(first))} before. "
        "Null: no change.",
        rows=rows,
    )


def _unanswered(evaluation: Evaluation) -> float | None:
    total = evaluation.statuses.total()
    return evaluation.num_unanswered / total if total else None


def _doubt(inputs: ReportInputs) -> Verdict | None:
    """Say how much of all this chance would say too."""
    summary = inputs.summary
    chance = false_by_chance(
        num_intervals(*inputs.evaluations, *([] if summary is None else [summary])), inputs.confidence
    )
    if not chance:
        return None
    rule = None if summary is None else summary.rule
    null = None if summary is None or rule is None else summary.false_discoveries(summary.divergence, rule.method)
    rate = None if summary is None or rule is None else summary.spikes_per_1000(rule)
    if summary is None or rule is None or null is None or null.per_1000_tokens is None or rate is None:
        return Verdict(title="How sure: some of these intervals miss.", text=chance)
    name, itself = named(METHODS, rule.method), f"{summary.reference} against itself"
    return Verdict(
        title=f"Trust the height of a spike, not the number of spikes: {name} finds {number(rate)} in 1,000 tokens, "
        f"and {number(null.per_1000_tokens.mean)} where nothing changed.",
        text=f"Where nothing changed: {itself}, {number_interval(null.per_1000_tokens)} in "
        f"{count(null.num_tokens)} tokens. {chance}",
        rows=density_rows(summary).kept,
    )


def notes(inputs: ReportInputs) -> tuple[str, ...]:
    """Return what limits all findings."""
    return () if inputs.summary is None else tuple(f"{note[:1].upper()}{note[1:]}." for note in inputs.summary.notes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a run is from."""

    date: str
    line: str
    rows: tuple[tuple[str, str], ...]


def provenance(inputs: ReportInputs) -> Provenance:
    """Return when, how long, with what and by which command a run was made."""
    recorded = {
        key.replace("_", " "): str(value)
        for key, value in inputs.provenance.items()
        if isinstance(value, str | int | float) and key != "schema_version"
    }
    stages = inputs.provenance.get("stages")
    if isinstance(stages, dict):
        recorded["stages"] = ", ".join(f"{name} {count(steps)} steps" for name, steps in stages.items())
    if inputs.model:
        recorded["model"] = inputs.model
    if inputs.summary is not None:
        recorded |= {"reference": inputs.summary.reference, "compared": ", ".join(inputs.summary.checkpoints)}

    # The line has what people ask for first.
    seconds = inputs.provenance.get("seconds")
    parts = [
        format_duration(seconds) if isinstance(seconds, int | float) and seconds else "",
        recorded.get("machine", ""),
        *(f"{name} {recorded[f'{name} version']}" for name in ("swerve", "torch") if f"{name} version" in recorded),
        f"seed {recorded['seed']}" if "seed" in recorded else "",
        recorded.get("command", ""),
    ]
    date = recorded.get("date", "")[:10]
    return Provenance(date=date, line=", ".join(filter(None, [date, *parts])), rows=tuple(recorded.items()))


TERMS = (
    (
        "Divergence",
        "P is the checkpoint, Q the reference. Both are given the same text, and at each position their distributions "
        "over the whole vocabulary are compared at temperature 1. Forward KL is KL(P‖Q) = Σ P log(P/Q), reverse KL is "
        "KL(Q‖P), JS is the mean of KL(P‖M) and KL(Q‖M) with M = (P+Q)/2, at most ln 2 ≈ 0.693. All are in nats. A "
        "position names the token it predicts. That of a checkpoint that has hardly moved is mostly noise.",
    ),
    (
        "Spike",
        "A position whose divergence stands out; of spikes close together the highest is kept. z-score and adaptive "
        "compare with the mean and standard deviation of the rollout or of a window in it and have no scale: a "
        "divergence a thousand times smaller has the same spikes, and so has noise. Percentile pools all values of the "
        "run, absolute is a number of nats, calibrated is what exceeds a null pair. Compare checkpoints by their mean "
        "divergence, not by their number of spikes.",
    ),
    (
        "Null",
        "What a figure would be without training. Chance: every position alike. The reference's entropy: its own "
        "uncertainty in the place of the divergence. Matched noise: the reference with random changes of its weights "
        "that move it as far. A figure says something of training where it is above all of them, or below all.",
    ),
    (
        "Selection",
        "Which rollouts are compared, and how they were chosen, stands under “Which rollouts?”. Where they were chosen "
        "by the completions that are described, some would change sides on another draw, so the figures describe this "
        "selection and lean towards a large change. A divergence on text of the reference is another thing than one on "
        "text of the checkpoint.",
    ),
    (
        "Intervals and tests",
        "The unit is the problem: intervals are over problems (t, Clopper and Pearson, jackknife), tests compare "
        "problems, and p-values are adjusted over their family (Benjamini and Hochberg). The signed-rank test is not "
        "one of the mean and can contradict its interval. Two figures of the same problems are compared by the "
        "interval of their paired difference; where it holds 0 they are not distinguishable.",
    ),
    (
        "Wrong step",
        "A program checks every step of a trace, given the steps before it; a mistake that is carried on consistently "
        "is marked once. A right answer can follow from a wrong trace.",
    ),
    (
        "Swap",
        "The text up to the position is kept, one token is forced, and a model continues. The effect is the paired "
        "difference in the fraction of right answers between the forced token and the rollout's own. Controls do the "
        "same at a position matched in category, third and entropy, and at a random one; another token, which neither "
        "model chose, tells whether this token matters or any other does.",
    ),
    (
        "Cross-sampling",
        "One model writes and takes the other's token wherever a score of the position is above a threshold, set so "
        "that about the stated fraction of tokens is taken. A score that finds what matters recovers the other model's "
        "accuracy with few tokens.",
    ),
    (
        "Pivotal token",
        "A token across which the chance of a right answer changes by at least the gap, found by bisection and then "
        "measured again on fresh continuations; the first size is too large by the search, the second is not.",
    ),
    (
        "Several samples",
        "pass@k asks for one right answer among k samples: it is high as soon as a model can find an answer at all, "
        "while the mean of the samples, pass@1, says how often it does.",
    ),
    (
        "Completions without a verdict",
        "No answer found: the text has none in the form asked for. Limit reached: the grader gave up at a limit of "
        "time, memory or size. Grader failed: the program itself. Evaluations count all of them as wrong.",
    ),
)
"""What the words of the page mean."""
