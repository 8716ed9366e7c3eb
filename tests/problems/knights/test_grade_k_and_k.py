from __future__ import annotations

import gzip
import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swerve.problems.knights.english import answer_text
from swerve.problems.knights.grade_k_and_k import grade_k_and_k, has_right_format, parse_answer
from swerve.types import Problem
from tests.cases import each

NAMES = ("Zoey", "Owen", "Mia")
ROLES = ("knight", "knave")
GOLD = {"Zoey": "knave", "Owen": "knight", "Mia": "knight"}
LOGIC_RL = {"scale": "parts", "reading": "logic_rl"}


def problem(gold=GOLD, **changes) -> Problem:
    values = {"id": "p", "family": "k_and_k", "question": "Who?", "answer": answer_text(gold), **changes}
    return Problem(**values)


def completion(answer: str) -> str:
    return f"<think> Let us see. </think> <answer> {answer} </answer>"


RIGHT = [
    "Zoey is a knave, Owen is a knight, Mia is a knight",
    "Zoey is a knave, Owen is a knight, and Mia is a knight.",
    "(1) Zoey is a knave\n(2) Owen is a knight\n(3) Mia is a knight",
    "1. Mia is a Knight\n2. Zoey is a Knave\n3. Owen is a Knight",
    "- **Zoey**: Knave\n- **Owen**: Knight\n- **Mia**: Knight",
    "Therefore, the answer is: Zoey = knave; Owen = knight; Mia = knight",
    "(Zoey, knave), (Owen, knight), (Mia, knight)",
    "Zoey -> knave, Owen -> knight, Mia -> knight",
    "Owen and Mia are knights, and Zoey is a knave.",
    "Owen, Mia are both knights. Zoey is a knave",
    "ZOEY IS A KNAVE, OWEN IS A KNIGHT, MIA IS A KNIGHT",
    "Zoey is a knave, Owen is a knight, Mia is a knight. Zoey is a knave",
]


@each("answer", RIGHT)
def test_right_answers(answer):
    reward = grade_k_and_k(problem(), completion(answer))
    assert (reward.value, reward.status) == (1.0, "graded")
    assert reward.parts == {"format": 1.0, "answer": 2.0, "correct": 1.0}
    assert reward.extracted == "Zoey is a knave, Owen is a knight, Mia is a knight"


@pytest.mark.parametrize(
    "answer",
    [
        "Zoey is a knight, Owen is a knight, Mia is a knight",
        "Zoey is a knave, Owen is a knave, Mia is a knight",
        "Zoey, Owen and Mia are knights",
        "Owen: knave, Mia: knave, Zoey: knight",
    ],
)
def test_wrong_answers(answer):
    reward = grade_k_and_k(problem(), completion(answer))
    assert (reward.value, reward.status) == (0.0, "graded")
    assert reward.parts == {"format": 1.0, "answer": -1.5, "correct": 0.0}


@each(
    "answer",
    [
        "Zoey is a knave, Owen is a knight",
        "Zoey is a knave, Owen is a knight, Mia",
        "Zoey is a knave, Owen is a knight, Mia is a knight, Owen",
        "Zoey is a knave, Owen is a knight, Mia is not a knave",
        "Zoey is a knave, Owen is a knight, Mia is a knight or a knave",
        "Zoey is a knave, Owen is a knight, Mia is a knight/knave",
        "Zoey is a knave, Owen is a knight, Mia is a knight, Mia is a knave",
        "Zoey is a knave, Owen is a knight, Mia is a knight, Bob is a knight",
        "It is false that Zoey is a knave, Owen is a knight, Mia is a knight",
        "If Zoey is a knave, Owen is a knight, Mia is a knight",
        "Zoey is a knave, Owen is a knight, so Mia is a knight",
        "Is Zoey a knave, Owen a knight, Mia a knight?",
        "Zoey is a knave? Owen is a knight, Mia is a knight",
        "Zoey, Owen is a knight, Mia is a knight",
        "knave Zoey knight Owen knight Mia",
        "Zoey != knave, Owen is a knight, Mia is a knight",
        "Zoeys is a knave, Owen is a knight, Mia is a knight",
        "I do not know",
        "(1) ... (2) ...",
        "",
    ],
)
def test_what_does_not_plainly_say_who_is_what_is_no_answer(answer):
    reward = grade_k_and_k(problem(), completion(answer))
    assert (reward.value, reward.status) == (None, "unparsed")
    assert reward.parts == {"format": 1.0, "answer": -2.0, "correct": 0.0}
    assert reward.detail
    valued = grade_k_and_k(problem(grading={"scale": "parts"}), completion(answer))
    assert (valued.value, valued.status, valued.answered, reward.answered) == (-1.0, "graded", False, False)


