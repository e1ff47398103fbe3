"""Polling of NCCL's RAS service.

Polling has crashed jobs, so it is off by default. Where enabled, a job is polled only if it is old enough, no
communicator is being initialised, its release is known to be safe, and rank 0 runs on this host, so that a single host
polls. The age of the job is the time since the port was first seen listening in /proc/net/tcp, without connecting to
it. No reply means unknown.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import NamedTuple, get_args

from exporter.core.closing import close_all
from exporter.core.table import (
    RowKeeper,
    Schema,
    Table,
    TableBuilder,
)
from exporter.nccl.decoding import FormatError
from exporter.nccl.ras import parse_report
from exporter.nccl.ras_protocol import (
    Refusal,
    StatusQuery,
    may_poll,
    parse_version,
)
from exporter.sources.nccl_facts.metrics import RAS_BEHIND, RAS_JOB, RAS_POLLS, RAS_SCHEMAS
from exporter.sources.nccl_facts.options import RasOptions
from exporter.sources.nccl_facts.ras_status import RasStatus, evaluate

TIMEOUT_SECONDS = 20.0
"""Timeout of a poll: RAS itself allows ten seconds for processes that do not respond."""

CHUNK = 1 << 16

MAX_AGE_INTERVALS = 3
"""Poll intervals after which a status is no longer exported."""

OUTCOMES = ("answered", "unreachable", "timed_out", "invalid", "not_listening", *get_args(Refusal))


class LogEvidence(NamedTuple):
    """What logs show about the jobs on this host.

    Attributes:
        version: Version of NCCL; empty if unknown or different between processes.
        initialising: Whether a communicator is being initialised.
        rank_zero_here: Whether rank 0 of each job on this host runs here.
        jobs: Job by hash of a communicator.
    """

    version: str
    initialising: bool
    rank_zero_here: bool
    jobs: Mapping[str, str]


@dataclass(slots=True)
class RasPoller:
    """Polls one RAS service in the background, when it is safe.

    Attributes:
        options: Configuration.
        outcomes: Number of polls by outcome.
        status: Last status; None if unknown.
        problem: Error of the last poll; empty if it succeeded.
    """

    options: RasOptions
    outcomes: Counter[str] = field(default_factory=Counter)
    status: RasStatus | None = None
    problem: str = ""
    _inodes: frozenset[str] = frozenset()
    _young_since: float = 0.0
    _last_poll: float | None = None
    _due: float = 0.0
    _task: "asyncio.Task[None] | None" = None
    _keepers: dict[Schema, RowKeeper] = field(
        default_factory=lambda: {schema: RowKeeper(schema.labels) for schema in RAS_SCHEMAS}
    )

    def poll_if_due(self, inodes: frozenset[str], evidence: LogEvidence) -> None:
        """Start a poll if it is due and safe; the status is available at a later call.

        Args:
            inodes: Sockets that listen on the port. A new one means a new process: the job counts as young again.
            evidence: What logs show.
        """
        now = monotonic()
        if inodes - self._inodes:
            self._young_since = now
        if not inodes & self._inodes:
            self.status, self.problem = None, ""
        self._inodes = inodes
        if self._task is not None and self._task.done():
            ended, self._task = self._task, None
            ended.result()  # raises unexpected exceptions
        if now < self._due or self._task is not None:
            return
        self._due = now + self.options.interval
        refusal = self._refusal(evidence, now) if inodes else "not_listening"
        if refusal is not None:
            self.outcomes[refusal] += 1
            return
        self._last_poll = now
        self._task = asyncio.get_running_loop().create_task(self._poll(), name="nccl_facts: RAS")

    def _refusal(self, evidence: LogEvidence, now: float) -> Refusal | None:
        version = evidence.version or (self.status.report.nccl_version if self.status is not None else "")
        return may_poll(
            parse_version(version),
            now - self._young_since,
            None if self._last_poll is None else now - self._last_poll,
            enabled=self.options.enabled,
            forced=self.options.force,
            others=not (self.options.sole or evidence.rank_zero_here),
            initialising=evidence.initialising,
        )

    async def close(self) -> None:
        """Cancel a running poll."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await close_all("nccl_facts RAS", [task])

    async def _poll(self) -> None:
        """Poll once, and keep the status."""
        polled = self._inodes
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                data = await self._request_status()
            status = await asyncio.to_thread(lambda: evaluate(parse_report(data), self.status, monotonic()))
        except TimeoutError:
            self._fail("timed_out", f"no reply within {TIMEOUT_SECONDS:g} s")
        except OSError as error:
            self._fail("unreachable", error.strerror or str(error))
        except FormatError as error:
            self._fail("invalid", str(error))
        else:
            self.outcomes["answered"] += 1
            if polled & self._inodes:
                self.status, self.problem = status, ""
            if status.initialising:
                self._young_since = monotonic()  # a communicator is being initialised: the job counts as young again

    def _fail(self, outcome: str, problem: str) -> None:
        self.outcomes[outcome] += 1
        self.problem = f"RAS at {self.options.address}: {problem}"

    async def _request_status(self) -> bytes:
        """Request the status from the first address that accepts a connection.

        Raises:
            OSError: None does, or the connection breaks.
            FormatError: The service violates the protocol, or the reply is too large.
        """
        reader, writer = await self._connect()
        try:
            query = StatusQuery()
            writer.write(query.begin().send)
            while data := await reader.read(CHUNK):
                if send := query.receive(data).send:
                    writer.write(send)
            return query.closed().answer or b""
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        hosts, port = self.options.endpoint
        for host in hosts[:-1]:
            with suppress(OSError):
                return await asyncio.open_connection(host, port, limit=CHUNK)
        return await asyncio.open_connection(hosts[-1], port, limit=CHUNK)

    def tables(self, jobs: Mapping[str, str], now: float) -> list[Table]:
        """Return the tables; without a recent status, only the outcomes of polls.

        Args:
            jobs: Job by hash of a communicator.
            now: Monotonic time.
        """
        polls = TableBuilder(RAS_POLLS)
        for outcome in OUTCOMES:
            polls.row((outcome,), {"polls_total": self.outcomes[outcome]})
        tables = [polls]
        status = self.status
        if status is not None and now - status.at <= MAX_AGE_INTERVALS * self.options.interval:
            hashes = (one.hash for one in status.report.communicators)
            job = next((jobs[one] for one in hashes if one in jobs), "unknown")
            of_job, of_ranks = TableBuilder(RAS_JOB), TableBuilder(RAS_BEHIND)
            of_job.row((job,), {**status.values, "answer_age_seconds": now - status.at})
            for row in status.behind:
                of_ranks.row((job, *row), {"rank_behind": 1})
            tables += [of_job, of_ranks]
        return [one.table(self._keepers[one.schema], now) for one in tables if one.keys]
