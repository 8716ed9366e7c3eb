"""TRL's own functions on given numbers, for test_against_trl.py.

Runs under the Python of an environment that has TRL: reads `{"grpo": [...], "dpo": [...], "logits": [...]}` from the
JSON file named by its argument and prints one JSON object with the same lists of results. A real `GRPOTrainer` is built
around a random model of a few hundred weights; only where it would sample or run that model does it get the given
numbers instead. Everything is float64.
"""

from __future__ import annotations

import json
import sys
import tempfile
from types import SimpleNamespace
from typing import Any

import torch
import trl
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from trl import DPOTrainer, GRPOConfig, GRPOTrainer
from trl.trainer.utils import entropy_from_logits, selective_log_softmax, split_tensor_dict

_DEFAULTS = (
    "beta",
    "delta",
    "epsilon",
    "epsilon_high",
    "importance_sampling_level",
    "loss_type",
    "mask_truncated_completions",
    "multi_objective_aggregation",
    "num_iterations",
    "scale_rewards",
    "top_entropy_quantile",
    "use_bias_correction_kl",
    "use_vllm",
    "vllm_importance_sampling_clip_max",
    "vllm_importance_sampling_clip_min",
    "vllm_importance_sampling_correction",
    "vllm_importance_sampling_mode",
)


