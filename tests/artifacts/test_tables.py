"""Tables of earlier versions: columns that were added later are null, columns that always were there must be."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from swerve.artifacts.tables import ROLLOUTS_SCHEMA, read_table, write_table
from swerve.errors import ArtifactError


def _old_table(path, *, without):
    row = dict.fromkeys(ROLLOUTS_SCHEMA.names)
    write_table(path, [{**row, "group": 3, "text": "a"}], ROLLOUTS_SCHEMA)
    pq.write_table(pq.read_table(path).drop_columns(list(without)), path)


def test_a_column_that_was_added_later_is_null_in_an_older_table(tmp_path):
    path = tmp_path / "step_000001.parquet"
    _old_table(path, without=("extracted", "detail"))
    table = read_table(path, ROLLOUTS_SCHEMA)
    assert table.schema.names == ROLLOUTS_SCHEMA.names
    (row,) = table.to_pylist()
    assert (row["group"], row["text"], row["extracted"], row["detail"]) == (3, "a", None, None)


def test_any_other_missing_column_is_named(tmp_path):
    path = tmp_path / "step_000001.parquet"
    _old_table(path, without=("extracted", "reward"))
    with pytest.raises(ArtifactError, match=r"lacks the columns \['reward'\]"):
        read_table(path, ROLLOUTS_SCHEMA)
