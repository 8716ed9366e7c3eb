from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from swerve.problems import load_family
from swerve.problems.word_problems.mistakes import find_mistakes
from swerve.problems.word_problems.story import Event, Story
from swerve.problems.word_problems.word_problems import WordProblems, WordProblemsTask
from swerve.rewards import grade
from swerve.types import Problem
from tests.cases import each

TASK = WordProblemsTask(num_train=300, num_heldout=100)
FAMILY = WordProblems(TASK)
STORY = Story(12, (Event("+", 5), Event("", 3), Event("-", 4)), "Ann", "pens")
RIGHT = "Ann starts with 12. Now Ann gains 5, so 12 + 5 = 17. Then 17 - 4 makes 13, because Ann loses 4. #### 13"


def first(text: str, story: Story = STORY) -> tuple[str, str, str]:
    """Return the kind, the marked text and what is expected of the first mistake."""
    mark = find_mistakes(story, text)[0]
    return mark.kind, text[mark.start : mark.end], mark.expected


def test_problems_are_solved_by_their_solutions_and_supervised_ones_vary() -> None:
    problems = FAMILY.problems("train", seed=1)
    assert problems == load_family(TASK).problems("train", seed=1)
    assert len({problem.question for problem in problems}) == 300
    for number, problem in enumerate(problems):
        traces = {FAMILY.trace(problem, random.Random(f"{number} {again}")) for again in range(3)}
        for text in (problem.solution or "", *traces):
            assert grade(problem, text).value == 1.0
            assert FAMILY.check(problem, text) == [], text
        assert problem.kind.startswith(f"{problem.difficulty:.0f} step")
    assert {problem.kind for problem in problems} == {
        "2 steps",
        "3 steps",
        "2 steps, distracted",
        "3 steps, distracted",
    }


def test_no_combination_of_wordings_is_in_both_splits() -> None:
    def wordings(problem: Problem) -> str:
        """Return the question without what varies within a wording: names, things and numbers."""
        facts = problem.metadata
        told = problem.question.replace(facts["owner"], "M")
        _, *middle, _ = re.sub(rf"\d+|{facts['things']}|[A-Z][a-z]+", "_", told).split(". ")
        return "|".join(middle)

    short = WordProblems(WordProblemsTask(min_steps=1, max_steps=2, num_train=1500, num_heldout=300))
    trained, held_out = (
        {*map(wordings, short.problems(split, seed=seed))} for split, seed in (("train", 1), ("heldout", 2))
    )
    assert len(held_out) > 50
    assert not trained & held_out


def test_rare_wordings_are_as_frequent_as_asked() -> None:
    texts = {
        rare: " ".join(
            one.question for one in WordProblems(TASK.model_copy(update={"rare_train": rare})).problems("train", seed=1)
        )
        for rare in (0.0, 1.0)
    }
    for words, share in (("inherits", 1.0), ("mislays", 1.0), ("picks up", 0.0), ("sells", 0.0)):
        assert [words in texts[rare] for rare in (0.0, 1.0)] == [share == 0.0, share == 1.0]


@each(
    ("was", "new", "kind", "marked", "expected"),
    [
        ("= 17", "= 18", "arithmetic slip", "8", "7"),
        ("12 + 5 = 17", "13 + 5 = 18", "wrong number", "3", "2"),
        ("gains 5, so 12 + 5 = 17", "gains 6, so 12 + 6 = 18", "wrong number", "6", "5"),
        ("gains 5, so 12 + 5 = 17", "loses 5, so 12 - 5 = 7", "wrong operation", "loses", "+"),
        ("gains 5, so 12 + 5 = 17", "loses 4, so 12 - 4 = 8", "dropped step", "loses", "+"),
        ("Then 17 - 4 makes 13, because Ann loses 4. ", "", "dropped step", "#### 13", "another step"),
        ("Then 17", "Now 17 + 3 = 20. Then 20", "extra step", "+", "-"),
        ("#### 13", "Next 13 + 1 = 14. #### 14", "extra step", " Next 13 + 1 = 14.", "####"),
        ("#### 13", "#### 15", "wrong number", "5", "3"),
        ("#### 13", "#### 1", "wrong number", "", "3"),
        ("with 12", "with 21", "wrong number", "21", "12"),
        ("Now Ann gains 5, so 12 + 5 = 17.", "Now it rains.", "form", " Now it rains.", "a step"),
        (" #### 13", "", "form", "", "####"),
    ],
)
def test_a_mistake_is_found_where_it_begins(was: str, new: str, kind: str, marked: str, expected: str) -> None:
    assert was in RIGHT
    assert first(RIGHT.replace(was, new)) == (kind, marked, expected)


def test_what_follows_from_a_mistake_is_right_given_it() -> None:
    slipped = "Ann starts with 12. Now Ann gains 5, so 12 + 5 = 18. Then 18 - 4 makes 14, because Ann loses 4. #### 14"
    assert [mark.kind for mark in find_mistakes(STORY, slipped)] == ["arithmetic slip"]
    misread = "Ann starts with 12. Now Ann loses 5, so 12 - 5 = 7. Then 7 - 4 = 3. So Ann has 3. #### 3"
    assert [mark.kind for mark in find_mistakes(STORY, misread)] == ["wrong operation"]
    assert find_mistakes(STORY, RIGHT) == []
    halves = Story(8, (Event("/", 2), Event("*", 3)), "Ann", "pens")
    text = "We begin with 8 pens. Then Ann keeps half, so 8 / 2 = 4. Next 4 times 3 is 12, because she "
    text += "has 3 times as many. #### 12"
    assert find_mistakes(halves, text) == []
    assert first(text.replace("3 times as", "twice as"), halves) == ("wrong number", "twice", "3")


@given(st.one_of(st.text(), st.text(alphabet="0123456789 +-*/=.#hasmore")))
def test_any_text_can_be_checked(text: str) -> None:
    for mark in find_mistakes(STORY, text):
        assert 0 <= mark.start <= mark.end
    assert find_mistakes(STORY, text + "9" * 5000)


def test_more_steps_at_least_than_at_most_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"min_steps \(4\) must be at most max_steps \(3\)"):
        WordProblemsTask(min_steps=4)
