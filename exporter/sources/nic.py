"""Network devices of this host: links and what the kernel saw by rtnetlink, what the hardware saw by ethtool.

One dump gives the links of all devices; statistics are asked device by device, in turn, since the calls take the
kernel's network lock and run firmware commands. Only devices that stand for hardware are asked, and of virtual
functions nothing but their links: a read there can block in the firmware's mailbox while a job runs.
"""

import asyncio
import errno
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from time import monotonic
from typing import NamedTuple, TypeVar

from exporter import vocabulary
from exporter.linux.ethtool import Driver
from exporter.linux.kept import read_text
from exporter.linux.nic import KernelNic, NicReader, ReplayNic
from exporter.linux.pci import bus_order
from exporter.linux.pci import driver as bound_driver
from exporter.linux.rtnetlink import Link
from exporter.serial import HungError, Serial
from exporter.source import Definition, Failure, Host, Options, Reading, Source, SourceError
from exporter.sources import nic_drivers
from exporter.sources.nic_drivers import DRIVERS, VIRTUAL, DriverNames, Plan, Statistic
from exporter.table import Column, LabelValues, RowKeeper, Schema, Table, Value
from exporter.vocabulary import counter, info

CALL_DEADLINE = 2.0
"""Seconds that the calls into one device may take."""

APART = 0.05
"""Seconds between the first and the last device's reading from which each has a time of its own: one before it hung."""

SETTINGS_AGE = 60.0
"""Seconds after which the speed of a link that did not change is asked again."""

REFUSED = {errno.EOPNOTSUPP, errno.EPERM, errno.EINVAL}
"""Answers that say the device has no such thing; normal, and no failure."""

KERNEL = {
    "kernel_receive_bytes_total": "rx_bytes",
    "kernel_transmit_bytes_total": "tx_bytes",
    "kernel_receive_packets_total": "rx_packets",
    "kernel_transmit_packets_total": "tx_packets",
    "kernel_receive_errors_total": "rx_errors",
    "kernel_transmit_errors_total": "tx_errors",
    "kernel_receive_discards_total": "rx_dropped",
    "kernel_transmit_discards_total": "tx_dropped",
}
"""Statistics of the kernel (struct rtnl_link_stats64) that are exported as such."""

INSTEAD = {
    ending.removeprefix("kernel_"): name
    for ending, name in KERNEL.items()
    if ending.endswith(("_bytes_total", "_packets_total"))
}
"""What stands in for bytes and packets of a device whose driver does not count them."""


def _origins() -> dict[str, list[str]]:
    """List where each metric comes from, for the documentation."""
    found: dict[str, list[str]] = {ending: [f"rtnetlink {name}"] for ending, name in KERNEL.items()}
    for driver, names in DRIVERS.items():
        for statistic in (*names.port, *names.priority):
            found.setdefault(statistic.ending, []).append(f"{driver}: {' + '.join(statistic.names)}")
    for ending, name in INSTEAD.items():
        found.setdefault(ending, []).append(f"others: rtnetlink {name}")
    found["link_down_total"].append("others: rtnetlink carrier_down_count")
    found |= {
        "link_up": ["rtnetlink IFLA_OPERSTATE, IFF_LOWER_UP"],
        "link_speed_bytes_per_second": ["ETHTOOL_GLINKSETTINGS"],
        "mtu_bytes": ["rtnetlink IFLA_MTU"],
        "carrier_changes_total": ["rtnetlink IFLA_CARRIER_CHANGES"],
        "info": ["rtnetlink", "ETHTOOL_GDRVINFO"],
    }
    return found


_STATISTICS: tuple[Statistic, ...] = tuple(one for names in DRIVERS.values() for one in names.port)
_PRIORITY: tuple[Statistic, ...] = tuple(one for names in DRIVERS.values() for one in names.priority)

