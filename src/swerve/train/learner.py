"""One update: gradients over micro-batches and processes, checked, clipped and applied."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from swerve.batch import TokenBatch, completion_logits, token_budget
from swerve.config import OptimizerConfig
from swerve.errors import SwerveError
from swerve.train.world import World

__all__ = ["Learner", "LossFunction", "UpdateResult"]

LossFunction = Callable[[TokenBatch, Tensor], tuple[Tensor, Mapping[str, float]]]
"""(batch, logits `[B, T, V]`) -> this micro-batch's share of the loss, and sums of figures to report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateResult:
    """What one update did; everything is summed over micro-batches and processes."""

    loss: float
    grad_norm: float
    """Global L2 norm before clipping."""
    sums: Mapping[str, float]


class Learner:
    """A model with its optimizer. The only thing of a run that changes from step to step."""

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, config: OptimizerConfig, world: World
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.world = world
        self._config = config
        matrices = [parameter for parameter in model.parameters() if parameter.dim() >= 2]
        vectors = [parameter for parameter in model.parameters() if parameter.dim() < 2]
        self.optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": config.weight_decay}, {"params": vectors, "weight_decay": 0.0}],
            lr=config.lr,
            betas=(config.beta1, config.beta2),
            eps=config.eps,
        )

    @property
    def pad_id(self) -> int:
        """The token that fills the unused places of a batch; they are masked, so any id would do."""
        return int(self.tokenizer.pad_token_id or 0)

    def token_budget(self, tokens_per_batch: int) -> int:
        """Return the number of padded tokens of a micro-batch: what the stage allows, and 2^27 logits."""
        return token_budget(self.model, tokens_per_batch)

    def update(
        self,
        batches: Sequence[TokenBatch],
        loss_function: LossFunction,
        *,
        learning_rate: float,
        figures: Sequence[str] = (),
    ) -> UpdateResult:
        """Make one optimizer step from the summed gradients of all batches of all processes.

        Args:
            batches: this process's micro-batches; may be empty where other processes have some.
            loss_function: its losses must already be divided by the whole update's denominators.
            learning_rate: of this step.
            figures: names that the loss function reports (needed where `batches` is empty).

        Raises:
            SwerveError: the loss or a gradient is not finite; the weights are unchanged.
        """
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        sums = dict.fromkeys(["loss", *figures], 0.0)
        for batch in batches:
            batch = batch.to(self.model.device)
            loss, parts = loss_function(batch, completion_logits(self.model, batch))
            loss.backward()
            sums["loss"] += float(loss.detach())
            for name, value in parts.items():
                sums[name] += value
        self._sum_gradients()
        sums = self.world.sum_figures(sums)
        max_norm = self._config.max_grad_norm
        grad_norm = float(
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), float("inf") if max_norm is None else max_norm)
        )
        if not (torch.isfinite(torch.tensor([sums["loss"], grad_norm])).all()):
            raise SwerveError(
                f"the loss ({sums['loss']}) or the gradient's norm ({grad_norm}) is not finite; the weights were not "
                "changed; lower the learning rate or look at the last rollouts"
            )
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.optimizer.step()
        return UpdateResult(loss=sums.pop("loss"), grad_norm=grad_norm, sums=sums)

    def _sum_gradients(self) -> None:
        if self.world.size == 1:
            return
        for parameter in self.model.parameters():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            self.world.sum_(parameter.grad)
