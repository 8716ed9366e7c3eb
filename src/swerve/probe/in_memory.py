"""The probe as a library call: models in memory or by name, token sequences, and statistics of every token."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from swerve.artifacts.checkpoint import CheckpointRef
from swerve.artifacts.responses import Response
from swerve.batch import TokenSequence
from swerve.errors import ConfigError, MismatchError
from swerve.models.folder_metadata import has_tokenizer
from swerve.models.model_folder import (
    LoadedModel,
    bases_kept,
    bases_of,
    load_model,
    load_tokenizer,
    resolve_device,
    tokenizer_fingerprint,
)
from swerve.models.trial import check_causal
from swerve.positions import max_positions
from swerve.probe.engine.forward import ForcedStates, forced_states, pair_statistics
from swerve.probe.result import STATISTICS, ProbeResult, writers_of
from swerve.probe.rollouts.given import given_sequences, token_pieces
from swerve.progress import Progress
from swerve.text import text_before
from swerve.tokens import num_ids

Model = str | os.PathLike[str] | CheckpointRef | nn.Module | tuple[nn.Module, PreTrainedTokenizerBase]
"""A folder, `RUN:LABEL`, a name on the hub, each perhaps as `LABEL=MODEL`; `run.model(...)`; or a model in memory,
alone or with its tokenizer."""


@dataclass(frozen=True, slots=True)
class InMemory:
    """A model in memory."""

    model: nn.Module
    tokenizer: PreTrainedTokenizerBase | None = None
    """What it came with; None: it came alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How models read responses; `swerve.probe` says what each means."""

    tokenizer: PreTrainedTokenizerBase | str | Path | None
    template: Literal["auto", "raw"]
    ends: Literal["none", "eos"]
    top_k: int
    device: str | None
    dtype: str
    tokens_per_batch: int
    tokens_per_chunk: int


def probe_models(
    reference: Model,
    checkpoints: Model | list[Model] | tuple[Model, ...] | Mapping[str, Model],
    responses: Any,
    reading: Reading,
    *,
    progress: Progress,
) -> ProbeResult | dict[str, ProbeResult]:
    """Compare models with a reference on responses; see `swerve.probe`. One model is in memory at a time."""
    check_at_least(1, tokens_per_batch=reading.tokens_per_batch, tokens_per_chunk=reading.tokens_per_chunk)
    check_at_least(0, top_k=reading.top_k)

    # The models by label, the reference first; those that are named have one device and one tokenizer.
    models = labelled_models(reference, checkpoints)
    in_memory = next((entry.model for entry in models.values() if isinstance(entry, InMemory)), None)
    own = None if in_memory is None else str(next(in_memory.parameters()).device)
    device = own if reading.device is None and own is not None else resolve_device(reading.device or "auto")
    words = _tokenizer(reading.tokenizer, list(models.values()))
    given = given_sequences(responses, words, template=reading.template, ends=reading.ends)
    sequences: list[TokenSequence] = [(entry.prompt_ids, entry.completion_ids) for entry in given]
    positions = [entry.sampled_positions for entry in given]

    results: dict[str, ProbeResult] = {}
    ref_states: ForcedStates | None = None
    paths = [entry for entry in models.values() if not isinstance(entry, InMemory)]
    with progress.task("probe", len(models)) as task, bases_kept(bases_of(paths)):
        for name, entry in models.items():
            states = _states(name, entry, sequences, reading, device=device)
            if ref_states is None:
                ref_states = states
                said = _words(words, given)
            else:
                results[name] = _result(states, ref_states, sequences, positions, words, said, reading)
            task.advance()
    results = {name: replace(one, writers=writers_of(given)) for name, one in results.items()}
    return results if are_several(checkpoints) else next(iter(results.values()))


def _words(tokenizer: PreTrainedTokenizerBase | None, responses: Sequence[Response]) -> dict[str, tuple[str, ...]]:
    """Return what is known of each token that was sampled, see `ProbeResult.words`; without a tokenizer no texts."""
    from swerve.token_categories import token_categories  # which reads its rules

    rows: list[tuple[str, ...]] = []
    for response in responses:
        ids, name = response.completion_ids, response.problem.id
        if tokenizer is None:
            rows += [(name,)] * len(response.sampled_positions)
            continue
        text, spans, pieces = token_pieces(tokenizer, ids)
        categories = token_categories(text, spans)
        rows += [
            (name, pieces[position], text_before(text, *spans[position]), categories[position])
            for position in response.sampled_positions
        ]
    names = ("problem_id", "token", "context", "category")
    return {name: tuple(column) for name, column in zip(names, zip(*rows, strict=True), strict=False)}


def are_several(checkpoints: Any) -> bool:
    """Whether several models are given, or one in a list; a model with its tokenizer is one."""
    from swerve.models.named_models import is_pair

    return isinstance(checkpoints, Mapping | list | tuple) and not is_pair(checkpoints)


def labelled_models(
    reference: Model, checkpoints: Model | list[Model] | tuple[Model, ...] | Mapping[str, Model]
) -> dict[str, Path | str | InMemory]:
    """Return the models by label, the reference first.

    Raises:
        ConfigError: there is no checkpoint.
        CheckpointError: there is no such model.
    """
    label, model = _named(reference, "reference")
    return {label: model, **_labelled(checkpoints, taken=label)}


def _labelled(
    checkpoints: Model | list[Model] | tuple[Model, ...] | Mapping[str, Model], *, taken: str
) -> dict[str, Path | str | InMemory]:
    """Return the checkpoints by label; two of one name, or one called like the reference, get a number."""
    if isinstance(checkpoints, Mapping):
        from swerve.models.named_models import key_label

        named = [(key_label(label), _named(model, label)[1]) for label, model in checkpoints.items()]
    else:
        given: Any = checkpoints if are_several(checkpoints) else [checkpoints]
        named = [_named(model, "checkpoint") for model in given]
    if not named:
        raise ConfigError("there is no checkpoint to compare with the reference; give at least one")
    labelled: dict[str, Path | str | InMemory] = {}
    for label, model in named:
        number, free = 1, label
        while free in (taken, *labelled):
            number += 1
            free = f"{label}-{number}"
        labelled[free] = model
    return labelled


def _named(model: Model, label: str) -> tuple[str, Path | str | InMemory]:
    """Return a model with the label it is shown by."""
    if isinstance(model, CheckpointRef):
        return model.label, model.path
    from swerve.models.named_models import NamedModel, is_pair, no_model, resolve_model  # which know runs

    inner, tokenizer = model if is_pair(model) else (model, None)
    if isinstance(inner, nn.Module):
        return label, InMemory(inner, tokenizer)
    if not isinstance(model, str | os.PathLike):
        raise no_model(inner)
    named = model if isinstance(model, NamedModel) else resolve_model(os.fspath(model))
    return named.label, named.path


def _tokenizer(
    given: PreTrainedTokenizerBase | str | Path | None, models: Sequence[Path | str | InMemory]
) -> PreTrainedTokenizerBase | None:
    """Return the tokenizer that is given or named, else that of the first model which has one in its files."""
    if isinstance(given, str | Path):
        from swerve.models.named_models import resolve_model

        return load_tokenizer(resolve_model(str(given)).path)
    if given is not None:
        return given
    for entry in models:
        if not isinstance(entry, InMemory):
            return load_tokenizer(entry)
        if entry.tokenizer is not None:
            return entry.tokenizer
        origin = getattr(entry.model, "name_or_path", "")
        if origin and has_tokenizer(origin):
            return load_tokenizer(origin)
    return None


def _states(
    label: str,
    model: Path | str | InMemory,
    sequences: Sequence[TokenSequence],
    reading: Reading,
    *,
    device: str,
) -> ForcedStates:
    """Return a model's hidden states; the tokenizer's digest is empty where the model was in memory without one."""
    if isinstance(model, InMemory):
        states = model_states(model.model, sequences, label=label, tokens_per_batch=reading.tokens_per_batch)
        digest = "" if model.tokenizer is None else tokenizer_fingerprint(model.tokenizer)
        return replace(states, tokenizer_sha256=digest)
    loaded = load_model(model, device=device, dtype=reading.dtype)
    states = model_states(loaded.model, sequences, label=label, tokens_per_batch=reading.tokens_per_batch)
    return replace(states, tokenizer_sha256=tokenizer_fingerprint(loaded.tokenizer))


def _result(
    states: ForcedStates,
    ref_states: ForcedStates,
    sequences: Sequence[TokenSequence],
    positions: Sequence[Sequence[int]],
    tokenizer: PreTrainedTokenizerBase | None,
    said: Mapping[str, tuple[str, ...]],
    reading: Reading,
) -> ProbeResult:
    """Compare the states of two models chunk by chunk; every column has one entry a token that was sampled.

    Raises:
        MismatchError: the tokenizers or vocabularies differ.
    """
    digests = {side.tokenizer_sha256 for side in (states, ref_states)} - {""}
    if len(digests) > 1:
        raise MismatchError(
            f"{states.label} and {ref_states.label} have different tokenizers; only models with the same one can be "
            "compared token by token"
        )
    # Both heads read the hidden states of the same tokens, those that were sampled.
    starts = itertools.accumulate((len(completion) for _, completion in sequences), initial=0)
    rows = torch.cat([torch.tensor(places) + start for places, start in zip(positions, starts, strict=False)])
    ids = completion_ids(sequences)[rows]
    compared = pair_statistics(
        states.hidden[rows],
        ref_states.hidden[rows],
        states.head,
        ref_states.head,
        ids,
        vocabulary_size=_shared_vocabulary(states, ref_states, tokenizer),
        tokens_per_chunk=reading.tokens_per_chunk,
        top_k=reading.top_k,
    )
    # One row for each of these tokens, whose columns the table of a run has too.
    lengths = [len(places) for places in positions]
    return ProbeResult(
        sequence_ids=np.repeat(np.arange(len(lengths), dtype=np.int32), lengths),
        positions=np.concatenate([np.array(places, dtype=np.int32) for places in positions]),
        token_ids=ids.numpy().astype(np.int32),
        words=said,
        top=compared.top,
        top_ref=compared.top_ref,
        statistics={name: getattr(compared.stats, name).numpy() for name in STATISTICS},
        checkpoint=states.label,
        reference=ref_states.label,
    )


def check_at_least(least: int, **numbers: int) -> None:
    """Raise ConfigError, with the argument's name, if one of some numbers is too small."""
    for name, value in numbers.items():
        if not isinstance(value, Integral) or value < least:
            raise ConfigError(f"{name} must be an integer of at least {least}, got {value!r:.60}")


