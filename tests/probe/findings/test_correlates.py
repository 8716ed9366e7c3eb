from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from swerve.artifacts.files import dump_json
from swerve.artifacts.responses import Response
from swerve.probe.engine.forward import STATISTICS
from swerve.probe.engine.measured import Measurements
from swerve.probe.findings.correlates import divergence_correlates, move_directions
from swerve.probe.findings.token_shares import good_moves
from swerve.statistics import benjamini_hochberg
from swerve.types import Problem


def rollouts(seed: int, *, num: int = 12, kinds: str = "{} carries", has_difficulty: bool = True) -> Measurements:
    """Two checkpoints; lengths 1 to 4; the second checkpoint's divergence follows the entropy exactly."""
    rng = np.random.default_rng(seed)
    lengths = [1 + index % 4 for index in range(num)]
    columns: dict[str, Any] = {name: np.ones((2, sum(lengths))) for name in STATISTICS}
    columns["entropy_ref"] = np.tile(rng.random(sum(lengths)), (2, 1))
    columns["js"] = np.stack([rng.random(sum(lengths)), columns["entropy_ref"][0] ** 3])
    return Measurements(
        sequences=tuple(
            Response(
                sequence_id=index,
                problem=Problem(
                    id=f"p{index // 2}",
                    family="addition",
                    question="",
                    answer="",
                    kind=kinds.format(index // 3),
                    difficulty=float(index // 3) if has_difficulty else None,
                ),
                prompt_ids=(1,),
                completion_ids=tuple(range(length)),
                text="",
                spans=(),
                wrong={},
                extracted=None,
                correct=bool(rng.random() < 0.5),
                label="dpo-1",
            )
            for index, length in enumerate(lengths)
        ),
        checkpoints=("rl-1", "rl-2"),
        references=("dpo-1",) * 2,
        columns=columns,
        categories=("word",) * sum(lengths),
    )


DATA = rollouts(0)


def by_name(figures: list[dict[str, Any]]) -> dict[tuple[str, str, str], dict[str, Any]]:
    return {(one.checkpoint, one.level, one.correlate): one for one in figures}


def test_difficulty_is_the_problems_own_and_never_read_from_its_kind() -> None:
    """`AIME 2024` is a contest of a year, not a problem of difficulty 2024."""
    data = rollouts(0, kinds="AIME 202{}", has_difficulty=False)
    found = by_name(divergence_correlates(data, divergence="js"))
    assert found["rl-1", "rollout", "difficulty"].num == 0
    assert found["rl-1", "rollout", "difficulty"].estimate is None


def test_correlations_are_spearmans() -> None:
    figures = by_name(divergence_correlates(DATA, divergence="js"))
    series = {label: [float(values.mean()) for values in DATA.by_sequence("js", label)] for label in DATA.checkpoints}
    others = {
        "correct": [float(one.correct) for one in DATA.sequences],
        "difficulty": [float(index // 3) for index in range(12)],
        "length": DATA.lengths.tolist(),
        "entropy_ref": [float(values.mean()) for values in DATA.by_sequence("entropy_ref", "rl-1")],
    }
    for label, means in series.items():
        for name, values in others.items():
            found = figures[label, "rollout", name]
            assert found.num == 12
            assert found.estimate.mean == pytest.approx(spearmanr(means, values).statistic)
            assert found.estimate.low <= found.estimate.mean <= found.estimate.high
        tokens = figures[label, "token", "entropy_ref"]
        index = DATA.checkpoints.index(label)
        expected = spearmanr(DATA.columns["js"][index], DATA.columns["entropy_ref"][index]).statistic
        assert tokens.num == 30
        assert tokens.estimate.mean == pytest.approx(expected)
    assert figures["rl-2", "token", "entropy_ref"].estimate.mean == pytest.approx(1)
    dump_json(list(figures.values()))


def test_one_family_of_tests() -> None:
    figures = divergence_correlates(DATA, divergence="js")
    adjusted = benjamini_hochberg([one.p_value for one in figures])
    assert len(figures) == 2 * 5
    assert [one.p_adjusted for one in figures] == adjusted
    assert by_name(figures)["rl-2", "token", "entropy_ref"].p_adjusted <= 0.05


def test_the_interval_resamples_problems() -> None:
    """All rollouts of one problem: nothing to resample, so nothing to say."""
    one = tuple(replace(item, problem=replace(item.problem, id="p")) for item in DATA.sequences)
    figures = divergence_correlates(replace(DATA, sequences=one), divergence="js")
    assert [(item.estimate, item.p_value, item.p_adjusted) for item in figures] == [(None, None, None)] * 10


def test_what_is_not_known_is_none() -> None:
    unknown = by_name(divergence_correlates(rollouts(1, has_difficulty=False), divergence="js"))
    assert unknown["rl-1", "rollout", "difficulty"].num == 0
    assert unknown["rl-1", "rollout", "difficulty"].estimate is None
    assert unknown["rl-1", "rollout", "difficulty"].p_adjusted is None
    assert unknown["rl-1", "rollout", "length"].estimate is not None
    right = tuple(replace(item, correct=True) for item in DATA.sequences)
    same = by_name(divergence_correlates(replace(DATA, sequences=right), divergence="js"))
    assert (same["rl-1", "rollout", "correct"].num, same["rl-1", "rollout", "correct"].estimate) == (12, None)


def test_a_rollout_without_a_verdict_is_neither_right_nor_wrong() -> None:
    """Figures of outcomes are those of the others alone; what needs no outcome is of all."""
    half = replace(
        DATA,
        sequences=tuple(
            replace(item, correct=None) if index % 3 == 0 else item for index, item in enumerate(DATA.sequences)
        ),
    )
    known = half.select(lambda item: item.correct is not None)
    found, others = (by_name(divergence_correlates(data, divergence="js")) for data in (half, known))
    for checkpoint in DATA.checkpoints:
        key = (checkpoint, "rollout", "correct")
        assert (found[key].num, found[key].estimate) == (8, others[key].estimate)
        assert found[checkpoint, "rollout", "length"].num == 12
    assert move_directions(half, divergence="js") == move_directions(known, divergence="js")
    assert (
        move_directions(half, divergence="js")[0].num_wrong + move_directions(half, divergence="js")[0].num_right == 8
    )
    nothing = replace(DATA, sequences=tuple(replace(item, correct=None) for item in DATA.sequences))
    assert move_directions(nothing, divergence="js") == ()
    assert by_name(divergence_correlates(nothing, divergence="js"))["rl-1", "rollout", "correct"].num == 0
    assert good_moves(half, next(iter(half.pairs()))) is None
    assert good_moves(known, next(iter(known.pairs()))) is not None


def test_an_infinite_divergence_leaves_its_rollout_out() -> None:
    column = DATA.columns["js"].copy()
    column[0, 1] = math.inf  # the second rollout's first token of two
    figures = by_name(divergence_correlates(replace(DATA, columns={**DATA.columns, "js": column}), divergence="js"))
    assert figures["rl-1", "rollout", "length"].num == 11
    assert figures["rl-1", "token", "entropy_ref"].num == 29
    assert figures["rl-2", "rollout", "length"].num == 12
    means = [float(values.mean()) for values in DATA.by_sequence("js", "rl-1")]
    expected = spearmanr(means[:1] + means[2:], DATA.lengths.tolist()[:1] + DATA.lengths.tolist()[2:]).statistic
    assert figures["rl-1", "rollout", "length"].estimate.mean == pytest.approx(expected)


def test_scale_and_order_change_nothing_and_writers_are_apart() -> None:
    def means(data: Measurements) -> list[float]:
        return [one.estimate.mean for one in divergence_correlates(data, divergence="js")]

    scaled = replace(DATA, columns={**DATA.columns, "js": 1000 * DATA.columns["js"]})
    assert means(scaled) == pytest.approx(means(DATA))
    mixed = tuple(replace(one, label="rl-2" if one.sequence_id % 3 else "dpo-1") for one in DATA.sequences)
    figures = divergence_correlates(replace(DATA, sequences=mixed), divergence="js")
    lengths = {one.source: one.num for one in figures if one.correlate == "length"}
    assert lengths == {"dpo-1": 4, "rl-2": 8}
