from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from swerve.config.probe import CausalConfig, CrossSamplingConfig, ProbeConfig


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (CrossSamplingConfig, {"selectors": ("js", "random", "random")}, "selectors has a value twice"),
        (CrossSamplingConfig, {"shares": (0.05, 0.05)}, "shares has a value twice"),
        (CrossSamplingConfig, {"shares": ()}, "shares is empty"),
        (CausalConfig, {"policies": ()}, "policies is empty"),
        (CausalConfig, {"num_continuations": 8, "max_continuations": 4}, "max_continuations must be at least"),
        (ProbeConfig, {"pairs": ("baseline", "baseline")}, "pairs has a value twice"),
    ],
)
def test_lists_that_would_waste_or_skip_work_are_refused(kind: Any, values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        kind(**values)


def test_what_may_be_empty() -> None:
    assert ProbeConfig(pairs=(), populations=(), causal=CausalConfig(controls=())).pairs == ()
