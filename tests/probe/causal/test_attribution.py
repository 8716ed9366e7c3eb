"""Attribution of a decision to earlier tokens: finite differences, completeness, planted attention, sums by hand."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from swerve.artifacts.probe_causes import AttributionScore
from swerve.artifacts.responses import Response
from swerve.errors import MismatchError
from swerve.models.model_folder import LoadedModel
from swerve.probe.causal import attribution
from swerve.probe.causal.attribution import Spot, attribute, summarise_attribution
from swerve.types import Problem

MARKED = 7  # what the planted model copies from


def _sequence(prompt: Any, completion: Any, *, index: int = 0, problem: str = "a", wrong: Any = ()) -> Response:
    return Response(
        sequence_id=index,
        problem=Problem(id=problem, family="addition", question="", answer=""),
        prompt_ids=tuple(prompt),
        completion_ids=tuple(completion),
        spans=((0, 0),) * len(completion),
        wrong=dict.fromkeys(wrong, ""),
    )


def _norm(module: Any, hidden: Tensor) -> Tensor:
    return module.weight * hidden * (hidden.square().mean(dim=-1, keepdim=True) + module.variance_epsilon).rsqrt()


@pytest.fixture(scope="module")
def double(tiny) -> LoadedModel:
    model = copy.deepcopy(tiny[0]).double()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):  # transformers' own rounds to float32
            module.forward = functools.partial(_norm, module)
    return LoadedModel(model=model.eval(), tokenizer=tiny[1])


SPOT = Spot(sequence=_sequence([1, 5, 8, 6], [4, 9, 7, 10, 3]), position=3)


def _decision_by_hand(loaded: LoadedModel, spot: Spot, embedded: Tensor) -> float:
    """Log p(choice) - log p(realised) from the whole sequence's logits, read one place before the token."""
    ids = torch.tensor([[*spot.sequence.prompt_ids, *spot.sequence.completion_ids]])
    place = len(spot.sequence.prompt_ids) + spot.position - 1
    with torch.no_grad():
        choice = int(loaded.model(ids).logits[0, place].argmax())
        tail = loaded.model.get_input_embeddings()(ids)[:, place + 1 :]
        logprobs = loaded.model(inputs_embeds=torch.cat([embedded, tail], dim=1)).logits[0, place].log_softmax(-1)
    realised = spot.sequence.completion_ids[spot.position]
    assert choice != realised
    return float(logprobs[choice] - logprobs[realised])


def test_integrated_gradients_sum_to_the_difference_of_the_outputs(double):
    table = double.model.get_input_embeddings().weight.detach()
    embedded = table[torch.tensor([SPOT.prefix])]
    baseline = table.mean(dim=0).expand_as(embedded)
    difference = _decision_by_hand(double, SPOT, embedded) - _decision_by_hand(double, SPOT, baseline)
    products = attribution.integrated_products(double.model, SPOT)
    assert abs(difference) > 0.1
    assert float(products.sum()) == pytest.approx(difference, abs=1e-3)
    (row,) = attribute(double, [SPOT], "gradient", label="rl-1")
    assert (len(row["prompt_scores"]), len(row["completion_scores"])) == (4, 3)
    assert (row["sequence_id"], row["position"], row["method"], row["model"]) == (0, 3, "gradient", "rl-1")
    scores = torch.tensor([*row["prompt_scores"], *row["completion_scores"]], dtype=torch.float64)
    assert torch.allclose(scores, products.abs() / products.abs().sum())


@pytest.mark.parametrize("method", ["gradient", "attention"])
def test_only_what_stands_before_the_position_counts(double, method):
    later = _sequence([1, 5, 8, 6], [4, 9, 7, 10, 8])
    rows = [attribute(double, [spot], method, label="m")[0] for spot in (SPOT, Spot(sequence=later, position=3))]
    assert rows[0] == rows[1]
    assert sum(rows[0]["prompt_scores"]) + sum(rows[0]["completion_scores"]) == pytest.approx(1.0)
    assert all(parameter.grad is None for parameter in double.model.parameters())


def test_where_the_choice_stands_there_it_is_compared_with_its_runner_up(double):
    """The difference to itself would be 0 whatever the tokens before."""
    with torch.no_grad():
        ranked = double.model(torch.tensor([SPOT.prefix])).logits[0, -1].argsort(descending=True).tolist()
    first, second, third = (
        Spot(sequence=_sequence(SPOT.sequence.prompt_ids, [4, 9, 7, token]), position=3) for token in ranked[:3]
    )
    rows = [attribute(double, [spot], "gradient", label="m")[0] for spot in (first, second, third)]
    assert rows[0] == rows[1]
    assert rows[0]["prompt_scores"] != pytest.approx(rows[2]["prompt_scores"], rel=1e-3)


def test_attention_rollout_is_the_last_row_of_the_product_of_all_layers(double):
    model = copy.deepcopy(double.model)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        layers = model(torch.tensor([SPOT.prefix]), output_attentions=True).attentions
    product = torch.eye(len(SPOT.prefix), dtype=torch.float64)
    for layer in layers:
        product = 0.5 * (layer[0].mean(dim=0) + torch.eye(len(SPOT.prefix), dtype=torch.float64)) @ product
    (row,) = attribute(double, [SPOT], "attention", label="m")
    assert len(layers) == 2
    assert [*row["prompt_scores"], *row["completion_scores"]] == pytest.approx(product[-1].tolist(), rel=1e-6)


