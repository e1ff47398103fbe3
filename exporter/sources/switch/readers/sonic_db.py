"""A switch by the databases of SONiC, where their redis can be reached: all that its chip counts, as it is counted.

Nothing but reading is ever asked: a fixed handful of commands, many in one go. What is where is read anew each minute,
and so are the highest depths, which the switch itself begins anew each minute.
"""

import asyncio
import ipaddress
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any, NamedTuple, TypeAlias

from exporter.config.secret import SecretError, read_secret
from exporter.config.units import watts_of_dbm
from exporter.core.source import Failure, SourceError
from exporter.core.table import LabelValues, Value
from exporter.sources.switch.merge import (
    Family,
    Neighbour,
    PartialTable,
    PartialTableBuilder,
    Support,
    SwitchDevice,
    SwitchReading,
)
from exporter.sources.switch.metrics import (
    LANES,
    MODULES,
    PORTS,
    PRIORITIES,
    PRIORITY_GROUPS,
    QUEUES,
)
from exporter.sources.switch.options import Redis, Target
from exporter.sources.switch.queues import PortSums
from exporter.sources.switch.readers import rest_reader
from exporter.switch_api import sonic_db
from exporter.switch_api.sonic_db import (
    Dom,
    Group,
    Names,
    State,
)
from exporter.switch_api.text_values import identity

APPLICATION, COUNTERS, CONFIGURATION, STATE = 0, 2, 4, 6
"""Numbers of the databases."""

DEFAULT_PORT = 6379

SLOW = 60.0
"""Seconds between two readings of names, neighbours, modules and highest depths."""

MOST_NAMES = 50_000
"""Entries of a name map; a larger one is something else."""

MOST_FAILURES = 100
"""That one poll tells of; a broken database has one a queue."""

BATCH = 500
"""Commands that go out at once: the loop and the switch's redis have other things to do in between."""

SUMS = {
    f"{way}_packets_total": tuple(f"{way}_{cast}_packets_total" for cast in ("unicast", "multicast", "broadcast"))
    for way in ("receive", "transmit")
}
MICROSECONDS = 10**6

GROUPS = {
    Family.TRAFFIC: "PORT",
    Family.ERRORS: "PORT",
    Family.PAUSE: "PORT",
    Family.PFC: "PORT",
    Family.PFC_DURATION: "PORT",
    Family.ECN: "WRED_ECN_QUEUE",
    Family.QUEUES: "QUEUE",
    Family.BUFFERS: "PG_DROP",
}
"""Which group of counters a family belongs to, which may be switched off."""

Answer: TypeAlias = Sequence[bytes | None]
"""Values of the fields that were asked for."""


class Command(NamedTuple):
    """HMGET of some fields."""

    key: bytes
    fields: tuple[str, ...]


