"""The truth of every claim that a world decides, by the path of the claim in the summary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from studies.planted.chain import LEVEL_OF, NUM_IDS, NUM_TOKENS, WORDS, Floats
from studies.planted.claims import Truths
from studies.planted.exact import Exact, flows, mean, share, values
from studies.planted.worlds import REFERENCE
from swerve.artifacts.probe_findings import DIVERGENCES
from swerve.artifacts.probe_summary import ProbeSummary

Named = Iterator[tuple[str, float | None]]

_CATEGORIES = ("word", "number", "logical", "format")
"""Of the ways to write a word, in their order, and of answers and ends."""
_REGIONS = ("early", "mid", "late")


def truths(exact: Exact, summary: ProbeSummary) -> Truths:
    """Return what is true of a world; a draw's summary gives the thresholds that its claims are about."""
    parts = (
        _selection(exact),
        _divergences(exact),
        _parts(exact),
        _claims(exact),
        _entropies(exact),
        _ranks(exact),
        _moved(exact, summary),
        _recovery(exact),
        _directions(exact),
        _swaps(exact),
        _cross_sampling(exact, summary),
        _nothing(exact, summary),
    )
    known = {name: value for part in parts for name, value in part if value is not None}
    return Truths(values=known, no_difference=frozenset(_tests(exact, summary)))


def _by_token(names: Mapping[int, str]) -> NDArray[np.str_]:
    return np.array([names.get(token, "format") for token in range(NUM_IDS)])


_CATEGORY = _by_token({int(word): _CATEGORIES[way] for words in WORDS for way, word in enumerate(words)})


def _in_category(name: str) -> Floats:
    return np.equal(name, _CATEGORY).astype(np.float64)


def _in_region(number: int) -> Floats:
    inside = 3 * np.arange(NUM_TOKENS) // NUM_TOKENS == number
    return inside[:, None, None].astype(np.float64)


def _selection(exact: Exact) -> Named:
    final = exact.world.final
    yield "mcnemar", exact.accuracy(final) - exact.accuracy(REFERENCE)
    flips = (1 - exact.chances[REFERENCE]) * exact.chances[final]
    selected = np.array(exact.world.shares) * flips
    yield "reselected", float((selected * flips).sum() / selected.sum())


def _divergences(exact: Exact) -> Named:
    world, names = exact.world, (*DIVERGENCES, "entropy", "entropy_ref")
    against = exact.statistics(world.final, REFERENCE)
    for name in names:
        yield f"divergences.{name}", mean(exact.headline, against[name])
        for population, weights in exact.populations.items():
            yield f"populations[{population}].divergences.{name}", mean(weights, against[name])
    if len(world.checkpoints) > 1:
        before = exact.statistics(world.final, world.checkpoints[-2])
        for name in names:
            yield f"pairs.{name}", mean(exact.headline, before[name])


def _parts(exact: Exact) -> Named:
    stats, weights = exact.statistics(exact.world.final, REFERENCE), exact.headline
    for number, region in enumerate(_REGIONS):
        for name in DIVERGENCES:
            yield f"regions[{region}].mean.{name}", mean(weights, stats[name], _in_region(number))
            yield f"regions[{region}].share_divergence.{name}", share(weights, stats[name], _in_region(number))
    for category in _CATEGORIES:
        path = f"categories[{category}].share_divergence_interval"
        yield path, share(weights, stats["js"], _in_category(category))
    style = _in_category("format")
    tokens, divergence = mean(weights, style), share(weights, stats["js"], style)
    yield "style[js].share_tokens", tokens
    yield "style[js].share_divergence", divergence
    yield "style[js].excess", None if tokens is None or divergence is None else divergence - tokens


def _claims(exact: Exact) -> Named:
    """Shares of the divergence less those of tokens and of the reference's entropy."""
    stats, weights = exact.statistics(exact.world.final, REFERENCE), exact.headline
    parts = {f"third, {name}": _in_region(number) for number, name in enumerate(_REGIONS)}
    parts |= {f"category, {name}": _in_category(name) for name in _CATEGORIES}
    for part, inside in {**parts, "style, ": _in_category("format")}.items():
        own, path = share(weights, stats["js"], inside), f"claims[share, {part}]"
        nulls = {"chance": mean(weights, inside), "entropy": share(weights, stats["entropy_ref"], inside)}
        yield f"{path}.estimate", own
        for name, value in nulls.items():
            yield f"{path}.nulls[{name}].difference", None if own is None or value is None else own - value


