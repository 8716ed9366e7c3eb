"""Training: which way, when and where did it move the tokens?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from swerve.artifacts.probe_causes import Attribution
from swerve.artifacts.probe_dynamics import BiographySummary, Correlate, Direction, TokenBiographies
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.estimates import Estimate
from swerve.report.evidence import Figure, Sentence, digits_of, with_interval
from swerve.report.format import compared, is_few, too_few
from swerve.report.names import CORRELATES, divergence_name, named
from swerve.report.pair_evidence import correlate_evidence
from swerve.report.read import ReportInputs
from swerve.report.rows import (
    AUC,
    CORRELATION,
    COUNT,
    NATS_CHANGE,
    NUMBER,
    P_VALUE,
    POINTS,
    SHARE,
    TEXT,
    TOKENS,
    Dots,
    Rows,
    divergence_unit,
)
from swerve.report.topics.topic import Column, FigureSpec, Topic, along_training, by_checkpoint, rows_of, with_rows
from swerve.report.training_evidence import attribution_evidence, biography_evidence, signal_evidence
from swerve.text import count, number, p_words, percent, percent_interval, points_interval, signed_interval


def _sentences(inputs: ReportInputs, summary: ProbeSummary) -> Iterator[str]:
    # Whether the divergence goes with the answer.
    for entry in _correlates(summary):
        if entry.correlate == "correct" and entry.level == "rollout" and entry.estimate is not None:
            yield _of_right(inputs, summary, entry, entry.estimate)

    # Whether wrong steps left the reference more often.
    more = None if summary.biographies is None else summary.biographies.wrong_above_others
    if summary.biographies is not None and more is not None:
        tokens = summary.biographies.tokens
        verdict = compared(more, 0.0, above="more than", below="less than")
        yield Sentence(
            f"{percent_interval(tokens['wrong_steps'].share_moved)} of the wrong steps left the reference for good, "
            f"{verdict} the {percent_interval(tokens['others'].share_moved)} of the tokens beside them (by "
            f"{points_interval(more)} points).",
            biography_evidence(inputs, *_left_figures(tokens, more, summary.confidence)),
        )

    # Whether tokens moved as they were pushed.
    signal = summary.at_final(summary.training_signal)
    direction = None if signal is None else signal.direction
    if direction is not None and direction.above_chance is not None:
        pushed = Figure(name="as pushed", statistic="ratio of sums", columns=("as pushed", "moved"))
        agreement, level = direction.agreement, summary.confidence
        known = [] if agreement is None else with_interval(pushed, percent_interval, agreement, level)
        yield Sentence(
            f"Of the tokens of training that moved, {percent_interval(direction.agreement)} moved the way their "
            f"advantage pushed, {compared(direction.above_chance, 0.0)} chance ({percent(direction.chance)}).",
            signal_evidence(inputs, *known),
        )

    # Whether spikes are decided by what stands just before them.
    for attribution in summary.attribution or ():
        recent = attribution.recent
        if recent.above_uniform is not None:
            verdict = compared(recent.above_uniform, 0.0, above="more than", below="less than")
            score = Figure(name="on the last 5", statistic="mean", columns=("on the last 5",))
            mean = recent.score
            numbers = [] if mean is None else [replace(score, write=digits_of(percent_interval, mean))]
            yield Sentence(
                f"At {count(attribution.num_spots)} spikes the last 5 tokens have {percent_interval(recent.score)} of "
                f"the attribution of {attribution.model}, {verdict} if all counted alike ({percent(recent.uniform)}).",
                attribution_evidence(inputs, attribution, *numbers),
            )


def _of_right(inputs: ReportInputs, summary: ProbeSummary, entry: Correlate, known: Estimate) -> Sentence:
    """Say whether the divergence of right answers is higher or lower than that of wrong ones."""
    name = divergence_name(summary)
    what = f"a right rollout's {name} is higher or lower than a wrong one's"
    said = f"A right rollout's {name} is {'higher' if known.mean > 0 else 'lower'} than a wrong one's"
    if is_few(entry.num, known):
        said = too_few(entry.num, "rollout", f"say whether {what}")
    elif not known.excludes(0):
        said = f"Whether {what} is not to be seen"
    rho = Figure(name="rank correlation", statistic="rank correlation", columns=(f"mean {entry.divergence}", "right"))
    numbers = with_interval(rho, signed_interval, known, summary.confidence)
    return Sentence(
        f"{said}, on text of {entry.source}: rank correlation {signed_interval(known)} over {count(entry.num)} "
        f"rollouts, adjusted {p_words(entry.p_adjusted)}.",
        correlate_evidence(inputs, entry, Figure(name="rollouts", statistic="rows"), *numbers),
    )


def _left_figures(tokens: Mapping[Group, TokenBiographies], more: Estimate, level: float) -> list[Figure]:
    """Return how many of the wrong steps and of the tokens beside them left for good, and the difference."""
    columns = {"wrong_steps": ("of them left", "wrong tokens"), "others": ("of those left", "other tokens")}
    figures: list[Figure] = []
    for name, of in columns.items():
        known = tokens["wrong_steps" if name == "wrong_steps" else "others"].share_moved
        if known is not None:
            share = Figure(name=of[0], statistic="ratio of sums", columns=of)
            figures += with_interval(share, percent_interval, known, level)
    both, write = (*columns["wrong_steps"], *columns["others"]), digits_of(points_interval, more)
    return [*figures, Figure(name="difference", statistic="difference of ratios", columns=both, write=write)]


def _correlates(summary: ProbeSummary) -> list[Correlate]:
    return [each for each in summary.correlates or () if each.checkpoint == summary.final and each.estimate is not None]


def _rows(inputs: ReportInputs) -> Iterator[Rows]:
    summary = inputs.summary
    if summary is None:
        return
    by_writer: dict[str, list[Direction]] = {}
    for direction in summary.direction or ():
        by_writer.setdefault(direction.source, []).append(direction)
    for source, directions in by_writer.items():
        yield by_checkpoint(
            inputs,
            directions,
            _DIRECTION,
            greys=("Good tokens",),
            id=f"direction-{source}",
            title=f"Does the divergence on text of {source} go towards right answers?",
            note="Fractions of the divergence and of the tokens. Good is a rise of log-probability in a right rollout "
            "and a fall in a wrong one; moves are means per token. The AUC is of a rollout's summed move for a right "
            "answer.",
        )
        yield by_checkpoint(
            inputs,
            directions,
            _WRONG_STEPS,
            greys=("Others' move", "Reference's"),
            id=f"wrong-steps-{source}",
            title=f"What happens at the steps of {source} that are known to be wrong?",
            note="Right on top: how often the most likely token is the one that a right step has there.",
        )

    # When tokens left, and what goes with it.
    if summary.biographies is not None:
        yield from _biographies(inputs, summary.biographies)
    yield rows_of(
        _correlates(summary),
        {
            "Text of": (TEXT, "source"),
            "Correlation": (CORRELATION, "estimate"),
            "Number": (COUNT, "num"),
            "Adjusted p": (P_VALUE, "p_adjusted"),
        },
        name=lambda entry: f"{entry.level}: {named(CORRELATES, entry.correlate)}",
        id="correlates",
        title=f"What goes with the divergence of {summary.final}?",
        first="Correlate",
        note=f"Rank correlations of {divergence_name(summary)}; p-values are adjusted over all tests of all "
        "checkpoints (Benjamini and Hochberg). None of them says what causes what.",
        plots=(Dots(column="Correlation", at=0.0),),
    )
    yield from _attributions(summary.attribution or ())
    yield from _signals(inputs, summary)


_DIRECTION: Mapping[str, Column] = {
    "Good divergence": (SHARE, "share_good"),
    "Good tokens": (SHARE, "share_good_tokens"),
    "Move, right": (NATS_CHANGE, "mean_move_right"),
    "Move, wrong": (NATS_CHANGE, "mean_move_wrong"),
    "AUC": (AUC, "auc"),
}
_WRONG_STEPS: Mapping[str, Column] = {
    "Wrong tokens": (COUNT, "wrong_steps.num_tokens"),
    "Move": (NATS_CHANGE, "wrong_steps.mean_move"),
    "Others' move": (NATS_CHANGE, "wrong_steps.mean_move_others"),
    "Right on top": (SHARE, "wrong_steps.share_expected"),
    "Reference's": (SHARE, "wrong_steps.share_expected_ref"),
}
_BIOGRAPHY: Mapping[str, Column] = {
    "Number": (COUNT, "of.num_tokens"),
    "Moved for good": (SHARE, "of.share_moved"),
    "Turned back": (SHARE, "of.share_reversed"),
    "Linearity": (NUMBER, "of.median_linearity"),
    "Jumps": (SHARE, "of.jumps.share"),
}
Group = Literal["wrong_steps", "others", "all"]
_GROUPS: Mapping[Group, str] = {
    "wrong_steps": "Wrong steps",
    "others": "Other tokens beside them",
    "all": "All tokens",
}


def _biographies(inputs: ReportInputs, biographies: BiographySummary) -> Iterator[Rows]:
    """Yield when tokens left the reference for good, and how."""
    # Of the tokens of each group that moved, the fractions by checkpoint.
    groups = {name: biographies.tokens[key] for key, name in _GROUPS.items() if key in biographies.tokens}
    shares = [
        [onset.num_tokens / group.num_moved if group.num_moved else None for onset in group.onset_steps]
        for group in groups.values()
    ]
    counts = [f"{name.lower()} {count(group.num_moved)}" for name, group in groups.items()]
    yield Rows(
        id="onset",
        title="When does a token leave the reference?",
        first="Checkpoint",
        columns=dict.fromkeys(groups, SHARE),
        rows=tuple(zip(biographies.checkpoints, *shares, strict=False)),
        note=f"Of the tokens that moved ({', '.join(counts)}), the fraction whose log-probability left that of the "
        f"reference by more than {number(biographies.threshold, 2)} nats for good at each checkpoint.",
        plots=(along_training(inputs, biographies.checkpoints, [*groups][:2], greys=("Other tokens beside them",)),),
    )

    # How the tokens of each group moved.
    yield rows_of(
        [{"name": name, "of": group} for name, group in groups.items()],
        _BIOGRAPHY,
        name="name",
        id="biographies",
        title="How does it leave?",
        first="Tokens",
        note="Turned back, linearity and jumps are of the tokens that moved. A jump is descriptive: two levels explain "
        "the token better than a line does, as they do many walks and curves that level off.",
        plots=(Dots(column="Moved for good"),),
    )


def _attributions(entries: Sequence[Attribution]) -> Iterator[Rows]:
    """Yield which earlier tokens decide a spike, and how far back they lie, beside what equal scores would give."""
    methods = ", ".join(sorted({entry.method.replace("_", " ") for entry in entries}))
    kinds = {"prompt": "prompt", "recent": "last 5 tokens", "wrong": "earlier wrong steps"}
    for id, title, unit, names in (
        ("attribution", "Which earlier tokens decide a spike?", SHARE, kinds),
        ("attribution-distance", "How far back do they lie?", TOKENS, {"distance": "distance"}),
    ):
        parts = [(f"{entry.model}: {name}", getattr(entry, key)) for entry in entries for key, name in names.items()]
        yield Rows(
            id=id,
            title=title,
            first="Model and tokens",
            columns={"Score": unit, "If all alike": unit, "Spikes": COUNT},
            rows=tuple((name, part.score, part.uniform, part.num_spots) for name, part in parts),
            note=f"By {methods}: each kind's fraction of the score, or the mean distance; grey if all counted alike.",
            plots=(Dots(column="Score", null="If all alike"),),
        )


def _signals(inputs: ReportInputs, summary: ProbeSummary) -> Iterator[Rows]:
    """Yield whether tokens moved where, and the way, they were pushed: since the reference, and between neighbours."""
    unit = divergence_unit(summary.divergence)
    columns: Mapping[str, Column] = {
        "With a signal": (unit, "divergence.signal.mean"),
        "Without": (unit, "divergence.no_signal.mean"),
        "Not yet seen": (unit, "divergence.not_seen.mean"),
        "Spill-over": (NUMBER, "spill_over"),
        "Correlation with |advantage|": (CORRELATION, "advantage_correlation.estimate"),
        "Moved as pushed": (SHARE, "direction.agreement"),
        "Chance": (SHARE, "direction.chance"),
        "Above chance": (POINTS, "direction.above_chance"),
    }

    # Pairs of neighbours come after those since the reference, and leave out the reference's own.
    since = [signal for signal in summary.training_signal if signal.reference == summary.reference]
    steps = [
        signal for signal in summary.training_signal if summary.reference not in (signal.reference, signal.checkpoint)
    ]
    for id, start, signals in (("signal", "reference", since), ("signal-pairs", "checkpoint before", steps)):
        yield by_checkpoint(
            inputs,
            signals,
            columns,
            drawn=("With a signal", "Without", "Not yet seen", "Moved as pushed", "Chance"),
            greys=("Not yet seen", "Chance"),
            id=id,
            title=f"Does a token move where, and the way, it was pushed since the {start}?",
            note=f"Mean {divergence_name(summary)} on rollouts of training. A token has a signal if an update used it "
            "with an advantage other than 0; spill-over is the divergence without a signal over that with one.",
        )


TOPIC = Topic(
    title="What did training do to the tokens?",
    note="towards right answers, when, and as pushed",
    sentences={"Training": with_rows(_sentences)},
    rows=_rows,
    figures={
        "onset": FigureSpec(
            shows="When wrong steps and other tokens left the reference for good.",
        )
    },
)
