"""Statistics. The unit is the problem: its values are averaged first, or left out together."""

from __future__ import annotations

from swerve.estimates import Correlation, Estimate, McNemarResult, SkewedMean, WilcoxonResult
from swerve.statistics.association import spearman
from swerve.statistics.hypothesis_tests import (
    benjamini_hochberg,
    cliffs_delta,
    cohens_d_paired,
    detectable_difference,
    false_positive_rate,
    holm,
    mcnemar,
    paired_difference,
    paired_t_test,
    paired_wilcoxon,
    samples_for_false_positive_rate,
    sign_flip_test,
)
from swerve.statistics.intervals import (
    accuracy_interval,
    difference_interval,
    draw_difference,
    mean_interval,
    median_interval,
    share,
    skewed_mean_interval,
)
from swerve.statistics.paired import paired_interval
from swerve.statistics.ranking import Ranking, auc, auc_difference, auc_interval, average_precision, ranking_intervals
from swerve.statistics.ratios import ratio_interval, share_difference, statistic_interval

__all__ = [
    "Correlation",
    "Estimate",
    "McNemarResult",
    "Ranking",
    "SkewedMean",
    "WilcoxonResult",
    "accuracy_interval",
    "auc",
    "auc_difference",
    "auc_interval",
    "average_precision",
    "benjamini_hochberg",
    "cliffs_delta",
    "cohens_d_paired",
    "detectable_difference",
    "difference_interval",
    "draw_difference",
    "false_positive_rate",
    "holm",
    "mcnemar",
    "mean_interval",
    "median_interval",
    "paired_difference",
    "paired_interval",
    "paired_t_test",
    "paired_wilcoxon",
    "ranking_intervals",
    "ratio_interval",
    "samples_for_false_positive_rate",
    "share",
    "share_difference",
    "sign_flip_test",
    "skewed_mean_interval",
    "spearman",
    "statistic_interval",
]


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
