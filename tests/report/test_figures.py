"""Figures: drawn, not empty, and safe with any label."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.image
import pytest

from swerve.artifacts.run import RunDirectory
from swerve.report.charts import all_charts, dose_charts
from swerve.report.figures import write_figures
from swerve.report.inputs import read_inputs

NAMES = (
    "accuracy", "categories", "causal", "divergence", "dose_response", "entropy", "length", "null_spikes", "onset",
    "pairs", "recovery", "spikes",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_figures_show_something(report: Path, name: str) -> None:
    stem = report.parent / "figures" / name
    pixels = matplotlib.image.imread(stem.with_suffix(".png"))
    assert pixels.shape[0] > 300
    assert pixels.shape[1] > 800
    assert 0.01 < (pixels[..., :3].min(axis=-1) < 0.9).mean() < 0.5  # ink, but not all over
    assert stem.with_suffix(".pdf").read_bytes().startswith(b"%PDF")


def test_pdf_figures_embed_their_fonts(run: RunDirectory, tmp_path: Path) -> None:
    with matplotlib.rc_context({"pdf.use14corefonts": False}):  # as everywhere but in these tests
        written = write_figures(replace(read_inputs(run), summary=None), tmp_path)
    pages = [path.read_bytes() for path in written if path.suffix == ".pdf"]
    assert pages
    assert all(b"/FontFile2" in page for page in pages)


def test_labels_are_not_read_as_formulas_and_old_figures_go(run: RunDirectory, tmp_path: Path) -> None:
    inputs = read_inputs(run)
    hostile = r"$\frac{$"
    evaluations = tuple({**entry, "stage": hostile + entry["stage"]} for entry in inputs.evaluations)
    summary: dict[str, Any] = dict(inputs.summary or {})
    summary["categories"] = [{**entry, "category": hostile + "$"} for entry in summary["categories"]]
    summary["final"] = hostile
    summary["biographies"] = {**summary["biographies"], "checkpoints": [hostile] * 8}
    direction = {**summary["cross_sampling"]["directions"][0], "direction": hostile}
    direction["selectors"] = [{**one, "selector": hostile} for one in direction["selectors"]]
    summary["cross_sampling"] = {**summary["cross_sampling"], "directions": [direction]}
    recovery = summary["recovery"]
    summary["recovery"] = {**recovery, "selectors": [{**one, "selector": hostile} for one in recovery["selectors"]]}
    summary["categories"] = [{**entry, "checkpoint": hostile} for entry in summary["categories"]]
    (tmp_path / "gone.png").touch()
    written = write_figures(replace(inputs, evaluations=evaluations, summary=summary), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in written)
    assert {path.stem for path in written} == set(NAMES)


def test_curves_hold_the_artifacts_numbers_and_the_stages_their_bounds(run: RunDirectory) -> None:
    accuracy, divergence, pairs, _, _ = all_charts(read_inputs(run))
    assert accuracy.labels[:3] == ("sft-500", "dpo-8", "rl-5")
    assert accuracy.steps[:3] == (500, 508, 513)
    assert [(stage.name, stage.start, stage.end) for stage in accuracy.stages] == [
        ("sft", 0, 500),
        ("dpo", 500, 508),
        ("rl", 508, 588),
    ]
    point = accuracy.curves[0].points[0]
    assert point is not None
    assert (point.mean, point.low, point.high) == (0.47, pytest.approx(0.44), 0.5)
    assert divergence.steps == (513, 518, 528, 538, 548, 568, 578, 588)
    assert [curve.name for curve in divergence.curves] == ["Forward KL", "Reverse KL", "JS"]
    # The pair of the reference with its baseline is no step of the stage.
    assert pairs.labels == ("rl-10", "rl-20", "rl-30", "rl-40", "rl-60", "rl-70", "rl-80")
    assert [point and point.mean for point in pairs.curves[2].points] == pytest.approx(
        [0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.007]
    )


def test_dose_curves_start_at_their_base_and_lie_between_the_ends(run: RunDirectory) -> None:
    into, out = dose_charts(read_inputs(run).summary)
    assert (into.title, out.title) == ("dpo-8 with tokens of rl-80", "rl-80 with tokens of dpo-8")
    assert into.steps == (0.0, 0.0184, 0.022, 0.092, 0.11)
    assert [level.name for level in into.levels] == ["dpo-8 alone", "rl-80 alone"]
    assert [level.value.mean for level in into.levels] == [0.51, 0.9]
    assert [level.name for level in out.levels] == ["rl-80 alone", "dpo-8 alone"]
    js, random = into.curves
    assert [point and point.mean for point in js.points] == [0.51, None, 0.822, None, 0.9]
    assert [point and point.mean for point in random.points] == [0.51, 0.5412, None, 0.549, None]


def test_labels_without_numbers_stand_in_order(run: RunDirectory) -> None:
    inputs = read_inputs(run)
    entries = [{**entry, "checkpoint": name} for entry, name in zip(inputs.summary["divergences"], "abc", strict=False)]  # type: ignore[index]
    summary = {**(inputs.summary or {}), "divergences": entries, "selection": "imported"}
    chart = all_charts(replace(inputs, evaluations=(), summary=summary))[0]
    assert (chart.id, chart.labels, chart.steps) == ("divergence", ("a", "b", "c"), (1, 2, 3))
    assert chart.x_title == "checkpoint"


def test_the_steps_of_training_have_curves_where_they_were_sampled(run: RunDirectory, tmp_path: Path) -> None:
    records = (
        {"step": 500, "stage": "sft", "stage_step": 500, "loss": 0.1},
        {"step": 509, "stage": "rl", "stage_step": 1, "reward": -0.5, "neg_logprob": 0.2},
        {"step": 510, "stage": "rl", "stage_step": 2, "reward": 1.25, "neg_logprob": None},
    )
    inputs = replace(read_inputs(run), metrics=records)
    reward, entropy = all_charts(inputs)[5:]
    assert (reward.unit, reward.labels, reward.steps) == ("reward", ("rl-1", "rl-2"), (509, 510))
    assert [point and (point.mean, point.low, point.high) for point in reward.curves[0].points] == [
        (-0.5, -0.5, -0.5),
        (1.25, 1.25, 1.25),
    ]
    assert [point and point.mean for point in entropy.curves[0].points] == [0.2, None]
    names = {path.name for path in write_figures(inputs, tmp_path)}
    assert {"training-reward.png", "training-entropy.pdf"} <= names
