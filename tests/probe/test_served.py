"""The probe of models in servers: bounds on the right side, resumed, and faults named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import swerve
from swerve.artifacts.tables import BOUNDS_SCHEMA
from swerve.config.models import TinyModel
from swerve.models.tiny import build_tiny_model, build_word_tokenizer
from swerve.problems import load_family
from swerve.problems.addition import AdditionTask
from tests.command_line import exit_status
from tests.json_lines import write_json_lines
from tests.rollout.servers import StandIn

RESPONSES = [
    {"id": "a", "prompt": "1 2 + 3 4 =", "response": "2 + 4 = 6 write 6 carry 0 ;"},
    {"id": "b", "prompt": "9 + 9 =", "response": "9 + 9 = 1 8 write 8"},
    {"id": "c", "prompt": "5 + 0 =", "response": "5"},
]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[list[str], list[StandIn]]]:
    """Two models, each in a folder and in a server that calls it by its folder, and the arguments that probe them."""
    tokenizer = build_word_tokenizer(load_family(AdditionTask()).words)
    models, servers = [], []
    for seed in (1, 2):
        sizes = TinyModel(hidden_size=32, num_heads=2, num_kv_heads=1, intermediate_size=48, initializer_range=0.3)
        model = build_tiny_model(sizes, tokenizer, seed=seed).eval()
        folder = tmp_path / f"model-{seed}"
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        servers.append(StandIn(model))
        servers[-1].start()
        models.append(f"{servers[-1].url}#{folder}")
    write_json_lines(tmp_path / "responses.jsonl", RESPONSES)
    arguments = ["probe", "--use-responses", str(tmp_path / "responses.jsonl"), "--reference", f"base={models[0]}"]
    yield [*arguments, "--checkpoint", f"rl={models[1]}", "--out", str(tmp_path / "out")], servers
    for server in servers:
        server.stop()


@pytest.mark.parametrize("top_k", [1, 5])
def test_every_bound_holds_and_what_is_told_is_exact(served, tmp_path, capsys, top_k):
    arguments, _ = served
    assert exit_status(*arguments, f"probe.top_k={top_k}", "--check", "2", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    table = pq.read_table(tmp_path / "out" / "bounds.parquet")
    assert table.schema.equals(BOUNDS_SCHEMA)
    assert told["tokens"] == table.num_rows
    rows = table.to_pydict()
    assert set(rows["checkpoint"]) == {"rl"}
    assert set(rows["reference"]) == {"base"}

    # The exact probe of the same models on the same responses.
    exact: Any = swerve.probe(tmp_path / "model-1", tmp_path / "model-2", tmp_path / "responses.jsonl")
    assert rows["token_id"] == exact.token_ids.tolist()
    assert rows["position"] == exact.positions.tolist()
    assert rows["rank"] == exact.rank.tolist()
    assert rows["rank_ref"] == exact.rank_ref.tolist()
    assert rows["logprob"] == pytest.approx(exact.logprob.tolist(), abs=1e-5)
    assert rows["logprob_ref"] == pytest.approx(exact.logprob_ref.tolist(), abs=1e-5)
    for name in ("kl_forward", "kl_reverse", "js"):
        values = exact.statistics[name].tolist()
        assert all(0 <= low <= value for low, value in zip(rows[f"{name}_lower"], values, strict=True))
        share = told["means"]["rl"][f"{name}_lower_of_exact"]
        assert (0.3 if top_k == 5 else 0.01) < share <= 1
    for name in ("entropy", "entropy_ref"):
        values = exact.statistics[name].tolist()
        assert all(low <= value for low, value in zip(rows[f"{name}_lower"], values, strict=True))
        assert all(value <= high for high, value in zip(rows[f"{name}_upper"], values, strict=True))


def test_what_was_told_is_not_asked_for_again(served, tmp_path, capsys):
    arguments, servers = served
    servers[1].broken["/v1/completions"] = lambda _: (500, {"error": {"message": "EngineCore is broken"}})
    assert exit_status(*arguments) == 1
    error = capsys.readouterr().err
    assert f"{servers[1].url}: POST /v1/completions was answered with 500 (EngineCore is broken)" in error
    asked = servers[0].calls["/v1/completions"]
    servers[1].broken.clear()
    assert exit_status(*arguments) == 0
    assert servers[0].calls["/v1/completions"] == asked == 3
    shown = capsys.readouterr().out
    assert "3 responses, 19 tokens; bounds and log-probabilities, mean nats:\nrl: logprob " in shown
    assert "kl_forward_lower " in shown
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["bounds.parquet"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"choices": [{"text": ""}]}, "does not tell the 5 most likely tokens at each token of a prompt"),
        ({"choices": [{"prompt_logprobs": [None, {"1": {"logprob": -1.0, "rank": 1}}]}]}, "does not tell the 5 most"),
    ],
)
def test_a_server_that_tells_too_little_is_named(served, capsys, answer, said):
    arguments, servers = served
    servers[0].broken["/v1/completions"] = lambda _: (200, answer)
    assert exit_status(*arguments) == 1
    assert said in capsys.readouterr().err


def test_models_that_cannot_be_bounded_are_refused(served, tmp_path, capsys):
    arguments, servers = served
    place = arguments.index("--checkpoint") + 1
    assert exit_status(*arguments[:place], str(tmp_path / "model-2"), *arguments[place + 1 :]) == 2
    assert "some models are in servers and some are not" in capsys.readouterr().err
    assert exit_status(*arguments, "--baseline", f"sft={servers[0].url}#m") == 2
    assert "give the baseline as another --checkpoint" in capsys.readouterr().err
    assert exit_status(*arguments, "--shard", "1/2") == 2
    assert "--shard is for models on this machine" in capsys.readouterr().err
    assert exit_status(*arguments[:place], servers[1].url, *arguments[place + 1 :]) == 2
    assert f"as in {servers[1].url}#MODEL" in capsys.readouterr().err
