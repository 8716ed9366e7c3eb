"""Tables of a comparison of models: accuracy by kind, every measure with its differences; text, CSV, LaTeX, JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from swerve.artifacts.comparison import FROM_FILE, MEASURES, Comparison, Difference, ModelScores
from swerve.estimates import Estimate, hundredths, hundredths_interval
from swerve.formats.text_tables import latex_table, markdown_table

PUBLISHED = "published"
_IN_MAIN_TABLE = ("unanswered", "truncated", "num_tokens", "num_words", "empty_thinking")
_CSV_COLUMNS = (
    *("model", "decoding", "temperature", "num_samples", "kind", "measure", "num_problems", "mean", "low", "high"),
    *("difference", "difference_low", "difference_high", "difference_num_problems", "p_value", "p_adjusted"),
    "compared_with",
)


def comparison_table(comparison: Comparison, *, with_kinds: bool = True) -> list[list[str]]:
    """Return the table of accuracies for people, the heading first; fractions in percent, intervals in brackets.

    Columns are the kinds of problems, the mean over the kinds, that over all problems, pass@k, the paired difference,
    and the means of a few other measures. Published accuracies come last.
    """
    whole = max(comparison.rows, key=lambda row: row.num_problems)
    kinds = whole.by_kind if with_kinds and len(whole.by_kind) > 1 else {}
    ks = sorted({row.curve[-1].k for row in comparison.rows if row.num_samples > 1 and row.curve})
    compared = comparison.num_differences > 0
    shown = [name for name in _measured(comparison) if name in _IN_MAIN_TABLE]
    shown += ["reflections"] if any(row.reflections and row.reflections.mean for row in comparison.rows) else []
    if all(row.num_tokens for row in comparison.rows):
        shown = [name for name in shown if name != "num_words"]

    # The heading says how many problems there are of each kind.
    heading = ["model", "decoding", "samples", *(f"{kind} ({scores.num_problems})" for kind, scores in kinds.items())]
    heading += [*(["average of kinds"] if kinds else []), f"all problems ({whole.num_problems})"]
    heading += [f"pass@{k}" for k in ks] + (["difference", "p"] if compared else [])
    failed = any(row.ungraded for row in comparison.rows)
    rows = [[*heading, *(MEASURES[name].title for name in shown), *(["not graded"] if failed else [])]]
    for row in comparison.rows:
        cells = [row.model, row.decoding, str(row.num_samples)]
        cells += [hundredths(row.by_kind[kind].accuracy.mean) if kind in row.by_kind else "" for kind in kinds]
        cells += [_kind_average(row, len(kinds))] if kinds else []
        cells.append(hundredths_interval(row.accuracy) + _of_fewer(row.num_problems, whole.num_problems))
        cells += [_pass_at_k(row, k) for k in ks]
        cells += [_difference(row, "accuracy"), _p_text(row.differences.get("accuracy"))] if compared else []
        means: list[Estimate | None] = [getattr(row, name) for name in shown]
        cells += [_number(name, mean.mean) if mean else "" for name, mean in zip(shown, means, strict=True)]
        rows.append([*cells, *([hundredths(row.ungraded)] if failed else [])])
    for published in comparison.published:
        average = published.average(kinds)
        cells = [published.name, PUBLISHED, ""]
        cells += [hundredths(published.by_kind[kind]) if kind in published.by_kind else "" for kind in kinds]
        cells += ["" if average is None else hundredths(average)] if kinds else []
        accuracy = published.average(whole.by_kind) if len(whole.by_kind) == 1 else published.accuracy
        cells.append("" if accuracy is None else hundredths(accuracy))
        rows.append(cells + [""] * (len(rows[0]) - len(cells)))
    return rows


def measures_table(comparison: Comparison) -> list[list[str]]:
    """Return every measure of every row with its interval and, below it, the paired difference from the baseline.

    The heading comes first; what was not measured is said.
    """
    rows = [["measure", *(f"{row.model}, {row.decoding}" for row in comparison.rows)]]
    for name in _measured(comparison):
        cells = []
        for row in comparison.rows:
            estimate: Estimate | None = getattr(row, name)
            num = row.num_measured.get(name, row.num_problems)
            few = _of_fewer(num, row.num_problems)
            cells.append("not measured" if estimate is None else _interval(name, estimate) + few)
        rows.append([MEASURES[name].title + (", %" if MEASURES[name].unit == "share" else ""), *cells])
        texts = [
            f"{_difference(row, name)}, p {_p_words(row.differences[name])}" if name in row.differences else ""
            for row in comparison.rows
        ]
        if any(texts):
            rows.append(["  difference", *texts])
    return rows


def notes(comparison: Comparison) -> list[str]:
    """Return what a reader of the tables has to know of their numbers."""
    level, num = 100 * comparison.confidence, comparison.num_differences
    lines = [f"Percent of the responses that are right [{level:g}% interval over problems]."]
    if num:
        lines.append(
            f"Differences are from {comparison.baseline}, paired over the problems that both have; p is adjusted for "
            f"all {num}. Where nothing differs, about {max(1, round((1 - comparison.confidence) * num))} of their "
            "intervals exclude 0 by chance."
        )
    if any(row.num_words and not row.num_tokens for row in comparison.rows):
        lines.append("Tokens and entropy are known of responses that were sampled here; words are known of all.")
    if comparison.published:
        lines.append("Published accuracies have no interval, and are compared with nothing.")
    return lines


def _measured(comparison: Comparison) -> list[str]:
    return [name for name in MEASURES if any(getattr(row, name) is not None for row in comparison.rows)]


def _of_fewer(num: int, whole: int) -> str:
    return "" if num == whole else f" (n={num})"


def number_text(value: float, *, signed: bool = False) -> str:
    """Return a number with three digits, and all before the point.

    >>> number_text(1234.5), number_text(311.4), number_text(0.0531), number_text(2, signed=True)
    ('1234', '311', '0.0531', '+2.00')
    """
    sign = "+" if signed else ""
    return f"{value:{sign}.0f}" if abs(value) >= 1000 else f"{value:{sign}#.3g}".removesuffix(".")


def _kind_average(row: ModelScores, num: int) -> str:
    """Return the mean over kinds; how many they are stands beside it where the table has more."""
    own = len(row.by_kind)
    average = row.kind_average or row.accuracy
    return hundredths_interval(average) + ("" if own == num else f" ({own} of {num} kinds)")


def _pass_at_k(row: ModelScores, k: int) -> str:
    point = row.of_samples(k)
    few = _of_fewer(point.num_problems, row.num_problems)
    return "" if point.pass_at_k is None else hundredths_interval(point.pass_at_k) + few


def _number(name: str, value: float, *, signed: bool = False) -> str:
    """Return a value of a measure, fractions in percent."""
    text = hundredths if MEASURES[name].unit == "share" else number_text
    return text(value, signed=signed)


def _interval(name: str, estimate: Estimate, *, signed: bool = False) -> str:
    mean, low, high = (_number(name, value, signed=signed) for value in (estimate.mean, estimate.low, estimate.high))
    return f"{mean} [{low}, {high}]"


def _p_text(difference: Difference | None) -> str:
    """Return the adjusted p-value of a difference; empty where there is none."""
    p = None if difference is None else difference.p_adjusted
    return "" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"


def _difference(row: ModelScores, name: str) -> str:
    """Return the difference; what it is from stands beside it where the decoding is another, and n where it is less."""
    difference = row.differences.get(name)
    if difference is None:
        return ""
    said = _interval(name, difference.estimate, signed=True)
    if not difference.compared_with.endswith((f" {row.decoding}", f" {FROM_FILE}")):
        said += f" from {difference.compared_with}"
    return said + _of_fewer(difference.num_problems, row.num_problems)


def difference_text(name: str, difference: Difference) -> str:
    """Return a difference in a measure with its name, interval, n and p-value."""
    said = _interval(name, difference.estimate, signed=True)
    return f"{MEASURES[name].title} {said} (n={difference.num_problems}, p {_p_words(difference)})"


def _p_words(difference: Difference) -> str:
    p = _p_text(difference)
    return f"< {p[1:]}" if p.startswith("<") else f"= {p}"


def _csv(comparison: Comparison) -> str:
    """Return one line per model, decoding, kind and measure, with fractions as numbers; see `_csv_lines`."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, _CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for line in _csv_lines(comparison):
        numbers = {name: f"{value:.6g}" for name, value in line.items() if isinstance(value, float)}
        writer.writerow({**line, **numbers})
    return stream.getvalue()


