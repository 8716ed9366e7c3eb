"""Answers made to hang, exhaust or take over a grader, judged by the maths grader through the pool."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from swerve.rewards.pool import GraderPool
from swerve.types import Problem, Reward

GRADING = {"extraction": ["boxed", "whole"]}
"""Some answers of the corpus stand in a box, some alone."""
OWN_ANSWERS = [
    r"\boxed{9^{9^{9^9}}}",
    r"\boxed{(10^9)!}",
    r"\boxed{\sqrt{2}^{\sqrt{3}^{10^{12}}}}",
    r"\boxed{" + "{" * 3000 + "1" + "}" * 3000 + "}",
    r"\boxed{" + r"\frac{1}{" * 500 + "2" + "}" * 501,
    r"\boxed{\{" + ",".join(str(n) for n in range(10_000)) + r"\}}",
    r"\boxed{\sum_{k=1}^{10^{10}} \frac{1}{k!}}",
    r"\boxed{\int_0^{10^9} \sin(x^x) dx}",
    r"\boxed{0." + "3" * 50_000 + "}",
    " " * 100_000 + "4" + "\\" * 50_000,
    r"\boxed{__import__('os').system('touch MARKER')}",
    "__import__('os').system('touch MARKER')",
    "lone \ud800 surrogate and \0",
]


class Heart:
    """A thread that ticks; `longest_gap` is the longest time it did not (seconds)."""

    def __enter__(self) -> Heart:
        self.longest_gap = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _beat(self) -> None:
        last = time.monotonic()
        while not self._stop.wait(0.01):
            now = time.monotonic()
            self.longest_gap = max(self.longest_gap, now - last)
            last = now


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    return tmp_path / "marker"


def pairs_of(cases: list[dict[str, Any]], marker: Path) -> list[tuple[Problem, str]]:
    pairs = []
    for case in cases:
        problem = Problem(id=case["id"], family="math", question="", answer=case["gold"] or "1", grading=GRADING)
        pairs.append((problem, text_of(case).replace("MARKER", str(marker))))
    return pairs


def text_of(case: dict[str, Any]) -> str:
    if case["answer"] is not None:
        return str(case["answer"])
    return "".join(part * count for part, count in case["answer_parts"])


@pytest.fixture(scope="module")
def corpus(shared_data: Callable[[str], Path]) -> list[dict[str, Any]]:
    path = shared_data("hostile_answers") / "cases.jsonl.gz"
    with gzip.open(path, "rt", encoding="ascii") as lines:
        cases = [json.loads(line) for line in lines]
    return [case for case in cases if case["target"].startswith(("math_verify", "sympy."))]


@pytest.fixture(scope="module")
def graders() -> Iterator[GraderPool]:
    with GraderPool(num_workers=2) as graders:
        yield graders


def fits(want: str, reward: Reward) -> bool:
    """Whether a verdict is what a sound grader says; every verdict here came within the limits."""
    return {
        "accept": reward.value == 1.0,
        "accept_or_limit": reward.value == 1.0 or reward.status == "timeout",
        "reject_or_limit": reward.value != 1.0,
        "any_bounded": True,
        "no_execution": reward.value != 1.0,
    }[want]


def verdicts(rewards: list[Reward]) -> list[tuple[float | None, str]]:
    return [(reward.value, reward.status) for reward in rewards]


def test_own_hostile_answers_are_wrong_or_over_a_limit(graders: GraderPool, marker: Path) -> None:
    cases = [{"id": str(n), "answer": answer, "gold": "41"} for n, answer in enumerate(OWN_ANSWERS)]
    with Heart() as heart:
        rewards = graders.grade_all(pairs_of(cases, marker))
    assert [reward.status for reward in rewards if reward.value is None and reward.status == "error"] == []
    assert 1.0 not in [reward.value for reward in rewards]
    assert not marker.exists()
    assert heart.longest_gap < 1.0


@pytest.mark.slow
def test_corpus_gets_sound_verdicts_within_the_limits(
    graders: GraderPool, corpus: list[dict[str, Any]], marker: Path
) -> None:
    with Heart() as heart:
        rewards = graders.grade_all(pairs_of(corpus, marker))
    wrong = [
        (case["id"], case["want"], reward.value, reward.status, reward.detail)
        for case, reward in zip(corpus, rewards, strict=True)
        if not fits(case["want"], reward)
    ]
    assert wrong == []
    failed = [(case["id"], r.detail) for case, r in zip(corpus, rewards, strict=True) if r.status == "error"]
    assert failed == []
    assert not marker.exists()
    assert heart.longest_gap < 1.0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_verdicts_do_not_depend_on_the_load(corpus: list[dict[str, Any]], marker: Path) -> None:
    load = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        found = []
        for _ in range(3):
            with GraderPool(num_workers=2) as graders:
                found.append(verdicts(graders.grade_all(pairs_of(corpus, marker))))
    finally:
        for process in load:
            process.kill()
            process.wait()
    changed = [case["id"] for case, *seen in zip(corpus, *found, strict=True) if len(set(seen)) > 1]
    assert changed == []
