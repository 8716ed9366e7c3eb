"""Score models on problems by every measure, and compare them: paired differences over the problems they share."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import groupby
from typing import Any, Literal, get_args

from swerve.artifacts.comparison import MEASURES, Comparison, Difference, ModelScores, PublishedRow, Scores
from swerve.artifacts.responses import Response, by_problem
from swerve.behaviours.diversity import Embedder
from swerve.behaviours.measures import Group, ProblemValues
from swerve.errors import ConfigError, MismatchError, nearest
from swerve.estimates import Estimate
from swerve.formats.problem_joins import with_groups
from swerve.formats.text_tables import by_number
from swerve.grading.text import Misread
from swerve.statistics import benjamini_hochberg, mean_interval, paired_difference, share, statistic_interval
from swerve.statistics.clusters import Array
from swerve.statistics.jackknife import UNBOUNDED
from swerve.statistics.pass_at_k import SampledProblem, sampling_curve
from swerve.statistics.ratios import divided
from swerve.types import Problem, RewardStatus

_CONFIDENCE = 0.95
"""Coverage of the intervals of a comparison."""
Values = Mapping[str, Mapping[str, float]]
"""Measure -> value at each problem of which it is known (`problem_values`)."""


class ModelResponses:
    """What is kept of the responses of one model: values of measures, statuses and answers, no text and no token."""

    def __init__(
        self,
        *,
        part_of: Callable[[Problem], str] | None = None,
        leave_out: Collection[str] = (),
        embed: Embedder | None = None,
    ) -> None:
        """Begin with no response.

        Args:
            part_of: the part of a mixture that a problem is of; None: it is no mixture.
            leave_out: measures that are not wanted.
            embed: texts -> vectors, for the similarity of embeddings.
        """
        self._values = ProblemValues(leave_out=leave_out, embed=embed)
        self._part_of = part_of
        self._kinds: dict[str, str] = {}
        self._clusters: dict[str, str] = {}
        self._parts: dict[str, str] = {}
        self._statuses: Counter[str | None] = Counter()
        self.graders: dict[str, None] = {}
        """That judged the responses, in order; of what another program judged none."""
        self.misread = Misread()
        """Of the responses that were judged wrong here."""
        self._sampled: list[SampledProblem] = []
        self._num_unanswered: int | None = 0
        self._num_samples = 0
        self._origin: Literal["file", "model"] = "model"

    def add(self, problem: str, group: Group) -> None:
        """Take all responses to a problem."""
        known = with_groups(group)[0].problem
        if not self._kinds and group[0].dialect:
            self._origin = "file"
        self._kinds[problem] = sys.intern(known.kind)
        if known.group is not None:
            self._clusters[problem] = sys.intern(known.cluster)
        if self._part_of is not None:
            self._parts[problem] = self._part_of(known)
        self._values.add(problem, group)
        self._statuses.update(response.status for response in group)
        if any(response.status for response in group):
            self.graders[sys.intern(known.grader or known.family)] = None
        self.misread.merge(misread_of(group))
        answered = [response.answered for response in group]
        if None in answered or self._num_unanswered is None:
            self._num_unanswered = None
        else:
            self._num_unanswered += answered.count(False)
        self._num_samples = max(self._num_samples, len(group))
        answers = [None if response.extracted is None else sys.intern(response.extracted) for response in group]
        right = [response.verdict for response in group]
        if None not in right:
            self._sampled.append(SampledProblem(answers=answers, right=list(map(bool, right))))

    @property
    def problems(self) -> Collection[str]:
        """That there are responses to."""
        return self._kinds.keys()

    @property
    def clusters(self) -> Mapping[str, str]:
        """Of each problem that has a group, the name of its cluster."""
        return self._clusters

    @property
    def values(self) -> Values:
        """Of each measure, by problem."""
        return self._values.known

    def scores(self, *, model: str, temperature: float | None, confidence: float) -> ModelScores:
        """Return the scores over all problems and by kind.

        Args:
            model: its label.
            temperature: of the responses; 0: greedy; None: of all temperatures, or not known.
            confidence: coverage of the intervals.
        """
        # Counts are over all completions, pass@k over the samples of each problem.
        values, kinds, clusters = self.values, self._kinds, self._clusters
        single = self._num_samples == 1

        def scores_by(names: Mapping[str, str]) -> dict[str, Scores]:
            """Return the scores of the problems of each name, numbers in names counting as numbers."""
            named: dict[str, list[str]] = {}
            for problem, name in names.items():
                named.setdefault(name, []).append(problem)
            return {
                name: _scores(values, named[name], single, confidence, clusters)
                for name in sorted(named, key=by_number)
            }

        by_kind = scores_by(kinds)
        return ModelScores(
            **dict(_scores(values, list(kinds), single, confidence, clusters)),
            model=model,
            temperature=temperature,
            num_samples=self._num_samples,
            origin=self._origin,
            statuses={name: self._statuses[name] for name in get_args(RewardStatus)},
            num_unanswered=self._num_unanswered,
            curve=() if temperature == 0 or single else tuple(sampling_curve(self._sampled, confidence=confidence)),
            by_kind=by_kind,
            by_part=scores_by(self._parts) if self._part_of else None,
            kind_average=_kind_average(kinds, values.get("accuracy", {}), list(by_kind), confidence, clusters),
        )


def _clusters_of(problems: Iterable[str], clusters: Mapping[str, str]) -> list[str] | None:
    """Return the name of each problem's cluster; None where each is its own."""
    return [clusters.get(problem, f"problem {problem}") for problem in problems] if clusters else None


