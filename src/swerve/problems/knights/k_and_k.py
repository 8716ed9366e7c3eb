"""The task k_and_k: puzzles in English that are generated, read, or both."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from swerve.errors import ConfigError
from swerve.formats.records import FileRecord
from swerve.grading.grader import GraderEntry
from swerve.problems.data_specs import Specs
from swerve.problems.family import SolvedFamily, Split, distinct_problems, is_heldout
from swerve.problems.knights.english import Puzzle, render_puzzle
from swerve.problems.knights.generate import PERTURBATIONS, random_puzzle
from swerve.problems.knights.grade_k_and_k import KAndKGrading
from swerve.problems.knights.logic import parse_statements, solutions, structure_key
from swerve.problems.knights.reasoning import reasoning_text
from swerve.problems.knights.rows import FAMILY, puzzle_problem, row_problem
from swerve.problems.prompt import PromptConfig, with_prompt
from swerve.problems.reading import Condition, DataTask, FilterConfig, ReadFamily
from swerve.problems.task import TaskKind
from swerve.settings import PositiveInt
from swerve.types import Problem


class KAndKTask(DataTask):
    """Knights and knaves in English sentences, two to eight people, generated or read (the K-and-K schema)."""

    kind: Literal["k_and_k"] = "k_and_k"
    train: Specs = ()
    """Sources of training puzzles; none: they are generated."""
    heldout: Specs = ()
    """Sources of held-out puzzles; none: generated, or one in six of the training puzzles if those are read."""
    people: Annotated[tuple[Annotated[int, Field(ge=2, le=8)], ...], Field(min_length=1, strict=False)] = (3, 4, 5)
    """Numbers of people, in equal shares where puzzles are generated; others are left out."""
    num_train: PositiveInt | None = None
    """Training puzzles; null: all that are read, or 3,000 generated."""
    num_heldout: PositiveInt | None = None
    """Held-out puzzles; null: all that are read, or 300 generated."""
    max_depth: Annotated[int, Field(ge=2, le=4)] = 2
    """Nesting of a generated statement: 2 joins or negates single facts. (Puzzles of single facts never have exactly
    one solution.)."""
    max_width: Annotated[int, Field(ge=2, le=4)] = 2
    """Facts that one "and" or "or" of a generated statement joins."""
    heldout_variant: Literal[
        "clean",
        "perturbed_leaf",
        "perturbed_statement",
        "reorder_statement",
        "random_pair",
        "uncommon_name",
        "flip_role",
    ] = "clean"
    """How generated held-out puzzles are perturbed: a fact, a statement, the order, the words for the roles, the names,
    or the roles' words exchanged (knaves tell the truth)."""
    prompt: PromptConfig = PromptConfig(format="think_answer")
    grading: KAndKGrading = KAndKGrading()

    @property
    def policies(self) -> KAndKGrading:
        """Of its grader."""
        return self.grading


_NUM_GENERATED: Mapping[Split, int] = {"train": 3000, "heldout": 300}


