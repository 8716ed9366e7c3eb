"""The runs to compare: a name, what differs from the base run, and the learning rate.

The base run is the RL stage of `demo_addition`: 80 steps of 16 prompts x 8 completions, advantages are rewards minus
their group's mean, one REINFORCE update per step, mean over tokens, no KL term, AdamW at 5e-5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

TEACHER = "TEACHER"
"""Stands for the final checkpoint of the base run of the same seed."""
LEARNING_RATES = (1e-5, 5e-5, 1e-4, 3e-4, 1e-3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One run."""

    name: str
    group: str
    overrides: tuple[str, ...] = ()
    """Keys of the stage, as `swerve train` takes them after `stages.<label>.`."""
    lr: float = 5e-5
    stage: Literal["rl", "sft", "distill"] = "rl"
    steps: int = 80
    from_scratch: bool = False
    """Begin with random weights instead of the SFT checkpoint."""

    @property
    def key(self) -> str:
        """Name and learning rate: one run per key and seed."""
        return f"{self.name} @ {self.lr:g}"


_SEVERAL = ("num_epochs=2", "num_minibatches=2")


def _group(group: str, rows: Sequence[tuple[str, tuple[str, ...]]], *lrs: float) -> list[Variant]:
    return [Variant(name=name, group=group, overrides=keys, lr=lr) for name, keys in rows for lr in lrs or (5e-5,)]


BASE = Variant(name="dr_grpo", group="advantages")

_ADVANTAGES = [
    BASE,
    *_group(
        "advantages",
        [
            ("grpo", ("advantages=grpo",)),
            ("rloo", ("advantages=rloo",)),
            ("grpo_loo", ("advantages=grpo_loo",)),
            ("reinforce_pp", ("advantages=reinforce_pp",)),
            ("reinforce_pp_baseline", ("advantages=reinforce_pp_baseline",)),
            ("gae", ("advantages=gae",)),
            ("ppo: gae, clip, 2 x 2 updates", ("advantages=gae", "loss=clip", *_SEVERAL)),
            ("reward (rejection fine-tuning)", ("advantages=reward",)),
        ],
    ),
]
_RATES = [
    *_group("learning rate", [("dr_grpo", ())], 1e-5, 1e-4, 3e-4, 1e-3),
    *_group("learning rate", [("reward (rejection fine-tuning)", ("advantages=reward",))], 1e-4, 1e-3),
]
_LOSSES = [
    *_group(
        "policy loss, 2 x 2 updates",
        [
            ("reinforce", _SEVERAL),
            ("clip", ("loss=clip", *_SEVERAL)),
            ("clip, high 0.28", ("loss={kind: clip, high: 0.28}", *_SEVERAL)),
            ("dual_clip", ("loss=dual_clip", *_SEVERAL)),
            ("cispo", ("loss=cispo", *_SEVERAL)),
            ("gspo", ("loss=gspo", "reduction=sequence_mean", *_SEVERAL)),
        ],
    ),
]
_IN_LOSS = ("k2", "k3", "k3+", "abs", "exact_reverse", "exact_forward", "exact_js")


def _kl_in_loss(estimator: str, coef: float, more: str = "") -> tuple[str, tuple[str, ...]]:
    override = f"kl={{kind: loss, estimator: {estimator}, coef: {coef:g}{more}}}"
    return f"loss, {estimator}{' x ratio' if 'importance' in more else ''}, {coef:g}", (override,)


_KL = _group(
    "kl",
    [
        *[_kl_in_loss(estimator, 0.1) for estimator in _IN_LOSS],
        _kl_in_loss("k1", 0.1, ", force: true"),
        _kl_in_loss("k3", 0.1, ", importance: true"),
        _kl_in_loss("k3", 1.0),
        _kl_in_loss("exact_reverse", 1.0),
        ("reward, k1, 0.1", ("kl={kind: reward, coef: 0.1}",)),
        ("reward, k1, 0.1, after the baseline", ("kl={kind: reward, coef: 0.1, order: after}",)),
        ("reward, k1, 1", ("kl={kind: reward, coef: 1.0}",)),
        (
            "loss, exact_reverse, adaptive to 0.005",
            ("kl={kind: loss, estimator: exact_reverse, coef: 0.1, target: 0.005, horizon: 1000}",),
        ),
        ("rloo, reward, k1, 0.01", ("advantages=rloo", "kl={kind: reward, coef: 0.01}")),
        ("rloo, loss, k3, 0.01", ("advantages=rloo", "kl={kind: loss, estimator: k3, coef: 0.01}")),
    ],
)
_ENTROPY = _group(
    "entropy",
    [
        ("coef 0.1", ("entropy.coef=0.1",)),
        ("coef 1", ("entropy.coef=1.0",)),
        ("coef -0.1", ("entropy.coef=-0.1",)),
        ("coef -1", ("entropy.coef=-1.0",)),
        ("target 0.05", ("entropy={target: 0.05, target_step: 0.02}",)),
        ("top_share 0.2", ("entropy.top_share=0.2",)),
    ],
)
_OTHER = [
    *_group(
        "correction, 2 x 2 updates",
        [
            ("tis", ("correction={kind: tis, numerator: current}", *_SEVERAL)),
            ("mis", ("correction={kind: mis, numerator: current, floor: 0.5}", *_SEVERAL)),
        ],
    ),
    *_group("groups of equal reward", [("keep", ("zero_variance=keep",)), ("refill", ("zero_variance=refill",))]),
    *_group(
        "reduction",
        [
            (name, (f"reduction={name}",))
            for name in ("sequence_mean", "sequence_sum", "sequence_sum_norm", "token_sum")
        ],
    ),
    *_group("preset", [(name, (f"preset={name}",)) for name in ("trl", "verl", "rl2", "openrlhf")]),
    *[
        Variant(
            name=f"distillation, {direction}",
            group="distillation from the base run",
            overrides=(f"teacher={TEACHER}", f"divergence={direction}"),
            stage="distill",
        )
        for direction in ("reverse", "forward", "js")
    ],
]
_MAX_PROB_KL = ("max_prob_kl, live", ("loss=max_prob_kl",))
_MAX_PROB_KL_DETACHED = ("max_prob_kl, detached", ("loss={kind: max_prob_kl, target_gradient: detached}",))
_MAX_PROB_JS = ("max_prob_js, live", ("loss=max_prob_js",))
_MAX_PROB_JS_DETACHED = ("max_prob_js, detached", ("loss={kind: max_prob_js, target_gradient: detached}",))


