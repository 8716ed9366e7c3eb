"""Score models on the same problems and compare them: accuracy, pass@k, paired differences; as text, CSV, LaTeX."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import get_args

from swerve.artifacts.comparison import Comparison, Difference, ModelScores, Scores
from swerve.artifacts.responses import Response, by_problem
from swerve.errors import MismatchError
from swerve.estimates import Estimate, hundredths, hundredths_interval
from swerve.formats.text_tables import by_number, latex_table, markdown_table
from swerve.statistics import accuracy_interval, benjamini_hochberg, mcnemar, mean_interval, share, sign_flip_test
from swerve.statistics.jackknife import UNBOUNDED
from swerve.statistics.pass_at_k import SampledProblem, sampling_curve
from swerve.types import Problem, RewardStatus

_DIFFERENCE = (-1.0, 1.0)
AT_LEAST_0 = (0.0, float("inf"))

Groups = Sequence[Sequence[Response]]
"""One model's responses at one temperature, problem by problem."""

_ByProblem = Mapping[str, Sequence[Response]]


def model_scores(
    groups: Groups,
    *,
    model: str,
    temperature: float | None,
    confidence: float,
    part_of: Callable[[Problem], str] | None = None,
) -> ModelScores:
    """Return the scores of a model's responses, over all problems and by kind.

    Args:
        groups: the responses to each problem.
        model: its label.
        temperature: of the responses; 0: greedy; None: of all temperatures.
        confidence: coverage of the intervals.
        part_of: the part of a mixture that a problem is of; None: it is no mixture.
    """
    # Counts are over all completions, pass@k over the samples of each problem.
    responses = list(chain.from_iterable(groups))
    statuses = Counter(response.status for response in responses)
    sampled = [
        SampledProblem(answers=[response.extracted for response in group], right=_verdicts(group)) for group in groups
    ]
    return ModelScores(
        **dict(_scores(groups, confidence)),
        model=model,
        temperature=temperature,
        num_samples=max(map(len, groups)),
        statuses={name: statuses[name] for name in get_args(RewardStatus)},
        num_unanswered=sum(not response.answered for response in responses),
        truncated=sum(response.finish_reason == "length" for response in responses) / len(responses),
        curve=() if temperature == 0 else tuple(sampling_curve(sampled, confidence=confidence)),
        by_kind=_scores_by(groups, lambda problem: problem.kind, confidence),
        by_part=_scores_by(groups, part_of, confidence) if part_of else None,
    )


def _scores_by(groups: Groups, name_of: Callable[[Problem], str], confidence: float) -> dict[str, Scores]:
    """Return the scores of the problems of each name, numbers in names counting as numbers."""
    named: dict[str, list[Sequence[Response]]] = {}
    for group in groups:
        named.setdefault(name_of(group[0].problem), []).append(group)
    return {name: _scores(named[name], confidence) for name in sorted(named, key=by_number)}


def _scores(groups: Groups, confidence: float) -> Scores:
    responses = list(chain.from_iterable(groups))
    checked = [response.trace_right for response in responses if response.trace_right is not None]
    entropies = [response.entropy for response in responses if response.entropy is not None]
    # Means over the responses to each problem.
    rewards = [sum(response.reward or 0.0 for response in group) / len(group) for group in groups]
    lengths = [sum(len(response.completion_ids) for response in group) / len(group) for group in groups]
    are_fractions = all(0.0 <= reward <= 1.0 for reward in rewards)
    accuracy = accuracy_interval(list(map(_verdicts, groups)), confidence=confidence)
    assert accuracy is not None  # there is a problem
    return Scores(
        num_problems=len(groups),
        accuracy=accuracy,
        mean_reward=mean_interval(rewards, confidence=confidence, bounds=(0.0, 1.0) if are_fractions else UNBOUNDED),
        num_tokens=mean_interval(lengths, confidence=confidence, bounds=AT_LEAST_0),
        entropy=mean_interval(entropies, confidence=confidence, bounds=AT_LEAST_0),
        trace_right=share(sum(checked), len(checked), confidence=confidence),
    )


def _verdicts(group: Sequence[Response]) -> list[bool]:
    return [bool(response.correct) for response in group]


def compare(models: Groups, *, pooled: bool = False, confidence: float = 0.95) -> Comparison:
    """Compare models with the first one on the same problems, at each temperature.

    A row is compared with the first model's row of the same temperature or, where it has none, with its first row.

    Args:
        models: the graded responses of each model, whose label they have; a model may come several times.
        pooled: of a model with several temperatures also a row of all of them, before the others.
        confidence: coverage of the intervals.

    Raises:
        MismatchError: two models have different problems.
    """
    # Each model's responses by temperature and problem.
    rows: list[ModelScores] = []
    answered: list[dict[str, list[Response]]] = []
    for responses in models:
        label = responses[0].label or ""
        temperatures = list(dict.fromkeys(response.temperature for response in responses))
        if pooled and len(temperatures) > 1:
            temperatures.insert(0, None)
        for temperature in temperatures:
            problems = by_problem(response for response in responses if temperature in (None, response.temperature))
            if answered and problems.keys() != answered[0].keys():
                raise MismatchError(
                    f"'{label}' and '{rows[0].model}' have different problems; sample both with the same task, split "
                    "and limit"
                )
            groups = list(problems.values())
            rows.append(model_scores(groups, model=label, temperature=temperature, confidence=confidence))
            answered.append(problems)

    # Each other model's difference from the first, the p-values adjusted for their number.
    first: dict[float | None, int] = {}
    for number, row in enumerate(rows):
        if row.model == rows[0].model:
            first.setdefault(row.temperature, number)
    others = [number for number, row in enumerate(rows) if row.model != rows[0].model]
    differences = []
    for number in others:
        base = first.get(rows[number].temperature, 0)
        label = f"{rows[base].model} {rows[base].decoding}"
        differences.append(_difference(answered[base], answered[number], label, confidence))
    adjusted = benjamini_hochberg([difference.p_value for difference in differences])
    for number, difference, p in zip(others, differences, adjusted, strict=True):
        difference = difference.model_copy(update={"p_adjusted": p})
        rows[number] = rows[number].model_copy(update={"difference": difference})
    return Comparison(confidence=confidence, rows=tuple(rows))


