"""What taught it: which groups, rollouts and tokens moved a target, and what leaving them out really did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from swerve.artifacts.replays import TARGETS, Taught
from swerve.report.evidence import Evidence, Figure, Sentence, Value
from swerve.report.page import Texts
from swerve.report.read import ReportInputs
from swerve.report.rows import COUNT, SHARE, SIGNED, Curves, Dots, Rows
from swerve.report.topics.topic import Topic, crossed
from swerve.text import count, counted, listed, number, signed

_EFFECT = replace(SIGNED, axis="nats")
_PLACES = {"first_wrong": "the first wrong places", "solution": "the written solutions"}


def _sentences(inputs: ReportInputs) -> Iterator[Sentence]:
    for name, taught in inputs.taught.items():
        yield _of_proof(name, taught)
        yield _of_steps(name, taught)


def _of_proof(name: str, taught: Taught) -> Sentence:
    """Say whether leaving the strongest tokens out moves the target more than leaving random ones out does."""
    first, last = _ends(taught)
    proof = taught.proof
    differences = {replay: taught.difference(replay) for replay in proof.replays}
    sizes = {replay: abs(value) for replay, value in differences.items()}
    top, random = differences["top"], {replay: sizes[replay] for replay in _random(taught)}
    bar = max(random.values())
    verdict = "these tokens did teach it" if top < 0 else "the estimates have the wrong sign"
    if abs(top) <= max(bar, 10 * proof.floor[taught.target]):
        verdict = "who taught it is not to be seen"
    again = ", on rollouts sampled again," if proof.rollouts == "again" else ""
    columns: dict[str, Sequence[Value]] = {
        "without": proof.replays,
        "difference": [*differences.values()],
        "top set": [size if replay == "top" else None for replay, size in sizes.items()],
        "random set": [random.get(replay) for replay in proof.replays],
    }
    figures = (
        Figure(name="without the top set", statistic="sum", columns=("top set",), write=_size),
        Figure(name="without random ones", statistic="most", columns=("random set",), write=_size),
        Figure(name="random sets", statistic="number", columns=("random set",)),
    )
    return Sentence(
        f"Without the {count(taught.num_removed)} of {count(taught.num_tokens)} tokens with the largest estimated "
        f"effects, training from {first} to {last}{again} ends with {TARGETS[taught.target]} {_size(abs(top))} nats "
        f"{'higher' if top > 0 else 'lower'}; without as many random ones ({count(len(random))} sets) it moves by "
        f"{_size(bar)} nats at most: {verdict}.",
        Evidence(
            id=f"taught-{name}",
            table=f"replay/{name}.json",
            filter=f"`{taught.target}` at {last}, less that of the unchanged replay",
            unit="replay",
            columns=columns,
            figures=figures,
        ),
    )


def _size(value: float) -> str:
    return number(value, 2)


def _of_steps(name: str, taught: Taught) -> Sentence:
    """Say at which steps the estimates are not to be believed."""
    steps = taught.steps
    wrong = [str(step.step) for step in steps if not step.holds]
    said = f"The estimates hold at each of {counted(len(steps), 'step')}."
    if wrong:
        said = (
            f"At {count(len(wrong))} of {counted(len(steps), 'step')} ({listed(wrong)}) the estimates do not hold: "
            "there, only leaving tokens out says what taught it."
        )
    names = ("step", "estimated", "measured", "group", "group_estimated", "group_measured")
    rows = {column.replace("_", " "): [getattr(step, column) for step in steps] for column in names}
    figures = [Figure(name="steps", statistic="rows")]
    if wrong:
        figures.append(Figure(name="that do not hold", statistic="sum", columns=("does not hold",)))
    return Sentence(
        said,
        Evidence(
            id=f"taught-steps-{name}",
            table=f"replay/{name}.json",
            unit="step",
            columns={**rows, "does not hold": [int(not step.holds) for step in steps]},
            figures=tuple(figures),
            note="Effects in nats. An estimate holds where it is within a factor of two of what was measured, for the "
            "whole step and for its strongest group.",
        ),
    )


def _random(taught: Taught) -> list[str]:
    return [name for name in taught.proof.replays if name.startswith("random")]


def _ends(taught: Taught) -> tuple[str, str]:
    """Return the first and the last step that was mapped."""
    proof = taught.proof
    return f"{proof.stage}-{proof.start + 1}", f"{proof.stage}-{proof.stop}"


def _rows(inputs: ReportInputs) -> Iterator[Rows]:
    for name, taught in inputs.taught.items():
        first, last = _ends(taught)
        where, random = f"from {first} to {last}", _random(taught)
        yield Rows(
            id=f"taught-groups-{name}",
            title=f"Which groups taught {_PLACES[taught.target]} {where}?",
            first="Group",
            columns={"Estimated effect": _EFFECT},
            rows=tuple((f"step {one.step}, group {one.group}", one.effect) for one in taught.groups),
            plots=(Dots(column="Estimated effect", at=0.0),),
            note=f"How far a group's tokens moved {TARGETS[taught.target]}, nats, to first order; the strongest "
            f"{count(len(taught.groups))} groups.",
        )
        yield Rows(
            id=f"taught-sets-{name}",
            title="What did leaving tokens out do?",
            first="Left out",
            columns={"Difference": _EFFECT},
            rows=tuple((one, taught.difference(one)) for one in taught.proof.replays),
            plots=(Dots(column="Difference", at=0.0, greys=tuple(random)),),
            note=f"At {last}, from the replay with all tokens. Top and bottom: the tokens with the largest and the "
            f"lowest effects; random: as many drawn by chance, beside which the top set would be the furthest in "
            f"one case of {count(len(random) + 1)} by chance, too. Rounding alone makes "
            f"{_size(taught.proof.floor[taught.target])}.",
        )
        yield _by_step(name, taught)
        yield Rows(
            id=f"taught-tokens-{name}",
            title="Which kinds of token?",
            first="Token",
            columns={"Share of the effect": SHARE, "Times": COUNT},
            rows=tuple((f"“{one.token}”", one.share, one.num) for one in taught.words),
            plots=(Dots(column="Share of the effect"),),
            note="Shares of the absolute effect of all tokens.",
        )


def _by_step(name: str, taught: Taught) -> Rows:
    """Return the target after each step that was measured, of every replay."""
    own = [row for row in taught.proof.rows if row.target == taught.target]
    all_tokens = [(f"{taught.proof.stage}-{row.step}", "all tokens", row.unchanged) for row in own]
    left_out = [(f"{taught.proof.stage}-{row.step}", f"without {row.replay}", row.value) for row in own]
    columns = ["all tokens", *(f"without {replay}" for replay in taught.proof.replays)]
    return Rows(
        id=f"taught-steps-{name}",
        title="When did it move?",
        first="After",
        columns=dict.fromkeys(columns, _EFFECT),
        rows=crossed([*all_tokens, *left_out], columns),
        plots=(
            Curves(
                x=tuple(float(step) for step in sorted({row.step for row in own})),
                x_title="step of the stage",
                columns=("all tokens", "without top", "without bottom", "without random 1"),
                greys=("without random 1",),
            ),
        ),
        note=f"{TARGETS[taught.target].capitalize()}, nats.",
    )


def _texts(inputs: ReportInputs) -> Iterator[Texts]:
    for name, taught in inputs.taught.items():
        largest = max((abs(effect) for one in taught.rollouts for effect in one.effects), default=0.0) or 1.0
        verdicts = {True: ", right", False: ", wrong", None: ""}
        yield Texts(
            title=f"Which rollouts taught {_PLACES[taught.target]}?",
            note=f"The deeper a token, the larger its estimated effect, up to {_size(largest)} nats; underlined "
            f"ones worked against it. All tokens are in replay/{name}.parquet.",
            texts=tuple(
                (
                    f"step {one.step}, group {one.group}, sample {one.sample}{verdicts[one.correct]}: "
                    f"{signed(one.effect)} nats",
                    tuple((piece, effect / largest) for piece, effect in zip(one.pieces, one.effects, strict=True)),
                )
                for one in taught.rollouts
            ),
        )


TOPIC = Topic(
    title="What taught it?",
    note="groups, rollouts and tokens, and what leaving them out really did",
    sentences={"What taught it": _sentences},
    rows=_rows,
    texts=_texts,
)
