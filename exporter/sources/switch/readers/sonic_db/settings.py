"""Reading of the configuration of a SONiC switch: some thousand small requests in a few round trips, rarely."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, product

from exporter.switch_api.port_settings import EcnThresholds, PortSettings
from exporter.switch_api.sonic_db import configuration
from exporter.switch_api.sonic_db.client import APPL_DB, CONFIG_DB, FieldValues, HashFields

MAX_PROFILES = 256
"""WRED profiles that are read; a switch has a few."""

GetFields = Callable[[int, Sequence[HashFields]], Awaitable[list[FieldValues | None]]]
"""Returns the values of some fields of each hash of a database; None for a key that cannot be read."""


@dataclass(frozen=True, slots=True)
class SonicSettings:
    """The configuration of a switch: the settings of its ports, and the bytes of its buffer pools."""

    ports: Mapping[str, PortSettings] = field(default_factory=dict)
    pools: Mapping[str, int] = field(default_factory=dict)


async def read_settings(get_fields: GetFields, ports: Sequence[str]) -> SonicSettings:
    """Read the configuration of some ports.

    Raises:
        SwitchApiError: The database does not respond.
    """

    async def table(name: str, keys: Sequence[str], fields: tuple[str, ...]) -> list[FieldValues | None]:
        return await get_fields(CONFIG_DB, [HashFields(_key(f"{name}|{key}"), fields) for key in keys])

    own = await table("PORT", ports, configuration.PORT_FIELDS)
    *qos, global_qos = await table("PORT_QOS_MAP", [*ports, "global"], configuration.QOS_FIELDS)
    watchdogs = await table("PFC_WD", ports, configuration.WATCHDOG_FIELDS)
    ecn = await _read_ecn(table, ports)
    return SonicSettings(
        {
            name: configuration.parse_port(port, maps, global_qos, watchdog, ecn.get(name, {}))
            for name, port, maps, watchdog in zip(ports, own, qos, watchdogs, strict=True)
        },
        await _read_pools(get_fields),
    )


async def _read_ecn(
    table: Callable[[str, Sequence[str], tuple[str, ...]], Awaitable[list[FieldValues | None]]], ports: Sequence[str]
) -> dict[str, dict[str, EcnThresholds]]:
    """Return the thresholds by port and queue, from the profile of each queue."""
    places = [*product(ports, configuration.QUEUE_RANGES)]
    queues = await table("QUEUE", [f"{port}|{numbers}" for port, numbers in places], configuration.QUEUE_FIELDS)
    profile_of = {
        place: name
        for place, values in zip(places, queues, strict=True)
        if values is not None and (name := configuration.parse_reference(values[0]))
    }
    names = [*islice(dict.fromkeys(profile_of.values()), MAX_PROFILES)]
    hashes = await table("WRED_PROFILE", names, configuration.PROFILE_FIELDS)
    profiles = {
        name: None if values is None else configuration.parse_wred_profile(values)
        for name, values in zip(names, hashes, strict=True)
    }
    found: dict[str, dict[str, EcnThresholds]] = {}
    for (port, numbers), name in profile_of.items():
        thresholds = profiles.get(name)
        if thresholds is not None:
            found.setdefault(port, {}).update(dict.fromkeys(configuration.QUEUE_RANGES[numbers], thresholds))
    return found


async def _read_pools(get_fields: GetFields) -> dict[str, int]:
    """Return the size of each buffer pool, as it is in use where the switch computes it."""
    pools: dict[str, int] = {}
    for database, form in ((CONFIG_DB, "BUFFER_POOL|{}"), (APPL_DB, "BUFFER_POOL_TABLE:{}")):
        requests = [HashFields(_key(form.format(name)), configuration.POOL_FIELDS) for name in configuration.POOLS]
        for name, values in zip(configuration.POOLS, await get_fields(database, requests), strict=True):
            size = None if values is None else configuration.parse_pool_size(values[0])
            if size is not None:
                pools[name] = size
    return pools


def _key(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
