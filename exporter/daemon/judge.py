"""Verdicts on training jobs and their likely causes, in a collector.

It combines the verdict on a job, the states of ports that hosts and switch pollers publish, and the links that this
process knows. A verdict is logged when it begins and when it ends.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from exporter.core import vocabulary
from exporter.core.clock import REAL_TIME, Clock
from exporter.core.table import RowKeeper, Table, TableBuilder
from exporter.core.vocabulary import gauge
from exporter.daemon.known_links import KnownLinks
from exporter.meaning.ports.states import PortLocation
from exporter.meaning.training import jobs, past
from exporter.meaning.training.causes import (
    Cause,
    Symptom,
    causes,
)
from exporter.meaning.training.paths import Event, Fabric, Rank
from exporter.meaning.training.records import Job
from exporter.meaning.training.verdicts import MIN_BANDWIDTH_SHARE, Judgement, Verdict
from exporter.mqtt.states import Presence, StateKey, StateMessage, split_port_and_job

logger = logging.getLogger(__name__)

MAX_CAUSES = 3
"""Causes of one verdict that are exported and logged."""

CAUSES = vocabulary.schema(
    "fabric_nccl_",
    ("train_job", "cause", "name", "port", "peer", "peer_port"),
    own={
        "cause_confidence": gauge(
            "Confidence, from 0 to 1, that the cause explains the verdict on the job (fabric_nccl_verdict); exported"
            " for the three most likely causes. The label name is the host or switch where the cause is, peer and"
            " peer_port are the other end of its link, where it is known."
        )
    },
    origins={"cause_confidence": ["fabric/v1/events", "fabric/v1/nccl"]},
)

NOWHERE = PortLocation("", "")
"""Of a cause that is not a port, and of an unknown end of a link."""


class JobLevels(Protocol):
    """Best levels of jobs that are kept elsewhere."""

    def of(self, job: str) -> Mapping[str, float] | None:
        """Return the levels of a job; empty if they are to be forgotten, None if there are none."""

    def keep(self, levels: Mapping[str, Mapping[str, float]]) -> None:
        """Set the levels of all jobs that run."""


class RetainedState(Protocol):
    """Published states of ports, presence of daemons, and best levels of jobs."""

    @property
    def levels(self) -> JobLevels:
        """The best levels of jobs."""

    def states(self) -> Mapping[StateKey, StateMessage]:
        """Return the active states by name, port and kind."""

    def hosts(self) -> Mapping[str, Presence]:
        """Return the presence of daemons by host."""


_NORMAL = (Verdict.FINE, Verdict.UNKNOWN)
"""Verdicts that need no cause."""


class Judge:
    """Computes verdicts and causes; its step replaces `jobs.step` in the pipeline of a collector."""

    def __init__(
        self,
        known: Callable[[], jobs.JobKnowledge],
        retained: Callable[[], RetainedState | None],
        tables: Callable[[], Iterable[Table]],
        clock: Clock = REAL_TIME,
    ) -> None:
        """Create a judge without state.

        Args:
            known: Returns what is known of jobs beside their timings.
            retained: Returns the published states; None before the collector subscribed.
            tables: Returns the tables of this process, for the links in them.
            clock: The clocks: published states have Unix times.
        """
        self._known, self._retained, self._tables, self._clock = known, retained, tables, clock
        self._links = KnownLinks()
        self._given: dict[str, tuple[Verdict, frozenset[str]]] = {}
        self._several: frozenset[str] = frozenset()
        self._restored: dict[str, tuple[past.Past, Mapping[str, float]]] = {}
        self._keeper = RowKeeper(CAUSES.labels)

    def step(self, state: jobs.TrainingState | None, table: Table) -> tuple[jobs.TrainingState | None, Sequence[Table]]:
        """Compute the verdicts of a table of timings; other tables pass unchanged."""
        state, made = jobs.step(self._known(), state, table)
        if state is None or made == (table,):
            return state, made
        self._exchange_levels(state)
        self._links.update(self._tables(), table.time)
        has_verdict = any(one.given is not None and one.given.verdict not in _NORMAL for one in state.memories.values())
        context = (self._events(), self._fabric()) if has_verdict else ([], Fabric())
        found = {name: _causes(name, state, *context) for name in state.collectives.jobs}
        self._log(state, found)
        self._log_runs(state, table.time)
        built = TableBuilder(CAUSES)
        for name, ranked in sorted(found.items()):
            exported = set()
            for cause in ranked[:MAX_CAUSES]:
                key = (name, cause.kind, *(cause.port or NOWHERE), *(cause.peer or NOWHERE))
                if key not in exported:
                    exported.add(key)
                    built.row(key, {"cause_confidence": cause.confidence})
        return state, [*made, built.table(self._keeper, table.time)] if built.keys else made

    def _exchange_levels(self, state: jobs.TrainingState) -> None:
        """Take over the kept levels of jobs, each message once, and set those to keep."""
        retained = self._retained()
        if retained is None:
            return
        for name, one in state.pasts.items():
            levels = retained.levels.of(name)
            applied = self._restored.get(name)
            if levels is None or (applied is not None and applied[0] is one and applied[1] is levels):
                continue
            if levels:
                past.restore(one, levels)
            else:
                state.pasts[name] = past.Past()
            self._restored[name] = (state.pasts[name], levels)
        self._restored = {name: one for name, one in self._restored.items() if name in state.pasts}
        retained.levels.keep({name: past.best_levels(one) for name, one in state.pasts.items()})

    def _events(self) -> list[Event]:
        """Return the published states as events, with monotonic times."""
        retained, clock = self._retained(), self._clock.monotonic() - self._clock.unix()
        if retained is None:
            return []
        found = []
        for (name, published_port, kind), one in retained.states().items():
            port, job = split_port_and_job(published_port)
            quiet = None if one.quiet_since is None else one.quiet_since + clock
            found.append(Event(kind, PortLocation(name, port), one.since + clock, one.value, one.text, job, quiet))
        return found

    def _fabric(self) -> Fabric:
        retained = self._retained()
        present = [] if retained is None else [host for host, one in retained.hosts().items() if one.state == "up"]
        links = self._links
        return Fabric(links.links(), reporting_hosts=frozenset(present), switches=links.switches())

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
            if now[0] in _NORMAL:
                if before[0] not in _NORMAL:
                    logger.info("job %s: %s: over; now %s", name, before[0].value, now[0].value)
                continue
            why = "; ".join(f"{one.word}: {', '.join(one.evidence)}" for one in found.get(name, ())[:MAX_CAUSES])
            logger.warning("job %s: %s%s%s", name, now[0].value, _format_suspect(judgement), f" ({why})" if why else "")

    def _log_runs(self, state: jobs.TrainingState, now: float) -> None:
        """Log once that several jobs report under one name."""
        counts = {name: job.claims.runs(now) for name, job in state.collectives.jobs.items()}
        several = frozenset(name for name, count in counts.items() if count > 1)
        for name in sorted(several - self._several):
            logger.warning(
                "job %s: %d jobs report under this name: no verdict; name them differently", name, counts[name]
            )
        self._several = several


def _causes(name: str, state: jobs.TrainingState, events: Sequence[Event], fabric: Fabric) -> list[Cause]:
    """Return the likely causes of the verdict on a job."""
    judgement = state.memories[name].given
    if judgement is None or judgement.verdict in _NORMAL:
        return []
    job, memory = state.collectives.jobs[name], state.memories[name]
    ranks, same = _locations(job)
    symptom = Symptom(judgement, memory.since, ranks, *_by_speed(job, judgement), began=job.since)
    of_job = [one for one in events if one.job in {"", name}]
    return causes(symptom, [*of_job, *_shared(ranks, job.since)], replace(fabric, same=same))


def _locations(job: Job) -> tuple[dict[str, Rank], dict[PortLocation, PortLocation]]:
    """Return host and ports of each rank of a job, and the first name of each port by its other names."""
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
    """Return events of ports that are the only nearest port of more ranks than on other hosts with as many ranks."""
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
    """Return the ranks of each slow communicator, and of each other one."""
    slow: list[frozenset[str]] = []
    fine: list[frozenset[str]] = []
    for name, share in judgement.communicators.items():
        if name in job.communicators:
            (slow if share < MIN_BANDWIDTH_SHARE else fine).append(frozenset(job.communicators[name].members))
    return slow, fine


def _format_suspect(judgement: Judgement) -> str:
    """Return the suspected host or ranks and the lost share of time, for the log."""
    if judgement.hosts:
        return f": host {', '.join(judgement.hosts)}, {judgement.loss:.0%} of the time"
    if judgement.ranks:
        first = judgement.ranks[0]
        seen = f", last in {first.last} of {first.decisive} collectives" if first.decisive else ""
        names = ", ".join(one.rank for one in judgement.ranks[:8])
        return f": rank {names}{seen}, {judgement.loss:.0%} of the time"
    if judgement.bandwidth is not None and judgement.verdict is Verdict.NETWORK:
        return f": {judgement.bandwidth:.0%} of the expected network bandwidth"
    return ""
