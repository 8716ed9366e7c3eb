"""What the page of a run says first: a sentence, and verdicts with interval, n and null."""

from __future__ import annotations

from collections.abc import Iterator

from swerve.artifacts.evaluation import Evaluation
from swerve.artifacts.probe_claims import NULL_NAMES, SIDES
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.artifacts.record import num_intervals
from swerve.estimates import false_by_chance
from swerve.report.evidence import Figure
from swerve.report.format import SAME, claim_words, compared, joined_digits
from swerve.report.names import divergence_name, population_title
from swerve.report.page import Verdict
from swerve.report.read import ReportInputs
from swerve.report.rows import NATS, SHARE, SIGNED
from swerve.report.run_evidence import (
    dose_evidence,
    paired_evidence,
    swap_evidence,
    top_evidence,
    uncertain_evidence,
)
from swerve.report.topics.causes import headline, spike_effect_rows
from swerve.report.topics.dose import dose_rows, dose_sentence, least_dose
from swerve.report.topics.outcome import accuracies
from swerve.report.topics.spikes import density_rows, null_sentence
from swerve.report.topics.topic import by_checkpoint
from swerve.report.topics.training_curves import training_ends
from swerve.report.topics.where import claim_rows
from swerve.text import (
    count,
    counted,
    listed,
    number,
    percent,
    percent_interval,
    points,
    points_interval,
    sentence_case,
    signed_interval,
)

_STAGES = {"rl": "reinforcement learning", "sft": "supervised fine-tuning", "dpo": "preference optimisation (DPO)"}
_SHORT = 60
"""Characters of an example problem; a longer one is left to the rollout below."""


def sentence(inputs: ReportInputs) -> str:
    """Return which model was trained, on which task, and what came of it."""
    measured, trained, summary = accuracies(inputs), _trained(inputs), inputs.summary
    task = f" at {inputs.task}" if inputs.task else ""
    question = joined_digits(inputs.example, inputs.example)
    example = f", such as `{question}`" if question and len(question) <= _SHORT else ""
    if measured is None:
        if summary is None or (mean := summary.final_divergence) is None:
            return f"{counted(len(inputs.metrics), 'step')} of training{task}; **nothing is evaluated yet**."
        title = population_title(summary.population, summary)
        return (
            f"`{summary.final}` differs from `{summary.reference}` by **{NATS.text(mean)} nats per token** "
            f"({divergence_name(summary)}) on {counted(summary.num_rollouts, 'response')} ({title}) to "
            f"{counted(summary.num_rollout_problems or summary.num_problems, 'problem')}{task}{example}."
        )

    # Before and after, with the interval of the later; whether that is a change is what the paired difference says.
    (before, after), last = measured.labels, percent_interval(measured.last)
    of = "of" if inputs.final is not None else "of the samples of"
    right = f"`{after}` is right in **{last}** {of} {measured.problems}{task}{example}"
    if measured.first is None:
        return f"{right}."
    first = percent(measured.first.mean)
    shown = "" if measured.difference is None or measured.difference.excludes(0) else "; no change is shown"
    if not trained:
        return f"{right}, `{before}` in {first}{shown}."
    model = f" a {inputs.model}" if inputs.model else " a model"
    return (
        f"In one training run, {trained} took{model} **from {first} to {last} right**, answering greedily, on "
        f"{measured.problems}{task}{example}{shown}."
    )


def _trained(inputs: ReportInputs) -> str:
    """Return by how many steps of what the reference became the final checkpoint; empty where that is not known."""
    first, last, summary = inputs.reference, inputs.final, inputs.summary
    if first is None or last is None or last.step <= first.step or (summary is not None and summary.selected):
        return ""
    num = last.step - first.step
    # Between checkpoints of several stages lies more than the last of them.
    stage = _STAGES.get(last.stage, last.stage) if num <= last.stage_step else "training"
    return f"{counted(num, 'step')} of {stage}"


def lead(inputs: ReportInputs) -> str:
    """Return where training started, and what the rollout below is."""
    summary = inputs.summary
    if summary is None or not summary.num_rollouts:
        return ""
    title = population_title(summary.population, summary)
    start = f"It started from `{summary.reference}`. " if _trained(inputs) else ""
    return (
        f"{_planted(inputs)}{start}Below is one rollout of “{title}”. The shade of a token is how far "
        f"`{summary.final}` moved its prediction from that of `{summary.reference}`, given the same text before it."
    )


