from __future__ import annotations

import json
import random
from collections import Counter

import pytest

from swerve.errors import ConfigError
from swerve.problems import load_family
from swerve.problems.knights import answer_text, parse_puzzle, parse_statements, solutions, structure_key
from swerve.problems.knights.english import render_puzzle
from swerve.problems.knights.generate import ROLE_PAIRS, UNCOMMON_NAMES, random_puzzle
from swerve.problems.knights.grade_k_and_k import KAndKGrading
from swerve.problems.knights.k_and_k import KAndK, KAndKTask
from swerve.problems.prompt import PromptConfig
from swerve.problems.reading import FilterConfig
from swerve.rewards import grade


def structures(problems):
    return {structure_key(parse_statements(problem.metadata["statements"])) for problem in problems}


def test_generated_puzzles_are_distinct_in_equal_shares_and_right():
    problems = load_family(KAndKTask(people=(2, 3, 5), num_train=40)).problems("train", seed=1)
    assert len({problem.question for problem in problems}) == 40
    assert Counter(problem.kind for problem in problems) == {"2 people": 14, "3 people": 13, "5 people": 13}
    for problem in problems:
        puzzle = parse_puzzle(problem.question)
        (solution,) = solutions(puzzle.statements)
        assert problem.answer == answer_text(puzzle.told(solution))
        assert problem.difficulty == len(puzzle.names)
        assert problem.metadata["variant"] == "clean"
    assert [problem.kind for problem in problems] != sorted(problem.kind for problem in problems)


def test_a_seed_decides_and_the_splits_share_no_structure():
    family = KAndK(KAndKTask(people=(2, 3), num_train=200, num_heldout=60))
    first, again, other = (family.problems("train", seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert not structures([*first, *other]) & structures(family.problems("heldout", seed=3))


def test_without_numbers_three_thousand_and_three_hundred_are_generated():
    family = KAndK(KAndKTask(people=(2,)))
    assert len(family.problems("heldout", seed=0)) == 300
    assert len(family.problems("train", seed=0)) == 3000


def test_the_written_solution_goes_on_after_the_prefix_and_is_graded_as_right():
    for prompt in (PromptConfig(format="think_answer"), PromptConfig(format="plain")):
        family = KAndK(KAndKTask(num_train=6, prompt=prompt))
        for problem in family.problems("train", seed=0):
            text = family.trace(problem, random.Random(0))
            assert text.startswith("<think>") != bool(problem.prefix)
            assert grade(problem, text).value == 1.0
            assert grade(problem, problem.prefix + text).value == 1.0


def test_the_task_s_policies_and_prompt_reach_the_problem():
    task = KAndKTask(num_train=2, grading=KAndKGrading(scale="parts", answer_right=5.0))
    problem = KAndK(task).problems("train", seed=0)[0]
    assert problem.grading == {"scale": "parts", "answer_right": 5.0}
    assert problem.messages[-1] == ("user", problem.question)
    assert problem.prefix == "<think>"
    assert grade(problem, problem.solution or "").value == 6.0


@pytest.mark.parametrize(
    "variant", ["flip_role", "random_pair", "uncommon_name", "perturbed_leaf", "reorder_statement"]
)
def test_heldout_variants(variant):
    family = KAndK(KAndKTask(people=(3,), num_train=100, num_heldout=20, heldout_variant=variant))
    problems = family.problems("heldout", seed=0)
    assert {problem.metadata["variant"] for problem in problems} == {variant}
    assert {problem.metadata["variant"] for problem in family.problems("train", seed=0)} == {"clean"}
    assert not structures(problems) & structures(family.problems("train", seed=0))
    puzzles = [parse_puzzle(problem.question) for problem in problems]
    assert {
        "flip_role": lambda: all(puzzle.roles.truthful == "knave" for puzzle in puzzles),
        "random_pair": lambda: all(puzzle.roles in ROLE_PAIRS for puzzle in puzzles),
        "uncommon_name": lambda: all(set(puzzle.names) <= set(UNCOMMON_NAMES) for puzzle in puzzles),
        "perturbed_leaf": lambda: True,
        "reorder_statement": lambda: all(puzzle.order != (0, 1, 2) for puzzle in puzzles),
    }[variant]()


@pytest.fixture
def source(tmp_path):
    rng = random.Random(5)
    path = tmp_path / "puzzles.jsonl"
    puzzles = [random_puzzle(rng, n, max_depth=2, max_width=2) for n in [2, 3, 3, 4] * 15]
    path.write_text("".join(json.dumps({"quiz": render_puzzle(puzzle)}) + "\n" for puzzle in puzzles), encoding="utf-8")
    return str(path)


def test_read_puzzles_of_the_task_s_numbers_of_people(source):
    family = KAndK(KAndKTask(train=(source,), people=(3, 4)))
    train, heldout = family.problems("train", seed=0), family.problems("heldout", seed=0)
    assert len(train) + len(heldout) == 45
    assert len(heldout) >= 1
    assert not {problem.id for problem in train} & {problem.id for problem in heldout}
    assert {problem.kind for problem in train} == {"3 people", "4 people"}
    assert all(problem.prefix == "<think>" and grade(problem, problem.solution or "").value == 1.0 for problem in train)
    assert any("left out by people=[3, 4]" in note for note in family.notes())


def test_generated_training_puzzles_leave_out_the_structures_of_read_heldout_ones(tmp_path):
    everything = KAndK(KAndKTask(people=(2,), num_train=400)).problems("train", seed=0)
    path = tmp_path / "heldout.jsonl"
    path.write_text("".join(json.dumps({"quiz": one.question}) + "\n" for one in everything[:150]), encoding="utf-8")
    family = KAndK(KAndKTask(heldout=(str(path),), people=(2,), num_train=400, num_heldout=3))
    assert len(family.problems("heldout", seed=1)) == 3
    # All 150 are kept apart, not only the three that this seed uses.
    assert structures(everything) & structures(everything[:150])
    assert not structures(family.problems("train", seed=0)) & structures(everything[:150])


def test_settings_without_use_are_refused(source):
    with pytest.raises(ConfigError, match=r"heldout_variant=flip_role .* give a source of changed puzzles"):
        KAndK(KAndKTask(train=(source,), heldout_variant="flip_role")).problems("train", seed=0)
    with pytest.raises(ConfigError, match="choose generated ones by task.people"):
        KAndK(KAndKTask(where=FilterConfig(max_difficulty=3.0))).problems("train", seed=0)
    with pytest.raises(ConfigError, match=r"7\]"):
        KAndK(KAndKTask(train=(source,), people=(7,))).problems("train", seed=0)


def test_generated_puzzles_have_no_notes():
    assert KAndK(KAndKTask()).notes() == []