def _csv_lines(comparison: Comparison) -> Iterator[dict[str, Any]]:
    """Yield the lines; the kind `all` is all problems together, `average` the mean over the kinds."""
    for row in comparison.rows:
        same = {name: getattr(row, name) for name in ("model", "decoding", "temperature", "num_samples")}
        for kind, scores in (*row.by_kind.items(), ("all", row)):
            for name in MEASURES:
                if (estimate := getattr(scores, name)) is not None:
                    line = {**same, "kind": kind, "measure": name, **asdict(estimate)}
                    line["num_problems"] = scores.num_measured.get(name, scores.num_problems)
                    # The difference from the baseline is of all problems together.
                    if scores is row and (change := row.differences.get(name)):
                        line |= {name: getattr(change, name) for name in ("p_value", "p_adjusted", "compared_with")}
                        line |= {"difference": change.estimate.mean, "difference_num_problems": change.num_problems}
                        line |= {f"difference_{end}": getattr(change.estimate, end) for end in ("low", "high")}
                    yield line
        rates = {f"pass_at_{point.k}": ("all", point.pass_at_k) for point in row.curve if point.k > 1}
        for name, (kind, estimate) in {**rates, "accuracy": ("average", row.kind_average)}.items():
            if estimate:
                yield {**same, "kind": kind, "measure": name, **asdict(estimate)}
    for published in comparison.published:
        known = published.by_kind if published.accuracy is None else {**published.by_kind, "all": published.accuracy}
        for kind, value in known.items():
            yield {"model": published.name, "decoding": PUBLISHED, "kind": kind, "measure": "accuracy", "mean": value}


def _both_tables(table: Callable[..., str]) -> Callable[[Comparison], str]:
    return lambda comparison: "\n".join(
        [table(comparison_table(comparison), num_names=2), table(measures_table(comparison))]
    )


FORMATS: Mapping[str, Callable[[Comparison], str]] = MappingProxyType(
    {
        "md": _both_tables(markdown_table),
        "csv": _csv,
        "latex": _both_tables(latex_table),
        "json": lambda comparison: comparison.model_dump_json(indent=2) + "\n",
    }
)
"""The forms of a comparison beside the tables for the terminal."""
