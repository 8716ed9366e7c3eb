from __future__ import annotations

from swerve.behaviours import split_words


def test_words_are_cut_as_documented():
    assert split_words("Wait\u2014let\u2019s re\u2011check x_1, isn't it 3.14?") == [
        *("wait", "let's", "re-check", "x", "1", "isn't", "it", "3", "14")
    ]
    assert split_words("<think>a</think><answer>b</answer> <other>") == ["a", "b", "other"]
    assert split_words("--- 'quoted' -5 a--b") == ["quoted", "5", "a", "b"]
