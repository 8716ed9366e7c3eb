"""What methods, selectors, populations and other entries of a summary are called on the page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from swerve.artifacts.probe_causes import SwapPositions
from swerve.artifacts.probe_findings import DIVERGENCE_NAMES, Region
from swerve.artifacts.probe_summary import ProbeSummary

METHODS = {
    "zscore": "z-score",
    "percentile": "percentile",
    "adaptive": "adaptive",
    "absolute": "absolute",
    "calibrated": "calibrated",
}
SELECTORS: Mapping[str, str] = {
    **{str(key): name for key, name in DIVERGENCE_NAMES.items()},
    "bernoulli_kl": "KL of the token alone",
    "abs_logprob_change": "|log-prob change|",
    "logprob_drop": "Drop of log-prob",
    "entropy": "Entropy of reference",
    "entropy_change": "Rise of entropy",
    "rank": "Rank",
    "argmax_changed": "Top token changed",
    "random": "Random",
}
REGIONS: Mapping[Region, str] = {"early": "first", "mid": "middle", "late": "last"}
SELECTIONS: Mapping[SwapPositions, str] = {
    "spike": "Top spike",
    "matched": "Matched position",
    "random": "Random position",
    "js": "Highest JS",
    "kl_forward": "Highest forward KL",
    "kl_reverse": "Highest reverse KL",
    "abs_logprob_change": "Highest |log-prob change|",
    "logprob_drop": "Highest drop of log-prob",
    "entropy": "Highest entropy of reference",
    "rank": "Highest rank",
    "first_wrong": "First wrong token",
}
CORRELATES = {
    "correct": "right answer",
    "difficulty": "difficulty of the problem",
    "length": "length",
    "entropy_ref": "entropy of the reference",
}
_DIRECTIONS = {
    "checkpoint_into_reference": "{reference} with tokens of {final}",
    "reference_into_checkpoint": "{final} with tokens of {reference}",
}
_POPULATIONS = {
    "reference_wrong_final_right": "{reference} wrong, {final} right",
    "reference_wrong_final_wrong": "{reference} wrong, {final} wrong",
    "reference_right_final_right": "{reference} right, {final} right",
    "reference_right_final_wrong": "{reference} right, {final} wrong",
    "all": "all of {reference}",
    "reference_wrong": "{reference} wrong",
    "reference_right": "{reference} right",
    "checkpoint_right": "{final} right",
    "checkpoint_wrong": "{final} wrong",
    "training": "rollouts of training",
    "imported_wrong": "imported, wrong",
    "imported_right": "imported, right",
    "imported": "imported, not graded",
}


def named(names: Mapping[str, str], key: str) -> str:
    """Return the name of an entry; one that the table lacks has its own.

    >>> named(METHODS, "zscore"), named(METHODS, "mine")
    ('z-score', 'mine')
    """
    return names.get(key, key)


_ABSOLUTE = re.compile(r"""(?<![^\s='"(\[:])(?:~|[A-Za-z]:)?[/\\](?:[^\s/\\'"]+[/\\])+""")
"""The folders of an absolute path, with what may stand before it: a page is read where they are not."""


def without_folders(text: str) -> str:
    r"""Return a text with absolute paths as the names of their files; relative paths and addresses stay.

    >>> without_folders("3 of 9 verdicts in /home/me/data/a.jsonl differ; see runs/b and https://c.org/d/e")
    '3 of 9 verdicts in a.jsonl differ; see runs/b and https://c.org/d/e'
    >>> without_folders("swerve claim base=/tmp/a/base.jsonl rl=~/b/rl.jsonl --out C:\\work\\card")
    'swerve claim base=base.jsonl rl=rl.jsonl --out card'
    """
    return _ABSOLUTE.sub("", text)


def divergence_name(summary: ProbeSummary) -> str:
    """Return the name of the divergence that a probe is about."""
    return DIVERGENCE_NAMES[summary.divergence]


def selector_word(selector: str) -> str:
    """Return a selector's name as it stands inside a sentence.

    >>> selector_word("js"), selector_word("logprob_drop"), selector_word("bernoulli_kl")
    ('JS', 'drop of log-prob', 'KL of the token alone')
    """
    text = named(SELECTORS, selector)
    is_name = selector in DIVERGENCE_NAMES or text[:2].isupper()
    return text if is_name else f"{text[:1].lower()}{text[1:]}"


def _filled(names: Mapping[str, str], key: str, summary: ProbeSummary) -> str:
    return named(names, key).replace("{reference}", summary.reference).replace("{final}", summary.final)


def population_title(population: str, summary: ProbeSummary) -> str:
    """Return what a population is called, such as `dpo-8 right`; an unknown one has its own name."""
    return _filled(_POPULATIONS, population, summary)


def direction_title(direction: str, summary: ProbeSummary) -> str:
    """Return what a direction of cross-sampling is called, such as `dpo-8 with tokens of rl-80`."""
    return _filled(_DIRECTIONS, direction, summary)


def continuing_model(policy: Literal["reference", "checkpoint"], summary: ProbeSummary) -> str:
    """Return the label of the model that continues."""
    return summary.final if policy == "checkpoint" else summary.reference
