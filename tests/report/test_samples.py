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
from swerve.report.evidence import evidence_of
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
        replace(page, provenance="", sentence=str(page.sentence))
        for page in (samples_page(held, each, options=options) for each in (stored, files))
    )
    assert render(from_files) == render(from_memory)


def test_models_are_compared_over_all_temperatures(page: Page) -> None:
    assert plain(page.sentence) == (
        "On 6 problems no difference in accuracy is to be seen: `rl` is right in 50% and `dpo` in 0% of answers "
        "sampled at all temperatures, +50 points (-11 to +86). A true difference of about 70 points would be seen in "
        "80 of 100 such comparisons."
    )
    assert page.lead == (
        "Task math (heldout), 2 samples of each problem, T=0.5 and T=1. One problem is \N{LEFT DOUBLE QUOTATION MARK}"
        "0 + 1?\N{RIGHT DOUBLE QUOTATION MARK}. In the rows behind a sentence a problem's name opens what was "
        "written: of each model one right answer and one that is not."
    )
    accuracy, difference = page.verdicts
    assert accuracy.rows is not None
    dpo, rl = accuracy.rows.rows
    assert (dpo[0], rl[0]) == ("dpo, all temperatures", "rl, all temperatures")
    assert [cell.mean for cell in (dpo[1], rl[1], rl[3]) if isinstance(cell, Estimate)] == [0.0, 0.5, 0.5]
    assert difference.title == "`rl` against `dpo`: of 7 other measures none is shown to differ"


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


def answers(
    label: str, right: str, *, text: str = "so", length: int = 3, temperature: float | None = 0.0
) -> SampleFile:
    """Return one answer to each of as many problems as there are marks: 1 is right, 0 wrong, ? without a verdict."""
    info = FILES[0].info.model_copy(update={"model": FILES[0].info.model.model_copy(update={"label": label})})
    samples = tuple(
        Response(
            problem=Problem(id=f"q{place}", family="math", question=f"{place}?", answer="1"),
            label=label, text=text, correct=None if mark == "?" else mark == "1", temperature=temperature,
            completion_ids=(1,) * length,
        )
        for place, mark in enumerate(right)
    )  # fmt: skip
    return SampleFile(info=info, samples=samples)


def page_of(*files: SampleFile) -> Page:
    return samples_page(compare([file.samples for file in files], pooled=True), files, options=ReportConfig())


def plain(text: str) -> str:
    return text.replace("\N{MINUS SIGN}", "-")


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (
            (answers("a", "0" * 30 + "1" * 10), answers("b", "1" * 40)),
            "On 40 problems **`b` is right more often than `a`**: 100% against 25% of greedy answers, +75 points "
            "(+60 to +89).",
        ),
        (
            (answers("a", "1" * 40), answers("b", "0" * 30 + "1" * 10)),
            "On 40 problems **`b` is right less often than `a`**: 25% against 100% of greedy answers, -75 points "
            "(-89 to -60).",
        ),
        (
            (answers("a", "1" * 20 + "0" * 20), answers("b", "01" * 20)),
            "On 40 problems no difference in accuracy is to be seen: `b` is right in 50% and `a` in 50% of greedy "
            "answers, 0 points (-23 to +23). A true difference of about 33 points would be seen in 80 of 100 "
            "such comparisons.",
        ),
        (
            (answers("a", "0" * 12), answers("b", "1" * 12, temperature=1.0)),
            "On 12 problems `b` is right more often than `a`: 100% of answers sampled at T=1 against 0% of greedy "
            "answers, +100 points (+55 to +100).",
        ),
        (
            (answers("a", "1" * 30 + "0" * 10),),
            "On 40 problems **`a` is right in 75% (59 to 87) of greedy answers**.",
        ),
        (
            (answers("a", "?" * 40),),
            "On 40 problems: how often `a` is right is not determined, because no sample has a verdict.",
        ),
        (
            (answers("a", "1" * 40), answers("b", "?" * 40)),
            "On 40 problems **`a` is right in 100.0% (91.2 to 100.0) of greedy answers**. How often `b` is right is "
            "not determined, because no sample has a verdict.",
        ),
        (
            (answers("a", "0" * 40), answers("b", "1" * 40), answers("c", "0" * 40)),
            "On 40 problems **`a` is right in 0.0% (0.0 to 8.8), `b` is right in 100.0% (91.2 to 100.0) and `c` is "
            "right in 0.0% (0.0 to 8.8) of greedy answers**. More often right than `a`: `b` (+100.0 points (+85.6 to "
            "+100.0)). Without a difference to be seen from `a`: `c` (0.0 points (-6.9 to +6.9)).",
        ),
        (
            (answers("a", "1"),),
            "On 1 problem `a` is right in 100% (3 to 100) of greedy answers. One problem decides nothing.",
        ),
    ],
)  # fmt: skip
def test_the_first_sentence_of_each_outcome(files: tuple[SampleFile, ...], said: str) -> None:
    page = page_of(*files)
    assert plain(page.sentence) == said
    assert_made_of_its_rows(page)


def assert_made_of_its_rows(page: Page) -> int:
    """Check that every number that the rows behind a sentence give stands in it; return how many there are."""
    texts = [page.sentence, *(line for verdict in page.verdicts for line, _ in verdict.lines)]
    said = [(text, each) for text in texts for each in evidence_of(text)]
    for text, evidence in said:
        assert [figure.name for figure in evidence.missing_in(text)] == [], text
    return sum(len(evidence.figures) for _, evidence in said)


def test_what_else_differs_is_a_line_each_with_its_rows() -> None:
    page = page_of(answers("dpo", "1" * 24), answers("rl", "1" * 24, text="wait, so", length=9))
    _, rl = page.verdicts
    assert rl.title == "`rl` against `dpo`: of 3 other measures 3 are shown to differ"
    assert [line.partition(":")[0] for line, _ in rl.lines] == [
        "Tokens over 24 problems",
        "Words over 24 problems",
        "Reflections per 1,000 words over 24 problems",
    ]
    assert plain(rl.lines[0][0]) == "Tokens over 24 problems: 9.00 against 3.00, +6.00 (+5.30 to +6.70)."
    assert rl.lines[0][1] == "p < 0.001"
    assert assert_made_of_its_rows(page) == 12


def test_what_was_not_tested_is_not_no() -> None:
    _, b = page_of(answers("a", "1"), answers("b", "0")).verdicts
    assert (b.title, b.text) == (
        "`b` against `a`: other measures were not tested",
        "One problem decides nothing.",
    )
