"""One update of every objective: its loss against plain formulas, and what must not change it."""

from __future__ import annotations

import copy
import functools
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from swerve.config.models import TinyModel
from swerve.config.presets import PRESETS
from swerve.config.runtime import RuntimeConfig
from swerve.config.stage_base import OptimizerConfig
from swerve.config.stages import RlStage
from swerve.models.tiny import build_tiny_model, build_word_tokenizer
from swerve.recipes import load_config
from swerve.train.context import StageContext
from swerve.train.kl import kl_term
from swerve.train.learner import Learner, new_value_head
from swerve.train.phases import phases_of
from swerve.train.policy_update import _minibatches, _MinibatchLoss, update_policy
from swerve.train.preparation import prepare_step
from swerve.train.replicated_model import ReplicatedModel
from swerve.train.rollouts import StepRollouts, deal_rollouts
from swerve.types import Completion, Problem, Prompt, Reward, Rollout, RolloutGroup
from swerve.world import World

SIZES = [(1, 4), (3, 5), (2, 2), (4, 1)]  # tokens of the prompt and of its longest completion
GROUP = 3
VARIANTS: dict[str, dict[str, Any]] = {
    "dr_grpo": {},
    "grpo": {"advantages": {"kind": "grpo"}, "reduction": "sequence_mean"},
    "rloo": {"advantages": {"kind": "rloo"}, "reduction": "sequence_sum"},
    "grpo_loo": {"advantages": {"kind": "grpo_loo"}, "reduction": "sequence_sum_norm"},
    "reinforce_pp": {"advantages": {"kind": "reinforce_pp"}, "reduction": "token_sum"},
    "reinforce_pp_baseline": {"advantages": {"kind": "reinforce_pp_baseline"}},
    "gae": {"advantages": {"kind": "gae"}, "loss": {"kind": "clip"}},
    "reward": {"advantages": {"kind": "reward"}},
    "clip": {"loss": {"kind": "clip"}, "num_epochs": 2},
    "dual_clip": {"loss": {"kind": "dual_clip"}, "num_epochs": 2},
    "cispo": {"loss": {"kind": "cispo"}, "num_epochs": 2},
    "gspo": {"loss": {"kind": "gspo"}, "num_epochs": 2, "reduction": "sequence_mean"},
    "max_prob_kl": {"loss": {"kind": "max_prob_kl"}},
    "max_prob_kl correct": {"loss": {"kind": "max_prob_kl", "normalize": "correct", "target_gradient": "detached"}},
    "fixed_target_kl": {"loss": {"kind": "fixed_target_kl"}},
    "max_prob_js": {"loss": {"kind": "max_prob_js"}},
    "rank_promotion_js": {"loss": {"kind": "rank_promotion_js"}},
    **{
        f"kl {name}": {"kl": {"kind": "loss", "estimator": name, "coef": 0.5}}
        for name in ("k2", "k3", "k3+", "abs", "exact_reverse", "exact_forward", "exact_js")
    },
    "kl k3 importance": {"kl": {"kind": "loss", "estimator": "k3", "coef": 0.5, "importance": True}},
    "kl reward": {"kl": {"kind": "reward", "coef": 0.5}},
    "kl reward after": {"kl": {"kind": "reward", "coef": 0.5, "order": "after"}},
    "kl reward gae": {"kl": {"kind": "reward", "coef": 0.5}, "advantages": {"kind": "gae"}},
    "entropy": {"entropy": {"coef": 0.3}},
    "top entropy": {"entropy": {"top_share": 0.3}},
    "tis": {"correction": {"kind": "tis", "cap": 1.1}},
    "mis": {
        "correction": {"kind": "mis", "cap": 1.1, "scope": "policy_and_kl", "numerator": "current"},
        "kl": {"kind": "loss", "estimator": "k3", "coef": 0.5},
    },
    "tis sequence": {"correction": {"kind": "tis", "cap": 1.1, "level": "sequence"}},
    "mis geometric": {
        "correction": {"kind": "mis", "cap": 1.3, "level": "geometric", "numerator": "current"},
        "loss": {"kind": "gspo", "low": 0.5, "high": 0.5},
        "num_epochs": 2,
    },
    **{f"preset {name}": {"preset": name} for name in PRESETS},
    "temperature": {"temperature": 0.7, "kl": {"kind": "loss", "estimator": "k2", "coef": 0.5}},
}


