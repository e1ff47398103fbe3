"""A switch by SNMP: inventory and counters apart.

Names, aliases and types of interfaces are read seldom, and anew when the switch restarted or shows an interface that
is not in the list; each poll asks for the counters and states alone, and only for those that the switch has.
Neighbours and modules are read behind them, at a slower pace, in what is left of the time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from time import monotonic
from typing import Generic, TypeVar

from exporter.config.secret import SecretError
from exporter.config.yaml_reader import ConfigError
from exporter.core.source import Failure, SourceError
from exporter.snmp.ber import Oid
from exporter.snmp.client import SnmpClient
from exporter.snmp.errors import SnmpAuthenticationError, SnmpError, SnmpTimeout
from exporter.snmp.get import GetResult
from exporter.sources.switch.credentials import credentials_of
from exporter.sources.switch.fair_lock import turn
from exporter.sources.switch.merge import (
    Device,
    Family,
    Harvest,
    Neighbour,
    Part,
    Support,
)
from exporter.sources.switch.options import Snmp, Target
from exporter.sources.switch.readers.snmp import inventory as snmp_inventory
from exporter.sources.switch.readers.snmp import lldp as snmp_lldp
from exporter.sources.switch.readers.snmp.counters import Counters, Times
from exporter.sources.switch.readers.snmp.inventory import Inventory
from exporter.sources.switch.readers.snmp.profile import Profile, Profiles, used
from exporter.sources.switch.readers.snmp.refresh import TICKS, Refresh
from exporter.sources.switch.readers.snmp.sensors import Modules
from exporter.sources.switch.readers.snmp.text import (
    failures_of,
    number_of,
    single,
    text_of,
)

INVENTORY_AGE = 300.0
"""Seconds after which names and aliases are read again."""

SLOW_AGE = 60.0
"""Seconds after which neighbours and modules are read again."""

WRAP = 2**32
"""Where sysUpTime starts anew without a restart, after 497 days."""

SYSTEM = (1, 3, 6, 1, 2, 1, 1)
DESCRIPTION, OBJECT_ID, UPTIME, NAME = (*SYSTEM, 1, 0), (*SYSTEM, 2, 0), (*SYSTEM, 3, 0), (*SYSTEM, 5, 0)
ALL = (UPTIME, NAME, DESCRIPTION, OBJECT_ID)

MAX_ROWS = 50_000
"""Rows of a column: SONiC has all that it counts of queues in one, 160 a port."""

SHARE = 0.9
"""Of the interval, that an exchange may take: what it has to say of a silent switch must come before the next poll."""

Found = TypeVar("Found")


class SnmpReader:
    """Polls one switch."""

    way = "snmp"

    def __init__(self, target: Target, options: Snmp, interval: float, profiles: Profiles | None = None) -> None:
        """Take the target, the seconds between its polls, and the profiles to choose from."""
        self._target = target
        self._options = options
        self._interval = interval
        self._deadline = interval * SHARE
        self._profiles = profiles or used()
        self._client: SnmpClient | None = None
        self._inventory: Inventory | None = None
        self._inventory_time = 0.0
        self._nameless: frozenset[Oid] = frozenset()
        self._device = Device()
        self._object_id: Oid = ()
        self._uptime: int | None = None
        self._boots: int | None = None
        self._restarts = 0
        self._profile = Profile("", ())
        self._counters = Counters(self._profile)
        self._refresh = Refresh()
        self._neighbours = _Slow[Sequence[Neighbour]]()
        self._modules: Modules | None = None
        self._optics = _Slow[Sequence[Part]]()
        self._last: Harvest | None = None
        self._last_time = 0.0

    async def read(self) -> Harvest:
        """Poll once; or give what there is, where the profile asks for longer pauses than the exporter makes.

        Raises:
            SourceError: The switch does not answer, or has nothing to say.
        """
        if self._last is not None and self._is_early():
            return self._last
        try:
            harvest = await self._read(await self._opened())
        except ConfigError as error:
            raise SourceError("configuration", f"{self._target.name}: {error}") from None
        except SnmpTimeout as error:
            self._hang_up()  # the community may have changed: it is read anew
            raise SourceError(
                "timeout", f"{error}; check the address, the community and the switch's access list"
            ) from None
        except SnmpAuthenticationError as error:
            self._hang_up()
            raise SourceError("login", str(error)) from None
        except SnmpError as error:
            raise SourceError("unreachable", str(error)) from None
        except asyncio.CancelledError:
            self._hang_up()  # as it may have come of a switch that is silent
            raise
        self._last = replace(harvest, failures=())  # which are told once
        return harvest

    def nudge(self, port: str) -> None:  # noqa: ARG002  # names and aliases are read all together
        """Read names, aliases and neighbours anew at the next poll."""
        self._inventory_time = self._neighbours.time = float("-inf")
        self._last = None

    async def close(self) -> None:
        """Close the socket."""
        self._hang_up()

    def _is_early(self) -> bool:
        """Tell whether the pause that the profile asks for is not over, where the configuration names none."""
        pause = self._profile.interval if self._target.interval is None else None
        return pause is not None and monotonic() - self._last_time < pause - self._interval / 2

    def _hang_up(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    async def _opened(self) -> SnmpClient:
        """Make the client when there is none; its secrets are read then."""
        if self._client is None:
            given = self._options
            try:
                credentials = await asyncio.to_thread(credentials_of, given)
            except (SecretError, ValueError) as error:
                raise SourceError("credentials", f"{self._target.name}: {error}") from None
            self._client = SnmpClient(
                given.address or self._target.address,
                credentials,
                timeout=float(given.timeout),
                retries=given.retries,
                deadline=self._deadline,
                window=given.window,
                unconnected=given.any_source,
            )
        return self._client

    async def _read(self, client: SnmpClient) -> Harvest:
        begun = asyncio.get_running_loop().time()
        now = monotonic()
        stale = self._inventory is None or now - self._inventory_time >= INVENTORY_AGE
        system = await client.get(ALL if stale else [UPTIME])
        uptime = number_of(single(system.values, UPTIME))
        if self._note_restart(uptime, client.boots) and not stale:
            stale, system = True, await client.get(ALL)
        failures = [Failure("system", one.reason.value, str(one)) for one in system.problems]
        if stale:
            self._note_system(system)
        if stale or self._inventory is None:
            self._inventory, more = await snmp_inventory.take(client, self._target, self._inventory)
            self._inventory_time = monotonic()
            self._counters.forget()
            failures += more
        inventory = self._inventory
        parts = await self._poll(client, inventory, uptime, failures)
        families = self._counters.families()
        await self._read_slow(client, inventory, begun + self._deadline, failures)
        self._add_slow(families, parts)
        device = replace(
            self._device,
            uptime=None if uptime is None else uptime / TICKS,
            refresh=self._refresh.seen,
            unchanged=self._refresh.unchanged,
        )
        self._last_time = now
        return Harvest(device, parts, families, self._known_neighbours(), failures)

    def _note_system(self, system: GetResult) -> None:
        """Take note of what the switch says of itself, and choose its profile; what it fails to say is what it was.

        Raises:
            ConfigError: The profile that the configuration names does not exist.
        """
        unread = {one.oid for one in system.problems}
        told = {oid: text_of(single(system.values, oid)) for oid in (NAME, DESCRIPTION, OBJECT_ID) if oid not in unread}
        known = self._device
        self._device = replace(
            known,
            name=told.get(NAME, known.name),
            description=told.get(DESCRIPTION, known.description),
            object_id=told.get(OBJECT_ID, known.object_id),
        )
        if OBJECT_ID in told:
            value = single(system.values, OBJECT_ID)
            self._object_id = value if isinstance(value, tuple) else ()
        self._choose()

    def _note_restart(self, uptime: int | None, boots: int | None) -> bool:
        """Recognise a restart: the time since the last one is shorter than it was, and did not just run over."""
        restarted = boots is not None and self._boots is not None and boots > self._boots
        if uptime is not None and self._uptime is not None and uptime < self._uptime:
            restarted = restarted or self._uptime < WRAP - 3600 * TICKS
        if restarted:
            self._restarts += 1
            self._inventory = None  # interface indexes may have moved
            self._refresh.forget()
            self._neighbours.time = self._optics.time = float("-inf")
            if self._modules is not None:
                self._modules.forget()
        self._uptime = self._uptime if uptime is None else uptime
        self._boots = self._boots if boots is None else boots
        return restarted

    def _choose(self) -> None:
        """Choose the profile, and begin anew where it is another than before."""
        named = self._target.profile
        if named is None:
            profile = self._profiles.of(self._object_id, self._device.description)
        else:
            profile = self._profiles.named(named)
        if profile is self._profile:
            return
        self._profile = profile
        wide = str(self._options.version) != "1"  # which has no counters of 64 bits
        self._counters = Counters(profile, swapped=self._target.pfc_swapped, wide=wide)
        self._refresh = Refresh(profile.refresh)
        self._modules = Modules(profile.optics) if self._target.optics and profile.optics is not None else None
        self._device = replace(self._device, profile=profile.name)

    async def _poll(
        self, client: SnmpClient, inventory: Inventory, uptime: int | None, failures: list[Failure]
    ) -> list[Part]:
        """Read counters and states, and make the parts."""
        counters = self._counters
        now = monotonic()
        result = await client.walk(counters.wanted(now), max_rows=MAX_ROWS)
        await turn()
        failures += failures_of(result)
        if result.empty:
            raise SourceError("empty", f"{client.address}: answers, but has no counters to show; check its SNMP view")
        await self._complete(client, counters.take(result, inventory, now), failures)
        failures += counters.rows_missing(inventory)
        nameless = frozenset(counters.indexes() - inventory.ports.keys() - inventory.unwanted)
        if nameless - self._nameless:
            self._inventory_time = float("-inf")  # there is an interface that is not in the list
        self._nameless = nameless
        return counters.parts(inventory, self._times(uptime, now), self._restarts)

    async def _complete(self, client: SnmpClient, missing: Sequence[Oid], failures: list[Failure]) -> None:
        """Ask by name for what the walk left out; what cannot be asked now is asked again at the next poll."""
        if not missing:
            return
        try:
            found = await client.get(missing)
        except SnmpError as error:
            failures.append(
                Failure("counters", "timeout" if isinstance(error, SnmpTimeout) else "unreachable", str(error))
            )
            return
        unread = {one.oid for one in found.problems}
        self._counters.add([oid for oid in missing if oid not in unread], found.values)
        failures += [Failure("counters", one.reason.value, str(one)) for one in found.problems[:1]]

    def _times(self, uptime: int | None, now: float) -> Times:
        """Give what tells when the switch counted the rows of ports."""
        stamps = self._counters.stamps()
        if stamps is not None and uptime is not None:
            counted = dict(zip(stamps, self._refresh.by_stamps(list(stamps.values()), uptime, now), strict=True))
            return lambda ports: (now, [counted.get(port, now) for port in ports])
        then = self._refresh.by_octets(self._counters.octets(), now)
        return lambda _: (then, None)

    async def _read_slow(self, client: SnmpClient, inventory: Inventory, end: float, failures: list[Failure]) -> None:
        """Read neighbours and modules where it is time, and there is some left."""

        async def lldp() -> Sequence[Neighbour]:
            found = await snmp_lldp.neighbours(client, inventory)
            failures.extend(found.failures)
            self._device = replace(self._device, chassis=found.chassis or self._device.chassis)
            support = Support.COUNTED if found.known else Support.UNSUPPORTED
            self._neighbours.support = Support.FAILED if found.failed and not found.known else support
            return self._neighbours.unless_once(found.neighbours, failed=found.failed)

        async def optics() -> Sequence[Part]:
            assert self._modules is not None  # noqa: S101  # only asked where there is one
            parts, more = await self._modules.read(client, inventory, monotonic())
            failures.extend(more)
            self._optics.support = Support.COUNTED if parts else Support.FAILED if more else Support.UNSUPPORTED
            return parts

        if self._target.lldp:
            await self._neighbours.read(lldp, "lldp", end, failures)
        if self._modules is not None:
            await self._optics.read(optics, "optics", end, failures)

    def _known_neighbours(self) -> Sequence[Neighbour] | None:
        """Give the neighbours; None where the switch does not tell, so that another way may."""
        told = self._neighbours.found or self._neighbours.support is Support.COUNTED
        return self._neighbours.found if told else None

    def _add_slow(self, families: dict[Family, Support], parts: list[Part]) -> None:
        if self._neighbours.support is not None:
            families[Family.LLDP] = self._neighbours.support
        if self._target.optics:
            families[Family.OPTICS] = self._optics.support or Support.UNSUPPORTED
            parts += self._optics.found or ()


class _Slow(Generic[Found]):
    """Something that is read seldom, and kept from one reading to the next, also past one that failed.

    Attributes:
        found: What was read last; None where nothing was yet.
        support: What is known of whether the switch has it.
        time: When it was read, or tried.
    """

    def __init__(self) -> None:
        self.found: Found | None = None
        self.support: Support | None = None
        self.time = float("-inf")
        self._failed = False

    def unless_once(self, new: Found, *, failed: bool) -> Found:
        """Give what was read; or what is known, where some of the new could not be read, and all could before."""
        once = failed and not self._failed
        self._failed = failed
        return self.found if once and self.found is not None else new

    async def read(self, ask: Callable[[], Awaitable[Found]], name: str, end: float, failures: list[Failure]) -> None:
        """Read, if it is time; `end` is when the event loop's clock says that there is no more time for it."""
        now = monotonic()
        if now - self.time < SLOW_AGE:
            return
        self.time = now
        try:
            async with asyncio.timeout_at(end):
                self.found = await ask()
        except TimeoutError:
            self._fail(
                failures, Failure(name, "timeout", f"{name}: the time for this poll was over before it was read")
            )
        except SnmpError as error:
            self._fail(
                failures, Failure(name, "timeout" if isinstance(error, SnmpTimeout) else "unreachable", str(error))
            )

    def _fail(self, failures: list[Failure], failure: Failure) -> None:
        failures.append(failure)
        self.support = self.support or Support.FAILED
