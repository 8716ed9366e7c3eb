"""What a study says, for each outcome, over planted runs that are compared as those of a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from swerve.artifacts.study import Study, StudyRun, StudyTrend
from swerve.config.recipe import ReportConfig
from swerve.report.evidence import Evidence, evidence_of
from swerve.report.page import Verdict
from swerve.report.study import study_page
from swerve.report.study_sentences import alike, detectable_words, headline, varied, verdicts
from swerve.study.compare import compare_runs
from swerve.study.measure import MeasuredRun
from swerve.study.study_file import StudyFile

PROBLEMS = 100


def planted(
    right: Mapping[str, Sequence[int]], *, by_problem: bool = True, changes: Mapping[str, Any] = {}, **others: Any
) -> Study:
    """Return the comparison of runs of variants with as many right answers of 100 as are given for each seed.

    `others` are values of other measures, for each variant a list over its seeds.
    """
    runs = []
    for variant, counts in right.items():
        for seed, count in enumerate(counts):
            values = {measure: by_variant[variant][seed] for measure, by_variant in others.items()}
            run = StudyRun(
                variant=variant, seed=seed, path=f"{variant}/{seed}", state="trained", checkpoint="rl-4",
                values={"accuracy": count / PROBLEMS, **values},
            )  # fmt: skip
            # Which problems are right moves with the seed.
            answers = {f"p{place}": float((place + 7 * seed) % PROBLEMS < count) for place in range(PROBLEMS)}
            runs.append(MeasuredRun(run=run, by_problem={"accuracy": answers} if by_problem else {}))
    study = StudyFile.model_construct(
        name="planted",
        recipe="r",
        variants={variant: changes.get(variant, {}) for variant in right},
        seeds=tuple(range(max(map(len, right.values())))),
        confidence=0.95,
    )
    return compare_runs(study, runs)


def plain(text: str) -> str:
    return text.replace("\N{MINUS SIGN}", "-")


def test_runs_of_different_tasks_are_said_to_be_first() -> None:
    study = planted({"none": (50,), "kl": (70,)})
    tasks = {"none": "addition", "kl": "multiplication"}
    apart = study.model_copy(
        update={"runs": type(study.runs)(run.model_copy(update={"task": tasks[run.variant]}) for run in study.runs)}
    )
    said = "These are different tasks: `none` addition and `kl` multiplication. A difference in what they get right"
    assert plain(headline(apart)).startswith(f"{said} is one of the problems, too. The runs differ in no setting. ")
    assert "different tasks" not in headline(study)


def told(study: Study) -> dict[str, str]:
    """Return the verdicts but the plot's, by title."""
    return {plain(each.title): plain(each.text) for each in verdicts(study) if each.rows is None}


HIGHER = {"none": (50, 52, 54), "kl": (70, 73, 73)}
LOWER = {"none": (70, 73, 73), "kl": (50, 52, 54)}
ALIKE = {"none": (50, 55, 60), "kl": (56, 52, 58)}


@pytest.mark.parametrize(
    ("right", "said", "verdict", "rests_on"),
    [
        (
            HIGHER,
            "Over 3 seeds `kl` has a higher greedy accuracy than `none`: 72.0% against 52.0%, +20.0 points "
            "(+17.5 to +22.5).",
            "`kl`: +20.0 points (+17.5 to +22.5)",
            "Higher over 3 seeds, p < 0.001.",
        ),
        (
            LOWER,
            "Over 3 seeds `kl` has a lower greedy accuracy than `none`: 52.0% against 72.0%, -20.0 points (-22.5 "
            "to -17.5).",
            "`kl`: -20.0 points (-22.5 to -17.5)",
            "Lower over 3 seeds, p < 0.001.",
        ),
        (
            ALIKE,
            "Over 3 seeds no difference in greedy accuracy is to be seen between `kl` and `none`: 55% against "
            "55%, +0.3 "
            "points (-12 to +13).",
            "`kl`: +0.3 points (-12 to +13)",
            "No difference is to be seen over 3 seeds, p = 0.92. A true difference of 16 points would be shown "
            "by 80 of 100 "
            "such studies.",
        ),
    ],
)
def test_the_outcome_over_seeds(right: Any, said: str, verdict: str, rests_on: str) -> None:
    study = planted(right)
    assert plain(headline(study)) == f"The variants differ in no setting. {said}"
    assert told(study)[verdict] == rests_on