class RedisReader:
    """Polls one switch."""

    protocol = "redis"

    def __init__(self, target: Target, options: Redis, interval: float) -> None:  # noqa: ARG002  # asked as often as told
        """Take the target, where its redis is, and the seconds between polls."""
        self._target = target
        self._options = options
        self._clients: dict[int, Any] = {}
        self._slow_at = float("-inf")
        self._ports = self._queues = self._groups = Names({})
        self._device = SwitchDevice()
        self._counter_groups: dict[str, Group] = {}
        self._neighbours: list[Neighbour] | None = None
        self._modules: dict[str, Dom] = {}
        self._marks: dict[LabelValues, dict[str, int]] = {}
        self._builders = {
            schema: PartialTableBuilder(schema)
            for schema in (PORTS, PRIORITIES, QUEUES, PRIORITY_GROUPS, MODULES, LANES)
        }
        self._sums = PortSums()
        self._failures: list[Failure] = []

    async def read(self) -> SwitchReading:
        """Poll once; a port or queue of which there is nothing costs itself.

        Raises:
            SourceError: The database cannot be had, or knows no port.
        """
        self._failures = []
        errors = _errors()
        try:
            await self._open()
            if monotonic() - self._slow_at >= SLOW:
                await self._learn()
            parts = await self._counted()
        except (errors.RedisError, OSError) as error:
            raise await self._lost(*_reason(errors, error)) from None
        return SwitchReading(self._device, parts, self._families(parts), self._neighbours, self._failures)

    def invalidate_neighbours(self, port: str) -> None:  # noqa: ARG002  # all is asked together
        """Ask for names and neighbours anew at the next poll."""
        self._slow_at = float("-inf")

    async def close(self) -> None:
        """Close the connections."""
        clients, self._clients = list(self._clients.values()), {}
        await asyncio.gather(*(client.aclose() for client in clients), return_exceptions=True)

    # --- asking --------------------------------------------------------------------------------------------------

    async def _open(self) -> None:
        if self._clients:
            return
        redis = _library(self._target.name)
        given = self._options
        try:
            secret = await asyncio.to_thread(self._password)
        except SecretError as error:
            raise SourceError("credentials", str(error)) from None
        address = given.address or self._target.address
        where: dict[str, Any] = {"unix_socket_path": address}
        if not address.startswith("/"):
            host, port = _host_and_port(address)
            where = {"host": host, "port": port, "ssl": given.tls}
            if given.tls:
                where |= {"ssl_ca_certs": given.ca_file, "ssl_cert_reqs": "required", "ssl_check_hostname": True}
        seconds = float(given.timeout)
        for database in (APPLICATION, COUNTERS, CONFIGURATION, STATE):
            self._clients[database] = redis.Redis(
                **where,
                db=database,
                username=given.username or None,
                password=secret or None,
                socket_timeout=seconds,
                socket_connect_timeout=seconds,
                protocol=2,  # which every redis speaks, also that of an old SONiC
                single_connection_client=True,
                retry=_once_more(),
            )

    def _password(self) -> str:
        given = self._options
        ways = (given.password, given.password_file, given.password_env)
        return read_secret(*ways) if any(way is not None for way in ways) else ""

    async def _lost(self, reason: str, text: str) -> SourceError:
        await self.close()
        where = self._options.address or self._target.address
        return SourceError(reason, f"{self._target.name}: redis at {where}: {text}")

    async def _ask(self, database: int, commands: Sequence[Command]) -> list[Answer]:
        """Send commands in batches; give the values of each. What is no hash, or is not shown, costs itself."""
        answers: list[Any] = []
        for start in range(0, len(commands), BATCH):
            pipeline = self._clients[database].pipeline(transaction=False)
            for command in commands[start : start + BATCH]:
                pipeline.hmget(command.key, command.fields)
            answers += await pipeline.execute(raise_on_error=False)
        found: list[Answer] = []
        for command, answer in zip(commands, answers, strict=True):
            if isinstance(answer, Exception):
                key = command.key.decode("utf-8", "surrogateescape")
                self._spare(key, answer)
                found.append([None] * len(command.fields))
            else:
                found.append(answer)
        return found

    def _spare(self, key: str, error: Exception) -> None:
        """Take note of an error that concerns one key alone; any other is raised."""
        if not any(words in str(error) for words in _OF_A_KEY):
            raise error
        self._fail(key, "refused", f"{key}: {error}")

    def _fail(self, device: str, reason: str, detail: str) -> None:
        if len(self._failures) < MOST_FAILURES:
            self._failures.append(Failure(device, reason, detail))

    # --- what changes seldom -------------------------------------------------------------------------------------

    async def _learn(self) -> None:
        """Read what is where, who the neighbours are, and what else changes by the minute.

        Raises:
            SourceError: There is no port.
        """
        self._ports = await self._names("COUNTERS_PORT_NAME_MAP", ports=True)
        if not self._ports.places:
            where = self._options.address or self._target.address
            raise SourceError(
                "empty", f"redis at {where}: COUNTERS_PORT_NAME_MAP has no port; is this SONiC's, and ready?"
            )
        wanted = {place: oid for place, oid in self._ports.places.items() if self._target.matches(place[0])}
        self._ports = Names(wanted, self._ports.problems)
        self._queues = self._of_ports(await self._names("COUNTERS_QUEUE_NAME_MAP"))
        self._groups = self._of_ports(await self._names("COUNTERS_PG_NAME_MAP"))
        await self._learn_device()
        names = [port for (port,) in self._ports.places]
        if self._target.lldp:
            told = await self._of_each(APPLICATION, "LLDP_ENTRY_TABLE:", sonic_db.LLDP_ENTRY)
            found = [sonic_db.heard(name, answer) for name, answer in zip(names, told, strict=True)]
            self._neighbours = [rest_reader.neighbour(one) for one in found if one is not None]
        if self._target.optics:
            told = await self._of_each(STATE, "TRANSCEIVER_DOM_SENSOR|", sonic_db.DOM_SENSOR)
            modules = {name: sonic_db.dom(answer) for name, answer in zip(names, told, strict=True)}
            self._modules = {name: module for name, module in modules.items() if module is not None}
        await self._learn_marks()
        self._slow_at = monotonic()

    async def _learn_device(self) -> None:
        """Read what the switch says of itself, and which counters it was told to count."""
        wanted = [
            Command(f"FLEX_COUNTER_TABLE|{name}".encode(), sonic_db.FLEX_COUNTER) for name in sonic_db.FLEX_GROUPS
        ]
        facts, *groups = await self._ask(
            CONFIGURATION, [Command(b"DEVICE_METADATA|localhost", ("hostname", "hwsku")), *wanted]
        )
        (local,) = await self._ask(
            APPLICATION, [Command(b"LLDP_LOC_CHASSIS", ("lldp_loc_chassis_id", "lldp_loc_sys_desc"))]
        )
        name, model, chassis, description = (sonic_db.text(value) for value in (*facts, *local))
        self._counter_groups = {
            group: sonic_db.group(answer, default)
            for (group, default), answer in zip(sonic_db.FLEX_GROUPS.items(), groups, strict=True)
        }
        periods = [group.seconds for group in self._counter_groups.values() if group.enabled]
        self._device = SwitchDevice(
            name, description, model=model, refresh=max(periods, default=None), chassis=identity(chassis)
        )

    async def _learn_marks(self) -> None:
        self._marks = {}
        for names, fields in (
            (self._queues, sonic_db.QUEUE_WATERMARKS),
            (self._groups, sonic_db.GROUP_WATERMARKS),
        ):
            read = await self._values(names, fields, b"PERIODIC_WATERMARKS:")
            for place, values in read.items():
                self._marks.setdefault(place, {}).update(values)

    async def _of_each(self, database: int, table: str, fields: tuple[str, ...]) -> list[Answer]:
        """Read some fields of each port from a table that has a key a port."""
        return await self._ask(database, [Command(f"{table}{port}".encode(), fields) for (port,) in self._ports.places])

    async def _names(self, key: str, *, ports: bool = False) -> Names:
        """Read a name map, unless it is of a size that none has; without that of the ports there is nothing."""
        client = self._clients[COUNTERS]
        try:
            size = await client.hlen(key)
            if size > MOST_NAMES:
                self._fail(key, "malformed", f"{key} has {size} entries; none has more than {MOST_NAMES}")
                return Names({})
            found = await client.hgetall(key)
        except _errors().ResponseError as error:
            if ports:
                raise
            self._spare(key, error)
            return Names({})
        names = sonic_db.ports(found) if ports else sonic_db.parts(found)
        for problem in names.problems:
            self._fail(key, "malformed", f"{key}: {problem}")
        return names

    def _of_ports(self, names: Names) -> Names:
        return Names({place: oid for place, oid in names.places.items() if place[:1] in self._ports.places})

    # --- what is counted -----------------------------------------------------------------------------------------

    async def _values(
        self, names: Names, fields: Mapping[str, str], prefix: bytes = b"COUNTERS:"
    ) -> dict[LabelValues, Mapping[str, int]]:
        """Read some fields of all that a name map has."""
        wanted, endings = tuple(fields), tuple(fields.values())
        commands = [Command(prefix + oid, wanted) for oid in names.places.values()]
        answers = await self._ask(COUNTERS, commands)
        found: dict[LabelValues, Mapping[str, int]] = {}
        for place, answer in zip(names.places, answers, strict=True):
            values = sonic_db.counters(answer, endings)
            found[place] = values.found
            for problem in values.problems:
                self._fail(place[0], "malformed", f"{':'.join(place)}: {problem}")
        return found

    async def _counted(self) -> list[PartialTable]:
        states = await self._of_each(APPLICATION, "PORT_TABLE:", sonic_db.PORT_TABLE)
        now = monotonic()
        by_priority = {
            form.format(priority): f"{priority}/{ending}"
            for priority in range(sonic_db.PRIORITIES)
            for form, ending in sonic_db.PRIORITY_FIELDS.items()
        }
        counted = await self._values(self._ports, {**sonic_db.PORT_FIELDS, **by_priority})
        if not any(counted.values()):
            self._slow_at = float("-inf")  # the switch began anew, and all is somewhere else now
        queues = await self._values(self._queues, sonic_db.QUEUE_FIELDS)
        groups = await self._values(self._groups, sonic_db.GROUP_FIELDS)
        for (place, values), answer in zip(counted.items(), states, strict=True):
            self._add_port(place[0], values, sonic_db.state(answer))
        for schema, read in ((QUEUES, queues), (PRIORITY_GROUPS, groups)):
            for place, values in read.items():
                self._builders[schema].row(place, {**values, **self._marks_of(place, schema is QUEUES)})
        for name, module in self._modules.items():
            self._add_module(name, module)
        parts = [builder.part(now) for builder in self._builders.values()]
        scaled = [_in_seconds(part) if part.schema is PRIORITIES else part for part in parts if part.keys]
        return [self._sums.add_to(part, scaled) if part.schema is PORTS else part for part in scaled]

    def _add_port(self, name: str, values: Mapping[str, int], state: State) -> None:
        row: dict[str, Value | None] = {ending: count for ending, count in values.items() if "/" not in ending}
        for ending, casts in SUMS.items():
            if all(cast in values for cast in casts):
                row[ending] = sum(values[cast] for cast in casts)
        row["link_up"] = None if state.up is None else int(state.up)
        row["admin_up"] = None if state.admin_up is None else int(state.admin_up)
        row["link_speed_bytes_per_second"] = state.speed / 8 if state.up and state.speed else None
        row["info"] = (self._target.name, "", state.description or state.alias, "")
        self._builders[PORTS].row((name,), row)
        for priority in range(sonic_db.PRIORITIES):
            cells = {
                ending: values[key]
                for ending in sonic_db.PRIORITY_FIELDS.values()
                if (key := f"{priority}/{ending}") in values
            }
            if cells:
                self._builders[PRIORITIES].row((name, str(priority)), cells)

    def _marks_of(self, place: LabelValues, of_queue: bool) -> dict[str, int]:
        known = sonic_db.QUEUE_WATERMARKS if of_queue else sonic_db.GROUP_WATERMARKS
        marks = self._marks.get(place, {})
        return {ending: marks[ending] for ending in known.values() if ending in marks}

    def _add_module(self, name: str, module: Dom) -> None:
        self._builders[MODULES].row(
            (name,), {"module_temperature_celsius": module.temperature, "module_voltage_volts": module.voltage}
        )
        for lane in sorted({*module.receive_power, *module.transmit_power, *module.bias}):
            received, sent = module.receive_power.get(lane), module.transmit_power.get(lane)
            self._builders[LANES].row(
                (name, str(lane)),
                {
                    "module_lane_receive_power_watts": None if received is None else watts_of_dbm(received),
                    "module_lane_transmit_power_watts": None if sent is None else watts_of_dbm(sent),
                    "module_lane_bias_amperes": module.bias.get(lane),
                },
            )

    def _families(self, parts: Sequence[PartialTable]) -> dict[Family, Support]:
        """Say what is counted, and else why not: it was switched off, or the chip does not have it."""
        is_counting = any("receive_bytes_total" in part.columns for part in parts)
        otherwise = {
            family: Support.UNSUPPORTED if is_counting and self._is_on(group) else Support.NOT_COUNTED
            for family, group in GROUPS.items()
        }
        if self._target.optics:
            otherwise[Family.OPTICS] = Support.NOT_COUNTED
        found = rest_reader.families(parts, otherwise)
        if self._target.lldp:
            found[Family.LLDP] = Support.COUNTED if self._neighbours else Support.NOT_COUNTED
        return found

    def _is_on(self, group: str) -> bool:
        known = self._counter_groups.get(group)
        return known is not None and known.enabled is True


