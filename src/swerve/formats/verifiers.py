"""What verifiers writes: rollouts as lists of messages (v0), and traces, which are graphs of messages (v1).

v1 has one trace a line, or an episode of several traces. A sampled message that nothing sampled follows ends a
response, so that a trace of several branches gives several.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from swerve.errors import ArtifactError, NoResponseError
from swerve.formats.conversations import Turn, conversation_fields, prompt_and_completion, read_turn
from swerve.formats.records import FileRecord
from swerve.formats.token_layouts import trajectory_tokens
from swerve.formats.typed_fields import at_place

_ID = ("task.data.id?", "task.key?", "task.data.idx?", "task.data.name?")


def convert_rollout(record: FileRecord, path: Path) -> Iterator[dict[str, Any]]:
    """Yield the fields of a rollout of v0; its metrics stand in it twice."""
    values, error = record.values, record.values.get("error")
    if error:
        said = error.get("error_chain_str") if isinstance(error, dict) else error
        raise NoResponseError(f"{record.place}: the rollout failed: {said}")
    parts = values.get("metrics") or {}
    yield {
        **{name: value for name, value in values.items() if name not in ("metrics", "completion", *parts)},
        **prompt_and_completion(values["prompt"], values["completion"], record.place),
        **trajectory_tokens(values.get("trajectory"), record.place),
        "parts": parts,
        "finish_reason": "length" if values.get("is_truncated") else None,
    }


def convert_trace(record: FileRecord, path: Path) -> Iterator[dict[str, Any]]:
    """Yield the fields of each branch of each trace of an episode, or of the one trace that a line is."""
    values = record.values
    episode = {name: value for name, value in values.items() if name != "traces"}
    asked, errors = None, []
    for trace in values.get("traces") or [values]:
        try:
            for number, fields in enumerate(_branches({**episode, **trace}, record.place)):
                # What is asked otherwise than at first, as after a compaction or by another agent, is another problem.
                asked = asked or fields["messages"]
                own = "" if fields["messages"] == asked else f"#{trace.get('id')}-{number}"
                yield {**fields, "id": f"{fields['id']}{own}"}
        except NoResponseError as error:
            errors.append(error)
    if errors:
        raise errors[0]


def _branches(trace: Mapping[str, Any], place: str) -> Iterator[dict[str, Any]]:
    """Yield the fields of each branch of a trace."""
    nodes, errors = trace.get("nodes") or [], trace.get("errors")
    if errors and not trace.get("ok", trace.get("rewards")):  # it is ok after a second attempt
        raise NoResponseError(f"{place}: the rollout failed: {errors[-1].get('message')}")
    # The nodes from a root to each.
    paths: list[list[int]] = []
    for number, node in enumerate(nodes):
        parent = node.get("parent")
        if parent is not None and not 0 <= parent < number:
            raise ValueError(f"node {number} has the parent {parent}")
        paths.append([number] if parent is None else [*paths[parent], number])
    # A sampled node that no path to another one has is an end; what stands after it was not sampled.
    sampled = [number for number, node in enumerate(nodes) if node.get("sampled")]
    passed = {before for number in sampled for before in paths[number][:-1]}
    ends = [number for number in sampled if number not in passed]
    if not ends:
        raise NoResponseError(f"{place}: the trace has no message that the model wrote")

    # What all branches share. Rewards are numbers that are weighed already, or scores with their weights.
    rewards = {name: reward for name, reward in (trace.get("rewards") or {}).items() if reward is not None}
    scores = [reward if isinstance(reward, dict) else {"score": reward, "weight": 1.0} for reward in rewards.values()]
    parts = {name: score["score"] for name, score in zip(rewards, scores, strict=True)}
    shared = {
        **{name: value for name, value in trace.items() if name not in ("nodes", "calls", "rewards")},
        "parts": parts,
        "reward": sum(score["score"] * score["weight"] for score in scores) if scores else None,
        "id": next((value for place in _ID if (value := at_place(trace, place)) is not None), None),
    }
    calls = {call.get("node"): call for call in trace.get("calls") or ()}
    for number, end in enumerate(ends):
        call = calls.get(end, {})
        path = [path for path in paths if end in path][-1]
        yield {
            **shared,
            **conversation_fields([_turn(nodes[index], place) for index in path], place),
            "label": call.get("model"),
            "finish_reason": call.get("finish_reason"),
            "trace_branch": number if len(ends) > 1 else None,
        }


def _turn(node: Mapping[str, Any], place: str) -> Turn:
    """Return a node as a turn; it has a log-probability for each id that was sampled."""
    ids, mask, own = (node.get(name) or [] for name in ("token_ids", "mask", "logprobs"))
    if len(mask or ids) != len(ids) or (own and len(own) != sum(mask)):
        raise ArtifactError(
            f"{place}: a node has {len(ids)} token ids, a mask of {len(mask)} with {sum(mask)} of the model, and "
            f"{len(own)} log-probabilities; these must fit"
        )
    known = iter(own)
    logprobs = [next(known) if is_sampled else None for is_sampled in mask] if own else []
    sampled = bool(node.get("sampled"))
    return read_turn(node.get("message"), place, sampled=sampled, token_ids=ids, mask=mask, logprobs=logprobs)
