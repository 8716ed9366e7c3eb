"""Every column that a table of responses can have, and which of them each of swerve's tables has."""

from __future__ import annotations

import pyarrow as pa

from swerve.artifacts.tables import Columns, schema_of

_INT, _FLOAT, _BOOL, _TEXT = pa.int32(), pa.float32(), pa.bool_(), pa.string()
_IDS, _FLOATS, _TEXTS = pa.list_(_INT), pa.list_(_FLOAT), pa.list_(_TEXT)
COLUMNS: Columns = {
    "sequence_id": (_INT, "number among the sequences of a probe"),
    "problem_id": (_TEXT, "name of the problem; of an imported response the file's, or one made from the prompt"),
    "sample": (pa.int64(), "number among the responses to the problem by one model and step, from 0"),
    "group": (_INT, "number of the prompt within the step of training"),
    "label": (_TEXT, "who wrote it: a model, a checkpoint; `imported` in a probe of responses from elsewhere"),
    "step": (pa.int64(), "step of training, as its program counts; of a rollout the update that learns from it"),
    "version": (pa.int64(), "updates that the weights which sampled it had had"),
    "population": (_TEXT, "part of the data that it belongs to: a set of an imported file, or why the probe reads it"),
    "family": (_TEXT, "of the problem; `imported`: not known"),
    "kind": (_TEXT, "kind or level of the problem; `all`: none is known"),
    "difficulty": (pa.float64(), "difficulty of the problem; null: it has none"),
    "question": (_TEXT, "the problem, before any prompt format; null: not known"),
    "gold": (_TEXT, "the right answer; null: not known"),
    "messages": (_TEXT, "JSON list of `{role, content}`; null: question or prompt say it"),
    "problem_details": (_TEXT, "JSON object: group, alternatives, solution, prefix, begun, grader, grading, metadata"),
    "prompt": (_TEXT, "the text as the model read it, chat template filled in"),
    "prompt_ids": (_IDS, "token ids the model was given; null: not tokenised"),
    "completion_ids": (_IDS, "token ids after the prompt, end of sequence included; null: not tokenised, or empty"),
    "sampled": (pa.list_(_BOOL), "per token after the prompt, whether the model sampled it; null: it sampled all"),
    "logprobs": (_FLOATS, "of each token at the temperature sampled at (greedy: at 1), nats; null: not sampled"),
    "text": (_TEXT, "the completion without special tokens, or as it was written; null: only ids are known"),
    "turns": (_TEXT, "JSON list of the messages after the prompt, tools' answers too; null: one text is all"),
    "token_starts": (_IDS, "character offset in `text`, per token"),
    "token_ends": (_IDS, "where the token ends; equal to its start: no text"),
    "boundary": (_TEXT, "`joint` or `split`, how text became ids; null: ids were given, or there are none"),
    "reward": (pa.float64(), "the graded value, or as recorded; null: none, or a failure, see `status`"),
    "correct": (_BOOL, "whether it is right; a failure is not; null: not known"),
    "parts": (_TEXT, "JSON object of the reward's parts"),
    "status": (_TEXT, "`graded`, `unparsed`, `timeout` or `error`; null: another program graded it, or nobody"),
    "answered": (_BOOL, "whether there is an answer in the text; without one a scale for the format may still pay"),
    "extracted": (_TEXT, "the answer that was read; null: none"),
    "detail": (_TEXT, "why there is no reward: the limit that was reached, what failed"),
    "finish_reason": (_TEXT, "`stop` or `length`; as recorded where another program wrote it"),
    "temperature": (pa.float64(), "sampled at; 0: greedy"),
    "seed": (pa.int64(), "of this sample"),
    "advantages": (_FLOATS, "per token, as the update used them; null: no update used this completion"),
    "kl": (_FLOATS, "the KL term at each token, nats; null: the objective has none"),
    "clipped": (_FLOATS, "share of the updates that cut off the token's gradient; null: no clipping"),
    "wrong_positions": (_IDS, "positions of all wrong tokens"),
    "wrong_expected": (_TEXTS, "what a right step has there, per wrong position"),
    "first_wrong": (_INT, "position of the first wrong token; null: none known"),
    "sentence_starts": (_IDS, "first token of each sentence or step; null: no label names one"),
    "wrong_sentence": (_INT, "number of the first wrong one of these, from 0; null: no label names one"),
    "trace_right": (_BOOL, "right, and no step marked by the checker; null: steps are not checked"),
    "entropy": (_FLOAT, "mean over the completion's positions, nats"),
    "place": (_TEXT, "file and line"),
    "extra": (_TEXT, "JSON object: the record's other fields; null: none"),
}
"""Every column that a table of responses can have."""
SCHEMA = schema_of(COLUMNS)


def response_schema(*names: str) -> pa.Schema:
    """Return the schema of a table with some of the columns."""
    return pa.schema([SCHEMA.field(name) for name in names])


_PROBLEM = ("problem_id", "family", "kind", "question", "gold", "messages", "difficulty", "problem_details")
_VERDICT = ("reward", "correct", "parts", "status", "answered", "extracted", "detail")
_TOKENS = ("prompt_ids", "completion_ids", "sampled", "text", "turns", "token_starts", "token_ends")
SIGNAL = ("advantages", "kl", "clipped")
ROLLOUTS_SCHEMA = response_schema(
    *("group", "sample", "problem_id", "step", "version", "prompt_ids", "completion_ids", "logprobs", "text"),
    *(*_VERDICT, "finish_reason", *SIGNAL),
)
"""Of `rollouts/step_*.parquet`."""
EVALUATION_SCHEMA = response_schema(
    *(*_PROBLEM, "temperature", "sample", "prompt_ids", "completion_ids", "text"),
    *("reward", "correct", "status", "answered", "extracted", "finish_reason", "trace_right", "entropy"),
)
"""Of `eval/step_*.parquet`: of each problem the greedy completion, whose `temperature` is 0, and the sampled ones."""
SAMPLES_SCHEMA = response_schema(
    *(*_PROBLEM, "sample", "label", "prompt", "prompt_ids", "completion_ids", "logprobs", "text", "turns"),
    *(*_VERDICT, "finish_reason", "temperature", "seed", "entropy", "extra"),
)
"""Of the files that `swerve sample` writes."""
RESPONSES_SCHEMA = response_schema(
    *(*_PROBLEM, "sample", "label", "step", "population", "prompt", *_TOKENS, "logprobs", "boundary"),
    *(*_VERDICT, "finish_reason", "temperature", "place", "extra"),
)
"""Of what `swerve data import` and `select` write."""
SEQUENCES_SCHEMA = response_schema(
    *("sequence_id", "problem_id", "kind", "population", "label", "question", "gold", *_TOKENS),
    *("extracted", "correct", "first_wrong", "wrong_positions", "wrong_expected", "sentence_starts", "wrong_sentence"),
)
"""Of the probe's `sequences.parquet`."""
