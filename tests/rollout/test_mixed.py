from __future__ import annotations

import copy
import itertools
import math

import pytest
import torch

from swerve.config.models import TinyModel
from swerve.models.head import limit_ids_of
from swerve.models.tiny import build_tiny_model
from swerve.rollout import SamplingParams, TorchEngine
from swerve.rollout.mixed import generate_mixed, scores_of_logits

PROMPTS = [[1, 4, 5, 6], [1, 7], [1, 4, 4, 9, 8, 6]]
SEEDS = [3, 4, 5]
SELECTORS = ("js", "kl_forward", "kl_reverse", "abs_logprob_change", "logprob_drop", "entropy", "rank", "random")


def _params(**changes) -> SamplingParams:
    return SamplingParams(**{"num_samples": 6, "max_new_tokens": 24, "temperature": 1.0, "stop_ids": (2,), **changes})


@pytest.fixture(scope="module")
def other(tiny):
    config = TinyModel(hidden_size=32, intermediate_size=48)
    return build_tiny_model(config, tiny[1], seed=2).eval()


def _mixed(base, other, selector, threshold, *, params=None, max_rows=64, checkpoint="other", **options):
    return generate_mixed(
        base,
        other,
        PROMPTS,
        params or _params(),
        selector=selector,
        threshold=threshold,
        checkpoint=checkpoint,
        seeds=SEEDS,
        pad_id=0,
        max_rows=max_rows,
        **options,
    )


def _tokens(groups):
    return [[(each.token_ids, each.finish_reason) for each in group] for group in groups]


@pytest.mark.parametrize("selector", SELECTORS)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_ends_are_what_each_model_samples_alone(tiny, other, selector, temperature):
    params = _params(temperature=temperature)
    for threshold, alone in ((math.inf, tiny[0]), (-math.inf, other)):
        expected = TorchEngine(alone, pad_id=0, max_rows=64).generate(PROMPTS, params, seeds=SEEDS)
        found = _mixed(tiny[0], other, selector, threshold, params=params)
        assert _tokens(found) == _tokens(expected)
        for each in itertools.chain(*found):
            assert each.swapped == (() if alone is tiny[0] else tuple(range(len(each.token_ids))))
            assert each.num_changed <= len(each.swapped)


def test_rows_do_not_depend_on_the_batch(tiny, other):
    together = _mixed(tiny[0], other, "js", 0.02)
    assert _tokens(_mixed(tiny[0], other, "js", 0.02, max_rows=5)) == _tokens(together)
    assert sum(len(each.swapped) for each in itertools.chain(*together)) > 0


def test_the_models_with_themselves_change_nothing(tiny):
    found = _mixed(tiny[0], tiny[0], "entropy", 1.0)
    assert _tokens(found) == _tokens(_mixed(tiny[0], tiny[0], "entropy", math.inf))
    assert sum(each.num_changed for each in itertools.chain(*found)) == 0
    assert sum(len(each.swapped) for each in itertools.chain(*found)) > 0


def test_scores_of_two_literal_distributions():
    base, other = torch.tensor([[0.5, 0.25, 0.25]]), torch.tensor([[0.1, 0.6, 0.3]])
    options = {"random": torch.tensor([0.4], dtype=torch.float64)}
    scores = scores_of_logits(base.log(), other.log(), torch.tensor([0]), checkpoint="other", **options)
    other_to_base = 0.1 * math.log(0.1 / 0.5) + 0.6 * math.log(0.6 / 0.25) + 0.3 * math.log(0.3 / 0.25)
    base_to_other = 0.5 * math.log(0.5 / 0.1) + 0.25 * math.log(0.25 / 0.6) + 0.25 * math.log(0.25 / 0.3)
    mean = [0.3, 0.425, 0.275]
    js = sum(
        weight * math.log(weight / middle) / 2
        for row in ([0.5, 0.25, 0.25], [0.1, 0.6, 0.3])
        for weight, middle in zip(row, mean, strict=True)
    )
    expected = {
        "js": js,
        "kl_forward": other_to_base,  # KL(checkpoint || reference)
        "kl_reverse": base_to_other,
        "abs_logprob_change": math.log(5),
        "logprob_drop": math.log(5),
        "entropy": -0.5 * math.log(0.5) - 0.5 * math.log(0.25),
        "rank": 3.0,
        "random": 0.4,
    }
    assert {name: float(value) for name, value in scores.items()} == pytest.approx(expected, abs=1e-6)
    turned = scores_of_logits(base.log(), other.log(), torch.tensor([1]), checkpoint="base", **options)
    assert float(turned["kl_forward"]) == pytest.approx(base_to_other, abs=1e-6)
    assert float(turned["kl_reverse"]) == pytest.approx(other_to_base, abs=1e-6)
    assert float(turned["logprob_drop"]) == pytest.approx(math.log(0.25 / 0.6), abs=1e-6)
    assert float(turned["abs_logprob_change"]) == pytest.approx(math.log(0.6 / 0.25), abs=1e-6)
    assert float(turned["rank"]) == 1.0


