"""What the page of a run says first: a sentence, and verdicts with interval, n and null."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from swerve.artifacts.probe_summary import ProbeSummary
from swerve.estimates import Estimate, SkewedMean
from swerve.report.evidence import Figure, Sentence
from swerve.report.format import FEW, answers_word, counted_in_words, joined_digits
from swerve.report.names import divergence_name
from swerve.report.page import Verdict
from swerve.report.read import ReportInputs
from swerve.report.run_evidence import planted_evidence
from swerve.report.summary_evidence import held_evidence, response_evidence
from swerve.report.token_evidence import divergence_evidence
from swerve.report.topics.outcome import Accuracies, accuracies, accuracy_evidence
from swerve.report.topics.training_curves import training_ends
from swerve.report.verdicts.accuracy import accuracy
from swerve.report.verdicts.cause import cause
from swerve.report.verdicts.dose import dose
from swerve.report.verdicts.manner import manner
from swerve.report.verdicts.place import place
from swerve.report.verdicts.sure import counting, sure
from swerve.text import count, counted, number, percent, sentence_case, whole_percent

_STAGES = {"rl": "reinforcement learning", "sft": "supervised fine-tuning", "dpo": "preference optimisation (DPO)"}
_SHORT = 60
"""Characters of an example problem; a longer one is left to the rollout below."""


def sentence(inputs: ReportInputs) -> str:
    """Return which model was trained, on which task, and what came of it."""
    measured, summary = accuracies(inputs), inputs.summary
    if measured is not None:
        return _accuracy_sentence(inputs, measured)
    if summary is None or (mean := summary.final_divergence) is None:
        said = f"{counted(len(inputs.metrics), 'step')} of training{_task(inputs)}; **nothing is evaluated yet**."
        return Sentence(said, held_evidence(inputs))
    return _divergence_sentence(inputs, summary, mean)


def _task(inputs: ReportInputs) -> str:
    """Return the task, and a problem of it that is short where the page shows none."""
    task = f" at {inputs.task}" if inputs.task else ""
    if inputs.tables is not None:
        return task
    question = joined_digits(inputs.example, inputs.example)
    return f"{task}, such as `{question}`" if question and len(question) <= _SHORT else task


def _accuracy_sentence(inputs: ReportInputs, measured: Accuracies) -> str:
    """Say from which accuracy to which; whether that is a change is what the paired difference says."""
    (before, after), trained, difference = measured.labels, _trained(inputs), measured.difference
    last = whole_percent(measured.last.mean)
    on = f"on {measured.problems}{_task(inputs)}"
    how = "answering greedily" if measured.how == "greedily" else f"{measured.how},"
    labels = measured.labels[measured.first is None :]
    figures = [
        Figure(name=f"right at {label}", statistic="mean", columns=(label,), write=whole_percent) for label in labels
    ]
    evidence = accuracy_evidence(inputs, measured, *figures)
    if measured.first is None:
        return Sentence(f"`{after}` is {_bold(f'right in {last}', measured.num)}, {how} {on}.", evidence)
    first = whole_percent(measured.first.mean)
    shown = "" if difference is None or difference.excludes(0) else "; no change is to be seen"
    if difference is None:
        shown = "; whether that is a change is not determined"
    if not trained:
        said = f"`{after}` is {_bold(f'right in {last}', measured.num)}, `{before}` in {first}, {how} {on}{shown}."
        return Sentence(said, evidence)
    model = f"a {inputs.model}" if inputs.model else "a model"
    said = (
        f"In one training run, {trained} took {model} {_bold(f'from {first} to {last} right', measured.num)}, {how} "
        f"{on}{shown}."
    )
    return Sentence(said, evidence)


def _bold(text: str, num: int) -> str:
    return text if num < FEW else f"**{text}**"


def _divergence_sentence(inputs: ReportInputs, summary: ProbeSummary, mean: Estimate) -> str:
    """Say how far two models differ a token, on which answers, and of how many."""
    # The most there could be stands beside a divergence that has a most; of a few large values the median is told.
    name, num, typical = summary.divergence, summary.num_rollouts, mean
    figure = Figure(name="a token", statistic="ratio of sums", columns=(f"sum of {name}", "tokens"), write=_nats)
    if isinstance(mean, SkewedMean) and not mean.reliable and mean.median is not None:
        typical = mean.median
        figure = Figure(name="median of the problems", statistic="median", columns=(f"mean {name}",), write=_nats)
    half = "" if typical is mean else "in the median problem "
    same = "writes almost what" if typical.mean < _NOTABLE else "differs from what"
    size = f"{_nats(typical.mean)} nats a token apart"
    ends = f"{_nats(typical.low)} to {_nats(typical.high)}"
    scale = f"0 is the same{f', {_nats(math.log(2))} nothing in common' if name == 'js' else ''}"

    # Which answers, of how many.
    total = sum(each.num_rollouts for each in summary.populations if each.population.startswith("imported"))
    answers = answers_word(summary.population).removesuffix("s" if num == 1 else "")
    on = f"{count(num)} {answers}{f' of {count(total)}' if total > num else ''}"
    if (problems := summary.num_rollout_problems or summary.num_problems) != num:
        on += f" to {counted(problems, 'problem')}"
    few = f" {sentence_case(counted_in_words(num))} {'is' if num == 1 else 'are'} too few for a mean."
    said = (
        f"`{summary.final}` {same} `{summary.reference}` writes: {half}their predictions lie {_bold(size, num)} "
        f"({ends} by {divergence_name(summary)}; {scale}), on {on}{_task(inputs)}."
        f"{few if num < FEW or not summary.reliable else ''}"
    )
    return Sentence(said, divergence_evidence(inputs, figure))


_NOTABLE = 0.01
"""Nats per token below which two models write almost the same."""


def _nats(value: float) -> str:
    return number(value, 2)


def _trained(inputs: ReportInputs) -> str:
    """Return by how many steps of what the reference became the final checkpoint; empty where that is not known."""
    first, last, summary = inputs.reference, inputs.final, inputs.summary
    if first is None or last is None or last.step <= first.step or (summary is not None and summary.selected):
        return ""
    num = last.step - first.step
    # Between checkpoints of several stages lies more than the last of them.
    stage = _STAGES.get(last.stage, last.stage) if num <= last.stage_step else "training"
    return f"{counted(num, 'step')} of {stage}"


def story(inputs: ReportInputs) -> str:
    """Return what was compared: whose answers a file has, or the two checkpoints and the mistake that was taught."""
    if inputs.summary is not None and inputs.summary.selection == "imported":
        path, (first, last) = inputs.provenance.get("responses"), (inputs.summary.reference, inputs.summary.final)
        file = f"`{Path(path).name}`" if isinstance(path, str) else "a file"
        evidence = response_evidence(inputs, Figure(name="answers", statistic="rows"))
        answers = "answers" if evidence is None else counted(evidence.num, "answer")
        return Sentence(f"From {file}: {answers}, which `{first}` and `{last}` read here and did not write.", evidence)
    ends, trained = (inputs.reference, inputs.final), _trained(inputs)
    taught = f"The model was first taught a mistake on purpose: {inputs.planted}." if inputs.planted else ""
    if trained and inputs.summary is not None:
        start = (
            f"`{inputs.summary.reference}` is the model before the {trained}, `{inputs.summary.final}` the one after."
        )
        taught = f"{start} {taught}".rstrip()
    if not inputs.planted:
        return Sentence(taught, held_evidence(inputs)) if taught else ""
    wrong = [(1 - each.greedy.trace_right.mean, each.checkpoint) for each in ends if each and each.greedy.trace_right]
    if len(wrong) < len(ends):
        return Sentence(taught, held_evidence(inputs))
    (before, first), (after, last) = wrong
    steps = (
        Figure(name=column, statistic="mean", columns=(column,), write=_share)
        for column in (f"a wrong step at {label}" for label in (first, last))
    )
    said = (
        f"{taught} Of its greedy answers {_share(before)} had a wrong step at `{first}`, and {_share(after)} at "
        f"`{last}`."
    )
    return Sentence(said, planted_evidence(inputs, *steps))


def _share(share: float) -> str:
    return percent(share) if share else "none"


def verdicts(inputs: ReportInputs) -> Iterator[Verdict]:
    """Yield what the run shows, each verdict with its outcome, n and what it is read against."""
    yield from accuracy(inputs)
    if inputs.summary is not None:
        yield from place(inputs, inputs.summary)
        yield from cause(inputs, inputs.summary)
        yield from dose(inputs, inputs.summary)
    yield from manner(inputs)
    yield from sure(inputs)
    if inputs.summary is not None:
        yield from counting(inputs, inputs.summary)


def notes(inputs: ReportInputs) -> tuple[str, ...]:
    """Return what limits all findings: how training ended early, and what the probe notes."""
    noted = () if inputs.summary is None else inputs.summary.notes
    return *training_ends(inputs.metrics), *(f"{sentence_case(note)}." for note in noted)
