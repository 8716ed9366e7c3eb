"""The stages after one another, each on what the one before wrote."""

from __future__ import annotations

import json
import shutil

import pytest

from swerve.artifacts.files import read_json, read_sealed, write_sealed
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.artifacts.response_columns import SEQUENCES_SCHEMA
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import TOKENS_SCHEMA, read_table
from swerve.config.recipe import ReportConfig
from swerve.errors import ArtifactError
from swerve.eval.heldout import evaluate_run
from swerve.probe import probe_run
from swerve.progress import SilentProgress
from swerve.recipes import load_config
from swerve.report.read import missing_inputs
from swerve.report.run_page import write_page
from swerve.train import train
from tests.campaign.kills import killed_at
from tests.campaign.states import contents, differences
from tests.command_line import exit_status


@pytest.fixture(scope="module")
def probed(small_run, tmp_path_factory):
    """The small run, probed where its last checkpoint is wrong and its first was too: any wrong rollouts will do."""
    path = tmp_path_factory.mktemp("probed") / "run"
    shutil.copytree(small_run.path, path)
    run = RunDirectory(path)
    config = load_config(run.config_path, ["probe.reference=sft-100", "probe.final=rl", "probe.checkpoints=rl"])
    return run, probe_run(config, run, progress=SilentProgress())


def test_probe_reads_the_checkpoints_and_evaluations_of_a_run(probed):
    run, summary = probed
    assert summary.reference == "sft-100"
    assert summary.checkpoints == ("rl-2", "rl-4")
    assert summary.num_rollouts >= 1
    sequences = read_table(run.probe_path / "sequences.parquet", SEQUENCES_SCHEMA).to_pylist()
    tokens = read_table(run.probe_path / "tokens.parquet", TOKENS_SCHEMA).to_pylist()
    for sequence in sequences:
        of_sequence = [row for row in tokens if row["sequence_id"] == sequence["sequence_id"]]
        rows = [row for row in of_sequence if (row["checkpoint"], row["reference"]) == ("rl-4", "sft-100")]
        assert [row["token_id"] for row in rows] == sequence["completion_ids"]
        own = "argmax_ref" if sequence["label"] == "sft-100" else "argmax"  # both decoded greedily
        assert all(row[own] == row["token_id"] for row in rows)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_in_the_demo_the_token_of_rl_repairs_and_its_controls_do_not(seed, tmp_path):
    # The demo itself, with fewer problems and without what no figure below is of.
    changes = [
        "stages.rl.checkpoints=[80]",
        "probe.populations=[reference_wrong]",
        "probe.cross_sampling.max_problems=0",
    ]
    changes += ["eval.num_problems=150", "probe.causal.max_rollouts=40", "probe.pivots.max_rollouts=0"]
    config = load_config("demo_multiplication", [f"seed={seed}", *changes])
    run = train(config, out=tmp_path / "run", progress=SilentProgress())
    evaluate_run(config, run, progress=SilentProgress())
    summary = probe_run(config, run, progress=SilentProgress())

    # RL moved the planted mistake most, which is not where the model was least sure.
    place = summary.claim("top", "first_wrong")
    assert place.estimate.mean > 0.95
    assert place.stands
    assert place.null("entropy").value < 0.1

    # Its token there repairs the answer; another product there does not, nor does its token elsewhere.
    spike = summary.spike_swaps
    assert spike.reference.success < 0.05
    assert spike.checkpoint.success > 0.7
    assert spike.alternative.success < 0.05
    assert spike.effect.low > 0.5
    assert not spike.alternative_effect.excludes(0)
    elsewhere = summary.causal.selection("random").effect  # None where both models choose one token everywhere
    assert elsewhere is None or abs(elsewhere.mean) < 0.05


@pytest.mark.slow
def test_report_shows_the_runs_own_figures(probed):
    run, summary = probed
    page = write_page(run, options=ReportConfig(title="A title with <b>markup</b>")).read_text()
    assert "A title with &lt;b&gt;markup&lt;/b&gt;" in page
    accuracy = read_json(run.evaluation_path(run.select_checkpoint("rl")))["greedy"]["accuracy"]["mean"]
    assert f"{100 * accuracy:.1f}%" in page
    assert str(summary.num_reference_wrong_final_right) in page


