"""Tables that lack a column, or have one of another type."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from swerve.artifacts.response_columns import ROLLOUTS_SCHEMA, SEQUENCES_SCHEMA
from swerve.artifacts.responses import read_response_table
from swerve.artifacts.tables import read_table, write_table
from swerve.errors import ArtifactError


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "step_000001.parquet"
    write_table(path, [{**dict.fromkeys(ROLLOUTS_SCHEMA.names), "group": 3, "text": "a"}], ROLLOUTS_SCHEMA)
    return path


def test_a_missing_column_is_named(table):
    pq.write_table(pq.read_table(table).drop_columns(["reward"]), table)
    with pytest.raises(ArtifactError, match=r"lacks the columns \['reward'\]"):
        read_table(table, ROLLOUTS_SCHEMA)


def test_a_column_of_another_type_is_refused(table):
    read = pq.read_table(table)
    place = read.schema.get_field_index("group")
    pq.write_table(read.set_column(place, "group", pa.array(["three"])), table)
    with pytest.raises(ArtifactError, match="has a column of another type"):
        read_table(table, ROLLOUTS_SCHEMA)


def test_a_table_from_before_a_column_has_nothing_there(tmp_path):
    path = tmp_path / "sequences.parquet"
    row = {**dict.fromkeys(SEQUENCES_SCHEMA.names), "text": "a", "sentence_starts": [0, 3], "wrong_sentence": 1}
    write_table(path, [row], SEQUENCES_SCHEMA)
    assert read_response_table(path, SEQUENCES_SCHEMA)[0].wrong_sentence == 1
    pq.write_table(pq.read_table(path).drop_columns(["sentence_starts", "wrong_sentence"]), path)
    (found,) = read_response_table(path, SEQUENCES_SCHEMA)
    assert (found.text, found.sentence_starts, found.wrong_sentence) == ("a", (), None)
    assert read_table(path, SEQUENCES_SCHEMA).schema.names == SEQUENCES_SCHEMA.names
