"""Why a verdict differs from the recorded one: looked up by hand, by the disagreement's set and name."""

from __future__ import annotations

from collections.abc import Mapping

_COMMA = "the gold answer has a thousands comma; as numbers they are equal"
_DEGREES = "equal: a unit that one side leaves out is not looked at"
_OPEN = "facts are left open (`true or false`); the recorded rule takes the first word after `is`"
_PLANE = (
    "the same plane, with all signs turned round; the problem also asks for a positive first coefficient, "
    "which no grader of answers checks: a strict reader says wrong"
)
_ANOTHER = "another answer; the recorded comparison saw only what stands before the first closing brace"
_SAME = "the same answer, written otherwise or cut off at the first closing brace"
_EITHER = "the problem asks for one of several answers; the solution boxes two, the gold is the last"
_ALL = "the problem asks for all solutions, the solution boxes each: the list is right, **the gold is incomplete**"
_BASE = "letters as digits of a base are not read: only the same text is accepted"


def _names(log: str, *rows: int) -> list[str]:
    return [f"{log} {row}" for row in rows]


def _both(*problems: str) -> list[str]:
    return [f"test/{problem}.json, {model}" for problem in problems for model in ("dpo", "rlvr")]


REASONS: Mapping[str, Mapping[str, str]] = {
    "math": {"test/prealgebra/1130.json, sample 7": "equal: `{,}` separates thousands. The recorded verdict is wrong"},
    "gsm8k": {
        **dict.fromkeys(
            (
                *("row 230", "row 249", "row 610", "row 640", "row 642"),
                *("row 819", "row 829", "row 997", "row 1009", "row 1206"),
            ),
            _COMMA,
        ),
        "row 98": 'no box, "5 cars ... in the first 15 minutes": the last number of the text is not the answer',
        "row 288": 'no box, "Three trucks ... 80 flagstones in one trip": the answer is a word, not the last number',
        "row 760": 'no box, "16 people think that horse #12": the last number of the text is not the answer',
    },
    "formulas": {
        **dict.fromkeys(_names("m950nfkl", 316, 451, 471, 521, 565, 625, 681, 683, 721), f"{_OPEN}, and is wrong"),
        **dict.fromkeys(_names("wntzruuo", 125, 145), f"{_OPEN}, and is wrong"),
        **dict.fromkeys(_names("m950nfkl", 473, 486, 545), f"{_OPEN}, which happens to be right"),
        **dict.fromkeys(_names("wntzruuo", 48, 67), f"{_OPEN}, which happens to be right"),
        "m950nfkl 90": "nine lines for eight facts, one of them twice: read, and wrong; the recorded rule counts nine",
        "wntzruuo 161": "`A: true` and so on: read, and wrong; the recorded rule knows `A is true` alone",
    },
    "rl_probe recorded_correct": {
        **dict.fromkeys(_both("precalculus/881", "precalculus/826", "precalculus/499"), _ANOTHER),
        **dict.fromkeys(_both("counting_and_probability/377", "precalculus/819", "prealgebra/153"), _SAME),
        **dict.fromkeys(_both("prealgebra/1742", "algebra/101"), _SAME),
        **dict.fromkeys(("test/prealgebra/1302.json, dpo", "test/prealgebra/1761.json, rlvr"), _SAME),
        "test/precalculus/1291.json, rlvr": _SAME,
        **dict.fromkeys(_both("geometry/967"), _DEGREES),
        **dict.fromkeys(("test/prealgebra/1807.json, rlvr", "test/geometry/473.json, rlvr"), _DEGREES),
        **dict.fromkeys(_both("precalculus/659"), _PLANE),
        "test/precalculus/477.json, dpo": "the right answer at the end of a chain of equations",
    },
    "rl_probe correct": {},
    "golds": {
        **dict.fromkeys(("train/number_theory/535.json", "deepscaler-2042c36203f1"), _BASE),
        "deepscaler-dc4b619fc346": "seconds of arc written as primes are not read: only the same text is accepted",
        "deepscaler-fa2f93257759": "a sentence with formulas in it is not read: only the same text is accepted",
    },
    "other golds": {
        **dict.fromkeys(("5 and x=5", "8 and K=8"), "the name of the unknown"),
        "\\frac{3}{4} and \\frac34": "the same fraction",
        **dict.fromkeys(("7\\% and 7", "25\\% and 25"), "`percent: either`"),
        **dict.fromkeys(
            ("120^\\circ and 120", "120 and 120^\\circ", "21\\text{ dogs} and 21", "18 \\text{ degrees} and 18"),
            "`units: ignore`",
        ),
    },
    "solutions": {
        "test/algebra/1878.json": _ALL,
        "test/intermediate_algebra/225.json": _ALL,
        "test/precalculus/679.json": _ALL,
        "train/algebra/152.json": _ALL,
        "train/algebra/1771.json": _ALL,
        "train/intermediate_algebra/1964.json": _ALL,
        "train/precalculus/1149.json": _ALL,
        "train/precalculus/860.json": _ALL,
        "test/intermediate_algebra/25.json": _EITHER,
        "test/intermediate_algebra/702.json": _EITHER,
        "train/intermediate_algebra/396.json": _EITHER,
        "train/number_theory/837.json": "one time on both clocks in two boxes joined by `or`: no time stands in a list",
        "train/number_theory/796.json": "`28` and `28_9` in two boxes joined by `or` are read as a list of two",
    },
}
"""Set -> name -> reason. A disagreement that is not here is shown as not looked at yet."""
