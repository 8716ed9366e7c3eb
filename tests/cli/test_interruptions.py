"""What an interrupted command says: how it is continued, and that the continued one comes to the same."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from swerve.artifacts.files import TEMPORARY_PREFIX
from swerve.cli import app
from swerve.cli.app import describe_failure
from swerve.errors import InterruptedRunError
from tests.chat_models import byte_level, save_model
from tests.cli.conftest import Swerve
from tests.cli.test_claim import write_planted
from tests.json_lines import write_json_lines


def registered(command: Any = None, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command with its words."""
    command = app._built() if command is None else command
    for name, below in command.commands.items():
        yield from registered(below, (*words, name)) if hasattr(below, "commands") else [((*words, name), below)]


def test_every_registered_command_says_how_it_is_continued() -> None:
    saying = set()
    for words, command in registered():
        line, status = describe_failure(KeyboardInterrupt(), arguments=[*words, "a b", "--out=x"])
        said = re.fullmatch(r"swerve: interrupted; (.+); continue with: swerve (.+)", line)
        assert said is not None, line
        *again, asking = shlex.split(said[2])
        options = {option for param in command.params for option in param.opts}
        resuming = {"train": "--resume-or-start", "demo": "--resume"}.get(" ".join(words))
        assert (status, [*again, asking]) == (130, [*words, "a b", "--out=x", *([resuming] if resuming else [])])
        assert {asking} - {"--out=x"} <= options
        if said[1] == "what was written so far is kept":
            saying.add(" ".join(words))
        else:
            assert said[1] == "it begins anew, and leaves nothing half done"
            assert "same command continues" not in f"{command.help}"
    assert saying == {"demo", "train", "eval", "sample", "probe", "claim", "grade", "study"}


def test_a_word_that_asks_for_the_rest_is_not_repeated() -> None:
    for words in (["train", "runs/x", "--resume"], ["train", "x.yaml", "--resume-or-start"], ["demo", "--resume"]):
        assert describe_failure(KeyboardInterrupt(), arguments=words)[0].endswith(
            f"continue with: swerve {shlex.join(words)}"
        )
    words = ["train", "x.yaml", "--", "seed=1"]
    said = describe_failure(KeyboardInterrupt(), arguments=words)[0]
    assert said.endswith("continue with: swerve train x.yaml --resume-or-start -- seed=1")
    own = InterruptedRunError("interrupted; continue with: swerve train runs/x --resume", signal_number=15)
    assert describe_failure(own, arguments=["train", "x"]) == (f"swerve: {own}", 143)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file of what each command reads."""
    folder = tmp_path_factory.mktemp("inputs")
    write_planted(folder / "base.parquet", "base", 3)
    write_planted(folder / "rl.parquet", "rl", 6)
    rows = [{"problem": f"{k} + 1?", "gold": str(k + 1), "response": f"\\boxed{{{k + k % 2}}}"} for k in range(12)]
    write_json_lines(folder / "answers.jsonl", rows)
    save_model(folder / "model", byte_level(), eos=0)
    return folder


WRITING = (
    "claim IN/base.parquet IN/rl.parquet --parts accuracy --out card",
    "report IN/rl.parquet",
    "export IN/model --out copy",
    "grade IN/answers.jsonl --task math --out verdicts.jsonl",
    "data import IN/answers.jsonl --out table.parquet",
    "data select IN/rl.parquet --correct --out right.parquet",
    "data export IN/rl.parquet --out rows.csv",
    "data write addition --split heldout --out problems.jsonl",
    "data behaviours IN/answers.jsonl --out rows.jsonl",
)


@pytest.mark.slow
@pytest.mark.parametrize("command", WRITING)
def test_what_was_stopped_at_its_end_is_continued_by_the_command_that_is_named(
    swerve: Swerve, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    words = command.replace("IN", str(inputs)).split()
    place = inputs / "rl-report" if words[0] == "report" else tmp_path

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    # Stopped where the first file, whole, is about to get its name.
    with monkeypatch.context() as patched:
        for name in ("replace", "rename"):
            patched.setattr(os, name, interrupt)
        status, _, err = swerve(*words)
    last = err.splitlines()[-1]
    assert (status, last.rpartition("; ")[2]) == (130, f"continue with: swerve {shlex.join(words)}")
    files = [path for path in place.rglob("*") if path.is_file() and path.name != ".lock"]
    assert files == []
    status, _, err = swerve(*shlex.split(last.partition("continue with: swerve ")[2]))
    assert status == 0, err
    names = {path.name for path in place.rglob("*") if path.is_file()}
    assert names
    assert not [name for name in names if name.endswith(".part") or name.startswith(TEMPORARY_PREFIX)]


def test_verdicts_that_nobody_keeps_are_said_to_be_lost(
    swerve: Swerve, inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from swerve.eval import grading

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(grading, "grade_all", interrupt)
    words = ("grade", str(inputs / "answers.jsonl"), "--task", "math")
    status, out, err = swerve(*words)
    assert (status, out) == (130, "")
    assert err.splitlines()[-1] == (
        "swerve: interrupted; verdicts are kept with --out FILE alone, so it begins anew; continue with: swerve "
        f"{shlex.join(words)}"
    )
