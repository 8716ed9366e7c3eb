"""A run on the terminal: its headline numbers, accuracies by checkpoint, and what the probe found."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from swerve.artifacts.evaluation import MANY_SAMPLES, Evaluation, largest_k, rewards_are_fractions
from swerve.cli.text import table, wrapped
from swerve.formats.text_tables import table_of
from swerve.progress import format_duration, one_line
from swerve.text import NOT_MEASURED, counted, number_interval, percent_interval

if TYPE_CHECKING:
    from swerve.artifacts.probe_summary import ProbeSummary
    from swerve.artifacts.run import RunDirectory
    from swerve.report.page import Verdict


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


def findings_text(run: RunDirectory) -> str:
    """Return what a run shows, topic by topic, and what limits it."""
    from swerve.report.read import read_inputs
    from swerve.report.run_page import all_findings

    # A paragraph for each topic, then the notes.
    inputs, paragraphs = read_inputs(run, with_tables=False), []
    for heading, sentences in all_findings(inputs).items():
        paragraphs.append("\n".join([heading, *(wrapped(one_line(line), indent="  ") for line in sentences)]))
    notes = () if inputs.summary is None else inputs.summary.notes
    return "\n".join([*paragraphs, *(wrapped(f"Note: {one_line(note)}") for note in notes)])


def probe_text(run: RunDirectory, summary: ProbeSummary | None = None, *, place: str) -> str:
    """Return what a probe shows in four lines: how far the models differ, where, whether it matters, and where all is.

    One more says that nothing can be seen of what decides an answer, where every continuation ends alike.

    Args:
        run: the run, or the folder of a probe of files.
        summary: of a probe of files, which is no run.
        place: the line that says where all findings are.
    """
    from swerve.report.read import ReportInputs, read_inputs
    from swerve.report.story import sentence, verdicts

    if summary is None:
        inputs = read_inputs(run, with_tables=False)
    else:
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
    known = inputs.summary
    told = {verdict.id: verdict.title for verdict in verdicts(inputs) if verdict.id in ("place", "cause")}
    first = sentence(inputs)
    if known is not None and known.final_divergence is None and not inputs.evaluations:
        first = f"How far {known.final} lies from {known.reference} was not measured."
    lines = [first, *told.values()]
    if known is not None and (alike := _all_alike(known)):
        lines.append(alike)
    notes = () if known is None else known.notes
    limits = f"; {counted(len(notes), 'note')}: {notes[0]}{' ...' if len(notes) > 1 else ''}" if notes else ""
    lines.append(f"{place}{limits}")
    return "\n".join(wrapped(one_line(line.replace("**", "").replace("`", ""))) for line in lines)


def _all_alike(summary: ProbeSummary) -> str | None:
    """Say that nothing can be seen of what decides an answer, where all continuations after swaps end alike."""
    policies = () if summary.causal is None else summary.causal.by_policy
    arms = [
        arm.success
        for policy in policies
        for own in policy.selections
        for arm in (own.reference, own.checkpoint, own.alternative)
        if arm.success is not None
    ]
    if not arms or min(arms) != max(arms) or arms[0] not in (0.0, 1.0):
        return None
    how, take = ("wrong (0%)", "sometimes solves") if arms[0] == 0.0 else ("right (100%)", "sometimes fails")
    return (
        f"Nothing can be seen of which tokens decide: all continuations are {how}, whichever token is put in; take "
        f"problems that {summary.reference} {take}."
    )


def headlines_text(run: RunDirectory) -> str:
    """Return the verdicts of a run's report, a line each, with the first sentence of what each rests on."""
    from swerve.report.read import read_inputs
    from swerve.report.story import verdicts

    said = (
        f"{verdict.title} {verdict.text.partition('. ')[0].rstrip('.')}.".replace("`", "")
        for verdict in verdicts(read_inputs(run, with_tables=False))
    )
    return "\n".join(wrapped(one_line(line)) for line in said)


def over_seeds(runs: Mapping[int, RunDirectory]) -> list[dict[str, str]]:
    """Return the headlines of runs that differ by seed alone: who says each, and its numbers with interval over runs.

    Args:
        runs: by seed, each with a probe.
    """
    from swerve.report.read import read_inputs
    from swerve.report.story import verdicts
    from swerve.study.trends import seed_interval

    # Headlines with numbers of the same names are of one thing, whatever they say.
    by_numbers: dict[tuple[str, ...], dict[int, Verdict]] = {}
    for seed, run in runs.items():
        for verdict in (each for each in verdicts(read_inputs(run, with_tables=False)) if each.said):
            by_numbers.setdefault(tuple(verdict.figures), {})[seed] = verdict

    # What is said, by which seeds; below it the numbers.
    rows = []
    for names, by_seed in by_numbers.items():
        for said in dict.fromkeys(verdict.said for verdict in by_seed.values()):
            sayers = {seed: "yes" for seed, verdict in by_seed.items() if verdict.said == said}
            rows.append(_seeds_row(said.replace("`", ""), sayers, f"{len(sayers)} of {len(runs)}", runs))
        for name in names:
            units, values = zip(*(verdict.figures[name] for verdict in by_seed.values()), strict=True)
            unit, known = units[0], [value for value in values if value is not None]
            shown = dict(zip(by_seed, map(unit.text, values), strict=True))
            over = unit.text(unit.bounded(seed_interval(known, 0.95) or (known[0] if known else None)))
            rows.append(_seeds_row(f"  {name.replace('`', '')}", shown, over, runs))
    return rows


def _seeds_row(name: str, by_seed: Mapping[int, str], over: str, seeds: Iterable[int]) -> dict[str, str]:
    cells = {f"SEED {seed}": by_seed.get(seed, "") for seed in seeds}
    return {"HEADLINE": name, **cells, "OVER SEEDS (95%)": over}


def demo_text(run: RunDirectory, page: Path, *, seconds: float, changes: Sequence[str] = ()) -> str:
    """Return how the demo ends: its headline numbers, how long it took, and where the report is.

    Args:
        run: the demo's.
        page: its report.
        seconds: that the command took.
        changes: that were given to it.
    """
    seed = run.read_provenance().get("seed")
    which = "" if seed is None else f", seed {seed}"
    again = shlex.join(
        ["swerve", "demo", *(change for change in changes if not change.startswith("seed=")), "--seeds", "5"]
    )
    start = f"One training run{which}; what holds over several: {again}"
    return f"{start}\n{headlines_text(run)}\nReport, after {format_duration(seconds)}: {page}"
