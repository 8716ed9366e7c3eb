"""Which rollouts are probed, and what selecting them does to the metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from transformers import PreTrainedTokenizerBase

from swerve.artifacts.evaluation import check_evaluation
from swerve.artifacts.files import read_json, read_sealed
from swerve.artifacts.run import CheckpointRef, RunDirectory
from swerve.artifacts.tables import EVALUATION_SCHEMA, SAMPLES_SCHEMA, read_table
from swerve.config import PopulationName, ProbeConfig
from swerve.errors import ArtifactError, ConfigError, MismatchError
from swerve.probe.rollouts.tokenise import marked_positions, token_spans
from swerve.problems import ProblemFamily
from swerve.rollout.groups import completion_text
from swerve.seeds import derive_seed
from swerve.types import Problem

POPULATION = "reference_wrong_final_right"
"""The population of the headline metrics."""

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
    population: str = POPULATION
    """Why it is read; the headline metrics are those of `reference_wrong_final_right`."""
    source: str = "reference"
    """Label of the checkpoint that wrote it."""

    @property
    def first_wrong(self) -> int | None:
        """Position of the first wrong token; None: none known."""
        return next(iter(self.wrong), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """A checkpoint's evaluation: one greedy row a problem, and the sampled completions of each."""

    label: str
    greedy: tuple[Row, ...]
    samples: Mapping[str, tuple[Row, ...]]
    """By problem id, each row as complete as a greedy one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The rollouts to read, and how they were found."""

    rollouts: tuple[tuple[str, str, Row], ...]
    """(population, label of the writer, row of an evaluation); the headline population first."""
    num_problems: int
    num_reference_wrong: int
    num_reference_wrong_final_right: int
    reference_right: tuple[bool, ...]
    """Of every problem's greedy completion, in the order evaluated."""
    final_right: tuple[bool, ...]
    reselected: tuple[float, ...]
    """Of each problem that greedy decoding selects: how probable another draw of the sampled completions selects it."""
    num_ties: int = 0
    """Verdicts of `split`, of a model on a problem, that were drawn because half of the deciding samples are right."""


def read_evaluation(run: RunDirectory, checkpoint: CheckpointRef) -> list[dict[str, Any]]:
    """Return the problem-level rows of a checkpoint's evaluation.

    Raises:
        ArtifactError: the checkpoint was not evaluated, or its evaluation is of other weights or damaged.
    """
    path = run.evaluation_path(checkpoint)
    table = path.with_suffix(".parquet")
    if not path.is_file() or not table.is_file():
        raise ArtifactError(f"{checkpoint.label} has no evaluation ({table}); run swerve eval {run.quoted} first")
    entry = read_sealed(path)
    check_evaluation(run, path, entry)
    if entry.get("weights_sha256", "") != checkpoint.weights_sha256:
        raise ArtifactError(f"{path} is of other weights than {checkpoint.label}; run swerve eval {run.quoted} again")
    rows: list[dict[str, Any]] = read_table(table, EVALUATION_SCHEMA).to_pylist()
    return rows


def read_evaluated(run: RunDirectory, checkpoint: CheckpointRef) -> Evaluated:
    """Return a checkpoint's evaluation with its sampled completions; without any where they were not kept.

    Raises:
        ArtifactError: the checkpoint was not evaluated, or its evaluation is of other weights or damaged.
    """
    greedy = read_evaluation(run, checkpoint)
    path = run.samples_path(checkpoint)
    samples: dict[str, list[Row]] = {row["problem_id"]: [] for row in greedy}
    known = {row["problem_id"]: row for row in greedy}
    for row in read_table(path, SAMPLES_SCHEMA).to_pylist() if path.is_file() else []:
        if row["problem_id"] not in known:
            raise ArtifactError(f"{path} is of other problems than {run.evaluation_path(checkpoint)}; evaluate again")
        samples[row["problem_id"]].append({**known[row["problem_id"]], **row})
    return Evaluated(
        label=checkpoint.label, greedy=tuple(greedy), samples={name: tuple(rows) for name, rows in samples.items()}
    )


