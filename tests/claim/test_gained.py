"""What was gained: the base's probability of right answers against all completions enumerated, and counts."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

import swerve
from swerve.artifacts.responses import Response
from swerve.claim.gained import GainedPart, GainedRow, reached
from swerve.claim.work import NotMeasuredError, Work
from swerve.estimates import Estimate
from swerve.models.model_folder import load_tokenizer
from swerve.types import Problem
from tests.claim.planted.models import RIGHT, WRONG, bigram_model, success, table_settings, write_problems

ANSWERS = {"add": {RIGHT: 0.75, "well": 0.25}, "well": {RIGHT: 1.0}, "subtract": {WRONG: 1.0}}
BASE = {
    "often": {"add": 0.2, "subtract": 0.8},
    "rare": {"add": 1 / 256, "subtract": 255 / 256},
    "never": {"add": 0.0, "subtract": 1.0},
    **ANSWERS,
}
TRAINED = {**BASE, **{word: {"add": 0.9, "subtract": 0.1} for word in ("often", "rare", "never")}}
QUESTIONS = ["1 often", "2 rare", "3 never"]


def card(folder, trained, *, ends=()):
    words = [*"123", *BASE]
    models = [bigram_model(folder / name, chains, words=words) for name, chains in (("base", BASE), ("rl", trained))]
    if ends:  # words with which the base ends a completion, too
        tokenizer, path = load_tokenizer(models[0]), models[0] / "generation_config.json"
        ids = [tokenizer.eos_token_id, *tokenizer.convert_tokens_to_ids(list(ends))]
        path.write_text(json.dumps({**json.loads(path.read_text()), "eos_token_id": ids}))
    problems = write_problems(folder / "problems.jsonl", QUESTIONS)
    settings = table_settings(problems, num_samples=32, parts=("gained",))
    return swerve.claim(*models, settings, out=folder / "card", progress=False).gained


def test_the_bound_is_the_chance_where_all_right_completions_were_written(tmp_path):
    part = card(tmp_path, TRAINED)
    chances = [success(BASE, question) for question in QUESTIONS]
    assert chances == pytest.approx([0.2, 1 / 256, 0.0])
    assert part.mean_bound.mean == pytest.approx(sum(chances) / 3, rel=1e-6)
    assert part.mean_own.mean == pytest.approx(0.9, rel=1e-6)
    assert (part.both, part.only_base, part.only_trained, part.neither) == (1, 0, 2, 0)
    rare, never = part.gained
    assert (rare.bound, rare.samples_needed) == (pytest.approx(1 / 256, rel=1e-6), pytest.approx(256, rel=1e-6))
    assert never.bound < 1e-16
    assert [verdict.shown for verdict in part.verdicts] == [True]
    assert part.verdicts[0].sentence == ("Of 2 problems new after RL `base` should solve 1 within 320 tries of each.")


def test_the_bound_is_below_the_chance_where_some_were_not_written(tmp_path):
    part = card(tmp_path, {**TRAINED, "add": {RIGHT: 1.0}})  # never by way of "well", which the base takes
    assert part.mean_bound.mean == pytest.approx(0.75 * (0.2 + 1 / 256) / 3, rel=1e-6)
    assert part.gained[0].samples_needed == pytest.approx(256 / 0.75, rel=1e-6)
    assert [verdict.shown for verdict in part.verdicts] == [False]


def test_texts_at_which_the_base_would_have_ended_earlier_are_not_its_own(tmp_path):
    part = card(tmp_path, TRAINED, ends=("well",))
    assert part.mean_bound.mean == pytest.approx(0.75 * (0.2 + 1 / 256) / 3, rel=1e-6)


def responses(right: int, of: int, name: str) -> list[Response]:
    problem = Problem(id=name, family="table", question=name, answer="7")
    return [Response(problem=problem, correct=index < right, finish_reason="stop") for index in range(of)]


class Counted:
    """Samples without models, or with these."""

    def __init__(self, base, trained, models=None):
        self.base, _ = self.sides = SimpleNamespace(label="base"), SimpleNamespace(label="rl")
        self.samples = tuple(
            {f"p{index}": responses(right, of, f"p{index}") for index, right in enumerate(counts)}
            for counts, of in (base, trained)
        )
        self._models = models
        self.counts, self.clusters = Work.counts.func(self), None

    @property
    def models(self):
        if self._models is None:
            raise NotMeasuredError("needs the two models; files of samples were given")
        return self._models


def test_of_samples_alone_there_are_counts():
    part = GainedPart.measure(Counted(([0, 0, 1, 2, 4], 4), ([0, 2, 0, 3, 3], 4)))
    assert (part.both, part.only_base, part.only_trained, part.neither) == (2, 1, 1, 1)
    assert (part.mean_bound, part.gained, part.verdicts) == (None, (), ())
    assert part.notes == ("The bound without sampling needs the two models; files of samples were given.",)
    assert 0 < part.newly_solved.mean < 2 <= part.newly_solved_at_most


def test_of_few_samples_it_is_not_determined_what_more_would_solve():
    part = GainedPart.measure(Counted(([0, 0, 1, 2, 3], 3), ([0, 2, 0, 3, 3], 4)))
    assert (part.both, part.neither, part.newly_solved, part.newly_solved_at_most) == (2, 1, None, None)
    assert part.notes[0] == (
        "How many more problems as many samples again would solve is not determined: most problems have 3 samples, and "
        "it takes 4."
    )


@pytest.mark.parametrize(
    ("bounds", "shown"),
    [
        ([1 / 160], [True]),
        ([1 / 160.1], [False]),
        ([0.3, 0.0], [True]),
        ([0.3, 1 / 200, 0.0], [False]),
        ([], []),
    ],
)
def test_half_of_the_gained_problems_are_needed(bounds, shown):
    rows = [GainedRow(problem="p", right=1, bound=bound, samples_needed=None) for bound in bounds]
    assert [verdict.shown for verdict in reached("base", rows, 16)] == shown


def test_one_gained_problem_decides_nothing():
    def said(bound: float) -> str:
        return reached("base", [GainedRow(problem="p", right=1, bound=bound, samples_needed=None)], 64)[0].sentence

    nothing = "One problem decides nothing."
    assert said(0.0216) == f"One problem is new after RL, and `base` should solve it in about 46 tries. {nothing}"
    assert said(0.0) == f"One problem is new after RL, and `base` is not seen to solve it within 640 tries. {nothing}"
    rows = [GainedRow(problem="p", right=1, bound=bound, samples_needed=None) for bound in (0.1, 0.0, 0.0)]
    assert reached("base", rows, 64)[0].sentence == (
        "Of 3 problems new after RL `base` should solve 1 within 640 tries of each; whether it would the others is not "
        "known."
    )


def test_what_was_solved_is_a_sentence():
    part = GainedPart(both=113, only_base=0, only_trained=7, neither=1200)
    counts = "Of 1,320 problems `rl` alone solved 7, `base` alone 0, both 113 and neither 1,200."
    assert part.facts("base", "rl") == [counts]
    more = part.model_copy(update={"newly_solved": Estimate(mean=3.9, low=1.0, high=7.0)})
    assert (
        more.facts("base", "rl")[1]
        == "With as many answers again `base` should solve about 3.9 (1.0 to 7.0) problems more; a 90% interval."
    )
