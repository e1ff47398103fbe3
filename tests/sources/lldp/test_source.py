"""LLDP neighbours of a host: from the files of networkd, and from frames that the exporter receives."""

import asyncio
import errno
import os
import socket
import time

import pytest

from exporter.core.definition import Context
from exporter.core.source import Host, SourceError
from exporter.linux.lldp.frames import MAX_FRAMES
from exporter.linux.lldp.packet_socket import ReceivedFrame
from exporter.linux.netlink.rtnetlink import NetworkLink
from exporter.sources.lldp import neighbour_cache
from exporter.sources.lldp import source as lldp
from exporter.sources.lldp.neighbour_cache import NeighbourCache
from exporter.sources.lldp.options import LldpOptions
from exporter.sources.lldp.source import LldpSource
from tests.linux.lldp.test_frames import (
    HOST,
    SWITCH,
    frame,
    networkd_file,
    tlv,
)
from tests.linux.lldp.test_peer_settings import LEAF_FRAME, MAX_FRAME, PFC_3, RECOMMENDED_ETS

DEVICES = [
    NetworkLink(2, "ens1f0np0", carrier=True, parent_dev_name="0000:17:00.0", parent_dev_bus_name="pci"),
    NetworkLink(3, "ens1f1np1", carrier=True, parent_dev_name="0000:17:00.1", parent_dev_bus_name="pci"),
    NetworkLink(4, "docker0", carrier=True, kind="bridge"),
]
LEAF = ("gpu1", "ens1f0np0", "", "", "leaf1", "Ethernet1/1")


class FakeLinkReader:
    """Lists network devices."""

    def __init__(self, devices=DEVICES):
        self.devices, self.closed = devices, False

    def links(self):
        if isinstance(self.devices, Exception):
            raise self.devices
        return self.devices

    def close(self):
        self.closed = True


class FakeLldpSocket:
    """A packet socket that receives the frames of a test."""

    def __init__(self, refuse=()):
        self._ours, self._theirs = socket.socketpair()
        self.frames, self.devices, self.refuse = [], {}, refuse
        self.received = asyncio.Event()

    def send(self, *frames):
        self.frames += [ReceivedFrame(*one) if not isinstance(one, OSError) else one for one in frames]
        self._theirs.send(b"!")

    def fileno(self):
        return self._ours.fileno()

    def listen_on(self, devices):
        self.devices = dict(devices)
        return {name: OSError(errno.ENODEV, "No such device") for name in devices.values() if name in self.refuse}

    def receive(self):
        self._ours.recv(100)
        frames, self.frames = self.frames, []
        self.received.set()
        for one in frames:
            if isinstance(one, OSError):
                raise one
            yield one

    def close(self):
        self._ours.close()
        self._theirs.close()


@pytest.fixture
def host(tmp_path):
    return Host("gpu1", tmp_path / "sys", tmp_path / "proc")


@pytest.fixture
async def make(host, tmp_path):
    """Return a function that makes a source that reads a folder; it is closed after the test."""
    made = []

    def source(kernel=None, open_socket=FakeLldpSocket, **options):
        options = {"folder": str(tmp_path / "lldp"), **options}
        kernel = kernel or FakeLinkReader()
        made.append((LldpSource(LldpOptions(**options), host, lambda: kernel, open_socket), kernel))
        return made[-1][0]

    (tmp_path / "lldp").mkdir()
    yield source
    for one, kernel in made:
        await one.close()
        assert kernel.closed or one._reader is None


async def links(source):
    """Read once; return links by their labels, and failures as (device, reason)."""
    reading = await source.read()
    rows = {}
    for table in reading.tables:
        rows |= dict(zip(table.rows.keys, table.values("info"), strict=True))
    return rows, [(one.device, one.reason) for one in reading.failures]


async def test_networkd_files_give_switch_and_port_of_each_device(make, tmp_path):
    (tmp_path / "lldp" / "2").write_bytes(networkd_file(SWITCH))
    (tmp_path / "lldp" / "3").write_bytes(networkd_file(HOST))
    (tmp_path / "lldp" / "4").write_bytes(networkd_file(SWITCH))  # a bridge is no piece of hardware
    (tmp_path / "lldp" / "99").write_bytes(networkd_file(SWITCH))  # no such device
    (tmp_path / "lldp" / ".#2abc").write_bytes(b"a file that networkd is writing")
    rows, failures = await links(make())
    assert rows == {
        LEAF: ("switch", "", "gpu1"),
        ("gpu1", "ens1f1np1", "", "", "b8:ce:f6:01:02:03", "b8:ce:f6:01:02:04"): ("host", "b8:ce:f6:01:02:04", ""),
    }
    assert failures == []


