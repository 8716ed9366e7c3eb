"""Conversations of other programs: one record of a message with its tokens, from which the fields of a response come.

A reader of a layout makes a `Turn` of each message (`read_turn`) and yields `conversation_fields` of them; the layout's
table of names has `CONVERSATION`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from swerve.artifacts.messages import read_message
from swerve.errors import ArtifactError, NoResponseError
from swerve.formats.typed_fields import Names, shown

_READ = (
    "prompt messages problem response turns prompt_ids completion_ids sampled logprobs parts id gold alternatives "
    "correct reward extracted sample step label finish_reason"
)
CONVERSATION: Names = {name: (name,) for name in _READ.split()}
"""Names under which a reader of conversations yields what is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A message of a conversation and what is known of its tokens."""

    message: Mapping[str, Any]
    """As in `artifacts.messages`."""
    sampled: bool
    """Whether the model wrote it."""
    token_ids: Sequence[int] = ()
    """Ids that it adds to the conversation, the template's before it included; empty: not known."""
    mask: Sequence[bool] = ()
    """Of each id, whether the model sampled it; empty: all or none, as `sampled` says."""
    logprobs: Sequence[float | None] = ()
    """Of each id, nats, None where it was not sampled; empty: not known."""
    dropped: Sequence[str] = ()
    """Types of the parts of its content that are not text, such as images."""


def read_turn(value: Any, place: str, *, sampled: bool | None = None, **tokens: Any) -> Turn:
    """Return a message as OpenAI, Inspect, verifiers or TRL write it.

    Args:
        value: `{role, content, ...}` or `[role, text]`; the content is a text, null, or a list of parts.
        place: where it is, for messages.
        sampled: whether the model wrote it; None: if its role is `assistant`.
        tokens: what is known of its tokens, fields of `Turn`.

    Raises:
        ArtifactError: it is not a message.

    >>> read_turn({"role": "user", "content": [{"type": "text", "text": "2"}, {"type": "image"}]}, "line 1").dropped
    ['image']
    """
    given = dict(zip(("role", "content"), value, strict=False)) if isinstance(value, list) else value
    if not isinstance(given, dict) or not isinstance(given.get("role"), str):
        raise ArtifactError(f"{place} must be a list of messages {{role, content}}, got {shown(value)}")
    try:
        message, dropped = read_message(given)
    except ValueError as error:
        raise ArtifactError(f"{place}: {error}") from None
    is_sampled = message["role"] == "assistant" if sampled is None else sampled
    return Turn(message=message, sampled=is_sampled, dropped=dropped, **tokens)


def read_turns(value: Any, place: str) -> list[Turn]:
    """Return a list of messages as turns; see `read_turn`."""
    if not isinstance(value, list) or not value:
        raise ArtifactError(f"{place} must be a list of messages {{role, content}}, got {shown(value)}")
    return [read_turn(message, place) for message in value]


def prompt_and_completion(prompt: Any, completion: Any, place: str) -> dict[str, Any]:
    """Return the fields of a record whose prompt and completion are a text or a list of messages each."""
    asked = read_turns(prompt, place) if isinstance(prompt, list) else []
    written = [["assistant", completion]] if isinstance(completion, str) else completion
    answer = read_turns(written, f"{place}: completion")
    fields = conversation_fields([*(replace(turn, sampled=False) for turn in asked), *answer], place)
    return {**fields, "prompt": prompt if isinstance(prompt, str) else None}


def conversation_fields(turns: Sequence[Turn], place: str) -> dict[str, Any]:
    """Return what is read of a conversation under the names of `CONVERSATION`, and what stays beside it.

    The prompt is all before the first message that the model wrote, the response all from there to its last one.

    Raises:
        NoResponseError: the model wrote none.
    """
    written = [number for number, turn in enumerate(turns) if turn.sampled]
    if not written:
        raise NoResponseError(f"{place} has no message that the model wrote")
    start, end = written[0], written[-1] + 1
    prompt, answer, later = turns[:start], turns[start:end], turns[end:]
    texts = [turn.message["content"] for turn in answer if turn.sampled]
    is_one_text = len(answer) == 1 and answer[0].message.keys() == {"role", "content"}
    # What the table has no room for: parts of messages, and of the prompt all but role and text.
    lost = [f"{name} of a prompt" for turn in prompt for name in turn.message if name not in ("role", "content")]
    dropped = [kind for turn in turns for kind in turn.dropped]
    return {
        "messages": [[turn.message["role"], turn.message["content"]] for turn in prompt] or None,
        "response": "\n\n".join(filter(None, texts)),
        "turns": None if is_one_text else [_of_response(turn) for turn in answer],
        "later_messages": [[turn.message["role"], turn.message["content"]] for turn in later] or None,
        "not_kept": dict(Counter([*dropped, *lost])) or None,
        **_token_fields(prompt, answer, place),
    }


def _of_response(turn: Turn) -> Mapping[str, Any]:
    """Return a turn's message, which says where it has the model's role and the model did not write it."""
    is_given = turn.message["role"] == "assistant" and not turn.sampled
    return {**turn.message, "given": True} if is_given else turn.message


def _token_fields(prompt: Sequence[Turn], answer: Sequence[Turn], place: str) -> dict[str, Any]:
    """Return the ids of prompt and response with their mask and log-probabilities; nothing where they lack some."""
    if not all(turn.token_ids for turn in answer if turn.sampled):
        return dict.fromkeys(("prompt_ids", "completion_ids", "sampled", "logprobs"))
    ids = [token for turn in prompt for token in turn.token_ids]
    mask = [False] * len(ids)
    logprobs: list[float | None] = [None] * len(ids)
    for turn in answer:
        ids += turn.token_ids
        mask += turn.mask or [turn.sampled] * len(turn.token_ids)
        logprobs += turn.logprobs or [None] * len(turn.token_ids)
    return masked_fields(ids, mask, logprobs, place)


def masked_fields(
    ids: Sequence[int], mask: Iterable[int], logprobs: Sequence[float | None], place: str
) -> dict[str, Any]:
    """Return prompt and response of a sequence of tokens with a mask of those that the model sampled.

    What stands before the first of them is the prompt; what stands after the last is cut. The log-probabilities of the
    others are not read: programs write 0 there.

    Raises:
        NoResponseError: the model sampled none.
    """
    sampled = [bool(own) for own in mask]
    if True not in sampled:
        raise NoResponseError(f"{place} has no token that the model sampled")
    start, end = sampled.index(True), len(sampled) - sampled[::-1].index(True)
    known = [logprob if own else None for logprob, own in zip(logprobs, sampled, strict=True)][start:end]
    return {
        "prompt_ids": ids[:start],
        "completion_ids": ids[start:end],
        "sampled": None if all(sampled[start:end]) else sampled[start:end],
        "logprobs": None if known.count(None) == len(known) else known,
    }