class KAndK(SolvedFamily):
    """Puzzles of two to eight people with exactly one solution, proved by trying every assignment.

    Answer: `Zoey is a knave, Owen is a knight`, in the words that the puzzle has for the roles. Kind: `3 people`.
    Difficulty: the number of people. Solution: a reasoning by cases within `<think>`, then the answer within
    `<answer>`, without the beginning that the prompt gives.

    Generated puzzles are held out by their structure (`logic.structure_key`), so that no puzzle of both splits differs
    only in names, roles or orders, also where the held-out puzzles are read. Puzzles that are read are proved from
    their English text; a row whose stored solution, statements, names or roles differ from it is refused by its place.
    """

    name = FAMILY

    def __init__(self, task: KAndKTask) -> None:
        self._task = task
        self._read = _ReadPuzzles(task)

    def problems(self, split: Split, *, seed: int) -> list[Problem]:
        """Return the distinct problems of a split; splits are disjoint, whatever the seeds.

        Raises:
            ConfigError: there are fewer than asked for, a source cannot be found, or a setting has no use.
            ArtifactError: a source cannot be read, or a row does not hold what its text says.
        """
        task = self._task
        if (task.train or task.heldout) and task.heldout_variant != "clean":
            raise ConfigError(
                f"task.heldout_variant={task.heldout_variant} changes generated puzzles, but the held-out ones are "
                "read; give a source of changed puzzles in task.heldout instead"
            )
        if not task.train and not task.heldout and task.where != FilterConfig():
            raise ConfigError("task.where filters puzzles that are read; choose generated ones by task.people")
        if task.train or (task.heldout and split == "heldout"):
            return [_after_prefix(problem) for problem in self._read.problems(split, seed=seed)]
        return [
            _after_prefix(with_prompt(replace(problem, grading=self._read.grading), task.prompt))
            for problem in self._generated(split, seed=seed)
        ]

    def notes(self) -> list[str]:
        """Return a line for everything that was left out of the sources, and why; none where puzzles are generated.

        Raises:
            ConfigError: a source cannot be found.
            ArtifactError: a source cannot be read.
        """
        return self._read.notes() if self._task.train or self._task.heldout else []

    def _generated(self, split: Split, *, seed: int) -> list[Problem]:
        rng = random.Random(f"{FAMILY} {split} {seed}")

        # Not those of the sources' held-out puzzles, also of those that are not used.
        excluded: set[str] = set()
        if self._task.heldout:
            everything = self._task.model_copy(update={"num_heldout": None})
            for problem in _ReadPuzzles(everything).problems("heldout", seed=0):
                excluded.add(structure_key(parse_statements(problem.metadata["statements"])))

        # As many of each number of people.
        sizes = tuple(dict.fromkeys(self._task.people))
        asked = self._task.num_train if split == "train" else self._task.num_heldout
        count = _NUM_GENERATED[split] if asked is None else asked
        problems: list[Problem] = []
        for place, num_people in enumerate(sizes):
            problems += distinct_problems(
                self._draws(split, num_people, excluded, rng),
                count // len(sizes) + (place < count % len(sizes)),
                split=split,
                too_few="lower it or raise task.people",
            )
        rng.shuffle(problems)
        return problems

    def _draws(
        self, split: Split, num_people: int, excluded: Collection[str], rng: random.Random
    ) -> Iterator[Problem | None]:
        variant = self._task.heldout_variant if split == "heldout" else "clean"
        while True:
            puzzle: Puzzle | None = random_puzzle(
                rng, num_people, max_depth=self._task.max_depth, max_width=self._task.max_width
            )
            if puzzle is not None and variant in PERTURBATIONS:
                puzzle = PERTURBATIONS[variant](puzzle, rng)
            key = structure_key(puzzle.statements) if puzzle else ""
            if puzzle is None or is_heldout(key) != (split == "heldout") or key in excluded:
                yield None
                continue
            (solution,) = solutions(puzzle.statements)
            reasoning = reasoning_text(puzzle)
            question = render_puzzle(puzzle)
            problem = puzzle_problem(puzzle, solution, question=question, reasoning=reasoning, variant=variant)
            yield replace(problem, group=key)


class _ReadPuzzles(ReadFamily[KAndKTask]):
    """Rows of the schema, of the numbers of people that the task names."""

    name = FAMILY
    reads_chats = False

    def problem(self, record: FileRecord) -> Problem:
        """Return a row as a problem, proved from its text."""
        return row_problem(record)

    def conditions(self, problems: Iterable[Problem]) -> list[Condition]:
        """Return the condition of the task's numbers of people."""
        people = self._task.people
        return [(f"people={list(people)}", lambda problem: problem.difficulty in people)]


def _after_prefix(problem: Problem) -> Problem:
    """Return the problem with a solution that continues the beginning of the answer that the model is given."""
    begun = problem.prefix.strip()
    if not begun or problem.solution is None:
        return problem
    return replace(problem, solution=problem.solution.removeprefix(begun))


TASK = TaskKind(
    KAndKTask,
    KAndK,
    GraderEntry(module="swerve.problems.knights.grade_k_and_k", function="grade_k_and_k", policies=KAndKGrading),
)
