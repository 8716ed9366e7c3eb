"""The entries of a probe's summary that need no table of the synthetic run, with literal numbers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

DIVERGENCES = ("kl_forward", "kl_reverse", "js")
METHODS = ("zscore", "percentile", "adaptive", "absolute", "calibrated")


def estimate(mean: float, half: float) -> dict[str, float]:
    return {"mean": mean, "low": round(mean - half, 6), "high": round(mean + half, 6)}


def rate(mean: float, half: float) -> dict[str, float]:
    return {"mean": mean, "low": round(max(0.0, mean - half), 6), "high": round(min(1.0, mean + half), 6)}


def means(js: float) -> dict[str, Any]:
    scales = {"kl_forward": 4.0, "kl_reverse": 9.0, "js": 1.0, "entropy": 1.5, "entropy_ref": 2.5}
    return {name: estimate(round(scale * js, 6), round(0.1 * scale * js, 6)) for name, scale in scales.items()}


def probe_entries(reference: str, checkpoints: Sequence[str]) -> dict[str, Any]:
    """Return every entry beside those of the divergences, spikes, categories and noise floor."""
    final = checkpoints[-1]
    return {
        "baseline": "sft-500",
        "selection": "greedy",
        "population": "reference_wrong_final_right",
        "spike_method": "zscore",
        "mcnemar": {
            "num": 400,
            "num_first_only": 3,
            "num_second_only": 211,
            "difference": estimate(0.52, 0.05),
            "p_value": 2.4e-60,
        },
        "reselected": rate(0.7, 0.04),
        "turned_by_itself": {"mean": 24.5, "low": 18.0, "high": 31.0},
        "pairs": [
            *(
                {
                    "checkpoint": after,
                    "reference": before,
                    **means(0.001 * (index + 1)),
                    "behind": None if after == final else estimate(0.001 * (len(checkpoints) - 2 - index), 0.0015),
                }
                for index, (before, after) in enumerate(pairwise(checkpoints))
            ),
            {"checkpoint": reference, "reference": "sft-500", **means(0.0005), "behind": estimate(0.0076, 0.001)},
        ],
        "populations": [
            population("reference_wrong_final_right", reference, 200, 0, final, 0.0081),
            {
                **population("reference_right", reference, 100, 100, final, 0.0002),
                "above_headline": estimate(-0.0079, 0.001),
            },
            {
                **population("checkpoint_right", final, 90, 90, final, 0.0083),
                "above_headline": estimate(0.0002, 0.001),
            },
        ],
        "null": {"num_tokens": 23600, "false_discoveries": {name: null_figures() for name in DIVERGENCES}},
        "recovery": recovery(final),
        "noise_models": {
            "target": 0.0081,
            "scales": [18.2, 17.0, 19.1],
            "relative_norm": 0.0011,
            "means": [0.0078, 0.0081, 0.0083],
        },
        "claims": claims(),
        "spike_densities": [
            density(checkpoint, name, method, 3.0 * number + place)
            for number, checkpoint in enumerate(checkpoints)
            for method in ("percentile", "absolute", "calibrated")
            for place, name in enumerate(("early", "mid", "late"))
        ],
        "regions": [region(final, name, index) for index, name in enumerate(("early", "mid", "late"))],
        "style": [
            {
                "checkpoint": final,
                "divergence": "js",
                "num_style_tokens": 1000,
                "share_tokens": rate(0.085, 0.001),
                "share_divergence": rate(0.021, 0.004),
                "excess": estimate(-0.064, 0.004),
            }
        ],
        "rank_shift": [rank_shift(final, reference), rank_shift(final, final)],
        "entropy": entropy(final),
        "biographies": biographies(checkpoints),
        "direction": [direction(checkpoint, reference) for checkpoint in checkpoints],
        "correlates": [
            {
                "checkpoint": checkpoint,
                "source": reference,
                "level": "rollout",
                "correlate": name,
                "num": 300,
                "estimate": None if name == "length" else estimate(value, 0.05),
                "p_value": None if name == "length" else 0.002,
                "p_adjusted": None if name == "length" else 0.004,
            }
            for checkpoint in checkpoints
            for name, value in (("correct", -0.61), ("difficulty", 0.47), ("length", 0.0))
        ],
        "training_signal": [signal(checkpoints[0], reference), signal(final, reference)],
        "prediction": [prediction("reference", 0.6, 0.001), prediction("checkpoint", 0.04, 0.2)],
        "cross_sampling": {
            "num_problems": 100,
            "num_samples": 1,
            "directions": [dose("checkpoint_into_reference", 0.51, 0.9), dose("reference_into_checkpoint", 0.9, 0.51)],
        },
        "pivots": [pivots(), {**pivots(), "policy": "checkpoint", "start": estimate(0.9, 0.05), "num_could_fall": 20}],
        "attribution": [attribution(final, 0.285), attribution(reference, 0.351)],
    }


def claims() -> list[dict[str, Any]]:
    """Figures beside chance, entropy and noise; `stands` but where they are in the range of a null."""
    return [
        claim("top", "first_wrong", 0.9, 0.026, 0.91, 0.01),
        claim("auc", "first_wrong", 0.98, 0.5, 0.99, 0.85),
        claim("top", "wrong", 0.92, 0.03, 0.93, 0.02),
        claim("auc", "wrong", 0.97, 0.5, 0.98, 0.84),
        claim("share", "uncertain", 0.984, 0.2, 0.91, 0.75),
        claim("share", "style", 0.021, 0.085, 0.12, 0.1),
        claim("share", "third", 0.29, 0.34, 0.3, 0.34, part="early"),
        claim("share", "third", 0.47, 0.34, 0.45, 0.35, part="mid"),
        claim("share", "third", 0.24, 0.34, 0.25, 0.31, part="late"),
        claim("share", "category", 0.66, 0.3, 0.4, 0.45, part="number"),
        claim("share", "category", 0.02, 0.2, 0.15, 0.1, part="math_symbol"),
        claim("share", "good", 0.97, 0.52, 0.6, 0.96),
    ]


def claim(
    figure: str, of: str, value: float, chance: float, score: float, noise: float, *, part: str = ""
) -> dict[str, Any]:
    """Return a figure whose differences from its nulls are known to .03."""
    values = {"chance": chance, "entropy": score, "noise": noise}
    ends = {"noise": {"low": round(noise - 0.01, 4), "high": round(noise + 0.01, 4)}}
    nulls = [
        {"null": name, "value": null, **ends.get(name, {}), "difference": estimate(round(value - null, 4), 0.03)}
        for name, null in values.items()
    ]
    return {"figure": figure, "of": of, "part": part, "estimate": rate(value, 0.02), "nulls": nulls}


def population(name: str, source: str, num: int, num_correct: int, final: str, js: float) -> dict[str, Any]:
    return {
        "population": name,
        "source": source,
        "num_rollouts": num,
        "num_tokens": 59 * num,
        "num_correct": num_correct,
        "divergences": [{"checkpoint": final, "reference": "dpo-8", **means(js)}],
    }


def null_figures() -> dict[str, Any]:
    found = {"zscore": (546, estimate(23.1, 0.9)), "adaptive": (443, estimate(18.8, 0.6))}
    nothing = (0, {"mean": 0.0, "low": 0.0, "high": 0.161})
    return {
        name: {"num_spikes": count, "num_tokens": 23600, "per_1000_tokens": value}
        for name in METHODS
        for count, value in (found.get(name, nothing),)
    }


def recovery(final: str) -> dict[str, Any]:
    areas = {"js": 0.97, "kl_reverse": 0.98, "entropy_change": 0.12, "rank": 0.75}
    return {
        "num_rollouts": 200,
        "num_rollouts_unknown": 0,
        "num_tokens": 12000,
        "num_wrong": 258,
        "base_rate": 0.0219,
        "selectors": [
            {"checkpoint": final, "selector": name, "auc": rate(area, 0.02), "average_precision": rate(0.6, 0.1)}
            for name, area in areas.items()
        ],
        "spikes": [
            {
                "checkpoint": final,
                "divergence": divergence,
                "method": method,
                "num_spikes": 270 + 10 * index,
                "precision": rate(round(0.95 - 0.1 * index, 4), 0.03),
                "recall": rate(0.99, 0.02),
                "f1": rate(0.9, 0.02),
                "chance_precision": 0.024,
                "chance_recall": 0.028,
            }
            for divergence in DIVERGENCES
            for index, method in enumerate(METHODS)
        ],
    }


def density(checkpoint: str, name: str, method: str, per_1000: float) -> dict[str, Any]:
    return {
        "checkpoint": checkpoint,
        "region": name,
        "divergence": "js",
        "method": method,
        "threshold": {"percentile": 0.01, "absolute": 0.1, "calibrated": 1e-6}[method],
        "num_tokens": 4000,
        "num_spikes": round(4 * per_1000),
        "per_1000_tokens": estimate(per_1000, 0.7),
    }


def region(final: str, name: str, index: int) -> dict[str, Any]:
    share = (0.29, 0.47, 0.24)[index]
    return {
        "checkpoint": final,
        "region": name,
        "share_tokens": 0.34,
        "mean": {one: estimate(0.006, 0.001) for one in DIVERGENCES},
        "share_divergence": {one: rate(share, 0.05) for one in DIVERGENCES},
        "spike_rate": dict.fromkeys(DIVERGENCES, 0.02),
        "base_rate": dict.fromkeys(DIVERGENCES, 0.023),
    }


def rank_shift(final: str, source: str) -> dict[str, Any]:
    own = {name: {"num_tokens": 10, "share": rate(1.0 if name == "unshifted" else 0.0, 0.01)} for name in CLASSES}
    other = {name: {"num_tokens": 10, "share": rate(CLASSES[name], 0.01)} for name in CLASSES}
    is_own = source == final
    return {
        "checkpoint": final,
        "source": source,
        "writer": "checkpoint" if is_own else "reference",
        "shift": "rank_ref" if is_own else "rank",
        "num_tokens": 5900,
        "rank": own if is_own else other,
        "rank_ref": other if is_own else own,
        "categories": [],
    }


CLASSES = {"unshifted": 0.93, "marginal": 0.05, "shifted": 0.02}


def entropy(final: str) -> dict[str, Any]:
    part = {"entropy": estimate(0.011, 0.001), "entropy_ref": estimate(0.022, 0.001), "change": estimate(-0.011, 0.002)}
    return {
        "means": [
            {
                "checkpoint": final,
                **part,
                "share_argmax_changed": rate(0.022, 0.001),
                "regions": [{"region": "early", **part}],
                "categories": [{"category": "math_symbol", **part}],
            }
        ],
        "forking": [
            {
                "checkpoint": final,
                "share_tokens": 0.2,
                "share_divergence": {name: rate(0.984, 0.005) for name in DIVERGENCES},
                "spikes": {name: {"share": rate(0.99, 0.01)} for name in DIVERGENCES},
                "wrong_steps": {"share": rate(0.98, 0.01), "share_tokens": 0.2},
            }
        ],
    }


def biographies(checkpoints: Sequence[str]) -> dict[str, Any]:
    def group(num: int, moved: int, onsets: Sequence[int]) -> dict[str, Any]:
        return {
            "num_tokens": num,
            "num_moved": moved,
            "share_moved": rate(round(moved / num, 4), 0.002),
            "onset_steps": [{"step": 510 + index, "num_tokens": onset} for index, onset in enumerate(onsets)],
            "share_reversed": rate(0.05, 0.02),
            "median_linearity": 0.957,
            "jumps": {"share": rate(0.03, 0.01)},
        }

    return {
        "checkpoints": list(checkpoints),
        "steps": list(range(510, 510 + len(checkpoints))),
        "threshold": 0.1,
        "tokens": {
            "all": group(12000, 280, (0, 1, 200, 50, 4, 5, 10, 10)),
            "wrong_steps": group(258, 250, (0, 1, 195, 50, 4, 0, 0, 0)),
            "others": group(11742, 30, (0, 0, 5, 0, 0, 5, 10, 10)),
        },
        "wrong_above_others": estimate(0.966, 0.004),
    }


def direction(checkpoint: str, source: str) -> dict[str, Any]:
    return {
        "checkpoint": checkpoint,
        "source": source,
        "share_good": rate(0.97, 0.01),
        "share_good_tokens": rate(0.52, 0.01),
        "mean_move_right": estimate(0.0001, 0.0002),
        "mean_move_wrong": estimate(-0.12, 0.01),
        "auc": rate(0.99, 0.005),
        "wrong_steps": {
            "num_tokens": 258,
            "mean_move": estimate(-2.4, 0.1),
            "mean_move_others": estimate(-0.001, 0.0005),
            "share_expected": rate(0.96, 0.02),
            "share_expected_ref": rate(0.0, 0.01),
        },
    }


def signal(checkpoint: str, reference: str) -> dict[str, Any]:
    return {
        "checkpoint": checkpoint,
        "reference": reference,
        "divergence": {
            "signal": {"mean": estimate(0.006, 0.001)},
            "no_signal": {"mean": estimate(0.002, 0.001)},
            "not_seen": {"mean": None},
        },
        "spill_over": estimate(0.33, 0.1),
        "advantage_correlation": {**estimate(0.21, 0.05), "p_value": 0.001, "num_clusters": 90},
        "direction": {"agreement": rate(0.71, 0.03), "chance": 0.5, "above_chance": estimate(0.21, 0.03)},
    }


def prediction(policy: str, correlation: float, p_value: float) -> dict[str, Any]:
    return {
        "policy": policy,
        "num_positions": 297,
        "mean_square_effect": estimate(0.04, 0.02),
        "selectors": [
            {
                "selector": name,
                "spearman": {**estimate(round(correlation - drop, 4), 0.06), "p_value": p_value, "num_clusters": 100},
                "p_adjusted": 2 * p_value,
            }
            for name, drop in (("js", 0.0), ("entropy", 0.01))
        ],
    }


def dose(direction: str, base: float, other: float) -> dict[str, Any]:
    def points(reach: float) -> list[dict[str, Any]]:
        return [
            {
                "budget": budget,
                "share_swapped": round(budget * (0.9 + 0.2 * reach), 4),
                "accuracy": rate(round(base + reach * (other - base) * weight, 4), 0.07),
                "recovered": estimate(round(reach * weight, 4), 0.1),
            }
            for budget, weight in ((0.02, 0.8), (0.1, 1.0))
        ]

    return {
        "direction": direction,
        "base": rate(base, 0.09),
        "other": rate(other, 0.09),
        "gap": estimate(round(other - base, 4), 0.1),
        "largest_common_share": 0.091,
        "selectors": [
            {
                "selector": "js",
                "points": points(1.0),
                "auc": estimate(0.86, 0.04),
                "auc_over_random": estimate(0.8, 0.09),
            },
            {"selector": "random", "points": points(0.1), "auc": estimate(0.06, 0.05), "auc_over_random": None},
        ],
    }


def pivots() -> dict[str, Any]:
    hit = {"num": 9, "share": rate(0.889, 0.2), "chance": 0.019}
    return {
        "policy": "reference",
        "unit": "token",
        "num_rollouts": 20,
        "start": estimate(0.04, 0.02),
        "num_could_fall": 12,
        "num_rollouts_with_pivot": 9,
        "gap": 0.2,
        "num_continuations": 51,
        "num_prefixes": 117,
        "false_positive_rate": 0.037,
        "num_pivots": 9,
        "num_rises": 2,
        "num_falls": 7,
        "num_confirmed": 8,
        "max_confirmed_below_gap": 0.45,
        "size_search": estimate(0.32, 0.05),
        "size_estimate": estimate(0.27, 0.05),
        "on_spike": hit,
        "on_wrong": hit,
        "on_first_wrong": None,
        "breaks": {
            "num_rollouts": 6,
            "num_confirmed": 5,
            "top_divergence": {"num": 6, "share": rate(0.667, 0.3), "chance": 0.019},
            "top_entropy": {"num": 6, "share": rate(0.5, 0.3), "chance": 0.019},
            "above_entropy": estimate(0.167, 0.2),
        },
    }


def attribution(model: str, recent: float) -> dict[str, Any]:
    def one(score: float, uniform: float, num: int = 40) -> dict[str, Any]:
        more = estimate(score - uniform, 0.02)
        return {"num_spots": num, "score": estimate(score, 0.02), "uniform": uniform, "above_uniform": more}

    return {
        "model": model,
        "method": "gradient",
        "num_spots": 40,
        "prompt": one(0.18, 0.21),
        "recent": one(recent, 0.096),
        "wrong": one(0.03, 0.023, 18),
        "distance": one(22.8, 28.0),
    }
