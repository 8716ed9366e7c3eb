"""Cross-sampling: one model generates and takes the other's token wherever a selector fires (arXiv 2603.22446).

Each selector is set to fire at the same share of tokens, so that selectors are compared under equal budgets: which one
finds the tokens that carry the difference between the two models? Thresholds come from a pilot: the base's own
completions of other problems, with every selector's score recorded and nothing swapped. Swapped tokens change what
follows, so the share of tokens that is swapped in the end differs from the budget; it is measured, and accuracy is set
against the measured share.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from transformers import PreTrainedTokenizerBase

from swerve.config.probe import CrossSamplingConfig, SwapSelector
from swerve.models.model_folder import LoadedModel, stop_ids
from swerve.rewards import grade_all
from swerve.rollout import SamplingParams
from swerve.rollout.groups import completion_text
from swerve.rollout.mixed import MixedCompletion, generate_mixed
from swerve.seeds import derive_seed
from swerve.types import Prompt
from swerve.world import ALONE, World

Direction = Literal["checkpoint_into_reference", "reference_into_checkpoint"]

_MAX_PILOT = 100

_PILOT_SHARE = 5  # one problem of so many, where the problems that are not measured are fewer


@dataclass(frozen=True, slots=True, kw_only=True)
class Dose:
    """A selector with the threshold that stands for a budget."""

    selector: SwapSelector
    share: float
    threshold: float


def pilot_split(prompts: Sequence[Prompt], *, max_problems: int) -> tuple[list[Prompt], list[Prompt]]:
    """Return the prompts that are measured, the first ones, and those of the pilot, the last up to 100.

    At most `max_problems` are measured, and at least every fifth problem is left to the pilot, up to 100.

    Raises:
        ValueError: fewer than two prompts, or `max_problems` below 1.
    """
    if len(prompts) < 2 or max_problems < 1:
        raise ValueError(f"need two prompts or more and max_problems of at least 1, got {len(prompts)}, {max_problems}")
    reserved = min(_MAX_PILOT, math.ceil(len(prompts) / _PILOT_SHARE))
    num = min(max_problems, len(prompts) - reserved)
    return list(prompts[:num]), list(prompts[max(num, len(prompts) - _MAX_PILOT) :])


def calibrated_thresholds(scores: Sequence[float], shares: Sequence[float]) -> list[float]:
    """Return for each share the least threshold that no more than that share of the scores is above.

    Where scores are tied at the threshold fewer are above it: the budget is never exceeded on these scores.

    Raises:
        ValueError: no scores, or a share outside (0, 1).

    >>> calibrated_thresholds([0.0, 1.0, 2.0, 3.0, 4.0], [0.2, 0.4])
    [3.0, 2.0]
    >>> calibrated_thresholds([1.0, 1.0, 1.0, 1.0], [0.5])
    [1.0]
    """
    if not len(scores) or any(not 0 < share < 1 for share in shares):
        raise ValueError(f"need scores and shares above 0 and below 1, got {len(scores)} scores and shares {shares}")
    ordered = sorted(scores, reverse=True)
    # The share was written in decimals: 0.29 of 100 tokens are 29, not the 28 of 0.29 * 100 = 28.999...
    return [ordered[min(math.floor(share * len(ordered) + 1e-9), len(ordered) - 1)] for share in shares]


def count_cross_samples(settings: CrossSamplingConfig, num_problems: int, num_pilot: int) -> int:
    """Return how many completions one direction samples."""
    doses = 2 + len(settings.selectors) * len(settings.shares)
    return settings.num_samples * (doses * num_problems + num_pilot)


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossSampler:
    """One direction: a model generates and takes tokens of the other one.

    All doses of a problem share their random numbers, so that those of equal budget, and the ends, are paired.
    """

    base: LoadedModel
    """Generates."""
    other: LoadedModel
    """Whose tokens are taken; of the same tokenizer."""
    direction: Direction
    """Which of the two is the checkpoint."""
    settings: CrossSamplingConfig
    max_new_tokens: int
    """Longest completion."""
    max_rows: int
    """Completions decoded at a time."""
    seed: int
    """Of the run."""
    on_finished: Callable[[int], None] | None = None
    """Called with the number of completions finished since the last call."""

    def thresholds(self, pilot: Sequence[Prompt]) -> dict[str, list[float]]:
        """Return each selector's threshold at each budget, from the base's own completions of some problems."""
        groups = self._generate(pilot, "random", math.inf, self.settings.selectors)
        scored = [sample for group in groups for sample in group]
        return {
            selector: calibrated_thresholds(
                [score for sample in scored for score in sample.scores[selector]], self.settings.shares
            )
            for selector in self.settings.selectors
            if selector != "random"
        }

    def rows(self, prompts: Sequence[Prompt], dose: Dose, world: World = ALONE) -> list[dict[str, Any]]:
        """Return the rows of `cross_samples.parquet` of one dose: each problem answered and graded.

        The processes of a world, which all call this, share the problems.
        """
        own = world.shard(prompts)
        completions = self._generate(own, dose.selector, dose.threshold) if own else []
        rows = _graded_rows(own, completions, self.base.tokenizer, self.direction, dose)
        num, others = self.settings.num_samples, len(prompts) - len(own)
        if self.on_finished is not None and others:
            self.on_finished(num * others)
        by_problem = [rows[start : start + num] for start in range(0, len(rows), num)]
        return [row for group in world.dealt_back(by_problem) for row in group]

    def _generate(
        self, prompts: Sequence[Prompt], selector: SwapSelector, threshold: float, record: Sequence[SwapSelector] = ()
    ) -> list[tuple[MixedCompletion, ...]]:
        params = SamplingParams(
            num_samples=self.settings.num_samples,
            max_new_tokens=self.max_new_tokens,
            temperature=self.settings.temperature,
            stop_ids=stop_ids(self.base.model, self.base.tokenizer),
        )
        return generate_mixed(
            self.base.model,
            self.other.model,
            [prompt.token_ids for prompt in prompts],
            params,
            selector=selector,
            threshold=threshold,
            checkpoint="other" if self.direction == "checkpoint_into_reference" else "base",
            seeds=[derive_seed(self.seed, "probe", "cross_sampling", prompt.problem.id) for prompt in prompts],
            pad_id=int(self.base.tokenizer.pad_token_id or 0),
            max_rows=self.max_rows,
            record=record,
            on_finished=self.on_finished,
        )


def all_doses(thresholds: Mapping[str, Sequence[float]], settings: CrossSamplingConfig) -> list[Dose]:
    """Return the ends, and every selector at every budget.

    The ends are under the selector `random`, with a share of 0 (the base alone) and 1 (the other model alone).
    """
    doses = [
        Dose(selector="random", share=0.0, threshold=math.inf),
        Dose(selector="random", share=1.0, threshold=-math.inf),
    ]
    for selector in settings.selectors:
        own = [1 - share for share in settings.shares] if selector == "random" else thresholds[selector]
        for share, threshold in zip(settings.shares, own, strict=True):
            doses.append(Dose(selector=selector, share=share, threshold=threshold))
    return doses


def _graded_rows(
    prompts: Sequence[Prompt],
    groups: Sequence[Sequence[MixedCompletion]],
    tokenizer: PreTrainedTokenizerBase,
    direction: Direction,
    dose: Dose,
) -> list[dict[str, Any]]:
    """Grade the completions of every problem at one dose."""
    texts = [
        (prompt.problem, completion_text(tokenizer, completion.token_ids))
        for prompt, group in zip(prompts, groups, strict=True)
        for completion in group
    ]
    # All completions are graded in one call, then each becomes a row.
    rewards = iter(grade_all(texts))
    rows = []
    for prompt, group in zip(prompts, groups, strict=True):
        for sample, completion in enumerate(group):
            reward = next(rewards)
            rows.append(
                {
                    "problem_id": prompt.problem.id,
                    "sample": sample,
                    "direction": direction,
                    "selector": dose.selector,
                    "share": dose.share,
                    "threshold": None if dose.selector == "random" else dose.threshold,
                    "completion_ids": list(completion.token_ids),
                    "swapped": list(completion.swapped),
                    "num_changed": completion.num_changed,
                    "correct": reward.is_right,
                    "status": reward.status,
                }
            )
    return rows
