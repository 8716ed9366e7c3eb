"""Which earlier tokens made a model decide as it does at a position: by gradients, or by where its attention looks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from swerve.artifacts.probe_causes import Attribution, AttributionScore
from swerve.artifacts.responses import Response
from swerve.errors import MismatchError
from swerve.models.head import num_ids_of
from swerve.models.model_folder import LoadedModel
from swerve.positions import forget_lengths
from swerve.statistics import mean_interval

AttributionMethod = Literal["gradient", "attention"]

_ScoreKind = Literal["prompt", "recent", "wrong", "distance"]

_NUM_RECENT = 5

_QUADRATURE_POINTS = 64

_POINTS_AT_A_TIME = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """A position of a rollout that is to be explained, such as a spike."""

    sequence: Response
    position: int
    """In the completion; the token there is not part of what is explained."""

    @property
    def prefix(self) -> tuple[int, ...]:
        """All tokens the model has read when it decides; the logits at the last of them give the position's token."""
        return (*self.sequence.prompt_ids, *self.sequence.completion_ids[: self.position])

    @property
    def realised(self) -> int:
        """The token that stands at the position."""
        return self.sequence.completion_ids[self.position]


def attribute(
    loaded: LoadedModel, spots: Sequence[Spot], method: AttributionMethod, *, label: str
) -> list[dict[str, Any]]:
    """Return the rows of `attributions.parquet`: how much each earlier token counts for the model's decision at a spot.

    With f = log p(choice) - log p(realised), the model's most likely token at the position against the one that stands
    there (against its runner-up where the two are the same), and e_i the input embedding of the token i:

        gradient:   score_i = |(e_i - b) . integral over s of df/de_i at b + s (e - b)|   (integrated gradients)
        attention:  score_i = last row of A_L ... A_1 at i,  A = (mean over heads + identity) / 2

    where b is the mean of all embeddings. Scores are normalised to sum to 1 over the prompt and the completion before
    the position. Before the absolute value those of `gradient` sum to f(e) - f(b). Attention says where the model
    looks, not what that does to its choice. Sources: Sundararajan et al., arXiv 1703.01365 (integrated gradients);
    Abnar and Zuidema, arXiv 2005.00928 (attention rollout).

    Args:
        loaded: the model, in evaluation mode; `gradient` runs it 64 times per spot, `attention` once.
        spots: positions of rollouts.
        method: how to score.
        label: names the model in the rows.

    Raises:
        ValueError: a position lies outside of its completion, or the method is unknown.
        MismatchError: the model has no attention weights to show.
    """
    for spot in spots:
        if not 0 <= spot.position < len(spot.sequence.completion_ids):
            raise ValueError(
                f"sequence {spot.sequence.sequence_id} has {len(spot.sequence.completion_ids)} completion tokens, got "
                f"position {spot.position}; positions count from 0"
            )
    if method not in _METHODS:
        raise ValueError(f"unknown attribution method {method!r}; allowed: {', '.join(_METHODS)}")
    rows = []
    for spot in spots:
        scores = _METHODS[method](loaded.model, spot)
        total = float(scores.sum())
        # Where all are 0 no token counts more than another.
        shares = (scores / total if total > 0 else torch.full_like(scores, 1 / len(scores))).tolist()
        num_prompt = len(spot.sequence.prompt_ids)
        rows.append(
            {
                "sequence_id": spot.sequence.sequence_id,
                "position": spot.position,
                "method": method,
                "model": label,
                "prompt_scores": shares[:num_prompt],
                "completion_scores": shares[num_prompt:],
            }
        )
    return rows


def integrated_products(model: PreTrainedModel, spot: Spot) -> Tensor:
    """Return each prefix token's signed product of embedding and integrated gradient, `[L]`; they sum to f - f(b)."""
    untyped: Any = model
    embedded: Tensor = untyped.get_input_embeddings()(torch.tensor([spot.prefix], device=model.device)).detach()
    decide = _decision(model, spot, embedded)
    # The baseline is in the scale of what the embedding layer returns, which some models multiply.
    table: Tensor = untyped.get_input_embeddings().weight
    with torch.no_grad():
        plain = table[torch.tensor([spot.prefix], device=model.device)]
        factor = embedded.norm() / plain.norm().clamp(min=torch.finfo(table.dtype).tiny)
        baseline = (factor * table.mean(dim=0)).expand_as(embedded)
    # Gauss and Legendre's points on the way from the baseline to the embeddings, some at a time.
    points, weights = np.polynomial.legendre.leggauss(_QUADRATURE_POINTS)
    total = torch.zeros_like(embedded[0], dtype=torch.float64)
    for start in range(0, _QUADRATURE_POINTS, _POINTS_AT_A_TIME):
        part = slice(start, start + _POINTS_AT_A_TIME)
        shares = embedded.new_tensor((points[part] + 1) / 2)[:, None, None]
        gradients = _gradient(decide, baseline + shares * (embedded - baseline)).double()
        total += (gradients * gradients.new_tensor(weights[part] / 2)[:, None, None]).sum(dim=0)
    products: Tensor = (total * (embedded - baseline)[0].double()).sum(dim=-1)
    return products.cpu()


