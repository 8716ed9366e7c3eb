"""The configuration: frozen models with the defaults, and nothing else. Free of torch.

Reading recipes and overrides is in `swerve.recipes`.
"""

from swerve.config.curricula import (
    Curriculum,
    DifficultyCurriculum,
    ShuffledCurriculum,
    StageFilter,
    SuccessRateCurriculum,
)
from swerve.config.data_tasks import (
    DataTask,
    DeepScalerTask,
    FilterConfig,
    Gsm8kTask,
    MathTask,
    PromptConfig,
    PromptFormat,
    TableTask,
)
from swerve.config.engines import EngineConfig, RolloutConfig, TorchEngineConfig
from swerve.config.grading import ExtractionForm, KAndKGrading, MathGrading
from swerve.config.models import ModelConfig, PretrainedModel, TinyModel
from swerve.config.objectives import (
    CollapseConfig,
    GaeAdvantages,
)
from swerve.config.presets import PRESETS
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
from swerve.config.recipe import Config, EvalConfig, ReportConfig, RuntimeConfig
from swerve.config.stages import DistillStage, DpoStage, OptimizerConfig, RlStage, SftStage, StageConfig
from swerve.config.tasks import (
    AdditionTask,
    ArithmeticSequenceTask,
    CountdownTask,
    KAndKTask,
    KnightsKnavesTask,
    MixturePart,
    MixtureTask,
    PalindromeTask,
    ReasoningGymTask,
    SingleTaskConfig,
    TaskConfig,
)

__all__ = [
    "PRESETS",
    "AdditionTask",
    "ArithmeticSequenceTask",
    "AttributionConfig",
    "CausalConfig",
    "CollapseConfig",
    "Config",
    "CountdownTask",
    "CrossSamplingConfig",
    "Curriculum",
    "DataTask",
    "DeepScalerTask",
    "DifficultyCurriculum",
    "DistillStage",
    "DivergenceName",
    "DpoStage",
    "EngineConfig",
    "EvalConfig",
    "ExtractionForm",
    "FilterConfig",
    "GaeAdvantages",
    "Gsm8kTask",
    "KAndKGrading",
    "KAndKTask",
    "KnightsKnavesTask",
    "MathGrading",
    "MathTask",
    "MixturePart",
    "MixtureTask",
    "ModelConfig",
    "OptimizerConfig",
    "PalindromeTask",
    "PivotConfig",
    "PopulationName",
    "PretrainedModel",
    "ProbeConfig",
    "PromptConfig",
    "PromptFormat",
    "ReasoningGymTask",
    "ReportConfig",
    "RlStage",
    "RolloutConfig",
    "RuntimeConfig",
    "SftStage",
    "ShuffledCurriculum",
    "SingleTaskConfig",
    "SpikeConfig",
    "SpikeMethod",
    "StageConfig",
    "StageFilter",
    "SuccessRateCurriculum",
    "SwapSelector",
    "TableTask",
    "TaskConfig",
    "TinyModel",
    "TorchEngineConfig",
]
