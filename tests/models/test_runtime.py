from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

_COUNT = """
import numpy, resource
from swerve.config.runtime import RuntimeConfig
from swerve.models.runtime import apply_runtime
apply_runtime(RuntimeConfig(threads=1))
faults = []
for _ in range(10):
    blocks = [numpy.ones(1 << 20) for _ in range(6)]  # of 8 MiB
    del blocks
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
print(faults[-1] - faults[4])
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs the C library of GNU")
@pytest.mark.parametrize(("environment", "is_kept"), [({}, True), ({"MALLOC_TRIM_THRESHOLD_": "131072"}, False)])
def test_freed_memory_is_kept_unless_the_environment_says_otherwise(environment, is_kept):
    """Memory that was given back is asked for page by page, 2,048 for each of the blocks."""
    others = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    found = subprocess.run(
        [sys.executable, "-c", _COUNT], env={**others, **environment}, check=True, capture_output=True, text=True
    )
    assert (int(found.stdout) < 5 * 2048) is is_kept, found.stdout
