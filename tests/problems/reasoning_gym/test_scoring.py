from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swerve.problems.reasoning_gym.reasoning_gym import ReasoningGym, ReasoningGymTask
from swerve.problems.reasoning_gym.scoring import OWN_SCORERS, decode_entry, grade_reasoning_gym
from swerve.rewards import grade_all
from swerve.types import Problem
from tests.cases import each

reasoning_gym = pytest.importorskip("reasoning_gym")

WITHOUT_ANSWERS = {"boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"}
"""Data sets whose items have no answer, only a scorer."""


@cache
def _problems(dataset: str, count: int = 2) -> list[Problem]:
    task = ReasoningGymTask(dataset=dataset, num_train=count, num_heldout=1)
    return ReasoningGym(task).problems("train", seed=4)


def _like(dataset: str, answer: str, **metadata) -> Problem:
    """A problem with a written-down entry in place of a drawn one."""
    entry = {"answer": answer, "metadata": {"source_dataset": dataset, **metadata}}
    return replace(_problems(dataset)[0], answer=answer, metadata={"dataset": dataset, "options": {}, "entry": entry})


MATRIX = {"answer": "0 1\n1 2"}
CASES = [
    ("countdown", {"answer": "8 * 3", "numbers": [8, 3], "target": 24}, "3*8", "3 * 9 - 3", "24"),
    ("countdown", {"answer": "8 * 3", "numbers": [8, 3], "target": 24}, "-3 * -8", "8 + 3", "4 * 6"),
    ("puzzle24", {"answer": "4*6*1*1", "numbers": [1, 1, 4, 6]}, "6 * 4 / 1 * 1", "8 * 3 * 1 * 1", "4*6 + 1/2 - 1"),
    ("binary_matrix", MATRIX, "0 1\n1 2", "0 1\n1 1", "[[0, 1], [1, 2]]"),
    ("spiral_matrix", {"answer": "1 2 3"}, "1 2 3", "1 3 2", "[1, 2, 3]"),
    ("string_insertion", {"answer": "ABCD"}, "ABCD", "ABCDA", "['A', 'B', 'C', 'D']"),
    ("n_queens", {"answer": "Q _", "valid_answers": ["Q _", "_ Q"]}, "_ Q", "Q Q", "[['_', 'Q']]"),
    (
        "polynomial_multiplication",
        {"answer": "x**2 + 2*x + 1", "variables": ["x"]},
        "1 + x**2 + x*2",
        "x**2",
        "(x+1)**2",
    ),
    (
        "simple_integration",
        {"answer": "x**2 + C", "integrand": "2*x", "variable": "x"},
        "x*x + 3",
        "2*x**2",
        "Integral(2*x, x)",
    ),
    (
        "intermediate_integration",
        {"answer": "-cos(x)", "integrand": "sin(x)", "variable": "x"},
        "C - cos(x)",
        "cos(x)",
        "x or 5",
    ),
    ("bitwise_arithmetic", {"answer": "0x1f", "problem": "0x1e + 0x1"}, "31", "0x1e", "0x1f or 1"),
    (
        "number_sorting",
        {"answer": "['1.5', '2.0']", "direction": "ascending"},
        '["1.5", "2"]',
        "[1.5, 2.5]",
        "[NaN, NaN]",
    ),
    ("complex_arithmetic", {"answer": "1.0 + 2.0i", "result": [1.0, 2.0]}, "1+2i", "1 - 2i", "nan"),
    ("coin_flip", {"answer": "0.171875"}, "11/64", "0", "0.18"),
    ("game_of_life_halting", {"answer": "False"}, "false", "True", "0"),
    ("gsm_symbolic", {"answer": "1405"}, "$1,405.00", "-1405", "1405 or 5"),
    ("spell_backward", {"answer": "cba"}, "CBA", "cbaa", "cba cba"),
    ("word_sorting", {"answer": "a, b", "sorted_words": ["a", "b"]}, "a,b", "b, a", "a, b, c"),
]


