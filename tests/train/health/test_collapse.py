from __future__ import annotations

import math
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from swerve.config.objectives import CollapseConfig
from swerve.train.health.collapse import Collapse, detect_collapse
from tests.cases import each

# Runs of the addition recipe's RL stage from its SFT checkpoint, 16 groups of 8 a step. Of each step: reward,
# neg_logprob (nats per token), completion_length (tokens; the limit is 72), truncated_share, grad_norm.
# fmt: off
# Addition at learning rate 1e-4.
HEALTHY = [
    (0.492, 0.022, 59, 0, 0.0654), (0.594, 0.016, 59, 0, 0.0773), (0.445, 0.023, 59.1, 0, 0.132),
    (0.57, 0.014, 59, 0, 0.0866), (0.586, 0.02, 59, 0, 0.0828), (0.711, 0.017, 58.9, 0, 0.0761),
    (0.703, 0.017, 59, 0, 0.0893), (0.586, 0.03, 59, 0, 0.0916), (0.719, 0.013, 59, 0, 0.0954),
    (0.75, 0.016, 59, 0, 0.102), (0.75, 0.019, 59, 0, 0.113), (0.703, 0.018, 59, 0, 0.108),
    (0.852, 0.017, 59, 0, 0.0978), (0.828, 0.015, 59, 0, 0.0831), (0.875, 0.014, 59, 0, 0.0896),
    (0.82, 0.019, 59, 0, 0.069), (0.875, 0.015, 59, 0, 0.086), (0.867, 0.013, 59, 0, 0.12),
    (0.883, 0.014, 59, 0, 0.0561), (0.844, 0.017, 59, 0, 0.163), (0.836, 0.019, 59, 0, 0.0995),
    (0.867, 0.017, 58.6, 0, 0.124), (0.891, 0.013, 59, 0, 0.115), (0.891, 0.013, 59, 0, 0.0993),
    (0.922, 0.0069, 59, 0, 0.143), (0.945, 0.0083, 59, 0, 0.109), (0.898, 0.013, 59, 0, 0.144),
    (0.883, 0.013, 59, 0, 0.112), (0.922, 0.012, 59, 0, 0.195), (0.906, 0.012, 58.9, 0, 0.0842),
    (0.875, 0.013, 59, 0, 0.103), (0.93, 0.01, 59, 0, 0.123), (0.883, 0.017, 59.1, 0, 0.117),
    (0.922, 0.012, 59, 0, 0.111), (0.93, 0.0077, 59, 0, 0.121), (0.93, 0.011, 59, 0, 0.115),
]
# The same at 1e-3: large steps, but it learns.
NOISY = [
    (0.461, 0.016, 59, 0, 0.0655), (0.266, 0.032, 59, 0, 0.184), (0.516, 0.028, 59, 0, 0.243),
    (0.758, 0.021, 59, 0, 0.138), (0.352, 0.035, 59, 0, 0.298), (0.57, 0.031, 58.9, 0, 0.168),
    (0.68, 0.019, 59, 0, 0.169), (0.648, 0.03, 59, 0, 0.212), (0.484, 0.034, 59, 0, 0.148),
    (0.633, 0.031, 58.7, 0, 0.275), (0.688, 0.019, 59, 0, 0.174), (0.812, 0.016, 59, 0, 0.243),
    (0.82, 0.015, 59, 0, 0.104), (0.758, 0.017, 59, 0, 0.153), (0.438, 0.023, 58.9, 0, 0.168),
    (0.656, 0.02, 59, 0, 0.0986), (0.609, 0.026, 59.2, 0.016, 0.226), (0.773, 0.016, 59.1, 0.0078, 0.182),
    (0.859, 0.018, 59.1, 0.0078, 0.139), (0.578, 0.024, 59, 0, 0.164), (0.562, 0.023, 59, 0, 0.211),
    (0.812, 0.011, 59, 0, 0.133), (0.789, 0.018, 59.1, 0, 0.203), (0.812, 0.016, 59, 0, 0.135),
    (0.734, 0.012, 59, 0, 0.26), (0.609, 0.018, 58.9, 0, 0.131), (0.633, 0.02, 59, 0, 0.135),
    (0.68, 0.027, 58.9, 0, 0.18), (0.719, 0.017, 59, 0, 0.291), (0.836, 0.013, 59, 0, 0.203),
    (0.867, 0.014, 58.9, 0, 0.166), (0.852, 0.012, 59, 0, 0.311), (0.781, 0.016, 59, 0, 0.21),
    (0.836, 0.012, 59, 0, 0.158), (0.703, 0.017, 59, 0, 0.247), (0.711, 0.02, 60.7, 0.031, 0.121),
]
# At 1e-2: the first update destroys the policy, and after it no group has a gradient.
RUINED_AT_ONCE = [
    (0.461, 0.016, 59, 0, 0.0655), (0, 0.34, 51.4, 0.11, None), (0, 0.36, 54.8, 0.17, None),
    (0, 0.35, 53.8, 0.22, None), (0, 0.31, 50.2, 0.086, None), (0, 0.32, 51.8, 0.12, None),
    (0, 0.34, 51, 0.062, None), (0, 0.35, 52.2, 0.1, None), (0, 0.37, 50.5, 0.1, None),
    (0, 0.32, 48.9, 0.12, None), (0, 0.34, 53.5, 0.17, None), (0, 0.33, 48.8, 0.16, None),
    (0, 0.35, 54.2, 0.17, None), (0, 0.36, 50.6, 0.094, None), (0, 0.34, 53.2, 0.094, None),
    (0, 0.35, 53.3, 0.13, None), (0, 0.37, 50.7, 0.16, None), (0, 0.35, 54.6, 0.15, None),
]
# At 3e-4 with the advantages' sign turned round.
WORSE_AND_WORSE = [
    (0.461, 0.016, 59, 0, 0.0655), (0.281, 0.015, 59, 0, 0.0675), (0.469, 0.023, 59.1, 0, 0.171),
    (0.227, 0.03, 59, 0, 0.216), (0.0781, 0.042, 59, 0, 0.329), (0.125, 0.062, 59, 0, 0.225),
    (0.00781, 0.053, 58.7, 0, 0.283), (0.0234, 0.06, 59, 0, 0.475), (0.00781, 0.083, 58.3, 0, 0.301),
    (0, 0.066, 58.9, 0, None), (0, 0.074, 59, 0, None), (0, 0.072, 59, 0, None),
    (0, 0.067, 58.4, 0, None), (0, 0.078, 59.1, 0.0078, None), (0.00781, 0.099, 58.9, 0.0078, 0.503),
    (0, 0.074, 59.3, 0.023, None), (0, 0.098, 59.2, 0.016, None), (0, 0.057, 59.1, 0, None),
]
# At 1e-3 with short completions preferred: at last the policy writes nothing but the end of the sequence.
SHORTER = [
    (0.461, 0.016, 59, 0, 0.0), (0.328, 0.014, 59, 0, 0.0), (0.578, 0.018, 59.1, 0.0078, 0.134),
    (0.461, 0.022, 59, 0, 0.0), (0.555, 0.021, 59, 0, 0.0), (0.336, 0.038, 59, 0, 0.0),
    (0.266, 0.093, 59.8, 0.055, 0.382), (0.234, 0.093, 59.2, 0.023, 0.378), (0.0625, 0.13, 58.4, 0.0078, 0.574),
    (0.0156, 0.14, 57.2, 0.0078, 0.706), (0, 0.15, 49, 0.0078, 1.55), (0, 0.16, 34.2, 0, 2.33),
    (0, 0.16, 23.8, 0, 2.1), (0, 0.21, 15, 0, 3.81), (0, 0.077, 8.34, 0, 0.913),
    (0, 0.14, 8.66, 0, 1.39), (0, 0.27, 6.08, 0, 2), (0, 0.27, 4.91, 0, 3.17),
    (0, 0.3, 2.22, 0, 2.53), (0, 0.28, 1.35, 0, 0.898), (0, 0.031, 1.01, 0, 0.211),
    (0, 0.0016, 1, 0, 0.0), (0, 8.5e-05, 1, 0, 0.0), (0, 6.1e-05, 1, 0, 0.0),
    (0, 2.5e-05, 1, 0, 0.0), (0, 2e-05, 1, 0, 0.0), (0, 1.5e-05, 1, 0, 0.0),
]
# At 1e-3 with long completions preferred.
LONGER = [
    (0.461, 0.016, 59, 0, 0.0), (0.328, 0.014, 59, 0, 0.0), (0.578, 0.018, 59.1, 0.0078, 0.134),
    (0.445, 0.023, 59.1, 0.0078, 0.236), (0.508, 0.021, 59.1, 0.0078, 0.16), (0.25, 0.06, 59.7, 0.062, 0.298),
    (0.109, 0.13, 61.8, 0.2, 0.407), (0.0156, 0.26, 66, 0.52, 0.521), (0, 0.35, 71.4, 0.95, 0.269),
    (0, 0.32, 71.3, 0.95, 0.273), (0, 0.27, 72, 1, 0.0), (0, 0.24, 72, 1, 0.0),
    (0, 0.23, 72, 1, 0.0), (0, 0.18, 71, 0.98, 0.494), (0, 0.16, 71.4, 0.99, 0.282),
    (0, 0.11, 72, 1, 0.0), (0, 0.068, 72, 1, 0.0), (0, 0.031, 72, 1, 0.0),
]
# At 2e-4 with nothing but an entropy bonus.
RANDOM_TEXT = [
    (0.461, 0.016, 59, 0, 0.115), (0.328, 0.019, 59, 0, 0.162), (0.555, 0.031, 59, 0, 0.251),
    (0.375, 0.034, 59, 0, 0.368), (0.344, 0.038, 59, 0, 0.464), (0.211, 0.071, 58.7, 0, 0.592),
    (0.109, 0.072, 59, 0, 0.509), (0.102, 0.1, 59, 0.016, 0.599), (0.0547, 0.12, 59.3, 0.016, 0.744),
    (0.0156, 0.16, 59.5, 0.055, 0.957), (0, 0.23, 61.4, 0.16, 1.12), (0.00781, 0.32, 62.5, 0.23, 1.21),
    (0, 0.35, 63.5, 0.32, 1.27), (0, 0.43, 63.5, 0.34, 1.29), (0, 0.55, 65.9, 0.57, 1.49),
    (0, 0.55, 66.6, 0.59, 1.68), (0, 0.6, 67.1, 0.62, 1.73), (0, 0.66, 68.1, 0.72, 1.81),
]
# fmt: on

