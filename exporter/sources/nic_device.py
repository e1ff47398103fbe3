"""One network device: what is found out about it, asked for again only when it may have changed, and its counts."""

import errno
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import NamedTuple, TypeVar

from exporter.linux.ethtool import Driver
from exporter.linux.kept import read_text
from exporter.linux.nic import NicReader
from exporter.linux.pci import driver as bound_driver
from exporter.linux.rtnetlink import Link
from exporter.source import Failure
from exporter.sources.failures import failure_of
from exporter.sources.nic_drivers import DRIVERS, VIRTUAL
from exporter.sources.statistics import DriverNames, Plan, picked, plan

SETTINGS_AGE = 60.0
"""Seconds after which the speed of a link that did not change is asked again."""

REFUSED = {errno.EOPNOTSUPP, errno.EPERM, errno.EINVAL}
"""Answers that say the device has no such thing; normal, and no failure."""

Answer = TypeVar("Answer")


class DeviceReading(NamedTuple):
    """What one read of a device gave: all but the link's own values.

    Attributes:
        driver: The driver, with its firmware where it told.
        kind: The model, by which its siblings are known.
        speed: Bytes per second of the link.
        counted: The names of the driver whose statistics were asked for, None where they were not: what it counts is
            never filled in by the kernel's count, which is of other packets.
        known: Whether it is known what the driver counts; while it is not, nothing is filled in at all.
        time: Of the statistics, where bytes and packets are the driver's.
        port: Values by ending.
        priority: The same by priority.
        failures: What could not be had.
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


class Device:
    """One device, remembered from poll to poll; one of another index is another device, whatever its name."""

    def __init__(self, name: str, ifindex: int, sysfs: Path, *, virtual_functions: bool) -> None:
        """Take which it is, where files are, and whether statistics are asked for if it is a virtual function."""
        self.name = name
        self.ifindex = ifindex
        self._folder = sysfs / "class" / "net" / name
        self._virtual_functions = virtual_functions
        self._driver: Driver | None = None
        self._kind: str | None = None
        self._identified: tuple[object, ...] = ()
        self._virtual = False
        self._refused = False
        self._names: tuple[str, ...] = ()
        self._plan = Plan()
        self._speed: float | None = None
        self._speed_of: tuple[object, ...] = ()
        self._speed_time = float("-inf")

    def read(self, link: Link, reader: NicReader) -> DeviceReading:
        """Ask the device; blocks. What cannot be had is said in the reading and costs nothing else."""
        failures: list[Failure] = []
        bond = link.kind == "bond"
        self._virtual = self._is_virtual(link)
        if self._virtual and not self._virtual_functions:
            return DeviceReading()
        if not bond and self._identified != _signature(link):
            self._identify(link, reader, failures)
        speed = self._read_speed(link, reader, failures)
        known = bond or self._driver is not None or bool(self._identified)
        return self._count(DeviceReading(self._driver, self._kind, speed, known=known, failures=failures), reader)

    def last_known(self) -> DeviceReading:
        """Give what is known of a device that did not answer: what it is, and that it counts for itself."""
        return DeviceReading(self._driver, self._kind, counted=self._driver_names(), known=self._driver is not None)

    def _is_virtual(self, link: Link) -> bool:
        """Tell a virtual function, or a subfunction, which sits on the auxiliary bus."""
        return link.parent_dev_bus_name == "auxiliary" or (self._folder / "device" / "physfn").exists()

    def _identify(self, link: Link, reader: NicReader, failures: list[Failure]) -> None:
        """Find out what it is: from sysfs, which never hangs, then from the driver, which knows its firmware."""
        if self._driver is None:
            name = bound_driver(self._folder)
            self._driver = Driver(name) if name else None
            self._kind = self._model()
        before = len(failures)
        answer = self._asked(partial(reader.driver, self.name), failures)
        if answer is not None:
            self._driver = answer
            self._kind = self._model()
        self._identified = _signature(link) if len(failures) == before else ()

    def _model(self) -> str | None:
        """Name the model, whose siblings are the others of it; None where PCI does not tell."""
        folder = self._folder / "device"
        chip, board = (
            ":".join(read_text(folder / f"{level}{name}").removeprefix("0x") for name in ("vendor", "device"))
            for level in ("", "subsystem_")
        )
        if self._driver is None or chip.startswith(":") or chip.endswith(":"):
            return None
        return f"{self._driver.name} {chip} {board}".removesuffix(" :")  # cards of one chip may be meant for other work

    def _read_speed(self, link: Link, reader: NicReader, failures: list[Failure]) -> float | None:
        """Give the link's speed in bytes per second; asked when the link changed and now and then, none while down."""
        if not link.carrier:
            self._speed_of = ()
            return None
        now, signature = monotonic(), _signature(link)
        if self._speed_of != signature or now - self._speed_time >= SETTINGS_AGE:
            self._speed_of, self._speed_time, self._speed = signature, now, None
            before = len(failures)
            settings = self._asked(partial(reader.settings, self.name), failures)
            if settings is not None and settings.speed_bits_per_second is not None:
                self._speed = settings.speed_bits_per_second / 8
            if len(failures) > before:
                self._speed_of = ()  # to be asked again at the next read
        return self._speed

    def _count(self, found: DeviceReading, reader: NicReader) -> DeviceReading:
        """Add the driver's statistics, where the driver is one whose names are known."""
        names = self._driver_names()
        if names is None or self._refused:
            return found
        time = monotonic() if names.wire else None
        try:
            statistics = reader.statistics(self.name)
        except OSError as error:
            self._refused = error.errno == errno.EOPNOTSUPP
            if self._refused:
                return found
            failures = [*found.failures, failure_of(self.name, error, self.name)]
            return found._replace(counted=names, failures=failures)
        if self._names is not statistics.names:
            self._names, self._plan = statistics.names, plan(names, statistics.names)
        places, values = self._plan, statistics.values
        return found._replace(
            counted=names,
            time=time,
            port=picked(places.port, values),
            priority={number: picked(where, values) for number, where in places.priority.items()},
        )

    def _driver_names(self) -> DriverNames | None:
        """Give the names of the statistics that the driver counts by; None for a driver that is not listed."""
        if self._driver is None:
            return None
        return (VIRTUAL if self._virtual else DRIVERS).get(self._driver.name)

    def _asked(self, call: Callable[[], Answer], failures: list[Failure]) -> Answer | None:
        """Ask for something that the device may not have; None where it has not."""
        try:
            return call()
        except OSError as error:
            if error.errno not in REFUSED:
                failures.append(failure_of(self.name, error, self.name))
            return None


def _signature(link: Link) -> tuple[object, ...]:
    """What of a link tells that its speed may be another."""
    return (link.ifindex, link.carrier, link.operstate, link.carrier_changes)
