from __future__ import annotations

import random
from collections import Counter
from itertools import permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swerve.problems import Split, load_family
from swerve.problems.knights.knights_knaves import (
    CONNECTIVES,
    LETTERS,
    Claim,
    Claims,
    KnightsKnaves,
    KnightsKnavesTask,
    all_claims,
    all_structures,
    find_solutions,
    parse_claims,
    render_claims,
    structure,
)
from swerve.problems.knights.logic import join
from swerve.rewards import grade
from swerve.types import Problem
from tests.cases import each

FAMILY = KnightsKnaves(KnightsKnavesTask(num_train=400, num_heldout=400))
QUESTION = "Zoe denies if Zoe knight then Max knight . Max says Zoe knave or not Max knight ."
PROBLEM = FAMILY.problem(QUESTION)
SOLUTION = (
    "Zoe denies if Zoe knight T T F F then Max knight T F T F = T F T T so F T F F fits F T T T "
    "Max says Zoe knave F F T T or not Max knight F T F T = F T T T fits F F T F "
    "all F F T F answer Zoe knave Max knight"
)
LENGTH = 67
KNIGHT = {True: "knight", False: "knave"}
SAMPLE = FAMILY.problems("train", seed=0)
PROBLEMS = st.sampled_from(SAMPLE)
THREE = KnightsKnaves(KnightsKnavesTask(people=3, num_train=50, num_heldout=50))
ANY_TEXT = st.one_of(st.text(), st.lists(st.sampled_from(FAMILY.words)).map(" ".join))


def mutated(text: str, index: int, word: str) -> str:
    words = text.split()
    return " ".join([*words[:index], word, *words[index + 1 :]])


def marked(problem: Problem, text: str) -> list[tuple[int, str, str]]:
    """(index of the word, the word, what is expected there) of each mark."""
    marks = FAMILY.check(problem, text)
    return [(len(text[: m.start].split()), text[m.start : m.end], m.expected) for m in marks]


def test_the_written_out_example() -> None:
    assert PROBLEM.solution == SOLUTION
    assert PROBLEM.answer == "Zoe knave Max knight"
    assert (PROBLEM.family, PROBLEM.kind) == ("knights_knaves", "if+or")
    assert PROBLEM.metadata == {
        "structure": "A denies if A knight then B knight . B says A knave or not B knight .",
        "people": 2,
    }
    assert PROBLEM.id == FAMILY.problem(QUESTION).id != FAMILY.problem(QUESTION.replace("Zoe", "Ann")).id


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        ("Ann says if Bob knave then Ann knave . Bob says Ann knight .", "if"),
        ("Ann says not Bob knight iff Ann knight . Bob denies Ann knight .", "other"),
        ("Ann denies Bob knight or Ann knave . Bob denies Ann knave .", "or"),
    ],
)
def test_the_kind_names_the_misread_connectives(question: str, kind: str) -> None:
    assert FAMILY.problem(question).kind == kind


@pytest.mark.parametrize("family", [FAMILY, THREE])
@pytest.mark.parametrize("split", ["train", "heldout"])
def test_every_problem_has_one_solution_and_a_right_trace(family: KnightsKnaves, split: Split) -> None:
    for problem in family.problems(split, seed=0):
        puzzle, names = parse_claims(problem.question)
        (knights,) = find_solutions(puzzle)
        answer = [word for name, knight in zip(names, knights, strict=True) for word in (name, KNIGHT[knight])]
        assert problem.answer.split() == answer
        assert problem.metadata["structure"] == structure(puzzle)
        assert problem.solution is not None
        assert grade(problem, problem.solution).value == 1.0
        assert family.check(problem, problem.solution) == []
        assert {*problem.question.split(), *problem.solution.split()} <= {*family.words}


def test_a_puzzle_without_exactly_one_solution_is_refused() -> None:
    with pytest.raises(ValueError, match="2 solutions instead of one"):
        FAMILY.problem("Ann says Bob knave . Bob says Ann knave .")


@given(PROBLEMS, st.sampled_from([0, 1]))
def test_a_changed_role_is_rejected(problem: Problem, person: int) -> None:
    words = problem.answer.split()
    words[2 * person + 1] = KNIGHT[words[2 * person + 1] == "knave"]
    assert grade(problem, f"answer {' '.join(words)}").value == 0.0


