"""What a replay changes, and from which step to which; free of torch, so that what cannot be is said at once."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from swerve.artifacts.checkpoint import STATE_NAME, CheckpointRef
from swerve.artifacts.response_columns import ROLLOUTS_SCHEMA
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import read_table
from swerve.config.recipe import Config
from swerve.config.stages import RlStage
from swerve.errors import ArtifactError, CheckpointError, ConfigError, nearest
from swerve.types import Reward, Rollout, RolloutGroup

if TYPE_CHECKING:
    from swerve.train.columns import PolicyStep
    from swerve.train.context import StageContext, StepRollouts

Place: TypeAlias = tuple[int, int, int, int]
"""Of a token: step of the stage from 0, group, sample, position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variation:
    """A replay of some steps: what is changed, and how what is not changed is made. By default all is as it was."""

    name: str
    settings: tuple[str, ...] = ()
    """Changed keys of the stage, as `KEY=VALUE`."""
    again: bool = False
    """Whether the steps after the first that is changed sample anew, with the run's seeds."""
    seed: int = 0
    """Number of other seeds, with which all its steps sample; 0: the run's."""
    tokens_per_batch: int | None = None
    """Of the micro-batches, which add in another order then; None: the stage's."""
    without_group: int | None = None
    """Number of the group that the first step does not learn from."""
    without_kind: str | None = None
    """Kind of the problems whose groups no step learns from."""
    flip: tuple[int, int] | None = None
    """Group and sample of the first step whose verdict is turned round."""
    flip_share: float = 0.0
    """Share of all verdicts that are turned round, drawn by the run's seed."""
    tokens: tuple[Place, ...] = ()
    """Tokens without their part of the policy loss."""
    own_denominators: bool = False
    """Whether a step without some groups divides by the tokens of those that are left, not of the unchanged step."""
    first: int = 0
    """0-based number of the first step that is changed."""

    def rollouts(self, sampled: StepRollouts, stage: RlStage, context: StageContext, index: int) -> StepRollouts:
        """Return the rollouts of a step as the replay has them: with verdicts turned round, or without some groups.

        Raises:
            ConfigError: no group is left.
        """
        if index < self.first:
            return sampled
        if self.flip is not None or self.flip_share:
            sampled = self._flipped(sampled, stage, context, index)
        if self.own_denominators and (gone := self.left_out(sampled, index)):
            sampled = sampled.whole([place for place, number in enumerate(sampled.numbers) if number not in gone])
            if not sampled.numbers:
                raise ConfigError(f"step {index + 1} has no other groups; --denominators kept counts their tokens")
        return sampled

    def weighted(self, step: PolicyStep, rollouts: StepRollouts, index: int) -> PolicyStep:
        """Return what the updates of a step learn from, without the policy loss of what is left out."""
        gone = set() if self.own_denominators else self.left_out(rollouts, index)
        tokens = [place for place in self.tokens if place[0] == index]
        if not gone and not tokens:
            return step
        weights = step.columns.policy_weights.clone()
        weights[[row for row, member in enumerate(step.members) if member.group in gone]] = 0.0
        rows: dict[tuple[int, int], int] = {member: row for row, member in enumerate(step.members)}
        for _, group, sample, position in tokens:
            if (row := rows.get((group, sample))) is not None and position < weights.shape[1]:
                weights[row, position] = 0.0  # sampled again, the completion may be shorter
        return replace(step, columns=replace(step.columns, policy_weights=weights))

    def left_out(self, rollouts: StepRollouts, index: int) -> set[int]:
        """Return the numbers of the groups that a step does not learn from."""
        gone: set[int] = set()
        if index == self.first and self.without_group is not None:
            gone.add(self.without_group)
        if index >= self.first and self.without_kind is not None:
            pairs = zip(rollouts.numbers, rollouts.groups, strict=True)
            gone |= {number for number, group in pairs if group.prompt.problem.kind == self.without_kind}
        return gone

    def _flipped(self, sampled: StepRollouts, stage: RlStage, context: StageContext, index: int) -> StepRollouts:
        """Turn verdicts round, and make of them what training does."""
        from swerve.train.rewards import training_rewards

        verdicts = [rollout.reward for group in sampled.groups for rollout in group.rollouts]
        right = max((one.value for one in verdicts if one.is_right and one.value is not None), default=1.0)
        wrong = min((one.value for one in verdicts if not one.is_right and one.value is not None), default=0.0)
        groups: list[RolloutGroup] = []
        for number, group in zip(sampled.numbers, sampled.groups, strict=True):
            rollouts = []
            for place, rollout in enumerate(group.rollouts):
                if self._is_flipped(context, index, number, place):
                    rollout = _judged_otherwise(rollout, wrong if rollout.reward.is_right else right)
                rollouts.append(rollout)
            groups.append(replace(group, rollouts=tuple(rollouts)))
        rewards: list[Sequence[float]] = [
            training_rewards(group, stage, context, index, number)
            for number, group in zip(sampled.numbers, groups, strict=True)
        ]
        return replace(sampled, groups=groups, rewards=rewards)

    def _is_flipped(self, context: StageContext, index: int, number: int, place: int) -> bool:
        if index == self.first and (number, place) == self.flip:
            return True
        seed = context.seed("replay", "flip", index, number, place)
        return random.Random(seed).random() < self.flip_share


