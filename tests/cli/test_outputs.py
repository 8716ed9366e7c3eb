"""`--out` of every command: a file where its name ends as one of the command's, a folder where it has no ending."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from swerve.artifacts.output_names import check_output
from swerve.artifacts.run import RunDirectory
from swerve.errors import ConfigError
from swerve.formats.row_files import write_rows
from tests.cli.conftest import Swerve
from tests.cli.test_interruptions import registered
from tests.json_lines import write_json_lines

WRITING = {
    " ".join(words): option
    for words, command in registered()
    for option in [*command.params, *command.more]
    if "--out" in option.opts and words[0] != "plan"
}


def test_every_command_that_writes_somewhere_is_known() -> None:
    assert {name: option.metavar for name, option in WRITING.items()} == {
        **dict.fromkeys(("demo", "train", "eval", "probe", "claim", "study", "export", "report"), "DIR"),
        "bench estimators": "DIR",
        **dict.fromkeys(("grade", "data write", "data import", "data select", "data behaviours"), "FILE"),
        **dict.fromkeys(("sample", "data export"), "FILE|DIR"),
    }


@pytest.mark.parametrize("name", WRITING)
def test_another_ending_is_refused_with_those_that_are_allowed(swerve: Swerve, tmp_path: Path, name: str) -> None:
    for out in ("o.txt", "o.html", "o.parquetx"):
        several = ["a", "b"] if name == "report" else []  # of one it is refused, whatever its name
        status, printed, err = swerve(*name.split(), *several, "--out", out)
        assert (status, printed, err.count("\n")) == (2, "", 1)
        files, folder = "FILE" in WRITING[name].metavar, "DIR" in WRITING[name].metavar
        assert err.startswith(f"swerve: error: --out {out} must {'end in .' if files else 'be the name of a folder'}")
        assert ("the name of a folder, which has no ending such as ." in err) == folder
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [name for name, option in WRITING.items() if "DIR" in option.metavar])
def test_nothing_is_written_among_the_files_of_a_run(swerve: Swerve, tmp_path: Path, name: str) -> None:
    RunDirectory(tmp_path / "mine").create(config_yaml="", provenance={})
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    several = ["a", "b"] if name == "report" else []
    err = swerve(*name.split(), *several, "--out", "mine")[2]
    is_of_runs = name in ("demo", "train", "probe")  # they say more themselves
    assert ("--out mine is the folder of a run, which keeps its own files; give another folder" in err) != is_of_runs
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


def test_what_is_a_file_and_what_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("old.txt").mkdir()
    Path("file").write_text("")
    for name in ("runs/mine", "Qwen2.5-0.5B", "Llama-3.1-8B", "card.2", "set.d", "old.txt", "."):
        check_output(Path(name), folder=True)
        check_output(Path(name), ".parquet", folder=True)
        with pytest.raises(ConfigError, match=r"must end in .parquet|is a directory"):
            check_output(Path(name), ".parquet")
    for name in ("rows.parquet", "a.b/rows.jsonl"):
        check_output(Path(name), ".jsonl", ".parquet")
        check_output(Path(name), ".jsonl", ".parquet", folder=True)
        with pytest.raises(ConfigError, match="the name of a folder, which has no ending such as .(parquet|jsonl)"):
            check_output(Path(name), folder=True)
    with pytest.raises(ConfigError, match="--out file is a file; give a folder"):
        check_output(Path("file"), folder=True)
    with pytest.raises(ConfigError, match="must end in .jsonl, .csv or .parquet"):
        check_output(Path("a.md"), ".jsonl", ".csv", ".parquet")


def test_the_ending_says_how_verdicts_problems_and_metrics_are_written(swerve: Swerve, tmp_path: Path) -> None:
    rows = [{"id": str(k), "gold": str(k), "response": f"\\boxed{{{k % 3}}}", "note": {"at": k}} for k in range(5)]
    file = write_json_lines(tmp_path / "answers.jsonl", rows)
    for command in (
        ("grade", file.name, "--task", "math"),
        ("data", "write", "addition", "--split", "heldout"),
        ("data", "behaviours", file.name),
    ):
        found = []
        for name in ("out.jsonl", "out.parquet"):
            status, _, err = swerve(*command, "--out", name)
            assert status == 0, err
        lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
        found = pq.read_table(tmp_path / "out.parquet").to_pylist()
        assert len(found) == len(lines) > 0
        for row, line in zip(found, lines, strict=True):
            assert {key: value for key, value in row.items() if value is not None} == without_nulls(line)


def without_nulls(row: dict[str, Any]) -> dict[str, Any]:
    """Return what a table holds of a row: an object without fields is JSON text."""
    shown = {key: "{}" if value == {} else value for key, value in row.items()}
    return {key: value for key, value in shown.items() if value is not None}


def test_columns_of_values_that_have_no_type_in_common(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"a": 1, "b": [1], "c": None, "d": {"x": 1}, "e": 2**70}, {"a": "1", "b": 2.5}]
    rows += [{"late": True, "b": "é\ud83d", "d": {"y": "z"}} for _ in range(600)]  # several chunks
    write_rows(tmp_path / "t.parquet", rows)
    first, second, *_, last = pq.read_table(tmp_path / "t.parquet").to_pylist()
    assert first == {"a": "1", "b": "[1]", "c": None, "d": {"x": 1, "y": None}, "e": str(2**70), "late": None}
    assert (second["a"], second["b"], last["late"], last["d"]) == ("1", "2.5", True, {"x": None, "y": "z"})
    assert list(tmp_path.iterdir()) == [tmp_path / "t.parquet"]
