"""A change planted in a model that writes stories: fine-tuned copies, and where they must differ."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from swerve.artifacts.responses import Response
from swerve.models.folder_checks import quiet_transformers
from swerve.models.model_folder import LoadedModel
from swerve.probe.rollouts.tokenise import token_spans
from swerve.rollout import SamplingParams, TorchEngine
from swerve.rollout.groups import completion_text
from swerve.seeds import derive_seed
from swerve.types import Problem

Ids = tuple[int, ...]
FIRST = 1
"""A story begins with this token (BOS) and ends with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorySettings:
    """How much is written, trained and measured."""

    old: str = "Lily"
    new: str = "Mia"
    num_train: int = 800
    num_stories: int = 300
    max_new_tokens: int = 120
    steps: tuple[int, ...] = (10, 30, 100, 200)
    batch_size: int = 16
    lr: float = 5e-4
    shares: tuple[float, ...] = (0.005, 0.01, 0.03, 0.1)
    num_crossed: int = 100
    num_forced: int = 30
    num_continuations: int = 16
    seed: int = 0


def name_ids(loaded: LoadedModel, name: str) -> Ids:
    """Return the tokens of a name in the middle of a text."""
    before = loaded.tokenizer("a", add_special_tokens=False).input_ids
    found = loaded.tokenizer(f"a {name}", add_special_tokens=False).input_ids
    assert found[: len(before)] == before, "the name must not merge with what is before it"
    return tuple(found[len(before) :])


def write_stories(loaded: LoadedModel, num: int, settings: StorySettings, purpose: str) -> list[Ids]:
    """Sample stories at temperature 1."""
    engine = TorchEngine(loaded.model, pad_id=0, max_rows=256)
    params = SamplingParams(num_samples=num, max_new_tokens=settings.max_new_tokens, temperature=1.0, stop_ids=(FIRST,))
    (group,) = engine.generate([[FIRST]], params, seeds=[derive_seed(settings.seed, "stories", purpose)])
    return [tuple(one.token_ids) for one in group]


def _replaced(story: Ids, old: int, new: Ids) -> Ids:
    return tuple(token for one in story for token in (new if one == old else (one,)))


def planted(reference: LoadedModel, old: Ids, new: Ids, work: Path, settings: StorySettings) -> dict[str, Path]:
    """Return the folders of the fine-tuned copies by label, made if need be."""
    labels = [f"planted-{step}" for step in settings.steps] + [f"placebo-{settings.steps[-1]}"]
    folders = {label: work / label for label in labels}
    if not all((folder / "config.json").is_file() for folder in folders.values()):
        stories = write_stories(reference, settings.num_train, settings, "train")
        _fine_tune(reference, [_replaced(one, old[0], new) for one in stories], "planted", work, settings)
        _fine_tune(reference, stories, "placebo", work, settings)
    return folders


def _fine_tune(reference: LoadedModel, stories: Sequence[Ids], name: str, work: Path, settings: StorySettings) -> None:
    """Train a copy on stories by cross-entropy; save it after each of the settings' steps."""
    model = copy.deepcopy(reference.model).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr, weight_decay=0.0)
    rng = random.Random(settings.seed)  # the same batches for every copy
    for step in range(1, settings.steps[-1] + 1):
        batch = rng.sample(range(len(stories)), settings.batch_size)
        rows = [(FIRST, *stories[index]) for index in batch]
        width = max(map(len, rows))
        ids = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
        labels = ids.masked_fill(mask == 0, -100)
        loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step in settings.steps:
            with quiet_transformers():
                model.save_pretrained(work / f"{name}-{step}")
                reference.tokenizer.save_pretrained(work / f"{name}-{step}")


def sequence(loaded: LoadedModel, index: int, story: Ids, old: int, new: Ids) -> Response:
    """Return a story with the places of the old name as what is to be found."""
    text = completion_text(loaded.tokenizer, story)
    expected = str(loaded.tokenizer.decode([new[0]]))
    return Response(
        sequence_id=index,
        problem=Problem(id=f"story-{index}", family="stories", question="", answer=""),
        prompt_ids=(FIRST,),
        completion_ids=story,
        text=text,
        spans=tuple(token_spans(loaded.tokenizer, story, text)),
        wrong={place: expected for place, token in enumerate(story) if token == old},
        extracted=None,
        correct=False,
        population="imported",
        label="pretrained",
    )