def _entropies(exact: Exact) -> Named:
    stats, weights = exact.statistics(exact.world.final, REFERENCE), exact.headline
    figures = {
        "entropy": stats["entropy"],
        "entropy_ref": stats["entropy_ref"],
        "change": stats["entropy"] - stats["entropy_ref"],
    }
    for name, figure in figures.items():
        yield f"entropy.means.{name}", mean(weights, figure)
        for number, region in enumerate(_REGIONS):
            yield f"entropy.means.regions[{region}].{name}", mean(weights, figure, _in_region(number))
        for category in _CATEGORIES:
            yield f"entropy.means.categories[{category}].{name}", mean(weights, figure, _in_category(category))
    yield "entropy.means.share_argmax_changed", mean(weights, stats["argmax_changed"])


def _ranks(exact: Exact) -> Named:
    stats = exact.statistics(exact.world.final, REFERENCE)
    writers = {
        REFERENCE: sum(exact.outcomes.values(), np.zeros(1)),
        exact.world.final: sum((exact.populations[f"checkpoint_{one}"] for one in ("right", "wrong")), np.zeros(1)),
    }
    classes = {"unshifted": (1, 1), "marginal": (2, 3), "shifted": (4, NUM_IDS)}
    for source, weights in writers.items():
        for name in ("rank", "rank_ref"):
            for label, (low, high) in classes.items():
                inside = ((stats[name] >= low) & (stats[name] <= high)).astype(np.float64)
                yield f"rank_shift[{source}].{name}.{label}.share", mean(weights, inside)


def _moved(exact: Exact, summary: ProbeSummary) -> Named:
    """A token has left the reference for good if it is away at the last checkpoint."""
    if summary.biographies is not None:
        moves = exact.statistics(exact.world.final, REFERENCE)["move"]
        away = (np.abs(moves) > summary.biographies.threshold).astype(np.float64)
        yield "biographies.tokens.all.share_moved", mean(exact.headline, away)


def _falls(exact: Exact) -> Floats:
    """Return `[V, V]`: whether a word lowers the chance of a right answer, by the last token."""
    level_values = exact.world.answers.mean(axis=0)
    by_token = np.array([level_values[LEVEL_OF[one]] if one in LEVEL_OF else np.nan for one in range(NUM_IDS)])
    with np.errstate(invalid="ignore"):
        return np.asarray(by_token[None, :] < by_token[:, None], dtype=np.float64)


def _marked(exact: Exact) -> dict[str, Floats]:
    """Return the weights of rollouts with a wrong step: headline, right and wrong ones of the reference."""
    world, place = exact.world, exact.world.top
    if place is None:
        return {}
    named = {"headline": exact.headline, **exact.outcomes}
    if world.name != "one_token":
        return {"headline": exact.headline}  # every wrong rollout has one
    writer, falls = world.probs[REFERENCE], _falls(exact)
    forced = writer.copy()
    forced[:, place] = writer[:, place] * falls
    forced[:, place] /= np.maximum(forced[:, place].sum(axis=-1, keepdims=True), 1e-300)
    found = {}
    for name, weights in named.items():
        share_marked = (weights[:, place] * falls).sum(axis=(1, 2))  # per type, times its rate
        flow = flows(forced, "right" if name == "right" else "wrong")
        found[name] = flow * share_marked[:, None, None, None]
    return found


