"""The scores of models on problems, and their comparison (`comparison.json`), as typed records. Free of torch."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import pyarrow as pa

from swerve.artifacts.frames import Framed, flat_cells, table_of_rows
from swerve.artifacts.record import Record
from swerve.estimates import Estimate, SamplingCurve
from swerve.notebook import html_rows
from swerve.text import NOT_MEASURED, count, counted, judged_words, listed, percent_interval, points_interval

MeasureUnit = Literal["share", "nats", "tokens", "words", "count", "cosine"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """What is measured of responses or of a run."""

    title: str
    unit: MeasureUnit
    least: float = 0.0

    @property
    def bounds(self) -> tuple[float, float]:
        """Smallest and largest value."""
        return self.least, 1.0 if self.unit in ("share", "cosine") else math.inf

    @property
    def difference_bounds(self) -> tuple[float, float]:
        """Smallest and largest difference of two values."""
        low, high = self.bounds
        return low - high, high - low


MEASURES: Mapping[str, Measure] = MappingProxyType(
    {
        "accuracy": Measure(title="accuracy", unit="share"),
        "unanswered": Measure(title="no answer", unit="share"),
        "truncated": Measure(title="cut off", unit="share"),
        "num_tokens": Measure(title="tokens", unit="tokens"),
        "num_words": Measure(title="words", unit="words"),
        "entropy": Measure(title="token entropy, nats", unit="nats"),
        "similarity": Measure(title="similarity of samples (2-grams)", unit="cosine"),
        "embedding_similarity": Measure(title="similarity of samples (embedding)", unit="cosine", least=-1.0),
        "distinct_right": Measure(title="different right answers", unit="count"),
        "in_format": Measure(title="in format", unit="share"),
        "empty_thinking": Measure(title="empty thinking", unit="share"),
        "reflections": Measure(title="reflections per 1,000 words", unit="count"),
        "repeated_4grams": Measure(title="repeated 4-grams", unit="share"),
        "trace_right": Measure(title="traces right", unit="share"),
    }
)
"""What is compared of responses, in the order of tables; each is a field of `Scores`."""


FROM_FILE = "from a file"
"""How responses are said to be chosen that were made elsewhere."""


def decoding_name(temperature: float | None) -> str:
    """Return how completions of a temperature were chosen, in words.

    >>> decoding_name(0), decoding_name(0.7), decoding_name(None)
    ('greedy', 'T=0.7', 'all temperatures')
    """
    if temperature is None:
        return "all temperatures"
    return "greedy" if temperature == 0 else f"T={temperature:g}"


class Difference(Record):
    """A measure of a model minus that of the baseline, paired by problem."""

    compared_with: str
    """Label of the baseline, with its decoding."""
    num_problems: int
    """Problems that the measure is known of for both."""
    estimate: Estimate
    """Mean over these problems with its interval."""
    p_value: float | None
    """McNemar's test where a problem is either right or wrong, else sign flips of the problems' differences."""
    p_adjusted: float | None = None
    """By Benjamini and Hochberg over all differences of the comparison."""


class Scores(Record):
    """What a model makes of some problems at one temperature: means over problems, of the mean over its responses.

    Intervals are over problems: exact for fractions where each problem has one response, else t intervals. What was
    not measured is null; `num_measured` says of how many problems a measure is known, where that is not all of them.
    """

    num_problems: int
    num_measured: Mapping[str, int] = {}
    accuracy: Estimate | None = None
    """Fraction that is right (pass@1), one whose grader failed counting as wrong; null: no response has a verdict."""
    mean_reward: Estimate | None = None
    """A response without a reward counts 0."""
    num_tokens: Estimate | None = None
    """Length in tokens, where they are known."""
    num_words: Estimate | None = None
    """Length in words."""
    entropy: Estimate | None = None
    """Mean entropy along the responses under the model's own distribution at temperature 1, nats."""
    trace_right: Estimate | None = None
    """Fraction whose answer and steps are right; null where steps are not checked."""
    unanswered: Estimate | None = None
    """Fraction without an answer, whether or not something is paid for them."""
    truncated: Estimate | None = None
    """Fraction cut off at the length limit."""
    similarity: Estimate | None = None
    """Of two samples of a problem: mean over all pairs of the cosine between counts of word 2-grams."""
    embedding_similarity: Estimate | None = None
    """The same of embeddings, where a model of them was given."""
    distinct_right: Estimate | None = None
    """Different right answers among two or more samples of a problem; right ones that were not recorded are alike."""
    in_format: Estimate | None = None
    """Fraction in the format that their prompt asks for; null where none asks for one."""
    empty_thinking: Estimate | None = None
    """Of those that think first, the fraction whose thinking is empty, filler or about something else."""
    reflections: Estimate | None = None
    """Words and phrases of reflection per 1,000 words."""
    repeated_4grams: Estimate | None = None
    """Fraction of runs of four words that stood in the response before."""


