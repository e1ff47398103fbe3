"""NCCL collectives of the jobs on this host, from all that tells their timings.

That is NCCL Inspector's files, the socket for `fabric_timing.py`, and dumps of PyTorch's Flight Recorder; CoMMA and
xpu_timer tell sums and statistics alone. Each is a feed that fails alone.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import NamedTuple

from exporter.core.blocking import BlockingCalls
from exporter.core.source import (
    Definition,
    Failure,
    Host,
    Options,
    Reading,
    Source,
    SourceError,
)
from exporter.sources.nccl import tables
from exporter.sources.nccl.process_lookup import enquire
from exporter.sources.nccl.processes import Key, Process, Processes
from exporter.sources.nccl.readers.comma import CommaFeed
from exporter.sources.nccl.readers.feed import (
    Facts,
    Feed,
    Heard,
    Said,
)
from exporter.sources.nccl.readers.files import CALL_DEADLINE
from exporter.sources.nccl.readers.flight_recorder import RecorderFeed
from exporter.sources.nccl.readers.hook import HookFeed
from exporter.sources.nccl.readers.inspector import InspectorFeed
from exporter.sources.nccl.readers.xpu_timer import XpuTimerFeed
from exporter.sources.nccl.streams import STREAMS
from exporter.sources.nccl.timing_socket import SOCKET

__all__ = ["DEFINITION", "STREAMS", "NcclOptions", "NcclSource"]

FEEDS = (InspectorFeed, HookFeed, RecorderFeed, CommaFeed, XpuTimerFeed)
"""All feeds; those that tell of processes in the order in which they are believed."""


MAX_ENQUIRIES = 256
"""Processes that are asked about at one poll: more than a host can run, unless somebody makes names up."""


class NcclOptions(Options, frozen=True):
    """Configuration of `sources.nccl`; include and exclude are names of jobs.

    Attributes:
        inspector: Folders of Inspector's files, or shell patterns of folders. Files lie in them or one level below.
        socket: Where fabric_timing.py sends to; false where nobody listens.
        recorder: Folders, or patterns, of dumps of PyTorch's Flight Recorder, as JSON.
        comma: Folders, or patterns, of files of CoMMA.
        xpu_timer: Folders, or patterns, of files of xpu_timer.
        baseline: Files of nccl-tests, or patterns, by which the bandwidth of collectives between nodes is judged.
    """

    inspector: tuple[str, ...] = ("/run/fabric-exporter/nccl",)
    socket: str | bool = SOCKET
    recorder: tuple[str, ...] = ()
    comma: tuple[str, ...] = ()
    xpu_timer: tuple[str, ...] = ()
    baseline: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """See that the socket is a place, or is switched off."""
        super().__post_init__()
        if self.socket is True or (isinstance(self.socket, str) and not self.socket.startswith("/")):
            raise ValueError("socket is an absolute path, or false")


class _Known(NamedTuple):
    """Facts of a process as its feed told them, and with what this host adds."""

    told: Facts
    facts: Facts


class NcclSource:
    """Hears the feeds, and puts together what they say of processes."""

    name = "nccl"
    target = ""
    changed: asyncio.Event | None = None

    def __init__(self, options: NcclOptions, host: Host) -> None:
        """Take the configuration."""
        self.interval = float(options.interval)
        self.settings = self._options = options
        self._host = host
        self._feeds = _feeds(options, host)
        self._serial = BlockingCalls("processes", CALL_DEADLINE, ("processes", str(host.procfs)))
        self._processes = Processes()
        self._facts: dict[Key, _Known] = {}
        self._keepers = tables.Keepers(host.name)

    async def applies(self) -> bool:
        """Tell whether there is anything to hear for any feed.

        Raises:
            SourceError: No feed can tell, or those that can have nothing.
        """
        results = await asyncio.gather(*(feed.applies() for feed in self._feeds), return_exceptions=True)
        if True in results:
            return True
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return False

    async def read(self) -> Reading:
        """Hear all feeds; each fails alone."""
        failures: list[Failure] = []
        heard = await self._hear(failures)
        spoken = [(feed.name, said) for feed, one in heard for said in one.said]
        await self._enquire([(feed, one) for feed, one in spoken if one.totals or one.progress or one.restarted])
        now = monotonic()
        self._processes.begin()
        used: list[tuple[Process, Said]] = []
        for feed, one in heard:
            failures += one.failures
            for said in one.said:
                process = self._take(feed, said, now, failures)
                if process is not None:
                    used.append((process, said))
                elif said.progress:  # which the feed that tells times may not tell
                    process = self._processes.timed(feed.name, said.facts)
                    used += [] if process is None else [(process, replace(said, streams={}))]
        self._processes.finish({feed.name: one.gone for feed, one in heard}, now)
        made = [tables.streams(used, self._host.name, now)]
        for feed in self._feeds:
            made += feed.tables(now)
        return Reading(made + self._keepers.tables(self._processes.named(), now), failures)

    async def close(self) -> None:
        """Close all feeds."""
        self._serial.close()
        await asyncio.gather(*(feed.close() for feed in self._feeds), return_exceptions=True)

    async def _hear(self, failures: list[Failure]) -> list[tuple[Feed, Heard]]:
        """Hear the feeds at the same time, so that one that hangs takes no time of the others.

        Raises:
            SourceError: Those that did not fail have nothing to hear.
        """
        results = await asyncio.gather(*(feed.hear() for feed in self._feeds), return_exceptions=True)
        heard: list[tuple[Feed, Heard]] = []
        failed: list[SourceError] = []
        for feed, result in zip(self._feeds, results, strict=True):
            if isinstance(result, SourceError):
                failed.append(result)
                failures.append(Failure(feed.name, result.reason, str(result)))
            elif isinstance(result, BaseException):
                raise result
            else:
                heard.append((feed, result))
        if failed and not any([await feed.applies() for feed, _ in heard]):
            raise failed[0]
        return heard

    async def _enquire(self, said: Sequence[tuple[str, Said]]) -> None:
        """Add what this host tells of those who were not heard before, begin anew or say more, and remember it."""
        keys = {(feed, one.speaker): one for feed, one in said}
        self._facts = {key: known for key, known in self._facts.items() if key in self._processes or key in keys}
        new = [
            (key, one.facts)
            for key, one in keys.items()
            if one.restarted or key not in self._facts or self._facts[key].told != one.facts
        ]
        if len(new) > MAX_ENQUIRIES:
            self._facts |= {key: _Known(told, replace(told)) for key, told in new[MAX_ENQUIRIES:]}
            del new[MAX_ENQUIRIES:]
        if new:
            asked = partial(enquire, self._host, [facts for _, facts in new])
            found = (await self._serial.run([("processes", asked)]))["processes"]
            if isinstance(found, Exception):
                found = [replace(facts) for _, facts in new]
            self._facts |= {key: _Known(told, facts) for (key, told), facts in zip(new, found, strict=True)}
        for key, one in keys.items():
            one.facts = self._facts[key].facts

    def _take(self, feed: Feed, said: Said, now: float, failures: list[Failure]) -> Process | None:
        """Add what was said to its process; None where it is not used."""
        if (said.totals or said.progress) and not self._options.matches(said.facts.job):
            feed.unused(said, "excluded")
            return None
        process = self._processes.take(feed.name, said, now, failures)
        if isinstance(process, str):
            feed.unused(said, process)
            return None
        return process


def _feeds(options: NcclOptions, host: Host) -> list[Feed]:
    feeds: list[Feed] = [InspectorFeed(options.inspector, options.matches)]
    if isinstance(options.socket, str):
        feeds.append(HookFeed(options.socket, host.procfs))
    if options.recorder:
        feeds.append(RecorderFeed(options.recorder, options.matches))
    if options.comma:
        feeds.append(CommaFeed(options.comma, options.matches))
    if options.xpu_timer:
        feeds.append(XpuTimerFeed(options.xpu_timer, options.matches))
    return feeds


def _build(options: NcclOptions, host: Host) -> list[Source]:
    return [NcclSource(options, host)]


_SCHEMAS = (*tables.SCHEMAS, *(schema for feed in FEEDS for schema in feed.schemas))

DEFINITION = Definition("nccl", NcclOptions, _SCHEMAS, _build)
