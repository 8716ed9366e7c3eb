"""Rejection sampling: of graded responses the right ones are kept, each text once, so many per problem."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
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


def keep_right(responses: Iterable[Response], rejection: Rejection) -> tuple[list[Response], RejectionCounts]:
    """Return the responses that are kept, and how many there were of what; what is left out is not held.

    Raises:
        ArtifactError: it is not recorded whether a response is right, or how long it is where lengths are asked for.
        ConfigError: a condition is of another form, or names a field that no response has.
    """
    conditions, num = list(map(parse_condition, rejection.where)), Counter[str]()
    known: set[str] = set()
    problems, problems_right = set[str](), set[str]()
    distinct: dict[tuple[str, Any], Response] = {}
    for response in responses:
        # Each step leaves some out of what the step before left.
        num["responses"] += 1
        problems.add(response.problem.id)
        values = [field_of(condition.field, response.problem, response) for condition in conditions]
        known |= {each.field for each, value in zip(conditions, values, strict=True) if value is not None}
        if not all(condition.holds(value) for condition, value in zip(conditions, values, strict=True)):
            num["other"] += 1
            continue
        if rejection.only_right and not _is_right(response):
            continue
        num["right"] += 1
        problems_right.add(response.problem.id)
        if not _is_within(response, rejection):
            num["length"] += 1
            continue
        # Of equal texts the first is kept, in the place of the last.
        key = (response.problem.id, _text(response))
        num["duplicates"] += key in distinct
        distinct[key] = distinct.pop(key, response)
    for condition in conditions:
        if num["responses"] and condition.field not in known:
            raise ConfigError(
                f"--where {condition.text!r}: no response has the field {condition.field!r}; see the columns of its "
                "table"
            )

    # What is kept of each problem.
    fitting = list(distinct.values())
    kept = fitting if rejection.per_problem is None else _chosen(fitting, rejection.per_problem, rejection.seed)
    lengths = [len(response.completion_ids) for response in kept if response.completion_ids]
    return kept, RejectionCounts(
        num_responses=num["responses"],
        num_problems=len(problems),
        num_other=num["other"],
        num_right=num["right"],
        num_problems_right=len(problems_right),
        num_length=num["length"],
        num_duplicates=num["duplicates"],
        num_surplus=len(fitting) - len(kept),
        num_kept=len(kept),
        num_problems_kept=len({response.problem.id for response in kept}),
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


def _text(response: Response) -> Any:
    return response.completion_ids if response.text is None else response.written.strip()


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
    texts: dict[str, list[str]] = {}
    for one in responses:
        texts.setdefault(one.problem.id, []).append(str(_text(one)))
    # In an order of their own: that of the file changes nothing.
    chosen = {
        name: set(random.Random(f"{seed} {name}").sample(sorted(own), min(per_problem, len(own))))
        for name, own in texts.items()
    }
    return [one for one in responses if str(_text(one)) in chosen[one.problem.id]]