@each(("dataset", "item", "right", "wrong", "tricky"), CASES)
def test_own_scorers(dataset, item, right, wrong, tricky) -> None:
    problem = _like(dataset, **item)
    assert grade_reasoning_gym(problem, item["answer"]).value == 1.0
    assert grade_reasoning_gym(problem, right).value == 1.0
    for text in (wrong, tricky, "__import__('os').system('true')", "[", "(", "1" * 500, "I do not know."):
        reward = grade_reasoning_gym(problem, text)
        assert reward.value == 0.0 or reward.status == "timeout", text


def test_every_own_scorer_has_a_case() -> None:
    assert {case[0] for case in CASES} == set(OWN_SCORERS)


def test_where_the_answer_stands() -> None:
    problem = _like("spell_backward", "cba")
    for text in ("cba", "<think>abc?</think>\ncba\n", "So <answer> cba </answer>.", r"So \boxed{cba}"):
        assert grade_reasoning_gym(problem, text).value == 1.0
    assert grade_reasoning_gym(problem, "The answer is\ncba").value == 0.0
    assert grade_reasoning_gym(problem, "cba </think>").status == "unparsed"


def test_the_score_is_a_part_and_the_threshold_decides() -> None:
    problem = _like("palindrome_generation", "aba", letters=["a", "a", "b"])
    reward = grade_reasoning_gym(problem, "bab")
    assert (reward.value, reward.parts) == (0.0, {"score": 0.05})
    assert grade_reasoning_gym(replace(problem, grading={"threshold": 0.05}), "bab").value == 1.0
    family = ReasoningGym(ReasoningGymTask(dataset="maze", threshold=0.5, num_train=1, num_heldout=1))
    assert family.problems("train", seed=1)[0].grading == {"threshold": 0.5}


def test_an_answer_on_which_the_scorer_fails_is_wrong_and_says_so() -> None:
    reward = grade_reasoning_gym(_problems("prime_factorization")[0], "two times three")
    assert (reward.status, reward.value) == ("graded", 0.0)
    assert "ValueError: invalid literal for int()" in (reward.detail or "")


@pytest.mark.parametrize(
    ("score", "status", "value"),
    [(1.0, "graded", 1.0), (1.2, "graded", 0.0), (float("nan"), "error", None), (float("inf"), "error", None)],
)
def test_faulty_scores(monkeypatch, score, status, value) -> None:
    scorers = {**OWN_SCORERS, "maze": lambda dataset, answer, entry: score}
    monkeypatch.setattr("swerve.problems.reasoning_gym.scoring.OWN_SCORERS", scorers)
    reward = grade_reasoning_gym(_problems("maze")[0], "3")
    assert (reward.status, reward.value) == (status, value)


def test_limits_are_timeouts_and_unreadable_items_are_errors() -> None:
    integral = _like("simple_integration", "x", integrand="1", variable="x")
    for text in ("9**9**9", "(" * 500, "x+" * 2000):
        assert grade_reasoning_gym(integral, text).status == "timeout"
    assert grade_reasoning_gym(_problems("prime_factorization")[0], "7" * 5000).status == "timeout"
    assert grade_reasoning_gym(_like("binary_matrix", "1"), "[" * 100_000).status == "timeout"
    reward = grade_reasoning_gym(_like("simple_integration", "x", integrand="Integral(x)", variable="x"), "x")
    assert reward.status == "error"
    assert "the item's own expression 'Integral(x)' cannot be read" in (reward.detail or "")


@pytest.mark.parametrize("dataset", ["graph_color", "rubiks_cube", "propositional_logic"])
def test_right_answers_to_items_that_come_without_one(dataset) -> None:
    problem = _problems(dataset)[0]
    metadata = decode_entry(problem.metadata["entry"])["metadata"]
    answer = {"graph_color": _coloring, "rubiks_cube": _unscrambled, "propositional_logic": _premise}[dataset](metadata)
    assert grade_reasoning_gym(problem, answer).value == 1.0


