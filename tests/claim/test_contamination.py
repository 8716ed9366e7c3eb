from dataclasses import asdict
from types import SimpleNamespace

import pytest

from swerve.artifacts.responses import Response
from swerve.claim.contamination import ContaminationPart, beginning, matches, with_controls, with_other_numbers
from swerve.claim.settings import ClaimSettings
from swerve.claim.verdicts import larger
from swerve.claim.work import NotMeasuredError
from swerve.problems import load_family
from swerve.problems.addition import AdditionTask
from swerve.problems.table import TableTask
from swerve.progress import SilentProgress
from swerve.types import Problem

QUESTIONS = [
    f"{name} has {10 + index} pens and {3 + index % 5} red ones left"
    for index, name in enumerate(["Ann", "Ben", "Cy", "Dee", "Eve", "Flo", "Gus", "Hal", "Ida", "Joe", "Kim", "Lee"])
]


def problem(question: str, **known: object) -> Problem:
    return Problem(id=question, family="table", question=question, answer="1", **known)  # type: ignore[arg-type]


class Sampled:
    """A card's work of which one model continues every question of a list and the other none."""

    settings = SimpleNamespace(some=10, task=TableTask(train=("file",)))
    models = ("base", "rl")
    sides = (SimpleNamespace(label="base"), SimpleNamespace(label="rl"))

    def __init__(self, questions: list[str]) -> None:
        self.problems = [problem(question) for question in questions]

    def wanted(self, name: str, side: SimpleNamespace, **rest: object) -> SimpleNamespace:
        assert rest["template"] == "raw"
        return SimpleNamespace(label=side.label, **rest)

    def sample(self, wanted: list[SimpleNamespace]) -> list[list[Response]]:
        return [[self.response(each.label, begun) for begun in each.problems] for each in wanted]

    def response(self, label: str, begun: Problem) -> Response:
        whole = next((each for each in QUESTIONS if each.startswith(begun.question)), None)
        knows = label == "rl" and whole is not None
        text = f" {whole.removeprefix(begun.question)}\nIt is 1." if knows and whole else "I do not know"
        return Response(problem=begun, text=text, correct=knows)


def approx(mean: float, low: float, high: float) -> object:
    return pytest.approx({"mean": mean, "low": low, "high": high})


def test_questions_of_the_task_are_continued_and_the_control_is_not() -> None:
    part = ContaminationPart.measure(Sampled(QUESTIONS))  # type: ignore[arg-type]
    assert [(row.model, row.given) for row in part.completions] == [
        (model, share) for model in ("base", "rl") for share in (0.4, 0.6, 0.8)
    ]
    # Clopper and Pearson: 1 - .025^(1/10) is .3085.
    none, every = approx(0.0, 0.0, 0.3084971078), approx(1.0, 0.6915028922, 1.0)
    for row in part.completions:
        own = every if row.model == "rl" else none
        assert [asdict(rate) for rate in (row.exact, row.rouge_l, row.right, row.exact_control)] == [
            own,
            own,
            own,
            none,
        ]  # type: ignore[arg-type]
    assert [(line.of, line.shown, line.num) for line in part.verdicts] == [("base", False, 10), ("rl", True, 10)]


def test_other_numbers_are_numbers_of_the_questions_and_equal_ones_stay_equal() -> None:
    asked = [problem("7 of 12 and 7 of 30, in 5 ways"), problem("3 of 45, in 5 ways")]
    # 3 -> 7 -> 12 -> 30 -> 45 -> 3; 5 is in all questions.
    assert [each.question for each in with_other_numbers(asked)] == [
        "12 of 30 and 12 of 45, in 5 ways",
        "7 of 3, in 5 ways",
    ]


def test_a_task_that_generates_has_new_problems_beside_the_cards() -> None:
    task = AdditionTask(digits=2, num_heldout=100)
    settings = ClaimSettings(task=task, some=30)
    problems = load_family(task).problems("heldout", seed=0)[:60]
    work = SimpleNamespace(settings=settings, problems=problems, progress=SilentProgress())
    pairs, control = with_controls(work)  # type: ignore[arg-type]
    assert control == "freshly generated questions"
    assert [own in problems for own, _ in pairs] == [True] * 30
    assert not {other.question for _, other in pairs} & {each.question for each in problems}


def test_a_beginning_keeps_white_space_and_leaves_the_prompt_out() -> None:
    whole = problem("Ann\n has  3 pens\n\nHow many?", messages=(("user", "Q: ...")), prefix="<think>")
    begun, rest = beginning(whole, 0.6)
    assert (begun.question, begun.messages, begun.prefix) == ("Ann\n has  3", (), "")
    assert rest == ["pens", "How", "many?"]
    assert beginning(problem("1 2"), 0.4)[1] == ["2"]


def test_rouge_l_of_as_many_words_as_the_rest_has() -> None:
    # "a b" or "a c" is the longest common subsequence: 2 * 2 / (3 + 3); of too few words 2 * 1 / (1 + 3).
    asked = problem("?")
    assert matches(Response(problem=asked, text="a c b d", correct=True), ["a", "b", "c"]) == (False, 4 / 6, True)
    assert matches(Response(problem=asked, text="c", correct=False), ["a", "b", "c"]) == (False, 0.5, False)
    assert matches(Response(problem=asked, text="a b c and", correct=False), ["a", "b", "c"]) == (True, 1.0, False)


def test_a_question_of_one_word_has_no_beginning() -> None:
    with pytest.raises(NotMeasuredError, match="several words"):
        ContaminationPart.measure(Sampled(["12+3=", "45+6="]))  # type: ignore[arg-type]


def test_questions_without_numbers_have_no_control() -> None:
    with pytest.raises(NotMeasuredError, match="numbers"):
        ContaminationPart.measure(Sampled(["Is Ann a knight?"]))  # type: ignore[arg-type]


def test_a_verdict_is_of_the_paired_difference() -> None:
    line = larger("forgot", "addition", [1] * 20 + [0] * 20, [0] * 40, "it fell")
    # Of 40 cases and 6 / 39 of two more: 20 / 40.31 -+ 2.02 sqrt((20.31 - 40.31 (20 / 40.31)^2) / 39.31 / 40.31).
    assert line.sentence == "Over 40 problems it fell: 50% against 0%, +50 points (+33 to +66)."
    assert (line.shown, line.num) == (True, 40)
    line = larger("forgot", "addition", [1, 0], [0, 1], "it fell", "no fall is to be seen")
    assert line.sentence.startswith("Over 2 problems no fall is to be seen: 50% against 50%, 0 points")
