"""Counts of phrases, and one clear line for every wrong lexicon."""

from __future__ import annotations

import pytest

from swerve.behaviours import count_behaviours, default_lexicon, read_lexicon, split_words
from swerve.behaviours.lexicon import parse_lexicon
from swerve.errors import ConfigError


def _counts(text, lexicon):
    return {name: num for name, num in count_behaviours(split_words(text), lexicon).items() if num}


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("Wait, wait. Awaiting waiters.", {"hesitation": 2}),
        ("Let me check this: let me CHECK", {"verification": 2}),
        ("Alternatively, we re-evaluate; however, that\u2019s wrong.", {"contrast": 2, "backtracking": 2}),
        ("Working backwards from 24 ...", {"backward_chaining": 1}),
        ("In summary, step by step", {"summary": 1, "subgoal_setting": 1}),
        ("The checkbook of Mr. Yeti", {}),
        ("", {}),
    ],
)
def test_the_shipped_lexicon(text, counts):
    assert _counts(text, default_lexicon()) == counts


def test_the_longest_phrase_counts_and_no_word_twice():
    lexicon = parse_lexicon("a: [check, check again, again]\nb: [again and again]", source="x.yaml")
    assert _counts("check again", lexicon) == {"a": 1}
    assert _counts("check again and again", lexicon) == {"a": 2}
    assert _counts("again and again, check", lexicon) == {"a": 1, "b": 1}


def test_the_words_of_the_literature_are_in_the_shipped_lexicon():
    for word in ("wait", "verify", "yet", "re-evaluate", "recheck", "alternatively", "however", "retry"):
        assert sum(_counts(word, default_lexicon()).values()) == 1, word


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a, b]", "own.yaml: a lexicon is a mapping such as"),
        ("", "own.yaml: a lexicon is a mapping such as"),
        ("doubt: wait", "own.yaml:1: 'doubt' must be a list"),
        ("doubt: []", "own.yaml:1: 'doubt' must be a list"),
        ("doubt:\n  - wait\n  - 3", "own.yaml:3: 3 of 'doubt' is not a word"),
        ("doubt:\n  - '...'", "own.yaml:2: '...' of 'doubt' is not a word"),
        ("doubt: [wait]\nmore:\n  - Wait!", "own.yaml:3: 'Wait!' of 'more' stands under 'doubt' already"),
    ],
)
def test_wrong_lexicons(text, message):
    with pytest.raises(ConfigError) as caught:
        parse_lexicon(text, source="own.yaml")
    assert message in str(caught.value)


def test_files(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text("doubt: [not sure]", encoding="utf-8")
    assert _counts("I am not sure", read_lexicon(path)) == {"doubt": 1}
    with pytest.raises(ConfigError, match=r"missing\.yaml cannot be read"):
        read_lexicon(tmp_path / "missing.yaml")
