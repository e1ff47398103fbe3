import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.linux import pci
from exporter.linux.pci import (
    VIRTUAL_FUNCTIONS,
    bus_device_driver,
    is_virtual_function,
    parse_aer_errors,
    parse_link_lanes,
    parse_link_speed,
    pci_address,
    upstream_bridge,
    upstream_path,
)

PCI_IDS = Path("/usr/share/misc/pci.ids")
NAMED = 168
"""Virtual functions in the database of April 2023; later ones have more."""


@pytest.fixture
def tree(tmp_path):
    """Return a tree with a NIC behind a PCIe switch, and a function without any bridge."""
    nic = tmp_path / "devices" / "pci0000:16" / "0000:16:01.0" / "0000:17:00.0" / "0000:18:00.0" / "0000:19:00.0"
    for place in (nic / "net" / "rail0", nic.parents[4] / "pci0001:00" / "0001:00:02.0" / "virtio1" / "net" / "eth0"):
        place.mkdir(parents=True)
        (place / "device").symlink_to(place.parent.parent)
        link = tmp_path / "class" / "net" / place.name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(place)
    return tmp_path


def test_function_and_bridges_of_a_class_device(tree):
    function = pci.pci_function(tree / "class" / "net" / "rail0")
    assert function.name == pci_address(tree / "class" / "net" / "rail0") == "0000:19:00.0"
    assert upstream_bridge(function).name == "0000:18:00.0"
    assert upstream_path(function) == ["pci0000:16", "0000:16:01.0", "0000:17:00.0", "0000:18:00.0"]


def test_function_without_a_bridge_above_a_virtio_device(tree):
    function = pci.pci_function(tree / "class" / "net" / "eth0")
    assert function.name == "0001:00:02.0"
    assert upstream_bridge(function) is None
    assert upstream_path(function) == ["pci0001:00"]


def test_device_that_is_not_on_pci(tree):
    assert pci.pci_function(tree / "class" / "net" / "lo") is None
    assert pci_address(tree / "class" / "net" / "lo") == ""


def test_driver_is_read_from_uevent(tree):
    function = pci.pci_function(tree / "class" / "net" / "rail0")
    assert bus_device_driver(function) == ""
    (function / "uevent").write_text("DRIVER=mlx5_core\nPCI_CLASS=20700\n")
    assert bus_device_driver(function) == pci.class_device_driver(tree / "class" / "net" / "rail0") == "mlx5_core"


def model(folder, vendor, device):
    for name, text in (("vendor", vendor), ("device", device)):
        (folder / name).write_text(text + "\n")
    return folder


