"""RDMA ports by RDMA netlink: counters, network devices, planes, queue pairs."""

import asyncio
import errno
import json
import threading

import pytest

from exporter.core.blocking import Turns
from exporter.core.definition import Context
from exporter.core.source import Host
from exporter.linux.netlink.rdma import QueuePairs, RdmaDevice, RdmaPort
from exporter.sources.rdma import (
    counters as rdma_counters,
)
from exporter.sources.rdma import (
    device as rdma_device,
)
from exporter.sources.rdma import (
    ports as rdma_ports,
)
from exporter.sources.rdma import (
    queue_pairs as rdma_queue_pairs,
)
from exporter.sources.rdma import (
    source as rdma,
)
from exporter.sources.rdma.metrics import QUEUE_PAIRS, SCHEMA
from exporter.sources.rdma.options import RdmaOptions
from exporter.sources.rdma.source import DEFINITION
from tests.helpers.rdma_trees import (
    OPENED,
    Netlink,
    make,
    netdev,
    opened,
    port_file,
    ports_of,
    rows_of,
    statistics,
)

LONG = 60.0
GUID = "0200c0fffe000001"


@pytest.fixture
def clock(stopped_clock):
    return stopped_clock(rdma, rdma_device, rdma_queue_pairs)


def device(name="mlx5_0", index=0, guid=GUID, kind=""):
    return RdmaDevice(index, name, guid, 1, kind)


@pytest.fixture
def tree(tmp_path):
    make(tmp_path, "mlx5_0", {"np_cnp_sent": 1, "out_of_sequence": 2}, pma={"port_rcv_data": 10}, driver="mlx5_core")
    return tmp_path


@pytest.fixture
def netlink():
    found = Netlink(device())
    found.counters[0, 1] = statistics(np_cnp_sent=101, out_of_sequence=102, cc_rx_cnp_pkts=103)
    return found


def cnps(found):
    return found["mlx5_0", "1"]["cnp_sent_total"]


# Counters.


async def test_hw_counters_are_read_by_netlink_instead_of_files(tree, netlink):
    async with opened(tree, netlink) as source:
        with OPENED.watch() as seen:
            found, failures = await ports_of(source)
            await source.read()
    port = found["mlx5_0", "1"]
    assert (port["cnp_sent_total"], port["out_of_sequence_total"], failures) == (101, 102, [])
    assert port["cnp_received_total"] == 103  # an optional counter that is enabled; no file has it
    assert port["receive_bytes_total"] == 40  # not in netlink, so still read from its file
    assert not [path for path in seen.paths if "hw_counters/" in path]


async def test_values_follow_netlink_and_unchanged_columns_stay_the_same_object(tree, netlink):
    async with opened(tree, netlink) as source:
        await source.read()
        before = (await source.read()).tables[0].columns
        names = netlink.counters[0, 1].names
        netlink.counters[0, 1] = type(netlink.counters[0, 1])(names, (201, 102, 203))
        after = (await source.read()).tables[0].columns
    assert after["cnp_sent_total"].values == (201,)
    assert after["out_of_sequence_total"] is before["out_of_sequence_total"]


async def test_counters_added_and_removed_between_reads(tree, netlink):
    async with opened(tree, netlink) as source:
        assert (await ports_of(source))[0]["mlx5_0", "1"]["cnp_received_total"] == 103
        netlink.counters[0, 1] = statistics(out_of_sequence=102, np_cnp_sent=101)
        found, failures = await ports_of(source)
        assert (cnps(found), found["mlx5_0", "1"]["receive_bytes_total"], failures) == (101, 40, [])
        assert "cnp_received_total" not in found["mlx5_0", "1"]
        netlink.counters[0, 1] = statistics(np_cnp_sent=1, rdma_rx_bytes=5)
        port = (await ports_of(source))[0]["mlx5_0", "1"]
        assert (port["cnp_sent_total"], port["receive_optional_bytes_total"]) == (1, 5)
        assert "out_of_sequence_total" not in port


async def test_files_are_read_if_netlink_returns_fewer_counters(tree, netlink):
    netlink.counters[0, 1] = statistics(np_cnp_sent=101)
    async with opened(tree, netlink) as source:
        found, failures = await ports_of(source)
    assert (cnps(found), failures) == (1, [])


