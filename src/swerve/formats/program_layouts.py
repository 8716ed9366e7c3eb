"""Responses in the layouts that verifiers, Inspect, Hugging Face `datasets` and verl read.

A layout is a template: the record as JSON, where `$name` stands for what is known by that name (`facts`): a column of
the table, or what is made of several. Columns that a layout has no place of their own for stand together in its free
field (`$others`), but for lists of tokens.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import pyarrow as pa

from swerve.artifacts.files import parse_json
from swerve.artifacts.problem_records import problem_record
from swerve.artifacts.responses import Response
from swerve.version import __version__

VERIFIERS = """{
"example_id": "$index", "prompt": "$prompt_messages", "completion": "$answer", "answer": "$gold", "info": "$others",
"reward": "$reward", "metrics": "$metrics", "error": null, "is_completed": true, "is_truncated": "$is_cut",
"stop_condition": "$finish_reason", "trajectory": "$trajectory"}"""
"""A line of `results.jsonl`, v0."""
_TRAJECTORY = """{
"prompt": "$prompt_messages", "completion": "$answer", "response": null, "reward": "$reward", "advantage": null,
"is_truncated": "$is_cut", "trajectory_id": "$index", "extras": {}, "tokens": {"prompt_ids": "$prompt_ids",
"prompt_mask": "$prompt_mask", "completion_ids": "$completion_ids", "completion_mask": "$mask",
"completion_logprobs": "$completion_logprobs", "overlong_prompt": false, "is_truncated": "$is_cut"}}"""
"""Where ids are known: one entry for all turns, whose mask says which tokens the model sampled."""
VERIFIERS_METADATA = """{
"env_id": "$name", "env_args": {}, "model": "$model", "base_url": "", "num_examples": "$num_problems",
"rollouts_per_example": "$num_repeats", "sampling_args": {}, "avg_reward": "$mean_reward", "avg_metrics": {},
"avg_error": 0.0, "pass_at_k": {}, "pass_all_k": {}, "pass_threshold": 0.5, "state_columns": []}"""
INSPECT = """{
"id": "$problem_id", "epoch": "$repeat", "input": "$input", "target": "$target", "messages": "$messages",
"output": {"model": "$model", "choices": [{"message": "$last", "stop_reason": "$stop_reason"}]},
"scores": "$scores", "metadata": "$others"}"""
"""A sample of a log."""
INSPECT_LOG = """{
"version": 2, "status": "success", "eval": {"created": "$created", "task": "$name", "task_id": "$name",
"run_id": "$name", "dataset": {"name": "$name", "samples": "$num_problems"},
"model": "$model", "config": {"epochs": "$num_repeats"}}, "plan": {}, "results": {"total_samples": "$num_responses",
"completed_samples": "$num_responses", "scores": "$means"}, "stats": {}}"""
"""A log without its samples."""
INSPECT_MEAN = """{
"name": "$name", "scorer": "$name", "scored_samples": "$number",
"metrics": {"mean": {"name": "mean", "value": "$mean"}}}"""
_INSPECT_SCORE = '{"value": "$value", "answer": "$extracted", "explanation": "$detail"}'
VERL = """{
"data_source": "$family", "prompt": "$prompt_messages", "ability": "$kind", "reward_model": {"style": "rule",
"ground_truth": "$gold"}, "extra_info": {"index": "$index", "split": "train", "exported_by": "$exported_by", "asked_by":
"$asked_by", "problem_id": "$problem_id", "family": "$family", "kind": "$kind", "question": "$question",
"label": "$label", "step": "$step"}, "responses": "$text", "samples": "$sample", "scores": "$reward",
"correct": "$correct", "finish_reasons": "$finish_reason", "extracted": "$extracted"}"""
"""A row of a data set for RL, and beside it what verl does not read: lists of the responses to the problem."""
VERL_LISTS = ("text", "sample", "reward", "correct", "finish_reason", "extracted")
_VERL_EXAMPLE = """{
"exported_by": "swerve", "asked_by": "question", "family": "math", "prompt_messages": [{"role": "user", "content": ""}],
"kind": "all", "gold": "2", "index": 0, "problem_id": "p", "question": "1 + 1?", "label": "rl-80", "step": 80,
"text": ["2"], "sample": [0], "reward": [1.0], "correct": [true], "finish_reason": ["stop"], "extracted": ["2"]}"""
_TURN_EXAMPLE = """[{
"role": "tool", "content": "2", "tool_call_id": "1", "name": "add", "reasoning_content": "...", "tool_calls": [{
"id": "1", "type": "function", "function": {"name": "add", "arguments": "{}"}}]}]"""
_TOOL_CALLS = {
    "verifiers": '{"id": "$id", "name": "$name", "arguments": "$arguments"}',
    "inspect": '{"id": "$id", "function": "$name", "arguments": "$object", "type": "function"}',
}
_OPENAI_CALL = '{"id": "$id", "type": "function", "function": {"name": "$name", "arguments": "$arguments"}}'
_TOKENS = ("prompt_ids", "completion_ids", "sampled", "logprobs")
"""Columns of tokens that verifiers has a place for."""
UNKNOWN = "unknown"
"""Name of a model that is not known."""
MADE_BY = f"swerve {__version__}"
"""Stands in free fields as `exported_by`: what is beside it are columns of a table of responses, and as `asked_by` the
column that the prompt's messages are."""
NOT_FREE = {"text", "gold", "messages", "turns"}
"""Columns that stand elsewhere only; lists, of tokens, do too."""
FREE_FIELDS = {"info": NOT_FREE, "metadata": NOT_FREE, "extra_info": NOT_FREE | {*VERL_LISTS}}
"""Free fields -> the columns that stand elsewhere."""


