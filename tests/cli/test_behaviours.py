"""`swerve data behaviours`: what is read from a run and from files, what is printed and written, and wrong inputs."""

from __future__ import annotations

import gzip
import json
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from swerve.artifacts.files import record_fields
from swerve.artifacts.response_columns import ROLLOUTS_SCHEMA
from swerve.artifacts.responses import Response
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.samples import SampledModel, SamplesInfo, SamplesTokenizer, write_samples
from swerve.artifacts.tables import write_table
from swerve.cli.behaviours import behaviours as measure
from swerve.errors import ArtifactError, ConfigError, MissingExtraError
from swerve.types import Completion, Problem, Prompt, Reward, Rollout
from tests.json_lines import write_json_lines

GOOD = "<think>Zoe lies, so Bob is a knight</think><answer>Bob is a knight</answer>"
BAD = "<think></think><answer>4</answer>"


def _row(problem, response, correct, **others):
    return {
        "id": problem,
        "problem": f"Question {problem}: is Bob a knight?",
        "response": response,
        "correct": correct,
    } | others


ROWS = [
    _row("p", GOOD, True, checkpoint="rl-10", extracted="knight"),
    _row("p", GOOD, True, checkpoint="rl-10", extracted="knight"),
    _row("p", BAD, False, checkpoint="rl-10", extracted="4"),
    _row("q", BAD, False, checkpoint="rl-20", extracted="4", finish_reason="length"),
]


@pytest.fixture
def behaviours():
    """Run the command's body and return what it prints; as JSON unless asked for text."""

    def run(*sources, text=False, **options):
        defaults = {"out": None, "by": None, "lexicon": None, "embedding_model": None, "baseline": None, "fields": ()}
        result = measure(list(map(str, sources)), **{**defaults, **options})
        return f"{result.text}\n" if text else json.loads(json.dumps(result.value, default=record_fields))

    return run


@pytest.fixture
def responses(tmp_path: Path) -> Path:
    return write_json_lines(tmp_path / "responses.jsonl", ROWS)


def test_a_file_by_checkpoint(behaviours, responses):
    summary = behaviours(responses)
    assert (summary["by"], summary["num_responses"]) == ("label", 4)
    first, second = summary["labels"]
    assert (first["label"], second["label"]) == ("rl-10", "rl-20")
    assert first["accuracy"]["mean"] == pytest.approx(2 / 3)
    assert first["signs"]["answer_without_thinking"]["rows"] == [f"{responses}, line 3"]
    assert second["truncated"]["mean"] == 1.0
    (one, two) = first["sampling"]
    assert (one["k"], two["k"]) == (1, 2)
    assert two["pass_at_k"]["mean"] == pytest.approx(1.0)
    assert two["pass_hat_k"]["mean"] == pytest.approx(1 / 3)
    assert two["majority_at_k"]["mean"] == pytest.approx(1 / 3 + 2 / 3 / 2)
    assert summary["notes"] == ["intervals are over problems, and 2 are too few to say much"]


def test_what_it_prints(behaviours, responses):
    printed = behaviours(responses, text=True)
    lines = printed.splitlines()
    assert lines[0].split() == ["rl-10", "rl-20"]
    cells = {line.split("  ")[0].strip(): line.split() for line in lines}
    assert cells["responses"][-2:] == ["3", "1"]
    assert any(line.startswith("format <think> <answer>, %") and " 100 (" in line for line in lines)
    assert "  answer_without_thinking: 2 of 4: line 3, line 4" in lines
    assert not any(line.startswith("tokens") for line in lines)  # not measured
    assert lines[-1].startswith("Note: intervals are over problems")


def test_another_field_and_rows_to_a_file(behaviours, responses, tmp_path):
    out = tmp_path / "rows.jsonl"
    summary = behaviours(responses, by="correct", out=out)
    assert [label["label"] for label in summary["labels"]] == ["correct False", "correct True"]
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [row["dummy_thinking"] for row in rows] == ["empty", "empty", None, None]
    assert {row["row"] for row in rows} == {f"{responses}, line {number}" for number in (1, 2, 3, 4)}


