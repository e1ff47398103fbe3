"""NCCL's RAS service, asked seldom and with care: who is missing, and which ranks launched less and stay behind.

Asking has crashed jobs, so it is off unless the configuration says otherwise, and even then a job is asked only when it
is old enough, when no communicator is being made, with a release that is known to bear it, and by one host: the one
that rank 0 runs on. How old it is is told by how long the port has been listening, which is looked up and not tried. An
answer that does not come means that nothing is known.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import NamedTuple, get_args

import msgspec

from exporter.config.errors import RuleError
from exporter.config.units import Duration
from exporter.core import vocabulary
from exporter.core.table import (
    LabelValues,
    RowKeeper,
    Schema,
    Table,
    TableBuilder,
)
from exporter.core.vocabulary import counter, gauge
from exporter.nccl.decoding import FormatError
from exporter.nccl.ras import (
    RasRank,
    Report,
    frozen,
    parse_report,
    unequal,
)
from exporter.nccl.ras_protocol import (
    PORT,
    SHORTEST_INTERVAL,
    Refusal,
    StatusQuery,
    may_poll,
    parse_version,
)

DEADLINE = 20.0
"""Seconds that one question may take: RAS itself gives a silent part of the job ten."""

CHUNK = 1 << 16

MAX_BEHIND = 64
"""Ranks behind that are named."""

MAX_COMMUNICATORS = 4096
"""Communicators of an answer that are compared with the next."""

FRESH = 3
"""Intervals without an answer after which the last one is no longer told."""

IN_PROGRESS = 7
"""State of what NCCL is still doing."""

LOOPBACK = ("::1", "127.0.0.1")
"""What localhost stands for: the service listens on one of them alone."""

STATUS = ["RAS: STATUS"]

JOB = vocabulary.schema(
    "fabric_nccl_ras_",
    ("train_job",),
    own={
        "communicators": gauge("Communicators of the job that RAS knows of."),
        "ranks": gauge("Processes of the job that answered RAS."),
        "missing_ranks": gauge("Ranks of communicators that did not answer RAS."),
        "dead_ranks": gauge("Ranks of communicators that RAS takes for dead."),
        "failed_ranks": gauge("Ranks of communicators that report an error of NCCL."),
        "ranks_behind": gauge(
            "Ranks that launched fewer collectives than others of a communicator, all of which launched nothing between"
            " two answers. Point-to-point and what CUDA graphs replay is not counted by RAS. Absent before the second."
        ),
        "still_seconds": gauge(
            "Time over which answers of RAS tell of nothing launched in any communicator: the job hangs, or does"
            " something else. Where no rank is behind, all launched as much, and the network or a GPU keeps them."
        ),
        "answer_age_seconds": gauge("Time since RAS answered."),
        "collection_seconds": gauge("Time that RAS took to ask all of the job."),
        "partial": gauge("Whether parts of the job gave RAS no answer in time (1) or not (0)."),
    },
    origins={
        "communicators": ["communicators"],
        "ranks": ["communicators[].ranks"],
        "missing_ranks": ["communicators[].missing_ranks"],
        "dead_ranks": ["communicators[].missing_ranks[].status.considered_dead"],
        "failed_ranks": ["communicators[].ranks[].status.init_state", "communicators[].ranks[].status.async_error"],
        "ranks_behind": ["communicators[].ranks[].collective_counts"],
        "still_seconds": ["communicators[].ranks[].collective_counts"],
        "answer_age_seconds": STATUS,
        "collection_seconds": ["ras.collection_time_sec"],
        "partial": ["ras.timeouts_count"],
    },
)

BEHIND = vocabulary.schema(
    "fabric_nccl_ras_",
    ("train_job", "rank", "host", "gpu"),
    own={
        "rank_behind": gauge(
            "1 for a rank that did not come to a collective for which others wait; the rank is that in the largest"
            " communicator, the host an address, the GPU its number on the host. At most 64 are named."
        )
    },
    origins={"rank_behind": ["communicators[].ranks[].collective_counts"]},
)

POLLS = vocabulary.schema(
    "fabric_nccl_ras_",
    ("outcome",),
    own={
        "polls_total": counter(
            "Times that RAS was to be asked, by what came of it: answered; unreachable, timed_out, invalid (nothing is"
            " known then); not_listening; and why it was not asked."
        )
    },
    origins={"polls_total": STATUS},
)

SCHEMAS = (JOB, BEHIND, POLLS)

OUTCOMES = ("answered", "unreachable", "timed_out", "invalid", "not_listening", *get_args(Refusal))


class RasOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Whether and how NCCL's RAS service is asked; asking can crash jobs, see the documentation.

    Attributes:
        enabled: True asks.
        address: Where it listens in the network namespace of this host; localhost stands for both loopbacks.
        interval: Time between two questions.
        force: Whether releases are asked that are not known, or known to crash.
        sole: Whether this host asks though no log shows that rank 0 of the job runs here: no other must ask then.
    """

    enabled: bool = False
    address: str = f"localhost:{PORT}"
    interval: Duration = Duration(30.0)
    force: bool = False
    sole: bool = False

    def __post_init__(self) -> None:
        """Refuse what would ask too often, or nobody.

        Raises:
            RuleError: An interval is too short, or an address is none.
        """
        if self.interval < SHORTEST_INTERVAL:
            raise RuleError(["interval"], f"is {self.interval:g} s; give {SHORTEST_INTERVAL:g}s or more")
        host, _, port = self.address.rpartition(":")
        if not (host and port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 1 << 16):
            raise RuleError(["address"], f"is {self.address!r}; give a host and a port, such as localhost:{PORT}")

    @property
    def endpoint(self) -> tuple[tuple[str, ...], int]:
        """Give the hosts to try, and the port."""
        host, _, port = self.address.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        return (LOOPBACK if host == "localhost" else (host,)), int(port)