def test_recorded_scores_are_the_teacher_forced_ones(tiny, other):
    found = _mixed(tiny[0], other, "logprob_drop", 0.5, record=SELECTORS)
    for prompt, group in zip(PROMPTS, found, strict=True):
        for each in group:
            ids = torch.tensor([[*prompt, *each.token_ids]])
            with torch.inference_mode():
                base, theirs = (
                    torch.log_softmax(model(ids).logits[0, len(prompt) - 1 : -1], dim=-1) for model in (tiny[0], other)
                )
            recorded = torch.tensor(each.scores["entropy"])
            assert torch.allclose(recorded, -(base.exp() * base).sum(-1), atol=1e-4)
            assert [index for index, score in enumerate(each.scores["logprob_drop"]) if score > 0.5] == list(
                each.swapped
            )
            kept = [index for index in range(len(each.token_ids)) if index not in each.swapped]
            for index in kept:  # here the base's proposal was taken, so it is known
                token = each.token_ids[index]
                drop = float(base[index, token] - theirs[index, token])
                assert each.scores["logprob_drop"][index] == pytest.approx(drop, abs=1e-4)
                assert each.scores["rank"][index] == 1 + int((theirs[index] > theirs[index, token]).sum())


def _joint(base: torch.Tensor, other: torch.Tensor, threshold: float) -> torch.Tensor:
    """Return the exact distribution of the token taken: intervals of one uniform number, cut where either CDF steps."""
    cuts = sorted({0.0, 1.0, *base.cumsum(0).tolist(), *other.cumsum(0).tolist()})
    found = torch.zeros(len(base), dtype=torch.float64)
    for low, high in itertools.pairwise(min(cut, 1.0) for cut in cuts):
        middle = torch.tensor((low + high) / 2, dtype=torch.float64)
        own, theirs = (min(int((row.cumsum(0) <= middle).sum()), len(row) - 1) for row in (base, other))
        drop = math.log(base[own] / other[own])
        found[theirs if drop > threshold else own] += high - low
    return found


def test_frequencies_are_those_of_the_exact_mixture(tiny, other):
    """Chi-squared of 6,000 two-token completions against all 121 (or fewer) exact probabilities."""
    num, threshold = 6000, 0.3
    ((*found,),) = generate_mixed(
        tiny[0],
        other,
        PROMPTS[:1],
        _params(num_samples=num, max_new_tokens=2, stop_ids=()),
        selector="logprob_drop",
        threshold=threshold,
        checkpoint="other",
        seeds=[8],
        pad_id=0,
        max_rows=num,
    )

    def following(model, ids):
        with torch.inference_mode():
            return torch.softmax(model(torch.tensor([ids])).logits[0, -1].double(), dim=-1)

    first = _joint(following(tiny[0], PROMPTS[0]), following(other, PROMPTS[0]), threshold)
    exact = torch.stack(
        [
            first[token]
            * _joint(following(tiny[0], [*PROMPTS[0], token]), following(other, [*PROMPTS[0], token]), threshold)
            for token in range(len(first))
        ]
    )
    assert float(exact.sum()) == pytest.approx(1.0)
    observed = torch.zeros_like(exact)
    for each in found:
        observed[each.token_ids] += 1
    often = exact * num >= 5
    assert int(often.sum()) > 20
    rest = (~often & (exact > 0)).any()
    chi = float(((observed - num * exact)[often] ** 2 / (num * exact[often])).sum())
    freedom = int(often.sum()) - (0 if rest else 1)
    assert chi < freedom + 4 * math.sqrt(2 * freedom)  # about 1 in 10,000
    assert float(observed[exact == 0].sum()) == 0
    alone = first.new_tensor(following(tiny[0], PROMPTS[0]).tolist())
    assert float((first - alone).abs().max()) > 0.02  # the mixture is not the base's own distribution


def test_random_swaps_the_share_it_is_set_to(tiny, other):
    found = _mixed(tiny[0], other, "random", 1 - 0.3, params=_params(num_samples=60))
    everything = list(itertools.chain(*found))
    num = sum(len(each.token_ids) for each in everything)
    swapped = sum(len(each.swapped) for each in everything)
    assert abs(swapped / num - 0.3) < 4 * math.sqrt(0.3 * 0.7 / num)
    assert num > 1000


def test_finished_completions_are_counted(tiny, other):
    finished: list[int] = []
    _mixed(tiny[0], other, "js", 0.1, on_finished=finished.append)
    assert sum(finished) == 18


def test_padding_of_an_output_head_is_never_proposed(tiny, other):
    wide = copy.deepcopy(other)
    wide.resize_token_embeddings(19, mean_resizing=False)
    with torch.no_grad():
        wide.get_input_embeddings().weight[11:] = 9.0
    limit_ids_of(wide, 11)
    found = _mixed(tiny[0], wide, "js", -math.inf)
    assert _tokens(found) == _tokens(_mixed(tiny[0], other, "js", -math.inf))


@pytest.mark.parametrize(
    ("options", "message"),
    [({"max_rows": 0}, "max_rows must be at least 1"), ({"threshold": math.nan}, "threshold a number")],
)
def test_bad_calls_are_refused(tiny, other, options, message):
    arguments = {"threshold": 0.0, **options}
    with pytest.raises(ValueError, match=message):
        _mixed(tiny[0], other, "js", **arguments)


def test_prompts_on_both_sides_of_a_turn_are_what_each_model_samples_alone(longrope):
    """Texts of more than 32 tokens are read with other rotary angles."""
    prompts = [[1] * 4, [1, 5] * 12, [3, 4, 5] * 15]
    params = _params(max_new_tokens=8, num_samples=2)
    expected = TorchEngine(longrope, pad_id=0, max_rows=64).generate(prompts, params, seeds=SEEDS)
    found = generate_mixed(
        longrope,
        longrope,
        prompts,
        params,
        selector="js",
        threshold=math.inf,
        checkpoint="other",
        seeds=SEEDS,
        pad_id=0,
        max_rows=64,
    )
    assert _tokens(found) == _tokens(expected)
