"""Tokenizers of the kinds that published models have, made here, and a tiny model to go with one."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

TURNS = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% else %}{{ eos_token }}{% endif %}"
)
"""Ends turns with a token that is not the tokenizer's end of a text, as Phi-3.5 and Gemma 3 do."""
CALLS = TURNS.replace(
    "{{ m.content }}",
    "{% if m.reasoning_content and loop.last %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<call>{{ c.function.name }} {{ c.function.arguments | tojson }}{% endfor %}",
)
"""Writes calls of tools, and leaves out the reasoning of earlier turns, as Qwen3's does."""
THINKS = TURNS.replace("<|assistant|>{% else", "<|assistant|><think>\n{% else")
"""Begins the answer with a thought, as the templates of DeepSeek-R1 and QwQ do."""
SPECIALS = ("<|endoftext|>", "<|end|>", "<|user|>", "<|assistant|>")


def byte_level(
    template: str | None = None, *, unk: str | None = None, begin: bool = False, ends: bool = False
) -> PreTrainedTokenizerFast:
    """Byte-level BPE as GPT-2's: end of text 0, `<|end|>` 1; `ends`: it writes the end of text after every text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate((*SPECIALS, *alphabet))}
    backend = Tokenizer(models.BPE(vocabulary, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(one, special=True, normalized=False) for one in SPECIALS])
    if begin or ends:
        single = " ".join([*["<|user|>"] * begin, "$A", *["<|endoftext|>"] * ends])
        specials = [("<|user|>", 2), ("<|endoftext|>", 0)]
        backend.post_processor = processors.TemplateProcessing(single=single, special_tokens=specials)
    bos = "<|user|>" if begin else None
    wrapped = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>", unk_token=unk, bos_token=bos)
    wrapped.chat_template = template
    return wrapped


def sentence_piece(template: str | None = None) -> PreTrainedTokenizerFast:
    """BPE over pieces as Llama 2's: a space before every text, bytes for what is unknown, `<s>` in front."""
    bytes_ = [f"<0x{number:02X}>" for number in range(256)]
    letters = [chr(number) for number in range(33, 127)]
    merges = [("▁", one) for one in letters] + [("t", "he"), ("h", "e"), ("▁t", "he"), ("▁", "▁")]
    pieces = ["<unk>", "<s>", "</s>", *bytes_, "▁", *letters, *map("".join, merges)]
    merges.insert(0, merges.pop(len(letters) + 1))
    vocabulary = {token: number for number, token in enumerate(dict.fromkeys(pieces))}
    backend = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    strip = decoders.Strip(content=" ", left=1)
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), strip])
    backend.add_special_tokens([AddedToken(one, special=True, normalized=False) for one in pieces[:3]])
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    names = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    wrapped = PreTrainedTokenizerFast(tokenizer_object=backend, **names)
    wrapped.chat_template = template
    return wrapped


def save_model(folder: Path, tokenizer: PreTrainedTokenizerFast, *, eos: int | list[int]) -> LlamaForCausalLM:
    """Write a random two-layer Llama with the tokenizer, and `eos` in its generation_config.json; return it."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=128, initializer_range=0.2, **sizes)
    model = LlamaForCausalLM(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": eos}))
    return model
