"""Training: which way, when and where did it move the tokens?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from swerve.artifacts.probe_causes import Attribution
from swerve.artifacts.probe_dynamics import Direction
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.report.format import (
    compared,
    count,
    number,
    p_words,
    percent,
    percent_interval,
    points_interval,
    signed_interval,
)
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
from swerve.report.topics.topic import (
    KNOWN_STEPS,
    Column,
    FigureSpec,
    Topic,
    along_training,
    by_checkpoint,
    of_probe,
    rows_of,
)


def _sentences(summary: ProbeSummary) -> Iterator[str]:
    yield _correlates(summary)
    yield _onset(summary)
    yield _signal(summary)
    yield from (_attribution(entry) for entry in summary.attribution or ())


def _correlates(summary: ProbeSummary) -> str:
    key = summary.final, "correct"
    tested = (correlate for correlate in summary.correlates or () if correlate.p_adjusted is not None)
    entry = next((correlate for correlate in tested if (correlate.checkpoint, correlate.correlate) == key), None)
    if entry is None:
        return ""
    sign = "is not shown to go with the answer"
    if entry.estimate is not None and entry.estimate.excludes(0):
        sign = f"goes with {'right' if entry.estimate.low > 0 else 'wrong'} answers"
    return (
        f"A rollout's {divergence_name(summary)} {sign}: rank correlation {signed_interval(entry.estimate)} over "
        f"{count(entry.num)} rollouts, adjusted {p_words(entry.p_adjusted)}."
    )


def _onset(summary: ProbeSummary) -> str:
    tokens = {} if summary.biographies is None else summary.biographies.tokens
    if "wrong_steps" not in tokens or "others" not in tokens:
        return ""
    wrong, others = tokens["wrong_steps"].share_moved, tokens["others"].share_moved
    more = None if summary.biographies is None else summary.biographies.wrong_above_others
    if wrong is None or others is None or more is None:
        return ""
    verdict = compared(more, 0.0, above="more than", below="less than")
    return (
        f"{percent_interval(wrong)} of the wrong steps left the reference for good, {verdict} the "
        f"{percent_interval(others)} of the tokens beside them (by {points_interval(more)} points)."
    )


def _onsets(summary: ProbeSummary) -> list[tuple[str, float, float]]:
    """Return for each checkpoint the fractions of wrong steps and of others, of those that moved, that did so there."""
    biographies = summary.biographies
    groups = [] if biographies is None else [biographies.tokens.get(key) for key in ("wrong_steps", "others")]
    known = [group for group in groups if group is not None and group.num_tokens]
    if biographies is None or len(known) < 2 or not any(group.num_moved for group in known):
        return []
    shares = [[onset.num_tokens / max(1, group.num_moved) for onset in group.onset_steps] for group in known]
    return list(zip(biographies.checkpoints, *shares, strict=False))


def _signal(summary: ProbeSummary) -> str:
    entry = summary.at_final(summary.training_signal)
    direction = None if entry is None else entry.direction
    if direction is None or direction.agreement is None or direction.above_chance is None:
        return ""
    return (
        f"Of the tokens of training that moved, {percent_interval(direction.agreement)} moved the way their advantage "
        f"pushed, {compared(direction.above_chance, 0.0)} chance ({percent(direction.chance)})."
    )


def _attribution(entry: Attribution) -> str:
    score, excess = entry.recent.score, entry.recent.above_uniform
    if score is None or excess is None:
        return ""
    verdict = compared(excess, 0.0, above="more than", below="less than")
    return (
        f"At {count(entry.num_spots)} spikes the last 5 tokens have {percent_interval(score)} of the attribution of "
        f"{entry.model}, {verdict} if all counted alike ({percent(entry.recent.uniform)})."
    )


def _rows(inputs: ReportInputs) -> Iterator[Rows]:
    summary = inputs.summary
    if summary is None:
        return
    for num, source in enumerate(dict.fromkeys(direction.source for direction in summary.direction or ()), start=1):
        directions = [direction for direction in summary.direction or () if direction.source == source]
        yield from _directions(inputs, directions, suffix=f"-{num}" if num > 1 else "")
    yield from _biographies(inputs, summary)
    yield _correlation_rows(summary)
    yield from _attributions(summary)
    yield from _signals(inputs, summary)


def _directions(inputs: ReportInputs, directions: Sequence[Direction], *, suffix: str) -> Iterator[Rows]:
    """Yield how much of the divergence on a writer's text goes towards right answers, and the moves at wrong steps."""
    yield by_checkpoint(
        inputs,
        directions,
        {
            "Good divergence": (SHARE, "share_good"),
            "Good tokens": (SHARE, "share_good_tokens"),
            "Move, right": (NATS_CHANGE, "mean_move_right"),
            "Move, wrong": (NATS_CHANGE, "mean_move_wrong"),
            "AUC": (AUC, "auc"),
        },
        greys=("Good tokens",),
        id=f"direction{suffix}",
        title=f"Does the divergence on text of {directions[0].source} go towards right answers?",
        note="Fractions of the divergence and of the tokens. Good is a rise of log-probability in a right rollout and "
        "a fall in a wrong one; moves are means per token. The AUC is of a rollout's summed move for a right answer.",
    )
    yield by_checkpoint(
        inputs,
        directions,
        {
            "Wrong tokens": (COUNT, "wrong_steps.num_tokens"),
            "Move": (NATS_CHANGE, "wrong_steps.mean_move"),
            "Others' move": (NATS_CHANGE, "wrong_steps.mean_move_others"),
            "Right on top": (SHARE, "wrong_steps.share_expected"),
            "Reference's": (SHARE, "wrong_steps.share_expected_ref"),
        },
        greys=("Others' move", "Reference's"),
        id=f"wrong-steps{suffix}",
        title="What happens at the steps that are known to be wrong?",
        note="Right on top: how often the most likely token is the one that a right step has there.",
    )