def stage_of(name: str, **changes: Any) -> RlStage:
    keys = {"steps": 1, "optimizer": {"lr": 1e-3, "max_grad_norm": None}, "samples_per_prompt": GROUP}
    return RlStage.model_validate({**keys, **VARIANTS[name], **changes})


def rollouts() -> StepRollouts:
    """Groups with prompts and completions of different lengths; the sampler's log-probabilities are a little off.

    Prompts begin alike. Of each group's completions the second begins as the first does, and the third is its
    beginning, or all of it.
    """
    generator = torch.Generator().manual_seed(3)
    groups = []
    for number, (prompt_length, longest) in enumerate(SIZES):
        problem = Problem(id=str(number), family="addition", question="", answer="", solution="")
        prompt = Prompt(problem=problem, token_ids=tuple(range(1, 1 + prompt_length)))
        rollouts: list[Rollout] = []
        for index in range(GROUP):
            length = max(1, longest - index)
            ids = torch.randint(0, 11, (length,), generator=generator).tolist()
            if rollouts:
                same = length if index == 2 else length // 2
                ids = [*rollouts[0].completion.token_ids[:same], *ids[same:]]
            logprobs = (-2.4 + 0.3 * torch.randn(length, generator=generator)).tolist()
            completion = Completion(token_ids=tuple(ids), logprobs=tuple(logprobs), finish_reason="stop")
            reward = Reward(value=0.25, status="graded", parts={})  # the grader's, as under a control
            rollouts.append(Rollout(completion=completion, text="", reward=reward, version=0))
        groups.append(RolloutGroup(prompt=prompt, rollouts=tuple(rollouts)))
    rewards = [
        [float((index + number) % 2) if number else 1.0 for index in range(GROUP)] for number in range(len(SIZES))
    ]
    drawn = [group.prompt.problem for group in groups]
    return StepRollouts(groups=groups, numbers=list(range(len(groups))), rewards=rewards, drawn=drawn)


def _reordered(found: StepRollouts) -> StepRollouts:
    """The same groups in another order, and in each the same rollouts in another order."""
    order = [2, 0, 3, 1]
    turned = [RolloutGroup(prompt=group.prompt, rollouts=group.rollouts[::-1]) for group in found.groups]
    return StepRollouts(
        groups=[turned[index] for index in order],
        numbers=[found.numbers[index] for index in order],
        rewards=[list(reversed(found.rewards[index])) for index in order],
    )


def two_models() -> tuple[Any, ReplicatedModel, Any]:
    """Return a policy and a reference that differ, in float64, and their tokenizer."""
    tokenizer = build_word_tokenizer(["0", "1", "2", "3", "+", "=", ";"])
    policy, reference = (
        build_tiny_model(TinyModel(hidden_size=32, intermediate_size=48), tokenizer, seed=1).double() for _ in range(2)
    )
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for model, size in ((policy, 0.3), (reference, 0.2)):
            for parameter in model.parameters():
                parameter.add_(size * torch.randn(parameter.shape, generator=generator).double())
    return policy, ReplicatedModel(reference, World(), is_trained=False).frozen(), tokenizer


@pytest.fixture(scope="module")
def models():
    return two_models()


_config = functools.cache(lambda: load_config("demo_addition"))


def context_of(models: Any, stage: Any, world: World, **runtime: Any) -> StageContext:
    """Return what a stage needs of its surroundings to learn from rollouts, with a copy of the policy."""
    policy, _, tokenizer = models
    model = copy.deepcopy(policy)
    value_head = None
    if isinstance(stage, RlStage) and stage.advantages.kind == "gae":
        value_head = new_value_head(model)
        torch.nn.init.constant_(value_head.weight, 0.05)
    weights = ReplicatedModel(model, world, runtime=RuntimeConfig(**runtime))
    optimizer = OptimizerConfig(**stage.optimizer.model_dump())
    unused: Any = None
    return StageContext(
        config=_config(),
        run=unused,
        world=world,
        family=unused,
        draws=unused,
        learner=Learner(weights, tokenizer, optimizer, value_head=value_head),
        engine=unused,
        stop_ids=(),
        phase=phases_of(stage)[0],
        first_step=0,
        resumed=False,
        progress=unused,
        records=[],
        stage_start=unused,
        raise_if_interrupted=unused,
    )


