"""Why a verdict differs from the recorded one: looked up by hand, by the disagreement's set and name."""

from __future__ import annotations

from collections.abc import Mapping

_COMMA = "the gold answer has a thousands comma; as numbers they are equal"
_DEGREES = "equal: a unit that one side leaves out is not looked at"
_SQUARE = "written as $\\frac 59$, the same number; the regular expression keeps `\\frac{5`"
_OPEN = "{} left open; the recorded rule takes the first word after `is`, {}"
_PLANE = (
    "the same plane, with all signs turned round; the problem also asks for a positive first coefficient, "
    "which no grader of answers checks: a strict reader says wrong"
)
_MATRIX = "another vector; the recorded comparison saw `\\begin{pmatrix` on both sides"
_SIXTEENTH = "; the gold answer is 0.0625; the recorded comparison saw `\\frac{1` on both sides"
_INTERVAL = "another interval; the recorded comparison saw `\\left[\\frac{\\pi^2` on both sides"
_SAME_FRACTION = "equal, not in lowest terms; the recorded gold was cut off"
_EITHER = "the problem asks for one of several answers; the solution boxes two, the gold is the last"
_ALL = "the problem asks for all solutions, the solution boxes each: the list is right, **the gold is incomplete**"
_BASE = "letters as digits of a base are not read: only the same text is accepted"

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
        "m950nfkl 90": "nine lines for eight facts, one of them twice: read, and wrong; the recorded rule counts nine",
        "m950nfkl 316": _OPEN.format("B and C are", "of B wrongly"),
        "m950nfkl 451": _OPEN.format('C and D ("true/false (unspecified)") are', "while another fact is wrong"),
        "m950nfkl 471": _OPEN.format("A is", "here wrongly"),
        "m950nfkl 473": _OPEN.format("B is", "which happens to be right"),
        "m950nfkl 486": _OPEN.format("B, C and D are", "which happens to be right for all three"),
        "m950nfkl 521": _OPEN.format("B is", "here wrongly"),
        "m950nfkl 545": _OPEN.format("A and D are", "which happens to be right for both"),
        "m950nfkl 565": 'C "can be either true or false, but for simplicity, let\'s assume": no plain statement',
        "m950nfkl 625": _OPEN.format("B is", "here wrongly"),
        "m950nfkl 681": _OPEN.format("A is", "here wrongly"),
        "m950nfkl 683": _OPEN.format("C and D are", "here wrongly"),
        "m950nfkl 721": _OPEN.format("B is", "while another fact is wrong"),
        "wntzruuo 48": _OPEN.format('C ("false (or true, ...)") is', "which happens to be right"),
        "wntzruuo 67": _OPEN.format("B and C are", "which happens to be right for both"),
        "wntzruuo 125": _OPEN.format("A and C are", "here wrongly"),
        "wntzruuo 145": _OPEN.format("C is", "here wrongly"),
        "wntzruuo 161": "`A: true` and so on: read, and wrong; the recorded rule knows `A is true` alone",
    },
    "rl_probe recorded_correct": {
        "test/prealgebra/1302.json, dpo": "the same root with braces; the regular expression keeps `11\\sqrt{2`",
        "test/geometry/967.json, dpo": _DEGREES,
        "test/geometry/967.json, rlvr": _DEGREES,
        "test/prealgebra/1807.json, rlvr": _DEGREES,
        "test/geometry/473.json, rlvr": _DEGREES,
        "test/counting_and_probability/377.json, dpo": _SAME_FRACTION,
        "test/counting_and_probability/377.json, rlvr": _SAME_FRACTION,
        "test/precalculus/477.json, dpo": "the right answer at the end of a chain of equations",
        "test/precalculus/659.json, dpo": _PLANE,
        "test/precalculus/659.json, rlvr": _PLANE,
        "test/precalculus/819.json, dpo": "the same choice; the recorded gold was cut off",
        "test/precalculus/819.json, rlvr": "the same choice; the recorded gold was cut off",
        "test/prealgebra/153.json, dpo": _SQUARE,
        "test/prealgebra/153.json, rlvr": _SQUARE,
        "test/prealgebra/1742.json, dpo": "`\\dfrac` and `\\frac` are the same",
        "test/prealgebra/1742.json, rlvr": "`\\dfrac` and `\\frac` are the same",
        "test/prealgebra/1761.json, rlvr": "the same number as a decimal",
        "test/precalculus/881.json, dpo": _MATRIX,
        "test/precalculus/881.json, rlvr": _MATRIX,
        "test/precalculus/826.json, dpo": f"an expression worth 0.0162{_SIXTEENTH}",
        "test/precalculus/826.json, rlvr": f"an expression worth 0.682{_SIXTEENTH}",
        "test/precalculus/499.json, dpo": _INTERVAL,
        "test/precalculus/499.json, rlvr": _INTERVAL,
        "test/algebra/101.json, dpo": "the same interval without `x \\in`",
        "test/algebra/101.json, rlvr": "the same interval without `x \\in`",
        "test/precalculus/1291.json, rlvr": "the same number, its parts in the other order",
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
