"""Some models of the zoo through whole stages, evaluation and the probe of a run; `make zoo` has the others."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import transformers as hf

from studies.records import RESULTS, read_records
from swerve.artifacts.metrics import read_metrics
from swerve.artifacts.response_columns import ROLLOUTS_SCHEMA, SEQUENCES_SCHEMA
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import TOKENS_SCHEMA, read_table
from swerve.errors import ConfigError
from swerve.eval.heldout import evaluate_run
from swerve.probe import probe_run
from swerve.progress import SilentProgress
from swerve.recipes import load_config
from swerve.train.loop import train_run
from tests.builders import Notes
from tests.command_line import exit_status
from tests.json_lines import write_json_lines
from tests.zoo.animal import DATED
from tests.zoo.architectures import ZOO
from tests.zoo.folders import few_steps, save, write_recipe


def plain_logprobs(model: Any, prompt: list[int], completion: list[int], *, num_ids: int) -> list[float]:
    """Return what transformers itself says of one sequence, over the ids of the tokenizer."""
    with torch.inference_mode():
        logits = model(torch.tensor([[*prompt, *completion]])).logits[0, len(prompt) - 1 : -1, :num_ids].float()
    return logits.log_softmax(-1).gather(1, torch.tensor(completion)[:, None]).squeeze(1).tolist()


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, animal in ZOO.items() if animal.is_whole])
def test_a_model_goes_through_every_stage(name, tmp_path):
    animal, run, progress = ZOO[name], RunDirectory(tmp_path / "run"), Notes()
    folder = save(animal, tmp_path / "model")
    assert (folder / "model.safetensors.index.json").is_file() == bool(animal.saved)
    config = load_config(write_recipe(tmp_path, folder, few_steps("sft", "dpo", "rl"), **animal.model))
    train_run(config, run, resume=False, progress=progress)
    evaluate_run(config, run, progress=progress)
    summary = probe_run(config, run, progress=progress)

    assert animal.packs is not any("does not read packed rows" in note for note in progress.notes)
    steps = read_metrics(run.metrics_path)
    assert all(math.isfinite(step["loss"]) and step["grad_norm"] > 0 for step in steps)
    of = {name: [step for step in steps if step["stage"] == name] for name in ("sft", "dpo", "rl")}
    assert of["sft"][-1]["loss"] < of["sft"][0]["loss"]
    assert of["dpo"][0]["num_pairs"] == 8
    assert of["dpo"][0]["loss"] == pytest.approx(math.log(2), abs=1e-4)  # policy and reference are one
    assert all(step["num_used_rollouts"] > 0 and step["logprob_gap"] < 1e-5 for step in of["rl"])
    assert abs(of["rl"][0]["kl"]) < 1e-6 < of["rl"][-1]["kl"]
    checkpoints = run.checkpoints
    assert len({one.weights_sha256 for one in checkpoints}) == len(checkpoints) == 3

    # The probe read rollouts that were wrong and are right now, and its numbers are those of transformers.
    assert summary is not None
    assert summary.num_rollouts > 0
    tokens = read_table(run.probe_path / "tokens.parquet", TOKENS_SCHEMA).to_pylist()
    sequences = {
        one["sequence_id"]: one
        for one in read_table(run.probe_path / "sequences.parquet", SEQUENCES_SCHEMA).to_pylist()
    }
    own = [one for one in tokens if (one["checkpoint"], one["reference"]) == ("rl-3", "dpo-2")]
    assert sum(one["js"] for one in own) > 1e-3
    assert all(math.isfinite(one[kl]) and one[kl] >= 0 for one in own for kl in ("kl_forward", "kl_reverse", "js"))
    final = checkpoints[-1].path
    model = hf.AutoModelForCausalLM.from_pretrained(final, dtype=torch.float32).eval()
    tokenizer = hf.AutoTokenizer.from_pretrained(final)
    for number in list({one["sequence_id"] for one in own})[:6]:
        of_sequence = sorted((one for one in own if one["sequence_id"] == number), key=lambda one: one["position"])
        one = sequences[number]
        expected = plain_logprobs(model, one["prompt_ids"], one["completion_ids"], num_ids=len(tokenizer))
        assert [one["logprob"] for one in of_sequence] == pytest.approx(expected, abs=2e-4)

    # A checkpoint says of itself what the folder said that it began with.
    said = [hf.AutoConfig.from_pretrained(one) for one in (folder, final)]
    assert said[0].tie_word_embeddings == said[1].tie_word_embeddings
    assert said[1].dtype == torch.float32
    stops = [hf.GenerationConfig.from_pretrained(one).eos_token_id for one in (folder, final)]
    assert stops == [animal.stops, [2, 3]]  # 3 ends a turn in the template
    rollouts = read_table(run.rollouts_path(8), ROLLOUTS_SCHEMA)["prompt_ids"].to_pylist()
    prompts = {tuple(ids) for ids in [*rollouts, *(one["prompt_ids"] for one in sequences.values())]}
    begin = "<s>17think<s><|user|>" if animal.template == DATED else "<s><|user|>"
    assert all(tokenizer.decode(list(prompt)).startswith(begin) for prompt in prompts)


def test_the_kept_table_has_every_model_of_the_zoo_and_none_is_wrong():
    rows = [row for row in read_records(RESULTS / "zoo.jsonl") if row["kind"] == "model"]
    assert sorted(row["name"] for row in rows) == sorted(ZOO)
    assert {row["name"]: row["wrong"] for row in rows if row["wrong"]} == {}
    assert len({row["code"] for row in rows}) == 1
    assert len({animal.type for animal in ZOO.values()}) >= 90


@pytest.mark.slow
def test_a_model_that_cannot_be_sampled_is_refused_before_anything_starts(tmp_path, capsys):
    """Of two stages the first could be trained."""
    model = save(ZOO["mamba2"], tmp_path / "model")
    recipe, out = write_recipe(tmp_path, model, few_steps("sft", "rl")), tmp_path / "run"
    with pytest.raises(ConfigError, match="cannot sample from Mamba2ForCausalLM"):
        train_run(load_config(recipe), RunDirectory(out), resume=False, progress=SilentProgress())
    assert not out.exists()
    capsys.readouterr()
    task = ("--task", "table", f"train={tmp_path / 'problems.jsonl'}", "--max-new-tokens", "4")
    for command in (
        ("config", "check", recipe),
        ("sample", model, *task, "--out", tmp_path / "samples.parquet"),
        ("eval", "--model", model, *task, "--out", tmp_path / "eval"),
    ):
        assert exit_status(*command) != 0
        line = capsys.readouterr().err
        assert "error: the embedded engine cannot sample from Mamba2ForCausalLM: it keeps what it has read in" in line
        assert len(line.splitlines()) == 1
    assert {one.name for one in tmp_path.iterdir()} == {"model", "problems.jsonl", "reward.py", "recipe.yaml"}
    assert exit_status("config", "check", str(write_recipe(tmp_path, model, few_steps("sft")))) == 0


@pytest.mark.slow
def test_a_model_that_cannot_be_sampled_learns_and_is_probed_on_responses(tmp_path):
    model, run = save(ZOO["mamba2"], tmp_path / "model"), RunDirectory(tmp_path / "run")
    train_run(
        load_config(write_recipe(tmp_path, model, few_steps("sft"))), run, resume=False, progress=SilentProgress()
    )
    rows = [{"question": f"{n} 1", "response": f"a{n} b", "answer": "0"} for n in range(6)]
    write_json_lines(tmp_path / "responses.jsonl", rows)
    final = run.checkpoints[-1].path
    command = ["probe", "--use-responses", tmp_path / "responses.jsonl", "--reference", f"base={model}"]
    assert exit_status(*command, "--checkpoint", f"sft={final}", "--out", tmp_path / "probe") == 0
    tokens = read_table(RunDirectory(tmp_path / "probe").probe_path / "tokens.parquet", TOKENS_SCHEMA).to_pylist()
    assert sum(one["js"] for one in tokens) > 1e-3
