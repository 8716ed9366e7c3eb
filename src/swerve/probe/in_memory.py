"""The probe as a library call: two models in memory, token sequences, and statistics of every token."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from swerve.artifacts.tables import TOKEN_COLUMNS
from swerve.batch import TokenSequence
from swerve.config import DivergenceName, SpikeConfig, SpikeMethod
from swerve.errors import MismatchError, SwerveError
from swerve.functional.head_divergence import TopProbs
from swerve.models.model_folder import LoadedModel
from swerve.positions import max_positions
from swerve.probe.engine.forward import STATISTICS, ForcedStates, forced_states, pair_statistics
from swerve.prompts import num_ids

_DEFAULTS = SpikeConfig()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """What was measured at each of N completion tokens, one sequence after the other; every array is `[N]`.

    P is `model`, Q is `reference`. Divergences, entropies and log-probabilities are in nats. The statistics `js`,
    `kl_forward`, `logprob_ref` and so on are attributes; `swerve.artifacts.tables.TOKEN_COLUMNS` says what each is.
    """

    sequence_ids: NDArray[np.int32]
    """Which sequence each token belongs to, from 0 in the order given."""
    positions: NDArray[np.int32]
    """From 0 at the first completion token."""
    token_ids: NDArray[np.int32]
    tokens: tuple[str, ...] | None
    """The text of each token; None without a tokenizer."""
    statistics: Mapping[str, NDArray[Any]]
    """Each of `STATISTICS` by name; they are attributes, too."""
    top: TopProbs | None
    """The `top_k` most likely tokens of P; None for `top_k=0`."""
    top_ref: TopProbs | None

    def __getattr__(self, name: str) -> NDArray[Any]:
        """Return a statistic by its name."""
        if name not in STATISTICS:
            raise AttributeError(f"a result of the probe has no '{name}'; its statistics are {', '.join(STATISTICS)}")
        return self.statistics[name]

    def table(self) -> pa.Table:
        """Return one row a token; the unit of each column is in its field's metadata."""
        columns = {
            "sequence_id": self.sequence_ids,
            "position": self.positions,
            "token_id": self.token_ids,
            **self.statistics,
        }
        fields = [pa.field(name, TOKEN_COLUMNS[name][0], metadata=_unit(name)) for name in columns]
        table = pa.table(columns, schema=pa.schema(fields))
        return table if self.tokens is None else table.add_column(3, "token", pa.array(self.tokens, pa.string()))

    def to_pandas(self) -> Any:
        """Return `table` as a data frame; its `attrs["units"]` has the units.

        Raises:
            SwerveError: pandas is not installed.
        """
        table = self.table()
        try:
            frame = table.to_pandas()
        except ModuleNotFoundError:
            raise SwerveError("to_pandas needs pandas; install it with: pip install pandas") from None
        frame.attrs["units"] = {name: "nats" for name in STATISTICS if _unit(name)}
        return frame

    def by_sequence(self, name: str) -> list[NDArray[Any]]:
        """Return a column cut into one array a sequence.

        Raises:
            ValueError: there is no such statistic.
        """
        if name not in STATISTICS:
            raise ValueError(f"unknown statistic {name!r}; use one of {', '.join(STATISTICS)}")
        return np.split(self.statistics[name], np.flatnonzero(np.diff(self.sequence_ids)) + 1)

    def spikes(
        self,
        method: SpikeMethod = "zscore",
        *,
        divergence: DivergenceName = "js",
        settings: SpikeConfig = _DEFAULTS,
        null: NDArray[Any] | None = None,
    ) -> list[dict[str, Any]]:
        """Return the positions whose divergence stands out, by sequence and position.

        Each is `{"sequence_id", "position", "token_id", "value", "threshold", "height"}`, value and threshold in nats,
        height 1 for the highest of its sequence.

        Args:
            method: zscore, percentile (of all tokens here), adaptive, absolute or calibrated; see `SpikeConfig`.
            divergence: js, kl_forward or kl_reverse.
            settings: the methods' parameters.
            null: for `calibrated`, values of the divergence between two runs of one model: what noise makes.

        Raises:
            ValueError: method or divergence is not known, or `calibrated` has no null values.
        """
        from swerve.probe.findings.spikes import find_spikes  # needs scipy, which nothing else here does

        series = self.by_sequence(divergence)
        by_sequence = find_spikes(series, settings, method=method, pooled=self.statistics[divergence], null=null)
        starts = np.cumsum([0, *map(len, series)])
        return [
            {
                "sequence_id": index,
                "position": spike.position,
                "token_id": int(self.token_ids[starts[index] + spike.position]),
                "value": spike.value,
                "threshold": spike.threshold,
                "height": spike.height,
            }
            for index, spikes in enumerate(by_sequence)
            for spike in spikes
        ]


