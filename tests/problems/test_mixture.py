"""Mixtures: shares, what belongs to which part, and that no problem is on both sides."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swerve.errors import ConfigError
from swerve.problems import load_family
from swerve.problems.addition import AdditionTask
from swerve.problems.family import SolvedFamily
from swerve.problems.knights.knights_knaves import KnightsKnavesTask
from swerve.problems.mixture import Mixture, MixturePart, MixtureTask, Quota, family_of, mixed_parts
from swerve.problems.task import TaskKind
from swerve.types import Problem

ADDITION = AdditionTask(digits=2, num_train=60, num_heldout=20)
PUZZLES = KnightsKnavesTask(num_train=30, num_heldout=20)


def _mixture(*parts: tuple[Any, float]) -> Mixture:
    return Mixture(MixtureTask(parts=tuple(MixturePart(task=task, weight=weight) for task, weight in parts)))


@given(
    weights=st.lists(st.integers(1, 1000).map(lambda n: n / 100), min_size=1, max_size=6),
    start=st.integers(0, 10_000),
)
def test_every_part_is_within_one_of_its_share_after_any_number_of_draws(weights, start):
    quota, total = Quota(weights), sum(weights)
    for number in [*range(120), *range(start, start + 5)]:
        for part, weight in enumerate(weights):
            assert abs(quota.before(number, part) - number * weight / total) < 1


def test_numbers_of_a_part_are_consecutive_beyond_the_first_pass():
    quota = Quota([0.5, 0.25, 0.25])
    dealt = [quota.part(number) for number in range(40)]
    for part in range(3):
        assert [index for one, index in dealt if one == part] == list(range(sum(one == part for one, _ in dealt)))
    assert sum(one == 0 for one, _ in dealt) == 20


def test_the_given_order_decides_between_parts_that_are_equally_due():
    assert [Quota([1, 1, 1], order=order).part(0)[0] for order in ([0, 1, 2], [2, 1, 0])] == [0, 2]


def test_parts_are_interleaved_by_weight_until_the_shorter_is_used_up():
    found = _mixture((ADDITION, 1.0), (PUZZLES, 2.0)).problems("train", seed=0)
    kinds = [one.family for one in found]
    assert kinds[:45].count("knights_knaves") == 30
    assert kinds[45:] == ["addition"] * 45
    assert len({one.id for one in found}) == 90


def test_problems_of_a_part_are_those_of_its_family_with_the_part_in_the_kind():
    mixture = _mixture((ADDITION, 1.0), (PUZZLES, 1.0))
    (alone, own) = (load_family(ADDITION), [])
    for one in mixture.problems("heldout", seed=4):
        if one.family == "addition":
            assert family_of(mixture, one).name == "addition"
            assert mixture.label_of(one) == "addition"
            assert one.kind.startswith("addition: ")
            own.append((one.id, one.question, one.answer, one.kind.removeprefix("addition: ")))
    assert own == [(one.id, one.question, one.answer, one.kind) for one in alone.problems("heldout", seed=4)]


def test_traces_and_step_checks_are_those_of_the_problems_own_family():
    mixture = _mixture((ADDITION, 1.0), (PUZZLES, 1.0))
    assert mixture.checks_steps
    for one in mixture.problems("train", seed=0)[:6]:
        own = load_family(ADDITION if one.family == "addition" else PUZZLES)
        assert mixture.trace(one, random.Random(1)) == own.trace(one, random.Random(1))
        assert mixture.check(one, one.solution) == []
        assert mixture.check(one, "nonsense") == own.check(one, "nonsense") != []


def test_words_are_those_of_all_parts_once():
    mixture = _mixture((ADDITION, 1.0), (PUZZLES, 1.0))
    first, second = (load_family(task).words for task in (ADDITION, PUZZLES))
    assert sorted(mixture.words) == sorted({*first, *second})


class _Fixed(SolvedFamily):
    """A family whose splits are given; it has no vocabulary."""

    name = "fixed"

    def __init__(self, train: Sequence[str], heldout: Sequence[str]) -> None:
        self._questions = {"train": train, "heldout": heldout}

    def problems(self, split: str, *, seed: int) -> list[Problem]:
        return [
            Problem(id=f"fixed-{number}", family="fixed", question=question, answer="1", solution="1")
            for number, question in enumerate(self._questions[split])
        ]


def _fixed(monkeypatch, *parts: _Fixed) -> Mixture:
    waiting = list(parts)
    kinds = {"addition": TaskKind(AdditionTask, lambda _task: waiting.pop(0))}
    monkeypatch.setattr("swerve.problems.mixture.TASKS", kinds)
    return _mixture(*((ADDITION, 1.0) for _ in parts))


def test_what_one_part_holds_out_no_part_trains_on(monkeypatch):
    mixture = _fixed(monkeypatch, _Fixed(["a", "b", "B  c"], ["d"]), _Fixed(["e", "d"], ["b c", "f"]))
    train, heldout = (mixture.problems(split, seed=0) for split in ("train", "heldout"))
    assert sorted(one.question for one in train) == ["a", "b", "e"]
    assert sorted(one.question for one in heldout) == ["b c", "d", "f"]
    assert mixture.notes() == [
        "fixed: 1 of 3 train problems are in another part",
        "fixed 2: 1 of 2 train problems are in another part",
    ]


def test_equal_ids_of_two_parts_are_told_apart(monkeypatch):
    mixture = _fixed(monkeypatch, _Fixed(["a", "b"], ["c"]), _Fixed(["d"], ["e"]))
    found = {one.id: one.question for one in mixture.problems("train", seed=0)}
    assert found == {"fixed/fixed-0": "a", "fixed-2/fixed-0": "d", "fixed-1": "b"}
    assert {one.kind for one in mixture.problems("train", seed=0)} == {"fixed", "fixed 2"}


def test_a_part_without_words_leaves_the_mixture_without(monkeypatch):
    mixture = _fixed(monkeypatch, _Fixed(["a"], ["b"]), _Fixed(["c"], ["d"]))
    assert mixture.words == ()
    assert not mixture.checks_steps


def test_a_part_that_has_nothing_of_its_own_is_refused(monkeypatch):
    mixture = _fixed(monkeypatch, _Fixed(["a"], ["b"]), _Fixed(["A"], ["c"]))
    with pytest.raises(ConfigError, match=r"task.parts.1 \(fixed 2\) has no train problem"):
        mixture.problems("train", seed=0)


def test_weighted_parts_leave_out_parts_without_problems():
    mixture = _mixture((ADDITION, 1.0), (PUZZLES, 3.0))
    found = mixture.problems("train", seed=0)
    assert [(label, weight, len(part)) for label, weight, part in mixed_parts(mixture, found)] == [
        ("addition", 1.0, 60),
        ("knights_knaves", 3.0, 30),
    ]
    only = [one for one in found if one.family == "knights_knaves"]
    assert [entry[0] for entry in mixed_parts(mixture, only)] == ["knights_knaves"]
    assert mixed_parts(load_family(ADDITION), found) == [("", 1.0, found)]


def test_a_part_that_cannot_be_drawn_is_named():
    many = AdditionTask(digits=2, num_train=16_000)
    with pytest.raises(ConfigError, match=r"^task.parts.1 \(addition\): found only \d+ distinct problems"):
        _mixture((PUZZLES, 1.0), (many, 1.0)).problems("train", seed=0)
