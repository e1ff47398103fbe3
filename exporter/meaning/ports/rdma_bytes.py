"""Bytes that the RDMA ports of a host counted within a time: the sum over its ports, or unknown, never a part of it.

A port that could carry traffic and has no byte counter, a port that appeared or is gone, and a counter that decreased
make the bytes of that time unknown. On InfiniBand, ports count IPoIB too: what the kernel's network device counted is
subtracted, so that TCP over IPoIB is not taken for RDMA.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from exporter.core.table import LabelValues, Table

PREFIX, NIC_PREFIX = "fabric_rdma_", "fabric_nic_"
LABELS = ("device", "port")
BYTES = ("receive_bytes_total", "transmit_bytes_total")
KERNEL_BYTES = ("kernel_receive_bytes_total", "kernel_transmit_bytes_total")


class PortCount(NamedTuple):
    """Bytes of a port in both directions: all, those of the kernel's network stack, and whether the link is up."""

    total: float
    kernel: float
    up: bool


class PortCounts(NamedTuple):
    """Counts of all RDMA ports of a host, and the monotonic time of the oldest of them."""

    time: float
    ports: Mapping[LabelValues, PortCount]


class Counted(NamedTuple):
    """Bytes of RDMA within a time by port, and the number of ports that were up at its end."""

    ports: Mapping[LabelValues, float]
    up: int


def read(tables: Iterable[Table]) -> PortCounts | None:
    """Return the counts of the RDMA ports in tables of any kind; None where there is no port, or one is unknown."""
    listed = list(tables)
    kernel = _kernel_bytes(listed)
    found: dict[LabelValues, PortCount] = {}
    oldest = float("inf")
    for table in listed:
        if table.schema.prefix != PREFIX or table.schema.labels != LABELS or BYTES[0] not in table.schema.metrics:
            continue
        oldest = min(oldest, table.time, *(table.times or ()))
        for key, count in _ports(table, kernel):
            if count is not None:
                found[key] = count
            elif _may_be_up(table, key):
                return None
    return PortCounts(oldest, found) if found else None


def _ports(table: Table, kernel: Mapping[str, float]) -> Iterator[tuple[LabelValues, PortCount | None]]:
    """Yield the ports of a table; None for one without byte counters."""
    none = [None] * len(table.rows)
    received, sent = (table.numbers(ending) or none for ending in BYTES)
    ups, about = table.numbers("link_up") or none, table.values("info") or none
    names = table.schema.metrics["info"].extra
    for key, one, other, up, values in zip(table.rows.keys, received, sent, ups, about, strict=True):
        if one is None or other is None:
            yield key, None
            continue
        info = dict(zip(names, values, strict=True)) if isinstance(values, tuple) else {}
        on_infiniband = info.get("link_layer") == "InfiniBand"
        yield key, PortCount(one + other, kernel.get(info["netdev"], 0.0) if on_infiniband else 0.0, up == 1)


def _may_be_up(table: Table, key: LabelValues) -> bool:
    """Return whether the link of a port is up, or its state unknown."""
    ups = table.numbers("link_up")
    return ups is None or ups[table.rows.keys.index(key)] != 0


def _kernel_bytes(tables: Iterable[Table]) -> dict[str, float]:
    """Return the bytes of the kernel's network stack by network device."""
    found = {}
    for table in tables:
        received, sent = (table.numbers(ending) for ending in KERNEL_BYTES)
        if table.schema.prefix == NIC_PREFIX and received is not None and sent is not None:
            for (device, *_), one, other in zip(table.rows.keys, received, sent, strict=True):
                if one is not None and other is not None:
                    found[device] = one + other
    return found


@dataclass(slots=True)
class PortHistory:
    """Counts of the last minutes, all of the same ports and without a decrease; others start from empty."""

    counts: deque[PortCounts] = field(default_factory=deque)

    def add(self, now: PortCounts | None, kept_seconds: float) -> None:
        """Add counts; those older than `kept_seconds` are dropped, except the newest of them."""
        if now is None:
            self.counts.clear()
            return
        if self.counts:
            last = self.counts[-1]
            if now.time <= last.time:
                return
            if not _continues(last.ports, now.ports):
                self.counts.clear()
        self.counts.append(now)
        while len(self.counts) > 1 and self.counts[1].time <= now.time - kept_seconds:
            self.counts.popleft()

    def since(self, begin: float) -> Counted | None:
        """Return the bytes from the last counts before a time until the newest ones; None where that is unknown."""
        base = next((one for one in reversed(self.counts) if one.time <= begin), None)
        if base is None:
            return None
        last = self.counts[-1].ports
        moved = {
            key: max(0.0, last[key].total - before.total - (last[key].kernel - before.kernel))
            for key, before in base.ports.items()
        }
        return Counted(moved, sum(one.up for one in last.values()))


def _continues(before: Mapping[LabelValues, PortCount], now: Mapping[LabelValues, PortCount]) -> bool:
    """Return whether counts are of the same ports, and none of them decreased."""
    return before.keys() == now.keys() and all(
        now[key].total >= one.total and now[key].kernel >= one.kernel for key, one in before.items()
    )
