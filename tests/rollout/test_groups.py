"""Groups: every completion gets its own reward, all from one call of the grader; what responses look like."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from swerve.rollout.engine import Engine, SamplingParams
from swerve.rollout.groups import response_metrics, rollout_groups
from swerve.types import Completion, Problem, Prompt, Reward, Rollout, RolloutGroup


class _Engine(Engine):
    """Answers prompt n with the tokens n and n + 1, one per completion."""

    version = 7

    def generate(self, prompts: Sequence[Sequence[int]], params: SamplingParams, **_more: Any) -> list[Any]:
        return [
            tuple(
                Completion(token_ids=(prompt[0] + sample,), logprobs=(0.0,), finish_reason="stop")
                for sample in range(params.num_samples)
            )
            for prompt in prompts
        ]


class _Tokenizer:
    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        assert skip_special_tokens
        return f"text {ids[0]}"


def _problem(name: str, **more: Any) -> Problem:
    return Problem(id=name, family="f", question="How many cats are there?", answer="1", **more)


def test_every_completion_has_the_reward_of_its_own_text_from_one_call(unchecked_shapes):
    calls: list[list[tuple[str, str]]] = []

    def grade(pairs: Sequence[tuple[Problem, str]]) -> list[Reward]:
        calls.append([(problem.id, text) for problem, text in pairs])
        return [Reward(value=float(text.split()[1]), status="graded") for _, text in pairs]

    prompts = [Prompt(problem=_problem(name), token_ids=(start,)) for name, start in (("a", 10), ("b", 20))]
    params = SamplingParams(num_samples=2, max_new_tokens=1, temperature=1.0, stop_ids=())
    tokenizer: Any = _Tokenizer()
    groups = rollout_groups(_Engine(), tokenizer, prompts, params, seeds=[1, 2], grade=grade)
    assert calls == [[("a", "text 10"), ("a", "text 11"), ("b", "text 20"), ("b", "text 21")]]
    found = [[(one.completion.token_ids, one.text, one.reward.value) for one in group.rollouts] for group in groups]
    assert found == [
        [((10,), "text 10", 10.0), ((11,), "text 11", 11.0)],
        [((20,), "text 20", 20.0), ((21,), "text 21", 21.0)],
    ]
    assert [group.prompt.problem.id for group in groups] == ["a", "b"]
    assert {one.version for group in groups for one in group.rollouts} == {7}


def _group(problem: Problem, *texts: str) -> RolloutGroup:
    reward, completion = Reward(value=0.0, status="graded"), Completion(token_ids=(), logprobs=(), finish_reason="stop")
    rollouts = tuple(Rollout(completion=completion, text=text, reward=reward, version=0) for text in texts)
    return RolloutGroup(prompt=Prompt(problem=problem, token_ids=(1,)), rollouts=rollouts)


def test_the_format_rate_is_of_the_format_that_each_prompt_asks_for():
    tags = _problem("t", messages=(("user", "Use <think> </think> and <answer> </answer>."),), prefix="<think>")
    boxed = _problem("b", messages=(("user", "Put it within \\boxed{}."),))
    plain = _problem("p")
    # A chat template that does not begin the thinking leaves that to the model.
    by_template = [replace(tags, prefix="", begun=begun) for begun in ("<think>\n", "")]
    texts = " cats </think> <answer>1</answer>", "<think> cats </think> <answer>1</answer>"
    rates = [response_metrics([_group(one, text)])["format_rate"] for one in by_template for text in texts]
    assert rates == [1.0, 1.0, 0.0, 1.0]
    groups = [
        _group(tags, " cats </think> <answer>1</answer>", "<answer>1</answer>"),
        _group(boxed, "so \\boxed{1}", "so 1"),
        _group(plain, "1", "1"),
    ]
    assert response_metrics(groups)["format_rate"] == 0.5
    assert response_metrics(groups[:1])["format_rate"] == 0.5
    assert response_metrics(groups[2:])["format_rate"] is None
    # Each alone: one whose prompt asks for a box, and one for the answer's tags without thinking.
    assert response_metrics(groups[1:])["format_rate"] == 0.5
    answer_only = _problem("a", messages=(("user", "Answer within <answer> </answer>."),))
    assert response_metrics([_group(answer_only, "<answer>1</answer>", "1")])["format_rate"] == 0.5


def test_the_given_beginning_counts_as_part_of_the_response():
    text = " </think> <answer>1</answer>"
    begun, whole = _problem("b", prefix="<think>"), _problem("w")
    assert response_metrics([_group(begun, text)])["dummy_thinking_share"] == 1.0
    assert response_metrics([_group(whole, "It is 1.")])["dummy_thinking_share"] is None
