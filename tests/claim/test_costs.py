"""What a card costs, said before it is paid."""

from swerve.claim.costs import costs_said
from swerve.claim.settings import ClaimSettings
from swerve.problems.addition import AdditionTask


def test_costs_of_every_part():
    settings = ClaimSettings(task={"kind": "addition"}, max_new_tokens=64, some=30, others=(AdditionTask(),))
    assert costs_said(settings, 50) == [
        "both models: 1,600 samples of at most 64 tokens, and 100 greedy",
        "accuracy: nothing more",
        "runs: nothing more",
        "prompts: nothing more",
        "gained: 1,600 sequences more",
        "answers: nothing more",
        "contamination: 360 samples more",
        "forgetting: 60 samples and 120 sequences more",
        "behaviour: 3,280 samples and 550 sequences more",
        "weights: 1,470 samples more",
        "reasoning: 1,000 sequences more",
        "controls: nothing more",
    ]

    # Parts that rest on no sample at temperature 1 take none.
    assert costs_said(settings.model_copy(update={"parts": ("weights",)}), 50) == [
        "both models: 100 greedy samples of at most 64 tokens",
        "weights: 1,470 samples more",
    ]


def test_further_runs_are_sampled_from_as_well():
    settings = ClaimSettings(task={"kind": "addition"}, parts=("runs",))
    assert costs_said(settings, 50, num_models=4)[1:] == ["runs: 1,600 samples more"]
