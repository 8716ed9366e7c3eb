"""Turn problems into token ids; the only place that calls a chat template.

Templates and tokenizers come with a model and can take any time and memory, or end the process: they work in a copy of
it, under the graders' limits. A tokenizer that only looks words up needs none of that.
"""

from __future__ import annotations

import heapq
import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from jinja2 import TemplateError
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from swerve.config import Config
from swerve.errors import ConfigError, nearest
from swerve.rewards.sandbox.bounded import BoundedCallError, call_each
from swerve.rewards.sandbox.pool import shared_limits
from swerve.types import Message, Problem, Prompt

_NUM_MEASURED = 256
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
        directives = {f"%{one}": self.today.strftime(f"%{one}") for one in (*_DIRECTIVES, *map("-{}".format, "dmj"))}
        replaced = "".join(f"|replace({name!r}, {value!r})" for name, value in directives.items())
        # Functions do not get past `apply_chat_template`; the empty text keeps a line break that follows.
        macro = f"{{% macro {_NOW}(format) %}}{{{{ format{replaced} }}}}{{% endmacro %}}{{{{ '' }}}}"
        return {"chat_template": macro + template, **self.values}


_NO_ARGUMENTS = TemplateArguments()


def template_arguments(config: Config) -> TemplateArguments:
    """Return what a recipe gives its model's chat template."""
    model = config.model
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
    chat template the messages' texts and the prefix are joined by empty lines.

    Args:
        tokenizer: of the model that reads them.
        problems: to be read.
        arguments: of the chat template.

    Raises:
        ConfigError: the tokenizer has no token for a word of the question, or its chat template refuses the messages;
            one of the two reaches a limit of time or memory, or fails; a prompt has no tokens.
    """
    try:
        found = _each_bounded(tokenizer, partial(_encode_question, tokenizer, arguments), problems)
    except BoundedCallError as error:
        raise _failed(tokenizer, arguments, problems[error.number], error) from None
    for problem, ids in zip(problems, found, strict=True):
        if not ids:
            raise ConfigError(
                f"the prompt of problem {problem.id!r} has no tokens by the tokenizer of {_source(tokenizer)}, and a "
                "completion needs a token before it; give text in task.prompt.template, or a model with a begin token "
                "or another chat template"
            )
    return [Prompt(problem=problem, token_ids=tuple(ids)) for problem, ids in zip(problems, found, strict=True)]


def prompt_texts(
    tokenizer: PreTrainedTokenizerBase, problems: Sequence[Problem], arguments: TemplateArguments = _NO_ARGUMENTS
) -> list[str]:
    """Return the text whose tokens `encode_prompts` returns; special tokens that the tokenizer adds are not in it.

    Raises:
        ConfigError: see `encode_prompts`.
    """
    try:
        return _each_bounded(tokenizer, partial(_prompt_text, tokenizer, arguments), problems)
    except BoundedCallError as error:
        raise _failed(tokenizer, arguments, problems[error.number], error) from None


def _each_bounded(
    tokenizer: PreTrainedTokenizerBase, function: Callable[[_Item], Any], items: Sequence[_Item], *, num_chars: int = 0
) -> list[Any]:
    """Return `function(item)` of every item, where the function uses the tokenizer and returns what JSON can hold.

    Where the longest item has more characters (`num_chars`) than a grader reads, the limits grow in proportion.

    Raises:
        BoundedCallError: the graders' limits are reached on an item, or the function fails; not for a tokenizer that
            only looks words up.
    """
    if looks_words_up(tokenizer):
        return [function(item) for item in items]
    limits = shared_limits()
    times = 1 + num_chars // limits.max_chars
    larger = {name: getattr(limits, name) * times for name in ("cpu_seconds", "wall_seconds", "memory_bytes")}
    return call_each(function, items, replace(limits, **larger))


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
    tokenizer: PreTrainedTokenizerBase, arguments: TemplateArguments, problem: Problem, error: BoundedCallError
) -> ConfigError:
    """Return what is to be said of a problem's prompt, after finding out whether template or tokenizer failed."""
    if tokenizer.chat_template:
        try:
            call_each(partial(_render, tokenizer, arguments), [_messages(problem)], shared_limits())
        except BoundedCallError as found:
            folder = Path(tokenizer.name_or_path)
            name = "chat_template.jinja" if (folder / "chat_template.jinja").is_file() else "tokenizer_config.json"
            return ConfigError(
                f"the chat template of {_source(tokenizer)} ({name}) fails on problem {problem.id!r}: {found}; give "
                f"the model another template, {_FIX}"
            )
    return _tokenizer_failed(tokenizer, f"problem {problem.id!r}", error)


