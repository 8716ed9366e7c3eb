"""Which problems are drawn: determinism, proportions, order, and that only the record of the past counts."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swerve.config.curricula import DifficultyCurriculum, ShuffledCurriculum, SuccessRateCurriculum
from swerve.config.stages import RlStage
from swerve.config.supervised_stages import SftStage
from swerve.errors import ConfigError
from swerve.problems import load_family
from swerve.problems.addition import AdditionTask
from swerve.problems.knights.knights_knaves import KnightsKnavesTask
from swerve.problems.mixture import MixturePart, MixtureTask
from swerve.seeds import derive_seed
from swerve.train.curriculum import Draws, SolveRates, pool_size, solve_weights, stage_draws
from swerve.train.phases import phases_of
from swerve.types import Problem

PROBLEMS = [
    Problem(id=f"p{number}", family="f", question=str(number), answer="", difficulty=float(number // 4))
    for number in range(40)
]
FAMILY = load_family(AdditionTask())


def _draws(curriculum: Any = None, *, parts: Any = None, per_step: int = 8, spare: int = 0, **more: Any) -> Draws:
    return Draws(
        parts or [("", 1.0, PROBLEMS)],
        curriculum or ShuffledCurriculum(),
        **{"seed": 3, "stage": "rl", "steps": 20, **more},
        per_step=per_step,
        spare=spare,
    )


def _ids(problems: list[Problem]) -> list[str]:
    return [one.id for one in problems]


def test_shuffled_draws_are_the_documented_passes():
    draws = _draws()
    found = [name for step in range(10) for name in _ids(draws.draw(range(8), step=step))]
    expected = []
    for epoch in range(2):
        order = list(range(40))
        random.Random(derive_seed(3, "rl", "epoch", epoch)).shuffle(order)
        expected += [PROBLEMS[place].id for place in order]
    assert found == expected


def test_spare_slots_of_one_part_are_numbers_of_their_own_within_the_passes():
    draws = _draws(per_step=4, spare=4)
    step = _ids(draws.draw(range(4), step=1)) + _ids(draws.draw(range(4, 8), step=1))
    assert step == _ids(_draws(per_step=8).draw(range(8), step=1))


def test_pool_grows_from_the_easiest_to_all():
    draws = _draws(DifficultyCurriculum(start_share=0.2, ramp_steps=4), per_step=40)
    for step, size in enumerate([8, 16, 24, 32, 40, 40]):
        drawn = draws.draw(range(40), step=step)
        assert len(set(_ids(drawn[:size]))) <= size
        assert {one.difficulty for one in drawn} == {float(number) for number in range(size // 4)}
        assert draws.figures(drawn, step)["pool_share"] == size / 40


def test_half_the_stage_is_the_ramp_by_default():
    sizes = [pool_size(DifficultyCurriculum(start_share=0.5), step, 8, 10) for step in range(6)]
    assert sizes == [5, 7, 8, 9, 10, 10]


@given(st.floats(0.01, 1.0), st.integers(1, 50), st.integers(1, 100), st.integers(1, 1000))
def test_a_pool_is_never_empty_never_shrinks_and_ends_with_all(share, ramp, steps, total):
    curriculum = DifficultyCurriculum(start_share=share, ramp_steps=ramp)
    sizes = [pool_size(curriculum, step, steps, total) for step in range(ramp + 2)]
    assert sizes == sorted(sizes)
    assert 1 <= sizes[0] <= max(1, share * total + 1)
    assert sizes[-1] == total


def test_the_full_pool_is_drawn_in_passes_without_repetition():
    draws = _draws(DifficultyCurriculum(start_share=0.2, ramp_steps=1), per_step=10)
    found = [name for step in range(4, 8) for name in _ids(draws.draw(range(10), step=step))]
    assert sorted(found) == sorted(_ids(PROBLEMS))


def test_ties_are_in_the_order_of_the_seed():
    first = [
        {
            one.id
            for one in _draws(DifficultyCurriculum(start_share=0.05, ramp_steps=9), seed=seed).draw(range(4), step=0)
        }
        for seed in range(20)
    ]
    assert all(len(names) == 2 and names <= {"p0", "p1", "p2", "p3"} for names in first)
    assert len({frozenset(names) for names in first}) > 2


def test_difficulty_without_one_is_refused_by_name():
    bare = [Problem(id="x", family="f", question="q", answer="a")]
    with pytest.raises(ConfigError, match=r"stage 'rl': curriculum difficulty, but problem 'x' of family 'f' has no"):
        _draws(DifficultyCurriculum(), parts=[("", 1.0, bare)])


def _record(step: int, *solved: tuple[str, int, int]) -> dict[str, Any]:
    return {"step": step, "problems": [list(one) for one in solved]}


def test_rates_fade_with_each_visit():
    curriculum = SuccessRateCurriculum(memory=0.5, target=0.5)
    rates = SolveRates(curriculum, [_record(1, ("p0", 8, 8)), _record(2, ("p1", 0, 8)), _record(3, ("p0", 0, 8))])
    # p0: (0.5 x 8 + 0 + 0.5) / (0.5 x 8 + 8 + 1), p1: (0 + 0.5) / (8 + 1), p2: never tried.
    assert rates.of(PROBLEMS[:3]) == pytest.approx([4.5 / 13, 0.5 / 9, 0.5])


def test_rates_read_each_record_once_however_they_arrive():
    curriculum, records = SuccessRateCurriculum(), [_record(step, ("p0", step % 3, 4)) for step in range(6)]
    growing = SolveRates(curriculum)
    for end in (2, 2, 5, 6):
        growing.read(records[:end])
    assert growing.of(PROBLEMS[:1]) == SolveRates(curriculum, records).of(PROBLEMS[:1])


def test_weights_are_largest_at_the_target_and_never_below_the_exploration():
    curriculum = SuccessRateCurriculum(target=0.7, exploration=0.3)
    weights = solve_weights([0.1, 0.7, 0.9, 0.0, 1.0], curriculum)
    assert sum(weights) == pytest.approx(1.0)
    assert max(weights) == weights[1]
    assert weights[3] == weights[4] == min(weights) == pytest.approx(0.3 / 5)


def test_weights_at_one_half_are_the_variance_of_the_reward():
    rates = [0.25, 0.5, 0.9]
    values = [rate * (1 - rate) for rate in rates]
    expected = [value / sum(values) for value in values]
    assert solve_weights(rates, SuccessRateCurriculum(exploration=0.0)) == pytest.approx(expected)


def test_success_rate_draws_each_problem_once_a_step_and_in_proportion():
    curriculum = SuccessRateCurriculum(exploration=0.2, memory=1.0)
    records = [
        _record(1, *((one.id, (2 if number < 10 else 4) * 10**9, 4 * 10**9) for number, one in enumerate(PROBLEMS)))
    ]
    draws = _draws(curriculum, per_step=1)
    counts = Counter(draws.draw(range(1), step=step, history=records)[0].id for step in range(3000))
    half, solved = (sum(counts[one.id] for one in part) / 3000 for part in (PROBLEMS[:10], PROBLEMS[10:]))
    # Ten problems share 0.8 and a quarter of 0.2, the solved thirty have three quarters of 0.2.
    assert half == pytest.approx(0.85, abs=0.02)
    assert solved == pytest.approx(0.15, abs=0.02)
    step = _ids(_draws(curriculum, per_step=40).draw(range(40), step=0, history=records))
    assert sorted(step) == sorted(_ids(PROBLEMS))


def test_problems_that_were_never_tried_are_drawn_evenly():
    share = _draws(SuccessRateCurriculum()).figures(PROBLEMS[:1], 0)["pool_share"]
    assert share == pytest.approx(1.0)


def test_pool_share_of_weights_is_the_effective_share():
    curriculum = SuccessRateCurriculum(exploration=0.0, memory=1.0)
    records = [
        _record(1, *((one.id, (1 if number < 10 else 0) * 10**12, 2 * 10**12) for number, one in enumerate(PROBLEMS)))
    ]
    draws = _draws(curriculum)
    assert draws.figures(PROBLEMS, 1, records)["pool_share"] == pytest.approx(0.25, abs=1e-6)


def test_mean_difficulty_is_of_what_was_drawn_and_null_where_one_is_unknown():
    draws = _draws()
    assert draws.figures([PROBLEMS[0], PROBLEMS[39]], 0)["mean_difficulty"] == 4.5
    bare = Problem(id="x", family="f", question="q", answer="a")
    assert draws.figures([PROBLEMS[0], bare], 0)["mean_difficulty"] is None


CURRICULA = [ShuffledCurriculum(), DifficultyCurriculum(start_share=0.3), SuccessRateCurriculum()]
PARTS = [("a", 3.0, PROBLEMS[:16]), ("b", 1.0, PROBLEMS[16:])]


@pytest.mark.parametrize("curriculum", CURRICULA, ids=lambda one: one.kind)
def test_draws_depend_on_nothing_but_step_slots_and_record(curriculum):
    records = [_record(step, *((one.id, step % 3, 4) for one in PROBLEMS[::3])) for step in range(5)]
    one, other = (_draws(curriculum, parts=PARTS) for _ in range(2))
    straight = [_ids(one.draw(range(8), step=step, history=records)) for step in range(12)]
    backwards = [_ids(other.draw(range(8), step=step, history=records)) for step in reversed(range(12))]
    assert straight == backwards[::-1]
    # In pieces, as rounds of refilling ask for them.
    assert _ids(other.draw(range(3), step=7, history=records)) + _ids(
        other.draw(range(3, 8), step=7, history=records)
    ) == _ids(one.draw(range(8), step=7, history=records))
    assert straight != [_ids(_draws(curriculum, parts=PARTS, seed=4).draw(range(8), step=step)) for step in range(12)]


@pytest.mark.parametrize("curriculum", CURRICULA, ids=lambda one: one.kind)
@pytest.mark.parametrize("spare", [0, 24])
def test_parts_of_a_mixture_keep_their_proportion(curriculum, spare):
    draws = _draws(curriculum, parts=PARTS, per_step=8, spare=spare)
    drawn = [one for step in range(25) for one in draws.draw(range(8), step=step)]
    assert sum(one.id in _ids(PROBLEMS[:16]) for one in drawn) == 150
    if spare:
        refilled = [one for step in range(25) for one in draws.draw(range(8, 32), step=step)]
        assert sum(one.id in _ids(PROBLEMS[:16]) for one in refilled) == 450


def test_each_part_of_a_mixture_is_passed_through_without_repetition():
    draws = _draws(parts=PARTS)
    drawn = [name for step in range(12) for name in _ids(draws.draw(range(8), step=step))]  # 72 of a, 24 of b
    assert Counter(drawn)["p30"] == 1
    assert {Counter(drawn)[one.id] for one in PROBLEMS[:16]} == {4, 5}


def _stage(**keys: Any) -> RlStage:
    return RlStage.model_validate({"steps": 4, "optimizer": {"lr": 1e-3}, **keys}, strict=False)


def _drawn(stage: Any, problems: Any) -> Draws:
    return stage_draws(phases_of(stage), FAMILY, problems, seed=0)[0]


def test_where_keeps_the_problems_within_the_bounds():
    draws = _drawn(_stage(where={"min_difficulty": 2, "max_difficulty": 3}), PROBLEMS)
    drawn = draws.draw(range(8), step=0)
    assert sorted(_ids(drawn)) == [f"p{number}" for number in range(10, 16)] + ["p8", "p9"]


def test_where_by_kind():
    problems = [*PROBLEMS, Problem(id="x", family="f", question="q", answer="a", kind="rare")]
    draws = _drawn(_stage(where={"kinds": ["rare"]}), problems)
    assert _ids(draws.draw(range(2), step=0)) == ["x", "x"]


def test_where_that_leaves_nothing_names_what_there_is():
    with pytest.raises(ConfigError, match=r"stage 'rl': none of 40 training problems .* their difficulties 0 to 9"):
        _drawn(_stage(where={"min_difficulty": 100}), PROBLEMS)


def test_sft_slots_are_the_traces_of_an_update():
    stage = SftStage.model_validate({"steps": 4, "optimizer": {"lr": 1e-3}, "batch_size": 10})
    draws = _drawn(stage, PROBLEMS)
    found = [name for step in range(4) for name in _ids(draws.draw(range(10), step=step))]
    assert sorted(found) == sorted(_ids(PROBLEMS))


def _phased(*phases: dict[str, Any], **keys: Any) -> list[list[str]]:
    """Return the problems drawn at each step of a stage with phases."""
    stage = RlStage.model_validate({"optimizer": {"lr": 1e-3}, "phases": phases, **keys}, strict=False)
    planned = phases_of(stage)
    draws = stage_draws(planned, FAMILY, PROBLEMS, seed=0)
    return [
        _ids(drawn.draw(range(phase.stage.prompts_per_step), step=step))
        for phase, drawn in zip(planned, draws, strict=True)
        for step in phase.steps
    ]


def test_a_pass_over_the_problems_goes_on_from_phase_to_phase():
    found = _phased(
        {"steps": 2, "temperature": 0.5}, {"steps": 1, "prompts_per_step": 16}, {"steps": 1}, prompts_per_step=8
    )
    assert [len(step) for step in found] == [8, 8, 16, 8]
    assert sorted(name for step in found for name in step) == sorted(_ids(PROBLEMS))
    assert found[:2] == _phased({"steps": 4}, prompts_per_step=8)[:2]


def test_phases_draw_from_their_own_problems():
    first, second = _phased({"steps": 1, "where": {"max_difficulty": 1}}, {"steps": 1, "where": {"min_difficulty": 8}})
    assert set(first) <= {one.id for one in PROBLEMS if one.difficulty <= 1}
    assert set(second) <= {one.id for one in PROBLEMS if one.difficulty >= 8}


def test_a_phase_that_leaves_nothing_is_named():
    with pytest.raises(ConfigError, match=r"stage 'rl, phase 2': none of 40 training problems"):
        _phased({"steps": 1}, {"steps": 1, "where": {"kinds": ["no"]}})


def test_a_mix_of_a_task_that_is_no_mixture_is_refused():
    with pytest.raises(ConfigError, match=r"stage 'rl, phase 1': 'mix' names 'a', and the task is no mixture"):
        _phased({"steps": 1, "mix": {"a": 1.0}})


def test_a_phase_may_mix_the_parts_of_the_task_in_its_own_way():
    parts = (MixturePart(task=AdditionTask(num_train=60)), MixturePart(task=KnightsKnavesTask(num_train=60)))
    family = load_family(MixtureTask(parts=parts))
    problems = family.problems("train", seed=0)

    def drawn(mix):
        stage = RlStage.model_validate({"steps": 3, "optimizer": {"lr": 1e-3}, "phases": [{"steps": 3, "mix": mix}]})
        (draws,) = stage_draws(phases_of(stage), family, problems, seed=0)
        return Counter(one.family for step in range(3) for one in draws.draw(range(16), step=step))

    assert drawn({}) == {"addition": 24, "knights_knaves": 24}
    assert drawn({"addition": 1.0, "knights_knaves": 3.0}) == {"addition": 12, "knights_knaves": 36}
    assert drawn({"knights_knaves": 0.5}) == {"knights_knaves": 48}
    with pytest.raises(ConfigError, match=r"'mix' names 'additon', .* parts addition, knights_knaves; did you mean"):
        drawn({"additon": 1.0})
