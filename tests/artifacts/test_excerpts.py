"""What pages hold of the answers to problems: which answers, which problems first, and how much of them."""

from __future__ import annotations

import pytest

from swerve.artifacts.excerpts import asked_problems, held_said
from swerve.artifacts.responses import Response
from swerve.types import Problem


def answers(name: str, *said: tuple[str | None, bool | None], answered: bool | None = None) -> list[Response]:
    problem = Problem(id=name, family="math", question=f"What is {name}?", answer="7")
    return [Response(problem=problem, text=text, correct=right, answered=answered) for text, right in said]


def test_of_each_model_the_first_right_answer_and_the_first_that_is_not() -> None:
    base = {"p": answers("p", ("it is 6", False), ("it is 7", True), ("it is 8", False), ("so 7", True))}
    trained = {"p": answers("p", ("7", True), ("7!", True))}
    (asked,) = asked_problems({"base": base, "rl": trained})
    assert (asked.problem, asked.question, asked.gold) == ("p", "What is p?", "7")
    assert asked.counts == ("base: 2 of 4 right", "rl: 2 of 2 right")
    assert [(each.model, each.outcome, each.text) for each in asked.answers] == [
        ("base", "right", "it is 7"),
        ("base", "wrong", "it is 6"),
        ("rl", "right", "7"),
    ]


def test_what_has_no_text_or_no_verdict_is_not_called_wrong() -> None:
    side = {"p": answers("p", (None, True), ("", False)), "q": answers("q", ("maybe", None))}
    (asked,) = asked_problems({"base": side})
    assert (asked.problem, [each.outcome for each in asked.answers]) == ("q", ["not graded"])
    unread = asked_problems({"base": {"p": answers("p", ("hm", False), answered=False)}})
    assert [each.outcome for each in unread[0].answers] == ["no answer found"]


def test_of_an_answer_without_its_text_what_was_read_is_shown() -> None:
    problem = Problem(id="p", family="math", question="3 + 4?", answer="7")
    side = [
        Response(problem=problem, extracted="8", correct=False),
        Response(problem=problem, text="it is 7", extracted="7", correct=True),
    ]
    (asked,) = asked_problems({"base": {"p": side}})
    assert [(each.outcome, each.text) for each in asked.answers] == [
        ("right", "it is 7"),
        ("wrong, the answer alone", "8"),
    ]


def test_problems_on_which_models_differ_most_come_first_up_to_the_bound() -> None:
    base = {name: answers(name, ("x" * 80, False)) for name in "abc"}
    trained = {name: answers(name, ("y" * 80, name == "c")) for name in "abc"}
    sides = {"base": base, "rl": trained}
    assert [each.problem for each in asked_problems(sides)] == ["c", "a", "b"]
    assert [each.problem for each in asked_problems(sides, max_chars=400)] == ["c", "a"]
    assert asked_problems(sides, max_chars=100) == ()


def test_the_middle_of_a_long_answer_is_left_out_and_its_end_stays() -> None:
    text = "a" * 3000 + "so the answer is 7"
    (asked,) = asked_problems({"base": {"p": answers("p", (text, True))}})
    (shown,) = asked.answers
    assert "[518 characters left out]" in shown.text
    assert shown.text.endswith("so the answer is 7")


@pytest.mark.parametrize(("held", "said"), [(0, ""), (3, "is not."), (2, "those of 2 of 3 problems")])
def test_it_is_said_how_much_the_page_holds(held: int, said: str) -> None:
    assert said in held_said(held, 3)
    assert bool(held_said(held, 3)) == bool(held)
