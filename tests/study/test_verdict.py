"""Verdicts, against scipy's tests and intervals; and how often they are false, with settings chosen by chance."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from swerve.artifacts.study import StudyRun, StudyTrial
from swerve.study.compare import compare_runs
from swerve.study.measure import MeasuredRun
from swerve.study.study_file import StudyFile
from swerve.study.tune import Tuning, better_half, chosen

MARGIN = 0.05
TUNING = Tuning(grid={"lr": tuple(range(9))}, trials=6, seeds=(100, 101))


def judge(arms, *, start=0.3, seeds=8, tuning=None, trials=(), **rule):
    """Return the study of arms, each its accuracies by seed; the first is the baseline."""
    study = StudyFile(
        name="s",
        recipe="r",
        variants={name: {} for name in arms},
        seeds=tuple(range(seeds)),
        verdict={"measure": "accuracy", "margin": MARGIN, **rule},
        tuning=tuning,
    )
    runs = [
        StudyRun(
            variant=name,
            seed=seed,
            path="",
            state="trained",
            checkpoint="rl-4",
            values={"accuracy": float(value), "first_accuracy": start},
        )
        for name, values in arms.items()
        for seed, value in enumerate(values)
    ]
    return compare_runs(study, [MeasuredRun(run=run) for run in runs], trials=trials)


def expected(baseline, arms):
    """Return the verdicts by scipy: intervals of one sample's mean, and Holm's step-down by hand."""
    changes = {name: np.subtract(values, baseline) for name, values in arms.items()}
    p = {name: stats.ttest_1samp(change, 0.0).pvalue for name, change in changes.items()}
    rejected = set()
    for place, name in enumerate(sorted(p, key=p.__getitem__)):
        if p[name] * (len(p) - place) >= 0.05:
            break
        rejected.add(name)
    verdicts = {}
    for name, change in changes.items():
        low, high = stats.t.interval(0.95, len(change) - 1, change.mean(), stats.sem(change))
        if name in rejected:
            verdicts[name] = "better" if change.mean() > 0 else "worse"
        elif low > -MARGIN and high < MARGIN:
            verdicts[name] = "equivalent"
        else:
            verdicts[name] = "refuted" if high < MARGIN or low > -MARGIN else "not shown"
    return verdicts


def test_verdicts_are_those_of_scipy():
    draws, said = np.random.default_rng(0), set()
    for _ in range(60):
        baseline = 0.6 + 0.02 * draws.standard_normal(8)
        arms = {
            name: baseline + draws.uniform(-0.1, 0.1) + draws.uniform(0.02, 0.12) * draws.standard_normal(8)
            for name in ("a", "b", "c")
        }
        study = judge({"none": baseline, **arms})
        found = {one.variant: one.verdict for one in study.verdicts}
        assert found == expected(baseline, arms)
        said |= set(found.values())
    assert said == {"better", "worse", "equivalent", "refuted", "not shown"}


UP, NOISE = np.full(8, 0.1), np.array([1, -1, 1, -1, 1, -1, 2, -2]) / 100


@pytest.mark.parametrize(
    ("baseline", "arm", "more", "reason"),
    [
        (np.full(8, 0.3) + NOISE, 0.6 + UP, {}, r"the baseline does not learn: from its start it changes by 0.0 \("),
        (0.4 + NOISE, 0.6 + UP, {"min_gain": 0.15}, r"the baseline gains \+10.0 points, and \+15.0 were asked for"),
        (0.98 + NOISE / 10, 0.6 + NOISE, {}, "none is at 98.0%, above the ceiling of 97.0%"),
        (0.7 + NOISE, 0.98 + NOISE / 10, {}, "arm is at 98.0%, above the ceiling of 97.0%"),
        (0.7 + NOISE, 0.7 + NOISE, {}, "all seeds differ alike, which leaves no interval"),
        (0.7 + NOISE, (0.7 + UP)[:5], {}, "5 of 8 pairs of seeds are measured"),
        ([0.7], [0.8], {"seeds": 1}, "one seed says nothing of another"),
    ],
)  # fmt: skip
def test_what_does_not_hold_is_inconclusive_with_its_reason(baseline, arm, more, reason):
    (verdict,) = judge({"none": baseline, "arm": arm}, **more).verdicts
    assert verdict.verdict == "inconclusive"
    assert re.match(f"inconclusive: {reason}", verdict.words)


def test_problems_never_carry_a_verdict(measured):
    """Ten thousand problems of two seeds that contradict one another."""
    study = StudyFile(name="s", recipe="r", variants={"a": {}, "b": {}}, seeds=2, verdict={"measure": "accuracy"})
    rights = {("a", 0): 400, ("a", 1): 500, ("b", 0): 700, ("b", 1): 510}
    runs = [
        measured(variant, seed, {f"p{place}": float(place < right) for place in range(1000)}, first_accuracy=0.1 * seed)
        for (variant, seed), right in rights.items()
    ]
    found = compare_runs(study, runs)
    assert found.difference_of("accuracy", "b").p_problems < 1e-3
    assert found.verdicts[0].verdict in ("not shown", "inconclusive")


def test_words_name_the_margin():
    small, wide = NOISE / 10, NOISE[::-1] * 4
    arms = {
        "none": 0.6 + NOISE,
        "up": 0.62 + NOISE + small,
        "same": 0.6 + NOISE + NOISE[::-1],
        "far": 0.75 + NOISE + wide,
    }
    study = judge(arms)
    assert {one.variant: one.words for one in study.verdicts} == {
        "up": "better, by less than 5 points",
        "same": "equivalent within 5 points",
        "far": "better",
    }


def test_words_name_settings_at_the_end_of_what_was_tried():
    """Where the best value is the highest tried, a higher one may be better still."""

    def trial(variant, value):
        changes = {"lr": value}
        ends = TUNING.at_end(variant, changes)
        return StudyTrial(
            variant=variant, number=1, changes=changes, seeds=(100, 101), values={}, is_chosen=True, at_end=ends
        )

    lowest, *_, middle, _, highest = TUNING.drawn("none")
    arms = {"none": 0.6 + NOISE, "worse": 0.3 + NOISE[::-1], "better": 0.8 + NOISE[::-1]}
    trials = [trial("none", middle), trial("worse", highest), trial("better", lowest)]
    words = [verdict.words for verdict in judge(arms, tuning=TUNING, trials=trials).verdicts]
    assert words == [
        f"worse; lr={highest} of worse is at the end of what was tried",
        f"better; lr={lowest} of better is at the end of what was tried",
    ]
    assert judge(arms, tuning=TUNING, trials=[trial("none", highest)]).verdicts[0].words == (
        f"worse; lr={highest} of none is at the end of what was tried"
    )


def test_a_tuned_study_has_wider_intervals_for_what_another_tuning_would_choose():
    draws = np.random.default_rng(5)
    baseline = 0.6 + 0.02 * draws.standard_normal(8)
    arms = {name: baseline + 0.02 + 0.02 * draws.standard_normal(8) for name in ("a", "b")}
    tuned = judge({"none": baseline, **arms}, tuning=TUNING)
    times = np.sqrt(1 + 0.5 * 8 / 2)
    p = {}
    for name, values in arms.items():
        change = values - baseline
        error = stats.sem(change) * times
        p[name] = 2 * stats.t.sf(abs(change.mean()) / error, 7)
        (verdict,) = [verdict for verdict in tuned.verdicts if verdict.variant == name]
        expected_ends = stats.t.interval(0.95, 7, change.mean(), error)
        assert (verdict.over_seeds.low, verdict.over_seeds.high) == pytest.approx(expected_ends)
        ends = stats.t.interval(0.95, 7, change.mean(), stats.sem(change))
        over_seeds = tuned.difference_of("accuracy", name).over_seeds
        assert (over_seeds.low, over_seeds.high) == pytest.approx(ends)  # as it is
    first, second = sorted(p, key=p.__getitem__)
    holm = {first: 2 * p[first], second: max(2 * p[first], p[second])}
    assert {verdict.variant: verdict.p for verdict in tuned.verdicts} == pytest.approx(holm)


# How often a verdict is false.

RUN_SD = 0.01


def simulate(draws, means, tuning=TUNING):
    """Return the accuracies of an arm on eight test seeds, at the setting that tuning chose; `means`: of settings."""

    def run(number):
        return means[number] + RUN_SD * draws.standard_normal()

    scores = {number: [run(number)] for number in tuning.drawn("x")}
    for number in better_half(scores):
        scores[number].append(run(number))
    number = chosen(scores)
    return np.array([run(number) for _ in range(8)])


def rates(baseline_means, arm_means, num, tuning=TUNING):
    """Return how often each verdict is said."""
    draws, said = np.random.default_rng(1), Counter[str]()
    for _ in range(num):
        shared = 0.03 * draws.standard_normal(8)
        baseline, arm = (shared + simulate(draws, means, tuning) for means in (baseline_means, arm_means))
        verdict = judge({"none": baseline, "arm": arm}, tuning=tuning).verdicts[0]
        said["no loss" if verdict.words.startswith("not worse") else verdict.verdict] += 1
    return Counter({name: num_said / num for name, num_said in said.items()})


@pytest.mark.planted
@pytest.mark.parametrize("step", [0.0, RUN_SD, 8 * RUN_SD], ids=["settings alike", "settings close", "one is best"])
def test_verdicts_with_settings_chosen_by_chance_are_as_often_false_as_said(step):
    means = 0.6 - step * np.abs(np.arange(9) - 4)
    nothing = rates(means, means, 1500)
    assert nothing["better"] + nothing["worse"] <= 0.067  # 5%, and three standard errors
    assert nothing["equivalent"] > 0.8
    up, down = rates(means, means + MARGIN, 1500), rates(means + MARGIN, means, 200)
    assert min(up["better"], down["worse"]) > 0.8
    assert up["equivalent"] + up["refuted"] <= 0.037  # 2.5%, and three standard errors


@pytest.mark.planted
def test_in_the_worst_shape_a_tenth_of_verdicts_is_false():
    """One setting of nine that all are tried is so much better that tuning finds it about every other time."""
    means = 0.6 + 1.5 * RUN_SD * (np.arange(9) == 4)
    nothing = rates(means, means, 1000, TUNING.model_copy(update={"trials": None}))
    assert 0.05 < nothing["better"] + nothing["worse"] < 0.14