@each(
    ("index", "word", "marks"),
    [
        (1, "says", [(1, "says", "denies"), (21, "so", "fits")]),  # `so` only follows a denial
        (3, "Max", [(3, "Max", "Zoe"), (6, "T", "F"), (7, "F", "T")]),
        (4, "knave", [(4, "knave", "knight"), (5, "T", "F"), (6, "T", "F"), (7, "F", "T"), (8, "F", "T")]),
        (5, "F", [(5, "F", "T")]),  # `if` holds as before
        (6, "F", [(6, "F", "T"), (18, "F", "T")]),
        (17, "F", [(17, "F", "T"), (22, "F", "T")]),  # the misread `if`; the right denial no longer follows
        (22, "T", [(22, "T", "F"), (27, "F", "T")]),
        (27, "T", [(27, "T", "F")]),
        (55, "F", [(55, "F", "T"), (60, "T", "F")]),
        (39, "and", [(39, "and", "or"), (49, "T", "F"), (50, "T", "F")]),
        (58, "T", [(58, "T", "F"), (64, "knave", "knight")]),
        (60, "F", [(60, "F", "T"), (66, "knight", "knave")]),
        (64, "knight", [(64, "knight", "knave")]),
        (2, "Zoe", [(2, "Zoe", "if")]),
        (16, "so", [(16, "so", "=")]),
        (65, "Zoe", [(65, "Zoe", "Max")]),
    ],
)
def test_marks_are_relative_to_the_words_before(index: int, word: str, marks: list[tuple[int, str, str]]) -> None:
    assert marked(PROBLEM, mutated(SOLUTION, index, word)) == marks


def test_an_answer_that_does_not_follow_from_the_table_is_marked() -> None:
    accepted = SOLUTION.replace("answer Zoe knave Max knight", "answer Zoe knave Max knave")
    assert marked(PROBLEM, accepted) == [(66, "knave", "knight")]
    nothing_left = SOLUTION.replace("all F F T F answer Zoe knave Max knight", "all F F F F answer Zoe knave Max knave")
    assert marked(PROBLEM, nothing_left) == [(60, "F", "T")]


def test_a_wrong_structure_ends_the_marks() -> None:
    assert marked(PROBLEM, SOLUTION.replace("Zoe denies if", "Zoe denies")) == [(2, "Zoe", "if")]
    assert marked(PROBLEM, f"{SOLUTION} T F") == [(LENGTH, "T", "")]
    assert marked(PROBLEM, "answer Zoe knave Max knight") == [(0, "answer", "Zoe")]
    assert marked(PROBLEM, "") == []


@given(PROBLEMS, st.integers(0, 80))
def test_a_cut_off_text_has_no_marks(problem: Problem, length: int) -> None:
    assert problem.solution is not None
    assert FAMILY.check(problem, " ".join(problem.solution.split()[:length])) == []


@given(PROBLEMS, st.data())
def test_any_other_word_is_the_first_mark(problem: Problem, data: st.DataObject) -> None:
    assert problem.solution is not None
    words = problem.solution.split()
    index = data.draw(st.integers(0, len(words) - 1))
    word = data.draw(st.sampled_from(FAMILY.words))
    expected = [] if word == words[index] else [(index, word, words[index])]
    assert marked(problem, mutated(problem.solution, index, word))[:1] == expected


@given(PROBLEMS, ANY_TEXT)
def test_any_text_can_be_checked(problem: Problem, text: str) -> None:
    marks = FAMILY.check(problem, text)
    assert all(0 <= m.start < m.end <= len(text) for m in marks)
    assert all(text[m.start : m.end].split() == [text[m.start : m.end]] != [m.expected] for m in marks)
    assert [m.start for m in marks] == sorted({m.start for m in marks})


def joined_columns(text: str) -> list[tuple[str, str, str, str]]:
    """(connective, first value, second value, result) of every column after an `=`, read from the words."""
    words = text.split()
    columns = []
    for equals in (i for i, word in enumerate(words) if word == "="):
        joint = max(i for i in range(equals) if words[i] in ("and", "or", "then", "iff"))
        columns += [
            (words[joint], words[joint - 4 + i], words[equals - 4 + i], words[equals + 1 + i]) for i in range(4)
        ]
    return columns


MISTAKES = {("then", "F", "T", "F"), ("then", "F", "F", "F"), ("or", "T", "T", "F")}