@pytest.mark.slow
def test_parts_that_do_not_belong_together_are_refused(probed, tmp_path):
    run = RunDirectory(tmp_path / "run")
    shutil.copytree(probed[0].path, run.path)
    path, summary = run.evaluation_path(run.select_checkpoint("rl")), run.probe_path / "summary.json"
    evaluation, probe = read_sealed(path), read_sealed(summary)
    write_sealed(path, {**evaluation, "settings": {**evaluation["settings"], "seed": 99}})
    config = load_config(run.config_path, ["probe.reference=sft-100"])
    for stage in (
        lambda: probe_run(config, run, progress=SilentProgress()),
        lambda: write_page(run, options=ReportConfig()),
    ):
        with pytest.raises(ArtifactError, match="different settings; run swerve eval"):
            stage()
    write_sealed(path, evaluation)
    write_sealed(summary, {**probe, "weights_sha256": {**probe["weights_sha256"], "rl-4": "0" * 64}})
    with pytest.raises(ArtifactError, match="the probe of .* is of other weights of rl-4; run swerve probe"):
        write_page(run, options=ReportConfig())
    write_sealed(summary, probe)
    write_page(run, options=ReportConfig())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "points"), [("eval", (8, 23, 34, 27)), ("probe", (5, 14, 16, 24, 27)), ("report", (3, 6, 9))]
)
def test_killed_where_it_touches_the_disk_a_stage_ends_the_same_and_leaves_nothing(probed, tmp_path, name, points):
    """Killed at all of the points in a row, then run to the end: the directory is what it was, file by file."""
    run = RunDirectory(tmp_path / "run")
    shutil.copytree(probed[0].path, run.path)
    config = load_config(run.config_path, ["probe.reference=sft-100", "probe.final=rl", "probe.checkpoints=rl"])
    commands = {
        "eval": lambda: evaluate_run(config, run, progress=SilentProgress()),
        "probe": lambda: probe_run(config, run, progress=SilentProgress()),
        "report": lambda: write_page(run, options=ReportConfig()),
    }
    commands[name]()
    expected = contents(run.path)
    shutil.rmtree(run.path / name)
    left = set()
    for point in points:
        assert killed_at(commands[name], point, root=run.path, log=tmp_path / "printed")
        left.update(run.path.rglob(".swerve-tmp-*"))
    assert left
    commands[name]()
    assert differences(contents(run.path), expected) == []


def test_what_a_report_lacks_though_files_beside_it_are_there_is_named(probed, tmp_path, capsys):
    run = RunDirectory(tmp_path / "run")
    shutil.copytree(probed[0].path, run.path)
    assert missing_inputs(run) == []
    evaluation, summary = run.evaluation_path(run.select_checkpoint("sft-100")), run.probe_path / "summary.json"
    evaluation.unlink()
    summary.unlink()
    exit_status("report", str(run.path))
    said = capsys.readouterr().err
    assert f"{evaluation} is missing; make it with: swerve eval {run.path}" in said
    assert f"{summary} is missing; make it with: swerve probe {run.path}" in said


def test_a_locked_run_is_refused_by_every_stage_that_writes(probed):
    run, config = probed[0], load_config(probed[0].config_path, ["probe.reference=sft-100"])
    with run.lock():
        for stage in (evaluate_run, probe_run):
            with pytest.raises(ArtifactError, match="is in use by process"):
                stage(config, run, progress=SilentProgress())


def test_the_command_prints_the_stage_as_json(probed, tmp_path, capsys):
    run, summary = RunDirectory(tmp_path / "run"), probed[1]
    shutil.copytree(probed[0].path, run.path)
    assert exit_status("probe", str(run.path), "probe.reference=sft-100", "probe.causal.max_rollouts=0", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["num_rollouts"] == summary.num_rollouts
    assert printed["causal"] is None


@pytest.mark.planted
def test_the_demo_learns_addition_with_another_seed(tmp_path, capsys):
    assert exit_status("demo", "seed=1", "--out", str(tmp_path / "run"), "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["evaluations"][-1]["greedy"]["accuracy"]["mean"] > 0.9
    probe = ProbeSummary.model_validate(result["probe"])
    assert probe.num_reference_wrong_final_right >= 100
    top = probe.spike_hits("rl-80", "js")
    assert top.top_on_first_wrong.low > 10 * top.chance_first_wrong
