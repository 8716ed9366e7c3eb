"""Where did behaviour change: a probe of both models on the base's greedy responses, each figure beside its nulls."""

from __future__ import annotations

from swerve.artifacts.probe_summary import ProbeSummary
from swerve.claim.part import Cost, Part, Points, Row, Share
from swerve.claim.settings import ClaimSettings
from swerve.claim.verdicts import verdict
from swerve.claim.work import NotMeasuredError, Work
from swerve.config.probe import CausalConfig, CrossSamplingConfig, ProbeConfig
from swerve.probe.recipe import ProbeRecipe, SamplesFrom
from swerve.text import percent_as

PROBE = ProbeConfig(
    noise_models=9,
    causal=CausalConfig(max_rollouts=40, num_continuations=8),
    cross_sampling=CrossSamplingConfig(
        max_problems=60, directions=("checkpoint_into_reference",), selectors=("js", "random"), shares=(0.01, 0.05, 0.2)
    ),
)
"""The spread of the noise models is in the interval; nine of them know it well enough."""


class DivergenceRow(Row):
    """Where the models differ, beside what it would be without training."""

    figure: str
    value: Share
    chance: Share = None
    """Were every position alike."""
    entropy: Share = None
    """Of the base's entropy in the place of the divergence."""
    noise: Share = None
    """Of random changes of the weights that move the base as far, mean."""


class TakenRow(Row):
    """The base's accuracy where some of its tokens are the trained model's."""

    taken: Share
    """Of the base's tokens."""
    at_spikes: Share
    """Accuracy where they are taken at the highest divergence."""
    anywhere: Share
    """The same at random places."""


class BehaviourPart(Part):
    """Where did behaviour change?"""

    figures: tuple[DivergenceRow, ...] = ()
    tokens_taken: tuple[TakenRow, ...] = ()
    swap_effect: Points = None
    """Success where the trained model's token is taken at the highest spike, minus that of the base's own."""

    @classmethod
    def measure(cls, work: Work) -> BehaviourPart:
        """Measure it; see `Part.measure`."""
        base, _ = work.greedy
        work.check_whole()
        from swerve.probe.from_files import plan_files
        from swerve.probe.steps import probe_in_steps

        # The base's responses to all problems: chosen by what is right, they would say something of the choice as well.
        if len(base) == 1:
            raise NotMeasuredError("needs two problems and more")
        models = {side.label: str(side.model) for side in work.sides}
        of_base, of_trained = (f"{work.out}/samples/{label}-greedy.parquet" for label in models)
        recipe = ProbeRecipe(
            models=models,
            reference=work.base.label,
            samples=SamplesFrom(reference=of_base, final=of_trained),
            select="all",
            probe=PROBE,
            out=f"{work.out}/probe",
            **work.settings.model_dump(include={"task", "rollout", "runtime"}),
        )
        summary = probe_in_steps(plan_files(recipe), progress=work.progress)
        assert summary is not None
        return behaviour_part(summary)

    @classmethod
    def cost(cls, settings: ClaimSettings, num_problems: int, num_runs: int) -> Cost:
        """Return what it takes; see `Part.cost`."""
        # Swaps of tokens in responses; accuracy with shares of tokens taken and with none, by both; passes over all.
        swaps, taken = PROBE.causal, PROBE.cross_sampling
        num_places, num_tokens = 1 + len(swaps.controls), 2 + swaps.alternative
        samples = swaps.max_rollouts * num_places * num_tokens * swaps.num_continuations
        samples += min(num_problems, taken.max_problems) * (len(taken.selectors) * len(taken.shares) + 2)
        return Cost(samples=samples, sequences=(2 + PROBE.noise_models) * num_problems)


def behaviour_part(summary: ProbeSummary) -> BehaviourPart:
    """Return what a probe says, with its verdict: are the differences elsewhere than those that noise makes?

    Raises:
        NotMeasuredError: the models differ nowhere in the base's responses.
    """
    claim = summary.claim("share", "uncertain")
    noise = claim.null("noise") if claim else None
    if not claim or not noise or not noise.difference:
        raise NotMeasuredError("needs responses of the base in which the models differ somewhere")
    shown, num = noise.side in (-1, 1) and summary.reliable, summary.num_rollout_problems
    own, other = (percent_as(value, noise.difference) for value in (claim.estimate.mean, noise.value))
    differ = "differ" if shown else "are not seen to differ" if summary.reliable else "may differ (too few to tell)"
    said = (
        f"the models {differ} elsewhere than under noise of the weights as large: {own} of the divergence is on the "
        f"fifth of the tokens at which `{summary.reference}` is least certain, against {other} with noise"
    )
    line = verdict("differs_beyond_noise", said, noise.difference, shown=shown, num=num, null="noise of the weights")
    rows = [
        DivergenceRow(figure=claim.name, value=claim.estimate, **{null.null: null.value for null in claim.nulls})
        for claim in summary.claims
        if claim.figure != "auc"
    ]

    # The base's own answers with tokens of the trained model, where the two differ most and anywhere.
    taken: list[TakenRow] = []
    for direction in summary.cross_sampling.directions if summary.cross_sampling else ():
        differing, anywhere = (selector.points for selector in direction.selectors)
        taken += [
            TakenRow(taken=first.budget, at_spikes=first.accuracy, anywhere=second.accuracy)
            for first, second in zip(differing, anywhere, strict=True)
        ]
    swaps = summary.spike_swaps
    return BehaviourPart(
        verdicts=(line,), figures=tuple(rows), swap_effect=swaps.effect if swaps else None, tokens_taken=tuple(taken)
    )
