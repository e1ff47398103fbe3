"""A real Prometheus with the shipped rules, which scrapes the pages of a large simulated fabric.

Time is divided, so that the windows of the rules are full within minutes: by the same factor the intervals of scrapes
and evaluations, and all times in the rules (`alerts/build.py --divide`). So a scrape, a series and an evaluation cost
as much as without, and there are more of them in a second.
"""

import asyncio
import gzip
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import scale_pages
from measure import cpu_seconds, peer, resident_mebibytes, running
from scale_daemons import Page
from scale_pages import HOSTS, INTERVAL, RANKS, SWITCHES, Pages

from exporter.simulator.monitoring.listening_ports import free_port

ROOT = Path(__file__).resolve().parents[1]

RULES = ("fabric.yml", "fabric-records.yml", "fabric-joins.yml")

WITHOUT_RULES = 0.15
"""Share of the scrapes for which there are no rules, at the end."""

MEASURED = 0.25
"""Share of the scrapes over which the cost of rules is measured, before."""


SHOWN = 5
"""Groups and rules that are printed."""


@dataclass(frozen=True, slots=True)
class Case:
    """What is measured: series at least, the factor by which times are divided, and scrapes of each target."""

    series: int
    divide: float
    scrapes: int


@dataclass(frozen=True, slots=True)
class Measured:
    """What a case costs.

    Attributes:
        case: The case.
        copies: Copies of the simulated fabric.
        scraped: Series that are scraped.
        head: Series of the head, those of rules among them.
        resident: MiB of the process; the highest.
        heap: MiB of Go's heap in use.
        sample: CPU seconds of a sample that is scraped and stored, without rules.
        evaluation: CPU seconds of one evaluation of all rules.
        groups: Seconds of the last evaluation of each group, the longest first.
        slowest: Seconds of the last evaluation of each rule, the longest first.
        missed: Evaluations missed.
        failed: Evaluations of rules that failed.
        stored: Bytes of a sample on disk, in a block.
        page: The page of a host: series, bytes, and bytes after compression.
    """

    case: Case
    copies: int
    scraped: int
    head: int
    resident: float
    heap: float
    sample: float
    evaluation: float
    groups: Mapping[str, float]
    slowest: Mapping[str, float]
    missed: int
    failed: int
    stored: float
    page: tuple[int, int, int]

    def __str__(self) -> str:
        """Return lines for people."""
        copies = self.copies
        return (
            f"{copies * HOSTS} hosts, {copies * SWITCHES} switches, {copies * RANKS} ranks: {self.scraped:,} series"
            f" scraped, {self.head:,} with those of rules; times divided by {self.case.divide:g}\n"
            f"  resident {self.resident:.0f} MiB, {self.resident * 2**10 / self.head:.2f} KiB a series; heap in use"
            f" {self.heap:.0f} MiB, {self.heap * 2**10 / self.head:.2f} KiB a series\n"
            f"  a sample: {self.sample * 1e6:.2f} µs CPU, {self.stored:.2f} bytes in a block\n"
            f"  an evaluation of all rules: {self.evaluation:.3f} s CPU,"
            f" {self.evaluation / copies / HOSTS * 1e3:.2f} ms a host; groups {_longest(self.groups)}; rules"
            f" {_longest(self.slowest)}; missed {self.missed}, failed {self.failed}\n"
            f"  the page of a host: {self.page[0]:,} series, {self.page[1]:,} bytes, {self.page[2]:,} compressed"
        )


