"""The page of a claim card: what it says of a card written by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from swerve.artifacts.excerpts import asked_problems
from swerve.artifacts.responses import Response
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
from swerve.claim.record import ClaimCard, ProblemRow
from swerve.claim.runs import RunsPart
from swerve.claim.verdicts import ClaimVerdict, undetermined
from swerve.claim.weights import GraftRow, MatrixRow, WeightsPart
from swerve.estimates import Estimate
from swerve.report.page import Verdict, render
from swerve.report.rows import Rows
from swerve.text import quoted
from swerve.types import Problem
from tests.report.opened_page import opened_data


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
        "Over 200 problems **`rl` is right more often than `base`**: 91.7% against 52.5% of sampled answers, +39.2 "
        "points (+36.2 to +42.2). One training run."
    )
    assert PAGE.lead.splitlines() == [
        "**Does it matter?** Yes: 39 more of 100 answers are right (36 to 42), 83% of the 48 that `base` gets wrong.",
        "**What was compared?** `base`, the model before training, and `rl`, the model after it: 64 answers by each to "
        "the same 200 problems: Column addition written out digit by digit (`addition`).",
        "**How sure?** Brackets are 95% intervals over problems: another training run may differ by more. Of 12 "
        "statements that could be tested 9 are shown, in **bold** from 20 problems on. One that is not "
        "shown may still be true.",
    ]
    card = full_card()
    unknown = undetermined("gain_by_format", "rl gains", "nobody knows")
    answers = card.answers.model_copy(update={"verdicts": (*card.answers.verdicts, unknown, unknown)})
    lead = claim_page(card.model_copy(update={"answers": answers})).lead
    assert lead.endswith("may still be true. 2 more are not determined: neither yes nor no.")
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
    for place in ("page", "basis"):
        monkeypatch.setattr(f"swerve.claim.{place}.claim_rates", lambda: known)
    verdicts = {each.title: each for each in claim_page(full_card()).verdicts}
    lines = {title: each.lines for title, each in verdicts.items()}
    fold = verdicts["What was forgotten?"].fold
    assert fold is not None
    assert fold.sentences[-1] == (
        "Planted: 8 points; shown in 90 of 100, where it is 1.3 times as much in 100, where nothing is there in 2.1 "
        "(400 draws)."
    )
    assert lines["What was forgotten?"][:1] == (
        (
            "**Accuracy on palindrome fell by 12.0 points (8.0 to 16.0).**",
            "Error rate of this rule: of two equal models it says so on at most 3 of 100 cards of the size under "
            "Details",
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
    known = dict.fromkeys(claim_rates(), rates)
    for place in ("page", "basis"):
        monkeypatch.setattr(f"swerve.claim.{place}.claim_rates", lambda: known)

    def basis(claim: str, *, shown: bool, **known: float) -> str:
        line = verdict(claim, "said", shown=shown).model_copy(update=known)
        card = full_card()
        part = card.accuracy.model_copy(update={"verdicts": (line,)})
        page = claim_page(card.model_copy(update={"accuracy": part, "num_groups": 20}))
        assert "64 answers by each to the same 200 problems in 20 groups" in page.lead
        return page.verdicts[0].lines[0][1]

    # Whole hundredths, rounded up; points as they can be used.
    chance = "Error rate of this rule: of two equal models it says so on at most"
    assert basis("accuracy_rose", shown=True, false_rate=0.013) == f"{chance} 2 of 100 such cards"
    assert basis("accuracy_rose", shown=True, false_rate=0.0) == f"{chance} 1 of 100 such cards"

    def could(claim: str, size: float) -> str:
        return basis(claim, shown=False, detectable=size).removesuffix(", a smaller one less often")

    shown = "would be shown on 80 of 100 such cards"
    assert could("accuracy_rose", 0.0438) == f"A true difference of +4 points {shown}"
    assert could("accuracy_fell", 0.0123) == f"A true difference of \N{MINUS SIGN}1.2 points {shown}"
    assert could("curves_cross", 0.06) == f"A true difference of \N{MINUS SIGN}6 points at the largest k {shown}"
    assert could("base_reaches_gained", 37.6) == f"It {shown} where the old model needs 38 tries for a right one"
    # Outside what was simulated nothing is known.
    unknown = "is not known: no cards like this one were simulated"
    assert basis("accuracy_rose", shown=True) == f"The error rate of this rule {unknown}"
    assert basis("accuracy_rose", shown=False) == f"How large a true difference must be to be shown here {unknown}"


@pytest.mark.parametrize(
    ("claim", "estimate", "more", "said"),
    [
        (
            "accuracy_rose",
            about(0.39),
            {},
            "Over 200 problems **`rl` is right more often than `base`**: 91.7% against 52.5% of sampled answers, +39.0",
        ),
        (
            "accuracy_fell",
            about(-0.39),
            {},
            "Over 200 problems **`rl` is right less often than `base`**: 91.7% against 52.5% of sampled answers, "
            "\N{MINUS SIGN}39.0",
        ),
        (
            "accuracy_rose",
            about(0.39),
            {"num_problems": 19},
            "Over 19 problems `rl` is right more often than `base`: 91.7%",
        ),
        (
            "accuracy_rose",
            about(0.01, 0.1),
            {},
            "Over 200 problems no change in accuracy is to be seen: `rl` is right in 92% and `base` in 52% of sampled",
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
    could = (
        "" if line.shown else " A true difference of +15 points would be shown on 80 of 100 such cards, a smaller one "
    )
    assert sentence.endswith("). One training run." if line.shown else f"{could}less often. One training run.")
    for of in ("greedy answers", "answers"):
        known = claim_page(card.model_copy(update={"accuracy": accuracy.model_copy(update={"of": of})}))
        assert f"% of {of}, " in known.sentence


@pytest.mark.parametrize(
    ("estimate", "more", "said"),
    [
        (about(0.39), {}, "Yes: 39 more of 100 answers are right (36 to 42), 81% of the 48 that `base` gets wrong."),
        (
            about(-0.26),
            {},
            "Yes, for the worse: 26 fewer of 100 answers are right (23 to 29), 50% of the 52 that `base` gets right.",
        ),
        (about(0.02), {}, "Nothing to be seen: between 1 fewer and 5 more of 100 answers are right."),
        (
            about(0.39),
            {"num_problems": 19},
            "Over 19 problems alone: 39 more of 100 answers are right (36 to 42), 81% of the 48 that `base` gets "
            "wrong.",
        ),
    ],
)
def test_whether_it_matters_is_said_in_answers_of_100(estimate: Estimate, more: dict[str, int], said: str) -> None:
    line = verdict("accuracy_rose", "said", shown=estimate.excludes(0)).model_copy(update={"estimate": estimate})
    card = full_card()
    accuracy = card.accuracy.model_copy(update={"verdicts": (line,), "base": about(0.52)})
    lead = claim_page(card.model_copy(update={"accuracy": accuracy, **more})).lead
    assert lead.splitlines()[0] == f"**Does it matter?** {said}"


def test_what_the_problems_are_stands_at_the_top() -> None:
    question = "How many  apples `are` there? " * 9
    response = Response(problem=Problem(id="p1", family="f", question=question, answer="7"), text="7", correct=True)
    written = asked_problems({"base": {"p1": [response]}, "rl": {"p1": [response]}})
    card = full_card().model_copy(update={"written": written})
    shown = " ".join(["How many apples 'are' there?"] * 3 + ["How many apples 'are'"])
    tasks = {"table": "", "openai/gsm8k": ": `openai/gsm8k`", "countdown": ": Reach a target from the given numbers"}
    for task, said in tasks.items():
        lines = claim_page(card.model_copy(update={"task": task})).lead.splitlines()
        (compared,) = (line for line in lines if "such as" in line)
        assert f"the same 200 problems{said}" in compared
        assert compared.endswith(f", such as {quoted(f'{shown} …')}.")


def test_a_card_that_knows_less_than_those_simulated_does_not_say_what_they_show() -> None:
    line = verdict("gain_by_finishing", "said", shown=False).model_copy(
        update={"estimate": about(-0.27, 0.3), "detectable": 0.04}
    )
    card = full_card()
    answers = card.answers.model_copy(update={"verdicts": (line,)})
    lines = next(
        each for each in claim_page(card.model_copy(update={"answers": answers})).verdicts if "format" in each.title
    )
    assert lines.lines[0][1].endswith("is not known: its interval is wider than on the simulated cards of this size")


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
    assert "the same 200 problems (120 of 200 problems differ only in their numbers: give their group)" in page.lead


def test_tables_write_themselves_from_their_fields() -> None:
    table = rows("Did accuracy rise?", "accuracy_pass_at_k")
    assert (table.title, table.first, [*table.columns]) == (
        "Right in at least one of k tries (pass@k)",
        "Tries k",
        ["base", "rl", "Difference", "Difference, for all k at once"],
    )
    assert table.texts[0] == ("1", "52.5% (51.5 to 53.5)", "91.7% (91.3 to 92.1)", *2 * ("+39.2 (+36.2 to +42.2)",))
    assert "Difference, for all k at once: The same with the interval that holds for all k together." in table.note
    grafts = rows("What changed in the weights?", "weights_grafts")
    assert grafts.texts[0] == ("rank 1", "20.0%", "90.0% (87.0 to 93.0)", "\u22122.0 (\u22125.0 to +1.0)")
    fold = question("What was gained and lost?").fold
    assert fold is not None
    figures = next(each for each in fold.parts if isinstance(each, Rows) and each.id == "gained_figures")
    assert figures.texts[:4] == (
        ("Both", "190", ""),
        ("Only base", "1", ""),
        ("Only rl", "3", ""),
        ("Neither", "6", ""),
    )


def test_what_is_drawn() -> None:
    [curves] = rows("Did accuracy rise?", "accuracy_pass_at_k").plots
    assert (curves.x, curves.columns, curves.is_log, curves.greys[0]) == (
        (1, 2, 4, 8, 16, 32),
        ("rl", "base"),
        True,
        "base",
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


def test_a_row_of_a_problem_opens_what_both_models_wrote() -> None:
    written = asked_problems({"base": {"p1": [_answer("<b>6</b>", False)]}, "rl": {"p1": [_answer("7", True)]}})
    by_problem = [
        ProblemRow(problem=name, base_right=0, base_samples=1, trained_right=right, trained_samples=1)
        for name, right in (("p0", 0), ("p1", 1))
    ]
    card = full_card().model_copy(update={"written": written, "by_problem": tuple(by_problem)})
    page = claim_page(card)
    evidence = getattr(page.sentence, "evidence", None)
    assert evidence is not None
    # What changed most comes first; the page says of how many problems it holds answers.
    assert [f"{evidence.opens}{name}" in page.held for name in evidence.columns["problem"]] == [True, False]
    assert "those of 1 of 2 problems" in evidence.note
    text = render(page)
    asked = opened_data(text)["held"][f"{evidence.opens}p1"]
    assert [answer["text"] for answer in asked["answers"]] == ["<b>6</b>", "7"]
    assert "<b>6</b>" not in text
    # Without answers nothing is promised.
    without = claim_page(card.model_copy(update={"written": ()})).sentence
    assert not without.evidence.opens  # type: ignore[attr-defined]


def _answer(text: str, right: bool) -> Response:
    problem = Problem(id="p1", family="math", question="What?", answer="7")
    return Response(problem=problem, text=text, correct=right)


def test_a_model_may_be_called_as_another_column() -> None:
    row = ProblemRow(problem="p", base_right=0, base_samples=1, trained_right=1, trained_samples=1)
    card = full_card().model_copy(update={"base": "problem", "trained": "both", "by_problem": (row,)})
    solved = next(line.evidence for line, _ in question_of(card, "gained").lines if "alone solved" in line)
    assert [*solved.columns] == ["problem", "model problem", "model both", "both", "neither"]


def question_of(card: ClaimCard, name: str) -> Verdict:
    return next(each for each in claim_page(card).verdicts if each.id == f"part-{name}")


def test_a_card_is_read_as_it_was_written_and_one_of_an_earlier_version_as_far_as_it_goes(tmp_path: Path) -> None:
    written = asked_problems({"base": {"p1": [_answer("6", False)]}, "rl": {"p1": [_answer("7", True)]}})
    row = ProblemRow(problem="p1", base_right=0, base_samples=1, trained_right=1, trained_samples=1)
    card = full_card().model_copy(update={"written": written, "by_problem": (row,)})
    card.write(tmp_path / "claim.json")
    again = ClaimCard.read(tmp_path / "claim.json", remedy="")
    assert again == card
    again.write(tmp_path / "again.json")
    assert render(claim_page(ClaimCard.read(tmp_path / "again.json", remedy=""))) == render(claim_page(again))
    # Without what later versions added, and with the names of its time.
    fields = card.model_dump(mode="json", exclude={"written"})
    fields["accuracy"]["of"] = "samples"
    earlier = ClaimCard.model_validate(fields)
    page = claim_page(earlier)
    assert (page.held, earlier.written) == ({}, ())
    assert "91.7% against 52.5% of sampled answers" in page.sentence
