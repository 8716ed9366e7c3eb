"""The list of tokens, the search of responses, the picture, what is held beside and what is saved, in Chromium."""

from __future__ import annotations

import contextlib
import csv
import io
import math
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import swerve
from swerve.artifacts.run import RunDirectory
from tests.report.opened_page import Opened

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture
def opened(browser: Any, report: Path) -> Iterator[Opened]:
    """The page of the synthetic run; it must not complain or ask for anything."""
    page = Opened(browser, report.as_uri())
    yield page
    page.close(report.as_uri())


@pytest.fixture
def frame(run: RunDirectory) -> Any:
    """The same table in Python, against the summary's reference."""
    tokens = swerve.Run(run).tokens
    return tokens[tokens["reference"] == "dpo-8"].set_index(["sequence_id", "position", "checkpoint"]).sort_index()


def saved(opened: Opened, button: str) -> tuple[str, str]:
    """Return name and text of the file that a button saves."""
    with opened.page.expect_download() as download:
        opened.page.locator(button).click()
    return download.value.suggested_filename, Path(download.value.path()).read_text(encoding="utf-8")


def shows_tokens(opened: Opened) -> None:
    opened.page.locator("#what").select_option("tokens")
    opened.until("() => document.querySelector('#list th.token') !== null")


def test_tokens_of_all_rollouts_are_the_table_of_python(opened: Opened, frame: Any) -> None:
    shows_tokens(opened)
    name, text = saved(opened, "#save-list")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert name == "tokens.csv"
    assert set(rows[0]) <= {*frame.reset_index().columns}
    final = frame.xs("rl-80", level="checkpoint")
    assert len(rows) == len(final)
    assert opened.text("#count") == f"{len(final)} of {len(final)}"

    # The highest first; texts are the same, numbers to the 0.4% that a page keeps.
    heights = [float(row["js"]) for row in rows]
    assert heights == sorted(heights, reverse=True)
    for row in rows:
        wanted = final.loc[(int(row["sequence_id"]), int(row["position"]))]
        assert row["token"].strip() in (wanted["token"].strip(), "<eos>")
        assert row["context"] == wanted["context"]
        assert (row["problem_id"], row["category"]) == (wanted["problem_id"], wanted["category"])
        for column in ("js", "kl_forward", "kl_reverse", "entropy", "logprob_ref"):
            assert float(row[column]) == pytest.approx(wanted[column], rel=0.006, abs=1e-11)
        assert (int(row["rank"]), int(row["rank_change"])) == (wanted["rank"], wanted["rank_change"])
        repair = float(row["repair"] or "nan")
        assert repair == pytest.approx(wanted["repair"], nan_ok=True)
    assert any(not math.isnan(value) for value in final["repair"])


def test_tokens_are_searched_with_what_stands_before_them_filtered_and_opened(opened: Opened, frame: Any) -> None:
    shows_tokens(opened)
    final = frame.xs("rl-80", level="checkpoint")
    opened.page.locator("#find").fill("write 1")
    spaceless = (final["context"] + final["token"]).str.replace(r"\s", "", regex=True)
    written = final[spaceless.str.endswith("write1")]
    assert 0 < len(written) < len(final)
    assert opened.text("#count") == f"{len(written)} of {len(final)}"
    category = written["category"].iloc[0]
    opened.page.locator("#category").select_option(category)
    assert opened.text("#count") == f"{(written['category'] == category).sum()} of {len(final)}"

    # The row of the highest one opens its rollout there.
    number, position = written[written["category"] == category]["js"].idxmax()
    opened.page.locator("#rows tr:not(.space)").first.click()
    opened.opens(number)
    assert opened.pinned() == position
    assert opened.page.locator("#rows tr.on").count() == 1


def test_numbers_of_tokens_follow_the_checkpoint(opened: Opened, frame: Any) -> None:
    shows_tokens(opened)
    opened.page.locator("#at").select_option("2")
    _, text = saved(opened, "#save-list")
    first = next(csv.DictReader(io.StringIO(text)))
    early = frame.xs("rl-20", level="checkpoint")
    assert first["checkpoint"] == "rl-20"
    assert float(first["js"]) == pytest.approx(early["js"].max(), rel=0.006)
    assert opened.page.locator("#panel input[type=range]").input_value() == "2"


def test_responses_are_searched(opened: Opened, index: Any) -> None:
    opened.page.locator("#find").fill("carry 1 ; ")
    opened.until("() => !document.getElementById('count').textContent.startsWith('0 ')")
    texts = opened.page.evaluate(
        "async () => (await Promise.all(pageData.rollouts.rollouts.map((_, k) => readRollout(k))))"
        ".map(({tokens, gaps}) => tokens.map((token, k) => gaps[k] + token).join(''))"
    )
    num = sum("carry1;" in text.replace(" ", "") for text in texts)
    opened.until(f"() => document.getElementById('count').textContent === '{num} of 14'")


def test_a_cell_of_the_picture_opens_its_token(opened: Opened, index: Any) -> None:
    places = index["raster"]
    image = opened.page.locator("#raster img").nth(2)
    box = image.bounding_box()
    row, column = 4, 6
    image.click(position={
        "x": (column + 0.5) / places["columns"] * box["width"], "y": (row + 0.5) / len(places["rows"]) * box["height"]
    })  # fmt: skip
    opened.opens(places["rows"][row])
    assert opened.pinned() == column
    label = places["labels"][2]
    wanted = [checkpoint["label"] for checkpoint in index["checkpoints"]].index(label)
    assert opened.page.locator("#panel input[type=range]").input_value() == str(wanted)


