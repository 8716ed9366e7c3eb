from __future__ import annotations

import gzip
import json

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swerve.problems.knights.english import (
    KNIGHT_KNAVE,
    PHRASINGS,
    Puzzle,
    RoleWords,
    answer_text,
    claim_text,
    parse_puzzle,
    render_puzzle,
)
from swerve.problems.knights.generate import ROLE_PAIRS, UNCOMMON_NAMES
from swerve.problems.knights.logic import Statement, parse_statements, solutions
from tests.cases import each

FACTS = [("telling-truth", 0), ("lying", 0), ("telling-truth", 1), ("lying", 1)]


def _composed(parts: st.SearchStrategy[Statement]) -> st.SearchStrategy[Statement]:
    return (
        parts.map(lambda part: ("not", part))
        | st.tuples(st.sampled_from(["->", "<=>", "and", "or"]), parts, parts)
        | st.tuples(st.sampled_from(["and", "or"]), parts, parts, parts)
    )


@st.composite
def puzzles(draw: st.DrawFn) -> Puzzle:
    count = draw(st.integers(2, 6))
    facts = st.tuples(st.sampled_from(["telling-truth", "lying"]), st.integers(0, count - 1))
    statement = st.recursive(facts, _composed, max_leaves=6)
    names = draw(st.permutations(["Ann", "O'Brien", "Mary Ann", "Jean-Luc", "Zoë", *UNCOMMON_NAMES[:3]]))
    return Puzzle(
        names=tuple(names[:count]),
        statements=tuple(draw(statement) for _ in range(count)),
        order=tuple(draw(st.permutations(range(count)))),
        phrasing=tuple(draw(st.integers(0, len(PHRASINGS) - 1)) for _ in range(count)),
        roles=draw(st.sampled_from([KNIGHT_KNAVE, *ROLE_PAIRS, RoleWords(truthful="knave", lying="knight")])),
    )


@settings(max_examples=60)
@given(puzzles())
def test_what_is_written_is_read_back(puzzle):
    assert parse_puzzle(render_puzzle(puzzle)) == puzzle


SMALL = (
    "A very special island is inhabited only by knights and knaves. Knights always tell the truth, and knaves always "
    'lie. You meet 2 inhabitants: Uma, and Raj. As Uma put it, "Raj is a knave or Uma is not a knight". Raj told you '
    "that If Uma is a knave then Raj is a knave. So who is a knight and who is a knave?"
)


def test_a_puzzle_in_the_phrasing_of_the_schema():
    puzzle = parse_puzzle(SMALL)
    assert puzzle.names == ("Uma", "Raj")
    assert puzzle.statements == (
        ("or", ("lying", 1), ("not", ("telling-truth", 0))),
        ("->", ("lying", 0), ("lying", 1)),
    )
    assert [PHRASINGS[number] for number in puzzle.phrasing] == [
        'As {name} put it, "{claim}".',
        "{name} told you that {claim}.",
    ]
    assert render_puzzle(puzzle) == SMALL


@each(
    "sentence",
    [
        'According to Uma, "Raj is a knave".',
        'As Uma put it, "Raj is a knave".',
        'In a statement by Uma: "Raj is a knave".',
        'In Uma\'s words: "Raj is a knave".',
        'Uma asserted: "Raj is a knave".',
        'Uma commented, "Raj is a knave".',
        'Uma noted, "Raj is a knave".',
        'Uma remarked, "Raj is a knave".',
        'Uma said, "Raj is a knave."',
        'Uma stated, "Raj is a knave".',
        'Uma was heard saying, "Raj is a knave".',
        '"Raj is a knave" - Uma.',
        '"Raj is a knave," Uma claimed.',
        '"Raj is a knave," Uma declared.',
        '"Raj is a knave," Uma mentioned.',
        "Uma expressed that Raj is a knave.",
        "Uma said that Raj is a knave.",
        "Uma told you that Raj is a knave.",
    ],
)
def test_all_phrasings_of_the_schema(sentence):
    old = 'As Uma put it, "Raj is a knave or Uma is not a knight".'
    assert old in SMALL
    assert parse_puzzle(SMALL.replace(old, sentence)).statements[0] == ("lying", 1)


def test_a_hint_on_the_form_of_the_answer_may_follow():
    hint = ' (Format your answer like: "Uma is a knight/knave, and Raj is a knight/knave")'
    assert parse_puzzle(SMALL + hint) == parse_puzzle(SMALL)


def test_flipped_words_are_read_from_the_text():
    flipped = SMALL.replace("Knights always", "K always").replace("knaves always", "knights always")
    flipped = flipped.replace("K always", "Knaves always")
    roles = parse_puzzle(flipped).roles
    assert (roles.truthful, roles.lying) == ("knave", "knight")
    assert parse_puzzle(flipped).statements[1] == ("->", ("telling-truth", 0), ("telling-truth", 1))


