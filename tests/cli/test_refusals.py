"""How long a wrong command takes to say so."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.campaign.slow_answers import slowness
from tests.cli import test_app, test_data, test_grade, test_probe_command, test_sample
from tests.json_lines import write_json_lines

_MOST_SECONDS = 1.5
"""CPU time of a refusal, on a machine whose slowness is 1."""
_READ_A_TOKENIZER = ("--template-arg", "40")
"""Words of the commands that only a model's tokenizer can refuse."""


def _cases(test: Any) -> Iterator[list[str]]:
    for mark in test.pytestmark:
        if mark.name == "parametrize":
            yield from (list(case[0]) for case in mark.args[1])


def _commands(model: str, late: str) -> Iterator[list[str]]:
    """Yield the wrong commands of the other tests."""
    yield from (*_cases(test_app.test_wrong_arguments), *_cases(test_app.test_wrong_usage))
    for words in _cases(test_probe_command.test_wrong_input):
        known = {"R": ["dpo.jsonl"], "M": [model], "b c=M": [f"b c={model}"]}
        known["OK"] = ["--reference", model, "--checkpoint", f"late={late}"]
        yield ["probe", *(part for word in words for part in known.get(word, [word]))]
    for words in _cases(test_sample.test_wrong_input_is_one_line_and_nothing_is_written):
        if not {*_READ_A_TOKENIZER} & {*words}:
            yield ["sample", *(word.replace("MODEL", model) for word in words)]
    yield from (["grade", "rows.jsonl", *words] for words in _cases(test_grade.test_usage_errors_are_one_line))
    yield from (["data", *words] for words in _cases(test_data.test_usage_errors_are_one_line))
    # Files that are read before torch is imported.
    yield ["sample", model, "--data", "bad.jsonl", "--out", "o"]
    yield ["eval", "--model", model, "--task", "addition", "--rows", "bad.jsonl"]
    yield ["train", "gsm8k", f"model.path={model}", "task.train=[bad.jsonl]"]
    # What a model's folder says before torch is imported: its type, its words and its positions.
    probed = ("--reference", model, "--checkpoint", late)
    for name in ("words", "long"):
        yield ["sample", model, "--data", f"{name}.jsonl", "--out", "o"]
        yield ["eval", "--model", model, "--data", f"{name}.jsonl"]
        yield ["claim", model, late, "--data", f"{name}.jsonl"]
        yield ["probe", "--use-responses", f"{name}.jsonl", *probed]
    yield from (["claim", model, *words] for words in ([], ["odd", "--task", "addition"], [late], ["x", late]))
    yield ["eval", "--model", "odd", "--task", "addition"]


@pytest.mark.slow
def test_a_wrong_command_says_so_within_a_moment(save_addition_model: Callable[..., Path], tmp_path: Path) -> None:
    model, late = (str(save_addition_model(tmp_path / name, seed=1)) for name in ("one", "two"))
    rows = [json.dumps(row) for row in test_probe_command.RESPONSES]
    (tmp_path / "dpo.jsonl").write_text("\n".join(rows))
    (tmp_path / "bad.jsonl").write_text(f"{rows[0]}\n{{oops")
    for name, text in (("words", "a zebra"), ("long", " ".join("1" * 60))):
        write_json_lines(
            tmp_path / f"{name}.jsonl", [{"question": text, "prompt": "1", "response": text, "answer": "1"}]
        )
    shutil.copytree(model, tmp_path / "odd")
    config = json.loads((tmp_path / "odd" / "config.json").read_text())
    (tmp_path / "odd" / "config.json").write_text(json.dumps({**config, "model_type": "zebra"}))
    (tmp_path / "bare.jsonl").write_text('{"id": "p", "response": "2"}')
    write_json_lines(tmp_path / "rows.jsonl", test_grade.FRACTIONS)

    took = {}
    for words in _commands(model, late):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-m", "swerve", *words],
            cwd=tmp_path,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert done.returncode in (1, 2), (words, done.stderr)
        took[" ".join(words)] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert len(took) > 90
    most = _MOST_SECONDS * slowness()
    assert {words: seconds for words, seconds in took.items() if seconds > most} == {}
