"""vLLM in the trainer's process: it has weights of its own, which every new policy replaces from memory."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel

from swerve.errors import ConfigError, EngineError, SwerveError
from swerve.models.adapter import has_adapter, whole_tensors
from swerve.models.head import model_head
from swerve.models.model_folder import published_weights
from swerve.models.trial import said_by
from swerve.positions import max_sampled, turns
from swerve.rollout.engine import Engine, NamedTensors, SamplingParams, check_request
from swerve.rollout.sync import check_own_weights
from swerve.rollout.vllm_versions import (
    check_vllm,
    end,
    free_memory,
    installed_version,
    kept_process,
    padding_bias,
    replace_weights,
    start,
)
from swerve.seeds import derive_seed
from swerve.types import Completion

_MOST_NATS = 1.0
"""Between vLLM and the model itself, in bfloat16, too; wrong weights give several."""


class VllmEngine(Engine):
    """Samples with vLLM, beside the model that is trained.

    Log-probabilities are those of the distribution sampled from: at the sampling temperature, or at temperature 1
    when decoding greedily. Sample n of a prompt has a seed of its own, derived from the prompt's.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        pad_id: int,
        max_rows: int,
        memory_share: float = 0.4,
        tensor_parallel: int = 1,
        max_model_len: int | None = None,
        sleep: Literal[1, 2] | None = None,
        eager: bool = False,
        dtype: Literal["auto", "float32", "bfloat16"] = "auto",
    ) -> None:
        """Start vLLM with the architecture of a model and give it the model's weights.

        Args:
            model: a causal model of transformers of which vLLM knows the architecture.
            pad_id: not needed.
            max_rows: completions decoded at a time at most.
            memory_share: of the GPU's memory, what vLLM takes for weights and cache; has no effect on a CPU.
            tensor_parallel: GPUs of this machine that share each layer.
            max_model_len: tokens of prompt and completion at most; None: the model's positions, up to those where its
                rotary angles change.
            sleep: what is given up while the policy learns: the cache, and the weights, which are kept in host memory
                (1) or not at all (2). None: nothing. Has no effect on a CPU.
            eager: do without CUDA graphs and compilation, which take a minute at the start; on a CPU it always does.
            dtype: of weights and cache; `auto`: the model's.

        Raises:
            ValueError: `max_rows` is below 1.
            MissingExtraError, ConfigError: see `check_vllm`; or the model is on another GPU than the first.
            EngineError: vLLM cannot start, or samples from something else than the model.
        """
        if max_rows < 1:
            raise ValueError(f"max_rows must be at least 1, got {max_rows}")
        if model.device.index:
            raise ConfigError(
                f"vLLM samples on the first GPU that it sees, and the model is on {model.device}; set "
                f"CUDA_VISIBLE_DEVICES={model.device.index} and runtime.device=cuda"
            )
        self._model = model
        self._num_ids = model_head(model).vocabulary_size
        self._logit_bias = padding_bias(model)
        config = copy.deepcopy(model.config)
        config.architectures = [type(model).__name__]
        check_vllm(config)
        self._llm: Any = None
        self._in_workers = tensor_parallel > 1
        self._owns_group = not torch.distributed.is_initialized()
        self._has_weights = self._has_cache = True
        self._names = frozenset[str]()
        """Of the model's weights, from the first time that they are loaded."""
        if max_model_len is None and turns(config):  # vLLM started for more takes the angles of long texts for all
            max_model_len = max_sampled(config, 1)
        with TemporaryDirectory(prefix="swerve-vllm-") as folder, self._named("start"), kept_process():
            config.save_pretrained(folder)
            self._llm, is_cpu = start(
                Path(folder),
                sleep=sleep is not None,
                eager=eager,
                dtype=str(model.dtype).removeprefix("torch.") if dtype == "auto" else dtype,
                max_num_seqs=max_rows,
                gpu_memory_utilization=memory_share,
                tensor_parallel_size=tensor_parallel,
                max_model_len=max_model_len,
            )
        self._sleep_level = None if is_cpu else sleep
        self._max_tokens = int(self._llm.model_config.max_model_len)
        self.load(self._own_weights(), version=0)
        self._check_start()

    def _check_start(self) -> None:
        """Compare the log-probs of a few tokens with the model's own: there are layers whose weights do not arrive."""
        try:
            check_own_weights(
                self._model, lambda prompt, params: self.generate([prompt], params, seeds=[0])[0], "vLLM", _MOST_NATS
            )
        except EngineError:
            self.close()
            raise

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        *,
        seeds: Sequence[int],
        budgets: Sequence[int] | None = None,
        on_finished: Callable[[int], None] | None = None,
    ) -> list[tuple[Completion, ...]]:
        """See `Engine.generate`.

        Raises:
            ValueError: see `check_request`.
            EngineError: a prompt does not fit `max_model_len` or has ids that the model does not have; vLLM fails, or
                was closed.
        """
        budgets = [params.max_new_tokens] * len(prompts) if budgets is None else budgets
        check_request(self._model, prompts, params, seeds, budgets)
        self._check_lengths(prompts, budgets)
        if not prompts:
            return []
        with self._named("sample"):
            outputs = self._sampled(prompts, params, seeds, budgets, on_finished)
        completions = map(self._completion, outputs)
        return [tuple(islice(completions, params.num_samples)) for _ in prompts]

    def _check_lengths(self, prompts: Sequence[Sequence[int]], budgets: Sequence[int]) -> None:
        for index, (prompt, budget) in enumerate(zip(prompts, budgets, strict=True)):
            if len(prompt) + budget > self._max_tokens:
                raise EngineError(
                    f"prompt {index} has {len(prompt)} tokens and may grow by {budget}, but vLLM was started for "
                    f"{self._max_tokens}; raise rollout.engine.max_model_len or lower max_new_tokens"
                )

    def _sampled(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        seeds: Sequence[int],
        budgets: Sequence[int],
        on_finished: Callable[[int], None] | None,
    ) -> list[Any]:
        """Return vLLM's outputs, one per sample: its own `n` would give sample i of a prompt the seed plus i."""
        import vllm

        wanted = [
            (prompt, budget, derive_seed(seed, sample))
            for prompt, budget, seed in zip(prompts, budgets, seeds, strict=True)
            for sample in range(params.num_samples)
        ]
        how = [
            vllm.SamplingParams(
                temperature=params.temperature,
                seed=seed,
                max_tokens=budget,
                stop_token_ids=list(params.stop_ids),
                ignore_eos=True,  # only the stop tokens above end a completion
                logit_bias=self._logit_bias or None,
                logprobs=0,
                detokenize=False,
            )
            for _, budget, seed in wanted
        ]
        inputs = [{"prompt_token_ids": list(prompt)} for prompt, _, _ in wanted]
        names: list[str] = []
        with kept_process():
            try:
                names = self._llm.enqueue(inputs, how, use_tqdm=False)
                outputs: list[Any] = self._llm.wait_for_completion(use_tqdm=lambda **_: _Progress(on_finished))
            except BaseException:
                self._llm.llm_engine.abort_request(names)
                raise
        return outputs

    def _completion(self, output: Any) -> Completion:
        (found,) = output.outputs
        ids, reason = tuple(found.token_ids), found.finish_reason
        if reason not in ("stop", "length"):
            raise EngineError(f"vLLM gave up a completion ('{reason}'); VLLM_LOGGING_LEVEL=INFO shows why")
        if max(ids) >= self._num_ids:
            raise EngineError(f"vLLM sampled the token id {max(ids)}, and the model has only {self._num_ids}")
        return Completion(
            token_ids=ids,
            logprobs=tuple(float(place[token].logprob) for token, place in zip(ids, found.logprobs, strict=True)),
            finish_reason=reason,
        )

    def load(self, weights: NamedTensors, *, version: int) -> None:
        """See `Engine.load`.

        Raises:
            EngineError: weights are missing, or vLLM cannot take them.
        """
        with self._named("take new weights"), kept_process():
            try:
                self._take(weights)
            except BaseException:
                self.close()  # some of its weights are new and some are gone
                raise
        self.version = version

    def _take(self, weights: NamedTensors) -> None:
        if not self._has_weights:
            self._llm.wake_up(tags=["weights"])
        given = list[str]()
        missing = self._replace(_recorded(published_weights(self._model, weights), given))
        self._names = self._names or frozenset(given)
        if missing := [*missing, *sorted(self._names.difference(given))]:
            names = ", ".join(missing[:4]) + (", ..." if len(missing) > 4 else "")
            raise EngineError(f"vLLM lacks new weights ({names}); sample with another engine (rollout.engine)")
        self._has_weights = True
        if not self._llm.reset_prefix_cache():
            raise EngineError("vLLM did not forget the keys and values of the old weights")

    def _replace(self, weights: Iterable[tuple[str, Tensor]]) -> list[str]:
        if not self._in_workers:
            return replace_weights(self._llm, iter(weights))
        with TemporaryDirectory(prefix="swerve-vllm-") as folder:
            path = Path(folder) / "weights.safetensors"
            save_file({name: value.detach().cpu().contiguous() for name, value in weights}, path)
            return replace_weights(self._llm, path)

    def _own_weights(self) -> NamedTensors:
        return whole_tensors(self._model) if has_adapter(self._model) else self._model.state_dict().items()

    def sleep(self) -> None:
        """See `Engine.sleep`: on level 2 the weights are gone afterwards."""
        if self._sleep_level is not None and self._has_cache:
            with self._named("sleep"):
                self._llm.sleep(level=self._sleep_level)
            self._has_weights = self._has_cache = False

    def wake(self) -> None:
        """See `Engine.wake`: weights that are gone come from the model in memory, never from the original folder."""
        if not self._has_weights and self._sleep_level == 2:
            self.load(self._own_weights(), version=self.version)
        with self._named("wake up"):
            if not self._has_weights:
                self._llm.wake_up(tags=["weights"])
            if not self._has_cache:
                self._llm.wake_up(tags=["kv_cache"])
        self._has_weights = self._has_cache = True

    def close(self) -> None:
        """See `Engine.close`."""
        if self._llm is not None:
            end(self._llm)
            self._llm = None
            free_memory(owns_group=self._owns_group)

    @contextmanager
    def _named(self, action: str) -> Iterator[None]:
        """Say in one line what vLLM could not do."""
        if self._llm is None and action != "start":
            raise EngineError(f"vLLM cannot {action}: it was closed")
        try:
            yield
        except SwerveError:
            raise
        except Exception as error:
            name = type(self._model).__name__
            raise EngineError(
                f"vLLM {installed_version()} could not {action} ({name}): {said_by(error):.300}; "
                "VLLM_LOGGING_LEVEL=INFO shows more"
            ) from error


def _recorded(weights: Iterable[tuple[str, Tensor]], names: list[str]) -> Iterator[tuple[str, Tensor]]:
    for name, value in weights:
        names.append(name)
        yield name, value


class _Progress:
    """What vLLM takes for a bar of tqdm."""

    def __init__(self, on_finished: Callable[[int], None] | None) -> None:
        self._on_finished = on_finished
        self.n = 0
        self.postfix = ""
        self.format_dict = {"elapsed": 1.0}

    def update(self, num: int) -> None:
        self.n += num
        if self._on_finished is not None:
            self._on_finished(num)

    def refresh(self) -> None:
        """Nothing is shown."""

    def close(self) -> None:
        """Nothing is shown."""
