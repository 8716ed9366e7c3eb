"""What an engine with weights of its own is compared with: the policy, on prompts of the training problems."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from swerve.batch import TokenSequence, token_batches
from swerve.config.engines import CheckConfig, ServerEngineConfig
from swerve.config.recipe import Config
from swerve.positions import max_sampled
from swerve.prompts.encode import encode_prompts
from swerve.prompts.templates import template_arguments
from swerve.rollout.sync import LONG_PROMPT, EngineCheck, trial_prompts
from swerve.train.columns import TokenTable, score_logprobs
from swerve.train.replicated_model import ReplicatedModel
from swerve.types import Problem

_NUM_PROMPTS = 4
"""Fixed prompts that are sampled after, one of them long."""
_NUM_TOKENS = 16
"""Sampled after each prompt."""


def engine_check(
    config: Config, weights: ReplicatedModel, tokenizer: PreTrainedTokenizerBase, problems: Sequence[Problem]
) -> EngineCheck:
    """Return the check of the run's engine, as `rollout.check` says.

    Args:
        config: the run's.
        weights: the policy, scored as it is when the engine is checked.
        tokenizer: the policy's.
        problems: the prompts of the first ones are sampled after.
    """
    # Prompts of the problems, no longer than the model reads with the tokens that are sampled after them.
    settings, engine = config.rollout.check or CheckConfig(), config.rollout.engine
    num_prompts = 0 if config.rollout.check is None else _NUM_PROMPTS
    limit = max_sampled(weights.model.config, 1)
    longest = LONG_PROMPT if limit is None else max(1, min(LONG_PROMPT, limit - _NUM_TOKENS))
    sent = engine.dtype if isinstance(engine, ServerEngineConfig) else None
    prompts = encode_prompts(tokenizer, problems[:LONG_PROMPT], template_arguments(config.model))

    def teacher_forced(sequences: Sequence[TokenSequence]) -> list[float]:
        table = TokenTable.of(sequences)
        batches = token_batches(sequences, pad_id=int(tokenizer.pad_token_id or 0), packed=weights.packs)
        logprobs = score_logprobs(weights, batches, table, temperature=1.0)
        scores: list[float] = logprobs[table.mask].tolist()
        return scores

    return EngineCheck(
        teacher_forced,
        trial_prompts([prompt.token_ids for prompt in prompts], num_prompts=num_prompts, longest=longest),
        bound=settings.bound(config.runtime.precision, sent),
        num_tokens=_NUM_TOKENS,
        vocab_size=weights.head.vocabulary_size,
    )
