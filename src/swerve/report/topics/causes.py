"""Causes: does the token at a spike cause the correction, and does a score predict the effect of a token?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from swerve.artifacts.probe_causes import Prediction, SwapPolicy, SwapPositions, SwapSelection
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.estimates import Estimate
from swerve.report.cause_evidence import prediction_evidence, swap_evidence
from swerve.report.evidence import Figure, Sentence, digits_of, with_interval
from swerve.report.format import is_few, too_few, would_show
from swerve.report.names import SELECTIONS, SELECTORS, continuing_model, named, selector_word
from swerve.report.read import ReportInputs
from swerve.report.rows import CORRELATION, COUNT, P_VALUE, POINTS, SHARE, Cell, Dots, Rows
from swerve.report.summary_evidence import held_evidence
from swerve.report.topics.topic import FigureSpec, Topic, of_probe, rows_of, with_rows
from swerve.text import count, listed, points_interval, signed_interval

_CONTROLS: tuple[SwapPositions, ...] = ("matched", "random")


def _sentences(inputs: ReportInputs, summary: ProbeSummary) -> Iterator[str]:
    yield _headline(inputs, summary)
    yield from _effects(inputs, summary)
    for entry in summary.prediction:
        if said := _prediction(entry, rate=1 - summary.confidence):
            positions = Figure(name="positions", statistic="rows")
            yield Sentence(said, prediction_evidence(inputs, entry, positions))


def _headline(inputs: ReportInputs, summary: ProbeSummary) -> Sentence:
    """Say what the checkpoint's token does that another at the same place does not."""
    spike, final = summary.spike_swaps, summary.final
    if spike is None or (more := spike.headline) is None:
        said = f"Whether the token of {final} at the spike does more than another token there was not measured."
        return Sentence(said, held_evidence(inputs))
    said = f"The token of {final} does {'more' if more.mean > 0 else 'less'} than another"
    if is_few(spike.num_different, more):
        said = too_few(spike.num_different, "spike", f"say whether the token of {final} does more than another")
    elif not more.excludes(0):
        said = f"Whether the token of {final} does more than another is not to be seen"
    where = " where it differs"
    change = Figure(
        name="more often right", statistic="mean of differences", columns=(f"other token{where}", _token(final, where))
    )
    return Sentence(
        f"{said}: at the {count(spike.num_different)} top spikes where it is not the rollout's own, "
        f"{summary.reference} ends right {points_interval(more)} points more often after it than after a third token, "
        f"which neither model would choose{'' if more.excludes(0) else would_show(more)}.",
        swap_evidence(inputs, *with_interval(change, points_interval, more, summary.confidence)),
    )


def _token(final: str, where: str = "") -> str:
    """Return the column of the final checkpoint's token."""
    return f"token of {final}{where}"


def _effects(inputs: ReportInputs, summary: ProbeSummary) -> Iterator[Sentence]:
    """Yield what replacing the rollout's own token does, and beside it the same at control positions."""
    spike, final = summary.spike_swaps, summary.final
    if summary.causal is None or spike is None or spike.effect is None:
        return
    other, level = spike.alternative_effect, summary.confidence
    own = Figure(name="effect", statistic="mean of differences", columns=("own token", _token(final)))
    numbers = with_interval(own, points_interval, spike.effect, level)
    if other is not None:
        third = replace(own, name="of a third token", columns=("own token", "other token"))
        numbers += with_interval(third, points_interval, other, level)
    yield Sentence(
        f"In place of the rollout's own token at the top spike, the token of {final} changes how often "
        f"{summary.reference} ends right by {points_interval(spike.effect)} points"
        f"{'' if other is None else f', the third token by {points_interval(other)}'}.",
        swap_evidence(inputs, *numbers),
    )

    # The same swap at control positions, and by how much less it does there, paired over problems.
    policies = summary.causal.by_policy[:1]
    below = {entry.control: entry.difference for policy in policies for entry in policy.differences}
    for name in _CONTROLS:
        yield _at_control(inputs, summary, name, below.get(name))


