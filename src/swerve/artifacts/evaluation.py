"""The evaluation of one checkpoint, `eval/step_NNNNNN.json`, as a typed record. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from swerve.artifacts.files import verify_file
from swerve.artifacts.record import Record
from swerve.artifacts.run import RunDirectory
from swerve.errors import ArtifactError
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
    """Of the sampled completions, a failure counting 0; t interval over problems."""
    num_tokens: Estimate | None
    """Mean length of the greedy completions, tokens; t interval over problems."""
    entropy: Estimate | None
    """Mean entropy along the greedy completions, nats; t interval over problems."""


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


class Diversity(Record):
    """How much the sampled completions of one problem differ; means over problems, t intervals."""

    ngram_similarity: Estimate | None
    """Mean over all pairs of the cosine between counts of word 2-grams: 1 the same, 0 none shared."""
    distinct_2grams: Estimate | None
    """Distinct word 2-grams over 2-grams of all samples together."""
    distinct_answers: Estimate | None
    """Different answers; null where the grader records none."""
    distinct_right_answers: Estimate | None
    """Different right answers; null where the grader records none."""


class HeldoutMetrics(Scores):
    """What one checkpoint does with the held-out problems."""

    truncated: float
    """Fraction of the greedy completions cut off at the length limit."""
    failures: int
    """Completions, greedy and sampled, that could not be graded."""
    statuses: Mapping[str, int] = {}
    """How many of these completions are `graded`, `unparsed`, `timeout` and `error`."""
    num_unanswered: int = 0
    """How many of them hold no answer, whether or not something is paid for them."""
    first_mistakes: Mapping[str, int] = {}
    """Greedy completions by the kind of their first mistake, where the step checker tells kinds apart."""
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
    """What the metrics depend on beside the weights: seed, length limit, dtype, task and eval configuration, and a
    digest of the problems."""
    config_hash: str | None = None
    """Of the run's configuration."""
    tables: Mapping[str, str] | None = None
    """SHA-256 of each table beside it, by name within `eval/`."""
    responses: ResponseForm | None = None
    """Form of the greedy completions; null for tasks with a vocabulary of their own."""
    diversity: Diversity | None = None
    """Of the sampled completions ([Behaviours](behaviours.md#samples-of-one-problem)); null with one per problem."""

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
        ArtifactError: a file is damaged or of another version, or of another checkpoint than the one of its name.
    """
    known = {one.step: one for one in run.checkpoints()}  # none, where they were deleted or are kept elsewhere
    found = [read_evaluation(run, path) for path in (run.path / "eval").glob("step_*.json")]
    for one in found:
        checkpoint = known.get(one.step)
        if checkpoint is not None and (checkpoint.label, checkpoint.weights_sha256) != (
            one.checkpoint,
            one.weights_sha256,
        ):
            raise ArtifactError(
                f"{run.evaluation_path(checkpoint)} is of other weights than {checkpoint.label}; {_remedy(run)}"
            )
    return tuple(sorted(found, key=lambda one: one.step))


def read_evaluation(run: RunDirectory, path: Path) -> Evaluation:
    """Return the evaluation at `path`, which belongs to the run and to the tables beside it.

    Raises:
        ArtifactError: it is missing or damaged, of another run or step, or a table was changed.
    """
    found = Evaluation.read(path, remedy=_remedy(run))
    check_evaluation(run, path, found.model_dump())
    return found


def check_evaluation(run: RunDirectory, path: Path, entry: Mapping[str, Any]) -> None:
    """Check that the fields of an evaluation fit its run, its name and the tables beside it.

    Raises:
        ArtifactError: they do not; what it does not say is not compared.
    """
    step, config = entry.get("step"), entry.get("config_hash")
    if step is not None and path.stem != f"step_{step:06d}":
        raise ArtifactError(f"{path} is the evaluation of step {step}; {_remedy(run)}")
    if config is not None and run.identity()["config_hash"] not in (None, config):
        raise ArtifactError(f"{path} is of another run (its configuration is {config}); {_remedy(run)}")
    for name, digest in (entry.get("tables") or {}).items():
        try:
            verify_file(path.parent / name, digest, listed_in=path.name)
        except ArtifactError as error:
            raise ArtifactError(f"{error}; {_remedy(run)}") from None


def _remedy(run: RunDirectory) -> str:
    return f"run swerve eval {run.quoted} again"


def largest_k(evaluations: Sequence[Evaluation]) -> int:
    """Return the largest number of samples per problem; 0 where none were evaluated."""
    return max((one.k for entry in evaluations for one in entry.by_num_samples), default=0)


def rewards_are_fractions(evaluations: Sequence[Evaluation]) -> bool:
    """Return whether no mean reward leaves 0 to 1, so that it reads as a percentage beside the accuracy."""
    found = [entry.mean_reward for entry in evaluations if entry.mean_reward is not None]
    return all(one.low >= 0.0 and one.high <= 1.0 for one in found)
