"""A simulated cluster that publishes to a real broker, and collectors that share the slots of its jobs.

The processes are those of production: mosquitto, and daemons with the section `collector`. Hosts are played by
`scale_publishers.py`, each with its own connection.
"""

import json
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import msgspec
from large_job import GPUS, OPERATIONS
from measure import cpu_seconds, peer, resident_mebibytes, running
from scale_daemons import Daemon, Page, Scraped, daemons, scraped
from scale_publishers import Line

from exporter.mqtt.topics import ALL_SLOTS, slot_of
from exporter.simulator.monitoring import files
from exporter.simulator.monitoring.listening_ports import free_port

JOB_NODES = 128
"""Nodes of a job, where there are so many: 1,024 ranks."""

SCRAPE_INTERVAL = 14.7
"""Seconds between scrapes: those of Prometheus, but never in step with the two seconds of the collector."""

ENDING = 1.0
"""Seconds for which hosts publish after the measurement, and …"""

QUIET = 8.0
"""… seconds after which a collector has nothing left to do, so that scrapes can be measured."""

CONNECTING = 240.0
"""Seconds in which all hosts connect."""

LOSSES = ("lost", "dropped", "duplicate", "too_many_jobs", "too_many_hosts", "malformed", "sender_mismatch")
"""Outcomes of batches that are no success."""


@dataclass(frozen=True, slots=True)
class Case:
    """What is measured: nodes, nodes of a job, collectors, seconds of a step, of the start, and of the measurement."""

    nodes: int
    job_nodes: int
    collectors: int
    step: float
    settling: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Measured:
    """What a case costs.

    Attributes:
        case: The case.
        operations: Operations a second of all hosts.
        batches: Batches a second.
        cpu: Shares of a core that each collector took, scrapes included.
        resident: MiB of each collector.
        lags: Seconds from the publication of operations until they are in the verdicts of a scrape, of all scrapes.
        lost: Batches and operations that did not arrive or were not used.
        behind: Operations that were published and are not in the verdicts, QUIET seconds after the end.
        longest: Seconds of the longest read with its verdicts, of those that were scraped.
        missed: Reads that were left out since the one before was not done.
        verdicts: Jobs with a verdict other than that there is not enough data.
        broker: Share of a core of the broker, and its MiB.
        publishers: Share of a core of the hosts.
        scrape: The cost of a scrape of the first collector.
    """

    case: Case
    operations: float
    batches: float
    cpu: Sequence[float]
    resident: Sequence[float]
    lags: Sequence[float]
    lost: int
    behind: int
    longest: float
    missed: int
    verdicts: int
    broker: tuple[float, float]
    publishers: float
    scrape: Scraped

    def __str__(self) -> str:
        """Return lines for people."""
        ranks = self.case.nodes * GPUS
        return (
            f"{self.case.nodes} nodes, {ranks} ranks, jobs of {min(self.case.job_nodes, self.case.nodes)} nodes,"
            f" {OPERATIONS} operations in a step of {self.case.step:g} s, {self.case.collectors} collectors:"
            f" {self.operations:,.0f} operations and {self.batches:,.0f} batches a second\n"
            f"  collectors: {_each(self.cpu, '.3f')} of a core, {sum(self.cpu) / self.operations * 1e6:.1f} µs an"
            f" operation, {sum(self.cpu) / ranks * 1000:.4f} CPU s a second for 1,000 ranks;"
            f" resident {_each(self.resident, '.0f')} MiB\n"
            f"  lag from publication to verdict: mean {sum(self.lags) / len(self.lags):.1f} s, most"
            f" {max(self.lags):.1f} s; lost: {self.lost}, behind at the end: {self.behind}; verdicts on"
            f" {self.verdicts} jobs; the longest read with its verdicts {self.longest:.2f} s, {self.missed} left out\n"
            f"  broker: {self.broker[0]:.3f} of a core, {self.broker[1]:.1f} MiB; hosts: {self.publishers:.3f} of a"
            f" core\n"
            f"  a scrape of one collector: {self.scrape}"
        )


def _each(values: Sequence[float], form: str) -> str:
    return " + ".join(f"{value:{form}}" for value in values)


