from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from swerve.functional.divergence import DivergenceStats, divergence_stats
from swerve.functional.head_divergence import HeadBackend, HeadDivergence, head_divergence
from swerve.functional.head_logits import LinearHead
from swerve.functional.row_sums import compiled_available

DIVERGENCES = ("kl_forward", "kl_reverse", "js")
FLOATS = (*DIVERGENCES, "entropy", "entropy_ref", "logprob", "logprob_ref")
COUNTS = ("rank", "rank_ref", "argmax", "argmax_ref")
BACKENDS = [
    "eager",
    pytest.param("compiled", marks=pytest.mark.skipif(not compiled_available(), reason="needs a compiler")),
]
# One shape for the compiled backend wherever the shape does not matter: three sub-rows, with padding, and chunk tails.
VOCABULARY, ROWS = 2600, 16


@dataclasses.dataclass(frozen=True)
class Case:
    hidden: Tensor
    hidden_ref: Tensor
    head: LinearHead
    head_ref: LinearHead
    ids: Tensor

    def run(self, **options: object) -> HeadDivergence:
        return head_divergence(self.hidden, self.hidden_ref, self.head, self.head_ref, self.ids, **options)

    def some(self, rows: Tensor) -> Case:
        return dataclasses.replace(self, hidden=self.hidden[rows], hidden_ref=self.hidden_ref[rows], ids=self.ids[rows])


def case(vocabulary: int = VOCABULARY, *, rows: int = 40, width: int = 24, change: float = 0.05, seed: int = 0) -> Case:
    """Two models near each other, of different widths."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    hidden_ref, weight_ref = normal(rows, width), normal(vocabulary, width) * 3 / width**0.5
    extra, extra_weight = change * normal(rows, 2), change * normal(vocabulary, 2)
    return Case(
        hidden=torch.cat([hidden_ref + change * normal(rows, width), extra], dim=1),
        hidden_ref=hidden_ref,
        head=LinearHead(weight=torch.cat([weight_ref, extra_weight], dim=1)),
        head_ref=LinearHead(weight=weight_ref),
        ids=torch.randint(vocabulary, (rows,), generator=generator),
    )


def logits_of(hidden: Tensor, head: LinearHead, size: int | None = None) -> Tensor:
    """In float64, the way the head is defined."""
    logits = hidden.double() @ head.weight.double().T
    logits = (logits if head.bias is None else logits + head.bias.double()) * head.multiplier
    logits = logits if head.softcap is None else head.softcap * torch.tanh(logits / head.softcap)
    return logits[:, :size]


def assert_exact(stats: DivergenceStats, logits_p: Tensor, logits_q: Tensor, ids: Tensor) -> None:
    """Logits carry the products' own rounding, of about 1e-6: the tolerance of a divergence is what that explains."""
    expected = divergence_stats(logits_p.double(), logits_q.double(), ids)
    for name in DIVERGENCES:
        got, want = getattr(stats, name).double(), getattr(expected, name)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=3e-9, msg=lambda text, name=name: f"{name}: {text}")
    for name in ("entropy", "entropy_ref"):
        torch.testing.assert_close(getattr(stats, name).double(), getattr(expected, name), rtol=0, atol=1e-5)
    for name in ("logprob", "logprob_ref"):
        torch.testing.assert_close(getattr(stats, name).double(), getattr(expected, name), rtol=1e-6, atol=3e-6)


def of_logits(logits_p: Tensor, logits_q: Tensor, ids: Tensor) -> Case:
    """A case whose logits are given, to the last bit: hidden states times the identity."""
    head = LinearHead(weight=torch.eye(logits_p.shape[1]))
    return Case(hidden=logits_p, hidden_ref=logits_q, head=head, head_ref=head, ids=ids)


