"""A made node: sysfs with as many RDMA NICs as wanted, what they answer, traffic that moves both, the daemon on it."""

import asyncio
import logging
import os
import random
import sys
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic

import msgspec

from exporter.core.definition import Context
from exporter.core.source import Source
from exporter.daemon import daemon, sources
from exporter.daemon.settings import Settings
from exporter.linux.ethtool_ioctl import Statistics
from exporter.linux.netlink.ethtool_netlink import Fec
from exporter.linux.netlink.rtnetlink import NetworkLink
from exporter.linux.nic_reader import ReplayNic
from exporter.sources.common.driver_statistics import PRIORITIES
from exporter.sources.nic import origins as nic_origins
from exporter.sources.nic.drivers.mlx5 import MLX5 as NIC
from exporter.sources.nic.options import NicOptions
from exporter.sources.nic.source import NicSource
from exporter.sources.rdma.counter_files import COUNTERS, HW_COUNTERS, PMA
from exporter.sources.rdma.drivers.mlx5 import MLX5 as RDMA

SPEED = 400_000_000_000
"""Bits per second of every port."""

CHANNELS = 63
"""Of each NIC: queues that its driver counts by themselves, which are in every answer and are not read."""

OF_A_QUEUE = ("packets", "bytes", "csum_complete", "lro_packets", "ecn_mark", "cqe_err", "xdp_drop", "cache_reuse")

TRAFFIC = {
    "_data": 2,
    "_bytes": 0,
    "_bytes_phy": 0,
    "_roce_packets": 20,
    "_packets": 12,
    "_packets_phy": 12,
    "_requests": 12,
    "_pause": 16,
    "np_cnp_sent": 16,
    "_duration": 18,
}
"""How the names end of what moves while a job runs, and what part of the bytes each is, in binary places.

All else does not change, as on a healthy node.
"""

DIGITS = 24
"""Bytes of a counter's file."""

OPTIONAL = ("cc_", "rdma_")
"""How counters begin that are not among the files."""

_AER = "RxErr 0\nBadTLP 3\nBadDLLP 0\nRollover 0\nTimeout 1\nTOTAL_ERR_COR 4"


