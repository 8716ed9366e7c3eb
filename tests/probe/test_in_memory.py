from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

import swerve.probe
from swerve.artifacts.responses import Response
from swerve.config.probe import SpikeConfig
from swerve.errors import CheckpointError, ConfigError, MismatchError
from swerve.models.model_folder import load_tokenizer
from swerve.probe import probe
from swerve.probe.in_memory import unwrapped
from swerve.probe.result import STATISTICS, ProbeResult
from swerve.types import Problem

SEQUENCES = [([2, 4, 5], [6, 7, 8, 3]), ([2, 9], [5]), ([2, 6, 6, 7], [4, 5, 6, 7, 8])]


def perturbed(model: Any, amount: float) -> Any:
    other, generator = copy.deepcopy(model), torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(amount * torch.randn(parameter.shape, generator=generator))
    return other


def logprobs(model: Any, prompt: list[int], completion: list[int]) -> torch.Tensor:
    """One sequence alone, float64, the model's own logits: row t is the distribution over completion token t."""
    with torch.no_grad():
        logits = copy.deepcopy(model).double().eval()(torch.tensor([[*prompt, *completion]])).logits[0]
    return logits[len(prompt) - 1 : -1].log_softmax(-1)


def test_statistics_are_those_of_the_models_own_logits(tiny: Any) -> None:
    reference, tokenizer = tiny
    model = perturbed(reference, 0.1)
    found = probe(reference, model, SEQUENCES, tokenizer=tokenizer, top_k=3, tokens_per_batch=12, tokens_per_chunk=4)
    p, q = (torch.cat([logprobs(one, *pair) for pair in SEQUENCES]) for one in (model, reference))
    mixture = torch.logsumexp(torch.stack([p, q]), 0) - np.log(2)
    ids = torch.tensor([token for _, completion in SEQUENCES for token in completion])
    expected = {
        "kl_forward": (p.exp() * (p - q)).sum(-1),
        "kl_reverse": (q.exp() * (q - p)).sum(-1),
        "js": (p.exp() * (p - mixture)).sum(-1) / 2 + (q.exp() * (q - mixture)).sum(-1) / 2,
        "entropy": -(p.exp() * p).sum(-1),
        "entropy_ref": -(q.exp() * q).sum(-1),
        "logprob": p.gather(1, ids[:, None])[:, 0],
        "logprob_ref": q.gather(1, ids[:, None])[:, 0],
    }
    for name, values in expected.items():
        assert getattr(found, name) == pytest.approx(values.numpy(), abs=2e-6), name
    assert found.js.max() > 0.001
    for name, one in (("rank", p), ("rank_ref", q)):
        assert getattr(found, name).tolist() == (1 + (one > one.gather(1, ids[:, None])).sum(-1)).tolist()
    assert found.argmax.tolist() == p.argmax(-1).tolist()
    assert found.argmax_ref.tolist() == q.argmax(-1).tolist()
    assert found.sequence_ids.tolist() == [0] * 4 + [1] + [2] * 5
    assert found.positions.tolist() == [0, 1, 2, 3, 0, 0, 1, 2, 3, 4]
    assert found.token_ids.tolist() == ids.tolist()
    assert found.texts is not None
    assert found.texts[:2] == (tokenizer.decode([6]), f" {tokenizer.decode([7])}")
    assert found.top is not None
    assert found.top_ref is not None
    assert found.top.ids.tolist() == p.topk(3).indices.tolist()
    assert found.top_ref.probs.numpy() == pytest.approx(q.exp().topk(3).values.numpy(), abs=2e-6)