_GROUPS: Mapping[Literal["wrong_steps", "others", "all"], str] = {
    "wrong_steps": "Wrong steps",
    "others": "Other tokens beside them",
    "all": "All tokens",
}


def _biographies(inputs: ReportInputs, summary: ProbeSummary) -> Iterator[Rows]:
    """Yield when tokens left the reference for good, and how."""
    biographies, onsets = summary.biographies, _onsets(summary)
    if biographies is None:
        return
    moved = " and ".join(count(group.num_moved) for key, group in biographies.tokens.items() if key != "all")
    yield Rows(
        id="onset",
        title="When does a token leave the reference?",
        first="Checkpoint",
        columns={"Wrong steps": SHARE, "Other tokens": SHARE},
        rows=tuple(onsets),
        note=f"Of the tokens that moved ({moved}), the fraction whose log-probability left that of the reference by "
        f"more than {number(biographies.threshold, 2)} nats for good at each checkpoint.",
        plots=(along_training(inputs, [label for label, *_ in onsets], greys=("Other tokens",)),),
    )
    yield Rows(
        id="biographies",
        title="How does it leave?",
        first="Tokens",
        columns={
            "Number": COUNT,
            "Moved for good": SHARE,
            "Turned back": SHARE,
            "Linearity": NUMBER,
            "Jumps": SHARE,
        },
        rows=tuple(
            (
                name,
                group.num_tokens,
                group.share_moved,
                group.share_reversed,
                group.median_linearity,
                None if group.jumps is None else group.jumps.share,
            )
            for key, name in _GROUPS.items()
            if (group := biographies.tokens.get(key)) is not None and group.num_tokens
        ),
        note="Turned back, linearity and jumps are of the tokens that moved. A jump is descriptive: two levels explain "
        "the token better than a line does, as they do many walks and curves that level off.",
        plots=(Dots(column="Moved for good"),),
    )


def _correlation_rows(summary: ProbeSummary) -> Rows:
    return rows_of(
        [
            entry
            for entry in summary.correlates or ()
            if entry.checkpoint == summary.final and entry.estimate is not None
        ],
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


def _attributions(summary: ProbeSummary) -> Iterator[Rows]:
    """Yield which earlier tokens decide a spike, and how far back they lie, beside what equal scores would give."""
    entries = summary.attribution or ()
    methods = ", ".join(sorted({entry.method.replace("_", " ") for entry in entries}))
    parts = [
        (f"{entry.model}: {name}", part)
        for entry in entries
        for name, part in (
            ("prompt", entry.prompt),
            ("last 5 tokens", entry.recent),
            ("earlier wrong steps", entry.wrong),
        )
    ]
    yield Rows(
        id="attribution",
        title="Which earlier tokens decide a spike?",
        first="Model and tokens",
        columns={"Score": SHARE, "If all alike": SHARE, "Spikes": COUNT},
        rows=tuple((name, part.score, part.uniform, part.num_spots) for name, part in parts),
        note=f"By {methods}: the fraction of the score on each kind of earlier token; grey if all counted alike.",
        plots=(Dots(column="Score", null="If all alike"),),
    )
    yield rows_of(
        entries,
        {
            "Distance": (TOKENS, "distance.score"),
            "If all alike": (TOKENS, "distance.uniform"),
            "Spikes": (COUNT, "distance.num_spots"),
        },
        name="model",
        id="attribution-distance",
        title="How far back do they lie?",
        first="Model",
        plots=(Dots(column="Distance", null="If all alike"),),
    )


def _signals(inputs: ReportInputs, summary: ProbeSummary) -> Iterator[Rows]:
    """Yield whether tokens moved where, and the way, they were pushed: since the reference, and between neighbours."""

    def of(group: Literal["signal", "no_signal", "not_seen"]) -> Column:
        return unit, lambda signal: signal.divergence[group].mean if group in signal.divergence else None

    unit = divergence_unit(summary.divergence)
    columns: Mapping[str, Column] = {
        "With a signal": of("signal"),
        "Without": of("no_signal"),
        "Not yet seen": of("not_seen"),
        "Spill-over": (NUMBER, "spill_over"),
        "Correlation with |advantage|": (CORRELATION, "advantage_correlation.estimate"),
        "Moved as pushed": (SHARE, "direction.agreement"),
        "Chance": (SHARE, "direction.chance"),
        "Above chance": (POINTS, "direction.above_chance"),
    }
    since = [signal for signal in summary.training_signal if signal.reference == summary.reference]
    steps = [
        signal for signal in summary.training_signal if summary.reference not in (signal.reference, signal.checkpoint)
    ]
    yield by_checkpoint(
        inputs,
        since,
        columns,
        drawn=("With a signal", "Without", "Not yet seen", "Moved as pushed", "Chance"),
        greys=("Not yet seen", "Chance"),
        id="signal",
        title="Does a token move where, and the way, it was pushed?",
        note=f"Mean {divergence_name(summary)} on rollouts of training. A token has a signal if an update used it "
        "with an advantage other than 0; spill-over is the divergence without a signal over that with one.",
    )
    yield by_checkpoint(
        inputs, steps, columns, drawn=(), id="signal-pairs", title="The same since the checkpoint before"
    )


TOPIC = Topic(
    title="What did training do to the tokens?",
    note="towards right answers, when, and as pushed",
    sentences={"Training": of_probe(_sentences)},
    rows=_rows,
    figures={
        "onset": FigureSpec(
            shows="When wrong steps and other tokens left the reference for good.",
            needs=KNOWN_STEPS,
        )
    },
)
