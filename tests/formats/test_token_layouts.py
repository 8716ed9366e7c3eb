"""Layouts with token ids: masks, log-probabilities, and what has no text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from swerve.artifacts.responses import Response
from swerve.errors import ArtifactError
from swerve.formats.imported_responses import LeftOut, read_responses
from tests.json_lines import write_json_lines

FILES = Path(__file__).parents[3] / "shared" / "data" / "rollout_files"


def read(path: Path, rows: Sequence[Mapping[str, Any]], left_out: LeftOut | None = None) -> list[Response]:
    write_json_lines(path, rows)
    return read_responses(path, left_out=left_out)


def test_outputs_of_vllm_have_the_log_probability_of_the_sampled_token(tmp_path: Path) -> None:
    output = {"text": " ab", "token_ids": [7, 8], "finish_reason": "stop"}
    logprobs = [{"7": {"logprob": -1.5, "rank": 2}, "9": {"logprob": -0.5, "rank": 1}}, {"8": {"logprob": -0.25}}]
    outputs = [{"index": 0, **output, "logprobs": logprobs}, {"index": 1, **output, "logprobs": None}]
    row = {"request_id": "0", "prompt": "Once", "prompt_token_ids": [1, 4], "outputs": outputs}
    first, second = read(tmp_path / "r.jsonl", [row])
    assert (first.dialect, first.prompt, first.prompt_ids, first.completion_ids) == ("vllm", "Once", (1, 4), (7, 8))
    assert (first.text, first.logprobs, first.sample, first.finish_reason) == (" ab", (-1.5, -0.25), 0, "stop")
    assert (second.logprobs, second.sample, second.problem.id) == ((), 1, first.problem.id)


def test_a_token_export_of_prime_rl_is_ids_with_a_mask(tmp_path: Path) -> None:
    row = {
        "schema_version": 2, "step": 3, "rank": 0, "sample_id": None, "env_name": "maths",
        "token_ids": [1, 2, 3, 4, 5, 6, 7], "loss_mask": [False, False, True, False, True, True, False],
        "inference_logprobs": [0.0, 0.0, -1.0, 0.0, -2.0, -3.0, 0.0], "entropy": [0.5] * 7,
        "trainer_logprobs": [0.0, 0.0, -1.1, 0.0, -2.1, -3.1, 0.0], "advantages": [0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0],
        "rewards": [0.75] * 7,
    }  # fmt: skip
    failed = {**row, "loss_mask": [False] * 7}
    left_out = LeftOut()
    (response,) = read(tmp_path / "rank_0.jsonl", [row, failed], left_out)
    assert (response.text, response.prompt_ids, response.completion_ids) == (None, (1, 2), (3, 4, 5, 6))
    assert (response.sampled, response.turn_numbers) == ((True, False, True, True), [1, 2, 2])
    assert (response.logprobs, response.reward, response.step) == ((-1.0, None, -2.0, -3.0), 0.75, 3)
    assert response.population == "maths"
    assert response.extra["trainer_logprobs"] == row["trainer_logprobs"]
    assert (left_out.num_failed, "no token that the model sampled" in left_out.first[0]) == (1, True)
    with pytest.raises(ArtifactError, match=r"line 1: entropy has 2 values for 7 token ids"):
        read(tmp_path / "rank_1.jsonl", [{**row, "entropy": [0.5, 0.5]}])


def test_a_trace_of_open_instruct_is_ids_and_says_who_wrote_it(tmp_path: Path) -> None:
    row = {
        "step": 5, "sample_idx": 9, "prompt_idx": 2, "prompt_tokens": [1, 2], "response_tokens": [3, 4, 5],
        "reward": 10.0, "advantage": 0.5, "finish_reason": "stop", "dataset": "math", "ground_truth": ["42"],
        "request_info": {"num_calls": 0}, "logprobs": [-1.0, -2.0, -3.0],
    }  # fmt: skip
    called = {**row, "request_info": {"num_calls": 1}}
    masked = {**called, "tool_mask": [1, 0, 1], "ground_truth": [17, 18]}
    (tmp_path / "run_metadata.jsonl").write_text(json.dumps({"model_name_or_path": "olmo"}) + "\n")
    left_out = LeftOut()
    whole, parts = read(tmp_path / "run_rollouts_000000.jsonl", [row, called, masked], left_out)
    assert (whole.completion_ids, whole.sampled, whole.logprobs) == ((3, 4, 5), (), (-1.0, -2.0, -3.0))
    assert (whole.problem.answer, whole.label, whole.population, whole.reward) == ("42", "olmo", "math", 10.0)
    assert (whole.text, whole.step, whole.sample, whole.problem.id) == (None, 5, None, parts.problem.id)
    assert (parts.sampled, parts.logprobs, parts.problem.answer) == ((True, False, True), (-1.0, None, -3.0), "")
    assert (left_out.num_failed, "called tools" in left_out.first[0]) == (1, True)


def test_a_trajectory_is_one_sequence_where_each_prompt_goes_on_from_the_one_before(tmp_path: Path) -> None:
    messages = [{"role": "assistant", "content": "a"}, {"role": "tool", "content": "b"}]
    first = {"prompt_ids": [1, 2], "completion_ids": [3, 4], "completion_logprobs": [-1.0, -2.0]}
    second = {"prompt_ids": [1, 2, 3, 4, 5], "completion_ids": [6], "completion_logprobs": [-3.0]}
    row = {
        "example_id": 0, "prompt": [{"role": "user", "content": "?"}], "reward": 1.0, "metrics": {},
        "completion": [*messages, messages[0]], "trajectory": [{"tokens": first}, {"tokens": second}],
    }  # fmt: skip
    again = {**second, "prompt_ids": [1, 2, 3, 9, 5]}
    one, other = read(tmp_path / "r.jsonl", [row, {**row, "trajectory": [{"tokens": first}, {"tokens": again}]}])
    assert (one.prompt_ids, one.completion_ids, one.sampled) == ((1, 2), (3, 4, 5, 6), (True, True, False, True))
    assert (one.logprobs, len(one.turns)) == ((-1.0, -2.0, None, -3.0), 3)
    assert other.completion_ids == ()
    assert other.extra["not_kept"] == {"token ids of calls whose prompts do not go on from the call before": 2}


@pytest.mark.skipif(not FILES.is_dir(), reason="the files of other programs are not beside the repository")
@pytest.mark.parametrize(
    ("name", "with_ids", "of_turns"),
    [
        ("verifiers-0.4.0/traces_train_client_one_turn.jsonl", 5, 0),
        ("verifiers-0.4.0/traces_train_client_tool.jsonl", 3, 2),
        ("verifiers-0.1.14/results_trajectory.jsonl", 3, 0),
        ("vllm-0.32.0/request_outputs.jsonl", 10, 0),
        ("vllm-0.32.0/run_batch_output.jsonl", 4, 0),
    ],
)
def test_files_of_other_programs_keep_their_ids(name: str, with_ids: int, of_turns: int) -> None:
    path = FILES / name
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    responses = read_responses(path, left_out=LeftOut())
    known = [response for response in responses if response.completion_ids]
    assert (len(known), sum(not response.is_one_turn for response in known)) == (with_ids, of_turns)
    for response in known:
        assert response.prompt_ids
        assert len(response.logprobs) in (0, len(response.completion_ids))
        sampled = list(response.sampled) or [True] * len(response.completion_ids)
        assert [logprob is not None for logprob in response.logprobs] in ([], sampled)


def test_a_node_whose_mask_and_log_probabilities_do_not_fit_is_named(tmp_path: Path) -> None:
    node = {"message": {"role": "assistant", "content": "2"}, "sampled": True, "token_ids": [1, 2, 3]}
    for more in ({"mask": [True, True]}, {"mask": [False, True, True], "logprobs": [-1.0]}):
        with pytest.raises(
            ArtifactError, match=r"line 1: a node has 3 token ids, a mask of \d with 2 of the model, and"
        ):
            read(tmp_path / "t.jsonl", [{"nodes": [{**node, **more}], "task": {"data": {"idx": 0}}, "rewards": {}}])