@pytest.mark.parametrize(
    "listed",
    [
        [],
        [device(guid="0200c0fffe000002")],
        [device(guid=None)],
        [device(name="mlx5_1")],
    ],
)
async def test_netlink_device_must_match_name_and_guid(tree, netlink, listed):
    netlink.listed = listed
    async with opened(tree, netlink) as source:
        found, failures = await ports_of(source)
    assert (cnps(found), failures) == (1, [])
    assert {request[0] for request in netlink.requests} == {"devices"}


async def test_device_without_guid_matches_no_netlink_device(tmp_path, netlink):
    make(tmp_path, "mlx5_0", {"np_cnp_sent": 1}, driver="mlx5_core", guid="0000:0000:0000:0000")
    netlink.listed = [device(guid=None), device(guid="")]
    async with opened(tmp_path, netlink) as source:
        assert cnps((await ports_of(source))[0]) == 1


@pytest.mark.parametrize("error", [errno.EPROTONOSUPPORT, errno.EAFNOSUPPORT])
async def test_kernel_without_rdma_netlink_is_no_failure(tree, netlink, error):
    netlink.listed = OSError(error, "none")
    async with opened(tree, netlink) as source:
        found, failures = await ports_of(source)
    assert (cnps(found), failures) == (1, [])


@pytest.mark.parametrize("error", [errno.EINVAL, errno.EOPNOTSUPP])
async def test_kernel_without_counters_by_netlink_is_no_failure(tree, netlink, error):
    netlink.counters[0, 1] = OSError(error, "too old")
    async with opened(tree, netlink) as source:
        found, failures = await ports_of(source)
        assert (cnps(found), failures) == (1, [])
        await source.read()
    assert netlink.requests.count(("statistics", 0, 1)) == 1


@pytest.mark.parametrize(("what", "answer"), [("listed", "eperm"), ("counters", "eio")])
async def test_netlink_failure_is_reported_until_the_next_scan_and_files_are_read(tree, netlink, clock, what, answer):
    error = OSError(getattr(errno, answer.upper()), "no")
    good = netlink.listed, dict(netlink.counters)
    if what == "listed":
        netlink.listed = error
    else:
        netlink.counters[0, 1] = error
    async with opened(tree, netlink) as source:
        for _ in range(3):
            found, failures = await ports_of(source)
            assert (cnps(found), failures) == (1, [("mlx5_0", answer)])
        netlink.listed, netlink.counters = good
        assert (await ports_of(source))[1] == [("mlx5_0", answer)]
        clock.now += rdma.RESCAN_SECONDS
        found, failures = await ports_of(source)
    assert (cnps(found), failures) == (101, [])


async def test_netlink_failure_between_reads_loses_no_value(tree, netlink, clock):
    async with opened(tree, netlink) as source:
        assert cnps((await ports_of(source))[0]) == 101
        netlink.counters[0, 1] = OSError(errno.ETIMEDOUT, "no answer")
        found, failures = await ports_of(source)
        assert (cnps(found), failures) == (1, [("mlx5_0", "etimedout")])
        assert found["mlx5_0", "1"]["receive_bytes_total"] == 40
        netlink.counters[0, 1] = statistics(np_cnp_sent=9, out_of_sequence=9)
        clock.now += rdma.RESCAN_SECONDS
        assert cnps((await ports_of(source))[0]) == 9


async def test_unknown_value_is_absent(tree, netlink):
    netlink.counters[0, 1] = statistics(np_cnp_sent=2**64 - 1, out_of_sequence=0)
    async with opened(tree, netlink) as source:
        port = (await ports_of(source))[0]["mlx5_0", "1"]
    assert "cnp_sent_total" not in port
    assert port["out_of_sequence_total"] == 0


async def test_recordings_replace_the_kernel(tree):
    recording = {
        "device": {"index": 7, "node_guid": GUID, "ports": 1, "kind": ""},
        "ports": {
            "1": {
                "port": {"netdev": "ens9", "netdev_index": 3, "state": 4, "physical_state": 5},
                "statistics": {"np_cnp_sent": 301, "out_of_sequence": 302},
            }
        },
    }
    (tree / "replay" / "rdma").mkdir(parents=True)
    (tree / "replay" / "rdma" / "mlx5_0.json").write_text(json.dumps(recording))
    (source,) = DEFINITION.build(RdmaOptions(), Context(Host("gpu-1", tree, tree / "proc", tree / "replay")))
    found, failures = await ports_of(source)
    await source.close()
    assert (cnps(found), found["mlx5_0", "1"]["info"]["netdev"], failures) == (301, "ens9", [])