def check_same_settings(run: RunDirectory, reference: CheckpointRef, final: CheckpointRef) -> None:
    """Raise ArtifactError unless two evaluations were made with the same settings.

    Raises:
        ArtifactError: they were made with different settings.
    """
    paths = [run.evaluation_path(one) for one in (reference, final)]
    settings = [read_json(path).get("settings") for path in paths if path.is_file()]
    if len(settings) == 2 and settings[0] != settings[1]:
        raise ArtifactError(
            f"{paths[0]} and {paths[1]} were made with different settings; run swerve eval {run.quoted} again"
        )


def select_rollouts(reference: Evaluated, final: Evaluated, config: ProbeConfig, *, tie_seed: int = 0) -> Selection:
    """Select the rollouts of every population, problems in the order evaluated, one rollout a problem and population.

    With `selection: greedy` problems are sorted by their greedy completions, and these are read. With `split` they are
    sorted by the first half of the sampled completions (a model has a problem right if most of them are, and by a coin
    where as many are wrong), and read are completions of the other half: what is described was not what decided the
    selection. The coins are of `tie_seed`, the model's label and the problem: with ties called wrong a model that is
    right half of the time had 3 of 4 problems wrong by two samples.

    Raises:
        MismatchError: the two evaluations are of different problems.
        ConfigError: `split` with fewer than two samples a problem.
    """
    by_id = {row["problem_id"]: row for row in final.greedy}
    if by_id.keys() != {row["problem_id"] for row in reference.greedy}:
        raise MismatchError("the evaluations of the reference and the final checkpoint are of different problems")
    final = replace(final, greedy=tuple(by_id[row["problem_id"]] for row in reference.greedy))
    draws = {one.label: _draws(one, config, tie_seed) for one in (reference, final)}
    chosen: dict[str, list[tuple[str, Row]]] = {POPULATION: []}
    num_flipped = 0
    for index in range(len(reference.greedy)):
        first, second = draws[reference.label][index], draws[final.label][index]
        flipped = not first.right and second.right
        num_flipped += flipped
        for label, completions in ((reference.label, first.read), (final.label, second.read)):
            seen: set[str] = set()
            for completion in completions:
                name = _population(
                    is_reference=label == reference.label, correct=bool(completion["correct"]), flipped=flipped
                )
                if name not in seen:
                    seen.add(name)
                    chosen.setdefault(name, []).append((label, completion))
    names = [POPULATION, *(name for name in _LABELS if _LABELS[name] in config.populations and name in chosen)]
    right = [tuple(bool(row["correct"]) for row in one.greedy) for one in (reference, final)]
    return Selection(
        rollouts=tuple((name, *one) for name in names for one in chosen[name][: _limit(name, config)]),
        num_problems=len(reference.greedy),
        num_reference_wrong=sum(not one.right for one in draws[reference.label]),
        num_reference_wrong_final_right=num_flipped,
        reference_right=right[0],
        final_right=right[1],
        reselected=_reselected(reference, final),
        num_ties=sum(one.tied for found in draws.values() for one in found),
    )


_LABELS: Mapping[str, PopulationName] = {
    "reference_wrong_final_wrong": "reference_wrong",
    "reference_right": "reference_right",
    "checkpoint_right": "checkpoint_right",
    "checkpoint_wrong": "checkpoint_wrong",
}


def _population(*, is_reference: bool, correct: bool, flipped: bool) -> str:
    if not is_reference:
        return "checkpoint_right" if correct else "checkpoint_wrong"
    if correct:
        return "reference_right"
    return POPULATION if flipped else "reference_wrong_final_wrong"


def _limit(population: str, config: ProbeConfig) -> int:
    return config.max_rollouts if population == POPULATION else config.max_other_rollouts


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draw:
    """Whether a model has a problem right, and the completions to read."""

    right: bool
    read: tuple[Row, ...]
    tied: bool = False


