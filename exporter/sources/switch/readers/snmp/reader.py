"""Reader of one switch by SNMP.

Names, aliases and types of interfaces are read every few minutes, and when the switch restarted or has an interface
that is not in the inventory; each poll reads only counters and states, and only those that the switch has. Neighbours
and modules are read after them, less often, in the remaining time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from time import monotonic
from typing import Generic, TypeVar

from exporter.config.errors import ConfigError
from exporter.config.secret import SecretError
from exporter.core.source import Failure, SourceError
from exporter.snmp.ber import Oid
from exporter.snmp.client import SnmpClient
from exporter.snmp.errors import SnmpAuthenticationError, SnmpError, SnmpTimeout
from exporter.snmp.exchange import Reason
from exporter.snmp.get import GetResult
from exporter.sources.switch.credentials import read_credentials
from exporter.sources.switch.in_thread import in_thread
from exporter.sources.switch.merge import Family, PartialTable, Support, SwitchDevice, SwitchReading
from exporter.sources.switch.options import Snmp, Target
from exporter.sources.switch.readers.snmp.counters import SnmpCounters, Times
from exporter.sources.switch.readers.snmp.inventory import Inventory, read_inventory
from exporter.sources.switch.readers.snmp.lldp import read_neighbours
from exporter.sources.switch.readers.snmp.profile import Profile, Profiles, builtin
from exporter.sources.switch.readers.snmp.refresh import TICKS, RefreshDetector
from exporter.sources.switch.readers.snmp.sensors import ModuleSensors
from exporter.sources.switch.readers.snmp.text import (
    failures_of,
    number_of,
    text_of,
    value_of,
)
from exporter.sources.switch.settings_rows import SettingsRows
from exporter.sources.switch.shared import SharedBySwitches
from exporter.switch_api.neighbour import LldpNeighbour
from exporter.switch_api.port_settings import PortSettings

INVENTORY_SECONDS = 300.0
"""Seconds after which names and aliases are read again."""

SLOW_SECONDS = 60.0
"""Seconds after which neighbours and modules are read again."""

UPTIME_WRAP = 2**32
"""Value at which sysUpTime wraps without a restart, after 497 days."""

SYSTEM = (1, 3, 6, 1, 2, 1, 1)
DESCRIPTION, OBJECT_ID, UPTIME, NAME = (*SYSTEM, 1, 0), (*SYSTEM, 2, 0), (*SYSTEM, 3, 0), (*SYSTEM, 5, 0)
ALL = (UPTIME, NAME, DESCRIPTION, OBJECT_ID)

MAX_ROWS = 50_000
"""Rows of a column: SONiC has all counters of queues in one column, 160 for each port."""

MAX_INLINE_ROWS = 20_000
"""Rows of all columns above which a poll is worked in a thread. A switch of 128 ports has half as many."""

DEADLINE_RATIO = 0.9
"""Share of the interval after which an exchange times out, so that its failure is reported before the next poll."""

Result = TypeVar("Result")


class SnmpReader:
    """Polls one switch."""

    protocol = "snmp"

    def __init__(
        self,
        target: Target,
        options: Snmp,
        interval: float,
        profiles: Profiles | None = None,
        shared: SharedBySwitches | None = None,
    ) -> None:
        """Store the target, the seconds between its polls, the profiles to choose from, and what all polls share."""
        self._target = target
        self._options = options
        self._interval = interval
        self._deadline = interval * DEADLINE_RATIO
        self._profiles = profiles or builtin()
        self._shared = shared or SharedBySwitches()
        self._client: SnmpClient | None = None
        self._inventory: Inventory | None = None
        self._inventory_time = 0.0
        self._settings_rows = SettingsRows()
        self._settings: Sequence[PartialTable] = ()
        self._unlisted: frozenset[Oid] = frozenset()
        self._device = SwitchDevice()
        self._object_id: Oid = ()
        self._uptime: int | None = None
        self._boots: int | None = None
        self._restarts = 0
        self._profile = Profile("", ())
        self._counters = SnmpCounters(self._profile)
        self._refresh = RefreshDetector()
        self._neighbours = _CachedRead[Sequence[LldpNeighbour]]()
        self._modules: ModuleSensors | None = None
        self._optics = _CachedRead[Sequence[PartialTable]]()
        self._last: SwitchReading | None = None
        self._last_time = 0.0

    async def read(self) -> SwitchReading:
        """Poll once; or return the last reading, if the interval of the profile has not passed.

        Raises:
            SourceError: The switch does not respond, or returns nothing.
        """
        if self._last is not None and self._is_early():
            return self._last
        try:
            reading = await self._read(await self._open())
        except ConfigError as error:
            raise SourceError("configuration", f"{self._target.name}: {error}") from None
        except SnmpTimeout as error:
            self._close_client()  # the community may have changed: it is read again
            raise SourceError(
                "timeout", f"{error}; check the address, the community and the switch's access list"
            ) from None
        except SnmpAuthenticationError as error:
            self._close_client()
            raise SourceError("login", str(error)) from None
        except SnmpError as error:
            raise SourceError("unreachable", str(error)) from None
        except asyncio.CancelledError:
            self._close_client()  # the switch may not have responded
            raise
        self._last = replace(reading, failures=())  # failures are reported once
        return reading

    def invalidate_neighbours(self, port: str) -> None:  # noqa: ARG002  # names and aliases are read all together
        """Read names, aliases and neighbours again at the next poll."""
        self._inventory_time = self._neighbours.time = float("-inf")
        self._last = None

    async def close(self) -> None:
        """Close the socket."""
        self._close_client()

    def _is_early(self) -> bool:
        """Return whether the interval of the profile has not passed; it applies if the configuration sets none."""
        interval = self._profile.interval if self._target.interval is None else None
        return interval is not None and monotonic() - self._last_time < interval - self._interval / 2

    def _close_client(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    async def _open(self) -> SnmpClient:
        """Return the client; it is created, and its secrets are read, if there is none."""
        if self._client is None:
            options = self._options
            try:
                credentials = await asyncio.to_thread(read_credentials, options)
            except SecretError as error:
                raise SourceError("credentials", f"{self._target.name}: {error}") from None
            self._client = SnmpClient(
                options.address or self._target.address,
                credentials,
                timeout=float(options.timeout),
                retries=options.retries,
                deadline=self._deadline,
                window=options.window,
                unconnected=options.any_source,
                password_keys=self._shared.password_keys,
            )
        return self._client

    async def _read(self, client: SnmpClient) -> SwitchReading:
        started = asyncio.get_running_loop().time()
        now = monotonic()
        stale = self._inventory is None or now - self._inventory_time >= INVENTORY_SECONDS
        system = await client.get(ALL if stale else [UPTIME])
        uptime = number_of(value_of(system.values, UPTIME))
        if self._detect_restart(uptime, client.boots) and not stale:
            stale, system = True, await client.get(ALL)
        failures = [Failure("system", one.reason.value, str(one)) for one in system.problems]
        if stale:
            self._update_device(system)
        if stale or self._inventory is None:
            self._inventory, more = await read_inventory(
                client, self._target, self._inventory, self._profile.port_names
            )
            self._inventory_time = monotonic()
            mtus = {self._inventory.ports[index]: mtu for index, mtu in sorted(self._inventory.mtus.items())}
            ports = {port: PortSettings(mtu=mtu) for port, mtu in mtus.items()}
            self._settings = self._settings_rows.parts(self._inventory_time, ports)
            self._counters.reset()
            failures += more
        inventory = self._inventory
        parts = await self._poll(client, inventory, uptime, failures)
        families = self._counters.families()
        await self._read_slow(client, inventory, started + self._deadline, failures)
        parts += self._settings
        self._add_slow(families, parts)
        device = replace(
            self._device,
            uptime=None if uptime is None else uptime / TICKS,
            refresh=self._refresh.period,
            unchanged=self._refresh.unchanged,
        )
        self._last_time = now
        return SwitchReading(device, parts, families, self._known_neighbours(), failures)

    def _update_device(self, system: GetResult) -> None:
        """Update the device from the system group, and choose its profile; objects that failed keep their value.

        Raises:
            ConfigError: The profile that the configuration names does not exist.
        """
        failed = {one.oid for one in system.problems if one.reason is not Reason.TEXT_LIMIT}
        texts = {oid: text_of(value_of(system.values, oid)) for oid in (NAME, DESCRIPTION, OBJECT_ID)}
        read = {oid: text for oid, text in texts.items() if oid not in failed}
        known = self._device
        self._device = replace(
            known,
            name=read.get(NAME, known.name),
            description=read.get(DESCRIPTION, known.description),
            object_id=read.get(OBJECT_ID, known.object_id),
        )
        if OBJECT_ID in read:
            value = value_of(system.values, OBJECT_ID)
            self._object_id = value if isinstance(value, tuple) else ()
        self._choose_profile()

    def _detect_restart(self, uptime: int | None, boots: int | None) -> bool:
        """Return whether the switch restarted: snmpEngineBoots changed, or sysUpTime decreased without a wrap.

        A switch that lost its saved state, or was replaced, counts its boots from 1 again.
        """
        restarted = boots is not None and self._boots is not None and boots != self._boots
        if uptime is not None and self._uptime is not None and uptime < self._uptime:
            restarted = restarted or self._uptime < UPTIME_WRAP - 3600 * TICKS
        if restarted:
            self._restarts += 1
            self._inventory = None  # interface indexes may have changed
            self._refresh.reset()
            self._neighbours.time = self._optics.time = float("-inf")
            if self._modules is not None:
                self._modules.reset()
        self._uptime = self._uptime if uptime is None else uptime
        self._boots = self._boots if boots is None else boots
        return restarted

    def _choose_profile(self) -> None:
        """Choose the profile, and reset the counters if it changed."""
        name = self._target.profile
        if name is None:
            profile = self._profiles.match(self._object_id, self._device.description)
        else:
            profile = self._profiles.by_name(name)
        if profile is self._profile:
            return
        self._profile = profile
        has_counter64 = str(self._options.version) != "1"
        self._counters = SnmpCounters(profile, swapped=self._target.pfc_swapped, has_counter64=has_counter64)
        self._refresh = RefreshDetector(profile.refresh)
        self._modules = ModuleSensors(profile.optics) if self._target.optics and profile.optics is not None else None
        self._device = replace(self._device, profile=profile.name)

    async def _poll(
        self, client: SnmpClient, inventory: Inventory, uptime: int | None, failures: list[Failure]
    ) -> list[PartialTable]:
        """Read counters and states, and return the partial tables."""
        counters = self._counters
        now = monotonic()
        result = await client.walk(counters.columns_to_walk(now), max_rows=MAX_ROWS)
        await self._shared.fair_lock.yield_to_loop()
        failures += failures_of(result)
        if result.empty:
            raise SourceError("empty", f"{client.address}: responds, but returns no counters; check its SNMP view")
        is_large = sum(len(column.rows) for column in result.columns.values()) > MAX_INLINE_ROWS
        run = in_thread if is_large else _at_once
        await self._get_missing(client, await run(counters.add_walk, result, inventory, now), failures)
        failures += await run(counters.missing_rows, inventory)
        unlisted = await run(counters.unlisted_indexes, inventory)
        if unlisted - self._unlisted:
            self._inventory_time = float("-inf")  # there is an interface that is not in the inventory
        self._unlisted = unlisted
        return await run(lambda: counters.parts(inventory, self._times(uptime, now), self._restarts))

    async def _get_missing(self, client: SnmpClient, missing: Sequence[Oid], failures: list[Failure]) -> None:
        """Read the instances that the walk omitted; what fails now is read again at the next poll."""
        if not missing:
            return
        try:
            found = await client.get(missing)
        except SnmpError as error:
            failures.append(
                Failure("counters", "timeout" if isinstance(error, SnmpTimeout) else "unreachable", str(error))
            )
            return
        failed = {one.oid for one in found.problems}
        self._counters.add_values([oid for oid in missing if oid not in failed], found.values)
        failures += [Failure("counters", one.reason.value, str(one)) for one in found.problems[:1]]

    def _times(self, uptime: int | None, now: float) -> Times:
        """Return the function of the times at which the switch counted the rows of ports."""
        stamps = self._counters.stamps()
        if stamps is not None and uptime is not None:
            times = self._refresh.times_by_stamps(list(stamps.values()), uptime, now)
            counted = dict(zip(stamps, times, strict=True))
            return lambda ports: (now, [counted.get(port, now) for port in ports])
        refreshed_at = self._refresh.time_by_octets(self._counters.octets(), now)
        return lambda _: (refreshed_at, None)

    async def _read_slow(self, client: SnmpClient, inventory: Inventory, end: float, failures: list[Failure]) -> None:
        """Read neighbours and modules if they are due and there is time left."""

        async def lldp() -> Sequence[LldpNeighbour]:
            reading = await read_neighbours(client, inventory)
            failures.extend(reading.failures)
            self._device = replace(self._device, chassis=reading.chassis or self._device.chassis)
            support = Support.COUNTED if reading.supported else Support.UNSUPPORTED
            self._neighbours.support = Support.FAILED if reading.failed and not reading.supported else support
            return self._neighbours.unless_first_failure(reading.neighbours, failed=reading.failed)

        async def optics() -> Sequence[PartialTable]:
            assert self._modules is not None  # noqa: S101  # called only if there are module sensors
            parts, more = await self._modules.read(client, inventory, monotonic())
            failures.extend(more)
            self._optics.support = Support.COUNTED if parts else Support.FAILED if more else Support.UNSUPPORTED
            return parts

        if self._target.lldp:
            await self._neighbours.read(lldp, "lldp", end, failures)
        if self._modules is not None:
            await self._optics.read(optics, "optics", end, failures)

    def _known_neighbours(self) -> Sequence[LldpNeighbour] | None:
        """Return the neighbours; None if the switch does not support LLDP by SNMP, so that another protocol may."""
        known = self._neighbours.result or self._neighbours.support is Support.COUNTED
        return self._neighbours.result if known else None

    def _add_slow(self, families: dict[Family, Support], parts: list[PartialTable]) -> None:
        if self._neighbours.support is not None:
            families[Family.LLDP] = self._neighbours.support
        if self._target.optics:
            families[Family.OPTICS] = self._optics.support or Support.UNSUPPORTED
            parts += self._optics.result or ()


async def _at_once(call: Callable[..., Result], *args: object) -> Result:
    """Run a short call."""
    return call(*args)


class _CachedRead(Generic[Result]):
    """A result that is read less often than counters, and cached in between, also after a failure.

    Attributes:
        result: The last result; None before the first.
        support: Whether the switch supports it, as far as it is known.
        time: Time of the last reading, successful or not.
    """

    def __init__(self) -> None:
        self.result: Result | None = None
        self.support: Support | None = None
        self.time = float("-inf")
        self._failed = False

    def unless_first_failure(self, new: Result, *, failed: bool) -> Result:
        """Return the new result; or the cached one if the new one is incomplete and the one before was complete."""
        first = failed and not self._failed
        self._failed = failed
        return self.result if first and self.result is not None else new

    async def read(self, read: Callable[[], Awaitable[Result]], name: str, end: float, failures: list[Failure]) -> None:
        """Read if it is due; `end` is the time of the event loop's clock at which the poll ends."""
        now = monotonic()
        if now - self.time < SLOW_SECONDS:
            return
        self.time = now
        try:
            async with asyncio.timeout_at(end):
                self.result = await read()
        except TimeoutError:
            self._fail(failures, Failure(name, "timeout", f"{name}: the time for this poll passed before it was read"))
        except SnmpError as error:
            self._fail(
                failures, Failure(name, "timeout" if isinstance(error, SnmpTimeout) else "unreachable", str(error))
            )

    def _fail(self, failures: list[Failure], failure: Failure) -> None:
        failures.append(failure)
        self.support = self.support or Support.FAILED
