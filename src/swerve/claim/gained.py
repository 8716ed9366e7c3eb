"""What was gained and lost, and what does the base write already?

A problem that the base never solved in its samples may be one that it can solve. How probable the right answers are
that the trained model wrote is read from the base's own probabilities, without sampling:

    bound = sum of exp(sum of log p_base(token)) over the distinct right completions that came to their end

It is never above the base's chance of a right sample, so 1 / bound samples at most are expected to hold one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from swerve.claim.part import Chance, Cost, Count, Number, Part, Row, Share
from swerve.claim.settings import ClaimSettings
from swerve.claim.verdicts import ClaimVerdict
from swerve.claim.work import NotMeasuredError, Work
from swerve.estimates import Estimate
from swerve.statistics import mean_interval
from swerve.statistics.mixtures import newly_solved, newly_solved_at_most
from swerve.statistics.sample_counts import most_have
from swerve.text import counted, number_interval

_TIMES = 10
"""Times the samples that were taken, within which the base is expected to write a right answer."""
_LEAST_SAMPLES = 4
"""Of most problems, below which what more samples would solve is not estimated."""
_CHANCES = (0.0, 1.0)


class GainedRow(Row):
    """A problem that the trained model solved and the base never did."""

    problem: str
    right: Count
    """Samples of the trained model."""
    bound: Chance
    """The base's probability of the right answers that the trained model wrote: no less than this."""
    samples_needed: Number
    """1 / bound: so many samples of the base are expected to hold one, at most."""


class GainedPart(Part):
    """What was gained and lost?"""

    needs_models = False
    is_of_samples = True

    both: Count = None
    only_base: Count = None
    only_trained: Count = None
    neither: Count = None
    newly_solved: Number = None
    """How many that the base never solved as many samples again would solve, with its 90% interval."""
    newly_solved_at_most: Number = None
    """Upper end of the number expected; not known where problems have groups."""
    mean_bound: Share = None
    """The base's mean probability of the right answers that the trained model wrote; at most its accuracy."""
    mean_own: Share = None
    """The same of the trained model: how much of its own mass is on them."""
    gained: tuple[GainedRow, ...] = ()

    @classmethod
    def measure(cls, work: Work) -> GainedPart:
        """Measure it; see `Part.measure`."""
        nums, right = work.counts
        num, clusters = most_have(nums), work.clusters
        base, trained = right > 0

        # What the base's own probabilities add.
        notes, bounds, own = [], [], []
        if num < _LEAST_SAMPLES:
            notes.append(
                "How many more problems as many samples again would solve is not determined: most problems have "
                f"{counted(num, 'sample')}, and it takes {_LEAST_SAMPLES}."
            )
        try:
            bounds, own = right_mass(work)
        except NotMeasuredError as error:
            notes.append(f"The bound without sampling {error}.")
        gained = [
            GainedRow(problem=name, right=count, bound=bound, samples_needed=1 / bound if bound else None)
            for name, before, count, bound in zip(work.samples[0], base, right[1].tolist(), bounds, strict=False)
            if count and not before
        ]
        if own:
            notes.append(
                f"`{work.trained.label}` writes these right answers word for word with a chance of {np.mean(own):.2g}, "
                f"and `{work.base.label}` with {np.mean(bounds):.2g}: where the first is small, the bound is loose."
            )
        return GainedPart(
            verdicts=reached(work.base.label, gained, num),
            notes=tuple(notes),
            both=(base & trained).sum(),
            only_base=(base & ~trained).sum(),
            only_trained=(trained & ~base).sum(),
            neither=(~base & ~trained).sum(),
            newly_solved=newly_solved(right[0], nums[0], clusters=clusters) if num >= _LEAST_SAMPLES else None,
            newly_solved_at_most=newly_solved_at_most(right[0]) if num >= _LEAST_SAMPLES and not clusters else None,
            mean_bound=mean_interval(bounds, clusters=clusters if bounds else None, bounds=_CHANCES),
            mean_own=mean_interval(own, clusters=clusters if own else None, bounds=_CHANCES),
            gained=tuple(gained),
        )

    def facts(self, base: str, trained: str) -> list[str]:
        """Return which model solved how many problems, and what more samples would add; see `Part.facts`."""
        only_trained, only_base, both, neither = (
            num or 0 for num in (self.only_trained, self.only_base, self.both, self.neither)
        )
        lines = [
            f"Of {counted(only_trained + only_base + both + neither, 'problem')} `{trained}` alone solved "
            f"{only_trained:,}, `{base}` alone {only_base:,}, both {both:,} and neither {neither:,}."
        ]
        if isinstance(self.newly_solved, Estimate):
            more = number_interval(self.newly_solved)
            lines.append(
                f"With as many answers again `{base}` should solve about {more} problems more; a 90% interval."
            )
        return lines

    @classmethod
    def cost(cls, settings: ClaimSettings, num_problems: int, num_runs: int) -> Cost:
        """Return what it takes; see `Part.cost`."""
        return Cost(sequences=2 * num_problems * settings.num_samples)  # both read them all, if all are right


def right_mass(work: Work) -> list[list[float]]:
    """Return both models' probability of the distinct right completions that the trained one wrote, by problem.

    Raises:
        NotMeasuredError: only samples are there.
        ElsewhereError: a shard does none of this.
    """
    model, _ = work.models
    from swerve.models.model_folder import stop_ids  # not where only samples are there

    # Texts that the base too would have written to their last token and ended there.
    base = work.load(model)
    ends = {*stop_ids(base.model, base.tokenizer)}
    distinct = set()
    for problem, group in work.samples[1].items():
        for each in group:
            *before, last = each.completion_ids
            if each.correct and last in ends and ends.isdisjoint(before):
                distinct.add((problem, each.completion_ids))
    texts, masses = sorted(distinct), []
    for side, model, samples in zip(work.sides, work.models, work.samples, strict=True):
        sequences = [(samples[problem][0].prompt_ids, ids) for problem, ids in texts]  # as this model is asked
        mass = dict.fromkeys(samples, 0.0)
        logprobs = work.logprobs(f"gained-{side.label}", model, sequences)
        for (problem, _), values in zip(texts, logprobs, strict=True):
            mass[problem] += float(np.exp(values.sum()))
        masses.append([min(1.0, value) for value in mass.values()])  # rounding may lift it above
    return masses


def reached(label: str, gained: Sequence[GainedRow], num_samples: int) -> tuple[ClaimVerdict, ...]:
    """Return whether the base writes the answers to the problems that only the trained model solved.

    Shown if the bound of at least half of them says that ten times the samples that were taken are expected to hold a
    right one. As it is never above the base's chance, that cannot be shown by luck. Nothing without such a problem.

    Args:
        label: of the base.
        gained: these problems.
        num_samples: that were taken of each problem.
    """
    if not gained:
        return ()
    most = _TIMES * num_samples
    within = sum(row.bound * most >= 1 for row in gained)
    shown = 2 * within >= len(gained)
    if len(gained) == 1:
        (row,) = gained
        needed = f"is not seen to solve it within {most:,} tries"
        if shown:
            needed = f"should solve it in about {1 / row.bound:,.0f} tries"
        sentence = f"One problem is new after RL, and `{label}` {needed}. One problem decides nothing."
    else:
        sentence = (
            f"Of {len(gained)} problems new after RL `{label}` should solve {within} within {most:,} tries of each"
        )
        sentence += "." if shown else "; whether it would the others is not known."
    return (ClaimVerdict(claim="base_reaches_gained", shown=shown, sentence=sentence, num=len(gained)),)
