"""The page on every checkpoint: its evaluation, outcomes, samples, responses, and kinds of problems."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from swerve.report.inputs import ReportInputs
from swerve.report.layout import (
    Absent,
    DotPlot,
    DotRow,
    Panel,
    Table,
    Terms,
    Topic,
    dot_row,
    measured_columns,
    panel,
    topic,
)
from swerve.report.sampling import ks, rewards_are_shares, sampled
from swerve.report.sections_selection import divergence_table, pair_panel
from swerve.report.sections_spikes import SHARE_ENDS, spike_table
from swerve.report.values import (
    NOT_MEASURED,
    count,
    finite,
    interval,
    number,
    number_interval,
    percent,
    percent_interval,
    quoted,
)

__all__ = ["by_number", "checkpoint_topic"]

Evaluation = Mapping[str, Any]
_MAX_DOTS = 24
"""A plot of more kinds than these says less than the table."""
_MAX_REASONS = 10


def checkpoint_topic(inputs: ReportInputs) -> Topic | None:
    """Return the section with the figures of every checkpoint."""
    summary = inputs.summary or {}
    absent = Absent(what="Accuracy", command="swerve eval RUN") if not inputs.is_imported else None
    evaluations = _evaluation_table(inputs.evaluations)
    return topic(
        "tables",
        "Every checkpoint",
        [
            panel("", evaluations if evaluations.measured else absent, _outcome_table(inputs.evaluations), wide=True),
            _reason_panel(inputs.metrics),
            _sampling_panel(inputs),
            _response_panel(inputs.evaluations),
            _kind_panel(inputs, key="by_part"),
            _kind_panel(inputs, key="by_kind"),
            panel("", divergence_table(summary), spike_table(summary), wide=True),
            pair_panel(summary),
        ],
        short="Checkpoints",
    )


def _evaluation_table(evaluations: Sequence[Evaluation]) -> Table:
    reward = percent_interval if rewards_are_shares(evaluations) else number_interval
    rows = [
        (
            entry["checkpoint"],
            count(entry["step"]),
            percent_interval(interval(entry.get("accuracy"))),
            reward(interval(entry.get("mean_reward"))),
            percent_interval(interval(entry.get("trace_right"))),
            number_interval(interval(entry.get("num_tokens"))),
            number_interval(interval(entry.get("entropy"))),
            percent(entry.get("truncated")),
            count(entry.get("failures")),
        )
        for entry in evaluations
    ]
    header = (
        "Checkpoint", "Step", "Greedy accuracy", "Sampled reward", "Fully right traces", "Tokens", "Entropy (nats)",
        "Truncated", "Not gradable",
    )  # fmt: skip
    return measured_columns(Table(id="evaluation", caption="Evaluations", header=header, rows=tuple(rows)))


_OUTCOMES = {
    "graded": "Graded",
    "unparsed": "No answer found",
    "timeout": "Limit reached",
    "error": "Grader failed",
}


def _outcome_table(evaluations: Sequence[Evaluation]) -> Table | None:
    """Return what graders said of the completions; None where all were graded, or nothing tells."""
    shown = [entry for entry in evaluations if isinstance(entry.get("statuses"), Mapping)]
    names = [name for name in _OUTCOMES if name == "graded" or any(entry["statuses"].get(name) for entry in shown)]
    if len(names) == 1:
        return None
    rows = []
    for entry in shown:
        total = sum(entry["statuses"].values())
        counts = [entry["statuses"].get(name, 0) for name in names]
        rows.append((entry["checkpoint"], count(total), *(_counted(number, total) for number in counts)))
    return Table(
        id="outcomes",
        caption="Outcomes of grading",
        note="All completions, greedy and sampled. Those that were not graded count as wrong.",
        header=("Checkpoint", "Completions", *(_OUTCOMES[name] for name in names)),
        rows=tuple(rows),
    )


def _counted(number: int, total: int) -> str:
    return f"{count(number)} ({percent(number / total)})" if total else count(number)


def _reason_panel(metrics: Sequence[Mapping[str, Any]]) -> Panel | None:
    """Return why rollouts of training have no verdict, the most frequent reasons first."""
    reasons: Counter[str] = Counter()
    for record in metrics:
        reasons.update(record.get("error_details") or {})
    rows = tuple((reason, count(number)) for reason, number in reasons.most_common(_MAX_REASONS))
    return panel(
        "Why were rollouts of training not graded?",
        Table(
            id="reasons",
            caption="Limits that were reached and failures of the grader",
            note="Of each step the most frequent reasons are recorded, so the numbers are at least these.",
            header=("Reason", "Rollouts"),
            rows=rows,
        ),
        wide=True,
    )


def _sampling_panel(inputs: ReportInputs) -> Panel | None:
    """Return what several samples of a problem are worth; None where there was one sample or none."""
    numbers = ks(inputs.evaluations)
    if not numbers or numbers[-1] < 2:
        return None
    most = numbers[-1]
    # The majority of two is one of the two.
    columns = [(f"pass@{k}", "pass_at_k", k) for k in numbers]
    columns += [(f"maj@{most}", "majority_at_k", most)] if most > 2 else []
    columns += [(f"pass^{most}", "pass_hat_k", most)]
    rows = tuple(
        (
            entry["checkpoint"],
            *(percent_interval(sampled(entry, k, key)) for _, key, k in columns),
            number_interval(interval(inputs.distinct_right.get(entry["checkpoint"]))),
        )
        for entry in inputs.evaluations
    )
    header = ("Checkpoint", *(name for name, _, _ in columns), "Different right answers")
    table = measured_columns(Table(id="sampling", caption="Samples by checkpoint", header=header, rows=rows))
    terms = [
        ("pass@k", "Chance that at least one of k samples is right, estimated without bias."),
        ("maj@k", "Chance that the most frequent answer of k samples is right; ties are broken at random."),
        ("pass^k", "Chance that all k samples are right."),
        (
            "Different right answers",
            "Mean number, as written, that the samples of a problem hold: more than one where the model finds several.",
        ),
    ]
    names = " ".join(table.header)
    kept = tuple((name, meaning) for name, meaning in terms if name.removesuffix("k") in names)
    return panel(
        "What are several samples of a problem worth?",
        table,
        Terms(rows=kept),
        note=f"{_num_samples(inputs.evaluations)}Means over problems. The page {quoted('Behaviours')} of the "
        "documentation has the equations.",
        wide=True,
    )


def _num_samples(evaluations: Sequence[Evaluation]) -> str:
    """Return a sentence on how the samples were drawn, as far as the settings tell."""
    settings = (evaluations[0].get("settings") or {}).get("eval") or {}
    drawn, temperature = settings.get("samples_per_problem"), settings.get("temperature")
    return "" if None in (drawn, temperature) else f"{count(drawn)} samples a problem at temperature {temperature:g}. "


_RESPONSES = (
    ("format_rate", "In format", "Share of responses in the format that their prompt asks for."),
    (
        "dummy_thinking_share",
        "Dummy thinking",
        "Of the responses that think first, the share whose thinking is empty, filler, a few words, or not about the "
        "question.",
    ),
    (
        "repeated_4gram_share",
        "Repeated 4-grams",
        "Share of runs of four words that occurred before in the same response; it grows with length.",
    ),
    (
        "reflections_per_1000_words",
        "Reflections",
        f"Phrases such as {quoted('wait')} or {quoted('let me check')}, per 1,000 words.",
    ),
)


def _response_panel(evaluations: Sequence[Evaluation]) -> Panel | None:
    """Return what greedy responses look like, without figures that are 0 throughout; only the format may be."""
    shown = [entry for entry in evaluations if isinstance(entry.get("responses"), Mapping)]
    kept = []
    for key, name, meaning in _RESPONSES:
        values = [finite(entry["responses"].get(key)) for entry in shown]
        if any(values) or (key == "format_rate" and any(value is not None for value in values)):
            kept.append((key, name, meaning))
    rows = tuple(
        (
            entry["checkpoint"],
            *(
                (number if key == "reflections_per_1000_words" else percent)(entry["responses"].get(key))
                for key, _, _ in kept
            ),
        )
        for entry in shown
    )
    table = Table(
        id="responses-form",
        caption="Responses by checkpoint",
        header=("Checkpoint", *(name for _, name, _ in kept)),
        rows=rows if kept else (),
    )
    return panel(
        "What do the responses look like?",
        table,
        Terms(rows=tuple((name, meaning) for _, name, meaning in kept)),
        note="Greedy responses to the held-out problems. These are rules about the surface of a text; the page "
        f"{quoted('Behaviours')} of the documentation says what each misses.",
        wide=True,
    )


_GROUPINGS = {
    "by_part": ("Which parts of the mixture were learnt?", "parts", "Part"),
    "by_kind": ("Which kinds of problems were learnt?", "kinds", "Kind"),
}


def _kind_panel(inputs: ReportInputs, *, key: str) -> Panel | None:
    """Return accuracy by part of a mixture or by kind of problem: reference against final, and every checkpoint."""
    title, id, column = _GROUPINGS[key]
    shown = [entry for entry in inputs.evaluations if isinstance(entry.get(key), Mapping)]
    kinds = sorted({kind for entry in shown for kind in entry[key]}, key=by_number)
    if len(kinds) < 2:
        return None
    rows = []
    for kind in kinds:
        cells = [entry[key].get(kind) or {} for entry in shown]
        size = next((count(cell["num_problems"]) for cell in cells if "num_problems" in cell), NOT_MEASURED)
        rows.append((kind, size, *(percent_interval(interval(cell.get("accuracy"))) for cell in cells)))
    plot = DotPlot(rows=_kind_dots(inputs, kinds, key=key), ends=SHARE_ENDS)
    return panel(
        title,
        plot,
        Table(
            id=id,
            caption=f"Greedy accuracy by {column.lower()}",
            header=(column, "Problems", *(entry["checkpoint"] for entry in shown)),
            rows=tuple(rows),
            folded=plot.measured,
        ),
        note=_dots_note(inputs) if plot.measured else "",
        wide=True,
    )


def by_number(name: str) -> list[Any]:
    """Return a key by which names are sorted with their numbers as numbers.

    >>> sorted(["10 people", "2 people"], key=by_number)
    ['2 people', '10 people']
    """
    # Every second part is a number, so that equal places of two keys compare.
    return [int(part) if i % 2 else part for i, part in enumerate(re.split(r"(\d+)", name))]


def _kind_dots(inputs: ReportInputs, kinds: Sequence[str], *, key: str) -> tuple[DotRow, ...]:
    first, last = inputs.reference or {}, inputs.final or {}
    if len(kinds) > _MAX_DOTS:
        return ()
    rows = []
    for kind in kinds:
        after = interval(((last.get(key) or {}).get(kind) or {}).get("accuracy"))
        before = interval(((first.get(key) or {}).get(kind) or {}).get("accuracy")) if first is not last else None
        if after is not None:
            rows.append(dot_row(kind, percent_interval(after), after, None if before is None else before.mean))
    return tuple(rows)


def _dots_note(inputs: ReportInputs) -> str:
    first, last = inputs.reference or {}, inputs.final or {}
    tick = "" if first is last else f" The tick is {first.get('checkpoint')}."
    return f"Greedy accuracy of {last.get('checkpoint')} with its interval.{tick}"
