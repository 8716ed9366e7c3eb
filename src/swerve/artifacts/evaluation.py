"""The evaluation of one checkpoint, `eval/step_NNNNNN.json`, as a typed record. Free of torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from swerve.artifacts.comparison import ModelScores
from swerve.artifacts.files import verify_file
from swerve.artifacts.record import Record
from swerve.artifacts.run import RunDirectory
from swerve.errors import ArtifactError

MANY_SAMPLES = 4
"""From so many samples per problem, pass@k says more than the mean of the samples does."""


class Evaluation(Record):
    """The evaluation of one checkpoint: its scores on the held-out problems, greedily and by sampling."""

    checkpoint: str
    """Label, such as `rl-80`."""
    stage: str
    step: int
    """Global step, over all stages."""
    stage_step: int
    weights_sha256: str
    settings: Mapping[str, Any]
    """What the scores depend on beside the weights: seed, length limit, dtype, task and eval configuration, and a
    digest of the problems."""
    config_hash: str | None
    """Of the run's configuration; null where it has none."""
    tables: Mapping[str, str]
    """SHA-256 of each table beside it, by name within `eval/`."""
    greedy: ModelScores
    """Of one completion of each problem, at temperature 0."""
    sampled: ModelScores
    """Of the completions at the temperature of `settings.eval`."""
    first_mistakes: Mapping[str, int] = {}
    """Greedy completions by the kind of their first mistake, where the step checker tells kinds apart."""

    def __repr__(self) -> str:
        """Return one line: the checkpoint with its greedy accuracy."""
        return f"Evaluation({self.checkpoint}: accuracy {self.greedy.accuracy}, n = {self.greedy.num_problems})"

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

    @property
    def statuses(self) -> Counter[str]:
        """How many completions, greedy and sampled, are `graded`, `unparsed`, `timeout` and `error`."""
        return Counter(self.greedy.statuses) + Counter(self.sampled.statuses)

    @property
    def num_unanswered(self) -> int | None:
        """How many of them hold no answer; None: not known of all."""
        known = [half.num_unanswered for half in (self.greedy, self.sampled) if half.num_unanswered is not None]
        return sum(known) if len(known) == 2 else None


def read_evaluations(run: RunDirectory) -> tuple[Evaluation, ...]:
    """Return the evaluation of every evaluated checkpoint, by global step.

    Raises:
        ArtifactError: a file is damaged or of another version, or of another checkpoint than the one of its name.
    """
    checkpoints = {checkpoint.step: checkpoint for checkpoint in run.checkpoints}
    evaluations = [read_evaluation(run, path) for path in (run.path / "eval").glob("step_*.json")]
    for evaluation in evaluations:
        checkpoint = checkpoints.get(evaluation.step)  # none where it was deleted or is kept elsewhere
        of_weights = (evaluation.checkpoint, evaluation.weights_sha256)
        if checkpoint is not None and (checkpoint.label, checkpoint.weights_sha256) != of_weights:
            raise ArtifactError(
                f"{run.evaluation_path(checkpoint)} is of other weights than {checkpoint.label}; {_remedy(run)}"
            )
    return tuple(sorted(evaluations, key=lambda evaluation: evaluation.step))


def read_evaluation(run: RunDirectory, path: Path) -> Evaluation:
    """Return the evaluation at `path`, which belongs to the run and to the table beside it.

    Raises:
        ArtifactError: it is missing or damaged, of another run or step, or its table was changed.
    """
    evaluation = Evaluation.read(path, remedy=_remedy(run))
    config = evaluation.config_hash
    if path.stem != evaluation.file_name:
        raise ArtifactError(f"{path} is the evaluation of step {evaluation.step}; {_remedy(run)}")
    if config is not None and run.identity()["config_hash"] not in (None, config):
        raise ArtifactError(f"{path} is of another run (its configuration is {config}); {_remedy(run)}")
    for name, digest in evaluation.tables.items():
        try:
            verify_file(path.parent / name, digest, listed_in=path.name)
        except ArtifactError as error:
            raise ArtifactError(f"{error}; {_remedy(run)}") from None
    return evaluation


def _remedy(run: RunDirectory) -> str:
    return f"run swerve eval {run.quoted} again"


def largest_k(evaluations: Sequence[Evaluation]) -> int:
    """Return the largest number of samples per problem; 0 where none were evaluated."""
    return max((point.k for evaluation in evaluations for point in evaluation.sampled.curve), default=0)


def rewards_are_fractions(evaluations: Sequence[Evaluation]) -> bool:
    """Return whether no mean reward leaves 0 to 1, so that it reads as a percentage beside the accuracy."""
    rewards = [evaluation.sampled.mean_reward for evaluation in evaluations]
    return all(reward.low >= 0.0 and reward.high <= 1.0 for reward in rewards if reward is not None)
