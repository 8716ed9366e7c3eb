"""Tables of a comparison of models: accuracy by kind, every measure with its differences; text, CSV, LaTeX, JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from swerve.artifacts.comparison import FROM_FILE, MEASURES, Comparison, Difference, ModelScores
from swerve.estimates import Estimate
from swerve.formats.text_tables import csv_text, latex_table, markdown_table, table_of
from swerve.text import (
    NOT_MEASURED,
    listed,
    number,
    number_interval,
    p_value,
    p_words,
    percent,
    percent_interval,
    points_interval,
    signed_interval,
)

PUBLISHED = "published"
_IN_MAIN_TABLE = ("unanswered", "truncated", "num_tokens", "num_words", "empty_thinking")
_CSV_COLUMNS = (
    *("model", "decoding", "temperature", "num_samples", "kind", "measure", "num_problems", "mean", "low", "high"),
    *("difference", "difference_low", "difference_high", "difference_num_problems", "p_value", "p_adjusted"),
    "compared_with",
)


def comparison_table(comparison: Comparison, *, with_kinds: bool = True) -> list[list[str]]:
    """Return the table of accuracies for people, the heading first; fractions in percent, with their intervals.

    Columns are the kinds of problems, the mean over the kinds, that over all problems, pass@k, the paired difference,
    and the means of a few other measures. Published accuracies come last.
    """
    # The heading says how many problems there are of each kind.
    whole = max(comparison.rows, key=lambda row: row.num_problems)
    kinds = whole.by_kind if with_kinds and len(whole.by_kind) > 1 else {}
    titles = {kind: f"{kind} ({scores.num_problems})" for kind, scores in kinds.items()}
    all_problems = f"all problems ({whole.num_problems})"
    ks = sorted({row.curve[-1].k for row in comparison.rows if row.num_samples > 1 and row.curve})
    shown = [name for name in _measured(comparison) if name in _IN_MAIN_TABLE]
    shown += ["reflections"] if any(row.reflections and row.reflections.mean for row in comparison.rows) else []
    if all(row.num_tokens for row in comparison.rows):
        shown = [name for name in shown if name != "num_words"]
    failed = any(row.ungraded for row in comparison.rows)

    rows = []
    for row in comparison.rows:
        cells = {"model": row.model, "decoding": row.decoding, "samples": str(row.num_samples)}
        for kind, title in titles.items():
            of_kind = row.by_kind[kind].accuracy if kind in row.by_kind else None
            cells[title] = percent(of_kind.mean, "") if of_kind else ""
        if kinds:
            few = "" if len(row.by_kind) == len(kinds) else f" ({len(row.by_kind)} of {len(kinds)} kinds)"
            average = row.kind_average or (row.accuracy if len(row.by_kind) == 1 else None)
            cells["average of kinds"] = percent_interval(average, "") + few if average else ""
        num = row.num_measured.get("accuracy", row.num_problems)
        cells[all_problems] = percent_interval(row.accuracy, "") + _of_fewer(num, whole.num_problems)
        for point in map(row.of_samples, ks):
            rate = percent_interval(point.pass_at_k, "") if point.pass_at_k else ""
            cells[f"pass@{point.k}"] = rate and rate + _of_fewer(point.num_problems, row.num_problems)
        cells |= {"difference": _difference(row, "accuracy"), "p": _p_text(row.differences.get("accuracy"))}
        for name in shown:
            mean: Estimate | None = getattr(row, name)
            cells[MEASURES[name].title] = _number(name, mean.mean) if mean else ""
        rows.append({**cells, "not graded": percent(row.ungraded, "") if failed else ""})
    for published in comparison.published:
        known = {titles[kind]: published.by_kind.get(kind) for kind in kinds}
        known["average of kinds"] = published.average(kinds)
        known[all_problems] = published.average(whole.by_kind) if len(whole.by_kind) == 1 else published.accuracy
        cells = {title: percent(value, "") for title, value in known.items() if value is not None}
        rows.append({"model": published.name, "decoding": PUBLISHED, **cells})
    return table_of(rows)


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
            cells.append(NOT_MEASURED if estimate is None else _interval(name, estimate) + few)
        rows.append([MEASURES[name].title + (", %" if MEASURES[name].unit == "share" else ""), *cells])
        texts = [
            f"{_difference(row, name)}, {p_words(row.differences[name].p_adjusted)}" if name in row.differences else ""
            for row in comparison.rows
        ]
        if any(texts):
            rows.append(["  difference", *texts])
    return rows


def comparison_notes(comparison: Comparison) -> list[str]:
    """Return what a reader of the tables has to know of their numbers."""
    level, num = 100 * comparison.confidence, comparison.num_differences
    lines = [f"Percent of the responses that are right ({level:g}% interval over problems)."]
    unknown = [f"{row.model}, {row.decoding}" for row in comparison.rows if row.accuracy is None]
    if unknown:
        lines.append(f"Not determined, because no response has a verdict: the accuracy of {listed(unknown)}.")
    if any("accuracy" in row.num_measured for row in comparison.rows):
        lines.append("Responses without a verdict count in no accuracy, and their problems in no pass@k.")
    if num:
        many = f"; p is adjusted for all {num}" if num > 1 else ""
        lines.append(
            f"Differences are from {comparison.baseline}, paired over the problems that both have{many}. Where nothing "
            f"differs, about {100 * (1 - comparison.confidence):.0f} in 100 of such intervals exclude 0 by chance."
        )
    if any(row.num_words and not row.num_tokens for row in comparison.rows):
        lines.append("Tokens and entropy are known of responses that were sampled here; words are known of all.")
    if comparison.published:
        lines.append("Published accuracies have no interval, and are compared with nothing.")
    return [*lines, *comparison.notes]


def _measured(comparison: Comparison) -> list[str]:
    return [name for name in MEASURES if any(getattr(row, name) is not None for row in comparison.rows)]


def _of_fewer(num: int, whole: int) -> str:
    return "" if num == whole else f" (n={num})"


def _number(name: str, value: float) -> str:
    """Return a value of a measure, fractions in percent."""
    return percent(value, "") if MEASURES[name].unit == "share" else number(value)


def _interval(name: str, estimate: Estimate) -> str:
    return percent_interval(estimate, "") if MEASURES[name].unit == "share" else number_interval(estimate)


def _difference_interval(name: str, difference: Difference) -> str:
    write = points_interval if MEASURES[name].unit == "share" else signed_interval
    return write(difference.estimate)


def _p_text(difference: Difference | None) -> str:
    """Return the adjusted p-value of a difference; empty if it was not tested."""
    return "" if difference is None or difference.p_adjusted is None else p_value(difference.p_adjusted)


def _difference(row: ModelScores, name: str) -> str:
    """Return the difference; what it is from stands beside it where the decoding is another, and n where it is less."""
    difference = row.differences.get(name)
    if difference is None:
        return ""
    said = _difference_interval(name, difference)
    if not difference.compared_with.endswith((f" {row.decoding}", f" {FROM_FILE}")):
        said += f" from {difference.compared_with}"
    return said + _of_fewer(difference.num_problems, row.num_problems)


def difference_text(name: str, difference: Difference) -> str:
    """Return a difference in a measure with its name, interval, n and p-value."""
    said = _difference_interval(name, difference)
    return f"{MEASURES[name].title} {said} (n={difference.num_problems}, {p_words(difference.p_adjusted)})"


def _csv_rows(comparison: Comparison) -> Iterator[dict[str, Any]]:
    """Yield a row for each model, decoding, kind and measure, with fractions as numbers.

    The kind `all` is all problems together, `average` the mean over the kinds; problems of one kind may be called so.
    """
    for row in comparison.rows:
        own = {name: getattr(row, name) for name in ("model", "decoding", "temperature", "num_samples")}
        for kind, scores in {**row.by_kind, "all": row}.items():
            for name in MEASURES:
                if (estimate := getattr(scores, name)) is not None:
                    num = scores.num_measured.get(name, scores.num_problems)
                    cells = {**own, "kind": kind, "measure": name, **asdict(estimate), "num_problems": num}
                    # The difference from the baseline is of all problems together.
                    if scores is row and name in row.differences:
                        change = row.differences[name]
                        ends = {f"difference_{end}": value for end, value in asdict(change.estimate).items()}
                        cells |= {"difference": ends.pop("difference_mean"), **ends}
                        cells |= change.model_dump(exclude={"estimate", "num_problems"})
                        cells["difference_num_problems"] = change.num_problems
                    yield cells
        rates = {f"pass_at_{point.k}": ("all", point.pass_at_k) for point in row.curve if point.k > 1}
        for name, (kind, estimate) in {**rates, "accuracy": ("average", row.kind_average)}.items():
            if estimate:
                yield {**own, "kind": kind, "measure": name, **asdict(estimate)}
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
        "csv": lambda comparison: csv_text([*_csv_rows(comparison)], _CSV_COLUMNS, digits=6),
        "latex": _both_tables(latex_table),
        "json": lambda comparison: comparison.model_dump_json(indent=2) + "\n",
    }
)
"""The forms of a comparison beside the tables for the terminal."""
