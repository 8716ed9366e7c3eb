"""Problems, completions and other texts as token ids.

Templates and tokenizers come with a model and can take any time and memory, or end the process: they work in a copy of
it, under the graders' limits. A tokenizer that only looks words up needs none of that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from jinja2 import TemplateError
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerBase

from swerve.errors import ConfigError
from swerve.prompts.templates import (
    NO_ARGUMENTS,
    TemplateArguments,
    TurnMarks,
    applied,
    as_response,
    completion_end,
    rendered,
    source_of,
    thinking_marks,
    turn_of,
    with_beginnings,
)
from swerve.sandbox.bounded import BoundedCallError, call_each
from swerve.sandbox.limits import shared_limits
from swerve.tokens import (
    CUT,
    Tokens,
    as_text,
    concatenates,
    decoded,
    has_unknown,
    readable,
    tokenize,
    tokens_after,
    uncut,
    with_end,
)
from swerve.types import Message, Problem, Prompt

_Item = TypeVar("_Item")
_FIX = "or, if you trust it, raise runtime.grader_cpu_seconds or runtime.grader_memory_mb"


def encode_prompts(
    tokenizer: PreTrainedTokenizerBase, problems: Sequence[Problem], arguments: TemplateArguments = NO_ARGUMENTS
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
    turn = turn_of(tokenizer, arguments) if problems else TurnMarks()
    try:
        question = partial(_encode_question, tokenizer, arguments, turn)
        encoded = each_bounded(tokenizer, question, problems, _lengths(problems))
    except BoundedCallError as error:
        raise prompt_failed(tokenizer, arguments, problems[: error.number + 1], error) from None

    # A completion's first token is predicted at the prompt's last one.
    for problem, ids in zip(problems, encoded, strict=True):
        if not ids:
            raise ConfigError(
                f"the prompt of problem {problem.id!r} has no tokens by the tokenizer of {source_of(tokenizer)}, and a "
                "completion needs a token before it; give text in task.prompt.template, or a model with a begin token "
                "or another chat template"
            )
    read = with_beginnings(tokenizer, problems, arguments)
    return [Prompt(problem=problem, token_ids=tuple(ids)) for problem, ids in zip(read, encoded, strict=True)]


def _encode_question(
    tokenizer: PreTrainedTokenizerBase, arguments: TemplateArguments, turn: TurnMarks, problem: Problem
) -> list[int]:
    if tokenizer.chat_template:
        text = _through_template(tokenizer, arguments, cut_messages(tokenizer, problem), problem)
        ids = _known(tokenizer, tokenize(tokenizer, text, special=False), text, problem)
        if prefix := turn.unrepeated(problem.prefix):
            begun = tokenize(tokenizer, prefix, special=False)
            if not concatenates(tokenizer):
                begun, _ = tokens_after(tokenizer, text, ids, prefix)
            ids += _known(tokenizer, begun, prefix, problem)
    else:
        text = _prompt_text(tokenizer, arguments, turn, problem)
        ids = _known(tokenizer, tokenize(tokenizer, text), text, problem)
    return readable(tokenizer, ids, f"the prompt of problem {problem.id!r}")


def prompt_texts(
    tokenizer: PreTrainedTokenizerBase, problems: Sequence[Problem], arguments: TemplateArguments = NO_ARGUMENTS
) -> list[str]:
    """Return the text whose tokens `encode_prompts` returns; special tokens that the tokenizer adds are not in it.

    Raises:
        ConfigError: see `encode_prompts`.
    """
    turn = turn_of(tokenizer, arguments) if any(problem.prefix for problem in problems) else TurnMarks()
    try:
        text = partial(_prompt_text, tokenizer, arguments, turn)
        return list(map(uncut, each_bounded(tokenizer, text, problems, _lengths(problems))))
    except BoundedCallError as error:
        raise prompt_failed(tokenizer, arguments, problems[: error.number + 1], error) from None


def _prompt_text(
    tokenizer: PreTrainedTokenizerBase, arguments: TemplateArguments, turn: TurnMarks, problem: Problem
) -> str:
    if tokenizer.chat_template:
        messages = cut_messages(tokenizer, problem)
        return _through_template(tokenizer, arguments, messages, problem) + turn.unrepeated(problem.prefix)
    return plain_prompt(replace(problem, messages=cut_messages(tokenizer, problem)))


def plain_prompt(problem: Problem) -> str:
    """Return the text of a problem for a model without a chat template."""
    texts = [content for _, content in messages_of(problem)]
    return "\n\n".join([*texts, problem.prefix] if problem.prefix else texts)


def messages_of(problem: Problem) -> tuple[Message, ...]:
    """Return the messages of a problem: without any its question, of the user."""
    return problem.messages or (("user", problem.question),)


def _lengths(problems: Sequence[Problem]) -> list[int]:
    return [sum(len(content) for _, content in messages_of(problem)) for problem in problems]


def cut_messages(tokenizer: PreTrainedTokenizerBase, problem: Problem) -> tuple[Message, ...]:
    """Return a problem's messages with cuts in the texts of special tokens; see `encode_prompts`."""
    marks = thinking_marks(tokenizer) if any(role == "assistant" for role, _ in problem.messages) else ()
    messages = messages_of(problem)
    return tuple((role, as_text(tokenizer, text, marks if role == "assistant" else ())) for role, text in messages)