ANSWER = f"<answer>{answer_text(GOLD)}</answer>"
FORMATS = [  # text, whether the format is right, value with scale=correct
    (f"<think> a </think>{ANSWER}", True, 1.0),
    (f"words before <think></think> between {ANSWER} and after", True, 1.0),
    (f"<think> a {ANSWER} </think>", False, 0.0),
    (f"{ANSWER}<think> a </think>", False, 0.0),
    (f"<think> a </think><think> b </think>{ANSWER}", False, 0.0),
    (f"<think> a </think>{ANSWER}{ANSWER}", False, 0.0),
    (f"<think> a {ANSWER}", False, 0.0),
    (ANSWER, False, 0.0),
    ("<think> a </think> <answer> Zoey is a knave", False, None),
    (f"<think> a </think> {answer_text(GOLD)}", False, None),
    ("", False, None),
]


@each(("text", "right", "value"), FORMATS)
def test_format(text, right, value):
    assert has_right_format(text) == right
    reward = grade_k_and_k(problem(), text)
    assert reward.value == value
    assert reward.status == ("unparsed" if value is None else "graded")
    valued = grade_k_and_k(problem(grading={"scale": "parts"}), text)
    assert (valued.status, valued.answered) == ("graded", value is not None)
    parts = {"format": 1.0 if right else -1.0, "answer": 2.0 if right else -2.0, "correct": float(right)}
    assert reward.parts == parts
    summed = grade_k_and_k(problem(grading=LOGIC_RL), text)
    assert (summed.value, summed.parts) == (3.0 if right else -3.0, parts)


@pytest.mark.parametrize("scale", ["parts", "correct"])
@pytest.mark.parametrize(
    ("text", "right"),
    [
        (completion(answer_text(GOLD)), True),
        (completion(answer_text({**GOLD, "Mia": "knave"})), False),
        (f"<answer>{answer_text(GOLD)}</answer>", False),
        ("I do not know", False),
    ],
)
def test_what_is_right_does_not_depend_on_the_scale(text, right, scale):
    # Values that alone would say the opposite.
    grading = {"scale": scale, "format_right": -2, "answer_right": 1, "answer_wrong": 9, "answer_missing": 9}
    assert grade_k_and_k(problem(grading=grading), text).is_right is right


def test_a_prefix_that_the_model_was_given_belongs_to_the_text():
    given_prefix = problem(prefix="<think>\n")
    assert grade_k_and_k(given_prefix, f" a </think> {ANSWER}").value == 1.0
    assert grade_k_and_k(given_prefix, f"<think> a </think> {ANSWER}").value == 1.0
    # What the chat template's prompt ended with does too, but for a thought that it closes again.
    for begun, value in (("<think>\n", 1.0), ("", 0.0), ("<think>\n\n</think>\n\n", 0.0)):
        assert grade_k_and_k(problem(begun=begun), f" a </think> {ANSWER}").value == value
        assert grade_k_and_k(problem(begun=begun, prefix="<think>"), f" a </think> {ANSWER}").value == 1.0
        assert grade_k_and_k(problem(begun=""), f"<think> a </think> {ANSWER}").value == 1.0
    # A template's prompt may end with <think>, of which neither the problem nor a file says anything.
    assert grade_k_and_k(problem(), f" a </think> {ANSWER}").value == 1.0
    assert grade_k_and_k(problem(grading={"scale": "parts"}), f" a </think> {ANSWER}").value == 3.0
    assert grade_k_and_k(problem(), f" a </think></think> {ANSWER}").value == 0.0
    assert grade_k_and_k(problem(), f" a {ANSWER}").value == 0.0


@each(
    ("text", "value"),
    [
        (answer_text(GOLD), 1.0),
        (f"I think. </think> {answer_text(GOLD)}", 1.0),
        (f"<think> Zoey is a knight </think> {answer_text(GOLD)}", 1.0),
        (f"no tags around it {ANSWER}", 1.0),
        (f"<answer> {answer_text({**GOLD, 'Mia': 'knave'})} </answer> no, {ANSWER}", 1.0),
        (f"<think> {answer_text(GOLD)}", None),
        (f"<answer> {answer_text(GOLD)}", None),
    ],
)
@each("reading", ["plain", "logic_rl"])
def test_tags_may_be_optional(text, value, reading):
    assert grade_k_and_k(problem(grading={"tags": "optional", "reading": reading}), text).value == value


@pytest.mark.parametrize("text", ["Zoey is a knave\nOwen is a knight", "(1) Zoey is a knave\n(2) Owen is a knight\n"])
def test_gold_answers_in_other_forms(text):
    assert grade_k_and_k(problem(answer=text), completion("Zoey: knave, Owen: knight")).value == 1.0