async def settings(source):
    """Read once; return the labels of the settings and the longest frame, by device."""
    reading = await source.read()
    columns = [
        [table.values(one) or [None] * len(table.rows) for one in ("peer_settings_info", "peer_max_frame_bytes")]
        for table in reading.tables
    ]
    return {
        key[1]: values
        for table, both in zip(reading.tables, columns, strict=True)
        for key, *values in zip(table.rows.keys, *both, strict=True)
    }


async def test_settings_that_a_switch_announces_have_the_form_of_those_of_a_nic(make, tmp_path):
    (tmp_path / "lldp" / "2").write_bytes(networkd_file(LEAF_FRAME))
    (tmp_path / "lldp" / "3").write_bytes(networkd_file(SWITCH))
    found = await settings(make())
    ets = ("strict,credit,vendor,50,50,unknown_7,strict,strict", "0,1,0,3,4,5,6,7")
    applications = ("26:3,48:6", "udp:4791:3,ethertype:0x8915:3,tcp:3260:4")
    assert found["ens1f0np0"] == [("3", "no", *ets, "no", "", "", *applications), 9234]
    assert found["ens1f1np1"] == [None, None]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (bytes.fromhex("0080c2 0b 88 00"), [("none", "yes", *[""] * 7), None]),
        (bytes.fromhex("0080c2 0c 00"), [(*[""] * 7, "none", "none"), None]),
        (RECOMMENDED_ETS, [(*[""] * 5, "100" + 7 * ",strict", "0" + 7 * ",0", "", ""), None]),
        (MAX_FRAME, [None, 9234]),
        (PFC_3[:-1], [None, None]),
    ],
)
async def test_what_a_neighbour_does_not_announce_is_empty(make, tmp_path, content, expected):
    (tmp_path / "lldp" / "2").write_bytes(networkd_file(frame(tlv(127, content))))
    assert await settings(make()) == {"ens1f0np0": expected}


async def test_source_applies_with_the_folder_or_with_listen(make, tmp_path):
    assert await make().applies()
    assert not await make(folder=str(tmp_path / "none")).applies()
    assert await make(folder=str(tmp_path / "none"), listen=True).applies()
    assert await links(make(folder=str(tmp_path / "none"))) == ({}, [])


async def test_two_neighbours_of_one_device_are_both_exported(make, tmp_path):
    (tmp_path / "lldp" / "2").write_bytes(networkd_file(SWITCH, HOST, SWITCH))
    assert len((await links(make()))[0]) == 2


async def test_devices_can_be_excluded(make, tmp_path):
    (tmp_path / "lldp" / "2").write_bytes(networkd_file(SWITCH))
    assert await links(make(exclude=("ens1f0*",))) == ({}, [])


async def test_malformed_file_affects_no_other(make, tmp_path):
    (tmp_path / "lldp" / "2").write_bytes(networkd_file(SWITCH))
    (tmp_path / "lldp" / "3").write_bytes(networkd_file(SWITCH)[:-1])
    rows, failures = await links(make())
    assert (rows.keys(), failures) == ({LEAF}, [("ens1f1np1", "malformed")])
    (tmp_path / "lldp" / "3").write_bytes(networkd_file(b"no frame", SWITCH))
    rows, failures = await links(make())
    assert (len(rows), failures) == (2, [("ens1f1np1", "malformed")])


async def test_unreadable_file_is_a_failure_and_symlinks_are_not_followed(make, tmp_path):
    (tmp_path / "secret").write_bytes(networkd_file(SWITCH))
    (tmp_path / "lldp" / "2").symlink_to(tmp_path / "secret")
    (tmp_path / "lldp" / "3").mkdir()
    rows, failures = await links(make())
    assert (rows, sorted(failures)) == ({}, [("ens1f0np0", "eloop"), ("ens1f1np1", "eisdir")])


async def test_file_of_a_stopped_networkd_expires(make, tmp_path):
    path = tmp_path / "lldp" / "2"
    path.write_bytes(networkd_file(SWITCH))
    for age, count in ((100, 1), (200, 0)):  # the Time To Live of the switch is 120 s
        os.utime(path, (time.time() - age,) * 2)
        assert len((await links(make()))[0]) == count


async def test_frames_per_file_are_limited(make, tmp_path):
    (tmp_path / "lldp" / "2").write_bytes(networkd_file(*[HOST[:21] + bytes([n]) + HOST[22:] for n in range(200)]))
    rows, failures = await links(make())
    assert (len(rows), failures) == (MAX_FRAMES, [])


async def receive(lldp_socket, *frames):
    lldp_socket.received.clear()
    lldp_socket.send(*frames)
    await lldp_socket.received.wait()


async def test_received_neighbours_are_exported_for_hardware_devices(make):
    lldp_socket = FakeLldpSocket()
    source = make(listen=True, open_socket=lambda: lldp_socket)
    assert await links(source) == ({}, [])
    assert lldp_socket.devices == {2: "ens1f0np0", 3: "ens1f1np1"}
    await receive(lldp_socket, ("ens1f0np0", SWITCH), ("docker0", SWITCH), ("ens1f0np0", SWITCH))
    assert await links(source) == ({LEAF: ("switch", "", "gpu1")}, [])


