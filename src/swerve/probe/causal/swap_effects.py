"""Effects of swapped tokens: at each position, by kind of position, and how well divergence predicts them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, get_args

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
from swerve.config import CausalConfig
from swerve.estimates import Estimate, WilcoxonResult
from swerve.probe.causal.continuations import Outcome
from swerve.probe.causal.interventions import Arm, Intervention, Match, Place, Policy
from swerve.probe.causal.swaps import look_sizes, verdict
from swerve.probe.findings.parts import Intervals
from swerve.statistics.association import spearman
from swerve.statistics.hypothesis_tests import benjamini_hochberg, paired_wilcoxon


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredEffect:
    """All arms at one position under one policy."""

    policy: Policy
    selection: SwapPositions
    sequence_id: int
    """Of the rollout with the position."""
    position: int
    spike_sequence_id: int
    """Of the rollout whose spike this is, or is a control for."""
    problem_id: str
    """Of that rollout: the unit of intervals."""
    arms: Mapping[Arm, tuple[int, Outcome]]
    """The token each arm forced, and what became of it; `reference` and `checkpoint` at least."""
    match: Match | None = None
    """Of matched controls."""

    def value(self, arm: Arm) -> float:
        """Return an arm's share of right continuations, without bias by when sampling stopped: for means."""
        return self.arms[arm][1].unbiased_value

    @property
    def effect(self) -> float:
        """Success with the checkpoint's token minus success with the rollout's own, without bias: for means."""
        return self.value("checkpoint") - self.value("reference")

    @property
    def squared_effect(self) -> float | None:
        """The effect in the even continuations times that in the odd ones: effect^2 on average, whatever the noise."""
        before, after = (self.arms[arm][1].half_values for arm in ("reference", "checkpoint"))
        if before is None or after is None:
            return None
        return (after[0] - before[0]) * (after[1] - before[1])

    @property
    def same_token(self) -> bool:
        """Whether the checkpoint chooses the rollout's own token."""
        return self.arms["checkpoint"][0] == self.arms["reference"][0]


def measured_effects(interventions: Sequence[Intervention], outcomes: Sequence[Outcome]) -> list[MeasuredEffect]:
    """Put the arms of each position together, in the order of the plan.

    Raises:
        ValueError: a position lacks the reference's or the checkpoint's arm.
    """
    places: dict[Place, dict[Arm, tuple[Intervention, Outcome]]] = {}
    for item, outcome in zip(interventions, outcomes, strict=True):
        places.setdefault(item.place, {})[item.arm] = (item, outcome)
    return [_effect(arms) for arms in places.values()]


def _effect(arms: Mapping[Arm, tuple[Intervention, Outcome]]) -> MeasuredEffect:
    missing = {"reference", "checkpoint"} - arms.keys()
    if missing:
        item = next(iter(arms.values()))[0]
        raise ValueError(
            f"position {item.position} of rollout {item.sequence.sequence_id} lacks the arm {sorted(missing)[0]}; an "
            "effect needs both"
        )
    item = arms["reference"][0]
    return MeasuredEffect(
        policy=item.policy,
        selection=item.selection,
        sequence_id=item.sequence.sequence_id,
        position=item.position,
        spike_sequence_id=item.spike_sequence_id,
        problem_id=item.spike_problem_id,
        arms={arm: (item.token_id, outcome) for arm, (item, outcome) in arms.items()},
        match=item.match,
    )


_SELECTIONS: tuple[SwapPositions, ...] = get_args(SwapPositions)


