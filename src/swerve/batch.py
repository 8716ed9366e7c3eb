"""Batches of token sequences, padded or packed, and the states and logits that predict each completion token.

This is the only place that shifts by one token: everywhere else position t names the token it predicts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad
from transformers import PreTrainedModel

from swerve.errors import MismatchError
from swerve.models.head import Head, head_inputs, head_tolerance, model_head, num_ids_of
from swerve.models.packed_attention import PackedRow
from swerve.models.trial import reads_padded
from swerve.positions import angles_of, forget_lengths, turns

TokenSequence = tuple[Sequence[int], Sequence[int]]
"""Prompt ids and completion ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBatch:
    """Some sequences as a model reads them: each padded to a row of its own, or all of them packed into one row.

    In a packed row what several sequences begin with stands once, so no token is read twice behind the same tokens.
    In padded rows prompts are padded on the left to one width P, completions on the right to another; L = P + T.
    """

    input_ids: Int[Tensor, "R L"]
    position_ids: Int[Tensor, "R L"]
    completion_ids: Int[Tensor, "B T"]
    mask: Bool[Tensor, "B T"]
    """True at the positions of real completion tokens, the end-of-sequence token included."""
    rows: tuple[int, ...]
    """Which of the sequences given each of the B is."""
    attention_mask: Int[Tensor, "R L"] | None = None
    """Of padded rows."""
    prompt_width: int = 0
    """P of padded rows, in tokens."""
    packed_row: PackedRow | None = None
    """Where the sequences stand, in a packed row."""
    predicts: Int[Tensor, " N"] | None = None
    """In a packed row: the place whose state predicts each real completion token, one sequence after the other. Empty
    where the batch has no completion."""
    sequences: tuple[TokenSequence, ...] = ()
    """What was packed."""

    def to(self, device: torch.device | str) -> TokenBatch:
        """Return the batch on another device."""
        names = ("input_ids", "attention_mask", "position_ids", "completion_ids", "mask", "packed_row", "predicts")
        values: dict[str, Any] = {name: getattr(self, name) for name in names}
        moved: dict[str, Any] = {name: None if value is None else value.to(device) for name, value in values.items()}
        return replace(self, **moved)

    def padded(self) -> TokenBatch:
        """Return the same sequences in padded rows, on the same device, for a model that cannot read packed ones."""
        if self.packed_row is None:
            return self
        padded = _pad(self.sequences, range(len(self.sequences)), pad_id=0)
        return replace(padded.to(self.input_ids.device), rows=self.rows)

    def chosen(self, places: Sequence[int]) -> TokenBatch:
        """Return some of the B sequences, in the same kind of rows."""
        if self.packed_row is not None:
            return _pack(self.sequences, places).to(self.input_ids.device)
        names = ("input_ids", "attention_mask", "position_ids", "completion_ids", "mask")
        chosen: dict[str, Any] = {name: getattr(self, name)[list(places)] for name in names}
        return replace(self, rows=tuple(places), **chosen)

    def narrowed(self) -> TokenBatch:
        """Return padded rows without the columns in which none of them has a token."""
        if self.packed_row is not None or self.attention_mask is None:
            return self
        used = self.attention_mask.any(0).nonzero()
        start, end = int(used[0]), int(used[-1]) + 1
        width = self.prompt_width
        rows: dict[str, Any] = {
            name: getattr(self, name)[:, start:end] for name in ("input_ids", "attention_mask", "position_ids")
        }
        completions: dict[str, Any] = {
            name: getattr(self, name)[:, : end - width] for name in ("completion_ids", "mask")
        }
        return replace(self, **rows, **completions, prompt_width=width - start)