def _fixed(q: float, region: str) -> tuple[str, tuple[str, ...]]:
    return f"fixed_target_kl, q {q:g}, {region}", (f"loss={{kind: fixed_target_kl, q: {q:g}, region: {region}}}",)


def _by_correct(row: tuple[str, tuple[str, ...]]) -> tuple[str, tuple[str, ...]]:
    return f"{row[0]}, / correct", (*row[1], "loss.normalize=correct")


def _damped(row: tuple[str, tuple[str, ...]], coef: float) -> tuple[str, tuple[str, ...]]:
    return f"{row[0]}, entropy {coef:+g}", (*row[1], f"entropy.coef={coef:g}")


_PATHS = [
    *_group(
        "paths",
        [
            _MAX_PROB_KL,
            _MAX_PROB_KL_DETACHED,
            _MAX_PROB_JS,
            _fixed(0.5, "all"),
        ],
        *LEARNING_RATES,
    ),
    *_group("paths", [("rank_promotion_js", ("loss=rank_promotion_js",))], 1e-5, 1e-4, 1e-3),
    *_group("paths", [_MAX_PROB_JS_DETACHED], 1e-4, 1e-3),
    *_group(
        "paths",
        [
            _fixed(0.5, "above"),
            _fixed(0.5, "below"),
        ],
        1e-4,
    ),
    *_group("paths", [_fixed(0.9, "all")], 1e-5, 1e-4),
    *_group("paths", [_fixed(0.99, "all")], 1e-5, 1e-4, 1e-3),
    *_group("paths", [_fixed(0.9, "below"), _fixed(0.99, "below")], 1e-4),
    *_group("paths", [_by_correct(_MAX_PROB_KL)], 1e-4),
]
_LONG = [
    Variant(name=f"{name}, 240 steps", group="paths, longer", overrides=keys, lr=1e-5, steps=240)
    for name, keys in (_MAX_PROB_KL,)
]
_DAMPED = _group(
    "paths with an entropy coefficient",
    [
        *[_damped(_MAX_PROB_KL, coef) for coef in (-1.0, -0.5, -0.1, 0.1)],
        _damped(_MAX_PROB_KL_DETACHED, -0.1),
        _damped(_MAX_PROB_JS, -0.1),
        _damped(_fixed(0.5, "all"), -1.0),
    ],
    1e-4,
)
_SUPERVISED_LOSSES = (
    ("cross_entropy", ("loss=cross_entropy",)),
    ("greedy_kl, live", ("loss=greedy_kl",)),
    ("greedy_kl, detached", ("loss=greedy_kl", "target_gradient=detached")),
    ("greedy_js, live", ("loss=greedy_js",)),
    ("greedy_js, detached", ("loss=greedy_js", "target_gradient=detached")),
)
_SUPERVISED = [
    *[
        Variant(name=name, group="supervised, from the SFT checkpoint", overrides=keys, lr=1e-4, stage="sft")
        for name, keys in _SUPERVISED_LOSSES
    ],
    *[
        Variant(
            name=name,
            group="supervised, from random weights",
            overrides=(*keys, "optimizer.schedule=cosine", "optimizer.beta2=0.95", "optimizer.warmup_steps=20"),
            lr=4e-3,
            stage="sft",
            steps=500,
            from_scratch=True,
        )
        for name, keys in _SUPERVISED_LOSSES[1:4:2]
    ],
]

VARIANTS: tuple[Variant, ...] = (
    *_ADVANTAGES, *_LOSSES, *_PATHS, *_LONG, *_DAMPED, *_KL, *_ENTROPY, *_OTHER, *_RATES, *_SUPERVISED
)  # fmt: skip
"""In the order in which they run."""
_REPEATED = {
    "advantages": ("dr_grpo @ 5e-05", "reward (rejection fine-tuning) @ 5e-05"),
    "paths": ("max_prob_kl, live @ 0.0001", "max_prob_kl, detached @ 0.0001", "fixed_target_kl, q 0.5, all @ 0.0001"),
    "kl": ("loss, k2, 0.1 @ 5e-05", "loss, k3, 0.1 @ 5e-05", "loss, exact_reverse, 0.1 @ 5e-05",
           "loss, exact_forward, 0.1 @ 5e-05", "loss, k1, 0.1 @ 5e-05"),
    "learning rate": ("reward (rejection fine-tuning) @ 0.0001", "dr_grpo @ 0.0001", "dr_grpo @ 0.001"),
    "paths with an entropy coefficient": (
        "max_prob_kl, live, entropy -0.1 @ 0.0001", "max_prob_kl, detached, entropy -0.1 @ 0.0001",
        "max_prob_js, live, entropy -0.1 @ 0.0001"),
}  # fmt: skip
HEADLINES = tuple(variant for variant in VARIANTS if variant.key in _REPEATED.get(variant.group, ()))
"""The runs that are repeated with other seeds."""
assert len({(variant.group, variant.key) for variant in VARIANTS}) == len(VARIANTS)
