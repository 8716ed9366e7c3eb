"""What a tokenizer or its chat template does to prompts that their texts do not show."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from transformers import PreTrainedTokenizerBase

from swerve.prompts.encode import each_bounded, messages_of
from swerve.prompts.templates import NO_ARGUMENTS, TemplateArguments, source_of, turn_end
from swerve.sandbox.bounded import BoundedCallError
from swerve.text import counted
from swerve.tokens import special_texts, tokenize
from swerve.types import Problem


def prompt_notes(
    tokenizer: PreTrainedTokenizerBase,
    problems: Sequence[Problem],
    arguments: TemplateArguments = NO_ARGUMENTS,
    stop_ids: Collection[int] = (),
) -> list[str]:
    """Return lines on what the tokenizer or its chat template does to prompts that their texts do not show.

    `stop_ids` are the model's, where they are known: the end of a turn may be one that is not special.
    """
    notes, end = [], turn_end(tokenizer, arguments, stop_ids)
    if end not in (None, tokenizer.eos_token_id):
        notes.append(
            f"the chat template ends a turn with {tokenizer.convert_ids_to_tokens(end)!r}, not with "
            f"{tokenizer.eos_token!r}: supervised completions end with it, and sampling stops at both"
        )
    # Where the tokenizer fails, encoding the prompts says so.
    if not tokenizer.chat_template and _appends(tokenizer):
        notes.append(f"the tokenizer of {source_of(tokenizer)} writes tokens after every text: prompts go without them")
    return [*notes, *marks_notes(tokenizer, problems)]


def marks_notes(tokenizer: PreTrainedTokenizerBase, problems: Sequence[Problem]) -> list[str]:
    """Return a line on how many problems' texts hold those of special tokens; no line if no text does."""
    pattern = special_texts(tokenizer)
    texts = ["\n".join(text for _, text in messages_of(problem)) for problem in problems]
    written = [mark["token"] for text in texts if (mark := pattern.search(text))]
    if not written:
        return []
    share = f"{len(written)} of {counted(len(problems), 'prompt')}"
    holds = "holds" if len(written) == 1 else "hold"
    return [f"{share} {holds} the text of special tokens such as {written[0]!r}; it is encoded as text"]


def _appends(tokenizer: PreTrainedTokenizerBase) -> bool:
    def appends(text: str) -> bool:
        return len(tokenizer(text)["input_ids"]) > len(tokenize(tokenizer, text).ids)

    try:
        return bool(each_bounded(tokenizer, appends, ["1"], [1])[0])
    except BoundedCallError:
        return False
