"""PCI functions of the host's ports: which are read, their link, AER counters, and failures."""

import errno
import os
from pathlib import Path

import pytest

from exporter.core.blocking import BlockingCalls
from exporter.core.source import Host, SourceError
from exporter.linux import cached_file
from exporter.sources.pci import function, topology
from exporter.sources.pci import source as pci
from exporter.sources.pci.function import is_degraded
from exporter.sources.pci.metrics import LINK_PROPERTIES, SCHEMA
from exporter.sources.pci.options import PciOptions
from exporter.sources.pci.source import PciSource
from exporter.sources.pci.topology import nearest
from tests.helpers.paths import FIXTURES

NIC, GPU, BRIDGE = "0x020700", "0x030200", "0x060400"
NVIDIA, MELLANOX = "0x10de", "0x15b3"
ROOT, SLOT = "pci0000:16", "pci0000:16/0000:16:01.0"
GEN5, GEN4 = ("32.0 GT/s PCIe", "16"), ("16.0 GT/s PCIe", "16")
SHORT = 0.3
"""Seconds after which a call is treated as hanging."""


class SysfsTree:
    """A sysfs tree in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def function(self, path, kind=NIC, vendor=MELLANOX, now=None, most=None, **files):
        """Make a function at its path; `now` and `most` are current and maximum speed and lanes."""
        place = self.folder / "devices" / path
        place.mkdir(parents=True, exist_ok=True)
        files |= {"class": kind, "vendor": vendor}
        for word, link in (("current", now), ("max", most)):
            files |= dict(zip((f"{word}_link_speed", f"{word}_link_width"), link or (), strict=False))
        for name, text in files.items():
            (place / name).write_text(text + "\n")
        link = self.folder / "bus" / "pci" / "devices" / place.name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(place)
        return place

    def device(self, function, kind, name, port_name=None):
        """Put a network or RDMA device on a function."""
        place = function / kind / name
        place.mkdir(parents=True)
        (place / "device").symlink_to(function)
        if port_name is not None:
            (place / "phys_port_name").write_text(port_name + "\n")
        link = self.folder / "class" / kind / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(place)

    def nic(self, path=f"{SLOT}/0000:17:00.0", now=GEN5, most=GEN5, name="rail0", **files):
        """Make a NIC with one network device."""
        place = self.function(path, NIC, MELLANOX, now, most, **files)
        self.device(place, "net", name)
        return place

    def source(self, **options):
        """Return the source that reads it."""
        return PciSource(PciOptions(**options), Host("gpu-001", self.folder, self.folder / "proc"))


@pytest.fixture
def machine(tmp_path):
    return SysfsTree(tmp_path)


async def read(source):
    """Read once; return rows by address, errors by address and severity, and failures."""
    reading = await source.read()
    rows, counts = {}, {}
    for table in reading.tables:
        errors = table.values("aer_errors_total")
        if errors is not None:
            counts = dict(zip(table.rows.keys, errors, strict=True))
            continue
        rows = {
            address: {ending: column.values[place] for ending, column in table.columns.items()}
            for place, (address,) in enumerate(table.rows.keys)
        }
    return rows, counts, reading.failures


def info_of(row):
    return dict(zip(SCHEMA.metrics["info"].extra, row["info"], strict=True))


async def test_all_values_of_a_function(machine):
    machine.function(SLOT, BRIDGE, "0x8086", GEN5, GEN5)
    nic = machine.nic(
        numa_node="1",
        uevent="DRIVER=mlx5_core\nPCI_CLASS=20700",
        aer_dev_correctable="Receiver Error 2\nBad TLP 0\nTOTAL_ERR_COR 2",
        aer_dev_nonfatal="Undefined 0\nCompletion Timeout 5",
        aer_dev_fatal="TOTAL_ERR_FATAL 0",
    )
    machine.device(nic, "infiniband", "mlx5_0")
    machine.function(f"{SLOT}/0000:18:00.0", GPU, NVIDIA)
    source = machine.source()
    assert await source.applies()
    rows, errors, failures = await read(source)
    assert not failures
    assert set(rows) == {"0000:17:00.0"}
    row = rows["0000:17:00.0"]
    assert info_of(row) == {
        "host": "gpu-001",
        "devices": "mlx5_0,rail0",
        "numa_node": "1",
        "nearest_gpu": "0000:18:00.0",
        "bridge": "0000:16:01.0",
        "driver": "mlx5_core",
    }
    del row["info"]
    assert row == {
        "link_speed_transfers_per_second": 32e9,
        "link_max_speed_transfers_per_second": 32e9,
        "bridge_max_speed_transfers_per_second": 32e9,
        "link_lanes": 16,
        "link_max_lanes": 16,
        "bridge_max_lanes": 16,
        "link_degraded": 0,
    }
    assert errors == {
        ("0000:17:00.0", "correctable"): 2,
        ("0000:17:00.0", "nonfatal"): 5,
        ("0000:17:00.0", "fatal"): 0,
    }
    await source.close()


async def test_missing_files_are_absent_values(machine):
    machine.nic("pci0000:00/0000:00:02.0", now=None, most=None, numa_node="-1")
    rows, errors, failures = await read(machine.source())
    assert not failures
    assert errors == {}
    row = rows["0000:00:02.0"]
    assert info_of(row) == {
        "host": "gpu-001",
        "devices": "rail0",
        "numa_node": "",
        "nearest_gpu": "",
        "bridge": "",
        "driver": "",
    }
    assert {ending for ending, value in row.items() if value is not None} == {"info"}


async def test_link_of_a_suspended_function_is_not_read(machine):
    machine.function(SLOT, BRIDGE, "0x8086", GEN5, GEN5)
    nic = machine.nic(now=("2.5 GT/s PCIe", "1"), aer_dev_fatal="TOTAL_ERR_FATAL 3")
    (nic / "power").mkdir()
    status = nic / "power" / "runtime_status"
    status.write_text("suspended\n")
    source = machine.source()
    rows, errors, failures = await read(source)
    assert not failures
    assert {ending for ending, value in rows[nic.name].items() if value is not None} == {"info"}
    assert errors == {(nic.name, "fatal"): 3}
    status.write_text("active\n")
    rows, _, _ = await read(source)
    assert rows[nic.name]["link_degraded"] == 1


@pytest.mark.parametrize(
    ("now", "card", "slot", "verdict"),
    [
        (GEN5, GEN5, GEN5, 0),
        (GEN4, GEN5, GEN5, 1),  # trained too slow
        (("32.0 GT/s PCIe", "8"), GEN5, GEN5, 1),  # lost half its lanes
        (GEN4, GEN5, GEN4, 0),  # a card of the fifth generation in a slot of the fourth
        (("8.0 GT/s PCIe", "16"), GEN5, GEN4, 1),
        (GEN4, GEN4, GEN5, 0),
        (("32.0 GT/s PCIe", "8"), GEN5, ("32.0 GT/s PCIe", "8"), 0),  # a slot with eight lanes
        (("Unknown", "16"), GEN5, GEN5, None),
        (("32.0 GT/s PCIe", "0"), GEN5, GEN5, None),
        (GEN5, ("Unknown", "255"), GEN5, None),
        (GEN5, GEN5, ("Unknown", "16"), None),
        (GEN5, GEN5, None, None),
        (None, GEN5, GEN5, None),
    ],
)
async def test_link_is_degraded_if_both_ends_support_more(machine, now, card, slot, verdict):
    machine.function(SLOT, BRIDGE, "0x8086", slot, slot)
    machine.nic(now=now, most=card)
    rows, _, failures = await read(machine.source())
    assert not failures
    assert rows["0000:17:00.0"].get("link_degraded") == verdict


LINK_ENDINGS = [ending for one in LINK_PROPERTIES for ending in (one.current, one.maximum, one.bridge_maximum)]


@pytest.mark.parametrize("lacking", LINK_ENDINGS)
def test_degraded_is_absent_if_a_value_is_missing(lacking):
    values = dict.fromkeys(LINK_ENDINGS, 1)
    assert is_degraded(values) == 0
    assert is_degraded({**values, lacking: None}) is None
    del values[lacking]
    assert is_degraded(values) is None


@pytest.mark.parametrize(
    ("way", "others", "expected"),
    [
        (["pci0000:16", "a", "b"], {}, []),
        (["pci0000:16", "a", "b"], {"x": ["pci0000:60", "a", "b"]}, []),  # only what is shared from the host on counts
        (["pci0000:16", "a", "b"], {"x": ["pci0000:16", "a", "c"], "y": ["pci0000:16", "d"]}, ["x"]),
        (["pci0000:16", "a"], {"y": ["pci0000:16", "a", "c"], "x": ["pci0000:16", "a", "b"]}, ["x", "y"]),
        (["pci0000:16"], {"x": ["pci0000:16", "a"], "y": ["pci0000:60"]}, ["x"]),
    ],
)
def test_nearest_share_the_most_bridges(way, others, expected):
    assert nearest(way, others) == expected


async def test_only_gpus_are_nearest_gpus(machine):
    machine.nic()
    for number, (kind, vendor) in enumerate(
        [
            (GPU, NVIDIA),
            ("0x030000", NVIDIA),
            ("0x120000", "0x1002"),
            ("0x038000", "0x1002"),
            ("0x030000", "0x1a03"),  # the console of a server
            ("0x040300", NVIDIA),  # a GPU's sound
            ("0x068000", NVIDIA),  # an NVSwitch
            ("0x010802", "0x144d"),  # a disk
        ]
    ):
        machine.function(f"{SLOT}/0000:18:00.{number}", kind, vendor)
    part = machine.function(f"{SLOT}/0000:19:00.0", GPU, NVIDIA)
    (part / "physfn").symlink_to(part.parent / "0000:18:00.0")
    rows, _, _ = await read(machine.source())
    assert info_of(rows["0000:17:00.0"])["nearest_gpu"] == ",".join(f"0000:18:00.{number}" for number in range(4))


async def test_virtual_functions_and_representors_are_skipped(machine):
    physical = machine.function(f"{SLOT}/0000:17:00.0", NIC, MELLANOX, GEN5, GEN5)
    machine.device(physical, "net", "rail0", "p0")
    machine.device(physical, "net", "rail0_0", "pf0vf0")
    machine.device(physical, "net", "rail0_1", "c1pf0sf1")
    virtual = machine.nic(f"{SLOT}/0000:17:00.2", name="rail0v0")
    (virtual / "physfn").symlink_to(physical)
    rows, _, _ = await read(machine.source())
    assert {address: info_of(row)["devices"] for address, row in rows.items()} == {"0000:17:00.0": "rail0"}


async def test_virtual_function_in_a_virtual_machine_has_location_but_no_link(machine):
    """Hypervisors invent a link of one slow lane where the function itself has none."""
    machine.function(SLOT, BRIDGE, "0x8086", GEN5, GEN5)
    machine.nic(now=("2.5 GT/s PCIe", "1"), device="0x101e", uevent="DRIVER=mlx5_core", numa_node="1")
    machine.function(f"{SLOT}/0000:18:00.0", GPU, NVIDIA)
    rows, _, failures = await read(machine.source())
    assert not failures
    row = rows["0000:17:00.0"]
    assert {ending for ending, value in row.items() if value is not None} == {"info"}
    expected = {"devices": "rail0", "numa_node": "1", "nearest_gpu": "0000:18:00.0", "driver": "mlx5_core"}
    assert expected.items() <= info_of(row).items()


async def test_excluded_functions_are_never_read(machine, monkeypatch):
    machine.nic(f"{SLOT}/0000:17:00.0", name="rail0")
    machine.nic(f"{SLOT}/0000:17:00.1", name="rail1")
    opened = []
    monkeypatch.setattr(function, "read_small", lambda path: opened.append(path) or path.read_bytes())
    rows, _, _ = await read(machine.source(exclude=("0000:17:00.1",)))
    assert set(rows) == {"0000:17:00.0"}
    assert opened
    assert not [path for path in opened if "0000:17:00.1" in str(path)]


async def test_no_pci_functions(machine):
    source = machine.source()
    assert not await source.applies()
    assert (await source.read()).tables == []  # empty tables would be something that is there
    (machine.folder / "class" / "net" / "lo").mkdir(parents=True)
    assert not await source.applies()


async def test_failed_file_affects_only_its_value(machine, monkeypatch):
    machine.function(SLOT, BRIDGE, "0x8086", GEN5, GEN5)
    machine.nic(aer_dev_correctable="nonsense", aer_dev_fatal="TOTAL_ERR_FATAL 1", numa_node="two")
    machine.nic(f"{SLOT}/0000:18:00.0", name="rail1", aer_dev_correctable="TOTAL_ERR_COR 4")
    failing = f"{machine.folder}/devices/{SLOT}/0000:17:00.0/current_link_speed"

    def read_small(path):
        if str(path) == failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return cached_file.read_small(path)

    monkeypatch.setattr(function, "read_small", read_small)
    rows, errors, failures = await read(machine.source())
    assert {(one.device, one.reason) for one in failures} == {("0000:17:00.0", "eio"), ("0000:17:00.0", "malformed")}
    assert len(failures) == 3
    assert all("0000:17:00.0/" in one.detail for one in failures)
    row = rows["0000:17:00.0"]
    assert (row["link_speed_transfers_per_second"], row["link_degraded"], row["link_lanes"]) == (None, None, 16)
    assert info_of(row)["numa_node"] == ""
    assert rows["0000:18:00.0"]["link_degraded"] == 0
    assert errors == {("0000:17:00.0", "fatal"): 1, ("0000:18:00.0", "correctable"): 4}


async def test_reads_do_not_count_against_the_open_file_limit(machine, monkeypatch):
    machine.nic(aer_dev_correctable="TOTAL_ERR_COR 4")
    monkeypatch.setattr(cached_file.resource, "getrlimit", lambda _: (1, 1))  # no file can be kept open any more
    _, errors, failures = await read(machine.source())
    assert (errors, failures) == ({("0000:17:00.0", "correctable"): 4}, [])


async def test_function_removed_during_a_read_is_no_failure(machine, monkeypatch):
    machine.nic()
    source = machine.source()
    found = topology.find_functions(machine.folder, lambda _: True)
    gone = found["0000:17:00.0"]._replace(folder=machine.folder / "gone")
    monkeypatch.setattr(pci, "find_functions", lambda *_: {**found, "0000:99:00.0": gone})
    rows, _, failures = await read(source)
    assert set(rows) == {"0000:17:00.0"}
    assert not failures


async def test_replugged_function_has_another_epoch(machine):
    nic = machine.nic(aer_dev_fatal="TOTAL_ERR_FATAL 1")
    source = machine.source()
    before = (await source.read()).tables
    assert [len(table.epochs) for table in before] == [1, 1]
    nic.rename(nic.with_name("old"))
    for name in ("bus/pci/devices/0000:17:00.0", "class/net/rail0"):
        (machine.folder / name).unlink()
    machine.nic(aer_dev_fatal="TOTAL_ERR_FATAL 0")
    after = (await source.read()).tables
    assert all(old.epochs != new.epochs for old, new in zip(before, after, strict=True))


async def test_hanging_function_affects_no_other(machine, monkeypatch):
    machine.nic(f"{SLOT}/0000:17:00.0", name="rail0")
    machine.nic(f"{SLOT}/0000:18:00.0", name="rail1")
    pipe = machine.folder / "devices" / SLOT / "0000:17:00.0" / "max_link_speed"
    pipe.unlink()
    os.mkfifo(pipe)
    monkeypatch.setattr(function, "read_small", lambda path: path.read_bytes())  # which waits for a writer
    source = machine.source()
    source._serial = BlockingCalls("pci", SHORT)
    rows, _, failures = await read(source)
    assert set(rows) == {"0000:18:00.0"}
    assert [(one.device, one.reason) for one in failures] == [("0000:17:00.0", "timeout")]
    os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    await source.close()


async def test_device_with_a_broken_link_affects_no_other(machine):
    machine.nic()
    for name, target in (("loop", "device"), ("long", "x" * 300), ("gone", "nowhere")):
        folder = machine.folder / "class" / "net" / name
        folder.mkdir(parents=True)
        (folder / "device").symlink_to(target)
    rows, _, failures = await read(machine.source())
    assert rows.keys() == {"0000:17:00.0"}
    assert failures == []


async def test_unlistable_folder_fails_the_source(machine):
    (machine.folder / "class").mkdir()
    (machine.folder / "class" / "net").write_text("no folder")
    with pytest.raises(SourceError) as caught:
        await machine.source().read()
    assert caught.value.reason == "unreadable"
    assert "class/net" in str(caught.value)


async def test_sysfs_fixture():
    source = PciSource(PciOptions(), Host("gpu-001", FIXTURES / "sysfs-pci", Path("/nowhere")))
    rows, errors, failures = await read(source)
    assert not failures
    assert {address: row["link_degraded"] for address, row in rows.items()} == {
        "0000:00:02.0": None,
        "0000:19:00.0": 1,
        "0000:61:00.0": 0,
    }
    assert {address: info_of(row)["nearest_gpu"] for address, row in rows.items()} == {
        "0000:00:02.0": "",
        "0000:19:00.0": "0000:1a:00.0",
        "0000:61:00.0": "",
    }
    assert errors[("0000:19:00.0", "correctable")] == 6


def test_metrics_exported_by_default():
    exported = [one.name for one in SCHEMA.metrics.values() if not one.detail]
    assert exported == [
        "fabric_pci_info",
        "fabric_pci_link_speed_transfers_per_second",
        "fabric_pci_link_lanes",
        "fabric_pci_link_degraded",
    ]
    assert all(one.unit == "transfers_per_second" for one in SCHEMA.metrics.values() if "speed" in one.name)


def test_default_interval_is_a_minute():
    assert float(PciOptions().interval) == 60.0