def filled(template: str, known: Mapping[str, Any]) -> Any:
    """Return what a template says, with what is known in place of its names.

    >>> filled('{"id": "$id", "score": {"value": "$reward", "name": "reward"}}', {"id": "p", "reward": 1.0})
    {'id': 'p', 'score': {'value': 1.0, 'name': 'reward'}}
    """
    return _fill(_parsed(template), known)


_parsed = cache(json.loads)


def _fill(template: Any, known: Mapping[str, Any]) -> Any:
    if isinstance(template, dict):
        return {key: _fill(value, known) for key, value in template.items()}
    if isinstance(template, list):
        return [_fill(value, known) for value in template]
    is_name = isinstance(template, str) and template.startswith("$")
    return known[template[1:]] if is_name else template


# Arrow infers these when they are asked for: it begins threads and takes memory, which importing this must not.
def verl_schema() -> pa.Schema:
    """Return the columns of a row for verl."""
    return pa.Table.from_pylist([filled(VERL, json.loads(_VERL_EXAMPLE))]).schema


def messages_type(*, of_turns: bool) -> pa.DataType:
    """Return the type of a column of messages: of texts alone, or with what else those of several turns can have."""
    return pa.scalar(json.loads(_TURN_EXAMPLE)).type if of_turns else verl_schema().field("prompt").type


def facts(response: Response, row: Mapping[str, Any], layout: str, **places: int) -> dict[str, Any]:
    """Return what is known of a response by the names of the templates: its columns, and what they make together.

    Args:
        response: the response.
        row: its row, with numbers that strict JSON can hold.
        layout: `verifiers`, `inspect`, `messages` or `verl`, which says how messages are written.
        places: `index`, number of its problem from 0, and `repeat`, its own among the problem's from 1.
    """
    # The messages before and after; a question, or else the text that the model read, is one of the user.
    problem, question = response.problem, response.problem.question or response.prompt or ""
    prompt = problem_record(problem)["messages"] or [{"role": "user", "content": question}]
    asked_by = "messages" if problem.messages else "question" if problem.question else "prompt"
    turns = response.turns or [{"role": "assistant", "content": response.text or ""}]
    answer = [_message(turn, layout) for turn in turns]
    origin = {"exported_by": MADE_BY, "asked_by": asked_by}
    free = {
        name: value
        for name, value in row.items()
        if name not in NOT_FREE and value is not None and not isinstance(value, list | tuple)
    }
    ids, is_cut = response.completion_ids, response.finish_reason == "length"
    known = {
        **row,
        **places,
        "prompt_text": response.prompt,
        "problem_messages": row.get("messages"),
        "prompt_messages": prompt,
        "answer": answer,
        "messages": [*prompt, *answer],
        "last": answer[-1],
        "input": prompt if problem.messages or not question else question,
        "target": problem.answer,
        "metrics": dict(response.parts),
        "model": response.label or UNKNOWN,
        **origin,
        "others": {**origin, **free},
        "is_cut": is_cut,
        "stop_reason": {"length": "max_tokens", "stop": "stop"}.get(response.finish_reason or "", "unknown"),
        "verdict": {True: "C", False: "I", None: None}[response.verdict],
    }
    # A score for each verdict; ids are one call of the model, with a mask where it has several turns.
    scores = {"correct": known["verdict"], "reward": response.reward}
    known["scores"] = {
        name: filled(_INSPECT_SCORE, {**known, "value": value}) for name, value in scores.items() if value is not None
    }
    known["trajectory"] = []
    if layout == "verifiers" and ids:
        known["prompt_mask"] = [0] * len(response.prompt_ids)
        known["mask"] = [*map(int, response.sampled or [True] * len(ids))]
        known["completion_logprobs"] = [value or 0.0 for value in response.logprobs]
        known["trajectory"] = [filled(_TRAJECTORY, known)]
    return known


def has_room(column: str, value: Any, layout: str) -> bool:
    """Return whether a layout has a place for a value of a column; objects beside the rest hold all but lists."""
    if layout == "verl":
        return column == "messages" or f'"${column}"' in VERL
    return layout == "messages" or not isinstance(value, list | tuple) or (layout == "verifiers" and column in _TOKENS)


def _message(turn: Mapping[str, Any], layout: str) -> dict[str, Any]:
    """Return a message after the prompt in a layout's form."""
    message = dict(turn)
    if calls := turn.get("tool_calls"):
        forms = [filled(_TOOL_CALLS.get(layout, _OPENAI_CALL), {**call, "object": _object(call)}) for call in calls]
        message["tool_calls"] = [json.dumps(form) for form in forms] if layout == "verifiers" else forms
    if layout == "inspect":
        if "name" in turn:
            message["function"] = message.pop("name")
        if thoughts := message.pop("reasoning_content", None):
            said = {"type": "text", "text": message["content"]}
            message["content"] = [{"type": "reasoning", "reasoning": thoughts}, said]
    return message


def _object(call: Mapping[str, Any]) -> Any:
    """Return the arguments of a call as an object, which a model may have failed to write."""
    try:
        arguments = parse_json(call["arguments"])
    except ValueError:
        arguments = None
    return arguments if isinstance(arguments, dict) else {"arguments": call["arguments"]}
