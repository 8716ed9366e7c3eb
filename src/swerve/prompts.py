"""Turn problems into token ids; the only place that calls a chat template.

Templates and tokenizers come with a model and can take any time and memory, or end the process: they work in a copy of
it, under the graders' limits. A tokenizer that only looks words up needs none of that.
"""

from __future__ import annotations

import inspect
import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import date
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from jinja2 import TemplateError
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerBase

from swerve.artifacts.files import parse_json
from swerve.artifacts.messages import is_written
from swerve.config.models import ModelConfig
from swerve.errors import ConfigError, nearest
from swerve.grading.thinking import is_thinking_mark
from swerve.sandbox.bounded import BoundedCallError, call_each
from swerve.sandbox.limits import shared_limits
from swerve.text import counted
from swerve.tokens import (
    CUT,
    Tokens,
    as_text,
    concatenates,
    decoded,
    has_unknown,
    special_texts,
    tokenize,
    tokens_after,
    uncut,
    with_end,
)
from swerve.types import Message, Problem, Prompt

_NOW = "strftime_now"
"""What chat templates call for the date."""
_DIRECTIVES = "aAbBcdeHIjmMpSuUwWxXyYZ"
_Item = TypeVar("_Item")


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


_NO_ARGUMENTS = TemplateArguments()


def template_arguments(model: ModelConfig) -> TemplateArguments:
    """Return what a recipe gives its model's chat template."""
    if model.kind == "tiny":
        return _NO_ARGUMENTS
    return TemplateArguments(values=model.template_args, today=model.today)


_NUM_IDS = "_num_ids_of_its_model"


def num_ids(tokenizer: PreTrainedTokenizerBase) -> int:
    """Return how many ids a tokenizer has, added tokens included: the largest and those below it."""
    return 1 + max(tokenizer.get_vocab().values(), default=-1)


def limit_ids(tokenizer: PreTrainedTokenizerBase, num_embeddings: int) -> None:
    """Note how many ids the tokenizer's model can read: a text with a larger one is refused when it is encoded."""
    setattr(tokenizer, _NUM_IDS, num_embeddings)


def check_template_arguments(tokenizer: PreTrainedTokenizerBase, arguments: TemplateArguments) -> None:
    """Check that the tokenizer's chat template reads the arguments by their names.

    Raises:
        ConfigError: it does not, or there is no template.
    """
    template = tokenizer.chat_template
    if arguments.values and not template:
        raise ConfigError(
            f"the tokenizer of {_source(tokenizer)} has no chat template, so it takes no template arguments "
            f"({', '.join(arguments.values)}); leave them out, or give a model with a chat template"
        )
    words = set(re.findall(r"[A-Za-z_]\w*", str(template)))
    taken = {"messages", _NOW, *inspect.signature(type(tokenizer).apply_chat_template).parameters}
    for name in arguments.values:
        if name in taken or name not in words:
            raise ConfigError(
                f"the chat template of {_source(tokenizer)} takes no argument {name!r}{nearest(name, words - taken)}"
            )


def encode_prompts(
    tokenizer: PreTrainedTokenizerBase, problems: Sequence[Problem], arguments: TemplateArguments = _NO_ARGUMENTS
) -> list[Prompt]:
    """Return each problem's messages and prefix as token ids, by the tokenizer's chat template where it has one.

    A chat template that refuses a system message is given that message's text at the beginning of the user's. Without a
    chat template the messages' texts and the prefix are joined by empty lines. What the tokenizer adds after a text,
    such as an end token, is no part of a prompt, and a prefix that the template's own prompt ends with stands once. The
    problem of a prompt says what the template began of the answer (`begun`).

    What the template writes is special, what the messages say is text: special tokens' texts in them become no special
    tokens, and the template does not see them as such. Where an assistant's message is given, the marks of thinking
    that the template writes stay what they are.

    Args:
        tokenizer: of the model that reads them.
        problems: to be read.
        arguments: of the chat template.

    Raises:
        ConfigError: the tokenizer has no token for a word of the question, or its chat template refuses the messages;
            one of the two reaches a limit of time or memory, or fails; a prompt has no tokens.
    """
    turn = turn_of(tokenizer, arguments) if problems else Turn()
    try:
        question = partial(_encode_question, tokenizer, arguments, turn)
        encoded = _each_bounded(tokenizer, question, problems, _lengths(problems))
    except BoundedCallError as error:
        raise _failed(tokenizer, arguments, problems[: error.number + 1], error) from None

    # A completion's first token is predicted at the prompt's last one.
    for problem, ids in zip(problems, encoded, strict=True):
        if not ids:
            raise ConfigError(
                f"the prompt of problem {problem.id!r} has no tokens by the tokenizer of {_source(tokenizer)}, and a "
                "completion needs a token before it; give text in task.prompt.template, or a model with a begin token "
                "or another chat template"
            )
    read = with_beginnings(tokenizer, problems, arguments)
    return [Prompt(problem=problem, token_ids=tuple(ids)) for problem, ids in zip(read, encoded, strict=True)]