@pytest.mark.parametrize("change", [0.02, 0.1, 1.0])
@pytest.mark.parametrize(
    ("vocabulary", "backend"),
    [
        *((vocabulary, "eager") for vocabulary in (2, 7, 1000, 32003)),
        *((vocabulary, "compiled") for vocabulary in (2, 7)),
        pytest.param(VOCABULARY, "compiled", marks=BACKENDS[1].marks),
        pytest.param(32003, "compiled", marks=[*BACKENDS[1].marks, pytest.mark.slow]),
    ],
)
def test_agrees_with_a_float64_oracle(vocabulary: int, backend: HeadBackend, change: float) -> None:
    models = case(vocabulary, change=change)
    found = models.run(backend=backend, rows_per_chunk=ROWS, top_k=5)
    logits = logits_of(models.hidden, models.head), logits_of(models.hidden_ref, models.head_ref)
    assert_exact(found.stats, *logits, models.ids)
    expected = divergence_stats(*logits, models.ids)
    for name in COUNTS:  # rounded logits may change places
        assert (getattr(found.stats, name) - getattr(expected, name)).ne(0).sum() <= 1, name
    for top, each in zip((found.top, found.top_ref), logits, strict=True):
        assert top is not None
        torch.testing.assert_close(
            top.probs.double(), each.softmax(-1).topk(min(5, vocabulary)).values, rtol=2e-5, atol=1e-9
        )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("change", [4e-3, 0.1, 2.0, 8.0])
def test_given_logits_are_compared_within_the_stated_bounds(backend: HeadBackend, change: float) -> None:
    generator = torch.Generator().manual_seed(7)
    logits_q = torch.randn(24, VOCABULARY, generator=generator) * 2
    logits_p = logits_q + change * torch.randn(24, VOCABULARY, generator=generator) + 5.0
    ids = torch.randint(VOCABULARY, (24,), generator=generator)
    stats = of_logits(logits_p, logits_q, ids).run(backend=backend, rows_per_chunk=ROWS).stats
    exact = divergence_stats(logits_p.double(), logits_q.double(), ids)
    for name in DIVERGENCES:
        want = getattr(exact, name)
        relative = ((getattr(stats, name).double() - want).abs() / want)[want > 1e-6]
        assert float(relative.max()) <= (1e-4 if change < 0.01 else 1e-5), name
    for name, bound in (("entropy", 2e-6), ("entropy_ref", 2e-6), ("logprob", 2e-6), ("logprob_ref", 2e-6)):
        assert float((getattr(stats, name) - getattr(exact, name)).abs().max()) <= bound, name
    for name in COUNTS:
        assert torch.equal(getattr(stats, name), getattr(exact, name)), name


@pytest.mark.parametrize("backend", BACKENDS)
def test_identical_models_are_exactly_zero_apart(backend: HeadBackend) -> None:
    models = case()
    same = dataclasses.replace(models, hidden=models.hidden_ref, head=models.head_ref)
    found = same.run(backend=backend, rows_per_chunk=ROWS, top_k=3)
    for name in DIVERGENCES:
        assert torch.equal(getattr(found.stats, name), torch.zeros(40)), name
    assert torch.equal(found.stats.rank, found.stats.rank_ref)
    assert found.top is not None
    assert found.top_ref is not None
    assert torch.equal(found.top.ids, found.top_ref.ids)


@pytest.mark.parametrize("backend", BACKENDS)
def test_changing_places_changes_the_two_sides(backend: HeadBackend) -> None:
    models = case(change=0.4)
    swapped = Case(models.hidden_ref, models.hidden, models.head_ref, models.head, models.ids)
    there = models.run(backend=backend, rows_per_chunk=ROWS).stats
    back = swapped.run(backend=backend, rows_per_chunk=ROWS).stats
    torch.testing.assert_close(there.kl_forward, back.kl_reverse, rtol=1e-5, atol=0)
    torch.testing.assert_close(there.js, back.js, rtol=1e-5, atol=0)
    assert float((there.kl_forward / there.kl_reverse - 1).abs().max()) > 0.01
    for name in ("entropy", "logprob", "rank", "argmax"):
        assert torch.equal(getattr(there, name), getattr(back, f"{name}_ref")), name


