from __future__ import annotations

from swerve.grading.sentences import stated_value
from tests.cases import each


@each(
    ("sentence", "value"),
    [
        ("The tallest of 34 trees is 20 feet.", "20 feet"),
        ("42 is the answer to question 7.", "42"),
        ("42 apples are left after 3 days.", "42"),
        ("4 weeks have 28 days.", "28 days"),
        ("She makes 2 * 9 = $18 a day.", "$18"),
        ("12 x 3 = 36 cookies", "36"),
        ("She earns $34 each for 2 tickets, so $68 in total.", "$68"),
        ("If each of the 6 friends pays $20, the total is $120.", "$120"),
        ("He got $33 back from the $100 he paid.", "$33"),
        ("Maria has eleven (11) cats.", "11"),
        ("It is 9 (nine) apples.", "9"),
        ("The temperature is negative 3 degrees.", "-3 degrees"),
        ("It costs $65,960 more.", "$65,960"),
        ("The room is 12 m² large.", r"12\text{ m^2}"),
        ("It is 34 or 35.", None),
        ("It is not 34.", None),
        ("I guess 34? or maybe 30", None),
        ("The tallest tree is 35 feet, the other 34.", None),
        ("Tom is 30, Ann is 34.", None),
        ("There are 5 apples and 3 pears.", None),
        ("They are 12, 34, 56.", None),
        ("It is at least 34.", None),
        ("It is between 40 and 42.", None),
        ("It is 42-45.", None),
        ("The ratio is 34:20.", None),
        ("It is 5 hundredths.", None),
        ("It is 5 more than before.", None),
        ("We get x > 5.", None),
    ],
)
def test_a_sentence_states_a_value_or_leaves_it_open(sentence: str, value: str | None) -> None:
    assert stated_value(sentence) == value