def _difference(first: _ByProblem, second: _ByProblem, compared_with: str, confidence: float) -> Difference:
    pairs = [(_verdicts(group), _verdicts(second[name])) for name, group in first.items()]
    before = [sum(early) / len(early) for early, _ in pairs]
    after = [sum(late) / len(late) for _, late in pairs]
    if all(len(early) == len(late) == 1 for early, late in pairs):
        test = mcnemar([early[0] for early, _ in pairs], [late[0] for _, late in pairs], confidence=confidence)
        estimate, p_value = test.difference, test.p_value
    else:
        changes = [late - early for early, late in zip(before, after, strict=True)]
        estimate = mean_interval(changes, confidence=confidence, bounds=_DIFFERENCE)
        p_value = sign_flip_test(before, after)
    assert estimate is not None
    return Difference(compared_with=compared_with, estimate=estimate, p_value=p_value)


def comparison_table(comparison: Comparison) -> list[list[str]]:
    """Return the table for people, the heading first; fractions in percent, intervals in brackets."""
    whole = comparison.rows[0]
    kinds = whole.by_kind if len(whole.by_kind) > 1 else {}
    ks = sorted({row.curve[-1].k for row in comparison.rows if row.num_samples > 1 and row.curve})
    compared = any(row.difference is not None for row in comparison.rows)
    # The heading says how many problems there are of each kind.
    heading = ["model", "decoding", "samples", *(f"{kind} ({scores.num_problems})" for kind, scores in kinds.items())]
    heading += [f"all ({whole.num_problems})", *(f"pass@{k}" for k in ks)]
    heading += ["difference", "p"] if compared else []
    rows = [[*heading, "no answer", "cut off", "tokens"]]
    for row in comparison.rows:
        cells = [row.model, row.decoding, str(row.num_samples)]
        cells += [hundredths(row.by_kind[kind].accuracy.mean) for kind in kinds]
        cells.append(hundredths_interval(row.accuracy))
        cells += ["" if (rate := row.of_samples(k).pass_at_k) is None else hundredths_interval(rate) for k in ks]
        cells += _difference_cells(row) if compared else []
        tokens = "" if row.num_tokens is None else f"{row.num_tokens.mean:.0f}"
        rows.append([*cells, hundredths(row.unanswered), hundredths(row.truncated), tokens])
    return rows


def _difference_cells(row: ModelScores) -> list[str]:
    """Return the difference and its p-value; what it is from stands beside it where the decoding is another."""
    difference = row.difference
    if difference is None:
        return ["", ""]
    p, other = difference.p_adjusted, difference.compared_with
    said = hundredths_interval(difference.estimate, signed=True)
    return [
        said if other.endswith(f" {row.decoding}") else f"{said} from {other}",
        "" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}",
    ]


def _csv(comparison: Comparison) -> str:
    """Return one line per model, decoding and kind, with fractions as numbers; `all` is the line of all problems."""
    ks = sorted({point.k for row in comparison.rows for point in row.curve})
    columns = ["model", "decoding", "temperature", "num_samples", "kind", "num_problems", "accuracy", "low", "high"]
    columns += [column for k in ks for column in _ends(f"pass_at_{k}")]
    columns += [*_ends("difference"), "p_value", "p_adjusted", "compared_with"]
    stream = io.StringIO()
    writer = csv.DictWriter(stream, columns, restval="", lineterminator="\n")
    writer.writeheader()
    for row in comparison.rows:
        for kind, scores in (*row.by_kind.items(), ("all", row)):
            same = {name: getattr(row, name) for name in ("model", "decoding", "temperature", "num_samples")}
            line = {**same, "kind": kind, "num_problems": scores.num_problems}
            line |= _numbers(scores.accuracy, "accuracy", "low", "high")
            # pass@k and the difference are of all problems together.
            if scores is row:
                for point in row.curve:
                    line |= _numbers(point.pass_at_k, *_ends(f"pass_at_{point.k}"))
                if row.difference is not None:
                    line |= _numbers(row.difference.estimate, *_ends("difference"))
                    line |= {name: _number(getattr(row.difference, name)) for name in ("p_value", "p_adjusted")}
                    line["compared_with"] = row.difference.compared_with
            writer.writerow(line)
    return stream.getvalue()


def _ends(name: str) -> tuple[str, str, str]:
    return name, f"{name}_low", f"{name}_high"


def _numbers(estimate: Estimate | None, *columns: str) -> dict[str, str]:
    """Return mean and ends of an interval in three columns."""
    values = () if estimate is None else (estimate.mean, estimate.low, estimate.high)
    return {column: _number(value) for column, value in zip(columns, values, strict=False)}


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


FORMATS: Mapping[str, Callable[[Comparison], str]] = MappingProxyType(
    {
        "md": lambda comparison: markdown_table(comparison_table(comparison), num_names=2),
        "csv": _csv,
        "latex": lambda comparison: latex_table(comparison_table(comparison), num_names=2),
        "json": lambda comparison: comparison.model_dump_json(indent=2) + "\n",
    }
)
"""The forms of a comparison beside the table for the terminal."""
