"""Run the benchmarks: each beside its peer in one run, both figures and the ratio printed.

`python benchmarks/run.py [NAME…]`, of those in ALL; all of them by default. Ratios travel from machine to machine,
absolute figures do not. The exit status is 0 if every bar was met.
"""

import importlib
import sys

ALL = (
    "render",
    "host",
    "ports",
    "ethtool",
    "pods",
    "switch",
    "ibfabric",
    "timing",
    "training",
    "judging",
    "mqtt",
    "stalls",
)


def main(chosen: list[str]) -> int:
    """Run the chosen ones."""
    unknown = [name for name in chosen if name not in ALL]
    if unknown:
        print(f"unknown benchmark {unknown[0]!r}; there are {', '.join(ALL)}", file=sys.stderr)
        return 2
    missed = 0
    for name in chosen or ALL:
        print(f"# {name}", flush=True)
        for figure in importlib.import_module(name).run():
            print(figure, flush=True)
            missed += "NOT MET" in str(figure)
    print(f"{missed} bars not met" if missed else "all bars met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
