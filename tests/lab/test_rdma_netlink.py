"""The exporter's RDMA netlink compared with iproute2's `rdma`, on the same devices."""

import errno
import subprocess
from collections import Counter
from contextlib import closing

import pytest

from exporter.linux.rdma_reader import KernelRdma
from lab.guest import ADDRESS, address_index, hardware_counters, json_of, run, send_over, until

NODE_TYPES = {"ca": 1, "switch": 2, "router": 3, "rnic": 4}
STATES = {"DOWN": 1, "INIT": 2, "ARMED": 3, "ACTIVE": 4}
PHYSICAL_STATES = {"SLEEP": 1, "POLLING": 2, "DISABLED": 3, "LINK_UP": 5}


@pytest.fixture
def reader():
    with closing(KernelRdma()) as one:
        yield one


def only(reader, name):
    (found,) = [device for device in reader.devices() if device.name == name]
    return found


def test_devices_are_the_same(reader, rxe, siw):
    theirs = {device["ifname"]: device for device in json_of("rdma", "-j", "dev", "show")}
    ours = {device.name: device for device in reader.devices()}
    assert ours.keys() == theirs.keys() == {rxe, siw}
    for name, device in ours.items():
        assert device.index == theirs[name]["ifindex"]
        assert device.node_guid == theirs[name]["node_guid"].replace(":", "")
        assert device.node_type == NODE_TYPES[theirs[name]["node_type"]]
        assert (device.ports, device.kind, device.parent) == (1, "", "")
        assert device.firmware == theirs[name].get("fw", "")


def assert_same_port(reader, name):
    (theirs,) = json_of("rdma", "-j", "link", "show", f"{name}/1")
    port = reader.port(only(reader, name).index, 1)
    assert (port.netdev, port.netdev_index) == (theirs.get("netdev"), theirs.get("netdev_index"))
    assert port.state == STATES[theirs["state"]]
    assert port.physical_state == PHYSICAL_STATES[theirs["physical_state"]]
    return port


def test_ports_are_the_same_up_and_down(reader, rxe, siw, pair):
    assert assert_same_port(reader, rxe).netdev == pair[0]
    assert assert_same_port(reader, siw).netdev == pair[1]
    run("ip", "link", "set", pair[0], "down")
    assert assert_same_port(reader, rxe).state == STATES["DOWN"]


def test_counters_are_the_same_as_those_of_rdma_and_of_the_files(reader, rxe, program):
    index = only(reader, rxe).index
    before = reader.statistics(index, 1)
    send_over(rxe, program("ib_send_bw"), 20, 4096)
    ours = reader.statistics(index, 1)
    found = dict(zip(ours.names, ours.values, strict=True))
    (theirs,) = json_of("rdma", "-j", "statistic", "show", "link", f"{rxe}/1")
    assert found == hardware_counters(rxe) == {key: theirs[key] for key in theirs if key not in {"ifname", "port"}}
    assert list(ours.names) == [key for key in theirs if key not in {"ifname", "port"}]
    assert found["sent_pkts"] > 20 * 4
    assert ours.names is before.names
    assert before.values[ours.names.index("sent_pkts")] == 0


def test_device_without_counters_is_an_error(reader, siw):
    with pytest.raises(OSError) as caught:
        reader.statistics(only(reader, siw).index, 1)
    assert caught.value.errno in {errno.EOPNOTSUPP, errno.EINVAL}


def test_device_without_counters_as_a_whole_is_an_error(reader, rxe):
    with pytest.raises(OSError) as caught:
        reader.statistics(only(reader, rxe).index, None)
    assert caught.value.errno in {errno.EOPNOTSUPP, errno.EINVAL}


def test_removed_device_is_an_error(reader, rxe):
    index = only(reader, rxe).index
    reader.statistics(index, 1)
    run("rdma", "link", "del", rxe)
    assert rxe not in {device.name for device in reader.devices()}
    for ask in (lambda: reader.port(index, 1), lambda: reader.statistics(index, 1), lambda: reader.queue_pairs(index)):
        with pytest.raises(OSError) as caught:
            ask()
        assert caught.value.errno in {errno.EINVAL, errno.ENODEV}


def test_queue_pairs_are_the_same(reader, rxe, program):
    """Hold a queue pair by a server that waits for its client."""
    server = [program("ibv_rc_pingpong"), "-d", rxe, "-g", str(address_index(rxe)), "-e"]
    with subprocess.Popen(server, stdout=subprocess.DEVNULL) as waiting:
        try:
            until("it has its queue pair", lambda: "RC" in {one.get("type") for one in queue_pairs(rxe)})
            theirs = Counter(
                (one.get("pid"), one["comm"].strip("[]"), one["type"], one["state"]) for one in queue_pairs(rxe)
            )
            ours = reader.queue_pairs(only(reader, rxe).index)
            found = {(one.pid, one.command, one.type, one.state): one.count for one in ours}
            assert found == theirs
            assert found[waiting.pid, "ibv_rc_pingpong", "RC", "INIT"] == 1
            run(*server, ADDRESS)
            assert waiting.wait(30) == 0
        finally:
            waiting.kill()


def queue_pairs(device):
    """List those of one device as `rdma` does."""
    return [one for one in json_of("rdma", "-j", "resource", "show", "qp") if one["ifname"] == device]