def _coloring(metadata) -> str:
    puzzle = metadata["puzzle"]
    for colors in product(puzzle["color_options"], repeat=len(puzzle["vertices"])):
        coloring = dict(zip(puzzle["vertices"], colors, strict=True))
        if all(coloring[a] != coloring[b] for a, b in puzzle["edges"]):
            return json.dumps({str(vertex): color for vertex, color in coloring.items()})
    raise AssertionError("no coloring")


def _unscrambled(metadata) -> str:
    return " ".join(
        move[:-1] if move.endswith("'") else f"{move}'" for move in reversed(metadata["scramble_moves"].split())
    )


def _premise(metadata) -> str:
    return metadata["premises"][0]


@given(st.text(), st.sampled_from(["maze", "countdown", "number_sorting", "gsm_symbolic", "simple_integration"]))
def test_no_text_raises(text, dataset) -> None:
    assert grade_reasoning_gym(_problems(dataset)[0], text).status in ("graded", "unparsed", "timeout")


def _payloads(marker: Path) -> list[str]:
    touch = f"__import__('os').system('touch {marker}')"
    return [
        touch,
        f"[{touch}]",
        f"open('{marker}', 'w')",
        f"(lambda: {touch})()",
        "9**9**9**9",
        "(" * 5000 + "1" + ")" * 5000,
        "[" * 20000,
        "7" * 100_000,
        "1e999999999",
        '{"a":' * 3000,
        "\ud800\ud801",
        "\0",
        "nan",
        "[NaN]",
        "None",
        "[]",
        "-1",
    ]


def _sweep(datasets: list[str], marker: Path) -> Iterator[str]:
    """Yield what is wrong with the verdicts on the items' own answers and on payloads."""
    probes = _payloads(marker)
    asked = [(problem, problem.answer) for name in datasets for problem in _problems(name) if problem.answer]
    for (problem, _), reward in zip(asked, grade_all(asked), strict=True):
        if reward.value != 1.0:
            yield f"{problem.kind}: its own answer: {reward}"
    asked = [(_problems(name)[0], text) for name in datasets for text in probes]
    for (problem, text), reward in zip(asked, grade_all(asked), strict=True):
        if (reward.value == 1.0 and text.strip() != problem.answer) or reward.status == "error":
            yield f"{problem.kind}: {text[:60]!r}: {reward}"
    if marker.exists():
        yield "a payload ran"


@pytest.mark.slow
def test_payloads_do_not_run_in_some_data_sets(tmp_path) -> None:
    slow_to_make = {"intermediate_integration", "puzzle24", "simple_integration"}
    datasets = [*sorted({*OWN_SCORERS} - slow_to_make), "chain_sum", "graph_color"]
    assert list(_sweep(datasets, tmp_path / "marker")) == []


@pytest.mark.slow
def test_payloads_do_not_run_in_any_data_set(tmp_path) -> None:
    from reasoning_gym.factory import DATASETS

    datasets = [name for name in sorted(DATASETS) if name != "composite"]
    assert len(datasets) > 100
    assert list(_sweep(datasets, tmp_path / "marker")) == []
    assert {name for name in datasets if not _problems(name)[0].answer} == WITHOUT_ANSWERS


@pytest.mark.slow
def test_hostile_answers_of_the_corpus(shared_data, tmp_path) -> None:
    with gzip.open(shared_data("hostile_answers") / "cases.jsonl.gz", "rt") as lines:
        cases = [case for case in map(json.loads, lines) if case["target"].startswith("reasoning_gym.")]
    assert len(cases) > 30
    marker = tmp_path / "marker"
    asked = []
    for case in cases:
        answer = case["answer"]
        if answer is None:
            answer = "".join(text * count for text, count in case["answer_parts"])
        problem = _problems(case["target"].removeprefix("reasoning_gym."))[0]
        asked.append((problem, str(answer).replace("MARKER", str(marker))))
    for case, reward in zip(cases, grade_all(asked), strict=True):
        assert reward.status in ("graded", "timeout"), case["id"]
        assert reward.value != 1.0, case["id"]
    assert not marker.exists()