def _shared_vocabulary(
    states: ForcedStates, ref_states: ForcedStates, tokenizer: PreTrainedTokenizerBase | None
) -> int:
    """Return the number of ids of the tokenizer that both heads have, if the difference can only be padding."""
    sizes = states.head.vocabulary_size, ref_states.head.vocabulary_size
    devices = [str(side.head.projection.weight.device) for side in (states, ref_states)]
    if devices[0] != devices[1]:
        raise MismatchError(
            f"{states.label} is on {devices[0]} and {ref_states.label} on {devices[1]}; move them to one device"
        )
    known = None if tokenizer is None else num_ids(tokenizer)
    if sizes[0] != sizes[1] and (known is None or known > min(sizes)):
        raise MismatchError(
            f"{states.label} has a vocabulary of {sizes[0]} tokens and {ref_states.label} one of {sizes[1]}; only "
            "models with the same tokenizer can be compared (where only the padding differs, give the tokenizer)"
        )
    return min(sizes) if known is None else min(*sizes, known)


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
        ConfigError: there are no sequences, one has an empty half or an id outside the vocabulary, or more tokens
            than the model has positions.
        MismatchError: the model's logits cannot be formed from its hidden states.
        CheckpointError: see `check_causal`.
    """
    inner = unwrapped(model)
    check_causal(label, inner.config)
    embeddings: Any = inner.get_input_embeddings()
    size = int(embeddings.weight.shape[0])
    _check_sequences(sequences, size=size, longest=max_positions(inner.config), label=label)
    # A tokenizer without words: models in memory come with none, and the sequences are ids.
    words = Tokenizer(WordLevel({"<pad>": 0}))
    loaded = LoadedModel(model=inner, tokenizer=PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>"))
    with _evaluating(inner), _own_forward(inner):
        return forced_states(loaded, sequences, label=label, tokens_per_batch=tokens_per_batch)


def unwrapped(model: nn.Module) -> PreTrainedModel:
    """Return the transformers model inside `DistributedDataParallel`, `torch.compile` and PEFT wrappers.

    Raises:
        MismatchError: there is no such model inside, or the adapter works on the prompt instead of the weights.
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


def _check_sequences(sequences: Sequence[TokenSequence], *, size: int, longest: int | None, label: str) -> None:
    if not sequences:
        raise ConfigError("there are no sequences to compare the models on; give at least one")
    for index, (prompt, completion) in enumerate(sequences):
        if not len(prompt) or not len(completion):
            raise ConfigError(f"sequence {index} has an empty {'completion' if len(prompt) else 'prompt'}")
        low, high = min(*prompt, *completion), max(*prompt, *completion)
        if low < 0 or high >= size:
            raise ConfigError(
                f"sequence {index} has the token id {low if low < 0 else high}; {label} has ids 0 to {size - 1}"
            )
        if longest is not None and len(prompt) + len(completion) > longest:
            raise ConfigError(
                f"sequence {index} has {len(prompt) + len(completion)} tokens, prompt and completion; {label} has "
                f"{longest} positions"
            )


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