def test_the_planted_mistake_is_made_at_its_rate_and_marked_once() -> None:
    family = KnightsKnaves(KnightsKnavesTask(num_train=1000, slip_rate=0.0))
    rng = random.Random(0)
    seen: Counter[tuple[str, bool]] = Counter()
    for problem in family.problems("train", seed=0):
        text = family.trace(problem, rng)
        columns = joined_columns(text)
        wrong = sum(column in MISTAKES for column in columns)
        seen.update((c[0], c in MISTAKES) for c in columns if (*c[:3], "F") in MISTAKES)
        marks = family.check(problem, text)
        assert [(text[m.start : m.end], m.expected) for m in marks] == [("F", "T")] * wrong
        if not wrong:
            assert text == problem.solution
    for connective in ("then", "or"):
        chances = seen[connective, True] + seen[connective, False]
        assert chances > 300
        assert seen[connective, True] / chances == pytest.approx(0.75, abs=0.05)


def test_the_mistake_fails_more_than_a_third_of_the_puzzles_and_not_all() -> None:
    family = KnightsKnaves(KnightsKnavesTask(num_train=2000, mistake_rate=1.0, slip_rate=0.0))
    problems = family.problems("train", seed=0)
    right = [grade(problem, family.trace(problem, random.Random(0))).value for problem in problems]
    assert 0.35 < sum(value or 0.0 for value in right) / len(problems) < 0.65


def test_a_slip_is_one_mark_and_the_rest_follows() -> None:
    family = KnightsKnaves(KnightsKnavesTask(num_train=500, mistake_rate=0.0, slip_rate=0.05))
    rng = random.Random(0)
    slips = places = 0
    for problem in family.problems("train", seed=0):
        text = family.trace(problem, rng)
        words = text.split()
        places += 4 * (words.count("=") + words.count("so"))
        slips += len(family.check(problem, text))
    assert slips / places == pytest.approx(0.05, abs=0.01)


def test_without_rates_a_trace_is_the_solution() -> None:
    family = KnightsKnaves(KnightsKnavesTask(mistake_rate=0.0, slip_rate=0.0))
    assert family.trace(PROBLEM, random.Random(0)) == SOLUTION


def test_splits_share_no_structure_whatever_their_seeds() -> None:
    family = load_family(KnightsKnavesTask(num_train=4000))
    train, heldout = (
        [problem.metadata["structure"] for problem in problems]
        for problems in (family.problems("train", seed=0), family.problems("heldout", seed=1))
    )
    assert len({*train}) > 2000
    assert len(heldout) == len({*heldout}) == 400
    assert not {*train} & {*heldout}


def test_splits_of_three_people_share_no_structure() -> None:
    train, heldout = (
        {problem.metadata["structure"] for problem in problems}
        for problems in (THREE.problems("train", seed=0), THREE.problems("heldout", seed=0))
    )
    assert len(train) == len(heldout) == 50
    assert not train & heldout


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 1000))
def test_a_seed_determines_the_problems(seed: int) -> None:
    family = KnightsKnaves(KnightsKnavesTask(num_train=50, num_heldout=20))
    assert family.problems("train", seed=seed) == family.problems("train", seed=seed)
    assert family.problems("train", seed=seed) != family.problems("train", seed=seed + 1)
    assert len({problem.id for problem in family.problems("heldout", seed=seed)}) == 20


def test_a_question_that_is_no_puzzle_is_refused() -> None:
    other = Problem(id="x", family="knights_knaves", question="who is it ?", answer="")
    with pytest.raises(ValueError, match="not a puzzle"):
        FAMILY.check(other, "")


NAMES = ("Ann", "Bob", "Eve")
PUZZLES = st.sampled_from([2, 3]).flatmap(
    lambda people: st.tuples(*[st.sampled_from(all_claims(people)) for _ in range(people)])
)


def reading(text: str, knights: dict[str, bool]) -> bool:
    """Whether a puzzle's text holds, read word by word and independently of the package."""
    return all(holds(sentence.split(), knights) for sentence in text.split(" .")[:-1])


def holds(words: list[str], knights: dict[str, bool]) -> bool:
    speaker, verb, *body = words
    return knights[speaker] == (body_holds(" ".join(body), knights) == (verb == "says"))


def body_holds(body: str, knights: dict[str, bool]) -> bool:
    if body.startswith("if "):
        first, second = body.removeprefix("if ").split(" then ")
        return body_holds(second, knights) if body_holds(first, knights) else True
    for word, accepted in ((" and ", [2]), (" or ", [1, 2]), (" iff ", [0, 2])):
        if word in body:
            return sum(body_holds(part, knights) for part in body.split(word)) in accepted
    if body.startswith("not "):
        return not body_holds(body.removeprefix("not "), knights)
    name, role = body.split()
    return knights[name] if role == "knight" else not knights[name]


