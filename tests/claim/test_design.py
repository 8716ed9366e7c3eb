"""The size of a card: rates between those measured, near-copies, and groups from a file to the page."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import swerve
from swerve.claim import design
from swerve.claim.design import CardSize, num_alike
from swerve.claim.page import claim_page
from swerve.claim.rates import ClaimRates, Design
from swerve.claim.record import ClaimCard
from swerve.claim.runs import runs_part
from swerve.claim.verdicts import ClaimVerdict
from swerve.errors import ConfigError, SwerveError
from swerve.statistics.clusters import by_cluster
from swerve.statistics.paired import paired_interval

RATES = ClaimRates(
    size="",
    right=0.8,
    right_more=0.9,
    false=0.02,
    draws=1,
    designs=tuple(
        Design(num_problems=num, num_samples=samples, num_runs=runs, false=false, size=size)
        for num, samples, runs, false, size in [
            (10, 1, 1, 0.01, 0.8),
            (40, 1, 1, 0.03, 0.2),
            (10, 16, 1, 0.02, 0.4),
            (40, 16, 1, 0.02, 0.1),
            (160, 1, 1, 0.02, None),
            (160, 16, 1, 0.02, 0.05),
            (10, 1, 3, 0.04, 0.5),
        ]
    ),
)


def test_rates_are_those_measured_or_lie_between_them() -> None:
    at = RATES.at(40, 16)
    assert at is not None
    assert (at.false, at.size) == (0.02, pytest.approx(0.1))
    # Half way by the logarithm in problems (20 of 10 and 40), and in samples (4 of 1 and 16): a geometric mean.
    half = RATES.at(20, 4)
    assert half is not None
    assert half.false == pytest.approx((0.01 + 0.03 + 0.02 + 0.02) / 4)
    assert half.size == pytest.approx((0.8 * 0.2 * 0.4 * 0.1) ** 0.25)


def test_outside_what_was_measured_nothing_is_known() -> None:
    assert [RATES.at(*size) for size in ((9, 1), (161, 1), (40, 17), (40, 1, 2), (10, 4, 3))] == [None] * 5
    of_runs, without_size = RATES.at(10, 1, 3), RATES.at(80, 1)
    assert of_runs is not None
    assert of_runs.false == 0.04
    assert without_size is not None
    assert (without_size.false, without_size.size) == (pytest.approx(0.025), None)


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        ([f"Ann has {n} pens." for n in range(10)] + [f"What is {n}?" for n in range(10)], 20),
        ([f"Ann has {n} pens." for n in range(10)], 0),  # all of one text: they are what is asked
        (["Ann has 1 pen.", "Ann has 2 pens.", "What?", "Why?"], 0),
        # Two of nine alike: the variance is 1 + 2 / 9 as large, and of eight 1 + 2 / 8.
        ([f"Say {n}" for n in range(2)] + [f"Say {word}" for word in "abcdefg"], 0),
        ([f"Say {n}" for n in range(2)] + [f"Say {word}" for word in "abcdef"], 2),
        (["1 2 + 3 =", "4 + 3 5 =", "use 3, 4.5", "use -2"], 4),
        ([""] * 9, 0),
    ],
)
def test_near_copies(texts: list[str], found: int) -> None:
    assert num_alike([("imported", text) for text in texts]) == found


def test_a_line_has_the_rates_of_its_groups_and_warns_of_near_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(design, "claim_rates", lambda: {"accuracy_rose": RATES, "accuracy_rose_over_runs": RATES})
    line = ClaimVerdict(claim="accuracy_rose", shown=True, sentence="rl is right more often: +9 points.", num=400)
    size = CardSize(num_problems=400, num_groups=40, num_alike=0, num_samples=16)
    told = size.told(line)
    assert (told.false_rate, told.detectable, told.sentence) == (0.02, pytest.approx(0.1), line.sentence)
    alike = CardSize(num_problems=40, num_groups=None, num_alike=30, num_samples=16).told(line)
    assert (alike.false_rate, alike.detectable) == (None, None)
    assert alike.sentence == (
        "rl is right more often: +9 points. 30 of 40 problems differ only in their numbers: give their group."
    )
    over = CardSize(num_problems=10, num_groups=None, num_alike=0, num_samples=1, num_runs=3)
    assert over.told(line.model_copy(update={"claim": "accuracy_rose_over_runs"})).false_rate == 0.04


def test_clusters_of_columns_keep_the_means_of_rows() -> None:
    table = np.array([[0.0, 1.0, 1.0, 0.5], [1.0, 1.0, 0.0, 0.0]])
    # Equal sizes: the clusters' means.
    assert by_cluster(table, ["a", "b", "a", "b"]).tolist() == [[0.5, 0.75], [0.5, 0.5]]
    # Unequal ones: m + (sum - m n) C / N, with m = .625 and 3 and 1 columns: .625 +- .125 * 2 / 4.
    uneven = by_cluster(table, ["a", "a", "a", "b"])
    assert uneven[0].tolist() == [0.6875, 0.5625]
    assert uneven.mean(axis=1).tolist() == table.mean(axis=1).tolist()


def test_runs_of_one_group_are_not_determined() -> None:
    base, runs = np.array([0.2, 0.4]), np.array([[0.5, 0.5], [0.6, 0.7]])
    part = runs_part(["rl", "rl-2"], base, runs, clusters=["a", "a"])
    assert (part.difference, part.verdicts[0].shown) == (None, None)
    assert part.verdicts[0].sentence.startswith(
        "Whether 2 runs of `rl` are right more often than `base` is not determined, because an interval over runs takes"
    )


# From files to the page.


def write(path: Path, rights: np.ndarray, *, template: bool) -> Path:
    rows = [
        {"id": f"p{number}", "problem": f"Template {'abcdefgh'[number % 8]} of {number}?", "response": f"{sample}"}
        | {"sample": sample, "correct": bool(right)}
        | ({"template": f"t{number % 8}"} if template else {})
        for number, own in enumerate(rights)
        for sample, right in enumerate(own)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path, np.ndarray]:
    rng = np.random.default_rng(3)
    chances = np.tile(rng.random(8), 10)
    rights = np.array([rng.random((80, 4)) < each[:, None] for each in (0.8 * chances, chances)])
    base, trained = (
        write(tmp_path / f"{name}.jsonl", own, template=True) for name, own in zip(("b", "t"), rights, strict=True)
    )
    return base, trained, rights.mean(axis=2)


def card_of(pair: tuple[Path, Path, np.ndarray], out: Path, **options: object) -> ClaimCard:
    card = swerve.claim(pair[0], pair[1], out=out, progress=False, **options)  # type: ignore[arg-type]
    assert card is not None
    return card


def test_groups_of_a_file_make_the_intervals(pair: tuple[Path, Path, np.ndarray], tmp_path: Path) -> None:
    card = card_of(pair, tmp_path / "card", fields={"group": "template"})
    names = [f"t{number % 8}" for number in range(80)]
    assert card.accuracy.difference == paired_interval(pair[2][1] - pair[2][0], clusters=names)
    assert (card.num_problems, card.num_groups, card.num_alike) == (80, 8, 0)
    assert "4 answers by each to the same 80 problems in 8 groups" in claim_page(card).lead


def test_near_copies_without_groups_are_told_in_the_line(pair: tuple[Path, Path, np.ndarray], tmp_path: Path) -> None:
    card = card_of(pair, tmp_path / "card")
    assert (card.num_groups, card.num_alike) == (None, 80)
    assert card.accuracy.verdicts[0].sentence.endswith(
        " 80 of 80 problems differ only in their numbers: give their group."
    )
    # With groups it is another card, and not the same.
    with pytest.raises(ConfigError, match="has a card of other models, problems or settings"):
        card_of(pair, tmp_path / "card", fields={"group": "template"})


def test_a_field_that_is_not_there_or_not_read_is_an_error(pair: tuple[Path, Path, np.ndarray], tmp_path: Path) -> None:
    with pytest.raises(SwerveError, match="has no field 'templates'"):
        card_of(pair, tmp_path / "card", fields={"group": "templates"})
    with pytest.raises(ConfigError, match="unknown name 'groups'"):
        card_of(pair, tmp_path / "card", fields={"groups": "template"})


def test_a_problem_has_one_group(pair: tuple[Path, Path, np.ndarray], tmp_path: Path) -> None:
    text = pair[1].read_text()
    pair[1].write_text(text.replace('"template": "t0"', '"template": "t1"', 1))
    with pytest.raises(SwerveError, match="group"):
        card_of(pair, tmp_path / "card", fields={"group": "template"})


@pytest.mark.parametrize(
    ("temperature", "said"),
    [(0.0, "greedy answers"), (1.0, "sampled answers"), (None, "(greedy or sampled: not recorded)")],
)
def test_answers_are_called_as_a_field_of_their_file_says(tmp_path: Path, temperature: float | None, said: str) -> None:
    files = []
    for name in ("base", "rl"):
        rows = [{"id": f"p{number}", "question": f"{number}?", "correct": number % 2 == 0} for number in range(8)]
        rows = rows if temperature is None else [{**row, "temperature": temperature} for row in rows]
        files.append(tmp_path / f"{name}.jsonl")
        files[-1].write_text("".join(json.dumps({**row, "response": "x"}) + "\n" for row in rows))
    card = swerve.claim(*files, out=tmp_path / "card", progress=False)
    assert card is not None
    assert said in card.accuracy.verdicts[0].sentence
