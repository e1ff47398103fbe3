"""`snapshot --host`: what is recorded of a host is read back the same, and identities are replaced."""

import errno
import json
import re
from functools import partial
from pathlib import Path

import pytest

from exporter import cli
from exporter.commands import host_snapshot
from exporter.commands.host_snapshot import HostReaders, snapshot_host
from exporter.config.errors import UserError
from exporter.core.source import Host
from exporter.linux.netlink.rdma import RdmaDevice, RdmaPort
from exporter.linux.nic_reader import KernelNic, ReplayNic
from exporter.linux.rdma_reader import ReplayRdma
from exporter.linux.recordings.sysfs_tree import SysfsCopy
from exporter.simulator.host import HostFiles
from exporter.simulator.traffic import Training
from exporter.sources.common.host_ports import is_hardware
from exporter.sources.nic.source import DEFINITION as NIC
from exporter.sources.optics.source import DEFINITION as OPTICS
from exporter.sources.pci.source import DEFINITION as PCI
from exporter.sources.rdma.source import DEFINITION as RDMA
from tests.helpers.host_tables import tables
from tests.helpers.paths import FIXTURES

RDMA_NETLINK = {
    "device": {"index": 3, "node_guid": "0c42a10300aabbcc", "ports": 1, "firmware": "28.39.1002", "node_type": 1},
    "ports": {"1": {"port": {"state": 4, "physical_state": 5}, "statistics": {"np_cnp_sent": 77}}},
    "statistics": {"submitted_cmds": 9},
    "queue_pairs": [{"pid": 4242, "command": "python", "type": "RC", "state": "RTS", "count": 64}],
}


@pytest.fixture
def simulated(tmp_path):
    """Return the simulated host: sysfs, recordings, and one RDMA device that netlink has too."""
    files = HostFiles(tmp_path / "simulated", Training())
    files.create()
    (device, *_) = sorted((files.sysfs / "class" / "infiniband").iterdir())
    guid = (device / "node_guid").read_text().strip().replace(":", "")
    (files.recordings / "rdma").mkdir()
    netlink = {**RDMA_NETLINK, "device": {**RDMA_NETLINK["device"], "node_guid": guid}}
    (files.recordings / "rdma" / f"{device.name}.json").write_text(json.dumps(netlink))
    return files


def readers(sysfs, recordings):
    return HostReaders(sysfs, partial(ReplayNic, recordings), partial(ReplayRdma, recordings))


def snapshot(sysfs, recordings, folder, **options):
    seen = []
    found = snapshot_host(
        readers(sysfs, recordings), folder, **{"raw": False, "modules": True, "progress": seen.append, **options}
    )
    return found, seen


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("definition", [NIC, RDMA, PCI, OPTICS], ids=lambda one: one.name)
async def test_sources_read_the_same_from_a_recording_of_the_simulated_host(simulated, tmp_path, definition, raw):
    found, _ = snapshot(simulated.sysfs, simulated.recordings, tmp_path / "made", raw=raw)
    assert (found.nics, found.rdma_devices, found.problems) == (9, 8, [])
    original = Host("gpu-1", simulated.sysfs, tmp_path, simulated.recordings)
    recorded = Host("gpu-1", tmp_path / "made" / "sys", tmp_path, tmp_path / "made")
    theirs, ours = await tables(definition, original), await tables(definition, recorded)
    assert theirs[0]
    assert all(theirs[0])
    assert ours == theirs


@pytest.mark.parametrize(("definition", "tree"), [(RDMA, "sysfs"), (PCI, "sysfs-pci")])
async def test_sources_read_the_same_from_a_copy_of_recorded_trees(tmp_path, definition, tree):
    found, _ = snapshot(FIXTURES / tree, FIXTURES / "nic-replay", tmp_path / "made", modules=False)
    assert found.files > 50
    nowhere = tmp_path / "without_netlink"
    nowhere.mkdir()
    original = Host("gpu-1", FIXTURES / tree, tmp_path, nowhere)
    theirs = await tables(definition, original)
    ours = await tables(definition, Host("gpu-1", tmp_path / "made" / "sys", tmp_path, nowhere))
    assert theirs[0]
    assert ours == theirs


