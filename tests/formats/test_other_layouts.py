"""Layouts of other programs: counts, golds and verdicts equal plain arithmetic on the files."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from swerve.errors import ArtifactError, NoResponseError
from swerve.formats.imported_responses import LeftOut, read_responses, responses_of
from swerve.formats.records import iter_records
from tests.json_lines import write_json_lines

Locate = Callable[[str], Path]
A, B, C = ("2 + 3 is five. The answer is \\boxed{5}.", "7 * 6 = 42, so \\boxed{42}", "10 - 4 gives \\boxed{7}")
ASKED = [(A, "5"), (B, "42"), (C, "6")]


@pytest.mark.parametrize(
    "name",
    [
        "gsm8k-ppo-k8/original/results_2048_batched__rl_raw.jsonl.gz",
        "gsm8k-ppo-k8/original/results_2048_batched__sft_raw.jsonl.gz",
        "countdown-sft-grpo/original/post_train__data__eval__grpo__eval_samples.jsonl.gz",
        "gsm8k-tiny-greedy/original/main__rl-intro_logs__baseline_eval.jsonl.gz",
    ],
)
def test_nested_and_renamed_results_count_as_their_files(name: str, shared_data: Locate) -> None:
    path = shared_data("evidence") / name
    rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    each = [rollout for row in rows for rollout in row.get("rollouts", [row])]
    found = read_responses(path)
    assert [one.correct for one in found] == [one.get("correct", one.get("is_correct")) for one in each]
    assert [one.text for one in found] == [
        one.get("text") or one.get("raw_generation") or one["response"] for one in each
    ]
    assert len({one.problem.id for one in found}) == len(rows)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nemo_skills_output-rs0.jsonl", ASKED),
        ("nemo_gym_rollouts.jsonl", ASKED),
        ("roll_generate.jsonl", ASKED),
        ("slime_samples.jsonl", ASKED),
        ("openr1_math.jsonl", [(text + end, gold) for text, gold in ASKED for end in ("", " ok")]),
        ("real__evalscope-1.14.1_reviews.jsonl", [("It is \\boxed{5}.", "5"), ("So \\boxed{41}", "42")]),
        ("real__evalscope-1.14.1_predictions.jsonl", [("It is \\boxed{5}.", "5"), ("So \\boxed{41}", "42")]),
        ("openai_responses_batch_output.jsonl", [(text, "") for text, _ in ASKED]),
        ("conversations_role_content.jsonl", [(text, "") for text, _ in ASKED]),
        ("alpaca.jsonl", [(text, "") for text, _ in ASKED]),
    ],
)
def test_layouts_of_other_programs(name: str, expected: list[tuple[str, str]], shared_data: Locate) -> None:
    found = read_responses(shared_data("public_cases") / "layouts" / name)
    assert [(one.text, one.problem.answer) for one in found] == expected
    assert all(one.has_prompt for one in found) or "batch" in name


def test_verdicts_and_ids_of_other_programs(shared_data: Locate) -> None:
    layouts = shared_data("public_cases") / "layouts"
    assert [one.correct for one in read_responses(layouts / "openr1_math.jsonl")] == [True] * 4 + [False] * 2
    assert [one.reward for one in read_responses(layouts / "real__evalscope-1.14.1_reviews.jsonl")] == [1.0, 0.0]
    first = read_responses(layouts / "nemo_rl_train_data_step3.jsonl")[0]
    assert (first.prompt_ids, first.completion_ids) == ((3, 4, 5, 6, 7, 8), (9, 10, 11, 12, 13, 2))
    assert (first.logprobs, first.reward) == ((-0.1,) * 6, 1.0)


def written(folder: Path, value: object, name: str = "a.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def test_records_within_an_object_have_what_holds_for_all(tmp_path: Path) -> None:
    rows = [{"question": "1?", "response": "1", "correct": True}, {"question": "2?", "response": "x", "correct": None}]
    found = read_responses(written(tmp_path, {"correct": 51, "accuracy": 0.3, "model": "m", "results": rows}))
    assert [(one.text, one.correct) for one in found] == [("1", True), ("x", None)]
    assert found[0].extra["model"] == "m"
    assert "accuracy" not in found[0].extra
    with pytest.raises(Exception, match="but one with score, convos"):
        read_responses(written(tmp_path, {"score": 1.0, "convos": [[1]]}))


def test_sharegpt(tmp_path: Path) -> None:
    said = [{"from": "system", "value": "s"}, {"from": "human", "value": "1?"}, {"from": "gpt", "value": "2"}]
    (one,) = read_responses(written(tmp_path, [{"conversations": said}]))
    assert (one.problem.messages, one.text) == ((("system", "s"), ("user", "1?")), "2")


def test_skyrl_rewards_of_tokens_are_added(tmp_path: Path) -> None:
    row = {"input_prompt": "1?", "output_response": "2", "score": [0.0, 0.0, 1.0], "stop_reason": "length"}
    (one,) = read_responses(written(tmp_path, [row]))
    assert (one.prompt, one.text, one.reward, one.finish_reason) == ("1?", "2", 1.0, "length")


def test_an_answer_to_no_request_is_named_and_left_out(tmp_path: Path) -> None:
    body = {"body": {"choices": [{"message": {"role": "assistant", "content": "2"}}]}}
    path = tmp_path / "out.jsonl"
    path.write_text(f"{json.dumps({'response': body})}\n{json.dumps({'custom_id': 'c', 'response': body})}\n")
    left_out = LeftOut()
    (one,) = read_responses(path, left_out=left_out)
    assert (one.problem.id, one.text) == ("c", "2")
    assert "line 1 has no custom_id" in left_out.first[0]


def test_gold_answers_in_a_list_are_all_right(tmp_path: Path) -> None:
    rows = [{"question": f"{n}?", "response": "2", "gold": gold} for n, gold in enumerate((["1", 2], {"a": 1}, 3))]
    left_out = LeftOut()
    found = read_responses(written(tmp_path, rows), left_out=left_out)
    assert [(one.problem.answer, one.problem.alternatives) for one in found] == [("1", ("2",)), ("3", ())]
    assert "record 2: gold must be text or a number" in left_out.first[0]


@pytest.mark.parametrize(
    ("name", "num", "right"),
    [
        ("gsm8k-qwen35-drgrpo-200/original/results__stratified_eval__base.json.gz", 200, 51),
        ("gsm8k-tiny-k16/original/main__rl-intro_logs__baseline_16_pass.jsonl.gz", 1600, 1083),
        ("gsm8k-tiny-k16/original/main__rl-intro_logs__checkpoint_16_pass.jsonl.gz", 1600, 1152),
    ],
)
def test_verdicts_and_counts_without_texts(name: str, num: int, right: int, shared_data: Locate) -> None:
    path = shared_data("evidence") / name
    found = list(responses_of(path, iter_records(path), verdicts_suffice=True))
    assert (len(found), sum(bool(one.correct) for one in found)) == (num, right)
    assert {one.text for one in found} == {None}
    with pytest.raises(NoResponseError, match="only a verdict"):
        read_responses(path)


def test_texts_alone_are_to_one_problem_after_another(tmp_path: Path) -> None:
    found = read_responses(written(tmp_path, {"run_id": "r", "pass_at_1": 0.5, "responses": ["a", "b"]}))
    assert [(one.problem.id, one.text) for one in found] == [("0", "a"), ("1", "b")]
    with pytest.raises(NoResponseError, match="no response"):  # a failed request has a verdict and no response
        read_responses(written(tmp_path, [{"id": "a", "response": None, "correct": False}]))


PREDICTIONS = {
    "0": {"origin_prompt": [{"role": "SYSTEM", "prompt": "Be brief."}, {"role": "HUMAN", "prompt": "1 + 1?"}],
          "prediction": "It is 2.", "gold": "2"},
    "1": {"origin_prompt": "Q: 1 + 2?\nA:", "prediction": "", "gold": ["3", "three"]},
    "2": {"origin_prompt": [{"role": "user", "content": "1 + 3?"}], "prediction": ["4", "5"], "refr": "4"},
    "3": {"origin_prompt": [[{"role": "HUMAN", "prompt": "a?"}],
                            [{"role": "HUMAN", "prompt": "a?"}, {"role": "BOT", "prompt": "x"},
                             {"role": "HUMAN", "prompt": "b?"}]],
          "prediction": ["x", "y"], "gold": ["1", "2"]},
    "4": {"origin_prompt": "Q", "prediction": "ok", "gold": {"kwargs": [1]}},
    "5": {"origin_prompt": "Q: A or B?", "label: A": {"PPL": 1.0}, "prediction": "A", "gold": "A"},
    "6": {"origin_prompt": "Q: A or B?", "prediction": [0.5, 0.5], "gold": 1},
}  # fmt: skip


def write_predictions(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(PREDICTIONS))
    return path


def test_predictions_of_opencompass(tmp_path: Path) -> None:
    left_out = LeftOut()
    found = read_responses(write_predictions(tmp_path / "predictions" / "rl-7b" / "gsm8k.json"), left_out=left_out)
    assert [(one.problem.id, one.sample, one.text, one.problem.answer) for one in found] == [
        ("0", None, "It is 2.", "2"),
        ("1", None, "", "3"),
        ("2", 0, "4", "4"),
        ("2", 1, "5", "4"),
        ("3/0", None, "x", "1"),
        ("3/1", None, "y", "2"),
        ("4", None, "ok", ""),
    ]
    assert {(one.dialect, one.label) for one in found} == {("opencompass", "rl-7b")}
    assert found[0].problem.messages == (("system", "Be brief."), ("user", "1 + 1?"))
    assert found[1].prompt == "Q: 1 + 2?\nA:"
    assert found[1].problem.alternatives == ("three",)
    assert found[5].problem.messages == (("user", "a?"), ("assistant", "x"), ("user", "b?"))
    assert found[6].extra["ground_truth"] == {"kwargs": [1]}
    assert left_out.num_failed == 2
    assert "entry '5' has likelihoods of given texts" in left_out.first[0]


def test_parts_of_predictions_count_from_0_each(tmp_path: Path) -> None:
    for name in ("gsm8k_0.json", "gsm8k_1.json"):
        write_predictions(tmp_path / name)
    changed = json.loads((tmp_path / "gsm8k_1.json").read_text())
    changed["0"]["origin_prompt"] = "another?"
    (tmp_path / "gsm8k_1.json").write_text(json.dumps(changed))
    found = read_responses(tmp_path, left_out=LeftOut())
    assert len(found) == 14
    ids = [one.problem.id for one in found]
    assert ids[0] != ids[7]
    assert ids[1:7] == ids[8:]


def test_predictions_of_jsonl_and_rounds_that_do_not_fit(tmp_path: Path) -> None:
    lines = [{"idx": int(name), **row} for name, row in PREDICTIONS.items()]
    write_json_lines(tmp_path / "p.jsonl", lines)
    assert [one.problem.id for one in read_responses(tmp_path / "p.jsonl", left_out=LeftOut())][:2] == ["0", "1"]
    (tmp_path / "p.json").write_text(json.dumps({"0": {"origin_prompt": [["a"], ["b"]], "prediction": ["x"]}}))
    with pytest.raises(ArtifactError, match="entry '0': 1 predictions for 2 rounds of a chat"):
        read_responses(tmp_path / "p.json")
