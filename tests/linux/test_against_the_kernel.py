"""Netlink and ioctl against this machine's kernel, compared with other programs that read the same devices."""

import ctypes
import errno
import json
import os
import re
import select
import socket
import subprocess
import uuid
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from pyroute2 import IPRoute, NlEthtool

from exporter.linux.ethernet_link_modes import FEC, MODES
from exporter.linux.ethtool_ioctl import EthtoolIoctl
from exporter.linux.netlink import messages
from exporter.linux.netlink.data_center_bridging import DcbSocket
from exporter.linux.netlink.ethtool_netlink import (
    STANDARD_STATISTICS,
    EthtoolNetlink,
    LinkModes,
    LinkState,
)
from exporter.linux.netlink.generic_netlink import GenericNetlinkFamily
from exporter.linux.netlink.netlink_socket import NetlinkSocket
from exporter.linux.netlink.rtnetlink import GET_LINKS, LINK_GROUP, LINKS_REQUEST, parse_link_events, parse_links
from exporter.linux.nic_reader import KernelNic, ReplayNic
from exporter.linux.recordings.module_memory import ModuleMemory
from tests.helpers.record_nics import record

CLONE_NEWNET = 0x40000000


class Namespace:
    """A network namespace of this test, with a thread that lives in it."""

    def __init__(self, ip):
        self._ip = ip
        self.name = f"fabric-test-{uuid.uuid4().hex[:12]}"
        added = subprocess.run([ip, "netns", "add", self.name], capture_output=True, text=True, check=False)
        if added.returncode:
            pytest.skip(f"needs root that may make network namespaces: {added.stderr.strip()}")
        self._thread = ThreadPoolExecutor(1, initializer=self._enter)

    def _enter(self):
        with open(f"/run/netns/{self.name}", "rb") as file:  # noqa: PTH123 - a name of this test, no path of anyone
            if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")

    def within(self, function, *arguments):
        return self._thread.submit(function, *arguments).result(timeout=60)

    def run(self, *command):
        return subprocess.run(
            [self._ip, "netns", "exec", self.name, *command], capture_output=True, text=True, check=True
        ).stdout

    def ip(self, *arguments):
        return self.run(self._ip, *arguments)

    def count_and_stop(self):
        """Send a few frames, then stop all counters, so that two readers can be compared."""
        self.within(send_frames, "right")
        self.ip("link", "set", "left", "down")
        self.ip("link", "set", "right", "down")

    def close(self):
        self._thread.shutdown()
        subprocess.run([self._ip, "netns", "del", self.name], check=True)


def send_frames(device):
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sock:
        sock.bind((device, 0))
        for _ in range(3):
            sock.send(bytes(64))


@pytest.fixture
def namespace(program):
    ip = program("ip")
    if os.geteuid() != 0:
        pytest.skip("needs root")
    namespace = Namespace(ip)
    try:
        namespace.ip("link", "add", "left", "mtu", "1400", "type", "veth", "peer", "name", "right")
        namespace.ip("link", "set", "left", "up")
        namespace.ip("link", "set", "right", "up")
        yield namespace
    finally:
        namespace.close()


def dump():
    with NetlinkSocket(socket.NETLINK_ROUTE) as requests:
        return {link.name: link for link in parse_links(requests.dump(GET_LINKS, LINKS_REQUEST))}


def link_events():
    return NetlinkSocket(socket.NETLINK_ROUTE, groups=LINK_GROUP)


def pyroute2_dump():
    with IPRoute() as route:
        return {message.get("IFLA_IFNAME"): message for message in route.get_links()}


def assert_same(link, message):
    """Compare a link with what pyroute2 decoded of the same device."""
    assert link.ifindex == message["index"]
    assert link.hardware == message["ifi_type"]
    assert link.admin_up == bool(message["flags"] & 1)
    assert link.carrier == bool(message["flags"] & 0x10000)
    assert link.operstate == message.get("IFLA_OPERSTATE").lower()
    assert link.mtu == message.get("IFLA_MTU")
    permanent = message.get("IFLA_PERM_ADDRESS")
    assert link.mac == (permanent.lower() if permanent else message.get("IFLA_ADDRESS"))
    info = message.get("IFLA_LINKINFO")
    assert link.kind == (info.get("IFLA_INFO_KIND") if info else "")
    assert link.lower == (message.get("IFLA_LINK") or None)
    assert link.phys_port_name == message.get("IFLA_PHYS_PORT_NAME")
    assert link.parent_dev_name == message.get("IFLA_PARENT_DEV_NAME")
    assert link.parent_dev_bus_name == message.get("IFLA_PARENT_DEV_BUS_NAME")
    assert link.carrier_changes == message.get("IFLA_CARRIER_CHANGES")
    assert link.carrier_down_count == message.get("IFLA_CARRIER_DOWN_COUNT")
    return {name: value for name, value in message.get("IFLA_STATS64").items() if name in link.stats}


