"""States of a host that are published: of its ports, and of its jobs by their logs and traffic."""

from collections.abc import Sequence

from exporter.core.table import Table
from exporter.meaning.ports import log_states, states
from exporter.meaning.training import transport_states


class HostStates:
    """The states, from one time to the next."""

    def __init__(self) -> None:
        self._ports = states.PortStateMemory()
        self._logs = log_states.LogStateMemory()
        self._transport = transport_states.TransportStateMemory()

    def step(self, tables: Sequence[Table], host: str, now: float) -> list[states.PortState]:
        """Return the active states; one call at a time.

        Args:
            tables: The tables of all sources.
            host: Name of the host.
            now: Current time.
        """
        return [
            *states.step(self._ports, tables, host, now),
            *log_states.step(self._logs, tables, host, now),
            *transport_states.step(self._transport, tables, host, now),
        ]
