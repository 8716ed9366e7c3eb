"""Lines of the card: what is claimed, or that it is not shown, and how large it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from swerve.artifacts.record import Record
from swerve.estimates import Estimate
from swerve.statistics import paired_difference
from swerve.text import counted, percent_as, points, points_interval, sentence_case


class ClaimVerdict(Record):
    """A line of the card: a claim that is shown, or is not, or cannot be judged from what was given."""

    claim: str
    """A key of `claim_rates`: each is judged on planted models before it is printed."""
    of: str = ""
    """What it is about, where a card makes it several times: a model, a task, a rank."""
    shown: bool | None
    """False: not shown, which is not its opposite; None: not determined, and the sentence says why."""
    sentence: str
    """In words, with the numbers."""
    estimate: Estimate | float | None = None
    """A fraction, or a difference of fractions."""
    num: int | None = None
    """Problems (or directions, or runs) that it is over."""
    null: str = ""
    """What it is compared with."""
    false_rate: float | None = None
    """The fraction of cards of this size, of two equal models, that show this line (`claim_rates`); None: not known."""
    detectable: float | None = None
    """The size that 80% of such cards would show, of `base_reaches_gained` in samples; None: not known."""
    rows: Mapping[str, tuple[str | float, ...]] = {}
    """What it was made of, where the card has that nowhere else: of each `problem` what is compared with, what it is
    about, and its `group` where problems have any."""


def verdict(
    claim: str,
    said: str,
    size: Estimate | float,
    *,
    shown: bool,
    num: int | None,
    null: str = "no difference",
    of: str = "",
    unit: str = "problem",
) -> ClaimVerdict:
    """Return a line of the card.

    Args:
        claim: a key of `claim_rates`.
        said: the outcome in words with both ends, as the middle of a sentence: what is shown, or not to be seen.
        size: the difference that decides it, as a fraction; a float where it has no interval.
        shown: whether it is.
        num: problems (or runs, or seeds) that it is over.
        null: what it is compared with.
        of: what it is about, where a card makes the claim several times.
        unit: what these are.
    """
    by = points_interval(size, " points") if isinstance(size, Estimate) else points(size, " points")
    sentence = f"Over {counted(num, unit)} {said}, {by}." if num else f"{sentence_case(said)}, {by}."
    return ClaimVerdict(claim=claim, of=of, shown=shown, sentence=sentence, estimate=size, num=num, null=null)


def undetermined(claim: str, said: str, because: str, *, of: str = "") -> ClaimVerdict:
    """Return the line of a claim that cannot be judged.

    Args:
        claim: a key of `claim_rates`.
        said: the claim in words, as a clause.
        because: what is not known, as a clause.
        of: what it is about, where a card makes the claim several times.
    """
    return ClaimVerdict(
        claim=claim, of=of, shown=None, sentence=f"Whether {said} is not determined, because {because}."
    )


def larger(
    claim: str,
    of: str,
    rates: Sequence[float],
    others: Sequence[float],
    said: str,
    unseen: str = "",
    *,
    null: str = "no difference",
    columns: tuple[str, str] = ("compared with", "value"),
    problems: Sequence[str] = (),
) -> ClaimVerdict:
    """Return the verdict that one rate is larger than another: the interval of the paired difference is above 0.

    Args:
        claim: a key of `claim_rates`.
        of: what it is about.
        rates: of each problem, from 0 to 1.
        others: the other rate of the same problems.
        said: the claim in words, without its end; both means follow it.
        unseen: the same where it is not to be seen.
        null: what the rate is compared with.
        columns: what `others` and `rates` are called in the rows.
        problems: their names.
    """
    difference, _ = paired_difference(others, rates, bounds=(-1.0, 1.0))
    assert difference is not None, "there are problems"
    shown = difference.low > 0
    own, other = (percent_as(fmean(side), difference) for side in (rates, others))
    said = f"{said if shown else unseen}: {own} against {other}"
    line = verdict(claim, said, difference, shown=shown, num=len(rates), null=null, of=of)
    return line.model_copy(update={"rows": rows_of(columns, others, rates, problems)})


def rows_of(
    columns: tuple[str, str], others: Iterable[float], rates: Iterable[float], problems: Sequence[str] = ()
) -> dict[str, tuple[str | float, ...]]:
    """Return the rows of a line by column; problems without names are numbered."""
    known = {name: tuple(map(float, rates)) for name, rates in zip(columns, (others, rates), strict=True)}
    names = tuple(problems) or tuple(str(number + 1) for number in range(len(known[columns[0]])))
    return {"problem": names, **known}
