"""What a vLLM can get wrong without a word, on a real one; and, with stand-ins, when it is made, asleep and awake."""

from __future__ import annotations

import copy
import sys
from contextlib import closing
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import BartConfig, BartForCausalLM

from swerve.config import TinyModel
from swerve.config.engines import RolloutConfig, VllmEngineConfig
from swerve.config.models import LoraConfig
from swerve.errors import ConfigError, EngineError, MissingExtraError
from swerve.models.adapter import new_adapter
from swerve.models.head import limit_ids_of
from swerve.models.tiny import build_tiny_model, build_word_tokenizer
from swerve.rollout import vllm_engine, vllm_versions
from swerve.rollout.engine import SamplingParams
from swerve.rollout.vllm_engine import VllmEngine
from swerve.train.checks import check_sampling
from swerve.train.replicated_model import ReplicatedModel
from swerve.world import World

PARAMS = SamplingParams(num_samples=1, max_new_tokens=4, temperature=1.0, stop_ids=())
PROMPTS = [[1, 4, 5, 6], [1, *[5, 6, 7, 8, 4] * 40]]
"""The second one is longer than a block of vLLM's cache of prompts, which has 128 tokens on a CPU."""


def _model(seed: int, **sizes: Any) -> Any:
    config = TinyModel(
        **{"hidden_size": 64, "num_heads": 2, "num_kv_heads": 1, "intermediate_size": 48, "initializer_range": 0.2}
        | sizes
    )
    return build_tiny_model(config, build_word_tokenizer(["0", "1", "2", "3", "+", "=", ";"]), seed=seed).eval()


def _gaps(engine: VllmEngine, model: Any) -> list[float]:
    """Return for each prompt the largest difference (nats) of the engine's log-probs from a model's."""
    gaps = []
    for number, prompt in enumerate(PROMPTS):
        ((found,),) = engine.generate([prompt], PARAMS, seeds=[number])
        with torch.inference_mode():
            logits = model(torch.tensor([[*prompt, *found.token_ids]])).logits[0, len(prompt) - 1 : -1]
        expected = logits.log_softmax(dim=-1)[range(len(found.token_ids)), list(found.token_ids)]
        gaps.append(float((expected - torch.tensor(found.logprobs)).abs().max()))
    return gaps


@pytest.fixture(scope="module")
def tied():
    engine = VllmEngine(_model(1), pad_id=0, max_rows=8)
    yield engine
    engine.close()


def _policy(seed: int) -> Any:
    return _model(seed).state_dict().items()


@pytest.mark.vllm
def test_weights_that_are_not_loaded_show_as_differences_of_nats(tied):
    tied.load(_policy(1), version=1)
    assert max(_gaps(tied, _model(1))) < 1e-4
    assert min(_gaps(tied, _model(2))) > 1


@pytest.mark.vllm
def test_padding_of_the_output_head_is_never_sampled():
    model = _model(1, tie_embeddings=False)
    model.resize_token_embeddings(40, mean_resizing=False)
    with torch.no_grad():
        model.get_output_embeddings().weight[11:] *= 5
    limit_ids_of(model, 11)
    params, prompt = replace(PARAMS, num_samples=16), PROMPTS[0]
    with closing(VllmEngine(model, pad_id=0, max_rows=8)) as engine, torch.inference_mode():
        (group,) = engine.generate([prompt], params, seeds=[3])
        for one in group:
            logits = model(torch.tensor([[*prompt, *one.token_ids]])).logits[0, len(prompt) - 1 : -1, :11]
            expected = logits.log_softmax(dim=-1)[range(len(one.token_ids)), list(one.token_ids)]
            assert one.logprobs == pytest.approx(expected.tolist(), abs=1e-4)


@pytest.mark.vllm
def test_a_tied_head_keeps_the_old_weights_unless_it_is_packed_again(tied, monkeypatch):
    monkeypatch.setattr(vllm_versions, "pack_heads", lambda model: None)
    tied.load(_policy(3), version=1)
    assert min(_gaps(tied, _model(3))) > 1
    monkeypatch.undo()
    tied.load(_policy(3), version=2)
    assert max(_gaps(tied, _model(3))) < 1e-4


@pytest.mark.vllm
def test_a_cached_prompt_keeps_the_old_weights_unless_the_cache_is_reset(tied, monkeypatch):
    tied.load(_policy(4), version=1)
    assert max(_gaps(tied, _model(4))) < 1e-4
    monkeypatch.setattr(tied._llm, "reset_prefix_cache", lambda: True)
    tied.load(_policy(5), version=2)
    short, long = _gaps(tied, _model(5))
    assert short < 1e-4  # too short for the cache: nothing shows
    assert long > 0.1
    monkeypatch.undo()
    tied.load(_policy(5), version=2)
    assert max(_gaps(tied, _model(5))) < 1e-4


