"""`swerve data behaviours`: what responses look like, as a table with one line per metric and one column per label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Annotated, Any

import typer

from swerve.cli.console import check_not_read
from swerve.cli.options import ROW_ENDINGS, Baseline, EmbeddingModel, Fields, Result, out_option
from swerve.cli.text import table, wrapped
from swerve.estimates import Estimate
from swerve.progress import one_line
from swerve.text import number_interval, percent_interval

_MAX_COLUMNS = 6
_MAX_WITH_INTERVALS = 2
_MAX_ROWS_NAMED = 5
_NOT_MEASURED = "-"
_LEVEL = 0.05
"""Of the differences that are told; --json has all."""
Summary = Mapping[str, Any]


def behaviours(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE...", help="Runs, tables of rollouts, files of responses, folders of samples."),
    ],
    out: Annotated[
        Path | None, out_option("Write the metrics of every response (.jsonl or .parquet).", *ROW_ENDINGS)
    ] = None,
    by: Annotated[
        str | None, typer.Option("--by", metavar="FIELD", help="Compare groups of responses, such as label or step.")
    ] = None,
    lexicon: Annotated[
        Path | None, typer.Option("--lexicon", metavar="FILE", help="YAML file of your own phrases of reflection.")
    ] = None,
    baseline: Baseline = None,
    embedding_model: EmbeddingModel = None,
    fields: Fields = None,
) -> Result:
    """Measure how responses behave, and compare groups of them.

    Format, thinking, repetition, reflection, length, diversity, pass@k and signs of reward hacking.

    Labels are compared with the first, over the problems that both have.

    Examples:
      swerve data behaviours runs/mine
      swerve data behaviours answers.jsonl --by level
    """
    from swerve.behaviours.diversity import load_embedder
    from swerve.behaviours.response_rows import behaviour_rows, read_lexicon
    from swerve.eval.response_behaviours import behaviour_summary, source_responses
    from swerve.formats.imported_responses import LeftOut
    from swerve.formats.row_files import write_rows

    # What is wrong with an option is said before anything is measured.
    phrases = None if lexicon is None else read_lexicon(lexicon)
    embed = None if embedding_model is None else load_embedder(embedding_model)
    if out is not None:
        check_not_read(out, [*map(Path, sources), lexicon])
    # One row a response, and what they say together.
    left_out = LeftOut()
    records, by = source_responses(sources, by, fields or (), left_out)
    rows = behaviour_rows(records, lexicon=phrases)
    if out is not None:
        write_rows(out, rows)
    summary = behaviour_summary(
        records,
        rows,
        source=" ".join(sources),
        by=by,
        baseline=baseline,
        lexicon=phrases,
        embed=embed,
        left_out=left_out,
    )
    return Result(summary, behaviours_text(summary))


# Words, path in a label's summary, unit.
_METRICS: tuple[tuple[str, str, str], ...] = (
    ("accuracy", "accuracy", "%"),
    ("tokens", "length.tokens", ""),
    ("words", "length.words", ""),
    ("no answer", "unanswered", "%"),
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
    ("similarity of samples (2-grams)", "groups.similarity", ""),
    ("similarity of samples (embedding)", "groups.embedding_similarity", ""),
    ("distinct 2-grams of samples", "groups.distinct_2grams", "%"),
    ("distinct answers per problem", "groups.distinct_answers", ""),
    ("distinct right answers per problem", "groups.distinct_right", ""),
)


def behaviours_text(summary: Summary) -> str:
    """Return the table, the signs of hacking with the first rows that show them, and the notes."""
    labels = summary["labels"]
    shown = _evenly(labels) if summary["by"] == "step" else labels
    blocks = [_block(shown[start : start + _MAX_COLUMNS]) for start in range(0, len(shown), _MAX_COLUMNS)]
    parts = ["\n\n".join(blocks), *_differences(shown, summary["baseline"]), *_signs(labels, summary["source"])]
    if len(shown) < len(labels):
        parts.append(f"{len(shown)} of {len(labels)} are shown; --json has all.")
    return "\n".join([*parts, *(wrapped(f"Note: {note}.") for note in summary["notes"])])


def _block(shown: Sequence[Summary]) -> str:
    """Return the table of a few labels, with intervals where there is room."""
    intervals = len(shown) <= _MAX_WITH_INTERVALS
    heading = ["", *(one_line(str(label["label"])) for label in shown)]
    kinds = shown[0]["reflection"]
    reflections = [(f"reflections per 1,000 words, {kind}", f"reflection.{kind}.per_1000_words", "") for kind in kinds]
    lines = [
        ["responses", *(str(label["num_responses"]) for label in shown)],
        ["problems", *(str(label["num_problems"]) for label in shown)],
        *(
            _line(words, [reduce(getitem, path.split("."), label) for label in shown], unit, intervals)
            for words, path, unit in (*_METRICS, *reflections)
        ),
        *_sampling(shown, intervals),
    ]
    measured = [line for line in lines if set(line[1:]) != {_NOT_MEASURED}]
    return table([heading, *measured], are_numbers=True)


def _differences(shown: Sequence[Summary], baseline: str) -> list[str]:
    """Return a line for each measure and label that differ by the adjusted p-value, after how many were compared."""
    from swerve.artifacts.comparison import Difference
    from swerve.formats.comparison_table import difference_text

    lines, num = list[str](), 0
    for label in shown:
        for name, values in label["differences"].items():
            difference = Difference.model_validate(values)
            if difference.p_adjusted is None:
                continue
            num += 1
            if difference.p_adjusted <= _LEVEL:
                lines.append(f"  {one_line(str(label['label']))}: {difference_text(name, difference)}")
    if not num:
        return []
    return [
        f"Differences from {one_line(baseline)}, paired over the problems that both have, with an adjusted p of at "
        f"most {_LEVEL:g}: {len(lines)} of {num}",
        *lines,
    ]


def _evenly(labels: Sequence[Summary]) -> list[Summary]:
    """Return a few steps with even distances, the first and the last among them."""
    if len(labels) <= _MAX_COLUMNS:
        return list(labels)
    return [labels[round(place * (len(labels) - 1) / (_MAX_COLUMNS - 1))] for place in range(_MAX_COLUMNS)]


def _line(words: str, means: Sequence[Mapping[str, float] | None], unit: str, intervals: bool) -> list[str]:
    cells = []
    for figure in means:
        text = _NOT_MEASURED
        if figure is not None:
            estimate = Estimate(**figure)
            text = percent_interval(estimate, "") if unit else number_interval(estimate)
        cells.append(text if intervals else text.partition(" (")[0])
    return [f"{words}, %" if unit else words, *cells]


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
    lines, num_judged = [], 0
    for name in labels[0]["signs"]:
        rows = [row for label in labels for row in label["signs"][name]["rows"]]
        judged = sum(label["signs"][name]["num_judged"] for label in labels)
        num_judged += judged
        if rows:
            more = ", ..." if len(rows) > _MAX_ROWS_NAMED else ""
            named = ", ".join(one_line(row.removeprefix(f"{source}, ")) for row in rows[:_MAX_ROWS_NAMED])
            lines.append(f"  {name}: {len(rows)} of {judged}: {named}{more}")
    if not num_judged:
        return ["Signs of hacking: not determined, because no response has a text."]
    if not lines:
        return ["Signs of hacking: none."]
    return [f"Signs of hacking (reasons to look, not proof), rows of {one_line(source)}:", *lines]
