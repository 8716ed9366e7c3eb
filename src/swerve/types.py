"""The records that pass between stages: frozen, keyword-only, free of torch.

A record never changes after it is made; a stage returns new ones. Token ids are tuples of int, log-probabilities are in
nats, positions count from 0 at the first completion token.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

FinishReason = Literal["stop", "length"]
RewardStatus = Literal["graded", "unparsed", "timeout", "error"]
"""graded: there is a value; unparsed: no answer was found in the text; timeout: a limit of time,
memory or size was reached; error: the grader itself failed."""

Message = tuple[str, str]
"""A message's role (system, user, assistant) and text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem with a verifiable answer.

    Example: `Problem(id="addition-1234+0066", family="addition", question="1 2 3 4 + 0 0 6 6 =", answer="0 1 3 0 0",
    solution="4 + 6 + 0 = 1 0 write 0 carry 1 ; ...", kind="2 carries")`.
    """

    id: str
    """Stable name made from the content, unique within a family."""
    family: str
    question: str
    """The problem's text (before any prompt format and chat template)."""
    answer: str
    """The gold final answer, in the family's canonical form."""
    alternatives: tuple[str, ...] = ()
    """Other gold answers, each as good as `answer`."""
    solution: str | None = None
    """A fully right written-out reasoning, where the family has one."""
    kind: str = "all"
    """The stratum by which evaluation reports (number of carries, connectives, level, ...)."""
    group: str | None = None
    """The template that it is made from, or whatever else it shares with other problems: those of one group count as
    one observation. None: it is alone."""
    difficulty: float | None = None
    """How hard the family says it is, on the family's own scale; higher is harder."""
    messages: tuple[Message, ...] = ()
    """What the model is given, where that is more than the question: the prompt format filled in."""
    prefix: str = ""
    """The beginning of the answer that the model is given, such as `<think>`."""
    begun: str | None = None
    """What the chat template's prompt ends with of the answer, `<think>` say; None: the template is not known."""
    grader: str = ""
    """Name of the grader, where it is another than the family's."""
    grading: Mapping[str, Any] = field(default_factory=dict)
    """The grader's policies that differ from their defaults (JSON values)."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """What else the source says of it (JSON values)."""

    @property
    def cluster(self) -> str:
        """The name of the observation that it belongs to: its group's, else its own.

        >>> of = {"family": "sums", "question": "1 + 1?", "answer": "2"}
        >>> Problem(id="p", **of).cluster, Problem(id="p", group="sums of two", **of).cluster
        ('problem p', 'group sums of two')
        """
        return f"problem {self.id}" if self.group is None else f"group {self.group}"


def clusters_of(problems: Iterable[Problem]) -> list[str] | None:
    """Return the name of each problem's cluster, for intervals over problems; None where none has a group.

    >>> of = {"family": "sums", "question": "1 + 1?", "answer": "2"}
    >>> clusters_of([Problem(id="p", **of), Problem(id="q", group="sums of two", **of)])
    ['problem p', 'group sums of two']
    """
    known = list(problems)
    return None if all(problem.group is None for problem in known) else [problem.cluster for problem in known]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A problem as the token ids a model reads."""

    problem: Problem
    token_ids: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.token_ids:
            raise ValueError(f"problem {self.problem.id!r} has an empty prompt; a model needs at least one token")


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The ids an engine sampled, with the log-probability of each under the sampling distribution (nats).

    The end-of-sequence token, where the model produced it, is the last id: it is a position like any other.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason
    entropy: float | None = None
    """Nats, summed over the distributions that the ids were drawn from; None where the engine was not asked for it, or
    does not know it."""

    def __post_init__(self) -> None:
        if len(self.token_ids) != len(self.logprobs):
            raise ValueError(f"{len(self.token_ids)} token ids but {len(self.logprobs)} log-probabilities")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """What a grader says of a text: a value, or the reason why it has none; and whether the text holds an answer.

    `value` is None exactly when `status` is not `graded`. What training does with a failure is a policy of its config.
    A text without an answer may have a value: some scales pay for the format alone.

    >>> Reward(value=1.0, status="graded").answered, Reward(value=None, status="unparsed").answered
    (True, False)
    """

    value: float | None
    status: RewardStatus
    answered: bool = None  # type: ignore[assignment]
    """Whether there is an answer in the text; by default, unless it is `unparsed`."""
    parts: Mapping[str, float] = field(default_factory=dict)
    extracted: str | None = None
    """The answer the grader read from the text; None where the text has none, whatever was given."""
    detail: str | None = None
    """Why there is no value: which limit was reached, what failed."""

    def __post_init__(self) -> None:
        if (self.value is None) == (self.status == "graded"):
            raise ValueError(f"a reward has a value exactly when it is graded; got {self.value} with {self.status!r}")
        if self.answered is None:
            object.__setattr__(self, "answered", self.status != "unparsed")
        if self.answered and self.status == "unparsed":
            raise ValueError("a text that is unparsed has no answer")
        if not self.answered:
            object.__setattr__(self, "extracted", None)  # it has no vote in a majority and does not count as an answer

    @property
    def is_right(self) -> bool:
        """Whether the text is right: its part `correct`, or its value where the grader has no such part, is 1 or more.

        >>> Reward(value=1.0, status="graded").is_right, Reward(value=None, status="unparsed").is_right
        (True, False)
        >>> Reward(value=1.0, status="graded", parts={"format": 1.0, "answer": 0.0, "correct": 0.0}).is_right
        False
        """
        return self.value is not None and self.parts.get("correct", self.value) >= 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One sampled completion, its text and its reward."""

    completion: Completion
    text: str
    reward: Reward
    version: int
    """The global optimisation step of the weights that sampled it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutGroup:
    """All completions sampled for one prompt in one step."""

    prompt: Prompt
    rollouts: tuple[Rollout, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMark:
    """A piece of a trace that a step checker found wrong, given the steps before it.

    `start` and `end` are character offsets into the completion's text; `expected` is what stands there in a right step.
    """

    start: int
    end: int
    expected: str
    kind: str = ""
    """What kind of mistake it is, where the checker tells kinds apart."""
