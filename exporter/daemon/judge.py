"""The judge of training jobs: verdicts on the timings that a collector heard, and what may be behind them.

It brings together what meaning keeps apart: the verdict on a job, the states of ports that hosts and switch pollers
publish, and who is linked to whom as far as this process knows. A verdict is logged when it begins and when it ends.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from time import monotonic, time
from typing import Protocol

from exporter.core import vocabulary
from exporter.core.table import RowKeeper, Table, TableBuilder
from exporter.core.vocabulary import gauge
from exporter.meaning.ports.states import PortLocation
from exporter.meaning.training import jobs
from exporter.meaning.training.alignment import Job
from exporter.meaning.training.causes import Cause, Symptom, causes
from exporter.meaning.training.paths import Event, Fabric, Rank
from exporter.meaning.training.verdicts import MIN_BANDWIDTH_SHARE, Judgement, Verdict
from exporter.mqtt.states import Presence, State, job_of_port

logger = logging.getLogger(__name__)

MOST_CAUSES = 3
"""Causes of one verdict that are told."""

CAUSES = vocabulary.schema(
    "fabric_nccl_",
    ("train_job", "cause", "name", "port"),
    own={
        "cause_confidence": gauge(
            "How well a state of a port, or what is no port's, explains the verdict on the job, from 0 to 1; the three"
            " likeliest. name is the host or switch."
        )
    },
    origins={"cause_confidence": ["fabric/v1/events", "fabric/v1/nccl"]},
)

LINK = "fabric_link_info"


class Board(Protocol):
    """What is known of ports and daemons."""

    def states(self) -> Mapping[tuple[str, str, str], State]:
        """Give the active states by name, port and kind."""

    def hosts(self) -> Mapping[str, Presence]:
        """Give which daemons are there or gone, by host."""


_WELL = (Verdict.FINE, Verdict.UNKNOWN)
"""Verdicts that nothing need be behind."""


class Judge:
    """Judges jobs; its step stands in the place of that of meaning."""

    def __init__(
        self,
        known: Callable[[], jobs.JobKnowledge],
        board: Callable[[], Board | None],
        tables: Callable[[], Iterable[Table]],
    ) -> None:
        """Take what is known.

        Args:
            known: Gives what is known of jobs beside their timings.
            board: Gives what is published of ports; None while nothing is heard.
            tables: Gives what this process itself knows, of links above all.
        """
        self._known, self._board, self._tables = known, board, tables
        self._given: dict[str, tuple[Verdict, frozenset[str]]] = {}
        self._keeper = RowKeeper(CAUSES.labels)

    def step(self, state: jobs.TrainingState | None, table: Table) -> tuple[jobs.TrainingState | None, Sequence[Table]]:
        """Judge the jobs of a table of timings; other tables pass."""
        state, made = jobs.step(self._known(), state, table)
        if state is None or made == (table,):
            return state, made
        sick = any(one.given is not None and one.given.verdict not in _WELL for one in state.memories.values())
        around = (self._events(), self._fabric()) if sick else ([], Fabric())
        found = {name: _causes(name, state, *around) for name in state.collectives.jobs}
        self._log(state, found)
        built = TableBuilder(CAUSES)
        for name, ranked in sorted(found.items()):
            told = set()
            for cause in ranked[:MOST_CAUSES]:
                where = cause.port or PortLocation("", "")
                key = (name, cause.kind, where.name, where.port)
                if key not in told:
                    told.add(key)
                    built.row(key, {"cause_confidence": cause.confidence})
        return state, [*made, built.table(self._keeper, table.time)] if built.keys else made

    def _events(self) -> list[Event]:
        """Give the states of ports, in the time of the timings."""
        board, clock = self._board(), monotonic() - time()
        if board is None:
            return []
        found = []
        for (name, told, kind), one in board.states().items():
            port, job = job_of_port(told)
            found.append(Event(kind, PortLocation(name, port), one.since + clock, one.value, one.text, job))
        return found

    def _fabric(self) -> Fabric:
        board = self._board()
        heard = [] if board is None else [host for host, one in board.hosts().items() if one.state == "up"]
        links, switches = [], set()
        for table in self._tables():
            info = table.schema.metrics.get("info")
            if info is None or info.name != LINK:
                continue
            for key, told in zip(table.rows.keys, table.values("info") or (), strict=True):
                if isinstance(told, tuple) and len(key) == 2:
                    links.append((PortLocation(*key), PortLocation(told[0], told[1])))
                    if table.schema.labels[0] == "switch":
                        switches.add(key[0])
        return Fabric(links, reporting_hosts=frozenset(heard), switches=frozenset(switches))

    def _log(self, state: jobs.TrainingState, found: Mapping[str, Sequence[Cause]]) -> None:
        """Log verdicts that begin, and those that end."""
        for name in self._given.keys() - state.memories.keys():
            del self._given[name]
        for name, memory in state.memories.items():
            judgement = memory.given
            if judgement is None:
                continue
            now = (judgement.verdict, frozenset(judgement.hosts or [one.rank for one in judgement.ranks]))
            before = self._given.get(name, (Verdict.UNKNOWN, frozenset[str]()))
            self._given[name] = now
            if now == before or (now[0] is before[0] and now[1] & before[1]):
                continue
            if now[0] in _WELL:
                if before[0] not in _WELL:
                    logger.info("job %s: %s: over; now %s", name, before[0].value, now[0].value)
                continue
            why = "; ".join(f"{one.word}: {', '.join(one.evidence)}" for one in found.get(name, ())[:MOST_CAUSES])
            logger.warning("job %s: %s%s%s", name, now[0].value, _whose(judgement), f" ({why})" if why else "")


def _causes(name: str, state: jobs.TrainingState, events: Sequence[Event], fabric: Fabric) -> list[Cause]:
    """Say what may be behind the verdict on a job."""
    judgement = state.memories[name].given
    if judgement is None or judgement.verdict in _WELL:
        return []
    job, memory = state.collectives.jobs[name], state.memories[name]
    ranks, same = _places(job)
    symptom = Symptom(judgement, memory.since, ranks, *_by_speed(job, judgement), began=job.since)
    of_job = [one for one in events if one.job in {"", name}]
    return causes(symptom, [*of_job, *_shared(ranks, job.since)], replace(fabric, same=same))


def _places(job: Job) -> tuple[dict[str, Rank], dict[PortLocation, PortLocation]]:
    """Give where the ranks of a job are, and the other names of the ports nearest to them."""
    ranks: dict[str, Rank] = {}
    same: dict[PortLocation, PortLocation] = {}
    for rank, host in job.hosts.items():
        names = [one.split("=") for one in job.ports.get(rank, "").split(",") if one]
        ranks[rank] = Rank(host, tuple(first for first, *_ in names))
        same |= {
            PortLocation(host, other): PortLocation(host, first)
            for first, *others in names
            for other in others
            if other
        }
    return ranks, same


def _shared(ranks: Mapping[str, Rank], since: float) -> list[Event]:
    """Give the ports that are the only one near to more ranks than any port of other hosts with as many ranks."""
    users: dict[str, Counter[tuple[str, ...]]] = {}
    for rank in ranks.values():
        users.setdefault(rank.host, Counter())[rank.ports] += 1
    placed = {host: found for host, found in users.items() if all(len(ports) == 1 for ports in found)}
    usual: dict[int, int] = {}
    for found in placed.values():
        count = found.total()
        usual[count] = min(usual.get(count, count), max(found.values()))
    return [
        Event("adapter_shared", PortLocation(host, ports[0]), since, count)
        for host, found in placed.items()
        for ports, count in found.items()
        if count > usual[found.total()]
    ]


def _by_speed(job: Job, judgement: Judgement) -> tuple[list[frozenset[str]], list[frozenset[str]]]:
    """Give the ranks of each communicator that is slow, and of those that are not."""
    slow: list[frozenset[str]] = []
    fine: list[frozenset[str]] = []
    for name, share in judgement.communicators.items():
        if name in job.communicators:
            (slow if share < MIN_BANDWIDTH_SHARE else fine).append(frozenset(job.communicators[name].members))
    return slow, fine


def _whose(judgement: Judgement) -> str:
    """Say who is to blame, and how sure that is."""
    if judgement.hosts:
        return f": host {', '.join(judgement.hosts)}, {judgement.loss:.0%} of the time"
    if judgement.ranks:
        first = judgement.ranks[0]
        seen = f", last in {first.last} of {first.decisive} collectives" if first.decisive else ""
        names = ", ".join(one.rank for one in judgement.ranks[:8])
        return f": rank {names}{seen}, {judgement.loss:.0%} of the time"
    if judgement.bandwidth is not None and judgement.verdict is Verdict.NETWORK:
        return f": {judgement.bandwidth:.0%} of what the network should give"
    return ""
