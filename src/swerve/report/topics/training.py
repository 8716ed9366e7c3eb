"""Training: which way, when and where did it move the tokens?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Literal

from swerve.artifacts.probe_causes import Attribution
from swerve.artifacts.probe_dynamics import Direction, TrainingSignal
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
    TOKENS,
    Cell,
    Dots,
    Rows,
    divergence_unit,
)
from swerve.report.topics.topic import KNOWN_STEPS, FigureSpec, Topic, along_training, of_probe


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
        f"{percent_interval(others)} of the tokens beside them (by {points_interval(more)} points)"
        f"{_most_onsets(summary)}."
    )


def _most_onsets(summary: ProbeSummary) -> str:
    onsets = _onsets(summary)
    if not onsets:
        return ""
    (wrong, most, _), (other, _, most_others) = (max(onsets, key=itemgetter(index)) for index in (1, 2))
    return (
        f"; of these wrong steps the largest fraction did so at {wrong} ({percent(most)}), of the others at {other} "
        f"({percent(most_others)})"
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
        suffix = f"-{num}" if num > 1 else ""
        yield _direction(inputs, directions, id=f"direction{suffix}")
        yield _wrong_steps(inputs, directions, id=f"wrong-steps{suffix}")
    yield from _biographies(inputs, summary)
    yield from _correlation_rows(inputs, summary)
    yield from _attributions(summary)
    yield from _signals(inputs, summary)


def _direction(inputs: ReportInputs, directions: Sequence[Direction], *, id: str) -> Rows:
    """Return how much of the divergence on one writer's text goes towards right answers."""
    labels = [direction.checkpoint for direction in directions]
    fractions = "Good divergence", "Good tokens"
    moves = "Move, right", "Move, wrong"
    return Rows(
        id=id,
        title=f"Does the divergence on text of {directions[0].source} go towards right answers?",
        first="Checkpoint",
        columns={**dict.fromkeys(fractions, SHARE), **dict.fromkeys(moves, NATS_CHANGE), "AUC": AUC},
        rows=tuple(
            (
                direction.checkpoint,
                direction.share_good,
                direction.share_good_tokens,
                direction.mean_move_right,
                direction.mean_move_wrong,
                direction.auc,
            )
            for direction in directions
        ),
        note="Fractions of the divergence and of the tokens. Good is a rise of log-probability in a right rollout and "
        "a fall in a wrong one; moves are means per token. The AUC is of a rollout's summed move for a right answer.",
        plots=(
            along_training(inputs, labels, fractions, greys=fractions[1:]),
            along_training(inputs, labels, moves),
        ),
    )


