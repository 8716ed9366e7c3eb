from __future__ import annotations

import math
from dataclasses import asdict

import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from transformers import Qwen3Config, Qwen3ForCausalLM

from swerve.artifacts.files import dump_json
from swerve.artifacts.tables import CROSS_SAMPLES_SCHEMA, read_table, write_table
from swerve.config.probe import CrossSamplingConfig
from swerve.models.model_folder import LoadedModel
from swerve.models.tiny import build_word_tokenizer
from swerve.probe.causal.cross_sampling import (
    CrossSampler,
    all_doses,
    calibrated_thresholds,
    count_cross_samples,
    pilot_split,
)
from swerve.probe.causal.cross_sampling_summary import mean_height, summarise_cross_sampling
from swerve.probe.intervals import Intervals
from swerve.problems import load_family
from swerve.problems.addition import AdditionTask
from swerve.prompts.encode import encode_prompts
from swerve.statistics.intervals import mean_interval
from swerve.types import Problem, Prompt

TOKENIZER = build_word_tokenizer(load_family(AdditionTask()).words)
WRITTEN = "write " * 11 + "answer 0 4 6"
WHERE = 13  # the completion's only position at which the two models differ; 16 tokens with the end
SETTINGS = CrossSamplingConfig(selectors=("js", "random"), shares=(0.1, 0.2))


class Planted(Qwen3ForCausalLM):
    """Writes one text at almost every position, with `chance` of the right digit where the answer turns on it."""

    def plant(self, num_prompt: int, chance: float) -> Planted:
        ids = [*TOKENIZER(WRITTEN, add_special_tokens=False)["input_ids"], TOKENIZER.eos_token_id]
        wrong = TOKENIZER("5", add_special_tokens=False)["input_ids"][0]
        table = torch.full((num_prompt + len(ids), self.config.vocab_size), -30.0)
        for position, token in enumerate(ids):
            table[num_prompt - 1 + position, token] = 0.0
        table[num_prompt - 1 + WHERE, ids[WHERE]] = math.log(chance)
        table[num_prompt - 1 + WHERE, wrong] = math.log(1 - chance)
        self.table = table
        return self.eval()

    def forward(self, *args, position_ids=None, **kwargs):
        output = super().forward(*args, position_ids=position_ids, **kwargs)
        last = position_ids[:, -output.logits.shape[1] :]
        output.logits = self.table[last].expand(*output.logits.shape).clone()
        return output


def prompts(num: int, first: int = 0) -> list[Prompt]:
    problems = [
        Problem(id=f"p{index}", family="addition", question="1 2 + 3 4 =", answer="0 4 6")
        for index in range(first, first + num)
    ]
    return encode_prompts(TOKENIZER, problems)


def planted(chance: float) -> LoadedModel:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(TOKENIZER), hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
        num_key_value_heads=1, head_dim=8, eos_token_id=TOKENIZER.eos_token_id, pad_token_id=0,
    )  # fmt: skip
    model = Planted(config).plant(len(prompts(1)[0].token_ids), chance)
    return LoadedModel(model=model, tokenizer=TOKENIZER)


def run(reference: LoadedModel, checkpoint: LoadedModel, *, num: int = 80, **options):
    how = {"settings": SETTINGS, "max_new_tokens": 20, "max_rows": 128, "seed": 0, **options}
    rows = []
    for direction in how["settings"].directions:
        base, other = (reference, checkpoint) if direction == "checkpoint_into_reference" else (checkpoint, reference)
        sampling = CrossSampler(base=base, other=other, direction=direction, **how)
        thresholds = sampling.thresholds(prompts(20, first=num))
        for dose in all_doses(thresholds, how["settings"]):
            rows += sampling.rows(prompts(num), dose)
    return rows


@pytest.fixture(scope="module")
def crossed():
    finished: list[int] = []
    samples = run(planted(0.05), planted(0.95), on_finished=finished.append)
    return samples, sum(finished)