async def test_received_neighbours_take_precedence_over_files(make, tmp_path):
    (tmp_path / "lldp" / "2").write_bytes(networkd_file(HOST))
    (tmp_path / "lldp" / "3").write_bytes(networkd_file(HOST))
    lldp_socket = FakeLldpSocket()
    source = make(listen=True, open_socket=lambda: lldp_socket)
    await source.read()
    await receive(lldp_socket, ("ens1f0np0", SWITCH))
    rows, _ = await links(source)
    assert {key[1]: key[4] for key in rows} == {"ens1f0np0": "leaf1", "ens1f1np1": "b8:ce:f6:01:02:03"}


async def test_malformed_frame_is_a_failure_once(make):
    lldp_socket = FakeLldpSocket()
    source = make(listen=True, open_socket=lambda: lldp_socket)
    await source.read()
    await receive(lldp_socket, ("ens1f0np0", SWITCH[:-3]), ("ens1f0np0", SWITCH[:-3]))
    assert await links(source) == ({}, [("ens1f0np0", "malformed")])
    assert await links(source) == ({}, [])


async def test_missing_capability_is_a_failure_and_files_are_still_read(make, tmp_path):
    def refuse():
        raise PermissionError(errno.EPERM, "Operation not permitted")

    (tmp_path / "lldp" / "2").write_bytes(networkd_file(SWITCH))
    reading = await make(listen=True, open_socket=refuse).read()
    (failure,) = reading.failures
    assert (failure.device, failure.reason) == ("listen", "eperm")
    assert "CAP_NET_RAW" in failure.detail
    assert len(reading.tables[0].rows) == 1


async def test_device_that_cannot_join_the_group_is_a_failure(make):
    source = make(listen=True, open_socket=lambda: FakeLldpSocket(refuse=("ens1f1np1",)))
    assert await links(source) == ({}, [("ens1f1np1", "enodev")])


async def test_failed_socket_is_reopened(make):
    sockets = []

    def open_socket():
        sockets.append(FakeLldpSocket())
        return sockets[-1]

    source = make(listen=True, open_socket=open_socket)
    await source.read()
    await receive(sockets[0], OSError(errno.ENOBUFS, "No buffer space available"))
    await source.read()
    await receive(sockets[1], ("ens1f0np0", SWITCH))
    assert (await links(source))[0].keys() == {LEAF}


async def test_failed_link_dump_fails_the_source(make):
    with pytest.raises(SourceError, match="rtnetlink") as raised:
        await make(FakeLinkReader(OSError(errno.ENOBUFS, "No buffer space"))).read()
    assert raised.value.reason == "unreadable"


def frame_of(name, ttl):
    return SWITCH[:14] + tlv(1, b"\x07" + name) + tlv(2, b"\x07p") + tlv(3, ttl.to_bytes(2, "big")) + b"\0\0"


def chassis_of(cache, now, **changes):
    device = NetworkLink(2, "a", **{"carrier": True, **changes})
    return [one.chassis for one in cache.advertisements({2: device}, now).get("a", [])]


def test_neighbours_expire_by_ttl_shutdown_or_link_down():
    cache = NeighbourCache()
    cache.receive("a", frame_of(b"x", 120), 0.0)
    cache.receive("a", frame_of(b"y", 30), 0.0)
    assert chassis_of(cache, 29.0) == ["x", "y"]
    assert chassis_of(cache, 30.0) == ["x"]
    cache.receive("a", frame_of(b"x", 120), 100.0)
    assert chassis_of(cache, 219.0) == ["x"]
    cache.receive("a", frame_of(b"x", 0), 219.0)
    assert chassis_of(cache, 219.0) == []
    cache.receive("a", frame_of(b"x", 120), 300.0)
    assert chassis_of(cache, 301.0, carrier=False) == []
    assert chassis_of(cache, 302.0) == []


def test_neighbours_per_device_are_limited_and_known_ones_are_refreshed():
    cache = NeighbourCache()
    for number in range(1000):
        cache.receive("a", frame_of(b"%d" % number, 120), 0.0)
    cache.receive("a", frame_of(b"0", 120), 100.0)
    assert len(chassis_of(cache, 50.0)) == neighbour_cache.MAX_NEIGHBOURS
    assert chassis_of(cache, 150.0) == ["0"]


def test_replayed_host_has_no_neighbours(host):
    assert len(lldp.DEFINITION.build(LldpOptions(), Context(host))) == 1
    played = Host("gpu1", host.sysfs, host.procfs, nic_replay=host.sysfs)
    assert lldp.DEFINITION.build(LldpOptions(), Context(played)) == []
