"""A gain over several prompts of the base: the one over which least is shown decides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import swerve
from swerve.claim.prompts import prompts_part
from swerve.claim.sides import given_sides
from swerve.errors import ConfigError
from tests.claim.test_runs import write


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    rng = np.random.default_rng(0)
    chances = {"base": 0.4, "few": 0.74, "rl": 0.75}
    return [write(tmp_path / f"{name}.jsonl", (rng.random((60, 4)) < at).tolist()) for name, at in chances.items()]


def test_a_gain_that_a_better_prompt_reaches_is_not_shown(files: list[Path], tmp_path: Path) -> None:
    base, few, rl = files
    card: Any = swerve.claim([base, few], rl, out=tmp_path / "card", progress=False)
    assert [row.prompt for row in card.prompts.prompts] == ["base.jsonl", "few.jsonl"]
    means = [np.mean([json.loads(line)["correct"] for line in file.open()]) for file in files]
    assert [row.base.mean for row in card.prompts.prompts] == pytest.approx(means[:2])
    assert [row.difference.mean for row in card.prompts.prompts] == pytest.approx([means[2] - own for own in means[:2]])
    (line,) = card.prompts.verdicts
    assert (line.claim, line.shown, line.num) == ("accuracy_rose_over_prompts", False, 60)
    assert "under each of 2 prompts: under `few.jsonl`, where the least is shown, in " in line.sentence
    # Everything else is of the first prompt, and is shown.
    alone: Any = swerve.claim(base, rl, out=tmp_path / "alone", progress=False)
    assert alone.accuracy == card.accuracy
    assert alone.accuracy.verdicts[0].shown
    assert alone.prompts.missing.startswith("needs answers by `base` under other prompts: base=FILE")
    # Another prompt makes another card.
    with pytest.raises(ConfigError, match="has a card of other models"):
        swerve.claim([base, few], rl, out=tmp_path / "alone", progress=False)


def test_a_prompt_within_the_question_is_paired_by_id(files: list[Path], tmp_path: Path) -> None:
    rows = [json.loads(line) for line in files[1].open()]
    files[1].write_text(
        "".join(json.dumps({**row, "question": "Q: 1? A: 1\n" + row["question"]}) + "\n" for row in rows)
    )
    card: Any = swerve.claim(files[:2], files[2], out=tmp_path / "card", progress=False)
    assert [row.problems for row in card.prompts.prompts] == [60, 60]


def test_another_prompt_asks_the_same(files: list[Path], tmp_path: Path) -> None:
    rows = [json.loads(line) for line in files[1].open()]
    others = [row | {"question": f"What is {number} times two?"} for number, row in enumerate(rows)]
    files[1].write_text("".join(json.dumps(row) + "\n" for row in others))
    with pytest.raises(ConfigError, match=r"60 of 60 problems ask something else in base \(.*few.jsonl\) than in base"):
        swerve.claim(files[:2], files[2], out=tmp_path / "card", progress=False)
    # Gold answers that agree tell that a question is asked in other words.
    for file in files:
        rows = [json.loads(line) for line in file.open()]
        file.write_text("".join(json.dumps(row | {"gold": row["id"]}) + "\n" for row in rows))
    card: Any = swerve.claim(files[:2], files[2], out=tmp_path / "card", progress=False)
    assert [row.problems for row in card.prompts.prompts] == [60, 60]


def test_no_prompt_is_there_twice(files: list[Path], tmp_path: Path) -> None:
    base, few, rl = files
    for prompts in ([base, base], [base, few, few], [base, rl]):
        with pytest.raises(ConfigError, match="once more; give each run, and each prompt of the base, once"):
            swerve.claim(prompts, rl, out=tmp_path / "card", progress=False)


def test_files_with_the_name_of_the_first_are_prompts(files: list[Path]) -> None:
    base, few, rl = map(str, files)
    for given in ([f"base={base}", f"base={few}", rl], [base, rl, f"base={few}"]):
        sides = given_sides(given)
        assert [(side.label, side.is_prompt) for side in sides] == [
            ("base", False),
            ("rl", False),
            (f"base ({few})", True),
        ]
    with pytest.raises(ConfigError, match="all files are called 'a', as the base is under several prompts"):
        given_sides([f"a={base}", f"a={few}"])


def test_the_difference_that_decides_is_the_one_printed() -> None:
    rng = np.random.default_rng(0)
    trained = rng.binomial(16, 0.7, 100) / 16
    bases = [rng.binomial(16, at, 100) / 16 for at in (0.2, 0.6, 0.4)]
    part = prompts_part(("base", "rl"), ["a", "b", "c"], [(base, trained) for base in bases])
    (line,) = part.verdicts
    assert line.shown
    assert line.estimate == part.prompts[1].difference
    assert "under `b`, where the least is shown, in " in line.sentence
