"""What the page of a run says first: a sentence, and verdicts with interval, n and null."""

from __future__ import annotations

import math
from collections.abc import Iterator

from swerve.artifacts.probe_summary import ProbeSummary
from swerve.estimates import Estimate, SkewedMean
from swerve.report.evidence import Figure, Sentence
from swerve.report.format import FEW, answers_word, joined_digits
from swerve.report.names import divergence_name, population_title
from swerve.report.page import Verdict
from swerve.report.read import ReportInputs
from swerve.report.run_evidence import paired_evidence
from swerve.report.token_evidence import divergence_evidence
from swerve.report.topics.outcome import Accuracies, accuracies
from swerve.report.topics.training_curves import training_ends
from swerve.report.verdicts.accuracy import accuracy
from swerve.report.verdicts.cause import cause
from swerve.report.verdicts.dose import dose
from swerve.report.verdicts.manner import manner
from swerve.report.verdicts.place import place
from swerve.report.verdicts.sure import sure
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
        return f"{counted(len(inputs.metrics), 'step')} of training{_task(inputs)}; **nothing is evaluated yet**."
    return _divergence_sentence(inputs, summary, mean)


def _task(inputs: ReportInputs) -> str:
    """Return the task, and a problem of it that is short."""
    task = f" at {inputs.task}" if inputs.task else ""
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
    evidence = paired_evidence(inputs, "right", *figures) if measured.how == "greedily" else None
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
    half = "" if typical is mean else " in half of the problems"
    size = f"{_nats(typical.mean)}{f' of at most {_nats(math.log(2))}' if name == 'js' else ''} nats a token"
    same = "writes almost what" if typical.mean < _NOTABLE else "differs from what"

    # Which answers, of how many.
    total = sum(each.num_rollouts for each in summary.populations if each.population.startswith("imported"))
    answers = answers_word(summary.population).removesuffix("s" if num == 1 else "")
    on = f"{count(num)} {answers}{f' of {count(total)}' if total > num else ''}"
    if (problems := summary.num_rollout_problems or summary.num_problems) != num:
        on += f" to {counted(problems, 'problem')}"
    few = f" {sentence_case(count(num))} are too few for a mean." if num < FEW or not summary.reliable else ""
    said = (
        f"`{summary.final}` {same} `{summary.reference}` writes: {_bold(size, num)} differ ({divergence_name(summary)})"
        f"{half}, on {on}{_task(inputs)}.{few}"
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
    return f"{start}Greedy answers with a wrong step: {before}, {after}. "


def verdicts(inputs: ReportInputs) -> Iterator[Verdict]:
    """Yield what the run shows, each verdict with its outcome, n and what it is read against."""
    yield from accuracy(inputs)
    if inputs.summary is not None:
        yield from place(inputs, inputs.summary)
        yield from cause(inputs, inputs.summary)
        yield from dose(inputs, inputs.summary)
    yield from manner(inputs)
    yield from sure(inputs)


def notes(inputs: ReportInputs) -> tuple[str, ...]:
    """Return what limits all findings: how training ended early, and what the probe notes."""
    noted = () if inputs.summary is None else inputs.summary.notes
    return *training_ends(inputs.metrics), *(f"{sentence_case(note)}." for note in noted)
