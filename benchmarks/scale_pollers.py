"""Many simulated switches, and pollers that share them by `--shard`, as real processes.

The switches are those of the benchmark `switch`: 64 ports, 2,176 variables by SNMP v2c, of which 1,984 are read at each
poll. They are played by one process.
"""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from measure import cpu_seconds
from scale_daemons import Daemon, Page, Scraped, daemons, scraped
from switch import PORTS, agents

INTERVAL = 15.0
"""Seconds between polls of a switch."""

STARTING = 180.0
"""Seconds in which all switches have been polled twice, at most."""


@dataclass(frozen=True, slots=True)
class Case:
    """What is measured: switches, pollers, and seconds of the measurement."""

    switches: int
    pollers: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Measured:
    """What a case costs.

    Attributes:
        case: The case.
        shares: Switches of each poller.
        up: Switches that are read, at the end.
        cpu: Shares of a core that each poller took, not scraped.
        resident: MiB of each, after scrapes.
        polls: Polls a second of all, as they ended.
        durations: Seconds of the last poll of each switch.
        missed: Intervals missed in the measurement.
        lag: Longest delay of a poll in the event loop, in seconds.
        agents: Share of a core of the switches.
        scrape: The cost of a scrape of the first poller.
    """

    case: Case
    shares: Sequence[int]
    up: int
    cpu: Sequence[float]
    resident: Sequence[float]
    polls: float
    durations: Sequence[float]
    missed: int
    lag: float
    agents: float
    scrape: Scraped

    def __str__(self) -> str:
        """Return lines for people."""
        durations = sorted(self.durations)
        shares = " + ".join(map(str, self.shares))
        return (
            f"{self.case.switches} switches of {PORTS} ports, every {INTERVAL:g} s, {self.case.pollers} pollers"
            f" ({shares} switches): {self.up} are read\n"
            f"  pollers: {' + '.join(f'{one:.3f}' for one in self.cpu)} of a core,"
            f" {sum(self.cpu) / self.polls * 1e3:.2f} ms a poll; resident"
            f" {' + '.join(f'{one:.0f}' for one in self.resident)} MiB\n"
            f"  a poll takes {durations[len(durations) // 2] * 1e3:.0f} ms in the median, {durations[-1] * 1e3:.0f} ms"
            f" at most; intervals missed: {self.missed}; longest delay of the event loop {self.lag * 1e3:.0f} ms;"
            f" the switches: {self.agents:.3f} of a core\n"
            f"  a scrape of one poller: {self.scrape}, {self.scrape.series / self.shares[0] / PORTS:.1f} a port"
        )


def measure(case: Case) -> Measured:
    """Run a case."""
    with tempfile.TemporaryDirectory() as place, agents(case.switches) as (ports, server):
        targets = [
            {"name": f"leaf-{number:04}", "address": f"127.0.0.1:{port}", "lldp": False}
            for number, port in enumerate(ports)
        ]
        defaults = {"interval": f"{INTERVAL:g}s", "snmp": {"version": "2c", "community": "public"}}
        config = {"switches": {"defaults": defaults, "targets": targets}}
        flags = [["--shard", f"{number}/{case.pollers}"] for number in range(case.pollers)]
        with daemons([config] * case.pollers, Path(place), *flags) as pollers:
            _wait_for(pollers, case.switches)
            return _watch(case, pollers, server)


def _wait_for(pollers: Sequence[Daemon], switches: int) -> None:
    """Wait until all switches have been polled twice, or as many as can be."""
    end = time.monotonic() + STARTING
    while True:
        pages = [one.page() for one in pollers]
        reads = [value for page in pages for value in page.values("fabric_source_reads_total", 'source="switch"')]
        if (_up(pages) == switches and min(reads) >= 2) or time.monotonic() > end:
            return
        time.sleep(INTERVAL)


def _up(pages: Sequence[Page]) -> int:
    return round(sum(page.value("fabric_switch_up") for page in pages))


def _sum(pages: Sequence[Page], name: str) -> float:
    return sum(page.value(name) for page in pages)


def _reads(pages: Sequence[Page]) -> float:
    return sum(page.value("fabric_source_reads_total", 'source="switch"') for page in pages)


def _watch(case: Case, pollers: Sequence[Daemon], server: int) -> Measured:
    before = [one.page() for one in pollers]
    time.sleep(1.0)
    began, used = time.monotonic(), [cpu_seconds(pid) for pid in (server, *(one.pid for one in pollers))]
    time.sleep(case.seconds)
    took = time.monotonic() - began
    now = [cpu_seconds(pid) for pid in (server, *(one.pid for one in pollers))]
    after = [one.page() for one in pollers]
    shares = [(ended - begun) / took for ended, begun in zip(now, used, strict=True)]
    overruns = "fabric_switch_overruns_total"
    return Measured(
        case,
        [len(page.values("fabric_switch_up")) for page in after],
        _up(after),
        shares[1:],
        [one.resident() for one in pollers],
        (_reads(after) - _reads(before)) / (took + 1.0),
        [value for page in after for value in page.values("fabric_switch_poll_duration_seconds")],
        round(_sum(after, overruns) - _sum(before, overruns)),
        max(page.value("fabric_exporter_event_loop_lag_seconds") for page in after),
        shares[0],
        scraped(pollers[0]),
    )
