from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from swerve.artifacts.files import atomic_directory
from swerve.artifacts.metrics import append_metrics, read_metrics, truncate_metrics
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import SPIKES_SCHEMA, read_table, write_table
from swerve.errors import ArtifactError, CheckpointError, ConfigError


@pytest.fixture
def run(tmp_path):
    run = RunDirectory(tmp_path / "run")
    run.create(config_yaml="seed: 0\n", provenance={"seed": 0})
    for step, stage, stage_step, final in [(4, "sft", 4, True), (6, "rl", 2, False), (9, "rl", 5, True)]:
        with atomic_directory(
            run.checkpoint_path(step),
            step=step,
            stage=stage,
            stage_step=stage_step,
            scheduled=True,
            final=final,
            weights_sha256=f"{step:064d}",
        ) as folder:
            (folder / "weights").write_text(str(step))
    return run


def test_an_existing_directory_is_refused(run):
    with pytest.raises(ConfigError, match="exists; continue it with --resume, choose another with --out"):
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


def test_the_last_intact_checkpoint_has_no_damaged_one_before_it(run):
    newest, damage = run.last_intact_checkpoint()
    assert (newest.label, damage) == ("rl-5", None)
    (run.checkpoint_path(6) / "weights").write_text("damaged")
    newest, damage = run.last_intact_checkpoint()
    assert newest.label == "sft-4"
    assert "step_000006/weights is damaged" in str(damage)
    (run.checkpoint_path(4) / "weights").unlink()
    assert run.last_intact_checkpoint()[0] is None


def test_checkpoints_are_found_by_stage_label_and_name(run):
    assert [checkpoint.label for checkpoint in run.checkpoints()] == ["sft-4", "rl-2", "rl-5"]
    for selector, step in [("rl", 9), ("sft", 4), ("rl-2", 6), ("step_000006", 6)]:
        assert run.select_checkpoint(selector).step == step


def test_an_unknown_checkpoint_lists_what_there_is(run):
    with pytest.raises(
        CheckpointError, match=r"no checkpoint 'rl-3'; it has sft-4, rl-2, rl-5; did you mean 'rl-[25]'\?"
    ):
        run.select_checkpoint("rl-3")


def test_a_directory_without_a_manifest_is_no_checkpoint(run):
    (run.checkpoint_path(6) / "MANIFEST.json").unlink()
    assert [checkpoint.step for checkpoint in run.checkpoints()] == [4, 9]


def test_a_damaged_manifest_is_named(run):
    (run.checkpoint_path(6) / "MANIFEST.json").write_text('{"files": {}}')
    with pytest.raises(CheckpointError, match="step_000006/MANIFEST.json does not name its step"):
        run.checkpoints()


def test_other_schema_versions_and_other_directories_are_refused(run, tmp_path):
    (run.path / "run.json").write_text('{"schema_version": 99}')
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


def test_metrics_survive_a_cut_last_line_and_are_truncated_by_step(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for step in range(1, 5):
        append_metrics(path, {"step": step, "loss": None if step == 2 else step / 2})
    with path.open("a") as stream:
        stream.write('{"step": 5, "lo')
    assert [record["step"] for record in read_metrics(path)] == [1, 2, 3, 4]
    truncate_metrics(path, last_step=2)
    assert read_metrics(path) == [{"step": 1, "loss": 0.5}, {"step": 2, "loss": None}]


def test_damaged_metrics_name_the_line(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"st\n{"step": 3}\n')
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


def test_parts_of_a_rollouts_table_left_by_a_kill_are_removed(run):
    for rank in (0, 1):
        part = run.rollouts_part_path(5, rank)
        part.parent.mkdir(exist_ok=True)
        part.write_text("part")
    run.rollouts_path(4).write_text("whole")
    run.remove_leftovers()
    assert list((run.path / "rollouts").iterdir()) == [run.rollouts_path(4)]