def _recovery(exact: Exact) -> Named:
    marked = _marked(exact)
    if not marked:
        return
    stats, weights, falls = exact.statistics(exact.world.final, REFERENCE), marked["headline"], _falls(exact)
    scores = {
        **{name: stats[name] for name in ("js", "kl_forward", "kl_reverse", "rank")},
        "abs_logprob_change": np.abs(stats["move"]),
        "logprob_drop": -stats["move"],
        "entropy": stats["entropy_ref"],
        "entropy_change": stats["entropy"] - stats["entropy_ref"],
        "argmax_changed": stats["argmax_changed"],
    }
    place, whole = exact.world.top, float(weights[:, exact.world.top].sum())
    for name in DIVERGENCES:
        yield f"spikes[{name}].top_on_wrong", float((weights[:, place] * falls).sum()) / whole
    for name, score in scores.items():
        flat = np.round(np.broadcast_to(score, weights.shape).ravel(), 6)
        on = (weights * falls).ravel()
        yield f"recovery.selectors[{name}].auc", _auc(flat, on, weights.ravel() - on)
    both = sum((marked[name] for name in ("right", "wrong") if name in marked), np.zeros(1))
    if "right" in marked:
        on, off = mean(both, stats["move"], falls), mean(both, stats["move"], 1 - falls)
        yield f"direction[js, {REFERENCE}].wrong_steps.mean_move", on
        yield f"direction[js, {REFERENCE}].wrong_steps.mean_move_others", off
        yield f"direction[js, {REFERENCE}].wrong_steps.difference", None if on is None or off is None else on - off


def _auc(scores: Floats, positive: Floats, negative: Floats) -> float:
    """Return the chance that a score of one kind is above one of the other, ties counted half."""
    _, index = np.unique(scores, return_inverse=True)
    up, down = np.bincount(index, weights=positive), np.bincount(index, weights=negative)
    below = np.cumsum(down) - down / 2
    return float((up * below).sum() / (up.sum() * down.sum()))


def _directions(exact: Exact) -> Named:
    stats, path = exact.statistics(exact.world.final, REFERENCE), f"direction[js, {REFERENCE}]"
    right, wrong, move = exact.outcomes["right"], exact.outcomes["wrong"], stats["move"]
    real = 1e-8  # moves of tokens that never come are not moves; rounding is none either
    up, down = (move > real).astype(np.float64), (move < -real).astype(np.float64)
    divergence = float(((right + wrong) * stats["js"]).sum())
    if divergence > 1e-12:
        yield f"{path}.share_good", float(((right * up + wrong * down) * stats["js"]).sum()) / divergence
    everything = float((right + wrong).sum())
    yield f"{path}.share_good_tokens", float((right * up + wrong * down).sum()) / everything
    yield f"{path}.mean_move_right", mean(right, move)
    yield f"{path}.mean_move_wrong", mean(wrong, move)
    on, off = mean(right, move), mean(wrong, move)
    yield f"{path}.difference", None if on is None or off is None else on - off


def _swaps(exact: Exact) -> Named:
    """Effects at the spike, where its place is known, and at random positions besides it."""
    effects, differs = _effects(exact)
    weights, path = exact.headline, "causal.policies[reference]"
    place = 0 if exact.world.top is None else exact.world.top  # without effects any word stands for any other
    at = np.zeros((1, NUM_TOKENS, 1, 1))
    at[:, place] = 1.0
    for name, effect in effects.items():
        for selection, inside in (("spike", at), ("random", 1 - at)):
            inner = f"{path}.selections[{selection}]"
            yield f"{inner}.{name}", mean(weights, effect, inside)
            if exact.world.top is not None:
                yield f"{inner}.different_tokens.{name}", mean(weights, effect, inside * differs)
    if exact.world.top is not None:
        spike, random = (mean(weights, effects["effect"], inside) for inside in (at, 1 - at))
        yield f"{path}.differences[random].difference", None if spike is None or random is None else spike - random


def _effects(exact: Exact) -> tuple[dict[str, Floats], Floats]:
    """Return the effects of swaps that the reference continues, and where the checkpoint has another token."""
    world = exact.world
    after, tokens = _after(exact, REFERENCE), np.arange(NUM_IDS)
    choice = world.probs[world.final].argmax(axis=-1)[..., None]
    likely = np.argsort(-world.probs[REFERENCE], axis=-1, kind="stable")[..., :3]
    other = np.broadcast_to(likely[..., :1], world.probs[REFERENCE].shape).copy()
    for number in (1, 2):  # the first of the three that is neither the rollout's own nor the checkpoint's
        taken = (other == tokens) | (other == choice)
        other = np.where(taken, likely[..., number, None], other)
    own = np.broadcast_to(after[:, :, None, :], other.shape)
    chosen, third = (np.take_along_axis(after[:, :, None, :], index, axis=-1) for index in (choice, other))
    effects = {
        "effect": chosen - own,
        "alternative_effect": third - own,
        "checkpoint_minus_alternative": chosen - third,
    }
    return effects, (choice != tokens).astype(np.float64)