def test_one_planted_position_is_found_by_js_and_not_by_chance(crossed) -> None:
    summary = summarise_cross_sampling(crossed[0], intervals=Intervals())
    assert summary is not None
    assert (summary.num_problems, summary.num_samples) == (80, 1)
    into_reference, into_checkpoint = summary.directions
    assert into_reference.direction == "checkpoint_into_reference"
    assert into_reference.base.mean < 0.1 < 0.9 < into_reference.other.mean
    assert into_reference.base == into_checkpoint.other
    for direction in (into_reference, into_checkpoint):
        js, random = direction.selectors
        for point in js.points:
            reach = 1 - 0.05 ** (1 / 80)  # 80 problems of which each recovers everything
            assert asdict(point.recovered) == pytest.approx({"mean": 1.0, "low": 1 - reach, "high": 1 + reach})
            assert point.share_swapped == 1 / 16
        first, last = random.points
        assert first.recovered.high < 0.35
        assert first.share_swapped == pytest.approx(0.1, abs=0.03)
        # js cannot spend the least budget: a straight line to its share, and level from there
        limit = direction.largest_common_share
        assert limit == last.share_swapped
        assert js.auc.mean == pytest.approx(1 - 1 / 32 / limit)
        assert js.auc_over_random.low > 0.4
        assert random.auc_over_random is None


def test_pairs_share_their_random_numbers(crossed) -> None:
    samples, _ = crossed
    by_dose = {
        (direction, selector, share): [
            row["completion_ids"]
            for row in samples
            if (row["direction"], row["selector"], row["share"]) == (direction, selector, share)
        ]
        for direction, selector, share in {(row["direction"], row["selector"], row["share"]) for row in samples}
    }
    one, two = SETTINGS.directions
    assert by_dose[one, "js", 0.1] == by_dose[one, "random", 1.0] == by_dose[two, "random", 0.0]
    assert by_dose[two, "js", 0.1] == by_dose[one, "random", 0.0]


def test_samples_are_counted_graded_and_tabled(crossed, tmp_path) -> None:
    samples, num_finished = crossed
    assert len(samples) == 2 * 6 * 80
    assert num_finished == 2 * count_cross_samples(SETTINGS, 80, 20) == 960 + 40
    assert all(
        row["correct"] == (WRITTEN.split() == TOKENIZER.decode(row["completion_ids"][:-1]).split()) for row in samples
    )
    assert {row["status"] for row in samples} == {"graded"}
    assert {row["threshold"] for row in samples if row["selector"] == "random"} == {None}
    path = tmp_path / "cross_samples.parquet"
    write_table(path, samples, CROSS_SAMPLES_SCHEMA)
    read: pa.Table = read_table(path, CROSS_SAMPLES_SCHEMA)
    how = Intervals(confidence=0.9)
    direct, again = (summarise_cross_sampling(each, intervals=how) for each in (samples, read.to_pylist()))
    assert direct == again
    assert dump_json(direct)


def test_forward_kl_is_from_the_checkpoint_to_the_reference_in_both_directions() -> None:
    settings = CrossSamplingConfig(selectors=("kl_forward", "kl_reverse", "logprob_drop"), shares=(0.01,))
    samples = run(planted(0.05), planted(0.5), num=2, settings=settings)
    found = {(row["direction"], row["selector"]): row["threshold"] for row in samples if row["share"] == 0.01}
    forward = 0.5 * math.log(0.5 / 0.05) + 0.5 * math.log(0.5 / 0.95)
    reverse = 0.05 * math.log(0.05 / 0.5) + 0.95 * math.log(0.95 / 0.5)
    into_reference, into_checkpoint = settings.directions
    for direction in settings.directions:  # the pilot's largest scores are those of the planted position
        assert found[direction, "kl_forward"] == pytest.approx(forward, abs=1e-5)
        assert found[direction, "kl_reverse"] == pytest.approx(reverse, abs=1e-5)
    assert found[into_reference, "logprob_drop"] == pytest.approx(math.log(0.95 / 0.5), abs=1e-5)  # of the wrong digit
    assert found[into_checkpoint, "logprob_drop"] == pytest.approx(math.log(0.5 / 0.05), abs=1e-5)  # of the right one


