"""What is copied of a page is a citation whose address shows the page as it was; rows and words open by keyboard."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from swerve.report.evidence import MAX_CELLS, Evidence
from swerve.report.page import Page as ReportPage
from swerve.report.page import Verdict, render
from tests.report.opened_page import Opened

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture
def opened(browser: Any, report: Path) -> Iterator[Opened]:
    page = Opened(browser, report.as_uri())
    yield page
    page.close(report.as_uri())


def copied(page: Opened) -> str:
    page.page.evaluate(
        "Object.defineProperty(navigator, 'clipboard', "
        "{ configurable: true, value: { writeText: async (text) => { window.copied = text; } } })"
    )
    page.page.locator("#copy").click()
    page.until("() => document.getElementById('copy').textContent.startsWith('Copied')")
    return str(page.page.evaluate("copied"))


def test_a_copied_link_shows_the_page_as_it_was(browser: Any, report: Path, opened: Opened) -> None:
    page = opened.page
    page.locator("#find").fill("4")
    page.locator("#outcome").select_option(index=1)  # its text changes while responses are searched
    page.locator("#heads button", has_text="Length").click()
    page.locator("#accuracy details.evidence > summary").click()
    page.locator("#how-often-is-it-right > summary").click()
    opened.go("#r=2&c=rl-20&t=3")
    opened.opens(2)
    page.locator("#panel .divergence").select_option("kl_forward")
    text = copied(opened)
    assert re.match(r"swerve report “demo-\$x\$<b>, 20\d\d-\d\d-\d\d” \(swerve \d+\.\d+\.\d+\): ", text)
    assert f": {page.locator('h1').evaluate('e => e.firstChild.data')}" in text
    assert "right, answering greedily on 400 held-out problems" in text  # without what words of it mean
    assert "Rollout 2 (" in text
    assert "checkpoint rl-20, token 3 “" in text
    assert "Listed are those with “4”, “Right answer”. index.html#r=2&" in text
    assert "file:" not in text
    address = text[text.index("#r=") :]

    other = Opened(browser, report.as_uri() + address)
    other.opens(2)
    chosen = "() => ['find', 'outcome'].map((id) => document.getElementById(id).value)"
    assert other.page.evaluate(chosen) == page.evaluate(chosen)
    assert other.page.locator("#heads [aria-sort]").inner_text() == "Length"
    assert other.text("#count") == opened.text("#count")
    assert other.page.locator("#panel .divergence").input_value() == "kl_forward"
    assert other.page.locator("#accuracy details.evidence").get_attribute("open") is not None
    assert other.page.locator("#how-often-is-it-right").get_attribute("open") is not None
    other.close(report.as_uri())


def test_what_is_copied_of_an_untouched_page_is_the_rollout_that_panel_and_first_screen_show(opened: Opened) -> None:
    hero = opened.page.evaluate("pageData.rollouts.hero")
    assert opened.text("#which") == f"Rollout {hero}"
    assert opened.text("#hero .why").startswith(f"Rollout {hero}: of ")
    assert opened.pinned("hero") == opened.pinned()
    text = copied(opened)
    assert f"Rollout {hero} (" in text
    assert opened.text("#copy") == f"Copied: rollout {hero}"
    assert f"#r={hero}&" in text


def test_a_verdict_has_an_address(browser: Any, report: Path) -> None:
    page = Opened(browser, f"{report.as_uri()}#cause")
    page.until("() => Math.abs(document.getElementById('cause').getBoundingClientRect().top) < 200")
    page.close(report.as_uri())


def test_rows_open_with_links_to_their_rollouts_and_as_a_file(opened: Opened) -> None:
    place = opened.page.locator("#place")
    place.locator("details.evidence > summary").click()
    opened.until("() => document.querySelectorAll('#place .table-of-rows tbody tr').length > 5")
    assert place.locator(".table-of-rows th").first.inner_text() == "problem"
    with opened.page.expect_download() as download:
        place.locator(".behind > button").click()
    lines = Path(download.value.path()).read_text(encoding="utf-8").splitlines()
    assert lines[0].split(",")[:3] == ["problem", "rollout", "token"]
    assert len(lines) == 1 + place.locator(".table-of-rows tbody tr").count()
    place.locator(".table-of-rows a").nth(2).click()
    opened.opens(1)


def test_a_word_of_the_field_is_explained_where_it_first_stands(opened: Opened) -> None:
    word = opened.page.locator(".term", has_text="rollout").first
    meaning = word.locator(".meaning")
    assert not meaning.is_visible()
    word.focus()
    assert meaning.is_visible()
    assert meaning.inner_text() == "An answer that a model wrote to a problem, token by token."
    opened.page.keyboard.press("Escape")
    assert not meaning.is_visible()


def test_of_many_rows_it_is_told_which_are_there(browser: Any, tmp_path: Path) -> None:
    many = Evidence(
        id="many", table="eval/a.parquet", columns={name: range(MAX_CELLS) for name in ("problem", "value")}
    )
    page = render(ReportPage(title="t", sentence="s", verdicts=(Verdict(id="many", title="Many", evidence=many),)))
    path = tmp_path / "page.html"
    path.write_text(page, encoding="utf-8")
    opened = browser.new_page()
    opened.goto(path.as_uri())
    opened.locator("#many details.evidence > summary").click()
    rows = opened.locator("#many .table-of-rows tbody tr")
    rows.first.wait_for()
    assert rows.count() == 200
    assert opened.locator("#many .held-rows").inner_text() == (
        "Here are 200 of 16,000 rows; the CSV has the first 8,000, which the headings sort; the lines below make all."
    )
    # The heading sorts all rows of the page, not only those that are shown.
    opened.locator("#many th button", has_text="value").click()
    assert rows.first.inner_text().split() == ["7999", "7999"]
    assert rows.count() == 200
    opened.close()


def test_tables_are_sorted_by_keyboard_and_a_link_keeps_it(browser: Any, report: Path, opened: Opened) -> None:
    page = opened.page
    page.locator("#place details.evidence > summary").click()
    heading = page.locator("#place .table-of-rows th", has_text="token").first
    heading.locator("button").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    assert heading.get_attribute("aria-sort") == "ascending"
    shown = page.locator("#place .table-of-rows tbody tr td:nth-child(3)").all_inner_texts()
    numbers = [int(text) for text in shown if text.isdecimal()]
    assert numbers == sorted(numbers)
    assert len({*numbers}) > 1
    page.locator("#how-often-is-it-right > summary").click()
    page.locator("#how-often-is-it-right thead button").nth(1).click()
    own = page.locator("#how-often-is-it-right table").first.inner_text()
    text = copied(opened)

    other = Opened(browser, report.as_uri() + text[text.index("#r=") :])
    assert other.page.locator("#place .table-of-rows [aria-sort=ascending]").inner_text() == "token"
    assert other.page.locator("#place .table-of-rows tbody tr td:nth-child(3)").all_inner_texts() == shown
    assert other.page.locator("#how-often-is-it-right table").first.inner_text() == own
    other.close(report.as_uri())
