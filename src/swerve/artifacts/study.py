"""A study, `study.json`: variants of a recipe over seeds, and what tells them apart. Free of torch."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from swerve.artifacts.comparison import MEASURES as COMPARED
from swerve.artifacts.comparison import Measure
from swerve.artifacts.record import Record
from swerve.artifacts.run import RUNS
from swerve.errors import ArtifactError
from swerve.estimates import Estimate

STUDY_SCHEMA_VERSION = 1
RunState = Literal["trained", "collapsed", "failed", "missing"]
Verdict = Literal["better", "worse", "equivalent", "refuted", "not shown", "inconclusive"]


MEASURES: Mapping[str, Measure] = MappingProxyType(
    {
        "accuracy": Measure(title="greedy accuracy", unit="share"),
        "sampled_accuracy": Measure(title="sampled accuracy", unit="share"),
        "training_accuracy": Measure(title="training accuracy", unit="share"),
        "first_accuracy": Measure(title="first greedy accuracy", unit="share"),
        "first_sampled_accuracy": Measure(title="first sampled accuracy", unit="share"),
        "best_accuracy": Measure(title="best greedy accuracy", unit="share"),
        "peak_step": Measure(title="step of the best accuracy", unit="count"),
        "entropy": Measure(title="token entropy", unit="nats"),
        "length": Measure(title="completion length", unit="tokens"),
        "distinct_right": COMPARED["distinct_right"],
        "similarity": Measure(title="similarity of samples", unit="cosine"),
        "embedding_similarity": COMPARED["embedding_similarity"],
        "reflections": COMPARED["reflections"],
        "empty_thinking": COMPARED["empty_thinking"],
        "truncated": COMPARED["truncated"],
        "unanswered": COMPARED["unanswered"],
        "divergence": Measure(title="KL to the stage's start", unit="nats"),
        "kl": Measure(title="KL term of training", unit="nats", least=-math.inf),
        "taught_first_wrong": Measure(title="taught by a tenth: first wrong places", unit="nats", least=-math.inf),
        "taught_solution": Measure(title="taught by a tenth: solutions", unit="nats", least=-math.inf),
    }
)
"""By name, in the order of tables. Those of the last evaluated checkpoint, but for `divergence` and `kl`, which are of
the last step that recorded them, `training_accuracy`, which is of the last tenth of the steps with rewards, the two of
the first evaluation, and `best_accuracy`, which is of the one that `peak_step` (a global step) names. The last two are
of runs whose tokens `swerve replay --taught` has mapped: how far the target falls, in nats, without the tenth of tokens
that taught it most, beyond what it falls without random ones."""

CURVES: Mapping[str, Measure] = MappingProxyType(
    {
        "accuracy": MEASURES["accuracy"],
        "sampled_accuracy": MEASURES["sampled_accuracy"],
        "training_accuracy": MEASURES["training_accuracy"],
        "reward": Measure(title="reward in training", unit="count", least=-math.inf),
        "loss": Measure(title="loss", unit="count", least=-math.inf),
        "surprise": Measure(title="surprise of sampled tokens in training", unit="nats"),
        "training_length": Measure(title="completion length in training", unit="tokens"),
        "generated": Measure(title="tokens generated in training", unit="tokens"),
        "length": MEASURES["length"],
        "entropy": MEASURES["entropy"],
        "training_entropy": Measure(title="token entropy in training", unit="nats"),
        "divergence": MEASURES["divergence"],
        "kl": MEASURES["kl"],
    }
)
"""What is drawn over the global step."""

TOKENS_AT_EQUAL_ACCURACY = "tokens_at_equal_accuracy"
PAIR_MEASURES: Mapping[str, Measure] = MappingProxyType(
    {TOKENS_AT_EQUAL_ACCURACY: Measure(title="tokens at equal accuracy", unit="tokens")}
)
"""Of two runs of one seed: the fewest mean tokens of greedy answers with an accuracy, less the baseline's."""

Trend = Literal[
    "rises", "falls", "up_then_down", "down_then_up", "steady", "not_rising", "higher", "lower", "no_difference_shown"
]
TREND_WORDS: Mapping[Trend, str] = MappingProxyType(
    {
        "rises": "rises",
        "falls": "falls",
        "up_then_down": "rises, then falls",
        "down_then_up": "falls, then rises",
        "steady": "neither rises nor falls",
        "not_rising": "does not rise",
        "higher": "higher than the baseline",
        "lower": "lower than the baseline",
        "no_difference_shown": "no difference from the baseline",
    }
)
"""What a study may expect of a curve over training, or (the last three) of a difference from the baseline."""


