"""Reader of a switch by the databases of SONiC, where its redis is reachable: the chip's counters at each poll.

Only reading commands are sent, many in one round trip. Name maps are read once a minute, and so are the watermarks,
which the switch itself resets once a minute.
"""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import islice
from time import monotonic
from types import MappingProxyType

from exporter.config.secret import SecretError, read_secret
from exporter.core.source import Failure, SourceError
from exporter.core.table import LabelValues
from exporter.sources.switch.merge import Family, PartialTable, Support, SwitchDevice, SwitchReading
from exporter.sources.switch.options import Redis, Target
from exporter.sources.switch.readers import api_reader
from exporter.sources.switch.readers.sonic_db.rows import PRIORITY_ENDINGS, SonicRows
from exporter.sources.switch.readers.sonic_db.settings import SonicSettings, read_settings
from exporter.sources.switch.settings_rows import SettingsRows
from exporter.switch_api.errors import SwitchApiError
from exporter.switch_api.neighbour import LldpNeighbour
from exporter.switch_api.port import MAX_PORTS, TOO_MANY
from exporter.switch_api.sonic_db import parser
from exporter.switch_api.sonic_db.client import (
    APPL_DB,
    CONFIG_DB,
    COUNTERS_DB,
    STATE_DB,
    FieldValues,
    HashFields,
    KeyRefusedError,
    SonicDbClient,
)
from exporter.switch_api.sonic_db.parser import FlexCounterGroup, NameMap
from exporter.switch_api.text_values import normalise_identifier
from exporter.switch_api.tls import tls_context

SLOW_INTERVAL_SECONDS = 60.0
"""Between two readings of name maps, neighbours, modules and watermarks."""

SETTINGS_INTERVAL_SECONDS = 300.0
"""Between two readings of the configuration."""

MAX_NAMES = 50_000
"""Entries of a name map; a larger one is not read."""

MAX_FAILURES = 100
"""Failures reported by one poll; a broken database may have one per queue."""

FAMILY_GROUPS = MappingProxyType(
    {
        Family.TRAFFIC: "PORT",
        Family.ERRORS: "PORT",
        Family.PAUSE: "PORT",
        Family.PFC: "PORT",
        Family.PFC_DURATION: "PORT",
        Family.ECN: "WRED_ECN_QUEUE",
        Family.QUEUES: "QUEUE",
        Family.BUFFERS: "PG_DROP",
    }
)
"""The flex counter group of a family, which may be disabled."""


