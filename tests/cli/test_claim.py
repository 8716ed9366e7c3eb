"""`swerve claim`: the cheap card from two files, what is said before it costs, and one line for every wrong input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from swerve.artifacts.responses import Response
from swerve.artifacts.samples import SampledModel, SamplesInfo, SamplesTokenizer, write_samples
from swerve.claim.sides import given_sides
from swerve.types import Completion, Problem, Prompt, Reward, Rollout
from tests.chat_models import TURNS, byte_level, save_model
from tests.json_lines import write_json_lines

Swerve = Callable[..., tuple[int, str, str]]
PROBLEMS = [
    Problem(id=f"p{index}", family="math", question=f"{index} + 1?", answer=str(index + 1)) for index in range(40)
]
CHEAP = ("claim", "base.parquet", "rl.parquet")


def write_planted(path: Path, label: str, num_right: int, *, problems: list[Problem] = PROBLEMS) -> None:
    """Write 8 samples of each problem, of which the first `num_right` are right."""
    info = SamplesInfo(
        model=SampledModel(label=label, source=f"owner/{label}", fingerprint="ab" * 32, dtype="float32", device="cpu"),
        tokenizer=SamplesTokenizer(name=label, sha256="cd"),
        task={"kind": "math"},
        split="heldout",
        num_problems=len(problems),
        problems_sha256=f"{len(problems):064}",
        num_samples=8,
        temperatures=(1.0,),
        max_new_tokens=8,
        seed=3,
        swerve_version="0",
    )
    completion = Completion(token_ids=(5, 6), logprobs=(-0.1, -0.2), finish_reason="stop")
    samples = [
        Response.of(
            Prompt(problem=problem, token_ids=(1,)),
            Rollout(
                completion=completion,
                text=f"\\boxed{{{problem.answer}}}" if number < num_right else "\\boxed{-1}",
                reward=Reward(value=float(number < num_right), status="graded"),
                version=0,
            ),
            sample=number,
            label=label,
            temperature=1.0,
            seed=number,
            prompt=problem.question,
        )
        for problem in problems
        for number in range(8)
    ]
    write_samples(path, info, samples)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    write_planted(tmp_path / "base.parquet", "base", 3)
    write_planted(tmp_path / "rl.parquet", "rl", 6)
    return tmp_path


def test_two_files_make_a_card_and_once_more_says_so(swerve: Swerve, files: Path) -> None:
    asked = (*CHEAP, "--parts", "accuracy,answers,weights", "--out", "card")
    status, out, err = swerve(*asked)
    assert status == 0, err
    assert out.splitlines()[0] == "Did accuracy rise?"
    assert "Would any reward have done it? Not asked for." in " ".join(out.split())
    assert "  What changed in the weights? Needs the two models; files of samples were given." in out.splitlines()
    assert out.splitlines()[-1] == "Card: card/index.html"
    page = (files / "card" / "index.html").read_text(encoding="utf-8")
    assert (
        'is right more often than <span class="mono nowrap">base</span></b>: 75.0% against 37.5% of sampled answers, '
        in page
    )
    card = json.loads((files / "card" / "claim.json").read_text())
    assert (card["num_problems"], card["num_samples"], card["accuracy"]["trained"]["mean"]) == (40, 8, 0.75)
    status, again, err = swerve(*CHEAP, "--parts", "accuracy,answers", "--out", "card")
    assert (status, again) == (0, out)
    assert "card/claim.json has these parts already: nothing to do" in err


def test_parts_are_added_later(swerve: Swerve, files: Path) -> None:
    assert swerve(*CHEAP, "--parts", "accuracy")[0] == 0
    status, out, err = swerve(*CHEAP, "--parts", "answers", "--json")
    assert status == 0, err
    card = json.loads(out)
    assert (card["accuracy"]["base"]["mean"], card["answers"]["failures"][1]["accuracy"]) == (0.375, 0.75)


def test_responses_of_another_program_are_read(swerve: Swerve, files: Path) -> None:
    for name, num_right in (("a", 3), ("b", 6)):
        rows = [
            {
                "id": problem.id,
                "question": problem.question,
                "response": "4",
                "gold": "4",
                "correct": number < num_right,
            }
            for problem in PROBLEMS
            for number in range(8)
        ]
        write_json_lines(files / f"{name}.jsonl", rows)
    status, out, err = swerve("claim", "a.jsonl", "b.jsonl", "--parts", "accuracy", "--json")
    assert status == 0, err
    assert json.loads(out)["accuracy"]["difference"]["mean"] == 0.375


def write_verdicts(path: Path, num_right: int, problems: list[Problem] = PROBLEMS, **changes: object) -> None:
    """Write 8 verdicts of each problem and nothing else, in no order; `changes` are further fields."""
    rows = [
        {
            "id": problem.id,
            "question": problem.question,
            "gold": problem.answer,
            "correct": number < num_right,
            **changes,
        }
        for number in (5, 0, 3, 7, 1, 6, 2, 4)
        for problem in problems
    ]
    write_json_lines(path, rows)


def test_verdicts_alone_suffice_for_accuracy_and_what_they_cannot_say_is_not_determined(
    swerve: Swerve, files: Path
) -> None:
    write_verdicts(files / "a.jsonl", 3)
    write_verdicts(files / "b.jsonl", 6)
    status, out, err = swerve("claim", "a.jsonl", "b.jsonl", "--json")
    assert (status, err.count("Warning")) == (0, 0)
    card = json.loads(out)
    assert (card["accuracy"]["base"]["mean"], card["accuracy"]["trained"]["mean"]) == (0.375, 0.75)
    assert [verdict["shown"] for verdict in card["answers"]["verdicts"]] == [None, None, None]
    assert "not determined: neither yes nor no" in (files / "claim/index.html").read_text()


def test_a_file_that_swerve_grade_wrote_is_taken(swerve: Swerve, files: Path) -> None:
    for name, num_right in (("a", 3), ("b", 6)):
        rows = [
            {
                "id": one.id,
                "question": one.question,
                "gold": one.answer,
                "response": one.answer if n < num_right else "-1",
            }
            for one in PROBLEMS
            for n in range(8)
        ]
        write_json_lines(files / f"{name}-plain.jsonl", rows)
        status, *_ = swerve("grade", "--task", "math", f"{name}-plain.jsonl", "--out", f"{name}.jsonl")
        assert status == 0
    status, out, err = swerve("claim", "a.jsonl", "b.jsonl", "--json")
    assert status == 0, err
    card = json.loads(out)
    assert card["accuracy"]["difference"]["mean"] == 0.375
    ends, reads, rights = card["answers"]["verdicts"]
    assert [ends["shown"], reads["shown"], rights["shown"]] == [None, False, True]
    assert rights["sentence"] == (
        "Over 40 problems `rl` gains by more right ones among the answers read, +37.5 points (+28.4 to +43.0)."
    )


def test_files_of_other_problems_are_refused_and_leave_nothing(swerve: Swerve, files: Path) -> None:
    write_verdicts(files / "a.jsonl", 3)
    write_verdicts(files / "b.jsonl", 6, PROBLEMS[10:])
    status, _, err = swerve("claim", "a.jsonl", "b.jsonl")
    assert (status, "30 of 40 problems have responses by both base and rl, fewer than nine in ten" in err) == (2, True)
    assert not (files / "claim").exists()
    status, out, err = swerve("claim", "a.jsonl", "b.jsonl", "--common", "--json")
    assert (status, json.loads(out)["num_problems"]) == (0, 30), err
    assert "30 of 40 problems have responses by both base and rl; only those are compared." in err
    write_verdicts(files / "b.jsonl", 6, question="Another?")
    status, _, err = swerve("claim", "a.jsonl", "b.jsonl", "--out", "other")
    assert (status, "problem 'p0' has two questions: '0 + 1?' in base, 'Another?' in rl" in err) == (2, True)


def test_a_record_without_a_response_is_left_out_and_said(swerve: Swerve, files: Path) -> None:
    for name, num_right in (("a.jsonl", 4), ("b.jsonl", 8)):
        rows = [
            {"id": f"p{n // 8}", "question": f"{n // 8} + 1?", "response": f"text {n}", "correct": n % 8 < num_right}
            for n in range(320)
        ]
        rows[5]["response"] = None
        write_json_lines(files / name, rows)
    status, _, err = swerve("claim", "a.jsonl", "b.jsonl", "--parts", "accuracy", "--out", "card-left-out")
    assert status == 0, err
    assert "Of base: records without a response, left out: 1 (a.jsonl, line 6 has no response" in err
    assert "Of rl: records without a response, left out: 1 (b.jsonl, line 6 has no response" in err


def test_a_file_without_a_verdict_is_told_before_the_other_is_read_whole(swerve: Swerve, files: Path) -> None:
    row = {"id": "a", "question": "1 + 1?", "response": "2", "gold": "2"}
    (files / "graded.jsonl").write_text(json.dumps({**row, "correct": True}) + "\nnot JSON\n")
    (files / "plain.jsonl").write_text(json.dumps(row) + "\n" + json.dumps({**row, "id": "b", "correct": None}) + "\n")
    for arguments in (("plain.jsonl", "graded.jsonl"), ("graded.jsonl", "plain.jsonl")):
        status, _, err = swerve("claim", *arguments)
        assert (status, err) == (
            1, "swerve: error: no response in plain.jsonl has a verdict; grade it first, such as by mathematics: "
            "swerve grade plain.jsonl --task math --out plain-graded.jsonl\n",
        )  # fmt: skip
        assert not (files / "claim").exists()


def test_samples_without_a_verdict_are_left_out_and_counted(swerve: Swerve, files: Path) -> None:
    """They are neither right nor wrong: the card is that of the others, and says how many there were."""
    right = {"base": (True, False, False, True), "rl": (True, True, True, True)}
    for label, marks in right.items():
        rows = [
            {"id": f"p{number}", "question": f"{number}?", "response": "so", "sample": sample, "correct": one}
            for number in range(12)
            for sample, one in enumerate((*marks, None))
        ]
        for name, kept in ((label, [row for row in rows if row["correct"] is not None]), (f"half_{label}", rows)):
            write_json_lines(files / f"{name}.jsonl", kept)
    cards = []
    for name in ("", "half_"):
        arguments = (f"{name}base.jsonl", f"{name}rl.jsonl", "--out", f"card{name}", "--json")
        status, out, _ = swerve("claim", *arguments)
        assert status == 0
        cards.append(json.loads(out))
    for field in ("base", "trained", "difference", "pass_at_k"):
        assert cards[0]["accuracy"][field] == cards[1]["accuracy"][field]
    said = [note for note in cards[1]["accuracy"]["notes"] if "no verdict" in note]
    assert said == [f"12 of 60 samples by {label} have no verdict and are left out." for label in ("base", "rl")]


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["base.parquet"], 2, "a card is of the model before and the model after; 1 given: base.parquet"),
        (["base.parquet", "rl.parquet", "owner/c"], 2, "base.parquet and owner/c are a model and a file"),
        (
            ["base.parquet", "none.parquet"],
            1,
            "none.parquet does not exist; write it with swerve sample, or give a model",
        ),
        (["base.parquet", "other.parquet"], 2, "base.parquet and other.parquet differ in their problems"),
        (["base.parquet", "owner/model"], 2, "base.parquet and owner/model are a model and a file; give two models"),
        (["x=base.parquet", "x=rl.parquet"], 2, "all files are called 'x'"),
        (["base.parquet", "rl.parquet", "--parts", "acuracy"], 2, "did you mean 'accuracy'?"),
        (["base.parquet", "rl.parquet", "--shard", "1/2"], 2, "--shard: leave it out, for files have their task"),
        (["base.parquet", "rl.parquet", "--costs"], 2, "--costs: leave it out, for files have their task"),
        (["owner/a", "owner/b"], 2, "give either --task TASK"),
        (["owner/a", "owner/b", "--task", "addition", "--ranks", "x"], 2, "--ranks: 'ranks.0' must be"),
        (
            ["owner/a", "owner/b", "--task", "addition", "--parts", "wieghts"],
            2,
            "there is no part 'wieghts'; did you mean",
        ),
        (
            ["owner/a", "owner/b", "--task", "addition", "--text", "none"],
            1,
            "none is missing or empty; --text is a text file",
        ),
        (
            ["owner/a", "owner/b", "--task", "addition", "--text", "empty.txt"],
            1,
            "empty.txt is missing or empty; --text is a text file",
        ),
        (["owner/a", "owner/b", "--task", "addition", "--other", "adition"], 2, "did you mean 'addition'?"),
    ],
)
def test_wrong_input_gets_one_line(swerve: Swerve, files: Path, arguments: list[str], status: int, said: str) -> None:
    write_planted(files / "other.parquet", "other", 4, problems=PROBLEMS[:20])
    (files / "empty.txt").touch()
    found, _, err = swerve("claim", *arguments)
    assert (found, said in err.splitlines()[-1], err.count("swerve: error: ")) == (status, True, 1), err


def test_costs_are_said_before_they_are_paid(swerve: Swerve, files: Path) -> None:
    asked = ("owner/a", "owner/b", "--task", "addition", "num_heldout=30", "--num-samples", "4", "--parts", "accuracy")
    status, out, err = swerve("claim", *asked, "--max-new-tokens", "9", "--costs")
    assert status == 0, err
    lines = ["both models: 240 samples of at most 9 tokens, and 60 greedy", "accuracy: nothing more"]
    *_, own, part, missing = out.splitlines()
    assert ([own, part], missing) == (lines, "memory, hours: no model of it is on this machine")
    planned = swerve("plan", "claim", *asked, "--max-new-tokens", "9")
    assert planned[:2] == (status, out)
    record = json.loads(swerve("claim", *asked, "--max-new-tokens", "9", "--costs", "--json")[1])
    assert (record["tokens"], record["notes"]) == ({"both models": 300 * 9}, [*lines, missing])
    status, _, err = swerve("plan", "claim", "base.parquet", "rl.parquet")
    assert (status, "a card of files samples nothing and reads no model: there is nothing to plan" in err) == (2, True)
    assert not (files / "claim").exists()


def test_a_model_of_another_vocabulary_is_refused(
    swerve: Swerve, save_addition_model: Callable[..., Path], tmp_path: Path
) -> None:
    save_addition_model(tmp_path / "a", seed=1)
    save_model(tmp_path / "b", byte_level(TURNS), eos=1)
    status, _, err = swerve("claim", "a", "b", "--task", "addition", "digits=2", "--parts", "accuracy")
    assert (status, "a and b have different tokenizers, and only models with the same tokenizer" in err) == (1, True), (
        err
    )


def test_a_file_of_any_ending_is_a_file_of_responses(tmp_path: Path) -> None:
    for name in ("base.eval", "rl.eval"):
        (tmp_path / name).write_bytes(b"")
    sides = given_sides([str(tmp_path / "base.eval"), str(tmp_path / "rl.eval")])
    assert [(side.samples, side.model) for side in sides] == [
        (tmp_path / name, None) for name in ("base.eval", "rl.eval")
    ]