KEYS = ("reward", "neg_logprob", "completion_length", "truncated_share", "grad_norm")
PLAIN = {"reward": 0.5, "neg_logprob": 0.5, "completion_length": 100.0, "truncated_share": 0.02, "grad_norm": 0.3}


def records_of(rows, *, num_groups=16):
    return [
        {"stage_step": step, "num_groups": num_groups, **dict(zip(KEYS, row, strict=True))}
        for step, row in enumerate(rows, start=1)
    ]


def steps(**changes):
    """Ten steps of `PLAIN`, then ten with the changes."""
    return [{"stage_step": step, "num_groups": 64, **PLAIN, **(changes if step > 10 else {})} for step in range(1, 21)]


def reports(records, config=None):
    """What the detector says step by step: (step, sign, since)."""
    found = []
    for num_steps in range(1, len(records) + 1):
        collapse = detect_collapse(records[:num_steps], config or CollapseConfig())
        if collapse is not None:
            found.append((records[num_steps - 1]["stage_step"], collapse.sign, collapse.since))
    return found


@pytest.mark.parametrize("rows", [HEALTHY, NOISY], ids=["healthy", "noisy"])
def test_runs_that_learn_have_not_collapsed(rows):
    assert reports(records_of(rows)) == []


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (RUINED_AT_ONCE, [(10, "reward", 2)]),
        (WORSE_AND_WORSE, [(10, "reward", 6)]),
        (SHORTER, [(11, "reward", 7), (17, "length_short", 13), (26, "entropy_low", 22)]),
        (LONGER, [(10, "reward", 6)]),
        (RANDOM_TEXT, [(10, "reward", 6), (15, "truncated", 11)]),
    ],
    ids=["ruined_at_once", "worse_and_worse", "shorter", "longer", "random_text"],
)
def test_runs_that_collapse_are_named(rows, expected):
    assert reports(records_of(rows)) == expected


