"""Rows of the K-and-K schema: what their text says is proved again and compared with what is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from swerve.errors import ArtifactError
from swerve.formats.records import FileRecord
from swerve.problems.family import problem_id
from swerve.problems.knights.english import Puzzle, answer_text, parse_puzzle
from swerve.problems.knights.logic import as_statements, parse_statements, solutions
from swerve.problems.knights.reasoning import reasoning_text
from swerve.problems.record_values import text_of
from swerve.types import Problem

FAMILY = "k_and_k"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvedRow:
    """What is proved of one row, from its text alone, and how that compares with the stored fields."""

    puzzle: Puzzle | None
    """The puzzle that the text tells; None: it could not be read."""
    solution: tuple[bool, ...] | None
    """Its only solution; None: it has none or several."""
    differences: Mapping[str, str]
    """Field -> what is wrong."""


def prove_row(record: FileRecord) -> ProvedRow:
    """Prove the puzzle of a row from its text (`quiz` or `question`) and compare every stored field with it.

    Compared where present: `names`, `knight_knave`, `statements`, `solution`, `solution_text_format`.

    Raises:
        ArtifactError: the row has no text.
    """
    text = text_of(record, "quiz", "question")
    try:
        puzzle = parse_puzzle(text)
    except ValueError as error:
        return ProvedRow(puzzle=None, solution=None, differences={"quiz": str(error)})
    fitting = solutions(puzzle.statements)
    if len(fitting) != 1:
        return ProvedRow(puzzle=puzzle, solution=None, differences={"quiz": f"it has {len(fitting)} solutions"})
    return ProvedRow(puzzle=puzzle, solution=fitting[0], differences=_differences(record.values, puzzle, fitting[0]))


def _differences(values: Mapping[str, Any], puzzle: Puzzle, solution: Sequence[bool]) -> dict[str, str]:
    """Return what is wrong with the stored fields: field -> what the text says instead."""
    roles = puzzle.roles

    # What each stored field should be by the text, and how a difference is told.
    lines = answer_text(puzzle.told(solution)).split(", ")
    proved = f"the proved one is: {', '.join(lines)}"
    by_text: Mapping[str, tuple[Any, str]] = {
        "names": (list(puzzle.names), f"the text names {', '.join(puzzle.names)}"),
        "knight_knave": (
            {"knight": roles.truthful, "knave": roles.lying},
            f"by the text {roles.of(True)} tells the truth and {roles.of(False)} lies",
        ),
        "statements": (puzzle.statements, f"the text says {puzzle.statements!r}"),
        "solution": (list(solution), proved),
        "solution_text_format": ([f"({number}) {line}" for number, line in enumerate(lines, start=1)], proved),
    }

    # Compared where the row has the field.
    differences = {}
    for name, (expected, difference) in by_text.items():
        if values.get(name) is not None:
            try:
                same = _comparable(name, values[name]) == expected
            except ValueError as error:
                same, difference = False, str(error)
            if not same:
                differences[name] = difference
    return differences


def _comparable(name: str, stored: Any) -> Any:
    """Return a stored field without what does not count.

    Raises:
        ValueError: it does not hold statements.
    """
    if name == "statements":
        return parse_statements(stored) if isinstance(stored, str) else as_statements(stored)
    if name == "knight_knave" and isinstance(stored, dict):
        return {role: stored.get(role) for role in ("knight", "knave")}
    if name == "solution_text_format" and isinstance(stored, str):
        return stored.splitlines()
    return stored


def row_problem(record: FileRecord) -> Problem:
    """Return a row as a problem, proved from its text.

    The solution is the row's own reasoning (`cot_head`, `cot_repeat_steps`, `cot_foot`) or else a written one.

    Raises:
        ArtifactError: the text cannot be read, has not exactly one solution, or a stored field differs from it.
    """
    row = prove_row(record)

    # A wrong gold answer is never trained on.
    if row.puzzle is None or row.solution is None or row.differences:
        name, difference = next(iter(row.differences.items()))
        raise ArtifactError(
            f"{record.place}: the field {name!r} does not hold: {difference}; correct or remove the row"
        )
    variant, steps = record.values.get("variant"), record.values.get("cot_repeat_steps")
    reasoning = ""
    if isinstance(steps, list) and steps:
        lines = (record.values.get("cot_head"), *steps, record.values.get("cot_foot"))
        reasoning = "\n".join(str(line) for line in lines if line)
    return puzzle_problem(
        row.puzzle,
        row.solution,
        question=text_of(record, "quiz", "question"),
        reasoning=reasoning or reasoning_text(row.puzzle),
        variant=variant if isinstance(variant, str) else None,
    )


def puzzle_problem(
    puzzle: Puzzle, solution: Sequence[bool], *, question: str, reasoning: str, variant: str | None
) -> Problem:
    """Return a puzzle as a problem; its written solution has the tags that the grader asks for."""
    answer = answer_text(puzzle.told(solution))
    facts = {
        "names": list(puzzle.names),
        "roles": {"knight": puzzle.roles.truthful, "knave": puzzle.roles.lying},
        "solution": list(solution),
        "statements": repr(puzzle.statements),
        "variant": variant,
    }
    return Problem(
        id=problem_id(FAMILY, question),
        family=FAMILY,
        question=question,
        answer=answer,
        solution=f"<think> {reasoning} </think>\n<answer> {answer} </answer>",
        kind=f"{len(puzzle.names)} people",
        difficulty=float(len(puzzle.names)),
        metadata={name: fact for name, fact in facts.items() if fact is not None},
    )
