"""Ways of reading a text are tried on a small copy of a model, with texts longer than its windows and chunks."""

from __future__ import annotations

import json
import math

import pytest
import torch
import transformers as hf

import swerve
from swerve.artifacts.metrics import read_metrics
from swerve.batch import completion_hidden, token_batches
from swerve.errors import CheckpointError, ConfigError
from swerve.models import trial
from swerve.models.head import model_head
from swerve.models.model_folder import load_model, load_model_config
from swerve.models.trial import check_causal, reads_padded
from swerve.recipes import load_config as load_recipe
from swerve.rollout.decoding_trial import check_architecture
from swerve.rollout.engine import SamplingParams
from swerve.rollout.torch_engine import TorchEngine
from swerve.train.packed_rows import reads_packed_rows
from tests.builders import Notes, trained_run
from tests.zoo.animal import GROUPED, HEADS, Animal
from tests.zoo.folders import few_steps, save, write_recipe

IDS = {"vocab_size": 60, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
RWKV = hf.RwkvConfig(**IDS, hidden_size=32, num_hidden_layers=2, context_length=64)
LLAMA_4 = hf.Llama4TextConfig(**IDS, **HEADS, **EXPERTS, intermediate_size_mlp=64, attention_chunk_size=16)
PHI_MOE = hf.PhimoeConfig(**IDS, **GROUPED, **EXPERTS, sliding_window=8)
MINIMAX = hf.MiniMaxM2Config(**IDS, **HEADS, **EXPERTS, sliding_window=8)
BOTH_WAYS = hf.Gemma3TextConfig(
    **IDS, **HEADS, sliding_window=8, query_pre_attn_scalar=8, use_bidirectional_attention=True
)
MISTRAL = hf.MistralConfig(**IDS, **GROUPED, sliding_window=8)
LENGTHS = [(5, 9), (3, 30), (17, 4)]


def loud(config):
    """Return a model of random weights whose every part matters."""
    torch.manual_seed(1)
    model = hf.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() >= 2:
                weight.normal_(std=weight.shape[-1] ** -0.5)
    return model


def texts():
    torch.manual_seed(2)
    return [(torch.randint(3, 60, (one,)).tolist(), torch.randint(3, 60, (two,)).tolist()) for one, two in LENGTHS]


def logprobs_alone(model, prompt, completion):
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *completion]]), use_cache=False).logits[0, len(prompt) - 1 : -1]
    return logits.log_softmax(-1).gather(1, torch.tensor(completion)[:, None])[:, 0]


@pytest.mark.parametrize(
    ("config", "pads", "packs"),
    [(MISTRAL, True, True), (LLAMA_4, True, False), (PHI_MOE, True, False), (RWKV, False, False)],
    ids=lambda value: getattr(value, "model_type", value),
)
def test_texts_that_share_a_batch_have_the_log_probabilities_that_they_have_alone(config, pads, packs):
    model = loud(config)
    head = model_head(model)
    assert reads_padded(model) is pads
    assert reads_packed_rows(model, head) is packs
    for is_packed in (False, True)[: 1 + packs]:
        (batch,) = token_batches(texts(), pad_id=0, in_order=True, packed=is_packed)
        with torch.no_grad():
            logprobs = head(completion_hidden(model, batch, head)).log_softmax(-1)
        found = logprobs.gather(1, batch.completion_ids[batch.mask][:, None])[:, 0]
        expected = torch.cat([logprobs_alone(model, *pair) for pair in texts()])
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_large_windows_and_widths_are_made_small_in_the_copy():
    """Of a 7B configuration that is local by its mask alone; no such model is built."""
    large = {"hidden_size": 4096, "intermediate_size": 6400, "num_attention_heads": 32, "num_key_value_heads": 8}
    config = hf.PhimoeConfig(num_hidden_layers=8, sliding_window=2047, num_local_experts=16, **large)
    with torch.device("meta"):
        model = hf.AutoModelForCausalLM.from_config(config)
    assert sum(weight.numel() for weight in model.parameters()) > 1e10
    assert reads_padded(model)
    assert not reads_packed_rows(model, model_head(model))


def test_a_trial_draws_no_random_number_of_the_process():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    threads = torch.get_num_threads()
    check_causal("here", hf.LlamaConfig(**IDS, **GROUPED, rms_norm_eps=1.25e-6))
    assert torch.equal(torch.rand(3), expected)
    assert torch.get_num_threads() == threads
    assert not torch.is_inference_mode_enabled()


def test_a_window_that_only_the_cache_looks_at_is_not_dropped_from_the_cache():
    """MiniMax-M2 attends to everything, whatever its configuration says."""
    assert check_architecture(MINIMAX)
    model = loud(MINIMAX)
    prompts = [prompt for prompt, _ in texts()]
    params = SamplingParams(num_samples=2, max_new_tokens=20, temperature=1.0, stop_ids=())
    groups = TorchEngine(model, pad_id=0, max_rows=4).generate(prompts, params, seeds=[1, 2, 3])
    for prompt, group in zip(prompts, groups, strict=True):
        for one in group:
            expected = logprobs_alone(model, prompt, list(one.token_ids))
            torch.testing.assert_close(torch.tensor(one.logprobs), expected, atol=1e-5, rtol=0)