class ModelScores(Scores):
    """What a model makes of the problems at one temperature: half of a checkpoint's evaluation, a row of a table."""

    model: str
    """Label of the model or checkpoint."""
    temperature: float | None
    """0: greedy; null: the samples of all temperatures."""
    num_samples: int
    """Completions of each problem."""
    origin: Literal["model", "file"] = "model"
    """`file`: the responses were made elsewhere."""
    statuses: Mapping[str, int] = {}
    """How many of the completions are `graded`, `unparsed`, `timeout` and `error`."""
    num_unanswered: int | None = None
    """How many of them hold no answer, whether or not something is paid for them; null: not known of all."""
    curve: tuple[SamplingCurve, ...] = ()
    """For k of 1, 2, 4, ... samples: pass@k, pass^k and the majority vote ([Behaviours](behaviours.md)); empty for
    greedy completions."""
    by_kind: Mapping[str, Scores] = {}
    """The same scores for each kind of problem."""
    by_part: Mapping[str, Scores] | None = None
    """The same scores for each part of a mixture; null without one."""
    kind_average: Estimate | None = None
    """Mean over the kinds of the accuracy of each; null with one kind."""
    differences: Mapping[str, Difference] = {}
    """By measure, from the baseline of a comparison; empty for itself, and outside of one."""

    @property
    def decoding(self) -> str:
        """How the completions were chosen."""
        if self.origin == "model":
            return decoding_name(self.temperature)
        return FROM_FILE if self.temperature is None else f"{FROM_FILE}, {decoding_name(self.temperature)}"

    @property
    def ungraded(self) -> float | None:
        """Fraction of the completions that reached a limit of the grader or made it fail; None: no grader was asked."""
        total = sum(self.statuses.values())
        return (self.statuses.get("timeout", 0) + self.statuses.get("error", 0)) / total if total else None

    def of_samples(self, k: int) -> SamplingCurve:
        """Return what k samples of a problem are worth; of what was not measured every figure is null."""
        nothing = SamplingCurve(k=k, num_problems=0, pass_at_k=None, pass_hat_k=None, majority_at_k=None)
        return next((point for point in self.curve if point.k == k), nothing)


class PublishedRow(Record):
    """Accuracies that somebody published: without an interval, and compared with nothing."""

    name: str
    by_kind: Mapping[str, float] = {}
    """Accuracy on each kind of problem."""
    accuracy: float | None = None
    """Over all problems, where it was published."""

    def average(self, kinds: Collection[str]) -> float | None:
        """Return the mean over some kinds of the accuracy of each; None where one is not known."""
        known = [self.by_kind[kind] for kind in kinds if kind in self.by_kind]
        return sum(known) / len(known) if kinds and len(known) == len(kinds) else None


