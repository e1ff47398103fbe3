"""Trees of /sys/class/infiniband for tests: creating them, reading them, and faults in their files."""

import contextlib
import errno
import os
import sys
from pathlib import Path

from exporter.core.source import Host
from exporter.linux.ethtool_ioctl import Statistics
from exporter.linux.netlink.rdma import RdmaPort
from exporter.sources.rdma.metrics import SCHEMA
from exporter.sources.rdma.options import RdmaOptions
from exporter.sources.rdma.source import RdmaSource


class Opened:
    """Paths that this process opens and lists while it is watched, by an audit hook of the interpreter."""

    def __init__(self):
        self.on, self.paths, self.flags = False, [], []
        sys.addaudithook(self.hook)

    def hook(self, event, arguments):
        if self.on and event in {"open", "os.listdir", "os.scandir"}:
            self.paths.append(str(arguments[0]))
            if event == "open":
                self.flags.append(arguments[2])

    @contextlib.contextmanager
    def watch(self):
        self.paths, self.flags, self.on = [], [], True
        try:
            yield self
        finally:
            self.on = False


OPENED = Opened()


class Files:
    """Wraps os.pread and os.open, and raises or calls a fault for files whose path has its ending."""

    def __init__(self, monkeypatch):
        self.faults, self.reads, self.opens = {}, [], []
        self.pread, self.open = os.pread, os.open
        monkeypatch.setattr(os, "pread", self.read_at)
        monkeypatch.setattr(os, "open", self.open_at)

    def fault(self, what, path):
        for ending, answer in self.faults.items():
            if path.endswith(ending[1]) and ending[0] == what:
                if callable(answer):
                    return answer()
                raise OSError(answer, os.strerror(answer))
        return None

    def read_at(self, descriptor, size, offset):
        path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        self.reads.append(path)
        self.fault("read", path)
        return self.pread(descriptor, size, offset)

    def open_at(self, path, *arguments, **options):
        self.opens.append(str(path))
        self.fault("open", str(path))
        return self.open(path, *arguments, **options)

    def count(self, ending):
        return sum(path.endswith(ending) for path in self.reads)


def port_file(tree, device, path, port=1):
    return tree / "class" / "infiniband" / device / "ports" / str(port) / path


class NoNetlink:
    """Replaces a kernel without RDMA netlink."""

    def device(self, name, node_guid):
        raise OSError(errno.EPROTONOSUPPORT, "Protocol not supported")

    def close(self):
        pass


@contextlib.asynccontextmanager
async def opened(sysfs, reader=NoNetlink, *, keep=("*",), **options):
    """Open the source, with all details unless a test is about details that are not exported."""
    source = RdmaSource(RdmaOptions(keep=keep, **options), Host("gpu-1", sysfs, sysfs / "proc"), reader)
    try:
        yield source
    finally:
        await source.close()


def rows_of(reading, schema):
    """Return each row by its labels: values by ending in base units, the labels of info by their names."""
    found = {}
    for table in reading.tables:
        if table.schema is not schema:
            continue
        for place, key in enumerate(table.rows.keys):
            row = found.setdefault(key, {})
            for ending, column in table.columns.items():
                value = column.values[place]
                if ending == "info":
                    value = dict(zip(column.metric.extra, value, strict=True))
                elif isinstance(value, int) and column.factor != 1:
                    value *= column.factor
                if value is not None:
                    row[ending] = value
    return found


async def ports_of(source):
    """Read the source; return the rows of ports, and (device, reason) of each failure."""
    reading = await source.read()
    return rows_of(reading, SCHEMA), [(failure.device, failure.reason) for failure in reading.failures]


def make(
    sysfs,
    device,
    hw=None,
    *,
    pma=None,
    driver="",
    port=1,
    pci="0000:21:00.0",
    layer="Ethernet",
    guid="0200:c0ff:fe00:0001",
    device_hw=None,
):
    """Create one port of a device, and the device: counters by name, for `hw_counters/` and `counters/`."""
    folder = sysfs / "class" / "infiniband" / device
    place = folder / "ports" / str(port)
    texts = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "100 Gb/sec (4X EDR)", "link_layer": layer}
    texts |= {f"hw_counters/{name}": value for name, value in {"lifespan": 10, **(hw or {})}.items() if hw is not None}
    texts |= {f"counters/{name}": value for name, value in (pma or {}).items()}
    for path, text in texts.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(f"{text}\n")
    for name, value in (device_hw or {}).items():
        (folder / "hw_counters").mkdir(exist_ok=True)
        (folder / "hw_counters" / name).write_text(f"{value}\n")
    if guid:
        (folder / "node_guid").write_text(f"{guid}\n")
    if driver:
        function = sysfs / "devices" / "pci0000:20" / pci
        function.mkdir(parents=True, exist_ok=True)
        (function / "uevent").write_text(f"DRIVER={driver}\nPCI_SLOT_NAME={pci}\n")
        if not (folder / "device").is_symlink():
            (folder / "device").symlink_to(function)
    return folder


def netdev(sysfs, name, pci="0000:21:00.0", *, phys_port_name="", dev_port="0", mac="02:00:00:00:00:01"):
    """Create a network device of a PCI function."""
    function = sysfs / "devices" / "pci0000:20" / pci
    place = function / "net" / name
    place.mkdir(parents=True)
    (place / "device").symlink_to(function)
    for file, text in {"phys_port_name": phys_port_name, "dev_port": dev_port, "address": mac}.items():
        (place / file).write_text(f"{text}\n")
    (sysfs / "class" / "net").mkdir(parents=True, exist_ok=True)
    (sysfs / "class" / "net" / name).symlink_to(place)


class Netlink:
    """Replaces RDMA netlink: tests set the replies, of which exceptions are raised and functions called."""

    def __init__(self, *devices):
        self.listed = list(devices)
        self.ports, self.counters, self.pairs = {}, {}, {}
        self.requests = []

    def __call__(self):
        return self

    def device(self, name, node_guid):
        listed = self.reply("devices", self.listed)
        return next((one for one in listed if (one.name, one.node_guid) == (name, node_guid) and node_guid), None)

    def port(self, index, port):
        return self.reply("port", self.ports.get((index, port), RdmaPort()), index, port)

    def statistics(self, index, port):
        reply = self.counters.get((index, port), OSError(errno.EINVAL, "no counters"))
        return self.reply("statistics", reply, index, port)

    def queue_pairs(self, index):
        return self.reply("queue_pairs", self.pairs.get(index, []), index)

    def reply(self, request, reply, *arguments):
        self.requests.append((request, *arguments))
        if callable(reply):
            return reply()
        if isinstance(reply, Exception):
            raise reply
        return reply

    def close(self):
        pass


def statistics(**values):
    """Return counters as netlink does."""
    return Statistics(tuple(values), tuple(values.values()))
