"""Is the gain in format or length, or in the answers?"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swerve.artifacts.record import Record
from swerve.artifacts.responses import Response
from swerve.claim.part import Count, Number, Part, Points, Row, Share
from swerve.claim.verdicts import ClaimVerdict, undetermined, verdict
from swerve.claim.work import Work
from swerve.estimates import Estimate
from swerve.grading.answers import find_answer
from swerve.problems.task import MATHS
from swerve.rewards import trl_reward
from swerve.rewards.graders import GRADERS
from swerve.seeds import derive_seed
from swerve.statistics.clusters import Array, Clusters
from swerve.statistics.decomposition import accuracy_parts
from swerve.statistics.ratios import divided

_MARKED = ("boxed", "answer_tag", "hash", "phrase")
_ABSTAINS = re.compile(
    r"\bI (?:do not|don't|cannot|can't) (?:know|say|tell|answer|determine)\b"
    r"|\b(?:cannot|can't) be (?:determined|known)\b|\b(?:not enough|insufficient) information\b",
    re.IGNORECASE,
)
CLAIMED = {
    "gain_by_finishing": "more answers that are finished within the limit",
    "gain_by_format": "more answers that can be read",
    "gain_by_correctness": "more right ones among the answers read",
}
"""What each part of the gain is."""
_LIMIT = "within the limit"
_AT_LIMIT = 0.9
"""Of the answers that were cut off: at least so many have the length that is called the limit."""
_MOSTLY_CUT = 0.5
"""Of a model's wrong answers that were cut off."""
_MOST_GRADED = 10_000
"""Samples of which other graders are asked."""
_MOSTLY = 0.9
"""Agreement of recorded verdicts with a reading as mathematics, from which they are taken for mathematics."""
_NOTES = (
    "An answer can be wrong for several reasons. The second grader, math-verify, is asked of mathematics alone.",
    "What was cut off counts as finished if it is right or marks its answer, as a box does.",
)


BY_PROBLEM = "answers-by-problem"
"""What is kept of the answers to each problem until the card has it."""


class FailureRow(Row):
    """Why answers of a model are wrong."""

    model: str
    accuracy: Share
    truncated: Share
    """Of the wrong ones: cut off at the limit."""
    unparsed: Share
    """Of the wrong ones: no answer could be read."""
    lenient: Share
    """Of the wrong ones: right under a lenient reading."""
    abstained: Share
    """Of the wrong ones: the text says that it does not know."""
    right_if_parsed: Share
    """Of those with an answer."""
    tokens: Number
    second_grader: Share
    """Of all: fraction on which a second grader disagrees."""


class GainRow(Row):
    """A part of the gain in accuracy."""

    part: str
    gain: Points
    """Where a model reads nothing its interval is of whatever its answers might be, or it is not determined."""


class LengthRow(Row):
    """Accuracy of samples of the same length."""

    tokens: str
    """A row is a quarter of all answers by their length, in tokens (words where there are no tokens)."""
    base: Share
    trained: Share
    """Means over the problems in the row."""
    problems: Count
    """Those with an answer of this length by both models; a problem may be in several rows, or in none."""
    base_answers: Count = None
    trained_answers: Count = None
    """All answers of this length: these do add up."""


class AnswerCounts(Record):
    """How answers of a model came out, as the parts of the gain count them.

    What is not known of all answers of a card is counted as if it were so: as finished, or as read.
    """

    answers: int
    """All of them."""
    finished: int
    """Those that ended by themselves, or were right or had marked their answer when they were cut off."""
    parsed: int
    """Of those finished: with an answer that was read."""
    right: int
    """Of those parsed."""
    wrong_cut: int | None
    """Wrong ones that were cut off at the limit; null: not known."""
    right_cut: int | None
    """Right ones that were; null: not known."""

    @property
    def wrong(self) -> int:
        """Answers that are not right."""
        return self.answers - self.right


class AnsweredProblem(Record):
    """How the answers to a problem came out."""

    problem: str
    base: AnswerCounts
    trained: AnswerCounts


class OutcomeRow(Row):
    """How all the answers of a model came out; see `AnswerCounts`. What is not known of all of them is null."""

    model: str
    answers: Count
    finished: Count = None
    """Those that ended by themselves, or were right or had marked their answer when they were cut off."""
    parsed: Count = None
    """Of those finished: with an answer that was read."""
    right: Count
    wrong: Count
    wrong_cut: Count = None
    """Wrong ones that were cut off at the limit; empty: not known."""
    right_cut: Count = None
    """Right ones that were."""


