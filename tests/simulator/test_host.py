"""The simulated host's files: those of a real host, rewritten in place, and never read truncated."""

import json
import os
import threading

import pytest

from exporter.linux.nic_reader import ReplayNic
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


def test_an_rdma_device_has_the_files_of_sysfs(files):
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


DOCUMENTED = {
    "counters": [
        "VL15_dropped",
        "excessive_buffer_overrun_errors",
        "link_downed",
        "link_error_recovery",
        "local_link_integrity_errors",
        "multicast_rcv_packets",
        "multicast_xmit_packets",
        "port_rcv_constraint_errors",
        "port_rcv_data",
        "port_rcv_errors",
        "port_rcv_packets",
        "port_rcv_remote_physical_errors",
        "port_rcv_switch_relay_errors",
        "port_xmit_constraint_errors",
        "port_xmit_data",
        "port_xmit_discards",
        "port_xmit_packets",
        "port_xmit_wait",
        "symbol_error",
        "unicast_rcv_packets",
        "unicast_xmit_packets",
    ],
    "hw_counters": [
        "duplicate_request",
        "implied_nak_seq_err",
        "lifespan",
        "local_ack_timeout_err",
        "np_cnp_sent",
        "np_ecn_marked_roce_packets",
        "out_of_buffer",
        "out_of_sequence",
        "packet_seq_err",
        "req_cqe_error",
        "req_cqe_flush_error",
        "req_remote_access_errors",
        "req_remote_invalid_request",
        "resp_cqe_error",
        "resp_cqe_flush_error",
        "resp_local_length_error",
        "resp_remote_access_errors",
        "rnr_nak_retry_err",
        "roce_adp_retrans",
        "roce_adp_retrans_to",
        "roce_slow_restart",
        "roce_slow_restart_cnps",
        "roce_slow_restart_trans",
        "rp_cnp_handled",
        "rp_cnp_ignored",
        "rx_atomic_requests",
        "rx_dct_connect",
        "rx_icrc_encapsulated",
        "rx_read_requests",
        "rx_write_requests",
    ],
}
"""Files of a RoCE port of mlx5, by Documentation/ABI/stable/sysfs-class-infiniband and the driver's source."""


@pytest.fixture(params=["documented", "recorded"])
def names_of_counters(request):
    """Return the files of `counters` and `hw_counters`: those of the documentation, and of a recorded host."""
    if request.param == "documented":
        return DOCUMENTED
    recorded = request.getfixturevalue("corpus").joinpath(
        "host", "sysfs", "procfs", "fixtures", "sys", "class", "infiniband", "mlx5_0", "ports", "1"
    )
    return {folder: [entry.name for entry in (recorded / folder).iterdir()] for folder in DOCUMENTED}


def test_counters_have_the_files_of_the_driver(files, names_of_counters):
    port = files.sysfs / "class" / "infiniband" / "mlx5_0" / "ports" / "1"
    assert names_of_counters
    for folder, names in names_of_counters.items():
        assert names
        assert set(names) - {entry.name for entry in (port / folder).iterdir()} == set()


def test_data_is_in_words_of_four_bytes(files, training):
    words = int(read(files.sysfs / "class/infiniband/mlx5_0/ports/1/counters/port_xmit_data"))
    assert words * 4 == training.rails[0].port.packets("transmit", ["rdma"]) * 4112


def test_a_link_that_is_down_has_the_files_of_mlx5(files, training):
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
    assert recording["link_state"]["reason"] == "no_cable"
    assert recording["module"] == {"errno": "EIO"}


def test_a_flapping_link_has_a_bad_cable_whose_module_answers(files, training):
    training.begin("flapping-link")
    files.write()
    recording = json.loads((files.recordings / "eth3.json").read_text())
    assert recording["link_state"] == {"up": False, "reason": "cable_issue", "down_count": 1}
    assert recording["link_modes"]["speed_bits_per_second"] is None
    assert "active" not in recording["fec"]
    assert recording["module"]["lower"].startswith("19 52 ")
    training.advance(6)
    files.write()
    assert json.loads((files.recordings / "eth3.json").read_text())["link_state"] == {"up": True, "down_count": 1}


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


