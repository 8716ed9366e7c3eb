"""Figures: drawn, not empty, and safe with any label."""

from __future__ import annotations

import csv
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.image
import pyarrow as pa
import pytest

from swerve.artifacts.files import read_json
from swerve.artifacts.metrics import StepMetrics
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.artifacts.responses import SEQUENCES_SCHEMA
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import INTERVENTIONS_SCHEMA, TOKENS_SCHEMA, read_table
from swerve.report.draw.panels import ChartPart
from swerve.report.figures import figure_specs, write_all_figures
from swerve.report.page import all_charts, all_sections
from swerve.report.read import ReportInputs

NAMES = (
    "accuracy", "accuracy_by_difficulty", "baseline_comparison", "category_kl_breakdown", "causal", "dose_response",
    "entropy", "entropy_reduction", "length", "mean_kl_progression", "null_spikes", "onset", "pairs", "recovery",
    "spike_density_comparison", "spikes", "summary_dashboard", "case_study_hostile", "line_plot_with_spikes_hostile",
    "token_heat_map_hostile",
)  # fmt: skip
HOSTILE = "$\\frac{$\u202e\n\N{CJK UNIFIED IDEOGRAPH-6570}\N{GRINNING FACE}"


@pytest.fixture(scope="module")
def figures(inputs: ReportInputs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every figure of a run whose labels look like formulas, in a folder with one of an earlier report and another."""
    evaluations = tuple(one.model_copy(update={"stage": HOSTILE + one.stage}) for one in inputs.evaluations)
    assert inputs.summary is not None
    assert inputs.tables is not None
    summary: dict[str, Any] = inputs.summary.model_dump()
    summary["categories"] = [{**one, "category": HOSTILE + one["category"]} for one in summary["categories"]]
    summary["biographies"]["checkpoints"] = [HOSTILE] * 8
    for direction in summary["cross_sampling"]["directions"]:
        direction["direction"] = HOSTILE
    for one in (*summary["cross_sampling"]["directions"][0]["selectors"], *summary["recovery"]["selectors"]):
        one["selector"] = HOSTILE
    for pair in summary["pairs"]:
        pair["reference"] = HOSTILE
    ids = [HOSTILE + "hostile"] * inputs.tables.sequences.num_rows
    place = inputs.tables.sequences.schema.get_field_index("problem_id")
    sequences = inputs.tables.sequences.set_column(place, "problem_id", pa.array(ids))
    folder = tmp_path_factory.mktemp("figures")
    for name in ("case_study_gone.png", "mine.png"):
        (folder / name).touch()
    changed = replace(
        inputs,
        evaluations=evaluations,
        summary=ProbeSummary.model_validate(summary),
        tables=replace(inputs.tables, sequences=sequences, topk=_with_tokens(inputs.tables.topk)),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # such as those of a character that the font lacks
        written = write_all_figures(changed, folder, formats=("png",)).figures
    assert {path.name for path in folder.iterdir()} == {"mine.png", *(path.name for path in written)}
    assert {path.stem for path in written} == {name.replace("_hostile", "_frac-hostile") for name in NAMES}
    return folder


def _with_tokens(topk: pa.Table | None) -> pa.Table:
    """Return the likeliest tokens as other texts."""
    assert topk is not None
    texts = ["\x1b[31m", HOSTILE, " the", "\n\n", "a" * 50]
    tokens = pa.array([texts] * topk.num_rows)
    return topk.set_column(topk.schema.get_field_index("tokens"), "tokens", tokens)


@pytest.mark.parametrize("name", NAMES)
def test_figures_show_something_and_labels_are_not_read_as_formulas(figures: Path, name: str) -> None:
    pixels = matplotlib.image.imread(figures / f"{name.replace('_hostile', '_frac-hostile')}.png")
    assert pixels.shape[0] > 300
    assert pixels.shape[1] > 800
    assert 0.01 < (pixels[..., :3].min(axis=-1) < 0.9).mean() < 0.5  # ink, but not all over


def test_pdf_figures_embed_their_fonts(inputs: ReportInputs, tmp_path: Path) -> None:
    with matplotlib.rc_context({"pdf.use14corefonts": False}):  # as everywhere but in these tests
        written = write_all_figures(inputs, tmp_path, ("accuracy",), formats=("pdf",)).figures
    assert b"/FontFile2" in written[0].read_bytes()


@pytest.mark.slow
def test_the_same_figure_has_the_same_bytes(inputs: ReportInputs, tmp_path: Path) -> None:
    assert inputs.tables is not None
    chosen = replace(inputs, problems=(inputs.tables.sequences["problem_id"][0].as_py(),))
    for folder in ("first", "second"):
        write_all_figures(chosen, tmp_path / folder, ("case_study",))
    first = {path.name: path.read_bytes() for path in (tmp_path / "first").iterdir()}
    assert {Path(name).suffix for name in first} == {".png", ".pdf", ".svg", ".csv"}
    assert {path.name: path.read_bytes() for path in (tmp_path / "second").iterdir()} == first


def rows_of(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / f"{name}.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def interval(row: dict[str, str], *, before: str = "", after: str = "") -> dict[str, float]:
    return {key: float(row[f"{before}{key}{after}"]) for key in ("mean", "low", "high")}


def test_numbers_equal_those_of_the_summary(run: RunDirectory, figures: Path) -> None:
    summary = read_json(run.probe_path / "summary.json")
    rows = rows_of(figures, "mean_kl_progression")
    names = {"Forward KL": "kl_forward", "Reverse KL": "kl_reverse", "JS": "js"}
    found = {(row["checkpoint"], names[row["curve"]]): interval(row) for row in rows}
    assert found == {
        (one["checkpoint"], key): {part: one[key][part] for part in ("mean", "low", "high")}
        for one in summary["divergences"]
        for key in names.values()
    }
    rows = rows_of(figures, "spike_density_comparison")
    assert len(rows) == len(summary["spike_densities"]) == 8 * 3 * 3
    for row, one in zip(rows, summary["spike_densities"], strict=True):
        assert (row["checkpoint"], row["region"], row["method"]) == (one["checkpoint"], one["region"], one["method"])
        assert interval(row, after="_per_1000_tokens") == one["per_1000_tokens"]
        null = summary["null"]["false_discoveries"]["js"][one["method"]]["per_1000_tokens"]["mean"]
        assert float(row["null_per_1000_tokens"]) == null
    rows = rows_of(figures, "category_kl_breakdown")
    assert [interval(row, before="kl_forward_") for row in rows] == [
        {part: one["mean"]["kl_forward"][part] for part in ("mean", "low", "high")} for one in summary["categories"]
    ]
    every, early = rows_of(figures, "entropy_reduction")
    change = summary["entropy"]["means"][0]["change"]
    reduction = {"mean": -change["mean"], "low": -change["high"], "high": -change["low"]}
    assert interval(every, before="reduction_") == interval(early, before="reduction_") == reduction
    rows = rows_of(figures, "causal")
    spike = summary["causal"]["selections"][0]
    assert interval(rows[0]) == spike["different_tokens"]["checkpoint_minus_alternative"]
    assert interval(rows[1]) == spike["effect"]
    rows = rows_of(figures, "baseline_comparison")
    pair, final = summary["pairs"][-1], summary["divergences"][-1]
    assert [float(row["mean"]) for row in rows] == [one[key]["mean"] for one in (pair, final) for key in names.values()]
    shown = {row["figure"] for row in rows_of(figures, "summary_dashboard")}
    assert len(shown) == 6
    for name in shown:
        wanted = rows_of(figures, name)
        part = [row for row in rows_of(figures, "summary_dashboard") if row["figure"] == name]
        assert [{key: row[key] for key in wanted[0]} for row in part] == wanted


def test_case_studies_are_of_the_rollouts_where_the_swap_did_most(run: RunDirectory, inputs: ReportInputs) -> None:
    swaps: dict[int, dict[str, int]] = {}
    for row in read_table(run.probe_path / "interventions.parquet", INTERVENTIONS_SCHEMA).to_pylist():
        if (row["selection"], row["policy"]) == ("spike", "reference"):
            swaps.setdefault(row["sequence_id"], {})[row["arm"]] = row["num_successes"]
    effects = sorted((arms["checkpoint"] - arms["reference"] for arms in swaps.values()), reverse=True)
    studies, maps = (list(figure_specs()[name].draw(inputs)) for name in ("case_study", "token_heat_map"))
    found = []
    for one in studies:
        tested = {row["arm"]: row["num_successes"] for row in one.rows if row["panel"] == "swap"}
        assert tested in swaps.values()
        found.append(tested["checkpoint"] - tested["reference"])
    assert found == effects[:3]
    problem = {
        row["problem_id"].replace("+", "-"): row["sequence_id"]
        for row in read_table(run.probe_path / "sequences.parquet", SEQUENCES_SCHEMA).to_pylist()
    }
    chosen = problem[studies[0].name.removeprefix("case_study_")]
    tokens = read_table(run.probe_path / "tokens.parquet", TOKENS_SCHEMA).to_pylist()
    final = [row for row in tokens if (row["sequence_id"], row["checkpoint"]) == (chosen, "rl-80")]
    line = [row for row in studies[0].rows if row["panel"] == "divergence"]
    assert [row["js"] for row in line] == [row["js"] for row in final if row["reference"] == "dpo-8"]
    assert [row["is_spike"] for row in line if row["is_wrong"]] == [True]
    assert len(maps[0].rows) == 8 * min(70, len(line))


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


@pytest.mark.parametrize("labels", [("a", "b", "c"), ("step-10", "step-30", "final")])
def test_labels_without_numbers_stand_in_order(inputs: ReportInputs, labels: tuple[str, ...]) -> None:
    assert inputs.summary is not None
    entries = zip(inputs.summary.divergences, labels, strict=False)
    divergences = tuple(one.model_copy(update={"checkpoint": name}) for one, name in entries)
    summary = inputs.summary.model_copy(update={"divergences": divergences, "selection": "imported"})
    chart = all_charts(replace(inputs, evaluations=(), summary=summary))[0]
    assert (chart.id, chart.labels, chart.steps) == ("mean_kl_progression", labels, (1, 2, 3))
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
    trained = replace(inputs, metrics=tuple(map(StepMetrics.model_validate, records)))
    write_all_figures(trained, tmp_path, ("training_curves",), formats=("svg",))
    rows = rows_of(tmp_path, "training_curves")
    assert [(row["metric"], row["checkpoint"], row["value"]) for row in rows] == [
        ("Reward in training", "rl-1", "-0.5"),
        ("Reward in training", "rl-2", "1.25"),
        ("Surprise of sampled tokens in training", "rl-1", "0.2"),
    ]
