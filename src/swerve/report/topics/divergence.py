"""Divergence: how far did each checkpoint go from the reference?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from swerve.artifacts.probe_findings import DIVERGENCE_NAMES, DivergenceMeans
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.estimates import Estimate
from swerve.report.evidence import Figure, Sentence, digits_of
from swerve.report.format import mean_words
from swerve.report.names import divergence_name
from swerve.report.pair_evidence import pair_evidence, pair_figures
from swerve.report.read import ReportInputs
from swerve.report.rows import NATS, Dots, Rows, divergence_unit
from swerve.report.token_evidence import divergence_evidence
from swerve.report.topics.topic import Column, FigureSpec, Topic, by_checkpoint, rows_of, with_rows
from swerve.text import count, listed, number, number_interval, signed_interval


def _sentences(inputs: ReportInputs, summary: ProbeSummary) -> Iterator[str]:
    """Yield how far the model went by stage, before the stage and at its largest step, and how certain it is now."""
    name, final, reference = divergence_name(summary), summary.final, summary.reference
    stages = [f"{mean_words(stage.of(summary.divergence))} at {stage.checkpoint}" for stage in summary.stages]
    if stages:
        checkpoints = [(label, reference) for label in summary.checkpoints]
        yield Sentence(
            f"By stage, the {name} from {reference} is {listed(stages)} (nats).",
            pair_evidence(inputs, checkpoints, "checkpoints"),
        )
    after = summary.final_divergence
    for pair in summary.baseline_pairs[:1] if after is not None else ():
        yield _before(inputs, summary, pair, after)

    # Of neighbouring checkpoints those that differ most; the others are paired with them over problems.
    pairs = [(mean, pair) for pair in summary.consecutive_pairs if (mean := pair.of(summary.divergence)) is not None]
    if len(pairs) > 1:
        most, largest = max(pairs, key=lambda entry: entry[0].mean)
        others = [pair for _, pair in pairs if pair is not largest]
        near = [
            f"{each.reference} to {each.checkpoint}" for each in others if each.behind and not each.behind.excludes(0)
        ]
        unknown = [f"{each.reference} to {each.checkpoint}" for each in others if each.behind is None]
        ties = f" As far as can be seen, as much changed from {listed(near)}." if near else ""
        if unknown:
            ties += f" Whether less did from {listed(unknown)} is not determined: the difference has no interval."
        ends = [(each.checkpoint, each.reference) for _, each in pairs]
        yield Sentence(
            f"Of {count(len(pairs))} steps between neighbouring checkpoints most changed from {largest.reference} to "
            f"{largest.checkpoint}, by {mean_words(most)} nats a token ({name}).{ties}",
            pair_evidence(
                inputs, ends, "neighbours", *pair_figures(summary, largest.checkpoint, largest.reference, most)
            ),
        )
    entry = summary.at_final(None if summary.entropy is None else summary.entropy.means)
    if entry is not None and entry.change is not None:
        if entry.entropy is None:
            return
        of = Figure(
            name=f"entropy at {final}",
            statistic="ratio of sums",
            columns=(f"sum of entropy of {final}", "tokens"),
            write=digits_of(number_interval, entry.entropy),
        )
        change = Figure(
            name="change",
            statistic="difference of ratios",
            columns=(f"sum of entropy of {final}", "tokens", f"sum of entropy of {reference}", "tokens"),
            write=digits_of(signed_interval, entry.change),
        )
        word = "surer" if entry.change.mean < 0 else "less sure"
        said = f"On these rollouts {final} is {word} than {reference}"
        if not entry.change.excludes(0):
            said = f"Whether {final} is surer than {reference} on these rollouts is not to be seen"
        yield Sentence(
            f"{said}: its mean entropy is {number_interval(entry.entropy)} nats a token, a change of "
            f"{signed_interval(entry.change)}.",
            divergence_evidence(inputs, of, change),
        )


def _before(inputs: ReportInputs, summary: ProbeSummary, pair: DivergenceMeans, after: Estimate | None) -> Sentence:
    """Say whether the stage changed more than the training before it."""
    behind, before = pair.behind, pair.of(summary.divergence)
    said = "Whether the stage changed more than the training before it is not determined"
    if behind is not None:
        said = f"The stage changed {'more' if behind.mean > 0 else 'less'} than the training before it"
        if not behind.excludes(0):
            said = "Whether the stage changed more than the training before it is not to be seen"
    apart = "" if behind is None else f"; the difference is {signed_interval(behind)}"
    ends = [(summary.final, summary.reference), (pair.checkpoint, pair.reference)]
    figures = [
        figure
        for (checkpoint, reference), known in zip(ends, (after, before), strict=True)
        if known is not None
        for figure in pair_figures(summary, checkpoint, reference, known)
    ]
    return Sentence(
        f"{said}: {summary.final} lies {mean_words(after)} nats a token ({divergence_name(summary)}) from "
        f"{summary.reference}, {pair.checkpoint} {mean_words(before)} from {pair.reference}{apart}.",
        pair_evidence(inputs, ends, "before", *figures),
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