class Update:
    """Prepares and makes one step's updates in float64; holds the figures, the weights after and the last gradient."""

    def __init__(
        self, models: Any, stage: RlStage, found: StepRollouts, *, world: World | None = None, **runtime: Any
    ) -> None:
        self.context = context = context_of(models, stage, world or World(), **runtime)
        frozen = None if stage.kl.kind == "none" else models[1]
        kl = kl_term(stage.kl, coef=stage.kl.coef, reference=frozen, temperature=stage.temperature)
        self.step = prepare_step(deal_rollouts(found, context), stage, context, kl)
        update = update_policy(self.step, stage, context, 0, kl, stage.entropy.coef)
        self.figures, self.signals = update.figures, update.signals
        self.parameters = context.learner.named_parameters()
        self.gradient = torch.cat([_grad(parameter).flatten() for parameter in self.parameters.values()])


def _grad(parameter: Tensor) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def _same(first: Update, second: Update) -> None:
    for name, value in first.figures.items():
        expected = value if value is None else pytest.approx(value, rel=1e-6, abs=1e-8)  # columns are float32
        assert second.figures[name] == expected, name
    assert first.gradient.norm() > 1e-6
    assert float((first.gradient - second.gradient).norm() / first.gradient.norm()) < 1e-6


@pytest.mark.parametrize("name", VARIANTS)
def test_micro_batches_padding_and_order_do_not_change_the_update(models, name):
    whole = Update(models, stage_of(name), rollouts())
    assert whole.context.learner.weights.packs
    # Micro-batches of one and of two completions, groups in another order and in each the rollouts too.
    _same(whole, Update(models, stage_of(name, tokens_per_batch=9), _reordered(rollouts())))
    padded = Update(models, stage_of(name, tokens_per_batch=17), rollouts(), rows="padded")
    assert not padded.context.learner.weights.packs
    _same(whole, padded)


@pytest.fixture
def read(monkeypatch):
    """The completions of each update, those with a gradient and those without."""
    found = []
    update = Learner.update

    def noted(learner: Learner, batches: Any, *inputs: Any, silent: Any, **keywords: Any) -> Any:
        found.append([sorted(row for batch in part for row in batch.rows) for part in (batches, silent)])
        return update(learner, batches, *inputs, silent=silent, **keywords)

    monkeypatch.setattr(Learner, "update", noted)
    return found


AGREE, WRONG = [0, 1, 2], [4, 6, 8, 10]  # the first group's rewards are all 1; everywhere else every second one is
SILENT = {
    **dict.fromkeys(["dr_grpo", "gspo", "tis sequence", "preset trl"], AGREE),
    "top entropy": [*AGREE, 3, 4, 5],  # those without a chosen token as well
    **dict.fromkeys(["max_prob_kl", "fixed_target_kl", "reward"], WRONG),
    **{name: [] for name in ("reinforce_pp", "kl k3", "kl exact_js", "kl reward", "entropy", "gae")},
}


@pytest.mark.parametrize("name", SILENT)
def test_completions_without_a_gradient_are_read_without_one_and_change_nothing(models, read, monkeypatch, name):
    stages = [stage_of(name, tokens_per_batch=17, num_minibatches=number) for number in (1, 2)]
    found = [Update(models, stage, rollouts()) for stage in stages]
    assert read[0] == [[row for row in range(12) if row not in SILENT[name]], SILENT[name]]
    monkeypatch.setattr(_MinibatchLoss, "learns", property(lambda loss: torch.ones(len(loss.rows), dtype=torch.bool)))
    expected = [Update(models, stage, rollouts()) for stage in stages]
    _same(expected[0], found[0])
    for key, value in expected[1].parameters.items():
        assert torch.allclose(value, found[1].parameters[key], rtol=0, atol=1e-7), key


def _with_entropies(models: Any, found: StepRollouts) -> StepRollouts:
    """The same completions with the entropies that their sampler knows."""
    _, _, rows, _ = _plain(models)
    entropies = iter([float(-(row.exp() * row).sum().detach()) for row in rows])
    groups = [
        replace(
            group,
            rollouts=tuple(
                replace(one, completion=replace(one.completion, entropy=next(entropies))) for one in group.rollouts
            ),
        )
        for group in found.groups
    ]
    return replace(found, groups=groups)