def test_a_model_that_sees_later_tokens_is_refused_wherever_it_is_read(tmp_path):
    folder = tmp_path / "model"
    keys = {**HEADS, "sliding_window": 8, "query_pre_attn_scalar": 8, "use_bidirectional_attention": True}
    save(Animal(type="gemma3_text", keys=keys), folder)
    for read in (lambda: load_model(folder, device="cpu", dtype="float32"), lambda: load_model_config(folder)):
        with pytest.raises(CheckpointError, match=r"model_type gemma3_text\) is not causal: what it says of a token"):
            read()
    model = loud(BOTH_WAYS)
    with pytest.raises(CheckpointError, match="the model in reference .* is not causal"):
        swerve.probe(model, model, texts())


def test_a_model_that_ignores_padding_is_probed_one_text_at_a_time():
    model = loud(RWKV)
    result = swerve.probe(model, model, texts())
    expected = torch.cat([logprobs_alone(model, *pair) for pair in texts()])
    torch.testing.assert_close(torch.tensor(result.logprob_ref), expected, atol=1e-5, rtol=0, check_dtype=False)
    with pytest.raises(ConfigError, match="cannot sample from RwkvForCausalLM: it keeps what it has read in a form of"):
        check_architecture(RWKV)


@pytest.mark.slow
def test_a_model_that_ignores_padding_learns_one_text_at_a_time(tmp_path):
    """The first loss of a stage is that of its texts alone, which have different lengths."""
    keys = {"hidden_size": 32, "num_hidden_layers": 2, "context_length": 64}
    folder, notes = save(Animal(type="rwkv", keys=keys), tmp_path / "model"), Notes()
    rows = [("7 " * n, "ab" * (5 - n)) for n in range(1, 5)]
    turns = [[{"role": "user", "content": one}, {"role": "assistant", "content": two}] for one, two in rows]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"messages": turn}) + "\n" for turn in turns))
    recipe = load_recipe(write_recipe(tmp_path, folder, few_steps("sft")))
    stage = recipe.stages[0].model_copy(update={"data": (str(tmp_path / "texts.jsonl"),), "batch_size": 4, "steps": 1})
    run = trained_run(recipe.model_copy(update={"stages": (stage,)}), tmp_path / "run", progress=notes)
    assert any("reads one text at a time" in note for note in notes.notes)
    loaded = load_model(folder, device="cpu", dtype="float32")
    tokens = total = 0.0
    for turn, (_, text) in zip(turns, rows, strict=True):
        prompt = loaded.tokenizer.apply_chat_template(turn[:1], add_generation_prompt=True)["input_ids"]
        completion = [*loaded.tokenizer(text, add_special_tokens=False)["input_ids"], 3]
        total -= float(logprobs_alone(loaded.model, prompt, completion).sum())
        tokens += len(completion)
    assert read_metrics(run.metrics_path)[0]["loss"] == pytest.approx(total / tokens, abs=1e-5)


@pytest.mark.slow
def test_dropout_in_a_layers_own_code_is_off_where_models_are_compared(tmp_path):
    """DPO begins at ln 2, a KL term and a distillation from the model itself at 0."""
    keys = {"hidden_size": 32, "ffn_dim": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    keys |= {"max_position_embeddings": 64, "word_embed_proj_dim": 32, "dropout": 0.3, "layerdrop": 0.2}
    folder = save(Animal(type="opt", keys=keys), tmp_path / "model")
    recipe = write_recipe(tmp_path, folder, few_steps("dpo", "rl"))
    again = ["runtime.activation_checkpointing=full"]
    steps = read_metrics(trained_run(load_recipe(recipe, again), tmp_path / "run").metrics_path)
    assert steps[0]["loss"] == pytest.approx(math.log(2), abs=1e-6)
    of_rl = next(step for step in steps if step["stage"] == "rl")
    assert abs(of_rl["kl"]) < 1e-9
    assert of_rl["logprob_gap"] < 1e-6


def test_what_the_machine_lacks_is_no_verdict_on_an_architecture(monkeypatch):
    """An interrupted trial is made again: a way of reading that depended on free memory would change with the run."""
    config = hf.LlamaConfig(**IDS, **GROUPED, rms_norm_eps=3e-6)  # of this test alone
    with monkeypatch.context() as changed:
        changed.setattr(trial, "alone", lambda *_: (_ for _ in ()).throw(MemoryError))
        with pytest.raises(MemoryError):
            trial.passes(config, trial.pads)
    assert trial.passes(config, trial.pads)
