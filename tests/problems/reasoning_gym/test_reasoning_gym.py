from __future__ import annotations

import json
import random
import sys
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swerve.errors import ConfigError, MissingExtraError
from swerve.problems import load_family
from swerve.problems.prompt import PromptConfig
from swerve.problems.reasoning_gym.reasoning_gym import ReasoningGym, ReasoningGymTask, encode_entry
from swerve.problems.reasoning_gym.scoring import decode_entry

reasoning_gym = pytest.importorskip("reasoning_gym")

JSON_AND_MORE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.sets(st.integers() | st.text(), max_size=3)
        | st.dictionaries(st.text(), inner, max_size=3)
        | st.dictionaries(st.integers() | st.tuples(st.integers(), st.text()), inner, max_size=3)
    ),
    max_leaves=8,
)


def _task(dataset: str, **settings) -> ReasoningGymTask:
    return ReasoningGymTask(dataset=dataset, **{"num_train": 20, "num_heldout": 5, **settings})


def test_problems_are_distinct_and_the_same_for_a_seed() -> None:
    task = _task("chain_sum", options={"min_terms": 2, "max_terms": 3}, num_train=50)
    problems = load_family(task).problems("train", seed=1)
    assert problems == ReasoningGym(task).problems("train", seed=1)
    assert len({problem.question for problem in problems}) == 50
    assert problems != ReasoningGym(task).problems("train", seed=2)
    for problem in problems:
        assert problem.metadata["dataset"] == problem.kind == "chain_sum"
        assert problem.solution == problem.answer != ""
        assert json.loads(json.dumps(problem.metadata)) == problem.metadata


def test_questions_never_occur_in_both_splits_whatever_the_seeds() -> None:
    family = ReasoningGym(_task("leg_counting", options={"min_animals": 1, "max_animals": 1, "max_instances": 4}))
    heldout = {problem.question for problem in family.problems("heldout", seed=1)}
    for seed in range(1, 4):
        assert not heldout & {problem.question for problem in family.problems("train", seed=seed)}


def test_the_items_are_those_of_the_package() -> None:
    family = ReasoningGym(_task("acre", num_train=1200))
    problems = family.problems("train", seed=1)
    start = random.Random("reasoning_gym acre 1").randrange(2**31)
    parts = [reasoning_gym.create_dataset("acre", seed=start + first, size=1000) for first in (0, 1000)]
    theirs = [part[index] for part in parts for index in range(1000)]
    questions = [item["question"] for item in theirs]
    places = [questions.index(problem.question) for problem in problems]
    assert places == sorted(places)
    assert all(theirs[place]["answer"] == problem.answer for place, problem in zip(places, problems, strict=True))


def test_items_that_cannot_be_used_are_left_out(monkeypatch) -> None:
    class Items:
        def __init__(self, seed: int) -> None:
            self.seed = seed

        def __getitem__(self, index: int):
            if index % 5 in (1, 4):
                raise {1: ValueError, 4: RuntimeError}[index % 5]("failed to make an item")
            answer = {0: "x + C", 2: "", 3: "Integral(x, x) + C"}[index % 5]
            return {"question": f"integrate {self.seed + index}", "answer": answer, "metadata": {}}

    monkeypatch.setattr("swerve.problems.reasoning_gym.reasoning_gym._create", lambda task, *, seed, size: Items(seed))
    problems = ReasoningGym(_task("intermediate_integration")).problems("train", seed=1)
    assert {problem.answer for problem in problems} == {"x + C"}


def test_a_data_set_without_answers_has_no_solutions() -> None:
    family = ReasoningGym(_task("graph_color", num_train=2))
    problem = family.problems("train", seed=1)[0]
    assert (problem.answer, problem.solution) == ("", None)
    with pytest.raises(ConfigError, match="has no written solution to learn from"):
        family.trace(problem, random.Random(1))


def test_too_few_distinct_questions() -> None:
    options = {"min_animals": 1, "max_animals": 1, "max_instances": 2}
    family = ReasoningGym(_task("leg_counting", options=options, num_train=500))
    with pytest.raises(ConfigError, match=r"for task\.num_train=500; lower it or widen task\.options of leg_counting"):
        family.problems("train", seed=1)


@pytest.mark.parametrize(
    ("dataset", "options", "says"),
    [
        ("chain_sums", {}, "did you mean 'chain_sum'?"),
        ("composite", {}, "is no data set of reasoning-gym.*task mixture"),
        ("chain_sum", {"min_term": 2}, r"task\.options\.min_term is no option of chain_sum; did you mean 'min_terms'"),
        ("chain_sum", {"seed": 1}, r"task\.options\.seed is chosen by the run"),
        ("chain_sum", {"size": 1}, r"task\.options\.size is chosen by the run"),
        ("chain_sum", {"min_terms": -1}, "do not fit the data set chain_sum: .*min_terms"),
        ("chain_sum", {"min_terms": "many"}, "do not fit the data set chain_sum: "),
    ],
)
def test_wrong_data_sets_and_options(dataset, options, says) -> None:
    with pytest.raises(ConfigError, match=says):
        ReasoningGym(_task(dataset, options=options))


def test_a_prompt_format_that_answers_may_contain_is_refused() -> None:
    with pytest.raises(ConfigError, match="use plain, think_answer or boxed"):
        ReasoningGym(_task("maze", prompt=PromptConfig(format="hash")))


def test_without_the_package(monkeypatch) -> None:
    for module in [name for name in sys.modules if name.split(".")[0] == "reasoning_gym"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'swerve\[reasoning-gym\]'"):
        ReasoningGym(_task("maze"))


@given(JSON_AND_MORE)
def test_entries_travel_as_json(value) -> None:
    assert decode_entry(json.loads(json.dumps(encode_entry(value)))) == value


def test_what_json_cannot_say_becomes_text() -> None:
    numpy = pytest.importorskip("numpy")
    assert encode_entry({"a": Fraction(1, 3), "b": numpy.int64(4)}) == {"a": "1/3", "b": 4}
