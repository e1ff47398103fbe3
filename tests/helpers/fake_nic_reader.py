"""A fake reader of network devices for tests, and helpers that read tables."""

import contextlib
import errno
import os
from array import array
from pathlib import Path

from exporter.core.source import Host
from exporter.core.table import Kind
from exporter.linux.ethtool_ioctl import DriverInfo, LinkSettings, Statistics
from exporter.linux.netlink.rtnetlink import NetworkLink
from exporter.meaning.ports import rates
from exporter.sources.nic.options import NicOptions
from exporter.sources.nic.source import NicSource

SPEED = 400_000_000_000
"""Default link speed in bits per second."""

IOCTL_REQUESTS = {"links", "driver", "settings", "statistics"}
"""Requests that do not use ethtool netlink or DCB."""

MLX5 = {
    "rx_packets": 7,
    "rx_bytes_phy": 2**63 + 1,
    "tx_bytes_phy": 11,
    "rx_packets_phy": 12,
    "tx_packets_phy": 13,
    "rx_global_pause_duration": 2_500_000,
    "rx_out_of_buffer": 14,
    "link_down_events_phy": 15,
    "rx_prio3_pause": 16,
    "rx_prio3_pause_duration": 750_000,
}
KERNEL = {"rx_bytes": 101, "tx_bytes": 102, "rx_packets": 103, "tx_packets": 104} | {
    "rx_errors": 105,
    "tx_errors": 106,
    "rx_dropped": 107,
    "tx_dropped": 108,
}


def hardware(name, ifindex, pci="0000:17:00.0", **more):
    return NetworkLink(
        ifindex, name, carrier=True, operstate="up", parent_dev_name=pci, parent_dev_bus_name="pci", **more
    )


def raised(number):
    return OSError(number, os.strerror(number))


class FakeNicReader:
    """A reader whose answers are values, exceptions to raise or functions to call; all calls are recorded.

    Netlink requests (`more`, by request and device; `queues`, by index) are not supported by default.
    """

    def __init__(self):
        self.devices, self.drivers, self.counts, self.speeds, self.more = {}, {}, {}, {}, {}
        self.calls, self.forgotten, self.waiting, self.closed = [], [], [], 0
        self.names, self.unread = {}, {}
        self.queues = None
        self.opened = 0
        self.reading, self.writing = os.pipe()
        os.set_blocking(self.reading, False)

    def add(self, link, driver="mlx5_core", statistics=(), speed=SPEED):
        self.devices[link.name] = link
        self.drivers[link.name] = DriverInfo(driver, "6.8", "28.39", link.parent_dev_name or "") if driver else None
        self.counts[link.name] = dict(statistics)
        self.speeds[link.name] = LinkSettings(speed)

    def open(self):
        self.opened += 1
        return self

    def answer(self, what, name, found):
        self.calls.append((what, name))
        if callable(found):
            found = found()
        if isinstance(found, Exception):
            raise found
        if found is None:
            raise raised(errno.EOPNOTSUPP)
        return found

    def links(self):
        return self.answer("links", "", list(self.devices.values()))

    def unreadable_links(self):
        return self.unread

    def queueing_disciplines(self, links):
        found = self.answer("queueing_disciplines", "", self.queues)
        indexes = {link.ifindex for link in links}
        return {index: one for index, one in found.items() if index in indexes}

    def driver(self, device):
        return self.answer("driver", device, self.drivers[device])

    def settings(self, device):
        return self.answer("settings", device, self.speeds[device])

    def statistics(self, device):
        found = self.answer("statistics", device, self.counts[device])
        pairs = found if isinstance(found, list) else list(found.items())
        names = tuple(name for name, _ in pairs)
        return Statistics(self.names.setdefault(names, names), array("Q", [value for _, value in pairs]))

    def link_modes(self, device):
        return self.answer("link_modes", device, self.more.get(("link_modes", device)))

    def link_state(self, device):
        return self.answer("link_state", device, self.more.get(("link_state", device)))

    def pause(self, device):
        return self.answer("pause", device, self.more.get(("pause", device)))

    def fec(self, device):
        return self.answer("fec", device, self.more.get(("fec", device)))

    def standard_statistics(self, device):
        return self.answer("standard_statistics", device, self.more.get(("standard_statistics", device)))

    def dcb(self, device):
        return self.answer("dcb", device, self.more.get(("dcb", device)))

    def forget(self, device):
        self.forgotten.append(device)

    def event_fd(self):
        return self.reading

    def events(self):
        with contextlib.suppress(BlockingIOError):
            os.read(self.reading, 100)
        found, self.waiting = self.waiting, []
        return found

    def send(self, *events):
        self.waiting += events
        os.write(self.writing, b"!")

    def close(self):
        self.closed += 1

    def asked(self, name):
        """Return the requests to a device in IOCTL_REQUESTS."""
        return [what for what, device in self.calls if device == name and what in IOCTL_REQUESTS]


@contextlib.asynccontextmanager
async def opened(reader, sysfs="/nowhere", *, keep=("*",), **options):
    """Open the source, by default with all details."""
    options = NicOptions(keep=keep, **options)
    source = NicSource(options, Host("gpu-1", Path(sysfs), Path("/nowhere")), reader.open)
    try:
        yield source
    finally:
        await source.close()


def values_of(tables):
    """Return the values of each row by ending, with the labels of info metrics by name."""
    found = {}
    for table in tables:
        for place, key in enumerate(table.rows.keys):
            row = found.setdefault(key if len(key) > 1 else key[0], {})
            for ending, column in table.columns.items():
                value = column.values[place]
                if value is not None and column.metric.kind is Kind.INFO:
                    value = dict(zip(column.metric.extra, value, strict=True))
                if value is not None:
                    row[ending] = value
    return found


class RateCalculator:
    """Computes rates of readings, as a poller does."""

    def __init__(self):
        self.states = {}

    def __call__(self, reading):
        made = []
        for table in reading.tables:
            key = (table.schema, table.part)
            self.states[key], tables = rates.step(self.states.get(key), table)
            made += tables
        return values_of(made)


def reasons(reading):
    return [(failure.device, failure.reason) for failure in reading.failures]


def pci_function(sysfs, name, driver="mlx5_core", device="0x1021", *, virtual=False):
    """Make the sysfs folder of a network device's PCI function."""
    folder = sysfs / "class" / "net" / name / "device"
    folder.mkdir(parents=True)
    (folder / "uevent").write_text(f"DRIVER={driver}\n")
    (folder / "vendor").write_text("0x15b3\n")
    (folder / "device").write_text(f"{device}\n")
    if virtual:
        (folder / "physfn").symlink_to("..")
