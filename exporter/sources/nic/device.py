"""One network device: what is found out about it, and what it counts."""

from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from math import inf
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from exporter.core.source import Failure
from exporter.core.table import Value
from exporter.linux.cached_file import read_text
from exporter.linux.ethtool import Driver
from exporter.linux.netlink.ethtool import Pause
from exporter.linux.netlink.rtnetlink import Link
from exporter.linux.nic_reader import NicReader
from exporter.linux.pci import class_device_driver as bound_driver
from exporter.linux.pci import is_virtual_function
from exporter.sources.common.driver_statistics import (
    ABSENT,
    DriverNames,
    StatisticsPlan,
    make_plan,
    sum_values,
    unmapped,
)
from exporter.sources.common.host_ports import is_infiniband_port
from exporter.sources.nic.drivers import DRIVERS, INFINIBAND, VIRTUAL
from exporter.sources.nic.facts import (
    FEC,
    FEC_BLOCKS,
    LINK_STATE,
    PAUSE,
    Facts,
    fec,
    link_modes,
    signature,
    speed,
)
from exporter.sources.nic.metrics import INSTEAD, STANDARD
from exporter.sources.nic.questions import Asking

MAX_RAW = 1000
"""Statistics of one device that are exported by the names its driver gives them."""

FILLED = frozenset({*INSTEAD, "link_down_total"})
"""What the kernel's count stands in for where a device has none of its own."""

_DRIVER, _STATISTICS, _STANDARD = "driver", "statistics", "standard statistics"


class DeviceReading(NamedTuple):
    """What one read of a device gave: all but the link's own values.

    Attributes:
        driver: The driver, with its firmware where it told.
        kind: The model, by which its siblings are known.
        traffic: Whose bytes and packets are counted: those on the `wire`, those of the `kernel`; empty if not known,
            or not the port's.
        own: Endings that are never filled in by the kernel's count, which is of other packets: what the device counts
            itself, or may count.
        time: Of the counts, where bytes and packets are the device's.
        port: Values by ending.
        priority: The same by priority.
        raw: Values by the driver's own names.
        failures: What could not be had.
    """

    driver: Driver | None = None
    kind: str | None = None
    traffic: str = "kernel"
    own: frozenset[str] = frozenset()
    time: float | None = None
    port: Mapping[str, Value] = {}
    priority: Mapping[str, Mapping[str, int]] = {}
    raw: Mapping[str, int] = {}
    failures: Sequence[Failure] = ()


UNKNOWN = DeviceReading(traffic="", own=FILLED)
"""Of a device of which nothing is known yet."""

UNASKED, UNASKED_INFINIBAND = DeviceReading(), DeviceReading(traffic="", own=frozenset(INSTEAD))
"""Of a virtual function that is not to be asked."""


