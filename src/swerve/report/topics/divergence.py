"""Divergence: how far did each checkpoint go from the reference?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from swerve.artifacts.probe_findings import DIVERGENCE_NAMES, DivergenceMeans
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.report.format import SAME, compared, count, listed, number, number_interval, signed_interval
from swerve.report.names import divergence_name
from swerve.report.read import ReportInputs
from swerve.report.rows import NATS, Curves, Dots, Rows, divergence_unit
from swerve.report.topics.topic import FigureSpec, Topic, along_training, of_probe


def _sentences(summary: ProbeSummary) -> Iterator[str]:
    yield _stages(summary)
    yield _baseline(summary)
    yield _largest_pair(summary)
    yield _entropy(summary)


def _stages(summary: ProbeSummary) -> str:
    means = [(stage.checkpoint, stage.of(summary.divergence)) for stage in summary.stages]
    if not means:
        return ""
    texts = [f"{number_interval(mean)} at {name}" for name, mean in means]
    return f"By stage, the mean {divergence_name(summary)} from {summary.reference} is {listed(texts)} (nats)."


def _baseline(summary: ProbeSummary) -> str:
    pair = next(iter(summary.baseline_pairs), None)
    before = None if pair is None else pair.of(summary.divergence)
    after = summary.final_divergence
    if pair is None or before is None or after is None:
        return ""
    verdict = "the two were not compared"
    if pair.behind is not None:
        words = compared(pair.behind, 0.0, above="less than", below="more than")
        verdict = f"{words} what the stage changed ({signed_interval(pair.behind)} more, paired)"
    return (
        f"Before the stage, {pair.checkpoint} differed from {pair.reference} by {number_interval(before)} nats "
        f"({divergence_name(summary)}), {verdict}: {summary.final} differs from {summary.reference} by "
        f"{number_interval(after)}."
    )


def _largest_pair(summary: ProbeSummary) -> str:
    pairs = [(pair, mean) for pair in summary.consecutive_pairs if (mean := pair.of(summary.divergence)) is not None]
    if len(pairs) < 2:
        return ""
    pair, most = max(pairs, key=lambda entry: entry[1].mean)
    ties = [
        f"{other.reference} to {other.checkpoint}"
        for other, _ in pairs
        if other is not pair and not (other.behind is not None and other.behind.excludes(0))
    ]
    tie = f" ({SAME} {listed(ties)}, paired over problems)" if ties else ""
    return (
        f"Of {count(len(pairs))} steps between neighbouring checkpoints most changed from {pair.reference} to "
        f"{pair.checkpoint}{tie}, by {number_interval(most)}."
    )


def _entropy(summary: ProbeSummary) -> str:
    entry = None if summary.entropy is None else summary.at_final(summary.entropy.means)
    if entry is None or entry.change is None or entry.entropy is None:
        return ""
    where = f"Mean entropy on these rollouts is {number_interval(entry.entropy)} nats at {summary.final}"
    if not entry.change.excludes(0):
        return f"{where}, {SAME} that of {summary.reference}."
    return f"{where}, {signed_interval(entry.change)} against {summary.reference}."


def floor_note(summary: ProbeSummary) -> str:
    """Return a sentence on what two runs of one model differ by; empty where that was not measured."""
    floor = summary.noise_floor
    if floor is None:
        return ""
    means = (f"{name} {number(floor[key].mean if key in floor else None)}" for key, name in DIVERGENCE_NAMES.items())
    return f"Noise floor (the reference against itself, batched otherwise): {', '.join(means)}."


def _rows(inputs: ReportInputs) -> Iterator[Rows]:
    summary = inputs.summary
    if summary is None:
        return
    on = "the responses" if inputs.is_imported else "its wrong rollouts"
    note = f"Means over the tokens of the headline population. {floor_note(summary)}".strip()
    plots = _plots(inputs, summary.divergences)
    yield _means("mean_kl_progression", f"From {summary.reference}, on {on}", summary.divergences, plots, note=note)
    stage = "A token counts with its mean over the checkpoints of the stage."
    yield _means("stages", "By stage", summary.stages, (), note=stage, first="Stage")
    plots = _plots(inputs, summary.consecutive_pairs)
    yield _means("pairs", "Each checkpoint against the one before", summary.consecutive_pairs, plots, is_pair=True)

    # What the stage changed beside what the training before it had changed.
    final = summary.at_final(summary.divergences)
    if final is not None and summary.baseline_pairs:
        pairs = (*summary.baseline_pairs, final)
        dots = tuple(Dots(column=name) for name in DIVERGENCE_NAMES.values())
        title = "What the stage changed, and what was changed before it"
        yield _means("baseline_comparison", title, pairs, dots, is_pair=True)


def _plots(inputs: ReportInputs, entries: Sequence[DivergenceMeans]) -> tuple[Curves, ...]:
    """Return the plots over checkpoints: JS, which has a bound, apart from the two KLs."""
    labels, (js, *kls) = [entry.checkpoint for entry in entries], reversed(list(DIVERGENCE_NAMES.values()))
    return tuple(along_training(inputs, labels, names) for names in ((js,), kls)) if labels else ()


def _means(
    id: str,
    title: str,
    entries: Sequence[DivergenceMeans],
    plots: tuple[Dots | Curves, ...],
    *,
    note: str = "",
    first: str = "Checkpoint",
    is_pair: bool = False,
) -> Rows:
    """Return mean divergences and entropies, a row for each checkpoint, stage or pair of checkpoints."""
    units = {name: divergence_unit(key) for key, name in DIVERGENCE_NAMES.items()}
    return Rows(
        id=id,
        title=title,
        first=first,
        columns={**units, "Entropy": NATS, "Entropy of the reference": NATS},
        rows=tuple(
            (
                f"{entry.checkpoint} against {entry.reference}" if is_pair else entry.checkpoint,
                *map(entry.of, DIVERGENCE_NAMES),
                entry.entropy,
                entry.entropy_ref,
            )
            for entry in entries
        ),
        note=note,
        plots=plots,
    )


TOPIC = Topic(
    title="How far did each checkpoint go?",
    note="mean divergences and entropy by checkpoint, stage and pair",
    sentences={"Divergence": of_probe(_sentences)},
    rows=_rows,
    figures={
        "mean_kl_progression": FigureSpec(
            shows="Mean divergences of every checkpoint from the reference.",
        ),
        "pairs": FigureSpec(
            shows="Mean divergences of every checkpoint from the one before.",
            needs="two or more checkpoints, and swerve probe with consecutive in probe.pairs",
        ),
        "baseline_comparison": FigureSpec(
            shows="What the stage changed beside what the training before it had changed.",
            needs="swerve probe RUN probe.baseline=LABEL",
        ),
    },
)