def _save_model(folder: str) -> None:
    """Save a model and a tokenizer that GRPOTrainer accepts; neither is ever run."""
    words = {"<pad>": 0, "<eos>": 1, "<unk>": 2, "go": 3}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(words, unk_token="<unk>")),
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
    )
    config = Qwen3Config(
        vocab_size=len(words),
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=8,
        pad_token_id=0,
        eos_token_id=1,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _matrix(rows: list[list[float]]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


class _GivenNumbers(GRPOTrainer):
    """GRPOTrainer whose completions, rewards and log-probabilities are those of a case."""

    case: dict[str, Any]
    logprobs: Tensor
    rows: slice

    def _generate(self, prompts: list[str]) -> tuple[Any, ...]:
        lengths = self.case["lengths"]
        sampled = self.case.get("sampler_logprobs")
        if sampled is not None:
            sampled = [row[:length] for row, length in zip(sampled, lengths, strict=True)]
        completions = [[3] * length for length in lengths]
        return [[3]] * len(prompts), completions, None, ["go"] * len(prompts), sampled, {}, None, []

    def _calculate_rewards(self, *_: Any) -> Tensor:
        return _matrix([[reward] for reward in self.case["rewards"]])

    def _get_per_token_logps_and_entropies(
        self, model: Any, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        if torch.is_grad_enabled():
            entropies = self.case.get("entropies", self.case["logprobs"])
            return self.logprobs[self.rows], _matrix(entropies)[self.rows], None
        return _matrix(self.case["ref_logprobs" if model is self.ref_model else "old_logprobs"]), None, None


def _trainer(case: dict[str, Any], model_path: str, folder: str) -> _GivenNumbers:
    num_rows, num_parts = len(case["lengths"]), case.get("num_micro_batches", 1)
    options = {"max_completion_length": len(case["logprobs"][0]), **case["config"]}
    config = GRPOConfig(
        output_dir=folder,
        use_cpu=True,
        bf16=False,
        report_to="none",
        per_device_train_batch_size=num_rows // num_parts,
        gradient_accumulation_steps=num_parts,
        num_generations=case["num_generations"],
        num_iterations=2,  # with one iteration TRL takes the old log-probabilities to be the present ones
        pad_to_multiple_of=None,
        **options,
    )
    dataset = Dataset.from_dict({"prompt": ["go"] * num_rows})
    trainer = _GivenNumbers(model_path, lambda completions, **_: [0.0] * len(completions), config, dataset)
    trainer.case = case
    trainer.use_vllm = "sampler_logprobs" in case
    trainer.current_gradient_accumulation_steps = num_parts
    trainer.model.train()
    return trainer


def _grpo(case: dict[str, Any], model_path: str, folder: str) -> dict[str, Any]:
    """Return advantages, loss of the update (the sum over its micro-batches), gradient and importance weights."""
    trainer = _trainer(case, model_path, folder)
    num_rows, num_parts = len(case["lengths"]), case.get("num_micro_batches", 1)
    batch = trainer._generate_and_score_completions([{"prompt": "go"}] * num_rows)
    trainer.logprobs = _matrix(case["logprobs"]).requires_grad_()
    loss, size = torch.zeros(()), num_rows // num_parts
    for index, part in enumerate(split_tensor_dict(batch, num_parts)):
        trainer.rows = slice(index * size, (index + 1) * size)
        loss = loss + trainer._compute_loss(trainer.model, part)
    loss.backward()
    weights = batch.get("importance_sampling_ratio")
    return {
        "advantages": batch["advantages"].tolist(),
        "loss": loss.item(),
        "gradient": trainer.logprobs.grad.tolist(),
        "weights": None if weights is None else weights.tolist(),
    }


def _dpo(case: dict[str, Any]) -> dict[str, Any]:
    """Return the sigmoid loss of DPOTrainer and its gradients, from log-probabilities summed over each completion."""
    chosen, rejected = (_matrix([[x] for x in case[name]]).requires_grad_() for name in ("chosen", "rejected"))
    logprobs = torch.cat([chosen, rejected])
    nothing = torch.zeros_like(logprobs)
    outputs = SimpleNamespace(log_probs=logprobs, entropy=nothing, mean_logits=nothing, is_top1=nothing.bool())
    accelerator = SimpleNamespace(device="cpu", gather=lambda x: x, gather_for_metrics=lambda x: x)
    metrics = {"eval": {name: [] for name in _DPO_METRICS}}
    trainer = SimpleNamespace(
        model=SimpleNamespace(training=False),
        accelerator=accelerator,
        aux_loss_enabled=False,
        ld_alpha=None,
        precompute_ref_logps=True,
        f_divergence_type="reverse_kl",
        loss_types=["sigmoid"],
        loss_weights=[1.0],
        beta=case["beta"],
        use_weighting=False,
        _metrics=metrics,
        _total_train_tokens=0,
    )
    mask = torch.ones(len(logprobs), 2, dtype=torch.long)
    inputs = {
        "input_ids": mask,
        "attention_mask": mask,
        "completion_mask": mask,
        "ref_chosen_logps": _matrix(case["ref_chosen"]),
        "ref_rejected_logps": _matrix(case["ref_rejected"]),
    }
    compute = getattr(DPOTrainer._compute_loss, "__wrapped__", DPOTrainer._compute_loss)  # without its profiler
    loss = compute(trainer, lambda **_: outputs, inputs, False)
    loss.backward()
    return {"loss": loss.item(), "gradient": [chosen.grad.flatten().tolist(), rejected.grad.flatten().tolist()]}


_DPO_METRICS = (
    "entropy",
    "logits/chosen",
    "logits/rejected",
    "mean_token_accuracy",
    "rewards/chosen",
    "rewards/rejected",
    "rewards/accuracies",
    "rewards/margins",
    "logps/chosen",
    "logps/rejected",
)


def _logits(case: dict[str, Any]) -> dict[str, Any]:
    """Return log-probabilities and entropies of logits, and the gradient of the sum of both."""
    logits = _matrix(case["logits"]).requires_grad_()
    logprobs = selective_log_softmax(logits, torch.tensor(case["ids"]), temperature=case["temperature"])
    entropies = entropy_from_logits(logits / case["temperature"])
    (logprobs + entropies).sum().backward()
    return {"logprobs": logprobs.tolist(), "entropies": entropies.tolist(), "gradient": logits.grad.tolist()}


def main(path: str) -> None:
    """Print the results for the cases in the JSON file at `path`."""
    with open(path, encoding="utf-8") as stream:
        cases = json.load(stream)
    torch.set_default_dtype(torch.float64)  # TRL builds some tensors from lists, in the default type
    with tempfile.TemporaryDirectory() as folder:
        _save_model(f"{folder}/model")
        fields = GRPOConfig.__dataclass_fields__
        results = {
            "version": trl.__version__,
            "defaults": {name: fields[name].default for name in _DEFAULTS},
            "grpo": [_grpo(case, f"{folder}/model", folder) for case in cases["grpo"]],
            "dpo": [_dpo(case) for case in cases["dpo"]],
            "logits": [_logits(case) for case in cases["logits"]],
        }
    print(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1])