def test_two_rollouts_and_two_checkpoints_stand_beside_each_other(browser: Any, opened: Opened, report: Path) -> None:
    opened.go("#r=3&c=rl-80&t=5")
    opened.opens(3)
    opened.page.locator("#hold").click()
    assert opened.text("#held-which") == "Held: rollout 3"
    held = opened.colour(5, "held")
    opened.page.locator("#panel input[type=range]").fill("0")
    opened.page.locator("#next").click()
    opened.until("() => document.getElementById('which').textContent !== 'Rollout 3'")
    assert (opened.pinned("held"), opened.colour(5, "held")) == (5, held)
    assert opened.page.locator("#held input[type=range]").input_value() == "7"

    # The link leads back to both.
    opened.until("() => location.hash.includes('h=3') && location.hash.includes('c=rl-5')")
    address = opened.page.evaluate("location.hash")
    again = Opened(browser, report.as_uri() + address)
    again.until("() => document.getElementById('held-which').textContent === 'Held: rollout 3'")
    assert again.page.locator("#held input[type=range]").input_value() == "7"
    assert again.page.locator("#panel input[type=range]").input_value() == "0"
    again.page.locator("#release").click()
    assert not again.page.locator("#held").is_visible()
    again.close(report.as_uri())


def test_a_view_of_tokens_is_saved_as_drawing_and_as_numbers(opened: Opened, frame: Any) -> None:
    opened.go("#r=3&c=rl-80&t=5")
    opened.opens(3)
    name, drawing = saved(opened, "#panel .save-svg")
    assert name == "rollout-3.svg"
    texts = [node.text for node in ElementTree.fromstring(drawing).iter("{http://www.w3.org/2000/svg}text")]
    assert "write" in texts
    assert "var(" not in drawing
    assert texts[-1].startswith("rl-80 against dpo-8, rollout 3; the darkest: ")
    name, numbers = saved(opened, "#panel .save-csv")
    assert name == "rollout-3.csv"
    assert len(list(csv.DictReader(io.StringIO(numbers)))) == len(frame.loc[3])


def test_on_paper_the_page_is_light_its_shades_are_printed_and_nothing_is_fixed(
    browser: Any, report: Path, tmp_path: Path
) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844}, color_scheme="dark")
    page.goto(report.as_uri() + "#r=3&t=5")
    page.locator("#panel .k.on").wait_for()
    page.pdf(path=tmp_path / "page.pdf", format="A4")
    page.emulate_media(media="print")
    shown = "[...document.querySelectorAll('*')].filter((e) => e.checkVisibility())"
    positions = set(page.evaluate(f"{shown}.map((e) => getComputedStyle(e).position)"))
    assert positions <= {"static", "relative", "absolute"}
    # Boxes of a grid are cut at the end of a paper page whatever they ask for.
    style = "(name, key) => getComputedStyle(document.querySelector(name))[key]"
    assert page.evaluate(f"({style})('.verdicts', 'display')") == "block"
    assert page.evaluate(f"({style})('.verdict', 'breakInside')") == "avoid"
    # The sign of a legend is as grey as the dots that it names.
    assert page.evaluate(f"({style})('.sign.null', 'fill')") == page.evaluate(f"({style})('.null .dot', 'fill')")
    page.close()

    # Colours that are filled in the file: paper, and shades that only backgrounds have.
    fills, data = set[str](), (tmp_path / "page.pdf").read_bytes()
    for content in re.findall(rb"stream\r?\n(.*?)endstream", data, re.DOTALL):
        with contextlib.suppress(zlib.error):
            colours = re.findall(rb"([\d.]+) ([\d.]+) ([\d.]+) rg", zlib.decompress(content))
            fills |= {"#" + "".join(f"{round(255 * float(part)):02x}" for part in colour) for colour in colours}
    assert {"#a83a0a", "#fdeee4", "#8f887e"} <= fills  # the darkest, a light one, and the grey of a null
    assert "#151413" not in fills  # the dark theme's paper


def test_list_and_reader_say_the_same_of_a_peak(opened: Opened, index: Any) -> None:
    peaks = (
        "[...document.querySelectorAll('#rows tr[id]')].map((row) => [row.id, row.querySelector('.peak').innerText])"
    )
    texts = dict(opened.page.evaluate(peaks))
    for number, entry in enumerate(index["rollouts"]):
        if entry["peak"] is not None:
            opened.go(f"#r={number}&c=rl-80&t={entry['position']}")
            opened.opens(number)
            said = opened.text("#panel .now").split(" of at most")[0].split()[-1]
            assert said == texts[f"row-{number}"]
            # The code of a token keeps .4%, and so do its two digits.
            assert float(said) == pytest.approx(entry["peak"], rel=0.055)


def test_numbers_below_the_picture_stand_in_columns_of_one_width(opened: Opened) -> None:
    cells = "[...document.querySelectorAll('#raster .figures div')]"
    for width in (1280, 700, 390):
        opened.page.set_viewport_size({"width": width, "height": 900})
        places = opened.page.evaluate(f"{cells}.map((e) => [e.offsetLeft, e.offsetWidth, e.scrollWidth])")
        assert len(places) > 3
        assert max(own for _, own, _ in places) - min(own for _, own, _ in places) <= 1
        assert all(needed <= own + 1 for _, own, needed in places)  # nothing reaches into its neighbour
