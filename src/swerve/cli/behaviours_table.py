"""The summary of behaviours as a table: one line a figure, one column a label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from swerve.cli.console import one_line

__all__ = ["behaviours_text"]

_MAX_COLUMNS = 6
_MAX_WITH_INTERVALS = 2
_MAX_ROWS_NAMED = 5
NOT_MEASURED = "-"
Summary = Mapping[str, Any]

# Words, path in a label's summary, unit.
_FIGURES: tuple[tuple[str, str, str], ...] = (
    ("accuracy", "accuracy", "%"),
    ("tokens", "length.tokens", ""),
    ("words", "length.words", ""),
    ("truncated (recorded)", "truncated", "%"),
    ("unfinished (by the text)", "unfinished", "%"),
    ("format <think> <answer>", "format.think_answer", "%"),
    ("format <answer>", "format.answer_tag", "%"),
    ("format \\boxed{}", "format.boxed", "%"),
    ("thinking, words", "thinking.words", ""),
    ("dummy thinking", "thinking.dummy", "%"),
    ("repeated 4-grams", "repetition.repeated_4grams", "%"),
    ("compression ratio", "repetition.compression_ratio", ""),
    ("loop at the end", "repetition.loop_at_end", "%"),
    ("foreign script, characters", "foreign_script_share", "%"),
    ("similarity of samples (2-grams)", "groups.ngram_similarity", ""),
    ("similarity of samples (embedding)", "groups.embedding_similarity", ""),
    ("distinct 2-grams of samples", "groups.distinct_2grams", "%"),
    ("different answers a problem", "groups.distinct_answers", ""),
    ("different right answers a problem", "groups.distinct_right_answers", ""),
)


def behaviours_text(summary: Summary) -> str:
    """Return the table, the signs of hacking with the first rows that show them, and the notes."""
    labels = summary["labels"]
    shown = _evenly(labels)
    intervals = len(shown) <= _MAX_WITH_INTERVALS
    heading = ["", *(one_line(str(label["label"])) for label in shown)]
    lines = [
        ["responses", *(str(label["num_responses"]) for label in shown)],
        ["problems", *(str(label["num_problems"]) for label in shown)],
        *(_line(words, [_at(label, path) for label in shown], unit, intervals) for words, path, unit in _FIGURES),
        *_reflection(shown, intervals),
        *_sampling(shown, intervals),
    ]
    measured = [line for line in lines if set(line[1:]) != {NOT_MEASURED}]
    parts = [_columns([heading, *measured]), *_signs(labels, summary["source"])]
    if len(shown) < len(labels):
        parts.append(f"{len(shown)} of {len(labels)} are shown; --json has all.")
    return "\n".join([*parts, *(f"Note: {note}." for note in summary["notes"])])


def _evenly(labels: Sequence[Summary]) -> list[Summary]:
    """Return a few labels with even distances, the first and the last among them."""
    if len(labels) <= _MAX_COLUMNS:
        return list(labels)
    return [labels[round(place * (len(labels) - 1) / (_MAX_COLUMNS - 1))] for place in range(_MAX_COLUMNS)]


def _at(label: Summary, path: str) -> Any:
    found: Any = label
    for key in path.split("."):
        found = found[key]
    return found


def _line(words: str, figures: Sequence[Mapping[str, float] | None], unit: str, intervals: bool) -> list[str]:
    return [f"{words}, %" if unit else words, *(_cell(figure, unit, intervals) for figure in figures)]


def _cell(figure: Mapping[str, float] | None, unit: str, intervals: bool) -> str:
    if figure is None:
        return NOT_MEASURED
    scale = 100 if unit else 1
    mean = _number(scale * figure["mean"])
    if not intervals or "low" not in figure:
        return mean
    return f"{mean} [{_number(scale * figure['low'])}, {_number(scale * figure['high'])}]"


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _reflection(labels: Sequence[Summary], intervals: bool) -> list[list[str]]:
    return [
        _line(
            f"reflection a 1,000 words, {name}",
            [_at(label, f"reflection.{name}.per_1000_words") for label in labels],
            "",
            intervals,
        )
        for name in labels[0]["reflection"]
    ]


def _sampling(labels: Sequence[Summary], intervals: bool) -> list[list[str]]:
    curves = [{entry["k"]: entry for entry in label["sampling"]} for label in labels]
    ks = sorted({k for curve in curves for k in curve})
    return [
        _line(f"{words}{k}", [curve[k][name] if k in curve else None for curve in curves], "%", intervals)
        for name, words in (("pass_at_k", "pass@"), ("pass_hat_k", "pass^"), ("majority_at_k", "maj@"))
        for k in ks
        if k > 1
    ]


def _signs(labels: Sequence[Summary], source: str) -> list[str]:
    """Return a line for each sign that shows, over all labels."""
    lines = []
    for name in labels[0]["signs"]:
        rows = [row for label in labels for row in label["signs"][name]["rows"]]
        judged = sum(label["signs"][name]["num_judged"] for label in labels)
        if rows:
            more = ", ..." if len(rows) > _MAX_ROWS_NAMED else ""
            named = ", ".join(one_line(row.removeprefix(f"{source}, ")) for row in rows[:_MAX_ROWS_NAMED])
            lines.append(f"  {name}: {len(rows)} of {judged}: {named}{more}")
    return (
        [f"Signs of hacking (reasons to read, no proofs), rows of {one_line(source)}:", *lines]
        if lines
        else ["Signs of hacking: none."]
    )


def _columns(table: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    return "\n".join(
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in table
    )
