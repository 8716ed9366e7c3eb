"""What else changed in its answers: how sure they are, and how long?"""

from __future__ import annotations

import math
from collections.abc import Iterator

from swerve.artifacts.evaluation import Evaluation
from swerve.estimates import Estimate
from swerve.report.evidence import Figure
from swerve.report.format import SAME, compared, is_few, too_few, would_show
from swerve.report.page import Fold, Verdict
from swerve.report.read import Paired, ReportInputs
from swerve.report.rows import NATS, SIGNED
from swerve.report.run_evidence import manner_evidence
from swerve.report.topics.topic import by_checkpoint
from swerve.text import count, number, percent, sentence_case, signed_interval


def manner(inputs: ReportInputs) -> Iterator[Verdict]:
    """Say what else changed in its greedy answers: certainty and length."""
    entropy, length, first, last = inputs.entropy_change, inputs.length_change, inputs.reference, inputs.final
    if entropy is None or length is None or first is None or last is None:
        return
    ends = [
        Figure(name=f"entropy at {each.checkpoint}", statistic="mean", columns=(each.checkpoint,), write=_nats)
        for each in (first, last)
    ]
    sure = {"above": "Less sure", "below": "Surer", SAME: "Not shown to be surer or less sure"}[compared(entropy, 0.0)]
    long = {"above": "longer", "below": "shorter", SAME: "not shown to be longer or shorter"}[compared(length, 0.0)]
    num = last.greedy.num_problems
    yield Verdict(
        id="manner",
        title=_title(entropy, length, inputs.paired.get("tokens", Paired()), num),
        text=_text(inputs, first, last),
        said=f"{sure}, {'answers as long as before' if length.mean == 0 else long}",
        num=num,
        figures={"change of entropy, nats per token": (SIGNED, entropy.mean)},
        evidence=manner_evidence(inputs, *ends, *_lengths(inputs, length, first, last)),
        fold=Fold(
            id="entropy-by-checkpoint",
            title="Entropy by checkpoint",
            parts=(
                by_checkpoint(
                    inputs,
                    inputs.of_last_stage,
                    {"Entropy": (NATS, "greedy.entropy")},
                    id="verdict-entropy",
                    title="Entropy of a token of its own answers",
                ),
            ),
        ),
    )


def _lengths(inputs: ReportInputs, length: Estimate, first: Evaluation, last: Evaluation) -> list[Figure]:
    """Return the numbers of tokens that are told: one that all answers have, or both means."""
    tokens = inputs.paired.get("tokens", Paired())
    columns = [(f"tokens at {each.checkpoint}",) for each in (first, last)]
    if not length.mean and len({*tokens.after}) == 1:
        return [Figure(name="tokens, at most", statistic="most", columns=columns[1])]
    return [Figure(name=column[0], statistic="mean", columns=column, write=number) for column in columns]


def _nats(value: float) -> str:
    """Return an entropy with two digits, which is as fine as anyone can use.

    >>> _nats(0.06692), _nats(1.25)
    ('0.067', '1.2')
    """
    return number(value, 2)


def _title(entropy: Estimate, length: Estimate, tokens: Paired, num: int) -> str:
    """Say what it does more or less than before."""
    if is_few(num, entropy) and is_few(num, length):
        return f"{too_few(num, 'answer', 'say whether it is surer, or writes more')}."
    sure = {
        "above": "It hesitates more",
        "below": "It hesitates less",
        SAME: "It hesitates as much as before, as far as can be seen",
    }[compared(entropy, 0.0)]
    # A length that all answers have is a word.
    if tokens.after and {*tokens.before} == {*tokens.after} and len({*tokens.after}) == 1:
        return f"{sure}, and all its answers have {count(tokens.after[0])} tokens."
    long = {
        "above": "writes more",
        "below": "writes less",
        SAME: "writes no more and no less, as far as can be seen",
    }[compared(length, 0.0)]
    return f"{sure}, and {long}."


def _text(inputs: ReportInputs, first: Evaluation, last: Evaluation) -> str:
    """Return both ends of entropy and length, and how many answers could not be read."""
    entropy, length = inputs.entropy_change, inputs.length_change
    assert entropy is not None
    assert length is not None
    start, end = (None if each.greedy.entropy is None else each.greedy.entropy.mean for each in (first, last))
    parts = [f"Of {count(last.greedy.num_problems)} greedy answers, to the same problems before and after."]
    ends = "" if start is None or end is None else f"{_nats(start)} to {_nats(end)} nats a token: "
    seen = "" if entropy.excludes(0) else would_show(entropy, lambda size: f"{number(size, 1)} nats", most=math.inf)
    parts.append(f"Entropy {ends}{signed_interval(entropy)}{seen}.")
    tokens = inputs.paired.get("tokens", Paired())
    if length.mean or len({*tokens.after}) != 1:
        before, after = (number(sum(each) / len(each)) if each else "" for each in (tokens.before, tokens.after))
        ends = f"{before} to {after} tokens: " if before and after else ""
        seen = "" if length.excludes(0) else would_show(length, lambda size: f"{number(size, 2)} tokens", most=math.inf)
        parts.append(f"Length {ends}{signed_interval(length)}{seen}.")

    # Answers that could not be read are no shorter or surer ones.
    once, now = (_unanswered(each) for each in (first, last))
    if once is None or now is None:
        parts.append("How many could not be read is not determined, because it was not recorded.")
    else:
        same = "as before" if once == now else f"{percent(once)} before"
        parts.append(f"Of all its answers, greedy and sampled, {percent(now)} could not be read, {same}.")
    return " ".join(map(sentence_case, parts))


def _unanswered(evaluation: Evaluation) -> float | None:
    num, total = evaluation.num_unanswered, evaluation.statuses.total()
    return num / total if total and num is not None else None
