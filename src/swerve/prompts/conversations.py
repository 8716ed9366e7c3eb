"""Conversations of several turns as pieces of text: what the model was given, what it wrote, what answered it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from swerve.artifacts.files import parse_json
from swerve.artifacts.messages import is_written
from swerve.prompts.encode import cut_messages, each_bounded, prompt_failed
from swerve.prompts.templates import JSON_CUT, NO_ARGUMENTS, TemplateArguments, applied, as_response, turn_end
from swerve.sandbox.bounded import BoundedCallError
from swerve.tokens import CUT, as_text, decoded
from swerve.types import Problem


def conversation_pieces(
    tokenizer: PreTrainedTokenizerBase,
    conversations: Sequence[tuple[Problem, Sequence[Mapping[str, Any]]]],
    arguments: TemplateArguments = NO_ARGUMENTS,
) -> list[list[str] | str]:
    """Return texts of conversations in pieces: the prompt, what the model wrote, what answered it, and so on in turn.

    What the model wrote in a turn is what the chat template's prompt of its next turn adds to the prompt of this one,
    up to the token that ends a turn; of its last turn the text, without an end. Tools are not described. Without a chat
    template texts are joined by empty lines.

    Args:
        tokenizer: of the model that reads them; a chat template is left out where it has none.
        conversations: each a problem and the messages after its prompt (`Response.turns`), the last one the model's.
        arguments: of the chat template.

    Returns:
        Of each conversation an even number of pieces, with cuts (`tokens.CUT`) in the texts of special tokens that the
        messages hold; a text that says why where the template's prompts do not hold all
        that the model read and wrote, such as of a template that drops the reasoning of earlier turns.

    Raises:
        ConfigError: the template reaches a limit of time or memory, or fails.
    """
    end = turn_end(tokenizer, arguments)
    split = partial(_pieces, tokenizer, arguments, "" if end is None else decoded(tokenizer, [end]))
    lengths = [sum(len(str(message)) for message in turns) for _, turns in conversations]
    problems = [problem for problem, _ in conversations]
    try:
        return each_bounded(tokenizer, split, conversations, lengths)
    except BoundedCallError as error:
        raise prompt_failed(tokenizer, arguments, problems[: error.number + 1], error) from None


def _pieces(
    tokenizer: PreTrainedTokenizerBase,
    arguments: TemplateArguments,
    end: str,
    conversation: tuple[Problem, Sequence[Mapping[str, Any]]],
) -> list[str] | str:
    """Return the pieces of one conversation, or why it has none; `end` is what ends a turn, where something does."""
    problem, turns = conversation[0], [_cut_turn(tokenizer, turn, end) for turn in conversation[1]]
    asked = [{"role": role, "content": content} for role, content in cut_messages(tokenizer, problem)]
    messages: list[Mapping[str, Any]] = [*asked, *map(_for_template, turns)]
    written = [len(asked) + number for number, message in enumerate(turns) if is_written(message)]

    def rendered(number: int, **options: bool) -> str:
        if not tokenizer.chat_template:
            texts = [str(message["content"]) for message in messages[:number]]
            return "\n\n".join([*texts, ""] if options["add_generation_prompt"] else texts)
        return applied(tokenizer, arguments, messages[:number], **options)

    # The prompt of each turn, the whole, and each turn without what follows where no token ends it.
    try:
        before = [rendered(number, add_generation_prompt=True) for number in written]
        whole = rendered(len(messages), add_generation_prompt=False)
        until = before if end else [rendered(number + 1, add_generation_prompt=False) for number in written]
    except TemplateError as error:
        return f"the chat template refuses its messages ({error})"

    # Each turn is the beginning of what the next prompt adds; the last one is a text, unless it is more than that.
    pieces = [before[0]]
    for number, prompt, own, after in zip(written, before, until, [*before[1:], whole], strict=True):
        message = turns[number - len(asked)]
        is_last = number == written[-1]
        said, found, rest = after.removeprefix(prompt).partition(end) if end else (own.removeprefix(prompt), "", "")
        if is_last and message.keys() == {"role", "content"}:
            said = message["content"]
        elif not (after.startswith(prompt) and after.startswith(own)):
            return "the chat template's prompt of a later turn does not go on from that of an earlier one"
        told = [message["content"], message.get("reasoning_content", ""), message.get("refusal", "")]
        called = (text for call in message.get("tool_calls", ()) for text in _called(call))
        if not all(any(form in said for form in _written_forms(str(text))) for text in (*told, *called)):
            return "the chat template, or none, leaves out what the model wrote: reasoning, calls of tools or a refusal"
        pieces += [said] if is_last else [said + found, rest if end else after.removeprefix(own)]
    return pieces


def _called(call: Mapping[str, Any]) -> Iterator[str]:
    """Yield the name of a call of a tool, and the names and values of its arguments."""
    yield call["name"]
    waiting = [_arguments(call)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield from value
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
        elif not isinstance(value, bool) and value is not None:  # which are written in several ways
            yield str(value)


def _written_forms(text: str) -> tuple[str, ...]:
    """Return a text as it is, and as JSON writes it with and without letters beyond ASCII."""
    text = text.strip()
    return text, json.dumps(text)[1:-1].replace(JSON_CUT, CUT), json.dumps(text, ensure_ascii=False)[1:-1]


def _arguments(call: Mapping[str, Any]) -> Any:
    """Return the arguments of a call of a tool as an object; as the model wrote them where they are no JSON."""
    try:
        return parse_json(call["arguments"])
    except ValueError:
        return call["arguments"]


def _cut_turn(tokenizer: PreTrainedTokenizerBase, message: Mapping[str, Any], end: str) -> dict[str, Any]:
    """Return a message whose special tokens' texts are cut; those of an assistant as `as_response` says."""
    is_own = is_written(message)
    cut: dict[str, Any] = dict(message)
    for name in ("content", "reasoning_content"):
        if isinstance(text := message.get(name), str):
            cut[name] = as_response(tokenizer, text, [end]) if is_own else as_text(tokenizer, text)
    if calls := message.get("tool_calls"):
        cut["tool_calls"] = [
            {**call, **{name: as_text(tokenizer, call[name]) for name in ("name", "arguments")}} for call in calls
        ]
    return cut


def _for_template(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message of `Response.turns` as chat templates take it: arguments of tools as objects."""
    calls = [
        {"type": "function", "id": call.get("id"), "function": {"name": call["name"], "arguments": _arguments(call)}}
        for call in message.get("tool_calls", ())
    ]
    said = "\n".join(filter(None, [message["content"], message.get("refusal")]))
    others = {name: value for name, value in message.items() if name not in ("tool_calls", "refusal")}
    return {**others, "content": said, **({"tool_calls": calls} if calls else {})}
