"""Chat templates: what they are given, what they write around messages, and what ends an assistant's turn."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from swerve.config.models import ModelConfig
from swerve.errors import ConfigError, nearest
from swerve.grading.thinking import is_thinking_mark
from swerve.sandbox.bounded import BoundedCallError, call_each
from swerve.sandbox.limits import shared_limits
from swerve.tokens import CUT, as_text, tokenize
from swerve.types import Message, Problem

_NOW = "strftime_now"
"""What chat templates call for the date."""
_DIRECTIVES = "aAbBcdeHIjmMpSuUwWxXyYZ"


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateArguments:
    """What a chat template is given beside the messages."""

    values: Mapping[str, Any] = field(default_factory=dict)
    """Arguments by name, such as `enable_thinking`."""
    today: date = date(2024, 7, 26)
    """The date that a template which prints today's is told, so that prompts are the same every day."""

    def options(self, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
        """Return keywords of `apply_chat_template`: the arguments, and a template that is told the date."""
        template = tokenizer.chat_template
        if not isinstance(template, str) or _NOW not in template:
            return dict(self.values)
        names = [f"%{letter}" for letter in (*_DIRECTIVES, "-d", "-m", "-j")]
        replaced = "".join(f"|replace({name!r}, {self.today.strftime(name)!r})" for name in names)
        # Functions do not get past `apply_chat_template`; the empty text keeps a line break that follows.
        macro = f"{{% macro {_NOW}(format) %}}{{{{ format{replaced} }}}}{{% endmacro %}}{{{{ '' }}}}"
        return {"chat_template": macro + template, **self.values}


NO_ARGUMENTS = TemplateArguments()


def template_arguments(model: ModelConfig) -> TemplateArguments:
    """Return what a recipe gives its model's chat template."""
    if model.kind == "tiny":
        return NO_ARGUMENTS
    return TemplateArguments(values=model.template_args, today=model.today)


def check_template_arguments(tokenizer: PreTrainedTokenizerBase, arguments: TemplateArguments) -> None:
    """Check that the tokenizer's chat template reads the arguments by their names.

    Raises:
        ConfigError: it does not, or there is no template.
    """
    template = tokenizer.chat_template
    if arguments.values and not template:
        raise ConfigError(
            f"the tokenizer of {source_of(tokenizer)} has no chat template, so it takes no template arguments "
            f"({', '.join(arguments.values)}); leave them out, or give a model with a chat template"
        )
    words = set(re.findall(r"[A-Za-z_]\w*", str(template)))
    taken = {"messages", _NOW, *inspect.signature(type(tokenizer).apply_chat_template).parameters}
    for name in arguments.values:
        if name in taken or name not in words:
            raise ConfigError(
                f"the chat template of {source_of(tokenizer)} takes no argument {name!r}{nearest(name, words - taken)}"
            )


def source_of(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return what messages call the tokenizer's place: its folder or name, where it has one."""
    return tokenizer.name_or_path or "the model"


JSON_CUT = json.dumps(CUT).strip('"')


def applied(
    tokenizer: PreTrainedTokenizerBase,
    arguments: TemplateArguments,
    messages: Sequence[Message | Mapping[str, Any]],
    *,
    add_generation_prompt: bool,
) -> str:
    """Return what the template makes of messages.

    Raises:
        TemplateError: it refuses them.
    """
    untyped: Any = tokenizer
    named = [
        message if isinstance(message, Mapping) else dict(zip(("role", "content"), message, strict=True))
        for message in messages
    ]
    options = {"add_generation_prompt": add_generation_prompt, "tokenize": False, **arguments.options(tokenizer)}
    return str(untyped.apply_chat_template(named, **options)).replace(JSON_CUT, CUT)  # of a template that writes JSON


def rendered(
    tokenizer: PreTrainedTokenizerBase,
    arguments: TemplateArguments,
    messages: Sequence[Message | Mapping[str, Any]],
    *,
    add_generation_prompt: bool = True,
) -> str:
    """Return what the template makes of messages; empty where it refuses them."""
    try:
        return applied(tokenizer, arguments, messages, add_generation_prompt=add_generation_prompt)
    except TemplateError:
        return ""


_THOUGHT = ("<think>\n", "\n</think>\n\n")


@dataclass(frozen=True, slots=True)
class TurnMarks:
    """What a chat template writes around an assistant's text."""

    after: tuple[int, ...] = ()
    """Tokens after the text of a conversation's last turn."""
    begun: str = ""
    """What a prompt already has of the answer, such as `<think>`."""
    gap: str = ""
    """White space between a prompt and the text, where the prompt does not end with it."""
    thought: tuple[str, str] = _THOUGHT
    """What stands before a thought, and between it and the text after it."""

    def unrepeated(self, text: str, prefix: str = "") -> str:
        """Return a text without what its prompt, which has the prefix as well, already ends with."""
        asked = self.unrepeated(prefix) if prefix else ""
        for begun in (self.begun + asked, prefix):
            mark, rest = begun.strip(), text.lstrip()
            if mark and rest.startswith(mark):
                return rest.removeprefix(mark).removeprefix(begun[len(begun.rstrip()) :])
        return text


_TURN = "_turn_of_its_template"
_USER, _ASSISTANT, _NEXT = "c2d0a9", "7be41f", "e90d35"
"""Texts that no template has of its own."""


def turn_of(tokenizer: PreTrainedTokenizerBase, arguments: TemplateArguments = NO_ARGUMENTS) -> TurnMarks:
    """Return what the chat template writes around an assistant's text, as it renders two conversations.

    A template that fails or takes no such conversations says nothing: what it does to a prompt is said there.
    """
    if not tokenizer.chat_template:
        return TurnMarks()
    key = (tokenizer.chat_template, arguments)
    known = getattr(tokenizer, _TURN, None)
    if known is None or known[0] != key:
        try:
            ((after, begun, gap, thought),) = call_each(partial(_turn, tokenizer), [arguments], shared_limits())
            known = key, TurnMarks(tuple(after), begun, gap, tuple(thought) or _THOUGHT)
        except BoundedCallError:
            known = key, TurnMarks()
        setattr(tokenizer, _TURN, known)
    return known[1]


def _turn(tokenizer: PreTrainedTokenizerBase, arguments: TemplateArguments) -> tuple[list[int], str, str, list[str]]:
    """Return the fields of `TurnMarks`; of the thought none where the template leaves it out."""
    asked = [("user", _USER), ("assistant", _ASSISTANT)]
    last = rendered(tokenizer, arguments, asked, add_generation_prompt=False)
    prompt = rendered(tokenizer, arguments, asked[:1]).rpartition(_USER)[2]
    # An earlier turn has the bare header; some templates write an empty thought into the last one.
    _, _, after_user = rendered(tokenizer, arguments, [*asked, ("user", _NEXT)]).partition(_USER)
    header, has_text, _ = after_user.partition(_ASSISTANT)
    begun = prompt.removeprefix(header) if has_text and prompt.startswith(header) else ""
    gap = header.removeprefix(prompt) if has_text and header.startswith(prompt) else ""
    _, has_text, after = last.rpartition(_ASSISTANT)
    after_ids = tokenize(tokenizer, after, special=False).ids if has_text else []
    # A thought stands between the header and the text.
    reasoned = {"role": "assistant", "content": _ASSISTANT, "reasoning_content": _NEXT}
    before, _, said = rendered(tokenizer, arguments, [asked[0], reasoned], add_generation_prompt=False).partition(_NEXT)
    own = before.rpartition(_USER)[2]
    between, has_text, _ = said.partition(_ASSISTANT)
    start = prompt.removesuffix(begun)
    thought = [own.removeprefix(start), between] if has_text and own.startswith(start) else []
    return after_ids, begun, "" if gap.strip() else gap, thought


def turn_end(
    tokenizer: PreTrainedTokenizerBase,
    arguments: TemplateArguments = NO_ARGUMENTS,
    stop_ids: Collection[int] = (),
) -> int | None:
    """Return the token that the template ends an assistant's turn with; None without a template or such a token.

    It is the first after the text that is special to the tokenizer or one of `stop_ids`.
    """
    special = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    return next((token for token in turn_of(tokenizer, arguments).after if token in special | set(stop_ids)), None)


def completion_end(tokenizer: PreTrainedTokenizerBase, arguments: TemplateArguments, stop_ids: Collection[int]) -> int:
    """Return the token that a supervised completion ends with: `turn_end`, else the end-of-sequence token.

    Raises:
        ConfigError: the tokenizer has none.
    """
    end = turn_end(tokenizer, arguments, stop_ids)
    return end_token(tokenizer) if end is None else end


def end_token(tokenizer: PreTrainedTokenizerBase) -> int:
    """Return the token that ends a sequence.

    Raises:
        ConfigError: the tokenizer has none.
    """
    if tokenizer.eos_token_id is None:
        raise ConfigError(
            "the model's tokenizer has no end-of-sequence token; set eos_token in its tokenizer_config.json"
        )
    return int(tokenizer.eos_token_id)


def thinking_marks(tokenizer: PreTrainedTokenizerBase) -> set[str]:
    """Return the special tokens that mark thinking and that the chat template writes."""
    marks = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
    return {mark for mark in marks if is_thinking_mark(mark) and mark in str(tokenizer.chat_template)}


def as_response(tokenizer: PreTrainedTokenizerBase, text: str, ends: Collection[str] = ()) -> str:
    """Return a response's text with cuts in special tokens' texts, but for the marks of thinking and ends at its end.

    Args:
        tokenizer: of the model that reads it.
        text: the response.
        ends: texts of tokens that end a response, beside the end-of-sequence token.
    """
    marks = [end for end in (*ends, tokenizer.eos_token) if end]
    said = text.rstrip()
    while mark := next((mark for mark in marks if said.endswith(mark)), None):
        said = said.removesuffix(mark).rstrip()
    return as_text(tokenizer, said, thinking_marks(tokenizer)) + text[len(said) :]


def with_thought(tokenizer: PreTrainedTokenizerBase, message: Mapping[str, Any], arguments: TemplateArguments) -> str:
    """Return a thought and a text that are kept apart as one text, with the marks that the chat template writes.

    Where it writes none, and where it leaves reasoning out, they are those of DeepSeek-R1. A thought without a text
    stays open.
    """
    before, between = turn_of(tokenizer, arguments).thought
    said = message["content"]
    return f"{before}{message['reasoning_content']}{between if said else ''}{said}"


def with_beginnings(
    tokenizer: PreTrainedTokenizerBase, problems: Sequence[Problem], arguments: TemplateArguments = NO_ARGUMENTS
) -> list[Problem]:
    """Return problems that say what the chat template's prompt already has of the answer; see `Problem.begun`."""
    begun = turn_of(tokenizer, arguments).begun if problems else ""
    return [replace(problem, begun=begun) for problem in problems]