def test_pyroute2_reads_the_same_of_this_machine():
    ours, theirs = dump(), pyroute2_dump()
    assert ours.keys() == theirs.keys()
    for name, link in ours.items():
        assert_same(link, theirs[name])  # its counters move between the two readings


def test_pyroute2_reads_the_same_in_a_namespace(namespace):
    namespace.ip("link", "add", "bridge0", "type", "bridge")
    namespace.ip("link", "set", "right", "master", "bridge0")
    namespace.count_and_stop()
    ours, theirs = namespace.within(dump), namespace.within(pyroute2_dump)
    assert ours.keys() == theirs.keys() == {"lo", "left", "right", "bridge0"}
    for name, link in ours.items():
        stats = assert_same(link, theirs[name])
        assert {key: link.stats[key] for key in stats} == stats
    assert ours["right"].stats["tx_packets"] >= 3
    assert ours["right"].stats["tx_bytes"] >= 3 * 64
    assert (ours["left"].kind, ours["bridge0"].kind, ours["lo"].kind) == ("veth", "bridge", "")
    assert (ours["left"].mtu, ours["left"].admin_up, ours["right"].carrier) == (1400, False, False)


def test_sysfs_reads_the_same(namespace):
    namespace.count_and_stop()
    links = namespace.within(dump)
    assert links
    for name, link in links.items():
        # Some files cannot be read while a device is down; grep exits with an error.
        files = namespace.run("sh", "-c", f"grep -rs '' /sys/class/net/{name}/ --exclude-dir=queues; true")
        sysfs = dict(line.removeprefix(f"/sys/class/net/{name}/").split(":", 1) for line in files.splitlines())
        for attribute in ("ifindex", "mtu", "carrier_changes", "carrier_down_count"):
            assert getattr(link, attribute) == int(sysfs[attribute]), attribute
        assert (link.operstate, link.mac, link.hardware) == (sysfs["operstate"], sysfs["address"], int(sysfs["type"]))
        stats = {key.removeprefix("statistics/"): int(value) for key, value in sysfs.items() if "statistics/" in key}
        assert len(stats) >= 23
        assert {key: link.stats[key] for key in stats} == stats


def test_dump_of_several_datagrams(namespace):
    for number in range(60):
        namespace.ip("link", "add", f"a{number}", "type", "veth", "peer", "name", f"b{number}")
    listed = {link["ifname"] for link in json.loads(namespace.ip("-j", "link", "show"))}
    assert len(listed) == 123
    assert namespace.within(dump).keys() == listed


def test_abandoned_dump_does_not_affect_the_next(namespace):
    for number in range(60):
        namespace.ip("link", "add", f"a{number}", "type", "veth", "peer", "name", f"b{number}")
    with namespace.within(NetlinkSocket, socket.NETLINK_ROUTE) as requests:
        requests._socket.send(messages.message(GET_LINKS, messages.REQUEST | messages.DUMP, 4242, LINKS_REQUEST))
        assert len(parse_links(requests.dump(GET_LINKS, LINKS_REQUEST))) == 123


def wait_for(events, matches):
    """Read events until one matches; the kernel sends them before the command that causes them returns."""
    seen = []
    while select.select([events], [], [], 10)[0]:
        for event in parse_link_events(events.notifications()):
            seen.append(event)
            if matches(event):
                return seen
    raise AssertionError(seen)


def test_link_events_are_received(namespace):
    with namespace.within(link_events) as events:
        namespace.ip("link", "set", "left", "down")
        wait_for(events, lambda e: e.change == "changed" and e.link.name == "left" and not e.link.admin_up)
        namespace.ip("link", "set", "left", "up")
        wait_for(events, lambda e: e.change == "changed" and e.link.name == "right" and e.link.carrier)
        namespace.ip("link", "del", "left")
        wait_for(events, lambda e: e.change == "deleted" and e.link.name == "left")


def test_event_socket_does_not_block():
    with link_events() as events:
        assert os.get_blocking(events.fileno()) is False
        assert None not in events.notifications()


def test_port_that_leaves_a_bridge_is_not_deleted(namespace):
    namespace.ip("link", "add", "bridge0", "type", "bridge")
    namespace.ip("link", "set", "right", "master", "bridge0")
    with namespace.within(link_events) as events:
        namespace.ip("link", "set", "right", "nomaster")
        namespace.ip("link", "del", "bridge0")
        seen = wait_for(events, lambda e: e.change == "deleted" and e.link.name == "bridge0")
        assert not [event for event in seen if event.change == "deleted" and event.link.name == "right"]


