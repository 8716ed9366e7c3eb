r"""How well the grader of mathematics reads answers in other words: 300 golds, each written in 20 ways.

    python -m benchmarks.rewritten_golds [--failures] > benchmarks/results/rewritten_golds.jsonl

The golds are those of `gold_answers.jsonl`: answers of the kinds that mathematical data sets have, each with a wrong
one of its kind beside it (a sign, a digit, a term, an end of an interval, the order of a pair is another). A writing is
a program that makes, of a gold and an answer, the text of the gold as a data set may have it and the text that a person
or a model writes. Each gold takes 20 of the writings: those that only its kind has, then others in turn. Every right
answer must be accepted and every wrong one rejected. The golds are split by a hash of their number, 150 for development
and 150 that nobody looks at: `--failures` prints those of the development half only.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from benchmarks.process import print_header, print_line
from swerve.grading.grade_math import grade_math
from swerve.types import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer in the ways in which its kind is written."""

    latex: str
    """As a data set has it."""
    plain: str
    """As typed without LaTeX."""
    forms: list[str]
    """Other LaTeX of the same answer; equally many and in the same order for all answers of a kind."""
    value: str
    """The numbers that the texts were written from: what tells answers of one kind apart."""
    parts: list[str] = field(default_factory=list)
    """The answers of a list, with their names where they have some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gold:
    """A gold answer and a wrong one of its kind."""

    number: int
    kind: str
    right: Answer
    wrong: Answer


NUM_WRITINGS = 20
Half = Literal["development", "held_out"]
Texts = tuple[str, str]
"""The gold's text and the text to grade."""
Writing = Callable[[Gold, Answer], Texts | None]
"""Writes an answer against a gold; None where it does not apply."""
_NO_NUMBERS = ("choice", "words")
_SOLUTION = "We are told that $a = 3$ and $b = 14$, so that $a + b = 17$. "


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A text with the verdict that is due to it."""

    gold: int
    kind: str
    writing: str
    texts: Texts
    is_right: bool


def _form(place: int, frame: str, *, in_gold: bool = False) -> Writing:
    """Return the writing of an answer in one of its kind's other forms, in a sentence of its own."""

    def write(gold: Gold, answer: Answer) -> Texts:
        text = answer.forms[place]
        return (
            (frame % gold.right.forms[place], rf"\boxed{{{answer.latex}}}")
            if in_gold
            else (gold.right.latex, frame % text)
        )

    return write


def _framed(frame: str) -> Writing:
    return lambda gold, answer: (gold.right.latex, frame % answer.latex)


def _typed(frame: str) -> Writing:
    """Return the writing of an answer as it is typed without LaTeX."""
    return lambda gold, answer: (gold.right.latex, frame % answer.plain)


def _gold_in(frame: str) -> Writing:
    return lambda gold, answer: (frame % gold.right.latex, rf"\boxed{{{answer.latex}}}")


def _both(frame: str) -> Writing:
    return lambda gold, answer: (frame % gold.right.latex, frame % answer.latex)


def _stray_end(gold: Gold, answer: Answer) -> Texts:
    stray = (".", " $", r"\\", "**", ",", r"\ ", " .$", ";", r"\, .")[gold.number % 9]
    return gold.right.latex, rf"Adding all of them, we have \boxed{{{answer.latex}{stray}}}"


def _stray_gold(gold: Gold, answer: Answer) -> Texts:
    stray = (".", "$.", r"\\", "**", " ", ".$$", "\n")[gold.number % 7]
    start = "$" if stray.startswith("$") else "$$" if stray.endswith("$$") else "**" if stray == "**" else ""
    return f"{start}{gold.right.latex}{stray}", rf"\[ \boxed{{{answer.latex}}} \]"


def _corrected(gold: Gold, answer: Answer) -> Texts:
    other = gold.wrong if answer is gold.right else gold.right
    return gold.right.latex, (
        rf"My first guess was $\boxed{{{other.latex}}}$. Checking it again, a sign was wrong. The final answer is "
        rf"$\boxed{{{answer.latex}}}$."
    )


