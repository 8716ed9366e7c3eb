"""Models compared on the same problems, `comparison.json` of an evaluation, as typed records. Free of torch."""

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


class ModelScores(Record):
    """One row of the table: a model at a temperature."""

    model: str
    temperature: float | None
    """0: greedy; null: the samples of all temperatures."""
    num_problems: int
    num_samples: int
    """Per problem."""
    accuracy: Estimate
    """Mean over problems of the fraction of samples that are right (pass@1); an ungraded one counts as wrong."""
    by_kind: Mapping[str, Estimate]
    """The same by kind of problem."""
    curve: tuple[SamplingCurve, ...]
    """pass@k, pass^k and majority vote by k; empty with one sample per problem."""
    difference: Difference | None
    """From the first model; null for itself."""
    unanswered: float
    """Fraction of the completions without an answer."""
    ungraded: float
    """Fraction that reached a limit of the grader or made it fail."""
    truncated: float
    """Fraction cut off at the length limit."""
    num_tokens: float
    """Mean length of a completion, tokens."""

    @property
    def decoding(self) -> str:
        """How the completions were chosen."""
        return decoding_name(self.temperature)


class Comparison(Record):
    """Models compared on the same problems; the first is what the others are compared with."""

    kinds: Mapping[str, int]
    """Kinds of problems and how many there are of each."""
    confidence: float
    """Coverage of the intervals."""
    rows: tuple[ModelScores, ...]

    def headlines(self) -> dict[str, ModelScores]:
        """Return the first row of each model: of all temperatures together, where such a row was made."""
        found: dict[str, ModelScores] = {}
        for row in self.rows:
            found.setdefault(row.model, row)
        return found