_JSON_CUT = json.dumps(CUT).strip('"')


def conversation_pieces(
    tokenizer: PreTrainedTokenizerBase,
    conversations: Sequence[tuple[Problem, Sequence[Mapping[str, Any]]]],
    arguments: TemplateArguments = _NO_ARGUMENTS,
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
        return _each_bounded(tokenizer, split, conversations, lengths)
    except BoundedCallError as error:
        raise _failed(tokenizer, arguments, problems[: error.number + 1], error) from None


def _pieces(
    tokenizer: PreTrainedTokenizerBase,
    arguments: TemplateArguments,
    end: str,
    conversation: tuple[Problem, Sequence[Mapping[str, Any]]],
) -> list[str] | str:
    """Return the pieces of one conversation, or why it has none; `end` is what ends a turn, where something does."""
    problem, turns = conversation[0], [_cut_turn(tokenizer, turn, end) for turn in conversation[1]]
    asked = [{"role": role, "content": content} for role, content in _cut_messages(tokenizer, problem)]
    messages: list[Mapping[str, Any]] = [*asked, *map(_for_template, turns)]
    written = [len(asked) + number for number, message in enumerate(turns) if is_written(message)]

    def rendered(number: int, **options: bool) -> str:
        if not tokenizer.chat_template:
            texts = [str(message["content"]) for message in messages[:number]]
            return "\n\n".join([*texts, ""] if options["add_generation_prompt"] else texts)
        return _applied(tokenizer, arguments, messages[:number], **options)

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
    return text, json.dumps(text)[1:-1].replace(_JSON_CUT, CUT), json.dumps(text, ensure_ascii=False)[1:-1]


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


def _for_template(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message of `Response.turns` as chat templates take it: arguments of tools as objects."""
    calls = [
        {"type": "function", "id": call.get("id"), "function": {"name": call["name"], "arguments": _arguments(call)}}
        for call in message.get("tool_calls", ())
    ]
    said = "\n".join(filter(None, [message["content"], message.get("refusal")]))
    others = {name: value for name, value in message.items() if name not in ("tool_calls", "refusal")}
    return {**others, "content": said, **({"tool_calls": calls} if calls else {})}


def with_thought(tokenizer: PreTrainedTokenizerBase, message: Mapping[str, Any], arguments: TemplateArguments) -> str:
    """Return a thought and a text that are kept apart as one text, with the marks that the chat template writes.

    Where it writes none, and where it leaves reasoning out, they are those of DeepSeek-R1. A thought without a text
    stays open.
    """
    before, between = turn_of(tokenizer, arguments).thought
    said = message["content"]
    return f"{before}{message['reasoning_content']}{between if said else ''}{said}"


def with_beginnings(
    tokenizer: PreTrainedTokenizerBase, problems: Sequence[Problem], arguments: TemplateArguments = _NO_ARGUMENTS
) -> list[Problem]:
    """Return problems that say what the chat template's prompt already has of the answer; see `Problem.begun`."""
    begun = turn_of(tokenizer, arguments).begun if problems else ""
    return [replace(problem, begun=begun) for problem in problems]


def prompt_texts(
    tokenizer: PreTrainedTokenizerBase, problems: Sequence[Problem], arguments: TemplateArguments = _NO_ARGUMENTS
) -> list[str]:
    """Return the text whose tokens `encode_prompts` returns; special tokens that the tokenizer adds are not in it.

    Raises:
        ConfigError: see `encode_prompts`.
    """
    turn = turn_of(tokenizer, arguments) if any(problem.prefix for problem in problems) else Turn()
    try:
        text = partial(_prompt_text, tokenizer, arguments, turn)
        return list(map(uncut, _each_bounded(tokenizer, text, problems, _lengths(problems))))
    except BoundedCallError as error:
        raise _failed(tokenizer, arguments, problems[: error.number + 1], error) from None


def prompt_notes(
    tokenizer: PreTrainedTokenizerBase,
    problems: Sequence[Problem],
    arguments: TemplateArguments = _NO_ARGUMENTS,
    stop_ids: Collection[int] = (),
) -> list[str]:
    """Return lines on what the tokenizer or its chat template does to prompts that their texts do not show.

    `stop_ids` are the model's, where they are known: the end of a turn may be one that is not special.
    """
    notes, end = [], turn_end(tokenizer, arguments, stop_ids)
    if end not in (None, tokenizer.eos_token_id):
        notes.append(
            f"the chat template ends a turn with {tokenizer.convert_ids_to_tokens(end)!r}, not with "
            f"{tokenizer.eos_token!r}: supervised completions end with it, and sampling stops at both"
        )
    # Where the tokenizer fails, encoding the prompts says so.
    if not tokenizer.chat_template and _appends(tokenizer):
        notes.append(f"the tokenizer of {_source(tokenizer)} writes tokens after every text: prompts go without them")
    return [*notes, *marks_notes(tokenizer, problems)]


def marks_notes(tokenizer: PreTrainedTokenizerBase, problems: Sequence[Problem]) -> list[str]:
    """Return a line on how many problems' texts hold those of special tokens; no line if no text does."""
    pattern = special_texts(tokenizer)
    texts = ["\n".join(text for _, text in _messages(problem)) for problem in problems]
    written = [mark["token"] for text in texts if (mark := pattern.search(text))]
    if not written:
        return []
    share = f"{len(written)} of {counted(len(problems), 'prompt')}"
    holds = "holds" if len(written) == 1 else "hold"
    return [f"{share} {holds} the text of special tokens such as {written[0]!r}; it is encoded as text"]


def _appends(tokenizer: PreTrainedTokenizerBase) -> bool:
    def appends(text: str) -> bool:
        return len(tokenizer(text)["input_ids"]) > len(tokenize(tokenizer, text).ids)

    try:
        return bool(_each_bounded(tokenizer, appends, ["1"], [1])[0])
    except BoundedCallError:
        return False


def _each_bounded(
    tokenizer: PreTrainedTokenizerBase, function: Callable[[_Item], Any], items: Sequence[_Item], lengths: Sequence[int]
) -> list[Any]:
    """Return `function(item)` of every item, where the function uses the tokenizer and returns what JSON can hold.

    Where the longest item has more characters than a grader reads, the limits of one item grow in proportion; those of
    the whole call with all characters (`lengths`: of each item).

    Raises:
        BoundedCallError: the graders' limits are reached on an item, or the function fails; not for a tokenizer that
            only looks words up.
    """
    if looks_words_up(tokenizer):
        return [function(item) for item in items]
    limits = shared_limits()
    times = 1 + max(lengths, default=0) // limits.max_chars
    larger = {limit.name: getattr(limits, limit.name) * times for limit in fields(limits)}
    return call_each(function, items, replace(limits, **larger), num_chars=sum(lengths))


def looks_words_up(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether the tokenizer has no template and no normaliser, and its tokens are the words between white space."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return (
        not tokenizer.chat_template
        and backend is not None
        and backend.normalizer is None
        and isinstance(backend.model, WordLevel)
        and isinstance(backend.pre_tokenizer, WhitespaceSplit)
    )


_FIX = "or, if you trust it, raise runtime.grader_cpu_seconds or runtime.grader_memory_mb"


def _failed(
    tokenizer: PreTrainedTokenizerBase,
    arguments: TemplateArguments,
    problems: Sequence[Problem],
    error: BoundedCallError,
) -> ConfigError:
    """Return what is to be said of the last problem's prompt; a template that needs half the limit alone failed."""
    problem, limits = problems[-1], shared_limits()
    if tokenizer.chat_template:
        try:
            half = replace(limits, cpu_seconds=limits.cpu_seconds / 2)
            messages, num_chars = list(map(_messages, problems)), sum(_lengths(problems))
            call_each(lambda asked: len(_rendered(tokenizer, arguments, asked)), messages, half, num_chars=num_chars)
        except BoundedCallError:
            folder = Path(tokenizer.name_or_path)
            name = "chat_template.jinja" if (folder / "chat_template.jinja").is_file() else "tokenizer_config.json"
            return ConfigError(
                f"the chat template of {_source(tokenizer)} ({name}) fails on problem {problem.id!r}: {error}; give "
                f"the model another template, {_FIX}"
            )
    return _tokenizer_failed(tokenizer, f"problem {problem.id!r}", error)


def _tokenizer_failed(tokenizer: PreTrainedTokenizerBase, place: str, error: BoundedCallError) -> ConfigError:
    return ConfigError(
        f"the tokenizer of {_source(tokenizer)} (tokenizer.json) fails on {place}: {error}; use another model, {_FIX}"
    )


def _source(tokenizer: PreTrainedTokenizerBase) -> str:
    return tokenizer.name_or_path or "the model"


def _encode_question(
    tokenizer: PreTrainedTokenizerBase, arguments: TemplateArguments, turn: Turn, problem: Problem
) -> list[int]:
    if tokenizer.chat_template:
        rendered = _through_template(tokenizer, arguments, _cut_messages(tokenizer, problem), problem)
        ids = _known(tokenizer, tokenize(tokenizer, rendered, special=False), rendered, problem)
        if prefix := turn.unrepeated(problem.prefix):
            begun = tokenize(tokenizer, prefix, special=False)
            if not concatenates(tokenizer):
                begun, _ = tokens_after(tokenizer, rendered, ids, prefix)
            ids += _known(tokenizer, begun, prefix, problem)
    else:
        text = _prompt_text(tokenizer, arguments, turn, problem)
        ids = _known(tokenizer, tokenize(tokenizer, text), text, problem)
    return _readable(tokenizer, ids, f"the prompt of problem {problem.id!r}")


def _prompt_text(tokenizer: PreTrainedTokenizerBase, arguments: TemplateArguments, turn: Turn, problem: Problem) -> str:
    if tokenizer.chat_template:
        messages = _cut_messages(tokenizer, problem)
        return _through_template(tokenizer, arguments, messages, problem) + turn.unrepeated(problem.prefix)
    return plain_prompt(replace(problem, messages=_cut_messages(tokenizer, problem)))


def plain_prompt(problem: Problem) -> str:
    """Return the text of a problem for a model without a chat template."""
    texts = [content for _, content in _messages(problem)]
    return "\n\n".join([*texts, problem.prefix] if problem.prefix else texts)


def _lengths(problems: Sequence[Problem]) -> list[int]:
    return [sum(len(content) for _, content in _messages(problem)) for problem in problems]


def _messages(problem: Problem) -> tuple[Message, ...]:
    return problem.messages or (("user", problem.question),)


def _cut_messages(tokenizer: PreTrainedTokenizerBase, problem: Problem) -> tuple[Message, ...]:
    """Return a problem's messages with cuts in the texts of special tokens; see `encode_prompts`."""
    marks = thinking_marks(tokenizer) if any(role == "assistant" for role, _ in problem.messages) else ()
    messages = _messages(problem)
    return tuple((role, as_text(tokenizer, text, marks if role == "assistant" else ())) for role, text in messages)


def _through_template(
    tokenizer: PreTrainedTokenizerBase,
    arguments: TemplateArguments,
    messages: Sequence[Message],
    problem: Problem,
) -> str:
    """Return what the template makes of messages; where it refuses a system message, its text begins the user's."""
    try:
        return _applied(tokenizer, arguments, messages, add_generation_prompt=True)
    except TemplateError as error:
        if [role for role, _ in messages[:2]] == ["system", "user"]:
            (_, system), (_, user), *others = messages
            joined = [("user", f"{system}\n\n{user}"), *others]
            return _through_template(tokenizer, arguments, joined, problem)
        raise ConfigError(
            f"the tokenizer's chat template refuses the messages of problem {problem.id!r} "
            f"({', '.join(role for role, _ in messages)}): {error}; give messages that it takes "
            "(task.prompt.system='' leaves the system message out), or a tokenizer with another template"
        ) from None


def is_asked(problem: Problem) -> bool:
    """Whether a problem's prompt is made of its messages: of others the text is known as the model read it."""
    return bool(problem.question or problem.messages)


def encode_completions(
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Prompt],
    texts: Sequence[str],
    arguments: TemplateArguments = _NO_ARGUMENTS,
    *,
    stop_ids: Collection[int] = (),
    cut_off: Collection[int] = (),
    note: Callable[[str], None] = lambda _line: None,
) -> list[tuple[int, ...]]:
    """Return the token ids of supervised completions, a text for each prompt, ended as the model is to end them.

    The end is the token that the chat template writes after an assistant's turn, where it writes one, else the
    end-of-sequence token. A text that ends with a stop token keeps that one, and what the prompt ends with, such as a
    `<think>` that the template writes, is not repeated.

    Args:
        tokenizer: of the model that learns.
        prompts: what the texts answer.
        texts: the completions.
        arguments: of the chat template.
        stop_ids: tokens that end a completion.
        cut_off: numbers of the texts that have no end.
        note: told what was not taken as it stands.

    Raises:
        ConfigError: the tokenizer has no token for a word of a text, or none that ends a sequence; it reaches a limit
            of time or memory, or fails.
    """
    if not texts:
        return []
    turn, end = turn_of(tokenizer, arguments), completion_end(tokenizer, arguments, stop_ids)
    learned = [
        turn.unrepeated(text, prompt.problem.prefix) if is_asked(prompt.problem) else text
        for prompt, text in zip(prompts, texts, strict=True)
    ]

    @cache
    def says_apart() -> bool:  # no tokenizer is called but under limits
        return looks_words_up(tokenizer) or concatenates(tokenizer)

    def encode(asked: tuple[Prompt, str]) -> list[int]:
        (prompt, text), problem = asked, asked[0].problem
        text = as_response(tokenizer, text, [decoded(tokenizer, [stop]) for stop in (end, *stop_ids)])
        if says_apart():
            tokens = tokenize(tokenizer, text, special=False)
        else:
            ids, special = prompt.token_ids, is_asked(problem) and not tokenizer.chat_template
            before = _prompt_text(tokenizer, arguments, turn, problem) if is_asked(problem) else decoded(tokenizer, ids)
            text = text if text.startswith(turn.gap) else turn.gap + text
            tokens, _ = tokens_after(tokenizer, before, ids, text, special=special)
        known = _known(tokenizer, tokens, text, problem)
        return _readable(tokenizer, [*known, end], f"the completion of problem {problem.id!r}")[:-1]

    try:
        encoded = _each_bounded(tokenizer, encode, list(zip(prompts, learned, strict=True)), list(map(len, texts)))
    except BoundedCallError as error:
        raise _tokenizer_failed(tokenizer, f"problem {prompts[error.number].problem.id!r}", error) from None
    ended = [
        tuple(ids) if number in cut_off else with_end(tokenizer, ids, end, stop_ids)
        for number, ids in enumerate(encoded)
    ]
    # What was not taken as it stands is said.
    num_lengthened = sum(len(new) > len(old) for new, old in zip(ended, encoded, strict=True))
    if num_ended := len(texts) - len(cut_off) - num_lengthened:
        note(f"{num_ended} of {len(texts)} completions end with a stop token already and get no other")
    if num_begun := sum(new != old for new, old in zip(learned, texts, strict=True)):
        note(f"{num_begun} of {len(texts)} completions begin with what their prompt ends with; it is not repeated")
    return ended


_THOUGHT = ("<think>\n", "\n</think>\n\n")


@dataclass(frozen=True, slots=True)
class Turn:
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


def turn_of(tokenizer: PreTrainedTokenizerBase, arguments: TemplateArguments = _NO_ARGUMENTS) -> Turn:
    """Return what the chat template writes around an assistant's text, as it renders two conversations.

    A template that fails or takes no such conversations says nothing: what it does to a prompt is said there.
    """
    if not tokenizer.chat_template:
        return Turn()
    key = (tokenizer.chat_template, arguments)
    known = getattr(tokenizer, _TURN, None)
    if known is None or known[0] != key:
        try:
            ((after, begun, gap, thought),) = call_each(partial(_turn, tokenizer), [arguments], shared_limits())
            known = key, Turn(tuple(after), begun, gap, tuple(thought) or _THOUGHT)
        except BoundedCallError:
            known = key, Turn()
        setattr(tokenizer, _TURN, known)
    return known[1]


def _turn(tokenizer: PreTrainedTokenizerBase, arguments: TemplateArguments) -> tuple[list[int], str, str, list[str]]:
    """Return the fields of `Turn`; of the thought none where the template leaves it out."""
    asked = [("user", _USER), ("assistant", _ASSISTANT)]
    last = _rendered(tokenizer, arguments, asked, add_generation_prompt=False)
    prompt = _rendered(tokenizer, arguments, asked[:1]).rpartition(_USER)[2]
    # An earlier turn has the bare header; some templates write an empty thought into the last one.
    _, _, after_user = _rendered(tokenizer, arguments, [*asked, ("user", _NEXT)]).partition(_USER)
    header, has_text, _ = after_user.partition(_ASSISTANT)
    begun = prompt.removeprefix(header) if has_text and prompt.startswith(header) else ""
    gap = header.removeprefix(prompt) if has_text and header.startswith(prompt) else ""
    _, has_text, after = last.rpartition(_ASSISTANT)
    after_ids = tokenize(tokenizer, after, special=False).ids if has_text else []
    # A thought stands between the header and the text.
    reasoned = {"role": "assistant", "content": _ASSISTANT, "reasoning_content": _NEXT}
    before, _, said = _rendered(tokenizer, arguments, [asked[0], reasoned], add_generation_prompt=False).partition(
        _NEXT
    )
    own = before.rpartition(_USER)[2]
    between, has_text, _ = said.partition(_ASSISTANT)
    start = prompt.removesuffix(begun)
    thought = [own.removeprefix(start), between] if has_text and own.startswith(start) else []
    return after_ids, begun, "" if gap.strip() else gap, thought


def _rendered(
    tokenizer: PreTrainedTokenizerBase,
    arguments: TemplateArguments,
    messages: Sequence[Message | Mapping[str, Any]],
    *,
    add_generation_prompt: bool = True,
) -> str:
    """Return what the template makes of messages; empty where it refuses them."""
    try:
        return _applied(tokenizer, arguments, messages, add_generation_prompt=add_generation_prompt)
    except TemplateError:
        return ""


def _applied(
    tokenizer: PreTrainedTokenizerBase,
    arguments: TemplateArguments,
    messages: Sequence[Message | Mapping[str, Any]],
    *,
    add_generation_prompt: bool,
) -> str:
    untyped: Any = tokenizer
    named = [
        message if isinstance(message, Mapping) else dict(zip(("role", "content"), message, strict=True))
        for message in messages
    ]
    options = {"add_generation_prompt": add_generation_prompt, "tokenize": False, **arguments.options(tokenizer)}
    rendered = str(untyped.apply_chat_template(named, **options))
    return rendered.replace(_JSON_CUT, CUT)  # of a template that writes JSON


def turn_end(
    tokenizer: PreTrainedTokenizerBase,
    arguments: TemplateArguments = _NO_ARGUMENTS,
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


def encode_texts(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], places: Sequence[str]) -> list[list[int]]:
    """Return the token ids of texts, perhaps with cuts, no special token added; `places` says where each is from.

    Raises:
        ConfigError: the tokenizer has no token for a word of one; it reaches a limit of time or memory, or fails.
    """

    def encode(asked: tuple[str, str]) -> list[int]:
        text, place = asked
        if CUT in text:
            ids = tokenize(tokenizer, text, special=False).ids
        else:
            ids = list(tokenizer(text, add_special_tokens=False)["input_ids"])  # a book's offsets would fill the memory
        if tokenizer.unk_token_id in ids and has_unknown(tokenizer, tokenize(tokenizer, text, special=False), text):
            raise ConfigError(
                f"the model's tokenizer has no token for a word of {place}; use a model whose vocabulary covers it"
            )
        return _readable(tokenizer, ids, place)

    try:
        return _each_bounded(tokenizer, encode, list(zip(texts, places, strict=True)), list(map(len, texts)))
    except BoundedCallError as error:
        raise _tokenizer_failed(tokenizer, places[error.number], error) from None


def _known(tokenizer: PreTrainedTokenizerBase, tokens: Tokens, text: str, problem: Problem) -> list[int]:
    if has_unknown(tokenizer, tokens, text):
        raise ConfigError(
            f"the model's tokenizer has no token for a word of problem {problem.id!r}; "
            f"use a model whose vocabulary covers the task '{problem.family}', or model=tiny"
        )
    return tokens.ids


def _readable(tokenizer: PreTrainedTokenizerBase, ids: list[int], place: str) -> list[int]:
    limit = getattr(tokenizer, _NUM_IDS, math.inf)
    for number, token in enumerate(ids, start=1):
        if token >= limit:
            raise ConfigError(
                f"token {number} of {place} is {tokenizer.convert_ids_to_tokens(token)!r} (id {token}), and the model "
                f"has embeddings for {limit} tokens only; leave it out of the text"
            )
    return ids
