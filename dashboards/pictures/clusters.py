"""Simulated clusters with a Prometheus each, as processes that end with a block, and the wait for their alerts."""

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Self
from urllib.parse import urlencode, urlsplit

from exporter.config.errors import UserError

ROOT = Path(__file__).resolve().parent.parent.parent

INTERVAL = "5s"
"""Time between scrapes."""

DIVIDE = 20
"""All times of alerts are divided by this, so that they fire within minutes."""

THRESHOLDS = "source_stale:\n  age: 60m\nrecords:\n  now: 20m\n  gone: 3h\n"
"""Values before the division: sources that are read once a minute are not stale after 15 s, 6 s are two scrapes, and an
adapter that is lost is remembered until the pictures are taken."""

START = 120.0
"""Seconds in which a cluster has to start."""

LEAST, STILL, PAUSE = 240.0, 60.0, 15.0
"""Seconds: the least wait, that in which no further alert comes, and that between two looks."""

LAST_WORDS = 60.0
"""Seconds in which a cluster has to end."""

ADDRESS = re.compile(r"Prometheus\W.*?(http://[\w.:]+)")
"""In the lines that a cluster prints once it runs, with colours."""


class Cluster:
    """A simulated cluster, for use with `with`.

    Attributes:
        state: Its name: healthy or faults.
        flags: Its flags beside those that all have.
        interval: Time between scrapes.
        prometheus: URL of its Prometheus, once it runs.
    """

    def __init__(self, state: str, folder: Path, rules: Path, flags: Sequence[str]) -> None:
        self.state, self.flags, self.interval, self.prometheus = state, tuple(flags), INTERVAL, ""
        self._folder, self._rules = folder, rules
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start it; `wait_for_start` waits until it runs."""
        self._folder.mkdir()
        command = [
            *(sys.executable, "-m", "exporter", "demo-cluster", "--first-port", "0", "--interval", INTERVAL),
            *("--directory", self._folder / "files", "--rules", self._rules, *self.flags),
        ]
        with (self._folder / "out").open("wb") as out, (self._folder / "err").open("wb") as err:
            self._process = subprocess.Popen([*map(str, command)], cwd=ROOT, stdout=out, stderr=err)  # noqa: S603
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _value: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """End it."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(LAST_WORDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def check(self) -> None:
        """Check that it still runs.

        Raises:
            UserError: It ended.
        """
        if self._process is None or self._process.poll() is not None:
            lines = (self._folder / "err").read_text(errors="replace").splitlines()
            raise UserError(f"the cluster {self.state} ended: {lines[-1] if lines else 'without an error'}")

    def wait_for_start(self) -> None:
        """Wait until Prometheus runs.

        Raises:
            UserError: The cluster ended, or does not run for long.
        """
        end = monotonic() + START
        while (found := ADDRESS.search((self._folder / "err").read_text(errors="replace"))) is None:
            self.check()
            if monotonic() > end:
                raise UserError(
                    f"the cluster {self.state} has no Prometheus after {START:g} s; try a less busy machine"
                )
            sleep(1)
        self.prometheus = found[1]

    def firing(self) -> frozenset[str]:
        """Give the names of the alerts that fire; none if Prometheus does not respond."""
        query = urlencode({"query": 'group by (alertname) (ALERTS{alertstate="firing"})'})
        address = urlsplit(self.prometheus)
        connection = HTTPConnection(address.hostname or "", address.port, timeout=PAUSE)
        try:
            connection.request("GET", f"/api/v1/query?{query}")
            answer = json.load(connection.getresponse())
        except (OSError, HTTPException, ValueError):
            return frozenset()
        finally:
            connection.close()
        return frozenset(one["metric"]["alertname"] for one in answer.get("data", {}).get("result", ()))


def quick_rules(folder: Path) -> Path:
    """Make a copy of the rules with shorter times, in a new folder below the given one.

    Raises:
        UserError: That failed.
    """
    rules, thresholds = folder / "rules", folder / "thresholds.yml"
    thresholds.write_text(THRESHOLDS, encoding="ascii")
    flags = ("--divide", str(DIVIDE), "--thresholds", str(thresholds), "--output", str(rules))
    command = [sys.executable, str(ROOT / "alerts" / "build.py"), *flags]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)  # noqa: S603  # ours
    if done.returncode:
        raise UserError(f"alerts/build.py failed: {done.stderr.strip()}")
    return rules


def ready(clusters: Sequence[Cluster], longest: float) -> float:
    """Wait until alerts fire and no further ones come, or for the longest time; returns the seconds since the start.

    Raises:
        UserError: A cluster ended or does not start.
    """
    for cluster in clusters:
        cluster.wait_for_start()
    began = changed = monotonic()
    before: list[frozenset[str]] = []
    while True:
        now = [cluster.firing() for cluster in clusters]
        if now != before:
            before, changed = now, monotonic()
        waited = monotonic() - began
        for cluster, alerts in zip(clusters, now, strict=True):
            cluster.check()
            _say(f"{waited:4.0f} s, {cluster.state}: {', '.join(sorted(alerts)) or 'no alert fires'}")
        if waited >= longest or (waited >= LEAST and any(now) and monotonic() - changed >= STILL):
            return waited
        sleep(min(PAUSE, longest - waited))


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