@pytest.mark.parametrize(
    ("device", "speed", "lanes", "pfc"), [("eth0", 25_000_000_000, 1, ()), ("eth9", 400_000_000_000, 4, (3,))]
)
def test_recordings_have_the_other_replies_besides_statistics(files, device, speed, lanes, pfc):
    reader = ReplayNic(files.recordings)
    modes, fec = reader.link_modes(device), reader.fec(device)
    assert (modes.speed_bits_per_second, modes.max_speed_bits_per_second, modes.lanes) == (speed, speed, lanes)
    assert (modes.autoneg, fec.active) == (True, "rs")
    assert reader.link_state(device).up is True
    assert (reader.pause(device).receive, reader.pause(device).transmit) == (False, False)
    assert reader.dcb(device).pfc == pfc
    assert sum(reader.dcb(device).classes or (100,)) == 100


def test_a_nic_sits_beside_a_gpu_below_a_pcie_switch(files):
    functions = files.sysfs / "bus" / "pci" / "devices"
    nic, gpu = (functions / "0000:5e:00.0").resolve(), (functions / "0000:5f:00.0").resolve()
    assert (read(nic / "class"), read(gpu / "class"), read(gpu / "vendor")) == ("0x020000", "0x030200", "0x10de")
    assert [place.name for place in nic.parents][:4] == ["0000:5d:00.0", "0000:5c:00.0", "0000:5b:01.0", "pci0000:5b"]
    assert gpu.parent.parent == nic.parent.parent
    for function in (nic, nic.parent, gpu):
        assert [read(function / f"max_link_{what}") for what in ("speed", "width")] == ["32.0 GT/s PCIe", "16"]
    assert (read(nic / "numa_node"), read((functions / "0000:dc:00.0").resolve() / "numa_node")) == ("0", "1")
    kinds = sorted(read(function / "class") for function in functions.iterdir())
    assert [kinds.count(kind) for kind in ("0x020000", "0x030200", "0x060400")] == [9, 8, 33]


def test_a_slow_pcie_link_shows_and_counts_errors(files, training):
    nic = (files.sysfs / "class" / "net" / "eth7" / "device").resolve()
    assert [read(nic / f"current_link_{what}") for what in ("speed", "width")] == ["32.0 GT/s PCIe", "16"]
    assert read(nic / "aer_dev_correctable").endswith("TOTAL_ERR_COR 0")
    training.begin("slow-pcie")
    training.advance(12)
    files.write()
    assert [read(nic / f"current_link_{what}") for what in ("speed", "width")] == ["16.0 GT/s PCIe", "8"]
    assert [read(nic / f"max_link_{what}") for what in ("speed", "width")] == ["32.0 GT/s PCIe", "16"]
    assert {"BadTLP 12", "TOTAL_ERR_COR 12"} <= set(read(nic / "aer_dev_correctable").splitlines())
    assert read(nic / "aer_dev_fatal").endswith("TOTAL_ERR_FATAL 0")


def test_too_little_light_is_below_the_alarm_of_its_module(files, training):
    training.begin("dirty-optic")
    files.write()
    for device, dim in (("eth4", 2), ("eth5", None)):
        module = json.loads((files.recordings / f"{device}.json").read_text())["module"]
        received = [word(module["page_11h_bank_0"], place) for place in range(186, 194, 2)]
        low_alarm = word(module["page_02h"], 194)
        assert [lane for lane, power in enumerate(received, 1) if power < low_alarm] == ([] if dim is None else [dim])


def word(half, place):
    digits = half.split()
    return int(digits[place - 128] + digits[place - 127], 16)


def test_a_missing_port_has_no_files_and_is_added_again_as_another_device(files, training):
    def traces():
        places = [*files.sysfs.rglob("*"), *files.recordings.iterdir()]
        return sorted(str(path) for path in places if path.name in {"mlx5_7", "eth9", "eth9.json", "0000:dc:00.0"})

    def ifindex():
        return json.loads((files.recordings / "eth9.json").read_text())["link"]["ifindex"]

    before, index = traces(), ifindex()
    assert len(before) == 7  # three links, three folders, one recording
    training.begin("missing-port")
    for _ in range(2):
        files.write()
        assert traces() == []
    assert (files.sysfs / "bus" / "pci" / "devices" / "0000:dd:00.0" / "class").exists()  # its GPU stays
    training.end("missing-port")
    training.advance(1)
    files.write()
    assert traces() == before
    assert ifindex() > index
    assert read(files.sysfs / "class/net/eth9/ifindex") == str(ifindex())
    port = files.sysfs / "class" / "infiniband" / "mlx5_7" / "ports" / "1"
    assert read(port / "state") == "4: ACTIVE"
    sent = training.rails[7].port.packets("transmit", ["rdma"])
    assert int(read(port / "counters" / "port_xmit_data")) * 4 == sent * 4112


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
