from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from swerve.artifacts.checkpoint import cut_back, synced_extent
from swerve.artifacts.files import atomic_directory, write_sealed
from swerve.artifacts.metrics import append_metrics, read_metrics
from swerve.artifacts.run import RunDirectory, find_run
from swerve.artifacts.tables import SPIKES_SCHEMA, read_table, write_table
from swerve.errors import ArtifactError, CheckpointError, ConfigError


@pytest.fixture
def run(tmp_path):
    run = RunDirectory(tmp_path / "run")
    run.create(config_yaml="seed: 0\n", provenance={"config_hash": "c0", "seed": 0, "stages": {"sft": 4, "rl": 5}})
    for step, stage, stage_step, final in [(4, "sft", 4, True), (6, "rl", 2, False), (9, "rl", 5, True)]:
        append_metrics(run.metrics_path, {"step": step})
        _save(run, step, stage=stage, stage_step=stage_step, final=final)
    return run


def _save(run, at, **changes):
    """Write a checkpoint as training does; `changes` of what its manifest says."""
    position = {"step": at, "stage": "rl", "stage_step": at - 4, "scheduled": True, "final": False}
    known = {"weights_sha256": f"{at:064d}", "config_hash": "c0", "seed": 0}
    logs = {"metrics.jsonl": synced_extent(run.metrics_path)}
    with atomic_directory(run.checkpoint_path(at), **{**position, **known, "run_files": logs, **changes}) as folder:
        (folder / "weights").write_text(str(at))


def test_an_existing_directory_is_refused(run):
    with pytest.raises(ConfigError, match=r"exists; continue it with --resume \(.*\), choose another with --out"):
        run.create(config_yaml="", provenance={})


def test_a_directory_with_anything_in_it_is_refused_and_left_alone(tmp_path):
    (tmp_path / "config.yaml").write_text("mine")
    with pytest.raises(ConfigError, match="exists"):
        RunDirectory(tmp_path).create(config_yaml="", provenance={})
    assert (tmp_path / "config.yaml").read_text() == "mine"


def test_an_empty_directory_is_used_and_a_withdrawn_run_leaves_other_files(tmp_path):
    run = RunDirectory(tmp_path / "run")
    run.path.mkdir()
    run.create(config_yaml="seed: 0\n", provenance={})
    (run.path / "notes.txt").write_text("mine")
    run.withdraw()
    assert [path.name for path in run.path.iterdir()] == ["notes.txt"]
    (run.path / "notes.txt").unlink()
    run.create(config_yaml="", provenance={})
    run.withdraw()
    assert not run.path.exists()
    inner = RunDirectory(tmp_path / "new" / "deep" / "run")
    inner.create(config_yaml="", provenance={})
    inner.withdraw([tmp_path / "new" / "deep", tmp_path / "new"])
    assert list(tmp_path.iterdir()) == []


def _intact(run):
    intact, damages = run.intact_checkpoints()
    return [checkpoint.label for checkpoint in intact], [str(damage) for damage in damages]


def test_checkpoints_are_intact_whatever_others_are(run):
    assert _intact(run) == (["sft-4", "rl-2", "rl-5"], [])
    (run.checkpoint_path(6) / "weights").write_text("damaged")
    labels, (damage,) = _intact(run)
    assert labels == ["sft-4", "rl-5"]
    assert "step_000006/weights is damaged" in damage
    for step in (4, 9):
        (run.checkpoint_path(step) / "weights").unlink()
    assert _intact(run)[0] == []


def test_checkpoints_whose_logs_were_changed_are_passed_over(run):
    lines = run.metrics_path.read_text()
    run.metrics_path.write_text(lines.replace("6", "7"))
    labels, damages = _intact(run)
    assert labels == ["sft-4"]
    assert "metrics.jsonl was changed: its first 24 bytes have another SHA-256, which rl-2 (step 6)" in damages[0]
    run.metrics_path.write_text(lines[:-1])
    labels, damages = _intact(run)
    assert labels == ["sft-4", "rl-2"]
    assert "metrics.jsonl was cut off: it has 35 bytes of 36, which rl-5 (step 9) was saved with" in damages[0]


def test_without_the_logs_no_checkpoint_is_believed_and_training_does_not_begin_anew(run):
    run.metrics_path.unlink()
    with pytest.raises(
        ArtifactError, match=r"metrics\.jsonl is missing, which sft-4 .* put it back as it was, or begin"
    ):
        run.intact_checkpoints()


def test_a_run_that_has_lost_its_run_json_is_named(run):
    (run.path / "run.json").unlink()
    with pytest.raises(ConfigError, match=r"is a run without its run\.json; put it back"):
        run.check_new()


def test_checkpoints_that_should_be_there_are_named(run):
    remedy = "is missing; restore it from a copy, or continue without it"
    assert run.missing_checkpoints({4, 6, 9, 12}) == []  # the last one is still to come
    assert run.missing_checkpoints({2, 4, 8, 9}) == [f"step_000002 {remedy}", f"step_000008 {remedy}"]
    run.set_status("trained")
    assert run.missing_checkpoints({4, 6, 9, 12}) == [f"step_000012 {remedy}"]


