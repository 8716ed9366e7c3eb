r"""Looks for the answer that takes a grader longest in the caller's process, by changing what was slow before.

    python -m tests.campaign.slow_answers [--seconds 60] [--seed 0] [--grader NAME]

A text is a row of pieces, each repeated some number of times; so is a gold answer in half of the searches. The search
keeps the slowest of each problem and changes them: other pieces, other counts, brackets around a part. It looks at long
texts, up to where a worker takes over, and at short ones, which the comparison of formulas reads. Prints the slowest of
each grader, and fails if one takes more than 50 ms of CPU time in each of three runs (longer
on a slow machine).
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from swerve.grading.maths import equivalence
from swerve.rewards import _MAX_CHARS_HERE, graded_here
from swerve.types import Problem

ALLOWED_SECONDS = 0.05
"""CPU time of an answer on a machine whose slowness is 1."""
_WORDS = r"""
\frac \sqrt \sqrt[3]{ \boxed{ \boxed \fbox{ \text{ \text{cm} \text{m} \text{and} \pi \infty \cup \in \pm \sin \log_2 \\
\( \) \[ \] \{ \} ^\circ \le \cdot \mathbb{R} \overline{3} \binom \sum_{k=1}^3 \int_0^1 \over \pmod \mid \setminus
\begin{pmatrix} \end{pmatrix} \begin{cases} \end{cases} \implies \quad \left( \right) \square \mbox{.} \! \label{
{ } ( ) [ ] | 1 2 34 77777 0. .5 1,000 1,1 ... , ; : x y i e f( A B (C) C. ^ ^2 ^{64} ^{1/2} _ _{1} + - * / = < ! % & $
$$ ' " ~ # or and not is the answer because so Zoey Owen knight knave zoe's is_a x=1 |x|<1 x<1 (-1,2) (1,2) 1/3 10^{60}
<answer> </answer> <think> </think> #### solution result [0,1) ]0,1[ 4:30 p.m. 5\% twenty-one million \langle \rangle
"""
PIECES = (
    *_WORDS.split(),
    *(" ", "\n", "\t", "\\", "answer is ", "the answer is $1$. ", "####\n"),
    *("½", "²", "₂", "\u2212", "\ud800", "\x00", "٣"),
    *(r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\{x\mid x<1,", r"\{(1|", "bbbbbbb=1", "is a knight ", "x = 1\n"),
)
_BRACKETS = (
    *(("{", "}"), ("(", ")"), ("[", "]"), (r"\{", r"\}"), (r"\boxed{", "}"), (r"\sqrt{", "}"), ("|", "|")),
    ("<answer>", "</answer>"),
)
_GOLDS = (
    "1", r"\frac{1}{2}", "(1,2)", r"\{1,2,3\}", "x < 1", r"(-\infty,1)\cup(2,3)", "1, 2, 3", r"5\text{ cm}", "A",
    "4:30 pm", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", "7:32", "x = 3", "west", r"\pm 3", "f(x)=2x", "1000",
    r"x \implies y", "12_5",
)  # fmt: skip
_FORMS = ("boxed", "answer_tag", "hash", "phrase", "formula", "last_number", "last_line", "whole", "auto")
_LONG, _SHORT = _MAX_CHARS_HERE, 240
_NUM_KEPT = 40

Part = tuple[str, int]
"""A piece and how often it stands there."""


def problems() -> dict[str, list[Problem]]:
    """Return problems of every grader that judges in the caller's process, by one of its names."""
    people = "Zoey is a knave, Owen is a knight"
    golds = {
        "arithmetic_sequence": ["7 2 6 1"],
        "choice": ["C"],
        "countdown": ["(2 + 8) * 3"],
        "exact": ["Paris"],
        "k_and_k": [people],
        "knights_knaves": ["Zoey is a knave"],
        "palindrome": ["abba", "a b b a"],
        "word_problems": ["17"],
        "math": list(_GOLDS),
    }
    policies = {
        "k_and_k": [{}, {"reading": "logic_rl"}, {"tags": "optional", "scale": "parts"}],
        "math": [{"extraction": [form, "whole"]} for form in _FORMS] + [{"units": "same", "percent": "strict"}],
    }
    metadata = {"numbers": [2, 3, 8], "target": 30}
    return {
        name: [
            Problem(id="p", family=name, question="?", answer=gold, grading=policy, metadata=metadata)
            for gold in golds[name]
            for policy in policies.get(name, [{}])
        ]
        for name in golds
    }


@dataclass(frozen=True, slots=True)
class Candidate:
    """What is judged, and its cost."""

    problem: Problem
    text: tuple[Part, ...]
    gold: tuple[Part, ...] = ()
    """Empty: the problem's own."""
    most: int = _LONG
    """Characters of text and gold."""
    seconds: float = 0.0

    def pair(self) -> tuple[Problem, str]:
        """Return the problem and the text."""
        if not self.gold:
            return self.problem, rendered(self.text, self.most - len(self.problem.answer))
        gold = rendered(self.gold, self.most // 2)
        return replace(self.problem, answer=gold), rendered(self.text, self.most - len(gold))


def rendered(parts: Sequence[Part], most: int) -> str:
    """Return the text of parts, cut off."""
    return "".join(piece * count for piece, count in parts)[:most]


def cpu_seconds(problem: Problem, text: str, runs: int = 1) -> float:
    """Return the CPU time of judging a text in this process, the least of some runs."""
    least = float("inf")
    for _ in range(runs):
        equivalence.read_gold.cache_clear()
        started = time.process_time()
        graded_here(problem, text)
        least = min(least, time.process_time() - started)
    return least


def slowness() -> float:
    """Return how slow this machine is now: 1 if it adds three million numbers in 50 ms of CPU time, or faster."""
    least = float("inf")
    for _ in range(3):
        started = time.process_time()
        sum(range(3_000_000))
        least = min(least, time.process_time() - started)
    return max(1.0, least / 0.05)


def slowest(name: str, seconds: float, seed: int) -> tuple[Candidate, int]:
    """Search for some seconds; return the slowest candidate, measured three times, and how many were tried."""
    rng, asked = random.Random(f"{seed} {name}"), problems()[name]
    # Long and short texts, with the problem's gold and with another: the slowest of each kind are kept.
    starts = [Candidate(asked[0], (), gold, most) for most in (_LONG, _SHORT) for gold in ((), (("1", 1),))]
    kept: list[list[Candidate]] = [[] for _ in starts]
    until, tried = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        start, others = starts[tried % len(starts)], kept[tried % len(starts)]
        parent = rng.choice(others) if others and rng.random() < 0.9 else start
        if parent is start or rng.random() < 0.1:
            parent = replace(parent, problem=rng.choice(asked))
        candidate = _timed(_changed(parent, rng))
        if len(others) < _NUM_KEPT or candidate.seconds > others[-1].seconds:
            again = _timed(candidate)  # other work on the machine makes a run slow once
            others.append(min(candidate, again, key=lambda one: one.seconds))
        others.sort(key=lambda one: -one.seconds)
        del others[_NUM_KEPT:]
        tried += 1
    best = sorted((one for others in kept for one in others[:4]), key=lambda one: -one.seconds)
    measured = [replace(one, seconds=cpu_seconds(*one.pair(), runs=3)) for one in best]
    return max(measured, key=lambda one: one.seconds), tried


def _timed(candidate: Candidate) -> Candidate:
    return replace(candidate, seconds=cpu_seconds(*candidate.pair()))


def _changed(candidate: Candidate, rng: random.Random) -> Candidate:
    text = _mutated(candidate.text, candidate.most, rng)
    if candidate.gold and rng.random() < 0.2:
        return replace(candidate, text=text, gold=text)
    gold = _mutated(candidate.gold, candidate.most, rng) if candidate.gold and rng.random() < 0.5 else candidate.gold
    return replace(candidate, text=text, gold=gold)


def _mutated(parts: tuple[Part, ...], most: int, rng: random.Random) -> tuple[Part, ...]:
    changed = list(parts) or _new_parts(most, rng)
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(changed))
        piece, count = changed[place]
        match rng.randrange(8):
            case 0:
                changed[place] = piece, max(1, min(most, rng.choice((count * 2, count // 2, count + 1, count - 1))))
            case 1:
                changed[place] = rng.choice(PIECES), count
            case 2:
                changed[place] = (piece + rng.choice(PIECES), max(1, count // 2))
            case 3:
                half = piece, max(1, count // 2)
                changed[place : place + 1] = [half, (rng.choice(PIECES), 1), half]
            case 4:
                changed.insert(place, (rng.choice(PIECES), _count(most, rng)))
            case 5:
                (opening, closing), depth = rng.choice(_BRACKETS), _count(most, rng)
                changed[place : place + 1] = [(opening, depth), (piece, count), (closing, depth)]
            case 6 if len(changed) > 1:
                del changed[place]
            case _:
                changed[place] = piece, max(1, most // max(1, len(piece)) // len(changed))
    return tuple(changed[:12])


def _new_parts(most: int, rng: random.Random) -> list[Part]:
    return [(rng.choice(PIECES), _count(most, rng)) for _ in range(rng.randint(1, 4))]


def _count(most: int, rng: random.Random) -> int:
    """Return a number of repetitions, of every order of magnitude equally often."""
    return int(most ** rng.random()) or 1


def _lines(candidate: Candidate, tried: int, name: str) -> Iterator[str]:
    problem, text = candidate.pair()
    yield f"{name}: {tried} tried, slowest {1000 * candidate.seconds:.1f} ms of CPU time for {len(text)} characters"
    yield f"    text {candidate.text}"
    yield f"    gold {candidate.gold or problem.answer!r}, grading {dict(problem.grading)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Search; return 1 if a grader is too slow."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="of the whole search")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--grader", choices=sorted(problems()), help="only this one")
    options = parser.parse_args(arguments)
    names = [options.grader] if options.grader else sorted(problems())
    # The grader of mathematics does more than all others together.
    shares = {name: 4.0 if name == "math" else 1.0 for name in names}
    slow = []
    for name in names:
        found, tried = slowest(name, options.seconds * shares[name] / sum(shares.values()), options.seed)
        print("\n".join(_lines(found, tried, name)), flush=True)
        if found.seconds > ALLOWED_SECONDS * slowness():
            slow.append(name)
    print(f"slower than {1000 * ALLOWED_SECONDS:.0f} ms: {', '.join(slow) or 'none'}")
    return bool(slow)


if __name__ == "__main__":
    sys.exit(main())
