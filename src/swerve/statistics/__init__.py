"""Statistics. The unit is the problem: its values are averaged first, or resampled together."""

from __future__ import annotations

from swerve.estimates import Correlation, Estimate, McNemarResult, WilcoxonResult
from swerve.statistics.association import pearson, spearman
from swerve.statistics.hypothesis_tests import (
    benjamini_hochberg,
    cliffs_delta,
    cohens_d_paired,
    false_positive_rate,
    mcnemar,
    paired_wilcoxon,
    samples_for_false_positive_rate,
)
from swerve.statistics.intervals import bootstrap_mean, bootstrap_ratio, bootstrap_statistic, difference_interval, share
from swerve.statistics.ranking import Ranking, auc, average_precision, bootstrap_ranking

__all__ = [
    "Correlation",
    "Estimate",
    "McNemarResult",
    "Ranking",
    "WilcoxonResult",
    "auc",
    "average_precision",
    "benjamini_hochberg",
    "bootstrap_mean",
    "bootstrap_ranking",
    "bootstrap_ratio",
    "bootstrap_statistic",
    "cliffs_delta",
    "cohens_d_paired",
    "difference_interval",
    "false_positive_rate",
    "mcnemar",
    "paired_wilcoxon",
    "pearson",
    "samples_for_false_positive_rate",
    "share",
    "spearman",
]
