"""The task of word problems: short reasoning in English of varying wording, with a checker of every step."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, model_validator

from swerve.grading.answers import find_answer
from swerve.grading.grader import GraderEntry, graded
from swerve.problems.family import GeneratedFamily, Split, is_heldout, problem_id
from swerve.problems.prompt import PromptConfig, with_prompt
from swerve.problems.task import PromptedTask, TaskKind
from swerve.problems.word_problems.mistakes import find_mistakes
from swerve.problems.word_problems.story import Event, Story, draw_story, told, written_solution
from swerve.settings import PositiveInt, Probability
from swerve.text import counted
from swerve.types import Problem, Reward, StepMark


class WordProblemsTask(PromptedTask):
    """Word problems of a few steps in English of varying wording, made for small models with learned sub-words."""

    kind: Literal["word_problems"] = "word_problems"
    min_steps: Annotated[int, Field(ge=1, le=6)] = 2
    """Fewest steps of a problem."""
    max_steps: Annotated[int, Field(ge=1, le=6)] = 3
    """Most steps of a problem."""
    rare_train: Probability = 0.5
    """Share of events told in rare wordings in training problems; in held-out ones it is half."""
    num_train: PositiveInt = 8000
    """Distinct training problems."""
    num_heldout: PositiveInt = 400
    """Distinct held-out problems."""
    prompt: PromptConfig = PromptConfig()

    @model_validator(mode="after")
    def _check_steps(self) -> WordProblemsTask:
        if self.min_steps > self.max_steps:
            raise ValueError(f"min_steps ({self.min_steps}) must be at most max_steps ({self.max_steps})")
        return self


_RARE_HELDOUT = 0.5


class WordProblems(GeneratedFamily[WordProblemsTask]):
    """Stories in which a number of things changes, told in common and rare wordings, some sentences changing nothing.

    Example: `Ann has 12 pens. A parcel brings 5 pens. Ben has 3 pens. How many pens does Ann have now?` has a solution
    such as `Ann starts with 12. Now Ann gains 5, so 12 + 5 = 17. #### 17`; supervised ones vary in their words.

    Held out: combinations of wordings, in their order. Kind: the number of steps, and whether a sentence changes
    nothing. Difficulty: the number of steps. Metadata: `start`, `events` (sign, number; no sign: nothing changes),
    `owner` and `things`, by which completions are checked step by step.
    """

    name = "word_problems"
    too_few = "lower it or raise task.max_steps"
    checks_steps = True

    def draws(self, split: Split, rng: random.Random) -> Iterator[Problem | None]:
        """Yield problems of a split; None where a combination of wordings belongs to the other."""
        rare = self._task.rare_train if split == "train" else _RARE_HELDOUT
        while True:
            story = draw_story(rng, steps=range(self._task.min_steps, self._task.max_steps + 1))
            question, wordings = told(story, rng, rare=rare)
            is_other = is_heldout(wordings) != (split == "heldout")
            yield None if is_other else self.problem(story, question, wordings)

    def problem(self, story: Story, question: str, wordings: str) -> Problem:
        """Return the problem of a story that is told as a question in a combination of wordings."""
        num_steps, name = len(story.steps), problem_id(self.name, question)
        kind = counted(num_steps, "step")
        problem = Problem(
            id=name,
            family=self.name,
            question=question,
            answer=str(story.end),
            solution=written_solution(story, random.Random(name)),
            kind=kind if len(story.events) == num_steps else f"{kind}, distracted",
            group=wordings,
            difficulty=float(num_steps),
            metadata={**story._asdict(), "events": [list(event) for event in story.events]},
        )
        return with_prompt(problem, self._task.prompt)

    def trace(self, problem: Problem, rng: random.Random) -> str:
        """Return a right solution in words that are drawn."""
        return written_solution(_story(problem), rng)

    def check(self, problem: Problem, text: str) -> list[StepMark]:
        """Return a mark for everything wrong in a completion, given what is written before it."""
        return find_mistakes(_story(problem), text)


def _story(problem: Problem) -> Story:
    facts = problem.metadata
    events = tuple(Event(sign, number) for sign, number in facts["events"])
    return Story(facts["start"], events, facts["owner"], facts["things"])


def grade_word_problem(problem: Problem, text: str) -> Reward:
    """Return 1 if the number after `####` is the answer, else 0.

    >>> problem = Problem(id="p", family="word_problems", question="...", answer="17")
    >>> grade_word_problem(problem, "12 + 5 = 17. #### 17").value, grade_word_problem(problem, "17").status
    (1.0, 'unparsed')
    """
    stated = find_answer(text, ("text_after_hash",))
    if stated is None:
        return Reward(value=None, status="unparsed")
    return graded(stated == problem.answer, stated)


TASK = TaskKind(WordProblemsTask, WordProblems, GraderEntry(module=__name__, function="grade_word_problem"))