def _scores(
    values: Values, problems: Sequence[str], single: bool, confidence: float, clusters: Mapping[str, str]
) -> Scores:
    estimates: dict[str, Estimate] = {}
    measured: dict[str, int] = {}
    for name, by_name in values.items():
        measured_at = [problem for problem in problems if problem in by_name]
        known, names = [by_name[problem] for problem in measured_at], _clusters_of(measured_at, clusters)
        # A fraction of one response each is a share of problems; rewards may have any scale.
        is_share = name in MEASURES and MEASURES[name].unit == "share"
        if names is None and single and is_share and {*known} <= {0.0, 1.0}:
            estimate = share(round(sum(known)), len(known), confidence=confidence)
        else:
            bounds = MEASURES[name].bounds if name in MEASURES else (0.0, 1.0)
            are_bounded = all(bounds[0] <= value <= bounds[1] for value in known)
            bounds = bounds if are_bounded else UNBOUNDED
            estimate = mean_interval(known, clusters=names, confidence=confidence, bounds=bounds)
        if estimate is not None:
            estimates[name] = estimate
            measured |= {name: len(known)} if len(known) < len(problems) else {}
    return Scores.model_validate({"num_problems": len(problems), "num_measured": measured, **estimates})


def _kind_average(
    kind_of: Mapping[str, str],
    accuracy: Mapping[str, float],
    kinds: Sequence[str],
    confidence: float,
    clusters: Mapping[str, str],
) -> Estimate | None:
    """Return the mean over kinds of the accuracy of each, every kind counting the same.

    None with one kind, or one of which no accuracy is known.
    """
    if len(kinds) < 2 or len({kind_of[problem] for problem in accuracy}) < len(kinds):
        return None

    def average(sums: Array) -> Array:
        return divided(sums[:, ::2], sums[:, 1::2]).mean(axis=1)  # type: ignore[no-any-return]

    columns: list[list[float]] = []
    for kind in kinds:
        of_kind = [float(kind_of[problem] == kind) for problem in accuracy]
        columns += [[inside * right for inside, right in zip(of_kind, accuracy.values(), strict=True)], of_kind]
    names = _clusters_of(accuracy, clusters)
    return statistic_interval(average, columns, clusters=names, confidence=confidence, bounds=(0.0, 1.0))


