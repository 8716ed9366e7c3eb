"""A change planted in a pretrained story model, and what the probe finds of it.

    python -m studies.stories                                    fill its part of the page, draw its images
    python -m studies.stories --make --model MODEL --work WORK   first measure what is not in the results; --anew: all

The model writes stories; in them one name is replaced by another, and a copy is fine-tuned on the result. A second
copy, the placebo, is fine-tuned in the same way on the same stories as they were written: what it differs by is what
fine-tuning changes by itself. Where the model's own fresh stories have the name is then where the copy must differ.

MODEL is a folder with the pretrained stories260K (a Llama of 260,000 parameters) in the Hugging Face layout. One
thread, one seed.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from studies.stories.figures import draw_figures
from studies.stories.tables import numbers, tables
from studies.study import Study, append_record, read_records

STUDY = Study(
    results="stories.jsonl", page="probe-results.md", tables=tables, numbers=numbers, draw_figures=draw_figures
)


def measure(out: Path, model: Path, work: Path) -> None:
    """Append what is not in the file of results."""
    import torch

    from studies.stories.findings import story_records
    from studies.stories.plant import StorySettings

    torch.set_num_threads(1)
    work.mkdir(parents=True, exist_ok=True)
    known = {record["kind"] for record in read_records(out)}
    for record in story_records(model, work.resolve(), StorySettings(), known=known):
        append_record(out, record)
        print(f"{record['kind']}: {out}", flush=True)


def main() -> None:
    """Measure what is asked for, show what was measured."""
    parser = STUDY.parser(__doc__)
    parser.add_argument("--model", type=Path, help="folder of stories260K")
    parser.add_argument("--work", type=Path, help="where fine-tuned copies are kept; a temporary directory by default")
    arguments = STUDY.parse(parser)
    if arguments.make:
        if not arguments.model:
            parser.error("--make needs --model: the folder of stories260K")
        with tempfile.TemporaryDirectory() as name:
            measure(arguments.out, arguments.model, arguments.work or Path(name))
    STUDY.show(arguments)


if __name__ == "__main__":
    main()