def listeners(tables: Iterable[str], port: int) -> frozenset[str]:
    """Give the inodes of the sockets that listen on a port, from the text of /proc/net/tcp and tcp6."""
    end = f":{port:04X}"
    rows = (line.split() for text in tables for line in text.splitlines()[1:] if end in line)
    return frozenset(words[9] for words in rows if len(words) > 9 and words[3] == "0A" and words[1].endswith(end))


class Evidence(NamedTuple):
    """What logs tell of the jobs here.

    Attributes:
        version: Of NCCL, as text; empty where not told or not the same in all.
        initialising: Whether a communicator is being made.
        first_here: Whether logs show that rank 0 of each job here runs on this host.
        jobs: Job by hash of a communicator.
    """

    version: str
    initialising: bool
    first_here: bool
    jobs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """What the last answer told, with what the one before it did.

    Attributes:
        report: It itself.
        at: Monotonic time of it.
        still_since: Time of the first answer since which nothing was launched.
        initialising: Whether a communicator was being made.
        values: By ending of `JOB`.
        behind: Ranks behind: rank in the largest communicator, host and GPU.
    """

    report: Report
    at: float
    still_since: float
    initialising: bool
    values: Mapping[str, float | None]
    behind: tuple[LabelValues, ...]


def digest(report: Report, before: Answer | None, now: float) -> Answer:
    """Compare an answer with the one before: one alone says nothing, for counts that move are never equal."""
    known = {}
    if before is not None:
        known = {(one.hash, one.secondary_hash): one for one in before.report.communicators[:MAX_COMMUNICATORS]}
    still: list[bool] = []
    behind: dict[tuple[str, int], RasRank] = {}
    for one in report.communicators[:MAX_COMMUNICATORS]:
        earlier = known.get((one.hash, one.secondary_hash))
        stands = None if earlier is None else frozen(earlier, one)
        if stands is not None:
            still.append(stands)
        if stands:
            names = {rank for kind in unequal(one) for rank in kind.behind}
            behind |= {(rank.host, rank.pid): rank for rank in one.ranks if rank.rank in names}
    since = before.still_since if before is not None and still and all(still) else now
    ranks = [rank for one in report.communicators for rank in one.ranks]
    missing = [rank for one in report.communicators for rank in one.missing_ranks]
    good = {0, IN_PROGRESS}
    values = {
        "communicators": len(report.communicators),
        "ranks": len({(rank.host, rank.pid) for rank in ranks}),
        "missing_ranks": len(missing),
        "dead_ranks": sum(rank.status.considered_dead for rank in missing),
        "failed_ranks": sum(not {rank.status.init_state, rank.status.async_error} <= good for rank in ranks),
        "ranks_behind": len(behind) if still else None,
        "still_seconds": now - since if still else None,
        "collection_seconds": report.ras.collection_time_sec,
        "partial": int(report.ras.timeouts_count > 0),
    }
    initialising = any(rank.status.init_state == IN_PROGRESS for rank in ranks)
    return Answer(report, now, since, initialising, values, _named(report, behind))


def _named(report: Report, behind: Mapping[tuple[str, int], RasRank]) -> tuple[LabelValues, ...]:
    """Name ranks by those in the largest communicator that they are in, as other sources do."""
    largest: dict[tuple[str, int], tuple[int, int]] = {}
    for one in report.communicators:
        for rank in one.ranks:
            place = (rank.host, rank.pid)
            if place in behind and (place not in largest or largest[place][0] < one.size):
                largest[place] = (one.size, rank.rank)
    rows = {
        (str(largest[place][1]), rank.host, str(rank.nvml_dev) if rank.nvml_dev >= 0 else "")
        for place, rank in behind.items()
    }
    return tuple(sorted(rows, key=lambda row: (int(row[0]), row))[:MAX_BEHIND])