@pytest.mark.parametrize("queue_pairs", [False, True])
@pytest.mark.parametrize("content", ["", "[" * 5000, '{"device": {"index": -3, "ports": 1}}', None])
async def test_broken_recording_is_a_failure_of_its_device(tree, caplog, clock, content, queue_pairs):
    folder = tree / "replay" / "rdma"
    folder.mkdir(parents=True)
    if content is None:
        (folder / "mlx5_0.json").mkdir()
    else:
        (folder / "mlx5_0.json").write_text(content)
    options = RdmaOptions(queue_pairs=queue_pairs)
    (source,) = DEFINITION.build(options, Context(Host("gpu-1", tree, tree / "proc", tree / "replay")))
    for _ in range(3):
        reading = await source.read()
        ((name, reason, detail),) = [(one.device, one.reason, one.detail) for one in reading.failures]
        assert (name, reason, cnps(rows_of(reading, SCHEMA))) == ("mlx5_0", "ebadmsg", 1)
        assert str(folder / "mlx5_0.json") in detail
        if queue_pairs:
            await queue_pairs_read(source)
        clock.now += rdma.RESCAN_SECONDS
    await source.close()
    assert caplog.records == []  # the poller logs a failure when it begins


async def test_recordings_path_that_is_not_a_folder_is_named(tree):
    (tree / "replay").mkdir()
    (tree / "replay" / "rdma").write_text("")
    (source,) = DEFINITION.build(RdmaOptions(), Context(Host("gpu-1", tree, tree / "proc", tree / "replay")))
    (failure,) = (await source.read()).failures
    await source.close()
    detail = f"RDMA netlink: recordings in {tree / 'replay' / 'rdma'}: Not a directory"
    assert (failure.device, failure.reason, failure.detail) == ("mlx5_0", "enotdir", detail)


# Netdevs, and the selection of ports.


async def test_netdev_of_a_port_by_netlink(tree, netlink):
    netdev(tree, "ens1f0")
    netdev(tree, "bond0", "0000:99:00.0", mac="02:00:00:00:00:99")
    netlink.ports[0, 1] = RdmaPort("bond0", 9, 4, 5)  # for a device over a bond the kernel returns the bond, or a leg
    async with opened(tree, netlink) as source:
        found, failures = await ports_of(source)
    info = found["mlx5_0", "1"]["info"]
    assert (info["netdev"], info["mac"], failures) == ("bond0", "02:00:00:00:00:99", [])


async def test_netdev_in_another_namespace_is_empty(tree, netlink):
    netdev(tree, "ens1f0")  # ignored, since netlink replied
    netlink.ports[0, 1] = RdmaPort()
    async with opened(tree, netlink) as source:
        found, failures = await ports_of(source)
    assert (found["mlx5_0", "1"]["info"]["netdev"], failures) == ("", [])


@pytest.mark.parametrize(("error", "expected"), [(errno.EIO, [("mlx5_0", "eio")]), (errno.EOPNOTSUPP, [])])
async def test_netdev_from_files_if_netlink_fails(tree, netlink, error, expected):
    netdev(tree, "ens1f0")
    netlink.ports[0, 1] = OSError(error, "no")
    async with opened(tree, netlink) as source:
        found, failures = await ports_of(source)
    assert (found["mlx5_0", "1"]["info"]["netdev"], failures) == ("ens1f0", expected)


async def test_planes_of_another_port_are_skipped(tree, netlink):
    make(tree, "smi0", {"np_cnp_sent": 5}, driver="mlx5_core", guid="0200:c0ff:fe00:0009")
    netlink.listed.append(device("smi0", 1, "0200c0fffe000009", "smi"))
    async with opened(tree, netlink) as source:
        for _ in range(2):
            found, failures = await ports_of(source)
            assert (found.keys(), failures) == ({("mlx5_0", "1")}, [])
    assert not [request for request in netlink.requests if request[:2] in {("port", 1), ("statistics", 1)}]


async def test_device_over_a_bond_is_one_port(tmp_path):
    make(tmp_path, "mlx5_bond_0", {"np_cnp_sent": 5}, driver="mlx5_core")
    netdev(tmp_path, "ens1f0")
    netdev(tmp_path, "ens1f1", "0000:21:00.1")
    async with opened(tmp_path) as source:
        found, failures = await ports_of(source)
    assert (found.keys(), failures) == ({("mlx5_bond_0", "1")}, [])