def texts(folder):
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_identities_are_replaced_everywhere_and_alike(simulated, tmp_path):
    snapshot(simulated.sysfs, simulated.recordings, tmp_path / "raw", raw=True)
    snapshot(simulated.sysfs, simulated.recordings, tmp_path / "made")
    raw, made = texts(tmp_path / "raw"), texts(tmp_path / "made")
    assert raw.keys() == made.keys()
    everything = "\n".join(raw.values())
    macs = set(re.findall(r"\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b", everything))
    guids = set(re.findall(r"\b(?:[0-9a-f]{4}:){3}[0-9a-f]{4}\b", everything))
    guids |= {guid.replace(":", "") for guid in guids}
    serials = {serial(tmp_path / "raw", path.stem) for path in (tmp_path / "raw").glob("*.json")} - {None}
    assert (len(macs), len(guids), len(serials)) == (9, 16, 8)
    assert not [path for path, text in made.items() for one in macs | guids if one in text]
    assert not {serial(tmp_path / "made", path.stem) for path in (tmp_path / "made").glob("*.json")} & serials
    link = json.loads((tmp_path / "made" / "eth0.json").read_text())["link"]
    assert link["mac"] == (tmp_path / "made/sys/class/net/eth0/address").read_text().strip()
    assert link["mac"].startswith("02:")
    (device,) = (tmp_path / "made" / "rdma").iterdir()
    guid = json.loads(device.read_text())["device"]["node_guid"]
    file = tmp_path / "made/sys/class/infiniband" / device.stem / "node_guid"
    assert file.read_text().strip().replace(":", "") == guid


def serial(folder, device):
    """Return the serial number of CMIS: bytes 166 to 181 of page 00h."""
    memory = ReplayNic(folder)
    try:
        return memory.module_page(device, page=0, bank=0, offset=166, length=16)
    except OSError:
        return None


def test_processes_are_not_recorded(simulated, tmp_path):
    snapshot(simulated.sysfs, simulated.recordings, tmp_path / "made", raw=True)
    (device,) = (tmp_path / "made" / "rdma").iterdir()
    recorded = json.loads(device.read_text())
    assert "queue_pairs" not in recorded
    reader = ReplayRdma(tmp_path / "made")
    (found,) = reader.devices()
    assert found == RdmaDevice(3, device.stem, found.node_guid, 1, firmware="28.39.1002", node_type=1)
    assert reader.port(3, 1) == RdmaPort(None, None, 4, 5)
    assert dict(zip(*reader_statistics(reader, 1), strict=True)) == {"np_cnp_sent": 77}
    assert dict(zip(*reader_statistics(reader, None), strict=True)) == {"submitted_cmds": 9}
    with pytest.raises(OSError) as caught:
        reader.queue_pairs(3)
    assert caught.value.errno == errno.EOPNOTSUPP


def reader_statistics(reader, port):
    found = reader.statistics(3, port)
    return found.names, found.values


def test_progress_names_each_device(simulated, tmp_path):
    _, seen = snapshot(simulated.sysfs, simulated.recordings, tmp_path / "made")
    assert seen[0] == "eth0: network device 1 of 9"
    assert [one for one in seen if one.endswith(": RDMA device")]
    assert seen[-1].endswith(": files of sysfs")


def test_software_devices_are_not_recorded(tmp_path):
    recordings = tmp_path / "nics"
    recordings.mkdir()
    hardware = {"parent_dev_name": "0000:17:00.0", "parent_dev_bus_name": "pci"}
    for index, (name, fields) in enumerate(
        {"rail0": hardware, "bond0": {"kind": "bond"}, "veth1": {"kind": "veth"}}.items()
    ):
        (recordings / f"{name}.json").write_text(json.dumps({"link": {"ifindex": index + 1, **fields}}))
    found, _ = snapshot(tmp_path / "no-sysfs", recordings, tmp_path / "made")
    assert (found.nics, found.rdma_devices, found.files) == (2, 0, 0)
    assert sorted(path.name for path in (tmp_path / "made").iterdir()) == ["bond0.json", "rail0.json"]


def test_a_host_without_ports_is_an_error_that_names_the_remedy(tmp_path):
    (tmp_path / "nics").mkdir()
    with pytest.raises(UserError, match=r"no ports that are hardware; run the command on the host, or in a container"):
        snapshot(tmp_path, tmp_path / "nics", tmp_path / "made")
    assert not (tmp_path / "made").exists()


class RefusingRdma:
    def devices(self):
        raise OSError(errno.EPROTONOSUPPORT, "Protocol not supported")

    def close(self):
        pass


def test_the_files_are_recorded_without_rdma_netlink(simulated, tmp_path):
    given = readers(simulated.sysfs, simulated.recordings)._replace(open_rdma=RefusingRdma)
    found = snapshot_host(given, tmp_path / "made", raw=False, modules=False, progress=lambda _: None)
    assert found.problems == ["RDMA netlink: Protocol not supported"]
    assert (found.rdma_devices, (tmp_path / "made" / "rdma").exists()) == (8, False)