SCHEMA = vocabulary.schema(
    "fabric_nic_",
    ("device",),
    [
        *dict.fromkeys(one.ending for one in _STATISTICS if one.ending in vocabulary.ENDINGS),
        "link_up",
        "link_speed_bytes_per_second",
        "link_expected_speed_bytes_per_second",
        "link_degraded",
        "mtu_bytes",
        "resets_total",
    ],
    {
        "info": info(
            "What the device is and where it sits; traffic tells whose bytes are counted: the wire's or the kernel's.",
            "host",
            "rail",
            "pci",
            "mac",
            "driver",
            "firmware",
            "phys_port_name",
            "traffic",
        ),
        "carrier_changes_total": counter("Times the carrier came or went."),
        "kernel_receive_bytes_total": counter("Bytes that the kernel received: no RDMA."),
        "kernel_transmit_bytes_total": counter("Bytes that the kernel sent: no RDMA."),
        "kernel_receive_packets_total": counter("Packets that the kernel received: no RDMA."),
        "kernel_transmit_packets_total": counter("Packets that the kernel sent: no RDMA."),
        "kernel_receive_errors_total": counter("Packets that the kernel counts as received with an error."),
        "kernel_transmit_errors_total": counter("Packets that the kernel counts as not sent for an error."),
        "kernel_receive_discards_total": counter("Packets received that the kernel dropped."),
        "kernel_transmit_discards_total": counter("Packets to be sent that the kernel dropped."),
        "pcs_symbol_errors_total": counter("Symbol errors that forward error correction did not mend."),
        "fec_corrected_errors_total": counter("Bits that forward error correction mended."),
        "receive_buffer_threshold_total": counter("Times the port's receive buffer was more than 85 % full."),
        "transmit_pause_storm_warnings_total": counter("Times this port paused its peer for long."),
        "transmit_pause_storm_errors_total": counter(
            "Times this port paused its peer so long that it was stopped from it."
        ),
        "transmit_timeouts_total": counter("Times that the device did not send in time and was reset."),
        "pci_buffer_overflows_total": counter("Packets dropped because PCIe was slower than the wire."),
    },
    note="On the wire with RDMA, headers and frame check where the driver counts those, else what the kernel saw.",
    origins=_origins(),
)

PRIORITY = vocabulary.schema(
    "fabric_nic_",
    ("device", "priority"),
    [*dict.fromkeys(one.ending for one in _PRIORITY if one.ending in vocabulary.ENDINGS)],
    {"receive_pfc_transitions_total": counter("Times the priority went from paused to running.")},
    origins=_origins(),
)

Answer = TypeVar("Answer")

_REPRESENTOR = re.compile(r"(c\d+)?pf\d+(vf|sf)\d+")


class NicOptions(Options, frozen=True):
    """Configuration of `sources.nic`; include and exclude are names of devices.

    Attributes:
        rails: Rail of each device, for nodes where the order of the PCI addresses does not tell.
        virtual_functions: Whether statistics of virtual functions are read too.
    """

    rails: dict[str, str] = {}  # noqa: RUF012  # msgspec copies mutable defaults
    virtual_functions: bool = False


@dataclass(slots=True)
class _Device:
    """What is remembered of a device from poll to poll; one of another index is another device, whatever its name."""

    ifindex: int = 0
    driver: Driver | None = None
    kind: str | None = None
    identified: tuple[object, ...] = ()
    virtual: bool = False
    refused: bool = False
    names: tuple[str, ...] = ()
    plan: Plan | None = None
    speed: float | None = None
    asked: float = float("-inf")
    seen: tuple[object, ...] = ()


class DeviceReading(NamedTuple):
    """What one read of a device gave: all but the link's own values.

    `counted` are the names of the driver whose statistics were asked for, None where they were not: what it counts is
    never filled in by the kernel's count, which is of other packets. While it is not `known` what the driver counts,
    nothing is filled in at all. `time` is that of the statistics where bytes and packets are the driver's.
    """

    driver: Driver | None = None
    kind: str | None = None
    speed: float | None = None
    counted: DriverNames | None = None
    known: bool = True
    time: float | None = None
    port: Mapping[str, int] = {}
    priority: Mapping[str, Mapping[str, int]] = {}
    failures: Sequence[Failure] = ()


