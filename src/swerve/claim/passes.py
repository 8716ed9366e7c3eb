"""Teacher forcing: a model's log-probabilities of given tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from swerve.batch import TokenSequence, checked_head, completion_hidden, token_batches
from swerve.functional import rows_per_chunk, token_logprobs
from swerve.models.model_folder import LoadedModel

_TOKENS_PER_BATCH = 65536


def read_logprobs(loaded: LoadedModel, sequences: Sequence[TokenSequence]) -> list[list[float]]:
    """Return the log-probability (nats) of every completion token of each sequence, in float64 from the logits on.

    Args:
        loaded: the model.
        sequences: prompt ids and completion ids, at least one of each.
    """
    head = checked_head(loaded.model)
    rows = rows_per_chunk(head.vocabulary_size)
    values: dict[int, list[float]] = {}
    pad_id = int(loaded.tokenizer.pad_token_id or 0)
    with torch.inference_mode():
        for batch in token_batches(sequences, pad_id=pad_id, tokens_per_batch=_TOKENS_PER_BATCH):
            moved = batch.to(loaded.model.device)
            hidden = completion_hidden(loaded.model, moved, head)
            ids = moved.completion_ids[moved.mask]
            per_token = torch.cat(
                [
                    token_logprobs(head(states).double(), chosen)
                    for states, chosen in zip(hidden.split(rows), ids.split(rows), strict=True)
                ]
            )
            lengths = batch.mask.sum(1).tolist()
            values |= zip(batch.rows, (part.tolist() for part in per_token.cpu().split(lengths)), strict=True)
    return [values[row] for row in range(len(sequences))]
