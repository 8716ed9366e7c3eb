"""What a model reads of a problem: messages and prefix, with and without a chat template."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest
from transformers import PreTrainedTokenizerFast

from swerve.config import PromptConfig
from swerve.errors import ConfigError
from swerve.models.tiny import build_word_tokenizer
from swerve.problems.prompt import with_prompt
from swerve.prompts import TemplateArguments, check_template_arguments, encode_prompts, prompt_texts
from swerve.types import Message, Problem

CHAT = (
    "{% for m in messages %}<| {{ m.role }} |> {{ m.content }} {% endfor %}"
    "{% if add_generation_prompt %}<| assistant |>{% endif %}"
)
PROBLEM = Problem(id="p", family="math", question="one plus one", answer="2")


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    words = ["one", "plus", "think", "please", "short", "<think>", "user", "system", "assistant", "<|", "|>"]
    return build_word_tokenizer(words)


def words_of(tokenizer: PreTrainedTokenizerFast, problem: Problem) -> list[str]:
    (prompt,) = encode_prompts(tokenizer, [problem])
    return list(tokenizer.convert_ids_to_tokens(list(prompt.token_ids)))


def test_a_problem_without_messages_is_its_question(tokenizer: PreTrainedTokenizerFast) -> None:
    assert words_of(tokenizer, PROBLEM) == [tokenizer.bos_token, "one", "plus", "one"]


def test_without_a_chat_template_texts_follow_one_another(tokenizer: PreTrainedTokenizerFast) -> None:
    config = PromptConfig(system="short please", template="{question} think", prefix="<think>")
    assert words_of(tokenizer, with_prompt(PROBLEM, config)) == [
        tokenizer.bos_token,
        *["short", "please", "one", "plus", "one", "think", "<think>"],
    ]


def test_a_chat_template_gets_every_message_and_the_prefix_begins_the_answer(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    tokenizer.chat_template = CHAT
    config = PromptConfig(system="short please", template="{question} think", prefix="<think>")
    read = words_of(tokenizer, with_prompt(PROBLEM, config))
    assert [word for word in read if word != tokenizer.bos_token] == [
        *["<|", "system", "|>", "short", "please"],
        *["<|", "user", "|>", "one", "plus", "one", "think"],
        *["<|", "assistant", "|>", "<think>"],
    ]
    assert read.count(tokenizer.bos_token) <= 1


def test_a_chat_template_without_messages_gets_the_question(tokenizer: PreTrainedTokenizerFast) -> None:
    tokenizer.chat_template = CHAT
    read = words_of(tokenizer, PROBLEM)
    assert [word for word in read if word != tokenizer.bos_token] == [
        *["<|", "user", "|>", "one", "plus", "one"],
        *["<|", "assistant", "|>"],
    ]


REFUSES_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + CHAT


def test_a_template_that_refuses_the_system_message_gets_it_with_the_users(tokenizer: PreTrainedTokenizerFast) -> None:
    problem = with_prompt(PROBLEM, PromptConfig(system="short please", prefix="<think>"))
    tokenizer.chat_template = CHAT
    as_one = replace(problem, messages=(("user", "short please\n\none plus one"),))
    expected = words_of(tokenizer, as_one)
    assert words_of(tokenizer, problem) != expected
    tokenizer.chat_template = REFUSES_SYSTEM
    assert words_of(tokenizer, problem) == expected


@pytest.mark.parametrize(
    ("messages", "roles"),
    [((("user", "one"),), "user"), ((("system", "one"), ("user", "plus")), "user"), ((("system", "one"),), "system")],
)
def test_a_template_that_refuses_the_messages_is_named(
    tokenizer: PreTrainedTokenizerFast, messages: tuple[Message, ...], roles: str
) -> None:
    tokenizer.chat_template = "{{ raise_exception('never') }}"
    with pytest.raises(ConfigError, match=rf"refuses the messages of problem 'p' \({roles}\): never; give") as raised:
        encode_prompts(tokenizer, [replace(PROBLEM, messages=messages)])
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("config", [PromptConfig(template="{question} unheard"), PromptConfig(prefix="unheard")])
def test_an_unknown_word_of_the_prompt_is_refused(tokenizer: PreTrainedTokenizerFast, config: PromptConfig) -> None:
    with pytest.raises(ConfigError, match="no token for a word of problem 'p'"):
        encode_prompts(tokenizer, [with_prompt(PROBLEM, config)])


DATED = "\n{%- if note is defined %}{{ note }} {% endif %}" + CHAT + "{{ strftime_now('%d %b %Y, %-d.%m.%y') }}"


def test_a_template_that_prints_the_date_prints_the_same_every_day(tokenizer: PreTrainedTokenizerFast) -> None:
    tokenizer.chat_template = DATED
    assert prompt_texts(tokenizer, [PROBLEM]) == ["<| user |> one plus one <| assistant |>26 Jul 2024, 26.07.24"]
    told = TemplateArguments(values={"note": "short"}, today=date(2026, 1, 2))
    (text,) = prompt_texts(tokenizer, [replace(PROBLEM, prefix="<think>")], told)
    assert text == "short <| user |> one plus one <| assistant |>02 Jan 2026, 2.01.26<think>"


def test_a_pinned_date_leaves_the_rest_of_the_template_as_it_is(tokenizer: PreTrainedTokenizerFast) -> None:
    for text in ("\n\n x\n", "  x ", "{%- set y = 1 %}\nx"):
        tokenizer.chat_template = text + "{# strftime_now #}"
        (found,) = prompt_texts(tokenizer, [PROBLEM])
        tokenizer.chat_template = text + "{# other #}"
        assert [found] == prompt_texts(tokenizer, [PROBLEM])


def test_ids_are_those_of_the_text(tokenizer: PreTrainedTokenizerFast) -> None:
    for template in (None, CHAT):
        tokenizer.chat_template = template
        problem = replace(PROBLEM, prefix="<think>")
        (text,), (prompt,) = prompt_texts(tokenizer, [problem]), encode_prompts(tokenizer, [problem])
        expected = tokenizer(text.replace("<think>", " <think>"), add_special_tokens=template is None)["input_ids"]
        assert list(prompt.token_ids) == expected


def test_arguments_that_a_template_does_not_read_are_named(tokenizer: PreTrainedTokenizerFast) -> None:
    tokenizer.chat_template = DATED
    check_template_arguments(tokenizer, TemplateArguments(values={"note": "short"}))
    for name in ("noet", "messages", "tokenize", "strftime_now"):
        with pytest.raises(ConfigError, match=f"takes no argument '{name}'"):
            check_template_arguments(tokenizer, TemplateArguments(values={name: 1}))
    tokenizer.chat_template = None
    with pytest.raises(ConfigError, match="has no chat template"):
        check_template_arguments(tokenizer, TemplateArguments(values={"note": 1}))