class Node:
    """The files of the node.

    Attributes:
        sysfs: The folder in place of /sys.
        recordings: The folder of recordings.
        folders: Those of the RDMA ports.
    """

    def __init__(self, folder: Path, ports: int, seed: int = 1) -> None:
        """Make all below a folder."""
        self.sysfs, self.recordings = folder / "sys", folder / "nic"
        self.folders: list[Path] = []
        self._moving: dict[Path, int] = {}
        self._moved = monotonic()
        self.recordings.mkdir(parents=True)
        draw = random.Random(seed)
        for number in range(ports):
            self._make_card(number, draw)

    def move(self) -> None:
        """Let the counters of RDMA ports rise by what a half-full link carries since the last time."""
        now = monotonic()
        carried = _carried(now - self._moved)
        self._moved = now
        for path in self._moving:
            self._moving[path] += carried >> _share(path.name)
            descriptor = os.open(path, os.O_WRONLY)
            os.pwrite(descriptor, _padded(self._moving[path]), 0)
            os.close(descriptor)

    def _make_card(self, number: int, draw: random.Random) -> None:
        """Make one NIC, with a GPU beside it behind the same bridge."""
        domain, bus = number // 32, 0x10 + number % 32 * 4
        root = self.sysfs / "devices" / f"pci{domain:04x}:{bus:02x}" / f"{domain:04x}:{bus:02x}:01.0"
        address, gpu = f"{domain:04x}:{bus + 1:02x}:00.0", f"{domain:04x}:{bus + 2:02x}:00.0"
        _files(root, {"class": "0x060400", "vendor": "0x1000", **_link("max")})
        _files(root / gpu, {"class": "0x030200", "vendor": "0x10de", "device": "0x2330"})
        function = root / address
        identity = {"class": "0x020000", "vendor": "0x15b3", "device": "0x1021", "numa_node": str(number % 2)}
        board = {"subsystem_vendor": "0x15b3", "subsystem_device": "0x0041"}
        errors = {f"aer_dev_{severity}": _AER for severity in ("correctable", "nonfatal", "fatal")}
        uevent = {"uevent": f"DRIVER=mlx5_core\nPCI_SLOT_NAME={address}"}
        _files(function, {**identity, **board, **errors, **uevent, **_link("current"), **_link("max")})
        _files(function / "power", {"runtime_status": "active"})
        for one in (root / gpu, function):
            _refer(self.sysfs / "bus" / "pci" / "devices" / one.name, one)
        mac = f"a0:88:c2:00:10:{number:02x}"
        self._make_netdev(function, f"eth{number}", mac)
        self._make_rdma(function, f"mlx5_{number}", draw)
        recording = _recording(number, address, mac, draw)
        (self.recordings / f"eth{number}.json").write_bytes(msgspec.json.encode(recording))

    def _make_netdev(self, function: Path, name: str, mac: str) -> None:
        folder = function / "net" / name
        _files(folder, {"address": mac, "dev_port": "0", "phys_port_name": "p0"})
        (folder / "device").symlink_to(Path("..", ".."))
        _refer(self.sysfs / "class" / "net" / name, folder)

    def _make_rdma(self, function: Path, name: str, draw: random.Random) -> None:
        device = function / "infiniband" / name
        guid = f"a088:c203:0010:{len(self.folders):04x}"
        _files(device, {"node_guid": guid, "fw_ver": "28.41.1000", "hca_type": "MT4129"})
        (device / "device").symlink_to(Path("..", ".."))
        _refer(self.sysfs / "class" / "infiniband" / name, device)
        port = device / "ports" / "1"
        states = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)"}
        _files(port, {**states, "link_layer": "Ethernet"})
        _files(port / HW_COUNTERS, {"lifespan": "10"})
        (port / COUNTERS).mkdir()
        paths = [path for counter in PMA for path in counter.files]
        for path in [*paths, *(f"{HW_COUNTERS}/{one}" for one in hw_counters())]:
            start = draw.randrange(2**50) >> _share(path) if path.startswith(f"{COUNTERS}/") and _moves(path) else 0
            (port / path).write_bytes(_padded(start))
            if _moves(path):
                self._moving[port / path] = start
        self.folders.append(port)


class MovingNic(ReplayNic):
    """Answers each read from objects that are kept, whose values move: what is measured is the work of the source.

    A kernel's answers cost what its system calls, its locks and the firmware take, and the codecs that read them;
    recordings cost the reading of JSON. Neither is in here.
    """

    def __init__(self, folder: Path) -> None:
        """Read the recordings, once."""
        super().__init__(folder)
        self._kept = super().links()
        names = [link.name for link in self._kept]
        self._statistics = {name: super(MovingNic, self).statistics(name) for name in names}
        self._fec = {name: super(MovingNic, self).fec(name) for name in names}
        self._places = [(place, _share(name)) for place, name in enumerate(_read_statistics()) if _moves(name)]
        self._moved = monotonic()

    def move(self) -> None:
        """Let all counters of traffic rise by what a half-full link carries since the last time."""
        now = monotonic()
        carried = _carried(now - self._moved)
        self._moved = now
        for link in self._kept:
            for name in ("rx_bytes", "tx_bytes", "rx_packets", "tx_packets"):
                link.stats[name] += carried >> 12
            names, values = self._statistics[link.name].names, array("Q", self._statistics[link.name].values)
            for place, share in self._places:
                values[place] += carried >> share
            self._statistics[link.name] = Statistics(names, values)
            fec = self._fec[link.name]
            self._fec[link.name] = replace(fec, corrected_blocks=(fec.corrected_blocks or 0) + 7)

    def links(self) -> list[NetworkLink]:
        """See NicReader."""
        return self._kept

    def statistics(self, device: str) -> Statistics:
        """See NicReader."""
        return self._statistics[device]

    def fec(self, device: str) -> Fec:
        """See NicReader."""
        return self._fec[device]


