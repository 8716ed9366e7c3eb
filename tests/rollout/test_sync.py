"""Whether an engine samples with the policy's weights: stand-ins with weights of their own, and planted faults."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import DynamicCache

from swerve.batch import completion_logits, token_batches
from swerve.errors import EngineError
from swerve.functional import token_logprobs
from swerve.rollout.engine import Engine, SamplingParams
from swerve.rollout.sync import EngineCheck, PolicyEngine, trial_prompts
from swerve.rollout.torch_engine import TorchEngine
from swerve.types import Completion

PARAMS = SamplingParams(num_samples=2, max_new_tokens=5, temperature=1.0, stop_ids=())
PROMPTS = trial_prompts([[1, 4, 5, 6], [1, 7, 8], [1, 5]], num_prompts=3, longest=160)


class _Copy(TorchEngine):
    """Samples with a copy of the policy, as an engine in another process does."""

    shares_weights = False

    def __init__(self, model: Any) -> None:
        self.own = copy.deepcopy(model)
        super().__init__(self.own, pad_id=0, max_rows=16)

    def load(self, weights: Any, *, version: int) -> None:
        super().load(weights, version=version)
        self.own.load_state_dict(dict(weights), strict=False)


class _NotLoaded(_Copy):
    def load(self, weights: Any, *, version: int) -> None:
        self.version = version


class _OldHead(_Copy):
    """Keeps a head of its own, as a packed copy of tied weights does."""

    def load(self, weights: Any, *, version: int) -> None:
        super().load(weights, version=version)
        if version:
            self.own.lm_head.weight = torch.nn.Parameter(self.own.lm_head.weight.flip(0).clone())


class _FirstWeightsAtWake(_Copy):
    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self._first = copy.deepcopy(self.own.state_dict())

    def load(self, weights: Any, *, version: int) -> None:
        super().load(weights, version=version)
        self._late = copy.deepcopy(self.own.state_dict())

    def wake(self) -> None:
        self.own.load_state_dict(self._first if self.version > 1 else self._late)


class _PrefixCache(_Copy):
    """Keeps keys and values of the first 128 tokens of a prompt."""

    resets = False

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self._cached: dict[tuple[int, ...], DynamicCache] = {}

    def load(self, weights: Any, *, version: int) -> None:
        super().load(weights, version=version)
        if self.resets:
            self._cached.clear()

    def generate(self, prompts: Any, params: Any, *, seeds: Any, **more: Any) -> Any:
        return [
            super(_PrefixCache, self).generate([prompt], params, seeds=[seed])[0]
            if len(prompt) <= 128
            else tuple(self._continue(prompt, params, seed + number) for number in range(params.num_samples))
            for prompt, seed in zip(prompts, seeds, strict=True)
        ]

    @torch.inference_mode()
    def _continue(self, prompt: Sequence[int], params: SamplingParams, seed: int) -> Completion:
        block, generator = tuple(prompt[:128]), torch.Generator().manual_seed(seed)
        if block not in self._cached:
            self._cached[block] = self.own(torch.tensor([block]), use_cache=True).past_key_values
        cache, new = copy.deepcopy(self._cached[block]), list(prompt[128:])
        ids: list[int] = []
        logprobs: list[float] = []
        while len(ids) < params.max_new_tokens:
            rows = self.own(torch.tensor([new]), past_key_values=cache).logits[0, -1].log_softmax(-1)
            new = [int(torch.multinomial(rows.exp(), 1, generator=generator))]
            ids, logprobs = [*ids, *new], [*logprobs, float(rows[new[0]])]
        return Completion(token_ids=tuple(ids), logprobs=tuple(logprobs), finish_reason="length")


class _ResetPrefixCache(_PrefixCache):
    resets = True


class _Run:
    """A policy that is updated, and the engine that samples for it."""

    def __init__(self, model: Any, make: Any, *, bound: float = 1e-3) -> None:
        self.model = copy.deepcopy(model)
        check = EngineCheck(
            self._teacher_forced, PROMPTS, bound=bound, num_tokens=8, vocab_size=model.config.vocab_size
        )
        self.made: list[Any] = []
        self.engine = PolicyEngine(lambda: self.made.append(make(model)) or self.made[-1], check)
        self.version = 0

    def _teacher_forced(self, sequences: Any) -> list[float]:
        (batch,) = token_batches(sequences, pad_id=0, in_order=True)
        with torch.inference_mode():
            logprobs = token_logprobs(completion_logits(self.model, batch), batch.completion_ids)
        return logprobs[batch.mask].tolist()

    def update(self, scale: float = 0.2) -> None:
        generator = torch.Generator().manual_seed(self.version)
        self.version += 1
        with torch.no_grad():
            for one in self.model.parameters():
                one += scale * one.std() * torch.randn(one.shape, generator=generator)

    def sample(self, prompts: Sequence[Sequence[int]] = ((1, 4),)) -> Any:
        with self.engine.awake(self.model.named_parameters(), version=self.version) as engine:
            return engine.generate(prompts, PARAMS, seeds=list(range(len(prompts))))


@pytest.mark.parametrize("make", [_Copy, _ResetPrefixCache])
def test_an_engine_that_loads_what_it_is_given_agrees_to_rounding_after_every_sync(tiny, make):
    run = _Run(tiny[0], make)
    for _ in range(3):
        run.sample(PROMPTS)
        assert run.engine.report.max_difference < 1e-4
        assert 0 < run.engine.report.mean_difference <= run.engine.report.max_difference
        assert run.engine.report.seconds > 0
        run.update()


@pytest.mark.parametrize(
    ("make", "updates", "advice"),
    [
        (_NotLoaded, 1, "it answers as with version 0, so the new weights were not loaded"),
        (_OldHead, 1, "it has other weights, another output head or another precision"),
        (
            _PrefixCache,
            1,
            "only after the prompt of 160 tokens, so its prefix cache has keys and values of other weights",
        ),
        (
            _FirstWeightsAtWake,
            2,
            "it answers as with version 0, so the new weights were not kept: look at what is loaded",
        ),
    ],
)
def test_an_engine_with_other_weights_is_named_at_the_first_sync_that_shows_it(tiny, make, updates, advice):
    run = _Run(tiny[0], make)
    for _ in range(updates):
        run.sample()
        run.update(0.02 if make is _PrefixCache else 0.2)
    with pytest.raises(EngineError) as caught:
        run.sample()
    text = str(caught.value)
    assert text.startswith(
        f"the engine {make.__name__} does not sample with the policy's weights of version {updates}: "
    )
    assert "the log-probabilities of 24 tokens differ from the trainer's by " in text
    assert "rollout.check allows 0.0001 and 0.001; " in text
    assert advice in text
    assert "\n" not in text


def test_a_wrong_head_is_off_by_nats(tiny):
    run = _Run(tiny[0], _OldHead, bound=1.0)  # that of bfloat16
    run.sample()
    run.update()
    with pytest.raises(EngineError, match="other weights, another output head"):
        run.sample()


def test_the_bound_is_of_the_largest_difference_and_a_tenth_of_it_of_the_mean(tiny):
    def differing_by(*nats: float) -> None:
        answers = iter(nats)
        check = EngineCheck(
            lambda pairs: [one + next(answers) for one in given],
            [[1, 4]],
            bound=0.1,
            num_tokens=3,
            vocab_size=tiny[0].config.vocab_size,
        )
        engine = _Copy(tiny[0])
        ((completion,),) = engine.generate([[1, 4]], replace(PARAMS, num_samples=1, max_new_tokens=3), seeds=[0])
        given = completion.logprobs
        check.compare(engine)

    differing_by(0.02, 0.0, 0.0)
    for nats in ((0.04, 0.0, 0.0), (0.11, -0.11, 0.0), (math.nan, 0.0, 0.0), (0.0, 0.0, math.nan)):
        with pytest.raises(EngineError, match="rollout.check allows 0.01 and 0.1"):
            differing_by(*nats)


def test_weights_that_the_policy_took_over_under_the_same_version_are_loaded(tiny):
    run = _Run(tiny[0], _Copy)
    run.sample()
    run.update()
    run.version = 0
    with pytest.raises(EngineError, match="does not sample with the policy's weights of version 0"):
        run.sample()
    run.engine.forget_version()
    run.sample()


def _broken(change: Any) -> type[_Copy]:
    class Broken(_Copy):
        def generate(self, *arguments: Any, **options: Any) -> Any:
            groups = super().generate(*arguments, **options)
            return change(groups) if self.version else groups

    return Broken


def _with(**keys: Any) -> Any:
    return lambda groups: [*groups[:-1], (*groups[-1][:-1], replace(groups[-1][-1], **keys))]


def _fail(_groups: Any) -> Any:
    raise ConnectionResetError("the connection was lost")


FAULTS = [
    (_fail, "failed while it sampled: ConnectionResetError: the connection was lost"),
    (lambda groups: groups[:-1], r"returned \d completions of \d prompts, not \d of each of \d"),
    (lambda groups: [*groups[:-1], groups[-1][:-1]], r"returned \d completions of \d prompts, not \d of each of \d"),
    (_with(token_ids=(1, 99), logprobs=(-1.0, -1.0)), r"returned the token id 99 in completion \d of prompt \d; the "),
    (_with(token_ids=(-1, 1), logprobs=(-1.0, -1.0)), r"returned the token id -1 in completion \d of prompt \d; the "),
    (_with(token_ids=(1, 2), logprobs=(-1.0, math.nan)), r"returned the log-probability nan at token 1 in completion"),
    (_with(token_ids=(), logprobs=()), r"returned 0 tokens in completion \d of prompt \d, not 1 to \d"),
    (_with(token_ids=(1,) * 9, logprobs=(-1.0,) * 9), r"returned 9 tokens in completion \d of prompt \d, not 1 to \d"),
]


@pytest.mark.parametrize(("change", "message"), FAULTS)
def test_an_engine_that_fails_or_returns_something_else_is_named(tiny, change, message):
    run = _Run(tiny[0], _broken(change))
    run.sample()
    run.update()
    with pytest.raises(EngineError, match=f"^the engine Broken {message}"):
        run.sample()


@pytest.mark.parametrize(("change", "message"), FAULTS)
def test_and_so_it_is_where_only_training_shows_it(tiny, change, message):
    run = _Run(tiny[0], _broken(change))
    with (
        pytest.raises(EngineError, match=f"^the engine Broken {message}"),
        run.engine.awake(run.model.named_parameters(), version=0) as engine,
    ):
        run.made[0].version = 1
        engine.generate([[1, 4], [1, 5]], PARAMS, seeds=[0, 1])


def test_an_engine_that_cannot_load_is_named_and_an_error_that_names_itself_is_kept(tiny):
    class Broken(_Copy):
        def load(self, weights: Any, *, version: int) -> None:
            raise OSError("no such folder") if version else EngineError("http://localhost:1: no answer")

    with pytest.raises(EngineError, match="^http://localhost:1: no answer$"):
        _Run(tiny[0], Broken).sample()
    run = _Run(tiny[0], Broken)
    run.version = 1
    with pytest.raises(
        EngineError, match="^the engine Broken failed while it took the policy's weights: OSError: no such"
    ):
        run.sample()


def test_an_engine_that_does_not_take_over_the_version_is_named(tiny):
    class Broken(_Copy):
        def load(self, weights: Any, *, version: int) -> None:
            self.own.load_state_dict(dict(weights), strict=False)

    run = _Run(tiny[0], Broken)
    run.sample()
    run.update()
    with pytest.raises(EngineError, match="^the engine Broken has version 0 after it loaded version 1; set it in load"):
        run.sample()


def test_an_engine_that_samples_with_the_policy_itself_is_not_asked(tiny):
    class Shares(Engine):
        shares_weights = True

        def generate(self, prompts: Any, params: Any, **more: Any) -> Any:
            raise ZeroDivisionError

    run = _Run(tiny[0], lambda _model: Shares())
    with pytest.raises(ZeroDivisionError):
        run.sample()
    assert run.engine.report is None


def test_the_check_draws_from_no_stream_of_the_run(tiny):
    class Draws(_Copy):
        def generate(self, *arguments: Any, **options: Any) -> Any:
            torch.rand(1)
            return super().generate(*arguments, **options)

    run = _Run(tiny[0], Draws)
    before = torch.get_rng_state()
    with run.engine.awake(run.model.named_parameters(), version=0):
        assert bool((torch.get_rng_state() == before).all())


def test_prompts_are_the_first_problems_and_one_that_fills_a_block_of_a_prefix_cache():
    problems = [[1, 2, 3, 4], [5, 6], [7]]
    assert trial_prompts(problems, num_prompts=1, longest=5) == [[1, 2, 3, 4, 5]]
    assert trial_prompts(problems, num_prompts=3, longest=3) == [[2, 3, 4], [5, 6], [1, 2, 3]]
    assert [len(one) for one in trial_prompts(problems, num_prompts=6, longest=160)] == [4, 2, 1, 4, 2, 160]
    assert trial_prompts(problems, num_prompts=0, longest=9) == []
