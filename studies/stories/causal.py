"""What the tokens of a model with a planted change bring about in the stories of the one without."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from studies.stories.plant import FIRST, StorySettings
from swerve.config.probe import CausalConfig, SpikeConfig, SwapSelector
from swerve.models.model_folder import LoadedModel
from swerve.probe.causal.continuations import ContinuationSampler
from swerve.probe.causal.cross_sampling import calibrated_thresholds
from swerve.probe.causal.interventions import plan_interventions
from swerve.probe.causal.swap_effects import summarise_swaps
from swerve.probe.causal.swaps import run_interventions
from swerve.probe.engine.measured import Measurements
from swerve.probe.findings.spike_table import all_spikes
from swerve.probe.intervals import Intervals
from swerve.rollout import SamplingParams, TorchEngine
from swerve.rollout.groups import completion_text
from swerve.rollout.mixed import generate_mixed
from swerve.seeds import derive_seed
from swerve.statistics import share
from swerve.types import Problem, Reward

Record = dict[str, Any]
SELECTORS: tuple[SwapSelector, ...] = ("js", "logprob_drop", "entropy", "random")


def _mentions(text: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None


def forced(reference: LoadedModel, data: Measurements, final: str, settings: StorySettings) -> Record:
    """Force tokens at the highest spikes and at controls; a success is a story with the new name."""
    last = data.pick(lambda label, _: label == final)
    chosen = last.select(lambda one: bool(one.wrong))
    kept = {one.sequence_id for one in chosen.sequences[: settings.num_forced]}
    part = chosen.select(lambda one: one.sequence_id in kept)
    causal = CausalConfig(
        max_rollouts=settings.num_forced, num_continuations=settings.num_continuations, alternative=False
    )
    spikes = all_spikes(part, SpikeConfig(), nulls={})
    planned = plan_interventions(part, spikes, checkpoint=final, divergence="js", settings=causal, seed=settings.seed)

    def grade_stories(answers: Sequence[tuple[Problem, str]]) -> list[Reward]:
        return [Reward(value=float(_mentions(text, settings.new)), status="graded") for _, text in answers]

    sampler = ContinuationSampler(
        engine=TorchEngine(reference.model, pad_id=0, max_rows=256),
        tokenizer=reference.tokenizer,
        stop_ids=(FIRST,),
        max_new_tokens=settings.max_new_tokens,
        temperature=causal.temperature,
        seed=settings.seed,
        grade=grade_stories,
    )
    done = run_interventions(planned, sampler, settings=causal)
    how = Intervals()
    swaps = summarise_swaps(done, settings=causal, intervals=how)
    on_name = [top in one.wrong for top, one in zip(spikes.tops[final, "js"], part.sequences, strict=True)]
    return {"top_on_name": share(sum(on_name), len(on_name)), "causal": swaps}


def doses(base: LoadedModel, other: LoadedModel, direction: str, settings: StorySettings) -> Record:
    """Return the share of stories with the new name against the share of tokens taken from the other model."""
    record = SELECTORS
    args: dict[str, Any] = {"checkpoint": "other" if direction == "into_reference" else "base"}

    def stories(selector: SwapSelector, threshold: float, purpose: str, keep: Sequence[SwapSelector] = ()) -> list[Any]:
        params = SamplingParams(
            num_samples=settings.num_crossed,
            max_new_tokens=settings.max_new_tokens,
            temperature=1.0,
            stop_ids=(FIRST,),
        )
        (group,) = generate_mixed(
            base.model,
            other.model,
            [[FIRST]],
            params,
            selector=selector,
            threshold=threshold,
            seeds=[derive_seed(settings.seed, "stories", "crossed", purpose)],
            pad_id=0,
            max_rows=256,
            record=keep,
            **args,
        )
        return list(group)

    pilot = stories("random", float("inf"), "pilot", record)
    points = [
        _dose(base, "none", 0.0, stories("random", float("inf"), "measured"), settings),
        _dose(base, "all", 1.0, stories("random", float("-inf"), "measured"), settings),
    ]
    for selector in SELECTORS:
        scores = [score for one in pilot for score in one.scores[selector]]
        limits = (
            [1 - part for part in settings.shares]
            if selector == "random"
            else calibrated_thresholds(scores, settings.shares)
        )
        for part, limit in zip(settings.shares, limits, strict=True):
            points.append(_dose(base, selector, part, stories(selector, limit, "measured"), settings))
    return {"points": points}


def _dose(loaded: LoadedModel, selector: str, budget: float, stories: Sequence[Any], settings: StorySettings) -> Record:
    texts = [completion_text(loaded.tokenizer, one.token_ids) for one in stories]
    num_tokens = sum(len(one.token_ids) for one in stories)
    return {
        "selector": selector,
        "budget": budget,
        "share_swapped": sum(len(one.swapped) for one in stories) / num_tokens,
        "share_changed": sum(one.num_changed for one in stories) / num_tokens,
        "with_new": share(sum(_mentions(text, settings.new) for text in texts), len(texts)),
        "with_old": share(sum(_mentions(text, settings.old) for text in texts), len(texts)),
    }
