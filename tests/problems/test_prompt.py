from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from swerve.errors import ConfigError
from swerve.problems.prompt import FORMATS, PromptConfig, PromptFormat, with_prompt
from swerve.types import Problem
from tests.cases import each

PROBLEM = Problem(id="p", family="math", question=r"What is \frac{1}{2} + {question}?", answer="1")
QUESTION = PROBLEM.question


@pytest.mark.parametrize(
    ("name", "messages", "prefix"),
    [
        ("plain", (), ""),
        ("boxed", (("user", f"{QUESTION}\n\nReason step by step and put the final answer within \\boxed{{}}."),), ""),
        (
            "step_by_step",
            (("user", f"{QUESTION} Let's think step by step and output the final answer within \\boxed{{}}."),),
            "",
        ),
        (
            "hash",
            (("user", f"{QUESTION}\n\nReason step by step and write the final answer after #### on the last line."),),
            "",
        ),
        ("think_answer", (("system", FORMATS["think_answer"].system), ("user", QUESTION)), "<think>"),
    ],
)
def test_formats(name: PromptFormat, messages: tuple[tuple[str, str], ...], prefix: str) -> None:
    found = with_prompt(PROBLEM, PromptConfig(format=name))
    assert found == replace(PROBLEM, messages=messages, prefix=prefix)


def test_a_recipe_may_replace_each_part() -> None:
    config = PromptConfig(format="think_answer", system="Be short.", template="Q: {question} {{}}", prefix="")
    found = with_prompt(PROBLEM, config)
    assert found.messages == (("system", "Be short."), ("user", f"Q: {QUESTION} {{}}"))
    assert found.prefix == ""
    assert with_prompt(PROBLEM, PromptConfig(format="think_answer", system="")).messages == ()


def test_an_earlier_prompt_is_replaced() -> None:
    once = with_prompt(PROBLEM, PromptConfig(format="think_answer"))
    assert with_prompt(once, PromptConfig()) == PROBLEM


@each(
    "template",
    [
        *["{0} {question}", "{} {question}", "{other} {question}", "{question", "}"],
        *["{question.x}", "{question[0]}", "{question!r}", "{question:>9}", "{question} {question.__class__}"],
    ],
)
def test_a_template_with_other_braces_is_refused(template: str) -> None:
    with pytest.raises(ConfigError, match="cannot be filled in .*; write {question} where the question stands"):
        with_prompt(PROBLEM, PromptConfig(template=template))


@pytest.mark.parametrize("template", ["no mark", "", "{{question}}"])
def test_a_template_without_the_question_is_refused(template: str) -> None:
    with pytest.raises(ConfigError, match="has no {question}"):
        with_prompt(PROBLEM, PromptConfig(template=template))


def test_a_template_may_have_the_question_twice() -> None:
    found = with_prompt(PROBLEM, PromptConfig(template="{question} Again: {question}"))
    assert found.messages == (("user", f"{QUESTION} Again: {QUESTION}"),)


def test_every_format_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text(encoding="utf-8")
    section = page.partition("## Prompt formats")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", section, re.MULTILINE)
    assert [name for name, _ in rows] == list(FORMATS) == list(get_args(PromptFormat))
    for name, row in rows:
        asked = FORMATS[name].template.format(question="").strip()
        assert asked in row
        assert FORMATS[name].prefix in row