def test_an_unreadable_file_is_named_and_the_others_are_copied(simulated, tmp_path, monkeypatch):
    broken = simulated.sysfs / "class/infiniband/mlx5_0/fw_ver"
    real = broken.resolve()
    opened = Path.open

    def refuse(path, *arguments, **keywords):
        if path == real:
            raise OSError(errno.EIO, "Input/output error")
        if path.name == "speed":
            raise OSError(errno.EINVAL, "Invalid argument")
        return opened(path, *arguments, **keywords)

    monkeypatch.setattr(Path, "open", refuse)
    found, _ = snapshot(simulated.sysfs, simulated.recordings, tmp_path / "made")
    assert found.problems == [f"{real}: Input/output error"]
    assert (tmp_path / "made/sys/class/infiniband/mlx5_0/hca_type").read_text() == "MT4129\n"


def test_an_unreadable_gpu_is_named_and_the_others_are_copied(tmp_path, monkeypatch):
    functions = [f"bus/pci/devices/0000:{number}:00.0" for number in ("1a", "1b")]
    broken, other = ((FIXTURES / "sysfs-pci" / one / "class").resolve() for one in functions)
    opened = Path.open

    def refuse(path, *arguments, **keywords):
        if path.resolve() == broken:
            raise OSError(errno.EIO, "Input/output error")
        return opened(path, *arguments, **keywords)

    monkeypatch.setattr(Path, "open", refuse)
    copy = SysfsCopy(FIXTURES / "sysfs-pci", tmp_path / "made", lambda _, content: content)
    copy.copy_gpus()
    assert [one.rpartition(": ")[2] for one in copy.problems] == ["Input/output error"]
    assert not (tmp_path / "made" / functions[0]).exists()
    assert (tmp_path / "made" / functions[1] / "class").read_text() == other.read_text()


def test_a_copy_of_gpus_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    copy = SysfsCopy(FIXTURES / "sysfs-pci", tmp_path / "file" / "made", lambda _, content: content)
    with pytest.raises(NotADirectoryError):
        copy.copy_gpus()


def test_an_rdma_recording_that_cannot_be_written_is_an_error(simulated, tmp_path, monkeypatch):
    write = host_snapshot.write_recording

    def refuse(folder, device, recording):
        if folder.name == "rdma":
            raise OSError(errno.ENOSPC, "No space left on device")
        write(folder, device, recording)

    monkeypatch.setattr(host_snapshot, "write_recording", refuse)
    with pytest.raises(OSError, match="No space left on device"):
        snapshot(simulated.sysfs, simulated.recordings, tmp_path / "made")


def refused_links(_):
    raise PermissionError(errno.EPERM, "Operation not permitted")


@pytest.mark.parametrize("step", ["__init__", "links"])
def test_refused_netlink_is_an_error_that_names_netlink(capsys, tmp_path, monkeypatch, step):
    monkeypatch.setattr(KernelNic, step, refused_links)
    assert cli.main(["snapshot", "--host", str(tmp_path / "made")]) == 1
    error = "network devices of this host: Operation not permitted; run the command where netlink is permitted"
    assert capsys.readouterr().err == f"fabric-exporter: {error}\n"


def test_unreadable_sysfs_is_an_error_that_names_it(simulated, tmp_path, monkeypatch):
    folder = simulated.sysfs / "class" / "infiniband"
    listed = Path.iterdir

    def refuse(path):
        if path == folder:
            raise PermissionError(errno.EACCES, "Permission denied")
        return listed(path)

    monkeypatch.setattr(Path, "iterdir", refuse)
    message = f"devices in {simulated.sysfs}: Permission denied; run the command as a user that can read them"
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        snapshot(simulated.sysfs, simulated.recordings, tmp_path / "made")


def test_the_tree_can_be_moved(simulated, tmp_path):
    snapshot(simulated.sysfs, simulated.recordings, tmp_path / "made")
    (tmp_path / "made").rename(tmp_path / "moved")
    device = tmp_path / "moved/sys/class/infiniband/mlx5_0/device"
    assert (device / "vendor").read_text() == "0x15b3\n"
    links = [path for path in (tmp_path / "moved").rglob("*") if path.is_symlink()]
    assert len(links) > 9
    assert all(path.resolve().is_relative_to(tmp_path / "moved") for path in links)


def test_a_link_out_of_sysfs_is_not_followed(simulated, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "address").write_text("secret\n")
    (outside / "device").mkdir()
    (simulated.sysfs / "class/net/astray").symlink_to(outside)
    snapshot(simulated.sysfs, simulated.recordings, tmp_path / "made", raw=True)
    assert not (tmp_path / "made/sys/class/net/astray").exists()
    assert "secret" not in "".join(texts(tmp_path / "made").values())


# --- the memory of modules