def token_batches(
    sequences: Sequence[TokenSequence],
    *,
    pad_id: int,
    tokens_per_batch: int | None = None,
    in_order: bool = False,
    together: int = 1,
    packed: bool = False,
) -> list[TokenBatch]:
    """Put (prompt ids, completion ids) pairs into batches of at most `tokens_per_batch` tokens.

    Padded, sequences of similar length share a batch, and padding counts. Packed, they keep their order, and a prompt
    that follows itself in a batch counts once. `rows` says which sequence is which. What is longer than the budget gets
    a batch of its own. Without a budget there is one batch, without sequences none.

    Args:
        sequences: the pairs.
        pad_id: fills the unused places of padded rows.
        tokens_per_batch: the budget; None: all in one batch.
        in_order: padded rows stay in the order given.
        together: so many sequences that follow one another always share a batch, side by side.
        packed: all sequences of a batch in one row without padding; `completion_hidden` then needs a model that
            `reads_packed_rows`.

    Raises:
        ValueError: a sequence has an empty prompt or completion.
    """
    for index, (prompt, completion) in enumerate(sequences):
        if not len(prompt) or not len(completion):
            raise ValueError(f"sequence {index} has an empty {'completion' if len(prompt) else 'prompt'}")
    # Sequences that stay together are a unit; padded units of similar length share a batch.
    units = [range(start, min(start + together, len(sequences))) for start in range(0, len(sequences), together)]
    if not in_order and not packed:
        units.sort(key=lambda unit: max(sum(map(len, sequences[index])) for index in unit))
    batches = _rows_of_batches(sequences, units, tokens_per_batch, packed=packed)
    return [_pack(sequences, rows) if packed else _pad(sequences, rows, pad_id) for rows in batches]


def packed_batches(sequences: Sequence[TokenSequence], batches: Sequence[Sequence[int]]) -> list[TokenBatch]:
    """Return packed batches of the sequences whose numbers are given for each."""
    return [_pack(sequences, rows) for rows in batches]


def packed_tokens(sequences: Iterable[TokenSequence]) -> int:
    """Return how many tokens a packed batch counts with; a prompt that follows itself counts once.

    >>> packed_tokens([((1, 2, 3), (4,)), ((1, 2, 3), (5, 6))])
    6
    """
    total, last = 0, None
    for prompt, completion in sequences:
        total += len(completion) + (0 if prompt == last else len(prompt))
        last = prompt
    return total


def empty_batch(*, pad_id: int) -> TokenBatch:
    """Return a batch without a completion: the model reads one token, and there is no hidden state to learn from.

    >>> batch = empty_batch(pad_id=0)
    >>> batch.input_ids.shape, batch.mask.shape, batch.rows
    (torch.Size([1, 1]), torch.Size([0, 0]), ())
    """
    token = torch.ones(1, 1, dtype=torch.long)
    none = torch.zeros(0, 0, dtype=torch.long)
    return TokenBatch(
        input_ids=pad_id * token,
        attention_mask=token,
        position_ids=0 * token,
        completion_ids=none,
        mask=none.bool(),
        prompt_width=1,
        predicts=none.flatten(),
        rows=(),
    )


def _rows_of_batches(
    sequences: Sequence[TokenSequence], units: Sequence[range], tokens_per_batch: int | None, *, packed: bool
) -> list[list[int]]:
    size_of = _packed_size if packed else _padded_size
    batches: list[list[int]] = []
    size = (0, 0, 0)
    for unit in units:
        grown = size_of(size, sequences, unit, batches[-1][-1] if batches else None)
        if batches and (tokens_per_batch is None or grown[0] <= tokens_per_batch):
            batches[-1] += unit
        else:
            batches.append([*unit])
            grown = size_of((0, 0, 0), sequences, unit, None)
        size = grown
    return batches


_Size = tuple[int, int, int]
"""Of a batch: its tokens; padded also the widths of prompts and completions."""


def _padded_size(size: _Size, sequences: Sequence[TokenSequence], unit: range, last: int | None) -> _Size:
    num_rows = size[0] // max(1, size[1] + size[2]) + len(unit)
    prompt, completion = (max(size[part + 1], *(len(sequences[row][part]) for row in unit)) for part in (0, 1))
    return num_rows * (prompt + completion), prompt, completion


def _packed_size(size: _Size, sequences: Sequence[TokenSequence], unit: range, last: int | None) -> _Size:
    total = size[0] + packed_tokens(sequences[row] for row in unit)
    prompt = sequences[unit[0]][0]
    is_repeated = last is not None and sequences[last][0] == prompt
    return total - (len(prompt) if is_repeated else 0), 0, 0