def _after(exact: Exact, label: str) -> Floats:
    """Return `[K, NUM_TOKENS, V]`: the chance of a right answer once a token stands at each position."""
    found = np.zeros((len(exact.world.shares), NUM_TOKENS, NUM_IDS))
    known = values(exact.world.probs[label])
    found[:, :-1] = known[:, 1:]
    return found


def _cross_sampling(exact: Exact, summary: ProbeSummary) -> Named:
    accuracy = {"checkpoint": exact.accuracy(exact.world.final), "reference": exact.accuracy(REFERENCE)}
    for one in summary.cross_sampling.directions if summary.cross_sampling else ():
        other, base = one.direction.split("_into_")
        path = f"cross_sampling.directions[{one.direction}]"
        yield f"{path}.base", accuracy[base]
        yield f"{path}.other", accuracy[other]
        yield f"{path}.gap", accuracy[other] - accuracy[base]
        for selector in one.selectors if exact.world.is_null else ():
            inner = f"{path}.selectors[{selector.selector}]"
            yield f"{inner}.mean_accuracy", accuracy[base]
            yield f"{inner}.mean_accuracy_over_random", 0.0
            for point in selector.points:
                yield f"{inner}.points[{point.budget}].accuracy", accuracy[base]
                yield f"{inner}.points[{point.budget}].gain", 0.0


def _nothing(exact: Exact, summary: ProbeSummary) -> Named:
    """What is 0, or chance, where no word has an effect."""
    if not exact.world.is_null:
        return
    path = "causal.policies[reference]"
    for name in ("spike", "matched", "random"):
        yield f"{path}.selections[{name}].effect", 0.0
        yield f"{path}.selections[{name}].different_tokens.effect", 0.0
        yield f"{path}.differences[{name}].difference", 0.0
    for name in ("alternative_effect", "checkpoint_minus_alternative"):
        yield f"{path}.selections[spike].different_tokens.{name}", 0.0
    for one in summary.prediction:
        prediction = f"prediction[{one.policy}]"
        yield f"{prediction}.mean_square_effect", 0.0
        for selector in one.selectors:
            yield f"{prediction}.selectors[{selector.selector}].spearman", 0.0
    if exact.world.name != "confounded":
        yield f"direction[js, {REFERENCE}].auc", 0.5
        for name in ("correct", "difficulty"):
            yield f"correlates[rollout, {name}, js, {REFERENCE}].estimate", 0.0


def _tests(exact: Exact, summary: ProbeSummary) -> Iterator[str]:
    """Yield the paths of all tests whose null hypothesis is true."""
    world = exact.world
    if not world.is_null:
        return
    yield "mcnemar"
    yield f"direction[js, {REFERENCE}].wilcoxon"
    yield f"direction[js, {REFERENCE}].wilcoxon.sign_flip"
    for name in ("spike", "matched", "random"):
        for part in (f"selections[{name}]", f"differences[{name}]"):
            yield f"causal.policies[reference].{part}.test"
            yield f"causal.policies[reference].{part}.test.p_adjusted"
            yield f"causal.policies[reference].{part}.test.sign_flip"
    for one in summary.prediction:
        for selector in one.selectors:
            path = f"prediction[{one.policy}].selectors[{selector.selector}]"
            yield f"{path}.spearman"
            yield f"{path}.p_adjusted"
    if world.name != "confounded":
        for name in ("correct", "difficulty"):
            yield f"correlates[rollout, {name}, js, {REFERENCE}].p_value"
            yield f"correlates[rollout, {name}, js, {REFERENCE}].p_adjusted"