class RedisReader:
    """Polls one switch.

    Args:
        target: The switch.
        options: Address and credentials of its redis.
        interval: Not used: counters are read at each poll.
    """

    protocol = "redis"

    def __init__(self, target: Target, options: Redis, interval: float) -> None:  # noqa: ARG002  # see above
        self._target = target
        self._options = options
        self._address = options.address or target.address
        self._client: SonicDbClient | None = None
        self._slow_at = self._settings_at = float("-inf")
        self._settings = SonicSettings()
        self._settings_rows = SettingsRows()
        self._ports = self._queues = self._groups = NameMap({})
        self._device = SwitchDevice()
        self._flex_groups: dict[str, FlexCounterGroup] = {}
        self._neighbours: list[LldpNeighbour] | None = None
        self._rows = SonicRows(target.name)
        self._failures: list[Failure] = []

    async def read(self) -> SwitchReading:
        """Poll once; a malformed or missing port or queue affects only itself.

        Raises:
            SourceError: The database cannot be read, or has no port.
        """
        self._failures = []
        try:
            client = await self._open_client()
            if monotonic() - self._slow_at >= SLOW_INTERVAL_SECONDS:
                await self._read_slow(client)
            parts = await self._read_counters(client)
            if monotonic() - self._settings_at >= SETTINGS_INTERVAL_SECONDS:
                await self._read_settings(client)
        except SwitchApiError as error:
            await self.close()
            text = f"{self._target.name}: redis at {self._address}: {error}"
            raise SourceError(api_reader.reason_of(error), text) from None
        parts += self._settings_rows.parts(self._settings_at, self._settings.ports, self._settings.pools)
        return SwitchReading(self._device, parts, self._families(parts), self._neighbours, self._failures)

    def invalidate_neighbours(self, port: str) -> None:  # noqa: ARG002  # the neighbours of all ports are read together
        """Read names, neighbours and configuration again at the next poll."""
        self._slow_at = self._settings_at = float("-inf")

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            client, self._client = self._client, None
            client.close()

    async def _open_client(self) -> SonicDbClient:
        """Return the client.

        Raises:
            SourceError: The password or the file of authorities cannot be read.
        """
        if self._client is not None:
            return self._client
        options = self._options
        try:
            password = await asyncio.to_thread(self._read_password)
            tls = await asyncio.to_thread(tls_context, ca_file=options.ca_file) if options.tls else None
        except SecretError as error:
            raise SourceError("credentials", str(error)) from None
        except OSError as error:
            raise SourceError("credentials", f"{self._target.name}: redis: ca_file: {error}") from None
        self._client = SonicDbClient(self._address, options.username, password, tls=tls, timeout=float(options.timeout))
        return self._client

    def _read_password(self) -> str:
        options = self._options
        sources = (options.password, options.password_file, options.password_env)
        return read_secret(*sources) if any(source is not None for source in sources) else ""

    # --- reading -------------------------------------------------------------------------------------------------

    async def _get_fields(
        self, client: SonicDbClient, database: int, requests: Sequence[HashFields]
    ) -> list[FieldValues]:
        """Return the values of some fields of each hash; those of a key that cannot be read are None."""
        found: list[FieldValues] = []
        for request, values in zip(requests, await client.get_fields(database, requests), strict=True):
            if isinstance(values, KeyRefusedError):
                key = request.key.decode("utf-8", "surrogateescape")
                self._add_failure(key, "refused", f"{key}: {values}")
                found.append([None] * len(request.fields))
            else:
                found.append(values)
        return found

    async def _get_port_fields(
        self, client: SonicDbClient, database: int, table: str, fields: tuple[str, ...]
    ) -> list[FieldValues]:
        """Return the values of some fields of each port in a table with one key per port."""
        requests = [HashFields(f"{table}{port}".encode(), fields) for (port,) in self._ports.oids]
        return await self._get_fields(client, database, requests)

    async def _get_counters(
        self, client: SonicDbClient, names: NameMap, fields: Mapping[str, str], prefix: bytes = b"COUNTERS:"
    ) -> dict[LabelValues, Mapping[str, int]]:
        """Return some counters of each object of a name map, by ending."""
        wanted, endings = tuple(fields), tuple(fields.values())
        requests = [HashFields(prefix + oid, wanted) for oid in names.oids.values()]
        counters: dict[LabelValues, Mapping[str, int]] = {}
        for key, values in zip(names.oids, await self._get_fields(client, COUNTERS_DB, requests), strict=True):
            parsed = parser.parse_counters(values, endings)
            counters[key] = parsed.counters
            for problem in parsed.problems:
                self._add_failure(key[0], "malformed", f"{':'.join(key)}: {problem}")
        return counters

    def _add_failure(self, device: str, reason: str, detail: str) -> None:
        if len(self._failures) < MAX_FAILURES:
            self._failures.append(Failure(device, reason, detail))

    # --- once a minute -------------------------------------------------------------------------------------------

    async def _read_slow(self, client: SonicDbClient) -> None:
        """Read name maps, facts about the switch, neighbours, modules and watermarks.

        Raises:
            SourceError: There is no port.
        """
        names = await self._read_names(client, "COUNTERS_PORT_NAME_MAP", is_port_map=True)
        if not names.oids:
            text = f"redis at {self._address}: COUNTERS_PORT_NAME_MAP has no port; is this SONiC's, and ready?"
            raise SourceError("empty", text)
        selected = {key: oid for key, oid in names.oids.items() if self._target.matches(key[0])}
        if len(selected) > MAX_PORTS:
            self._add_failure(
                "COUNTERS_PORT_NAME_MAP",
                "too_many",
                f"{self._target.name}: {len(selected) - MAX_PORTS} ports {TOO_MANY}",
            )
            selected = dict(islice(selected.items(), MAX_PORTS))
        self._ports = NameMap(selected, names.problems)
        self._queues = self._of_selected_ports(await self._read_names(client, "COUNTERS_QUEUE_NAME_MAP"))
        self._groups = self._of_selected_ports(await self._read_names(client, "COUNTERS_PG_NAME_MAP"))
        await self._read_device(client)
        ports = [port for (port,) in self._ports.oids]
        if self._target.lldp:
            values = await self._get_port_fields(client, APPL_DB, "LLDP_ENTRY_TABLE:", parser.LLDP_ENTRY_FIELDS)
            neighbours = [parser.parse_neighbour(port, one) for port, one in zip(ports, values, strict=True)]
            self._neighbours = [one for one in neighbours if one is not None]
        if self._target.optics:
            values = await self._get_port_fields(client, STATE_DB, "TRANSCEIVER_DOM_SENSOR|", parser.DOM_SENSOR_FIELDS)
            modules = {port: parser.parse_dom_sensor(one) for port, one in zip(ports, values, strict=True)}
            self._rows.modules = {port: module for port, module in modules.items() if module is not None}
        # A queue and a priority group of a port may have the same labels, so they are separate.
        table = b"PERIODIC_WATERMARKS:"
        self._rows.queue_watermarks = await self._get_counters(client, self._queues, parser.QUEUE_WATERMARKS, table)
        self._rows.group_watermarks = await self._get_counters(
            client, self._groups, parser.PRIORITY_GROUP_WATERMARKS, table
        )
        self._slow_at = monotonic()

    async def _read_names(self, client: SonicDbClient, key: str, *, is_port_map: bool = False) -> NameMap:
        """Read a name map; without that of the ports nothing can be read, without another only its own objects."""
        try:
            entries = await client.get_hash(COUNTERS_DB, key, MAX_NAMES, is_required=is_port_map)
        except KeyRefusedError as error:
            self._add_failure(key, "refused", f"{key}: {error}")
            return NameMap({})
        if isinstance(entries, int):
            self._add_failure(key, "malformed", f"{key} has {entries} entries; the maximum is {MAX_NAMES}")
            return NameMap({})
        names = parser.parse_port_names(entries) if is_port_map else parser.parse_numbered_names(entries)
        for problem in names.problems:
            self._add_failure(key, "malformed", f"{key}: {problem}")
        return names

    def _of_selected_ports(self, names: NameMap) -> NameMap:
        return NameMap({key: oid for key, oid in names.oids.items() if key[:1] in self._ports.oids})

    async def _read_device(self, client: SonicDbClient) -> None:
        """Read the facts about the switch, and which groups of counters are enabled."""
        requests = [
            HashFields(b"DEVICE_METADATA|localhost", ("hostname", "hwsku")),
            *(
                HashFields(f"FLEX_COUNTER_TABLE|{name}".encode(), parser.FLEX_COUNTER_FIELDS)
                for name in parser.FLEX_COUNTER_GROUPS
            ),
        ]
        metadata, *groups = await self._get_fields(client, CONFIG_DB, requests)
        chassis_fields = HashFields(b"LLDP_LOC_CHASSIS", ("lldp_loc_chassis_id", "lldp_loc_sys_desc"))
        (local,) = await self._get_fields(client, APPL_DB, [chassis_fields])
        name, model, chassis, description = (parser.parse_text(value) for value in (*metadata, *local))
        self._flex_groups = {
            group: parser.parse_flex_counter_group(values, default)
            for (group, default), values in zip(parser.FLEX_COUNTER_GROUPS.items(), groups, strict=True)
        }
        intervals = [group.interval_seconds for group in self._flex_groups.values() if group.enabled]
        self._device = SwitchDevice(
            name,
            description,
            model=model,
            refresh=max(intervals, default=None),
            chassis=normalise_identifier(chassis),
        )

    async def _read_settings(self, client: SonicDbClient) -> None:
        """Read the configuration; of each table that cannot be read, one key is reported."""
        refused: set[str] = set()

        async def get_fields(database: int, requests: Sequence[HashFields]) -> list[FieldValues | None]:
            found: list[FieldValues | None] = []
            for request, values in zip(requests, await client.get_fields(database, requests), strict=True):
                if not isinstance(values, KeyRefusedError):
                    found.append(values)
                    continue
                found.append(None)
                key = request.key.decode("utf-8", "surrogateescape")
                table = key.replace("|", ":").partition(":")[0]
                if table not in refused:
                    refused.add(table)
                    self._add_failure(table, "refused", f"{key}: {values}")
            return found

        self._settings = await read_settings(get_fields, [port for (port,) in self._ports.oids])
        self._settings_at = monotonic()

    # --- at each poll --------------------------------------------------------------------------------------------

    async def _read_counters(self, client: SonicDbClient) -> list[PartialTable]:
        values = await self._get_port_fields(client, APPL_DB, "PORT_TABLE:", parser.PORT_TABLE_FIELDS)
        operational = await self._get_port_fields(client, STATE_DB, "PORT_TABLE|", parser.OPERATIONAL_FIELDS)
        states = [parser.parse_port_table(one, speed) for one, speed in zip(values, operational, strict=True)]
        now = monotonic()
        ports = await self._get_counters(client, self._ports, {**parser.PORT_COUNTERS, **PRIORITY_ENDINGS})
        if not any(ports.values()):
            self._slow_at = float("-inf")  # the switch restarted, and its objects have other identifiers
        queues = await self._get_counters(client, self._queues, parser.QUEUE_COUNTERS)
        groups = await self._get_counters(client, self._groups, parser.PRIORITY_GROUP_COUNTERS)
        return self._rows.parts(now, ports, states, queues, groups)

    def _families(self, parts: Sequence[PartialTable]) -> dict[Family, Support]:
        """Return for each family whether it is counted; else it is disabled, or the chip does not support it."""
        has_traffic = any("receive_bytes_total" in part.columns for part in parts)
        otherwise = {
            family: Support.UNSUPPORTED if has_traffic and self._is_enabled(group) else Support.NOT_COUNTED
            for family, group in FAMILY_GROUPS.items()
        }
        if self._target.optics:
            otherwise[Family.OPTICS] = Support.NOT_COUNTED
        found = api_reader.families(parts, otherwise)
        if self._target.lldp:
            found[Family.LLDP] = Support.COUNTED if self._neighbours else Support.NOT_COUNTED
        return found

    def _is_enabled(self, group: str) -> bool:
        flex_group = self._flex_groups.get(group)
        return flex_group is not None and flex_group.enabled is True
