"""Tokens say the texts that they are of, whatever the tokenizer adds, drops or lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from swerve.models.tiny import build_word_tokenizer
from swerve.tokens import concatenates, has_unknown, tokenize, tokens_after, with_end
from tests.chat_models import byte_level, sentence_piece

STORIES = Path(__file__).parents[2] / "shared/data/tiny_models/stories260K/hf"
BOUNDARIES = [
    ("Answer: ", "42"),
    ("Answer: ", "the cat"),
    ("Answer: ", "I"),
    ("[x] ", " Hello."),
    ("Ans", "wer: 42"),
    ("Once upon a time", " the cat"),
    ("Once upon a time", "the cat"),
    ("Q:\n\n", "\nthe"),
    ("Say hi: ", "\N{WOMAN}\N{ZERO WIDTH JOINER}\N{GIRL} hi"),
    ("Answer: ", "<think> the"),
]


def stories() -> Any:
    if not STORIES.is_dir():
        pytest.skip("shared/data/tiny_models/stories260K is not here")
    return AutoTokenizer.from_pretrained(STORIES)


@pytest.mark.parametrize("make", [byte_level, sentence_piece, stories])
def test_tokens_after_a_prompt_say_the_text(make: Any) -> None:
    tokenizer = make()
    assert concatenates(tokenizer) == (make is byte_level)
    for prompt, text in BOUNDARIES:
        before = tokenize(tokenizer, prompt).ids
        after, is_joint = tokens_after(tokenizer, prompt, before, text, special=True)
        assert tokenizer.decode([*before, *after.ids]) == tokenizer.decode(before) + text, (prompt, text)
        assert is_joint == (tokenize(tokenizer, prompt + text).ids == [*before, *after.ids])
        assert after.offsets[-1][1] == len(text)


def test_a_text_that_nothing_says_is_tokenised_as_it_stands() -> None:
    tokenizer = build_word_tokenizer(["1", "=", "2"])
    before = tokenize(tokenizer, "1 =").ids
    after, is_joint = tokens_after(tokenizer, "1 =", before, "2", special=True)
    assert (tokenizer.convert_ids_to_tokens(after.ids), is_joint) == (["2"], False)


@pytest.mark.parametrize("begin", [False, True])
def test_what_a_tokenizer_writes_after_a_text_is_left_out(begin: bool) -> None:
    tokenizer = byte_level(begin=begin, ends=True)
    assert tokenizer("ab")["input_ids"][-1] == tokenizer.eos_token_id
    plain = tokenizer("ab", add_special_tokens=False)["input_ids"]
    assert tokenize(tokenizer, "ab").ids == [*[2] * begin, *plain]
    written = tokenize(tokenizer, "ab<|endoftext|>").ids  # by hand, so it stays
    assert written == [*[2] * begin, *plain, tokenizer.eos_token_id]
    slow = _Slow(tokenizer)
    assert tokenize(slow, "ab").ids == [*[2] * begin, *plain]  # type: ignore[arg-type]


class _Slow:
    """A tokenizer without offsets."""

    is_fast = False

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self._tokenizer = tokenizer

    def __call__(self, text: str, **options: Any) -> Any:
        return self._tokenizer(text, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


def words(unk: str) -> PreTrainedTokenizerFast:
    """Words of which the end of a text is the unknown one, too, as GPT-2's tokenizer says of its own."""
    backend = Tokenizer(models.WordLevel({"<|endoftext|>": 0, "one": 1, "two": 2}, unk_token=unk))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>", unk_token=unk)


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ("one two", False),
        ("one <|endoftext|> two", False),
        ("<|endoftext|>", False),
        ("one three", True),
        ("one three <|endoftext|>", True),
        ("three", True),
    ],
)
def test_an_unknown_word_is_one_that_the_unknown_token_does_not_write(text: str, unknown: bool) -> None:
    tokenizer = words("<|endoftext|>")
    for one in (tokenizer, _Slow(tokenizer)):
        assert has_unknown(one, tokenize(one, text), text) == unknown  # type: ignore[arg-type]
    byte = byte_level(unk="<|endoftext|>", begin=True)
    assert not has_unknown(byte, tokenize(byte, text), text)


def test_a_completion_has_one_end() -> None:
    tokenizer = byte_level()
    end, stop = tokenizer.convert_tokens_to_ids(["<|end|>", "<|endoftext|>"])
    ids = lambda text: tokenize(tokenizer, text).ids  # noqa: E731
    assert with_end(tokenizer, ids("4"), end, ()) == (*ids("4"), end)
    assert with_end(tokenizer, [], end, ()) == (end,)
    for text in ("4<|end|>", "4<|end|>\n", "4<|end|> <|endoftext|>", "4<|end|><|end|>"):
        assert with_end(tokenizer, ids(text), end, {stop}) == (*ids("4"), end), text
    assert with_end(tokenizer, ids("4 <|endoftext|>"), end, {stop}) == (*ids("4 "), stop)
    inside = ids("4<|end|>5")
    assert with_end(tokenizer, inside, end, {stop}) == (*inside, end)
    assert with_end(tokenizer, ids("4<|endoftext|>"), end, ()) == (*ids("4<|endoftext|>"), end)
