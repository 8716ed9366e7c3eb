"""Which problems a step draws: a pure function of the seed, the stage, the step and what was recorded before it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from statistics import fmean
from typing import Any, TypeVar

from swerve.config.curricula import Curriculum, DifficultyCurriculum, SuccessRateCurriculum
from swerve.config.stages import RlStage
from swerve.config.supervised_stages import SftStage
from swerve.errors import ConfigError, nearest
from swerve.problems import ProblemFamily
from swerve.problems.mixture import Quota, mixed_parts
from swerve.seeds import derive_seed
from swerve.train.phases import Phase
from swerve.types import Problem

T = TypeVar("T")
Record = Mapping[str, Any]
"""A line of problems.jsonl: `step`, and `problems` as a list of [id, number solved, number tried]."""


class Draws:
    """The problems that a stage draws.

    A step has the slots 0, 1, ...: `per_step` that it always fills, and `spare` ones that it may. The parts of a
    mixture take the slots in the proportion of their weights; each part is drawn by the curriculum on its own:

        shuffled      endless passes over all problems, each in another order
        difficulty    the same over the easiest problems: `pool_size` of them at that step
        success_rate  without replacement in a step, in the proportion of `solve_weights`
    """

    def __init__(
        self,
        parts: Sequence[tuple[str, float, Sequence[Problem]]],
        curriculum: Curriculum,
        *,
        seed: int,
        stage: str,
        steps: int,
        per_step: int,
        spare: int = 0,
        start: int = 0,
        before: tuple[int, int] = (0, 0),
        validation: Sequence[Problem] = (),
    ) -> None:
        """Make the draws of a stage.

        Args:
            parts: label, weight and problems of each part of the task.
            curriculum: of the stage.
            seed: of the run.
            stage: the stage's label.
            steps: the stage's.
            per_step: slots of a step that are always filled.
            spare: further slots of a step.
            start: the first step that is drawn, where earlier ones have other draws.
            before: slots of those earlier steps, always filled and spare.
            validation: problems that are held out of the stage.

        Raises:
            ConfigError: the curriculum sorts by a difficulty that a problem does not have.
        """
        self._seed, self._stage, self._steps = seed, stage, steps
        self._per_step, self._spare = per_step, spare
        self._start, self._before = start, before
        self._curriculum = curriculum
        self._rates = SolveRates(curriculum) if isinstance(curriculum, SuccessRateCurriculum) else None
        self.validation = tuple(validation)
        # The parts take their slots in a seeded order; each has its problems in the order of the pool.
        order = list(range(len(parts)))
        random.Random(self._derive("parts")).shuffle(order)
        self._quota = Quota([weight for _, weight, _ in parts], order=order)
        self._parts = [(label, self._sorted(label, problems)) for label, _, problems in parts]

    def _derive(self, *path: str | int) -> int:
        return derive_seed(self._seed, self._stage, *path)

    def _sorted(self, label: str, problems: Sequence[Problem]) -> tuple[Problem, ...]:
        """Return a part's problems from the easiest on, where the curriculum is one of difficulty."""
        if not isinstance(self._curriculum, DifficultyCurriculum):
            return tuple(problems)
        for problem in problems:
            if problem.difficulty is None:
                raise ConfigError(
                    f"stage '{self._stage}': curriculum difficulty, but problem {problem.id!r} of family "
                    f"'{problem.family}' has no difficulty; use curriculum: shuffled or success_rate"
                )
        ties = list(problems)
        random.Random(self._derive(*_path(label), "ties")).shuffle(ties)
        return tuple(sorted(ties, key=lambda problem: problem.difficulty or 0.0))

    def draw(
        self, slots: range, *, step: int, history: Sequence[Record] = (), pool_step: int | None = None
    ) -> list[Problem]:
        """Return the problems of some slots of the step with 0-based number `step`.

        Args:
            slots: within the step.
            step: of the stage.
            history: what was solved before this step, a list that grows; only `success_rate` reads it.
            pool_step: the step whose pool is drawn from; `step` by default.
        """
        drawn: list[Problem] = []
        orders: dict[tuple[str, ...], tuple[int, ...]] = {}
        for slot in slots:
            stream, first, number = self._place(slot, step)
            part, index = self._quota.part(number)
            label, problems = self._parts[part]
            path = (*_path(label), *stream)
            if self._rates is not None:
                # Each stream of a part has one weighted order in a step.
                if path not in orders:
                    weights = self._rates.read(history).weights(problems)
                    orders[path] = _without_replacement(weights, self._derive(*path, "weighted", step))
                order, place = orders[path], index - self._quota.before(first, part)
            else:
                # Endless passes over the pool.
                pool_step = step if pool_step is None else pool_step
                size = pool_size(self._curriculum, pool_step, self._steps, len(problems))
                pool = ("pool", size) if size < len(problems) else ()
                order, place = shuffled_order(size, self._derive(*path, *pool, "epoch", index // size)), index
            drawn.append(problems[order[place % len(order)]])
        return drawn

    def _place(self, slot: int, step: int) -> tuple[tuple[str, ...], int, int]:
        """Return the stream of numbers that a slot belongs to, its first number of this step and the slot's own.

        Spare slots of a mixture are numbered on their own: numbers that are skipped where a step needs no spare ones
        would shift the parts' shares.
        """
        made = step - self._start
        if len(self._parts) == 1:
            first = sum(self._before) + made * (self._per_step + self._spare)
            return (), first, first + slot
        if slot < self._per_step or not self._spare:
            first = self._before[0] + made * self._per_step
            return (), first, first + slot
        first = self._before[1] + made * self._spare
        return ("spare",), first, first + slot - self._per_step

    def figures(self, drawn: Sequence[Problem], step: int, history: Sequence[Record] = ()) -> dict[str, float | None]:
        """Return what to log of a step's draw.

        `pool_share` is the share of the problems that are drawn from; with `success_rate` the share that would, drawn
        evenly, be as spread: (sum w)^2 / (N sum w^2).
        """
        total = sum(len(problems) for _, problems in self._parts)
        if self._rates is None:
            sizes = (pool_size(self._curriculum, step, self._steps, len(problems)) for _, problems in self._parts)
            pool_share = sum(sizes) / total
        else:
            rates = self._rates.read(history)
            weights = [weight for _, problems in self._parts for weight in rates.weights(problems)]
            pool_share = sum(weights) ** 2 / (total * sum(weight**2 for weight in weights))
        difficulties = [problem.difficulty for problem in drawn if problem.difficulty is not None]
        is_known = drawn and len(difficulties) == len(drawn)
        return {"mean_difficulty": fmean(difficulties) if is_known else None, "pool_share": pool_share}


def _path(label: str) -> tuple[str, ...]:
    """Return the part's place in the paths of seeds; a task that is no mixture has none."""
    return ("part", label) if label else ()


def pool_size(curriculum: Curriculum, step: int, steps: int, total: int) -> int:
    """Return how many of the problems a step draws from: all, or by difficulty the easiest ones.

    ceil(total (start + (1 - start) min(1, step / ramp))), step counted from 0, at least 1.

    >>> curriculum = DifficultyCurriculum(start_share=0.2, ramp_steps=4)
    >>> [pool_size(curriculum, step, 10, 100) for step in range(6)]
    [20, 40, 60, 80, 100, 100]
    """
    if not isinstance(curriculum, DifficultyCurriculum):
        return total
    ramp = curriculum.ramp_steps or max(1, steps // 2)
    # Shares are written in decimals: 0.2 + 0.8 x 0.5 of 100 problems are 60, not the 61 of 60.000000000000001.
    share = curriculum.start_share + (1.0 - curriculum.start_share) * min(1.0, step / ramp)
    return max(1, min(total, math.ceil(total * share - 1e-9)))


class SolveRates:
    """How often each problem was solved lately: a fold over the recorded steps."""

    def __init__(self, curriculum: SuccessRateCurriculum, records: Sequence[Record] = ()) -> None:
        self._curriculum = curriculum
        self._counts: dict[str, tuple[float, float]] = {}
        self._num_read = 0
        self.read(records)

    def read(self, records: Sequence[Record]) -> SolveRates:
        """Take in the records after those read before; return itself."""
        for record in islice(records, self._num_read, None):
            for name, solved, tried in record["problems"]:
                before_solved, before_tried = self._counts.get(name, (0.0, 0.0))
                memory = self._curriculum.memory
                self._counts[name] = (memory * before_solved + solved, memory * before_tried + tried)
        self._num_read = len(records)
        return self

    def of(self, problems: Sequence[Problem]) -> list[float]:
        """Return the estimated success rate of each problem.

        With the target t and, of solved and tried completions, the sums in which each time the problem was drawn counts
        `memory` of the next one: p = (solved + t) / (tried + 1).
        """
        counts = [self._counts.get(problem.id, (0.0, 0.0)) for problem in problems]
        return [(solved + self._curriculum.target) / (tried + 1) for solved, tried in counts]

    def weights(self, problems: Sequence[Problem]) -> list[float]:
        """Return the share of the draws of each problem."""
        return solve_weights(self.of(problems), self._curriculum)


def solve_weights(rates: Sequence[float], curriculum: SuccessRateCurriculum) -> list[float]:
    """Return the share of the draws of each problem, from its success rate p.

    v(p) = (p / t)^(2 t) ((1 - p) / (1 - t))^(2 (1 - t)) is 1 at the target t and 0 at 0 and 1; for t = 1/2 it is
    4 p (1 - p), the variance of the reward. With the exploration e and N problems, w = (1 - e) v / sum v + e / N.

    >>> solve_weights([0.5, 0.0, 1.0, 0.5], SuccessRateCurriculum(exploration=0.2))
    [0.45, 0.05, 0.05, 0.45]
    """
    target, even = curriculum.target, 1.0 / len(rates)
    values = [
        (rate / target) ** (2 * target) * ((1 - rate) / (1 - target)) ** (2 * (1 - target)) if 0 < rate < 1 else 0.0
        for rate in rates
    ]
    total = sum(values)
    if total == 0.0:
        return [even] * len(rates)
    exploration = curriculum.exploration
    return [(1 - exploration) * value / total + exploration * even for value in values]


@lru_cache(maxsize=32)  # the parts of a mixture take turns
def shuffled_order(num: int, seed: int) -> tuple[int, ...]:
    """Return the numbers below `num` in a seeded order."""
    order = list(range(num))
    random.Random(seed).shuffle(order)
    return tuple(order)


def _without_replacement(weights: Sequence[float], seed: int) -> tuple[int, ...]:
    """Return all places in the order of a weighted draw without replacement (Efraimidis and Spirakis, 2006)."""
    rng = random.Random(seed)
    keys = [-math.log(1.0 - rng.random()) / weight if weight > 0 else math.inf for weight in weights]
    return tuple(sorted(range(len(weights)), key=lambda place: (keys[place], place)))


def stage_draws(
    phases: Sequence[Phase], family: ProblemFamily, problems: Sequence[Problem], *, seed: int
) -> tuple[Draws, ...]:
    """Return the draws of each phase of a stage from the training problems; a phase continues where the last one ended.

    Raises:
        ConfigError: no problem is left by a phase's `where` or `mix`, `mix` names a part that there is not, or the
            curriculum needs a difficulty that is missing.
    """
    draws, before = [], (0, 0)
    for phase in phases:
        # How many problems a step draws, and how many more it may, to refill groups without a gradient.
        stage, spare = phase.stage, 0
        per_step = {"sft": "batch_size", "reject": "num_prompts", "dpo": "max_prompts"}.get(stage.kind)
        per_step = getattr(stage, per_step or "prompts_per_step")
        if isinstance(stage, RlStage) and stage.zero_variance == "refill":
            spare = per_step * stage.max_refills
        # The passes of a phase begin where those of the phases before it ended.
        pool, held_out = _pool(phase, problems, seed=seed)
        draws.append(
            Draws(
                _parts(phase, family, problems, pool),
                stage.curriculum,
                seed=seed,
                stage=stage.label,
                steps=stage.steps,
                per_step=per_step,
                spare=spare,
                start=phase.steps.start,
                before=before,
                validation=held_out,
            )
        )
        before = (before[0] + len(phase.steps) * per_step, before[1] + len(phase.steps) * spare)
    return tuple(draws)


def _pool(phase: Phase, problems: Sequence[Problem], *, seed: int) -> tuple[list[Problem], list[Problem]]:
    """Return the problems that the phase draws from and those that it holds out."""
    stage = phase.stage
    pool = [problem for problem in problems if stage.where.admits(problem)]
    if not pool:
        kinds = sorted({problem.kind for problem in problems})
        known = [problem.difficulty for problem in problems if problem.difficulty is not None]
        difficulties = (
            f", their difficulties {min(known):g} to {max(known):g}" if known else ", and none has a difficulty"
        )
        raise ConfigError(
            f"stage '{phase.title}': none of {len(problems)} training problems is within 'where' "
            f"({stage.where.model_dump(exclude_defaults=True)}); their kinds are {', '.join(kinds[:10])}"
            f"{difficulties}"
        )
    share = stage.validation_share if isinstance(stage, SftStage) and not stage.data else None
    return hold_out(pool, share, key=lambda problem: problem.id, seed=derive_seed(seed, stage.label, "validation"))


def _parts(
    phase: Phase, family: ProblemFamily, problems: Sequence[Problem], pool: Sequence[Problem]
) -> list[tuple[str, float, list[Problem]]]:
    """Return label, weight and problems of each part of the task that the phase draws from, `pool` of all problems."""
    mix = phase.stage.mix
    labels = [label for label, _, _ in mixed_parts(family, problems) if label]
    for name in mix:
        if name not in labels:
            known = f"the task has the parts {', '.join(labels)}" if labels else "the task is no mixture"
            raise ConfigError(f"stage '{phase.title}': 'mix' names '{name}', and {known}{nearest(name, labels)}")
    parts = [(label, mix.get(label, 0.0) if mix else weight, part) for label, weight, part in mixed_parts(family, pool)]
    drawn = [part for part in parts if part[1]]
    if not drawn:
        raise ConfigError(f"stage '{phase.title}': no problem within 'where' is of a part in 'mix' ({', '.join(mix)})")
    return drawn


def hold_out(items: Sequence[T], share: float | None, *, key: Callable[[T], str], seed: int) -> tuple[list[T], list[T]]:
    """Return the items to train on and those held out: all items of a share of the keys, at least one; None: none.

    Raises:
        ConfigError: there is only one key.

    >>> hold_out(["a1", "a2", "b1", "c1"], 0.3, key=lambda item: item[0], seed=1)
    (['a1', 'a2', 'c1'], ['b1'])
    """
    if share is None:
        return list(items), []
    keys = list(dict.fromkeys(map(key, items)))
    num = max(1, round(share * len(keys)))
    if num >= len(keys):
        raise ConfigError(f"validation_share={share:g} of {len(keys)} problems leaves none to train on; give more data")
    held = {keys[place] for place in shuffled_order(len(keys), seed)[:num]}
    return [item for item in items if key(item) not in held], [item for item in items if key(item) in held]
