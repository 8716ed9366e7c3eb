from __future__ import annotations

import subprocess
import sys

import pytest

import swerve


def test_public_names() -> None:
    assert swerve.__all__ == [
        "Config",
        "Run",
        "RunDirectory",
        "SampleSettings",
        "__version__",
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


def test_import_and_configuration_need_no_torch() -> None:
    code = (
        "import sys, swerve\n"
        "assert swerve.load_config('demo_addition').name == 'demo-addition'\n"
        "swerve.Run, swerve.runs, swerve.Config, swerve.SampleSettings, swerve.read_samples\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
