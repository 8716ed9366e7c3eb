"""The evaluation of one checkpoint, `eval/step_NNNNNN.json`, as a typed record. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from swerve.artifacts.record import Record
from swerve.estimates import Estimate, SamplingCurve


class Scores(Record):
    """Accuracy and means over some of the problems."""

    num_problems: int
    accuracy: Estimate | None
    """Of the greedy answers; Wilson's interval over problems."""
    trace_right: Estimate | None
    """Fraction of the greedy completions whose answer and steps are right; null where steps are not checked."""
    mean_reward: Estimate | None
    """Of the sampled completions, a failure counting 0; bootstrap over problems."""
    num_tokens: Estimate | None
    """Mean length of the greedy completions, tokens; bootstrap over problems."""
    entropy: Estimate | None
    """Mean entropy along the greedy completions, nats; bootstrap over problems."""


class ResponseForm(Record):
    """What the greedy completions look like, by rules about the surface of a text; no intervals."""

    format_rate: float | None = None
    """Fraction in the format that their prompt asks for; null where no prompt asks for one."""
    dummy_thinking_share: float | None = None
    """Of the completions that think first, the fraction whose thinking is empty, filler or about something else."""
    repeated_4gram_share: float | None = None
    """Fraction of runs of four words that stood in the completion before."""
    reflections_per_1000_words: float | None = None
    """Words and phrases of reflection per 1,000 words."""


class HeldoutMetrics(Scores):
    """What one checkpoint does with the held-out problems."""

    truncated: float
    """Fraction of the greedy completions cut off at the length limit."""
    failures: int
    """Completions, greedy and sampled, that could not be graded."""
    statuses: Mapping[str, int] = {}
    """How many of these completions are `graded`, `unparsed`, `timeout` and `error`."""
    by_num_samples: tuple[SamplingCurve, ...] = ()
    """For k of 1, 2, 4, ... samples: pass@k, pass^k and the majority vote ([Behaviours](behaviours.md))."""
    by_kind: Mapping[str, Scores] = {}
    """The same scores for each kind of problem."""
    by_part: Mapping[str, Scores] | None = None
    """The same scores for each part of a mixture; null without one."""


class Evaluation(HeldoutMetrics):
    """The evaluation of one checkpoint."""

    checkpoint: str
    """Label, such as `rl-80`."""
    stage: str
    step: int
    """Global step, over all stages."""
    stage_step: int
    weights_sha256: str
    settings: Mapping[str, Any]
    """What the metrics depend on beside the weights: seed, length limit, dtype, task and eval configuration."""
    responses: ResponseForm | None = None
    """Form of the greedy completions; null for tasks with a vocabulary of their own."""

    @property
    def confidence(self) -> float | None:
        """Level of the intervals, as the settings say it."""
        level = self.settings["eval"]["confidence"] if "eval" in self.settings else None
        return None if level is None else float(level)
