"""Divergence: how far did each checkpoint go from the reference?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from swerve.artifacts.probe_findings import DIVERGENCE_NAMES, DivergenceMeans
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.report.evidence import Figure, Sentence, digits_of
from swerve.report.format import SAME, compared, mean_words
from swerve.report.names import divergence_name
from swerve.report.read import ReportInputs
from swerve.report.rows import NATS, Dots, Rows, divergence_unit
from swerve.report.token_evidence import divergence_evidence, divergence_figure
from swerve.report.topics.topic import Column, FigureSpec, Topic, by_checkpoint, rows_of, with_rows
from swerve.text import count, listed, number, number_interval, signed_interval


def _sentences(inputs: ReportInputs, summary: ProbeSummary) -> Iterator[str]:
    """Yield how far the model went by stage, before the stage and at its largest step, and how certain it is now."""
    name, final, reference = divergence_name(summary), summary.final, summary.reference
    stages = [f"{mean_words(stage.of(summary.divergence))} at {stage.checkpoint}" for stage in summary.stages]
    if stages:
        yield f"By stage, the {name} from {reference} is {listed(stages)} (nats)."
    after = summary.final_divergence
    for pair in summary.baseline_pairs[:1] if after is not None else ():
        verdict = "the two were not compared"
        if pair.behind is not None:
            words = compared(pair.behind, 0.0, above="less than", below="more than")
            verdict = f"{words} what the stage changed ({signed_interval(pair.behind)} more, paired)"
        yield Sentence(
            f"Before the stage, {pair.checkpoint} differed from {pair.reference} by "
            f"{mean_words(pair.of(summary.divergence))} nats ({name}), {verdict}: {final} differs from "
            f"{reference} by {mean_words(after)}.",
            None if after is None else divergence_evidence(inputs, divergence_figure(summary, after)),
        )

    # Of neighbouring checkpoints those that differ most; the others are paired with them over problems.
    pairs = [(mean, pair) for pair in summary.consecutive_pairs if (mean := pair.of(summary.divergence)) is not None]
    if len(pairs) > 1:
        most, largest = max(pairs, key=lambda entry: entry[0].mean)
        others = [pair for _, pair in pairs if pair is not largest]
        near = [
            f"{each.reference} to {each.checkpoint}" for each in others if each.behind and not each.behind.excludes(0)
        ]
        unknown = [f"{each.reference} to {each.checkpoint}" for each in others if each.behind is None]
        ties = [f"{SAME} {listed(near)}, paired over problems"] if near else []
        ties += (
            [f"not determined, because the difference has no interval, against {listed(unknown)}"] if unknown else []
        )
        said = f" ({'; '.join(ties)})" if ties else ""
        yield (
            f"Of {count(len(pairs))} steps between neighbouring checkpoints most changed from {largest.reference} to "
            f"{largest.checkpoint}{said}, by "
            f"{mean_words(most)}."
        )
    entry = summary.at_final(None if summary.entropy is None else summary.entropy.means)
    if entry is not None and entry.change is not None:
        said = f"{signed_interval(entry.change)} against" if entry.change.excludes(0) else f"{SAME} that of"
        if entry.entropy is None:
            return
        of = Figure(
            name=f"entropy at {final}",
            statistic="ratio of sums",
            columns=(f"sum of entropy of {final}", "tokens"),
            write=digits_of(number_interval, entry.entropy),
        )
        yield Sentence(
            f"Mean entropy on these rollouts is {number_interval(entry.entropy)} nats at {final}, {said} {reference}.",
            divergence_evidence(inputs, of),
        )


_COLUMNS: Mapping[str, Column] = {
    **{name: (divergence_unit(key), str(key)) for key, name in DIVERGENCE_NAMES.items()},
    "Entropy": (NATS, "entropy"),
    "Entropy of the reference": (NATS, "entropy_ref"),
}
_DRAWN = tuple(DIVERGENCE_NAMES.values())[::-1]
"""JS first, which has a bound and so a plot of its own."""


def _pair_name(pair: DivergenceMeans) -> str:
    return f"{pair.checkpoint} against {pair.reference}"


def _rows(inputs: ReportInputs) -> Iterator[Rows]:
    summary = inputs.summary
    if summary is None:
        return
    note, floor = "Means over the tokens of the headline population.", summary.noise_floor
    if floor is not None:
        means = (
            f"{name} {number(floor[key].mean if key in floor else None)}" for key, name in DIVERGENCE_NAMES.items()
        )
        note += f" Noise floor (the reference against itself, batched otherwise): {', '.join(means)}."
    yield by_checkpoint(
        inputs,
        summary.divergences,
        _COLUMNS,
        drawn=_DRAWN,
        id="mean_kl_progression",
        title=f"From {summary.reference}, on {'the responses' if inputs.is_imported else 'its wrong rollouts'}",
        note=note,
    )
    yield rows_of(
        summary.stages,
        _COLUMNS,
        name="checkpoint",
        id="stages",
        title="By stage",
        first="Stage",
        note="A token counts with its mean over the checkpoints of the stage.",
    )
    yield by_checkpoint(
        inputs,
        summary.consecutive_pairs,
        _COLUMNS,
        drawn=_DRAWN,
        name=_pair_name,
        id="pairs",
        title="Each checkpoint against the one before",
    )

    # What the stage changed beside what the training before it had changed.
    final = summary.at_final(summary.divergences)
    if final is not None and summary.baseline_pairs:
        yield rows_of(
            (*summary.baseline_pairs, final),
            _COLUMNS,
            name=_pair_name,
            id="baseline_comparison",
            title="What the stage changed, and what was changed before it",
            first="Checkpoint",
            plots=tuple(Dots(column=name) for name in DIVERGENCE_NAMES.values()),
        )


TOPIC = Topic(
    title="How far did each checkpoint go?",
    note="mean divergences and entropy by checkpoint, stage and pair",
    sentences={"Divergence": with_rows(_sentences)},
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
