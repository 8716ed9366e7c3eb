from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from swerve.artifacts.responses import Response
from swerve.config.probe import ProbeConfig
from swerve.errors import ConfigError, MismatchError
from swerve.formats.conditions import parse_condition
from swerve.probe.recipe import SELECTIONS
from swerve.probe.rollouts.samples import choose_rollouts
from swerve.probe.rollouts.selection import Selection
from swerve.types import Problem

LABELS = ("dpo", "rl")
NONE = ProbeConfig(populations=())


def samples(*problems: tuple[str, str], length: int = 4, **more: Any) -> list[Response]:
    """Samples of (problem, a mark for each: `+` right, `-` wrong); texts say which sample of which problem."""
    found = []
    for number, (name, marks) in enumerate(problems):
        metadata = {"subject": "Algebra" if number % 2 else "Geometry"}
        fields = {"question": name, "difficulty": float(number), "kind": f"level {number}", "metadata": metadata}
        problem = Problem(id=name, family="math", answer="1", **{**fields, **more})
        found += [_sequence(problem, index, mark == "+", length + index) for index, mark in enumerate(marks)]
    return found


def _sequence(problem: Problem, index: int, correct: bool, length: int) -> Response:
    return Response(
        sequence_id=0,
        problem=problem,
        prompt_ids=(1,),
        completion_ids=(2,) * length,
        text=f"{problem.id}{index}",
        spans=((0, 0),) * length,
        correct=correct,
        population="imported",
        label="imported",
    )


def choose(reference: list[Response], final: list[Response], **changes: Any) -> Selection:
    where = [parse_condition(text) for text in changes.pop("where", ())]
    usual: dict[str, Any] = {"labels": LABELS, "headline": "reference_wrong_final_right", "config": NONE}
    return choose_rollouts(reference, final, where=where, tie_seed=3, **{**usual, **changes})


def texts(chosen: Selection) -> list[tuple[str, str]]:
    return [(str(one.population), str(one.text)) for one in chosen.rollouts]


CELLS = (("a", "-"), ("b", "+"), ("c", "-"), ("d", "+"))
AFTER = (("a", "+"), ("b", "+"), ("c", "-"), ("d", "-"))


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ("reference_wrong_final_right", ["a0"]),
        ("reference_right_final_right", ["b0"]),
        ("reference_wrong_final_wrong", ["c0"]),
        ("reference_right_final_wrong", ["d0"]),
        ("all", ["a0", "b0", "c0", "d0"]),
    ],
)
def test_one_sample_of_each_decides_and_is_read(selection: str, expected: list[str]) -> None:
    assert set(SELECTIONS) >= {selection}
    chosen = choose(samples(*CELLS), samples(*AFTER[::-1]), headline=selection)
    assert texts(chosen) == [(selection, text) for text in expected]
    assert (chosen.rule, chosen.num_ties) == ("single", 0)
    assert chosen.reference_right == (False, True, False, True)
    assert chosen.final_right == (True, True, False, False)
    assert {one.label for one in chosen.rollouts} == {"dpo"}
    assert chosen.problem_ids == ("a", "b", "c", "d")


def test_other_populations_stand_beside_it() -> None:
    chosen = choose(samples(*CELLS), samples(*AFTER), config=ProbeConfig(max_other_rollouts=1))
    assert texts(chosen) == [
        ("reference_wrong_final_right", "a0"),
        ("reference_wrong_final_wrong", "c0"),
        ("reference_right", "b0"),
        ("checkpoint_right", "a0"),
        ("checkpoint_wrong", "c0"),
    ]
    assert [one.label for one in chosen.rollouts] == ["dpo", "dpo", "dpo", "rl", "rl"]
    right = choose(samples(*CELLS), samples(*AFTER), headline="reference_right_final_right", config=ProbeConfig())
    assert {name for name, _ in texts(right)} >= {"reference_wrong", "reference_right"}
    assert ("reference_right", "d0") in texts(right)
    wrong = choose(samples(*CELLS), samples(*AFTER), headline="reference_wrong_final_wrong", config=ProbeConfig())
    assert [text for name, text in texts(wrong) if name == "reference_wrong_final_wrong"] == ["c0"]