@each(
    ("old", "new", "message"),
    [
        ("A very special", "An ordinary", "does not begin"),
        ("So who is a knight and who is a knave?", "Well?", "does not end"),
        ("So who is a knight and who is a knave?", "So who is a knight and who is a knave? Raj lies.", "does not end"),
        ("2 inhabitants", "3 inhabitants", "do not agree"),
        ("Uma, and Raj.", "Uma, and Uma.", "do not agree"),
        ("As Uma put it", "As Eve put it", "'Eve' speaks but is not among the inhabitants Uma, Raj"),
        ("As Uma put it", "As Raj put it", "Raj speaks twice"),
        ("Raj told you that If Uma is a knave then Raj is a knave. ", "", "no claim of Raj"),
        ("Raj is a knave or", "Raj is a liar or", "not read at 'liar or Uma is not a knight'"),
        ("Raj is a knave or", "Eve is a knave or", "not read at 'Eve is a knave or"),
        ("Raj is a knave or", "Raj is a knave xor", "not read at 'xor Uma"),
        ("then Raj is a knave", "Raj is a knave", "not read at 'Raj is a knave'"),
        ("Raj is a knave or", "(Raj is a knave or", "not read at ''"),
        ("Raj told you", "Raj sang", "no claim in a known phrasing at: 'Raj sang"),
        ("Knights always", "Sages always", "two roles differ"),
        ("who is a knave?", "who is a fool?", "two roles differ"),
    ],
)
def test_other_texts_are_refused(old, new, message):
    assert old in SMALL
    with pytest.raises(ValueError, match=message):
        parse_puzzle(SMALL.replace(old, new))


def test_a_mixture_of_and_and_or_is_ambiguous_and_refused():
    with pytest.raises(ValueError, match="not read at 'and Raj is a knight or"):
        parse_puzzle(SMALL.replace("Raj is a knave or", "Raj is a knave or Raj is a knight and Raj is a knight or", 1))


def test_nesting_and_length_are_limited():
    claim = "(" * 30 + "Raj is a knave" + ")" * 30
    with pytest.raises(ValueError, match="nested more than 20 deep"):
        parse_puzzle(SMALL.replace("Raj is a knave or", f"{claim} or"))
    with pytest.raises(ValueError, match="at most 50000"):
        parse_puzzle(SMALL + " " * 50_000)


@given(st.text(max_size=200), st.integers(0, len(SMALL)))
def test_noise_gives_a_value_error_or_the_same_claims(noise, place):
    try:
        puzzle = parse_puzzle(SMALL[:place] + noise + SMALL[place:])
    except ValueError:
        return
    assert puzzle.statements == parse_puzzle(SMALL).statements


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        (("not", ("telling-truth", 0)), "Ann is not a sage"),
        (("not", ("not", ("lying", 1))), "it is not the case that (Bob is not a fool)"),
        (
            ("and", ("lying", 0), ("lying", 1), ("telling-truth", 0)),
            "Ann is a fool and Bob is a fool and Ann is a sage",
        ),
        (
            ("and", ("and", ("lying", 0), ("lying", 1)), ("lying", 0)),
            "(Ann is a fool and Bob is a fool) and Ann is a fool",
        ),
        (("<=>", ("lying", 0), ("not", ("lying", 1))), "Ann is a fool if and only if Bob is not a fool"),
        (
            ("not", ("->", ("lying", 0), ("lying", 1))),
            "it is not the case that (If Ann is a fool then Bob is a fool)",
        ),
    ],
)
def test_english_of_a_claim(statement, text):
    assert claim_text(statement, ("Ann", "Bob"), RoleWords(truthful="sage", lying="fool")) == text


def test_answer_has_the_article_of_the_role():
    roles = RoleWords(truthful="altruist", lying="egoist")
    puzzle = Puzzle(names=("Ann", "Bob"), statements=(), order=(), phrasing=(), roles=roles)
    assert answer_text(puzzle.told((True, False))) == "Ann is an altruist, Bob is an egoist"


def _rows(folder):
    for path in sorted(folder.iterdir()):
        if path.suffix == ".parquet":
            yield from pq.read_table(path).to_pylist()
        elif path.suffix == ".gz":
            with gzip.open(path, "rt", encoding="utf-8") as lines:
                yield from map(json.loads, lines)


@pytest.mark.parametrize("step", [20, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("name", "count"), [("kk_logic_rl", 5000), ("kk_mem_kk_logic", 10_061)])
def test_published_puzzles_are_proved_from_their_text_and_written_again(shared_data, name, count, step):
    rows = list(_rows(shared_data(name)))
    assert len(rows) == count
    for row in rows[::step]:
        puzzle = parse_puzzle(row["quiz"])
        words = row["knight_knave"]
        assert puzzle.statements == parse_statements(row["statements"])
        assert (puzzle.roles.truthful, puzzle.roles.lying) == (words["knight"], words["knave"])
        assert solutions(puzzle.statements) == [tuple(row["solution"])]
        assert render_puzzle(puzzle) == row["quiz"]
