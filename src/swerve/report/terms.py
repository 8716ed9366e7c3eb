"""What the words of a page mean."""

from __future__ import annotations

TERMS = (
    (
        "Divergence",
        "P is the checkpoint, Q the reference. Both are given the same text, and at each position their distributions "
        "over the whole vocabulary are compared at temperature 1. Forward KL is KL(P‖Q) = Σ P log(P/Q), reverse KL is "
        "KL(Q‖P), JS is the mean of KL(P‖M) and KL(Q‖M) with M = (P+Q)/2, at most ln 2 ≈ 0.693. All are in nats. A "
        "position names the token it predicts. That of a checkpoint that has hardly moved is mostly noise.",
    ),
    (
        "Spike",
        "A position whose divergence stands out; of spikes close together the highest is kept. z-score and adaptive "
        "compare with the mean and standard deviation of the rollout or of a window in it and have no scale: a "
        "divergence a thousand times smaller has the same spikes, and so has noise. Percentile pools all values of the "
        "run, absolute is a number of nats, calibrated is what exceeds a null pair. Compare checkpoints by their mean "
        "divergence, not by their number of spikes.",
    ),
    (
        "Null",
        "What a figure would be without training. Chance: every position alike. The reference's entropy: its own "
        "uncertainty in the place of the divergence. Matched noise: the reference with random changes of its weights "
        "that move it as far. A figure says something of training where it is above all of them, or below all.",
    ),
    (
        "Selection",
        "Which rollouts are compared, and how they were chosen, stands under “Which rollouts?”. Where they were chosen "
        "by the completions that are described, some would change sides on another draw, so the figures describe this "
        "selection and lean towards a large change. A divergence on text of the reference is another thing than one on "
        "text of the checkpoint.",
    ),
    (
        "Intervals and tests",
        "The unit is the problem: intervals are over problems (t, Clopper and Pearson, jackknife), tests compare "
        "problems, and p-values are adjusted over their family (Benjamini and Hochberg). The signed-rank test is not "
        "one of the mean and can contradict its interval. Two figures of the same problems are compared by the "
        "interval of their paired difference; where it holds 0 they are not distinguishable.",
    ),
    (
        "Wrong step",
        "A program checks every step of a trace, given the steps before it; a mistake that is carried on consistently "
        "is marked once. A right answer can follow from a wrong trace. A file may label a sentence, or a step, as the "
        "first wrong one; then no token is known to be wrong. It is asked whether the highest divergence is in that "
        "sentence, and sentences are ranked, each by the highest value of its tokens.",
    ),
    (
        "Swap",
        "The text up to the position is kept, one token is forced, and a model continues. The effect is the paired "
        "difference in the fraction of right answers between the forced token and the rollout's own. Controls do the "
        "same at a position matched in category, third and entropy, and at a random one; another token, which neither "
        "model chose, tells whether this token matters or any other does.",
    ),
    (
        "Cross-sampling",
        "One model writes and takes the other's token wherever a score of the position is above a threshold, set so "
        "that about the stated fraction of tokens is taken. A score that finds what matters recovers the other model's "
        "accuracy with few tokens.",
    ),
    (
        "Pivotal token",
        "A token across which the chance of a right answer of the model that continues changes by at least the gap, "
        "found by bisection and then measured again on fresh continuations; the first size is too large by the search, "
        "the second is not. A model that is never right has none.",
    ),
    (
        "Several samples",
        "pass@k asks for one right answer among k samples: it is high as soon as a model can find an answer at all, "
        "while the mean of the samples, pass@1, says how often it does.",
    ),
    (
        "Completions without a verdict",
        "No answer found: the text has none in the form asked for. Limit reached: the grader gave up at a limit of "
        "time, memory or size. Grader failed: the program itself. Evaluations count all of them as wrong.",
    ),
)
"""What the words of the page mean."""

