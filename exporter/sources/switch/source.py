"""Ethernet switches: one source a switch, asked in one way or in several at once.

A switch that does not answer costs its own time alone, and a way that fails its own columns. What is exported, how it
is configured and how a switch is asked is in `switches/`.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

from exporter.core.source import (
    Definition,
    Failure,
    Host,
    Reading,
    Source,
    SourceError,
)
from exporter.core.table import RowKeeper, Table, TableBuilder
from exporter.sources.common.path_patterns import matching
from exporter.sources.switch.fair_lock import turn
from exporter.sources.switch.merge import (
    Device,
    Family,
    Harvest,
    Joint,
    Reader,
    Support,
    best,
)
from exporter.sources.switch.metrics import DEVICE, FAMILIES, SCHEMAS
from exporter.sources.switch.options import Target
from exporter.sources.switch.placement import Place
from exporter.sources.switch.registry import Roster
from exporter.sources.switch.targets import (
    INTERVAL,
    SwitchOptions,
    check_profile,
    complete,
    resolved,
)

if TYPE_CHECKING:
    from exporter.sources.switch.readers.snmp.profile import Profiles

SHARE = 0.9
"""Of the interval, that a way may take: what it has to say of a silent switch must come before the next poll."""

READERS = {
    "snmp": ("exporter.sources.switch.readers.snmp.reader", "SnmpReader"),
    "onyx": ("exporter.sources.switch.readers.onyx.reader", "OnyxReader"),
    "nvue": ("exporter.sources.switch.readers.nvue.reader", "NvueReader"),
    "eapi": ("exporter.sources.switch.readers.eapi.reader", "EapiReader"),
    "nxapi": ("exporter.sources.switch.readers.nxapi.reader", "NxapiReader"),
    "restconf": ("exporter.sources.switch.readers.restconf.reader", "RestconfReader"),
    "redis": ("exporter.sources.switch.readers.sonic_db.reader", "RedisReader"),
}
"""By way: module and class of its reader, which is loaded only where a switch needs it."""

ROSTER = Roster()
"""The switches of this process."""


class SwitchSource:
    """One switch.

    Args:
        target: What to poll.
        interval: Seconds between polls.
        readers: By what, in order of preference.
        roster: The other switches.
    """

    name = "switch"

    def __init__(self, target: Target, interval: float, readers: Sequence[Reader], roster: Roster = ROSTER) -> None:
        self.target = target.name
        self.interval = interval
        self.settings = (target, interval)
        self.label = target.name
        self.changed: asyncio.Event | None = asyncio.Event()
        self._readers = readers
        self._roster = roster
        self._joint = Joint()
        self._device_rows = RowKeeper(DEVICE.labels)
        self._family_rows = RowKeeper(FAMILIES.labels)
        self._system_name = ""
        self._place = Place(target, roster)

    async def applies(self) -> bool:
        """Tell that a switch that was configured is there to be read, whether it answers or not."""
        return True

    async def read(self) -> Reading:
        """Poll the switch once, in all ways at the same time.

        Raises:
            SourceError: Every way failed; the reason is that of the first.
        """
        self._roster.nudges[self.target] = self.nudge
        harvests, failures, errors = await self._harvests()
        if not harvests:
            raise errors[0]
        await turn()
        for harvest in harvests.values():
            failures += harvest.failures
        device = _joined([harvest.device for harvest in harvests.values()])
        self._system_name = device.name or self._system_name  # it goes by the name that it had
        self.label = self._roster.claim(self.target, self._system_name)
        neighbours = next((one.neighbours for one in harvests.values() if one.neighbours is not None), None)
        tables = self._joint.tables(self.label, harvests)
        tables = self._place.tables(self.label, tables, neighbours, device.chassis, monotonic())
        tables += self._own(device, _families(harvests.values()))
        return Reading(tables, failures)

    def nudge(self, port: str = "") -> None:
        """Poll at once: a trap told of a port, or of the switch as a whole where that is empty."""
        for reader in self._readers:
            reader.nudge(port)
        if self.changed is not None:
            self.changed.set()

    async def close(self) -> None:
        """Close the connections."""
        self._roster.release(self.target)
        if self._roster.nudges.get(self.target) == self.nudge:
            del self._roster.nudges[self.target]
        await asyncio.gather(*(reader.close() for reader in self._readers), return_exceptions=True)

    async def _harvests(self) -> tuple[dict[str, Harvest], list[Failure], list[SourceError]]:
        if len(self._readers) == 1:  # the usual case, and a task costs
            (reader,) = self._readers
            return {reader.way: await reader.read()}, [], []
        answers = await asyncio.gather(*(self._asked(reader) for reader in self._readers))
        harvests: dict[str, Harvest] = {}
        failures: list[Failure] = []
        errors: list[SourceError] = []
        for reader, answer in zip(self._readers, answers, strict=True):
            if isinstance(answer, Harvest):
                harvests[reader.way] = answer
            else:
                errors.append(answer)
                failures.append(Failure(reader.way, answer.reason, str(answer)))
        return harvests, failures, errors

    async def _asked(self, reader: Reader) -> Harvest | SourceError:
        limit = self.interval * SHARE
        try:
            async with asyncio.timeout(limit):
                return await reader.read()
        except TimeoutError:
            return SourceError("timeout", f"{self.target}: {reader.way}: no answer within {limit:g} s")
        except SourceError as error:
            return error

    def _own(self, device: Device, families: Mapping[Family, Support]) -> list[Table]:
        now = monotonic()
        about = TableBuilder(DEVICE)
        about.row(
            (self.label,),
            {
                "device_info": (
                    self.target,
                    self._place.role,
                    device.profile,
                    device.description,
                    device.object_id,
                    device.model,
                    device.version,
                ),
                "uptime_seconds": device.uptime,
                "refresh_seconds": device.refresh,
                "unchanged_polls_total": device.unchanged,
            },
        )
        states = TableBuilder(FAMILIES)
        for family, support in families.items():
            states.row((self.label, family.value), {"family_info": (support.value,)})
        return [about.table(self._device_rows, now), states.table(self._family_rows, now)]


def _families(harvests: Iterable[Harvest]) -> dict[Family, Support]:
    """Say of each family that was asked for whether the switch counts it."""
    found: dict[Family, Support] = {}
    for harvest in harvests:
        for family, support in harvest.families.items():
            found[family] = best((support, found.get(family, support)))
    return found


def _joined(devices: Sequence[Device]) -> Device:
    """Put together what several ways told of the switch: each fact from the first that has it."""
    joined, *others = devices
    for other in others:
        facts = {one.name: getattr(other, one.name) for one in fields(other)}
        joined = replace(joined, **{name: fact for name, fact in facts.items() if getattr(joined, name) in ("", None)})
    return joined


def _build(options: SwitchOptions, host: Host) -> Sequence[Source]:  # noqa: ARG001  # a switch is not on this host
    targets = [target for target, _ in resolved(options)]
    ROSTER.configure({target.name: target.address for target in targets})
    sources: list[Source] = [source_of(target) for target in targets if target.poll]
    if options.traps is not None:
        from exporter.sources.switch.traps import TrapSource  # noqa: PLC0415  # brings in pysnmp

        sources.append(TrapSource(options.traps, targets, ROSTER))
    return sources


def source_of(target: Target, interval: float | None = None) -> SwitchSource:
    """Make the source of one switch.

    Args:
        target: The switch.
        interval: Seconds between polls, where that of the target is not meant.
    """
    seconds = interval if interval is not None else float(INTERVAL if target.interval is None else target.interval)
    return SwitchSource(target, seconds, [reader(target, way, seconds) for way in target.ways()])


def prepare(target: Target) -> None:
    """Load what the readers of a switch need, so that making its source is quick. Blocks.

    Args:
        target: The switch.
    """
    for way in target.ways():
        import_module(READERS[way][0])
    if target.snmp is not None:
        from exporter.sources.switch.readers.snmp import profile  # noqa: PLC0415  # only where there are switches

        profile.used()


def reader(target: Target, way: str, interval: float) -> Reader:
    """Make the reader of one way to ask a switch.

    Args:
        target: The switch.
        way: One of `target.ways()`.
        interval: Seconds between polls.
    """
    module, name = READERS[way]
    made = cast(Callable[[Target, Any, float], Reader], getattr(import_module(module), name))
    return made(target, getattr(target, way), interval)


def _complete(options: SwitchOptions, folder: Path) -> SwitchOptions:
    """Take in the files that the configuration names, those of targets and those of profiles."""

    @cache
    def profiles() -> "Profiles":
        from exporter.sources.switch.readers.snmp import profile  # noqa: PLC0415  # only where there are switches

        made = profile.load(matching("profiles", options.profiles, folder))
        profile.use(made)
        return made

    def check(target: Target) -> None:
        if target.snmp is not None:
            check_profile(target, profiles())

    if options.profiles:
        profiles()  # also those that no target names
    return complete(options, folder, check)


DEFINITION = Definition("switch", SwitchOptions, SCHEMAS, _build, section="switches", complete=_complete)
