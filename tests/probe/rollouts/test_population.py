from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swerve.artifacts.checkpoint import CheckpointRef
from swerve.artifacts.response_columns import EVALUATION_SCHEMA, SEQUENCES_SCHEMA
from swerve.artifacts.responses import Response, write_responses
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import read_table
from swerve.config.probe import ProbeConfig
from swerve.errors import ArtifactError, ConfigError, MismatchError
from swerve.models.tiny import build_word_tokenizer
from swerve.probe.rollouts.population import (
    probe_sequences,
    read_evaluated,
    select_rollouts,
)
from swerve.probe.rollouts.selection import Selection
from swerve.probe.rollouts.tokenise import marked_positions, token_spans
from swerve.problems import load_family
from swerve.problems.addition import AdditionTask
from swerve.types import Problem, StepMark
from tests.builders import write_evaluation

FAMILY = load_family(AdditionTask(digits=2))
TOKENIZER = build_word_tokenizer(FAMILY.words)
QUESTION = "0 6 + 0 4 ="
FORGOTTEN = "6 + 4 + 0 = 1 0 write 0 carry 0 ; 0 + 0 + 0 = 0 0 write 0 carry 0 ; answer 0 0 0"


def row(problem_id: str = "p", *, text: str = FORGOTTEN, **known: Any) -> Response:
    ids = [*TOKENIZER(text, add_special_tokens=False)["input_ids"], TOKENIZER.eos_token_id]
    values: dict[str, Any] = {
        "problem": Problem(id=problem_id, family="addition", question=QUESTION, answer="0 1 0", kind="1 carry"),
        "prompt_ids": tuple(TOKENIZER(QUESTION)["input_ids"]),
        "completion_ids": tuple(ids),
        "temperature": 0.0,
        "sample": 0,
    }
    return Response(text=text, **{**values, **known})


def test_the_forgotten_carry_is_the_only_wrong_position() -> None:
    (sequence,) = probe_sequences([row()], family=FAMILY, tokenizer=TOKENIZER)
    assert FORGOTTEN.split()[11] == "0"
    assert dict(sequence.wrong) == {11: "1"}
    assert sequence.first_wrong == 11
    start, end = sequence.spans[11]
    assert sequence.text[start:end] == " 0"
    assert sequence.spans[-1] == (len(FORGOTTEN), len(FORGOTTEN))  # end of sequence: a position without characters


def test_sequences_table(tmp_path: Path) -> None:
    rollouts = [
        row("a", population="reference_wrong_final_right", label="dpo-8"),
        row("b", population="checkpoint_wrong", label="rl-80"),
    ]
    sequences = probe_sequences(rollouts, family=FAMILY, tokenizer=TOKENIZER)
    write_responses(tmp_path / "sequences.parquet", sequences, SEQUENCES_SCHEMA)
    stored = read_table(tmp_path / "sequences.parquet", SEQUENCES_SCHEMA).to_pylist()
    assert [(one["sequence_id"], one["problem_id"], one["first_wrong"]) for one in stored] == [
        (0, "a", 11),
        (1, "b", 11),
    ]
    assert [(one["population"], one["label"]) for one in stored] == [(one.population, one.label) for one in rollouts]
    assert stored[0]["wrong_positions"] == [11]
    assert stored[0]["wrong_expected"] == ["1"]
    assert tuple(stored[0]["completion_ids"]) == row().completion_ids
    pieces = zip(stored[0]["token_starts"], stored[0]["token_ends"], strict=True)
    assert "".join(FORGOTTEN[start:end] for start, end in pieces) == FORGOTTEN


LABELS = ("dpo-8", "rl-80")


def select_two(reference: list[Response], final: list[Response], config: ProbeConfig, **options: Any) -> Selection:
    return select_rollouts(reference, final, config, **{"labels": LABELS, **options})


def evaluated(right: str, *, samples: dict[str, str] | None = None) -> list[Response]:
    """Rows of problems a, b, c ...; `right` and `samples` have R and W, one a greedy completion or a sample."""
    names = "abcdefgh"[: len(right)]
    greedy = [row(name, correct=mark == "R") for name, mark in zip(names, right, strict=True)]
    drawn = [
        row(name, correct=mark == "R", sample=number, temperature=1.0)
        for name in names
        for number, mark in enumerate((samples or {}).get(name, ""))
    ]
    return [*greedy, *drawn]


EVERYTHING = ProbeConfig(populations=("reference_wrong", "reference_right", "checkpoint_right", "checkpoint_wrong"))


def picked(selection: Selection) -> list[tuple[str, str, str]]:
    return [(one.population, one.label or "", one.problem.id) for one in selection.rollouts]


