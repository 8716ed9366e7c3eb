"""Causal tests: what the tokens at which a checkpoint differs bring about.

`swaps` forces tokens at spikes and at matched controls, `pivots` finds the tokens across which the chance of success
jumps, `prediction` asks whether divergence tells where the effects are; `values` samples what they all rest on.
"""

from swerve.probe.causal.controls import Control, ControlPool
from swerve.probe.causal.effects import MeasuredEffect, measured_effects
from swerve.probe.causal.pivot_summary import pivot_summary
from swerve.probe.causal.pivots import (
    Pivot,
    PivotSearch,
    PrefixValue,
    find_pivots,
    num_samples,
    prefix_value_rows,
    prefix_values,
)
from swerve.probe.causal.prediction import prediction_summary
from swerve.probe.causal.summary import causal_summary
from swerve.probe.causal.swaps import (
    Intervention,
    Match,
    count_continued,
    intervention_rows,
    look_sizes,
    plan_interventions,
    run_interventions,
    verdict,
)
from swerve.probe.causal.values import ContinuationSampler, Outcome, Prefix

__all__ = [
    "ContinuationSampler",
    "Control",
    "ControlPool",
    "Intervention",
    "Match",
    "MeasuredEffect",
    "Outcome",
    "Pivot",
    "PivotSearch",
    "Prefix",
    "PrefixValue",
    "causal_summary",
    "count_continued",
    "find_pivots",
    "intervention_rows",
    "look_sizes",
    "measured_effects",
    "num_samples",
    "pivot_summary",
    "plan_interventions",
    "prediction_summary",
    "prefix_value_rows",
    "prefix_values",
    "run_interventions",
    "verdict",
]
