"""Whole cards of planted pairs, sampled by the engine: each line says what was planted, and no more."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import swerve
from swerve.claim.record import ClaimCard
from tests.claim.planted.models import Kind, Planted, planted_pair, table_settings, table_task

SAMPLED = ("accuracy", "gained", "answers")
GAINS = {"gain_by_finishing", "gain_by_format", "gain_by_correctness"}
NUM_DRAWS = 20
"""Of each pair; with 20, 80% are 16, and 9% are 1."""
NUM_NOTHING = 100
GREEDY = ("memorised", "forgetting")
"""Pairs whose lines are of greedy responses, which are the same in all draws."""


def card_of(pair: Planted, out: Path, draw: int, parts: tuple[str, ...], **changes: object) -> ClaimCard:
    """Return a card of a draw: its own samples of the same models."""
    others = (table_task(pair.others),) if pair.others else ()
    settings = table_settings(
        pair.problems, seed=draw, parts=parts, others=others, ranks=(1, 2), directions=19, **changes
    )
    card = swerve.claim(pair.base, pair.rl, settings, out=out / f"card-{draw}", progress=False)
    assert card is not None
    assert not [name for name, part in card.parts if part.missing and name in parts]
    return card


def shown(
    pair: Planted, out: Path, parts: tuple[str, ...], num_draws: int, **changes: object
) -> tuple[Counter, Counter]:
    """Return how often each line was shown, and how often it was there, by claim and what it is of."""
    was_shown, was_there = Counter(), Counter()
    for draw in range(num_draws):
        for verdict in card_of(pair, out, draw, parts, **changes).verdicts:
            line = f"{verdict.claim} {verdict.of.split(' train=')[0]}".strip()  # of a task without its files
            was_there[line] += 1
            was_shown[line] += verdict.shown
    return was_shown, was_there


@pytest.mark.planted
@pytest.mark.parametrize(
    ("kind", "size", "parts", "true", "false"),
    [
        (
            "sharpening",
            0.1,
            SAMPLED,
            {"accuracy_rose", "base_reaches_gained", "gain_by_correctness"},
            {"accuracy_fell", "curves_cross", "gain_by_finishing", "gain_by_format"},
        ),
        (
            "skill",
            0.1,
            SAMPLED,
            {"accuracy_rose", "better_at_every_k", "gain_by_correctness"},
            {"accuracy_fell", "curves_cross", "base_reaches_gained", "gain_by_finishing", "gain_by_format"},
        ),
        (
            "format",
            0.1,
            SAMPLED,
            {"accuracy_rose", "gain_by_format"},
            {"accuracy_fell", "curves_cross", "gain_by_finishing", "gain_by_correctness"},
        ),
        (
            "length",
            0.1,
            SAMPLED,
            {"accuracy_rose", "gain_by_finishing"},
            {"accuracy_fell", "curves_cross", "gain_by_format", "gain_by_correctness"},
        ),
        (
            "memorised",
            0.3,
            ("accuracy", "contamination"),
            {"completes_questions rl"},
            {"completes_questions base", "accuracy_rose", "accuracy_fell", "curves_cross", "better_at_every_k"},
        ),
        (
            "forgetting",
            0.15,
            ("accuracy", "forgetting"),
            {"forgot table heldout=others.jsonl"},
            {"accuracy_rose", "accuracy_fell", "curves_cross", "better_at_every_k"},
        ),
        ("rank1", 0.2, ("weights",), {"part_suffices rank 1", "part_beyond_its_size rank 1"}, set()),
    ],
)
def test_each_line_of_a_card_is_as_planted(
    tmp_path: Path, kind: Kind, size: float, parts: tuple[str, ...], true: set[str], false: set[str]
) -> None:
    pair = planted_pair(tmp_path, kind, size=size)
    num_draws = 2 if kind in GREEDY else NUM_DRAWS
    was_shown, was_there = shown(pair, tmp_path, parts, num_draws, num_samples=16)
    said = f"{kind}: shown {dict(was_shown)} of {dict(was_there)}"
    for line in true:
        assert was_there[line] >= 0.8 * num_draws, f"{line} is not on the card; {said}"
        assert was_shown[line] >= 0.8 * was_there[line], f"{line}; {said}"
    for line in false:
        assert was_shown[line] <= 0.09 * num_draws, f"{line}; {said}"


@pytest.mark.planted
def test_cards_of_models_that_are_as_right_in_other_words_claim_nothing(tmp_path: Path) -> None:
    pair = planted_pair(tmp_path, "reworded", size=0.0)
    was_shown, was_there = shown(pair, tmp_path, SAMPLED, NUM_NOTHING, num_samples=16)
    false = {line: num for line, num in was_shown.items() if line != "base_reaches_gained"}  # which the base does
    assert all(num <= 9 for num in false.values()), f"shown {false} of {dict(was_there)}"
    assert {"accuracy_rose", "better_at_every_k", "curves_cross"} | GAINS <= set(was_there)


@pytest.mark.planted
def test_cards_of_one_model_set_against_itself_claim_nothing(tmp_path: Path) -> None:
    pair = planted_pair(tmp_path, "nothing", size=1e-4)
    parts = (*SAMPLED, "contamination", "behaviour")
    was_shown, _ = shown(pair, tmp_path, parts, NUM_DRAWS, num_samples=8)
    assert {line for line, num in was_shown.items() if num > 1} == set()
