"""Which rollouts of two models are read: verdicts on every problem, populations, and how many of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from swerve.artifacts.responses import Response
from swerve.config.probe import PopulationName, ProbeConfig
from swerve.probe.recipe import SELECTIONS, SelectionName
from swerve.seeds import derive_seed
from swerve.statistics.pass_at_k import chance_of_turning

POPULATION: SelectionName = "reference_wrong_final_right"
"""The population of the headline metrics, unless another is asked for."""

_KEYS: Mapping[str, PopulationName] = {
    "reference_wrong_final_wrong": "reference_wrong",
    "reference_wrong": "reference_wrong",
    "reference_right": "reference_right",
    "checkpoint_right": "checkpoint_right",
    "checkpoint_wrong": "checkpoint_wrong",
}
"""Population -> its key in `probe.populations`."""

Rule = Literal["greedy", "split", "single"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The rollouts to read, and how they were found."""

    rollouts: tuple[Response, ...]
    """With population and label of the writer; the headline population first."""
    problem_ids: tuple[str, ...]
    """Every problem that was decided on."""
    reference_right: tuple[bool, ...]
    """Of every problem: its greedy completion where there is one, else what the deciding samples say."""
    final_right: tuple[bool, ...]
    num_reference_wrong: int
    """By the completions that decide."""
    num_reference_wrong_final_right: int
    rule: Rule
    """Of the reference. `greedy` and `single`: the one completion of each problem decides and is read; `split`: the
    first half of each problem's samples decides, and rollouts of the second half are read."""
    num_ties: int
    """Verdicts, of a model on a problem, that were drawn since as many samples are right as wrong."""
    num_unshared: int = 0
    """Problems that only one of the models was asked, which are left out."""
    reselected: tuple[float, ...] = ()
    """Of each problem that greedy decoding selects: how probable another draw of the sampled completions selects it."""
    turned: tuple[float, ...] = ()
    """Of each problem: how probable the reference alone, drawn twice, would have it wrong and right. Empty where a
    problem has too few samples to tell."""

    @property
    def table(self) -> tuple[int, int, int, int]:
        """Problems that both models, the reference alone, the final one alone, or neither has right."""
        cells = Counter(zip(self.reference_right, self.final_right, strict=True))
        return cells[True, True], cells[True, False], cells[False, True], cells[False, False]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verdict:
    """Whether a model has a problem right, and the completions to read."""

    right: bool
    tied: bool
    read: Sequence[Response]


def select_by_rules(
    reference: Mapping[str, Sequence[Response]],
    final: Mapping[str, Sequence[Response]],
    *,
    labels: tuple[str, str],
    rules: tuple[Rule, Rule],
    config: ProbeConfig,
    tie_seed: int,
    headline: SelectionName = POPULATION,
    fits: Callable[[Response], bool] = lambda rollout: True,
) -> Selection:
    """Select the rollouts of every population, problems in their order, one rollout a problem and population.

    By `split` a model has a problem right if most of the first half of its completions are, and by a coin where as many
    are wrong; read are completions of the other half: what is described was not what decided the selection. The coins
    are of `tie_seed`, the model's label and the problem: with ties called wrong a model that is right half of the time
    had 3 of 4 problems wrong by two samples.

    Args:
        reference: completions of the reference by problem; at least two of each for `split`.
        final: of the final checkpoint, for the same problems.
        labels: of the two.
        rules: what decides for each of the two.
        config: other populations, and how many rollouts of each.
        tie_seed: of the coins.
        headline: the population of the headline metrics.
        fits: whether a rollout may be read.
    """
    verdicts = {
        label: [_verdict(samples, rule, (tie_seed, label, name)) for name, samples in group.items()]
        for label, rule, group in zip(labels, rules, (reference, final), strict=True)
    }
    cells = [(mine.right, theirs.right) for mine, theirs in zip(*verdicts.values(), strict=True)]

    # Of each problem and writer the first rollout of a population is taken.
    chosen: dict[str, list[Response]] = {headline: []}
    for index, cell in enumerate(cells):
        for label in labels:
            seen: set[str] = set()
            for rollout in verdicts[label][index].read:
                name = _population(headline, bool(rollout.correct), cell=cell, is_reference=label == labels[0])
                if name not in seen and fits(rollout):
                    seen.add(name)
                    chosen.setdefault(name, []).append(replace(rollout, population=name, label=label))

    # The headline population stands first, the others as they are asked for.
    rollouts = chosen[headline][: config.max_rollouts]
    for name, key in _KEYS.items():
        if name != headline and key in config.populations:
            rollouts += chosen.get(name, [])[: config.max_other_rollouts]
    return Selection(
        rollouts=tuple(rollouts),
        problem_ids=tuple(reference),
        reference_right=tuple(right for right, _ in cells),
        final_right=tuple(right for _, right in cells),
        num_reference_wrong=sum(not right for right, _ in cells),
        num_reference_wrong_final_right=cells.count((False, True)),
        rule=rules[0],
        num_ties=sum(verdict.tied for of_model in verdicts.values() for verdict in of_model),
        turned=turned_by_itself(reference, [1 if rule != "split" else None for rule in rules]),
    )


def turned_by_itself(reference: Mapping[str, Sequence[Response]], deciding: Sequence[int | None]) -> tuple[float, ...]:
    """Return the chance that each problem turns though nothing changed; empty where samples are too few to tell.

    Args:
        reference: samples of the reference by problem.
        deciding: how many samples decide, first of those that have it wrong, then right; None: half of them.
    """
    chances = []
    for samples in reference.values():
        first, second = (len(samples) // 2 if num is None else num for num in deciding)
        chance = chance_of_turning(len(samples), sum(bool(sample.correct) for sample in samples), (first, second))
        if chance is None:
            return ()
        chances.append(chance)
    return tuple(chances)


def _verdict(samples: Sequence[Response], rule: Rule, coin: tuple[int, str, str]) -> _Verdict:
    half = len(samples) // 2 if rule == "split" else 1
    right, tied = majority([bool(sample.correct) for sample in samples[:half]], *coin)
    return _Verdict(right=right, tied=tied, read=samples[half:] if rule == "split" else samples[:1])


def majority(verdicts: Sequence[bool], tie_seed: int, label: str, problem_id: str) -> tuple[bool, bool]:
    """Return whether most verdicts on a problem are right, and whether as many are wrong, which a draw decides.

    >>> majority([True, False, True], 0, "dpo", "p"), majority([True, False], 0, "dpo", "p")[1]
    ((True, False), True)
    """
    twice = 2 * sum(verdicts)
    tied = twice == len(verdicts)
    return twice > len(verdicts) or (tied and derive_seed(tie_seed, label, problem_id) % 2 == 1), tied


def _population(headline: SelectionName, correct: bool, *, cell: tuple[bool, bool], is_reference: bool) -> str:
    """Return the population of a rollout of a problem that reference and final have right or wrong as `cell` says."""
    if not is_reference:
        return "checkpoint_right" if correct else "checkpoint_wrong"
    wanted = SELECTIONS[headline]
    if wanted is None or (cell == wanted and correct == wanted[0]):
        return headline
    if correct:
        return "reference_right"
    return "reference_wrong_final_wrong" if headline == POPULATION else "reference_wrong"
