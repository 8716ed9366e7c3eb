"""Score models on problems by every measure, and compare them: paired differences over the problems they share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import get_args

from swerve.artifacts.comparison import MEASURES, Comparison, Difference, ModelScores, PublishedRow, Scores
from swerve.artifacts.responses import Response, by_problem
from swerve.behaviours.diversity import Embedder
from swerve.behaviours.measures import Group, problem_values
from swerve.errors import ConfigError, MismatchError, nearest
from swerve.estimates import Estimate
from swerve.formats.text_tables import by_number
from swerve.statistics import benjamini_hochberg, mean_interval, paired_difference, share, statistic_interval
from swerve.statistics.clusters import Array
from swerve.statistics.intervals import divided
from swerve.statistics.jackknife import UNBOUNDED
from swerve.statistics.pass_at_k import SampledProblem, sampling_curve
from swerve.types import Problem, RewardStatus

_CONFIDENCE = 0.95
"""Coverage of the intervals of a comparison."""
Values = Mapping[str, Mapping[str, float]]
"""Measure -> value at each problem of which it is known (`problem_values`)."""


def model_scores(
    groups: Mapping[str, Group],
    values: Values,
    *,
    model: str,
    temperature: float | None,
    confidence: float,
    part_of: Callable[[Problem], str] | None = None,
) -> ModelScores:
    """Return the scores of a model's responses, over all problems and by kind.

    Args:
        groups: the responses to each problem.
        values: of every measure at the problems.
        model: its label.
        temperature: of the responses; 0: greedy; None: of all temperatures, or not known.
        confidence: coverage of the intervals.
        part_of: the part of a mixture that a problem is of; None: it is no mixture.
    """

    def scores_by(name_of: Callable[[Problem], str]) -> dict[str, Scores]:
        """Return the scores of the problems of each name, numbers in names counting as numbers."""
        named: dict[str, list[str]] = {}
        for problem, group in groups.items():
            named.setdefault(name_of(group[0].problem), []).append(problem)
        return {name: _scores(values, named[name], single, confidence) for name in sorted(named, key=by_number)}

    # Counts are over all completions, pass@k over the samples of each problem.
    responses = list(chain.from_iterable(groups.values()))
    statuses = Counter(response.status for response in responses)
    num_samples = max(map(len, groups.values()))
    single = num_samples == 1
    sampled = [
        SampledProblem(
            answers=[response.extracted for response in group], right=[bool(response.correct) for response in group]
        )
        for group in groups.values()
    ]
    by_kind = scores_by(lambda problem: problem.kind)
    return ModelScores(
        **dict(_scores(values, list(groups), single, confidence)),
        model=model,
        temperature=temperature,
        num_samples=num_samples,
        origin="file" if responses[0].dialect else "model",
        statuses={name: statuses[name] for name in get_args(RewardStatus)},
        num_unanswered=sum(not response.answered for response in responses),
        curve=() if temperature == 0 or single else tuple(sampling_curve(sampled, confidence=confidence)),
        by_kind=by_kind,
        by_part=scores_by(part_of) if part_of else None,
        kind_average=_kind_average(groups, values["accuracy"], list(by_kind), confidence),
    )


def _scores(values: Values, problems: Sequence[str], single: bool, confidence: float) -> Scores:
    estimates: dict[str, Estimate] = {}
    measured: dict[str, int] = {}
    for name, by_name in values.items():
        known = [by_name[problem] for problem in problems if problem in by_name]
        # A fraction of one response each is a share of problems; rewards may have any scale.
        is_share = name in MEASURES and MEASURES[name].unit == "share"
        if single and is_share and {*known} <= {0.0, 1.0}:
            estimate = share(round(sum(known)), len(known), confidence=confidence)
        else:
            bounds = MEASURES[name].bounds if name in MEASURES else (0.0, 1.0)
            are_bounded = all(bounds[0] <= value <= bounds[1] for value in known)
            estimate = mean_interval(known, confidence=confidence, bounds=bounds if are_bounded else UNBOUNDED)
        if estimate is not None:
            estimates[name] = estimate
            measured |= {name: len(known)} if len(known) < len(problems) else {}
    return Scores.model_validate({"num_problems": len(problems), "num_measured": measured, **estimates})


def _kind_average(
    groups: Mapping[str, Group], accuracy: Mapping[str, float], kinds: Sequence[str], confidence: float
) -> Estimate | None:
    """Return the mean over kinds of the accuracy of each, every kind counting the same; None with one kind."""
    if len(kinds) < 2:
        return None

    def average(sums: Array) -> Array:
        return divided(sums[:, ::2], sums[:, 1::2]).mean(axis=1)  # type: ignore[no-any-return]

    columns: list[list[float]] = []
    for kind in kinds:
        of_kind = [float(groups[problem][0].problem.kind == kind) for problem in accuracy]
        columns += [[inside * right for inside, right in zip(of_kind, accuracy.values(), strict=True)], of_kind]
    return statistic_interval(average, columns, confidence=confidence, bounds=(0.0, 1.0))


def compare(
    models: Iterable[Sequence[Response]],
    *,
    pooled: bool = False,
    baseline: str | None = None,
    published: Sequence[PublishedRow] = (),
    leave_out: Collection[str] = (),
    embed: Embedder | None = None,
) -> Comparison:
    """Compare models with a baseline, measure by measure over the problems that both have, at each temperature.

    A row is compared with the baseline's row of the same temperature or, where it has none, with its first row.

    Args:
        models: the graded responses of each model, whose label they have; a model may come several times.
        pooled: of a model with several temperatures also a row of all of them, before the others.
        baseline: label of the model that the others are compared with; by default the first.
        published: accuracies from elsewhere, which stand beside and are compared with nothing.
        leave_out: measures that are not wanted.
        embed: texts -> vectors, for the similarity of embeddings.

    Raises:
        ConfigError: no model is called like the baseline.
        MismatchError: a model has no problem in common with the baseline.
    """
    # Each model's values by temperature and problem.
    rows: list[ModelScores] = []
    values: list[Values] = []
    for responses in models:
        temperatures = list(dict.fromkeys(response.temperature for response in responses))
        if pooled and len(temperatures) > 1:
            temperatures.insert(0, None)
        for temperature in temperatures:
            groups = by_problem(response for response in responses if temperature in (None, response.temperature))
            values.append(problem_values(groups, leave_out=leave_out, embed=embed))
            label = responses[0].label or ""
            rows.append(model_scores(groups, values[-1], model=label, temperature=temperature, confidence=_CONFIDENCE))

    # Each other model's differences from the baseline.
    labels = [row.model for row in rows]
    base = labels[0] if baseline is None else baseline
    check_baseline(base, labels)
    of_base = [(row, own) for row, own in zip(rows, values, strict=True) if row.model == base]
    differences: list[dict[str, Difference]] = []
    for row, own in zip(rows, values, strict=True):
        before, early = next((pair for pair in of_base if pair[0].temperature == row.temperature), of_base[0])
        name = f"{base} {before.decoding}"
        differences.append({} if row.model == base else measure_differences(early, own, name))
        if row.model != base and not differences[-1]:
            raise MismatchError(f"'{row.model}' and '{base}' have no problem in common; sample both with the same task")
    compared = tuple(
        row.model_copy(update={"differences": of_row}) for row, of_row in zip(rows, adjusted(differences), strict=True)
    )
    return Comparison(confidence=_CONFIDENCE, baseline=base, rows=compared, published=tuple(published))


def check_baseline(baseline: str | None, labels: Sequence[str]) -> None:
    """Raise ConfigError unless a model has the baseline's label, or none is given."""
    if baseline not in (None, *labels):
        known = list(dict.fromkeys(labels))
        raise ConfigError(
            f"--baseline '{baseline}' is not one of the models{nearest(str(baseline), known)}; use {', '.join(known)}"
        )


def measure_differences(before: Values, after: Values, compared_with: str) -> dict[str, Difference]:
    """Return each measure of the second minus that of the first, over the problems of which it is known for both."""
    differences = {}
    for name, measure in MEASURES.items():
        early, late = before.get(name, {}), after.get(name, {})
        shared = [problem for problem in early if problem in late]
        estimate, p_value = paired_difference(
            [early[problem] for problem in shared],
            [late[problem] for problem in shared],
            confidence=_CONFIDENCE,
            bounds=measure.difference_bounds,
        )
        if estimate is not None:
            differences[name] = Difference(
                compared_with=compared_with, num_problems=len(shared), estimate=estimate, p_value=p_value
            )
    return differences


def adjusted(differences: Sequence[Mapping[str, Difference]]) -> list[dict[str, Difference]]:
    """Return the differences of all models with p-values adjusted for the number of them all."""
    p_values = iter(benjamini_hochberg([each.p_value for of_row in differences for each in of_row.values()]))
    return [
        {name: each.model_copy(update={"p_adjusted": next(p_values)}) for name, each in of_row.items()}
        for of_row in differences
    ]
