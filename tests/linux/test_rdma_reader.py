import errno
import json
import struct
import subprocess
from pathlib import Path

import pytest

from exporter.linux import rdma_reader
from exporter.linux.cached_file import read_once
from exporter.linux.infiniband import parse_guid, parse_numbered
from exporter.linux.netlink import rdma as codec
from exporter.linux.netlink.rdma import QueuePairs, RdmaDevice, RdmaPort
from exporter.linux.rdma_reader import KernelRdma, ReplayRdma


def attribute(kind, value):
    value = struct.pack("=I", value) if isinstance(value, int) else value
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def device(index, name, ports=1):
    return attribute(1, index) + attribute(2, name.encode() + b"\0") + attribute(3, ports)


def counters(index, name, **values):
    entries = [
        attribute(81, attribute(82, key.encode() + b"\0") + attribute(83, struct.pack("=Q", value)))
        for key, value in values.items()
    ]
    return device(index, name) + attribute(80, b"".join(entries))


def queue_pair(pid=None, module=None, kind=2, state=3):
    owner = b"" if pid is None else attribute(28, pid)
    owner += b"" if module is None else attribute(29, module.encode() + b"\0")
    return owner + attribute(26, bytes([kind])) + attribute(27, bytes([state]))


class Kernel:
    """Replaces netlink sockets; replies are by message type and body."""

    def __init__(self, monkeypatch):
        self.answers = {}
        self.opened = []
        self.refusal = None
        monkeypatch.setattr(rdma_reader, "NetlinkSocket", self)

    def __call__(self, family):
        if self.refusal:
            raise self.refusal
        self.opened.append(Socket(self, family))
        return self.opened[-1]


class Socket:
    def __init__(self, kernel, family):
        self.kernel = kernel
        self.family = family
        self.closed = False

    def request(self, kind, body=b""):
        assert not self.closed
        answer = self.kernel.answers[kind, body]
        if callable(answer):
            answer = answer()
        if isinstance(answer, Exception):
            raise answer
        return answer

    dump = request

    def close(self):
        self.closed = True


@pytest.fixture
def kernel(monkeypatch):
    return Kernel(monkeypatch)


def number_of(call, *arguments):
    with pytest.raises(OSError) as caught:
        call(*arguments)
    return caught.value.errno


def test_socket_is_opened_at_the_first_request_and_reused(kernel):
    reader = KernelRdma()
    assert not kernel.opened
    kernel.answers[codec.GET_DEVICES, b""] = [device(0, "mlx5_0"), device(4, "mlx5_bond_0", ports=2), b"broken"]
    expected = [RdmaDevice(0, "mlx5_0", None, 1), RdmaDevice(4, "mlx5_bond_0", None, 2)]
    assert reader.devices() == reader.devices() == expected
    assert [one.family for one in kernel.opened] == [20]
    reader.close()
    reader.close()
    assert kernel.opened[0].closed


def test_kernel_without_rdma(kernel):
    kernel.refusal = OSError(errno.EPROTONOSUPPORT, "Protocol not supported")
    reader = KernelRdma()
    assert number_of(reader.devices) == errno.EPROTONOSUPPORT
    reader.close()


def test_port(kernel):
    kernel.answers[codec.GET_PORT, codec.port_request(4, 2)] = device(4, "x") + attribute(12, b"\4")
    assert KernelRdma().port(4, 2) == RdmaPort(None, None, 4, None)


def test_equal_names_are_the_same_object(kernel):
    reader = KernelRdma()
    place = (codec.GET_STATISTICS, codec.port_request(4, 1))
    kernel.answers[place] = counters(4, "mlx5_4", rx=1, tx=2)
    first = reader.statistics(4, 1)
    kernel.answers[place] = counters(4, "mlx5_4", rx=2**64 - 1, tx=2)
    second = reader.statistics(4, 1)
    assert (first.names, list(first.values)) == (("rx", "tx"), [1, 2])
    assert list(second.values) == [2**64 - 1, 2]
    assert second.names is first.names

    kernel.answers[place] = counters(4, "renamed", rx=3, tx=4)
    assert reader.statistics(4, 1).names is first.names
    kernel.answers[codec.GET_STATISTICS, codec.port_request(5, 1)] = counters(5, "mlx5_5", rx=6, tx=7)
    assert reader.statistics(5, 1).names is first.names

    kernel.answers[place] = counters(4, "renamed", rx=3, tx=4, cnp=5)
    third = reader.statistics(4, 1)
    assert (third.names, list(third.values)) == (("rx", "tx", "cnp"), [3, 4, 5])