class AnswersPart(Part):
    """Is it format or length?"""

    needs_models = False
    is_of_samples = True

    failures: tuple[FailureRow, ...] = ()
    gains: tuple[GainRow, ...] = ()
    filled: Share = None
    """Fraction of problems for which a rate was unknown and was taken from the other model's."""
    by_length: tuple[LengthRow, ...] = ()
    limit: Count = None
    """Tokens at which answers were cut off; empty where none was, or their lengths differ or are not known."""
    outcomes: tuple[OutcomeRow, ...] = ()

    def facts(self, base: str, trained: str) -> list[str]:
        """Return how many answers are finished, and how many of the wrong and of the right ones were cut off."""
        if not any(row.wrong_cut or row.right_cut for row in self.outcomes):
            return []  # none was cut off, or it is not known

        def of(part: str, whole: str) -> list[str]:
            return [f"{getattr(row, part) or 0:,} of {getattr(row, whole):,}" for row in self.outcomes]

        finished, wrong, right = of("finished", "answers"), of("wrong_cut", "wrong"), of("right_cut", "right")
        said = (
            f"Finished {_within(self.limit)}, or right, are {finished[0]} answers by `{base}` and {finished[1]} by "
            f"`{trained}`. Cut off were {wrong[0]} wrong ones and {wrong[1]}, and of the right ones {right[0]} and "
            f"{right[1]}."
        )
        if any(map(_mostly_cut, self.outcomes)):
            said += (
                " Whoever writes on until it is right is finished when it is right: then more finished answers and "
                "more right ones are one gain, not cause and effect. A higher limit would tell."
            )
        return [said]

    @classmethod
    def measure(cls, work: Work) -> AnswersPart:
        """Measure it; see `Part.measure`."""
        samples = [response for side in work.samples for group in side.values() for response in group]
        sizes = [len(group) for side in work.samples for group in side.values()]
        texts, golds = [each.said for each in samples], [each.problem.answer for each in samples]
        right = np.array([bool(each.correct) for each in samples])
        read = np.array([_number(each.answered) for each in samples])
        is_cut = np.array([_number(each.finish_reason and each.finish_reason == "length") for each in samples])
        read = np.where(right, 1.0, read)
        ended = np.where(right, 1.0, 1 - is_cut)
        for number in np.flatnonzero(~right & (read == 1) & (is_cut != 0)):
            if find_answer(texts[number], _MARKED) is not None:
                ended[number] = 1.0

        # A lenient reading takes answers in any form; of mathematics math-verify is asked as well. Both need gold and
        # text.
        lenient, second, first = np.full(right.size, np.nan), np.full(right.size, np.nan), samples[0].problem
        groups: Array = np.repeat(np.arange(len(sizes)), sizes)
        drawn, is_text = _drawn(sizes, work.settings.seed), np.array([each.text is not None for each in samples])
        if all(golds) and any(texts):
            asked = np.flatnonzero(drawn[groups] & is_text)
            said, wanted = [texts[number] for number in asked], [golds[number] for number in asked]
            lenient[asked] = trl_reward("math", thinking="whole")(said, said, answer=wanted)
            grader = GRADERS.get(first.grader or first.family)
            if grader == MATHS or (grader is None and np.mean(lenient[asked] == right[asked]) >= _MOSTLY):
                second[asked] = np.array(trl_reward("math_verify")(said, said, answer=wanted)) != right[asked]
        abstains = np.where(is_text, [bool(_ABSTAINS.search(text)) for text in texts], np.nan)
        tokens = [
            len(each.completion_ids or each.written.split()) if each.completion_ids or each.text is not None else np.nan
            for each in samples
        ]
        table = np.array([ended, read, right, is_cut, 1 - read, lenient, abstains, tokens, second], dtype=float)
        labels, names = [side.label for side in work.sides], [*work.samples[0]]
        part, rows = answers_part(
            labels, names, groups, table, asked=drawn[groups], clusters=work.clusters, limit=_limit(samples)
        )
        work.parts.put(BY_PROBLEM, None, [row.model_dump(mode="json") for row in rows])
        if drawn.all():
            return part
        num, num_all = int(drawn.sum()) // 2, len(sizes) // 2
        note = f"Other graders were asked of {num:,} of the {num_all:,} problems, drawn at random."
        return part.model_copy(update={"notes": (*part.notes, note)})


def _drawn(sizes: Sequence[int], seed: int) -> NDArray[np.bool_]:
    """Return of which problems other graders are asked: all, or some drawn at random, with all of their samples.

    Args:
        sizes: `[2 N]`, samples of each problem, those of the first model and those of the second.
        seed: of the draw.
    """
    nums = np.reshape(sizes, (2, -1)).sum(axis=0)
    order = np.random.default_rng(derive_seed(seed, "other graders")).permutation(nums.size)
    drawn = np.zeros(nums.size, dtype=bool)
    drawn[order[np.cumsum(nums[order]) <= max(_MOST_GRADED, nums[order[0]])]] = True
    return np.tile(drawn, 2)


