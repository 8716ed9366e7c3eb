"""Records that supervised stages learn from, or validate on: responses or plain text, without what is held out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from swerve.artifacts.files import regular_file
from swerve.artifacts.responses import Response
from swerve.errors import ArtifactError, ConfigError
from swerve.formats.imported_responses import LeftOut, responses_of
from swerve.formats.records import FileRecord
from swerve.problems.data_specs import parse_spec, read_source
from swerve.problems.held_out import HeldOut


def read_learned(spec: str, held_out: HeldOut, note: Callable[[str], None]) -> tuple[list[FileRecord], list[Response]]:
    """Return a data spec's records of plain text, or its responses; the other list is empty.

    Of a file `.txt` paragraphs are compared, of records whole ones.

    Args:
        spec: the source.
        held_out: what is left out.
        note: told in one line how many were, and how many records had no response.

    Raises:
        ConfigError: the source does not exist, or all in it is held out.
        ArtifactError: a file cannot be read, or a record is neither a response nor plain text.
    """
    path = parse_spec(spec).path
    if path.suffix == ".txt":
        return _read_text(path, spec, held_out, note), []

    # Records of plain text: none that holds a held-out question.
    records = list(read_source(spec, default_split="train"))
    if all(record.values.keys() == {"text"} for record in records):
        texts = [str(record.values["text"] or "") for record in records]
        kept = [record for record, text in zip(records, texts, strict=True) if not held_out.found_in(text)]
        _note_left_out(spec, len(records) - len(kept), len(records), note)
        return kept, []

    # Responses: none that is asked a held-out question.
    left_out = LeftOut()
    responses = list(responses_of(path, records, left_out=left_out))
    if left_out.num_failed:
        note(f"{spec}: {left_out.note}")
    asked = [one for one in responses if not any(map(held_out.asked_in, one.asked_texts))]
    _note_left_out(spec, len(responses) - len(asked), len(responses), note)
    return [], asked


def _read_text(path: Path, spec: str, held_out: HeldOut, note: Callable[[str], None]) -> list[FileRecord]:
    try:
        text = regular_file(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ArtifactError(f"{path} cannot be read as UTF-8 text: {error}") from None
    paragraphs = text.split("\n\n")
    kept = [paragraph for paragraph in paragraphs if not held_out.found_in(paragraph)]
    _note_left_out(spec, len(paragraphs) - len(kept), len(paragraphs), note)
    return [FileRecord(str(path), {"text": "\n\n".join(kept)})]


def _note_left_out(spec: str, num: int, total: int, note: Callable[[str], None]) -> None:
    if num and num == total:
        raise ConfigError(
            f"all of {spec} ({total}) is also held out by the task; sample the training problems (swerve sample "
            "--split train), or set keep_heldout: true"
        )
    if num:
        note(f"{spec}: {num} of {total} left out: also held out")
