"""The text of special tokens in what data say is text, by every kind of tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from swerve.errors import ConfigError
from swerve.models.tiny import build_word_tokenizer
from swerve.probe.rollouts.given import given_sequences
from swerve.probe.rollouts.imported import import_responses
from swerve.probe.rollouts.tokenise import encode_pieces
from swerve.prompts.conversations import conversation_pieces
from swerve.prompts.encode import encode_completions, encode_prompts, prompt_texts
from swerve.prompts.notes import prompt_notes
from swerve.types import Problem
from tests.chat_models import THINKS, TURNS, byte_level, sentence_piece
from tests.json_lines import write_json_lines

PROBLEM = Problem(id="p", family="math", question="one plus one", answer="2")


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    return build_word_tokenizer(["one", "plus"])


def lattice(template: str | None = None) -> PreTrainedTokenizerFast:
    """Unigram as T5's, which has its special tokens among its pieces."""
    letters = [("▁", -2.0), *((chr(number), -3.0) for number in range(33, 127))]
    backend = Tokenizer(models.Unigram([("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0), *letters], unk_id=0))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    names = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    wrapped = PreTrainedTokenizerFast(tokenizer_object=backend, **names)
    wrapped.chat_template = template
    return wrapped


def word_piece(template: str | None = None) -> PreTrainedTokenizerFast:
    """WordPiece as BERT's, which lowers letters."""
    letters = [chr(number) for number in range(33, 127) if not chr(number).isupper()]
    pieces = ["[UNK]", "[CLS]", "[SEP]", *letters, *(f"##{letter}" for letter in letters)]
    backend = Tokenizer(models.WordPiece({piece: number for number, piece in enumerate(pieces)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    names = {"unk_token": "[UNK]", "bos_token": "[CLS]", "eos_token": "[SEP]"}
    wrapped = PreTrainedTokenizerFast(tokenizer_object=backend, **names)
    wrapped.chat_template = template
    return wrapped


KINDS = {"byte level": byte_level, "pieces": sentence_piece, "lattice": lattice, "word pieces": word_piece}
WRITES_ENDS = "{% for m in messages %}{{ m.content | trim }}{{ eos_token }}{% endfor %}"


def specials_of(tokenizer: PreTrainedTokenizerFast, ids: Sequence[int]) -> list[int]:
    return [token for token in ids if token in tokenizer.all_special_ids]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("template", [None, WRITES_ENDS])
def test_the_text_of_a_special_token_in_a_question_is_text(kind: str, template: str | None) -> None:
    tokenizer = KINDS[kind](template)
    (plain,) = encode_prompts(tokenizer, [PROBLEM])
    for mark in tokenizer.all_special_tokens:
        for question in (f"one {mark} two", f"one{mark}two{mark}{mark}", mark, f"<{mark}"):
            asked = [replace(PROBLEM, question=question), PROBLEM]
            prompt, beside = encode_prompts(tokenizer, asked)
            assert specials_of(tokenizer, prompt.token_ids) == specials_of(tokenizer, plain.token_ids)
            assert beside.token_ids == plain.token_ids
            said = tokenizer.decode(prompt.token_ids, skip_special_tokens=True)
            assert said.replace(" ", "").lower() == question.replace(" ", "").lower()
            assert [line for line in prompt_notes(tokenizer, asked) if "special" in line] == [
                f"1 of 2 prompts holds the text of special tokens such as {mark!r}; it is encoded as text"
            ]


@pytest.mark.parametrize("mark", ["<eos>", "<bos>", "<pad>", "<unk>"])
def test_a_tokenizer_of_words_has_no_word_for_the_text_of_a_special_token(
    tokenizer: PreTrainedTokenizerFast, mark: str
) -> None:
    for question in (f"one {mark} plus", mark, f"one{mark}"):
        with pytest.raises(ConfigError, match="no token for a word of problem 'p'"):
            encode_prompts(tokenizer, [replace(PROBLEM, question=question)])


@pytest.mark.parametrize("kind", KINDS)
def test_what_tools_and_turns_say_is_text(kind: str) -> None:
    tokenizer = KINDS[kind](WRITES_ENDS)
    for mark in tokenizer.all_special_tokens:
        system = ("system", f"be {mark} kind")
        problem = replace(PROBLEM, messages=(system, ("user", f"one {mark}"), ("assistant", mark), ("user", "two")))
        (prompt,) = encode_prompts(tokenizer, [problem])
        assert specials_of(tokenizer, prompt.token_ids) == [tokenizer.eos_token_id] * 4
        turns = [
            {"role": "assistant", "content": f"so {mark} it"},
            {"role": "tool", "content": f"it is {mark}"},
            {"role": "assistant", "content": "two"},
        ]
        (pieces,) = conversation_pieces(tokenizer, [(PROBLEM, turns)])
        encoded = encode_pieces(tokenizer, pieces, add_special_tokens=False)
        ids = (*encoded.prompt_ids, *encoded.completion_ids)
        assert specials_of(tokenizer, ids) == [tokenizer.eos_token_id] * 3


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("4<|user|>5", ["4", "<", "|", *"user", "|", ">", "5", "<|end|>"]),
        ("4<|end|>5<|end|>", ["4", "<", "|", *"end", "|", ">", "5", "<|end|>"]),
        ("4<|endoftext|>", ["4", "<|endoftext|>"]),
    ],
)
def test_only_the_end_of_a_completion_is_special(text: str, written: list[str]) -> None:
    tokenizer = byte_level(TURNS)
    (ids,) = encode_completions(tokenizer, encode_prompts(tokenizer, [PROBLEM]), [text], stop_ids=[0])
    assert tokenizer.convert_ids_to_tokens(list(ids)) == written


def test_marks_of_thinking_that_the_template_writes_are_kept_in_a_completion() -> None:
    for template, is_kept in ((THINKS, True), (TURNS, False)):
        tokenizer = byte_level(template)
        tokenizer.add_special_tokens({"extra_special_tokens": ["<think>"]})
        prompts = encode_prompts(tokenizer, [PROBLEM, replace(PROBLEM, question="<think>")])
        mark = tokenizer.convert_tokens_to_ids("<think>")
        (ids,) = encode_completions(tokenizer, prompts[:1], ["4 <think> 5"])
        assert (mark in ids) == is_kept
        assert prompts[1].token_ids.count(mark) == prompts[0].token_ids.count(mark) == is_kept


def test_a_template_that_writes_json_writes_the_text_of_special_tokens() -> None:
    tokenizer = byte_level("{% for m in messages %}{{ m.content | tojson(ensure_ascii=True) }}{% endfor %}")
    (text,) = prompt_texts(tokenizer, [replace(PROBLEM, question="a <|end|>")])
    assert text == '"a <|end|>"'


@pytest.mark.parametrize("template", [None, TURNS])
def test_what_a_file_says_is_text(template: str | None, tmp_path: Path) -> None:
    tokenizer, path = byte_level(template), tmp_path / "responses.jsonl"
    asked = [("one<|end|>", "4<|user|>5"), ("one", "4<|end|>"), ("one", "4<|assistant|>"), ("one", "4")]
    lines = [{"id": str(n), "problem": problem, "response": said} for n, (problem, said) in enumerate(asked)]
    write_json_lines(path, lines)
    read = import_responses(path, tokenizer=tokenizer)
    own = [specials_of(tokenizer, one.prompt_ids) for one in read.sequences]
    assert own[0] == own[1]
    assert [one.text for one in read.sequences] == [said for _, said in asked]
    said = [[token for token in one.completion_ids if token < 4] for one in read.sequences]
    assert said == [[], [1] if template else [], [], []]  # the end of a turn
    assert read.provenance["num_special_texts"] == (2 if template else 3)


def test_a_bare_text_is_text() -> None:
    tokenizer = byte_level()
    (read,) = given_sequences(["4<|user|>5<|endoftext|>"], tokenizer)
    ids = (*read.prompt_ids, *read.completion_ids)
    assert (tokenizer.decode(ids), [token for token in ids if token < 4]) == ("4<|user|>5<|endoftext|>", [0])
