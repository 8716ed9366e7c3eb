"""The page in headless Chromium, opened as a file."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import TOPK_SCHEMA, read_table

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium on this machine")
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        )
        yield launched
        launched.close()


@pytest.fixture
def page(browser: Any, report: Path) -> Iterator[Any]:
    """The opened page; its complaints, requests and dialogs must be none when a test ends."""
    opened = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
    complaints: list[str] = []
    requests: list[str] = []
    opened.on("console", lambda message: complaints.append(message.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("dialog", lambda dialog: complaints.append(f"dialog {dialog.message}") or dialog.dismiss())
    opened.on("request", lambda request: requests.append(request.url))
    opened.goto(report.as_uri())
    yield opened
    assert complaints == []
    assert [url for url in requests if not url.startswith("data:")] == [report.as_uri()]
    opened.close()


def background(page: Any, position: int) -> str:
    return str(page.locator(f".token[data-position='{position}']").evaluate("e => getComputedStyle(e).backgroundColor"))


def top_position(page: Any) -> int:
    return int(page.locator("#trace .token.top").get_attribute("data-position"))


def test_opens_without_errors_and_draws_every_curve(page: Any) -> None:
    assert page.locator(".chart .u-wrap canvas").count() == 7
    assert page.locator("#trace .token").count() > 50
    assert page.locator("#rollout-list [role=option]").count() == 12


def test_hover_shows_the_top_tokens_of_both_models(page: Any, run: RunDirectory) -> None:
    position = top_position(page)
    page.locator(f".token[data-position='{position}']").hover()
    tooltip = page.locator("#tooltip")
    assert tooltip.is_visible()
    rows = read_table(run.probe_path / "topk.parquet", TOPK_SCHEMA).to_pylist()
    for model, label in enumerate(("dpo-8", "rl-80")):
        row = next(r for r in rows if (r["sequence_id"], r["position"], r["checkpoint"]) == (0, position, label))
        shown = tooltip.locator(".tip-models > div").nth(model)
        assert shown.locator("h4").inner_text().startswith(label)
        assert shown.locator("code").all_inner_texts() == row["tokens"]
        expected = ["<0.1%" if round(p, 4) < 0.001 else f"{100 * p:.1f}%" for p in row["probs"]]
        assert shown.locator(".prob").all_inner_texts() == expected
    assert "First wrong step: a right step has 1 here" in tooltip.inner_text()
    page.mouse.move(2, 2)
    assert not tooltip.is_visible()


def test_slider_recolours_and_works_from_the_keyboard(page: Any) -> None:
    position = top_position(page)
    slider = page.locator("#checkpoint")
    assert page.locator("#checkpoint-label b").inner_text() == "rl-80"
    late = background(page, position)
    slider.focus()
    page.keyboard.press("Home")
    assert page.locator("#checkpoint-label b").inner_text() == "rl-5"
    assert slider.get_attribute("aria-valuetext") == "rl-5"
    early = background(page, position)
    assert early != late
    page.keyboard.press("ArrowRight")
    assert page.locator("#checkpoint-label b").inner_text() == "rl-10"
    page.keyboard.press("End")
    assert background(page, position) == late


def test_divergence_and_scale_recolour(page: Any) -> None:
    position = top_position(page)
    seen = {background(page, position)}
    for name in ("kl_forward", "kl_reverse"):
        page.locator(f"input[value={name}]").check()
        seen.add(background(page, position))
    assert page.locator("#legend").inner_text().startswith("Reverse KL, nats")
    page.locator("input[value=log]").check()
    seen.add(background(page, position))
    assert len(seen) == 4


def test_tokens_are_reached_and_read_with_the_keyboard(page: Any) -> None:
    page.locator("#trace .token").first.focus()
    tooltip = page.locator("#tooltip")
    assert "position 0" in tooltip.inner_text()
    page.keyboard.press("ArrowRight")
    assert "position 1" in tooltip.inner_text()
    page.keyboard.press("ArrowDown")
    below = page.evaluate("Number(document.activeElement.dataset.position)")
    # A line of the trace has thirteen tokens: `4 + 6 + 0 = 1 0 write 0 carry 1 ;`.
    assert below == 14
    page.keyboard.press("Escape")
    assert not tooltip.is_visible()
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.textContent") == "<eos>"


def test_hovering_moves_nothing(page: Any) -> None:
    boxes = (
        "() => [...document.querySelectorAll('section, .token')].map((e) => JSON.stringify(e.getBoundingClientRect()))"
    )
    page.locator("#trace").scroll_into_view_if_needed()
    before = page.evaluate(boxes)
    page.locator("#trace .token").nth(8).hover()
    assert page.locator("#tooltip").is_visible()
    assert page.evaluate(boxes) == before


def test_the_reader_chooses_the_population(page: Any) -> None:
    select = page.locator("#population")
    assert select.locator("option").all_inner_texts() == ["dpo-8 wrong, rl-80 right: 12", "dpo-8 right: 2"]
    assert page.locator("#population-note").inner_text() == (
        "Completions of dpo-8, with a wrong answer where rl-80 is right."
    )
    select.focus()
    page.keyboard.press("ArrowDown")
    select.dispatch_event("change")
    assert page.locator("#rollout-list [role=option]").count() == 2
    assert (
        page.locator("#rollout-list [aria-selected=true] .option-detail").inner_text().endswith("no wrong step known")
    )
    assert page.locator("#population-note").inner_text() == "Completions of dpo-8, with a right answer."
    assert page.locator("#trace .token.wrong").count() == 0
    page.locator("#trace .token").nth(3).hover()
    tooltip = page.locator("#tooltip").inner_text()
    assert "position 3" in tooltip
    assert "top tokens not measured" in tooltip
    page.locator("#trace .token.top").hover()
    assert "Highest JS of the rollout\n" in page.locator("#tooltip").inner_text()


def test_the_causal_test_of_a_rollout_has_its_controls_and_the_third_token(page: Any) -> None:
    shown = page.locator("#causal-rollout")
    heads = shown.locator(".trial-head").all_inner_texts()
    assert [head.split(",")[0] for head in heads] == [
        "At the top spike",
        "At a matched position",
        "At a random position",
    ]
    assert shown.locator(".trial").count() == 9
    assert shown.locator(".trial").nth(2).inner_text().startswith("9 of neither")


def test_a_dose_curve_is_read_at_its_own_points(page: Any) -> None:
    chart = page.locator("#chart-dose-checkpoint-into-reference")
    readout = chart.locator(".readout").inner_text()
    assert "JS 90.0% (83.0% to 97.0%) at 11.0%" in readout
    assert "Random 54.9% (47.9% to 61.9%) at 9.2%" in readout
    chart.scroll_into_view_if_needed()
    box = chart.locator(".u-over").bounding_box()
    page.mouse.move(box["x"] + 3, box["y"] + box["height"] / 2)
    page.wait_for_timeout(100)
    assert "JS 51.0%" in chart.locator(".readout").inner_text()


def test_long_tables_open_from_the_keyboard(page: Any) -> None:
    folded = page.locator("details.folded").first
    assert not folded.locator("table").is_visible()
    folded.locator("summary").focus()
    page.keyboard.press("Enter")
    assert folded.locator("table").is_visible()


def test_a_hostile_rollout_stays_text(page: Any, synthetic: Any) -> None:
    page.locator("#rollout-list [role=option]").last.click()
    tokens = page.locator("#trace .token")
    assert tokens.nth(0).text_content() == "</script><img onerror=alert(1) src=x>"
    assert synthetic.HOSTILE_TEXT in page.locator("#trace").evaluate("e => e.textContent")
    tokens.nth(0).hover()
    assert "</script>" in page.locator("#tooltip").inner_text()
    assert page.locator("img").count() == 0
    assert page.locator("b b, script[src]").count() == 0


def test_list_and_filter_choose_rollouts(page: Any) -> None:
    page.locator("#rollout-list [aria-selected=true]").focus()
    question = page.locator("#facts dd").first.inner_text()
    page.keyboard.press("ArrowDown")
    assert page.locator("#facts dd").first.inner_text() != question
    assert page.locator("#rollout-list [aria-selected=true]").count() == 1
    page.locator("#filter").select_option("first")
    assert page.locator("#rollout-list [role=option]").count() == 12
    page.locator("#filter").select_option("other")
    assert page.locator("#rollout-list .empty").inner_text() == "No rollout of this sort at this checkpoint."


def test_play_walks_through_the_checkpoints(page: Any) -> None:
    page.locator("#play").click()
    assert page.locator("#checkpoint-label b").inner_text() == "rl-5"
    page.locator("#checkpoint-label b", has_text="rl-10").wait_for(timeout=5000)
    page.locator("#play").click()


@pytest.mark.parametrize("width", [1280, 700, 390])
def test_no_width_scrolls_sideways(page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.wait_for_timeout(100)
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_dark_mode_follows_the_system(page: Any) -> None:
    position = top_position(page)
    light = background(page, position)
    page.emulate_media(color_scheme="dark")
    page.wait_for_timeout(200)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 21, 26)"
    assert background(page, position) != light


@pytest.fixture
def answers_page(browser: Any, answers_only_report: Path) -> Iterator[Any]:
    """The opened page of a mixture whose steps nobody checks; it must not complain."""
    opened = browser.new_page(viewport={"width": 1280, "height": 900})
    complaints: list[str] = []
    opened.on("console", lambda message: complaints.append(message.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.goto(answers_only_report.as_uri())
    yield opened
    assert complaints == []
    opened.close()


def test_without_known_wrong_steps_the_rollouts_do_not_speak_of_them(answers_page: Any, page: Any) -> None:
    assert not answers_page.locator("#filter").is_visible()
    assert "wrong step" not in answers_page.locator("#viewer").inner_text()
    assert answers_page.locator("#trace .token.top").count() == 1
    assert page.locator("#filter").is_visible()
    assert "first wrong step" in page.locator("#legend").inner_text()


def test_odd_names_of_kinds_are_shown_as_they_are_and_fit(answers_page: Any) -> None:
    names = answers_page.locator("#table-kinds tbody th").all_text_contents()
    assert len(names) == 12
    assert {"<b>3 people</b>", "{{ braces }}", "\u202eright to left"} <= set(names)
    answers_page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    for width in (1280, 700, 390):
        answers_page.set_viewport_size({"width": width, "height": 800})
        answers_page.wait_for_timeout(100)
        assert answers_page.evaluate("document.documentElement.scrollWidth") == width
        clipped = "(all) => all.filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.textContent)"
        assert answers_page.locator(".wide .dot-name").evaluate_all(clipped) == []


def test_curves_of_training_are_drawn_with_their_own_axes(answers_page: Any) -> None:
    failures = answers_page.locator("#chart-training-failures")
    assert failures.locator("canvas").count() == 1
    assert failures.locator(".readout").inner_text() == "rl-5, global step 8\n No answer found 0.0%".replace(
        "\n ", "\n"
    )
    assert answers_page.locator("#chart-training-difficulty .readout b").inner_text() == "3.00"