def _tokenizer_failed(tokenizer: PreTrainedTokenizerBase, place: str, error: BoundedCallError) -> ConfigError:
    return ConfigError(
        f"the tokenizer of {_source(tokenizer)} (tokenizer.json) fails on {place}: {error}; use another model, {_FIX}"
    )


def _source(tokenizer: PreTrainedTokenizerBase) -> str:
    return tokenizer.name_or_path or "the model"


def _render(tokenizer: PreTrainedTokenizerBase, arguments: TemplateArguments, messages: Sequence[Message]) -> int:
    untyped: Any = tokenizer
    options = {"add_generation_prompt": True, "tokenize": False, **arguments.options(tokenizer)}
    try:
        return len(str(untyped.apply_chat_template(_named(messages), **options)))
    except TemplateError:
        return 0


def _encode_question(tokenizer: PreTrainedTokenizerBase, arguments: TemplateArguments, problem: Problem) -> list[int]:
    if tokenizer.chat_template:
        begun = tokenizer(problem.prefix, add_special_tokens=False)["input_ids"] if problem.prefix else []
        rendered = _through_template(tokenizer, arguments, _messages(problem), problem, tokenize=True, return_dict=True)
        return _readable(tokenizer, [*rendered["input_ids"], *begun], f"the prompt of problem {problem.id!r}")
    text = _prompt_text(tokenizer, arguments, problem)
    ids = _known(tokenizer, list(tokenizer(text)["input_ids"]), problem)
    return _readable(tokenizer, ids, f"the prompt of problem {problem.id!r}")


def _prompt_text(tokenizer: PreTrainedTokenizerBase, arguments: TemplateArguments, problem: Problem) -> str:
    messages = _messages(problem)
    if tokenizer.chat_template:
        return f"{_through_template(tokenizer, arguments, messages, problem, tokenize=False)}{problem.prefix}"
    texts = [content for _, content in messages]
    return "\n\n".join([*texts, problem.prefix] if problem.prefix else texts)


def _messages(problem: Problem) -> tuple[Message, ...]:
    return problem.messages or (("user", problem.question),)


def _through_template(
    tokenizer: PreTrainedTokenizerBase,
    arguments: TemplateArguments,
    messages: Sequence[Message],
    problem: Problem,
    **options: bool,
) -> Any:
    """Return what the template makes of messages; where it refuses a system message, its text begins the user's."""
    untyped: Any = tokenizer
    try:
        return untyped.apply_chat_template(
            _named(messages), add_generation_prompt=True, **options, **arguments.options(tokenizer)
        )
    except TemplateError as error:
        if [role for role, _ in messages[:2]] == ["system", "user"]:
            (_, system), (_, user), *others = messages
            joined = [("user", f"{system}\n\n{user}"), *others]
            return _through_template(tokenizer, arguments, joined, problem, **options)
        raise ConfigError(
            f"the tokenizer's chat template refuses the messages of problem {problem.id!r} "
            f"({', '.join(role for role, _ in messages)}): {error}; give messages that it takes "
            "(task.prompt.system='' leaves the system message out), or a tokenizer with another template"
        ) from None


def _named(messages: Sequence[Message]) -> list[dict[str, str]]:
    return [{"role": role, "content": content} for role, content in messages]