def test_layouts_of_removed_devices_are_dropped(kernel):
    reader = KernelRdma()
    for index in range(3):
        kernel.answers[codec.GET_STATISTICS, codec.port_request(index, 1)] = counters(index, "x", rx=index)
        reader.statistics(index, 1)
    kernel.answers[codec.GET_DEVICES, b""] = [device(1, "x")]
    reader.devices()
    assert set(reader._layouts) == {(1, 1)}


def test_kernel_errors_are_raised_and_the_socket_is_reused(kernel):
    reader = KernelRdma()
    place = (codec.GET_STATISTICS, codec.port_request(4, 1))
    kernel.answers[place] = OSError(errno.EINVAL, "Invalid argument")
    assert number_of(reader.statistics, 4, 1) == errno.EINVAL
    kernel.answers[place] = counters(4, "x", rx=1)
    assert list(reader.statistics(4, 1).values) == [1]
    assert len(kernel.opened) == 1


def test_counters_of_a_device_as_a_whole_are_not_requested(kernel):
    assert number_of(KernelRdma().statistics, 4, None) == errno.EOPNOTSUPP
    assert not kernel.opened


def test_request_during_a_hanging_one_has_its_own_socket(kernel):
    reader = KernelRdma()
    kernel.answers[codec.GET_STATISTICS, codec.port_request(4, 1)] = counters(4, "x", rx=1)

    def meanwhile():
        assert list(reader.statistics(4, 1).values) == [1]
        assert list(reader.statistics(4, 1).values) == [1]
        return device(4, "x")

    kernel.answers[codec.GET_PORT, codec.port_request(4, 1)] = meanwhile
    reader.port(4, 1)
    assert len(kernel.opened) == 2
    assert sorted(one.closed for one in kernel.opened) == [False, True]


def test_request_that_returns_after_close_closes_its_socket(kernel):
    reader = KernelRdma()

    def late():
        reader.close()
        return device(4, "x")

    kernel.answers[codec.GET_PORT, codec.port_request(4, 1)] = late
    reader.port(4, 1)
    assert [one.closed for one in kernel.opened] == [True]


def test_queue_pairs_are_counted_by_process_type_and_state(kernel, tmp_path):
    (tmp_path / "4242").mkdir()
    (tmp_path / "4242" / "comm").write_bytes(b"python3\n")
    entries = [queue_pair(4242)] * 64 + [queue_pair(4242, state=1)] + [queue_pair(4243)]
    entries += [queue_pair(module="ib_core", kind=1), queue_pair()]
    halves = [entries[:30], entries[30:]]
    kernel.answers[codec.GET_QUEUE_PAIRS, codec.device_request(4)] = [
        device(4, "x") + attribute(19, b"".join(attribute(20, entry) for entry in half)) for half in halves
    ]
    assert KernelRdma(tmp_path).queue_pairs(4) == [
        QueuePairs(None, "", "RC", "RTS", 1),  # a process outside the PID namespace
        QueuePairs(4243, "", "RC", "RTS", 1),  # a process that has ended
        QueuePairs(None, "ib_core", "GSI", "RTS", 1),
        QueuePairs(4242, "python3", "RC", "INIT", 1),
        QueuePairs(4242, "python3", "RC", "RTS", 64),
    ]


def test_queue_pairs_of_groups_beyond_the_limit_are_counted_as_other(monkeypatch):
    monkeypatch.setattr(rdma_reader, "MAX_GROUPS", 2)
    entries = [queue_pair(pid) for pid in (1, 2, 3, 1, 4, 4)]
    assert rdma_reader.count_queue_pairs(entries, "p{}".format) == [
        QueuePairs(1, "p1", "RC", "RTS", 2),
        QueuePairs(2, "p2", "RC", "RTS", 1),
        QueuePairs(None, "other", "", "", 3),
    ]


def test_queue_pairs_beyond_the_limit_are_counted_as_other(monkeypatch):
    monkeypatch.setattr(rdma_reader, "MAX_QUEUE_PAIRS", 3)
    assert rdma_reader.count_queue_pairs([queue_pair(1)] * 5, "p{}".format) == [
        QueuePairs(1, "p1", "RC", "RTS", 3),
        QueuePairs(None, "other", "", "", 2),
    ]


