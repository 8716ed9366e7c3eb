"""Layouts that hold token ids: outputs of vLLM, token exports of prime-rl, traces of open-instruct.

The tokenizer of the ids is not in the files: who reads them with a model must check that it is the model's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from swerve.artifacts.files import parse_json, regular_file
from swerve.errors import ArtifactError, NoResponseError
from swerve.formats.conversations import masked_fields
from swerve.formats.records import FileRecord
from swerve.formats.typed_fields import at_place


def convert_request_output(record: FileRecord, path: Path) -> Iterator[dict[str, Any]]:
    """Yield the fields of each output of vLLM's RequestOutput, with the log-probability of each of its tokens."""
    values = record.values
    shared = {name: value for name, value in values.items() if name not in ("outputs", "prompt_token_ids")}
    if not values["outputs"] or not all(output["token_ids"] for output in values["outputs"]):
        raise NoResponseError(f"{record.place} has no output, or one without tokens")
    for number, output in enumerate(values["outputs"]):
        ids = output["token_ids"]
        given = output.get("logprobs") or [{}] * len(ids)
        _check_lengths(record.place, len(ids), {"logprobs": given})
        own = [entry.get(str(token)) for token, entry in zip(ids, given, strict=True)]
        logprobs = [entry.get("logprob") if isinstance(entry, dict) else entry for entry in own]
        yield {
            **shared,
            "response": output["text"],
            "prompt_ids": values["prompt_token_ids"],
            "completion_ids": ids,
            "logprobs": logprobs if None not in logprobs else None,
            "sample": output.get("index", number),
            "finish_reason": output.get("finish_reason"),
        }


def choice_tokens(place: str, body: Mapping[str, Any], choice: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ids of a choice of vLLM's server (`return_token_ids`) with their log-probabilities; else nothing."""
    ids, prompt_ids = choice.get("token_ids"), body.get("prompt_token_ids") or choice.get("prompt_token_ids")
    if not ids or not prompt_ids:
        return {}
    content = at_place(choice, "logprobs.content") or []
    known = [entry.get("logprob") for entry in content] or at_place(choice, "logprobs.token_logprobs") or []
    logprobs = known if len(known) == len(ids) else None
    return {"prompt_ids": prompt_ids, "completion_ids": ids, "logprobs": logprobs, "token_logprobs": None}


def trajectory_tokens(steps: Any, place: str) -> dict[str, Any]:
    """Return the ids of a trajectory of verifiers v0, each of whose prompts has all that stands before it.

    Nothing where a step lacks ids. Where a prompt does not begin with the ids of the step before, as of a chat template
    that leaves something out, no one sequence has what the model read: the ids are not kept, which is said.
    """
    ids: list[int] = []
    mask: list[int] = []
    logprobs: list[float | None] = []
    for step in steps or ():
        tokens = step.get("tokens") or {}
        prompt, written = tokens.get("prompt_ids") or [], tokens.get("completion_ids") or []
        if not prompt or not written:
            return {}
        if prompt[: len(ids)] != ids:
            return {"not_kept": {"token ids of calls whose prompts do not go on from the call before": len(steps)}}
        given = len(prompt) - len(ids)
        ids = [*prompt, *written]
        mask += [0] * given + (tokens.get("completion_mask") or [1] * len(written))
        logprobs += [None] * given + (tokens.get("completion_logprobs") or [None] * len(written))
    return masked_fields(ids, mask, logprobs, place) if any(mask) else {}


_COLUMNS = ("loss_mask", "inference_logprobs", "trainer_logprobs", "entropy", "advantages", "rewards", "temperatures")
"""Of prime-rl's token export: lists with a value for each of `token_ids`."""


def convert_token_export(record: FileRecord, path: Path) -> Iterator[dict[str, Any]]:
    """Yield the fields of a sequence that prime-rl's trainer exported: ids alone, without a text or a problem's id."""
    values = dict(record.values)
    ids, mask = values.pop("token_ids"), values["loss_mask"]
    columns = {name: values[name] for name in _COLUMNS if isinstance(values.get(name), list)}
    _check_lengths(record.place, len(ids), columns)
    logprobs = values.pop("inference_logprobs", None) or [None] * len(ids)
    rewards = columns.get("rewards")
    yield {
        **values,
        **masked_fields(ids, mask, logprobs, record.place),
        "reward": values.get("reward") if rewards is None else rewards[mask.index(True)],
    }


def convert_trace(record: FileRecord, path: Path) -> Iterator[dict[str, Any]]:
    """Yield the fields of a rollout of open-instruct's `--save_traces`.

    It does not say which tokens its tools wrote: a rollout that called some is left out, unless it has a `tool_mask`.
    """
    values = dict(record.values)
    prompt, written = values.pop("prompt_tokens"), values.pop("response_tokens")
    mask, calls = values.get("tool_mask"), at_place(values, "request_info.num_calls")
    if not written:
        raise NoResponseError(f"{record.place} has no response_tokens")
    if mask is None and calls:
        raise NoResponseError(f"{record.place} called tools, and nothing says which of its tokens they wrote")
    sampled = [1] * len(written) if mask is None else mask
    logprobs = values.pop("logprobs", None) or [None] * len(written)
    _check_lengths(record.place, len(written), {"tool_mask": sampled, "logprobs": logprobs})
    # The right answer may be ids, which say nothing here.
    gold = values.get("ground_truth")
    gold = gold[0] if isinstance(gold, list) and len(gold) == 1 else gold
    yield {
        **values,
        **masked_fields(
            [*prompt, *written], [*[0] * len(prompt), *sampled], [*[None] * len(prompt), *logprobs], record.place
        ),
        "gold": gold if isinstance(gold, str) else None,
        "label": _model_name(path),
    }


@cache
def _model_name(path: Path) -> str | None:
    """Return the model that the file of metadata beside open-instruct's rollouts names, if there is one."""
    beside = path.parent / f"{path.name.rpartition('_rollouts_')[0]}_metadata.jsonl"
    try:
        metadata = parse_json(regular_file(beside).read_text(encoding="utf-8").splitlines()[0])
    except (OSError, ValueError, IndexError, ArtifactError):
        return None
    name: str | None = metadata.get("model_name_or_path", metadata.get("model_name"))
    return name


def _check_lengths(place: str, num: int, columns: Mapping[str, Sequence[Any]]) -> None:
    for name, column in columns.items():
        if len(column) != num:
            raise ArtifactError(f"{place}: {name} has {len(column)} values for {num} token ids")
