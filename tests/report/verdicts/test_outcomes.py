"""Each verdict of a run has one sentence for each outcome; here they stand, to be read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from swerve.estimates import Estimate
from swerve.report.page import Verdict
from swerve.report.read import Paired, ReportInputs
from swerve.report.story import verdicts

UP, SAME, DOWN = (0.30, 0.24, 0.36), (0.01, -0.02, 0.04), (-0.30, -0.36, -0.24)


def interval(mean: float, low: float, high: float) -> dict[str, float]:
    return {"mean": mean, "low": low, "high": high}


def verdict(inputs: ReportInputs, id: str) -> Verdict:
    return next(each for each in verdicts(inputs) if each.id == id)


def told(inputs: ReportInputs, id: str) -> tuple[str, str]:
    """Return title and text, with an ordinary minus sign."""
    found = verdict(inputs, id)
    title, text = (text.replace("\N{MINUS SIGN}", "-") for text in (found.title, found.text))
    assert not {"nan", "None", "not measured", "inf"} & {*title.split(), *text.split()}
    return title, text


# Accuracy


def compared(inputs_of: Any, after: float, difference: tuple[float, float, float] | None, *, num: int = 400) -> Any:
    before, last = inputs_of(summary=None).evaluations
    ends = []
    for each, mean in ((before, 0.465), (last, after)):
        greedy = each.greedy.model_copy(
            update={"num_problems": num, "accuracy": Estimate(mean=mean, low=mean - 0.05, high=min(1.0, mean + 0.05))}
        )
        ends.append(each.model_copy(update={"greedy": greedy}))
    change = None if difference is None else Estimate(**interval(*difference))
    return replace(inputs_of(summary=None), evaluations=tuple(ends), greedy_change=change)


@pytest.mark.parametrize(
    ("after", "difference", "num", "title", "text"),
    [
        (0.765, UP, 400, "Better at the task: 46% to 76% right, greedily.",
         "Of 400 held-out problems, the same for both: +30.0 (+24.0 to +36.0) points."),
        (0.165, DOWN, 400, "Worse at the task: 46% to 16% right, greedily.",
         "Of 400 held-out problems, the same for both: -30.0 (-36.0 to -24.0) points."),
        (0.475, SAME, 400, "No change of accuracy to be seen: 46% right before, 48% after, greedily.",
         "Of 400 held-out problems, the same for both: +1.0 (-2.0 to +4.0) points. Eight of ten such comparisons would "
         "show a difference of 4.3 points."),
        (0.765, None, 400, "Not determined whether it is better: 46% right before, 76% after, greedily.",
         "Of 400 held-out problems, because the two were not compared problem by problem."),
        (0.6, (0.135, -0.2, 0.47), 12,
         "Too few problems to say whether it is better: 46% right before, 60% after, greedily.",
         "Of 12 held-out problems, the same for both: +14 (-20 to +47) points. Eight of ten such comparisons would "
         "show a difference of 48 points."),
        (0.9997, (0.53, 0.48, 0.58), 9000, "Better at the task: 46% to 99.97% right, greedily.",
         "Of 9,000 held-out problems, the same for both: +53.0 (+48.0 to +58.0) points."),
    ],
)  # fmt: skip
def test_accuracy(
    inputs_of: Any, after: float, difference: tuple[float, float, float] | None, num: int, title: str, text: str
) -> None:
    inputs = compared(inputs_of, after, difference, num=num)
    assert told(inputs, "accuracy") == (title, text)
    assert verdict(inputs, "accuracy").num == num


def test_accuracy_of_one_checkpoint_is_compared_with_nothing(inputs_of: Any) -> None:
    inputs = replace(inputs_of(summary=None), evaluations=inputs_of(summary=None).evaluations[1:])
    assert told(inputs, "accuracy") == (
        "Not compared: 99% right, greedily.",
        "Of 400 held-out problems. No other checkpoint was evaluated.",
    )


# Place


def at_place(figure: str, of: str, share: float, **nulls: tuple[float, tuple[float, float, float] | None]) -> Any:
    entries = [
        {"null": name, "value": value, "difference": None if apart is None else interval(*apart)}
        for name, (value, apart) in nulls.items()
    ]
    claim = {"figure": figure, "of": of, "estimate": interval(share, share - 0.05, min(1, share + 0.05))}
    return {"claims": [{**claim, "nulls": entries}]}


def hits(num: int, *, of_sentences: bool = False) -> Any:
    name = "num_sentence_rollouts" if of_sentences else "num_rollouts"
    counts = {"num_rollouts": 0, "num_sentence_rollouts": 0, name: num}
    share = interval(0.9, 0.85, 0.94)
    return {"spikes": [{"checkpoint": "rl-80", "divergence": "js", "top_on_wrong": share, "top_on_first_wrong": share,
                        "chance_wrong": 0.03, "chance_first_wrong": 0.026, **counts}]}  # fmt: skip


NONE = (0.0, -0.05, 0.05)
TOP = ("top", "first_wrong", 0.845)
BEHIND = (-0.06, -0.11, -0.01)
WHOLE = "84.5% (79.5 to 89.5) of 200 answers, by JS."


@pytest.mark.parametrize(
    ("num", "claim", "title", "text"),
    [
        (200, at_place(*TOP, chance=(0.03, UP), entropy=(0.3, UP), noise=(0.2, UP)),
         "The change points at the mistakes: in 169 of 200 wrong answers `rl-80` changed the first wrong token most.",
         f"{WHOLE} By chance it would be in 6; `dpo-8` was least sure there in 60; random changes of its weights that "
         "move it as far have it there in 40."),
        (200, at_place("top", "first_wrong", 0.05, chance=(0.3, DOWN), entropy=(0.4, DOWN)),
         "The change is not at the mistakes: in 10 of 200 wrong answers `rl-80` changed the first wrong token most, "
         "fewer than by chance.",
         "5.0% (0.0 to 10.0) of 200 answers, by JS. By chance it would be in 60; `dpo-8` was least sure there in 80."),
        (200, at_place(*TOP, chance=(0.03, UP), entropy=(0.905, BEHIND)),
         "In 169 of 200 wrong answers `rl-80` changed the first wrong token most. `dpo-8` was least sure there in 181: "
         "no sign that it found the mistakes.",
         f"{WHOLE} By chance it would be in 6; `dpo-8` was least sure there in 181."),
        (200, at_place(*TOP, chance=(0.03, UP), entropy=(0.845, NONE)),
         "In 169 of 200 wrong answers `rl-80` changed the first wrong token most. `dpo-8` was least sure there in 169: "
         "no sign that it found the mistakes.",
         f"{WHOLE} By chance it would be in 6; `dpo-8` was least sure there in 169. Eight of ten such comparisons "
         "would show a difference of 7.1 points."),
        (200, at_place(*TOP, chance=(0.03, None), entropy=(0.3, None)),
         "In 169 of 200 wrong answers `rl-80` changed the first wrong token most. Whether that is more than without "
         "training is not determined.",
         f"{WHOLE} By chance it would be in 6; `dpo-8` was least sure there in 60. Not determined against chance and "
         "the reference's entropy, because the difference has no interval."),
        (8, at_place("top", "first_wrong", 0.75, chance=(0.03, UP), entropy=(0.25, UP)),
         "In 6 of 8 wrong answers `rl-80` changed the first wrong token most. So few decide nothing.",
         "75.0% (70.0 to 80.0) of 8 answers, by JS. By chance it would be in 0; `dpo-8` was least sure there in 2."),
    ],
)  # fmt: skip
def test_place_of_the_highest_divergence(inputs_of: Any, num: int, claim: Any, title: str, text: str) -> None:
    assert told(inputs_of(summary={**hits(num), **claim}), "place") == (title, text)


def test_place_of_a_sentence(inputs_of: Any) -> None:
    claim = at_place("top", "first_wrong_sentence", 0.5, chance=(0.2, UP), length=(0.45, NONE))
    assert told(inputs_of(summary={**hits(40, of_sentences=True), **claim}), "place")[0] == (
        "In 20 of 40 wrong answers `rl-80` changed a token of the first wrong sentence most. That is the longest "
        "sentence in 18: no sign that it found the mistakes."
    )


@pytest.mark.parametrize(
    ("num", "share", "nulls", "title"),
    [
        (200, 0.997, {"chance": (0.2, UP), "entropy": (0.95, UP), "noise": (0.69, UP)},
         "The change lies where `dpo-8` is unsure: 99.7% of it on a fifth of the tokens."),
        (200, 0.1, {"chance": (0.2, DOWN), "entropy": (0.95, DOWN)},
         "The change avoids what `dpo-8` is unsure of: 10% of it on the fifth of the tokens where `dpo-8` is least "
         "sure."),
        (200, 0.81, {"chance": (0.2, UP), "entropy": (0.95, DOWN), "noise": (0.8, NONE)},
         "81% of the change lies on the fifth of the tokens where `dpo-8` is least sure. Of its own entropy 95% lies "
         "there; of random changes of its weights that move it as far, 80%: no sign of what training sought."),
        (200, 0.81, {"chance": (0.2, None)},
         "81% of the change lies on the fifth of the tokens where `dpo-8` is least sure. Whether that is more than "
         "without training is not determined."),
        (10, 0.81, {"chance": (0.2, UP)},
         "81% of the change lies on the fifth of the tokens where `dpo-8` is least sure. So few answers decide "
         "nothing."),
    ],
)  # fmt: skip
def test_place_where_the_reference_is_unsure(inputs_of: Any, num: int, share: float, nulls: Any, title: str) -> None:
    summary = {"num_rollouts": num, **at_place("share", "uncertain", share, **nulls)}
    assert told(inputs_of(summary=summary), "place")[0] == title


# Cause


def swapped(
    effect: tuple[float, float, float] | None,
    other: tuple[float, float, float] | None = None,
    more: tuple[float, float, float] | None = None,
    *,
    success: tuple[float, float, float | None] = (0.002, 0.67, 0.62),
    num: int = 100,
) -> Any:
    ends = dict(zip(("reference", "checkpoint", "alternative"), ({"success": one} for one in success), strict=True))
    known = {"effect": effect, "alternative_effect": other}
    spike = {
        "selection": "spike", "num_rollouts": num, "num_positions": num, "num_different": num, **ends,
        **{name: value and interval(*value) for name, value in known.items()},
        "different_tokens": {"checkpoint_minus_alternative": more and interval(*more)},
    }  # fmt: skip
    return {"causal": {"num_continuations": 16, "selections": [spike], "policies": []}}


AT = "At 100 spikes of answers of `dpo-8`, which writes 16 continuations after each token:"


@pytest.mark.parametrize(
    ("summary", "title", "text"),
    [
        (swapped((0.668, 0.6, 0.73), (0.62, 0.5, 0.7), NONE),
         "Replacing one token repairs answers: 67% right, from 0.2%. So does another token (62%): what counts is "
         "leaving the answer's own.",
         f"{AT} +66.8 (+60.0 to +73.0) points with the token of `rl-80`. Against another token in its place: 0.0 (-5.0 "
         "to +5.0). Eight of ten such comparisons would show a difference of 7.1 points."),
        (swapped((0.668, 0.6, 0.73), NONE, (0.66, 0.6, 0.72), success=(0.002, 0.67, 0.001)),
         "Replacing one token repairs answers: 67% right, from 0.2%. Another token in its place does not (0.1%): it is "
         "this token that counts.",
         f"{AT} +66.8 (+60.0 to +73.0) points with the token of `rl-80`. Against another token in its place: +66.0 "
         "(+60.0 to +72.0)."),
        (swapped((0.668, 0.6, 0.73), (0.3, 0.2, 0.4), (0.36, 0.3, 0.42), success=(0.002, 0.67, 0.3)),
         "Replacing one token repairs answers: 67% right, from 0.2%. Another token does less (30%).",
         f"{AT} +66.8 (+60.0 to +73.0) points with the token of `rl-80`. Against another token in its place: +36.0 "
         "(+30.0 to +42.0)."),
        (swapped((0.4, 0.3, 0.5), success=(0.2, 0.6, None)),
         "Replacing one token repairs answers: 60% right, from 20%. Another token in its place was not tried.",
         f"{AT} +40 (+30 to +50) points with the token of `rl-80`."),
        (swapped((-0.4, -0.5, -0.3), (-0.1, -0.2, -0.05), (-0.3, -0.4, -0.2), success=(0.6, 0.2, 0.5)),
         "Replacing one token spoils answers: 20% right, from 60%. Another token does less (50%).",
         f"{AT} -40 (-50 to -30) points with the token of `rl-80`. Against another token in its place: -30 (-40 to "
         "-20)."),
        (swapped((0.4, 0.3, 0.5), (-0.1, -0.2, -0.05), (0.5, 0.4, 0.6), success=(0.2, 0.6, 0.1)),
         "Replacing one token repairs answers: 60% right, from 20%. Another token in its place does the opposite "
         "(10%).",
         f"{AT} +40 (+30 to +50) points with the token of `rl-80`. Against another token in its place: +50 (+40 to "
         "+60)."),
        (swapped(NONE, success=(0.1, 0.1, None)),
         "Replacing the most changed token does nothing to be seen: 10% right with the answer's own, 10% with that of "
         "`rl-80`.",
         f"{AT} 0.0 (-5.0 to +5.0) points with the token of `rl-80`. Eight of ten such comparisons would show a "
         "difference of 7.1 points."),
        (swapped((0.2, -0.3, 0.7), success=(0.2, 0.4, None), num=5),
         "Too few spikes to say whether one token decides: 40% right with the token of `rl-80`, 20% without.",
         "At 5 spikes of answers of `dpo-8`, which writes 16 continuations after each token: +20 (-30 to +70) points "
         "with the token of `rl-80`. Eight of ten such comparisons would show a difference of 72 points."),
        (swapped(None), "Not determined: whether the changed token causes the answer.",
         "Because both models choose the same token at every spike, so that nothing was replaced."),
        ({"causal": None}, "Not tested: whether the changed token causes the answer.",
         "No token was forced at a spike: run swerve probe with probe.causal.max_rollouts above 0."),
        ({"causal": None, "selection": "imported", "notes": ["no response has a gold answer, so there are no swaps"]},
         "Not tested: whether the changed token causes the answer.",
         "No token was forced at a spike: it needs gold answers, and a grader by --task KIND."),
        ({"causal": None, "num_rollouts": 0}, "Not tested: whether the changed token causes the answer.",
         "No token was forced at a spike: there is no rollout to compare."),
    ],
)  # fmt: skip
def test_cause(inputs_of: Any, summary: Any, title: str, text: str) -> None:
    assert told(inputs_of(summary=summary), "cause") == (title, text)


# Dose


def crossed(
    gain: tuple[float, float, float] | None,
    recovered: tuple[float, float, float] | None,
    *,
    ends: tuple[float, float, float] = (0.44, 0.6, 0.94),
    gap: tuple[float, float, float] | None = (0.5, 0.4, 0.6),
    at_random: tuple[float, float, float] = NONE,
    num: int = 100,
) -> Any:
    base, reached, other = (interval(mean, mean - 0.05, mean + 0.05) for mean in ends)

    def point(accuracy: Any, gain: Any, recovered: Any) -> Any:
        values = {"gain": gain and interval(*gain), "recovered": recovered and interval(*recovered)}
        return {"budget": 0.005, "share_swapped": 0.005, "accuracy": accuracy, **values}

    entry = {
        "direction": "checkpoint_into_reference", "base": base, "other": other, "gap": gap and interval(*gap),
        "selectors": [{"selector": "js", "points": [point(reached, gain, recovered)]},
                      {"selector": "random", "points": [point(base, at_random, NONE)]}],
    }  # fmt: skip
    return {"cross_sampling": {"num_problems": num, "directions": [entry]}}


CHOSEN = "Chosen by JS, on 100 problems whatever their answers were, `dpo-8` sampling"
RANDOM = "As many at random do nothing to be seen: 44%."


@pytest.mark.parametrize(
    ("summary", "title", "text"),
    [
        (crossed((0.16, 0.1, 0.22), (0.32, 0.2, 0.44)),
         "Taking 1 token in 200 from `rl-80` lifts `dpo-8` from 44% to 60% right, 32% of the way to 94%.",
         f"{CHOSEN}: 32% (20 to 44) of the difference. {RANDOM}"),
        (crossed((0.48, 0.4, 0.56), (0.96, 0.8, 1.12), ends=(0.44, 0.92, 0.94)),
         "Taking 1 token in 200 from `rl-80` lifts `dpo-8` from 44% to 92% right, all the way to the 94% of `rl-80`, "
         "as far as can be seen.",
         f"{CHOSEN}: 96% (80 to 112) of the difference. {RANDOM}"),
        (crossed((-0.16, -0.22, -0.1), (0.4, 0.2, 0.6), ends=(0.6, 0.44, 0.2), gap=(-0.4, -0.5, -0.3)),
         "Taking 1 token in 200 from `rl-80` lowers `dpo-8` from 60% to 44% right, 40% of the way to 20%.",
         f"{CHOSEN}: 40% (20 to 60) of the difference. As many at random do nothing to be seen: 60%."),
        (crossed((-0.16, -0.22, -0.1), (-0.32, -0.4, -0.2), ends=(0.44, 0.28, 0.94)),
         "Taking 1 token in 200 from `rl-80` lowers `dpo-8` from 44% to 28% right, the other way from 94%.",
         f"{CHOSEN}: -32% (-40 to -20) of the difference. {RANDOM}"),
        (crossed(SAME, (0.02, -0.1, 0.1), ends=(0.44, 0.45, 0.94), at_random=(0.1, 0.05, 0.15)),
         "Taking 1 token in 200 from `rl-80` does nothing to be seen: 44% right before, 45% after; `rl-80` alone is "
         "right in 94%.",
         f"{CHOSEN}. Eight of ten such comparisons would show a difference of 4.3 points. As many at random do +10.0 "
         "(+5.0 to +15.0) points: 44%."),
        (crossed(None, (0.32, -0.2, 0.9)),
         "Taking 1 token in 200 from `rl-80` takes `dpo-8` from 44% to 60% right; `rl-80` alone is right in 94%. "
         "Whether that is a difference is not determined.",
         f"{CHOSEN}: 32% (-20 to 90) of the difference. {RANDOM}"),
        (crossed((0.16, -0.1, 0.4), (0.32, -0.2, 0.9), num=10),
         "Taking 1 token in 200 from `rl-80` takes `dpo-8` from 44% to 60% right; `rl-80` alone is right in 94%. So "
         "few problems decide nothing.",
         f"{CHOSEN.replace('100', '10')}. Eight of ten such comparisons would show a difference of 36 points. "
         f"{RANDOM}"),
        (crossed(SAME, None, gap=(0.02, -0.05, 0.09), ends=(0.44, 0.44, 0.46)),
         "No difference to be seen that tokens could carry: by sampling, `dpo-8` is right in 44%, `rl-80` in 46%.",
         "+2.0 (-5.0 to +9.0) points, on 100 problems whatever their answers were. Eight of ten such comparisons would "
         "show a difference of 10 points."),
        (crossed(SAME, None), "Not determined: how few tokens carry the difference.",
         "Because no token was taken, or one of the two was not sampled alone, on 100 problems."),
    ],
)  # fmt: skip
def test_dose(inputs_of: Any, summary: Any, title: str, text: str) -> None:
    assert told(inputs_of(summary=summary), "dose") == (title, text)


def test_no_dose_is_told_that_was_not_tried(inputs_of: Any) -> None:
    assert "dose" not in [each.id for each in verdicts(inputs_of(summary={"cross_sampling": None}))]


# Manner


def changed(inputs_of: Any, entropy: Any, length: Any, tokens: Paired = Paired(), *, num: int = 400) -> ReportInputs:  # noqa: B008
    ends = []
    for each, mean in zip(inputs_of(summary=None).evaluations, (0.017, 0.0099), strict=True):
        greedy = {"num_problems": num, "entropy": Estimate(mean=mean, low=mean, high=mean)}
        ends.append(each.model_copy(update={"greedy": each.greedy.model_copy(update=greedy)}))
    changes = {"entropy_change": Estimate(**interval(*entropy)), "length_change": Estimate(**interval(*length))}
    return replace(inputs_of(summary=None), evaluations=tuple(ends), paired={"tokens": tokens}, **changes)


def lengths(*values: tuple[float, float]) -> Paired:
    before, after = zip(*values, strict=True)
    return Paired(problems=tuple(f"p{at}" for at in range(len(values))), before=before, after=after)


OF = "Of 400 greedy answers, to the same problems before and after."
UNREAD = "How many could not be read is not determined, because it was not recorded."


@pytest.mark.parametrize(
    ("entropy", "length", "tokens", "num", "title", "text"),
    [
        ((-0.007, -0.008, -0.006), (0.0, 0.0, 0.0), lengths((59, 59), (59, 59)), 400,
         "It hesitates less, and all its answers have 59 tokens.",
         f"{OF} Entropy 0.017 to 0.0099 nats a token: -0.0070 (-0.0080 to -0.0060). {UNREAD}"),
        ((0.007, 0.006, 0.008), (10.0, 5.0, 15.0), lengths((50, 60), (54, 64)), 400,
         "It hesitates more, and writes more.",
         f"{OF} Entropy 0.017 to 0.0099 nats a token: +0.0070 (+0.0060 to +0.0080). Length 52.0 to 62.0 tokens: +10.0 "
         f"(+5.0 to +15.0). {UNREAD}"),
        ((0.0, -0.002, 0.002), (-10.0, -15.0, -5.0), Paired(), 400,
         "It hesitates as much as before, as far as can be seen, and writes less.",
         f"{OF} Entropy 0.017 to 0.0099 nats a token: 0 (-0.0020 to +0.0020). Eight of ten such comparisons would show "
         f"a difference of 0.003 nats. Length -10.0 (-15.0 to -5.0). {UNREAD}"),
        ((-0.007, -0.008, -0.006), (1.0, -5.0, 7.0), Paired(), 400,
         "It hesitates less, and writes no more and no less, as far as can be seen.",
         f"{OF} Entropy 0.017 to 0.0099 nats a token: -0.0070 (-0.0080 to -0.0060). Length +1.0 (-5.0 to +7.0). "
         f"{UNREAD}"),
        ((-0.007, -0.1, 0.1), (1.0, -5.0, 7.0), Paired(), 6,
         "Too few answers to say whether it is surer, or writes more.",
         f"{OF.replace('400', '6')} Entropy 0.017 to 0.0099 nats a token: -0.01 (-0.10 to +0.10). Eight of ten such "
         f"comparisons would show a difference of 0.1 nats. Length +1.0 (-5.0 to +7.0). {UNREAD}"),
    ],
)  # fmt: skip
def test_manner(inputs_of: Any, entropy: Any, length: Any, tokens: Paired, num: int, title: str, text: str) -> None:
    assert told(changed(inputs_of, entropy, length, tokens, num=num), "manner") == (title, text)


# Chance


def with_null(rate: tuple[float, float, float], num_spikes: int | None) -> Any:
    null = {
        "num_tokens": 400,
        "false_discoveries": {"js": {"zscore": {"per_1000_tokens": interval(*rate), "num_tokens": 400}}},
    }
    spikes = {"checkpoint": "rl-80", "divergence": "js", "method": "zscore", "num_spikes": num_spikes}
    recovery = {"num_tokens": 1000, "spikes": [spikes], "selectors": []}
    return {"null": null, "recovery": None if num_spikes is None else recovery}


@pytest.mark.parametrize(
    ("num", "title"),
    [
        (22, "How sure? Do not count spikes: one model run twice gives 23.0 in 1,000 tokens, this training 22.0."),
        (88, "How sure? There are more spikes than by chance, but some are chance: one model run twice gives 23.0 in "
             "1,000 tokens, this training 88.0."),
        (None, "How sure? Do not count spikes: a model run twice has them, too."),
    ],
)  # fmt: skip
def test_how_sure(inputs_of: Any, num: int | None, title: str) -> None:
    found, text = told(inputs_of(evaluations=(), summary=with_null((23.0, 21.0, 25.0), num)), "sure")
    assert found == title
    assert "intervals here miss" in text
    assert "23.0 (21.0 to 25.0) of 1,000 tokens are spikes between two runs of one model (400 tokens)" in text


def test_how_sure_without_spikes(inputs_of: Any) -> None:
    assert told(inputs_of(evaluations=()), "sure")[0] == "How sure? Some intervals here miss."
