"""Layouts of one program each that names cannot say: evalscope, OpenCompass, NeMo, SkyRL, ShareGPT, `/v1/responses`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from swerve.artifacts.files import parse_json
from swerve.errors import ArtifactError, NoResponseError
from swerve.formats.conversations import (
    Turn,
    conversation_fields,
    masked_fields,
    prompt_and_completion,
    read_turn,
    read_turns,
)
from swerve.formats.records import FileRecord
from swerve.formats.typed_fields import at_place

_ROLES = {
    **dict.fromkeys(("gpt", "chatgpt", "bing", "bard", "function_call"), "assistant"),
    "human": "user",
    "observation": "tool",
}
"""Roles of ShareGPT by other names."""


def conversations_as_chat(record: FileRecord) -> FileRecord:
    """Return the messages `{from, value}` of ShareGPT, or `{role, content}` under its name, as those of a chat."""
    values = dict(record.values)
    said = values.pop("conversations")
    if not isinstance(said, list) or not all(isinstance(one, dict) for one in said):
        raise ArtifactError(f"{record.place}: conversations must be a list of messages {{from, value}}")
    turns = [{"role": one.get("from"), "content": one.get("value"), **one} if "from" in one else one for one in said]
    messages = list(map(_sharegpt_message, turns))
    if isinstance(values.get("system"), str) and values["system"]:
        messages.insert(0, {"role": "system", "content": values["system"]})
    return replace(record, values={**values, "messages": messages})


def _sharegpt_message(turn: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message of ShareGPT under the roles of a chat; `function_call` has the model's calls as JSON."""
    role, content = str(turn.get("role")), turn.get("content")
    if role == "function_call" and isinstance(content, str):
        with suppress(ValueError):
            return {"role": "assistant", "content": "", "tool_calls": parse_json(content)}
    return {**turn, "role": _ROLES.get(role, turn.get("role"))}


def review_as_chat(record: FileRecord) -> FileRecord:
    """Return a review of evalscope as a chat, with its score."""
    values = record.values
    score = at_place(values, "sample_score.score")
    parts = score.get("value") or {}
    main = parts.get(score.get("main_score_name") or next(iter(parts), ""))
    found = {"parts": parts, "reward": main, "extracted": score.get("extracted_prediction")}
    chat = {name: value for name, value in values.items() if name not in ("index", "target")}
    return replace(record, values={**chat, **found, "gold": at_place(values, "target?")})


def convert_prediction(record: FileRecord, path: Path) -> Iterator[dict[str, Any]]:
    """Take the choices of a prediction of evalscope as responses."""
    values, place = record.values, f"{record.place}: messages"
    asked = [replace(turn, sampled=False) for turn in read_turns(values["messages"], place)]
    choices = at_place(values, "model_output.choices")
    if not choices:
        raise NoResponseError(f"{record.place} has no choices ({at_place(values, 'model_output.error')})")
    for number, choice in enumerate(choices):
        turn = read_turn(choice["message"], place, sampled=True)
        yield {
            **conversation_fields([*asked, turn], place),
            "gold": at_place(values, "metadata.target?"),
            "label": at_place(values, "model?"),
            "sample": number if len(choices) > 1 else None,
            "finish_reason": choice.get("stop_reason"),
        }


_OPENCOMPASS = {"HUMAN": "user", "BOT": "assistant", "SYSTEM": "system"}


def convert_opencompass(record: FileRecord, path: Path) -> Iterator[dict[str, Any]]:
    """Yield the fields of each prediction of OpenCompass: one or more to a prompt, or one to each round of a chat.

    The number of a prediction is its problem's id, but for a folder of predictions, where several files count from 0.
    """
    values, place = dict(record.values), record.place
    asked, said, gold = values.pop("origin_prompt"), values.pop("prediction"), at_place(values, "gold")
    name = None if path.is_dir() else values.pop("id", values.pop("idx", None))
    values.pop("id", None)
    is_chat = isinstance(asked, list) and bool(asked) and all(isinstance(one, list) for one in asked)
    texts = said if isinstance(said, list) else [said]
    if any(key.startswith("label: ") for key in values) or not texts or not all(isinstance(one, str) for one in texts):
        raise NoResponseError(f"{place} has likelihoods of given texts, or nothing; no response that was written")
    if is_chat and len(asked) != len(texts):
        raise ArtifactError(f"{place}: {len(texts)} predictions for {len(asked)} rounds of a chat")
    golds = gold if is_chat and isinstance(gold, list) and len(gold) == len(texts) else [gold] * len(texts)
    folder = path.parent
    for number, (text, own) in enumerate(zip(texts, golds, strict=True)):
        prompt = asked[number] if is_chat else asked
        yield {
            **values,
            **prompt_and_completion(_messages(prompt) if isinstance(prompt, list) else prompt, text, place),
            "id": None if name is None else f"{name}/{number}" if is_chat else str(name),
            "gold": own if _is_answer(own) else None,
            "ground_truth": None if _is_answer(own) else own,
            "sample": number if len(texts) > 1 and not is_chat else None,
            "label": folder.name if folder.parent.name == "predictions" and not path.is_dir() else None,
        }


