"""Figures by name: from the command line and from Python."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure

import swerve
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import INTERVENTIONS_SCHEMA, TOKENS_SCHEMA, read_table
from swerve.cli import main
from swerve.errors import ArtifactError, ConfigError
from swerve.report.figures import drawings, figure_specs, write_run_figures
from swerve.report.read import ReportInputs

WANTED = {
    "mean_kl_progression", "spike_density_comparison", "category_kl_breakdown", "entropy_reduction",
    "summary_dashboard", "case_study", "token_heat_map", "line_plot_with_spikes", "baseline_comparison",
    "accuracy_by_difficulty", "training_curves", "dose_response",
}  # fmt: skip


def test_every_figure_has_a_function_and_a_name_of_its_own() -> None:
    assert figure_specs().keys() >= WANTED
    assert sorted([*figure_specs(), "study_comparison"]) == swerve.plot.__all__
    for name, spec in figure_specs().items():
        assert spec.shows.endswith(".")
        assert callable(getattr(swerve.plot, name))


def command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert isinstance(caught.value.code, int)
    return caught.value.code, *capsys.readouterr()


@pytest.fixture(scope="module")
def probed(synthetic: Any, entries: Any, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A run whose figures may be written."""
    written: RunDirectory = synthetic.write_synthetic_run(
        tmp_path_factory.mktemp("runs") / "run", num_rollouts=4, entries=entries
    )
    return written


def test_figures_of_an_earlier_report_go_and_the_users_own_stay(
    probed: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("swerve.report.figures.write_figures", lambda *_: ())
    folder = probed.report_path / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("causal.png", "case_study_math-1.svg", "length.csv", "mine.png", "causal-2.png", "table.csv"):
        (folder / name).touch()
    write_run_figures(probed)
    assert sorted(path.name for path in folder.iterdir()) == ["causal-2.png", "mine.png", "table.csv"]


def test_named_figures_are_written_and_missing_ones_named(
    probed: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, path = probed.report_path / "figures", str(probed.path)
    folder.mkdir(parents=True, exist_ok=True)
    kept, stale = folder / "length.svg", folder / "causal.pdf"
    kept.touch()
    stale.touch()
    options = ("--format", "svg", "--width", "column", "--no-titles")
    status, out, err = command(capsys, "report", path, "--figures", "causal,sampling", *options)
    assert (status, out.split()) == (0, [str(folder / "causal.svg"), str(folder / "causal.csv")])
    assert "not measured: sampling; it needs: swerve eval" in err
    assert (kept.exists(), stale.exists()) == (True, False)
    svg = (folder / "causal.svg").read_text()
    assert 'width="234pt"' in svg  # 3.25 inches
    status, out, _ = command(capsys, "report", path, "--figures", "recovery", "sampling", "--format", "svg", "--json")
    assert json.loads(out) == {
        "figures": [str(folder / "recovery.svg"), str(folder / "recovery.csv")],
        "missing": {"sampling": "swerve eval RUN eval.samples_per_problem=4"},
    }
    assert 'width="486pt"' in (folder / "recovery.svg").read_text()
    status, _, err = command(capsys, "report", path, "--figures", "sampling")
    line = f"swerve: error: not measured: sampling; it needs: swerve eval {path} eval.samples_per_problem=4\n"
    assert (status, err) == (1, line)


def test_a_problem_is_chosen(probed: RunDirectory, inputs: ReportInputs, capsys: pytest.CaptureFixture[str]) -> None:
    assert inputs.tables is not None
    problem = inputs.tables.sequences["problem_id"][0].as_py()
    arguments = ("report", str(probed.path), "--figures", "line_plot_with_spikes", "--format", "svg", "--problem")
    _, out, err = command(capsys, *arguments, problem)
    stem = f"line_plot_with_spikes_{problem.replace('+', '-')}"
    assert ([Path(line).name for line in out.split()], err) == ([f"{stem}.svg", f"{stem}.csv"], "")
    status, _, err = command(capsys, *arguments, problem[:-1] + "x")
    assert (status, f"did you mean '{problem}'?" in err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--figures", "mean_kl_progresion"), "did you mean 'mean_kl_progression'?"),
        (("--figures", "--format", "jpg"), "--format: there is no 'jpg'"),
        (("--figures", "--width", "colum"), "--width: there is no 'colum'; did you mean 'column'? (column, text)"),
        (("--no-titles",), "--problem, --format, --width and --no-titles are of figures; add --figures"),
    ],
)
def test_what_does_not_exist_is_named(
    probed: RunDirectory, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    status, _, err = command(capsys, "report", str(probed.path), *arguments)
    assert (status, err.count("\n"), said in err) == (2, 1, True)


def test_case_studies_are_of_the_rollouts_where_the_swap_did_most(run: RunDirectory, inputs: ReportInputs) -> None:
    swaps: dict[int, dict[str, int]] = {}
    for row in read_table(run.probe_path / "interventions.parquet", INTERVENTIONS_SCHEMA).to_pylist():
        if (row["selection"], row["policy"]) == ("spike", "reference"):
            swaps.setdefault(row["sequence_id"], {})[row["arm"]] = row["num_successes"]
    effects = sorted((arms["checkpoint"] - arms["reference"] for arms in swaps.values()), reverse=True)
    made = drawings(inputs, ("case_study", "token_heat_map"))
    shown = []
    for study in made["case_study"]:
        records = [record for record in study.records if record["panel"] == "swap"]
        num = {str(record["token"]).split(" ")[0]: _count(record["token"]) for record in records}
        shown.append(num["rl-80's"] - num["its"])
    assert shown == effects[:3]

    # The first one has the divergence of all of its tokens, the spike and the step known to be wrong.
    assert inputs.tables is not None
    rows = inputs.tables.sequences.select(["problem_id", "sequence_id"]).to_pylist()
    chosen = {row["problem_id"].replace("+", "-"): row["sequence_id"] for row in rows}
    number = chosen[made["case_study"][0].name.removeprefix("case_study_")]
    tokens = read_table(run.probe_path / "tokens.parquet", TOKENS_SCHEMA).to_pylist()
    final = [row for row in tokens if (row["sequence_id"], row["checkpoint"]) == (number, "rl-80")]
    line = [record for record in made["case_study"][0].records if record["panel"] == "divergence"]
    assert [record["js"] for record in line] == [row["js"] for row in final if row["reference"] == "dpo-8"]
    assert [record["spike"] for record in line if record["known_wrong"]] == [1]
    assert len(made["token_heat_map"][0].records) == 8 * len(line)


def _count(token: Any) -> int:
    """Return how many continuations were right, from the name of a forced token such as `its own "0": 3 of 16`."""
    return int(str(token).rpartition(": ")[2].split(" ")[0])


def test_functions_draw_on_given_axes_or_their_own(inputs: ReportInputs) -> None:
    first, second = Figure().subplots(2)
    assert swerve.plot.mean_kl_progression(inputs, [first, second]) == (first, second)
    assert inputs.summary is not None
    means = [entry.js.mean for entry in inputs.summary.divergences if entry.js is not None]
    assert list(first.lines[0].get_ydata()) == means
    assert swerve.plot.causal(inputs, first) == (first,)
    panels = swerve.plot.summary_dashboard(inputs)
    assert len(panels) == 6
    pyplot.close("all")
    with pytest.raises(ArtifactError, match="has no data for sampling; it needs: swerve eval"):
        swerve.plot.sampling(inputs)
    with pytest.raises(ConfigError, match="mean_kl_progression has 2 panels; 1 axes were given"):
        swerve.plot.mean_kl_progression(inputs, first)
