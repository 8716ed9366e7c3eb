"""One update: gradients over micro-batches and processes, checked, clipped and applied at the scheduled rate."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from swerve.batch import TokenBatch, TokenSequence, empty_batch, packed_batches, packed_tokens, token_batches
from swerve.config.stage_base import OptimizerConfig
from swerve.errors import CheckpointError, MissingExtraError, SwerveError
from swerve.train.balance import RowWork, WorkEstimate, balanced_pieces, deal
from swerve.train.replicated_model import ReplicatedModel

LossFunction = Callable[[TokenBatch, Tensor], tuple[Tensor, Mapping[str, float]]]
"""(batch, hidden states `[N, D]` of its real completion tokens) -> this micro-batch's share of the loss, and sums of
metrics to report."""

TrainerState = Mapping[str, Mapping[str, Tensor]]
"""What resuming needs beside the model, by file and tensor."""


class NotFiniteError(SwerveError):
    """The loss or gradient of an update is not finite. Raised by all processes alike, for both are sums over them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateResult:
    """Loss, gradient norm and metrics of one update, summed over micro-batches and processes."""

    loss: float
    grad_norm: float
    """Global L2 norm before clipping."""
    sums: Mapping[str, float]


class Learner:
    """A model with its optimizer. The only thing of a run that changes from step to step."""

    def __init__(
        self,
        weights: ReplicatedModel,
        tokenizer: PreTrainedTokenizerBase,
        config: OptimizerConfig,
        *,
        value_head: nn.Linear | None = None,
        drops: bool = False,
    ) -> None:
        """Make an optimizer for the weights.

        Args:
            weights: the model.
            tokenizer: the model's.
            config: of the optimizer.
            value_head: trained beside the model.
            drops: whether updates have the dropout of the model's configuration. What is compared with
                log-probabilities of the same weights, or of a reference's, must not have it.
        """
        self.weights = weights
        weights.extra_modules = {} if value_head is None else {"value_head": value_head}
        self.model = self.weights.model
        self.head = self.weights.head
        self.tokenizer = tokenizer
        self.world = weights.world
        self._config = config
        self._drops = drops
        self._value_head = value_head
        # A divided model's parameters and others cannot be updated in one call.
        beside = {id(parameter) for module in weights.extra_modules.values() for parameter in module.parameters()}
        groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
        for parameter in self.named_parameters().values():
            groups.setdefault((parameter.dim() < 2, id(parameter) in beside), []).append(parameter)
        self.optimizer = optimizer_class(config)(
            [
                {"params": group, "weight_decay": 0.0 if is_vector else config.weight_decay}
                for (is_vector, _), group in groups.items()
            ],
            lr=config.lr,
            betas=(config.beta1, config.beta2),
            eps=config.eps,
        )

    @property
    def pad_id(self) -> int:
        """The token that fills the unused places of a batch; they are masked, so any id would do."""
        return int(self.tokenizer.pad_token_id or 0)

    @property
    def value_head(self) -> nn.Linear:
        """The head that predicts returns; only where the stage has one."""
        assert self._value_head is not None
        return self._value_head

    def named_parameters(self) -> dict[str, nn.Parameter]:
        """Return every trained parameter by its name, those beside the model included."""
        return self.weights.named_parameters()

    def drop_gradients(self) -> None:
        """Free the memory of the last update's gradients."""
        self.optimizer.zero_grad(set_to_none=True)

    def predicted_returns(self, hidden: Float[Tensor, "N D"]) -> Float[Tensor, " N"]:
        """Return what the value head predicts at each token, from the states before the output head."""
        return cast(Tensor, self.value_head(hidden.to(self.value_head.weight.dtype)))[:, 0]

    def batches(
        self, sequences: Sequence[TokenSequence], *, tokens_per_batch: int, together: int = 1
    ) -> list[TokenBatch]:
        """Return micro-batches of (prompt ids, completion ids) pairs as the model reads them; see `token_batches`.

        Where all processes must have as many, all must call this, and batches without a completion fill up.
        """
        packs, must_be_equal = self.weights.packs, self.weights.needs_equal_batches and self.world.size > 1
        if packs and must_be_equal:
            batches = self._even_batches(sequences, tokens_per_batch, together)
        else:
            batches = token_batches(
                sequences, pad_id=self.pad_id, tokens_per_batch=tokens_per_batch, together=together, packed=packs
            )
        num = int(self.world.max(len(batches))) if must_be_equal else len(batches)
        return batches + [empty_batch(pad_id=self.pad_id)] * (num - len(batches))

    def _even_batches(
        self, sequences: Sequence[TokenSequence], tokens_per_batch: int, together: int
    ) -> list[TokenBatch]:
        """Return packed batches of equal work, as many in every process as the one that needs most has."""
        starts = range(0, len(sequences), together)
        units = [sequences[start : start + together] for start in starts]
        works = self._works(units)

        def fits(rows: Sequence[int]) -> bool:
            return packed_tokens(sequence for row in rows for sequence in units[row]) <= tokens_per_batch

        least = math.ceil(packed_tokens(sequences) / tokens_per_batch)
        num = int(self.world.max(len(balanced_pieces(works, least, fits))))
        rows = [
            [starts[unit] + place for unit in piece for place in range(together)]
            for piece in balanced_pieces(works, num, fits)
        ]
        return packed_batches(sequences, rows)

    def work_estimate(self) -> WorkEstimate:
        """Return how much work the model has with a sequence."""
        return WorkEstimate.of(self.model.config, packs=self.weights.packs)

    def share(self, units: Sequence[Sequence[TokenSequence]]) -> list[int]:
        """Return which units this process takes, so that all have equal work.

        Args:
            units: of all processes: sequences of one prompt, which stay together.
        """
        if self.world.size == 1:
            return list(range(len(units)))
        ranks = deal(self._works(units), self.world.size)
        return [number for number, rank in enumerate(ranks) if rank == self.world.rank]

    def _works(self, units: Sequence[Sequence[TokenSequence]]) -> list[RowWork]:
        """Return the work of each unit; those that follow one another and have one prompt are a group."""
        prompts = [unit[0][0] for unit in units]
        groups = accumulate(int(prompt != before) for prompt, before in pairwise([None, *prompts]))
        estimate = self.work_estimate()
        return [
            estimate.row(group, len(unit[0][0]), *(len(completion) for _, completion in unit))
            for group, unit in zip(groups, units, strict=True)
        ]

    def update(
        self,
        batches: Sequence[TokenBatch],
        loss_function: LossFunction,
        *,
        silent: Sequence[TokenBatch] = (),
        learning_rate: float,
        metrics: Sequence[str] = (),
    ) -> UpdateResult:
        """Make one optimizer step from the summed gradients of all batches of all processes.

        Args:
            batches: this process's micro-batches; may be empty where other processes have some.
            loss_function: its losses must already be divided by the whole update's denominators.
            silent: more micro-batches, whose losses have no gradient: they are read for the metrics alone.
            learning_rate: of this step.
            metrics: names that the loss function reports (needed where `batches` is empty).

        Raises:
            NotFiniteError: the loss or a gradient is not finite; the weights are unchanged.
        """
        # Gradients of this process's batches; some are read without one, for the metrics.
        self.world.doing("updating in")
        self.weights.begin_update(drops=self._drops)
        self.optimizer.zero_grad(set_to_none=True)
        sums = dict.fromkeys(["loss", *metrics], 0.0)
        for batch, learns in [*((batch, False) for batch in silent), *((batch, True) for batch in batches)]:
            batch = batch.to(self.model.device)
            with torch.set_grad_enabled(learns):
                loss, parts = loss_function(batch, self.weights.completion_hidden(batch))
            if learns:
                loss.backward()
            sums["loss"] += float(loss.detach())
            for name, value in parts.items():
                sums[name] += value

        # The same numbers in all processes, or none of them updates.
        self.weights.sum_gradients()
        sums = self.world.sums(sums)
        grad_norm = self.weights.clip_gradients(self._config.max_grad_norm)
        if not (torch.isfinite(torch.tensor([sums["loss"], grad_norm])).all()):
            raise NotFiniteError(
                f"the loss ({sums['loss']}) or the gradient's norm ({grad_norm}) is not finite; the weights were not "
                "changed by it; lower the learning rate or look at the last rollouts"
            )

        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.optimizer.step()
        self.weights.follow()
        return UpdateResult(loss=sums.pop("loss"), grad_norm=grad_norm, sums=sums)


