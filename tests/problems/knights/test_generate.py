from __future__ import annotations

import random
from collections import Counter

import pytest

from swerve.problems.knights.english import KNIGHT_KNAVE, PHRASINGS
from swerve.problems.knights.generate import (
    COMMON_NAMES,
    PERTURBATIONS,
    ROLE_PAIRS,
    UNCOMMON_NAMES,
    random_puzzle,
    random_statement,
)
from swerve.problems.knights.logic import Statement, consistent, everywhere, leaves, solutions, truth


def depth(statement: Statement) -> int:
    head, *parts = statement
    return 1 if head in ("telling-truth", "lying") else 1 + max(depth(part) for part in parts)


@pytest.mark.parametrize("num_people", range(2, 9))
def test_puzzles_have_one_solution_and_every_claim_says_something(num_people):
    rng = random.Random(num_people)
    for _ in range(30):
        puzzle = random_puzzle(rng, num_people, max_depth=2, max_width=2)
        assert len(solutions(puzzle.statements)) == 1
        assert len(set(puzzle.names)) == num_people
        for speaker, statement in enumerate(puzzle.statements):
            assert truth(statement, num_people) not in (0, everywhere(num_people))
            assert consistent(statement, speaker, num_people) not in (0, everywhere(num_people))


def test_depth_and_width_are_limits_that_are_reached():
    rng = random.Random(0)
    found = [random_statement(rng, 0, 4, max_depth=3, max_width=4) for _ in range(600)]
    assert Counter(depth(statement) for statement in found).keys() == {1, 2, 3}
    assert {len(statement) - 1 for statement in found if statement[0] in ("and", "or")} == {2, 3, 4}
    assert {len(statement) - 1 for statement in found if statement[0] in ("->", "<=>")} == {2}


def test_all_kinds_of_claims_and_phrasings_occur_about_equally():
    rng = random.Random(0)
    kinds = Counter(random_statement(rng, 0, 5, max_depth=2, max_width=2)[0] for _ in range(3000))
    facts = kinds.pop("telling-truth") + kinds.pop("lying")
    assert kinds.keys() == {"not", "and", "or", "->", "<=>"}
    assert all(350 < count < 650 for count in (facts, *kinds.values()))
    puzzles = [random_puzzle(rng, 5, max_depth=2, max_width=2) for _ in range(200)]
    used = Counter(number for puzzle in puzzles for number in puzzle.phrasing)
    assert len(used) == len(PHRASINGS)


def test_the_same_seed_gives_the_same_puzzle():
    first, second = (random_puzzle(random.Random(7), 6, max_depth=2, max_width=2) for _ in range(2))
    assert first == second != random_puzzle(random.Random(8), 6, max_depth=2, max_width=2)


def test_puzzles_of_single_facts_alone_are_refused():
    with pytest.raises(AssertionError):
        random_puzzle(random.Random(0), 3, max_depth=1, max_width=2)


def _perturbed(name: str):
    rng = random.Random(name)
    for _ in range(40):
        puzzle = random_puzzle(rng, 5, max_depth=2, max_width=2)
        changed = PERTURBATIONS[name](puzzle, rng)
        if changed is not None:
            yield puzzle, changed


@pytest.mark.parametrize("name", ["perturbed_leaf", "perturbed_statement"])
def test_one_statement_is_changed_and_with_it_the_solution(name):
    pairs = list(_perturbed(name))
    assert len(pairs) > 30
    for puzzle, changed in pairs:
        different = [a != b for a, b in zip(puzzle.statements, changed.statements, strict=True)]
        assert sum(different) == 1
        assert len(solutions(changed.statements)) == 1
        assert solutions(changed.statements) != solutions(puzzle.statements)
        assert (changed.names, changed.roles, changed.order) == (puzzle.names, puzzle.roles, puzzle.order)


def test_of_a_perturbed_leaf_the_form_and_the_other_facts_are_kept():
    for puzzle, changed in _perturbed("perturbed_leaf"):
        place = [a != b for a, b in zip(puzzle.statements, changed.statements, strict=True)].index(True)
        before, after = list(leaves(puzzle.statements[place])), list(leaves(changed.statements[place]))
        assert puzzle.statements[place][0] == changed.statements[place][0] or len(before) == 1
        assert sum(a != b for a, b in zip(before, after, strict=True)) == 1


def test_speakers_are_reordered():
    for puzzle, changed in _perturbed("reorder_statement"):
        assert changed.order != puzzle.order
        assert sorted(changed.order) == list(range(5))
        assert changed.statements == puzzle.statements


def test_names_and_roles_are_replaced_and_the_statements_kept():
    assert not set(COMMON_NAMES) & set(UNCOMMON_NAMES)
    for puzzle, changed in _perturbed("uncommon_name"):
        assert set(changed.names) <= set(UNCOMMON_NAMES)
        assert (changed.statements, changed.roles) == (puzzle.statements, puzzle.roles)
    pairs = set()
    for puzzle, changed in _perturbed("random_pair"):
        assert (changed.statements, changed.names) == (puzzle.statements, puzzle.names)
        pairs.add(changed.roles)
    assert pairs == set(ROLE_PAIRS)
    for puzzle, changed in _perturbed("flip_role"):
        assert (changed.roles.truthful, changed.roles.lying) == (KNIGHT_KNAVE.lying, KNIGHT_KNAVE.truthful)
        assert changed.statements == puzzle.statements


def test_a_puzzle_without_a_changed_copy_gives_none():
    puzzles = [random_puzzle(random.Random(seed), 2, max_depth=2, max_width=2) for seed in range(40)]
    changed = [PERTURBATIONS["perturbed_leaf"](puzzle, random.Random(0)) for puzzle in puzzles]
    assert None in changed
    assert any(changed)
