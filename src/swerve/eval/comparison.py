"""Compare models on the same problems: accuracy by kind, pass@k, paired differences; as text, Markdown, CSV, LaTeX."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from swerve.artifacts.comparison import Comparison, Difference, ModelScores, decoding_name
from swerve.artifacts.responses import Response
from swerve.errors import MismatchError
from swerve.estimates import Estimate, rounded
from swerve.formats.text_tables import latex_table, markdown_table
from swerve.statistics import accuracy_interval, benjamini_hochberg, mcnemar, mean_interval, sign_flip_test
from swerve.statistics.pass_at_k import SampledProblem, sampling_curve

_DIFFERENCE = (-1.0, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemOutcome:
    """What a model made of one problem."""

    kind: str
    right: tuple[bool, ...]
    """One per sample."""
    answers: tuple[str | None, ...]
    """As the grader read them; None: without an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """What one model made of the problems at one temperature."""

    model: str
    temperature: float | None
    """0: greedy; None: the samples of all temperatures."""
    problems: Mapping[str, ProblemOutcome]
    """By id."""
    statuses: Mapping[str, int]
    """How many of the completions are `graded`, `unparsed`, `timeout` and `error`."""
    num_unanswered: int
    """How many of them hold no answer."""
    num_truncated: int
    """Completions cut off at the length limit."""
    num_tokens: int
    """Of all completions."""


def outcomes_of(samples: Sequence[Response]) -> list[Outcomes]:
    """Return the outcomes of one model's samples, by temperature."""
    temperatures = dict.fromkeys(sample.temperature for sample in samples)
    return [_outcomes([one for one in samples if one.temperature == value], value) for value in temperatures]


def pooled_outcomes(samples: Sequence[Response]) -> list[Outcomes]:
    """Return the outcomes of one model's samples: of all temperatures together, if there are several, and of each."""
    found = outcomes_of(samples)
    return found if len(found) == 1 else [_outcomes(samples, None), *found]


def _outcomes(samples: Sequence[Response], temperature: float | None) -> Outcomes:
    grouped: dict[str, list[Response]] = {}
    for sample in samples:
        grouped.setdefault(sample.problem.id, []).append(sample)
    return Outcomes(
        model=samples[0].label or "",
        temperature=temperature,
        problems={
            name: ProblemOutcome(
                kind=group[0].problem.kind,
                right=tuple(bool(sample.correct) for sample in group),
                answers=tuple(sample.extracted for sample in group),
            )
            for name, group in grouped.items()
        },
        statuses=Counter(sample.status or "" for sample in samples),
        num_unanswered=sum(not sample.answered for sample in samples),
        num_truncated=sum(sample.finish_reason == "length" for sample in samples),
        num_tokens=sum(len(sample.completion_ids) for sample in samples),
    )


def compare(outcomes: Sequence[Outcomes], *, confidence: float = 0.95) -> Comparison:
    """Compare models with the first one on the same problems.

    A row is compared with the first model's row of the same temperature or, where it has none, with its first row.

    Raises:
        MismatchError: two models have different problems.
    """
    first = outcomes[0]
    for other in outcomes:
        if other.problems.keys() != first.problems.keys():
            raise MismatchError(
                f"'{other.model}' and '{first.model}' have different problems; sample both with the same task, split "
                "and limit"
            )
    own = [one for one in outcomes if one.model == first.model]
    found: list[Difference | None] = []
    for one in outcomes:
        base = next((known for known in own if known.temperature == one.temperature), first)
        found.append(None if one.model == first.model else _difference(base, one, confidence))
    adjusted, _ = benjamini_hochberg([None if one is None else one.p_value for one in found])
    differences = [
        None if one is None else one.model_copy(update={"p_adjusted": p})
        for one, p in zip(found, adjusted, strict=True)
    ]
    kinds = Counter(one.kind for one in first.problems.values())
    return Comparison(
        kinds={kind: kinds[kind] for kind in sorted(kinds, key=_natural)},
        confidence=confidence,
        rows=tuple(_scores(*row, confidence) for row in zip(outcomes, differences, strict=True)),
    )


def _natural(text: str) -> list[tuple[int, str]]:
    """Return a key by which numbers in texts count as numbers.

    >>> sorted(["10 people", "2 people"], key=_natural)
    ['2 people', '10 people']
    """
    return [(int(part) if part.isdigit() else -1, part) for part in re.split(r"(\d+)", text)]


def _fraction(problem: ProblemOutcome) -> float:
    return sum(problem.right) / len(problem.right)


def _difference(first: Outcomes, second: Outcomes, confidence: float) -> Difference:
    pairs = [(one, second.problems[name]) for name, one in first.problems.items()]
    label = f"{first.model} {decoding_name(first.temperature)}"
    before, after = ([_fraction(pair[place]) for pair in pairs] for place in (0, 1))
    if all(len(one.right) == len(other.right) == 1 for one, other in pairs):
        found = mcnemar([value == 1 for value in before], [value == 1 for value in after], confidence=confidence)
        estimate, p_value = found.difference, found.p_value
    else:
        changes = [late - early for early, late in zip(before, after, strict=True)]
        estimate = mean_interval(changes, confidence=confidence, bounds=_DIFFERENCE)
        p_value = sign_flip_test(before, after)
    assert estimate is not None
    return Difference(compared_with=label, estimate=estimate, p_value=p_value)