# The names are those of the PCI ID database, or of the driver's table in Linux for IDs that are not in it yet.
@pytest.mark.parametrize(
    ("vendor", "device", "virtual"),
    [
        ("0x15b3", "0x1004", True),  # ConnectX-3 Virtual Function
        ("0x15b3", "0x101a", True),  # ConnectX-5 Ex Virtual Function
        ("0x15b3", "0x101c", True),  # ConnectX-6 Virtual Function
        ("0x15b3", "0x101e", True),  # ConnectX Family mlx5Gen Virtual Function
        ("0x15b3", "0xa2d3", True),  # BlueField multicore SoC family VF
        ("0x14e4", "0x1806", True),  # BCM5750X NetXtreme-E Ethernet Virtual Function
        ("0x14e4", "0x1819", True),  # NETXTREME_E_P7_VF
        ("0x1dd8", "0x1003", True),  # DSC Ethernet Controller VF
        ("0x19e5", "0xa22f", True),  # HNS RDMA Network Controller (Virtual Function)
        ("0x8086", "0x1889", True),  # Ethernet Adaptive Virtual Function
        ("0x8086", "0x10ed", True),  # 82599 Ethernet Controller Virtual Function
        ("0x1425", "0x6811", True),  # T6225-LL-CR Unified Wire Ethernet Controller [VF]
        ("0x15b3", "0x101b", False),  # MT28908 Family [ConnectX-6]
        ("0x15b3", "0x1021", False),  # MT2910 Family [ConnectX-7]
        ("0x15b3", "0xa2dc", False),  # BlueField-3 integrated ConnectX-7 network controller
        ("0x14e4", "0x1750", False),  # BCM57508 NetXtreme-E
        ("0x14e4", "0x1800", False),  # BCM57502 NetXtreme-E Ethernet Partition: no virtual function
        ("0x14e4", "0x1760", False),  # BCM57608
        ("0x1dd8", "0x1002", False),  # DSC Ethernet Controller
        ("0x19e5", "0xa228", False),  # HNS RDMA 200G
        ("0x8086", "0x1592", False),  # Ethernet Controller E810-C for QSFP
        ("0x1425", "0x6411", False),  # T6225-LL-CR Unified Wire Ethernet Controller
        ("0x1ae0", "0x0042", False),  # Compute Engine Virtual Ethernet [gVNIC]: not a virtual function for its guest
        ("0x1d0f", "0xec20", False),  # Elastic Network Adapter
        ("0x1414", "0x00ba", False),  # Microsoft Azure Network Adapter VF
        ("0x1af4", "0x1041", False),  # Virtio network device
        ("0x1dd8", "0x101e", False),  # an ID of another vendor
        ("", "", False),
        ("0x15b3", "4126", False),
        ("0x15b3", "-0x101e", False),
    ],
)
def test_virtual_function_in_a_virtual_machine_is_recognised_by_its_ids(tmp_path, vendor, device, virtual):
    assert is_virtual_function(model(tmp_path, vendor, device)) is virtual


def test_virtual_function_on_its_host_is_recognised_by_physfn(tmp_path):
    assert not is_virtual_function(tmp_path)
    model(tmp_path, "0x1d0f", "0xffff")
    (tmp_path / "physfn").symlink_to("..")
    assert is_virtual_function(tmp_path)


def test_virtual_functions_have_such_names_in_the_pci_id_database():
    if not PCI_IDS.exists():
        pytest.skip("needs pci.ids")
    vendor, listed, called = -1, (), {}
    for line in PCI_IDS.read_text(errors="replace").partition("\n# List of known device classes")[0].splitlines():
        if found := re.match("([0-9a-f]{4})  ", line):
            vendor = int(found[1], 16)
            listed = VIRTUAL_FUNCTIONS.get(vendor, ())
        elif (found := re.match("\t([0-9a-f]{4})  (.*)", line)) and int(found[1], 16) in listed:
            called[vendor, found[1]] = found[2]
    assert [name for name in called.values() if not re.search(r"Virtual Function|\bVF\b", name)] == []
    assert len(called) >= NAMED, "the others are named by their drivers alone"


# Texts of pci_speed_string() of drivers/pci/probe.c, now and (without the word and the fraction) on older kernels.
@pytest.mark.parametrize(
    ("text", "speed"),
    [
        (b"2.5 GT/s PCIe\n", 2.5e9),
        (b"5.0 GT/s PCIe\n", 5e9),
        (b"8.0 GT/s PCIe\n", 8e9),
        (b"8 GT/s\n", 8e9),
        (b"16.0 GT/s PCIe\n", 16e9),
        (b"32.0 GT/s PCIe\n", 32e9),
        (b"32 GT/s", 32e9),
        (b"64.0 GT/s PCIe\n", 64e9),
        (b"Unknown\n", None),
        (b"Unknown speed\n", None),
        (b"0 GT/s\n", None),
    ],
)
def test_parse_link_speed(text, speed):
    assert parse_link_speed(text) == speed


