"""The configuration space of PCI functions, as the specification lays it out; `tests/lab` compares with lspci."""

import os

import pytest

from exporter.linux.pci_config import PciConfig, read_pci_config
from tests.helpers.checked_host import config_space


def read(tmp_path, data):
    file = tmp_path / "config"
    file.write_bytes(data)
    return read_pci_config(file)


@pytest.mark.parametrize(
    ("control", "expected"),
    [
        (0x2810, (512, 128, True)),  # as lspci of a new host: MaxPayload 128 bytes, MaxReadReq 512 bytes, RlxdOrd+
        (0x5930, (4096, 256, True)),
        (0x2000, (512, 128, False)),
        (0x0000, (128, 128, False)),
    ],
)
def test_device_control(tmp_path, control, expected):
    assert read(tmp_path, config_space(control, 0))[:3] == expected


@pytest.mark.parametrize(
    ("control", "expected"),
    [(0x01, []), (0x1D, ["ReqRedir", "CmpltRedir", "UpstreamFwd"]), (0x04, ["ReqRedir"]), (0x60, [])],
    ids=["SrcValid", "SrcValid and redirects", "one", "EgressCtrl and DirectTrans"],
)
def test_redirects_of_access_control_services(tmp_path, control, expected):
    assert list(read(tmp_path, config_space(0, control)).redirects) == expected


def changed(**bytes_at):
    space = bytearray(config_space(0x2810, 0x1D))
    for offset, data in bytes_at.items():
        place = int(offset.removeprefix("at_"), 16)
        space[place : place + len(data)] = data
    return bytes(space)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", None),
        (config_space(0, 0)[:64], None),
        (b"\xff" * 4096, None),
        (config_space(0x2810, 0x1D)[:256], PciConfig(512, 128, True, None)),
        (changed(at_6=b"\x00"), PciConfig(redirects=())),
        (changed(at_60=b"\x09\x00"), PciConfig(redirects=())),
        (changed(at_100=b"\x00\x00\x00\x00"), PciConfig(512, 128, True, ())),
        (changed(at_100=b"\xff\xff\xff\xff"), PciConfig(512, 128, True, ())),
    ],
    ids=[
        "empty",
        "without rights",
        "gone",
        "256 bytes",
        "no capabilities",
        "no PCI Express",
        "no extended ones",
        "no answer there",
    ],
)
def test_what_is_missing_is_none_or_empty(tmp_path, data, expected):
    assert read(tmp_path, data) == expected


def test_a_list_that_refers_to_itself_ends(tmp_path):
    loop = changed(at_40=b"\x01\x40", at_100=(0x100 << 20 | 1 << 16 | 1).to_bytes(4, "little"))
    assert read(tmp_path, loop) == PciConfig(redirects=())
    loop = changed(at_100=(0x100 << 20 | 1 << 16 | 1).to_bytes(4, "little"))
    assert read(tmp_path, loop) == PciConfig(512, 128, True, ())


def test_what_is_not_a_regular_file_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "config")
    assert read_pci_config(tmp_path / "config") is None
    assert read_pci_config(tmp_path / "missing") is None