def _number(value: bool | str | None) -> float:
    return np.nan if value is None else float(bool(value))


def _limit(samples: Sequence[Response]) -> int | None:
    """Return the tokens at which answers were cut off; None where none was, or that is not known."""
    cut = [each for each in samples if each.finish_reason == "length"]
    lengths = [len(each.completion_ids) or each.extra.get("tokens") for each in cut]
    if not lengths or not all(isinstance(length, int) for length in lengths):
        return None
    most = max(length for length in lengths if isinstance(length, int))
    return most if lengths.count(most) >= _AT_LIMIT * len(lengths) else None


def answers_part(
    labels: Sequence[str],
    names: Sequence[str],
    groups: Array,
    table: Array,
    *,
    asked: NDArray[np.bool_] | None = None,
    clusters: Clusters | None = None,
    limit: int | None = None,
) -> tuple[AnswersPart, list[AnsweredProblem]]:
    """Return this part from what is known of samples of N problems by both models; NaN where it is unknown.

    Args:
        labels: of both models.
        names: of the problems.
        groups: `[S]`, ascending: the problem of each sample, 0 to N - 1 of the first model and N to 2 N - 1 of the
            second.
        table: `[9, S]`, whether a sample ended, has an answer that was read, is right; was cut off, has no
            answer that was read, is right under a lenient reading, says that it does not know; its tokens (words where
            it has no ids); and whether a second grader disagrees.
        asked: `[S]`, the samples that other graders were asked of; None: all.
        clusters: `[N]`, which problems belong together (their groups); by default each is its own cluster.
        limit: tokens at which answers were cut off; None: not known.
    """
    num_groups = int(groups[-1]) + 1
    nums = np.bincount(groups, minlength=num_groups).reshape(2, -1)

    # What is unknown of any sample has no part of its own.
    ended, read, right = table[:3]
    unknown = {"gain_by_finishing": _share_unknown(ended, "ended"), "gain_by_format": _share_unknown(read, "were read")}
    unknown["gain_by_correctness"] = unknown["gain_by_format"]
    ended = np.ones_like(right) if unknown["gain_by_finishing"] else ended
    read = ended * np.where(np.isnan(read), 1.0, read)
    sums = np.array([np.bincount(groups, row, num_groups) for row in (ended, read, right)]).reshape(3, 2, -1)
    said = (f"`{labels[0]}`", f"`{labels[1]}`")
    gains, filled = accuracy_parts(nums, sums[:, 0], sums[:, 1], clusters=clusters, labels=said)
    # Of the wrong and of the right ones those that were cut off.
    cut = np.array([np.bincount(groups, row * table[3], num_groups) for row in (1 - right, right)]).reshape(2, 2, -1)
    because = {claim: unknown[claim] or row.missing for claim, row in zip(CLAIMED, gains, strict=True)}
    sides = (_counts(nums[own], sums[:, own], cut[:, own]) for own in (0, 1))
    rows = [
        AnsweredProblem(problem=name, base=base, trained=trained)
        for name, base, trained in zip(names, *sides, strict=True)
    ]
    part = AnswersPart(
        verdicts=tuple(
            undetermined(claim, f"`{labels[1]}` gains by {CLAIMED[claim]}", because[claim])
            if because[claim] or row.gain is None
            else gain_verdict(labels[1], claim, row.gain, nums.shape[1], limit)
            for claim, row in zip(CLAIMED, gains, strict=True)
        ),
        notes=_NOTES,
        failures=tuple(
            failure_row(label, table[:, of_model], None if asked is None else asked[of_model])
            for label, of_model in zip(labels, (groups < nums.shape[1], groups >= nums.shape[1]), strict=True)
        ),
        gains=tuple(
            GainRow(part=row.part, gain=None if unknown[claim] else row.gain)
            for claim, row in zip(CLAIMED, gains, strict=True)
        ),
        filled=None if any(unknown.values()) else filled,
        by_length=length_rows(groups, tokens=table[7], right=table[2]),
        limit=limit,
        outcomes=(
            _outcomes(labels[0], [row.base for row in rows], unknown),
            _outcomes(labels[1], [row.trained for row in rows], unknown),
        ),
    )
    return part, rows


def _mostly_cut(row: OutcomeRow) -> bool:
    """Return whether most wrong answers were cut off, so that to be finished and to be right may be the same."""
    return (row.wrong_cut or 0) >= _MOSTLY_CUT * (row.wrong or 0) > 0