def test_signs_of_one_step_share_a_message():
    assert detect_collapse(records_of(RUINED_AT_ONCE[:10]), CollapseConfig()) == Collapse(
        sign="reward",
        message=(
            "the reward fell from 0.461 (step 1) to 0 (steps 2 to 10); the entropy rose from 0.016 (step 1) to 0.34 "
            "nats per token (steps 6 to 10), the reward went from 0.461 to 0"
        ),
        since=2,
    )


@pytest.mark.parametrize(
    ("changes", "step", "sign", "message"),
    [
        ({"reward": 0.1}, 14, "reward", "the reward fell from 0.5 (steps 1 to 5) to 0.18 (steps 10 to 14)"),
        (
            {"neg_logprob": 0.01},
            15,
            "entropy_low",
            "the entropy fell from 0.5 (step 1) to 0.01 nats per token (steps 11 to 15), "
            "the reward went from 0.5 to 0.5",
        ),
        (
            {"neg_logprob": 4.0},
            13,
            "entropy_high",
            "the entropy rose from 0.5 (step 1) to 2.6 nats per token (steps 9 to 13), the reward went from 0.5 to 0.5",
        ),
        (
            {"completion_length": 4.0},
            14,
            "length_short",
            "the completion length fell from 100 (step 1) to 23.2 tokens (steps 10 to 14), the reward went from 0.5 to "
            "0.5",
        ),
        (
            {"completion_length": 700.0},
            12,
            "length_long",
            "the completion length rose from 100 (step 1) to 340 tokens (steps 8 to 12), the reward went from 0.5 to "
            "0.5",
        ),
        (
            {"truncated_share": 1.0},
            12,
            "truncated",
            "the truncated share rose from 0.02 (step 1) to 0.412 of the completions (steps 8 to 12), the reward went "
            "from 0.5 to 0.5",
        ),
        (
            {"grad_norm": 30.0},
            13,
            "grad_norm",
            "the gradient's norm rose from 0.3 (median until step 8) to 30 (median of steps 9 to 13)",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)
def test_each_sign_is_reported_once_with_its_figures(changes, step, sign, message):
    records = steps(**changes)
    assert [report[:2] for report in reports(records)] == [(step, sign)]
    assert detect_collapse(records[:step], CollapseConfig()).message == message


@each(
    "changes",
    [
        {"neg_logprob": 0.0},
        {"neg_logprob": 4.0},
        {"completion_length": 4.0},
        {"completion_length": 700.0},
        {"truncated_share": 1.0},
    ],
)
@each("reward", [0.7, 1.0])
def test_a_risen_reward_pays_for_the_change(changes, reward):
    assert reports(steps(reward=reward, **changes)) == []


def test_a_solved_task_may_lose_its_entropy():
    records = [{**record, "reward": 0.97} for record in steps(neg_logprob=0.001, grad_norm=None)]
    assert reports(records) == []


def test_a_reward_that_falls_back_pays_no_longer():
    # .30, then .87, then .50: more than the beginning's, but most of the rise is lost while the entropy explodes.
    rewards = [0.30] * 5 + [0.87] * 10 + [0.50] * 10
    records = [
        {"stage_step": step, "num_groups": 16, "reward": reward, "neg_logprob": 0.02 if step <= 15 else 0.6}
        for step, reward in enumerate(rewards, start=1)
    ]
    assert reports(records) == [(19, "entropy_high", 15)]


def test_gradients_that_come_back_after_a_solved_stretch_are_no_explosion():
    norms = [0.2] * 6 + [1e-6] * 30 + [0.3] * 10
    assert reports([{"stage_step": step, "grad_norm": norm} for step, norm in enumerate(norms, start=1)]) == []


def test_gradients_that_grow_in_good_time_are_no_explosion():
    norms = [0.01] * 6 + [0.1] * 10 + [0.4] * 5
    assert reports([{"stage_step": step, "grad_norm": norm} for step, norm in enumerate(norms, start=1)]) == []


def test_one_large_gradient_is_no_explosion():
    norms = [0.2] * 12 + [500.0] + [0.2] * 12
    assert reports([{"stage_step": step, "grad_norm": norm} for step, norm in enumerate(norms, start=1)]) == []


@pytest.mark.parametrize(
    ("num_groups", "expected"), [(1, []), (64, [(18, "reward", 14)]), (None, [(17, "reward", 13)])]
)
def test_a_fall_that_chance_explains_is_not_named(num_groups, expected):
    rewards = [0.2, 0.1] * 5 + [0.15] * 3 + [0.05] * 7
    records = [
        {"stage_step": step, "reward": reward, "num_groups": num_groups} for step, reward in enumerate(rewards, start=1)
    ]
    assert reports(records) == expected


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5])
def test_noise_is_no_collapse(rate):
    generator = random.Random(0)
    rewards = [sum(generator.random() < rate for _ in range(16)) / 16 for _ in range(150)]
    records = [{"stage_step": step, "reward": reward, "num_groups": 16} for step, reward in enumerate(rewards, start=1)]
    assert reports(records) == []