_OF_A_KEY = ("WRONGTYPE", "permissions to access")
"""Words of errors that concern one key alone."""

_DENIED = ("AuthenticationError", "NOAUTH", "NOPERM", "WRONGPASS", "invalid username-password", "authenticated")


def _reason(errors: Any, error: Exception) -> tuple[str, str]:  # noqa: ANN401  # a module
    """Give the reason and the words of an error of the library."""
    text = str(error)
    cause = type(error.__cause__ or error.__context__).__name__
    if any(word in f"{text} {cause}" for word in _DENIED):  # its class does not tell: the library wraps it in others
        return "login", f"{text}; check user and password"
    if isinstance(error, errors.BusyLoadingError):
        return "refused", "it is loading its data, and will answer in a moment"
    if isinstance(error, errors.TimeoutError):
        return "timeout", text or "no answer in time"
    return ("refused" if isinstance(error, errors.ResponseError) else "unreachable"), text


def _in_seconds(part: PartialTable) -> PartialTable:
    """Say of the columns of durations that they are in microseconds."""
    columns = {
        ending: column._replace(divisor=MICROSECONDS) if ending.endswith("_seconds_total") else column
        for ending, column in part.columns.items()
    }
    return PartialTable(part.schema, part.keys, columns, part.time)


def _host_and_port(address: str) -> tuple[str, int]:
    """Split host and port; an address with the port of another way, or none, has that of redis."""
    try:
        return str(ipaddress.ip_address(address)), DEFAULT_PORT
    except ValueError:
        host, colon, port = address.rpartition(":")
        if colon and port.isascii() and port.isdecimal() and 0 < int(port) < 65536:
            return host.removeprefix("[").removesuffix("]"), int(port)
        return address, DEFAULT_PORT