def _longest(durations: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {seconds:.2f} s" for name, seconds in list(durations.items())[:SHOWN])


class _Prometheus:
    """A running server."""

    def __init__(self, pid: int, port: int) -> None:
        self.pid, self._url = pid, f"http://127.0.0.1:{port}"

    def request(self, path: str, *, post: bool = False) -> str:
        request = urllib.request.Request(self._url + path, method="POST" if post else "GET")
        with urllib.request.urlopen(request, timeout=120) as answer:
            return str(answer.read().decode())

    def page(self) -> Page:
        return Page(self.request("/metrics"))

    def rules(self) -> dict[str, float]:
        """Return the seconds of the last evaluation of each rule, the longest first."""
        groups = json.loads(self.request("/api/v1/rules"))["data"]["groups"]
        rules = [(rule["evaluationTime"], rule["name"]) for group in groups for rule in group["rules"]]
        longest = {name: seconds for seconds, name in sorted(rules)}  # of rules with one name, that of the longest
        return dict(sorted(longest.items(), key=lambda pair: -pair[1]))

    def wait(self) -> None:
        for _ in range(600):
            try:
                self.request("/-/ready")
            except OSError:
                time.sleep(0.1)
            else:
                return
        raise RuntimeError("Prometheus is not ready within a minute")

    def used(self) -> tuple[float, float, float]:
        """Return CPU seconds, samples and evaluations so far."""
        page = self.page()
        scheduled = page.values("prometheus_rule_group_iterations_total")  # of each group, whether done or missed
        done = sum(scheduled) - page.value("prometheus_rule_group_iterations_missed_total")
        samples = page.value("prometheus_tsdb_head_samples_appended_total")
        return cpu_seconds(self.pid), samples, done / max(1, len(scheduled))


def measure(case: Case) -> Measured | None:
    """Run a case; None where there is no Prometheus."""
    program = peer("prometheus")
    if program is None:
        return None
    pages = asyncio.run(scale_pages.recorded(case.scrapes + 2))
    copies = -(-case.series // sum(one[-1].count(b"\n") for one in pages.values()))
    interval = INTERVAL / case.divide
    with tempfile.TemporaryDirectory() as place, scale_pages.served(pages, interval) as port:
        folder, listen = Path(place), free_port()
        rules = _rules(folder, case.divide)
        config = folder / "prometheus.yml"
        config.write_text(json.dumps(_config(pages, copies, port, interval, rules)))
        words = [program, f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"]
        words += [f"--web.listen-address=127.0.0.1:{listen}", "--web.enable-lifecycle", "--web.enable-admin-api"]
        words += [f"--query.lookback-delta={300 / case.divide:g}s"]
        with running(words) as process:
            server = _Prometheus(process.pid, listen)
            server.wait()
            time.sleep(case.scrapes * (1 - MEASURED - WITHOUT_RULES) * interval)
            before = server.used()
            time.sleep(case.scrapes * MEASURED * interval)
            after, page, slowest = server.used(), server.page(), server.rules()
            resident = resident_mebibytes(process.pid)
            config.write_text(json.dumps(_config(pages, copies, port, interval, [])))
            server.request("/-/reload", post=True)
            time.sleep(interval)
            idle = server.used()
            time.sleep(case.scrapes * WITHOUT_RULES * interval)
            end = server.used()
            stored = _stored(server, folder)
    sample = (end[0] - idle[0]) / (end[1] - idle[1])
    evaluating = after[0] - before[0] - sample * (after[1] - before[1])
    durations = page.labelled("prometheus_rule_group_last_duration_seconds")
    return Measured(
        case,
        copies,
        copies * sum(one[-1].count(b"\n") for one in pages.values()),
        round(page.value("prometheus_tsdb_head_series")),
        resident,
        page.value("go_memstats_heap_inuse_bytes") / 2**20,
        sample,
        evaluating / max(1.0, after[2] - before[2]),
        dict(sorted(((name.rpartition(";")[2].strip('"'), one) for name, one in durations), key=lambda pair: -pair[1])),
        slowest,
        round(page.value("prometheus_rule_group_iterations_missed_total")),
        round(page.value("prometheus_rule_evaluation_failures_total")),
        stored,
        _size(pages["gpu-001"][-1]),
    )


def _size(page: bytes) -> tuple[int, int, int]:
    return page.count(b"\n"), len(page), len(gzip.compress(page, 1))


def _rules(folder: Path, divide: float) -> list[str]:
    """Write the shipped rules with divided times; return their paths."""
    made = folder / "rules"
    words = [sys.executable, str(ROOT / "alerts" / "build.py"), "--divide", f"{divide:g}", "--output", str(made)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return [str(made / name) for name in RULES]


def _config(pages: Pages, copies: int, port: int, interval: float, rules: list[str]) -> dict[str, object]:
    static = [
        {"targets": [f"127.0.0.1:{port}"], "labels": {"instance": instance, "__metrics_path__": path}}
        for instance, path in scale_pages.targets(pages, copies)
    ]
    every = f"{interval * 1000:.0f}ms"
    intervals = {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every}
    scraped = {"job_name": "fabric", "static_configs": static}
    return {
        "global": {**intervals, "external_labels": {"fabric": "one"}},
        "rule_files": rules,
        "scrape_configs": [scraped],
    }


def _stored(server: _Prometheus, folder: Path) -> float:
    """Return the bytes of a sample in a block on disk, of a snapshot of all."""
    samples = server.page().value("prometheus_tsdb_head_samples_appended_total")
    server.request("/api/v1/admin/tsdb/snapshot", post=True)
    files = (folder / "data" / "snapshots").rglob("*")
    return sum(path.stat().st_size for path in files if path.is_file()) / samples
