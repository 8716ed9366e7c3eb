from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swerve.artifacts.files import dump_json
from swerve.probe.engine.measured import Measurements
from swerve.probe.findings.entropy import checkpoint_entropies, forking_overlaps, forking_tokens
from tests.builders import measurements, response


def of_two(**columns: list[float]) -> Measurements:
    """Two sequences of 6 and 4 tokens; the first has its wrong steps marked."""
    sequences = [response(3, 6, wrong={1: "a", 5: "b"}), response(5, 4)]
    return measurements(sequences, categories=("number", "word"), **columns)


DATA = of_two(
    entropy=[1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
    entropy_ref=[0, 4, 0, 0, 0, 0, 0, 3, 1, 0],
    argmax=[1, 5, 1, 1, 1, 1, 1, 2, 2, 2],
    argmax_ref=[1, 1, 1, 1, 1, 1, 1, 1, 2, 1],
    js=[0, 5, 0, 0, 1, 0, 0, 1, 2, 1],
)


def test_entropy_and_its_change() -> None:
    (entry,) = checkpoint_entropies(DATA, vocabulary_size=8)
    assert entry.entropy.mean == pytest.approx(5.5)
    assert entry.entropy_ref.mean == pytest.approx(0.8)
    assert entry.change.mean == pytest.approx(4.7)
    assert entry.change.low < 4.7 < entry.change.high
    for name in ("entropy", "entropy_ref", "change"):
        for end in ("mean", "low", "high"):
            scaled, whole = (getattr(getattr(one, name), end) for one in (entry.normalised, entry))
            assert scaled == pytest.approx(whole / math.log(8))
    assert entry.share_argmax_changed.mean == pytest.approx(0.3)


def test_entropy_by_region_and_category() -> None:
    (entry,) = checkpoint_entropies(DATA, vocabulary_size=8)
    # Thirds: tokens 0 1 | 2 3 | 4 5 of the first, 0 1 | 2 | 3 of the second.
    assert [one.region for one in entry.regions] == ["early", "mid", "late"]
    assert [one.entropy.mean for one in entry.regions] == pytest.approx([18 / 4, 16 / 3, 21 / 3])
    assert [one.entropy_ref.mean for one in entry.regions] == pytest.approx([7 / 4, 1 / 3, 0])
    assert [(one.category, one.entropy.mean) for one in entry.categories] == [("number", 5), ("word", 6)]
    assert [one.change.mean for one in entry.categories] == pytest.approx([5 - 0.2, 6 - 1.4])


def test_a_vocabulary_of_one_is_refused() -> None:
    with pytest.raises(ValueError, match="vocabulary_size=1"):
        checkpoint_entropies(DATA, vocabulary_size=1)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=40), st.integers(1, 100))
def test_forking_tokens_are_the_top_share(values: list[int], percent: int) -> None:
    mask, threshold = forking_tokens(values, share=percent / 100)
    count = max(1, math.floor(percent / 100 * len(values) + 0.5))
    assert threshold == sorted(values, reverse=True)[count - 1]
    assert mask.sum() >= count
    assert sum(value > threshold for value in values) < count
    assert mask.tolist() == [value >= threshold for value in values]


def test_forking_tokens_of_nothing_and_wrong_shares() -> None:
    mask, threshold = forking_tokens([])
    assert (mask.size, threshold) == (0, None)
    with pytest.raises(ValueError, match="got 0"):
        forking_tokens([1.0], share=0)


def test_what_falls_on_forking_tokens(spikes_at) -> None:
    spikes = spikes_at(DATA, {("rl-9", "js"): {3: [1], 5: [2, 3]}})
    (entry,) = forking_overlaps(DATA, spikes)
    assert (entry.threshold, entry.num_forking, entry.share_tokens) == (3, 2, 0.2)
    assert entry.share_divergence["js"].mean == pytest.approx(6 / 10)
    assert entry.share_divergence["kl_forward"].mean == pytest.approx(0.2)
    assert entry.share_argmax_changed.mean == pytest.approx(2 / 3)
    assert (entry.spikes["js"].num, entry.spikes["js"].num_forking) == (3, 1)
    assert entry.spikes["js"].share.mean == pytest.approx(1 / 3)
    assert entry.spikes["kl_forward"].model_dump() == {"num": 0, "num_forking": 0, "share": None}
    assert (entry.wrong_steps.num, entry.wrong_steps.num_forking) == (2, 1)
    assert entry.wrong_steps.share.mean == 0.5
    assert entry.wrong_steps.share_tokens == pytest.approx(1 / 6)
    assert [one.model_dump() for one in entry.categories] == [
        {"category": "number", "num_tokens": 5, "num_forking": 0, "share_tokens": 0.5, "share_forking": 0.0},
        {"category": "word", "num_tokens": 5, "num_forking": 2, "share_tokens": 0.5, "share_forking": 1.0},
    ]
    dump_json(entry)


def test_all_tokens_tie(spikes_at) -> None:
    data = of_two()
    (entry,) = forking_overlaps(data, spikes_at(data))
    assert entry.share_tokens == 1
    assert entry.share_argmax_changed is None


def test_no_sequences(spikes_at) -> None:
    nothing = DATA.select(lambda one: False)
    (entry,) = forking_overlaps(nothing, spikes_at(nothing))
    assert (entry.threshold, entry.share_tokens, entry.share_divergence["js"]) == (None, None, None)
    (entropies,) = checkpoint_entropies(nothing, vocabulary_size=8)
    assert (entropies.entropy, entropies.normalised.change) == (None, None)
