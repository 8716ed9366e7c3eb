from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swerve.artifacts.files import write_json
from swerve.artifacts.run import CheckpointRef, RunDirectory
from swerve.artifacts.tables import SEQUENCES_SCHEMA, read_table, write_table
from swerve.config import AdditionTask
from swerve.errors import ArtifactError, MismatchError
from swerve.models.tiny import build_word_tokenizer
from swerve.probe.population import (
    probe_sequences,
    read_evaluation,
    reference_wrong_final_right,
    sequence_rows,
)
from swerve.probe.spans import marked_positions, token_spans
from swerve.problems import load_family
from swerve.types import StepMark

FAMILY = load_family(AdditionTask(digits=2))
TOKENIZER = build_word_tokenizer(FAMILY.words)
QUESTION = "0 6 + 0 4 ="
FORGOTTEN = "6 + 4 + 0 = 1 0 write 0 carry 0 ; 0 + 0 + 0 = 0 0 write 0 carry 0 ; answer 0 0 0"


def row(problem_id: str = "p", *, text: str = FORGOTTEN, correct: bool = False) -> dict[str, Any]:
    return {
        "problem_id": problem_id,
        "kind": "1 carry",
        "question": QUESTION,
        "gold": "0 1 0",
        "prompt_ids": TOKENIZER(QUESTION)["input_ids"],
        "completion_ids": [*TOKENIZER(text, add_special_tokens=False)["input_ids"], TOKENIZER.eos_token_id],
        "text": text,
        "extracted": "0 0 0",
        "status": "graded",
        "correct": correct,
        "trace_right": False,
        "num_tokens": 28,
        "entropy": 0.1,
        "sampled_reward": 0.0,
        "num_samples": 2,
    }


def test_the_forgotten_carry_is_the_only_wrong_position() -> None:
    (sequence,) = probe_sequences([row()], family=FAMILY, tokenizer=TOKENIZER)
    assert FORGOTTEN.split()[11] == "0"
    assert dict(sequence.wrong) == {11: "1"}
    assert sequence.first_wrong == 11
    start, end = sequence.spans[11]
    assert sequence.text[start:end] == " 0"
    assert sequence.spans[-1] == (len(FORGOTTEN), len(FORGOTTEN))  # end of sequence: a position without characters


def test_sequences_table(tmp_path: Path) -> None:
    sequences = probe_sequences([row("a"), row("b")], family=FAMILY, tokenizer=TOKENIZER)
    write_table(tmp_path / "sequences.parquet", sequence_rows(sequences), SEQUENCES_SCHEMA)
    stored = read_table(tmp_path / "sequences.parquet", SEQUENCES_SCHEMA).to_pylist()
    assert [(one["sequence_id"], one["problem_id"], one["first_wrong"]) for one in stored] == [
        (0, "a", 11),
        (1, "b", 11),
    ]
    assert stored[0]["wrong_positions"] == [11]
    assert stored[0]["wrong_expected"] == ["1"]
    assert stored[0]["completion_ids"] == row()["completion_ids"]
    pieces = zip(stored[0]["token_starts"], stored[0]["token_ends"], strict=True)
    assert "".join(FORGOTTEN[start:end] for start, end in pieces) == FORGOTTEN


def test_selection_keeps_the_order_and_counts() -> None:
    reference = [row("a"), row("b", correct=True), row("c"), row("d")]
    final = [row("d", correct=True), row("c"), row("b", correct=True), row("a", correct=True)]
    population = reference_wrong_final_right(reference, final)
    assert [one["problem_id"] for one in population.rows] == ["a", "d"]
    assert (population.num_problems, population.num_reference_wrong) == (4, 3)
    with pytest.raises(MismatchError, match="of different problems"):
        reference_wrong_final_right(reference, final[1:])


def checkpoint(run: RunDirectory, digest: str) -> CheckpointRef:
    return CheckpointRef(
        path=run.checkpoint_path(8),
        step=8,
        stage="dpo",
        stage_step=8,
        scheduled=True,
        final=True,
        weights_sha256=digest,
    )


def test_missing_and_stale_evaluations_are_refused(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    reference = checkpoint(run, "abc")
    with pytest.raises(ArtifactError, match=rf"dpo-8 has no evaluation .*; run swerve eval {tmp_path} first"):
        read_evaluation(run, reference)
    from swerve.artifacts.tables import EVALUATION_SCHEMA

    path = run.evaluation_path(reference)
    write_table(path.with_suffix(".parquet"), [row("a")], EVALUATION_SCHEMA)
    write_json(path, {"weights_sha256": "abc"})
    assert [one["problem_id"] for one in read_evaluation(run, reference)] == ["a"]
    with pytest.raises(ArtifactError, match="is of other weights than dpo-8; run swerve eval"):
        read_evaluation(run, checkpoint(run, "def"))


SPANS = [(0, 3), (3, 5), (5, 9), (9, 9)]


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ([(4, 5, "x")], {1: "x"}),
        ([(2, 6, "x")], {0: "x", 1: "x", 2: "x"}),
        ([(6, 7, "b"), (1, 2, "a")], {0: "a", 2: "b"}),
        ([(0, 1, "a"), (1, 2, "b")], {0: "a"}),
        ([(9, 9, "more")], {3: "more"}),  # the text ends too early: its end is wrong
        ([], {}),
    ],
)
def test_marks_fall_on_tokens(marks: list[tuple[int, int, str]], expected: dict[int, str]) -> None:
    found = marked_positions([StepMark(start=a, end=b, expected=c) for a, b, c in marks], SPANS)
    assert found == expected
    assert list(found) == sorted(found)


@settings(deadline=None)
@given(st.lists(st.integers(0, len(TOKENIZER) - 1), max_size=20))
def test_spans_touch_and_cover_the_text(ids: list[int]) -> None:
    text = TOKENIZER.decode(ids, skip_special_tokens=True)
    spans = token_spans(TOKENIZER, ids, text)
    assert len(spans) == len(ids)
    assert [start for start, _ in spans] == [0, *(end for _, end in spans)][: len(spans)]
    if ids:
        assert spans[-1][1] == len(text)
    special = set(TOKENIZER.all_special_ids)
    kept = [TOKENIZER.decode([token]) for token in ids if token not in special]
    assert [text[start:end].strip() for start, end in spans if end > start] == kept


def test_spans_of_byte_level_tokens(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE({symbol: index for index, symbol in enumerate(alphabet)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    ids = tokenizer("aé√ b")["input_ids"]
    assert len(ids) == 8
    spans = token_spans(tokenizer, ids, "aé√ b")
    assert spans == [(0, 1), (1, 1), (1, 2), (2, 2), (2, 2), (2, 3), (3, 4), (4, 5)]
    cut = ids[:4]  # ends inside a character: the text ends with a replacement character
    text = tokenizer.decode(cut)
    assert token_spans(tokenizer, cut, text) == [(0, 1), (1, 1), (1, 2), (2, len(text))]
