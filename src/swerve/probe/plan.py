"""What a probe executes: its recipe with the models and rollouts that it names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swerve.artifacts.probe_summary import Compared, Selected
from swerve.artifacts.responses import Response
from swerve.artifacts.shards import WHOLE, Shard
from swerve.models.sources import ModelSource
from swerve.probe.recipe import ProbeRecipe
from swerve.probe.rollouts.selection import Selection
from swerve.rewards.checks import has_grader
from swerve.statistics.hypothesis_tests import mcnemar
from swerve.statistics.intervals import mean_interval
from swerve.types import Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePlan:
    """What to compare, on which rollouts, how, and where the results go."""

    recipe: ProbeRecipe
    """Names of the models, seed, settings, engine of the causal tests, directory of the results."""
    sources: Mapping[str, ModelSource]
    """The models by name."""
    compared: Compared
    """First entries of the summary: names, counts of problems and how rollouts were selected."""
    sequences: tuple[Response, ...]
    """Those of the headline population first."""
    population: str
    """Name of the headline population."""
    prompts: Sequence[Prompt] = ()
    """Problems that cross-sampling answers."""
    signals: Sequence[Mapping[str, Any]] = ()
    """What training recorded of the sequences of population `training`: rows of `signals.parquet`."""
    keep_statistics: bool = False
    """Keep the statistics of the tokens and the results of causal tests when the probe is complete."""
    notes: tuple[str, ...] = ()
    """Caveats that the way the rollouts were found calls for."""
    shard: Shard = WHOLE
    """Whose share of the work is done and left as parts, and no table is written; by default everything."""

    @property
    def reference(self) -> ModelSource:
        """What the checkpoints are compared with."""
        return self.sources[self.recipe.reference]

    @property
    def checkpoints(self) -> tuple[ModelSource, ...]:
        """What is compared with the reference, by step."""
        return tuple(self.sources[name] for name in self.recipe.compared)

    @property
    def baseline(self) -> ModelSource | None:
        """What the reference is compared with: how it differs was there before."""
        return None if self.recipe.baseline is None else self.sources[self.recipe.baseline]

    @property
    def final(self) -> str:
        """Name of the checkpoint that the headline metrics and the causal tests are about."""
        return self.recipe.final_name

    @property
    def steps(self) -> Mapping[str, int]:
        """Global step of every model by name; their order, where that is not known."""
        return self.recipe.steps or {name: index for index, name in enumerate(self.recipe.used)}

    @property
    def confidence(self) -> float:
        """Level of all intervals."""
        return self.recipe.eval.confidence

    @property
    def max_new_tokens(self) -> int:
        """Longest completion of the causal tests, in tokens; by default that of the longest sequence of one turn."""
        lengths = (len(sequence.completion_ids) for sequence in self.sequences if sequence.is_one_turn)
        return self.recipe.max_new_tokens or max(lengths, default=1)

    @property
    def models(self) -> tuple[ModelSource, ...]:
        """Every model of the plan once: reference, checkpoints, baseline."""
        recipe = self.recipe
        names = (recipe.reference, *recipe.compared, *([recipe.baseline] if recipe.baseline else []))
        return tuple(self.sources[name] for name in dict.fromkeys(names))

    @property
    def path(self) -> Path:
        """Directory of the tables."""
        return Path(self.recipe.out) / "probe"

    @property
    def states_path(self) -> Path:
        """Directory of hidden states, statistics and results of causal tests while they are needed."""
        return self.path / "states"

    @property
    def headline(self) -> tuple[Response, ...]:
        """The sequences of the headline population; without any nothing is measured, by no process."""
        return tuple(sequence for sequence in self.sequences if sequence.population == self.population)

    @property
    def has_verifier(self) -> bool:
        """Whether completions of the headline population can be graded: what the causal tests need."""
        return bool(self.headline) and all(has_grader(sequence.problem) for sequence in self.headline)


def first_entries(recipe: ProbeRecipe, *, weights_sha256: Mapping[str, str], **choice: Any) -> Compared:
    """Return the first entries of the summary: the models that a recipe names, and how rollouts were chosen."""
    return Compared(
        reference=recipe.reference,
        final=recipe.final_name,
        baseline=recipe.baseline,
        checkpoints=recipe.compared,
        weights_sha256=weights_sha256,
        **choice,
    )


def compare_selected(
    recipe: ProbeRecipe,
    selection: Selection,
    *,
    weights_sha256: Mapping[str, str],
    selected: Selected | None = None,
) -> Compared:
    """Return the same where rollouts were selected by what both models get right."""
    is_split, confidence = selection.rule == "split", recipe.eval.confidence
    turned = mean_interval(selection.turned, confidence=confidence, bounds=(0.0, 1.0))
    return first_entries(
        recipe,
        weights_sha256=weights_sha256,
        num_problems=len(selection.problem_ids),
        num_reference_wrong=selection.num_reference_wrong,
        num_reference_wrong_final_right=selection.num_reference_wrong_final_right,
        selection=selection.rule,
        num_ties=selection.num_ties if is_split else None,
        tie_seed=recipe.tie_seed if is_split else None,
        # Several samples from files have another accuracy than the verdicts that sort problems: `Selected` has it.
        mcnemar=None
        if is_split and selected is not None
        else mcnemar(selection.reference_right, selection.final_right, confidence=confidence),
        turned_by_itself=turned and turned.scaled(len(selection.problem_ids)),
        reselected=mean_interval(selection.reselected, confidence=confidence, bounds=(0.0, 1.0)),
        selected=selected,
    )
