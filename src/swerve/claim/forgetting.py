"""What was forgotten: other tasks and texts, against the divergence on the new task (arXiv 2509.04259)."""

from __future__ import annotations

import math
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np

from swerve.claim.part import Cost, Count, Number, Part, Points, Row, Share
from swerve.claim.settings import ClaimSettings
from swerve.claim.verdicts import larger
from swerve.claim.work import Work
from swerve.estimates import Estimate
from swerve.eval.sampling import chosen_problems
from swerve.statistics import mean_interval, share
from swerve.text import listed, number_interval

_CHARS = 500
"""Of a text that are read together."""
_NOTE = "The divergences are exact for each token, an estimate over sampled texts, and of two models, not of a path."


class ForgettingRow(Row):
    """Another task before and after; the difference is paired over its problems."""

    task: str
    base: Share
    trained: Share
    difference: Points


class TextRow(Row):
    """A text before and after, in nats per token."""

    text: str
    base: Number
    trained: Number
    difference: Number
    tokens: Count


class ForgettingPart(Part):
    """What was forgotten?"""

    is_of_samples = True

    tasks: tuple[ForgettingRow, ...] = ()
    texts: tuple[TextRow, ...] = ()
    kl_from_base: Number = None
    """KL(base, trained) of a response to the new task, under the base's samples, nats per response."""
    kl_from_trained: Number = None
    """KL(trained, base) under the trained model's samples."""

    @classmethod
    def measure(cls, work: Work) -> ForgettingPart:
        """Measure it; see `Part.measure`."""
        settings, wanted = work.settings, []
        for number, task in enumerate(settings.others):
            changes = {"task": task, "split": "heldout", "limit": None}
            problems = chosen_problems(settings.model_copy(update=changes), work.progress)[: settings.some]
            wanted += [work.wanted(f"other-{number}", side, problems=problems, task=task) for side in work.sides]
        written = work.sample(wanted)
        sampled = [[bool(each.correct) for each in responses] for responses in written]
        problems_of = [[each.problem.id for each in responses] for responses in written[::2]]

        # Each task's accuracies are paired over its problems.
        rows, verdicts = [], []
        for task, base, trained, names in zip(settings.others, sampled[::2], sampled[1::2], problems_of, strict=True):
            changed = task.model_dump(mode="json", exclude={"train"}, exclude_defaults=True)
            name = " ".join([task.kind, *(f"{key}={_said(value)}" for key, value in changed.items())])
            answers = f"greedy answers to `{name}`"
            label = work.sides[1].label
            said, unseen = f"`{label}` has lost right {answers}", f"`{label}` is not seen to lose right {answers}"
            fell = larger("forgot", name, base, trained, said, unseen, columns=("trained", "base"), problems=names)
            before, after = (share(sum(right), len(right)) for right in (base, trained))
            rows.append(ForgettingRow(task=name, base=before, trained=after, difference=fell.estimate))
            verdicts.append(fell)

        # KL(base, trained) under the base's samples and the other way round, nats per response.
        chosen = [[each[0] for each in side.values()][: settings.some] for side in work.samples]
        read = _read(work, chosen[0] + chosen[1])
        sums = [np.bincount(read.sequence_ids, read.statistics[name]) for name in ("kl_reverse", "kl_forward")]
        num = len(chosen[0])
        return ForgettingPart(
            tasks=tuple(rows),
            texts=tuple(text_row(work, path) for path in settings.texts),
            kl_from_base=mean_interval(sums[0][:num], bounds=(0.0, math.inf)),
            kl_from_trained=mean_interval(sums[1][num:], bounds=(0.0, math.inf)),
            verdicts=tuple(verdicts),
            notes=(_NOTE,),
        )

    def facts(self, base: str, trained: str) -> list[str]:
        """Return how far the models lie apart, in nats per response to the task; see `Part.facts`."""
        far = {base: self.kl_from_base, trained: self.kl_from_trained}
        said = [
            f"{number_interval(value)} nats per response in samples of `{name}`"
            for name, value in far.items()
            if isinstance(value, Estimate)
        ]
        return [f"The models differ by {listed(said)} (KL from the one that sampled)."] if said else []

    @classmethod
    def cost(cls, settings: ClaimSettings, num_problems: int, num_runs: int) -> Cost:
        """Return what it takes; see `Part.cost`."""
        some = min(settings.some, num_problems)
        return Cost(samples=2 * settings.some * len(settings.others), sequences=2 * 2 * some)  # both read those of both


def _said(value: Any) -> str:
    """Return a value of a task as its name has it: of files and folders the last word.

    >>> _said(["data/old.jsonl", 3])
    'old.jsonl,3'
    """
    return ",".join(map(_said, value)) if isinstance(value, list) else Path(str(value)).name


def text_row(work: Work, path: str) -> TextRow:
    """Return the loss of both models on a text, nats per token.

    Raises:
        OSError: it cannot be read.
    """
    from swerve.models.model_folder import load_model_config

    text = Path(path).read_text(encoding="utf-8", errors="replace")
    # A token has a character at least, so that pieces fit the models' positions.
    configs = [load_model_config(model).get_text_config() for model in work.models]
    size = min(_CHARS, *(getattr(config, "max_position_embeddings", _CHARS) for config in configs))
    read = _read(work, wrap(text, size, expand_tabs=False, replace_whitespace=False))
    base, trained = (-read.statistics[name].astype(float) for name in ("logprob_ref", "logprob"))
    return TextRow(
        text=Path(path).name,
        base=base.mean(),
        trained=trained.mean(),
        difference=mean_interval(trained - base, clusters=read.sequence_ids),
        tokens=len(base),
    )


def _read(work: Work, texts: list[Any]) -> Any:
    """Return what the trained model (P) and the base (Q) say of every token."""
    from swerve.models.model_folder import resolve_device
    from swerve.probe import probe

    runtime = work.settings.runtime
    return probe(
        *work.models, texts, device=resolve_device(runtime.device), dtype=runtime.dtype, progress=work.progress
    )
