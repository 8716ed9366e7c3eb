"""Would the base do as well under another prompt?

What RL teaches may be what a few examples in the prompt, or another template, bring out of the base. A gain over the
base's best prompt is one over each of its prompts: the largest of several shares of right answers is taken, and each
difference has to be shown by itself (intersection-union), so that the choice needs no correction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from swerve.artifacts.responses import Response
from swerve.claim.part import Count, Part, Points, Row, Share
from swerve.claim.verdicts import rows_of, verdict
from swerve.claim.work import NotMeasuredError, Work
from swerve.statistics import paired_difference
from swerve.statistics.clusters import Array, Clusters
from swerve.statistics.intervals import mean_interval
from swerve.text import counted, percent_as
from swerve.types import clusters_of


class PromptRow(Row):
    """The base under one prompt."""

    prompt: str
    """File of its samples; the first is the prompt of all other parts."""
    base: Share
    difference: Points
    """The trained model's accuracy less the base's under this prompt, paired over problems."""
    problems: Count


class PromptsPart(Part):
    """Would another prompt have done it?"""

    needs_models = False
    is_of_samples = True

    prompts: tuple[PromptRow, ...] = ()

    @classmethod
    def measure(cls, work: Work) -> PromptsPart:
        """Measure it; see `Part.measure`."""
        if not work.prompts:
            raise NotMeasuredError(
                f"needs answers by `{work.base.label}` under other prompts: {work.base.label}=FILE for each, after the "
                "first"
            )
        pairs = [work.paired, *work.paired_prompts]
        places = [Path(side.samples or side.model or "") for side in (work.base, *work.prompts)]
        names = [place.name for place in places]
        names = names if len({*names}) == len(names) else list(map(str, places))
        problems = dict(zip(work.samples[0], work.problem_of_each, strict=True))
        compared = [[name for name in pair.first if name in problems] for pair in pairs]
        clusters = [clusters_of(problems[name] for name in own) for own in compared]
        rates = [
            (_rates(pair.first[name] for name in own), _rates(pair.second[name] for name in own))
            for pair, own in zip(pairs, compared, strict=True)
        ]
        labels = (work.base.label, work.trained.label)
        part = prompts_part(labels, names, rates, clusters, compared)
        notes = [note for pair in pairs[1:] for note in pair.notes]
        return part.model_copy(update={"notes": (*part.notes, *notes)})


def prompts_part(
    labels: tuple[str, str],
    names: Sequence[str],
    pairs: Sequence[tuple[Array, Array]],
    clusters: Sequence[Clusters | None] | None = None,
    problems: Sequence[Sequence[str]] | None = None,
) -> PromptsPart:
    """Return what the base's accuracies under several prompts show.

    Args:
        labels: of the base and of the trained model.
        names: of the prompts.
        pairs: of each prompt the shares of right samples of problems, by the base under it and by the trained model.
        clusters: of each prompt which problems belong together (their groups); by default each is its own cluster.
        problems: of each prompt the names of the problems.
    """
    clusters = clusters or [None] * len(pairs)
    differences: list[Any] = [
        paired_difference(*rates, clusters=own, bounds=(-1.0, 1.0))[0]
        for rates, own in zip(pairs, clusters, strict=True)
    ]

    # The prompt over which the least is shown decides.
    least = min(range(len(pairs)), key=lambda number: differences[number].low)
    size = differences[least]
    base, trained = (percent_as(float(rates.mean()), size) for rates in pairs[least])
    more = "is right" if size.low > 0 else "is not seen to be right"
    before, after = (f"`{label}`" for label in labels)
    said = f"{after} {more} more often than {before} under each of {counted(len(pairs), 'prompt')}: under "
    said += f"`{names[least]}`, where the least is shown, in {trained} of its answers against {base}"
    line = verdict("accuracy_rose_over_prompts", said, size, shown=size.low > 0, num=len(pairs[least][0]))
    rows = rows_of((f"under {names[least]}", "trained"), *pairs[least], problems[least] if problems else ())
    of = clusters[least]
    rows |= {} if of is None else {"group": tuple(map(str, of))}
    return PromptsPart(
        verdicts=(line.model_copy(update={"rows": rows}),),
        notes=("Prompts that were not tried may do better.",),
        prompts=tuple(
            PromptRow(
                prompt=name,
                base=mean_interval(base, clusters=own, bounds=(0.0, 1.0)),
                difference=difference,
                problems=len(base),
            )
            for name, (base, _), difference, own in zip(names, pairs, differences, clusters, strict=True)
        ),
    )


def _rates(samples: Iterable[Sequence[Response]]) -> Array:
    """Return the share of right samples of each problem."""
    return np.array([np.mean([bool(one.correct) for one in group]) for group in samples])