def _is_answer(gold: Any) -> bool:
    """Whether a gold answer is a text, a number, or a list of them."""
    each = gold if isinstance(gold, list) else [gold]
    return all(isinstance(one, str | int | float) and not isinstance(one, bool) for one in each)


def _messages(prompt: list[Any]) -> list[Any]:
    """Return messages `{role: HUMAN, prompt}` as those of a chat."""
    return [
        {"role": _OPENCOMPASS.get(one["role"], one["role"]), "content": one.get("prompt", one.get("content"))}
        if isinstance(one, dict)
        else one
        for one in prompt
    ]


def output_turns(output: Any, place: str) -> list[Turn]:
    """Return the items that a model gave out in `/v1/responses` as one message."""
    said: dict[str, Any] = {"role": "assistant", "content": [], "tool_calls": []}
    thoughts = []
    for item in output:
        if item.get("type") == "message":
            said["content"] += item["content"] if isinstance(item["content"], list) else [item["content"]]
        elif item.get("type") == "reasoning":
            thoughts += [part["text"] for part in (*(item.get("summary") or ()), *(item.get("content") or ()))]
        elif item.get("type") == "function_call":
            said["tool_calls"].append({**item, "id": item.get("call_id")})
    if not said["content"] and not said["tool_calls"]:
        raise NoResponseError(f"{place} has no message in its output")
    return [read_turn({**said, "reasoning_content": "\n\n".join(thoughts)}, place, sampled=True)]


def convert_nemo_gym(record: FileRecord, path: Path) -> Iterator[dict[str, Any]]:
    """Read what was asked and given out in the form of `/v1/responses`."""
    values, place = record.values, f"{record.place}: response"
    asked = at_place(values, "responses_create_params.input")
    turns = read_turns([["user", asked]] if isinstance(asked, str) else asked, place)
    asked_turns = [replace(turn, sampled=False) for turn in turns]
    more = {name: value for name, value in values.items() if name not in ("response", "responses_create_params")}
    fields = conversation_fields([*asked_turns, *output_turns(at_place(values, "response.output") or [], place)], place)
    yield {**more, **fields, "label": at_place(values, "response.model?"), "sample": values.get("_rollout_index")}


def convert_instruction(record: FileRecord, path: Path) -> Iterator[dict[str, Any]]:
    """Take an instruction and what stands beside it as its input as the question."""
    values = dict(record.values)
    beside = [values.pop(name, None) for name in ("instruction", "input", "context")]
    yield {**values, "question": "\n\n".join(text for text in beside if isinstance(text, str) and text)}


def convert_nemo_rl(record: FileRecord, path: Path) -> Iterator[dict[str, Any]]:
    """Read the ids and the mask; the text of prompt and response together cannot be parted."""
    values = dict(record.values)
    ids, mask = values.pop("token_ids"), values.pop("token_loss_mask")
    logprobs = values.pop("generation_logprobs", None) or [None] * len(ids)
    yield {**values, **masked_fields(ids, mask, logprobs, record.place), "reward": at_place(values, "rewards?")}


def convert_skyrl(record: FileRecord, path: Path) -> Iterator[dict[str, Any]]:
    """Add up a reward that is given for each token."""
    score = record.values.get("score")
    are_numbers = isinstance(score, list) and bool(score) and all(isinstance(one, int | float) for one in score)
    yield {**record.values, "score": sum(score) if are_numbers else score}  # type: ignore[arg-type]
