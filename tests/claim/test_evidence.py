"""Every number of a card's lines comes from the rows that they open, over cards of files that hold other things."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import swerve
from swerve.claim.page import claim_page
from swerve.claim.record import ClaimCard
from swerve.report.evidence import Evidence, evidence_of


def said_of(card: ClaimCard) -> list[tuple[str, Evidence]]:
    """Return every sentence of the page of a card with the rows that it opens."""
    page = claim_page(card)
    texts = [page.sentence, page.lead, *(line for verdict in page.verdicts for line, _ in verdict.lines)]
    return [(text, each) for text in texts for each in evidence_of(text)]


def write(path: Path, chances: np.ndarray, num: int, seed: int, *, text: str = "") -> Path:
    """Write a file of answers, right with a chance of each problem; half of the wrong ones are cut off."""
    rng = np.random.default_rng(seed)
    rows = []
    for place, chance in enumerate(chances):
        for sample in range(num):
            right = bool(rng.random() < chance)
            row = {"id": f"p{place}", "question": f"Ask {place} of {place % 7}?", "sample": sample, "temperature": 1.0}
            row |= {"response": text or f"so {sample}", "correct": right, "tokens": 32}
            rows.append({**row, "finish_reason": "stop" if right or (place + sample) % 2 else "length"})
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
    assert {"base", "base, right", "base, answers"} <= rows.columns.keys()
    changed = [float(value or 0.0) / 2 for value in rows.columns["rl"]]
    assert replace(rows, columns={**rows.columns, "rl": changed}).missing_in(first)


_ENDS = re.compile(r"\((?P<low>[^() ]+) to (?P<high>[^() ]+)\)")


def test_each_interval_over_problems_comes_from_its_rows(card: ClaimCard) -> None:
    """Both ends of what stands in brackets, by the function of `swerve.statistics` that is named beside them."""
    checked = 0
    for text, evidence in said_of(card):
        found = _ENDS.findall(text)
        if evidence.unit != "problem" or not found or "90% interval" in text:
            continue
        ends = {evidence.texts[figure.name] for figure in evidence.figures if figure.end}
        assert {end for pair in found for end in pair} <= ends, text
        checked += 1
    assert checked >= 3


def test_intervals_over_groups_come_from_the_rows_and_their_groups(tmp_path: Path) -> None:
    files = []
    for number, chance in enumerate((0.3, 0.6)):
        rows = [json.loads(line) for line in write(tmp_path / "a.jsonl", np.full(80, chance), 4, number).open()]
        grouped = [{**row, "template": f"t{int(row['id'][1:]) % 20}"} for row in rows]
        files.append(tmp_path / f"{number}.jsonl")
        files[-1].write_text("".join(json.dumps(row) + "\n" for row in grouped))
    card = swerve.claim(*files, out=tmp_path / "card", fields={"group": "template"}, progress=False)
    assert card is not None
    said = said_of(card)
    assert [figure.name for text, each in said for figure in each.missing_in(text)] == []
    line, rows_of = next((text, each) for text, each in said if each.id == "accuracy" and each.figures)
    assert len({*rows_of.columns["group"]}) == 20
    # With each problem for itself the interval would be another.
    alone = {name: column for name, column in rows_of.columns.items() if name != "group"}
    assert replace(rows_of, columns=alone).missing_in(line)


def test_the_lines_of_python_make_the_rows(card: ClaimCard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path / "card")
    evidence = next(each for _, each in said_of(card) if each.id == "accuracy")
    known: dict[str, object] = {}
    exec(evidence.command, known)
    made = known["rows"].trained[list(evidence.columns["problem"])]  # type: ignore[attr-defined]
    assert list(made) == pytest.approx(list(evidence.columns["rl"]))

    # And those of how answers came out.
    evidence = next(each for _, each in said_of(card) if each.id.startswith("answers-"))
    exec(evidence.command, known)
    rows: Any = known["rows"]
    for side, label in (("base", "base"), ("trained", "rl")):
        made = rows.loc[list(evidence.columns["problem"])]
        for name in ("answers", "finished", "parsed", "right"):
            assert list(made[f"{side}.{name}"]) == list(evidence.columns[f"{label}, {name}"])

    # And those of several runs.
    for evidence in [each for _, each in said_of(card) if each.id == "runs"][:1]:
        exec(evidence.command, known)
        runs: Any = known["runs"]
        _, _, *others = evidence.columns
        assert [runs.loc[list(evidence.columns["problem"]), number].tolist() for number in range(3)] == [
            list(evidence.columns[name]) for name in ("rl", *others[1:])
        ]


@pytest.mark.parametrize(
    ("named", "task"),
    [({}, "table"), ({"set": "openai/gsm8k"}, "openai/gsm8k"), ({"family": "math", "set": "test"}, "math")],
)
def test_a_card_of_files_has_the_name_that_their_problems_give(
    named: dict[str, str], task: str, tmp_path: Path
) -> None:
    files = [write(tmp_path / f"{number}.jsonl", np.full(4, 0.5), 1, number) for number in range(2)]
    for file in files:
        rows = [{**json.loads(line), **named} for line in file.open()]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    card = swerve.claim(*files, out=tmp_path / "card", parts=["accuracy"], progress=False)
    assert card is not None
    assert card.task == task
    assert (f"`{task}`" in claim_page(card).lead) == bool(named)


def test_the_rows_of_several_prompts_are_those_under_the_one_that_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, other = (write(tmp_path / f"{name}.jsonl", np.full(60, at), 4, 0) for name, at in (("a", 0.3), ("b", 0.5)))
    trained = write(tmp_path / "rl.jsonl", np.full(60, 0.8), 4, 1)
    card = swerve.claim([base, other], trained, out=tmp_path / "card", progress=False)
    assert card is not None
    ((text, rows),) = [(text, each) for text, each in said_of(card) if each.id.startswith("prompts-")]
    assert rows.missing_in(text) == []
    assert [*rows.columns] == ["problem", "under b.jsonl", "rl"]
    monkeypatch.chdir(tmp_path / "card")
    known: dict[str, Any] = {}
    exec(rows.command, known)
    assert known["rows"].trained.tolist() == list(rows.columns["rl"])