def test_ends_of_equal_models_leave_no_ratio() -> None:
    settings = SETTINGS.model_copy(update={"directions": ("checkpoint_into_reference",), "shares": (0.1,)})
    samples = run(planted(0.5), planted(0.5), num=20, settings=settings)
    summary = summarise_cross_sampling(samples, intervals=Intervals())
    assert summary is not None
    (direction,) = summary.directions
    assert direction.gap.mean == 0.0
    js, random = direction.selectors
    assert js.points[0].share_swapped == 0.0  # the divergence is exactly 0 everywhere
    assert js.mean_accuracy is None
    assert js.auc is None
    assert js.points[0].recovered is None
    assert random.mean_accuracy.mean == direction.base.mean


@given(
    st.lists(st.floats(-5, 5), min_size=1, max_size=60),
    st.lists(st.sampled_from([0.02, 0.1, 0.29, 0.5, 0.9]), min_size=1, max_size=4),
)
def test_thresholds_use_the_budget_up_to_ties(scores: list[float], shares: list[float]) -> None:
    for share, threshold in zip(shares, calibrated_thresholds(scores, shares), strict=True):
        above = sum(score > threshold for score in scores)
        allowed = round(share * 100) * len(scores) // 100
        assert above <= allowed
        assert above + sum(score == threshold for score in scores) > allowed


def test_literal_thresholds() -> None:
    scores = [float(value) for value in range(100)]
    assert calibrated_thresholds(scores, [0.05, 0.29]) == [94.0, 70.0]
    with pytest.raises(ValueError, match="0 scores"):
        calibrated_thresholds([], [0.1])
    with pytest.raises(ValueError, match="above 0 and below 1"):
        calibrated_thresholds([1.0], [1.0])


@pytest.mark.parametrize(
    ("num", "most", "measured", "pilot"),
    [(400, 200, (0, 200), (300, 400)), (400, 400, (0, 320), (320, 400)), (1000, 1000, (0, 900), (900, 1000)),
     (7, 9, (0, 5), (5, 7)), (2, 1, (0, 1), (1, 2)), (150, 100, (0, 100), (100, 150))],
)  # fmt: skip
def test_measured_problems_and_pilot_are_apart(num, most, measured, pilot) -> None:
    everything = prompts(num)
    assert pilot_split(everything, max_problems=most) == (everything[slice(*measured)], everything[slice(*pilot)])


def test_one_prompt_is_no_split() -> None:
    with pytest.raises(ValueError, match="two prompts or more"):
        pilot_split(prompts(1), max_problems=1)


def row(problem: str, selector: str, share: float, swapped: int, correct: bool, *, changed: int = 0, tokens: int = 10):
    return {
        "problem_id": problem,
        "sample": 0,
        "direction": "checkpoint_into_reference",
        "selector": selector,
        "share": share,
        "threshold": 0.25,
        "completion_ids": [1] * tokens,
        "swapped": list(range(swapped)),
        "num_changed": changed,
        "correct": correct,
        "status": "graded",
    }


def literal_rows() -> list[dict[str, object]]:
    """Ten problems of ten tokens; the base is right in 2, the other in 10, `js` in 6 and 8, `random` in 3 and 4."""
    doses = [("random", 0.0, 0, 2), ("random", 1.0, 10, 10), ("js", 0.125, 1, 6), ("js", 0.25, 3, 8),
             ("random", 0.125, 1, 3), ("random", 0.25, 2, 4)]  # fmt: skip
    return [
        row(f"p{index}", selector, share, swapped, index < right, changed=min(swapped, 1))
        for selector, share, swapped, right in doses
        for index in range(10)
    ]