def _wrong_steps(inputs: ReportInputs, directions: Sequence[Direction], *, id: str) -> Rows:
    """Return how the tokens of known wrong steps moved, and what stands there now."""
    known = [(direction.checkpoint, steps) for direction in directions if (steps := direction.wrong_steps) is not None]
    labels = [label for label, _ in known]
    moves = "Move", "Others' move"
    right = "Right on top", "Reference's"
    return Rows(
        id=id,
        title="What happens at the steps that are known to be wrong?",
        first="Checkpoint",
        columns={"Wrong tokens": COUNT, **dict.fromkeys(moves, NATS_CHANGE), **dict.fromkeys(right, SHARE)},
        rows=tuple(
            (
                label,
                steps.num_tokens,
                steps.mean_move,
                steps.mean_move_others,
                steps.share_expected,
                steps.share_expected_ref,
            )
            for label, steps in known
        ),
        note="Right on top: how often the most likely token is the one that a right step has there.",
        plots=(
            along_training(inputs, labels, moves, greys=moves[1:]),
            along_training(inputs, labels, right, greys=right[1:]),
        ),
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
    yield Rows(
        id="onset",
        title="When does a token leave the reference?",
        first="Checkpoint",
        columns={"Wrong steps": SHARE, "Other tokens": SHARE},
        rows=tuple(onsets),
        note="Of the tokens that moved, the fraction whose log-probability left that of the reference by more than "
        f"{number(biographies.threshold, 2)} nats for good at each checkpoint.",
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


def _correlation_rows(inputs: ReportInputs, summary: ProbeSummary) -> Iterator[Rows]:
    """Yield what goes with the divergence at the final checkpoint, and along training."""
    by_name = {
        (f"{entry.level}: {named(CORRELATES, entry.correlate)}, text of {entry.source}", entry.checkpoint): entry
        for entry in summary.correlates or ()
    }
    yield Rows(
        id="correlates",
        title=f"What goes with the divergence at {summary.final}?",
        first="Correlate",
        columns={"Correlation": CORRELATION, "Number": COUNT, "Adjusted p": P_VALUE},
        rows=tuple(
            (name, entry.estimate, entry.num, entry.p_adjusted)
            for (name, checkpoint), entry in by_name.items()
            if checkpoint == summary.final and entry.estimate is not None
        ),
        note=f"Rank correlations of {divergence_name(summary)}; p-values are adjusted over all tests of all "
        "checkpoints (Benjamini and Hochberg). None of them says what causes what.",
        plots=(Dots(column="Correlation", at=0.0),),
    )
    labels = list(dict.fromkeys(checkpoint for _, checkpoint in by_name))
    names = list(dict.fromkeys(name for name, _ in by_name))
    yield Rows(
        id="correlates-all",
        title="The same correlations along training",
        first="Checkpoint",
        columns=dict.fromkeys(names, CORRELATION),
        rows=tuple(
            (label, *(entry.estimate if (entry := by_name.get((name, label))) else None for name in names))
            for label in labels
        ),
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
    yield Rows(
        id="attribution-distance",
        title="How far back do they lie?",
        first="Model",
        columns={"Distance": TOKENS, "If all alike": TOKENS, "Spikes": COUNT},
        rows=tuple(
            (entry.model, entry.distance.score, entry.distance.uniform, entry.distance.num_spots) for entry in entries
        ),
        plots=(Dots(column="Distance", null="If all alike"),),
    )


_SIGNALS: Mapping[Literal["signal", "no_signal", "not_seen"], str] = {
    "signal": "With a signal",
    "no_signal": "Without",
    "not_seen": "Not yet seen",
}


def _signals(inputs: ReportInputs, summary: ProbeSummary) -> Iterator[Rows]:
    """Yield whether tokens moved where, and the way, they were pushed: along training, and of other pairs."""
    along = [signal for signal in summary.training_signal if signal.reference == summary.reference]
    others = [signal for signal in summary.training_signal if signal.reference != summary.reference]
    labels, pushed = [signal.checkpoint for signal in along], ("Moved as pushed", "Chance")
    plots = (
        along_training(inputs, labels, tuple(_SIGNALS.values()), greys=("Not yet seen",)),
        along_training(inputs, labels, pushed, greys=pushed[1:]),
    )
    for id, signals in (("signal", along), ("signal-pairs", others)):
        columns = {
            **dict.fromkeys(_SIGNALS.values(), divergence_unit(summary.divergence)),
            "Spill-over": NUMBER,
            "Correlation with |advantage|": CORRELATION,
            **dict.fromkeys(pushed, SHARE),
            "Above chance": POINTS,
        }
        yield Rows(
            id=id,
            title="Does a token move where, and the way, it was pushed?" if signals is along else "The same of pairs",
            first="Checkpoint" if signals is along else "Pair",
            columns=columns,
            rows=tuple(
                (
                    signal.checkpoint if signals is along else f"{signal.checkpoint} against {signal.reference}",
                    *_signal_cells(signal),
                )
                for signal in signals
            ),
            note=f"Mean {divergence_name(summary)} on rollouts of training. A token has a signal if an update used it "
            "with an advantage other than 0; spill-over is the divergence without a signal over that with one."
            if signals is along
            else "",
            plots=plots if signals is along else (),
        )


def _signal_cells(signal: TrainingSignal) -> Iterator[Cell]:
    for key in _SIGNALS:
        yield signal.divergence[key].mean if key in signal.divergence else None
    yield signal.spill_over
    yield None if signal.advantage_correlation is None else signal.advantage_correlation.estimate
    direction = signal.direction
    yield from (
        (None, None, None) if direction is None else (direction.agreement, direction.chance, direction.above_chance)
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