def compare(
    models: Iterable[Iterable[Response]],
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
        models: the graded responses of each model, whose label they have; a model may come several times. Of an
            iterator, such as `StoredSamples.samples`, those to one problem stand together and are held at a time.
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
    values: list[ModelResponses] = []
    misread = Misread()
    for responses in models:
        label, of_model = _by_temperature(responses, pooled=pooled, leave_out=leave_out, embed=embed)
        for temperature, measured in of_model.items():
            values.append(measured)
            rows.append(measured.scores(model=label, temperature=temperature, confidence=_CONFIDENCE))
            if temperature is None or None not in of_model:
                misread.merge(measured.misread)

    # Each other model's differences from the baseline.
    labels = [row.model for row in rows]
    base = labels[0] if baseline is None else baseline
    check_baseline(base, labels)
    of_base = [(row, own) for row, own in zip(rows, values, strict=True) if row.model == base]
    differences: list[dict[str, Difference]] = []
    for row, own in zip(rows, values, strict=True):
        before, early = next((pair for pair in of_base if pair[0].temperature == row.temperature), of_base[0])
        name, clusters = f"{base} {before.decoding}", {**own.clusters, **early.clusters}
        differences.append(
            {} if row.model == base else measure_differences(early.values, own.values, name, clusters=clusters)
        )
        if row.model != base and not any(problem in early.problems for problem in own.problems):
            raise MismatchError(f"'{row.model}' and '{base}' have no problem in common; sample both with the same task")
    compared = tuple(
        row.model_copy(update={"differences": of_row}) for row, of_row in zip(rows, adjusted(differences), strict=True)
    )
    graders = dict.fromkeys(name for own in values for name in own.graders)
    return Comparison(
        confidence=_CONFIDENCE,
        baseline=base,
        rows=compared,
        published=tuple(published),
        graders=tuple(graders),
        notes=(misread.note,) if misread.note else (),
    )


def _by_temperature(
    responses: Iterable[Response], *, pooled: bool, **options: Any
) -> tuple[str, dict[float | None, ModelResponses]]:
    """Return the label of some responses, and what is kept of those of each temperature; None: of all together."""
    label, of_each = "", dict[float | None, ModelResponses]()
    together: ModelResponses | None = None
    for problem, group in _groups(responses):
        label = label or group[0].label or ""
        temperatures = list(dict.fromkeys(response.temperature for response in group))
        # Up to the second temperature, the first one's are all that there is.
        if pooled and together is None and len({*of_each, *temperatures}) > 1:
            together = deepcopy(next(iter(of_each.values()), ModelResponses(**options)))
        if together is not None:
            together.add(problem, group)
        for temperature in temperatures:
            own = [response for response in group if response.temperature == temperature]
            of_each.setdefault(temperature, ModelResponses(**options)).add(problem, own)
    return label, of_each if together is None else {None: together, **of_each}


def _groups(responses: Iterable[Response]) -> Iterator[tuple[str, Group]]:
    """Yield the responses to each problem; of an iterator, whose problems stand together, one group is held."""
    if not isinstance(responses, Iterator):
        yield from by_problem(responses).items()
        return
    for problem, group in groupby(responses, key=lambda response: response.problem.id):
        yield problem, list(group)


def misread_of(responses: Iterable[Response]) -> Misread:
    """Return the count of responses that were judged wrong here though they end with their gold answer."""
    misread = Misread()
    for response in responses:
        if response.status and response.answered and response.correct is False:
            misread.add(response.problem, response.text)
    return misread


def check_baseline(baseline: str | None, labels: Sequence[str]) -> None:
    """Raise ConfigError unless a model has the baseline's label, or none is given."""
    if baseline not in (None, *labels):
        known = list(dict.fromkeys(labels))
        raise ConfigError(
            f"--baseline '{baseline}' is not one of the models{nearest(str(baseline), known)}; use {', '.join(known)}"
        )


def measure_differences(
    before: Values, after: Values, compared_with: str, *, clusters: Mapping[str, str]
) -> dict[str, Difference]:
    """Return each measure of the second minus that of the first, over the problems of which it is known for both.

    Args:
        before: measure -> problem -> value.
        after: the same of the second.
        compared_with: what the first is called.
        clusters: of each problem that has a group, the name of its cluster.
    """
    differences = {}
    for name, measure in MEASURES.items():
        early, late = before.get(name, {}), after.get(name, {})
        shared = [problem for problem in early if problem in late]
        estimate, p_value = paired_difference(
            [early[problem] for problem in shared],
            [late[problem] for problem in shared],
            clusters=_clusters_of(shared, clusters),
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
