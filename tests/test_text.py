from __future__ import annotations

import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from swerve.estimates import Estimate
from swerve.text import number_interval, percent_interval, points, points_interval, rounded, signed, signed_interval
from tests.cases import each

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("**/*.md")))
NUMBER = r"[-+\u2212]?\d[\d.,]*(?:e-\d+)?%?"
OLD_FORM = re.compile(rf"\d%?(?: points)?\s\[{NUMBER},\s{NUMBER}\]")
HYPHEN_FOR_MINUS = re.compile(rf"(?<!e)-\d[\d.]* \({NUMBER} to |\(-\d[\d.]* to |\({NUMBER} to -\d")


@each(
    ("value", "digits", "text"),
    [
        (99.04, 1, "99.0"),
        (99.956, 1, "99.96"),
        (99.996, 1, "99.996"),
        (99.9996, 1, "100.0"),  # nearer than half of the last digit that is added
        (100.0, 1, "100.0"),
        (0.04, 1, "0.04"),
        (-0.04, 1, "\u22120.04"),
        (-1e-17, 1, "0.0"),
        (99.6, 0, "99.6"),
        (50.04, 1, "50.0"),
        (1234.56, 1, "1,234.6"),
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


@each(
    ("write", "ends", "text"),
    [
        (points_interval, (0.39, 0.316, 0.451), "+39.0 (+31.6 to +45.1)"),
        (points_interval, (-0.004, -0.038, 0.029), "\u22120.4 (\u22123.8 to +2.9)"),
        (points_interval, (0.299, 0.139, 0.46), "+30 (+14 to +46)"),
        (percent_interval, (0.465, 0.417, 0.514), "46.5% (41.7 to 51.4)"),
        (percent_interval, (0.9, 0.6, 0.998), "90% (60 to 99.8)"),  # not 100, which it is not
        (percent_interval, (1.0, 0.991, 1.0), "100.0% (99.1 to 100.0)"),
        (number_interval, (64.094, 63.954, 64.234), "64.1 (64.0 to 64.2)"),
        (number_interval, (12345, 11845, 12845), "12,345 (11,845 to 12,845)"),
        (number_interval, (0.5, 0.5, 0.5), "0.500 (0.500 to 0.500)"),
        (number_interval, (0.93, 0.907, 1.0), "0.930 (0.907 to 1.000)"),
        (number_interval, (0.9999, 0.71, 1.37), "1.00 (0.71 to 1.37)"),
        (number_interval, (4.1e-4, 1.6e-4, 6.6e-4), "4.1e-4 (1.6e-4 to 6.6e-4)"),
        (signed_interval, (-0.00705, -0.00776, -0.00634), "\u22120.00705 (\u22120.00776 to \u22120.00634)"),
        (signed_interval, (0.0, -0.00746, 0.00746), "0 (\u22120.0075 to +0.0075)"),
        (signed_interval, (0.27, 0.0004, 0.54), "+0.27 (+0.0004 to +0.54)"),  # excludes 0, and reads so
    ],
)
def test_an_interval_has_the_digits_that_it_supports(write, ends, text):
    mean, low, high = ends
    assert write(Estimate(mean=mean, low=low, high=high)) == text


def test_an_estimate_prints_as_it_is_written():
    assert str(Estimate(mean=-0.5, low=-0.75, high=-0.25)) == "\u22120.50 (\u22120.75 to \u22120.25)"


def test_numbers_beside_intervals_have_their_sign():
    assert (points(-0.004), points(0.0), signed(-0.012), signed(1e-4)) == (
        "\u22120.4",
        "0.0",
        "\u22120.0120",
        "+1.00e-4",
    )


def test_pages_have_one_form_of_interval():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert not OLD_FORM.findall(text), page
        assert not HYPHEN_FOR_MINUS.findall(text), page