@dataclass(slots=True)
class RasPoller:
    """Asks one RAS service, in the background, when it may.

    Attributes:
        options: The configuration.
        outcomes: What came of questions.
        answer: What is known; None if nothing.
        problem: What is wrong with the service at present; empty if nothing.
    """

    options: RasOptions
    outcomes: Counter[str] = field(default_factory=Counter)
    answer: Answer | None = None
    problem: str = ""
    _inodes: frozenset[str] = frozenset()
    _settled: float = 0.0
    _asked: float | None = None
    _due: float = 0.0
    _task: "asyncio.Task[None] | None" = None
    _keepers: dict[Schema, RowKeeper] = field(
        default_factory=lambda: {schema: RowKeeper(schema.labels) for schema in SCHEMAS}
    )

    def consider(self, inodes: frozenset[str], evidence: Evidence) -> None:
        """Ask if it is time to, and allowed; the answer is there at a later look.

        Args:
            inodes: The sockets that listen on the port. With a new one a process has come: the job is young again.
            evidence: What logs tell.
        """
        now = monotonic()
        if inodes - self._inodes:
            self._settled = now
        if not inodes & self._inodes:
            self.answer, self.problem = None, ""
        self._inodes = inodes
        if self._task is not None and self._task.done():
            ended, self._task = self._task, None
            ended.result()  # raises what nobody expected
        if now < self._due or self._task is not None:
            return
        self._due = now + self.options.interval
        why = self._refusal(evidence, now) if inodes else "not_listening"
        if why is not None:
            self.outcomes[why] += 1
            return
        self._asked = now
        self._task = asyncio.get_running_loop().create_task(self._ask(), name="nccl_facts: RAS")

    def _refusal(self, evidence: Evidence, now: float) -> Refusal | None:
        version = evidence.version or (self.answer.report.nccl_version if self.answer is not None else "")
        return may_poll(
            parse_version(version),
            now - self._settled,
            None if self._asked is None else now - self._asked,
            enabled=self.options.enabled,
            forced=self.options.force,
            others=not (self.options.sole or evidence.first_here),
            initialising=evidence.initialising,
        )

    async def close(self) -> None:
        """Give up a question under way."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _ask(self) -> None:
        """Ask once, and keep the answer."""
        asked_of = self._inodes
        try:
            async with asyncio.timeout(DEADLINE):
                data = await self._exchange()
            answer = await asyncio.to_thread(lambda: digest(parse_report(data), self.answer, monotonic()))
        except TimeoutError:
            self._fail("timed_out", f"no answer within {DEADLINE:g} s")
        except OSError as error:
            self._fail("unreachable", error.strerror or str(error))
        except FormatError as error:
            self._fail("invalid", str(error))
        else:
            self.outcomes["answered"] += 1
            if asked_of & self._inodes:
                self.answer, self.problem = answer, ""
            if answer.initialising:
                self._settled = monotonic()  # a communicator is being made: the job counts as young again

    def _fail(self, outcome: str, problem: str) -> None:
        self.outcomes[outcome] += 1
        self.problem = f"RAS at {self.options.address}: {problem}"

    async def _exchange(self) -> bytes:
        """Ask the first address that takes the connection.

        Raises:
            OSError: None does, or it breaks.
            FormatError: The service says something else than it should, or too much.
        """
        reader, writer = await self._connected()
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

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        hosts, port = self.options.endpoint
        for host in hosts[:-1]:
            with suppress(OSError):
                return await asyncio.open_connection(host, port, limit=CHUNK)
        return await asyncio.open_connection(hosts[-1], port, limit=CHUNK)

    def tables(self, jobs: Mapping[str, str], now: float) -> list[Table]:
        """Make the tables; nothing of a job is told while nothing is known.

        Args:
            jobs: Job by hash of a communicator.
            now: Monotonic time.
        """
        polls = TableBuilder(POLLS)
        for outcome in OUTCOMES:
            polls.row((outcome,), {"polls_total": self.outcomes[outcome]})
        made = [polls]
        answer = self.answer
        if answer is not None and now - answer.at <= FRESH * self.options.interval:
            hashes = (one.hash for one in answer.report.communicators)
            job = next((jobs[one] for one in hashes if one in jobs), "unknown")
            of_job, of_ranks = TableBuilder(JOB), TableBuilder(BEHIND)
            of_job.row((job,), {**answer.values, "answer_age_seconds": now - answer.at})
            for row in answer.behind:
                of_ranks.row((job, *row), {"rank_behind": 1})
            made += [of_job, of_ranks]
        return [one.table(self._keepers[one.schema], now) for one in made if one.keys]