def exchanged(claim: Claim) -> Claim:
    return claim._replace(body=(claim.body[0], *claim.literals[::-1]))


def renamed(puzzle: Claims, order: tuple[int, ...]) -> Claims:
    """The puzzle in which person i speaks at place `order[i]`."""
    moved = {order[speaker]: claim.renumbered(order) for speaker, claim in enumerate(puzzle)}
    return tuple(moved[place] for place in range(len(puzzle)))


@pytest.mark.parametrize(
    ("connective", "table"),
    [
        ("and", [True, False, False, False]),
        ("or", [True, True, True, False]),
        ("if", [True, False, True, True]),
        ("iff", [True, False, False, True]),
    ],
)
def test_truth_tables(connective: str, table: list[bool]) -> None:
    assert [join(CONNECTIVES[connective], a, b, 1) for a, b in product((True, False), repeat=2)] == table


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ann says Bob knave . Bob says Ann knave .", [(True, False), (False, True)]),
        ("Ann says Ann knave . Bob says Ann knave .", []),
        ("Ann says Ann knave and Bob knight . Bob says Bob knight .", [(False, False)]),
        ("Ann denies Bob knight or Ann knave . Bob denies Ann knave .", [(False, False)]),
        ("Ann says if Bob knave then Ann knave . Bob says Ann knight .", [(True, True)]),
        ("Ann says not Bob knight iff Ann knight . Bob denies Ann knight .", [(True, False)]),
    ],
)
def test_solutions_of_known_puzzles(text: str, expected: list[tuple[bool, ...]]) -> None:
    assert find_solutions(parse_claims(text)[0]) == expected


@given(PUZZLES)
def test_solutions_agree_with_an_independent_reading_of_the_text(puzzle: Claims) -> None:
    text = render_claims(puzzle, NAMES)
    assignments = product((True, False), repeat=len(puzzle))
    assert find_solutions(puzzle) == [
        knights for knights in assignments if reading(text, dict(zip(NAMES, knights, strict=False)))
    ]


@given(PUZZLES)
def test_text_and_puzzle_say_the_same(puzzle: Claims) -> None:
    names = NAMES[: len(puzzle)]
    assert parse_claims(render_claims(puzzle, names)) == (puzzle, names)


@pytest.mark.parametrize(
    "text",
    ["", "Ann", "Ann says Bob knave .", "Ann says Ann king .", "Ann says if Ann knave .", "Ann says Ann knave", " . ."],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a puzzle"):
        parse_claims(text)


@given(PUZZLES, st.data())
def test_the_structure_ignores_names_and_orders(puzzle: Claims, data: st.DataObject) -> None:
    order = data.draw(st.sampled_from(list(permutations(range(len(puzzle))))))
    moved = tuple(
        exchanged(claim) if claim.connective in ("and", "or", "iff") and data.draw(st.booleans()) else claim
        for claim in renamed(puzzle, order)
    )
    assert structure(moved) == structure(puzzle)


@given(PUZZLES, PUZZLES)
def test_equal_structures_are_the_same_puzzle_up_to_names_and_orders(first: Claims, second: Claims) -> None:
    if len(first) != len(second):
        assert structure(first) != structure(second)
        return
    same = any(
        {sentence(one, i) for i, one in enumerate(renamed(first, order))}
        == {sentence(one, i) for i, one in enumerate(second)}
        for order in permutations(range(len(first)))
    )
    assert same == (structure(first) == structure(second))


def sentence(claim: Claim, speaker: int) -> tuple[object, ...]:
    literals = claim.literals if claim.connective == "if" else frozenset(claim.literals)
    return speaker, literals, claim.connective, claim.denied


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("Ann says Bob knave . Bob says Ann knight .", "Ann says Bob knight . Bob says Ann knight ."),
        (
            "Ann says if Ann knave then Bob knave . Bob says Bob knave .",
            "Ann says if Bob knave then Ann knave . Bob says Bob knave .",
        ),
        ("Ann says not Bob knight . Bob says Bob knave .", "Ann says Bob knave . Bob says Bob knave ."),
    ],
)
def test_different_structures(text: str, other: str) -> None:
    assert structure(parse_claims(text)[0]) != structure(parse_claims(other)[0])


def test_the_structures_of_two_people() -> None:
    structures = all_structures(2)
    assert len(structures) == len({text for text, _ in structures}) == 3852
    for text, puzzle in structures[::50]:
        assert structure(puzzle) == text
        assert structure(parse_claims(text)[0]) == text
        assert len(find_solutions(puzzle)) == 1
        assert LETTERS[2] not in text