def switched(tree, count):
    """Create a card in switchdev mode with an uplink and representors."""
    make(tree, "mlx5_0", {"np_cnp_sent": 1}, driver="mlx5_core")
    netdev(tree, "ens1f0", phys_port_name="p0")
    for number in range(2, count + 1):
        make(tree, "mlx5_0", {"np_cnp_sent": 1}, driver="mlx5_core", port=number)
        netdev(tree, f"ens1f0vf{number}", phys_port_name=f"pf0vf{number}")


async def test_representor_ports_are_skipped_by_netlink(tmp_path):
    switched(tmp_path, 40)
    netlink = Netlink(device())
    netlink.ports = {(0, number): RdmaPort(f"ens1f0vf{number}", number, 4, 5) for number in range(2, 41)}
    netlink.ports[0, 1] = RdmaPort("ens1f0", 1, 4, 5)
    netlink.counters[0, 1] = statistics(np_cnp_sent=8)
    async with opened(tmp_path, netlink) as source:
        found, failures = await ports_of(source)
    assert (found.keys(), failures) == ({("mlx5_0", "1")}, [])
    assert (found["mlx5_0", "1"]["info"]["netdev"], cnps(found)) == ("ens1f0", 8)


async def test_representor_ports_are_skipped_by_files(tmp_path):
    switched(tmp_path, 40)
    for number in range(1, 41):
        place = port_file(tmp_path, "mlx5_0", "gid_attrs/ndevs", number)
        place.mkdir(parents=True)
        (place / "0").write_text("ens1f0\n" if number == 1 else f"ens1f0vf{number}\n")
    async with opened(tmp_path) as source:
        found, failures = await ports_of(source)
    assert (found.keys(), failures) == ({("mlx5_0", "1")}, [])
    assert found["mlx5_0", "1"]["info"]["netdev"] == "ens1f0"


async def test_ports_without_netdevs_are_limited_and_the_excess_is_reported(tmp_path):
    switched(tmp_path, 40)
    async with opened(tmp_path) as source:
        for _ in range(2):
            with OPENED.watch() as seen:
                found, failures = await ports_of(source)
            assert found.keys() == {("mlx5_0", str(number)) for number in range(1, 9)}
            assert failures == [("mlx5_0", "too_many")]
    assert not [path for path in seen.paths if "/ports/9/" in path]


async def test_ports_with_a_netdev_are_selected_first(tmp_path):
    switched(tmp_path, 12)
    netdev(tmp_path, "ens1f1", "0000:21:00.1", phys_port_name="p1")
    netlink = Netlink(device())
    netlink.ports[0, 12] = RdmaPort("ens1f1", 1, 4, 5)
    async with opened(tmp_path, netlink) as source:
        found, failures = await ports_of(source)
    assert [port for _, port in found] == ["1", "2", "3", "4", "5", "6", "7", "12"]
    assert failures == [("mlx5_0", "too_many")]


async def test_two_ports_on_two_functions_have_their_own_netdevs(tmp_path):
    for number, name, pci in ((1, "ens1f0", "0000:21:00.0"), (2, "ens1f1", "0000:21:00.1")):
        make(tmp_path, "mlx5_0", {"np_cnp_sent": number}, driver="mlx5_core", port=number)
        netdev(tmp_path, name, pci, phys_port_name=f"p{number - 1}")
        place = port_file(tmp_path, "mlx5_0", "gid_attrs/ndevs", number)
        place.mkdir(parents=True)
        (place / "0").write_text(f"{name}\n")
    async with opened(tmp_path) as source:
        found, _ = await ports_of(source)
    assert [row["info"]["netdev"] for row in found.values()] == ["ens1f0", "ens1f1"]
    assert [row["info"]["rail"] for row in found.values()] == ["0", "1"]


async def test_netdev_name_of_a_pod_does_not_match_a_netdev_of_the_host(tmp_path):
    netdev(tmp_path, "ens1f0", phys_port_name="p0")
    netdev(tmp_path, "eth0", "0000:99:00.0")
    for number in (1, 2):
        make(tmp_path, "mlx5_0", {}, driver="mlx5_core", port=number)
        place = port_file(tmp_path, "mlx5_0", "gid_attrs/ndevs", number)
        place.mkdir(parents=True)
        (place / "0").write_text("eth0\n")  # the file does not name the network namespace
    async with opened(tmp_path) as source:
        found, _ = await ports_of(source)
    assert [row["info"]["netdev"] for row in found.values()] == ["ens1f0", ""]


