"""What the entries of a summary are called on the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = [
    "CORRELATES",
    "METHODS",
    "REGIONS",
    "SELECTIONS",
    "SELECTORS",
    "direction_title",
    "divergence_name",
    "headline_population",
    "population_note",
    "population_title",
    "selector_word",
]

METHODS = {
    "zscore": "z-score",
    "percentile": "percentile",
    "adaptive": "adaptive",
    "absolute": "absolute",
    "calibrated": "calibrated",
}
SELECTORS = {
    "js": "JS",
    "kl_forward": "Forward KL",
    "kl_reverse": "Reverse KL",
    "bernoulli_kl": "KL of the token alone",
    "abs_logprob_change": "|log-prob change|",
    "logprob_drop": "Drop of log-prob",
    "entropy": "Entropy of reference",
    "entropy_change": "Rise of entropy",
    "rank": "Rank",
    "argmax_changed": "Top token changed",
    "random": "Random",
}
REGIONS = {"early": "first", "mid": "middle", "late": "last"}
SELECTIONS = {"spike": "Top spike", "matched": "Matched position", "random": "Random position"}
_DIRECTIONS = {
    "checkpoint_into_reference": "{reference} with tokens of {final}",
    "reference_into_checkpoint": "{final} with tokens of {reference}",
}
CORRELATES = {
    "correct": "right answer",
    "difficulty": "difficulty of the problem",
    "length": "length",
    "entropy_ref": "entropy of the reference",
}
_DIVERGENCES = {"kl_forward": "Forward KL", "kl_reverse": "Reverse KL", "js": "JS"}
_POPULATIONS = {
    "reference_wrong_final_right": ("{reference} wrong, {final} right", "with a wrong answer where {final} is right"),
    "reference_wrong_final_wrong": ("{reference} wrong, {final} wrong", "with a wrong answer where {final} is too"),
    "reference_right": ("{reference} right", "with a right answer"),
    "checkpoint_right": ("{final} right", "with a right answer"),
    "checkpoint_wrong": ("{final} wrong", "with a wrong answer"),
    "training": ("rollouts of training", "sampled in training"),
    "imported_wrong": ("imported, wrong", "read from a file, with a wrong answer"),
    "imported_right": ("imported, right", "read from a file, with a right answer"),
    "imported": ("imported, not graded", "read from a file, not graded"),
}


def divergence_name(summary: Mapping[str, Any]) -> str:
    """Return the name of the divergence whose spikes a probe is about.

    >>> divergence_name({"divergence": "js"})
    'JS'
    """
    key = str(summary.get("divergence", "js"))
    return _DIVERGENCES.get(key, key)


def headline_population(summary: Mapping[str, Any]) -> str:
    """Return the population of the headline figures."""
    return str(summary.get("population") or "reference_wrong_final_right")


def _named(template: str, summary: Mapping[str, Any]) -> str:
    return template.replace("{reference}", str(summary.get("reference"))).replace("{final}", str(summary.get("final")))


def population_title(population: Any, summary: Mapping[str, Any]) -> str:
    """Return what a population is called; an unknown one by its own name.

    >>> population_title("reference_right", {"reference": "dpo-8"})
    'dpo-8 right'
    """
    return _named(_POPULATIONS.get(str(population), (str(population), ""))[0], summary)


def population_note(population: Any, source: Any, summary: Mapping[str, Any]) -> str:
    """Return a sentence on what a population's rollouts are.

    >>> population_note("reference_right", "dpo-8", {"reference": "dpo-8"})
    'Completions of dpo-8, with a right answer.'
    """
    writer = "Responses" if source == "imported" else f"Completions of {source}"
    what = _named(_POPULATIONS.get(str(population), ("", str(population)))[1], summary)
    return f"{writer}, {what}."


def direction_title(direction: Any, summary: Mapping[str, Any]) -> str:
    """Return what a direction of cross-sampling is called.

    >>> direction_title("checkpoint_into_reference", {"reference": "dpo-8", "final": "rl-80"})
    'dpo-8 with tokens of rl-80'
    """
    return _named(_DIRECTIONS.get(str(direction), str(direction)), summary)


def selector_word(selector: Any) -> str:
    """Return a selector's name as it stands inside a sentence.

    >>> selector_word("js"), selector_word("logprob_drop"), selector_word("bernoulli_kl")
    ('JS', 'drop of log-prob', 'KL of the token alone')
    """
    text = SELECTORS.get(str(selector), str(selector))
    is_name = selector in _DIVERGENCES or text[:2].isupper()
    return text if is_name else f"{text[:1].lower()}{text[1:]}"