def test_roles_are_read_from_the_problem():
    angels = problem({"Ann": "angel", "Bob": "angel"}, metadata={"roles": {"knight": "angel", "knave": "devil"}})
    assert grade_k_and_k(angels, completion("Ann is an angel, Bob is an angel")).value == 1.0
    assert grade_k_and_k(angels, completion("Ann is an angel, Bob is a devil")).value == 0.0
    assert grade_k_and_k(angels, completion("Ann is a knight, Bob is a knight")).status == "unparsed"
    flipped = {"knight": "knave", "knave": "knight"}
    assert grade_k_and_k(problem(metadata={"roles": flipped}), completion(answer_text(GOLD))).value == 1.0


def test_names_of_several_words_and_names_within_names():
    gold = {"Mary Ann": "knave", "Ann": "knight", "Mary": "knight", "Jean-Luc": "knave", "O'Brien": "knight"}
    reward = grade_k_and_k(problem(gold), completion(answer_text(gold)))
    assert reward.value == 1.0
    swapped = {**gold, "Mary Ann": "knight", "Ann": "knave"}
    assert grade_k_and_k(problem(gold), completion(answer_text(swapped))).value == 0.0


@pytest.mark.parametrize(
    "changes",
    [
        {"answer": "42"},
        {"answer": ""},
        {"answer": "Zoey is a knave, zoey is a knight"},
        {"grading": {"scale": "best"}},
        {"grading": {"unknown": 1}},
    ],
)
def test_a_problem_that_cannot_be_graded_is_an_error_and_not_a_zero(changes):
    reward = grade_k_and_k(problem(**changes), completion(answer_text(GOLD)))
    assert (reward.value, reward.status) == (None, "error")
    assert reward.detail is not None
    assert reward.detail.startswith("p: ")


def test_values_of_the_parts_are_policies():
    grading = {"scale": "parts", "format_right": 0.5, "answer_right": 1, "answer_missing": 0, "format_wrong": -0.25}
    assert grade_k_and_k(problem(grading=grading), completion(answer_text(GOLD))).value == 1.5
    assert grade_k_and_k(problem(grading=grading), ANSWER).value == -0.25


@each(
    ("answer", "by_search", "plain"),
    [
        ("It is not true that Zoey is a knave, Owen is a knight, Mia is a knight", 3.0, -1.0),
        ("Perhaps Zoey is a knave, unless Owen is a knight. Mia is a knight", 3.0, -1.0),
        ("Zoey is a knave because Owen is a knight, so Mia is a knight", 3.0, -1.0),
        ("Zoey: knave, Owen: knight, Mia: knight", -1.0, 3.0),
        ("Zoey is a knave, Owen and Mia are knights", -1.0, 3.0),
        ("Zoey is a knave, Owen is a knight, Mia is a knight. Mia is a knight", -1.0, 3.0),
        ("Zoey a knave, Owen a knight, Mia a knight", -1.0, 3.0),
        ("McZoey is a knave, Owen is a knight, Mia is a knight", -1.0, -1.0),
        ("Zoey is a knave, Owen is a knight, Mia is a knight or a knave", -1.0, -1.0),
        ("Zoey is a knave, Owen is a knight, Mia is a knave", -0.5, -0.5),
    ],
)
def test_where_the_two_readings_differ(answer, by_search, plain):
    assert grade_k_and_k(problem(grading=LOGIC_RL), completion(answer)).value == by_search
    assert grade_k_and_k(problem(grading={"scale": "parts"}), completion(answer)).value == plain


def test_recorded_rewards_of_another_trainer_are_reproduced(shared_data):
    path = shared_data("rollouts") / "prop_logic_formula.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    plain_differs = 0
    for row in rows:
        given_problem = problem(row["ground_truth"], grading=LOGIC_RL)
        reward = grade_k_and_k(given_problem, row["response"])
        scores = (row["format_score"], row["answer_score"], row["total_score"])
        assert (reward.parts["format"], reward.parts["answer"], reward.value) == scores
        assert reward.is_right == (row["total_score"] == 3.0)
        plain = grade_k_and_k(problem(row["ground_truth"], grading={"scale": "parts"}), row["response"])
        plain_differs += plain.value != reward.value
    assert len(rows) == 904
    # 16 answers of which a fact is left open ("B is true or false") and 2 in another form ("A: true").
    assert plain_differs == 18


def test_verdicts_on_the_score_cases_of_reasoning_gym(shared_data):
    path = shared_data("reasoning_gym_scores") / "score_cases.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        cases = [case for case in map(json.loads, lines) if case["task"] == "knights_knaves"]
    roles = {"roles": {"knight": "sage", "knave": "fool"}}
    verdicts = []
    for case in cases:
        given_problem = problem(answer=case["gold"], metadata=roles, grading={"tags": "optional"})
        verdicts.append((case["expected_score"], grade_k_and_k(given_problem, case["answer"]).value))
    # One of two roles right is partly right there (0.65) and wrong here.
    assert verdicts == [(1.0, 1.0), (0.65, 0.0), (1.0, 1.0), (0.0, 0.0), (1.0, 1.0)]