class Device:
    """One device, remembered from poll to poll; one of another index is another device, whatever its name."""

    def __init__(
        self,
        link: Link,
        sysfs: Path,
        *,
        virtual_functions: bool = False,
        raw: Sequence[str] = (),
        unread: Collection[str] = (),
    ) -> None:
        """Take what to read.

        Args:
            link: Its link, which tells its name and index.
            sysfs: Where files are.
            virtual_functions: Whether statistics are asked for if it is a virtual function.
            raw: Patterns of statistics to be given by the names that the driver has for them.
            unread: Endings of the statistics that nobody is shown.
        """
        self.name = link.name
        self.ifindex = link.ifindex
        self._folder = sysfs / "class" / "net" / link.name
        self._rdma = self._folder / "device" / "infiniband"
        # A subfunction sits on the auxiliary bus.
        self._virtual = link.parent_dev_bus_name == "auxiliary" or is_virtual_function(self._folder / "device")
        self._virtual_functions = virtual_functions
        # What IP sends over InfiniBand is a part of what its RDMA port counts: it never stands for the port's bytes.
        self._infiniband = is_infiniband_port(link)
        self._patterns, self._unread = raw, unread
        self._asking = Asking(link.name)
        self._driver: Driver | None = None
        self._kind: str | None = None
        self._planned: tuple[str, ...] | None = None
        self._planned_by: DriverNames | None = None
        self._plan = StatisticsPlan()
        self._raw: dict[str, int] = {}
        self._counted: set[str] = set()  # endings that it ever counted itself

    def read(self, link: Link, reader: NicReader) -> DeviceReading:
        """Ask the device; blocks. What cannot be had is said in the reading and costs nothing else."""
        self._asking.begin()
        if link.kind == "bond":
            port = self._speed(link, reader)
            return DeviceReading(traffic="", port=port, failures=self._asking.failures)
        if self._virtual and not self._virtual_functions:
            return UNASKED_INFINIBAND if self._infiniband else UNASKED
        self._identify(link, reader)
        if not self._is_known():
            return UNKNOWN._replace(port=self._speed(link, reader), failures=self._asking.failures)
        time = monotonic()
        port, priority, raw = self._count(reader)
        if self._virtual:
            port |= self._speed(link, reader)
        else:
            by_standard = self._driver_names() is None and not self._infiniband
            pause = self._count_by_standard(port, reader) if by_standard else None
            port |= self._facts(port, pause, link, reader)
        self._counted |= port.keys()
        found = self.last_known()
        return found._replace(
            time=time if found.traffic == "wire" else None,
            port=port,
            priority=priority,
            raw=raw,
            failures=self._asking.failures,
        )

    def last_known(self) -> DeviceReading:
        """Give what is known of a device that did not answer: what it is, and what it counts for itself."""
        if not self._is_known():
            return UNKNOWN
        names, own = self._driver_names(), set(self._counted)
        if names is not None:
            own |= {one.ending for one in names.port}
        elif not self._virtual and _STANDARD not in self._asking.settled:
            own |= INSTEAD.keys()
        if self._infiniband:
            own |= INSTEAD.keys()
        if not self._virtual and LINK_STATE not in self._asking.settled:
            own.add("link_down_total")
        return DeviceReading(self._driver, self._kind, self._traffic(names), frozenset(own))

    def _is_known(self) -> bool:
        """Tell whether it is known who counts: the driver, or that nothing tells the driver."""
        return self._driver is not None or _DRIVER in self._asking.settled

    def _traffic(self, names: DriverNames | None) -> str:
        """Say whose bytes are counted."""
        if self._infiniband:
            return ""
        if names is not None:
            return "wire" if names.wire else "kernel"
        if "receive_bytes_total" in self._counted:
            return "wire"
        return "kernel" if self._virtual or _STANDARD in self._asking.settled else ""

    def _speed(self, link: Link, reader: NicReader) -> dict[str, Value]:
        return speed(link_modes(self._asking, link, reader), link)

    def _identify(self, link: Link, reader: NicReader) -> None:
        """Find out what it is: from sysfs, which never hangs, then from the driver, which knows its firmware."""
        # Of IP over InfiniBand, sysfs names the driver of the card, which may leave the device to Linux's own.
        if self._driver is None and not self._infiniband and (name := bound_driver(self._folder)):
            self._driver = Driver(name)
            self._kind = self._model()
        answer = self._asking.ask(_DRIVER, reader.driver, age=inf, of=signature(link))
        if answer is not None and answer is not self._driver:
            self._driver = answer
            self._kind = self._model()

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

    def _driver_names(self) -> DriverNames | None:
        """Give the names that the driver counts by; None for a driver that is not listed, or has no statistics."""
        if self._driver is None or self._asking.lacks(_STATISTICS):
            return None
        if self._infiniband:
            return None if self._virtual else INFINIBAND.get(self._driver.name)
        return (VIRTUAL if self._virtual else DRIVERS).get(self._driver.name)

    def _count(self, reader: NicReader) -> tuple[dict[str, Value], dict[str, dict[str, int]], dict[str, int]]:
        """Give the driver's statistics: of the port, by priority, and those that are wanted by their own names."""
        names = self._driver_names()
        if names is None and not self._patterns:
            return {}, {}, {}
        found = self._asking.ask(_STATISTICS, reader.statistics, refusals=())
        if found is None:
            return {}, {}, {}
        if self._planned is not found.names or self._planned_by is not names:
            self._planned, self._planned_by = found.names, names
            known = make_plan(names or DriverNames(()), found.names)
            self._plan = known.without(self._unread)
            self._raw = unmapped(known, found.names, self._patterns)  # what has a metric is not raw, read or not
        values = found.values
        return (
            dict(sum_values(self._plan.port, values)),
            {number: sum_values(where, values) for number, where in self._plan.priority.items()},
            self._picked_raw(values),
        )

    def _picked_raw(self, values: Sequence[int]) -> dict[str, int]:
        """Give what is wanted by the driver's own names, as far as that is bearable."""
        if len(self._raw) > MAX_RAW:
            text = f"{len(self._raw)} statistics fit sources.nic.raw, {MAX_RAW} are exported: name fewer"
            self._asking.failures.append(Failure(self.name, "too_many", f"{self.name}: {text}"))
        found = {name: values[place] for name, place in islice(self._raw.items(), MAX_RAW)}
        return {name: value for name, value in found.items() if value != ABSENT}

    def _count_by_standard(self, port: dict[str, Value], reader: NicReader) -> Pause:
        """Add what drivers that are not listed count in the words of the standards; gives how pauses are set, too."""
        found = self._asking.ask(_STANDARD, reader.standard_statistics) or {}
        told = {STANDARD[name]: value for name, value in found.items() if name in STANDARD}
        port |= {ending: value for ending, value in told.items() if ending not in self._unread}
        pause = self._asking.ask(PAUSE, reader.pause) or Pause()
        frames = {
            "receive_pause_frames_total": pause.receive_frames,
            "transmit_pause_frames_total": pause.transmit_frames,
        }
        port |= {ending: value for ending, value in frames.items() if value is not None}
        return pause

    def _facts(self, port: dict[str, Value], pause: Pause | None, link: Link, reader: NicReader) -> dict[str, Value]:
        """Ask for what is no statistic of the driver."""
        active, found = fec(self._asking, reader)
        if not self._asking.lacks(FEC):
            for ending in FEC_BLOCKS:  # one count has one origin, or its rate would be of neither
                port.pop(ending, None)
        if active.corrected_bits is not None and self._has_to_ask("fec_corrected_errors_total"):
            found["fec_corrected_errors_total"] = active.corrected_bits
        asked = Facts(self._asking, link, reader, self._rdma, self._driver.name if self._driver else "")
        down_count = self._has_to_ask("link_down_total")
        return found | asked.read(active, pause or asked.pause(), down_count=down_count)

    def _has_to_ask(self, ending: str) -> bool:
        """Tell whether somebody is shown what the driver's own statistics do not have, in any of its versions."""
        names = self._driver_names()
        return ending not in self._unread and not any(one.ending == ending for one in (names.port if names else ()))
