"""A callback for the Hugging Face Trainer and TRL: how far training has moved the model, token by token.

A fixed set of sequences is read by the initial model once and by the model in training every few steps. Their
divergence is appended to a file of JSON lines and, where the callback knows its trainer, to the trainer's logs.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from swerve.artifacts.files import regular_file, write_text
from swerve.artifacts.metrics import read_metrics
from swerve.artifacts.parts import Parts
from swerve.batch import TokenSequence
from swerve.config.probe import DivergenceName
from swerve.errors import ArtifactError, ConfigError, MismatchError
from swerve.functional.divergence import DivergenceStats
from swerve.models.head import model_head
from swerve.probe.engine.forward import ForcedStates, compare_positions
from swerve.probe.engine.store import open_units
from swerve.probe.in_memory import check_at_least, completion_ids, model_states, unwrapped
from swerve.probe.rollouts.tokenise import encode_response

_SUMMARISED = ("js", "kl_forward", "kl_reverse", "entropy", "entropy_ref", "logprob", "logprob_ref")

_QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


class DivergenceCallback(TrainerCallback):
    """Records the divergence of the model in training from the initial one on fixed sequences.

    Every `every` optimisation steps and at the end of training one JSON line is appended to `path`: the step; mean,
    quantiles and maximum over all completion tokens of JS, both KLs (P is the model in training, Q the initial one),
    both entropies and both log-probabilities of the realised token, in nats; the share of tokens whose most likely
    token changed; and the positions where `divergence` is highest. What is infinite is null.

    The model is run in evaluation mode, without dropout and without gradients, and gets every mode back; no random
    numbers are drawn. So training takes the same steps with and without the callback. Under data parallelism the first
    process measures. A model whose weights are sharded over processes (FSDP, DeepSpeed ZeRO 3) cannot be measured.

    The initial model's hidden states on the sequences and its output head are kept in memory and beside `path`, in
    `NAME.initial/`, so that a resumed training is compared with the same initial model. On resuming, lines after the
    step resumed from are dropped, and measured again.

    Example:
        callback = DivergenceCallback(prompts=questions, completions=answers, every=50)
        trainer = SFTTrainer(model=model, args=args, train_dataset=dataset)
        callback.attach(trainer)  # or callbacks=[callback], then without the trainer's trackers
        trainer.train()
    """

    def __init__(
        self,
        sequences: Sequence[TokenSequence] | None = None,
        *,
        prompts: Sequence[str] | None = None,
        completions: Sequence[str] | None = None,
        tokenizer: PreTrainedTokenizerBase | None = None,
        every: int = 50,
        path: str | Path = "probe.jsonl",
        reference: Literal["initial"] | PreTrainedModel = "initial",
        divergence: DivergenceName = "js",
        num_top_positions: int = 5,
        tokens_per_batch: int = 16384,
        tokens_per_chunk: int = 256,
    ) -> None:
        """Say what is measured, how often, and where to.

        Args:
            sequences: (prompt ids, completion ids) pairs.
            prompts: instead of `sequences`: texts exactly as the model reads them.
            completions: one text for each prompt.
            tokenizer: for texts; by default the trainer's.
            every: optimisation steps between two measurements.
            path: the file of JSON lines.
            reference: what to compare with, instead of the model as it was when training began.
            divergence: the one whose highest positions are recorded.
            num_top_positions: how many of them.
            tokens_per_batch: padded tokens of one forward pass.
            tokens_per_chunk: rows of `[rows, vocabulary]` held at a time.

        Raises:
            ConfigError: neither or both of sequences and texts are given, or a number is below 1.
        """
        # Sequences or texts, not both; numbers and names that make sense.
        texts = prompts is not None and completions is not None and len(prompts) == len(completions) > 0
        if (sequences is not None) == (prompts is not None or completions is not None):
            raise ConfigError("give either sequences or prompts and completions")
        if sequences is None and not texts:
            raise ConfigError("prompts and completions must be equally many, at least one of each")
        check_at_least(1, every=every, tokens_per_batch=tokens_per_batch, tokens_per_chunk=tokens_per_chunk)
        check_at_least(1, num_top_positions=num_top_positions)
        if divergence not in _SUMMARISED[:3]:
            raise ConfigError(f"divergence {divergence!r} is not allowed; use one of {', '.join(_SUMMARISED[:3])}")

        # What `attach` and `on_train_begin` fill is empty until then.
        self.trainer: Trainer | None = None
        self._sequences = sequences
        self._texts = list(zip(prompts, completions, strict=True)) if prompts and completions else []
        self._tokenizer = tokenizer
        self._every = every
        self._path = Path(path)
        self._reference = reference
        self._divergence = divergence
        self._num_top_positions = num_top_positions
        self._tokens_per_batch = tokens_per_batch
        self._tokens_per_chunk = tokens_per_chunk
        self._states: ForcedStates | None = None
        self._last_step = 0

    def attach(self, trainer: Trainer) -> DivergenceCallback:
        """Add the callback to a trainer and send its metrics (`probe/js`, ...) to the trainer's logs and trackers."""
        trainer.add_callback(self)
        self.trainer = trainer
        return self

    @property
    def initial_path(self) -> Path:
        """Where the initial model's states are kept."""
        return self._path.with_name(f"{self._path.stem}.initial")

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Run the reference over the sequences, or read what an earlier part of this training kept of it.

        Raises:
            ConfigError: the file has lines of another training.
            ArtifactError: training is resumed and the initial model's states are missing, damaged or of other
                sequences.
        """
        if not state.is_world_process_zero:
            return
        self._sequences = self._sequences or self._tokenised(kwargs.get("processing_class"))
        self._last_step = _keep_lines(self._path, until=state.global_step)
        model = kwargs["model"]
        if isinstance(self._reference, PreTrainedModel):
            self._states = _frozen(self._read(self._reference, label="the reference"))
        elif state.global_step == 0:
            self._states = _frozen(self._read(model, label="the initial model"))
            _save_states(open_units(self.initial_path), self._states, self._sequences)
        else:
            self._states = _load_states(open_units(self.initial_path), unwrapped(model), self._sequences)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Measure at every `every`-th optimisation step."""
        if state.is_world_process_zero and state.global_step % self._every == 0:
            self._measure(state, kwargs["model"])

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Measure the final model, if the last step was not measured already."""
        if state.is_world_process_zero:
            self._measure(state, kwargs["model"])

    def _tokenised(self, processor: Any) -> list[TokenSequence]:
        tokenizer = self._tokenizer or getattr(processor, "tokenizer", processor)
        if tokenizer is None:
            raise ConfigError("prompts and completions are texts and the trainer has no tokenizer; give tokenizer=")
        encoded = [encode_response(tokenizer, prompt, completion) for prompt, completion in self._texts]
        return [(response.prompt_ids, response.completion_ids) for response in encoded]

    def _read(self, model: nn.Module, *, label: str) -> ForcedStates:
        assert self._sequences is not None
        return model_states(model, self._sequences, label=label, tokens_per_batch=self._tokens_per_batch)

    def _measure(self, state: TrainerState, model: nn.Module) -> None:
        if self._states is None or state.global_step <= self._last_step:
            return
        assert self._sequences is not None

        # The head that was kept goes to wherever the model is.
        states = self._read(model, label="the model in training")
        weight = states.head.projection.weight
        assert isinstance(weight, Tensor)
        self._states.head.projection.to(weight.device)
        ids = completion_ids(self._sequences)
        stats = compare_positions(states, self._states, ids, tokens_per_chunk=self._tokens_per_chunk)

        # One line of the file, and the means for the trainer's logs.
        metrics = {name: _summary(getattr(stats, name)) for name in _SUMMARISED}
        changed = float((stats.argmax != stats.argmax_ref).double().mean())
        line = {
            "step": state.global_step,
            "epoch": state.epoch,
            "num_sequences": len(self._sequences),
            "num_tokens": len(ids),
            **metrics,
            "argmax_changed": changed,
            "top_positions": self._top_positions(stats, ids),
        }
        with regular_file(self._path).open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line, allow_nan=False) + "\n")
        self._last_step = state.global_step
        self._log(
            state, {**{name: quantiles["mean"] for name, quantiles in metrics.items()}, "argmax_changed": changed}
        )

    def _top_positions(self, stats: DivergenceStats, ids: Tensor) -> list[dict[str, Any]]:
        assert self._sequences is not None
        values: Tensor = getattr(stats, self._divergence)
        places = [(row, t) for row, (_, completion) in enumerate(self._sequences) for t in range(len(completion))]
        highest = torch.argsort(values, descending=True, stable=True)[: self._num_top_positions]
        return [
            {
                "sequence": places[index][0],
                "position": places[index][1],
                "token_id": int(ids[index]),
                self._divergence: _finite(float(values[index])),
            }
            for index in highest.tolist()
        ]

    def _log(self, state: TrainerState, means: dict[str, float | None]) -> None:
        metrics = {f"probe/{name}": value for name, value in means.items() if value is not None}
        if self.trainer is None:
            state.log_history.append({**metrics, "epoch": state.epoch, "step": state.global_step})
            return
        # The base class's log: a subclass's would take its own metrics along, halfway to its next line. Logging clears
        # the wish to log that the trainer has for this step.
        wanted = self.trainer.control.should_log
        Trainer.log(self.trainer, metrics)
        self.trainer.control.should_log = wanted


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _summary(values: Tensor) -> dict[str, float | None]:
    wide = values.double()
    summary = {
        "mean": float(wide.mean()),
        **{name: float(torch.quantile(wide, share, interpolation="lower")) for name, share in _QUANTILES.items()},
        "max": float(wide.max()),
    }
    return {name: _finite(value) for name, value in summary.items()}


def _keep_lines(path: Path, *, until: int) -> int:
    """Drop the lines after step `until`; return the last step that is left, 0 for none.

    Raises:
        ConfigError: a new training begins and the file has lines.
        ArtifactError: a line is damaged.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = read_metrics(path)
    if until == 0 and lines:
        raise ConfigError(f"{path} has the lines of another training; delete it or choose another path")
    kept = [line for line in lines if line["step"] <= until]
    if path.exists():  # its last line may be cut off
        write_text(path, "".join(json.dumps(line, allow_nan=False) + "\n" for line in kept))
    return max((int(line["step"]) for line in kept), default=0)


