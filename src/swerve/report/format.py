"""Words of a report for how two numbers compare, and for figures of several numbers."""

from __future__ import annotations

import re
from collections.abc import Callable

from swerve.artifacts.probe_claims import NULL_NAMES, SIDES, DivergenceClaim
from swerve.estimates import Estimate, SkewedMean
from swerve.text import (
    count,
    listed,
    number,
    number_interval,
    percent,
    percent_interval,
    points_interval,
    sentence_case,
)

SAME = "no different, as far as can be seen, from"
FEW = 20
"""With fewer cases a page decides nothing, and has nothing bold."""
_POWER = 1.43
"""Half the width of a 95% interval times this is a difference that eight of ten draws show: (1.96 + 0.84) / 1.96."""


_NUMBERS = (
    *("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)


def would_show(
    difference: Estimate, write: Callable[[float], str] = lambda size: f"{100 * size:.2g} points", *, most: float = 1.0
) -> str:
    """Return the end of a sentence about a difference of which nothing is to be seen: what would have been seen.

    Args:
        difference: as it was measured.
        write: a size of it in words; by default that of a share, in points.
        most: the largest difference that there can be.

    >>> would_show(Estimate(mean=0.01, low=-0.02, high=0.04))
    '; a true difference of 4.3 points would be seen eight times in ten'
    >>> would_show(Estimate(mean=0.0, low=-0.9, high=0.9))
    '; even the largest difference that there can be would not be seen eight times in ten'
    """
    size = _POWER * (difference.high - difference.low) / 2
    if size > most:
        return "; even the largest difference that there can be would not be seen eight times in ten"
    return f"; a true difference of {write(size)} would be seen eight times in ten"


def counted_in_words(num: int, noun: str = "") -> str:
    """Return a number as a sentence begins with it, maybe of things: a word where it is below twenty.

    >>> counted_in_words(5, "answer"), counted_in_words(1, "answer"), counted_in_words(20)
    ('five answers', 'one answer', '20')
    """
    words = _NUMBERS[num] if num < len(_NUMBERS) else count(num)
    return f"{words} {noun}{'' if num == 1 else 's'}" if noun else words


def count_or_none(value: float) -> str:
    """Return a count, in a sentence that would not say 0.

    >>> count_or_none(0.2), count_or_none(1), count_or_none(1520)
    ('none', '1', '1,520')
    """
    return "none" if round(value) == 0 else count(value)


def is_few(num: int, difference: Estimate | None) -> bool:
    """Return whether there are too few cases to say anything, and nothing is shown.

    >>> is_few(8, Estimate(mean=0.1, low=-0.2, high=0.4)), is_few(8, Estimate(mean=0.7, low=0.3, high=0.9))
    (True, False)
    """
    return num < FEW and (difference is None or not difference.excludes(0))


def too_few(num: int, noun: str, purpose: str) -> str:
    """Return that so few cases say nothing, their number first.

    >>> too_few(5, "answer", "say where the change lies"), too_few(1, "spike", "tell")
    ('Five answers are too few to say where the change lies', 'One spike is too few to tell')
    """
    return sentence_case(f"{counted_in_words(num, noun)} {'is' if num == 1 else 'are'} too few to {purpose}")


def answers_word(population: str) -> str:
    """Return what the rollouts of a population are, in a word or two.

    >>> answers_word("reference_wrong_final_right"), answers_word("imported_right"), answers_word("training")
    ('wrong answers', 'right answers', 'answers')
    """
    writer = population.removeprefix("reference_").removeprefix("checkpoint_").removeprefix("imported_")
    return next((f"{word} answers" for word in ("wrong", "right") if writer.startswith(word)), "answers")


def joined_digits(text: str | None, question: str | None) -> str | None:
    """Join the digits in a text of a problem that spells its numbers; other texts stay.

    >>> joined_digits("0 1 4 9 1", "8 2 5 0 + 3 2 4 1 ="), joined_digits("1 2", "Which two?")
    ('01491', '1 2')
    """
    pieces = (question or "").split()
    is_spelled = len(pieces) > 2 and max(map(len, pieces)) == 1
    return re.sub(r"(?<=\d) (?=\d)", "", text) if text and is_spelled else text


def mean_words(value: Estimate | None) -> str:
    """Return a mean with its interval; the median where a few large values move the mean, whose interval may not hold.

    >>> median, above = Estimate(mean=0.001, low=0.0, high=0.002), Estimate(mean=0.1, low=0.05, high=0.2)
    >>> mean_words(SkewedMean(mean=0.2, low=0.1, high=0.9, reliable=False, median=median, above=above))
    'a median of 0.0010 (0 to 0.0020)'
    >>> mean_words(Estimate(mean=0.2, low=0.1, high=0.3))
    '0.20 (0.10 to 0.30)'
    """
    if isinstance(value, SkewedMean) and not value.reliable and value.median is not None:
        return f"a median of {number_interval(value.median)}"
    return number_interval(value)


def claim_words(claim: DivergenceClaim, *, unit: str = "") -> str:
    """Return a figure about where the divergence falls, which of its nulls it is above and below, and what those are.

    Args:
        claim: the figure.
        unit: what stands behind its number.

    >>> from swerve.artifacts.probe_claims import NullFigure
    >>> chance = NullFigure(null="chance", value=0.04, difference=Estimate(mean=0.86, low=0.8, high=0.9))
    >>> rate = Estimate(mean=0.9, low=0.85, high=0.94)
    >>> claim_words(DivergenceClaim(figure="top", of="first_wrong", estimate=rate, nulls=(chance,)))
    '90.0% (85.0 to 94.0), more than chance (4.0%)'
    """
    text, interval = (number, number_interval) if claim.figure == "auc" else (percent, percent_interval)
    parts = [f"{interval(claim.estimate)}{unit}"]
    for side, word in {**SIDES, 0: SAME}.items():
        nulls = [null for null in claim.nulls if null.side == side]
        if nulls:
            parts.append(f"{word} {listed([f'{NULL_NAMES[null.null]} ({text(null.value)})' for null in nulls])}")
    return ", ".join(parts)


def compared(value: Estimate, level: float, *, above: str = "above", below: str = "below") -> str:
    """Return the word for where an estimate lies, of which a level inside its interval is not distinguishable.

    Two estimates from the same problems are compared by the interval of their paired difference, with 0.

    >>> value = Estimate(mean=0.5, low=0.4, high=0.6)
    >>> compared(value, 0.3), compared(value, 0.9, below="less than"), compared(value, 0.45)
    ('above', 'less than', 'no different, as far as can be seen, from')
    """
    if not value.excludes(level):
        return SAME
    return above if value.mean > level else below


def change(before: Estimate, after: Estimate, difference: Estimate | None, *, at: tuple[str, str]) -> str:
    """Return what a fraction did between two checkpoints, as the end of a sentence.

    >>> change(Estimate(mean=0.5, low=0.4, high=0.6), Estimate(mean=0.9, low=0.8, high=1),
    ...        Estimate(mean=0.4, low=0.25, high=0.5), at=("sft-5", "rl-80"))
    'rose from 50% (40 to 60) at sft-5 to 90% (80 to 100) at rl-80, by +40 (+25 to +50) points.'
    """
    first, last = f"{percent_interval(before)} at {at[0]}", f"{percent_interval(after)} at {at[1]}"
    if difference is None:
        return f"was {first} and {last}; their difference was not measured."
    by = f"{points_interval(difference)} points"
    if not difference.excludes(0):
        return f"was {first} and {last}, a difference of {by}, so no change is shown."
    return f"{'rose' if difference.mean > 0 else 'fell'} from {first} to {last}, by {by}."
