from __future__ import annotations

import json
import tracemalloc
from collections.abc import Sequence
from itertools import chain, compress
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from swerve.errors import ArtifactError, ConfigError
from swerve.formats.records import FileRecord
from swerve.problems.deepscaler import DeepScalerTask
from swerve.problems.family import is_heldout
from swerve.problems.gsm8k import Gsm8kTask
from swerve.problems.math import MathTask
from swerve.problems.reading import DataTask, FilterConfig, conditions_of, filtered, question_key, read_question_keys
from swerve.problems.table import Table, TableTask
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


def test_golds_that_no_answer_can_meet_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = [("a", "proof"), ("b", "notfound"), ("c", "3"), ("d", "C"), ("e", "none")]
    heldout = (write(tmp_path / "h.jsonl", [("h", "(A)")]),)
    place = tmp_path / "t.jsonl"
    task = TableTask(train=(write(place, rows),), heldout=heldout)
    assert sorted(questions(Table(task).problems("train", seed=0))) == ["c", "d", "e"]
    note = "a gold answer that no answer can meet"
    assert Table(task).notes() == [
        f"train: 2 rows left out: {note} ({place}, line 1: 'proof'; {place}, line 2: 'notfound')"
    ]
    choices = task.model_copy(update={"grader": "choice"})
    assert questions(Table(choices).problems("train", seed=0)) == ["d"]
    numbered = TableTask(train=(write(place, rows[2:3]),), heldout=heldout, grader="choice")
    with pytest.raises(ConfigError, match=rf"'table' has no train problems .*{note} .*line 1: '3'"):
        Table(numbered).problems("train", seed=0)


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


def test_of_many_problems_only_the_first_are_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swerve.problems.reading._MAX_CHARS_HELD", 100_000)
    file = write(tmp_path / "long.jsonl", [(f"{number} {'long ' * 800}", "1") for number in range(400)])  # 1.6 MB
    task = TableTask(train=(file,), num_train=300, where=FilterConfig(max_question_chars=5000))
    tracemalloc.start()
    total, first = Table(task).first_problems("train", 3, seed=1)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (total, len(first)) == (300, 3)
    assert most < 0.4e6
    assert first == Table(task).problems("train", seed=1)[:3]


def test_a_file_that_shrinks_between_two_passes_is_named_as_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("swerve.problems.reading._MAX_CHARS_HELD", 10_000)
    file = write(tmp_path / "log.jsonl", [(str(number), "1") for number in range(40)])
    family = Table(TableTask(train=(file,)))
    family.problems("train", seed=1)
    write(tmp_path / "log.jsonl", [(str(number), "1") for number in range(20)])
    with pytest.raises(ArtifactError, match="sources of the problems changed while they were read"):
        family.problems("train", seed=1)


def test_a_data_set_of_the_hub_is_fetched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [FileRecord(f"row {number}", {"question": f"q{number}", "answer": "1"}) for number in range(20)]
    fetched: list[str] = []
    monkeypatch.setattr(
        "swerve.problems.data_specs.read_hub_dataset", lambda name, **_: fetched.append(name) or list(rows)
    )
    family = Table(TableTask(train=("owner/name",)))
    splits = [family.problems("train", seed=0), family.problems("heldout", seed=0)]
    assert sorted(questions([*splits[0], *splits[1]])) == sorted(f"q{number}" for number in range(20))
    assert fetched == ["owner/name"]


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


def problem(number: int, *, difficulty: float | None = None, kind: str = "all") -> Problem:
    question = f"What is {number}?"
    return Problem(id=str(number), family="math", question=question, answer="1", kind=kind, difficulty=difficulty)


PROBLEMS = [
    problem(1, difficulty=1.0, kind="level 1"),
    problem(2, difficulty=2.0, kind="level 2"),
    problem(3, difficulty=3.0, kind="level 3"),
    problem(40000),
]


class Rows(list[Problem]):
    def only(self, are_kept: Sequence[bool]) -> Rows:
        return Rows(compress(self, are_kept))


def filter_by(where: FilterConfig, **splits: Sequence[Problem]) -> Any:
    rows: Any = {split: Rows(problems) for split, problems in splits.items()}
    return filtered(rows, conditions_of(where, chain(*splits.values())))


def kept(where: FilterConfig) -> tuple[str, list[str]]:
    found, notes = filter_by(where, train=PROBLEMS)
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
    found, _ = filter_by(FilterConfig(kinds=("level 1",)), train=PROBLEMS[:2], heldout=PROBLEMS[2:])
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


def test_one_spec_or_several() -> None:
    assert DataTask.model_validate({"train": "a.jsonl"}).train == ("a.jsonl",)
    assert DataTask.model_validate({"train": ["a.jsonl", "b.jsonl"]}).train == ("a.jsonl", "b.jsonl")


@pytest.mark.parametrize("task", [DataTask, Gsm8kTask, MathTask, DeepScalerTask, TableTask])
def test_there_is_a_training_source(task: type[DataTask]) -> None:
    with pytest.raises(ValidationError, match="at least 1 item"):
        task.model_validate({"train": []})


@pytest.mark.parametrize(
    ("prompt", "extraction", "missing"),
    [
        ("think_answer", ["boxed"], "answer_tag"),
        ("hash", ["boxed", "phrase"], "hash"),
        ("boxed", ["last_number"], "boxed"),
        ("step_by_step", ["hash"], "boxed"),
    ],
)
def test_the_form_that_a_prompt_asks_for_must_be_read(prompt: str, extraction: list[str], missing: str) -> None:
    values: dict[str, Any] = {"prompt": {"format": prompt}, "grading": {"extraction": extraction}}
    with pytest.raises(ValidationError, match=f"does not read; add {missing} to it"):
        MathTask.model_validate(values)
    MathTask.model_validate({**values, "grading": {"extraction": [*extraction, missing]}})
    MathTask.model_validate({**values, "prompt": {"format": prompt, "template": "{question}"}})


@pytest.mark.parametrize("level", [0, 6])
def test_levels(level: int) -> None:
    with pytest.raises(ValidationError, match="levels"):
        MathTask.model_validate({"levels": [level]})


def test_fields_of_a_table() -> None:
    with pytest.raises(
        ValidationError, match="'qestion' is not a field of a problem .id, question, answer.* did you mean 'question'"
    ):
        TableTask.model_validate({"train": "a.jsonl", "fields": {"qestion": "q"}})


@pytest.mark.parametrize(
    "values", [{"grader": "python"}, {"reward_file": "r.py"}, {"grader": "math", "reward_file": "r.py"}]
)
def test_the_python_grader_and_its_file_go_together(values: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="grader 'python' and a reward_file go together"):
        TableTask.model_validate({"train": "a.jsonl", **values})


def test_a_reward_file_is_found_from_anywhere(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    task = TableTask(train=(".",), grader="python", reward_file="own/reward.py")
    assert task.reward_file == str(tmp_path / "own" / "reward.py")
    assert TableTask.model_validate(task.model_dump()) == task
    monkeypatch.setenv("HOME", "/home/me")
    assert TableTask(train=(".",), grader="python", reward_file="~/r.py").reward_file == "/home/me/r.py"
