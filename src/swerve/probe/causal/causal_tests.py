"""Run the causal tests of a plan: load models, work in units that an interruption does not lose, summarise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swerve.artifacts.probe_causes import Attribution, CrossSampling, Pivots, Prediction, Swaps
from swerve.config import CrossSamplingConfig
from swerve.config.probe import SwapPlace
from swerve.models.model_folder import LoadedModel, stop_ids
from swerve.models.sources import ModelSource
from swerve.probe.causal.attribution import Spot, attribute, summarise_attribution
from swerve.probe.causal.continuations import ContinuationSampler, Outcome
from swerve.probe.causal.cross_sampling import count_cross_samples, cross_sampling_rows, pilot_split, run_cross_sampling
from swerve.probe.causal.cross_sampling_summary import summarise_cross_sampling
from swerve.probe.causal.interventions import Intervention, plan_interventions
from swerve.probe.causal.pivots import PivotSearch, find_pivots, prefix_value_rows, summarise_pivots
from swerve.probe.causal.swap_effects import measured_effects, summarise_prediction, summarise_swaps
from swerve.probe.causal.swaps import count_continued, intervention_rows, run_interventions
from swerve.probe.engine.forward import TopTokens
from swerve.probe.engine.measured import Measurements
from swerve.probe.engine.store import PartStore
from swerve.probe.findings.parts import Intervals
from swerve.probe.findings.planted import selector_scores
from swerve.probe.findings.spike_table import SpikeTable
from swerve.probe.plan import ProbePlan
from swerve.probe.rollouts.population import ProbeSequence
from swerve.progress import Progress, ProgressTask
from swerve.rewards.checks import grading_of
from swerve.rollout.engine import Engine, make_engine
from swerve.types import Prompt
from swerve.world import World

_ROLLOUTS_PER_UNIT = 50

Row = Mapping[str, Any]


@dataclass(slots=True, kw_only=True)
class CausalTests:
    """Runs the causal tests of a plan on its headline population."""

    plan: ProbePlan
    data: Measurements
    """The checkpoints against the reference on the headline population."""
    spikes: SpikeTable
    tops: Mapping[str, TopTokens]
    """The likeliest tokens at every position of the headline population, by label."""
    parts: PartStore
    progress: Progress
    world: World = field(default_factory=World)
    """The processes that share the work; all run the same tests."""
    _loaded: dict[str, LoadedModel] = field(default_factory=dict)

    def swaps(self) -> tuple[list[dict[str, Any]], Swaps | None, tuple[Prediction, ...]]:
        """Return rows of `interventions.parquet`, what the swaps did, and how well scores predict it."""
        settings = self.plan.settings.causal
        planned = self._planned()
        if not planned:
            return [], None, ()
        outcomes = self._outcomes(planned)
        tokenizer = self._model(self.plan.reference).tokenizer
        effects = measured_effects(planned, outcomes)
        summary = summarise_swaps(planned, outcomes, settings=settings, intervals=self._intervals)
        # Not what a score chose: it would have to rank its own choice.
        effects = [one for one in effects if one.selection not in settings.selectors]
        scores = self._scores([(one.sequence_id, one.position) for one in effects])
        prediction = summarise_prediction(effects, scores, intervals=self._intervals)
        return intervention_rows(planned, outcomes, tokenizer), summary, prediction

    def _planned(self) -> list[Intervention]:
        settings, final, divergence = self.plan.settings.causal, self.plan.final, self.plan.settings.divergence
        sequences = self.data.sequences[: settings.max_rollouts]
        num = len(sequences)
        bounds = np.cumsum(self.data.lengths)[:-1]
        categories = np.split(np.array(self.data.categories, dtype=np.str_), bounds)
        return plan_interventions(
            sequences,
            settings=settings,
            tops=self.spikes.tops[final, divergence][:num],
            argmax=[row.tolist() for row in self.data.by_sequence("argmax", final)[:num]],
            seed=self.plan.seed,
            top_ref=[ids.tolist() for ids in np.split(self.tops[self.plan.reference.label].ids.numpy(), bounds)[:num]],
            spikes=self.spikes.positions(final, divergence)[:num],
            categories=[row.tolist() for row in categories[:num]],
            entropy_ref=[row.tolist() for row in self.data.by_sequence("entropy_ref", final)[:num]],
            others={name: self._chosen(name, sequences) for name in settings.selectors},
        )

    def _chosen(self, selector: SwapPlace, sequences: Sequence[ProbeSequence]) -> list[int | None]:
        """Return the position of each rollout at which a score is highest, or its first wrong token."""
        if selector == "first_wrong":
            return [one.first_wrong for one in sequences]
        index = self.data.checkpoints.index(self.plan.final)
        scores = selector_scores({name: column[index] for name, column in self.data.columns.items()})[selector]
        bounds = np.cumsum(self.data.lengths)[:-1]
        return [int(np.argmax(one)) for one in np.split(scores, bounds)[: len(sequences)]]

    def _outcomes(self, planned: Sequence[Intervention]) -> list[Outcome]:
        """Run the interventions, one policy after the other, a number of rollouts at a time."""
        found: dict[int, Outcome] = {}
        for policy in self.plan.settings.causal.policies:
            source = self.plan.reference if policy == "reference" else self._final
            mine = [index for index, item in enumerate(planned) if item.policy == policy]
            spikes = list(dict.fromkeys(planned[index].spike_sequence_id for index in mine))
            units = [spikes[start : start + _ROLLOUTS_PER_UNIT] for start in range(0, len(spikes), _ROLLOUTS_PER_UNIT)]
            with self.progress.task(
                "causal test", self._num_continued([planned[index] for index in mine], source)
            ) as task:
                for unit in units:
                    rows = [index for index in mine if planned[index].spike_sequence_id in set(unit)]
                    done = self._unit([planned[index] for index in rows], source, task)
                    found.update(zip(rows, done, strict=True))
        return [found[index] for index in range(len(planned))]

    def _num_continued(self, items: Sequence[Intervention], source: ModelSource) -> int:
        loaded = self._model(source)
        stops = stop_ids(loaded.model, loaded.tokenizer)
        num = count_continued(items, stops, self.plan.max_new_tokens)
        return num * self.plan.settings.causal.num_continuations

    def _unit(self, items: Sequence[Intervention], source: ModelSource, task: ProgressTask) -> list[Outcome]:
        settings = self.plan.settings.causal

        def compute() -> list[Any]:
            loaded = self._model(source)
            with self._engine(loaded) as engine:
                outcomes = run_interventions(
                    items,
                    self._sampler(loaded, engine, settings.temperature),
                    settings=settings,
                    confidence=self.plan.confidence,
                    on_planned=task.extend,
                    on_finished=task.advance,
                )
            return [[_counts(one), None if one.first is None else _counts(one.first)] for one in outcomes]

        depends = {
            "policy": source.label,
            "settings": settings.model_dump(mode="json"),
            "problems": [asdict(item.sequence.problem) for item in items],
            "graders": grading_of(item.sequence.problem for item in items),
            "items": [
                [*item.place, item.arm, list(item.sequence.prompt_ids), list(item.forced.completion_ids)]
                for item in items
            ],
        }
        found = self.parts.get(
            "swaps", depends, compute, on_found=lambda: task.advance(self._num_continued(items, source))
        )
        return [Outcome(**drawn, first=None if first is None else Outcome(**first)) for drawn, first in found]

    def _scores(self, places: Sequence[tuple[int, int]]) -> dict[str, NDArray[np.float64]]:
        """Return each selector's score of the final checkpoint at positions (sequence_id, position)."""
        starts = np.cumsum(self.data.lengths) - self.data.lengths
        begin = {one.sequence_id: int(start) for one, start in zip(self.data.sequences, starts, strict=True)}
        rows = np.array([begin[identity] + position for identity, position in places], dtype=np.int64)
        index = self.data.checkpoints.index(self.plan.final)
        columns = {name: column[index] for name, column in self.data.columns.items()}
        return {name: np.asarray(values, dtype=np.float64)[rows] for name, values in selector_scores(columns).items()}

    def pivots(self) -> tuple[list[dict[str, Any]], Pivots | None]:
        """Return rows of `prefix_values.parquet` and the summary of the pivotal tokens."""
        settings, plan = self.plan.settings.pivots, self.plan
        sequences = self.data.sequences[: settings.max_rollouts]
        if not sequences:
            return [], None
        search = self._search(sequences)
        positions = self.spikes.positions(plan.final, plan.settings.divergence)
        summary = summarise_pivots(
            search,
            spikes={one.sequence_id: found for one, found in zip(self.data.sequences, positions, strict=True)},
            intervals=self._intervals,
        )
        return prefix_value_rows(search.values), summary

    def _search(self, sequences: Sequence[ProbeSequence]) -> PivotSearch:
        loaded = self._model(self.plan.reference)
        settings = self.plan.settings.pivots
        with self._engine(loaded) as engine, self.progress.task("pivots", 0) as task:  # how many turns out on the way
            sampler = self._sampler(loaded, engine, settings.temperature)
            return find_pivots(sequences, sampler, settings=settings, on_planned=task.extend, on_finished=task.advance)

    def cross_sampling(self) -> tuple[list[dict[str, Any]], CrossSampling | None]:
        """Return rows of `cross_samples.parquet` and their summary."""
        plan, settings = self.plan, self.plan.settings.cross_sampling
        if not settings.max_problems or len(plan.prompts) < 2:
            return [], None
        prompts, pilot = pilot_split(plan.prompts, max_problems=settings.max_problems)
        rows: list[dict[str, Any]] = []
        with self.progress.task("cross-sampling", count_cross_samples(settings, len(prompts), len(pilot))) as task:
            for direction in settings.directions:
                one_way = settings.model_copy(update={"directions": (direction,)})
                rows += self._crossed(one_way, prompts, pilot, task)
        return rows, summarise_cross_sampling(rows, intervals=self._intervals)

    def _crossed(
        self, settings: CrossSamplingConfig, prompts: Sequence[Prompt], pilot: Sequence[Prompt], task: ProgressTask
    ) -> list[dict[str, Any]]:
        """Return the rows of one direction."""

        def compute() -> list[Mapping[str, Any]]:
            samples = run_cross_sampling(
                self._model(self.plan.reference),
                self._model(self._final),
                prompts,
                pilot,
                settings=settings,
                max_new_tokens=self.plan.max_new_tokens,
                max_rows=self.plan.runtime.max_rows,
                seed=self.plan.seed,
                world=self.world,
                on_finished=task.advance,
            )
            return cross_sampling_rows(samples)

        depends = {
            "settings": settings.model_dump(mode="json"),
            "prompts": [[[asdict(one.problem), list(one.token_ids)] for one in part] for part in (prompts, pilot)],
            "graders": grading_of(one.problem for one in prompts),
        }
        num = count_cross_samples(settings, len(prompts), len(pilot))
        found: list[dict[str, Any]]
        found = self.parts.get("cross_sampling", depends, compute, on_found=lambda: task.advance(num))
        return found

    def attribution(self) -> tuple[list[dict[str, Any]], tuple[Attribution, ...]]:
        """Return rows of `attributions.parquet` and where the scores lie, at the highest spikes of all rollouts."""
        settings, plan = self.plan.settings.attribution, self.plan
        if settings.method == "none":
            return [], ()
        spots = self._highest_spikes(settings.max_spikes)
        rows = []
        with self.progress.task("attribution", 2 * len(spots)) as task:
            for source in (self._final, plan.reference):
                depends = {
                    "method": settings.method,
                    "model": source.label,
                    "spots": [_spot_content(spot) for spot in spots],
                }
                rows += self.parts.get("attribution", depends, partial(self._attributed, spots, source))
                task.advance(len(spots))
        return rows, summarise_attribution(rows, self.data.sequences, confidence=plan.confidence)

    def _attributed(self, spots: Sequence[Spot], source: ModelSource) -> list[dict[str, Any]]:
        method = self.plan.settings.attribution.method
        assert method != "none", "asked for above"
        own = attribute(self._model(source), self.world.shard(spots), method, label=source.label)
        return self.world.dealt_back(own)

    def _highest_spikes(self, count: int) -> list[Spot]:
        """Return the top positions with the largest divergence, at most one per rollout."""
        divergence, final = self.plan.settings.divergence, self.plan.final
        tops = self.spikes.tops[final, divergence]
        series = self.data.by_sequence(divergence, final)
        order = sorted(range(len(tops)), key=lambda index: -float(series[index][tops[index]]))
        return [Spot(sequence=self.data.sequences[index], position=tops[index]) for index in order[:count]]

    @property
    def _final(self) -> ModelSource:
        return next(one for one in self.plan.checkpoints if one.label == self.plan.final)

    def _engine(self, loaded: LoadedModel) -> AbstractContextManager[Engine]:
        """Return an engine for a `with` block, closed at its end."""
        config, max_rows = self.plan.rollout.engine, self.plan.runtime.max_rows
        return closing(make_engine(config, loaded.model, loaded.tokenizer, max_rows=max_rows))

    def _sampler(self, loaded: LoadedModel, engine: Engine, temperature: float) -> ContinuationSampler:
        return ContinuationSampler(
            engine=engine,
            tokenizer=loaded.tokenizer,
            stop_ids=stop_ids(loaded.model, loaded.tokenizer),
            max_new_tokens=self.plan.max_new_tokens,
            temperature=temperature,
            seed=self.plan.seed,
            world=self.world,
        )

    @property
    def _intervals(self) -> Intervals:
        return Intervals(confidence=self.plan.confidence)

    def _model(self, source: ModelSource) -> LoadedModel:
        if source.label not in self._loaded:
            self._loaded[source.label] = source.load()
        return self._loaded[source.label]


def _spot_content(spot: Spot) -> list[Any]:
    """Return what explaining a spot depends on: its place, what was read before it and the token that stands there."""
    sequence, position = spot.sequence, spot.position
    tokens = (sequence.prompt_ids, sequence.completion_ids[: position + 1])
    return [sequence.sequence_id, position, *map(list, tokens)]


def _counts(outcome: Outcome) -> dict[str, int | None]:
    return {name: getattr(outcome, name) for name in _COUNTS}


_COUNTS = ("num_continuations", "num_successes", "num_failures", "even_successes")
