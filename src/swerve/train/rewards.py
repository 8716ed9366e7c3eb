"""What training learns from: the grader's reward, or a control's in its place, which shows what the grader's is for."""

from __future__ import annotations

from random import Random
from statistics import mode

from swerve.config.stages import DistillStage, RlStage
from swerve.rewards import grade_all
from swerve.train.context import StageContext
from swerve.types import RolloutGroup


def training_rewards(
    group: RolloutGroup, stage: RlStage | DistillStage, context: StageContext, index: int, number: int
) -> list[float]:
    """Return the reward that training learns from of each completion (controls: arXiv 2507.10532).

    What is recorded of the completions stays the grader's. Coins rest on the run's seed and the group's place alone, so
    that a resumed run, and one of more processes, tosses the same.

    Args:
        group: all completions of a prompt, graded.
        stage: with the reward of failures, and the control.
        context: the stage's.
        index: 0-based number of the step in the stage.
        number: of the group within the step, over all processes.
    """
    control = stage.reward if isinstance(stage, RlStage) else "real"
    rewards = [rollout.reward for rollout in group.rollouts]
    if control == "random":
        coin = Random(context.seed(stage.label, "coin", index, number))
        return [float(coin.getrandbits(1)) for _ in rewards]
    if control == "format_only":
        return [float(reward.answered) for reward in rewards]
    if control == "majority":
        # Of equally frequent answers the first; a completion without an answer has no vote.
        answers = [reward.extracted for reward in rewards]
        winner = mode([*filter(None, answers)] or [""])
        return [float(answer == winner) for answer in answers]
    if control == "shuffled_gold":
        # The problem in this place of the next step.
        (other,) = context.draw(range(number, number + 1), step=index + 1)
        rewards = grade_all([(other, rollout.text) for rollout in group.rollouts])

    # The verdicts as numbers.
    values = [stage.failure_reward if reward.value is None else reward.value for reward in rewards]
    return [1.0 - value for value in values] if control == "inverted" else values
