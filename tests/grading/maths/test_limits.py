from __future__ import annotations

import pytest

from swerve import equivalent
from swerve.grading.maths.limits import LIMITS, LimitReached, check_limits
from tests.cases import each


@each(
    ("text", "limit"),
    [
        ("1" * (LIMITS.characters + 1), "characters"),
        ("1," * 300, "elements"),
        (r"\pi" * 401, "commands"),
        ("7" * 1001, "digits"),
        ("{" * 31, "nesting"),
        (r"\left(" * 31, "nesting"),
        ("9^9^9^9", "exponents of exponents"),
        ("9**9**9**9", "exponents of exponents"),
        ("9^{9^{9^9}}", "exponents of exponents"),
        ("x" + "^2" * 5, "exponents of exponents"),
        ("2^{100000000}", "exponent"),
        ("2^-100000000", "exponent"),
        ("1e999999999", "exponent"),
        ("1000000!", "factorial"),
        ("((5!)!)!", "factorial"),
        ("100!!", "factorial"),
        (r"\binom{1000000}{500000}", "binomial"),
    ],
)
def test_each_limit_is_named(text: str, limit: str) -> None:
    with pytest.raises(LimitReached, match=limit):
        check_limits(text)


@each(
    "text",
    [
        "2^6 3^5 5^4",
        "2^{6} + 3^{5} + 5^{4}",
        "x^2y^3z^4",
        "x^{2^{3}}",
        "2024^{4046}",
        "1/2000!",
        "5 != 6",
        r"\left(\frac{1}{2}\right)^{2} \cdot 3^{4} \cdot 5^{6}",
        "(x^2+1)^3(x^4+1)^5(x^6+1)^7",
        "x^{2}(y^{2}(z^{2}(w^{2}(v^{2}+1)+1)+1)+1)",
    ],
)
def test_ordinary_answers_pass(text: str) -> None:
    check_limits(text)
    assert equivalent(text, text)
