from __future__ import annotations

import pytest

from swerve.errors import ArtifactError
from swerve.formats.records import FileRecord
from swerve.problems.data_specs import read_source
from swerve.problems.knights.english import parse_puzzle, render_puzzle
from swerve.problems.knights.rows import prove_row, row_problem
from tests.cases import each

RAJ_SAYS = "Uma is a sage or Raj is a sage"
QUIZ = (
    "A very special island is inhabited only by sages and fools. Sages always tell the truth, and fools always lie. "
    'You meet 2 inhabitants: Uma, and Raj. Uma said, "Raj is a fool." '
    f"Raj told you that {RAJ_SAYS}. So who is a sage and who is a fool?"
)
ROW = {
    "quiz": QUIZ,
    "names": ["Uma", "Raj"],
    "knight_knave": {"knight": "sage", "knave": "fool"},
    "solution": [False, True],
    "solution_text_format": "(1) Uma is a fool\n(2) Raj is a sage",
    "statements": "(('lying', 1), ('or', ('telling-truth', 0), ('telling-truth', 1)))",
    "variant": "random_pair",
}


def record(**changes) -> FileRecord:
    values = {**ROW, **changes}
    return FileRecord("rows.jsonl, line 3", {name: value for name, value in values.items() if value is not None})


def test_a_row_becomes_a_problem():
    problem = row_problem(record())
    assert problem.question == QUIZ
    assert problem.answer == "Uma is a fool, Raj is a sage"
    assert (problem.kind, problem.difficulty) == ("2 people", 2.0)
    assert problem.metadata == {
        "names": ["Uma", "Raj"],
        "roles": {"knight": "sage", "knave": "fool"},
        "solution": [False, True],
        "statements": ROW["statements"],
        "variant": "random_pair",
    }
    assert problem.solution is not None
    assert problem.solution.startswith("<think> Let's go through the cases")
    assert problem.solution.endswith("</think>\n<answer> Uma is a fool, Raj is a sage </answer>")


def test_a_row_s_own_reasoning_is_the_solution():
    steps = ["Uma cannot be a sage.", "Assume Uma is a fool."]
    problem = row_problem(record(cot_head="Let us see.", cot_repeat_steps=steps, cot_foot="This fits."))
    assert problem.solution == (
        "<think> Let us see.\nUma cannot be a sage.\nAssume Uma is a fool.\nThis fits. </think>\n"
        "<answer> Uma is a fool, Raj is a sage </answer>"
    )


def test_the_text_alone_is_enough():
    problem = row_problem(FileRecord("here", {"question": QUIZ}))
    assert problem.answer == "Uma is a fool, Raj is a sage"
    assert problem.id == row_problem(record()).id


@each(
    ("changes", "message"),
    [
        (
            {"solution": [True, True]},
            "line 3: the field 'solution' does not hold: the proved one is: Uma is a fool, Raj",
        ),
        ({"solution": ["False", "True"]}, "'solution' does not hold"),
        ({"statements": "(('lying', 1), ('lying', 1))"}, "'statements' does not hold: the text says"),
        ({"statements": "(('lying', 1), open('x'))"}, "'statements' does not hold: .* not a tuple"),
        ({"names": ["Raj", "Uma"]}, "'names' does not hold: the text names Uma, Raj"),
        ({"knight_knave": {"knight": "fool", "knave": "sage"}}, "by the text a sage tells the truth and a fool lies"),
        ({"solution_text_format": "(1) Uma is a sage\n(2) Raj is a fool"}, "'solution_text_format' does not hold"),
        ({"quiz": QUIZ.replace("Uma said", "Uma sang")}, "'quiz' does not hold: no claim in a known phrasing"),
        ({"quiz": QUIZ.replace(RAJ_SAYS, "Raj is a fool")}, "'quiz' does not hold: it has 0 solutions"),
        ({"quiz": QUIZ.replace(RAJ_SAYS, "Uma is a fool")}, "'quiz' does not hold: it has 2 solutions"),
        ({"quiz": None}, "line 3 has no field 'quiz'"),
    ],
)
def test_a_row_that_does_not_hold_is_refused_by_its_place(changes, message):
    with pytest.raises(ArtifactError, match=message):
        row_problem(record(**changes))


def test_the_text_is_written_again_from_the_puzzle():
    assert render_puzzle(parse_puzzle(QUIZ)) == QUIZ


def test_statements_may_be_lists():
    statements = [["lying", 1], ["or", ["telling-truth", 0], ["telling-truth", 1]]]
    assert not prove_row(record(statements=statements)).differences
    assert prove_row(record(statements=statements[::-1])).differences.keys() == {"statements"}


@pytest.mark.parametrize("name", ["kk_logic_rl/5ppl_test.parquet", "kk_mem_kk_logic/test_flip_role.jsonl.gz"])
def test_published_files_hold(shared_data, name):
    folder, file = name.split("/")
    rows = [prove_row(row) for row in read_source(str(shared_data(folder) / file))]
    assert len(rows) == {"5ppl_test.parquet": 100, "test_flip_role.jsonl.gz": 700}[file]
    assert all(row.solution is not None and not row.differences for row in rows)
