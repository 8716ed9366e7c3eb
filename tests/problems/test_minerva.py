from __future__ import annotations

import pytest

from swerve.problems.minerva import answer_of_asked_part

PARTS = r"Part 0. Solution: \boxed{1}. Part 1?"


@pytest.mark.parametrize(
    ("given", "box"),
    [
        (r"8.7 \times 10^{8}", "8.7e8"),
        (r"3.3 \times 10^{-10}", "3.3e-10"),
        (r"\arcsin{\frac{10}{13}}", "np.arcsin(10/13)"),
        (r"\frac{x}{2} - 1", "x / 2-1"),
        (r"\left( 3, 4 \right)", "(3,4)"),
    ],
)
def test_two_ways_to_write_an_answer(given: str, box: str) -> None:
    assert answer_of_asked_part(PARTS, ["7", given], rf"\boxed{{{box}}}") is None


@pytest.mark.parametrize(
    ("given", "box"), [("1", "2"), ("-1", "1"), ("1.5", "15"), (r"2 \times 10^{8}", "2e9"), ("x", "y")]
)
def test_two_answers(given: str, box: str) -> None:
    assert answer_of_asked_part(PARTS, [given], rf"\boxed{{{box}}}") == box


def test_a_box_may_hold_python() -> None:
    assert answer_of_asked_part(PARTS, ["1"], r"\boxed{np.arcsin(10/13)}") == r"\arcsin(10/13)"
