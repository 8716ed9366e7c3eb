"""Which texts hold a held-out question: as a whole, within a prompt, in part."""

from __future__ import annotations

from swerve.errors import ConfigError
from swerve.problems import load_family
from swerve.problems.held_out import HeldOut, held_out_of
from swerve.problems.registry import TASKS
from swerve.types import Problem
from tests.cases import each

PREAMBLE = "On an island knights always tell the truth and knaves always lie, and you meet"
LONG = f"{PREAMBLE} two people. Zoey says that Owen is a knave, and Owen says that both of them are of one kind."
SHORT = "What is $2 + 2$?"


def _problem(question: str, *, asked: str = "") -> Problem:
    messages = (("user", asked),) if asked else ()
    return Problem(id=question, family="f", question=question, answer="1", messages=messages)


HELD_OUT = HeldOut(
    [_problem(LONG), _problem(SHORT), _problem("9 + 9", asked="Add 9 to nine.")],
    [_problem(f"{PREAMBLE} three people. Ava says that Ben is a knight.")],
)


@each(
    ("text", "is_asked"),
    [
        (SHORT.upper(), True),
        ("  what is\n$2 + 2$?", True),
        (f"{SHORT} Put the answer in a box.", True),
        (f"<|im_start|>user\nQuestion: {SHORT}<|im_end|>", True),
        (f'Solve: "{LONG[:-1]}"', True),
        ("What is $2 + 3$?", False),
        ("What is $12 + 2$?", False),
        (LONG.replace("Owen", "Ben"), False),
        ("9 + 9", True),
        ("Compute:\n9 + 9\nin a box", True),
        ("Compute 9 + 9 + 1", False),  # too short to be looked for among other words
        ("Add 9 to nine.", True),
        ("", False),
    ],
)
def test_a_question_is_found_alone_and_within_a_prompt(text, is_asked):
    assert HELD_OUT.asked_in(text) is is_asked


def test_a_plain_text_holds_thirteen_words_of_a_question_that_no_training_question_has():
    words = LONG.split()
    assert HELD_OUT.found_in("A riddle. " + " ".join(words[-13:]))
    assert not HELD_OUT.found_in(" ".join(words[-12:]))
    assert len(PREAMBLE.split()) >= 13
    assert not HELD_OUT.found_in(f"{PREAMBLE} four people.")  # what training questions begin with as well
    assert HELD_OUT.found_in(f"Notes.\n{SHORT}\n4")


def test_a_task_holds_out_its_problems_under_the_seed_unless_they_are_kept():
    family = load_family(TASKS["addition"].config(num_train=20, num_heldout=5))
    held_out = held_out_of(family, seed=3, keep=False)
    assert all(held_out.asked_in(problem.question) for problem in family.problems("heldout", seed=3))
    assert not any(held_out.asked_in(problem.question) for problem in family.problems("train", seed=3))
    assert not held_out_of(family, seed=3, keep=True)

    class Nothing:
        def problems(self, split, *, seed):
            raise ConfigError(f"no {split} problems")

    assert not held_out_of(Nothing(), seed=0, keep=False)
