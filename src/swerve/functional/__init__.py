"""Pure tensor functions: log-probabilities, advantages, losses, reductions, divergences.

They take tensors and keyword scalars and know nothing else of swerve, so that training, the probe and other people's
trainers share one definition. Losses are per token and unreduced; a reduction names its denominator.
"""

from swerve.functional.advantages import (
    Moments,
    dr_grpo_advantages,
    gae,
    grpo_advantages,
    grpo_loo_advantages,
    moments,
    reinforce_pp_advantages,
    reinforce_pp_baseline_advantages,
    reward_to_go,
    rloo_advantages,
    whiten,
)
from swerve.functional.divergence import DivergenceStats, divergence_stats, topk_probs
from swerve.functional.divergence_bounds import ToldLogprobs, divergence_bounds, entropy_bounds
from swerve.functional.head_logits import LinearHead
from swerve.functional.kl_divergence import adaptive_kl_coef, bernoulli_kl, exact_kl, kl_estimate
from swerve.functional.logprobs import entropy, token_logprobs
from swerve.functional.losses import (
    cispo_loss,
    clip_fraction,
    clip_loss,
    dpo_loss,
    dual_clip_loss,
    gspo_loss,
    gspo_token_loss,
    reinforce_loss,
    sequence_log_ratio,
    value_loss,
)
from swerve.functional.path_losses import (
    fixed_target_kl,
    log_odds,
    max_prob_js,
    max_prob_kl,
    other_logsumexp,
    rank_promotion_js,
)
from swerve.functional.token_head import chunked_head_loss, chunked_head_map, rows_per_chunk
from swerve.functional.token_weights import (
    entropy_threshold,
    importance_weights,
    reduction_weights,
    sequence_mean,
    sequence_sum,
    sequence_sum_norm,
    token_mean,
    token_sum,
    top_entropy_mask,
)

__all__ = [
    "DivergenceStats",
    "LinearHead",
    "Moments",
    "ToldLogprobs",
    "adaptive_kl_coef",
    "bernoulli_kl",
    "chunked_head_loss",
    "chunked_head_map",
    "cispo_loss",
    "clip_fraction",
    "clip_loss",
    "divergence_bounds",
    "divergence_stats",
    "dpo_loss",
    "dr_grpo_advantages",
    "dual_clip_loss",
    "entropy",
    "entropy_bounds",
    "entropy_threshold",
    "exact_kl",
    "fixed_target_kl",
    "gae",
    "grpo_advantages",
    "grpo_loo_advantages",
    "gspo_loss",
    "gspo_token_loss",
    "importance_weights",
    "kl_estimate",
    "log_odds",
    "max_prob_js",
    "max_prob_kl",
    "moments",
    "other_logsumexp",
    "rank_promotion_js",
    "reduction_weights",
    "reinforce_loss",
    "reinforce_pp_advantages",
    "reinforce_pp_baseline_advantages",
    "reward_to_go",
    "rloo_advantages",
    "rows_per_chunk",
    "sequence_log_ratio",
    "sequence_mean",
    "sequence_sum",
    "sequence_sum_norm",
    "token_logprobs",
    "token_mean",
    "token_sum",
    "top_entropy_mask",
    "topk_probs",
    "value_loss",
    "whiten",
]


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