async def test_two_ports_of_one_function_are_distinguished_by_dev_port(tmp_path):
    for number, name in ((1, "ens1"), (2, "ens1d1")):
        make(tmp_path, "mlx4_0", {}, driver="mlx4_core", port=number)
        netdev(tmp_path, name, dev_port=str(number - 1))
    async with opened(tmp_path) as source:
        found, _ = await ports_of(source)
    assert [row["info"]["netdev"] for row in found.values()] == ["ens1", "ens1d1"]


# Queue pairs.

PAIRS = [
    QueuePairs(100, "python", "RC", "RTS", 64),
    QueuePairs(101, "python", "RC", "RTS", 32),
    QueuePairs(101, "python", "UD", "INIT", 2),
    QueuePairs(None, "ib_core", "UD", "RTS", 1),
]


async def queue_pairs_read(source):
    """Wait for the dump that is running."""
    task = source._queue_pairs._task
    if task is not None:
        await asyncio.wait([task], timeout=LONG)


async def test_queue_pairs_are_not_read_by_default(tree, netlink):
    async with opened(tree, netlink) as source:
        await source.read()
        assert rows_of(await source.read(), QUEUE_PAIRS) == {}
    assert "queue_pairs" not in {request[0] for request in netlink.requests}


async def test_queue_pairs_are_summed_by_program(tree, netlink):
    netlink.pairs[0] = PAIRS
    async with opened(tree, netlink, queue_pairs=True) as source:
        await source.read()
        await queue_pairs_read(source)
        found = rows_of(await source.read(), QUEUE_PAIRS)
    assert found == {
        ("mlx5_0", "python", "RC", "RTS"): {"queue_pairs": 96},
        ("mlx5_0", "python", "UD", "INIT"): {"queue_pairs": 2},
        ("mlx5_0", "ib_core", "UD", "RTS"): {"queue_pairs": 1},
    }


async def test_queue_pairs_are_read_once_a_minute(tree, netlink, clock):
    netlink.pairs[0] = PAIRS
    async with opened(tree, netlink, queue_pairs=True) as source:
        for seconds, times in ((0, 1), (5, 1), (54, 1), (1, 2), (5, 2)):
            clock.now += seconds
            await source.read()
            await queue_pairs_read(source)
            assert netlink.requests.count(("queue_pairs", 0)) == times


async def test_queue_pairs_of_a_removed_device_are_dropped(tree, netlink):
    netlink.pairs[0] = PAIRS
    async with opened(tree, netlink, queue_pairs=True) as source:
        await source.read()
        await queue_pairs_read(source)
        (tree / "class" / "infiniband" / "mlx5_0").rename(tree / "away")
        assert rows_of(await source.read(), QUEUE_PAIRS) == {}


async def test_failing_queue_pair_dump_does_not_affect_other_devices(tree, netlink):
    make(tree, "mlx5_1", {"np_cnp_sent": 3}, driver="mlx5_core", pci="0000:22:00.0", guid="0200:c0ff:fe00:0002")
    netlink.listed.append(device("mlx5_1", 1, "0200c0fffe000002"))
    netlink.counters[1, 1] = statistics(np_cnp_sent=4)
    netlink.pairs = {0: OSError(errno.EIO, "no"), 1: PAIRS[:1]}
    async with opened(tree, netlink, queue_pairs=True) as source:
        await source.read()
        await queue_pairs_read(source)
        reading = await source.read()
    assert [(failure.device, failure.reason) for failure in reading.failures] == [("mlx5_0", "eio")]
    assert rows_of(reading, QUEUE_PAIRS) == {("mlx5_1", "python", "RC", "RTS"): {"queue_pairs": 64}}
    assert rows_of(reading, SCHEMA).keys() == {("mlx5_0", "1"), ("mlx5_1", "1")}


async def test_queue_pair_failure_is_reported_once_per_dump(tree, netlink, clock):
    netlink.pairs[0] = OSError(errno.EIO, "no")
    counted = []
    async with opened(tree, netlink, queue_pairs=True) as source:
        for seconds in (0, 5, 5, 50, 5, 5):
            clock.now += seconds
            counted.append(len((await source.read()).failures))
            await queue_pairs_read(source)
    assert counted == [0, 1, 0, 0, 1, 0]
    assert netlink.requests.count(("queue_pairs", 0)) == 2


