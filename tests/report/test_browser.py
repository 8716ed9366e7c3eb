"""The page in headless Chromium, opened as a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import TOPK_SCHEMA, read_table
from swerve.report.page import Page, render
from tests.report.opened_page import Opened

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture
def opened(browser: Any, report: Path) -> Iterator[Opened]:
    """The page of the synthetic run; it must not complain, ask for anything or open a dialog."""
    page = Opened(browser, report.as_uri())
    yield page
    page.close(report.as_uri())


def test_the_first_screen_has_a_rollout_with_its_spike(opened: Opened, index: Any) -> None:
    first = index["rollouts"][index["hero"]]
    assert opened.pinned("hero") == first["position"] == first["wrong"]
    assert opened.token(0, "hero").bounding_box()["y"] < 500
    assert opened.page.locator("#hero .model h4 b").all_inner_texts() == ["dpo-8", "rl-80"]
    assert opened.text("#hero .wanted") == "The first wrong step: a right step has “1” here."
    assert opened.text("#hero .why") == index["why"]
    assert opened.page.locator("#hero .k.wrong").count() == 2  # the step, and the mark that explains it


def test_pointing_shows_both_models_tokens_and_moves_nothing(opened: Opened, run: RunDirectory, index: Any) -> None:
    hero, pinned = index["hero"], opened.pinned("hero")
    boxes = "() => [...document.querySelectorAll('.k')].map((e) => JSON.stringify(e.getBoundingClientRect()))"
    before = opened.page.evaluate(boxes)
    opened.token(pinned + 2, "hero").hover()
    assert opened.page.evaluate(boxes) == before
    assert opened.pinned("hero") == pinned

    rows = read_table(run.probe_path / "topk.parquet", TOPK_SCHEMA).to_pylist()
    for position in (pinned + 2, pinned):
        opened.token(position, "hero").hover()
        for model, label in enumerate(("dpo-8", "rl-80")):
            wanted = (hero, position, label)
            row = next(r for r in rows if (r["sequence_id"], r["position"], r["checkpoint"]) == wanted)
            shown = opened.page.locator("#hero .model").nth(model)
            words = [word.replace("\u2028", "[U+2028]") for word in row["tokens"]]
            assert shown.locator(".word").all_inner_texts() == words
            shares = [float(text.strip("<>%")) / 100 for text in shown.locator(".share").all_inner_texts()]
            assert shares == pytest.approx(row["probs"], abs=0.0051)
    opened.token(pinned + 2, "hero").hover()
    opened.page.mouse.move(2, 2)
    written = opened.page.locator("#hero .model .written .word").first
    assert written.inner_text() == opened.token(pinned, "hero").inner_text() == "0"
    opened.token(pinned + 2, "hero").click()
    assert opened.pinned("hero") == pinned + 2


def test_the_slider_repaints_both_readers_and_makes_nothing_anew(opened: Opened, index: Any) -> None:
    pinned = opened.pinned("hero")
    places = [(pinned, "hero"), (opened.pinned(), "panel")]
    late = [opened.colour(*place) for place in places]
    opened.page.evaluate("() => document.querySelectorAll('.k, .top').forEach((e) => { e.kept = true; })")
    slider = opened.page.locator("#hero input[type=range]")
    slider.focus()
    opened.page.keyboard.press("Home")
    assert slider.get_attribute("aria-valuetext") == "rl-5"
    assert opened.text("#hero .now").startswith("rl-5: JS at “0” ")
    assert opened.text("#panel .now").startswith("rl-5")
    assert all(opened.colour(*place) != colour for place, colour in zip(places, late, strict=True))
    opened.page.keyboard.press("ArrowRight")
    assert slider.get_attribute("aria-valuetext") == "rl-10"
    opened.page.keyboard.press("End")
    assert [opened.colour(*place) for place in places] == late
    opened.page.locator("#hero .bars button").nth(2).click()
    assert slider.get_attribute("aria-valuetext") == "rl-20"
    assert opened.page.locator("#panel .bars .on").get_attribute("aria-label") == "rl-20"
    assert opened.page.evaluate("() => [...document.querySelectorAll('.k, .top')].every((e) => e.kept)")


def test_divergence_and_scale_repaint(opened: Opened) -> None:
    pinned = opened.pinned()
    seen = {opened.colour(pinned + 1)}
    opened.page.locator("#panel .curve").select_option("log")
    seen.add(opened.colour(pinned + 1))
    opened.page.locator("#panel .divergence").select_option("kl_reverse")
    assert opened.text("#panel .now").startswith("rl-80: Reverse KL at “0”")
    assert opened.text("#panel .key").startswith("a ten-thousandth")
    opened.page.locator("#panel .curve").select_option("sqrt")
    assert len(seen) == 2


def test_every_key_that_the_page_names(opened: Opened, index: Any) -> None:
    press, spike = opened.page.keyboard.press, opened.pinned("hero")
    press("ArrowLeft")
    assert opened.pinned("hero") == spike - 1
    press("n")
    assert opened.pinned("hero") == spike
    press("ArrowRight")
    press("p")
    assert opened.pinned("hero") == spike
    press("[")
    assert opened.text("#hero .now").startswith("rl-70")
    press("]")
    assert opened.text("#hero .now").startswith("rl-80")

    # Spike by spike through the text, and from its end to its start again.
    spikes = opened.page.evaluate("rollouts.hero.spikes()")
    assert spikes[0] == spike
    visited = []
    for _ in spikes:
        press("n")
        visited.append(opened.pinned("hero"))
    assert (sorted(visited), visited[-1]) == (sorted(spikes), spike)
    assert f", spike 1 of {len(spikes)} from the highest" in opened.page.evaluate(f"rollouts.hero.numbers({spike})")

    # Up and down move by lines, each of thirteen tokens: `4 + 6 + 0 = 1 0 write 0 carry 1 ;`.
    opened.token(1, "hero").click()
    press("ArrowDown")
    assert opened.pinned("hero") == 14
    press("ArrowUp")
    press("End")
    assert opened.page.locator("#hero .k.on").inner_text() == "<eos>"
    press("Home")
    assert opened.pinned("hero") == 0

    # Play begins anew after the last checkpoint.
    press(" ")
    assert opened.text("#hero .now").startswith("rl-5")
    opened.until("() => document.querySelector('#hero .now').textContent.startsWith('rl-10')")
    press(" ")
    assert opened.page.locator("#hero .play").get_attribute("aria-pressed") == "false"

    before = opened.text("#which")
    press("j")
    opened.until(f"() => document.getElementById('which').textContent !== '{before}'")
    press("k")
    opened.until(f"() => document.getElementById('which').textContent === '{before}'")
    press("/")
    assert opened.page.evaluate("document.activeElement.id") == "find"
    press("Escape")
    assert opened.page.evaluate("document.activeElement.id") != "find"


def test_the_list_is_sorted_by_click_and_by_keyboard(opened: Opened, index: Any) -> None:
    def column(kind: str) -> list[str]:
        texts: list[str] = opened.page.locator(f"#rows .{kind}").all_inner_texts()
        return texts

    def sorted_by() -> list[tuple[str, str]]:
        heads = opened.page.locator("#list th[aria-sort]")
        return [(head.inner_text(), head.get_attribute("aria-sort")) for head in heads.all()]

    gains = [changed - own for own, changed, _ in (entry["effect"] for entry in index["rollouts"] if entry["effect"])]
    assert sorted_by() == [("Repair", "descending")]
    shown = [text.split(" → ") for text in column("repair")]
    assert [int(cell[1]) - int(cell[0]) for cell in shown if len(cell) == 2] == sorted(gains, reverse=True)
    assert column("repair")[-2:] == ["", ""]  # what was not tested comes last, in both directions
    opened.page.locator("#list th", has_text="Repair").locator("button").click()
    assert sorted_by() == [("Repair", "ascending")]
    assert column("repair")[-2:] == ["", ""]

    peaks = sorted(entry["peak"] for entry in index["rollouts"])
    opened.page.locator("#list th", has_text="Peak").locator("button").click()
    assert [float(text) for text in column("peak")] == pytest.approx(peaks[::-1], rel=0.055)  # two digits
    opened.page.keyboard.press("Enter")
    assert sorted_by() == [("Peak", "ascending")]
    assert [float(text) for text in column("peak")] == pytest.approx(peaks, rel=0.055)

    # The arrow keys choose rows, Enter goes into the reader.
    opened.page.locator("#list").focus()
    opened.page.keyboard.press("Home")
    opened.until("() => document.querySelector('#rows .on') === document.querySelector('#rows tr:nth-child(2)')")
    opened.page.keyboard.press("ArrowDown")
    opened.until("() => document.querySelector('#rows .on') === document.querySelector('#rows tr:nth-child(3)')")
    assert opened.page.locator("#rows [aria-selected=true]").get_attribute("aria-rowindex") == "3"
    opened.page.keyboard.press("Enter")
    assert opened.page.evaluate("document.activeElement.parentNode.parentNode.parentNode.id") == "panel"


def test_the_list_is_searched_and_filtered(opened: Opened, index: Any) -> None:
    assert opened.text("#count") == "14 of 14"
    opened.page.locator("#find").fill(index["rollouts"][3]["question"].replace(" ", ""))
    assert opened.text("#count") == "1 of 14"
    opened.page.keyboard.press("Enter")
    opened.opens(3)
    opened.page.locator("#find").fill("no such rollout")
    assert opened.text("#rows") == "No rollout fits."
    opened.page.locator("#find").fill("")
    opened.page.locator("#population").select_option("1")
    assert opened.text("#count") == "2 of 14"
    assert opened.text("#population-note") == "Completions of dpo-8."

    # Beside each choice stands how many it would leave, with what else is chosen.
    assert "Right answer (2)" in opened.page.locator("#outcome option").all_inner_texts()
    opened.page.locator("#outcome").select_option(label="Wrong answer (0)")
    assert opened.text("#count") == "0 of 14"
    assert opened.page.locator("#population option").all_inner_texts()[1:] == [
        "dpo-8 wrong, rl-80 right (12)",
        "dpo-8 right (0)",
    ]
    opened.page.locator("#population").select_option("")
    assert opened.text("#count") == "12 of 14"
    assert "Wrong answer (12)" in opened.page.locator("#outcome option").all_inner_texts()
    assert opened.page.locator("#rows .answer s").count() == 12


def test_a_right_rollout_has_no_marks_and_says_what_is_not_known(opened: Opened) -> None:
    opened.go("#r=13&t=3")
    opened.opens(13)
    assert opened.page.locator("#panel .k.wrong:visible").count() == 0
    assert not opened.page.locator("#panel .models").is_visible()
    assert opened.text("#panel .swap") == "No token of this rollout was swapped."
    assert "Position 3 of 0 to" in opened.text("#panel .numbers")


def test_the_swap_stands_with_its_controls(opened: Opened, index: Any) -> None:
    opened.go("#r=2")
    opened.opens(2)
    own, changed, num = index["rollouts"][2]["effect"]
    claim = f"Write “1” instead of “0” and dpo-8 finishes right {changed} times out of {num}, not {own}."
    assert opened.text("#panel .swap").startswith(f"Is this token the cause? {claim}")
    assert opened.page.locator("#panel .dots svg").count() == 3
    assert opened.page.locator("#panel .dots .ours").count() == changed
    controls = [text.split(",")[0] for text in opened.page.locator("#panel .control").all_inner_texts()]
    assert controls == ["At a token like it", "At a random token"]
    opened.page.locator("#panel .control button").first.click()
    assert opened.pinned() == 4
    assert opened.page.locator("#hero .control").count() == 0


def test_the_map_leads_to_checkpoint_and_token(opened: Opened, index: Any) -> None:
    opened.go("#r=2&c=rl-20")
    opened.opens(2)
    marked, spike = opened.page.locator("#panel .map .on"), index["rollouts"][2]["position"]
    assert opened.page.locator("#panel .cells").count() == len(index["checkpoints"])
    assert marked.first.inner_text() == "20"
    row = opened.page.locator("#panel .cells").last.locator("i")
    levels = [int(name.split()[0].strip("q")) for name in row.evaluate_all("all => all.map((e) => e.className)")]
    assert levels.index(max(levels)) == spike  # a cell for each token of a short rollout
    row.nth(0).click()
    assert (opened.pinned(), marked.first.inner_text()) == (0, "80")
    row.nth(spike).click()
    assert opened.pinned() == spike


def test_what_the_final_checkpoint_writes_is_there_on_demand(opened: Opened) -> None:
    opened.go("#r=0")
    opened.opens(0)
    assert opened.text("#panel .own summary") == "What rl-80 writes itself"
    opened.page.locator("#panel .own summary").click()
    opened.until("() => document.querySelector('#panel .own .text').textContent.includes('answer')")
    assert opened.page.locator("#panel .own .soft").inner_text().endswith("carry ")


def test_a_hostile_rollout_stays_text(opened: Opened, synthetic: Any) -> None:
    opened.go("#r=11&t=0")
    opened.opens(11)
    assert opened.token(0).text_content() == "</script><img onerror=alert(1) src=x>"
    assert synthetic.HOSTILE_TEXT in opened.page.locator("#panel .tokens").evaluate("e => e.textContent")
    assert "</script>" in opened.text("#panel .numbers")
    opened.token(4).hover()
    assert "'\"&[U+2028]" in opened.text("#panel .numbers")
    assert opened.page.locator("img:not([src^='data:image/png']), script[src], .tokens b").count() == 0


def test_a_link_opens_rollout_checkpoint_and_token(browser: Any, report: Path, opened: Opened) -> None:
    opened.page.keyboard.press(" ")  # a link ends playing
    opened.go("#r=5&c=rl-20&t=7")
    opened.opens(5)
    assert opened.page.locator("#panel .play").get_attribute("aria-pressed") == "false"
    opened.page.keyboard.press("ArrowRight")
    opened.page.keyboard.press("]")
    opened.page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    opened.page.locator("#copy").click()
    opened.until("() => document.getElementById('copy').textContent === 'Copied: rollout 5'")
    address = opened.page.evaluate("location.href")
    assert address == f"{report.as_uri()}#r=5&c=rl-30&t=8"

    other = Opened(browser, address)
    other.opens(5)
    assert other.pinned() == 8
    assert other.text("#panel .now").startswith("rl-30")
    assert 0 <= other.token(8).bounding_box()["y"] < 900
    other.go("#r=6&c=rl-5&t=999")
    other.opens(6)
    assert other.page.locator("#panel .k.on").inner_text() == "<eos>"
    for unknown in ("#r=99", "#r=-1&t=2", "#r=length&c=__proto__", "#t=3", "#%"):
        other.go(unknown)
        other.page.wait_for_timeout(50)
        assert (other.text("#which"), other.text("#panel .now")[:4]) == ("Rollout 6", "rl-5")
    other.close(address)


SLOW = """() => {
  const read = readRollout;
  readRollout = async (number) => {
    await new Promise((resolve) => { setTimeout(resolve, number === 3 ? 300 : 100); });
    return read(number);
  };
}"""


def test_of_several_rollouts_the_one_asked_for_last_is_shown(opened: Opened) -> None:
    opened.page.evaluate(SLOW)
    opened.page.evaluate("() => { for (const number of [3, 4]) document.getElementById(`row-${number}`).click(); }")
    opened.opens(4)
    opened.page.wait_for_timeout(400)
    assert opened.text("#which") == "Rollout 4"
    assert opened.page.locator("#rows .on").get_attribute("id") == "row-4"
    assert opened.page.evaluate("location.hash").startswith("#r=4&")

    # Keys that come faster than rollouts open move a row each.
    opened.page.locator("#list").focus()
    for key in ("Home", "ArrowDown", "ArrowDown"):
        opened.page.keyboard.press(key)
    third = opened.page.locator("#rows tr:nth-child(4)")
    assert "on" in third.get_attribute("class")
    opened.opens(int(third.get_attribute("id").removeprefix("row-")))


INSIDE = """() => {
  const tokens = document.querySelector("#panel .tokens"), token = tokens.querySelector("[data-at='9000']");
  if (!token) return false;
  const [box, own] = [tokens, token].map((one) => one.getBoundingClientRect());
  return box.top <= own.top && own.top <= box.bottom;
}"""
FAKE = """(texts) => {
  const tokens = Array.from({ length: 10000 }, (_, k) => (k % 150 === 149 ? ".\\n" : texts[k % texts.length]));
  const values = Float32Array.from(tokens, (_, k) => (k === 9000 ? 0.6 : 0.001));
  const none = () => null, noSpikes = pageData.rollouts.checkpoints.map(() => []);
  readRollout = async () => ({
    tokens, gaps: new Array(tokens.length + 1).fill(" "), words: tokens, categories: tokens.map(() => "word"),
    wrong: [], given: new Set(), spikes: { js: noSpikes }, swaps: [], finalText: null,
    column: () => values, ofReference: none, top: none,
  });
  pageData.rollouts.rollouts[4].position = 9000;
  location.hash = "#r=4";
}"""


def test_ten_thousand_tokens_of_any_script_open_at_the_spike(opened: Opened) -> None:
    opened.page.evaluate(FAKE, ["שלום", "مرحبا", "12", "\u202eabc"])
    opened.opens(4)
    opened.until(INSIDE)
    assert opened.pinned() == 9000
    assert opened.page.locator("#panel .k").count() < 2500
    assert opened.token(9000).evaluate("e => getComputedStyle(e).direction") == "rtl"
    assert opened.token(9003).evaluate("e => getComputedStyle(e).unicodeBidi") == "isolate"
    assert not opened.page.locator("#panel .models, #panel .swap h3").first.is_visible()
    opened.page.locator("#panel .tokens").evaluate("e => { e.scrollTop = 0; }")
    opened.until("() => document.querySelector(\"#panel [data-at='0']\")?.className.includes('q1')")


ONE = """() => {
  const [value, none] = [Float32Array.of(NaN), () => null];
  const noSpikes = pageData.rollouts.checkpoints.map(() => []);
  readRollout = async () => ({
    tokens: ["yes"], gaps: ["", ""], words: ["yes"], categories: [""], wrong: [], given: new Set(),
    spikes: { js: noSpikes }, swaps: [],
    finalText: null, column: () => value, ofReference: none, top: none,
  });
  Object.assign(pageData.rollouts.rollouts[4], { position: null, length: 1 });
  location.hash = "#r=4";
}"""


def test_one_token_whose_divergence_is_not_finite(opened: Opened) -> None:
    opened.page.evaluate(ONE)
    opened.opens(4)
    for key in ("n", "p", "ArrowLeft", "ArrowRight", "[", "End"):
        opened.page.keyboard.press(key)
    opened.page.locator("#panel .tokens").focus()
    for key in ("ArrowUp", "ArrowDown", "Enter"):
        opened.page.keyboard.press(key)
    assert opened.pinned() == 0
    assert opened.text("#panel .now").startswith("rl-70: JS at “yes” not finite")
    bars = opened.page.locator("#panel .bars i")
    assert {(bar.get_attribute("class"), bar.evaluate("e => e.style.height")) for bar in bars.all()} == {
        ("q15", "100%")
    }
    assert {cells.locator("i").count() for cells in opened.page.locator("#panel .cells").all()} == {1}


def test_a_rollout_without_tokens_says_so(opened: Opened) -> None:
    opened.page.evaluate("() => { pageData.rollouts.rollouts[4].length = 0; location.hash = '#r=4'; }")
    opened.opens(4)
    assert opened.text("#panel .closed") == "This rollout has no tokens."
    opened.page.keyboard.press("n")
    # A list of such rollouts alone has neither peaks nor repairs to sort by.
    opened.page.evaluate(
        "() => { for (const entry of pageData.rollouts.rollouts) entry.peak = entry.effect = entry.position = null; }"
    )
    assert opened.page.evaluate("() => new RolloutList(rollouts).items.sorted.name") == "Problem"
    assert opened.page.evaluate("sparkline('').querySelector('.strokes').getAttribute('stroke-width')") == "89.6"


def test_a_rollout_that_is_not_held_says_who_opens_it(opened: Opened) -> None:
    opened.page.evaluate(
        "() => { document.getElementById('r7').remove(); pageData.rollouts.rollouts[7].held = false; }"
    )
    opened.go("#r=7")
    opened.opens(7)
    assert opened.text("#panel .closed").endswith("swerve view opens them.")
    assert not opened.page.locator("#panel .halves").is_visible()
    opened.page.keyboard.press("ArrowRight")
    opened.go("#r=6")
    opened.opens(6)
    assert opened.page.locator("#panel .tokens").is_visible()


LUMINANCE = """(theme) => {
  document.documentElement.dataset.theme = theme;
  const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const luminance = (colour) => {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
    const parts = [...context.getImageData(0, 0, 1, 1).data].slice(0, 3).map((c) => c / 255);
    const linear = parts.map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const shades = Array.from({ length: 16 }, (_, level) => {
    const span = document.querySelector("#panel .k");
    span.className = `k q${level}`;
    const style = getComputedStyle(span);
    const back = level ? style.backgroundColor : getComputedStyle(document.getElementById("dock")).backgroundColor;
    return [luminance(style.color), luminance(back)];
  });
  return shades.map(([ink, paper]) => (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05));
}"""


def test_text_can_be_read_on_every_shade_of_both_themes(opened: Opened) -> None:
    for theme in ("light", "dark"):
        assert min(opened.page.evaluate(LUMINANCE, theme)) >= 4.5
    for background, offered in (("rgb(21, 20, 19)", "Dark"), ("rgb(255, 254, 252)", "Light")):
        assert opened.page.evaluate("getComputedStyle(document.body).backgroundColor") == background
        opened.page.locator("#theme").click()
        assert opened.text("#theme") == offered


OVERFLOWING = """() => {
  document.querySelectorAll("details").forEach((fold) => { fold.open = true; });
  const hasHint = (element) => element.closest(".scroll, .list, .tokens, select");
  const cells = [...document.querySelectorAll("td, th, p, h1, h2, h3, h4, li, dd, span, b, text")];
  const beyond = cells.filter((cell) => !hasHint(cell) && cell.getBoundingClientRect().right > innerWidth + 1);
  return [document.documentElement.scrollWidth, beyond.map((cell) => cell.textContent)];
}"""


def test_nothing_is_wider_than_the_page(opened: Opened, browser: Any, answers_only_report: Path) -> None:
    other = Opened(browser, answers_only_report.as_uri())
    for page in (opened, other):
        for width in (1280, 700, 390):
            page.page.set_viewport_size({"width": width, "height": 900})
            page.page.wait_for_timeout(200)
            assert page.page.evaluate(OVERFLOWING) == [width, []]
    other.close(answers_only_report.as_uri())


TABLE = """(isRising) => {
  const texts = ["not measured", "+1.5 (1 to 2)", "1,200", "\u22122", "1.23e-7"];
  const rows = texts.map((text) => element("tr", {}, element("th", {}, "x"), element("td", {}, text)));
  const table = element("table", {}, element("tbody", {}, ...rows));
  sortTable(table, 1, isRising);
  return [...table.querySelectorAll("td")].map((cell) => cell.textContent.split(" ")[0]);
}"""


def test_tables_sort_by_number_and_what_was_not_measured_comes_last(opened: Opened) -> None:
    assert opened.page.evaluate(TABLE, True) == ["\u22122", "1.23e-7", "+1.5", "1,200", "not"]
    assert opened.page.evaluate(TABLE, False) == ["1,200", "+1.5", "1.23e-7", "\u22122", "not"]


EMPTY = """(isListed) => {
  const rows = element("div", { class: "rows" }, ...(isListed ? [element("table", {})] : []));
  rows.dataset.id = "mine";
  const others = [...document.querySelectorAll(".rows")];
  others.forEach((each) => each.classList.remove("rows"));
  document.body.append(rows);
  startSaving({ mine: "a,b" });
  rows.remove();
  others.forEach((each) => each.classList.add("rows"));
  return rows.querySelectorAll(".save button").length;
}"""


def test_plots_and_tables_are_saved(opened: Opened) -> None:
    saved = {}
    rows = opened.page.locator(".verdict.rows").first
    for name in ("SVG", "PNG", "CSV"):
        with opened.page.expect_download() as download:
            rows.locator(".save button", has_text=name).click()
        path = Path(download.value.path())
        saved[download.value.suggested_filename] = path.read_bytes()
    id = rows.get_attribute("data-id")
    assert list(saved) == [f"{id}.svg", f"{id}.png", f"{id}.csv"]
    svg, png, csv = saved.values()
    assert ElementTree.fromstring(svg).get("width") == "640"
    assert b"var(" not in svg
    assert (png[:8], int.from_bytes(png[16:20], "big")) == (b"\x89PNG\r\n\x1a\n", 1920)
    assert csv.decode() == opened.page.evaluate("(id) => pageData.csv[id]", id)


PRINTED = """(names) => {
  const list = document.getElementById("list");
  list.style.height = "130px";
  list.scrollTop = 86;
  return names.map((name) => (dispatchEvent(new Event(name)), list.scrollTop));
}"""


def test_the_top_of_the_list_is_printed_with_its_headings(opened: Opened) -> None:
    assert opened.page.evaluate(PRINTED, ["beforeprint", "afterprint"]) == [0, 86]


def test_the_list_begins_with_a_whole_row_where_it_shows_the_chosen_one(opened: Opened) -> None:
    opened.page.evaluate("document.getElementById('list').style.height = '150px'")
    opened.page.locator("#list").focus()
    for _ in range(8):
        opened.page.keyboard.press("j")
    top = opened.page.evaluate("document.getElementById('list').scrollTop")
    assert top > 0
    assert top % 43 == 0


def test_numbers_that_are_neither_drawn_nor_listed_have_no_button_without_a_figure(opened: Opened) -> None:
    assert opened.page.evaluate(EMPTY, False) == 0
    assert opened.page.evaluate(EMPTY, True) == 1


def test_a_page_without_rollouts_is_shared_too(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "index.html"
    path.write_text(render(Page(title="Samples", sentence="Nothing was compared.")), encoding="utf-8")
    page, complaints = browser.new_page(), []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(path.as_uri())
    page.locator("#copy").click()
    page.locator("#copy", has_text="Copied").wait_for(timeout=20_000)
    assert complaints == []
    page.close()


def test_a_phone_has_the_rollout_in_a_sheet_from_below(browser: Any, report: Path) -> None:
    phone = Opened(browser, report.as_uri(), width=390)
    assert phone.token(0, "hero").bounding_box()["y"] < 700
    assert not phone.page.locator("#dock").is_visible()
    phone.page.locator("#rows tr").nth(2).click()
    sheet = phone.page.locator("#dock").bounding_box()
    assert sheet["y"] + sheet["height"] == 900
    assert sheet["width"] == 390
    phone.token(6).click()
    assert phone.pinned() == 6
    phone.page.locator("#close").click()
    assert not phone.page.locator("#dock").is_visible()
    phone.page.locator("#rows tr").nth(2).click()
    assert phone.page.locator("#dock").is_visible()
    phone.page.keyboard.press("Escape")
    assert not phone.page.locator("#dock").is_visible()
    phone.close(report.as_uri())


def test_what_nobody_measured_takes_no_place(browser: Any, answers_only_report: Path) -> None:
    page = Opened(browser, answers_only_report.as_uri())
    assert "wrong step" not in page.text("#hero") + page.text("#rollouts")
    assert page.page.locator("#hero .k.on").count() == 1
    assert page.page.locator(".key-wrong").first.is_hidden()
    page.close(answers_only_report.as_uri())