@pytest.mark.parametrize(
    ("identifier", "key", "first", "start"),
    [(0x18, "page_00h", 128, 166), (0x11, "page_00h", 128, 196), (0x03, "lower", 0, 68)],
    ids=["CMIS", "SFF-8636", "SFF-8472"],
)
def test_serial_numbers_of_modules_are_at_the_places_of_the_standards(tmp_path, identifier, key, first, start):
    """CMIS 5.2 table 8-28, SFF-8636 table 6-14, SFF-8472 table 4-1: 16 bytes each."""
    lower = ["00"] * 128
    memory = {"lower": lower, "page_00h": ["00"] * 128}
    memory[key][start - first : start - first + 16] = [f"{byte:02x}" for byte in b"SN-OF-THE-MAKER "]
    memory["lower"][0] = f"{identifier:02x}"
    nics = tmp_path / "nics"
    nics.mkdir()
    link = {"ifindex": 1, "parent_dev_name": "0000:17:00.0", "parent_dev_bus_name": "pci"}
    module = {name: " ".join(content) for name, content in memory.items()}
    (nics / "rail0.json").write_text(json.dumps({"link": link, "module": module}))
    snapshot(tmp_path, nics, tmp_path / "raw", raw=True)
    snapshot(tmp_path, nics, tmp_path / "made")
    theirs, ours = (json.loads((tmp_path / folder / "rail0.json").read_text())["module"] for folder in ("raw", "made"))
    old, new = theirs.pop(key).split(), ours.pop(key).split()
    changed = [first + place for place, (one, other) in enumerate(zip(old, new, strict=True)) if one != other]
    assert set(changed) <= set(range(start, start + 16))
    assert len(changed) > 8
    assert bytes.fromhex("".join(new[start - first : start - first + 16])).isalnum()
    assert ours == theirs


def test_a_module_that_cannot_be_read_stays_an_error(tmp_path):
    nics = tmp_path / "nics"
    nics.mkdir()
    link = {"ifindex": 1, "parent_dev_name": "0000:17:00.0", "parent_dev_bus_name": "pci"}
    (nics / "rail0.json").write_text(json.dumps({"link": link, "module": {"errno": "EPERM"}}))
    snapshot(tmp_path, nics, tmp_path / "made")
    assert json.loads((tmp_path / "made" / "rail0.json").read_text())["module"] == {"errno": "EPERM"}


# --- the command


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["leaf-1", "--host", "made"], "record either the switch leaf-1 or this host, not both"),
        (["--modules", "leaf-1"], "--modules is for --host"),
    ],
)
def test_flags_that_exclude_each_other(capsys, arguments, message):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["snapshot", *arguments])
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["full", "file"])
def test_nothing_is_overwritten(capsys, tmp_path, kind):
    made = tmp_path / "made"
    if kind == "file":
        made.write_text("mine")
    else:
        made.mkdir()
        (made / "mine").write_text("mine")
    assert cli.main(["snapshot", "--host", str(made)]) == 1
    error = f"fabric-exporter: {made}: exists already and is not an empty directory; name another one, or remove it\n"
    assert capsys.readouterr().err == error
    with pytest.raises(UserError):
        snapshot(tmp_path, tmp_path, made)


def kernel_ports():
    reader = KernelNic()
    try:
        return sorted(link.name for link in reader.links() if is_hardware(link))
    finally:
        reader.close()


async def test_the_command_records_this_machine(capsys, tmp_path):
    """Counters move between the two readings; everything else is compared."""
    ports = kernel_ports()
    if not ports:
        pytest.skip("needs a network device that is hardware")
    assert cli.main(["snapshot", "--host", str(tmp_path / "made")]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.fullmatch(
        rf"{re.escape(str(tmp_path))}/made: network devices: \d+, RDMA devices: \d+, files of sysfs: \d+;"
        r" MAC addresses, GUIDs and serial numbers are replaced; review it all the same before you share it\n",
        captured.err,
    )
    assert {f"{name}.json" for name in ports} <= {path.name for path in (tmp_path / "made").iterdir()}
    theirs, failures = await tables(NIC, Host("gpu-1", Path("/sys"), Path("/proc")))
    ours, our_failures = await tables(NIC, Host("gpu-1", tmp_path / "made" / "sys", Path("/proc"), tmp_path / "made"))
    assert our_failures == failures
    assert [shape(table) for table in ours] == [shape(table) for table in theirs]
    assert {(name,) for name in ports} <= ours[0]["info"].keys()
    assert ours[0]["info"] == theirs[0]["info"]
    macs = addresses(ports)
    assert not [path for path, text in texts(tmp_path / "made").items() if any(mac in text for mac in macs)]


def addresses(ports):
    return {Path(f"/sys/class/net/{name}/address").read_text().strip() for name in ports}


def shape(table):
    return {ending: {row: value is None for row, value in rows.items()} for ending, rows in table.items()}
