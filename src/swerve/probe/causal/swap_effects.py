"""Effects of swapped tokens: at each position, by kind of position, and how well divergence predicts them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from swerve.artifacts.probe_causes import (
    ArmSuccess,
    ControlMatch,
    Decision,
    Prediction,
    PredictionSelector,
    SwapDifference,
    SwapEffects,
    SwapPolicy,
    SwapPositions,
    Swaps,
    SwapSelection,
)
from swerve.config.probe import CausalConfig
from swerve.estimates import Estimate, WilcoxonResult
from swerve.probe.causal.interventions import Arm, Intervention
from swerve.probe.causal.swaps import decide, look_sizes
from swerve.probe.intervals import Intervals, mean_if_any
from swerve.statistics.association import spearman
from swerve.statistics.hypothesis_tests import benjamini_hochberg, paired_wilcoxon

_SELECTIONS: tuple[SwapPositions, ...] = get_args(SwapPositions)


_DIFFERENCES: Mapping[str, tuple[Arm, Arm]] = {
    "effect": ("checkpoint", "reference"),
    "alternative_effect": ("alternative", "reference"),
    "checkpoint_minus_alternative": ("checkpoint", "alternative"),
}
"""The differences of success at a position: an arm, and the arm it is set against."""


def summarise_swaps(
    interventions: Sequence[Intervention], *, settings: CausalConfig, intervals: Intervals
) -> Swaps | None:
    """Return what the swaps did to success; None without interventions.

    `policies` has for each policy and selection the success of each arm and the effects (differences of success):
    `effect` of the checkpoint's token against the rollout's own, `alternative_effect` of another token against it, and
    `checkpoint_minus_alternative`: whether it is *this* token or any other. The same three under `different_tokens`
    leave out the positions where the checkpoint chooses the rollout's own token, whose effect is 0 by definition.
    `differences` are the effects at spikes minus those at their controls. Every `test` is a paired Wilcoxon test at
    problem level; `p_adjusted` is Benjamini and Hochberg's over all of them. `selections` and `difference` (spike minus
    random) repeat what the reference's continuations say.

    Where the checkpoint chooses the rollout's own token nothing is swapped and the effect is exactly 0. `effect`, its
    `test` and the differences that rest on it are None where that is so at every position of a kind: an effect was not
    measured there.

    With several looks, sampling stops at a position where its data are clear; the means here are of the first look's
    continuations, whose number is fixed, since those of all would be too large. `decisions` uses all: it counts the
    positions with an effect of exactly 0, inside of +-delta, outside of it, or neither.
    """
    if not interventions:
        return None
    summariser = _Summariser(settings=settings, intervals=intervals)
    policies = []
    for name in dict.fromkeys(item.policy for item in interventions):
        policies.append(summariser.policy([item for item in interventions if item.policy == name]))
    adjusted = _adjusted(policies)
    # What the reference's continuations say is repeated at the top.
    main = next((policy for policy in adjusted if policy.policy == "reference"), None)
    differences = main.differences if main else ()
    return Swaps(
        num_rollouts=_num_rollouts([item for item in interventions if item.selection == "spike"]),
        num_continuations=settings.num_continuations,
        looks=tuple(look_sizes(settings)),
        delta=settings.delta,
        selections=main.selections if main else (),
        difference=next((entry.difference for entry in differences if entry.control == "random"), None),
        policies=adjusted,
    )


def _num_rollouts(items: Sequence[Intervention]) -> int:
    return len({item.spike.sequence_id for item in items})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Summariser:
    """Effects by kind of position, with intervals at one level; values are of interventions with their outcomes."""

    settings: CausalConfig
    intervals: Intervals

    def policy(self, items: Sequence[Intervention]) -> SwapPolicy:
        """Summarise the effects under one policy."""
        selected = {name: [item for item in items if item.selection == name] for name in _SELECTIONS}
        present = {name: part for name, part in selected.items() if part}
        return SwapPolicy(
            policy=items[0].policy,
            selections=tuple(self.selection(name, part) for name, part in present.items()),
            differences=tuple(
                self.difference(name, selected["spike"], part) for name, part in present.items() if name != "spike"
            ),
        )

    def selection(self, name: SwapPositions, items: Sequence[Intervention]) -> SwapSelection:
        """Summarise the effects at one kind of position."""
        different = [item for item in items if not item.same_token]
        test = _tested([(item.value("reference"), item.value("checkpoint"), item) for item in items])
        return SwapSelection(
            selection=name,
            num_rollouts=_num_rollouts(items),
            num_positions=len(items),
            reference=_success("reference", items),
            checkpoint=_success("checkpoint", items),
            alternative=_success("alternative", items),
            **dict(self.effects(items)),
            share_same_token=(len(items) - len(different)) / len(items),
            different_tokens=self.effects(different),
            mean_continuations=sum(item.outcomes["reference"].num_continuations for item in items) / len(items),
            decisions=self.decisions(items),
            match=_match(items),
            test=test if different else None,
        )

    def effects(self, items: Sequence[Intervention]) -> SwapEffects:
        """Return the three differences between arms; most positions may have no effect and a few have all of it."""
        num_different = sum(not item.same_token for item in items)
        effects: dict[str, Estimate | None] = {}
        for name, (arm, other) in _DIFFERENCES.items():
            measured = [item for item in items if {arm, other} <= item.outcomes.keys()]
            if name == "effect" and not num_different:
                measured = []
            values = [item.value(arm) - item.value(other) for item in measured]
            effects[name] = self.intervals.mean(values, _problems(measured), bounds=(-1.0, 1.0))
        return SwapEffects(num_different=num_different, **effects)

    def decisions(self, items: Sequence[Intervention]) -> dict[Decision, int]:
        """Return how many positions have an effect of exactly 0, one inside of +-delta, one outside, or neither."""
        confidence = self.intervals.confidence
        counts = Counter(decide(item, settings=self.settings, confidence=confidence) for item in items)
        return {name: counts[name] for name in get_args(Decision)}

    def difference(
        self, name: SwapPositions, spikes: Sequence[Intervention], controls: Sequence[Intervention]
    ) -> SwapDifference:
        """Return the effect at spikes minus that at their controls of one kind."""
        effects: dict[int, list[float]] = {}
        for item in controls:
            effects.setdefault(item.spike.sequence_id, []).append(item.effect)
        measured = not all(item.same_token for item in spikes) and not all(item.same_token for item in controls)
        pairs = []
        for item in spikes if measured else ():
            of_controls = effects.get(item.spike.sequence_id)
            if of_controls:
                pairs.append((sum(of_controls) / len(of_controls), item.effect, item))
        return SwapDifference(
            control=name,
            num_pairs=len(pairs),
            difference=self.intervals.mean(
                [after - before for before, after, _ in pairs],
                _problems([item for *_, item in pairs]),
                bounds=(-2.0, 2.0),
            ),
            test=_tested(pairs),
        )


def _problems(items: Sequence[Intervention]) -> list[str]:
    return [item.spike.problem.id for item in items]


def _success(arm: Arm, items: Sequence[Intervention]) -> ArmSuccess:
    """Return an arm's fraction of right continuations; of the alternative also at how many positions there is one."""
    values = [item.value(arm) for item in items if arm in item.outcomes]
    return ArmSuccess(success=mean_if_any(values), num_rollouts=len(values) if arm == "alternative" else None)


