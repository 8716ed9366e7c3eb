"""The part of accuracy: from counts to lines, and from two files of samples."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from swerve.artifacts.responses import Response
from swerve.artifacts.shards import WHOLE
from swerve.claim.accuracy import AccuracyPart, accuracy_part
from swerve.claim.settings import ClaimSettings
from swerve.claim.work import Side, Work
from swerve.eval.pairing import Paired
from swerve.progress import SilentProgress
from swerve.statistics.intervals import share
from swerve.types import Problem


def _part(base, trained, num=16):
    return accuracy_part(("base", "rl"), num, np.array([base, trained]))


def test_a_sharpened_model_is_better_at_one_and_worse_at_eight():
    part = _part([4] * 100, [16] * 60 + [0] * 40)
    rose, every, crossing = part.verdicts
    assert (rose.claim, rose.shown, rose.num) == ("accuracy_rose", True, 100)
    assert rose.sentence == (
        "Over 100 problems `rl` is right more often than `base`: 60.0% against 25.0% of sampled answers, +35.0 points "
        "(+25.2 to +44.7)."
    )
    assert (every.claim, every.shown) == ("better_at_every_k", False)
    assert every.sentence == (
        "Over 100 problems `rl` is not seen to be ahead with every number of tries, k = 1 to 8 (pass@k): at k = 8, "
        "60.0% against 96.2%, \u221236.2 points (\u221245.9 to \u221226.3)."
    )
    assert (crossing.claim, crossing.shown) == ("curves_cross", True)
    assert crossing.sentence == (
        "Over 100 problems `base` overtakes `rl` with more tries, from k = 4 on; `rl` is ahead up to 2; at k = 1, "
        "60.0% against 25.0%, +35.0 points (+25.2 to +44.7)."
    )
    assert (part.crossing_after, part.crossing_before) == (2, 4)
    # pass@8 of 4 right in 16: 1 - C(12, 8) / C(16, 8) = 1 - 495 / 12870.
    assert [row.k for row in part.pass_at_k] == [1, 2, 4, 8, 16]
    assert part.pass_at_k[3].base.mean == pytest.approx(1 - 495 / 12870)
    assert (part.base.mean, part.trained.mean, part.difference.mean) == (0.25, 0.6, pytest.approx(0.35))
    # Half of the cover: 60 of 100, with one problem always and one never solved.
    assert [row.probability for row in part.cover] == [0.05, 0.25, 0.5, 0.75, 0.95]
    assert part.cover[2].trained.mean == pytest.approx(61 / 102, abs=1e-3)


def test_a_model_that_is_better_everywhere():
    part = _part([2] * 60 + [0] * 40, [8] * 100)
    assert [verdict.shown for verdict in part.verdicts] == [True, True, False]
    assert part.verdicts[1].sentence == (
        "Over 100 problems `rl` is ahead with every number of tries, k = 1 to 8 (pass@k); the least at k = 1, 50.0% "
        "against 7.5%, +42.5 points (+41.0 to +43.9)."
    )
    assert part.verdicts[2].sentence == (
        "Over 100 problems `base` is not seen to overtake `rl` with more tries: at k = 8, >99.9% against 46.0%, where "
        "`rl` would have to be behind, +54.0 points (+46.4 to +61.4)."
    )


def test_a_model_that_fell():
    part = _part([8] * 100, [4] * 100)
    fell, every, crossing = part.verdicts
    assert (fell.claim, fell.shown) == ("accuracy_fell", True)
    assert fell.sentence == (
        "Over 100 problems `rl` is right less often than `base`: 25.0% against 50.0% of sampled answers, "
        "\u221225.0 points (\u221227.4 to \u221221.7)."
    )
    assert (every.shown, crossing.shown) == (False, False)
    assert (part.crossing_after, part.crossing_before) == (None, 1)


def test_models_that_are_equal():
    part = _part([4] * 100, [4] * 100)
    assert [verdict.shown for verdict in part.verdicts] == [False, False, False]
    assert part.verdicts[0].sentence == (
        "Over 100 problems no change in accuracy is to be seen: `rl` is right in 25.0% and `base` in 25.0% of sampled "
        "answers, 0.0 points (\u22122.8 to +2.8)."
    )
    assert part.verdicts[2].sentence == (
        "Over 100 problems `base` is not seen to overtake `rl` with more tries: at k = 8, 96.2% against 96.2%, where "
        "`rl` would have to be behind, 0.0 points (\u22122.8 to +2.8)."
    )


def test_a_line_has_the_interval_of_the_k_that_decides_it():
    """Better at 1 to 4, too little at 8: what is printed beside "not shown" is not the interval of the largest k."""
    part = _part([6] * 60 + [16] * 20, [8] * 60 + [16] * 20)
    rows = {row.k: row.difference for row in part.pass_at_k}
    assert [rows[k].low > 0 for k in (1, 2, 4, 8)] == [True, True, True, False]
    _, every, crossing = part.verdicts
    assert every.estimate == min((rows[k] for k in (1, 2, 4, 8)), key=lambda gain: gain.low)
    assert not every.estimate.excludes(0)
    assert crossing.sentence.startswith(
        "Over 80 problems `base` is not seen to overtake `rl` with more tries: `rl` is ahead up to k = 6; at k = 8, "
    )


def test_few_samples_have_no_curve():
    part = _part([1] * 50, [3] * 50, num=3)
    assert [verdict.claim for verdict in part.verdicts] == ["accuracy_rose"]
    assert [row.k for row in part.pass_at_k] == [1, 2, 3]  # and no claim beyond half of them


@pytest.fixture
def work(tmp_path):
    """Two files of samples, with unequal numbers of them; three problems, of which both have two."""
    work = Work(
        Side(label="base", model=None, samples=tmp_path / "base.parquet"),
        Side(label="rl", model=None, samples=tmp_path / "rl.parquet"),
        ClaimSettings(task={"kind": "addition"}),
        [],
        out=tmp_path,
        parts=None,
        shard=WHOLE,
        progress=SilentProgress(),
    )

    def responses(**right):
        return {
            name: [Response(problem=Problem(id=name, family="", question="", answer=""), correct=one) for one in values]
            for name, values in right.items()
        }

    work.paired = Paired(
        responses(a=[True, False, True, True], b=[False] * 5),
        responses(a=[True, True, False], b=[None, True, True, True]),
        ["2 of 3 problems have responses by both."],
    )
    return work


def test_each_problem_has_its_own_number_of_samples(work):
    num, right = work.counts
    assert num.tolist() == [[4, 5], [3, 3]]  # of one it is not known whether it is right
    assert right.tolist() == [[3, 0], [2, 3]]
    part = AccuracyPart.measure(work)
    assert (part.base.mean, part.trained.mean) == (pytest.approx(3 / 8), pytest.approx((2 / 3 + 1) / 2))
    assert part.greedy_base is None
    assert part.notes[1:] == (
        "Problems have 3 to 5 samples, and each one's own number counts; pass@k above k = 1 is of the 2 of 2 problems "
        "with at least 3 of both models.",
        "2 of 3 problems have responses by both.",
    )


def test_one_problem_with_one_sample_cuts_no_other():
    right, num = np.array([[4] * 40, [8] * 40]), np.full((2, 40), 16)
    whole = accuracy_part(("base", "rl"), 16, right)
    right[:, 0], num[:, 0] = (0, 1), 1
    part = accuracy_part(("base", "rl"), num, right)
    assert [row.k for row in part.pass_at_k] == [row.k for row in whole.pass_at_k] == [1, 2, 4, 8, 16]
    assert part.pass_at_k[-1].base == accuracy_part(("base", "rl"), 16, right[:, 1:]).pass_at_k[-1].base
    assert part.base.mean == pytest.approx((39 * 0.25 + 0) / 40)
    assert part.trained.mean == pytest.approx((39 * 0.5 + 1) / 40)


def test_greedy_stands_beside_where_models_are_there(work):
    work.base, work.trained = (replace(side, model="folder") for side in work.sides)
    work.greedy = (
        [Response(problem=None, correct=right) for right in (True, False)],
        [Response(problem=None, correct=True)] * 2,
    )
    part = AccuracyPart.measure(work)
    assert (part.greedy_base, part.greedy_trained) == (share(1, 2), share(2, 2))


def test_with_how_many_tries_the_base_is_right_as_often():
    part = _part([4] * 100, [8] * 100)
    (fact,) = part.facts("old", "new")
    # pass@4 of 4 right in 16: 1 - C(12, 4) / C(16, 4) = 1 - 495 / 1820; pass@2 is .45.
    assert fact == "With 4 tries `old` is right at least once in 72.8% of problems; `new` with one in 50.0%."
    (never,) = _part([0] * 100, [8] * 100).facts("old", "new")
    assert never.startswith("Even with 16 tries `old` is right at least once in 0.0")
    # Nothing to catch up with where no gain is shown, and no second try of one answer.
    assert _part([4] * 100, [4] * 100).facts("old", "new") == []
    assert _part([0] * 100, [1] * 100, num=1).facts("old", "new") == []
