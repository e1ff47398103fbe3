"""How fast and how surely faults are detected: makes the table of docs/detection.md.

    python -m benchmarks.detection --runs 203 --seed 1 --results detection.jsonl

simulates runs that the file of results does not have yet, adds them to it, and writes the table of all of them.
"""

import argparse
from collections.abc import Sequence
from itertools import islice
from multiprocessing import Pool
from pathlib import Path

import msgspec

from .runs import Outcome, Plan, plans, run
from .table import tables

PAGE = Path(__file__).resolve().parents[2] / "docs" / "detection.md"

BEGIN, END = "<!-- made by python -m benchmarks.detection -->\n", "<!-- end -->\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Simulate, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--runs", type=int, default=203, help="number of runs; 29 are each fault once, and an hour without"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of places and times")
    parser.add_argument("--results", type=Path, default=Path("detection.jsonl"), help="file of the results of runs")
    parser.add_argument("--processes", type=int, default=2, help="runs at a time")
    parser.add_argument("--only", nargs="*", help="names of faults to simulate; all by default")
    chosen = parser.parse_args(arguments)
    known = {one.plan for one in read(chosen.results)}
    wanted = [
        one
        for one in islice(plans(chosen.seed), chosen.runs)
        if one not in known and (not chosen.only or one.fault in chosen.only)
    ]
    if wanted:
        _simulate(wanted, chosen.results, chosen.processes)
    text = tables(sorted(read(chosen.results), key=lambda one: one.plan.number))
    before, begin, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(f"{before}{begin}{text}{END}{rest.partition(END)[2]}", encoding="utf-8")


def _simulate(wanted: Sequence[Plan], results: Path, processes: int) -> None:
    """Simulate runs, and add what they show to a file."""
    with Pool(processes, maxtasksperchild=1) as workers, results.open("ab") as file:
        for outcome in workers.imap_unordered(run, wanted):
            file.write(msgspec.json.encode(outcome) + b"\n")
            file.flush()
            print(outcome.plan.number, *outcome.plan.faults, flush=True)


def read(path: Path) -> list[Outcome]:
    """Return the results in a file; none where there is no file."""
    if not path.exists():
        return []
    return [msgspec.json.decode(line, type=Outcome) for line in path.read_bytes().splitlines()]


if __name__ == "__main__":
    main()
