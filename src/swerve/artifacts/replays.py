"""What `swerve replay` writes into a run's `replay/`: replays with one thing changed, and who taught a target."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

import pyarrow as pa
from pydantic import Field, computed_field

from swerve.artifacts.record import Record
from swerve.artifacts.run import RunDirectory

TARGETS = {
    "first_wrong": "the mean log-probability of the right tokens at the first wrong places",
    "solution": "the mean log-probability of the written solutions",
}
"""What can be taught, and what it is."""
TAUGHT_SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.int32()) for name in ("index", "group", "sample", "position", "token_id")),
        pa.field("effect", pa.float64()),
    ]
)
"""Of the table beside a `Taught`: every token that the steps learned from, `index` the step of the stage from 0."""
_HOLDS = (0.5, 2.0)
"""Ratios of estimated to measured effect between which a step's estimates are believed."""


class ReplayRow(Record):
    """A target of one replay after one step."""

    replay: str
    step: int
    """Of the stage, from 1."""
    target: str
    value: float
    unchanged: float
    """The same of the unchanged replay."""
    difference: float
    weight_distance: float
    """L2 distance of all weights from those of the unchanged replay."""
    other_rollouts: float | None = None
    """Share of the step's completions whose tokens are others than those recorded; None: it samples none."""
    other_verdicts: float | None = None
    """Share of the step's completions whose verdict is another than the recorded one."""


class Replays(Record):
    """Replays of the same steps, each with one thing changed."""

    run: str
    stage: str
    start: int
    """Step of the stage after which the replays begin."""
    stop: int
    """Step of the stage at which they end."""
    rollouts: str
    """`recorded` or `again`."""
    replays: list[str]
    """What is changed in each."""
    rows: list[ReplayRow]
    floor: dict[str, float]
    """By target the largest difference that rounding makes: of a replay with nothing changed but the micro-batches."""
    spread: dict[str, float]
    """By target the largest difference that other seeds make, where rollouts are sampled again."""
    horizons: dict[str, dict[str, int | None]]
    """By replay and target the last step at which the difference is above ten floors, and above the spread over seeds
    where there is one; None: nowhere."""
    ranks: dict[str, dict[int, float | None]]
    """By target, after each step, the rank correlation of the replays' differences with those after the first step;
    empty with fewer than five replays."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def steps_lost(self) -> dict[str, dict[str, float | None]]:
        """By replay and target how many steps before the last the unchanged replay was where the changed one ends.

        Between the steps that were measured its course is taken to be straight. None: it was nowhere there, as where
        the change does no harm, or more than all steps after the first are lost.
        """
        lost: dict[str, dict[str, float | None]] = {}
        for name in self.replays:
            for target in self.floor:
                rows = [row for row in self.rows if (row.replay, row.target) == (name, target)]
                lost.setdefault(name, {})[target] = _steps_lost(rows)
        return lost


def _steps_lost(rows: Sequence[ReplayRow]) -> float | None:
    """Return the steps before the last row's at which the unchanged value was last that row's value."""
    end = rows[-1]
    if end.value > end.unchanged:
        return None
    for before, after in reversed([*pairwise(rows)]):
        if min(before.unchanged, after.unchanged) <= end.value <= max(before.unchanged, after.unchanged):
            rise = after.unchanged - before.unchanged
            share = (after.unchanged - end.value) / rise if rise else 0.0
            return end.step - after.step + share * (after.step - before.step)
    return None


class StepCheck(Record):
    """Whether the estimates of a step hold; effects in nats."""

    step: int
    """Of the stage, from 1."""
    estimated: float
    """Sum of the tokens' effects."""
    gradient_product: float
    """The same from the gradient that the optimizer was given."""
    measured: float
    """How far the target is from where the step without its gradient would have left it: moments alone."""
    group: int
    """The group with the largest effect."""
    group_estimated: float
    group_measured: float
    """How far the target is from where the step without that group's gradient would have left it."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def holds(self) -> bool:
        """Whether the sum is the gradient's within a hundredth, and both effects that were measured are near."""
        same = abs(self.estimated - self.gradient_product) <= 0.01 * abs(self.gradient_product)
        pairs = ((self.estimated, self.measured), (self.group_estimated, self.group_measured))
        return same and all(other and _HOLDS[0] <= one / other <= _HOLDS[1] for one, other in pairs)


class TaughtGroup(Record):
    """A group and the sum of its tokens' effects."""

    step: int
    group: int
    effect: float


class TaughtWord(Record):
    """A token of the vocabulary, wherever it stands."""

    token: str
    num: int
    share: float
    """Of the absolute effect of all tokens."""


class TaughtRollout(Record):
    """A rollout and what each of its tokens taught."""

    step: int
    group: int
    sample: int
    correct: bool | None
    effect: float
    """Sum of its tokens' effects."""
    pieces: list[str]
    """Its text, a piece for each token; what stands before a token belongs to it."""
    effects: list[float]
    """Of each token."""


class Taught(Record):
    """Who taught a target; effects in nats."""

    target: str = Field(pattern=f"^({'|'.join(TARGETS)})$")
    steps: list[StepCheck]
    groups: list[TaughtGroup]
    """Those with the largest effects."""
    words: list[TaughtWord]
    """Those with the largest shares."""
    rollouts: list[TaughtRollout]
    """Those with the largest effects."""
    num_tokens: int
    num_removed: int
    """Tokens of each set that was removed."""
    proof: Replays
    """Without the tokens of the largest effects (`top`), the lowest (`bottom`), and five random sets."""

    def difference(self, name: str) -> float:
        """Return how far the target is at the last step from the unchanged replay, without a set of tokens."""
        rows = [row for row in self.proof.rows if row.replay == name and row.target == self.target]
        return rows[-1].difference

    @property
    def lost(self) -> float:
        """How far the target falls without the tokens of the largest effects, beyond what random ones do; nats."""
        random = [self.difference(name) for name in self.proof.replays if name.startswith("random")]
        return fmean(random) - self.difference("top")


def read_taught(run: RunDirectory) -> dict[str, Taught]:
    """Return who taught what, of each time that it was asked, by the name of its file in `replay/`.

    Raises:
        ArtifactError: a file is damaged.
    """
    paths = (path for target in TARGETS for path in sorted(run.path.glob(f"replay/*-{target}.json")))
    remedy = f"run swerve replay {run.quoted} --taught again, or delete the file"
    return {path.stem: Taught.read(path, remedy=remedy) for path in paths}