def _pad(sequences: Sequence[TokenSequence], rows: Sequence[int], pad_id: int) -> TokenBatch:
    prompt_width = max(len(sequences[row][0]) for row in rows)
    completion_width = max(len(sequences[row][1]) for row in rows)
    input_ids = torch.full((len(rows), prompt_width + completion_width), pad_id, dtype=torch.long)
    attention_mask = torch.zeros_like(input_ids)
    for index, row in enumerate(rows):
        prompt, completion = sequences[row]
        start, end = prompt_width - len(prompt), prompt_width + len(completion)
        input_ids[index, start:end] = torch.tensor([*prompt, *completion])
        attention_mask[index, start:end] = 1
    return TokenBatch(
        input_ids=input_ids,
        attention_mask=attention_mask,
        position_ids=(attention_mask.cumsum(1) - 1).clamp(min=0),
        completion_ids=input_ids[:, prompt_width:],
        mask=attention_mask[:, prompt_width:].bool(),
        prompt_width=prompt_width,
        rows=tuple(rows),
    )


def _pack(sequences: Sequence[TokenSequence], rows: Sequence[int]) -> TokenBatch:
    chosen = [sequences[row] for row in rows]
    # Of each place of the row: the place before it in its sequences, -1 at their start, and its token.
    row: dict[tuple[int, int], int] = {}
    by_sequence: list[list[int]] = []
    num_new = []
    for prompt, completion in chosen:
        before, place = len(row), -1
        by_sequence.append([place := row.setdefault((place, token), len(row)) for token in chain(prompt, completion)])
        num_new.append(len(row) - before)

    input_ids = torch.tensor([[token for _, token in row]])
    prompts, lengths = torch.tensor([(len(prompt), len(completion)) for prompt, completion in chosen]).T
    ends = prompts + lengths
    columns = torch.arange(int(ends.max()))
    is_token, is_written = columns < ends[:, None], columns >= prompts[:, None]
    places = torch.zeros(is_token.shape, dtype=torch.long)
    places[is_token] = torch.tensor(list(chain.from_iterable(by_sequence)))
    position_ids = torch.zeros_like(input_ids)
    position_ids[0, places[is_token]] = columns.expand_as(places)[is_token]

    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    completion_ids = torch.zeros(mask.shape, dtype=torch.long)
    completion_ids[mask] = input_ids[0, places[is_written & is_token]]
    num_own = torch.tensor(num_new)
    read = num_own > 0
    return TokenBatch(
        input_ids=input_ids,
        position_ids=position_ids,
        completion_ids=completion_ids,
        mask=mask,
        rows=tuple(rows),
        packed_row=PackedRow.of(places[read], ends[read], (ends - num_own)[read]),
        predicts=places[(columns >= prompts[:, None] - 1) & (columns < ends[:, None] - 1)],
        sequences=tuple(chosen),
    )


def completion_logits(model: PreTrainedModel, batch: TokenBatch) -> Float[Tensor, "B T V"]:
    """Return the logits whose softmax is the model's distribution over each completion token, padding left out.

    The logits at input index i predict the token at i + 1, so completion token t (input index P + t) is predicted at
    P + t - 1. Only those positions reach the head.
    """
    _, length = batch.input_ids.shape
    keep = torch.arange(batch.prompt_width - 1, length - 1, device=batch.input_ids.device)
    logits: Tensor = model(
        input_ids=batch.input_ids,
        attention_mask=batch.attention_mask,
        position_ids=batch.position_ids,
        logits_to_keep=keep,
        use_cache=False,
    ).logits
    if logits.shape[1] not in (0, len(keep)):  # 0: the head is skipped
        raise MismatchError(
            f"{type(model).__name__} gives logits of other positions than those asked for (logits_to_keep), so its "
            "states before the output head are not known; take another model"
        )
    return logits[..., : num_ids_of(model)]


def completion_hidden(
    model: PreTrainedModel, batch: TokenBatch, head: Head, *, most: Callable[[int], float] = int
) -> Float[Tensor, "N D"]:
    """Return what the head is given at each real completion token, one sequence after the other, padding left out.

    Row n of `head(completion_hidden(...))` is row n of `completion_logits(...)[batch.mask]`; no logits are formed.
    Sequences that a model reads with other rotary angles (`angles_of`) have a forward pass of their own, and so has
    each of a model that does not know padding from tokens, so that a sequence's states are those that it has alone.

    Args:
        model: the model.
        batch: what it reads.
        head: the model's.
        most: returns the largest number of forward passes of all processes that must make equally many.

    Raises:
        MismatchError: the model does not call its head once with the positions asked for.
    """
    shares_pass = reads_padded(model)
    if shares_pass and not turns(model.config):
        return model_states(model, batch, head)
    sides: dict[tuple[int, ...], list[int]] = {}
    for place, length in enumerate(_lengths(batch)):
        side = angles_of(model.config, length) if shares_pass else (place,)
        sides.setdefault(side, []).append(place)
    if shares_pass:
        parts = [batch] if len(sides) < 2 else [batch.chosen(places) for places in sides.values()]
    else:
        parts = [batch.chosen([place]).narrowed() for (place,) in sides.values()] or [batch]
    parts += [empty_batch(pad_id=0).to(batch.input_ids.device)] * (int(most(len(parts))) - len(parts))
    hidden = torch.cat([model_states(model, part, head) for part in parts])
    if len(sides) < 2:
        return hidden

    # Each row of `hidden` goes to the place of its token in the batch.
    tokens = torch.arange(len(hidden), device=hidden.device).split(batch.mask.sum(1).tolist())
    order = torch.cat([tokens[place] for places in sides.values() for place in places])
    return hidden[order.argsort()]