@pytest.mark.parametrize("backend", BACKENDS)
def test_bias_multiplier_and_softcap_are_applied(backend: HeadBackend) -> None:
    models = case(change=0.3)
    bias = torch.linspace(-2, 2, VOCABULARY)
    head = LinearHead(weight=models.head.weight, bias=bias, multiplier=1.5, softcap=6.0)
    head_ref = LinearHead(weight=models.head_ref.weight, multiplier=0.5)
    models = dataclasses.replace(models, head=head, head_ref=head_ref)
    found = models.run(backend=backend, rows_per_chunk=ROWS, top_k=1)
    logits = logits_of(models.hidden, head), logits_of(models.hidden_ref, head_ref)
    assert_exact(found.stats, *logits, models.ids)
    assert found.top is not None
    assert torch.equal(found.top.ids[:, 0], logits[0].argmax(-1))


@pytest.mark.parametrize("backend", BACKENDS)
def test_bfloat16_models_are_multiplied_in_float32(backend: HeadBackend) -> None:
    models = case(change=0.05)
    narrow = Case(
        models.hidden.bfloat16(),
        models.hidden_ref.bfloat16(),
        LinearHead(weight=models.head.weight.bfloat16()),
        LinearHead(weight=models.head_ref.weight.bfloat16()),
        models.ids,
    )
    stats = narrow.run(backend=backend, rows_per_chunk=ROWS).stats
    assert stats.js.dtype == torch.float32
    assert_exact(
        stats, logits_of(narrow.hidden, narrow.head), logits_of(narrow.hidden_ref, narrow.head_ref), models.ids
    )


def test_float64_inputs_give_float64_results() -> None:
    models = case(300, change=0.1)
    wide = dataclasses.replace(models, hidden=models.hidden.double(), hidden_ref=models.hidden_ref.double())
    stats = wide.run(rows_per_chunk=ROWS, top_k=2)
    expected = divergence_stats(
        logits_of(models.hidden, models.head), logits_of(models.hidden_ref, models.head_ref), models.ids
    )
    for name in FLOATS:
        torch.testing.assert_close(getattr(stats.stats, name), getattr(expected, name), rtol=1e-9, atol=1e-13)
    assert stats.top is not None
    assert stats.top.probs.dtype == torch.float64


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_of_padding_take_no_part(backend: HeadBackend) -> None:
    models = case(change=0.2)
    loud = torch.full((56, models.head.weight.shape[1]), 50.0)  # by far the most likely, were they tokens
    padded = dataclasses.replace(
        models,
        head=LinearHead(weight=torch.cat([models.head.weight, loud])),
        head_ref=LinearHead(weight=torch.cat([models.head_ref.weight, loud[:24, :-2]])),
    )
    found = padded.run(backend=backend, rows_per_chunk=ROWS, vocabulary_size=VOCABULARY, top_k=4)
    plain = models.run(backend=backend, rows_per_chunk=ROWS, top_k=4)
    for name in FLOATS:
        torch.testing.assert_close(getattr(found.stats, name), getattr(plain.stats, name), rtol=1e-5, atol=1e-6)
    assert found.top is not None
    assert plain.top is not None
    assert torch.equal(found.top.ids, plain.top.ids)
    with pytest.raises(ValueError, match=r"heads have 2656 and 2624 rows; give vocabulary_size"):
        padded.run()


def test_chunks_do_not_change_the_results() -> None:
    models = case(700, rows=23, change=0.3)
    whole = models.run(rows_per_chunk=100, top_k=3)
    for rows_per_chunk in (1, 4, 22, 23):
        found = models.run(rows_per_chunk=rows_per_chunk, top_k=3)
        for name in FLOATS:
            torch.testing.assert_close(getattr(found.stats, name), getattr(whole.stats, name), rtol=1e-5, atol=2e-6)
        assert found.top is not None
        assert whole.top is not None
        assert torch.equal(found.top.ids, whole.top.ids)
        assert torch.equal(found.stats.argmax, whole.stats.argmax)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_row_does_not_depend_on_its_company(backend: HeadBackend) -> None:
    models = case(change=0.3)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(1))
    found = models.some(order).run(backend=backend, rows_per_chunk=ROWS, top_k=2)
    whole = models.run(backend=backend, rows_per_chunk=ROWS, top_k=2)
    for name in FLOATS:
        torch.testing.assert_close(getattr(found.stats, name), getattr(whole.stats, name)[order], rtol=1e-5, atol=2e-6)
    assert found.top_ref is not None
    assert whole.top_ref is not None
    assert torch.equal(found.top_ref.ids, whole.top_ref.ids[order])