def _draws(one: Evaluated, config: ProbeConfig, tie_seed: int) -> list[_Draw]:
    if config.selection == "greedy":
        return [_Draw(right=bool(row["correct"]), read=(row,)) for row in one.greedy]
    found = []
    for row in one.greedy:
        samples = one.samples.get(row["problem_id"], ())
        half = len(samples) // 2
        if not half:
            raise ConfigError(
                f"probe.selection=split needs two sampled completions a problem and more; {one.label} has "
                f"{len(samples)}: set eval.samples_per_problem=4 and run swerve eval again"
            )
        verdicts = [bool(sample["correct"]) for sample in samples[:half]]
        right, tied = majority(verdicts, tie_seed, one.label, row["problem_id"])
        found.append(_Draw(right=right, read=samples[half:], tied=tied))
    return found


def majority(verdicts: Sequence[bool], tie_seed: int, label: str, problem_id: str) -> tuple[bool, bool]:
    """Return whether most verdicts on a problem are right, and whether as many are wrong, which a draw decides.

    >>> majority([True, False, True], 0, "dpo", "p"), majority([True, False], 0, "dpo", "p")[1]
    ((True, False), True)
    """
    twice = 2 * sum(verdicts)
    tied = twice == len(verdicts)
    return twice > len(verdicts) or (tied and derive_seed(tie_seed, label, problem_id) % 2 == 1), tied


def _reselected(reference: Evaluated, final: Evaluated) -> tuple[float, ...]:
    """Return, for each problem selected greedily, the share of pairs of samples that would select it again."""
    shares = []
    for row, other in zip(reference.greedy, final.greedy, strict=True):
        drawn = [one.samples.get(row["problem_id"], ()) for one in (reference, final)]
        if row["correct"] or not other["correct"] or not all(drawn):
            continue
        wrong, right = (sum(bool(sample["correct"]) for sample in samples) / len(samples) for samples in drawn)
        shares.append((1 - wrong) * right)
    return tuple(shares)


def probe_sequences(
    rollouts: Sequence[tuple[str, str, Row]],
    *,
    family: ProblemFamily,
    tokenizer: PreTrainedTokenizerBase,
    problems: Mapping[str, Problem] | None = None,
) -> list[ProbeSequence]:
    """Turn (population, writer, row) into sequences: ids untouched, characters and wrong steps found.

    Args:
        rollouts: the rows are of evaluations.
        family: of the problems.
        tokenizer: of the models.
        problems: by id, as the family gives them: with all that grading needs. One that is not there is made from its
            row.
    """
    known = problems or {}
    return [
        row_sequence(
            index,
            row,
            completion_text(tokenizer, row["completion_ids"]),
            problem=known.get(row["problem_id"]) or _problem(row, family),
            family=family,
            tokenizer=tokenizer,
            correct=bool(row["correct"]),
            population=population,
            source=source,
        )
        for index, (population, source, row) in enumerate(rollouts)
    ]


def _problem(row: Row, family: ProblemFamily) -> Problem:
    return Problem(
        id=row["problem_id"],
        family=family.name,
        question=row["question"],
        answer=row["gold"],
        kind=row["kind"],
        difficulty=row.get("difficulty"),
    )


def row_sequence(
    index: int,
    row: Row,
    text: str,
    *,
    problem: Problem,
    family: ProblemFamily,
    tokenizer: PreTrainedTokenizerBase,
    correct: bool,
    population: str,
    source: str,
) -> ProbeSequence:
    """Return a table's row as a sequence: ids untouched, characters and wrong steps found."""
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
        correct=correct,
        population=population,
        source=source,
    )


def sequence_rows(sequences: Sequence[ProbeSequence]) -> list[dict[str, Any]]:
    """Return the rows of `sequences.parquet`."""
    return [
        {
            "sequence_id": sequence.sequence_id,
            "problem_id": sequence.problem.id,
            "kind": sequence.problem.kind,
            "population": sequence.population,
            "source": sequence.source,
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
