from __future__ import annotations

import pytest

import swerve


def test_public_names() -> None:
    assert swerve.__all__ == [
        "ClaimSettings",
        "Config",
        "Run",
        "RunDirectory",
        "SampleSettings",
        "__version__",
        "claim",
        "equivalent",
        "evaluate",
        "evaluate_models",
        "functional",
        "load_config",
        "plot",
        "probe",
        "read_samples",
        "report",
        "rewards",
        "runs",
        "sample",
        "train",
    ]
    assert dir(swerve) == sorted(swerve.__all__)
    with pytest.raises(AttributeError, match="module 'swerve' has no attribute 'nothing'"):
        swerve.nothing  # type: ignore[attr-defined]  # noqa: B018