@pytest.mark.parametrize("name", ["dr_grpo", "max_prob_kl", "top entropy", "tis sequence"])
def test_what_has_no_gradient_is_not_read_where_the_sampler_knows_its_entropy(models, read, name):
    stage = stage_of(name, tokens_per_batch=17)
    expected = Update(models, stage, rollouts())
    found = Update(models, stage, _with_entropies(models, rollouts()))
    learning = [row for row in range(12) if row not in SILENT[name]]
    assert read == [[learning, SILENT[name]], [learning, []]]
    assert torch.equal(found.gradient, expected.gradient)
    assert torch.equal(found.signals.columns["advantages"], expected.signals.columns["advantages"])
    for figure in ("entropy", "loss", "num_tokens"):
        assert found.figures[figure] == pytest.approx(expected.figures[figure], rel=1e-6), figure
    # Only what is read can be compared with the sampler.
    chosen = _chosen(_plain(models)[2])
    gaps = [(chosen[row].detach() - torch.tensor(_completions()[row].logprobs)).abs() for row in learning]
    assert found.figures["logprob_gap"] == pytest.approx(float(torch.cat(gaps).mean()), rel=1e-6)
    assert found.figures["logprob_gap_max"] == pytest.approx(float(torch.cat(gaps).max()), rel=1e-6)
    firsts = torch.cat([gap[: math.ceil(len(gap) / 4)] for gap in gaps])
    assert found.figures["logprob_gap_q1"] == pytest.approx(float(firsts.mean()), rel=1e-6)


def test_a_kl_in_the_loss_is_measured_at_all_completions(models, read):
    stage = stage_of("dr_grpo", kl={"kind": "loss", "estimator": "k3", "coef": 0.0}, zero_variance="keep")
    Update(models, stage, _with_entropies(models, rollouts()))
    assert read == [[list(range(3, 12)), AGREE]]


def test_where_no_completion_has_a_gradient_the_optimizer_still_takes_its_step(models, read):
    equal = replace(rollouts(), rewards=[[1.0] * GROUP] * len(SIZES))
    update = Update(models, stage_of("dr_grpo"), equal)
    assert read == [[list(range(12)), []]]
    assert {int(state["step"]) for state in update.context.learner.optimizer.state.values()} == {1}


def test_minibatches_follow_the_groups_numbers_not_their_places(models):
    stage = stage_of("clip", num_minibatches=2)
    _same(Update(models, stage, rollouts()), Update(models, stage, _reordered(rollouts())))


def _plain(models: Any, temperature: float = 1.0) -> tuple[list[list[float]], Any, list[Tensor], list[Tensor]]:
    """Return rewards, a copy of the policy, and for each completion its log-softmax rows, one sequence at a time."""
    policy, reference, _ = models
    model = copy.deepcopy(policy).train()
    found = rollouts()
    rows, ref_rows = [], []
    for group in found.groups:
        for rollout in group.rollouts:
            ids = torch.tensor([[*group.prompt.token_ids, *rollout.completion.token_ids]])
            start = len(group.prompt.token_ids) - 1
            for which, target in ((model, rows), (reference.model, ref_rows)):
                target.append((which(ids).logits[0, start:-1] / temperature).log_softmax(dim=-1))
    return found.rewards, model, rows, ref_rows


def _completions() -> list[Completion]:
    return [rollout.completion for group in rollouts().groups for rollout in group.rollouts]


def _chosen(rows: list[Tensor]) -> list[Tensor]:
    return [
        row.gather(-1, torch.tensor(completion.token_ids)[:, None])[:, 0]
        for row, completion in zip(rows, _completions(), strict=True)
    ]


def _gradient(model: Any, loss: Tensor) -> Tensor:
    loss.backward()
    return torch.cat([_grad(parameter).flatten() for parameter in model.parameters()])


def _agrees(update: Update, model: Any, loss: Tensor) -> None:
    # Advantages are float32.
    assert update.figures["loss"] == pytest.approx(float(loss.detach()), rel=1e-5)
    expected = _gradient(model, loss)
    found = update.gradient[: len(expected)]
    assert float((found - expected).norm() / expected.norm()) < 1e-6


