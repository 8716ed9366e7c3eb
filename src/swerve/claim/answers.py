"""Is the gain in format or length, or in the answers?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from swerve.artifacts.claim import AnswersPart, FailureRow, GainRow, LengthRow, Verdict
from swerve.claim.verdicts import verdict
from swerve.claim.work import Work
from swerve.estimates import Estimate
from swerve.grading.answers import find_answer
from swerve.problems.task import MATHS
from swerve.rewards import trl_reward
from swerve.rewards.graders import GRADERS
from swerve.statistics.clusters import Array
from swerve.statistics.decomposition import accuracy_parts
from swerve.statistics.intervals import divided

_MARKED = ("boxed", "answer_tag", "hash", "phrase")
_ABSTAINS = re.compile(
    r"\bI (?:do not|don't|cannot|can't) (?:know|say|tell|answer|determine)\b"
    r"|\b(?:cannot|can't) be (?:determined|known)\b|\b(?:not enough|insufficient) information\b",
    re.IGNORECASE,
)
CLAIMED = {
    "gain_by_finishing": "more samples end within the limit",
    "gain_by_format": "more answers can be read",
    "gain_by_correctness": "more of the answers read are right",
}
"""What each part of the gain is."""
_NOTES = (
    "An answer can be wrong for several reasons. The second grader, math-verify, is asked of mathematics alone.",
    "What was cut off counts as ended if it is right or marks its answer, as a box does.",
)


def measure(work: Work) -> AnswersPart:
    """Return this part; of each problem as many samples count as the one with the fewest has.

    What was cut off ended all the same if it is right or marks the answer that was read.
    """
    num, _ = work.counts
    samples = [response for side in work.samples for group in side.values() for response in group[:num]]
    texts, golds = [each.text or "" for each in samples], [each.problem.answer for each in samples]
    flags = [(each.correct, each.answered, each.finish_reason == "length") for each in samples]
    right, answered, is_cut = np.array(flags, dtype=bool).T
    read = answered | right  # what is right was read, also where the file's own verdict is beside another reading
    ended = right | ~is_cut | (read & [find_answer(text, _MARKED) is not None for text in texts])

    # A lenient reading takes answers in any form; of mathematics math-verify is asked as well.
    lenient = trl_reward("math", thinking="whole")(texts, texts, answer=golds)
    second, first = np.nan * right, samples[0].problem
    if GRADERS.get(first.grader or first.family) == MATHS:
        second = trl_reward("math_verify")(texts, texts, answer=golds) != right
    abstains = [bool(_ABSTAINS.search(text)) for text in texts]
    tokens = [len(each.completion_ids or (each.text or "").split()) for each in samples]
    table = np.array([ended, ended & read, right, is_cut, ~read, lenient, abstains, tokens, second], dtype=float)
    return answers_part([side.label for side in work.sides], table.reshape(9, 2, -1, num).swapaxes(0, 1))


def answers_part(labels: Sequence[str], tables: Array) -> AnswersPart:
    """Return this part from `[2, 9, N, n]`, what is known of n samples of N problems by both models.

    It is whether a sample ended, ended with an answer that was read, is right; was cut off, has no answer that was
    read, is right under a lenient reading, says that it does not know; its tokens (words where it has no ids); and
    whether a second grader disagrees (NaN: none was asked).
    """
    gains, filled = accuracy_parts(tables.shape[-1], *tables[:, :3].sum(axis=-1))

    # Why answers are wrong, in the order of the row's fields.
    failures = []
    for label, (_, read, right, *reasons, tokens, second) in zip(labels, tables, strict=True):
        of_wrong = (_mean(reason[right == 0]) for reason in reasons)
        row = (label, _mean(right), *of_wrong, _mean(right[read == 1]), _mean(tokens), _mean(second))
        failures.append(FailureRow.model_validate(dict(zip(FailureRow.model_fields, row, strict=True))))

    # Accuracy within the quarters of all samples by length.
    tokens, right, lengths = tables[:, 7], tables[:, 2], []
    edges = np.unique([-1, *np.quantile(tokens, (0.25, 0.5, 0.75, 1), method="inverted_cdf")]).astype(int)
    for low, high in pairwise(edges):
        inside = (tokens > low) & (tokens <= high)
        rates = divided((inside * right).sum(axis=-1), inside.sum(axis=-1))
        base, trained = rates[:, np.isfinite(rates).all(axis=0)]
        lengths.append(
            LengthRow(tokens=f"{low + 1} to {high}", base=_mean(base), trained=_mean(trained), problems=len(base))
        )
    return AnswersPart(
        verdicts=tuple(
            judged(labels[1], claim, row.gain, tables.shape[2]) for claim, row in zip(CLAIMED, gains, strict=True)
        ),
        notes=_NOTES,
        failures=tuple(failures),
        gains=tuple(GainRow(**row._asdict()) for row in gains),
        filled=filled,
        by_length=tuple(lengths),
    )


def _mean(values: Array) -> float | None:
    return None if not values.size or np.isnan(values).any() else float(values.mean())


def judged(label: str, claim: str, gain: Any, num: int) -> Verdict:
    """Return whether a part of the gain of the model with this label is shown; `num` problems gave it."""
    shown = isinstance(gain, Estimate) and gain.low > 0
    return verdict(claim, f"{label} gains because {CLAIMED[claim]}", gain, shown=shown, num=num, null="no such part")
