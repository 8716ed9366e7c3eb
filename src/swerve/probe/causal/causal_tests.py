"""Run the causal tests of a plan: load models, work in units that an interruption does not lose, summarise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property, partial
from typing import Any

import numpy as np

from swerve.artifacts.parts import Parts
from swerve.artifacts.probe_causes import Policy, SwapPositions
from swerve.artifacts.responses import Response
from swerve.functional.head_divergence import TopProbs
from swerve.models.model_folder import LoadedModel, stop_ids
from swerve.models.sources import ModelSource
from swerve.probe.causal.attribution import Spot, attribute, summarise_attribution
from swerve.probe.causal.continuations import ContinuationSampler, Outcome, RecordedSampler
from swerve.probe.causal.cross_sampling import (
    CrossSampler,
    Direction,
    all_doses,
    count_cross_samples,
    pilot_split,
)
from swerve.probe.causal.cross_sampling_summary import summarise_cross_sampling
from swerve.probe.causal.interventions import Intervention, plan_interventions
from swerve.probe.causal.pivots import PivotSearch, find_pivots, prefix_value_rows, summarise_pivots
from swerve.probe.causal.swap_effects import summarise_prediction, summarise_swaps
from swerve.probe.causal.swaps import count_continued, intervention_rows, run_interventions
from swerve.probe.engine.measured import Measurements
from swerve.probe.engine.store import kept_result
from swerve.probe.findings.planted import selector_scores
from swerve.probe.findings.spike_table import SpikeTable
from swerve.probe.plan import ProbePlan
from swerve.progress import Progress, ProgressTask
from swerve.rewards.checks import grading_of
from swerve.rollout.engine import make_engine
from swerve.types import Prompt
from swerve.world import World

_ROLLOUTS_PER_UNIT = 10

Rows = list[dict[str, Any]]

Entries = dict[str, Any]
"""Of the summary (`Tested`), by name."""


@dataclass(kw_only=True)
class CausalTests:
    """The causal tests of a plan on its headline population: each returns the rows of its table and its entries."""

    plan: ProbePlan
    data: Measurements
    """The checkpoints against the reference on the headline population."""
    spikes: SpikeTable
    tops: Mapping[str, TopProbs]
    """The likeliest tokens at every position of the headline population, by label."""
    parts: Parts
    """The results so far."""
    progress: Progress
    world: World = field(default_factory=World)
    """The processes that share the work; all run the same tests."""
    _num_pieces: int = 0
    """Pieces of the work so far, which shards divide among them."""
    _loaded: dict[str, LoadedModel] = field(default_factory=dict)

    def run(self) -> Iterator[tuple[str, Rows, Entries]]:
        """Run each test; yield the name of its table, the rows and the entries; of a shard's share, nothing."""
        for table, test in _TESTS.items():
            if self.plan.has_verifier or table in _UNGRADED:
                rows, entries = test(self)
                if not self.plan.shard.is_share:
                    yield table, rows, entries

    def attribution(self) -> tuple[Rows, Entries]:
        """Score the tokens before the highest spikes of all rollouts."""
        settings, divergence = self.plan.recipe.probe.attribution, self.plan.recipe.probe.divergence
        if settings.method == "none":
            return [], {"attribution": ()}
        # The top positions with the largest divergence, at most one per rollout.
        tops = self.spikes.tops[self.plan.final, divergence]
        series = self.data.by_sequence(divergence, self.plan.final)
        order = sorted(range(len(tops)), key=lambda index: -float(series[index].max()))
        spots = [
            Spot(sequence=self.data.sequences[index], position=tops[index]) for index in order[: settings.max_spikes]
        ]
        rows: Rows = []
        with self.progress.task("attribution", 2 * len(spots)) as task:
            for source in (self._final, self.plan.reference):
                depends = {
                    "method": settings.method,
                    "model": source.label,
                    "spots": [[spot.sequence.sequence_id, spot.position, spot.prefix, spot.realised] for spot in spots],
                }
                attributed = partial(self._attributed, spots, source)
                rows += self._kept("attribution", depends, attributed) or []
                task.advance(len(spots))
        if self.plan.shard.is_share:
            return [], {}
        return rows, {"attribution": summarise_attribution(rows, self.data.sequences, confidence=self.plan.confidence)}

    def _attributed(self, spots: Sequence[Spot], source: ModelSource) -> Rows:
        method = self.plan.recipe.probe.attribution.method
        assert method != "none", "asked for above"
        own = attribute(self._model(source), self.world.shard(spots), method, label=source.label)
        return self.world.dealt_back(own)

    def swaps(self) -> tuple[Rows, Entries]:
        """Force tokens at spikes and other positions; also how well scores predict the effects."""
        settings, final, reference = self.plan.recipe.probe.causal, self.plan.final, self.plan.reference
        data, spikes = self._of_one_turn
        sequences = data.sequences[: settings.max_rollouts]
        if not sequences:
            return [], {}
        # Further positions: where another score of each rollout is highest, or its first wrong token.
        scores = selector_scores(data.pair(final).columns)
        others: dict[SwapPositions, list[int | None]] = {}
        for name in settings.selectors:
            if name == "first_wrong":
                others[name] = [sequence.first_wrong for sequence in sequences]
            else:
                rows = data.split(scores[name])[: len(sequences)]
                others[name] = [int(np.argmax(row)) for row in rows]
        of_one_turn = np.repeat([row.is_one_turn for row in self.data.sequences], self.data.lengths)
        planned = plan_interventions(
            data,
            spikes,
            checkpoint=final,
            divergence=self.plan.recipe.probe.divergence,
            settings=settings,
            seed=self.plan.recipe.seed,
            top_ref=self.tops[reference.label].ids.numpy()[of_one_turn],
            others=others,
        )
        done = [item for policy in settings.policies for item in self._swapped(policy, planned)]
        if self.plan.shard.is_share:
            return [], {}
        # Not what a score chose: it would have to rank its own choice.
        ranked = [item for item in done if item.selection not in settings.selectors]
        begins = dict(zip([sequence.sequence_id for sequence in data.sequences], data.starts, strict=True))
        places = [int(begins[item.sequence.sequence_id]) + item.position for item in ranked]
        entries = {
            "causal": summarise_swaps(done, settings=settings, intervals=self.data.intervals),
            "prediction": summarise_prediction(
                ranked, {name: values[places] for name, values in scores.items()}, intervals=self.data.intervals
            ),
        }
        return intervention_rows(done, reference.check().tokenizer), entries

    def _swapped(self, policy: Policy, planned: Sequence[Intervention]) -> list[Intervention]:
        """Run the interventions of one policy, a number of rollouts at a time; return them with their outcomes."""
        source = self._source(policy)
        mine = [item for item in planned if item.policy == policy]
        spikes = list(dict.fromkeys(item.spike.sequence_id for item in mine))
        parts = [{*spikes[start : start + _ROLLOUTS_PER_UNIT]} for start in range(0, len(spikes), _ROLLOUTS_PER_UNIT)]
        units = [[item for item in mine if item.spike.sequence_id in part] for part in parts]
        # Each unit continues its own prefixes, also one that another has, too: a control in another's rollout.
        total = sum(self._num_continued(unit, source) for unit in units)
        with self.progress.task("causal test", total) as task:
            return [item for unit in units for item in self._unit(unit, source, task)]

    def _num_continued(self, items: Sequence[Intervention], source: ModelSource) -> int:
        checked = source.check()  # it is loaded where something is to be done
        num = count_continued(items, stop_ids(checked.config, checked.tokenizer), self.plan.max_new_tokens)
        return num * self.plan.recipe.probe.causal.num_continuations

    def _unit(self, items: Sequence[Intervention], source: ModelSource, task: ProgressTask) -> list[Intervention]:
        settings = self.plan.recipe.probe.causal

        def compute() -> list[Any]:
            with self._sampler(source, settings.temperature, task) as sampler:
                done = run_interventions(items, sampler, settings=settings, confidence=self.plan.confidence)
            return [[asdict(outcome) for outcome in item.outcomes.values()] for item in done]

        # Everything that the outcomes depend on beside what the parts have in common.
        problems = [item.sequence.problem for item in items]
        depends = {
            "policy": source.label,
            "settings": settings.model_dump(mode="json"),
            "problems": [asdict(problem) for problem in problems],
            "graders": grading_of(problems),
            "items": [
                [item.selection, item.spike.sequence_id, item.position, item.tokens, *_tokens(item.sequence)]
                for item in items
            ],
        }
        drawn = self._kept("swaps", depends, compute, on_found=lambda: task.advance(self._num_continued(items, source)))
        if drawn is None:
            return []
        return [
            item.continued(dict(zip(item.tokens, map(Outcome.of_json, outcomes), strict=True)))
            for item, outcomes in zip(items, drawn, strict=True)
        ]

    def pivots(self) -> tuple[Rows, Entries]:
        """Search for the tokens, or sentences, across which the value of a rollout jumps."""
        settings, plan = self.plan.recipe.probe.pivots, self.plan
        data, spikes = self._of_one_turn
        sequences = data.sequences[: settings.max_rollouts]
        if not sequences:
            return [], {}
        searches: dict[Policy, list[PivotSearch]] = {policy: [] for policy in settings.policies}
        with self.progress.task("pivots", 0) as task:  # how many turns out on the way
            for policy, own in searches.items():
                for start in range(0, len(sequences), _ROLLOUTS_PER_UNIT):
                    own += self._searched(sequences[start : start + _ROLLOUTS_PER_UNIT], policy, task)
        if plan.shard.is_share:
            return [], {}
        positions = spikes.positions(plan.final, plan.recipe.probe.divergence)
        # Where the divergence is highest, and where the reference's entropy is.
        ids = [sequence.sequence_id for sequence in data.sequences]
        divergent = spikes.tops[plan.final, plan.recipe.probe.divergence]
        uncertain = [int(np.argmax(own)) for own in data.by_sequence("entropy_ref", plan.final)]
        rows: Rows = []
        entries = []
        for search in map(PivotSearch.of_parts, searches.values()):
            rows += prefix_value_rows(search.values, search.policy)
            entries.append(
                summarise_pivots(
                    search,
                    spikes=dict(zip(ids, positions, strict=True)),
                    tops=dict(zip(ids, zip(divergent, uncertain, strict=True), strict=True)),
                    intervals=self.data.intervals,
                )
            )
        return rows, {"pivots": entries}

    def _searched(self, sequences: Sequence[Response], policy: Policy, task: ProgressTask) -> list[PivotSearch]:
        """Return one policy's search in some rollouts; none where it is another shard's."""
        settings, source = self.plan.recipe.probe.pivots, self._source(policy)

        def compute() -> list[Any]:
            with self._sampler(source, settings.temperature, task) as sampler:
                find_pivots(sequences, sampler, settings=settings)
            return [list(map(asdict, outcomes)) for outcomes in sampler.calls]

        # Everything that the outcomes depend on beside what the parts have in common.
        problems = [sequence.problem for sequence in sequences]
        depends = {
            "policy": source.label,
            "settings": settings.model_dump(mode="json", exclude={"max_rollouts", "policies"}),
            "problems": [asdict(problem) for problem in problems],
            "graders": grading_of(problems),
            "rollouts": [
                [sequence.sequence_id, sequence.text, list(map(list, sequence.spans)), *_tokens(sequence)]
                for sequence in sequences
            ],
        }
        calls = self._kept("pivots", depends, compute)
        if calls is None:
            return []
        known = RecordedSampler(list(map(Outcome.of_json, outcomes)) for outcomes in calls)
        return [find_pivots(sequences, known, settings=settings, policy=policy)]

    def cross_sampling(self) -> tuple[Rows, Entries]:
        """Let each of the two models take the other's token where a selector fires."""
        settings = self.plan.recipe.probe.cross_sampling
        of_several = {row.problem.id for row in self.data.sequences if not row.is_one_turn}
        asked = [prompt for prompt in self.plan.prompts if prompt.problem.id not in of_several]
        if not settings.max_problems or len(asked) < 2:
            return [], {}
        prompts, pilot = pilot_split(asked, max_problems=settings.max_problems)
        rows: Rows = []
        num = count_cross_samples(settings, len(prompts), len(pilot))
        with self.progress.task("cross-sampling", len(settings.directions) * num) as task:
            for direction in settings.directions:
                rows += self._crossed(direction, prompts, pilot, task)
        if self.plan.shard.is_share:
            return [], {}
        return rows, {"cross_sampling": summarise_cross_sampling(rows, intervals=self.data.intervals)}

    def _crossed(
        self, direction: Direction, prompts: Sequence[Prompt], pilot: Sequence[Prompt], task: ProgressTask
    ) -> Rows:
        """Return the rows of one direction, as far as they are this shard's."""
        settings, plan = self.plan.recipe.probe.cross_sampling, self.plan
        sources = [plan.reference, self._final]
        if direction == "reference_into_checkpoint":
            sources.reverse()

        @cache
        def sampling() -> CrossSampler:
            base, other = map(self._model, sources)
            return CrossSampler(
                base=base,
                other=other,
                direction=direction,
                settings=settings,
                max_new_tokens=plan.max_new_tokens,
                max_rows=plan.recipe.runtime.max_rows,
                seed=plan.recipe.seed,
                on_finished=task.advance,
            )

        # Everything that the rows depend on beside what the parts have in common.
        depends = {
            "settings": settings.model_dump(mode="json", exclude={"directions"}),
            "direction": direction,
            "prompts": [
                [[asdict(prompt.problem), list(prompt.token_ids)] for prompt in part] for part in (prompts, pilot)
            ],
            "graders": grading_of(prompt.problem for prompt in prompts),
        }

        # Every shard needs the thresholds, and finds them itself.
        thresholds = self._kept(
            "pilot",
            depends,
            lambda: sampling().thresholds(pilot),
            on_found=lambda: task.advance(settings.num_samples * len(pilot)),
            is_common=True,
        )
        rows: Rows = []
        on_found = partial(task.advance, settings.num_samples * len(prompts))
        for dose in all_doses(thresholds, settings):
            dosed = partial(lambda dose: sampling().rows(prompts, dose, self.world), dose)
            rows += self._kept("dose", [depends, dose.selector, dose.share], dosed, on_found=on_found) or []
        return rows

    def _kept(
        self,
        name: str,
        depends: Any,
        compute: Callable[[], Any],
        *,
        on_found: Callable[[], None] = lambda: None,
        is_common: bool = False,
    ) -> Any:
        """Return a piece of the work, see `kept_result`; None where it is another shard's.

        Args:
            name: of the kind of work.
            depends: what the result depends on.
            compute: makes the result.
            on_found: called where the result was computed before, or is another shard's.
            is_common: every shard needs it.
        """
        shard, piece = self.plan.shard, self._num_pieces
        self._num_pieces += not is_common
        if not (is_common or shard.owns(piece)):
            on_found()
            return None
        return kept_result(self.parts, name, depends, compute, world=self.world, on_found=on_found)

    @cached_property
    def _of_one_turn(self) -> tuple[Measurements, SpikeTable]:
        """The rollouts of one turn: in others a continuation would need who answered the model between its turns."""
        if all(row.is_one_turn for row in self.data.sequences):
            return self.data, self.spikes
        return self.data.select(lambda row: row.is_one_turn), self.spikes.select(lambda row: row.is_one_turn)

    def _source(self, policy: Policy) -> ModelSource:
        return self.plan.reference if policy == "reference" else self._final

    @property
    def _final(self) -> ModelSource:
        return next(source for source in self.plan.checkpoints if source.label == self.plan.final)

    @contextmanager
    def _sampler(self, source: ModelSource, temperature: float, task: ProgressTask) -> Iterator[ContinuationSampler]:
        """Continue with one model, through an engine that is closed at the end of the block."""
        loaded, config = self._model(source), self.plan.recipe.rollout.engine
        max_rows = self.plan.recipe.runtime.max_rows
        with closing(make_engine(config, loaded.model, loaded.tokenizer, max_rows=max_rows)) as engine:
            yield ContinuationSampler(
                engine=engine,
                tokenizer=loaded.tokenizer,
                stop_ids=stop_ids(loaded.model, loaded.tokenizer),
                max_new_tokens=self.plan.max_new_tokens,
                temperature=temperature,
                seed=self.plan.recipe.seed,
                world=self.world,
                on_planned=task.extend,
                on_finished=task.advance,
            )

    def _model(self, source: ModelSource) -> LoadedModel:
        if source.label not in self._loaded:
            self._loaded[source.label] = source.load()
        return self._loaded[source.label]


def _tokens(sequence: Response) -> list[list[int]]:
    return [list(sequence.prompt_ids), list(sequence.completion_ids)]


_TESTS: Mapping[str, Callable[[CausalTests], tuple[Rows, Entries]]] = {
    "attributions": CausalTests.attribution,
    "interventions": CausalTests.swaps,
    "prefix_values": CausalTests.pivots,
    "cross_samples": CausalTests.cross_sampling,
}
"""The tests, in the order in which they run, by the name of their table."""

_UNGRADED = ("attributions",)
"""Tests that need no grader."""