def _unit(name: str) -> dict[str, str] | None:
    return {"unit": "nats"} if pa.types.is_floating(TOKEN_COLUMNS[name][0]) else None


def probe(
    model: PreTrainedModel,
    reference: PreTrainedModel,
    sequences: Sequence[TokenSequence],
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
    top_k: int = 0,
    tokens_per_batch: int = 16384,
    tokens_per_chunk: int = 256,
) -> ProbeResult:
    """Compare two causal models of transformers at every completion token, under teacher forcing.

    Both read the same tokens; at position t their distributions over completion token t, given everything before it,
    are compared over the full vocabulary at temperature 1, in float32 with float64 sums. Neither model is changed:
    weights, gradients and training mode are what they were.

    Args:
        model: P.
        reference: Q, with the same vocabulary.
        sequences: (prompt ids, completion ids) pairs, none of them empty; the end-of-sequence token is a position.
        tokenizer: gives the text of each token.
        top_k: how many of each model's most likely tokens to keep at each position.
        tokens_per_batch: padded tokens of one forward pass.
        tokens_per_chunk: rows of `[rows, vocabulary]` held at a time.

    Raises:
        ValueError: there are no sequences, one has an empty half or an id outside the vocabulary, or a number is wrong.
        MismatchError: the vocabularies differ, or a model's logits cannot be formed from its hidden states.
    """
    check_at_least(1, tokens_per_batch=tokens_per_batch, tokens_per_chunk=tokens_per_chunk)
    check_at_least(0, top_k=top_k)
    states, ref_states = (
        model_states(side, sequences, label=label, tokens_per_batch=tokens_per_batch)
        for side, label in ((model, "the model"), (reference, "the reference"))
    )

    # Their states are compared chunk by chunk; every column has one entry a completion token.
    ids = completion_ids(sequences)
    compared = pair_statistics(
        states.hidden,
        ref_states.hidden,
        states.head,
        ref_states.head,
        ids,
        vocabulary_size=_shared_vocabulary(states, ref_states, tokenizer),
        tokens_per_chunk=tokens_per_chunk,
        top_k=top_k,
    )
    lengths = [len(completion) for _, completion in sequences]
    return ProbeResult(
        sequence_ids=np.repeat(np.arange(len(lengths), dtype=np.int32), lengths),
        positions=np.concatenate([np.arange(length, dtype=np.int32) for length in lengths]),
        token_ids=ids.numpy().astype(np.int32),
        tokens=None if tokenizer is None else tuple(str(tokenizer.decode([token])) for token in ids.tolist()),
        top=compared.top,
        top_ref=compared.top_ref,
        statistics={name: getattr(compared.stats, name).numpy() for name in STATISTICS},
    )


def check_at_least(least: int, **numbers: int) -> None:
    """Raise ValueError, with the argument's name, if one of some numbers is too small."""
    for name, value in numbers.items():
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")


def _shared_vocabulary(
    states: ForcedStates, ref_states: ForcedStates, tokenizer: PreTrainedTokenizerBase | None
) -> int:
    """Return the number of ids of the tokenizer that both heads have, if the difference can only be padding."""
    sizes = states.head.vocabulary_size, ref_states.head.vocabulary_size
    devices = [str(side.head.projection.weight.device) for side in (states, ref_states)]
    if devices[0] != devices[1]:
        raise MismatchError(f"the model is on {devices[0]} and the reference on {devices[1]}; move them to one device")
    known = None if tokenizer is None else num_ids(tokenizer)
    if sizes[0] != sizes[1] and (known is None or known > min(sizes)):
        raise MismatchError(
            f"the model has a vocabulary of {sizes[0]} tokens and the reference one of {sizes[1]}; only models with "
            "the same tokenizer can be compared (where only the padding differs, give the tokenizer)"
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
        ValueError: there are no sequences, one has an empty half or an id outside the vocabulary, or more tokens
            than the model has positions.
        MismatchError: the model's logits cannot be formed from its hidden states.
    """
    inner = unwrapped(model)
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
