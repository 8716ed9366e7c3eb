from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from swerve.estimates import rounded
from tests.cases import each


@each(
    ("value", "digits", "text"),
    [
        (99.04, 1, "99.0"),
        (99.956, 1, "99.96"),
        (99.996, 1, "99.996"),
        (99.9996, 1, "100.0"),  # nearer than half of the last digit that is added
        (100.0, 1, "100.0"),
        (0.04, 1, "0.04"),
        (-0.04, 1, "-0.04"),
        (-1e-17, 1, "0.0"),
        (99.6, 0, "99.6"),
        (50.04, 1, "50.0"),
    ],
)
def test_a_number_is_not_rounded_to_a_bound_that_it_is_not(value, digits, text):
    assert rounded(value, digits, 0, 100) == text


@given(st.floats(0, 100), st.integers(0, 3))
def test_what_is_shown_is_near_and_reads_as_a_bound_only_next_to_it(value, digits):
    shown = float(rounded(value, digits, 0, 100))
    assert abs(shown - value) <= 0.5 * 10**-digits + 1e-9
    if shown in (0, 100):
        assert abs(shown - value) <= 0.5 * 10 ** -(digits + 2) + 1e-9