def test_logs_are_cut_back_to_what_a_checkpoint_was_saved_with(run):
    extent = run.checkpoints[1].run_files["metrics.jsonl"]
    cut_back(run.metrics_path, extent)
    assert run.metrics_path.read_text() == '{"step": 4}\n{"step": 6}\n'
    assert _intact(run)[0] == ["sft-4", "rl-2"]
    cut_back(run.metrics_path, None)
    assert not run.metrics_path.exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"config_hash": "c1"}, "step_000007 is of another run: its config_hash is c1, that of .* c0"),
        ({"seed": 1}, "step_000007 is of another run: its seed is 1, that of .* 0"),
        ({"step": 8, "stage_step": 4}, "says step 8: it does not belong into this directory"),
        ({"stage_step": 4}, "says rl-4 at step 7, which the run's stages do not have"),
        ({"stage": "sft", "stage_step": 7}, "says sft-7 at step 7, which the run's stages do not have"),
        ({"stage": "dpo", "stage_step": 3}, "says dpo-3 at step 7, which the run's stages do not have"),
        ({"final": True}, "says rl-3 at step 7, which the run's stages do not have"),
        ({"step": "7"}, "does not name its step, stage and weights"),
        ({"run_files": [1]}, "does not name its step, stage and weights"),
    ],
)
def test_a_checkpoint_that_does_not_belong_to_the_run_is_named(run, changes, message):
    _save(run, 7, **changes)
    with pytest.raises(CheckpointError, match=message):
        run.checkpoints  # noqa: B018
    assert _intact(run)[0] == ["sft-4", "rl-2", "rl-5"]


def test_what_a_run_began_with_cannot_be_changed(run):
    run.set_status("training")
    assert run.read_provenance()["status"] == "training"
    run.config_path.write_text("seed: 7\n")
    with pytest.raises(ArtifactError, match=r"config\.yaml is not what the run began with"):
        run.read_provenance()
    run.set_status("failed")  # does not believe the change either
    run.config_path.write_text("seed: 0\n")
    assert run.read_provenance()["status"] == "failed"
    path = run.path / "run.json"
    path.write_text(path.read_text().replace('"seed": 0', '"seed": 7'))
    with pytest.raises(ArtifactError, match=r"run\.json was changed after it was written"):
        run.read_provenance()


def test_checkpoints_are_found_by_stage_label_and_name(run):
    assert [checkpoint.label for checkpoint in run.checkpoints] == ["sft-4", "rl-2", "rl-5"]
    for selector, step in [("rl", 9), ("sft", 4), ("rl-2", 6), ("step_000006", 6)]:
        assert run.select_checkpoint(selector).step == step


def test_an_unknown_checkpoint_lists_what_there_is(run):
    with pytest.raises(
        CheckpointError, match=r"no checkpoint 'rl-3'; it has sft-4, rl-2, rl-5; did you mean 'rl-[25]'\?"
    ):
        run.select_checkpoint("rl-3")


def test_a_directory_without_a_manifest_is_no_checkpoint(run):
    (run.checkpoint_path(6) / "MANIFEST.json").unlink()
    assert [checkpoint.step for checkpoint in run.checkpoints] == [4, 9]


def test_a_damaged_manifest_is_named(run):
    write_sealed(run.checkpoint_path(6) / "MANIFEST.json", {"files": {"weights": "0"}})
    with pytest.raises(CheckpointError, match="step_000006/MANIFEST.json does not name its step"):
        run.checkpoints  # noqa: B018


def test_other_schema_versions_and_other_directories_are_refused(run, tmp_path):
    write_sealed(run.path / "run.json", {"schema_version": 99})
    with pytest.raises(ArtifactError, match="run schema version 99, this swerve reads 1"):
        run.read_provenance()
    with pytest.raises(ArtifactError, match="is not a run directory"):
        RunDirectory(tmp_path).read_provenance()