def _means(rewards: list[list[float]]) -> list[float]:
    return [value - sum(values) / len(values) for values in rewards for value in values]


def test_policy_gradient_with_kl_and_entropy_is_the_plain_formula(models):
    """token_mean of -A logp + 0.5 KL(pi || ref) - 0.3 H at temperature 0.7, summed over the vocabulary by hand."""
    stage = stage_of("kl exact_reverse", temperature=0.7, entropy={"coef": 0.3})
    rewards, model, rows, ref_rows = _plain(models, 0.7)
    total = sum(map(len, rows))
    loss = torch.zeros((), dtype=torch.float64)
    for advantage, row, ref_row, logprobs in zip(_means(rewards), rows, ref_rows, _chosen(rows), strict=True):
        kl = (row.exp() * (row - ref_row)).sum(dim=-1)
        entropy = -(row.exp() * row).sum(dim=-1)
        loss = loss + (-advantage * logprobs + 0.5 * kl - 0.3 * entropy).sum() / total
    _agrees(Update(models, stage, rollouts()), model, loss)


def test_k1_in_the_reward_is_taken_from_the_score_before_the_baseline(models):
    stage = stage_of("kl reward", advantages={"kind": "rloo"}, reduction="sequence_sum_norm", reduction_length=8)
    rewards, model, rows, ref_rows = _plain(models)
    logprobs, ref_logprobs = _chosen(rows), _chosen(ref_rows)
    taken = [0.5 * float((one - two).detach().sum()) for one, two in zip(logprobs, ref_logprobs, strict=True)]
    flat = [value - less for value, less in zip([r for values in rewards for r in values], taken, strict=True)]
    loss = torch.zeros((), dtype=torch.float64)
    for index, sequence in enumerate(logprobs):
        group = flat[index - index % GROUP : index - index % GROUP + GROUP]
        advantage = flat[index] - (sum(group) - flat[index]) / (GROUP - 1)
        loss = loss - advantage * sequence.sum() / (len(flat) * 8)
    _agrees(Update(models, stage, rollouts()), model, loss)


def test_k1_after_the_baseline_is_a_reward_to_go_of_each_token(models):
    stage = stage_of("kl reward after", reduction="sequence_sum")
    rewards, model, rows, ref_rows = _plain(models)
    loss = torch.zeros((), dtype=torch.float64)
    for advantage, one, two in zip(_means(rewards), _chosen(rows), _chosen(ref_rows), strict=True):
        for place in range(len(one)):
            to_go = 0.5 * float((one - two).detach()[place:].sum())
            loss = loss - (advantage - to_go) * one[place] / len(rows)
    _agrees(Update(models, stage, rollouts()), model, loss)


@pytest.mark.parametrize("normalize", ["batch", "correct"])
def test_the_losses_of_exploring_paths_learn_from_correct_completions_only(models, normalize):
    stage = stage_of("fixed_target_kl", loss={"kind": "fixed_target_kl", "q": 0.5, "normalize": normalize})
    assert stage.reduction == "sequence_mean"
    rewards, model, rows, _ = _plain(models)
    flat = [value for values in rewards for value in values]
    denominator = len(flat) if normalize == "batch" else sum(value > 0 for value in flat)
    loss = torch.zeros((), dtype=torch.float64)
    for value, logprobs in zip(flat, _chosen(rows), strict=True):
        if value > 0:
            per_token = -0.5 * (logprobs + (1 - logprobs.exp()).log()) + math.log(0.5)
            loss = loss + per_token.mean() / denominator
    _agrees(Update(models, stage, rollouts()), model, loss)


def test_masked_importance_weights_multiply_policy_and_kl(models):
    stage = stage_of("mis", reduction="sequence_mean")
    rewards, model, rows, ref_rows = _plain(models)
    samplers = [rollout.completion.logprobs for group in rollouts().groups for rollout in group.rollouts]
    loss, kept = torch.zeros((), dtype=torch.float64), 0
    for advantage, one, two, sampler in zip(_means(rewards), _chosen(rows), _chosen(ref_rows), samplers, strict=True):
        weight = (one.detach() - torch.tensor(sampler)).exp()
        weight = weight.where(weight <= 1.1, 0.0)
        kept += int((weight > 0).sum())
        x = one - two.detach()
        loss = loss + (weight * (-advantage * one + 0.5 * ((-x).exp() - 1 + x))).mean() / len(rows)
    update = Update(models, stage, rollouts())
    _agrees(update, model, loss)
    assert update.figures["corrected_share"] == pytest.approx(1 - kept / sum(map(len, rows)))


