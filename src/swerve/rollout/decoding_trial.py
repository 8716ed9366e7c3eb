"""Whether a model can be decoded with a key-value cache, tried on a small one of its kind."""

from __future__ import annotations

from typing import Any

import torch
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, PreTrainedConfig, PreTrainedModel

from swerve.errors import ConfigError
from swerve.models.trial import OTHER_LOGITS, Trial, close, fault_of, forms_logits, pads, passes
from swerve.rollout.cache import growing_cache, is_croppable, keep_every_position, takes_no_cache
from swerve.rollout.decoding import Decoding, PrefixCache


def check_decoding(model: PreTrainedModel) -> None:
    """Check that a model can be sampled from, and choose how its cache is kept; see `check_architecture`.

    Raises:
        ConfigError: it cannot.
    """
    keep_every_position(model, check_architecture(model.config))


def check_architecture(config: PreTrainedConfig) -> bool:
    """Check that token by token, in padded rows, models of an architecture give the logits of whole texts.

    Returns whether they do so only with the keys and values of every position, which their configuration would drop.

    Raises:
        ConfigError: they differ by more than rounding, or the models cannot continue what they have read.
    """
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:  # a class of somebody's own, of which no copy can be made
        return False
    model_class: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    keeps_all = False
    fault = takes_no_cache(model_class)
    if fault is None:
        fault = fault_of(config, _decodes)
        keeps_all = fault is not None and passes(config, _decodes_with_every_position)
    if fault is None or keeps_all:
        return keeps_all
    if fault == OTHER_LOGITS:
        fault = f"token by token {fault}" if passes(config, pads) else "it does not know padding from tokens"
    # What is said to work instead is tried: texts are read padded or alone, up to the output head.
    works = "sft stages, and the probe of responses from a file, work; " if passes(config, forms_logits) else ""
    raise ConfigError(
        f"the embedded engine cannot sample from {model_class.__name__}: {fault}; {works}for everything else name an "
        "engine that can (rollout.engine), or take another model"
    )


def _decodes(trial: Trial) -> bool:
    """Continue the two longest texts, beside one another, one of them twice at first."""
    model, texts = trial.model, trial.texts[:2]
    num_added = min(8, *(len(text) - 1 for text in texts))
    if num_added < 1:
        return True
    prompts = [text[:-num_added] for text in (*texts, texts[1])]
    prefixes = None
    if is_croppable(growing_cache(model)):  # the engine takes what prompts begin with from such caches
        prefixes = PrefixCache(model, [prompt[:-1] for prompt in prompts[:2]], {0: 0, 1: 1}, pad_id=0)
    return all(
        _continues(trial, Decoding(model, prompts, pad_id=0, keys=[0, 1, 1], prefixes=begun), num_added)
        for begun in (None, prefixes)[: 1 if prefixes is None else 2]
    )


def _continues(trial: Trial, rows: Decoding, num_added: int) -> bool:
    """Append tokens to rows of the texts 0, 1 and 1; halfway the last row ends, and the others change places."""
    order, keep = [0, 1, 1], None
    for added in range(num_added + 1):
        ends = [len(trial.texts[text]) - num_added + added for text in order]
        expected = torch.stack([trial.logits[text][end - 1] for text, end in zip(order, ends, strict=True)])
        if not close(rows.row_logits, expected[:, : rows.row_logits.shape[1]]):
            return False
        if added == num_added:
            break
        if added == num_added // 2:
            order, ends = [1, 0], ends[1::-1]
            keep = torch.tensor([1, 0])
        ids = torch.tensor([trial.texts[text][end] for text, end in zip(order, ends, strict=True)])
        rows.advance(ids, keep, compact=keep is not None)
        keep = None
    return True


def _decodes_with_every_position(trial: Trial) -> bool:
    keep_every_position(trial.model, True)
    try:
        return _decodes(trial)
    finally:
        keep_every_position(trial.model, False)