@pytest.mark.parametrize(("error", "requests"), [("EOPNOTSUPP", 1), ("EINVAL", 3), ("EPERM", 3)])
async def test_unsupported_queue_pair_dump_is_no_failure(tree, netlink, clock, error, requests):
    netlink.pairs[0] = OSError(getattr(errno, error), "no")
    async with opened(tree, netlink, queue_pairs=True) as source:
        for _ in range(3):
            assert (await source.read()).failures == []
            await queue_pairs_read(source)
            clock.now += rdma_queue_pairs.INTERVAL_SECONDS
        assert netlink.requests.count(("queue_pairs", 0)) == requests
        port_file(tree, "mlx5_0", "../../node_guid").write_text("0200:c0ff:fe00:0099\n")  # another device of that name
        netlink.listed = [device(guid="0200c0fffe000099")]
        netlink.pairs[0] = PAIRS
        await source.read()
        await queue_pairs_read(source)
        assert len(rows_of(await source.read(), QUEUE_PAIRS)) == 3


async def test_queue_pair_dump_that_hangs_is_not_repeated_until_it_returns(tree, netlink, monkeypatch, clock):
    monkeypatch.setattr(rdma_queue_pairs, "DEADLINE_SECONDS", 0.2)
    go = threading.Event()
    netlink.pairs[0] = lambda: go.wait(LONG) and PAIRS
    async with opened(tree, netlink, queue_pairs=True) as source:
        await source.read()
        await queue_pairs_read(source)
        for _ in range(2):
            clock.now += rdma_queue_pairs.INTERVAL_SECONDS
            found, failures = await ports_of(source)
            await queue_pairs_read(source)
            assert (cnps(found), failures) == (101, [("mlx5_0", "timeout")])
        assert netlink.requests.count(("queue_pairs", 0)) == 1
        go.set()
        async with asyncio.timeout(LONG):
            while source._serial.hanging:  # noqa: ASYNC110  # a thread changes it, and has no event for it
                await asyncio.sleep(0.001)
        clock.now += rdma_queue_pairs.INTERVAL_SECONDS
        await source.read()
        await queue_pairs_read(source)
        reading = await source.read()
    assert len(rows_of(reading, QUEUE_PAIRS)) == 3
    assert reading.failures == []


async def test_source_closes_during_a_queue_pair_dump(tree, netlink):
    begun, go = threading.Event(), threading.Event()

    def slow():
        begun.set()
        go.wait(LONG)
        return []

    netlink.pairs[0] = slow
    async with opened(tree, netlink, queue_pairs=True) as source:
        await source.read()
        await asyncio.to_thread(begun.wait, LONG)
        task = source._queue_pairs._task
    with pytest.raises(asyncio.CancelledError):
        await task
    go.set()


def test_queue_pair_deadline_is_at_most_half_of_the_interval():
    short = rdma_queue_pairs.QueuePairPoller(2.0, Turns(), Netlink())
    long = rdma_queue_pairs.QueuePairPoller(60.0, Turns(), Netlink())
    assert (short._serial._deadline, long._serial._deadline) == (1.0, 5.0)


def test_limits_are_the_documented_ones():
    assert (rdma_ports.MAX_PORTS, rdma_counters.MAX_RAW_COUNTERS, rdma_queue_pairs.INTERVAL_SECONDS) == (8, 1000, 60.0)


async def test_no_queue_pairs_of_a_device_unknown_to_netlink(tree):
    async with opened(tree, Netlink(), queue_pairs=True) as source:
        await source.read()
        await queue_pairs_read(source)
        reading = await source.read()
    assert (rows_of(reading, QUEUE_PAIRS), reading.failures) == ({}, [])


async def test_port_without_hw_counters_is_not_queried_by_netlink(tmp_path, netlink):
    make(tmp_path, "mlx5_0", None, pma={"port_rcv_data": 1}, driver="mlx5_core")
    async with opened(tmp_path, netlink) as source:
        found, failures = await ports_of(source)
    assert (found["mlx5_0", "1"]["receive_bytes_total"], failures) == (4, [])
    assert not [request for request in netlink.requests if request[0] == "statistics"]
