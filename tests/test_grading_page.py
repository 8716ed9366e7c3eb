"""The page on graded data is what its results say, and each of its disagreements was looked at."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "graded-data.md").read_text(encoding="utf-8")


@pytest.fixture
def page(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("grading_page")


@pytest.fixture
def records():
    lines = (ROOT / "benchmarks" / "results" / "grading.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_the_page_is_made_from_the_results(page, records):
    assert page.filled(PAGE, records) == PAGE


def test_every_disagreement_was_looked_at(page, records):
    assert page.NOT_LOOKED_AT not in page.filled(PAGE, records)
    assert page.stale_reasons(records) == []


def test_a_new_disagreement_is_shown_as_not_looked_at(page, records):
    [maths] = [record for record in records if record["kind"] == "math"]
    new = {**maths["disagreements"][0], "id": "test/algebra/1.json, sample 0", "gold": "a|b", "value": 0.0}
    changed = [{**maths, "disagreements": [new]} if record is maths else record for record in records]
    [row] = [line for line in page.filled(PAGE, changed).splitlines() if line.startswith("| `test/algebra/1.json")]
    assert row == r"| `test/algebra/1.json, sample 0` | `a\|b` | `10000` | wrong | 0 | **not looked at yet** |"
    assert page.stale_reasons(changed) == ["math: test/prealgebra/1130.json, sample 7"]


def test_a_page_without_a_place_for_a_table_is_refused(page, records):
    with pytest.raises(ValueError, match="the page has no place for 'agreement': put <!-- agreement --> and"):
        page.filled("# Graded data", records)