WORDS = {
    "rollout": "An answer that a model wrote to a problem, token by token.",
    "JS": "Jensen and Shannon's divergence: how far two models' predictions of the next token lie apart, from 0 (the "
    "same) to 0.69 nats (nothing in common).",
    "nat": "The unit of divergences and entropies: 0.69 nats are one bit, a choice between two equal tokens.",
    "spike": "A token at which two models' predictions lie much further apart than at the tokens around it.",
    "entropy": "How unsure a model is of the next token: 0 where it would always write the same one.",
    "reference": "The old model, with which the trained one is compared.",
    "null": "What a figure would be without training.",
    "matched noise": "The old model with random changes of its weights that move its predictions as far as training.",
    "random changes of its weights": "Changes that move the old model as far as training did, in a direction of no "
    "meaning: what any change of this size would show.",
    "intervals": "Ranges that hold the true value in 95 of 100 such measurements, or at the level that the page's last "
    "line says; the unit is the problem.",
    "greedily": "Writing the likeliest token at every place, once for each problem.",
}
"""Words of the field, each in a sentence, where they first stand."""

CARD_WORDS = {
    **{word: WORDS[word] for word in ("nat", "entropy")},
    "sampled answers": "Answers written with chance, at temperature 1: another try may come out otherwise.",
    "greedy answers": "Answers with the likeliest token at every place: always the same, once for each problem.",
    "points": "Percentage points: from 55% to 73% is +18 points. Brackets hold the range in which the true difference "
    "lies, in 95 of 100 such measurements.",
    "pass@k": "The chance that at least one of k answers to a problem is right: what a model finds in k tries.",
    "T=1": "Temperature 1: answers are drawn by the model's own probabilities.",
    "heldout": "Problems that training did not see.",
    "two equal models": "Simulated pairs that do not differ: whatever is shown of them is a false alarm.",
    "such cards": "Simulated cards of as many problems and answers as this one.",
    "not determined": "What was given cannot say it: neither yes nor no.",
    "solved": "With at least one right answer.",
    "noise of the weights": "Random changes of the old model's weights, as large as training's: what any such change "
    "would show.",
    "rank": "How many independent directions a change of a weight matrix has; rank 1 is the simplest change there is.",
    "random changes": "Changes of the old model's weights, as large as training's, in directions of no meaning.",
}
"""Those of a claim card, a comparison and a study."""

CARD_TERMS = (
    (
        "Shown, not to be seen, not determined",
        "A statement is shown where the interval of its difference excludes what would be expected without it. What "
        "is not to be seen may be there and be too small for so few problems. What is not determined could not be "
        "asked of what was given. Neither is a no.",
    ),
    (
        "How sure?",
        "Beside a statement that is shown stands the error rate of its rule: how often that says so of two models that "
        "do not differ, on simulated cards of this size. It is no probability that this statement is false. Beside one "
        "that is not: how large a true difference has to be for 80 of 100 such cards to show it. Intervals are over "
        "problems: they say what other problems of this kind would give, not what another training run would.",
    ),
    (
        "Does it matter?",
        "The first line says it in answers of 100. Compare the two rates, not only their difference, and with how many "
        "tries the old model does as well: where it catches up with a few, training made right answers likelier and "
        "taught no new ones.",
    ),
    (
        "Chance of a right try",
        "Of each problem a model has a chance that one answer is right. “How surely are problems solved?” has the "
        "estimated share of problems with at least that chance.",
    ),
    (
        "Rows",
        "Each statement opens the problems that it was made of; where the answers were there, a problem's name opens "
        "what both models wrote.",
    ),
)
"""What a claim card means by its words."""

SAMPLES_TERMS = (
    (
        "Is right more (or less) often",
        "The interval of the paired difference excludes 0: on other problems of this kind it would too, in about 95 of "
        "100 such comparisons. It says nothing of another training run.",
    ),
    (
        "No difference is to be seen",
        "The interval has 0 in it. A difference may be there and be too small for so few problems; beside it stands "
        "how large it would have to be.",
    ),
    (
        "p, adjusted",
        "How often a difference as large would come by chance, after all measures compared (Benjamini and Hochberg).",
    ),
    ("Rows", "Each sentence opens the problems that it was made of, and a problem's name what was written to it."),
)
"""What a comparison of samples means by its words."""
