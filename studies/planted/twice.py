"""One model sampled twice, as before and after: which sentences and differences of the whole command claim a change.

Everything that is claimed is false: of accuracy, length, entropy, causes and populations in `unchanged`, of where the
divergence falls in `noised`, whose checkpoint is the reference with Gaussian noise, as the noise models are.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from studies.planted.chain import EOS, LENGTH, NUM_TOKENS, Floats, as_distributions, chain_model
from studies.planted.draw import CONFIDENCE, drawn_prompts, evaluated, planned
from studies.planted.worlds import REFERENCE, World, same
from swerve.artifacts.evaluation import Evaluation
from swerve.artifacts.response_columns import EVALUATION_SCHEMA
from swerve.artifacts.responses import Response, by_problem, write_responses
from swerve.artifacts.run import RunDirectory
from swerve.eval.comparison import ModelResponses, compare
from swerve.eval.responses import mean_entropies, response_batches
from swerve.probe.execute import execute
from swerve.progress import SilentProgress
from swerve.report.read import read_inputs
from swerve.report.run_page import all_findings
from swerve.statistics import mean_interval

_ENDING = 0.01
"""How often a completion ends at each place before its answer, so that lengths differ."""
_NOISE = 0.3

JUDGED: Mapping[str, tuple[str, str]] = {
    "greedy accuracy changed": (r"greedy accuracy (?:rose|fell|was)", r"accuracy (?:rose|fell)"),
    "pass@k changed": (r"is right \(pass@\d+\)", r"\(pass@\d+\) (?:rose|fell)"),
    "one of them is right more often": (r"alone is right on", r"\(p (?:<|= 0\.0[0-4])"),
    "divergence depends on the population": (r"its mean is", r"(?:higher|lower) on"),
    "entropy changed": (r"^Mean entropy on", r" against \S+\.$"),
    "the token does more than another": (r"^At the \d+ top spikes", r"does (?:more|less) than"),
    "the spike does more than matched positions": (r"at matched positions by", r"at matched [^;]*below the spike(?!,)"),
    "the spike does more than random positions": (r"at random positions by", r"at random [^;]*below the spike(?!,)"),
    "scores go with effects": (r"^At the \d+ swapped positions", r"scores go \("),
    "tokens recover the gap": (r"with tokens of", r"of the gap"),
    "divergence goes with the answer": (r"^A right rollout's", r" is (?:higher|lower) than"),
    "wrong steps moved more": (r"of the wrong steps left", r"(?:more|less) than the"),
}
"""Claims: how the sentence that would make it begins or reads, and how it reads where it does."""


def unchanged(seed: int) -> World:
    """Two labels for one model, whose completions sometimes end early."""
    world = same(seed)
    return replace(world, probs={label: _ending(probs) for label, probs in world.probs.items()})


def noised(seed: int) -> World:
    """The same, the checkpoint with Gaussian noise on every logit."""
    world, rng = unchanged(seed), np.random.default_rng(seed)
    before = world.probs[REFERENCE]
    after = np.exp(np.log(before) + _NOISE * rng.standard_normal(before.shape))
    return replace(world, probs={REFERENCE: before, world.final: after / after.sum(axis=-1, keepdims=True)})


def _ending(probs: Floats) -> Floats:
    """Return the same model, which ends at any place but the first few with a small probability."""
    ends = np.zeros_like(probs)
    ends[..., EOS] = 1.0
    share = np.zeros(NUM_TOKENS)
    share[4:LENGTH] = _ENDING
    return as_distributions((1 - share[:, None, None]) * probs + share[:, None, None] * ends)


def judge(sentences: Sequence[str]) -> dict[str, bool]:
    """Return, of each claim whose sentence is there, whether it is made.

    >>> judge(["A right rollout's JS is lower than a wrong one's: ...", "Mean entropy on these rollouts is 1, not so."])
    {'entropy changed': False, 'divergence goes with the answer': True}
    """
    judged = {}
    for name, (there, made) in JUDGED.items():
        found = [sentence for sentence in sentences if re.search(there, sentence)]
        if found:
            judged[name] = any(re.search(made, sentence) for sentence in found)
    return judged


def claims(world: World, seed: int) -> dict[str, bool]:
    """Run evaluation, comparison, probe and report on one draw; return which claims are made."""
    prompts = drawn_prompts(world, seed)
    models = {label: chain_model(probs) for label, probs in world.probs.items()}
    responses = {}
    for label, model in models.items():
        own = evaluated(label, model, prompts, seed)
        means = mean_entropies(model, response_batches(model, own))
        responses[label] = [replace(each, label=label, entropy=means[row]) for row, each in enumerate(own)]
    with tempfile.TemporaryDirectory() as folder:
        run = RunDirectory(Path(folder) / "run")
        run.create(config_yaml="", provenance={})
        for step, (label, own) in enumerate(responses.items()):
            _write_evaluation(run, label, step, own)
        plan = planned(world, models, prompts, run.path, seed)
        probe = plan.recipe.probe.model_copy(update={"noise_models": 5})
        plan = replace(plan, recipe=plan.recipe.model_copy(update={"probe": probe}))
        execute(plan, progress=SilentProgress())
        inputs = read_inputs(run)
    sentences = [sentence for group in all_findings(inputs).values() for sentence in group]
    judged = judge(sentences)

    # Differences of the table of models, by measure, and figures of where the divergence falls that stand.
    for row in compare(list(responses.values())).rows[2:]:
        for name, difference in row.differences.items():
            judged[f"{name} at {row.decoding}"] = difference.estimate.excludes(0)
    if inputs.summary is not None:
        judged |= {f"stands: {claim.name}": claim.stands for claim in inputs.summary.claims}
    return judged


NUM_DRAWS = 20


def draws(name: str) -> tuple[dict[str, list[bool]], list[float]]:
    """Return, of 20 draws of `unchanged` or `noised`, each claim by draw, and the fraction made of each draw's."""
    made: dict[str, list[bool]] = {}
    rates = []
    for number in range(NUM_DRAWS):
        judged = claims({"unchanged": unchanged, "noised": noised}[name](number), number)
        if name == "noised":  # a model with noise has changed; it has not learned where
            judged = {claim: is_made for claim, is_made in judged.items() if claim.startswith("stands")}
        rates.append(sum(judged.values()) / len(judged))
        for claim, is_made in judged.items():
            made.setdefault(claim, []).append(is_made)
    return made, rates


def _write_evaluation(run: RunDirectory, label: str, step: int, responses: Sequence[Response]) -> None:
    halves = {}
    for name, is_greedy in (("greedy", True), ("sampled", False)):
        measured = ModelResponses()
        for problem, group in by_problem(
            response for response in responses if (response.temperature == 0) == is_greedy
        ).items():
            measured.add(problem, group)
        temperature = 0.0 if is_greedy else 1.0
        halves[name] = measured.scores(model=label, temperature=temperature, confidence=CONFIDENCE)
    record = Evaluation(
        checkpoint=label,
        stage="rl",
        step=step,
        stage_step=step,
        weights_sha256="",
        settings={"eval": {"confidence": CONFIDENCE}},
        config_hash=None,
        tables={},
        **halves,
    )
    (run.path / "eval").mkdir(exist_ok=True)
    record.write(run.path / "eval" / f"{record.file_name}.json")
    write_responses(run.path / "eval" / f"{record.file_name}.parquet", responses, EVALUATION_SCHEMA)


if __name__ == "__main__":
    for name in ("unchanged", "noised"):
        made, rates = draws(name)
        print(name, mean_interval(rates), {claim: f"{sum(found)} of {len(found)}" for claim, found in made.items()})
