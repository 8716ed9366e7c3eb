from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swerve.artifacts.files import dump_json
from swerve.artifacts.probe_dynamics import Direction
from swerve.artifacts.responses import Response
from swerve.probe.engine.measured import Measurements
from swerve.probe.findings.correlates import move_directions
from swerve.types import Problem
from tests.builders import measurements, response


def sequence(
    index: int, length: int, problem: str, *, correct: bool, wrong: dict[int, str] | None = None, source: str = "dpo-1"
) -> Response:
    solved = Problem(id=problem, family="addition", question="", answer="")
    return response(index, length, problem=solved, wrong=wrong or {}, correct=correct, label=source)


def moved_by(moves: list[float], sequences: list[Response], **columns: list[float]) -> Measurements:
    """Reference log-probs -2, one checkpoint."""
    reference = np.full(len(moves), -2.0)
    return measurements(sequences, logprob_ref=reference, logprob=np.array(moves) - 2.0, **columns)


SEQUENCES = [
    sequence(0, 2, "a", correct=True),
    sequence(1, 3, "a", correct=False, wrong={1: "7", 2: ""}),
    sequence(2, 1, "b", correct=True),
    sequence(3, 2, "b", correct=False, wrong={0: " 8"}),
    sequence(4, 1, "c", correct=False),
]
DATA = moved_by(
    [0.5, -0.1, 0.2, -1.0, -0.6, 0.3, -0.5, 0.0, 0.1],
    SEQUENCES,
    js=[4, 1, 2, 5, 0, 1, 3, 3, 1],
    argmax=[0, 0, 0, 2, 0, 0, 1, 0, 0],
    argmax_ref=[0, 0, 0, 0, 0, 0, 2, 0, 0],
)
PIECES = ["0", " 7", "7 ", "8"]


def entry(data: Measurements = DATA, **arguments: Any) -> dict[str, Any]:
    (found,) = move_directions(data, divergence="js", **arguments)
    return found


def test_moves() -> None:
    assert DATA.pair("rl-9").moves == pytest.approx([0.5, -0.1, 0.2, -1.0, -0.6, 0.3, -0.5, 0.0, 0.1])
    infinite = replace(DATA, columns={**DATA.columns, "logprob": np.full((1, 9), -math.inf)})
    assert np.isnan(infinite.pair("rl-9").moves).all()


def test_means_of_right_and_wrong_rollouts() -> None:
    found = entry()
    assert (found.checkpoint, found.source, found.num_right, found.num_wrong) == ("rl-9", "dpo-1", 2, 3)
    assert found.mean_move_right.mean == pytest.approx(0.7 / 3)
    assert found.mean_move_wrong.mean == pytest.approx(-1.8 / 6)
    assert found.difference.mean == pytest.approx(0.7 / 3 + 1.8 / 6)
    assert found.difference.low < found.difference.mean < found.difference.high


def test_share_of_divergence_on_good_moves() -> None:
    """Right: rises (4 + 1); wrong: falls (5 + 0 + 3); a move of 0 is neither."""
    found = entry()
    assert found.share_good.mean == pytest.approx(13 / 20)
    assert found.share_good_tokens.mean == pytest.approx(5 / 9)


def test_paired_by_problem() -> None:
    """Problem means: right a 0.2, b 0.3; wrong a -1.4/3, b -0.25, c 0.1."""
    found = entry()
    assert found.num_paired == 2
    assert found.wilcoxon.num_pairs == 2
    assert found.wilcoxon.median_difference == pytest.approx(((0.2 + 1.4 / 3) + 0.55) / 2)
    assert (found.wilcoxon.effect_size, found.wilcoxon.p_value) == (1, 0.5)
    assert found.cliffs_delta == 1


def test_the_summed_move_ranks_rollouts() -> None:
    """Sums: right 0.4, 0.3; wrong -1.4, -0.5, 0.1; then one wrong one between."""
    assert entry().auc.mean == 1
    moved = moved_by([0.5, -0.1, 0.2, -1.0, -0.6, 0.3, -0.5, 0.0, 0.35], SEQUENCES)
    assert entry(moved).auc.mean == pytest.approx(5 / 6)