def _at_control(
    inputs: ReportInputs, summary: ProbeSummary, name: SwapPositions, difference: Estimate | None
) -> Sentence:
    """Say what the same swap does at one kind of control position, and whether that is less than at the spike."""
    assert summary.causal is not None
    control = summary.causal.selection(name)
    if control is None:
        return Sentence(f"At {name} positions no token was forced.", held_evidence(inputs))
    if control.effect is None:
        said = f"At {name} positions both models choose the same token, so nothing is swapped."
        return Sentence(said, swap_evidence(inputs))
    at = f"effect at its {name} position"
    figures = [Figure(name=at, statistic="mean", columns=(at,), write=digits_of(points_interval, control.effect))]
    same, said = control.num_positions - control.num_different, points_interval(control.effect)
    if same:
        said += f" (the same token at {count(same)} of {count(control.num_positions)})"
        column = (f"same token at its {name} position",)
        figures.append(Figure(name="the same token", statistic="sum", columns=column))
        figures.append(Figure(name="positions", statistic="number", columns=column))
    end = ""
    if difference is not None:
        is_less = "less" if difference.mean > 0 else "more"
        end = f", {points_interval(difference)} {is_less} than at the spike"
        if not difference.excludes(0):
            end = f"; no difference from the spike is to be seen, {points_interval(difference)}"
        write = digits_of(points_interval, difference)
        figures.append(
            Figure(name="below the spike", statistic="mean of differences", columns=(at, "effect"), write=write)
        )
    return Sentence(f"At {name} positions the same swap changes it by {said}{end}.", swap_evidence(inputs, *figures))


_LEAST_POSITIONS = 15
"""With fewer, a rank correlation that is not shown says nothing."""


def _prediction(entry: Prediction, *, rate: float) -> str:
    """Say which scores go with the size of the effect, by p-values adjusted for their number."""
    measured = [score for score in entry.selectors if score.spearman is not None and score.p_adjusted is not None]
    if not measured or entry.num_positions < _LEAST_POSITIONS:
        return ""
    where = f"At the {count(entry.num_positions)} swapped positions where the two models' tokens differ"
    where += ", continued by the checkpoint" if entry.policy == "checkpoint" else ""

    # Scores whose interval is above or below zero; the best of several has no interval of its own.
    sides: dict[str, list[str]] = {"larger": [], "smaller": []}
    for score in measured:
        rho, p = score.spearman, score.p_adjusted
        if rho is not None and rho.excludes(0) and p is not None and p <= rate:
            sides["larger" if rho.mean > 0 else "smaller"].append(selector_word(score.selector))
    said = [f"{listed(names)} with {side} effects" for side, names in sides.items() if names]
    if not said:
        return f"{where}, none of {count(len(measured))} scores is shown to go with the size of the effect."
    return f"{where}, these of {count(len(measured))} scores go (p adjusted for their number): {'; '.join(said)}."


def _arms(selection: SwapSelection, final: str, prefix: str = "") -> list[tuple[Cell, ...]]:
    """Return what the final token, another one and their difference do at one kind of position, a row each."""
    before, different, test = selection.reference.success, selection.different_tokens, selection.test
    tests = (None, None) if test is None else (test.sign_flip_p, test.p_adjusted)
    # Where both models choose the same token there is no difference: it is of fewer positions than the other rows.
    fewer = selection.num_different < selection.num_positions
    of = f" at {count(selection.num_different)} of {count(selection.num_positions)}" if fewer else ""
    return [
        (
            f"{prefix}token of {final}", selection.effect, different.effect, before, selection.checkpoint.success,
            selection.num_positions, *tests,
        ),
        (
            f"{prefix}token of neither", selection.alternative_effect, different.alternative_effect, before,
            selection.alternative.success, selection.alternative.num_rollouts, None, None,
        ),
        (
            f"{prefix}difference{of}", selection.headline, selection.headline, None, None, selection.num_different,
            None, None,
        ),
    ]  # fmt: skip