@pytest.mark.vllm
def test_an_adapter_comes_added_to_its_base(tied):
    pytest.importorskip("peft")
    adapted = new_adapter(_model(1), LoraConfig(rank=4), seed=0)
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3, generator=torch.Generator().manual_seed(3))
    weights = ReplicatedModel(adapted.eval(), World())
    tied.load(weights.stream_weights(), version=1)
    assert max(_gaps(tied, adapted)) < 1e-4
    assert min(_gaps(tied, _model(1))) > 0.1


@pytest.mark.vllm
def test_what_a_failure_leaves_in_vllm_does_not_reach_the_next_call(tied, monkeypatch):
    step, calls = tied._llm.llm_engine.step, []

    def fail() -> Any:
        calls.append("step")
        if len(calls) == 2:
            raise RuntimeError("out of memory")
        return step()

    tied.load(_policy(1), version=1)
    expected = tied.generate(PROMPTS[:1], PARAMS, seeds=[1])
    monkeypatch.setattr(tied._llm.llm_engine, "step", fail)
    with pytest.raises(EngineError, match=r"could not sample \(Qwen3ForCausalLM\): out of memory"):
        tied.generate(PROMPTS, PARAMS, seeds=[1, 2])
    monkeypatch.undo()
    assert tied.generate(PROMPTS[:1], PARAMS, seeds=[1]) == expected


@pytest.mark.vllm
def test_a_vllm_in_bfloat16_and_with_a_limit_of_length_and_without_some_weights():
    model = _model(1, tie_embeddings=False)
    engine = VllmEngine(copy.deepcopy(model).bfloat16(), pad_id=0, max_rows=8, max_model_len=250)
    assert 1e-4 < max(_gaps(engine, model)) < 0.2
    with pytest.raises(EngineError, match=r"prompt 0 has 201 tokens and may grow by 50, but vLLM was started for 250"):
        engine.generate(
            PROMPTS[1:], SamplingParams(num_samples=1, max_new_tokens=50, temperature=1.0, stop_ids=()), seeds=[1]
        )
    left_out = [(name, value) for name, value in model.state_dict().items() if "layers.1.mlp.up_proj" not in name]
    with pytest.raises(EngineError, match=r"vLLM lacks new weights \(model.layers.1.mlp.up_proj.weight\)"):
        engine.load(left_out, version=1)
    with pytest.raises(EngineError, match="vLLM cannot sample: it was closed"):  # some of its weights are gone
        engine.generate(PROMPTS, PARAMS, seeds=[1, 2])
    assert not torch.distributed.is_initialized()


@pytest.mark.vllm
def test_a_vllm_that_starts_with_other_weights_is_refused(monkeypatch):
    monkeypatch.setattr(vllm_engine, "replace_weights", lambda llm, weights: [])
    with pytest.raises(
        EngineError, match=r"vLLM does not sample with the weights of Qwen3ForCausalLM: log-probabilities differ by \d"
    ):
        VllmEngine(_model(1), pad_id=0, max_rows=8)


@pytest.mark.vllm
def test_models_that_vllm_cannot_sample_from_are_refused_before_anything_is_trained(small_config):
    recipe = small_config.model_copy(update={"rollout": RolloutConfig(engine=VllmEngineConfig())})
    with pytest.raises(ConfigError, match="no attention for heads of size 16, but for 32, 64, 80"):
        check_sampling(recipe, _model(1, num_heads=4))
    sizes = {"d_model": 64, "decoder_attention_heads": 2, "decoder_layers": 1, "encoder_layers": 1, "vocab_size": 20}
    with pytest.raises(ConfigError, match=r"vLLM [\d.]+ does not know the architecture BartForCausalLM"):
        check_sampling(recipe, BartForCausalLM(BartConfig(**sizes)))


