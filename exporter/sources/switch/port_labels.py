"""The labels of the ports of a switch that is read by several protocols: one port has one label, however it is spelled.

The label is the name in the protocol that named the port first. What a switch reports decides how many names there are,
so they are bounded, and a name that is not in use any more expires.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from exporter.sources.switch.port_names import canonical
from exporter.switch_api.port import MAX_PORTS

NAME_SECONDS = 3600.0
"""Seconds for which the label of a port is kept that no table has any more: a protocol may fail for a while."""


@dataclass(slots=True)
class _Label:
    protocol: str
    label: str
    used: float


@dataclass(slots=True)
class PortLabels:
    """The labels of one switch, by canonical name."""

    _labels: dict[str, _Label] = field(default_factory=dict)
    _in_use: dict[str, frozenset[str]] = field(default_factory=dict)

    def assign(self, part: str, protocol: str, ports: Iterable[str], now: float) -> dict[str, str | None]:
        """Return the label of each port of a table; None for those above MAX_PORTS.

        Args:
            part: The table, whose previous ports are no longer in use.
            protocol: The protocol by which it is read.
            ports: The ports as spelled there.
            now: Monotonic seconds.
        """
        names = {port: canonical(port) for port in ports}
        self._in_use[part] = frozenset(names.values())
        in_use = frozenset().union(*self._in_use.values())
        self._expire(in_use, now)
        unused = iter([name for name in self._labels if name not in in_use])
        found: dict[str, str | None] = {}
        for port, name in names.items():
            known = self._labels.get(name)
            if known is None and len(self._labels) >= MAX_PORTS and (oldest := next(unused, None)) is not None:
                del self._labels[oldest]
            if known is None and len(self._labels) < MAX_PORTS:
                known = self._labels[name] = _Label(protocol, port, now)
            found[port] = None if known is None else port if known.protocol == protocol else known.label
        return found

    def _expire(self, in_use: frozenset[str], now: float) -> None:
        for name, known in list(self._labels.items()):
            if name in in_use:
                known.used = now
            elif now - known.used > NAME_SECONDS:
                del self._labels[name]