@pytest.mark.parametrize(("entropy", "expected"), [(0.09, []), (0.11, ["entropy_high"])])
def test_a_nearly_deterministic_policy_has_not_exploded_at_a_few_hundredths(entropy, expected):
    records = [{**record, "neg_logprob": 0.002 if record["stage_step"] <= 10 else entropy} for record in steps()]
    assert [sign for _, sign, _ in reports(records)] == expected


@pytest.mark.parametrize(
    ("before", "now", "num_groups", "expected"),
    [
        (8.0, 1.0, 16, [(13, "reward", 9)]),
        (8.0, 1.0, 2, []),
        (0.4, -0.8, 16, [(13, "reward", 9)]),
        (0.0, -1.0, 16, []),
    ],
)
def test_rewards_of_another_scale(before, now, num_groups, expected):
    records = [
        {"stage_step": step, "reward": before if step <= 10 else now, "num_groups": num_groups} for step in range(1, 21)
    ]
    assert reports(records) == expected


def test_steps_without_a_figure_do_not_count():
    records = steps(grad_norm=30.0)
    gaps = [{**record, "grad_norm": math.inf if record["stage_step"] % 2 else None} for record in records]
    mixed = [step for pair in zip(records, gaps, strict=True) for step in pair]
    mixed = [{**record, "stage_step": step} for step, record in enumerate(mixed, start=1)]
    assert reports(mixed) == [(25, "grad_norm", 17)]
    assert reports(gaps) == []


