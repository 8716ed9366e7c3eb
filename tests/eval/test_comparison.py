"""Comparisons of models: literal numbers, pairs by problem, and the same table in five forms."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import scipy.stats

from swerve.artifacts.comparison import Comparison, PublishedRow
from swerve.artifacts.responses import Response
from swerve.errors import ConfigError, MismatchError
from swerve.eval.comparison import compare
from swerve.formats.comparison_table import FORMATS, comparison_notes, comparison_table, measures_table
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
            text="so it is",
            finish_reason="stop",
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
    assert (base.unanswered, base.ungraded, base.truncated) == (share(1, 4), 0.0, share(1, 4))
    assert base.num_tokens is not None
    assert base.num_tokens.mean == 10.0


def test_differences_are_paired_by_problem_and_adjusted_together() -> None:
    base, greedy, sampled = compare([BASE, GREEDY, SAMPLED]).rows
    assert not base.differences
    test = mcnemar([False, True, True, False], [True, True, False, True])
    assert (greedy.differences["accuracy"].estimate, greedy.differences["accuracy"].p_value) == (
        test.difference,
        test.p_value,
    )
    changes = [0.5, 0.0, -1.0, 0.5]
    assert sampled.differences["accuracy"].estimate == mean_interval(changes, bounds=(-1.0, 1.0))
    assert sampled.differences["accuracy"].p_value == sign_flip_test([0, 1, 1, 0], [0.5, 1, 0, 0.5])
    pair = [*greedy.differences.values(), *sampled.differences.values()]
    smallest = min(one.p_value or 0 for one in pair)
    assert all(one.p_adjusted is not None and one.p_adjusted >= smallest for one in pair)
    assert max(one.p_adjusted or 0 for one in pair) == max(one.p_value or 0 for one in pair)


def test_a_row_is_compared_with_the_first_models_of_the_same_temperature() -> None:
    first = _responses("base", [[1, 0], [1, 1], [0, 0], [1, 0]])
    rows = compare([BASE, first, GREEDY, SAMPLED]).rows
    assert [row.differences["accuracy"].compared_with if row.differences else None for row in rows] == [
        None,
        None,
        "base greedy",
        "base T=1",
    ]
    assert rows[3].differences["accuracy"].estimate.mean == 0.0


def test_a_pair_does_not_depend_on_the_order_of_problems() -> None:
    turned = compare([BASE, GREEDY[::-1]])
    assert turned.rows[1].differences == compare([BASE, GREEDY]).rows[1].differences


def test_models_are_compared_over_the_problems_that_both_have() -> None:
    more = _responses("rl", [[1], [1], [1], [1], [1]])
    other = _responses("other", [[1], [1], [1], [1], [1], [0]])[4:]
    _, rl = compare([BASE, more]).rows
    assert (rl.num_problems, rl.differences["accuracy"].num_problems) == (5, 4)
    assert rl.differences["accuracy"].estimate.mean == 0.5
    _, base_cells, cells = comparison_table(compare([BASE, more]))
    assert (base_cells[6], cells[6]) == ("50 (7 to 93) (n=4)", "100 (48 to 100)")
    assert cells[7].endswith(" (n=4)")
    with pytest.raises(MismatchError, match="'other' and 'base' have no problem in common"):
        compare([BASE, other])
    with pytest.raises(ConfigError, match="--baseline 'bse' is not one of the models; did you mean 'base'"):
        compare([BASE, more], baseline="bse")


def test_another_baseline_turns_the_differences() -> None:
    base, rl = compare([BASE, GREEDY], baseline="rl").rows
    turned = compare([BASE, GREEDY]).rows[1].differences["accuracy"]
    assert not rl.differences
    assert base.differences["accuracy"].estimate.mean == -turned.estimate.mean
    assert base.differences["accuracy"].p_value == turned.p_value


def test_the_table_has_a_column_per_kind_in_the_order_of_their_numbers() -> None:
    heading, base, greedy, sampled = comparison_table(compare([BASE, GREEDY, SAMPLED]))
    assert heading[:5] == ["model", "decoding", "samples", "2 people (2)", "10 people (2)"]
    assert heading[5:10] == ["average of kinds", "all problems (4)", "pass@2", "difference", "p"]
    assert heading[10:] == ["no answer", "cut off", "tokens"]
    assert base[:5] == ["base", "greedy", "1", "100.0", "0.0"]
    assert base[7:10] == ["", "", ""]
    assert greedy[6] == "75 (19 to 99)"
    assert sampled[7].startswith("75 (")
    assert greedy[8].startswith("+25 (\u2212")
    assert greedy[8].endswith(")")  # from the row of the same decoding
    assert sampled[8].startswith("0 (")
    assert sampled[8].endswith(") from base greedy")


def test_one_kind_and_one_model_need_no_columns_of_their_own() -> None:
    alone = _responses("base", [[1]], last="stop")
    heading, row = comparison_table(compare([alone]))
    assert heading[:4] == ["model", "decoding", "samples", "all problems (1)"]
    assert heading[4:] == ["no answer", "cut off", "tokens"]
    assert row[5] == "0.0"
    assert comparison_notes(compare([alone])) == [
        "Percent of the responses that are right (95% interval over problems)."
    ]


def test_answers_that_end_with_their_gold_one_and_are_wrong_are_told() -> None:
    def answers(texts: Sequence[str], **changes: Any) -> list[Response]:
        given = _responses("base", [[0, 0]] * len(texts), last="stop")
        texts = [text for text in texts for _ in range(2)]
        return [
            replace(one, problem=replace(one.problem, answer="5 0 4"), text=text, answered=True, **changes)
            for one, text in zip(given, texts, strict=True)
        ]

    named = answers(["so answer 5 0 4.", "it is **5 0 4**", "4", "5 0 4 or 6"])
    (note,) = compare([named]).notes
    assert note.startswith("4 of the 8 answers judged wrong end with their gold answer, word for word: if addition is")
    assert compare([named], pooled=True).notes == (note,)
    assert comparison_notes(compare([named]))[-1] == note
    # One is chance; right answers, other programs' verdicts and missing answers say nothing of a grader.
    assert compare([named[1:2] + named[4:]]).notes == ()
    for changes in ({"correct": True}, {"status": None}, {"extracted": None, "answered": False}):
        assert compare([[replace(one, **changes) for one in named]]).notes == ()  # type: ignore[arg-type]


def test_both_averages_are_named_and_kinds_count_the_same() -> None:
    first = _responses("base", [[1], [1], [1], [0], [1]])  # kinds of 3 and 2 problems
    (row,) = compare([first]).rows
    assert row.kind_average is not None
    assert row.kind_average.mean == pytest.approx((2 / 3 + 1) / 2)
    # The jackknife's standard error: the binary variance within each kind, over its problems less one.
    error = math.sqrt((2 / 3 * 1 / 3 / 2) * 5 / 4 * 4 / 5) / 2
    assert row.kind_average.low < row.kind_average.mean - error
    assert row.accuracy.mean == 0.8


def test_an_average_of_fewer_kinds_says_so() -> None:
    part = [each for each in GREEDY if each.problem.kind == "2 people"]
    heading, _, cells = comparison_table(compare([BASE, part]))
    place = heading.index("average of kinds")
    assert cells[place - 1] == ""  # 10 people
    assert cells[place].startswith("50 (")
    assert cells[place].endswith(") (1 of 2 kinds)")
    assert cells[place + 1].endswith(" (n=2)")


WORDS = ["wait, let me check the number", "the number is two", "<think></think> the answer is two", "hmm, no"]


def _texts(model: str, texts: list[list[str]], *, tokens: int = 5) -> list[Response]:
    responses = _responses(model, [[1] * len(each) for each in texts], length=tokens)
    return [replace(each, text=text) for each, text in zip(responses, itertools.chain(*texts), strict=True)]


def test_every_measure_is_paired_by_problem_as_scipy_does_it() -> None:
    first = _texts("a", [[text, text.replace("two", "three")] for text in WORDS])
    second = _texts("b", [[text, text + " and no more than that"] for text in WORDS], tokens=9)
    one, other = compare([first, second]).rows
    groups = [[list(group) for group in zip(*[iter(each)] * 2, strict=True)] for each in (first, second)]
    own: dict[str, Callable[[list[Response]], float]] = {
        "num_tokens": lambda group: sum(len(each.completion_ids) for each in group) / 2,
        "num_words": lambda group: sum(len(re.findall(r"\w+", _plain(each))) for each in group) / 2,
        "similarity": lambda group: _cosine(*(Counter(itertools.pairwise(_plain(each).split())) for each in group)),
    }
    for name, value in own.items():
        before, after = ([value(group) for group in of_model] for of_model in groups)
        changes = [late - early for early, late in zip(before, after, strict=True)]
        difference = other.differences[name]
        assert getattr(one, name).mean == pytest.approx(sum(before) / 4)
        assert difference.num_problems == 4
        assert difference.estimate.mean == pytest.approx(sum(changes) / 4)
        if name != "similarity" and max(changes) > min(changes):  # an interval without bounds is Student's
            interval = scipy.stats.ttest_1samp(changes, 0).confidence_interval()
            assert (difference.estimate.low, difference.estimate.high) == pytest.approx(tuple(interval))
        flips = [
            sum(s * c for s, c in zip(signs, changes, strict=True)) for signs in itertools.product((1, -1), repeat=4)
        ]
        as_large = sum(abs(flip) >= abs(sum(changes)) - 1e-9 for flip in flips)
        assert difference.p_value == pytest.approx(as_large / 16)
    # Of the problems that have thinking it is empty in all.
    assert one.empty_thinking is not None
    assert (one.empty_thinking.mean, one.num_measured["empty_thinking"]) == (1.0, 1)
    assert one.reflections is not None
    by_hand = [1000 * 4 / 12, 0, 0, 1000 * 2 / 4]  # wait, let me check; hmm
    assert one.reflections.mean == pytest.approx(sum(by_hand) / 4)
    p_values = scipy.stats.false_discovery_control([each.p_value for each in other.differences.values()])
    assert [each.p_adjusted for each in other.differences.values()] == pytest.approx(list(p_values))


def _plain(response: Response) -> str:
    return re.sub(r"[^\w ]", "", re.sub(r"</?think>", "", response.text or ""))


def _cosine(one: Counter[Any], other: Counter[Any]) -> float:
    norms = [math.sqrt(sum(count**2 for count in each.values())) for each in (one, other)]
    return sum(one[gram] * other[gram] for gram in one) / math.prod(norms)


def test_embeddings_and_different_right_answers_are_of_several_samples() -> None:
    def embed(texts: Sequence[str]) -> list[list[float]]:
        return [[1.0, float("two" in text)] for text in texts]

    first = _texts("a", [["two", "three"], ["two", "two"]])
    named = [replace(each, extracted=each.text) for each in first]
    (row,) = compare([named], embed=embed).rows
    assert row.embedding_similarity is not None
    assert row.embedding_similarity.mean == pytest.approx((2**-0.5 + 1) / 2)
    assert row.distinct_right is not None
    assert row.distinct_right.mean == 1.5
    lost = [replace(each, correct=False) for each in named]  # a run without a right answer is measured, too
    assert compare([lost]).rows[0].distinct_right == mean_interval([0.0, 0.0], bounds=(0.0, math.inf))
    unread = [replace(each, extracted=None) for each in named]  # a grader that records none: they are alike
    assert (compare([unread]).rows[0].distinct_right or share(0, 1)).mean == 1.0  # type: ignore[union-attr]
    assert compare([BASE], embed=embed).rows[0].embedding_similarity is None  # one sample each


def test_responses_from_elsewhere_and_published_accuracies_are_marked() -> None:
    foreign = [
        replace(each, dialect="plain", temperature=None, completion_ids=()) for each in _responses("o", [[1]] * 4)
    ]
    published = PublishedRow(name="o1", by_kind={"2 people": 0.83, "10 people": 0.2})
    comparison = compare([BASE, foreign], published=[published])
    heading, _, rows, last = comparison_table(comparison)
    assert rows[:3] == ["o", "from a file", "1"]
    assert rows[heading.index("tokens")] == ""
    assert "words" in heading
    assert last[:7] == ["o1", "published", "", "83.0", "20.0", "51.5", ""]
    assert not any(last[7:])
    measures = {row[0]: row[1:] for row in measures_table(comparison)}
    assert measures["tokens"][1] == "not measured"
    assert "Published accuracies have no interval, and are compared with nothing." in comparison_notes(comparison)
    lines = list(csv.DictReader(io.StringIO(FORMATS["csv"](comparison))))[-2:]
    assert [(line["model"], line["kind"], line["mean"], line["low"]) for line in lines] == [
        ("o1", "2 people", "0.83", ""),
        ("o1", "10 people", "0.2", ""),
    ]


def test_a_kind_that_is_called_all_has_its_rows_once() -> None:
    of_kind = [replace(one, problem=replace(one.problem, kind="all")) for one in _responses("a", [[1], [0], [1]])]
    rows = list(csv.DictReader(io.StringIO(FORMATS["csv"](compare([of_kind])))))
    assert [row["num_problems"] for row in rows if row["measure"] == "accuracy"] == ["3"]


def test_markdown_csv_latex_and_json_say_the_same() -> None:
    named = _responses("a_b|c%", [[1], [1], [0], [1]])
    comparison = compare([BASE, named])
    table = comparison_table(comparison)
    lines = FORMATS["md"](comparison).splitlines()
    assert lines[0] == f"| {' | '.join(table[0])} |"
    assert lines[1].startswith("| --- | --- | ---: |")
    assert lines[3].startswith(r"| a_b\|c% | greedy |")
    assert lines[5].startswith(r"| measure | base, greedy | a_b\|c%, greedy |")
    latex = FORMATS["latex"](comparison)
    assert r"a\_b|c\% & greedy & 1 & 50.0 & 100.0 & 75 (" in latex
    assert latex.count(r"\begin{tabular}") == 2
    assert Comparison.model_validate(json.loads(FORMATS["json"](comparison))) == comparison
    rows = list(csv.DictReader(io.StringIO(FORMATS["csv"](comparison))))
    own = [row for row in rows if row["model"] == "a_b|c%" and row["measure"] == "accuracy"]
    assert [(row["kind"], row["num_problems"]) for row in own] == [
        ("2 people", "2"),
        ("10 people", "2"),
        ("all", "4"),
        ("average", ""),
    ]
    places = [(row["model"], row["decoding"], row["kind"], row["measure"]) for row in rows]
    assert len(places) == len({*places})
    assert (own[2]["mean"], own[2]["difference"], own[2]["compared_with"]) == ("0.75", "0.25", "base greedy")
