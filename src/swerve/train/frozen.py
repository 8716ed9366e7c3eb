"""Models that are read but not trained: the reference of a KL term, the teacher of a distillation."""

from __future__ import annotations

from transformers import PreTrainedModel

from swerve.errors import MismatchError
from swerve.models.head import limit_ids_of, model_head
from swerve.models.hub import checkpoint_folder
from swerve.models.model_folder import LoadedModel, tokenizer_fingerprint
from swerve.models.starting_model import OTHER_TOKENS
from swerve.train.context import StageContext
from swerve.train.replicated_model import ReplicatedModel
from swerve.train.sharded_model import load_for, model_class


def frozen_policy(context: StageContext) -> ReplicatedModel:
    """Return the policy as it was when the stage began."""
    copied = None if context.resumed else context.learner.weights.frozen_copy()
    return frozen(context.stage_start(), context) if copied is None else copied


def load_named(name: str, context: StageContext) -> LoadedModel:
    """Load an earlier checkpoint of the run (`sft`, `rl-30`) or of another (`RUN:rl-30`), a folder, or one of the hub.

    Raises:
        CheckpointError: there is no such model, or it is damaged.
    """
    is_own = context.config.is_own(name)
    path = context.run.select_checkpoint(name).path if is_own else checkpoint_folder(name)
    return load_for(context.config.runtime, path, context.world)


def load_frozen(name: str, context: StageContext) -> ReplicatedModel:
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
    return frozen(loaded.model, context)


def frozen(model: PreTrainedModel, context: StageContext) -> ReplicatedModel:
    """Return a model as the run's runtime holds it, in evaluation mode and without gradients for good."""
    config = context.config
    weights = model_class(config.runtime)(
        model, context.world, runtime=config.runtime, attention=config.attention, is_trained=False
    )
    return weights.frozen()
