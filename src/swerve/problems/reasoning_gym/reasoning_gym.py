"""Any data set of the package reasoning-gym."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import fields
from types import ModuleType
from typing import Any, Literal

from pydantic import Field, JsonValue

from swerve.errors import ConfigError, MissingExtraError, nearest
from swerve.grading.grader import GraderEntry
from swerve.problems.family import SolvedFamily, Split, distinct_problems, is_heldout, problem_id
from swerve.problems.prompt import PromptConfig, stated_solution, with_prompt
from swerve.problems.task import PromptedTask, TaskKind
from swerve.settings import PositiveInt, Share
from swerve.types import Problem


class ReasoningGymTask(PromptedTask):
    """A data set of the package reasoning-gym; its score counts as right from `threshold` on."""

    kind: Literal["reasoning_gym"] = "reasoning_gym"
    dataset: str
    """Name of the data set, such as palindrome_generation."""
    options: dict[str, JsonValue] = Field(default_factory=dict)
    """Options of the data set's configuration, without seed and size."""
    threshold: Share = 1.0
    """Lowest score that counts as right."""
    num_train: PositiveInt = 4000
    """Distinct training problems."""
    num_heldout: PositiveInt = 200
    """Distinct held-out problems."""
    prompt: PromptConfig = PromptConfig()


_ITEMS_AT_ONCE = 1000
_SEEDS = 2**31
_OURS = ("seed", "size")
# An item that sympy could not integrate: its "answer" repeats the question.
_UNSOLVED = {"intermediate_integration": "Integral("}


class ReasoningGym(SolvedFamily):
    """Items of one data set, judged by `swerve.problems.reasoning_gym.scoring`.

    Item i of a data set with seed s is made from s + i, so nearby seeds share items. Both splits are therefore taken
    from one sequence of items (its start drawn by the run's seed) and separated by the question: about one question in
    six is held out, whatever the seed. Questions never repeat. Items that cannot be used are left out: with an empty
    answer, with an answer that the package could not work out, or where the package fails to make one.

    Some data sets (boxnet, graph_color, propositional_logic, rubiks_cube, rush_hour) give no answer, only a scorer:
    `answer` is empty and there is no solution. Metadata: `dataset`, `options`, `entry` (the item, `encode_entry`).
    """

    name = "reasoning_gym"

    def __init__(self, task: ReasoningGymTask) -> None:
        _check_options(task)
        if task.prompt.format == "hash":
            raise ConfigError(
                "task.prompt.format hash cannot be used with reasoning_gym, whose answers may contain ####; "
                "use plain, think_answer or boxed"
            )
        self._task = task

    def problems(self, split: Split, *, seed: int) -> list[Problem]:
        """Return the distinct problems of a split.

        Raises:
            ConfigError: the data set has too few distinct questions, or cannot be made with these options.
        """
        items = self._items(random.Random(f"reasoning_gym {self._task.dataset} {seed}").randrange(_SEEDS))
        return distinct_problems(
            (self._usable(item, split) for item in items),
            self._task.num_train if split == "train" else self._task.num_heldout,
            split=split,
            too_few=f"lower it or widen task.options of {self._task.dataset}",
        )

    def _items(self, start: int) -> Iterator[Mapping[str, Any] | None]:
        """Yield the items made from the seeds `start`, `start` + 1, ...; None where the package fails to make one.

        Some data sets prepare all items of their size at once, and differ with the size: they are made in equal parts.
        """
        for first in itertools.count(start, _ITEMS_AT_ONCE):
            dataset = _create(self._task, seed=first, size=_ITEMS_AT_ONCE)
            for index in range(_ITEMS_AT_ONCE):
                try:
                    yield dataset[index]
                except (ArithmeticError, LookupError, RuntimeError, ValueError):
                    yield None

    def _usable(self, item: Mapping[str, Any] | None, split: Split) -> Problem | None:
        if item is None or item["answer"] == "" or is_heldout(item["question"]) != (split == "heldout"):
            return None
        unsolved = _UNSOLVED.get(self._task.dataset)
        if unsolved is not None and unsolved in item["answer"]:
            return None
        return self.problem(item)

    def problem(self, item: Mapping[str, Any]) -> Problem:
        """Return the problem of an item of the data set."""
        task, answer = self._task, item["answer"]
        problem = Problem(
            id=problem_id(f"{self.name}-{task.dataset}", item["question"]),
            family=self.name,
            question=item["question"],
            answer="" if answer is None else str(answer),
            solution=None if answer is None else stated_solution(str(answer), task.prompt),
            kind=task.dataset,
            grading={} if task.threshold == 1.0 else {"threshold": task.threshold},
            metadata={
                "dataset": task.dataset,
                "options": task.options,
                "entry": encode_entry({key: item[key] for key in item if key != "question"}),
            },
        )
        return with_prompt(problem, task.prompt)


