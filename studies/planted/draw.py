"""One draw of a world: new problems, new rollouts, and the whole probe over them."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from studies.models import MemorySource
from studies.planted.chain import EOS, LEVEL_OF, NUM_TOKENS, TOKENIZER, chain_model, prompt_ids
from studies.planted.exact import Split
from studies.planted.worlds import REFERENCE, World
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.artifacts.response_columns import SEQUENCES_SCHEMA
from swerve.artifacts.responses import Response
from swerve.artifacts.tables import INTERVENTIONS_SCHEMA, read_table
from swerve.config.probe import CausalConfig, CrossSamplingConfig, PivotConfig, ProbeConfig
from swerve.config.recipe import EvalConfig
from swerve.config.runtime import RuntimeConfig
from swerve.models.model_folder import LoadedModel
from swerve.probe.execute import execute
from swerve.probe.plan import ProbePlan, compare_selected
from swerve.probe.recipe import ProbeRecipe
from swerve.probe.rollouts.population import probe_sequences, select_rollouts
from swerve.probe.rollouts.selection import POPULATION
from swerve.problems.family import SolvedFamily
from swerve.progress import SilentProgress
from swerve.rewards import grade_all
from swerve.rollout import SamplingParams, TorchEngine
from swerve.rollout.groups import completion_text
from swerve.seeds import derive_seed
from swerve.types import Problem, Prompt, StepMark

NUM_PROBLEMS = 160
CONFIDENCE = 0.95
SPLIT = Split(num_deciding=3, num_read=3)
SETTINGS = ProbeConfig(
    selection="split",
    max_other_rollouts=NUM_PROBLEMS,
    max_rollouts=NUM_PROBLEMS,
    noise_models=0,
    causal=CausalConfig(max_rollouts=30, num_continuations=16, max_continuations=32),
    pivots=PivotConfig(max_rollouts=12, policies=("reference",)),
    cross_sampling=CrossSamplingConfig(max_problems=40, selectors=("js", "random"), shares=(0.1,)),
)


class PlantedFamily(SolvedFamily):
    """Problems of a world; a step is wrong where a word's level is below the last one's in value."""

    name = "planted"
    checks_steps = True

    def __init__(self, world: World) -> None:
        self._values = world.answers.mean(axis=0)

    def problems(self, split: str, *, seed: int) -> list[Problem]:
        """Return none: a draw makes its own."""
        return []

    def check(self, problem: Problem, text: str) -> list[StepMark]:
        """Return a mark for every word that lowers the chance of a right answer."""
        found, start, before = [], 0, None
        for word in text.split(" "):
            level = LEVEL_OF.get(int(TOKENIZER.convert_tokens_to_ids(word)))
            if level is not None:
                value = float(self._values[level])
                if before is not None and value < before:
                    found.append(StepMark(start=start, end=start + len(word), expected=""))
                before = value
            start += len(word) + 1
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """What the probe said of one draw."""

    summary: ProbeSummary
    sequences: list[dict[str, Any]]
    """Rows of `sequences.parquet`."""
    interventions: list[dict[str, Any]]


def probe_world(world: World, seed: int) -> Draw:
    """Draw problems, let the models answer, and probe them."""
    prompts = drawn_prompts(world, seed)
    models = {label: chain_model(probs) for label, probs in world.probs.items()}
    with tempfile.TemporaryDirectory() as folder:
        plan = planned(world, models, prompts, Path(folder), seed)
        summary = execute(plan, progress=SilentProgress())
        sequences = read_table(plan.path / "sequences.parquet", SEQUENCES_SCHEMA).to_pylist()
        interventions = read_table(plan.path / "interventions.parquet", INTERVENTIONS_SCHEMA).to_pylist()
    return Draw(summary=summary, sequences=sequences, interventions=interventions)


def drawn_prompts(world: World, seed: int) -> list[Prompt]:
    """Return the problems of a draw, with prompts that say their type."""
    rng = np.random.default_rng(derive_seed(seed, "planted", "problems"))
    return [
        Prompt(
            problem=Problem(
                id=f"p{index}", family="planted", question="?", answer="A", grader="choice", kind=f"level {kind}"
            ),
            token_ids=prompt_ids(int(kind)),
        )
        for index, kind in enumerate(rng.choice(len(world.shares), NUM_PROBLEMS, p=world.shares))
    ]


def planned(
    world: World, models: dict[str, LoadedModel], prompts: Sequence[Prompt], path: Path, seed: int
) -> ProbePlan:
    """Return the plan of a probe of a world's models, on what they answer."""
    reference, final = (evaluated(label, models[label], prompts, seed) for label in (REFERENCE, world.final))
    selection = select_rollouts(reference, final, SETTINGS, labels=(REFERENCE, world.final))
    sequences = probe_sequences(
        selection.rollouts,
        family=PlantedFamily(world),
        tokenizer=TOKENIZER,
        problems={one.problem.id: one.problem for one in prompts},
    )
    recipe = ProbeRecipe(
        models={label: label for label in models},
        reference=REFERENCE,
        final=world.final,
        responses="planted",
        out=str(path),
        seed=derive_seed(seed, "planted", "probe") % 2**31,
        max_new_tokens=NUM_TOKENS,
        eval=EvalConfig(confidence=CONFIDENCE),
        probe=SETTINGS,
        runtime=RuntimeConfig(device="cpu", threads=1, max_rows=4096),
    )
    return ProbePlan(
        recipe=recipe,
        sources={label: MemorySource(label=label, loaded=loaded) for label, loaded in models.items()},
        sequences=tuple(sequences),
        population=POPULATION,
        compared=compare_selected(recipe, selection, weights_sha256={}),
        prompts=prompts,
    )


def evaluated(label: str, loaded: LoadedModel, prompts: Sequence[Prompt], seed: int) -> list[Response]:
    """Return the first of a model's samples of every problem as its greedy completion, and the others as samples."""
    num = 1 + SPLIT.num_deciding + SPLIT.num_read
    params = SamplingParams(num_samples=num, max_new_tokens=NUM_TOKENS, temperature=1.0, stop_ids=(EOS,))
    engine = TorchEngine(loaded.model, pad_id=int(TOKENIZER.pad_token_id), max_rows=4096)
    seeds = [derive_seed(seed, "planted", "evaluation", label, prompt.problem.id) for prompt in prompts]
    groups = engine.generate([prompt.token_ids for prompt in prompts], params, seeds=seeds)
    responses = []
    for prompt, group in zip(prompts, groups, strict=True):
        rewards = grade_all([(prompt.problem, completion_text(TOKENIZER, sample.token_ids)) for sample in group])
        for index, (sample, reward) in enumerate(zip(group, rewards, strict=True)):
            responses.append(
                Response(
                    problem=prompt.problem,
                    prompt_ids=prompt.token_ids,
                    completion_ids=sample.token_ids,
                    temperature=1.0 if index else 0.0,
                    extracted=reward.extracted,
                    correct=reward.is_right,
                )
            )
    return responses