def _library(target: str) -> Any:  # noqa: ANN401  # a module
    """Load redis for asyncio, which is an extra.

    Raises:
        SourceError: It is not installed.
    """
    try:
        import redis.asyncio  # noqa: PLC0415  # an extra
    except ImportError:
        raise SourceError(
            "configuration", f"{target}: redis needs an extra: pip install 'fabric-exporter[sonic]'"
        ) from None
    return redis.asyncio


def _once_more() -> Any:  # noqa: ANN401  # a class of the library
    """Have a request sent once more, at once, where a connection was lost, which a switch closes when it is idle."""
    from redis.asyncio.retry import Retry  # noqa: PLC0415  # an extra
    from redis.backoff import NoBackoff  # noqa: PLC0415  # likewise

    return Retry(NoBackoff(), 1, (_errors().ConnectionError,))


def _errors() -> Any:  # noqa: ANN401  # a module
    try:
        import redis.exceptions  # noqa: PLC0415  # an extra
    except ImportError:
        return _NoErrors
    return redis.exceptions


class _NoErrors:
    """Stands in for the errors of redis where it is not installed: none of them can happen."""

    class RedisError(Exception): ...

    class BusyLoadingError(RedisError): ...

    class TimeoutError(RedisError): ...  # noqa: A001  # as it is called there

    class ConnectionError(RedisError): ...  # noqa: A001  # likewise

    class ResponseError(RedisError): ...
