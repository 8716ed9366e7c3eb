from __future__ import annotations

import math
from dataclasses import asdict

import pytest
from scipy import stats

from swerve.artifacts.files import dump_json
from swerve.artifacts.probe_findings import RankShift
from swerve.artifacts.responses import Response
from swerve.probe.findings.token_shares import rank_classes, rank_shifts, style_shares, text_writer
from swerve.statistics import ratio_interval
from tests.builders import measurements, response


def sequence(index: int, text: str, source: str) -> Response:
    """One token a word, with the space after it."""
    ends = [place + 1 for place, character in enumerate(text + " ") if character == " "]
    ends[-1] -= 1
    spans = tuple(zip([0, *ends[:-1]], ends, strict=True))
    return response(index, len(ends), text=text, spans=spans, label=source)


DATA = measurements(
    [sequence(0, "a b c d", "dpo-1"), sequence(1, "a b", "rl-9"), sequence(2, "a", "imported")],
    categories=["word", "word", "number", "number", "word", "number", "word"],
    rank=[1, 2, 3, 4, 1, 1, 2],
    rank_ref=[1, 1, 1, 9, 5, 3, 1],
    js=[1, 2, 3, 4, 5, 6, 7],
)


@pytest.mark.parametrize(("rank", "expected"), [(1, 0), (2, 1), (3, 1), (4, 2), (100, 2)])
def test_classes(rank: int, expected: int) -> None:
    assert rank_classes([rank]).tolist() == [expected]


def test_ranks_count_from_one() -> None:
    with pytest.raises(ValueError, match="count from 1"):
        rank_classes([1, 0])


def test_writers() -> None:
    names = {"checkpoint": "rl-9", "reference": "dpo-1"}
    assert [text_writer(one, **names) for one in ("rl-9", "dpo-1", "reference", "rl-1")] == [
        "checkpoint",
        "reference",
        "reference",
        "other",
    ]


def test_each_writers_shares() -> None:
    reference, own, other = rank_shifts(DATA)
    assert [(one.source, one.writer, one.shift) for one in (reference, own, other)] == [
        ("dpo-1", "reference", "rank"),
        ("rl-9", "checkpoint", "rank_ref"),
        ("imported", "other", None),
    ]
    assert [one.num_tokens for one in (reference, own, other)] == [4, 2, 1]

    def shares(entry: RankShift, name: str) -> list[float]:
        return [one.share.mean for one in getattr(entry, name).values()]

    assert shares(reference, "rank") == [0.25, 0.5, 0.25]
    assert shares(reference, "rank_ref") == [0.75, 0, 0.25]
    assert shares(own, "rank") == [1, 0, 0]
    assert shares(own, "rank_ref") == [0, 0.5, 0.5]
    assert list(own.rank) == ["unshifted", "marginal", "shifted"]
    assert reference.rank["marginal"].num_tokens == 2
    assert [one.model_dump() for one in reference.categories] == [
        {
            "category": "number",
            "num_tokens": 2,
            "rank": {"unshifted": 0, "marginal": 1, "shifted": 1},
            "rank_ref": {"unshifted": 1, "marginal": 0, "shifted": 1},
        },
        {
            "category": "word",
            "num_tokens": 2,
            "rank": {"unshifted": 1, "marginal": 1, "shifted": 0},
            "rank_ref": {"unshifted": 2, "marginal": 0, "shifted": 0},
        },
    ]
    dump_json([reference, own, other])


def test_style_shares_from_the_texts() -> None:
    data = measurements(
        [sequence(0, "Now 2 + x .", "dpo-1"), sequence(1, "okay 7", "dpo-1")],
        categories=["word", "number", "math_symbol", "variable", "punctuation", "word", "number"],
        js=[1, 2, 0, 4, 3, 0.5, 1.5],
    )
    (entry,) = style_shares(data, divergence="js")
    assert (entry.num_tokens, entry.num_style_tokens) == (7, 3)
    assert asdict(entry.share_tokens) == pytest.approx(asdict(ratio_interval([2, 1], [5, 2])))
    assert asdict(entry.share_divergence) == pytest.approx(asdict(ratio_interval([4, 0.5], [10, 2])))
    # Without the first problem 0.25 - 0.5, without the second 0.4 - 0.4, and one degree of freedom.
    mean, reach = 4.5 / 12 - 3 / 7, 0.125 * stats.t.ppf(0.975, 1)
    z, away = math.atanh(mean), reach / (1 - mean**2)  # between -1 and 1 on Fisher's z
    ends = {"low": math.tanh(z - away), "high": math.tanh(z + away)}
    assert asdict(entry.excess) == pytest.approx({"mean": mean, **ends})


def test_no_divergence_has_no_share() -> None:
    data = measurements([sequence(0, "a b", "dpo-1")], categories=["word"], js=[0, 0])
    (entry,) = style_shares(data, divergence="js")
    assert (entry.share_divergence, entry.excess) == (None, None)
    assert entry.share_tokens.mean == 0