def test_the_outcome_over_problems_is_of_these_runs_alone() -> None:
    alone = "It is of these runs alone: another training run may come out otherwise."
    study = planted({"none": (50,), "kl": (70,)})
    assert headline(study) == (
        "The runs differ in no setting. Over 100 problems **`kl` has a higher greedy accuracy than `none`**: 70.0% "
        "against 50.0%, +20.0 points (+12.0 to +28.0). One training run each."
    )
    assert told(study)["`kl`: +20.0 points (+12.0 to +28.0)"] == f"Higher over 100 problems, p < 0.001. {alone}"
    same = planted({"none": (50,), "kl": (51,)})
    assert "Over 100 problems **no difference in greedy accuracy is to be seen" in headline(same)
    assert told(same)["`kl`: +1.0 points (-2.4 to +4.4)"] == (
        f"No difference is to be seen over 100 problems, p = 0.50. A true difference of 3 points would be shown "
        "by 80 of "
        f"100 such studies. {alone}"
    )


def test_what_could_not_be_asked_is_not_determined() -> None:
    study = planted({"none": (50,), "kl": (70,)}, by_problem=False)
    assert headline(study) == (
        "The runs differ in no setting. Whether `kl` differs from `none` in greedy accuracy is not determined, because "
        "there is one seed: 70% against 50%. One training run each."
    )
    assert told(study)["`kl`: +20.0 points"] == "Not determined, because there is one seed."


def test_few_problems_are_not_bold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.report.test_study_sentences.PROBLEMS", 19)
    assert "Over 19 problems `kl` has a higher" in headline(planted({"none": (2,), "kl": (17,)}))


def test_many_variants_are_counted() -> None:
    names = {f"v{number}": (50 + number, 50 - number, 50) for number in range(1, 4)}
    study = planted({"none": (50, 52, 54), "up": (90, 92, 93), "down": (10, 12, 13), **names})
    assert headline(study) == (
        "The variants differ in no setting. Of 5 variants, compared with `none`: 1 with a higher greedy accuracy "
        "(`up`), 1 with a lower greedy accuracy (`down`) and 3 without a difference to be seen (`v1`, `v2` and `v3`)."
    )


def test_a_rule_named_before_has_the_last_word(judged: Study) -> None:
    (rule,) = judged.verdicts

    def said(verdict: str, words: str) -> tuple[str, str]:
        study = judged.model_copy(update={"verdicts": (rule.model_copy(update={"verdict": verdict, "words": words}),)})
        return plain(headline(study)).partition(". ")[2], told(study)["`kl`: +10 points (-11 to +31)"]

    over = "Over 3 seeds `kl` is"
    assert said("equivalent", "equivalent within 5 points; lr=0.1 of kl is at the end of what was tried") == (
        f"{over} equivalent within 5 points in greedy accuracy, compared with `none`: 60% against 50%, +10 points "
        "(-11 to +31).",
        "Equivalent within 5 points over 3 seeds, p = 0.30. Lr=0.1 of kl is at the end of what was tried.",
    )
    assert said("refuted", "not better by 5 points or more")[0] == (
        f"{over} not better by 5 points or more in greedy accuracy, compared with `none`: 60% against 50%, +10 "
        "points (-11 to +31)."
    )
    assert said("inconclusive", "inconclusive: none is at 98.0%, above the ceiling of 97.0%") == (
        "Whether `kl` differs from `none` in greedy accuracy is not determined, because none is at 98.0%, above the "
        "ceiling of 97.0%: 60% against 50%.",
        "Not determined, because none is at 98.0%, above the ceiling of 97.0%.",
    )


