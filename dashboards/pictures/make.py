"""Take pictures of all boards, from two simulated clusters: `make pictures`, see README.md.

One cluster is healthy and one has faults. Pictures and reports of whole pages go to a folder; the first screens of some
boards replace those in docs/pictures. The exit status is 1 if a panel is empty, or something in it is out of sight,
without a reason in exceptions.yml.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from time import time

from clusters import Cluster, quick_rules, ready
from findings import Exceptions, Report
from installed import FOLDER, Programs, build_page

from exporter.config.errors import UserError, system_errors_as_user_errors

ROOT = FOLDER.parent.parent

BOARDS = ("overview", "host", "switches", "infiniband", "training")

FIRST_SCREENS = ("overview", "training", "switches")
"""Boards of which documents show the first screen, with faults."""

FIRST_SCREEN = ("--rows", "saved", "--height", "900")

VARIABLES = {"host": ("--var", "host=gpu-002")}
"""Flags by board: the host with a fault."""

FAULTS = (
    "degraded-link:gpu-002/3@60s",
    "pause-storm:gpu-003/5@60s",
    "late-rank:9@60s",
    "missing-port:gpu-001/6@60s",
)

PROBLEMS = 1
"""Exit status: something is empty or out of sight, or failed."""


@dataclass(frozen=True, slots=True)
class Camera:
    """Takes pictures of one cluster.

    Attributes:
        programs: Paths of node and Chromium.
        cluster: The cluster.
        end: End of the time range, in seconds since the epoch.
        last: Length of the time range, as a duration of Prometheus.
        folder: Folder for temporary files.
    """

    programs: Programs
    cluster: Cluster
    end: float
    last: str
    folder: Path

    def take(self, board: str, picture: Path, flags: Iterable[str]) -> bool:
        """Take a picture of a board; returns whether all of it could be drawn."""
        command = [
            *(self.programs.node, "take.mjs", ROOT / "dashboards" / f"fabric-{board}.json"),
            *("--prometheus", self.cluster.prometheus, "--scrape", self.cluster.interval),
            *("--last", self.last, "--to", f"{self.end:.3f}", "--note", self.cluster.state),
            *("--chromium", self.programs.chromium, "--out", picture),
            *VARIABLES.get(board, ()),
            *flags,
        ]
        environment = {**os.environ, "TMPDIR": str(self.folder)}
        done = subprocess.run([*map(str, command)], cwd=FOLDER, env=environment, check=False)  # noqa: S603  # ours
        return done.returncode == 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Take the pictures as the command line says; an error of the user is one line and the exit status 1."""
    flags = _flags(arguments)
    signal.signal(signal.SIGTERM, _end)  # so that what was started is ended
    signal.signal(signal.SIGHUP, _end)
    try:
        programs = Programs.find()
        exceptions = Exceptions.read(FOLDER / "exceptions.yml")
        build_page(programs)
        with system_errors_as_user_errors(str(flags.output), "name a folder that can be written to"):
            flags.output.mkdir(parents=True, exist_ok=True)
            flags.first_screens.mkdir(parents=True, exist_ok=True)
        reports, whole = _take(programs, flags)
    except UserError as error:
        sys.exit(f"error: {error}")
    summary = exceptions.summary(reports)
    sys.stdout.write("\n".join([*summary.lines, f"pictures and reports are in {flags.output}", ""]))
    return PROBLEMS if summary.problems or not whole else 0


def _take(programs: Programs, flags: argparse.Namespace) -> tuple[list[Report], bool]:
    """Run the clusters and take all pictures; returns the reports, and whether nothing failed."""
    reports, whole = [], True
    with (
        tempfile.TemporaryDirectory(prefix="fabric-pictures-", ignore_cleanup_errors=True) as name,
        ExitStack() as stack,
    ):
        folder = Path(name)
        rules = quick_rules(folder)
        # One process of a machine sweeps a subnet, and the fabrics of both clusters have the same.
        states = (("healthy", ()), ("faults", ("--no-infiniband", *(w for one in FAULTS for w in ("--fault", one)))))
        clusters = [stack.enter_context(Cluster(state, folder / state, rules, words)) for state, words in states]
        minutes = ceil(ready(clusters, flags.minutes * 60) / 60)
        end = time()  # of all pictures, which take minutes
        for cluster in clusters:
            camera = Camera(programs, cluster, end, f"{minutes}m", folder)
            for board in _boards(cluster):
                report, taken = _take_board(camera, board, flags)
                reports += report
                whole &= taken
    return reports, whole


def _take_board(camera: Camera, board: str, flags: argparse.Namespace) -> tuple[list[Report], bool]:
    """Take the pictures of a board; returns its report, unless there is none, and whether nothing failed."""
    state = camera.cluster.state
    picture = flags.output / f"{board}-{state}.png"
    text = picture.with_suffix(".txt")
    text.unlink(missing_ok=True)
    whole = camera.take(board, picture, ("--rows", "open", "--report", str(text)))
    if state == "faults" and board in FIRST_SCREENS:
        whole &= camera.take(board, flags.first_screens / f"{board}-{state}-first-screen.png", FIRST_SCREEN)
    return [Report.read(text, f"fabric-{board}", state)] if text.exists() else [], whole


def _boards(cluster: Cluster) -> list[str]:
    """List the boards that a cluster has data for."""
    return [one for one in BOARDS if one != "infiniband" or "--no-infiniband" not in cluster.flags]


def _flags(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Take pictures of all boards, from two simulated clusters.")
    parser.add_argument(
        "--output",
        type=Path,
        default=ROOT / "build" / "pictures",
        metavar="DIR",
        help="folder of whole pages and their reports (default build/pictures)",
    )
    parser.add_argument(
        "--first-screens",
        type=Path,
        default=ROOT / "docs" / "pictures",
        metavar="DIR",
        help="folder of first screens (default docs/pictures)",
    )
    parser.add_argument(
        "--minutes", type=float, default=6.0, metavar="N", help="longest wait for alerts of the faults (default 6)"
    )
    flags = parser.parse_args(arguments)
    flags.output, flags.first_screens = flags.output.resolve(), flags.first_screens.resolve()
    return flags


def _end(number: int, _frame: object) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
