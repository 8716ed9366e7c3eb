"""A change planted in a pretrained story model, and what the probe finds of it.

    python -m studies.stories MODEL [--work WORK] [--anew]    measure what is not in the results

The model writes stories; in them one name is replaced by another, and a copy is fine-tuned on the result. A second
copy, the placebo, is fine-tuned in the same way on the same stories as they were written: what it differs by is what
fine-tuning changes by itself. Where the model's own fresh stories have the name is then where the copy must differ.

MODEL is a folder with the pretrained stories260K (a Llama of 260,000 parameters) in the Hugging Face layout. One
thread, one seed. `python -m studies stories` fills its part of the page and draws its image.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch

from studies.records import RESULTS, append_record, read_records
from studies.stories.findings import story_records
from studies.stories.plant import StorySettings


def main() -> None:
    """Append what is not in the file of results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="folder of stories260K")
    parser.add_argument("--work", type=Path, help="where fine-tuned copies are kept; a temporary directory by default")
    parser.add_argument("--out", type=Path, default=RESULTS / "stories.jsonl", help="JSON lines, appended to")
    parser.add_argument("--anew", action="store_true", help="begin with an empty file")
    arguments = parser.parse_args()
    if arguments.anew:
        arguments.out.unlink(missing_ok=True)
    torch.set_num_threads(1)
    known = {record["kind"] for record in read_records(arguments.out)}
    with tempfile.TemporaryDirectory() as scratch:
        work = (arguments.work or Path(scratch)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        for record in story_records(arguments.model, work, StorySettings(), known=known):
            append_record(arguments.out, record)
            print(f"{record['kind']}: {arguments.out}", flush=True)


if __name__ == "__main__":
    main()
