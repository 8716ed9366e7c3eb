"""The model card of an exported folder: where the weights come from and what was measured of them, from files alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from swerve.artifacts.evaluation import Evaluation, Scores, read_evaluation
from swerve.artifacts.run import CheckpointRef, RunDirectory
from swerve.config import Config, PretrainedModel
from swerve.estimates import Estimate, rounded
from swerve.recipes.loader import load_config
from swerve.version import __version__

_FRONT_MATTER = re.compile(r"\A---\s*\n(.*?)^---\s*$", re.MULTILINE | re.DOTALL)
_LICENCE = re.compile(r"^license:[ \t]*[\"']?([\w.+-]+)[\"']?[ \t]*$", re.MULTILINE)
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """A folder of weights, and the checkpoint of a run that it is, if it is one."""

    folder: Path
    run: RunDirectory | None = None
    checkpoint: CheckpointRef | None = None

    @classmethod
    def of(cls, folder: Path) -> Origin:
        """Find the run that a folder is a checkpoint of, by its place.

        Raises:
            ArtifactError: that run is damaged.
        """
        run = RunDirectory(folder.resolve().parent.parent)
        if folder.resolve().parent.name == "checkpoints" and (run.path / "run.json").is_file():
            for one in run.checkpoints():
                if one.path.name == folder.resolve().name:
                    return cls(folder=folder, run=run, checkpoint=one)
        return cls(folder=folder)

    def evaluation(self) -> Evaluation | None:
        """Return the evaluation of these very weights, if there is one.

        Raises:
            ArtifactError: it is damaged.
        """
        if self.run is None or self.checkpoint is None:
            return None
        path = self.run.evaluation_path(self.checkpoint)
        found = read_evaluation(self.run, path) if path.is_file() else None
        return found if found is not None and found.weights_sha256 == self.checkpoint.weights_sha256 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """What a card says; `text` leaves out what is not known."""

    name: str
    origin: Origin
    base: str | None
    """The model that a merged adapter belongs to."""
    dtype: str
    num_parameters: int
    weights_sha256: str
    tokenizer_sha256: str
    versions: Mapping[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """Return the card, as README.md has it.

        Raises:
            ArtifactError: the run's configuration or evaluation is damaged.
        """
        config = None if self.origin.run is None else load_config(self.origin.run.config_path)
        base = self.base
        if config is not None and isinstance(config.model, PretrainedModel):
            base = config.model.path
        licence = _licence(Path(base)) if base else _licence(self.origin.folder)
        rows = "\n".join(f"| {name} | {value} |" for name, value in self._rows(config, base, licence))
        parts = [
            "\n".join(_front_matter(base, licence)),
            f"# {self.name}",
            f"Exported by swerve {__version__} from {self._source()}, in {self.dtype}.",
            f"| | |\n|---|---|\n{rows}",
            *_evaluation(self.origin, self.dtype),
        ]
        return "\n\n".join(parts) + "\n"

    def _source(self) -> str:
        run, checkpoint = self.origin.run, self.origin.checkpoint
        if run is None or checkpoint is None:
            kind = "the adapter" if self.base else "the folder"
            return f"{kind} `{self.origin.folder.resolve().name}`"
        return f"checkpoint `{checkpoint.label}` of the run `{run.path.resolve().name}`"

    def _rows(self, config: Config | None, base: str | None, licence: str | None) -> Iterator[tuple[str, str]]:
        run, checkpoint = self.origin.run, self.origin.checkpoint
        if run is not None and checkpoint is not None and config is not None:
            known = run.read_provenance()
            yield "recipe", f"`{config.name}`, configuration `{known.get('config_hash')}`, seed {config.seed}"
            yield "task", f"`{config.task.kind}`"
            yield "step", f"{checkpoint.step}, which is step {checkpoint.stage_step} of the stage `{checkpoint.stage}`"
            yield "stages", ", ".join(f"`{stage.label}` ({stage.steps} steps)" for stage in config.stages)
            yield "weights of the checkpoint", f"SHA-256 `{checkpoint.weights_sha256}`"
            yield (
                "trained with",
                ", ".join(
                    f"{name} {known[f'{name}_version']}"
                    for name in ("swerve", "torch", "transformers")
                    if f"{name}_version" in known
                ),
            )
            if base is None:
                yield "base model", "none: initialised at random"
        if base is not None:
            yield "base model", f"`{base}`"
        yield "licence", f"`{licence}`, as the base model's card says" if base and licence else licence or "not known"
        yield "parameters", f"{self.num_parameters:,}"
        yield "weights", f"SHA-256 `{self.weights_sha256}` (names, types, shapes and bytes)"
        yield "tokenizer", f"SHA-256 `{self.tokenizer_sha256}` (tokens and ids)"
        yield "exported with", ", ".join(f"{name} {version}" for name, version in self.versions.items())


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
    found = None if front is None else _LICENCE.search(front[1])
    return None if found is None else found[1]


def _evaluation(origin: Origin, dtype: str) -> Iterator[str]:
    if origin.checkpoint is None:
        return
    found = origin.evaluation()
    if found is None:
        yield "## Evaluation\n\nThis checkpoint was not evaluated."
        return
    measured = str(found.settings.get("dtype", "float32"))
    cast = f", with weights in {measured}: those of this folder are rounded to {dtype}" if measured != dtype else ""
    level = "" if found.confidence is None else f" with {100 * found.confidence:g}% intervals"
    samples = max((one.k for one in found.by_num_samples), default=0)
    rows: list[tuple[str, Scores, Estimate | None]] = [("all", found, found.pass_at(samples))]
    rows += [(kind, scores, None) for kind, scores in found.by_kind.items() if len(found.by_kind) > 1]
    table = "\n".join(
        f"| {name} | {scores.num_problems} | {_percent(scores.accuracy)} | {_percent(best)} |"
        for name, scores, best in rows
    )
    yield (
        f"## Evaluation\n\nHeld-out problems of the task, answered greedily and sampled{level}{cast}.\n\n"
        f"| problems | number | accuracy (greedy) | pass@{samples} |\n|---|---|---|---|\n{table}"
    )


def _percent(value: Estimate | None) -> str:
    if value is None:
        return ""
    mean, low, high = (rounded(100 * one, 1, 0, 100) for one in (value.mean, value.low, value.high))
    return f"{mean}% [{low}, {high}]"
