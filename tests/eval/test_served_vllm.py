"""The OpenAI engine with a real vLLM: greedy texts are the embedded engine's, and a kill changes nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from swerve.artifacts.responses import Response
from swerve.artifacts.samples import read_samples
from swerve.config.models import TinyModel
from swerve.models.tiny import build_tiny_model, build_word_tokenizer
from swerve.problems import load_family
from swerve.problems.addition import AdditionTask
from tests.rollout.servers import vllm_server

pytestmark = pytest.mark.vllm
TEMPLATE = "{% for m in messages %}{{ m.content }} {% endfor %}{% if add_generation_prompt %}; {% endif %}"
TASK = ("--task", "addition", "num_heldout=60", "--max-new-tokens", "24")
_TIE = 1e-4
"""Nats between the two likeliest tokens, below which rounding decides."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "one"
    tokenizer = build_word_tokenizer(load_family(AdditionTask()).words)
    tokenizer.chat_template = TEMPLATE
    sizes = TinyModel(
        hidden_size=64, num_heads=2, num_kv_heads=1, intermediate_size=48, initializer_range=0.2, tie_embeddings=False
    )
    build_tiny_model(sizes, tokenizer, seed=1).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def engine(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    with vllm_server(model, tmp_path_factory.mktemp("server")) as url:
        yield ["rollout.engine.kind=openai", f"rollout.engine.url={url}"]


def _sample(*arguments: str | Path, wait: bool = True) -> Any:
    command = [sys.executable, "-m", "swerve", "sample", *map(str, arguments)]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))})
    if wait:
        assert process.wait(600) == 0
    return process


def _tie(model: Any, own: Response, other: Response) -> float:
    """The gap (nats) between the two likeliest tokens where two greedy completions part."""
    length = next(
        place
        for place, pair in enumerate(zip(own.completion_ids, other.completion_ids, strict=False))
        if len({*pair}) > 1
    )
    with torch.inference_mode():
        logits = model(torch.tensor([[*own.prompt_ids, *own.completion_ids[:length]]])).logits[0, -1]
    first, second = logits.topk(2).values.tolist()
    return float(first - second)


def _are_equal(own: Response, other: Response) -> bool:
    """vLLM's text of a tokenizer of words begins with the space after the prompt."""
    return own.text == (other.text or "").removeprefix(" ")


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_greedy_texts_are_the_embedded_engines_but_for_ties(
    model: Path, engine: list[str], tmp_path: Path, api: str
) -> None:
    if api == "completions":  # a base model, to both
        tokens = model / "chat_template.jinja"
        kept = tokens.read_text()
        tokens.unlink()
    try:
        _sample(f"own={model}", *TASK, "--temperature", "0", "--out", tmp_path / "own.parquet")
    finally:
        if api == "completions":
            tokens.write_text(kept)
    _sample(
        "served=policy",
        *TASK,
        "--temperature",
        "0",
        "--out",
        tmp_path / "served.parquet",
        *engine,
        f"rollout.engine.api={api}",
    )
    own, served = (read_samples(tmp_path / f"{name}.parquet").samples for name in ("own", "served"))
    from transformers import AutoModelForCausalLM

    loaded = AutoModelForCausalLM.from_pretrained(model)
    pairs = list(zip(own, served, strict=True))
    assert len(pairs) == 60
    assert all(one.prompt_ids == other.prompt_ids for one, other in pairs)
    parted = [_tie(loaded, *pair) for pair in pairs if not _are_equal(*pair)]
    print(f"{api}: {len(parted)} of {len(pairs)} texts differ, at gaps of {parted}")
    assert all(gap < _TIE for gap in parted)
    for one, other in pairs:
        if _are_equal(one, other):
            assert (one.completion_ids, one.finish_reason) == (other.completion_ids, other.finish_reason)
            assert other.logprobs == pytest.approx(one.logprobs, abs=1e-4)


def test_killed_and_resumed_the_file_is_the_same(engine: list[str], tmp_path: Path) -> None:
    more = (*TASK, "--num-samples", "4", "--temperature", "1", "--batch", "16", *engine, "rollout.engine.concurrency=4")
    _sample("policy", *more, "--out", tmp_path / "whole.parquet")
    path, kills = tmp_path / "again.parquet", 0
    partial = tmp_path / "again.parquet.partial"
    while not path.exists() and kills < 3:
        process = _sample("policy", *more, "--out", path, wait=False)
        before = len(list(partial.glob("answer-*")))
        while process.poll() is None and len(list(partial.glob("answer-*"))) < before + 50:
            time.sleep(0.01)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        process.wait(60)
    _sample("policy", *more, "--out", path)
    assert kills == 3
    assert path.read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    print(f"killed {kills} times, {len(read_samples(path).samples)} samples, the same bytes")