def test_wrong_steps() -> None:
    found = entry(pieces=PIECES).wrong_steps
    assert (found.num_rollouts, found.num_tokens) == (2, 3)
    assert found.mean_move.mean == pytest.approx((-1.0 - 0.6 - 0.5) / 3)
    assert found.mean_move_others.mean == pytest.approx(0.2 / 2)
    assert found.difference.mean == pytest.approx(-0.7 - 0.1)
    # Problems: a -0.8 against 0.2, b -0.5 against 0.
    assert found.wilcoxon.median_difference == pytest.approx((-1.0 - 0.5) / 2)
    assert found.wilcoxon.effect_size == -1
    # Expected at a: 7 (argmax "7 ", reference "0"); at b: 8 (argmax " 7", reference "7 "); one is not known.
    assert found.num_expected == 2
    assert found.share_expected.mean == 0.5
    assert found.share_expected_ref.mean == 0
    eights = replace(DATA, columns={**DATA.columns, "argmax_ref": np.full((1, 9), 3)})
    assert entry(eights, pieces=PIECES).wrong_steps.share_expected_ref.mean == 0.5


def test_without_pieces_nothing_is_said_of_expected_tokens() -> None:
    found = entry().wrong_steps
    assert (found.num_expected, found.share_expected) == (0, None)
    unknown = entry(DATA.select(lambda one: one.sequence_id == 4), pieces=PIECES)
    assert unknown.wrong_steps is None


def test_one_outcome_has_no_comparison() -> None:
    found = entry(DATA.select(lambda one: not one.correct))
    assert found.mean_move_right is None
    assert found.mean_move_wrong.mean == pytest.approx(-0.3)
    assert [getattr(found, name) for name in ("difference", "wilcoxon", "cliffs_delta", "auc")] == [None] * 4
    assert found.share_good.mean == pytest.approx(8 / 14)


def test_an_infinite_log_probability_leaves_nothing_to_average() -> None:
    column = DATA.columns["logprob"].copy()
    column[0, 3] = -math.inf
    found = entry(replace(DATA, columns={**DATA.columns, "logprob": column}), pieces=PIECES)
    assert [getattr(found, name) for name in ("share_good", "mean_move_wrong", "difference", "auc")] == [None] * 4
    assert found.mean_move_right.mean == pytest.approx(0.7 / 3)
    assert (found.wrong_steps.mean_move, found.wrong_steps.wilcoxon) == (None, None)
    dump_json(found)


def test_writers_are_kept_apart() -> None:
    own = [replace(one, label="rl-9") if one.correct else one for one in SEQUENCES]
    first, second = move_directions(replace(DATA, sequences=tuple(own)), divergence="js")
    assert (first.source, first.num_right, first.num_wrong) == ("rl-9", 2, 0)
    assert (second.source, second.num_right, second.num_wrong) == ("dpo-1", 0, 3)
    assert (first.difference, second.difference) == (None, None)


@settings(max_examples=20)
@given(st.permutations(range(5)))
def test_order_of_the_rollouts_does_not_matter(order: list[int]) -> None:
    lengths = [len(one.completion_ids) for one in SEQUENCES]
    ends = [0, *itertools.accumulate(lengths)]
    tokens = [token for index in order for token in range(ends[index], ends[index + 1])]
    moved = replace(
        DATA,
        sequences=tuple(SEQUENCES[index] for index in order),
        columns={name: column[:, tokens] for name, column in DATA.columns.items()},
    )

    def numbers(found: Direction) -> list[float]:
        return [
            *(getattr(found, name).mean for name in ("share_good", "difference", "auc")),
            found.cliffs_delta,
            found.wilcoxon.median_difference,
            found.wrong_steps.share_expected.mean,
            found.wrong_steps.mean_move.mean,
        ]

    assert numbers(entry(moved, pieces=PIECES)) == pytest.approx(numbers(entry(pieces=PIECES)))