@pytest.mark.parametrize(
    "text", [b"", b"\n", b"32", b"GT/s", b"-8 GT/s", b"32.0 GT/sec", b"nan GT/s", b"1e9 GT/s", b"9" * 4000 + b" GT/s"]
)
def test_not_a_link_speed(text):
    with pytest.raises(ValueError, match="not a link speed"):
        parse_link_speed(text)


@pytest.mark.parametrize(
    ("text", "lanes"), [(b"16\n", 16), (b"1", 1), (b"32\n", 32), (b"0\n", None), (b"63\n", None), (b"255\n", None)]
)
def test_parse_link_lanes(text, lanes):
    assert parse_link_lanes(text) == lanes


@pytest.mark.parametrize("text", [b"", b"x16", b"-1", b"1.5", b"1600", "\u0661".encode()])
def test_not_a_number_of_lanes(text):
    with pytest.raises(ValueError, match="not a number of lanes"):
        parse_link_lanes(text)


CORRECTABLE = (
    b"Receiver Error 2\nBad TLP 0\nBad DLLP 1\nRollover 0\nTimeout 0\nNonFatalErr 0\nCorrIntErr 0\nHeaderOF 0\n"
)


def test_aer_errors_are_the_total():
    assert parse_aer_errors(CORRECTABLE + b"TOTAL_ERR_COR 2\n") == 2
    assert parse_aer_errors(b"Undefined 0\nTOTAL_ERR_FATAL 0\n") == 0
    assert parse_aer_errors(b"TOTAL_ERR_NONFATAL 18446744073709551615\n") == 2**64 - 1


def test_aer_errors_without_a_total_are_added_up():
    assert parse_aer_errors(CORRECTABLE) == 3


@pytest.mark.parametrize(
    "text",
    [b"", b"\n\n", b"Receiver Error\n", b"7\n", b"Bad TLP 0\nbroken\n", b"Bad TLP -1\n", b"Bad TLP " + b"9" * 21],
)
def test_not_a_count_of_errors(text):
    with pytest.raises(ValueError, match=r"not a count of errors|no counts of errors"):
        parse_aer_errors(text)


@given(st.binary(max_size=100))
def test_parsers_raise_only_value_errors(text):
    for parse in (parse_link_speed, parse_link_lanes, parse_aer_errors):
        try:
            value = parse(text)
        except ValueError:
            continue
        assert value is None or value >= 0


def port(tmp_path, **netdevs):
    """Create an RDMA device whose function has these network devices; values are (dev_port, phys_port_name)."""
    device = tmp_path / "mlx"
    for name, files in netdevs.items():
        place: Path = device / "device" / "net" / name
        place.mkdir(parents=True)
        for file, text in zip(("dev_port", "phys_port_name"), files, strict=True):
            if text is not None:
                (place / file).write_text(text + "\n")
    return device


@pytest.mark.parametrize(
    ("netdevs", "number", "expected"),
    [
        ({}, 1, ""),
        ({"eth0": (None, None)}, 1, "eth0"),
        ({"eth0": ("0", None), "eth1": ("1", None)}, 2, "eth1"),  # mlx4
        ({"eth0": ("0", "p0"), "eth0r": ("0", "pf0vf0")}, 1, "eth0"),  # switchdev
        ({"eth0": ("0", None), "eth1": ("0", None)}, 1, ""),  # ambiguous
    ],
)
def test_netdev_of_port(tmp_path, netdevs, number, expected):
    assert pci.netdev_of_port(port(tmp_path, **netdevs), number) == expected


def test_devices_are_sorted_by_address_and_then_by_the_numbers_in_their_names():
    places = [("", "eth10"), ("", "eth9"), ("0000:9b:00.0", "b"), ("0000:17:00.1", "a"), ("0000:17:00.0", "c")]
    expected = [("0000:17:00.0", "c"), ("0000:17:00.1", "a"), ("0000:9b:00.0", "b"), ("", "eth9"), ("", "eth10")]
    assert sorted(places, key=lambda place: pci.pci_sort_key(*place)) == expected
