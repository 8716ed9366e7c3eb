"""What a model reads of a problem: messages and prefix, with and without a chat template."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest
from transformers import PreTrainedTokenizerFast

from swerve.errors import ConfigError
from swerve.models.tiny import build_word_tokenizer
from swerve.problems.prompt import PromptConfig, with_prompt
from swerve.prompts.conversations import conversation_pieces
from swerve.prompts.encode import encode_completions, encode_prompts, prompt_texts
from swerve.prompts.notes import prompt_notes
from swerve.prompts.templates import TemplateArguments, TurnMarks, check_template_arguments, turn_end, turn_of
from swerve.tokens import tokenize
from swerve.types import Message, Problem
from tests.cases import each
from tests.chat_models import CALLS, THINKS, TURNS, byte_level, sentence_piece

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


CALL = {"role": "assistant", "content": "So", "tool_calls": [{"id": "1", "name": "add", "arguments": '{"a": 2}'}]}
TOOL = {"role": "tool", "content": "4", "tool_call_id": "1"}
SAID = {"role": "assistant", "content": "It is 4."}


def test_turns_are_what_the_next_prompt_adds_up_to_the_token_that_ends_them() -> None:
    (pieces,) = conversation_pieces(byte_level(CALLS), [(PROBLEM, [CALL, TOOL, SAID])])
    prompt = "<|user|>one plus one<|end|>\n<|assistant|>"
    assert pieces == [prompt, 'So<call>add {"a": 2}<|end|>', "\n<|tool|>4<|end|>\n<|assistant|>", "It is 4."]
    (pieces,) = conversation_pieces(byte_level(CALLS), [(PROBLEM, [CALL])])
    assert pieces == [prompt, 'So<call>add {"a": 2}']


def test_turns_that_the_template_writes_otherwise_later_are_refused_with_the_reason() -> None:
    thought = {**SAID, "reasoning_content": "two and two"}
    turns = [thought, {"role": "user", "content": "Sure?"}, SAID]
    last, earlier = conversation_pieces(byte_level(CALLS), [(PROBLEM, [thought]), (PROBLEM, turns)])
    assert last[1] == "<think>two and two</think>It is 4."
    assert "leaves out what the model wrote" in earlier
    (begun,) = conversation_pieces(byte_level(THINKS), [(PROBLEM, [SAID, TOOL, SAID])])
    assert "does not go on" in begun
    (refused,) = conversation_pieces(byte_level("{{ raise_exception('no') }}"), [(PROBLEM, [SAID, TOOL, SAID])])
    assert refused == "the chat template refuses its messages (no)"


def test_without_a_chat_template_turns_are_joined_by_empty_lines(tokenizer: PreTrainedTokenizerFast) -> None:
    plain, calls = conversation_pieces(tokenizer, [(PROBLEM, [SAID, TOOL, SAID]), (PROBLEM, [CALL, TOOL, SAID])])
    assert plain == ["one plus one\n\n", "It is 4.", "\n\n4\n\n", "It is 4."]
    assert isinstance(calls, str)


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
    with pytest.raises(ConfigError, match="no token for a word of problem 'p'; 'unheard' is not in its vocabulary"):
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


LLAMA_2 = (
    "{% for m in messages %}{% if m.role == 'user' %}[I] {{ m.content }} [/I]"
    "{% else %} {{ m.content }} </s>{% endif %}{% endfor %}"
)
QWEN_3 = (
    "{% for m in messages %}<|{{ m.role }}|>\n"
    "{% if m.role == 'assistant' and loop.last %}<think>\n\n</think>\n\n{% endif %}{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% if quiet %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)


@each(
    ("tokenizer", "arguments", "end", "begun", "gap"),
    [
        (byte_level(), {}, None, "", ""),
        (byte_level(TURNS), {}, "<|end|>", "", ""),
        (byte_level(TURNS.replace("<|end|>\n", "{{ eos_token }}")), {}, "<|endoftext|>", "", ""),
        (byte_level(TURNS.replace("<|end|>\n", "").replace("{{ eos_token }}", "")), {}, None, "", ""),
        (byte_level(THINKS), {}, "<|end|>", "<think>\n", ""),
        (byte_level(QWEN_3), {}, "<|end|>", "", ""),
        (byte_level(QWEN_3), {"quiet": True}, "<|end|>", "<think>\n\n</think>\n\n", ""),
        (sentence_piece(LLAMA_2), {}, "</s>", "", " "),
        (byte_level("{{ raise_exception('never') }}"), {}, None, "", ""),
        (byte_level("{{ messages[9].content }}"), {}, None, "", ""),
    ],
)
def test_what_a_template_writes_around_an_answer(
    tokenizer: PreTrainedTokenizerFast, arguments: dict[str, bool], end: str | None, begun: str, gap: str
) -> None:
    told = TemplateArguments(values=arguments)
    number = turn_end(tokenizer, told)
    assert (None if number is None else tokenizer.convert_ids_to_tokens(number)) == end
    turn = turn_of(tokenizer, told)
    assert (turn.begun, turn.gap) == (begun, gap)
    assert turn_of(tokenizer, told) is turn or not tokenizer.chat_template


@each(
    ("begun", "prefix", "text", "left"),
    [
        ("", "", " x", " x"),
        ("<think>\n", "", "<think>\nx", "x"),
        ("<think>\n", "", "\n<think> x", " x"),
        ("<think>\n", "", "x <think>", "x <think>"),
        ("", "<think>", "<think>x", "x"),
        ("<think>\n", "Well,", "<think>\nWell, x", " x"),
        ("<think>\n", "Well,", "Well, x", " x"),
        ("<think>\n", "<think>", "<think>\nx", "x"),
        ("\n", "", "\nx", "\nx"),
    ],
)
def test_what_a_prompt_ends_with_is_not_repeated(begun: str, prefix: str, text: str, left: str) -> None:
    assert TurnMarks(begun=begun).unrepeated(text, prefix) == left


def test_a_prefix_that_the_template_writes_stands_once() -> None:
    tokenizer, problem = byte_level(THINKS), replace(PROBLEM, prefix="<think>")
    for one in (PROBLEM, problem):
        (text,), (prompt,) = prompt_texts(tokenizer, [one]), encode_prompts(tokenizer, [one])
        assert text == tokenizer.decode(prompt.token_ids) == "<|user|>one plus one<|end|>\n<|assistant|><think>\n"


def test_a_prefix_adds_no_space() -> None:
    tokenizer = sentence_piece(LLAMA_2)
    (prompt,) = encode_prompts(tokenizer, [replace(PROBLEM, prefix="<think>")])
    assert tokenizer.convert_ids_to_tokens(prompt.token_ids[-8:]) == ["]", *"<think>"]


@pytest.mark.parametrize("begin", [False, True])
def test_a_prompt_does_not_end_with_the_end_of_a_text(begin: bool) -> None:
    tokenizer = byte_level(begin=begin, ends=True)
    (prompt,) = encode_prompts(tokenizer, [PROBLEM])
    assert tokenizer.decode(prompt.token_ids) == "<|user|>" * begin + "one plus one"
    assert prompt_notes(tokenizer, [PROBLEM]) == [
        "the tokenizer of the model writes tokens after every text: prompts go without them"
    ]
    tokenizer.chat_template = TURNS
    (prompt,) = encode_prompts(tokenizer, [PROBLEM])
    assert tokenizer.decode(prompt.token_ids) == "<|user|>one plus one<|end|>\n<|assistant|>"


@pytest.mark.parametrize(
    ("tokenizer", "prompt", "text", "written"),
    [
        (byte_level(TURNS), None, "10", "10<|end|>"),
        (byte_level(TURNS), None, "10<|end|>\n", "10<|end|>"),
        (byte_level(TURNS), None, "10<|endoftext|>", "10<|endoftext|>"),
        (byte_level(THINKS), None, "<think>\nso</think>10", "so</think>10<|end|>"),
        (byte_level(), None, "10", "10<|endoftext|>"),
        (sentence_piece(LLAMA_2), None, "the", "▁the</s>"),
        (sentence_piece(), "Answer: ", "the t", "the▁t</s>"),
        (sentence_piece(), "Answer:", " the t", "▁the▁t</s>"),
    ],
)
def test_a_completion_is_what_the_template_writes(
    tokenizer: PreTrainedTokenizerFast, prompt: str | None, text: str, written: str
) -> None:
    problem = replace(PROBLEM, question=prompt or PROBLEM.question)
    encoded = encode_prompts(tokenizer, [problem])
    end = tokenizer.eos_token_id
    (ids,) = encode_completions(tokenizer, encoded, [text], stop_ids=[end])
    assert "".join(tokenizer.convert_ids_to_tokens(list(ids))).replace("Ċ", "\n") == written
    if tokenizer.chat_template and "<think>" not in text and "<|" not in text:
        chat = [{"role": "user", "content": problem.question}, {"role": "assistant", "content": text}]
        whole = tokenizer.apply_chat_template(chat, return_dict=True)["input_ids"]
        assert whole[: len(encoded[0].token_ids) + len(ids) - 1] == [*encoded[0].token_ids, *ids[:-1]]


def test_what_is_not_taken_as_it_stands_is_said() -> None:
    tokenizer, notes = byte_level(THINKS), list[str]()
    texts = ["<think>\nso</think>10<|end|>", "so</think>10", "so</think>"]
    prompts = encode_prompts(tokenizer, [PROBLEM] * 3)
    found = encode_completions(tokenizer, prompts, texts, cut_off={2}, note=notes.append)
    assert found[0] == found[1] == (*found[2], *tokenize(tokenizer, "10").ids, turn_end(tokenizer))
    assert notes == [
        "1 of 3 completions end with a stop token already and get no other",
        "1 of 3 completions begin with what their prompt ends with; it is not repeated",
    ]
    asked = [PROBLEM, replace(PROBLEM, question="is <|end|> a word?")]
    assert prompt_notes(tokenizer, asked) == [
        "the chat template ends a turn with '<|end|>', not with '<|endoftext|>': supervised completions end with it, "
        "and sampling stops at both",
        "1 of 2 prompts holds the text of special tokens such as '<|end|>'; it is encoded as text",
    ]


def test_the_end_of_a_turn_that_only_the_model_stops_at_is_said() -> None:
    """The template writes `~`, an ordinary token, and then the end of a text."""
    tokenizer = byte_level(TURNS.replace("<|end|>", "~"))
    tilde = tokenizer.convert_tokens_to_ids("~")
    prompts = encode_prompts(tokenizer, [PROBLEM])
    for stop_ids, written, notes in (
        ([0], 0, []),
        (
            [0, tilde],
            tilde,
            [
                "the chat template ends a turn with '~', not with '<|endoftext|>': supervised completions end with it, "
                "and sampling stops at both"
            ],
        ),
    ):
        ((*_, last),) = encode_completions(tokenizer, prompts, ["10"], stop_ids=stop_ids)
        assert last == written
        assert prompt_notes(tokenizer, [PROBLEM], stop_ids=stop_ids) == notes


def test_an_unknown_token_is_an_unknown_word_only_where_the_text_does_not_write_it(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    tokenizer.chat_template = CHAT
    with pytest.raises(
        ConfigError, match="no token for a word of problem 'p'; 'minus' is not in its vocab.*is 'one minus one'"
    ):
        encode_prompts(tokenizer, [replace(PROBLEM, question="one minus one")])
    same = byte_level("a<|endoftext|>{{ messages[0].content }}", unk="<|endoftext|>")
    (prompt,) = encode_prompts(same, [PROBLEM])
    assert prompt.token_ids[1] == same.unk_token_id
    (completion,) = encode_completions(same, [prompt], ["<|endoftext|>c"])
    assert same.decode(completion[:-1]) == "<|endoftext|>c"
    assert completion.index(same.unk_token_id) == len(completion) - 1  # the end alone
