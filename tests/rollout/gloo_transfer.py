"""vLLM's transfer of weights with gloo in place of NCCL, which needs GPUs: for a trainer and a server on a CPU."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
from torch.distributed import ProcessGroupGloo, TCPStore
from vllm.distributed.weight_transfer import nccl_engine
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory, WeightTransferTrainerFactory

from swerve.rollout.vllm_protocol import pack_heads


class _Group:
    """What vLLM calls a communicator."""

    def __init__(self, host: str, port: int, rank: int, world_size: int) -> None:
        self._store = TCPStore(host, port, world_size, is_master=rank == 0, timeout=timedelta(seconds=30))
        self._group = ProcessGroupGloo(self._store, rank, world_size, timedelta(seconds=30))

    def broadcast(self, tensor: torch.Tensor) -> None:
        self._group.broadcast(tensor, 0).wait()

    def destroy(self) -> None:
        del self._group, self._store


class WorkerEngine(nccl_engine.NCCLWeightTransferEngine):
    """All that vLLM does in a worker, but for the group and its broadcasts."""

    def receive_weights(self, update_info: Any) -> None:
        for name, dtype, shape in zip(update_info.names, update_info.dtype_names, update_info.shapes, strict=True):
            weight = torch.empty(shape, dtype=getattr(torch, dtype))
            self.model_update_group.broadcast(weight)
            self.model.load_weights([(name, weight)])

    def finish_weight_update(self) -> None:
        super().finish_weight_update()
        pack_heads(self.model)


class TrainerInfo(nccl_engine.NCCLTrainerInitInfo):
    backend = "gloo"


class TrainerEngine(nccl_engine.NCCLTrainerWeightTransferEngine):
    """All that vLLM does in a trainer, but for the group and its broadcasts."""

    init_info_cls = TrainerInfo

    def _broadcast(self, source: Any, meta: Any) -> None:
        for _, tensor in self._checked_iter(source, meta):
            self.model_update_group.broadcast(tensor)


nccl_engine.worker_init_process_group = lambda info, _: _Group(info.master_address, info.master_port, 1, 2)
nccl_engine.open_trainer_endpoint = lambda info: _Group(info.master_address, info.master_port, 0, 2)
WeightTransferEngineFactory.register_engine("gloo", WorkerEngine)
WeightTransferTrainerFactory.register_engine("gloo", TrainerEngine)


class Extension:
    """Read by a server's worker, which then knows the engine above."""