class StudyRun(Record):
    """One run: a variant with a seed."""

    variant: str
    seed: int
    path: str
    """Its directory, as the study's directory has it."""
    state: RunState
    """`collapsed`: training stopped there, and what was measured is of the last evaluated checkpoint before."""
    reason: str | None = None
    """Why it is neither trained nor collapsed."""
    task: str = ""
    """What its problems are, as its recipe has it."""
    model: str = ""
    """Architecture and number of parameters."""
    config_hash: str | None = None
    torch_version: str | None = None
    """That it was trained with."""
    checkpoint: str | None = None
    """Label of the last evaluated checkpoint."""
    weights_sha256: str | None = None
    """Of that checkpoint."""
    collapse: str | None = None
    """The first metric that collapsed, also where training went on."""
    collapse_step: int | None = None
    """Global step at which it was found."""
    values: Mapping[str, float] = {}
    """By measure; what was not measured is not there."""
    by_kind: Mapping[str, float] = {}
    """Greedy accuracy by kind of problem, where there are several."""
    start_by_kind: Mapping[str, float] = {}
    """The same before the run's first update, where that was evaluated."""

    @property
    def measured(self) -> bool:
        """Whether there is an evaluation."""
        return self.checkpoint is not None


class StudyMean(Record):
    """A measure of a variant."""

    measure: str
    kind: str = ""
    """Kind of problem that it is of; empty: all problems."""
    variant: str
    """`start`, by kind only: the models that the runs began with."""
    num_seeds: int
    mean: float
    over_seeds: Estimate | None
    """The mean over seeds with Student's t interval; null with one seed, or where all are alike."""


class StudyDifference(Record):
    """A measure of a variant minus that of the baseline."""

    measure: str
    variant: str
    num_seeds: int
    """Seeds that both have a run of."""
    mean: float
    """Mean over these seeds of the difference between the two runs of a seed."""
    over_seeds: Estimate | None
    """With Student's t interval over seeds, whose inference is to other training runs; null with one seed, or
    where all are alike."""
    p_seeds: float | None
    """Paired t-test over seeds; null with one seed, or where all differ alike but for 0."""
    p_seeds_adjusted: float | None
    """By Holm over the variants."""
    effect_size: float | None
    """Cohen's d of the pairs: the mean difference in standard deviations of the seeds' differences."""
    num_problems: int | None
    """Problems that the runs compared have in common; null for measures that are not of a problem."""
    over_problems: Estimate | None
    """With its interval over problems, whose inference is to other problems and these same runs."""
    p_problems: float | None
    """McNemar's test of one greedy answer per problem, else sign flips of the problems' differences."""
    p_problems_adjusted: float | None
    """By Holm over the variants."""


class StudyTrend(Record):
    """Something that a study expects of a variant, and whether its runs show it."""

    variant: str
    measure: str
    expected: Trend
    is_shown: bool | None
    """Of a shape: whether most of the runs have it; of a difference: whether its interval over seeds says so. Null:
    too few points or seeds to tell."""
    num_runs: int
    """Runs with enough points of the curve, or pairs of runs."""
    num_shown: int | None
    """Of these, with the expected shape; null for differences, and without such a run."""
    levels: tuple[float, float, float] | None = None
    """Means over runs of the first, the highest (where a curve falls and rises, the lowest) and the last level."""
    turn: float | None = None
    """Mean global step of the highest or lowest level."""
    change: Estimate | None
    """Last level less the first, or the difference from the baseline, with Student's t interval over seeds; null with
    one seed."""


class StudyCurve(Record):
    """A metric of a variant over training."""

    metric: str
    variant: str
    steps: tuple[int, ...]
    """Global steps."""
    mean: tuple[float, ...]
    """Over the seeds that measured the step."""
    low: tuple[float, ...]
    """The lowest of these seeds."""
    high: tuple[float, ...]


class Detectable(Record):
    """Which difference a study finds with 80% power in a two-sided test at 5%."""

    measure: str
    unit: Literal["seeds", "problems"]
    num: int
    sd: float
    """Standard deviation of the paired differences."""
    is_assumed: bool
    """False: it was measured on runs that are done."""
    num_comparisons: int = 1
    """Of which it has to be found, by Holm's rule, if its p-value is the smallest."""
    difference: float | None
    """Null with one seed or problem."""


class StudyDesign(Record):
    """What was decided before the runs."""

    measure: str
    """What the verdict is about."""
    margin: float
    """The smallest difference that matters."""
    min_gain: float
    """What the baseline has to gain from its start, beside more than 0 over seeds."""
    ceiling: float
    """No variant compared may be above."""
    tuning_seeds: tuple[int, ...] = ()
    """Empty: nothing is tuned."""
    num_by_seed: tuple[int, ...] = ()
    """Settings of each variant that run with each of these seeds."""
    num_problems: int | None = None
    """That settings are judged on; null: nothing is tuned."""
    widening: float = 1.0
    """How many times as wide as over seeds alone the verdicts' intervals are, for what another tuning would choose."""


