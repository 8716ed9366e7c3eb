"""A model whose weights are whole in every process: everything that a sharded model would do differently."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel

from swerve.batch import TokenBatch, checked_head, completion_hidden, reads_packed_rows
from swerve.config.recipe import DEFAULT_RUNTIME, RuntimeConfig
from swerve.world import World


class ReplicatedModel:
    """A model and the modules trained beside it; each process has all weights, gradients are summed over processes.

    All processes must call the methods that name weights or gradients, in the same order.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        world: World,
        extra_modules: Mapping[str, nn.Module] = {},
        *,
        runtime: RuntimeConfig = DEFAULT_RUNTIME,
    ) -> None:
        self.model = model
        self.head = checked_head(model)
        """Forms logits from hidden states a chunk at a time; its weight is whole where a loss is formed."""
        self.packs = runtime.rows == "packed" and reads_packed_rows(model, self.head)
        """Whether the model reads packed rows: it was asked to, and gives what it gives for padded ones."""
        self._runtime = runtime
        self.extra_modules = dict(extra_modules)
        """What is trained beside the model, by name."""
        self._world = world

    def named_parameters(self) -> dict[str, nn.Parameter]:
        """Return every trained parameter by its name, those beside the model included."""
        extra = {
            f"{module}.{name}": parameter
            for module, values in self.extra_modules.items()
            for name, parameter in values.named_parameters()
        }
        return {**dict(self.model.named_parameters()), **extra}

    def completion_hidden(self, batch: TokenBatch) -> Float[Tensor, "N D"]:
        """Return what the head is given at each real completion token of a batch, packed or not."""
        return completion_hidden(self.model, batch if self.packs else batch.padded(), self.head)

    def sum_gradients(self) -> None:
        """Replace every gradient by its sum over the processes."""
        if self._world.size == 1:
            return
        for parameter in self.named_parameters().values():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            self._world.sum_(parameter.grad)

    def clip_gradients(self, max_norm: float | None) -> float:
        """Scale the gradients to an L2 norm of at most `max_norm` (None: leave them); return the norm before."""
        limit = float("inf") if max_norm is None else max_norm
        return float(torch.nn.utils.clip_grad_norm_(self.named_parameters().values(), limit))

    def whole_weights(self) -> dict[str, Tensor]:
        """Return the model's whole weights by their Hugging Face names, tied ones under each of their names."""
        return {name: value.detach() for name, value in self.model.state_dict().items()}

    def stream_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the whole weights one at a time, for an engine to load; tied ones once, under their first name."""
        seen = set()
        for name, value in self.whole_weights().items():
            if value.data_ptr() not in seen:
                seen.add(value.data_ptr())
                yield name, value

    def load_weights(self, other: PreTrainedModel) -> None:
        """Take over the weights of a model of the same architecture."""
        self.model.load_state_dict(other.state_dict())

    def trainer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, dict[str, Tensor]]:
        """Return the optimizer's whole tensors as `{parameter}/{entry}`, and those of each further module."""
        entries = {
            f"{name}/{entry}": value.detach()
            for name, parameter in self.named_parameters().items()
            for entry, value in optimizer.state.get(parameter, {}).items()
        }
        modules = {
            name: {key: value.detach() for key, value in module.state_dict().items()}
            for name, module in self.extra_modules.items()
        }
        return {"optimizer": entries, **modules}

    def load_trainer_state(self, optimizer: torch.optim.Optimizer, state: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Put what `trainer_state` returned into the optimizer and the further modules, in place of what is there.

        Raises:
            KeyError: optimizer state for a parameter that there is not; its name.
            RuntimeError: the state of a further module does not fit.
        """
        parameters = self.named_parameters()
        optimizer.state.clear()
        for key, value in state["optimizer"].items():
            name, _, entry = key.rpartition("/")
            device = "cpu" if entry == "step" else parameters[name].device
            optimizer.state[parameters[name]][entry] = value.to(device)
        for name, module in self.extra_modules.items():
            module.load_state_dict(state[name])

    def frozen(self) -> ReplicatedModel:
        """Set the model to evaluation without gradients, for good; return this object."""
        self.model.eval().requires_grad_(False)
        return self

    def frozen_copy(self) -> ReplicatedModel:
        """Return a frozen copy of the model as it is now."""
        return ReplicatedModel(copy.deepcopy(self.model), self._world, runtime=self._runtime).frozen()