def encode_completions(
    tokenizer: PreTrainedTokenizerBase, problems: Sequence[Problem], texts: Sequence[str]
) -> list[tuple[int, ...]]:
    """Return the token ids of supervised completions, a text for each problem, ended by the end-of-sequence token.

    Raises:
        ConfigError: the tokenizer has no token for a word of a text, or none that ends a sequence; it reaches a limit
            of time or memory, or fails.
    """

    def encode(asked: tuple[Problem, str]) -> list[int]:
        end = end_token(tokenizer)
        ids = list(tokenizer(asked[1], add_special_tokens=False)["input_ids"])
        known = _known(tokenizer, ids, asked[0])
        return [*_readable(tokenizer, known, f"the completion of problem {asked[0].id!r}"), end]

    try:
        return list(map(tuple, _each_bounded(tokenizer, encode, list(zip(problems, texts, strict=True)))))
    except BoundedCallError as error:
        raise _tokenizer_failed(tokenizer, f"problem {problems[error.number].id!r}", error) from None


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
    """Return the token ids of texts, no special token added; `places` says where each is from.

    Raises:
        ConfigError: the tokenizer has no token for a word of one; it reaches a limit of time or memory, or fails.
    """

    def encode(asked: tuple[str, str]) -> list[int]:
        text, place = asked
        ids = list(tokenizer(text, add_special_tokens=False)["input_ids"])
        if tokenizer.unk_token_id is not None and tokenizer.unk_token_id in ids:
            raise ConfigError(
                f"the model's tokenizer has no token for a word of {place}; use a model whose vocabulary covers it"
            )
        return _readable(tokenizer, ids, place)

    try:
        longest = max(map(len, texts), default=0)
        return _each_bounded(tokenizer, encode, list(zip(texts, places, strict=True)), num_chars=longest)
    except BoundedCallError as error:
        raise _tokenizer_failed(tokenizer, places[error.number], error) from None


def check_solution_lengths(
    config: Config,
    architecture: PreTrainedConfig,
    tokenizer: PreTrainedTokenizerBase,
    problems: Sequence[Problem],
    *,
    checks_solutions: bool = True,
) -> None:
    """Check that the longest problems and their solutions fit the length limit and the model's positions.

    Args:
        config: the run's.
        architecture: of the model that reads them.
        tokenizer: the model's.
        problems: those with the most characters are looked at.
        checks_solutions: whether a completion must be about as long as the written solution to be right.

    Raises:
        ConfigError: one does not, so that no completion could ever be right, or the model has too few positions.
    """
    limit = getattr(architecture, "max_position_embeddings", None)
    arguments = template_arguments(config)
    check_template_arguments(tokenizer, arguments)
    longest = heapq.nlargest(_NUM_MEASURED, problems, key=lambda problem: len(problem.question))
    lengths = _solution_lengths(tokenizer, longest) if checks_solutions else [None] * len(longest)
    for prompt, needed in zip(encode_prompts(tokenizer, longest, arguments), lengths, strict=True):
        problem = prompt.problem
        if limit is not None and len(prompt.token_ids) + config.max_new_tokens > limit:
            raise ConfigError(
                f"problem {problem.id!r} has {len(prompt.token_ids)} tokens and max_new_tokens is "
                f"{config.max_new_tokens}, together more than the model's {limit} positions; "
                "lower max_new_tokens, leave long questions out, or take a model with more positions "
                "(model.max_positions of the tiny one)"
            )
        if needed is not None and needed > config.max_new_tokens:
            raise ConfigError(
                f"the right solution of problem {problem.id!r} has {needed} tokens, more than "
                f"max_new_tokens={config.max_new_tokens}; raise max_new_tokens"
            )


def _solution_lengths(tokenizer: PreTrainedTokenizerBase, problems: Sequence[Problem]) -> list[int | None]:
    """Return the number of tokens of each written solution, None for a problem without one."""
    solutions = {number: problem.solution for number, problem in enumerate(problems) if problem.solution is not None}
    found = encode_completions(tokenizer, [problems[number] for number in solutions], list(solutions.values()))
    lengths = dict(zip(solutions, map(len, found), strict=True))
    return [lengths.get(number) for number in range(len(problems))]


def _known(tokenizer: PreTrainedTokenizerBase, ids: list[int], problem: Problem) -> list[int]:
    if tokenizer.unk_token_id is not None and tokenizer.unk_token_id in ids:
        raise ConfigError(
            f"the model's tokenizer has no token for a word of problem {problem.id!r}; "
            f"use a model whose vocabulary covers the task '{problem.family}', or model=tiny"
        )
    return ids


def _readable(tokenizer: PreTrainedTokenizerBase, ids: list[int], place: str) -> list[int]:
    limit = getattr(tokenizer, _NUM_IDS, math.inf)
    for number, token in enumerate(ids, start=1):
        if token >= limit:
            raise ConfigError(
                f"token {number} of {place} is {tokenizer.convert_ids_to_tokens(token)!r} (id {token}), and the model "
                f"has embeddings for {limit} tokens only; leave it out of the text"
            )
    return ids
