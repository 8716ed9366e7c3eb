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
    page.wait_for_timeout(300)  # rows are made as their fold opens
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


def test_a_page_links_to_nothing_beside_it(page: Any) -> None:
    hrefs = page.eval_on_selector_all("a[href]", "all => all.map((each) => each.getAttribute('href'))")
    assert [href for href in hrefs if not href.startswith("#")] == []


def test_rows_of_each_sentence_are_a_table(page: Any) -> None:
    for fold in page.locator("details.evidence").all():
        num = int(re.search(r"Rows: ([\d,]+)", fold.locator("summary").inner_text())[1].replace(",", ""))  # type: ignore[index]
        assert fold.locator(".table-of-rows tbody tr").count() == min(num, 200)