def _outcomes(model: str, rows: Sequence[AnswerCounts], unknown: Mapping[str, str]) -> OutcomeRow:
    """Return the sums over all problems; what is not known of one is not known of all.

    Args:
        model: its label.
        rows: of each problem.
        unknown: by claim, why a part of the gain is not known; what is counted as if it were so has no sum.
    """
    columns = {name: [getattr(row, name) for row in rows] for name in (*AnswerCounts.model_fields, "wrong")}
    sums: dict[str, Any] = {name: None if None in values else sum(values) for name, values in columns.items()}
    sums |= {name: None for name, claim in _ASSUMED.items() if unknown[claim]}
    return OutcomeRow(model=model, **sums)


_ASSUMED = {"finished": "gain_by_finishing", "parsed": "gain_by_format"}
"""What is counted as if it were so where it is not known, with the claim that is not determined then."""


def _counts(nums: Array, sums: Array, cut: Array) -> list[AnswerCounts]:
    """Return how the answers of a model came out, by problem."""
    known: list[list[Any]] = [[int(value) for value in row] for row in (nums, *sums)]
    known += [[None if np.isnan(value) else int(value) for value in row] for row in cut]
    return [AnswerCounts(**dict(zip(AnswerCounts.model_fields, row, strict=True))) for row in zip(*known, strict=True)]


def failure_row(label: str, table: Array, asked: NDArray[np.bool_] | None = None) -> FailureRow:
    """Return why the answers of a model are wrong.

    Args:
        label: of the model.
        table: `[9, S]`, what is known of its samples; see `answers_part`.
        asked: `[S]`, the samples that other graders were asked of; None: all.
    """
    ended, read, right, is_cut, unread, lenient, abstains, tokens, second = table
    is_asked, is_wrong = np.ones(right.shape, dtype=bool) if asked is None else asked, right == 0
    return FailureRow(
        model=label,
        accuracy=_mean(right),
        truncated=_mean(is_cut[is_wrong]),
        unparsed=_mean(unread[is_wrong]),
        lenient=_mean(lenient[is_wrong & is_asked]),
        abstained=_mean(abstains[is_wrong]),
        right_if_parsed=None if np.isnan(read).any() else _mean(right[(read == 1) & (ended != 0)]),
        tokens=_mean(tokens),
        second_grader=_mean(second[is_asked]),
    )


def length_rows(groups: Array, *, tokens: Array, right: Array) -> tuple[LengthRow, ...]:
    """Return the accuracy of both models within the quarters of all samples by length; none where one is unknown.

    Args:
        groups: `[S]`, the problem of each sample; see `answers_part`.
        tokens: `[S]`, the length of each sample; NaN where it is unknown.
        right: `[S]`, whether it is right.
    """
    if np.isnan(tokens).any():
        return ()
    num_groups, rows = int(groups[-1]) + 1, []
    quarters = np.quantile(tokens, (0.25, 0.5, 0.75, 1), method="inverted_cdf")
    for low, high in pairwise(np.unique([-1, *quarters]).astype(int)):
        # The rate of each problem of which both models have samples of this length.
        inside = ((tokens > low) & (tokens <= high)).astype(float)
        right_ones, ones = (np.bincount(groups, row, num_groups).reshape(2, -1) for row in (inside * right, inside))
        rates = divided(right_ones.astype(float), ones.astype(float))
        base, trained = rates[:, np.isfinite(rates).all(axis=0)]
        rows.append(
            LengthRow(
                tokens=f"{low + 1} to {high}",
                base=_mean(base),
                trained=_mean(trained),
                problems=len(base),
                base_answers=int(ones[0].sum()),
                trained_answers=int(ones[1].sum()),
            )
        )
    return tuple(rows)


def _share_unknown(values: Array, what: str) -> str:
    """Return for how many samples it is not known, as a clause; empty: it is known of all."""
    num = int(np.isnan(values).sum())
    return f"it is not known whether {num:,} of the {values.size:,} answers {what}" if num else ""


def _mean(values: Array) -> float | None:
    return None if not values.size or np.isnan(values).any() else float(values.mean())


def gain_verdict(label: str, claim: str, gain: Estimate, num: int, limit: int | None = None) -> ClaimVerdict:
    """Return whether a part of the gain of the model with this label is shown, over so many problems.

    Args:
        label: of the model.
        claim: a key of `CLAIMED`.
        gain: the part.
        num: of problems.
        limit: tokens at which answers were cut off; None: not known.
    """
    by = CLAIMED[claim].replace(_LIMIT, _within(limit))
    said = f"`{label}` is not seen to gain by {by}"
    if gain.low > 0:
        said = f"`{label}` gains by {by}"
    elif gain.high < 0:
        said = f"`{label}` loses by {by.replace('more', 'fewer', 1)}"
    return verdict(claim, said, gain, shown=gain.low > 0, num=num, null="no such part")


def _within(limit: int | None) -> str:
    return _LIMIT if limit is None else f"{_LIMIT} of {limit:,} tokens"
