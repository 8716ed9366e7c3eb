"""A gain over several runs of one training: the interval over runs and problems, and the card of several files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import swerve
from swerve.claim.page import claim_page
from swerve.claim.runs import runs_part
from swerve.claim.sides import given_sides
from swerve.errors import ArtifactError, ConfigError
from swerve.statistics.intervals import rows_and_columns_interval


def write(path: Path, rights: list[list[bool]]) -> Path:
    rows = [
        {"id": f"p{number}", "question": f"{number}?", "response": f"{sample}", "sample": sample, "correct": right}
        for number, own in enumerate(rights)
        for sample, right in enumerate(own)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    rng = np.random.default_rng(0)
    chances = {"base": 0.4, "one": 0.7, "two": 0.75, "three": 0.65}
    return [write(tmp_path / f"{name}.jsonl", (rng.random((40, 4)) < at).tolist()) for name, at in chances.items()]


def card_of(base: Path, runs: Path | list[Path], out: Path) -> Any:
    return swerve.claim(base, runs, out=out, progress=False)


def test_a_card_of_several_runs_says_what_holds_over_runs(files: list[Path], tmp_path: Path) -> None:
    base, *runs = files
    card = card_of(base, runs, tmp_path / "card")
    assert [row.run for row in card.runs.runs] == ["rl", "rl-2", "rl-3"]
    means = [np.mean([json.loads(line)["correct"] for line in file.open()]) for file in files]
    assert [row.accuracy.mean for row in card.runs.runs] == pytest.approx(means[1:])
    assert card.runs.difference.mean == pytest.approx(np.mean(means[1:]) - means[0])
    (line,) = card.runs.verdicts
    assert (line.claim, line.shown, line.num) == ("accuracy_rose_over_runs", True, 3)
    assert line.sentence.startswith(
        "Over 3 runs training from `base` makes answers right more often: 68% against 36% of"
    )
    assert claim_page(card).sentence == (
        "Over 3 training runs and 40 problems `rl` is right more often than `base`: 68% against 36% of answers (greedy "
        "or sampled: not recorded), +32 points (+12 to +53)."
    )
    # All other parts are those of the first run.
    alone = card_of(base, runs[0], tmp_path / "alone")
    assert alone.accuracy == card.accuracy
    assert claim_page(alone).sentence.endswith("points (+15.5 to +34.1). One training run.")
    assert alone.runs.missing == "needs further runs of the same training: give them after the first"


def test_problems_that_a_run_lacks_are_said_and_left_out(files: list[Path], tmp_path: Path) -> None:
    lines = files[2].read_text().splitlines(keepends=True)
    files[2].write_text("".join(lines[: -2 * 4]))
    card = card_of(files[0], files[1:], tmp_path / "card")
    assert "38 of 40 problems have responses by both base and rl-2; only those are compared." in card.runs.notes
    assert card.num_problems == 40


def test_no_run_is_there_twice(files: list[Path], tmp_path: Path) -> None:
    base, one, two, _ = files
    with pytest.raises(ConfigError, match="one.jsonl once more; give each run"):
        card_of(base, [one, two, one], tmp_path / "card")
    assert card_of(base, base, tmp_path / "card").accuracy.difference.mean == 0


def test_runs_that_all_say_the_same_leave_open_what_one_of_them_does() -> None:
    for base, runs in ((np.zeros(30), np.zeros((3, 30))), (np.zeros(2), np.ones((2, 2)))):
        part = runs_part(list("abc")[: len(runs)], base, runs)
        alone = part.runs[0].difference
        assert (part.difference.low, part.difference.high) == pytest.approx((alone.low, alone.high))  # type: ignore[union-attr]


def test_runs_have_names_and_are_all_files_or_all_models(files: list[Path]) -> None:
    with pytest.raises(ConfigError, match="2 models are called 'rl'; give them names"):
        given_sides([str(files[0]), f"rl={files[1]}", f"rl={files[2]}"])
    named = given_sides([str(files[0]), f"a={files[1]}", str(files[2])])
    assert [side.label for side in named] == ["base", "a", "rl-2"]


def test_what_is_no_answers_and_no_model_is_said(files: list[Path], tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"none of its 1 records has a response.*fields=\{'response': 'FIELD'\}"):
        swerve.claim([{"id": "a"}], files[1], out=tmp_path / "card", progress=False)
    for given in (3, True):
        with pytest.raises(ConfigError, match="is no model|swerve.claim takes two models"):
            swerve.claim(given, files[1], out=tmp_path / "card", progress=False)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="is no model|swerve.claim takes two models"):
            swerve.claim(files[0], [given], out=tmp_path / "card", progress=False)  # type: ignore[list-item]


def test_runs_that_differ_make_the_interval_wide_and_equal_ones_do_not() -> None:
    rng = np.random.default_rng(1)
    base, noise = 0.4 + 0.1 * rng.random(200), 0.05 * rng.standard_normal((3, 200))
    alike, apart = (
        runs_part(["a", "b", "c"], base, base + np.array(shifts)[:, None] + noise).difference
        for shifts in ([0.05] * 3, [-0.1, 0.05, 0.2])
    )
    assert alike.low > 0 > apart.low  # type: ignore[union-attr]
    assert rows_and_columns_interval([[0.0, 1.0]]) is None
    assert rows_and_columns_interval([[0.0], [1.0]]) is None


def test_where_only_rows_or_only_columns_differ_it_is_the_interval_over_these() -> None:
    rows = np.array([0.1, 0.4, 0.2])
    half = 4.302653 * rows.std(ddof=1) / np.sqrt(3)
    for table in (np.tile(rows[:, None], 50), np.tile(rows, (4, 1))):
        found: Any = rows_and_columns_interval(table)
        assert (found.low, found.high) == pytest.approx((rows.mean() - half, rows.mean() + half), abs=1e-6)


@pytest.mark.planted
@pytest.mark.parametrize("num_runs", [2, 3, 5])
@pytest.mark.parametrize("num_problems", [30, 200])
@pytest.mark.parametrize("spread", [0.0, 0.03, 0.08])
def test_the_interval_over_runs_covers(num_runs: int, num_problems: int, spread: float) -> None:
    rng = np.random.default_rng([num_runs, num_problems, int(100 * spread)])
    covered = 0
    for _ in range(1000):
        chances = rng.beta(0.5, 0.5, num_problems)
        base = rng.binomial(16, chances) / 16
        moved = [chances + 4 * chances * (1 - chances) * change for change in rng.normal(0, spread, num_runs)]
        runs = np.array([rng.binomial(16, np.clip(each, 0, 1)) / 16 for each in moved])
        found: Any = rows_and_columns_interval(runs - base, bounds=(-1.0, 1.0))
        covered += found.low <= 0 <= found.high
    assert covered / 1000 >= 0.93
