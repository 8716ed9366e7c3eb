"""The configuration: frozen models with the defaults, and nothing else. Free of torch.

Reading recipes and overrides is in `swerve.recipes`. The classes of tasks are defined beside their
problems, in `swerve.problems`.
"""

from typing import Any

from swerve.config.curricula import (
    Curriculum,
    DifficultyCurriculum,
    ShuffledCurriculum,
    StageFilter,
    SuccessRateCurriculum,
)
from swerve.config.engines import EngineConfig, RolloutConfig, TorchEngineConfig
from swerve.config.models import LoraConfig, ModelConfig, PretrainedModel, TinyModel
from swerve.config.objectives import CollapseConfig, GaeAdvantages
from swerve.config.presets import PRESETS, preset_notes
from swerve.config.probe import (
    AttributionConfig,
    CausalConfig,
    CrossSamplingConfig,
    DivergenceName,
    PivotConfig,
    PopulationName,
    ProbeConfig,
    SpikeConfig,
    SpikeMethod,
    SwapSelector,
)
from swerve.config.recipe import (
    Config,
    EvalConfig,
    ReportConfig,
    RetentionConfig,
    RuntimeConfig,
    ShardingConfig,
)
from swerve.config.stages import (
    DistillStage,
    DpoStage,
    EarlyStoppingConfig,
    OptimizerConfig,
    PhaseConfig,
    RejectStage,
    RlStage,
    SftStage,
    StageConfig,
)
from swerve.grading.policies import ExtractionForm, MathGrading
from swerve.problems import TASKS
from swerve.problems.knights.grade_k_and_k import KAndKGrading
from swerve.problems.mixture import MixturePart, MixtureTask, SingleTaskConfig, TaskConfig
from swerve.problems.prompt import PromptConfig, PromptFormat
from swerve.problems.reading import DataTask, FilterConfig

__all__ = [
    "PRESETS",
    "AttributionConfig",
    "CausalConfig",
    "CollapseConfig",
    "Config",
    "CrossSamplingConfig",
    "Curriculum",
    "DataTask",
    "DifficultyCurriculum",
    "DistillStage",
    "DivergenceName",
    "DpoStage",
    "EarlyStoppingConfig",
    "EngineConfig",
    "EvalConfig",
    "ExtractionForm",
    "FilterConfig",
    "GaeAdvantages",
    "KAndKGrading",
    "LoraConfig",
    "MathGrading",
    "MixturePart",
    "MixtureTask",
    "ModelConfig",
    "OptimizerConfig",
    "PhaseConfig",
    "PivotConfig",
    "PopulationName",
    "PretrainedModel",
    "ProbeConfig",
    "PromptConfig",
    "PromptFormat",
    "RejectStage",
    "ReportConfig",
    "RetentionConfig",
    "RlStage",
    "RolloutConfig",
    "RuntimeConfig",
    "SftStage",
    "ShardingConfig",
    "ShuffledCurriculum",
    "SingleTaskConfig",
    "SpikeConfig",
    "SpikeMethod",
    "StageConfig",
    "StageFilter",
    "SuccessRateCurriculum",
    "SwapSelector",
    "TaskConfig",
    "TinyModel",
    "TorchEngineConfig",
    "preset_notes",
]

_TASKS = {task.config.__name__: task.config for task in TASKS.values()}
__all__ += sorted(_TASKS)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    """Return the configuration of a task, such as `AdditionTask`."""
    if name in _TASKS:
        return _TASKS[name]
    raise AttributeError(f"module 'swerve.config' has no attribute {name!r}")