def _scores(outcomes: Outcomes, difference: Difference | None, confidence: float) -> ModelScores:
    problems = list(outcomes.problems.values())
    num = sum(len(one.right) for one in problems)
    num_samples = max(len(one.right) for one in problems)

    def accuracy(chosen: Sequence[ProblemOutcome]) -> Estimate:
        found = accuracy_interval([one.right for one in chosen], confidence=confidence)
        assert found is not None
        return found

    sampled = [SampledProblem(answers=one.answers, right=one.right) for one in problems]
    kinds = sorted({one.kind for one in problems}, key=_natural)
    return ModelScores(
        model=outcomes.model,
        temperature=outcomes.temperature,
        num_problems=len(problems),
        num_samples=num_samples,
        accuracy=accuracy(problems),
        by_kind={kind: accuracy([one for one in problems if one.kind == kind]) for kind in kinds},
        curve=tuple(sampling_curve(sampled, confidence=confidence)) if num_samples > 1 else (),
        difference=difference,
        unanswered=outcomes.num_unanswered / num,
        ungraded=(outcomes.statuses.get("timeout", 0) + outcomes.statuses.get("error", 0)) / num,
        truncated=outcomes.num_truncated / num,
        num_tokens=outcomes.num_tokens / num,
    )


def comparison_table(comparison: Comparison) -> list[list[str]]:
    """Return the table for people, the heading first; fractions in percent, intervals in brackets."""
    kinds = list(comparison.kinds) if len(comparison.kinds) > 1 else []
    ks = sorted({row.curve[-1].k for row in comparison.rows if row.curve})
    compared = any(row.difference is not None for row in comparison.rows)
    counted = [f"{kind} ({comparison.kinds[kind]})" for kind in kinds]
    ends = ["no answer", "cut off", "tokens"]
    heading = ["model", "decoding", "samples", *counted, f"all ({comparison.rows[0].num_problems})"]
    heading += [*(f"pass@{k}" for k in ks), *(["difference", "p"] if compared else []), *ends]
    rows = [
        [
            row.model,
            row.decoding,
            str(row.num_samples),
            *(_percent(row.by_kind[kind].mean) for kind in kinds),
            _interval(row.accuracy),
            *(_pass_at(row, k) for k in ks),
            *(_difference_cells(row) if compared else []),
            _percent(row.unanswered),
            _percent(row.truncated),
            f"{row.num_tokens:.0f}",
        ]
        for row in comparison.rows
    ]
    return [heading, *rows]


def _percent(fraction: float, *, signed: bool = False) -> str:
    text = rounded(100 * fraction, 1, -100, 0, 100)
    return f"+{text}" if signed and not text.startswith("-") else text


def _interval(estimate: Estimate | None, *, signed: bool = False) -> str:
    if estimate is None:
        return ""
    mean, low, high = (_percent(value, signed=signed) for value in (estimate.mean, estimate.low, estimate.high))
    return f"{mean} [{low}, {high}]"


def _pass_at(row: ModelScores, k: int) -> str:
    return next((_interval(one.pass_at_k) for one in row.curve if one.k == k), "")


def _difference_cells(row: ModelScores) -> list[str]:
    """Return the difference and its p-value; what it is from stands beside it where the decoding is another."""
    difference = row.difference
    if difference is None:
        return ["", ""]
    p, other = difference.p_adjusted, difference.compared_with
    found = _interval(difference.estimate, signed=True)
    return [
        found if other.endswith(f" {row.decoding}") else f"{found} from {other}",
        "" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}",
    ]


def _markdown(comparison: Comparison) -> str:
    return markdown_table(comparison_table(comparison), num_names=2)


def _latex(comparison: Comparison) -> str:
    return latex_table(comparison_table(comparison), num_names=2)


def _csv(comparison: Comparison) -> str:
    """Return one line per model, decoding and kind, with fractions as numbers; `all` is the line of all problems."""
    stream = io.StringIO()
    write = csv.writer(stream, lineterminator="\n").writerow
    ks = sorted({one.k for row in comparison.rows for one in row.curve})
    changes = ("difference", "difference_low", "difference_high", "p_value", "p_adjusted", "compared_with")
    write(
        ["model", "decoding", "temperature", "num_samples", "kind", "num_problems", "accuracy", "low", "high"]
        + [f"pass_at_{k}{end}" for k in ks for end in ("", "_low", "_high")]
        + list(changes)
    )
    for row in comparison.rows:
        same = [row.model, row.decoding, row.temperature, row.num_samples]
        for kind, estimate in row.by_kind.items():
            write([*same, kind, comparison.kinds[kind], *_numbers(estimate)] + [""] * (3 * len(ks) + len(changes)))
        passed = {one.k: one.pass_at_k for one in row.curve}
        change = row.difference
        said = ["", "", "", "", "", ""]
        if change is not None:
            said = [*_numbers(change.estimate), _cell(change.p_value), _cell(change.p_adjusted), change.compared_with]
        cells = [number for k in ks for number in _numbers(passed.get(k))]
        write([*same, "all", row.num_problems, *_numbers(row.accuracy), *cells, *said])
    return stream.getvalue()


def _numbers(estimate: Estimate | None) -> list[str]:
    return ["", "", ""] if estimate is None else [_cell(estimate.mean), _cell(estimate.low), _cell(estimate.high)]


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _json(comparison: Comparison) -> str:
    return comparison.model_dump_json(indent=2) + "\n"


FORMATS: Mapping[str, Callable[[Comparison], str]] = MappingProxyType(
    {"md": _markdown, "csv": _csv, "latex": _latex, "json": _json}
)
"""The forms of a comparison beside the table for the terminal."""