class NicSource:
    """Reads the network devices of this host."""

    name = "nic"
    target = ""

    def __init__(self, options: NicOptions, host: Host, open_reader: Callable[[], NicReader]) -> None:
        """Take the configuration and how to open what is read; opening waits until the loop runs."""
        self.interval = float(options.interval)
        self.changed: asyncio.Event | None = asyncio.Event()
        self.settings = self._options = options
        self._host = host
        self._open = open_reader
        self._reader: NicReader | None = None
        self._serial = Serial("nic", CALL_DEADLINE)
        self._devices: dict[str, _Device] = {}
        self._names: frozenset[str] = frozenset()
        self._keepers: dict[tuple[Schema, str], RowKeeper] = {}

    async def applies(self) -> bool:
        """Tell whether there is any device to read."""
        return bool(await self._links())

    async def read(self) -> Reading:
        """Read all devices; they fail alone."""
        links = await self._links()
        for gone in self._devices.keys() - links.keys() - self._serial.out:
            del self._devices[gone]
            self._running_reader().forget(gone)
        now = monotonic()
        results = await self._serial.run([(name, partial(self._read_device, link)) for name, link in links.items()])
        readings: dict[str, DeviceReading] = {}
        failures: list[Failure] = []
        for name, result in results.items():
            if isinstance(result, DeviceReading):
                readings[name] = result
                failures += result.failures
            else:
                readings[name] = self._last_known(name)
                failures.append(_failure(name, result))
        return Reading(self._tables(links, readings, now), failures)

    async def close(self) -> None:
        """Stop listening for events and close the sockets."""
        self._serial.close()
        if self._reader is not None:
            descriptor = self._reader.event_fd()
            if descriptor is not None:
                asyncio.get_running_loop().remove_reader(descriptor)
            self._reader.close()
            self._reader = None

    def _running_reader(self) -> NicReader:
        """Open the reader once, and listen for its events."""
        if self._reader is None:
            self._reader = self._open()
            descriptor = self._reader.event_fd()
            if descriptor is not None:
                asyncio.get_running_loop().add_reader(descriptor, self._on_event)
        return self._reader

    def _on_event(self) -> None:
        """Read at once when a link of ours changed, or when events were lost; others' links are no concern of ours."""
        if self._reader is None or self.changed is None:
            return
        for event in self._reader.events():
            if event.link is None or event.link.name in self._names or self._is_ours(event.link):
                self.changed.set()

    async def _links(self) -> dict[str, Link]:
        """Dump the links and keep those that are ours.

        Raises:
            SourceError: The dump failed.
        """
        try:
            reader = self._running_reader()
        except OSError as error:
            raise SourceError("unreadable", f"rtnetlink: {error}") from None
        links = (await self._serial.run([("links", reader.links)]))["links"]
        if not isinstance(links, list):
            raise SourceError("timeout" if isinstance(links, HungError) else "unreadable", f"rtnetlink: {links}")
        ours = {link.name: link for link in links if self._is_ours(link)}
        self._names = frozenset(ours)
        return ours

    def _is_ours(self, link: Link) -> bool:
        """Tell hardware and bonds from all else, and what the configuration wants from what it does not."""
        hardware = bool(link.parent_dev_name) and not link.kind
        if not (hardware or link.kind == "bond") or _REPRESENTOR.fullmatch(link.phys_port_name or ""):
            return False
        chosen = self._options
        return any(fnmatchcase(link.name, pattern) for pattern in chosen.include) and not any(
            fnmatchcase(link.name, pattern) for pattern in chosen.exclude
        )

    def _read_device(self, link: Link) -> DeviceReading:
        """Ask one device; runs in the thread."""
        failures: list[Failure] = []
        reader = self._reader
        if reader is None:
            raise OSError(errno.EBADF, "closed")
        device = self._devices.get(link.name)
        if device is None or device.ifindex != link.ifindex:
            device = self._devices[link.name] = _Device(link.ifindex)
            reader.forget(link.name)
        device.virtual = self._is_virtual(link)
        if device.virtual and not self._options.virtual_functions:
            return DeviceReading()
        if link.kind != "bond" and device.identified != _signature(link):
            self._identify(device, link, reader, failures)
        speed = self._speed(device, link, failures)
        known = link.kind == "bond" or device.driver is not None or bool(device.identified)
        found = DeviceReading(device.driver, device.kind, speed, known=known, failures=failures)
        names = _counted(device)
        if names is None or device.refused:
            return found
        time = monotonic() if names.wire else None
        try:
            statistics = reader.statistics(link.name)
        except OSError as error:
            device.refused = error.errno == errno.EOPNOTSUPP
            if device.refused:
                return found
            failures.append(_failure(link.name, error))
            return found._replace(counted=names)
        if device.plan is None or device.names is not statistics.names:
            device.names, device.plan = statistics.names, nic_drivers.plan(names, statistics.names)
        places, values = device.plan, statistics.values
        return found._replace(
            counted=names,
            time=time,
            port=nic_drivers.picked(places.port, values),
            priority={number: nic_drivers.picked(where, values) for number, where in places.priority.items()},
        )

    def _identify(self, device: _Device, link: Link, reader: NicReader, failures: list[Failure]) -> None:
        """Find out what a device is: from sysfs, which never hangs, then from the driver, which knows its firmware."""
        folder = self._host.sysfs / "class" / "net" / link.name
        if device.driver is None:
            name = bound_driver(folder)
            device.driver = Driver(name) if name else None
            device.kind = _kind(folder, device.driver)
        before = len(failures)
        answer = _asked(partial(reader.driver, link.name), link.name, failures)
        if answer is not None:
            device.driver, device.kind = answer, _kind(folder, answer)
        device.identified = _signature(link) if len(failures) == before else ()

    def _last_known(self, name: str) -> DeviceReading:
        """Give what is known of a device that did not answer: what it is, and that it counts for itself."""
        device = self._devices.get(name) or _Device()
        return DeviceReading(device.driver, device.kind, counted=_counted(device), known=device.driver is not None)

    def _is_virtual(self, link: Link) -> bool:
        """Tell a virtual function, or a subfunction, which sits on the auxiliary bus."""
        folder = self._host.sysfs / "class" / "net" / link.name / "device"
        return link.parent_dev_bus_name == "auxiliary" or (folder / "physfn").exists()

    def _speed(self, device: _Device, link: Link, failures: list[Failure]) -> float | None:
        """Give the link's speed in bytes per second; asked when the link changed and now and then, none while down."""
        if not link.carrier:
            device.seen = ()
            return None
        now, signature = monotonic(), _signature(link)
        if device.seen != signature or now - device.asked >= SETTINGS_AGE:
            device.seen, device.asked, device.speed = signature, now, None
            if self._reader is not None:
                before = len(failures)
                settings = _asked(partial(self._reader.settings, link.name), link.name, failures)
                if settings is not None and settings.speed_bits_per_second is not None:
                    device.speed = settings.speed_bits_per_second / 8
                if len(failures) > before:
                    device.seen = ()  # to be asked again at the next read
        return device.speed

    def _tables(self, links: Mapping[str, Link], readings: Mapping[str, DeviceReading], now: float) -> list[Table]:
        """Make two tables for each driver: by port, and by port and priority."""
        rails = self._rails(links, readings)
        parts: dict[str, list[str]] = {}
        for name in links:
            driver = readings[name].driver
            parts.setdefault(driver.name if driver else "", []).append(name)
        tables = []
        for part, names in parts.items():
            known = DRIVERS.get(part)
            rows = [_row(links[name], readings[name]) for name in names]
            infos: list[Value | None] = [
                (self._host.name, rails.get(name, ""), *_facts(links[name], readings[name])) for name in names
            ]
            columns = _columns(SCHEMA, rows, known.port if known else ())
            columns["info"] = Column(SCHEMA.metrics["info"], infos)
            tables.append(
                Table(
                    SCHEMA,
                    self._keeper(SCHEMA, part).rows([(name,) for name in names]),
                    columns,
                    now,
                    times=_times(now, [readings[name] for name in names]),
                    epochs=[links[name].ifindex for name in names],
                    kinds=[readings[name].kind for name in names],
                    part=part,
                )
            )
            keys = [(name, number) for name in names for number in readings[name].priority]
            if known and keys:
                cells: list[Mapping[str, Value | None]] = [readings[name].priority[number] for name, number in keys]
                tables.append(
                    Table(
                        PRIORITY,
                        self._keeper(PRIORITY, part).rows(keys),
                        _columns(PRIORITY, cells, known.priority),
                        now,
                        times=_times(now, [readings[name] for name, _ in keys]),
                        epochs=[links[name].ifindex for name, _ in keys],
                        part=part,
                    )
                )
        return tables

    def _keeper(self, schema: Schema, part: str) -> RowKeeper:
        return self._keepers.setdefault((schema, part), RowKeeper(schema.labels))

    def _rails(self, links: Mapping[str, Link], readings: Mapping[str, DeviceReading]) -> dict[str, str]:
        """Number the devices of each kind in the order of their PCI addresses."""
        groups: dict[str, list[str]] = {}
        for name, reading in readings.items():
            if reading.kind is not None:
                groups.setdefault(reading.kind, []).append(name)
        rails: dict[str, str] = {}
        for names in groups.values():
            names.sort(key=lambda name: bus_order(_pci(links[name], readings[name].driver), name))
            rails |= {name: str(rail) for rail, name in enumerate(names)}
        return rails | self._options.rails


