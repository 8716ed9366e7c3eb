"""Models in memory, whoever made them, under teacher forcing: wrappers looked through, and nothing of them changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from swerve.batch import TokenSequence
from swerve.errors import MismatchError
from swerve.models.load import LoadedModel
from swerve.probe.model_facts import max_positions
from swerve.probe.teacher_forcing import ForcedStates, forced_states

__all__ = ["completion_ids", "model_states", "unwrapped"]


def completion_ids(sequences: Sequence[TokenSequence]) -> Tensor:
    """Return all completion tokens, one sequence after the other."""
    return torch.tensor([int(token) for _, completion in sequences for token in completion])


def model_states(
    model: nn.Module, sequences: Sequence[TokenSequence], *, label: str, tokens_per_batch: int
) -> ForcedStates:
    """Return the hidden states of a model in memory at every completion token; the model is left as it was.

    Wrappers of data parallelism and of adapters are looked through. The forward pass is the model's own, without what
    a trainer put around it (mixed precision, chunked losses), and without dropout.

    Raises:
        ValueError: there are no sequences, one has an empty half or an id outside the vocabulary, or more tokens
            than the model has positions.
        MismatchError: the model's logits cannot be formed from its hidden states.
    """
    inner = unwrapped(model)
    _check_sequences(sequences, size=_vocabulary_size(inner), longest=max_positions(inner.config), label=label)
    loaded = LoadedModel(model=inner, tokenizer=_no_tokenizer())
    with _evaluating(inner), _own_forward(inner):
        return forced_states(loaded, sequences, label=label, tokens_per_batch=tokens_per_batch)


def unwrapped(model: nn.Module) -> PreTrainedModel:
    """Return the transformers model inside `DistributedDataParallel`, `torch.compile` and PEFT wrappers.

    Raises:
        MismatchError: there is none inside, or the adapter works on the prompt instead of the weights.
    """
    inner: Any = model
    while not isinstance(inner, PreTrainedModel):
        if getattr(getattr(inner, "active_peft_config", None), "is_prompt_learning", False):
            raise MismatchError("an adapter of prompt learning changes the sequences; the probe cannot look through it")
        if hasattr(inner, "get_base_model"):
            inner = inner.get_base_model()
        elif isinstance(inner, nn.parallel.DistributedDataParallel):
            inner = inner.module
        elif hasattr(inner, "_orig_mod"):
            inner = inner._orig_mod
        else:
            raise MismatchError(
                f"{type(inner).__name__} is no causal model of transformers, nor a known wrapper of one"
            )
    return inner


def _vocabulary_size(model: PreTrainedModel) -> int:
    embeddings: Any = model.get_input_embeddings()
    return int(embeddings.weight.shape[0])


def _check_sequences(sequences: Sequence[TokenSequence], *, size: int, longest: int | None, label: str) -> None:
    if not sequences:
        raise ValueError("there are no sequences to compare the models on; give at least one")
    for index, (prompt, completion) in enumerate(sequences):
        if not len(prompt) or not len(completion):
            raise ValueError(f"sequence {index} has an empty {'completion' if len(prompt) else 'prompt'}")
        low, high = min(*prompt, *completion), max(*prompt, *completion)
        if low < 0 or high >= size:
            raise ValueError(
                f"sequence {index} has the token id {low if low < 0 else high}; {label} has ids 0 to {size - 1}"
            )
        if longest is not None and len(prompt) + len(completion) > longest:
            raise ValueError(
                f"sequence {index} has {len(prompt) + len(completion)} tokens, prompt and completion; {label} has "
                f"{longest} positions"
            )


def _no_tokenizer() -> PreTrainedTokenizerBase:
    """Return a tokenizer without words: models in memory come with none, and the sequences are ids."""
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel({"<pad>": 0})), pad_token="<pad>")


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Switch dropout off inside the block and give every module its mode back."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def _own_forward(model: nn.Module) -> Iterator[None]:
    """Use the class's forward inside the block where a trainer replaced the instance's."""
    replaced = model.__dict__.pop("forward", None)
    try:
        yield
    finally:
        if replaced is not None:
            model.__dict__["forward"] = replaced
