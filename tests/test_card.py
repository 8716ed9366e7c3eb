"""`make gpu`: what is run, measured, kept and left out; the chain with a small model."""

from __future__ import annotations

import json
import os
import resource
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer

from swerve.cli.app import app
from swerve.models.tiny import build_word_tokenizer
from swerve.recipes import load_config

ROOT = Path(__file__).parents[1]


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.chdir(ROOT)
    from benchmarks import card

    monkeypatch.setattr(card, "_STEP_SECONDS", 0.02)
    return card


def _script(folder: Path, source: str) -> tuple[str, ...]:
    path = folder / "part.py"
    path.write_text(source, encoding="utf-8")
    return (sys.executable, str(path))


def test_a_part_has_its_time_memory_disk_and_tokens(card, tmp_path):
    table = pa.table({"completion_ids": [[1, 2, 3], [4]]})
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "old.parquet").touch()
    source = (
        "import pathlib, shutil\n"
        "block = b'x' * 900_000_000\n"
        f"shutil.copyfile({str(tmp_path / 'table')!r}, {str(tmp_path / 'made' / 'a.parquet')!r})\n"
        "print('{\"tokens_per_second\": 7}')\n"
    )
    pq.write_table(table, tmp_path / "table")
    os.utime(tmp_path / "made" / "old.parquet", (0, 0))
    part = card.Part(name="one", command=_script(tmp_path, source), writes="made", more=card._lines)
    found = card.measured(part, tmp_path, tmp_path / "one.log")
    assert found["tokens"] == 4
    assert found["disk_gb"] == round((tmp_path / "table").stat().st_size / 1e9, 3)
    # A process begins with the peak of the one that started it.
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    assert 0.9 < found["peak_gb"] < max(1.0, own + 0.1)
    assert 0 < found["cpu_seconds"] <= found["seconds"] + 0.2
    assert found["found"] == [{"tokens_per_second": 7}]


def test_a_part_that_fails_takes_a_line_and_what_is_done_is_not_done_again(card, tmp_path, capsys):
    good, bad = _script(tmp_path, "print('hello')"), (sys.executable, "-c", "raise SystemExit('no such luck')")
    chosen = [
        card.Part(name="good", command=good),
        card.Part(name="bad", command=bad),
        card.Part(name="absent", command=bad, lacks="vllm is not installed"),
        card.Part(name="last", command=good),
    ]
    results = tmp_path / "card.jsonl"

    def run(parts: Any, **more: Any) -> tuple[list[str], list[str]]:
        failed = card.run_all(parts, tmp_path, results, {"device": "cpu"}, **{"again": False, **more})
        return failed, [line for line in capsys.readouterr().out.splitlines() if not line.endswith("...")]

    failed, said = run(chosen)
    assert failed == ["bad"]
    assert said[1] == f"2/4 bad: failed: exit status 1: no such luck ({tmp_path / 'bad.log'})"
    assert said[2] == "3/4 absent: left out, vllm is not installed"
    kept = [json.loads(line) for line in results.read_text().splitlines()]
    assert [line.get("part") for line in kept] == [None, "good", "last"]

    # The second call does what failed, alone; with `again` everything, each kept once.
    failed, said = run([replace(chosen[1], command=good) if one.name == "bad" else one for one in chosen])
    assert (failed, said[0], said[3]) == ([], "1/4 good: done before", "4/4 last: done before")
    lost = replace(chosen[3], writes="made")  # its line is there, and what it made is not
    assert run([lost])[1][0].startswith('1/1 last: {"part": "last"')
    run([chosen[0]], again=True)
    kept = [json.loads(line) for line in results.read_text().splitlines()]
    assert [line.get("part") for line in kept] == [None, "bad", "last", "good"]


def test_commands_of_the_parts_parse_and_a_card_has_all(card, tmp_path, monkeypatch):
    monkeypatch.delenv("SWERVE_TRL_PYTHON", raising=False)
    chain = card.parts("cpu", tmp_path, card.SIZES["cpu"])
    assert [part.name for part in chain] == ["model", "sample", "step", "eval", "probe", "claim"]
    whole = card.parts("cuda", tmp_path, card.SIZES["cuda"])
    assert [part.name for part in whole][:2] + [part.name for part in whole][8:] == [
        *("tests", "demo", "update-0.5B", "update-1.5B", "update-4B", "memory-2048", "memory-8192"),
        *("engine", "vllm", "step-trl"),
    ]
    assert [part.lacks for part in whole if part.name == "step-trl"] == ["SWERVE_TRL_PYTHON names no Python with TRL"]
    group: Any = typer.main.get_command(app)
    for part in (*chain, *whole):
        if part.command[2] == "swerve":
            name, *rest = part.command[3:]
            assert group.commands[name].make_context(name, rest).params
    for device, size in card.SIZES.items():
        card.write_recipe(tmp_path, device, size)
        (stage,) = load_config(tmp_path / "step.yaml").stages
        assert (stage.prompts_per_step, stage.samples_per_prompt) == (size.problems, size.samples)


def test_sampling_speed_counts_completions_of_full_length(card, tiny, tmp_path, monkeypatch):
    size = replace(card.SIZES["cpu"], problems=3, samples=2, new_tokens=5)
    tiny[0].save_pretrained(tmp_path)
    build_word_tokenizer([f"w{n}" for n in range(tiny[0].config.vocab_size - 4)]).save_pretrained(tmp_path)
    found = card.engine_speed(tmp_path, device="cpu", size=size, prompt_tokens=4)
    assert found["tokens"] == 3 * 2 * 5

    class Model:
        def __init__(self, **given: Any) -> None:
            assert given["max_model_len"] == 9

        def generate(self, prompts: Any, params: Any, **_: Any) -> list[Any]:
            outputs = [SimpleNamespace(token_ids=[0] * params.max_tokens)] * params.n
            return [SimpleNamespace(outputs=outputs) for _ in prompts]

    stand_in = SimpleNamespace(LLM=Model, SamplingParams=lambda **given: SimpleNamespace(**given))
    monkeypatch.setitem(sys.modules, "vllm", stand_in)
    assert card.vllm_speed(tmp_path, size=size, prompt_tokens=4)["tokens"] == 3 * 2 * 5


@pytest.mark.slow
def test_the_chain_runs_with_a_small_model(card, tmp_path):
    size = card.Size(
        layout="small", dtype="float32", problems=4, samples=2, new_tokens=56, freeze=("*embed*", "*.norm.*")
    )
    card.write_recipe(tmp_path, "cpu", size)
    chosen, results = card.parts("cpu", tmp_path, size), tmp_path / "card.jsonl"
    assert card.run_all(chosen, tmp_path, results, {"device": "cpu"}, again=False) == []
    found = {line["part"]: line for line in map(json.loads, results.read_text().splitlines()[1:])}
    assert list(found) == [part.name for part in chosen]
    assert found["sample"]["tokens"] == found["step"]["tokens"] == 4 * 2 * 56
    assert found["probe"]["tokens"] == 4 * 2 * 56
    assert found["eval"]["tokens"] == 2 * 4 * (1 + 2) * 56  # greedy and sampled, before and after
    assert found["step"]["predicted_gb"] > 0.05
    # Weights in float32: a model folder, and a checkpoint with the moments of what was trained.
    assert found["model"]["disk_gb"] == pytest.approx(5.18e6 * 4 / 1e9, rel=0.15)
