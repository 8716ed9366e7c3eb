"""Rejection sampling: of graded responses the right ones are kept, each text once, so many per problem."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from swerve.artifacts.responses import Response
from swerve.errors import ArtifactError, ConfigError
from swerve.formats.conditions import field_of, parse_condition
from swerve.settings import Model, PositiveInt, Words


class Rejection(Model):
    """What is kept."""

    only_right: bool = False
    """Keep only responses that are right."""
    per_problem: PositiveInt | None = None
    """Keep at most this many responses of a problem, chosen by the seed."""
    seed: int = 0
    """Chooses among a problem's responses."""
    min_length: PositiveInt | None = None
    """Shortest response, in tokens."""
    max_length: PositiveInt | None = None
    """Longest response, in tokens."""
    where: Words = ()
    """Conditions on fields of the response or of its problem, such as `kind=level 3` or `difficulty<=2`; all must
    hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectionCounts:
    """What was kept and what was not, in the order in which it was looked at."""

    num_responses: int = 0
    num_problems: int = 0
    num_other: int = 0
    """Responses that a condition of `where` leaves out; they count in nothing below."""
    num_right: int = 0
    num_problems_right: int = 0
    """Problems with a right response."""
    num_length: int = 0
    """Responses too short or too long."""
    num_duplicates: int = 0
    """Responses with the text of an earlier one to the same problem."""
    num_surplus: int = 0
    """Responses beyond `per_problem`."""
    num_kept: int = 0
    num_problems_kept: int = 0
    mean_length: float | None = None
    """Of the responses kept, completion tokens; None: a response has no token ids, or none is kept."""


def keep_right(responses: Sequence[Response], rejection: Rejection) -> tuple[list[Response], RejectionCounts]:
    """Return the responses that are kept, in their order, and how many there were of what.

    Raises:
        ArtifactError: it is not recorded whether a response is right, or how long it is where lengths are asked for.
        ConfigError: a condition is of another form, or names a field that no response has.
    """
    # Each step leaves some out of what the step before left.
    met = list(responses)
    for condition in map(parse_condition, rejection.where):
        values = [field_of(condition.field, response.problem, response) for response in responses]
        if responses and all(value is None for value in values):
            raise ConfigError(
                f"--where {condition.text!r}: no response has the field {condition.field!r}; see the columns of its "
                "table"
            )
        met = [one for one in met if condition.holds(field_of(condition.field, one.problem, one))]
    right = [one for one in met if _is_right(one)] if rejection.only_right else met
    fitting = [one for one in right if _is_within(one, rejection)]
    distinct = list({(one.problem.id, _text(one)): one for one in reversed(fitting)}.values())[::-1]
    kept = distinct if rejection.per_problem is None else _chosen(distinct, rejection.per_problem, rejection.seed)
    # What was left out at which step.
    lengths = [len(one.completion_ids) for one in kept if one.completion_ids]
    return kept, RejectionCounts(
        num_responses=len(responses),
        num_problems=_num_problems(responses),
        num_other=len(responses) - len(met),
        num_right=len(right),
        num_problems_right=_num_problems(right),
        num_length=len(right) - len(fitting),
        num_duplicates=len(fitting) - len(distinct),
        num_surplus=len(distinct) - len(kept),
        num_kept=len(kept),
        num_problems_kept=_num_problems(kept),
        mean_length=fmean(lengths) if lengths and len(lengths) == len(kept) else None,
    )


def _is_right(response: Response) -> bool:
    """Return whether a response is right; one that could not be graded is not.

    Raises:
        ArtifactError: neither a verdict nor a reward is recorded, nor that the response could not be graded.
    """
    if response.verdict is None and response.status not in ("timeout", "error"):
        raise ArtifactError(
            f"{response.place}: neither 'correct' nor a reward is recorded, so nobody knows whether the response is "
            "right; grade the file first (swerve grade)"
        )
    return bool(response.verdict)


def _num_problems(responses: Sequence[Response]) -> int:
    return len({one.problem.id for one in responses})


def _text(response: Response) -> Any:
    return response.completion_ids if response.text is None else response.text.strip()


def _is_within(response: Response, rejection: Rejection) -> bool:
    low, high = rejection.min_length, rejection.max_length
    if low is None and high is None:
        return True
    if not response.completion_ids:
        raise ArtifactError(
            f"{response.place} has no token ids, so its length is unknown; swerve data import --tokenizer adds them"
        )
    return (low or 0) <= len(response.completion_ids) <= (high or 2**31)


def _chosen(responses: Sequence[Response], per_problem: int, seed: int) -> list[Response]:
    """Return at most so many responses of each problem; which depends on the seed and the problem's own responses."""
    totals = Counter(one.problem.id for one in responses)
    places = {
        name: set(random.Random(f"{seed} {name}").sample(range(total), min(per_problem, total)))
        for name, total in totals.items()
    }
    seen: Counter[str] = Counter()
    kept = []
    for one in responses:
        if seen[one.problem.id] in places[one.problem.id]:
            kept.append(one)
        seen[one.problem.id] += 1
    return kept
