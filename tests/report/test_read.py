"""What the report reads: parts that belong together, and different right answers among the samples of a problem."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from swerve.artifacts.checkpoint import synced_extent
from swerve.artifacts.evaluation import largest_k
from swerve.artifacts.files import atomic_directory, read_sealed, sha256_file, write_sealed
from swerve.artifacts.metrics import append_metrics, read_step_metrics
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import write_table
from swerve.errors import ArtifactError
from swerve.report.read import read_inputs
from swerve.report.rollouts import rollout_payload


def test_the_largest_number_of_samples_of_any_checkpoint(inputs_of: Any) -> None:
    entries = [{"sampled": {"curve": [{"k": k} for k in ks]}} for ks in ((1,), (1, 8), ())]
    evaluations = inputs_of(entries).evaluations
    assert largest_k(evaluations) == 8
    assert largest_k(evaluations[2:]) == 0


def test_parts_of_other_settings_or_weights_are_refused(inputs_of: Any, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    run.create(config_yaml="", provenance={})
    found = inputs_of(summary={"weights_sha256": {"rl-80": "b"}})
    first, last = found.evaluations
    for one in (first, last.model_copy(update={"settings": {"seed": 1}})):
        one.write(run.path / "eval" / f"{one.file_name}.json")
    with pytest.raises(ArtifactError, match=r"were made with different settings; run swerve eval"):
        read_inputs(run)
    last.model_copy(update={"weights_sha256": "a"}).write(run.path / "eval" / f"{last.file_name}.json")
    found.summary.write(run.probe_path / "summary.json")
    with pytest.raises(ArtifactError, match=r"is of other weights of rl-80; run swerve probe"):
        read_inputs(run)


@pytest.fixture
def probed(synthetic: Any, tmp_path: Path) -> RunDirectory:
    """A probed run whose summary names its tables, as the probe writes it."""
    run: RunDirectory = synthetic.write_synthetic_run(tmp_path / "run", num_rollouts=2)
    digests = {path.name: sha256_file(path) for path in run.probe_path.glob("*.parquet")}
    write_sealed(run.probe_path / "summary.json", {**read_sealed(run.probe_path / "summary.json"), "tables": digests})
    return run


def test_a_probe_and_its_tables_belong_together(probed: RunDirectory) -> None:
    assert read_inputs(probed).tables is not None
    tokens, summary = probed.probe_path / "tokens.parquet", probed.probe_path / "summary.json"
    table, text = tokens.read_bytes(), summary.read_text()
    tokens.unlink()
    with pytest.raises(ArtifactError, match=r"tokens\.parquet is listed in summary\.json but missing; run swerve"):
        read_inputs(probed)
    shutil.copy(probed.probe_path / "topk.parquet", tokens)
    with pytest.raises(ArtifactError, match=r"tokens\.parquet is damaged: its SHA-256 differs .*; run swerve probe"):
        read_inputs(probed)
    tokens.write_bytes(table)
    summary.write_text(text.replace('"confidence": 0.95', '"confidence": 0.99'))
    with pytest.raises(ArtifactError, match=r"summary\.json was changed after it was written.*; run swerve probe"):
        read_inputs(probed)
    summary.unlink()  # as a kill in the middle of another probe leaves it: the tables are of no probe
    assert read_inputs(probed).tables is None


def _first(values: list[Any], value: Any) -> list[Any]:
    return [value, *values[1:]]


def _odd(values: list[Any]) -> list[Any]:
    return [value[: -(index % 2) or None] for index, value in enumerate(values)]


@pytest.mark.parametrize(
    ("name", "column", "change", "fault"),
    [
        ("sequences", "sequence_id", lambda values: values[::-1], "its rows are not rollouts numbered from 0"),
        ("sequences", "token_starts", _odd, "its rows are not rollouts numbered from 0"),
        ("sequences", "text", lambda values: _first(values, None), "its rows are not rollouts numbered from 0"),
        (
            "tokens",
            "sequence_id",
            lambda values: _first(values, -1),
            "a row is of a token that sequences.parquet lacks",
        ),
        ("tokens", "reference", lambda values: ["sft-1"] * len(values), "it compares nothing with dpo-8"),
        ("topk", "position", lambda values: _first(values, 999), "a row is of a token that sequences.parquet lacks"),
        ("topk", "checkpoint", lambda values: _first(values, "rl-9"), "it has another model than tokens.parquet"),
        ("topk", "token_ids", _odd, "its lists differ in length"),
        ("topk", "token_ids", lambda values: [[-1, *ids[1:]] for ids in values], "a token has an id below 0"),
        ("spikes", "sequence_id", lambda values: _first(values, 999), "a row is of a token that sequences.parquet"),
        ("interventions", "arm", lambda values: _first(values, None), "a row lacks a value"),
        ("interventions", "num_continuations", lambda values: _first(values, 0), "a forced token has no continuation"),
    ],
)
def test_a_table_that_does_not_fit_the_others_is_named(
    probed: RunDirectory, name: str, column: str, change: Callable[[list[Any]], list[Any]], fault: str
) -> None:
    path, summary = probed.probe_path / f"{name}.parquet", probed.probe_path / "summary.json"
    table = pq.read_table(path)
    values = pa.array(change(table[column].to_pylist()), table.schema.field(column).type)
    write_table(path, table.set_column(table.schema.get_field_index(column), column, values), table.schema)
    digests = {**read_sealed(summary)["tables"], path.name: sha256_file(path)}
    write_sealed(summary, {**read_sealed(summary), "tables": digests})
    with pytest.raises(ArtifactError, match=rf"{name}\.parquet is damaged: {fault}.*; run swerve probe .* again"):
        read_inputs(probed)


def test_a_probe_that_compared_no_rollout_is_whole(probed: RunDirectory) -> None:
    summary = probed.probe_path / "summary.json"
    digests = {}
    for name in ("tokens", "topk", "spikes", "interventions"):
        path = probed.probe_path / f"{name}.parquet"
        write_table(path, pq.read_schema(path).empty_table(), pq.read_schema(path))
        digests[path.name] = sha256_file(path)
    write_sealed(summary, {**read_sealed(summary), "tables": {**read_sealed(summary)["tables"], **digests}})
    inputs = read_inputs(probed)
    assert inputs.tables is not None
    assert rollout_payload(inputs) is None


@pytest.mark.parametrize("name", ["topk", "spikes", "interventions"])
def test_a_table_that_the_summary_does_not_list_is_named_where_it_is_missing(probed: RunDirectory, name: str) -> None:
    path, summary = probed.probe_path / f"{name}.parquet", probed.probe_path / "summary.json"
    path.unlink()
    write_sealed(summary, {**read_sealed(summary), "tables": {}})
    with pytest.raises(ArtifactError, match=rf"{name}\.parquet does not exist; .*; run swerve probe .* again"):
        read_inputs(probed)


def test_the_evaluation_of_another_step_is_named(probed: RunDirectory) -> None:
    first, second = sorted((probed.path / "eval").glob("step_*.json"))[:2]
    shutil.copy(first, second)
    with pytest.raises(
        ArtifactError, match=rf"{second.name} is the evaluation of step {int(first.stem[5:])}; run swerve"
    ):
        read_inputs(probed)


def test_metrics_that_are_not_those_of_the_last_checkpoint_are_named(probed: RunDirectory) -> None:
    position = {"step": 588, "stage": "rl", "stage_step": 80, "scheduled": True, "final": True, "weights_sha256": "w"}
    logs = {"metrics.jsonl": synced_extent(probed.metrics_path)}
    with atomic_directory(probed.checkpoint_path(588), **position, run_files=logs) as folder:
        (folder / "model.safetensors").write_text("")
    for path in (probed.path / "eval").glob("*.json"):
        path.unlink()
    (probed.probe_path / "summary.json").unlink()
    assert len(read_inputs(probed).metrics) == 588
    append_metrics(probed.metrics_path, {"step": 589, "stage": "rl", "stage_step": 81})
    assert len(read_inputs(probed).metrics) == 589
    probed.metrics_path.write_text(probed.metrics_path.read_text().replace("0.5", "0.6", 1))
    with pytest.raises(ArtifactError, match=r"metrics\.jsonl was changed: .*, which rl-80 \(step 588\) was saved with"):
        read_inputs(probed)


def test_a_line_of_metrics_with_another_kind_of_value_is_named(tmp_path: Path) -> None:
    append_metrics(tmp_path / "metrics.jsonl", {"step": 1, "stage": "rl", "stage_step": 1})
    append_metrics(tmp_path / "metrics.jsonl", {"step": 2, "stage": "rl", "stage_step": 2, "reward": "high"})
    with pytest.raises(ArtifactError, match=r"metrics\.jsonl:2: reward: .*; the file is damaged"):
        list(read_step_metrics(tmp_path / "metrics.jsonl"))
