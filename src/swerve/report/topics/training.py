"""Training: which way, when and where did it move the tokens?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal

from swerve.artifacts.probe_causes import Attribution
from swerve.artifacts.probe_dynamics import Correlate
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.report.draw.figures import Drawing, Row, legend_beside, paired_bars, set_title
from swerve.report.draw.panels import Bar, BarPlot, Panel, Section, Table, panel, section
from swerve.report.format import (
    compared,
    count,
    number,
    number_interval,
    p_value,
    p_words,
    percent,
    percent_interval,
    points_interval,
    signed_interval,
)
from swerve.report.names import CORRELATES, divergence_name, named
from swerve.report.read import ReportInputs
from swerve.report.topics.topic import KNOWN_STEPS, FigureSpec, Topic, of_probe

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
    bars = _onset_bars(summary)
    if not bars:
        return ""
    wrong, other = max(bars, key=lambda bar: bar.first), max(bars, key=lambda bar: bar.second)
    return (
        f"; of these wrong steps the largest fraction did so at {wrong.name} ({wrong.first:.1f}%), of the others at "
        f"{other.name} ({other.second:.1f}%)"
    )


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


def _section(inputs: ReportInputs) -> Section | None:
    summary = inputs.summary
    if summary is None:
        return None
    panels = [
        _direction_panel(summary),
        _biography_panel(summary),
        _correlate_panel(summary),
        _attribution_panel(summary),
        _signal_panel(summary),
    ]
    return section("training", "What did training do to the tokens?", panels, short="Training")


def _direction_panel(summary: ProbeSummary) -> Panel | None:
    rows, steps = [], []
    for direction in summary.direction or ():
        name = f"{direction.checkpoint} on text of {direction.source}"
        rows.append(
            (
                name,
                percent_interval(direction.share_good),
                percent_interval(direction.share_good_tokens),
                signed_interval(direction.mean_move_right),
                signed_interval(direction.mean_move_wrong),
                number_interval(direction.auc),
            )
        )
        if direction.wrong_steps is not None:
            steps.append(
                (
                    name,
                    count(direction.wrong_steps.num_tokens),
                    signed_interval(direction.wrong_steps.mean_move),
                    signed_interval(direction.wrong_steps.mean_move_others),
                    percent_interval(direction.wrong_steps.share_expected_ref),
                    percent_interval(direction.wrong_steps.share_expected),
                )
            )
    top = "Top token right"
    return panel(
        "Does the divergence go towards right answers?",
        Table(
            id="direction",
            caption="Good and bad divergence",
            note="Good is a rise of log-probability in a right rollout and a fall in a wrong one. Moves are nats per "
            "token; the AUC is of a rollout's summed move for a right answer.",
            header=("Checkpoint", "Good, of divergence", "Good, of tokens", "Move, right", "Move, wrong", "AUC"),
            rows=tuple(rows),
        ),
        Table(
            id="wrong-steps",
            caption="Moves on known wrong steps",
            note=f"{top}: how often the most likely token is the one a right step has there.",
            header=(
                "Checkpoint", "Wrong tokens", "Move", "Move of the others", f"{top}, {summary.reference}",
                f"{top}, checkpoint",
            ),
            rows=tuple(steps),
            folded=True,
        ),
        wide=True,
    )  # fmt: skip


def _onset_bars(summary: ProbeSummary) -> tuple[Bar, ...]:
    """Return, by step of onset, the fraction of wrong steps and of other tokens that left the reference there."""
    biographies = summary.biographies
    if biographies is None or not {"wrong_steps", "others"} <= biographies.tokens.keys():
        return ()
    groups = biographies.tokens["wrong_steps"], biographies.tokens["others"]
    if not all(group.num_tokens for group in groups) or not any(group.num_moved for group in groups):
        return ()
    onsets = ([onset.num_tokens / max(1, group.num_moved) for onset in group.onset_steps] for group in groups)
    return tuple(
        Bar(
            name=label,
            first=round(100 * wrong, 2),
            second=round(100 * other, 2),
            label=f"{percent(wrong)} of wrong steps, {percent(other)} of other tokens",
        )
        for label, wrong, other in zip(biographies.checkpoints, *onsets, strict=False)
    )


_GROUPS: Mapping[Literal["wrong_steps", "others", "all"], str] = {
    "wrong_steps": "wrong steps",
    "others": "other tokens beside them",
    "all": "all tokens",
}


def _biography_panel(summary: ProbeSummary) -> Panel | None:
    biographies = summary.biographies
    if biographies is None:
        return None

    # Wrong steps beside the other tokens.
    groups = [(name, biographies.tokens[key]) for key, name in _GROUPS.items() if key in biographies.tokens]
    rows = tuple(
        (
            name,
            count(group.num_tokens),
            percent_interval(group.share_moved),
            percent_interval(group.share_reversed),
            number(group.median_linearity),
            percent_interval(None if group.jumps is None else group.jumps.share),
        )
        for name, group in groups
        if group.num_tokens
    )
    return panel(
        "When does a token leave the reference?",
        BarPlot(rows=_onset_bars(summary), key=("wrong steps", "other tokens")),
        Table(
            id="biographies",
            caption="Biographies of tokens",
            note="Turned back, linearity and jumps are of the tokens that moved. A jump is descriptive: two levels "
            "explain the token better than a line does, as they do many walks and curves that level off.",
            header=("Tokens", "Number", "Moved for good", "Turned back", "Linearity", "Jumps"),
            rows=rows,
        ),
        note=f"Of the tokens that moved, the fraction whose log-probability left that of the reference by more than "
        f"{number(biographies.threshold, 2)} nats for good at each checkpoint.",
        wide=True,
    )


def _correlate_panel(summary: ProbeSummary) -> Panel | None:
    entries = summary.correlates or ()
    final = [entry for entry in entries if entry.checkpoint == summary.final]
    others = [entry for entry in entries if entry.checkpoint != summary.final]
    return panel(
        "What goes with the divergence of a rollout?",
        _correlate_table(final, id="correlates", caption=f"Correlates at {summary.final}", folded=False),
        _correlate_table(others, id="correlates-all", caption="Correlates at other checkpoints", folded=True),
        note=f"Rank correlations of {divergence_name(summary)}; p-values are adjusted over all tests of the table and "
        "the one below (Benjamini and Hochberg). None of them says what causes what.",
        wide=True,
    )


def _correlate_table(entries: Sequence[Correlate], *, id: str, caption: str, folded: bool) -> Table:
    rows = tuple(
        (
            f"{entry.level}: {named(CORRELATES, entry.correlate)}",
            *((entry.checkpoint,) if folded else ()),
            entry.source,
            count(entry.num),
            signed_interval(entry.estimate),
            p_value(entry.p_adjusted),
        )
        for entry in entries
    )
    header = ("Correlate", *(("Checkpoint",) if folded else ()), "Text of", "Number", "Correlation", "Adjusted p")
    return Table(id=id, caption=caption, header=header, rows=rows, folded=folded)


def _attribution_panel(summary: ProbeSummary) -> Panel | None:
    rows = []
    for attribution in summary.attribution or ():
        # Each kind of earlier token beside its share if all counted alike, and the mean distance.
        shares = {
            "prompt": attribution.prompt,
            "last 5 tokens": attribution.recent,
            "earlier wrong steps": attribution.wrong,
        }
        for name, part in shares.items():
            cells = count(part.num_spots), percent_interval(part.score), percent(part.uniform)
            rows.append((f"{attribution.model}: {name}", *cells))
        away = attribution.distance
        cells = count(away.num_spots), number_interval(away.score), number(away.uniform)
        rows.append((f"{attribution.model}: mean distance (tokens)", *cells))
    methods = sorted({attribution.method.replace("_", " ") for attribution in summary.attribution or ()})
    return panel(
        "Which earlier tokens decide a spike?",
        Table(
            id="attribution",
            caption=f"Attribution by {', '.join(methods)}",
            note="Fraction of the score on each kind of earlier token, beside the fraction if all earlier tokens "
            "counted alike.",
            header=("Model and tokens", "Spikes", "Score", "If all alike"),
            rows=tuple(rows),
        ),
    )


_SIGNALS: tuple[Literal["signal", "no_signal", "not_seen"], ...] = ("signal", "no_signal", "not_seen")


def _signal_panel(summary: ProbeSummary) -> Panel | None:
    rows = []
    for signal in summary.training_signal:
        groups = [signal.divergence.get(key) for key in _SIGNALS]
        direction = signal.direction
        rows.append(
            (
                f"{signal.checkpoint} against {signal.reference}",
                *(number_interval(None if group is None else group.mean) for group in groups),
                number_interval(signal.spill_over),
                signed_interval(signal.advantage_correlation),
                percent_interval(None if direction is None else direction.agreement),
                percent(None if direction is None else direction.chance),
                signed_interval(None if direction is None else direction.above_chance),
            )
        )
    return panel(
        "Does a token move where, and the way, it was pushed?",
        Table(
            id="signal",
            caption=f"Mean {divergence_name(summary)} by training signal",
            note="Nats per token, on rollouts of training. A token has a signal if an update used it with an advantage "
            "other than 0; spill-over is the divergence without a signal over that with one.",
            header=(
                "Pair", "With a signal", "Without", "Not yet seen", "Spill-over", "Correlation with |advantage|",
                "Moved as pushed", "Chance", "Above chance",
            ),
            rows=tuple(rows),
        ),
        wide=True,
    )  # fmt: skip


def _drawings(summary: ProbeSummary) -> Iterator[Drawing]:
    if bars := _onset_bars(summary):
        rows: list[Row] = [
            {"checkpoint": bar.name, "wrong_steps_percent": bar.first, "others_percent": bar.second} for bar in bars
        ]
        yield Drawing(name="onset", draw=partial(_draw_onset, bars=bars), rows=tuple(rows))


def _draw_onset(axes: Axes, *, bars: tuple[Bar, ...]) -> None:
    paired_bars(axes, bars, names=("wrong steps", "other tokens"))
    axes.set_ylabel("fraction of those that moved (%)")
    set_title(axes, "When tokens left the reference for good")
    legend_beside(axes)


TOPIC = Topic(
    sentences={"Training": of_probe(_sentences)},
    section=_section,
    figures={
        "onset": FigureSpec(
            shows="When wrong steps and other tokens left the reference for good.",
            draw=of_probe(_drawings),
            needs=KNOWN_STEPS,
        )
    },
)
