from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swerve.errors import ArtifactError
from swerve.formats.records import FileRecord
from swerve.problems.data_specs import read_source
from swerve.problems.gsm8k import Gsm8k, Gsm8kTask
from swerve.problems.prompt import PromptConfig
from tests.cases import each

FAMILY = Gsm8k(Gsm8kTask())
ROW = {
    "question": "Ada has 3 boxes of 500 nails and uses 290 nails. How many are left?",
    "answer": "She had 3*500=<<3*500=1500>>1,500 nails.\nLeft are 1500-290=<<1500-290=1210>>1,210 nails.\n#### 1,210",
}


def read(**changes: Any) -> Any:
    return FAMILY.problem(FileRecord("f.jsonl, line 7", {**ROW, **changes}))


def test_a_row() -> None:
    problem = read()
    assert problem.question == ROW["question"]
    assert problem.answer == "1210"
    assert problem.solution == "She had 3*500=1,500 nails.\nLeft are 1500-290=1,210 nails.\n#### 1210"
    assert (problem.kind, problem.difficulty) == ("2 steps", 2.0)
    assert problem.id.startswith("gsm8k-")


@each(
    ("changes", "answer"),
    [
        ({"answer": "x\n#### -7"}, "-7"),
        ({"answer": "1,210", "solution": "x\n#### 1,210"}, "1210"),
        ({"answer": 5}, "5"),
        ({"answer": "x\n####  $12.50 "}, "12.50"),
        ({"answer": "x #### 1\n#### 5"}, "5"),
        ({"answer": "x", "final_answer": "1,200"}, "1200"),
        ({"answer": None, "final_answer": 42}, "42"),
        ({"answer": None, "final_answer": 42.0}, "42"),
        ({"answer": "x #### 3", "final_answer": "4"}, "3"),
    ],
)
def test_where_the_gold_answer_is(changes: dict[str, Any], answer: str) -> None:
    assert read(**changes).answer == answer


@pytest.mark.parametrize("changes", [{"answer": "no mark"}, {"answer": "x\n####"}, {"answer": None}])
def test_rows_without_a_gold_answer(changes: dict[str, Any]) -> None:
    assert read(**changes) is None


def test_an_answer_that_is_not_a_number_is_refused() -> None:
    with pytest.raises(ArtifactError, match="f.jsonl, line 7: the final answer 'four' is not a number"):
        read(answer="x\n#### four")


@pytest.mark.parametrize(
    ("answer", "kind", "difficulty"),
    [("a <<1+1=2>>2\n#### 2", "1 step", 1.0), ("two equations\n#### 2", "no marked steps", None)],
)
def test_difficulty_is_the_number_of_steps(answer: str, kind: str, difficulty: float | None) -> None:
    problem = read(answer=answer)
    assert (problem.kind, problem.difficulty) == (kind, difficulty)


def test_without_a_rationale_there_is_no_solution() -> None:
    assert read(answer="#### 5").solution is None
    assert read(answer=None, final_answer="5").solution is None


def test_prompt_and_policies(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text(json.dumps(ROW))
    (tmp_path / "test.jsonl").write_text(json.dumps({"question": "b?", "answer": "#### 1"}))
    specs = {"train": (str(tmp_path),), "heldout": (str(tmp_path),)}
    (problem,) = Gsm8k(Gsm8kTask(**specs)).problems("train", seed=0)
    assert problem.messages[0][1].startswith(f"{ROW['question']}\n\nReason step by step")
    assert problem.grading == {"extraction": ["hash", "auto"]}
    (plain,) = Gsm8k(Gsm8kTask(**specs, prompt=PromptConfig())).problems("train", seed=0)
    assert plain.messages == ()


def test_the_published_files(shared_data: Callable[[str], Path]) -> None:
    folder = str(shared_data("gsm8k"))
    family = Gsm8k(Gsm8kTask(train=(folder,), heldout=(folder,)))
    train, heldout = family.problems("train", seed=0), family.problems("heldout", seed=0)
    assert (len(train), len(heldout)) == (7473, 1319)
    assert family.notes() == []
    every = [*train, *heldout]
    assert len({problem.id for problem in every}) == 8792
    assert all(problem.answer.removeprefix("-").isdigit() for problem in every)
    solutions = [problem.solution or "" for problem in every]
    assert not any("<<" in solution for solution in solutions)
    assert all(solution.endswith(f"\n#### {one.answer}") for one, solution in zip(every, solutions, strict=True))
    kinds = Counter(problem.kind for problem in every)
    assert (kinds["2 steps"], kinds["1 step"], kinds["no marked steps"]) == (2532, 469, 113)
    rows = [record.values for split in ("train", "test") for record in read_source(f"{split}@{folder}")]
    with_commas = {row["question"]: row["final_answer"] for row in rows if "," in row["final_answer"]}
    assert len(with_commas) == 93
    golds = {problem.question: problem.answer for problem in every}
    assert all(golds[question] == answer.replace(",", "") for question, answer in with_commas.items())