@pytest.mark.parametrize("level", ["sequence", "geometric"])
@pytest.mark.parametrize("numerator", ["old", "current"])
def test_the_weight_of_a_whole_completion_multiplies_each_of_its_tokens(models, level, numerator):
    """The gradient of the last of two updates, recomputed from the weights it was taken at."""
    correction = {"kind": "tis", "cap": 1.2, "level": level, "numerator": numerator}
    keys = {"correction": correction, "reduction": "sequence_mean", "optimizer": {"lr": 0.02, "max_grad_norm": None}}
    stage = stage_of("tis", num_epochs=2, **keys)
    rewards, _, rows, _ = _plain(models)
    samplers = [rollout.completion.logprobs for group in rollouts().groups for rollout in group.rollouts]
    old = [logprobs.detach() for logprobs in _chosen(rows)]
    moved = copy.deepcopy(models[0])
    moved.load_state_dict(Update(models, stage_of("tis", **keys), rollouts()).parameters, strict=False)
    moved.tie_weights()
    _, model, rows, _ = _plain((moved, *models[1:]))
    loss, weights = torch.zeros((), dtype=torch.float64), set()
    for advantage, now, before, sampler in zip(_means(rewards), _chosen(rows), old, samplers, strict=True):
        change = (before if numerator == "old" else now.detach()) - torch.tensor(sampler)
        weight = (change.sum() if level == "sequence" else change.mean()).exp().clamp(max=1.2)
        weights.add(round(float(weight), 6))
        loss = loss - weight * advantage * now.mean() / len(rows)
    assert 1.2 in weights
    assert len(weights) > 5
    expected = _gradient(model, loss)
    found = Update(models, stage, rollouts()).gradient
    assert float((found - expected).norm() / expected.norm()) < 1e-5


def test_top_entropy_tokens_alone_carry_the_policy_loss(models):
    stage = stage_of("top entropy")
    rewards, model, rows, _ = _plain(models)
    entropies = torch.cat([-(row.exp() * row).sum(dim=-1) for row in rows]).detach()
    count = len(entropies)
    threshold = entropies.sort(descending=True).values[math.ceil(0.3 * count) - 1]
    loss, place = torch.zeros((), dtype=torch.float64), 0
    for advantage, one in zip(_means(rewards), _chosen(rows), strict=True):
        chosen = entropies[place : place + len(one)] >= threshold - 1e-6
        loss = loss - (advantage * one * chosen).sum() / count
        place += len(one)
    _agrees(Update(models, stage, rollouts()), model, loss)


def test_gspo_in_its_second_epoch_uses_the_sequence_ratio(models):
    """The gradient of the last update, recomputed from the weights it was taken at."""
    stage = stage_of(
        "gspo", loss={"kind": "gspo", "low": 0.5, "high": 0.5}, optimizer={"lr": 0.02, "max_grad_norm": None}
    )
    first = Update(models, stage.model_copy(update={"num_epochs": 1}), rollouts())
    rewards, _, rows, _ = _plain(models)
    old = [logprobs.detach() for logprobs in _chosen(rows)]
    policy, reference, tokenizer = models
    moved = copy.deepcopy(policy)
    moved.load_state_dict(first.parameters, strict=False)
    moved.tie_weights()
    _, model, rows, _ = _plain((moved, reference, tokenizer))
    loss, ratios = torch.zeros((), dtype=torch.float64), []
    for advantage, now, before in zip(_means(rewards), _chosen(rows), old, strict=True):
        ratio = (now - before).mean().exp()
        ratios.append(float(ratio.detach()))
        loss = loss - torch.minimum(ratio * advantage, ratio.clamp(0.5, 1.5) * advantage) / len(rows)
    assert max(ratios) - min(ratios) > 0.01
    expected = _gradient(model, loss)
    found = Update(models, stage, rollouts()).gradient
    assert float((found - expected).norm() / expected.norm()) < 1e-5


