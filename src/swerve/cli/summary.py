"""A run on the terminal: its headline numbers, accuracies by checkpoint, and what the probe found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from swerve.artifacts.evaluation import MANY_SAMPLES, Evaluation, largest_k, rewards_are_fractions
from swerve.cli.text import table, wrapped
from swerve.formats.text_tables import table_of
from swerve.progress import format_duration, one_line
from swerve.text import NOT_MEASURED, number_interval, percent_interval

if TYPE_CHECKING:
    from swerve.artifacts.probe_summary import ProbeSummary
    from swerve.artifacts.run import RunDirectory


def evaluation_text(evaluations: Sequence[Evaluation]) -> str:
    """Return a line for each checkpoint: how often it is right, and what could not be graded."""
    if not evaluations:
        return f"Held-out accuracy: {NOT_MEASURED}."
    k = largest_k(evaluations)
    reward_interval = percent_interval if rewards_are_fractions(evaluations) else number_interval
    rows = []
    for evaluation in evaluations:
        greedy, sampled = evaluation.greedy, evaluation.sampled
        many = sampled.of_samples(k).pass_at_k if k >= MANY_SAMPLES else None
        statuses = evaluation.statuses
        failed = statuses.get("timeout", 0) + statuses.get("error", 0)
        row = {"CHECKPOINT": one_line(evaluation.checkpoint), "ACCURACY": percent_interval(greedy.accuracy)}
        row["RIGHT TRACES"] = percent_interval(greedy.trace_right) if greedy.trace_right else ""
        row["SAMPLED REWARD"] = reward_interval(sampled.mean_reward) if sampled.mean_reward else ""
        row[f"PASS@{k}"] = percent_interval(many) if many else ""
        for name, num in (("NO ANSWER", evaluation.num_unanswered), ("NOT GRADED", failed)):
            row[name] = f"{num} of {statuses.total()}" if num else ""
        rows.append(row)
    heading = f"{evaluations[-1].greedy.num_problems} held-out problems, answered greedily (intervals in brackets)"
    return f"{heading}\n{table(table_of(rows))}"


def findings_text(run: RunDirectory, summary: ProbeSummary | None = None) -> str:
    """Return what a run, or the summary of a probe of files, shows, topic by topic, and what limits it."""
    from swerve.report.read import ReportInputs, read_inputs
    from swerve.report.run_page import all_findings

    if summary is None:
        inputs = read_inputs(run, with_tables=False)
    else:  # a probe of files, which is no run
        inputs = ReportInputs(
            run_name=run.path.name,
            provenance={},
            config_text=None,
            metrics=(),
            evaluations=(),
            summary=summary,
            tables=None,
            final_completions={},
        )
    # A paragraph for each topic, then the notes.
    paragraphs = []
    for heading, sentences in all_findings(inputs).items():
        paragraphs.append("\n".join([heading, *(wrapped(one_line(line), indent="  ") for line in sentences)]))
    notes = () if inputs.summary is None else inputs.summary.notes
    return "\n".join([*paragraphs, *(wrapped(f"Note: {one_line(note)}") for note in notes)])


def headlines_text(run: RunDirectory) -> str:
    """Return the verdicts of a run's report, a line each, with the first sentence of what each rests on."""
    from swerve.report.read import read_inputs
    from swerve.report.story import verdicts

    said = (
        f"{verdict.title} {verdict.text.partition('. ')[0].rstrip('.')}.".replace("`", "")
        for verdict in verdicts(read_inputs(run, with_tables=False))
    )
    return "\n".join(wrapped(one_line(line)) for line in said)


def demo_text(run: RunDirectory, page: Path, *, seconds: float) -> str:
    """Return how the demo ends: its headline numbers, how long it took, and where the report is."""
    return f"{headlines_text(run)}\nReport, after {format_duration(seconds)}: {page}"
