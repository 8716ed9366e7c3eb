"""Pure tensor functions: log-probabilities, advantages, losses, reductions, divergences.

They take tensors and keyword scalars and know nothing else of swerve, so that training, the probe and other people's
trainers share one definition. Losses are per token and unreduced; a reduction names its denominator.
"""

from swerve.functional.advantages import dr_grpo_advantages
from swerve.functional.divergence import DivergenceStats, divergence_stats, topk_probs
from swerve.functional.logprobs import entropy, token_logprobs
from swerve.functional.losses import dpo_loss, reinforce_loss
from swerve.functional.reductions import sequence_mean, token_mean

__all__ = [
    "DivergenceStats",
    "divergence_stats",
    "dpo_loss",
    "dr_grpo_advantages",
    "entropy",
    "reinforce_loss",
    "sequence_mean",
    "token_logprobs",
    "token_mean",
    "topk_probs",
]
