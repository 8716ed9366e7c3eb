from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from swerve.errors import ConfigError
from swerve.grading.policies import MathGrading
from swerve.rewards import grade, known_graders
from swerve.rewards.checks import check_graders, grading_of
from swerve.rewards.python_file import grade_python
from swerve.types import Problem


def problem(grader: str, grading: dict[str, Any] | None = None) -> Problem:
    return Problem(id="p", family="table", question="?", answer="1", grader=grader, grading=grading or {})


def test_unknown_family_lists_the_known() -> None:
    problem = Problem(id="x", family="chess", question="e4", answer="e5")
    with pytest.raises(ValueError, match="'chess'; known: addition, arithmetic_sequence, .*knights_knaves"):
        grade(problem, "answer e5")


def test_every_grader_takes_no_policies_but_python() -> None:
    asked = [problem(name) for name in known_graders() if name != "python"]
    check_graders(asked)
    assert {name for name, _, file in grading_of(asked) if file is None} == {*known_graders()} - {"python"}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (problem("maths"), "there is no grader 'maths'; did you mean 'math'? (known: addition, "),
        (problem("math", {"percnt": "strict"}), "the grader math has no policy 'percnt'; did you mean 'percent'?"),
        (problem("math", {"percent": "loose"}), "policy 'percent' of the grader math: Input should be 'either' or"),
        (problem("k_and_k", {"scale": 3}), "policy 'scale' of the grader k_and_k: Input should be 'parts' or"),
        (problem("python"), "the grader python needs a file; set task.reward_file"),
        (problem("python", {"file": "/nowhere/reward.py"}), "reward file /nowhere/reward.py cannot be read"),
    ],
)
def test_what_cannot_be_graded_is_refused_in_one_line(wrong: Problem, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_graders([problem("math"), wrong])
    assert str(caught.value).startswith(message)


def test_a_reward_file_with_the_function_passes(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def reward(problem, text):\n    return 0.25\n")
    asked = problem("python", {"file": str(file)})
    check_graders([asked])
    assert grade_python(asked, "1").value == 0.25


def test_what_verdicts_depend_on_beside_problem_and_text(tmp_path: Path) -> None:
    addition = Problem(id="p", family="addition", question="", answer="")
    assert grading_of([addition, replace(addition, answer="1")]) == [["addition", {}, None]]
    one, other = problem("math"), problem("exact")
    assert grading_of([one, other]) == grading_of([other, one])
    ((name, policies, _),) = grading_of([one])
    assert (name, policies) == ("math", MathGrading().model_dump(mode="json"))  # with the defaults
    assert grading_of([problem("math", {"extraction": policies["extraction"]})]) == grading_of([one])
    file = tmp_path / "reward.py"
    own = problem("python", {"file": str(file)})
    missing = grading_of([own])
    file.write_text("a")
    first = grading_of([own])
    file.write_text("b")
    assert len({str(found) for found in (missing, first, grading_of([own]))}) == 3
