"""Rewards in the form in which TRL and verl call them."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from swerve.errors import ConfigError
from swerve.rewards import math, trl_reward, verl_reward


def test_trl_calls_with_texts_messages_and_columns() -> None:
    reward = pickle.loads(pickle.dumps(trl_reward("math", gold="gold")))
    texts = [r"\boxed{4}", "5", r"<think>\boxed{4}</think> \boxed{3}"]
    extras: dict[str, Any] = {
        "completion_ids": [[1]] * 3,
        "trainer_state": None,
        "log_extra": print,
        "grader": ["x"] * 3,
    }
    asked = {"prompts": ["2 + 2?"] * 3, "gold": ["4", ["6", "5"], "4"], **extras}
    assert reward(completions=texts, **asked) == [1.0, 1.0, 0.0]
    said = [[{"role": "assistant", "content": text}] for text in texts]
    assert reward(completions=said, **asked) == [1.0, 1.0, 0.0]
    parts = [[{"role": "assistant", "content": [{"type": "text", "text": text}]}] for text in texts]
    assert reward(completions=parts, **asked) == [1.0, 1.0, 0.0]


@pytest.mark.parametrize(("missing", "expected"), [(0.0, 0.0), (-1.0, -1.0), (None, None)])
def test_a_completion_without_an_answer_counts_as_asked(missing: float | None, expected: float | None) -> None:
    said = "I thought about it for a while, and then I stopped."
    reward = trl_reward("math", extraction=["boxed"], missing=missing)
    assert reward(prompts=["?"], completions=[said], answer=["4"]) == [expected]
    assert math(said, "4", extraction=["boxed"], missing=missing) == expected


@pytest.mark.parametrize("gold", [None, [], {"text": "4"}, float("nan"), ["4", None]])
def test_a_row_without_a_gold_answer_is_refused(gold: object) -> None:
    with pytest.raises(ConfigError, match="the gold answer is .*; give a text, a number or a list of these"):
        trl_reward("math")(prompts=["?"] * 2, completions=["4", "4"], answer=["4", gold])


def test_gold_answers_may_be_numbers_of_numpy() -> None:
    assert trl_reward("math")(prompts=["?"] * 2, completions=["4", "5"], answer=np.array([4, 4])) == [1.0, 0.0]


def test_verl_calls_by_name() -> None:
    score = pickle.loads(pickle.dumps(verl_reward("gsm8k")))
    called = {"data_source": "openai/gsm8k", "ground_truth": "72", "extra_info": {"index": 3}}
    assert score(solution_str="So it is #### 72", **called) == 1.0
    assert score(solution_str="So it is #### 71", **called) == 0.0
    assert score("openai/gsm8k", "#### 72", "72") == 1.0


def test_wrong_settings_are_named_before_training() -> None:
    with pytest.raises(ConfigError, match="there is no grader 'maths'; did you mean 'math'"):
        trl_reward("maths")
    with pytest.raises(ConfigError, match="no policy 'extract'; did you mean 'extraction'"):
        verl_reward("math", extract=["boxed"])
    with pytest.raises(ConfigError, match=r"no column 'answer' .* name it with gold= \(it has solution\)"):
        trl_reward("math")(prompts=["?"], completions=["1"], solution=["1"])


def test_a_reward_has_a_name_of_its_own() -> None:
    rewards = [trl_reward("math"), trl_reward("exact"), trl_reward("math", extraction=["boxed"], name="boxed")]
    assert [reward.__name__ for reward in rewards] == ["swerve_math", "swerve_exact", "boxed"]
    others = [trl_reward("math", extraction=["boxed"]), trl_reward("math", gold="final answer")]
    assert [reward.__name__ for reward in others] == ["swerve_math_boxed", "swerve_math_final_answer"]
    assert pickle.loads(pickle.dumps(rewards[2])).__name__ == "boxed"
    with pytest.raises(ConfigError, match="name='' is no name for a reward; give a text, or leave it out"):
        trl_reward("math", name="")


def test_a_reward_needs_no_prompts_and_says_what_it_is() -> None:
    reward = trl_reward("math", extraction=["boxed"])
    assert reward(completions=[r"\boxed{4}", "4"], answer=["4", "4"]) == [1.0, 0.0]
    assert repr(reward) == (
        "trl_reward('math', gold='answer', extraction=['boxed']), which TRL logs as swerve_math_boxed"
    )
    with pytest.raises(ConfigError, match="answer= is one text; give a list"):
        trl_reward("math")(prompts=["x", "y"], completions=["1", "2"], answer="12")
    with pytest.raises(ConfigError, match="completions= is missing"):
        reward(answer=["4"])
    with pytest.raises(ConfigError, match="2 completions need as many gold answers and prompts, got 1 and 2"):
        reward(completions=["4", "4"], answer=["4"])


CALL = {"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}


@pytest.mark.parametrize(
    "completion",
    [
        None,
        [],
        [{"role": "assistant", "content": None}],
        [{"role": "assistant", "tool_calls": [CALL]}],
        [{"role": "assistant", "content": r"\boxed{4}"}, {"role": "assistant", "tool_calls": [CALL]}],
        [{"role": "assistant", "tool_calls": [CALL]}, {"role": "tool", "content": r"\boxed{4}"}],  # the tool says it
        [{"role": "assistant", "content": [{"type": "image_url", "image_url": {"url": "x"}}, {"text": None}]}],
    ],
)
def test_a_completion_without_text_has_no_answer_and_is_counted(completion: Any) -> None:
    reward = trl_reward("math", missing=None)
    assert reward(prompts=["2 + 2?"] * 2, completions=[completion, r"\boxed{4}"], answer=["4", "4"]) == [None, 1.0]
    assert reward.num_without_text == 1


def test_what_a_tool_answers_last_is_not_what_the_model_said() -> None:
    said = [{"role": "assistant", "content": r"\boxed{4}"}, {"role": "tool", "content": "5"}]
    assert trl_reward("math")(prompts=["2 + 2?"], completions=[said], answer=["4"]) == [1.0]


@pytest.mark.parametrize("given", [{"4": "5"}, 4, None])
def test_what_is_no_text_is_refused_in_one_line(given: Any) -> None:
    with pytest.raises(ConfigError, match="there is no text to grade but .*; give one text, or messages to trl_reward"):
        math(given, "4")


def test_texts_are_graded_side_by_side_with_their_gold_answers() -> None:
    assert math(["It is 4.", "It is 5."], ["4", ["5", "6"]]) == [1.0, 1.0]
    assert math(["It is 4.", "Who knows?"], ("5", "5"), missing=None) == [0.0, None]
    for golds, said in (("4", "'4'"), (["4"], "1")):
        with pytest.raises(ConfigError, match=rf"2 texts need as many gold answers, got {said}; math\(texts, golds\)"):
            math(["4", "5"], golds)
