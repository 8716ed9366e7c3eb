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
        "compare",
        "equivalent",
        "evaluate",
        "functional",
        "grade",
        "load_config",
        "plot",
        "probe",
        "read_samples",
        "recipes",
        "replay",
        "report",
        "rewards",
        "runs",
        "sample",
        "tasks",
        "train",
    ]
    assert dir(swerve) == sorted(swerve.__all__)
    with pytest.raises(AttributeError, match="module 'swerve' has no attribute 'nothing'"):
        swerve.nothing  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match="`swerve export` is a command of the terminal: swerve export --help"):
        swerve.export  # type: ignore[attr-defined]  # noqa: B018
