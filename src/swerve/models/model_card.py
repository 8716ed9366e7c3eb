"""The model card of an exported folder: where the weights come from and what was measured of them, from files alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers

from swerve.artifacts.checkpoint import CheckpointRef
from swerve.artifacts.comparison import Scores
from swerve.artifacts.evaluation import Evaluation, read_evaluation
from swerve.artifacts.run import RunDirectory
from swerve.config.models import PretrainedModel
from swerve.estimates import Estimate
from swerve.recipes.loader import load_config
from swerve.text import percent_interval
from swerve.version import __version__

_FRONT_MATTER = re.compile(r"\A---\s*\n(.*?)^---\s*$", re.MULTILINE | re.DOTALL)
_LICENCE = re.compile(r"^license:[ \t]*[\"']?([\w.+-]+)[\"']?[ \t]*$", re.MULTILINE)
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsOrigin:
    """A folder of weights, and the checkpoint of a run that it is, if it is one."""

    folder: Path
    run: RunDirectory | None = None
    checkpoint: CheckpointRef | None = None

    @classmethod
    def of(cls, folder: Path) -> WeightsOrigin:
        """Find the run that a folder is a checkpoint of, by its place.

        Raises:
            ArtifactError: that run is damaged.
        """
        run = RunDirectory(folder.resolve().parent.parent)
        if folder.resolve().parent.name == "checkpoints" and (run.path / "run.json").is_file():
            for checkpoint in run.checkpoints:
                if checkpoint.path.name == folder.resolve().name:
                    return cls(folder=folder, run=run, checkpoint=checkpoint)
        return cls(folder=folder)

    def evaluation(self) -> Evaluation | None:
        """Return the evaluation of these very weights, if there is one.

        Raises:
            ArtifactError: it is damaged.
        """
        if self.run is None or self.checkpoint is None:
            return None
        path = self.run.evaluation_path(self.checkpoint)
        evaluation = read_evaluation(self.run, path) if path.is_file() else None
        is_of_these = evaluation is not None and evaluation.weights_sha256 == self.checkpoint.weights_sha256
        return evaluation if is_of_these else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """What was exported."""

    out: str
    dtype: str
    num_parameters: int
    """Tied weights counted once."""
    weights_sha256: str
    tokenizer_sha256: str
    files: tuple[str, ...] = ()


def card_text(export: Export, origin: WeightsOrigin, base: str | None) -> str:
    """Return the model card, as README.md has it; it leaves out what is not known.

    Args:
        export: what was exported.
        origin: from where.
        base: the model that a merged adapter belongs to.

    Raises:
        ArtifactError: the run's configuration or evaluation is damaged.
    """
    # Where the weights come from: a folder, or a checkpoint of a run, of which much is known.
    source = f"{'the adapter' if base else 'the folder'} `{origin.folder.resolve().name}`"
    rows: dict[str, str] = {}
    if origin.run is not None and origin.checkpoint is not None:
        run, checkpoint = origin.run, origin.checkpoint
        source = f"checkpoint `{checkpoint.label}` of the run `{run.path.resolve().name}`"
        config, known = load_config(run), run.read_provenance()
        if isinstance(config.model, PretrainedModel):
            base = config.model.path
        packages = [name for name in ("swerve", "torch", "transformers") if f"{name}_version" in known]
        rows["recipe"] = f"`{config.name}`, configuration `{known.get('config_hash')}`, seed {config.seed}"
        rows["task"] = f"`{config.task.kind}`"
        rows["step"] = f"{checkpoint.step}, which is step {checkpoint.stage_step} of the stage `{checkpoint.stage}`"
        rows["stages"] = ", ".join(f"`{stage.label}` ({stage.steps} steps)" for stage in config.stages)
        rows["weights of the checkpoint"] = f"SHA-256 `{checkpoint.weights_sha256}`"
        rows["trained with"] = ", ".join(f"{name} {known[f'{name}_version']}" for name in packages)
        rows["base model"] = "none: initialised at random"
    if base is not None:
        rows["base model"] = f"`{base}`"

    # What is known of any folder.
    licence = _licence(Path(base) if base else origin.folder)
    rows["licence"] = f"`{licence}`, as the base model's card says" if base and licence else licence or "not known"
    rows["parameters"] = f"{export.num_parameters:,}"
    rows["weights"] = f"SHA-256 `{export.weights_sha256}` (names, types, shapes and bytes)"
    rows["tokenizer"] = f"SHA-256 `{export.tokenizer_sha256}` (tokens and ids)"
    rows["exported with"] = f"torch {torch.__version__}, transformers {transformers.__version__}"

    table = "\n".join(f"| {name} | {value} |" for name, value in rows.items())
    parts = [
        "\n".join(_front_matter(base, licence)),
        f"# {Path(export.out).name}",
        f"Exported by swerve {__version__} from {source}, in {export.dtype}.",
        f"| | |\n|---|---|\n{table}",
        *_evaluation(origin, export.dtype),
    ]
    return "\n\n".join(parts) + "\n"


def _front_matter(base: str | None, licence: str | None) -> Iterator[str]:
    yield from ("---", "library_name: transformers", "pipeline_tag: text-generation")
    if licence:
        yield f"license: {licence}"
    name = (base or "").partition("#")[0]
    if _HUB_NAME.fullmatch(name) and not Path(name).exists():
        yield f"base_model: {name}"
    yield "---"


def _licence(folder: Path) -> str | None:
    """Return the licence that a folder's model card states."""
    card = folder / "README.md"
    front = _FRONT_MATTER.match(card.read_text(encoding="utf-8", errors="replace")) if card.is_file() else None
    licence = None if front is None else _LICENCE.search(front[1])
    return None if licence is None else licence[1]


def _evaluation(origin: WeightsOrigin, dtype: str) -> Iterator[str]:
    if origin.checkpoint is None:
        return
    evaluation = origin.evaluation()
    if evaluation is None:
        yield "## Evaluation\n\nThis checkpoint was not evaluated."
        return
    measured = str(evaluation.settings.get("dtype", "float32"))
    cast = f", with weights in {measured}: those of this folder are rounded to {dtype}" if measured != dtype else ""
    level = "" if evaluation.confidence is None else f" with {100 * evaluation.confidence:g}% intervals"
    samples = max((point.k for point in evaluation.sampled.curve), default=0)
    yield f"## Evaluation\n\nHeld-out problems of the task, answered greedily and sampled{level}{cast}."
    best = evaluation.sampled.of_samples(samples).pass_at_k
    rows: list[tuple[str, Scores, Estimate | None]] = [("all", evaluation.greedy, best)]
    if len(evaluation.greedy.by_kind) > 1:
        rows += [(kind, scores, None) for kind, scores in evaluation.greedy.by_kind.items()]
    lines = [f"| problems | number | accuracy (greedy) | pass@{samples} |", "|---|---|---|---|"]
    for name, scores, rate in rows:
        lines.append(f"| {name} | {scores.num_problems} | {_percent(scores.accuracy)} | {_percent(rate)} |")
    yield "\n".join(lines)


def _percent(value: Estimate | None) -> str:
    return percent_interval(value) if value else ""
