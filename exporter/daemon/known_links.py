"""The links that this process knows, by LLDP of its switches and hosts; also those that are gone since a while.

A link that is down has no neighbour any more, just when its other end is asked for.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from exporter.core.table import Table
from exporter.meaning.ports.states import PortLocation

LINK = "fabric_link_info"

KEPT_SECONDS = 86_400.0
"""Seconds for which a link is known that is gone."""

MAX_GONE = 65_536
"""Links that are gone; the oldest are dropped."""

Link = tuple[PortLocation, PortLocation]
"""Both ends of a link; the first is the port that has the other one as its neighbour."""


class _Seen(NamedTuple):
    """Links of a device, and the table that they were made of."""

    table: Table
    links: Sequence[Link]
    switches: frozenset[str]


class KnownLinks:
    """The links, from one time to the next."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], _Seen] = {}
        self._gone: dict[Link, float] = {}

    def update(self, tables: Iterable[Table], now: float) -> None:
        """Replace the current links by those of all tables; those of before are gone."""
        seen: dict[tuple[str, str], _Seen] = {}
        for table in tables:
            info = table.schema.metrics.get("info")
            if info is None or info.name != LINK or not table.rows.keys:
                continue
            first = dict(zip(table.schema.labels, table.rows.keys[0], strict=True))
            device = (first["host"], first.get("switch", ""))
            before = self._seen.get(device)
            seen[device] = before if before is not None and before.table is table else _read(table, info.extra)
        for device, before in self._seen.items():
            after = seen.get(device)
            if after is not before:
                for link in set(before.links).difference(after.links if after else ()):
                    self._gone.pop(link, None)
                    self._gone[link] = now
        self._seen = seen
        self._gone = {link: at for link, at in self._gone.items() if now - at <= KEPT_SECONDS}
        for link in list(self._gone)[: max(len(self._gone) - MAX_GONE, 0)]:
            del self._gone[link]

    def links(self) -> list[Link]:
        """Return the current links, and those that are gone whose ends have no other one now."""
        current = [link for one in self._seen.values() for link in one.links]
        taken = {end for link in current for end in link}
        return [*current, *(link for link in self._gone if taken.isdisjoint(link))]

    def switches(self) -> frozenset[str]:
        """Return the names of the switches at either end of a current link."""
        return frozenset(name for one in self._seen.values() for name in one.switches)


def _read(table: Table, extra: Sequence[str]) -> _Seen:
    """Return the links of a table, whose rows are those of one device."""
    links: list[Link] = []
    switches: set[str] = set()
    for row in _rows(table, extra):
        links.append(_ends(row))
        switches |= {row.get("switch", ""), row["peer"] if row.get("peer_kind") == "switch" else ""} - {""}
    return _Seen(table, links, frozenset(switches))


def _rows(table: Table, extra: Sequence[str]) -> Iterator[Mapping[str, str]]:
    for key, values in zip(table.rows.keys, table.values("info") or (), strict=True):
        more = zip(extra, values, strict=True) if isinstance(values, tuple) else ()
        yield dict(zip(table.schema.labels, key, strict=True)) | dict(more)


def _ends(link: Mapping[str, str]) -> Link:
    """Return both ends of a link from the labels of its row.

    Some hosts send a MAC address as the name of a port, and the name of the interface as its description.
    """
    is_mac = link["peer_port"] == link.get("peer_mac")
    far = (link.get("peer_port_description") if is_mac else "") or link["peer_port"]
    near = PortLocation(link["host"] or link.get("switch", ""), link["device"] or link["port"])
    return near, PortLocation(link["peer"], far)
