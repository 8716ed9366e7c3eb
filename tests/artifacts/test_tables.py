"""Tables that lack a column, or have one of another type."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from swerve.artifacts.responses import ROLLOUTS_SCHEMA
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
