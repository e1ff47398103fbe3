"""One network device: identification of its driver, its counters, and the choice between driver and kernel counters."""

import os
from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from math import inf
from pathlib import Path
from time import monotonic
from types import MappingProxyType
from typing import NamedTuple

from exporter.core.source import Failure
from exporter.core.table import Value
from exporter.linux.cached_file import ABSENT, read_text
from exporter.linux.ethtool_ioctl import DriverInfo
from exporter.linux.netlink.ethtool_netlink import Pause
from exporter.linux.netlink.rtnetlink import NetworkLink
from exporter.linux.nic_reader import NicReader
from exporter.linux.pci import bus_device_driver as bound_driver
from exporter.linux.pci import is_virtual_function
from exporter.sources.common.driver_statistics import (
    DriverNames,
    StatisticsPlan,
    make_plan,
    sum_values,
    unmapped,
)
from exporter.sources.common.host_ports import is_infiniband_port
from exporter.sources.nic.device_queries import DeviceQueries
from exporter.sources.nic.drivers import DRIVERS, INFINIBAND, VIRTUAL
from exporter.sources.nic.origins import KERNEL_FALLBACK, STANDARD_STATISTICS
from exporter.sources.nic.port_settings import (
    FEC,
    FEC_BLOCKS,
    LINK_STATE,
    PAUSE,
    PortSettings,
    link_signature,
    query_fec,
    query_link_modes,
    speed_values,
)

MAX_RAW_STATISTICS = 1000
"""Statistics of one device that are exported by the driver's own names."""

KERNEL_FALLBACK_ENDINGS = frozenset({*KERNEL_FALLBACK, "link_down_total"})
"""Endings for which the kernel's counter is exported where a device has none of its own."""

_DRIVER, _STATISTICS, _STANDARD = "driver", "statistics", "standard statistics"


class DeviceReading(NamedTuple):
    """The result of one read of a device, without the values of its link.

    Attributes:
        driver: The driver, with its firmware version where it reports one.
        kind: The model; devices of the same model are siblings.
        traffic: Which bytes and packets are counted: those on the `wire`, or those of the `kernel`; "" if not known, or
            if they are not those of the port.
        own: Endings without fallback to the kernel's counter, which counts other packets: those that the device has, or
            may have.
        time: Time of the counters, where bytes and packets are the device's.
        port: Values by ending.
        priority: Values by priority and ending.
        raw: Values by the driver's own names.
        failures: The failures of this read.
    """

    driver: DriverInfo | None = None
    kind: str | None = None
    traffic: str = "kernel"
    own: frozenset[str] = frozenset()
    time: float | None = None
    port: Mapping[str, Value] = MappingProxyType({})
    priority: Mapping[str, Mapping[str, int]] = MappingProxyType({})
    raw: Mapping[str, int] = MappingProxyType({})
    failures: Sequence[Failure] = ()


UNKNOWN = DeviceReading(traffic="", own=KERNEL_FALLBACK_ENDINGS)
"""Of a device whose driver is not known yet."""

NOT_READ, NOT_READ_INFINIBAND = DeviceReading(), DeviceReading(traffic="", own=frozenset(KERNEL_FALLBACK))
"""Of a virtual function whose statistics are not read."""


def _parent_folder(sysfs: Path, link: NetworkLink) -> Path:
    """Return the folder of a device's parent, by a path that remains when the device is moved to another namespace."""
    device = sysfs / "class" / "net" / link.name / "device"
    if not os.path.exists(device) and link.parent_dev_name:  # noqa: PTH110  # unlike Path's, it never raises
        return sysfs / "bus" / (link.parent_dev_bus_name or "-") / "devices" / link.parent_dev_name
    return Path(os.path.realpath(device))