def _counted(device: _Device) -> DriverNames | None:
    """Give the names of the statistics that a device's driver counts by; None for a driver that is not listed."""
    if device.driver is None:
        return None
    return (VIRTUAL if device.virtual else DRIVERS).get(device.driver.name)


def _kind(folder: Path, driver: Driver | None) -> str | None:
    """Name the model of a device, whose siblings are the others of it; None where PCI does not tell."""
    vendor, model = read_text(folder / "device" / "vendor"), read_text(folder / "device" / "device")
    if driver is None or not vendor or not model:
        return None
    return f"{driver.name} {vendor.removeprefix('0x')}:{model.removeprefix('0x')}"


def _signature(link: Link) -> tuple[object, ...]:
    """What of a link tells that its speed may be another."""
    return (link.ifindex, link.carrier, link.operstate, link.carrier_changes)


def _asked(call: Callable[[], Answer], device: str, failures: list[Failure]) -> Answer | None:
    """Ask for something that a device may not have; None where it has not."""
    try:
        return call()
    except OSError as error:
        if error.errno not in REFUSED:
            failures.append(_failure(device, error))
        return None


def _pci(link: Link, driver: Driver | None) -> str:
    if link.parent_dev_bus_name == "pci":
        return link.parent_dev_name or ""
    return driver.bus if driver is not None else ""


