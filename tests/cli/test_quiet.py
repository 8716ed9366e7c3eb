"""`--quiet`: neither progress nor notes, wherever it stands; results, warnings and errors stay."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import swerve.cli
from swerve.cli.console import main_progress, set_quiet
from tests.cli.conftest import Swerve
from tests.json_lines import write_json_lines


@pytest.fixture(autouse=True)
def _shown_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "0")  # restored after the test


@pytest.fixture
def answers(tmp_path: Path) -> str:
    rows = [{"gold": str(k), "response": f"\\boxed{{{k}}}"} for k in range(3)]
    return write_json_lines(tmp_path / "answers.jsonl", rows).name


def test_a_result_is_all_that_is_shown(swerve: Swerve, answers: str, tmp_path: Path) -> None:
    words = ["grade", answers, "--task", "math"]
    for more in ([], ["--json"], ["--out", "verdicts.jsonl"]):
        status, out, err = swerve(*words, *more)
        assert (status, "grade: 3/3" in err) == (0, True)
        for place in (0, 1, len(words) + len(more)):
            given = [*words, *more]
            given.insert(place, "--quiet")
            assert swerve(*given) == (0, out, "")
    assert len((tmp_path / "verdicts.jsonl").read_text().splitlines()) == 3


def test_errors_and_warnings_stay(swerve: Swerve, answers: str, tmp_path: Path) -> None:
    for words in (
        ["grade", "none.jsonl", "--task", "math"],
        ["train", "demo_addition", "zebra=1"],
        ["train", "--zebra"],
    ):
        assert swerve(*words, "--quiet") == swerve(*words)
        assert swerve(*words, "--quiet")[2].startswith("swerve: error: ")
    (tmp_path / "runs" / "damaged").mkdir(parents=True)
    (tmp_path / "runs" / "damaged" / "run.json").write_text("{")
    status, out, err = swerve("runs", "--json", "--quiet")
    assert (status, len(json.loads(out)), err.count("swerve: warning: ")) == (0, 1, 1)


def test_an_interrupted_one_is_continued_as_quietly(
    swerve: Swerve, answers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("swerve.eval.grading.grade_all", interrupt)
    err = swerve("grade", answers, "--task", "math", "--out", "v.jsonl", "--quiet")[2]
    assert err == (
        "swerve: interrupted; what was written so far is kept; continue with: swerve --quiet grade answers.jsonl "
        "--task math --out v.jsonl\n"
    )


def test_what_follows_two_dashes_is_not_taken(swerve: Swerve) -> None:
    assert "--quiet" in swerve("train", "demo_addition", "--", "--quiet")[2]


def test_there_is_one_place_that_shows_progress(capsys: pytest.CaptureFixture[str]) -> None:
    files = Path(swerve.cli.__file__).parent.glob("*.py")
    showing = [file.name for file in files if re.search(r"console_progress|LineProgress|BarProgress", file.read_text())]
    assert showing == ["console.py"]
    for is_quiet in (True, False):
        set_quiet(is_quiet)
        with main_progress().task("work", 2):
            main_progress().note("a note")
        assert (capsys.readouterr().err == "") == is_quiet
