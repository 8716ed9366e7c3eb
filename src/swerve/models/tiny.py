"""A tiny transformer of a real architecture and a real tokenizer, both made at run time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers, processors, trainers
from tokenizers.models import BPE, WordLevel
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
)

from swerve.config.models import TinyModel

_SPECIAL = {"pad_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>"}


def build_word_tokenizer(words: Sequence[str]) -> PreTrainedTokenizerFast:
    """Return a tokenizer with one token per word, words separated by white space, and a begin token before each text.

    Raises:
        ValueError: a word is repeated, contains white space or is a special token.
    """
    vocabulary = [*_SPECIAL.values(), *words]
    if len(set(vocabulary)) != len(vocabulary) or any(word.split() != [word] for word in words):
        raise ValueError("words must be distinct, without white space, and none of the special tokens")
    tokenizer = Tokenizer(
        WordLevel({word: index for index, word in enumerate(vocabulary)}, unk_token=_SPECIAL["unk_token"])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return _finished(tokenizer)


def learn_tokenizer(texts: Iterable[str], size: int) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE tokenizer learned from texts, digits apart, with a begin token before each text.

    Raises:
        ValueError: `size` is not above the 256 bytes and the special tokens.
    """
    if size <= 256 + len(_SPECIAL):
        raise ValueError(f"a vocabulary of sub-words has more than {256 + len(_SPECIAL)} tokens, not {size}")
    tokenizer = Tokenizer(BPE())
    digits, in_bytes = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, in_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(_SPECIAL.values()),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return _finished(tokenizer)


def _finished(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    bos = _SPECIAL["bos_token"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A", special_tokens=[(bos, tokenizer.token_to_id(bos))]
    )
    # padding_side is a constructor argument: set later it would be lost when the tokenizer is saved and loaded.
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, padding_side="left", clean_up_tokenization_spaces=False, **_SPECIAL
    )


def build_tiny_model(config: TinyModel, tokenizer: PreTrainedTokenizerFast, *, seed: int) -> PreTrainedModel:
    """Return a randomly initialised model for the tokenizer's vocabulary; equal seeds give equal weights."""
    classes: dict[str, Callable[..., PretrainedConfig]] = {"qwen3": Qwen3Config, "llama": LlamaConfig}
    architecture = classes[config.architecture](
        vocab_size=len(tokenizer),
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=config.num_layers,
        num_attention_heads=config.num_heads,
        num_key_value_heads=config.num_kv_heads,
        head_dim=config.hidden_size // config.num_heads,
        max_position_embeddings=config.max_positions,
        initializer_range=config.initializer_range,
        tie_word_embeddings=config.tie_embeddings,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    # Whatever was drawn before, and the draws that follow, have nothing to do with it.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: PreTrainedModel = AutoModelForCausalLM.from_config(architecture)
    return model
