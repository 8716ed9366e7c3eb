"""Responses of two models to the same problems: which problems are compared, and what is refused.

Pairing is by the problem's id; a response whose record has none joins the problem with its question.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from swerve.artifacts.messages import message_notes
from swerve.artifacts.responses import Response, by_problem
from swerve.errors import ArtifactError, ConfigError
from swerve.formats.problem_joins import joined, plain_text, with_groups
from swerve.grading.maths.equivalence import equivalent
from swerve.grading.maths.limits import LimitReached
from swerve.text import sentence_case
from swerve.types import Problem

_LEAST_SHARED = 0.9


class Paired(NamedTuple):
    """Responses of two models to the problems that both have."""

    first: dict[str, list[Response]]
    second: dict[str, list[Response]]
    notes: list[str]
    """What a reader should know, a sentence each."""


def paired(
    labels: Sequence[str], first: Sequence[Response], second: Sequence[Response], *, only_common: bool = False
) -> Paired:
    """Return the responses of two models by problem, each problem with all of its samples.

    Args:
        labels: what the two are called.
        first: the responses of one.
        second: those of the other.
        only_common: whether to compare also where fewer than nine in ten problems are in both.

    Raises:
        ConfigError: too few problems are in both, or one id has two questions or gold answers.
        ArtifactError: a sample is there twice, or a problem has two groups.
    """
    given = [*first, *second]
    both = with_groups(list(joined(given, lambda: given)))
    notes: list[str] = []
    parts = (both[: len(first)], both[len(first) :])
    sides = [_groups(label, side, notes) for label, side in zip(labels, parts, strict=True)]
    for label, side in zip(labels, parts, strict=True):
        notes += [f"of {label} {note}" for note in message_notes((each.turns, each.no_answer) for each in side)]
    names = shared(labels, sides, notes)
    num_all = len({*sides[0], *sides[1]})
    if not names:
        raise ConfigError(f"{labels[0]} and {labels[1]} have no problem in common; pair them by the ids of problems")
    if len(names) < _LEAST_SHARED * num_all and not only_common:
        raise ConfigError(
            f"{len(names):,} of {num_all:,} problems have responses by both {labels[0]} and {labels[1]}, fewer than "
            "nine in ten; give whole files, or compare those with --common"
        )
    sentences = [f"{sentence_case(note)}." for note in notes]
    return Paired({name: sides[0][name] for name in names}, {name: sides[1][name] for name in names}, sentences)


def check_asked(
    labels: Sequence[str], first: Mapping[str, Sequence[Response]], second: Mapping[str, Sequence[Response]]
) -> None:
    """Check that one model was asked the same under two prompts: of two questions one may be a part of the other.

    Questions that both have a gold answer are the same by these; see `paired`.

    Args:
        labels: what the two are called.
        first: responses under one prompt, by problem.
        second: those under the other.

    Raises:
        ConfigError: more than one problem in ten is another.
    """
    pairs = [(name, first[name][0].problem, second[name][0].problem) for name in first if name in second]
    others = []
    for name, one, two in pairs:
        texts = [plain_text(problem.question) for problem in (one, two)]
        is_part = texts[0] in texts[1] or texts[1] in texts[0]  # as the empty text is, of which nothing is known
        if not is_part and not (one.answer and two.answer):
            others.append((name, *texts))
    if len(others) > (1 - _LEAST_SHARED) * len(pairs):
        name, *texts = others[0]
        raise ConfigError(
            f"{len(others):,} of {len(pairs):,} problems ask something else in {labels[1]} than in {labels[0]}, such "
            f"as {name!r}: {texts[1]!r:.60} and {texts[0]!r:.60}; give responses to the same problems, or their gold "
            "answers in both"
        )


def shared(labels: Sequence[str], sides: Sequence[Mapping[str, Sequence[Response]]], notes: list[str]) -> list[str]:
    """Return the problems that two models have responses to, and add a note where these are not all.

    Args:
        labels: what the two are called.
        sides: the responses of each by problem.
        notes: what a reader should know, a clause each.

    Raises:
        ConfigError: one id has two questions or gold answers.
    """
    names = [name for name in sides[0] if name in sides[1]]
    num_all = len({*sides[0], *sides[1]})
    if 0 < len(names) < num_all:
        notes.append(
            f"{len(names):,} of {num_all:,} problems have responses by both {labels[0]} and {labels[1]}; only those "
            "are compared"
        )
    for name in names:
        _check_same(name, labels, [side[name][0].problem for side in sides])
    return names


def _groups(label: str, responses: Sequence[Response], notes: list[str]) -> dict[str, list[Response]]:
    """Return one model's responses by problem.

    Raises:
        ArtifactError: a sample is there twice.
    """
    groups = by_problem(responses)
    numbers = Counter(
        (each.problem.id, each.label, each.step, each.sample) for each in responses if each.sample is not None
    )
    for (name, _, _, sample), times in numbers.items():
        if times > 1:
            raise ArtifactError(f"{label}: sample {sample} of problem {name!r} is there {times} times; leave one of it")

    # Of samples without numbers, the same text again may be the same sample, or another that says the same.
    repeats = {name: _num_repeats(own) for name, own in groups.items() if own[0].written}
    several = [name for name, own in groups.items() if len(own) > 1]
    if several and all(repeats.get(name) == len(groups[name]) - 1 for name in several):
        notes.append(f"all samples of a problem by {label} are the same text, as greedy ones are: one of each counts")
        return {name: own[:1] for name, own in groups.items()}
    if (num := sum(repeats.values())) and not numbers:
        notes.append(
            f"{num:,} of {len(responses):,} samples by {label} have the same text as another one of their problem"
        )
    return groups


def _num_repeats(responses: Sequence[Response]) -> int:
    """Return how many of the responses to a problem have the text of another; verdicts that differ tell two apart."""
    texts = [each.written for each in responses if each.written]
    judged = {(each.written, each.correct) for each in responses if each.written and each.correct is not None}
    return len(texts) - len(judged) - len({*texts} - {text for text, _ in judged})


def _check_same(name: str, labels: Sequence[str], problems: Sequence[Problem]) -> None:
    """Check that an id stands for one problem.

    Raises:
        ConfigError: its questions or gold answers differ.
    """
    questions = [" ".join(problem.question.split()) for problem in problems]
    golds = [problem.answer.strip() for problem in problems]
    if all(questions) and questions[0] != questions[1]:
        what, pair = "questions", questions
    elif all(golds) and not _same_gold(*golds):
        what, pair = "gold answers", golds
    else:
        return
    raise ConfigError(
        f"problem {name!r} has two {what}: {pair[0]!r:.60} in {labels[0]}, {pair[1]!r:.60} in {labels[1]}; give "
        "responses to the same problems"
    )


def _same_gold(first: str, second: str) -> bool:
    try:
        return first == second or equivalent(first, second)
    except (LimitReached, RecursionError):
        return False
