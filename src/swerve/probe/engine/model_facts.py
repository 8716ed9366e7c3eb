"""What must be known of a model to compare it, kept so that a resumed measurement need not load it."""

from __future__ import annotations

from dataclasses import dataclass

from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from swerve.errors import MismatchError
from swerve.models.model_folder import tokenizer_fingerprint
from swerve.positions import max_positions
from swerve.prompts import num_ids


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """Vocabulary, tokenizer and positions of a model."""

    vocabulary_size: int
    """Tokens that its distributions are over."""
    largest_id: int
    """Of its tokenizer."""
    tokenizer_sha256: str
    max_positions: int | None
    """Tokens that it can read; None where its configuration sets no limit."""
    pieces: list[str]
    """Text of every token id; empty where nobody asked."""


def model_facts(
    config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase, num_logits: int, *, with_pieces: bool = False
) -> ModelFacts:
    """Return the facts of a model, loaded or not; what its head has beyond the tokenizer's ids is padding."""
    size = min(num_logits, num_ids(tokenizer))
    return ModelFacts(
        vocabulary_size=size,
        largest_id=num_ids(tokenizer) - 1,
        tokenizer_sha256=tokenizer_fingerprint(tokenizer),
        max_positions=max_positions(config),
        pieces=[str(tokenizer.decode([token])) for token in range(size)] if with_pieces else [],
    )


def check_pair(labels: tuple[str, str], facts: tuple[ModelFacts, ModelFacts]) -> None:
    """Raise MismatchError unless two models can be compared.

    Tokens beyond two heads of one size neither model reads or writes.

    Raises:
        MismatchError: their tokenizers differ, or have tokens beyond the smaller of two heads; the message names both
            models.
    """
    sizes = [one.vocabulary_size for one in facts]
    if facts[0].tokenizer_sha256 != facts[1].tokenizer_sha256:
        what = f"the tokenizers of {labels[0]} and {labels[1]} differ"
        if sizes[0] != sizes[1]:
            what = f"{labels[0]} has a vocabulary of {sizes[0]} tokens and {labels[1]} one of {sizes[1]}"
        raise MismatchError(f"{what}; only models with the same tokenizer can be compared")
    if facts[0].largest_id >= min(sizes) < max(sizes):
        raise MismatchError(
            f"{labels[0]} and {labels[1]} share {min(sizes)} tokens, but their tokenizer has the id "
            f"{facts[0].largest_id}; compare models that cover the whole tokenizer"
        )


def check_sequences(label: str, facts: ModelFacts, *, largest_id: int, longest: int) -> None:
    """Raise unless a model has every token id of the sequences, and positions for the longest.

    Raises:
        ValueError: it lacks an id.
        MismatchError: it has too few positions: rotary ones could be computed, but mean nothing.
    """
    if largest_id >= facts.vocabulary_size:
        raise ValueError(
            f"the sequences have the token id {largest_id}, but {label} has {facts.vocabulary_size} tokens; tokenise "
            "the sequences with the models' own tokenizer"
        )
    if facts.max_positions is not None and longest > facts.max_positions:
        raise MismatchError(
            f"a sequence has {longest} tokens, prompt and completion, but {label} has {facts.max_positions} positions; "
            "leave longer ones out, or compare models that can read them"
        )