@pytest.mark.parametrize("backend", BACKENDS)
def test_excluded_and_far_tokens_keep_their_meaning(backend: HeadBackend) -> None:
    generator = torch.Generator().manual_seed(2)
    logits_p = torch.randn(20, VOCABULARY, generator=generator)
    logits_q = logits_p + 0.1 * torch.randn(20, VOCABULARY, generator=generator)
    logits_p[1, 7] += 200.0
    logits_q[2, 9] -= 60.0
    logits_p[3, VOCABULARY - 1] += 40.0
    excluded_p, excluded_q = torch.zeros(VOCABULARY), torch.zeros(VOCABULARY)
    ids = torch.randint(VOCABULARY, (20,), generator=generator)
    ids[2] = 9
    for side, index in ((excluded_p, 5), (excluded_q, 5), (excluded_q, 17)):
        side[index] = -math.inf
    models = of_logits(logits_p, logits_q, ids)
    far = models.run(backend=backend, rows_per_chunk=ROWS).stats
    exact = divergence_stats(logits_p.double(), logits_q.double(), ids)
    for name in FLOATS:
        torch.testing.assert_close(getattr(far, name).double(), getattr(exact, name), rtol=1e-5, atol=2e-6)
    eye = torch.eye(VOCABULARY)
    biased = dataclasses.replace(
        models, head=LinearHead(weight=eye, bias=excluded_p), head_ref=LinearHead(weight=eye, bias=excluded_q)
    )
    stats = biased.run(backend=backend, rows_per_chunk=ROWS).stats
    exact = divergence_stats((logits_p + excluded_p).double(), (logits_q + excluded_q).double(), ids)
    assert stats.kl_forward.tolist() == [math.inf] * 20
    assert stats.kl_reverse.isfinite().all()
    for name in FLOATS:
        torch.testing.assert_close(getattr(stats, name).double(), getattr(exact, name), rtol=1e-5, atol=2e-6)
    for name in COUNTS:
        assert torch.equal(getattr(stats, name), getattr(exact, name)), name


def test_top_tokens_are_tokens_even_where_most_are_excluded() -> None:
    bias = torch.full((300,), -math.inf)
    bias[[4, 250]] = torch.tensor([math.log(3.0), 0.0])
    head = LinearHead(weight=torch.zeros(300, 1), bias=bias)
    hidden = torch.zeros(2, 1)
    found = head_divergence(hidden, hidden, head, head, torch.tensor([4, 250]), top_k=5)
    for top in (found.top, found.top_ref):
        assert top is not None
        assert top.ids[:, :2].tolist() == [[4, 250], [4, 250]]
        assert top.probs.tolist() == [pytest.approx([0.75, 0.25, 0, 0, 0], rel=1e-6)] * 2
        assert int(top.ids.max()) < 300
    assert found.stats.logprob.tolist() == pytest.approx([math.log(0.75), math.log(0.25)], rel=1e-6)
    assert found.stats.kl_forward.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("vocabulary", [7, 1000, 5003])
def test_top_probs_of_one_model_are_the_largest_probabilities(vocabulary: int) -> None:
    models = case(vocabulary, rows=11)
    top = models.run(top_k=9, rows_per_chunk=4).top
    assert top is not None
    expected = logits_of(models.hidden, models.head).softmax(-1).topk(min(9, vocabulary))
    torch.testing.assert_close(top.probs.double(), expected.values, rtol=1e-5, atol=1e-9)
    assert torch.equal(top.ids, expected.indices)
    small = dataclasses.replace(models, ids=models.ids % 5)
    cut = small.run(top_k=2, vocabulary_size=5).top
    assert cut is not None
    assert torch.equal(cut.ids, logits_of(models.hidden, models.head, 5).topk(2).indices)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_no_distribution_is_refused(backend: HeadBackend, bad: float) -> None:
    models = case()
    bias = torch.zeros(VOCABULARY)
    bias[-1] = bad
    broken = LinearHead(weight=models.head.weight, bias=bias)
    with pytest.raises(ValueError, match="not a distribution"):
        dataclasses.replace(models, head=broken).run(backend=backend, rows_per_chunk=ROWS, top_k=2)


