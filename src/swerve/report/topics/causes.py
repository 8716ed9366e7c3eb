"""Causes: does the token at a spike cause the correction, and does a score predict the effect of a token?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from swerve.artifacts.probe_causes import Prediction, SwapPolicy, SwapPositions, SwapSelection
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.report.evidence import Figure, Sentence, digits_of
from swerve.report.format import SAME, compared
from swerve.report.names import SELECTIONS, SELECTORS, continuing_model, named, selector_word
from swerve.report.read import ReportInputs
from swerve.report.rows import CORRELATION, COUNT, P_VALUE, POINTS, SHARE, Cell, Dots, Rows
from swerve.report.run_evidence import swap_evidence
from swerve.report.topics.topic import FigureSpec, Topic, of_probe, rows_of, with_rows
from swerve.text import count, listed, points_interval, signed_interval

_CONTROLS: tuple[SwapPositions, ...] = ("matched", "random")


def _sentences(inputs: ReportInputs, summary: ProbeSummary) -> Iterator[str]:
    spike, token = summary.spike_swaps, f"token of {summary.final}"
    known = (
        {} if spike is None else {"other token": (spike.headline, " where it differs"), "own token": (spike.effect, "")}
    )
    evidence = {
        name: swap_evidence(
            inputs,
            Figure(
                name=f"{token} less the {name}",
                statistic="paired difference of means",
                columns=(f"{name}{where}", f"{token}{where}"),
                write=digits_of(points_interval, effect),
            ),
        )
        for name, (effect, where) in known.items()
        if effect is not None
    }
    yield Sentence(headline(summary), evidence.get("other token"))
    yield Sentence(_effect(summary), evidence.get("own token"))
    yield from (_prediction(entry, rate=1 - summary.confidence) for entry in summary.prediction)


def headline(summary: ProbeSummary) -> str:
    """Say what the checkpoint's token does that another at the same place does not."""
    spike, final = summary.spike_swaps, summary.final
    if spike is None or spike.headline is None:
        return f"Whether the token of {final} at the spike does more than another token there was not measured."
    verdict = compared(spike.headline, 0.0, above="more", below="less")
    said = "the two are not distinguishable" if verdict == SAME else f"the token of {final} does {verdict} than another"
    return (
        f"At the {count(spike.num_different)} top spikes where {final} chooses another token than the rollout's own, "
        f"{summary.reference} ends right {points_interval(spike.headline)} points more often after the token of "
        f"{final} than after a third token, which neither model would choose: {said}."
    )


def _effect(summary: ProbeSummary) -> str:
    """Say what replacing the rollout's own token does, beside the control positions and the third token."""
    spike = summary.spike_swaps
    if summary.causal is None or spike is None or spike.effect is None:
        return ""
    other = spike.alternative_effect
    parts = [
        f"In place of the rollout's own token at the top spike, the token of {summary.final} changes how often "
        f"{summary.reference} ends right by {points_interval(spike.effect)} points"
        f"{'' if other is None else f', the third token by {points_interval(other)}'}"
    ]

    # The same swap at control positions, and by how much less it does there, paired over problems.
    policies = summary.causal.by_policy[:1]
    below = {entry.control: entry.difference for policy in policies for entry in policy.differences}
    for name in _CONTROLS:
        control, difference = summary.causal.selection(name), below.get(name)
        if control is None:
            parts.append(f"{name} positions were not measured")
            continue
        if control.effect is None:
            parts.append(f"at {name} positions both models choose the same token, so nothing is swapped")
            continue
        same, said = control.num_positions - control.num_different, f"at {name} positions by "
        said += points_interval(control.effect)
        said += f" (the same token at {count(same)} of {count(control.num_positions)})" if same else ""
        if difference is not None:
            said += f", which is {points_interval(difference)} below the spike"
            said += "" if difference.excludes(0) else ", so the spike is not distinguishable from them"
        parts.append(said)
    return f"{'; '.join(parts)}."


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
            f"{prefix}difference", selection.headline, selection.headline, None, None, selection.num_different, None,
            None,
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
