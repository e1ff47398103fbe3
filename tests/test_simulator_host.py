"""The simulated host's files: in the shape of the real ones, rewritten in place, and never seen torn."""

import json
import os
import threading

import pytest

from exporter.linux.nic import ReplayNic
from exporter.simulator.host import HostFiles
from exporter.simulator.traffic import Training


@pytest.fixture
def training():
    return Training()


@pytest.fixture
def files(tmp_path, training):
    made = HostFiles(tmp_path, training)
    made.create()
    return made


def read(path):
    return path.read_text().strip()


def test_an_rdma_device_is_what_sysfs_shows_of_one(files):
    device = files.sysfs / "class" / "infiniband" / "mlx5_3"
    port = device / "ports" / "1"
    assert (device / "device").resolve().name == "0000:5e:00.0"
    assert "DRIVER=mlx5_core" in read(device / "device" / "uevent").splitlines()
    assert (read(device / "device" / "vendor"), read(device / "device" / "device")) == ("0x15b3", "0x1021")
    assert [entry.name for entry in (device / "device" / "net").iterdir()] == ["eth5"]
    assert read(device / "node_guid") == "a088:c203:0000:100b"
    assert (read(device / "hca_type"), read(port / "link_layer")) == ("MT4129", "Ethernet")
    assert (read(port / "state"), read(port / "phys_state")) == ("4: ACTIVE", "5: LinkUp")
    assert read(port / "rate") == "400 Gb/sec (4X NDR)"
    netdev = files.sysfs / "class" / "net" / "eth5"
    assert read(netdev / "address") == "a0:88:c2:00:10:0b"
    assert (netdev / "device").resolve() == (device / "device").resolve()


def test_counters_have_the_files_of_the_drivers_folder(files, corpus):
    recorded = corpus / "host" / "sysfs" / "procfs" / "fixtures" / "sys" / "class" / "infiniband" / "mlx5_0" / "ports/1"
    port = files.sysfs / "class" / "infiniband" / "mlx5_0" / "ports" / "1"
    for folder in ("counters", "hw_counters"):
        wanted = {entry.name for entry in (recorded / folder).iterdir()}
        assert wanted - {entry.name for entry in (port / folder).iterdir()} == set()


def test_data_is_in_words_of_four_bytes(files, training):
    words = int(read(files.sysfs / "class/infiniband/mlx5_0/ports/1/counters/port_xmit_data"))
    assert words * 4 == training.rails[0].port.packets("transmit", ["rdma"]) * 4112


def test_a_link_that_is_down_looks_as_mlx5_shows_it(files, training):
    training.begin("link-down")
    files.write()
    port = files.sysfs / "class" / "infiniband" / "mlx5_6" / "ports" / "1"
    assert [read(port / name) for name in ("state", "phys_state", "rate")] == [
        "1: DOWN",
        "3: Disabled",
        "40 Gb/sec (4X QDR)",
    ]
    recording = json.loads((files.recordings / "eth8.json").read_text())
    assert recording["link"]["carrier"] is False
    assert recording["settings"]["speed_bits_per_second"] is None


def test_a_degraded_link_runs_at_a_quarter(files, training):
    training.begin("degraded-link")
    files.write()
    assert read(files.sysfs / "class/infiniband/mlx5_3/ports/1/rate") == "100 Gb/sec (4X EDR)"
    recording = json.loads((files.recordings / "eth5.json").read_text())
    assert recording["settings"]["speed_bits_per_second"] == 100_000_000_000


def test_recordings_are_answers_that_the_reader_takes(files, training):
    reader = ReplayNic(files.recordings)
    links = reader.links()
    assert [link.name for link in links] == [f"eth{number}" for number in (0, *range(2, 10))]
    assert len({link.ifindex for link in links}) == 9
    before = dict(zip(*_statistics(reader), strict=True))
    training.advance(30)
    files.write()
    after = dict(zip(*_statistics(reader), strict=True))
    assert before.keys() == after.keys()
    assert after["rx_bytes_phy"] > before["rx_bytes_phy"]


def _statistics(reader):
    answer = reader.statistics("eth2")
    return answer.names, answer.values


def test_files_keep_inode_and_size(files, training):
    def seen():
        found = {}
        for path in (files.sysfs / "class" / "infiniband").rglob("*/ports/1/**/*"):
            status = path.stat()
            found[path] = (status.st_ino, status.st_size)
        return found

    before = seen()
    for _ in range(8):
        training.advance(5)
        training.begin("link-down")
        files.write()
    assert seen() == before


@pytest.mark.parametrize("name", ["counters/port_xmit_data", "hw_counters/np_cnp_sent"])
def test_kept_descriptors_see_only_whole_values(files, training, name):
    """Read as fast as can be while the values are rewritten; `np_cnp_sent` grows from one digit to many."""
    descriptor = os.open(files.sysfs / "class/infiniband/mlx5_0/ports/1" / name, os.O_RDONLY)
    seen, done = set(), threading.Event()

    def hammer():
        while not done.is_set():
            seen.update(os.pread(descriptor, 64, 0) for _ in range(200))

    def now():
        port = training.rails[0].port
        if name.endswith("np_cnp_sent"):
            return port.counters["cnp_sent"]
        return port.packets("transmit", ["rdma"]) * 4112 // 4

    written = {now()}
    reader = threading.Thread(target=hammer)
    reader.start()
    try:
        for _ in range(60):
            training.advance(1)
            written.add(now())
            files.write()
    finally:
        done.set()
        reader.join()
        os.close(descriptor)
    assert {int(text) for text in seen} <= written
    assert len(seen) > 10
