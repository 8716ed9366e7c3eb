"""How the engine of a training run gets the policy's weights, and whether it samples with them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import chain, cycle, islice
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel

from swerve.errors import EngineError, SwerveError
from swerve.functional.logprobs import token_logprobs
from swerve.models.head import num_ids_of
from swerve.recipes.custom import custom_place
from swerve.rollout.decoding import evaluating
from swerve.rollout.engine import Engine, NamedTensors, SamplingParams
from swerve.types import Completion
from swerve.world import ALONE, World

LONG_PROMPT = 160
"""Tokens of the long prompt: more than a block of any engine's prefix cache, the largest of which has 128."""
_MEAN_SHARE = 0.1
"""Of the bound on the largest difference, that on the mean."""


def model_logprobs(
    model: PreTrainedModel, prompt: Sequence[int], completions: Sequence[Sequence[int]]
) -> Float[Tensor, "B T"]:
    """Return a model's log-probabilities (nats, temperature 1) of completions of one prompt, all T tokens long.

    Teacher forcing without packing, in evaluation mode; on the CPU, float32. For a few tokens: it keeps all logits.
    """
    ids = torch.tensor([[*prompt, *completion] for completion in completions], device=model.device)
    with evaluating(model), torch.inference_mode():
        logits = cast(Any, model)(input_ids=ids, use_cache=False).logits[:, len(prompt) - 1 : -1, : num_ids_of(model)]
        return token_logprobs(logits.float(), ids[:, len(prompt) :]).cpu()


OWN_PARAMS = SamplingParams(num_samples=4, max_new_tokens=4, temperature=1.0, stop_ids=())
"""How `check_own_weights` wants a prompt to be sampled."""


def own_prompt(model: PreTrainedModel) -> list[int]:
    """Return the prompt of `check_own_weights`."""
    return [token % cast(Any, model).get_input_embeddings().num_embeddings for token in range(4)]


def check_own_weights(model: PreTrainedModel, completions: Sequence[Completion], who: str, bound: float) -> float:
    """Check that what `who` sampled after `own_prompt` has a model's log-probs (nats), where no `EngineCheck` does.

    Returns the largest difference.

    Raises:
        EngineError: one differs by more than the bound, or the mean by more than its share.
    """
    expected = model_logprobs(model, own_prompt(model), [completion.token_ids for completion in completions])
    differences = (expected - torch.tensor([completion.logprobs for completion in completions])).abs()
    largest, mean = float(differences.max()), float(differences.mean())
    if not (largest <= bound and mean <= _MEAN_SHARE * bound):
        raise EngineError(
            f"{who} does not sample with the weights of {type(model).__name__}: log-probabilities differ by "
            f"{largest:.3g} nats at most and {mean:.3g} on average from the model's own, and {bound:g} and "
            f"{_MEAN_SHARE * bound:g} are allowed; start it again, or sample with another engine (rollout.engine)"
        )
    return largest


