"""What every kind of page says, as a reader sees it in headless Chromium, over data whose outcomes differ.

Six kinds (a run, an import of answers, two runs compared, samples, a study, a claim card) of three data sets each: a
large effect, a small one, and as little as there can be.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import swerve
from swerve.config.recipe import ReportConfig
from swerve.report.page import render
from swerve.report.study import study_page
from tests.claim.test_evidence import write as write_answers
from tests.report.opened_page import until
from tests.report.test_samples import answers, page_of
from tests.report.test_study_sentences import ALIKE, HIGHER, planted

pytestmark = [pytest.mark.browser, pytest.mark.slow]

FEWEST = 20
"""Cases below which nothing is bold."""
_OTHERS = {"entropy": {"none": (0.017, 0.018, 0.016), "kl": (0.010, 0.0112, 0.0093)}}
_ONE = {"none": (50,), "kl": (51,)}


def _study(right: dict[str, tuple[int, ...]], *, by_problem: bool = True) -> str:
    num = max(map(len, right.values()))
    others = {name: {variant: each[:num] for variant, each in own.items()} for name, own in _OTHERS.items()}
    study = planted(right, by_problem=by_problem, **others)
    if len(right) > num:  # runs that no study has made
        study = study.model_copy(update={"recipe": ""})
    return render(study_page(study, options=ReportConfig(), folder=Path("studies/mine")))


def _card(folder: Path, chances: tuple[float, float], num_problems: int, num_samples: int) -> str:
    files = [
        write_answers(folder / f"{name}.jsonl", np.full(num_problems, chance), num_samples, place)
        for place, (name, chance) in enumerate(zip(("base", "rl"), chances, strict=True))
    ]
    card = swerve.claim(*files, out=folder / "card", progress=False)
    assert card is not None
    return (folder / "card" / "index.html").read_text(encoding="utf-8")


PAGES: dict[tuple[str, str], Callable[[pytest.FixtureRequest, Path], str]] = {
    ("run", "large"): lambda request, _: request.getfixturevalue("report").read_text(encoding="utf-8"),
    ("import", "small"): lambda request, _: request.getfixturevalue("answers_only_report").read_text(encoding="utf-8"),
    ("comparison", "large"): lambda *_: _study({"none": (50,), "kl": (70,)}),
    ("comparison", "small"): lambda *_: _study(_ONE),
    ("comparison", "no problems"): lambda *_: _study(_ONE, by_problem=False),
    ("study", "large"): lambda *_: _study(HIGHER),
    ("study", "small"): lambda *_: _study(ALIKE),
    ("study", "one recipe, one seed"): lambda *_: _study({"none": (50,)}),
    ("samples", "large"): lambda *_: render(page_of(answers("a", "0" * 30 + "1" * 10), answers("b", "1" * 40))),
    ("samples", "small"): lambda *_: render(page_of(answers("a", "1" * 20 + "0" * 20), answers("b", "01" * 20))),
    ("samples", "one problem"): lambda *_: render(page_of(answers("a", "1"), answers("b", "0"))),
    ("card", "large"): lambda _, folder: _card(folder, (0.3, 0.8), 60, 8),
    ("card", "small"): lambda _, folder: _card(folder, (0.50, 0.52), 60, 4),
    ("card", "few"): lambda _, folder: _card(folder, (0.1, 0.9), 12, 1),
}


# Rows are made after their fold has opened.
MADE = "() => [...document.querySelectorAll('details.evidence .table-of-rows')].every((one) => one.childElementCount)"


@pytest.fixture(scope="module", params=PAGES, ids=" of ".join)
def page(request: pytest.FixtureRequest, browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A page with everything on it opened."""
    folder = tmp_path_factory.mktemp("page")
    path = folder / "index.html"
    path.write_text(PAGES[request.param](request, folder), encoding="utf-8")
    page, complaints = browser.new_page(viewport={"width": 1280, "height": 900}), []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(path.as_uri())
    page.evaluate("() => document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    until(page, MADE)
    page.kind = request.param[0]
    yield page
    assert complaints == []
    page.close()


def read(page: Any, selector: str) -> str:
    return " ".join(page.locator(selector).inner_text().split())


def test_a_page_says_nothing_that_is_not_so(page: Any) -> None:
    text = read(page, "body")
    assert not re.search(r"(?i)(?<![\w.])nan(?![\w.])", text)
    assert "not reliable" not in text
    assert not re.search(r"(?<![\d.])0(\.0+)?%?( times out of [\d,]+)?, not 0\b", text)
    assert not re.search(r"\b0 of \d+ [^.]* (are|is) (significant|shown)", text)
    assert "undefined" not in text
    assert "[object" not in text


def test_nothing_is_bold_of_few(page: Any) -> None:
    sentences = page.eval_on_selector_all(
        "h1 b, h3 b, .verdict p b", "all => all.map((each) => each.closest('h1, h3, p').textContent)"
    )
    few = page.locator(".verdict.few > h3").all()
    assert all(int(each.evaluate("e => getComputedStyle(e).fontWeight")) < 600 for each in few)
    assert few or page.kind != "study" or not page.locator("[id^='of-']").count()
    for sentence in sentences:
        if found := re.search(r"(?:Over|On|Of|over|on|of) ([\d,]+) (?:problem|group|seed|run|cards?|wrong)", sentence):
            assert int(found[1].replace(",", "")) >= FEWEST, sentence


def test_a_page_says_where_it_is_from(page: Any) -> None:
    foot = read(page, "footer")
    assert "95% intervals" in foot
    assert re.search(r"\b20\d\d-\d\d-\d\d\b", foot)
    assert re.search(r"\bswerve \d+\.\d+", foot)
    command = {
        "comparison": "swerve report studies/mine",
        "study": "swerve report studies/mine",
        "card": "swerve claim",
    }
    assert command.get(page.kind, "") in foot


def test_a_page_is_called_by_its_kind(page: Any) -> None:
    kind = {"run": "report", "import": "report", "card": "claim card"}.get(page.kind, page.kind)
    assert page.title().endswith(f" - swerve {kind}")
    assert page.evaluate("citation(null)").startswith(f"swerve {kind} “")


def test_a_page_names_no_folder_of_a_machine(page: Any) -> None:
    assert re.findall(r"(?<![^\s='(])(?:~|[A-Z]:)?[/\\][\w.-]+[/\\][\w./\\-]+", read(page, "body")) == []


def test_a_page_links_to_nothing_beside_it(page: Any) -> None:
    hrefs = page.eval_on_selector_all("a[href]", "all => all.map((each) => each.getAttribute('href'))")
    assert [href for href in hrefs if not href.startswith("#")] == []


def test_rows_of_each_sentence_are_a_table(page: Any) -> None:
    for fold in page.locator("details.evidence").all():
        num = int(re.search(r"Rows: ([\d,]+)", fold.locator("summary").inner_text())[1].replace(",", ""))  # type: ignore[index]
        assert fold.locator(".table-of-rows tbody tr").count() == min(num, 200)


def test_verdicts_stand_in_rows_and_the_lines_of_a_card_in_columns(page: Any) -> None:
    shown = page.locator(".verdicts").evaluate("e => getComputedStyle(e).display")
    assert shown == ("block" if page.locator("p.line").count() else "grid")
    assert page.kind != "run" or shown == "grid"


def test_a_row_opens_what_the_page_holds_of_it_and_closes_again(page: Any) -> None:
    rows = page.locator("details.evidence .table-of-rows > table > tbody > tr > td:first-child > button")
    if page.kind not in ("card", "samples"):
        assert rows.count() == 0  # what is planted has no runs
        return
    assert rows.count() > 0
    first = rows.first
    problem = first.inner_text()
    first.click()
    opened = page.locator(".table-of-rows tr.opened")
    assert opened.count() == 1
    assert first.get_attribute("aria-expanded") == "true"
    # Question, how often each model was right, and an answer of it.
    text = " ".join(opened.inner_text().split())
    assert "Question" in text
    assert re.search(r"\d+ of \d+ right", text)
    assert opened.locator("pre").count() >= 1
    first.click()
    assert opened.count() == 0
    assert first.inner_text() == problem


def test_a_row_looks_as_if_it_opened_where_it_does_and_those_come_first(page: Any) -> None:
    for table in page.locator("details.evidence .table-of-rows > table").all():
        opens = table.evaluate(
            "e => [...e.tBodies[0].rows].map((row) => [row.querySelector('.opens') !== null, "
            "getComputedStyle(row.querySelector('.opens') ?? row.cells[0]).color])"
        )
        marked = [is_open for is_open, _ in opens]
        assert marked == sorted(marked, reverse=True)
        assert not {colour for is_open, colour in opens if is_open} & {
            colour for is_open, colour in opens if not is_open
        }


def test_rows_that_open_what_was_written_say_so_before_they_are_opened(page: Any) -> None:
    for fold in page.locator("details.evidence").all():
        opens = fold.locator(".table-of-rows .opens").count() > 0
        assert ("with answers" in fold.locator("summary").inner_text()) == opens


def test_an_opened_row_is_in_the_link_and_on_paper_and_scrolls_with_the_page(page: Any, browser: Any) -> None:
    rows = page.locator("details.evidence .table-of-rows > table > tbody > tr > td:first-child > .opens")
    if not rows.count():
        return
    chosen = rows.nth(rows.count() - 1)
    before = chosen.evaluate("e => { e.scrollIntoView({ block: 'center' }); return e.getBoundingClientRect().top; }")
    chosen.click()
    assert abs(chosen.evaluate("e => e.getBoundingClientRect().top") - before) < 2  # the row stays where it was
    inside = "e => [...e.closest('.table-of-rows').querySelectorAll('*'), e.closest('.table-of-rows')]"
    heights = f"{inside}.filter((one) => one.scrollHeight > one.clientHeight + 1 && "
    heights += "['auto', 'scroll'].includes(getComputedStyle(one).overflowY)).map((one) => one.className)"
    opened = page.locator(".table-of-rows tr.opened")
    assert opened.evaluate(heights) == []
    page.emulate_media(media="print")
    assert opened.evaluate(heights) == []
    assert opened.is_visible()
    page.emulate_media(media="screen")

    # The address opens the same row of the same table, and nothing else.
    page.locator("#copy").click()
    other = browser.new_page()
    other.goto(page.url)
    until(other, "() => document.querySelectorAll('.table-of-rows tr.opened').length > 0")
    assert other.locator(".table-of-rows tr.opened").all_inner_texts() == opened.all_inner_texts()
    other.close()
    chosen.click()


def test_words_of_the_field_are_explained_where_they_first_stand(page: Any) -> None:
    if page.kind == "card":
        explained = page.eval_on_selector_all(".term", "all => all.map((each) => each.firstChild.textContent)")
        assert {"points", "solved"} <= {word.lower() for word in explained}
        assert page.locator("#method dt").count() >= 4