def test_dropped_events_are_reported_as_overrun(namespace):
    with namespace.within(link_events) as events:
        events._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        for state in ["down", "up"] * 4:
            namespace.ip("link", "set", "left", state)
        seen = wait_for(events, lambda e: e.change == "overrun")
        assert ("overrun", None) in seen


def ethtool_text(namespace, program, option, device):
    lines = namespace.run(program("ethtool"), option, device).splitlines()
    return [tuple(part.strip() for part in line.split(":", 1)) for line in lines]


def test_ethtool_program_reads_the_same(namespace, program):
    with namespace.within(EthtoolIoctl) as ethtool:
        statistics = ethtool.statistics("left")
        theirs = ethtool_text(namespace, program, "-S", "left")[1:]  # the first line is a heading
        assert list(zip(statistics.names, map(str, statistics.values), strict=True)) == theirs
        assert dict(theirs)["peer_ifindex"] == str(namespace.within(dump)["right"].ifindex)
        driver = ethtool.driver("left")
        theirs = dict(ethtool_text(namespace, program, "-i", "left"))
        assert (driver.name, driver.version) == (theirs["driver"], theirs["version"])
        assert (driver.firmware, driver.bus) == (theirs["firmware-version"], theirs["bus-info"])
        settings = ethtool.settings("left")
        theirs = [line.strip() for line in namespace.run(program("ethtool"), "left").splitlines()]
        assert settings.speed_bits_per_second is not None
        assert f"Speed: {settings.speed_bits_per_second // 1_000_000}Mb/s" in theirs
        assert {"Duplex: Full", "Auto-negotiation: off", "Port: Twisted Pair"} <= set(theirs)
        assert (settings.duplex, settings.autoneg, settings.port) == ("full", False, "tp")


def nest(kind, *inner):
    return messages.attribute(kind | messages.NESTED, b"".join(inner))


def strings(number):
    """Request a string set that belongs to no device: {index: name}."""
    names = {}
    with GenericNetlinkFamily("ethtool") as family:
        request = nest(1) + nest(2, nest(1, messages.attribute_u32(1, number)))
        sets = dict(messages.attributes(family.request(1, request)))[2]
        ((_, found),) = messages.attributes(sets)
        for _, one in messages.attributes(dict(messages.attributes(found))[3]):
            parts = dict(messages.attributes(one))
            names[messages.number(parts[1])] = messages.text(parts[2])
    return names


def test_link_mode_table_matches_the_kernel():
    names = strings(9)  # ETH_SS_LINK_MODES
    modes = {}
    for bit, name in names.items():
        found = re.fullmatch(r"(\d+)base([A-Z]+)(\d*)\S*/(?:Full|Half)", name)
        if found:
            modes[bit] = (int(found[1]), 1 if found[2] == "T" else int(found[3] or 1))  # T1 is one pair, T four
    assert len(modes) > 60
    assert {bit: name for bit, name in FEC.items() if bit in names} == {
        bit: name.lower() for bit, name in names.items() if name in {"None", "RS", "BASER", "LLRS"}
    }
    assert MODES[20] == (10_000, 1)  # 10000baseR_FEC
    assert {bit: tuple(mode) for bit, mode in MODES.items() if bit in names and bit != 20} == modes


def test_standard_statistics_have_the_kernels_names():
    rmon = {"undersize": "etherStatsUndersizePkts", "oversize": "etherStatsOversizePkts"}
    rmon |= {"fragments": "etherStatsFragments", "jabbers": "etherStatsJabbers"}
    theirs = {(group, place): name for group in range(4) for place, name in strings(17 + group).items()}
    assert {key: rmon.get(name, name) for key, name in STANDARD_STATISTICS.items()} == theirs


def ethtool_netlink(namespace, request, *arguments):
    with namespace.within(EthtoolNetlink) as reader:
        return getattr(reader, request)(*arguments)


def test_ethtool_program_and_pyroute2_read_the_same_by_netlink(namespace, program):
    modes = ethtool_netlink(namespace, "link_modes", "left")
    assert modes == LinkModes(10_000_000_000, "full", False, None, None)
    theirs = [line.strip() for line in namespace.run(program("ethtool"), "left").splitlines()]
    assert {"Speed: 10000Mb/s", "Duplex: Full", "Auto-negotiation: off", "Link detected: yes"} <= set(theirs)
    assert ethtool_netlink(namespace, "link_state", "left") == LinkState(up=True)

    def pyroute2():
        with NlEthtool() as reader:
            return reader.get_linkmode("left"), reader.get_linkstate("left")

    (mode,), (state,) = namespace.within(pyroute2)
    assert mode.get_attr("ETHTOOL_A_LINKMODES_SPEED") * 1_000_000 == modes.speed_bits_per_second
    assert mode.get_attr("ETHTOOL_A_LINKMODES_DUPLEX") == 1
    assert state.get_attr("ETHTOOL_A_LINKSTATE_LINK") == 1
    namespace.ip("link", "set", "right", "down")
    assert ethtool_netlink(namespace, "link_state", "left") == LinkState(up=False)
    assert "Link detected: no" in namespace.run(program("ethtool"), "left")


