"""Figures: drawn, not empty, and safe with any label."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.image
import pytest

from swerve.artifacts.metrics import StepMetrics
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.report.draw.figures import chart_drawing, write_figures
from swerve.report.draw.panels import ChartPart
from swerve.report.page import all_charts, all_sections, write_all_figures
from swerve.report.read import ReportInputs

NAMES = (
    "accuracy", "categories", "causal", "divergence", "dose_response", "entropy", "length", "null_spikes", "onset",
    "pairs", "recovery", "spikes",
)  # fmt: skip


@pytest.fixture(scope="module")
def figures(inputs: ReportInputs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every figure of a run whose labels look like formulas, in a folder with a figure of an earlier report."""
    hostile = r"$\frac{$"
    evaluations = tuple(one.model_copy(update={"stage": hostile + one.stage}) for one in inputs.evaluations)
    assert inputs.summary is not None
    summary: dict[str, Any] = inputs.summary.model_dump()
    summary["categories"] = [{**one, "category": hostile + "$", "checkpoint": hostile} for one in summary["categories"]]
    summary["final"] = hostile
    summary["biographies"]["checkpoints"] = [hostile] * 8
    for direction in summary["cross_sampling"]["directions"]:
        direction["direction"] = hostile
    for one in (*summary["cross_sampling"]["directions"][0]["selectors"], *summary["recovery"]["selectors"]):
        one["selector"] = hostile
    folder = tmp_path_factory.mktemp("figures")
    (folder / "gone.png").touch()
    changed = replace(inputs, evaluations=evaluations, summary=ProbeSummary.model_validate(summary))
    written = write_all_figures(changed, folder)
    assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in written)
    assert {path.stem for path in written} == set(NAMES)
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_figures_show_something_and_labels_are_not_read_as_formulas(figures: Path, name: str) -> None:
    stem = figures / name
    pixels = matplotlib.image.imread(stem.with_suffix(".png"))
    assert pixels.shape[0] > 300
    assert pixels.shape[1] > 800
    assert 0.01 < (pixels[..., :3].min(axis=-1) < 0.9).mean() < 0.5  # ink, but not all over
    assert stem.with_suffix(".pdf").read_bytes().startswith(b"%PDF")


def test_pdf_figures_embed_their_fonts(inputs: ReportInputs, tmp_path: Path) -> None:
    with matplotlib.rc_context({"pdf.use14corefonts": False}):  # as everywhere but in these tests
        written = write_all_figures(replace(inputs, summary=None), tmp_path)
    pages = [path.read_bytes() for path in written if path.suffix == ".pdf"]
    assert pages
    assert all(b"/FontFile2" in page for page in pages)


def test_curves_hold_the_artifacts_numbers_and_the_stages_their_bounds(inputs: ReportInputs) -> None:
    accuracy, divergence, pairs, _, _ = all_charts(inputs)
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


def test_dose_curves_start_at_their_base_and_lie_between_the_ends(inputs: ReportInputs) -> None:
    parts = [part for section in all_sections(inputs) for part in section.parts]
    into, out = [part.chart for part in parts if isinstance(part, ChartPart)]
    assert (into.title, out.title) == ("dpo-8 with tokens of rl-80", "rl-80 with tokens of dpo-8")
    assert into.steps == (0.0, 0.0184, 0.022, 0.092, 0.11)
    assert [level.name for level in into.levels] == ["dpo-8 alone", "rl-80 alone"]
    assert [level.value.mean for level in into.levels] == [0.51, 0.9]
    assert [level.name for level in out.levels] == ["rl-80 alone", "dpo-8 alone"]
    js, random = into.curves
    assert [point and point.mean for point in js.points] == [0.51, None, 0.822, None, 0.9]
    assert [point and point.mean for point in random.points] == [0.51, 0.5412, None, 0.549, None]


def test_labels_without_numbers_stand_in_order(inputs: ReportInputs) -> None:
    assert inputs.summary is not None
    entries = zip(inputs.summary.divergences, "abc", strict=False)
    divergences = tuple(one.model_copy(update={"checkpoint": name}) for one, name in entries)
    summary = inputs.summary.model_copy(update={"divergences": divergences, "selection": "imported"})
    chart = all_charts(replace(inputs, evaluations=(), summary=summary))[0]
    assert (chart.id, chart.labels, chart.steps) == ("divergence", ("a", "b", "c"), (1, 2, 3))
    assert chart.x_title == "checkpoint"


def test_the_steps_of_training_have_curves_where_they_were_sampled(inputs: ReportInputs, tmp_path: Path) -> None:
    records = (
        {"step": 500, "stage": "sft", "stage_step": 500, "loss": 0.1},
        {"step": 509, "stage": "rl", "stage_step": 1, "reward": -0.5, "neg_logprob": 0.2},
        {"step": 510, "stage": "rl", "stage_step": 2, "reward": 1.25, "neg_logprob": None},
    )
    reward, entropy = all_charts(replace(inputs, metrics=tuple(map(StepMetrics.model_validate, records))))[5:]
    assert (reward.unit, reward.labels, reward.steps) == ("reward", ("rl-1", "rl-2"), (509, 510))
    assert [point and (point.mean, point.low, point.high) for point in reward.curves[0].points] == [
        (-0.5, -0.5, -0.5),
        (1.25, 1.25, 1.25),
    ]
    assert [point and point.mean for point in entropy.curves[0].points] == [0.2, None]
    names = {path.name for path in write_figures(map(chart_drawing, (reward, entropy)), tmp_path)}
    assert {"training-reward.png", "training-entropy.pdf"} <= names