def _decision(model: PreTrainedModel, spot: Spot, embedded: Tensor) -> Callable[[Tensor], Tensor]:
    """Return f: embeddings `[B, L, D]` -> `[B]`, nats, for the choice the model makes on the real ones."""

    def last_logits(inputs: Tensor) -> Tensor:
        logits: Tensor = model(inputs_embeds=inputs, use_cache=False, logits_to_keep=1).logits[
            :, -1, : num_ids_of(model)
        ]
        return logits if logits.dtype == torch.float64 else logits.float()

    forget_lengths(model)
    with torch.no_grad():
        best, second = last_logits(embedded)[0].topk(2).indices.tolist()
    other = second if best == spot.realised else spot.realised

    def decision(inputs: Tensor) -> Tensor:
        # The normaliser of the softmax is the same for both tokens.
        logits = last_logits(inputs)
        return logits[:, best] - logits[:, other]

    return decision


def _gradient(function: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
    leaf = inputs.detach().clone().requires_grad_()
    with torch.enable_grad():
        (gradient,) = torch.autograd.grad(function(leaf).sum(), leaf)
    return gradient


@contextmanager
def _eager_attention(model: PreTrainedModel) -> Iterator[None]:
    """Let the model compute its attention weights inside the block: the fast kernels never form them."""
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def _attention_scores(model: PreTrainedModel, spot: Spot) -> Tensor:
    """Return attention rollout from the token that decides, `[L]`."""
    ids = torch.tensor([spot.prefix], device=model.device)
    forget_lengths(model)
    with torch.no_grad(), _eager_attention(model):
        layers = model(input_ids=ids, use_cache=False, output_attentions=True, logits_to_keep=1).attentions
    length = ids.shape[1]
    if not layers or any(layer is None or layer.shape[-2:] != (length, length) for layer in layers):
        raise MismatchError(
            f"{type(model).__name__} does not return attention weights of all tokens; use probe.attribution.method="
            "gradient"
        )
    flow = torch.zeros(length, dtype=torch.float64, device=ids.device)
    flow[-1] = 1.0
    for layer in reversed(layers):  # from the decision downwards: a row times a matrix, never a product of matrices
        flow = (flow @ layer[0].double().mean(dim=0) + flow) / 2
    return flow.cpu()


_METHODS: Mapping[str, Callable[[PreTrainedModel, Spot], Tensor]] = {
    "gradient": lambda model, spot: integrated_products(model, spot).abs(),
    "attention": _attention_scores,
}
"""What each earlier token of a spot counts for, `[L]`."""


def summarise_attribution(
    rows: Sequence[Mapping[str, Any]], sequences: Sequence[Response], *, confidence: float
) -> tuple[Attribution, ...]:
    """Return where the scores lie, for each model and method: on the prompt, nearby, on earlier wrong steps.

    Each score has beside it what equal scores would give (`uniform`). Distances are in tokens from the position to be
    explained, 1 for the token just before it. Means are over spots, intervals over problems; spots without an earlier
    wrong step do not count for `wrong`.

    Args:
        rows: of `attributions.parquet`.
        sequences: the rollouts they are about.
        confidence: coverage of the intervals.
    """
    by_id = {sequence.sequence_id: sequence for sequence in sequences}
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["model"], row["method"]), []).append(row)
    entries = []
    for (model, method), part in groups.items():
        # Of each kind of score: the problem, the score and the uniform one of every spot that has it.
        kinds: dict[_ScoreKind, list[tuple[str, float, float]]] = {kind: [] for kind in get_args(_ScoreKind)}
        for row in part:
            sequence = by_id[row["sequence_id"]]
            for kind, (score, uniform) in _spot_scores(row, sequence).items():
                kinds[kind].append((sequence.problem.id, score, uniform))
        scores: dict[str, AttributionScore] = {}
        for kind, measured in kinds.items():
            problems = [problem for problem, *_ in measured]
            own, excess = [score for _, score, _ in measured], [score - uniform for _, score, uniform in measured]
            most = math.inf if kind == "distance" else 1.0
            mean = partial(mean_interval, clusters=problems, confidence=confidence, padded=False)
            scores[kind] = AttributionScore(
                num_spots=len(measured),
                score=mean(own, bounds=(0.0, most)),
                uniform=sum(uniform for *_, uniform in measured) / len(measured) if measured else None,
                above_uniform=mean(excess, bounds=(-most, most)),
            )
        entries.append(Attribution(model=model, method=method, num_spots=len(part), **scores))
    return tuple(entries)


def _spot_scores(row: Mapping[str, Any], sequence: Response) -> dict[_ScoreKind, tuple[float, float]]:
    """Return of one spot the score on each kind of token, or its mean distance, and what equal scores would give."""
    scores = [*row["prompt_scores"], *row["completion_scores"]]
    length, num_prompt = len(scores), len(row["prompt_scores"])
    places: dict[_ScoreKind, Sequence[int]] = {
        "prompt": range(num_prompt),
        "recent": range(max(0, length - _NUM_RECENT), length),
        "wrong": [num_prompt + place for place in sequence.wrong if place < row["position"]],
    }
    shares = {
        kind: (sum(scores[place] for place in own), len(own) / length)
        for kind, own in places.items()
        if own or kind != "wrong"
    }
    distance = sum(score * (length - place) for place, score in enumerate(scores))
    return {**shares, "distance": (distance, (length + 1) / 2)}
