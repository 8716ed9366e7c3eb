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
from swerve.cli import main
from swerve.errors import ArtifactError
from swerve.report.figures import figure_specs, write_all_figures
from swerve.report.read import ReportInputs, read_inputs

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


def test_figures_of_an_earlier_report_go_and_the_users_own_stay(
    probed: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("swerve.report.figures.write_figures", lambda *_: ())
    names = ("causal.png", "case_study_math-1.svg", "length.csv", "mine.png", "causal-2.png", "table.csv")
    for name in names:
        (tmp_path / name).touch()
    write_all_figures(read_inputs(probed), tmp_path)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["causal-2.png", "mine.png", "table.csv"]


@pytest.fixture(scope="module")
def probed(synthetic: Any, entries: Any, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A run whose figures may be written."""
    written: RunDirectory = synthetic.write_synthetic_run(
        tmp_path_factory.mktemp("runs") / "run", num_rollouts=4, entries=entries
    )
    return written


def test_named_figures_are_written_and_missing_ones_named(
    probed: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, path = probed.report_path / "figures", str(probed.path)
    folder.mkdir(parents=True)
    kept, stale = folder / "length.svg", folder / "causal.pdf"
    kept.touch()
    stale.touch()
    status, out, err = command(capsys, "report", path, "--figures", "causal,training_curves", "--format", "svg")
    assert (status, out.split()) == (0, [str(folder / "causal.svg"), str(folder / "causal.csv")])
    assert "not measured: training_curves; it needs: swerve train" in err
    assert (kept.exists(), stale.exists()) == (True, False)
    status, out, _ = command(capsys, "report", path, "--figures", "onset", "sampling", "--format", "svg", "--json")
    assert json.loads(out) == {
        "figures": [str(folder / "onset.svg"), str(folder / "onset.csv")],
        "missing": {"sampling": "swerve eval RUN eval.samples_per_problem=4"},
    }
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
        (("--problem", "p"), "--problem and --format are of figures; add --figures"),
    ],
)
def test_what_does_not_exist_is_named(
    probed: RunDirectory, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    status, _, err = command(capsys, "report", str(probed.path), *arguments)
    assert (status, err.count("\n"), said in err) == (2, 1, True)


def test_functions_draw_on_given_axes_or_their_own(inputs: ReportInputs) -> None:
    axes = Figure().add_subplot()
    assert swerve.plot.mean_kl_progression(inputs, axes) is axes
    assert inputs.summary is not None
    means = [one.js.mean for one in inputs.summary.divergences if one.js is not None]
    assert list(axes.lines[2].get_ydata()) == means
    panels = swerve.plot.summary_dashboard(inputs)
    assert len(panels) == 6
    pyplot.close("all")
    with pytest.raises(ArtifactError, match="has no data for training_curves; it needs: swerve train"):
        swerve.plot.training_curves(inputs)
