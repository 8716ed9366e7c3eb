"""What taught it: planted maps beside what the page says of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from swerve.artifacts.replays import TAUGHT_SCHEMA, Taught
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import write_table
from swerve.config.recipe import ReportConfig
from swerve.errors import ArtifactError
from swerve.report.evidence import Sentence
from swerve.report.page import render
from swerve.report.read import ReportInputs, read_inputs
from swerve.report.run_page import run_page
from swerve.report.topics.taught import TOPIC

EFFECTS = ((0, 0.004), (1, 0.001), (2, -0.0001), (3, 0.0))
"""Of a rollout's tokens, by position."""
RANDOM = {f"random {number}": value for number, value in enumerate((0.01, -0.02, 0.0, 0.015, -0.005), start=1)}
NAME = "1-3-recorded-first_wrong"


def step(number: int, *, estimated: float, measured: float) -> dict[str, Any]:
    return {
        "step": number,
        "estimated": estimated,
        "gradient_product": estimated,
        "measured": measured,
        "group": 0,
        "group_estimated": 0.01,
        "group_measured": 0.01,
    }


def taught(*, top: float = -0.5, steps: tuple[float, ...] = (0.02, 0.09)) -> Taught:
    differences = {"top": top, "bottom": 0.1, **RANDOM}
    rows = [
        {"replay": name, "step": at, "target": target, "value": unchanged + share * value, "unchanged": unchanged,
         "difference": share * value, "weight_distance": 0.1}
        for name, value in differences.items()
        for target in ("accuracy", "first_wrong")
        for at, unchanged, share in ((2, -2.0, 0.5), (3, -1.0, 1.0))
    ]  # fmt: skip
    return Taught.model_validate(
        {
            "target": "first_wrong",
            "steps": [step(number, estimated=0.02, measured=measured) for number, measured in enumerate(steps, 2)],
            "groups": [
                {"step": 2, "group": 4, "effect": 0.0123},
                {"step": 3, "group": 0, "effect": -0.002},
            ],
            "words": [{"token": "1", "num": 1234, "share": 0.625}, {"token": "<b>", "num": 2, "share": 0.125}],
            "rollouts": [
                {"step": 2, "group": 4, "sample": 7, "correct": False, "effect": 0.0049,
                 "pieces": ["1", " carry", " <b>", "<eos>"], "effects": [effect for _, effect in EFFECTS]},
            ],
            "num_tokens": 12345,
            "num_removed": 1234,
            "proof": {
                "run": "runs/demo", "stage": "rl", "start": 1, "stop": 3, "rollouts": "recorded",
                "replays": list(differences), "rows": rows, "floor": {"accuracy": 1e-8, "first_wrong": 2e-8},
                "spread": {}, "horizons": {}, "ranks": {},
            },
        }
    )  # fmt: skip


@pytest.fixture
def planted(run: RunDirectory, tmp_path: Path) -> Callable[[Taught], RunDirectory]:
    def plant(found: Taught) -> RunDirectory:
        copy = RunDirectory(shutil.copytree(run.path, tmp_path / "copy"))
        (copy.path / "replay").mkdir()
        found.write(copy.path / "replay" / f"{NAME}.json")
        tokens = [
            {"index": 1, "group": 4, "sample": 7, "position": at, "token_id": at, "effect": value}
            for at, value in EFFECTS
        ]
        write_table(copy.path / "replay" / f"{NAME}.parquet", tokens, TAUGHT_SCHEMA)
        return copy

    return plant


def said(inputs: ReportInputs) -> list[Sentence]:
    return [sentence for sentence in TOPIC.sentences["What taught it"](inputs) if isinstance(sentence, Sentence)]


def test_what_is_said_of_a_map(planted: Any) -> None:
    inputs = read_inputs(planted(taught()))
    found = said(inputs)
    assert found == [
        "Without the 1,234 of 12,345 tokens with the largest estimated effects, training from rl-2 to rl-3 ends with "
        "the mean log-probability of the right tokens at the first wrong places 0.50 nats lower; without as many "
        "random ones (5 sets) it moves by 0.020 nats at most: these tokens did teach it.",
        "At 1 of 2 steps (3) the estimates do not hold: there, only leaving tokens out says what taught it.",
    ]
    # Their numbers are those of their rows.
    for sentence in found:
        assert sentence.evidence is not None
        assert not sentence.evidence.missing_in(sentence)
        assert sentence.evidence.figures
    assert found[0].evidence.columns["difference"] == [-0.5, 0.1, 0.01, -0.02, 0.0, 0.015, -0.005]


