"""How well answers of mathematics are judged: published equivalence cases, recorded scores, time, random text.

    python -m benchmarks.equivalence DATA [--fuzz 0] > benchmarks/results/equivalence.jsonl

DATA holds `equivalence/triples.jsonl.gz` (fields gold, gold_alternatives, answer, expected, kind, scope, flags,
conflict) and, where present, `rl_probe/responses.jsonl.gz`, `rollouts/math_qwen2.5_math_cot_100x.jsonl.gz` and
`rollouts/gsm8k_tora_70b.jsonl.gz`. `python -m studies benchmarks` puts the result into
`docs/graders.md#mathematics`. Golds and answers are graded as they are published, by the default policies, but by
`extraction: boxed` where the responses were asked for a box.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.process import print_header, print_line
from swerve.grading.grade_math import grade_math, quick_math
from swerve.types import Problem

_SHOWN = 60  # characters of a text's end


@dataclass(frozen=True, slots=True)
class Case:
    """A gold answer with a text and whether it should be accepted."""

    golds: tuple[str, ...]
    text: str
    expected: bool
    forms: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The agreement on one set of cases."""

    name: str
    cases: int
    agree: int
    quick: int
    """Cases that the trainer's own process decides."""
    wrong_accepts: int
    mean_ms: float
    """CPU time of a whole grading, milliseconds."""
    most_ms: float


def _rows(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _equivalence_cases(rows: Iterable[Mapping[str, Any]]) -> list[Case]:
    return [Case((row["gold"], *row["gold_alternatives"]), row["answer"], row["expected"], ("auto",)) for row in rows]


def _is_clean(row: Mapping[str, Any]) -> bool:
    return not row["flags"] and not row["conflict"]


def _case_sets(data: Path) -> Iterator[tuple[str, list[Case]]]:
    rows = _rows(data / "equivalence" / "triples.jsonl.gz")
    clean = [row for row in rows if row["scope"] == "equivalence" and _is_clean(row)]
    yield "equivalence", _equivalence_cases(clean)
    for scope in sorted({row["scope"] for row in rows} - {"equivalence"}):
        yield scope, _equivalence_cases(row for row in rows if row["scope"] == scope)
    boxed = ("boxed",)
    if (path := data / "rl_probe" / "responses.jsonl.gz").exists():
        yield "rl_probe", [Case((row["gold"],), row["response"], row["correct"], boxed) for row in _rows(path)]
    if (path := data / "rollouts" / "math_qwen2.5_math_cot_100x.jsonl.gz").exists():
        yield "math_qwen2.5", [Case((row["gold"],), row["response"], row["score"], boxed) for row in _rows(path)]
    if (path := data / "rollouts" / "gsm8k_tora_70b.jsonl.gz").exists():
        # No score is recorded: equal as numbers is what GSM8K's own evaluation asks for.
        yield (
            "gsm8k_tora",
            [
                Case((row["gold"],), str(row["pred"]), _equal_numbers(row["gold"], str(row["pred"])), ("whole",))
                for row in _rows(path)
            ],
        )


def _equal_numbers(gold: str, pred: str) -> bool:
    try:
        return abs(float(gold.replace(",", "")) - float(pred.replace(",", ""))) < 1e-9
    except ValueError:
        return False


def _judge(name: str, cases: Sequence[Case]) -> tuple[Result, list[tuple[Case, str]]]:
    """Grade the cases; return the figures and what was judged otherwise, with the answer that was read."""
    differ: list[tuple[Case, str]] = []
    seconds: list[float] = []
    quick = 0
    for case in cases:
        problem = Problem(
            id="case",
            family="math",
            question="",
            answer=case.golds[0],
            alternatives=case.golds[1:],
            grading={"extraction": case.forms},
        )
        quick += quick_math(problem, case.text) is not None
        started = time.process_time()
        reward = grade_math(problem, case.text)
        seconds.append(time.process_time() - started)
        if (reward.value == 1.0) != case.expected:
            differ.append((case, reward.extracted or reward.status))
    return Result(
        name=name,
        cases=len(cases),
        agree=len(cases) - len(differ),
        quick=quick,
        wrong_accepts=sum(not case.expected for case, _ in differ),
        mean_ms=round(1000 * sum(seconds) / len(cases), 2),
        most_ms=round(1000 * max(seconds), 1),
    ), differ


def _fuzz(count: int) -> Result:
    """Grade random strings of pieces of answers, quickly only."""
    pieces = (
        r"\frac \sqrt \boxed{ { } ( ) [ ] 1 34 0 . , x e i ^ _ + - * / = ! % | \text{cm} \pi \cup $ <answer> ½ \{ \}"
    )
    alphabet = [*pieces.split(), " ", "\n", "\ud800", "\x00"]
    problem = Problem(id="p", family="math", question="", answer="(1, x)", grading={"extraction": ["boxed", "whole"]})
    rng = random.Random(0)
    quick, most = 0, 0.0
    started = time.process_time()
    for _ in range(count):
        text = "".join(rng.choices(alphabet, k=rng.randint(1, 24)))
        before = time.process_time()
        quick += quick_math(problem, text) is not None
        most = max(most, time.process_time() - before)
    mean = (time.process_time() - started) / count
    return Result(
        name="random text",
        cases=count,
        agree=count,
        quick=quick,
        wrong_accepts=0,
        mean_ms=round(1000 * mean, 2),
        most_ms=round(1000 * most, 1),
    )


def main() -> None:
    """Judge every case; print JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--fuzz", type=int, default=0, help="number of random strings")
    arguments = parser.parse_args()
    print_header("math-verify")
    differ: list[tuple[Case, str]] = []
    for name, cases in _case_sets(arguments.data):
        result, others = _judge(name, cases)
        print_line(asdict(result))
        differ += others if name == "equivalence" else []
    if arguments.fuzz:
        print_line(asdict(_fuzz(arguments.fuzz)))
    for case, read in differ:
        print_line({"gold": case.golds[0], "text": case.text[-_SHOWN:], "expected": case.expected, "read": read})


if __name__ == "__main__":
    main()