ASSIGNMENTS = st.tuples(*[st.sampled_from(ROLES)] * 3).map(lambda roles: dict(zip(NAMES, roles, strict=True)))
FORMS = st.sampled_from(
    [
        answer_text,
        lambda said: "\n".join(f"({i}) {name} is a {role}" for i, (name, role) in enumerate(said.items(), 1)),
        lambda said: "; ".join(f"{name}: {role}" for name, role in said.items()),
        lambda said: ", ".join(f"({name}, {role})" for name, role in said.items()),
        lambda said: "So " + " and ".join(f"**{name}** is the {role.upper()}" for name, role in said.items()) + ".",
    ]
)


@settings(max_examples=60)
@given(ASSIGNMENTS, st.permutations(NAMES), FORMS, st.sampled_from(NAMES))
def test_a_rendered_assignment_is_read_back_and_one_flipped_role_is_wrong(gold, order, form, flipped):
    said = {name: gold[name] for name in order}
    assert parse_answer(form(said), NAMES, ROLES) == gold
    assert grade_k_and_k(problem(gold), completion(form(said))).value == 1.0
    other = {**said, flipped: "knave" if said[flipped] == "knight" else "knight"}
    assert grade_k_and_k(problem(gold), completion(form(other))).value == 0.0


WORDS = ("knights", "is", "are", "a", "not", "and", ",", ".", ":", "\n", "or", "(1)", "?", "so")
PIECES = st.lists(st.sampled_from([*NAMES, *ROLES, *WORDS]), max_size=16).map(" ".join)


@settings(max_examples=150)
@given(PIECES, ASSIGNMENTS, st.sampled_from(NAMES))
def test_no_answer_is_right_for_two_assignments(answer, gold, flipped):
    other = {**gold, flipped: "knave" if gold[flipped] == "knight" else "knight"}
    verdicts = [grade_k_and_k(problem(people), completion(answer)).value for people in (gold, other)]
    assert verdicts.count(1.0) < 2
    if "not" in answer.split() or "or" in answer.split() or "?" in answer:
        assert verdicts == [None, None]


@settings(max_examples=100)
@given(
    st.lists(st.sampled_from(["<think>", "</think>", "<answer>", "</answer>", RIGHT[0]]) | st.text(max_size=12)),
    st.sampled_from([{}, LOGIC_RL, {"scale": "parts"}, {"tags": "optional"}]),
)
def test_any_text_has_a_value_or_is_unparsed(pieces, grading):
    reward = grade_k_and_k(problem(grading=grading), "".join(pieces))
    assert reward.status in ("graded", "unparsed")
    if grading.get("scale") == "parts":
        assert reward.status == "graded"
        assert reward.value == sum(reward.parts.values())


@pytest.mark.slow
@each(
    "unit",
    ["<answer>", "</answer>", "<think>", "Zoey ", "Zoey is ", "Zoey is a knight, ", " ", "(", "'", "is a knight "],
)
@each("reading", ["plain", "logic_rl"])
def test_a_long_text_takes_little_time(unit, reading):
    text = unit * (1_000_000 // len(unit))
    given_problem = problem(grading={"reading": reading, "tags": "optional"})
    start = time.process_time()
    for case in (text, completion(f"Zoey {text}")):
        grade_k_and_k(given_problem, case)
    assert time.process_time() - start < 8.0


@pytest.mark.parametrize("name", ["test_random_pair", "test_flip_role", "test_uncommon_name", "test_clean"])
def test_published_solutions_are_right_and_with_one_role_exchanged_wrong(shared_data, name):
    path = shared_data("kk_mem_kk_logic") / f"{name}.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines][::10]
    for row in rows:
        words = row["knight_knave"]
        given_problem = problem(
            answer=row["solution_text_format"], metadata={"roles": {key: words[key] for key in ("knight", "knave")}}
        )
        for text in (row["solution_text"], row["solution_text_format"]):
            assert grade_k_and_k(given_problem, completion(text)).value == 1.0
            first = row["names"][0]
            right, wrong = (words["a_knight"], words["a_knave"])[:: 1 if row["solution"][0] else -1]
            exchanged = text.replace(f"{first} is {right}", f"{first} is {wrong}")
            assert grade_k_and_k(given_problem, completion(exchanged)).value == 0.0


def test_a_gold_of_too_many_people_is_an_error() -> None:
    for number, status in ((50, "graded"), (51, "error")):
        gold = {f"p{index}": "knight" for index in range(number)}
        reward = grade_k_and_k(problem(gold), completion(answer_text(gold)))
        assert reward.status == status
    assert "names 51 people; at most 50 are read" in str(reward.detail)
