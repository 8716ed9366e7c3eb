"""The page of files of samples: accuracies, outcomes and examples, from literal samples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from swerve.artifacts.responses import Response
from swerve.artifacts.samples import (
    SampledModel,
    SampleFile,
    SamplesInfo,
    SamplesTokenizer,
    StoredSamples,
    write_samples,
)
from swerve.config.recipe import ReportConfig
from swerve.estimates import Estimate
from swerve.eval.comparison import compare
from swerve.report.page import Page, Texts, render
from swerve.report.rows import Rows
from swerve.report.samples import samples_page
from swerve.types import Completion, Problem, Prompt, Reward, Rollout

PROBLEMS = [
    Problem(id=f"p{index}", family="math", question=f"{index} + 1?", answer=str(index + 1), kind=f"level {index % 2}")
    for index in range(6)
]
RIGHT, WRONG = (Reward(value=value, status="graded") for value in (1.0, 0.0))
LOST = Reward(value=None, status="unparsed")


def file_of(label: str, rewards: tuple[Reward, Reward], *, ends: Literal["stop", "length"] = "stop") -> SampleFile:
    """Return samples at two temperatures, each with a reward of its own."""
    info = SamplesInfo(
        model=SampledModel(label=label, source=f"owner/{label}", fingerprint="ab" * 32, dtype="float32", device="cpu"),
        tokenizer=SamplesTokenizer(name=label, sha256="cd"),
        task={"kind": "math"},
        split="heldout",
        num_problems=6,
        problems_sha256="ef",
        num_samples=2,
        temperatures=(0.5, 1.0),
        max_new_tokens=8,
        seed=3,
        swerve_version="0",
    )
    completion = Completion(token_ids=(5, 6), logprobs=(-0.1, -0.2), finish_reason=ends)
    return SampleFile(
        info=info,
        samples=tuple(
            Response.of(
                Prompt(problem=problem, token_ids=(1,)),
                Rollout(completion=completion, text=f"<b>{label}</b>", reward=reward, version=0),
                sample=number,
                label=label,
                temperature=temperature,
            )
            for problem in PROBLEMS
            for number, (reward, temperature) in enumerate(zip(rewards, (0.5, 1.0), strict=True))
        ),
    )


FILES = [file_of("dpo", (WRONG, LOST)), file_of("rl", (RIGHT, WRONG), ends="length")]


@pytest.fixture
def page() -> Page:
    comparison = compare([file.samples for file in FILES], pooled=True)
    return samples_page(comparison, FILES, options=ReportConfig())


def part(page: Page, fold: str, index: int = 0) -> Rows:
    rows = next(entry for entry in page.folds if entry.id == fold).parts[index]
    assert isinstance(rows, Rows)
    return rows


def test_files_that_are_not_held_give_the_same_page(tmp_path: Path) -> None:
    # The first problem has one temperature only.
    files = [replace(file, samples=file.samples[:1] + file.samples[2:]) for file in FILES]
    stored = []
    for number, file in enumerate(files):
        filled = [replace(row, prompt="1", seed=0) for row in file.samples]
        write_samples(tmp_path / f"{number}.parquet", file.info, filled)
        stored.append(StoredSamples(tmp_path / f"{number}.parquet"))
    held = compare([file.samples for file in files], pooled=True)
    assert compare((file.samples for file in stored), pooled=True) == held
    options = ReportConfig()
    # Only of files that are there can the command say the names.
    from_files, from_memory = (
        replace(samples_page(held, each, options=options), provenance="") for each in (stored, files)
    )
    assert render(from_files) == render(from_memory)


def test_models_are_compared_over_all_temperatures(page: Page) -> None:
    assert page.sentence.startswith("On 6 problems, **`dpo` is right in 0% (0 to ")
    assert "and **`rl` is right in 50% (" in page.sentence
    assert "`rl` less `dpo` is +50 points (" in page.sentence
    assert page.sentence.endswith("; no difference is shown.")
    assert page.lead == (
        "Task math (heldout), 2 samples of each problem, T=0.5 and T=1. One problem is \N{LEFT DOUBLE QUOTATION MARK}"
        "0 + 1?\N{RIGHT DOUBLE QUOTATION MARK}."
    )
    accuracy, difference = page.verdicts
    assert accuracy.rows is not None
    dpo, rl = accuracy.rows.rows
    assert (dpo[0], rl[0]) == ("dpo, all temperatures", "rl, all temperatures")
    assert [cell.mean for cell in (dpo[1], rl[1], rl[3]) if isinstance(cell, Estimate)] == [0.0, 0.5, 0.5]
    assert difference.title == "`rl` is shown to differ from `dpo` in 0 of 8 measures"
    assert difference.text == "No difference is shown."


def test_temperatures_outcomes_and_kinds_have_rows(page: Page) -> None:
    names = [f"{model}, {decoding}" for model in ("dpo", "rl") for decoding in ("all temperatures", "T=0.5", "T=1")]
    assert [row[0] for row in part(page, "accuracy").rows] == names
    several = part(page, "accuracy", 1)
    assert [row[0] for row in several.rows] == ["1", "2"]
    kinds = part(page, "by-kind")
    assert [row[0] for row in kinds.rows] == ["level 0 [3]", "level 1 [3]", "All kinds"]
    cut = next(rows for rows in page.folds[2].parts if isinstance(rows, Rows) and rows.id == "truncated")
    assert cut.rows[3][:2] == ("rl, all temperatures", Estimate(mean=1.0, low=cut.rows[3][1].low, high=1.0))
    sources = page.folds[-1].parts[0]
    assert isinstance(sources, Texts)
    assert [name for name, _ in sources.texts] == ["dpo", "rl"]
    assert '"source": "owner/rl"' in sources.texts[1][1]


def test_an_example_of_each_outcome_stands_as_it_was_written(page: Page) -> None:
    texts = next(entry for entry in page.folds if entry.id == "examples").parts[0]
    assert isinstance(texts, Texts)
    assert [name.partition(":")[0] for name, _ in texts.texts] == [
        "dpo, T=0.5, wrong",
        "dpo, T=1, no answer found",
        "rl, T=0.5, right, cut off",
        "rl, T=1, wrong, cut off",
    ]
    shown = render(page)
    assert "<pre>&lt;b&gt;dpo&lt;/b&gt;</pre>" in shown
    assert "<b>dpo" not in shown


def test_what_else_differs_is_a_sentence_with_its_figures() -> None:
    many = [replace(problem, id=f"{problem.id}-{turn}") for problem in PROBLEMS for turn in range(4)]
    samples = [
        Response(problem=problem, label=label, text=text, correct=True, temperature=0.0, completion_ids=(1,) * length)
        for label, text, length in (("dpo", "so", 3), ("rl", "wait, so", 9))
        for problem in many
    ]
    comparison = compare([samples[:24], samples[24:]])
    _, rl = samples_page(comparison, [], options=ReportConfig()).verdicts
    assert rl.title == "`rl` is shown to differ from `dpo` in 3 of 4 measures"
    assert rl.text.startswith("Tokens +6.00 (+5.30 to +6.70) over 24 problems, p < 0.001; words +1.00 (")
    assert "; reflections per 1,000 words +500 (" in rl.text
