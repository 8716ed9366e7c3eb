"""Models that are read but not trained: the reference of a KL term, the teacher of a distillation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel

from swerve.batch import TokenBatch
from swerve.config.recipe import DEFAULT_RUNTIME, RuntimeConfig
from swerve.errors import MismatchError
from swerve.models.head import Head, limit_ids_of, model_head
from swerve.models.model_folder import LoadedModel, tokenizer_fingerprint
from swerve.train.columns import TokenTable, score_logprobs
from swerve.train.context import StageContext
from swerve.train.replicated_model import ReplicatedModel
from swerve.train.sharded_model import load_for, model_class
from swerve.train.starting_model import OTHER_TOKENS, is_of_run
from swerve.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenModel:
    """A model in evaluation mode, without gradients, and its head."""

    weights: ReplicatedModel

    @classmethod
    def of(
        cls, model: PreTrainedModel, world: World, runtime: RuntimeConfig = DEFAULT_RUNTIME, *, attention: str = "auto"
    ) -> FrozenModel:
        """Freeze a model; it must not be trained any more."""
        weights = model_class(runtime)(model, world, runtime=runtime, attention=attention, is_trained=False)
        return cls(weights=weights.frozen())

    @property
    def model(self) -> PreTrainedModel:
        """The model itself."""
        return self.weights.model

    @property
    def head(self) -> Head:
        """Its output head."""
        return self.weights.head

    def hidden(self, batch: TokenBatch) -> Float[Tensor, "N D"]:
        """Return the hidden states before the head at the batch's real completion tokens."""
        with torch.no_grad():
            return self.weights.completion_hidden(batch)

    def logprobs(self, batches: Sequence[TokenBatch], table: TokenTable, *, temperature: float) -> Float[Tensor, "B T"]:
        """Return the log-probability (nats) of every completion token."""
        return score_logprobs(self.weights, batches, table, temperature=temperature)


def frozen_policy(context: StageContext) -> FrozenModel:
    """Return the policy as it was when the stage began."""
    copied = None if context.resumed else context.learner.weights.frozen_copy()
    return _frozen(context.stage_start(), context) if copied is None else FrozenModel(weights=copied)


def load_named(name: str, context: StageContext) -> LoadedModel:
    """Load an earlier checkpoint of the run (`sft`, `rl-30`), a model folder, or a model of the hub.

    Raises:
        CheckpointError: there is no such model, or it is damaged.
    """
    path = context.run.select_checkpoint(name).path if is_of_run(name, context.config) else name
    return load_for(context.config.runtime, path, context.world)


def load_frozen(name: str, context: StageContext) -> FrozenModel:
    """Return a model that `load_named` knows, frozen.

    Raises:
        CheckpointError: there is no such model, or it is damaged.
        MismatchError: its tokenizer is another than the policy's, or its output head lacks tokens that the policy has.
    """
    loaded = load_named(name, context)
    if tokenizer_fingerprint(loaded.tokenizer) != tokenizer_fingerprint(context.learner.tokenizer):
        raise MismatchError(f"{name}: {OTHER_TOKENS}")
    size, own = context.learner.head.vocabulary_size, model_head(loaded.model).vocabulary_size
    if own < size:
        raise MismatchError(
            f"{name}: its output head has {own} tokens, and that of the model in training {size}; token-level "
            "divergences need all of these"
        )
    limit_ids_of(loaded.model, size)  # an added token that only the frozen model has
    return _frozen(loaded.model, context)


def _frozen(model: PreTrainedModel, context: StageContext) -> FrozenModel:
    return FrozenModel.of(model, context.world, context.config.runtime, attention=context.config.attention)
