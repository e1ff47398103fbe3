"""A switch by RESTCONF, as SONiC has it: ports, and by the minute neighbours.

Its models have neither PFC nor marks nor queues: those of such a switch come by SNMP, or from its database.
"""

from time import monotonic

from exporter.core.source import Failure, SourceError
from exporter.core.table import Value
from exporter.sources.switch.merge import (
    Family,
    Neighbour,
    PartialTableBuilder,
    Support,
    SwitchDevice,
    SwitchReading,
)
from exporter.sources.switch.metrics import PORTS
from exporter.sources.switch.options import Restconf, Target
from exporter.sources.switch.readers import rest_reader
from exporter.sources.switch.readers.rest_reader import RestReader
from exporter.switch_api.http import (
    CommandError,
    ReplyError,
    RestError,
    UnsupportedError,
)
from exporter.switch_api.port import Port, ShapeError
from exporter.switch_api.restconf.client import (
    INTERFACES,
    NEIGHBOURS,
    SYSTEM,
    RestconfClient,
)
from exporter.switch_api.restconf.parser import parse_hostname, parse_interfaces, parse_neighbours

SLOW = 60.0
"""Seconds between two readings of neighbours and of the switch's name."""

UNTOLD = (Family.PFC, Family.PFC_DURATION, Family.ECN, Family.QUEUES, Family.BUFFERS)
"""Families of which the models know nothing."""


class RestconfReader(RestReader[RestconfClient]):
    """Polls one switch."""

    protocol = "restconf"

    def __init__(self, target: Target, options: Restconf, interval: float) -> None:  # noqa: ARG002  # asked when told
        """Take the target, how to log in, and the seconds between polls."""
        super().__init__(target, options, RestconfClient)
        self._slow_at = float("-inf")
        self._device = SwitchDevice()
        self._neighbours: list[Neighbour] | None = None
        self._lldp = Support.FAILED
        self._ports = PartialTableBuilder(PORTS)

    async def read(self) -> SwitchReading:
        """Poll once; a malformed port or value costs itself.

        Raises:
            SourceError: The ports could not be read.
        """
        client = await self._opened()
        failures: list[Failure] = []
        now = monotonic()
        try:
            read = parse_interfaces(await client.get(INTERFACES))
            if now - self._slow_at >= SLOW:
                await self._learn(client, failures)
                self._slow_at = now
        except RestError as error:
            raise await self._failed(error) from None
        except ShapeError as error:
            raise SourceError("malformed", f"{client.address}: {INTERFACES}: {error}") from None
        if not read.ports:
            raise SourceError("empty", f"{client.address}: has no interface to show")
        failures += [Failure(INTERFACES, "malformed", f"{client.address}: {problem}") for problem in read.problems]
        for name, port in read.ports.items():
            if self._target.matches(name):
                self._ports.row((name,), self._row(port))
        parts = [self._ports.part(now)]
        asked = {
            Family.TRAFFIC: Support.NOT_COUNTED,
            Family.ERRORS: Support.NOT_COUNTED,
            Family.PAUSE: Support.NOT_COUNTED,
        }
        families = rest_reader.families(parts, asked) | dict.fromkeys(UNTOLD, Support.UNSUPPORTED)
        if self._target.lldp:
            families[Family.LLDP] = self._lldp
        return SwitchReading(self._device, parts, families, self._neighbours, failures)

    def invalidate_neighbours(self, port: str) -> None:  # noqa: ARG002  # all neighbours come in one answer
        """Ask for the neighbours anew at the next poll."""
        self._slow_at = float("-inf")

    async def _learn(self, client: RestconfClient, failures: list[Failure]) -> None:
        """Read what changes seldom: what the switch lacks is no failure, and what it fails to say is as it was."""
        try:
            self._device = SwitchDevice(name=parse_hostname(await client.get(SYSTEM)) or self._device.name)
        except UnsupportedError:
            pass
        except (CommandError, ReplyError) as error:
            failures.append(Failure(SYSTEM, rest_reader.source_error(error).reason, str(error)))
        if not self._target.lldp:
            return
        try:
            heard = parse_neighbours(await client.get(NEIGHBOURS))
        except UnsupportedError:
            self._neighbours, self._lldp = None, Support.UNSUPPORTED
        except (CommandError, ReplyError, ShapeError) as error:
            self._lldp = Support.FAILED
            reason = rest_reader.source_error(error).reason if isinstance(error, RestError) else "malformed"
            failures.append(Failure(NEIGHBOURS, reason, f"{client.address}: {NEIGHBOURS}: {error}"))
        else:
            self._neighbours = [rest_reader.neighbour(one) for one in heard]
            self._lldp = Support.COUNTED if heard else Support.NOT_COUNTED

    def _row(self, port: Port) -> dict[str, Value | None]:
        return {
            **port.counters,
            **rest_reader.state(port),
            "info": (self._target.name, port.index, port.description, port.kind),
        }