def test_the_package_is_the_function(tiny: Any) -> None:
    model, _ = tiny
    found = swerve.probe(model, perturbed(model, 0.1), SEQUENCES)
    assert isinstance(found, swerve.probe.ProbeResult)
    assert (found.texts, found.top, found.top_ref) == (None, None, None)
    same = swerve.probe(model, model, SEQUENCES)
    assert not same.js.any()
    assert not same.kl_forward.any()
    assert repr(found).startswith("ProbeResult: checkpoint against reference, 10 tokens of 3 responses\n")
    with pytest.raises(AttributeError, match="nothing"):
        swerve.probe.nothing  # noqa: B018


def test_table_and_units(tiny: Any) -> None:
    model, tokenizer = tiny
    found = probe(model, perturbed(model, 0.1), SEQUENCES, tokenizer=tokenizer)
    table = found.table()
    before = ["sequence_id", "problem_id", "position", "token", "context", "token_id", "checkpoint", "reference"]
    assert table.column_names == [*before, *STATISTICS, "category"]
    assert table.num_rows == 10
    assert table.column("js").to_pylist() == found.js.tolist()
    assert table.schema.field("js").metadata == {b"unit": b"nats"}
    assert table.schema.field("logprob_ref").metadata == {b"unit": b"nats"}
    assert [table.schema.field(name).metadata for name in ("rank", "argmax_ref", "position")] == [None] * 3
    assert "token" not in probe(model, model, SEQUENCES).table().column_names


def test_tokens_and_spikes_are_data_frames_with_words(tiny: Any) -> None:
    pytest.importorskip("pandas")
    model, tokenizer = tiny
    found = probe(model, perturbed(model, 0.1), [("1 + 2 =", "3 ; 0"), ("1 + 2 =", "3")], tokenizer=tokenizer)
    tokens = found.tokens
    assert tokens.token.tolist() == ["3", " ;", " 0", "3"] == list(found.texts or ())
    assert tokens.context.tolist() == ["", "3", "3 ;", ""]
    assert tokens.category.tolist() == ["number", "punctuation", "number", "number"]
    assert tokens.problem_id.tolist() == ["0", "0", "0", "1"]
    assert {*tokens.checkpoint} == {"checkpoint"}
    assert tokens.js.tolist() == found.js.tolist()
    columns = ["sequence_id", "problem_id", "position", "token", "context", "token_id", "value", "threshold", "height"]
    high = result([[0.0] * 12 + [0.5]])
    words = {name: tuple(f"{name} {number}" for number in range(13)) for name in ("problem_id", "token", "context")}
    (spike,) = dataclasses.replace(high, words=words).spikes.to_dict("records")
    assert list(spike) == columns == list(found.spikes.columns)
    assert (spike["position"], spike["context"], spike["value"]) == (12, "context 12", 0.5)
    without = result([[0.0, 0.0]]).spikes
    assert list(without.columns) == [name for name in columns if name not in words]
    assert without.empty


def test_data_frame(tiny: Any) -> None:
    pytest.importorskip("pandas")
    model, _ = tiny
    found = probe(model, perturbed(model, 0.1), SEQUENCES)
    frame = found.to_pandas()
    assert frame["kl_reverse"].tolist() == found.kl_reverse.tolist()
    assert frame.attrs["units"]["entropy"] == "nats"
    assert "rank" not in frame.attrs["units"]


def result(js: list[list[float]]) -> ProbeResult:
    values = np.array([value for row in js for value in row], dtype=np.float32)
    lengths = [len(row) for row in js]
    names = {field.name for field in dataclasses.fields(ProbeResult)}
    given: dict[str, Any] = {
        "statistics": {"js": values},
        "words": {},
        "sequence_ids": np.repeat(np.arange(len(js), dtype=np.int32), lengths),
        "positions": np.concatenate([np.arange(length, dtype=np.int32) for length in lengths]),
        "token_ids": np.arange(100, 100 + len(values), dtype=np.int32),
    }
    return ProbeResult(**{name: given.get(name) for name in names})