def _frozen(states: ForcedStates) -> ForcedStates:
    """Return the states with a copy of the head, which training will not change."""
    projection = copy.deepcopy(states.head.projection).requires_grad_(False)
    return replace(states, head=replace(states.head, projection=projection))


def _save_states(parts: Parts, states: ForcedStates, sequences: Sequence[TokenSequence]) -> None:
    head = {f"head.{name}": tensor for name, tensor in states.head.projection.state_dict().items()}
    digest = torch.frombuffer(bytearray.fromhex(states.tokenizer_sha256), dtype=torch.uint8)
    parts.put("initial", _ids(sequences), {**head, "hidden": states.hidden, "tokenizer_sha256": digest})


def _load_states(parts: Parts, model: PreTrainedModel, sequences: Sequence[TokenSequence]) -> ForcedStates:
    """Return the initial model's states; the head has the form of the model's, with the weights that were kept."""
    tensors = parts.get("initial", _ids(sequences))
    if tensors is None:
        raise ArtifactError(
            f"training is resumed, but {parts.folder} does not have the initial model's states on these sequences; "
            "resume with those that the training began with, or give reference=MODEL, loaded from the initial weights"
        )
    hidden, digest = tensors.pop("hidden"), tensors.pop("tokenizer_sha256")
    head = model_head(model)
    projection = copy.deepcopy(head.projection).requires_grad_(False)
    try:
        projection.load_state_dict({name.removeprefix("head."): tensor for name, tensor in tensors.items()})
    except RuntimeError:
        raise MismatchError(f"{parts.folder} is of a model with another output head") from None
    return ForcedStates(
        label="the initial model",
        head=replace(head, projection=projection),
        hidden=hidden,
        tokenizer_sha256=digest.numpy().tobytes().hex(),
    )


def _ids(sequences: Sequence[TokenSequence]) -> list[list[list[int]]]:
    """Return token ids of any kind as JSON values."""
    return [[list(map(int, part)) for part in pair] for pair in sequences]