@pytest.mark.parametrize(
    ("top", "ending"),
    [
        (-0.0201, "0.020 nats lower; without as many random ones (5 sets) it moves by 0.020 nats at most: these tokens "
                  "did teach it."),
        (-0.02, "0.020 nats lower; without as many random ones (5 sets) it moves by 0.020 nats at most: who taught it "
                "is not to be seen."),
        (0.01, "0.010 nats higher; without as many random ones (5 sets) it moves by 0.020 nats at most: who taught it "
               "is not to be seen."),
        (0.3, "0.30 nats higher; without as many random ones (5 sets) it moves by 0.020 nats at most: the estimates "
              "have the wrong sign."),
    ],
)  # fmt: skip
def test_what_removal_did_decides(inputs: ReportInputs, top: float, ending: str) -> None:
    found = said(replace(inputs, taught={NAME: taught(top=top, steps=(0.02, 0.03))}))
    assert found[0].endswith(ending)
    assert found[1] == "The estimates hold at each of 2 steps."


def test_two_maps_are_two_sets_of_rows(inputs: ReportInputs, rows_of: Any) -> None:
    again = taught()
    again = again.model_copy(update={"proof": again.proof.model_copy(update={"rollouts": "again"})})
    both = replace(inputs, taught={NAME: taught(), "1-3-again-first_wrong": again})
    first, _, second, _ = said(both)
    assert "training from rl-2 to rl-3 ends with" in first
    assert "training from rl-2 to rl-3, on rollouts sampled again, ends with" in second
    assert len(rows_of(TOPIC, both)) == 8


def test_tables_and_shades(planted: Any, rows_of: Any) -> None:
    inputs = read_inputs(planted(taught()))
    rows = rows_of(TOPIC, inputs)
    kinds = ("groups", "sets", "steps", "tokens")
    assert list(rows) == [f"taught-{kind}-{NAME}" for kind in kinds]
    groups, sets, steps, tokens = (rows[f"taught-{kind}-{NAME}"] for kind in kinds)
    assert groups.texts == (("step 2, group 4", "+0.0123"), ("step 3, group 0", "\N{MINUS SIGN}0.00200"))
    assert sets.texts[:3] == (("top", "\N{MINUS SIGN}0.500"), ("bottom", "+0.100"), ("random 1", "+0.0100"))
    assert sets.plots[0].greys == tuple(RANDOM)
    assert "in one case of 6 by chance, too. Rounding alone makes 2.0e-8." in sets.note
    assert steps.rows[0][:4] == ("rl-2", -2.0, -2.25, -1.95)
    assert tokens.texts[0] == ("“1”", "62.5%", "1,234")
    (texts,) = TOPIC.texts(inputs)
    assert texts.texts[0][0] == "step 2, group 4, sample 7, wrong: +0.00490 nats"
    assert texts.texts[0][1] == (("1", 1.0), (" carry", 0.25), (" <b>", -0.025), ("<eos>", 0.0))
    page = render(run_page(inputs, options=ReportConfig()))
    assert (
        '<bdi class="q15">1</bdi><bdi class="q8"> carry</bdi><bdi class="q2"> &lt;b&gt;</bdi>'
        '<bdi class="q0">&lt;eos&gt;</bdi>'
    ) in page
    assert '<details id="what-taught-it">' in page


def test_no_map_no_fold_and_a_damaged_one_says_what_to_do(inputs: ReportInputs, planted: Any) -> None:
    assert "what-taught-it" not in [fold.id for fold in run_page(inputs, options=ReportConfig()).folds]
    run = planted(taught())
    path = run.path / "replay" / f"{NAME}.json"
    path.write_text(path.read_text().replace("1234,", "1235,"))
    with pytest.raises(ArtifactError, match=rf"{NAME}.json was changed .*; run swerve replay .* --taught again, or"):
        read_inputs(run)


@pytest.mark.browser
@pytest.mark.slow
def test_a_first_wrong_place_leads_to_it(planted: Any, browser: Any, tmp_path: Path) -> None:
    page, run, place = browser.new_page(), planted(taught()), tmp_path / "page.html"
    place.write_text(render(run_page(read_inputs(run), options=ReportConfig())), encoding="utf-8")
    page.goto(place.as_uri())
    page.locator("#hero .k.wrong").first.click()
    page.locator("#hero .wanted a").click()
    page.wait_for_function("document.getElementById('what-taught-it').open")
    # A run without a map has no such link.
    shutil.rmtree(run.path / "replay")
    place.write_text(render(run_page(read_inputs(run), options=ReportConfig())), encoding="utf-8")
    page.reload()
    page.locator("#hero .k.wrong").first.click()
    assert page.locator("#hero .wanted").text_content().startswith("The first wrong step: a right step has")
    assert page.locator("#hero .wanted a").count() == 0
