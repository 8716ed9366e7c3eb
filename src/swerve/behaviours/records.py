"""What the behaviour metrics read of a response."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BehaviourRecord"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BehaviourRecord:
    r"""One response to one problem. What is not known is None, and what needs it is then not measured.

    Example: `BehaviourRecord(problem_id="p7", response="2 + 2 = 4, so \boxed{4}", label="step 20", correct=True)`.
    """

    problem_id: str
    response: str
    """What the model wrote."""
    row: str = ""
    """Name of the row, by which flagged responses are listed, such as `step_000020.parquet row 7`."""
    label: str = "all"
    """What responses are compared by: a checkpoint, a training step, a set."""
    group: str | None = None
    """Name of the samples drawn together for one prompt; None: all those of the problem under the label."""
    question: str | None = None
    prefix: str = ""
    """The beginning of the answer that was given to the model, such as `<think>`."""
    correct: bool | None = None
    extracted: str | None = None
    """The answer a grader read from the response."""
    finish_reason: str | None = None
    """`length`: sampling stopped at a limit; anything else: the model stopped."""
    num_tokens: int | None = None

    @property
    def text(self) -> str:
        """The whole answer: what was given to the model and what it wrote."""
        return self.prefix + self.response