def _planted() -> LoadedModel:
    """One layer whose only head looks for the marked token wherever it stands, and copies it into the logits."""
    size, vocabulary = 64, 16
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=size,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=size,
        tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 1e8},
    )
    model = LlamaForCausalLM(config).eval()
    slow = size // 2 - 1  # the rotary pair that hardly turns: its match does not depend on the distance
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(1.0 if "norm" in name else 0.0)
        model.model.embed_tokens.weight[:, :vocabulary] = torch.eye(vocabulary)
        model.lm_head.weight[:, :vocabulary] = torch.eye(vocabulary)
        attention = model.model.layers[0].self_attn
        attention.q_proj.weight[slow, :vocabulary] = 3.0
        attention.k_proj.weight[slow, MARKED] = 3.0
        attention.v_proj.weight[:, :] = torch.eye(size)
        attention.o_proj.weight[:, :] = torch.eye(size)
    unused: Any = None
    return LoadedModel(model=model, tokenizer=unused)


@pytest.mark.parametrize("method", ["gradient", "attention"])
@pytest.mark.parametrize("place", [1, 4, 6])
def test_the_copied_token_gets_the_score(method, place):
    tokens = [1, 2, 3, 4, 5, 6, 8, 9]
    tokens[place] = MARKED
    spot = Spot(sequence=_sequence(tokens[:3], [*tokens[3:], 10]), position=5)
    (row,) = attribute(_planted(), [spot], method, label="m")
    scores = [*row["prompt_scores"], *row["completion_scores"]]
    if method == "attention":  # half of the flow stays with the token that decides
        assert scores[place] == pytest.approx(0.5, abs=0.02)
        assert scores[-1] == pytest.approx(0.5, abs=0.02)
    else:
        assert scores[place] > 0.8
        assert max(scores) == scores[place]


def test_the_attention_implementation_is_put_back_even_after_an_error(double, monkeypatch):
    before = double.model.config._attn_implementation
    assert before != "eager"
    attribute(double, [SPOT], "attention", label="m")
    assert double.model.config._attn_implementation == before

    def without_weights(*_arguments: Any, **_keys: Any) -> Any:
        assert double.model.config._attn_implementation == "eager"
        return type("Output", (), {"attentions": None})

    monkeypatch.setattr(double.model, "forward", without_weights)
    with pytest.raises(MismatchError, match=r"does not return attention weights .* probe.attribution.method=gradient"):
        attribute(double, [SPOT], "attention", label="m")
    assert double.model.config._attn_implementation == before


def test_wrong_input_is_refused(double):
    outside = Spot(sequence=SPOT.sequence, position=5)
    with pytest.raises(ValueError, match="has 5 completion tokens, got position 5"):
        attribute(double, [outside], "gradient", label="m")
    unknown: Any = "magic"
    with pytest.raises(ValueError, match="unknown attribution method 'magic'; allowed: gradient"):
        attribute(double, [SPOT], unknown, label="m")


def test_a_model_that_nothing_moves_gives_every_token_the_same():
    loaded = _planted()
    with torch.no_grad():
        loaded.model.lm_head.weight.zero_()
    spot = Spot(sequence=_sequence([1, 2], [3, 4, 5]), position=2)
    (row,) = attribute(loaded, [spot], "gradient", label="m")
    assert (row["prompt_scores"], row["completion_scores"]) == ([0.25, 0.25], [0.25, 0.25])


def _row(index: int, position: int, prompt: list[float], completion: list[float]) -> dict[str, Any]:
    return {
        "sequence_id": index,
        "position": position,
        "method": "gradient",
        "model": "m",
        "prompt_scores": prompt,
        "completion_scores": completion,
    }


def test_figures_by_hand():
    sequences = [
        _sequence([1, 2], [3] * 8, index=4, problem="a", wrong=(1, 6)),
        _sequence([1], [3, 3], index=9, problem="b", wrong=(1,)),
    ]
    first = _row(4, 6, [0.1, 0.0], [0.05, 0.3, 0.05, 0.1, 0.2, 0.2])  # 8 tokens; the wrong step before it is at 1
    second = _row(9, 1, [0.25], [0.75])
    (figures,) = summarise_attribution([first, second], sequences, confidence=0.9)
    assert (figures.model, figures.method, figures.num_spots) == ("m", "gradient", 2)
    assert figures.prompt.score.mean == pytest.approx((0.1 + 0.25) / 2)
    assert figures.prompt.uniform == pytest.approx((2 / 8 + 1 / 2) / 2)
    assert figures.prompt.score.low < figures.prompt.score.high
    assert figures.recent.score.mean == pytest.approx((0.85 + 1.0) / 2)
    assert figures.recent.uniform == pytest.approx((5 / 8 + 1) / 2)
    assert figures.wrong.num_spots == 1
    assert figures.wrong.score.mean == pytest.approx(0.3)
    assert figures.wrong.uniform == pytest.approx(1 / 8)
    distance = 0.1 * 8 + 0.05 * 6 + 0.3 * 5 + 0.05 * 4 + 0.1 * 3 + 0.2 * 2 + 0.2
    assert figures.distance.score.mean == pytest.approx((distance + 0.25 * 2 + 0.75) / 2)
    assert figures.distance.uniform == pytest.approx((4.5 + 1.5) / 2)


def test_figures_are_apart_for_each_model_and_none_where_nothing_was_measured():
    sequences = [_sequence([1], [3, 3], index=0)]
    rows = [_row(0, 1, [1.0], [0.0]), {**_row(0, 1, [0.0], [1.0]), "model": "other"}]
    figures = summarise_attribution(rows, sequences, confidence=0.95)
    assert [(one.model, one.prompt.score.mean) for one in figures] == [("m", 1.0), ("other", 0.0)]
    assert figures[0].wrong == AttributionScore(num_spots=0, score=None, uniform=None)
    assert summarise_attribution([], sequences, confidence=0.95) == ()
