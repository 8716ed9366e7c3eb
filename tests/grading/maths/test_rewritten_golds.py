"""Answers in other words, by `benchmarks.rewritten_golds`: right ones are accepted, wrong ones never."""

from __future__ import annotations

import hashlib

import pytest

from benchmarks.rewritten_golds import Case, cases, golds, golds_of, judge, measure


def sample(size: int) -> list[Case]:
    """Return cases of the development half, chosen by their text."""
    return sorted(cases("development"), key=lambda case: hashlib.sha256(repr(case).encode()).digest())[:size]


def test_the_halves_share_no_gold_and_every_wrong_answer_is_wrong() -> None:
    halves = [{gold.number for gold in golds_of(half)} for half in ("development", "held_out")]
    assert [len(half) for half in halves] == [150, 150]
    assert halves[0] | halves[1] == set(range(300))
    assert not [gold for gold in golds() if gold.right.value == gold.wrong.value]


def test_a_sample_of_the_development_half() -> None:
    assert [case for case in sample(600) if judge(case)[0] != case.is_right] == []


@pytest.mark.slow
def test_the_development_half() -> None:
    result, failures = measure("development", list(cases("development")))
    assert (result.right, result.wrong) == (3000, 3000)
    assert result.wrong_accepts == 0
    assert failures == []


@pytest.mark.slow
def test_the_half_that_was_held_out() -> None:
    result, _ = measure("held_out", list(cases("held_out")))
    assert result.wrong_accepts == 0
    assert result.accepted / result.right >= 0.97