def test_steps_are_in_the_order_of_their_numbers_and_few_are_shown(behaviours, tmp_path):
    rows = [_row("p", f"wait, it is {step}", None, step=step) for step in (100, 9, 20, 30, 40, 50, 60, 70)]
    path = write_json_lines(tmp_path / "steps.jsonl", rows)
    labels = [label["label"] for label in behaviours(path)["labels"]]
    assert labels == [f"step {step}" for step in (9, 20, 30, 40, 50, 60, 70, 100)]
    printed = behaviours(path, text=True)
    assert printed.splitlines()[0].split("  ")[-1].strip() == "step 100"
    assert printed.splitlines()[0].split()[1] == "9"
    assert "6 of 8 are shown; --json has all." in printed
    assert "accuracy and pass@k are not determined, because none of 8 responses has a verdict." in printed


def test_no_named_label_is_left_out(behaviours, tmp_path):
    rows = [_row("p", "it is 4", None, label=f"model-{number}") for number in range(8)]
    path = write_json_lines(tmp_path / "labels.jsonl", rows)
    printed = behaviours(path, text=True)
    named = [word for word in printed.split() if word.startswith("model-") and word[-1].isdigit()]
    assert named == [f"model-{number}" for number in range(8)]
    assert "are shown" not in printed


def test_a_thought_that_the_prompt_may_have_begun_belongs_to_the_response(behaviours, tmp_path):
    path = tmp_path / "responses.jsonl"
    text = GOOD.removeprefix("<think>")
    rows = [{"id": "p", "prompt": prompt, "response": text} for prompt in ("Is Bob a knight? <think>\n", "Is he?")]
    path.write_text("".join(json.dumps({**row, "id": str(n)}) + "\n" for n, row in enumerate(rows)), encoding="utf-8")
    assert behaviours(path)["labels"][0]["format"]["think_answer"]["mean"] == 1.0


def _rollout(group, text, reward, status="graded", finish_reason="stop"):
    values = {
        "group": group,
        "problem_id": f"p{group}",
        "prompt_ids": [1],
        "completion_ids": [1, 2, 3],
        "logprobs": [0.0, 0.0, 0.0],
        "text": text,
        "reward": reward,
        "parts": "{}",
        "status": status,
        "answered": status == "graded",
        "finish_reason": finish_reason,
        "version": 0,
        "extracted": text[-1],
    }
    return {**dict.fromkeys(ROLLOUTS_SCHEMA.names), **values}


def write_samples_of(path, label, answers):
    """Write samples of one model, one right or wrong answer for each problem."""
    info = SamplesInfo(
        model=SampledModel(label=label, source=label, fingerprint="ab", dtype="float32", device="cpu"),
        tokenizer=SamplesTokenizer(name=label, sha256="cd"), task={"kind": "math"}, split="heldout",
        num_problems=len(answers), problems_sha256="ef", num_samples=1, temperatures=(0.0,), max_new_tokens=8, seed=3,
        swerve_version="0",
    )  # fmt: skip
    completion = Completion(token_ids=(5, 6), logprobs=(-0.1, -0.2), finish_reason="stop")
    rollouts = [
        Rollout(completion=completion, text="4", reward=Reward(value=float(answer), status="graded"), version=0)
        for answer in answers
    ]
    problems = [
        Problem(id=f"p{number}", family="math", question=f"{number} + 4?", answer="4") for number in range(len(answers))
    ]
    samples = [
        Response.of(
            Prompt(problem=problem, token_ids=(1,)), rollout, sample=0, label=label, temperature=0.0, seed=1, prompt="?"
        )
        for problem, rollout in zip(problems, rollouts, strict=True)
    ]
    write_samples(path, info, samples)


@pytest.fixture
def run(tmp_path, small_recipe) -> RunDirectory:
    directory = RunDirectory(tmp_path / "run")
    directory.create(config_yaml=small_recipe.read_text(), provenance={})
    steps = {
        2: [_rollout(0, "it is 4", 1.0), _rollout(0, "it is 5", 0.0), _rollout(1, "it is 6", None, "timeout")],
        10: [_rollout(0, "wait 4", 1.0), _rollout(1, "no", None, "unparsed", "length")],
    }
    for step, rows in steps.items():
        write_table(directory.rollouts_path(step), [{**row, "step": step} for row in rows], ROLLOUTS_SCHEMA)
    return directory