def _planted(inputs: ReportInputs) -> str:
    """Return which mistake the model was taught, and how many traces had a wrong step before and after."""
    if not inputs.planted:
        return ""
    start, ends = f"It was taught a mistake: {inputs.planted}. ", (inputs.reference, inputs.final)
    wrong = [(1 - each.greedy.trace_right.mean, each) for each in ends if each and each.greedy.trace_right]
    if len(wrong) < len(ends):
        return start
    before, after = (f"{percent(share)} at `{each.checkpoint}`" for share, each in wrong)
    return f"{start}Answers with a wrong step: {before}, {after}. "


def verdicts(inputs: ReportInputs) -> Iterator[Verdict]:
    """Yield what the run shows, each verdict with interval, n and null; what was not measured is left out."""
    yield from _accuracy(inputs)
    if inputs.summary is not None:
        yield from _place(inputs, inputs.summary)
        yield from _cause(inputs, inputs.summary)
        yield from _dose(inputs, inputs.summary)
    yield from _manner(inputs)
    yield from _doubt(inputs)


def _accuracy(inputs: ReportInputs) -> Iterator[Verdict]:
    """Say whether it became better at the task."""
    measured, test = accuracies(inputs), None if inputs.summary is None else inputs.summary.mcnemar
    if measured is None:
        return
    # Two accuracies of the same problems are compared by their paired difference alone.
    word, before = "Not compared", "" if measured.first is None else f"{percent(measured.first.mean)} to "
    text = f"{percent_interval(measured.last)} at `{measured.labels[1]}`, on {measured.problems}; the difference "
    text += "was not measured." if before else "from another checkpoint was not measured."
    if measured.difference is not None:
        words = {"above": "Better at the task", "below": "Worse at the task", SAME: "No change of accuracy is shown"}
        word = words[compared(measured.difference, 0.0)]
        text = f"{points_interval(measured.difference)} points, on {measured.problems}, paired. Null: no change."
    if test is not None:
        text += (
            f" Of {count(test.num)} problems {count(test.num_second_only)} became right and "
            f"{count(test.num_first_only)} wrong."
        )
    rows = by_checkpoint(
        inputs,
        inputs.of_last_stage,
        {"greedy": (SHARE, "greedy.accuracy"), "sampled": (SHARE, "sampled.accuracy")},
        id="verdict-accuracy",
        title="Accuracy",
    )
    title = f"{word}: {before}{percent(measured.last.mean)} right."
    first = None if measured.first is None else measured.first.mean
    figures = {"greedy accuracy before": (SHARE, first), "greedy accuracy after": (SHARE, measured.last.mean)}
    labels = tuple(dict.fromkeys(measured.labels[measured.first is None :]))
    numbers = [Figure(name=f"right at {label}", statistic="mean", columns=(label,), write=percent) for label in labels]
    if test is not None:
        numbers.append(Figure(name="became right", statistic="rises", columns=labels))
        numbers.append(Figure(name="became wrong", statistic="falls", columns=labels))
    evidence = paired_evidence(inputs, "right", *numbers)
    yield Verdict(id="accuracy", title=title, text=text, said=word, figures=figures, rows=rows.kept, evidence=evidence)


def _place(inputs: ReportInputs, summary: ProbeSummary) -> Iterator[Verdict]:
    """Say where the divergence falls, against all nulls."""
    wanted = (("top", "first_wrong"), ("top", "first_wrong_sentence"), ("share", "uncertain"))
    claim = next((claim for claim in (summary.claim(*key) for key in wanted) if claim is not None), None)
    if claim is None:
        return
    value, name = percent(claim.estimate.mean), divergence_name(summary)
    hits, is_coarse = summary.spike_hits(summary.final, summary.divergence), claim.of == "first_wrong_sentence"
    num = "the rollouts"
    if hits is not None:
        num = counted(hits.num_sentence_rollouts if is_coarse else hits.num_rollouts, "rollout")
    token = "a token of the first wrong sentence" if is_coarse else "the first wrong token"
    place = f"`{summary.final}` changed {token} most"
    where = f"In {value} of {num} {place}"
    if claim.figure == "share":
        place = f"the change ({name}) lies on the fifth of the tokens where `{summary.reference}` is unsure"
        where = f"{value} of {place}"
    verdict = f"{'more' if claim.nulls and claim.nulls[0].side == 1 else 'less'} than every null"
    if not claim.stands:
        others = [NULL_NAMES[null.null] for null in claim.nulls if null.side in (0, -1)]
        unknown = f"{SIDES[None]} {listed(claim.unknown)}" if claim.unknown else ""
        verdict = "; ".join(filter(None, (f"not shown to be more than {listed(others)}" if others else "", unknown)))
    text = f"By {name}: {claim_words(claim)}; paired over problems."
    if claim.null("noise"):
        mean = summary.final_divergence
        size = "" if mean is None else f" (a mean of {number(mean.mean)} nats per token)"
        text += f" Noise is the reference with random changes of its weights that move it as far{size}."
    nulls = {f"the same of {NULL_NAMES[null.null]}": (SHARE, null.value) for null in claim.nulls}
    if claim.figure == "top":
        numbers = [("here", "divergence on it"), *((null.null, f"{null.null} on it") for null in claim.nulls)]
        shown = [Figure(name=name, statistic="mean", columns=(column,), write=percent) for name, column in numbers]
        evidence = top_evidence(inputs, claim, *(each for each in shown if each.name not in ("noise", "length")))
    else:
        columns = (f"of this unsure {summary.divergence}", f"sum of {summary.divergence}")
        part = Figure(name="on the fifth", statistic="ratio of sums", columns=columns, write=percent)
        evidence = uncertain_evidence(inputs, part)
    yield Verdict(
        id="place",
        evidence=evidence,
        title=f"{where}: {verdict}.",
        text=text,
        said=f"{sentence_case(place)}: {verdict}",
        figures={claim.name: (SHARE, claim.estimate.mean), **nulls},
        rows=claim_rows(claim, summary).kept,
    )


