"""Which responses of two models are compared, and what is refused."""

from __future__ import annotations

import pytest

from swerve.artifacts.responses import Response
from swerve.errors import ArtifactError, ConfigError
from swerve.eval.pairing import paired
from swerve.types import Problem


def responses(*rows, **changes):
    """Return a response for each `(id, text, correct)`; nothing else is known of them."""
    return [
        Response(
            problem=Problem(id=name, family="t", question=f"Question {name}?", answer="1", **changes),
            text=text,
            correct=right,
        )
        for name, text, right in rows
    ]


def numbered(side):
    return [
        Response(problem=each.problem, text=each.text, correct=each.correct, sample=i) for i, each in enumerate(side)
    ]


TEN = [(f"p{number}", f"text {number}", number % 2 == 0) for number in range(10)]
LABELS = ("base", "rl")


def test_problems_keep_all_of_their_samples_in_any_order():
    more = responses(*TEN, ("p0", "other", True), ("p0", "third", False))
    first, second, notes = paired(LABELS, more, responses(*reversed(TEN)))
    assert list(first) == list(second) == [name for name, *_ in TEN]
    assert [len(group) for group in first.values()] == [3] + [1] * 9
    assert notes == []


def test_problems_of_one_side_are_said_and_must_be_few():
    first, _, notes = paired(LABELS, responses(*TEN), responses(*TEN[1:]))
    assert len(first) == 9
    assert notes == ["9 of 10 problems have responses by both base and rl; only those are compared."]
    message = "8 of 10 problems have responses by both base and rl, fewer than nine in ten; .* --common"
    with pytest.raises(ConfigError, match=message):
        paired(LABELS, responses(*TEN), responses(*TEN[2:]))
    assert len(paired(LABELS, responses(*TEN), responses(*TEN[2:]), only_common=True).first) == 8
    with pytest.raises(ConfigError, match="no problem in common"):
        paired(LABELS, responses(*TEN[:3]), responses(*TEN[3:]), only_common=True)


def test_an_id_with_two_questions_or_golds_is_refused():
    other = [Response(problem=Problem(id="p3", family="t", question="Another?", answer="1"), text="x", correct=True)]
    with pytest.raises(ConfigError, match="problem 'p3' has two questions: 'Question p3.' in base, 'Another.' in rl"):
        paired(LABELS, responses(*TEN), responses(*TEN[:3], *TEN[4:]) + other)
    second = responses(*TEN)
    second[4] = Response(
        problem=Problem(id="p4", family="t", question="Question p4?", answer="2"), text="x", correct=True
    )
    with pytest.raises(ConfigError, match="problem 'p4' has two gold answers: '1' in base, '2' in rl"):
        paired(LABELS, responses(*TEN), second)
    second[4] = Response(problem=Problem(id="p4", family="t", question="Question  p4?", answer="1.0"), correct=True)
    assert len(paired(LABELS, responses(*TEN), second).first) == 10  # the same, written otherwise


def test_a_response_without_an_id_joins_the_problem_with_its_question():
    loose = [
        Response(problem=Problem(id="imported-0123456789ab", family="t", question="Question p1?", answer="1"), text="y")
    ]
    first, _, _ = paired(LABELS, responses(*TEN) + loose, responses(*TEN))
    assert [len(group) for group in first.values()] == [1, 2] + [1] * 8


def test_a_sample_that_is_there_twice_is_refused():
    twice = numbered(responses(*TEN))
    with pytest.raises(ArtifactError, match="base: sample 4 of problem 'p4' is there 2 times; leave one of it"):
        paired(LABELS, [*twice, twice[4]], responses(*TEN))


def test_greedy_texts_count_once_and_repeated_ones_are_said():
    copies = [row for row in TEN for _ in range(16)]
    first, _, notes = paired(LABELS, responses(*copies), responses(*TEN))
    assert [len(group) for group in first.values()] == [1] * 10
    assert notes == ["All samples of a problem by base are the same text, as greedy ones are: one of each counts."]
    _, _, notes = paired(LABELS, responses(*TEN, TEN[0], ("p1", "other", True)), responses(*TEN))
    assert notes == ["1 of 12 samples by base have the same text as another one of their problem."]
