"""The pages of `swerve view` in headless Chromium: sorted, searched, and drawn again as a run is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from swerve.artifacts.response_columns import ROLLOUTS_SCHEMA
from swerve.artifacts.responses import write_responses
from swerve.artifacts.run import RunDirectory
from swerve.report import rollouts
from tests.artifacts.test_samples import EASY, RIGHT, _sample
from tests.report.synthetic_run import write_synthetic_run
from tests.view.test_view import Client, serve, step, training_run

pytestmark = [pytest.mark.browser, pytest.mark.slow]

HOSTILE = "</pre><img src=x onerror=alert(1)><script>alert(1)</script>"


@pytest.fixture
def client(filled: Any, tmp_path: Path) -> Iterator[Client]:
    write_synthetic_run(tmp_path / "whole", num_rollouts=3, filled=filled)
    for number in (9, 10):
        run = training_run(tmp_path / f"now-{number}")
        for place in range(1, number + 1):
            step(run, place, reward=place / 10)
    with serve(tmp_path) as client:
        yield client


@pytest.fixture
def page(client: Client, browser: Any) -> Iterator[Any]:
    page = browser.new_page(viewport={"width": 390, "height": 800})
    page.complaints = []
    page.on("console", lambda message: page.complaints.append(message.text))
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.goto(client.server.url)
    page.wait_for_selector("#items tr:nth-child(3)")
    yield page
    assert page.complaints == []
    page.close()


def names(page: Any) -> list[str]:
    return list(page.eval_on_selector_all("#items a", "links => links.map(link => link.textContent)"))


def test_the_list_is_sorted_searched_and_follows_the_folder(page: Any, client: Client) -> None:
    page.click("th button:text-is('Steps')")
    assert names(page)[:2] == ["whole", "now-10"]
    page.click("th button:text-is('Steps')")
    assert names(page)[:2] == ["now-9", "now-10"]
    assert page.get_attribute("th[aria-sort]", "aria-sort") == "ascending"

    # A new run takes its place in the order that the reader chose; the focus stays.
    page.focus("text=now-10")
    step(training_run(client.server.catalogue.folder / "newest"), 1, reward=0.5)
    page.wait_for_selector("text=newest", timeout=60_000)
    assert names(page) == ["newest", "now-9", "now-10", "whole"]
    assert page.evaluate("document.activeElement.textContent") == "now-10"
    page.fill("#find", "NOW")
    assert page.eval_on_selector_all("#items tr", "rows => rows.map(row => row.hidden)") == [True, False, False, True]
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_a_page_says_that_its_server_has_ended(page: Any) -> None:
    assert not page.is_visible("#away")
    page.route("**/list.json", lambda route: route.abort())
    page.wait_for_selector("#away:not([hidden])", timeout=60_000)
    assert len(names(page)) == 3
    page.unroute("**/list.json")
    page.wait_for_selector("#away", state="hidden", timeout=60_000)
    assert all("net::ERR_FAILED" in complaint for complaint in page.complaints)
    page.complaints.clear()


def test_a_run_in_training_is_drawn_again_and_its_end_is_told(page: Any, client: Client) -> None:
    run = RunDirectory(client.server.catalogue.folder / "now-9")
    with run.lock():
        page.goto(f"{client.server.url}{client.entries()['now-9']['key']}/live")
        page.wait_for_selector("text=steps 9/3")
        (first,) = (plot.get_attribute("d") for plot in page.query_selector_all(".plot .line"))
        sample = replace(_sample(EASY, 0, RIGHT), text=HOSTILE)
        write_responses(run.rollouts_path(10), [sample], ROLLOUTS_SCHEMA, table="rollouts")
        step(run, 10, reward=0.125)
        page.wait_for_selector("text=steps 10/3", timeout=60_000)
        (second,) = (plot.get_attribute("d") for plot in page.query_selector_all(".plot .line"))
        assert second != first
        (shown,) = page.query_selector_all("#samples article")
        assert (shown.get_attribute("class"), shown.inner_text().split("\n")[0]) == (
            "right",
            "math-1 right, reward 1.000",
        )
        assert shown.query_selector("pre").text_content() == HOSTILE
        assert page.query_selector("#samples :is(img, script)") is None
    page.wait_for_selector("h1:text-is('now-9: killed')", timeout=60_000)


def test_rollouts_beyond_the_page_come_from_the_server(
    page: Any, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollouts, "MAX_CELLS", 1)
    with page.expect_response("**/rollouts/1") as answer:
        page.goto(f"{client.server.url}{client.entries()['whole']['key']}/#r=1")
    assert answer.value.status == 200
    page.wait_for_selector("#panel .k")
