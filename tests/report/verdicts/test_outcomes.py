"""Each verdict of a run has one sentence for each outcome; here they stand, to be read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from swerve.estimates import Estimate
from swerve.report.page import Verdict
from swerve.report.read import Paired, ReportInputs
from swerve.report.story import verdicts
from swerve.report.verdicts.matter import matter

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
         "Of 400 held-out problems, the same for both: +1.0 (-2.0 to +4.0) points; a true difference of 4.3 points "
         "would be seen eight times in ten."),
        (0.765, None, 400, "Not determined whether it is better: 46% right before, 76% after, greedily.",
         "Of 400 held-out problems, because the two were not compared problem by problem."),
        (0.6, (0.135, -0.2, 0.47), 12,
         "Twelve problems are too few to say whether it is better: 46% right before, 60% after, greedily.",
         "Of 12 held-out problems, the same for both: +14 (-20 to +47) points; a true difference of 48 points would "
         "be seen eight times in ten."),
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
         f"{WHOLE} By chance that would be so in 6; `dpo-8` was least sure at this place in 60; random changes of its "
         "weights, as large as training's, move it most there in 40."),
        (200, at_place("top", "first_wrong", 0.05, chance=(0.3, DOWN), entropy=(0.4, DOWN)),
         "The change is not at the mistakes: in 10 of 200 wrong answers `rl-80` changed the first wrong token most, "
         "fewer than by chance.",
         "5.0% (0.0 to 10.0) of 200 answers, by JS. By chance that would be so in 60; `dpo-8` was least sure at this "
         "place in 80."),
        (200, at_place(*TOP, chance=(0.03, UP), entropy=(0.905, BEHIND)),
         "In 169 of 200 wrong answers `rl-80` changed the first wrong token most. `dpo-8` was least sure at this "
         "place in 181, so this is no sign that it found the mistakes.",
         f"{WHOLE} By chance that would be so in 6; `dpo-8` was least sure at this place in 181."),
        (200, at_place(*TOP, chance=(0.03, UP), entropy=(0.845, NONE)),
         "In 169 of 200 wrong answers `rl-80` changed the first wrong token most. `dpo-8` was least sure at this "
         "place in 169, so this is no sign that it found the mistakes.",
         f"{WHOLE} By chance that would be so in 6; `dpo-8` was least sure at this place in 169. It differs from the "
         "reference's entropy by 0.0 (-5.0 to +5.0) points; a true difference of 7.1 points would be seen eight times "
         "in ten."),
        (200, at_place(*TOP, chance=(0.03, None), entropy=(0.3, None)),
         "In 169 of 200 wrong answers `rl-80` changed the first wrong token most. Whether that is more than without "
         "training is not determined.",
         f"{WHOLE} By chance that would be so in 6; `dpo-8` was least sure at this place in 60. Not determined "
         "against chance and the reference's entropy, because the difference has no interval."),
        (8, at_place("top", "first_wrong", 0.75, chance=(0.03, UP), entropy=(0.25, UP)),
         "Eight answers are too few to say where the change points: in 6 of 8 wrong answers `rl-80` changed the first "
         "wrong token most.",
         "75.0% (70.0 to 80.0) of 8 answers, by JS. By chance that would be so in none; `dpo-8` was least sure at "
         "this place in 2."),
    ],
)  # fmt: skip
def test_place_of_the_highest_divergence(inputs_of: Any, num: int, claim: Any, title: str, text: str) -> None:
    assert told(inputs_of(summary={**hits(num), **claim}), "place") == (title, text)


def test_place_of_a_sentence(inputs_of: Any) -> None:
    claim = at_place("top", "first_wrong_sentence", 0.5, chance=(0.2, UP), length=(0.45, NONE))
    assert told(inputs_of(summary={**hits(40, of_sentences=True), **claim}), "place")[0] == (
        "In 20 of 40 wrong answers `rl-80` changed a token of the first wrong sentence most. It is the longest "
        "sentence in 18, so this is no sign that it found the mistakes."
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
         "81% of the change lies on the fifth of the tokens where `dpo-8` is least sure. Of the entropy of "
         "`dpo-8` 95% lies there; random changes of its weights, as large as training's, would put 80% there, so this "
         "is no sign of what training sought."),
        (200, 0.81, {"chance": (0.2, None)},
         "81% of the change lies on the fifth of the tokens where `dpo-8` is least sure. Whether that is more than "
         "without training is not determined."),
        (10, 0.81, {"chance": (0.2, UP)},
         "Ten answers are too few to say where the change lies: 81% of it on the fifth of the tokens where `dpo-8` is "
         "least sure."),
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
    same: int = 0,
) -> Any:
    ends = dict(zip(("reference", "checkpoint", "alternative"), ({"success": one} for one in success), strict=True))
    known = {"effect": effect, "alternative_effect": other}
    spike = {
        "selection": "spike", "num_rollouts": num, "num_positions": num, "num_different": num - same,
        **ends,
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
         "to +5.0) points; a true difference of 7.1 points would be seen eight times in ten."),
        (swapped((0.668, 0.6, 0.73), NONE, (0.66, 0.6, 0.72), success=(0.002, 0.67, 0.001)),
         "Replacing one token repairs answers: 67% right, from 0.2%. Another token in its place does not (0.1%): it is "
         "this token that counts.",
         f"{AT} +66.8 (+60.0 to +73.0) points with the token of `rl-80`. Against another token in its place: +66.0 "
         "(+60.0 to +72.0) points."),
        (swapped((0.668, 0.6, 0.73), (0.3, 0.2, 0.4), (0.36, 0.3, 0.42), success=(0.002, 0.67, 0.3)),
         "Replacing one token repairs answers: 67% right, from 0.2%. Another token does less (30%).",
         f"{AT} +66.8 (+60.0 to +73.0) points with the token of `rl-80`. Against another token in its place: +36.0 "
         "(+30.0 to +42.0) points."),
        (swapped((0.4, 0.3, 0.5), success=(0.2, 0.6, None)),
         "Replacing one token repairs answers: 60% right, from 20%. Another token in its place was not tried.",
         f"{AT} +40 (+30 to +50) points with the token of `rl-80`."),
        (swapped((-0.4, -0.5, -0.3), (-0.1, -0.2, -0.05), (-0.3, -0.4, -0.2), success=(0.6, 0.2, 0.5)),
         "Replacing one token spoils answers: 20% right, from 60%. Another token does less (50%).",
         f"{AT} -40 (-50 to -30) points with the token of `rl-80`. Against another token in its place: -30 (-40 to "
         "-20) points."),
        (swapped((0.4, 0.3, 0.5), (-0.1, -0.2, -0.05), (0.5, 0.4, 0.6), success=(0.2, 0.6, 0.1)),
         "Replacing one token repairs answers: 60% right, from 20%. Another token in its place does the opposite "
         "(10%).",
         f"{AT} +40 (+30 to +50) points with the token of `rl-80`. Against another token in its place: +50 (+40 to "
         "+60) points."),
        (swapped((0.116, 0.045, 0.183), (-0.407, -0.491, -0.307), (0.74, 0.58, 0.84), success=(0.78, 0.89, 0.37),
                 same=58),
         "Replacing one token repairs answers: 89% right, from 78%. Another token in its place does the opposite "
         "(37%).",
         f"{AT} +11.6 (+4.5 to +18.3) points with the token of `rl-80`, which is the answer's own at 58 of them. At "
         "the other 42 spikes, against another token in its place: +74 (+58 to +84) points."),
        (swapped(NONE, success=(0.1, 0.1, None)),
         "Replacing the most changed token does nothing to be seen: 10% right with the answer's own, 10% with that of "
         "`rl-80`.",
         f"{AT} 0.0 (-5.0 to +5.0) points with the token of `rl-80`; a true difference of 7.1 points would be seen "
         "eight times in ten."),
        (swapped((0.2, -0.3, 0.7), success=(0.2, 0.4, None), num=5),
         "Five spikes are too few to say whether one token decides: 40% right with the token of `rl-80`, 20% without.",
         "At 5 spikes of answers of `dpo-8`, which writes 16 continuations after each token: +20 (-30 to +70) points "
         "with the token of `rl-80`; a true difference of 72 points would be seen eight times in ten."),
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


CHOSEN = "The tokens were chosen by JS, on 100 problems whatever their answers were"
MEASURE = "Sampled answers are another measure than the greedy ones, of which 46% and 99% are right."
RANDOM = f"As many at random do nothing to be seen: 44%. {MEASURE}"


@pytest.mark.parametrize(
    ("summary", "title", "text"),
    [
        (crossed((0.16, 0.1, 0.22), (0.32, 0.2, 0.44)),
         "Taking 1 token in 200 from `rl-80` lifts the sampled answers of `dpo-8` from 44% to 60% right, 32% of the "
         "way to 94%.",
         f"{CHOSEN}: 32% (20 to 44) of the difference. {RANDOM}"),
        (crossed((0.48, 0.4, 0.56), (0.96, 0.8, 1.12), ends=(0.44, 0.92, 0.94)),
         "Taking 1 token in 200 from `rl-80` lifts the sampled answers of `dpo-8` from 44% to 92% right, all the way "
         "to the 94% of `rl-80`, as far as can be seen.",
         f"{CHOSEN}: 96% (80 to 112) of the difference. {RANDOM}"),
        (crossed((-0.16, -0.22, -0.1), (0.4, 0.2, 0.6), ends=(0.6, 0.44, 0.2), gap=(-0.4, -0.5, -0.3)),
         "Taking 1 token in 200 from `rl-80` lowers the sampled answers of `dpo-8` from 60% to 44% right, 40% of the "
         "way to 20%.",
         f"{CHOSEN}: 40% (20 to 60) of the difference. As many at random do nothing to be seen: 60%. {MEASURE}"),
        (crossed((-0.16, -0.22, -0.1), (-0.32, -0.4, -0.2), ends=(0.44, 0.28, 0.94)),
         "Taking 1 token in 200 from `rl-80` lowers the sampled answers of `dpo-8` from 44% to 28% right, the other "
         "way from 94%.",
         f"{CHOSEN}: -32% (-40 to -20) of the difference. {RANDOM}"),
        (crossed(SAME, (0.02, -0.1, 0.1), ends=(0.44, 0.45, 0.94), at_random=(0.1, 0.05, 0.15)),
         "Taking 1 token in 200 from `rl-80` does nothing to be seen: 44% right before, 45% after; `rl-80` alone is "
         "right in 94%.",
         f"{CHOSEN}: +1.0 (-2.0 to +4.0) points; a true difference of 4.3 points would be seen eight times in ten. As "
         f"many at random do +10.0 (+5.0 to +15.0) points: 44%. {MEASURE}"),
        (crossed(None, (0.32, -0.2, 0.9)),
         "Taking 1 token in 200 from `rl-80` takes the sampled answers of `dpo-8` from 44% to 60% right; `rl-80` "
         "alone is right in 94%. Whether that is a difference is not determined.",
         f"{CHOSEN}: 32% (-20 to 90) of the difference. {RANDOM}"),
        (crossed((0.16, -0.1, 0.4), (0.32, -0.2, 0.9), num=10),
         "Ten problems are too few to say how few tokens are enough: taking 1 token in 200 from `rl-80` takes the "
         "sampled answers of `dpo-8` from 44% to 60% right; `rl-80` alone is right in 94%.",
         f"{CHOSEN.replace('100', '10')}: +16 (-10 to +40) points; a true difference of 36 points would be seen eight "
         f"times in ten. {RANDOM}"),
        (crossed(SAME, None, gap=(0.02, -0.05, 0.09), ends=(0.44, 0.44, 0.46)),
         "No difference to be seen that tokens could carry: by sampling, `dpo-8` is right in 44%, `rl-80` in 46%.",
         "On 100 problems whatever their answers were: +2.0 (-5.0 to +9.0) points; a true difference of 10 points "
         "would be seen eight times in ten."),
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
         f"{OF} Entropy 0.017 to 0.0099 nats a token: 0 (-0.0020 to +0.0020); a true difference of 0.003 nats would "
         f"be seen eight times in ten. Length -10.0 (-15.0 to -5.0). {UNREAD}"),
        ((-0.007, -0.008, -0.006), (1.0, -5.0, 7.0), Paired(), 400,
         "It hesitates less, and writes no more and no less, as far as can be seen.",
         f"{OF} Entropy 0.017 to 0.0099 nats a token: -0.0070 (-0.0080 to -0.0060). Length +1.0 (-5.0 to +7.0); a "
         f"true difference of 8.6 tokens would be seen eight times in ten. {UNREAD}"),
        ((-0.007, -0.1, 0.1), (1.0, -5.0, 7.0), Paired(), 6,
         "Six answers are too few to say whether it is surer, or writes more.",
         f"{OF.replace('400', '6')} Entropy 0.017 to 0.0099 nats a token: -0.01 (-0.10 to +0.10); a true "
         "difference of 0.1 nats would be seen eight times in ten. Length +1.0 (-5.0 to +7.0); a true difference of "
         f"8.6 tokens would be seen eight times in ten. {UNREAD}"),
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
        (22, "Do not count z-score spikes: one model run twice gives 23.0 in 1,000 tokens, this training 22.0."),
        (88, "There are more z-score spikes than by chance, but some are chance: one model run twice gives 23.0 in "
             "1,000 tokens, this training 88.0."),
        (None, "Do not count z-score spikes: one model run twice gives 23.0 in 1,000 tokens."),
    ],
)  # fmt: skip
def test_whether_spikes_can_be_counted(inputs_of: Any, num: int | None, title: str) -> None:
    found, text = told(inputs_of(evaluations=(), summary=with_null((23.0, 21.0, 25.0), num)), "spikes-counted")
    assert found == title
    read = "over 400 tokens that one model read twice, where every spike is false"
    assert text == f"By the z-score rule, {read}: 23.0 (21.0 to 25.0)."


# How sure


@pytest.mark.parametrize(
    ("after", "difference", "num", "title"),
    [
        (0.765, UP, 400, "Sure that it is better, by +24.0 to +36.0 points."),
        (0.165, DOWN, 400, "Sure that it is worse, by -36.0 to -24.0 points."),
        (0.475, SAME, 400, "Not of any change: it may be anything from -2.0 to +4.0 points."),
        (0.765, None, 400, "Not determined, because the two were not compared problem by problem."),
        (0.6, (0.135, -0.2, 0.47), 12, "Twelve problems are too few to be sure of anything."),
    ],
)
def test_how_sure_the_headline_is(inputs_of: Any, after: float, difference: Any, num: int, title: str) -> None:
    inputs = compared(inputs_of, after, difference, num=num)
    assert told(inputs, "sure")[0] == f"How sure? {title}"


def test_how_many_intervals_miss_is_said_beside_it(inputs_of: Any) -> None:
    summary = far(0.05, **with_null((23.0, 21.0, 25.0), 22))
    title, text = told(inputs_of(evaluations=(), summary=summary), "chance")
    assert title.endswith(" not hold the true value, and nobody can tell which.")
    assert text == "In simulations 2.5 to 4.0% of such intervals missed it."


def far(mean: float, **options: Any) -> dict[str, Any]:
    """Return the probe of an import, two models so many nats a token apart, and one model run twice 0.001."""
    value = {"mean": mean, "low": 0.9 * mean, "high": 1.1 * mean}
    floor = {"js": {"mean": 0.001, "max": 0.1}}
    known = {"selection": "imported", "num_rollouts": 40, "divergences": [{"checkpoint": "rl-80", "js": value}]}
    return {**known, "noise_floor": floor, **options}


@pytest.mark.parametrize(
    ("summary", "title"),
    [
        (far(0.05), "Sure that the two models differ."),
        (far(0.001), "Not that the two models differ at all: one model run twice differs as much."),
        (far(0.05, num_rollouts=10), "Ten answers are too few to say how far the two models are apart."),
    ],
)  # fmt: skip
def test_how_sure_the_headline_of_an_import_is(inputs_of: Any, summary: Any, title: str) -> None:
    found, text = told(inputs_of(evaluations=(), summary=summary), "sure")
    assert found == f"How sure? {title}"
    assert text.endswith("nats a token at 95%, where one model run twice gives 0.0010.")


# Does it matter?


@pytest.mark.parametrize(
    ("after", "difference", "num", "said"),
    [
        (0.765, UP, 400, "Yes: 30 more of 100 answers are right (24 to 36)."),
        (0.165, DOWN, 400, "Yes, for the worse: 30 fewer of 100 answers are right (24 to 36)."),
        (0.475, SAME, 400, "Nothing to be seen: +1.0 (-2.0 to +4.0) points; a true difference of 4.3 points would be "
                           "seen eight times in ten."),
        (0.765, None, 400, "Not determined, because the two were not compared problem by problem."),
        (0.6, (0.135, -0.2, 0.47), 12, "Twelve problems are too few to say."),
    ],
)  # fmt: skip
def test_whether_training_matters(inputs_of: Any, after: float, difference: Any, num: int, said: str) -> None:
    found = matter(compared(inputs_of, after, difference, num=num))
    assert found is not None
    assert found.replace("\N{MINUS SIGN}", "-") == f"**Does it matter?** {said}"


def first_choices(share: float, **options: Any) -> dict[str, Any]:
    changed = interval(share, share / 2, 2 * share)
    entropy = {"means": [{"checkpoint": "rl-80", "share_argmax_changed": changed}], "forking": []}
    populations = [{"population": "imported_wrong", "num_rollouts": 40, "num_tokens": 1200}]
    known = {"selection": "imported", "population": "imported_wrong", "num_rollouts": 40}
    return {**known, "entropy": entropy, "populations": populations, **options}


PLACES = "At 60 of 1,200 places (5.0%) `rl-80` would write another token than `dpo-8`."


@pytest.mark.parametrize(
    ("summary", "said"),
    [
        (swapped((0.668, 0.6, 0.73)), "Forcing the token that differs most repairs answers."),
        (swapped((-0.668, -0.73, -0.6)), "Forcing the token that differs most spoils answers."),
        (swapped(NONE), "Forcing the token that differs most changes no answer, as far as can be seen."),
        (swapped((0.2, -0.3, 0.7), num=5), "Five forced tokens are too few to say whether that changes an answer."),
        (swapped(None), "Whether that changes an answer is not determined, because both choose the same token at "
                        "every spike."),
        ({"causal": None}, "Whether that changes an answer was not tested."),
    ],
)  # fmt: skip
def test_whether_the_difference_of_an_import_matters(inputs_of: Any, summary: Any, said: str) -> None:
    found = matter(inputs_of(evaluations=(), summary=first_choices(0.05, **summary)))
    assert found == f"**Does it matter?** {PLACES} {said}"
