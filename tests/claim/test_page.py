"""The page of a claim card: what it says of a card written by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from swerve.claim.accuracy import AccuracyPart, CoverRow, PassAtK
from swerve.claim.answers import AnswersPart, FailureRow, GainRow
from swerve.claim.behaviour import BehaviourPart, DivergenceRow
from swerve.claim.contamination import ContaminationPart, ContaminationRow
from swerve.claim.controls import ControlsPart
from swerve.claim.forgetting import ForgettingPart, ForgettingRow, TextRow
from swerve.claim.gained import GainedPart, GainedRow
from swerve.claim.page import claim_page, write_claim_figures
from swerve.claim.prompts import PromptsPart
from swerve.claim.rates import ClaimRates, Design, claim_rates
from swerve.claim.reasoning import ReasoningPart, ReasoningRow
from swerve.claim.record import ClaimCard
from swerve.claim.runs import RunsPart
from swerve.claim.verdicts import ClaimVerdict, undetermined
from swerve.claim.weights import GraftRow, MatrixRow, WeightsPart
from swerve.estimates import Estimate
from swerve.report.page import Verdict, render
from swerve.report.rows import Rows


def about(mean: float, half: float = 0.03) -> Estimate:
    return Estimate(mean=mean, low=mean - half, high=mean + half)


def verdict(claim: str, sentence: str, *, shown: bool = True, num: int = 200, null: str = "") -> ClaimVerdict:
    return ClaimVerdict(claim=claim, shown=shown, sentence=sentence, num=num, null=null)


def full_card() -> ClaimCard:
    """Return a card on which everything was measured but the controls."""
    curve = [
        (1, 0.525, 0.917),
        (2, 0.72, 0.96),
        (4, 0.87, 0.98),
        (8, 0.95, 0.99),
        (16, 0.97, 0.995),
        (32, 0.983, 0.996),
    ]
    kept = (0.0, 0.25, 0.5, 0.75, 1.0)
    own, other = (0.02, 0.1, 0.3, 0.6, 0.97), (0.02, 0.03, 0.03, 0.02, 0.02)
    return ClaimCard(
        base="base",
        trained="rl",
        task="addition",
        num_problems=200,
        num_samples=64,
        inputs="0123456789abcdef",
        runs=RunsPart(missing="needs further runs of the same training"),
        prompts=PromptsPart(missing="needs samples of the base under other prompts"),
        accuracy=AccuracyPart(
            verdicts=(
                verdict(
                    "accuracy_rose", "Accuracy rose from 52.5% to 91.7%, by 39.2 points (36.2 to 42.2)."
                ).model_copy(update={"estimate": about(0.392)}),
                verdict("better_at_every_k", "Rl is better at every k tried, 1 to 32."),
                verdict(
                    "curves_cross",
                    "Not shown: at 32 the difference is 1.3 (0.1 to 2.5).",
                    shown=False,
                    null="no difference",
                ),
            ),
            of="samples",
            greedy_base=about(0.6),
            greedy_trained=about(0.93),
            base=about(0.525),
            trained=about(0.917),
            difference=about(0.392),
            pass_at_k=tuple(
                PassAtK(
                    k=k,
                    base=about(low, 0.01),
                    trained=about(high, 0.004),
                    difference=about(high - low),
                    band=about(high - low),
                )
                for k, low, high in curve
            ),
            crossing_after=32,
            cover=tuple(CoverRow(probability=tau, base=about(0.5), trained=about(0.9)) for tau in (0.25, 0.5, 0.75)),
        ),
        gained=GainedPart(
            verdicts=(
                verdict(
                    "base_reaches_gained", "The base writes the answers to the 3 problems that only rl solved.", num=3
                ),
            ),
            both=190,
            only_base=1,
            only_trained=3,
            neither=6,
            num_samples=64,
            mean_bound=about(0.514),
            mean_own=about(0.9),
            gained=(GainedRow(problem="addition-17", right=60, bound=0.0216, samples_needed=46.3),),
        ),
        answers=AnswersPart(
            verdicts=(
                verdict("gain_by_finishing", "No part of the gain is that more samples end.", shown=False),
                verdict(
                    "gain_by_correctness",
                    "38.9 (36.0 to 42.0) of the 39.2 points are answers that are right more often.",
                ),
            ),
            failures=(
                FailureRow(
                    model="base",
                    accuracy=about(0.525),
                    truncated=0.0,
                    unparsed=0.02,
                    lenient=None,
                    abstained=0.0,
                    right_if_parsed=about(0.53),
                    tokens=about(58, 1),
                    second_grader=None,
                ),
            ),
            gains=(GainRow(part="correctness", gain=about(0.389)),),
        ),
        contamination=ContaminationPart(
            verdicts=(
                verdict("completes_questions", "Rl does not continue the questions.", shown=False, null="200 new"),
            ),
            control="200 new problems",
            completions=(
                ContaminationRow(
                    model="rl",
                    given=0.4,
                    exact=about(0.03),
                    exact_control=about(0.03),
                    rouge_l=about(0.3),
                    rouge_l_control=about(0.3),
                    right=about(0.1),
                    right_control=about(0.1),
                ),
            ),
        ),
        forgetting=ForgettingPart(
            verdicts=(
                verdict("forgot", "Accuracy on palindrome fell by 12.0 points (8.0 to 16.0).", null="no difference"),
            ),
            tasks=(ForgettingRow(task="palindrome", base=about(0.5), trained=about(0.38), difference=about(-0.12)),),
            texts=(TextRow(text="wiki.txt", base=2.5, trained=2.6, difference=0.1, tokens=10000),),
            kl_from_base=about(3.1, 0.2),
        ),
        behaviour=BehaviourPart(
            verdicts=(
                verdict("differs_beyond_noise", "The spikes lie on first wrong tokens more than noise.", num=100),
            ),
            figures=(
                DivergenceRow(
                    figure="top spike on the first wrong token", value=about(0.84), null=0.02, null_name="noise"
                ),
            ),
        ),
        weights=WeightsPart(
            verdicts=(
                verdict("part_suffices", "Rank 1 and every larger rank tried lose less than 5 points."),
                verdict("part_beyond_its_size", "Rank 1 is above all 39 random changes of its size.", num=39),
            ),
            matrices=(MatrixRow(weights="mlp", unchanged=0.1, unchanged_bf16=0.7, relative_norm=0.01, rank90=5.5),),
            grafts=tuple(
                GraftRow(graft=f"rank {rank}", energy=0.2 * rank**0.4, accuracy=about(0.9), difference=about(-0.02))
                for rank in (1, 2, 4, 8, 16)
            ),
            margin=0.05,
        ),
        reasoning=ReasoningPart(
            verdicts=(verdict("reasoning_matters", "Rl's answer rests on the reasoning before it.", null="another's"),),
            curve=tuple(
                ReasoningRow(
                    kept=place, base=about(high / 2), trained=about(high), base_other=about(low), trained_other=low
                )
                for place, high, low in zip(kept, own, other, strict=True)
            ),
        ),
        controls=ControlsPart(missing="needs --study DIR, a finished study with controls=all."),
    )


PAGE = claim_page(full_card())


def question(title: str) -> Verdict:
    return next(each for each in PAGE.verdicts if each.title == title)


def rows(title: str, id: str) -> Rows:
    fold = question(title).fold
    assert fold is not None
    return next(each for each in fold.parts if isinstance(each, Rows) and each.id == id)


def test_the_page_begins_with_the_accuracy_and_has_the_questions_in_order() -> None:
    assert PAGE.sentence == (
        "**Sampled accuracy rose**: 52.5% before and 91.7% after, +39.2 points (+36.2 to +42.2), over 200 problems, "
        "one training run."
    )
    assert PAGE.lead == (
        "Task addition: 200 problems, 64 samples of each by `base` and as many by `rl`. Claims shown: 9 of 12, in "
        "**bold** where they are over 20 cases or more. What is not shown, or not determined, may still be so."
    )
    card = full_card()
    unknown = undetermined("gain_by_format", "rl gains", "nobody knows")
    answers = card.answers.model_copy(update={"verdicts": (*card.answers.verdicts, unknown, unknown)})
    lead = claim_page(card.model_copy(update={"answers": answers})).lead
    assert "over 20 cases or more. Not determined: 2 more. What is" in lead
    measured = [
        kind.question() for name, kind in ClaimCard.kinds().items() if name not in ("runs", "prompts", "controls")
    ]
    assert [each.title for each in PAGE.verdicts] == [*measured, "What was not measured"]
    assert PAGE.verdicts[-1].lines == (
        ("Does it hold over runs? Needs further runs of the same training.", ""),
        ("Would another prompt have done it? Needs samples of the base under other prompts.", ""),
        ("Would any reward have done it? Needs --study DIR, a finished study with controls=all.", ""),
    )


def test_the_page_ends_in_intervals_date_versions_command_and_digests() -> None:
    made = ("2026-11-29", "swerve 0.1.0", "swerve claim base.jsonl rl.jsonl")
    card = full_card().model_copy(update={"made": made, "contents": ("0123456789abcdef", "fedcba9876543210", "00")})
    assert claim_page(card).provenance == (
        "95% intervals; 2026-11-29, swerve 0.1.0, swerve claim base.jsonl rl.jsonl; base 0123456789ab, rl fedcba987654"
    )


def test_a_line_says_what_is_shown_and_what_it_rests_on(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = ClaimRates(size="8 points", right=0.9, right_more=1.0, false=0.021, draws=400)
    known = dict.fromkeys(claim_rates(), rates)
    monkeypatch.setattr("swerve.claim.page.claim_rates", lambda: known)
    verdicts = {each.title: each for each in claim_page(full_card()).verdicts}
    lines = {title: each.lines for title, each in verdicts.items()}
    fold = verdicts["What was forgotten?"].fold
    assert fold is not None
    assert fold.sentences[-1] == (
        "Planted: 8 points; shown in 90 of 100, where it is 1.3 times as much in 100, where nothing is there in 2.1 "
        "(400 draws)."
    )
    assert lines["What was forgotten?"][1:] == (
        (
            "**Accuracy on palindrome fell by 12.0 points (8.0 to 16.0).**",
            "A card of two equal models shows this line in at most 3 of 100 at the size under Details",
        ),
    )
    assert lines["Did accuracy rise?"][2] == (
        "Not shown: at 32 the difference is 1.3 (0.1 to 2.5).",
        "",
    )


def test_a_line_says_how_often_it_is_false_or_what_could_have_been_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = ClaimRates(
        size="",
        right=0.9,
        right_more=1.0,
        false=0.021,
        draws=400,
        designs=(Design(num_problems=20, num_samples=64, false=0.02, size=None),),
    )
    monkeypatch.setattr("swerve.claim.page.claim_rates", lambda: dict.fromkeys(claim_rates(), rates))

    def basis(claim: str, *, shown: bool, **known: float) -> str:
        line = verdict(claim, "said", shown=shown).model_copy(update=known)
        card = full_card()
        part = card.accuracy.model_copy(update={"verdicts": (line,)})
        page = claim_page(card.model_copy(update={"accuracy": part, "num_groups": 20}))
        assert "200 problems in 20 groups, 64 samples" in page.lead
        return page.verdicts[0].lines[0][1]

    # Whole hundredths, rounded up; points as they can be used.
    chance = "A card of two equal models shows this line in at most"
    assert basis("accuracy_rose", shown=True, false_rate=0.013) == f"{chance} 2 of 100"
    assert basis("accuracy_rose", shown=True, false_rate=0.0) == f"{chance} 1 of 100"
    could = "80% of such cards would show"
    assert basis("accuracy_rose", shown=False, detectable=0.0438) == f"{could} +4 points"
    assert basis("accuracy_fell", shown=False, detectable=0.0123) == f"{could} \N{MINUS SIGN}1.2 points"
    assert basis("curves_cross", shown=False, detectable=0.06) == f"{could} \N{MINUS SIGN}6 points at the largest k"
    assert basis("base_reaches_gained", shown=False, detectable=37.6) == (
        f"{could} it where the base needs 38 samples for a right one"
    )
    # Outside what was simulated nothing is known.
    assert basis("accuracy_rose", shown=True).endswith("shows this line is not known")
    assert basis("accuracy_rose", shown=False).endswith("What size such cards show is not known")


@pytest.mark.parametrize(
    ("claim", "estimate", "more", "said"),
    [
        ("accuracy_rose", about(0.39), {}, "**Sampled accuracy rose**: 52.5% before and 91.7% after, +39.0 points"),
        (
            "accuracy_fell",
            about(-0.39),
            {},
            "**Sampled accuracy fell**: 52.5% before and 91.7% after, \N{MINUS SIGN}39.0",
        ),
        ("accuracy_rose", about(0.39), {"num_problems": 19}, "Sampled accuracy rose: 52.5%"),
        (
            "accuracy_rose",
            about(0.01, 0.1),
            {},
            "No change in sampled accuracy is to be seen: 52% before and 92% after",
        ),
    ],
)
def test_the_headline_of_each_outcome(claim: str, estimate: Estimate, more: dict[str, int], said: str) -> None:
    line = verdict(claim, "said", shown=estimate.excludes(0)).model_copy(
        update={"estimate": estimate, "detectable": 0.15}
    )
    card = full_card()
    accuracy = card.accuracy.model_copy(update={"verdicts": (line,)})
    sentence = claim_page(card.model_copy(update={"accuracy": accuracy, **more})).sentence
    assert sentence.startswith(said)
    could = "one training run; 80% of such cards would show +15 points." if not line.shown else "one training run."
    assert sentence.endswith(could)
    for of, name in (("greedy answers", "reedy accuracy"), ("answers", "ccuracy")):
        known = claim_page(card.model_copy(update={"accuracy": accuracy.model_copy(update={"of": of})}))
        assert f"{name} rose" in known.sentence or f"{name} fell" in known.sentence or f"{name} is" in known.sentence


def test_a_card_that_knows_less_than_those_simulated_does_not_say_what_they_show() -> None:
    line = verdict("gain_by_finishing", "said", shown=False).model_copy(
        update={"estimate": about(-0.27, 0.3), "detectable": 0.04}
    )
    card = full_card()
    answers = card.answers.model_copy(update={"verdicts": (line,)})
    lines = next(
        each for each in claim_page(card.model_copy(update={"answers": answers})).verdicts if "format" in each.title
    )
    assert lines.lines[0][1] == "What size such cards show is not known"


def test_few_cases_are_not_bold_and_a_reason_is_given_once() -> None:
    few = verdict("gain_by_format", "Of few.", num=19)
    unknown = [undetermined("gain_by_format", said, "nobody knows") for said in ("rl gains", "rl loses")]
    card = full_card()
    answers = card.answers.model_copy(update={"verdicts": (few, *unknown)})
    page = claim_page(card.model_copy(update={"answers": answers}))
    assert [line for line, _ in next(each for each in page.verdicts if "format" in each.title).lines] == [
        "Of few.",
        "Whether rl gains is not determined, because nobody knows.",
        "Whether rl loses is not determined, for the same reason.",
    ]


def test_near_copies_stand_beside_the_number_of_problems() -> None:
    page = claim_page(full_card().model_copy(update={"num_alike": 120, "num_problems": 200}))
    assert "200 problems (120 of 200 problems differ only in their numbers: give their group), 64 samples" in page.lead


def test_tables_write_themselves_from_their_fields() -> None:
    table = rows("Did accuracy rise?", "accuracy_pass_at_k")
    assert (table.title, table.first, [*table.columns]) == ("Pass at k", "K", ["Base", "Trained", "Difference", "Band"])
    assert table.texts[0] == ("1", "52.5% (51.5 to 53.5)", "91.7% (91.3 to 92.1)", *2 * ("+39.2 (+36.2 to +42.2)",))
    assert "Band: The same with the interval that holds for all k together." in table.note
    grafts = rows("What changed in the weights?", "weights_grafts")
    assert grafts.texts[0] == ("rank 1", "20.0%", "90.0% (87.0 to 93.0)", "\u22122.0 (\u22125.0 to +1.0)")
    fold = question("What was gained and lost?").fold
    assert fold is not None
    assert fold.sentences[:4] == ("Both: 190", "Only base: 1", "Only trained: 3", "Neither: 6")


def test_what_is_drawn() -> None:
    [curves] = rows("Did accuracy rise?", "accuracy_pass_at_k").plots
    assert (curves.x, curves.columns, curves.is_log, curves.greys[0]) == (
        (1, 2, 4, 8, 16, 32),
        ("Trained", "Base"),
        True,
        "Base",
    )
    [kept] = rows("Does the reasoning matter?", "reasoning_curve").plots
    assert kept.x == (0, 25, 50, 75, 100)
    assert question("What changed in the weights?").rows.plots[0].column == "Difference"
    assert question("Is it format or length?").rows is None


def test_the_page_is_one_offline_file_and_figures_are_files(tmp_path: Path) -> None:
    page = render(PAGE)
    assert page.count('<p class="line"><b>') == 8
    assert "This file works offline" in page
    names = {path.name for path in write_claim_figures(full_card(), tmp_path)}
    assert {"accuracy_pass_at_k.pdf", "weights_grafts.svg", "gained_gained.csv"} <= names
    assert "gained_gained.svg" not in names  # nothing to draw
    first, row, *_ = (tmp_path / "gained_gained.csv").read_text().splitlines()
    assert first.split(",") == ["problem", "right", "bound", "samples_needed"]
    assert row == "addition-17,60,0.0216,46.3"
