from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from swerve.artifacts.responses import Response
from swerve.cli.data_import import import_rollouts
from swerve.errors import ArtifactError, ConfigError, MismatchError
from swerve.formats.imported_problems import read_problems
from swerve.formats.imported_responses import read_responses
from swerve.formats.typed_fields import parse_fields
from swerve.limits import End
from swerve.models.tiny import build_word_tokenizer
from swerve.probe.rollouts.imported import _labelled, import_responses
from swerve.probe.rollouts.tokenise import encode_after_ids, encode_response
from swerve.problems import load_family
from swerve.problems.addition import AdditionTask
from swerve.problems.family import problem_id
from swerve.sandbox.bounded import BoundedCallError
from swerve.sandbox.limits import shared_limits
from swerve.types import Problem, Reward
from tests.chat_models import CALLS, TURNS, byte_level, sentence_piece
from tests.json_lines import write_json_lines

CHAT = (
    "{% for message in messages %}<|user|>{{ message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


def byte_tokenizer(*, trim: bool = False, template: str | None = None) -> PreTrainedTokenizerFast:
    """Byte-level BPE with a few merges, a begin token, and (with `trim`) offsets that leave white space out."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {symbol: index for index, symbol in enumerate(alphabet)}
    merges = [("a", "b"), ("ab", "c"), ("Ġ", "x"), ("Ċ", "Ċ"), (".", "Ċ")]
    for left, right in merges:
        vocabulary[left + right] = len(vocabulary)
    backend = Tokenizer(models.BPE(vocabulary, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    specials = ["<s>", "</s>", "<|user|>", "<|assistant|>"]
    backend.add_special_tokens([AddedToken(one, special=True, normalized=False) for one in specials])
    begin = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 261), ("</s>", 262)])
    backend.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=trim), begin])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", clean_up_tokenization_spaces=False
    )
    tokenizer.chat_template = template
    return tokenizer


def pieces(tokenizer: Any, ids: Any) -> list[str]:
    return [tokenizer.decode([one]) for one in ids]


def test_one_text_cut_at_the_boundary() -> None:
    tokenizer = byte_tokenizer()
    found = encode_response(tokenizer, "q ab", " xabc")
    assert found.boundary == "joint"
    assert pieces(tokenizer, found.prompt_ids) == ["<s>", "q", " ", "ab"]  # the tokenizer's own end is left off
    assert pieces(tokenizer, found.completion_ids) == [" x", "abc"]
    assert found.spans == ((0, 2), (2, 5))


@pytest.mark.parametrize("trim", [False, True])
@pytest.mark.parametrize(
    ("prompt", "response", "apart"),
    [
        ("qa", "bc", (["<s>", "q", "a"], ["b", "c"])),  # "abc" is one token
        ("q ", "x", (["<s>", "q", " "], ["x"])),  # " x" is one token, whose trimmed offsets begin after the boundary
        ("q.", "\nz", (["<s>", "q", "."], ["\n", "z"])),  # ".\n" is one token, whose trimmed offsets end before it
        ("q\n", "\nz", (["<s>", "q", "\n"], ["\n", "z"])),
    ],
)
def test_a_token_across_the_boundary_splits(
    trim: bool, prompt: str, response: str, apart: tuple[list[str], list[str]]
) -> None:
    tokenizer = byte_tokenizer(trim=trim)
    found = encode_response(tokenizer, prompt, response)
    assert found.boundary == "split"
    assert (pieces(tokenizer, found.prompt_ids), pieces(tokenizer, found.completion_ids)) == apart
    assert found.spans == tuple((index, index + 1) for index in range(len(response)))


def test_of_the_bytes_of_a_character_the_last_has_it() -> None:
    found = encode_response(byte_tokenizer(), "q", "é√z")
    assert found.spans == ((0, 0), (0, 1), (1, 1), (1, 1), (1, 2), (2, 3))


@settings(max_examples=150)
@given(
    st.text(alphabet="abcx .\né", min_size=1, max_size=8),
    st.text(alphabet="abcx .\né", min_size=1, max_size=8),
    st.booleans(),
)
def test_ids_are_the_two_texts_whatever_the_boundary(prompt: str, response: str, trim: bool) -> None:
    tokenizer = byte_tokenizer(trim=trim)
    found = encode_response(tokenizer, prompt, response)
    assert tokenizer.decode(found.prompt_ids[1:]) == prompt
    assert tokenizer.decode(found.completion_ids) == response
    assert [start for start, _ in found.spans] == [0, *(end for _, end in found.spans)][:-1]
    assert found.spans[-1][1] == len(response)
    joint = tokenizer(prompt + response)["input_ids"][:-1]
    clean = tokenizer(prompt)["input_ids"][:-1] == joint[: len(found.prompt_ids)]
    assert (found.boundary == "joint") == clean
    if clean:
        assert [*found.prompt_ids, *found.completion_ids] == joint


def test_words_that_touch_are_tokenised_apart() -> None:
    tokenizer = build_word_tokenizer(["1", "+", "=", "2"])
    found = encode_response(tokenizer, "1 + 1 =", "2")  # as one text the last word would be "=2"
    assert found.boundary == "split"
    assert pieces(tokenizer, found.prompt_ids) == ["<bos>", "1", "+", "1", "="]
    assert pieces(tokenizer, found.completion_ids) == ["2"]
    spaced = encode_response(tokenizer, "1 + 1 =", " 2")
    assert (spaced.prompt_ids, spaced.completion_ids) == (found.prompt_ids, found.completion_ids)
    assert (spaced.boundary, spaced.spans) == ("joint", ((0, 2),))


def test_words_between_which_decoding_may_have_dropped_a_space_are_split() -> None:
    tokenizer = sentence_piece()
    found = encode_response(tokenizer, "Once upon a time", "the cat")
    assert (found.boundary, found.spans[0]) == ("split", (0, 3))
    assert tokenizer.decode([*found.prompt_ids, *found.completion_ids]).endswith("Once upon a timethe cat")
    assert encode_response(tokenizer, "Once upon a time", " the cat").boundary == "joint"
    templated = byte_level(TURNS)
    prompt = templated("<|user|>x<|end|>\n<|assistant|>")["input_ids"]
    assert encode_after_ids(templated, tuple(prompt), "the").boundary == "joint"


def test_after_ids_that_their_text_does_not_give_back() -> None:
    tokenizer = byte_tokenizer()
    a, b = tokenizer("a")["input_ids"][1], tokenizer("b")["input_ids"][1]
    found = encode_after_ids(tokenizer, (a, b), "c")  # the text "ab" has other ids
    assert (found.prompt_ids, pieces(tokenizer, found.completion_ids), found.boundary) == ((a, b), ["c"], "split")
    again = encode_after_ids(tokenizer, (b,), "c")
    assert (again.prompt_ids, again.boundary) == ((b,), "joint")


def test_empty_texts_are_refused() -> None:
    tokenizer = build_word_tokenizer(["1"])
    with pytest.raises(ValueError, match="the response has no tokens"):
        encode_response(tokenizer, "1", " ")
    with pytest.raises(ValueError, match="the response has no tokens"):
        encode_after_ids(tokenizer, (4,), "")
    with pytest.raises(ValueError, match="the prompt has no tokens"):
        encode_response(byte_tokenizer(), "", "a", add_special_tokens=False)


ROWS = [
    {"id": "p1", "problem": "ab", "response": " xc", "correct": True, "gold": "c", "level": 3},
    {"id": "p2", "problem": "x", "response": "abc", "correct": False},
    {"id": "p1", "problem": "ab", "response": "c."},
]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    else:
        text = "\n".join(json.dumps(row) for row in rows) + "\n\n"
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz", "r.json", "r.parquet"])
def test_every_format_gives_the_same_sequences(tmp_path: Path, name: str) -> None:
    tokenizer = byte_tokenizer()
    found = import_responses(write(tmp_path / name, ROWS), tokenizer=tokenizer)
    assert [one.population for one in found.sequences] == ["imported_right", "imported_wrong", "imported"]
    assert [one.correct for one in found.sequences] == [True, False, None]
    assert [one.sequence_id for one in found.sequences] == [0, 1, 2]
    assert {one.label for one in found.sequences} == {"imported"}
    first = found.sequences[0]
    assert (first.problem.id, first.problem.question, first.problem.answer, first.problem.kind) == (
        "p1",
        "ab",
        "c",
        "3",
    )
    assert (first.text, pieces(tokenizer, first.completion_ids), first.wrong) == (" xc", [" x", "c"], {})
    assert pieces(tokenizer, found.sequences[2].completion_ids) == ["c", "."]
    assert [one.problem.metadata["boundary"] for one in found.sequences] == ["joint", "joint", "split"]
    provenance = dict(found.provenance)
    assert len(provenance.pop("sha256")) == 64
    assert provenance == {
        "path": str(tmp_path / name),
        "format": "plain",
        "fields": {},
        "template": "auto",
        "ends": "none",
        "num_responses": 3,
        "num_problems": 2,
        "boundaries": {"joint": 2, "split": 1},
        "task": None,
        "num_left_out": 0,
        "num_cut": 0,
        "unread_turns": {},
        "num_several_turns": 0,
        "num_differing": 0,
        "num_special_texts": 0,
        "num_recorded": 2,
        "num_regraded": 0,
    }


def test_an_object_by_problem_id_with_problems_from_another_file(tmp_path: Path) -> None:
    path = tmp_path / "dpo.json"
    path.write_text(json.dumps({"p2": {"response": "c", "correct": False, "ground_truth": "7"}}))
    problems = tmp_path / "problems.jsonl"
    write(
        problems, [{"unique_id": "p1", "problem": "x", "answer": "8"}, {"unique_id": "p2", "problem": "ab", "level": 4}]
    )
    tokenizer = byte_tokenizer()
    (sequence,) = import_responses(path, tokenizer=tokenizer, problems=read_problems(problems)).sequences
    assert (sequence.problem.id, sequence.problem.question, sequence.problem.answer) == ("p2", "ab", "7")
    assert sequence.problem.kind == "4"
    assert (pieces(tokenizer, sequence.prompt_ids), sequence.problem.metadata["boundary"]) == (["<s>", "ab"], "split")


def test_a_response_without_its_prompt_is_refused(tmp_path: Path) -> None:
    rows = [{"id": f"p{number}", "response": "c"} for number in range(8)]
    path = write(tmp_path / "r.jsonl", [*rows, {"id": "p0", "response": "d"}])
    known = {"p3": Response(problem=Problem(id="p3", family="imported", question="ab", answer=""))}
    message = (
        r"r.jsonl: no prompt for 8 of 9 responses \(problems 'p0', 'p1', 'p2', 'p4', 'p5' and 2 more\); "
        "give the problems' file with --problems, or add a field problem or prompt to each response"
    )
    with pytest.raises(ArtifactError, match=message):
        import_responses(path, tokenizer=byte_tokenizer(), problems=known)


def test_chat_template_raw_and_prompts_as_they_are(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer(template=CHAT)
    path = write(tmp_path / "r.jsonl", [{"id": "a", "question": "x", "response": "abc"}])
    (auto,) = import_responses(path, tokenizer=tokenizer).sequences
    assert pieces(tokenizer, auto.prompt_ids) == ["<|user|>", "x", "<|assistant|>", "\n"]
    assert (auto.problem.question, auto.problem.metadata["boundary"]) == ("x", "joint")
    (raw,) = import_responses(path, tokenizer=tokenizer, template="raw").sequences
    assert pieces(tokenizer, raw.prompt_ids) == ["<s>", "x"]
    given = write(tmp_path / "p.jsonl", [{"id": "a", "prompt": "<s><|user|>y<|assistant|>", "response": "abc"}])
    (own,) = import_responses(given, tokenizer=tokenizer).sequences
    assert pieces(tokenizer, own.prompt_ids) == [
        "<s>",
        "<|user|>",
        "y",
        "<|assistant|>",
    ]  # one begin token, no template


def test_end_of_sequence_only_if_asked_and_once(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    rows = [{"problem": "x", "response": "abc"}, {"problem": "x", "response": "abc</s>"}]
    path = write(tmp_path / "r.jsonl", rows)
    plain = import_responses(path, tokenizer=tokenizer).sequences
    ended = import_responses(path, tokenizer=tokenizer, ends="eos").sequences
    assert [pieces(tokenizer, one.completion_ids) for one in plain] == [["abc"], ["abc", "</s>"]]
    assert [pieces(tokenizer, one.completion_ids) for one in ended] == [["abc", "</s>"]] * 2
    assert ended[0].spans == ((0, 3), (3, 3))
    assert plain[0].problem.id == problem_id("imported", "x")  # no id in the file: one made from the prompt
    chat = byte_level(TURNS)
    by_template = import_responses(path, tokenizer=chat, ends="eos").sequences
    assert pieces(chat, by_template[0].completion_ids) == ["a", "b", "c", "<|end|>"]
    tokenizer.eos_token = None
    with pytest.raises(ConfigError, match="no end-of-sequence token to add"):
        import_responses(path, tokenizer=tokenizer, ends="eos")


def test_ids_are_taken_as_they_are(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    a, b, end = (tokenizer(one)["input_ids"][1] for one in ("a", "b", "</s>"))
    path = write(tmp_path / "r.jsonl", [{"id": "k", "prompt_ids": [a], "completion_ids": [a, b, end], "correct": 1}])
    (one,) = import_responses(path, tokenizer=tokenizer, ends="eos").sequences
    assert (one.prompt_ids, one.completion_ids) == ((a,), (a, b, end))  # not the token "ab", and no second end
    assert (one.text, one.spans, one.problem.question) == ("ab", ((0, 1), (1, 2), (2, 2)), "a")
    assert (one.population, one.problem.metadata["boundary"]) == ("imported_right", "ids")
    path = write(tmp_path / "r.jsonl", [{"id": "k", "prompt_ids": [a], "completion_ids": [9999]}])
    with pytest.raises(ArtifactError, match=r"line 1 has the token id 9999, but the tokenizer has ids below 265 only"):
        import_responses(path, tokenizer=tokenizer)


def test_responses_are_read_up_to_an_id_without_a_token_and_counted(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    a, b = (tokenizer(one)["input_ids"][1] for one in ("a", "b"))
    ids = {"whole": [a, b], "cut": [a, b, 265, a], "none": [265, a], "prompt": [a, b]}
    rows = [
        {"id": name, "prompt_ids": [265, a] if name == "prompt" else [a], "completion_ids": own}
        for name, own in ids.items()
    ]
    read = import_responses(write(tmp_path / "r.jsonl", rows), tokenizer=tokenizer)
    assert [(one.completion_ids, one.text) for one in read.sequences] == [((a, b), "ab"), ((a, b), "ab")]
    assert (read.provenance["num_cut"], read.provenance["num_responses"]) == (3, 2)


def test_steps_are_checked_and_open_responses_graded_for_a_known_family(tmp_path: Path) -> None:
    family = load_family(AdditionTask(digits=2))
    tokenizer = build_word_tokenizer(family.words)
    wrong = "6 + 4 + 0 = 1 0 write 0 carry 0 ; 0 + 0 + 0 = 0 0 write 0 carry 0 ; answer 0 0 0"
    right = wrong.replace("carry 0 ; 0 + 0 + 0 = 0 0 write 0", "carry 1 ; 0 + 0 + 1 = 0 1 write 1").replace(
        "answer 0 0 0", "answer 0 1 0"
    )
    path = write(tmp_path / "r.jsonl", [{"id": "p", "response": f" {text}"} for text in (wrong, right)])
    asked = Problem(id="p", family="imported", question="0 6 + 0 4 =", answer="0 1 0", kind="1 carry")
    problems = {"p": Response(problem=asked)}
    found = import_responses(path, tokenizer=tokenizer, problems=problems, family=family).sequences
    assert [dict(one.wrong) for one in found] == [{11: "1"}, {}]
    assert [one.population for one in found] == ["imported_wrong", "imported_right"]
    assert [one.extracted for one in found] == ["0 0 0", "0 1 0"]
    assert (found[0].problem.family, found[0].problem.kind) == ("addition", "1 carry")
    unknown = import_responses(path, tokenizer=tokenizer, problems=problems).sequences
    assert [(dict(one.wrong), one.population) for one in unknown] == [({}, "imported")] * 2


def test_words_the_tokenizer_does_not_have_are_refused(tmp_path: Path) -> None:
    tokenizer = build_word_tokenizer(["1"])
    for row, what in (
        ({"problem": "1", "response": " two"}, "response"),
        ({"problem": "two", "response": " 1"}, "prompt"),
    ):
        path = write(tmp_path / "r.jsonl", [{"id": "k", **row}])
        with pytest.raises(
            ArtifactError, match=f"line 1: the tokenizer has no token for a word of the {what}; give models"
        ):
            import_responses(path, tokenizer=tokenizer)


PROSE = "Ann has 3 cats. Bob has 2.\n1. So they have 6! Done."


@pytest.mark.parametrize(
    ("label", "wrong", "sentence"),
    [  # the tokenizer has a token for a full stop with the end of its line
        ({"first_wrong": 38}, "h", ""),
        ({"first_wrong": [38, 42]}, "have", ""),
        ({"first_wrong": [43, 45]}, "6!", ""),
        ({"first_wrong": [38, 44]}, "", "1. So they have 6!"),
        ({"first_wrong": [20, 44]}, "", " Bob has 2.\n1. So they have 6!"),
        ({"first_wrong": [46, 51]}, "", " Done."),  # of one word, but a whole sentence
        ({"first_wrong": -1}, "", ""),
        ({"first_wrong_sentence": 0}, "", "Ann has 3 cats."),
        ({"first_wrong_sentence": "2"}, "", "1. So they have 6!"),
        ({"first_wrong_sentence": 3}, "", " Done."),
        ({"first_wrong_sentence": 1, "step_starts": [0, 27]}, "", "1. So they have 6! Done."),
        ({"first_wrong_sentence": "0", "step_starts": ["0", 27.0]}, "", "Ann has 3 cats. Bob has 2.\n"),
        ({"first_wrong_sentence": -1, "step_starts": [0, 27]}, "", ""),
        ({"first_wrong_sentence": None}, "", ""),
        ({"step_starts": [0, 27]}, "", ""),
        ({}, "", ""),
    ],
)
def test_the_first_wrong_step_is_where_the_file_says_and_no_finer(
    tmp_path: Path, label: dict[str, Any], wrong: str, sentence: str
) -> None:
    row = {"id": "a", "problem": "How many?", "response": PROSE, "correct": False, **label}
    (found,) = import_responses(write(tmp_path / "r.jsonl", [row]), tokenizer=byte_tokenizer()).sequences
    assert "".join(PROSE[slice(*found.spans[position])] for position in found.wrong) == wrong
    assert set(found.wrong.values()) <= {""}  # what a right step has there is not known
    assert sentence_of(found) == sentence
    assert bool(found.sentence_starts) == bool(sentence)


def sentence_of(found: Response) -> str:
    """Return the text of the sentence that is known to be wrong, and check that the others have all else."""
    if found.wrong_sentence is None:
        return ""
    assert found.sentence_starts[0] == 0
    ends = [*found.sentence_starts, len(found.spans)]
    assert {found.sentence_at(at) for at in range(len(found.spans))} == set(range(len(found.sentence_starts)))
    spans = found.spans[ends[found.wrong_sentence] : ends[found.wrong_sentence + 1]]
    return (found.text or "")[spans[0][0] : spans[-1][1]]


@pytest.mark.parametrize(
    ("spans", "starts", "wrong"),
    [
        # "Hmm.", " Noo.", " So it is.": each begins with a token, or a token holds the second and part of others.
        ([(0, 4), (4, 9), (9, 19)], (0, 1, 2), (0, 1, 2)),
        ([(0, 9), (9, 19)], (0, 1), (0, 0, 1)),
        ([(0, 2), (2, 12), (12, 19)], (0, 2), (0, 0, 1)),
        ([(0, 19), (19, 19)], (0, 1), (0, 0, 1)),  # the end of the sequence is of the last
        ([(0, 19)], (0,), (0, 0, 0)),
    ],
)
def test_a_sentence_without_a_token_of_its_own_is_part_of_the_one_before(
    spans: list[tuple[int, int]], starts: tuple[int, ...], wrong: tuple[int, ...]
) -> None:
    for number, expected in enumerate(wrong):
        labelled = Response(
            problem=Problem(id="p", family="x", question="q", answer=""), extra={"first_wrong_sentence": number}
        )
        assert _labelled(labelled, "Hmm. Noo. So it is.", spans) == {
            "sentence_starts": starts,
            "wrong_sentence": expected,
        }


def test_labels_of_processbench(tmp_path: Path) -> None:
    rows = [
        {
            "id": "g-0",
            "generator": "m",
            "problem": "1+1?",
            "steps": ["It is 3.", "So 3."],
            "final_answer_correct": False,
        }
        | {"label": label}
        for label in (0, 1, -1)
    ]
    found = import_responses(write(tmp_path / "p.json", rows), tokenizer=byte_tokenizer())
    assert found.provenance["format"] == "processbench"
    assert {(one.text, one.correct, one.label) for one in found.sequences} == {("It is 3.\n\nSo 3.", False, "imported")}
    assert [sentence_of(one) for one in found.sequences] == ["It is 3.", "\n\nSo 3.", ""]
    # Steps without a text are no places of their own, and cannot be what is wrong.
    empty = [{**rows[0], "steps": ["It is 3.", "", "So 3.", ""], "label": label} for label in (0, 2, 1)]
    found = import_responses(write(tmp_path / "e.json", empty[:2]), tokenizer=byte_tokenizer())
    assert [sentence_of(one).strip() for one in found.sequences] == ["It is 3.", "So 3."]
    with pytest.raises(ArtifactError, match="first_wrong_sentence is 1, but the response has steps 0 to 3; name one"):
        import_responses(write(tmp_path / "f.json", empty[2:]), tokenizer=byte_tokenizer())
    assert not any(one.wrong for one in found.sequences)  # which token of a step is wrong is not known


GOOD = '{"id": "a", "problem": "x", "response": "y"}'


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("r.jsonl", f"{GOOD}\n{{oops", "r.jsonl, line 2 is not JSON: Expecting property name"),
        ("r.jsonl", "\n[1]", "r.jsonl, line 2 is not an object with named fields"),
        ("r.jsonl", "", "r.jsonl has no records"),
        ("r.jsonl", '{"id": "a", "problem": "x"}', "line 1 has no response (nor completion_ids)"),
        ("r.jsonl", '{"response": "y"}', "line 1 has neither an id nor a prompt"),
        ("r.jsonl", '{"id": "a", "problem": "", "response": "y"}', "line 1: problem is empty"),
        ("r.jsonl", '{"id": "a", "problem": "x", "response": ""}', "line 1: response is empty"),
        ("r.jsonl", '{"id": "a", "problem": "x", "response": ["y"]}', "line 1: response must be text, got ['y']"),
        ("r.jsonl", '{"id": "a", "prompt": [{"role": "user"}], "response": "y"}', "line 1: prompt must be text"),
        (
            "r.jsonl",
            '{"id": "a", "problem": "x", "response": "y", "correct": "no"}',
            "correct must be true, false or null",
        ),
        ("r.jsonl", '{"id": true, "problem": "x", "response": "y"}', "id must be text or a number, got True"),
        ("r.jsonl", '{"prompt_ids": [1], "response": "y"}', "line 1 has prompt_ids but no completion_ids"),
        ("r.jsonl", '{"prompt": "x", "completion_ids": [1]}', "line 1 has completion_ids but no prompt_ids"),
        (
            "r.jsonl",
            '{"prompt_ids": [], "completion_ids": [1]}',
            "prompt_ids must be a list of token ids with at least",
        ),
        ("r.jsonl", '{"prompt_ids": [1], "completion_ids": [-1]}', "completion_ids must be a list of token ids"),
        ("r.jsonl", f"{GOOD}\n{GOOD.replace('x', 'z')}", "line 2: the id 'a' occurs with two different prompts"),
        ("r.json", '{"a": {"response": "y"}, "b": 3}', "is neither a list of records nor an object"),
        ("r.json", '[{"id": "a", "problem": "x"}]', "r.json, record 1 has no response"),
        ("r.json", '{"a": {"problem": "x"}}', "r.json, entry 'a' has no response"),
        ("r.json", "{", "r.json is not JSON"),
        (
            "r.jsonl",
            GOOD[:-1] + ', "first_wrong_sentence": 1}',
            "line 1: first_wrong_sentence is 1, but the response has sentences 0 to 0; name one of them",
        ),
        (
            "r.jsonl",
            GOOD[:-1] + ', "first_wrong_sentence": 1, "step_starts": [0, 2]}',
            "begin, ascending, the first 0 and none beyond 1, got [0, 2]",
        ),
        (
            "r.jsonl",
            GOOD[:-1] + ', "first_wrong_sentence": 0, "step_starts": "x"}',
            "line 1: step_starts must list the characters at which steps of the response begin, ascending, the first",
        ),
        (
            "r.jsonl",
            GOOD[:-1] + ', "first_wrong": 9}',
            "line 1: first_wrong is 9, but the response has characters 0 to 0; name",
        ),
        (
            "r.jsonl",
            GOOD[:-1] + ', "first_wrong": "in the end"}',
            "first_wrong must be a whole number, or two for a piece",
        ),
        (
            "r.jsonl",
            '{"id": "a", "problem": "x", "steps": ["y"], "label": 1}',
            "line 1: label is 1, but must be the number of the first wrong step, from 0 to 0, or -1",
        ),
        (
            "r.json",
            '{"a": {"problem": "x", "response": "y"}, "a": {"problem": "x", "response": "z"}}',
            "the name 'a' occurs twice in one object; give a list of records instead",
        ),
        ("r.jsonl.gz", "plain text", "r.jsonl.gz cannot be read: Not a gzipped file"),
        ("r.parquet", "plain text", "r.parquet is damaged"),
        ("r.txt", "id,response", "r.txt: unknown file ending; give a file that ends in .json, .jsonl, .csv"),
        ("r.csv", "id,response", "r.csv has no records"),
    ],
)
def test_wrong_files(tmp_path: Path, name: str, content: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(ArtifactError) as caught:
        import_responses(path, tokenizer=byte_tokenizer())
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["none.jsonl", "none.parquet"])
def test_missing_files(tmp_path: Path, name: str) -> None:
    with pytest.raises(ArtifactError, match=f"{name} does not exist"):
        read_responses(tmp_path / name)


def test_field_names(tmp_path: Path) -> None:
    path = write(tmp_path / "r.jsonl", [{"id": "a", "q": "x", "text": "y", "response": "not this"}])
    (record,) = read_responses(path, fields=parse_fields(["response=text", "problem = q"]))
    assert (record.text, record.problem.question) == ("y", "x")
    with pytest.raises(
        ArtifactError, match=r"has no field 'txt' \(--field response=txt\); did you mean 'text'\?; it has"
    ):
        read_responses(path, fields={"response": "txt"})
    with pytest.raises(ConfigError, match="unknown name 'respons'; did you mean 'response'"):
        parse_fields(["respons=text"])
    with pytest.raises(ConfigError, match="is not of the form NAME=FIELD"):
        parse_fields(["response"])


def test_wrong_problem_files(tmp_path: Path) -> None:
    cases = {
        "has no id": [{"problem": "x"}],
        "has no problem, question, prompt, messages or prompt_ids": [{"id": "a"}],
        "line 2: the id 'a' occurs twice with different prompts": [
            {"id": "a", "problem": "x"},
            {"id": "a", "problem": "y"},
        ],
    }
    for message, rows in cases.items():
        with pytest.raises(ArtifactError) as caught:
            read_problems(write(tmp_path / "p.jsonl", rows))
        assert message in str(caught.value)
    (one,) = read_problems(write(tmp_path / "p.jsonl", [{"id": 7, "problem": "x", "answer": 4}] * 2)).values()
    assert (one.problem.id, one.problem.answer) == ("7", "4")


def test_messages_and_the_beginning_of_the_answer_are_part_of_the_prompt(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer(template=CHAT)
    row = {"id": "a", "messages": [["system", "b"], ["user", "x"], ["assistant", "abc"]]}
    (chat,) = import_responses(write(tmp_path / "r.jsonl", [row]), tokenizer=tokenizer).sequences
    assert pieces(tokenizer, chat.prompt_ids) == ["<|user|>", "b", "<|user|>", "x", "<|assistant|>", "\n"]
    assert pieces(tokenizer, chat.completion_ids) == ["abc"]
    asked = Problem(id="a", family="imported", question="x", answer="", messages=(("user", "x"),), prefix="z")
    known = {"a": Response(problem=asked)}
    bare = write(tmp_path / "b.jsonl", [{"id": "a", "response": "abc"}])
    (begun,) = import_responses(bare, tokenizer=tokenizer, problems=known).sequences
    assert pieces(tokenizer, begun.prompt_ids)[-3:] == ["<|assistant|>", "\n", "z"]
    (text,) = import_responses(bare, tokenizer=tokenizer, problems=known, template="raw").sequences
    assert pieces(tokenizer, text.prompt_ids) == ["<s>", "x", "ĊĊ".replace("Ċ", "\n"), "z"]


def test_open_responses_of_a_known_family_are_graded(tmp_path: Path) -> None:
    tokenizer = build_word_tokenizer(load_family(AdditionTask(digits=2)).words)
    rows = [
        {"family": "addition", "question": "0 6 + 0 4 =", "gold": "0 1 0", "response": text}
        for text in (" answer 0 1 0", " answer 0 0 0", " carry")
    ]
    found = import_responses(write(tmp_path / "r.jsonl", rows), tokenizer=tokenizer).sequences
    assert [one.population for one in found] == ["imported_right", "imported_wrong", "imported_wrong"]
    assert [one.extracted for one in found] == ["0 1 0", "0 0 0", None]
    without = write(tmp_path / "w.jsonl", [{**row, "gold": None} for row in rows])
    for one in import_responses(without, tokenizer=tokenizer).sequences:
        assert (one.problem.family, one.population) == ("imported", "imported")


def test_what_the_grader_failed_at_is_neither_right_nor_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = build_word_tokenizer(load_family(AdditionTask(digits=2)).words)
    rows = [{"family": "addition", "question": "0 6 + 0 4 =", "gold": "0 1 0", "response": " answer 0 1 0"}] * 3
    rewards = [Reward(value=None, status=status) for status in ("timeout", "error", "unparsed")]
    monkeypatch.setattr("swerve.probe.rollouts.imported.grade_all", lambda pairs: rewards)
    found = import_responses(write(tmp_path / "r.jsonl", rows), tokenizer=tokenizer).sequences
    assert [(one.correct, one.population) for one in found] == [
        (None, "imported"),
        (None, "imported"),
        (False, "imported_wrong"),
    ]


def test_the_answer_in_a_box_is_read_where_the_file_gives_the_verdict_alone(tmp_path: Path) -> None:
    rows = [
        {"id": "p1", "problem": "ab", "response": r"x \boxed{7}", "correct": True},
        {"id": "p2", "problem": "ac", "response": r"x \boxed{7}", "correct": False, "extracted": "8"},
        {"id": "p3", "problem": "ad", "response": "x", "correct": False},
    ]
    rows[2] |= {"kind": "AIME 2024", "difficulty": 3}
    found = import_responses(write(tmp_path / "r.jsonl", rows), tokenizer=byte_tokenizer()).sequences
    assert [one.extracted for one in found] == ["7", "8", None]
    assert [one.problem.difficulty for one in found] == [None, None, 3.0]


def test_answers_from_outside_are_read_in_any_form(tmp_path: Path) -> None:
    rows = [
        {"family": "math", "problem": "1 + 1?", "gold": "2", "response": text}
        for text in ("so it is\n#### 2", "the answer is 3.", "I do not know")
    ]
    found = import_responses(write(tmp_path / "r.jsonl", rows), tokenizer=byte_tokenizer()).sequences
    assert [(one.population, one.extracted) for one in found] == [
        ("imported_right", "2"),
        ("imported_wrong", "3"),
        ("imported_wrong", None),
    ]


def test_a_table_is_taken_with_its_ids_and_offsets(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    direct = import_responses(write(tmp_path / "r.jsonl", ROWS), tokenizer=tokenizer)
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    options: dict[str, Any] = {"problems": None, "dialect": "auto", "fields": (), "task": None}
    table = tmp_path / "t.parquet"
    import_rollouts(tmp_path / "r.jsonl", out=table, tokenizer=str(tmp_path / "tokenizer"), **options)
    again = import_responses(table, tokenizer=tokenizer)
    of_files: dict[str, Any] = {"place": "", "dialect": "", "sample": 0}
    assert [replace(one, **of_files) for one in again.sequences] == [
        replace(one, **of_files) for one in direct.sequences
    ]
    assert dict(again.provenance["boundaries"]) == {"joint": 2, "split": 1}
    other = build_word_tokenizer(["ab", "x", "abc"])
    with pytest.raises(MismatchError, match=r"t.parquet holds the token ids of another tokenizer \(tokenizer\)"):
        import_responses(table, tokenizer=other)


@pytest.mark.slow
def test_real_responses_with_a_real_tokenizer(shared_data: Callable[[str], Path]) -> None:
    path = shared_data("rl_probe") / "responses.jsonl.gz"
    tokenizer = AutoTokenizer.from_pretrained(shared_data("tiny_models") / "stories260K" / "hf")
    found = import_responses(path, tokenizer=tokenizer)
    rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    assert len(found.sequences) == len(rows) == 339
    assert found.provenance["num_problems"] == len({row["problem_id"] for row in rows}) == 117
    for sequence, row in zip(found.sequences, rows, strict=True):
        assert sequence.population == ("imported_right" if row["correct"] else "imported_wrong")
        assert tokenizer.decode(sequence.prompt_ids, skip_special_tokens=True) == row["problem"]
        assert tokenizer.decode([*sequence.prompt_ids, *sequence.completion_ids], skip_special_tokens=True) == (
            row["problem"] + row["response"]
        )
        assert "".join(sequence.text[start:end] for start, end in sequence.spans) == row["response"]


def several_turns(path: Path) -> Path:
    """A conversation with a tool, and one whose reasoning stands in an earlier turn."""
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}
    asked = {"role": "user", "content": "2 + 2?"}
    tool = [{"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "content": "5 it says."}]
    said = {"role": "assistant", "content": r"\boxed{4}"}
    thought = [{**said, "reasoning_content": "two and two"}, {"role": "tool", "content": "Sure?"}]
    rows = [{"id": "a", "gold": "4", "correct": True, "messages": [asked, *tool, said]}]
    rows.append({"id": "b", "gold": "4", "messages": [asked, *thought, said]})
    write_json_lines(path, rows)
    return path


def test_turns_without_ids_go_through_the_chat_template_and_only_what_the_model_wrote_is_graded(tmp_path: Path) -> None:
    tokenizer = byte_level(CALLS)
    read = import_responses(several_turns(tmp_path / "turns.jsonl"), tokenizer=tokenizer, regrade=True)
    (sequence,) = read.sequences
    runs = pieces(tokenizer, [sequence.completion_ids[place] for place in sequence.sampled_positions])
    assert "".join(runs) == '<call>add {"a": 2}<|end|>' + r"\boxed{4}"
    assert "".join(pieces(tokenizer, sequence.prompt_ids)) == "<|user|>2 + 2?<|end|>\n<|assistant|>"
    assert (sequence.correct, sequence.extracted, set(sequence.turn_numbers)) == (True, "4", {1, 2})
    assert sequence.text is not None
    assert "5 it says." in sequence.text
    assert len(sequence.spans) == len(sequence.completion_ids) == len(sequence.sampled)
    assert read.provenance["num_several_turns"] == 1
    assert list(read.provenance["unread_turns"].values()) == [1]


@pytest.mark.parametrize("template", [CALLS, TURNS, None])
def test_a_thought_kept_apart_has_the_tokens_of_one_within_the_text(template: str | None, tmp_path: Path) -> None:
    before, between = ("<think>", "</think>") if template == CALLS else ("<think>\n", "\n</think>\n\n")
    asked = {"id": "a", "question": "2 + 2?", "gold": "4", "correct": True}
    rows = {
        "inline": {**asked, "response": rf"{before}two and two{between}\boxed{{4}}"},
        "apart": {**asked, "response": r"\boxed{4}", "reasoning": "two and two"},
    }
    found = []
    for name, row in rows.items():
        path = tmp_path / f"{name}.jsonl"
        path.write_text(json.dumps(row))
        (sequence,) = import_responses(path, tokenizer=byte_level(template)).sequences
        found.append((sequence.prompt_ids, sequence.completion_ids, sequence.text, sequence.spans, sequence.written))
    assert found[0] == found[1]


def test_a_table_of_turns_is_read_as_the_file_it_was_made_from(tmp_path: Path) -> None:
    path, out, tokenizer = several_turns(tmp_path / "turns.jsonl"), tmp_path / "table.parquet", byte_level(CALLS)
    tokenizer.save_pretrained(tmp_path / "words")
    result = import_rollouts(path, out=out, tokenizer=str(tmp_path / "words"))
    assert "without token ids: the chat template, or none, leaves out" in result.text
    row, other = pq.read_table(out).to_pylist()
    assert (row["text"], row["token_starts"], other["completion_ids"]) == (r"\boxed{4}", None, None)
    (direct,), (again,) = (import_responses(one, tokenizer=tokenizer, regrade=True).sequences for one in (path, out))
    for name in ("prompt_ids", "completion_ids", "sampled", "text", "spans", "correct", "turns"):
        assert getattr(direct, name) == getattr(again, name), name


def test_ids_of_turns_end_before_an_unknown_one_and_say_where_the_text_is_another(tmp_path: Path) -> None:
    tokenizer, path = byte_level(CALLS), tmp_path / "ids.parquet"
    ids = [*tokenizer("ab").input_ids, *tokenizer("tool").input_ids, *tokenizer("cd").input_ids, 9999]
    sampled = [True, True, *[False] * 4, True, True, True]
    row = {"problem_id": "a", "prompt_ids": [2, 3], "completion_ids": ids, "sampled": sampled, "text": "no"}
    pq.write_table(pa.Table.from_pylist([row]), path)
    read = import_responses(path, tokenizer=tokenizer)
    (sequence,) = read.sequences
    assert (sequence.text, sequence.sampled) == ("abtoolcd", tuple(sampled[:-1]))
    assert (read.provenance["num_cut"], read.provenance["num_differing"]) == (1, 1)


def long_among(folder: Path, *numbers: int) -> Path:
    """Write three responses, those of some numbers longer than a tokenizer may be asked for."""
    rows = [
        {"id": f"p{n}", "question": f"{n} x?", "response": "ab" * 1_010 if n in numbers else "abc", "correct": True}
        for n in range(3)
    ]
    path = write_json_lines(folder / "r.jsonl", rows)
    return path


def failing_on_long(function: Any, items: Any, limits: Any, *, num_chars: int) -> list[Any]:
    """Do what `call_each` does where the tokenizer reaches its limit on long texts."""
    for number, (record, *_) in enumerate(items):
        if len(record.text) > 2_000:
            raise BoundedCallError(End("limit", "CPU time limit 2 s"), number=number)
    return [function(item) for item in items]


def test_a_response_that_is_too_long_for_the_tokenizer_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("swerve.probe.rollouts.encoder.call_each", failing_on_long)
    short = replace(shared_limits(), max_chars=2_000)
    monkeypatch.setattr("swerve.probe.rollouts.encoder.shared_limits", lambda: short)
    tokenizer = byte_level(CALLS)
    tokenizer.save_pretrained(tmp_path / "words")
    for numbers in ((0,), (1,), (0, 2)):
        path = long_among(tmp_path, *numbers)
        read = import_responses(path, tokenizer=tokenizer)
        assert [one.problem.id for one in read.sequences] == [f"p{n}" for n in range(3) if n not in numbers]
        assert read.provenance["unread_turns"] == {
            f"too long for the tokenizer, CPU time limit 2 s: 'p{n}' ({path}, line {n + 1})": 1 for n in numbers
        }
        result = import_rollouts(path, out=tmp_path / "t.parquet", tokenizer=str(tmp_path / "words"))
        assert f"too long for the tokenizer, CPU time limit 2 s: 'p{numbers[0]}'" in result.text
        rows = pq.read_table(tmp_path / "t.parquet").to_pylist()
        assert [row["completion_ids"] is None for row in rows] == [n in numbers for n in range(3)]
    path = long_among(tmp_path, 0, 1, 2)
    with pytest.raises(ArtifactError, match="none of its 3 responses can be read as tokens: too long for the token"):
        import_responses(path, tokenizer=tokenizer)
    with pytest.raises(ArtifactError, match="none of its 3 responses can be read as tokens: too long for the token"):
        import_rollouts(path, out=tmp_path / "t.parquet", tokenizer=str(tmp_path / "words"))


def test_a_response_with_more_tokens_than_the_models_read_is_left_out(tmp_path: Path) -> None:
    path, tokenizer = long_among(tmp_path, 1), byte_level(CALLS)
    read = import_responses(path, tokenizer=tokenizer, most_tokens=100)
    assert [one.problem.id for one in read.sequences] == ["p0", "p2"]
    ((reason, num),) = read.provenance["unread_turns"].items()
    assert num == 1
    assert reason.startswith("longer than the 100 tokens that each of the models can read: 'p1' with ")
    with pytest.raises(ArtifactError, match="none of its 3 responses can be read as tokens: longer than the 2 tokens"):
        import_responses(path, tokenizer=tokenizer, most_tokens=2)
