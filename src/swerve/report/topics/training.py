"""Training: which way, when and where did it move the tokens?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from swerve.artifacts.probe_causes import Attribution
from swerve.artifacts.probe_dynamics import BiographySummary, Correlate, Direction
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.report.format import compared
from swerve.report.names import CORRELATES, divergence_name, named
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
from swerve.report.topics.topic import Column, FigureSpec, Topic, along_training, by_checkpoint, of_probe, rows_of
from swerve.text import count, number, p_words, percent, percent_interval, points_interval, signed_interval


def _sentences(summary: ProbeSummary) -> Iterator[str]:
    # Whether the divergence goes with the answer.
    for entry in _correlates(summary):
        if entry.correlate == "correct" and entry.level == "rollout" and entry.estimate is not None:
            word = compared(entry.estimate, 0.0, above="higher than", below="lower than")
            yield (
                f"A right rollout's {divergence_name(summary)} is {word} a wrong one's, on text of {entry.source}: "
                f"rank correlation {signed_interval(entry.estimate)} over {count(entry.num)} rollouts, adjusted "
                f"{p_words(entry.p_adjusted)}."
            )

    # Whether wrong steps left the reference more often.
    more = None if summary.biographies is None else summary.biographies.wrong_above_others
    if summary.biographies is not None and more is not None:
        tokens = summary.biographies.tokens
        verdict = compared(more, 0.0, above="more than", below="less than")
        yield (
            f"{percent_interval(tokens['wrong_steps'].share_moved)} of the wrong steps left the reference for good, "
            f"{verdict} the {percent_interval(tokens['others'].share_moved)} of the tokens beside them (by "
            f"{points_interval(more)} points)."
        )

    # Whether tokens moved as they were pushed.
    signal = summary.at_final(summary.training_signal)
    direction = None if signal is None else signal.direction
    if direction is not None and direction.above_chance is not None:
        yield (
            f"Of the tokens of training that moved, {percent_interval(direction.agreement)} moved the way their "
            f"advantage pushed, {compared(direction.above_chance, 0.0)} chance ({percent(direction.chance)})."
        )

    # Whether spikes are decided by what stands just before them.
    for attribution in summary.attribution or ():
        recent = attribution.recent
        if recent.above_uniform is not None:
            verdict = compared(recent.above_uniform, 0.0, above="more than", below="less than")
            yield (
                f"At {count(attribution.num_spots)} spikes the last 5 tokens have {percent_interval(recent.score)} of "
                f"the attribution of {attribution.model}, {verdict} if all counted alike ({percent(recent.uniform)})."
            )


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
_GROUPS: Mapping[Literal["wrong_steps", "others", "all"], str] = {
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
    sentences={"Training": of_probe(_sentences)},
    rows=_rows,
    figures={
        "onset": FigureSpec(
            shows="When wrong steps and other tokens left the reference for good.",
        )
    },
)