def test_spikes() -> None:
    found = result([[0.0, 0.0, 0.0, 0.5, 0.0, 0.0, 0.0], [0.0, 0.25, 0.0, 0.0, 0.0, 0.375]])
    settings = SpikeConfig(threshold=0.25)
    assert found.find_spikes("absolute", settings=settings) == [
        {"sequence_id": 0, "position": 3, "token_id": 103, "value": 0.5, "threshold": 0.25, "height": 1},
        {"sequence_id": 1, "position": 5, "token_id": 112, "value": 0.375, "threshold": 0.25, "height": 1},
    ]
    places = [
        (one["sequence_id"], one["position"], one["height"])
        for one in found.find_spikes(settings=SpikeConfig(num_sd=0.5))
    ]
    assert places == [(0, 3, 1), (1, 1, 2), (1, 5, 1)]
    assert [one["value"] for one in found.find_spikes("percentile", settings=SpikeConfig(percentile=90))] == [
        0.5,
        0.375,
    ]
    with pytest.raises(ConfigError, match="null"):
        found.find_spikes("calibrated")
    null = np.full(1000, 0.01)
    assert [one["position"] for one in found.find_spikes("calibrated", null=null)] == [3, 1, 5]
    with pytest.raises(
        ConfigError, match="unknown method 'peak'; use one of zscore, percentile, adaptive, absolute, cal"
    ):
        found.find_spikes("peak")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="unknown statistic 'jsd'"):
        found.find_spikes(divergence="jsd")  # type: ignore[arg-type]


def test_models_are_left_as_they_were(tiny: Any) -> None:
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=12,
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            attention_dropout=0.5,
        )
    )
    model.train()
    model.model.norm.eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    generator_state = torch.get_rng_state()
    calls: list[bool] = []

    def mixed(*args: Any, **options: Any) -> Any:  # what a trainer puts in the place of forward
        calls.append(True)
        return type(model).forward(model, *args, **options)

    model.forward = mixed  # type: ignore[method-assign]
    first, second = (probe(model, model, SEQUENCES) for _ in range(2))
    assert not first.js.any()  # dropout would make the two runs differ
    assert first.logprob.tolist() == second.logprob.tolist()
    assert (model.training, model.model.training, model.model.norm.training) == (True, True, False)
    assert model.__dict__["forward"] is mixed
    assert not calls
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), generator_state)


def test_wrappers_are_looked_through(tiny: Any) -> None:
    model, _ = tiny

    class Compiled(torch.nn.Module):
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self._orig_mod = inner

    class Adapter(torch.nn.Module):
        def __init__(self, inner: Any, prompt: bool) -> None:
            super().__init__()
            self.inner = inner
            self.active_peft_config = type("Config", (), {"is_prompt_learning": prompt})

        def get_base_model(self) -> Any:
            return self.inner

    assert unwrapped(Compiled(Adapter(model, False))) is model
    assert not probe(model, Compiled(model), SEQUENCES).js.any()
    with pytest.raises(MismatchError, match="prompt learning"):
        unwrapped(Adapter(model, True))
    with pytest.raises(MismatchError, match="Linear is no causal model of transformers"):
        unwrapped(torch.nn.Linear(1, 1))


def test_a_folder_without_a_tokenizer_gives_none(tiny: Any, tmp_path: Path) -> None:
    """As a trainer leaves it that saved the weights alone; transformers would make an empty tokenizer of it."""
    model, _ = tiny
    model.save_pretrained(tmp_path)
    assert swerve.probe(type(model).from_pretrained(tmp_path), model, [([4, 1, 2], [3, 5])]).words == {
        "problem_id": ("response 0", "response 0")
    }
    with pytest.raises(CheckpointError, match="has no tokenizer; copy its files there"):
        load_tokenizer(tmp_path)


def test_data_parallel_is_looked_through(tiny: Any, tmp_path: Path) -> None:
    model, _ = tiny
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        assert unwrapped(torch.nn.parallel.DistributedDataParallel(copy.deepcopy(model))).config is not None
    finally:
        torch.distributed.destroy_process_group()


