"""The RL loss of a micro-batch's tokens, from the logits of one chunk at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from swerve.config import (
    CispoLoss,
    ClipLoss,
    DualClipLoss,
    FixedTargetKlLoss,
    GspoLoss,
    KlInLoss,
    MaskedCorrection,
    MaxProbJsLoss,
    MaxProbKlLoss,
    NoCorrection,
    RankPromotionJsLoss,
    ReinforceLoss,
    RlStage,
)
from swerve.functional import (
    cispo_loss,
    clip_fraction,
    clip_loss,
    dual_clip_loss,
    entropy,
    exact_kl,
    fixed_target_kl,
    gspo_token_loss,
    importance_weights,
    kl_estimate,
    max_prob_js,
    max_prob_kl,
    rank_promotion_js,
    reinforce_loss,
    token_logprobs,
)
from swerve.functional.exact_kl import KlDirection

__all__ = ["FIGURES", "TokenObjective"]

_DIRECTIONS: Mapping[str, KlDirection] = {
    "exact_reverse": "reverse",
    "exact_forward": "forward",
    "exact_js": "js",
}
FIGURES = ("entropy", "logprob_gap", "clipped_share", "kl", "corrected_share")
"""Names of the figures whose sums over tokens an objective keeps."""
_RECORDED = {"clipped_share": "clipped", "kl": "kl"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenObjective:
    """The summed loss of some tokens, and sums of figures about them.

    Per token, with `w` the reduction's weight, `v` the weight of the policy loss (0 where the token or its completion
    is not learnt from) and `c` the importance weight of policy to sampler:

        loss = v c policy_loss + w (c) kl_coef KL - w entropy_coef H

    where `(c)` is there with `correction.scope: policy_and_kl`.
    """

    stage: RlStage
    tokens: Mapping[str, Tensor]
    """`[N]` each: `ids`, `weights`, `policy_weights`, `advantages`, `sampler_logprobs`; where there are any also
    `old_logprobs`, `log_ratio` (of the sequence), `ref_logprobs`."""
    kl_coef: float = 0.0
    entropy_coef: float = 0.0
    sums: dict[str, Tensor] = field(default_factory=dict)
    kept: dict[str, list[Tensor]] = field(default_factory=dict)

    def __call__(self, logits: Tensor, rows: slice, ref_logits: Tensor | None = None) -> Tensor:
        """Return the loss of the tokens `rows` from their logits `[n, V]`; see `ChunkLoss`."""
        stage = self.stage
        here = {name: values[rows] for name, values in self.tokens.items()}
        scaled = logits if stage.temperature == 1.0 else logits / stage.temperature
        logprobs = token_logprobs(scaled, here["ids"])
        old = here.get("old_logprobs", logprobs.detach())
        correction, corrected = self._correction(logprobs, old, here)
        policy = self._policy_loss(scaled, logprobs, old, here)
        weights = here["policy_weights"] * correction
        # Where a token is left out its loss may be infinite, and 0 times that would be NaN.
        loss = (weights * policy.where(weights != 0, 0.0)).sum()
        with torch.no_grad():
            self._count("clipped_share", self._clipped(logprobs, old, here))
            self._count("logprob_gap", (old - here["sampler_logprobs"]).abs())
            self._count("corrected_share", corrected)
        if isinstance(stage.kl, KlInLoss) and self.kl_coef:
            divergence = self._kl(stage.kl, scaled, logprobs, old, here, ref_logits)
            self._count("kl", divergence.detach())
            loss = loss + self.kl_coef * (self._kl_weights(here, correction) * divergence).sum()
        with torch.set_grad_enabled(self.entropy_coef != 0 and torch.is_grad_enabled()):
            spread = entropy(scaled)
        self._count("entropy", spread.detach())
        if self.entropy_coef:
            loss = loss - self.entropy_coef * (here["weights"] * spread).sum()
        return loss

    def figures(self) -> dict[str, float]:
        """Return the sums so far; 0 for what was never counted."""
        return {name: float(self.sums[name]) if name in self.sums else 0.0 for name in FIGURES}

    def per_token(self) -> dict[str, Tensor]:
        """Return what is recorded of each token so far, `[N]`: `clipped` (1.0 or 0.0), and `kl` (nats) if counted."""
        return {_RECORDED[name]: torch.cat(parts).float() for name, parts in self.kept.items()}

    def _count(self, name: str, values: Tensor) -> None:
        if name in _RECORDED:
            self.kept.setdefault(name, []).append(values)
        total = values.sum(dtype=torch.float64)
        self.sums[name] = self.sums[name] + total if name in self.sums else total

    def _policy_loss(self, scaled: Tensor, logprobs: Tensor, old: Tensor, here: Mapping[str, Tensor]) -> Tensor:
        loss, ids, advantages = self.stage.loss, here["ids"], here["advantages"][None]
        match loss:
            case ReinforceLoss():
                value = reinforce_loss(logprobs[None], advantages)
            case ClipLoss():
                value = clip_loss(
                    logprobs[None],
                    old[None],
                    advantages,
                    low=loss.low,
                    high=loss.high,
                    log_ratio_clamp=loss.log_ratio_clamp,
                )
            case DualClipLoss():
                value = dual_clip_loss(
                    logprobs[None],
                    old[None],
                    advantages,
                    low=loss.low,
                    high=loss.high,
                    c=loss.c,
                    log_ratio_clamp=loss.log_ratio_clamp,
                )
            case CispoLoss():
                value = cispo_loss(logprobs[None], old[None], advantages, cap=loss.cap, floor=loss.floor)
            case GspoLoss():
                ratio = here.get("log_ratio", torch.zeros_like(old))[None]
                value = gspo_token_loss(logprobs[None], ratio, advantages, low=loss.low, high=loss.high)
            case MaxProbKlLoss():
                return max_prob_kl(scaled, ids, target_gradient=loss.target_gradient)
            case FixedTargetKlLoss():
                return fixed_target_kl(scaled, ids, q=loss.q, region=loss.region)
            case MaxProbJsLoss():
                return max_prob_js(scaled, ids, target_gradient=loss.target_gradient)
            case RankPromotionJsLoss():
                return rank_promotion_js(scaled, ids)
        return value[0]

    def _clipped(self, logprobs: Tensor, old: Tensor, here: Mapping[str, Tensor]) -> Tensor:
        """Return where clipping removed the gradient."""
        loss, advantages = self.stage.loss, here["advantages"]
        if not isinstance(loss, ClipLoss | DualClipLoss | GspoLoss):
            return torch.zeros_like(logprobs)
        if isinstance(loss, GspoLoss):
            old = torch.zeros_like(old)
            logprobs = here.get("log_ratio", old)
        clipped = clip_fraction(logprobs[None], old[None], advantages[None], low=loss.low, high=loss.high)[0]
        if isinstance(loss, DualClipLoss):
            clipped = clipped | ((advantages < 0) & ((logprobs - old).exp() > loss.c))
        if not isinstance(loss, GspoLoss) and loss.log_ratio_clamp is not None:
            clipped = clipped | ((logprobs - old).abs() > loss.log_ratio_clamp)
        return clipped

    def _correction(self, logprobs: Tensor, old: Tensor, here: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the importance weights of policy to sampler, and where the bound changed them."""
        settings = self.stage.correction
        if isinstance(settings, NoCorrection):
            return torch.ones_like(old), torch.zeros_like(old)
        numerator = old if settings.numerator == "old" else logprobs.detach()
        sampler = here["sampler_logprobs"]
        floor = settings.floor if isinstance(settings, MaskedCorrection) else None
        (weights,) = importance_weights(
            numerator[None], sampler[None], kind=settings.kind, cap=settings.cap, floor=floor
        )
        return weights, (weights - (numerator - sampler).exp()).abs() > 1e-6 * weights

    def _kl_weights(self, here: Mapping[str, Tensor], correction: Tensor) -> Tensor:
        settings = self.stage.correction
        both = not isinstance(settings, NoCorrection) and settings.scope == "policy_and_kl"
        return here["weights"] * correction if both else here["weights"]

    def _kl(
        self,
        kl: KlInLoss,
        scaled: Tensor,
        logprobs: Tensor,
        old: Tensor,
        here: Mapping[str, Tensor],
        ref_logits: Tensor | None,
    ) -> Tensor:
        match kl.estimator:
            case "exact_reverse" | "exact_forward" | "exact_js":
                assert ref_logits is not None
                ref_scaled = ref_logits if self.stage.temperature == 1.0 else ref_logits / self.stage.temperature
                return exact_kl(scaled, ref_scaled, direction=_DIRECTIONS[kl.estimator])
            case estimator:
                return kl_estimate(
                    logprobs[None],
                    here["ref_logprobs"][None],
                    estimator=estimator,
                    input_clamp=kl.input_clamp,
                    output_clamp=kl.output_clamp,
                    importance=kl.importance,
                    old_logprobs=old[None] if kl.importance else None,
                )[0]
