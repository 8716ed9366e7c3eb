"""What samples, evaluations, cards and probes are said to take, beside the arithmetic by hand."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from swerve.claim.costs import part_costs
from swerve.claim.settings import ClaimSettings
from swerve.config.sampling import SampleSettings
from swerve.errors import ConfigError
from swerve.eval.sampling import chosen_problems
from swerve.plan import sampling
from swerve.plan.sampling import claim_budget, counted_problems, problems_note, samples_budget
from swerve.progress import SilentProgress
from swerve.recipes import load_config
from swerve.train.disk import BYTES_PER_FILE, BYTES_PER_TOKEN
from tests.plan.test_training import HEAD, IDS, KV_HEADS, LAYERS, SHAPES, WEIGHTS


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(SHAPES))
    return tmp_path / "model"


def test_samples_take_weights_cache_and_tokens(model: Path, tmp_path: Path) -> None:
    settings = SampleSettings(task={"kind": "addition"}, limit=50, num_samples=4, max_new_tokens=64)
    problems = chosen_problems(settings, SilentProgress())
    found = samples_budget(
        "sample",
        {"a": model},
        settings,
        problems,
        num_samples=[4],
        place=tmp_path,
        memory_gb=8,
        processes=2,
        measures=False,
    )
    assert found.memory is not None
    assert found.memory.weights == 4 * WEIGHTS
    # 64 rows, each a prompt of 512 tokens (its tokenizer is not there) and 64 new ones, beside their logits.
    assert found.memory.sampling == 64 * (512 + 64) * LAYERS * 2 * KV_HEADS * HEAD * 4 + 64 * IDS * (4 + 24)
    sampled = 50 * 4 * 64
    # A prompt is read once for its samples, and once more with each for its entropy.
    read = 50 * (1 + 4) * 512 + sampled
    assert (found.tokens, found.work) == ({"samples": sampled}, {"sampling": sampled, "reading": read})
    assert found.disk == {"samples": sampled * BYTES_PER_TOKEN + BYTES_PER_FILE}
    with pytest.raises(ConfigError, match=r"model 'a' needs about .*; lower runtime.max_rows \(--batch\)"):
        samples_budget(
            "sample",
            {"a": model},
            settings,
            problems,
            num_samples=[4],
            place=tmp_path,
            memory_gb=1e-3,
            processes=1,
            measures=False,
        ).check()


def test_completions_are_as_long_as_the_models_positions_let_them(model: Path, save_addition_model, tmp_path) -> None:
    """As in sampling; where there is no tokenizer, a prompt has a token at least."""

    def tokens(folder: Path, asked: int | None) -> tuple[int, tuple[str, ...]]:
        settings = SampleSettings(task={"kind": "addition", "num_heldout": 2}, num_samples=3, max_new_tokens=asked)
        found = samples_budget(
            "sample", {"a": folder}, settings, chosen_problems(settings, SilentProgress()), num_samples=[3],
            place=tmp_path, memory_gb=8, processes=1, measures=False,
        )  # fmt: skip
        return found.tokens["samples"], found.notes

    folder = save_addition_model(tmp_path / "tiny", seed=0)  # of 40 positions
    sampled, notes = tokens(folder, None)
    room = sampled // 6
    assert (sampled, notes[0].partition(":")[0]) == (6 * room, f"completions end after {room} new tokens")
    assert tokens(folder, 5) == (2 * 3 * 5, ())
    with pytest.raises(ConfigError, match=rf"together more than the model's 40 positions; at most {room} new tokens"):
        tokens(folder, room + 1)
    (model / "config.json").write_text(json.dumps({**SHAPES, "max_position_embeddings": 64}))
    with pytest.raises(ConfigError, match="a prompt has at least 1 token .* than the model's 64 positions"):
        tokens(model, 64)


def test_a_card_takes_what_its_parts_say(model: Path, tmp_path: Path) -> None:
    settings = ClaimSettings(task={"kind": "addition"}, limit=20, max_new_tokens=32, parts=("gained", "contamination"))
    problems = chosen_problems(settings, SilentProgress())
    found = claim_budget({"a": model, "b": model}, settings, problems, place=tmp_path, memory_gb=8)
    costs = part_costs(settings, 20)
    assert costs["both models"].samples == 2 * 20 * (1 + 16)
    assert found.tokens == {name: cost.samples * 32 for name, cost in costs.items() if cost.samples}
    assert found.work["reading"] == 2 * 20 * 16 * (512 + 32)
    # Of each model greedy answers, samples, and what one part samples; few responses make no full batch.
    files = sum(found.tokens.values()) * BYTES_PER_TOKEN + 6 * BYTES_PER_FILE
    assert found.disk["samples"] == files
    assert found.disk["card and page"] > 150_000
    little = settings.model_copy(update={"num_samples": 2})
    few = claim_budget({"a": model, "b": model}, little, problems[:1], place=tmp_path, memory_gb=8).memory
    assert few is not None
    assert few.update < found.memory.update  # type: ignore[union-attr]
    assert found.memory is not None
    assert found.memory.frozen == IDS * SHAPES["hidden_size"] * 4  # type: ignore[operator]


def test_problems_on_the_hub_are_counted_as_published_and_not_fetched() -> None:
    def number(**changes) -> tuple[int, int]:
        problems, found = counted_problems(SampleSettings(task={"kind": "gsm8k"}, **changes))
        return len(problems), found

    assert number() == (0, 1319)
    assert number(split="train") == (0, 7473)
    assert number(limit=50) == (0, 50)
    unknown = SampleSettings(task={"kind": "gsm8k", "heldout": ["test@someone/else"]})
    assert counted_problems(unknown) == ([], 0)
    assert "say how many with --limit" in problems_note(0)[0]


def test_a_run_whose_models_are_all_evaluated_has_nothing_to_do(small_recipe, tmp_path: Path, monkeypatch) -> None:
    kept = [SimpleNamespace(step=step, label=f"rl-{step}", scheduled=True, path=tmp_path) for step in (5, 10)]
    run: Any = SimpleNamespace(path=tmp_path, checkpoints=kept)
    monkeypatch.setattr(sampling, "read_evaluations", lambda run: kept)
    found = sampling.run_evaluation_budget(
        load_config(small_recipe), run, memory_gb=8, processes=1, measures=False
    )  # fmt: skip
    assert (found.tokens, found.memory) == ({"evaluation": 0}, None)
    assert found.notes == ("all 2 models of the run are evaluated: there is nothing to do",)
