"""Chat templates and tokenizers of other people's models: a hang, a full memory, an abort is one line."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from swerve.errors import ConfigError
from swerve.models.tiny import build_word_tokenizer
from swerve.prompts.encode import encode_completions, encode_prompts, encode_texts
from swerve.sandbox.limits import GraderLimits
from swerve.types import Problem, Prompt

LOOP = "{% for i in range(99999) %}"
DOUBLING = "{% set n = namespace(x='xx') %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}"
TEMPLATES = {
    "loops": (LOOP * 3 + "{% endfor %}" * 3, "CPU time limit 1.2 s"),  # writes nothing: text would fill memory first
    "memory": ("{{ 'x' * 10**11 }}", "memory limit 128 MiB"),
    "growing memory": (DOUBLING, "memory limit 128 MiB"),
    "padding": ("{{ 'x' | center(10**10) }}", "memory limit 128 MiB"),
    "recursion": ("{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}", "recursion limit"),
    "nesting": ("{{ " + "(" * 5000 + ")" * 5000 + " }}", "recursion limit"),
    "range": ("{{ range(10**9) }}", "OverflowError: Range too big"),
    "include": ("{% include 'x' %}", "TypeError: no loader"),
    "wrong type": ("{{ messages[0].content + 1 }}", "TypeError: can only concatenate str"),
    "surrogate": ("{{ '\\ud800' }}", "tokenizer.json"),
}


@pytest.mark.parametrize(("template", "limit"), TEMPLATES.values(), ids=TEMPLATES)
def test_a_hostile_chat_template_ends_in_one_line(
    refused: Any, folder: Path, responses: Path, template: str, limit: str
) -> None:
    (folder / "chat_template.jinja").write_text(template)
    line = refused("data", "import", responses, "--out", "table.parquet", "--tokenizer", folder, status=2)
    assert str(folder) in line
    assert limit in line, line
    assert "use another model, or" in line or "(chat_template.jinja) fails on problem 'p'" in line


def test_a_template_that_renders_nothing_is_named(refused: Any, folder: Path, responses: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ nothing }}")
    line = refused("data", "import", responses, "--out", "table.parquet", "--tokenizer", folder, status=2)
    assert "the prompt of problem 'p' has no tokens" in line


def growing(tokenizer: Tokenizer) -> None:
    tokenizer.normalizer = normalizers.Sequence([normalizers.Replace("a", "a" * 1000)] * 4)


def backtracking(tokenizer: Tokenizer) -> None:
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("(a+)+$"), "isolated")


def precompiled(tokenizer: Tokenizer) -> bytes:
    content = json.loads(tokenizer.to_str())
    charsmap = base64.b64encode((1024).to_bytes(4, "little") + b"\xff" * 1024 + b"abc").decode()
    content["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": charsmap}
    return json.dumps(content).encode()


TOKENIZERS: dict[str, tuple[Callable[[Tokenizer], Any], str]] = {
    "aborts": (growing, "memory limit 128 MiB"),
    "panics on a regular expression": (backtracking, "retry-limit-in-match"),
    "panics on a map of characters": (precompiled, "index out of bounds"),
}


@pytest.mark.parametrize(("change", "limit"), TOKENIZERS.values(), ids=TOKENIZERS)
def test_a_hostile_tokenizer_ends_in_one_line(
    refused: Any, folder: Path, responses: Path, change: Callable[[Tokenizer], Any], limit: str
) -> None:
    record = {"id": "p", "problem": "a" * 2000 + "!", "response": "2", "gold": "2"}
    responses.write_text(json.dumps(record) + "\n")
    vocabulary = {character: index for index, character in enumerate("ab =+12;")}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    content = change(tokenizer)
    (folder / "tokenizer.json").write_bytes(content or tokenizer.to_str().encode())
    line = refused("data", "import", responses, "--out", "table.parquet", "--tokenizer", folder)
    assert f"the tokenizer of {folder} (tokenizer.json) fails on the response: " in line
    assert limit in line, line


def letters() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.WordLevel({"<unk>": 0, **{str(n): n + 1 for n in range(9)}}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    wrapped.chat_template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    return wrapped


def test_a_hostile_tokenizer_on_a_supervised_text_ends_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "swerve.prompts.encode.shared_limits", lambda: GraderLimits(cpu_seconds=1.2, memory_bytes=128 << 20)
    )
    tokenizer = letters()
    problems = [Problem(id=str(n), family="x", question="1", answer="") for n in range(3)]
    prompts = [Prompt(problem=problem, token_ids=(2,)) for problem in problems]
    tokenizer.eos_token = "8"
    assert encode_completions(tokenizer, prompts, ["1", "2 3", ""]) == [(2, 9), (3, 4, 9), (9,)]
    growing(tokenizer.backend_tokenizer)
    with pytest.raises(ConfigError, match=r"\(tokenizer.json\) fails on problem '1': .*memory limit 128 MiB"):
        encode_completions(tokenizer, prompts, ["1", "1 a", "2"])
    assert encode_texts(tokenizer, ["1", "2 3"], ["a.txt", "b.txt"]) == [[2], [3, 4]]
    with pytest.raises(ConfigError, match=r"\(tokenizer.json\) fails on b.txt: .*memory limit 128 MiB"):
        encode_texts(tokenizer, ["1", "1 a"], ["a.txt", "b.txt"])


def test_a_long_document_has_more_time_than_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = GraderLimits(cpu_seconds=0.01, memory_bytes=128 << 20, max_chars=1000)
    monkeypatch.setattr("swerve.prompts.encode.shared_limits", lambda: limits)
    ids = encode_texts(letters(), ["1 2 " * 50_000], ["book.txt"])[0]  # 0.05 s or more, of 2
    assert len(ids) == 100_000


def test_thousands_of_prompts_go_through_a_template_in_one_process() -> None:
    tokenizer = letters()
    problems = [Problem(id=str(n), family="x", question=" ".join(str(n)), answer="") for n in range(1, 2001)]
    started = time.process_time()
    prompts = encode_prompts(tokenizer, [problem for problem in problems if "9" not in problem.question])
    assert time.process_time() - started < 2.0
    assert prompts[-1].token_ids == (3, 1, 1, 1)


@pytest.mark.slow
def test_a_slow_template_is_bounded_over_all_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "swerve.prompts.encode.shared_limits", lambda: GraderLimits(cpu_seconds=0.4, memory_bytes=128 << 20)
    )
    tokenizer = letters()
    tokenizer.chat_template = "{% for i in range(300) %}{% for j in range(3000) %}{% endfor %}{% endfor %}1"
    problems = [Problem(id=str(n), family="x", question="1", answer="") for n in range(2000)]
    assert encode_prompts(tokenizer, problems[:3])[2].token_ids == (2,)
    started = time.monotonic()
    with pytest.raises(ConfigError, match=r"the chat template of .* CPU time limit 1\.\d+ s of \d+ together"):
        encode_prompts(tokenizer, problems)
    assert time.monotonic() - started < 10


def test_a_word_tokenizer_works_without_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swerve.prompts.encode.call_each", None)
    (prompt,) = encode_prompts(build_word_tokenizer(["a"]), [Problem(id="p", family="x", question="a", answer="")])
    assert prompt.token_ids == (1, 4)