class NicDevice:
    """One device and its state between polls; another epoch is another device, even if the name is the same."""

    def __init__(
        self,
        link: NetworkLink,
        sysfs: Path,
        epoch: int | None = None,
        *,
        virtual_functions: bool = False,
        raw: Sequence[str] = (),
        unread: Collection[str] = (),
    ) -> None:
        """Read nothing but whether it is a virtual function.

        Args:
            link: Its link.
            sysfs: Root of sysfs.
            epoch: What distinguishes it from another device of this name; by default its ifindex.
            virtual_functions: Whether statistics of virtual functions are read.
            raw: Shell patterns of statistics that are exported by the driver's own names.
            unread: Endings that are not exported and need not be read.
        """
        self.name = link.name
        self.epoch = link.ifindex if epoch is None else epoch
        self._parent = _parent_folder(sysfs, link)
        self._rdma_folder = self._parent / "infiniband"
        # A subfunction is a device of the auxiliary bus.
        self.is_virtual = link.parent_dev_bus_name == "auxiliary" or is_virtual_function(self._parent)
        self._reads_virtual_functions = virtual_functions
        # IPoIB traffic is a part of what the RDMA port counts: it is never exported as the port's bytes.
        self._is_infiniband = is_infiniband_port(link)
        self._raw_patterns, self._unread = raw, unread
        self._queries = DeviceQueries(link.name)
        self._driver: DriverInfo | None = None
        self._kind: str | None = None
        self._plan_names: tuple[str, ...] | None = None
        self._plan_driver: DriverNames | None = None
        self._plan = StatisticsPlan()
        self._raw: dict[str, int] = {}
        self._ever_counted: set[str] = set()  # endings of its own counters

    def read(self, link: NetworkLink, reader: NicReader, kernel_name: str = "") -> DeviceReading:
        """Read the device; blocks. Failures are in the reading, and affect only the values that failed.

        Args:
            link: Its link.
            reader: The reader of its namespace.
            kernel_name: Its name there, if that is not the link's.
        """
        self._queries.start_read(kernel_name or link.name)
        if link.kind == "bond":
            port = self._speed(link, reader)
            return DeviceReading(traffic="", port=port, failures=self._queries.failures)
        if self.is_virtual and not self._reads_virtual_functions:
            return NOT_READ_INFINIBAND if self._is_infiniband else NOT_READ
        self._identify(link, reader)
        if not self._is_known():
            return UNKNOWN._replace(port=self._speed(link, reader), failures=self._queries.failures)
        time = monotonic()
        port, priority, raw = self._read_counters(reader)
        if self.is_virtual:
            port |= self._speed(link, reader)
        else:
            has_standard = self._driver_names() is None and not self._is_infiniband
            pause = self._read_standard_counters(port, reader) if has_standard else None
            port |= self._read_settings(port, pause, link, reader)
        self._ever_counted |= port.keys()
        known = self.last_known()
        return known._replace(
            time=time if known.traffic == "wire" else None,
            port=port,
            priority=priority,
            raw=raw,
            failures=self._queries.failures,
        )

    def last_known(self) -> DeviceReading:
        """Return a reading of a device that did not answer, without values: its identity, and which counters it has."""
        if not self._is_known():
            return UNKNOWN
        names, own = self._driver_names(), set(self._ever_counted)
        if names is not None:
            own |= {one.ending for one in names.port}
        elif not self.is_virtual and _STANDARD not in self._queries.answered:
            own |= KERNEL_FALLBACK.keys()
        if self._is_infiniband:
            own |= KERNEL_FALLBACK.keys()
        if not self.is_virtual and LINK_STATE not in self._queries.answered:
            own.add("link_down_total")
        return DeviceReading(self._driver, self._kind, self._traffic(names), frozenset(own))

    def _is_known(self) -> bool:
        """Return whether the driver is known, or known to be unknown: whose counters to export depends on it."""
        return self._driver is not None or _DRIVER in self._queries.answered

    def _traffic(self, names: DriverNames | None) -> str:
        """Return whose bytes are counted."""
        if self._is_infiniband:
            return ""
        if names is not None:
            return "wire" if names.wire else "kernel"
        if "receive_bytes_total" in self._ever_counted:
            return "wire"
        return "kernel" if self.is_virtual or _STANDARD in self._queries.answered else ""

    def _speed(self, link: NetworkLink, reader: NicReader) -> dict[str, Value]:
        return speed_values(query_link_modes(self._queries, link, reader), link)

    def _identify(self, link: NetworkLink, reader: NicReader) -> None:
        """Read the driver's name from sysfs, which never hangs, then name and firmware version from the driver."""
        # For IPoIB, sysfs has the driver of the card, but the device may be one of the ib_ipoib driver.
        if self._driver is None and not self._is_infiniband and (name := bound_driver(self._parent)):
            self._driver = DriverInfo(name)
            self._kind = self._read_model()
        answer = self._queries.query(_DRIVER, reader.driver, max_age=inf, link_state=link_signature(link))
        if answer is not None and answer is not self._driver:
            self._driver = answer
            self._kind = self._read_model()

    def _read_model(self) -> str | None:
        """Return driver and PCI ids as the model; None where sysfs has no ids."""
        ids, subsystem_ids = (
            ":".join(read_text(self._parent / f"{level}{name}").removeprefix("0x") for name in ("vendor", "device"))
            for level in ("", "subsystem_")
        )
        if self._driver is None or ids.startswith(":") or ids.endswith(":"):
            return None
        return f"{self._driver.name} {ids} {subsystem_ids}".removesuffix(" :")  # cards of one chip may differ

    def _driver_names(self) -> DriverNames | None:
        """Return the names of the driver's statistics; None for an unlisted driver, or a device without statistics."""
        if self._driver is None or self._queries.is_unsupported(_STATISTICS):
            return None
        if self._is_infiniband:
            return None if self.is_virtual else INFINIBAND.get(self._driver.name)
        return (VIRTUAL if self.is_virtual else DRIVERS).get(self._driver.name)

    def _read_counters(self, reader: NicReader) -> tuple[dict[str, Value], dict[str, dict[str, int]], dict[str, int]]:
        """Return the driver's statistics: of the port, by priority, and raw ones by the driver's names."""
        names = self._driver_names()
        if names is None and not self._raw_patterns:
            return {}, {}, {}
        found = self._queries.query(_STATISTICS, reader.statistics, refused_errnos=())
        if found is None:
            return {}, {}, {}
        if self._plan_names is not found.names or self._plan_driver is not names:
            self._plan_names, self._plan_driver = found.names, names
            known = make_plan(names or DriverNames(()), found.names)
            self._plan = known.without(self._unread)
            # A statistic with a metric is not raw, even if it is not read.
            self._raw = unmapped(known, found.names, self._raw_patterns)
        values = found.values
        return (
            dict(sum_values(self._plan.port, values)),
            {number: sum_values(where, values) for number, where in self._plan.priority.items()},
            self._raw_values(values),
        )

    def _raw_values(self, values: Sequence[int]) -> dict[str, int]:
        """Return raw statistics by the driver's names, MAX_RAW_STATISTICS at most."""
        if len(self._raw) > MAX_RAW_STATISTICS:
            text = (
                f"{len(self._raw)} statistics match sources.nic.raw, {MAX_RAW_STATISTICS} are exported;"
                " use narrower patterns"
            )
            self._queries.failures.append(Failure(self.name, "too_many", f"{self.name}: {text}"))
        found = {name: values[place] for name, place in islice(self._raw.items(), MAX_RAW_STATISTICS)}
        return {name: value for name, value in found.items() if value != ABSENT}

    def _read_standard_counters(self, port: dict[str, Value], reader: NicReader) -> Pause:
        """Add standard statistics and pause frame counters of an unlisted driver; return the pause settings."""
        found = self._queries.query(_STANDARD, reader.standard_statistics) or {}
        counters = {STANDARD_STATISTICS[name]: value for name, value in found.items() if name in STANDARD_STATISTICS}
        port |= {ending: value for ending, value in counters.items() if ending not in self._unread}
        pause = self._queries.query(PAUSE, reader.pause) or Pause()
        frames = {
            "receive_pause_frames_total": pause.receive_frames,
            "transmit_pause_frames_total": pause.transmit_frames,
        }
        port |= {ending: value for ending, value in frames.items() if value is not None}
        return pause

    def _read_settings(
        self, port: dict[str, Value], pause: Pause | None, link: NetworkLink, reader: NicReader
    ) -> dict[str, Value]:
        """Return FEC counters, settings and link state, which are not in the driver's statistics."""
        fec, found = query_fec(self._queries, reader)
        if not self._queries.is_unsupported(FEC):
            for ending in FEC_BLOCKS:  # a counter has one origin only, or its rate would be wrong
                port.pop(ending, None)
        if fec.corrected_bits is not None and self._is_not_in_statistics("fec_corrected_errors_total"):
            found["fec_corrected_errors_total"] = fec.corrected_bits
        settings = PortSettings(
            self._queries, link, reader, self._rdma_folder, self._driver.name if self._driver else ""
        )
        with_down_count = self._is_not_in_statistics("link_down_total")
        return found | settings.read(fec, pause or settings.pause(), with_down_count=with_down_count)

    def _is_not_in_statistics(self, ending: str) -> bool:
        """Return whether an ending is exported, and no version of the driver has it among its statistics."""
        names = self._driver_names()
        return ending not in self._unread and not any(one.ending == ending for one in (names.port if names else ()))