def test_other_measures_that_were_not_tested_are_not_no() -> None:
    one_seed = planted(
        {"none": (50,), "kl": (70,)},
        sampled_accuracy={"none": (0.375,), "kl": (0.908,)},
        entropy={"none": (0.017,), "kl": (0.01,)},
    )
    title = "Other measures were not tested: one seed each"
    assert told(one_seed)[title] == "The largest gap: sampled accuracy, 91% against 38%."
    # Without a share it is the largest in proportion.
    nats = planted({"none": (50,), "kl": (70,)}, entropy={"none": (0.017,), "kl": (0.01,)})
    assert told(nats)[title] == "The largest gap: token entropy, 0.0100 against 0.0170 nats."
    same = planted({"none": (50,), "kl": (70,)}, entropy={"none": (0.01,), "kl": (0.01,)})
    assert told(same)[title] == "They are the same wherever both are known."


def test_other_measures_that_were_tested() -> None:
    study = planted(
        HIGHER,
        sampled_accuracy={"none": (0.5, 0.6, 0.4), "kl": (0.51, 0.55, 0.47)},
        entropy={"none": (0.017, 0.018, 0.016), "kl": (0.010, 0.0112, 0.0093)},
        length={"none": (59.0,) * 3, "kl": (60.0,) * 3},
    )
    others = next(each for each in verdicts(study) if each.id == "others")
    assert others.title == "Of 2 differences in other measures 1 is shown"
    assert others.text == (
        "Where nothing differs, about 5 in 100 would be. One more was not tested: all seeds differ alike, which leaves "
        "nothing to compare with."
    )
    ((line, test),) = others.lines
    assert plain(line) == ("Token entropy of `kl`: 0.0102 against 0.0170 nats, -0.00683 nats (-0.00721 to -0.00645).")
    assert test == "p < 0.001"
    none = planted(HIGHER, sampled_accuracy={"none": (0.5, 0.6, 0.4), "kl": (0.51, 0.55, 0.47)})
    assert told(none)["Of 1 difference in other measures none is shown"] == (
        "The largest gap: sampled accuracy, 51% against 50%."
    )


def test_findings_from_elsewhere_are_found_or_not_or_not_tested() -> None:
    def trends(*shown: bool | None) -> Verdict:
        entries = tuple(
            StudyTrend(variant="kl", measure="accuracy", expected="rises", is_shown=one, num_runs=1, num_shown=1,
                       change=None)
            for one in shown
        )  # fmt: skip
        return [*verdicts(planted(HIGHER).model_copy(update={"trends": entries}))][2]

    below = "All stand below, with their numbers."
    for shown, title, text in (
        ((True,), "Of 1 finding from elsewhere 1 is found here too", "kl: Greedy accuracy rises. "),
        ((False, False), "Of 2 findings from elsewhere none is found here too", ""),
        (
            (True, False, None),
            "Of 2 findings from elsewhere 1 is found here too",
            "kl: Greedy accuracy rises. 1 more was not tested: too few points or seeds. ",
        ),
        ((None,), "1 finding from elsewhere was not tested: too few points or seeds", ""),
    ):
        verdict = trends(*shown)
        assert (verdict.title, verdict.text) == (title, text + below)


def test_settings_are_named_as_people_call_them() -> None:
    def differ(*changes: Mapping[str, Any]) -> list[str]:
        names = dict(zip("abcdef", changes, strict=False))
        return varied(planted(dict.fromkeys(names, (50,)), changes=names))

    steps = [{"stages.rl.steps": rl, "stages.sft.steps": sft} for rl, sft in ((80, 500), (10, 300))]
    places = [{f"stages.rl.checkpoints.{place}": step for place in range(4)} for step in (1, 2)]
    assert differ(*({**some, **more} for some, more in zip(places, steps, strict=True))) == [
        "RL steps (80, 10)",
        "SFT steps (500, 300)",
        "RL checkpoints",
    ]
    # Of many keys below one setting it is the setting that differs, and a value that is not known is not made up.
    keys = ("kind", "coef", "reference")
    assert differ(*({f"stages.rl.kl.{key}": value for key in keys} for value in (1, 2))) == ["RL KL"]
    assert differ({}, {"stages.rl.kl.coef": 0.1}) == ["RL KL coef"]
    assert differ(*({"seed": number} for number in range(5))) == ["seed"]