def test_a_second_process_is_refused_and_the_first_is_named(run):
    script = """
        import sys, time
        from pathlib import Path
        from swerve.artifacts.run import RunDirectory
        with RunDirectory(Path(sys.argv[1])).lock():
            print("held", flush=True)
            sys.stdin.readline()
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(run.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(ArtifactError, match=f"in use by process {holder.pid}"), run.lock():
            pass
        holder.communicate("\n")
    with run.lock():
        pass


def test_metrics_survive_a_cut_last_line(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for step in range(1, 5):
        append_metrics(path, {"step": step, "loss": None if step == 2 else step / 2})
    with path.open("a") as stream:
        stream.write('{"step": 5, "lo')
    assert [record["step"] for record in read_metrics(path)] == [1, 2, 3, 4]
    assert read_metrics(path)[:2] == [{"step": 1, "loss": 0.5}, {"step": 2, "loss": None}]


def test_damaged_metrics_name_the_line(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for line in ('{"st', '{"step": 2, "loss": NaN}'):
        path.write_text(f'{{"step": 1}}\n{line}\n{{"step": 3}}\n')
        with pytest.raises(ArtifactError, match=r"metrics\.jsonl:2 is not a JSON object"):
            read_metrics(path)


SPIKE = {
    "sequence_id": 3,
    "position": 7,
    "checkpoint": "rl-5",
    "method": "zscore",
    "divergence": "js",
    "value": 0.25,
    "threshold": 0.125,
    "height": 1,
    "is_wrong": True,
    "is_first_wrong": None,
}


def test_tables_round_trip_and_check_their_fields(tmp_path):
    path = tmp_path / "spikes.parquet"
    write_table(path, [SPIKE], SPIKES_SCHEMA)
    assert read_table(path, SPIKES_SCHEMA).to_pylist() == [SPIKE]
    with pytest.raises(ValueError, match=r"fields \['height'\] differ"):
        write_table(path, [{name: value for name, value in SPIKE.items() if name != "height"}], SPIKES_SCHEMA)


def test_every_flipped_bit_in_a_table_is_noticed(tmp_path):
    """Footer and pages: each damaged copy is refused, or read back unchanged where the byte carries nothing."""
    path = tmp_path / "spikes.parquet"
    rows = [{**SPIKE, "position": position, "value": position / 7} for position in range(200)]
    write_table(path, rows, SPIKES_SCHEMA)
    original, expected = path.read_bytes(), read_table(path, SPIKES_SCHEMA).to_pylist()
    refused = 0
    for place in range(4, len(original) // 2, 97):
        path.write_bytes(original[:place] + bytes([original[place] ^ 16]) + original[place + 1 :])
        try:
            assert read_table(path, SPIKES_SCHEMA).to_pylist() == expected
        except ArtifactError as error:
            assert "spikes.parquet" in str(error)  # noqa: PT017
            refused += 1
    assert refused > 3


def test_another_table_version_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "spikes.parquet"
    monkeypatch.setattr("swerve.artifacts.tables.TABLE_VERSION", "0")
    write_table(path, [SPIKE], SPIKES_SCHEMA)
    monkeypatch.undo()
    with pytest.raises(ArtifactError, match="table version 0, this swerve reads 1"):
        read_table(path, SPIKES_SCHEMA)


def test_who_takes_the_lock_removes_what_kills_left_and_follows_no_link(run, tmp_path):
    kept = [run.report_path / ".swerve-tmp-1-index.html", run.path / "probe-a" / "probe" / ".swerve-tmp-1-tokens"]
    RunDirectory(run.path / "probe-a").create(config_yaml="", provenance={})
    left = [
        run.path / "eval" / ".swerve-tmp-1-step_000004.json",
        run.path / "probe" / "states" / ".swerve-tmp-7-a.json",
    ]
    for path in (*kept, *left):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("half")
    (run.path / "checkpoints" / ".swerve-tmp-9-step_000009" / "trainer_state").mkdir(parents=True)
    (run.path / ".tmp-notes.txt").touch()
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "rollouts.parquet").touch()
    (run.path / ".swerve-tmp-link").symlink_to(other, target_is_directory=True)
    with run.lock():
        assert sorted(run.path.rglob(".swerve-tmp-*")) == sorted(kept)
        assert (run.path / ".tmp-notes.txt").is_file()  # somebody else's
        assert (other / "rollouts.parquet").is_file()
        assert (run.path / ".lock").read_text() == f"{os.getpid()} on {socket.gethostname()}"
    assert (run.path / ".lock").read_text() == ""


def test_only_checkpoints_that_no_longer_serve_resuming_are_removed(run):
    for step in (5, 7, 8):
        _save(run, step, scheduled=False)
    (run.checkpoint_path(8) / "MANIFEST.json").unlink()
    (run.checkpoint_path(4) / "MANIFEST.json").unlink()
    for name in ("step_000005-merged", "mine", "step_5"):
        (run.path / "checkpoints" / name).mkdir()
    run.remove_outdated_checkpoints(7, scheduled={4, 6, 9})
    assert sorted(path.name for path in (run.path / "checkpoints").iterdir()) == [
        *("mine", "step_000004", "step_000005-merged", "step_000006", "step_000007", "step_000009", "step_5")
    ]


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("p_cli", "`swerve runs` lists"),
        ("mina", "did you mean 'runs/mine'"),
        ("run/mine", "did you mean 'runs/mine'"),
        ("mine:rl-80", "did you mean 'runs/mine'"),
    ],
)
def test_only_a_near_name_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, hint: str) -> None:
    monkeypatch.chdir(tmp_path)
    RunDirectory(tmp_path / "runs/mine").create(config_yaml="", provenance={})
    with pytest.raises(ArtifactError, match=f"run directory {given} does not exist; {hint}"):
        find_run(given)
