from __future__ import annotations

import math
import shutil

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import swerve.functional.row_sums as row_sums
from swerve.functional.head_logits import PADDING
from swerve.functional.row_sums import CompiledSums, EagerSums, LogitsChunk, Tiling, compiled_available

CPU = torch.device("cpu")


def side(logits: torch.Tensor, ids: torch.Tensor) -> LogitsChunk:
    return LogitsChunk(
        logits=logits,
        largest=logits.amax(-1),
        argmax=logits.argmax(-1),
        realised=logits.gather(-1, ids[:, None])[:, 0],
    )


@given(st.integers(1, 10**6))
def test_a_tiling_covers_the_vocabulary_with_little_padding(vocabulary: int) -> None:
    tiling = Tiling.of(vocabulary)
    assert tiling.padded >= vocabulary
    assert tiling.padded - vocabulary < 64 * tiling.num_sub_rows
    assert tiling.width % 64 == 0
    assert tiling.width <= 1280


def test_tilings_of_known_vocabularies() -> None:
    assert Tiling.of(32000) == Tiling(vocabulary=32000, num_sub_rows=25, width=1280)
    assert Tiling.of(512) == Tiling(vocabulary=512, num_sub_rows=1, width=512)
    assert Tiling.of(1281) == Tiling(vocabulary=1281, num_sub_rows=2, width=704)
    assert Tiling.of(1281).group_rows(3000) == 2
    assert Tiling.of(1281).group_rows(1) == 1


@pytest.mark.parametrize("backend", [EagerSums, CompiledSums])
def test_literal_sums(backend: type[EagerSums] | type[CompiledSums]) -> None:
    if backend is CompiledSums and not compiled_available():
        pytest.skip("needs a compiler")
    logits_p, logits_q = torch.full((2, 64), PADDING), torch.full((2, 64), PADDING)
    logits_p[:, :3] = torch.tensor([[0.5, 0.25, 0.25], [0.9, 0.05, 0.05]]).log() + 3.0
    logits_q[:, :3] = torch.tensor([[0.25, 0.5, 0.25], [0.1, 0.8, 0.1]]).log() - 1.0
    ids = torch.tensor([0, 2])
    tiling = Tiling(vocabulary=3, num_sub_rows=1, width=64)
    sums = backend(tiling, 2, CPU)(side(logits_p, ids), side(logits_q, ids))
    # row 0: both KL = 0.25 ln 2; M = (3/8, 3/8, 1/4); JS = 0.5 ln(4/3) + 0.25 ln(2/3)
    assert sums.kl_forward.tolist() == pytest.approx([0.17328680, 1.80421532], rel=2e-6)
    assert sums.kl_reverse.tolist() == pytest.approx([0.17328680, 2.06766324], rel=2e-6)
    assert sums.js.tolist() == pytest.approx([0.04247476, 0.38778695], rel=5e-6)
    # logits minus the largest: 0, -ln 2, -ln 2, whose exponentials add up to 2
    assert sums.p.log_total.tolist() == pytest.approx([math.log(2), math.log(1 / 0.9)], rel=1e-6)
    assert sums.p.mean_shifted.tolist() == pytest.approx([-0.5 * math.log(2), -0.1 * math.log(18)], rel=1e-6)
    assert sums.q.mean_shifted.tolist() == pytest.approx([-0.5 * math.log(2), -0.2 * math.log(8)], rel=1e-6)
    assert sums.p.num_above.tolist() == [0, 1]
    assert sums.q.num_above.tolist() == [1, 1]
    assert not sums.far.any()


def test_eager_sums_mark_rows_that_are_far_apart() -> None:
    logits_p = torch.zeros(4, 64)
    logits_q = logits_p.clone()
    # two of the four rows have one token some 24 or 26 nats less likely under one of the two
    logits_p[0, 5], logits_p[1, 5], logits_q[2, 5] = -24.0, -26.0, -26.0
    ids = torch.zeros(4, dtype=torch.long)
    sums = EagerSums(Tiling.of(64), 4, CPU)(side(logits_p, ids), side(logits_q, ids))
    assert sums.far.tolist() == [False, True, True, False]


def test_without_a_compiler_the_compiled_sums_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert not compiled_available()
    with pytest.raises(RuntimeError, match=r"needs a C\+\+ compiler .* use backend='eager'"):
        CompiledSums(Tiling.of(1000), 8, CPU)


def test_the_compiler_named_by_the_environment_is_the_one_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: "/bin/x" if name == "icpx" else None)
    monkeypatch.delenv("CXX", raising=False)
    assert not compiled_available()
    monkeypatch.setenv("CXX", "icpx")
    assert compiled_available()


@pytest.mark.slow
def test_any_number_of_vocabularies_can_be_compiled_in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_ = torch.compile  # traced, but not turned into C++, which would take long
    monkeypatch.setattr(torch, "compile", lambda function, **options: compile_(function, backend="eager", **options))
    monkeypatch.setattr(row_sums, "compiled_available", lambda device: True)
    row_sums._kernel.cache_clear()
    try:
        for width in range(64, 64 * 12, 64):
            logits = torch.full((2, width), 1.5)
            logits[:, 3] += math.log(2)
            one = side(logits, torch.tensor([0, 3]))
            sums = CompiledSums(Tiling.of(width), 2, CPU)(one, one)
            assert sums.p.log_total.exp().tolist() == pytest.approx([1 + (width - 1) / 2] * 2)
            assert sums.p.num_above.tolist() == [1, 0]
    finally:
        row_sums._kernel.cache_clear()


@pytest.mark.parametrize("backend", [EagerSums, CompiledSums])
def test_a_large_shift_of_all_logits_keeps_the_digits(backend: type[EagerSums] | type[CompiledSums]) -> None:
    if backend is CompiledSums and not compiled_available():
        pytest.skip("needs a compiler")
    generator = torch.Generator().manual_seed(0)
    # multiples of 1/64, which a float32 near 65,536 can hold
    logits_q = torch.randint(-64, 64, (2, 64), generator=generator) / 64
    logits_p = logits_q + torch.randint(0, 2, (2, 64), generator=generator) / 64
    ids = torch.zeros(2, dtype=torch.long)
    sums = backend(Tiling.of(64), 2, CPU)(side(logits_p + 65536, ids), side(logits_q, ids))
    p, q = logits_p.double().log_softmax(-1), logits_q.double().log_softmax(-1)
    torch.testing.assert_close(sums.kl_forward, (p.exp() * (p - q)).sum(-1), rtol=1e-4, atol=0)
    torch.testing.assert_close(sums.kl_reverse, (q.exp() * (q - p)).sum(-1), rtol=1e-4, atol=0)


def test_padding_is_not_taken_for_tokens_far_apart() -> None:
    logits = torch.zeros(1, 64)
    logits[:, 40:] = PADDING
    shifted = torch.where(logits == 0, 100.0, logits)
    ids = torch.zeros(1, dtype=torch.long)
    sums = EagerSums(Tiling.of(40), 1, CPU)(side(shifted, ids), side(logits, ids))
    assert not sums.far.any()
    assert float(sums.kl_forward) == float(sums.js) == 0.0
