"""What control rewards do in place of the real one, by a finished study."""

from __future__ import annotations

from pathlib import Path

from swerve.artifacts.study import Study, find_study, read_study
from swerve.claim.part import Count, Part, Points, Row, Share
from swerve.claim.verdicts import ClaimVerdict, undetermined, verdict
from swerve.claim.work import NotMeasuredError, Work
from swerve.errors import ArtifactError
from swerve.estimates import Estimate
from swerve.text import percent_as

_MEASURE = "sampled_accuracy"


class ControlRow(Row):
    """Training with another reward."""

    arm: str
    """Variant of the study."""
    accuracy: Share
    """Sampled, over seeds."""
    difference: Points
    """From the real reward's, paired over seeds."""
    runs: Count


class ControlsPart(Part):
    """Would any reward have done it?"""

    needs_models = False

    arms: tuple[ControlRow, ...] = ()
    study: str = ""

    @classmethod
    def measure(cls, work: Work) -> ControlsPart:
        """Measure it; see `Part.measure`."""
        name = work.settings.study
        if name is None:
            raise NotMeasuredError("needs a study: swerve study RECIPE controls=all, then --study DIR")
        try:
            return controls_part(read_study(find_study(name) or Path(name)))
        except ArtifactError as error:
            raise NotMeasuredError(str(error)) from None


def controls_part(study: Study) -> ControlsPart:
    """Return what the variants of a study came to, beside its baseline, the real reward.

    Raises:
        NotMeasuredError: it compares no control over seeds.
    """
    rows, verdicts = [], []
    for mean in study.means:
        if mean.measure == _MEASURE:
            arm, less = mean.variant, study.difference_of(_MEASURE, mean.variant)
            change = less.over_seeds if less else None
            rows.append(ControlRow(arm=arm, accuracy=mean.mean, difference=change, runs=mean.num_seeds))
            # The real reward with other samples is no control: it shows what the noise of training does.
            if less and arm.startswith("control-") and arm != "control-same":
                real = study.mean_of(_MEASURE, study.baseline)
                ends = (mean.mean, real.mean) if real and real.num_seeds == mean.num_seeds == less.num_seeds else None
                verdicts.append(reward_verdict(arm, change, less.num_seeds, ends))
    if all(line.shown is None for line in verdicts):
        raise NotMeasuredError(f"study {study.name} compares no control over seeds; it needs controls=all and seeds=3")
    return ControlsPart(arms=tuple(rows), verdicts=tuple(verdicts), study=study.name)


def reward_verdict(
    arm: str, difference: Estimate | None, num_seeds: int, ends: tuple[float, float] | None = None
) -> ClaimVerdict:
    """Return whether training with a control is shown to end below training with the real reward.

    Args:
        arm: the control's variant.
        difference: of its accuracy from the real reward's, with Student's t interval over paired seeds; None: there is
            no interval, so that it cannot be said.
        num_seeds: that both have.
        ends: both accuracies, where they are of the same seeds.
    """
    if difference is None:
        because = "they have one seed in common" if num_seeds < 2 else "all seeds differ alike"
        return undetermined(
            "reward_matters", f"sampled accuracy is lower with {arm} than with the real reward", because, of=arm
        )
    null, shown = "the real reward, same seeds", difference.high < 0
    lower = "is lower" if shown else "is not seen to be lower"
    said = f"sampled accuracy {lower} with {arm} than with the real reward"
    if ends is not None:
        said += f": {' against '.join(percent_as(end, difference) for end in ends)}"
    return verdict("reward_matters", said, difference, shown=shown, num=num_seeds, null=null, of=arm, unit="seed")