def test_what_is_read_did_not_decide() -> None:
    reference = samples(("a", "---+-"), ("b", "--+++"), ("c", "+++--"))
    final = samples(("a", "++---"), ("b", "++---"), ("c", "++---"))
    chosen = choose(reference, final)
    # Of five samples the first two decide; the first wrong one of the others is read. b has no wrong one among them.
    assert (chosen.rule, texts(chosen)) == ("split", [("reference_wrong_final_right", "a2")])
    assert (chosen.reference_right, chosen.final_right) == ((False, False, True), (True, True, True))


def test_ties_are_drawn_and_counted() -> None:
    many = [(f"p{number}", "+-+-") for number in range(60)]
    chosen = choose(samples(*many), samples(*many), headline="all")
    assert chosen.num_ties == 120
    assert 15 < sum(chosen.reference_right) < 45  # of 60, each by its own draw
    assert chosen.reference_right != chosen.final_right  # by the label too
    assert choose(samples(*many), samples(*many), headline="all").reference_right == chosen.reference_right


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (["level=1,3"], ["b0", "d0"]),
        (["level=1..2"], ["b0", "c0"]),
        (["kind=level 2"], ["c0"]),
        (["subject=algebra"], ["b0", "d0"]),
        (["subject=algebra", "level=2.."], ["d0"]),
        (["length=..4"], ["a0", "b0", "c0", "d0"]),
    ],
)
def test_conditions(where: list[str], expected: list[str]) -> None:
    chosen = choose(samples(*CELLS), samples(*AFTER), headline="all", where=where)
    assert [text for _, text in texts(chosen)] == expected
    assert len(chosen.reference_right) == len(expected)


def test_lengths_are_of_the_rollouts_and_not_of_the_table() -> None:
    reference = samples(("a", "-----"), ("b", "-----"))
    chosen = choose(reference, samples(("a", "++"), ("b", "++")), where=["length=8.."])
    assert texts(chosen) == [("reference_wrong_final_right", "a4"), ("reference_wrong_final_right", "b4")]
    with pytest.raises(ConfigError, match="no rollout is reference_wrong_final_right: of 2 problems 0 are right with"):
        choose(reference, samples(("a", "++"), ("b", "++")), where=["length=99.."])


@pytest.mark.parametrize(
    ("reference", "final", "changes", "error", "message"),
    [
        (
            CELLS,
            (("x", "+"),),
            {},
            MismatchError,
            r"of dpo and of rl have no problem in common \(such as 'a' and 'x'\)",
        ),
        (CELLS[1:2], AFTER[1:2], {}, ConfigError, "of 1 problems 1 are right with both, 0 with dpo alone, 0 with rl"),
        (CELLS, AFTER, {"where": ["level=9"]}, ConfigError, "leaves none of the 4 problems: level is 0.0, 1.0, 2.0, 3"),
        (CELLS, AFTER, {"where": ["subjct=x"]}, ConfigError, "no problem has 'subjct'; did you mean 'subject'"),
        (CELLS, AFTER, {"where": ["level"]}, ConfigError, "is not a condition; write FIELD=VALUE"),
        (CELLS, AFTER, {"where": ["level="]}, ConfigError, "is not a condition; write FIELD=VALUE"),
        (CELLS, AFTER, {"where": ["length=a..b"]}, ConfigError, "'a' is not a number"),
    ],
)
def test_wrong_choices(
    reference: Sequence[tuple[str, str]],
    final: Sequence[tuple[str, str]],
    changes: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    with pytest.raises(error, match=message):
        choose(samples(*reference), samples(*final), **changes)


def test_problems_must_be_the_same() -> None:
    with pytest.raises(MismatchError, match="problem 'a' has another question or answer in the samples of rl than in"):
        choose(samples(*CELLS), samples(*AFTER, question="another"))
    unshared = choose(samples(*CELLS), samples(*AFTER[:3], ("x", "+")))
    assert (unshared.num_unshared, len(unshared.final_right)) == (2, 3)
