"""The rows of sentences about the run as a whole: what was read, what is there, what noise gives, its intervals."""

from __future__ import annotations

from collections.abc import Sequence

from swerve.artifacts.probe_summary import ProbeSummary
from swerve.artifacts.record import num_intervals
from swerve.report.evidence import Evidence, Figure, Value
from swerve.report.names import METHODS, SELECTORS, named
from swerve.report.read import ReportInputs
from swerve.report.run_evidence import frame_lines


def response_evidence(inputs: ReportInputs, *figures: Figure) -> Evidence | None:
    """Return every rollout that was read, with its population, length and whether it is right."""
    summary, tables = inputs.summary, inputs.tables
    if summary is None or tables is None:
        return None
    names = ("sequence_id", "problem_id", "population", "correct", "wrong_positions", "wrong_sentence")
    rows = tables.sequences.select([*names, "completion_ids"]).to_pylist()
    seen: set[str] = set()
    firsts: list[int] = []
    for row in rows:
        firsts.append(int(row["problem_id"] not in seen))
        seen.add(row["problem_id"])
    return Evidence(
        id="responses",
        table="probe/sequences.parquet",
        filter=f"all rollouts; the headline is “{summary.population}”",
        unit="rollout",
        columns={
            "problem": [row["problem_id"] for row in rows],
            "rollout": [row["sequence_id"] for row in rows],
            "first of its problem": firsts,
            "in the headline": [int(row["population"] == summary.population) for row in rows],
            "right": [None if row["correct"] is None else int(row["correct"]) for row in rows],
            "known wrong step": [
                int(bool(row["wrong_positions"]) or row["wrong_sentence"] is not None) for row in rows
            ],
            "tokens": [len(row["completion_ids"]) for row in rows],
        },
        figures=figures,
        command=f"{frame_lines(inputs, read='probe/sequences.parquet')}"
        f"rows = pd.DataFrame({{'first of its problem': (~read.problem_id.duplicated()).astype(int), "
        f"'in the headline': (read.population == {summary.population!r}).astype(int), "
        "'tokens': read.completion_ids.str.len()})",
    )


def held_evidence(inputs: ReportInputs, *figures: Figure) -> Evidence:
    """Return what the run has, and what makes more of it: behind sentences about what was not measured."""
    summary = inputs.summary
    rows: list[tuple[str, int, str]] = [
        ("steps of training", len(inputs.metrics), "swerve train"),
        ("evaluated checkpoints", len(inputs.evaluations), "swerve eval RUN"),
        ("problems with a greedy answer at both ends", _num_both(inputs), "swerve eval RUN"),
    ]
    if summary is not None:
        rows += _held_by(summary)
    return Evidence(
        id="held",
        table="the run's folder, and probe/summary.json",
        filter="how many of each kind, and what makes it",
        unit="kind",
        columns={name: [row[at] for row in rows] for at, name in enumerate(("kind", "number", "made by"))},
        figures=figures,
    )


def _num_both(inputs: ReportInputs) -> int:
    right = inputs.paired.get("right")
    return 0 if right is None else len(right.before)


def _held_by(summary: ProbeSummary) -> list[tuple[str, int, str]]:
    again = "swerve probe RUN"
    hits = summary.spike_hits(summary.final, summary.divergence)
    known = 0 if hits is None else hits.num_rollouts + hits.num_sentence_rollouts
    causal, spike = summary.causal, summary.spike_swaps
    crossed = 0 if summary.cross_sampling is None else summary.cross_sampling.num_problems
    steps = "a task that checks steps, or a file that names the wrong one"
    return [
        ("problems", summary.num_problems, again),
        ("rollouts that the figures are about", summary.num_rollouts, again),
        ("of them with a known wrong step", known, steps),
        ("checkpoints beside the reference", len(summary.checkpoints), again),
        ("pairs of neighbouring checkpoints", len(summary.consecutive_pairs), "consecutive in probe.pairs"),
        ("pairs from before the stage", len(summary.baseline_pairs), "probe.baseline=LABEL"),
        ("tokens that one model read twice", 0 if summary.null is None else summary.null.num_tokens, again),
        ("models of matched noise", 0 if summary.noise_models is None else len(summary.noise_models.scales), again),
        ("spikes with a forced token", 0 if spike is None else spike.num_positions, "probe.causal.max_rollouts"),
        ("of them where the two models' tokens differ", 0 if spike is None else spike.num_different, "longer training"),
        ("continuations of each", 0 if causal is None else causal.num_continuations, "probe.causal.num_continuations"),
        ("problems with tokens of the other model", crossed, "probe.cross_sampling.max_problems"),
        ("rollouts searched for pivots", sum(each.num_rollouts for each in summary.pivots), "probe.pivots"),
    ]