def test_too_few_steps_show_nothing():
    rows = RUINED_AT_ONCE[:9]
    assert reports([]) == []
    assert reports(records_of(rows)) == []
    assert reports(records_of(rows), CollapseConfig(window=3)) == [(6, "reward", 2)]


def test_supervised_stages_have_only_their_gradient():
    records = [
        {"stage_step": step, "loss": 2.0, "grad_norm": 1.0 if step <= 10 else 90.0, "num_tokens": 900}
        for step in range(1, 21)
    ]
    assert reports(records) == [(13, "grad_norm", 9)]


def test_a_collapse_that_comes_and_goes_is_not_reported_at_every_return():
    # Two long steps in five lift the mean above a quarter, one does not.
    lengths = (
        [100.0] * 10 + [4.0] * 6 + [100.0, 4.0, 4.0, 4.0, 100.0, 4.0, 4.0, 4.0, 4.0] * 3 + [100.0] * 12 + [4.0] * 6
    )
    records = [{**PLAIN, "stage_step": step, "completion_length": length} for step, length in enumerate(lengths, 1)]
    assert [(step, sign) for step, sign, _ in reports(records)] == [(14, "length_short"), (59, "length_short")]


def test_inputs_are_left_as_they_are():
    records = steps(reward=0.0)
    copies = [dict(record) for record in records]
    detect_collapse(records, CollapseConfig())
    assert records == copies


REWARD = st.none() | st.floats(min_value=-10.0, max_value=10.0, allow_subnormal=False)
FIGURE = st.none() | st.floats(min_value=0.0, max_value=1e6, allow_subnormal=False)


@given(
    record=st.fixed_dictionaries({**dict.fromkeys((*KEYS, "entropy"), FIGURE), "reward": REWARD}),
    num_steps=st.integers(min_value=0, max_value=30),
    window=st.integers(min_value=1, max_value=6),
)
@example(record=dict.fromkeys((*KEYS, "entropy"), 0.0), num_steps=20, window=5)
def test_a_constant_run_never_collapses(record, num_steps, window):
    records = [{"stage_step": step, "num_groups": 16, **record} for step in range(1, num_steps + 1)]
    assert reports(records, CollapseConfig(window=window)) == []


@given(rewards=st.lists(st.floats(min_value=0.0, max_value=1.0), min_size=1, max_size=40).map(sorted))
def test_a_run_that_only_improves_never_collapses(rewards):
    # Entropy and gradient vanish with the room that is left, completions grow with what has been learned.
    records = [
        {
            "stage_step": step,
            "num_groups": 16,
            "reward": reward,
            "neg_logprob": 0.25 * (1.0 - reward),
            "completion_length": 100.0 + 900.0 * (reward - rewards[0]),
            "truncated_share": 0.9 * (reward - rewards[0]),
            "grad_norm": None if reward == 1.0 else 0.3 * (1.0 - reward),
        }
        for step, reward in enumerate(rewards, start=1)
    ]
    assert reports(records) == []