def _lengths(batch: TokenBatch) -> list[int]:
    """Return how many tokens each of the B sequences has, prompt and completion together."""
    if batch.packed_row is not None:
        return [len(prompt) + len(completion) for prompt, completion in batch.sequences]
    lengths: list[int] = (batch.position_ids.amax(1) + 1).tolist()
    return lengths[: len(batch.mask)]  # an empty batch has a row, and no sequence


def model_states(model: PreTrainedModel, batch: TokenBatch, head: Head) -> Float[Tensor, "N D"]:
    """Read a batch in one forward pass; see `completion_hidden`."""
    forget_lengths(model)
    with head_inputs(head.projection, skip_head=True) as captured:
        if batch.packed_row is None:
            completion_logits(model, batch)
        else:
            read_packed(model, batch)
    expected = batch.completion_ids.shape if batch.predicts is None else (1, len(batch.predicts))
    if len(captured) != 1 or captured[0].shape[:2] != expected:
        raise MismatchError(
            f"the output head of {type(model).__name__} is not called once with the positions asked for"
        )
    return captured[0][0] if batch.predicts is not None else captured[0][batch.mask]


def read_packed(model: PreTrainedModel, batch: TokenBatch) -> None:
    """Let a model read a batch's packed row."""
    assert batch.packed_row is not None
    # A mask of four dimensions is taken as it is, so that none of [L, L] is made; packed attention needs none.
    no_mask = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=batch.input_ids.device)
    unused = _num_unused(batch.input_ids)
    model(
        input_ids=pad(batch.input_ids, (0, unused)),
        attention_mask=no_mask,
        position_ids=pad(batch.position_ids, (0, unused)),
        logits_to_keep=batch.predicts,
        use_cache=False,
        packed_row=batch.packed_row.extended(unused),
    )


def _num_unused(input_ids: Int[Tensor, "1 L"]) -> int:
    """Return how many places to put behind a row, 1.6% of it at most: 64 lengths for each power of 2.

    On a processor oneDNN prepares its products for every new length, which takes longer than a product of small layers.
    """
    if input_ids.device.type != "cpu":
        return 0
    length = input_ids.shape[1]
    return -length % (1 << max(0, length.bit_length() - 7))


def check_head(model: PreTrainedModel, head: Head, batch: TokenBatch) -> None:
    """Compare the logits that `head` forms from hidden states with the model's own.

    Raises:
        MismatchError: they differ by more than rounding.
    """
    own = completion_logits(model, batch)[batch.mask]
    formed = head(completion_hidden(model, batch, head)).to(own.dtype)
    tolerance = head_tolerance(own.dtype)
    size = float(own[torch.isfinite(own)].abs().amax())
    if own.shape != formed.shape or not torch.allclose(formed, own, rtol=tolerance, atol=tolerance * size):
        raise MismatchError(
            f"{type(model).__name__} turns hidden states into logits in a way that is not known here; results that "
            "rest on these logits would be wrong, so it is refused"
        )


def checked_head(model: PreTrainedModel) -> Head:
    """Return a model's output head, checked on a few tokens to give the model's own logits.

    Raises:
        MismatchError: it does not, or the model has no output head.
    """
    head = model_head(model)
    (batch,) = token_batches([((0, 1), (1, 0))], pad_id=0)
    training = model.training
    model.eval()  # dropout would make the two passes differ
    with torch.no_grad():
        check_head(model, head, batch.to(model.device))
    model.train(training)
    return head