def test_limits_are_the_documented_ones():
    assert (rdma_reader.MAX_QUEUE_PAIRS, rdma_reader.MAX_GROUPS) == (100_000, 500)


RECORDED = {
    "device": {"index": 3, "node_guid": "9c63c003001a2b3c", "ports": 2, "firmware": "28.39.1002"},
    "ports": {
        "1": {
            "port": {"netdev": "rail0", "netdev_index": 2, "state": 4, "physical_state": 5},
            "statistics": {"rx_write_requests": 2**64 - 1, "np_cnp_sent": 7},
        },
        "2": {"port": {"errno": "EIO"}},
    },
    "statistics": {"submitted_cmds": 9},
    "queue_pairs": [{"pid": 4242, "command": "python", "type": "RC", "state": "RTS", "count": 64}],
}


def write(folder: Path, name: str, content: object) -> None:
    (folder / "rdma").mkdir(exist_ok=True)
    new = folder / "rdma" / "new"
    new.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    new.replace(folder / "rdma" / f"{name}.json")


@pytest.fixture
def replay(tmp_path):
    write(tmp_path, "mlx5_0", RECORDED)
    return ReplayRdma(tmp_path)


def test_every_part_of_a_recording(replay):
    assert replay.devices() == [RdmaDevice(3, "mlx5_0", "9c63c003001a2b3c", 2, firmware="28.39.1002")]
    assert replay.port(3, 1) == RdmaPort("rail0", 2, 4, 5)
    found = replay.statistics(3, 1)
    assert (found.names, list(found.values)) == (("rx_write_requests", "np_cnp_sent"), [2**64 - 1, 7])
    own = replay.statistics(3, None)
    assert (own.names, list(own.values)) == (("submitted_cmds",), [9])
    assert replay.queue_pairs(3) == [QueuePairs(4242, "python", "RC", "RTS", 64)]


def test_recorded_errors_and_missing_parts(replay):
    replay.devices()
    assert number_of(replay.port, 3, 2) == errno.EIO
    assert number_of(replay.statistics, 3, 2) == errno.EOPNOTSUPP
    assert number_of(replay.port, 3, 7) == errno.EINVAL
    assert number_of(replay.statistics, 3, 7) == errno.EINVAL
    assert number_of(replay.port, 8, 1) == errno.EINVAL


def test_folder_without_rdma_recordings(tmp_path):
    reader = ReplayRdma(tmp_path)
    assert reader.devices() == []
    reader.close()


def test_changed_recording_is_read_again(replay, tmp_path):
    replay.devices()
    first = replay.statistics(3, 1)
    changed = json.loads(json.dumps(RECORDED))
    changed["ports"]["1"]["statistics"]["np_cnp_sent"] = 8
    write(tmp_path, "mlx5_0", changed)
    second = replay.statistics(3, 1)
    assert list(second.values) == [2**64 - 1, 8]
    assert second.names is first.names
    (tmp_path / "rdma" / "mlx5_0.json").unlink()
    assert number_of(replay.statistics, 3, 1) == errno.ENODEV
    assert replay.devices() == []


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"[" * 5000, b'{"devices": {}}', b'{"ports": {"x": {}}}'])
def test_broken_recording_fails_only_for_its_device(replay, tmp_path, caplog, content):
    write(tmp_path, "broken", content)
    for _ in range(2):
        assert replay.device("mlx5_0", "9c63c003001a2b3c").index == 3
        assert replay.device("absent", "9c63c003001a2b3c") is None
        with pytest.raises(OSError, match=r"broken\.json") as caught:
            replay.device("broken", "9c63c003001a2b3c")
        assert caught.value.errno == errno.EBADMSG
    assert caplog.records == []  # the caller reports it, or it would be logged twice
    write(tmp_path, "broken", {"device": {"index": 4, "node_guid": "9c63c003001a2b3d", "ports": 1}})
    assert replay.device("broken", "9c63c003001a2b3d").index == 4


def test_recorded_queue_pairs_have_the_same_limits(replay, tmp_path):
    group = {"pid": None, "command": "", "type": "RC", "state": "RTS"}
    groups = [{**group, "pid": pid, "count": pid} for pid in range(1, 1001)]
    write(tmp_path, "mlx5_0", {**RECORDED, "queue_pairs": groups})
    replay.devices()
    found = replay.queue_pairs(3)
    assert len(found) == 501
    assert found[499] == QueuePairs(500, "", "RC", "RTS", 500)
    assert found[500] == QueuePairs(None, "other", "", "", sum(range(501, 1001)))