def _times(now: float, readings: Sequence[DeviceReading]) -> list[float] | None:
    """Give the time of each reading where some were taken long after the dump of the links, at `now`."""
    times = [now if reading.time is None else reading.time for reading in readings]
    return times if max(times) - now > APART else None


def _facts(link: Link, reading: DeviceReading) -> LabelValues:
    """Give the values of the info's labels from `pci` on."""
    driver = reading.driver
    traffic = "wire" if reading.counted is not None and reading.counted.wire else "kernel"
    if link.kind == "bond" or not reading.known:
        traffic = ""
    return (
        _pci(link, driver),
        link.mac or "",
        driver.name if driver else "",
        driver.firmware if driver else "",
        link.phys_port_name or "",
        traffic,
    )


def _row(link: Link, reading: DeviceReading) -> dict[str, Value | None]:
    """Put together what one device has, by ending."""
    row: dict[str, Value | None] = {}
    if link.kind != "bond":  # a bond carries what its members carry: its bytes would be counted twice
        own = {one.ending for one in reading.counted.port} if reading.counted is not None else set()
        row = {ending: link.stats.get(name) for ending, name in KERNEL.items()}
        if reading.known:
            row |= {ending: link.stats.get(name) for ending, name in INSTEAD.items() if ending not in own}
        if reading.known and "link_down_total" not in own:
            row["link_down_total"] = link.carrier_down_count
    row |= {
        "carrier_changes_total": link.carrier_changes,
        "mtu_bytes": link.mtu,
        "link_up": int(link.carrier and link.operstate in {None, "up", "unknown"}),
        "link_speed_bytes_per_second": reading.speed,
    }
    row |= dict(reading.port)
    return row


def _columns(
    schema: Schema, rows: Sequence[Mapping[str, Value | None]], statistics: Sequence[Statistic]
) -> dict[str, Column]:
    """Turn rows into columns, with the widths that the driver's counters have."""
    declared = {one.ending: one for one in statistics}
    columns = {}
    for ending in dict.fromkeys(ending for row in rows for ending in row):
        one = declared.get(ending)
        width = 32 if one is None and ending in {"link_down_total", "carrier_changes_total"} else 64
        width, divisor = (one.width, one.divisor) if one is not None else (width, 1)
        values = [row.get(ending) for row in rows]
        columns[ending] = Column(schema.metrics[ending], values, width, divisor=divisor)
    return columns


def _failure(device: str, error: Exception) -> Failure:
    if isinstance(error, HungError):
        return Failure(device, "timeout", str(error))
    if isinstance(error, OSError) and error.errno is not None:
        return Failure(device, errno.errorcode.get(error.errno, "oserror").lower(), str(error))
    return Failure(device, "malformed", str(error))


def _build(options: NicOptions, host: Host) -> list[Source]:
    replay = host.nic_replay
    return [NicSource(options, host, KernelNic if replay is None else partial(ReplayNic, replay))]


DEFINITION = Definition("nic", NicOptions, (SCHEMA, PRIORITY), _build)
