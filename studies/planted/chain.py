"""A causal language model whose next token depends on the place and the last token alone, so that all is known exactly.

A completion is `LENGTH` words, a boxed answer and the end-of-sequence token. A word stands for a level and one of three
ways to write it. How long the prompt is says of which type the problem is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerFast
from transformers.modeling_outputs import CausalLMOutputWithPast

from swerve.models.model_folder import LoadedModel
from swerve.models.tiny import build_word_tokenizer

LENGTH = 10
"""Words of a completion before its answer."""
NUM_TOKENS = LENGTH + 2
"""Tokens of a completion: its words, the answer and the end."""
_WRITINGS = (
    ("ash", "birch", "cedar", "elm", "fir", "oak"),
    ("10", "11", "12", "13", "14", "15"),
    ("if", "then", "else", "and", "or", "not"),
)
"""Words of level 0, 1, ... in each of the ways to write them: a word, a number, a logical word."""
NUM_LEVELS, NUM_WRITINGS = len(_WRITINGS[0]), len(_WRITINGS)
_ASKED = "?"
_ANSWERS = (r"\boxed{A}", r"\boxed{B}", r"\boxed{\text{A}}", r"\boxed{\text{B}}")
"""Right, wrong, and the same written otherwise."""
TOKENIZER: PreTrainedTokenizerFast = build_word_tokenizer(
    [_ASKED, *_ANSWERS, *(word for words in _WRITINGS for word in words)]
)
NUM_IDS = len(TOKENIZER)
ASKED, *ANSWERS = TOKENIZER.convert_tokens_to_ids([_ASKED, *_ANSWERS])
RIGHT = (ANSWERS[0], ANSWERS[2])
BOS, EOS = int(TOKENIZER.bos_token_id), int(TOKENIZER.eos_token_id)
WORDS: NDArray[np.int64] = np.array([TOKENIZER.convert_tokens_to_ids(list(words)) for words in _WRITINGS]).T
"""`[levels, writings]`: ids of the words."""
LEVEL_OF: dict[int, int] = {int(word): level for level, words in enumerate(WORDS) for word in words}

Floats = NDArray[np.float64]

_UNLIKELY = 1e-9
"""Probability of a token that never comes, before rows are made to sum to 1; its logarithm is finite."""


def prompt_ids(kind: int) -> tuple[int, ...]:
    """Return the prompt of problems of a type: longer ones for later types, so that places tell types apart."""
    return (BOS, *[ASKED] * (1 + kind * (NUM_TOKENS + 1)))


def as_distributions(weights: Floats) -> Floats:
    """Return weights `[..., V]` as distributions in which nothing is impossible."""
    padded = weights + _UNLIKELY
    return padded / padded.sum(axis=-1, keepdims=True)


class ChainConfig(PretrainedConfig):  # type: ignore[misc]
    """Size of a chain."""

    model_type = "planted_chain"

    def __init__(self, num_places: int = 1, **options: Any) -> None:
        super().__init__(**options)
        self.num_places = num_places
        self.vocab_size = NUM_IDS
        self.hidden_size = NUM_IDS
        self.num_hidden_layers = 1
        self.max_position_embeddings = num_places


class ChainModel(PreTrainedModel):  # type: ignore[misc]
    """Looks the logits of the next token up by the place and the last token; the head is the identity."""

    config_class = ChainConfig
    generation_config = None

    def __init__(self, config: ChainConfig) -> None:
        super().__init__(config)
        self.embeddings = nn.Embedding(NUM_IDS, 1)
        self.logits = nn.Embedding(config.num_places * NUM_IDS, NUM_IDS)
        self.head = nn.Linear(NUM_IDS, NUM_IDS, bias=False)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """Return what says how many tokens there are; nothing is embedded."""
        return self.embeddings

    def get_output_embeddings(self) -> nn.Module:
        """Return the head."""
        return self.head

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Any = None,
        logits_to_keep: int | Tensor = 0,
        **_: Any,
    ) -> CausalLMOutputWithPast:
        """Return the logits of the positions asked for; the cache stays empty: only the last token counts."""
        assert position_ids is not None, "a chain reads its place from the positions"
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        places = position_ids.clamp(max=self.config.num_places - 1)  # rows that are done go on in their batch
        hidden = self.logits((places * NUM_IDS + input_ids)[:, kept])
        return CausalLMOutputWithPast(logits=self.head(hidden), past_key_values=past_key_values)


def chain_model(probs: Floats) -> LoadedModel:
    """Return a model with given distributions.

    Args:
        probs: `[K, NUM_TOKENS, V, V]`: of the next token, by type of problem, position in the completion, last token.
    """
    lengths = [len(prompt_ids(kind)) for kind in range(len(probs))]
    table = np.zeros((lengths[-1] + NUM_TOKENS, NUM_IDS, NUM_IDS))
    for kind, length in enumerate(lengths):
        table[length - 1 : length - 1 + NUM_TOKENS] = np.log(probs[kind])
    model = ChainModel(ChainConfig(num_places=len(table), eos_token_id=EOS, pad_token_id=TOKENIZER.pad_token_id))
    with torch.no_grad():
        model.logits.weight.copy_(torch.from_numpy(table.reshape(-1, NUM_IDS)))
        model.head.weight.copy_(torch.eye(NUM_IDS))
    return LoadedModel(model=model.eval(), tokenizer=TOKENIZER)
