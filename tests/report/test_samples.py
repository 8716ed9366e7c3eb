"""The page of files of samples: accuracies, outcomes and examples, from literal samples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from swerve.artifacts.responses import Response
from swerve.artifacts.samples import SampledModel, SampleFile, SamplesInfo, SamplesTokenizer
from swerve.config import ReportConfig
from swerve.eval.comparison import compare
from swerve.report.samples import write_samples_page
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


@pytest.fixture
def page(tmp_path: Path) -> str:
    files = [file_of("dpo", (WRONG, LOST)), file_of("rl", (RIGHT, WRONG), ends="length")]
    comparison = compare([file.samples for file in files], pooled=True)
    path = write_samples_page(tmp_path / "report" / "index.html", comparison, files, options=ReportConfig())
    return path.read_text(encoding="utf-8")


def test_models_are_compared_over_all_temperatures(page: str) -> None:
    assert "Of the samples of dpo (all temperatures) 0.0% (0.0 to " in page
    assert "Of the samples of rl (all temperatures) 50.0% (" in page
    assert " are right, +50.0 (" in page
    assert ") points against dpo (p = " in page
    assert page.index("<dt>dpo</dt>") < page.index("<dt>rl</dt>")
    assert ">not measured<" not in page
    for row in ("dpo, all temperatures", "dpo, T=0.5", "dpo, T=1", "rl, all temperatures", "rl, T=0.5", "rl, T=1"):
        assert f'<th scope="row">{row}</th>' in page


def test_outcomes_and_kinds_have_columns(page: str) -> None:
    assert "<td>100.0</td>" in page  # of rl cut off
    assert ">cut off</th>" in page
    assert "Differences are from dpo, paired over the problems that both have" in page
    assert "level 0 [3]" in page
    assert "owner/rl, abababababababab, float32" in page


def test_an_example_of_each_outcome_stands_as_it_was_written(page: str) -> None:
    for caption in ("dpo, T=0.5, wrong: 0 + 1?", "dpo, T=1, no answer found: 0 + 1?", "rl, T=0.5, right, cut off: 0"):
        assert page.count(f"<summary>{caption}") == 1
    assert "<pre>&lt;b&gt;dpo&lt;/b&gt;</pre>" in page


def test_what_else_differs_is_a_sentence_with_its_figures(tmp_path: Path) -> None:
    many = [replace(problem, id=f"{problem.id}-{turn}") for problem in PROBLEMS for turn in range(4)]
    samples = [
        Response(problem=problem, label=label, text=text, correct=True, temperature=0.0, completion_ids=(1,) * length)
        for label, text, length in (("dpo", "so", 3), ("rl", "wait, so", 9))
        for problem in many
    ]
    comparison = compare([samples[:24], samples[24:]])
    page = write_samples_page(tmp_path / "index.html", comparison, [], options=ReportConfig()).read_text("utf-8")
    said = "rl (greedy) also differs from dpo in tokens +6.00 [+5.30, +6.70] (n=24, p &lt; 0.001); words +1.00 ["
    assert said in page
    assert "; reflections per 1,000 words +500 [" in page
