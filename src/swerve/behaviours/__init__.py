"""Behaviours: what responses look like, measured without a model. Free of torch."""

from __future__ import annotations

from swerve.behaviours.diversity import (
    distinct_ngram_share,
    embedding_similarity,
    load_embedder,
    ngram_similarity,
    num_distinct,
)
from swerve.behaviours.lexicon import Lexicon, count_behaviours, default_lexicon, read_lexicon
from swerve.behaviours.measurement import behaviour_figures, behaviour_rows
from swerve.behaviours.records import BehaviourRecord
from swerve.behaviours.regions import (
    RESPONSE_FORMATS,
    Regions,
    ResponseFormat,
    boxed_contents,
    has_format,
    is_unfinished,
    split_regions,
)
from swerve.behaviours.repetition import Loop, compression_ratio, loop_at_end, repeated_ngram_share
from swerve.behaviours.scripts import foreign_script_share, script_counts
from swerve.behaviours.signs import answer_candidates, hacking_signs
from swerve.behaviours.summary import summarise
from swerve.behaviours.thinking import dummy_thinking
from swerve.behaviours.words import split_words

__all__ = [
    "RESPONSE_FORMATS",
    "BehaviourRecord",
    "Lexicon",
    "Loop",
    "Regions",
    "ResponseFormat",
    "answer_candidates",
    "behaviour_figures",
    "behaviour_rows",
    "boxed_contents",
    "compression_ratio",
    "count_behaviours",
    "default_lexicon",
    "distinct_ngram_share",
    "dummy_thinking",
    "embedding_similarity",
    "foreign_script_share",
    "hacking_signs",
    "has_format",
    "is_unfinished",
    "load_embedder",
    "loop_at_end",
    "ngram_similarity",
    "num_distinct",
    "read_lexicon",
    "repeated_ngram_share",
    "script_counts",
    "split_regions",
    "split_words",
    "summarise",
]