def _thought(gold: Gold, answer: Answer) -> Texts:
    other = gold.wrong if answer is gold.right else gold.right
    return gold.right.latex, rf"<think>Is it \boxed{{{other.latex}}}? No.</think> So it is \boxed{{{answer.latex}}}."


def _spaced(gold: Gold, answer: Answer) -> Texts | None:
    if gold.kind in _NO_NUMBERS:
        return None
    text = answer.latex.replace(" + ", r" \,+\, ").replace(", ", r",\ ").replace("(", r"\bigl(").replace(")", r"\bigr)")
    return gold.right.latex, rf"\[\boxed{{\displaystyle {text}}}\]"


def _boxes(gold: Gold, answer: Answer) -> Texts | None:
    boxes = [rf"$\boxed{{{part}}}$" for part in answer.parts]
    return (gold.right.latex, f"The solutions are {' and '.join(boxes)}.") if boxes else None


def _gold_sentence(gold: Gold, answer: Answer) -> Texts | None:
    parts = [f"${part}$" for part in gold.right.parts]
    boxes = [rf"\boxed{{{part}}}" for part in answer.parts]
    return (f"The solutions are {' and '.join(parts)}.", ", ".join(boxes)) if parts else None


def _formulas(gold: Gold, answer: Answer) -> Texts | None:
    parts = [f"${part}$" for part in answer.parts]
    return (gold.right.latex, f"Both steps together show that the answers are {', '.join(parts)}.") if parts else None


def _escaped(gold: Gold, answer: Answer) -> Texts | None:
    if "\\\\" in answer.latex or "\\" not in answer.latex:
        return None
    return gold.right.latex, rf"The answer is \boxed{{{answer.latex}}}".replace("\\", "\\\\")


OWN: Mapping[str, Writing] = {
    "form 1 in a box": _form(0, r"So we find \boxed{%s}."),
    "form 2 after a phrase": _form(1, "Hence the answer is $%s$."),
    "form 3 in a tag": _form(2, "<answer>%s</answer>"),
    "form 4 in the gold": _form(3, "%s", in_gold=True),
    "form 5 in a display": _form(4, "In all we get\n\\[\n%s\n\\]"),
    "form 2 as the gold's box": _form(1, _SOLUTION + r"So it must be $\boxed{%s}$, as claimed.", in_gold=True),
    "two boxes": _boxes,
    "the gold as a sentence of formulas": _gold_sentence,
    "a sentence of formulas": _formulas,
}
"""Writings in forms or parts that the answer's kind has."""
SHARED: Mapping[str, Writing] = {
    "box in prose": _framed(_SOLUTION + r"Adding up, we get $\boxed{%s}$, which is what was asked for."),
    "the gold as a whole solution": _gold_in(_SOLUTION + r"Therefore the answer is $\boxed{%s}$."),
    "the same text with a box": _both(r"\boxed{%s}"),
    "stray mark at the end": _stray_end,
    "stray mark in the gold": _stray_gold,
    "corrected": _corrected,
    "whole solutions on both sides": _both(_SOLUTION + "Then\n\\begin{align*}\nz &= \\boxed{%s}.\n\\end{align*}"),
    "I hope it is correct": _framed("Final Answer: The final answer is $%s$. I hope it is correct."),
    "thought about": _thought,
    "hash": _typed(_SOLUTION + "\n#### %s"),
    "typed after a colon": _typed("**Answer:** %s"),
    "the gold as a sentence": _gold_in("The answer is $%s$."),
    "spaced": _spaced,
    "bold at the end": _framed("Putting this together:\n\n**Final Answer**\n\n$$%s$$"),
    "dollars in a box": _framed(r"\boxed{$%s$}"),
    "tag with dollars": _framed("<think>We add them.</think>\n<answer> $%s$ </answer>"),
    "display at the end": _framed(_SOLUTION + "So we have\n\\[ %s. \\]"),
    "the gold in dollars": _gold_in("$%s$"),
    "escaped twice": _escaped,
    "typed in a tag": _typed("<answer>\n%s\n</answer>"),
    "the same sentence": _both("The answer is $%s$."),
    "bare": _framed("%s"),
}
"""Writings of any answer."""


