"""What the entries of a summary are called."""

from __future__ import annotations

from typing import Any

from swerve.report.names import continuing_model, direction_title, population_title


def test_names_hold_the_labels_of_the_models(inputs_of: Any) -> None:
    summary = inputs_of().summary
    assert population_title("reference_right", summary) == "dpo-8 right"
    assert population_title("mine", summary) == "mine"
    assert direction_title("checkpoint_into_reference", summary) == "dpo-8 with tokens of rl-80"
    assert [continuing_model(policy, summary) for policy in ("reference", "checkpoint")] == ["dpo-8", "rl-80"]
