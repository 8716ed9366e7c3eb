"""Training: the loop over stages, one update, and the stages themselves.

The package can be called like its function: `swerve.train(config, run, ...)`.
"""

from __future__ import annotations

import sys
from types import ModuleType

from swerve.train.loop import train

__all__ = ["train"]


class _CallablePackage(ModuleType):
    __call__ = staticmethod(train)


sys.modules[__name__].__class__ = _CallablePackage