def test_runs_of_one_recipe() -> None:
    study = planted({"none": (50, 52, 54)})
    assert headline(study) == "Over 3 seeds greedy accuracy is 52.0% (47.0 to 57.0)."
    assert [each.title for each in alike(study)] == ["Greedy accuracy is 50.0% to 54.0% in 3 runs."]
    same = planted({"none": (50, 50)})
    assert [each.title for each in alike(same)] == ["Greedy accuracy is 50.0% in each of 2 runs."]
    one = planted({"none": (50,)})
    assert headline(one) == "Greedy accuracy is 50%: one training run."
    assert [each.title for each in alike(one)] == ["Greedy accuracy is 50.0% in the one run."]


def assert_made_of_its_rows(study: Study) -> int:
    """Check that every number that the rows behind a sentence give stands in it; return how many there are."""
    page = study_page(study, options=ReportConfig())
    said: list[tuple[str, Evidence]] = [(page.sentence, each) for each in evidence_of(page.sentence)]
    for verdict in page.verdicts:
        said += [(f"{verdict.title} {verdict.text}", each) for each in evidence_of(verdict)]
        said += [(line, each) for line, _ in verdict.lines for each in evidence_of(line)]
    for text, evidence in said:
        assert [figure.name for figure in evidence.missing_in(text)] == [], text
    return sum(len(evidence.figures) for _, evidence in said)


def test_every_number_of_a_sentence_comes_from_the_rows_that_it_opens(study: Study, judged: Study) -> None:
    one_seed = planted(
        {"none": (50,), "kl": (70,)},
        sampled_accuracy={"none": (0.375,), "kl": (0.908,)},
        entropy={"none": (0.017,), "kl": (0.01,)},
    )
    assert assert_made_of_its_rows(one_seed) == 11
    several = planted(
        HIGHER,
        sampled_accuracy={"none": (0.5, 0.6, 0.4), "kl": (0.51, 0.55, 0.47)},
        entropy={"none": (0.017, 0.018, 0.016), "kl": (0.010, 0.0112, 0.0093)},
    )
    assert assert_made_of_its_rows(several) == 15
    three = planted({"none": (50, 52, 54), "up": (90, 92, 93), "down": (10, 12, 13)})
    assert assert_made_of_its_rows(three) == 14
    for same_recipe in ({"none": (50, 52, 54)}, {"none": (50, 50)}, {"none": (50,)}):
        assert assert_made_of_its_rows(planted(same_recipe)) > 1
    for literal in (study, judged):
        assert assert_made_of_its_rows(literal) > 2
    # Other rows are noticed.
    pairs = next(evidence_of(headline(several)))
    assert replace(pairs, columns={**pairs.columns, "kl": (0.1, 0.2, 0.3)}).missing_in(headline(several))


def test_what_a_study_can_find_says_what_it_rests_on(study: Study) -> None:
    assert detectable_words(study.detectable) == (
        "Over 3 seeds a true difference of 10 points in greedy accuracy would be shown by 80 of 100 such studies; the "
        "difference is taken to vary by 3 points from seed to seed (standard deviation). One problem decides nothing."
    )
    seeds, _ = study.detectable
    several = seeds.model_copy(update={"num_comparisons": 3, "is_assumed": False})
    assert detectable_words([several]) == (
        "Over 3 seeds a true difference of 10 points in greedy accuracy would be shown by 80 of 100 such "
        "studies, if it "
        "is the clearest of 3 (Holm); the difference varies by 3 points from seed to seed (standard deviation)."
    )
    one = seeds.model_copy(update={"num": 1, "difference": None})
    assert detectable_words([one]) == "One seed shows nothing of another training run."