def _judged_otherwise(rollout: Rollout, value: float) -> Rollout:
    """Return a rollout as a grader would have judged it that says the opposite."""
    reward = rollout.reward
    parts = {"correct": float(not reward.is_right)} if "correct" in reward.parts else {}
    return replace(rollout, reward=Reward(value=value, status="graded", parts=parts, extracted=reward.extracted))


UNCHANGED = Variation(name="unchanged")


_FIXED = ("steps", "phases", "prompts_per_step", "samples_per_prompt", "temperature", "checkpoints", "kind", "name")
"""Keys of a stage that say what was sampled and when."""


def variations_of(
    *,
    without: Sequence[str] = (),
    flip: Sequence[str] = (),
    flip_share: float | None = None,
    settings: Sequence[str] = (),
    rollouts: str = "recorded",
    denominators: str = "kept",
) -> list[Variation]:
    """Return a replay for each change that is asked for, as it is written; all settings are one.

    Raises:
        ConfigError: a change is written wrongly, or one cannot be made.
    """
    for name, value, allowed in (
        ("rollouts", rollouts, ("recorded", "again")),
        ("denominators", denominators, ("kept", "own")),
    ):
        if value not in allowed:
            raise ConfigError(f"--{name} {value!r} is not one of {', '.join(allowed)}")
    again, own = rollouts == "again", denominators == "own"
    found = [
        Variation(name=f"without {text}", **parse_without(text), own_denominators=own, again=again) for text in without
    ]
    found += [Variation(name=f"flip {text}", flip=parse_flip(text), again=again) for text in flip]
    if flip_share is not None:
        if not 0 < flip_share <= 1:
            raise ConfigError(f"--flip-share {flip_share:g} is not a share above 0 and up to 1")
        found.append(Variation(name=f"flip share {flip_share:g}", flip_share=flip_share, again=again))
    for text in settings:
        key, equals, _ = text.partition("=")
        if not equals:
            raise ConfigError(f"--set {text!r} is not KEY=VALUE, such as kl.coef=0.1")
        if key.split(".")[0] in _FIXED:
            raise ConfigError(f"--set {text!r}: a replay leaves {', '.join(_FIXED)} as they were")
    if settings:
        found.append(Variation(name=f"set {' '.join(settings)}", settings=tuple(settings), again=again))
    return found


def parse_without(text: str) -> dict[str, Any]:
    """Return the change that `--without` names.

    Raises:
        ConfigError: it is neither a group nor a kind.

    >>> parse_without("group=3"), parse_without("kind=2 carries")
    ({'without_group': 3}, {'without_kind': '2 carries'})
    """
    name, _, value = text.partition("=")
    if name == "group" and value.isdigit():
        return {"without_group": int(value)}
    if name == "kind" and value:
        return {"without_kind": value}
    raise ConfigError(f"--without {text!r} is neither group=N, a group of the first step, nor kind=NAME of problems")


def parse_flip(text: str) -> tuple[int, int]:
    """Return group and sample of the verdict that `--flip` names.

    Raises:
        ConfigError: it does not.

    >>> parse_flip("15.5")
    (15, 5)
    """
    found = re.fullmatch(r"(\d+)\.(\d+)", text)
    if found is None:
        raise ConfigError(f"--flip {text!r} is not GROUP.SAMPLE, such as 15.5: sample 5 of group 15 of the first step")
    return int(found[1]), int(found[2])


def starting_point(run: RunDirectory, config: Config, name: str) -> CheckpointRef:
    """Return the checkpoint that a replay begins with.

    Args:
        run: the run.
        config: the run's.
        name: a label, a stage, or the number of a step of the last stage.

    Raises:
        CheckpointError: there is no such checkpoint, or it has no optimizer state, which the steps after it need.
    """
    label = f"{config.stages[-1].label}-{name}" if name.isdigit() and int(name) else name
    if name == "0" and len(config.stages) > 1:
        label = config.stages[-2].label
    start, usable = run.select_checkpoint(label), _usable(run)
    if start not in usable:
        raise CheckpointError(
            f"{start.label} of {run.path} has no optimizer state (retention.save_optimizer=false); begin with one that "
            f"has it: {', '.join(one.label for one in usable)}"
        )
    return start


