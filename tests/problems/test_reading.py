from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from swerve.config import TableTask
from swerve.errors import ArtifactError, ConfigError
from swerve.problems.family import is_heldout
from swerve.problems.reading import question_key
from swerve.problems.table import Table
from swerve.types import Problem


def write(path: Path, rows: Sequence[tuple[str, str]]) -> str:
    path.write_text("".join(f"{json.dumps({'question': question, 'answer': answer})}\n" for question, answer in rows))
    return str(path)


def questions(problems: Sequence[Problem]) -> list[str]:
    return [problem.question for problem in problems]


@pytest.fixture
def hundred(tmp_path: Path) -> str:
    return write(tmp_path / "hundred.jsonl", [(f"q{number}", "1") for number in range(100)])


def test_without_heldout_sources_the_text_decides(hundred: str) -> None:
    family = Table(TableTask(train=(hundred,)))
    train, heldout = questions(family.problems("train", seed=0)), questions(family.problems("heldout", seed=0))
    assert sorted(train + heldout) == sorted(f"q{number}" for number in range(100))
    assert sorted(heldout) == sorted(f"q{number}" for number in range(100) if is_heldout(f"q{number}"))
    assert 8 <= len(heldout) <= 25


def test_letter_case_and_white_space_do_not_change_the_splits(tmp_path: Path) -> None:
    def keys(texts: Sequence[str]) -> list[list[str]]:
        family = Table(TableTask(train=(write(tmp_path / "t.jsonl", [(one, "1") for one in texts]),)))
        splits = [questions(family.problems(split, seed=0)) for split in ("train", "heldout")]
        return [[question_key(one) for one in split] for split in splits]

    plain = keys([f"Which is number {number}?" for number in range(50)])
    other = keys([f" which  IS\nnumber {number}?" for number in range(50)])
    assert plain == other
    assert len(plain[0] + plain[1]) == 50


def test_a_heldout_question_is_never_trained_on(tmp_path: Path) -> None:
    train = write(tmp_path / "train.jsonl", [("What is  1 + 1?", "2"), ("b", "2"), ("c", "3")])
    heldout = write(tmp_path / "test.jsonl", [("what is 1 + 1? ", "2"), ("d", "3")])
    family = Table(TableTask(train=(train,), heldout=(heldout,)))
    assert sorted(questions(family.problems("train", seed=0))) == ["b", "c"]
    assert sorted(questions(family.problems("heldout", seed=0))) == ["d", "what is 1 + 1? "]
    assert family.notes() == [f"train: 1 row left out: also held out ({tmp_path}/train.jsonl, line 1)"]


def test_repeated_and_unanswered_rows_are_counted(tmp_path: Path) -> None:
    rows = [("a", "1"), ("A ", "1"), ("a", "2"), ("b", ""), ("c", "3")]
    place = tmp_path / "t.jsonl"
    family = Table(TableTask(train=(write(place, rows),), heldout=(write(tmp_path / "h.jsonl", [("d", "1")]),)))
    problems = family.problems("train", seed=0)
    assert sorted((one.question, one.answer) for one in problems) == [("a", "1"), ("c", "3")]
    assert family.notes() == [
        f"train: 1 row left out: no gold answer ({place}, line 4)",
        f"train: 2 rows left out: the same question as an earlier row ({place}, line 2; {place}, line 3)",
        f"train: 1 row of them with another gold answer, which is not used ({place}, line 3)",
    ]


def test_at_most_three_places_are_named(tmp_path: Path) -> None:
    rows = [("a", "1")] * 6
    family = Table(
        TableTask(train=(write(tmp_path / "t.jsonl", rows),), heldout=(write(tmp_path / "h.jsonl", [("d", "1")]),))
    )
    (note,) = family.notes()
    assert note.startswith("train: 5 rows left out")
    assert note.count("line") == 3
    assert note.endswith("; ...)")


def test_the_seed_chooses_without_repeating(hundred: str) -> None:
    every = set(questions(Table(TableTask(train=(hundred,))).problems("train", seed=0)))
    family = Table(TableTask(train=(hundred,), num_train=20))
    first, again, other = (questions(family.problems("train", seed=seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert len(set(first)) == 20
    assert set(first) <= every


def test_fewer_problems_are_the_first_of_more(hundred: str) -> None:
    few = Table(TableTask(train=(hundred,), num_train=10)).problems("train", seed=3)
    more = Table(TableTask(train=(hundred,), num_train=30)).problems("train", seed=3)
    assert few == more[:10]


def test_the_beginning_is_a_fair_sample_of_the_file(hundred: str) -> None:
    numbers = [int(one[1:]) for one in questions(Table(TableTask(train=(hundred,))).problems("train", seed=0))]
    assert 25 < sum(numbers[:30]) / 30 < 75
    assert numbers != sorted(numbers)


def test_too_few_problems(hundred: str) -> None:
    family = Table(TableTask(train=(hundred,), num_train=100))
    with pytest.raises(ConfigError, match=r"'table' has \d\d train problems, fewer than task.num_train=100; lower it"):
        family.problems("train", seed=0)
    with pytest.raises(ConfigError, match="fewer than task.num_heldout=99"):
        Table(TableTask(train=(hundred,), num_heldout=99)).problems("heldout", seed=0)


def test_no_problems_at_all_says_why(tmp_path: Path) -> None:
    rows = write(tmp_path / "t.jsonl", [("a", "1")])
    family = Table(TableTask(train=(rows,), heldout=(rows,)))
    with pytest.raises(ConfigError, match="'table' has no train problems .train: 1 row left out: also held out"):
        family.problems("train", seed=0)


def test_several_sources_are_one_split(tmp_path: Path) -> None:
    sources = tuple(write(tmp_path / f"{name}.jsonl", [(name, "1")]) for name in "abc")
    family = Table(TableTask(train=sources[:2], heldout=sources[2:]))
    assert sorted(questions(family.problems("train", seed=0))) == ["a", "b"]


def test_one_id_for_different_questions_is_refused(tmp_path: Path) -> None:
    for name, question in (("train", "a"), ("test", "b")):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"question": question, "answer": "1", "id": 0}))
    task = TableTask(train=(str(tmp_path),), heldout=(str(tmp_path),), fields={"id": "id"})
    with pytest.raises(ArtifactError, match=r"test.jsonl, line 1 and .*train.jsonl, line 1 have .* one id '0'"):
        Table(task).problems("train", seed=0)
    assert len(Table(task.model_copy(update={"fields": {}})).problems("train", seed=0)) == 1


@pytest.mark.parametrize("split", ["train", "heldout"])
def test_a_source_that_is_missing_is_named_with_its_key(hundred: str, split: str) -> None:
    sources = {"train": hundred, "heldout": hundred, split: "none.jsonl"}
    with pytest.raises(ConfigError, match=f"^task.{split}: data source 'none.jsonl' does not exist"):
        Table(TableTask(train=(sources["train"],), heldout=(sources["heldout"],))).notes()