def test_wrong_input(tiny: Any) -> None:
    model, tokenizer = tiny
    limit = model.config.max_position_embeddings
    longer = [([1] * (limit - 1), [2]), ([1] * limit, [2])]
    cases: list[tuple[str, Any, dict[str, int]]] = [
        ("there are no sequences", [], {}),
        ("sequence 1 has an empty completion", [([1], [2]), ([1], [])], {}),
        ("sequence 0 has an empty prompt", [([], [2])], {}),
        (f"sequence 0 has the token id {len(tokenizer)}; reference has ids 0 to", [([1], [len(tokenizer)])], {}),
        (f"sequence 1 has {limit + 1} tokens, prompt and completion; reference has {limit} positions", longer, {}),
        ("sequence 0 has the token id -1", [([-1], [2])], {}),
        ("top_k must be an integer of at least 0, got -1", SEQUENCES, {"top_k": -1}),
        ("tokens_per_batch must be an integer of at least 1, got 0", SEQUENCES, {"tokens_per_batch": 0}),
        ("tokens_per_chunk must be an integer of at least 1, got 0", SEQUENCES, {"tokens_per_chunk": 0}),
    ]
    for message, sequences, options in cases:
        with pytest.raises(ConfigError, match=message):
            probe(model, model, sequences, **options)  # type: ignore[arg-type]


def test_padded_vocabularies(tiny: Any) -> None:
    reference, tokenizer = tiny
    padded = copy.deepcopy(reference)
    padded.resize_token_embeddings(16)
    with torch.no_grad():
        padded.get_output_embeddings().weight[len(tokenizer) :] = 1.0
    with pytest.raises(
        MismatchError, match=r"checkpoint has a vocabulary of 16 tokens and reference one of 11; .* give the tokenizer"
    ):
        probe(reference, padded, SEQUENCES)
    for pair in ((padded, reference), (reference, padded)):
        assert probe(*pair, SEQUENCES, tokenizer=tokenizer).js.max() < 1e-12  # one head's products round otherwise


def test_a_real_pretrained_model(shared_data: Callable[[str], Path]) -> None:
    folder = shared_data("tiny_models") / "stories260K" / "hf"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    ids = tokenizer("Once upon a time there was a little girl named Lily. She loved to play outside.")["input_ids"]
    found = probe(model, perturbed(model, 0.003), [(ids[:4], ids[4:])], tokenizer=tokenizer)
    p, q = (logprobs(one, ids[:4], ids[4:]) for one in (perturbed(model, 0.003), model))
    assert found.kl_forward == pytest.approx((p.exp() * (p - q)).sum(-1).numpy(), rel=2e-3, abs=1e-7)
    assert found.kl_forward.min() > 0


def test_of_a_response_of_several_turns_only_sampled_tokens_are_compared(tiny: Any) -> None:
    reference, tokenizer = tiny
    model = perturbed(reference, 0.1)
    prompt, completion = SEQUENCES[2]
    problem = Problem(id="p", family="x", question="?", answer="")
    sampled = (True, True, False, False, True)
    turns = Response(problem=problem, prompt_ids=tuple(prompt), completion_ids=tuple(completion), sampled=sampled)
    found, whole = (probe(reference, model, [given], tokenizer=tokenizer) for given in (turns, SEQUENCES[2]))
    assert (found.positions.tolist(), found.token_ids.tolist()) == ([0, 1, 4], [4, 5, 8])
    assert found.js == pytest.approx(whole.js[[0, 1, 4]], rel=1e-4)
    assert found.texts is not None
    assert whole.texts is not None
    assert found.texts == tuple(whole.texts[place] for place in (0, 1, 4))
    spikes = found.find_spikes("absolute", settings=SpikeConfig(threshold=1e-9, min_distance=1))
    assert [spike["position"] for spike in spikes] == [0, 1, 4]
