"""Texts that a model cannot read, as far as its folder's files say it before torch is imported.

What is said here is plain: a text alone has more tokens than the model has positions, or a word that its tokenizer has
no token for. Everything else is checked where prompts are encoded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from swerve.artifacts.files import read_json
from swerve.errors import ArtifactError, ConfigError
from swerve.models.folder_metadata import positions_of
from swerve.sandbox.bounded import BoundedCallError, call_each
from swerve.sandbox.limits import shared_limits
from swerve.types import Problem

_WHOLE_WORDS = ("WordLevel", "WordPiece")
"""Kinds of tokenizers with an unknown token for words that they lack."""
_MERGED = 8
"""Tokens that a text may have less than alone where other text stands around it."""


@dataclass(frozen=True, slots=True)
class PlainText:
    """What a tokenizer makes of a text alone."""

    num_tokens: int
    """At least so many; 0 where they were not counted."""
    unknown: str | None
    """A word of it for which it has no token."""

    @property
    def has_unknown(self) -> bool:
        """Whether it has no token for a word of it."""
        return self.unknown is not None


def plain_texts(folder: Path, texts: Sequence[str], num_new: int = 0) -> list[PlainText]:
    """Return what a folder's tokenizer makes of texts; none where its files do not say it, or torch is there already.

    Texts are only looked at where they may have too many tokens with `num_new` more, or unknown words.
    """
    file, limit = folder / "tokenizer.json", positions_of(folder)
    if "torch" in sys.modules or not file.is_file():
        return []
    try:
        kind = read_json(file)["model"].get("type")
    except (ArtifactError, KeyError, TypeError, AttributeError):
        return []  # whoever reads it says what is wrong
    has_words = kind in _WHOLE_WORDS
    looked_at = [has_words or (limit is not None and len(text.encode()) + num_new > limit) for text in texts]
    chosen = [text for text, looked in zip(texts, looked_at, strict=True) if looked]
    if not chosen:
        return []
    limits = shared_limits()
    times = 1 + max(map(len, chosen)) // limits.max_chars
    larger = replace(limits, cpu_seconds=limits.cpu_seconds * times, memory_bytes=limits.memory_bytes * times)
    try:
        counted = iter(call_each(_counting(file), chosen, larger, num_chars=sum(map(len, chosen))))
    except BoundedCallError:
        return []
    margin = 0 if has_words else _MERGED
    found = ((max(0, num - margin), unknown) for num, unknown in counted)
    return [PlainText(*next(found)) if looked else PlainText(0, None) for looked in looked_at]


def _counting(file: Path) -> Callable[[str], tuple[int, str | None]]:
    """Return what counts the tokens of a text, and says which word has none; it reads the tokenizer once."""
    known: list[Any] = []

    def count(text: str) -> tuple[int, str | None]:
        if not known:
            from tokenizers import Tokenizer

            known.append(Tokenizer.from_file(str(file)))
            known[0].no_truncation()
            known[0].no_padding()
        encoded, unknown = known[0].encode(text, add_special_tokens=False), known[0].model
        name = str(getattr(unknown, "unk_token", None))
        number = known[0].token_to_id(name)
        places = (span for token, span in zip(encoded.ids, encoded.offsets, strict=True) if token == number)
        words = (text[start:end].strip() for start, end in places)
        return len(encoded.ids), next((word for word in words if word != name), None)

    return count


def check_asked(models: Mapping[str, Path | str], problems: Sequence[Problem], num_new: int | None) -> None:
    """Check that models can read problems, and write so many tokens after each, as far as their files say.

    Args:
        models: by label.
        problems: that are asked.
        num_new: tokens of a completion; None: as many as fit.

    Raises:
        ConfigError: a question is too long for a model, or has a word that its tokenizer lacks.
    """
    texts = [_asked(problem) for problem in problems]
    for label, path in models.items():
        limit = positions_of(Path(path))
        for problem, plain in zip(problems, plain_texts(Path(path), texts, num_new or 1), strict=False):
            if plain.has_unknown:
                raise ConfigError(
                    f"the model's tokenizer has no token for a word of problem {problem.id!r}; '{plain.unknown:.40}' "
                    f"is not in its vocabulary, and the question is {problem.question!r:.200}; ask in words that it "
                    "has, or use a model whose vocabulary covers them"
                )
            if limit is not None and plain.num_tokens + (num_new or 1) > limit:
                grows = "" if num_new is None else f" and may grow by {num_new}, together"
                fix = "" if num_new is None else "lower --max-new-tokens, or "
                raise ConfigError(
                    f"the prompt of problem {problem.id!r} has at least {plain.num_tokens} tokens for model '{label}'"
                    f"{grows or ','} more than the model's {limit} positions; {fix}leave long questions out"
                )


def _asked(problem: Problem) -> str:
    """Return what a user is certain to have said in a prompt."""
    said = [content for role, content in problem.messages if role == "user"]
    return said[-1] if said else problem.question


def longest(models: Iterable[Path | str]) -> int | None:
    """Return how many tokens each of some models can read; None: their files do not say it."""
    limits = [positions_of(Path(path)) for path in models]
    return None if None in limits else min((limit for limit in limits if limit is not None), default=None)