def selected_evidence(summary: ProbeSummary, *figures: Figure) -> Evidence | None:
    """Return the accuracies of two files of samples, and which of the two models has how many problems right."""
    selected = summary.selected
    if selected is None or selected.reference_accuracy is None or selected.final_accuracy is None:
        return None
    files = [side.path or "a file" for side in (selected.reference, selected.final)]
    return Evidence(
        id="selected",
        table="probe/summary.json",
        filter=f"selected; the samples themselves are in {files[0]} and {files[1]}",
        unit="comparison",
        columns={
            summary.reference: [selected.reference_accuracy.mean],
            summary.final: [selected.final_accuracy.mean],
            "problems": [summary.num_problems],
            "both right": [selected.both_right],
            f"{summary.final} alone right": [selected.only_final_right],
            f"{summary.reference} alone right": [selected.only_reference_right],
            "both wrong": [selected.both_wrong],
        },
        figures=figures,
        note="An accuracy is the mean over problems of the fraction of samples that are right. Brackets are intervals "
        "over problems (swerve.statistics.accuracy_interval; of the difference paired_interval).",
    )


def noise_evidence(summary: ProbeSummary, *figures: Figure) -> Evidence | None:
    """Return how far each model of matched noise lies from the reference, and how much noise it needs."""
    noise = summary.noise_models
    if noise is None or not noise.scales:
        return None
    return Evidence(
        id="noise",
        table="probe/summary.json",
        filter="noise_models",
        unit="model",
        columns={
            "model": [*range(len(noise.scales))],
            f"mean {summary.divergence}": [*noise.means],
            "times the norm of what training changed": [*noise.scales],
        },
        figures=figures,
    )


def null_evidence(summary: ProbeSummary, *figures: Figure) -> Evidence | None:
    """Return the spikes of every method in the tokens that one model read twice."""
    by_method = {} if summary.null is None else summary.null.false_discoveries.get(summary.divergence, {})
    # The method of the page stands alone, so that its rate is a number of the rows.
    found = by_method.get(summary.spike_method)
    if found is None:
        return None
    return Evidence(
        id="null",
        table="probe/summary.json",
        filter=f"null, {summary.divergence}, {summary.spike_method}",
        unit="null pair",
        columns={
            "method": [named(METHODS, summary.spike_method)],
            "spikes": [found.num_spikes],
            "tokens": [found.num_tokens],
        },
        figures=figures,
        note="The interval is over problems; the tokens of the pair itself are not kept.",
    )


def score_evidence(summary: ProbeSummary, *figures: Figure) -> Evidence | None:
    """Return the area under the ROC curve of every score, with its interval."""
    known = [each for each in (() if summary.recovery is None else summary.recovery.selectors) if each.auc is not None]
    areas = [each.auc for each in known if each.auc is not None]
    if not areas:
        return None
    return Evidence(
        id="scores",
        table="probe/summary.json",
        filter="recovery.selectors",
        unit="score",
        columns={
            "score": [named(SELECTORS, each.selector) for each in known],
            "area": [area.mean for area in areas],
            "from": [area.low for area in areas],
            "to": [area.high for area in areas],
            "chance": [0.5] * len(areas),
        },
        figures=figures,
        note="That of the headline's divergence opens the wrong tokens that it is of.",
    )


def status_evidence(inputs: ReportInputs, *figures: Figure) -> Evidence:
    """Return how many completions of each checkpoint graders could not judge."""
    columns: dict[str, Sequence[Value]] = {"checkpoint": [each.checkpoint for each in inputs.evaluations]}
    columns["completions"] = [each.statuses.total() for each in inputs.evaluations]
    for name in ("timeout", "error", "unparsed"):
        columns[name] = [each.statuses.get(name, 0) for each in inputs.evaluations]
    return Evidence(
        id="statuses",
        table=" and ".join(f"eval/{each.file_name}.json" for each in inputs.evaluations),
        unit="checkpoint",
        columns=columns,
        figures=figures,
    )


def interval_evidence(inputs: ReportInputs, *figures: Figure) -> Evidence:
    """Return how many different intervals each record of the run adds to those before it."""
    summaries = () if inputs.summary is None else (inputs.summary,)
    names = [f"eval/{each.file_name}.json" for each in inputs.evaluations] + ["probe/summary.json"] * len(summaries)
    records = [*inputs.evaluations, *summaries]
    counts = [num_intervals(*records[: at + 1]) for at in range(len(records))]
    return Evidence(
        id="intervals",
        table=" and ".join(names),
        filter="means with two ends; those that stand in an earlier file are not counted again",
        unit="file",
        columns={
            "file": names,
            "intervals": [later - before for before, later in zip([0, *counts], counts, strict=False)],
        },
        figures=figures,
    )
