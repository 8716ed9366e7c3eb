from __future__ import annotations

import pytest

from swerve.behaviours import dummy_thinking

QUESTION = "Zoey and Owen live on an island. Who is a knave?"


@pytest.mark.parametrize(
    ("thinking", "question", "reason"),
    [
        ("", None, "empty"),
        (" \n ...!  ", None, "empty"),
        ("reasoning process here", None, "filler"),
        ("Let me think about this step-by-step.", None, "filler"),
        ("hello hello hello hello hello", None, "filler"),
        ("Owen lies", None, "short"),
        ("Owen lies, so Zoey is a knight", None, None),
        ("Owen lies, so Zoey is a knight", QUESTION, None),
        ("bananas are yellow fruit and taste sweet", QUESTION, "off_question"),
        ("bananas are yellow fruit and taste sweet", None, None),
        ("the one who is where they are not", QUESTION, "off_question"),
        ("bananas are yellow fruit and taste sweet", "Why?", None),
        ("first 12 minus five gives seven", "What is 12 - 5 * 3?", None),
    ],
)
def test_reasons(thinking, question, reason):
    assert dummy_thinking(thinking, question) == reason


def test_the_number_of_words_is_a_parameter():
    assert dummy_thinking("Owen lies", min_words=2) is None
    assert dummy_thinking("Owen lies, so Zoey is a knight", min_words=20) == "short"
