"""Options that are keys of settings, wrapping, and what the shell completes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from swerve.cli.completion import completed
from swerve.cli.text import table, wrapped
from swerve.config.sampling import SampleSettings

Swerve = Callable[..., tuple[int, str, str]]


def test_options_have_the_words_and_defaults_of_their_fields(swerve: Swerve) -> None:
    status, out, _ = swerve("sample", "--help")
    said = " ".join(out.split())
    assert status == 0
    assert "--split train|heldout Which of the task's problems are sampled. [default: heldout]" in said
    assert "--batch ROWS" in said
    assert "[default: 64]" in said.partition("--batch ROWS")[2].partition("--")[0]
    description = str(SampleSettings.model_fields["limit"].description)
    assert f"--limit N {description}" in said
    assert "<" not in out.replace("<think>", "")
    assert "[default: 4]" in " ".join(swerve("eval", "--help")[1].split()).partition("--num-samples N")[2][:90]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--limit", "0"), "--limit: 'limit' must be greater than 0, got 0"),
        (("--num-samples", "x"), "--num-samples: 'num_samples' must be an integer, got 'x'"),
        (("--split", "test"), "--split: 'split' must be one of 'train', 'heldout', got 'test'"),
    ],
)
def test_errors_name_the_option(swerve: Swerve, tmp_path: Path, option: tuple[str, str], message: str) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text("{}")
    status, out, err = swerve("sample", "m", "--task", "addition", "--out", "x.parquet", *option)
    assert (status, out) == (2, "")
    assert err.startswith(f"swerve: error: {message}")


def test_no_word_is_broken_at_80_columns(swerve: Swerve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swerve.cli.text.width", lambda: 80)
    words = {word for line in swerve("recipes")[1].splitlines() for word in line.split()}
    monkeypatch.setattr("swerve.cli.text.width", lambda: 10_000)
    assert words == set(swerve("recipes")[1].split())
    assert wrapped("one two", columns=5) == "one\ntwo"
    assert table([("A", "B"), ("name", "a long text")], columns=12) == "name\n  b a long\n  text"


def test_recipes_of_a_task(swerve: Swerve) -> None:
    status, out, _ = swerve("recipes", "--task", "gsm8k")
    assert status == 0
    names = [line.split()[0] for line in out.splitlines() if not line.startswith(" ")]
    assert {"gsm8k", "spo_gsm8k"} <= {*names}
    assert "math" not in names
    assert "did you mean 'gsm8k'?" in swerve("recipes", "--task", "gsm8")[2]


@pytest.mark.parametrize(
    ("kind", "command", "incomplete", "expected"),
    [
        ("recipes", "train", "demo_a", ["demo_addition"]),
        ("recipes", "study", "demo", ["demo_seeds", "demo_study"]),
        ("tasks", "sample", "gsm", ["gsm8k"]),
        ("keys", "train", "stages.rl.st", ["stages.rl.steps="]),
        ("keys", "train", "sta", ["stages."]),
    ],
)
def test_completion(kind: str, command: str, incomplete: str, expected: list[str]) -> None:
    context = SimpleNamespace(info_name=command, params={"recipe": "demo_addition"})
    assert completed(kind)["autocompletion"](context, incomplete) == expected