def _match(items: Sequence[Intervention]) -> ControlMatch | None:
    """Return the fractions of matched controls that meet each criterion."""
    controls = [item.control for item in items if item.control is not None]
    if not controls:
        return None
    return ControlMatch(
        num_same_token=sum(item.same_token for item in items),
        same_rollout=mean_if_any([control.same_rollout for control in controls]),
        same_category=mean_if_any([control.same_category for control in controls]),
        same_third=mean_if_any([control.same_third for control in controls]),
        entropy_gap=mean_if_any([control.entropy_gap for control in controls]),
    )


def _tested(pairs: Sequence[tuple[float, float, Intervention]]) -> WilcoxonResult | None:
    """Return the test of pairs (before, after) of values at positions."""
    before, after = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return paired_wilcoxon(before, after, clusters=_problems([item for *_, item in pairs]))


def _adjusted(policies: Sequence[SwapPolicy]) -> tuple[SwapPolicy, ...]:
    """Add the adjusted p-values over the family of all tests."""
    entries: list[SwapSelection | SwapDifference] = []
    for policy in policies:
        entries += [*policy.selections, *policy.differences]
    p_values = benjamini_hochberg([entry.test.p_value if entry.test else None for entry in entries])
    completed: Iterator[Any] = iter(
        [
            entry.model_copy(update={"test": entry.test and replace(entry.test, p_adjusted=p_value)})
            for entry, p_value in zip(entries, p_values, strict=True)
        ]
    )
    return tuple(
        policy.model_copy(
            update={
                "selections": tuple(next(completed) for _ in policy.selections),
                "differences": tuple(next(completed) for _ in policy.differences),
            }
        )
        for policy in policies
    )


