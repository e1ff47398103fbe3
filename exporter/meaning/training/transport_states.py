"""States of a host from how a job there reaches the network, for collectors, which do not see the ports.

`transport` compares the traffic of a job with that of the ports, of the last minute. What it shows is a state when it
has been so for a further minute, and ends with the first other value. It is a share of the whole window, of which most
has to be so: the state began with the window, or with the job.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from exporter.core.table import Table
from exporter.meaning.ports.rdma_bytes import read
from exporter.meaning.ports.states import PortLocation, PortState
from exporter.meaning.training.transport import LEAD_SECONDS, RDMA_SHARE, SCHEMA, WINDOW_SECONDS

NO_RDMA, FEW_PORTS = "no_rdma", "few_ports"
"""Kinds of states, as in `cause_rules.TRAFFIC_RULES`."""

LASTING_SECONDS = 60.0
"""Seconds that a value has to stay before it is a state: a job that starts connects its adapters by and by."""

FEW_SHARE = 0.5
"""Share of the ports that a job could use at which it uses few: ports for storage are no reason."""

Key = tuple[str, str]
"""Job and kind of a state."""


@dataclass(slots=True)
class TransportStateMemory:
    """State of this step.

    Attributes:
        begun: Time since which each value is so.
        seen: Time at which each job was first seen.
        active: States that were active the last time.
        numbers: Number of times that each began.
    """

    begun: dict[Key, float] = field(default_factory=dict)
    seen: dict[str, float] = field(default_factory=dict)
    active: frozenset[Key] = frozenset()
    numbers: dict[Key, int] = field(default_factory=dict)


def step(memory: TransportStateMemory, tables: Iterable[Table], host: str, now: float) -> list[PortState]:
    """Return the active states.

    Args:
        memory: State of this step; changed.
        tables: The tables of all sources of this host.
        host: Name of this host.
        now: Time of the tables.
    """
    tables = list(tables)
    values = {(job, kind): value for job, kind, value in _values(tables)}
    memory.begun = {key: memory.begun.get(key, now) for key in values}
    active = frozenset(key for key, begun in memory.begun.items() if now - begun >= LASTING_SECONDS)
    jobs = {job for table in tables if table.schema is SCHEMA for job, _ in table.rows.keys}
    memory.seen = {job: memory.seen.get(job, now) for job in jobs}
    memory.numbers = {key: number for key, number in memory.numbers.items() if key[0] in jobs}
    for key in active - memory.active:
        memory.numbers[key] = memory.numbers.get(key, 0) + 1
    memory.active = active
    return [
        PortState(key[1], PortLocation(host, ""), _since(memory, key), memory.numbers[key], values[key], job=key[0])
        for key in values
        if key in active
    ]


def _since(memory: TransportStateMemory, key: Key) -> float:
    """Return the time at which a state began: with the window that showed it first, or with the job."""
    return max(memory.begun[key] - WINDOW_SECONDS - LEAD_SECONDS, memory.seen[key[0]])


def _values(tables: list[Table]) -> Iterator[tuple[str, str, float]]:
    """Yield job, kind and value of what is so now."""
    found = [table for table in tables if table.schema is SCHEMA]
    ports = read(tables) if found else None
    up = 0 if ports is None else sum(one.up for one in ports.ports.values())
    for table in found:
        none = [None] * len(table.rows)
        columns = (table.numbers(ending) or none for ending in ("rdma_ratio", "rdma_ports_used", "network_ranks"))
        for (job, _), ratio, used, ranks in zip(table.rows.keys, *columns, strict=True):
            if ratio is not None and ratio < RDMA_SHARE:
                yield job, NO_RDMA, ratio
            if used is not None and ranks is not None and used <= FEW_SHARE * min(ranks, up):
                yield job, FEW_PORTS, used