@pytest.mark.parametrize(
    ("part", "content"),
    [
        ("statistics", {"a": -1}),
        ("statistics", {"a": 2**64}),
        ("statistics", {"a": 0.5}),
        ("statistics", {"errno": "nonsense"}),
        ("queue_pairs", [{"count": 1}]),
        ("queue_pairs", [{"pid": None, "command": "", "type": "", "state": "", "count": 1, "owner": 2}]),
        ("queue_pairs", {}),
        ("queue_pairs", [{"pid": None, "command": "", "type": "", "state": "", "count": 2**64}]),
        ("queue_pairs", [{"pid": None, "command": "", "type": "", "state": "", "count": -1}]),
        ("queue_pairs", [{"pid": None, "command": "", "type": "", "state": "", "count": 2**63}] * 2),
    ],
)
def test_broken_part_does_not_affect_others(replay, tmp_path, caplog, part, content):
    write(tmp_path, "mlx5_0", {**RECORDED, part: content})
    replay.devices()
    calls = {"statistics": lambda: replay.statistics(3, None), "queue_pairs": lambda: replay.queue_pairs(3)}
    with pytest.raises(OSError, match=f"{part} in .*mlx5_0.json: ") as caught:
        calls.pop(part)()
    assert caught.value.errno == errno.EBADMSG
    assert caplog.records == []  # the caller reports it, or it would be logged twice
    (other,) = calls.values()
    other()
    assert replay.port(3, 1).netdev == "rail0"


def test_device_with_a_duplicate_index_is_an_error(replay, tmp_path):
    write(tmp_path, "mlx5_1", RECORDED)
    assert [device.name for device in replay.devices()] == ["mlx5_0"]
    for _ in range(2):
        with pytest.raises(OSError, match="recording of mlx5_1: index 3 is also that of mlx5_0") as caught:
            replay.device("mlx5_1", "9c63c003001a2b3c")
        assert (caught.value.errno, caught.value.filename) == (errno.EBADMSG, "mlx5_1")


def names_in(folder):
    return {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()


@pytest.fixture
def here():
    """Return a reader of this machine's kernel, with the folder of its RDMA devices."""
    folder = Path("/sys/class/infiniband")
    if not names_in(folder):
        pytest.skip("needs RDMA in the kernel")
    reader = KernelRdma()
    yield reader, folder
    reader.close()


def test_netlink_returns_the_same_as_files(here):
    reader, folder = here
    devices = {device.name: device for device in reader.devices()}
    assert set(devices) == names_in(folder)
    for name, device in devices.items():
        assert device.node_guid == parse_guid(read_once(folder / name / "node_guid"))
        assert device.node_type == parse_numbered(read_once(folder / name / "node_type"))
        assert device.ports == len(names_in(folder / name / "ports"))
        for port in range(1, device.ports + 1):
            place = folder / name / "ports" / str(port)
            found = reader.port(device.index, port)
            assert found.state == parse_numbered(read_once(place / "state"))
            assert found.physical_state == parse_numbered(read_once(place / "phys_state"))
            if found.netdev is not None:
                index = read_once(f"/sys/class/net/{found.netdev}/ifindex")
                assert found.netdev_index == int(index)


def test_netlink_counters_are_those_of_the_files(here):
    reader, folder = here
    devices = reader.devices()
    assert devices
    for device in devices:
        for port in range(1, device.ports + 1):
            place = folder / device.name / "ports" / str(port) / "hw_counters"
            files = {name: place / name for name in names_in(place) - {"lifespan"}}
            if not files:
                assert number_of(reader.statistics, device.index, port) == errno.EINVAL
                continue
            before = {name: int(read_once(entry)) for name, entry in files.items()}
            found = reader.statistics(device.index, port)
            again = reader.statistics(device.index, port)
            assert again.names is found.names
            values = dict(zip(found.names, found.values, strict=True))
            assert values.keys() >= before.keys()
            assert all(values[name] >= value for name, value in before.items())


def test_queue_pairs_are_those_shown_by_rdma(here, program):
    reader, _ = here
    shown = json.loads(
        subprocess.run([program("rdma"), "-j", "resource", "show", "qp"], capture_output=True, check=True).stdout
    )
    devices = reader.devices()
    assert devices
    for device in devices:
        expected = sum(one["ifname"] == device.name for one in shown)
        assert sum(group.count for group in reader.queue_pairs(device.index)) == expected