def summarise_swaps(
    interventions: Sequence[Intervention],
    outcomes: Sequence[Outcome],
    *,
    settings: CausalConfig,
    intervals: Intervals,
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

    Raises:
        ValueError: a position lacks one of the two models' arms.
    """
    effects = measured_effects(interventions, outcomes)
    if not effects:
        return None
    summariser = _Summariser(settings=settings, intervals=intervals)
    names = dict.fromkeys(one.policy for one in effects)
    policies = _adjusted([summariser.policy([one for one in effects if one.policy == name]) for name in names])
    main = next((one for one in policies if one.policy == "reference"), None)
    differences = main.differences if main else ()
    return Swaps(
        num_rollouts=len({one.spike_sequence_id for one in effects if one.selection == "spike"}),
        num_continuations=settings.num_continuations,
        looks=tuple(look_sizes(settings)),
        delta=settings.delta,
        selections=main.selections if main else (),
        difference=next((one.difference for one in differences if one.control == "random"), None),
        policies=policies,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Summariser:
    """Effects by kind of position, with intervals at one level."""

    settings: CausalConfig
    intervals: Intervals

    def policy(self, effects: Sequence[MeasuredEffect]) -> SwapPolicy:
        """Summarise the effects under one policy."""
        selected = {name: [one for one in effects if one.selection == name] for name in _SELECTIONS}
        return SwapPolicy(
            policy=effects[0].policy,
            selections=tuple(self.selection(name, places) for name, places in selected.items() if places),
            differences=tuple(
                self.difference(name, selected["spike"], places)
                for name, places in selected.items()
                if name != "spike" and places
            ),
        )

    def selection(self, name: SwapPositions, places: Sequence[MeasuredEffect]) -> SwapSelection:
        """Summarise the effects at one kind of position."""
        return SwapSelection(
            selection=name,
            num_rollouts=len({one.spike_sequence_id for one in places}),
            num_positions=len(places),
            reference=_success("reference", places),
            checkpoint=_success("checkpoint", places),
            alternative=_success("alternative", places),
            **dict(self.effects(places)),
            share_same_token=sum(one.same_token for one in places) / len(places),
            different_tokens=self.effects([one for one in places if not one.same_token]),
            mean_continuations=sum(one.arms["reference"][1].num_continuations for one in places) / len(places),
            decisions=self.decisions(places),
            match=_match(places),
            test=_tested(
                [one.value("reference") for one in places], [one.value("checkpoint") for one in places], places
            )
            if _is_swapped(places)
            else None,
        )

    def effects(self, places: Sequence[MeasuredEffect]) -> SwapEffects:
        """Return the three differences between arms."""
        other = [one for one in places if "alternative" in one.arms]
        return SwapEffects(
            num_different=sum(not one.same_token for one in places),
            effect=self._effect(lambda one: one.effect, places if _is_swapped(places) else ()),
            alternative_effect=self._effect(lambda one: one.value("alternative") - one.value("reference"), other),
            checkpoint_minus_alternative=self._effect(
                lambda one: one.value("checkpoint") - one.value("alternative"), other
            ),
        )

    def decisions(self, places: Sequence[MeasuredEffect]) -> dict[Decision, int]:
        """Return how many positions have an effect of exactly 0, one inside of +-delta, one outside, or neither."""
        counts = Counter(self._decision(one) for one in places)
        return {name: counts[name] for name in get_args(Decision)}

    def _decision(self, one: MeasuredEffect) -> Decision:
        if one.same_token:
            return "same_token"
        return verdict(
            one.arms["reference"][1],
            one.arms["checkpoint"][1],
            same_token=False,
            settings=self.settings,
            confidence=self.intervals.confidence,
        )

    def difference(
        self, name: SwapPositions, spikes: Sequence[MeasuredEffect], controls: Sequence[MeasuredEffect]
    ) -> SwapDifference:
        """Return the effect at spikes minus that at their controls of one kind."""
        effects: dict[int, list[float]] = {}
        for one in controls:
            effects.setdefault(one.spike_sequence_id, []).append(one.effect)
        by_spike = {spike: sum(values) / len(values) for spike, values in effects.items()}
        measured = _is_swapped(spikes) and _is_swapped(controls)
        paired = [one for one in spikes if measured and one.spike_sequence_id in by_spike]
        before = [by_spike[one.spike_sequence_id] for one in paired]
        return SwapDifference(
            control=name,
            num_pairs=len(paired),
            difference=self.intervals.mean(
                [one.effect - by_spike[one.spike_sequence_id] for one in paired],
                [one.problem_id for one in paired],
                bounds=(-2.0, 2.0),
            ),
            test=_tested(before, [one.effect for one in paired], paired),
        )

    def _effect(self, function: Callable[[MeasuredEffect], float], places: Sequence[MeasuredEffect]) -> Estimate | None:
        """Return a mean effect; most positions may have none and a few have all of it."""
        values, problems = [function(one) for one in places], [one.problem_id for one in places]
        return self.intervals.mean(values, problems, bounds=(-1.0, 1.0), rare=True)


def _is_swapped(places: Sequence[MeasuredEffect]) -> bool:
    """Return whether the checkpoint's token is another than the rollout's own anywhere."""
    return not all(one.same_token for one in places)


def _success(arm: Arm, places: Sequence[MeasuredEffect]) -> ArmSuccess:
    """Return an arm's fraction of right continuations; of the alternative also at how many positions there is one."""
    values = [one.value(arm) for one in places if arm in one.arms]
    return ArmSuccess(success=_mean(values), num_rollouts=len(values) if arm == "alternative" else None)


def _match(places: Sequence[MeasuredEffect]) -> ControlMatch | None:
    """Return the fractions of matched controls that meet each criterion."""
    matches = [one.match for one in places if one.match is not None]
    if not matches:
        return None
    return ControlMatch(
        num_same_token=sum(one.same_token for one in places),
        same_rollout=_mean([float(one.same_rollout) for one in matches]),
        same_category=_mean([float(one.same_category) for one in matches]),
        same_third=_mean([float(one.same_third) for one in matches]),
        entropy_gap=_mean([one.entropy_gap for one in matches]),
    )


def _tested(before: Sequence[float], after: Sequence[float], places: Sequence[MeasuredEffect]) -> WilcoxonResult | None:
    return paired_wilcoxon(before, after, clusters=[one.problem_id for one in places])


_Tested = TypeVar("_Tested", SwapSelection, SwapDifference)


def _adjusted(policies: Sequence[SwapPolicy]) -> tuple[SwapPolicy, ...]:
    """Add the adjusted p-values over the family of all tests."""
    tests = [[entry.test for entry in one.selections] + [entry.test for entry in one.differences] for one in policies]
    adjusted = iter(benjamini_hochberg([test.p_value if test else None for part in tests for test in part])[0])

    def completed(entry: _Tested) -> _Tested:
        p_adjusted = next(adjusted)
        test = entry.test and replace(entry.test, p_adjusted=p_adjusted)
        return entry.model_copy(update={"test": test})

    return tuple(
        SwapPolicy(
            policy=one.policy,
            selections=tuple(completed(entry) for entry in one.selections),
            differences=tuple(completed(entry) for entry in one.differences),
        )
        for one in policies
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def summarise_prediction(
    effects: Sequence[MeasuredEffect],
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
    number of continuations is fixed. Where the checkpoint chooses the rollout's own token the product is exactly 0
    (`positions: all` has these, `different_tokens` has not). Noise in the products draws every correlation towards 0,
    so that values of different numbers of continuations cannot be compared.

    Args:
        effects: of the swaps (`measured_effects`); those without halves are left out.
        scores: by selector, one value per position, in the order of `effects`.
        intervals: how intervals are made.

    Raises:
        ValueError: a selector has not as many scores as there are effects.
    """
    for name, values in scores.items():
        if len(values) != len(effects):
            raise ValueError(f"selector {name!r} needs a score for each of {len(effects)} positions, got {len(values)}")
    products = [one.squared_effect for one in effects]
    entries: list[Prediction] = []
    for policy in dict.fromkeys(one.policy for one in effects):
        first = {
            (one.sequence_id, one.position): i for i, one in reversed([*enumerate(effects)]) if one.policy == policy
        }
        rows = [index for index in sorted(first.values()) if products[index] is not None]
        by_kind: dict[Literal["all", "different_tokens"], list[int]] = {
            "all": rows,
            "different_tokens": [index for index in rows if not effects[index].same_token],
        }
        entries += [
            _predicted(
                policy,
                positions,
                products=np.array([products[index] for index in chosen], dtype=np.float64),
                problems=[effects[index].problem_id for index in chosen],
                scores={name: np.asarray(values, dtype=np.float64)[chosen] for name, values in scores.items()},
                how=intervals,
            )
            for positions, chosen in by_kind.items()
        ]
    return tuple(entries)


def _predicted(
    policy: Policy,
    positions: Literal["all", "different_tokens"],
    *,
    products: NDArray[np.float64],
    problems: Sequence[str],
    scores: Mapping[str, NDArray[np.float64]],
    how: Intervals,
) -> Prediction:
    # a rank correlation needs numbers: the largest finite one stands for what is infinite
    correlations = {
        name: spearman(np.nan_to_num(values), products, clusters=problems, confidence=how.confidence)
        for name, values in scores.items()
    }
    adjusted, _ = benjamini_hochberg([one.p_value if one else None for one in correlations.values()])
    return Prediction(
        policy=policy,
        positions=positions,
        num_positions=len(products),
        mean_square_effect=how.mean(products, problems, bounds=(-1.0, 1.0)),
        selectors=tuple(
            PredictionSelector(selector=name, spearman=found, p_adjusted=p_value)
            for (name, found), p_value in zip(correlations.items(), adjusted, strict=True)
        ),
    )
