from __future__ import annotations

import random
from itertools import product

import pytest

from swerve.problems.knights.english import Puzzle, parse_puzzle
from swerve.problems.knights.generate import random_puzzle
from swerve.problems.knights.logic import Statement, solutions
from swerve.problems.knights.reasoning import reason, reasoning_text


def holds(statement: Statement, assignment: tuple[bool, ...]) -> bool:
    head, *parts = statement
    if head in ("telling-truth", "lying"):
        return assignment[parts[0]] == (head == "telling-truth")
    values = [holds(part, assignment) for part in parts]
    if head in ("and", "or"):
        return all(values) if head == "and" else any(values)
    if head == "not":
        return not values[0]
    return values[0] == values[1] if head == "<=>" else not values[0] or values[1]


def fits_somewhere(puzzle: Puzzle, known: dict[int, bool], speaker: int) -> bool:
    """Whether one claim is true exactly if its speaker is truthful in an assignment that agrees with what is known."""
    return any(
        holds(puzzle.statements[speaker], one) == one[speaker]
        for one in product((True, False), repeat=len(puzzle.names))
        if all(one[person] == role for person, role in known.items())
    )


def replayed(puzzle: Puzzle) -> dict[int, bool]:
    """Check every step by trying all assignments; return what is known at the end."""
    known: dict[int, bool] = {}
    assumed: list[tuple[int, dict[int, bool]]] = []
    refuted = False
    for step in reason(puzzle)[0]:
        if step.kind == "go_back":
            person, known = assumed.pop()
            assert refuted
            assert (step.person, step.truthful) == (person, False)
            known = {**known, person: False}
            refuted = False
            continue
        assert not refuted, "after a contradiction the last assumption must be dropped"
        assert step.person not in known
        if step.kind == "assume":
            assumed.append((step.person, dict(known)))
            known[step.person] = step.truthful
        elif step.kind == "follow":
            assert not fits_somewhere(puzzle, {**known, step.person: not step.truthful}, step.speaker)
            known[step.person] = step.truthful
        else:
            assert not fits_somewhere(puzzle, {**known, step.person: step.truthful}, step.speaker)
            assert not fits_somewhere(puzzle, {**known, step.person: not step.truthful}, step.other_speaker)
            refuted = True
    return known


@pytest.mark.parametrize("num_people", [2, 3, 4, 5, 6])
def test_every_step_holds_and_the_end_is_the_solution(num_people):
    rng = random.Random(num_people)
    for _ in range(12):
        puzzle = random_puzzle(rng, num_people, max_depth=2, max_width=3)
        known = replayed(puzzle)
        assert tuple(known[person] for person in range(num_people)) == solutions(puzzle.statements)[0]


@pytest.mark.parametrize("num_people", [7, 8])
def test_the_end_is_the_solution_also_for_many_people_and_the_text_stays_short(num_people):
    rng = random.Random(num_people)
    puzzles = [random_puzzle(rng, num_people, max_depth=2, max_width=2) for _ in range(50)]
    for puzzle in puzzles:
        _, known = reason(puzzle)
        assert tuple(known[person] for person in range(num_people)) == solutions(puzzle.statements)[0]
    lengths = sorted(len(reasoning_text(puzzle).split()) for puzzle in puzzles)
    assert lengths[25] < 300
    assert lengths[-1] < 1000


def test_the_text_says_who_cannot_be_what_and_why():
    puzzle = parse_puzzle(
        "A very special island is inhabited only by saints and sinners. Saints always tell the truth, and sinners "
        "always lie. You meet 3 inhabitants: Uma, Raj, and Ivo. Uma told you that Ivo is not a saint. "
        '"Ivo is a saint," Raj declared. Ivo remarked, "Uma is a saint or Ivo is a saint". '
        "So who is a saint and who is a sinner?"
    )
    assert reasoning_text(puzzle).splitlines() == [
        "Let's go through the cases and see which claims would not fit.",
        "Assume Uma is a saint.",
        'Ivo cannot be a saint, because of the claim of Uma "Ivo is not a saint", and cannot be a sinner, because of '
        'their own claim "Uma is a saint or Ivo is a saint". This is a contradiction.',
        "So Uma is not a saint. Uma is a sinner.",
        'Ivo cannot be a sinner, because of the claim of Uma "Ivo is not a saint". So Ivo is a saint.',
        'Raj cannot be a sinner, because of their own claim "Ivo is a saint". So Raj is a saint.',
        "Now every claim fits.",
    ]
