"""Every number of a card's lines comes from the rows that they open, over cards of files that hold other things."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import swerve
from swerve.claim.page import claim_page
from swerve.claim.record import ClaimCard
from swerve.report.evidence import Evidence, evidence_of


def said_of(card: ClaimCard) -> list[tuple[str, Evidence]]:
    """Return every sentence of the page of a card with the rows that it opens."""
    page = claim_page(card)
    texts = [page.sentence, *(line for verdict in page.verdicts for line, _ in verdict.lines)]
    return [(text, each) for text in texts for each in evidence_of(text)]


def write(path: Path, chances: np.ndarray, num: int, seed: int, *, text: str = "") -> Path:
    """Write a file of answers, right with a chance of each problem."""
    rng = np.random.default_rng(seed)
    rows = [
        {"id": f"p{place}", "question": f"Ask {place} of {place % 7}?", "response": text or f"\\boxed{{{sample}}}"}
        | {"sample": sample, "correct": bool(rng.random() < chance), "answered": not text, "temperature": 1.0}
        for place, chance in enumerate(chances)
        for sample in range(num)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


CARDS = {
    "a large gain": (np.full(60, 0.3), [np.full(60, 0.8)], 8),
    "a small effect": (np.linspace(0.05, 0.95, 60), [np.linspace(0.07, 0.97, 60)], 4),
    "a fall, one answer each": (np.full(60, 0.9), [np.full(60, 0.4)], 1),
    "sharpened": (np.full(60, 0.3), [np.repeat([1.0, 0.0], 30)], 16),
    "several runs": (np.full(60, 0.3), [np.full(60, 0.6), np.full(60, 0.62), np.full(60, 0.7)], 4),
}


@pytest.fixture(params=CARDS)
def card(request: pytest.FixtureRequest, tmp_path: Path) -> ClaimCard:
    base, runs, num = CARDS[request.param]
    before = write(tmp_path / "base.jsonl", base, num, 0)
    after = [write(tmp_path / f"rl-{number}.jsonl", run, num, number + 1) for number, run in enumerate(runs)]
    card = swerve.claim(before, after, out=tmp_path / "card", progress=False)
    assert card is not None
    return card


def test_each_number_of_a_line_comes_from_its_rows(card: ClaimCard) -> None:
    said = said_of(card)
    for text, evidence in said:
        assert [figure.name for figure in evidence.missing_in(text)] == [], text
    assert sum(len(evidence.figures) for _, evidence in said) >= 8
    # Rows of another card are noticed.
    first, rows = next((text, each) for text, each in said if each.id == "accuracy")
    changed = [float(value or 0.0) / 2 for value in rows.columns["after"]]
    assert replace(rows, columns={**rows.columns, "after": changed}).missing_in(first)


def test_the_lines_of_python_make_the_rows(card: ClaimCard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path / "card")
    evidence = next(each for _, each in said_of(card) if each.id == "accuracy")
    known: dict[str, object] = {}
    exec(evidence.command, known)
    assert list(known["after"]) == pytest.approx(list(evidence.columns["after"]))  # type: ignore[call-overload]


def test_a_prompt_that_decides_is_a_row(tmp_path: Path) -> None:
    base, other = (write(tmp_path / f"{name}.jsonl", np.full(60, at), 4, 0) for name, at in (("a", 0.3), ("b", 0.5)))
    trained = write(tmp_path / "rl.jsonl", np.full(60, 0.8), 4, 1)
    card = swerve.claim([base, other], trained, out=tmp_path / "card", progress=False)
    assert card is not None
    said = [(text, each) for text, each in said_of(card) if each.id.startswith("prompts-")]
    assert [each.missing_in(text) for text, each in said] == [[]]
    assert said[0][1].columns["prompt"] == ["b.jsonl"]