def cases(half: Half) -> Iterator[Case]:
    """Yield the texts of a half: right and wrong answers of each gold in its writings."""
    for gold in golds_of(half):
        for name, write in _writings(gold).items():
            for answer in (gold.right, gold.wrong):
                texts = write(gold, answer)
                assert texts is not None
                yield Case(gold=gold.number, kind=gold.kind, writing=name, texts=texts, is_right=answer is gold.right)


def golds() -> list[Gold]:
    """Return the gold answers of all kinds."""
    lines = map(json.loads, Path(__file__).with_name("gold_answers.jsonl").read_text(encoding="utf-8").splitlines())
    return [Gold(**line | {side: Answer(**line[side]) for side in ("right", "wrong")}) for line in lines]


def golds_of(half: Half) -> list[Gold]:
    """Return one half of the golds, by the hash of their number."""
    found = sorted(golds(), key=lambda gold: hashlib.sha256(f"rewritten golds {gold.number}".encode()).digest())
    middle = len(found) // 2
    return found[:middle] if half == "development" else found[middle:]


def _writings(gold: Gold) -> dict[str, Writing]:
    shared = list(SHARED.items())
    turn = gold.number % len(shared)
    ordered = [*OWN.items(), *shared[turn:], *shared[:turn]]
    applicable = {name: write for name, write in ordered if write(gold, gold.right) and write(gold, gold.wrong)}
    return dict(list(applicable.items())[:NUM_WRITINGS])


def judge(case: Case) -> tuple[bool, str | None, str]:
    """Return whether the grader accepts a text, what it read, and the status."""
    gold, text = case.texts
    problem = Problem(id="case", family="math", question="", answer=gold, grading={"extraction": ["auto"]})
    reward = grade_math(problem, text)
    return reward.value == 1.0, reward.extracted, reward.status


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What the grader says of one half."""

    half: Half
    golds: int
    right: int
    accepted: int
    wrong: int
    wrong_accepts: int
    mean_ms: float
    """CPU time of a grading, milliseconds."""
    most_ms: float


def measure(half: Half, chosen: Sequence[Case]) -> tuple[Result, list[tuple[Case, str | None, str]]]:
    """Grade cases; return the counts, and those that are judged otherwise."""
    failures, seconds = [], []
    for case in chosen:
        started = time.process_time()
        accepted, read, status = judge(case)
        seconds.append(time.process_time() - started)
        if accepted != case.is_right:
            failures.append((case, read, status))
    counted = Counter(case.is_right for case in chosen)
    failed = Counter(case.is_right for case, _, _ in failures)
    return Result(
        half=half,
        golds=len({case.gold for case in chosen}),
        right=counted[True],
        accepted=counted[True] - failed[True],
        wrong=counted[False],
        wrong_accepts=failed[False],
        mean_ms=round(1000 * sum(seconds) / len(seconds), 2),
        most_ms=round(1000 * max(seconds), 1),
    ), failures


def main() -> None:
    """Judge the halves; print JSON lines, and the failures of the development half where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--failures", action="store_true", help="print those of the development half on stderr")
    arguments = parser.parse_args()
    print_header()
    halves: tuple[Half, Half] = ("development", "held_out")
    for half in halves:
        result, failures = measure(half, list(cases(half)))
        print_line(asdict(result))
        for case, read, status in failures if arguments.failures and half == "development" else ():
            verdict = "right, not accepted" if case.is_right else "WRONG, ACCEPTED"
            said = f"{verdict}: {case.kind} {case.gold}, {case.writing}: {case.texts} read {read!r} ({status})"
            print(said, file=sys.stderr)


if __name__ == "__main__":
    main()
