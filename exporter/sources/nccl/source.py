"""Source `nccl`: NCCL collectives of the jobs on this host.

Feeds are NCCL Inspector's files, the socket of `fabric_timing.py`, and dumps of PyTorch's Flight Recorder; CoMMA and
xpu_timer provide totals and statistics only. Feeds fail alone.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from exporter.core.blocking import BlockingCalls
from exporter.core.closing import close_all
from exporter.core.definition import Context, Definition, SourceSteps
from exporter.core.source import (
    Failure,
    Host,
    Reading,
    Source,
    SourceError,
)
from exporter.sources.common.job_readers import CALL_TIMEOUT_SECONDS
from exporter.sources.nccl import metrics, tables
from exporter.sources.nccl.baseline import load_baselines
from exporter.sources.nccl.options import NcclOptions
from exporter.sources.nccl.process_lookup import look_up_processes
from exporter.sources.nccl.processes import ProcessKey, ProcessRegistry, TrainingProcess
from exporter.sources.nccl.readers.comma import CommaFeed
from exporter.sources.nccl.readers.feed import (
    Feed,
    FeedReport,
    ProcessFacts,
    ProcessReport,
)
from exporter.sources.nccl.readers.flight_recorder import FlightRecorderFeed
from exporter.sources.nccl.readers.hook import HookFeed
from exporter.sources.nccl.readers.inspector import InspectorFeed
from exporter.sources.nccl.readers.xpu_timer import XpuTimerFeed

MAX_LOOKUPS = 256
"""Processes looked up per poll: more than a host can run, unless the reported identities are made up."""


class _ResolvedFacts(NamedTuple):
    """Facts of a process as its feed reported them, and with what this host adds."""

    reported: ProcessFacts
    facts: ProcessFacts


class NcclSource:
    """Polls the feeds, and merges their reports by process."""

    name = "nccl"
    target = ""
    changed: asyncio.Event | None = None

    def __init__(self, options: NcclOptions, host: Host) -> None:
        """Create the source and its feeds."""
        self.interval = float(options.interval)
        self.settings = self._options = options
        self._host = host
        self._feeds = _feeds(options, host)
        self._serial = BlockingCalls(
            "processes", CALL_TIMEOUT_SECONDS, host.hardware.turns(("processes", str(host.procfs)))
        )
        self._processes = ProcessRegistry()
        self._facts: dict[ProcessKey, _ResolvedFacts] = {}
        self._tables = tables.ProcessTables(host.name)

    async def applies(self) -> bool:
        """Return whether any feed has something to read.

        Raises:
            SourceError: A feed failed, and the others have nothing to read.
        """
        results = await asyncio.gather(*(feed.applies() for feed in self._feeds), return_exceptions=True)
        if True in results:
            return True
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return False

    async def read(self) -> Reading:
        """Poll all feeds; the failure of one does not affect the others."""
        failures: list[Failure] = []
        polled = await self._poll_feeds(failures)
        reports = [(feed.name, report) for feed, feed_report in polled for report in feed_report.processes]
        await self._resolve([(feed, one) for feed, one in reports if one.totals or one.progress or one.restarted])
        now = monotonic()
        self._processes.begin_poll()
        used: list[tuple[TrainingProcess, ProcessReport]] = []
        for feed, feed_report in polled:
            failures += feed_report.failures
            for report in feed_report.processes:
                process = self._add(feed, report, now, failures)
                if process is not None:
                    used.append((process, report))
                elif report.progress:  # the feed that reports times may not report progress
                    process = self._processes.timed_by_other(feed.name, report.facts)
                    used += [] if process is None else [(process, replace(report, streams={}))]
        self._processes.end_poll({feed.name: feed_report.gone for feed, feed_report in polled}, now)
        found = [tables.stream_table(used, self._host.name, now)]
        for feed in self._feeds:
            found += feed.tables(now)
        return Reading(found + self._tables.tables(self._processes.labelled(), now), failures)

    async def close(self) -> None:
        """Close all feeds."""
        self._serial.close()
        await close_all("nccl", [feed.close() for feed in self._feeds])

    async def _poll_feeds(self, failures: list[Failure]) -> list[tuple[Feed, FeedReport]]:
        """Poll the feeds concurrently, so that one that hangs does not delay the others.

        Raises:
            SourceError: A feed failed, and the others have nothing to read.
        """
        results = await asyncio.gather(*(feed.poll() for feed in self._feeds), return_exceptions=True)
        polled: list[tuple[Feed, FeedReport]] = []
        failed: list[SourceError] = []
        for feed, result in zip(self._feeds, results, strict=True):
            if isinstance(result, SourceError):
                failed.append(result)
                failures.append(Failure(feed.name, result.reason, str(result)))
            elif isinstance(result, BaseException):
                raise result
            else:
                polled.append((feed, result))
        if failed and not any([await feed.applies() for feed, _ in polled]):
            raise failed[0]
        return polled

    async def _resolve(self, reports: Sequence[tuple[str, ProcessReport]]) -> None:
        """Add what this host knows about processes that are new, restarted or report new facts, and cache it."""
        keys = {(feed, one.key): one for feed, one in reports}
        self._facts = {key: known for key, known in self._facts.items() if key in self._processes or key in keys}
        new = [
            (key, one.facts)
            for key, one in keys.items()
            if one.restarted or key not in self._facts or self._facts[key].reported != one.facts
        ]
        if len(new) > MAX_LOOKUPS:
            self._facts |= {key: _ResolvedFacts(facts, replace(facts)) for key, facts in new[MAX_LOOKUPS:]}
            del new[MAX_LOOKUPS:]
        if new:
            lookup = partial(look_up_processes, self._host, [facts for _, facts in new])
            found = (await self._serial.run([("processes", lookup)]))["processes"]
            if isinstance(found, Exception):
                found = [replace(facts) for _, facts in new]
            self._facts |= {
                key: _ResolvedFacts(reported, facts) for (key, reported), facts in zip(new, found, strict=True)
            }
        for key, one in keys.items():
            one.facts = self._facts[key].facts

    def _add(self, feed: Feed, report: ProcessReport, now: float, failures: list[Failure]) -> TrainingProcess | None:
        """Add a report to its process; None where it is not used."""
        if (report.totals or report.progress) and not self._options.matches(report.facts.job):
            feed.mark_unused(report, "excluded")
            return None
        process = self._processes.add(feed.name, report, now, failures)
        if isinstance(process, str):
            feed.mark_unused(report, process)
            return None
        return process


def _feeds(options: NcclOptions, host: Host) -> list[Feed]:
    feeds: list[Feed] = [InspectorFeed(options.inspector, options.matches)]
    if isinstance(options.socket, str):
        feeds.append(HookFeed(options.socket, host.procfs, host.hardware.turns(("timing", str(host.procfs)))))
    if options.recorder:
        feeds.append(FlightRecorderFeed(options.recorder, options.matches))
    if options.comma:
        feeds.append(CommaFeed(options.comma, options.matches))
    if options.xpu_timer:
        feeds.append(XpuTimerFeed(options.xpu_timer, options.matches))
    return feeds


def _build(options: NcclOptions, context: Context) -> list[Source]:
    return [NcclSource(options, context.host)]


def _measured(options: NcclOptions, folder: Path) -> Sequence[Mapping[tuple[str, int], float]]:
    return load_baselines(options.baseline, folder)


def _steps(source: Source, context: Context) -> SourceSteps:  # noqa: ARG001  # the same for all
    return SourceSteps(first=(context.transport, context.publish))


DEFINITION = Definition("nccl", NcclOptions, metrics.SCHEMAS, _build, measured=_measured, steps=_steps)