def _usable(run: RunDirectory) -> list[CheckpointRef]:
    """Return the checkpoints from which training can go on."""
    return [one for one in run.checkpoints if one.final or (one.path / STATE_NAME).is_dir()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """The steps of the last stage that are made once more with a change."""

    stage: RlStage
    before: int
    """Steps of the stages before it."""
    first: int
    """Step of the stage after which the change begins."""
    stop: int
    """Step of the stage that is the last."""
    start: CheckpointRef | None
    """The last checkpoint up to the change from which training can go on; None: the beginning of the run."""

    @classmethod
    def of(cls, config: Config, run: RunDirectory, start: str, to: str | None) -> Stretch:
        """Return the steps that `--from` and `--to` name.

        Args:
            config: the run's.
            run: it.
            start: a step of the last stage, or the label of a checkpoint.
            to: a step, or `+N` steps; None: the last that the run has made.

        Raises:
            ConfigError: the last stage is not one of RL, or the run has not made such steps.
            CheckpointError: there is no such checkpoint.
        """
        stage, before = config.stages[-1], sum(each.steps for each in config.stages[:-1])
        if not isinstance(stage, RlStage):
            raise ConfigError(f"the last stage, '{stage.label}', is no RL stage: only steps of one can be changed")
        # The step before the change; a label is that of a checkpoint, whose step may be one of another stage.
        text = start.removeprefix(f"{stage.label}-")
        first = int(text) if text.isdigit() else run.select_checkpoint(start).step - before
        if not 0 <= first < stage.steps:
            raise ConfigError(
                f"--from {start!r}: a change needs a step of stage '{stage.label}' before it, 0 to {stage.steps - 1}; "
                "--from 0 begins with the stage"
            )
        # The last step.
        made = max((checkpoint.step for checkpoint in run.checkpoints), default=0) - before
        digits = str(made) if to is None else to.removeprefix("+").removeprefix(f"{stage.label}-")
        if not digits.isdigit():
            raise ConfigError(f"--to {to!r} is neither a step, such as 40, nor a number of steps, such as +10")
        stop = int(digits) + (first if to is not None and to.startswith("+") else 0)
        if not first < stop <= made:
            raise ConfigError(
                f"--to {to!r} is not after step {first} and up to {made}, the last step that stage '{stage.label}' made"
            )
        usable = [one for one in _usable(run) if before <= one.step <= before + first]
        if before and not usable:
            raise ConfigError(
                f"{run.path} has no checkpoint before step {first + 1} of its last stage from which training can go on"
            )
        return cls(stage=stage, before=before, first=first, stop=stop, start=usable[-1] if usable else None)

    def check(self, variations: Sequence[Variation], rows: Sequence[Mapping[str, Any]], kinds: Collection[str]) -> None:
        """Check that what is to be changed is there.

        Args:
            variations: what is to be changed.
            rows: of the rollouts of the first step.
            kinds: of the training problems.

        Raises:
            ConfigError: it is not.
        """
        sizes = Counter(row["group"] for row in rows)
        where = f"step {self.first + 1} of stage '{self.stage.label}'"
        for variation in variations:
            name = variation.name
            group, sample = variation.flip or (variation.without_group, None)
            if group is not None and group not in sizes:
                raise ConfigError(f"--{name}: {where} has no group {group}: it has {min(sizes)} to {max(sizes)}")
            if group is not None and sample is not None and sample >= sizes[group]:
                raise ConfigError(f"--{name}: group {group} of {where} has samples 0 to {sizes[group] - 1}")
            if variation.without_kind is not None and variation.without_kind not in kinds:
                known = sorted(kinds)
                near = nearest(variation.without_kind, known)
                raise ConfigError(f"--{name}: the training problems are of the kinds {', '.join(known)}{near}")
            begun = 0 if self.start is None else self.start.step - self.before
            if variation.settings and begun != self.first:
                raise ConfigError(
                    f"--set acts from a checkpoint on, and step {self.first} has no checkpoint; the last one before it "
                    f"is of step {begun}: --from {begun}"
                )


def read_rollouts(run: RunDirectory, step: int) -> list[dict[str, Any]]:
    """Return the rows of a step's recorded rollouts; `step` counts over all stages.

    Raises:
        ArtifactError: the file is missing or damaged.
    """
    path = run.rollouts_path(step)
    try:
        if not path.is_file():
            raise ArtifactError(f"{path} is missing")
        rows: list[dict[str, Any]] = read_table(path, ROLLOUTS_SCHEMA).to_pylist()
    except ArtifactError as error:
        raise ArtifactError(f"{error}; {RESTORE}") from None
    return rows


RESTORE = "restore it from a copy of the run, or begin after this step with --from STEP"
"""What to do about rollouts that cannot be read."""
