from __future__ import annotations

import subprocess
import sys

import pytest

import swerve


def test_public_names() -> None:
    assert swerve.__all__ == [
        "Config",
        "RunDirectory",
        "SampleSettings",
        "__version__",
        "build_report",
        "evaluate",
        "evaluate_models",
        "functional",
        "load_config",
        "plot",
        "probe",
        "probe_run",
        "read_samples",
        "rewards",
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
        "swerve.RunDirectory, swerve.Config, swerve.SampleSettings, swerve.read_samples\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_train_can_be_called_whoever_imports_its_package_first() -> None:
    code = (
        "import sys\n"
        "for first in ('from swerve.train import train', 'pass'):\n"
        "    for name in [name for name in sys.modules if name.partition('.')[0] == 'swerve']:\n"
        "        del sys.modules[name]\n"
        "    exec(first)\n"
        "    import swerve\n"
        "    assert swerve.train.train is swerve.train.loop.train\n"
        "    try:\n"
        "        swerve.train(1)\n"
        "    except TypeError as error:\n"
        "        assert str(error).startswith(\"train() missing 1 required positional argument: 'run'\"), error\n"
        "    else:\n"
        "        raise AssertionError('train was called without a run')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
