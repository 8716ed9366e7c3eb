from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from swerve.config import FilterConfig
from swerve.errors import ArtifactError, ConfigError
from swerve.problems.reading import apply_filters, question_key, read_question_keys
from swerve.types import Problem


def problem(number: int, *, difficulty: float | None = None, kind: str = "all") -> Problem:
    question = f"What is {number}?"
    return Problem(id=str(number), family="math", question=question, answer="1", kind=kind, difficulty=difficulty)


PROBLEMS = [
    problem(1, difficulty=1.0, kind="level 1"),
    problem(2, difficulty=2.0, kind="level 2"),
    problem(3, difficulty=3.0, kind="level 3"),
    problem(40000),
]


def kept(where: FilterConfig, problems: Sequence[Problem] = PROBLEMS) -> tuple[str, list[str]]:
    found, notes = apply_filters({"train": problems}, where)
    return " ".join(one.id for one in found["train"]), notes


def test_no_condition_keeps_all() -> None:
    assert kept(FilterConfig()) == ("1 2 3 40000", [])


def test_bounds_of_difficulty_include_their_ends() -> None:
    assert kept(FilterConfig(min_difficulty=2.0))[0] == "2 3"
    assert kept(FilterConfig(max_difficulty=2.0))[0] == "1 2"
    assert kept(FilterConfig(min_difficulty=2.0, max_difficulty=2.0)) == (
        "2",
        ["train: 2 left out by min_difficulty=2.0", "train: 1 left out by max_difficulty=2.0"],
    )


def test_kinds() -> None:
    assert kept(FilterConfig(kinds=("level 1", "all"))) == ("1 40000", ["train: 2 left out by kinds"])
    with pytest.raises(ConfigError, match="'level3', which no problem is of; .*did you mean 'level 3'"):
        kept(FilterConfig(kinds=("level3",)))


def test_a_kind_may_be_in_one_split_only() -> None:
    splits = {"train": PROBLEMS[:2], "heldout": PROBLEMS[2:]}
    found, _ = apply_filters(splits, FilterConfig(kinds=("level 1",)))
    assert [one.id for one in found["train"]] == ["1"]
    assert found["heldout"] == []


def test_the_longest_question() -> None:
    assert kept(FilterConfig(max_question_chars=10))[0] == "1 2 3"
    assert kept(FilterConfig(max_question_chars=9))[0] == ""


def test_questions_of_other_sources_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "test.jsonl").write_text(json.dumps({"problem": "what  IS\n2? ", "answer": "x"}))
    (tmp_path / "other.jsonl").write_text(json.dumps({"quiz": "What is 3?"}))
    where = FilterConfig(exclude=(str(tmp_path), f"other@{tmp_path}"))
    assert kept(where) == ("1 40000", ["train: 2 left out by exclude"])


def test_a_source_to_exclude_needs_a_question(tmp_path: Path) -> None:
    (tmp_path / "test.jsonl").write_text(json.dumps({"text": "?"}))
    with pytest.raises(ArtifactError, match="no field 'question'; it has text; task.where.exclude reads one of"):
        read_question_keys([str(tmp_path)])


def test_what_questions_are_the_same() -> None:
    assert question_key(" What\nis  X?") == question_key("what is x?")
    assert question_key("what is x?") != question_key("whatis x?")
