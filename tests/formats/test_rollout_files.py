"""Files that other programs wrote: how much is read of each, and what their records become."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from swerve.artifacts.responses import Response
from swerve.errors import ArtifactError
from swerve.formats.imported_problems import read_problems
from swerve.formats.imported_responses import LeftOut, responses_of
from swerve.formats.problem_joins import JoinCounts, check_prompts, join_problems
from swerve.formats.records import iter_records

# Responses, problems, with a reward, with a gold answer, with turns; records left out: failed, of another filter.
_COUNTS = {
    "verifiers-0.1.14/results_one_turn.jsonl": (10, 5, 10, 10, 0, 0, 0),
    "verifiers-0.1.14/results_tool.jsonl": (5, 5, 5, 5, 2, 0, 0),
    "verifiers-0.1.14/results_trajectory.jsonl": (5, 5, 5, 5, 2, 0, 0),
    "verifiers-0.2.1/traces_one_turn.jsonl": (10, 5, 10, 10, 0, 0, 0),
    "verifiers-0.4.0/traces_one_turn.jsonl": (10, 5, 10, 10, 0, 0, 0),
    "verifiers-0.4.0/traces_tool.jsonl": (5, 5, 5, 5, 2, 0, 0),
    "verifiers-0.4.0/traces_train_client_one_turn.jsonl": (5, 5, 5, 5, 0, 0, 0),
    "inspect_ai-0.3.285/chat_logprobs.json": (3, 3, 3, 3, 0, 0, 0),
    "inspect_ai-0.3.285/mockllm.json": (5, 5, 5, 5, 1, 0, 0),
    "inspect_ai-0.3.285/mockllm.eval": (5, 5, 5, 5, 1, 0, 0),
    "inspect_ai-0.3.285/tool.json": (5, 5, 5, 5, 2, 0, 0),
    "inspect_ai-0.3.285/tool.eval": (5, 5, 5, 5, 2, 0, 0),
    "lm_eval-0.4.13/samples_tiny_gen.jsonl": (5, 5, 5, 5, 0, 0, 5),
    "trl-1.16.0/completions_chat_00001.parquet": (4, 2, 4, 4, 0, 0, 0),
    "trl-1.16.0/completions_text_00001.parquet": (4, 2, 4, 0, 0, 0, 0),
    "trl-1.16.0/completions_text_00002.parquet": (4, 2, 4, 0, 0, 0, 0),
    "verl-0.4.0/ray_trainer_rollout_3.jsonl": (8, 4, 8, 0, 0, 0, 0),
    "verl-0.9.1/ray_trainer_rollout_3.jsonl": (8, 4, 8, 8, 0, 0, 0),
    "verl-0.9.1/ray_trainer_tool_3.jsonl": (1, 1, 1, 0, 0, 0, 0),  # its gold answer is an object, kept in `extra`
    "verl-0.9.1/v1_trainer_rollout_3.jsonl": (8, 4, 8, 8, 0, 0, 0),
    "openai_batch-stand_in/batch_output.jsonl": (6, 5, 0, 0, 1, 0, 0),
    "vllm-0.32.0/run_batch_output.jsonl": (4, 3, 0, 0, 0, 1, 0),
}
_NOTHING = {
    "verifiers-0.4.0/traces_failed.jsonl": "line 1: the rollout failed: All connection attempts failed",
    "lm_eval-0.4.13/samples_tiny_mc.jsonl": "line 1: sample 0 has log-likelihoods of given texts",
    "openai_batch-stand_in/batch_errors.jsonl": r"line 1: the request 'arith-5' has no choices \(batch_expired\)",
    "openai_batch-stand_in/batch_input.jsonl": "line 1 is a request of a batch, not its answer; give it with",
}

Locate = Callable[[str], Path]


def _read(path: Path) -> tuple[list[Response], LeftOut]:
    left_out = LeftOut()
    return list(responses_of(path, iter_records(path), left_out=left_out)), left_out


@pytest.mark.parametrize("name", _COUNTS)
def test_what_is_read_of_a_file(name: str, shared_data: Locate) -> None:
    path = shared_data("rollout_files") / name
    responses, left_out = _read(path)
    requests = path.with_name(path.name.replace("output", "input"))
    joined = list(join_problems(responses, read_problems(requests) if requests != path else {}, JoinCounts()))
    check_prompts(path, joined)
    assert _COUNTS[name] == (
        len(joined),
        len({one.problem.id for one in joined}),
        sum(one.reward is not None for one in joined),
        sum(bool(one.problem.answer) for one in joined),
        sum(bool(one.turns) for one in joined),
        left_out.num_failed,
        left_out.num_repeated,
    )


@pytest.mark.parametrize("name", _NOTHING)
def test_a_file_without_a_response_is_refused(name: str, shared_data: Locate) -> None:
    with pytest.raises(ArtifactError, match=_NOTHING[name]):
        _read(shared_data("rollout_files") / name)


def test_a_log_is_the_same_as_json_and_as_a_zip(shared_data: Locate) -> None:
    folder = shared_data("rollout_files") / "inspect_ai-0.3.285"
    first, second = (_read(folder / f"mockllm.{ending}")[0] for ending in ("json", "eval"))
    assert [one.text for one in first] == [one.text for one in second]
    cut, thoughtful = first[2], first[1]
    assert (cut.finish_reason, cut.correct, cut.parts) == ("length", False, {"pattern": 0.0, "includes": 0.0})
    assert (thoughtful.text, thoughtful.turns[0]["reasoning_content"]) == ("It is \\boxed{54}.", "Seven eights are 54.")
    assert first[0].problem.messages == (("system", "Answer in a box."), ("user", "What is 12 + 30?"))
    assert (first[0].problem.question, first[0].extracted, first[0].label) == (
        "What is 12 + 30?",
        "42",
        "mockllm/model",
    )


def test_tokens_of_a_trace_are_those_of_its_nodes(shared_data: Locate) -> None:
    responses, _ = _read(shared_data("rollout_files") / "verifiers-0.4.0" / "traces_train_client_one_turn.jsonl")
    first = responses[0]
    # 21 of the system, 22 of the user, 9 of the template before the answer, which is 35 and all sampled.
    assert (len(first.prompt_ids), len(first.completion_ids), first.sampled) == (52, 35, ())
    assert (first.logprobs[0], first.logprobs[-1]) == (-6.9417, -0.01)
    assert (first.parts, first.reward, first.correct) == ({"boxed": 1.0, "correct": 0.0}, 0.1, False)
    assert (first.label, first.finish_reason) == ("stand-in", "stop")
