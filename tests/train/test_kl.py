"""The placements of the KL: what a stage without a reference leaves out."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
import torch

from swerve.config.objectives import KL_TERMS
from swerve.config.stages import RlStage
from swerve.train.columns import SignalRecorder, TokenColumns, TokenTable
from swerve.train.kl import KlTerm, kl_coefficient, kl_placement, kl_reference, kl_term

TABLE = TokenTable.of([((1,), (5, 6)), ((1,), (7,))])
COLUMNS = TokenColumns(
    ids=TABLE.fill([[5, 6], [7]], dtype=torch.long),
    weights=TABLE.mask.float(),
    policy_weights=TABLE.mask.float(),
    advantages=TABLE.zeros(),
    sampler_logprobs=TABLE.zeros(),
    old_logprobs=TABLE.zeros(),
)
UNUSED: Any = None


@pytest.mark.parametrize(
    "keys",
    [{"kind": "none"}, {"kind": "reward", "coef": 0.0}, {"kind": "loss", "coef": 0.0},
     {"kind": "loss", "estimator": "exact_js", "coef": 0.0}],
    ids=str,
)  # fmt: skip
def test_without_a_reference_no_placement_reads_or_adds_anything(keys: dict[str, Any]) -> None:
    stage = RlStage.model_validate({"steps": 1, "optimizer": {"lr": 1e-3}, "kl": keys})
    assert kl_reference(stage, UNUSED) is None
    assert kl_coefficient(stage, {}) == keys.get("coef")
    term = kl_term(stage.kl, coef=stage.kl.coef)
    assert term.ref_logprobs([], TABLE) is None
    assert term.ref_logits(UNUSED) is None
    assert term.in_loss(UNUSED, UNUSED, UNUSED, COLUMNS, None) is None
    assert term.with_advantages(COLUMNS, TABLE, lambda: COLUMNS) is COLUMNS
    assert term.recorded(COLUMNS, SignalRecorder(TABLE)) is None


@pytest.mark.parametrize("kind", sorted(set(KL_TERMS) - {"custom"}))
def test_the_keys_of_a_kind_are_the_fields_of_its_placement(kind: str) -> None:
    config = KL_TERMS[kind]()
    own = [field for field in fields(kl_placement(config)) if field.name not in {one.name for one in fields(KlTerm)}]
    assert {field.name: field.default for field in own} == config.keywords


def test_columns_that_are_not_there_stay_none_under_a_change() -> None:
    doubled = COLUMNS.map(lambda column: 2 * column)
    assert doubled.ids.tolist() == [[10, 12], [14, 0]]
    assert doubled.values is None