class _Largest(TorchDispatchMode):
    """Notes the largest tensor that any operation gives."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        parts = result if isinstance(result, (tuple, list)) else (result,)
        self.elements = max([self.elements, *(part.numel() for part in parts if isinstance(part, Tensor))])
        return result


def test_nothing_grows_with_the_number_of_positions_times_the_vocabulary() -> None:
    largest = []
    for rows in (32, 160):
        models = case(2560, rows=rows, width=4)
        with _Largest() as seen:
            models.run(rows_per_chunk=16, top_k=3)
        largest.append(seen.elements)
    assert largest[0] == largest[1] <= 6 * 16 * 2560  # the eager backend's six buffers of a group are one tensor


def test_inputs_stay_as_they_are_and_no_gradient_flows() -> None:
    models = case(300)
    hidden = models.hidden.clone().requires_grad_()
    found = dataclasses.replace(models, hidden=hidden).run(top_k=1)
    assert not found.stats.js.requires_grad
    again = case(300)
    assert torch.equal(models.hidden, again.hidden)
    assert torch.equal(models.head.weight, again.head.weight)


@pytest.mark.parametrize("vocabulary", [5, 300])
def test_no_positions_give_empty_results(vocabulary: int) -> None:
    found = case(vocabulary, rows=0).run(top_k=4)
    assert {getattr(found.stats, field.name).numel() for field in dataclasses.fields(found.stats)} == {0}
    assert found.top is not None
    assert found.top.ids.shape == (0, 4)


def test_without_top_k_there_are_no_top_tokens() -> None:
    found = case(300).run()
    assert found.top is None
    assert found.top_ref is None


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"hidden": torch.zeros(3, 5)}, {}, r"head's weight \[V, D\]; got \(3, 5\) and \(300, 6\)"),
        ({"ids": torch.zeros(2, dtype=torch.long)}, {}, r"same number of rows, got shapes \(3, 6\), \(3, 4\), \(2,\)"),
        ({"ids": torch.tensor([0, 1, 300])}, {}, "ids must be 0 to 299, got 0 to 300"),
        ({"ids": torch.tensor([0, -1, 3])}, {}, "ids must be 0 to 299, got -1 to 3"),
        ({}, {"vocabulary_size": 301}, "vocabulary_size must be 1 to 300, the rows of the heads; got 301"),
        ({}, {"vocabulary_size": 0}, "vocabulary_size must be 1 to 300"),
        ({}, {"top_k": -1}, "top_k must be at least 0"),
        ({}, {"rows_per_chunk": 0}, "rows_per_chunk at least 1; got 0 and 0"),
        ({}, {"backend": "fast"}, "backend must be one of eager, compiled; got 'fast'"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict, options: dict, message: str) -> None:
    models = dataclasses.replace(case(300, rows=3, width=4), **changes)
    with pytest.raises(ValueError, match=message):
        models.run(**options)


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.floats(1e-4, 12), st.floats(0.1, 12))
def test_bounds_hold_whatever_the_logits(seed: int, change: float, spread: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits_q = spread * torch.randn(6, 300, generator=generator)
    logits_p = logits_q + change * torch.randn(6, 300, generator=generator)
    ids = torch.randint(300, (6,), generator=generator)
    stats = of_logits(logits_p, logits_q, ids).run().stats
    assert bool((stats.kl_forward >= 0).all())
    assert bool((stats.kl_reverse >= 0).all())
    assert 0 <= float(stats.js.min()) <= float(stats.js.max()) <= math.log(2)
    assert 0 <= float(stats.entropy.min()) <= float(stats.entropy.max()) <= math.log(300) + 1e-6
    exact = divergence_stats(logits_p.double(), logits_q.double(), ids)
    for name in DIVERGENCES:
        want = getattr(exact, name)
        torch.testing.assert_close(getattr(stats, name).double(), want, rtol=1e-4, atol=1e-10)
    for name in COUNTS:
        assert torch.equal(getattr(stats, name), getattr(exact, name)), name
