"""Which rollouts are probed: greedy completions that the reference got wrong where the final checkpoint is right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedTokenizerBase

from swerve.artifacts.files import read_json
from swerve.artifacts.run import CheckpointRef, RunDirectory
from swerve.artifacts.tables import EVALUATION_SCHEMA, read_table
from swerve.errors import ArtifactError, MismatchError
from swerve.probe.spans import marked_positions, token_spans
from swerve.problems import ProblemFamily
from swerve.rollout.groups import completion_text
from swerve.types import Problem

__all__ = [
    "POPULATION",
    "Population",
    "ProbeSequence",
    "probe_sequences",
    "read_evaluation",
    "reference_wrong_final_right",
    "refuse_other_settings",
    "sequence_rows",
]

POPULATION = "reference_wrong_final_right"
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSequence:
    """One rollout under teacher forcing: the ids as they were sampled, and what is known of them."""

    sequence_id: int
    problem: Problem
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    text: str
    spans: tuple[tuple[int, int], ...]
    """Character offsets of each token in `text`; empty for special tokens."""
    wrong: Mapping[int, str]
    """Positions of wrong steps, ascending, each with what a right step has there."""
    extracted: str | None
    correct: bool

    @property
    def first_wrong(self) -> int | None:
        """Position of the first wrong token; None: none known."""
        return next(iter(self.wrong), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Population:
    """The rows selected from an evaluation, and how many there were to select from."""

    rows: tuple[Row, ...]
    """Rows of the reference's evaluation."""
    num_problems: int
    num_reference_wrong: int


def read_evaluation(run: RunDirectory, checkpoint: CheckpointRef) -> list[dict[str, Any]]:
    """Return the problem-level rows of a checkpoint's evaluation.

    Raises:
        ArtifactError: the checkpoint was not evaluated, or its evaluation is of other weights or damaged.
    """
    path = run.evaluation_path(checkpoint)
    table = path.with_suffix(".parquet")
    if not path.is_file() or not table.is_file():
        raise ArtifactError(f"{checkpoint.label} has no evaluation ({table}); run swerve eval {run.path} first")
    if read_json(path).get("weights_sha256", "") != checkpoint.weights_sha256:
        raise ArtifactError(f"{path} is of other weights than {checkpoint.label}; run swerve eval {run.path} again")
    rows: list[dict[str, Any]] = read_table(table, EVALUATION_SCHEMA).to_pylist()
    return rows


def refuse_other_settings(run: RunDirectory, reference: CheckpointRef, final: CheckpointRef) -> None:
    """Do nothing if two evaluations can be compared.

    Raises:
        ArtifactError: they were made with different settings.
    """
    paths = [run.evaluation_path(one) for one in (reference, final)]
    settings = [read_json(path).get("settings") for path in paths if path.is_file()]
    if len(settings) == 2 and settings[0] != settings[1]:
        raise ArtifactError(
            f"{paths[0]} and {paths[1]} were made with different settings; run swerve eval {run.path} again"
        )


def reference_wrong_final_right(reference: Sequence[Row], final: Sequence[Row]) -> Population:
    """Select the problems that the reference answers wrongly and the final checkpoint rightly, in the order evaluated.

    Raises:
        MismatchError: the two evaluations are of different problems.
    """
    right = {row["problem_id"]: bool(row["correct"]) for row in final}
    if right.keys() != {row["problem_id"] for row in reference}:
        raise MismatchError("the evaluations of the reference and the final checkpoint are of different problems")
    wrong = [row for row in reference if not row["correct"]]
    return Population(
        rows=tuple(row for row in wrong if right[row["problem_id"]]),
        num_problems=len(reference),
        num_reference_wrong=len(wrong),
    )


def probe_sequences(
    rows: Sequence[Row], *, family: ProblemFamily, tokenizer: PreTrainedTokenizerBase
) -> list[ProbeSequence]:
    """Turn evaluation rows into sequences: ids untouched, each token's characters and the wrong steps found."""
    return [_sequence(index, row, family, tokenizer) for index, row in enumerate(rows)]


def _sequence(index: int, row: Row, family: ProblemFamily, tokenizer: PreTrainedTokenizerBase) -> ProbeSequence:
    problem = Problem(
        id=row["problem_id"], family=family.name, question=row["question"], answer=row["gold"], kind=row["kind"]
    )
    text = completion_text(tokenizer, row["completion_ids"])
    spans = token_spans(tokenizer, row["completion_ids"], text)
    return ProbeSequence(
        sequence_id=index,
        problem=problem,
        prompt_ids=tuple(row["prompt_ids"]),
        completion_ids=tuple(row["completion_ids"]),
        text=text,
        spans=tuple(spans),
        wrong=marked_positions(family.check(problem, text), spans),
        extracted=row["extracted"],
        correct=bool(row["correct"]),
    )


def sequence_rows(sequences: Sequence[ProbeSequence]) -> list[dict[str, Any]]:
    """Return the rows of `sequences.parquet`."""
    return [
        {
            "sequence_id": sequence.sequence_id,
            "problem_id": sequence.problem.id,
            "kind": sequence.problem.kind,
            "population": POPULATION,
            "question": sequence.problem.question,
            "gold": sequence.problem.answer,
            "prompt_ids": list(sequence.prompt_ids),
            "completion_ids": list(sequence.completion_ids),
            "text": sequence.text,
            "token_starts": [start for start, _ in sequence.spans],
            "token_ends": [end for _, end in sequence.spans],
            "extracted": sequence.extracted,
            "correct": sequence.correct,
            "first_wrong": sequence.first_wrong,
            "wrong_positions": list(sequence.wrong),
            "wrong_expected": list(sequence.wrong.values()),
        }
        for sequence in sequences
    ]