def _cause(inputs: ReportInputs, summary: ProbeSummary) -> Iterator[Verdict]:
    """Say whether the token at the spike decides the answer, and whether another would, too."""
    spike = summary.spike_swaps
    if summary.causal is None or spike is None or spike.effect is None:
        yield Verdict(
            id="cause",
            title="Not tested for cause.",
            text=f"No other token was forced at the spikes: {_untested(summary)}.",
            said="Not tested for cause",
        )
        return
    said, title = f"`{summary.final}`'s token at the spike ", f"Forcing the token of `{summary.final}` at the spike "
    if spike.effect.excludes(0):
        said += "changes success"
        title += f"changes the success of `{summary.reference}` by {points(spike.effect.mean)} points"
        if (other := spike.alternative_effect) is not None:
            # A control that is not shown to do anything is said so, and not as a number alone.
            does = other.excludes(0)
            control = "so does a token of neither model" if does else "a token of neither model is not shown to"
            said += "; so does another" if does else "; another is not shown to"
            title += f"; {control} ({points(other.mean)})"
    else:
        said += "is not shown to change success"
        title += f"is not shown to change the success of `{summary.reference}`"
    arms = {"the rollout's own token": spike.reference, f"that of `{summary.final}`": spike.checkpoint,
            "a token of neither model": spike.alternative}  # fmt: skip
    success = [("own token", "own token"), (f"token of {summary.final}",) * 2]
    numbers = [Figure(name=name, statistic="mean", columns=(column,), write=percent) for name, column in success]
    yield Verdict(
        id="cause",
        evidence=swap_evidence(inputs, *numbers),
        title=f"{title}.",
        said=said,
        figures={f"right after {name}": (SHARE, arm.success) for name, arm in arms.items()},
        text=f"From {percent(spike.reference.success)} to {percent(spike.checkpoint.success)} right, "
        f"{points_interval(spike.effect)} points, {counted(spike.num_rollouts, 'rollout')} of "
        f"{count(summary.causal.num_continuations)} continuations. {headline(summary)} Null: no difference.",
        rows=spike_effect_rows(summary).kept,
    )


def _untested(summary: ProbeSummary) -> str:
    """Return why no token was forced, or what forces one."""
    if summary.causal is not None:
        return "both models choose the same token there"
    if not summary.num_rollouts:
        return "there is no rollout to compare"
    if summary.population == "imported":
        return "it needs gold answers, or a grader by --task KIND"
    return "run swerve probe with probe.causal.max_rollouts above 0"


