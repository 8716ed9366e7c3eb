"""Why answers are wrong, what the gain consists of, and accuracy at matched length, of responses written out."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from swerve.artifacts.parts import Parts
from swerve.artifacts.responses import Response, by_problem
from swerve.claim import answers
from swerve.claim.answers import BY_PROBLEM, AnswersPart, FailureRow, gain_verdict
from swerve.claim.work import Work
from swerve.estimates import Estimate
from swerve.types import Problem


def sample(name: str, text: str, *, right=False, answered=True, cut=False, tokens=4, **changes: Any) -> Response:
    given = {"family": "table", "grader": "math", "answer": "7", "question": "?", **changes}
    return Response(
        problem=Problem(id=name, **given),
        text=text,
        completion_ids=tuple(range(tokens)),
        correct=right,
        answered=answered,
        finish_reason="length" if cut else "stop",
    )


def part_of(base: list[Response], trained: list[Response], parts: Parts | None = None):
    sides = (SimpleNamespace(label="base"), SimpleNamespace(label="rl"))
    work = SimpleNamespace(
        samples=(by_problem(base), by_problem(trained)), sides=sides, settings=SimpleNamespace(seed=0)
    )
    given = {**vars(work), "counts": Work.counts.func(work), "clusters": None, "parts": parts or Parts(None, {})}
    return AnswersPart.measure(SimpleNamespace(**given))


BASE = [
    sample("a", r"so \boxed{7}", right=True, tokens=3),
    sample("a", "so 3 and", answered=False, cut=True, tokens=9),
    sample("a", "it is clearly\n7", answered=False),
    sample("a", "I don't know.", answered=False),
    sample("b", r"\boxed{8}"),
    sample("b", r"\boxed{8} and so on and on", cut=True, tokens=9),
    sample("b", r"\boxed{9}"),
    sample("b", r"\boxed{14/2}"),  # which the first grader got wrong
]
TRAINED = [sample(name, r"\boxed{7}", right=True) for name in "aaaabbbb"]


def test_of_many_samples_other_graders_are_asked_of_some_problems_drawn_at_random(monkeypatch):
    monkeypatch.setattr(answers, "_MOST_GRADED", 50)
    # Of the even problems every wrong answer is right under a lenient reading, of the odd ones none.
    base = [sample(f"{number}", "7" if number % 2 == 0 else "8", answered=False) for number in range(200)]
    trained = [sample(f"{number}", r"\boxed{7}", right=True) for number in range(200)]
    part = part_of(base, trained)
    assert 0.2 < part.failures[0].lenient < 0.8
    assert part.failures[0].unparsed == 1.0  # of all
    assert part.notes[-1] == "Other graders were asked of 25 of the 200 problems, drawn at random."
    assert part_of(base, trained) == part
    # A first problem with more samples than that is asked of all the same.
    monkeypatch.setattr(answers, "_MOST_GRADED", 3)
    assert part_of(BASE, TRAINED).notes[-1].startswith("Other graders were asked of 1 of the 2 problems")


def test_failures_are_shares_of_the_wrong_answers():
    base, trained = part_of(BASE, TRAINED).failures
    assert base == FailureRow(
        model="base",
        accuracy=1 / 8,
        truncated=2 / 7,
        unparsed=3 / 7,
        lenient=2 / 7,  # the last line, and 14/2
        abstained=1 / 7,
        right_if_parsed=1 / 5,
        tokens=(3 + 9 + 4 + 4 + 4 + 9 + 4 + 4) / 8,
        second_grader=2 / 8,
    )
    assert (trained.accuracy, trained.truncated, trained.lenient, trained.second_grader) == (1.0, None, None, 0.0)


def test_parts_of_the_gain_sum_to_it():
    part = part_of(BASE, TRAINED)
    # Of a 3 of 4 ended, 1 of these was read, and that one is right; of b all ended, also what was cut off behind
    # a mark, and none is right.
    truncation = (1 / 4) * ((1 / 3 + 1) / 3 + (1 / 3 + 1) / 6)
    correctness = 1.0
    gains = {row.part: row.gain.mean for row in part.gains}
    assert gains["truncation"] == pytest.approx(truncation / 2)
    assert gains["correctness"] == pytest.approx(correctness / 2)
    assert sum(gains.values()) == pytest.approx(7 / 8, abs=1e-12)
    assert part.filled == 0
    # Two problems show no part.
    assert [verdict.shown for verdict in part.verdicts] == [False] * 3
    assert part.verdicts[0].sentence == (
        "Over 2 problems `rl` is not seen to gain by more answers that are finished within the limit of 9 tokens, +8 "
        "points (\u2212100 to +100)."
    )


def test_how_many_are_finished_and_cut_off_is_told_with_what_it_cannot_tell():
    part = part_of(BASE, TRAINED, parts := Parts(None, {}))
    # Of the base one is cut off without an answer, and another behind a marked one: both are wrong.
    rows = parts.get(BY_PROBLEM)
    assert [row["problem"] for row in rows] == ["a", "b"]
    assert [tuple(row["base"].values()) for row in rows] == [(4, 3, 1, 1, 1, 0), (4, 4, 4, 0, 1, 0)]
    assert [tuple(row["trained"].values()) for row in rows] == [(4, 4, 4, 4, 0, 0)] * 2
    assert [tuple(row.model_dump().values()) for row in part.outcomes] == [
        ("base", 8, 7, 5, 1, 7, 2, 0),
        ("rl", 8, 8, 8, 8, 0, 0, 0),
    ]
    said = (
        "Finished within the limit of 9 tokens, or right, are 7 of 8 answers by `base` and 8 of 8 by `rl`. Cut off "
        "were 2 of 7 wrong ones and 0 of 0, and of the right ones 0 of 1 and 0 of 8."
    )
    assert part.facts("base", "rl") == [said]
    # Where most wrong answers are cut off, to be finished and to be right may be the same.
    cut = [sample("a", "3 and", cut=True, tokens=9), sample("a", "the 7 is", right=True, cut=True, tokens=9)]
    (mostly,) = part_of(cut, TRAINED[:2]).facts("base", "rl")
    assert mostly.startswith(
        "Finished within the limit of 9 tokens, or right, are 1 of 2 answers by `base` and 2 of 2 by `rl`. Cut off "
        "were 1 of 1 wrong ones and 0 of 0, and of the right ones 1 of 1 and 0 of 2. Whoever writes on until it "
    )
    # Nothing was cut off, or it is not known.
    assert part_of(TRAINED, TRAINED).facts("base", "rl") == []
    assert part_of([replace(each, finish_reason=None) for each in BASE], TRAINED).facts("base", "rl") == []


def test_the_limit_is_the_length_of_what_was_cut_off():
    def limit(*lengths: int, **changes: Any) -> int | None:
        base = [replace(sample(str(name), "so", cut=True, tokens=each), **changes) for name, each in enumerate(lengths)]
        return part_of(base, [sample(str(name), "7", right=True) for name in range(len(base))]).limit

    assert (limit(9, 9), limit(9, 7), limit(*[9] * 9, 7)) == (9, None, 9)
    assert limit(9, completion_ids=(), extra={"tokens": 1024}) == 1024
    assert limit(9, completion_ids=()) is None
    assert part_of(TRAINED[:2], TRAINED[:2]).limit is None


def test_of_one_sample_parts_are_shown_as_well():
    base = [sample(f"{number}", "it is\n7", answered=False) for number in range(40)]
    base += [sample(f"{number}", r"\boxed{7}", right=True) for number in range(40, 60)]
    part = part_of(base, [sample(f"{number}", r"\boxed{7}", right=True) for number in range(60)])
    assert [verdict.shown for verdict in part.verdicts] == [False, True, False]
    assert part.verdicts[1].sentence.startswith(
        "Over 60 problems `rl` gains by more answers that can be read, +67 points ("
    )


def test_a_base_that_reads_nothing():
    """Format is shown whatever its answers are; how many of them are right is not determined."""
    base = [sample(f"{number}", "it is\n7", answered=False) for number in range(40)]
    trained = [sample(f"{number}", r"\boxed{7}", right=number < 20) for number in range(40)]
    part = part_of(base, trained)
    assert [verdict.shown for verdict in part.verdicts] == [False, True, None]
    assert part.verdicts[2].sentence == (
        "Whether `rl` gains by more right ones among the answers read is not determined, because none of the answers "
        "of `base` could be read, so how many of them are right is not known."
    )
    assert [row.gain is None for row in part.gains] == [False, False, True]


def test_a_right_answer_that_was_cut_off_is_not_a_truncation():
    base = [sample("a", "the total is 7 and", right=True, cut=True), sample("a", "the total is 8 and", cut=True)]
    gains = {row.part: row.gain.mean for row in part_of(base, TRAINED[:2]).gains}
    assert gains == {"truncation": pytest.approx(0.5), "format": 0.0, "correctness": 0.0}


def test_accuracy_at_matched_length():
    base = [sample("a", "", right=True, tokens=2), sample("a", "", tokens=8), sample("b", "", tokens=8)]
    base += [sample("b", "", tokens=8)]
    trained = [sample("a", "", right=True, tokens=8), sample("a", "", right=True, tokens=8)]
    trained += [sample("b", "", right=True, tokens=8), sample("b", "", tokens=20)]
    rows = part_of(base, trained).by_length
    assert [(row.tokens, row.base, row.trained, row.problems) for row in rows] == [
        ("0 to 8", 0.25, 1.0, 2),
        ("9 to 20", None, None, 0),
    ]
    # Problems may be in several rows or none; answers add up.
    assert [(row.base_answers, row.trained_answers) for row in rows] == [(4, 3), (0, 1)]


def test_other_tasks_have_no_second_grader():
    base, _ = part_of([sample("a", "answer 3", grader="exact")], [sample("a", "7", grader="exact")]).failures
    assert base.second_grader is None


@pytest.mark.parametrize(
    ("gain", "shown", "does", "more", "points"),
    [
        (Estimate(mean=0.192, low=0.1, high=0.3), True, "gains", "more", "+19 points (+10 to +30)."),
        (
            Estimate(mean=0.192, low=-0.1, high=0.3),
            False,
            "is not seen to gain",
            "more",
            "+19 points (\u221210 to +30).",
        ),
        (Estimate(mean=-0.2, low=-0.3, high=-0.1), False, "loses", "fewer", "\u221220 points (\u221230 to \u221210)."),
    ],
)
def test_verdicts_on_the_parts(gain, shown, does, more, points):
    verdict = gain_verdict("rl", "gain_by_format", gain, 9)
    said = f"Over 9 problems `rl` {does} by {more} answers that can be read, {points}"
    assert (verdict.shown, verdict.sentence, verdict.num) == (shown, said, 9)


def test_what_is_unknown_of_a_sample_has_no_part_of_its_own():
    unknown = [replace(each, answered=None) for each in BASE]
    part = part_of(unknown, TRAINED)
    # Nor is it counted, as it is behind the parts, as if all of them had been read.
    assert [(row.finished, row.parsed, row.right) for row in part.outcomes] == [(6, None, 1), (8, None, 8)]
    finishing, form, correctness = part.verdicts
    assert "Whether" not in finishing.sentence  # known of all
    assert (form.shown, correctness.shown, form.estimate) == (None, None, None)
    assert form.sentence == (
        "Whether `rl` gains by more answers that can be read is not determined, because it is not known whether 7 of "
        "the 16 answers were read."
    )
    assert [row.gain is None for row in part.gains] == [False, True, True]
    assert part.failures[0].unparsed is None
    assert part.failures[0].accuracy == 1 / 8


def test_without_a_finish_reason_only_what_is_not_right_is_unknown():
    part = part_of([replace(each, finish_reason=None) for each in BASE], TRAINED)
    assert ["it is not known" in verdict.sentence for verdict in part.verdicts] == [True, False, False]
    assert "whether 3 of the 16 answers ended" in part.verdicts[0].sentence  # the others are in a box
    assert part.failures[0].truncated is None


def test_verdicts_without_texts_have_no_other_reading():
    part = part_of(
        [replace(each, text=None) for each in BASE], TRAINED[:0] + [replace(each, text=None) for each in TRAINED]
    )
    base, trained = part.failures
    assert (base.lenient, base.abstained, base.second_grader, trained.second_grader) == (None, None, None, None)
    assert base.tokens == (3 + 9 + 4 + 4 + 4 + 9 + 4 + 4) / 8  # of the ids


def test_a_text_that_is_not_there_is_unknown_and_not_empty():
    """Neither wrong under the lenient reading, nor without abstention, nor of no words."""
    unknown = {"text": None, "completion_ids": ()}
    part = part_of([*BASE[:-1], replace(BASE[-1], **unknown)], TRAINED)
    base, trained = part.failures
    assert (base.lenient, base.abstained, base.second_grader, base.tokens) == (None, None, None, None)
    assert base.truncated == 2 / 7
    assert (trained.second_grader, trained.tokens) == (0.0, 4.0)
    assert part.by_length == ()