def spike_effect_rows(summary: ProbeSummary) -> Rows:
    """Return what tokens forced at the top spike do: the final checkpoint's, another one, and their difference."""
    spike = summary.spike_swaps
    rows = [] if spike is None else _arms(spike, summary.final)
    return _effect_rows(rows, summary, id="causal_spike", model=summary.reference)


def _policy_rows(policy: SwapPolicy, summary: ProbeSummary) -> Rows:
    """Return all effects of the continuations by one model."""
    rows = [
        row
        for selection in policy.selections
        for row in _arms(selection, summary.final, f"{SELECTIONS[selection.selection]}, ")
    ]
    for entry in policy.differences:
        tests = (None, None) if entry.test is None else (entry.test.sign_flip_p, entry.test.p_adjusted)
        name = f"Top spike minus {SELECTIONS[entry.control].lower()}"
        rows.append((name, entry.difference, None, None, None, entry.num_pairs, *tests))
    id = "causal" if policy.policy == "reference" else f"causal_{policy.policy}"
    return _effect_rows(rows, summary, id=id, model=continuing_model(policy.policy, summary))


def _effect_rows(rows: Sequence[tuple[Cell, ...]], summary: ProbeSummary, *, id: str, model: str) -> Rows:
    nulls = *(SELECTIONS[name] for name in _CONTROLS), "token of neither"
    # Controls, and the token that neither model chose, are the nulls.
    greys = tuple(str(name) for name, *_ in rows if any(null in str(name) for null in nulls))
    num = 0 if summary.causal is None else summary.causal.num_continuations
    return Rows(
        id=id,
        title=f"Effect of a forced token on the success of {model}",
        first="Token",
        columns={
            "Effect": POINTS,
            "Where the tokens differ": POINTS,
            "Success before": SHARE,
            "Success after": SHARE,
            "Positions": COUNT,
            "p of the mean": P_VALUE,
            "Adjusted p of the ranks": P_VALUE,
        },
        rows=tuple(row for row in rows if row[1] is not None),
        note=f"Change of the share of right continuations, in percentage points, against the rollout's own token; "
        f"{count(num)} continuations by {model} after each token. The tokens differ where {summary.final} chooses "
        "another than the rollout's own, and the difference is measured there. p of the mean: sign flips; of the "
        "ranks: Wilcoxon, adjusted for the number of tests; both over problems.",
        plots=(Dots(column="Effect", at=0, greys=greys),),
    )


def _prediction_rows(entry: Prediction, summary: ProbeSummary) -> Rows:
    """Return how well each score ranks positions by the size of the effect there."""
    return rows_of(
        entry.selectors,
        {
            "Rank correlation": (CORRELATION, "spearman"),
            "p": (P_VALUE, "spearman.p_value"),
            "Adjusted p": (P_VALUE, "p_adjusted"),
        },
        name=lambda score: named(SELECTORS, score.selector),
        id="prediction" if entry.policy == "reference" else f"prediction_{entry.policy}",
        title=f"Does the score predict the effect, where {continuing_model(entry.policy, summary)} continues?",
        first="Score",
        note=f"With the size of the effect at {count(entry.num_positions)} positions where the two models' tokens "
        "differ: the product of the effects in two halves of the continuations, 0 by noise alone. Its mean is "
        f"{signed_interval(entry.mean_square_effect)}.",
        plots=(Dots(column="Rank correlation", at=0, greys=(SELECTORS["random"],)),),
    )


def _rows(summary: ProbeSummary) -> Iterator[Rows]:
    if summary.causal is not None:
        yield from (_policy_rows(policy, summary) for policy in summary.causal.by_policy)
    yield from (_prediction_rows(entry, summary) for entry in summary.prediction)


TOPIC = Topic(
    title="Does the token cause the correction?",
    note="forced tokens beside controls, and scores that predict their effect",
    sentences={"Cause": with_rows(_sentences)},
    rows=of_probe(_rows),
    figures={
        "causal": FigureSpec(
            shows="Effect on success of tokens forced at spikes and at controls, in percentage points.",
            needs="swerve probe RUN, of answers with a grader",
        )
    },
)