def test_summary_of_literal_rows() -> None:
    summary = summarise_cross_sampling(literal_rows(), intervals=Intervals())
    assert summary is not None
    (direction,) = summary.directions
    assert direction.base.mean == 0.2
    assert direction.base.low == pytest.approx(0.0252, abs=1e-4)  # 2 of 10: Clopper and Pearson
    assert direction.other.mean == 1.0
    assert direction.gap.mean == pytest.approx(0.8)
    assert direction.largest_common_share == pytest.approx(0.2)
    js, random = direction.selectors
    assert [point.budget for point in js.points] == [0.125, 0.25]
    assert [point.threshold for point in js.points] == [0.25, 0.25]
    assert [point.share_swapped for point in js.points] == pytest.approx([0.1, 0.3])
    assert [point.share_changed for point in js.points] == pytest.approx([0.1, 0.1])
    assert [point.accuracy.mean for point in js.points] == [0.6, 0.8]
    assert [point.gain.mean for point in js.points] == pytest.approx([0.4, 0.6])
    assert [point.recovered.mean for point in js.points] == pytest.approx([0.5, 0.75])
    # to 0.2: js (0.2 + 0.6)/2 and (0.6 + 0.7)/2; random (0.2 + 0.3)/2 and (0.3 + 0.4)/2
    assert js.mean_accuracy.mean == pytest.approx(0.525)
    assert random.mean_accuracy.mean == pytest.approx(0.3)
    assert js.auc.mean == pytest.approx(0.325 / 0.8)
    assert random.auc.mean == pytest.approx(0.125)
    assert js.mean_accuracy_over_random.mean == pytest.approx(0.225)
    assert js.auc_over_random.mean == pytest.approx(0.225 / 0.8)
    assert js.auc_over_random.low < 0.28 < js.auc_over_random.high
    # shares are the same for every problem, so heights are sums over problems: js less random, to 0.1 and from there on
    right = [[float(index < num) for num in (6, 8, 3, 4)] for index in range(10)]
    more = [((j1 - r1) / 2 + (j1 + (j1 + j2) / 2) / 2 - (r1 + r2) / 2) / 2 for j1, j2, r1, r2 in right]
    expected = mean_interval(more, bounds=(-1.0, 1.0))
    found = js.mean_accuracy_over_random
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_a_selector_that_cannot_spend_the_budget_is_held_at_its_height() -> None:
    rank = [row(f"p{index}", "rank", 0.125, int(index == 0), index < 6) for index in range(10)]  # 1% of tokens
    summary = summarise_cross_sampling([*literal_rows(), *rank], intervals=Intervals())
    assert summary is not None
    (direction,) = summary.directions
    assert direction.largest_common_share == pytest.approx(0.2)
    # 0.4 over the first twentieth of the way to 0.2, 0.6 after it
    assert direction.selectors[2].mean_accuracy.mean == pytest.approx(0.05 * 0.4 + 0.95 * 0.6)


def test_several_samples_stay_with_their_problem() -> None:
    rows = [
        {**each, "sample": sample, "correct": each["correct"] and sample == 0}
        for each in literal_rows()
        for sample in (0, 1)
    ]
    summary = summarise_cross_sampling(rows, intervals=Intervals())
    assert summary is not None
    assert summary.num_samples == 2
    (direction,) = summary.directions
    reach = stats.sem([0.5] * 10 + [0.0, 1.0]) * stats.t.ppf(0.975, 11)
    assert asdict(direction.other) == pytest.approx({"mean": 0.5, "low": 0.5 - reach, "high": 0.5 + reach})
    assert direction.selectors[0].auc.mean == pytest.approx(0.325 / 0.8)


def test_incomplete_rows_are_refused_and_none_give_nothing() -> None:
    options = {"intervals": Intervals()}
    assert summarise_cross_sampling([], **options) is None
    with pytest.raises(ValueError, match="samples of"):
        summarise_cross_sampling(literal_rows()[:-1], **options)
    with pytest.raises(ValueError, match="rows of an end"):
        summarise_cross_sampling(literal_rows()[10:], **options)


def test_mean_height_of_unordered_points() -> None:
    assert mean_height([0.2, 0.1], [0.7, 0.5], base=0.3, limit=0.4) == pytest.approx((0.04 + 0.06 + 0.14) / 0.4)
