"""The scores of models on problems, and their comparison (`comparison.json`), as typed records. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping

from swerve.artifacts.record import Record
from swerve.estimates import Estimate, SamplingCurve


def decoding_name(temperature: float | None) -> str:
    """Return how completions of a temperature were chosen, in words.

    >>> decoding_name(0), decoding_name(0.7), decoding_name(None)
    ('greedy', 'T=0.7', 'all temperatures')
    """
    if temperature is None:
        return "all temperatures"
    return "greedy" if temperature == 0 else f"T={temperature:g}"


class Difference(Record):
    """A model's accuracy minus the first model's on the same problems."""

    compared_with: str
    """Label of the first model, with its decoding."""
    estimate: Estimate
    """Mean over problems with its interval."""
    p_value: float | None
    """McNemar's test where both have one sample per problem, else sign flips of the problems' differences."""
    p_adjusted: float | None = None
    """By Benjamini and Hochberg over the table's differences."""


class Scores(Record):
    """What a model makes of some problems at one temperature: means over problems."""

    num_problems: int
    accuracy: Estimate
    """Fraction of a problem's completions that are right (pass@1), an ungraded one counting as wrong; Wilson's interval
    where each problem has one completion, else a t interval over problems."""
    mean_reward: Estimate | None
    """A completion without a reward counts 0; t interval over problems."""
    num_tokens: Estimate | None
    """Mean length of a completion, tokens; t interval over problems."""
    entropy: Estimate | None = None
    """Mean entropy along the completions, nats; t interval over problems; null where it was not measured."""
    trace_right: Estimate | None = None
    """Fraction of the completions whose answer and steps are right; null where steps are not checked."""


class ModelScores(Scores):
    """What a model makes of the problems at one temperature: half of a checkpoint's evaluation, a row of a table."""

    model: str
    """Label of the model or checkpoint."""
    temperature: float | None
    """0: greedy; null: the samples of all temperatures."""
    num_samples: int
    """Completions of each problem."""
    statuses: Mapping[str, int] = {}
    """How many of the completions are `graded`, `unparsed`, `timeout` and `error`."""
    num_unanswered: int = 0
    """How many of them hold no answer, whether or not something is paid for them."""
    truncated: float
    """Fraction of the completions cut off at the length limit."""
    curve: tuple[SamplingCurve, ...] = ()
    """For k of 1, 2, 4, ... samples: pass@k, pass^k and the majority vote ([Behaviours](behaviours.md)); empty for
    greedy completions."""
    by_kind: Mapping[str, Scores] = {}
    """The same scores for each kind of problem."""
    by_part: Mapping[str, Scores] | None = None
    """The same scores for each part of a mixture; null without one."""
    difference: Difference | None = None
    """From the first model of a comparison; null for itself, and outside of one."""

    @property
    def decoding(self) -> str:
        """How the completions were chosen."""
        return decoding_name(self.temperature)

    @property
    def unanswered(self) -> float:
        """Fraction of the completions without an answer."""
        return self.num_unanswered / sum(self.statuses.values())

    @property
    def ungraded(self) -> float:
        """Fraction of the completions that reached a limit of the grader or made it fail."""
        return (self.statuses.get("timeout", 0) + self.statuses.get("error", 0)) / sum(self.statuses.values())

    def of_samples(self, k: int) -> SamplingCurve:
        """Return what k samples of a problem are worth; of what was not measured every figure is null."""
        nothing = SamplingCurve(k=k, num_problems=0, pass_at_k=None, pass_hat_k=None, majority_at_k=None)
        return next((point for point in self.curve if point.k == k), nothing)


class Comparison(Record):
    """Models compared on the same problems; the first is what the others are compared with."""

    confidence: float
    """Coverage of the intervals."""
    rows: tuple[ModelScores, ...]

    def headlines(self) -> dict[str, ModelScores]:
        """Return the first row of each model: of all temperatures together, where such a row was made."""
        headlines: dict[str, ModelScores] = {}
        for row in self.rows:
            headlines.setdefault(row.model, row)
        return headlines
