"""Divergence against the training signal: counts and means by hand, and planted relations."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from swerve.artifacts.files import dump_json
from swerve.artifacts.responses import Response
from swerve.probe.engine.forward import STATISTICS
from swerve.probe.engine.measured import Measurements
from swerve.probe.findings.training_signal import training_signals
from swerve.probe.intervals import Intervals
from swerve.types import Problem

OPTIONS: dict[str, Any] = {"divergence": "js"}


def _data(rows: list[dict[str, Any]], *, checkpoints=("rl-10",), references=("dpo-8",), per_sequence: int = 2) -> Any:
    """Return measurements and signals of tokens given one by one, `per_sequence` to a rollout."""
    sequences = []
    for index in range(len(rows) // per_sequence):
        first = rows[index * per_sequence]
        problem = Problem(id=first.get("problem", str(index)), family="addition", question="", answer="")
        sequences.append(
            Response(
                sequence_id=100 + index,
                problem=problem,
                prompt_ids=(1,),
                completion_ids=(2,) * per_sequence,
                spans=((0, 0),) * per_sequence,
                population=first.get("population", "training"),
            )
        )
    columns = {name: np.zeros((len(checkpoints), len(rows))) for name in STATISTICS}
    for index, row in enumerate(rows):
        columns["js"][:, index] = row.get("js", 0.0)
        columns["logprob"][:, index] = -1.0 + np.asarray(row.get("move", 0.0))
        columns["logprob_ref"][:, index] = -1.0
    data = Measurements(
        sequences=tuple(sequences),
        checkpoints=checkpoints,
        references=references,
        columns=columns,
        categories=("word",) * len(rows),
        intervals=Intervals(confidence=0.9),
    )
    signals = [
        {
            "sequence_id": 100 + index // per_sequence,
            "position": index % per_sequence,
            "step": row.get("step", 5),
            "advantage": row.get("advantage"),
            "clipped": row.get("clipped"),
            "kl": row.get("kl"),
            "used": row.get("used", True),
        }
        for index, row in enumerate(rows)
    ]
    return data, signals


def _figures(rows: list[dict[str, Any]], *, steps: Any = None, **more: Any) -> Any:
    options = {**OPTIONS, **{name: more.pop(name) for name in ("noise",) if name in more}}
    data, signals = _data(rows, **more)
    return training_signals(data, signals, steps=steps or {"rl-10": 10}, **options)


def test_tokens_are_told_apart_by_what_training_gave_them():
    rows = [
        {"js": 0.4, "move": 0.5, "advantage": 1.0, "problem": "a"},
        {"js": 0.2, "move": -0.1, "advantage": 1.0},
        {"js": 0.6, "move": -0.7, "advantage": -1.0, "problem": "a"},
        {"js": 0.1, "move": 0.3, "advantage": 0.0},  # pushed by nothing
        {"js": 0.05, "move": 0.02, "used": False},
        {"js": 0.03, "move": 0.0, "used": False},
        {"js": 9.0, "move": 9.0, "advantage": 1.0, "step": 11},  # after the checkpoint
        {"js": 7.0, "move": 9.0, "advantage": 1.0, "step": 11},
    ]
    (found,) = _figures(rows)
    classes = found.divergence
    assert {name: one.num_tokens for name, one in classes.items()} == {"signal": 3, "no_signal": 3, "not_seen": 2}
    assert classes["signal"].mean.mean == pytest.approx(0.4)
    assert classes["signal"].mean_abs_move.mean == pytest.approx(1.3 / 3)
    assert classes["no_signal"].mean.mean == pytest.approx(0.06)
    assert classes["not_seen"].mean.mean == pytest.approx(8.0)
    assert found.spill_over.mean == pytest.approx(0.06 / 0.4)
    assert (found.num_rollouts_seen, found.num_problems_seen) == (3, 2)
    direction = found.direction
    assert (direction.num_tokens, direction.num_moved) == (3, 3)
    assert direction.agreement.mean == pytest.approx(2 / 3)
    assert direction.chance == pytest.approx(1 / 3 * 2 / 3 + 2 / 3 * 1 / 3)
    assert direction.above_chance.mean == pytest.approx(2 / 3 - 4 / 9)
    assert direction.mean_move_positive.mean == pytest.approx(0.2)
    assert direction.mean_move_negative.mean == pytest.approx(-0.7)
    assert direction.difference.mean == pytest.approx(0.9)
    dump_json(found)


def test_moves_within_the_noise_have_no_direction():
    rows = [
        {"move": 0.5, "advantage": 1.0},
        {"move": -0.005, "advantage": 1.0},
        {"move": 0.02, "advantage": -1.0},
        {"move": 0.005, "advantage": -1.0},
    ]
    (coarse,), (fine,) = _figures(rows), _figures(rows, noise=0.0)
    assert (coarse.direction.num_moved, coarse.direction.agreement.mean) == (2, 0.5)
    assert (fine.direction.num_moved, fine.direction.agreement.mean) == (4, 0.25)


def test_a_pair_of_checkpoints_has_seen_the_steps_between_them():
    rows = [{"js": 1.0 * step, "advantage": 1.0, "step": step} for step in (5, 5, 10, 10, 11, 11, 20, 20, 21, 21)]
    found = _figures(
        rows,
        steps={"rl-10": 10, "rl-20": 20},
        checkpoints=("rl-10", "rl-20", "rl-20", "dpo-8"),
        references=("dpo-8", "dpo-8", "rl-10", "sft-500"),
    )
    assert [(one.checkpoint, one.reference) for one in found] == [
        ("rl-10", "dpo-8"),
        ("rl-20", "dpo-8"),
        ("rl-20", "rl-10"),
    ]
    seen = [one.divergence["signal"] for one in found]
    assert [one.num_tokens for one in seen] == [4, 8, 4]
    assert [one.mean.mean for one in seen] == [7.5, 11.5, 15.5]
    assert [part.share_seen for part in found[2].by_step] == [0.0, 0.0, 1.0, 1.0, 0.0]
    steps = [(part.first_step, part.last_step, part.num_tokens) for part in found[0].by_step]
    assert steps == [(5, 5, 2), (10, 10, 2), (11, 11, 2), (20, 20, 2), (21, 21, 2)]


def test_many_steps_are_put_together_into_eight_parts():
    rows = [{"advantage": 1.0, "step": 1 + index // 2} for index in range(40)]
    (found,) = _figures(rows, steps={"rl-10": 20})
    parts = [(part.first_step, part.last_step) for part in found.by_step]
    assert (len(parts), parts[0][0], parts[-1][1]) == (8, 1, 20)
    assert all(one[1] + 1 == two[0] for one, two in itertools.pairwise(parts))


def test_clipped_tokens_are_those_cut_off_at_least_once():
    rows = [
        {"js": 0.1, "advantage": 1.0, "clipped": 0.0},
        {"js": 0.6, "advantage": 1.0, "clipped": 0.25},
        {"js": 0.1, "advantage": -1.0, "clipped": 0.0},
        {"js": 0.2, "advantage": -1.0, "clipped": 0.0},
        {"js": 5.0, "used": False},
        {"js": 5.0, "used": False},
    ]
    (found,) = _figures(rows)
    assert found.clipped.num_tokens == 1
    assert found.clipped.share_of_tokens.mean == pytest.approx(0.25)
    assert found.clipped.share_of_divergence.mean == pytest.approx(0.6)
    assert _figures([{"advantage": 1.0}] * 4)[0].clipped is None


def test_correlations_take_the_size_of_the_advantage_and_the_kl_as_it_is():
    advantages = [0.1, -0.2, 0.3, -0.4, 0.5, -0.6]
    rows = [
        {"js": abs(value), "advantage": value, "kl": -value * (1 if value > 0 else -1), "problem": str(index // 2)}
        for index, value in enumerate(advantages)
    ]
    (found,) = _figures([*rows, {"js": 9.0, "used": False}, {"js": 0.0, "used": False}])
    assert found.advantage_correlation.mean == pytest.approx(1.0)
    assert found.kl_correlation.mean == pytest.approx(-1.0)
    constant = _figures([{"js": 0.1 * index, "advantage": 1.0} for index in range(4)])[0]
    assert constant.advantage_correlation is None
    assert constant.kl_correlation is None


def test_planted_pushes_are_found_and_unrelated_moves_are_not():
    rng = np.random.default_rng(0)
    planted, unrelated = [], []
    for problem in range(60):
        for _ in range(4):
            advantage = float(rng.choice([-1.0, 1.0]))
            noise = rng.normal(size=2)
            planted.append({"problem": str(problem), "advantage": advantage, "move": 0.5 * advantage + noise[0]})
            unrelated.append({"problem": str(problem), "advantage": advantage, "move": 0.8 + noise[1]})
    (found,), (nothing,) = (_figures(rows, per_sequence=1) for rows in (planted, unrelated))
    assert found.direction.above_chance.low > 0.1
    assert found.direction.difference.low > 0.5
    interval = nothing.direction.above_chance
    assert interval.low < 0 < interval.high
    assert nothing.direction.agreement.mean == pytest.approx(nothing.direction.chance, abs=0.1)


def test_only_the_training_population_is_read_and_without_it_there_is_nothing():
    rows = [{"js": 0.5, "advantage": 1.0}] * 2 + [{"js": 9.0, "population": "reference_right"}] * 2
    data, signals = _data(rows)
    (found,) = training_signals(data, signals[:2], steps={"rl-10": 10}, **OPTIONS)
    assert found.divergence["signal"].mean.mean == pytest.approx(0.5)
    other, _ = _data(rows[2:])
    assert training_signals(other, [], steps={"rl-10": 10}, **OPTIONS) == ()


def test_a_checkpoint_that_saw_nothing_yet_has_no_figures_but_of_what_is_to_come():
    (found,) = _figures([{"js": 0.5, "advantage": 1.0, "step": 50}] * 2)
    assert found.divergence["signal"].model_dump() == {"num_tokens": 0, "mean": None, "mean_abs_move": None}
    assert found.divergence["not_seen"].num_tokens == 2
    assert (found.direction, found.spill_over, found.by_step) == (None, None, ())


def test_tokens_without_a_row_are_refused():
    data, signals = _data([{"advantage": 1.0}] * 4)
    with pytest.raises(ValueError, match="1 of 4 tokens of the population 'training' have no row in the signals"):
        training_signals(data, signals[:-1], steps={"rl-10": 10}, **OPTIONS)


def test_what_is_infinite_has_no_mean_and_stops_nothing() -> None:
    signal = {"advantage": 1.0, "clipped": 1.0, "kl": 0.1, "used": True, "step": 5}
    rows = [{**signal, "js": 0.1 * place, "move": 0.5, "problem": str(place // 2)} for place in range(6)]
    rows[3] |= {"js": math.inf, "move": -math.inf}
    rows += [{"js": 0.2, "used": False, "step": 5, "problem": "9"}] * 2
    data, signals = _data(rows)
    (figure,) = training_signals(data, signals, steps={"rl-10": 10, "dpo-8": 0}, **OPTIONS)
    assert figure.divergence["signal"].model_dump() == {"num_tokens": 6, "mean": None, "mean_abs_move": None}
    assert figure.divergence["no_signal"].mean.mean == pytest.approx(0.2)
    assert (figure.spill_over, figure.direction, figure.advantage_correlation) == (None, None, None)
    assert figure.clipped.share_of_divergence is None
    dump_json(figure)