def measure(case: Case) -> Measured | None:
    """Run a case; None where there is no broker."""
    program = peer("mosquitto")
    if program is None:
        return None
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        folder, port = Path(place), free_port()
        config = folder / "broker.conf"
        config.write_text(files.broker(port))
        broker = stack.enter_context(running([program, "-c", str(config)])).pid
        time.sleep(1.0)
        configs = [_config(number, case.collectors, port) for number in range(case.collectors)]
        collectors = stack.enter_context(daemons(configs, folder))
        jobs = jobs_of(case)
        seconds = case.settling + case.seconds + ENDING
        task = {"broker": port, "jobs": jobs, "nodes": case.nodes // len(jobs), "step": case.step, "seconds": seconds}
        words = [sys.executable, str(Path(__file__).with_name("scale_publishers.py")), json.dumps(task)]
        log = stack.enter_context((folder / "published").open("wb"))
        publishers = stack.enter_context(running(words, log)).pid
        _wait_for(folder / "published")
        time.sleep(case.settling)
        return _watch(case, collectors, broker, publishers, folder / "published")


def jobs_of(case: Case) -> list[str]:
    """Return names of jobs whose slots are spread evenly, so that each collector has as many; real ones are not."""
    number = max(1, case.nodes // case.job_nodes)
    names = []
    for part in range(number):
        wanted = range(part * len(ALL_SLOTS) // number, (part + 1) * len(ALL_SLOTS) // number)
        names.append(next(name for one in count() if int(slot_of(name := f"job-{part}-{one}"), 16) in wanted))
    return names


def slots_of(number: int, collectors: int) -> str:
    """Return the slots of one of several collectors."""
    first, end = (place * len(ALL_SLOTS) // collectors for place in (number, number + 1))
    return f"{first:02x}-{end - 1:02x}"


def _config(number: int, collectors: int, port: int) -> dict[str, object]:
    address = {"broker": f"127.0.0.1:{port}"}
    return {"host": f"collector-{number}", "mqtt": address, "collector": {"slots": slots_of(number, collectors)}}


def _wait_for(path: Path) -> None:
    """Wait until all hosts are connected and publish."""
    end = time.monotonic() + CONNECTING
    while not path.stat().st_size:
        if time.monotonic() > end:
            raise RuntimeError(f"the hosts do not connect within {CONNECTING:g} s")
        time.sleep(0.1)


def _published(path: Path) -> list[Line]:
    """Read what has been published; the last line may be written in part."""
    return [
        msgspec.json.decode(line, type=Line)
        for line in path.read_bytes().splitlines(keepends=True)
        if line.endswith(b"\n")
    ]


def _watch(case: Case, collectors: Sequence[Daemon], broker: int, publishers: int, path: Path) -> Measured:
    """Measure while hosts publish, and scrape as Prometheus does."""
    pids = [one.pid for one in collectors]
    began, before = time.monotonic(), [cpu_seconds(pid) for pid in (broker, publishers, *pids)]
    seen: list[list[tuple[float, float]]] = []
    pages: list[Page] = []
    longest = 0.0
    while time.monotonic() < began + case.seconds:
        time.sleep(max(0.0, min(SCRAPE_INTERVAL, began + case.seconds - time.monotonic())))
        pages, times = [], []
        for one in collectors:
            pages.append(one.page())
            times.append((time.monotonic(), pages[-1].value("fabric_collector_operations_total")))
            longest = max(longest, pages[-1].value("fabric_source_read_duration_seconds", 'source="collector"'))
        seen.append(times)
    took = time.monotonic() - began
    shares = [(cpu_seconds(pid) - used) / took for pid, used in zip((broker, publishers, *pids), before, strict=True)]
    resident = [one.resident() for one in collectors]
    time.sleep(ENDING + QUIET)
    taken = sum(one.page().value("fabric_collector_operations_total") for one in collectors)
    scrape = scraped(collectors[0])
    lines = _published(path)
    first, last = (lines[min(bisect_left(lines, (at,)), len(lines) - 1)] for at in (began, began + took))
    seconds = last.time - first.time
    return Measured(
        case,
        (sum(last.operations) - sum(first.operations)) / seconds,
        (last.sent - first.sent) / seconds,
        shares[2:],
        resident,
        [lag for times in seen for lag in _lags(case, lines, times)],
        last.lost + sum(_lost(page) for page in pages),
        sum(lines[-1].operations) - round(taken),
        longest,
        round(sum(page.value("fabric_source_overruns_total", 'source="collector"') for page in pages)),
        sum(_judged(page) for page in pages),
        (shares[0], resident_mebibytes(broker)),
        shares[1],
        scrape,
    )


def _lags(case: Case, lines: Sequence[Line], times: Sequence[tuple[float, float]]) -> Iterator[float]:
    """Yield for each collector how long ago as many operations were published as it has judged.

    Args:
        case: The case.
        lines: What was published.
        times: Of each collector the time of a scrape, and the operations that it had.
    """
    jobs = len(lines[0].operations)
    for number, (at, operations) in enumerate(times):
        own = slice(number * jobs // case.collectors, (number + 1) * jobs // case.collectors)
        sums = [sum(line.operations[own]) for line in lines]
        place = min(bisect_left(sums, operations), len(lines) - 1)
        yield max(0.0, at - lines[place].time)


def _lost(page: Page) -> int:
    lost = sum(page.value("fabric_collector_batches_total", f'outcome="{outcome}"') for outcome in LOSSES)
    return round(lost + page.value("fabric_collector_dropped_operations_total"))


def _judged(page: Page) -> int:
    """Return the number of jobs with a verdict."""
    undecided = page.value("fabric_nccl_verdict", 'verdict="not_enough_data"')
    return round(page.value("fabric_nccl_verdict") - undecided)
