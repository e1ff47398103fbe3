"""Reader of a switch by RESTCONF as implemented by SONiC: ports at each poll, and neighbours once a minute.

The OpenConfig models have no PFC, ECN or queue counters: SNMP or the databases of such a switch have them.
"""

import asyncio
from time import monotonic

from exporter.core.source import Failure, SourceError
from exporter.core.table import Value
from exporter.sources.switch.merge import Family, PartialTableBuilder, Support, SwitchDevice, SwitchReading
from exporter.sources.switch.metrics import PORTS
from exporter.sources.switch.options import Restconf, Target
from exporter.sources.switch.port_kinds import port_info
from exporter.sources.switch.readers import api_reader
from exporter.sources.switch.readers.api_reader import ApiReader
from exporter.sources.switch.settings_rows import SettingsRows
from exporter.switch_api.errors import (
    CommandError,
    InvalidResponseError,
    SwitchApiError,
    UnsupportedError,
)
from exporter.switch_api.neighbour import LldpNeighbour
from exporter.switch_api.port import PortState, ShapeError
from exporter.switch_api.restconf.client import (
    INTERFACES,
    NEIGHBOURS,
    SYSTEM,
    RestconfClient,
)
from exporter.switch_api.restconf.parser import parse_hostname, parse_interfaces, parse_neighbours

SLOW_INTERVAL_SECONDS = 60.0
"""Seconds between two readings of the neighbours and of the switch's name."""

COUNTED_FAMILIES = (Family.TRAFFIC, Family.ERRORS, Family.PAUSE)
UNSUPPORTED_FAMILIES = (Family.PFC, Family.PFC_DURATION, Family.ECN, Family.QUEUES, Family.BUFFERS)
"""Families that the models do not have."""


class RestconfReader(ApiReader[RestconfClient]):
    """Polls one switch.

    Args:
        target: The switch.
        options: Credentials and TLS settings.
        interval: Not used: each poll has one request.
    """

    protocol = "restconf"

    def __init__(self, target: Target, options: Restconf, interval: float) -> None:  # noqa: ARG002  # see above
        super().__init__(target, options, RestconfClient)
        self._slow_at = float("-inf")
        self._device = SwitchDevice()
        self._neighbours: list[LldpNeighbour] | None = None
        self._lldp_support = Support.FAILED
        self._ports = PartialTableBuilder(PORTS)
        self._settings = SettingsRows()

    async def read(self) -> SwitchReading:
        """Poll once; a malformed port or value affects only itself.

        Raises:
            SourceError: The ports could not be read.
        """
        client = await self._open_client()
        failures: list[Failure] = []
        now = monotonic()
        try:
            interfaces = await asyncio.to_thread(parse_interfaces, await client.get(INTERFACES))
            if now - self._slow_at >= SLOW_INTERVAL_SECONDS:
                await self._update_facts(client, failures)
                self._slow_at = now
        except SwitchApiError as error:
            raise await self._failed(error) from None
        except ShapeError as error:
            raise SourceError("malformed", f"{client.address}: {INTERFACES}: {error}") from None
        if not interfaces.ports:
            raise SourceError("empty", f"{client.address}: the switch reports no interface")
        failures += [
            Failure(INTERFACES, "malformed", f"{client.address}: {problem}") for problem in interfaces.problems
        ]
        ports = {name: port for name, port in interfaces.ports.items() if self._target.matches(name)}
        for name, port in ports.items():
            self._ports.row((name,), self._port_row(name, port))
        settings = self._settings.parts(now, {name: port.settings for name, port in ports.items()})
        parts = [self._ports.part(now), *settings]
        families = api_reader.families(parts, dict.fromkeys(COUNTED_FAMILIES, Support.NOT_COUNTED))
        families |= dict.fromkeys(UNSUPPORTED_FAMILIES, Support.UNSUPPORTED)
        if self._target.lldp:
            families[Family.LLDP] = self._lldp_support
        return SwitchReading(self._device, parts, families, self._neighbours, failures)

    def invalidate_neighbours(self, port: str) -> None:  # noqa: ARG002  # one request has the neighbours of all ports
        """Read the neighbours again at the next poll."""
        self._slow_at = float("-inf")

    async def _update_facts(self, client: RestconfClient, failures: list[Failure]) -> None:
        """Read the name and the neighbours; after a failure the last ones are kept."""
        try:
            self._device = SwitchDevice(name=parse_hostname(await client.get(SYSTEM)) or self._device.name)
        except UnsupportedError:
            pass
        except (CommandError, InvalidResponseError) as error:
            failures.append(Failure(SYSTEM, api_reader.reason_of(error), str(error)))
        if not self._target.lldp:
            return
        try:
            neighbours = await asyncio.to_thread(parse_neighbours, await client.get(NEIGHBOURS))
        except UnsupportedError:
            self._neighbours, self._lldp_support = None, Support.UNSUPPORTED
        except (CommandError, InvalidResponseError, ShapeError) as error:
            self._lldp_support = Support.FAILED
            reason = api_reader.reason_of(error) if isinstance(error, SwitchApiError) else "malformed"
            failures.append(Failure(NEIGHBOURS, reason, f"{client.address}: {NEIGHBOURS}: {error}"))
        else:
            self._neighbours = list(neighbours)
            self._lldp_support = Support.COUNTED if neighbours else Support.NOT_COUNTED

    def _port_row(self, name: str, port: PortState) -> dict[str, Value | None]:
        return {
            **port.counters,
            **api_reader.port_state_cells(port),
            "info": port_info(self._target.name, name, port.index, port.description, port.if_type),
        }
