"""The command `demo-cluster` as a process, and the alerts that its receivers got."""

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

LINE = re.compile(r"(\d\d:\d\d:\d\d) (\w+) +(firing|resolved) +(\w+)\{(.*?)\} (.*)")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Notice:
    """An alert that a receiver got, some seconds after the start of the demo."""

    seconds: float
    receiver: str
    status: str
    alert: str
    labels: dict[str, str]
    text: str

    def matches(self, alert: str, labels: dict[str, str], text: str = "") -> bool:
        """Return whether it is about an alert, by patterns of its name and of its text, and by some of its labels."""
        is_about = re.fullmatch(alert, self.alert) is not None and labels.items() <= self.labels.items()
        return is_about and re.search(text, self.text) is not None


class DemoCluster:
    """A running demo.

    Attributes:
        process: Its process.
        folder: Folder of all files.
    """

    def __init__(self, process: "subprocess.Popen[bytes]", folder: Path) -> None:
        self.process, self.folder = process, folder

    @property
    def errors(self) -> str:
        """What it wrote to standard error: where its parts are, or why it ended."""
        return (self.folder / "err").read_text()

    @property
    def notices(self) -> list[Notice]:
        """The alerts so far. It writes to standard error at its start, and no more while it runs."""
        found = map(LINE.match, (self.folder / "out").read_text().splitlines())
        began = datetime.fromtimestamp((self.folder / "err").stat().st_mtime)  # noqa: DTZ006  # local time, as in lines
        return [
            Notice(_seconds(began, one[1]), one[2], one[3], one[4], dict(LABEL.findall(one[5])), one[6])
            for one in found
            if one
        ]


def _seconds(began: datetime, clock: str) -> float:
    """Return the seconds until a time of day, which has no parts of a second."""
    time = datetime.combine(began, datetime.strptime(clock, "%H:%M:%S").time())  # noqa: DTZ007
    return (time - began.replace(microsecond=0)).total_seconds() % 86_400


@contextmanager
def demo_cluster(folder: Path, flags: Sequence[object], faults: Sequence[str]) -> Iterator[DemoCluster]:
    """Run the demo at free ports until the end of the block."""
    folder.mkdir(parents=True, exist_ok=True)
    words = [
        sys.executable,
        "-m",
        "exporter",
        "demo-cluster",
        "--first-port",
        "0",
        "--directory",
        folder / "demo",
        *flags,
    ]
    words += [word for fault in faults for word in ("--fault", fault)]
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        process = subprocess.Popen([*map(str, words)], stdout=out, stderr=err)
        try:
            yield DemoCluster(process, folder)
        finally:
            process.terminate()
            process.wait(timeout=60)