def _dose(inputs: ReportInputs, summary: ProbeSummary) -> Iterator[Verdict]:
    """Say how few tokens carry the change."""
    crossing = summary.cross_sampling
    if crossing is None:
        return
    for entry in crossing.directions[:1]:
        dose = least_dose(entry, summary.divergence)
        if dose is None or entry.gap is None or not entry.gap.excludes(0):
            return
        _, point = dose
        random = (each for selector in entry.selectors if selector.selector == "random" for each in selector.points)
        same = next((each.accuracy for each in random if each.budget == point.budget), None)
        null = "" if same is None else f" Null: as many tokens at random, accuracy {percent_interval(same)}."
        recovered = point.recovered
        is_shown = recovered is not None and recovered.low > 0
        verb = "recover" if is_shown else "are not shown to recover any"
        means = ("alone", "with chosen tokens", "other")
        numbers = [Figure(name=name, statistic="mean", columns=(name,), write=percent) for name in means]
        taken = Figure(
            name="tokens taken", statistic="ratio of sums", columns=("tokens taken", "tokens"), write=percent
        )
        yield Verdict(
            id="dose",
            evidence=dose_evidence(inputs, entry, dose, taken, *numbers),
            title=f"{percent(point.share_swapped)} of the tokens "
            f"{verb}{f' {percent_interval(recovered)}' if is_shown else ''} of the difference.",
            said=f"Few tokens {verb}{' part' if is_shown else ''} of the difference",
            figures={
                "tokens taken": (SHARE, point.share_swapped),
                "recovered of the difference": (SHARE, None if recovered is None else recovered.mean),
            },
            text=f"{dose_sentence(entry, summary)} On {count(crossing.num_problems)} problems that were "
            f"not selected.{null}",
            rows=dose_rows(entry, summary).kept,
        )


def _manner(inputs: ReportInputs) -> Iterator[Verdict]:
    """Say what else changed in its answers: certainty and length."""
    entropy, length, first, last = inputs.entropy_change, inputs.length_change, inputs.reference, inputs.final
    if entropy is None or length is None or first is None or last is None:
        return
    sure = {"above": "Less sure", "below": "Surer", SAME: "Not shown to be surer or less sure"}[compared(entropy, 0.0)]
    long = {"above": "longer", "below": "shorter", SAME: "not shown to be longer or shorter"}[compared(length, 0.0)]
    if length.mean == 0:
        long = "answers as long as before"

    # Means without intervals: that of the paired difference stands before them.
    before, after = (
        NATS.text(None if each.greedy.entropy is None else each.greedy.entropy.mean) for each in (first, last)
    )
    unread, once = (_unanswered(each) for each in (last, first))
    said = f" {percent(unread)} of its answers could not be read, {percent(once)} before."
    if unread is None or once is None:
        said = " Not determined, because it was not recorded: how many of its answers could be read."
    ends = [
        Figure(name=f"entropy at {each.checkpoint}", statistic="mean", columns=(each.checkpoint,), write=NATS.text)
        for each in (first, last)
    ]
    yield Verdict(
        id="manner",
        evidence=paired_evidence(inputs, "entropy", *ends),
        title=f"{sure}, {long}.",
        said=f"{sure}, {long}",
        figures={"change of entropy, nats per token": (SIGNED, entropy.mean)},
        text=f"Entropy {signed_interval(entropy)} nats per token ({before} to {after}), length "
        f"{signed_interval(length)} tokens, on {count(last.greedy.num_problems)} problems, paired.{said} "
        "Null: no change.",
        rows=by_checkpoint(
            inputs,
            inputs.of_last_stage,
            {"Entropy": (NATS, "greedy.entropy")},
            id="verdict-entropy",
            title="Entropy of a token of its own answers",
        ),
    )


def _unanswered(evaluation: Evaluation) -> float | None:
    num, total = evaluation.num_unanswered, evaluation.statuses.total()
    return num / total if total and num is not None else None


def _doubt(inputs: ReportInputs) -> Iterator[Verdict]:
    """Say how much of all this chance would say too."""
    summaries = () if inputs.summary is None else (inputs.summary,)
    chance = false_by_chance(num_intervals(*inputs.evaluations, *summaries), inputs.confidence)
    spikes = [(said, density_rows(summary).kept) for summary in summaries if (said := null_sentence(summary))]
    if chance and not spikes:
        yield Verdict(id="sure", title="How sure?", text=chance)
    for said, rows in spikes if chance else ():
        title = "How sure? Trust the height of a spike, not the number of spikes."
        yield Verdict(id="sure", title=title, text=f"{chance} {said}", rows=rows)


def notes(inputs: ReportInputs) -> tuple[str, ...]:
    """Return what limits all findings: how training ended early, and what the probe notes."""
    noted = () if inputs.summary is None else inputs.summary.notes
    return *training_ends(inputs.metrics), *(f"{sentence_case(note)}." for note in noted)


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
        "is marked once. A right answer can follow from a wrong trace. A file may label a sentence, or a step, as the "
        "first wrong one; then no token is known to be wrong. It is asked whether the highest divergence is in that "
        "sentence, and sentences are ranked, each by the highest value of its tokens.",
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
        "A token across which the chance of a right answer of the model that continues changes by at least the gap, "
        "found by bisection and then measured again on fresh continuations; the first size is too large by the search, "
        "the second is not. A model that is never right has none.",
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