TeacherForced = Callable[[Sequence[tuple[Sequence[int], Sequence[int]]]], Sequence[float]]
"""(prompt ids, completion ids) pairs -> the trainer's log-probability of every completion token at temperature 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReport:
    """How an engine got the policy's weights, and how near its log-probabilities are to the trainer's."""

    seconds: float
    """To load, wake and check."""
    mean_difference: float | None = None
    """Absolute, nats per token; None: it was not compared."""
    max_difference: float | None = None


def trial_prompts(problems: Sequence[Sequence[int]], *, num_prompts: int, longest: int) -> list[list[int]]:
    """Return prompts for `EngineCheck`, the same at every call: one long one after the first problems' prompts.

    The long one has the problems' prompts one after the other, so that it fills a block of a prefix cache.

    Args:
        problems: token ids of prompts, not empty.
        num_prompts: how many to return; it may be 0.
        longest: tokens of the long one; others that are longer keep their end.

    >>> trial_prompts([[1, 2, 3], [1, 4]], num_prompts=2, longest=7)
    [[1, 2, 3], [1, 2, 3, 1, 4, 1, 2]]
    """
    if not num_prompts:
        return []
    short = [list(prompt)[-longest:] for prompt in islice(cycle(problems), num_prompts - 1)]
    tokens = (token for prompt in cycle(problems) for token in prompt)
    return [*short, list(islice(tokens, longest))]


class EngineCheck:
    """Compares an engine with the trainer on fixed prompts with fixed seeds, and looks at what it samples."""

    def __init__(
        self,
        teacher_forced: TeacherForced,
        prompts: Sequence[Sequence[int]],
        *,
        bound: float,
        num_tokens: int,
        vocab_size: int,
    ) -> None:
        """Keep what is asked of the engine at every sync.

        Args:
            teacher_forced: the trainer's side, with the weights as they are when it is called.
            prompts: of `trial_prompts`; empty: only what is sampled for training is looked at.
            bound: of the largest difference, nats.
            num_tokens: sampled after each prompt.
            vocab_size: ids are below it.
        """
        self._teacher_forced, self._prompts, self._bound = teacher_forced, prompts, bound
        self._params = SamplingParams(num_samples=1, max_new_tokens=num_tokens, temperature=1.0, stop_ids=())
        self._vocab_size = vocab_size
        self._answers: dict[str, tuple[int, list[Completion]]] = {}
        """What the engine answered at the first and at the last sync, each with its version."""

    def checked(self, engine: Engine) -> Engine:
        """Return the engine, with checks of everything that it samples."""
        return _CheckedEngine(engine, self._vocab_size)

    def compare(self, engine: Engine) -> tuple[float | None, float | None]:
        """Return mean and largest absolute difference (nats) of the engine's log-probabilities from the trainer's.

        Raises:
            EngineError: they differ by more than the bound, or the engine fails.
        """
        if not self._prompts:
            return None, None
        # The engine samples, and the trainer reads what it wrote.
        seeds = list(range(len(self._prompts)))
        with torch.random.fork_rng(devices=[]):
            groups = self.checked(engine).generate(self._prompts, self._params, seeds=seeds)
        answers = [completion for (completion,) in groups]
        expected = iter(self._teacher_forced([*zip(self._prompts, (one.token_ids for one in answers), strict=True)]))
        by_prompt = [[abs(next(expected) - own) for own in completion.logprobs] for completion in answers]

        # All tokens count alike, whatever their prompt.
        differences = [value for values in by_prompt for value in values]
        mean, largest = math.fsum(differences) / len(differences), max(differences)
        if not (largest <= self._bound and mean <= _MEAN_SHARE * self._bound):
            raise EngineError(
                f"{_name(engine)} does not sample with the policy's weights of version {engine.version}: the "
                f"log-probabilities of {len(differences)} tokens differ from the trainer's by {mean:.3g} nats on "
                f"average and {largest:.3g} at most, and rollout.check allows {_MEAN_SHARE * self._bound:g} and "
                f"{self._bound:g}; {self._advice(answers, by_prompt)}"
            )
        self._answers.setdefault("first", (engine.version, answers))
        self._answers["last"] = engine.version, answers
        return mean, largest

    def _advice(self, answers: Sequence[Completion], by_prompt: Sequence[Sequence[float]]) -> str:
        """Say what the differences look like."""
        for when, (version, before) in reversed(self._answers.items()):
            if self._are_alike(answers, before):
                what = "loaded" if when == "last" else "kept: look at what is loaded when it wakes"
                return f"it answers as with version {version}, so the new weights were not {what}"
        *short, long = [max(values) <= self._bound for values in by_prompt]
        if short and all(short) and not long:
            return (
                f"only after the prompt of {len(self._prompts[-1])} tokens, so its prefix cache has keys and values of "
                "other weights: reset it when weights are loaded"
            )
        return (
            "it has other weights, another output head or another precision: look at what it loads "
            "(rollout.check.max_difference sets the bound)"
        )

    def _are_alike(self, answers: Sequence[Completion], before: Sequence[Completion]) -> bool:
        for now, then in zip(answers, before, strict=True):
            if now.token_ids != then.token_ids:
                return False
            largest = max(abs(a - b) for a, b in zip(now.logprobs, then.logprobs, strict=True))
            if not largest <= _MEAN_SHARE * self._bound:
                return False
        return True


class PolicyEngine:
    """The engine of a training run: made when first needed, asleep while the policy learns, closed at the end."""

    def __init__(self, make: Callable[[], Engine], check: EngineCheck | None = None, world: World = ALONE) -> None:
        """Keep how to make the engine.

        Args:
            make: the engine.
            check: of an engine with weights of its own, whenever it has been woken; None: it is trusted.
            world: the processes that train together, with an engine each.
        """
        self._make, self._check, self._world = make, check, world
        self._engine: Engine | None = None
        self._version: int | None = None
        self.report: SyncReport | None = None
        """Of the last time it was woken; None for an engine that samples with the trained model itself."""

    @contextmanager
    def awake(
        self,
        weights: NamedTensors,
        *,
        version: int,
        gathered: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> Iterator[Engine]:
        """Yield the engine with the policy's weights; it sleeps afterwards.

        Args:
            weights: the policy's; read where the engine has another version.
            version: updates behind the weights.
            gathered: holds the trained model whole, for an engine that samples with it.

        Raises:
            EngineError: it fails, or does not sample with these weights.
        """
        if self._engine is None:
            self._engine = self._make()
        engine, check = self._engine, None if self._engine.shares_weights else self._check

        # It is woken with weights of this version.
        started = time.perf_counter()
        with nullcontext() if check is None else _named_failure(engine, "took the policy's weights"):
            if self._version != version:
                self._load(engine, weights, version)
                if engine.version != version:
                    raise EngineError(
                        f"{_name(engine)} has version {engine.version} after it loaded version {version}; set it in "
                        "load, as Engine.load does"
                    )
                self._version = version
            engine.wake()

        # It is compared with the trainer before anything is learned from it.
        try:
            if check is not None:
                mean, largest = check.compare(engine)
                seconds = time.perf_counter() - started
                self.report = SyncReport(seconds=seconds, mean_difference=mean, max_difference=largest)
            with gathered() if engine.shares_weights else nullcontext():
                yield engine if check is None else check.checked(engine)
        finally:
            engine.sleep()

    def _load(self, engine: Engine, weights: NamedTensors, version: int) -> None:
        """Give the engines of all processes the weights; where they `join`, they are collected in one process only."""
        if self._world.size == 1 or not engine.joins:
            engine.load(weights, version=version)
            return
        if self._world.is_main:
            engine.load(weights, version=version)
        else:
            for _ in weights:  # each is put together by all processes
                pass
        label = self._world.gather(engine.label)[0]
        if not self._world.is_main:
            engine.join(label, version=version)

    def forget_version(self) -> None:
        """Load the weights before the next sampling even where the version is the same: the policy took over others."""
        self._version = None

    def close(self) -> None:
        """Close the engine if one was made."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None


