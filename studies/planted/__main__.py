"""Models whose effects are known exactly, through the whole probe, again and again: is what it says true?

    python -m studies.planted [--draws 200] [--jobs 2]   probe 200 draws of every world; goes on where it stopped
    python -m studies planted                            fill its page from the kept results

Worlds are in `worlds.py`. A draw has new problems, rollouts and random numbers, and goes from the selection of rollouts
to the typed summary; every interval and p-value of the summary whose truth the world decides is compared with it. Draws
are appended to a folder of `runs/planted`, one for every state of the code, and their counts are the kept results.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from studies.pages import ROOT
from studies.planted.measure import FAULTS, FAULTY_DRAWS, make_draws, read_draws, summarised, work_folder
from studies.planted.worlds import WORLDS
from studies.records import RESULTS, append_record


def main() -> None:
    """Make the draws that are missing, and the file of results of all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=200, help="of every world (default: 200)")
    parser.add_argument("--jobs", type=int, default=2, help="processes side by side (default: 2)")
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "planted", help="where draws are kept")
    parser.add_argument("--out", type=Path, default=RESULTS / "planted.jsonl", help="JSON lines")
    arguments = parser.parse_args()
    folder, draws = work_folder(arguments.work), arguments.draws
    wanted = dict.fromkeys(WORLDS, draws) | dict.fromkeys(FAULTS, min(draws, FAULTY_DRAWS))
    try:
        make_draws(folder, wanted, jobs=arguments.jobs)
    except KeyboardInterrupt:
        raise SystemExit("\nstopped; the same command goes on from here") from None
    arguments.out.unlink(missing_ok=True)
    for name, num in wanted.items():
        append_record(
            arguments.out, summarised(name, [draw for draw in read_draws(folder, name) if draw["draw"] < num])
        )
    print(arguments.out)


if __name__ == "__main__":
    main()