def test_greedy_selection_keeps_the_order_and_counts() -> None:
    reference = evaluated("WRWW")
    final = evaluated("RRWR")
    shuffled = final[::-1]
    selection = select_two(reference, shuffled, EVERYTHING)
    assert picked(selection) == [
        ("reference_wrong_final_right", "dpo-8", "a"),
        ("reference_wrong_final_right", "dpo-8", "d"),
        ("reference_wrong_final_wrong", "dpo-8", "c"),
        ("reference_right", "dpo-8", "b"),
        ("checkpoint_right", "rl-80", "a"),
        ("checkpoint_right", "rl-80", "b"),
        ("checkpoint_right", "rl-80", "d"),
        ("checkpoint_wrong", "rl-80", "c"),
    ]
    assert (len(selection.problem_ids), selection.num_reference_wrong) == (4, 3)
    assert selection.num_reference_wrong_final_right == 2
    assert (selection.reference_right, selection.final_right) == (
        (False, True, False, False),
        (True, True, False, True),
    )
    assert selection.reselected == ()
    few = select_two(reference, final, ProbeConfig(populations=(), max_rollouts=1))
    assert picked(few) == [("reference_wrong_final_right", "dpo-8", "a")]
    limits = {"populations": ("checkpoint_right",), "max_rollouts": 2, "max_other_rollouts": 1}
    assert picked(select_two(reference, final, ProbeConfig(**limits)))[2:] == [("checkpoint_right", "rl-80", "a")]
    with pytest.raises(MismatchError, match="of different problems"):
        select_two(reference, final[1:], EVERYTHING)


def test_split_selection_reads_what_did_not_decide() -> None:
    # a: wrong then right in the deciding halves and wrong again; b: selected, but now right; c: not selected.
    reference = evaluated("RRR", samples={"a": "WWRW", "b": "RWRR", "c": "RRWW"})
    final = evaluated("WWW", samples={"a": "RRRR", "b": "RRWR", "c": "RRRR"})
    split = EVERYTHING.model_copy(update={"selection": "split"})
    selection = select_two(reference, final, split, tie_seed=7)
    assert [(one.population, one.problem.id, one.sample) for one in selection.rollouts] == [
        ("reference_wrong_final_right", "a", 3),
        ("reference_wrong_final_wrong", "c", 2),
        ("reference_right", "a", 2),
        ("reference_right", "b", 2),
        ("checkpoint_right", "a", 2),
        ("checkpoint_right", "b", 3),
        ("checkpoint_right", "c", 2),
        ("checkpoint_wrong", "b", 2),
    ]
    # b of the reference is a tie, which seed 7 calls wrong and seed 0 right
    assert select_two(reference, final, split).num_reference_wrong == 1
    assert (selection.num_reference_wrong, selection.num_reference_wrong_final_right) == (2, 2)
    assert selection.num_ties == 1
    one_sample = evaluated("W", samples={"a": "W"})
    with pytest.raises(ConfigError, match="dpo-8 has 1: set eval.samples_per_problem=4 and run swerve eval again"):
        select_two(one_sample, one_sample, EVERYTHING.model_copy(update={"selection": "split"}))


def test_ties_are_drawn_by_the_seed_for_each_model_and_problem() -> None:
    """Two equal models at p = 1/2, two deciding samples each: one verdict in two is a tie, one in two is right."""
    split = EVERYTHING.model_copy(update={"selection": "split"})
    rng = np.random.default_rng(0)
    flips, wrong, ties = [], [], []
    for seed in range(80):
        samples = [
            {name: "".join("RW"[int(bit)] for bit in rng.integers(0, 2, 4)) for name in "abcdefgh"} for _ in range(2)
        ]
        first, second = (evaluated("W" * 8, samples=one) for one in samples)
        there = select_two(first, second, split, tie_seed=seed)
        back = select_two(second, first, split, labels=LABELS[::-1], tie_seed=seed)
        assert there == select_two(first, second, split, tie_seed=seed)
        flips.append((there.num_reference_wrong_final_right, back.num_reference_wrong_final_right))
        wrong.append(there.num_reference_wrong)
        ties.append(there.num_ties)
    num = 8 * 80
    within = 3 * np.sqrt(0.25 / num)
    assert abs(np.sum(wrong) / num - 0.5) <= within  # 3 in 4 with ties called wrong
    assert abs(np.sum(ties) / (2 * num) - 0.5) <= within
    one_way, other_way = np.sum(flips, axis=0) / num
    assert abs(one_way - 0.25) <= within
    assert abs(other_way - 0.25) <= within
    decided = {select_two(first, second, split, tie_seed=seed).num_reference_wrong for seed in range(20)}
    assert len(decided) > 1


def test_how_often_another_draw_selects_the_same_problem() -> None:
    reference = evaluated("WWR", samples={"a": "WWRW", "b": "WW", "c": "WW"})
    final = evaluated("RWR", samples={"a": "RW", "b": "RR", "c": "RR"})
    assert select_two(reference, final, EVERYTHING).reselected == (0.75 * 0.5,)


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
        read_evaluated(run, reference)
    path = run.evaluation_path(reference)
    table = path.with_suffix(".parquet")
    write_responses(table, [row("a")], EVALUATION_SCHEMA)
    write_evaluation(run, reference)
    assert [one.problem.id for one in read_evaluated(run, reference)[0]] == ["a"]
    with pytest.raises(ArtifactError, match="is of other weights than dpo-8; run swerve eval"):
        read_evaluated(run, checkpoint(run, "def"))
    write_evaluation(run, reference, step=7)
    with pytest.raises(ArtifactError, match=r"step_.*\.json is the evaluation of step 7; run swerve eval"):
        read_evaluated(run, reference)
    write_evaluation(run, reference)
    drawn = [row("a", correct=number == 1, sample=number, temperature=1.0) for number in (0, 1)]
    write_responses(table, [row("a"), *drawn], EVALUATION_SCHEMA)
    (found,) = read_evaluated(run, reference)
    assert [(one.sample, one.correct, one.problem.question) for one in found] == [
        (0, None, QUESTION),
        (0, False, QUESTION),
        (1, True, QUESTION),
    ]


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