@pytest.mark.parametrize(
    ("found", "error", "said"),
    [
        (None, MissingExtraError, "needs the package 'vllm'; install it with: pip install 'swerve[vllm]'"),
        (
            "0.26.1",
            ConfigError,
            "works with vLLM 0.27 to 0.32, and 0.26.1 is installed; pip install 'vllm>=0.27,<0.33'",
        ),
        ("0.33.0", ConfigError, "works with vLLM 0.27 to 0.32, and 0.33.0 is installed"),
    ],
)
def test_a_vllm_that_is_missing_or_not_supported_is_named_before_anything_is_trained(
    small_config, monkeypatch, found, error, said
):
    def version(name: str) -> str:
        if name == "vllm" and found is not None:
            return found
        raise PackageNotFoundError(name)

    monkeypatch.setattr("swerve.rollout.vllm_versions.version", version)
    monkeypatch.setattr(vllm_versions, "find_spec", lambda name: found)
    with pytest.raises(error) as caught:
        check_sampling(small_config.model_copy(update={"rollout": RolloutConfig(engine=VllmEngineConfig())}), _model(1))
    assert said in str(caught.value)


def test_several_processes_are_sent_to_a_server(monkeypatch):
    monkeypatch.setattr(vllm_versions, "installed_version", lambda: "0.32.0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="samples in a training of one process, not under torchrun"):
        vllm_versions.check_vllm(_model(1).config)


class _StandIn:
    """A vLLM that only writes down what it is asked for, as on a GPU: on a CPU sleeping does nothing."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.model_config = SimpleNamespace(max_model_len=512)

    def collective_rpc(self, function: Any, args: Any) -> list[list[str]]:
        self.calls.append(("weights", float(dict(args[0])["model.norm.weight"][0])))
        return [[]]

    def reset_prefix_cache(self) -> bool:
        self.calls.append("reset")
        return True

    def sleep(self, *, level: int) -> None:
        self.calls.append(("sleep", level))

    def wake_up(self, *, tags: list[str]) -> None:
        self.calls += [("wake", tag) for tag in tags]


@pytest.fixture
def stand_in(monkeypatch):
    made = _StandIn()
    monkeypatch.setattr(vllm_engine, "check_vllm", lambda config: None)
    monkeypatch.setattr(VllmEngine, "_check_start", lambda self: None)
    monkeypatch.setattr(vllm_engine, "start", lambda folder, **options: (made, False))
    return made


@pytest.mark.parametrize(
    ("ids", "reason", "said"),
    [
        ((4, 5), "abort", r"vLLM gave up a completion \('abort'\)"),
        ((4, 11), "length", "sampled the token id 11, .* only 11"),
    ],
)
def test_what_is_no_completion_is_named(stand_in, monkeypatch, ids, reason, said):
    engine = VllmEngine(_model(1), pad_id=0, max_rows=8)
    found = SimpleNamespace(token_ids=ids, finish_reason=reason)
    monkeypatch.setattr(engine, "_sampled", lambda *_: [SimpleNamespace(outputs=[found])])
    with pytest.raises(EngineError, match=said):
        engine.generate([[1]], PARAMS, seeds=[1])


def test_a_model_on_another_gpu_than_the_first_is_refused(stand_in, monkeypatch):
    model = _model(1)
    monkeypatch.setattr(type(model), "device", property(lambda _: torch.device("cuda:1")))
    with pytest.raises(ConfigError, match="the model is on cuda:1; set CUDA_VISIBLE_DEVICES=1 and runtime.device=cuda"):
        VllmEngine(model, pad_id=0, max_rows=8)


def test_a_vllm_that_cannot_be_imported_is_one_line(monkeypatch):
    monkeypatch.setattr(vllm_versions, "installed_version", lambda: "0.32.0")
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(ConfigError, match=r"vLLM 0.32.0 cannot be imported: .*vllm"):
        vllm_versions.check_vllm(_model(1, num_heads=2).config)


@pytest.mark.parametrize("level", [None, 1, 2])
def test_weights_that_a_sleep_dropped_come_from_memory_and_before_the_cache(stand_in, level):
    model = _model(1)
    engine = VllmEngine(model, pad_id=0, max_rows=8, sleep=level)
    assert stand_in.calls == [("weights", 1.0), "reset"]

    def called(*steps: str) -> list[Any]:
        stand_in.calls.clear()
        for step in steps:
            if step == "load":
                engine.load([(name, value * 3) for name, value in model.state_dict().items()], version=4)
            else:
                getattr(engine, step)()
        return list(stand_in.calls)

    asleep = [] if level is None else [("sleep", level)]
    woken = [] if level is None else [("wake", "weights")]
    cache = [] if level is None else [("wake", "kv_cache")]
    own = [("weights", 1.0), "reset"] if level == 2 else []
    assert called("sleep", "sleep") == asleep
    assert called("load", "wake", "wake") == [*woken, ("weights", 3.0), "reset", *cache]
    assert engine.version == 4
    assert called("sleep", "wake") == [*asleep, *woken, *own, *cache]  # the policy is what it was: nothing is loaded
    assert engine.version == 4