def hw_counters() -> list[str]:
    """Return the names of the files of `hw_counters/` that a RoCE port of mlx5 has."""
    return [name for one in RDMA.port for name in one.names if not name.startswith(OPTIONAL)]


def _read_statistics() -> list[str]:
    """Return the names of the statistics that are read, with those of all priorities."""
    names = [name for one in NIC.port for name in one.names]
    names += [name.replace("{p}", priority) for priority in PRIORITIES for one in NIC.priority for name in one.names]
    return list(dict.fromkeys(names))


def _statistics() -> list[str]:
    """Return the names of all statistics that a NIC has: behind those that are read, those of its queues."""
    queues = [f"{way}{queue}_{name}" for way in ("rx", "tx") for queue in range(CHANNELS) for name in OF_A_QUEUE]
    return [*_read_statistics(), *queues]


def _recording(number: int, address: str, mac: str, draw: random.Random) -> dict[str, object]:
    """Return what a NIC answers, as `exporter.linux.recordings.nic_recording` reads it."""
    counted = {name: draw.randrange(2**50) >> _share(name) if _moves(name) else 0 for name in _statistics()}
    settings = {"speed_bits_per_second": SPEED, "duplex": "full", "autoneg": True}
    return {
        "link": {
            "ifindex": number + 2,
            "admin_up": True,
            "carrier": True,
            "operstate": "up",
            "mtu": 9000,
            "mac": mac,
            "parent_dev_name": address,
            "parent_dev_bus_name": "pci",
            "phys_port_name": "p0",
            "carrier_changes": 2,
            "carrier_down_count": 1,
            "stats": dict.fromkeys(nic_origins.KERNEL.values(), 1000),
        },
        "driver": {"name": "mlx5_core", "version": "6.8.0", "firmware": "28.41.1000 (MT_0000000838)", "bus": address},
        "statistics": counted,
        "settings": {**settings, "port": "fibre"},
        "link_modes": {**settings, "lanes": 4, "max_speed_bits_per_second": SPEED},
        "link_state": {"up": True},
        "pause": {"autoneg": False, "receive": False, "transmit": False},
        "fec": {"active": "rs", "corrected_blocks": 12, "uncorrectable_blocks": 0},
        "dcb": {"pfc": [3], "dscp_rules": True},
    }


def _moves(name: str) -> bool:
    """Return whether traffic moves a counter."""
    return name.endswith(tuple(TRAFFIC))


def _share(name: str) -> int:
    """Return what part of the bytes a counter is, in binary places."""
    return next(places for ending, places in TRAFFIC.items() if name.endswith(ending))


def _carried(seconds: float) -> int:
    """Return the bytes that a half-full link carries."""
    return int(seconds * SPEED / 16)


def _padded(value: int) -> bytes:
    """Return the text of a counter, filled up so that the next one replaces all of it in place."""
    return str(value).encode().ljust(DIGITS, b"\n")


def _link(which: str) -> dict[str, str]:
    return {f"{which}_link_speed": "32.0 GT/s PCIe", f"{which}_link_width": "16"}


def _files(folder: Path, texts: Mapping[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(f"{text}\n")


def _refer(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


class _Running(MovingNic):
    """The same, where each read finds other values."""

    def links(self) -> list[NetworkLink]:
        """See NicReader."""
        self.move()
        return super().links()


def serve(folder: Path, port: int) -> None:
    """Run the daemon as the bare command does, but for what answers for the NICs, until a signal stops it."""

    def build(options: NicOptions, context: Context) -> Sequence[Source]:
        return [NicSource(options, context.host, partial(_Running, folder / "nic"))]

    sources.SOURCES = tuple(replace(one, build=build) if one.name == "nic" else one for one in sources.SOURCES)
    logging.basicConfig(level=logging.ERROR)
    settings = Settings(listen_addresses=(f"127.0.0.1:{port}",), sysfs=folder / "sys")
    asyncio.run(daemon.Daemon(settings).run())


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))
