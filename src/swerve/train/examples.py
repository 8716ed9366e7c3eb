"""Examples to imitate, read from files: responses to prompts, and plain text of which every token is learned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from transformers import PreTrainedTokenizerBase

from swerve.artifacts.messages import is_thought_and_text
from swerve.artifacts.responses import Response, read_provenance
from swerve.batch import TokenSequence
from swerve.config.recipe import Config
from swerve.config.stages import SftStage
from swerve.config.supervised_stage import SupervisedStage
from swerve.errors import ArtifactError, ConfigError
from swerve.formats.records import FileRecord
from swerve.models.model_folder import tokenizer_fingerprint
from swerve.probe.rollouts.encoder import ResponseEncoder
from swerve.problems import ProblemFamily
from swerve.problems.data_specs import parse_spec
from swerve.problems.held_out import HeldOut, held_out_of
from swerve.problems.learned import read_learned
from swerve.prompts.encode import encode_completions, encode_prompts, encode_texts, is_asked
from swerve.prompts.notes import marks_notes
from swerve.prompts.templates import (
    TemplateArguments,
    as_response,
    completion_end,
    end_token,
    template_arguments,
    with_thought,
)
from swerve.seeds import derive_seed
from swerve.text import counted
from swerve.tokens import CUT, num_ids, with_end
from swerve.types import Prompt

_MAX_TEXT_LENGTH = 1024


@dataclass(frozen=True, slots=True)
class Example:
    """Token ids of a prompt and of what is learned after it."""

    problem: str
    """Id of its problem; of text the sequence's own name."""
    sequences: tuple[TokenSequence, ...]
    """One for each run of tokens that the model wrote, after all that stands before it."""

    def __len__(self) -> int:
        """Tokens of the longest sequence, which has all of the others."""
        prompt, completion = self.sequences[-1]
        return len(prompt) + len(completion)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleReader:
    """Reads examples for one model."""

    tokenizer: PreTrainedTokenizerBase
    arguments: TemplateArguments = field(default_factory=TemplateArguments)
    """Of its chat template."""
    stop_ids: tuple[int, ...]
    """Tokens that end a completion."""
    positions: int | None
    """The model's; None: any number."""
    max_length: int | None
    """Longest sequence, tokens; None: `positions`, of text at most 1,024."""
    packing: bool
    """Whether documents of text share sequences."""
    note: Callable[[str], None]
    """Told of what is left out."""
    held_out: HeldOut = field(default_factory=HeldOut)
    """What is not learned."""

    @classmethod
    def of_stage(
        cls,
        stage: SupervisedStage,
        config: Config,
        family: ProblemFamily | None,
        tokenizer: PreTrainedTokenizerBase,
        *,
        stop_ids: tuple[int, ...],
        positions: int | None,
        note: Callable[[str], None],
    ) -> ExampleReader:
        """Return what reads a stage's examples; see the fields. None for a family: nothing is held out."""
        held_out = HeldOut()
        if family is not None and stage.examples:
            held_out = held_out_of(family, seed=derive_seed(config.seed, "problems"), keep=config.keep_heldout)
        return cls(
            tokenizer=tokenizer,
            arguments=template_arguments(config.model),
            stop_ids=stop_ids,
            positions=positions,
            max_length=stage.max_length,
            packing=isinstance(stage, SftStage) and stage.packing,
            note=note,
            held_out=held_out,
        )

    def read(self, specs: Sequence[str]) -> list[Example]:
        """Return the examples of data specs, in their order.

        Raises:
            ConfigError: a source does not exist, all in it is held out, or nothing in it fits `max_length`; the
                tokenizer has no token for a word, or none that ends a sequence.
            ArtifactError: a file cannot be read, or a record is neither a response nor plain text.
        """
        examples: list[Example] = []
        for spec in specs:
            records, responses = read_learned(spec, self.held_out, self.note)
            if responses:
                recorded = read_provenance(parse_spec(spec).path).get("tokenizer", {})
                examples += self.examples(responses, source=spec, sha256=recorded.get("sha256"))
            else:
                examples += self._text_examples(spec, records)
        return examples

    def examples(self, responses: Sequence[Response], *, source: str, sha256: str | None = None) -> list[Example]:
        """Return responses as examples: by their token ids where those are of this tokenizer, else by their text.

        Args:
            responses: to prompts that are known.
            source: what they are called in messages.
            sha256: of the vocabulary that recorded ids are of; None: they are taken where they give the texts.

        Raises:
            ConfigError: none fits `max_length`, or the tokenizer cannot encode one.
            ArtifactError: the prompt of a response is not known.
        """
        # Which responses are learned by their ids.
        size = num_ids(self.tokenizer)  # an engine may have sampled from a head's padding
        is_by_ids = [max(response.completion_ids, default=size) < size for response in responses]
        if sha256 is None:
            keeps_ids = all(is_by_ids) and all(map(self._gives_text, responses))
        else:
            keeps_ids = tokenizer_fingerprint(self.tokenizer) == sha256
        is_by_ids = [by_ids and keeps_ids for by_ids in is_by_ids]
        # The others by their text, or by their messages where these are more than a thought and a text.
        of_messages, of_texts = list[Response](), list[Response]()
        for response, by_ids in zip(responses, is_by_ids, strict=True):
            if not by_ids:
                has_more = bool(response.turns) and not is_thought_and_text(response.turns)
                (of_messages if has_more else of_texts).append(response)
        try:
            by_messages, by_text = self._by_messages(of_messages, source), self._by_text(of_texts, source)
        except ConfigError as error:
            raise ConfigError(f"{source}: {error}") from None
        others = {id(response): example for response, example in zip(of_texts, by_text, strict=True)} | by_messages
        encoded = [
            self._by_ids(response) if by_ids else others[id(response)]
            for response, by_ids in zip(responses, is_by_ids, strict=True)
        ]
        # What is too long is left out, and said.
        limit = min(length for length in (self.max_length, self.positions, 2**31) if length is not None)
        kept = [example for example in encoded if len(example) <= limit]
        if not kept:
            raise ConfigError(
                f"none of {len(encoded)} examples of {source} has at most {limit} tokens; raise max_length"
            )
        if len(kept) < len(encoded):
            self.note(f"{source}: {len(encoded) - len(kept)} of {len(encoded)} examples have more than {limit} tokens")
        num_wrong = sum(response.correct is False for response in responses)
        if num_wrong:
            self.note(
                f"{source}: {num_wrong} of {len(responses)} responses are recorded as wrong and are learned all the "
                "same; swerve data select --correct leaves them out"
            )
        return kept

    def _gives_text(self, response: Response) -> bool:
        """Whether a response's token ids give its text by this tokenizer."""
        text = self.tokenizer.decode(list(response.completion_ids), skip_special_tokens=True)
        return response.text is None or text == response.text

    def _by_ids(self, response: Response) -> Example:
        prompt, completion = response.prompt_ids, response.completion_ids
        if completion[-1] not in self.stop_ids and response.finish_reason != "length":
            completion = (*completion, completion_end(self.tokenizer, self.arguments, self.stop_ids))
        if response.is_one_turn:
            return Example(response.problem.id, ((prompt, completion),))
        # What others wrote is read, not learned: each turn is learned after all before it.
        ids = (*prompt, *completion)
        own = [*response.sampled, *[True] * (len(completion) - len(response.sampled))]
        edges = [place for place, (one, next_) in enumerate(pairwise([False, *own, False])) if one != next_]
        runs = [(len(prompt) + start, len(prompt) + end) for start, end in zip(edges[::2], edges[1::2], strict=True)]
        return Example(response.problem.id, tuple((ids[:start], ids[start:end]) for start, end in runs))

    def _by_messages(self, responses: Sequence[Response], source: str) -> dict[int, Example]:
        """Return, by `id`, the examples of responses of several messages or with calls, as the template renders them.

        Raises:
            ArtifactError: the template does not render all that the model wrote in one of them; of how many.
        """
        unread = Counter[str]()
        encoded = ResponseEncoder(self.tokenizer, arguments=self.arguments).encode_all(responses, unread)
        of_all = f"of {counted(len(responses), 'response')} with several messages or calls of tools"
        if unread:
            num, (reason, _) = unread.total(), unread.most_common(1)[0]
            left_out = next(one for number, one in enumerate(responses) if number not in encoded)
            raise ArtifactError(
                f"{source}: {num} {of_all} cannot be learned as the model wrote them: {reason} (the first: "
                f"{left_out.place}); leave them out, or give a model whose chat template renders them"
            )
        if responses:
            self.note(f"{source}: all {of_all} are learned as the chat template writes them; results are only read")
        return {
            id(responses[number]): self._by_ids(tokens.put_into(responses[number]))
            for number, tokens in encoded.items()
        }

    def _by_text(self, responses: Sequence[Response], source: str) -> list[Example]:
        problems, texts = [response.problem for response in responses], list[str]()
        for response in responses:
            if not response.has_prompt or response.text is None:
                raise ArtifactError(
                    f"{response.place}: its token ids are of another tokenizer and its prompt is not recorded as text; "
                    "swerve sample records both"
                )
            apart = response.turns[0] if response.turns else None
            texts.append(response.text if apart is None else with_thought(self.tokenizer, apart, self.arguments))
        asked_ones = [problem for problem in problems if is_asked(problem)]
        rendered = iter(encode_prompts(self.tokenizer, asked_ones, self.arguments))
        for note in marks_notes(self.tokenizer, asked_ones):
            self.note(f"{source}: {note}")
        others = [response for response, problem in zip(responses, problems, strict=True) if not is_asked(problem)]
        texts_read = [response.prompt or "" for response in others]  # the text as the model read it
        as_read = iter(encode_texts(self.tokenizer, texts_read, [response.place for response in others]))
        prompts = [
            next(rendered) if is_asked(problem) else Prompt(problem=problem, token_ids=tuple(next(as_read)))
            for problem in problems
        ]
        completions = encode_completions(
            self.tokenizer,
            prompts,
            texts,
            self.arguments,
            stop_ids=self.stop_ids,
            cut_off={number for number, response in enumerate(responses) if response.finish_reason == "length"},
            note=lambda line: self.note(f"{source}: {line}"),
        )
        return [
            Example(prompt.problem.id, ((prompt.token_ids, completion),))
            for prompt, completion in zip(prompts, completions, strict=True)
        ]

    def _text_examples(self, source: str, records: Sequence[FileRecord]) -> list[Example]:
        """Return documents as sequences whose every token is learned: each after the token before it."""
        end = end_token(self.tokenizer)
        begin = self.tokenizer.bos_token_id if self.tokenizer.bos_token_id is not None else end
        limit = self.max_length or min(self.positions or _MAX_TEXT_LENGTH, _MAX_TEXT_LENGTH)
        limit = min(limit, self.positions or limit) - 1  # the token before the first stands in the sequence as well
        kept = []
        for record in records:
            text = record.values["text"]
            if isinstance(text, str) and text.strip():
                kept.append((text, record.place))
        texts = [as_response(self.tokenizer, text) for text, _ in kept]
        if num_cut := sum(map(CUT.__contains__, texts)):
            self.note(
                f"{source}: {num_cut} of {counted(len(kept), 'text')} {'holds' if num_cut == 1 else 'hold'} the text "
                "of special tokens; it is encoded as text"
            )
        encoded = encode_texts(self.tokenizer, texts, [place for _, place in kept])
        documents = [with_end(self.tokenizer, tokens, end, ()) for tokens in encoded]
        if not documents or limit < 1:
            raise ConfigError(f"{source} has no text, or max_length is below 2 tokens")
        streams = [[token for document in documents for token in document]] if self.packing else documents
        return [
            Example(
                f"{source} {number}:{start}",
                (((stream[start - 1] if start else begin,), tuple(stream[start : start + limit])),),
            )
            for number, stream in enumerate(streams)
            for start in range(0, len(stream), limit)
        ]