def test_the_value_head_learns_returns_and_the_policy_its_advantages(models):
    """PPO with gamma 1, lambda 1: advantages are the return minus the value."""
    advantages = {"kind": "gae", "lam": 1.0, "whiten": False, "value_coef": 0.5, "value_clip": None}
    stage = stage_of("gae", advantages=advantages, loss={"kind": "reinforce"})
    update = Update(models, stage, rollouts())
    values, returns = update.step.columns.values, update.step.columns.returns
    mask = update.step.table.mask
    flat = torch.tensor([value for values in rollouts().rewards for value in values])[:, None].expand_as(returns)
    assert torch.allclose(returns[mask], flat[mask], atol=1e-6)
    assert torch.allclose(update.step.columns.advantages[mask], (flat - values)[mask], atol=1e-6)
    _, _, rows, _ = _plain(models)
    loss = torch.zeros((), dtype=torch.float64)
    for index, logprobs in enumerate(_chosen(rows)):
        loss = loss - (update.step.columns.advantages[index, : len(logprobs)] * logprobs).sum() / int(mask.sum())
    squares = 0.25 * float((values - flat)[mask].square().mean())
    assert update.figures["loss"] == pytest.approx(float(loss.detach()) + squares, rel=1e-6)
    assert update.figures["value_loss"] == pytest.approx(2 * squares, rel=1e-6)


def test_with_no_correct_completion_there_is_nothing_to_learn_and_nothing_to_divide_by(models):
    found = rollouts()
    wrong = StepRollouts(groups=found.groups, numbers=found.numbers, rewards=[[0.0] * GROUP] * len(SIZES))
    update = Update(models, stage_of("max_prob_kl correct"), wrong)
    assert update.figures["loss"] == 0
    assert float(update.gradient.norm()) == 0


STILL = {"lr": 1e-30, "max_grad_norm": None}


@pytest.mark.parametrize("name", ["clip", "kl reward", "gae", "entropy", "tis"])
def test_figures_are_means_over_the_updates_and_their_tokens(models, name):
    """Several updates that leave the weights where they are report what one does."""
    once = Update(models, stage_of(name, num_epochs=1, optimizer=STILL), rollouts()).figures
    thrice = Update(models, stage_of(name, num_epochs=3, optimizer=STILL), rollouts()).figures
    for figure, value in once.items():
        expected = value if value is None else pytest.approx(value, rel=1e-6, abs=1e-9)
        assert thrice[figure] == expected, figure
    assert once["kl"] is None or once["kl"] == pytest.approx(_mean_k1(models), rel=1e-5)


def _mean_k1(models: Any) -> float:
    _, _, rows, ref_rows = _plain(models)
    differences = [one - two for one, two in zip(_chosen(rows), _chosen(ref_rows), strict=True)]
    return float(torch.cat(differences).detach().mean())


def test_the_constant_length_is_the_longest_completion_of_the_run_by_default(models):
    stage = stage_of("dr_grpo", reduction="sequence_sum_norm")
    length = _config().max_new_tokens
    _, model, rows, _ = _plain(models)
    loss = torch.zeros((), dtype=torch.float64)
    for advantage, logprobs in zip(_means(rollouts().rewards), _chosen(rows), strict=True):
        loss = loss - advantage * logprobs.sum() / (len(rows) * length)
    _agrees(Update(models, stage, rollouts()), model, loss)


def _value_stage(epochs: int = 1, top_share: float = 1.0, **keys: Any) -> RlStage:
    advantages = {"kind": "gae", "lam": 1.0, "value_coef": 0.5, "value_clip": None, **keys}
    optimizer = {"lr": 1e-2, "max_grad_norm": None}
    return stage_of(
        "gae",
        advantages=advantages,
        loss={"kind": "reinforce"},
        num_epochs=epochs,
        entropy={"top_share": top_share},
        optimizer=optimizer,
    )


def _split(update: Update) -> tuple[Tensor, Tensor]:
    """Return the last gradients of the policy and of the value head."""
    size = sum(parameter.numel() for name, parameter in update.parameters.items() if name.startswith("value_head"))
    return update.gradient[:-size], update.gradient[-size:]