class StudyTrial(Record):
    """A setting of a variant, tried on seeds and problems that the verdict does not see."""

    variant: str
    number: int
    """In the variant's grid, from 1."""
    changes: Mapping[str, Any]
    seeds: tuple[int, ...]
    """That it ran with."""
    values: Mapping[str, float]
    """By measure, means over these seeds; what was not measured is not there."""
    is_chosen: bool
    """For the runs that are compared."""
    at_end: tuple[str, ...] = ()
    """Of the chosen setting: keys whose value is the lowest or highest tried; a wider grid may do better."""


class StudyVerdict(Record):
    """What the interval over seeds says of a variant, by the rule that was named before."""

    variant: str
    verdict: Verdict
    """Of the difference from the baseline: `better` and `worse`: not 0, by Holm's p; `equivalent`: its interval lies
    within the margin; `refuted`: at one end within it, so that a gain (or a loss, as the words say) of the
    margin or more is; `inconclusive`: the comparison itself does not hold."""
    words: str
    """The same with its margin, or with the reason why it is inconclusive."""
    over_seeds: Estimate | None
    """The difference with the interval that this rests on: over seeds, and widened where settings were tuned."""
    p: float | None
    """Of the paired t-test over seeds, widened likewise, by Holm over the variants."""


class StudyVariant(Record):
    """A variant and what became of its runs."""

    name: str
    changes: Mapping[str, Any]
    """Dotted keys of the recipe and their values."""
    num_runs: int
    """With an evaluation."""
    num_collapsed: int
    """Of these."""
    first_collapse: int | None
    """Earliest global step of a collapse; null: none collapsed."""


class Study(Record):
    """Variants of a recipe, compared with the first of them."""

    schema_version: int = STUDY_SCHEMA_VERSION
    swerve_version: str
    name: str
    recipe: str
    baseline: str
    seeds: tuple[int, ...]
    confidence: float
    """Coverage of the intervals."""
    variants: tuple[StudyVariant, ...]
    """The baseline first."""
    runs: tuple[StudyRun, ...]
    means: tuple[StudyMean, ...]
    differences: tuple[StudyDifference, ...]
    curves: tuple[StudyCurve, ...]
    detectable: tuple[Detectable, ...]
    kinds: tuple[StudyMean, ...] = ()
    """Greedy accuracy by kind, the start first."""
    trends: tuple[StudyTrend, ...] = ()
    """What the study's file expects."""
    design: StudyDesign | None = None
    """Null: nothing was named before, and there is no verdict."""
    trials: tuple[StudyTrial, ...] = ()
    """By variant and number."""
    gain: Estimate | None = None
    """Of the baseline: the design's measure at the end less that at the first evaluation, over seeds."""
    verdicts: tuple[StudyVerdict, ...] = ()
    """Of all variants but the baseline."""

    @property
    def measures(self) -> tuple[str, ...]:
        """The measures that some run has, the headline first."""
        return tuple(dict.fromkeys(mean.measure for mean in self.means))

    @property
    def headline(self) -> str | None:
        """The measure that the study is about; None: nothing was measured."""
        return next(iter(self.measures), None)

    def mean_of(self, measure: str, variant: str) -> StudyMean | None:
        """Return a measure of a variant, if it was measured."""
        return next((mean for mean in self.means if (mean.measure, mean.variant) == (measure, variant)), None)

    def difference_of(self, measure: str, variant: str) -> StudyDifference | None:
        """Return the difference of a variant from the baseline, if both were measured."""
        return next((each for each in self.differences if (each.measure, each.variant) == (measure, variant)), None)

    def curves_of(self, metric: str) -> Sequence[StudyCurve]:
        """Return the curves of a metric, a variant each."""
        return [curve for curve in self.curves if curve.metric == metric]


def find_study(name: str | Path) -> Path | None:
    """Return the directory of a study, named by its path or by its name under `runs/studies/`; None: not a study.

    Raises:
        ArtifactError: the study was not compared yet.
    """
    marks = ("run.json", "study.json", "study.yaml")
    places = (Path(name), RUNS / name, RUNS / "studies" / name)
    folder = next((place for place in places if any((place / mark).is_file() for mark in marks)), None)
    if folder is None or (folder / "run.json").is_file():
        return None
    if not (folder / "study.json").is_file():
        raise ArtifactError(
            f"the study {folder} was not compared yet; do it with: swerve study {shlex.quote(str(folder))} --gather"
        )
    return folder


def read_study(folder: Path) -> Study:
    """Return what a study found, from its directory.

    Raises:
        ArtifactError: it is no study's directory, none of its runs was compared yet, or the file is damaged.
    """
    return Study.read(folder / "study.json", remedy=f"run swerve study {shlex.quote(str(folder))} --gather")


def study_report_path(folder: Path) -> Path:
    """Return where a study's page and figures are written.

    Raises:
        ArtifactError: a link is there, which would take them out of a study that somebody sent.
    """
    path = folder / "report"
    if path.is_symlink():
        raise ArtifactError(
            f"{path} is a link to {os.readlink(path)}, where the page would go; put a folder in its place"
        )
    return path