def test_a_run_by_step(behaviours, run):
    summary = behaviours(run.path)
    early, late = summary["labels"]
    assert (early["label"], late["label"]) == ("step 2", "step 10")
    assert early["accuracy"]["mean"] == 0.5  # the timeout is no verdict
    assert late["accuracy"]["mean"] == 0.5  # a text without an answer is wrong
    assert late["truncated"]["mean"] == late["unanswered"]["mean"] == 0.5
    assert early["length"]["tokens"]["mean"] == 3.0
    assert early["groups"]["num_groups"] == 1
    assert early["groups"]["distinct_answers"]["mean"] == 2.0
    assert late["reflection"]["hesitation"]["per_response"]["mean"] == 0.5
    assert any("no question beside them" in note for note in summary["notes"])


def test_a_table_of_rollouts(behaviours, run):
    summary = behaviours(run.rollouts_path(2), by="finish_reason")
    assert [label["label"] for label in summary["labels"]] == ["stop"]
    assert summary["labels"][0]["accuracy"]["mean"] == 0.5


def test_a_real_run(behaviours, small_run):
    summary = behaviours(small_run.path)
    assert len(summary["labels"]) == 4
    assert all(label["num_responses"] == 24 for label in summary["labels"])
    assert all(label["foreign_script_share"]["mean"] == 0.0 for label in summary["labels"])


def test_a_run_brings_its_own_questions(behaviours, small_run):
    summary = behaviours(small_run.path)
    assert summary["notes"] == []
    assert all(label["foreign_script_share"] for label in summary["labels"])


def test_a_run_whose_data_is_elsewhere_is_measured_without_questions(behaviours, small_run, monkeypatch):
    def missing(task):
        raise ConfigError("task.train: no such file")

    monkeypatch.setattr("swerve.eval.response_behaviours.load_family", missing)
    assert any("have no question beside them" in note for note in behaviours(small_run.path)["notes"])


def _samples_of(label, texts):
    return [_row(f"p{number}", text, "so" in text, label=label, extracted=text) for number, text in enumerate(texts)]