class _CheckedEngine(Engine):
    """An engine whose failures are named and whose completions are what was asked for."""

    def __init__(self, engine: Engine, vocab_size: int) -> None:
        self._engine, self._vocab_size = engine, vocab_size
        self.version, self.concurrent = engine.version, engine.concurrent

    def generate(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams, **options: Any
    ) -> list[tuple[Completion, ...]]:
        """See `Engine.generate`.

        Raises:
            EngineError: it fails, or returns what was not asked for.
        """
        with _named_failure(self._engine, "sampled"):
            groups = self._engine.generate(prompts, params, **options)
        fault = _fault(groups, len(prompts), params, self._vocab_size)
        if fault is not None:
            raise EngineError(
                f"{_name(self._engine)} {fault}; nothing of it is learned from: look at the engine, then continue with "
                "--resume"
            )
        return groups


def _fault(groups: Sequence[Sequence[Completion]], num: int, params: SamplingParams, vocab_size: int) -> str | None:
    """Return what is wrong with an engine's answer."""
    if len(groups) != num or any(len(group) != params.num_samples for group in groups):
        returned = f"{sum(map(len, groups))} completions of {len(groups)} prompts"
        return f"returned {returned}, not {params.num_samples} of each of {num}"
    for index, completion in enumerate(chain.from_iterable(groups)):
        where = f"in completion {index % params.num_samples} of prompt {index // params.num_samples}"
        if not 1 <= len(completion.token_ids) <= params.max_new_tokens:
            return f"returned {len(completion.token_ids)} tokens {where}, not 1 to {params.max_new_tokens}"
        if not 0 <= min(completion.token_ids) <= max(completion.token_ids) < vocab_size:
            other = next(token for token in completion.token_ids if not 0 <= token < vocab_size)
            return f"returned the token id {other} {where}; the model's vocabulary has {vocab_size}"
        if not all(map(math.isfinite, completion.logprobs)):
            place = next(at for at, logprob in enumerate(completion.logprobs) if not math.isfinite(logprob))
            return f"returned the log-probability {completion.logprobs[place]} at token {place} {where}"
    return None


@contextmanager
def _named_failure(engine: Engine, doing: str) -> Iterator[None]:
    """Raise what an engine raises as EngineError; what names itself already as it is."""
    try:
        yield
    except SwerveError:
        raise
    except Exception as error:
        place = custom_place(error)
        where = f" ({place})" if place else ""
        text = f"{_name(engine)} failed while it {doing}{where}: {type(error).__name__}: {error}"
        raise EngineError(f"{text}; mend or restart it, then continue with --resume") from error


def _name(engine: Engine) -> str:
    return f"the engine {type(engine).__name__}"