def optimizer_class(config: OptimizerConfig) -> Callable[..., torch.optim.Optimizer]:
    """Return AdamW with moments of the configured type.

    Raises:
        MissingExtraError: int8 is asked for, and bitsandbytes is not installed.
    """
    if config.moments == "float32":
        return partial(torch.optim.AdamW, fused=True)
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # it warns of kernels that AdamW does not need
    try:
        from bitsandbytes.optim import AdamW8bit
    except ImportError:
        raise MissingExtraError("bitsandbytes", "int8", "optimizer.moments: int8") from None
    return cast(Callable[..., torch.optim.Optimizer], AdamW8bit)


def learning_rate(config: OptimizerConfig, step: int, total: int) -> float:
    """Return the learning rate of the update with 0-based index `step` out of `total`.

    Linear warm-up over `warmup_steps`, then constant, linear to 0 or half a cosine to 0.

    >>> config = OptimizerConfig(lr=1.0, schedule="cosine", warmup_steps=2)
    >>> [round(learning_rate(config, step, 6), 4) for step in range(6)]
    [0.5, 1.0, 1.0, 0.8536, 0.5, 0.1464]
    """
    if step < config.warmup_steps:
        return config.lr * (step + 1) / config.warmup_steps
    progress = (step - config.warmup_steps) / max(1, total - config.warmup_steps)
    factor = {
        "constant": 1.0,
        "linear": 1.0 - progress,
        "cosine": 0.5 * (1.0 + math.cos(math.pi * progress)),
    }[config.schedule]
    return config.lr * factor


def new_value_head(model: PreTrainedModel) -> nn.Linear:
    """Return a head that predicts 0 from the states before the output head of `model`."""
    untyped: Any = model
    weight: Tensor = untyped.get_output_embeddings().weight
    dtype = torch.promote_types(weight.dtype, torch.float32)
    head = nn.Linear(weight.shape[1], 1, device=weight.device, dtype=dtype)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return head


def load_trainer_state(path: Path, learner: Learner, state: TrainerState) -> None:
    """Put the trainer's state that was read of the checkpoint at `path` into the learner of its stage.

    Raises:
        CheckpointError: it belongs to another kind of stage.
    """
    for name in ("optimizer", *learner.weights.extra_modules):
        if name not in state:
            raise CheckpointError(f"{path} has no trainer state '{name}'")
    try:
        learner.weights.load_trainer_state(learner.optimizer, state)
    except KeyError as error:
        raise CheckpointError(f"{path}: optimizer state for {error}, a parameter the model does not have") from None
    except RuntimeError as error:
        raise CheckpointError(f"{path}: the trainer state does not fit the model") from error