def test_several_files_are_compared_over_the_problems_they_share(behaviours, tmp_path):
    texts = [f"so it is {number}" for number in range(8)]
    for name, own in {"a": texts, "b": [f"{text}, wait, wait" for text in texts[:7]]}.items():
        rows = "".join(json.dumps(row) + "\n" for row in _samples_of("model", own))
        (tmp_path / f"{name}.jsonl").write_text(rows, encoding="utf-8")
    given = (tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    summary = behaviours(*given)
    first, second = summary["labels"]
    assert (summary["by"], summary["baseline"]) == ("source", "a")  # both call it the same
    assert (first["label"], second["label"], first["differences"]) == ("a", "b", {})
    words = second["differences"]["num_words"]
    assert (words["num_problems"], words["estimate"]["mean"], words["compared_with"]) == (7, 2.0, "a")
    flips = 2 / 2**7  # the two patterns of signs of seven equal differences that are as large
    assert words["p_value"] == pytest.approx(flips)
    printed = behaviours(*given, text=True)
    num = len(second["differences"])
    assert f"from a, paired over the problems that both have, with an adjusted p of at most 0.05: 2 of {num}" in printed
    assert "  b: words +2.00 (+1.30 to +2.70) (n=7, p = 0.031)" in printed
    turned = behaviours(*given, baseline="b")["labels"][0]
    assert turned["differences"]["num_words"]["estimate"]["mean"] == -2.0
    with pytest.raises(ConfigError, match="--baseline 'c' is not one of the models"):
        behaviours(*given, baseline="c")


def test_files_of_one_name_are_told_apart_and_a_source_is_given_once(behaviours, tmp_path):
    for place, text in {"base/r.jsonl": "no", "rl/r.jsonl": "so"}.items():
        (tmp_path / place).parent.mkdir(exist_ok=True)
        write_json_lines(tmp_path / place, _samples_of("model", [text]))
    (tmp_path / "rl" / "r.csv").write_text("id,response,correct,label\np0,so,true,model\n")
    given = [tmp_path / place for place in ("base/r.jsonl", "rl/r.jsonl", "rl/r.csv")]
    assert [one["label"] for one in behaviours(*given[:2])["labels"]] == ["base/r", "rl/r"]
    assert [one["label"] for one in behaviours(*given[1:])["labels"]] == ["r.jsonl", "r.csv"]
    with pytest.raises(ConfigError, match=r"rl/r\.csv is given 2 times; give each source once"):
        behaviours(*given, given[2])


def test_a_folder_of_samples_is_read_whole(behaviours, tmp_path):
    for label, answers in {"dpo": "011", "rl": "111"}.items():
        write_samples_of(tmp_path / "samples" / f"{label}.parquet", label, answers)
    summary = behaviours(tmp_path / "samples")
    assert [label["label"] for label in summary["labels"]] == ["dpo", "rl"]
    assert summary["labels"][1]["differences"]["accuracy"]["estimate"]["mean"] == pytest.approx(1 / 3)
    assert summary["notes"] == ["intervals are over problems, and 3 are too few to say much"]


def test_published_responses(behaviours, shared_data):
    summary = behaviours(shared_data("rl_probe") / "responses.jsonl.gz", by="set")
    assert summary["num_responses"] == 339
    boxed = {label["label"]: label["format"]["boxed"]["mean"] for label in summary["labels"]}
    with gzip.open(shared_data("rl_probe") / "responses.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    for name, share in boxed.items():
        part = [row["n_boxed"] > 0 for row in rows if row["set"] == name]
        assert share == pytest.approx(sum(part) / len(part))


def test_an_own_lexicon(behaviours, responses, tmp_path):
    lexicon = tmp_path / "own.yaml"
    lexicon.write_text("roles: [a knight]", encoding="utf-8")
    reflection = behaviours(responses, lexicon=lexicon)["labels"][0]["reflection"]
    assert reflection["roles"]["per_response"]["mean"] == pytest.approx(4 / 3)


def test_embeddings(behaviours, responses, monkeypatch):
    fake = types.ModuleType("sentence_transformers")
    fake.SentenceTransformer = lambda model, **options: types.SimpleNamespace(
        encode=lambda texts, show_progress_bar: np.array([[1.0, float("knight" in text)] for text in texts])
    )
    monkeypatch.setitem(sys.modules, "sentence_transformers", fake)
    label = behaviours(responses, embedding_model="mini")["labels"][0]
    assert label["groups"]["embedding_similarity"]["mean"] == pytest.approx((1 + 2 * 2**-0.5) / 3)


def test_embeddings_without_the_package(behaviours, responses, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtraError):
        behaviours(responses, embedding_model="mini")


def test_wrong_arguments(behaviours, responses, run, tmp_path):
    with pytest.raises(ConfigError, match=r"--by 'labl' is not a field of .*did you mean 'label'"):
        behaviours(responses, by="labl")
    with pytest.raises(ConfigError, match="compared by step"):
        behaviours(run.path, by="label")
    with pytest.raises(ConfigError, match="a run has its own"):
        behaviours(run.path, fields=["response=text"])
    with pytest.raises(ConfigError, match="is a file that is read"):
        behaviours(responses, out=responses)
    with pytest.raises(ArtifactError, match="does not exist; give a run, or a file"):
        behaviours(tmp_path / "missing.jsonl")
    with pytest.raises(ArtifactError, match="does not exist"):
        behaviours(tmp_path / "missing")


def test_a_run_without_rollouts(behaviours, run):
    for path in (run.path / "rollouts").iterdir():
        path.unlink()
    with pytest.raises(ArtifactError, match="has no rollouts"):
        behaviours(run.path)


def test_ids_without_text(behaviours, tmp_path):
    path = tmp_path / "ids.jsonl"
    path.write_text(json.dumps({"id": "p", "prompt_ids": [1], "completion_ids": [2]}), encoding="utf-8")
    with pytest.raises(ArtifactError, match=r"ids\.jsonl, line 1 has token ids but no text"):
        behaviours(path)
