"""Ports of a switch that are up and whose bytes it does not count: a check after the merge, the same for all protocols.

A switch may report a port and have no counters of it: SONiC after its counter service failed, a chip that lacks them,
an agent that skips a port. No series shows that, as there is none.
"""

from collections.abc import Sequence

from exporter.core.source import Failure
from exporter.core.table import Table, Value
from exporter.sources.switch.metrics import KIND, PORTS
from exporter.sources.switch.port_kinds import PortKind, kind_of

POLLS = 3
"""Polls running in which a port was up and had no count of its bytes: counters may come a poll later than ports."""

REASON = "no_byte_count"

DIRECTIONS = ("receive", "transmit")


class UncountedPorts:
    """The ports of one switch that are up and have no byte counts, from poll to poll."""

    def __init__(self) -> None:
        self._polls: dict[str, int] = {}

    def failures(self, tables: Sequence[Table]) -> list[Failure]:
        """Return a failure for each physical port that has been up without a byte count for POLLS polls.

        Args:
            tables: All tables of one poll.
        """
        ports = [
            table for table in tables if table.schema.prefix == PORTS.prefix and table.schema.labels == PORTS.labels
        ]
        up = {port for port, value in _cells(ports, "link_up") if value == 1}
        missing: dict[str, list[str]] = {}
        for direction in DIRECTIONS:
            counted = {port for port, value in _cells(ports, f"{direction}_bytes_total") if value is not None}
            for port in up - counted:
                missing.setdefault(port, []).append(direction)
        if not missing:
            self._polls = {}
            return []
        kinds = {port: info[KIND] for port, info in _cells(ports, "info") if isinstance(info, tuple)}
        self._polls = {
            port: self._polls.get(port, 0) + 1
            for port in sorted(missing)
            if (kinds.get(port) or kind_of(port)) == PortKind.PHYSICAL
        }
        return [
            Failure(
                port,
                REASON,
                f"{port}: is up, and the last {POLLS} polls had no count of its bytes ({', '.join(missing[port])});"
                " check the counters of the switch, or read it by another protocol",
            )
            for port, polls in self._polls.items()
            if polls >= POLLS
        ]


def _cells(tables: Sequence[Table], ending: str) -> list[tuple[str, Value | None]]:
    """Return port and value of each row of all tables with a column."""
    return [
        (port, value)
        for table in tables
        if (values := table.values(ending)) is not None
        for (_, port), value in zip(table.rows.keys, values, strict=True)
    ]