def _through_template(
    tokenizer: PreTrainedTokenizerBase,
    arguments: TemplateArguments,
    messages: Sequence[Message],
    problem: Problem,
) -> str:
    """Return what the template makes of messages; where it refuses a system message, its text begins the user's."""
    try:
        return applied(tokenizer, arguments, messages, add_generation_prompt=True)
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
    arguments: TemplateArguments = NO_ARGUMENTS,
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
        return readable(tokenizer, [*known, end], f"the completion of problem {problem.id!r}")[:-1]

    try:
        encoded = each_bounded(tokenizer, encode, list(zip(prompts, learned, strict=True)), list(map(len, texts)))
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
        return readable(tokenizer, ids, place)

    try:
        return each_bounded(tokenizer, encode, list(zip(texts, places, strict=True)), list(map(len, texts)))
    except BoundedCallError as error:
        raise _tokenizer_failed(tokenizer, places[error.number], error) from None


def _known(tokenizer: PreTrainedTokenizerBase, tokens: Tokens, text: str, problem: Problem) -> list[int]:
    if has_unknown(tokenizer, tokens, text):
        unknown = tokenizer.unk_token_id
        spans = [span for token, span in zip(tokens.ids, tokens.offsets or (), strict=False) if token == unknown]
        words = (text[start:end].strip() for start, end in spans)
        word = next((word for word in words if word and word != tokenizer.unk_token), None)
        raise ConfigError(
            f"the model's tokenizer has no token for a word of problem {problem.id!r}; "
            f"{'' if word is None else f'{word[:40]!r} is not in its vocabulary, and '}the question is "
            f"{problem.question!r:.200}; ask in words that it has, or use a model whose vocabulary covers them"
        )
    return tokens.ids


def each_bounded(
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


def prompt_failed(
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
            messages, num_chars = list(map(messages_of, problems)), sum(_lengths(problems))
            call_each(lambda asked: len(rendered(tokenizer, arguments, asked)), messages, half, num_chars=num_chars)
        except BoundedCallError:
            folder = Path(tokenizer.name_or_path)
            name = "chat_template.jinja" if (folder / "chat_template.jinja").is_file() else "tokenizer_config.json"
            return ConfigError(
                f"the chat template of {source_of(tokenizer)} ({name}) fails on problem {problem.id!r}: {error}; give "
                f"the model another template, {_FIX}"
            )
    return _tokenizer_failed(tokenizer, f"problem {problem.id!r}", error)


def _tokenizer_failed(tokenizer: PreTrainedTokenizerBase, place: str, error: BoundedCallError) -> ConfigError:
    return ConfigError(
        f"the tokenizer of {source_of(tokenizer)} (tokenizer.json) fails on {place}: {error}; use another model, {_FIX}"
    )
