from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from swerve.errors import ConfigError
from swerve.rewards.python_file import check_reward_file, grade_python
from swerve.types import Problem, Reward


@pytest.fixture
def grade(tmp_path: Path) -> Callable[..., Reward]:
    def grade(source: str, text: str = "7") -> Reward:
        path = tmp_path / "my_reward.py"
        path.write_text(source)
        problem = Problem(id="p", family="mine", question="3+4", answer="7", grading={"file": str(path)})
        return grade_python(problem, text)

    return grade


def returning(expression: str) -> str:
    return f"from fractions import Fraction\nimport numpy as np\ndef reward(problem, text):\n    return {expression}\n"


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("0.25", 0.25),
        ("text == problem.answer", 1.0),
        ("-3", -3.0),
        ("Fraction(1, 4)", 0.25),
        ("np.float32(0.5)", 0.5),
        ("np.bool_(False)", 0.0),
        ("np.array([2.0])", 2.0),
        ("{'value': True}", 1.0),
    ],
)
def test_numbers_are_values(grade: Callable[..., Reward], expression: str, value: float) -> None:
    reward = grade(returning(expression))
    assert (reward.value, reward.status, reward.parts) == (value, "graded", {})


def test_a_mapping_gives_parts_and_the_extracted_answer(grade: Callable[..., Reward]) -> None:
    reward = grade(returning("{'value': 0.5, 'parts': {'format': True, 'answer': Fraction(1, 2)}, 'extracted': text}"))
    assert reward == Reward(value=0.5, status="graded", parts={"format": 1.0, "answer": 0.5}, extracted="7")
    paid = grade(returning("{'value': -1, 'answered': False}"))
    assert paid == Reward(value=-1.0, status="graded", answered=False)
    unparsed = grade(returning("{'value': None, 'extracted': None}"))
    assert unparsed == Reward(value=None, status="unparsed")
    assert grade(returning("None")) == Reward(value=None, status="unparsed")


@pytest.mark.parametrize(
    ("expression", "detail"),
    [
        ("'1'", "the reward function returned '1' (str); return a number, True or False, None"),
        ("[1]", "the reward function returned [1] (list); return a number"),
        ("float('nan')", "the reward function returned nan; a reward must be a finite number"),
        ("1 << 2000", "the reward function returned int too large to convert to float"),
        ("1j", "the reward function returned 1j (complex)"),
        ("np.array([1.0, 2.0])", "the reward function returned can only convert an array of size 1"),
        ("{'score': 1}", "a mapping with 'score'; 'value' is needed"),
        ("{'value': 1, 'part': {}}", "a mapping with 'value', 'part'; 'value' is needed"),
        ("{'value': 1, 'extracted': 7}", "extracted=7; it must be a string or None"),
        ("{'value': 1, 'parts': [1]}", "parts=[1]; it must be a mapping"),
        ("{'value': 1, 'parts': {'a': None}}", "None for the part 'a'"),
        ("{'value': None, 'answered': True}", "answered=True; it must be True or False, and False where"),
        ("{}['gold']", "my_reward.py:4: KeyError: 'gold'"),
    ],
)
def test_everything_else_is_an_error_that_says_what_it_was(
    grade: Callable[..., Reward], expression: str, detail: str
) -> None:
    reward = grade(returning(expression))
    assert (reward.value, reward.status) == (None, "error")
    assert detail in (reward.detail or "")


@pytest.mark.parametrize(
    ("source", "detail"),
    [
        ("import no_such_package\n", "my_reward.py:1: ModuleNotFoundError: No module named 'no_such_package'"),
        ("def score(problem, text): return 1\n", "has no function 'reward'"),
        ("def reward(:\n", "my_reward.py: SyntaxError"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_an_error(grade: Callable[..., Reward], source: str, detail: str) -> None:
    reward = grade(source)
    assert reward.status == "error"
    assert detail in (reward.detail or "")


def test_a_file_is_loaded_once_and_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "counting.py"
    source = "calls = 0\ndef reward(problem, text):\n    global calls\n    calls += 1\n    return calls * 10 + {}\n"
    problem = Problem(id="p", family="mine", question="", answer="", grading={"file": str(path)})
    path.write_text(source.format(1))
    os.utime(path, (1e9, 1e9))
    assert [grade_python(problem, "").value for _ in range(3)] == [11.0, 21.0, 31.0]
    path.write_text(source.format(2))
    os.utime(path, (1e9, 1e9))  # the same size and time: only the text tells
    assert grade_python(problem, "").value == 12.0


def test_a_file_may_define_data_classes_and_gets_the_whole_problem(grade: Callable[..., Reward]) -> None:
    source = (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass Score:\n    value: float\n"
        "def reward(problem, text):\n    return Score(problem.grading['file'].count('my_reward')).value\n"
    )
    assert grade(source).value == 1.0


def test_without_a_file_there_is_no_value() -> None:
    problem = Problem(id="p", family="python", question="", answer="")
    assert grade_python(problem, "").detail == "problem 'p' names no reward file; set grading.file to its path"
    text_file = Problem(id="p", family="python", question="", answer="", grading={"file": __file__ + "\0"})
    assert grade_python(text_file, "").status == "error"


@pytest.mark.parametrize(
    "source",
    [
        "def reward(problem, text): return 1",
        "def reward(problem, text, extra=None): return 1",
        "def reward(*arguments): return 1",
        "from elsewhere import reward",
        "from elsewhere import score as reward",
        "reward = lambda problem, text: 1",
        "try:\n    from fast import reward\nexcept ImportError:\n    from slow import reward",
        "raise SystemExit\ndef reward(problem, text): return 1",
    ],
)
def test_files_with_a_reward_function_pass_without_being_run(tmp_path: Path, source: str) -> None:
    path = tmp_path / "reward.py"
    path.write_text(f"{source}\nopen({str(tmp_path / 'ran')!r}, 'w').close()\n")
    check_reward_file(path)
    assert [one.name for one in tmp_path.iterdir()] == ["reward.py"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = 1\ndef reward(problem text): ...", r"reward\.py:2: not valid Python: invalid syntax"),
        ("x = '\0'", r"reward\.py: not valid Python: |reward\.py:1: not valid Python: "),
        ("def score(problem, text): ...", r"no function 'reward'; write one: def reward\(problem, text\)"),
        ("class A:\n    def reward(self, problem): ...", "no function 'reward'"),
        ("def reward(text): ...", r"reward\.py:1: 'reward' must take two arguments: \(problem, text\)"),
        ("def reward(problem, text, gold): ...", "must take two arguments"),
        ("def reward(problem, text, *, gold): ...", "must take two arguments"),
    ],
)
def test_files_without_one_are_refused_in_one_line(tmp_path: Path, source: str, message: str) -> None:
    path = tmp_path / "reward.py"
    path.write_text(source)
    with pytest.raises(ConfigError, match=message) as refused:
        check_reward_file(path)
    assert "\n" not in str(refused.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"reward file .*nothing\.py cannot be read: No such file"):
        check_reward_file(tmp_path / "nothing.py")
