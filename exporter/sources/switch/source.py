"""Source `switch`: Ethernet switches, one source for each switch, polled by one protocol or several in parallel.

A switch that does not respond delays only itself, and a protocol that fails affects only its own columns.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from importlib import import_module
from itertools import chain
from pathlib import Path
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

import msgspec

from exporter.core.closing import close_all
from exporter.core.definition import Context, Definition, PollRows
from exporter.core.source import (
    Failure,
    Reading,
    Source,
    SourceError,
)
from exporter.core.table import RowKeeper, Table, TableBuilder
from exporter.sources.common.path_patterns import matching_files
from exporter.sources.switch.merge import (
    Family,
    Reader,
    ReadingMerger,
    Support,
    SwitchDevice,
    SwitchReading,
    best_by_family,
)
from exporter.sources.switch.metrics import DEVICE, FAMILIES, POLLS, SCHEMAS
from exporter.sources.switch.options import Target
from exporter.sources.switch.placement import SwitchPlacement
from exporter.sources.switch.registry import SwitchRegistry
from exporter.sources.switch.shared import SharedBySwitches
from exporter.sources.switch.targets import (
    INTERVAL,
    LoadedSwitches,
    SwitchOptions,
    builtin_profiles,
    check_profile,
    load_target_files,
    resolve_targets,
)
from exporter.sources.switch.uncounted import UncountedPorts
from exporter.switch_api.port import MAX_PORTS

if TYPE_CHECKING:
    from exporter.sources.switch.readers.snmp.profile import Profiles

DEADLINE_RATIO = 0.9
"""Share of the interval after which a protocol times out, so that its failure is reported before the next poll."""

READERS = MappingProxyType(
    {
        "snmp": ("exporter.sources.switch.readers.snmp.reader", "SnmpReader"),
        "onyx": ("exporter.sources.switch.readers.onyx.reader", "OnyxReader"),
        "nvue": ("exporter.sources.switch.readers.nvue.reader", "NvueReader"),
        "eapi": ("exporter.sources.switch.readers.eapi.reader", "EapiReader"),
        "nxapi": ("exporter.sources.switch.readers.nxapi.reader", "NxapiReader"),
        "restconf": ("exporter.sources.switch.readers.restconf.reader", "RestconfReader"),
        "redis": ("exporter.sources.switch.readers.sonic_db.reader", "RedisReader"),
    }
)
"""By protocol: module and class of its reader, imported only if a switch needs it."""


class SwitchSource:
    """One switch.

    Args:
        target: The switch.
        interval: Seconds between polls.
        readers: Its readers, in order of preference.
        registry: The switches of this process.
        profile_digest: Digest of the profiles of SNMP that its readers choose from; empty without SNMP.
    """

    name = "switch"

    def __init__(
        self,
        target: Target,
        interval: float,
        readers: Sequence[Reader],
        registry: SwitchRegistry,
        profile_digest: str = "",
    ) -> None:
        self.target = target.name
        self.interval = interval
        self.settings = (target, interval, profile_digest)
        self.label = target.name
        self.changed: asyncio.Event | None = asyncio.Event()
        self._readers = readers
        self._registry = registry
        self._merger = ReadingMerger()
        self._device_rows = RowKeeper(DEVICE.labels)
        self._family_rows = RowKeeper(FAMILIES.labels)
        self._system_name = ""
        self._placement = SwitchPlacement(target, registry)
        self._uncounted = UncountedPorts()

    async def applies(self) -> bool:
        """Return True: a configured switch is always polled, whether it responds or not."""
        return True

    async def read(self) -> Reading:
        """Poll the switch once, by all protocols in parallel.

        Raises:
            SourceError: Every protocol failed; the reason is that of the first.
        """
        self._registry.poll_callbacks[self.target] = self.poll_now
        readings, failures, errors = await self._read_all()
        if not readings:
            raise errors[0]
        await self._registry.shared.fair_lock.yield_to_loop()
        for reading in readings.values():
            failures += reading.failures
        device = _merge_devices([reading.device for reading in readings.values()])
        self._system_name = device.name or self._system_name  # the label does not change while the name is missing
        self.label = self._registry.claim_label(self.target, self._system_name)
        neighbours = next((one.neighbours for one in readings.values() if one.neighbours is not None), None)
        tables = self._merger.tables(self.label, readings)
        if left_out := self._merger.ports_left_out:
            detail = f"{self.target}: more than {MAX_PORTS} ports; {left_out} are left out"
            failures.append(Failure("ports", "too_many", detail))
        await self._registry.shared.fair_lock.yield_to_loop()
        tables = self._placement.tables(self.label, tables, neighbours, device.chassis, monotonic())
        failures += self._uncounted.failures(tables)
        families = best_by_family(chain.from_iterable(one.families.items() for one in readings.values()))
        tables += self._device_tables(device, families)
        return Reading(tables, failures)

    def poll_now(self, port: str = "") -> None:
        """Poll at once: a trap reported an event of a port, or of the switch if `port` is empty."""
        for reader in self._readers:
            reader.invalidate_neighbours(port)
        if self.changed is not None:
            self.changed.set()

    async def close(self) -> None:
        """Close the connections, and drop what the switch has reported from the registry."""
        self._registry.forget(self.target)
        if self._registry.poll_callbacks.get(self.target) == self.poll_now:
            del self._registry.poll_callbacks[self.target]
        await close_all(f"switch {self.target}", [reader.close() for reader in self._readers])

    async def _read_all(self) -> tuple[dict[str, SwitchReading], list[Failure], list[SourceError]]:
        if len(self._readers) == 1:  # the usual case, without the cost of a task
            (reader,) = self._readers
            return {reader.protocol: await reader.read()}, [], []
        async with (
            asyncio.TaskGroup() as group
        ):  # an error of this program ends all, so that none overlaps the next poll
            tasks = [group.create_task(self._read_one(reader)) for reader in self._readers]
        results = [task.result() for task in tasks]
        readings: dict[str, SwitchReading] = {}
        failures: list[Failure] = []
        errors: list[SourceError] = []
        for reader, result in zip(self._readers, results, strict=True):
            if isinstance(result, SwitchReading):
                readings[reader.protocol] = result
            else:
                errors.append(result)
                failures.append(Failure(reader.protocol, result.reason, str(result)))
        return readings, failures, errors

    async def _read_one(self, reader: Reader) -> SwitchReading | SourceError:
        limit = self.interval * DEADLINE_RATIO
        try:
            async with asyncio.timeout(limit):
                return await reader.read()
        except TimeoutError:
            return SourceError("timeout", f"{self.target}: {reader.protocol}: no response within {limit:g} s")
        except SourceError as error:
            return error

    def _device_tables(self, device: SwitchDevice, families: Mapping[Family, Support]) -> list[Table]:
        now = monotonic()
        about = TableBuilder(DEVICE)
        about.row(
            (self.label,),
            {
                "device_info": (
                    self.target,
                    self._placement.role,
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


def _merge_devices(devices: Sequence[SwitchDevice]) -> SwitchDevice:
    """Merge what several protocols report about the switch: each attribute from the first that has it."""
    merged, *others = devices
    for other in others:
        facts = {one.name: getattr(other, one.name) for one in fields(other)}
        merged = replace(merged, **{name: fact for name, fact in facts.items() if getattr(merged, name) in ("", None)})
    return merged


def _build(options: SwitchOptions, context: Context) -> Sequence[Source]:
    registry = context.shared.get(SwitchRegistry)
    targets = [target for target, _ in resolve_targets(options)]
    polled = [target for target in targets if target.poll]
    sources: list[Source] = [make_source(target, registry, options.profiles_or_builtin) for target in polled]
    if options.traps is not None:
        from exporter.sources.switch.traps import TrapSource  # noqa: PLC0415  # imports pysnmp

        sources.append(TrapSource(options.traps, targets, registry))
    return sources


def _apply(options: SwitchOptions, context: Context) -> None:
    addresses = {target.name: target.address for target, _ in resolve_targets(options)}
    context.shared.get(SwitchRegistry).configure(addresses)


def make_source(
    target: Target, registry: SwitchRegistry, profiles: Callable[[], "Profiles"], interval: float | None = None
) -> SwitchSource:
    """Return the source of one switch.

    Args:
        target: The switch.
        registry: The switches of this process.
        profiles: Returns the profiles of SNMP, for a target that is polled by SNMP.
        interval: Seconds between polls; the target's if None.
    """
    seconds = interval if interval is not None else float(INTERVAL if target.interval is None else target.interval)
    readers = [make_reader(target, protocol, seconds, profiles, registry.shared) for protocol in target.protocols()]
    digest = "" if target.snmp is None else profiles().fingerprint(target.profile)
    return SwitchSource(target, seconds, readers, registry, digest)


def import_readers(target: Target, profiles: Callable[[], "Profiles"]) -> None:
    """Import the readers and load the profiles of a switch, so that `make_source` does not block. Blocks.

    Args:
        target: The switch.
        profiles: Returns the profiles of SNMP.
    """
    for protocol in target.protocols():
        import_module(READERS[protocol][0])
    if target.snmp is not None:
        profiles()


def make_reader(
    target: Target,
    protocol: str,
    interval: float,
    profiles: Callable[[], "Profiles"] = builtin_profiles,
    shared: SharedBySwitches | None = None,
) -> Reader:
    """Return the reader of a switch for one protocol.

    Args:
        target: The switch.
        protocol: One of `target.protocols()`.
        interval: Seconds between polls.
        profiles: Returns the profiles of SNMP.
        shared: What the polls of all switches share; None for a reader on its own.
    """
    module, name = READERS[protocol]
    reader_class = cast(Callable[..., Reader], getattr(import_module(module), name))
    if protocol == "snmp":
        return reader_class(target, target.snmp, interval, profiles(), shared)
    return reader_class(target, getattr(target, protocol), interval)


def _complete(options: SwitchOptions, folder: Path) -> LoadedSwitches:
    """Load the files that the configuration names: those of targets and those of profiles."""

    @cache
    def profiles() -> "Profiles":
        from exporter.sources.switch.readers.snmp import profile  # noqa: PLC0415  # only where there are switches

        files = matching_files("profiles", options.profiles, folder)
        return profile.load(files) if files else profile.builtin()

    def check(target: Target) -> None:
        if target.snmp is not None:
            check_profile(target, profiles())

    completed = load_target_files(options, folder, check)
    return LoadedSwitches(**msgspec.structs.asdict(completed), loaded=profiles() if options.profiles else None)


def _describe(options: SwitchOptions) -> str:
    """Return the number of switches in words, with those of each role and protocol and those that are not polled."""
    switches = [target for target, _ in resolve_targets(options)]
    roles = Counter(target.role for target in switches if target.role)
    protocols = Counter(protocol for target in switches for protocol in target.protocols())
    on_demand = sum(not target.poll for target in switches)
    parts = [f"{count} {role}" for role, count in sorted(roles.items())]
    parts += [f"{count} by {protocol}" for protocol, count in sorted(protocols.items())]
    parts += [f"{on_demand} on demand"] if on_demand else []
    return f"{len(switches)} target{'' if len(switches) == 1 else 's'}" + (f" ({', '.join(parts)})" if parts else "")


DEFINITION = Definition(
    "switch",
    SwitchOptions,
    SCHEMAS,
    _build,
    section="switches",
    complete=_complete,
    apply=_apply,
    polls=PollRows(POLLS, lambda source: (source.label, source.target)),
    describe=_describe,
)