def encode_entry(value: Any) -> Any:
    """Return JSON values that say what an item holds: tuples, sets and dicts with other keys than text are marked.

    What has no such form (fractions, objects) becomes its text.

    >>> encode_entry({"board": (1, 2), "peg": {1: "a"}})
    {'board': {'$tuple': [1, 2]}, 'peg': {'$dict': [[1, 'a']]}}
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [encode_entry(item) for item in value]
    if isinstance(value, tuple):
        return {"$tuple": [encode_entry(item) for item in value]}
    if isinstance(value, set | frozenset):
        return {"$set": sorted((encode_entry(item) for item in value), key=repr)}
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value):
            return {key: encode_entry(item) for key, item in value.items()}
        return {"$dict": [[encode_entry(key), encode_entry(item)] for key, item in value.items()]}
    return encode_entry(value.item()) if hasattr(value, "item") else str(value)


def _factory() -> ModuleType:
    try:
        from reasoning_gym import factory
    except ImportError:
        raise MissingExtraError("reasoning-gym", "reasoning-gym", "the task reasoning_gym") from None
    module: ModuleType = factory
    return module


def _check_options(task: ReasoningGymTask) -> None:
    """Check that the data set exists and takes the task's options.

    Raises:
        ConfigError: it does not exist or does not take them.
        MissingExtraError: reasoning-gym is not installed.
    """
    known = [name for name in _factory().DATASETS if name != "composite"]
    if task.dataset not in known:
        raise ConfigError(
            f"task.dataset {task.dataset!r} is no data set of reasoning-gym{nearest(task.dataset, known)}; there are "
            f"{len(known)}, such as {', '.join(sorted(known)[:5])}; for several of them at once use a task mixture"
        )

    # The options are those of the data set's own configuration, but for what the run chooses.
    allowed = [field.name for field in fields(_factory().DATASETS[task.dataset][1]) if field.name not in _OURS]
    for option in task.options:
        if option in _OURS:
            raise ConfigError(f"task.options.{option} is chosen by the run; leave it out")
        if option not in allowed:
            raise ConfigError(
                f"task.options.{option} is no option of {task.dataset}{nearest(option, allowed)}; it has: "
                f"{', '.join(allowed) or 'none'}"
            )
    _create(task, seed=0, size=1)


def _create(task: ReasoningGymTask, *, seed: int, size: int) -> Any:
    try:
        return _factory().create_dataset(task.dataset, **task.options, seed=seed, size=size)
    except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ConfigError(
            f"task.options {task.options} do not fit the data set {task.dataset}: {error or type(error).__name__}"
        ) from error


TASK = TaskKind(
    ReasoningGymTask,
    ReasoningGym,
    GraderEntry(
        module="swerve.problems.reasoning_gym.scoring",
        function="grade_reasoning_gym",
        isolated=True,
        preloads=("sympy", "reasoning_gym"),
        needs_gold=False,
    ),
)