def summarise_prediction(
    interventions: Sequence[Intervention],
    scores: Mapping[str, Sequence[float] | NDArray[np.floating[Any]]],
    *,
    intervals: Intervals,
) -> tuple[Prediction, ...]:
    """Return, for each policy, how well each selector's score ranks positions by the size of their effect.

        product = (effect in the even continuations) * (effect in the odd ones),   E[product] = effect^2

    A sampled effect is never exactly 0: |effect| grows with the noise p (1 - p) / n of its two fractions, and so
    with every score of how undecided a model is. Ranked by |effect|, entropy has a mean AUC of .79 where no token
    has an effect. The two halves are independent, so their product is above 0 as often as below without an effect,
    whatever the noise. `spearman` is the rank correlation of the score with the product, `mean_square_effect` the
    mean product, both over problems; `p_adjusted` is Benjamini and Hochberg's over the selectors. None where there
    is nothing to rank. Without effects the correlation is significant at 5% in at most 6% of draws
    (`benchmarks.coverage`); a score that knows real effects (0 to .5) has a correlation of .5 and is found in all.

    A position counts once for each policy however often it was selected; several looks leave only the first, whose
    number of continuations is fixed. Positions where the checkpoint chooses the rollout's own token are left out: the
    effect is 0 there by definition, and most scores say whether the tokens are the same, so that they would predict it.
    Noise in the products draws every correlation towards 0, so that values of different numbers of continuations cannot
    be compared.

    Args:
        interventions: with their outcomes; those without halves are left out.
        scores: by selector, one value per position, in the order of the interventions.
        intervals: how intervals are made.

    Raises:
        ValueError: a selector has not as many scores as there are interventions.
    """
    for name, values in scores.items():
        if len(values) != len(interventions):
            wanted = f"a score for each of {len(interventions)} positions"
            raise ValueError(f"selector {name!r} needs {wanted}, got {len(values)}")
    products = [item.squared_effect for item in interventions]
    entries: list[Prediction] = []
    for policy in dict.fromkeys(item.policy for item in interventions):
        # However often a position was selected it counts once for the policy.
        first: dict[tuple[int, int], int] = {}
        for index, item in enumerate(interventions):
            if item.policy == policy and products[index] is not None and not item.same_token:
                first.setdefault((item.sequence.sequence_id, item.position), index)
        rows = list(first.values())
        sizes = np.array([products[index] for index in rows], dtype=np.float64)
        problems = _problems([interventions[index] for index in rows])
        correlations = []
        for values in scores.values():
            # A rank correlation needs numbers: the largest finite one stands for what is infinite.
            finite = np.nan_to_num(np.asarray(values, dtype=np.float64)[rows])
            correlations.append(spearman(finite, sizes, clusters=problems, confidence=intervals.confidence))
        adjusted = benjamini_hochberg([entry.p_value if entry else None for entry in correlations])
        entries.append(
            Prediction(
                policy=policy,
                num_positions=len(rows),
                mean_square_effect=intervals.mean(sizes, problems, bounds=(-1.0, 1.0)),
                selectors=tuple(
                    PredictionSelector(selector=name, spearman=correlation, p_adjusted=p_value)
                    for name, correlation, p_value in zip(scores, correlations, adjusted, strict=True)
                ),
            )
        )
    return tuple(entries)
