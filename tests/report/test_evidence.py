"""What a sentence was made of: its rows give its numbers, in the page, in Python and by the line that stands there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from swerve.report.evidence import MAX_CELLS, Evidence, Figure, Sentence, with_interval
from swerve.report.page import Fold, Page, Verdict, render
from swerve.statistics import mean_interval, paired_difference, ratio_interval, spearman
from swerve.text import percent, points
from tests.report.opened_page import opened_data

COLUMNS = {"problem": ("p1", "p2", "p3", "p4", "p5"), "before": (0, 0, 1, 1, None), "after": (1, 1, 1, 0, 1)}
BOTH = ("before", "after")


@pytest.mark.parametrize(
    ("statistic", "columns", "write", "text"),
    [
        ("rows", (), str, "5.0"),
        ("mean", ("after",), percent, "80.0%"),
        ("mean", ("before",), percent, "50.0%"),
        ("sum", ("before",), str, "2.0"),
        ("median", ("after",), str, "1.0"),
        ("rises", BOTH, str, "2.0"),
        ("falls", BOTH, str, "1.0"),
        ("paired difference of means", BOTH, points, "+25.0"),
        ("ratio of sums", BOTH, percent, "66.7%"),
        ("share of the difference", ("before", "after", "after"), percent, "100.0%"),
        ("mean of differences", BOTH, points, "+25.0"),
        ("number", ("before",), str, "4.0"),
        ("difference of ratios", ("before", "after", "after", "after"), percent, "\N{MINUS SIGN}33.3%"),
        ("rank correlation", BOTH, lambda value: f"{value:.4f}", "-0.5774"),
        ("mean", ("nothing",), str, "none"),
    ],
)
def test_a_number_comes_from_rows_that_have_it(statistic: str, columns: tuple[str, ...], write, text: str) -> None:
    figure = Figure(name="it", statistic=statistic, columns=columns, write=write)
    assert Evidence(id="a", table="a.parquet", columns=COLUMNS, figures=(figure,)).texts == {"it": text}


@pytest.mark.parametrize(
    ("statistic", "columns", "made"),
    [
        ("mean", ("after",), lambda: mean_interval([1, 1, 1, 0, 1], bounds=(0.0, 1.0), confidence=0.9)),
        ("ratio of sums", BOTH, lambda: ratio_interval([0, 0, 1, 1], [1, 1, 1, 0], confidence=0.9)),
        (
            "paired difference of means",
            BOTH,
            lambda: paired_difference([0, 0, 1, 1], [1, 1, 1, 0], bounds=(-1.0, 1.0), confidence=0.9)[0],
        ),
        ("mean of differences", BOTH, lambda: mean_interval([1, 1, 0, -1], bounds=(-1.0, 1.0), confidence=0.9)),
        ("rank correlation", BOTH, lambda: spearman([0, 0, 1, 1], [1, 1, 1, 0], confidence=0.9)),
    ],
)
def test_the_ends_of_an_interval_are_made_by_the_function_that_stands_there(statistic: str, columns, made) -> None:
    figure = Figure(name="it", statistic=statistic, columns=columns)
    known = made()
    numbers = with_interval(figure, str, known, 0.9)
    evidence = Evidence(id="a", table="a.parquet", columns=COLUMNS)
    assert [evidence.value(number) for number in numbers] == pytest.approx([known.mean, known.low, known.high])
    assert numbers[1].how.startswith(f"low end of the 90% interval of {statistic} of {', '.join(columns)} (swerve.sta")


def test_a_number_of_other_rows_is_found_missing() -> None:
    figure = Figure(name="right", statistic="mean", columns=("after",), write=percent)
    evidence = Evidence(id="a", table="a.parquet", columns=COLUMNS, figures=(figure,))
    assert evidence.missing_in("80.0% are right.") == []
    changed = replace(evidence, columns={**COLUMNS, "after": (1, 0, 1, 0, 1)})
    assert changed.missing_in("80.0% are right.") == [figure]


def test_a_page_says_where_rows_do_not_give_its_sentence() -> None:
    figure = Figure(name="right", statistic="mean", columns=("after",), write=percent)
    evidence = Evidence(id="a", table="a.parquet", columns=COLUMNS, figures=(figure,))
    told = "These rows give 80.0% for “right”, which the sentence does not say: it was made of others."

    def page(said: str) -> str:
        return render(Page(title="t", sentence="s", verdicts=(Verdict(title=said, evidence=evidence),)))

    assert told in page("81.0% are right.")
    assert told not in page("80.0% are right.")


def test_a_page_has_the_rows_of_what_it_says_once_and_tells_where_it_has_not_all() -> None:
    long = {"problem": [f"p{at}" for at in range(MAX_CELLS)], "right": [at % 2 for at in range(MAX_CELLS)]}
    half = Figure(name="right", statistic="mean", columns=("right",), write=percent)
    of_many = Evidence(id="many", table="eval/a.parquet", columns=long, figures=(half,), command="rows = all_of_them()")
    few = Evidence(id="few", table="eval/b.parquet", columns={"problem": ["<b>"], "value": [1 / 3]}, unit="answer")
    page = Page(
        title="t",
        sentence=Sentence("Half are **right**: 50.0%.", of_many),
        verdicts=(
            Verdict(id="half", title="50.0% are right.", evidence=of_many),
            Verdict(title="One", lines=((Sentence("A third.", few), "n = 1"),)),
        ),
        folds=(Fold(id="fold", title="Fold", sentences=(Sentence("The same third.", few), "Nothing behind it.")),),
    )
    text = render(page)
    known = opened_data(text)["evidence"]
    assert known["few"] == {"num": 1, "names": ["problem", "value"], "columns": [["<b>"], [0.3333333]]}
    assert known["many"]["num"] == MAX_CELLS
    assert len(known["many"]["columns"][0]) == MAX_CELLS // 2
    assert text.count('data-rows="many"') == 2
    assert text.count('data-rows="few"') == 2
    assert '<article id="half"' in text
    assert '<article id="verdict-2"' in text
    assert "<b>50.0%</b> right: mean of right" in text
    assert "rows = all_of_them()" in text
    assert "Rows: 1 answer<" in text


def test_a_share_of_nothing_is_not_a_number_and_no_warning() -> None:
    columns = {"problem": ("p1", "p2"), "part": (0, 0), "whole": (0, 0)}
    figure = Figure(name="share", statistic="ratio of sums", columns=("part", "whole"))
    with np.errstate(all="raise"):
        assert np.isnan(Evidence(id="e", table="t", columns=columns, figures=(figure,)).value(figure))