class Comparison(Framed, Record):
    """Models compared on the same problems."""

    confidence: float
    """Coverage of the intervals."""
    baseline: str
    """Label of the model that the others are compared with."""
    rows: tuple[ModelScores, ...]
    published: tuple[PublishedRow, ...] = ()
    graders: tuple[str, ...] = ()
    """What judged the responses; empty: other programs did."""
    notes: tuple[str, ...] = ()
    """What files have that took no part, and answers that may have been misread, in sentences."""

    @property
    def num_differences(self) -> int:
        """How many intervals of differences there are."""
        return sum(len(row.differences) for row in self.rows)

    def headlines(self) -> dict[str, ModelScores]:
        """Return the first row of each model: of all temperatures together, where such a row was made."""
        headlines: dict[str, ModelScores] = {}
        for row in self.rows:
            headlines.setdefault(row.model, row)
        return headlines

    def table(self) -> pa.Table:
        """Return one row a model and temperature: each measure with the ends of its interval, `_low` and `_high`.

        Of differences from the baseline the columns begin with `difference_`.
        """
        rows = []
        for row in self.rows:
            cells = {"model": row.model, "decoding": row.decoding, **flat_cells(row)}
            for name, difference in row.differences.items():
                cells |= flat_cells([(name, difference.estimate)], prefix="difference_")
                cells[f"p_{name}"] = difference.p_value
            rows.append(cells)
        return table_of_rows(rows)

    def __repr__(self) -> str:
        """Return three lines: what was compared, how many are right, and how much that differs from the baseline."""
        first = list(self.headlines().values())
        labels = ", ".join(row.model for row in first)
        *more, least = sorted({row.num_problems for row in first}, reverse=True) or [0]
        right = ", ".join(f"{row.model} {_share_right(row)}" for row in first if row.accuracy)
        differences = [
            f"{row.model} {points_interval(found.estimate)}{_over(found.num_problems, max([*more, least]))}"
            for row in first
            if (found := row.differences.get("accuracy"))
        ]
        than = (
            f"points more than {self.baseline}: {', '.join(differences)}"
            if differences
            else "there is nothing to compare it with"
            if len(first) == 1
            else "no difference is measured"
        )
        asked = listed([*map(count, more), counted(least, "problem")])
        judged = judged_words(self.graders, *self._num_cut_off())
        known = {row.model for row in self.rows if row.temperature is not None}
        mixed = any(row.temperature is None and row.model in known for row in first)
        which = f" ({decoding_name(None)}; to_pandas() has each)" if mixed else ""
        lines = (
            f"Comparison of {labels} on {asked}",
            f"right{which}: {right or NOT_MEASURED}{judged}",
            than,
        )
        return "\n".join((*lines, *self.notes))

    def _num_cut_off(self) -> tuple[int, int]:
        """Return how many of the models' own responses were cut off, as far as known, and how many there are."""
        num = total = 0
        for row in self.rows:
            if row.truncated is not None and row.temperature is not None and row.origin == "model":
                known = row.num_measured.get("truncated", row.num_problems) * row.num_samples
                num, total = num + round(row.truncated.mean * known), total + known
        return num, total

    def _repr_html_(self) -> str:
        """Return the accuracies as a table, with the differences."""
        rows = []
        for row in self.rows:
            difference = row.differences.get("accuracy")
            more = "" if difference is None else f"; {points_interval(difference.estimate)} points from {self.baseline}"
            rows.append((f"{row.model}, {row.decoding}", f"{percent_interval(row.accuracy)} right{more}"))
        if judged := judged_words(self.graders, *self._num_cut_off()):
            rows.append(("", judged.removeprefix("; ")))
        return html_rows([*rows, *(("", note) for note in self.notes)])


def _share_right(row: ModelScores) -> str:
    """Write a model's accuracy, with the problems that it is known of where those are not all."""
    known = row.num_measured.get("accuracy", row.num_problems)
    return f"{percent_interval(row.accuracy)}{_over(known, row.num_problems)}"


def _over(num: int, total: int) -> str:
    """Return of how many problems a figure is, where it is not of all.

    >>> _over(9, 12), _over(12, 12)
    (', of 9 of 12 problems', '')
    """
    return "" if num == total else f", of {count(num)} of {counted(total, 'problem')}"
