"""Comparisons of models: literal numbers, pairs by problem, and the same table in five forms."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest

from swerve.artifacts.comparison import Comparison
from swerve.artifacts.responses import Response
from swerve.errors import MismatchError
from swerve.eval.comparison import FORMATS, compare, comparison_table
from swerve.statistics import mcnemar, mean_interval, share, sign_flip_test
from swerve.types import Problem

KINDS = ["10 people", "2 people", "2 people", "10 people"]


def _responses(model: str, right: list[list[int]], *, length: int = 10, last: str = "length") -> list[Response]:
    """Return graded responses, greedy where there is one of each problem; the last holds no answer and is cut off."""
    responses = [
        Response(
            problem=Problem(id=f"p{number}", family="addition", question="", answer="", kind=KINDS[number % 4]),
            label=model,
            temperature=0.0 if len(right[0]) == 1 else 1.0,
            sample=sample,
            correct=bool(value),
            reward=float(value),
            extracted="x" if value else None,
            status="graded",
            answered=True,
            completion_ids=(1,) * length,
        )
        for number, samples in enumerate(right)
        for sample, value in enumerate(samples)
    ]
    return [*responses[:-1], replace(responses[-1], answered=False, finish_reason=last)]


BASE = _responses("base", [[0], [1], [1], [0]])
GREEDY = _responses("rl", [[1], [1], [0], [1]])
SAMPLED = _responses("rl", [[1, 0], [1, 1], [0, 0], [1, 0]])


def test_accuracy_is_over_problems_with_their_intervals() -> None:
    base, greedy, sampled = compare([BASE, GREEDY, SAMPLED]).rows
    assert base.accuracy == share(2, 4)
    assert greedy.by_kind["2 people"].accuracy.mean == 0.5
    assert greedy.by_kind["10 people"].accuracy == share(2, 2)
    assert sampled.accuracy == mean_interval([0.5, 1.0, 0.0, 0.5], bounds=(0.0, 1.0))
    assert [(one.k, one.pass_at_k.mean) for one in sampled.curve if one.pass_at_k] == [(1, 0.5), (2, 0.75)]
    assert (base.curve, base.num_samples, sampled.num_samples) == ((), 1, 2)
    assert (base.unanswered, base.ungraded, base.truncated) == (0.25, 0.0, 0.25)
    assert base.num_tokens is not None
    assert base.num_tokens.mean == 10.0


def test_differences_are_paired_by_problem_and_adjusted_together() -> None:
    base, greedy, sampled = compare([BASE, GREEDY, SAMPLED]).rows
    assert base.difference is None
    test = mcnemar([False, True, True, False], [True, True, False, True])
    assert greedy.difference is not None
    assert sampled.difference is not None
    assert (greedy.difference.estimate, greedy.difference.p_value) == (test.difference, test.p_value)
    changes = [0.5, 0.0, -1.0, 0.5]
    assert sampled.difference.estimate == mean_interval(changes, bounds=(-1.0, 1.0))
    assert sampled.difference.p_value == sign_flip_test([0, 1, 1, 0], [0.5, 1, 0, 0.5])
    pair = [greedy.difference, sampled.difference]
    smallest = min(one.p_value or 0 for one in pair)
    assert all(one.p_adjusted is not None and one.p_adjusted >= smallest for one in pair)
    assert max(one.p_adjusted or 0 for one in pair) == max(one.p_value or 0 for one in pair)


def test_a_row_is_compared_with_the_first_models_of_the_same_temperature() -> None:
    first = _responses("base", [[1, 0], [1, 1], [0, 0], [1, 0]])
    rows = compare([BASE, first, GREEDY, SAMPLED]).rows
    assert [row.difference and row.difference.compared_with for row in rows] == [None, None, "base greedy", "base T=1"]
    assert rows[3].difference is not None
    assert rows[3].difference.estimate.mean == 0.0


def test_a_pair_does_not_depend_on_the_order_of_problems() -> None:
    turned = compare([BASE, GREEDY[::-1]])
    assert turned.rows[1].difference == compare([BASE, GREEDY]).rows[1].difference


def test_models_of_different_problems_are_not_compared() -> None:
    with pytest.raises(MismatchError, match="'rl' and 'base' have different problems"):
        compare([BASE, _responses("rl", [[1], [1], [1], [1], [1]])])


def test_the_table_has_a_column_per_kind_in_the_order_of_their_numbers() -> None:
    heading, base, greedy, sampled = comparison_table(compare([BASE, GREEDY, SAMPLED]))
    assert heading[:6] == ["model", "decoding", "samples", "2 people (2)", "10 people (2)", "all (4)"]
    assert heading[6:] == ["pass@2", "difference", "p", "no answer", "cut off", "tokens"]
    assert base[:5] == ["base", "greedy", "1", "100.0", "0.0"]
    assert base[6:9] == ["", "", ""]
    assert greedy[5] == "75.0 [30.1, 95.4]"
    assert sampled[6].startswith("75.0 [")
    assert greedy[7].startswith("+25.0 [-")
    assert greedy[7].endswith("]")  # from the row of the same decoding
    assert sampled[7].startswith("+0.0 [")
    assert sampled[7].endswith("] from base greedy")


def test_one_kind_and_one_model_need_no_columns_of_their_own() -> None:
    alone = _responses("base", [[1]], last="stop")
    heading, row = comparison_table(compare([alone]))
    assert heading == ["model", "decoding", "samples", "all (1)", "no answer", "cut off", "tokens"]
    assert row[5] == "0.0"


def test_markdown_csv_latex_and_json_say_the_same() -> None:
    named = _responses("a_b|c%", [[1], [1], [0], [1]])
    comparison = compare([BASE, named])
    table = comparison_table(comparison)
    lines = FORMATS["md"](comparison).splitlines()
    assert lines[0] == f"| {' | '.join(table[0])} |"
    assert lines[1].startswith("| --- | --- | ---: |")
    assert lines[3].startswith(r"| a_b\|c% | greedy |")
    latex = FORMATS["latex"](comparison)
    assert r"a\_b|c\% & greedy & 1 & 50.0 & 100.0 & 75.0 [30.1, 95.4]" in latex
    assert latex.count(r"\\") == 3
    assert Comparison.model_validate(json.loads(FORMATS["json"](comparison))) == comparison
    rows = list(csv.DictReader(io.StringIO(FORMATS["csv"](comparison))))
    assert [(row["model"], row["kind"], row["num_problems"]) for row in rows[3:]] == [
        ("a_b|c%", "2 people", "2"),
        ("a_b|c%", "10 people", "2"),
        ("a_b|c%", "all", "4"),
    ]
    assert (rows[5]["accuracy"], rows[5]["difference"], rows[5]["compared_with"]) == ("0.75", "0.25", "base greedy")
