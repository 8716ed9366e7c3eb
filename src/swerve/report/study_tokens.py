"""Accuracy of a study's variants against the tokens that their training generated: what equal tokens bring."""

from __future__ import annotations

from collections.abc import Iterator

from swerve.artifacts.study import CURVES, Study
from swerve.estimates import Estimate
from swerve.report.rows import SHARE, Curves, Rows

_MAX_CURVES = 8


def tokens_rows(study: Study) -> Iterator[Rows]:
    """Yield the greedy accuracy of each variant by the tokens that its runs had generated on the way there.

    Both are means over seeds, with bands from the lowest to the highest seed; an evaluation before the first
    completion of training stands at 0.
    """
    generated = {
        curve.variant: dict(zip(curve.steps, curve.mean, strict=True)) for curve in study.curves_of("generated")
    }
    variants = [variant.name for variant in study.variants if variant.name in generated][:_MAX_CURVES]
    points: dict[float, dict[str, Estimate]] = {}
    for curve in study.curves_of("accuracy"):
        for step, mean, low, high in zip(curve.steps, curve.mean, curve.low, curve.high, strict=True):
            if curve.variant in variants:
                spent = max((num for at, num in generated[curve.variant].items() if at <= step), default=0.0)
                points.setdefault(spent, {})[curve.variant] = Estimate(mean=mean, low=low, high=high)

    # A curve has two places or more.
    places, title = sorted(points), CURVES["generated"].title
    if len(places) > 1:
        yield Rows(
            id="study_accuracy_by_tokens",
            title="Greedy accuracy by tokens generated in training",
            first=title,
            columns=dict.fromkeys(variants, SHARE),
            rows=tuple((f"{at:,.0f}", *map(points[at].get, variants)) for at in places),
            plots=(Curves(x=tuple(places), x_title=title, greys=(study.baseline,) if len(variants) > 1 else ()),),
            note="Means over seeds; bands from the lowest to the highest seed.",
            has_table=False,
        )
