"""What the heart loads in a fresh process, and that it works where the rest of swerve cannot be imported."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.slow  # each loads what it is about in a process of its own

_TOWN = ("problems", "formats", "recipes", "rewards", "train", "claim", "report", "cli")
_KNOW_NO_TASK = {"swerve.config", "swerve.config.models", "swerve.config.probe"}
_EXTRAS = ("datasets", "pandas", "matplotlib", "reasoning_gym")


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("door", "most"),
    [
        ("functional", 14),
        ("statistics", 13),
        ("grading", 3),
        ("models.folder_checks", 12),
        ("rewards", 45),
        ("probe.in_memory", 79),
    ],
)
def test_how_many_modules_a_door_loads(door: str, most: int) -> None:
    modules = run(f"import sys, swerve.{door}; print(*[name for name in sys.modules if name.startswith('swerve')])")
    loaded = set(modules.split())
    assert len(loaded) <= most, sorted(loaded)
    if door in ("models.folder_checks", "probe.in_memory"):
        assert not [name for name in loaded if name.split(".")[1:2] and name.split(".")[1] in _TOWN]
        assert {name for name in loaded if name.startswith("swerve.config")} <= _KNOW_NO_TASK


def test_the_heart_works_where_nothing_else_can_be_imported() -> None:
    """Models in memory are compared, losses, graders and statistics work: in another program's trainer, say."""
    blocked = (*(f"swerve.{room}" for room in _TOWN), *_EXTRAS)
    printed = run(
        f"""
        import sys
        from importlib.machinery import PathFinder

        class Finder(PathFinder):  # of modules on the path, but for some that are not installed here
            @classmethod
            def find_spec(cls, name, path=None, target=None):
                is_blocked = any(name == room or name.startswith(room + ".") for room in {blocked!r})
                return None if is_blocked else PathFinder.find_spec(name, path, target)

        sys.meta_path[sys.meta_path.index(PathFinder)] = Finder

        import torch
        from tokenizers import Tokenizer, models, pre_tokenizers
        from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

        import swerve
        from swerve import functional, statistics
        from swerve.grading.grade_math import grade_math
        from swerve.grading.text import grade_choice
        from swerve.types import Problem

        words = Tokenizer(models.WordLevel({{word: n for n, word in enumerate("1 2 3 4 + = <end>".split())}}))
        words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<end>")
        sizes = dict(hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, vocab_size=7)
        pair = []
        for seed in (0, 1):
            torch.manual_seed(seed)
            pair.append(LlamaForCausalLM(LlamaConfig(**sizes, max_position_embeddings=32)).eval())
        texts = [("1 + 2 =", " 3"), ("2 + 2 =", " 4 <end>"), "1 + 1 = 2"]
        result = swerve.probe(*pair, texts, tokenizer=tokenizer)
        same = swerve.probe(pair[0], pair[0], texts, tokenizer=tokenizer)

        # The first token of the first response, by hand.
        with torch.no_grad():
            p, q = (m(torch.tensor([[0, 4, 1, 5]])).logits[0, -1].double().log_softmax(-1) for m in pair[::-1])
        by_hand = (p.exp() * (p - q)).sum().item()
        print(len(result.js), abs(result.kl_forward[0] - by_hand) < 1e-6 or abs(result.kl_reverse[0] - by_hand) < 1e-6)
        print(float(same.js.max()), len(result.find_spikes()) >= 0, result.texts[:1])

        loss = functional.clip_loss(
            torch.log(torch.tensor([[0.6]])), torch.log(torch.tensor([[0.5]])), torch.tensor([[1.0]]),
            low=0.2, high=0.1,
        )
        print(round(loss.item(), 6))
        asked = Problem(id="p", family="math", question="", answer="\\\\frac12", grading={{}})
        print(grade_math(asked, "So it is \\\\boxed{{0.5}}.").value, grade_choice(Problem(id="c", family="choice",
              question="", answer="B"), "Answer: B").value, swerve.equivalent("1/2", "0.5"))
        interval = statistics.mean_interval([0.0, 1.0, 1.0, 1.0])
        print(interval.mean, not interval.excludes(0.5))
        print([name for name in sys.modules if name.startswith({blocked!r})])
        """
    )
    assert printed.splitlines() == ["7 True", "0.0 True ('3',)", "-1.1", "1.0 1.0 True", "0.75 True", "[]"]