def test_software_devices_support_no_pause_fec_module_or_dcb(namespace, program):
    with namespace.within(EthtoolNetlink) as reader:
        for request in (reader.pause, reader.fec, partial(reader.module_page, page=0, bank=0, offset=0, length=1)):
            with pytest.raises(OSError) as caught:
                request("left")
            assert (caught.value.errno, caught.value.filename) == (errno.EOPNOTSUPP, "left")
        assert reader.standard_statistics("left") == {}
    for option in ("-a", "--show-fec", "-m"):
        with pytest.raises(subprocess.CalledProcessError) as failed:
            namespace.run(program("ethtool"), option, "left")
        assert "Operation not supported" in failed.value.stderr
    with namespace.within(DcbSocket) as reader, pytest.raises(OSError) as caught:
        reader.dcb("left")
    assert (caught.value.errno, caught.value.filename) == (errno.EOPNOTSUPP, "left")
    with pytest.raises(subprocess.CalledProcessError) as failed:
        namespace.run(program("dcb"), "pfc", "show", "dev", "left")
    assert "Operation not supported" in failed.value.stderr


def test_alternative_names_are_rejected(namespace):
    namespace.ip("link", "property", "add", "dev", "left", "altname", "other")
    with namespace.within(EthtoolNetlink) as reader:
        assert reader.link_state("left").up is True
        with pytest.raises(OSError, match="of another device") as caught:
            reader.link_state("other")
        assert (caught.value.errno, caught.value.filename) == (errno.ENODEV, "other")
        namespace.ip("link", "set", "left", "down")
        namespace.ip("link", "set", "left", "name", "moved")
        with pytest.raises(OSError, match="LINKSTATE: No such device") as caught:
            reader.link_state("left")
        assert (caught.value.errno, caught.value.filename) == (errno.ENODEV, "left")
        assert reader.link_state("moved") == LinkState(up=False)


def test_recorded_module_rejects_the_same_ranges_as_the_kernel(namespace):
    memory = ModuleMemory({})
    with namespace.within(EthtoolNetlink) as reader:

        def refusals(page, offset, length):
            for read in (partial(reader.module_page, "left"), partial(memory.read, address=0x50)):
                with pytest.raises(OSError) as caught:
                    read(page=page, bank=0, offset=offset, length=length)
                yield caught.value.errno

        seen = set()
        for page in (0, 1):
            for offset in (0, 1, 127, 128, 255, 256):
                for length in (0, 1, 2, 127, 128, 129):
                    kernels, ours = refusals(page, offset, length)
                    assert kernels == ours, (page, offset, length)
                    seen.add(ours)
    assert seen == {errno.EOPNOTSUPP, errno.EINVAL, errno.ERANGE}


def test_a_device_without_statistics(namespace):
    with namespace.within(EthtoolIoctl) as ethtool:
        for request in (ethtool.statistics, ethtool.settings):
            with pytest.raises(OSError) as caught:
                request("lo")
            assert (caught.value.errno, caught.value.filename) == (errno.EOPNOTSUPP, "lo")


def test_recording_replays_the_same(namespace, tmp_path):
    namespace.count_and_stop()
    nic = namespace.within(KernelNic)
    try:
        assert nic.event_fd() >= 0
        assert nic.events() == []
        record(nic, tmp_path)
        replay = ReplayNic(tmp_path)
        assert replay.links() == nic.links()
        for request in ("driver", "statistics", "settings", "link_modes", "link_state", "standard_statistics"):
            ours, theirs = getattr(replay, request)("left"), getattr(nic, request)("left")
            assert ours == theirs, request
        nic.forget("left")
        with pytest.raises(OSError) as caught:
            replay.statistics("lo")
        assert caught.value.errno == errno.EOPNOTSUPP
        for request in ("pause", "fec", "dcb"):
            for reader in (nic, replay):
                with pytest.raises(OSError) as caught:
                    getattr(reader, request)("left")
                assert caught.value.errno == errno.EOPNOTSUPP
        assert nic.unreadable_links() == {}
    finally:
        nic.close()
        nic.close()