def test_the_value_loss_reaches_the_trunk_only_where_it_is_shared(models):
    shared, detached, alone = (
        _split(Update(models, _value_stage(**keys), rollouts()))
        for keys in ({}, {"value_gradient": "detached"}, {"value_gradient": "detached", "value_coef": 0.0})
    )
    assert torch.allclose(detached[0], alone[0], rtol=1e-9, atol=1e-12)
    assert float((shared[0] - detached[0]).norm() / detached[0].norm()) > 1e-3
    assert torch.allclose(shared[1], detached[1], rtol=1e-9, atol=1e-12)
    assert shared[1].norm() > 1e-3


def test_the_value_head_learns_from_every_token(models):
    few, every = (_split(Update(models, _value_stage(top_share=share), rollouts())) for share in (0.3, 1.0))
    assert torch.allclose(few[1], every[1], rtol=1e-9, atol=1e-12)
    assert not torch.allclose(few[0], every[0], rtol=1e-3)


def test_clipped_values_do_not_move_far_from_those_at_sampling_time(models):
    """In the first epoch they are those; in the second the worse of the clipped and the moved value counts."""
    free, clipped = (
        Update(models, _value_stage(epochs=2, value_clip=clip), rollouts()).figures["value_loss"]
        for clip in (None, 1e-6)
    )
    first = Update(models, _value_stage(), rollouts()).figures["value_loss"]
    assert free < first
    assert clipped > 0.5 * (first + 2 * free - first) + 1e-3 * first


def test_minibatches_are_dealt_out_anew_in_every_epoch_and_lose_no_group(models):
    stage = stage_of("clip", num_minibatches=2)
    context, step = Update(models, stage, rollouts()).context, Update(models, stage, rollouts()).step
    dealt = [_minibatches(step, stage, context, index, epoch) for index in range(3) for epoch in range(2)]
    for parts in dealt:
        assert sorted(row for part in parts for row in part) == list(range(GROUP * len(SIZES)))
        assert [len(part) for part in parts] == [2 * GROUP, 2 * GROUP]
        for part in parts:
            assert all(row - row % GROUP + other in part for row in part for other in range(GROUP))
    assert len({str(sorted(map(sorted, parts))) for parts in dealt}) > 1
    assert dealt == [_minibatches(step, stage, context, index, epoch) for index in range(3) for epoch in range(2)]


def _differences(models: Any, temperature: float) -> Tensor:
    """Return log p - log q of every token."""
    _, _, rows, ref_rows = _plain(models, temperature)
    return torch.cat([one - two for one, two in zip(_chosen(rows), _chosen(ref_rows), strict=True)]).detach()


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("clamp", [None, 0.1])
def test_the_kl_in_the_reward_is_that_of_the_distributions_sampled_from(models, temperature, clamp):
    kl = {"kind": "reward", "coef": 0.5, "output_clamp": clamp}
    figures = Update(models, stage_of("kl reward", kl=kl, temperature=temperature), rollouts()).figures
    values = _differences(models, temperature)
    values = values if clamp is None else values.clamp(-clamp, clamp)
    assert figures["kl"] == pytest.approx(float(values.mean()), rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_old_and_reference_log_probabilities_have_the_temperature_of_sampling(models, temperature):
    stage = stage_of("kl k3 importance", num_epochs=2, temperature=temperature, optimizer=STILL)
    update = Update(models, stage, rollouts())
    x = _differences(models, temperature)
    assert update.figures["kl"] == pytest.approx(float(((-x).exp() - 1 + x).mean()), rel=1e-5)
    _, _, rows, _ = _plain(models, temperature)
    old = update.step.columns.old_logprobs[update.step.table.mask]
    assert torch.allclose(old.double(), torch.cat(_chosen(rows)).detach(), atol=1e-6)


def test_the_most_uncertain_tokens_are_those_at_the_temperature_of_sampling(models):
    update = Update(models, stage_of("top entropy", temperature=0.4), rollouts())
    _, _, rows, _ = _plain(models, 0.4)
    entropies = torch.cat([-(row.exp() * row).sum(dim=-1) for row in rows]).detach()
    found = update.step.columns.entropies[update.step.table.mask]
    assert torch.allclose(found.double(), entropies, atol=1e-6)
