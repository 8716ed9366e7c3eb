"""What a vLLM worker needs to take new weights on a CPU; read by the server, not by swerve."""

from __future__ import annotations

from typing import Any

from swerve.rollout.vllm_protocol import pack_heads


class PackedHead:
    """Reloads weights and packs embeddings and the output head again.

    On a CPU vLLM keeps a packed copy of them, which `reload_weights` leaves as it was where the head is tied to the
    embeddings: the answer says 200, and log-probabilities are wrong by nats.
    """

    def reload_weights_and_head(self, weights_path: str) -> None:
        """Load the weights of a folder; called over `/collective_rpc`."""
        worker: Any = self
        worker.reload_weights(weights_path=weights_path)
        pack_heads(worker.model_runner.get_model())
