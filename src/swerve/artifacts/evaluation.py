"""The evaluation of one checkpoint, `eval/step_NNNNNN.json`, as a typed record. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from swerve.artifacts.record import Record
from swerve.artifacts.run import RunDirectory
from swerve.estimates import Estimate, SamplingCurve

MANY_SAMPLES = 4
"""From so many samples per problem, pass@k says more than the mean of the samples does."""


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
        level = self.eval_settings.get("confidence")
        return None if level is None else float(level)

    @property
    def eval_settings(self) -> Mapping[str, Any]:
        """The section `eval` of the configuration that it was made with."""
        section: Mapping[str, Any] = self.settings.get("eval") or {}
        return section

    @property
    def file_name(self) -> str:
        """Name of its files in `eval/`, without suffix."""
        return f"step_{self.step:06d}"

    def sampled(self, k: int) -> SamplingCurve | None:
        """Return what k samples of a problem are worth, if that was measured."""
        return next((one for one in self.by_num_samples if one.k == k), None)

    def pass_at(self, k: int) -> Estimate | None:
        """Return pass@k, if it was measured."""
        found = self.sampled(k)
        return None if found is None else found.pass_at_k

    def majority_at(self, k: int) -> Estimate | None:
        """Return the accuracy of the majority vote of k samples, if it was measured."""
        found = self.sampled(k)
        return None if found is None else found.majority_at_k


def read_evaluations(run: RunDirectory) -> tuple[Evaluation, ...]:
    """Return the evaluation of every evaluated checkpoint, by global step.

    Raises:
        ArtifactError: a file is damaged or of another version.
    """
    remedy = f"run swerve eval {run.path} again"
    found = [Evaluation.read(path, remedy=remedy) for path in (run.path / "eval").glob("step_*.json")]
    return tuple(sorted(found, key=lambda one: one.step))


def largest_k(evaluations: Sequence[Evaluation]) -> int:
    """Return the largest number of samples per problem; 0 where none were evaluated."""
    return max((one.k for entry in evaluations for one in entry.by_num_samples), default=0)


def rewards_are_fractions(evaluations: Sequence[Evaluation]) -> bool:
    """Return whether no mean reward leaves 0 to 1, so that it reads as a percentage beside the accuracy."""
    found = [entry.mean_reward for entry in evaluations if entry.mean_reward is not None]
    return all(one.low >= 0.0 and one.high <= 1.0 for one in found)
